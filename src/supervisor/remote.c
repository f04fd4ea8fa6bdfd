/* See remote.h. The caller's side; helper.c is the other.
 *
 * It gets one socket (launch.c). The caller sends one request with the standard streams; the helper answers "started" or an error,
 * later the result. Signals go the other way as single numbers. If the caller goes away, the helper sees the socket
 * close and ends the cell; if the helper dies, init in the cell sees its wire close. */
#include "supervisor/remote.h"

#include "base/cleanup.h"
#include "base/error.h"
#include "base/frame.h"
#include "base/missing.h"
#include "built.h"
#include "policy/pack.h"
#include "supervisor/launch.h"
#include "supervisor/result.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

/* Forking costs about 20 µs for each MiB; starting the helper about half a millisecond. */
enum { LARGE_PAGES = (48 << 20) / 4096 };

struct cb_remote {
    int socket;
    int pidfd;
    struct cb_text reply;
    bool over;
    bool reads;
};

static bool is_large(void)
{
    cb_autofd int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    char text[128];
    ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    unsigned long size, resident;
    if (length <= 0)
        return false;
    text[length] = '\0';
    return sscanf(text, "%lu %lu", &size, &resident) == 2 && resident > LARGE_PAGES;
}

int cb_remote_wanted(struct cellblock_options *options, cellblock_error **error)
{
    if (options->helper == CELLBLOCK_HELPER_NEVER || (options->helper == CELLBLOCK_HELPER_AUTO && !is_large()))
        return 0;
    if (!options->helper_path)
        options->helper_path = CELLBLOCK_HELPER_PATH;
    if (access(options->helper_path, X_OK) == 0)
        return 1;
    if (options->helper == CELLBLOCK_HELPER_AUTO)
        return 0; /* slower, and nothing else */
    cb_fail(error, CELLBLOCK_ERROR_USAGE, errno, "the helper program %s", options->helper_path);
    return cb_error_hint(error, "install the cellblock program, or name it in helper_path");
}

static int launch_helper(struct cb_remote *remote, const char *path, cellblock_error **error)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
        return cb_fail_errno(error, "making a socket pair");
    remote->socket = ends[0];
    cb_autofd int theirs = ends[1];
    remote->pidfd = cb_launch(path, "helper", theirs, false);
    return remote->pidfd < 0 ? cb_fail_errno(error, "starting the helper program %s", path) : 0;
}

void cb_remote_free(struct cb_remote *remote)
{
    if (!remote)
        return;
    cb_close_cleanup(&remote->socket); /* the helper ends its cell when it sees this */
    if (remote->pidfd >= 0) {
        struct pollfd gone = {.fd = remote->pidfd, .events = POLLIN};
        while (poll(&gone, 1, -1) < 0 && errno == EINTR)
            ;
        close(remote->pidfd);
    }
    cb_text_free(&remote->reply);
    free(remote);
}

static int take_error(struct cb_frame_reader *reader, cellblock_error **error)
{
    enum cellblock_error_code code = (enum cellblock_error_code)cb_read_number(reader);
    int errnum = (int)cb_read_number(reader);
    const char *message = cb_read_string(reader), *layer = cb_read_string(reader), *hint = cb_read_string(reader);
    cb_fail(error, code, 0, "%s", message ? message : "the helper failed");
    if (error && *error && cellblock_error_errno(*error) == 0)
        (*error)->errnum = errnum;
    if (layer)
        cb_error_layer(error, layer);
    return hint ? cb_error_hint(error, "%s", hint) : -1;
}

int cb_remote_start(struct cellblock_cell *cell, const cellblock_policy *policy,
                    const struct cellblock_options *options, cellblock_error **error)
{
    struct cb_remote *remote = cell->remote = calloc(1, sizeof *remote);
    if (!remote)
        return cb_fail_memory(error);
    remote->socket = remote->pidfd = -1;
    if (launch_helper(remote, options->helper_path, error) < 0)
        return -1;
    cb_autotext struct cb_text request = {0};
    cb_autofree char *here = options->directory ? NULL : getcwd(NULL, 0);
    cb_frame_list(&request, options->argv);
    cb_frame_list(&request, options->envp);
    cb_frame_string(&request, options->directory ? options->directory : here);
    cb_frame_number(&request, options->collect != 0);
    cb_frame_number(&request, options->foreground != 0);
    cb_frame_number(&request, options->network != 0);
    bool own = options->stdio[0] == 0 && options->stdio[1] == 0 && options->stdio[2] == 0;
    int fds[3];
    size_t count = 0;
    uint64_t given = 0; /* which of the three are there */
    for (int i = 0; i < 3; i++) {
        int fd = own ? i : options->stdio[i];
        if (fd >= 0 && fcntl(fd, F_GETFD) >= 0) {
            fds[count++] = fd;
            given |= 1U << i;
        }
    }
    cb_frame_number(&request, given);
    cb_policy_pack(policy, &request);
    cell->epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN};
    if (cell->epoll < 0 || epoll_ctl(cell->epoll, EPOLL_CTL_ADD, remote->socket, &event) < 0 ||
        cb_frame_send(remote->socket, &request, fds, count) < 0 ||
        cb_frame_receive(remote->socket, &remote->reply, NULL) < 0)
        return cb_fail_errno(error, "talking to the helper program %s", options->helper_path);
    struct cb_frame_reader reader = {.at = remote->reply.data, .left = remote->reply.length};
    return cb_read_number(&reader) == CB_REPLY_STARTED ? 0 : take_error(&reader, error);
}

/* Waits for a reply, and takes it. Each comes in one piece, the result at the very end. Returns which, or -1. */
static int take_reply(struct cb_remote *remote, struct cb_frame_reader *reader, cellblock_error **error)
{
    if (cb_frame_receive(remote->socket, &remote->reply, NULL) < 0)
        return cb_fail_errno(error, "the helper program of the cell");
    *reader = (struct cb_frame_reader){.at = remote->reply.data, .left = remote->reply.length};
    int kind = (int)cb_read_number(reader);
    if (kind == CB_REPLY_READS)
        remote->reads = cb_read_number(reader) != 0;
    else if (kind != CB_REPLY_CHANGED)
        remote->over = true;
    return kind;
}

int cb_remote_dispatch(struct cellblock_cell *cell, cellblock_error **error)
{
    struct cb_remote *remote = cell->remote;
    struct pollfd ready = {.fd = remote->socket, .events = POLLIN};
    struct cb_frame_reader reader;
    if (remote->over)
        return 1;
    if (poll(&ready, 1, 0) <= 0)
        return 0;
    return take_reply(remote, &reader, error) < 0 ? -1 : remote->over;
}

int cb_remote_rules(struct cellblock_cell *cell, const char *name, const char *text, size_t length, bool cut,
                    cellblock_error **error)
{
    struct cb_remote *remote = cell->remote;
    cb_autotext struct cb_text request = {0};
    struct cb_frame_reader reader;
    cb_frame_string(&request, name);
    cb_frame_number(&request, text != NULL);
    cb_frame_bytes(&request, text ? text : "", length);
    cb_frame_number(&request, cut);
    if (!remote->over && (cb_remote_signal(cell, CB_ASK_RULES, error) < 0 ||
                          cb_frame_send(remote->socket, &request, NULL, 0) < 0))
        return cb_fail_errno(error, "talking to the helper program");
    int kind = CB_REPLY_READS;
    while (!remote->over && kind == CB_REPLY_READS)
        if ((kind = take_reply(remote, &reader, error)) < 0)
            return -1;
    if (remote->over)
        return cb_fail(error, CELLBLOCK_ERROR_USAGE, 0, "the cell has ended");
    return cb_read_number(&reader) ? take_error(&reader, error) : 0;
}

bool cb_remote_reads(const struct cellblock_cell *cell)
{
    return cell->remote->reads;
}

int cb_remote_signal(struct cellblock_cell *cell, int signal, cellblock_error **error)
{
    int32_t number = signal;
    return send(cell->remote->socket, &number, sizeof number, MSG_NOSIGNAL) < 0 && errno != EPIPE
               ? cb_fail_errno(error, "signalling through the helper program")
               : 0;
}

int cb_remote_result(struct cellblock_cell *cell, cellblock_result **result, cellblock_error **error)
{
    struct cb_remote *remote = cell->remote;
    if (!remote->over)
        return cb_fail(error, CELLBLOCK_ERROR_USAGE, 0, "cellblock_finish: the run has not ended");
    struct cb_frame_reader reader = {.at = remote->reply.data, .left = remote->reply.length};
    return cb_read_number(&reader) == CB_REPLY_RESULT ? cb_result_unpack(&reader, result, error)
                                                      : take_error(&reader, error);
}
