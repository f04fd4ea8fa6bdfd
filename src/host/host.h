/* What this kernel and machine can do. Probed by trying, in short-lived children: version numbers and sysctls are used
 * only to explain a failure, never to conclude that something works. */
#pragma once

#include "cellblock.h"

#include <stdbool.h>
#include <stddef.h>

enum cb_feature {
    CB_FEATURE_USER_NAMESPACE,  /* a process may make one and map its own id in it */
    CB_FEATURE_NAMESPACES,      /* mount, pid, net, ipc, uts and cgroup namespaces inside it */
    CB_FEATURE_MOUNT_API,       /* fsopen, open_tree, move_mount, mount_setattr (recursive) */
    CB_FEATURE_PROC,            /* a fresh /proc can be mounted in the new namespaces */
    CB_FEATURE_IDMAP,           /* idmapped mounts (needed by a root caller only) */
    CB_FEATURE_LANDLOCK,
    CB_FEATURE_SECCOMP,         /* filters */
    CB_FEATURE_SECCOMP_NOTIFY,  /* user notification, and ADDFD */
    CB_FEATURE_PIDFD,           /* a child with a descriptor */
    CB_FEATURE_CLOSE_RANGE,
    CB_FEATURE_OPENAT2,
    CB_FEATURE_OVERLAY,         /* overlayfs in a user namespace: review workspaces */
    CB_FEATURE_CGROUP,          /* a delegated v2 tree or a writable v1 one */
    CB_FEATURE_DIVERT,          /* what leaves a cell can be handed to its relay */
    CB_FEATURE_COUNT,
};

enum cb_probe_state { CB_PROBE_YES, CB_PROBE_PARTLY, CB_PROBE_NO };

struct cb_probe {
    enum cb_probe_state state;
    int errnum;     /* of the attempt that failed */
    char *detail;   /* what was seen: "ABI 7, …", "refused by AppArmor (kernel.apparmor_restrict_…)" */
    char *fix;      /* what to do, or NULL */
};

struct cb_host {
    struct cb_probe probes[CB_FEATURE_COUNT];
    int landlock_abi;       /* the highest whose features were seen to work; 0 for none */
    bool can_enforce_default;
    const char *tier;       /* the strongest tier: "namespaces", "landlock" or "none" */
};

/* The full examination (some milliseconds; starts children). */
int cb_host_examine(struct cb_host **host, cellblock_error **error);
void cb_host_free(struct cb_host *host);

/* Cheap (one or two system calls, no children): the Landlock ABI found by building a ruleset with all that this ABI
 * claims to handle, and stepping down on failure. 0 when there is none. */
int cb_host_landlock_abi(void);

const char *cb_feature_word(enum cb_feature feature);      /* "user-namespace" */
const char *cb_feature_purpose(enum cb_feature feature);   /* one short line for a person */

/* Explains why a set-up step of this layer failed with this errno: fills the hint of *error from a fresh examination
 * (of this feature and of user namespaces only, so it starts few children). */
void cb_host_explain(enum cb_feature feature, int errnum, cellblock_error **error);
