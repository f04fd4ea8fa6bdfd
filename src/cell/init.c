/* Pid 1 of the cell, after the program was started: reaps whatever ends up with it, passes on signals that come from
 * outside, and ends when the program ends or the supervisor goes away. When it exits, for whatever reason, the kernel
 * kills every process left in the pid namespace before the supervisor's wait returns.
 *
 * It has no capabilities, can't be traced, holds the wire, a signalfd and the cell's terminal if it has one, and takes
 * no input from the code: a signal that was sent from inside the cell is dropped. */
#include "cell/cell.h"

#include "base/missing.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WIRE = 0, SIGNALS = 1 };

/* What a kernel or an outer filter can refuse is tried before the program exists: nothing runs unless it works. The
 * program inherits what is given up here. */
int cb_cell_init_prepare(struct cb_cell_state *state)
{
    sigset_t all;
    sigfillset(&all);
    if (cb_cell_no_new_privs(state) < 0 || cb_cell_drop_capabilities(state) < 0)
        return -1;
    state->signals = signalfd(-1, &all, SFD_CLOEXEC);
    return state->signals < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 ? cb_cell_fail(state, CB_STAGE_INIT, 0) : 0;
}

_Noreturn void cb_cell_leave(struct cb_cell_state *state, int status)
{
    if (state->plan->tier == CB_TIER_LANDLOCK)
        cb_warden_clean_up(state);
    _exit(status);
}

/* Keeps the descriptors that it needs, and nothing else. */
static int settle(struct cb_cell_state *state)
{
    int wire = state->entry->wire;
    int *const kept[] = {[WIRE] = &wire, [SIGNALS] = &state->signals, &state->terminal, &state->children,
                         &state->private};
    int *moved[sizeof kept / sizeof *kept], high[sizeof kept / sizeof *kept], count = 0;
    if (chdir("/") < 0)
        return -1;
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        if (*kept[i] < 0)
            continue;
        moved[count] = kept[i];
        if ((high[count++] = fcntl(*kept[i], F_DUPFD_CLOEXEC, 10)) < 0)
            return -1;
    }
    for (int i = 0; i < count; i++)
        if (dup2(high[i], i) < 0)
            return -1;
    for (int i = 0; i < count; i++)
        *moved[i] = i;
    return cb_cell_close_from((unsigned)count);
}

/* Returns true, with its status, when the program itself has ended. */
static bool reap(struct cb_cell_state *state, pid_t program, int *program_status)
{
    bool ended = false;
    int status;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG | WUNTRACED)) > 0;) {
        if (pid != program)
            continue;
        ended = !WIFSTOPPED(status);
        if (ended) {
            *program_status = status;
        } else if (cb_cell_terminal_stopped(state, program, WSTOPSIG(status))) {
            const struct cb_message message = {.kind = CB_MESSAGE_ASKED};
            cb_wire_send(WIRE, &message, -1);
        }
    }
    return ended;
}

/* How many processes and threads were started: the kernel tells the last id that it gave out in this pid namespace. */
static int count_started(void)
{
    char text[128];
    int fd = open("/proc/loadavg", O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof text);
    int last = 0;
    for (ssize_t i = 0; i < length; i++)
        last = text[i] == ' ' ? 0 : text[i] >= '0' && text[i] <= '9' ? last * 10 + (text[i] - '0') : last;
    return last > 1 ? last - 1 : 1; /* without init itself */
}

static void forward(struct cb_cell_state *state, pid_t program, const struct signalfd_siginfo *info)
{
    /* Whoever is outside our pid namespace has number 0. In tier landlock the code can't signal us at all. */
    bool user = info->ssi_code == SI_USER && (info->ssi_pid == 0 || state->plan->tier == CB_TIER_LANDLOCK);
    bool from_outside = user || info->ssi_code == SI_KERNEL;
    if (!from_outside)
        return;
    /* The group, as a terminal would; the program alone if it has left its group. */
    if (kill(-program, (int)info->ssi_signo) < 0)
        kill(program, (int)info->ssi_signo);
    cb_cell_terminal_signalled(state, program, (int)info->ssi_signo);
}

/* The supervisor wants a socket; or it is gone, or says "stop". */
static void obey(struct cb_cell_state *state)
{
    struct cb_message message;
    if (cb_wire_receive(WIRE, &message) < 0 || message.kind != CB_MESSAGE_SOCKET)
        cb_cell_leave(state, 127);
    cb_cell_give_socket(WIRE, message.detail);
}

_Noreturn void cb_cell_init(struct cb_cell_state *state, pid_t program)
{
    struct cb_message message = {.kind = CB_MESSAGE_STARTED};
    if (settle(state) < 0) {
        cb_cell_fail(state, CB_STAGE_INIT, 0);
        cb_wire_send(state->entry->wire, &state->failure, -1);
        cb_cell_leave(state, 127); /* and the program with us */
    }
    if (cb_wire_send(WIRE, &message, -1) < 0) {
        cb_cell_fail(state, CB_STAGE_INIT, 0);
        cb_wire_send(WIRE, &state->failure, -1);
        cb_cell_leave(state, 127);
    }
    for (;;) {
        struct pollfd wait[] = {{.fd = WIRE, .events = POLLIN}, {.fd = SIGNALS, .events = POLLIN}};
        if (poll(wait, 2, -1) < 0 && errno != EINTR)
            cb_cell_leave(state, 127);
        if (wait[0].revents)
            obey(state);
        struct signalfd_siginfo info;
        if (!(wait[1].revents & POLLIN) || read(SIGNALS, &info, sizeof info) != sizeof info)
            continue;
        if (info.ssi_signo != SIGCHLD) {
            forward(state, program, &info);
        } else if (reap(state, program, &message.status)) {
            message.kind = CB_MESSAGE_ENDED;
            message.detail = state->plan->tier == CB_TIER_NAMESPACES ? count_started() : 0;
            cb_wire_send(WIRE, &message, -1);
            cb_cell_leave(state, 0);
        }
    }
}
