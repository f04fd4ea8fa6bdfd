/* Tier landlock, with rules for the network or for unix sockets: there is no network namespace to divert anything in, so
 * the code gets sockets that the supervisor makes, and the supervisor connects them, on a duplicate of its own.
 *
 * The calls are never let go on: the kernel does not see the code's own socket() and connect() at all, so there is
 * nothing that another thread could change after it was looked at. Landlock (without a rule for any port) refuses what
 * would get past that; listening, binding and datagrams are refused by the filter. Where to is decided by the relay, as
 * in the other tier; it also is the resolver, which programs are told to ask by TCP (RES_OPTIONS in the environment).
 *
 * A blocking socket is made non-blocking for as long as its connect() lasts: the supervisor waits for nobody. */
#include "supervisor/egress.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/missing.h"
#include "policy/network.h"
#include "supervisor/paths.h"
#include "supervisor/tally.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/un.h>

enum { MOST_WAITING = 1024, LOOK_MS = 100 };

/* What a system call returns inside of the kernel when there is a signal: it becomes EINTR, or the call is made again, as
 * the program has asked for. */
enum { RESTART = 512 };

/* A blocking connect() that is under way. */
struct cb_connecting {
    struct cb_connecting *next;
    uint64_t id;
    pid_t thread;
    uint64_t until_us;      /* the socket's own timeout; 0: none */
    struct cb_errand errand;
};

static void finish(struct cellblock_cell *cell, uint64_t id, struct cb_errand *errand, int errnum)
{
    fcntl(errand->socket, F_SETFL, errand->flags);
    cb_close_cleanup(&errand->socket);
    cb_notify_reply(cell, id, -errnum);
}

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

/* ---- connect() to a unix socket that a rule grants ---- */

/* By what it is, not by what it is called: the socket of the rule is connected to through its descriptor. */
static int connect_local(const struct cb_call *call, int socket, const struct sockaddr_un *given, size_t length)
{
    const struct cb_resolved *resolved = call->cell->plan->resolved;
    char path[sizeof given->sun_path + 1] = "";
    struct stat wanted, found;
    if (length > sizeof *given)
        return -EINVAL;
    if (length <= offsetof(struct sockaddr_un, sun_path) || given->sun_path[0] != '/')
        return -EACCES;
    memcpy(path, given->sun_path, length - offsetof(struct sockaddr_un, sun_path));
    if (stat(path, &wanted) < 0)
        return -errno;
    for (size_t i = 0; i < resolved->socket_count; i++) {
        if (fstat(resolved->sockets[i].fd, &found) < 0 || found.st_dev != wanted.st_dev || found.st_ino != wanted.st_ino)
            continue;
        struct sockaddr_un place = {.sun_family = AF_UNIX};
        char name[64];
        cb_path_to(resolved->sockets[i].fd, name);
        memcpy(place.sun_path, name, strlen(name) + 1);
        int flags = fcntl(socket, F_GETFL);
        if (flags < 0 || fcntl(socket, F_SETFL, flags | O_NONBLOCK) < 0)
            return -errno;
        int failed = connect(socket, (struct sockaddr *)&place, sizeof place) < 0 ? -errno : 0;
        fcntl(socket, F_SETFL, flags);
        return failed;
    }
    return -EACCES;
}

/* ---- connect() to the network ---- */

static int connect_call(const struct cb_call *call)
{
    const struct seccomp_data *data = &call->notice->data;
    size_t length = data->args[2] & 0xffffffff;
    struct sockaddr_storage given = {0};
    if (length > sizeof given || length < sizeof(sa_family_t))
        return -EINVAL;
    int failed = cb_call_read(call, data->args[1], &given, length);
    if (failed)
        return failed;
    cb_autofd int socket = cb_call_socket(call, (int)data->args[0]);
    int domain = -1, type = -1;
    socklen_t size = sizeof domain;
    if (socket < 0)
        return errno == EBADF ? -EBADF : -EACCES;
    if (getsockopt(socket, SOL_SOCKET, SO_DOMAIN, &domain, &size) < 0 ||
        getsockopt(socket, SOL_SOCKET, SO_TYPE, &type, &size) < 0)
        return -errno;
    if (domain == AF_UNIX && given.ss_family == AF_UNIX && type == SOCK_STREAM)
        return connect_local(call, socket, (const struct sockaddr_un *)&given, length);
    struct cb_errand errand = {.flags = fcntl(socket, F_GETFL), .thread = (pid_t)call->notice->pid};
    if ((domain != AF_INET && domain != AF_INET6) || type != SOCK_STREAM || !call->cell->egress ||
        !cb_address_from((struct sockaddr *)&given, length, &errand.address, &errand.port))
        return given.ss_family == AF_UNSPEC ? -EACCES : -EAFNOSUPPORT;
    errand.address = cb_address_plain(errand.address);
    const struct cb_address address = errand.address;
    errand.socket = cb_steal_fd(&socket);
    return cb_egress_ask(call, CB_PROTOCOL_TCP, false, &address, errand.port, &errand);
}

/* An IPv6 socket reaches IPv4 addresses by another spelling. */
static socklen_t spell(int socket, const struct cb_address *address, uint16_t port, struct sockaddr_storage *to)
{
    int domain = AF_INET;
    socklen_t size = sizeof domain;
    getsockopt(socket, SOL_SOCKET, SO_DOMAIN, &domain, &size);
    if (domain != AF_INET6 || address->family != AF_INET)
        return cb_address_to(address, port, to);
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    six.sin6_addr.s6_addr[10] = six.sin6_addr.s6_addr[11] = 0xff;
    memcpy(six.sin6_addr.s6_addr + 12, address->bytes, 4);
    memcpy(to, &six, sizeof six);
    return sizeof six;
}

/* The resolver serves connections that were announced to it, by the port that they come from. */
static int aim_at_resolver(struct cellblock_cell *cell, struct cb_errand *errand)
{
    struct sockaddr_storage at;
    struct cb_address own = {.family = AF_INET, .bytes = {127, 0, 0, 1}};
    socklen_t size = spell(errand->socket, &own, 0, &at);
    uint16_t port;
    if (bind(errand->socket, (struct sockaddr *)&at, size) < 0 && errno != EINVAL) /* it was bound before */
        return -1;
    size = sizeof at;
    if (getsockname(errand->socket, (struct sockaddr *)&at, &size) < 0 ||
        !cb_address_from((struct sockaddr *)&at, size, &own, &port))
        return -1;
    errand->address = (struct cb_address){.family = AF_INET, .bytes = {127, 0, 0, 1}};
    errand->port = cb_egress_resolver(cell->egress, port);
    errno = EAGAIN;
    return errand->port ? 0 : -1;
}

static void let_go(struct cellblock_cell *cell, struct cb_connecting *waiting)
{
    struct cb_connecting **at = &cell->connecting;
    while (*at != waiting)
        at = &(*at)->next;
    *at = waiting->next;
    epoll_ctl(cell->epoll, EPOLL_CTL_DEL, waiting->errand.socket, NULL);
}

static void finish_waiting(struct cellblock_cell *cell, struct cb_connecting *waiting, int errnum)
{
    let_go(cell, waiting);
    finish(cell, waiting->id, &waiting->errand, errnum);
    free(waiting);
}

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

/* Interrupted, timed out, or gone. */
static void look_at_waiting(struct cellblock_cell *cell)
{
    uint64_t now = cb_clock_us(CLOCK_MONOTONIC);
    for (struct cb_connecting *at = cell->connecting, *next; at; at = next) {
        next = at->next;
        if (!cb_notify_waits(cell, at->id))
            finish_waiting(cell, at, EINTR); /* nobody hears it */
        else if (at->until_us && now >= at->until_us)
            finish_waiting(cell, at, EINPROGRESS); /* what the kernel says then */
        else if (has_signal(at->thread))
            finish_waiting(cell, at, RESTART);
    }
}

static size_t count_waiting(const struct cellblock_cell *cell)
{
    size_t count = 0;
    for (const struct cb_connecting *at = cell->connecting; at; at = at->next)
        count++;
    return count;
}

/* When the socket's own timeout is over; 0: it has none. */
static uint64_t end_of(const struct cb_errand *errand)
{
    struct timeval most = {0};
    socklen_t size = sizeof most;
    if (getsockopt(errand->socket, SOL_SOCKET, SO_SNDTIMEO, &most, &size) < 0 || (!most.tv_sec && !most.tv_usec))
        return 0;
    return cb_clock_us(CLOCK_MONOTONIC) + (uint64_t)most.tv_sec * 1000000 + (uint64_t)most.tv_usec;
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

void cb_broker_go(struct cellblock_cell *cell, uint64_t id, struct cb_errand *errand, bool resolver)
{
    struct sockaddr_storage address;
#ifdef CELLBLOCK_TEST_HOOKS
    if (!cb_layer_on(cell->plan, CB_OFF_BROKER) && !resolver) {
        cb_close_cleanup(&errand->socket);
        cb_notify_reply(cell, id, CB_CALL_GO_ON);
        return;
    }
#endif
    if (fcntl(errand->socket, F_SETFL, errand->flags | O_NONBLOCK) < 0 ||
        (resolver && aim_at_resolver(cell, errand) < 0)) {
        finish(cell, id, errand, errno);
        return;
    }
    socklen_t size = spell(errand->socket, &errand->address, errand->port, &address);
    int failed = connect(errand->socket, (struct sockaddr *)&address, size) < 0 ? errno : 0;
    if (failed == EALREADY && !(errand->flags & O_NONBLOCK))
        failed = EINPROGRESS; /* made again after a signal */
    if (failed != EINPROGRESS || errand->flags & O_NONBLOCK) {
        finish(cell, id, errand, failed);
        return;
    }
    look_at_waiting(cell);
    struct cb_connecting *waiting = count_waiting(cell) < MOST_WAITING ? calloc(1, sizeof *waiting) : NULL;
    struct epoll_event event = {.events = EPOLLOUT | EPOLLONESHOT, .data.ptr = waiting};
    if (!waiting || epoll_ctl(cell->epoll, EPOLL_CTL_ADD, errand->socket, &event) < 0) {
        free(waiting);
        finish(cell, id, errand, ENOBUFS);
        return;
    }
    *waiting = (struct cb_connecting){
        .next = cell->connecting, .id = id, .thread = errand->thread, .until_us = end_of(errand), .errand = *errand};
    cell->connecting = waiting;
    set_looks(cell);
}

bool cb_broker_owns(const struct cellblock_cell *cell, const void *token)
{
    const struct cb_connecting *at = cell->connecting;
    while (at && at != token)
        at = at->next;
    return at != NULL || token == &cell->broker_timer;
}

void cb_broker_event(struct cellblock_cell *cell, void *token)
{
    struct cb_connecting *waiting = token;
    struct sockaddr_storage address;
    uint64_t ticks;
    int errnum = 0;
    socklen_t size = sizeof errnum;
    if (token == &cell->broker_timer) {
        if (read(cell->broker_timer, &ticks, sizeof ticks) > 0)
            look_at_waiting(cell);
    } else {
        struct cb_errand *errand = &waiting->errand;
        getsockopt(errand->socket, SOL_SOCKET, SO_ERROR, &errnum, &size);
        if (errnum == 0) { /* once more, which is when the kernel takes note that it is connected */
            size = spell(errand->socket, &errand->address, errand->port, &address);
            connect(errand->socket, (struct sockaddr *)&address, size);
        }
        finish_waiting(cell, waiting, errnum);
    }
    if (!cell->connecting)
        set_looks(cell);
}

void cb_broker_free(struct cellblock_cell *cell)
{
    while (cell->connecting) {
        struct cb_connecting *waiting = cell->connecting;
        cell->connecting = waiting->next;
        cb_close_cleanup(&waiting->errand.socket);
        free(waiting);
    }
    cb_close_cleanup(&cell->broker_timer);
}

int cb_broker_decide(const struct cb_call *call)
{
    return call->notice->data.nr == SYS_socket ? make_socket(call) : connect_call(call);
}
