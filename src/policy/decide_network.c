/* See network.h: the only code that interprets the rules on what can be reached. */
#include "policy/network.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

/* ---- Connections ---- */

static bool has_port(const struct cb_net_rule *rule, uint16_t port)
{
    for (size_t i = 0; i < rule->port_count; i++)
        if (port >= rule->ports[i].first && port <= rule->ports[i].last)
            return true;
    return false;
}

/* Does the rule speak of this address, whatever its range? */
static bool covers(const struct cb_net_rule *rule, const struct cb_address *address, struct cb_range range,
                   const char *name)
{
    switch (rule->kind) {
    case CB_NET_HOST:
        return name && cb_hostname_matches(rule->host, rule->wildcard, name);
    case CB_NET_CIDR:
        return cb_prefix_contains(&rule->prefix, address);
    case CB_NET_LOOPBACK:
        return range.class == CB_CLASS_LOOPBACK && !range.carried;
    }
    return false;
}

/* Does it, speaking of it, also open the range that it is in? */
static bool opens(const struct cb_net_rule *rule, struct cb_range range)
{
    switch (rule->kind) {
    case CB_NET_HOST:
        return range.class == CB_CLASS_PUBLIC;
    case CB_NET_CIDR:
        return cb_range_opened_by(range, rule->prefix.length);
    case CB_NET_LOOPBACK:
        return true;
    }
    return false;
}

struct question {
    enum cb_protocol protocol;
    uint16_t port; /* 0: any, and any protocol */
    struct cb_address address;
    struct cb_range range;
    const char *name; /* or NULL */
};

/* What one layer says. */
struct answer {
    bool given;                         /* it has an opinion */
    const struct cb_net_rule *allows;   /* or NULL */
    const struct cb_net_rule *would;    /* speaks of it, but does not open the range */
    const struct cb_document *document; /* the topmost that has a list */
};

static struct answer ask_layer(const struct cb_layer *layer, const struct question *question)
{
    struct answer answer = {0};
    for (size_t i = layer->count; i-- > 0;) {
        const struct cb_document *document = layer->documents[i];
        if (document->network_given && !answer.given) {
            answer.given = true;
            answer.document = document;
        }
        for (size_t j = 0; j < document->network_count && !answer.allows; j++) {
            const struct cb_net_rule *rule = &document->network[j];
            if (question->port != 0 && (rule->protocol != question->protocol || !has_port(rule, question->port)))
                continue;
            if (!covers(rule, &question->address, question->range, question->name))
                continue;
            if (opens(rule, question->range))
                answer.allows = rule;
            else if (!answer.would)
                answer.would = rule;
        }
    }
    return answer;
}

/* Every layer, by one name (or none). Fills in what decided. */
static void ask(const cellblock_policy *policy, const struct question *question, struct cb_net_decision *decision)
{
    struct answer first = ask_layer(&policy->layers[0], question);
    decision->rule = first.allows ? first.allows : first.would;
    decision->refusal = first.allows ? CB_NET_ALLOWED : first.would ? CB_NET_RANGE : CB_NET_NO_RULE;
    for (size_t i = 1; i < policy->count && decision->refusal == CB_NET_ALLOWED; i++) {
        struct answer further = ask_layer(&policy->layers[i], question);
        if (!further.given || further.allows)
            continue;
        decision->refusal = CB_NET_TIGHTENED;
        decision->document = further.document->name;
    }
    decision->allowed = decision->refusal == CB_NET_ALLOWED;
    decision->name = decision->rule && decision->rule->kind == CB_NET_HOST ? question->name : NULL;
}

static void suggest(struct cb_net_decision *decision, const struct cb_net_target *target,
                    const struct cb_address *address)
{
    struct cb_net_suggestion *made = &decision->suggest;
    /* Nobody should open a metadata service because a message proposed it. */
    if (decision->allowed || decision->refusal == CB_NET_NEVER || decision->refusal == CB_NET_TIGHTENED ||
        decision->range.class == CB_CLASS_METADATA || target->port == 0)
        return;
    made->protocol = target->protocol;
    made->port = target->port;
    if (decision->range.class == CB_CLASS_LOOPBACK) {
        made->kind = CB_NET_LOOPBACK;
    } else if (decision->range.class == CB_CLASS_PUBLIC && target->name_count > 0) {
        made->kind = CB_NET_HOST;
        snprintf(made->what, sizeof made->what, "%s", target->names[0]);
    } else {
        made->kind = CB_NET_CIDR;
        cb_address_print(address, made->what);
    }
}

static bool is_closed(struct cb_range range)
{
    return cb_class_is_closed(range.class) && (range.class != CB_CLASS_LOOPBACK || range.carried);
}

struct cb_net_decision cb_decide_connect(const cellblock_policy *policy, const struct cb_net_target *target)
{
    struct cb_net_decision decision = {.refusal = CB_NET_NEVER};
    struct question question = {.protocol = target->protocol, .port = target->port};
    question.address = cb_address_plain(target->address);
    if ((question.address.family != AF_INET && question.address.family != AF_INET6) || target->port == 0)
        return decision;
    decision.range = question.range = cb_address_range(&question.address);
    if (is_closed(question.range))
        return decision;
    decision.refusal = CB_NET_NO_RULE;
    for (size_t i = 0; (i == 0 || i < target->name_count) && !decision.allowed; i++) {
        struct cb_net_decision by_this = {.range = question.range};
        question.name = i < target->name_count ? target->names[i] : NULL;
        ask(policy, &question, &by_this);
        if (by_this.allowed || by_this.refusal > decision.refusal) /* the later ones say more */
            decision = by_this;
    }
    suggest(&decision, target, &question.address);
    return decision;
}

/* ---- Names ---- */

/* The first host rule of a layer that matches. */
static const struct cb_net_rule *layer_name(const struct cb_layer *layer, const char *name,
                                            const struct cb_document **opinion)
{
    *opinion = NULL;
    for (size_t i = layer->count; i-- > 0;) {
        const struct cb_document *document = layer->documents[i];
        if (document->network_given && !*opinion)
            *opinion = document;
        for (size_t j = 0; j < document->network_count; j++)
            if (document->network[j].kind == CB_NET_HOST &&
                cb_hostname_matches(document->network[j].host, document->network[j].wildcard, name))
                return &document->network[j];
    }
    return NULL;
}

struct cb_net_decision cb_decide_name(const cellblock_policy *policy, const char *name)
{
    struct cb_net_decision decision = {.refusal = CB_NET_NEVER};
    char plain[CB_HOSTNAME_TEXT];
    if (!cb_hostname_plain(name, strlen(name), plain))
        return decision;
    const struct cb_document *opinion;
    decision.rule = layer_name(&policy->layers[0], plain, &opinion);
    decision.refusal = decision.rule ? CB_NET_ALLOWED : CB_NET_NO_RULE;
    for (size_t i = 1; i < policy->count && decision.refusal == CB_NET_ALLOWED; i++)
        if (!layer_name(&policy->layers[i], plain, &opinion) && opinion) {
            decision.refusal = CB_NET_TIGHTENED;
            decision.document = opinion->name;
        }
    decision.allowed = decision.refusal == CB_NET_ALLOWED;
    decision.name = decision.rule ? name : NULL;
    if (decision.refusal == CB_NET_NO_RULE) {
        decision.suggest = (struct cb_net_suggestion){.kind = CB_NET_HOST, .port = 443};
        memcpy(decision.suggest.what, plain, sizeof plain);
    }
    return decision;
}

struct cb_net_decision cb_decide_answer(const cellblock_policy *policy, const char *name,
                                        const struct cb_address *address)
{
    struct cb_net_decision decision = cb_decide_name(policy, name);
    if (!decision.allowed)
        return decision;
    char plain[CB_HOSTNAME_TEXT];
    struct question question = {.address = cb_address_plain(*address), .name = plain};
    question.range = cb_address_range(&question.address);
    decision = (struct cb_net_decision){.refusal = CB_NET_NEVER, .range = question.range};
    bool fine = cb_hostname_plain(name, strlen(name), plain) &&
                (question.address.family == AF_INET || question.address.family == AF_INET6);
    if (!fine || cb_class_is_closed(question.range.class))
        return decision;
    ask(policy, &question, &decision);
    decision.name = decision.name ? name : NULL; /* not the copy here */
    return decision;
}

void cb_net_reason(const struct cb_net_decision *decision, char text[static CB_NET_REASON])
{
    const char *class = cb_class_word(decision->range.class), *carries = decision->range.carried ? "carries" : "is";
    switch (decision->refusal) {
    case CB_NET_ALLOWED:
        snprintf(text, CB_NET_REASON, "is allowed");
        break;
    case CB_NET_NO_RULE:
        snprintf(text, CB_NET_REASON, "is in no rule");
        break;
    case CB_NET_RANGE:
        snprintf(text, CB_NET_REASON,
                 "%s an address of the %s range, which only a \"cidr\" rule inside that range opens", carries, class);
        break;
    case CB_NET_NEVER:
        if (decision->range.class == CB_CLASS_PUBLIC)
            snprintf(text, CB_NET_REASON, "is nothing that a rule could name");
        else
            snprintf(text, CB_NET_REASON, "%s an address of the %s range, which no rule opens", carries, class);
        break;
    case CB_NET_TIGHTENED:
        snprintf(text, CB_NET_REASON, "is taken away by %.150s", decision->document);
        break;
    }
}

int cb_policy_network_rules(const cellblock_policy *policy, int (*visit)(const struct cb_net_rule *rule, void *data),
                            void *data)
{
    const struct cb_layer *layer = &policy->layers[0];
    for (size_t i = 0; i < layer->count; i++)
        for (size_t j = 0; j < layer->documents[i]->network_count; j++) {
            int result = visit(&layer->documents[i]->network[j], data);
            if (result != 0)
                return result;
        }
    return 0;
}

static int stop(const struct cb_net_rule *rule, void *data)
{
    return 1;
}

bool cb_policy_has_network(const cellblock_policy *policy)
{
    return cb_policy_network_rules(policy, stop, NULL) != 0;
}

/* ---- Published ports ---- */

/* The rule of a layer for a port of the host: that of the topmost document. */
static const struct cb_publish_rule *layer_publish(const struct cb_layer *layer, uint16_t as, bool *given)
{
    *given = false;
    for (size_t i = layer->count; i-- > 0;) {
        const struct cb_document *document = layer->documents[i];
        *given |= document->publish_given;
        for (size_t j = 0; j < document->publish_count; j++)
            if (document->publish[j].as == as)
                return &document->publish[j];
    }
    return NULL;
}

struct cb_publish_decision cb_decide_publish(const cellblock_policy *policy, uint16_t port, uint16_t as)
{
    bool given;
    const struct cb_publish_rule *first = layer_publish(&policy->layers[0], as, &given);
    if (!first || first->port != port)
        return (struct cb_publish_decision){0};
    for (size_t i = 1; i < policy->count; i++) {
        const struct cb_publish_rule *further = layer_publish(&policy->layers[i], as, &given);
        if (given && (!further || further->port != port))
            return (struct cb_publish_decision){0};
    }
    return (struct cb_publish_decision){true, first};
}

int cb_policy_publish_rules(const cellblock_policy *policy,
                            int (*visit)(const struct cb_publish_rule *rule, void *data), void *data)
{
    const struct cb_layer *layer = &policy->layers[0];
    for (size_t i = 0; i < layer->count; i++)
        for (size_t j = 0; j < layer->documents[i]->publish_count; j++) {
            const struct cb_publish_rule *rule = &layer->documents[i]->publish[j];
            if (cb_decide_publish(policy, rule->port, rule->as).rule != rule)
                continue; /* taken away, or replaced by a later document */
            int result = visit(rule, data);
            if (result != 0)
                return result;
        }
    return 0;
}

/* ---- Unix sockets ---- */

static const struct cb_socket_rule *layer_socket(const struct cb_layer *layer, const char *path, bool *given)
{
    *given = false;
    for (size_t i = layer->count; i-- > 0;) {
        const struct cb_document *document = layer->documents[i];
        *given |= document->sockets_given;
        for (size_t j = 0; j < document->socket_count; j++)
            if (document->sockets[j].real && strcmp(document->sockets[j].real, path) == 0)
                return &document->sockets[j];
    }
    return NULL;
}

struct cb_socket_decision cb_decide_socket(const cellblock_policy *policy, const char *path)
{
    bool given;
    const struct cb_socket_rule *first = layer_socket(&policy->layers[0], path, &given);
    for (size_t i = 1; i < policy->count && first; i++)
        if (!layer_socket(&policy->layers[i], path, &given) && given)
            first = NULL;
    return (struct cb_socket_decision){first != NULL, first};
}

int cb_policy_socket_rules(const cellblock_policy *policy, int (*visit)(const struct cb_socket_rule *rule, void *data),
                           void *data)
{
    const struct cb_layer *layer = &policy->layers[0];
    for (size_t i = 0; i < layer->count; i++)
        for (size_t j = 0; j < layer->documents[i]->socket_count; j++) {
            const struct cb_socket_rule *rule = &layer->documents[i]->sockets[j];
            if (!rule->real || cb_decide_socket(policy, rule->real).rule != rule)
                continue;
            int result = visit(rule, data);
            if (result != 0)
                return result;
        }
    return 0;
}
