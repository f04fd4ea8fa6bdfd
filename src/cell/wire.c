/* The wire between init and the supervisor: small fixed messages on a socket pair that keeps their borders, each with
 * at most one descriptor. The program never holds an end of it. */
#include "cell/cell.h"

#include "base/passing.h"

#include <errno.h>
#include <sys/socket.h>

int cb_cell_fail(struct cb_cell_state *state, enum cb_stage stage, int detail)
{
    if (state->failure.kind == CB_MESSAGE_FAILED)
        return -1; /* the first fault is the one to tell of */
    state->failure = (struct cb_message){
        .kind = CB_MESSAGE_FAILED, .stage = (uint32_t)stage, .detail = detail, .errnum = errno};
    return -1;
}

int cb_wire_send(int wire, const struct cb_message *message, int fd)
{
    const struct iovec data = {.iov_base = (void *)(uintptr_t)message, .iov_len = sizeof *message};
    return cb_pass(wire, &data, 1, fd, 0) == (ssize_t)sizeof *message ? 0 : -1;
}

int cb_wire_receive(int wire, struct cb_message *message)
{
    ssize_t got;
    do
        got = recv(wire, message, sizeof *message, 0);
    while (got < 0 && errno == EINTR);
    if (got == (ssize_t)sizeof *message)
        return 0;
    if (got >= 0)
        errno = EPIPE;
    return -1;
}
