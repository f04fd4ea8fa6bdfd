/* One cell as its caller sees it: start, a descriptor to poll, dispatch, wait, result.
 *
 * All that can happen arrives on one epoll descriptor: the wire (the program ended), the pidfd (every process of the
 * cell is gone), the timer, the guard's notifications and the pumps. A run has ended when the pidfd says so and every
 * pump has delivered what it holds. */
#include "supervisor/supervisor.h"

#include "base/cleanup.h"
#include "base/error.h"
#include "base/missing.h"
#include "built.h"
#include "supervisor/cgroup.h"
#include "supervisor/egress.h"
#include "supervisor/remote.h"
#include "supervisor/terminal.h"
#include "supervisor/watchdog.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/vfs.h>
#include <sys/wait.h>

/* After SIGTERM for a timeout, before SIGKILL. */
enum { GRACE_MS = 500 };

/* For the relay to end, which gives up delivering before that. */
enum { RELAY_MS = 8000 };

/* The same where it carries nothing, and may be waiting for what the code has left it with. */
enum { BROKER_MS = 1000 };

/* For a reader who does not read, once the cell was ended before its time. */
enum { DELIVERY_MS = 5000 };

static const uint64_t collected_by_default = 16 << 20;

/* In tier landlock there is no pid namespace whose end takes all with it: the warden is asked to do that. */
static void kill_all(struct cellblock_cell *cell)
{
    if (cell->pidfd < 0)
        return;
    const struct cb_message stop = {.kind = CB_MESSAGE_STOP};
    if (cell->plan->tier == CB_TIER_LANDLOCK)
        send(cell->wire, &stop, sizeof stop, MSG_DONTWAIT | MSG_NOSIGNAL); /* one that waits there already will do */
    else
        cb_sys_pidfd_send_signal(cell->pidfd, SIGKILL, NULL, 0);
}

static void on_wire(struct cellblock_cell *cell)
{
    struct cb_message message;
    for (;;) {
        int fd;
        message = (struct cb_message){0};
        if (cb_wire_take(cell->wire, &message, &fd, MSG_DONTWAIT) < 0) {
            cb_close_cleanup(&fd);
            if (errno == EAGAIN)
                return;
            message.kind = 0;
            break;
        }
        if (message.kind == CB_MESSAGE_SOCKET) {
            cb_egress_inner(cell, fd);
            continue;
        }
        cb_close_cleanup(&fd);
        if (message.kind != CB_MESSAGE_ASKED)
            break;
        cb_terminal_asked(cell);
    }
    if (message.kind == CB_MESSAGE_ENDED) {
        cell->status = message.status;
        cell->processes = message.detail;
        cell->status_known = true;
    }
    cb_terminal_ended(cell);
    epoll_ctl(cell->epoll, EPOLL_CTL_DEL, cell->wire, NULL);
}

void cb_cell_end(struct cellblock_cell *cell, enum cb_end reason, const char *limit)
{
    if (!cell->status_known && cell->wire >= 0)
        on_wire(cell); /* it may have ended by itself, and the word of it not been read yet */
    if (cell->reason == CB_END_NONE && !cell->status_known && !cell->gone) {
        cell->reason = reason;
        cell->limit = limit;
    }
    kill_all(cell);
}

/* Waits for init; by then the kernel has ended everything else in the cell. */
static void collect_init(struct cellblock_cell *cell)
{
    siginfo_t info = {0};
    long waited;
    do
        waited = syscall(SYS_waitid, P_PIDFD, cell->pidfd, &info, WEXITED | __WALL, &cell->usage);
    while (waited < 0 && errno == EINTR);
    close(cell->pidfd);
    cell->pidfd = -1;
    cell->gone = true;
    clock_gettime(CLOCK_MONOTONIC, &cell->ended);
}

void cellblock_cell_free(cellblock_cell *cell)
{
    if (!cell)
        return;
    cb_remote_free(cell->remote);
    if (cell->pidfd >= 0) {
        kill_all(cell);
        collect_init(cell);
        cb_sweep(cell);
    }
    cb_watchdog_free(cell->watchdog);
    cb_broker_free(cell);
    cb_egress_free(cell->egress);
    cb_cgroup_free(cell->cgroup);
    for (int i = 0; i < 3; i++) {
        cb_pump_close(&cell->pumps[i]);
        cb_text_free(&cell->pumps[i].text);
    }
    cb_terminal_free(cell->terminal);
    for (size_t i = 0; i < cell->denial_count; i++) {
        free(cell->denials[i].object);
        free(cell->denials[i].details);
    }
    free(cell->denials);
    cb_close_cleanup(&cell->wire);
    cb_close_cleanup(&cell->timer);
    cb_close_cleanup(&cell->listener);
    cb_close_cleanup(&cell->root);
    cb_close_cleanup(&cell->shm);
    cb_close_cleanup(&cell->epoll);
    cb_plan_free(cell->plan);
    free(cell);
}

static void cell_cleanup(struct cellblock_cell **cell)
{
    cellblock_cell_free(*cell);
}

static int watch(const struct cellblock_cell *cell, int fd, const void *token)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = (void *)(uintptr_t)token};
    return epoll_ctl(cell->epoll, EPOLL_CTL_ADD, fd, &event);
}

static int set_timer(const struct cellblock_cell *cell, uint64_t milliseconds)
{
    const uint64_t longest = 1000ULL * 3600 * 24 * 365 * 10;
    uint64_t ms = milliseconds < longest ? milliseconds : longest;
    struct itimerspec when = {.it_value = {.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000}};
    if (ms == 0)
        when.it_value.tv_nsec = 1;
    return timerfd_settime(cell->timer, 0, &when, NULL);
}

/* ---- Standard streams ----
 *
 * Instead of the caller's terminal the cell gets one of its own (terminal.c); other devices as they are. What it writes
 * to a file, a pipe or a socket of the caller's goes through a pipe of the cell's own: it could otherwise read back what
 * others wrote to the same pipe, change the mode of the file, or make the caller's descriptor non-blocking. Input from a
 * file or a pipe is handed over as it is, because reading ahead would take what the program leaves for others
 * (`while read x; do cellblock run …`). */

static const char *const stream_names[] = {"stdin", "stdout", "stderr"};

/* A pipe between the cell and a pump; returns the cell's end, or -1. */
static int pump_pipe(const struct cellblock_cell *cell, struct cb_pump *pump, bool into_cell, cellblock_error **error)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return cb_fail_errno(error, "making a pipe");
    int ours = into_cell ? ends[1] : ends[0], theirs = into_cell ? ends[0] : ends[1];
    if (into_cell) {
        pump->to = ours;
        pump->own_to = true;
    } else {
        pump->from = ours;
        pump->own_from = true;
    }
    /* /dev/stdout and its kin open it again by name, as the cell's id. */
    const struct cb_plan *plan = cell->plan;
    if (fcntl(ours, F_SETFL, O_NONBLOCK) < 0 ||
        (plan->privileged && fchown(theirs, plan->outside_uid, plan->outside_gid) < 0)) {
        cb_fail_errno(error, "preparing a pipe");
        close(theirs);
        return -1;
    }
    return theirs;
}

static int check_stream(int which, int fd, struct stat *found, cellblock_error **error)
{
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fstat(fd, found) < 0)
        return cb_fail_errno(error, "looking at %s", stream_names[which]);
    if (S_ISDIR(found->st_mode) || flags & O_PATH)
        return cb_fail(error, CELLBLOCK_ERROR_USAGE, 0, "%s is a directory: it would lead out of the cell",
                       stream_names[which]);
    if (!S_ISSOCK(found->st_mode) && !S_ISREG(found->st_mode) && !S_ISCHR(found->st_mode) && !S_ISFIFO(found->st_mode))
        return cb_fail(error, CELLBLOCK_ERROR_USAGE, 0, "%s is not a file, a pipe, a terminal or a socket",
                       stream_names[which]);
    return 0;
}

struct streams {
    int given[3];  /* the caller's; -1: none */
    int cell[3];   /* what the cell gets; -1: /dev/null */
    int owned[3];  /* those of them that are ours to close once the cell has them */
    struct stat found[3];
};

static int prepare_output(struct cellblock_cell *cell, struct streams *streams, int which, cellblock_error **error)
{
    struct cb_pump *pump = &cell->pumps[which];
    const struct cb_plan *plan = cell->plan;
    struct stat *found = &streams->found[which];
    int given = streams->given[which];
    bool limited = plan->output != CB_UNLIMITED && (cell->collect || plan->output_given);
    pump->limit = limited ? plan->output : cell->collect ? collected_by_default : CB_UNLIMITED;
    if (streams->cell[which] == CB_STREAM_TERMINAL)
        return 0;
    if (!cell->collect) {
        if (given < 0)
            return 0;
        if (check_stream(which, given, found, error) < 0)
            return -1;
        if (S_ISCHR(found->st_mode) && !limited && !cb_terminal_may_be(given)) {
            streams->cell[which] = given;
            return 0;
        }
        /* `> log 2>&1`: one pipe for both, or the order would be lost. */
        if (which == 2 && cell->pumps[1].open && found->st_dev == streams->found[1].st_dev &&
            found->st_ino == streams->found[1].st_ino) {
            streams->cell[2] = streams->cell[1];
            return 0;
        }
        pump->to = given;
    }
    streams->owned[which] = streams->cell[which] = pump_pipe(cell, pump, false, error);
    if (streams->cell[which] < 0)
        return -1;
    return cb_pump_open(pump, cell->epoll) < 0 ? cb_fail_errno(error, "watching %s", stream_names[which]) : 0;
}

/* Root's pipe is opened again by name (/dev/stdin) as the cell's id, which works only if it belongs to that id. */
static void give_pipe(const struct cb_plan *plan, int fd, const struct stat *found)
{
    struct statfs where;
    if (!plan->privileged || !S_ISFIFO(found->st_mode) || fstatfs(fd, &where) < 0 || where.f_type != PIPEFS_MAGIC ||
        fchown(fd, plan->outside_uid, plan->outside_gid) < 0)
        return; /* it stays readable as it is */
}

/* A protected or hidden file inside something writable: by its descriptor it could be opened again for writing, past
 * the mounts, and Landlock has rights on the directory around it. Only its bytes go in then. */
static bool opens_wider(const struct cb_plan *plan, int fd, const struct stat *found)
{
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = S_ISREG(found->st_mode) ? readlink(link, path, sizeof path - 1) : -1;
    if (length <= 0)
        return false;
    path[length] = '\0';
    if (cb_decide_file(plan->resolved->policy, path).access == CB_ACCESS_WRITE)
        return false;
    for (char *slash = strrchr(path, '/'); slash && slash != path; slash = strrchr(path, '/')) {
        *slash = '\0';
        if (cb_decide_file(plan->resolved->policy, path).access == CB_ACCESS_WRITE)
            return true;
    }
    return false;
}

static int prepare_input(struct cellblock_cell *cell, struct streams *streams, cellblock_error **error)
{
    struct cb_pump *pump = &cell->pumps[0];
    if (streams->given[0] < 0 || streams->cell[0] == CB_STREAM_TERMINAL)
        return 0;
    if (check_stream(0, streams->given[0], &streams->found[0], error) < 0)
        return -1;
    if (!S_ISSOCK(streams->found[0].st_mode) && !opens_wider(cell->plan, streams->given[0], &streams->found[0]) &&
        !(S_ISCHR(streams->found[0].st_mode) && cb_terminal_may_be(streams->given[0]))) {
        streams->cell[0] = streams->given[0];
        give_pipe(cell->plan, streams->given[0], &streams->found[0]);
        return 0;
    }
    pump->limit = CB_UNLIMITED;
    pump->from = streams->given[0];
    streams->owned[0] = streams->cell[0] = pump_pipe(cell, pump, true, error);
    if (streams->cell[0] < 0)
        return -1;
    return cb_pump_open(pump, cell->epoll) < 0 ? cb_fail_errno(error, "watching stdin") : 0;
}

static int prepare_streams(struct cellblock_cell *cell, const struct cellblock_options *options,
                           struct streams *streams, cellblock_error **error)
{
    bool own = options->stdio[0] == 0 && options->stdio[1] == 0 && options->stdio[2] == 0;
    for (int i = 0; i < 3; i++) {
        int fd = own ? i : options->stdio[i];
        streams->cell[i] = streams->owned[i] = -1;
        streams->given[i] = fd >= 0 && fcntl(fd, F_GETFD) >= 0 ? fd : -1;
    }
    return cb_terminal_prepare(cell, streams->given, options->foreground, streams->cell, error) < 0 ||
                   prepare_input(cell, streams, error) < 0 || prepare_output(cell, streams, 1, error) < 0 ||
                   prepare_output(cell, streams, 2, error) < 0
               ? -1
               : 0;
}

/* ---- Start ---- */

static int open_handles(struct cellblock_cell *cell, cellblock_error **error)
{
    cell->epoll = epoll_create1(EPOLL_CLOEXEC);
    cell->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    return cell->epoll < 0 || cell->timer < 0 ? cb_fail_errno(error, "making an event loop") : 0;
}

static struct cellblock_cell *new_cell(void)
{
    struct cellblock_cell *cell = calloc(1, sizeof *cell);
    if (!cell)
        return NULL;
    cell->broker_timer = -1;
    cell->epoll = cell->pidfd = cell->wire = cell->timer = cell->listener = cell->root = cell->shm = -1;
    for (int i = 0; i < 3; i++)
        cell->pumps[i] = (struct cb_pump)CB_PUMP_INIT;
    return cell;
}

/* `without` is why the tier with namespaces can't be had, or NULL. */
static int start_here(struct cellblock_cell *cell, const cellblock_policy *policy,
                      const struct cellblock_options *options, enum cb_tier tier, const char *without,
                      cellblock_error **error)
{
    const struct cb_tree_limits limits = cb_plan_tree_limits(policy);
    if (!(cb_layers_turned_off() & CB_OFF_CGROUP) && cb_cgroup_make(&limits, &cell->cgroup, error) < 0)
        return -1;
    const struct cb_ground ground = {
        .tier = tier, .without = without, .cgroup = cell->cgroup ? cb_cgroup_holds(cell->cgroup) : 0};
    if (cb_plan_make(policy, options, &ground, &cell->plan, error) < 0 || open_handles(cell, error) < 0)
        return -1;
    cell->collect = options->collect;
    const char *program = options->helper_path ? options->helper_path : CELLBLOCK_HELPER_PATH;
    if (cb_egress_start(cell, policy, program, error) < 0)
        return -1;
    struct streams streams;
    int failed = prepare_streams(cell, options, &streams, error);
    if (!failed) {
        clock_gettime(CLOCK_MONOTONIC, &cell->started);
        failed = cb_spawn(cell, streams.cell, error);
    }
    for (int i = 0; i < 3; i++)
        cb_close_cleanup(&streams.owned[i]);
    if (failed)
        return -1;
    if (watch(cell, cell->wire, &cell->wire) < 0 || watch(cell, cell->pidfd, &cell->pidfd) < 0 ||
        watch(cell, cell->timer, &cell->timer) < 0 ||
        (cell->listener >= 0 && watch(cell, cell->listener, &cell->listener) < 0) ||
        (cell->plan->wall_time_ms != CB_UNLIMITED && set_timer(cell, cell->plan->wall_time_ms) < 0))
        return cb_fail_errno(error, "watching the cell");
    if (cell->egress && watch(cell, cb_egress_fd(cell->egress), &cell->egress) < 0)
        return cb_fail_errno(error, "watching the cell's relay");
    if (cb_watchdog_start(cell, error) < 0)
        return -1;
    if (cell->watchdog && watch(cell, cb_watchdog_fd(cell->watchdog), &cell->watchdog) < 0)
        return cb_fail_errno(error, "watching the cell's limits");
    cb_terminal_look(cell);
    return 0;
}

/* A caller that was compiled against an older header has a shorter struct: what it lacks is zero. */
static int complete_options(const struct cellblock_options *given, struct cellblock_options *full,
                            cellblock_error **error)
{
    if (!given || given->size < offsetof(struct cellblock_options, envp))
        return cb_fail(error, CELLBLOCK_ERROR_USAGE, 0, "struct cellblock_options has no size");
    *full = (struct cellblock_options){0};
    memcpy(full, given, given->size < sizeof *full ? given->size : sizeof *full);
    full->size = sizeof *full;
    if (!full->envp)
        full->envp = (const char *const *)environ;
    return 0;
}

int cellblock_plan_json(const cellblock_policy *policy, const struct cellblock_options *options, char **json,
                        cellblock_error **error)
{
    struct cellblock_options full;
    struct cb_plan *plan = NULL;
    const struct cb_tree_limits limits = cb_plan_tree_limits(policy);
    const struct cb_ground ground = {
        .tier = cb_decide_isolation(policy) == CB_ISOLATION_LANDLOCK ? CB_TIER_LANDLOCK : CB_TIER_NAMESPACES,
        .cgroup = cb_cgroup_look(&limits),
    };
    if (complete_options(options, &full, error) < 0 || cb_plan_make(policy, &full, &ground, &plan, error) < 0)
        return -1;
    json_t *document = cb_plan_json(plan);
    *json = document ? json_dumps(document, JSON_INDENT(2)) : NULL;
    json_decref(document);
    cb_plan_free(plan);
    return *json ? 0 : cb_fail_memory(error);
}

/* Does the other tier do without what could not be had? */
static bool is_for_landlock(const cellblock_error *error)
{
    static const char *const layers[] = {"user-namespace", "network-namespace", "mount-api", "proc", "ids"};
    const char *layer = error ? cellblock_error_layer(error) : NULL;
    if (layer && strcmp(layer, "idmap") == 0)
        return cellblock_error_errno(error) == EPERM; /* no right to mount; else it is about one file system */
    for (size_t i = 0; layer && i < sizeof layers / sizeof *layers; i++)
        if (strcmp(layer, layers[i]) == 0)
            return true;
    return false;
}

/* The tier that the policy asks for; with "auto" the strongest, and a weaker one only if the policy accepts that. */
static int start_in_tier(struct cellblock_cell **cell, const cellblock_policy *policy,
                         const struct cellblock_options *options, cellblock_error **error)
{
    enum cb_isolation isolation = cb_decide_isolation(policy);
    if (isolation == CB_ISOLATION_LANDLOCK)
        return start_here(*cell, policy, options, CB_TIER_LANDLOCK, NULL, error);
    cellblock_error *first = NULL;
    if (start_here(*cell, policy, options, CB_TIER_NAMESPACES, NULL, &first) == 0)
        return 0;
    bool other = isolation == CB_ISOLATION_AUTO && is_for_landlock(first);
    if (!other || !cb_decide_accept_weaker(policy, "namespaces")) {
        if (other)
            cb_error_hint(&first, "%s%suse the weaker tier that does without (cellblock-run(1), TIERS): "
                          "--isolation landlock", cellblock_error_hint(first) ? cellblock_error_hint(first) : "",
                          cellblock_error_hint(first) ? "\nor " : "");
        if (error)
            *error = first;
        else
            cellblock_error_free(first);
        return -1;
    }
    cellblock_cell_free(*cell);
    *cell = new_cell();
    int failed = !*cell ? cb_fail_memory(error)
                        : start_here(*cell, policy, options, CB_TIER_LANDLOCK, cellblock_error_message(first), error);
    cellblock_error_free(first);
    return failed;
}

int cellblock_start(const cellblock_policy *policy, const struct cellblock_options *options, cellblock_cell **cell,
                    cellblock_error **error)
{
    struct cellblock_options full;
    if (complete_options(options, &full, error) < 0)
        return -1;
    struct cellblock_cell *made __attribute__((cleanup(cell_cleanup))) = new_cell();
    if (!made)
        return cb_fail_memory(error);
    int wanted = cb_remote_wanted(&full, error);
    if (wanted < 0 ||
        (wanted ? cb_remote_start(made, policy, &full, error) : start_in_tier(&made, policy, &full, error)) < 0)
        return -1;
    *cell = cb_steal(made);
    return 0;
}

int cellblock_reads_terminal(const cellblock_cell *cell)
{
    return cell->remote ? cb_remote_reads(cell) : cb_terminal_reads(cell->terminal);
}

/* ---- Going on ---- */

int cellblock_fd(const cellblock_cell *cell)
{
    return cell->epoll;
}

/* A run that was ended must not last for as long as somebody leaves its output unread. */
static void give_up_delivery(struct cellblock_cell *cell)
{
    for (int i = 1; i < 3; i++) {
        cell->pumps[i].truncated |= cell->pumps[i].open;
        cb_pump_close(&cell->pumps[i]);
    }
}

static void on_timer(struct cellblock_cell *cell)
{
    uint64_t ticks;
    if (read(cell->timer, &ticks, sizeof ticks) < 0)
        return;
    if (cell->gone) {
        if (cell->reason != CB_END_NONE)
            give_up_delivery(cell);
        cb_egress_give_up(cell->egress);
        return;
    }
    if (cell->reason == CB_END_NONE) {
        cell->reason = CB_END_TIMEOUT;
        cell->limit = cb_limit_word(CB_LIMIT_WALL_TIME);
        cb_sys_pidfd_send_signal(cell->pidfd, SIGTERM, NULL, 0);
        set_timer(cell, GRACE_MS);
    } else {
        kill_all(cell);
    }
}

static void on_gone(struct cellblock_cell *cell)
{
    epoll_ctl(cell->epoll, EPOLL_CTL_DEL, cell->pidfd, NULL);
    if (!cell->status_known)
        on_wire(cell); /* the last word may still be on the wire */
    collect_init(cell);
    cb_watchdog_finish(cell);
    if (cell->cgroup)
        cb_cgroup_remove(cell->cgroup);
    cb_sweep(cell);
    if (cell->listener >= 0)
        epoll_ctl(cell->epoll, EPOLL_CTL_DEL, cell->listener, NULL);
    cb_egress_finish(cell);
    if (cell->reason != CB_END_NONE || cb_egress_busy(cell->egress))
        set_timer(cell, cell->plan->network.brokered ? BROKER_MS : cell->reason != CB_END_NONE ? DELIVERY_MS : RELAY_MS);
    /* Nobody in the cell can read any more. */
    cb_pump_close(&cell->pumps[0]);
}

/* After bytes were moved. */
static void on_moved(struct cellblock_cell *cell, int passed)
{
    if (passed)
        cb_cell_end(cell, CB_END_OUTPUT, cb_limit_word(CB_LIMIT_OUTPUT));
}

static void on_pump(struct cellblock_cell *cell, struct cb_pump *pump)
{
    on_moved(cell, cb_pump_run(pump));
}

/* Hangs up when the last process under the filter has gone, which is before the cell itself has: a descriptor that is
 * ready for ever would keep us spinning until then. */
static void on_listener(struct cellblock_cell *cell, uint32_t events)
{
    if (events & EPOLLIN)
        cb_notify_answer(cell);
    else
        epoll_ctl(cell->epoll, EPOLL_CTL_DEL, cell->listener, NULL);
}

static bool is_over(const struct cellblock_cell *cell)
{
    return cell->gone && !cell->pumps[1].open && !cell->pumps[2].open && !cb_terminal_busy(cell->terminal) &&
           !cb_egress_busy(cell->egress);
}

int cellblock_dispatch(cellblock_cell *cell, cellblock_error **error)
{
    if (cell->remote)
        return cb_remote_dispatch(cell, error);
    struct epoll_event events[16];
    int count = epoll_wait(cell->epoll, events, 16, 0);
    if (count < 0 && errno != EINTR) {
        kill_all(cell);
        return cb_fail_errno(error, "waiting for the cell's events");
    }
    for (int i = 0; i < count; i++) {
        void *token = events[i].data.ptr;
        if (token == &cell->wire)
            on_wire(cell);
        else if (token == &cell->timer)
            on_timer(cell);
        else if (token == &cell->pidfd && !cell->gone)
            on_gone(cell);
        else if (token == &cell->watchdog && !cell->gone)
            cb_watchdog_look(cell);
        else if (token == &cell->broker_timer)
            cb_broker_look(cell);
        else if (token == &cell->egress)
            cb_egress_event(cell);
        else if (token == &cell->listener)
            on_listener(cell, events[i].events);
        else if (token >= (void *)&cell->pumps[0] && token <= (void *)&cell->pumps[2])
            on_pump(cell, token);
        else if (cb_terminal_owns(cell->terminal, token))
            on_moved(cell, cb_terminal_event(cell, token));
    }
    if (cell->broken && !cell->gone) {
        kill_all(cell);
        return cb_fail(error, CELLBLOCK_ERROR_SYSTEM, cell->broken, "%s", cell->broken == ENETDOWN
                       ? "the cell's relay has ended" : "answering a system call of the cell");
    }
    /* What is left in the pipes is all there will be: an end of one that was passed to another cell does not count. */
    for (int i = 1; i < 3 && cell->gone; i++) {
        cell->pumps[i].last = true;
        on_pump(cell, &cell->pumps[i]);
    }
    if (cell->gone)
        on_moved(cell, cb_terminal_last(cell));
    return is_over(cell);
}

int cellblock_signal(cellblock_cell *cell, int signal, cellblock_error **error)
{
    if (cell->remote)
        return cb_remote_signal(cell, signal, error);
    if (cell->pidfd < 0)
        return 0;
    if (cell->terminal && (signal == SIGWINCH || signal == SIGCONT))
        cb_terminal_look(cell);
    if (cell->terminal && signal == SIGWINCH)
        return 0; /* the kernel sends it there, to whom it concerns */
    if (signal == SIGKILL) {
        kill_all(cell);
        return 0;
    }
    return cb_sys_pidfd_send_signal(cell->pidfd, signal, NULL, 0) < 0 && errno != ESRCH
               ? cb_fail_errno(error, "sending signal %d to the cell", signal)
               : 0;
}

int cellblock_cancel(cellblock_cell *cell, cellblock_error **error)
{
    if (cell->remote)
        return cb_remote_signal(cell, CB_ASK_CANCEL, error);
    cb_cell_end(cell, CB_END_CANCELLED, NULL);
    return 0;
}

int cellblock_finish(cellblock_cell *cell, cellblock_result **result, cellblock_error **error)
{
    if (cell->remote)
        return cb_remote_result(cell, result, error);
    if (!is_over(cell))
        return cb_fail(error, CELLBLOCK_ERROR_USAGE, 0, "cellblock_finish: the run has not ended");
    return cb_result_make(cell, result, error);
}

int cellblock_wait(cellblock_cell *cell, cellblock_result **result, cellblock_error **error)
{
    for (;;) {
        int over = cellblock_dispatch(cell, error);
        if (over < 0)
            return -1;
        if (over)
            return cellblock_finish(cell, result, error);
        struct pollfd ready = {.fd = cellblock_fd(cell), .events = POLLIN};
        if (poll(&ready, 1, -1) < 0 && errno != EINTR)
            return cb_fail_errno(error, "waiting for the cell");
    }
}

int cellblock_run(const cellblock_policy *policy, const struct cellblock_options *options, cellblock_result **result,
                  cellblock_error **error)
{
    struct cellblock_cell *cell __attribute__((cleanup(cell_cleanup))) = NULL;
    if (cellblock_start(policy, options, &cell, error) < 0)
        return -1;
    return cellblock_wait(cell, result, error);
}
