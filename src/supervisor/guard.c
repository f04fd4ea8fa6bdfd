/* The guard: keeps protected names from coming into being, with nothing left on the host.
 *
 * In a guarded area (a writable directory that a protected path is missing from) Landlock refuses the code every new
 * directory and symbolic link, so nothing here has to be trusted to refuse: doing nothing is safe, and letting a call
 * go on in the kernel ("continue") is safe even if another thread changes its arguments meanwhile. What the guard adds
 * is permission. It reads the call's arguments once, finds the parent directory in the cell's own tree, checks the name
 * against the list, and makes the harmless directory, link or rename itself, through that descriptor.
 *
 * Runs in the supervisor. As root it acts with the cell's file system ids, and so without root's override of modes. */
#include "supervisor/supervisor.h"

#include "base/cleanup.h"
#include "base/missing.h"
#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>

/* One place that a call names: the directory, opened, and the last component. */
struct spot {
    int parent;
    char name[NAME_MAX + 1];
    char path[PATH_MAX];    /* in the cell, canonical up to the parent */
    bool trailing_slash;
};
#define SPOT_INIT {.parent = -1}
#define autospot __attribute__((cleanup(spot_end)))

static void spot_end(struct spot *spot)
{
    cb_close_cleanup(&spot->parent);
}

struct call {
    struct cellblock_cell *cell;
    const struct cb_seccomp_notif *notice;
};

/* What to tell the kernel: a negative errno, 0 (done), or "go on". */
enum { GO_ON = 1 };

static bool still_waiting(const struct call *call)
{
    uint64_t id = call->notice->id;
    return ioctl(call->cell->listener, CB_SECCOMP_IOCTL_NOTIF_ID_VALID, &id) == 0;
}

static int read_string(const struct call *call, uint64_t address, char text[PATH_MAX])
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

/* Where a relative path starts, as the cell spells it. */
static int start_of(const struct call *call, int directory_fd, char path[PATH_MAX])
{
    char link[64];
    if (directory_fd == AT_FDCWD)
        snprintf(link, sizeof link, "/proc/%u/cwd", call->notice->pid);
    else
        snprintf(link, sizeof link, "/proc/%u/fd/%d", call->notice->pid, directory_fd);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    if (length < 0)
        return directory_fd == AT_FDCWD ? -ENOENT : -EBADF;
    path[length] = '\0';
    static const char deleted[] = " (deleted)";
    size_t tail = sizeof deleted - 1;
    if ((size_t)length > tail && strcmp(path + (size_t)length - tail, deleted) == 0)
        return -ENOENT;
    return path[0] == '/' ? 0 : -ENOTDIR;
}

/* Opens the parent of the path that a call names, inside the cell's root and nowhere else. */
static int find_spot(const struct call *call, int directory_fd, uint64_t address, struct spot *spot)
{
    char given[PATH_MAX], start[PATH_MAX] = "";
    int failed = read_string(call, address, given);
    if (failed)
        return failed;
    if (!given[0])
        return -ENOENT;
    size_t length = strlen(given);
    while (length > 1 && given[length - 1] == '/') {
        given[--length] = '\0';
        spot->trailing_slash = true;
    }
    if (given[0] != '/' && (failed = start_of(call, directory_fd, start)))
        return failed;
    char *slash = strrchr(given, '/');
    const char *name = slash ? slash + 1 : given;
    if (!name[0] || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return -EEXIST; /* what the kernel says of making any of these */
    if (strlen(name) > NAME_MAX)
        return -ENAMETOOLONG;
    memcpy(spot->name, name, strlen(name) + 1);
    if (slash)
        *slash = '\0';
    cb_autofree char *parent = cb_format("%s/%s", start, slash ? given : "");
    if (!parent)
        return -ENOMEM;
    struct cb_open_how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
                              .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};
    spot->parent = cb_sys_openat2(call->cell->root, parent, &how);
    if (spot->parent < 0)
        return -errno;
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", spot->parent);
    ssize_t got = readlink(link, spot->path, sizeof spot->path - 1);
    if (got < 0 || (size_t)got + strlen(spot->name) + 2 > sizeof spot->path)
        return -ENAMETOOLONG;
    spot->path[got] = '\0';
    if (got > 1)
        spot->path[got++] = '/';
    memcpy(spot->path + got, spot->name, strlen(spot->name) + 1);
    return 0;
}

/* Case is folded: on a file system that does not tell cases apart, ".Git" is ".git". */
static bool same_or_above(const char *path, const char *listed)
{
    size_t length = strlen(path);
    return strncasecmp(listed, path, length) == 0 && (listed[length] == '\0' || listed[length] == '/');
}

static bool is_guarded(const struct cb_guard *guard, const struct spot *spot)
{
    for (size_t i = 0; i < guard->area_count; i++)
        if (cb_path_within(spot->path, guard->areas[i]))
            return true;
    return false;
}

static bool is_protected(const struct cb_guard *guard, const struct spot *spot)
{
    for (size_t i = 0; i < guard->absent_count; i++)
        if (strcasecmp(spot->path, guard->absents[i]) == 0)
            return true;
    return false;
}

/* A protected path lies at or below this name: something ready-made must not be put in its place. */
static bool leads_to_protected(const struct cb_guard *guard, const struct spot *spot)
{
    for (size_t i = 0; i < guard->absent_count; i++)
        if (same_or_above(spot->path, guard->absents[i]))
            return true;
    return false;
}

static bool is_fixed(const struct cb_guard *guard, const struct spot *spot)
{
    for (size_t i = 0; i < guard->fixed_count; i++)
        if (same_or_above(spot->path, guard->fixed[i]))
            return true;
    return false;
}

static int refuse(const struct call *call, const struct spot *spot)
{
    const struct cb_resolved *resolved = call->cell->plan->resolved;
    const struct cb_file_rule *rule = NULL;
    for (size_t i = 0; i < resolved->absent_count && !rule; i++)
        if (same_or_above(spot->path, resolved->absents[i].path))
            rule = resolved->absents[i].rule;
    cb_denial_note(call->cell, "file.create", spot->path, rule);
    return -EACCES;
}

/* ---- Acting for the code ---- */

static mode_t umask_of(const struct call *call)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%u/status", call->notice->pid);
    cb_autofd int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (length <= 0)
        return 077;
    text[length] = '\0';
    const char *line = strstr(text, "\nUmask:");
    return line ? (mode_t)strtoul(line + 7, NULL, 8) : 077;
}

/* As root, everything is looked at and done with the cell's file system ids; leaving id 0 takes root's file
 * capabilities away, coming back restores them. The raw calls change this thread only. They also clear two settings
 * of the process that are not ours to lose. */
static int decide(const struct call *call);

static int decide_as_cell(const struct call *call)
{
    const struct cb_plan *plan = call->cell->plan;
    int death_signal = 0;
    if (!plan->privileged)
        return decide(call);
    prctl(PR_GET_PDEATHSIG, &death_signal);
    int dumpable = prctl(PR_GET_DUMPABLE);
    syscall(SYS_setfsgid, plan->outside_gid);
    syscall(SYS_setfsuid, plan->outside_uid);
    int answer = decide(call);
    syscall(SYS_setfsuid, geteuid());
    syscall(SYS_setfsgid, getegid());
    prctl(PR_SET_PDEATHSIG, death_signal);
    if (dumpable == 0 || dumpable == 1)
        prctl(PR_SET_DUMPABLE, dumpable);
    return answer;
}

/* Our own umask also counts and can't be changed without touching other threads: mend the mode where it took more. */
static void mend_mode(const struct spot *spot, mode_t wanted)
{
    cb_autofd int fd = openat(spot->parent, spot->name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat found;
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (fd >= 0 && fstat(fd, &found) == 0 && (found.st_mode & 0777) != wanted)
        chmod(path, (found.st_mode & 07000) | wanted);
}

static int make_directory(const struct call *call, int directory_fd, uint64_t address, mode_t mode)
{
    autospot struct spot spot = SPOT_INIT;
    int failed = find_spot(call, directory_fd, address, &spot);
    const struct cb_guard *guard = &call->cell->plan->guard;
    if (failed)
        return GO_ON; /* the kernel finds the same fault and words it right */
    if (!is_guarded(guard, &spot))
        return GO_ON;
    if (is_protected(guard, &spot))
        return refuse(call, &spot);
    mode_t wanted = mode & 0777 & ~umask_of(call);
    if (!still_waiting(call))
        return -ESRCH;
    failed = mkdirat(spot.parent, spot.name, wanted | (mode & S_ISVTX)) < 0 ? -errno : 0;
    if (!failed)
        mend_mode(&spot, wanted);
    return failed;
}

static int make_symlink(const struct call *call, uint64_t target_address, int directory_fd, uint64_t address)
{
    autospot struct spot spot = SPOT_INIT;
    const struct cb_guard *guard = &call->cell->plan->guard;
    char target[PATH_MAX];
    if (find_spot(call, directory_fd, address, &spot) || !is_guarded(guard, &spot) || spot.trailing_slash)
        return GO_ON;
    int failed = read_string(call, target_address, target);
    if (failed)
        return failed;
    if (leads_to_protected(guard, &spot))
        return refuse(call, &spot);
    if (!still_waiting(call))
        return -ESRCH;
    failed = symlinkat(target, spot.parent, spot.name) < 0 ? -errno : 0;
    return failed;
}

/* Does Landlock let the code do this rename by itself? It lets plain files be renamed, unless files are watched too. */
static bool kernel_renames(const struct cb_guard *guard, const struct spot *from, const struct spot *to, unsigned flags,
                           struct stat *found)
{
    bool exchange = flags & RENAME_EXCHANGE;
    struct stat other;
    if (!is_guarded(guard, to) && !is_guarded(guard, from))
        return true;
    if (fstatat(from->parent, from->name, found, AT_SYMLINK_NOFOLLOW) < 0)
        return true; /* it finds the same fault and words it right */
    bool plain = S_ISREG(found->st_mode);
    if (exchange && fstatat(to->parent, to->name, &other, AT_SYMLINK_NOFOLLOW) == 0)
        plain = plain && S_ISREG(other.st_mode);
    return plain && !guard->files;
}

/* 0 when it may be done, or a negative errno. */
static int judge_rename(const struct call *call, const struct spot *from, const struct spot *to, unsigned flags,
                        const struct stat *found)
{
    const struct cb_guard *guard = &call->cell->plan->guard;
    if (leads_to_protected(guard, to))
        return refuse(call, to);
    if (leads_to_protected(guard, from))
        return refuse(call, from); /* a directory that a protected path would lie in must not be carried off */
    if (is_fixed(guard, from) || is_fixed(guard, to))
        return -EBUSY;
    if (flags & ~(unsigned)(RENAME_NOREPLACE | RENAME_EXCHANGE))
        return -EINVAL; /* no whiteouts: they are device nodes */
    return (from->trailing_slash || to->trailing_slash) && !S_ISDIR(found->st_mode) ? -ENOTDIR : 0;
}

static int rename_entry(const struct call *call, int old_fd, uint64_t old_address, int new_fd, uint64_t new_address,
                        unsigned flags)
{
    autospot struct spot from = SPOT_INIT, to = SPOT_INIT;
    struct stat found = {0};
    if (find_spot(call, old_fd, old_address, &from) || find_spot(call, new_fd, new_address, &to) ||
        kernel_renames(&call->cell->plan->guard, &from, &to, flags, &found))
        return GO_ON;
    int failed = judge_rename(call, &from, &to, flags, &found);
    if (failed)
        return failed;
    if (!still_waiting(call))
        return -ESRCH;
    return syscall(SYS_renameat2, from.parent, from.name, to.parent, to.name, flags) < 0 ? -errno : 0;
}

/* Making a file, when even a file may not come under a protected name. Opened here, handed to the caller as its own. */
static int create_file(const struct call *call, int directory_fd, uint64_t address, int flags, mode_t mode)
{
    autospot struct spot spot = SPOT_INIT;
    const struct cb_guard *guard = &call->cell->plan->guard;
    struct stat found;
    if (find_spot(call, directory_fd, address, &spot) || !is_guarded(guard, &spot) || spot.trailing_slash)
        return GO_ON;
    if (fstatat(spot.parent, spot.name, &found, AT_SYMLINK_NOFOLLOW) == 0)
        return GO_ON; /* it exists: nothing is made (and Landlock sees to that) */
    if (errno != ENOENT || flags & O_PATH)
        return GO_ON;
    if (is_protected(guard, &spot))
        return refuse(call, &spot);
    if ((flags & O_TMPFILE) == O_TMPFILE)
        return -EOPNOTSUPP; /* programs then make a named file */
    mode_t wanted = mode & 0777 & ~umask_of(call);
    if (!still_waiting(call))
        return -ESRCH;
    cb_autofd int fd = openat(spot.parent, spot.name, flags | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY | O_NONBLOCK,
                              wanted);
    int failed = fd < 0 ? -errno : 0;
    if (fd >= 0 && fstat(fd, &found) == 0 && S_ISREG(found.st_mode) && (found.st_mode & 0777) != wanted)
        fchmod(fd, wanted);
    if (failed)
        return failed;
    if (!(flags & O_NONBLOCK))
        fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
    struct cb_seccomp_notif_addfd add = {.id = call->notice->id,
                                         .flags = SECCOMP_ADDFD_FLAG_SEND,
                                         .srcfd = (uint32_t)fd,
                                         .newfd_flags = (uint32_t)(flags & O_CLOEXEC)};
    return ioctl(call->cell->listener, CB_SECCOMP_IOCTL_NOTIF_ADDFD, &add) < 0 ? -errno : INT_MAX;
}

static int decide(const struct call *call)
{
    const uint64_t *a = (const uint64_t *)call->notice->data.args;
    switch (call->notice->data.nr) {
#ifdef SYS_mkdir
    case SYS_mkdir:
        return make_directory(call, AT_FDCWD, a[0], (mode_t)a[1]);
    case SYS_symlink:
        return make_symlink(call, a[0], AT_FDCWD, a[1]);
    case SYS_rename:
        return rename_entry(call, AT_FDCWD, a[0], AT_FDCWD, a[1], 0);
    case SYS_open:
        return create_file(call, AT_FDCWD, a[0], (int)a[1], (mode_t)a[2]);
    case SYS_creat:
        return create_file(call, AT_FDCWD, a[0], O_CREAT | O_WRONLY | O_TRUNC, (mode_t)a[1]);
#endif
    case SYS_mkdirat:
        return make_directory(call, (int)a[0], a[1], (mode_t)a[2]);
    case SYS_symlinkat:
        return make_symlink(call, a[0], (int)a[1], a[2]);
#ifdef SYS_renameat
    case SYS_renameat:
        return rename_entry(call, (int)a[0], a[1], (int)a[2], a[3], 0);
#endif
    case SYS_renameat2:
        return rename_entry(call, (int)a[0], a[1], (int)a[2], a[3], (unsigned)a[4]);
    case SYS_openat:
        return create_file(call, (int)a[0], a[1], (int)a[2], (mode_t)a[3]);
    default:
        return -EPERM;
    }
}

void cb_guard_answer(struct cellblock_cell *cell)
{
    union {
        struct cb_seccomp_notif notice;
        char room[512]; /* a newer kernel may have more to say */
    } received = {0};
    union {
        struct cb_seccomp_notif_resp response;
        char room[512];
    } sent = {0};
    if (ioctl(cell->listener, CB_SECCOMP_IOCTL_NOTIF_RECV, &received) < 0) {
        if (errno != EINTR && errno != ENOENT && errno != EAGAIN) /* nobody is left who could call */
            epoll_ctl(cell->epoll, EPOLL_CTL_DEL, cell->listener, NULL);
        return;
    }
    const struct call call = {.cell = cell, .notice = &received.notice};
    int answer = decide_as_cell(&call);
    if (answer == INT_MAX)
        return; /* answered together with the descriptor */
    sent.response.id = received.notice.id;
    if (answer == GO_ON)
        sent.response.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
    else
        sent.response.error = answer;
    ioctl(cell->listener, CB_SECCOMP_IOCTL_NOTIF_SEND, &sent);
}
