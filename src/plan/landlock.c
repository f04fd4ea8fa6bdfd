/* Landlock rights for what the cell gets to see: the same decisions as the mounts, enforced by another part of the
 * kernel. It holds if a mount is wrong.
 *
 * Rights add up along a path and can't be taken away below a directory, so a protected path inside the workspace is the
 * mounts' business (and the guard's, while it does not exist). */
#include "plan/plan.h"

#include "base/error.h"
#include "base/missing.h"
#include "host/host.h"
#include "host/landlock.h"

#include <string.h>

static const uint64_t read_rights =
    LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR;

/* What a rule for something that is not a directory may hold. */
static const uint64_t file_rights = LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE |
                                    LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_TRUNCATE |
                                    LANDLOCK_ACCESS_FS_IOCTL_DEV;

/* Under a guard the kernel refuses to make what could become a protected path, and the supervisor makes the rest. */
static uint64_t guarded_rights(const struct cb_plan *plan, const struct cb_step *step)
{
    for (size_t i = 0; i < plan->guard.area_count; i++)
        if (strcmp(plan->guard.areas[i] + 1, step->at) == 0)
            return LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_MAKE_SYM |
                   (plan->guard.files ? LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_MAKE_FIFO |
                                            LANDLOCK_ACCESS_FS_MAKE_SOCK
                                      : 0);
    return 0;
}

static uint64_t rights_for(const struct cb_plan *plan, const struct cb_step *step, uint64_t all)
{
    uint64_t rights = 0;
    switch (step->kind) {
    case CB_STEP_BIND:
        rights = step->access == CB_ACCESS_WRITE ? all & ~guarded_rights(plan, step) : read_rights;
        if (step->socket)
            return LANDLOCK_ACCESS_FS_RESOLVE_UNIX;
        if (step->device)
            rights &= ~LANDLOCK_ACCESS_FS_EXECUTE;
        if (plan->tier == CB_TIER_LANDLOCK && strcmp(step->at, "proc") == 0)
            rights &= ~LANDLOCK_ACCESS_FS_EXECUTE;
        break;
    case CB_STEP_SCRATCH:
        rights = all & ~guarded_rights(plan, step);
        break;
    case CB_STEP_DEVPTS:
        rights = all;
        break;
    case CB_STEP_PROC:
        rights = read_rights | LANDLOCK_ACCESS_FS_WRITE_FILE; /* read-only as a mount; /proc/self/fd needs the right */
        break;
    case CB_STEP_FILE:
        rights = step->source ? LANDLOCK_ACCESS_FS_READ_FILE : 0;
        break;
    case CB_STEP_DIRECTORY:
    case CB_STEP_SYMLINK:
    case CB_STEP_REBIND:
    case CB_STEP_VEIL:
    case CB_STEP_MASK:
        break;
    }
    return step->directory || step->kind == CB_STEP_PROC || step->kind == CB_STEP_DEVPTS ? rights
                                                                                         : rights & file_rights;
}

int cb_plan_landlock(struct cb_plan *plan, cellblock_error **error)
{
    plan->landlock_abi = cb_host_landlock_abi();
    if (plan->landlock_abi == 0) {
        if (cb_decide_accept_weaker(plan->resolved->policy, "landlock") && plan->guard.absent_count == 0 &&
            plan->tier == CB_TIER_NAMESPACES)
            return json_array_append_new(plan->weaker, json_string("landlock")) < 0 ? cb_fail_memory(error) : 0;
        cb_fail(error, CELLBLOCK_ERROR_REFUSED, 0,
                "Landlock is not available on this kernel, and the policy asks for it");
        cb_error_layer(error, "landlock");
        cb_host_explain(CB_FEATURE_LANDLOCK, 0, error);
        return -1;
    }
    size_t size;
    struct cb_landlock_ruleset_attr all = cb_landlock_handled(plan->landlock_abi, &size);
    plan->landlock_handled = all.handled_access_fs;
    plan->landlock_scoped = all.scoped;
    if (plan->tier == CB_TIER_LANDLOCK) {
        plan->landlock_network = all.handled_access_net; /* in the other tier the cell's own loopback is free */
        plan->signals_answered = !(all.scoped & LANDLOCK_SCOPE_SIGNAL);
    }
    for (size_t i = 0; i < plan->step_count; i++)
        plan->steps[i].landlock = rights_for(plan, &plan->steps[i], plan->landlock_handled) & plan->landlock_handled;
    return 0;
}
