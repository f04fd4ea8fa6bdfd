/* See pump.h. Reads and writes never block: our ends of pipes are non-blocking, sockets are used with MSG_DONTWAIT, and
 * anything else of the caller's is read and written only when poll says so, in pieces that a pipe takes whole. */
#include "supervisor/pump.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { CHUNK = 64 * 1024 };

/* With no events asked for, a closed or broken end would be reported all the same, again and again: not watched
 * then. */
static int watch(struct cb_pump *pump, int fd, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = pump};
    if (events == 0)
        return epoll_ctl(pump->epoll, EPOLL_CTL_DEL, fd, NULL) < 0 && errno != ENOENT ? -1 : 0;
    if (epoll_ctl(pump->epoll, EPOLL_CTL_MOD, fd, &event) == 0)
        return 0;
    return errno == ENOENT ? epoll_ctl(pump->epoll, EPOLL_CTL_ADD, fd, &event) : -1;
}

int cb_pump_open(struct cb_pump *pump, int epoll)
{
    pump->epoll = epoll;
    pump->open = true;
    pump->buffer = malloc(CHUNK + 1); /* `adapt` may add one */
    if (!pump->buffer)
        return -1;
    if (pump->to >= 0) {
        pump->to_polls = watch(pump, pump->to, EPOLLOUT) == 0;
        if (!pump->to_polls && errno != EPERM)
            return -1;
        watch(pump, pump->to, 0);
    }
    pump->from_polls = watch(pump, pump->from, EPOLLIN) == 0;
    if (pump->from_polls)
        return 0;
    return errno == EPERM && pump->to_polls ? watch(pump, pump->to, EPOLLOUT) : -1;
}

void cb_pump_close(struct cb_pump *pump)
{
    if (pump->open) {
        watch(pump, pump->from, 0);
        if (pump->to >= 0)
            watch(pump, pump->to, 0);
    }
    pump->open = false;
    if (pump->own_from && pump->from >= 0)
        close(pump->from);
    if (pump->own_to && pump->to >= 0)
        close(pump->to);
    pump->from = pump->to = -1;
    free(pump->buffer);
    pump->buffer = NULL;
}

static bool is_ready(int fd, short events)
{
    struct pollfd state = {.fd = fd, .events = events};
    if (poll(&state, 1, 0) != 0)
        return true;
    errno = EAGAIN;
    return false;
}

static ssize_t take(const struct cb_pump *pump)
{
    ssize_t got = recv(pump->from, pump->buffer, CHUNK, MSG_DONTWAIT);
    if (got >= 0 || errno != ENOTSOCK)
        return got;
    return pump->own_from || !pump->from_polls || is_ready(pump->from, POLLIN) ? read(pump->from, pump->buffer, CHUNK)
                                                                               : -1;
}

/* write() without the signal: a library must not let SIGPIPE reach its host. */
static ssize_t put_quietly(int fd, const void *data, size_t length)
{
    sigset_t pipe_signal, pending, before;
    sigemptyset(&pipe_signal);
    sigaddset(&pipe_signal, SIGPIPE);
    sigpending(&pending);
    bool was_pending = sigismember(&pending, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_signal, &before);
    ssize_t written = write(fd, data, length);
    int saved = errno;
    if (written < 0 && saved == EPIPE && !was_pending) {
        const struct timespec now = {0};
        sigtimedwait(&pipe_signal, NULL, &now);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = saved;
    return written;
}

static ssize_t put(const struct cb_pump *pump, const void *data, size_t length)
{
    ssize_t sent = send(pump->to, data, length, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent >= 0 || errno != ENOTSOCK)
        return sent;
    if (pump->own_to)
        return put_quietly(pump->to, data, length);
    if (pump->to_polls && !is_ready(pump->to, POLLOUT))
        return -1;
    return put_quietly(pump->to, data, pump->to_polls && length > PIPE_BUF ? PIPE_BUF : length);
}

static int collect(struct cb_pump *pump)
{
    for (int rounds = 0; rounds < 16; rounds++) {
        ssize_t got = take(pump);
        if (got < 0 && !pump->last && (errno == EAGAIN || errno == EINTR))
            return 0;
        if (got <= 0) {
            cb_pump_close(pump);
            return 0;
        }
        uint64_t room = pump->limit - pump->total;
        size_t keep = (uint64_t)got > room ? (size_t)room : (size_t)got;
        cb_text_add(&pump->text, pump->buffer, keep);
        pump->total += keep;
        if (keep < (size_t)got || pump->text.failed) {
            pump->truncated = true;
            cb_pump_close(pump);
            return 1;
        }
    }
    return 0;
}

static int relay(struct cb_pump *pump)
{
    for (int rounds = 0; rounds < 16; rounds++) {
        if (pump->length == 0) {
            ssize_t got = take(pump);
            if (got < 0 && !pump->last && (errno == EAGAIN || errno == EINTR))
                break;
            if (got <= 0) {
                cb_pump_close(pump);
                return 0;
            }
            if (pump->adapt && (got = (ssize_t)pump->adapt(pump, pump->buffer, (size_t)got)) == 0)
                continue;
            uint64_t room = pump->limit - pump->total;
            pump->start = 0;
            pump->length = (uint64_t)got > room ? (size_t)room : (size_t)got;
            pump->total += pump->length;
            pump->truncated = pump->length < (size_t)got;
        }
        ssize_t sent = pump->length ? put(pump, pump->buffer + pump->start, pump->length) : 0;
        if (sent < 0 && (errno == EAGAIN || errno == EINTR))
            break;
        if (sent < 0) {
            bool unread = errno == EPIPE || errno == ECONNRESET;
            pump->lost = unread ? 0 : errno; /* a full disk, say */
            cb_pump_close(pump); /* the writer gets its SIGPIPE */
            return 0;
        }
        pump->start += (size_t)sent;
        pump->length -= (size_t)sent;
        if (pump->length == 0 && pump->truncated) {
            cb_pump_close(pump);
            return 1;
        }
    }
    if (pump->from_polls)
        watch(pump, pump->from, pump->length ? 0 : EPOLLIN);
    if (pump->to_polls)
        watch(pump, pump->to, pump->length || !pump->from_polls ? EPOLLOUT : 0);
    return 0;
}

int cb_pump_run(struct cb_pump *pump)
{
    if (!pump->open)
        return 0;
    return pump->to < 0 ? collect(pump) : relay(pump);
}
