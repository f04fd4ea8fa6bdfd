/* A run whose supervisor is a helper process: forking a large caller is slow, so the caller starts the small
 * `cellblock` program instead (without copying itself) and speaks to it over a socket pair. */
#pragma once

#include "supervisor/supervisor.h"

struct cb_remote;

/* What the first number of the helper's replies means. */
enum cb_reply { CB_REPLY_STARTED = 1, CB_REPLY_ERROR, CB_REPLY_RESULT, CB_REPLY_READS /* or not: 1 or 0 */,
                CB_REPLY_CHANGED /* the rules */ };

/* Numbers that the caller sends; others are signals. */
enum { CB_ASK_CANCEL = -1, CB_ASK_RULES = -2 /* a frame follows: name, text or none, cut */ };

/* 1: this run goes through the helper; 0: it does not; -1: it must and can't. */
int cb_remote_wanted(struct cellblock_options *options, cellblock_error **error);
int cb_remote_start(struct cellblock_cell *cell, const cellblock_policy *policy,
                    const struct cellblock_options *options, cellblock_error **error);
int cb_remote_dispatch(struct cellblock_cell *cell, cellblock_error **error);
/* signal -1: cancel. */
int cb_remote_signal(struct cellblock_cell *cell, int signal, cellblock_error **error);
int cb_remote_result(struct cellblock_cell *cell, cellblock_result **result, cellblock_error **error);
/* See cellblock_reads_terminal(). */
bool cb_remote_reads(const struct cellblock_cell *cell);
/* See cellblock_rules_add() and cellblock_rules_remove() (`text` is NULL). */
int cb_remote_rules(struct cellblock_cell *cell, const char *name, const char *text, size_t length, bool cut,
                    cellblock_error **error);
void cb_remote_free(struct cb_remote *remote);
