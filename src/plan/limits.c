/* Limits. Those over the whole cell are kept by its cgroup or by the watchdog; here they become numbers. Those that the
 * kernel keeps for each process by itself are set inside the cell (where processes are counted per user namespace): a
 * single process is refused memory before the whole cell has to be ended, which it can cope with. */
#include "plan/plan.h"

#include "base/array.h"
#include "base/error.h"
#include "plan/share.h"

#include <errno.h>
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

struct cb_tree_limits cb_plan_tree_limits(const cellblock_policy *policy)
{
    if (cb_layers_turned_off() & CB_OFF_LIMITS)
        return (struct cb_tree_limits){CB_UNLIMITED, CB_UNLIMITED, CB_UNLIMITED, CB_UNLIMITED, CB_UNLIMITED,
                                       CB_UNLIMITED};
    return (struct cb_tree_limits){
        .memory = cb_decide_limit(policy, CB_LIMIT_MEMORY).value,
        .processes = cb_decide_limit(policy, CB_LIMIT_PROCESSES).value,
        .cpu_time_ms = cb_decide_limit(policy, CB_LIMIT_CPU_TIME).value,
        .cpus = cb_decide_limit(policy, CB_LIMIT_CPUS).value,
        .disk = cb_decide_limit(policy, CB_LIMIT_DISK).value,
        .inodes = cb_decide_limit(policy, CB_LIMIT_INODES).value,
    };
}

/* The kernel counts whole seconds, and for one process; the watchdog is exact and for all. This is for the case that the
 * watchdog does not get to run: two seconds later. */
static uint64_t cpu_seconds(uint64_t milliseconds)
{
    return milliseconds == CB_UNLIMITED ? CB_UNLIMITED : milliseconds / 1000 + 3;
}

/* A file in a memory file system takes about a kibibyte of the kernel's memory, however small it is. */
static uint64_t scratch_inodes(uint64_t size)
{
    const uint64_t least = 4096, most = 1000000;
    uint64_t inodes = size == 0 ? most : size / 4096;
    return inodes < least ? least : inodes > most ? most : inodes;
}

int cb_plan_limits(struct cb_plan *plan, cellblock_error **error)
{
    const cellblock_policy *policy = plan->resolved->policy;
    plan->tree = cb_plan_tree_limits(policy);
    const struct {
        int resource;
        uint64_t value;
    } limits[] = {
        /* Not RLIMIT_AS: node and Go reserve address space that they never use. */
        {RLIMIT_DATA, plan->tree.memory},
        /* The cell's own init counts as a process of it. */
        {RLIMIT_NPROC, plan->tree.processes == CB_UNLIMITED ? CB_UNLIMITED : plan->tree.processes + 1},
        {RLIMIT_NOFILE, cb_decide_limit(policy, CB_LIMIT_OPEN_FILES).value},
        {RLIMIT_FSIZE, cb_decide_limit(policy, CB_LIMIT_FILE_SIZE).value},
        {RLIMIT_CPU, cpu_seconds(plan->tree.cpu_time_ms)},
        /* A core dump is a file that nobody asked for, written by the kernel; a caller's right to real-time scheduling
         * would let the code starve the host. */
        {RLIMIT_CORE, 0},
        {RLIMIT_RTPRIO, 0},
    };
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
        if (limits[i].value != CB_UNLIMITED && add(plan, limits[i].resource, limits[i].value, error) < 0)
            return -1;
    plan->pinned = plan->tree.cpus != CB_UNLIMITED && !(plan->cgroup & CB_CGROUP_CPU);
    if (plan->pinned && cb_share_choose(plan->tree.cpus, &plan->processors) < 0)
        return cb_fail_errno(error, "choosing processors for the cell");
    plan->wall_time_ms = cb_decide_limit(policy, CB_LIMIT_WALL_TIME).value;
    struct cb_limit_decision output = cb_decide_limit(policy, CB_LIMIT_OUTPUT);
    plan->output = output.value;
    plan->output_given = output.origin && strncmp(output.origin->document, "profile base", 12) != 0;
    uint64_t tmp = cb_decide_limit(policy, CB_LIMIT_TMP).value;
    /* Without a size of its own it would take all memory, and not say how much it has. */
    tmp = tmp == CB_UNLIMITED ? plan->tree.memory : tmp;
    plan->scratch_size = tmp == CB_UNLIMITED ? 0 : tmp;
    plan->scratch_inodes = scratch_inodes(plan->scratch_size);
    return 0;
}
