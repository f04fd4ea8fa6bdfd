/* Runs one attempt in a child process: clone, map ids, wait for the answer with a deadline, end the child.
 *
 * Runs in the caller's process, which may be somebody's large program: the child is cloned with no exit signal, so the
 * caller's SIGCHLD handler does not run and its wait() does not see it. */
#include "host/attempt.h"

#include "base/cleanup.h"
#include "base/error.h"
#include "base/missing.h"

#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define DEADLINE_MS 2000

static long long now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

int cb_attempt_fork(uint64_t flags, int *pidfd)
{
    pid_t pid = cb_sys_clone_pidfd(flags, pidfd, -1);
    if (pid == 0)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    return pid;
}

void cb_attempt_reap(int pid)
{
    kill(pid, SIGKILL);
    while (waitpid(pid, NULL, __WALL) < 0 && errno == EINTR)
        continue;
}

static int write_file(int dir, const char *name, const char *text)
{
    cb_autofd int fd = openat(dir, name, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    size_t length = strlen(text);
    ssize_t written = write(fd, text, length);
    if (written >= 0 && (size_t)written != length)
        errno = EIO;
    return written == (ssize_t)length ? 0 : -1;
}

static struct cb_attempt map_ids(pid_t pid, enum cb_mapping mapping)
{
    char path[32], uid_map[32], gid_map[32];
    bool self = mapping == CB_MAPPING_SELF;
    snprintf(path, sizeof path, "/proc/%d", (int)pid);
    snprintf(uid_map, sizeof uid_map, "0 %u 1\n", self ? (unsigned)geteuid() : CB_NOBODY);
    snprintf(gid_map, sizeof gid_map, "0 %u 1\n", self ? (unsigned)getegid() : CB_NOBODY);

    cb_autofd int dir = open(path, O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return cb_attempt_failed("opening /proc/PID of the new process");
    if (write_file(dir, "setgroups", "deny") < 0)
        return cb_attempt_failed("writing /proc/PID/setgroups");
    if (write_file(dir, "uid_map", uid_map) < 0)
        return cb_attempt_failed("writing /proc/PID/uid_map");
    if (write_file(dir, "gid_map", gid_map) < 0)
        return cb_attempt_failed("writing /proc/PID/gid_map");
    return (struct cb_attempt){0};
}

static _Noreturn void child_main(bool mapped, int go, int answer, cb_attempt_function function, int argument)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    char byte;
    /* Without the byte the parent has gone or given up: nothing must happen then. */
    if (read(go, &byte, 1) != 1)
        _exit(1);
    struct cb_attempt attempt = {0};
    /* Not through libc, which would try to take along threads that this copy does not have. */
    if (mapped && (syscall(SYS_setresgid, 0, 0, 0) < 0 || syscall(SYS_setresuid, 0, 0, 0) < 0))
        attempt = cb_attempt_failed("becoming root of the user namespace");
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* again: changing ids forgets it */
    if (!attempt.step)
        attempt = function(argument);
    ssize_t written = write(answer, &attempt, sizeof attempt);
    _exit(written == (ssize_t)sizeof attempt ? 0 : 1);
}

/* Waits for the answer, but not longer than the deadline. Returns false when none came. */
static bool receive(int answer, struct cb_attempt *attempt)
{
    long long end = now_ms() + DEADLINE_MS;
    for (;;) {
        long long left = end - now_ms();
        struct pollfd poll_fd = {.fd = answer, .events = POLLIN};
        int ready = poll(&poll_fd, 1, left > 0 ? (int)left : 0);
        if (ready < 0 && errno == EINTR)
            continue;
        if (ready <= 0) {
            *attempt = (struct cb_attempt){.step = "finishing in time", .errnum = ETIMEDOUT};
            return true;
        }
        struct cb_attempt received;
        ssize_t length = read(answer, &received, sizeof received);
        if (length < 0 && errno == EINTR)
            continue;
        if (length == (ssize_t)sizeof received)
            *attempt = received;
        return length == (ssize_t)sizeof received;
    }
}

int cb_attempt_run(uint64_t namespaces, cb_attempt_function function, int argument, struct cb_attempt *attempt,
                   cellblock_error **error)
{
    int go[2], answer[2];
    if (pipe2(go, O_CLOEXEC) < 0)
        return cb_fail_errno(error, "could not make a pipe to examine the machine");
    cb_autofd int go_read = go[0], go_write = go[1];
    if (pipe2(answer, O_CLOEXEC) < 0)
        return cb_fail_errno(error, "could not make a pipe to examine the machine");
    cb_autofd int answer_read = answer[0], answer_write = answer[1];

    bool user = namespaces & CLONE_NEWUSER;
    enum cb_mapping mapping = user ? cb_mapping_of_caller() : CB_MAPPING_SELF;
    if (mapping == CB_MAPPING_NONE) {
        *attempt = (struct cb_attempt){.step = "finding an id other than root to map", .errnum = EPERM};
        return 0;
    }

    /* A handler of the caller must not run in the child. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    cb_autofd int pidfd = -1;
    pid_t pid = cb_sys_clone_pidfd(namespaces, &pidfd, -1);
    if (pid == 0) {
        close(go_write);
        close(answer_read);
        child_main(user, go_read, answer_write, function, argument);
    }
    int clone_errno = errno;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (pid < 0) {
        *attempt = (struct cb_attempt){.step = "clone", .errnum = clone_errno};
        return 0;
    }
    close(cb_steal_fd(&answer_write)); /* go_read stays open: writing to a dead child must not raise SIGPIPE */

    struct cb_attempt outcome = user ? map_ids(pid, mapping) : (struct cb_attempt){0};
    bool answered = true;
    if (!outcome.step) {
        bool sent = write(go_write, "", 1) == 1;
        answered = sent && receive(answer_read, &outcome);
    }

    int status = 0;
    if (answered)
        kill(pid, SIGKILL); /* not yet reaped, so the number is still its own */
    while (waitpid(pid, &status, __WALL) < 0 && errno == EINTR)
        continue;
    if (!answered) {
        bool filtered = WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS;
        outcome.step = filtered ? "a call that a seccomp filter answers by killing" : "reaching the end of the attempt";
        outcome.errnum = filtered ? EPERM : ECHILD;
    }
    *attempt = outcome;
    return 0;
}
