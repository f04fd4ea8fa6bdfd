/* Pid 1 of the cell, after the program was started: reaps whatever ends up with it, passes on signals that come from
 * outside, and ends when the program ends or the supervisor goes away. When it exits, for whatever reason, the kernel
 * kills every process left in the pid namespace before the supervisor's wait returns.
 *
 * It has no capabilities, can't be traced, holds two descriptors (the wire and a signalfd) and takes no input from the
 * code: a signal that was sent from inside the cell is dropped. */
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

/* Keeps the two descriptors that init needs, and nothing else. */
static int settle(struct cb_cell_state *state)
{
    int wire = fcntl(state->entry->wire, F_DUPFD_CLOEXEC, 10), signals = fcntl(state->signals, F_DUPFD_CLOEXEC, 10);
    return wire < 0 || signals < 0 || dup2(wire, WIRE) < 0 || dup2(signals, SIGNALS) < 0 ||
                   cb_sys_close_range(SIGNALS + 1, ~0U, 0) < 0 || chdir("/") < 0
               ? -1
               : 0;
}

/* Returns true, with its status, when the program itself has ended. */
static bool reap(pid_t program, int *program_status)
{
    bool ended = false;
    int status;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;)
        if (pid == program) {
            *program_status = status;
            ended = true;
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

static void forward(pid_t program, const struct signalfd_siginfo *info)
{
    bool from_outside = info->ssi_code == SI_USER ? info->ssi_pid == 0 : info->ssi_code == SI_KERNEL;
    if (!from_outside)
        return;
    /* The group, as a terminal would; the program alone if it has left its group. */
    if (kill(-program, (int)info->ssi_signo) < 0)
        kill(program, (int)info->ssi_signo);
}

_Noreturn void cb_cell_init(struct cb_cell_state *state, pid_t program)
{
    struct cb_message message = {.kind = CB_MESSAGE_STARTED};
    if (settle(state) < 0 || cb_wire_send(WIRE, &message, -1) < 0)
        _exit(127); /* and the program with us */
    for (;;) {
        struct pollfd wait[] = {{.fd = WIRE, .events = POLLIN}, {.fd = SIGNALS, .events = POLLIN}};
        if (poll(wait, 2, -1) < 0 && errno != EINTR)
            _exit(127);
        if (wait[0].revents)
            _exit(127); /* the supervisor is gone: it never sends anything here */
        struct signalfd_siginfo info;
        if (!(wait[1].revents & POLLIN) || read(SIGNALS, &info, sizeof info) != sizeof info)
            continue;
        if (info.ssi_signo != SIGCHLD) {
            forward(program, &info);
        } else if (reap(program, &message.status)) {
            message.kind = CB_MESSAGE_ENDED;
            message.detail = count_started();
            cb_wire_send(WIRE, &message, -1);
            _exit(0);
        }
    }
}
