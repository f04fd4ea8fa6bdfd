/* The cell's own cgroup: below ours, in a delegated tree of version 2 or in writable trees of version 1.
 *
 * Nothing of a cgroup outlives the run: a small process (the janitor) is there from before the first directory is made,
 * holds nothing but a pipe end, the supervisor's pidfd and the directories, and removes them when the supervisor is
 * gone for whatever reason. */
#pragma once

#include "plan/plan.h"

#include <sys/types.h>

struct cb_cgroup;

struct cb_cgroup_sample {
    uint64_t memory, memory_peak;   /* bytes; 0: not known */
    uint64_t oom_kills;             /* processes that the kernel ended because of the limit */
    uint64_t cpu_us;
    uint64_t processes, processes_peak;
    uint64_t forks_refused;
};

/* Which controllers could be had, without making anything: CB_CGROUP_* bits. */
unsigned cb_cgroup_look(const struct cb_tree_limits *limits);

/* Makes a cgroup for these limits (only the controllers that they need). *group stays NULL, with 0 returned, when there
 * is none to be had here; the watchdog then does all the work. */
int cb_cgroup_make(const struct cb_tree_limits *limits, struct cb_cgroup **group, cellblock_error **error);
/* What it keeps: CB_CGROUP_* bits. */
unsigned cb_cgroup_holds(const struct cb_cgroup *group);
/* For clone3 with CLONE_INTO_CGROUP, which is much cheaper in version 2 than moving a process later; -1: not possible.
 * cb_cgroup_enter() is to be called in any case: it does what is left. */
int cb_cgroup_clone_fd(const struct cb_cgroup *group);
/* Puts a process in, which must not have children yet. */
int cb_cgroup_enter(struct cb_cgroup *group, pid_t pid, cellblock_error **error);
/* That process cleans up after the others (tier landlock): it is not killed with them if the supervisor goes. */
void cb_cgroup_spare(struct cb_cgroup *group, pid_t pid);
/* Processes are counted with their threads and with init. -1 with errno when the cgroup does not answer: somebody took
 * it, or its controllers, away, and its limits are gone. */
int cb_cgroup_look_at(const struct cb_cgroup *group, struct cb_cgroup_sample *sample);
/* Readable (EPOLLIN) when the kernel may have ended something because of the memory limit: look then. The look makes it
 * unreadable again. -1 when there is none. */
int cb_cgroup_oom_fd(const struct cb_cgroup *group);
/* Optional, after the last look: removes it and sends the janitor home without waiting, which cb_cgroup_free() then
 * does, so that other work can be done meanwhile. */
void cb_cgroup_remove(struct cb_cgroup *group);
/* Removes it. Every process in it is gone by then, or is killed. */
void cb_cgroup_free(struct cb_cgroup *group);
