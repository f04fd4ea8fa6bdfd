/* Which names must the code not be able to make? See supervisor/guard.c for how that is enforced.
 *
 * A protected path that exists is mounted read-only, and the directories above it are pinned. One that does not exist
 * can't be mounted over without leaving a stub on the host. So the kernel (Landlock) forbids making directories and
 * symbolic links in that writable area at all, and the supervisor makes the harmless ones on the code's behalf. A rule
 * with a trailing slash is about a directory and costs nothing for files; without, file creation is watched too. */
#include "plan/plan.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/text.h"

#include <string.h>

static int add_path(char ***list, size_t *count, const char *path, cellblock_error **error)
{
    for (size_t i = 0; i < *count; i++)
        if (strcmp((*list)[i], path) == 0)
            return 0;
    char **slot = cb_array_push(list, count);
    if (!slot || !(*slot = strdup(path)))
        return cb_fail_memory(error);
    return 0;
}

/* The writable bind that holds a path. */
static const struct cb_step *area_of(const struct cb_plan *plan, const char *path)
{
    const struct cb_step *best = NULL;
    for (size_t i = 0; i < plan->step_count; i++) {
        const struct cb_step *step = &plan->steps[i];
        cb_autofree char *at = step->kind == CB_STEP_BIND && step->directory ? cb_format("/%s", step->at) : NULL;
        if (at && cb_path_within(path, at) && (!best || strlen(step->at) > strlen(best->at)))
            best = step;
    }
    return best && best->access == CB_ACCESS_WRITE ? best : NULL;
}

static int guard_absents(struct cb_plan *plan, cellblock_error **error)
{
    struct cb_guard *guard = &plan->guard;
    for (size_t i = 0; i < plan->resolved->absent_count; i++) {
        const struct cb_absent *absent = &plan->resolved->absents[i];
        const struct cb_step *area = area_of(plan, absent->path);
        if (!area)
            continue; /* in a scratch directory: thrown away anyway */
        cb_autofree char *at = cb_format("/%s", area->at);
        if (!at)
            return cb_fail_memory(error);
        if (add_path(&guard->areas, &guard->area_count, at, error) < 0 ||
            add_path(&guard->absents, &guard->absent_count, absent->path, error) < 0)
            return -1;
        guard->files = guard->files || !absent->directory_only;
    }
    return 0;
}

/* Rights add up along a path: whatever is writable above a guarded area (a workspace below /tmp, say) has to be guarded
 * with it, or it would give the right back. */
static int guard_above(struct cb_plan *plan, cellblock_error **error)
{
    struct cb_guard *guard = &plan->guard;
    for (size_t i = 0; i < plan->step_count; i++) {
        const struct cb_step *step = &plan->steps[i];
        bool writable =
            step->kind == CB_STEP_SCRATCH || (step->kind == CB_STEP_BIND && step->access == CB_ACCESS_WRITE);
        cb_autofree char *at = writable && step->directory ? cb_format("/%s", step->at) : NULL;
        for (size_t j = 0, count = guard->area_count; at && j < count; j++)
            if (cb_path_within(guard->areas[j], at) && add_path(&guard->areas, &guard->area_count, at, error) < 0)
                return -1;
    }
    return 0;
}

static bool is_watched(const struct cb_plan *plan, const char *path)
{
    for (size_t i = 0; i < plan->guard.area_count; i++)
        if (cb_path_within(path, plan->guard.areas[i]))
            return true;
    return false;
}

/* The supervisor stands outside the cell's mount namespace, where the kernel does not see its mounts as reasons to
 * refuse a rename: it needs the list. */
static int list_fixed(struct cb_plan *plan, cellblock_error **error)
{
    for (size_t i = 0; i < plan->step_count; i++) {
        const struct cb_step *step = &plan->steps[i];
        if (step->kind == CB_STEP_DIRECTORY || step->kind == CB_STEP_FILE || step->kind == CB_STEP_SYMLINK)
            continue;
        cb_autofree char *at = cb_format("/%s", step->at);
        if (!at)
            return cb_fail_memory(error);
        if (is_watched(plan, at) && add_path(&plan->guard.fixed, &plan->guard.fixed_count, at, error) < 0)
            return -1;
    }
    /* The areas themselves: moved away with a directory above them, no path on any list would name them. */
    for (size_t i = 0; i < plan->guard.area_count; i++)
        if (add_path(&plan->guard.fixed, &plan->guard.fixed_count, plan->guard.areas[i], error) < 0)
            return -1;
    return add_path(&plan->guard.fixed, &plan->guard.fixed_count, plan->resolved->workspace, error);
}

/* Rights are held by the directory, not by its path: the same one under a second name would not be guarded there. */
static int refuse_twins(const struct cb_plan *plan, cellblock_error **error)
{
    for (size_t i = 0; i < plan->step_count; i++)
        for (size_t j = i + 1; j < plan->step_count; j++) {
            const struct cb_step *a = &plan->steps[i], *b = &plan->steps[j];
            if (a->kind == CB_STEP_BIND && b->kind == CB_STEP_BIND && a->directory && b->directory &&
                a->access == CB_ACCESS_WRITE && b->access == CB_ACCESS_WRITE && a->device_number == b->device_number &&
                a->inode == b->inode)
                return cb_fail(error, CELLBLOCK_ERROR_POLICY, 0, "/%s and /%s are the same directory: grant it once",
                               a->at, b->at);
        }
    return 0;
}

int cb_plan_guard(struct cb_plan *plan, cellblock_error **error)
{
    if (guard_absents(plan, error) < 0)
        return -1;
    if (plan->guard.area_count == 0)
        return 0;
    return refuse_twins(plan, error) < 0 || guard_above(plan, error) < 0 || list_fixed(plan, error) < 0 ? -1 : 0;
}
