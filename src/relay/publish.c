/* Ports of the cell on the host's loopback. For each connection from the host a socket inside the cell is needed, which
 * only a process in its network namespace can make: init does, when the supervisor passes that wish on. */
#include "relay/relay.h"

#include "base/cleanup.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

enum { WAITING = 128, TURN = 32 };

struct door {
    struct cb_source source;
    struct door *next;
    struct cb_publisher *publisher;
    int listener;
    uint16_t port;
};

/* A connection from the host that is to go on inside. */
struct visit {
    struct cb_source source;
    struct visit *next;
    struct cb_publisher *publisher;
    int inner, outer;
    int family;             /* that is tried: IPv4 first */
    uint16_t port;
    bool dead;
};

struct cb_publisher {
    struct cb_relay *relay;
    struct door *doors;
    struct visit *wanting;  /* a socket, in the order in which they come */
    struct visit *trying;
    struct visit *graveyard;
    size_t count;
};

static void turn_away(struct visit *visit)
{
    const struct linger now = {.l_onoff = 1};
    setsockopt(visit->outer, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    cb_close_cleanup(&visit->outer);
    cb_close_cleanup(&visit->inner);
    visit->publisher->count--;
    free(visit);
}

static void want(struct visit *visit)
{
    const struct cb_link_message message = {.kind = CB_LINK_WANT_INNER, .number = visit->family};
    struct visit **at = &visit->publisher->wanting;
    while (*at)
        at = &(*at)->next;
    visit->next = NULL;
    *at = visit;
    cb_link_tell(&visit->publisher->relay->queue, &message, NULL, 0, -1);
}

static void bury(struct cb_publisher *publisher)
{
    for (struct visit *at = cb_steal(publisher->graveyard); at;) {
        struct visit *next = at->next;
        free(at);
        at = next;
    }
}

static void on_tried(struct cb_source *source, uint32_t events)
{
    struct visit *visit = cb_container_of(source, struct visit, source);
    struct cb_publisher *publisher = visit->publisher;
    int errnum = 0;
    socklen_t size = sizeof errnum;
    (void)events;
    if (visit->dead)
        return;
    struct visit **at = &publisher->trying;
    while (*at && *at != visit)
        at = &(*at)->next;
    if (*at)
        *at = visit->next;
    getsockopt(visit->inner, SOL_SOCKET, SO_ERROR, &errnum, &size);
    cb_relay_unwatch(publisher->relay, visit->inner);
    if (errnum && visit->family == AF_INET) { /* a server that listens on ::1 only */
        close(visit->inner);
        visit->inner = -1;
        visit->family = AF_INET6;
        want(visit);
        return;
    }
    if (errnum) {
        turn_away(visit);
        return;
    }
    publisher->count--;
    visit->dead = true;
    visit->next = publisher->graveyard;
    publisher->graveyard = visit;
    cb_tcp_join(publisher->relay->tcp, visit->inner, visit->outer);
}

void cb_publisher_inner(struct cb_publisher *publisher, int fd)
{
    struct visit *visit = publisher->wanting;
    const struct cb_address loopback = visit && visit->family == AF_INET
                                           ? (struct cb_address){.family = AF_INET, .bytes = {127, 0, 0, 1}}
                                           : (struct cb_address){.family = AF_INET6, .bytes = {[15] = 1}};
    struct sockaddr_storage address;
    if (!visit) {
        cb_close_cleanup(&fd);
        return;
    }
    publisher->wanting = visit->next;
    visit->inner = fd;
    socklen_t size = cb_address_to(&loopback, visit->port, &address);
    if (fd < 0 || (connect(fd, (struct sockaddr *)&address, size) < 0 && errno != EINPROGRESS) ||
        cb_relay_watch(publisher->relay, fd, &visit->source, EPOLLOUT) < 0) {
        turn_away(visit);
        return;
    }
    visit->next = publisher->trying;
    publisher->trying = visit;
}

static void on_door(struct cb_source *source, uint32_t events)
{
    struct door *door = cb_container_of(source, struct door, source);
    struct cb_publisher *publisher = door->publisher;
    (void)events;
    bury(publisher);
    for (int i = 0; i < TURN; i++) {
        int outer = cb_relay_accept(publisher->relay, door->listener);
        if (outer < 0)
            return;
        struct visit *visit = publisher->count < WAITING ? calloc(1, sizeof *visit) : NULL;
        if (!visit) {
            close(outer);
            continue;
        }
        *visit = (struct visit){.source.ready = on_tried, .publisher = publisher, .inner = -1, .outer = outer,
                                .family = AF_INET, .port = door->port};
        publisher->count++;
        want(visit);
    }
}

struct cb_publisher *cb_publisher_open(struct cb_relay *relay)
{
    struct cb_publisher *publisher = calloc(1, sizeof *publisher);
    if (publisher)
        publisher->relay = relay;
    return publisher;
}

int cb_publisher_add(struct cb_publisher *publisher, int listener, uint16_t port)
{
    struct door *door = calloc(1, sizeof *door);
    if (!door || cb_relay_watch(publisher->relay, listener, &door->source, EPOLLIN) < 0) {
        cb_close_cleanup(&listener);
        free(door);
        return -1;
    }
    *door = (struct door){.source.ready = on_door, .publisher = publisher, .listener = listener, .port = port,
                          .next = publisher->doors};
    publisher->doors = door;
    return 0;
}

void cb_publisher_close(struct cb_publisher *publisher)
{
    if (!publisher)
        return;
    for (struct visit *at = publisher->wanting, *next; at; at = next) {
        next = at->next;
        turn_away(at);
    }
    for (struct visit *at = publisher->trying, *next; at; at = next) {
        next = at->next;
        turn_away(at);
    }
    for (struct door *at = publisher->doors, *next; at; at = next) {
        next = at->next;
        cb_close_cleanup(&at->listener);
        free(at);
    }
    bury(publisher);
    free(publisher);
}
