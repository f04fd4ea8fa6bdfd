/* See cgroup.h. Runs in the supervisor with the caller's privileges:
 *
 *   1. places are found (host/cgroup.c): one directory per tree that has a controller for a limit
 *   2. the janitor starts: from now on, whatever happens to us, what is made below is removed again
 *   3. in each place a cgroup is made and its limits are written. If that fails, all is taken back: the watchdog then
 *      does the work
 *   4. init is put in before it has started anything
 *   5. when every process is gone: the last look, the cgroups are removed, the janitor is dismissed
 *
 * Memory has a soft stage just below the limit, where the kernel reclaims and slows down before it kills. */
#include "supervisor/cgroup.h"

#include "base/cleanup.h"
#include "base/error.h"
#include "base/missing.h"
#include "supervisor/janitor.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>

enum {
    PERIOD_US = 100 * 1000,
    LEAST_QUOTA_US = 1000,      /* the kernel takes no less */
    MOST_PROCESSES = 1 << 22,   /* … and no more */
};

/* ---- What is read from a cgroup ---- */

#define member(name) offsetof(struct cb_cgroup_sample, name)
static const struct source {
    unsigned controller;        /* with CB_CGROUP_V2 for version 2 */
    const char *file;
    const char *key;            /* the number behind this word; NULL: the file is one number */
    size_t member;
    unsigned divisor;
} sources[] = {
    {CB_CGROUP_MEMORY, "memory.usage_in_bytes", NULL, member(memory), 1},
    {CB_CGROUP_MEMORY, "memory.max_usage_in_bytes", NULL, member(memory_peak), 1},
    {CB_CGROUP_MEMORY, "memory.oom_control", "oom_kill ", member(oom_kills), 1},
    {CB_CGROUP_CPUACCT, "cpuacct.usage", NULL, member(cpu_us), 1000},
    {CB_CGROUP_PIDS, "pids.current", NULL, member(processes), 1},
    {CB_CGROUP_PIDS, "pids.peak", NULL, member(processes_peak), 1},
    {CB_CGROUP_PIDS, "pids.events", "max ", member(forks_refused), 1},
    {CB_CGROUP_V2 | CB_CGROUP_MEMORY, "memory.current", NULL, member(memory), 1},
    {CB_CGROUP_V2 | CB_CGROUP_MEMORY, "memory.peak", NULL, member(memory_peak), 1},
    {CB_CGROUP_V2 | CB_CGROUP_MEMORY, "memory.events", "oom_kill ", member(oom_kills), 1},
    {CB_CGROUP_V2 | CB_CGROUP_CPUACCT, "cpu.stat", "usage_usec ", member(cpu_us), 1},
    {CB_CGROUP_V2 | CB_CGROUP_PIDS, "pids.current", NULL, member(processes), 1},
    {CB_CGROUP_V2 | CB_CGROUP_PIDS, "pids.peak", NULL, member(processes_peak), 1},
    {CB_CGROUP_V2 | CB_CGROUP_PIDS, "pids.events", "max ", member(forks_refused), 1},
};
enum { SOURCES = sizeof sources / sizeof *sources };
/* Files of newer kernels: a number that may be missing. */
#define may_lack(source) ((source)->member == member(memory_peak) || (source)->member == member(processes_peak))

struct cb_cgroup {
    struct cb_cgroup_places places;
    int dirs[CB_CGROUP_PLACES]; /* the cell's own cgroup in each */
    struct cb_janitor *janitor;
    int oom;                    /* readable on events of the memory limit, or -1 */
    bool oom_counts;            /* … and that is an eventfd (version 1), which only an actual event makes readable */
    int files[SOURCES];         /* kept open: they are read often */
    char name[CB_CGROUP_NAME];
};

static unsigned wanted_by(const struct cb_tree_limits *limits)
{
    return (limits->memory != CB_UNLIMITED ? CB_CGROUP_MEMORY : 0) |
           (limits->processes != CB_UNLIMITED ? CB_CGROUP_PIDS : 0) |
           (limits->cpus != CB_UNLIMITED ? CB_CGROUP_CPU : 0) |
           (limits->cpu_time_ms != CB_UNLIMITED ? CB_CGROUP_CPUACCT : 0);
}

unsigned cb_cgroup_look(const struct cb_tree_limits *limits)
{
    unsigned wanted = wanted_by(limits), found = 0;
    if (wanted) {
        struct cb_cgroup_places places;
        found = cb_cgroup_find(wanted, &places) == 0 ? places.controllers : 0;
        cb_cgroup_places_close(&places);
    }
    return found;
}

/* ---- Limits ---- */

static int write_text(int dir, const char *file, const char *text)
{
    size_t length = strlen(text);
    cb_autofd int fd = openat(dir, file, O_WRONLY | O_CLOEXEC);
    return fd >= 0 && write(fd, text, length) == (ssize_t)length ? 0 : -1;
}

static int write_number(int dir, const char *file, uint64_t number)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRIu64, number);
    return write_text(dir, file, text);
}

/* For what not every kernel has. */
static int write_if_there(int dir, const char *file, uint64_t number)
{
    return write_number(dir, file, number) < 0 && errno != ENOENT && errno != EOPNOTSUPP ? -1 : 0;
}

/* From here on the kernel reclaims, and version 2 also slows down whoever asks for more, by the square of how far it is
 * above. Too wide a stage is a trap: a program that needs nearly all of its limit would crawl, one that needs more
 * would take minutes to be ended. With this one it is slowed for up to three seconds, below a limit of 4 GB. */
static uint64_t soft_stage(uint64_t memory)
{
    uint64_t narrow = memory / 32, wide = (16 << 20) + memory / 64;
    return memory - (narrow < wide ? narrow : wide);
}

static int limit_memory(int dir, uint64_t memory, bool v2)
{
    if (v2)
        return write_number(dir, "memory.max", memory) < 0 ||
                       write_if_there(dir, "memory.high", soft_stage(memory)) < 0 ||
                       write_if_there(dir, "memory.swap.max", 0) < 0 || write_if_there(dir, "memory.oom.group", 1) < 0
                   ? -1
                   : 0;
    if (write_number(dir, "memory.limit_in_bytes", memory) < 0 ||
        write_if_there(dir, "memory.soft_limit_in_bytes", soft_stage(memory)) < 0)
        return -1;
    if (write_number(dir, "memory.memsw.limit_in_bytes", memory) == 0)
        return 0;
    /* Swap is not counted here: then nothing is to go there. */
    return errno == ENOENT || errno == EOPNOTSUPP ? write_if_there(dir, "memory.swappiness", 0) : -1;
}

static int limit_share(int dir, uint64_t cpus, bool v2)
{
    uint64_t quota = cpus > UINT32_MAX ? UINT32_MAX : cpus * (PERIOD_US / 1000);
    quota = quota < LEAST_QUOTA_US ? LEAST_QUOTA_US : quota;
    if (!v2)
        return write_number(dir, "cpu.cfs_period_us", PERIOD_US) < 0 ? -1
                                                                     : write_number(dir, "cpu.cfs_quota_us", quota);
    char text[64];
    snprintf(text, sizeof text, "%" PRIu64 " %d", quota, PERIOD_US);
    return write_text(dir, "cpu.max", text);
}

static int set_limits(int dir, unsigned controllers, const struct cb_tree_limits *limits)
{
    bool v2 = controllers & CB_CGROUP_V2;
    if (controllers & CB_CGROUP_MEMORY && limit_memory(dir, limits->memory, v2) < 0)
        return -1;
    /* One more for init. */
    uint64_t processes = limits->processes < MOST_PROCESSES ? limits->processes + 1 : MOST_PROCESSES;
    if (controllers & CB_CGROUP_PIDS && write_number(dir, "pids.max", processes) < 0)
        return -1;
    return controllers & CB_CGROUP_CPU ? limit_share(dir, limits->cpus, v2) : 0;
}

/* ---- Being told when memory runs out ---- */

static int *file_of(struct cb_cgroup *group, size_t member, unsigned version)
{
    for (int i = 0; i < SOURCES; i++)
        if (sources[i].member == member && (sources[i].controller & CB_CGROUP_V2) == version)
            return &group->files[i];
    return NULL;
}

/* Version 1: an eventfd, registered with the file that counts. Version 2: the file itself, as an urgent event; inside
 * an epoll descriptor, so that it looks like any other to the one who waits. None is no harm: the next look tells. */
static void listen_for_oom(struct cb_cgroup *group, int dir, unsigned version)
{
    int counter = *file_of(group, member(oom_kills), version);
    if (version) {
        struct epoll_event event = {.events = EPOLLPRI};
        char start[512];
        cb_autofd int poll = epoll_create1(EPOLL_CLOEXEC);
        /* Everything counts as news until the first reading. */
        if (poll >= 0 && epoll_ctl(poll, EPOLL_CTL_ADD, counter, &event) == 0 &&
            pread(counter, start, sizeof start, 0) > 0)
            group->oom = cb_steal_fd(&poll);
        return;
    }
    cb_autofd int event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    char text[64];
    snprintf(text, sizeof text, "%d %d", event, counter);
    if (event >= 0 && write_text(dir, "cgroup.event_control", text) == 0) {
        group->oom = cb_steal_fd(&event);
        group->oom_counts = true;
    }
}

int cb_cgroup_oom_fd(const struct cb_cgroup *group)
{
    return group->oom;
}

/* ---- Making it ---- */

static int open_files(struct cb_cgroup *group, int dir, unsigned controllers)
{
    unsigned version = controllers & CB_CGROUP_V2;
    for (int i = 0; i < SOURCES; i++) {
        const struct source *source = &sources[i];
        if ((source->controller & CB_CGROUP_V2) != version || !(source->controller & controllers & ~CB_CGROUP_V2))
            continue;
        group->files[i] = openat(dir, source->file, O_RDONLY | O_CLOEXEC);
        if (group->files[i] < 0 && (errno != ENOENT || !may_lack(source)))
            return -1;
    }
    return 0;
}

/* Stays as it is afterwards: other cells may be there by then. */
static int hand_down(int dir, unsigned controllers)
{
    return (controllers & CB_CGROUP_MEMORY && write_text(dir, "cgroup.subtree_control", "+memory") < 0) ||
                   (controllers & CB_CGROUP_PIDS && write_text(dir, "cgroup.subtree_control", "+pids") < 0) ||
                   (controllers & CB_CGROUP_CPU && write_text(dir, "cgroup.subtree_control", "+cpu") < 0)
               ? -1
               : 0;
}

static int make_in(struct cb_cgroup *group, size_t index, const struct cb_tree_limits *limits)
{
    const struct cb_cgroup_place *place = &group->places.place[index];
    if (hand_down(place->dir, place->enable) < 0 || mkdirat(place->dir, group->name, 0755) < 0)
        return -1;
    int dir = group->dirs[index] = openat(place->dir, group->name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0 || set_limits(dir, place->controllers, limits) < 0 || open_files(group, dir, place->controllers) < 0)
        return -1;
    if (place->controllers & CB_CGROUP_MEMORY)
        listen_for_oom(group, dir, place->controllers & CB_CGROUP_V2);
    return 0;
}

static struct cb_cgroup *new_group(void)
{
    struct cb_cgroup *group = calloc(1, sizeof *group);
    if (!group)
        return NULL;
    group->oom = -1;
    memset(group->dirs, -1, sizeof group->dirs);
    memset(group->files, -1, sizeof group->files);
    return group;
}

static void free_group(struct cb_cgroup **group)
{
    cb_cgroup_free(*group);
}

int cb_cgroup_make(const struct cb_tree_limits *limits, struct cb_cgroup **group, cellblock_error **error)
{
    *group = NULL;
    unsigned wanted = wanted_by(limits);
    if (!wanted)
        return 0;
    __attribute__((cleanup(free_group))) struct cb_cgroup *made = new_group();
    if (!made)
        return cb_fail_memory(error);
    if (cb_cgroup_find(wanted, &made->places) < 0 || cb_janitor_name(made->name) < 0 ||
        cb_janitor_start(&made->places, made->name, &made->janitor) < 0)
        return 0;
    for (size_t i = 0; i < made->places.count; i++)
        if (make_in(made, i, limits) < 0)
            return 0;
    *group = cb_steal(made);
    return 0;
}

unsigned cb_cgroup_holds(const struct cb_cgroup *group)
{
    return group->places.controllers;
}

/* ---- Using it ---- */

/* A process that was cloned into it (version 2) is there already. */
static bool holds_process(int dir, pid_t pid)
{
    char list[64], number[16];
    cb_autofd int fd = openat(dir, "cgroup.procs", O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? -1 : read(fd, list, sizeof list - 1);
    if (length <= 0)
        return false;
    list[length] = '\0';
    snprintf(number, sizeof number, "%d\n", (int)pid);
    return strcmp(list, number) == 0;
}

int cb_cgroup_enter(struct cb_cgroup *group, pid_t pid, cellblock_error **error)
{
    for (size_t i = 0; i < group->places.count; i++) {
        if (group->places.place[i].controllers & CB_CGROUP_V2 && holds_process(group->dirs[i], pid))
            continue;
        if (write_number(group->dirs[i], "cgroup.procs", (uint64_t)pid) < 0) {
            cb_fail(error, CELLBLOCK_ERROR_SETUP, errno,
                    "putting the cell into its cgroup: writing %d to %s/cgroup.procs", (int)pid, group->name);
            return cb_error_layer(error, "cgroup");
        }
    }
    return 0;
}

void cb_cgroup_spare(struct cb_cgroup *group, pid_t pid)
{
    cb_janitor_spare(group->janitor, pid);
}

int cb_cgroup_clone_fd(const struct cb_cgroup *group)
{
    for (size_t i = 0; i < group->places.count; i++)
        if (group->places.place[i].controllers & CB_CGROUP_V2)
            return group->dirs[i];
    return -1;
}

static int read_number(int fd, const char *key, uint64_t *number)
{
    char text[1024];
    ssize_t length = pread(fd, text, sizeof text - 1, 0);
    if (length < 0)
        return -1;
    text[length] = '\0';
    const char *at = text;
    while (key && at && strncmp(at, key, strlen(key)) != 0) {
        at = strchr(at, '\n');
        at = at ? at + 1 : NULL;
    }
    *number = at ? strtoull(at + (key ? strlen(key) : 0), NULL, 10) : 0;
    return 0;
}

int cb_cgroup_look_at(const struct cb_cgroup *group, struct cb_cgroup_sample *sample)
{
    *sample = (struct cb_cgroup_sample){0};
    uint64_t events = 0;
    /* The event comes just before the kill that is then counted. */
    bool killing = group->oom_counts && read(group->oom, &events, sizeof events) > 0;
    for (int i = 0; i < SOURCES; i++) {
        uint64_t number;
        if (group->files[i] < 0)
            continue;
        if (read_number(group->files[i], sources[i].key, &number) < 0)
            return -1;
        memcpy((char *)sample + sources[i].member, &(uint64_t){number / sources[i].divisor}, sizeof number);
    }
    if (killing && sample->oom_kills == 0)
        sample->oom_kills = 1;
    return 0;
}

/* ---- Its end ---- */

void cb_cgroup_remove(struct cb_cgroup *group)
{
    cb_janitor_remove(group->janitor, 0);
}

void cb_cgroup_free(struct cb_cgroup *group)
{
    if (!group)
        return;
    if (group->janitor)
        cb_janitor_free(group->janitor);
    for (size_t i = 0; i < CB_CGROUP_PLACES; i++)
        cb_close_cleanup(&group->dirs[i]);
    for (size_t i = 0; i < SOURCES; i++)
        cb_close_cleanup(&group->files[i]);
    cb_close_cleanup(&group->oom);
    cb_cgroup_places_close(&group->places);
    free(group);
}
