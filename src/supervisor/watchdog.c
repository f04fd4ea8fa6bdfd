/* The watchdog; see watchdog.h. Runs in the supervisor, with the caller's privileges, on one timer.
 *
 * One look, in this order:
 *   1. the cgroup, if there is one: did the kernel end something, were forks refused, how much time was used
 *   2. the processes (tree.c): how many, how much time (tally.c), how much memory (memory_use.c), how much was written
 *   3. the share of the processors (share.c)
 *   4. the writable places on disk (disk.c)
 *   5. the timer is set: to when the nearest limit can be passed at the earliest, but not so soon that looking becomes
 *      a cost of its own
 * A limit that a cgroup keeps is left to it; should the cgroup go away, the watchdog takes over.
 *
 * Everything that is read can vanish meanwhile; what can't be read counts with what was last known of it. */
#include "supervisor/watchdog.h"

#include "base/cleanup.h"
#include "base/error.h"
#include "supervisor/cgroup.h"
#include "supervisor/disk.h"
#include "supervisor/memory_use.h"
#include "supervisor/share.h"
#include "supervisor/tally.h"
#include "supervisor/tree.h"

#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

enum {
    LEAST_US = 5000, MOST_US = 250000,
    BORROWED_US = 50000,    /* how long a new process may seem to have a second copy of its parent's memory */
    WEIGH_SHARE = 200,      /* weighing only to know the peak: at most this part of the time */
    REFUSED_FORKS = 1000,
    WAKING_US = 40,         /* what it takes to get to a look and back to sleep */
    BLIND_US = 2000000,     /* how long nothing may be seen of the cell */
    LAST_LOOK_US = 2000000,
    LEEWAY_US = 1000000,    /* see tally.h */
};

/* All processors together can't fill memory faster, nor the page cache of a disk. */
static const uint64_t memory_per_second = 8ULL << 30, written_per_second = 4ULL << 30;

struct cb_watchdog {
    int timer;
    int events;                 /* the timer and the cgroup's word of a kill */
    bool enforces;              /* false where a test has turned the limits off */
    unsigned kept;              /* by the cgroup: CB_CGROUP_* */
    struct cb_tree_limits limits;
    uint64_t processors;        /* that the cell runs on */
    bool pinned;                /* to those processors */
    bool keeps_temporary;       /* without namespaces /tmp and home are a directory of the host's, which has no size */
    bool reads_tree;
    bool crowded;               /* as many processes as there may be: look whether it is a bomb */
    unsigned parts;
    struct cb_tree tree;
    struct cb_memory_use memory;
    struct cb_tally cpu, written;
    struct cb_bomb bomb;
    bool shares;
    struct cb_share share;
    struct cb_disk *disk, *temporary;
    uint64_t chance;            /* the code must not know when it is looked at */
    uint64_t seen_us;           /* the last look that saw something */
    uint64_t looked_us, cgroup_due_us, weigh_due_us, weighed_us, borrowed_since_us;
    uint64_t cpu_us;            /* used by the cell, at the last look */
};

static uint64_t lesser(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static void end(struct cellblock_cell *cell, enum cb_end reason, enum cb_limit limit)
{
    if (cell->watchdog->enforces)
        cb_cell_end(cell, reason, cb_limit_word(limit));
}

/* ---- Starting ---- */

static bool limited(uint64_t limit)
{
    return limit != CB_UNLIMITED;
}

static void decide_what_to_read(struct cb_watchdog *watchdog)
{
    const struct cb_tree_limits *limits = &watchdog->limits;
    bool memory = limited(limits->memory) && !(watchdog->kept & CB_CGROUP_MEMORY);
    watchdog->shares = limited(limits->cpus) && !(watchdog->kept & CB_CGROUP_CPU) &&
                       (limits->cpus % 1000 != 0 || !watchdog->pinned);
    watchdog->parts = (memory ? CB_TREE_MEMORY : 0) | (limited(limits->disk) ? CB_TREE_WRITTEN : 0);
    watchdog->reads_tree = watchdog->parts || watchdog->shares || limited(limits->inodes) || watchdog->keeps_temporary ||
                           (limited(limits->cpu_time_ms) && !(watchdog->kept & CB_CGROUP_CPUACCT)) ||
                           (limited(limits->processes) && !(watchdog->kept & CB_CGROUP_PIDS));
}

/* With namespaces the cell has a root of its own (unless a test has turned the mounts off). */
static int own_root(const struct cellblock_cell *cell)
{
    bool own = cell->plan->tier == CB_TIER_NAMESPACES && cb_layer_on(cell->plan, CB_OFF_MOUNTS);
    return own ? cell->root : -1;
}

/* Tier landlock: what /proc hides from us (hidepid) can't be counted, and the code can hide its processes. */
static bool proc_hides(void)
{
    FILE *file = fopen("/proc/self/mountinfo", "re");
    cb_autofree char *line = NULL;
    size_t room = 0;
    bool hides = !file;
    while (file && getline(&line, &room, file) > 0) {
        char point[16] = "";
        if (sscanf(line, "%*s %*s %*s %*s %15s", point) == 1 && strcmp(point, "/proc") == 0)
            hides = strstr(line, "hidepid=") && !strstr(line, "hidepid=0") && !strstr(line, "hidepid=off");
    }
    if (file)
        fclose(file);
    return hides;
}

/* Opened when the need arises. */
static bool is_open(const struct cellblock_cell *cell)
{
    struct cb_tree *tree = &cell->watchdog->tree;
    return tree->proc >= 0 || cb_tree_open(tree, own_root(cell), cell->init_pid) == 0;
}

static int open_tree(struct cellblock_cell *cell, cellblock_error **error)
{
    struct cb_watchdog *watchdog = cell->watchdog;
    bool hidden = watchdog->reads_tree && cell->plan->tier == CB_TIER_LANDLOCK && proc_hides();
    if (!watchdog->reads_tree || (!hidden && is_open(cell)))
        return 0;
    errno = hidden ? EACCES : errno;
    watchdog->reads_tree = false;
    bool needed = watchdog->parts || watchdog->shares || limited(watchdog->limits.cpu_time_ms);
    if (!needed && cell->plan->tier == CB_TIER_NAMESPACES)
        return 0; /* the kernel keeps the number of processes by itself */
    cb_fail(error, CELLBLOCK_ERROR_REFUSED, errno, "reading the processes of the cell in /proc, to keep its limits");
    cb_error_layer(error, "limits");
    return cb_error_hint(error, "mount /proc (without hidepid), or give up the limits over the whole cell: \"memory\", \"processes\", "
                                "\"cpu_time\", \"cpus\", \"disk\" and \"inodes\" set to null");
}

static int open_disk(struct cellblock_cell *cell, cellblock_error **error)
{
    struct cb_watchdog *watchdog = cell->watchdog;
    const struct cb_plan *plan = cell->plan;
    const struct cb_tree_limits *limits = &watchdog->limits;
    if (limited(limits->disk) || limited(limits->inodes)) {
        watchdog->disk = cb_disk_new(limits->disk, limits->inodes, cell->started);
        if (!watchdog->disk)
            return cb_fail_memory(error);
        if (cb_disk_add_plan(watchdog->disk, plan, own_root(cell), error) < 0)
            return -1;
    }
    if (!watchdog->keeps_temporary)
        return 0;
    watchdog->temporary = cb_disk_new(plan->scratch_size, plan->scratch_inodes, cell->started);
    return !watchdog->temporary ? cb_fail_memory(error) : cb_disk_add_private(watchdog->temporary, plan, error);
}

static int open_events(struct cellblock_cell *cell, cellblock_error **error)
{
    struct cb_watchdog *watchdog = cell->watchdog;
    int kills = cell->cgroup && watchdog->kept & CB_CGROUP_MEMORY ? cb_cgroup_oom_fd(cell->cgroup) : -1;
    watchdog->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (watchdog->timer < 0)
        return cb_fail_errno(error, "making a timer");
    if (kills < 0)
        return 0;
    struct epoll_event event = {.events = EPOLLIN};
    watchdog->events = epoll_create1(EPOLL_CLOEXEC);
    return watchdog->events < 0 || epoll_ctl(watchdog->events, EPOLL_CTL_ADD, watchdog->timer, &event) < 0 ||
                   epoll_ctl(watchdog->events, EPOLL_CTL_ADD, kills, &event) < 0
               ? cb_fail_errno(error, "watching the cell's cgroup")
               : 0;
}

static void set_timer(const struct cb_watchdog *watchdog, uint64_t wait_us)
{
    struct itimerspec when = {
        .it_value = {.tv_sec = (time_t)(wait_us / 1000000), .tv_nsec = (long)(wait_us % 1000000) * 1000}};
    timerfd_settime(watchdog->timer, 0, &when, NULL);
}

static uint64_t count_processors(const struct cb_plan *plan)
{
    cpu_set_t allowed;
    if (plan->pinned)
        return (uint64_t)CPU_COUNT(&plan->processors);
    if (sched_getaffinity(0, sizeof allowed, &allowed) == 0)
        return (uint64_t)CPU_COUNT(&allowed);
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (uint64_t)online : 1;
}

static uint64_t leeway(const struct cb_tree_limits *limits)
{
    return lesser(LEEWAY_US, limited(limits->cpu_time_ms) ? limits->cpu_time_ms * 1000 / 20 : LEEWAY_US);
}

/* The first look, before anything was read. */
static uint64_t first_wait(const struct cb_watchdog *watchdog)
{
    const struct cb_tree_limits *limits = &watchdog->limits;
    uint64_t wait = MOST_US;
    if (watchdog->parts & CB_TREE_MEMORY)
        wait = lesser(wait, cb_wait_for(limits->memory, 0, memory_per_second));
    if (limited(limits->cpu_time_ms))
        wait = lesser(wait, limits->cpu_time_ms * 1000 / watchdog->processors);
    if (limited(limits->disk))
        wait = lesser(wait, cb_wait_for(limits->disk, 0, written_per_second));
    if (watchdog->disk)
        wait = lesser(wait, cb_disk_wait(watchdog->disk));
    if (watchdog->temporary)
        wait = lesser(wait, cb_disk_wait(watchdog->temporary));
    if (watchdog->shares)
        wait = lesser(wait, cb_budget_wait(&watchdog->share.budget));
    return larger(wait, LEAST_US);
}

/* A short program may have ended by now, and what was to be watched be gone with it. */
static int give_up(struct cellblock_cell *cell, cellblock_error *why, cellblock_error **error)
{
    struct cb_message message;
    ssize_t got = recv(cell->wire, &message, sizeof message, MSG_PEEK | MSG_DONTWAIT);
    bool ended = got == 0 || (got == (ssize_t)sizeof message && message.kind == CB_MESSAGE_ENDED);
    if (ended)
        cb_watchdog_free(cb_steal(cell->watchdog));
    if (!ended && error)
        *error = why;
    else
        cellblock_error_free(why);
    return ended ? 0 : -1;
}

int cb_watchdog_start(struct cellblock_cell *cell, cellblock_error **error)
{
    struct cb_watchdog *watchdog = calloc(1, sizeof *watchdog);
    if (!watchdog)
        return cb_fail_memory(error);
    *watchdog = (struct cb_watchdog){.timer = -1,
                                     .events = -1,
                                     .enforces = cb_layer_on(cell->plan, CB_OFF_LIMITS),
                                     .kept = cell->cgroup ? cb_cgroup_holds(cell->cgroup) : 0,
                                     .limits = cell->plan->tree,
                                     .processors = count_processors(cell->plan),
                                     .pinned = cell->plan->pinned,
                                     .keeps_temporary = cell->plan->private_directory && cell->plan->scratch_size > 0,
                                     .tree = CB_TREE_INIT,
                                     .memory = CB_MEMORY_USE_INIT,
                                     .looked_us = cb_clock_us(CLOCK_MONOTONIC)};
    cell->watchdog = watchdog; /* freed with the cell, also when the following fails */
    decide_what_to_read(watchdog);
    if (!watchdog->reads_tree && !watchdog->kept) {
        cb_watchdog_free(cb_steal(cell->watchdog));
        return 0;
    }
    cellblock_error *why = NULL;
    if (open_tree(cell, &why) < 0 || open_disk(cell, &why) < 0 || open_events(cell, &why) < 0)
        return give_up(cell, why, error);
    watchdog->cpu.leeway = watchdog->cpu.credit = leeway(&watchdog->limits);
    cb_budget_start(&watchdog->share.budget, watchdog->limits.cpus, watchdog->processors, watchdog->looked_us);
    if (getrandom(&watchdog->chance, sizeof watchdog->chance, GRND_NONBLOCK) < 0)
        watchdog->chance = watchdog->looked_us;
    set_timer(watchdog, first_wait(watchdog));
    return 0;
}

int cb_watchdog_fd(const struct cb_watchdog *watchdog)
{
    return watchdog->events >= 0 ? watchdog->events : watchdog->timer;
}

void cb_watchdog_free(struct cb_watchdog *watchdog)
{
    if (!watchdog)
        return;
    cb_tree_close(&watchdog->tree);
    cb_memory_use_close(&watchdog->memory);
    cb_share_free(&watchdog->share);
    cb_disk_free(watchdog->disk);
    cb_disk_free(watchdog->temporary);
    cb_close_cleanup(&watchdog->events);
    cb_close_cleanup(&watchdog->timer);
    free(watchdog);
}

/* ---- The cgroup ---- */

static void note_sample(struct cellblock_cell *cell, const struct cb_cgroup_sample *sample)
{
    struct cb_peaks *peaks = &cell->peaks;
    uint64_t processes = larger(sample->processes, sample->processes_peak);
    peaks->memory = larger(peaks->memory, larger(sample->memory, sample->memory_peak));
    peaks->processes = larger(peaks->processes, processes > 0 ? processes - 1 : 0); /* without init */
    peaks->cpu_us = larger(peaks->cpu_us, sample->cpu_us);
}

/* The cgroup does not answer any more: somebody has removed it, or its controllers. */
static void take_over(struct cellblock_cell *cell)
{
    struct cb_watchdog *watchdog = cell->watchdog;
    int kills = cb_cgroup_oom_fd(cell->cgroup);
    if (watchdog->events >= 0 && kills >= 0)
        epoll_ctl(watchdog->events, EPOLL_CTL_DEL, kills, NULL); /* it may be readable for ever */
    watchdog->kept = 0;
    decide_what_to_read(watchdog);
    if (open_tree(cell, NULL) < 0)
        cb_cell_end(cell, CB_END_CANCELLED, NULL); /* nobody is left to keep the limits */
    set_timer(watchdog, LEAST_US);
}

static uint64_t look_at_cgroup(struct cellblock_cell *cell, uint64_t now_us)
{
    struct cb_watchdog *watchdog = cell->watchdog;
    const struct cb_tree_limits *limits = &watchdog->limits;
    struct cb_cgroup_sample sample = {0};
    if (cb_cgroup_look_at(cell->cgroup, &sample) < 0) {
        take_over(cell);
        return now_us;
    }
    note_sample(cell, &sample);
    if (watchdog->kept & CB_CGROUP_MEMORY && sample.oom_kills > 0)
        end(cell, CB_END_MEMORY, CB_LIMIT_MEMORY);
    if (watchdog->kept & CB_CGROUP_PIDS && sample.forks_refused >= REFUSED_FORKS)
        end(cell, CB_END_PROCESSES, CB_LIMIT_PROCESSES);
    /* The kernel's own limit for each user can refuse forks before the cgroup does, and does not count them. */
    watchdog->crowded = limited(limits->processes) && sample.processes > limits->processes;
    if (!(watchdog->kept & CB_CGROUP_CPUACCT) || !limited(limits->cpu_time_ms))
        return now_us + MOST_US;
    if (sample.cpu_us > limits->cpu_time_ms * 1000)
        end(cell, CB_END_TIMEOUT, CB_LIMIT_CPU_TIME);
    return now_us + lesser(MOST_US, cb_wait_for(limits->cpu_time_ms * 1000, sample.cpu_us,
                                                1000000 * watchdog->processors));
}

/* ---- The processes ---- */

struct sums {
    uint64_t threads;           /* without init */
    struct cb_effort effort;
    uint64_t cpu_us, written;
};

static uint64_t own_us(const struct cb_process *process)
{
    return process->user_us + process->system_us;
}

static uint64_t waited_us(const struct cb_process *process)
{
    return process->waited_user_us + process->waited_system_us;
}

static uint64_t grown(uint64_t before, uint64_t now)
{
    return now > before ? now - before : 0;
}

static struct sums add_up(struct cb_watchdog *watchdog, uint64_t elapsed_us)
{
    const struct cb_tree *tree = &watchdog->tree;
    struct sums sums = {0};
    uint64_t gone_us = 0, came_us = 0, gone_written = 0, came_written = 0;
    for (size_t i = 0; i < tree->now.count; i++) {
        const struct cb_process *process = &tree->now.list[i], *before = cb_tree_find(&tree->before, process);
        sums.threads += process->pid == tree->first ? 0 : process->threads;
        sums.effort.user_us += process->user_us + process->waited_user_us;
        sums.effort.system_us += process->system_us + process->waited_system_us;
        sums.effort.calls += process->calls;
        sums.effort.running = sums.effort.running || process->state == 'R';
        sums.written += process->written;
        if (before) {
            came_us += grown(waited_us(before), waited_us(process));
            came_written += grown(before->written, process->written);
        }
    }
    for (size_t i = 0; i < tree->before.count; i++) {
        const struct cb_process *process = &tree->before.list[i];
        if (cb_tree_find(&tree->now, process))
            continue;
        uint64_t known = own_us(process) + waited_us(process);
        gone_us += process->looks > 1 ? known : cb_tally_glimpse(known, process->pace, elapsed_us);
        gone_written += process->written;
    }
    sums.cpu_us = cb_tally_add(&watchdog->cpu, sums.effort.user_us + sums.effort.system_us, gone_us, came_us);
    sums.written = cb_tally_add(&watchdog->written, sums.written, gone_written, came_written);
    return sums;
}

static void look_at_number(struct cellblock_cell *cell, const struct sums *sums, uint64_t now_us)
{
    struct cb_watchdog *watchdog = cell->watchdog;
    uint64_t limit = watchdog->limits.processes;
    cell->peaks.processes = larger(cell->peaks.processes, sums->threads);
    if (!limited(limit))
        return;
    /* Without namespaces and cgroup nothing else keeps it. */
    bool over = sums->threads > limit && cell->plan->tier == CB_TIER_LANDLOCK && !(watchdog->kept & CB_CGROUP_PIDS);
    if (cb_bomb_look(&watchdog->bomb, sums->threads >= limit, now_us, &sums->effort) || over)
        end(cell, CB_END_PROCESSES, CB_LIMIT_PROCESSES);
}

/* Time and bytes can seem to be there twice, when a process is waited for between two readings; so what passes a limit
 * is read once more. */
static void confirm(struct cb_watchdog *watchdog, struct sums *sums)
{
    const struct cb_tree_limits *limits = &watchdog->limits;
    if ((sums->cpu_us > limits->cpu_time_ms * 1000 && limited(limits->cpu_time_ms)) || sums->written > limits->disk)
        if (cb_tree_read(&watchdog->tree, watchdog->parts) == 0)
            *sums = add_up(watchdog, 0);
}

static uint64_t look_at_time(struct cellblock_cell *cell, const struct sums *sums)
{
    struct cb_watchdog *watchdog = cell->watchdog;
    uint64_t limit_ms = watchdog->limits.cpu_time_ms;
    cell->peaks.cpu_us = larger(cell->peaks.cpu_us, sums->cpu_us);
    if (!limited(limit_ms) || watchdog->kept & CB_CGROUP_CPUACCT)
        return MOST_US;
    if (sums->cpu_us > limit_ms * 1000)
        end(cell, CB_END_TIMEOUT, CB_LIMIT_CPU_TIME);
    return cb_wait_for(limit_ms * 1000, sums->cpu_us, 1000000 * watchdog->processors);
}

static uint64_t look_at_written(struct cellblock_cell *cell, const struct sums *sums)
{
    uint64_t limit = cell->watchdog->limits.disk;
    cell->peaks.written = larger(cell->peaks.written, sums->written);
    if (!limited(limit))
        return MOST_US;
    if (sums->written > limit)
        end(cell, CB_END_DISK, CB_LIMIT_DISK);
    return cb_wait_for(limit, sums->written, written_per_second);
}

static struct cb_memory_total weigh(struct cellblock_cell *cell, uint64_t now_us)
{
    struct cb_watchdog *watchdog = cell->watchdog;
    uint64_t before = cb_clock_us(CLOCK_THREAD_CPUTIME_ID);
    struct cb_memory_total total =
        cb_memory_use_weigh(&watchdog->memory, &watchdog->tree, watchdog->limits.memory, cell->ipc_memory);
    watchdog->weighed_us = cb_clock_us(CLOCK_THREAD_CPUTIME_ID) - before;
    watchdog->weigh_due_us = now_us + WEIGH_SHARE * watchdog->weighed_us;
    return total;
}

static uint64_t look_at_memory(struct cellblock_cell *cell, uint64_t now_us)
{
    struct cb_watchdog *watchdog = cell->watchdog;
    uint64_t limit = watchdog->limits.memory;
    if (!(watchdog->parts & CB_TREE_MEMORY))
        return MOST_US;
    if (!watchdog->memory.open)
        cb_memory_use_open(&watchdog->memory, own_root(cell));
    struct cb_memory_total total = cb_memory_use_quick(&watchdog->memory, &watchdog->tree, limit, cell->ipc_memory);
    if (total.most + watchdog->tree.now.count * watchdog->tree.roughly > limit / 2) {
        cb_tree_read_memory(&watchdog->tree);
        total = cb_memory_use_quick(&watchdog->memory, &watchdog->tree, limit, cell->ipc_memory);
    }
    /* For the peak alone only now and then, and not where it takes long: large page tables do. */
    bool due = total.likely > cell->peaks.memory && now_us >= watchdog->weigh_due_us && total.tables == 0;
    if ((total.most > limit && total.least <= limit) || due)
        total = weigh(cell, now_us);
    cell->peaks.memory = larger(cell->peaks.memory, total.likely);
    if (total.most <= limit || watchdog->borrowed_since_us == 0)
        watchdog->borrowed_since_us = total.most <= limit ? 0 : now_us;
    if (total.least > limit || total.most / 2 > limit ||
        (total.most > limit && now_us - watchdog->borrowed_since_us > BORROWED_US))
        end(cell, CB_END_MEMORY, CB_LIMIT_MEMORY);
    return lesser(MOST_US, cb_wait_for(limit, total.most, memory_per_second));
}

/* For a moment that can happen, when the cell is about to end. A limit that nobody keeps is not to be had. */
static uint64_t after_blind_look(struct cellblock_cell *cell, uint64_t now_us)
{
    struct cb_watchdog *watchdog = cell->watchdog;
    if (watchdog->seen_us == 0)
        watchdog->seen_us = now_us;
    if (now_us - watchdog->seen_us > BLIND_US && watchdog->enforces)
        cb_cell_end(cell, CB_END_CANCELLED, NULL);
    return MOST_US;
}

static uint64_t look_at_tree(struct cellblock_cell *cell, uint64_t now_us)
{
    struct cb_watchdog *watchdog = cell->watchdog;
    unsigned parts = watchdog->parts | (watchdog->bomb.at_limit ? CB_TREE_WRITTEN : 0);
    if (cb_tree_read(&watchdog->tree, parts) < 0)
        return after_blind_look(cell, now_us);
    watchdog->seen_us = now_us;
    struct sums sums = add_up(watchdog, now_us - watchdog->looked_us);
    confirm(watchdog, &sums);
    watchdog->cpu_us = sums.cpu_us;
    look_at_number(cell, &sums, now_us);
    uint64_t wait = lesser(look_at_time(cell, &sums), look_at_written(cell, &sums));
    wait = lesser(wait, look_at_memory(cell, now_us));
    if (watchdog->shares && watchdog->enforces)
        wait = lesser(wait, cb_share_look(&watchdog->share, &watchdog->tree, now_us, sums.cpu_us));
    return wait;
}

/* ---- The disk ---- */

static void note_found(struct cellblock_cell *cell)
{
    uint64_t bytes, inodes;
    cb_disk_found(cell->watchdog->disk, &bytes, &inodes);
    cell->peaks.written = larger(cell->peaks.written, bytes);
    cell->peaks.inodes = larger(cell->peaks.inodes, inodes);
}

static uint64_t look_at_disk(struct cellblock_cell *cell, uint64_t now_us)
{
    struct cb_watchdog *watchdog = cell->watchdog;
    uint64_t wait = MOST_US, other = MOST_US;
    if (watchdog->disk) {
        enum cb_disk_verdict verdict = cb_disk_look(watchdog->disk, &watchdog->tree, now_us, &wait);
        note_found(cell);
        if (verdict != CB_DISK_FINE)
            end(cell, CB_END_DISK, verdict == CB_DISK_BYTES ? CB_LIMIT_DISK : CB_LIMIT_INODES);
    }
    if (watchdog->temporary &&
        cb_disk_look(watchdog->temporary, &watchdog->tree, now_us, &other) != CB_DISK_FINE)
        end(cell, CB_END_DISK, CB_LIMIT_TMP);
    return lesser(wait, other);
}

/* ---- Together ---- */

static uint32_t next_chance(struct cb_watchdog *watchdog)
{
    watchdog->chance = watchdog->chance * 6364136223846793005ULL + 1442695040888963407ULL;
    return (uint32_t)(watchdog->chance >> 32);
}

void cb_watchdog_look(struct cellblock_cell *cell)
{
    struct cb_watchdog *watchdog = cell->watchdog;
    uint64_t ticks, now_us = cb_clock_us(CLOCK_MONOTONIC), before = cb_clock_us(CLOCK_THREAD_CPUTIME_ID);
    bool timed = read(watchdog->timer, &ticks, sizeof ticks) == sizeof ticks;
    if (watchdog->kept && (!timed || now_us >= watchdog->cgroup_due_us))
        watchdog->cgroup_due_us = look_at_cgroup(cell, now_us);
    if (!timed)
        return; /* only the cgroup had something to say */
    uint64_t wait = MOST_US, cpu_before = watchdog->cpu_us;
    watchdog->weighed_us = 0;
    if (watchdog->reads_tree || (watchdog->crowded && is_open(cell)))
        wait = look_at_tree(cell, now_us);
    if (watchdog->kept)
        wait = lesser(wait, watchdog->cgroup_due_us > now_us ? watchdog->cgroup_due_us - now_us : LEAST_US);
    wait = lesser(wait, look_at_disk(cell, now_us));
    /* Weighing is rare, or urgent: it does not count as a cost. */
    uint64_t cost = cb_clock_us(CLOCK_THREAD_CPUTIME_ID) - before - watchdog->weighed_us + WAKING_US;
    const struct cb_wait next = {.soonest_us = wait,
                                 .cost_us = cost,
                                 .quiet = watchdog->cpu_us <= cpu_before + (now_us - watchdog->looked_us) / 20};
    watchdog->looked_us = now_us;
    set_timer(watchdog, cb_wait_by_chance(cb_wait_us(&next), next_chance(watchdog)));
}

/* What was passed just before the program ended by itself must not look like a success. There may be no watchdog any
 * more, if that was too soon for one. */
static void look_last_at_disk(struct cellblock_cell *cell)
{
    struct cb_watchdog *watchdog = cell->watchdog;
    uint64_t limit = cell->plan->tree.disk;
    if (cell->reason != CB_END_NONE)
        return;
    enum cb_disk_verdict verdict = CB_DISK_FINE;
    if (watchdog && watchdog->disk) {
        verdict = cb_disk_last_look(watchdog->disk, LAST_LOOK_US);
        note_found(cell);
    }
    uint64_t written = larger(cell->peaks.written, (uint64_t)cell->usage.ru_oublock * 512);
    bool bytes = verdict == CB_DISK_BYTES || (limited(limit) && written > limit);
    if (!bytes && verdict != CB_DISK_INODES)
        return;
    cell->reason = CB_END_DISK;
    cell->limit = cb_limit_word(bytes ? CB_LIMIT_DISK : CB_LIMIT_INODES);
}

/* Processes can't be read any more, but the cgroup still tells. */
void cb_watchdog_finish(struct cellblock_cell *cell)
{
    struct cb_watchdog *watchdog = cell->watchdog;
    struct cb_cgroup_sample sample = {0};
    look_last_at_disk(cell);
    if (!watchdog)
        return;
    if (watchdog->kept && cb_cgroup_look_at(cell->cgroup, &sample) == 0) {
        note_sample(cell, &sample);
        if (watchdog->kept & CB_CGROUP_MEMORY && sample.oom_kills > 0 && cell->reason == CB_END_NONE &&
            watchdog->enforces) {
            cell->reason = CB_END_MEMORY;
            cell->limit = cb_limit_word(CB_LIMIT_MEMORY);
        }
    }
    set_timer(watchdog, 0);
    if (watchdog->events >= 0)
        epoll_ctl(cell->epoll, EPOLL_CTL_DEL, watchdog->events, NULL);
}
