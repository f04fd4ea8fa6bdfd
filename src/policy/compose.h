/* Layers: how documents and profiles make up one. */
#pragma once

#include "policy/policy.h"

/* Where the text of a profile comes from: cb_profile_text(), or a test's own. */
typedef const char *cb_profile_lookup(const char *name, size_t *length);

enum cb_compose_base {
    CB_COMPOSE_IMPLICIT_BASE, /* a document without "extends" extends "base" */
    CB_COMPOSE_NO_BASE,       /* it is added to what is there already */
};

/* Puts a document on top of a layer, after the profiles that it extends (each once per layer). On failure the layer is
 * as it was. */
int cb_layer_add(struct cb_layer *layer, const char *text, size_t length, const char *name, enum cb_compose_base base,
                 cb_profile_lookup *lookup, cellblock_error **error);
/* Puts a profile, and what it extends, on top. */
int cb_layer_add_profile(struct cb_layer *layer, const char *profile, cb_profile_lookup *lookup,
                         cellblock_error **error);
void cb_layer_free(struct cb_layer *layer);

/* A deep copy of a document (copy.c). */
int cb_document_copy(const struct cb_document *document, struct cb_document **copy, cellblock_error **error);
