/* See writer.h. */
#include "policy/writer.h"

#include "base/error.h"

#include <inttypes.h>
#include <string.h>

/* Strings are valid UTF-8 here: they came through the parser, or through cb_printable(). */
static void quote(struct cb_text *text, const char *value)
{
    cb_text_add(text, "\"", 1);
    for (const char *c = value; *c; c++) {
        if (*c == '"' || *c == '\\') {
            cb_text_add(text, "\\", 1);
            cb_text_add(text, c, 1);
        } else if ((unsigned char)*c < 0x20 || *c == 0x7f) {
            cb_text_addf(text, "\\u%04x", (unsigned)*c);
        } else {
            cb_text_add(text, c, 1);
        }
    }
    cb_text_add(text, "\"", 1);
}

static void indent(struct cb_writer *writer)
{
    cb_text_add(&writer->text, "\n", 1);
    for (unsigned i = 0; i < writer->depth; i++)
        cb_text_add(&writer->text, "  ", 2);
}

static void begin(struct cb_writer *writer, const char *key)
{
    if (writer->filled)
        cb_text_add(&writer->text, ",", 1);
    if (writer->depth > 0)
        indent(writer);
    if (key) {
        quote(&writer->text, key);
        cb_text_add(&writer->text, ": ", 2);
    }
    writer->filled = true;
}

static void open_container(struct cb_writer *writer, const char *key, bool object)
{
    begin(writer, key);
    cb_text_add(&writer->text, object ? "{" : "[", 1);
    if (writer->depth >= sizeof writer->object / sizeof *writer->object) {
        writer->text.failed = true;
        return;
    }
    writer->object[writer->depth++] = object;
    writer->filled = false;
}

void cb_write_object(struct cb_writer *writer, const char *key)
{
    open_container(writer, key, true);
}

void cb_write_list(struct cb_writer *writer, const char *key)
{
    open_container(writer, key, false);
}

void cb_write_end(struct cb_writer *writer)
{
    if (writer->text.failed)
        return;
    bool object = writer->object[--writer->depth];
    if (writer->filled)
        indent(writer);
    cb_text_add(&writer->text, object ? "}" : "]", 1);
    writer->filled = true;
}

void cb_write_string(struct cb_writer *writer, const char *key, const char *value)
{
    if (!value) {
        cb_write_null(writer, key);
        return;
    }
    begin(writer, key);
    quote(&writer->text, value);
}

void cb_write_number(struct cb_writer *writer, const char *key, uint64_t value)
{
    begin(writer, key);
    cb_text_addf(&writer->text, "%" PRIu64, value);
}

void cb_write_flag(struct cb_writer *writer, const char *key, bool value)
{
    begin(writer, key);
    cb_text_add(&writer->text, value ? "true" : "false", value ? 4 : 5);
}

void cb_write_null(struct cb_writer *writer, const char *key)
{
    begin(writer, key);
    cb_text_add(&writer->text, "null", 4);
}

int cb_writer_take(struct cb_writer *writer, char **json, cellblock_error **error)
{
    cb_text_add(&writer->text, "\n", 1);
    char *made = cb_text_take(&writer->text);
    if (!made)
        return cb_fail_memory(error);
    *json = made;
    return 0;
}
