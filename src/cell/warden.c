/* The first process of a cell in tier landlock: stands where init stands in the other tier, but is no pid 1 and has no
 * namespaces. It runs with the caller's own rights and without the rules for the code, which can't signal or trace it.
 *
 *   reaper     whoever is orphaned below it becomes its child (PR_SET_CHILD_SUBREAPER), so the tree never falls apart
 *   private    makes the cell's private directory (/tmp and home), and removes it in the end
 *   rules      builds the Landlock ruleset from the places of the plan
 *   fence      (Landlock with scopes) gives up to signal anybody outside the cell: then it can signal everybody
 *   program    cloned as in the other tier, which locks itself in
 *   end        when the program has ended, the supervisor says so or is gone: ends every process below it, removes the
 *              private directory, and only then exits. That is what the supervisor's wait waits for. */
#include "cell/cell.h"

#include "base/missing.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

int cb_warden_prepare(struct cb_cell_state *state)
{
    if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0)
        return cb_cell_fail(state, CB_STAGE_INIT, 0);
    /* How the processes below us are found in the end: nothing runs unless that works. */
    state->children = open("/proc/thread-self/children", O_RDONLY | O_CLOEXEC);
    return state->children < 0 ? cb_cell_fail(state, CB_STAGE_INIT, 1) : 0;
}

/* A Landlock domain around us and all that we start, with no rule but one: signals stay inside. From then on "everybody
 * that we may signal" (kill -1) is the cell, and the kernel does that in one step, which no forking outruns. Believed
 * only when the supervisor, which has our id, is seen to be out of reach. After no_new_privs, which it needs. */
int cb_warden_fence(struct cb_cell_state *state)
{
    const struct cb_landlock_ruleset_attr attr = {.scoped = LANDLOCK_SCOPE_SIGNAL};
    if (!(state->plan->landlock_scoped & LANDLOCK_SCOPE_SIGNAL) || state->ruleset < 0)
        return 0;
    int ruleset = cb_sys_landlock_create_ruleset(&attr, sizeof attr, 0);
    unsigned quiet = state->plan->landlock_abi >= 7 ? LANDLOCK_RESTRICT_SELF_LOG_SAME_EXEC_OFF : 0;
    int failed = ruleset < 0 ? -1 : cb_sys_landlock_restrict_self(ruleset, quiet);
    if (failed)
        return cb_cell_fail(state, CB_STAGE_LANDLOCK, 0);
    close(ruleset);
    state->fenced = kill(getppid(), 0) < 0 && errno == EPERM;
    return 0;
}

/* ---- The private directory ---- */

static const char *const parts[] = {"tmp", "home", "work"};

/* Made by nobody before us: a name that exists is not taken. */
int cb_warden_private(struct cb_cell_state *state)
{
    const struct cb_plan *plan = state->plan;
    if (mkdir(plan->private_directory, 0700) < 0)
        return cb_cell_fail(state, CB_STAGE_PRIVATE, 0);
    state->private = open(plan->private_directory, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (state->private < 0) {
        cb_cell_fail(state, CB_STAGE_PRIVATE, 0);
        rmdir(plan->private_directory); /* nothing is in it yet */
        return -1;
    }
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (mkdirat(state->private, parts[i], 0700) < 0)
            return cb_cell_fail(state, CB_STAGE_PRIVATE, 0);
    return cb_cell_landlock_add(state, state->private, plan->landlock_handled);
}

struct entry {
    uint64_t inode;
    int64_t offset;
    unsigned short length;
    unsigned char type;
    char name[];
};

/* snprintf is not safe here. */
static char *add_number(char *at, unsigned number)
{
    char digits[16];
    int count = 0;
    do
        digits[count++] = (char)('0' + number % 10);
    while (number /= 10);
    while (count)
        *at++ = digits[--count];
    return at;
}

static void hex_name(char name[20], unsigned long long number)
{
    name[0] = '~';
    for (int i = 0; i < 16; i++)
        name[1 + i] = "0123456789abcdef"[number >> (60 - 4 * i) & 15];
    name[17] = '\0';
}

/* Whatever its mode says. Its mode is changed by descriptor, so no link can stand in its place. */
static int open_directory(int parent, const char *name)
{
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 || errno != EACCES)
        return fd;
    char path[32] = "/proc/self/fd/";
    int named = openat(parent, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (named < 0)
        return -1;
    *add_number(path + 14, (unsigned)named) = '\0';
    fd = chmod(path, 0700) < 0 ? -1 : openat(named, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    close(named);
    return fd;
}

/* Empties a directory. What lies too deep is moved up to `top` first, so that no depth can exhaust our descriptors;
 * returns true when there is more to do because of that. */
static bool empty(int top, int directory, unsigned depth, unsigned long long *moved)
{
    enum { DEEPEST = 8 };
    union {
        struct entry align;
        char room[2048];
    } buffer;
    bool more = false;
    for (bool progress = true; progress;) {
        progress = false;
        lseek(directory, 0, SEEK_SET);
        for (long got; (got = syscall(SYS_getdents64, directory, buffer.room, sizeof buffer.room)) > 0;)
            for (long at = 0; at < got;) {
                struct entry *entry = (struct entry *)(void *)(buffer.room + at);
                at += entry->length;
                if (strcmp(entry->name, ".") == 0 || strcmp(entry->name, "..") == 0)
                    continue;
                if (unlinkat(directory, entry->name, 0) == 0) {
                    progress = true;
                    continue;
                }
                if (errno != EISDIR && entry->type != DT_DIR)
                    continue; /* a link would lead the change of mode elsewhere */
                if (unlinkat(directory, entry->name, AT_REMOVEDIR) == 0) {
                    progress = true;
                } else if (depth >= DEEPEST) {
                    char name[20];
                    hex_name(name, ++*moved);
                    if (renameat(directory, entry->name, top, name) == 0)
                        more = progress = true;
                } else {
                    int inner = open_directory(directory, entry->name);
                    if (inner < 0)
                        continue;
                    more |= empty(top, inner, depth + 1, moved);
                    close(inner);
                    progress |= unlinkat(directory, entry->name, AT_REMOVEDIR) == 0;
                }
            }
    }
    return more;
}

static void remove_private(struct cb_cell_state *state)
{
    if (state->private < 0)
        return;
    unsigned long long moved = 0;
    fchmod(state->private, 0700);
    /* More than once: reading a directory can fail for a moment. */
    for (int tries = 0; tries < 3; tries++) {
        for (int rounds = 0; rounds < 1000000 && empty(state->private, state->private, 0, &moved); rounds++)
            ;
        if (rmdir(state->plan->private_directory) == 0)
            return;
    }
}

/* ---- The end of every process ---- */

/* The first few thousand are enough for one round; there is another until nobody is left. Static, because the stack is
 * the caller's and may be small; this is a process of its own. */
static struct {
    pid_t pid, parent;
} found[8192];

static int open_of(pid_t pid, const char *name, int flags)
{
    char path[64] = "/proc/";
    char *end = add_number(path + 6, (unsigned)pid);
    memcpy(end, name, strlen(name) + 1);
    return open(path, flags | O_RDONLY | O_CLOEXEC);
}

static size_t add_children(int list, pid_t parent, size_t count)
{
    char text[1024];
    pid_t number = 0;
    off_t at = 0;
    for (ssize_t got; (got = pread(list, text, sizeof text, at)) > 0; at += got)
        for (ssize_t i = 0; i < got; i++) {
            if (text[i] >= '0' && text[i] <= '9') {
                number = number * 10 + (text[i] - '0');
            } else if (number > 0) {
                if (count < sizeof found / sizeof *found) {
                    found[count].pid = number;
                    found[count++].parent = parent;
                }
                number = 0;
            }
        }
    return count;
}

/* Children belong to threads: every thread of a process is asked. */
static size_t add_below(pid_t pid, size_t count)
{
    int tasks = open_of(pid, "/task", O_DIRECTORY);
    union {
        struct entry align;
        char room[1024];
    } buffer;
    for (long got; tasks >= 0 && (got = syscall(SYS_getdents64, tasks, buffer.room, sizeof buffer.room)) > 0;)
        for (long at = 0; at < got;) {
            const struct entry *entry = (const struct entry *)(void *)(buffer.room + at);
            size_t length = strlen(entry->name);
            char name[32];
            at += entry->length;
            if (entry->name[0] == '.' || length > 16)
                continue;
            memcpy(name, entry->name, length);
            memcpy(name + length, "/children", 10);
            int list = openat(tasks, name, O_RDONLY | O_CLOEXEC);
            if (list < 0)
                continue;
            count = add_children(list, pid, count);
            close(list);
        }
    if (tasks >= 0)
        close(tasks);
    return count;
}

/* Everybody below us, nearest first. */
static size_t find_all(const struct cb_cell_state *state)
{
    size_t count = add_children(state->children, getpid(), 0);
    for (size_t i = 0; i < count; i++)
        count = add_below(found[i].pid, count);
    return count;
}

static pid_t parent_of(pid_t pid)
{
    char text[512];
    int fd = open_of(pid, "/stat", 0);
    ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    text[length > 0 ? length : 0] = '\0';
    const char *at = strrchr(text, ')'); /* the name before it is the code's choice */
    if (!at || strlen(at) < 5)
        return -1;
    pid_t parent = 0;
    for (at += 4; *at >= '0' && *at <= '9'; at++)
        parent = parent * 10 + (*at - '0');
    return parent;
}

/* A number that was found may belong to somebody else by now. The descriptor does not change hands any more, so it is
 * opened first, and looked at after that. Where an outer filter refuses descriptors of processes, only our own children
 * are signalled: nobody gets the number of one that we have not waited for, and the others become ours in the end. */
static void signal_one(size_t which, int number)
{
    /* A child of ours keeps its number until we have waited for it, and may be hidden from us in /proc. */
    if (found[which].parent == getpid()) {
        kill(found[which].pid, number);
        return;
    }
    int pidfd = cb_sys_pidfd_open(found[which].pid, 0);
    pid_t parent = parent_of(found[which].pid);
    bool sent = pidfd >= 0 && (parent == found[which].parent || parent == getpid()) &&
                cb_sys_pidfd_send_signal(pidfd, number, NULL, 0) == 0;
    if (!sent && parent == getpid())
        kill(found[which].pid, number);
    if (pidfd >= 0)
        close(pidfd);
}

/* Stops them all before it kills any: what is stopped does not fork. */
static void kill_by_number(const struct cb_cell_state *state)
{
    size_t count = 0;
    /* Some rounds are enough for all but a bomb, and that is thinned out by each further one. */
    for (size_t before = 1, rounds = 0; count != before && rounds < 64; rounds++) {
        before = count;
        while (waitpid(-1, NULL, __WALL | WNOHANG) > 0)
            ; /* the dead would only fill the list */
        count = find_all(state);
        for (size_t i = 0; i < count; i++)
            signal_one(i, SIGSTOP);
    }
    for (size_t i = 0; i < count; i++)
        signal_one(i, SIGKILL);
}

/* Nobody can escape, as an orphan becomes our child; when we have no child left, nobody is left. */
static void end_all(const struct cb_cell_state *state)
{
    for (;;) {
        if (state->fenced)
            kill(-1, SIGKILL);
        else
            kill_by_number(state);
        pid_t waited = 1;
        while (waited > 0)
            waited = waitpid(-1, NULL, __WALL | WNOHANG);
        if (waited < 0 && errno == ECHILD)
            return;
        const struct timespec moment = {.tv_nsec = 1000000}; /* not for ever: a round may have missed somebody */
        nanosleep(&moment, NULL);
    }
}

void cb_warden_clean_up(struct cb_cell_state *state)
{
    if (state->children >= 0)
        end_all(state);
    remove_private(state);
}
