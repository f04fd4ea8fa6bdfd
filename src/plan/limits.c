/* Limits that the kernel enforces on each process of the cell by itself, set inside the cell (where processes are
 * counted per user namespace). Time and output are the supervisor's. */
#include "plan/plan.h"

#include "base/array.h"
#include "base/error.h"

#include <string.h>

static int add(struct cb_plan *plan, int resource, uint64_t value, cellblock_error **error)
{
    struct cb_rlimit *limit = cb_array_push(&plan->rlimits, &plan->rlimit_count);
    if (!limit)
        return cb_fail_memory(error);
    limit->resource = resource;
    limit->value = value;
    return 0;
}

int cb_plan_limits(struct cb_plan *plan, cellblock_error **error)
{
    static const struct {
        enum cb_limit limit;
        int resource;
        uint64_t divide;
    } table[] = {
        /* Not RLIMIT_AS: node and Go reserve address space that they never use. */
        {CB_LIMIT_MEMORY, RLIMIT_DATA, 1},
        {CB_LIMIT_PROCESSES, RLIMIT_NPROC, 1},
        {CB_LIMIT_OPEN_FILES, RLIMIT_NOFILE, 1},
        {CB_LIMIT_FILE_SIZE, RLIMIT_FSIZE, 1},
        {CB_LIMIT_CPU_TIME, RLIMIT_CPU, 1000},
    };
    const cellblock_policy *policy = plan->resolved->policy;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        uint64_t value = cb_decide_limit(policy, table[i].limit).value;
        if (value == CB_UNLIMITED)
            continue;
        uint64_t units = value / table[i].divide + (value % table[i].divide != 0);
        /* The cell's own init counts as a process of it. */
        if (add(plan, table[i].resource, units + (table[i].resource == RLIMIT_NPROC), error) < 0)
            return -1;
    }
    /* A core dump is a file that nobody asked for, written by the kernel; a caller's right to real-time scheduling
     * would let the code starve the host. */
    if (add(plan, RLIMIT_CORE, 0, error) < 0 || add(plan, RLIMIT_RTPRIO, 0, error) < 0)
        return -1;
    plan->wall_time_ms = cb_decide_limit(policy, CB_LIMIT_WALL_TIME).value;
    struct cb_limit_decision output = cb_decide_limit(policy, CB_LIMIT_OUTPUT);
    plan->output = output.value;
    plan->output_given = output.origin && strncmp(output.origin->document, "profile base", 12) != 0;
    uint64_t tmp = cb_decide_limit(policy, CB_LIMIT_TMP).value;
    plan->scratch_size = tmp == CB_UNLIMITED ? 0 : tmp;
    return 0;
}
