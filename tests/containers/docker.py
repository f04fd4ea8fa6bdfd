"""A container as Docker starts one when it is asked for nothing special, as an OCI bundle for runc.

Written after what Docker documents: the capabilities that it keeps, an allow-list of system calls, the paths that it
covers or makes read-only. `config()` takes apart what the tests vary.
"""

import os

CAPABILITIES = """CHOWN DAC_OVERRIDE FSETID FOWNER MKNOD NET_RAW SETGID SETUID SETFCAP SETPCAP NET_BIND_SERVICE
SYS_CHROOT KILL AUDIT_WRITE""".split()

COVERED = ["/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
           "/proc/sched_debug", "/proc/scsi", "/proc/timer_list", "/proc/timer_stats", "/sys/devices/virtual/powercap",
           "/sys/firmware"]
READ_ONLY = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"]

# ---- The allow-list, by what the calls are for ----

ALWAYS = """
read write readv writev pread64 pwrite64 preadv pwritev preadv2 pwritev2 lseek readahead fadvise64 sendfile
copy_file_range splice tee vmsplice fallocate ftruncate truncate fsync fdatasync sync syncfs sync_file_range
open openat openat2 creat close close_range dup dup2 dup3 fcntl flock ioctl pipe pipe2 memfd_create memfd_secret
stat fstat lstat newfstatat statx statfs fstatfs access faccessat faccessat2 getdents getdents64 readlink readlinkat
mkdir mkdirat rmdir link linkat symlink symlinkat unlink unlinkat rename renameat renameat2 mknod mknodat
chmod fchmod fchmodat fchmodat2 chown fchown lchown fchownat umask utime utimes utimensat futimesat
getxattr lgetxattr fgetxattr setxattr lsetxattr fsetxattr listxattr llistxattr flistxattr removexattr lremovexattr
fremovexattr name_to_handle_at chdir fchdir getcwd
poll ppoll select pselect6 epoll_create epoll_create1 epoll_ctl epoll_ctl_old epoll_wait epoll_wait_old epoll_pwait
epoll_pwait2 eventfd eventfd2 signalfd signalfd4 inotify_init inotify_init1 inotify_add_watch inotify_rm_watch
fanotify_mark timerfd_create timerfd_settime timerfd_gettime
io_setup io_destroy io_submit io_cancel io_getevents io_pgetevents
brk mmap munmap mremap mprotect madvise mincore msync mlock mlock2 mlockall munlock munlockall membarrier
remap_file_pages pkey_alloc pkey_free pkey_mprotect cachestat map_shadow_stack process_mrelease
fork vfork execve execveat exit exit_group wait4 waitid kill tkill tgkill getpid getppid gettid getpgid getpgrp setpgid
getsid setsid pidfd_open pidfd_send_signal set_tid_address set_robust_list get_robust_list rseq
rt_sigaction rt_sigprocmask rt_sigpending rt_sigqueueinfo rt_tgsigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait
sigaltstack pause restart_syscall ptrace process_vm_readv process_vm_writev
futex futex_waitv futex_wake futex_wait futex_requeue
getuid geteuid getgid getegid getresuid getresgid getgroups setuid setgid setreuid setregid setresuid setresgid setfsuid
setfsgid setgroups capget capset prctl arch_prctl modify_ldt set_thread_area get_thread_area
seccomp landlock_create_ruleset landlock_add_rule landlock_restrict_self
getrlimit setrlimit prlimit64 getrusage times getpriority setpriority ioprio_get ioprio_set getcpu
sched_yield sched_getaffinity sched_setaffinity sched_getattr sched_setattr sched_getparam sched_setparam
sched_getscheduler sched_setscheduler sched_get_priority_min sched_get_priority_max sched_rr_get_interval
time gettimeofday clock_gettime clock_getres clock_nanosleep nanosleep clock_adjtime adjtimex alarm getitimer setitimer
timer_create timer_delete timer_settime timer_gettime timer_getoverrun
socketpair bind listen accept accept4 connect getsockname getpeername getsockopt setsockopt shutdown
send sendto sendmsg sendmmsg recv recvfrom recvmsg recvmmsg
shmget shmat shmdt shmctl semget semop semtimedop semctl msgget msgsnd msgrcv msgctl
mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr
uname sysinfo getrandom
""".split()

WITH_CAPABILITY = {
    "SYS_ADMIN": """bpf clone clone3 fanotify_init fsconfig fsmount fsopen fspick lookup_dcookie mount mount_setattr
                    move_mount open_tree perf_event_open quotactl quotactl_fd setdomainname sethostname setns syslog
                    umount umount2 unshare""",
    "DAC_READ_SEARCH": "open_by_handle_at",
    "SYS_BOOT": "reboot",
    "SYS_CHROOT": "chroot",
    "SYS_MODULE": "delete_module init_module finit_module",
    "SYS_PACCT": "acct",
    "SYS_PTRACE": "kcmp pidfd_getfd process_madvise",
    "SYS_RAWIO": "iopl ioperm",
    "SYS_TIME": "settimeofday clock_settime",
    "SYS_TTY_CONFIG": "vhangup",
    "SYS_NICE": "get_mempolicy mbind set_mempolicy set_mempolicy_home_node",
    "SYSLOG": "syslog",
    "BPF": "bpf",
    "PERFMON": "perf_event_open",
}

NEW_NAMESPACES = 0x7E020000                 # every CLONE_NEW… that clone() has room for
PERSONALITIES = [0, 8, 0x20000, 0x20008, 0xFFFFFFFF]
EPERM, ENOSYS, AF_VSOCK = 1, 38, 40


def allow(names, *conditions):
    return {"names": names, "action": "SCMP_ACT_ALLOW", "args": list(conditions)}


def system_calls(capabilities):
    rules = [allow(ALWAYS), allow(["socket"], {"index": 0, "value": AF_VSOCK, "op": "SCMP_CMP_NE"})]
    rules += [allow(["personality"], {"index": 0, "value": value, "op": "SCMP_CMP_EQ"}) for value in PERSONALITIES]
    rules += [allow(names.split()) for capability, names in WITH_CAPABILITY.items() if capability in capabilities]
    if "SYS_ADMIN" not in capabilities:
        rules.append(allow(["clone"], {"index": 0, "value": NEW_NAMESPACES, "valueTwo": 0,
                                       "op": "SCMP_CMP_MASKED_EQ"}))
        rules.append({"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": ENOSYS})
    architectures = {"x86_64": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"],
                     "aarch64": ["SCMP_ARCH_AARCH64", "SCMP_ARCH_ARM"]}
    return {"defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": EPERM, "syscalls": rules,
            "architectures": architectures[os.uname().machine]}


def every_capability():
    """All that this process could hand on; names without the CAP_."""
    with open("/usr/include/linux/capability.h") as header:
        numbers = {line.split()[1][4:]: int(line.split()[2]) for line in header
                   if line.startswith("#define CAP_") and line.split()[2].isdigit()}
    with open("/proc/self/status") as status:
        bounding = next(int(line.split()[1], 16) for line in status if line.startswith("CapBnd:"))
    return [name for name, number in numbers.items() if bounding >> number & 1]


def mount(destination, kind, *options, source=None):
    return {"destination": destination, "type": kind, "source": source or kind, "options": list(options)}


def config(root, command, *, user=0, privileged=False, confined=True, volumes=(), directory="/", variables=None):
    """`root` becomes the container's root; `volumes` are (path, "rw" or "ro"), seen under their own path. Not confined:
    without the allow-list of system calls. Privileged: all that `docker run --privileged` lifts."""
    capabilities = every_capability() if privileged else CAPABILITIES
    held = ["CAP_" + name for name in capabilities]
    writable = "rw" if privileged else "ro"
    quiet = ["nosuid", "noexec", "nodev"]
    linux = {
        "namespaces": [{"type": kind} for kind in ("pid", "network", "ipc", "uts", "mount", "cgroup")],
        "resources": {"devices": [{"allow": privileged, "access": "rwm"}]},
        "maskedPaths": [] if privileged else COVERED,
        "readonlyPaths": [] if privileged else READ_ONLY,
    }
    if confined and not privileged:
        linux["seccomp"] = system_calls(capabilities)
    environment = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8",
                   **(variables or {})}
    return {
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": user, "gid": user}, "args": [str(word) for word in command], "cwd": str(directory),
            "env": [f"{name}={value}" for name, value in environment.items()],
            # An ordinary user holds none, and could get these by a set-user-ID program.
            "capabilities": {"bounding": held, "effective": [] if user else held, "permitted": [] if user else held},
            "noNewPrivileges": False,
        },
        "root": {"path": str(root)},
        "hostname": "container",
        "mounts": [
            mount("/proc", "proc", *quiet),
            mount("/dev", "tmpfs", "nosuid", "strictatime", "mode=755", "size=65536k"),
            mount("/dev/pts", "devpts", "nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"),
            mount("/dev/shm", "tmpfs", *quiet, "mode=1777", "size=65536k"),
            mount("/dev/mqueue", "mqueue", *quiet),
            mount("/sys", "sysfs", *quiet, writable),
            mount("/sys/fs/cgroup", "cgroup", *quiet, "relatime", writable),
            mount("/tmp", "tmpfs", "nosuid", "nodev", "mode=1777"),
            *(mount(str(path), "bind", "rbind", access, source=str(path)) for path, access in volumes),
        ],
        "linux": linux,
    }
