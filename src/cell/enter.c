/* Entering the cell: what happens between the clone and the program, in this order, and why.
 *
 * Pid 1 (init), holding every capability over its own new namespaces and none outside:
 *   ids         map one id; drop supplementary groups where that is allowed; become that id
 *   mounts      assemble a private root from the plan (the host's tree is still visible, so /proc can be mounted and
 *               sources be opened and compared with what the supervisor checked), noting Landlock rules on the way
 *   pivot       make it the root and let go of the old one: from here a path outside the plan does not exist
 *   network     bring up loopback, the only interface
 *   privileges  no_new_privs, then all capability sets, the bounding set and securebits: pid 2 inherits that
 *   clone       the program's process, sharing our memory until it executes (no second copy of anything)
 * Pid 2 (the program), in its own session, so that signals to a process group and terminal tricks stay inside:
 *   Landlock → guard → descriptors → limits → starting directory → seccomp → exec
 *   Limits come after the descriptors: we hold more of them for a moment than the program may. Seccomp is last: nothing
 *   before it needs to be allowed by it, apart from exec.
 * Pid 1 stays as the reaper (init.c).
 *
 * Any failure is sent to the supervisor with stage, object and errno, and ends the cell: there is no path on from here
 * without the layer that failed. */
#include "cell/cell.h"

#include "base/missing.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* The program's process, on a stack of its own in our memory. Returns only on failure. */
static int become_program(void *data)
{
    struct cb_cell_state *state = data;
    const struct cb_plan *plan = state->plan;
    if (cb_layer_on(plan, CB_OFF_SESSION) && setsid() < 0)
        cb_cell_fail(state, CB_STAGE_SESSION, 0);
    else if (cb_cell_landlock_stdio(state) == 0 && cb_cell_landlock_enforce(state) == 0 && cb_cell_guard(state) == 0 &&
             cb_cell_stdio(state) == 0 && cb_cell_limits(state) == 0) {
        if (chdir(plan->directory) < 0) {
            cb_cell_fail(state, CB_STAGE_DIRECTORY, 0);
        } else {
            sigset_t none; /* no signal is blocked for the program, whatever the caller blocks for itself */
            sigemptyset(&none);
            sigprocmask(SIG_SETMASK, &none, NULL);
            if (cb_cell_filter(state) == 0) {
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
        }
    }
    _exit(127);
}

_Noreturn static void give_up(const struct cb_cell_state *state)
{
    cb_wire_send(state->entry->wire, &state->failure, -1);
    _exit(127);
}

_Noreturn void cb_cell_enter(const struct cb_entry *entry)
{
    struct cb_cell_state state = {.plan = entry->plan, .entry = entry, .ruleset = -1, .listener = -1, .signals = -1};
    close(entry->peer);
    prctl(PR_SET_NAME, "cellblock-init");
    /* Ignored by the caller, the first would hide the program's end from us, the second would surprise the program. */
    signal(SIGCHLD, SIG_DFL);
    signal(SIGPIPE, SIG_DFL);
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* while we wait for the ids; changing them clears it */
    if (cb_cell_ids(&state) < 0)
        give_up(&state);
    prctl(PR_SET_PDEATHSIG, entry->die_with_parent ? SIGKILL : 0);
    if (cb_cell_landlock_begin(&state) < 0 || cb_cell_mounts(&state) < 0 ||
        cb_cell_network(&state) < 0 || cb_cell_init_prepare(&state) < 0)
        give_up(&state);

    char stack[16 * 1024] __attribute__((aligned(16))); /* on the stack of the caller's thread, which may be small */
    pid_t program = clone(become_program, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, &state);
    if (program < 0) {
        cb_cell_fail(&state, CB_STAGE_PROGRAM, 0);
        give_up(&state);
    }
    if (state.failure.kind == CB_MESSAGE_FAILED)
        give_up(&state);
    cb_cell_init(&state, program);
}
