/* One document: JSONC text to a `cb_document`, by the table in schema.c.
 *
 * Anything that the table does not know is refused, at every level, at the place where it stands. */
#include "base/array.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/text.h"
#include "policy/jsonc.h"
#include "policy/policy.h"
#include "policy/reader.h"
#include "policy/schema.h"
#include "policy/syscalls.h"
#include "policy/values.h"

#include <stdio.h>
#include <string.h>

static int read_path(const struct cb_reader *reader, struct cb_where where, const struct cb_key *key,
                     const struct cb_json *value)
{
    const char *text = NULL;
    if (cb_read_text(reader, where, key, value, &text) < 0)
        return -1;
    cb_autofree char *path = strdup(text);
    if (!path)
        return cb_fail_memory(reader->error);
    bool workspace = key->id == CB_KEY_WORKSPACE_PATH, directory = false;
    const char *reason = workspace ? cb_value_workspace_path(path) : cb_value_file_path(path, &directory);
    if (reason)
        return cb_refuse_value(reader, where, key, value, text, reason);
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

static int read_limit(const struct cb_reader *reader, struct cb_where where, const struct cb_key *key,
                      const struct cb_json *value)
{
    struct cb_document *document = reader->document;
    uint64_t number = CB_UNLIMITED;
    if (value->type != CB_JSON_NULL) {
        bool string_fits = value->type == CB_JSON_STRING && key->kind != CB_KIND_COUNT && key->kind != CB_KIND_SHARE;
        if (value->type != CB_JSON_NUMBER && !string_fits)
            return cb_refuse_type(reader, where, key, value,
                                  key->kind == CB_KIND_COUNT ? "a whole number, or null for unlimited"
                                  : key->kind == CB_KIND_SHARE
                                      ? "a number, or null for unlimited"
                                      : "a number, a string with a unit, or null for unlimited");
        char name[128];
        const char *reason = number_of(key, value, &number);
        if (reason && value->type == CB_JSON_STRING)
            return cb_refuse_value(reader, where, key, value, value->text, reason);
        if (!reason && number > key->maximum)
            reason = "is too large";
        if (reason)
            return cb_refuse(reader, value->line, value->column, "%s %s", cb_full_name(reader, where, key->name, name),
                             reason);
        if (number < key->minimum)
            return key->kind == CB_KIND_SHARE
                       ? cb_refuse(reader, value->line, value->column, "%s must be at least 0.%03llu",
                                   cb_full_name(reader, where, key->name, name), (unsigned long long)key->minimum)
                       : cb_refuse(reader, value->line, value->column, "%s must be at least %llu%s",
                                   cb_full_name(reader, where, key->name, name), (unsigned long long)key->minimum,
                                   key->kind == CB_KIND_DURATION ? " ms"
                                   : key->kind == CB_KIND_SIZE   ? " bytes"
                                                                 : "");
    }
    document->limit_given[key->number] = true;
    document->limit[key->number] = number;
    document->limit_origin[key->number] = cb_origin_of(reader, value);
    return 0;
}

/* ---- Lists of names, and env.set ---- */

/* A mistyped name in "deny" would leave the call allowed, so only names of the table are taken. */
static int check_syscall(const struct cb_reader *reader, struct cb_where where, const struct cb_key *key,
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
    return reason ? cb_refuse_value(reader, where, key, value, text, reason) : cb_fail_memory(reader->error);
}

static int push_name(const struct cb_reader *reader, struct cb_names *names, const char *name, const char *value,
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

static int read_names(const struct cb_reader *reader, struct cb_where where, const struct cb_key *key,
                      const struct cb_json *value, struct cb_names *names)
{
    if (value->type != CB_JSON_LIST)
        return cb_refuse_type(reader, where, key, value, "a list of strings");
    if (cb_check_length(reader, where, key, value) < 0)
        return -1;
    names->given = true;
    const struct cb_json *item = value + 1;
    for (uint32_t index = 0; index < value->count; index++, item += item->span) {
        const char *text = cb_string_of(item);
        if (!text)
            return cb_refuse_type(reader, where, key, item, "a list of strings");
        if (key->words && !cb_word_find(key->words, text))
            return cb_refuse_word(reader, where, key, item, text);
        const char *reason = key->check ? key->check(text) : NULL;
        if (reason)
            return cb_refuse_value(reader, where, key, item, text, reason);
        if ((key->id == CB_KEY_SYSCALL_DENY || key->id == CB_KEY_SYSCALL_ALLOW) &&
            check_syscall(reader, where, key, item, text) < 0)
            return -1;
        if (push_name(reader, names, text, NULL, cb_origin_of(reader, item)) < 0)
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

static int read_values(const struct cb_reader *reader, struct cb_where where, const struct cb_key *key,
                       const struct cb_json *value, struct cb_names *names)
{
    if (value->type != CB_JSON_OBJECT)
        return cb_refuse_type(reader, where, key, value, "an object of strings");
    if (cb_check_length(reader, where, key, value) < 0)
        return -1;
    names->given = true;
    const struct cb_json *member = value + 1;
    for (uint32_t index = 0; index < value->count; index++, member += member->span) {
        const char *name = member->key;
        const char *reason = listed(names, name) ? "is there twice" : key->check(name);
        char full[128];
        if (reason)
            return cb_refuse(reader, member->key_line, member->key_column, "%s: \"%.*s\" %s",
                             cb_full_name(reader, where, key->name, full), CB_SHOWN, name, reason);
        if (member->type != CB_JSON_STRING)
            return cb_refuse_type(reader, where, key, member, "an object of strings");
        if (push_name(reader, names, name, member->text, cb_origin_of(reader, member)) < 0)
            return -1;
    }
    return 0;
}

/* ---- Objects ---- */

static int read_key(struct cb_reader *reader, struct cb_where where, const struct cb_key *key,
                    const struct cb_json *value);

static int refuse_unknown(const struct cb_reader *reader, struct cb_where where, const struct cb_section *section,
                          const char *key, const struct cb_json *node)
{
    cb_autotext struct cb_text text = {0}, known = {0};
    cb_text_addf(&text, "unknown key \"%.*s\"", CB_SHOWN, key);
    if (where.index >= 0)
        cb_text_addf(&text, " in %s[%ld]", where.section, where.index);
    else if (*where.section)
        cb_text_addf(&text, " in %s", where.section);
    const char *nearest = cb_schema_nearest(section, key);
    if (nearest)
        cb_text_addf(&text, ", did you mean \"%s\"?", nearest);
    for (size_t i = 0; i < section->count; i++)
        cb_text_addf(&known, "%s%s", i ? ", " : "", section->keys[i].name);
    if (text.failed || known.failed)
        return cb_fail_memory(reader->error);
    cb_refuse(reader, node->key_line, node->key_column, "%s", text.data);
    return cb_error_hint(reader->error, "known keys here: %s", known.data);
}

static const struct cb_json *member_of(const struct cb_json *object, const char *name)
{
    const struct cb_json *member = object + 1;
    for (uint32_t index = 0; index < object->count; index++, member += member->span)
        if (strcmp(member->key, name) == 0)
            return member;
    return NULL;
}

/* An object of several forms has exactly one of them. */
static int check_forms(const struct cb_reader *reader, struct cb_where where, const struct cb_form *forms,
                       const struct cb_json *value)
{
    const struct cb_form *form = NULL;
    cb_autotext struct cb_text known = {0};
    for (const struct cb_form *one = forms; one->key; one++) {
        const struct cb_json *member = member_of(value, one->key);
        cb_text_addf(&known, "%s\"%s\"", one == forms ? "" : one[1].key ? ", " : " or ", one->key);
        if (member && form)
            return cb_refuse(reader, member->key_line, member->key_column,
                             "%s[%ld] has both \"%s\" and \"%s\": write two rules", where.section, where.index,
                             form->key, one->key);
        form = member ? one : form;
    }
    if (known.failed)
        return cb_fail_memory(reader->error);
    if (!form)
        return cb_refuse(reader, value->line, value->column, "%s[%ld] needs one of %s", where.section, where.index,
                         known.data);
    const struct cb_json *barred = form->bars ? member_of(value, form->bars) : NULL;
    char full[128];
    if (barred)
        return cb_refuse(reader, barred->key_line, barred->key_column, "%s does not go with \"%s\": %s",
                         cb_full_name(reader, where, form->bars, full), form->key, form->bars_why);
    if (form->needs && !member_of(value, form->needs))
        return cb_refuse(reader, value->line, value->column, "%s is missing: %s",
                         cb_full_name(reader, where, form->needs, full), form->needs_why);
    return 0;
}

static int read_object(struct cb_reader *reader, struct cb_where where, const struct cb_section *section,
                       const struct cb_json *value)
{
    const struct cb_json *member = value + 1;
    uint64_t seen = 0;
    for (uint32_t index = 0; index < value->count; index++, member += member->span) {
        const struct cb_key *key = cb_schema_find(section, member->key);
        if (!key)
            return refuse_unknown(reader, where, section, member->key, member);
        uint64_t bit = (uint64_t)1 << (key - section->keys);
        char full[128];
        if (seen & bit)
            return cb_refuse(reader, member->key_line, member->key_column, "%s is there twice",
                             cb_full_name(reader, where, key->name, full));
        if (read_key(reader, where, key, member) < 0)
            return -1;
        seen |= bit;
    }
    for (size_t i = 0; i < section->count; i++) {
        char full[128];
        if (section->keys[i].required && !(seen >> i & 1))
            return cb_refuse(reader, value->line, value->column, "%s is missing%s",
                             cb_full_name(reader, where, section->keys[i].name, full),
                             section->keys[i].kind == CB_KIND_VERSION ? ": a policy starts with {\"cellblock\": 1"
                                                                      : "");
    }
    return section->forms ? check_forms(reader, where, section->forms, value) : 0;
}

static int read_section(struct cb_reader *reader, struct cb_where where, const struct cb_key *key,
                        const struct cb_json *value)
{
    if (value->type != CB_JSON_OBJECT)
        return cb_refuse_type(reader, where, key, value, "an object");
    return read_object(reader, (struct cb_where){key->name, -1}, key->section, value);
}

/* Makes room for the next rule of a list. */
static int begin_rule(struct cb_reader *reader, enum cb_key_id list, const struct cb_json *item)
{
    struct cb_document *document = reader->document;
    struct cb_origin *origin = NULL;
    if (list == CB_KEY_FILES && (reader->rule = cb_array_push(&document->files, &document->file_count))) {
        origin = &reader->rule->origin;
        reader->why = &reader->rule->why;
    } else if (list == CB_KEY_NETWORK && (reader->net = cb_array_push(&document->network, &document->network_count))) {
        origin = &reader->net->origin;
        reader->why = &reader->net->why;
    } else if (list == CB_KEY_SOCKETS &&
               (reader->socket = cb_array_push(&document->sockets, &document->socket_count))) {
        origin = &reader->socket->origin;
        reader->why = &reader->socket->why;
    } else if (list == CB_KEY_PUBLISH &&
               (reader->publish = cb_array_push(&document->publish, &document->publish_count))) {
        origin = &reader->publish->origin;
        reader->why = &reader->publish->why;
    }
    if (!origin)
        return cb_fail_memory(reader->error);
    *origin = cb_origin_of(reader, item);
    return 0;
}

static int read_rules(struct cb_reader *reader, struct cb_where where, const struct cb_key *key,
                      const struct cb_json *value, bool *given)
{
    if (value->type != CB_JSON_LIST)
        return cb_refuse_type(reader, where, key, value, "a list of objects");
    if (cb_check_length(reader, where, key, value) < 0)
        return -1;
    *given = true;
    const struct cb_json *item = value + 1;
    for (uint32_t index = 0; index < value->count; index++, item += item->span) {
        struct cb_where here = {key->name, (long)index};
        if (item->type != CB_JSON_OBJECT)
            return cb_refuse_type(reader, where, key, item, "a list of objects");
        if (begin_rule(reader, key->id, item) < 0 || read_object(reader, here, key->section, item) < 0)
            return -1;
        if (key->id == CB_KEY_PUBLISH && cb_finish_publish(reader, here, item) < 0)
            return -1;
    }
    return 0;
}

static int read_flag(const struct cb_reader *reader, struct cb_where where, const struct cb_key *key,
                     const struct cb_json *value, bool *out)
{
    if (value->type != CB_JSON_TRUE && value->type != CB_JSON_FALSE)
        return cb_refuse_type(reader, where, key, value, "true or false");
    *out = value->type == CB_JSON_TRUE;
    return 0;
}

static int read_version(const struct cb_reader *reader, struct cb_where where, const struct cb_key *key,
                        const struct cb_json *value)
{
    if (value->type != CB_JSON_NUMBER)
        return cb_refuse_type(reader, where, key, value, "the number 1");
    if (strcmp(value->text, "1") != 0)
        return cb_refuse(reader, value->line, value->column, "%s must be 1: this version knows no other policy format",
                         key->name);
    return 0;
}

static int read_key(struct cb_reader *reader, struct cb_where where, const struct cb_key *key,
                    const struct cb_json *value)
{
    struct cb_document *document = reader->document;
    const char *text = NULL;
    int word = 0;
    switch (key->id) {
    case CB_KEY_SCHEMA:
        return cb_read_text(reader, where, key, value, &text);
    case CB_KEY_VERSION:
        return read_version(reader, where, key, value);
    case CB_KEY_EXTENDS:
        return read_names(reader, where, key, value, reader->extends);
    case CB_KEY_WORKSPACE:
        document->workspace_origin = cb_origin_of(reader, value);
        return read_section(reader, where, key, value);
    case CB_KEY_LIMITS:
    case CB_KEY_ENV:
        return read_section(reader, where, key, value);
    case CB_KEY_WORKSPACE_PATH:
    case CB_KEY_FILE_PATH:
        return read_path(reader, where, key, value);
    case CB_KEY_WORKSPACE_MODE:
        if (cb_read_word(reader, where, key, value, &word) < 0)
            return -1;
        document->workspace_mode = (enum cb_workspace_mode)word;
        document->workspace_mode_given = true;
        return 0;
    case CB_KEY_FILES:
        return read_rules(reader, where, key, value, &document->files_given);
    case CB_KEY_FILE_ACCESS:
        if (cb_read_word(reader, where, key, value, &word) < 0)
            return -1;
        reader->rule->access = (enum cb_access)word;
        return 0;
    case CB_KEY_FILE_OPTIONAL:
        return read_flag(reader, where, key, value, &reader->rule->optional);
    case CB_KEY_FILE_WHEN:
        if (cb_read_word(reader, where, key, value, &word) < 0)
            return -1;
        reader->rule->when = (enum cb_when)word;
        return 0;
    case CB_KEY_WHY:
        if (cb_read_text(reader, where, key, value, &text) < 0)
            return -1;
        return cb_copy_string(reader, text, reader->why);
    case CB_KEY_PROGRAMS:
        return read_names(reader, where, key, value, &document->programs);
    case CB_KEY_NETWORK:
        return read_rules(reader, where, key, value, &document->network_given);
    case CB_KEY_NET_HOST:
        return cb_read_net_host(reader, where, key, value);
    case CB_KEY_NET_CIDR:
        return cb_read_net_cidr(reader, where, key, value);
    case CB_KEY_NET_LOOPBACK:
        reader->net->kind = CB_NET_LOOPBACK;
        return cb_read_net_ports(reader, where, key, value);
    case CB_KEY_NET_PORTS:
        return cb_read_net_ports(reader, where, key, value);
    case CB_KEY_NET_PROTOCOL:
        if (cb_read_word(reader, where, key, value, &word) < 0)
            return -1;
        reader->net->protocol = (enum cb_protocol)word;
        return 0;
    case CB_KEY_SOCKETS:
        return read_rules(reader, where, key, value, &document->sockets_given);
    case CB_KEY_SOCKET_PATH:
        return cb_read_socket_path(reader, where, key, value);
    case CB_KEY_PUBLISH:
        return read_rules(reader, where, key, value, &document->publish_given);
    case CB_KEY_PUBLISH_PORT:
        return cb_read_port(reader, where, key, value, &reader->publish->port);
    case CB_KEY_PUBLISH_AS:
        return cb_read_port(reader, where, key, value, &reader->publish->as);
    case CB_KEY_LIMIT:
        return read_limit(reader, where, key, value);
    case CB_KEY_ENV_PASS:
        return read_names(reader, where, key, value, &document->env_pass);
    case CB_KEY_ENV_SET:
        return read_values(reader, where, key, value, &document->env_set);
    case CB_KEY_SYSCALLS:
        if (value->type == CB_JSON_OBJECT)
            return read_section(reader, where, key, value);
        __attribute__((fallthrough));
    case CB_KEY_SYSCALL_PROFILE:
        if (cb_read_word(reader, where, key, value, &word) < 0)
            return -1;
        document->syscall_profile = (enum cb_syscall_profile)word;
        document->syscalls_given = true;
        document->syscalls_origin = cb_origin_of(reader, value);
        return 0;
    case CB_KEY_SYSCALL_DENY:
        return read_names(reader, where, key, value, &document->syscall_deny);
    case CB_KEY_SYSCALL_ALLOW:
        return read_names(reader, where, key, value, &document->syscall_allow);
    case CB_KEY_ISOLATION:
        if (cb_read_word(reader, where, key, value, &word) < 0)
            return -1;
        document->isolation = (enum cb_isolation)word;
        document->isolation_given = true;
        document->isolation_origin = cb_origin_of(reader, value);
        return 0;
    case CB_KEY_ACCEPT_WEAKER:
        return read_names(reader, where, key, value, &document->accept_weaker);
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
    struct cb_reader reader = {.document = made, .extends = &named, .error = error};
    const struct cb_json *root = jsonc.nodes;
    int result = root->type == CB_JSON_OBJECT ? read_object(&reader, (struct cb_where){"", -1}, &cb_schema, root)
                                              : cb_refuse(&reader, root->line, root->column,
                                                          "a policy must be an object, not %s", cb_type_word(root));
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
    cb_document_free_network(document);
    struct cb_names *lists[] = {&document->programs,     &document->env_pass,      &document->env_set,
                                &document->syscall_deny, &document->syscall_allow, &document->accept_weaker};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        cb_names_free(lists[i]);
    free(document->workspace_path);
    free(document->name);
    free(document->text);
    free(document);
}
