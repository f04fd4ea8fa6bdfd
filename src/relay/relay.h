/* The relay of one cell: a process of its own, on the host's network, that holds the sockets to which everything is
 * diverted that leaves the cell (base/divert.h). It decides on what really arrives, connects outside, and carries bytes.
 *
 * It parses what the code chose (the first packets of connections, questions for names) and what strangers answer. So it
 * is not the supervisor: it is confined before it holds any socket of the cell (confine.c), there is one for each cell,
 * and when one is flooded or falls, other cells go on. One thread; nothing in it waits but for events. */
#pragma once

#include "base/divert.h"
#include "policy/network.h"
#include "relay/link.h"
#include "base/packet.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Something in the event loop: embedded in what it belongs to. */
struct cb_source {
    void (*ready)(struct cb_source *source, uint32_t events);
};
#define cb_container_of(pointer, type, member) ((type *)(void *)((char *)(pointer) - offsetof(type, member)))

struct cb_tcp;
struct cb_udp;
struct cb_names_service;
struct cb_publisher;
struct cb_broker;
struct cb_refusals;

struct cb_relay {
    int link;
    int epoll;
    uint64_t now;               /* milliseconds; of this turn of the loop */
    cellblock_policy *policy;
    int sockets[CB_DIVERT_SOCKETS];
    struct cb_source link_source;
    struct cb_link_queue queue;
    bool queue_watched;         /* for room on the link */
    int spare;                  /* a descriptor to do without for a moment when there are no more */
    struct cb_tcp *tcp;
    struct cb_udp *udp;
    struct cb_names_service *names;
    struct cb_publisher *publisher;
    struct cb_broker *broker;
    struct cb_refusals *refusals;
    uint64_t connections;       /* made, in all */
    uint64_t out, in;           /* bytes */
    uint64_t overhead;          /* bytes of headers: not told, but part of what is limited */
    uint64_t most_bytes, most_connections;
    bool limit_told;
    bool finishing;             /* the cell is gone */
    uint64_t delivery_ms;       /* for what is then still on its way */
#ifdef CELLBLOCK_TEST_HOOKS
    bool unjudged;              /* a test has turned decisions on packets off */
#endif
};

/* Edge-triggered: whoever is told reads until there is no more. */
int cb_relay_watch(struct cb_relay *relay, int fd, struct cb_source *source, uint32_t events);
void cb_relay_unwatch(struct cb_relay *relay, int fd);
/* Accepts; when there are no descriptors left, whoever is next is turned away. -1: nobody there. */
int cb_relay_accept(struct cb_relay *relay, int listener);
/* How many connections, flows of datagrams and the like fit into our descriptors: `most`, or less. */
uint64_t cb_relay_room(uint64_t most, unsigned share);
/* Sends a packet into the cell. */
void cb_relay_inject(struct cb_relay *relay, int family, const void *packet, size_t length);
/* Counts bytes; true when no more may pass. */
bool cb_relay_count(struct cb_relay *relay, size_t out, size_t in);
/* The same for what goes beside them: else what has no content would be free. */
bool cb_relay_overhead(struct cb_relay *relay, size_t bytes);
/* Is it the relay's own resolver that is meant? */
bool cb_relay_is_resolver(const struct cb_relay *relay, const struct cb_address *address, uint16_t port);

/* May the cell talk to this address? With the names that led to it for this cell. */
struct cb_net_decision cb_relay_decide(struct cb_relay *relay, enum cb_protocol protocol,
                                       const struct cb_address *address, uint16_t port);

/* The same, of something that has arrived. */
struct cb_net_decision cb_relay_judge(struct cb_relay *relay, enum cb_protocol protocol,
                                      const struct cb_address *address, uint16_t port);

/* ---- Connections: tcp.c ---- */

struct cb_tcp *cb_tcp_open(struct cb_relay *relay);
void cb_tcp_close(struct cb_tcp *tcp);
int cb_tcp_start(struct cb_tcp *tcp);       /* once the sockets are there */
/* Joins a connection from the host with one to a port of the cell; takes both. */
void cb_tcp_join(struct cb_tcp *tcp, int inner, int outer);
void cb_tcp_cut(struct cb_tcp *tcp);        /* those that the policy no longer allows */
void cb_tcp_tick(struct cb_tcp *tcp);
/* Goes on with what was put off for the sake of the others; true if there is more. */
bool cb_tcp_go_on(struct cb_tcp *tcp);
/* After the cell is gone: is something still on its way out? */
bool cb_tcp_busy(const struct cb_tcp *tcp);
bool cb_tcp_waits(const struct cb_tcp *tcp); /* for some moment */

/* ---- Datagrams: udp.c ---- */

struct cb_udp *cb_udp_open(struct cb_relay *relay);
void cb_udp_close(struct cb_udp *udp);
int cb_udp_start(struct cb_udp *udp);
void cb_udp_reply(struct cb_relay *relay, const struct cb_flow *flow, const uint8_t *payload, size_t length);
void cb_udp_cut(struct cb_udp *udp);        /* those that the policy no longer allows */
void cb_udp_tick(struct cb_udp *udp);
bool cb_udp_waits(const struct cb_udp *udp);

/* ---- Names: names.c, and the bytes of questions and answers: dns.c ---- */

struct cb_names_service *cb_names_open(struct cb_relay *relay);
void cb_names_close(struct cb_names_service *names);
/* A question that came as a datagram. */
void cb_names_question(struct cb_names_service *names, const struct cb_flow *flow, const uint8_t *bytes, size_t length);
/* A connection to the resolver; takes the socket. */
void cb_names_accept(struct cb_names_service *names, int fd);
/* Serves whoever connects to this socket from a port that is expected; takes it. */
int cb_names_listen(struct cb_names_service *names, int listener);
void cb_names_expect(struct cb_names_service *names, uint16_t port);
/* The port of that socket; 0: there is none. */
uint16_t cb_names_door(const struct cb_names_service *names);
/* The names that led to this address, at most `most`. They live until the next question is answered. */
size_t cb_names_of(const struct cb_names_service *names, const struct cb_address *address, const char **list,
                   size_t most);
bool cb_names_is_server(const struct cb_names_service *names, const struct cb_address *address);
int cb_names_timeout(struct cb_names_service *names); /* milliseconds, or -1 */
void cb_names_tick(struct cb_names_service *names);

/* ---- Ports of the cell on the host's loopback: publish.c ---- */

struct cb_publisher *cb_publisher_open(struct cb_relay *relay);
void cb_publisher_close(struct cb_publisher *publisher);
int cb_publisher_add(struct cb_publisher *publisher, int listener, uint16_t port);
void cb_publisher_inner(struct cb_publisher *publisher, int fd);

/* ---- Sockets of the code's, in tier landlock: broker.c ---- */

struct cb_broker *cb_broker_open(struct cb_relay *relay);
void cb_broker_close(struct cb_broker *broker);
/* A unix socket that may be connected to; takes it. */
int cb_broker_place(struct cb_broker *broker, int fd);
/* Connects a socket to this address, if that is allowed, and answers; takes the socket, and keeps it until that is done. */
void cb_broker_connect(struct cb_broker *broker, uint64_t id, int socket, const void *given, size_t length);
void cb_broker_done(struct cb_broker *broker, uint64_t id);
void cb_broker_tick(struct cb_broker *broker);
int cb_broker_timeout(const struct cb_broker *broker);

/* ---- What was refused: refusals.c ---- */

struct cb_refusals *cb_refusals_open(struct cb_relay *relay);
void cb_refusals_close(struct cb_refusals *refusals);
/* Notes a refused connection or datagram. */
void cb_refuse_target(struct cb_relay *relay, const char *code, enum cb_protocol protocol,
                      const struct cb_address *address, uint16_t port, const struct cb_net_decision *decision);
/* Notes a refused name, with what was asked for, or the address that it led to. */
void cb_refuse_name(struct cb_relay *relay, const char *code, const char *object,
                    const struct cb_net_decision *decision);
void cb_refusals_flush(struct cb_refusals *refusals);

/* ---- Confinement: confine.c ---- */

/* Becomes this id (0: stays), gives up everything that a relay does not need. Returns 0, or -1 with errno and what was
 * tried. */
int cb_relay_confine(unsigned uid, unsigned gid, const char **step);
