/* See terminal.h. Runs in the supervisor, with the caller's rights, from its event loop.
 *
 *   caller's terminal ──► in ──► ours ═ (pseudo-terminal) ═ the program's
 *                     ◄── out ◄──
 *
 * Output is relayed from the start. Input only once the program is in the foreground of its own terminal (from the
 * start if the caller says so, else when it asks: see cell/terminal.c), and only while the caller is in the foreground
 * of its. Elsewhere the kernel would stop us for reading, and the code could have its own supervisor stopped by asking.
 * For the same reason output is held back while we are in the background of a terminal that stops those who write there
 * (stty tostop). Nobody tells a process that it was brought to the foreground, so we look now and then while something
 * waits for that.
 *
 * The caller's terminal is used through a description of our own, which does not block: the flags of the caller's are
 * shared with its shell and all jobs there. Its settings are never changed here; a caller that wants single keys to get
 * through sets it up for that. Lines are ended by the cell's terminal (CR LF). If the caller's adds a CR as well, the
 * first is taken out. */
#include "supervisor/terminal.h"

#include "base/cleanup.h"
#include "base/error.h"
#include "base/missing.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/timerfd.h>

enum { LOOK_AGAIN_MS = 200 };

struct cb_terminal {
    struct cb_terminal_start start;
    int keyboard, screen;    /* of the caller's terminal; keyboard may be -1 */
    int into, from;          /* both are our side of the cell's: one to write, one to read, as each is watched apart */
    int timer;
    struct cb_pump in, out;
    bool asked;              /* the program wants input and waits for it */
    bool relays;             /* … and gets it */
    bool in_waits, out_waits; /* for the caller to come to the foreground */
    bool no_more;            /* input is over */
    bool held;               /* a CR that the next byte decides about */
};

/* ---- The caller's terminal ---- */

bool cb_terminal_may_be(int fd)
{
    struct termios settings;
    return tcgetattr(fd, &settings) == 0 || errno != ENOTTY;
}

/* One terminal may be open under several names (/dev/tty); and one number belong to several, as each devpts counts for
 * itself. */
static bool same_terminal(int a, int b)
{
    const dev_t alias = makedev(5, 0);
    unsigned number_a, number_b;
    struct stat found_a, found_b;
    if (ioctl(a, TIOCGDEV, &number_a) < 0 || ioctl(b, TIOCGDEV, &number_b) < 0 || number_a != number_b ||
        fstat(a, &found_a) < 0 || fstat(b, &found_b) < 0)
        return false;
    return found_a.st_rdev == alias || found_b.st_rdev == alias ||
           (found_a.st_dev == found_b.st_dev && found_a.st_ino == found_b.st_ino);
}

static int open_again(int fd)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    /* The second is for a terminal that belongs to somebody else (su), if it is our controlling one. */
    const char *const names[] = {path, "/dev/tty"};
    for (size_t i = 0; i < 2; i++) {
        cb_autofd int opened = open(names[i], O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
        if (opened >= 0 && same_terminal(opened, fd))
            return cb_steal_fd(&opened);
    }
    return -1;
}

/* What of the caller's can be used in this direction, or -1. */
static int duplicate(const int given[3], const int streams[3], int unfit)
{
    for (int i = 0; i < 3; i++)
        if (streams[i] == CB_STREAM_TERMINAL && (fcntl(given[i], F_GETFL) & O_ACCMODE) != unfit)
            return fcntl(given[i], F_DUPFD_CLOEXEC, 3);
    return -1;
}

static int open_caller(struct cb_terminal *terminal, int first, const int given[3], const int streams[3])
{
    terminal->screen = open_again(given[first]);
    if (terminal->screen >= 0) {
        terminal->keyboard = fcntl(terminal->screen, F_DUPFD_CLOEXEC, 3);
        return terminal->keyboard < 0 ? -1 : 0;
    }
    terminal->keyboard = duplicate(given, streams, O_WRONLY);
    terminal->screen = duplicate(given, streams, O_RDONLY);
    if (terminal->screen < 0) /* opened for reading only: there is nowhere to show an echo */
        terminal->screen = open("/dev/null", O_WRONLY | O_CLOEXEC);
    return terminal->screen < 0 ? -1 : 0;
}

/* One that is not our controlling terminal stops nobody. */
static bool in_foreground(const struct cb_terminal *terminal)
{
    pid_t group = tcgetpgrp(terminal->screen);
    return group < 0 || group == getpgrp();
}

static bool may_write(const struct cb_terminal *terminal)
{
    struct termios now;
    return tcgetattr(terminal->screen, &now) < 0 || !(now.c_lflag & TOSTOP) || in_foreground(terminal);
}

int cb_terminal_prepare(struct cellblock_cell *cell, const int given[3], bool foreground, int streams[3],
                        cellblock_error **error)
{
    struct cb_terminal_start start = {.foreground = foreground};
    int first = -1;
    for (int i = 0; i < (cell->collect ? 1 : 3); i++) {
        if (given[i] < 0 || (first < 0 && tcgetattr(given[i], &start.settings) < 0))
            continue;
        if (first < 0)
            first = i;
        /* Another terminal than the first is written to as a file would be. */
        if (i == first || same_terminal(given[i], given[first]))
            streams[i] = CB_STREAM_TERMINAL;
    }
    if (first < 0)
        return 0;
    struct cb_terminal *terminal = cell->terminal = calloc(1, sizeof *terminal);
    if (!terminal)
        return cb_fail_memory(error);
    terminal->keyboard = terminal->screen = terminal->into = terminal->from = terminal->timer = -1;
    terminal->in = terminal->out = (struct cb_pump)CB_PUMP_INIT;
    terminal->start = start;
    terminal->relays = foreground;
    ioctl(given[first], TIOCGWINSZ, &terminal->start.size);
    return open_caller(terminal, first, given, streams) < 0 ? cb_fail_errno(error, "opening the caller's terminal") : 0;
}

const struct cb_terminal_start *cb_terminal_start(const struct cb_terminal *terminal)
{
    return terminal ? &terminal->start : NULL;
}

/* ---- Relaying ---- */

/* Takes the CR out of CR LF if the caller's terminal is going to add one. A CR at the very end waits for what comes. */
static size_t adapt(struct cb_pump *pump, char *data, size_t length)
{
    struct cb_terminal *terminal = pump->owner;
    struct termios now;
    bool adds = tcgetattr(terminal->screen, &now) == 0 && now.c_oflag & OPOST && now.c_oflag & ONLCR;
    if (terminal->held) {
        memmove(data + 1, data, length++);
        data[0] = '\r';
        terminal->held = false;
    }
    if (!adds)
        return length;
    size_t kept = 0;
    for (size_t i = 0; i < length; i++) {
        terminal->held = data[i] == '\r' && i + 1 == length;
        if (!terminal->held && !(data[i] == '\r' && data[i + 1] == '\n'))
            data[kept++] = data[i];
    }
    return kept;
}

static void start_input(struct cellblock_cell *cell)
{
    struct cb_terminal *terminal = cell->terminal;
    if (terminal->no_more || terminal->in.open || terminal->keyboard < 0)
        return;
    terminal->in = (struct cb_pump){.from = terminal->keyboard, .to = terminal->into, .limit = CB_UNLIMITED};
    if (cb_pump_open(&terminal->in, cell->epoll) < 0) {
        cb_pump_close(&terminal->in);
        terminal->no_more = true;
    }
}

int cb_terminal_open(struct cellblock_cell *cell, int ours, cellblock_error **error)
{
    struct cb_terminal *terminal = cell->terminal;
    cb_autofd int fd = ours;
    if (!terminal || terminal->from >= 0 || fd < 0)
        return cb_fail(error, CELLBLOCK_ERROR_SETUP, EPROTO, "the cell while it was being set up");
    terminal->from = cb_steal_fd(&fd);
    terminal->into = fcntl(terminal->from, F_DUPFD_CLOEXEC, 3);
    terminal->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    const struct cb_plan *plan = cell->plan;
    terminal->out = (struct cb_pump){.from = terminal->from,
                                     .to = terminal->screen,
                                     .adapt = adapt,
                                     .owner = terminal,
                                     .limit = plan->output_given ? plan->output : CB_UNLIMITED};
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = &terminal->timer};
    if (terminal->into < 0 || terminal->timer < 0 || fcntl(terminal->from, F_SETFL, O_RDWR | O_NONBLOCK) < 0 ||
        epoll_ctl(cell->epoll, EPOLL_CTL_ADD, terminal->timer, &event) < 0 ||
        cb_pump_open(&terminal->out, cell->epoll) < 0)
        return cb_fail_errno(error, "watching the cell's terminal");
    return 0;
}

/* Nobody looks at the caller's terminal any more: the cell's hangs up, and the kernel sends SIGHUP there. */
static void hang_up(struct cb_terminal *terminal)
{
    cb_pump_close(&terminal->in);
    cb_pump_close(&terminal->out);
    cb_close_cleanup(&terminal->into);
    cb_close_cleanup(&terminal->from);
    terminal->into = terminal->from = -1;
    terminal->no_more = true;
}

/* Moves bytes with the signals blocked by which the kernel would stop us, if we lost the foreground just now. */
static int run_pump(struct cb_pump *pump)
{
    sigset_t stopping, before;
    sigemptyset(&stopping);
    sigaddset(&stopping, SIGTTIN);
    sigaddset(&stopping, SIGTTOU);
    pthread_sigmask(SIG_BLOCK, &stopping, &before);
    int passed = cb_pump_run(pump);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return passed;
}

static void pause_pump(const struct cellblock_cell *cell, const struct cb_pump *pump)
{
    epoll_ctl(cell->epoll, EPOLL_CTL_DEL, pump->from, NULL);
    epoll_ctl(cell->epoll, EPOLL_CTL_DEL, pump->to, NULL);
}

static void look_later(const struct cb_terminal *terminal)
{
    const struct itimerspec when = {.it_value.tv_nsec = LOOK_AGAIN_MS * 1000000L};
    timerfd_settime(terminal->timer, 0, &when, NULL);
}

static bool hung_up(int fd)
{
    struct pollfd state = {.fd = fd};
    return poll(&state, 1, 0) > 0;
}

/* Ctrl-D in a terminal that is not raw, or the end of it. Either is an end of file inside; after the first, more may
 * come. */
static void end_of_input(struct cellblock_cell *cell)
{
    struct cb_terminal *terminal = cell->terminal;
    struct termios inside;
    if (!in_foreground(terminal)) { /* only refused */
        terminal->in_waits = true;
        look_later(terminal);
        return;
    }
    if (tcgetattr(terminal->into, &inside) == 0 && write(terminal->into, &inside.c_cc[VEOF], 1) < 0)
        terminal->no_more = true; /* so full that the program does not read it anyway, or gone */
    if (hung_up(terminal->keyboard) || hung_up(terminal->into))
        terminal->no_more = true;
    start_input(cell);
}

static void run_input(struct cellblock_cell *cell)
{
    struct cb_terminal *terminal = cell->terminal;
    if (!terminal->in.open)
        return;
    terminal->in_waits = !in_foreground(terminal);
    if (terminal->in_waits) {
        pause_pump(cell, &terminal->in);
        look_later(terminal);
        return;
    }
    run_pump(&terminal->in);
    if (!terminal->in.open)
        end_of_input(cell);
}

static int run_output(struct cellblock_cell *cell)
{
    struct cb_terminal *terminal = cell->terminal;
    if (!terminal->out.open)
        return 0;
    terminal->out_waits = !may_write(terminal);
    if (terminal->out_waits) {
        pause_pump(cell, &terminal->out);
        look_later(terminal);
        return 0;
    }
    int passed = run_pump(&terminal->out);
    if (passed)
        return 1; /* no SIGHUP now: it is this that ends the cell */
    if (!terminal->out.open) {
        if (terminal->held && write(terminal->screen, "\r", 1) < 0)
            terminal->held = false;
        hang_up(terminal);
    }
    return 0;
}

/* ---- Events ---- */

bool cb_terminal_owns(const struct cb_terminal *terminal, const void *token)
{
    return terminal && (token == &terminal->timer || token == &terminal->in || token == &terminal->out);
}

int cb_terminal_event(struct cellblock_cell *cell, const void *token)
{
    struct cb_terminal *terminal = cell->terminal;
    uint64_t ticks;
    if (token == &terminal->timer) {
        if (read(terminal->timer, &ticks, sizeof ticks) == sizeof ticks)
            cb_terminal_look(cell);
        return terminal->out_waits ? run_output(cell) : 0;
    }
    if (token == &terminal->out)
        return run_output(cell);
    run_input(cell);
    return 0;
}

/* A job that was started in the background may have met its shell editing a line. What it was given then is put right
 * before it first reads, if it has not set up its terminal itself. */
static void take_settings(struct cb_terminal *terminal)
{
    struct termios inside = {0}, now = {0};
    if (tcgetattr(terminal->into, &inside) == 0 && tcgetattr(terminal->screen, &now) == 0 &&
        memcmp(&inside, &terminal->start.settings, sizeof inside) == 0)
        tcsetattr(terminal->into, TCSANOW, &now);
}

void cb_terminal_look(struct cellblock_cell *cell)
{
    struct cb_terminal *terminal = cell->terminal;
    struct winsize size;
    if (!terminal || terminal->into < 0)
        return;
    if (ioctl(terminal->screen, TIOCGWINSZ, &size) == 0)
        ioctl(terminal->into, TIOCSWINSZ, &size); /* a new size is told to the program by the kernel */
    bool foreground = in_foreground(terminal);
    if (terminal->asked && !terminal->relays && foreground) {
        terminal->relays = true;
        take_settings(terminal);
        start_input(cell);
        if (cell->pidfd >= 0)
            cb_sys_pidfd_send_signal(cell->pidfd, SIGCONT, NULL, 0);
    } else if (terminal->relays) {
        start_input(cell);
        if (foreground == terminal->in_waits)
            run_input(cell);
    } else if (terminal->asked) {
        look_later(terminal);
    }
}

void cb_terminal_asked(struct cellblock_cell *cell)
{
    if (!cell->terminal)
        return;
    cell->terminal->asked = true;
    cb_terminal_look(cell);
}

void cb_terminal_ended(struct cellblock_cell *cell)
{
    if (!cell->terminal)
        return;
    cell->terminal->no_more = true;
    cb_pump_close(&cell->terminal->in);
}

int cb_terminal_last(struct cellblock_cell *cell)
{
    if (!cell->terminal)
        return 0;
    cb_terminal_ended(cell);
    cell->terminal->out.last = true;
    return run_output(cell);
}

bool cb_terminal_busy(const struct cb_terminal *terminal)
{
    return terminal && terminal->out.open;
}

bool cb_terminal_reads(const struct cb_terminal *terminal)
{
    return terminal && terminal->in.open && !terminal->in_waits;
}

void cb_terminal_free(struct cb_terminal *terminal)
{
    if (!terminal)
        return;
    hang_up(terminal);
    cb_close_cleanup(&terminal->keyboard);
    cb_close_cleanup(&terminal->screen);
    cb_close_cleanup(&terminal->timer);
    free(terminal);
}
