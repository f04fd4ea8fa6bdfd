/* Signals in tier landlock, on a kernel whose Landlock does not keep them inside (before ABI 6).
 *
 * The code has the caller's id, and the kernel would let it signal everything that the caller may: the supervisor, the
 * warden, the rest of the session. So the supervisor sends its signals, to processes of the cell and nobody else. To
 * itself the code may send what it likes, and the kernel goes on with that: the numbers are in registers, and nobody
 * else can get the number of a process that is alive.
 *
 * Numbers of others may change hands at any time. So a process is opened first (a pidfd), then it is looked at, and the
 * signal goes through the descriptor: to the one that was looked at, or to nobody.
 *
 * Two things are not as bare: the receiver sees the supervisor as the sender, unless the sender queued a value; and a
 * signal to one thread of another process goes to that process.
 *
 * Runs in the supervisor (notify.c). */
#include "supervisor/paths.h"

#include "base/cleanup.h"
#include "supervisor/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- Who is who ---- */

/* A number from a file in /proc, after `label` at the start of a line; 0 when there is none. */
static pid_t number_in(const char *path, const char *label)
{
    char text[2048];
    cb_autofd int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (length <= 0)
        return 0;
    text[length] = '\0';
    const char *line = strstr(text, label);
    return line ? (pid_t)strtol(line + strlen(label), NULL, 10) : 0;
}

/* The process that a thread belongs to. */
static pid_t process_of(pid_t thread)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/status", thread);
    return number_in(path, "\nTgid:");
}

static pid_t parent_of(pid_t pid)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/status", pid);
    return number_in(path, "\nPPid:");
}

/* Does a process descend from the cell's first one? Upwards, and down again over the same numbers: whoever is still the
 * parent of a process that lived all the time was so all the time, and its number meant nobody else. So the answer is
 * right for the process behind `pid`, if a descriptor of it was open before and it still takes a signal afterwards. */
static bool is_inside(const struct cb_call *call, pid_t pid)
{
    enum { DEEPEST = 4096, TRIES = 4 };
    pid_t line[DEEPEST], warden = call->cell->init_pid;
    for (int tries = 0; tries < TRIES; tries++) {
        size_t length = 0;
        for (pid_t at = pid; at > 1 && at != warden && length < DEEPEST; at = parent_of(at))
            line[length++] = at;
        if (length == 0 || length == DEEPEST)
            return false;
        size_t same = length;
        pid_t above = parent_of(line[length - 1]);
        if (above != warden)
            continue; /* outside; or the line changed under our eyes, which another look tells */
        while (same > 1 && parent_of(line[same - 2]) == line[same - 1])
            same--;
        if (same == 1)
            return true;
    }
    return false;
}

/* ---- Sending ---- */

/* 0 or a negative errno. To the caller's own process only after its call was answered: on older kernels the signal
 * would interrupt its waiting, and make it ask again. */
static int send(const struct cb_call *call, pid_t process, int number, siginfo_t *info)
{
    cb_autofd int pidfd = cb_sys_pidfd_open(process, 0);
    if (pidfd < 0)
        return errno == EINVAL ? -ESRCH : -errno;
    if (number < 0 || number >= NSIG)
        return -EINVAL;
    if (!is_inside(call, process))
        return -EPERM;
    if (!cb_call_waits(call))
        return -ESRCH;
    if (process != process_of((pid_t)call->notice->pid))
        return cb_sys_pidfd_send_signal(pidfd, number, info, 0) < 0 ? -errno : 0;
    cb_call_done(call);
    cb_sys_pidfd_send_signal(pidfd, number, info, 0);
    return CB_CALL_ANSWERED;
}

static int send_to_process(const struct cb_call *call, pid_t pid, int number, siginfo_t *info)
{
    pid_t process = process_of(pid);
    return process <= 0 ? -ESRCH : send(call, process, number, info);
}

/* Everybody in the cell, or in one process group; the caller itself last. */
static int send_to_group(const struct cb_call *call, pid_t group, int number)
{
    enum { ROUNDS = 16 };
    struct cb_tree tree = CB_TREE_INIT;
    pid_t self = process_of((pid_t)call->notice->pid), warden = call->cell->init_pid;
    bool sent = false, self_too = false, fresh = cb_tree_open(&tree, -1, warden) == 0;
    if (number < 0 || number >= NSIG)
        return -EINVAL;
    /* Who was made while we were sending is found in the next round. */
    for (int round = 0; round < ROUNDS && fresh && cb_tree_read(&tree, 0) == 0; round++) {
        fresh = false;
        for (size_t i = 0; i < tree.now.count; i++) {
            const struct cb_process *who = &tree.now.list[i];
            if (who->pid == warden || (group && getpgid(who->pid) != group) || cb_tree_find(&tree.before, who))
                continue;
            self_too |= group && who->pid == self;
            fresh |= who->pid != self && send(call, who->pid, number, NULL) == 0;
        }
        sent |= fresh;
    }
    cb_tree_close(&tree);
    if (self_too)
        return send(call, self, number, NULL);
    if (sent || !group)
        return 0;
    return kill(-group, 0) < 0 && errno == ESRCH ? -ESRCH : -EPERM;
}

/* ---- The calls ---- */

static bool is_self(const struct cb_call *call, pid_t pid)
{
    return pid == (pid_t)call->notice->pid || pid == process_of((pid_t)call->notice->pid);
}

static int decide_kill(const struct cb_call *call, pid_t pid, int number)
{
    if (is_self(call, pid))
        return CB_CALL_GO_ON;
    /* Not by the kernel: the caller may have joined the warden's group. */
    if (pid == 0) {
        pid_t group = getpgid((pid_t)call->notice->pid);
        return group <= 0 ? -ESRCH : send_to_group(call, group, number);
    }
    if (pid > 0)
        return send_to_process(call, pid, number, NULL);
    if (pid == INT_MIN)
        return -ESRCH;
    return send_to_group(call, pid == -1 ? 0 : -pid, number);
}

/* `process`: 0 when the caller names the thread alone. */
static int decide_thread(const struct cb_call *call, pid_t process, pid_t thread, int number, siginfo_t *info)
{
    pid_t self = process_of((pid_t)call->notice->pid), owner = process_of(thread);
    if (owner <= 0 || (process && owner != process))
        return -ESRCH;
    if (owner != self)
        return send(call, owner, number, info);
    if (!cb_call_waits(call))
        return -ESRCH;
    return syscall(SYS_tgkill, self, thread, number) < 0 ? -errno : 0;
}

static int read_info(const struct cb_call *call, uint64_t address, int number, siginfo_t *info)
{
    int failed = cb_call_read(call, address, info, sizeof *info);
    if (failed)
        return failed;
    info->si_signo = number;
    /* To others, nothing that looks as if it came from the kernel. */
    return info->si_code >= 0 || info->si_code == SI_TKILL ? -EPERM : 0;
}

/* The process behind a descriptor of the caller's, by the number that the kernel tells of it. */
static int decide_pidfd(const struct cb_call *call, int pidfd, int number, uint64_t address, unsigned flags)
{
    char path[64];
    siginfo_t info;
    snprintf(path, sizeof path, "/proc/%u/fdinfo/%d", call->notice->pid, pidfd);
    pid_t pid = pidfd < 0 ? 0 : number_in(path, "\nPid:");
    int failed = flags ? -EINVAL : address ? read_info(call, address, number, &info) : 0;
    if (failed)
        return failed;
    if (pid == 0)
        return -EBADF;
    return pid < 0 ? -ESRCH : send(call, pid, number, address ? &info : NULL);
}

int cb_signals_decide(const struct cb_call *call)
{
    const uint64_t *a = (const uint64_t *)call->notice->data.args;
    pid_t first = (pid_t)a[0], second = (pid_t)a[1];
    siginfo_t info;
    int failed;
    switch (call->notice->data.nr) {
    case SYS_kill:
        return decide_kill(call, first, (int)a[1]);
    case SYS_tkill:
        if (first <= 0)
            return -EINVAL;
        return first == (pid_t)call->notice->pid ? CB_CALL_GO_ON : decide_thread(call, 0, first, (int)a[1], NULL);
    case SYS_tgkill:
        if (first <= 0 || second <= 0)
            return -EINVAL;
        return is_self(call, first) ? CB_CALL_GO_ON : decide_thread(call, first, second, (int)a[2], NULL);
    case SYS_rt_sigqueueinfo:
        if (is_self(call, first))
            return CB_CALL_GO_ON;
        failed = first <= 0 ? -ESRCH : read_info(call, a[2], (int)a[1], &info);
        return failed ? failed : send_to_process(call, first, (int)a[1], &info);
    case SYS_rt_tgsigqueueinfo:
        if (first <= 0 || second <= 0)
            return -EINVAL;
        if (is_self(call, first))
            return CB_CALL_GO_ON;
        failed = read_info(call, a[3], (int)a[2], &info);
        return failed ? failed : decide_thread(call, first, second, (int)a[2], &info);
    case SYS_pidfd_send_signal:
        return decide_pidfd(call, (int)a[0], (int)a[1], a[2], (unsigned)a[3]);
    default:
        return CB_CALL_OTHER;
    }
}
