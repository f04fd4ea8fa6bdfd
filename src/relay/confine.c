/* What a relay gives up before it holds a socket of the cell. It reads bytes that the code chose; if a fault in that
 * were ever found, this is what is left to whoever found it: connections from the host, as before, and nothing of the
 * host's files, processes or other programs.
 *
 *   id          called by root: an id that nobody uses, and no groups
 *   privileges  no_new_privs, no capabilities, no core files, not to be traced by its own kind
 *   Landlock    of all files, the host's list of names may be read; no signals and abstract sockets of others
 *   seccomp     the calls that a relay makes; of sockets, only those of the internet */
#include "relay/relay.h"

#include "base/cleanup.h"
#include "base/missing.h"
#include "host/host.h"
#include "host/landlock.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#if defined(__x86_64__)
#define ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#endif

static int become(unsigned uid, unsigned gid)
{
    if (uid == 0)
        return 0;
    return setgroups(0, NULL) < 0 || setresgid(gid, gid, gid) < 0 || setresuid(uid, uid, uid) < 0 ? -1 : 0;
}

static int drop_privileges(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    const struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {0};
    const struct rlimit zero = {0};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || syscall(SYS_capset, &header, none) < 0 ||
                   setrlimit(RLIMIT_CORE, &zero) < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0
               ? -1
               : 0;
}

/* Without Landlock there is no cell either, unless its policy accepts that. */
static int leave_files(void)
{
    int abi = cb_host_landlock_abi();
    if (abi == 0)
        return 0;
    size_t size;
    struct cb_landlock_ruleset_attr all = cb_landlock_handled(abi, &size);
    all.handled_access_net = 0; /* ports may come with rules that are added later */
    all.handled_access_fs &= ~(uint64_t)LANDLOCK_ACCESS_FS_RESOLVE_UNIX; /* those that rules grant, in tier landlock */
    cb_autofd int ruleset = cb_sys_landlock_create_ruleset(&all, size, 0);
    if (ruleset < 0)
        return -1;
    cb_autofd int hosts = open("/etc/hosts", O_PATH | O_CLOEXEC);
    struct cb_landlock_path_beneath_attr rule = {.allowed_access = LANDLOCK_ACCESS_FS_READ_FILE, .parent_fd = hosts};
    if (hosts >= 0 && cb_sys_landlock_add_rule(ruleset, CB_LANDLOCK_RULE_PATH_BENEATH, &rule, 0) < 0)
        return -1;
    return cb_sys_landlock_restrict_self(ruleset, 0);
}

static const unsigned calls[] = {
    /* carrying */
    SYS_epoll_ctl, SYS_epoll_pwait, SYS_splice, SYS_read, SYS_write, SYS_readv, SYS_writev, SYS_recvfrom, SYS_recvmsg,
    SYS_sendto, SYS_sendmsg, SYS_sendmmsg, SYS_recvmmsg, SYS_accept4, SYS_connect, SYS_shutdown, SYS_getsockname,
    SYS_getpeername, SYS_setsockopt, SYS_getsockopt, SYS_bind, SYS_pipe2, SYS_fcntl, SYS_close,
    /* memory, time and chance */
    SYS_brk, SYS_mmap, SYS_munmap, SYS_mremap, SYS_mprotect, SYS_madvise, SYS_futex, SYS_clock_gettime,
    SYS_clock_nanosleep, SYS_gettimeofday, SYS_getrandom,
    /* the list of names; where Landlock lets it */
    SYS_openat, SYS_newfstatat, SYS_fstat, SYS_lseek, SYS_pread64, SYS_ioctl,
    /* ending */
    SYS_exit_group, SYS_exit, SYS_rt_sigreturn, SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_restart_syscall, SYS_getpid,
    SYS_gettid,
#ifdef SYS_epoll_wait
    SYS_epoll_wait, SYS_open, SYS_poll, SYS_time, SYS_stat,
#endif
    SYS_ppoll,
};

static int filter_calls(void)
{
    enum { COUNT = sizeof calls / sizeof *calls };
    struct sock_filter code[2 * COUNT + 16], *next = code;
#define EMIT(...) *next++ = (struct sock_filter)__VA_ARGS__
    EMIT(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)));
    EMIT(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCHITECTURE, 1, 0));
    EMIT(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS));
    EMIT(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)));
    for (size_t i = 0; i < COUNT; i++) {
        EMIT(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, calls[i], 0, 1));
        EMIT(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    }
    EMIT(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 4));
    EMIT(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args)));
    EMIT(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_INET, 1, 0));
    EMIT(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_INET6, 0, 1));
    EMIT(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    EMIT(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM));
#undef EMIT
    struct sock_fprog program = {.len = (unsigned short)(next - code), .filter = code};
    return cb_sys_seccomp(SECCOMP_SET_MODE_FILTER, 0, &program);
}

int cb_relay_confine(unsigned uid, unsigned gid, const char **step)
{
    if (chdir("/") < 0 || become(uid, gid) < 0)
        *step = "becoming an unprivileged id";
    else if (drop_privileges() < 0)
        *step = "dropping privileges";
    else if (leave_files() < 0)
        *step = "applying Landlock";
    else if (filter_calls() < 0)
        *step = "applying its system call filter";
    else
        return 0;
    return -1;
}
