/* Entering the cell: what happens between the clone and the program, in this order, and why.
 *
 * Pid 1 (init), holding every capability over its own new namespaces and none outside:
 *   ids         map one id; drop supplementary groups where that is allowed; become that id
 *   mounts      assemble a private root from the plan (the host's tree is still visible, so /proc can be mounted and
 *               sources be opened and compared with what the supervisor checked), noting Landlock rules on the way
 *   pivot       make it the root and let go of the old one: from here a path outside the plan does not exist
 *   network     bring up loopback, the only interface
 *   terminal    if the caller's streams are one: make one of the cell's own, and a session for it (terminal.c)
 *   privileges  no_new_privs, then all capability sets, the bounding set and securebits: pid 2 inherits that
 *   clone       the program's process, sharing our memory until it executes (no second copy of anything)
 * Pid 2 (the program), in a session of the cell's own, so that signals to a process group and terminal tricks stay
 * inside:
 *   Landlock → answered calls → descriptors → limits → starting directory → seccomp → exec
 *   Limits come after the descriptors: we hold more of them for a moment than the program may. Seccomp is last: nothing
 *   before it needs to be allowed by it, apart from exec.
 * Pid 1 stays as the reaper (init.c). In tier landlock there are no namespaces: the warden (warden.c) stands in the
 * place of init, and the program does the same as here.
 *
 * Any failure is sent to the supervisor with stage, object and errno, and ends the cell: there is no path on from here
 * without the layer that failed. */
#include "cell/cell.h"

#include "base/missing.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* When the machine runs out of memory the kernel takes cells before anything else. If it can't be said, it is as it was.
 * Said by the cell's first process while it may still open that file, and inherited by the program. */
static void be_first_victim(struct cb_cell_state *state)
{
    state->score = open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC);
    state->score_length = state->score < 0 ? -1 : read(state->score, state->score_before, sizeof state->score_before);
    if (state->score_length > 0 && write(state->score, "1000", 4) < 0)
        errno = 0;
}

/* The warden has to end the others: it is not to be the first. */
static void be_no_victim(const struct cb_cell_state *state)
{
    if (state->plan->tier == CB_TIER_LANDLOCK && state->score_length > 0 &&
        write(state->score, state->score_before, (size_t)state->score_length) < 0)
        errno = 0;
}

/* Everything that the program's process does to itself before it is the program, in this order. */
static int lock_in(struct cb_cell_state *state)
{
    if (cb_cell_session(state) < 0 || cb_cell_landlock_stdio(state) < 0 || cb_cell_landlock_enforce(state) < 0 ||
        cb_cell_processors(state) < 0 || cb_cell_calls(state) < 0 || cb_cell_stdio(state) < 0 || cb_cell_limits(state) < 0)
        return -1;
    if (chdir(state->plan->directory) < 0)
        return cb_cell_fail(state, CB_STAGE_DIRECTORY, 0);
    sigset_t none; /* no signal is blocked for the program, whatever the caller blocks for itself */
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    return cb_cell_filter(state);
}

static void execute(struct cb_cell_state *state)
{
    const struct cb_plan *plan = state->plan;
    int failed = ENOENT;
    for (char **candidate = plan->candidates; *candidate; candidate++) {
        execve(*candidate, plan->argv, plan->envp);
        if (errno != ENOENT && errno != ENOTDIR)
            failed = errno;
        if (errno != ENOENT && errno != ENOTDIR && errno != EACCES)
            break;
    }
    errno = failed;
    cb_cell_fail(state, CB_STAGE_EXEC, 0);
}

/* The program's process, on a stack of its own in our memory. Returns only on failure. */
static int become_program(void *data)
{
    struct cb_cell_state *state = data;
    if (state->plan->tier == CB_TIER_LANDLOCK)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (lock_in(state) == 0)
        execute(state);
    _exit(127);
}

_Noreturn static void give_up(struct cb_cell_state *state)
{
    cb_wire_send(state->entry->wire, &state->failure, -1);
    cb_cell_leave(state, 127);
}

/* Tier namespaces. */
static int set_up_init(struct cb_cell_state *state)
{
    prctl(PR_SET_NAME, "cellblock-init");
    be_first_victim(state);
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* while we wait for the ids; changing them clears it */
    if (cb_cell_ids(state) < 0)
        return -1;
    prctl(PR_SET_PDEATHSIG, state->entry->die_with_parent ? SIGKILL : 0);
    return cb_cell_landlock_begin(state) < 0 || cb_cell_mounts(state) < 0 || cb_cell_network(state) < 0 ||
                   cb_cell_terminal(state) < 0 || cb_cell_init_prepare(state) < 0
               ? -1
               : 0;
}

/* Tier landlock. It must outlive the supervisor for a moment, to clean up: no parent-death signal. */
static int set_up_warden(struct cb_cell_state *state)
{
    prctl(PR_SET_NAME, "cellblock-warden");
    be_first_victim(state);
    if (cb_cell_wait_for_go(state) < 0)
        return -1;
    /* What ends the supervisor's process group must not end us with it. */
    if (setsid() < 0)
        return cb_cell_fail(state, CB_STAGE_SESSION, 0);
    return cb_warden_prepare(state) < 0 || cb_cell_landlock_begin(state) < 0 ||
                   cb_warden_private(state) < 0 || cb_cell_landlock_places(state) < 0 || cb_cell_terminal(state) < 0 ||
                   cb_cell_init_prepare(state) < 0 || cb_warden_fence(state) < 0
               ? -1
               : 0;
}

/* Handlers of the caller's must not run in the program's process, which shares our memory. A new kernel resets them
 * while it clones; what is ignored stays so, apart from two: the first would hide the program's end from us, the second
 * would surprise the program. */
static void reset_signals(void)
{
    for (int number = 1; number < NSIG; number++) {
        struct sigaction now;
        if (sigaction(number, NULL, &now) == 0 && now.sa_handler != SIG_IGN && now.sa_handler != SIG_DFL)
            signal(number, SIG_DFL);
    }
    signal(SIGCHLD, SIG_DFL);
    signal(SIGPIPE, SIG_DFL);
}

_Noreturn void cb_cell_enter(const struct cb_entry *entry)
{
    struct cb_cell_state state = {.plan = entry->plan, .entry = entry, .ruleset = -1, .listener = -1, .signals = -1,
                                  .terminal = -1, .children = -1, .private = -1};
    close(entry->peer);
    reset_signals();
    if ((entry->plan->tier == CB_TIER_LANDLOCK ? set_up_warden(&state) : set_up_init(&state)) < 0)
        give_up(&state);

    char stack[16 * 1024] __attribute__((aligned(16))); /* on the stack of the caller's thread, which may be small */
    pid_t program = clone(become_program, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, &state);
    if (program < 0) {
        cb_cell_fail(&state, CB_STAGE_PROGRAM, 0);
        give_up(&state);
    }
    be_no_victim(&state);
    if (state.failure.kind == CB_MESSAGE_FAILED)
        give_up(&state);
    cb_cell_init(&state, program);
}
