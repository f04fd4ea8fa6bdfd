/* What leaves a cell, and how names are found in it.
 *
 * A cell without rules for the network has a loopback of its own and nothing else. With rules, whatever leaves for
 * elsewhere is diverted to the relay (base/divert.h, src/relay), which decides; here is only settled what has to be
 * there before: which ports of loopback are the host's, and files that send every question for a name to the relay. */
#include "plan/plan.h"

#include "base/cleanup.h"
#include "base/error.h"
#include "base/text.h"
#include "policy/network.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/utsname.h>

struct diverting {
    const cellblock_policy *policy;
    struct cb_divert *divert;
};

/* Only what every layer allows is the host's; the rest stays the cell's own. */
static int add_port(const struct diverting *diverting, enum cb_protocol protocol, uint16_t port)
{
    struct cb_divert *divert = diverting->divert;
    const struct cb_net_target target = {
        .protocol = protocol, .address = {.family = AF_INET, .bytes = {127, 0, 0, 1}}, .port = port};
    bool datagrams = protocol == CB_PROTOCOL_UDP;
    for (size_t i = 0; i < divert->count; i++)
        if (divert->loopback[i].port == port && divert->loopback[i].datagrams == datagrams)
            return 0;
    if (!cb_decide_connect(diverting->policy, &target).allowed)
        return 0;
    if (divert->count == CB_DIVERT_PORTS)
        return -1;
    divert->loopback[divert->count++] = (struct cb_divert_port){.port = port, .datagrams = datagrams};
    return 0;
}

static int add_loopback(const struct cb_net_rule *rule, void *data)
{
    for (size_t i = 0; rule->kind == CB_NET_LOOPBACK && i < rule->port_count; i++)
        for (unsigned port = rule->ports[i].first; port <= rule->ports[i].last; port++)
            if (add_port(data, rule->protocol, (uint16_t)port) < 0)
                return -1;
    return 0;
}

int cb_plan_divert(const cellblock_policy *policy, struct cb_divert *divert, cellblock_error **error)
{
    struct diverting diverting = {.policy = policy, .divert = divert};
    *divert = (struct cb_divert){.count = 0};
    return cb_policy_network_rules(policy, add_loopback, &diverting) == 0
               ? 0
               : cb_fail(error, CELLBLOCK_ERROR_POLICY, 0,
                         "\"network\": the rules for loopback name more than %d ports", CB_DIVERT_PORTS);
}

static int found(const struct cb_publish_rule *rule, void *data)
{
    (void)rule;
    (void)data;
    return 1;
}

/* Domains for short names, as on the host; and how many dots make a name a long one. */
static void add_search(struct cb_text *text)
{
    FILE *file = fopen("/etc/resolv.conf", "re");
    char line[1024];
    while (file && fgets(line, sizeof line, file)) {
        char *rest = NULL, name[CB_HOSTNAME_TEXT];
        const char *word = strtok_r(line, " \t\r\n", &rest);
        bool search = word && (strcmp(word, "search") == 0 || strcmp(word, "domain") == 0);
        bool options = word && strcmp(word, "options") == 0;
        unsigned dots;
        const char *separator = "search ";
        while ((search || options) && (word = strtok_r(NULL, " \t\r\n", &rest))) {
            if (search && cb_hostname_plain(word, strlen(word), name)) {
                cb_text_addf(text, "%s%s", separator, name);
                separator = " ";
            } else if (options && sscanf(word, "ndots:%u", &dots) == 1 && dots <= 15) {
                cb_text_addf(text, "options ndots:%u\n", dots);
            }
        }
        if (separator[0] == ' ')
            cb_text_add(text, "\n", 1);
    }
    if (file)
        fclose(file);
}

static int write_files(struct cb_plan_network *network, cellblock_error **error)
{
    cb_autotext struct cb_text resolver = {0};
    const uint8_t *at = cb_divert_resolver;
    cb_text_addf(&resolver, "nameserver %u.%u.%u.%u\n", at[0], at[1], at[2], at[3]);
    add_search(&resolver);
    network->resolver = cb_text_take(&resolver);

    cb_autotext struct cb_text hosts = {0};
    struct utsname system;
    char name[CB_HOSTNAME_TEXT];
    cb_text_addf(&hosts, "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n");
    if (uname(&system) == 0 && cb_hostname_plain(system.nodename, strlen(system.nodename), name) &&
        strcmp(name, "localhost") != 0)
        cb_text_addf(&hosts, "127.0.1.1 %s\n", name);
    network->hosts = cb_text_take(&hosts);
    return network->resolver && network->hosts ? 0 : cb_fail_memory(error);
}

static int is_datagram(const struct cb_net_rule *rule, void *data)
{
    (void)data;
    return rule->protocol == CB_PROTOCOL_UDP;
}

/* Without a network namespace nothing can be diverted: the supervisor makes the sockets and connects them
 * (supervisor/broker.c), and what they carry passes by it. */
static int plan_broker(struct cb_plan *plan, bool publishes, cellblock_error **error)
{
    const cellblock_policy *policy = plan->resolved->policy;
    bool datagrams = cb_policy_network_rules(policy, is_datagram, NULL) != 0;
    bool counted = plan->network.bytes != CB_UNLIMITED || plan->network.connections != CB_UNLIMITED;
    plan->network.brokered = plan->network.relayed || plan->resolved->socket_count > 0;
    plan->network.relay = plan->network.brokered;
    plan->network.relayed = false;
    if (!plan->network.brokered || !(datagrams || counted || publishes))
        return 0;
    const char *what = datagrams ? "datagrams can't be relayed"
                       : counted ? "bytes and connections can't be counted"
                                 : "ports can't be published";
    if (!publishes && cb_decide_accept_weaker(policy, "egress"))
        return json_array_append_new(plan->weaker, json_sprintf("egress: %s", what)) < 0 ? cb_fail_memory(error) : 0;
    cb_fail(error, CELLBLOCK_ERROR_REFUSED, 0, "%s without a network namespace", publishes ? "ports can't be published" : what);
    cb_error_layer(error, "egress");
    return publishes ? -1 : cb_error_hint(error, "do without that rule or limit, or accept it: --accept-weaker egress");
}

static bool refuses_sockets(const cellblock_policy *policy)
{
    return cb_decide_syscall_profile(policy) == CB_SYSCALLS_STRICT && !cb_policy_has_custom_syscalls(policy);
}

int cb_plan_network(struct cb_plan *plan, bool always, cellblock_error **error)
{
    const cellblock_policy *policy = plan->resolved->policy;
    struct cb_plan_network *network = &plan->network;
    bool publishes = cb_policy_publish_rules(policy, found, NULL) != 0;
    network->relay = network->relayed = always || cb_policy_has_network(policy) || publishes;
    network->bytes = cb_decide_limit(policy, CB_LIMIT_NETWORK_BYTES).value;
    network->connections = cb_decide_limit(policy, CB_LIMIT_CONNECTIONS).value;
    if ((network->relay || plan->resolved->socket_count > 0) && refuses_sockets(policy)) {
        cb_fail(error, CELLBLOCK_ERROR_POLICY, 0, "the policy has rules for the network, and its profile of system calls "
                                                  "(\"strict\") has no sockets: they could never be used");
        return cb_error_hint(error, "leave out one of the two");
    }
    if (plan->tier == CB_TIER_LANDLOCK)
        return plan_broker(plan, publishes, error);
    if (!network->relayed)
        return 0;
    return cb_plan_divert(policy, &network->divert, error) < 0 || write_files(network, error) < 0 ? -1 : 0;
}
