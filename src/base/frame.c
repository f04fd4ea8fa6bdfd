/* See frame.h. */
#include "base/frame.h"

#include <errno.h>
#include <string.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/uio.h>

enum { MAX_FDS = 3 };
static const uint64_t max_frame = 1ULL << 32;

void cb_frame_number(struct cb_text *frame, uint64_t number)
{
    cb_text_add(frame, (const char *)&number, sizeof number);
}

void cb_frame_bytes(struct cb_text *frame, const char *bytes, size_t length)
{
    cb_frame_number(frame, (uint64_t)length + 1);
    cb_text_add(frame, bytes ? bytes : "", length);
    cb_text_add(frame, "", 1);
}

void cb_frame_string(struct cb_text *frame, const char *string)
{
    if (string)
        cb_frame_bytes(frame, string, strlen(string));
    else
        cb_frame_number(frame, 0);
}

void cb_frame_list(struct cb_text *frame, const char *const *list)
{
    uint64_t count = 0;
    while (list && list[count])
        count++;
    cb_frame_number(frame, count);
    for (uint64_t i = 0; i < count; i++)
        cb_frame_string(frame, list[i]);
}

static const char *take(struct cb_frame_reader *reader, size_t length)
{
    if (reader->failed || length > reader->left) {
        reader->failed = true;
        return NULL;
    }
    const char *taken = reader->at;
    reader->at += length;
    reader->left -= length;
    return taken;
}

uint64_t cb_read_number(struct cb_frame_reader *reader)
{
    uint64_t number = 0;
    const char *taken = take(reader, sizeof number);
    if (taken)
        memcpy(&number, taken, sizeof number);
    return number;
}

const char *cb_read_bytes(struct cb_frame_reader *reader, size_t *length)
{
    uint64_t with_end = cb_read_number(reader);
    const char *bytes = with_end ? take(reader, with_end) : NULL;
    if (bytes && bytes[with_end - 1] != '\0') {
        reader->failed = true;
        bytes = NULL;
    }
    if (length)
        *length = bytes ? with_end - 1 : 0;
    return bytes;
}

const char *cb_read_string(struct cb_frame_reader *reader)
{
    return cb_read_bytes(reader, NULL);
}

const char **cb_read_list(struct cb_frame_reader *reader)
{
    uint64_t count = cb_read_number(reader);
    if (reader->failed || count > reader->left / sizeof(uint64_t)) {
        reader->failed = true;
        return NULL;
    }
    const char **list = calloc(count + 1, sizeof *list);
    for (uint64_t i = 0; list && i < count; i++)
        list[i] = cb_read_string(reader);
    return list;
}

int cb_frame_send(int fd, const struct cb_text *frame, const int *fds, size_t fd_count)
{
    if (frame->failed || fd_count > MAX_FDS) {
        errno = ENOMEM;
        return -1;
    }
    uint64_t length = frame->length;
    struct iovec parts[] = {{.iov_base = &length, .iov_len = sizeof length},
                            {.iov_base = frame->data, .iov_len = frame->length}};
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(sizeof(int) * MAX_FDS)];
    } control = {0};
    struct msghdr header = {.msg_iov = parts, .msg_iovlen = 2};
    if (fd_count) {
        header.msg_control = control.space;
        header.msg_controllen = CMSG_SPACE(sizeof(int) * fd_count);
        struct cmsghdr *item = CMSG_FIRSTHDR(&header);
        item->cmsg_level = SOL_SOCKET;
        item->cmsg_type = SCM_RIGHTS;
        item->cmsg_len = CMSG_LEN(sizeof(int) * fd_count);
        memcpy(CMSG_DATA(item), fds, sizeof(int) * fd_count);
    }
    while (header.msg_iovlen) {
        ssize_t sent = sendmsg(fd, &header, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0)
            return -1;
        header.msg_control = NULL;
        header.msg_controllen = 0;
        while (header.msg_iovlen && (size_t)sent >= header.msg_iov->iov_len) {
            sent -= (ssize_t)header.msg_iov->iov_len;
            header.msg_iov++;
            header.msg_iovlen--;
        }
        if (header.msg_iovlen) {
            header.msg_iov->iov_base = (char *)header.msg_iov->iov_base + sent;
            header.msg_iov->iov_len -= (size_t)sent;
        }
    }
    return 0;
}

static int receive_all(int fd, char *to, size_t length, int fds[3])
{
    for (size_t have = 0; have < length;) {
        struct iovec part = {.iov_base = to + have, .iov_len = length - have};
        union {
            struct cmsghdr align;
            char space[CMSG_SPACE(sizeof(int) * MAX_FDS)];
        } control;
        struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
        if (fds && have == 0) {
            header.msg_control = control.space;
            header.msg_controllen = sizeof control.space;
        }
        ssize_t got = recvmsg(fd, &header, MSG_CMSG_CLOEXEC);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            if (got == 0)
                errno = EPIPE;
            return -1;
        }
        struct cmsghdr *item = header.msg_controllen ? CMSG_FIRSTHDR(&header) : NULL;
        if (item && item->cmsg_level == SOL_SOCKET && item->cmsg_type == SCM_RIGHTS)
            memcpy(fds, CMSG_DATA(item), item->cmsg_len - CMSG_LEN(0));
        have += (size_t)got;
    }
    return 0;
}

int cb_frame_receive(int fd, struct cb_text *frame, int fds[3])
{
    uint64_t length;
    cb_text_free(frame);
    if (receive_all(fd, (char *)&length, sizeof length, fds) < 0)
        return -1;
    if (length >= max_frame) {
        errno = EPROTO;
        return -1;
    }
    frame->data = malloc(length + 1);
    if (!frame->data) {
        errno = ENOMEM;
        return -1;
    }
    frame->length = length;
    frame->room = length + 1;
    frame->data[length] = '\0';
    return receive_all(fd, frame->data, length, NULL);
}
