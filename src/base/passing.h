/* Messages on a unix socket that keeps their borders, each with at most one descriptor. Nothing is allocated: a cell uses
 * it after the clone. */
#pragma once

#include <stddef.h>
#include <sys/types.h>
#include <sys/uio.h>

/* Sends; `fd` -1: without one. Returns what sendmsg() does, never interrupted. */
ssize_t cb_pass(int socket, const struct iovec *data, size_t count, int fd, int flags);
/* Receives; *fd is -1 when none came. Returns what recvmsg() does; -1 with EMSGSIZE for a message that is longer than the
 * room. */
ssize_t cb_take(int socket, const struct iovec *data, size_t count, int *fd, int flags);
