/* The person's terminal while a program runs in a cell.
 *
 * The program has a terminal of its own, which does what terminals do: it echoes, edits lines, turns Ctrl-C into a
 * signal for whoever is in its foreground. While keys are passed on to it (cellblock_reads_terminal), ours must do none
 * of that: raw mode. Its settings are put back at the end, whatever ended the program; only SIGKILL leaves us no chance.
 *
 * From the background we change nothing, as the settings are the shell's then. */
#include "cli/cli.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

void cb_terminal_find(struct cb_terminal_mode *mode)
{
    *mode = (struct cb_terminal_mode){.fd = -1};
    for (int fd = 2; fd >= 0; fd--)
        if (isatty(fd))
            mode->fd = fd;
    mode->lines = !isatty(STDOUT_FILENO);
}

/* In the foreground of it; or it is not our controlling terminal (`su -c`), and nobody's turn is known. */
static bool is_ours(const struct cb_terminal_mode *mode)
{
    pid_t group = mode->fd < 0 ? 0 : tcgetpgrp(mode->fd);
    return group < 0 || group == getpgrp();
}

bool cb_terminal_is_for_program(const struct cb_terminal_mode *mode)
{
    return mode->fd == STDIN_FILENO && !mode->lines && tcgetpgrp(mode->fd) == getpgrp();
}

static bool same(const struct termios *a, const struct termios *b)
{
    return a->c_iflag == b->c_iflag && a->c_oflag == b->c_oflag && a->c_cflag == b->c_cflag &&
           a->c_lflag == b->c_lflag && memcmp(a->c_cc, b->c_cc, sizeof a->c_cc) == 0;
}

static void make_raw(struct cb_terminal_mode *mode)
{
    struct termios now;
    if (!is_ours(mode) || tcgetattr(mode->fd, &now) < 0)
        return;
    mode->raw = mode->before = now;
    cfmakeraw(&mode->raw);
    if (mode->lines) /* other programs of a pipeline write to it too */
        mode->raw.c_oflag = mode->before.c_oflag;
    mode->is_raw = tcsetattr(mode->fd, TCSANOW, &mode->raw) == 0;
}

void cb_terminal_restore(struct cb_terminal_mode *mode)
{
    if (mode->is_raw && is_ours(mode))
        tcsetattr(mode->fd, TCSANOW, &mode->before);
    mode->is_raw = false;
}

void cb_terminal_follow(struct cb_terminal_mode *mode, bool reads)
{
    if (reads && !mode->is_raw)
        make_raw(mode);
    else if (!reads && mode->is_raw && !is_ours(mode))
        mode->is_raw = false; /* the shell has it now */
}

void cb_terminal_signal(struct cb_terminal_mode *mode, int number)
{
    struct termios now;
    if (number == SIGCONT && (tcgetattr(mode->fd, &now) < 0 || !same(&now, &mode->raw)))
        mode->is_raw = false; /* the shell has had it meanwhile */
    if (number != SIGTSTP)
        return;
    cb_terminal_restore(mode);
    sigset_t stop;
    sigemptyset(&stop);
    sigaddset(&stop, SIGTSTP);
    raise(SIGTSTP);
    sigprocmask(SIG_UNBLOCK, &stop, NULL); /* here we stop, if there is a shell that can let us go on */
    sigprocmask(SIG_BLOCK, &stop, NULL);
}
