/* See paths.h. Runs in the supervisor, while the caller waits for its answer. */
#include "supervisor/paths.h"

#include "base/text.h"

#include "base/cleanup.h"
#include "base/missing.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>

int cb_call_read(const struct cb_call *call, uint64_t address, void *data, size_t size)
{
    struct iovec here = {.iov_base = data, .iov_len = size};
    struct iovec there = {.iov_base = (void *)(uintptr_t)address, .iov_len = size};
    return process_vm_readv((pid_t)call->notice->pid, &here, 1, &there, 1, 0) == (ssize_t)size ? 0 : -EFAULT;
}

int cb_call_read_string(const struct cb_call *call, uint64_t address, char text[PATH_MAX])
{
    size_t have = 0;
    while (have < PATH_MAX) {
        /* Up to the end of the page: the next one may not be there. */
        size_t piece = 4096 - (size_t)((address + have) & 4095);
        if (piece > PATH_MAX - have)
            piece = PATH_MAX - have;
        struct iovec here = {.iov_base = text + have, .iov_len = piece};
        struct iovec there = {.iov_base = (void *)(uintptr_t)(address + have), .iov_len = piece};
        ssize_t got = process_vm_readv((pid_t)call->notice->pid, &here, 1, &there, 1, 0);
        if (got <= 0)
            return -EFAULT;
        if (memchr(text + have, '\0', (size_t)got))
            return 0;
        have += (size_t)got;
    }
    return -ENAMETOOLONG;
}

int cb_call_open(const struct cb_call *call, int number)
{
    char link[64];
    bool current = number == AT_FDCWD;
    if (current)
        snprintf(link, sizeof link, "/proc/%u/cwd", call->notice->pid);
    else
        snprintf(link, sizeof link, "/proc/%u/fd/%d", call->notice->pid, number);
    int fd = open(link, O_PATH | O_CLOEXEC);
    return fd >= 0 ? fd : errno == ENOENT && !current ? -EBADF : -errno;
}

void cb_path_to(int fd, char path[64])
{
    snprintf(path, 64, "/proc/self/fd/%d", fd);
}

int cb_path_of(int fd, char path[PATH_MAX])
{
    char link[64];
    cb_path_to(fd, link);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    if (length < 0)
        return -errno;
    path[length] = '\0';
    return 0;
}

/* What the policy grants and the cell really has: the workspace of a scratch run is only its name. */
bool cb_plan_grants_write(const struct cb_plan *plan, const char *path)
{
    if (plan->private_directory && cb_path_within(path, plan->private_directory))
        return true;
    for (size_t i = 0; i < plan->step_count; i++)
        if (plan->steps[i].access == CB_ACCESS_WRITE && !plan->steps[i].device &&
            cb_path_within(path, plan->steps[i].source))
            return cb_decide_file(plan->resolved->policy, path).access == CB_ACCESS_WRITE;
    return false;
}

/* The process of a thread: only that has a pidfd. */
static pid_t process_of(pid_t thread)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%d/status", thread);
    cb_autofd int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (length <= 0)
        return -1;
    text[length] = '\0';
    const char *at = strstr(text, "\nTgid:");
    int process;
    return at && sscanf(at, "\nTgid: %d", &process) == 1 ? process : -1;
}

int cb_call_duplicate(const struct cb_call *call, int number)
{
    pid_t thread = (pid_t)call->notice->pid;
    cb_autofd int process = cb_sys_pidfd_open(thread, 0);
    if (process < 0)
        process = cb_sys_pidfd_open(process_of(thread), 0);
    return process < 0 ? -1 : cb_sys_pidfd_getfd(process, number, 0);
}
