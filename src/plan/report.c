/* The plan in JSON: the short report that goes with every result, and the whole plan for `cellblock run --plan`. */
#include "plan/plan.h"

#include "base/cleanup.h"
#include "base/text.h"
#include "policy/network.h"
#include "policy/syscalls.h"

#include <string.h>
#include <sys/socket.h>

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

/* As an option would say it: "api.example.com:443,8000-8100". */
static int add_network(const struct cb_net_rule *rule, void *list)
{
    cb_autotext struct cb_text text = {0};
    char prefix[CB_PREFIX_TEXT] = "";
    bool six = rule->kind == CB_NET_CIDR && rule->prefix.address.family == AF_INET6;
    if (rule->kind == CB_NET_CIDR)
        cb_prefix_print(&rule->prefix, prefix);
    int address = (int)strcspn(prefix, "/");
    cb_text_addf(&text, "%s", rule->protocol == CB_PROTOCOL_UDP ? "udp://" : "");
    if (rule->kind == CB_NET_CIDR)
        cb_text_addf(&text, "%s%.*s%s%s", six ? "[" : "", address, prefix, six ? "]" : "", prefix + address);
    else
        cb_text_addf(&text, "%s%s", rule->kind == CB_NET_HOST && rule->wildcard ? "*." : "",
                     rule->kind == CB_NET_HOST ? rule->host : "loopback");
    for (size_t i = 0; i < rule->port_count; i++) {
        const struct cb_ports *ports = &rule->ports[i];
        cb_text_addf(&text, "%c%u", i == 0 ? ':' : ',', ports->first);
        if (ports->last != ports->first)
            cb_text_addf(&text, "-%u", ports->last);
    }
    return text.failed || json_array_append_new(list, json_string(text.data)) < 0;
}

static int add_publish(const struct cb_publish_rule *rule, void *list)
{
    return json_array_append_new(list, json_sprintf("%u:%u", rule->port, rule->as)) < 0;
}

static int add_socket(const struct cb_socket_rule *rule, void *list)
{
    return json_array_append_new(list, json_string(rule->real)) < 0;
}

/* What the rules of the first layer grant; further layers may take away. */
static json_t *egress(const cellblock_policy *policy)
{
    json_t *network = json_array(), *publish = json_array(), *sockets = json_array();
    cb_policy_network_rules(policy, add_network, network);
    cb_policy_publish_rules(policy, add_publish, publish);
    cb_policy_socket_rules(policy, add_socket, sockets);
    return json_pack("{s:o, s:o, s:o}", "network", network, "publish", publish, "sockets", sockets);
}

static json_t *requested(const struct cb_plan *plan)
{
    const cellblock_policy *policy = plan->resolved->policy;
    json_t *object = json_pack("{s:s, s:s, s:s, s:s, s:o}", "isolation", cb_isolation_word(cb_decide_isolation(policy)),
                               "workspace", plan->resolved->workspace, "workspace_mode",
                               plan->resolved->scratch ? "scratch" : "direct", "syscalls", profile_word(plan), "limits",
                               limits(plan));
    json_t *rules = egress(policy);
    if (object && rules)
        json_object_update(object, rules);
    json_decref(rules);
    return object;
}

/* Who keeps which limit. */
static json_t *keepers(const struct cb_plan *plan)
{
    const char *cgroup = plan->cgroup & CB_CGROUP_V2 ? "cgroup v2" : "cgroup v1";
    const struct {
        enum cb_limit limit;
        const char *keeper;
    } rows[] = {
        {CB_LIMIT_MEMORY, plan->cgroup & CB_CGROUP_MEMORY ? cgroup : "watchdog"},
        {CB_LIMIT_PROCESSES, plan->cgroup & CB_CGROUP_PIDS      ? cgroup
                             : plan->tier == CB_TIER_NAMESPACES ? "rlimit"
                                                                : "watchdog"},
        {CB_LIMIT_CPU_TIME, plan->cgroup & CB_CGROUP_CPUACCT ? cgroup : "watchdog"},
        {CB_LIMIT_CPUS, plan->cgroup & CB_CGROUP_CPU ? cgroup : "watchdog"},
        {CB_LIMIT_DISK, "watchdog"},
        {CB_LIMIT_INODES, "watchdog"},
        {CB_LIMIT_WALL_TIME, "timer"},
        {CB_LIMIT_OUTPUT, "relay"},
        {CB_LIMIT_OPEN_FILES, "rlimit"},
        {CB_LIMIT_FILE_SIZE, "rlimit"},
        {CB_LIMIT_NETWORK_BYTES, "relay"},
        {CB_LIMIT_CONNECTIONS, "relay"},
        {CB_LIMIT_TMP, plan->tier == CB_TIER_NAMESPACES ? "tmpfs" : "watchdog"},
    };
    json_t *object = json_object();
    for (size_t i = 0; object && i < sizeof rows / sizeof *rows; i++)
        if (cb_decide_limit(plan->resolved->policy, rows[i].limit).value != CB_UNLIMITED)
            json_object_set_new(object, cb_limit_word(rows[i].limit), json_string(rows[i].keeper));
    return object;
}

/* What the kernel's Landlock does not have, of what a newer one has. */
static json_t *landlock(const struct cb_plan *plan)
{
    static const struct {
        int since;
        const char *word;
    } parts[] = {{2, "moving between directories"}, {3, "truncating"}, {4, "TCP"}, {5, "ioctl on devices"},
                 {6, "scopes for signals and abstract sockets"}};
    json_t *lacks = json_array();
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (plan->landlock_abi < parts[i].since)
            json_array_append_new(lacks, json_string(parts[i].word));
    return json_pack("{s:i, s:b, s:o}", "abi", plan->landlock_abi, "scopes", plan->landlock_scoped != 0, "lacks",
                     lacks);
}

/* What is different in the two tiers. */
static json_t *enforced_by_tier(const struct cb_plan *plan)
{
    return plan->tier == CB_TIER_NAMESPACES
               ? json_pack("{s:s, s:[s,s,s,s,s,s,s], s:s, s:s}", "files", "private root", "namespaces", "user", "mount",
                           "pid", "net", "ipc", "uts", "cgroup", "network",
                           plan->network.relayed ? "relay" : "loopback only", "processes", "pid namespace")
               : json_pack("{s:s, s:[], s:s, s:s, s:s}", "files", "Landlock rules on the host's tree", "namespaces",
                           "network", plan->network.brokered ? "sockets connected by the relay" : "no sockets", "processes", "tree kept by a reaper", "signals",
                           plan->signals_answered ? "sent by the supervisor" : "Landlock scope");
}

static json_t *enforced(const struct cb_plan *plan)
{
    json_t *object = enforced_by_tier(plan);
    json_t *common = json_pack(
        "{s:{s:i, s:i, s:b}, s:{s:s, s:i, s:b}, s:b, s:s, s:o, s:o, s:I}", "ids", "inside", (int)plan->inside_uid,
        "outside", (int)plan->outside_uid, "unprivileged", plan->outside_uid != 0, "seccomp", "profile",
        profile_word(plan), "instructions", (int)plan->filter.length, "custom",
        cb_policy_has_custom_syscalls(plan->resolved->policy), "no_new_privs", 1, "capabilities", "none", "limits",
        keepers(plan), "landlock", plan->landlock_handled ? landlock(plan) : json_null(), "guarded_paths",
        (json_int_t)plan->guard.absent_count);
    if (!object || json_object_update(object, common) < 0) {
        json_decref(object);
        object = NULL;
    }
    json_decref(common);
    return object;
}

json_t *cb_plan_report(const struct cb_plan *plan)
{
    const char *tier = plan->tier == CB_TIER_LANDLOCK ? "landlock" : "namespaces";
    return json_pack("{s:s, s:o, s:o, s:O}", "tier", tier, "requested", requested(plan), "enforced",
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
