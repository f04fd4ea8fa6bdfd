/* The cell's own network namespace has one interface, loopback, and it starts down: servers and test suites inside need
 * it up. With rules for the network, what leaves for elsewhere is diverted to sockets (base/divert.h), which are made
 * here, while init still has capabilities over the namespace, and handed to the supervisor, for the relay. Init keeps
 * none of them, and goes on only when the relay is ready: no code runs before.
 *
 * For ports that are published, the supervisor asks init for a socket inside for each connection from outside. */
#include "cell/cell.h"

#include "base/divert.h"

#include <errno.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

/* A copy of our own: the clone shares no memory. Too large for the stack of some caller's thread. */
static struct cb_netlink batch;

static int divert(struct cb_cell_state *state, int loopback, int family)
{
    cb_netlink_clear(&batch);
    cb_divert_routes(&batch, loopback, family);
    if (cb_netlink_once(NETLINK_ROUTE, &batch) < 0)
        return cb_cell_fail(state, CB_STAGE_DIVERT, 0);
    cb_netlink_clear(&batch);
    cb_divert_rules(&batch, &state->plan->network.divert, family, false);
    return cb_netlink_once(NETLINK_NETFILTER, &batch) < 0 ? cb_cell_fail(state, CB_STAGE_DIVERT, 1) : 0;
}

/* Even numbers are IPv4 up to the last, which is for both. */
static int hand_over(struct cb_cell_state *state, int loopback, bool six)
{
    for (int i = 0; i < CB_DIVERT_SOCKETS; i++) {
        if (!six && i % 2 == 1 && i != CB_DIVERT_NETFILTER)
            continue;
        const struct cb_message message = {.kind = CB_MESSAGE_NETWORK, .detail = i};
        int fd = cb_divert_open((enum cb_divert_socket)i, loopback);
        if (fd < 0 || cb_wire_send(state->entry->wire, &message, fd) < 0)
            return cb_cell_fail(state, CB_STAGE_DIVERT, 2);
        close(fd);
    }
    const struct cb_message ready = {.kind = CB_MESSAGE_NETWORK, .detail = CB_DIVERT_SOCKETS};
    struct cb_message answer;
    if (cb_wire_send(state->entry->wire, &ready, -1) < 0 || cb_wire_receive(state->entry->wire, &answer) < 0)
        return cb_cell_fail(state, CB_STAGE_DIVERT, 3);
    return answer.kind == CB_MESSAGE_GO ? 0 : cb_cell_fail(state, CB_STAGE_DIVERT, 3);
}

/* A kernel can be without IPv6; then so is the cell. */
static int has_six(void)
{
    struct sockaddr_in6 loopback = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return errno == EAFNOSUPPORT ? 0 : -1;
    bool there = bind(fd, (struct sockaddr *)&loopback, sizeof loopback) == 0; /* or it was turned off */
    close(fd);
    return there;
}

int cb_cell_network(struct cb_cell_state *state)
{
    int loopback = cb_divert_loopback_up();
    if (loopback < 0)
        return cb_cell_fail(state, CB_STAGE_NETWORK, 0);
    if (!state->plan->network.relayed)
        return 0;
    int six = has_six();
    if (six < 0)
        return cb_cell_fail(state, CB_STAGE_NETWORK, 0);
    if (divert(state, loopback, AF_INET) < 0 || (six && divert(state, loopback, AF_INET6) < 0))
        return -1;
    return hand_over(state, loopback, six);
}

void cb_cell_give_socket(int wire, int family)
{
    const struct cb_message message = {.kind = CB_MESSAGE_SOCKET, .detail = family};
    int fd = socket(family == AF_INET6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    cb_wire_send(wire, &message, fd);
    if (fd >= 0)
        close(fd);
}
