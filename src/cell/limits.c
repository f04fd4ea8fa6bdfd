/* Per-process limits, soft and hard alike, set inside the user namespace: RLIMIT_NPROC then counts this cell's
 * processes only. A limit that is already lower stays. Without a user namespace of its own the kernel counts all that the
 * caller has, so these are added. */
#include "cell/cell.h"

#include <sched.h>
#include <sys/resource.h>

/* Before the filter that keeps the code from doing it again. */
int cb_cell_processors(struct cb_cell_state *state)
{
    const struct cb_plan *plan = state->plan;
    if (!plan->pinned || !cb_layer_on(plan, CB_OFF_LIMITS))
        return 0;
    return sched_setaffinity(0, sizeof plan->processors, &plan->processors) < 0
               ? cb_cell_fail(state, CB_STAGE_PROCESSORS, 0)
               : 0;
}

int cb_cell_limits(struct cb_cell_state *state)
{
    const struct cb_plan *plan = state->plan;
    for (size_t i = 0; i < plan->rlimit_count && cb_layer_on(plan, CB_OFF_LIMITS); i++) {
        struct rlimit limit;
        if (getrlimit((__rlimit_resource_t)plan->rlimits[i].resource, &limit) < 0)
            return cb_cell_fail(state, CB_STAGE_LIMITS, plan->rlimits[i].resource);
        bool cpu = plan->rlimits[i].resource == RLIMIT_CPU; /* SIGXCPU first, SIGKILL a second later */
        rlim_t soft = plan->rlimits[i].value, hard;
        if (plan->rlimits[i].resource == RLIMIT_NPROC)
            soft += state->entry->processes_outside;
        hard = soft + cpu;
        limit.rlim_max = limit.rlim_max < hard ? limit.rlim_max : hard;
        limit.rlim_cur = limit.rlim_cur < soft ? limit.rlim_cur : soft;
        limit.rlim_cur = limit.rlim_cur < limit.rlim_max ? limit.rlim_cur : limit.rlim_max;
        if (plan->rlimits[i].resource == RLIMIT_NOFILE && plan->open_files > 0 && plan->open_files < limit.rlim_cur)
            limit.rlim_cur = plan->open_files;
        if (setrlimit((__rlimit_resource_t)plan->rlimits[i].resource, &limit) < 0)
            return cb_cell_fail(state, CB_STAGE_LIMITS, plan->rlimits[i].resource);
    }
    return 0;
}
