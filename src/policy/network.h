/* What a policy says of the network, decided in one place (decide_network.c). Whoever relays, resolves names,
 * publishes ports, hands out sockets or explains a refusal asks here, and nobody else interprets the rules.
 *
 * Connections. Something is allowed if a rule of the first layer allows it, and every further layer that has a
 * "network" list allows it too; an empty list allows nothing. Protocol and port have to fit, and then
 *  - a "host" rule allows an address that one of the given names led to, if that name matches and the address is
 *    public;
 *  - a "cidr" rule allows the addresses in it, but those in a special range (address.h) only if the rule names that
 *    range: if the rule's own prefix lies in the range. 10.0.0.0/8 and 10.1.0.0/16 open private addresses; 0.0.0.0/0
 *    and 10.0.0.0/7 do not. Special ranges lie in one another, and the narrowest one has to be named: 169.254.0.0/16
 *    opens link-local addresses but not the metadata service in it, which takes 169.254.169.254. The same for an IPv4
 *    address that an IPv6 address carries: 64:ff9b::/96 opens public ones, 64:ff9b::a00:0/104 those of 10.0.0.0/8;
 *  - a "loopback" rule allows 127.0.0.0/8 and ::1, and nothing else does;
 *  - 0.0.0.0/8, ::, the broadcast address, and IPv6 addresses that carry those or loopback are never allowed.
 * By name, all layers have to allow it by the same name, so that two of them can't each be satisfied by another one.
 *
 * Nothing here allocates, and pointers in a decision live as long as the policy and the target. */
#pragma once

#include "policy/hostname.h"
#include "policy/policy.h"

struct cb_net_target {
    enum cb_protocol protocol;
    struct cb_address address;
    uint16_t port;
    const char *const *names; /* that led to this address for this cell, in the form of cb_hostname_plain() */
    size_t name_count;
};

enum cb_net_refusal {
    CB_NET_ALLOWED,
    CB_NET_NO_RULE,   /* nothing grants it */
    CB_NET_RANGE,     /* a rule would, but for the special range of the address, which it does not name */
    CB_NET_NEVER,     /* nothing can grant it */
    CB_NET_TIGHTENED, /* it is granted, and a further policy takes it away */
};

/* A rule that would allow it: {"host": what, "ports": [port], "protocol": …}, likewise "cidr"; {"loopback": port}. */
struct cb_net_suggestion {
    enum cb_net_kind kind; /* 0: there is none that helps, or none that one should give lightly */
    enum cb_protocol protocol;
    uint16_t port;
    char what[CB_HOSTNAME_TEXT]; /* empty for loopback */
};

struct cb_net_decision {
    bool allowed;
    enum cb_net_refusal refusal;
    const struct cb_net_rule *rule; /* allowed: what granted it; CB_NET_RANGE: what would have; CB_NET_TIGHTENED: what
                                     * the first layer grants it by; else NULL: the default decided */
    const char *name;               /* the one by which a host rule decided, or NULL */
    struct cb_range range;          /* of the address */
    const char *document;           /* CB_NET_TIGHTENED: the name of a document of the policy that takes it away */
    struct cb_net_suggestion suggest;
};

/* May the cell connect there, or send there? */
struct cb_net_decision cb_decide_connect(const cellblock_policy *policy, const struct cb_net_target *target);

/* May this name be looked up at all? Some host rule has to match it, in every layer that has an opinion. Any bytes may
 * be asked about. The rule that is suggested guesses the port: 443. */
struct cb_net_decision cb_decide_name(const cellblock_policy *policy, const char *name);

/* May this address be an answer to that name? Only if the name may be looked up, and the address could then be
 * connected to, at some port: one in a special range needs a cidr rule that names it. Never loopback. */
struct cb_net_decision cb_decide_answer(const cellblock_policy *policy, const char *name,
                                        const struct cb_address *address);

/* What to tell a person about a refusal, in a few words that follow the object: "is private, and …". */
#define CB_NET_REASON 256
void cb_net_reason(const struct cb_net_decision *decision, char text[static CB_NET_REASON]);

/* Does the first layer grant anything at all? Without, a cell needs neither relay nor resolver. */
bool cb_policy_has_network(const cellblock_policy *policy);
/* The rules that grant: those of the first layer. Further layers may still take away. Calls visit until it returns
 * non-zero, and returns that. */
int cb_policy_network_rules(const cellblock_policy *policy, int (*visit)(const struct cb_net_rule *rule, void *data),
                            void *data);

struct cb_publish_decision {
    bool allowed;
    const struct cb_publish_rule *rule; /* allowed: what granted it */
};

/* May this port of the cell be seen on the host's loopback, as that one? Each layer with a "publish" list has to say
 * just so. For one port of the host, the document on top wins. */
struct cb_publish_decision cb_decide_publish(const cellblock_policy *policy, uint16_t port, uint16_t as);
/* Every rule that cb_decide_publish() allows, once for each port of the host. */
int cb_policy_publish_rules(const cellblock_policy *policy,
                            int (*visit)(const struct cb_publish_rule *rule, void *data), void *data);

struct cb_socket_decision {
    bool allowed;
    const struct cb_socket_rule *rule;
};

/* May the cell use the unix socket at this canonical path? After resolution: rules without `real` are passed over. */
struct cb_socket_decision cb_decide_socket(const cellblock_policy *policy, const char *path);
/* Every rule that cb_decide_socket() allows, once for each path. */
int cb_policy_socket_rules(const cellblock_policy *policy, int (*visit)(const struct cb_socket_rule *rule, void *data),
                           void *data);

/* ---- Changing the rules of a running cell: on a copy of its policy, which then takes the place of the old one ---- */

/* Puts a document on top that has nothing but rules of "network": the rest of a cell is settled when it starts. */
int cb_policy_add_rules(cellblock_policy *policy, const char *text, size_t length, const char *name,
                        cellblock_error **error);
/* cellblock_policy_remove() takes one away again. */
