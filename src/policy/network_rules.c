/* The keys of the rules that say what is reachable: "network", "sockets", "publish". What they mean is decided in
 * decide_network.c. */
#include "base/array.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/text.h"
#include "policy/hostname.h"
#include "policy/reader.h"
#include "policy/values.h"

#include <stdlib.h>
#include <string.h>

#define MOST_PORT 65535

static int refuse_with_hint(const struct cb_reader *reader, struct cb_where where, const struct cb_key *key,
                            const struct cb_json *value, const char *reason, const char *hint)
{
    cb_refuse_value(reader, where, key, value, value->text, reason);
    return hint ? cb_error_hint(reader->error, "%s", hint) : -1;
}

int cb_read_net_host(const struct cb_reader *reader, struct cb_where where, const struct cb_key *key,
                     const struct cb_json *value)
{
    const char *text = cb_string_of(value), *reason, *hint;
    if (!text)
        return cb_refuse_type(reader, where, key, value, "a string");
    char name[CB_HOSTNAME_TEXT];
    if (cb_hostname_rule(text, name, &reader->net->wildcard, &reason, &hint) < 0)
        return reason ? refuse_with_hint(reader, where, key, value, reason, hint) : cb_fail_memory(reader->error);
    reader->net->kind = CB_NET_HOST;
    return cb_copy_string(reader, name, &reader->net->host);
}

/* A range in which nothing can ever be opened by "cidr" is a slip. */
static const char *check_closed(const struct cb_prefix *prefix, const char **hint)
{
    struct cb_range range = cb_address_range(&prefix->address);
    if (!cb_class_is_closed(range.class) || prefix->length < range.length)
        return NULL;
    if (range.class == CB_CLASS_LOOPBACK && !range.carried) {
        *hint = "a port of the host's loopback is opened by {\"loopback\": 6379}; the cell's own needs no rule";
        return "is loopback, which \"cidr\" does not open";
    }
    *hint = "take this rule out";
    return "is an address that no rule opens";
}

int cb_read_net_cidr(const struct cb_reader *reader, struct cb_where where, const struct cb_key *key,
                     const struct cb_json *value)
{
    const char *text = cb_string_of(value), *hint = NULL;
    if (!text)
        return cb_refuse_type(reader, where, key, value, "a string");
    struct cb_prefix *prefix = &reader->net->prefix;
    const char *reason = cb_prefix_parse(text, prefix);
    char meant[CB_PREFIX_TEXT];
    if (reason && prefix->address.family) {
        cb_prefix_print(prefix, meant);
        cb_autofree char *guess = cb_format("%s, did you mean \"%s\"?", reason, meant);
        return guess ? cb_refuse_value(reader, where, key, value, text, guess) : cb_fail_memory(reader->error);
    }
    if (!reason)
        reason = check_closed(prefix, &hint);
    if (reason)
        return refuse_with_hint(reader, where, key, value, reason, hint);
    reader->net->kind = CB_NET_CIDR;
    return 0;
}

/* Digits up to `end`, without zeros in front. False when it is no port. */
static bool port_of(const char *text, const char *end, uint16_t *port)
{
    size_t length = (size_t)(end - text);
    if (length == 0 || length > 5 || text[0] == '0' || strspn(text, "0123456789") != length)
        return false;
    unsigned long number = strtoul(text, NULL, 10);
    *port = (uint16_t)number;
    return number <= MOST_PORT;
}

int cb_read_port(const struct cb_reader *reader, struct cb_where where, const struct cb_key *key,
                 const struct cb_json *value, uint16_t *port)
{
    char name[128];
    if (value->type != CB_JSON_NUMBER)
        return cb_refuse_type(reader, where, key, value, "the number of a port");
    if (!port_of(value->text, value->text + strlen(value->text), port))
        return cb_refuse(reader, value->line, value->column, "%s: %.*s is not a port: they are numbers from 1 to 65535",
                         cb_full_name(reader, where, key->name, name), CB_SHOWN, value->text);
    return 0;
}

static const char *range_of(const char *text, struct cb_ports *ports)
{
    const char *hyphen = strchr(text, '-');
    uint16_t single;
    if (!hyphen)
        return port_of(text, text + strlen(text), &single) ? "is a single port: write it as a number, without quotes"
                                                           : "is not a range of ports: write one such as \"8000-8100\"";
    if (!port_of(text, hyphen, &ports->first) || !port_of(hyphen + 1, hyphen + 1 + strlen(hyphen + 1), &ports->last))
        return "is not a range of ports: write one such as \"8000-8100\", from 1 to 65535";
    return ports->first > ports->last ? "is a range of ports that ends before it begins" : NULL;
}

static int read_ports(const struct cb_reader *reader, struct cb_where where, const struct cb_key *key,
                      const struct cb_json *value)
{
    struct cb_ports found = {0};
    if (value->type == CB_JSON_STRING) {
        const char *reason = range_of(value->text, &found);
        if (reason)
            return cb_refuse_value(reader, where, key, value, value->text, reason);
    } else if (value->type != CB_JSON_NUMBER) {
        return cb_refuse_type(reader, where, key, value, "a port, a range such as \"8000-8100\", or a list of them");
    } else {
        if (cb_read_port(reader, where, key, value, &found.first) < 0)
            return -1;
        found.last = found.first;
    }
    struct cb_ports *slot = cb_array_push(&reader->net->ports, &reader->net->port_count);
    if (!slot)
        return cb_fail_memory(reader->error);
    *slot = found;
    return 0;
}

int cb_read_net_ports(const struct cb_reader *reader, struct cb_where where, const struct cb_key *key,
                      const struct cb_json *value)
{
    char name[128];
    if (value->type != CB_JSON_LIST)
        return read_ports(reader, where, key, value);
    if (value->count == 0)
        return cb_refuse(reader, value->line, value->column,
                         "%s is empty: name the ports, such as [443]; \"1-65535\" is every port",
                         cb_full_name(reader, where, key->name, name));
    if (cb_check_length(reader, where, key, value) < 0)
        return -1;
    const struct cb_json *item = value + 1;
    for (uint32_t index = 0; index < value->count; index++, item += item->span)
        if (read_ports(reader, where, key, item) < 0)
            return -1;
    return 0;
}

int cb_read_socket_path(const struct cb_reader *reader, struct cb_where where, const struct cb_key *key,
                        const struct cb_json *value)
{
    const char *text = cb_string_of(value);
    if (!text)
        return cb_refuse_type(reader, where, key, value, "a string");
    cb_autofree char *path = strdup(text);
    if (!path)
        return cb_fail_memory(reader->error);
    bool directory = false;
    const char *reason = cb_value_file_path(path, &directory);
    if (!reason && path[0] != '/' && path[0] != '~')
        reason = "is relative: write the path of a socket from \"/\" or \"~/\"";
    if (!reason && (directory || strcmp(path, "/") == 0 || strcmp(path, "~") == 0))
        reason = "names a directory, not a socket";
    if (reason)
        return cb_refuse_value(reader, where, key, value, text, reason);
    reader->socket->path = cb_steal(path);
    return 0;
}

int cb_finish_publish(const struct cb_reader *reader, struct cb_where where, const struct cb_json *item)
{
    struct cb_publish_rule *made = reader->publish;
    if (made->as == 0)
        made->as = made->port;
    for (const struct cb_publish_rule *other = reader->document->publish; other < made; other++)
        if (other->as == made->as)
            return cb_refuse(reader, item->line, item->column, "%s[%ld]: the port %u of the host is there twice",
                             where.section, where.index, made->as);
    return 0;
}

void cb_document_free_network(struct cb_document *document)
{
    for (size_t i = 0; i < document->network_count; i++) {
        free(document->network[i].host);
        free(document->network[i].ports);
        free(document->network[i].why);
    }
    for (size_t i = 0; i < document->socket_count; i++) {
        free(document->sockets[i].path);
        free(document->sockets[i].why);
        free(document->sockets[i].real);
    }
    for (size_t i = 0; i < document->publish_count; i++)
        free(document->publish[i].why);
    free(document->network);
    free(document->sockets);
    free(document->publish);
}
