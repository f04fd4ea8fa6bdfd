/* The plan: policy × host, with every mount, rule, filter and limit decided before any process exists. It knows
 * nothing of processes; the cell knows nothing of policies. After the clone the cell only reads what stands here: it
 * allocates nothing. */
#pragma once

#include "plan/filter.h"
#include "policy/resolve.h"

#include <jansson.h>
#include <sys/resource.h>

/* What the root of the cell is assembled from, in order: parents before children. */
enum cb_step_kind {
    CB_STEP_DIRECTORY, /* in the private root or a scratch directory */
    CB_STEP_FILE,      /* an empty file to mount on, likewise */
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
    dev_t device_number;  /* identity of what was checked */
    ino_t inode;
    int checked;          /* BIND of a place: its descriptor, borrowed from the resolved policy; else -1 */
    int tree;             /* BIND by a privileged caller: the detached mount, made by the supervisor; else -1 */
    bool idmapped;        /* … to be shown as owned by the cell */
    uint64_t landlock;    /* rights on it; 0: no rule of its own */
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

struct cb_plan {
    struct cb_resolved *resolved;
    bool privileged;            /* the caller is root: the cell runs as an id that nobody uses */
    unsigned inside_uid, inside_gid, outside_uid, outside_gid;

    struct cb_step *steps;
    size_t step_count;
    uint64_t scratch_size;
    char *home;                 /* of the cell */
    char *directory;            /* where the program starts */

    int landlock_abi;
    uint64_t landlock_handled;
    uint64_t landlock_scoped;
    struct cb_filter filter;
    struct cb_guard guard;
    struct cb_filter guard_filter; /* empty when nothing is guarded */

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
};
#ifdef CELLBLOCK_TEST_HOOKS
#define cb_layer_on(plan, layer) (!((plan)->off & (layer)))
#else
#define cb_layer_on(plan, layer) ((void)(plan), true)
#endif

int cb_plan_make(const cellblock_policy *policy, const struct cellblock_options *options, struct cb_plan **plan,
                 cellblock_error **error);
void cb_plan_free(struct cb_plan *plan);

/* For `cellblock run --plan`: everything above, for a person. */
json_t *cb_plan_json(const struct cb_plan *plan);
/* For results: what was requested and what is enforced. */
json_t *cb_plan_report(const struct cb_plan *plan);

/* Parts of the planning, one file each. */
int cb_plan_mounts(struct cb_plan *plan, cellblock_error **error);
int cb_plan_landlock(struct cb_plan *plan, cellblock_error **error);
int cb_plan_environment(struct cb_plan *plan, const struct cellblock_options *options, const struct cb_context *context,
                        cellblock_error **error);
int cb_plan_limits(struct cb_plan *plan, cellblock_error **error);
int cb_plan_guard(struct cb_plan *plan, cellblock_error **error);
