/* The helper process: the supervisor of one cell on behalf of a large caller (see remote.c). Sits on the public API,
 * like any embedder. */
#include "base/cleanup.h"
#include "base/error.h"
#include "base/frame.h"
#include "base/missing.h"
#include "policy/pack.h"
#include "supervisor/remote.h"
#include "supervisor/result.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

static void add_error(struct cb_text *reply, const cellblock_error *error)
{
    cb_frame_number(reply, cellblock_error_code(error));
    cb_frame_number(reply, (uint64_t)cellblock_error_errno(error));
    cb_frame_string(reply, cellblock_error_message(error));
    cb_frame_string(reply, cellblock_error_layer(error));
    cb_frame_string(reply, cellblock_error_hint(error));
}

static int reply_error(int fd, const cellblock_error *error)
{
    cb_autotext struct cb_text reply = {0};
    cb_frame_number(&reply, CB_REPLY_ERROR);
    add_error(&reply, error);
    return cb_frame_send(fd, &reply, NULL, 0);
}

static int start_for_caller(int fd, cellblock_cell **cell, cellblock_error **error)
{
    cb_autotext struct cb_text request = {0};
    int received[3] = {-1, -1, -1};
    if (cb_frame_receive(fd, &request, received) < 0)
        return cb_fail_errno(error, "reading the caller's request");
    struct cb_frame_reader reader = {.at = request.data, .left = request.length};
    cb_autofree const char **argv = cb_read_list(&reader);
    cb_autofree const char **envp = cb_read_list(&reader);
    struct cellblock_options options = {
        .size = sizeof options, .argv = argv, .envp = envp, .helper = CELLBLOCK_HELPER_NEVER,
        .helper_path = "/proc/self/exe"};
    options.directory = cb_read_string(&reader);
    options.collect = (int)cb_read_number(&reader);
    options.foreground = (int)cb_read_number(&reader);
    options.network = (int)cb_read_number(&reader);
    uint64_t given = cb_read_number(&reader);
    cellblock_policy *policy = NULL;
    if (cb_policy_unpack(&reader, &policy, error) < 0)
        return -1;
    for (int i = 0, next = 0; i < 3; i++)
        options.stdio[i] = given & 1U << i && next < 3 ? received[next++] : -1;
    int failed = cellblock_start(policy, &options, cell, error);
    for (int i = 0; i < 3; i++)
        if (options.collect || failed)
            cb_close_cleanup(&received[i]);
    cellblock_policy_free(policy);
    return failed;
}

/* Tells the caller when what is typed at its terminal begins to be passed on, and when it is not any more. Returns
 * false when the caller is gone. */
static bool tell_reads(int fd, const cellblock_cell *cell, int *told)
{
    int reads = cellblock_reads_terminal(cell);
    cb_autotext struct cb_text reply = {0};
    if (reads == *told)
        return true;
    *told = reads;
    cb_frame_number(&reply, CB_REPLY_READS);
    cb_frame_number(&reply, (uint64_t)reads);
    return cb_frame_send(fd, &reply, NULL, 0) == 0;
}

/* Returns false when the caller is gone. */
static bool change_rules(int fd, cellblock_cell *cell)
{
    cb_autotext struct cb_text request = {0}, reply = {0};
    cellblock_error *error = NULL;
    size_t length = 0;
    if (cb_frame_receive(fd, &request, NULL) < 0)
        return false;
    struct cb_frame_reader reader = {.at = request.data, .left = request.length};
    const char *name = cb_read_string(&reader);
    bool adds = cb_read_number(&reader);
    const char *text = cb_read_bytes(&reader, &length);
    bool cut = cb_read_number(&reader);
    if (reader.failed || !name)
        return false;
    int failed = adds ? cellblock_rules_add(cell, text, length, name, &error)
                      : cellblock_rules_remove(cell, name, cut, &error);
    cb_frame_number(&reply, CB_REPLY_CHANGED);
    cb_frame_number(&reply, failed != 0);
    if (failed)
        add_error(&reply, error);
    cellblock_error_free(error);
    return cb_frame_send(fd, &reply, NULL, 0) == 0;
}

/* Returns false when the caller is gone. */
static bool obey(int fd, cellblock_cell *cell)
{
    int32_t number;
    ssize_t got = recv(fd, &number, sizeof number, MSG_DONTWAIT);
    if (got == sizeof number && number == CB_ASK_RULES)
        return change_rules(fd, cell);
    if (got == sizeof number && number < 0)
        cellblock_cancel(cell, NULL);
    else if (got == sizeof number)
        cellblock_signal(cell, number, NULL);
    return got == sizeof number || (got < 0 && (errno == EAGAIN || errno == EINTR));
}

int cellblock_helper_serve(int fd)
{
    cellblock_cell *cell = NULL;
    cellblock_error *error = NULL;
    cellblock_result *result = NULL;
    if (fcntl(fd, F_SETFD, FD_CLOEXEC) < 0)
        return 125;
    cb_sys_close_range((unsigned)fd + 1, ~0U, 0); /* whatever the caller left open is not ours */
    cb_autotext struct cb_text reply = {0};
    int status = start_for_caller(fd, &cell, &error);
    cb_frame_number(&reply, CB_REPLY_STARTED);
    bool alive = status == 0 && cb_frame_send(fd, &reply, NULL, 0) == 0;
    int told = 0;
    while (alive) {
        int over = cellblock_dispatch(cell, &error);
        if (over) {
            status = over < 0 ? -1 : cellblock_finish(cell, &result, &error);
            break;
        }
        alive = tell_reads(fd, cell, &told);
        struct pollfd ready[] = {{.fd = cellblock_fd(cell), .events = POLLIN}, {.fd = fd, .events = POLLIN}};
        if (alive && poll(ready, 2, -1) > 0 && ready[1].revents)
            alive = obey(fd, cell);
    }
    if (status < 0) {
        reply_error(fd, error);
    } else if (alive) {
        cb_text_free(&reply);
        cb_frame_number(&reply, CB_REPLY_RESULT);
        cb_result_pack(result, &reply);
        status = cb_frame_send(fd, &reply, NULL, 0);
    }
    cellblock_cell_free(cell);
    cellblock_result_free(result);
    cellblock_error_free(error);
    return status < 0 ? 125 : 0;
}
