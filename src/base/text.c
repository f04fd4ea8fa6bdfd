/* See text.h and array.h. */
#include "base/text.h"

#include "base/array.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool text_reserve(struct cb_text *text, size_t more)
{
    if (text->failed)
        return false;
    if (more >= SIZE_MAX / 2 - text->length) {
        text->failed = true;
        return false;
    }
    size_t needed = text->length + more + 1;
    if (needed <= text->room)
        return true;
    size_t room = text->room ? text->room : 64;
    while (room < needed)
        room *= 2;
    char *grown = realloc(text->data, room);
    if (!grown) {
        text->failed = true;
        return false;
    }
    text->data = grown;
    text->room = room;
    return true;
}

void cb_text_add(struct cb_text *text, const char *data, size_t length)
{
    if (!text_reserve(text, length))
        return;
    memcpy(text->data + text->length, data, length);
    text->length += length;
    text->data[text->length] = '\0';
}

void cb_text_addf(struct cb_text *text, const char *format, ...)
{
    char *made = NULL;
    va_list arguments;
    va_start(arguments, format);
    int length = vasprintf(&made, format, arguments);
    va_end(arguments);
    if (length < 0) {
        text->failed = true;
        return;
    }
    cb_text_add(text, made, (size_t)length);
    free(made);
}

char *cb_text_take(struct cb_text *text)
{
    cb_text_add(text, "", 0);
    char *data = text->failed ? NULL : text->data;
    if (data)
        text->data = NULL;
    cb_text_free(text);
    return data;
}

void cb_text_free(struct cb_text *text)
{
    free(text->data);
    *text = (struct cb_text){0};
}

char *cb_format(const char *format, ...)
{
    char *made = NULL;
    va_list arguments;
    va_start(arguments, format);
    int length = vasprintf(&made, format, arguments);
    va_end(arguments);
    return length < 0 ? NULL : made;
}

bool cb_has_prefix(const char *string, const char *prefix)
{
    return strncmp(string, prefix, strlen(prefix)) == 0;
}

bool cb_path_within(const char *path, const char *dir)
{
    size_t length = strlen(dir);
    if (length == 1 && dir[0] == '/')
        return path[0] == '/';
    return strncmp(path, dir, length) == 0 && (path[length] == '\0' || path[length] == '/');
}

unsigned cb_edit_distance(const char *a, const char *b, unsigned limit)
{
    size_t columns = strlen(b);
    if (columns > 63 || strlen(a) > 63)
        return limit;
    unsigned row[64];
    for (size_t j = 0; j <= columns; j++)
        row[j] = (unsigned)j;
    for (size_t i = 0; a[i]; i++) {
        unsigned diagonal = row[0];
        row[0] = (unsigned)i + 1;
        for (size_t j = 0; j < columns; j++) {
            unsigned substitute = diagonal + (a[i] != b[j]);
            unsigned least = row[j] < row[j + 1] ? row[j] + 1 : row[j + 1] + 1;
            diagonal = row[j + 1];
            row[j + 1] = substitute < least ? substitute : least;
        }
    }
    return row[columns] < limit ? row[columns] : limit;
}

/* The length of the valid UTF-8 sequence at `bytes`, or 0. */
static size_t utf8_sequence(const unsigned char *bytes, size_t left)
{
    unsigned char first = bytes[0];
    size_t length = first < 0x80 ? 1 : first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
    if (length == 0 || length > left)
        return 0;
    for (size_t i = 1; i < length; i++)
        if ((bytes[i] & 0xc0) != 0x80)
            return 0;
    if ((first == 0xe0 && bytes[1] < 0xa0) || (first == 0xed && bytes[1] > 0x9f) ||
        (first == 0xf0 && bytes[1] < 0x90) || (first == 0xf4 && bytes[1] > 0x8f))
        return 0;
    return length;
}

size_t cb_utf8_prefix(const char *bytes, size_t length)
{
    size_t at = 0;
    while (at < length) {
        size_t step = utf8_sequence((const unsigned char *)bytes + at, length - at);
        if (step == 0)
            break;
        at += step;
    }
    return at;
}

char *cb_printable(const char *bytes, size_t length)
{
    struct cb_text text = {0};
    for (size_t at = 0; at < length;) {
        const unsigned char *here = (const unsigned char *)bytes + at;
        size_t step = utf8_sequence(here, length - at);
        bool control = step == 0 || here[0] < 0x20 || here[0] == 0x7f || (here[0] == 0xc2 && here[1] < 0xa0);
        if (control) {
            cb_text_addf(&text, "\\x%02x", here[0]);
            at++;
        } else {
            cb_text_add(&text, bytes + at, step);
            at += step;
        }
    }
    return cb_text_take(&text);
}

void *cb_array_push_(void **items, size_t *count, size_t item_size)
{
    size_t have = *count;
    if ((have & (have - 1)) == 0) { /* zero or a power of two: full */
        size_t room = have ? have * 2 : 1;
        void *grown = reallocarray(*items, room, item_size);
        if (!grown)
            return NULL;
        *items = grown;
    }
    char *slot = (char *)*items + have * item_size;
    memset(slot, 0, item_size);
    *count = have + 1;
    return slot;
}
