/* JSON with comments and trailing commas, read strictly, with the position of every key and value.
 *
 * Written here and not taken from a library because policies need the positions (jansson, which the rest of the code
 * uses, forgets them), and because a policy is read at every start of a cell: this takes a fifth of the time. The fuzz
 * target holds it against jansson.
 *
 * The result is one flat array in document order: the first child of a node is `node + 1`, its next sibling is
 * `node + node->span`. Nothing here knows what the keys mean; that duplicate keys are refused is up to the caller, who
 * knows which keys there can be. */
#pragma once

#include "cellblock.h"

#include <stddef.h>
#include <stdint.h>

#define CB_JSONC_MAX_LENGTH ((size_t)1 << 20)
#define CB_JSONC_MAX_DEPTH 32

enum cb_json_type {
    CB_JSON_OBJECT,
    CB_JSON_LIST,
    CB_JSON_STRING,
    CB_JSON_NUMBER,
    CB_JSON_TRUE,
    CB_JSON_FALSE,
    CB_JSON_NULL,
};

struct cb_json {
    enum cb_json_type type;
    uint32_t span;  /* how many nodes this value takes, itself included */
    uint32_t count; /* members or items */
    int key_line;   /* of the member's key; 0 for items and the root */
    int key_column;
    int line; /* of the value; lines and columns count from 1, columns in characters */
    int column;
    const char *key;  /* NULL for items and the root */
    const char *text; /* strings: without escapes; numbers: as they were written; else NULL */
};

struct cb_jsonc {
    struct cb_json *nodes; /* the first one is the root */
    size_t count;
    char *text; /* what the nodes point into */
};

/* Errors start with "NAME:LINE:COLUMN: ". */
int cb_jsonc_read(const char *text, size_t length, const char *name, struct cb_jsonc *out, cellblock_error **error);
void cb_jsonc_free(struct cb_jsonc *jsonc);
#define cb_autojsonc __attribute__((cleanup(cb_jsonc_free)))
