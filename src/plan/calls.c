/* The small filter of one cell, beside the main one that belongs to its profile: system calls that the supervisor
 * answers, and calls that would slip past a limit or out of a tier that has no namespaces.
 *
 *   names       (guard)          making directories, links and, where it matters, files: see supervisor/guard.c
 *   memory      (no cgroup)      memory that belongs to no process and that the watchdog could not see:
 *                                memfd_create, System V objects: see supervisor/memory.c
 *   disk        (limited)        fallocate takes room without writing: programs write instead
 *   processors  (no cgroup)      the cell is pinned to some: it may not unpin itself
 *   network     (rules)          connect and sendto with an address, so that the answer is a truthful one: see
 *                                supervisor/connect.c
 *   tier landlock                no network namespace: no sockets; no ipc namespace: no System V IPC or message
 *                                queues; no pid namespace: priorities and limits of other processes are out of reach
 *
 * Every rule looks at registers only, so there is nothing that another thread could change after the check. */
#include "plan/plan.h"

#include "base/error.h"
#include "base/missing.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

enum condition { ALWAYS, WHEN_BITS, WHEN_OTHER, WHEN_ONLY, WHEN_BOTH };

struct rule {
    unsigned number;
    unsigned action;         /* SECCOMP_RET_* */
    enum condition condition;
    unsigned argument;       /* WHEN_BITS: holds any of `value`; WHEN_OTHER: is not `value`; WHEN_ONLY: is `value`, */
    unsigned value, mask;    /* as far as `mask` goes. WHEN_BOTH: is `value`, and the one after it is `mask` */
};

#define ANSWERED SECCOMP_RET_USER_NOTIF
#define REFUSED(errnum) (SECCOMP_RET_ERRNO | (errnum))

static const struct rule names[] = {
#ifdef SYS_mkdir
    {SYS_mkdir, ANSWERED, ALWAYS, 0, 0, 0},
    {SYS_symlink, ANSWERED, ALWAYS, 0, 0, 0},
    {SYS_rename, ANSWERED, ALWAYS, 0, 0, 0},
#endif
#ifdef SYS_renameat
    {SYS_renameat, ANSWERED, ALWAYS, 0, 0, 0},
#endif
    {SYS_mkdirat, ANSWERED, ALWAYS, 0, 0, 0},
    {SYS_symlinkat, ANSWERED, ALWAYS, 0, 0, 0},
    {SYS_renameat2, ANSWERED, ALWAYS, 0, 0, 0},
};

static const struct rule files[] = {
#ifdef SYS_open
    {SYS_creat, ANSWERED, ALWAYS, 0, 0, 0},
    {SYS_open, ANSWERED, WHEN_BITS, 1, O_CREAT, 0},
#endif
    {SYS_openat, ANSWERED, WHEN_BITS, 2, O_CREAT, 0},
};

static const struct rule memory[] = {
    {SYS_memfd_create, ANSWERED, ALWAYS, 0, 0, 0},
    {SYS_shmget, ANSWERED, ALWAYS, 0, 0, 0},
    {SYS_semget, ANSWERED, ALWAYS, 0, 0, 0},
    {SYS_msgget, ANSWERED, ALWAYS, 0, 0, 0},
};

static const struct rule disk[] = {{SYS_fallocate, REFUSED(EOPNOTSUPP), ALWAYS, 0, 0, 0}};

/* Only to tell a refusal from a failure, and to note it: what is not answered does not get out either. */
static const struct rule network[] = {
    {SYS_connect, ANSWERED, ALWAYS, 0, 0, 0},
    {SYS_sendto, ANSWERED, WHEN_BITS, 4, ~0U, 0},
};

/* Goes with every look of the supervisor's at descriptors: see supervisor/linger.c. */
static const struct rule lingering[] = {{SYS_setsockopt, ANSWERED, WHEN_BOTH, 1, SOL_SOCKET, SO_LINGER}};

static const struct rule processors[] = {{SYS_sched_setaffinity, REFUSED(EPERM), ALWAYS, 0, 0, 0}};

/* Landlock before ABI 3 has no right for truncating: files that may only be read could be emptied. By name, the
 * supervisor does it. */
static const struct rule truncation[] = {
    {SYS_truncate, ANSWERED, ALWAYS, 0, 0, 0},
#ifdef SYS_open
    {SYS_open, REFUSED(EACCES), WHEN_ONLY, 1, O_TRUNC | O_RDONLY, O_TRUNC | O_ACCMODE},
#endif
    {SYS_openat, REFUSED(EACCES), WHEN_ONLY, 2, O_TRUNC | O_RDONLY, O_TRUNC | O_ACCMODE},
};

/* Landlock before ABI 6 does not keep signals inside: the supervisor sends them, to processes of the cell only. */
static const struct rule signals[] = {
    {SYS_kill, ANSWERED, ALWAYS, 0, 0, 0},
    {SYS_tkill, ANSWERED, ALWAYS, 0, 0, 0},
    {SYS_tgkill, ANSWERED, ALWAYS, 0, 0, 0},
    {SYS_rt_sigqueueinfo, ANSWERED, ALWAYS, 0, 0, 0},
    {SYS_rt_tgsigqueueinfo, ANSWERED, ALWAYS, 0, 0, 0},
    {SYS_pidfd_send_signal, ANSWERED, ALWAYS, 0, 0, 0},
    /* Signals that the kernel sends when something happens to a file: to whom, and which. */
    {SYS_fcntl, REFUSED(EPERM), WHEN_ONLY, 1, F_SETOWN, ~0U},
    {SYS_fcntl, REFUSED(EPERM), WHEN_ONLY, 1, F_SETOWN_EX, ~0U},
    {SYS_fcntl, REFUSED(EPERM), WHEN_ONLY, 1, F_SETSIG, ~0U},
    /* A descriptor that signals whom it is told to, when something arrives. */
    {SYS_fcntl, REFUSED(EPERM), WHEN_ONLY, 1, F_SETOWN, ~0U},
    {SYS_fcntl, REFUSED(EPERM), WHEN_ONLY, 1, F_SETOWN_EX, ~0U},
    {SYS_ioctl, REFUSED(EPERM), WHEN_ONLY, 1, FIOSETOWN, ~0U},
    {SYS_ioctl, REFUSED(EPERM), WHEN_ONLY, 1, SIOCSPGRP, ~0U},
};

/* Landlock has no rights for modes, owners and times. The supervisor changes them where the policy lets the code
 * write. */
static const struct rule attributes[] = {
#ifdef SYS_chmod
    {SYS_chmod, ANSWERED, ALWAYS, 0, 0, 0},
    {SYS_chown, ANSWERED, ALWAYS, 0, 0, 0},
    {SYS_lchown, ANSWERED, ALWAYS, 0, 0, 0},
    {SYS_utime, ANSWERED, ALWAYS, 0, 0, 0},
    {SYS_utimes, ANSWERED, ALWAYS, 0, 0, 0},
    {SYS_futimesat, ANSWERED, ALWAYS, 0, 0, 0},
#endif
    {SYS_fchmod, ANSWERED, ALWAYS, 0, 0, 0},
    {SYS_fchmodat, ANSWERED, ALWAYS, 0, 0, 0},
    {CB_SYS_FCHMODAT2, ANSWERED, ALWAYS, 0, 0, 0},
    {SYS_fchown, ANSWERED, ALWAYS, 0, 0, 0},
    {SYS_fchownat, ANSWERED, ALWAYS, 0, 0, 0},
    {SYS_utimensat, ANSWERED, ALWAYS, 0, 0, 0},
    {SYS_setxattr, REFUSED(EOPNOTSUPP), ALWAYS, 0, 0, 0},
    {SYS_lsetxattr, REFUSED(EOPNOTSUPP), ALWAYS, 0, 0, 0},
    {SYS_fsetxattr, REFUSED(EOPNOTSUPP), ALWAYS, 0, 0, 0},
    {SYS_removexattr, REFUSED(EOPNOTSUPP), ALWAYS, 0, 0, 0},
    {SYS_lremovexattr, REFUSED(EOPNOTSUPP), ALWAYS, 0, 0, 0},
    {SYS_fremovexattr, REFUSED(EOPNOTSUPP), ALWAYS, 0, 0, 0},
    {CB_SYS_SETXATTRAT, REFUSED(EOPNOTSUPP), ALWAYS, 0, 0, 0},
    {CB_SYS_REMOVEXATTRAT, REFUSED(EOPNOTSUPP), ALWAYS, 0, 0, 0},
    /* Reading them has no right of Landlock's either. */
    {SYS_getxattr, REFUSED(EOPNOTSUPP), ALWAYS, 0, 0, 0},
    {SYS_lgetxattr, REFUSED(EOPNOTSUPP), ALWAYS, 0, 0, 0},
    {SYS_fgetxattr, REFUSED(EOPNOTSUPP), ALWAYS, 0, 0, 0},
    {SYS_listxattr, REFUSED(EOPNOTSUPP), ALWAYS, 0, 0, 0},
    {SYS_llistxattr, REFUSED(EOPNOTSUPP), ALWAYS, 0, 0, 0},
    {SYS_flistxattr, REFUSED(EOPNOTSUPP), ALWAYS, 0, 0, 0},
    {CB_SYS_GETXATTRAT, REFUSED(EOPNOTSUPP), ALWAYS, 0, 0, 0},
    {CB_SYS_LISTXATTRAT, REFUSED(EOPNOTSUPP), ALWAYS, 0, 0, 0},
    /* … nor has watching, which tells names in directories that can't be listed. Programs then look now and then. */
    {SYS_inotify_add_watch, REFUSED(ENOSPC), ALWAYS, 0, 0, 0},
};

/* In this tier there is no memory file system of the cell's own that a memfd could be counted in. */
static const struct rule uncounted[] = {{SYS_memfd_create, REFUSED(ENOSYS), ALWAYS, 0, 0, 0}};

/* Before the rules that refuse the same: sockets that the supervisor makes and connects. */
static const struct rule brokered[] = {
    {SYS_socket, ANSWERED, ALWAYS, 0, 0, 0},
    {SYS_connect, ANSWERED, ALWAYS, 0, 0, 0},
    /* Packets of a connection that take another way than to where it was made: source routes. */
    {SYS_setsockopt, REFUSED(EPERM), WHEN_BOTH, 1, IPPROTO_IP, IP_OPTIONS},
    {SYS_setsockopt, REFUSED(EPERM), WHEN_BOTH, 1, IPPROTO_IPV6, IPV6_RTHDR},
    {SYS_setsockopt, REFUSED(EPERM), WHEN_BOTH, 1, IPPROTO_IPV6, IPV6_2292RTHDR},
    {SYS_setsockopt, REFUSED(EPERM), WHEN_BOTH, 1, IPPROTO_IPV6, IPV6_2292PKTOPTIONS},
};

static const struct rule no_namespaces[] = {
    {SYS_socket, REFUSED(EACCES), ALWAYS, 0, 0, 0},
    /* What a pair of sockets could do with names of the host's. */
    {SYS_bind, REFUSED(EACCES), ALWAYS, 0, 0, 0},
    {SYS_connect, REFUSED(EACCES), ALWAYS, 0, 0, 0},
    {SYS_listen, REFUSED(EACCES), ALWAYS, 0, 0, 0},
    /* Flags of inodes (FS_IOC_SETFLAGS and its kin, verity, encryption): no read-only mount is in the way here. */
    {SYS_ioctl, SECCOMP_RET_ALLOW, WHEN_ONLY, 1, 0x80086601, ~0U}, /* FS_IOC_GETFLAGS */
    {SYS_ioctl, REFUSED(EPERM), WHEN_ONLY, 1, 0x6600, 0xff00},
    {SYS_ioctl, REFUSED(EPERM), WHEN_ONLY, 1, 0x7600, 0xff00},
    {SYS_ioctl, REFUSED(EPERM), WHEN_ONLY, 1, 0x8900, 0xff00}, /* interfaces and addresses of the host */
    {SYS_ioctl, REFUSED(EPERM), WHEN_ONLY, 1, 0x401c5820, ~0U}, /* FS_IOC_FSSETXATTR */
    /* One of a pair for datagrams (raw means the same) can send to any address, and so to services of the host. */
    {SYS_socketpair, REFUSED(EACCES), WHEN_ONLY, 1, SOCK_DGRAM, 0xf},
    {SYS_socketpair, REFUSED(EACCES), WHEN_ONLY, 1, SOCK_RAW, 0xf},
    /* The access mode that means neither reading nor writing: Landlock sees nothing to refuse, but the file is opened,
     * and emptied when that is asked for too. */
#ifdef SYS_open
    {SYS_open, REFUSED(EACCES), WHEN_ONLY, 1, O_ACCMODE, O_ACCMODE},
#endif
    {SYS_openat, REFUSED(EACCES), WHEN_ONLY, 2, O_ACCMODE, O_ACCMODE},
    {SYS_shmget, REFUSED(ENOSYS), ALWAYS, 0, 0, 0},
    {SYS_semget, REFUSED(ENOSYS), ALWAYS, 0, 0, 0},
    {SYS_msgget, REFUSED(ENOSYS), ALWAYS, 0, 0, 0},
    {SYS_shmat, REFUSED(ENOSYS), ALWAYS, 0, 0, 0},
    {SYS_shmctl, REFUSED(ENOSYS), ALWAYS, 0, 0, 0},
    {SYS_semctl, REFUSED(ENOSYS), ALWAYS, 0, 0, 0},
    {SYS_semop, REFUSED(ENOSYS), ALWAYS, 0, 0, 0},
    {SYS_semtimedop, REFUSED(ENOSYS), ALWAYS, 0, 0, 0},
    {SYS_msgctl, REFUSED(ENOSYS), ALWAYS, 0, 0, 0},
    {SYS_msgsnd, REFUSED(ENOSYS), ALWAYS, 0, 0, 0},
    {SYS_msgrcv, REFUSED(ENOSYS), ALWAYS, 0, 0, 0},
    {SYS_mq_open, REFUSED(ENOSYS), ALWAYS, 0, 0, 0},
    {SYS_mq_unlink, REFUSED(ENOSYS), ALWAYS, 0, 0, 0},
    {SYS_prlimit64, REFUSED(EPERM), WHEN_OTHER, 0, 0, 0},
    {SYS_setpriority, REFUSED(EPERM), WHEN_OTHER, 1, 0, 0},
    {SYS_ioprio_set, REFUSED(EPERM), WHEN_OTHER, 1, 0, 0},
    {SYS_sched_setaffinity, REFUSED(EPERM), WHEN_OTHER, 0, 0, 0},
    {SYS_sched_setscheduler, REFUSED(EPERM), WHEN_OTHER, 0, 0, 0},
    {SYS_sched_setparam, REFUSED(EPERM), WHEN_OTHER, 0, 0, 0},
    {SYS_sched_setattr, REFUSED(EPERM), WHEN_OTHER, 0, 0, 0},
};

static struct sock_filter load(size_t offset)
{
    return (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (unsigned)offset);
}

static size_t low_half(unsigned argument)
{
    size_t offset = offsetof(struct seccomp_data, args) + 8 * argument;
    return __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__ ? offset + 4 : offset;
}

/* Where two rules are about one call, the first that fits counts. */
static void add(struct cb_filter *filter, const struct rule *rules, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct rule *rule = &rules[i];
        struct sock_filter *next = filter->code + filter->length, *start = next;
        const struct sock_filter act = BPF_STMT(BPF_RET | BPF_K, rule->action);
        if (rule->condition == ALWAYS) {
            *next++ = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, rule->number, 0, 1);
            *next++ = act;
        } else if (rule->condition == WHEN_BOTH) {
            *next++ = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, rule->number, 0, 6);
            *next++ = load(low_half(rule->argument));
            *next++ = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, rule->value, 0, 3);
            *next++ = load(low_half(rule->argument + 1));
            *next++ = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, rule->mask, 0, 1);
            *next++ = act;
            *next++ = load(offsetof(struct seccomp_data, nr));
        } else {
            bool bits = rule->condition == WHEN_BITS, other = rule->condition == WHEN_OTHER;
            unsigned mask = rule->condition == WHEN_ONLY ? rule->mask : ~0U;
            *next++ = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, rule->number, 0, 5);
            *next++ = load(low_half(rule->argument));
            *next++ = (struct sock_filter)BPF_STMT(BPF_ALU | BPF_AND | BPF_K, mask);
            *next++ = (struct sock_filter)BPF_JUMP(BPF_JMP | (bits ? BPF_JSET : BPF_JEQ) | BPF_K, rule->value, other,
                                                   !other);
            *next++ = act;
            *next++ = load(offsetof(struct seccomp_data, nr));
        }
        filter->length += (size_t)(next - start);
    }
}

#define ADD(filter, rules) add((filter), (rules), sizeof(rules) / sizeof *(rules))

/* Rules of the tier without namespaces. */
static void add_for_landlock(struct cb_plan *plan, bool unseen)
{
    struct cb_filter *filter = &plan->call_filter;
    if (plan->network.brokered)
        ADD(filter, brokered);
    ADD(filter, no_namespaces);
    ADD(filter, attributes);
    if (plan->signals_answered)
        ADD(filter, signals);
    if (!(plan->landlock_handled & LANDLOCK_ACCESS_FS_TRUNCATE))
        ADD(filter, truncation);
    if (unseen)
        ADD(filter, uncounted);
}

int cb_plan_calls(struct cb_plan *plan, cellblock_error **error)
{
    bool limits = cb_layer_on(plan, CB_OFF_LIMITS);
    bool guarded = plan->guard.area_count > 0 && cb_layer_on(plan, CB_OFF_GUARD);
    bool unseen = limits && plan->tree.memory != CB_UNLIMITED && !(plan->cgroup & CB_CGROUP_MEMORY);
    bool pinned = limits && plan->tree.cpus != CB_UNLIMITED && !(plan->cgroup & CB_CGROUP_CPU);
    enum { ROOM = 512 };
    struct cb_filter *filter = &plan->call_filter;
    filter->code = calloc(ROOM, sizeof *filter->code);
    if (!filter->code)
        return cb_fail_memory(error);
    filter->owned = true;
    filter->code[filter->length++] = load(offsetof(struct seccomp_data, nr));
    if (pinned)
        ADD(filter, processors);
    if (limits && plan->tree.disk != CB_UNLIMITED)
        ADD(filter, disk);
    bool landlock = plan->tier == CB_TIER_LANDLOCK && cb_layer_on(plan, CB_OFF_SECCOMP);
    if (landlock)
        add_for_landlock(plan, unseen);
    plan->memory_answered = unseen && plan->tier == CB_TIER_NAMESPACES;
    if (plan->memory_answered)
        ADD(filter, memory);
    if (plan->network.relayed)
        ADD(filter, network);
    if (guarded)
        ADD(filter, names);
    if (guarded && plan->guard.files)
        ADD(filter, files);
    /* Whoever counts what is on disk looks at open files too. */
    bool looks = limits && (plan->tree.disk != CB_UNLIMITED || plan->tree.inodes != CB_UNLIMITED);
    bool answers = guarded || plan->network.relayed || plan->memory_answered || landlock || looks;
    if (answers && cb_layer_on(plan, CB_OFF_LINGER))
        ADD(filter, lingering);
    plan->answered = answers;
    if (filter->length == 1)
        filter->length = 0; /* nothing to do: not attached */
    else
        filter->code[filter->length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    return 0;
}
