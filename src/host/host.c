/* The examination: one attempt per feature, each put into words, and the conclusion from all of them. See host.h. */
#include "host/host.h"

#include "base/cleanup.h"
#include "base/error.h"
#include "base/missing.h"
#include "host/attempt.h"
#include "host/landlock.h"
#include "host/surroundings.h"

#include <string.h>

static const struct {
    const char *word;
    const char *purpose;
    bool extra;  /* the default policy does without */
    cb_attempt_function attempt;
    uint64_t namespaces;
} features[CB_FEATURE_COUNT] = {
    [CB_FEATURE_USER_NAMESPACE] = {"user-namespace", "a cell without root rights", false, cb_try_capability,
                                   CLONE_NEWUSER},
    [CB_FEATURE_NAMESPACES] = {"namespaces", "own files, processes, network, names", false, cb_try_nothing,
                               CLONE_NEWUSER},
    [CB_FEATURE_MOUNT_API] = {"mount-api", "a root where only granted paths exist", false, cb_try_mount_api,
                              CLONE_NEWUSER | CLONE_NEWNS},
    [CB_FEATURE_PROC] = {"proc", "/proc that shows only the cell", false, cb_try_proc,
                         CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID},
    [CB_FEATURE_IDMAP] = {"idmap", "root's files for a cell that is not root", false, cb_try_idmap, 0},
    [CB_FEATURE_LANDLOCK] = {"landlock", "a second wall around files", false, cb_try_landlock, 0},
    [CB_FEATURE_SECCOMP] = {"seccomp", "only harmless system calls", false, cb_try_seccomp, 0},
    [CB_FEATURE_SECCOMP_NOTIFY] = {"seccomp-notify", "calls that the supervisor answers", false,
                                   cb_try_seccomp_notify, 0},
    [CB_FEATURE_PIDFD] = {"pidfd", "ending exactly the right process", false, cb_try_pidfd, 0},
    [CB_FEATURE_CLOSE_RANGE] = {"close_range", "no open file leaks into a cell", false, cb_try_close_range, 0},
    [CB_FEATURE_OPENAT2] = {"openat2", "paths that can't be redirected", false, cb_try_openat2, 0},
    [CB_FEATURE_OVERLAY] = {"overlay", "changes reviewed before they are kept", true, cb_try_overlay,
                            CLONE_NEWUSER | CLONE_NEWNS},
    [CB_FEATURE_CGROUP] = {"cgroup", "exact limits on a whole cell", true, NULL, 0},
    [CB_FEATURE_DIVERT] = {"egress", "rules for the network", true, cb_try_divert,
                                 CLONE_NEWUSER | CLONE_NEWNET},
};

const char *cb_feature_word(enum cb_feature feature)
{
    return features[feature].word;
}

const char *cb_feature_purpose(enum cb_feature feature)
{
    return features[feature].purpose;
}

bool cb_feature_in_user_namespace(enum cb_feature feature)
{
    return feature != CB_FEATURE_USER_NAMESPACE && features[feature].namespaces & CLONE_NEWUSER;
}

bool cb_feature_needed(enum cb_feature feature, bool root)
{
    return !features[feature].extra && (feature != CB_FEATURE_IDMAP || root);
}

/* All at once, as a cell is made; when that fails each alone, to name the one that is missing. */
static int attempt_namespaces(struct cb_attempt *attempt, cellblock_error **error)
{
    static const struct {
        uint64_t flag;
        const char *step;
    } kinds[] = {
        {CLONE_NEWNS, "a new mount namespace"}, {CLONE_NEWPID, "a new pid namespace"},
        {CLONE_NEWNET, "a new network namespace"}, {CLONE_NEWIPC, "a new ipc namespace"},
        {CLONE_NEWUTS, "a new uts namespace"}, {CLONE_NEWCGROUP, "a new cgroup namespace"},
    };
    uint64_t all = CLONE_NEWUSER;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        all |= kinds[i].flag;
    if (cb_attempt_run(all, cb_try_nothing, 0, attempt, error) < 0)
        return -1;
    for (size_t i = 0; attempt->step && i < sizeof kinds / sizeof *kinds; i++) {
        struct cb_attempt alone;
        if (cb_attempt_run(CLONE_NEWUSER | kinds[i].flag, cb_try_nothing, 0, &alone, error) < 0)
            return -1;
        if (alone.step) {
            *attempt = alone;
            attempt->step = kinds[i].step;
            return 0;
        }
    }
    return 0;
}

/* Enforces a ruleset; where a kind of right is not really refused, goes on with the ABI below it. The value is the
 * highest that held. */
static int attempt_landlock(struct cb_attempt *attempt, cellblock_error **error)
{
    int errnum;
    int abi = cb_landlock_find_here(&errnum);
    *attempt = (struct cb_attempt){.step = "landlock_create_ruleset", .errnum = errnum};
    struct cb_attempt first = {0};
    while (abi > 0) {
        if (cb_attempt_run(0, cb_try_landlock, abi, attempt, error) < 0)
            return -1;
        if (!attempt->step) {
            attempt->step = first.step;
            attempt->errnum = first.errnum;
            return 0;
        }
        if (!first.step)
            first = *attempt;
        abi = attempt->value < abi ? attempt->value : 0;
        attempt->value = 0;
    }
    return 0;
}

static int attempt_here(enum cb_feature feature, struct cb_attempt *attempt, cellblock_error **error)
{
    *attempt = (struct cb_attempt){0};
    switch (feature) {
    case CB_FEATURE_NAMESPACES:
        return attempt_namespaces(attempt, error);
    case CB_FEATURE_LANDLOCK:
        return attempt_landlock(attempt, error);
    case CB_FEATURE_CGROUP:
        *attempt = cb_try_cgroup();
        return 0;
    default:
        return cb_attempt_run(features[feature].namespaces, features[feature].attempt, 0, attempt, error);
    }
}

const struct cb_host_calls cb_host_calls_here = {cb_surroundings_look, attempt_here};

static bool worth_trying(enum cb_feature feature, const struct cb_host *host, const struct cb_surroundings *around)
{
    bool user = host->probes[CB_FEATURE_USER_NAMESPACE].state != CB_PROBE_NO;
    if (feature == CB_FEATURE_IDMAP)
        return user && around->mapping == CB_MAPPING_NOBODY;
    return user || !cb_feature_in_user_namespace(feature);
}

static void conclude(struct cb_host *host, bool root)
{
    host->can_enforce_default = true;
    for (enum cb_feature feature = 0; feature < CB_FEATURE_COUNT; feature++)
        if (cb_feature_needed(feature, root) && host->probes[feature].state == CB_PROBE_NO)
            host->can_enforce_default = false;
    bool second_wall = host->probes[CB_FEATURE_LANDLOCK].state != CB_PROBE_NO &&
                       host->probes[CB_FEATURE_SECCOMP].state != CB_PROBE_NO;
    host->tier = host->can_enforce_default ? "namespaces" : second_wall ? "landlock" : "none";
}

static void host_cleanup(struct cb_host **host)
{
    cb_host_free(*host);
}

int cb_host_examine_with(const struct cb_host_calls *calls, unsigned wanted, struct cb_host **host,
                         cellblock_error **error)
{
    __attribute__((cleanup(host_cleanup))) struct cb_host *made = calloc(1, sizeof *made);
    if (!made)
        return cb_fail_memory(error);
    struct cb_surroundings around;
    calls->look(&around);

    wanted |= 1U << CB_FEATURE_USER_NAMESPACE; /* the verdicts on most others need it; it comes first */
    for (enum cb_feature feature = 0; feature < CB_FEATURE_COUNT; feature++) {
        if (!(wanted & 1U << feature))
            continue;
        struct cb_attempt attempt = {0};
        if (worth_trying(feature, made, &around) && calls->attempt(feature, &attempt, error) < 0)
            return -1;
        if (feature == CB_FEATURE_LANDLOCK)
            made->landlock_abi = attempt.value;
        const struct cb_probe *user =
            feature == CB_FEATURE_USER_NAMESPACE ? NULL : &made->probes[CB_FEATURE_USER_NAMESPACE];
        if (cb_verdict(feature, &attempt, &around, user, &made->probes[feature]) < 0)
            return cb_fail_memory(error);
    }
    conclude(made, around.mapping == CB_MAPPING_NOBODY);
    *host = cb_steal(made);
    return 0;
}

int cb_host_examine(struct cb_host **host, cellblock_error **error)
{
    return cb_host_examine_with(&cb_host_calls_here, CB_FEATURES_ALL, host, error);
}

void cb_host_free(struct cb_host *host)
{
    if (!host)
        return;
    for (enum cb_feature feature = 0; feature < CB_FEATURE_COUNT; feature++) {
        free(host->probes[feature].detail);
        free(host->probes[feature].fix);
    }
    free(host);
}

void cb_host_explain(enum cb_feature feature, int errnum, cellblock_error **error)
{
    if (!error || !*error)
        return;
    __attribute__((cleanup(host_cleanup))) struct cb_host *host = NULL;
    if (cb_host_examine_with(&cb_host_calls_here, 1U << feature, &host, NULL) < 0)
        return;
    /* The root of the trouble is what helps: without a user namespace most others can't be had. */
    const struct cb_probe *probe = &host->probes[feature];
    if (probe->state == CB_PROBE_NO && !probe->fix)
        probe = &host->probes[CB_FEATURE_USER_NAMESPACE];
    if (probe->state == CB_PROBE_NO && probe->fix) {
        cb_error_hint(error, "%s\n%s", probe->detail, probe->fix);
        return;
    }
    if (errnum == ENOSPC || errnum == EUSERS || errnum == EAGAIN)
        cb_error_hint(error, "%s works on this machine, so a limit on processes or namespaces is reached: end some "
                             "cells, or raise it (sysctl -a | grep user.max, ulimit -u)", cb_feature_word(feature));
    else
        cb_error_hint(error, "%s works on this machine (cellblock doctor), so the cause lies in what this run asks for",
                      cb_feature_word(feature));
}
