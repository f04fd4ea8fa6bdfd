/* What headers older than the kernel lack: constants, system call numbers, structures and thin wrappers.
 *
 * The system's headers come first and win; each constant is then given only where it is still absent, so the file can
 * stand before or after any other include. Structures, and constants that the kernel declares in an enum (which #ifndef
 * can't see), carry a cb_ or CB_ prefix: they never collide with headers that know them. Wrappers return what
 * the system call returns: -1 and errno on failure. All are plain system calls, so they are safe after a clone. */
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/seccomp.h>

#ifdef __has_include
#if __has_include(<linux/landlock.h>)
#include <linux/landlock.h>
#endif
#endif

/* ---- System call numbers: the same on every architecture since 5.1 (but for alpha and mips) ---- */

#ifndef SYS_pidfd_send_signal
#define SYS_pidfd_send_signal 424
#endif
#ifndef SYS_open_tree
#define SYS_open_tree 428
#endif
#ifndef SYS_move_mount
#define SYS_move_mount 429
#endif
#ifndef SYS_fsopen
#define SYS_fsopen 430
#endif
#ifndef SYS_fsconfig
#define SYS_fsconfig 431
#endif
#ifndef SYS_fsmount
#define SYS_fsmount 432
#endif
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_clone3
#define SYS_clone3 435
#endif
#ifndef SYS_close_range
#define SYS_close_range 436
#endif
#ifndef SYS_openat2
#define SYS_openat2 437
#endif
#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif
#ifndef SYS_mount_setattr
#define SYS_mount_setattr 442
#endif
#ifndef SYS_landlock_create_ruleset
#define SYS_landlock_create_ruleset 444
#endif
#ifndef SYS_landlock_add_rule
#define SYS_landlock_add_rule 445
#endif
#ifndef SYS_landlock_restrict_self
#define SYS_landlock_restrict_self 446
#endif

/* ---- Processes ---- */

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x00000080
#endif
#ifndef CLONE_PIDFD
#define CLONE_PIDFD 0x00001000
#endif
#ifndef CLONE_NEWCGROUP
#define CLONE_NEWCGROUP 0x02000000
#endif
#ifndef CLONE_CLEAR_SIGHAND
#define CLONE_CLEAR_SIGHAND 0x100000000ULL
#endif
#ifndef CLONE_INTO_CGROUP
#define CLONE_INTO_CGROUP 0x200000000ULL
#endif

#define CB_P_PIDFD ((idtype_t)3) /* P_PIDFD, for waitid */

#ifndef PIDFD_NONBLOCK
#define PIDFD_NONBLOCK O_NONBLOCK
#endif

#ifndef CLOSE_RANGE_UNSHARE
#define CLOSE_RANGE_UNSHARE (1U << 1)
#endif
#ifndef CLOSE_RANGE_CLOEXEC
#define CLOSE_RANGE_CLOEXEC (1U << 2)
#endif

struct cb_clone_args {
    uint64_t flags;
    uint64_t pidfd;        /* int * */
    uint64_t child_tid;    /* pid_t * */
    uint64_t parent_tid;   /* pid_t * */
    uint64_t exit_signal;
    uint64_t stack;        /* lowest byte */
    uint64_t stack_size;
    uint64_t tls;
    uint64_t set_tid;      /* since 5.5 */
    uint64_t set_tid_size;
    uint64_t cgroup;       /* a descriptor, with CLONE_INTO_CGROUP; since 5.7 */
};
_Static_assert(sizeof(struct cb_clone_args) == 88, "struct clone_args as the kernel has it");

/* ---- prctl ---- */

#ifndef PR_SET_NO_NEW_PRIVS
#define PR_SET_NO_NEW_PRIVS 38
#define PR_GET_NO_NEW_PRIVS 39
#endif
#ifndef PR_CAP_AMBIENT
#define PR_CAP_AMBIENT 47
#endif
#ifndef PR_CAP_AMBIENT_CLEAR_ALL
#define PR_CAP_AMBIENT_CLEAR_ALL 4
#endif
#ifndef PR_SET_SPECULATION_CTRL
#define PR_SET_SPECULATION_CTRL 53
#endif
#ifndef PR_SET_MDWE
#define PR_SET_MDWE 65
#endif
#ifndef PR_MDWE_REFUSE_EXEC_GAIN
#define PR_MDWE_REFUSE_EXEC_GAIN 1
#endif

/* ---- Files ---- */

#ifndef AT_EMPTY_PATH
#define AT_EMPTY_PATH 0x1000
#endif
#ifndef AT_RECURSIVE
#define AT_RECURSIVE 0x8000
#endif

#ifndef RESOLVE_NO_XDEV
#define RESOLVE_NO_XDEV 0x01
#endif
#ifndef RESOLVE_NO_MAGICLINKS
#define RESOLVE_NO_MAGICLINKS 0x02
#endif
#ifndef RESOLVE_NO_SYMLINKS
#define RESOLVE_NO_SYMLINKS 0x04
#endif
#ifndef RESOLVE_BENEATH
#define RESOLVE_BENEATH 0x08
#endif
#ifndef RESOLVE_IN_ROOT
#define RESOLVE_IN_ROOT 0x10
#endif
#ifndef RESOLVE_CACHED
#define RESOLVE_CACHED 0x20
#endif

struct cb_open_how {
    uint64_t flags;
    uint64_t mode;
    uint64_t resolve;
};

#ifndef MFD_CLOEXEC
#define MFD_CLOEXEC 0x0001U
#endif
#ifndef MFD_ALLOW_SEALING
#define MFD_ALLOW_SEALING 0x0002U
#endif
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif
#ifndef MFD_EXEC
#define MFD_EXEC 0x0010U
#endif
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif
#ifndef F_SEAL_EXEC
#define F_SEAL_EXEC 0x0020
#endif

/* ---- Mounts ---- */

#ifndef OPEN_TREE_CLONE
#define OPEN_TREE_CLONE 1
#endif
#ifndef OPEN_TREE_CLOEXEC
#define OPEN_TREE_CLOEXEC O_CLOEXEC
#endif

#ifndef MOVE_MOUNT_F_SYMLINKS
#define MOVE_MOUNT_F_SYMLINKS 0x00000001
#endif
#ifndef MOVE_MOUNT_F_AUTOMOUNTS
#define MOVE_MOUNT_F_AUTOMOUNTS 0x00000002
#endif
#ifndef MOVE_MOUNT_F_EMPTY_PATH
#define MOVE_MOUNT_F_EMPTY_PATH 0x00000004
#endif
#ifndef MOVE_MOUNT_T_SYMLINKS
#define MOVE_MOUNT_T_SYMLINKS 0x00000010
#endif
#ifndef MOVE_MOUNT_T_AUTOMOUNTS
#define MOVE_MOUNT_T_AUTOMOUNTS 0x00000020
#endif
#ifndef MOVE_MOUNT_T_EMPTY_PATH
#define MOVE_MOUNT_T_EMPTY_PATH 0x00000040
#endif
#ifndef MOVE_MOUNT_BENEATH
#define MOVE_MOUNT_BENEATH 0x00000200
#endif

#ifndef FSOPEN_CLOEXEC
#define FSOPEN_CLOEXEC 0x00000001
#endif
#ifndef FSMOUNT_CLOEXEC
#define FSMOUNT_CLOEXEC 0x00000001
#endif

#define CB_FSCONFIG_SET_FLAG 0
#define CB_FSCONFIG_SET_STRING 1
#define CB_FSCONFIG_SET_BINARY 2
#define CB_FSCONFIG_SET_PATH 3
#define CB_FSCONFIG_SET_PATH_EMPTY 4
#define CB_FSCONFIG_SET_FD 5
#define CB_FSCONFIG_CMD_CREATE 6
#define CB_FSCONFIG_CMD_RECONFIGURE 7
#define CB_FSCONFIG_CMD_CREATE_EXCL 8

#ifndef MOUNT_ATTR_RDONLY
#define MOUNT_ATTR_RDONLY 0x00000001
#endif
#ifndef MOUNT_ATTR_NOSUID
#define MOUNT_ATTR_NOSUID 0x00000002
#endif
#ifndef MOUNT_ATTR_NODEV
#define MOUNT_ATTR_NODEV 0x00000004
#endif
#ifndef MOUNT_ATTR_NOEXEC
#define MOUNT_ATTR_NOEXEC 0x00000008
#endif
#ifndef MOUNT_ATTR__ATIME
#define MOUNT_ATTR__ATIME 0x00000070
#endif
#ifndef MOUNT_ATTR_RELATIME
#define MOUNT_ATTR_RELATIME 0x00000000
#endif
#ifndef MOUNT_ATTR_NOATIME
#define MOUNT_ATTR_NOATIME 0x00000010
#endif
#ifndef MOUNT_ATTR_STRICTATIME
#define MOUNT_ATTR_STRICTATIME 0x00000020
#endif
#ifndef MOUNT_ATTR_NODIRATIME
#define MOUNT_ATTR_NODIRATIME 0x00000080
#endif
#ifndef MOUNT_ATTR_IDMAP
#define MOUNT_ATTR_IDMAP 0x00100000
#endif
#ifndef MOUNT_ATTR_NOSYMFOLLOW
#define MOUNT_ATTR_NOSYMFOLLOW 0x00200000
#endif

struct cb_mount_attr {
    uint64_t attr_set;
    uint64_t attr_clr;
    uint64_t propagation;  /* MS_PRIVATE, MS_SLAVE, … or 0 */
    uint64_t userns_fd;    /* with MOUNT_ATTR_IDMAP */
};

/* ---- Landlock: the bits by the ABI that brought them ---- */

#ifndef LANDLOCK_CREATE_RULESET_VERSION
#define LANDLOCK_CREATE_RULESET_VERSION (1U << 0)
#endif
#ifndef LANDLOCK_CREATE_RULESET_ERRATA
#define LANDLOCK_CREATE_RULESET_ERRATA (1U << 1)
#endif

#ifndef LANDLOCK_ACCESS_FS_EXECUTE /* ABI 1, Linux 5.13 */
#define LANDLOCK_ACCESS_FS_EXECUTE (1ULL << 0)
#define LANDLOCK_ACCESS_FS_WRITE_FILE (1ULL << 1)
#define LANDLOCK_ACCESS_FS_READ_FILE (1ULL << 2)
#define LANDLOCK_ACCESS_FS_READ_DIR (1ULL << 3)
#define LANDLOCK_ACCESS_FS_REMOVE_DIR (1ULL << 4)
#define LANDLOCK_ACCESS_FS_REMOVE_FILE (1ULL << 5)
#define LANDLOCK_ACCESS_FS_MAKE_CHAR (1ULL << 6)
#define LANDLOCK_ACCESS_FS_MAKE_DIR (1ULL << 7)
#define LANDLOCK_ACCESS_FS_MAKE_REG (1ULL << 8)
#define LANDLOCK_ACCESS_FS_MAKE_SOCK (1ULL << 9)
#define LANDLOCK_ACCESS_FS_MAKE_FIFO (1ULL << 10)
#define LANDLOCK_ACCESS_FS_MAKE_BLOCK (1ULL << 11)
#define LANDLOCK_ACCESS_FS_MAKE_SYM (1ULL << 12)
#endif
#ifndef LANDLOCK_ACCESS_FS_REFER /* ABI 2, Linux 5.19 */
#define LANDLOCK_ACCESS_FS_REFER (1ULL << 13)
#endif
#ifndef LANDLOCK_ACCESS_FS_TRUNCATE /* ABI 3, Linux 6.2 */
#define LANDLOCK_ACCESS_FS_TRUNCATE (1ULL << 14)
#endif
#ifndef LANDLOCK_ACCESS_NET_BIND_TCP /* ABI 4, Linux 6.7 */
#define LANDLOCK_ACCESS_NET_BIND_TCP (1ULL << 0)
#endif
#ifndef LANDLOCK_ACCESS_NET_CONNECT_TCP
#define LANDLOCK_ACCESS_NET_CONNECT_TCP (1ULL << 1)
#endif
#ifndef LANDLOCK_ACCESS_FS_IOCTL_DEV /* ABI 5, Linux 6.10 */
#define LANDLOCK_ACCESS_FS_IOCTL_DEV (1ULL << 15)
#endif
#ifndef LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET /* ABI 6, Linux 6.12 */
#define LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET (1ULL << 0)
#endif
#ifndef LANDLOCK_SCOPE_SIGNAL
#define LANDLOCK_SCOPE_SIGNAL (1ULL << 1)
#endif
#ifndef LANDLOCK_RESTRICT_SELF_LOG_SAME_EXEC_OFF /* ABI 7, Linux 6.15 */
#define LANDLOCK_RESTRICT_SELF_LOG_SAME_EXEC_OFF (1U << 0)
#endif
#ifndef LANDLOCK_RESTRICT_SELF_LOG_NEW_EXEC_ON
#define LANDLOCK_RESTRICT_SELF_LOG_NEW_EXEC_ON (1U << 1)
#endif
#ifndef LANDLOCK_RESTRICT_SELF_LOG_SUBDOMAINS_OFF
#define LANDLOCK_RESTRICT_SELF_LOG_SUBDOMAINS_OFF (1U << 2)
#endif
#ifndef LANDLOCK_RESTRICT_SELF_TSYNC /* ABI 8, Linux 7.0 */
#define LANDLOCK_RESTRICT_SELF_TSYNC (1U << 3)
#endif
#ifndef LANDLOCK_ACCESS_FS_RESOLVE_UNIX /* ABI 9, Linux 7.1 */
#define LANDLOCK_ACCESS_FS_RESOLVE_UNIX (1ULL << 16)
#endif

#define CB_LANDLOCK_RULE_PATH_BENEATH 1
#define CB_LANDLOCK_RULE_NET_PORT 2

#define CB_SYS_FCHMODAT2 452     /* Linux 6.6 */
#define CB_SYS_SETXATTRAT 463    /* Linux 6.13 */
#define CB_SYS_GETXATTRAT 464    /* Linux 6.13 */
#define CB_SYS_LISTXATTRAT 465   /* Linux 6.13 */
#define CB_SYS_REMOVEXATTRAT 466 /* Linux 6.13 */

struct cb_landlock_ruleset_attr {
    uint64_t handled_access_fs;
    uint64_t handled_access_net;  /* ABI 4 */
    uint64_t scoped;              /* ABI 6 */
};

struct cb_landlock_path_beneath_attr {
    uint64_t allowed_access;
    int32_t parent_fd;
} __attribute__((packed));

struct cb_landlock_net_port_attr {
    uint64_t allowed_access;
    uint64_t port;
};

/* ---- seccomp ---- */

#ifndef SECCOMP_GET_NOTIF_SIZES
#define SECCOMP_GET_NOTIF_SIZES 3
#endif
#ifndef SECCOMP_FILTER_FLAG_SPEC_ALLOW
#define SECCOMP_FILTER_FLAG_SPEC_ALLOW (1UL << 2)
#endif
#ifndef SECCOMP_FILTER_FLAG_NEW_LISTENER
#define SECCOMP_FILTER_FLAG_NEW_LISTENER (1UL << 3)
#endif
#ifndef SECCOMP_FILTER_FLAG_TSYNC_ESRCH
#define SECCOMP_FILTER_FLAG_TSYNC_ESRCH (1UL << 4)
#endif
#ifndef SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
#define SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV (1UL << 5)
#endif
#ifndef SECCOMP_RET_USER_NOTIF
#define SECCOMP_RET_USER_NOTIF 0x7fc00000U
#endif
#ifndef SECCOMP_USER_NOTIF_FLAG_CONTINUE
#define SECCOMP_USER_NOTIF_FLAG_CONTINUE (1UL << 0)
#endif
#ifndef SECCOMP_ADDFD_FLAG_SETFD
#define SECCOMP_ADDFD_FLAG_SETFD (1UL << 0)
#endif
#ifndef SECCOMP_ADDFD_FLAG_SEND
#define SECCOMP_ADDFD_FLAG_SEND (1UL << 1)
#endif

/* The kernel may know longer ones: ask SECCOMP_GET_NOTIF_SIZES before receiving. */
struct cb_seccomp_notif_sizes {
    uint16_t notif;
    uint16_t response;
    uint16_t data;
};

struct cb_seccomp_notif {
    uint64_t id;
    uint32_t pid;
    uint32_t flags;
    struct seccomp_data data;
};

struct cb_seccomp_notif_resp {
    uint64_t id;
    int64_t val;
    int32_t error;  /* a negative errno, or 0 */
    uint32_t flags;
};

struct cb_seccomp_notif_addfd {
    uint64_t id;
    uint32_t flags;
    uint32_t srcfd;
    uint32_t newfd;
    uint32_t newfd_flags;
};

#define CB_SECCOMP_IOCTL_NOTIF_RECV _IOWR('!', 0, struct cb_seccomp_notif)
#define CB_SECCOMP_IOCTL_NOTIF_SET_FLAGS SECCOMP_IOW(4, uint64_t) /* Linux 6.6 */
#define CB_SECCOMP_FD_SYNC_WAKE_UP 1UL
#define CB_SECCOMP_IOCTL_NOTIF_SEND _IOWR('!', 1, struct cb_seccomp_notif_resp)
#define CB_SECCOMP_IOCTL_NOTIF_ID_VALID _IOW('!', 2, uint64_t)
#define CB_SECCOMP_IOCTL_NOTIF_ADDFD _IOW('!', 3, struct cb_seccomp_notif_addfd)

/* ---- Wrappers ---- */

static inline int cb_sys_openat2(int dir, const char *path, const struct cb_open_how *how)
{
    return (int)syscall(SYS_openat2, dir, path, how, sizeof *how);
}

static inline int cb_sys_open_tree(int dir, const char *path, unsigned flags)
{
    return (int)syscall(SYS_open_tree, dir, path, flags);
}

static inline int cb_sys_move_mount(int from_dir, const char *from, int to_dir, const char *to, unsigned flags)
{
    return (int)syscall(SYS_move_mount, from_dir, from, to_dir, to, flags);
}

static inline int cb_sys_fsopen(const char *type, unsigned flags)
{
    return (int)syscall(SYS_fsopen, type, flags);
}

static inline int cb_sys_fsconfig(int fd, unsigned command, const char *key, const void *value, int aux)
{
    return (int)syscall(SYS_fsconfig, fd, command, key, value, aux);
}

static inline int cb_sys_fsmount(int fd, unsigned flags, unsigned attributes)
{
    return (int)syscall(SYS_fsmount, fd, flags, attributes);
}

static inline int cb_sys_mount_setattr(int dir, const char *path, unsigned flags, const struct cb_mount_attr *attr)
{
    return (int)syscall(SYS_mount_setattr, dir, path, flags, attr, sizeof *attr);
}

/* Returns twice, like fork, unless `args` gives the child a stack: then the caller must be written for that. */
static inline pid_t cb_sys_clone3(const struct cb_clone_args *args, size_t size)
{
    return (pid_t)syscall(SYS_clone3, args, size);
}

/* A child without an exit signal, and its pidfd. By clone3, or by clone where a filter hides the former because it can't
 * see its flags: then handlers of signals are copied, and `cgroup` (-1: none) is left to be entered. */
static inline pid_t cb_sys_clone_pidfd(uint64_t flags, int *pidfd, int cgroup)
{
    struct cb_clone_args args = {.flags = flags | CLONE_PIDFD | CLONE_CLEAR_SIGHAND,
                                 .pidfd = (uint64_t)(uintptr_t)pidfd};
    if (cgroup >= 0) {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = (uint64_t)cgroup;
    }
    pid_t pid = cb_sys_clone3(&args, sizeof args);
    if (pid >= 0 || (errno != ENOSYS && errno != EPERM && errno != EACCES))
        return pid;
    return (pid_t)syscall(SYS_clone, flags | CLONE_PIDFD, 0, pidfd, 0, 0);
}

static inline int cb_sys_pidfd_open(pid_t pid, unsigned flags)
{
    return (int)syscall(SYS_pidfd_open, pid, flags);
}

static inline int cb_sys_pidfd_send_signal(int pidfd, int signal, siginfo_t *info, unsigned flags)
{
    return (int)syscall(SYS_pidfd_send_signal, pidfd, signal, info, flags);
}

static inline int cb_sys_pidfd_getfd(int pidfd, int target, unsigned flags)
{
    return (int)syscall(SYS_pidfd_getfd, pidfd, target, flags);
}

static inline int cb_sys_close_range(unsigned first, unsigned last, unsigned flags)
{
    return (int)syscall(SYS_close_range, first, last, flags);
}

/* The size is explicit: kernels refuse a longer structure only when the part that they don't know is not zero. */
static inline int cb_sys_landlock_create_ruleset(const struct cb_landlock_ruleset_attr *attr, size_t size,
                                                 unsigned flags)
{
    return (int)syscall(SYS_landlock_create_ruleset, attr, size, flags);
}

static inline int cb_sys_landlock_add_rule(int ruleset, unsigned type, const void *attr, unsigned flags)
{
    return (int)syscall(SYS_landlock_add_rule, ruleset, type, attr, flags);
}

static inline int cb_sys_landlock_restrict_self(int ruleset, unsigned flags)
{
    return (int)syscall(SYS_landlock_restrict_self, ruleset, flags);
}

static inline int cb_sys_seccomp(unsigned operation, unsigned flags, void *arguments)
{
    return (int)syscall(SYS_seccomp, operation, flags, arguments);
}

static inline int cb_sys_pivot_root(const char *new_root, const char *put_old)
{
    return (int)syscall(SYS_pivot_root, new_root, put_old);
}
