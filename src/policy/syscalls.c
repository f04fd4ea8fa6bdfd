/* The table of system calls. See syscalls.h.
 *
 * An allow-list. Everything that ordinary programs use is in it by name; what is known to be dangerous is refused with
 * EPERM, so that the person sees a refusal and not a missing feature; what is not here at all gets ENOSYS, as from a
 * kernel that never had it, so calls of future kernels are closed until somebody has thought about them. ENOSYS is also
 * the answer where programs have a well-worn fallback and the filter can't see what is asked (clone3, openat2: their
 * arguments are in memory, which another thread could change after a check).
 *
 * Argument checks cost: a call that is always allowed is looked up in a bitmap by the kernel and the filter does not
 * run for it. So the hot calls (read, write, futex, mmap, stat, poll, …) have none. The one hot call with a check is
 * open/openat, for setuid and setgid bits in the mode of a new file. Measured on Linux 6.18, x86_64: it adds about
 * 15 ns to an openat of 1,050 ns. A file with a setuid bit that is left in the workspace is a trap for whoever runs it
 * later, so that is well spent.
 *
 * mkdir needs no check: the kernel drops setuid and setgid from its mode. Refused socket families and protocols get
 * the error that a kernel without them would give, because that is what programs test for. */
#include "policy/syscalls.h"

#include <errno.h>
#include <linux/netlink.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>

/* Constants that are too new for, or hidden by, the headers of the systems that we build on. */
#define CLONE_THREAD_FLAG 0x00010000u
#define CLONE_NAMESPACES 0x7e020000u  /* NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET. NEWTIME is 0x80,
                                       * which clone() reads as part of the exit signal: clone3 and unshare only */
#define OPEN_CREATES 0x00400040u      /* O_CREAT, or the bit of O_TMPFILE: only then is there a mode */
#define FULL 0xffffffffu
#define SET_ID_BITS 06000u
#define FILE_TYPE 0170000u
#define MEMFD_HUGETLB 0x4u
#define FASTOPEN 0x20000000u
#define SOCKET_TYPE 0xfu              /* the rest of the type argument is flags, which the kernel checks */
#define ANY_INET_MASK 0xfffffff7u     /* AF_INET is 2, AF_INET6 is 10: one test for both */
#define PRCTL_LAST_KNOWN 78u
#define PRCTL_VMA_NAME 0x53564d41u

#define IS(arg, val) {.argument = (arg), .compare = CB_COMPARE_EQUAL, .mask = FULL, .value = (val)}
#define IS_MASKED(arg, bits, val) {.argument = (arg), .compare = CB_COMPARE_EQUAL, .mask = (bits), .value = (val)}
#define HAS_ANY(arg, bits) {.argument = (arg), .compare = CB_COMPARE_NOT_EQUAL, .mask = (bits), .value = 0}
#define ABOVE(arg, val) {.argument = (arg), .compare = CB_COMPARE_ABOVE, .mask = FULL, .value = (val)}
#define OK_IF(...) {.when = {__VA_ARGS__}}
#define NOT_IF(err, reason, ...) {.when = {__VA_ARGS__}, .errnum = (err), .why = (reason)}
#define ELSE_OK {.errnum = 0}
#define ELSE_NOT(err, reason) {.errnum = (err), .why = (reason)}

/* ---- Reasons ---- */

#define WHY_MOUNT "changes what is mounted where: the file rules of the cell are mounts"
#define WHY_NAMESPACE "makes or enters namespaces: inside a new one the code would have privileges again"
#define WHY_IO_URING "makes system calls that the filter does not see"
#define WHY_TRACE "reads or changes another process; debuggers and strace do not work in a cell"
#define WHY_KEYS "kernel keyrings are shared with processes outside the cell"
#define WHY_KERNEL "changes or replaces the running kernel"
#define WHY_MODULES "loads or removes kernel modules"
#define WHY_CLOCK "sets the clock of the machine"
#define WHY_MACHINE "administers the machine"
#define WHY_PORTS "gives direct access to hardware"
#define WHY_HANDLE "opens files past all path rules"
#define WHY_OBSERVE "watches more of the system than the cell"
#define WHY_SURFACE "a part of the kernel that ordinary programs do not need and that attacks have used"
#define WHY_GONE "no kernel of today has it"
#define WHY_MEMORY_FLAGS "its arguments are in memory, where a filter can't check them; programs fall back"
#define WHY_UNUSED "not needed by ordinary programs"
#define WHY_SET_ID "would leave a setuid or setgid file behind"
#define WHY_DEVICE "would make a device node"
#define WHY_INIT "would slow or limit the cell's init"
#define WHY_STRICT_PROCESS "the strict profile allows threads, but no new processes"
#define WHY_STRICT_SOCKET "the strict profile has no sockets"
#define WHY_STRICT_IPC "the strict profile has no System V or message-queue IPC"
#define WHY_AIO "takes from a quota of the whole machine; programs do without"
#define WHY_STRICT "not in the strict profile"

/* ---- Checks of arguments ---- */

static const struct cb_argument_check clone_checks[] = {
    NOT_IF(EPERM, WHY_NAMESPACE, HAS_ANY(0, CLONE_NAMESPACES)),
    ELSE_OK,
};

static const struct cb_argument_check clone_strict_checks[] = {
    NOT_IF(EPERM, WHY_NAMESPACE, HAS_ANY(0, CLONE_NAMESPACES)),
    NOT_IF(EPERM, WHY_STRICT_PROCESS, IS_MASKED(0, CLONE_THREAD_FLAG, 0)),
    ELSE_OK,
};

/* Process 1 is the cell's init: it has the same id as the code, and the kernel would let the code slow or limit it. */
static const struct cb_argument_check not_init_checks[] = {
    NOT_IF(EPERM, WHY_INIT, IS(0, 1)),
    ELSE_OK,
};

static const struct cb_argument_check setpriority_checks[] = {
    OK_IF(IS(0, PRIO_PGRP)),
    NOT_IF(EPERM, WHY_INIT, IS(0, PRIO_USER)),
    NOT_IF(EPERM, WHY_INIT, IS(1, 1)),
    ELSE_OK,
};

static const struct cb_argument_check ioprio_checks[] = {
    NOT_IF(EPERM, WHY_INIT, IS(0, 1), IS(1, 1)), /* IOPRIO_WHO_PROCESS */
    NOT_IF(EPERM, WHY_INIT, IS(0, 3)),           /* IOPRIO_WHO_USER */
    ELSE_OK,
};

/* No raw, packet, ICMP, MPTCP, SCTP or other protocol; of netlink only the route family, which getaddrinfo() and
 * getifaddrs() need. */
static const struct cb_argument_check socket_checks[] = {
    OK_IF(IS(0, AF_UNIX), IS_MASKED(1, SOCKET_TYPE, SOCK_STREAM)),
    OK_IF(IS(0, AF_UNIX), IS_MASKED(1, SOCKET_TYPE, SOCK_DGRAM)),
    OK_IF(IS(0, AF_UNIX), IS_MASKED(1, SOCKET_TYPE, SOCK_SEQPACKET)),
    OK_IF(IS_MASKED(0, ANY_INET_MASK, AF_INET), IS_MASKED(1, SOCKET_TYPE, SOCK_STREAM), IS(2, 0)),
    OK_IF(IS_MASKED(0, ANY_INET_MASK, AF_INET), IS_MASKED(1, SOCKET_TYPE, SOCK_STREAM), IS(2, IPPROTO_TCP)),
    OK_IF(IS_MASKED(0, ANY_INET_MASK, AF_INET), IS_MASKED(1, SOCKET_TYPE, SOCK_DGRAM), IS(2, 0)),
    OK_IF(IS_MASKED(0, ANY_INET_MASK, AF_INET), IS_MASKED(1, SOCKET_TYPE, SOCK_DGRAM), IS(2, IPPROTO_UDP)),
    OK_IF(IS(0, AF_NETLINK), IS(2, NETLINK_ROUTE)),
    NOT_IF(EPROTONOSUPPORT, "only the route family of netlink is open", IS(0, AF_NETLINK)),
    NOT_IF(EPERM, "raw and packet sockets see and forge the traffic of others", IS_MASKED(0, ANY_INET_MASK, AF_INET),
           IS_MASKED(1, SOCKET_TYPE, SOCK_RAW)),
    NOT_IF(EPROTONOSUPPORT, "only TCP and UDP: other protocols slip past rules made for these",
           IS_MASKED(0, ANY_INET_MASK, AF_INET)),
    NOT_IF(ESOCKTNOSUPPORT, "no such type of unix socket", IS(0, AF_UNIX)),
    ELSE_NOT(EAFNOSUPPORT, "only unix, IPv4, IPv6 and route netlink sockets: the rest is attack surface"),
};

static const struct cb_argument_check socketpair_checks[] = {
    OK_IF(IS(0, AF_UNIX)),
    ELSE_NOT(EAFNOSUPPORT, "only pairs of unix sockets"),
};

#define WHY_FASTOPEN "MSG_FASTOPEN connects without connect()"
static const struct cb_argument_check sendto_checks[] = {NOT_IF(EPERM, WHY_FASTOPEN, HAS_ANY(3, FASTOPEN)), ELSE_OK};
static const struct cb_argument_check sendmsg_checks[] = {NOT_IF(EPERM, WHY_FASTOPEN, HAS_ANY(2, FASTOPEN)), ELSE_OK};

/* The request numbers of terminals, the same on all our architectures. */
static const struct cb_argument_check ioctl_checks[] = {
    NOT_IF(EPERM, "TIOCSTI types into the terminal as if the person did", IS(1, 0x5412)),
    NOT_IF(EPERM, "TIOCLINUX pastes into the console", IS(1, 0x541c)),
    NOT_IF(EPERM, "TIOCCONS redirects the console", IS(1, 0x541d)),
    NOT_IF(EPERM, "TIOCSETD loads line disciplines, which attacks have used", IS(1, 0x5423)),
    OK_IF(IS(1, 0x40049409)), /* FICLONE, FICLONERANGE, FIDEDUPERANGE: copies that share blocks */
    OK_IF(IS(1, 0x4020940d)),
    OK_IF(IS(1, 0xc0189436)),
    NOT_IF(ENOTTY, "makes and removes subvolumes of btrfs past all path rules", IS_MASKED(1, 0xff00, 0x9400)),
    ELSE_OK,
};

#define WHY_SET_MM "PR_SET_MM forges what /proc says of a process"
#define WHY_CORE_SCHEDULING "core scheduling takes whole cores from others"
#define WHY_PRCTL_UNKNOWN "an option that is not known to be harmless"
static const struct cb_argument_check prctl_checks[] = {
    NOT_IF(EPERM, WHY_SET_MM, IS(0, PR_SET_MM)),
    NOT_IF(EPERM, WHY_CORE_SCHEDULING, IS(0, 62)),
    OK_IF(IS(0, PR_SET_PTRACER)),
    OK_IF(IS(0, PRCTL_VMA_NAME)),
    NOT_IF(EINVAL, WHY_PRCTL_UNKNOWN, ABOVE(0, PRCTL_LAST_KNOWN)),
    ELSE_OK,
};

static const struct cb_argument_check prctl_strict_checks[] = {
    NOT_IF(EPERM, WHY_SET_MM, IS(0, PR_SET_MM)),
    NOT_IF(EPERM, WHY_CORE_SCHEDULING, IS(0, 62)),
    NOT_IF(EPERM, WHY_STRICT, IS(0, PR_SET_SECCOMP)),
    OK_IF(IS(0, PR_SET_PTRACER)),
    OK_IF(IS(0, PRCTL_VMA_NAME)),
    NOT_IF(EINVAL, WHY_PRCTL_UNKNOWN, ABOVE(0, PRCTL_LAST_KNOWN)),
    ELSE_OK,
};

static const struct cb_argument_check personality_checks[] = {
    OK_IF(IS(0, 0)),
    OK_IF(IS(0, FULL)), /* asks, changes nothing */
    ELSE_NOT(EPERM, "other personalities switch off address randomisation or reach rarely used kernel code"),
};

/* A program may put itself under further filters (browsers and build tools do), but not answer system calls. */
static const struct cb_argument_check seccomp_checks[] = {
    NOT_IF(EPERM, "a notification listener can let calls continue that another filter would trap",
           IS(0, SECCOMP_SET_MODE_FILTER), HAS_ANY(1, SECCOMP_FILTER_FLAG_NEW_LISTENER)),
    NOT_IF(EINVAL, "not a known operation", ABOVE(0, SECCOMP_GET_NOTIF_SIZES)),
    ELSE_OK,
};

static const struct cb_argument_check memfd_checks[] = {
    NOT_IF(EPERM, "huge pages come from a reserve of the whole machine", HAS_ANY(1, MEMFD_HUGETLB)),
    ELSE_OK,
};

static const struct cb_argument_check move_pages_checks[] = {
    OK_IF(IS(0, 0)),
    ELSE_NOT(EPERM, "moves the memory of another process"),
};

static const struct cb_argument_check mode1_checks[] = {NOT_IF(EPERM, WHY_SET_ID, HAS_ANY(1, SET_ID_BITS)), ELSE_OK};
static const struct cb_argument_check mode2_checks[] = {NOT_IF(EPERM, WHY_SET_ID, HAS_ANY(2, SET_ID_BITS)), ELSE_OK};

static const struct cb_argument_check open_checks[] = {
    NOT_IF(EPERM, WHY_SET_ID, HAS_ANY(1, OPEN_CREATES), HAS_ANY(2, SET_ID_BITS)),
    ELSE_OK,
};

static const struct cb_argument_check openat_checks[] = {
    NOT_IF(EPERM, WHY_SET_ID, HAS_ANY(2, OPEN_CREATES), HAS_ANY(3, SET_ID_BITS)),
    ELSE_OK,
};

/* Regular files, fifos and sockets. Type 0 means a regular file. */
#define MKNOD_CHECKS(mode)                                                                                   \
    {                                                                                                        \
        NOT_IF(EPERM, WHY_SET_ID, HAS_ANY(mode, SET_ID_BITS)), OK_IF(IS_MASKED(mode, FILE_TYPE, 0)),         \
            OK_IF(IS_MASKED(mode, FILE_TYPE, 0100000)), OK_IF(IS_MASKED(mode, FILE_TYPE, 0010000)),          \
            OK_IF(IS_MASKED(mode, FILE_TYPE, 0140000)), ELSE_NOT(EPERM, WHY_DEVICE),                         \
    }
static const struct cb_argument_check mknod_checks[] = MKNOD_CHECKS(1);
static const struct cb_argument_check mknodat_checks[] = MKNOD_CHECKS(2);

/* ---- Rows ---- */

#define R_ALLOW {.verdict = CB_SYSCALL_ALLOW}
#define R_EPERM(reason) {.verdict = CB_SYSCALL_EPERM, .why = (reason)}
#define R_ENOSYS(reason) {.verdict = CB_SYSCALL_ENOSYS, .why = (reason)}
#define R_CHECK(list) {.verdict = CB_SYSCALL_CHECK, .checks = (list), .check_count = sizeof(list) / sizeof *(list)}
#define ROW(call, nr, closed, in_default, in_strict) \
    {.name = (call), .number = (nr), .never = (closed), .rules = {in_default, in_strict}}

#define ALLOW(call) ROW(call, 0, false, R_ALLOW, R_ALLOW)
#define ALLOW_NR(call, nr) ROW(call, nr, false, R_ALLOW, R_ALLOW)
#define CHECK(call, list) ROW(call, 0, false, R_CHECK(list), R_CHECK(list))
#define CHECK_NR(call, nr, list) ROW(call, nr, false, R_CHECK(list), R_CHECK(list))
#define NOT_STRICT(call, reason) ROW(call, 0, false, R_ALLOW, R_EPERM(reason))
#define CHECK_NOT_STRICT(call, list, reason) ROW(call, 0, false, R_CHECK(list), R_EPERM(reason))
#define REFUSE(call, reason) ROW(call, 0, false, R_EPERM(reason), R_EPERM(reason))
#define REFUSE_NR(call, nr, reason) ROW(call, nr, false, R_EPERM(reason), R_EPERM(reason))
#define NEVER(call, reason) ROW(call, 0, true, R_EPERM(reason), R_EPERM(reason))
#define NEVER_NR(call, nr, reason) ROW(call, nr, true, R_EPERM(reason), R_EPERM(reason))
#define MISSING(call, reason) ROW(call, 0, false, R_ENOSYS(reason), R_ENOSYS(reason))
#define MISSING_NR(call, nr, reason) ROW(call, nr, false, R_ENOSYS(reason), R_ENOSYS(reason))
#define NEVER_MISSING(call, nr, reason) ROW(call, nr, true, R_ENOSYS(reason), R_ENOSYS(reason))

static const struct cb_syscall table[] = {
    /* Files and descriptors */
    ALLOW("read"), ALLOW("write"), ALLOW("pread64"), ALLOW("pwrite64"), ALLOW("readv"), ALLOW("writev"),
    ALLOW("preadv"), ALLOW("pwritev"), ALLOW("preadv2"), ALLOW("pwritev2"), ALLOW("close"),
    ALLOW_NR("close_range", 436), ALLOW("lseek"), ALLOW("dup"), ALLOW("dup2"), ALLOW("dup3"), ALLOW("fcntl"),
    ALLOW("flock"), ALLOW("fsync"), ALLOW("fdatasync"), ALLOW("sync"), ALLOW("syncfs"), ALLOW("sync_file_range"),
    ALLOW("truncate"), ALLOW("ftruncate"), ALLOW("fallocate"), ALLOW("fadvise64"), ALLOW("readahead"),
    ALLOW("sendfile"), ALLOW("copy_file_range"), ALLOW("splice"), ALLOW("tee"), ALLOW("vmsplice"), ALLOW("pipe"),
    ALLOW("pipe2"), CHECK("open", open_checks), CHECK("openat", openat_checks), CHECK("creat", mode1_checks),
    NEVER_MISSING("openat2", 437, WHY_MEMORY_FLAGS), CHECK("ioctl", ioctl_checks),

    /* Paths */
    ALLOW("stat"), ALLOW("fstat"), ALLOW("lstat"), ALLOW("newfstatat"), ALLOW("statx"), ALLOW("access"),
    ALLOW("faccessat"), ALLOW_NR("faccessat2", 439), ALLOW("statfs"), ALLOW("fstatfs"), ALLOW("ustat"),
    ALLOW("getdents"), ALLOW("getdents64"), ALLOW("getcwd"), ALLOW("chdir"), ALLOW("fchdir"), ALLOW("rename"),
    ALLOW("renameat"), ALLOW("renameat2"), ALLOW("mkdir"), ALLOW("mkdirat"), ALLOW("rmdir"), ALLOW("link"),
    ALLOW("linkat"), ALLOW("unlink"), ALLOW("unlinkat"), ALLOW("symlink"), ALLOW("symlinkat"), ALLOW("readlink"),
    ALLOW("readlinkat"), ALLOW("chown"), ALLOW("fchown"), ALLOW("lchown"), ALLOW("fchownat"), ALLOW("umask"),
    ALLOW("utime"), ALLOW("utimes"), ALLOW("utimensat"), ALLOW("futimesat"), CHECK("chmod", mode1_checks),
    CHECK("fchmod", mode1_checks), CHECK("fchmodat", mode2_checks), CHECK_NR("fchmodat2", 452, mode2_checks),
    CHECK("mknod", mknod_checks), CHECK("mknodat", mknodat_checks), ALLOW("setxattr"), ALLOW("lsetxattr"),
    ALLOW("fsetxattr"), ALLOW("getxattr"), ALLOW("lgetxattr"), ALLOW("fgetxattr"), ALLOW("listxattr"),
    ALLOW("llistxattr"), ALLOW("flistxattr"), ALLOW("removexattr"), ALLOW("lremovexattr"), ALLOW("fremovexattr"),
    ALLOW_NR("setxattrat", 463), ALLOW_NR("getxattrat", 464), ALLOW_NR("listxattrat", 465),
    ALLOW_NR("removexattrat", 466), ALLOW_NR("file_getattr", 468), ALLOW_NR("cachestat", 451), ALLOW("inotify_init"),
    ALLOW("inotify_init1"), ALLOW("inotify_add_watch"), ALLOW("inotify_rm_watch"),

    /* Waiting for events */
    ALLOW("poll"), ALLOW("ppoll"), ALLOW("select"), ALLOW("pselect6"), ALLOW("epoll_create"), ALLOW("epoll_create1"),
    ALLOW("epoll_ctl"), ALLOW("epoll_wait"), ALLOW("epoll_pwait"), ALLOW_NR("epoll_pwait2", 441), ALLOW("eventfd"),
    ALLOW("eventfd2"), ALLOW("signalfd"), ALLOW("signalfd4"), ALLOW("timerfd_create"), ALLOW("timerfd_settime"),
    ALLOW("timerfd_gettime"), MISSING("io_setup", WHY_AIO), MISSING("io_destroy", WHY_AIO),
    MISSING("io_getevents", WHY_AIO), MISSING("io_pgetevents", WHY_AIO),
    MISSING("io_submit", WHY_AIO), MISSING("io_cancel", WHY_AIO),

    /* Memory */
    ALLOW("mmap"), ALLOW("munmap"), ALLOW("mprotect"), ALLOW("mremap"), ALLOW("msync"), ALLOW("mincore"),
    ALLOW("madvise"), ALLOW("brk"), ALLOW("mlock"), ALLOW("mlock2"), ALLOW("mlockall"), ALLOW("munlock"),
    ALLOW("munlockall"), ALLOW("remap_file_pages"), ALLOW("pkey_alloc"), ALLOW("pkey_free"), ALLOW("pkey_mprotect"),
    ALLOW("mbind"), ALLOW("set_mempolicy"), ALLOW("get_mempolicy"), ALLOW_NR("set_mempolicy_home_node", 450),
    ALLOW("membarrier"), ALLOW_NR("map_shadow_stack", 453), ALLOW_NR("mseal", 462), CHECK("memfd_create", memfd_checks),
    CHECK("move_pages", move_pages_checks),
    MISSING_NR("memfd_secret", 447, "takes memory away from the kernel's view; programs fall back"),
    REFUSE("migrate_pages", "moves the memory of another process"),

    /* Processes and threads */
    ROW("clone", 0, false, R_CHECK(clone_checks), R_CHECK(clone_strict_checks)),
    NEVER_MISSING("clone3", 435, WHY_MEMORY_FLAGS), NOT_STRICT("fork", WHY_STRICT_PROCESS),
    NOT_STRICT("vfork", WHY_STRICT_PROCESS), ALLOW("execve"), ALLOW("execveat"), ALLOW("exit"), ALLOW("exit_group"),
    ALLOW("wait4"), ALLOW("waitid"), ALLOW("getpid"), ALLOW("getppid"), ALLOW("gettid"), ALLOW("set_tid_address"),
    ALLOW("getpgid"), ALLOW("getpgrp"), ALLOW("setpgid"), ALLOW("getsid"), ALLOW("setsid"), ALLOW("kill"),
    ALLOW("tkill"), ALLOW("tgkill"), ALLOW_NR("pidfd_open", 434), ALLOW_NR("pidfd_send_signal", 424), ALLOW("futex"),
    ALLOW_NR("futex_waitv", 449), ALLOW_NR("futex_wake", 454), ALLOW_NR("futex_wait", 455),
    ALLOW_NR("futex_requeue", 456), ALLOW("set_robust_list"), ALLOW("get_robust_list"), ALLOW("rseq"),
    ALLOW("restart_syscall"), ALLOW("arch_prctl"), ALLOW("getcpu"),
    ROW("prctl", 0, false, R_CHECK(prctl_checks), R_CHECK(prctl_strict_checks)),
    CHECK_NOT_STRICT("personality", personality_checks, WHY_STRICT),
    CHECK_NOT_STRICT("seccomp", seccomp_checks, WHY_STRICT), ALLOW_NR("landlock_create_ruleset", 444),
    ALLOW_NR("landlock_add_rule", 445), ALLOW_NR("landlock_restrict_self", 446),
    MISSING_NR("lsm_get_self_attr", 459, WHY_UNUSED), MISSING_NR("lsm_set_self_attr", 460, WHY_UNUSED),
    MISSING_NR("lsm_list_modules", 461, WHY_UNUSED),

    /* Ids: in the user namespace of a cell there is one of each, so these change nothing */
    ALLOW("getuid"), ALLOW("geteuid"), ALLOW("getgid"), ALLOW("getegid"), ALLOW("getresuid"), ALLOW("getresgid"),
    ALLOW("getgroups"), ALLOW("setuid"), ALLOW("setgid"), ALLOW("setreuid"), ALLOW("setregid"), ALLOW("setresuid"),
    ALLOW("setresgid"), ALLOW("setfsuid"), ALLOW("setfsgid"), ALLOW("setgroups"), ALLOW("capget"), ALLOW("capset"),

    /* Scheduling, limits, usage: what would need a privilege is refused by the kernel */
    ALLOW("sched_yield"), CHECK("sched_setparam", not_init_checks), ALLOW("sched_getparam"),
    CHECK("sched_setscheduler", not_init_checks),
    ALLOW("sched_getscheduler"), ALLOW("sched_get_priority_max"), ALLOW("sched_get_priority_min"),
    ALLOW("sched_rr_get_interval"), CHECK("sched_setaffinity", not_init_checks), ALLOW("sched_getaffinity"),
    CHECK("sched_setattr", not_init_checks),
    ALLOW("sched_getattr"), ALLOW("getpriority"), CHECK("setpriority", setpriority_checks), ALLOW("ioprio_get"),
    CHECK("ioprio_set", ioprio_checks),
    ALLOW("getrlimit"), ALLOW("setrlimit"), CHECK("prlimit64", not_init_checks), ALLOW("getrusage"), ALLOW("times"),
    ALLOW("sysinfo"),
    ALLOW("uname"), ALLOW("getrandom"),

    /* Signals */
    ALLOW("rt_sigaction"), ALLOW("rt_sigprocmask"), ALLOW("rt_sigreturn"), ALLOW("rt_sigpending"),
    ALLOW("rt_sigtimedwait"), ALLOW("rt_sigqueueinfo"), ALLOW("rt_tgsigqueueinfo"), ALLOW("rt_sigsuspend"),
    ALLOW("sigaltstack"), ALLOW("pause"),

    /* Time */
    ALLOW("time"), ALLOW("gettimeofday"), ALLOW("clock_gettime"), ALLOW("clock_getres"), ALLOW("nanosleep"),
    ALLOW("clock_nanosleep"), ALLOW("alarm"), ALLOW("getitimer"), ALLOW("setitimer"), ALLOW("timer_create"),
    ALLOW("timer_settime"), ALLOW("timer_gettime"), ALLOW("timer_getoverrun"), ALLOW("timer_delete"),
    NEVER("settimeofday", WHY_CLOCK), NEVER("clock_settime", WHY_CLOCK), REFUSE("adjtimex", WHY_CLOCK),
    REFUSE("clock_adjtime", WHY_CLOCK),

    /* Sockets. Strict: pairs only, which event loops use to wake themselves */
    CHECK_NOT_STRICT("socket", socket_checks, WHY_STRICT_SOCKET), CHECK("socketpair", socketpair_checks),
    NOT_STRICT("connect", WHY_STRICT_SOCKET), NOT_STRICT("bind", WHY_STRICT_SOCKET),
    NOT_STRICT("listen", WHY_STRICT_SOCKET), NOT_STRICT("accept", WHY_STRICT_SOCKET),
    NOT_STRICT("accept4", WHY_STRICT_SOCKET), CHECK("sendto", sendto_checks), CHECK("sendmsg", sendmsg_checks),
    CHECK("sendmmsg", sendto_checks), ALLOW("recvfrom"), ALLOW("recvmsg"), ALLOW("recvmmsg"), ALLOW("shutdown"),
    ALLOW("getsockname"), ALLOW("getpeername"), ALLOW("setsockopt"), ALLOW("getsockopt"),

    /* System V and POSIX message queues, semaphores, shared memory: private to the cell by its ipc namespace */
    NOT_STRICT("shmget", WHY_STRICT_IPC), NOT_STRICT("shmat", WHY_STRICT_IPC), NOT_STRICT("shmdt", WHY_STRICT_IPC),
    NOT_STRICT("shmctl", WHY_STRICT_IPC), NOT_STRICT("semget", WHY_STRICT_IPC), NOT_STRICT("semop", WHY_STRICT_IPC),
    NOT_STRICT("semtimedop", WHY_STRICT_IPC), NOT_STRICT("semctl", WHY_STRICT_IPC),
    NOT_STRICT("msgget", WHY_STRICT_IPC), NOT_STRICT("msgsnd", WHY_STRICT_IPC), NOT_STRICT("msgrcv", WHY_STRICT_IPC),
    NOT_STRICT("msgctl", WHY_STRICT_IPC), NOT_STRICT("mq_open", WHY_STRICT_IPC),
    NOT_STRICT("mq_unlink", WHY_STRICT_IPC), NOT_STRICT("mq_timedsend", WHY_STRICT_IPC),
    NOT_STRICT("mq_timedreceive", WHY_STRICT_IPC), NOT_STRICT("mq_notify", WHY_STRICT_IPC),
    NOT_STRICT("mq_getsetattr", WHY_STRICT_IPC),

    /* Namespaces and mounts */
    NEVER("unshare", WHY_NAMESPACE), NEVER("setns", WHY_NAMESPACE), NEVER("chroot", WHY_MOUNT),
    NEVER("pivot_root", WHY_MOUNT), NEVER("mount", WHY_MOUNT), NEVER("umount2", WHY_MOUNT),
    NEVER_NR("fsopen", 430, WHY_MOUNT), NEVER_NR("fsconfig", 431, WHY_MOUNT), NEVER_NR("fsmount", 432, WHY_MOUNT),
    NEVER_NR("fspick", 433, WHY_MOUNT), NEVER_NR("open_tree", 428, WHY_MOUNT), NEVER_NR("move_mount", 429, WHY_MOUNT),
    NEVER_NR("mount_setattr", 442, WHY_MOUNT), NEVER_NR("open_tree_attr", 467, WHY_MOUNT),
    MISSING_NR("statmount", 457, WHY_UNUSED), MISSING_NR("listmount", 458, WHY_UNUSED),
    MISSING_NR("listns", 470, WHY_UNUSED), MISSING_NR("file_setattr", 469, WHY_UNUSED),

    /* Ways round the filter or the path rules, and other processes */
    NEVER_NR("io_uring_setup", 425, WHY_IO_URING), NEVER_NR("io_uring_enter", 426, WHY_IO_URING),
    NEVER_NR("io_uring_register", 427, WHY_IO_URING), NEVER("open_by_handle_at", WHY_HANDLE),
    REFUSE("name_to_handle_at", WHY_HANDLE), REFUSE("ptrace", WHY_TRACE), REFUSE("process_vm_readv", WHY_TRACE),
    REFUSE("process_vm_writev", WHY_TRACE), NEVER_NR("pidfd_getfd", 438, WHY_TRACE), REFUSE("kcmp", WHY_TRACE),
    REFUSE_NR("process_madvise", 440, WHY_TRACE), REFUSE_NR("process_mrelease", 448, WHY_TRACE),

    /* Kernel surface */
    NEVER("bpf", WHY_SURFACE), NEVER("userfaultfd", WHY_SURFACE), NEVER("perf_event_open", WHY_OBSERVE),
    NEVER("add_key", WHY_KEYS), NEVER("request_key", WHY_KEYS), NEVER("keyctl", WHY_KEYS),
    REFUSE("fanotify_init", WHY_OBSERVE), REFUSE("fanotify_mark", WHY_OBSERVE), REFUSE("lookup_dcookie", WHY_OBSERVE),
    REFUSE("syslog", WHY_OBSERVE),
    REFUSE("modify_ldt", "changes segment tables, which attacks have used; Wine needs it"),
    MISSING("uretprobe", WHY_UNUSED), MISSING("uprobe", WHY_UNUSED),

    /* The machine */
    NEVER("kexec_load", WHY_KERNEL), NEVER("kexec_file_load", WHY_KERNEL), NEVER("reboot", WHY_KERNEL),
    NEVER("init_module", WHY_MODULES), NEVER("finit_module", WHY_MODULES), NEVER("delete_module", WHY_MODULES),
    NEVER("create_module", WHY_MODULES), NEVER("query_module", WHY_MODULES), NEVER("get_kernel_syms", WHY_MODULES),
    NEVER("swapon", WHY_MACHINE), NEVER("swapoff", WHY_MACHINE), NEVER("acct", WHY_MACHINE),
    NEVER("quotactl", WHY_MACHINE), NEVER_NR("quotactl_fd", 443, WHY_MACHINE), NEVER("sethostname", WHY_MACHINE),
    NEVER("setdomainname", WHY_MACHINE), NEVER("vhangup", WHY_MACHINE), NEVER("nfsservctl", WHY_MACHINE),
    NEVER("iopl", WHY_PORTS), NEVER("ioperm", WHY_PORTS),

    /* Left-overs of old kernels */
    MISSING("_sysctl", WHY_GONE), MISSING("sysfs", WHY_UNUSED), MISSING("uselib", WHY_GONE),
    MISSING("afs_syscall", WHY_GONE), MISSING("tuxcall", WHY_GONE), MISSING("security", WHY_GONE),
    MISSING("vserver", WHY_GONE), MISSING("getpmsg", WHY_GONE), MISSING("putpmsg", WHY_GONE),
    MISSING("epoll_ctl_old", WHY_GONE), MISSING("epoll_wait_old", WHY_GONE), MISSING("get_thread_area", WHY_GONE),
    MISSING("set_thread_area", WHY_GONE),
};

const struct cb_syscall *cb_syscall_table(size_t *count)
{
    *count = sizeof table / sizeof *table;
    return table;
}

const struct cb_syscall *cb_syscall_find(const char *name)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (strcmp(table[i].name, name) == 0)
            return &table[i];
    return NULL;
}

struct cb_syscall_rule cb_syscall_rule_for(const struct cb_syscall *row, enum cb_syscall_profile profile, int custom)
{
    if (custom < 0)
        return (struct cb_syscall_rule){.verdict = CB_SYSCALL_EPERM, .why = "denied by the policy"};
    if (custom == 0 || row->never)
        return row->rules[profile];
    struct cb_syscall_rule wider = row->rules[CB_SYSCALLS_DEFAULT];
    if (wider.verdict == CB_SYSCALL_ALLOW || wider.verdict == CB_SYSCALL_CHECK)
        return wider; /* what only the strict profile refuses comes back with the checks of the default one */
    return (struct cb_syscall_rule){.verdict = CB_SYSCALL_ALLOW};
}
