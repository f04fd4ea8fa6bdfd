/* Attempts: each tries one thing for real, in a child that lives for a moment, and says how far it came.
 *
 * The child is a copy made by clone: it allocates nothing and calls only what is safe after a fork, because the process
 * that asks may have threads. It is ended by a deadline, so no attempt can hang. */
#pragma once

#include "cellblock.h"
#include "host/cgroup.h"
#include "host/ids.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

struct cb_attempt {
    const char *step; /* what failed, a string literal (a child has the same ones at the same place); NULL: it works */
    int errnum;       /* why */
    int value;        /* what else there is to say, by the kind of attempt */
};

typedef struct cb_attempt (*cb_attempt_function)(int argument);

static inline struct cb_attempt cb_attempt_failed(const char *step)
{
    return (struct cb_attempt){.step = step, .errnum = errno};
}

/* Runs `function` in a child in new namespaces (CLONE_NEW*; with CLONE_NEWUSER its ids are mapped as for a cell). All
 * that goes wrong inside is in *attempt; -1 only when the attempt could not be made at all. */
int cb_attempt_run(uint64_t namespaces, cb_attempt_function function, int argument, struct cb_attempt *attempt,
                   cellblock_error **error);

/* For an attempt that needs a second process. As fork, but unseen by the caller's signal handlers and waits; the child
 * is killed when its parent ends. */
int cb_attempt_fork(uint64_t flags, int *pidfd);
void cb_attempt_reap(int pid);

/* ---- The attempts ---- */
struct cb_attempt cb_try_capability(int unused);            /* in CLONE_NEWUSER */
struct cb_attempt cb_try_nothing(int unused);
struct cb_attempt cb_try_mount_api(int unused);             /* in CLONE_NEWUSER | CLONE_NEWNS */
struct cb_attempt cb_try_proc(int unused);                  /* in CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID */
struct cb_attempt cb_try_idmap(int unused);
struct cb_attempt cb_try_overlay(int unused);               /* in CLONE_NEWUSER | CLONE_NEWNS */
struct cb_attempt cb_try_landlock(int abi);                 /* value: the ABI to go down to */
struct cb_attempt cb_try_seccomp(int unused);
struct cb_attempt cb_try_seccomp_notify(int unused);
struct cb_attempt cb_try_pidfd(int unused);
struct cb_attempt cb_try_close_range(int unused);
struct cb_attempt cb_try_openat2(int unused);
struct cb_attempt cb_try_divert(int unused);                /* in CLONE_NEWUSER | CLONE_NEWNET */

/* Not in a child: it only looks, and makes and removes one empty cgroup per tree. Value: which controllers can be used,
 * CB_CGROUP_* bits. */
struct cb_attempt cb_try_cgroup(void);
