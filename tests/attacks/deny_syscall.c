/* Runs a command on a kernel that seems to lack a system call:
 *
 *     deny_syscall NAME ERRNO -- COMMAND…        (ERRNO: ENOSYS or EPERM) */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Numbers from 424 on are the same everywhere and may be missing from the headers. */
static const struct {
    const char *name;
    unsigned number;
} calls[] = {
    {"open_tree", 428},
    {"move_mount", 429},
    {"fsopen", 430},
    {"fsconfig", 431},
    {"fsmount", 432},
    {"clone3", 435},
    {"close_range", 436},
    {"openat2", 437},
    {"mount_setattr", 442},
    {"landlock_create_ruleset", 444},
    {"landlock_add_rule", 445},
    {"landlock_restrict_self", 446},
    {"seccomp", SYS_seccomp},
    {"pivot_root", SYS_pivot_root},
    {"umount2", SYS_umount2},
    {"capset", SYS_capset},
    {"setsid", SYS_setsid},
    {"prctl", SYS_prctl},
    {"signalfd4", SYS_signalfd4},
    {"prlimit64", SYS_prlimit64},
    {"clone", SYS_clone},
};

static int deny(unsigned number, int errnum)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)errnum),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof code / sizeof *code, .filter = code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return -1;
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

int main(int argc, char **argv)
{
    if (argc < 5 || strcmp(argv[3], "--") != 0) {
        fprintf(stderr, "usage: deny_syscall NAME ERRNO -- COMMAND…\n");
        return 2;
    }
    int errnum = strcmp(argv[2], "ENOSYS") == 0 ? ENOSYS : EPERM;
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        if (strcmp(calls[i].name, argv[1]) == 0) {
            if (deny(calls[i].number, errnum) < 0) {
                perror("installing the filter");
                return 2;
            }
            execvp(argv[4], argv + 4);
            perror(argv[4]);
            return 2;
        }
    fprintf(stderr, "deny_syscall: unknown system call %s\n", argv[1]);
    return 2;
}
