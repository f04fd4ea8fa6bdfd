/* SO_LINGER, wherever the supervisor answers calls or counts what is on disk. Looking at a descriptor of the code's, in whatever way, holds its file
 * for a moment, and if the code closes it meanwhile the supervisor is the one who closes it last. With a time to linger
 * that the code has chosen it would wait there, and watch over nothing. So no socket of a cell has such a time: "close at
 * once, and reset" is set for the code; a time is taken for the usual, which delivers in the background. */
#include "supervisor/paths.h"

#include "base/cleanup.h"

#include <errno.h>
#include <sys/socket.h>

int cb_linger_decide(const struct cb_call *call)
{
    const uint64_t *arguments = (const uint64_t *)call->notice->data.args;
    struct linger wanted;
    if ((arguments[4] & 0xffffffff) < sizeof wanted)
        return -EINVAL;
    int failed = cb_call_read(call, arguments[3], &wanted, sizeof wanted);
    if (failed)
        return failed;
    if (wanted.l_linger != 0)
        wanted.l_onoff = 0;
    wanted.l_linger = 0;
    cb_autofd int socket = cb_call_duplicate(call, (int)arguments[0]);
    if (socket < 0)
        return errno == EBADF ? -EBADF : -EPERM;
    return setsockopt(socket, SOL_SOCKET, SO_LINGER, &wanted, sizeof wanted) < 0 ? -errno : 0;
}
