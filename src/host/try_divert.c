/* Attempt with what rules for the network need: in a network namespace of its own, everything that leaves is diverted
 * (base/divert.h). Then the first packet of a connection to somewhere must be seen, and be held; and sent again, with the
 * mark, the connection must arrive at the listener and show where it wanted to go. */
#include "host/attempt.h"

#include "base/cleanup.h"
#include "base/divert.h"
#include "base/missing.h"
#include "base/packet.h"

#include <arpa/inet.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

enum { PATIENCE_MS = 1000 };

static const char *const made[CB_DIVERT_SOCKETS] = {
    [CB_DIVERT_LISTENER4] = "making a transparent listener",
    [CB_DIVERT_UDP4] = "making a transparent datagram socket",
    [CB_DIVERT_RAW4] = "making a raw socket",
    [CB_DIVERT_TAP4] = "making a packet socket",
};

static struct cb_attempt connect_through(const int sockets[CB_DIVERT_SOCKETS])
{
    struct sockaddr_in there = {.sin_family = AF_INET, .sin_port = htons(9)}, seen = {0};
    there.sin_addr.s_addr = htonl(0xc6336401); /* 198.51.100.1, which nobody has */
    cb_autofd int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (client < 0 || (connect(client, (struct sockaddr *)&there, sizeof there) < 0 && errno != EINPROGRESS))
        return cb_attempt_failed("connecting through the rules");
    struct pollfd tap = {.fd = sockets[CB_DIVERT_TAP4], .events = POLLIN};
    uint8_t packet[256];
    struct cb_flow flow;
    ssize_t length = poll(&tap, 1, PATIENCE_MS) == 1 ? recv(tap.fd, packet, sizeof packet, 0) : -1;
    if (length < 0 || !cb_packet_first(packet, (size_t)length, &flow) || flow.target_port != 9)
        return (struct cb_attempt){.step = "seeing the first packet of a connection", .errnum = ETIMEDOUT};
    struct pollfd listener = {.fd = sockets[CB_DIVERT_LISTENER4], .events = POLLIN};
    if (poll(&listener, 1, 0) != 0)
        return (struct cb_attempt){.step = "holding the first packet of a connection", .errnum = EADDRNOTAVAIL};
    cb_packet_seal(packet, (size_t)length);
    if (sendto(sockets[CB_DIVERT_RAW4], packet, (size_t)length, 0, (struct sockaddr *)&there, sizeof there) < 0)
        return cb_attempt_failed("sending the first packet again");
    if (poll(&listener, 1, PATIENCE_MS) != 1)
        return (struct cb_attempt){.step = "connecting through the rules", .errnum = ETIMEDOUT};
    cb_autofd int accepted = accept4(listener.fd, NULL, NULL, SOCK_CLOEXEC);
    socklen_t size = sizeof seen;
    if (accepted < 0 || getsockname(accepted, (struct sockaddr *)&seen, &size) < 0)
        return cb_attempt_failed("finding out where a connection wanted to go");
    if (seen.sin_addr.s_addr != there.sin_addr.s_addr || seen.sin_port != there.sin_port)
        return (struct cb_attempt){.step = "finding out where a connection wanted to go", .errnum = EADDRNOTAVAIL};
    return (struct cb_attempt){0};
}

struct cb_attempt cb_try_divert(int unused)
{
    const struct cb_divert none = {.count = 0};
    int sockets[CB_DIVERT_SOCKETS];
    static struct cb_netlink batch;
    int loopback = cb_divert_loopback_up();
    (void)unused;
    if (loopback < 0)
        return cb_attempt_failed("bringing up loopback");
    cb_divert_routes(&batch, loopback, AF_INET);
    if (cb_netlink_once(NETLINK_ROUTE, &batch) < 0)
        return cb_attempt_failed("adding a route");
    cb_netlink_clear(&batch);
    cb_divert_rules(&batch, &none, AF_INET, false);
    if (cb_netlink_once(NETLINK_NETFILTER, &batch) < 0)
        return cb_attempt_failed("making nftables rules");
    for (int i = 0; i < CB_DIVERT_SOCKETS; i++)
        if (made[i] && (sockets[i] = cb_divert_open((enum cb_divert_socket)i, loopback)) < 0)
            return cb_attempt_failed(made[i]);
    return connect_through(sockets);
}
