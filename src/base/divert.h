/* The rules by which a cell's network namespace hands everything that leaves for elsewhere to one set of sockets.
 *
 *   address     192.0.0.8 (the dummy address of RFC 7600) and fd00:cb::1 belong to loopback: what the cell is, seen from its own connections
 *   route       every other address is local too, so that packets to it arrive here
 *   nftables    on arrival, what is not meant for the cell itself is given to the sockets at port 1 (tproxy: nothing
 *               is rewritten, the socket sees the address that was meant), and the first packet of a TCP connection is
 *               dropped unless it carries our mark. Everything else that carries the mark comes from whoever holds the
 *               sockets, and goes to the cell
 *
 * Whoever holds the sockets therefore sees a connection being asked for, finds out whether it can be had, and only then
 * lets it happen, by sending that first packet again with the mark; or answers it with the error of the outside. To the
 * program that looks as it would without us: connect() takes as long, and fails as it would.
 *
 * Nothing is allocated here. */
#pragma once

#include "base/netlink.h"

enum { CB_DIVERT_PORT = 1, CB_DIVERT_MARK = 0xcb, CB_DIVERT_PORTS = 64 };

extern const uint8_t cb_divert_own4[4], cb_divert_own6[16];
extern const uint8_t cb_divert_resolver[4];     /* 127.0.0.53: its port 53 is diverted too */

/* Ports of loopback that are diverted: rules of the policy make them the host's. */
struct cb_divert {
    struct cb_divert_port {
        uint16_t port;
        bool datagrams;         /* UDP; else TCP */
    } loopback[CB_DIVERT_PORTS];
    size_t count;
};

/* Is this address (of four or sixteen bytes) what the cell itself is, apart from loopback? */
bool cb_divert_is_own(int family, const uint8_t *bytes);
/* Brings loopback up. Returns its index, or -1 with errno. */
int cb_divert_loopback_up(void);

/* For a NETLINK_ROUTE socket. */
void cb_divert_routes(struct cb_netlink *batch, int loopback_index, int family);
/* For a NETLINK_NETFILTER socket. `again`: there are rules already, which are replaced at once; the kernel takes its time
 * for that. */
void cb_divert_rules(struct cb_netlink *batch, const struct cb_divert *divert, int family, bool again);

/* The sockets, made in the namespace. -1 with errno. */
enum cb_divert_socket {
    CB_DIVERT_LISTENER4, CB_DIVERT_LISTENER6, CB_DIVERT_UDP4, CB_DIVERT_UDP6, CB_DIVERT_RAW4, CB_DIVERT_RAW6,
    CB_DIVERT_TAP4, CB_DIVERT_TAP6, CB_DIVERT_NETFILTER, CB_DIVERT_SOCKETS,
};
int cb_divert_open(enum cb_divert_socket which, int loopback_index);
