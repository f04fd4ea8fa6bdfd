/* The plan in JSON: the short report that goes with every result, and the whole plan for `cellblock run --plan`. */
#include "plan/plan.h"

#include "policy/syscalls.h"

static json_t *bytes_or_null(uint64_t value)
{
    return value == CB_UNLIMITED ? json_null() : json_integer((json_int_t)value);
}

static json_t *limits(const struct cb_plan *plan)
{
    json_t *object = json_object();
    for (int i = 0; object && i < CB_LIMIT_COUNT; i++)
        json_object_set_new(object, cb_limit_word((enum cb_limit)i),
                            bytes_or_null(cb_decide_limit(plan->resolved->policy, (enum cb_limit)i).value));
    return object;
}

static const char *profile_word(const struct cb_plan *plan)
{
    return cb_decide_syscall_profile(plan->resolved->policy) == CB_SYSCALLS_STRICT ? "strict" : "default";
}

static json_t *requested(const struct cb_plan *plan)
{
    const cellblock_policy *policy = plan->resolved->policy;
    return json_pack("{s:s, s:s, s:s, s:s, s:o}", "isolation", cb_isolation_word(cb_decide_isolation(policy)),
                     "workspace", plan->resolved->workspace, "workspace_mode",
                     plan->resolved->scratch ? "scratch" : "direct", "syscalls", profile_word(plan), "limits",
                     limits(plan));
}

static json_t *enforced(const struct cb_plan *plan)
{
    json_t *object = json_pack(
        "{s:s, s:[s,s,s,s,s,s,s], s:{s:i, s:i, s:b}, s:{s:s, s:i, s:b}, s:b, s:s, s:s, s:s, s:s}", "files",
        "private root", "namespaces", "user", "mount", "pid", "net", "ipc", "uts", "cgroup", "ids", "inside",
        (int)plan->inside_uid, "outside", (int)plan->outside_uid, "unprivileged", plan->outside_uid != 0, "seccomp",
        "profile", profile_word(plan), "instructions", (int)plan->filter.length, "custom",
        cb_policy_has_custom_syscalls(plan->resolved->policy), "no_new_privs", 1, "capabilities", "none", "network",
        "loopback only", "memory", "per process (RLIMIT_DATA)", "processes", "per cell (RLIMIT_NPROC)");
    if (object)
        json_object_set_new(object, "landlock",
                            plan->landlock_handled ? json_pack("{s:i, s:b}", "abi", plan->landlock_abi, "scopes",
                                                               plan->landlock_scoped != 0)
                                                   : json_null());
    if (object)
        json_object_set_new(object, "guarded_paths", json_integer((json_int_t)plan->guard.absent_count));
    return object;
}

json_t *cb_plan_report(const struct cb_plan *plan)
{
    return json_pack("{s:s, s:o, s:o, s:O}", "tier", "namespaces", "requested", requested(plan), "enforced",
                     enforced(plan), "weaker", plan->weaker);
}

static const char *const step_words[] = {
    [CB_STEP_DIRECTORY] = "directory", [CB_STEP_FILE] = "file",
    [CB_STEP_SYMLINK] = "link",        [CB_STEP_BIND] = "host",
    [CB_STEP_REBIND] = "pinned",       [CB_STEP_SCRATCH] = "scratch",
    [CB_STEP_VEIL] = "veiled",         [CB_STEP_MASK] = "masked",
    [CB_STEP_PROC] = "own /proc",      [CB_STEP_DEVPTS] = "own terminals",
};

static json_t *root_of(const struct cb_plan *plan)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < plan->step_count; i++) {
        const struct cb_step *step = &plan->steps[i];
        if (step->kind == CB_STEP_DIRECTORY || step->kind == CB_STEP_FILE)
            continue;
        json_t *item = json_pack("{s:o, s:s}", "path", json_sprintf("/%s", step->at), "is", step_words[step->kind]);
        if (item && step->kind != CB_STEP_SYMLINK)
            json_object_set_new(item, "access", json_string(cb_access_word(step->access)));
        if (item && step->kind == CB_STEP_SYMLINK)
            json_object_set_new(item, "target", json_string(step->source));
        if (item && step->idmapped)
            json_object_set_new(item, "idmapped", json_true());
        json_array_append_new(list, item);
    }
    return list;
}

static json_t *strings(char *const *items, size_t count)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < count; i++)
        json_array_append_new(list, json_string(items[i]));
    return list;
}

static size_t length_of(char *const *list)
{
    size_t count = 0;
    while (list && list[count])
        count++;
    return count;
}

json_t *cb_plan_json(const struct cb_plan *plan)
{
    return json_pack("{s:o, s:o, s:s, s:s, s:o, s:o, s:o, s:o}", "report", cb_plan_report(plan), "program",
                     strings(plan->argv, length_of(plan->argv)), "directory", plan->directory, "home", plan->home,
                     "environment", strings(plan->envp, length_of(plan->envp)), "candidates",
                     strings(plan->candidates, length_of(plan->candidates)), "root", root_of(plan), "cannot_be_made",
                     strings(plan->guard.absents, plan->guard.absent_count));
}
