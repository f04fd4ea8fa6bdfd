/* --net, --publish and --socket: from the short notation of the command line to rule objects of a policy. What is
 * wrong inside of a rule the policy's own reader says, asked about this one rule, so that there is one set of rules
 * for names, addresses and ports. */
#include "base/cleanup.h"
#include "base/text.h"
#include "cli/cli.h"

#include <arpa/inet.h>
#include <string.h>

static const char *const options[] = {
    [CB_FLAG_NET] = "--net", [CB_FLAG_PUBLISH] = "--publish", [CB_FLAG_SOCKET] = "--socket"};
static const char *const sections[] = {
    [CB_FLAG_NET] = "network", [CB_FLAG_PUBLISH] = "publish", [CB_FLAG_SOCKET] = "sockets"};

struct flag {
    const char *command;
    enum cb_network_flag kind;
    const char *text; /* the argument, for messages */
};

static int refuse(const struct flag *flag, const char *reason)
{
    return cb_usage_error(flag->command, "%s %s: %s", options[flag->kind], flag->text, reason);
}

/* One port or a range. What is not a plain number goes in as text, for the reader to judge. */
static json_t *one_port(const char *text)
{
    size_t digits = strspn(text, "0123456789");
    bool number = digits > 0 && digits < 10 && !text[digits] && (text[0] != '0' || digits == 1);
    return number ? json_integer(atoi(text)) : json_string(text);
}

/* "443,8000-8100"; NULL when a part is empty. */
static json_t *ports_of(const char *text)
{
    json_t *list = json_array();
    cb_autofree char *copy = strdup(text);
    for (char *rest = copy, *part; rest && (part = strsep(&rest, ",")) != NULL;)
        if (!*part || json_array_append_new(list, one_port(part)) < 0) {
            json_decref(list);
            return NULL;
        }
    return list;
}

static bool is_address(const char *text)
{
    unsigned char bytes[4];
    return strpbrk(text, "/:") || inet_pton(AF_INET, text, bytes) == 1;
}

static bool is_loopback(const char *text)
{
    struct in_addr four;
    struct in6_addr six;
    return strcasecmp(text, "localhost") == 0 ||
           (inet_pton(AF_INET, text, &four) == 1 && ntohl(four.s_addr) >> 24 == 127) ||
           (inet_pton(AF_INET6, text, &six) == 1 && IN6_IS_ADDR_LOOPBACK(&six));
}

/* Cuts "HOST:PORTS", "[ADDRESS]:PORTS" and "[ADDRESS]/LENGTH:PORTS" in two. Returns what is wrong, or NULL. */
static const char *split(const char *text, char **target, const char **ports)
{
    bool brackets = text[0] == '[';
    const char *close = brackets ? strchr(text, ']') : NULL;
    const char *colon = brackets && close ? strchr(close, ':') : strrchr(text, ':');
    if (brackets && !close)
        return "the bracket is not closed";
    if (brackets && !memchr(text, ':', (size_t)(close - text)))
        return "brackets are for IPv6 addresses: [2001:db8::9]:443";
    if (!colon || !colon[1])
        return "needs a port at its end, such as :443";
    size_t before = (size_t)(colon - text);
    if (!brackets && memchr(text, ':', before))
        return "an IPv6 address stands in brackets: [2001:db8::9]:443";
    *ports = colon + 1;
    *target = brackets ? cb_format("%.*s%.*s", (int)(close - text - 1), text + 1, (int)(colon - close - 1), close + 1)
                       : strndup(text, before);
    return *target && **target ? NULL : "needs a host or an address in front of the port";
}

/* Makes the rule. Returns 0, or the exit status with the message printed. */
static int net_rule(const struct flag *flag, json_t **rule)
{
    const char *text = flag->text, *protocol = "tcp", *scheme = strstr(text, "://"), *ports = NULL;
    if (cb_has_prefix(text, "udp://"))
        protocol = "udp";
    else if (scheme && !cb_has_prefix(text, "tcp://"))
        return refuse(flag, "a rule names a host and ports, not a URL: api.example.com:443, or udp://1.1.1.1:53");
    cb_autofree char *target = NULL;
    const char *reason = split(scheme ? scheme + 3 : text, &target, &ports);
    if (reason)
        return refuse(flag, reason);
    if (is_loopback(target)) {
        cb_autofree char *hint = cb_format("in a cell this is the cell's own, which needs no rule; the host's is "
                                           "loopback:%s",
                                           ports);
        return refuse(flag, hint ? hint : "");
    }
    json_t *list = ports_of(ports);
    if (!list)
        return refuse(flag, "has an empty place between its ports");
    const char *kind = strcmp(target, "loopback") == 0 ? "loopback" : is_address(target) ? "cidr" : "host";
    *rule = strcmp(kind, "loopback") == 0
                ? json_pack("{s:o, s:s}", kind, list, "protocol", protocol)
                : json_pack("{s:s, s:o, s:s}", kind, target, "ports", list, "protocol", protocol);
    return *rule ? 0 : refuse(flag, "is not text in UTF-8");
}

static int publish_rule(const struct flag *flag, json_t **rule)
{
    const char *colon = strchr(flag->text, ':');
    cb_autofree char *port = strndup(flag->text, colon ? (size_t)(colon - flag->text) : strlen(flag->text));
    json_t *inside = port ? one_port(port) : NULL, *outside = colon ? one_port(colon + 1) : NULL;
    if (!json_is_integer(inside) || (colon && !json_is_integer(outside))) {
        json_decref(inside);
        json_decref(outside);
        return refuse(flag, "is not a port of the cell, or such a port and one of the host: 8080, or 8080:18080");
    }
    *rule = outside ? json_pack("{s:o, s:o}", "port", inside, "as", outside) : json_pack("{s:o}", "port", inside);
    return *rule ? 0 : refuse(flag, "can't be read");
}

static int socket_rule(const struct flag *flag, json_t **rule)
{
    cb_autofree char *path = flag->text[0] ? cb_absolute_path(flag->text) : NULL;
    if (!path)
        return refuse(flag, "needs the path of a socket");
    *rule = json_pack("{s:s}", "path", path);
    return *rule ? 0 : refuse(flag, "is not text in UTF-8");
}

/* The message of the policy's reader, without the place in a document that the person did not write. */
static const char *without_place(const char *message, const char *section)
{
    const char *at = strstr(message, ": ");
    at = at ? at + 2 : message;
    size_t length = strlen(section);
    return strncmp(at, section, length) == 0 && strncmp(at + length, "[0].", 4) == 0 ? at + length + 4 : at;
}

/* A document with this one rule. */
static json_t *document_of(const struct flag *flag, json_t *rule)
{
    return json_pack("{s:i, s:[O]}", "cellblock", 1, sections[flag->kind], rule);
}

static int check_rule(const struct flag *flag, json_t *rule)
{
    json_t *document = document_of(flag, rule);
    cb_autofree char *text = document ? json_dumps(document, 0) : NULL;
    json_decref(document);
    cellblock_policy *policy = NULL;
    cellblock_error *error = NULL;
    int status = 0;
    if (!text || cellblock_policy_load_text(text, strlen(text), "rule", &policy, &error) < 0)
        status = refuse(flag, without_place(cellblock_error_message(error), sections[flag->kind]));
    cellblock_error_free(error);
    cellblock_policy_free(policy);
    return status;
}

/* Of two for one port of the host, only one could be meant. */
static int check_publish(const struct flag *flag, const json_t *rule, const struct cb_policy_flags *flags)
{
    const json_t *as = json_object_get(rule, "as") ? json_object_get(rule, "as") : json_object_get(rule, "port");
    for (size_t i = 0; i < flags->other_count; i++) {
        const json_t *other = json_array_get(json_object_get(flags->others[i].document, sections[CB_FLAG_PUBLISH]), 0);
        const json_t *taken = json_object_get(other, "as") ? json_object_get(other, "as") : json_object_get(other, "port");
        if (!taken || !json_equal(taken, as))
            continue;
        cb_autofree char *reason = cb_format("the port %d of the host is there twice", (int)json_integer_value(as));
        return refuse(flag, reason ? reason : "");
    }
    return 0;
}

int cb_flag_network(const char *command, enum cb_network_flag kind, const char *text, struct cb_policy_flags *flags)
{
    const struct flag flag = {command, kind, text};
    json_t *rule = NULL;
    int status = kind == CB_FLAG_NET       ? net_rule(&flag, &rule)
                 : kind == CB_FLAG_PUBLISH ? publish_rule(&flag, &rule)
                                           : socket_rule(&flag, &rule);
    if (!status)
        status = check_rule(&flag, rule);
    if (!status && kind == CB_FLAG_PUBLISH)
        status = check_publish(&flag, rule, flags);
    if (!status && cb_flag_add(flags, options[kind] + 2, text, document_of(&flag, rule)) < 0)
        status = refuse(&flag, "can't be added");
    json_decref(rule);
    return status;
}
