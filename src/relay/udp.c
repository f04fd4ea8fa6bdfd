/* Datagrams. All that leave the cell arrive at one socket, with the address that was meant. Each pair of a socket inside
 * and an address outside is a flow, with a connected socket of its own on the outside; what comes back is sent into the
 * cell as a packet from that address, and "connection refused" likewise. Datagrams that no rule allows are dropped. */
#include "relay/relay.h"

#include "base/cleanup.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>

enum { BUCKETS = 512, FLOWS = 1024, IDLE_MS = 120000, TURN_PACKETS = 128, LARGEST = 65536, HEADER_BYTES = 28 };

struct route {
    struct cb_source source;
    struct route *next, *previous; /* the last used is first */
    struct route *chain;
    struct cb_udp *udp;
    struct cb_flow flow;
    int outer;
    uint64_t since;
    bool dead;
};

struct cb_udp {
    struct cb_relay *relay;
    struct cb_source source[2];
    struct route *buckets[BUCKETS];
    struct route *first, *last, *graveyard;
    size_t count;
    uint64_t most, secret;
    uint8_t bytes[CB_PACKET_DATAGRAM + LARGEST];
};

/* ---- The table ---- */

static struct route **bucket_of(struct cb_udp *udp, const struct cb_flow *flow)
{
    return &udp->buckets[cb_flow_hash(flow, udp->secret) % BUCKETS];
}

static void unlist(struct cb_udp *udp, struct route *route)
{
    *(route->previous ? &route->previous->next : &udp->first) = route->next;
    *(route->next ? &route->next->previous : &udp->last) = route->previous;
    route->next = route->previous = NULL;
}

static void list_first(struct cb_udp *udp, struct route *route)
{
    route->next = udp->first;
    *(udp->first ? &udp->first->previous : &udp->last) = route;
    udp->first = route;
}

/* An event for it may still be waiting: freed at the next tick. */
static void drop(struct route *route)
{
    struct cb_udp *udp = route->udp;
    struct route **at = bucket_of(udp, &route->flow);
    while (*at != route)
        at = &(*at)->chain;
    *at = route->chain;
    unlist(udp, route);
    cb_close_cleanup(&route->outer);
    udp->count--;
    route->dead = true;
    route->next = udp->graveyard;
    udp->graveyard = route;
}

/* ---- Into the cell ---- */

void cb_udp_reply(struct cb_relay *relay, const struct cb_flow *flow, const uint8_t *payload, size_t length)
{
    uint8_t *packet = relay->udp->bytes;
    if (length > LARGEST - 8)
        return;
    uint8_t headers[CB_PACKET_DATAGRAM];
    size_t at = cb_packet_datagram(flow, false, payload, length, headers);
    memmove(packet + at, payload, length);
    memcpy(packet, headers, at);
    cb_relay_inject(relay, flow->client.family, packet, at + length);
}

/* What a router, or the host itself, would say of a datagram that can't be delivered. */
static void bounce(struct cb_relay *relay, const struct cb_flow *flow, int errnum)
{
    static const uint8_t nothing[1];
    uint8_t packet[CB_PACKET_DATAGRAM], answer[CB_PACKET_HEAD];
    size_t length = cb_packet_datagram(flow, true, nothing, 0, packet);
    cb_relay_inject(relay, flow->client.family, answer, cb_packet_unreachable(packet, length, errnum, answer));
}

static void on_outer(struct cb_source *source, uint32_t events)
{
    struct route *route = cb_container_of(source, struct route, source);
    struct cb_udp *udp = route->udp;
    uint8_t *payload = udp->bytes + CB_PACKET_DATAGRAM;
    (void)events;
    for (int i = 0; i < TURN_PACKETS && !route->dead; i++) {
        ssize_t length = recv(route->outer, payload, LARGEST, MSG_DONTWAIT);
        if (length < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (length < 0) {
            bounce(udp->relay, &route->flow, errno);
            continue;
        }
        route->since = udp->relay->now;
        unlist(udp, route);
        list_first(udp, route);
        if (cb_relay_overhead(udp->relay, HEADER_BYTES) || cb_relay_count(udp->relay, 0, (size_t)length))
            return;
        cb_udp_reply(udp->relay, &route->flow, payload, (size_t)length);
    }
}

/* ---- Out of the cell ---- */

static struct route *add(struct cb_udp *udp, const struct cb_flow *flow)
{
    const struct cb_address plain = cb_address_plain(flow->target);
    struct sockaddr_storage address;
    socklen_t size = cb_address_to(&plain, flow->target_port, &address);
    if (udp->count >= udp->most)
        drop(udp->last);
    struct route *route = calloc(1, sizeof *route);
    cb_autofd int outer = socket(address.ss_family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (!route || outer < 0 || connect(outer, (struct sockaddr *)&address, size) < 0) {
        bounce(udp->relay, flow, outer < 0 ? ENETUNREACH : errno);
        free(route);
        return NULL;
    }
    *route = (struct route){.source.ready = on_outer, .udp = udp, .flow = *flow, .outer = outer};
    if (cb_relay_watch(udp->relay, outer, &route->source, EPOLLIN) < 0) {
        free(route);
        return NULL;
    }
    cb_steal_fd(&outer);
    struct route **bucket = bucket_of(udp, flow);
    route->chain = *bucket;
    *bucket = route;
    list_first(udp, route);
    udp->count++;
    udp->relay->connections++;
    return route;
}

static struct route *route_for(struct cb_udp *udp, const struct cb_flow *flow)
{
    struct route *at = *bucket_of(udp, flow);
    while (at && !cb_flow_equal(&at->flow, flow))
        at = at->chain;
    if (!at)
        return add(udp, flow);
    unlist(udp, at);
    list_first(udp, at);
    return at;
}

static void datagram(struct cb_udp *udp, const struct cb_flow *flow, const uint8_t *payload, size_t length)
{
    struct cb_relay *relay = udp->relay;
    struct cb_net_decision decision = cb_relay_judge(relay, CB_PROTOCOL_UDP, &flow->target, flow->target_port);
    if (!decision.allowed && cb_relay_is_resolver(relay, &flow->target, flow->target_port)) {
        cb_names_question(relay->names, flow, payload, length);
        return;
    }
    if (!decision.allowed) {
        cb_refuse_target(relay, "network.send", CB_PROTOCOL_UDP, &flow->target, flow->target_port, &decision);
        bounce(relay, flow, ECONNREFUSED);
        return;
    }
    struct route *route = relay->finishing ? NULL : route_for(udp, flow);
    if (!route || cb_relay_overhead(relay, HEADER_BYTES) || cb_relay_count(relay, length, 0))
        return;
    route->since = relay->now;
    if (send(route->outer, payload, length, MSG_DONTWAIT) < 0 && errno != EAGAIN && errno != ENOBUFS)
        bounce(relay, flow, errno);
}

/* The address that was meant comes beside the datagram. */
static bool target_of(struct msghdr *header, struct cb_flow *flow)
{
    for (struct cmsghdr *item = CMSG_FIRSTHDR(header); item; item = CMSG_NXTHDR(header, item))
        if ((item->cmsg_level == SOL_IP && item->cmsg_type == IP_ORIGDSTADDR) ||
            (item->cmsg_level == SOL_IPV6 && item->cmsg_type == IPV6_ORIGDSTADDR)) {
            struct sockaddr_storage address = {0};
            size_t size = item->cmsg_len - CMSG_LEN(0);
            memcpy(&address, CMSG_DATA(item), size < sizeof address ? size : sizeof address);
            return cb_address_from((struct sockaddr *)&address, size, &flow->target, &flow->target_port);
        }
    return false;
}

static void read_inner(struct cb_udp *udp, int fd)
{
    for (int i = 0; i < TURN_PACKETS; i++) {
        struct sockaddr_storage from;
        union {
            struct cmsghdr align;
            char space[256];
        } control;
        struct iovec data = {.iov_base = udp->bytes, .iov_len = sizeof udp->bytes};
        struct msghdr header = {.msg_name = &from, .msg_namelen = sizeof from, .msg_iov = &data, .msg_iovlen = 1,
                                .msg_control = control.space, .msg_controllen = sizeof control.space};
        ssize_t length = recvmsg(fd, &header, MSG_DONTWAIT);
        struct cb_flow flow = {.client_port = 0};
        if (length < 0)
            return;
        if (target_of(&header, &flow) &&
            cb_address_from((struct sockaddr *)&from, header.msg_namelen, &flow.client, &flow.client_port))
            datagram(udp, &flow, udp->bytes, (size_t)length);
    }
}

static void on_inner4(struct cb_source *source, uint32_t events)
{
    struct cb_udp *udp = cb_container_of(source, struct cb_udp, source[0]);
    (void)events;
    read_inner(udp, udp->relay->sockets[CB_DIVERT_UDP4]);
}

static void on_inner6(struct cb_source *source, uint32_t events)
{
    struct cb_udp *udp = cb_container_of(source, struct cb_udp, source[1]);
    (void)events;
    read_inner(udp, udp->relay->sockets[CB_DIVERT_UDP6]);
}

/* ---- The rest ---- */

static void bury(struct cb_udp *udp)
{
    for (struct route *at = cb_steal(udp->graveyard); at;) {
        struct route *next = at->next;
        free(at);
        at = next;
    }
}

void cb_udp_cut(struct cb_udp *udp)
{
    for (struct route *at = udp->first, *next; at; at = next) {
        next = at->next;
        if (!cb_relay_decide(udp->relay, CB_PROTOCOL_UDP, &at->flow.target, at->flow.target_port).allowed)
            drop(at);
    }
}

void cb_udp_tick(struct cb_udp *udp)
{
    bury(udp);
    while (udp->last && udp->relay->now - udp->last->since > IDLE_MS)
        drop(udp->last);
}

bool cb_udp_waits(const struct cb_udp *udp)
{
    return udp->first || udp->graveyard;
}

struct cb_udp *cb_udp_open(struct cb_relay *relay)
{
    struct cb_udp *udp = calloc(1, sizeof *udp);
    if (udp && getrandom(&udp->secret, sizeof udp->secret, 0) != sizeof udp->secret) {
        free(udp);
        return NULL;
    }
    if (udp) {
        udp->relay = relay;
        udp->most = cb_relay_room(FLOWS, 8);
    }
    return udp;
}

int cb_udp_start(struct cb_udp *udp)
{
    static void (*const on_inner[])(struct cb_source *, uint32_t) = {on_inner4, on_inner6};
    for (int i = 0; i < 2; i++) {
        int fd = udp->relay->sockets[CB_DIVERT_UDP4 + i];
        udp->source[i].ready = on_inner[i];
        if (fd >= 0 && cb_relay_watch(udp->relay, fd, &udp->source[i], EPOLLIN) < 0)
            return -1;
    }
    return 0;
}

void cb_udp_close(struct cb_udp *udp)
{
    if (!udp)
        return;
    while (udp->first)
        drop(udp->first);
    bury(udp);
    free(udp);
}
