/* Strings: a growable buffer, and the few helpers that libc lacks. Nothing here exits or prints. */
#pragma once

#include <stdbool.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

struct cb_text {
    char *data;    /* always NUL-terminated once anything was added; may be NULL before */
    size_t length;
    size_t room;
    bool failed;   /* an allocation failed: everything after is ignored; ask once, at the end */
};

void cb_text_add(struct cb_text *text, const char *data, size_t length);
void cb_text_addf(struct cb_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The text as a string that the caller owns, or NULL if an allocation failed on the way. */
char *cb_text_take(struct cb_text *text);
void cb_text_free(struct cb_text *text);
#define cb_autotext __attribute__((cleanup(cb_text_free)))

/* NULL when out of memory. */
char *cb_format(const char *format, ...) __attribute__((format(printf, 1, 2)));

bool cb_has_prefix(const char *string, const char *prefix);
/* True when path is dir or lies below it; both absolute and free of "." and "..". */
bool cb_path_within(const char *path, const char *dir);

/* Edit distance, capped at `limit` (returned when it is reached): what "did you mean" is made of. */
unsigned cb_edit_distance(const char *a, const char *b, unsigned limit);

/* Makes bytes that came from outside safe to show on a terminal: control bytes, escapes and invalid UTF-8 become
 * \xNN. NULL when out of memory. */
char *cb_printable(const char *bytes, size_t length);

/* How many of the bytes are valid UTF-8 from the start. */
size_t cb_utf8_prefix(const char *bytes, size_t length);
