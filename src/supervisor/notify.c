/* Receives what the cell asks for, lets the right part decide, and answers.
 *
 * Runs in the supervisor, from its event loop. As root it decides with the cell's file system ids, and in tier landlock
 * without its capabilities, so that root's override of modes and owners does not help the code. */
#include "supervisor/notify.h"

#include <errno.h>
#include <linux/capability.h>
#include <linux/seccomp.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

bool cb_notify_waits(const struct cellblock_cell *cell, uint64_t id)
{
    return ioctl(cell->listener, CB_SECCOMP_IOCTL_NOTIF_ID_VALID, &id) == 0;
}

bool cb_call_waits(const struct cb_call *call)
{
    return cb_notify_waits(call->cell, call->notice->id);
}

void cb_notify_reply(struct cellblock_cell *cell, uint64_t id, int answer)
{
    struct cb_seccomp_notif_resp response = {.id = id};
    if (answer == CB_CALL_GO_ON)
        response.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
    else
        response.error = answer;
    if (ioctl(cell->listener, CB_SECCOMP_IOCTL_NOTIF_SEND, &response) < 0 && errno != ENOENT && errno != EINTR)
        cell->broken = errno;
}

/* Linux 5.14 gives the descriptor and the answer in one step. Before, the caller could be interrupted in between and
 * keep a descriptor that it knows nothing of: harmless, and closed when it ends. */
int cb_call_give(const struct cb_call *call, int fd, int flags)
{
    struct cb_seccomp_notif_addfd add = {.id = call->notice->id,
                                         .flags = SECCOMP_ADDFD_FLAG_SEND,
                                         .srcfd = (uint32_t)fd,
                                         .newfd_flags = (uint32_t)flags};
    if (ioctl(call->cell->listener, CB_SECCOMP_IOCTL_NOTIF_ADDFD, &add) >= 0)
        return CB_CALL_ANSWERED;
    if (errno != EINVAL)
        return -errno;
    add.flags = 0;
    int number = ioctl(call->cell->listener, CB_SECCOMP_IOCTL_NOTIF_ADDFD, &add);
    if (number < 0)
        return -errno;
    struct cb_seccomp_notif_resp response = {.id = call->notice->id, .val = number};
    ioctl(call->cell->listener, CB_SECCOMP_IOCTL_NOTIF_SEND, &response);
    return CB_CALL_ANSWERED;
}

int cb_call_done(const struct cb_call *call)
{
    struct cb_seccomp_notif_resp response = {.id = call->notice->id};
    ioctl(call->cell->listener, CB_SECCOMP_IOCTL_NOTIF_SEND, &response);
    return CB_CALL_ANSWERED;
}

static int decide(const struct cb_call *call)
{
    switch (call->notice->data.nr) {
    case SYS_setsockopt:
        return cb_linger_decide(call);
    case SYS_socket:
        return cb_broker_decide(call);
    case SYS_connect:
    case SYS_sendto:
        return call->cell->plan->network.brokered ? cb_broker_decide(call) : cb_connect_decide(call);
    case SYS_memfd_create:
    case SYS_shmget:
    case SYS_semget:
    case SYS_msgget:
        return cb_memory_decide(call);
    default:
        break;
    }
    int answer = cb_attributes_decide(call);
    if (answer == CB_CALL_OTHER)
        answer = cb_signals_decide(call);
    return answer == CB_CALL_OTHER ? cb_guard_decide(call) : answer;
}

/* The code has the supervisor's id, but none of its capabilities. They are put aside for this thread only. */
static int decide_without_capabilities(const struct cb_call *call)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct all[_LINUX_CAPABILITY_U32S_3], less[_LINUX_CAPABILITY_U32S_3];
    if (syscall(SYS_capget, &header, all) < 0)
        return -EPERM;
    memcpy(less, all, sizeof less);
    for (size_t i = 0; i < _LINUX_CAPABILITY_U32S_3; i++)
        less[i].effective = 0;
    if (syscall(SYS_capset, &header, less) < 0)
        return -EPERM;
    int answer = decide(call);
    syscall(SYS_capset, &header, all);
    return answer;
}

/* Leaving id 0 takes root's file capabilities away, coming back restores them. The raw calls change this thread only.
 * They also clear two settings of the process that are not ours to lose. */
static int decide_as_cell(const struct cb_call *call)
{
    const struct cb_plan *plan = call->cell->plan;
    int death_signal = 0;
    int number = call->notice->data.nr;
    if (plan->network.relayed && (number == SYS_connect || number == SYS_sendto))
        return decide(call); /* looks at no file */
    if (plan->tier == CB_TIER_LANDLOCK)
        return decide_without_capabilities(call);
    if (!plan->privileged)
        return decide(call);
    prctl(PR_GET_PDEATHSIG, &death_signal);
    int dumpable = prctl(PR_GET_DUMPABLE);
    syscall(SYS_setfsgid, plan->outside_gid);
    syscall(SYS_setfsuid, plan->outside_uid);
    int answer = decide(call);
    syscall(SYS_setfsuid, geteuid());
    syscall(SYS_setfsgid, getegid());
    prctl(PR_SET_PDEATHSIG, death_signal);
    if (dumpable == 0 || dumpable == 1)
        prctl(PR_SET_DUMPABLE, dumpable);
    return answer;
}

void cb_notify_answer(struct cellblock_cell *cell)
{
    union {
        struct cb_seccomp_notif notice;
        char room[512]; /* a newer kernel may have more to say */
    } received = {0};
    if (ioctl(cell->listener, CB_SECCOMP_IOCTL_NOTIF_RECV, &received) < 0) {
        if (errno == EINTR || errno == ENOENT || errno == EAGAIN)
            return;
        /* A call that nobody answers would wait for ever. */
        cell->broken = errno;
        epoll_ctl(cell->epoll, EPOLL_CTL_DEL, cell->listener, NULL);
        return;
    }
    const struct cb_call call = {.cell = cell, .notice = &received.notice};
    int answer = decide_as_cell(&call);
    if (answer == CB_CALL_ANSWERED)
        return;
    cb_notify_reply(cell, received.notice.id, answer);
}
