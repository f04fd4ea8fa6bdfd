/* Attempts with process and path handles: pidfds, close_range, openat2. */
#include "host/attempt.h"

#include "base/cleanup.h"
#include "base/missing.h"

#include <poll.h>

struct cb_attempt cb_try_pidfd(int unused)
{
    cb_autofd int pidfd = -1;
    pid_t pid = cb_sys_clone_pidfd(0, &pidfd, -1);
    if (pid < 0)
        return cb_attempt_failed("cloning with a pidfd");
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;)
            pause();
    }
    struct cb_attempt attempt = {0};
    cb_autofd int second = cb_sys_pidfd_open(pid, 0);
    if (second < 0)
        attempt = cb_attempt_failed("pidfd_open");
    else if (cb_sys_pidfd_send_signal(pidfd, SIGKILL, NULL, 0) < 0)
        attempt = cb_attempt_failed("pidfd_send_signal");
    struct pollfd poll_fd = {.fd = pidfd, .events = POLLIN};
    if (!attempt.step && poll(&poll_fd, 1, 1000) != 1)
        attempt = cb_attempt_failed("poll on a pidfd");
    siginfo_t info;
    if (!attempt.step && waitid(CB_P_PIDFD, (id_t)pidfd, &info, WEXITED | __WALL) < 0)
        attempt = cb_attempt_failed("waitid(P_PIDFD)");
    if (attempt.step)
        cb_attempt_reap(pid);
    return attempt;
}

struct cb_attempt cb_try_close_range(int unused)
{
    int first = open("/", O_PATH);
    int second = first < 0 ? -1 : fcntl(first, F_DUPFD, first + 1);
    if (second < 0)
        return cb_attempt_failed("opening /");
    if (cb_sys_close_range((unsigned)second, (unsigned)second, 0) < 0)
        return cb_attempt_failed("close_range");
    if (fcntl(second, F_GETFD) >= 0 || fcntl(first, F_GETFD) != 0)
        return (struct cb_attempt){.step = "closing the right descriptors by close_range", .errnum = EBADF};
    if (cb_sys_close_range((unsigned)first, (unsigned)first, CLOSE_RANGE_CLOEXEC) < 0 ||
        fcntl(first, F_GETFD) != FD_CLOEXEC)
        return cb_attempt_failed("close_range(CLOSE_RANGE_CLOEXEC)");
    return (struct cb_attempt){0};
}

struct cb_attempt cb_try_openat2(int unused)
{
    cb_autofd int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root < 0)
        return cb_attempt_failed("opening /");
    struct cb_open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};
    cb_autofd int inside = cb_sys_openat2(root, "..", &how);
    if (inside < 0)
        return cb_attempt_failed("openat2(RESOLVE_IN_ROOT)");
    how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS;
    cb_autofd int outside = cb_sys_openat2(root, "..", &how);
    if (outside >= 0 || errno != EXDEV)
        return cb_attempt_failed("refusing to leave a directory by openat2(RESOLVE_BENEATH)");
    return (struct cb_attempt){0};
}
