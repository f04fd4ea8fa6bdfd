/* connect() and sendto() of the code, where the cell has a relay. Nothing is enforced here: whatever leaves the cell
 * passes the relay, which decides on what arrives. The call is looked at beforehand only so that a refusal can be told
 * from a failure (EACCES) and be noted. Letting it go on is therefore safe, even if another thread changes its arguments
 * meanwhile: no socket of the host is in the cell. */
#include "supervisor/egress.h"

#include "base/cleanup.h"
#include "base/missing.h"
#include "supervisor/paths.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>

/* The process of a thread: only that has a pidfd. */
static pid_t process_of(pid_t thread)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%d/status", thread);
    cb_autofd int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (length <= 0)
        return -1;
    text[length] = '\0';
    const char *at = strstr(text, "\nTgid:");
    int process;
    return at && sscanf(at, "\nTgid: %d", &process) == 1 ? process : -1;
}

int cb_call_socket(const struct cb_call *call, int number)
{
    pid_t thread = (pid_t)call->notice->pid;
    cb_autofd int process = cb_sys_pidfd_open(thread, 0);
    if (process < 0)
        process = cb_sys_pidfd_open(process_of(thread), 0);
    return process < 0 ? -1 : cb_sys_pidfd_getfd(process, number, 0);
}

/* SOCK_STREAM or SOCK_DGRAM; -1 when it can't be told. */
static int type_of(const struct cb_call *call, int number)
{
    cb_autofd int socket = cb_call_socket(call, number);
    int type;
    socklen_t size = sizeof type;
    return socket < 0 || getsockopt(socket, SOL_SOCKET, SO_TYPE, &type, &size) < 0 ? -1 : type;
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
    if (sends && type != SOCK_DGRAM)
        return CB_CALL_GO_ON;
    return cb_egress_ask(call, type == SOCK_DGRAM ? CB_PROTOCOL_UDP : CB_PROTOCOL_TCP, sends, &address, port, NULL);
}
