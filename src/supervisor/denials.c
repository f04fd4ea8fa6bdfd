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
};

static const struct kind *kind_of(const char *code)
{
    size_t i = 0;
    while (i + 1 < sizeof kinds / sizeof *kinds && strcmp(kinds[i].code, code) != 0)
        i++;
    return &kinds[i];
}

void cb_denial_note(struct cellblock_cell *cell, const char *code, const char *object, const struct cb_file_rule *rule)
{
    for (size_t i = 0; i < cell->denial_count; i++)
        if (strcmp(cell->denials[i].object, object) == 0 && strcmp(cell->denials[i].code, code) == 0) {
            cell->denials[i].count++;
            return;
        }
    if (cell->denial_count >= MAX_CHOSEN && kind_of(code)->chosen)
        return;
    struct cb_denial *denial = cb_array_push(&cell->denials, &cell->denial_count);
    if (!denial)
        return;
    *denial = (struct cb_denial){.code = code, .object = strdup(object), .rule = rule, .count = 1};
    if (!denial->object)
        cell->denial_count--;
}

static json_t *denial_json(const struct cb_denial *denial)
{
    const struct cb_file_rule *rule = denial->rule;
    cb_autofree char *object = cb_printable(denial->object, strlen(denial->object));
    /* What is hidden stays hidden, whatever is granted at the same path: nothing to suggest then. */
    json_t *suggestion = !rule || rule->access == CB_ACCESS_NONE
                             ? json_null()
                             : json_pack("{s:s?, s:s, s:b}", "path", object, "access", "write", "optional", 1);
    return json_pack("{s:s, s:s?, s:s, s:o, s:I, s:o, s:b}", "code", denial->code, "object", object, "layer",
                     kind_of(denial->code)->layer, "rule",
                     !rule                   ? json_null()
                     : rule->origin.line > 0 ? json_sprintf("%s:%d", rule->origin.document, rule->origin.line)
                                             : json_string(rule->origin.document),
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
