/* What was refused, for the result of the run: told to the supervisor as it happens, once for each distinct refusal and
 * then as counts, so that code that tries without end does not drown it. */
#include "relay/relay.h"

#include "base/cleanup.h"
#include "base/text.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { EACH = 64, MOST = 4 * EACH }; /* of each code: many of one must not hide another */

struct refusal {
    const char *code;
    char *object;
    char *details;          /* JSON */
    uint64_t count, told;
};

struct cb_refusals {
    struct cb_relay *relay;
    struct refusal list[MOST];
    size_t count;
};

static json_t *suggestion_json(const struct cb_net_suggestion *suggest)
{
    const char *protocol = suggest->protocol == CB_PROTOCOL_UDP ? "udp" : NULL;
    json_t *rule = NULL;
    switch (suggest->kind) {
    case CB_NET_HOST:
        rule = json_pack("{s:s, s:[i], s:s*}", "host", suggest->what, "ports", (int)suggest->port, "protocol", protocol);
        break;
    case CB_NET_CIDR:
        rule = json_pack("{s:s, s:[i], s:s*}", "cidr", suggest->what, "ports", (int)suggest->port, "protocol", protocol);
        break;
    case CB_NET_LOOPBACK:
        rule = json_pack("{s:i}", "loopback", (int)suggest->port);
        break;
    default:
        break;
    }
    return rule ? rule : json_null();
}

static char *details_of(const struct cb_net_decision *decision)
{
    char reason[CB_NET_REASON] = "";
    cb_net_reason(decision, reason);
    cb_autofree char *rule = decision->rule ? cb_origin_text(&decision->rule->origin) : NULL;
    json_t *details = json_pack("{s:s, s:s?, s:o, s:b}", "reason", reason, "rule", rule, "suggest",
                                suggestion_json(&decision->suggest), "final", decision->refusal == CB_NET_NEVER);
    char *text = details ? json_dumps(details, JSON_COMPACT) : NULL;
    json_decref(details);
    return text;
}

static void note(struct cb_relay *relay, const char *code, const char *object, const struct cb_net_decision *decision)
{
    struct cb_refusals *refusals = relay->refusals;
    size_t same = 0;
    for (size_t i = 0; i < refusals->count; i++) {
        if (strcmp(refusals->list[i].code, code) != 0)
            continue;
        same++;
        if (strcmp(refusals->list[i].object, object) == 0) {
            refusals->list[i].count++;
            return;
        }
    }
    if (same == EACH || refusals->count == MOST)
        return;
    struct refusal *refusal = &refusals->list[refusals->count];
    *refusal = (struct refusal){.code = code, .object = strdup(object), .details = details_of(decision), .count = 1};
    if (refusal->object && refusal->details) {
        refusals->count++;
        return;
    }
    free(refusal->object);
    free(refusal->details);
}

void cb_refuse_target(struct cb_relay *relay, const char *code, enum cb_protocol protocol,
                      const struct cb_address *address, uint16_t port, const struct cb_net_decision *decision)
{
    char text[CB_ADDRESS_TEXT];
    cb_address_print(address, text);
    bool six = strchr(text, ':') != NULL;
    cb_autofree char *object = cb_format("%s%s%s%s:%u", protocol == CB_PROTOCOL_UDP ? "udp://" : "", six ? "[" : "", text,
                                         six ? "]" : "", port);
    if (object)
        note(relay, code, object, decision);
}

void cb_refuse_name(struct cb_relay *relay, const char *code, const char *object,
                    const struct cb_net_decision *decision)
{
    note(relay, code, object, decision);
}

/* What finds no room now is told later. */
void cb_refusals_flush(struct cb_refusals *refusals)
{
    for (size_t i = 0; i < refusals->count; i++) {
        struct refusal *refusal = &refusals->list[i];
        if (refusal->told == refusal->count)
            continue;
        struct cb_link_message message = {.kind = CB_LINK_DENIAL, .counts = {refusal->count - refusal->told}};
        cb_autotext struct cb_text text = {0};
        cb_text_add(&text, refusal->code, strlen(refusal->code) + 1);
        cb_text_add(&text, refusal->object, strlen(refusal->object) + 1);
        cb_text_add(&text, refusal->details, strlen(refusal->details) + 1);
        if (text.failed || text.length > CB_LINK_TEXT ||
            cb_link_send(refusals->relay->link, &message, text.data, text.length, -1,
                         refusals->relay->finishing ? 0 : MSG_DONTWAIT) < 0)
            return;
        refusal->told = refusal->count;
    }
}

struct cb_refusals *cb_refusals_open(struct cb_relay *relay)
{
    struct cb_refusals *refusals = calloc(1, sizeof *refusals);
    if (refusals)
        refusals->relay = relay;
    return refusals;
}

void cb_refusals_close(struct cb_refusals *refusals)
{
    for (size_t i = 0; refusals && i < refusals->count; i++) {
        free(refusals->list[i].object);
        free(refusals->list[i].details);
    }
    free(refusals);
}
