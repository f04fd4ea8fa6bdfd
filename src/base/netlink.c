#include "base/netlink.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/netlink.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PATIENCE_MS = 5000 };

/* Every piece of a message is padded to four bytes. */
size_t cb_netlink_put(struct cb_netlink *batch, const void *data, size_t length)
{
    size_t at = batch->length;
    if (batch->full || NLMSG_ALIGN(length) > sizeof batch->data - at) {
        batch->full = true;
        return 0;
    }
    if (length)
        memcpy(batch->data + at, data, length);
    memset(batch->data + at + length, 0, NLMSG_ALIGN(length) - length);
    batch->length += NLMSG_ALIGN(length);
    return at;
}

size_t cb_netlink_begin(struct cb_netlink *batch, uint16_t type, uint16_t flags, const void *header, size_t length)
{
    struct nlmsghdr message = {.nlmsg_type = type, .nlmsg_flags = (uint16_t)(flags | NLM_F_REQUEST)};
    if (flags & NLM_F_ACK)
        message.nlmsg_seq = ++batch->last;
    size_t at = cb_netlink_put(batch, &message, sizeof message);
    cb_netlink_put(batch, header, length);
    return at;
}

void cb_netlink_end(struct cb_netlink *batch, size_t at)
{
    if (!batch->full)
        ((struct nlmsghdr *)(void *)(batch->data + at))->nlmsg_len = (uint32_t)(batch->length - at);
}

void cb_netlink_attribute(struct cb_netlink *batch, unsigned type, const void *data, size_t length)
{
    struct nlattr header = {.nla_type = (uint16_t)type, .nla_len = (uint16_t)(NLA_HDRLEN + length)};
    cb_netlink_put(batch, &header, sizeof header);
    cb_netlink_put(batch, data, length);
}

void cb_netlink_text(struct cb_netlink *batch, unsigned type, const char *text)
{
    cb_netlink_attribute(batch, type, text, strlen(text) + 1);
}

void cb_netlink_number(struct cb_netlink *batch, unsigned type, uint32_t number)
{
    number = htonl(number);
    cb_netlink_attribute(batch, type, &number, sizeof number);
}

size_t cb_netlink_nest(struct cb_netlink *batch, unsigned type)
{
    struct nlattr header = {.nla_type = (uint16_t)(type | NLA_F_NESTED)};
    return cb_netlink_put(batch, &header, sizeof header);
}

void cb_netlink_end_nest(struct cb_netlink *batch, size_t at)
{
    if (!batch->full)
        ((struct nlattr *)(void *)(batch->data + at))->nla_len = (uint16_t)(batch->length - at);
}

/* 1: the last one is done; 0: more to come; -1 with errno. */
static int read_answers(int socket, uint32_t last, uint32_t *refused)
{
    _Alignas(8) char buffer[8192];
    struct pollfd ready = {.fd = socket, .events = POLLIN};
    int waited = poll(&ready, 1, PATIENCE_MS);
    if (waited <= 0) {
        errno = waited == 0 ? ETIMEDOUT : errno;
        return waited < 0 && errno == EINTR ? 0 : -1;
    }
    ssize_t length = recv(socket, buffer, sizeof buffer, 0);
    if (length < 0)
        return errno == EINTR ? 0 : -1;
    size_t left = (size_t)length;
    for (struct nlmsghdr *header = (void *)buffer; NLMSG_OK(header, left); header = NLMSG_NEXT(header, left)) {
        if (header->nlmsg_type != NLMSG_ERROR)
            continue;
        const struct nlmsgerr *answer = NLMSG_DATA(header);
        if (answer->error != 0) {
            if (refused)
                *refused = header->nlmsg_seq;
            errno = -answer->error;
            return -1;
        }
        if (header->nlmsg_seq == last)
            return 1;
    }
    return 0;
}

int cb_netlink_talk(int socket, struct cb_netlink *batch, uint32_t *refused)
{
    struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
    if (refused)
        *refused = 0;
    if (batch->full) {
        errno = ENOBUFS;
        return -1;
    }
    if (sendto(socket, batch->data, batch->length, 0, (struct sockaddr *)&kernel, sizeof kernel) < 0)
        return -1;
    int done;
    do
        done = read_answers(socket, batch->last, refused);
    while (done == 0);
    return done < 0 ? -1 : 0;
}

int cb_netlink_once(int protocol, struct cb_netlink *batch)
{
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol);
    if (fd < 0)
        return -1;
    int failed = cb_netlink_talk(fd, batch, NULL);
    int saved = errno;
    close(fd);
    errno = saved;
    return failed;
}

void cb_netlink_clear(struct cb_netlink *batch)
{
    batch->length = 0;
    batch->last = 0;
    batch->full = false;
}
