#include "relay/link.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int cb_link_send(int link, const struct cb_link_message *message, const void *text, size_t length, int fd, int flags)
{
    struct iovec data[] = {{.iov_base = (void *)(uintptr_t)message, .iov_len = sizeof *message},
                           {.iov_base = (void *)(uintptr_t)text, .iov_len = length}};
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct msghdr header = {.msg_iov = data, .msg_iovlen = 2};
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
        sent = sendmsg(link, &header, flags | MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    return sent < 0 ? -1 : 0;
}

ssize_t cb_link_receive(int link, struct cb_link_message *message, char *text, int *fd, int flags)
{
    struct iovec data[] = {{.iov_base = message, .iov_len = sizeof *message},
                           {.iov_base = text, .iov_len = CB_LINK_TEXT}};
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(sizeof(int))];
    } control;
    struct msghdr header = {
        .msg_iov = data, .msg_iovlen = 2, .msg_control = control.space, .msg_controllen = sizeof control.space};
    ssize_t got;
    *fd = -1;
    do
        got = recvmsg(link, &header, flags | MSG_CMSG_CLOEXEC);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        return -1;
    for (struct cmsghdr *item = CMSG_FIRSTHDR(&header); item; item = CMSG_NXTHDR(&header, item))
        if (item->cmsg_level == SOL_SOCKET && item->cmsg_type == SCM_RIGHTS)
            memcpy(fd, CMSG_DATA(item), sizeof *fd);
    if (got < (ssize_t)sizeof *message || header.msg_flags & MSG_TRUNC) {
        if (*fd >= 0)
            close(*fd);
        *fd = -1;
        errno = got == 0 ? EPIPE : EPROTO;
        return -1;
    }
    text[got - (ssize_t)sizeof *message] = '\0';
    return got - (ssize_t)sizeof *message;
}
