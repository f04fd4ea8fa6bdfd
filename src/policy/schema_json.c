/* The JSON Schema (draft 2020-12) of policy files, printed from the table in schema.c: what it allows and what the
 * parser allows can't drift apart. */
#include "policy/policy.h"
#include "policy/schema.h"
#include "policy/writer.h"

static void write_section(struct cb_writer *writer, const struct cb_section *section);

static void write_words(struct cb_writer *writer, const struct cb_word *words)
{
    cb_write_list(writer, "enum");
    for (; words->word; words++)
        if (!words->unavailable)
            cb_write_string(writer, NULL, words->word);
    cb_write_end(writer);
}

static void write_item(struct cb_writer *writer, const struct cb_key *key)
{
    cb_write_object(writer, "items");
    if (key->words) {
        write_words(writer, key->words);
    } else if (key->id == CB_KEY_EXTENDS) {
        cb_write_list(writer, "enum");
        for (const char *const *name = cb_profile_names(); *name; name++)
            cb_write_string(writer, NULL, *name);
        cb_write_end(writer);
    } else {
        cb_write_string(writer, "type", "string");
        cb_write_string(writer, "pattern", key->pattern);
    }
    cb_write_end(writer);
}

/* A number, perhaps also a string with a unit, or null for unlimited. */
static void write_number(struct cb_writer *writer, const struct cb_key *key)
{
    cb_write_list(writer, "anyOf");
    cb_write_object(writer, NULL);
    bool decimals = key->kind == CB_KIND_DURATION || key->kind == CB_KIND_SHARE;
    cb_write_string(writer, "type", decimals ? "number" : "integer");
    if (decimals) {
        cb_write_number(writer, "exclusiveMinimum", 0);
    } else {
        cb_write_number(writer, "minimum", key->minimum);
        cb_write_number(writer, "maximum", key->maximum);
    }
    cb_write_end(writer);
    if (key->kind != CB_KIND_COUNT && key->kind != CB_KIND_SHARE) {
        cb_write_object(writer, NULL);
        cb_write_string(writer, "type", "string");
        cb_write_string(writer, "pattern",
                        key->kind == CB_KIND_SIZE ? "^[0-9]+([KMGT](iB)?)?$" : "^[0-9]+(\\.[0-9]+)?(ms|s|m|h)?$");
        cb_write_end(writer);
    }
    cb_write_object(writer, NULL);
    cb_write_string(writer, "type", "null");
    cb_write_end(writer);
    cb_write_end(writer);
}

static void write_port(struct cb_writer *writer)
{
    cb_write_string(writer, "type", "integer");
    cb_write_number(writer, "minimum", 1);
    cb_write_number(writer, "maximum", 65535);
}

/* A number or a range. */
static void write_one_port(struct cb_writer *writer, const char *key)
{
    cb_write_object(writer, key);
    cb_write_list(writer, "anyOf");
    cb_write_object(writer, NULL);
    write_port(writer);
    cb_write_end(writer);
    cb_write_object(writer, NULL);
    cb_write_string(writer, "type", "string");
    cb_write_string(writer, "pattern", "^[1-9][0-9]{0,4}-[1-9][0-9]{0,4}$");
    cb_write_end(writer);
    cb_write_end(writer);
    cb_write_end(writer);
}

static void write_required(struct cb_writer *writer, const char *first, const char *second)
{
    cb_write_list(writer, "required");
    cb_write_string(writer, NULL, first);
    if (second)
        cb_write_string(writer, NULL, second);
    cb_write_end(writer);
}

/* Exactly one of the forms holds. */
static void write_forms(struct cb_writer *writer, const struct cb_form *form)
{
    cb_write_list(writer, "oneOf");
    for (; form->key; form++) {
        cb_write_object(writer, NULL);
        write_required(writer, form->key, form->needs);
        if (form->bars) {
            cb_write_object(writer, "not");
            write_required(writer, form->bars, NULL);
            cb_write_end(writer);
        }
        cb_write_end(writer);
    }
    cb_write_end(writer);
}

static void write_kind(struct cb_writer *writer, const struct cb_key *key)
{
    switch (key->kind) {
    case CB_KIND_VERSION:
        cb_write_number(writer, "const", 1);
        break;
    case CB_KIND_TEXT:
        cb_write_string(writer, "type", "string");
        break;
    case CB_KIND_PATH:
        cb_write_string(writer, "type", "string");
        cb_write_number(writer, "minLength", 1);
        cb_write_number(writer, "maxLength", 4095);
        break;
    case CB_KIND_WORD:
        write_words(writer, key->words);
        break;
    case CB_KIND_FLAG:
        cb_write_string(writer, "type", "boolean");
        break;
    case CB_KIND_SIZE:
    case CB_KIND_DURATION:
    case CB_KIND_COUNT:
    case CB_KIND_SHARE:
        write_number(writer, key);
        break;
    case CB_KIND_NAMES:
        cb_write_string(writer, "type", "array");
        write_item(writer, key);
        break;
    case CB_KIND_VALUES:
        cb_write_string(writer, "type", "object");
        cb_write_object(writer, "propertyNames");
        cb_write_string(writer, "pattern", key->pattern);
        cb_write_end(writer);
        cb_write_object(writer, "additionalProperties");
        cb_write_string(writer, "type", "string");
        cb_write_end(writer);
        break;
    case CB_KIND_OBJECT:
        write_section(writer, key->section);
        break;
    case CB_KIND_RULES:
        cb_write_string(writer, "type", "array");
        cb_write_object(writer, "items");
        write_section(writer, key->section);
        cb_write_end(writer);
        break;
    case CB_KIND_WORD_OR_OBJECT:
        cb_write_list(writer, "anyOf");
        cb_write_object(writer, NULL);
        write_words(writer, key->words);
        cb_write_end(writer);
        cb_write_object(writer, NULL);
        write_section(writer, key->section);
        cb_write_end(writer);
        cb_write_end(writer);
        break;
    case CB_KIND_HOST:
        cb_write_string(writer, "type", "string");
        cb_write_string(writer, "pattern", "^(\\*\\.)?[^*:/\\[\\]\\s]+$");
        break;
    case CB_KIND_CIDR:
        cb_write_string(writer, "type", "string");
        cb_write_string(writer, "pattern", "^[0-9A-Fa-f:.]+(/[0-9]{1,3})?$");
        break;
    case CB_KIND_PORT:
        write_port(writer);
        break;
    case CB_KIND_PORTS:
        cb_write_list(writer, "anyOf");
        write_one_port(writer, NULL);
        cb_write_object(writer, NULL);
        cb_write_string(writer, "type", "array");
        cb_write_number(writer, "minItems", 1);
        write_one_port(writer, "items");
        cb_write_end(writer);
        cb_write_end(writer);
        break;
    }
}

static void write_section(struct cb_writer *writer, const struct cb_section *section)
{
    cb_write_string(writer, "type", "object");
    cb_write_object(writer, "properties");
    for (size_t i = 0; i < section->count; i++) {
        const struct cb_key *key = &section->keys[i];
        cb_write_object(writer, key->name);
        cb_write_string(writer, "description", key->doc);
        write_kind(writer, key);
        cb_write_end(writer);
    }
    cb_write_end(writer);
    cb_write_flag(writer, "additionalProperties", false);
    cb_write_list(writer, "required");
    for (size_t i = 0; i < section->count; i++)
        if (section->keys[i].required)
            cb_write_string(writer, NULL, section->keys[i].name);
    cb_write_end(writer);
    if (section->forms)
        write_forms(writer, section->forms);
}

int cellblock_policy_schema(char **json, cellblock_error **error)
{
    struct cb_writer writer = {0};
    cb_write_object(&writer, NULL);
    cb_write_string(&writer, "$schema", "https://json-schema.org/draft/2020-12/schema");
    cb_write_string(&writer, "title", "cellblock policy");
    write_section(&writer, &cb_schema);
    cb_write_end(&writer);
    return cb_writer_take(&writer, json, error);
}
