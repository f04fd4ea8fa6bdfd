/* A share of the processors, kept without a cgroup.
 *
 * The cell is pinned to as many processors as its share, rounded up (plan/share.c). What is left over is taken off
 * here: the cell has a budget of processor time that fills up evenly. When it is used up, every process but init is
 * stopped until the debt is paid back. That is what the kernel does with a cgroup, with a coarser clock.
 *
 * Runs in the supervisor, from the watchdog. Signals go by descriptor (tree.c). A process that was stopped before, by
 * the program itself, is not ours to continue. What the code can notice: a parent is told that its child was stopped,
 * as for any other stop; some calls that wait are interrupted, as after any other continuation; and a stop that one
 * process of the cell sends to another which we hold already is forgotten when we continue that. */
#include "supervisor/share.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/missing.h"

#include <signal.h>

/* What a cell that did nothing for a while may use at once. */
enum { PERIOD_US = 100 * 1000, LEAST_US = 5000, ROUNDS = 8, BATCH = 64 };

void cb_budget_start(struct cb_budget *budget, uint64_t thousandths, uint64_t processors, uint64_t now_us)
{
    *budget = (struct cb_budget){.thousandths = thousandths,
                                 .processors = processors > 0 ? processors : 1,
                                 .last_us = now_us,
                                 .left_us = (int64_t)(thousandths * PERIOD_US / 1000)};
}

void cb_budget_look(struct cb_budget *budget, uint64_t now_us, uint64_t spent_us)
{
    int64_t most = (int64_t)(budget->thousandths * PERIOD_US / 1000);
    budget->left_us += (int64_t)((now_us - budget->last_us) * budget->thousandths / 1000);
    budget->left_us -= (int64_t)spent_us - (int64_t)budget->last_spent_us;
    budget->last_us = now_us;
    budget->last_spent_us = spent_us;
    if (budget->left_us > most)
        budget->left_us = most;
}

uint64_t cb_budget_wait(const struct cb_budget *budget)
{
    uint64_t wait;
    if (budget->left_us <= 0)
        wait = (uint64_t)-budget->left_us * 1000 / budget->thousandths;
    else
        wait = (uint64_t)budget->left_us / budget->processors;
    return wait < LEAST_US ? LEAST_US : wait > PERIOD_US ? PERIOD_US : wait;
}

static bool is_stopped(const struct cb_process *process)
{
    return process->state == 'T' || process->state == 't';
}

static bool is_ours(const struct cb_share *share, const struct cb_process *process)
{
    for (size_t i = 0; i < share->our_count; i++)
        if (share->ours[i].pid == process->pid && share->ours[i].started == process->started)
            return true;
    return false;
}

/* The signals follow each other closely, and come three times: processes that keep continuing each other would
 * otherwise always leave one running. */
static void stop_batch(const struct cb_tree *tree, const struct cb_process *const *batch, size_t count)
{
    int handles[BATCH];
    for (size_t i = 0; i < count; i++)
        handles[i] = cb_tree_handle(tree, batch[i]);
    for (int round = 0; round < 3; round++)
        for (size_t i = 0; i < count; i++)
            if (handles[i] >= 0)
                cb_sys_pidfd_send_signal(handles[i], SIGSTOP, NULL, 0);
    for (size_t i = 0; i < count; i++)
        cb_close_cleanup(&handles[i]);
}

static bool remember(struct cb_share *share, const struct cb_process *process)
{
    if (is_ours(share, process))
        return true;
    struct cb_process *added = cb_array_push(&share->ours, &share->our_count);
    if (added)
        *added = *process;
    return added;
}

/* Returns how many were found running. One that waits in the kernel (D) takes the signal when it comes back. */
static size_t stop_running(struct cb_share *share, const struct cb_tree *tree)
{
    const struct cb_process *batch[BATCH];
    size_t running = 0, filled = 0;
    for (size_t i = 0; i < tree->now.count; i++) {
        const struct cb_process *process = &tree->now.list[i];
        if (process->pid == tree->first || process->state == 'Z' || process->state == 'X' || is_stopped(process))
            continue;
        running += process->state != 'D' || !is_ours(share, process);
        if (!remember(share, process))
            continue; /* no memory: rather running than stopped for ever */
        batch[filled++] = process;
        if (filled == BATCH) {
            stop_batch(tree, batch, filled);
            filled = 0;
        }
    }
    stop_batch(tree, batch, filled);
    return running;
}

/* Until a round finds nobody running: one that is not stopped yet can make new ones, or continue others. True when it
 * came to that. */
static bool stop(struct cb_share *share, const struct cb_tree *tree)
{
    share->stopped = true;
    size_t running = stop_running(share, tree);
    for (int round = 0; round < ROUNDS && running > 0; round++) {
        struct cb_tree again = *tree; /* of its own: the watchdog compares its lists from look to look */
        again.now = again.before = (struct cb_processes){0};
        running = cb_tree_read(&again, 0) < 0 ? 0 : stop_running(share, &again);
        free(again.now.list);
    }
    return running == 0;
}

static void go_on(struct cb_share *share, const struct cb_tree *tree)
{
    for (size_t i = 0; i < share->our_count; i++) {
        cb_autofd int handle = cb_tree_handle(tree, &share->ours[i]);
        if (handle >= 0)
            cb_sys_pidfd_send_signal(handle, SIGCONT, NULL, 0);
    }
    share->our_count = 0;
    share->stopped = false;
}

uint64_t cb_share_look(struct cb_share *share, const struct cb_tree *tree, uint64_t now_us, uint64_t spent_us)
{
    cb_budget_look(&share->budget, now_us, spent_us);
    if (share->budget.left_us <= 0 && !stop(share, tree))
        return LEAST_US;
    if (share->budget.left_us > 0 && share->stopped)
        go_on(share, tree);
    return cb_budget_wait(&share->budget);
}

void cb_share_free(struct cb_share *share)
{
    free(share->ours);
}
