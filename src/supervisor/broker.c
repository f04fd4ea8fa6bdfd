/* Tier landlock, with rules for the network or for unix sockets: there is no network namespace to divert anything in, so
 * the code gets sockets that the supervisor makes, and the relay connects them (relay/broker.c), on a duplicate.
 *
 * The calls are never let go on: the kernel does not see the code's own socket() and connect() at all, so there is
 * nothing that another thread could change after it was looked at. Landlock (without a rule for any port) refuses what
 * would get past that; listening, binding and datagrams are refused by the filter. The relay also is the resolver, which
 * programs are told to ask by TCP (RES_OPTIONS in the environment).
 *
 * The supervisor holds a duplicate only until it is handed over, and does nothing with it: nothing that the code can do
 * to its own socket makes the supervisor wait. */
#include "supervisor/egress.h"

#include "base/cleanup.h"
#include "base/missing.h"
#include "policy/network.h"
#include "supervisor/paths.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>

enum { MOST_WAITING = 4096, LOOK_MS = 100 };

/* What a system call returns inside of the kernel when there is a signal: it becomes EINTR, or the call is made again, as
 * the program has asked for. */
enum { RESTART = 512 };

/* A connect() that the relay has not answered yet. */
struct cb_connecting {
    struct cb_connecting *next;
    uint64_t id;
    pid_t thread;
};

/* ---- socket() ---- */

static int make_socket(const struct cb_call *call)
{
    const struct seccomp_data *data = &call->notice->data;
    int domain = (int)data->args[0], type = (int)data->args[1], protocol = (int)data->args[2];
    const int extra = SOCK_CLOEXEC | SOCK_NONBLOCK;
    bool internet = (domain == AF_INET || domain == AF_INET6) && (protocol == 0 || protocol == IPPROTO_TCP);
    bool local = domain == AF_UNIX && protocol == 0 && call->cell->plan->resolved->socket_count > 0;
    if ((type & ~extra) != SOCK_STREAM || !(internet || local))
        return -EACCES;
    cb_autofd int made = socket(domain, type | SOCK_CLOEXEC, protocol);
    return made < 0 ? -errno : cb_call_give(call, made, type & SOCK_CLOEXEC ? O_CLOEXEC : 0);
}

/* ---- connect() ---- */

static void set_looks(struct cellblock_cell *cell);

static int connect_call(const struct cb_call *call)
{
    const struct seccomp_data *data = &call->notice->data;
    struct cellblock_cell *cell = call->cell;
    size_t length = data->args[2] & 0xffffffff, waiting = 0;
    struct sockaddr_storage given = {0};
    if (length > sizeof given || length < sizeof(sa_family_t))
        return -EINVAL;
    int failed = cb_call_read(call, data->args[1], &given, length);
    if (failed)
        return failed;
    for (const struct cb_connecting *at = cell->connecting; at; at = at->next)
        waiting++;
    struct cb_connecting *made = waiting < MOST_WAITING && cell->egress ? calloc(1, sizeof *made) : NULL;
    if (!made)
        return -ENOBUFS;
#ifdef CELLBLOCK_TEST_HOOKS
    /* What must not be done: looks at the address here, and lets the kernel look at it once more. */
    struct cb_address address;
    uint16_t port;
    if (!cb_layer_on(cell->plan, CB_OFF_BROKER) &&
        cb_address_from((struct sockaddr *)&given, length, &address, &port) && port != 53) {
        free(made);
        const struct cb_net_target target = {.protocol = CB_PROTOCOL_TCP, .address = address, .port = port};
        return cb_decide_connect(cell->plan->resolved->policy, &target).allowed ? CB_CALL_GO_ON : -EACCES;
    }
#endif
    int socket = cb_call_duplicate(call, (int)data->args[0]);
    if (socket < 0) {
        free(made);
        return errno == EBADF ? -EBADF : -EACCES;
    }
    if (cb_egress_connect(cell, call->notice->id, socket, &given, length) < 0) {
        free(made);
        return -ENETDOWN;
    }
    *made = (struct cb_connecting){
        .next = cell->connecting, .id = call->notice->id, .thread = (pid_t)call->notice->pid};
    cell->connecting = made;
    set_looks(cell);
    return CB_CALL_ANSWERED; /* later */
}

static void forget(struct cellblock_cell *cell, struct cb_connecting *waiting)
{
    struct cb_connecting **at = &cell->connecting;
    while (*at != waiting)
        at = &(*at)->next;
    *at = waiting->next;
    free(waiting);
}

void cb_broker_answered(struct cellblock_cell *cell, uint64_t id, int errnum)
{
    struct cb_connecting *at = cell->connecting;
    while (at && at->id != id)
        at = at->next;
    if (!at)
        return;
    forget(cell, at);
    cb_notify_reply(cell, id, -errnum);
    cb_egress_done(cell, id);
    if (!cell->connecting)
        set_looks(cell);
}

/* ---- Signals ---- */

/* A caller whose call is being answered gets no signals (so that what is done for it is never done twice). One that
 * waits for the outside is let go when there is one for it. */
static bool has_signal(pid_t thread)
{
    char path[64], text[2048];
    snprintf(path, sizeof path, "/proc/%d/status", thread);
    cb_autofd int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    text[length > 0 ? length : 0] = '\0';
    static const char *const keys[] = {"\nSigPnd:", "\nShdPnd:", "\nSigBlk:", "\nSigIgn:"};
    unsigned long long sets[4] = {0};
    for (size_t i = 0; i < 4; i++) {
        const char *at = strstr(text, keys[i]);
        if (!at || sscanf(at + strlen(keys[i]), "%llx", &sets[i]) != 1)
            return false;
    }
    return ((sets[0] | sets[1]) & ~sets[2] & ~sets[3]) != 0;
}

static void look(struct cellblock_cell *cell)
{
    for (struct cb_connecting *at = cell->connecting, *next; at; at = next) {
        next = at->next;
        bool waits = cb_notify_waits(cell, at->id);
        if (waits && !has_signal(at->thread))
            continue;
        uint64_t id = at->id;
        forget(cell, at);
        if (waits)
            cb_notify_reply(cell, id, -RESTART);
        cb_egress_done(cell, id);
    }
    if (!cell->connecting)
        set_looks(cell);
}

/* Looks now and then, as long as somebody waits. Without a timer the calls still end with the outside's word. */
static void set_looks(struct cellblock_cell *cell)
{
    const struct timespec pause = {.tv_nsec = LOOK_MS * 1000000};
    const struct itimerspec often = {.it_interval = pause, .it_value = pause}, never = {.it_value = {0}};
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = &cell->broker_timer};
    if (cell->broker_timer < 0) {
        cell->broker_timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
        if (cell->broker_timer >= 0)
            epoll_ctl(cell->epoll, EPOLL_CTL_ADD, cell->broker_timer, &event);
    }
    if (cell->broker_timer >= 0)
        timerfd_settime(cell->broker_timer, 0, cell->connecting ? &often : &never, NULL);
}

void cb_broker_look(struct cellblock_cell *cell)
{
    uint64_t ticks;
    if (read(cell->broker_timer, &ticks, sizeof ticks) > 0)
        look(cell);
}

void cb_broker_free(struct cellblock_cell *cell)
{
    while (cell->connecting)
        forget(cell, cell->connecting);
    cb_close_cleanup(&cell->broker_timer);
}

int cb_broker_decide(const struct cb_call *call)
{
    return call->notice->data.nr == SYS_socket ? make_socket(call) : connect_call(call);
}
