/* Runs a command on a kernel that seems to lack a system call, or fails at a chosen moment:
 *
 *     deny_syscall NAME ERROR -- COMMAND…                every call of that name fails
 *     deny_syscall NAME ERROR PROCESS N FILE -- COMMAND… only the N-th such call of one process
 *     deny_syscall --list FILE -- COMMAND…               none; which calls would there be?
 *
 * ERROR is a name such as EPERM. The processes are numbered as they are made, from 0, which is COMMAND itself. Calls
 * are counted from the start of COMMAND, and for the others until they execute a program: what that program does is its
 * own affair. In the last two forms everything that COMMAND starts is followed, and FILE tells, line by line:
 *
 *     call PROCESS NAME A B      (--list) one call, in order, with its first two arguments
 *     denied COUNT               how many calls were made to fail
 *     process NUMBER PID         one that was there
 *     left COUNT                 processes that were still there some time after COMMAND had ended; they are killed
 *
 * The exit status is that of COMMAND, 128 + signal, or 2 when this tool itself could not go on; 3 when COMMAND had to
 * be ended because it took too long.
 *
 * Counting is done by tracing, and not by a seccomp listener: a process can have one of those only, and a cell needs it
 * for itself. A filter picks the calls to stop at, so that nothing else is slowed down. */
#include <elf.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <seccomp.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ANY = -1, ROOM = 4096, PATIENCE_S = 10, LINGER_S = 5 };

_Noreturn static void die(const char *what)
{
    fprintf(stderr, "deny_syscall: %s: %s\n", what, strerror(errno));
    exit(2);
}

static int number_of_error(const char *name)
{
    for (int number = 1; number < 200; number++)
        if (strerrorname_np(number) && strcmp(strerrorname_np(number), name) == 0)
            return number;
    fprintf(stderr, "deny_syscall: unknown error %s\n", name);
    exit(2);
}

static int number_of_call(const char *name)
{
    int number = seccomp_syscall_resolve_name(name);
    if (number < 0) {
        fprintf(stderr, "deny_syscall: unknown system call %s\n", name);
        exit(2);
    }
    return number;
}

/* From here on, this call (or any) is answered by `action`. */
static void filter(int number, unsigned action)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        number == ANY ? (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JA, 0, 0, 0)
                      : (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, action),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof code / sizeof *code, .filter = code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0)
        die("installing the filter");
}

_Noreturn static void execute(char **command)
{
    execvp(command[0], command);
    die(command[0]);
}

/* ---- Following ---- */

struct process {
    pid_t pid;
    int number;         /* -1: stopped at its beginning, its parent's word of it has not come yet */
    bool fresh;         /* its first stop is still to come */
    bool counted;
    long calls;         /* of the chosen name */
};

static struct process processes[ROOM];
static size_t process_count;
static int made;        /* numbers given out */
static FILE *report;

static struct process *find(pid_t pid)
{
    for (size_t i = 0; i < process_count; i++)
        if (processes[i].pid == pid)
            return &processes[i];
    return NULL;
}

static struct process *add(pid_t pid)
{
    if (process_count == ROOM) {
        errno = E2BIG;
        die("following the processes");
    }
    processes[process_count] = (struct process){.pid = pid, .number = -1, .fresh = true};
    return &processes[process_count++];
}

static void drop(struct process *process)
{
    *process = processes[--process_count];
}

static void introduce(struct process *process, bool counted)
{
    process->number = made++;
    process->counted = counted;
    fprintf(report, "process %d %d\n", process->number, process->pid);
}

/* The process is stopped before the call: makes it no call at all, with this result. */
static void skip_call(pid_t pid, int errnum)
{
#if defined(__x86_64__)
    struct user_regs_struct registers;
    struct iovec data = {.iov_base = &registers, .iov_len = sizeof registers};
    ptrace(PTRACE_GETREGSET, pid, NT_PRSTATUS, &data);
    registers.orig_rax = (unsigned long long)-1;
    registers.rax = (unsigned long long)-errnum;
    ptrace(PTRACE_SETREGSET, pid, NT_PRSTATUS, &data);
#elif defined(__aarch64__)
    int none = -1;
    struct iovec call = {.iov_base = &none, .iov_len = sizeof none};
    ptrace(PTRACE_SETREGSET, pid, NT_ARM_SYSTEM_CALL, &call);
    struct user_regs_struct registers;
    struct iovec data = {.iov_base = &registers, .iov_len = sizeof registers};
    ptrace(PTRACE_GETREGSET, pid, NT_PRSTATUS, &data);
    registers.regs[0] = (unsigned long long)-errnum;
    ptrace(PTRACE_SETREGSET, pid, NT_PRSTATUS, &data);
#else
#error "how a call is skipped on this machine"
#endif
}

static void list_call(const struct process *process)
{
    struct __ptrace_syscall_info info;
    if (ptrace(PTRACE_GET_SYSCALL_INFO, process->pid, sizeof info, &info) <= 0)
        return;
    char *name = seccomp_syscall_resolve_num_arch(SCMP_ARCH_NATIVE, (int)info.seccomp.nr);
    fprintf(report, "call %d %s %#llx %#llx\n", process->number, name ? name : "unknown",
            (unsigned long long)info.seccomp.args[0], (unsigned long long)info.seccomp.args[1]);
    free(name);
}

struct wanted {
    bool list;
    int process;
    long call;
    int errnum;
    int denied;
};

static void on_call(struct process *process, struct wanted *wanted)
{
    if (!process->counted)
        return;
    if (wanted->list) {
        list_call(process);
    } else if (process->number == wanted->process && ++process->calls == wanted->call) {
        skip_call(process->pid, wanted->errnum);
        wanted->denied++;
    }
}

static void on_child(pid_t parent_pid)
{
    unsigned long pid = 0;
    ptrace(PTRACE_GETEVENTMSG, parent_pid, NULL, &pid);
    struct process *child = find((pid_t)pid);
    bool waits = child != NULL;
    if (!child)
        child = add((pid_t)pid);
    introduce(child, find(parent_pid)->counted);
    if (waits)
        ptrace(PTRACE_CONT, child->pid, NULL, NULL);
}

/* One stop; returns the signal to go on with, or -1 to leave the process stopped. */
static int on_stop(struct process *process, int status, struct wanted *wanted)
{
    switch (status >> 16) {
    case PTRACE_EVENT_SECCOMP:
        on_call(process, wanted);
        return 0;
    case PTRACE_EVENT_FORK:
    case PTRACE_EVENT_VFORK:
    case PTRACE_EVENT_CLONE:
        on_child(process->pid);
        return 0;
    case PTRACE_EVENT_EXEC:
        process->counted = process->number == 0 && !process->counted;
        return 0;
    default:
        break;
    }
    if (process->fresh && WSTOPSIG(status) == SIGSTOP) {
        process->fresh = false;
        return process->number < 0 ? -1 : 0;
    }
    return WSTOPSIG(status) == SIGTRAP ? 0 : WSTOPSIG(status);
}

static void on_alarm(int signal)
{
    (void)signal; /* only so that waiting returns */
}

static int kill_what_is_left(void)
{
    int count = (int)process_count;
    for (size_t i = 0; i < process_count; i++)
        kill(processes[i].pid, SIGKILL);
    while (waitpid(-1, NULL, __WALL) > 0 || errno == EINTR)
        ;
    return count;
}

static int follow(pid_t first, struct wanted *wanted)
{
    const long options = PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE | PTRACE_O_TRACEEXEC |
                         PTRACE_O_TRACESECCOMP | PTRACE_O_EXITKILL;
    struct sigaction wake = {.sa_handler = on_alarm};
    int status, result = -1;
    sigaction(SIGALRM, &wake, NULL);
    alarm(PATIENCE_S);
    if (waitpid(first, &status, 0) < 0 || !WIFSTOPPED(status) ||
        ptrace(PTRACE_SETOPTIONS, first, NULL, options) < 0)
        die("following the command");
    struct process *process = add(first);
    introduce(process, false); /* until it has executed the command */
    process->fresh = false;
    ptrace(PTRACE_CONT, first, NULL, NULL);
    while (process_count > 0) {
        pid_t pid = waitpid(-1, &status, __WALL);
        if (pid < 0)
            break;
        process = find(pid);
        if (!process)
            process = add(pid); /* a child that stops before its parent tells of it */
        if (WIFSTOPPED(status)) {
            int signal = on_stop(process, status, wanted);
            if (signal >= 0)
                ptrace(PTRACE_CONT, pid, NULL, signal);
            continue;
        }
        drop(process);
        if (pid == first) {
            result = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
            alarm(LINGER_S);
        }
    }
    alarm(0);
    int left = kill_what_is_left();
    fprintf(report, "denied %d\nleft %d\n", wanted->denied, result < 0 ? left - 1 : left);
    return result < 0 ? 3 : result;
}

static int run_followed(char **command, const char *file, int number, struct wanted wanted)
{
    report = fopen(file, "we");
    if (!report)
        die(file);
    pid_t pid = fork();
    if (pid < 0)
        die("fork");
    if (pid == 0) {
        fclose(report);
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0)
            die("being followed");
        raise(SIGSTOP);
        filter(number, SECCOMP_RET_TRACE);
        execute(command);
    }
    int status = follow(pid, &wanted);
    if (fclose(report) != 0)
        die(file);
    return status;
}

int main(int argc, char **argv)
{
    int dashes = 1;
    while (dashes < argc && strcmp(argv[dashes], "--") != 0)
        dashes++;
    char **command = argv + dashes + 1;
    if (dashes + 1 < argc && dashes == 3 && strcmp(argv[1], "--list") == 0)
        return run_followed(command, argv[2], ANY, (struct wanted){.list = true});
    if (dashes + 1 < argc && dashes == 6)
        return run_followed(command, argv[5], number_of_call(argv[1]),
                            (struct wanted){.process = atoi(argv[3]), .call = atol(argv[4]),
                                            .errnum = number_of_error(argv[2])});
    if (dashes + 1 < argc && dashes == 3) {
        filter(number_of_call(argv[1]), SECCOMP_RET_ERRNO | (unsigned)number_of_error(argv[2]));
        execute(command);
    }
    fprintf(stderr, "usage: deny_syscall NAME ERROR [PROCESS N FILE] -- COMMAND…\n"
                    "       deny_syscall --list FILE -- COMMAND…\n");
    return 2;
}
