/* See error.h. */
#include "base/error.h"

#include "base/cleanup.h"
#include "base/text.h"

#include <stdio.h>
#include <string.h>

/* What is returned when there is no memory left to describe an error with: shared, constant, never freed. */
static const struct cellblock_error out_of_memory = {
    .code = CELLBLOCK_ERROR_MEMORY,
    .errnum = ENOMEM,
    .message = (char *)"out of memory",
};

int cb_fail_memory(cellblock_error **error)
{
    if (error && !*error)
        *error = (cellblock_error *)&out_of_memory;
    return -1;
}

static char *format_all(const char *format, va_list arguments, int errnum)
{
    char *body = NULL;
    if (vasprintf(&body, format, arguments) < 0)
        return NULL;
    if (errnum == 0)
        return body;
    cb_autofree char *prefix = body;
    char buffer[128];
    return cb_format("%s: %s", prefix, strerror_r(errnum, buffer, sizeof buffer));
}

int cb_fail(cellblock_error **error, enum cellblock_error_code code, int errnum, const char *format, ...)
{
    if (!error || *error)
        return -1;
    va_list arguments;
    va_start(arguments, format);
    cb_autofree char *message = format_all(format, arguments, errnum);
    va_end(arguments);
    struct cellblock_error *made = message ? calloc(1, sizeof *made) : NULL;
    if (!made)
        return cb_fail_memory(error);
    made->code = code;
    made->errnum = errnum;
    made->message = cb_steal(message);
    *error = made;
    return -1;
}

int cb_error_hint(cellblock_error **error, const char *format, ...)
{
    if (!error || !*error || *error == &out_of_memory)
        return -1;
    va_list arguments;
    va_start(arguments, format);
    char *hint = format_all(format, arguments, 0);
    va_end(arguments);
    if (hint) {
        free((*error)->hint);
        (*error)->hint = hint;
    }
    return -1;
}

int cb_error_layer(cellblock_error **error, const char *layer)
{
    if (!error || !*error || *error == &out_of_memory)
        return -1;
    char *copy = strdup(layer);
    if (copy) {
        free((*error)->layer);
        (*error)->layer = copy;
    }
    return -1;
}

enum cellblock_error_code cellblock_error_code(const cellblock_error *error)
{
    return error ? error->code : 0;
}

int cellblock_error_errno(const cellblock_error *error)
{
    return error ? error->errnum : 0;
}

const char *cellblock_error_message(const cellblock_error *error)
{
    return error ? error->message : "no error";
}

const char *cellblock_error_layer(const cellblock_error *error)
{
    return error ? error->layer : NULL;
}

const char *cellblock_error_hint(const cellblock_error *error)
{
    return error ? error->hint : NULL;
}

void cellblock_error_free(cellblock_error *error)
{
    if (!error || error == &out_of_memory)
        return;
    free(error->layer);
    free(error->message);
    free(error->hint);
    free(error);
}
