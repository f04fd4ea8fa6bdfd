/* The outside of a cell: starts it, watches it, answers it, ends it. Trusts no byte that comes from inside. One thread,
 * driven by cellblock_dispatch() from whatever event loop the caller has. */
#pragma once

#include "cell/cell.h"
#include "plan/plan.h"
#include "supervisor/pump.h"

#include <sys/resource.h>
#include <time.h>

enum cb_end {
    CB_END_NONE, CB_END_EXITED, CB_END_SIGNALED, CB_END_TIMEOUT, CB_END_CANCELLED, CB_END_OUTPUT, CB_END_MEMORY,
    CB_END_PROCESSES, CB_END_DISK,
    CB_END_NETWORK,
};

/* A refusal that the supervisor made itself. */
struct cb_denial {
    const char *code;
    char *object;
    const struct cb_file_rule *rule;
    char *details;          /* of one that the relay made: JSON; else NULL */
    uint64_t count;
};

/* What the cell used at most, as far as cgroup and watchdog saw it; 0: not known. */
struct cb_peaks {
    uint64_t memory;        /* bytes, all processes and memory file systems together */
    uint64_t processes;     /* at the same time */
    uint64_t cpu_us;
    uint64_t written;       /* bytes, to disk */
    uint64_t inodes;        /* made */
};

/* What was relayed to and from the network. */
struct cb_traffic {
    bool unknown;           /* the relay did not come to say it; or in tier landlock, where it carries nothing */
    uint64_t connections, sent, received;
};

struct cellblock_cell {
    struct cb_plan *plan;
    int epoll;
    int pidfd;              /* init; -1 once it was waited for */
    int wire;
    int timer;
    int listener;           /* of the guard, or -1 */
    int root;               /* the root directory as the cell sees it */
    int shm;                /* … and its /dev/shm, once it was needed; else -1 */
    uint64_t ipc_memory;    /* bytes that System V objects may take, of those that were asked for */
    pid_t init_pid;         /* of the cell's first process, for what takes no descriptor */
    struct cb_pump pumps[3];
    struct cb_denial *denials;
    size_t denial_count;
    enum cb_end reason;     /* why we ended it, when we did */
    int broken;             /* errno: a call of the cell could not be answered, and would wait for ever */
    const char *limit;      /* … and the policy's word for the limit behind it ("cpu_time"), or NULL */
    struct cb_cgroup *cgroup; /* or NULL */
    struct cb_watchdog *watchdog; /* or NULL: nothing to watch */
    struct cb_terminal *terminal; /* of the cell's own, or NULL */
    struct cb_egress *egress; /* the way out, or NULL */
    struct cb_connecting *connecting; /* tier landlock: calls of connect() that wait for the outside, */
    int broker_timer;       /* … and when to look at them; -1 before the first */
    struct cb_peaks peaks;
    bool status_known;
    int status;             /* as from wait(), reported by init */
    int processes;          /* started in all, likewise; 0 when init could not say */
    bool collect;           /* output goes into the result */
    bool gone;              /* every process of the cell is gone */
    struct rusage usage;
    struct timespec started, ended;
    struct cb_remote *remote; /* the run is in a helper process; see remote.c */
};

/* Starting (spawn.c): returns with the program running, or with the step that failed. */
int cb_spawn(struct cellblock_cell *cell, const int stdio[3], cellblock_error **error);

/* Receives from the cell, with a descriptor or -1. Returns 0, or -1 with errno. */
int cb_wire_take(int wire, struct cb_message *message, int *fd, int flags);

/* Ends every process of the cell. `reason` and `limit` count if nothing else has ended it before. */
void cb_cell_end(struct cellblock_cell *cell, enum cb_end reason, const char *limit);

/* Words for a failed step (explain.c). */
int cb_explain_failure(const struct cb_plan *plan, const struct cb_message *failure, cellblock_error **error);

/* Notes a refusal, or counts a further one of the same (denials.c). */
void cb_denial_note(struct cellblock_cell *cell, const char *code, const char *object, const struct cb_file_rule *rule);
/* Notes refusals that the relay made. Texts of the relay's, which are not trusted to be well-formed. */
void cb_denial_network(struct cellblock_cell *cell, const char *code, const char *object, const char *details,
                       uint64_t count);
json_t *cb_denials_json(const struct cellblock_cell *cell);

/* Removes what the policy wants swept, once every process of the cell is gone (sweep.c). */
void cb_sweep(struct cellblock_cell *cell);

/* Answers one notification (notify.c). Never blocks; a notification that can't be answered is refused. */
void cb_notify_answer(struct cellblock_cell *cell);

/* The result of a run that has ended (result.c). */
int cb_result_make(struct cellblock_cell *cell, cellblock_result **result, cellblock_error **error);
