/* Writes JSON, indented. Memory trouble sticks to the text and is asked for once, in cb_writer_take(). Each function
 * takes the key of a member, or NULL inside a list and at the top. */
#pragma once

#include "base/text.h"
#include "cellblock.h"

struct cb_writer {
    struct cb_text text;
    unsigned depth;
    bool object[64]; /* by depth: an object was opened there (else a list) */
    bool filled;     /* the innermost container has a member */
};

void cb_write_object(struct cb_writer *writer, const char *key);
void cb_write_list(struct cb_writer *writer, const char *key);
/* Ends the innermost object or list. */
void cb_write_end(struct cb_writer *writer);
void cb_write_string(struct cb_writer *writer, const char *key, const char *value); /* NULL: null */
void cb_write_number(struct cb_writer *writer, const char *key, uint64_t value);
void cb_write_flag(struct cb_writer *writer, const char *key, bool value);
void cb_write_null(struct cb_writer *writer, const char *key);
/* Hands the text over. */
int cb_writer_take(struct cb_writer *writer, char **json, cellblock_error **error);
