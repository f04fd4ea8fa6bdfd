/* Environment, program and starting directory. The environment is an allow-list: what the policy does not name is not
 * inherited. PATH, HOME and PWD are the cell's own. */
#include "plan/plan.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/text.h"

#include <limits.h>
#include <string.h>

static const char default_path[] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

struct maker {
    struct cb_plan *plan;
    size_t count;
    cellblock_error **error;
};

static int add(struct maker *maker, const char *name, const char *value)
{
    char **slot = cb_array_push(&maker->plan->envp, &maker->count);
    if (!slot || !(*slot = cb_format("%s=%s", name, value)))
        return cb_fail_memory(maker->error);
    return 0;
}

static bool has_name(const struct maker *maker, const char *name)
{
    size_t length = strlen(name);
    for (size_t i = 0; i < maker->count; i++)
        if (strncmp(maker->plan->envp[i], name, length) == 0 && maker->plan->envp[i][length] == '=')
            return true;
    return false;
}

static int add_set(const char *name, const char *value, void *data)
{
    struct maker *maker = data;
    return has_name(maker, name) ? 0 : add(maker, name, value);
}

/* The caller's PATH, less what is not there in the cell. */
static char *search_path(const struct cb_plan *plan, const char *callers)
{
    struct cb_text made = {0};
    for (const char *at = callers ? callers : default_path; *at;) {
        size_t length = strcspn(at, ":");
        cb_autofree char *entry = strndup(at, length);
        if (!entry) {
            cb_text_free(&made);
            return NULL;
        }
        if (entry[0] == '/' && !strstr(entry, "/../") && cb_resolved_shows(plan->resolved, entry))
            cb_text_addf(&made, "%s%s", made.length ? ":" : "", entry);
        at += length;
        at += *at == ':';
    }
    if (made.length == 0)
        cb_text_add(&made, default_path, sizeof default_path - 1);
    return cb_text_take(&made);
}

static bool is_own(const char *name)
{
    return strcmp(name, "PATH") == 0 || strcmp(name, "HOME") == 0 || strcmp(name, "PWD") == 0 ||
           strcmp(name, "OLDPWD") == 0 || strcmp(name, "TMPDIR") == 0;
}

static int pass_on(struct maker *maker, const char *const *envp)
{
    for (size_t i = 0; envp && envp[i]; i++) {
        const char *equals = strchr(envp[i], '=');
        if (!equals || equals == envp[i])
            continue;
        cb_autofree char *name = strndup(envp[i], (size_t)(equals - envp[i]));
        if (!name)
            return cb_fail_memory(maker->error);
        bool pass = cb_layer_on(maker->plan, CB_OFF_ENVIRONMENT)
                        ? cb_decide_env(maker->plan->resolved->policy, name).pass
                        : true;
        if (pass && !is_own(name) && !has_name(maker, name) && add(maker, name, equals + 1) < 0)
            return -1;
    }
    return 0;
}

static int find_candidates(struct cb_plan *plan, const char *path, cellblock_error **error)
{
    const char *program = plan->argv[0];
    size_t count = 0;
    if (strchr(program, '/')) {
        char **slot = cb_array_push(&plan->candidates, &count);
        if (!slot || !(*slot = strdup(program)))
            return cb_fail_memory(error);
    }
    for (const char *at = path; !strchr(program, '/') && *at;) {
        size_t length = strcspn(at, ":");
        char **slot = cb_array_push(&plan->candidates, &count);
        if (!slot || !(*slot = cb_format("%.*s/%s", (int)length, at, program)))
            return cb_fail_memory(error);
        at += length;
        at += *at == ':';
    }
    return cb_array_push(&plan->candidates, &count) ? 0 : cb_fail_memory(error);
}

int cb_plan_environment(struct cb_plan *plan, const struct cellblock_options *options, const struct cb_context *context,
                        cellblock_error **error)
{
    const struct cb_resolved *resolved = plan->resolved;
    bool there = cb_decide_file(resolved->policy, context->directory).access != CB_ACCESS_NONE &&
                 !(resolved->scratch && cb_path_within(context->directory, resolved->workspace));
    bool elsewhere = resolved->scratch && plan->private_directory;
    plan->directory = elsewhere ? cb_format("%s/work", plan->private_directory)
                                : strdup(there ? context->directory : resolved->workspace);
    cb_autofree char *temporary = plan->private_directory ? cb_format("%s/tmp", plan->private_directory) : NULL;
    cb_autofree char *path = search_path(plan, context->search_path);
    if (!path || !plan->directory || (plan->private_directory && !temporary))
        return cb_fail_memory(error);
    struct maker maker = {.plan = plan, .error = error};
    if (cb_policy_env_set(resolved->policy, add_set, &maker) < 0 || pass_on(&maker, options->envp) < 0)
        return -1;
    if ((!has_name(&maker, "PATH") && add(&maker, "PATH", path) < 0) ||
        (!has_name(&maker, "HOME") && add(&maker, "HOME", plan->home) < 0) ||
        (plan->network.brokered && !has_name(&maker, "RES_OPTIONS") && add(&maker, "RES_OPTIONS", "use-vc") < 0) ||
        (temporary && !has_name(&maker, "TMPDIR") && add(&maker, "TMPDIR", temporary) < 0) ||
        add(&maker, "PWD", plan->directory) < 0)
        return -1;
    if (!cb_array_push(&plan->envp, &maker.count))
        return cb_fail_memory(error);
    return find_candidates(plan, path, error);
}
