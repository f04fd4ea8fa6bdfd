/* A terminal of the cell's own, made when a standard stream of the caller's is one. The caller's never gets in: whoever
 * holds a terminal can change its settings, make it non-blocking for all who share it, and read what is typed there
 * after the program has ended.
 *
 *   made      by the cell's first process, once the root is in place and before privileges are dropped: from the cell's
 *             own devpts, or from the host's where there is no private root. The other side of it goes to the
 *             supervisor, which relays; nobody in the cell keeps that. The first process becomes the leader of a new
 *             session, with this as its controlling terminal.
 *   taken     by the program's process, in a process group of its own: in the foreground, or not
 *   asked for when the program reads, or changes settings, from the background: the kernel stops its group (SIGTTIN,
 *             SIGTTOU), the first process sees that and tells the supervisor, and SIGCONT from there means yes.
 *
 * That is why the program does not lead the session itself: the kernel stops a process group only while somebody of the
 * same session, outside the group, is there to let it go on. In the background, nothing is taken from the caller's
 * terminal that was meant for others: the pager in `cellblock run … | less`, or the shell. */
#include "cell/cell.h"

#include "base/missing.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* The program's side of the terminal whose other side is `ours`, with the caller's settings and size. */
static int open_peer(struct cb_cell_state *state, int ours)
{
    const struct cb_terminal_start *start = state->entry->terminal;
    int locked = 0;
    int peer = ours < 0 || ioctl(ours, TIOCSPTLCK, &locked) < 0
                   ? -1
                   : ioctl(ours, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
    return peer < 0 || tcsetattr(peer, TCSANOW, &start->settings) < 0 || ioctl(peer, TIOCSWINSZ, &start->size) < 0
               ? cb_cell_fail(state, CB_STAGE_TERMINAL, 0)
               : peer;
}

int cb_cell_terminal(struct cb_cell_state *state)
{
    const struct cb_terminal_start *start = state->entry->terminal;
    if (!start)
        return 0;
    int ours = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
    state->terminal = open_peer(state, ours);
    if (state->terminal < 0)
        return -1;
    /* By name it may be opened again, and no other terminal of the host's. */
    uint64_t rights = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_TRUNCATE |
                      LANDLOCK_ACCESS_FS_IOCTL_DEV;
    if (cb_cell_landlock_add(state, state->terminal, rights & state->plan->landlock_handled) < 0)
        return -1;
    if (cb_layer_on(state->plan, CB_OFF_SESSION) && ((getsid(0) != getpid() && setsid() < 0) || ioctl(state->terminal, TIOCSCTTY, 0) < 0))
        return cb_cell_fail(state, CB_STAGE_TERMINAL, 0);
    /* Ignored, these would turn a read from the background into an error. */
    signal(SIGTTIN, SIG_DFL);
    signal(SIGTTOU, SIG_DFL);
    state->foreground = start->foreground;
    const struct cb_message message = {.kind = CB_MESSAGE_TERMINAL};
    return cb_wire_send(state->entry->wire, &message, ours) < 0 ? cb_cell_fail(state, CB_STAGE_TERMINAL, 0)
                                                                : close(ours);
}

/* All signals are blocked in both processes: SIGTTOU would answer this from the background. */
static int bring_to_front(const struct cb_cell_state *state, pid_t group)
{
    return ioctl(state->terminal, TIOCSPGRP, &group);
}

int cb_cell_session(struct cb_cell_state *state)
{
    if (!cb_layer_on(state->plan, CB_OFF_SESSION))
        return 0;
    int failed = state->terminal < 0 ? setsid() < 0
                                     : setpgid(0, 0) < 0 || (state->foreground && bring_to_front(state, getpid()) < 0);
    return failed ? cb_cell_fail(state, CB_STAGE_SESSION, 0) : 0;
}

static void go_on(const struct cb_cell_state *state, pid_t program, bool in_front)
{
    pid_t group = getpgid(program);
    if (group > 0 && in_front)
        bring_to_front(state, group);
    if (group > 0)
        kill(-group, SIGCONT);
}

bool cb_cell_terminal_stopped(struct cb_cell_state *state, pid_t program, int number)
{
    bool uses = number == SIGTTIN || number == SIGTTOU;
    if (state->terminal < 0 || (!uses && number != SIGTSTP))
        return false;
    /* Ctrl-Z: there is no shell around that could let it go on later. */
    if (!uses || state->foreground) {
        go_on(state, program, uses);
        return false;
    }
    bool first = !state->asked;
    state->asked = true;
    return first;
}

/* Whatever the signal is: the program can act on it only if it runs. It stops again when it reads again. Whether it is
 * stopped, or about to, is not known for sure here. */
void cb_cell_terminal_signalled(struct cb_cell_state *state, pid_t program, int number)
{
    if (state->terminal < 0 || state->foreground)
        return;
    state->foreground = state->asked && number == SIGCONT;
    go_on(state, program, state->foreground);
}
