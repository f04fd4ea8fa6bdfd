/* The plan: policy × host, with every mount, rule, filter and limit decided before any process exists. It knows
 * nothing of processes; the cell knows nothing of policies. After the clone the cell only reads what stands here: it
 * allocates nothing. */
#pragma once

#include "base/divert.h"
#include "host/cgroup.h"
#include "plan/filter.h"
#include "policy/resolve.h"

#include <jansson.h>
#include <sched.h>
#include <sys/resource.h>

/* What the root of the cell is assembled from, in order: parents before children. */
enum cb_step_kind {
    CB_STEP_DIRECTORY, /* in the private root or a scratch directory */
    CB_STEP_FILE,      /* a file, likewise: empty, to mount on; or with the text in `source` */
    CB_STEP_SYMLINK,
    CB_STEP_BIND,      /* something of the host, under its own path */
    CB_STEP_REBIND,    /* something inside an earlier bind, mounted on itself: read-only, or pinned so that it can't be
                        * renamed away */
    CB_STEP_SCRATCH,   /* a directory of the cell's scratch file system */
    CB_STEP_VEIL,      /* an empty directory over one that must not be seen, with something visible further down */
    CB_STEP_MASK,      /* something empty over what must not be seen */
    CB_STEP_PROC,
    CB_STEP_DEVPTS,
};

struct cb_step {
    enum cb_step_kind kind;
    char *at;             /* path in the cell, without the leading slash */
    char *source; /* BIND: path on the host; SYMLINK: target; SCRATCH, VEIL: its name in the scratch file system */
    bool directory;
    enum cb_access access;
    bool device;          /* a device node: no nodev */
    bool socket;          /* a unix socket of the host, for connecting to */
    dev_t device_number;  /* identity of what was checked */
    ino_t inode;
    int checked;          /* BIND of a place: its descriptor, borrowed from the resolved policy; else -1 */
    int tree;             /* BIND by a privileged caller: the detached mount, made by the supervisor; else -1 */
    bool idmapped;        /* … to be shown as owned by the cell */
    uint64_t landlock;    /* rights on it; 0: no rule of its own */
};

enum cb_tier {
    CB_TIER_NAMESPACES,
    CB_TIER_LANDLOCK,     /* no namespaces to be had: Landlock and seccomp on the host's own tree */
};

struct cb_rlimit {
    int resource;
    rlim_t value;
};

/* Names that the supervisor keeps the code from making; see supervisor/guard.c. */
struct cb_guard {
    char **areas;         /* writable directories that it watches */
    size_t area_count;
    char **absents;       /* may not come into being */
    size_t absent_count;
    char **fixed;         /* exist and must stay where they are: protected paths and the directories above them */
    size_t fixed_count;
    bool files;           /* some absent path may not even come as a file: file creation is watched too */
};

/* Limits over all processes of the cell together, kept by a cgroup where there is one, else by the supervisor's
 * watchdog. CB_UNLIMITED for none. */
struct cb_tree_limits {
    uint64_t memory;            /* bytes */
    uint64_t processes;
    uint64_t cpu_time_ms;
    uint64_t cpus;              /* thousandths */
    uint64_t disk;              /* bytes written */
    uint64_t inodes;
};

/* The way out; see src/relay. */
struct cb_plan_network {
    bool relay;                 /* the cell has a relay, in either tier */
    bool relayed;               /* what leaves the cell is diverted to its relay: there are rules that grant something,
                                 * or ports to publish */
    bool brokered;              /* tier landlock: sockets are made by the supervisor and connected by the relay */
    struct cb_divert divert;
    char *resolver;             /* /etc/resolv.conf of the cell */
    char *hosts;                /* /etc/hosts, likewise */
    uint64_t bytes;             /* that may be relayed; CB_UNLIMITED */
    uint64_t connections;       /* at the same time */
};

struct cb_plan {
    struct cb_resolved *resolved;
    enum cb_tier tier;
    struct cb_tree_limits tree;
    unsigned cgroup;            /* which of them the cell's cgroup keeps: CB_CGROUP_* */
    bool privileged;            /* the caller is root: the cell runs as an id that nobody uses */
    unsigned inside_uid, inside_gid, outside_uid, outside_gid;

    struct cb_step *steps;
    size_t step_count;
    uint64_t scratch_size;
    uint64_t scratch_inodes;
    cpu_set_t processors;       /* that the cell is pinned to, when `pinned` */
    bool pinned;
    rlim_t open_files;          /* soft limit of the caller's, where it is not the one in force; 0: it is */
    char *private_directory;    /* tier landlock: made and removed by the cell's first process; NULL in the other */
    char *home;                 /* of the cell */
    char *directory;            /* where the program starts */

    int landlock_abi;
    uint64_t landlock_handled;
    uint64_t landlock_scoped;
    uint64_t landlock_network;  /* handled with no rule: nothing goes; tier landlock only */
    bool signals_answered;      /* no scope for signals: the supervisor sends them; tier landlock only */
    struct cb_filter filter;
    struct cb_guard guard;
    struct cb_plan_network network;
    struct cb_filter call_filter;  /* calls that the supervisor answers, or that this cell's limits refuse; see calls.c */
    bool answered;                 /* … and some are answered: it has a listener */
    bool memory_answered;          /* no cgroup counts memory: what a watchdog could not see is asked for */

    struct cb_rlimit *rlimits;
    size_t rlimit_count;
    uint64_t wall_time_ms;      /* CB_UNLIMITED for none */
    uint64_t output;            /* bytes per stream */
    bool output_given; /* by a caller's own document, so that it also holds for output that is passed through */

    char **argv;
    char **envp;
    char **candidates;          /* where argv[0] may be, in order; NULL-terminated */

    bool accept_no_idmap;       /* the policy accepts files that come out as the cell's id instead of the caller's */
    json_t *weaker;             /* list of what could not be had and was accepted */
#ifdef CELLBLOCK_TEST_HOOKS
    unsigned off;               /* layers that a test turned off */
#endif
};

/* Single layers can be turned off in the test build only: the attack tests show by that which layer refuses what. In
 * the product the question folds away. */
enum cb_test_layer {
    CB_OFF_MOUNTS = 1 << 0,    /* writable where read-only, nothing masked or pinned, whole root shown */
    CB_OFF_LANDLOCK = 1 << 1,
    CB_OFF_SECCOMP = 1 << 2,
    CB_OFF_CAPABILITIES = 1 << 3,
    CB_OFF_PRIVILEGES = 1 << 4, /* no_new_privs */
    CB_OFF_GUARD = 1 << 5,
    CB_OFF_SESSION = 1 << 6,
    CB_OFF_DESCRIPTORS = 1 << 7,
    CB_OFF_LIMITS = 1 << 8,
    CB_OFF_ENVIRONMENT = 1 << 9,
    CB_OFF_PROC = 1 << 10,     /* /proc writable */
    CB_OFF_IDS = 1 << 11,      /* root stays root */
    CB_OFF_CGROUP = 1 << 12,   /* the watchdog keeps all limits */
    CB_OFF_RELAY = 1 << 13,    /* what arrives at the relay is not judged: only connect() is, when it is asked about */
    CB_OFF_BROKER = 1 << 14,   /* tier landlock: an allowed connect() goes on in the kernel */
    CB_OFF_LINGER = 1 << 15,   /* sockets keep the time to linger that the code sets */
};
#ifdef CELLBLOCK_TEST_HOOKS
unsigned cb_layers_turned_off(void);
#define cb_layer_on(plan, layer) (!((plan)->off & (layer)))
#else
static inline unsigned cb_layers_turned_off(void)
{
    return 0;
}
#define cb_layer_on(plan, layer) ((void)(plan), true)
#endif

/* What was made or found for a cell before it is planned. */
struct cb_ground {
    enum cb_tier tier;
    const char *without;        /* why there are no namespaces, when they were wanted; else NULL */
    unsigned cgroup;            /* of the cell: CB_CGROUP_* */
};

int cb_plan_make(const cellblock_policy *policy, const struct cellblock_options *options,
                 const struct cb_ground *ground, struct cb_plan **plan, cellblock_error **error);
/* The limits over the whole cell that a policy asks for. */
struct cb_tree_limits cb_plan_tree_limits(const cellblock_policy *policy);
void cb_plan_free(struct cb_plan *plan);

/* For `cellblock run --plan`: everything above, for a person. */
json_t *cb_plan_json(const struct cb_plan *plan);
/* For results: what was requested and what is enforced. */
json_t *cb_plan_report(const struct cb_plan *plan);

/* Parts of the planning, one file each. */
int cb_plan_mounts(struct cb_plan *plan, cellblock_error **error);
/* Tier landlock: no mounts; the same list of places, as rules only. */
int cb_plan_places(struct cb_plan *plan, const char *temporary, cellblock_error **error);
int cb_plan_landlock(struct cb_plan *plan, cellblock_error **error);
int cb_plan_environment(struct cb_plan *plan, const struct cellblock_options *options, const struct cb_context *context,
                        cellblock_error **error);
int cb_plan_limits(struct cb_plan *plan, cellblock_error **error);
int cb_plan_guard(struct cb_plan *plan, cellblock_error **error);
/* What leaves the cell, and how names are found in it. */
int cb_plan_network(struct cb_plan *plan, bool always, cellblock_error **error);
/* The ports of loopback that are the host's. */
int cb_plan_divert(const cellblock_policy *policy, struct cb_divert *divert, cellblock_error **error);
int cb_plan_calls(struct cb_plan *plan, cellblock_error **error);
