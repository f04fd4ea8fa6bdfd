#include "relay/link.h"

#include "base/cleanup.h"
#include "base/passing.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int cb_link_send(int link, const struct cb_link_message *message, const void *text, size_t length, int fd, int flags)
{
    const struct iovec data[] = {{.iov_base = (void *)(uintptr_t)message, .iov_len = sizeof *message},
                                 {.iov_base = (void *)(uintptr_t)text, .iov_len = length}};
    return cb_pass(link, data, 2, fd, flags) < 0 ? -1 : 0;
}

ssize_t cb_link_receive(int link, struct cb_link_message *message, char *text, int *fd, int flags)
{
    const struct iovec data[] = {{.iov_base = message, .iov_len = sizeof *message},
                                 {.iov_base = text, .iov_len = CB_LINK_TEXT}};
    ssize_t got = cb_take(link, data, 2, fd, flags);
    if (got < 0) {
        errno = errno == EMSGSIZE ? EPROTO : errno;
        return -1;
    }
    if (got < (ssize_t)sizeof *message) {
        cb_close_cleanup(fd);
        *fd = -1;
        errno = got == 0 ? EPIPE : EPROTO;
        return -1;
    }
    text[got - (ssize_t)sizeof *message] = '\0';
    return got - (ssize_t)sizeof *message;
}

/* ---- What waits ---- */

struct cb_link_waiting {
    struct cb_link_waiting *next;
    struct cb_link_message message;
    int fd;
    size_t length;
    char text[];
};

static void forget_first(struct cb_link_queue *queue)
{
    struct cb_link_waiting *first = queue->first;
    queue->first = first->next;
    if (!queue->first)
        queue->last = NULL;
    cb_close_cleanup(&first->fd);
    free(first);
}

static int keep(struct cb_link_queue *queue, const struct cb_link_message *message, const void *text, size_t length,
                int fd)
{
    struct cb_link_waiting *waiting = malloc(sizeof *waiting + length);
    if (!waiting)
        return -1;
    *waiting = (struct cb_link_waiting){.message = *message, .length = length, .fd = -1};
    if (fd >= 0 && (waiting->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0)) < 0) {
        free(waiting);
        return -1;
    }
    if (length)
        memcpy(waiting->text, text, length);
    *(queue->last ? &queue->last->next : &queue->first) = waiting;
    queue->last = waiting;
    return 0;
}

int cb_link_tell(struct cb_link_queue *queue, const struct cb_link_message *message, const void *text, size_t length,
                 int fd)
{
    if (!queue->first && cb_link_send(queue->link, message, text, length, fd, MSG_DONTWAIT) == 0)
        return 0;
    return !queue->first && errno != EAGAIN ? -1 : keep(queue, message, text, length, fd);
}

void cb_link_flush(struct cb_link_queue *queue)
{
    while (queue->first) {
        struct cb_link_waiting *first = queue->first;
        if (cb_link_send(queue->link, &first->message, first->text, first->length, first->fd, MSG_DONTWAIT) < 0 &&
            errno == EAGAIN)
            return;
        forget_first(queue); /* sent, or nobody is there any more */
    }
}

bool cb_link_waits(const struct cb_link_queue *queue)
{
    return queue->first != NULL;
}

void cb_link_clear(struct cb_link_queue *queue)
{
    while (queue->first)
        forget_first(queue);
}
