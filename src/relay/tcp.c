/* Connections of the cell to the outside.
 *
 *   1. the first packet is seen (it was dropped on its way, see base/divert.h): decide; connect outside
 *   2. that fails: the program gets that error, by a packet that says so
 *      it works: the first packet is sent again, with our mark, and the connection arrives at our listener
 *   3. both are joined; bytes are moved in the kernel (splice) through a pipe that a direction has only while something
 *      is in it. What one side does not take is not read from the other. The end of one direction is passed on, and a
 *      reset is passed on as a reset.
 *
 * The decision is made on the address in the packet that asks. A connection that arrives is joined only if it is one of
 * those: asked for, allowed, and made outside. */
#include "relay/relay.h"

#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>

enum {
    BUCKETS = 4096,
    PIPES = 16,                 /* large ones; they are kept. Others have the usual size, as all of a user share a budget */
    PIPE_BYTES = 512 << 10,
    MOST = 4096,                /* connections, without a limit in the policy */
    TURN_BYTES = 4 << 20,       /* moved for one connection before the others have their turn */
    TURN_PACKETS = 64,
    ARRIVAL_MS = 20000,         /* for a connection that was let through to arrive */
    OUTSIDE_MS = 180000,        /* for one outside to be made; the kernel gives up before */
    STALLED_MS = 1500,          /* after the cell is gone: nobody takes what is left */
    IDLE_MS = 2 * 3600 * 1000,
    HALF_MS = 10 * 60 * 1000,   /* likewise, with one direction ended: the program may have closed and be gone */
    ROOM = 4,                   /* part of our descriptors: each connection has two, and pipes while something is in them */
};

enum state { ASKED, LET_THROUGH, JOINED };

/* One direction. */
struct half {
    int pipe[2];
    size_t held;                /* bytes in it */
    bool ended;                 /* the end was read */
    bool shut;                  /* … and passed on */
};

struct connection {
    struct cb_source inner_source, outer_source;
    struct connection *next, *previous; /* of all */
    struct connection *chain;           /* in its bucket */
    struct connection *later;           /* in the list of those to go on with */
    struct cb_tcp *tcp;
    struct cb_flow flow;
    enum state state;
    bool published;
    bool put_off;
    bool dead;                  /* closed; freed at the end of the turn, as an event for it may still be waiting */
    int inner, outer;
    struct half out, in;
    uint64_t since;             /* that this state began, or that something was moved */
    uint8_t first[CB_PACKET_HEAD];
    size_t first_length;
};

struct cb_tcp {
    struct cb_relay *relay;
    struct cb_source listener_source[2], tap_source[2];
    struct connection *buckets[BUCKETS];
    struct connection *all, *later, *graveyard;
    uint64_t count, most, secret;
    int pipes[PIPES][2];
    size_t pipe_count, large_count;
    bool starved;               /* there was no pipe for somebody */
};

/* ---- Pipes ---- */

static int take_pipe(struct cb_tcp *tcp, int ends[2])
{
    if (tcp->pipe_count > 0) {
        memcpy(ends, tcp->pipes[--tcp->pipe_count], sizeof tcp->pipes[0]);
        return 0;
    }
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0) {
        ends[0] = ends[1] = -1;
        return -1;
    }
    if (tcp->large_count < PIPES && fcntl(ends[1], F_SETPIPE_SZ, PIPE_BYTES) >= PIPE_BYTES)
        tcp->large_count++;
    return 0;
}

static void give_back(struct cb_tcp *tcp, struct half *half)
{
    if (half->pipe[0] < 0)
        return;
    bool large = fcntl(half->pipe[0], F_GETPIPE_SZ) >= PIPE_BYTES;
    if (large && half->held == 0 && tcp->pipe_count < PIPES) {
        memcpy(tcp->pipes[tcp->pipe_count++], half->pipe, sizeof half->pipe);
    } else {
        tcp->large_count -= large;
        close(half->pipe[0]);
        close(half->pipe[1]);
    }
    half->pipe[0] = half->pipe[1] = -1;
    half->held = 0;
}

/* ---- The table ---- */

static struct connection **bucket_of(struct cb_tcp *tcp, const struct cb_flow *flow)
{
    return &tcp->buckets[cb_flow_hash(flow, tcp->secret) % BUCKETS];
}

static struct connection *find(struct cb_tcp *tcp, const struct cb_flow *flow)
{
    struct connection *at = *bucket_of(tcp, flow);
    while (at && !cb_flow_equal(&at->flow, flow))
        at = at->chain;
    return at;
}

static void on_inner(struct cb_source *source, uint32_t events);
static void on_outer(struct cb_source *source, uint32_t events);

static struct connection *add(struct cb_tcp *tcp, const struct cb_flow *flow)
{
    struct connection *made = calloc(1, sizeof *made);
    if (!made)
        return NULL;
    *made = (struct connection){.inner_source.ready = on_inner, .outer_source.ready = on_outer, .tcp = tcp,
                                .inner = -1, .outer = -1, .out.pipe = {-1, -1}, .in.pipe = {-1, -1},
                                .since = tcp->relay->now, .published = !flow};
    if (flow) {
        made->flow = *flow;
        struct connection **bucket = bucket_of(tcp, flow);
        made->chain = *bucket;
        *bucket = made;
    }
    made->next = tcp->all;
    if (tcp->all)
        tcp->all->previous = made;
    tcp->all = made;
    tcp->count++;
    return made;
}

static void leave_table(struct connection *connection)
{
    struct connection **at = bucket_of(connection->tcp, &connection->flow);
    while (*at && *at != connection)
        at = &(*at)->chain;
    if (*at)
        *at = connection->chain;
}

/* Closes; with `abort` so that the other ends see a reset. */
static void drop(struct connection *connection, bool abort)
{
    struct cb_tcp *tcp = connection->tcp;
    const struct linger now = {.l_onoff = 1};
    if (connection->dead)
        return;
    int *const ends[] = {&connection->inner, &connection->outer};
    for (size_t i = 0; i < 2; i++) {
        if (*ends[i] >= 0 && abort)
            setsockopt(*ends[i], SOL_SOCKET, SO_LINGER, &now, sizeof now);
        cb_close_cleanup(ends[i]);
        *ends[i] = -1;
    }
    give_back(tcp, &connection->out);
    give_back(tcp, &connection->in);
    if (!connection->published)
        leave_table(connection);
    if (connection->previous)
        connection->previous->next = connection->next;
    else
        tcp->all = connection->next;
    if (connection->next)
        connection->next->previous = connection->previous;
    tcp->count--;
    connection->dead = true;
    connection->next = tcp->graveyard;
    tcp->graveyard = connection;
}

/* ---- Moving bytes ---- */

enum moved { WAITS, MORE, DONE, BROKEN };

/* How much may still pass, and a byte more, by which the limit is noticed. */
static size_t allowance(const struct cb_relay *relay)
{
    uint64_t used = relay->out + relay->in + relay->overhead;
    if (relay->most_bytes == CB_UNLIMITED || relay->most_bytes - used >= PIPE_BYTES)
        return used > relay->most_bytes ? 0 : PIPE_BYTES;
    return used > relay->most_bytes ? 0 : (size_t)(relay->most_bytes - used) + 1;
}

static enum moved fill(struct connection *connection, struct half *half, int from, bool outward)
{
    struct cb_relay *relay = connection->tcp->relay;
    size_t most = allowance(relay);
    if (most == 0)
        return WAITS; /* for the end of the cell */
    if (half->pipe[0] < 0 && take_pipe(connection->tcp, half->pipe) < 0) {
        connection->tcp->starved = true; /* tried again at the next tick */
        return WAITS;
    }
    ssize_t got = splice(from, NULL, half->pipe[1], NULL, most, SPLICE_F_NONBLOCK | SPLICE_F_MOVE);
    if (got > 0) {
        half->held = (size_t)got;
        connection->since = relay->now;
        cb_relay_count(relay, outward ? (size_t)got : 0, outward ? 0 : (size_t)got);
        return MORE;
    }
    int failed = errno;
    give_back(connection->tcp, half);
    if (got == 0) {
        half->ended = true;
        return MORE;
    }
    return failed == EAGAIN || failed == EINTR ? WAITS : BROKEN;
}

static enum moved empty(struct connection *connection, struct half *half, int to)
{
    ssize_t put = splice(half->pipe[0], NULL, to, NULL, half->held, SPLICE_F_NONBLOCK | SPLICE_F_MOVE);
    if (put < 0)
        return errno == EAGAIN || errno == EINTR ? WAITS : BROKEN;
    half->held -= (size_t)put;
    connection->since = connection->tcp->relay->now;
    if (half->held == 0)
        give_back(connection->tcp, half);
    return MORE;
}

static enum moved move(struct connection *connection, struct half *half, int from, int to, bool outward)
{
    size_t turn = 0;
    while (turn < TURN_BYTES) {
        if (half->shut)
            return DONE;
        enum moved step;
        if (half->held > 0) {
            turn += half->held;
            step = empty(connection, half, to);
        } else if (!half->ended) {
            step = fill(connection, half, from, outward);
        } else {
            shutdown(to, SHUT_WR);
            half->shut = true;
            continue;
        }
        if (step != MORE)
            return step;
    }
    return MORE;
}

static void put_off(struct connection *connection)
{
    if (connection->put_off)
        return;
    connection->put_off = true;
    connection->later = connection->tcp->later;
    connection->tcp->later = connection;
}

static void carry(struct connection *connection)
{
    enum moved out = move(connection, &connection->out, connection->inner, connection->outer, true);
    enum moved in = out == BROKEN ? BROKEN
                                  : move(connection, &connection->in, connection->outer, connection->inner, false);
    if (in == BROKEN)
        drop(connection, true);
    else if (out == DONE && in == DONE)
        drop(connection, false);
    else if (out == MORE || in == MORE)
        put_off(connection);
}

static void on_inner(struct cb_source *source, uint32_t events)
{
    struct connection *connection = cb_container_of(source, struct connection, inner_source);
    (void)events;
    if (!connection->dead && connection->state == JOINED)
        carry(connection);
}

static void start(struct connection *connection)
{
    const int on = 1;
    connection->state = JOINED;
    connection->since = connection->tcp->relay->now;
    setsockopt(connection->inner, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(connection->outer, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (cb_relay_watch(connection->tcp->relay, connection->inner, &connection->inner_source,
                       EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET) < 0) {
        drop(connection, true);
        return;
    }
    connection->tcp->relay->connections++;
    carry(connection);
}

/* ---- Asking and arriving ---- */

/* The outside did not let us: neither does the inside, for the same reason. */
static void refuse(struct cb_relay *relay, const uint8_t *first, size_t length, int family, int errnum)
{
    uint8_t answer[CB_PACKET_HEAD];
    size_t size = errnum == ECONNREFUSED || errnum == ECONNRESET ? cb_packet_refusal(first, length, answer)
                                                                  : cb_packet_unreachable(first, length, errnum, answer);
    cb_relay_inject(relay, family, answer, size);
}

static void let_through(struct cb_relay *relay, uint8_t *first, size_t length, int family)
{
    cb_packet_seal(first, length);
    cb_relay_inject(relay, family, first, length);
}

/* The outside has answered. */
static void settle(struct connection *connection)
{
    struct cb_relay *relay = connection->tcp->relay;
    int errnum = 0;
    socklen_t size = sizeof errnum;
    getsockopt(connection->outer, SOL_SOCKET, SO_ERROR, &errnum, &size);
    if (errnum) {
        refuse(relay, connection->first, connection->first_length, connection->flow.target.family, errnum);
        drop(connection, false);
        return;
    }
    connection->state = LET_THROUGH;
    connection->since = relay->now;
    let_through(relay, connection->first, connection->first_length, connection->flow.target.family);
}

static void on_outer(struct cb_source *source, uint32_t events)
{
    struct connection *connection = cb_container_of(source, struct connection, outer_source);
    if (connection->dead)
        return;
    if (connection->state == JOINED)
        carry(connection);
    else if (connection->state == ASKED && events & (EPOLLOUT | EPOLLERR | EPOLLHUP))
        settle(connection);
}

static int connect_outside(struct connection *connection)
{
    const struct cb_address plain = cb_address_plain(connection->flow.target);
    struct sockaddr_storage address;
    socklen_t size = cb_address_to(&plain, connection->flow.target_port, &address);
    connection->outer = socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    return connection->outer < 0 || (connect(connection->outer, (struct sockaddr *)&address, size) < 0 &&
                                     errno != EINPROGRESS)
               ? -1
               : 0;
}

static void ask(struct cb_tcp *tcp, const struct cb_flow *flow, const uint8_t *first, size_t length)
{
    struct connection *connection = tcp->count < tcp->most ? add(tcp, flow) : NULL;
    const int on = 1;
    if (!connection)
        return; /* the program's kernel asks again soon */
    memcpy(connection->first, first, length);
    connection->first_length = length;
    if (connect_outside(connection) < 0) {
        refuse(tcp->relay, first, length, flow->target.family, errno == EAFNOSUPPORT ? ENETUNREACH : errno);
        drop(connection, false);
        return;
    }
    /* What is near answers at once: the program is not kept waiting for our next turn. */
    struct pollfd ready = {.fd = connection->outer, .events = POLLOUT};
    if (poll(&ready, 1, 0) == 1)
        settle(connection);
    if (connection->dead)
        return;
    setsockopt(connection->outer, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    if (cb_relay_watch(tcp->relay, connection->outer, &connection->outer_source,
                       EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET) < 0)
        drop(connection, true);
}

static bool is_loopback(const struct cb_address *address)
{
    return cb_address_range(address).class == CB_CLASS_LOOPBACK && !cb_address_range(address).carried;
}

static void first_packet(struct cb_tcp *tcp, uint8_t *packet, size_t length)
{
    struct cb_relay *relay = tcp->relay;
    struct cb_flow flow;
    if (!cb_packet_first(packet, length, &flow) || length > CB_PACKET_HEAD)
        return;
    bool own = cb_divert_is_own(flow.target.family, flow.target.bytes);
    if (flow.target_port == CB_DIVERT_PORT && (own || is_loopback(&flow.target))) {
        refuse(relay, packet, length, flow.target.family, ECONNREFUSED); /* nobody is there but us */
        return;
    }
    if (own)
        return;
    struct connection *known = find(tcp, &flow);
    if (known && known->state == LET_THROUGH)
        let_through(relay, packet, length, flow.target.family);
    if (known && known->state == JOINED && known->out.ended) {
        drop(known, true); /* the program has left it, and begins again from the same port */
        known = NULL;
    }
    if (known || relay->finishing)
        return;
    struct cb_net_decision decision = cb_relay_judge(relay, CB_PROTOCOL_TCP, &flow.target, flow.target_port);
    if (decision.allowed) {
        ask(tcp, &flow, packet, length);
    } else if (cb_relay_is_resolver(relay, &flow.target, flow.target_port)) {
        let_through(relay, packet, length, flow.target.family);
    } else if (!is_loopback(&flow.target)) { /* which without a rule is the cell's own */
        cb_refuse_target(relay, "network.connect", CB_PROTOCOL_TCP, &flow.target, flow.target_port, &decision);
        refuse(relay, packet, length, flow.target.family, ECONNREFUSED);
    }
}

static void read_tap(struct cb_tcp *tcp, int tap)
{
    for (int i = 0; i < TURN_PACKETS; i++) {
        uint8_t packet[2048];
        ssize_t length = recv(tap, packet, sizeof packet, MSG_DONTWAIT);
        if (length < 0)
            return;
        first_packet(tcp, packet, (size_t)length);
    }
}

static void on_tap4(struct cb_source *source, uint32_t events)
{
    struct cb_tcp *tcp = cb_container_of(source, struct cb_tcp, tap_source[0]);
    (void)events;
    read_tap(tcp, tcp->relay->sockets[CB_DIVERT_TAP4]);
}

static void on_tap6(struct cb_source *source, uint32_t events)
{
    struct cb_tcp *tcp = cb_container_of(source, struct cb_tcp, tap_source[1]);
    (void)events;
    read_tap(tcp, tcp->relay->sockets[CB_DIVERT_TAP6]);
}

static bool flow_of(int inner, struct cb_flow *flow)
{
    struct sockaddr_storage local, remote;
    socklen_t local_size = sizeof local, remote_size = sizeof remote;
    return getsockname(inner, (struct sockaddr *)&local, &local_size) == 0 &&
           getpeername(inner, (struct sockaddr *)&remote, &remote_size) == 0 &&
           cb_address_from((struct sockaddr *)&local, local_size, &flow->target, &flow->target_port) &&
           cb_address_from((struct sockaddr *)&remote, remote_size, &flow->client, &flow->client_port);
}

static void arrive(struct cb_tcp *tcp, int inner)
{
    const struct linger now = {.l_onoff = 1};
    struct cb_flow flow = {.client_port = 0};
    bool told = flow_of(inner, &flow);
    struct connection *connection = told ? find(tcp, &flow) : NULL;
    if (connection && connection->state == LET_THROUGH) {
        connection->inner = inner;
        start(connection);
    } else if (told && !connection && cb_relay_is_resolver(tcp->relay, &flow.target, flow.target_port)) {
        cb_names_accept(tcp->relay->names, inner);
    } else {
        setsockopt(inner, SOL_SOCKET, SO_LINGER, &now, sizeof now);
        close(inner);
    }
}

static void read_listener(struct cb_tcp *tcp, int listener)
{
    for (int i = 0; i < TURN_PACKETS; i++) {
        int inner = cb_relay_accept(tcp->relay, listener);
        if (inner < 0)
            return;
        arrive(tcp, inner);
    }
}

static void on_listener4(struct cb_source *source, uint32_t events)
{
    struct cb_tcp *tcp = cb_container_of(source, struct cb_tcp, listener_source[0]);
    (void)events;
    read_listener(tcp, tcp->relay->sockets[CB_DIVERT_LISTENER4]);
}

static void on_listener6(struct cb_source *source, uint32_t events)
{
    struct cb_tcp *tcp = cb_container_of(source, struct cb_tcp, listener_source[1]);
    (void)events;
    read_listener(tcp, tcp->relay->sockets[CB_DIVERT_LISTENER6]);
}

void cb_tcp_join(struct cb_tcp *tcp, int inner, int outer)
{
    struct connection *connection = tcp->count < tcp->most ? add(tcp, NULL) : NULL;
    if (!connection) {
        close(inner);
        close(outer);
        return;
    }
    connection->inner = inner;
    connection->outer = outer;
    if (cb_relay_watch(tcp->relay, outer, &connection->outer_source, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET) < 0)
        drop(connection, true);
    else
        start(connection);
}

/* ---- The rest ---- */

bool cb_tcp_go_on(struct cb_tcp *tcp)
{
    struct connection *list = cb_steal(tcp->later);
    while (list) {
        struct connection *connection = list;
        list = connection->later;
        connection->put_off = false;
        if (!connection->dead)
            carry(connection);
    }
    /* None of them is in the list now, and no event of this turn is left. */
    for (struct connection *dead = cb_steal(tcp->graveyard); dead;) {
        struct connection *next = dead->next;
        free(dead);
        dead = next;
    }
    return tcp->later != NULL;
}

void cb_tcp_cut(struct cb_tcp *tcp)
{
    for (struct connection *at = tcp->all, *next; at; at = next) {
        next = at->next;
        if (!at->published &&
            !cb_relay_decide(tcp->relay, CB_PROTOCOL_TCP, &at->flow.target, at->flow.target_port).allowed)
            drop(at, true);
    }
}

void cb_tcp_tick(struct cb_tcp *tcp)
{
    static const uint64_t most[] = {[ASKED] = OUTSIDE_MS, [LET_THROUGH] = ARRIVAL_MS, [JOINED] = IDLE_MS};
    bool starved = tcp->starved;
    tcp->starved = false;
    for (struct connection *at = tcp->all, *next; at; at = next) {
        next = at->next;
        if (starved && at->state == JOINED)
            put_off(at);
        bool half = at->out.shut || at->in.shut;
        if (tcp->relay->now - at->since > (half ? HALF_MS : most[at->state]))
            drop(at, true);
    }
}

bool cb_tcp_busy(const struct cb_tcp *tcp)
{
    if (allowance(tcp->relay) == 0)
        return false;
    for (const struct connection *at = tcp->all; at; at = at->next)
        if (at->state == JOINED && !at->out.shut && tcp->relay->now - at->since < STALLED_MS)
            return true;
    return false;
}

bool cb_tcp_waits(const struct cb_tcp *tcp)
{
    return tcp->all != NULL;
}

struct cb_tcp *cb_tcp_open(struct cb_relay *relay)
{
    struct cb_tcp *tcp = calloc(1, sizeof *tcp);
    if (!tcp)
        return NULL;
    tcp->relay = relay;
    if (getrandom(&tcp->secret, sizeof tcp->secret, 0) != sizeof tcp->secret) {
        free(tcp);
        return NULL;
    }
    tcp->most = cb_relay_room(relay->most_connections == CB_UNLIMITED ? MOST : relay->most_connections, ROOM);
    return tcp;
}

int cb_tcp_start(struct cb_tcp *tcp)
{
    static void (*const on_tap[])(struct cb_source *, uint32_t) = {on_tap4, on_tap6};
    static void (*const on_listener[])(struct cb_source *, uint32_t) = {on_listener4, on_listener6};
    const int *sockets = tcp->relay->sockets;
    for (int i = 0; i < 2; i++) {
        tcp->tap_source[i].ready = on_tap[i];
        tcp->listener_source[i].ready = on_listener[i];
        if (sockets[CB_DIVERT_TAP4 + i] >= 0 &&
            (cb_relay_watch(tcp->relay, sockets[CB_DIVERT_TAP4 + i], &tcp->tap_source[i], EPOLLIN) < 0 ||
             cb_relay_watch(tcp->relay, sockets[CB_DIVERT_LISTENER4 + i], &tcp->listener_source[i], EPOLLIN) < 0))
            return -1;
    }
    return 0;
}

void cb_tcp_close(struct cb_tcp *tcp)
{
    if (!tcp)
        return;
    while (tcp->all)
        drop(tcp->all, !tcp->all->out.shut);
    cb_tcp_go_on(tcp);
    while (tcp->pipe_count-- > 0) {
        close(tcp->pipes[tcp->pipe_count][0]);
        close(tcp->pipes[tcp->pipe_count][1]);
    }
    free(tcp);
}
