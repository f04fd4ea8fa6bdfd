/* Denials: refusals that the supervisor made itself, one record for each code and object. */
#include "supervisor/supervisor.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/text.h"

#include <string.h>

/* The code must not be able to fill our memory; what is swept is few, and must not be crowded out. */
enum { MAX_CHOSEN = 64 };

static const struct kind {
    const char *code;
    const char *layer;
    bool chosen;            /* the object is the code's choice */
} kinds[] = {
    {"file.create", "guard", true},
    {"file.attributes", "supervisor", true},
    {"file.swept", "guard", false},
    {"file.not-swept", "guard", false},
    {"network.connect", "relay", true},
    {"network.send", "relay", true},
    {"network.name", "resolver", true},
    {"network.answer", "resolver", true},
};

static const struct kind *kind_of(const char *code)
{
    size_t i = 0;
    while (i + 1 < sizeof kinds / sizeof *kinds && strcmp(kinds[i].code, code) != 0)
        i++;
    return &kinds[i];
}

/* Each kind has room of its own: the code must not be able to hide one behind many others. */
static bool is_crowded(const struct cellblock_cell *cell, const char *code)
{
    size_t count = 0;
    for (size_t i = 0; i < cell->denial_count; i++)
        count += strcmp(cell->denials[i].code, code) == 0;
    return count >= MAX_CHOSEN;
}

void cb_denial_note(struct cellblock_cell *cell, const char *code, const char *object, const struct cb_file_rule *rule)
{
    for (size_t i = 0; i < cell->denial_count; i++)
        if (strcmp(cell->denials[i].object, object) == 0 && strcmp(cell->denials[i].code, code) == 0) {
            cell->denials[i].count++;
            return;
        }
    if (kind_of(code)->chosen && is_crowded(cell, code))
        return;
    struct cb_denial *denial = cb_array_push(&cell->denials, &cell->denial_count);
    if (!denial)
        return;
    *denial = (struct cb_denial){.code = code, .object = strdup(object), .rule = rule, .count = 1};
    if (!denial->object)
        cell->denial_count--;
}

void cb_denial_network(struct cellblock_cell *cell, const char *code, const char *object, const char *details,
                       uint64_t count)
{
    const char *known = kind_of(code)->code;
    if (strcmp(known, code) != 0 || !cb_has_prefix(code, "network."))
        return;
    for (size_t i = 0; i < cell->denial_count; i++)
        if (strcmp(cell->denials[i].object, object) == 0 && strcmp(cell->denials[i].code, code) == 0) {
            cell->denials[i].count += count;
            return;
        }
    struct cb_denial *denial = !is_crowded(cell, code) ? cb_array_push(&cell->denials, &cell->denial_count) : NULL;
    if (!denial)
        return;
    *denial = (struct cb_denial){.code = known, .object = strdup(object), .details = strdup(details), .count = count};
    if (denial->object && denial->details)
        return;
    free(denial->object);
    free(denial->details);
    cell->denial_count--;
}

/* With what the relay's decision says: reason, rule, suggestion. */
static json_t *network_json(const struct cb_denial *denial)
{
    cb_autofree char *object = cb_printable(denial->object, strlen(denial->object));
    json_t *all = json_pack("{s:s, s:s?, s:s, s:I}", "code", denial->code, "object", object, "layer",
                            kind_of(denial->code)->layer, "count", (json_int_t)denial->count);
    static const char *const keys[] = {"reason", "rule", "suggest", "final"};
    json_t *details = json_loads(denial->details, 0, NULL);
    for (size_t i = 0; all && i < sizeof keys / sizeof *keys; i++) {
        json_t *value = json_object_get(details, keys[i]);
        json_object_set_new(all, keys[i], value ? json_incref(value) : json_null());
    }
    json_decref(details);
    return all;
}

static json_t *denial_json(const struct cb_denial *denial)
{
    if (denial->details)
        return network_json(denial);
    const struct cb_file_rule *rule = denial->rule;
    cb_autofree char *object = cb_printable(denial->object, strlen(denial->object));
    cb_autofree char *origin = rule ? cb_origin_text(&rule->origin) : NULL;
    /* What is hidden stays hidden, whatever is granted at the same path: nothing to suggest then. */
    json_t *suggestion = !rule || rule->access == CB_ACCESS_NONE
                             ? json_null()
                             : json_pack("{s:s?, s:s, s:b}", "path", object, "access", "write", "optional", 1);
    return json_pack("{s:s, s:s?, s:s, s:s?, s:I, s:o, s:b}", "code", denial->code, "object", object, "layer",
                     kind_of(denial->code)->layer, "rule",
                     origin,
                     "count", (json_int_t)denial->count, "suggest", suggestion, "final", 1);
}

json_t *cb_denials_json(const struct cellblock_cell *cell)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < cell->denial_count; i++)
        if (json_array_append_new(list, denial_json(&cell->denials[i])) < 0) {
            json_decref(list);
            return NULL;
        }
    return list;
}
