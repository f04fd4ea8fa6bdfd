/* See reader.h. */
#include "policy/reader.h"

#include "base/cleanup.h"
#include "base/error.h"
#include "base/text.h"
#include "policy/values.h"

#include <stdio.h>
#include <string.h>

#define MOST_ITEMS 4096 /* in one list: keeps what is made of it (mounts, comparisons) in bounds */

/* One option of the command line is a document of its own, with what the person typed as its name. That says it all:
 * no line, no column, and neither the key nor the value again. */
static bool is_option(const struct cb_reader *reader)
{
    return cb_has_prefix(reader->document->name, "--");
}

int cb_refuse(const struct cb_reader *reader, int line, int column, const char *format, ...)
{
    char *made = NULL;
    va_list arguments;
    va_start(arguments, format);
    int length = vasprintf(&made, format, arguments);
    va_end(arguments);
    if (length < 0)
        return cb_fail_memory(reader->error);
    cb_autofree char *text = made;
    cb_autofree char *shown = cb_printable(text, (size_t)length);
    if (!shown)
        return cb_fail_memory(reader->error);
    if (is_option(reader))
        return cb_fail(reader->error, CELLBLOCK_ERROR_POLICY, 0, "%s%s", reader->document->name, shown);
    return cb_fail(reader->error, CELLBLOCK_ERROR_POLICY, 0, "%s:%d:%d: %s", reader->document->name, line, column,
                   shown);
}

/* The name of a key as a person would point at it: files[3].access. */
const char *cb_full_name(const struct cb_reader *reader, struct cb_where where, const char *key,
                         char buffer[static 128])
{
    if (is_option(reader))
        buffer[0] = '\0';
    else if (where.index >= 0)
        snprintf(buffer, 128, "%s[%ld].%s", where.section, where.index, key);
    else
        snprintf(buffer, 128, "%s%s%s", where.section, *where.section ? "." : "", key);
    return buffer;
}

const char *cb_type_word(const struct cb_json *value)
{
    switch (value->type) {
    case CB_JSON_OBJECT:
        return "an object";
    case CB_JSON_LIST:
        return "a list";
    case CB_JSON_STRING:
        return "a string";
    case CB_JSON_NUMBER:
        return "a number";
    case CB_JSON_TRUE:
        return "true";
    case CB_JSON_FALSE:
        return "false";
    case CB_JSON_NULL:
        break;
    }
    return "null";
}

const char *cb_string_of(const struct cb_json *value)
{
    return value->type == CB_JSON_STRING ? value->text : NULL;
}

int cb_refuse_type(const struct cb_reader *reader, struct cb_where where, const struct cb_key *key,
                   const struct cb_json *value, const char *wanted)
{
    char name[128];
    if (is_option(reader)) /* "a number, or null for unlimited": there is no null in an option */
        return cb_refuse(reader, value->line, value->column, " must be %.*s", (int)strcspn(wanted, ","), wanted);
    return cb_refuse(reader, value->line, value->column, "%s must be %s, not %s",
                     cb_full_name(reader, where, key->name, name), wanted, cb_type_word(value));
}

int cb_refuse_value(const struct cb_reader *reader, struct cb_where where, const struct cb_key *key,
                    const struct cb_json *value, const char *text, const char *reason)
{
    char name[128];
    if (is_option(reader))
        return cb_refuse(reader, value->line, value->column, " %s", reason);
    return cb_refuse(reader, value->line, value->column, "%s: \"%.*s\" %s",
                     cb_full_name(reader, where, key->name, name), CB_SHOWN, text, reason);
}

struct cb_origin cb_origin_of(const struct cb_reader *reader, const struct cb_json *node)
{
    bool member = node->key_line > 0;
    if (is_option(reader))
        return (struct cb_origin){.document = reader->document->name};
    return (struct cb_origin){reader->document->name, member ? node->key_line : node->line,
                              member ? node->key_column : node->column};
}

int cb_copy_string(const struct cb_reader *reader, const char *text, char **out)
{
    char *copy = strdup(text);
    if (!copy)
        return cb_fail_memory(reader->error);
    free(*out);
    *out = copy;
    return 0;
}

int cb_check_length(const struct cb_reader *reader, struct cb_where where, const struct cb_key *key,
                    const struct cb_json *value)
{
    char name[128];
    if (value->count <= MOST_ITEMS)
        return 0;
    return cb_refuse(reader, value->line, value->column, "%s has %u entries: at most %d are possible",
                     cb_full_name(reader, where, key->name, name), (unsigned)value->count, MOST_ITEMS);
}

int cb_refuse_word(const struct cb_reader *reader, struct cb_where where, const struct cb_key *key,
                   const struct cb_json *value, const char *text)
{
    cb_autotext struct cb_text reason = {0};
    const char *nearest = cb_word_nearest(key->words, text);
    if (nearest) {
        cb_text_addf(&reason, "is not known, did you mean \"%s\"?", nearest);
    } else {
        cb_text_addf(&reason, "is not one of");
        for (const struct cb_word *word = key->words; word->word; word++)
            if (!word->unavailable)
                cb_text_addf(&reason, "%s \"%s\"", word == key->words ? "" : ",", word->word);
    }
    if (reason.failed)
        return cb_fail_memory(reader->error);
    return cb_refuse_value(reader, where, key, value, text, reason.data);
}

int cb_read_word(const struct cb_reader *reader, struct cb_where where, const struct cb_key *key,
                 const struct cb_json *value, int *out)
{
    const char *text = cb_string_of(value);
    if (!text)
        return cb_refuse_type(reader, where, key, value,
                              key->kind == CB_KIND_WORD_OR_OBJECT ? "a string or an object" : "a string");
    const struct cb_word *word = cb_word_find(key->words, text);
    if (!word)
        return cb_refuse_word(reader, where, key, value, text);
    char name[128];
    if (word->unavailable)
        return cb_refuse(reader, value->line, value->column, "%s: %s", cb_full_name(reader, where, key->name, name),
                         word->unavailable);
    *out = word->value;
    return 0;
}

int cb_read_text(const struct cb_reader *reader, struct cb_where where, const struct cb_key *key,
                 const struct cb_json *value, const char **out)
{
    const char *text = cb_string_of(value);
    if (!text)
        return cb_refuse_type(reader, where, key, value, "a string");
    const char *reason = key->kind == CB_KIND_TEXT ? cb_value_plain(text) : NULL;
    if (reason)
        return cb_refuse_value(reader, where, key, value, text, reason);
    *out = text;
    return 0;
}
