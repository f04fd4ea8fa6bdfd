/* One document: JSONC text to a `cb_document`, by the table in schema.c.
 *
 * Anything that the table does not know is refused, at every level, at the place where it stands. */
#include "base/array.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/text.h"
#include "policy/jsonc.h"
#include "policy/policy.h"
#include "policy/schema.h"
#include "policy/syscalls.h"
#include "policy/values.h"

#include <stdio.h>
#include <string.h>

struct reader {
    struct cb_document *document;
    struct cb_names *extends;
    struct cb_file_rule *rule; /* the one being read */
    cellblock_error **error;
};

/* Where a key stands, for messages only: "", "limits" or "files" with an index. */
struct place {
    const char *section;
    long index; /* -1: not in a list */
};

#define MOST_ITEMS 4096 /* in one list: keeps what is made of it (mounts, comparisons) in bounds */
#define SHOWN 80        /* bytes of the person's own text that a message repeats */

static int refuse(const struct reader *reader, int line, int column, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* One option of the command line is a document of its own, with what the person typed as its name. That says it all:
 * no line, no column, and neither the key nor the value again. */
static bool is_option(const struct reader *reader)
{
    return cb_has_prefix(reader->document->name, "--");
}

static int refuse(const struct reader *reader, int line, int column, const char *format, ...)
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
static const char *full_name(const struct reader *reader, struct place place, const char *key,
                             char buffer[static 128])
{
    if (is_option(reader))
        buffer[0] = '\0';
    else if (place.index >= 0)
        snprintf(buffer, 128, "%s[%ld].%s", place.section, place.index, key);
    else
        snprintf(buffer, 128, "%s%s%s", place.section, *place.section ? "." : "", key);
    return buffer;
}

static const char *type_word(const struct cb_json *value)
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

static const char *string_of(const struct cb_json *value)
{
    return value->type == CB_JSON_STRING ? value->text : NULL;
}

static int refuse_type(const struct reader *reader, struct place place, const struct cb_key *key,
                       const struct cb_json *value, const char *wanted)
{
    char name[128];
    if (is_option(reader)) /* "a number, or null for unlimited": there is no null in an option */
        return refuse(reader, value->line, value->column, " must be %.*s", (int)strcspn(wanted, ","), wanted);
    return refuse(reader, value->line, value->column, "%s must be %s, not %s",
                  full_name(reader, place, key->name, name), wanted, type_word(value));
}

static int refuse_value(const struct reader *reader, struct place place, const struct cb_key *key,
                        const struct cb_json *value, const char *text, const char *reason)
{
    char name[128];
    if (is_option(reader))
        return refuse(reader, value->line, value->column, " %s", reason);
    return refuse(reader, value->line, value->column, "%s: \"%.*s\" %s", full_name(reader, place, key->name, name),
                  SHOWN, text, reason);
}

static struct cb_origin origin_of(const struct reader *reader, const struct cb_json *node)
{
    bool member = node->key_line > 0;
    if (is_option(reader))
        return (struct cb_origin){.document = reader->document->name};
    return (struct cb_origin){reader->document->name, member ? node->key_line : node->line,
                              member ? node->key_column : node->column};
}

static int copy_string(const struct reader *reader, const char *text, char **out)
{
    char *copy = strdup(text);
    if (!copy)
        return cb_fail_memory(reader->error);
    free(*out);
    *out = copy;
    return 0;
}

static int check_length(const struct reader *reader, struct place place, const struct cb_key *key,
                        const struct cb_json *value)
{
    char name[128];
    if (value->count <= MOST_ITEMS)
        return 0;
    return refuse(reader, value->line, value->column, "%s has %u entries: at most %d are possible",
                  full_name(reader, place, key->name, name), (unsigned)value->count, MOST_ITEMS);
}

/* ---- Single values ---- */

static int refuse_word(const struct reader *reader, struct place place, const struct cb_key *key,
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
    return refuse_value(reader, place, key, value, text, reason.data);
}

static int read_word(const struct reader *reader, struct place place, const struct cb_key *key,
                     const struct cb_json *value, int *out)
{
    const char *text = string_of(value);
    if (!text)
        return refuse_type(reader, place, key, value,
                           key->kind == CB_KIND_WORD_OR_OBJECT ? "a string or an object" : "a string");
    const struct cb_word *word = cb_word_find(key->words, text);
    if (!word)
        return refuse_word(reader, place, key, value, text);
    char name[128];
    if (word->unavailable)
        return refuse(reader, value->line, value->column, "%s: %s", full_name(reader, place, key->name, name),
                      word->unavailable);
    *out = word->value;
    return 0;
}

static int read_text(const struct reader *reader, struct place place, const struct cb_key *key,
                     const struct cb_json *value, const char **out)
{
    const char *text = string_of(value);
    if (!text)
        return refuse_type(reader, place, key, value, "a string");
    const char *reason = key->kind == CB_KIND_TEXT ? cb_value_plain(text) : NULL;
    if (reason)
        return refuse_value(reader, place, key, value, text, reason);
    *out = text;
    return 0;
}

static int read_path(const struct reader *reader, struct place place, const struct cb_key *key,
                     const struct cb_json *value)
{
    const char *text = NULL;
    if (read_text(reader, place, key, value, &text) < 0)
        return -1;
    cb_autofree char *path = strdup(text);
    if (!path)
        return cb_fail_memory(reader->error);
    bool workspace = key->id == CB_KEY_WORKSPACE_PATH, directory = false;
    const char *reason = workspace ? cb_value_workspace_path(path) : cb_value_file_path(path, &directory);
    if (reason)
        return refuse_value(reader, place, key, value, text, reason);
    if (workspace) {
        reader->document->workspace_path = cb_steal(path);
    } else {
        reader->rule->path = cb_steal(path);
        reader->rule->directory_only = directory;
    }
    return 0;
}

/* A size, a duration or a count into *out. Returns the reason why not, or NULL. */
static const char *number_of(const struct cb_key *key, const struct cb_json *value, uint64_t *out)
{
    if (value->type == CB_JSON_NUMBER) {
        if (value->text[0] == '-')
            return "must not be negative";
        if (strpbrk(value->text, "eE"))
            return "must be written without an exponent";
        if (key->kind != CB_KIND_DURATION && key->kind != CB_KIND_SHARE && strchr(value->text, '.'))
            return "must be a whole number";
    }
    return key->kind == CB_KIND_DURATION ? cb_value_duration(value->text, out)
           : key->kind == CB_KIND_SHARE  ? cb_value_share(value->text, out)
                                         : cb_value_size(value->text, out);
}

static int read_limit(const struct reader *reader, struct place place, const struct cb_key *key,
                      const struct cb_json *value)
{
    struct cb_document *document = reader->document;
    uint64_t number = CB_UNLIMITED;
    if (value->type != CB_JSON_NULL) {
        bool string_fits = value->type == CB_JSON_STRING && key->kind != CB_KIND_COUNT && key->kind != CB_KIND_SHARE;
        if (value->type != CB_JSON_NUMBER && !string_fits)
            return refuse_type(reader, place, key, value,
                               key->kind == CB_KIND_COUNT   ? "a whole number, or null for unlimited"
                               : key->kind == CB_KIND_SHARE ? "a number, or null for unlimited"
                                                            : "a number, a string with a unit, or null for unlimited");
        char name[128];
        const char *reason = number_of(key, value, &number);
        if (reason && value->type == CB_JSON_STRING)
            return refuse_value(reader, place, key, value, value->text, reason);
        if (!reason && number > key->maximum)
            reason = "is too large";
        if (reason)
            return refuse(reader, value->line, value->column, "%s %s", full_name(reader, place, key->name, name),
                          reason);
        if (number < key->minimum)
            return key->kind == CB_KIND_SHARE
                       ? refuse(reader, value->line, value->column, "%s must be at least 0.%03llu",
                                full_name(reader, place, key->name, name), (unsigned long long)key->minimum)
                       : refuse(reader, value->line, value->column, "%s must be at least %llu%s",
                                full_name(reader, place, key->name, name), (unsigned long long)key->minimum,
                                key->kind == CB_KIND_DURATION ? " ms"
                                : key->kind == CB_KIND_SIZE   ? " bytes"
                                                              : "");
    }
    document->limit_given[key->number] = true;
    document->limit[key->number] = number;
    document->limit_origin[key->number] = origin_of(reader, value);
    return 0;
}

/* ---- Lists of names, and env.set ---- */

/* A mistyped name in "deny" would leave the call allowed, so only names of the table are taken. */
static int check_syscall(const struct reader *reader, struct place place, const struct cb_key *key,
                         const struct cb_json *value, const char *text)
{
    size_t count;
    const struct cb_syscall *table = cb_syscall_table(&count);
    const char *nearest = NULL;
    unsigned distance = cb_nearest_start(text);
    for (size_t i = 0; i < count; i++) {
        if (strcmp(table[i].name, text) == 0)
            return 0;
        cb_nearest(text, table[i].name, &nearest, &distance);
    }
    cb_autofree char *reason = nearest ? cb_format("is not a known system call, did you mean \"%s\"?", nearest)
                                       : strdup("is not a known system call");
    return reason ? refuse_value(reader, place, key, value, text, reason) : cb_fail_memory(reader->error);
}

static int push_name(const struct reader *reader, struct cb_names *names, const char *name, const char *value,
                     struct cb_origin origin)
{
    struct cb_named *item = cb_array_push(&names->items, &names->count);
    if (!item)
        return cb_fail_memory(reader->error);
    item->origin = origin;
    item->name = strdup(name);
    item->value = value ? strdup(value) : NULL;
    return item->name && (!value || item->value) ? 0 : cb_fail_memory(reader->error);
}

static int read_names(const struct reader *reader, struct place place, const struct cb_key *key,
                      const struct cb_json *value, struct cb_names *names)
{
    if (value->type != CB_JSON_LIST)
        return refuse_type(reader, place, key, value, "a list of strings");
    if (check_length(reader, place, key, value) < 0)
        return -1;
    names->given = true;
    const struct cb_json *item = value + 1;
    for (uint32_t index = 0; index < value->count; index++, item += item->span) {
        const char *text = string_of(item);
        if (!text)
            return refuse_type(reader, place, key, item, "a list of strings");
        if (key->words && !cb_word_find(key->words, text))
            return refuse_word(reader, place, key, item, text);
        const char *reason = key->check ? key->check(text) : NULL;
        if (reason)
            return refuse_value(reader, place, key, item, text, reason);
        if ((key->id == CB_KEY_SYSCALL_DENY || key->id == CB_KEY_SYSCALL_ALLOW) &&
            check_syscall(reader, place, key, item, text) < 0)
            return -1;
        if (push_name(reader, names, text, NULL, origin_of(reader, item)) < 0)
            return -1;
    }
    return 0;
}

static bool listed(const struct cb_names *names, const char *name)
{
    for (size_t i = 0; i < names->count; i++)
        if (strcmp(names->items[i].name, name) == 0)
            return true;
    return false;
}

static int read_values(const struct reader *reader, struct place place, const struct cb_key *key,
                       const struct cb_json *value, struct cb_names *names)
{
    if (value->type != CB_JSON_OBJECT)
        return refuse_type(reader, place, key, value, "an object of strings");
    if (check_length(reader, place, key, value) < 0)
        return -1;
    names->given = true;
    const struct cb_json *member = value + 1;
    for (uint32_t index = 0; index < value->count; index++, member += member->span) {
        const char *name = member->key;
        const char *reason = listed(names, name) ? "is there twice" : key->check(name);
        char full[128];
        if (reason)
            return refuse(reader, member->key_line, member->key_column, "%s: \"%.*s\" %s",
                          full_name(reader, place, key->name, full), SHOWN, name, reason);
        if (member->type != CB_JSON_STRING)
            return refuse_type(reader, place, key, member, "an object of strings");
        if (push_name(reader, names, name, member->text, origin_of(reader, member)) < 0)
            return -1;
    }
    return 0;
}

/* ---- Objects ---- */

static int read_key(struct reader *reader, struct place place, const struct cb_key *key, const struct cb_json *value);

static int refuse_unknown(const struct reader *reader, struct place place, const struct cb_section *section,
                          const char *key, const struct cb_json *node)
{
    cb_autotext struct cb_text text = {0}, known = {0};
    cb_text_addf(&text, "unknown key \"%.*s\"", SHOWN, key);
    if (place.index >= 0)
        cb_text_addf(&text, " in %s[%ld]", place.section, place.index);
    else if (*place.section)
        cb_text_addf(&text, " in %s", place.section);
    const char *nearest = cb_schema_nearest(section, key);
    if (nearest)
        cb_text_addf(&text, ", did you mean \"%s\"?", nearest);
    for (size_t i = 0; i < section->count; i++)
        cb_text_addf(&known, "%s%s", i ? ", " : "", section->keys[i].name);
    if (text.failed || known.failed)
        return cb_fail_memory(reader->error);
    refuse(reader, node->key_line, node->key_column, "%s", text.data);
    return cb_error_hint(reader->error, "known keys here: %s", known.data);
}

static int read_object(struct reader *reader, struct place place, const struct cb_section *section,
                       const struct cb_json *value)
{
    const struct cb_json *member = value + 1;
    uint64_t seen = 0;
    for (uint32_t index = 0; index < value->count; index++, member += member->span) {
        const struct cb_key *key = cb_schema_find(section, member->key);
        if (!key)
            return refuse_unknown(reader, place, section, member->key, member);
        uint64_t bit = (uint64_t)1 << (key - section->keys);
        char full[128];
        if (seen & bit)
            return refuse(reader, member->key_line, member->key_column, "%s is there twice",
                          full_name(reader, place, key->name, full));
        if (read_key(reader, place, key, member) < 0)
            return -1;
        seen |= bit;
    }
    for (size_t i = 0; i < section->count; i++) {
        char full[128];
        if (section->keys[i].required && !(seen >> i & 1))
            return refuse(reader, value->line, value->column, "%s is missing%s",
                          full_name(reader, place, section->keys[i].name, full),
                          section->keys[i].kind == CB_KIND_VERSION ? ": a policy starts with {\"cellblock\": 1" : "");
    }
    return 0;
}

static int read_section(struct reader *reader, struct place place, const struct cb_key *key,
                        const struct cb_json *value)
{
    if (value->type != CB_JSON_OBJECT)
        return refuse_type(reader, place, key, value, "an object");
    return read_object(reader, (struct place){key->name, -1}, key->section, value);
}

static int read_files(struct reader *reader, struct place place, const struct cb_key *key, const struct cb_json *value)
{
    struct cb_document *document = reader->document;
    if (value->type != CB_JSON_LIST)
        return refuse_type(reader, place, key, value, "a list of objects");
    if (check_length(reader, place, key, value) < 0)
        return -1;
    document->files_given = true;
    const struct cb_json *item = value + 1;
    for (uint32_t index = 0; index < value->count; index++, item += item->span) {
        if (item->type != CB_JSON_OBJECT)
            return refuse_type(reader, place, key, item, "a list of objects");
        reader->rule = cb_array_push(&document->files, &document->file_count);
        if (!reader->rule)
            return cb_fail_memory(reader->error);
        reader->rule->origin = origin_of(reader, item);
        if (read_object(reader, (struct place){key->name, (long)index}, key->section, item) < 0)
            return -1;
    }
    return 0;
}

static int read_empty(const struct reader *reader, struct place place, const struct cb_key *key,
                      const struct cb_json *value)
{
    if (value->type != CB_JSON_LIST)
        return refuse_type(reader, place, key, value, "a list");
    if (value->count > 0)
        return refuse(reader, value->line, value->column, "%s: %s", key->name, key->unavailable);
    return 0;
}

static int read_flag(const struct reader *reader, struct place place, const struct cb_key *key,
                     const struct cb_json *value, bool *out)
{
    if (value->type != CB_JSON_TRUE && value->type != CB_JSON_FALSE)
        return refuse_type(reader, place, key, value, "true or false");
    *out = value->type == CB_JSON_TRUE;
    return 0;
}

static int read_version(const struct reader *reader, struct place place, const struct cb_key *key,
                        const struct cb_json *value)
{
    if (value->type != CB_JSON_NUMBER)
        return refuse_type(reader, place, key, value, "the number 1");
    if (strcmp(value->text, "1") != 0)
        return refuse(reader, value->line, value->column, "%s must be 1: this version knows no other policy format",
                      key->name);
    return 0;
}

static int read_key(struct reader *reader, struct place place, const struct cb_key *key, const struct cb_json *value)
{
    struct cb_document *document = reader->document;
    const char *text = NULL;
    int word = 0;
    switch (key->id) {
    case CB_KEY_SCHEMA:
        return read_text(reader, place, key, value, &text);
    case CB_KEY_VERSION:
        return read_version(reader, place, key, value);
    case CB_KEY_EXTENDS:
        return read_names(reader, place, key, value, reader->extends);
    case CB_KEY_WORKSPACE:
        document->workspace_origin = origin_of(reader, value);
        return read_section(reader, place, key, value);
    case CB_KEY_LIMITS:
    case CB_KEY_ENV:
        return read_section(reader, place, key, value);
    case CB_KEY_WORKSPACE_PATH:
    case CB_KEY_FILE_PATH:
        return read_path(reader, place, key, value);
    case CB_KEY_WORKSPACE_MODE:
        if (read_word(reader, place, key, value, &word) < 0)
            return -1;
        document->workspace_mode = (enum cb_workspace_mode)word;
        document->workspace_mode_given = true;
        return 0;
    case CB_KEY_FILES:
        return read_files(reader, place, key, value);
    case CB_KEY_FILE_ACCESS:
        if (read_word(reader, place, key, value, &word) < 0)
            return -1;
        reader->rule->access = (enum cb_access)word;
        return 0;
    case CB_KEY_FILE_OPTIONAL:
        return read_flag(reader, place, key, value, &reader->rule->optional);
    case CB_KEY_FILE_WHEN:
        if (read_word(reader, place, key, value, &word) < 0)
            return -1;
        reader->rule->when = (enum cb_when)word;
        return 0;
    case CB_KEY_FILE_WHY:
        if (read_text(reader, place, key, value, &text) < 0)
            return -1;
        return copy_string(reader, text, &reader->rule->why);
    case CB_KEY_PROGRAMS:
        return read_names(reader, place, key, value, &document->programs);
    case CB_KEY_NETWORK:
    case CB_KEY_SOCKETS:
        return read_empty(reader, place, key, value);
    case CB_KEY_LIMIT:
        return read_limit(reader, place, key, value);
    case CB_KEY_ENV_PASS:
        return read_names(reader, place, key, value, &document->env_pass);
    case CB_KEY_ENV_SET:
        return read_values(reader, place, key, value, &document->env_set);
    case CB_KEY_SYSCALLS:
        if (value->type == CB_JSON_OBJECT)
            return read_section(reader, place, key, value);
        __attribute__((fallthrough));
    case CB_KEY_SYSCALL_PROFILE:
        if (read_word(reader, place, key, value, &word) < 0)
            return -1;
        document->syscall_profile = (enum cb_syscall_profile)word;
        document->syscalls_given = true;
        document->syscalls_origin = origin_of(reader, value);
        return 0;
    case CB_KEY_SYSCALL_DENY:
        return read_names(reader, place, key, value, &document->syscall_deny);
    case CB_KEY_SYSCALL_ALLOW:
        return read_names(reader, place, key, value, &document->syscall_allow);
    case CB_KEY_ISOLATION:
        if (read_word(reader, place, key, value, &word) < 0)
            return -1;
        document->isolation = (enum cb_isolation)word;
        document->isolation_given = true;
        document->isolation_origin = origin_of(reader, value);
        return 0;
    case CB_KEY_ACCEPT_WEAKER:
        return read_names(reader, place, key, value, &document->accept_weaker);
    }
    return 0;
}

/* ---- The document ---- */

static void document_cleanup(struct cb_document **document)
{
    cb_document_free(*document);
}

int cb_document_parse(const char *text, size_t length, const char *name, struct cb_document **document,
                      struct cb_names *extends, cellblock_error **error)
{
    __attribute__((cleanup(document_cleanup))) struct cb_document *made = calloc(1, sizeof *made);
    if (!made)
        return cb_fail_memory(error);
    made->name = cb_printable(name, strlen(name));
    if (!made->name)
        return cb_fail_memory(error);

    cb_autojsonc struct cb_jsonc jsonc = {0};
    if (cb_jsonc_read(text, length, made->name, &jsonc, error) < 0)
        return -1;
    made->text = strndup(text, length);
    made->text_length = length;
    if (!made->text)
        return cb_fail_memory(error);
    struct cb_names named = {0};
    struct reader reader = {.document = made, .extends = &named, .error = error};
    const struct cb_json *root = jsonc.nodes;
    int result = root->type == CB_JSON_OBJECT
                     ? read_object(&reader, (struct place){"", -1}, &cb_schema, root)
                     : refuse(&reader, root->line, root->column, "a policy must be an object, not %s", type_word(root));
    if (result < 0) {
        cb_names_free(&named);
        return -1;
    }
    *extends = named;
    *document = cb_steal(made);
    return 0;
}

void cb_names_free(struct cb_names *names)
{
    for (size_t i = 0; i < names->count; i++) {
        free(names->items[i].name);
        free(names->items[i].value);
    }
    free(names->items);
    *names = (struct cb_names){0};
}

void cb_document_free(struct cb_document *document)
{
    if (!document)
        return;
    for (size_t i = 0; i < document->file_count; i++) {
        free(document->files[i].path);
        free(document->files[i].why);
        free(document->files[i].real);
    }
    free(document->files);
    struct cb_names *lists[] = {&document->programs,     &document->env_pass,      &document->env_set,
                                &document->syscall_deny, &document->syscall_allow, &document->accept_weaker};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        cb_names_free(lists[i]);
    free(document->workspace_path);
    free(document->name);
    free(document->text);
    free(document);
}
