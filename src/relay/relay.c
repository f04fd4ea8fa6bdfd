/* The relay's process: its event loop, and what the supervisor says to it. See relay.h. */
#include "relay/relay.h"

#include "base/cleanup.h"
#include "base/error.h"
#include "base/missing.h"
#include "policy/pack.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>

/* For what is still on its way out when the cell has ended. */
enum { DELIVERY_MS = 5000, SHORT_DELIVERY_MS = 500, TICK_MS = 1000 };

int cb_relay_watch(struct cb_relay *relay, int fd, struct cb_source *source, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = source};
    return epoll_ctl(relay->epoll, EPOLL_CTL_ADD, fd, &event);
}

void cb_relay_unwatch(struct cb_relay *relay, int fd)
{
    epoll_ctl(relay->epoll, EPOLL_CTL_DEL, fd, NULL);
}

int cb_relay_accept(struct cb_relay *relay, int listener)
{
    int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0 || (errno != EMFILE && errno != ENFILE) || relay->spare < 0)
        return fd;
    close(relay->spare);
    fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0)
        close(fd);
    relay->spare = fcntl(relay->link, F_DUPFD_CLOEXEC, 0);
    return -1;
}

uint64_t cb_relay_room(uint64_t most, unsigned share)
{
    struct rlimit files;
    uint64_t limit = getrlimit(RLIMIT_NOFILE, &files) < 0 ? 256 : files.rlim_cur, room = limit / share;
    return most < room ? most : room;
}

/* A packet that finds no room is lost, as packets are: the sender repeats what matters. */
void cb_relay_inject(struct cb_relay *relay, int family, const void *packet, size_t length)
{
    struct sockaddr_in four = {.sin_family = AF_INET};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6};
    const uint8_t *bytes = packet;
    if (length == 0)
        return;
    if (family == AF_INET) {
        memcpy(&four.sin_addr, bytes + 16, 4);
        sendto(relay->sockets[CB_DIVERT_RAW4], packet, length, MSG_DONTWAIT, (struct sockaddr *)&four, sizeof four);
    } else {
        memcpy(&six.sin6_addr, bytes + 24, 16);
        sendto(relay->sockets[CB_DIVERT_RAW6], packet, length, MSG_DONTWAIT, (struct sockaddr *)&six, sizeof six);
    }
}

static bool is_used_up(struct cb_relay *relay)
{
    if (relay->out + relay->in + relay->overhead <= relay->most_bytes)
        return false;
    const struct cb_link_message message = {.kind = CB_LINK_LIMIT};
    if (!relay->limit_told)
        relay->limit_told = cb_link_tell(&relay->queue, &message, NULL, 0, -1) == 0;
    return true;
}

bool cb_relay_count(struct cb_relay *relay, size_t out, size_t in)
{
    relay->out += out;
    relay->in += in;
    return is_used_up(relay);
}

bool cb_relay_overhead(struct cb_relay *relay, size_t bytes)
{
    relay->overhead += bytes;
    return is_used_up(relay);
}

bool cb_relay_is_resolver(const struct cb_relay *relay, const struct cb_address *address, uint16_t port)
{
    if (port != 53)
        return false;
    return (address->family == AF_INET && memcmp(address->bytes, cb_divert_resolver, 4) == 0) ||
           cb_names_is_server(relay->names, address);
}

struct cb_net_decision cb_relay_decide(struct cb_relay *relay, enum cb_protocol protocol,
                                       const struct cb_address *address, uint16_t port)
{
    enum { NAMES = 32 };
    const char *names[NAMES];
    const struct cb_address plain = cb_address_plain(*address);
    const struct cb_net_target target = {
        .protocol = protocol, .address = plain, .port = port, .names = names,
        .name_count = cb_names_of(relay->names, &plain, names, NAMES)};
    return cb_decide_connect(relay->policy, &target);
}

struct cb_net_decision cb_relay_judge(struct cb_relay *relay, enum cb_protocol protocol,
                                      const struct cb_address *address, uint16_t port)
{
    struct cb_net_decision decision = cb_relay_decide(relay, protocol, address, port);
#ifdef CELLBLOCK_TEST_HOOKS
    decision.allowed |= relay->unjudged;
#endif
    return decision;
}

/* ---- What the supervisor says ---- */

/* Nothing is sent by connecting a datagram socket, and programs do it to find out which of several addresses to prefer:
 * that is only refused where no rule would allow anything. */
static bool is_known(struct cb_relay *relay, const struct cb_address *address)
{
    const char *names[1];
    return cb_names_of(relay->names, address, names, 1) > 0;
}

static void answer(struct cb_relay *relay, const struct cb_link_message *asked)
{
    const struct cb_address address = cb_address_plain(asked->address);
    enum cb_protocol protocol = asked->protocol == CB_PROTOCOL_UDP ? CB_PROTOCOL_UDP : CB_PROTOCOL_TCP;
    struct cb_link_message reply = {.kind = CB_LINK_ANSWER, .id = asked->id};
    bool sends = asked->number == 1;
    struct cb_net_decision decision = cb_relay_decide(relay, protocol, &address, asked->port);
    if (!decision.allowed && !cb_relay_is_resolver(relay, &address, asked->port) &&
        !(protocol == CB_PROTOCOL_UDP && !sends && is_known(relay, &address))) {
        reply.number = EACCES;
        cb_refuse_target(relay, sends ? "network.send" : "network.connect", protocol, &address, asked->port, &decision);
    }
    cb_link_tell(&relay->queue, &reply, NULL, 0, -1);
}

static int take_policy(struct cb_relay *relay, struct cb_text *packed)
{
    cellblock_policy *policy = NULL;
    struct cb_frame_reader reader = {.at = packed->data, .left = packed->length};
    int failed = packed->failed || cb_policy_unpack(&reader, &policy, NULL) < 0;
    cb_text_free(packed);
    *packed = (struct cb_text){0};
    if (failed)
        return -1;
    cellblock_policy_free(relay->policy);
    relay->policy = policy;
    return 0;
}

/* The old one stays if the new one can't be taken. */
static void change_policy(struct cb_relay *relay, struct cb_text *packed, bool cut)
{
    struct cb_link_message reply = {.kind = CB_LINK_CHANGED};
    if (take_policy(relay, packed) < 0) {
        reply.number = ENOMEM;
    } else {
        cb_udp_cut(relay->udp); /* they have no end of their own */
        if (cut)
            cb_tcp_cut(relay->tcp);
    }
    cb_link_tell(&relay->queue, &reply, NULL, 0, -1);
}

/* Returns false when there is nothing more to do for the cell. */
static bool obey(struct cb_relay *relay, struct cb_text *packed)
{
    static char text[CB_LINK_TEXT + 1];
    struct cb_link_message message;
    for (;;) {
        int fd;
        ssize_t length = cb_link_receive(relay->link, &message, text, &fd, MSG_DONTWAIT);
        if (length < 0)
            return errno == EAGAIN;
        switch (message.kind) {
        case CB_LINK_POLICY:
            cb_text_add(packed, text, (size_t)length);
            if (message.number)
                change_policy(relay, packed, message.number == 2);
            break;
        case CB_LINK_ASK:
            answer(relay, &message);
            break;
        case CB_LINK_INNER:
            cb_publisher_inner(relay->publisher, fd);
            fd = -1;
            break;
        case CB_LINK_CONNECT:
            if (fd >= 0)
                cb_broker_connect(relay->broker, message.id, cb_steal_fd(&fd), text, (size_t)length);
            break;
        case CB_LINK_DONE:
            cb_broker_done(relay->broker, message.id);
            break;
        case CB_LINK_FINISH:
            relay->finishing = true;
            relay->delivery_ms = message.number ? SHORT_DELIVERY_MS : DELIVERY_MS;
            break;
        default:
            break;
        }
        cb_close_cleanup(&fd);
    }
}

/* ---- Start ---- */

static void tell_failure(struct cb_relay *relay, const char *step)
{
    const struct cb_link_message message = {.kind = CB_LINK_FAILED, .number = errno};
    cb_link_send(relay->link, &message, step, strlen(step), -1, 0);
}

/* Whatever the caller left open is not ours, its standard streams included. */
static void leave_descriptors(int link)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int i = 0; i < 3; i++)
        if (null < 0 || dup2(null, i) < 0)
            close(i);
    cb_sys_close_range((unsigned)link + 1, ~0U, 0);
}

static void raise_open_files(void)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
}

static int open_parts(struct cb_relay *relay)
{
    relay->epoll = epoll_create1(EPOLL_CLOEXEC);
    return relay->epoll < 0 || !(relay->refusals = cb_refusals_open(relay)) || !(relay->names = cb_names_open(relay)) ||
                   !(relay->tcp = cb_tcp_open(relay)) || !(relay->udp = cb_udp_open(relay)) ||
                   !(relay->publisher = cb_publisher_open(relay)) || !(relay->broker = cb_broker_open(relay))
               ? -1
               : 0;
}

/* Settings and policy come first; then it confines itself, and only then gets sockets of the cell. */
static int set_up(struct cb_relay *relay, struct cb_text *packed)
{
    static char text[CB_LINK_TEXT + 1];
    struct cb_link_message message;
    const char *step = "reading its settings";
    unsigned uid = 0, gid = 0;
    bool ready = false, all = false;
    while (!all) {
        int fd;
        ssize_t length = cb_link_receive(relay->link, &message, text, &fd, 0);
        if (length < 0)
            return -1;
        switch (message.kind) {
        case CB_LINK_SETTINGS:
            relay->most_bytes = message.counts[0];
            relay->most_connections = message.counts[1];
            uid = (unsigned)message.counts[2];
            gid = (unsigned)message.counts[3];
#ifdef CELLBLOCK_TEST_HOOKS
            relay->unjudged = message.number != 0;
#endif
            break;
        case CB_LINK_POLICY:
            cb_text_add(packed, text, (size_t)length);
            if (message.number && (take_policy(relay, packed) < 0 || open_parts(relay) < 0 ||
                                   cb_relay_confine(uid, gid, &step) < 0)) {
                tell_failure(relay, step);
                return -1;
            }
            ready = message.number != 0;
            break;
        case CB_LINK_SOCKET:
            if (message.number >= 0 && message.number < CB_DIVERT_SOCKETS && relay->sockets[message.number] < 0)
                relay->sockets[message.number] = cb_steal_fd(&fd);
            all = message.number == CB_DIVERT_SOCKETS;
            break;
        case CB_LINK_PLACE:
            if (cb_broker_place(relay->broker, cb_steal_fd(&fd)) < 0)
                return -1;
            break;
        case CB_LINK_RESOLVER:
            if (cb_names_listen(relay->names, cb_steal_fd(&fd)) < 0)
                return -1;
            break;
        case CB_LINK_PUBLISH:
            if (cb_publisher_add(relay->publisher, cb_steal_fd(&fd), message.port) < 0)
                return -1;
            break;
        default:
            break;
        }
        cb_close_cleanup(&fd);
    }
    if (!ready || cb_tcp_start(relay->tcp) < 0 || cb_udp_start(relay->udp) < 0 ||
        cb_relay_watch(relay, relay->link, &relay->link_source, EPOLLIN) < 0) {
        tell_failure(relay, "watching the cell's sockets");
        return -1;
    }
    const struct cb_link_message told = {.kind = CB_LINK_READY};
    return cb_link_send(relay->link, &told, NULL, 0, -1, 0);
}

/* ---- The loop ---- */

static uint64_t clock_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static int timeout_of(struct cb_relay *relay, bool more)
{
    if (more)
        return 0;
    int names = cb_names_timeout(relay->names), broker = cb_broker_timeout(relay->broker);
    names = broker >= 0 && (names < 0 || broker < names) ? broker : names;
    bool ticks = relay->finishing || cb_tcp_waits(relay->tcp) || cb_udp_waits(relay->udp);
    return !ticks ? names : names >= 0 && names < TICK_MS ? names : relay->finishing ? 20 : TICK_MS;
}

/* Room on the link is only waited for while something is to be said. */
static void watch_queue(struct cb_relay *relay)
{
    cb_link_flush(&relay->queue);
    bool waits = cb_link_waits(&relay->queue);
    struct epoll_event event = {.events = EPOLLIN | (waits ? EPOLLOUT : 0), .data.ptr = &relay->link_source};
    if (waits != relay->queue_watched && epoll_ctl(relay->epoll, EPOLL_CTL_MOD, relay->link, &event) == 0)
        relay->queue_watched = waits;
}

static void run(struct cb_relay *relay, struct cb_text *packed)
{
    enum { EVENTS = 128 };
    struct epoll_event events[EVENTS];
    uint64_t next_tick = 0, last_moment = 0;
    bool more = false;
    for (;;) {
        int count = epoll_wait(relay->epoll, events, EVENTS, timeout_of(relay, more));
        relay->now = clock_ms();
        /* The supervisor's word first: it may be about what comes next. */
        for (int i = 0; i < count; i++)
            if (events[i].data.ptr == &relay->link_source && !obey(relay, packed))
                return;
        for (int i = 0; i < count; i++) {
            struct cb_source *source = events[i].data.ptr;
            if (source != &relay->link_source)
                source->ready(source, events[i].events);
        }
        more = cb_tcp_go_on(relay->tcp);
        cb_names_tick(relay->names);
        cb_broker_tick(relay->broker);
        if (relay->now >= next_tick) {
            cb_tcp_tick(relay->tcp);
            cb_udp_tick(relay->udp);
            next_tick = relay->now + TICK_MS;
        }
        watch_queue(relay);
        if (!relay->queue_watched)
            cb_refusals_flush(relay->refusals);
        if (!relay->finishing)
            continue;
        if (last_moment == 0)
            last_moment = relay->now + relay->delivery_ms;
        if (!cb_tcp_busy(relay->tcp) || relay->now >= last_moment)
            return;
    }
}

static void tell_counts(const struct cb_relay *relay)
{
    const struct cb_link_message message = {
        .kind = CB_LINK_COUNTS, .counts = {relay->connections, relay->out, relay->in}};
    cb_link_send(relay->link, &message, NULL, 0, -1, 0);
}

/* A supervisor that does not read its relay's last words is not waited for. */
static void bound_sending(int link)
{
    const struct timeval most = {.tv_sec = 5};
    setsockopt(link, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof most);
}

int cellblock_relay_serve(int fd)
{
    struct cb_relay *relay = calloc(1, sizeof *relay);
    cb_autotext struct cb_text packed = {0};
    if (!relay)
        return 125;
    relay->link = relay->queue.link = fd;
    bound_sending(fd);
    relay->epoll = -1;
    for (size_t i = 0; i < CB_DIVERT_SOCKETS; i++)
        relay->sockets[i] = -1;
    prctl(PR_SET_NAME, "cellblock-relay");
    leave_descriptors(fd);
    signal(SIGPIPE, SIG_IGN);
    raise_open_files();
    relay->spare = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    int failed = set_up(relay, &packed);
    if (!failed) {
        run(relay, &packed);
        cb_refusals_flush(relay->refusals);
        tell_counts(relay);
    }
    cb_link_clear(&relay->queue);
    cb_close_cleanup(&relay->spare);
    cb_broker_close(relay->broker);
    cb_publisher_close(relay->publisher);
    cb_udp_close(relay->udp);
    cb_tcp_close(relay->tcp);
    cb_names_close(relay->names);
    cb_refusals_close(relay->refusals);
    cellblock_policy_free(relay->policy);
    for (size_t i = 0; i < CB_DIVERT_SOCKETS; i++)
        cb_close_cleanup(&relay->sockets[i]);
    cb_close_cleanup(&relay->epoll);
    free(relay);
    return failed ? 125 : 0;
}
