/* The error object behind `cellblock_error`. Every failing function returns -1 and fills one: what was
 * tried, on what, why it failed, and (where there is something to do) what the person can do. */
#pragma once

#include "cellblock.h"

#include <stdarg.h>

struct cellblock_error {
    enum cellblock_error_code code;
    int errnum;     /* 0 when no system call was the cause */
    char *layer;    /* the protection that could not be applied, or NULL */
    char *message;  /* one or more lines, no trailing newline */
    char *hint;     /* what to do about it, or NULL */
};

/* Fills *error (when error is not NULL and nothing is there yet) and returns -1. With errnum != 0 its text is
 * appended after ": ". Running out of memory here yields a constant error object, never a silent success. */
int cb_fail(cellblock_error **error, enum cellblock_error_code code, int errnum, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* CELLBLOCK_ERROR_SYSTEM with errno. */
#define cb_fail_errno(error, ...) cb_fail(error, CELLBLOCK_ERROR_SYSTEM, errno, __VA_ARGS__)

int cb_fail_memory(cellblock_error **error);

/* Adds to an error that is already there; both return -1 so that they can end a function. */
int cb_error_hint(cellblock_error **error, const char *format, ...) __attribute__((format(printf, 2, 3)));
int cb_error_layer(cellblock_error **error, const char *layer);
