/* See launch.h. It is started with CLONE_VM | CLONE_VFORK: no page table of the caller is copied, however large it is. */
#include "supervisor/launch.h"

#include "base/cleanup.h"
#include "base/missing.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/wait.h>

enum { STACK = 32 * 1024 };

struct launch {
    const char *path;
    const char *word;
    int socket;
    char *stack;
    pid_t pid;
    int pidfd;
    int failed;
    bool apart;
};

/* Both run on stacks of their own, of which the address sanitizer would have something to say. */
#define ON_OTHER_STACK __attribute__((no_sanitize_address))

ON_OTHER_STACK static int become_program(void *data)
{
    struct launch *launch = data;
    char *const argv[] = {(char *)"cellblock", (char *)(uintptr_t)launch->word, NULL};
    char *const envp[] = {NULL};
    sigset_t none;
    /* The caller's handlers must not run here: the memory is still the caller's. */
    for (int number = 1; number < NSIG; number++)
        signal(number, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (launch->apart)
        setpgid(0, 0);
    if (launch->socket == CB_LAUNCH_FD ? fcntl(CB_LAUNCH_FD, F_SETFD, 0) == 0
                                       : dup2(launch->socket, CB_LAUNCH_FD) == CB_LAUNCH_FD)
        execve(launch->path, argv, envp);
    launch->failed = errno; /* the caller's memory, still */
    _exit(127);
}

/* exec gives a process its exit signal back, and the caller's own wait calls and SIGCHLD handler must never see it: so
 * it is the child of one that is gone at once. It shares our descriptors, for the pidfd. */
ON_OTHER_STACK static int launch_and_leave(void *data)
{
    struct launch *launch = data;
    launch->pid = clone(become_program, launch->stack, CLONE_VM | CLONE_VFORK | CLONE_PIDFD, launch, &launch->pidfd);
    if (launch->pid < 0)
        launch->failed = errno;
    _exit(0);
}

int cb_launch(const char *path, const char *word, int socket, bool apart)
{
    cb_autofree char *stacks = malloc(2 * STACK);
    if (!stacks)
        return -1;
    struct launch launch = {.path = path, .word = word, .socket = socket, .pidfd = -1, .pid = -1, .apart = apart};
    launch.stack = (char *)((uintptr_t)(stacks + STACK) & ~15UL);
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pid_t between = clone(launch_and_leave, (char *)((uintptr_t)(stacks + 2 * STACK) & ~15UL),
                          CLONE_VM | CLONE_VFORK | CLONE_FILES, &launch);
    int failed = between < 0 ? errno : launch.failed;
    while (between > 0 && waitpid(between, NULL, __WALL) < 0 && errno == EINTR)
        ;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed) {
        cb_close_cleanup(&launch.pidfd);
        errno = failed;
        return -1;
    }
    return launch.pidfd;
}
