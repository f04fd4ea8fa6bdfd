/* connect() and sendto() of the code, where the cell has a relay. Nothing is enforced here: whatever leaves the cell
 * passes the relay, which decides on what arrives. The call is looked at beforehand only so that a refusal can be told
 * from a failure (EACCES) and be noted. Letting it go on is therefore safe, even if another thread changes its arguments
 * meanwhile: no socket of the host is in the cell. */
#include "supervisor/egress.h"

#include "supervisor/paths.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/xattr.h>

/* SOCK_STREAM or SOCK_DGRAM; -1 when it is neither. */
static int type_of(const struct cb_call *call, int number)
{
    char path[64], name[32];
    snprintf(path, sizeof path, "/proc/%u/fd/%d", call->notice->pid, number);
    ssize_t length = getxattr(path, "system.sockprotoname", name, sizeof name - 1);
    name[length > 0 ? length : 0] = '\0';
    return strncmp(name, "TCP", 3) == 0 ? SOCK_STREAM : strncmp(name, "UDP", 3) == 0 ? SOCK_DGRAM : -1;
}

static bool stays_inside(const struct cb_address *address)
{
    enum cb_class class = cb_address_range(address).class;
    return cb_divert_is_own(address->family, address->bytes) || class == CB_CLASS_LOOPBACK || class == CB_CLASS_UNSPECIFIED;
}

int cb_connect_decide(const struct cb_call *call)
{
    bool sends = call->notice->data.nr == SYS_sendto;
    const uint64_t *arguments = (const uint64_t *)call->notice->data.args;
    uint64_t where = arguments[sends ? 4 : 1], length = arguments[sends ? 5 : 2] & 0xffffffff;
    struct sockaddr_storage given = {0};
    struct cb_address address;
    uint16_t port;
    if (!call->cell->egress || length > sizeof given || length < sizeof(sa_family_t) ||
        cb_call_read(call, where, &given, (size_t)length) < 0)
        return CB_CALL_GO_ON; /* the kernel has something to say about it */
    if (!cb_address_from((struct sockaddr *)&given, (size_t)length, &address, &port))
        return CB_CALL_GO_ON;
    address = cb_address_plain(address);
    if (stays_inside(&address))
        return CB_CALL_GO_ON;
    int type = type_of(call, (int)arguments[0]);
    if (type < 0 || (sends && type != SOCK_DGRAM))
        return CB_CALL_GO_ON;
    return cb_egress_ask(call, type == SOCK_DGRAM ? CB_PROTOCOL_UDP : CB_PROTOCOL_TCP, sends, &address, port);
}
