/* The resolved policy as JSON, for `policy show`: each entry with the place that it comes from.
 *
 * Single values are the ones in force. In lists, what a later document of the same layer replaced is left out; entries
 * of a tightening layer, which only take away, carry "tightens": true. */
#include "base/cleanup.h"
#include "base/text.h"
#include "policy/policy.h"
#include "policy/schema.h"
#include "policy/show.h"
#include "policy/writer.h"

#include <string.h>

char *cb_origin_text(const struct cb_origin *origin)
{
    return origin->line > 0 ? cb_format("%s:%d", origin->document, origin->line) : strdup(origin->document);
}

void cb_show_origin(struct cb_writer *writer, const struct cb_origin *origin)
{
    if (!origin) {
        cb_write_string(writer, "origin", "default");
        return;
    }
    cb_autofree char *text = cb_origin_text(origin);
    writer->text.failed |= !text;
    cb_write_string(writer, "origin", text);
}

void cb_show_tightens(struct cb_writer *writer, size_t layer)
{
    if (layer > 0)
        cb_write_flag(writer, "tightens", true);
}

/* The origin of what the topmost document that has a say says; NULL for none. */
static const struct cb_origin *workspace_origin(const cellblock_policy *policy)
{
    for (size_t i = policy->count; i-- > 0;)
        for (size_t j = policy->layers[i].count; j-- > 0;) {
            const struct cb_document *document = policy->layers[i].documents[j];
            if (document->workspace_mode_given ? document->workspace_mode == cb_decide_workspace_mode(policy)
                                               : i == 0 && document->workspace_path)
                return &document->workspace_origin;
        }
    return NULL;
}

static void write_workspace(struct cb_writer *writer, const cellblock_policy *policy)
{
    cb_write_object(writer, "workspace");
    cb_write_string(writer, "path", cb_decide_workspace_path(policy));
    cb_write_string(writer, "mode", cb_word_of(cb_mode_words, (int)cb_decide_workspace_mode(policy)));
    cb_show_origin(writer, workspace_origin(policy));
    cb_write_end(writer);
}

/* Does another rule of the layer, for the same path, take the place of this one? Order as in decide.c. */
static bool replaced(const struct cb_layer *layer, const struct cb_file_rule *rule)
{
    bool behind = false;
    for (size_t i = 0; i < layer->count; i++)
        for (size_t j = 0; j < layer->documents[i]->file_count; j++) {
            const struct cb_file_rule *other = &layer->documents[i]->files[j];
            if (other == rule) {
                behind = true;
                continue;
            }
            if (strcmp(other->path, rule->path) != 0)
                continue;
            bool other_none = other->access == CB_ACCESS_NONE, rule_none = rule->access == CB_ACCESS_NONE;
            if (other_none != rule_none ? other_none : behind)
                return true;
        }
    return false;
}

static void write_rule(struct cb_writer *writer, const struct cb_file_rule *rule, size_t layer)
{
    cb_write_object(writer, NULL);
    cb_autofree char *path =
        cb_format("%s%s", rule->path, rule->directory_only && strcmp(rule->path, "/") != 0 ? "/" : "");
    writer->text.failed |= !path;
    cb_write_string(writer, "path", path);
    cb_write_string(writer, "access", cb_access_word(rule->access));
    if (rule->optional)
        cb_write_flag(writer, "optional", true);
    if (rule->when != CB_WHEN_ALWAYS)
        cb_write_string(writer, "when", cb_word_of(cb_when_words, (int)rule->when));
    if (rule->why)
        cb_write_string(writer, "why", rule->why);
    cb_show_origin(writer, &rule->origin);
    cb_show_tightens(writer, layer);
    cb_write_end(writer);
}

static void write_files(struct cb_writer *writer, const cellblock_policy *policy)
{
    cb_write_list(writer, "files");
    for (size_t i = 0; i < policy->count; i++)
        for (size_t j = 0; j < policy->layers[i].count; j++) {
            const struct cb_document *document = policy->layers[i].documents[j];
            for (size_t k = 0; k < document->file_count; k++)
                if (!replaced(&policy->layers[i], &document->files[k]))
                    write_rule(writer, &document->files[k], i);
        }
    cb_write_end(writer);
}

enum list { PROGRAMS, ENV_PASS, SYSCALL_DENY, SYSCALL_ALLOW, ACCEPT_WEAKER };

static const struct cb_names *list_of(const struct cb_document *document, enum list list)
{
    switch (list) {
    case PROGRAMS:
        return &document->programs;
    case ENV_PASS:
        return &document->env_pass;
    case SYSCALL_DENY:
        return &document->syscall_deny;
    case SYSCALL_ALLOW:
        return &document->syscall_allow;
    case ACCEPT_WEAKER:
        break;
    }
    return &document->accept_weaker;
}

/* Was the name there before this item, in the same layer? */
static bool repeated(const struct cb_layer *layer, enum list list, const struct cb_named *item)
{
    for (size_t i = 0; i < layer->count; i++) {
        const struct cb_names *names = list_of(layer->documents[i], list);
        for (size_t j = 0; j < names->count; j++) {
            if (&names->items[j] == item)
                return false;
            if (strcmp(names->items[j].name, item->name) == 0)
                return true;
        }
    }
    return false;
}

static void write_names(struct cb_writer *writer, const char *key, const cellblock_policy *policy, enum list list)
{
    cb_write_list(writer, key);
    for (size_t i = 0; i < policy->count; i++) {
        const struct cb_layer *layer = &policy->layers[i];
        for (size_t j = 0; j < layer->count; j++) {
            const struct cb_names *names = list_of(layer->documents[j], list);
            for (size_t k = 0; k < names->count; k++) {
                if (repeated(layer, list, &names->items[k]))
                    continue;
                cb_write_object(writer, NULL);
                cb_write_string(writer, "name", names->items[k].name);
                cb_show_origin(writer, &names->items[k].origin);
                cb_show_tightens(writer, i);
                cb_write_end(writer);
            }
        }
    }
    cb_write_end(writer);
}

static void write_limits(struct cb_writer *writer, const cellblock_policy *policy)
{
    cb_write_object(writer, "limits");
    for (int i = 0; i < CB_LIMIT_COUNT; i++) {
        struct cb_limit_decision decision = cb_decide_limit(policy, (enum cb_limit)i);
        cb_write_object(writer, cb_limit_word((enum cb_limit)i));
        if (decision.value == CB_UNLIMITED)
            cb_write_null(writer, "value");
        else
            cb_write_number(writer, "value", decision.value);
        if (i == CB_LIMIT_CPU_TIME || i == CB_LIMIT_WALL_TIME)
            cb_write_string(writer, "unit", "ms");
        else if (i == CB_LIMIT_CPUS)
            cb_write_string(writer, "unit", "thousandths of a processor");
        else if (i != CB_LIMIT_PROCESSES && i != CB_LIMIT_OPEN_FILES && i != CB_LIMIT_INODES &&
                 i != CB_LIMIT_CONNECTIONS)
            cb_write_string(writer, "unit", "bytes");
        cb_show_origin(writer, decision.origin);
        cb_write_end(writer);
    }
    cb_write_end(writer);
}

struct env_writer {
    struct cb_writer *writer;
    const cellblock_policy *policy;
};

static int write_env_set(const char *name, const char *value, void *data)
{
    const struct env_writer *env = data;
    cb_write_object(env->writer, NULL);
    cb_write_string(env->writer, "name", name);
    cb_write_string(env->writer, "value", value);
    cb_show_origin(env->writer, cb_decide_env(env->policy, name).origin);
    cb_write_end(env->writer);
    return 0;
}

static void write_env(struct cb_writer *writer, const cellblock_policy *policy)
{
    cb_write_object(writer, "env");
    write_names(writer, "pass", policy, ENV_PASS);
    cb_write_list(writer, "set");
    cb_policy_env_set(policy, write_env_set, &(struct env_writer){writer, policy});
    cb_write_end(writer);
    cb_write_end(writer);
}

static void write_syscalls(struct cb_writer *writer, const cellblock_policy *policy)
{
    enum cb_syscall_profile profile = cb_decide_syscall_profile(policy);
    const struct cb_origin *origin = NULL;
    for (size_t i = 0; i < policy->count && !origin; i++)
        for (size_t j = policy->layers[i].count; j-- > 0 && !origin;) {
            const struct cb_document *document = policy->layers[i].documents[j];
            if (document->syscalls_given && document->syscall_profile == profile)
                origin = &document->syscalls_origin;
        }
    cb_write_object(writer, "syscalls");
    cb_write_string(writer, "profile", cb_word_of(cb_syscall_profile_words, (int)profile));
    cb_show_origin(writer, origin);
    write_names(writer, "deny", policy, SYSCALL_DENY);
    write_names(writer, "allow", policy, SYSCALL_ALLOW);
    cb_write_end(writer);
}

static void write_isolation(struct cb_writer *writer, const cellblock_policy *policy)
{
    enum cb_isolation isolation = cb_decide_isolation(policy);
    const struct cb_origin *origin = NULL;
    for (size_t i = 0; i < policy->count && !origin; i++)
        for (size_t j = policy->layers[i].count; j-- > 0 && !origin;) {
            const struct cb_document *document = policy->layers[i].documents[j];
            if (document->isolation_given && document->isolation == isolation)
                origin = &document->isolation_origin;
        }
    cb_write_object(writer, "isolation");
    cb_write_string(writer, "value", cb_isolation_word(isolation));
    cb_show_origin(writer, origin);
    cb_write_end(writer);
}

int cellblock_policy_json(const cellblock_policy *policy, char **json, cellblock_error **error)
{
    struct cb_writer writer = {0};
    cb_write_object(&writer, NULL);
    cb_write_number(&writer, "cellblock", 1);
    write_workspace(&writer, policy);
    write_files(&writer, policy);
    write_names(&writer, "programs", policy, PROGRAMS);
    cb_show_network(&writer, policy);
    write_limits(&writer, policy);
    write_env(&writer, policy);
    write_syscalls(&writer, policy);
    write_isolation(&writer, policy);
    write_names(&writer, "accept_weaker", policy, ACCEPT_WEAKER);
    cb_write_end(&writer);
    return cb_writer_take(&writer, json, error);
}
