/* Runs a command again and again and prints how many nanoseconds each run took, from before the spawn until it was
 * reaped: timer COUNT PROGRAM [ARGUMENT…]. One more run comes first and is not counted. posix_spawn makes a child that
 * shares our memory until it executes, so the timer's own size adds nothing. */
#define _GNU_SOURCE
#include "clock.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

static uint64_t run(char **argv)
{
    pid_t pid;
    int status;
    uint64_t started = now_ns();
    errno = posix_spawn(&pid, argv[0], NULL, NULL, argv, environ);
    if (errno)
        give_up(argv[0]);
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            give_up("waitpid");
    uint64_t took = now_ns() - started;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        fprintf(stderr, "%s: status %#x\n", argv[0], (unsigned)status);
        exit(1);
    }
    return took;
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    run(argv + 2);
    for (int left = atoi(argv[1]); left > 0; left--)
        printf("%llu\n", (unsigned long long)run(argv + 2));
    return 0;
}
