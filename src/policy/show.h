/* Parts of `policy show` that its two files share. */
#pragma once

#include "policy/policy.h"
#include "policy/writer.h"

/* "origin" */
void cb_show_origin(struct cb_writer *writer, const struct cb_origin *origin);
/* "tightens", for the rules of a further layer. */
void cb_show_tightens(struct cb_writer *writer, size_t layer);
/* "network", "sockets" and "publish" (show_network.c). */
void cb_show_network(struct cb_writer *writer, const cellblock_policy *policy);
