/* Which system calls get through? Makes each named call with pointers, descriptors and sizes that can't work, so that
 * nothing happens even where it is allowed, and says who answered:
 *
 *     probe_syscalls [--nofork] NAME…        probe_syscalls --list
 *
 *     mount blocked EPERM       refused before the kernel looked at the arguments
 *     mount reached EFAULT      the kernel looked at them: the call got through ("reached OK" if it even worked)
 *     int80-getpid killed SIGSYS
 *     iopl absent               this architecture has no such call
 *
 * A kernel, too, says EPERM to a caller without privileges, and some before they look at any pointer: run it as root
 * without a cell to see the call get through, then in the cell. For sockets, "blocked" includes the answers of a kernel
 * that lacks the family or protocol, since those are what the filter gives. Each call is made in a child of its own
 * (--nofork: in this process, for cells that allow no processes; a kill then ends the probe). Can be linked
 * statically. Exit status: 0, or 2 for a name that it does not know. */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define ABSENT (-2)
#define BAD 1ul                /* a pointer that faults */
#define NOFD 0xfffffffful      /* a descriptor that is not there */
#define HIGH 0x100000000ul

enum answers { PLAIN, SOCKET };

struct probe {
    const char *name;
    long number;
    unsigned long args[6];
    enum answers answers;
    long (*special)(void);     /* instead of number and args */
};

/* A fork that is made by hand ends at once in its child. */
static long clone_with(unsigned long flags)
{
    long pid = syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0);
    if (pid == 0)
        _exit(0);
    if (pid > 0)
        waitpid((pid_t)pid, NULL, 0);
    return pid > 0 ? 0 : pid;
}

static long clone_plain(void)
{
    return clone_with(0);
}

static long clone_newuser(void)
{
    return clone_with(CLONE_NEWUSER);
}

static long clone_newns(void)
{
    return clone_with(CLONE_NEWNS);
}

static long clone_newnet(void)
{
    return clone_with(CLONE_NEWNET);
}

static long clone_newuser_high(void)
{
    return clone_with(CLONE_NEWUSER | HIGH);
}

#ifdef __x86_64__
/* getpid by the 32-bit entry: number 20 there. Such a call returns its error in the register, not in errno. */
static long int80_getpid(void)
{
    long result;
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(20L) : "memory", "r8", "r9", "r10", "r11");
    if (result < 0) {
        errno = (int)-result;
        return -1;
    }
    return result;
}

static long x32_getpid(void)
{
    return syscall(0x40000000L + SYS_getpid);
}
#else
static long int80_getpid(void)
{
    return ABSENT;
}

static long x32_getpid(void)
{
    return ABSENT;
}
#endif

/* A filter that a program may want, and with a listener, which it may not have. Both allow everything. */
static long install_filter(unsigned flags)
{
    struct sock_filter allow[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_fprog program = {.len = 1, .filter = allow};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
}

static long seccomp_filter(void)
{
    return install_filter(0);
}

static long seccomp_listener(void)
{
    return install_filter(SECCOMP_FILTER_FLAG_NEW_LISTENER);
}

#define CALL(nr, ...) .number = (nr), .args = {__VA_ARGS__}
#define ANY BAD, BAD, BAD, BAD, BAD, BAD
#define NOFDS NOFD, BAD, NOFD, BAD, 0, 0
#define NO_SUCH_FILE ((unsigned long)(uintptr_t)"/nonexistent/probe")

#ifdef SYS_chmod
#define NR_CHMOD SYS_chmod
#define NR_OPEN SYS_open
#define NR_CREAT SYS_creat
#define NR_MKNOD SYS_mknod
#define NR_IOPL SYS_iopl
#define NR_IOPERM SYS_ioperm
#define NR_MODIFY_LDT SYS_modify_ldt
#else
#define NR_CHMOD ABSENT
#define NR_OPEN ABSENT
#define NR_CREAT ABSENT
#define NR_MKNOD ABSENT
#define NR_IOPL ABSENT
#define NR_IOPERM ABSENT
#define NR_MODIFY_LDT ABSENT
#endif

static const struct probe probes[] = {
    /* Whole calls. Numbers from 424 on are the same everywhere and may be missing from the headers. */
    {"mount", CALL(SYS_mount, ANY)},
    {"umount2", CALL(SYS_umount2, BAD, 0)},
    {"pivot_root", CALL(SYS_pivot_root, BAD, BAD)},
    {"chroot", CALL(SYS_chroot, BAD)},
    {"fsopen", CALL(430, BAD, 0)},
    {"fsconfig", CALL(431, NOFD, 0, BAD, BAD, 0)},
    {"fsmount", CALL(432, NOFD, 0, 0)},
    {"fspick", CALL(433, NOFD, BAD, 0)},
    {"open_tree", CALL(428, NOFD, BAD, 0)},
    {"open_tree_attr", CALL(467, NOFD, BAD, 0, 0, 0)},
    {"move_mount", CALL(429, NOFD, BAD, NOFD, BAD, 0)},
    {"mount_setattr", CALL(442, NOFD, BAD, 0, BAD, 32)},
    {"setns", CALL(SYS_setns, NOFD, 0)},
    {"unshare", CALL(SYS_unshare, 1)}, /* a flag that does not exist */
    {"clone3", CALL(435, BAD, 64)},
    {"io_uring_setup", CALL(425, 1, BAD)},
    {"io_uring_enter", CALL(426, NOFD, 0, 0, 0, 0, 0)},
    {"io_uring_register", CALL(427, NOFD, 0, 0, 0)},
    {"userfaultfd", CALL(SYS_userfaultfd, 0x100)},
    {"bpf", CALL(SYS_bpf, 0, BAD, 16)},
    {"keyctl", CALL(SYS_keyctl, 0xffff)},
    {"add_key", CALL(SYS_add_key, BAD, BAD, BAD, 1, 0)},
    {"request_key", CALL(SYS_request_key, BAD, BAD, BAD, 0)},
    {"ptrace", CALL(SYS_ptrace, 0xffff, 0x7fffffff)},
    {"process_vm_readv", CALL(SYS_process_vm_readv, 0x7fffffff, BAD, 1, BAD, 1, 0)},
    {"process_vm_writev", CALL(SYS_process_vm_writev, 0x7fffffff, BAD, 1, BAD, 1, 0)},
    {"pidfd_getfd", CALL(438, NOFD, 0, 0)},
    {"process_madvise", CALL(440, NOFD, BAD, 1, 0, 0)},
    {"process_mrelease", CALL(448, NOFD, 0)},
    {"kcmp", CALL(SYS_kcmp, 0x7fffffff, 0x7fffffff, 0, 0, 0)},
    {"perf_event_open", CALL(SYS_perf_event_open, BAD, 0, 0, NOFD, 0)},
    {"open_by_handle_at", CALL(SYS_open_by_handle_at, NOFD, BAD, 0)},
    {"name_to_handle_at", CALL(SYS_name_to_handle_at, NOFD, BAD, BAD, BAD, 0)},
    {"kexec_load", CALL(SYS_kexec_load, 0, 0xffff, BAD, 0xffff)},
    {"init_module", CALL(SYS_init_module, BAD, 16, BAD)},
    {"finit_module", CALL(SYS_finit_module, NOFD, BAD, 0)},
    {"delete_module", CALL(SYS_delete_module, BAD, 0)},
    {"swapon", CALL(SYS_swapon, BAD, 0)},
    {"swapoff", CALL(SYS_swapoff, BAD)},
    {"reboot", CALL(SYS_reboot, 0, 0, 0, 0)}, /* without the magic numbers */
    {"acct", CALL(SYS_acct, BAD)},
    {"quotactl", CALL(SYS_quotactl, 0, BAD, 0, BAD)},
    {"syslog", CALL(SYS_syslog, 3, 0, 0)},
    {"settimeofday", CALL(SYS_settimeofday, BAD, 0)},
    {"clock_settime", CALL(SYS_clock_settime, 0, BAD)},
    {"adjtimex", CALL(SYS_adjtimex, BAD)},
    {"sethostname", CALL(SYS_sethostname, BAD, 4)},
    {"setdomainname", CALL(SYS_setdomainname, BAD, 4)},
    {"fanotify_init", CALL(SYS_fanotify_init, 0xffff0000, 0)},
    {"iopl", CALL(NR_IOPL, 7)},
    {"ioperm", CALL(NR_IOPERM, 0xffffffff, 0xffffffff, 0)},
    {"modify_ldt", CALL(NR_MODIFY_LDT, 1, BAD, 16)},
    {"memfd_secret", CALL(447, 0xffff)},
    {"openat2", CALL(437, NOFD, BAD, BAD, 24)},
    {"fork", .special = clone_plain},
    {"unknown-999", CALL(999, 0)},
    {"getpid", CALL(SYS_getpid, 0)},

    /* Arguments */
    {"tiocsti", CALL(SYS_ioctl, NOFD, 0x5412, BAD)},
    {"tiocsti-high", CALL(SYS_ioctl, NOFD, 0x5412 | HIGH, BAD)},
    {"tioclinux", CALL(SYS_ioctl, NOFD, 0x541c, BAD)},
    {"tioccons", CALL(SYS_ioctl, NOFD, 0x541d, BAD)},
    {"tiocsetd", CALL(SYS_ioctl, NOFD, 0x5423, BAD)},
    {"tcgets", CALL(SYS_ioctl, NOFD, 0x5401, BAD)},
    {"clone-newuser", .special = clone_newuser},
    {"clone-newuser-high", .special = clone_newuser_high},
    {"clone-newns", .special = clone_newns},
    {"clone-newnet", .special = clone_newnet},
    {"int80-getpid", .special = int80_getpid},
    {"x32-getpid", .special = x32_getpid},
    {"socket-tcp", CALL(SYS_socket, AF_INET, SOCK_STREAM, 0), SOCKET},
    {"socket-udp", CALL(SYS_socket, AF_INET6, SOCK_DGRAM, 17), SOCKET},
    {"socket-unix", CALL(SYS_socket, AF_UNIX, SOCK_STREAM, 0), SOCKET},
    {"socket-raw", CALL(SYS_socket, AF_INET, SOCK_RAW, 1), SOCKET},
    {"socket-icmp", CALL(SYS_socket, AF_INET, SOCK_DGRAM, 1), SOCKET},
    {"socket-packet", CALL(SYS_socket, AF_PACKET, SOCK_RAW, 0), SOCKET},
    {"socket-netlink-route", CALL(SYS_socket, AF_NETLINK, SOCK_RAW, 0), SOCKET},
    {"socket-netlink-audit", CALL(SYS_socket, AF_NETLINK, SOCK_RAW, 9), SOCKET},
    {"socket-netlink-netfilter", CALL(SYS_socket, AF_NETLINK, SOCK_RAW, 12), SOCKET},
    {"socket-alg", CALL(SYS_socket, AF_ALG, SOCK_SEQPACKET, 0), SOCKET},
    {"socket-vsock", CALL(SYS_socket, AF_VSOCK, SOCK_STREAM, 0), SOCKET},
    {"socket-mptcp", CALL(SYS_socket, AF_INET, SOCK_STREAM, 262), SOCKET},
    {"socket-sctp", CALL(SYS_socket, AF_INET, SOCK_STREAM, 132), SOCKET},
    {"sendto-fastopen", CALL(SYS_sendto, NOFD, BAD, 1, 0x20000000, BAD, 16)},
    {"sendmsg-fastopen", CALL(SYS_sendmsg, NOFD, BAD, 0x20000000)},
    {"sendmmsg-fastopen", CALL(SYS_sendmmsg, NOFD, BAD, 1, 0x20000000)},
    {"chmod-setuid", CALL(NR_CHMOD, NO_SUCH_FILE, 04755)},
    {"fchmod-setuid", CALL(SYS_fchmod, NOFD, 04755)},
    {"fchmodat-setuid", CALL(SYS_fchmodat, NOFD, BAD, 04755)},
    {"fchmodat2-setuid", CALL(452, NOFD, BAD, 04755, 0)},
    {"mknod-device", CALL(NR_MKNOD, NO_SUCH_FILE, S_IFCHR | 0600, 0x103)},
    {"mknodat-device", CALL(SYS_mknodat, AT_FDCWD, NO_SUCH_FILE, S_IFBLK | 0600, 0x700)},
    {"mknodat-setuid", CALL(SYS_mknodat, AT_FDCWD, NO_SUCH_FILE, S_IFREG | 04755, 0)},
    {"open-setuid", CALL(NR_OPEN, NO_SUCH_FILE, O_CREAT | O_WRONLY, 04755)},
    {"openat-setuid", CALL(SYS_openat, AT_FDCWD, NO_SUCH_FILE, O_CREAT | O_WRONLY, 04755)},
    {"openat-tmpfile-setuid", CALL(SYS_openat, AT_FDCWD, NO_SUCH_FILE, O_TMPFILE | O_WRONLY, 04755)},
    {"creat-setuid", CALL(NR_CREAT, NO_SUCH_FILE, 04755)},
    {"memfd-hugetlb", CALL(SYS_memfd_create, BAD, 4)},
    {"prctl-set-mm", CALL(SYS_prctl, 35, 0xffff, 0, 0, 0)},
    {"personality-norandom", CALL(SYS_personality, 0x0040000)},
    {"seccomp-filter", .special = seccomp_filter},
    {"seccomp-listener", .special = seccomp_listener},
};

#define COUNT (sizeof probes / sizeof *probes)

static const char *errno_name(int errnum)
{
    const char *name = strerrorname_np(errnum);
    return name ? name : "E?";
}

static bool is_refusal(const struct probe *probe, int errnum)
{
    if (errnum == EPERM || errnum == ENOSYS)
        return true;
    return probe->answers == SOCKET &&
           (errnum == EAFNOSUPPORT || errnum == EPROTONOSUPPORT || errnum == ESOCKTNOSUPPORT);
}

static void make_call(const struct probe *probe)
{
    const unsigned long *a = probe->args;
    errno = 0;
    long result = probe->number == ABSENT ? ABSENT
                  : probe->special        ? probe->special()
                                          : syscall(probe->number, a[0], a[1], a[2], a[3], a[4], a[5]);
    int errnum = errno;
    if (result > UINT32_MAX - 4096L && result <= UINT32_MAX) { /* modify_ldt gives its error as an unsigned int */
        errnum = (int)-(int32_t)result;
        result = -1;
    }
    if (result == ABSENT)
        printf("%s absent\n", probe->name);
    else if (result >= 0)
        printf("%s reached OK\n", probe->name);
    else
        printf("%s %s %s\n", probe->name, is_refusal(probe, errnum) ? "blocked" : "reached", errno_name(errnum));
    fflush(stdout);
}

static int make_call_in_child(const struct probe *probe)
{
    fflush(stdout);
    pid_t pid = fork();
    if (pid < 0) {
        perror("fork (try --nofork)");
        return -1;
    }
    if (pid == 0) {
        make_call(probe);
        _exit(0);
    }
    int status;
    if (waitpid(pid, &status, 0) < 0) {
        perror("waitpid");
        return -1;
    }
    if (WIFSIGNALED(status)) {
        const char *abbreviation = sigabbrev_np(WTERMSIG(status));
        printf("%s killed SIG%s\n", probe->name, abbreviation ? abbreviation : "?");
    }
    return 0;
}

int main(int argc, char **argv)
{
    int first = 1;
    bool in_child = true;
    if (argc > 1 && strcmp(argv[1], "--list") == 0) {
        for (size_t i = 0; i < COUNT; i++)
            puts(probes[i].name);
        return 0;
    }
    if (argc > 1 && strcmp(argv[1], "--nofork") == 0) {
        in_child = false;
        first = 2;
    }
    if (first == argc) {
        fprintf(stderr, "usage: probe_syscalls [--nofork] NAME… | --list\n");
        return 2;
    }
    for (int i = first; i < argc; i++) {
        size_t p = 0;
        while (p < COUNT && strcmp(probes[p].name, argv[i]) != 0)
            p++;
        if (p == COUNT) {
            fprintf(stderr, "probe_syscalls: no probe \"%s\" (see --list)\n", argv[i]);
            return 2;
        }
        if (!in_child)
            make_call(&probes[p]);
        else if (make_call_in_child(&probes[p]) < 0)
            return 1;
    }
    return 0;
}
