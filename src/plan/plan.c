/* See plan.h. Everything that can be known before a process exists is decided here, in this order: ids, places, mounts,
 * guard, Landlock, filter, limits, environment. */
#include "plan/plan.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/text.h"
#include "host/ids.h"
#include "policy/walk.h"

#include <errno.h>
#include <string.h>
#include <sys/capability.h>
#include <sys/random.h>

/* 65,536 ids from here on, which no distribution, container manager or directory service hands out. Each cell takes one
 * at random, so that two cells seldom share one (and share nothing else if they do). */
enum { FIRST_CELL_ID = 1879048192 };

/* A place of its own, and not the caller's path: what is granted below the caller's home directory must not lie inside
 * something writable, where Landlock's rights would add up. */
static const char home_of_cell[] = "/run/home";

static void free_list(char **list)
{
    for (size_t i = 0; list && list[i]; i++)
        free(list[i]);
    free(list);
}

static void free_counted(char **list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free(list[i]);
    free(list);
}

void cb_plan_free(struct cb_plan *plan)
{
    if (!plan)
        return;
    for (size_t i = 0; i < plan->step_count; i++) {
        free(plan->steps[i].at);
        free(plan->steps[i].source);
        cb_close_cleanup(&plan->steps[i].tree);
    }
    free(plan->steps);
    free(plan->private_directory);
    free(plan->network.resolver);
    free(plan->network.hosts);
    free(plan->home);
    free(plan->directory);
    free_counted(plan->guard.areas, plan->guard.area_count);
    free_counted(plan->guard.absents, plan->guard.absent_count);
    free_counted(plan->guard.fixed, plan->guard.fixed_count);
    cb_filter_free(&plan->filter);
    cb_filter_free(&plan->call_filter);
    free(plan->rlimits);
    free_list(plan->argv);
    free_list(plan->envp);
    free_list(plan->candidates);
    json_decref(plan->weaker);
    cb_resolved_free(plan->resolved);
    free(plan);
}

static void plan_cleanup(struct cb_plan **plan)
{
    cb_plan_free(*plan);
}

#ifdef CELLBLOCK_TEST_HOOKS
unsigned cb_layers_turned_off(void)
{
    static const struct {
        const char *word;
        unsigned layer;
    } words[] = {
        {"mounts", CB_OFF_MOUNTS},           {"landlock", CB_OFF_LANDLOCK},     {"seccomp", CB_OFF_SECCOMP},
        {"capabilities", CB_OFF_CAPABILITIES}, {"privileges", CB_OFF_PRIVILEGES}, {"guard", CB_OFF_GUARD},
        {"session", CB_OFF_SESSION},         {"descriptors", CB_OFF_DESCRIPTORS}, {"limits", CB_OFF_LIMITS},
        {"environment", CB_OFF_ENVIRONMENT}, {"proc", CB_OFF_PROC},             {"ids", CB_OFF_IDS},
        {"cgroup", CB_OFF_CGROUP},           {"relay", CB_OFF_RELAY},           {"broker", CB_OFF_BROKER},         {"linger", CB_OFF_LINGER},
    };
    const char *off = getenv("CELLBLOCK_TEST_OFF");
    unsigned layers = 0;
    for (size_t i = 0; off && i < sizeof words / sizeof *words; i++) {
        size_t length = strlen(words[i].word);
        for (const char *at = strstr(off, words[i].word); at; at = strstr(at + 1, words[i].word))
            if ((at == off || at[-1] == ',') && (at[length] == '\0' || at[length] == ','))
                layers |= words[i].layer;
    }
    return layers;
}
#endif

static bool can_administrate(void)
{
    cap_t caps = cap_get_proc();
    cap_flag_value_t admin = CAP_CLEAR, setuid = CAP_CLEAR;
    if (caps) {
        cap_get_flag(caps, CAP_SYS_ADMIN, CAP_EFFECTIVE, &admin);
        cap_get_flag(caps, CAP_SETUID, CAP_EFFECTIVE, &setuid);
        cap_free(caps);
    }
    return admin == CAP_SET && setuid == CAP_SET;
}

/* Without a user namespace the cell is the caller. Root then stays root, without capabilities: owner of root's files
 * still, as far as Landlock lets it. */
static int keep_ids(struct cb_plan *plan, const cellblock_policy *policy, cellblock_error **error)
{
    if (plan->outside_uid != 0)
        return 0;
    if (cb_decide_accept_weaker(policy, "ids"))
        return json_array_append_new(plan->weaker, json_string("ids: the code runs as root, without capabilities")) < 0
                   ? cb_fail_memory(error)
                   : 0;
    cb_fail(error, CELLBLOCK_ERROR_REFUSED, 0,
            "the caller is root, and without a user namespace the code can't be given an unprivileged id");
    cb_error_layer(error, "ids");
    return cb_error_hint(error, "run cellblock as an ordinary user, or accept that the code runs as root without "
                                "capabilities: --accept-weaker ids");
}

static int choose_ids(struct cb_plan *plan, const cellblock_policy *policy, cellblock_error **error)
{
    plan->inside_uid = plan->outside_uid = geteuid();
    plan->inside_gid = plan->outside_gid = getegid();
    if (plan->tier == CB_TIER_LANDLOCK)
        return keep_ids(plan, policy, error);
    enum cb_mapping mapping = cb_mapping_of_caller();
    if (mapping == CB_MAPPING_SELF)
        return 0;
    if (mapping == CB_MAPPING_NONE || !can_administrate()) {
        cb_fail(error, CELLBLOCK_ERROR_REFUSED, 0, mapping == CB_MAPPING_NONE
                ? "the caller is root, and there is no unprivileged id that the cell could be given"
                : "the caller is root without the capabilities to give the cell an unprivileged id (CAP_SYS_ADMIN and "
                  "CAP_SETUID)");
        cb_error_layer(error, "ids");
        return cb_error_hint(error, "run cellblock as an ordinary user");
    }
    plan->privileged = true;
    plan->accept_no_idmap = cb_decide_accept_weaker(policy, "idmap");
    if (!cb_layer_on(plan, CB_OFF_IDS))
        return 0;
    uint16_t chosen;
    if (getrandom(&chosen, sizeof chosen, 0) != sizeof chosen)
        return cb_fail_errno(error, "choosing an id for the cell");
    unsigned id = FIRST_CELL_ID + chosen;
    plan->outside_uid = plan->outside_gid = cb_id_mapped(id) ? id : CB_NOBODY;
    return 0;
}

static int copy_argv(struct cb_plan *plan, const char *const *argv, cellblock_error **error)
{
    size_t count = 0;
    for (size_t i = 0; argv[i]; i++) {
        char **slot = cb_array_push(&plan->argv, &count);
        if (!slot || !(*slot = strdup(argv[i])))
            return cb_fail_memory(error);
    }
    return cb_array_push(&plan->argv, &count) ? 0 : cb_fail_memory(error);
}

static const char *variable(const char *const *envp, const char *name)
{
    size_t length = strlen(name);
    for (size_t i = 0; envp && envp[i]; i++)
        if (strncmp(envp[i], name, length) == 0 && envp[i][length] == '=')
            return envp[i] + length + 1;
    return NULL;
}

/* For a caller whose directory was deleted: the workspace, if that is given by an absolute path; for one in memory any
 * place will do that the cell does not need otherwise. NULL: there is none. */
static const char *other_directory(const cellblock_policy *policy)
{
    static const char *const spare[] = {"/mnt", "/srv", "/media"};
    const char *workspace = cb_decide_workspace_path(policy);
    if (workspace[0] == '/')
        return workspace;
    for (size_t i = 0; i < sizeof spare / sizeof *spare; i++)
        if (cb_decide_workspace_mode(policy) == CB_WORKSPACE_SCRATCH && access(spare[i], F_OK) == 0)
            return spare[i];
    return NULL;
}

/* Where the caller stands, with no symbolic link in it. */
static int find_directory(const char *given, const cellblock_policy *policy, char **directory, cellblock_error **error)
{
    const char *other = given ? NULL : other_directory(policy);
    cb_autofree char *current = given && given[0] == '/' ? strdup(given) : getcwd(NULL, 0);
    if ((!current || current[0] != '/') && other) {
        free(current);
        current = strdup(other);
    }
    if (!current || current[0] != '/') {
        cb_fail(error, CELLBLOCK_ERROR_USAGE, current ? ENOENT : errno, "the current directory");
        return cb_error_hint(error, "change to a directory that exists, or name one with --workspace");
    }
    cb_autofree char *wanted = given && given[0] != '/' ? cb_format("%s/%s", current, given) : strdup(current);
    if (!wanted)
        return cb_fail_memory(error);
    cb_autowalk struct cb_walk walk = CB_WALK_INIT;
    int missing;
    if (cb_walk_path(wanted, &walk, &missing, error) < 0)
        return -1;
    if (walk.fd < 0)
        return cb_fail(error, CELLBLOCK_ERROR_USAGE, missing, "directory %s", wanted);
    *directory = cb_steal(walk.path);
    return 0;
}

/* Ids are mapped, descriptors named and processes counted through it. */
static int check_proc(cellblock_error **error)
{
    if (access("/proc/self/uid_map", F_OK) == 0)
        return 0;
    cb_fail(error, CELLBLOCK_ERROR_REFUSED, errno, "looking for our own process in /proc");
    cb_error_layer(error, "proc of the host");
    return cb_error_hint(error, "mount it: mount -t proc proc /proc");
}

/* What no policy can have in this tier. */
static int list_losses(const struct cb_plan *plan, const char *without, cellblock_error **error)
{
    static const char *const losses[] = {
        "files: names and attributes of what is not granted can be seen; contents can't",
        "processes: other processes, their command lines, and the host's connections can be seen",
        "tmp: the private directory is on disk; what passes the limit ends the cell",
    };
    int failed = json_array_append_new(plan->weaker,
                                       json_sprintf("namespaces: %s", without ? without : "not asked for"));
    for (size_t i = 0; i < sizeof losses / sizeof *losses; i++)
        failed |= json_array_append_new(plan->weaker, json_string(losses[i]));
    return failed ? cb_fail_memory(error) : 0;
}

int cb_plan_make(const cellblock_policy *policy, const struct cellblock_options *options,
                 const struct cb_ground *ground, struct cb_plan **plan, cellblock_error **error)
{
    if (!options->argv || !options->argv[0] || !options->argv[0][0])
        return cb_fail(error, CELLBLOCK_ERROR_USAGE, 0, "no program to run");
    struct cb_plan *made __attribute__((cleanup(plan_cleanup))) = calloc(1, sizeof *made);
    if (!made || !(made->weaker = json_array()))
        return cb_fail_memory(error);
    made->tier = ground->tier;
    if (made->tier == CB_TIER_LANDLOCK && list_losses(made, ground->without, error) < 0)
        return -1;
    made->cgroup = ground->cgroup;
    made->open_files = options->open_files;
#ifdef CELLBLOCK_TEST_HOOKS
    made->off = cb_layers_turned_off();
#endif
    cb_autofree char *directory = NULL;
    if (check_proc(error) < 0 || find_directory(options->directory, policy, &directory, error) < 0)
        return -1;
    const char *home = variable(options->envp, "HOME");
    struct cb_context context = {
        .directory = directory,
        .home = home && home[0] == '/' ? home : NULL,
        .search_path = variable(options->envp, "PATH"),
        .argv = options->argv,
    };
    made->home = strdup(home_of_cell);
    if (!made->home)
        return cb_fail_memory(error);
    bool mounts = made->tier == CB_TIER_NAMESPACES;
    if (choose_ids(made, policy, error) < 0 || copy_argv(made, options->argv, error) < 0 ||
        cb_resolve(policy, &context, &made->resolved, error) < 0 || cb_plan_network(made, options->network, error) < 0 ||
        (mounts ? cb_plan_mounts(made, error) : cb_plan_places(made, variable(options->envp, "TMPDIR"), error)) < 0 ||
        cb_plan_guard(made, error) < 0 || cb_plan_landlock(made, error) < 0 ||
        cb_filter_for_policy(made->resolved->policy, &made->filter, error) < 0 || cb_plan_limits(made, error) < 0 ||
        cb_plan_calls(made, error) < 0 || cb_plan_environment(made, options, &context, error) < 0)
        return -1;
    *plan = cb_steal(made);
    return 0;
}
