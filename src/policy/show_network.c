/* The rules on what can be reached, for `policy show`. They are shown as they are understood: names in lower case and
 * in ASCII, addresses in their usual form. */
#include "base/cleanup.h"
#include "base/text.h"
#include "policy/show.h"

static void write_ports(struct cb_writer *writer, const char *key, const struct cb_net_rule *rule)
{
    cb_write_list(writer, key);
    for (size_t i = 0; i < rule->port_count; i++) {
        if (rule->ports[i].first == rule->ports[i].last) {
            cb_write_number(writer, NULL, rule->ports[i].first);
            continue;
        }
        cb_autofree char *range = cb_format("%u-%u", rule->ports[i].first, rule->ports[i].last);
        writer->text.failed |= !range;
        cb_write_string(writer, NULL, range);
    }
    cb_write_end(writer);
}

/* What all rules end with. */
static void write_rest(struct cb_writer *writer, const char *why, const struct cb_origin *origin, size_t layer)
{
    if (why)
        cb_write_string(writer, "why", why);
    cb_show_origin(writer, origin);
    cb_show_tightens(writer, layer);
    cb_write_end(writer);
}

static void write_network(struct cb_writer *writer, const struct cb_document *document, size_t layer)
{
    for (size_t i = 0; i < document->network_count; i++) {
        const struct cb_net_rule *rule = &document->network[i];
        char prefix[CB_PREFIX_TEXT];
        cb_write_object(writer, NULL);
        if (rule->kind == CB_NET_HOST) {
            cb_autofree char *host = cb_format("%s%s", rule->wildcard ? "*." : "", rule->host);
            writer->text.failed |= !host;
            cb_write_string(writer, "host", host);
        } else if (rule->kind == CB_NET_CIDR) {
            cb_prefix_print(&rule->prefix, prefix);
            cb_write_string(writer, "cidr", prefix);
        }
        write_ports(writer, rule->kind == CB_NET_LOOPBACK ? "loopback" : "ports", rule);
        cb_write_string(writer, "protocol", cb_protocol_word(rule->protocol));
        write_rest(writer, rule->why, &rule->origin, layer);
    }
}

static void write_sockets(struct cb_writer *writer, const struct cb_document *document, size_t layer)
{
    for (size_t i = 0; i < document->socket_count; i++) {
        cb_write_object(writer, NULL);
        cb_write_string(writer, "path", document->sockets[i].path);
        write_rest(writer, document->sockets[i].why, &document->sockets[i].origin, layer);
    }
}

static void write_publish(struct cb_writer *writer, const struct cb_document *document, size_t layer)
{
    for (size_t i = 0; i < document->publish_count; i++) {
        cb_write_object(writer, NULL);
        cb_write_number(writer, "port", document->publish[i].port);
        cb_write_number(writer, "as", document->publish[i].as);
        write_rest(writer, document->publish[i].why, &document->publish[i].origin, layer);
    }
}

void cb_show_network(struct cb_writer *writer, const cellblock_policy *policy)
{
    static const struct {
        const char *key;
        void (*write)(struct cb_writer *writer, const struct cb_document *document, size_t layer);
    } lists[] = {{"network", write_network}, {"sockets", write_sockets}, {"publish", write_publish}};
    for (size_t list = 0; list < sizeof lists / sizeof *lists; list++) {
        cb_write_list(writer, lists[list].key);
        for (size_t i = 0; i < policy->count; i++)
            for (size_t j = 0; j < policy->layers[i].count; j++)
                lists[list].write(writer, policy->layers[i].documents[j], i);
        cb_write_end(writer);
    }
}
