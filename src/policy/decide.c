/* The decisions: the only code that interprets a policy. Each function asks every layer and takes the strictest answer.
 * In the first layer silence means the default, which is to deny; a further layer that is silent has no opinion. */
#include "base/text.h"
#include "policy/policy.h"

#include <string.h>

/* ---- Files ---- */

/* Of two rules that both cover a path, does `rule` (found later) beat `best`? */
static bool beats(const struct cb_file_rule *rule, size_t length, const struct cb_file_rule *best, size_t best_length)
{
    if (!best || length != best_length)
        return !best || length > best_length;
    return best->access != CB_ACCESS_NONE || rule->access == CB_ACCESS_NONE;
}

static const struct cb_file_rule *layer_file(const struct cb_layer *layer, const char *path)
{
    const struct cb_file_rule *best = NULL;
    size_t best_length = 0;
    for (size_t i = 0; i < layer->count; i++) {
        const struct cb_document *document = layer->documents[i];
        for (size_t j = 0; j < document->file_count; j++) {
            const struct cb_file_rule *rule = &document->files[j];
            if (!rule->real || !cb_path_within(path, rule->real))
                continue;
            size_t length = strlen(rule->real);
            if (beats(rule, length, best, best_length)) {
                best = rule;
                best_length = length;
            }
        }
    }
    return best;
}

struct cb_file_decision cb_decide_file(const cellblock_policy *policy, const char *path)
{
    const struct cb_file_rule *rule = layer_file(&policy->layers[0], path);
    struct cb_file_decision decision = {rule ? rule->access : CB_ACCESS_NONE, rule};
    for (size_t i = 1; i < policy->count; i++) {
        rule = layer_file(&policy->layers[i], path);
        if (rule && rule->access < decision.access)
            decision = (struct cb_file_decision){rule->access, rule};
    }
    return decision;
}

/* ---- Limits ---- */

struct cb_limit_decision cb_decide_limit(const cellblock_policy *policy, enum cb_limit limit)
{
    struct cb_limit_decision decision = {CB_UNLIMITED, NULL};
    for (size_t i = 0; i < policy->count; i++) {
        const struct cb_layer *layer = &policy->layers[i];
        for (size_t j = layer->count; j-- > 0;) {
            const struct cb_document *document = layer->documents[j];
            if (!document->limit_given[limit])
                continue;
            if (document->limit[limit] < decision.value || !decision.origin)
                decision = (struct cb_limit_decision){document->limit[limit], &document->limit_origin[limit]};
            break;
        }
    }
    return decision;
}

/* ---- Lists of names ---- */

typedef const struct cb_names *names_of(const struct cb_document *document);

static const struct cb_names *env_pass_of(const struct cb_document *document)
{
    return &document->env_pass;
}

static const struct cb_names *weaker_of(const struct cb_document *document)
{
    return &document->accept_weaker;
}

static bool matches(const char *pattern, const char *name)
{
    size_t length = strlen(pattern);
    if (length > 0 && pattern[length - 1] == '*')
        return strncmp(pattern, name, length - 1) == 0;
    return strcmp(pattern, name) == 0;
}

/* The first item of a layer that matches; *given tells whether the layer has such a list at all. */
static const struct cb_named *layer_named(const struct cb_layer *layer, names_of *list, const char *name, bool *given)
{
    *given = false;
    for (size_t i = 0; i < layer->count; i++) {
        const struct cb_names *names = list(layer->documents[i]);
        *given |= names->given;
        for (size_t j = 0; j < names->count; j++)
            if (matches(names->items[j].name, name))
                return &names->items[j];
    }
    return NULL;
}

/* The item of the first layer that names it, if every layer with such a list names it too. */
static const struct cb_named *named_by_all(const cellblock_policy *policy, names_of *list, const char *name)
{
    bool given;
    const struct cb_named *first = layer_named(&policy->layers[0], list, name, &given);
    for (size_t i = 1; i < policy->count && first; i++)
        if (!layer_named(&policy->layers[i], list, name, &given) && given)
            return NULL;
    return first;
}

bool cb_decide_accept_weaker(const cellblock_policy *policy, const char *what)
{
    return named_by_all(policy, weaker_of, what) != NULL;
}

/* ---- Environment ---- */

/* Fixed values come from the first layer alone; the document on top wins. */
static const struct cb_named *env_set_item(const cellblock_policy *policy, const char *name)
{
    const struct cb_layer *layer = &policy->layers[0];
    for (size_t i = layer->count; i-- > 0;) {
        const struct cb_names *names = &layer->documents[i]->env_set;
        for (size_t j = 0; j < names->count; j++)
            if (strcmp(names->items[j].name, name) == 0)
                return &names->items[j];
    }
    return NULL;
}

struct cb_env_decision cb_decide_env(const cellblock_policy *policy, const char *name)
{
    const struct cb_named *item = env_set_item(policy, name);
    if (item)
        return (struct cb_env_decision){.pass = true, .set = item->value, .origin = &item->origin};
    item = named_by_all(policy, env_pass_of, name);
    return (struct cb_env_decision){.pass = item != NULL, .origin = item ? &item->origin : NULL};
}

int cb_policy_env_set(const cellblock_policy *policy, int (*visit)(const char *name, const char *value, void *data),
                      void *data)
{
    const struct cb_layer *layer = &policy->layers[0];
    for (size_t i = 0; i < layer->count; i++) {
        const struct cb_names *names = &layer->documents[i]->env_set;
        for (size_t j = 0; j < names->count; j++) {
            const struct cb_named *item = &names->items[j];
            if (env_set_item(policy, item->name) != item)
                continue; /* replaced by a later document, and visited there */
            int result = visit(item->name, item->value, data);
            if (result != 0)
                return result;
        }
    }
    return 0;
}

/* ---- Workspace ---- */

/* An empty workspace in memory is stricter than the real one, so any layer may ask for it. */
enum cb_workspace_mode cb_decide_workspace_mode(const cellblock_policy *policy)
{
    enum cb_workspace_mode mode = CB_WORKSPACE_DIRECT;
    for (size_t i = 0; i < policy->count; i++) {
        const struct cb_layer *layer = &policy->layers[i];
        for (size_t j = layer->count; j-- > 0;) {
            if (!layer->documents[j]->workspace_mode_given)
                continue;
            if (layer->documents[j]->workspace_mode > mode)
                mode = layer->documents[j]->workspace_mode;
            break;
        }
    }
    return mode;
}

const char *cb_decide_workspace_path(const cellblock_policy *policy)
{
    const struct cb_layer *layer = &policy->layers[0];
    for (size_t i = layer->count; i-- > 0;)
        if (layer->documents[i]->workspace_path)
            return layer->documents[i]->workspace_path;
    return ".";
}

/* ---- System calls ---- */

enum cb_syscall_profile cb_decide_syscall_profile(const cellblock_policy *policy)
{
    enum cb_syscall_profile profile = CB_SYSCALLS_DEFAULT;
    for (size_t i = 0; i < policy->count; i++) {
        const struct cb_layer *layer = &policy->layers[i];
        for (size_t j = layer->count; j-- > 0;) {
            if (!layer->documents[j]->syscalls_given)
                continue;
            if (layer->documents[j]->syscall_profile > profile)
                profile = layer->documents[j]->syscall_profile;
            break;
        }
    }
    return profile;
}

static bool listed(const struct cb_names *names, const char *name)
{
    for (size_t i = 0; i < names->count; i++)
        if (strcmp(names->items[i].name, name) == 0)
            return true;
    return false;
}

int cb_decide_syscall_custom(const cellblock_policy *policy, const char *syscall)
{
    int answer = 0;
    for (size_t i = 0; i < policy->count; i++)
        for (size_t j = 0; j < policy->layers[i].count; j++) {
            const struct cb_document *document = policy->layers[i].documents[j];
            if (listed(&document->syscall_deny, syscall))
                return -1;
            if (i == 0 && listed(&document->syscall_allow, syscall))
                answer = 1;
        }
    return answer;
}

bool cb_policy_has_custom_syscalls(const cellblock_policy *policy)
{
    for (size_t i = 0; i < policy->count; i++)
        for (size_t j = 0; j < policy->layers[i].count; j++) {
            const struct cb_document *document = policy->layers[i].documents[j];
            if (document->syscall_deny.count > 0 || (i == 0 && document->syscall_allow.count > 0))
                return true;
        }
    return false;
}

/* ---- Isolation ---- */

enum cb_isolation cb_decide_isolation(const cellblock_policy *policy)
{
    for (size_t i = 0; i < policy->count; i++) {
        const struct cb_layer *layer = &policy->layers[i];
        for (size_t j = layer->count; j-- > 0;) {
            if (!layer->documents[j]->isolation_given)
                continue;
            if (layer->documents[j]->isolation != CB_ISOLATION_AUTO)
                return layer->documents[j]->isolation; /* others agree: tightening refuses two different demands */
            break;
        }
    }
    return CB_ISOLATION_AUTO;
}
