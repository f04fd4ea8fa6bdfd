/* Attempts with seccomp: a filter that refuses one harmless call, and one that asks a supervisor about it. */
#include "host/attempt.h"

#include "base/cleanup.h"
#include "base/missing.h"

#include <linux/filter.h>
#include <poll.h>
#include <string.h>

/* getppid() gets `verdict`, everything else is allowed. Returns what seccomp() returned. */
static int attach(unsigned verdict, unsigned flags)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, verdict),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof code / sizeof *code, .filter = code};
    return cb_sys_seccomp(SECCOMP_SET_MODE_FILTER, flags, &program);
}

struct cb_attempt cb_try_seccomp(int unused)
{
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return cb_attempt_failed("prctl(PR_SET_NO_NEW_PRIVS)");
    if (attach(SECCOMP_RET_ERRNO | EDOM, 0) < 0)
        return cb_attempt_failed("seccomp(SECCOMP_SET_MODE_FILTER)");
    errno = 0;
    if (syscall(SYS_getppid) != -1 || errno != EDOM)
        return cb_attempt_failed("refusing a call by an attached filter");
    if (syscall(SYS_getpid) <= 0)
        return cb_attempt_failed("allowing a call by an attached filter");
    return (struct cb_attempt){0};
}

/* Receives one notification, puts a descriptor into the asking process and answers with its number. */
static struct cb_attempt answer_one(int listener, int give)
{
    struct cb_seccomp_notif_sizes sizes;
    if (cb_sys_seccomp(SECCOMP_GET_NOTIF_SIZES, 0, &sizes) < 0)
        return cb_attempt_failed("seccomp(SECCOMP_GET_NOTIF_SIZES)");
    union {
        struct cb_seccomp_notif notif;
        char room[1024];
    } request;
    memset(&request, 0, sizeof request);
    if (sizes.notif > sizeof request)
        return (struct cb_attempt){.step = "seccomp(SECCOMP_GET_NOTIF_SIZES)", .errnum = E2BIG};
    struct pollfd poll_fd = {.fd = listener, .events = POLLIN};
    if (poll(&poll_fd, 1, 1000) != 1 || ioctl(listener, CB_SECCOMP_IOCTL_NOTIF_RECV, &request) < 0)
        return cb_attempt_failed("receiving a seccomp notification");
    struct cb_seccomp_notif_addfd add = {.id = request.notif.id, .srcfd = (uint32_t)give};
    int number = ioctl(listener, CB_SECCOMP_IOCTL_NOTIF_ADDFD, &add);
    if (number < 0)
        return cb_attempt_failed("SECCOMP_IOCTL_NOTIF_ADDFD");
    struct cb_seccomp_notif_resp response = {.id = request.notif.id, .val = number};
    if (ioctl(listener, CB_SECCOMP_IOCTL_NOTIF_SEND, &response) < 0)
        return cb_attempt_failed("answering a seccomp notification");
    return (struct cb_attempt){0};
}

struct cb_attempt cb_try_seccomp_notify(int unused)
{
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return cb_attempt_failed("prctl(PR_SET_NO_NEW_PRIVS)");
    cb_autofd int listener = attach(SECCOMP_RET_USER_NOTIF, SECCOMP_FILTER_FLAG_NEW_LISTENER);
    if (listener < 0)
        return cb_attempt_failed("seccomp(SECCOMP_FILTER_FLAG_NEW_LISTENER)");
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return cb_attempt_failed("pipe2");
    cb_autofd int read_end = ends[0], write_end = ends[1];

    cb_autofd int pidfd = -1;
    int pid = cb_attempt_fork(0, &pidfd);
    if (pid < 0)
        return cb_attempt_failed("clone");
    if (pid == 0) {
        /* The descriptor whose number comes back is a new one: its own copies are closed, so only this one can work. */
        close(write_end);
        int given = (int)syscall(SYS_getppid);
        _exit(given >= 0 && write(given, "x", 1) == 1 ? 0 : 1);
    }
    struct cb_attempt attempt = answer_one(listener, write_end);
    struct pollfd poll_fd = {.fd = read_end, .events = POLLIN};
    errno = 0;
    if (!attempt.step && poll(&poll_fd, 1, 1000) != 1)
        attempt = cb_attempt_failed("using a descriptor that a notification handed over");
    cb_attempt_reap(pid);
    return attempt;
}
