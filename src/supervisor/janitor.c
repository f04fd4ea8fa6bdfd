/* See janitor.h.
 *
 * Why a process: a directory in a cgroup tree stays until somebody removes it, and no signal handler runs on SIGKILL.
 * It is started before the first directory is made and waits for one of two things: the end of the supervisor's process
 * (a pidfd), or the end of a pipe that the supervisor holds (it went on as another program, or is done). Then it
 * removes the cgroups as soon as they are empty, kills what does not go by itself, and ends. Something can end both at
 * once, as the kernel does when it runs out of memory; so before it waits, it also removes empty ones that others have
 * left.
 *
 * To be cheap it is cloned with the caller's memory (CLONE_VM) instead of a copy, while the caller goes on:
 *   - it uses nothing but its own block, which holds its stack and all that it has to know, and its own descriptors;
 *   - it calls nothing of libc and has no stack protector: both use the thread-local storage, which is that of the
 *     thread that started it. Its system calls are made by hand, so the thread's errno is never touched.
 * On machines for which there are no such calls below, it is a copy (fork).
 *
 * It has all signals blocked, a process group or session of its own, so that signals for the caller's group pass it by,
 * and no exit signal, so that the caller's wait calls and handlers never see it. */
#include "supervisor/janitor.h"

#include "base/cleanup.h"
#include "base/missing.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

enum {
    BLOCK = 64 * 1024,      /* with the stack at its end */
    LIST = 4096,
    PATIENCE_MS = 30 * 1000,
    POLITE_MS = 5 * 1000,   /* the cell's first process sees the same end, and may have to clean up before it goes */
    GRACE_MS = 5 * 1000,    /* for the supervisor, who has other things to do */
};

struct cb_janitor {
    /* The supervisor's */
    int pidfd;
    int pipe;               /* our end; the janitor sees it close */
    bool dismissed;
    /* The janitor's */
    int watched[2];         /* the other end of the pipe, and the supervisor's process, or -1 */
    int dirs[CB_CGROUP_PLACES];
    int count;
    int keep[CB_CGROUP_PLACES + 2]; /* all of these descriptors, in order */
    int keep_count;
    char name[CB_CGROUP_NAME], procs[CB_CGROUP_NAME + 16], kill[CB_CGROUP_NAME + 16];
    volatile pid_t spared;  /* written by the supervisor while the janitor waits; 0: nobody */
    size_t family;          /* how much of the name tells the pid namespace */
};

/* ---- The janitor's side ---- */

#if defined(__x86_64__) || defined(__aarch64__)
#define SHARES_MEMORY CLONE_VM
#else
#define SHARES_MEMORY 0
#endif

/* For every function that runs in the janitor. */
#define alone __attribute__((no_stack_protector, no_sanitize("address", "undefined", "thread")))

alone static long call(long number, long a, long b, long c, long d, long e)
{
#if defined(__x86_64__)
    long result;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8)
                     : "rcx", "r11", "memory");
    return result;
#elif defined(__aarch64__)
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = e;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4) : "memory");
    return x0;
#else
    long result = syscall(number, a, b, c, d, e);
    return result < 0 ? -errno : result;
#endif
}

alone static void close_others(const struct cb_janitor *self)
{
    long first = 0;
    for (int i = 0; i <= self->keep_count; i++) {
        long last = i < self->keep_count ? self->keep[i] - 1 : (long)~0U;
        /* Where a filter refuses it: by hand, as far as descriptors usually go. */
        if (first <= last && call(SYS_close_range, first, last, 0, 0, 0) < 0)
            for (long fd = first; fd <= last && fd < 65536; fd++)
                call(SYS_close, fd, 0, 0, 0, 0);
        first = last + 2;
    }
}

/* Both descriptors say the same; the pipe alone is enough where pidfds are refused. */
alone static void wait_for_the_end(const struct cb_janitor *self)
{
    struct pollfd watched[2] = {{.fd = self->watched[0]}, {.fd = self->watched[1], .events = POLLIN}};
    while (call(SYS_ppoll, (long)watched, 2, 0, 0, 0) == -EINTR)
        ;
}

/* A number at `at`; 0 for none. */
alone static long number_at(const char *at)
{
    long number = 0;
    while (*at >= '0' && *at <= '9')
        number = number * 10 + (*at++ - '0');
    return number;
}

/* The numbers of the processes in it, as far as they fit. */
alone static void read_list(const struct cb_janitor *self, int dir, char list[LIST])
{
    long fd = call(SYS_openat, dir, (long)self->procs, O_RDONLY | O_CLOEXEC, 0, 0);
    long length = fd < 0 ? 0 : call(SYS_read, fd, (long)list, LIST - 1, 0, 0);
    if (fd >= 0)
        call(SYS_close, fd, 0, 0, 0, 0);
    list[length > 0 ? length : 0] = '\0';
}

alone static const char *next_number(const char *at)
{
    while (*at >= '0' && *at <= '9')
        at++;
    while (*at && !(*at >= '0' && *at <= '9'))
        at++;
    return at;
}

/* A number may belong to somebody else by the time it is used. A process that is listed again after its pidfd was
 * opened is in the cgroup. */
alone static void kill_one(const struct cb_janitor *self, int dir, long pid)
{
    char list[LIST];
    long pidfd = call(SYS_pidfd_open, pid, 0, 0, 0, 0);
    if (pidfd < 0)
        return;
    read_list(self, dir, list);
    for (const char *at = list; *at; at = next_number(at))
        if (number_at(at) == pid) {
            call(SYS_pidfd_send_signal, pidfd, SIGKILL, 0, 0, 0);
            break;
        }
    call(SYS_close, pidfd, 0, 0, 0, 0);
}

alone static void kill_all(const struct cb_janitor *self, int dir)
{
    static const char one[] = "1";
    char list[LIST];
    long fd = self->spared ? -1 : call(SYS_openat, dir, (long)self->kill, O_WRONLY | O_CLOEXEC, 0, 0);
    long written = fd < 0 ? fd : call(SYS_write, fd, (long)one, 1, 0, 0);
    if (fd >= 0)
        call(SYS_close, fd, 0, 0, 0, 0);
    if (written == 1) /* version 2, Linux 5.14 */
        return;
    read_list(self, dir, list);
    for (const char *at = list; *at; at = next_number(at))
        if (number_at(at) != self->spared)
            kill_one(self, dir, number_at(at));
}

/* Is the one that cleans up still at it? It is killed by nobody, however long it takes. */
alone static bool is_cleaning(const struct cb_janitor *self)
{
    char list[LIST];
    if (!self->spared || self->count == 0)
        return false;
    read_list(self, self->dirs[0], list);
    for (const char *at = list; *at; at = next_number(at))
        if (number_at(at) == self->spared)
            return true;
    return false;
}

struct entry { /* as getdents64 writes it */
    uint64_t inode;
    int64_t offset;
    unsigned short length;
    unsigned char type;
    char name[];
};

/* A supervisor whose number nobody has any more is gone. Only what is empty can be removed. */
alone static void remove_if_left(const struct cb_janitor *self, int dir, const char *name)
{
    for (size_t i = 0; i < self->family; i++)
        if (name[i] != self->name[i])
            return;
    long pid = number_at(name + self->family);
    if (pid > 0 && call(SYS_kill, pid, 0, 0, 0, 0) == -ESRCH)
        call(SYS_unlinkat, dir, (long)name, AT_REMOVEDIR, 0, 0);
}

alone static void remove_left_behind(const struct cb_janitor *self)
{
    static const char here[] = ".";
    char list[LIST] __attribute__((aligned(8)));
    for (int i = 0; i < self->count; i++) {
        long fd = call(SYS_openat, self->dirs[i], (long)here, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0, 0);
        long length;
        while (fd >= 0 && (length = call(SYS_getdents64, fd, (long)list, LIST, 0, 0)) > 0)
            for (const char *at = list; at < list + length; at += ((const struct entry *)at)->length)
                remove_if_left(self, self->dirs[i], ((const struct entry *)at)->name);
        if (fd >= 0)
            call(SYS_close, fd, 0, 0, 0, 0);
    }
}

/* One try; says whether all are gone. */
alone static bool remove_all(const struct cb_janitor *self, bool kill)
{
    bool gone = true;
    for (int i = 0; i < self->count; i++) {
        long result = call(SYS_unlinkat, self->dirs[i], (long)self->name, AT_REMOVEDIR, 0, 0);
        if (result == 0 || result == -ENOENT)
            continue;
        if (kill)
            kill_all(self, self->dirs[i]);
        gone = false;
    }
    return gone;
}

alone static bool keep_removing(const struct cb_janitor *self, long polite_ms, long patience_ms)
{
    long waited = 0, pause_ms = 1;
    while (!remove_all(self, waited >= polite_ms)) {
        if (waited >= patience_ms && !is_cleaning(self))
            return false;
        struct timespec pause = {.tv_nsec = pause_ms * 1000000};
        call(SYS_nanosleep, (long)&pause, 0, 0, 0, 0);
        waited += pause_ms;
        pause_ms = pause_ms < 50 ? pause_ms * 2 : pause_ms;
    }
    return true;
}

alone static int janitor(void *data)
{
    const struct cb_janitor *self = data;
    static const char name[] = "cellblock:clean", root[] = "/";
    static const uint64_t all = ~UINT64_C(0);
    call(SYS_rt_sigprocmask, SIG_SETMASK, (long)&all, 0, sizeof all, 0); /* libc leaves two of them out */
    call(SYS_setsid, 0, 0, 0, 0, 0); /* refused when the supervisor has been quicker: then it has a group of its own */
    call(SYS_prctl, PR_SET_NAME, (long)name, 0, 0, 0);
    call(SYS_chdir, (long)root, 0, 0, 0, 0);
    close_others(self);
    remove_left_behind(self);
    wait_for_the_end(self);
    keep_removing(self, POLITE_MS, PATIENCE_MS);
    return (int)call(SYS_exit_group, 0, 0, 0, 0, 0);
}

/* ---- The supervisor's side ---- */

int cb_janitor_name(char name[CB_CGROUP_NAME])
{
    struct stat space;
    uint64_t random;
    if (stat("/proc/self/ns/pid", &space) < 0 || getrandom(&random, sizeof random, GRND_NONBLOCK) != sizeof random)
        return -1;
    snprintf(name, CB_CGROUP_NAME, "cellblock-%ju-%d-%016jx", (uintmax_t)space.st_ino, (int)getpid(),
             (uintmax_t)random);
    return 0;
}

static int by_number(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

static int start(struct cb_janitor *self)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pid_t pid = clone(janitor, (char *)self + BLOCK, SHARES_MEMORY | CLONE_PIDFD, self, &self->pidfd);
    int failed = errno;
    /* Before anything is made: what is meant for the caller's process group must not end it. */
    if (pid > 0)
        setpgid(pid, pid);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = failed;
    return pid < 0 ? -1 : 0;
}

int cb_janitor_start(const struct cb_cgroup_places *places, const char *name, struct cb_janitor **janitor)
{
    *janitor = NULL;
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return -1;
    cb_autofd int theirs = ends[0], ours = ends[1];
    cb_autofd int supervisor = cb_sys_pidfd_open(getpid(), 0);
    struct cb_janitor *self = mmap(NULL, BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (self == MAP_FAILED)
        return -1;
    self->watched[0] = self->keep[self->keep_count++] = theirs;
    self->watched[1] = supervisor;
    if (supervisor >= 0)
        self->keep[self->keep_count++] = supervisor;
    for (size_t i = 0; i < places->count; i++)
        self->dirs[self->count++] = self->keep[self->keep_count++] = places->place[i].dir;
    qsort(self->keep, (size_t)self->keep_count, sizeof *self->keep, by_number);
    snprintf(self->name, sizeof self->name, "%s", name);
    self->family = (size_t)(strchr(strchr(self->name, '-') + 1, '-') + 1 - self->name);
    snprintf(self->procs, sizeof self->procs, "%s/cgroup.procs", name);
    snprintf(self->kill, sizeof self->kill, "%s/cgroup.kill", name);
    if (start(self) < 0) {
        int failed = errno;
        munmap(self, BLOCK);
        errno = failed;
        return -1;
    }
    self->pipe = cb_steal_fd(&ours);
    *janitor = self;
    return 0;
}

void cb_janitor_spare(struct cb_janitor *janitor, pid_t pid)
{
    janitor->spared = pid;
}

void cb_janitor_remove(struct cb_janitor *janitor, int patience_ms)
{
    if (!janitor->dismissed && keep_removing(janitor, 0, patience_ms))
        janitor->dismissed = cb_sys_pidfd_send_signal(janitor->pidfd, SIGKILL, NULL, 0) == 0;
}

void cb_janitor_free(struct cb_janitor *janitor)
{
    cb_janitor_remove(janitor, GRACE_MS);
    siginfo_t unused;
    while (janitor->dismissed && waitid(CB_P_PIDFD, (id_t)janitor->pidfd, &unused, WEXITED | __WALL) < 0 &&
           errno == EINTR)
        ;
    close(janitor->pipe);
    close(janitor->pidfd);
    if (janitor->dismissed) /* else it goes on, in its block */
        munmap(janitor, BLOCK);
}
