/* Starting a cell. Runs in the supervisor with the caller's privileges.
 *
 *   1. (root only) detached mounts of everything that the plan shows, from the descriptors that were checked
 *   2. clone3 into new namespaces, with all signals blocked, so that no handler of the caller's runs in the child
 *   3. put it into the cell's cgroup, where there is one; (root only) map an unprivileged id, give the caller's own
 *      trees that mapping; say "go"
 *   4. listen on the wire until the program runs, or a step has failed
 * The child is not announced by SIGCHLD and is not seen by the caller's own wait calls: it is waited for by
 * descriptor. */
#include "supervisor/supervisor.h"

#include "base/cleanup.h"
#include "base/error.h"
#include "base/missing.h"
#include "base/passing.h"
#include "host/host.h"
#include "host/tasks.h"
#include "supervisor/cgroup.h"
#include "supervisor/egress.h"
#include "supervisor/terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/wait.h>

static const uint64_t namespaces = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC |
                                   CLONE_NEWUTS | CLONE_NEWCGROUP;

/* ---- What only root can and must do from outside ---- */

static int make_trees(struct cb_plan *plan, cellblock_error **error)
{
    for (size_t i = 0; i < plan->step_count; i++) {
        struct cb_step *step = &plan->steps[i];
        if (step->kind != CB_STEP_BIND)
            continue;
        /* Only device nodes have not been opened yet. */
        cb_autofd int opened = step->checked >= 0 ? -1 : open(step->source, O_PATH | O_NOFOLLOW | O_CLOEXEC);
        int source = step->checked >= 0 ? step->checked : opened;
        step->tree = source < 0 ? -1
                                : cb_sys_open_tree(source, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH |
                                                                   AT_RECURSIVE);
        if (step->tree < 0 && errno == EPERM) {
            cb_fail(error, CELLBLOCK_ERROR_REFUSED, errno, "making a private mount of %s", step->source);
            cb_error_layer(error, "idmap");
            return cb_error_hint(error, "root may not mount in the mount namespace that it is in here: run cellblock as an "
                                        "ordinary user, or in a mount namespace of its own (unshare -m)");
        }
        if (step->tree < 0) {
            cb_fail(error, CELLBLOCK_ERROR_SETUP, errno, "making a private mount of %s", step->source);
            return cb_error_layer(error, "mount-api");
        }
    }
    return 0;
}

static int write_map(pid_t pid, const char *file, unsigned inside, unsigned outside, cellblock_error **error)
{
    char path[64], line[64];
    snprintf(path, sizeof path, "/proc/%d/%s", pid, file);
    int length = snprintf(line, sizeof line, "%u %u 1\n", inside, outside);
    cb_autofd int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, line, (size_t)length) != length) {
        cb_fail(error, CELLBLOCK_ERROR_SETUP, errno, "mapping host id %u into the cell", outside);
        return cb_error_layer(error, "user-namespace");
    }
    return 0;
}

/* The caller's own directories appear in the cell as owned by the cell, and what it makes there ends up as the
 * caller's. */
static int map_trees(struct cb_plan *plan, pid_t pid, cellblock_error **error)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/ns/user", pid);
    cb_autofd int userns = open(path, O_RDONLY | O_CLOEXEC);
    if (userns < 0)
        return cb_fail(error, CELLBLOCK_ERROR_SETUP, errno, "opening the cell's user namespace");
    for (size_t i = 0; i < plan->step_count; i++) {
        struct cb_step *step = &plan->steps[i];
        if (!step->idmapped || !cb_layer_on(plan, CB_OFF_IDS))
            continue;
        struct cb_mount_attr attr = {.attr_set = MOUNT_ATTR_IDMAP, .userns_fd = (uint64_t)userns};
        if (cb_sys_mount_setattr(step->tree, "", AT_EMPTY_PATH | AT_RECURSIVE, &attr) == 0)
            continue;
        int failed = errno;
        if (plan->accept_no_idmap) {
            if (json_array_append_new(plan->weaker, json_sprintf("idmap: /%s", step->at)) < 0)
                return cb_fail_memory(error);
            continue;
        }
        cb_fail(error, CELLBLOCK_ERROR_REFUSED, failed, "showing /%s to the cell as its own (idmapped mount)",
                step->at);
        cb_error_layer(error, "idmap");
        return cb_error_hint(error, "the file system there may not support it: use a directory on another one, run "
                             "cellblock as an ordinary user, or accept the weakening: \"accept_weaker\": [\"idmap\"]");
    }
    return 0;
}

static int map_and_go(struct cellblock_cell *cell, pid_t pid, cellblock_error **error)
{
    struct cb_plan *plan = cell->plan;
    if (cell->cgroup && cb_cgroup_enter(cell->cgroup, pid, error) < 0)
        return -1;
    if (cell->cgroup && plan->tier == CB_TIER_LANDLOCK)
        cb_cgroup_spare(cell->cgroup, pid);
    if (plan->privileged && (write_map(pid, "uid_map", plan->inside_uid, plan->outside_uid, error) < 0 ||
        write_map(pid, "gid_map", plan->inside_gid, plan->outside_gid, error) < 0 || map_trees(plan, pid, error) < 0))
        return -1;
    const struct cb_message go = {.kind = CB_MESSAGE_GO};
    return cb_wire_send(cell->wire, &go, -1) < 0
               ? cb_fail(error, CELLBLOCK_ERROR_SETUP, errno, "talking to the cell while it starts")
               : 0;
}

/* ---- The clone ---- */

static pid_t clone_init(struct cellblock_cell *cell, const struct cb_entry *entry, cellblock_error **error)
{
    int pidfd = -1;
    bool landlock = cell->plan->tier == CB_TIER_LANDLOCK;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pid_t pid = cb_sys_clone_pidfd(landlock ? 0 : namespaces, &pidfd,
                                   cell->cgroup ? cb_cgroup_clone_fd(cell->cgroup) : -1);
    if (pid == 0)
        cb_cell_enter(entry);
    int failed = errno;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (pid < 0 && landlock)
        return cb_fail(error, CELLBLOCK_ERROR_SYSTEM, failed, "making the cell's first process");
    if (pid < 0) {
        cb_fail(error, CELLBLOCK_ERROR_REFUSED, failed, "making the cell's namespaces");
        cb_error_layer(error, "user-namespace");
        cb_host_explain(CB_FEATURE_USER_NAMESPACE, failed, error);
        return -1;
    }
    cell->pidfd = pidfd;
    return pid;
}

int cb_wire_take(int wire, struct cb_message *message, int *fd, int flags)
{
    const struct iovec data = {.iov_base = message, .iov_len = sizeof *message};
    ssize_t got = cb_take(wire, &data, 1, fd, flags);
    if (got < 0 && errno == ECONNRESET) /* told once when the other end went without reading ours; what it said before is
                                         * still there */
        got = cb_take(wire, &data, 1, fd, flags);
    if (got == (ssize_t)sizeof *message)
        return 0;
    if (got >= 0)
        errno = EPIPE;
    return -1;
}

static int listen_until_started(struct cellblock_cell *cell, cellblock_error **error)
{
    for (;;) {
        struct cb_message message;
        int fd;
        if (cb_wire_take(cell->wire, &message, &fd, 0) < 0) {
            cb_close_cleanup(&fd);
            return cb_fail(error, CELLBLOCK_ERROR_SETUP, errno, "the cell ended while it was being set up");
        }
        switch (message.kind) {
        case CB_MESSAGE_ROOT:
            cell->root = fd;
            break;
        case CB_MESSAGE_LISTENER:
            cell->listener = fd;
            /* Who waits for an answer and who gives it take turns: one processor for both saves waking another. */
            ioctl(fd, CB_SECCOMP_IOCTL_NOTIF_SET_FLAGS, CB_SECCOMP_FD_SYNC_WAKE_UP);
            break;
        case CB_MESSAGE_NETWORK:
            if (cb_egress_take(cell, message.detail, fd, error) < 0)
                return -1;
            break;
        case CB_MESSAGE_TERMINAL:
            if (cb_terminal_open(cell, fd, error) < 0)
                return -1;
            break;
        case CB_MESSAGE_STARTED:
            return 0;
        case CB_MESSAGE_FAILED:
            return cb_explain_failure(cell->plan, &message, error);
        default:
            cb_close_cleanup(&fd);
            return cb_fail(error, CELLBLOCK_ERROR_SETUP, EPROTO, "the cell while it was being set up");
        }
    }
}

/* Descriptors that only the start needed. Closed while the program runs, not when everybody waits for its end. */
static void let_go(struct cb_plan *plan)
{
    for (size_t i = 0; i < plan->step_count; i++) {
        cb_close_cleanup(&plan->steps[i].tree);
        plan->steps[i].tree = -1;
    }
    for (size_t i = 0; i < plan->resolved->place_count; i++) {
        cb_close_cleanup(&plan->resolved->places[i].fd);
        plan->resolved->places[i].fd = -1;
    }
}

/* Where the kernel counts processes for the whole user (no user namespace, or a kernel before 5.14 that does not count in
 * it), the limit has to lie above those that exist already. */
static rlim_t counted_outside(const struct cb_plan *plan)
{
    struct utsname name;
    unsigned major = 0, minor = 0;
    if (uname(&name) == 0)
        sscanf(name.release, "%u.%u", &major, &minor);
    bool own_count = plan->tier == CB_TIER_NAMESPACES && (major > 5 || (major == 5 && minor >= 14));
    return own_count || plan->tree.processes == CB_UNLIMITED ? 0 : cb_tasks_of(plan->outside_uid);
}

int cb_spawn(struct cellblock_cell *cell, const int stdio[3], cellblock_error **error)
{
    struct cb_plan *plan = cell->plan;
    if (plan->privileged && make_trees(plan, error) < 0)
        return -1;
    if (plan->tier == CB_TIER_LANDLOCK && (cell->root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC)) < 0)
        return cb_fail_errno(error, "opening /");
    int wire[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, wire) < 0)
        return cb_fail_errno(error, "making a socket pair");
    cell->wire = wire[0];
    cb_autofd int inside = wire[1];
    cb_autofd int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0)
        return cb_fail_errno(error, "opening /dev/null");
    const struct cb_entry entry = {
        .plan = plan,
        .wire = inside,
        .peer = cell->wire,
        .stdio = {stdio[0], stdio[1], stdio[2]},
        .terminal = cb_terminal_start(cell->terminal),
        .null = null,
        .waits = plan->privileged || cell->cgroup,
        .processes_outside = counted_outside(plan),
        .die_with_parent = getpid() == gettid(),
    };
    pid_t pid = clone_init(cell, &entry, error);
    if (pid < 0)
        return -1;
    cb_close_cleanup(&inside);
    inside = -1;
    cell->init_pid = pid;
    if ((entry.waits && map_and_go(cell, pid, error) < 0) || listen_until_started(cell, error) < 0)
        return -1;
    let_go(plan);
    return 0;
}
