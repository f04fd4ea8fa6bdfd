/* The guard: keeps protected names from coming into being, with nothing left on the host.
 *
 * In a guarded area (a writable directory that a protected path is missing from) Landlock refuses the code every new
 * directory and symbolic link, so nothing here has to be trusted to refuse: doing nothing is safe, and letting a call
 * go on in the kernel ("continue") is safe even if another thread changes its arguments meanwhile. What the guard adds
 * is permission. It reads the call's arguments once, finds the parent directory in the cell's own tree, checks the name
 * against the list, and makes the harmless directory, link or rename itself, through that descriptor.
 *
 * Runs in the supervisor (notify.c), with the file system ids of the code, but outside of its Landlock rules. With
 * namespaces the tree that it acts in is the cell's own, and read-only where the code may not write. In tier landlock it
 * is the host's: there every place is checked to be one that the code may write (may_act). */
#include "supervisor/paths.h"

#include "base/cleanup.h"
#include "base/missing.h"
#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <sys/syscall.h>

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

/* Where a relative path starts, as the cell spells it. */
static int start_of(const struct cb_call *call, int directory_fd, char path[PATH_MAX])
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
static int find_spot(const struct cb_call *call, int directory_fd, uint64_t address, struct spot *spot)
{
    char given[PATH_MAX], start[PATH_MAX] = "";
    int failed = cb_call_read_string(call, address, given);
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
    size_t end = cb_path_of(spot->parent, spot->path) == 0 ? strlen(spot->path) : sizeof spot->path;
    if (end + strlen(spot->name) + 2 > sizeof spot->path)
        return -ENAMETOOLONG;
    if (end > 1)
        spot->path[end++] = '/';
    memcpy(spot->path + end, spot->name, strlen(spot->name) + 1);
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

static int refuse(const struct cb_call *call, const struct spot *spot)
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

static bool may_act(const struct cb_call *call, const struct spot *spot)
{
    const struct cb_plan *plan = call->cell->plan;
    return plan->tier == CB_TIER_NAMESPACES || cb_plan_grants_write(plan, spot->path);
}

static mode_t umask_of(const struct cb_call *call)
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

/* Our own umask also counts and can't be changed without touching other threads: mend the mode where it took more. */
static void mend_mode(const struct spot *spot, mode_t wanted)
{
    cb_autofd int fd = openat(spot->parent, spot->name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat found;
    char path[64];
    cb_path_to(fd, path);
    if (fd >= 0 && fstat(fd, &found) == 0 && (found.st_mode & 0777) != wanted)
        chmod(path, (found.st_mode & 07000) | wanted);
}

static int make_directory(const struct cb_call *call, int directory_fd, uint64_t address, mode_t mode)
{
    autospot struct spot spot = SPOT_INIT;
    int failed = find_spot(call, directory_fd, address, &spot);
    const struct cb_guard *guard = &call->cell->plan->guard;
    if (failed)
        return CB_CALL_GO_ON; /* the kernel finds the same fault and words it right */
    if (!is_guarded(guard, &spot))
        return CB_CALL_GO_ON;
    if (is_protected(guard, &spot))
        return refuse(call, &spot);
    if (!may_act(call, &spot))
        return CB_CALL_GO_ON;
    mode_t wanted = mode & 0777 & ~umask_of(call);
    if (!cb_call_waits(call))
        return -ESRCH;
    failed = mkdirat(spot.parent, spot.name, wanted | (mode & S_ISVTX)) < 0 ? -errno : 0;
    if (!failed)
        mend_mode(&spot, wanted);
    return failed;
}

static int make_symlink(const struct cb_call *call, uint64_t target_address, int directory_fd, uint64_t address)
{
    autospot struct spot spot = SPOT_INIT;
    const struct cb_guard *guard = &call->cell->plan->guard;
    char target[PATH_MAX];
    if (find_spot(call, directory_fd, address, &spot) || !is_guarded(guard, &spot) || spot.trailing_slash)
        return CB_CALL_GO_ON;
    int failed = cb_call_read_string(call, target_address, target);
    if (failed)
        return failed;
    if (leads_to_protected(guard, &spot))
        return refuse(call, &spot);
    if (!may_act(call, &spot))
        return CB_CALL_GO_ON;
    if (!cb_call_waits(call))
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

/* 0 when it may be done, or what to answer. */
static int judge_rename(const struct cb_call *call, const struct spot *from, const struct spot *to, unsigned flags,
                        const struct stat *found)
{
    const struct cb_guard *guard = &call->cell->plan->guard;
    if (leads_to_protected(guard, to))
        return refuse(call, to);
    if (leads_to_protected(guard, from))
        return refuse(call, from); /* a directory that a protected path would lie in must not be carried off */
    if (!may_act(call, from) || !may_act(call, to))
        return CB_CALL_GO_ON;
    if (is_fixed(guard, from) || is_fixed(guard, to))
        return -EBUSY;
    if (flags & ~(unsigned)(RENAME_NOREPLACE | RENAME_EXCHANGE))
        return -EINVAL; /* no whiteouts: they are device nodes */
    return (from->trailing_slash || to->trailing_slash) && !S_ISDIR(found->st_mode) ? -ENOTDIR : 0;
}

static int rename_entry(const struct cb_call *call, int old_fd, uint64_t old_address, int new_fd, uint64_t new_address,
                        unsigned flags)
{
    autospot struct spot from = SPOT_INIT, to = SPOT_INIT;
    struct stat found = {0};
    if (find_spot(call, old_fd, old_address, &from) || find_spot(call, new_fd, new_address, &to) ||
        kernel_renames(&call->cell->plan->guard, &from, &to, flags, &found))
        return CB_CALL_GO_ON;
    int answer = judge_rename(call, &from, &to, flags, &found);
    if (answer)
        return answer;
    if (!cb_call_waits(call))
        return -ESRCH;
    return syscall(SYS_renameat2, from.parent, from.name, to.parent, to.name, flags) < 0 ? -errno : 0;
}

/* Making a file, when even a file may not come under a protected name. Opened here, handed to the caller as its own. */
static int create_file(const struct cb_call *call, int directory_fd, uint64_t address, int flags, mode_t mode)
{
    autospot struct spot spot = SPOT_INIT;
    const struct cb_guard *guard = &call->cell->plan->guard;
    struct stat found;
    if (find_spot(call, directory_fd, address, &spot) || !is_guarded(guard, &spot) || spot.trailing_slash)
        return CB_CALL_GO_ON;
    if (fstatat(spot.parent, spot.name, &found, AT_SYMLINK_NOFOLLOW) == 0)
        return CB_CALL_GO_ON; /* it exists: nothing is made (and Landlock sees to that) */
    if (errno != ENOENT || flags & O_PATH)
        return CB_CALL_GO_ON;
    if (is_protected(guard, &spot))
        return refuse(call, &spot);
    if (!may_act(call, &spot))
        return CB_CALL_GO_ON;
    if ((flags & O_TMPFILE) == O_TMPFILE)
        return -EOPNOTSUPP; /* programs then make a named file */
    mode_t wanted = mode & 0777 & ~umask_of(call);
    if (!cb_call_waits(call))
        return -ESRCH;
    cb_autofd int fd = openat(spot.parent, spot.name,
                              flags | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, wanted);
    if (fd < 0 && errno == EEXIST && !(flags & O_EXCL))
        return CB_CALL_GO_ON; /* it came just now: nothing is left to make */
    int failed = fd < 0 ? -errno : 0;
    if (fd >= 0 && fstat(fd, &found) == 0 && S_ISREG(found.st_mode) && (found.st_mode & 0777) != wanted)
        fchmod(fd, wanted);
    if (failed)
        return failed;
    if (!(flags & O_NONBLOCK))
        fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
    return cb_call_give(call, fd, flags & O_CLOEXEC);
}

int cb_guard_decide(const struct cb_call *call)
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
