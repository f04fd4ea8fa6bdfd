#include "base/passing.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

union control {
    struct cmsghdr align;
    char space[CMSG_SPACE(sizeof(int))];
};

ssize_t cb_pass(int socket, const struct iovec *data, size_t count, int fd, int flags)
{
    union control control = {0};
    struct msghdr header = {.msg_iov = (struct iovec *)(uintptr_t)data, .msg_iovlen = count};
    if (fd >= 0) {
        header.msg_control = control.space;
        header.msg_controllen = sizeof control.space;
        struct cmsghdr *item = CMSG_FIRSTHDR(&header);
        item->cmsg_level = SOL_SOCKET;
        item->cmsg_type = SCM_RIGHTS;
        item->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(item), &fd, sizeof fd);
    }
    ssize_t sent;
    do
        sent = sendmsg(socket, &header, flags | MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    return sent;
}

ssize_t cb_take(int socket, const struct iovec *data, size_t count, int *fd, int flags)
{
    union control control;
    /* Room for one, without the padding, in which a second would fit. */
    struct msghdr header = {.msg_iov = (struct iovec *)(uintptr_t)data,
                            .msg_iovlen = count,
                            .msg_control = control.space,
                            .msg_controllen = CMSG_LEN(sizeof(int))};
    ssize_t got;
    *fd = -1;
    do
        got = recvmsg(socket, &header, flags | MSG_CMSG_CLOEXEC);
    while (got < 0 && errno == EINTR);
    for (struct cmsghdr *item = got < 0 ? NULL : CMSG_FIRSTHDR(&header); item; item = CMSG_NXTHDR(&header, item))
        if (item->cmsg_level == SOL_SOCKET && item->cmsg_type == SCM_RIGHTS)
            memcpy(fd, CMSG_DATA(item), sizeof *fd);
    if (got < 0 || !(header.msg_flags & MSG_TRUNC))
        return got;
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
    errno = EMSGSIZE;
    return -1;
}
