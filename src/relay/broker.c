/* Tier landlock: connects sockets of the code's, where there is no network namespace to divert anything in.
 *
 * The supervisor hands over a duplicate of the socket and the address that connect() was called with; the kernel never
 * sees the code's own call. It is done here and not in the supervisor because the code shares the open file: it can take
 * the non-blocking flag away at the wrong moment, or leave the last close of the socket (which SO_LINGER can make wait) to
 * whoever has the duplicate. Then only this relay waits, which is the code's own. The duplicate is kept until the
 * supervisor says that it has let go of its own.
 *
 * A blocking socket is made non-blocking for as long as its connect() lasts, so that many can wait at the same time. */
#include "relay/relay.h"

#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

enum { PLACES = 256 };

struct errand {
    struct cb_source source;
    struct errand *next;
    struct cb_broker *broker;
    uint64_t id;
    int socket;
    int flags;              /* to be put back */
    bool watched;
    uint64_t until;         /* milliseconds; the socket's own timeout; 0: none */
    struct cb_address address;
    uint16_t port;
};

struct cb_broker {
    struct cb_relay *relay;
    struct errand *errands, *spent;
    uint64_t count, most;
    int places[PLACES];     /* unix sockets that may be connected to, as O_PATH */
    size_t place_count;
};

static void answer(struct cb_relay *relay, uint64_t id, int errnum)
{
    const struct cb_link_message reply = {.kind = CB_LINK_ANSWER, .id = id, .number = errnum};
    cb_link_tell(&relay->queue, &reply, NULL, 0, -1);
}

static void settle(struct errand *errand, int errnum)
{
    if (errand->watched)
        cb_relay_unwatch(errand->broker->relay, errand->socket);
    errand->watched = false;
    errand->until = 0;
    if (errand->flags >= 0)
        fcntl(errand->socket, F_SETFL, errand->flags);
    answer(errand->broker->relay, errand->id, errnum);
}

/* ---- Unix sockets ---- */

/* By what it is, not by what it is called: the socket of the rule is connected to through its descriptor. */
static int connect_local(struct cb_broker *broker, int socket, const struct sockaddr_un *given, size_t length)
{
    char path[sizeof given->sun_path + 1] = "";
    struct stat wanted, found;
    if (length > sizeof *given)
        return EINVAL;
    if (length <= offsetof(struct sockaddr_un, sun_path) || given->sun_path[0] != '/')
        return EACCES;
    memcpy(path, given->sun_path, length - offsetof(struct sockaddr_un, sun_path));
    if (strncmp(path, "/proc/", 6) == 0)
        return EACCES; /* what is "self" there is us */
    if (stat(path, &wanted) < 0)
        return errno;
    for (size_t i = 0; i < broker->place_count; i++) {
        if (fstat(broker->places[i], &found) < 0 || found.st_dev != wanted.st_dev || found.st_ino != wanted.st_ino)
            continue;
        struct sockaddr_un place = {.sun_family = AF_UNIX};
        snprintf(place.sun_path, sizeof place.sun_path, "/proc/self/fd/%d", broker->places[i]);
        return connect(socket, (struct sockaddr *)&place, sizeof place) < 0 ? errno : 0;
    }
    return EACCES;
}

/* ---- The network ---- */

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

/* The resolver serves connections that it expects, by the port that they come from. */
static int aim_at_resolver(struct errand *errand)
{
    struct cb_names_service *names = errand->broker->relay->names;
    const struct cb_address loopback = {.family = AF_INET, .bytes = {127, 0, 0, 1}};
    struct cb_address own;
    struct sockaddr_storage at;
    uint16_t port;
    socklen_t size = spell(errand->socket, &loopback, 0, &at);
    if (bind(errand->socket, (struct sockaddr *)&at, size) < 0 && errno != EINVAL) /* it was bound before */
        return -1;
    size = sizeof at;
    if (getsockname(errand->socket, (struct sockaddr *)&at, &size) < 0 ||
        !cb_address_from((struct sockaddr *)&at, size, &own, &port))
        return -1;
    cb_names_expect(names, port);
    errand->address = loopback;
    errand->port = cb_names_door(names);
    errno = ENETDOWN;
    return errand->port ? 0 : -1;
}

static int connect_now(struct errand *errand)
{
    struct sockaddr_storage address;
    socklen_t size = spell(errand->socket, &errand->address, errand->port, &address);
    return connect(errand->socket, (struct sockaddr *)&address, size) < 0 ? errno : 0;
}

static void on_ready(struct cb_source *source, uint32_t events)
{
    struct errand *errand = cb_container_of(source, struct errand, source);
    int errnum = 0;
    socklen_t size = sizeof errnum;
    (void)events;
    if (!errand->watched)
        return;
    getsockopt(errand->socket, SOL_SOCKET, SO_ERROR, &errnum, &size);
    if (errnum == 0)
        connect_now(errand); /* once more, which is when the kernel takes note that it is connected */
    settle(errand, errnum);
}

/* When the socket's own timeout is over; 0: it has none. */
static uint64_t end_of(const struct errand *errand)
{
    struct timeval most = {0};
    socklen_t size = sizeof most;
    if (getsockopt(errand->socket, SOL_SOCKET, SO_SNDTIMEO, &most, &size) < 0 || (!most.tv_sec && !most.tv_usec))
        return 0;
    return errand->broker->relay->now + (uint64_t)most.tv_sec * 1000 + (uint64_t)most.tv_usec / 1000 + 1;
}

/* Decides, and connects. Returns an errno, or -1 when it is under way. */
static int go(struct errand *errand, const struct sockaddr_storage *given, size_t length)
{
    struct cb_relay *relay = errand->broker->relay;
    int domain = -1, type = -1;
    socklen_t size = sizeof domain;
    if (getsockopt(errand->socket, SOL_SOCKET, SO_DOMAIN, &domain, &size) < 0 ||
        getsockopt(errand->socket, SOL_SOCKET, SO_TYPE, &type, &size) < 0)
        return errno;
    errand->flags = fcntl(errand->socket, F_GETFL);
    bool local = domain == AF_UNIX && given->ss_family == AF_UNIX;
    if (type != SOCK_STREAM || (!local && domain != AF_INET && domain != AF_INET6))
        return EACCES;
    if (!local && !cb_address_from((const struct sockaddr *)given, length, &errand->address, &errand->port))
        return given->ss_family == AF_UNSPEC ? EACCES : EAFNOSUPPORT;
    if (errand->flags < 0 || fcntl(errand->socket, F_SETFL, errand->flags | O_NONBLOCK) < 0)
        return errno;
    if (local)
        return connect_local(errand->broker, errand->socket, (const struct sockaddr_un *)given, length);
    errand->address = cb_address_plain(errand->address);
    struct cb_net_decision decision = cb_relay_decide(relay, CB_PROTOCOL_TCP, &errand->address, errand->port);
    if (!decision.allowed && cb_relay_is_resolver(relay, &errand->address, errand->port)) {
        if (aim_at_resolver(errand) < 0)
            return errno;
    } else if (!decision.allowed) {
        cb_refuse_target(relay, "network.connect", CB_PROTOCOL_TCP, &errand->address, errand->port, &decision);
        return EACCES;
    }
    int failed = connect_now(errand);
    bool blocking = !(errand->flags & O_NONBLOCK);
    if (!blocking || (failed != EINPROGRESS && failed != EALREADY)) /* EALREADY: made again after a signal */
        return failed;
    errand->until = end_of(errand);
    errand->watched = cb_relay_watch(relay, errand->socket, &errand->source, EPOLLOUT) == 0;
    return errand->watched ? -1 : ENOBUFS;
}

void cb_broker_connect(struct cb_broker *broker, uint64_t id, int socket, const void *given, size_t length)
{
    struct errand *errand = broker->count < broker->most ? calloc(1, sizeof *errand) : NULL;
    struct sockaddr_storage address = {0};
    if (!errand) {
        answer(broker->relay, id, ENOBUFS);
        cb_close_cleanup(&socket);
        return;
    }
    *errand = (struct errand){.source.ready = on_ready, .next = broker->errands, .broker = broker, .id = id,
                              .socket = socket, .flags = -1};
    broker->errands = errand;
    broker->count++;
    memcpy(&address, given, length < sizeof address ? length : sizeof address);
    int errnum = length > sizeof address ? EINVAL : go(errand, &address, length);
    if (errnum >= 0)
        settle(errand, errnum);
}

/* The supervisor has answered the call, and has no duplicate of its own any more. */
void cb_broker_done(struct cb_broker *broker, uint64_t id)
{
    struct errand **at = &broker->errands;
    while (*at && (*at)->id != id)
        at = &(*at)->next;
    struct errand *errand = *at;
    if (!errand)
        return;
    *at = errand->next;
    broker->count--;
    if (errand->watched) { /* interrupted */
        cb_relay_unwatch(broker->relay, errand->socket);
        errand->watched = false;
        fcntl(errand->socket, F_SETFL, errand->flags);
    }
    cb_close_cleanup(&errand->socket);
    errand->socket = -1;
    errand->next = broker->spent; /* an event for it may still be waiting */
    broker->spent = errand;
}

int cb_broker_place(struct cb_broker *broker, int fd)
{
    if (broker->place_count == PLACES) {
        cb_close_cleanup(&fd);
        return -1;
    }
    broker->places[broker->place_count++] = fd;
    return 0;
}

static void bury(struct cb_broker *broker)
{
    for (struct errand *at = cb_steal(broker->spent); at;) {
        struct errand *next = at->next;
        free(at);
        at = next;
    }
}

void cb_broker_tick(struct cb_broker *broker)
{
    bury(broker);
    for (struct errand *at = broker->errands; at; at = at->next)
        if (at->until && broker->relay->now >= at->until)
            settle(at, EINPROGRESS); /* what the kernel says then */
}

/* Milliseconds until the next timeout, or -1. */
int cb_broker_timeout(const struct cb_broker *broker)
{
    uint64_t first = 0;
    for (const struct errand *at = broker->errands; at; at = at->next)
        if (at->until && (!first || at->until < first))
            first = at->until;
    return !first ? -1 : first > broker->relay->now ? (int)(first - broker->relay->now) : 0;
}

struct cb_broker *cb_broker_open(struct cb_relay *relay)
{
    struct cb_broker *broker = calloc(1, sizeof *broker);
    if (broker) {
        broker->relay = relay;
        broker->most = cb_relay_room(4096, 2);
    }
    return broker;
}

void cb_broker_close(struct cb_broker *broker)
{
    if (!broker)
        return;
    while (broker->errands)
        cb_broker_done(broker, broker->errands->id);
    bury(broker);
    for (size_t i = 0; i < broker->place_count; i++)
        close(broker->places[i]);
    free(broker);
}
