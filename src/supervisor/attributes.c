/* Modes, owners and times in tier landlock, and truncating by name where Landlock can't tell that from reading.
 *
 * Landlock has no rights for these, and without mounts of its own nothing else keeps the code from a file that belongs
 * to its id. So the filter keeps them from the code altogether, and the supervisor changes what the policy lets it
 * write. The kernel is never told to go on with such a call: its arguments could be others by then. They are read once;
 * the object is opened (O_PATH), and asked for its path; what the policy says of that path is what counts; and the
 * change is made through that descriptor, so on exactly what was judged.
 *
 * Runs in the supervisor (notify.c), which for that time has no capabilities: the kernel judges owners and modes as it
 * would for the code, which has the same id. */
#include "supervisor/paths.h"

#include "base/cleanup.h"
#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* What a call names. */
struct target {
    int directory;
    bool itself;            /* the descriptor, and no path below it */
    uint64_t path;          /* in the caller's memory */
    int flags;              /* AT_* */
};
#define NAMED(from, name, how) ((struct target){.directory = (int)(from), .path = (name), .flags = (int)(how)})
#define ITSELF(number) ((struct target){.directory = (int)(number), .itself = true})

struct object {
    int fd;
    struct stat found;
    char path[PATH_MAX];
};
#define OBJECT_INIT {.fd = -1}
#define autoobject __attribute__((cleanup(object_end)))

static void object_end(struct object *object)
{
    cb_close_cleanup(&object->fd);
}

/* ---- Finding it ---- */

/* The C libraries spell a descriptor that is only a name like this. It is the caller's, not ours. */
static int own_descriptor(const char *path)
{
    static const char *const spellings[] = {"/proc/self/fd/", "/proc/thread-self/fd/", "/dev/fd/"};
    for (size_t i = 0; i < sizeof spellings / sizeof *spellings; i++)
        if (cb_has_prefix(path, spellings[i])) {
            const char *digits = path + strlen(spellings[i]);
            size_t count = strspn(digits, "0123456789");
            return count > 0 && count < 10 && digits[count] == '\0' ? (int)strtol(digits, NULL, 10) : -1;
        }
    return -1;
}

static int open_path(const struct cb_call *call, int directory, const char *path, bool follow)
{
    if (follow && own_descriptor(path) >= 0)
        return cb_call_open(call, own_descriptor(path));
    cb_autofd int start = path[0] == '/' ? -1 : cb_call_open(call, directory);
    if (path[0] != '/' && start < 0)
        return start;
    /* The other links of /proc would be ours. */
    struct cb_open_how how = {.flags = (uint64_t)(O_PATH | O_CLOEXEC | (follow ? 0 : O_NOFOLLOW)),
                              .resolve = RESOLVE_NO_MAGICLINKS};
    int fd = cb_sys_openat2(path[0] == '/' ? call->cell->root : start, path, &how);
    return fd < 0 ? -errno : fd;
}

static int open_object(const struct cb_call *call, const struct target *target)
{
    char path[PATH_MAX] = "";
    if (target->flags & ~(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH))
        return -EINVAL;
    if (target->itself)
        return target->directory < 0 ? -EBADF : cb_call_open(call, target->directory);
    int failed = cb_call_read_string(call, target->path, path);
    if (failed)
        return failed;
    if (path[0])
        return open_path(call, target->directory, path, !(target->flags & AT_SYMLINK_NOFOLLOW));
    return target->flags & AT_EMPTY_PATH ? cb_call_open(call, target->directory) : -ENOENT;
}

/* ---- Judging it ---- */

/* Pipes, sockets and memory files have no name that anybody could open them by. */
static bool is_nameless(const struct object *object)
{
    if (object->path[0] != '/')
        return S_ISFIFO(object->found.st_mode) || S_ISSOCK(object->found.st_mode);
    return object->found.st_nlink == 0 && cb_has_prefix(object->path, "/memfd:");
}

static int find(const struct cb_call *call, const struct target *target, struct object *object)
{
    object->fd = open_object(call, target);
    if (object->fd < 0)
        return object->fd;
    int failed = cb_path_of(object->fd, object->path);
    if (failed || fstat(object->fd, &object->found) < 0)
        return failed ? failed : -errno;
    const struct cb_plan *plan = call->cell->plan;
    if (!is_nameless(object) && !cb_plan_grants_write(plan, object->path)) {
        cb_denial_note(call->cell, "file.attributes", object->path,
                       cb_decide_file(plan->resolved->policy, object->path).rule);
        return -EPERM;
    }
    return cb_call_waits(call) ? 0 : -ESRCH;
}

/* ---- Changing it ---- */

static int change_mode(const struct cb_call *call, struct target target, mode_t mode)
{
    autoobject struct object object = OBJECT_INIT;
    if (mode & (S_ISUID | S_ISGID))
        return -EPERM;
    int failed = find(call, &target, &object);
    if (failed)
        return failed;
    if (S_ISLNK(object.found.st_mode))
        return -EOPNOTSUPP; /* some file systems change it and complain afterwards */
    char name[64];
    cb_path_to(object.fd, name);
    return chmod(name, mode & 07777) < 0 ? -errno : 0;
}

/* To those that it has: what an ordinary user may do, and what copying programs try. */
static int change_owner(const struct cb_call *call, struct target target, uid_t user, gid_t group)
{
    autoobject struct object object = OBJECT_INIT;
    int failed = find(call, &target, &object);
    if (failed)
        return failed;
    if ((user != (uid_t)-1 && user != object.found.st_uid) || (group != (gid_t)-1 && group != object.found.st_gid))
        return -EPERM;
    return fchownat(object.fd, "", user, group, AT_EMPTY_PATH) < 0 ? -errno : 0;
}

enum unit { SECONDS, MICROSECONDS, NANOSECONDS };

static int read_times(const struct cb_call *call, uint64_t address, enum unit unit, struct timespec times[2])
{
    int64_t numbers[4] = {0};
    size_t each = unit == SECONDS ? 1 : 2;
    int failed = cb_call_read(call, address, numbers, 2 * each * sizeof *numbers);
    if (failed)
        return failed;
    for (size_t i = 0; i < 2; i++) {
        int64_t part = unit == SECONDS ? 0 : numbers[each * i + 1];
        if (unit == MICROSECONDS && (part < 0 || part >= 1000000))
            return -EINVAL;
        times[i] = (struct timespec){.tv_sec = numbers[each * i], .tv_nsec = unit == MICROSECONDS ? part * 1000 : part};
    }
    return 0;
}

static int change_times(const struct cb_call *call, struct target target, uint64_t address, enum unit unit)
{
    autoobject struct object object = OBJECT_INIT;
    struct timespec times[2];
    int failed = address ? read_times(call, address, unit, times) : 0;
    if (!failed)
        failed = find(call, &target, &object);
    if (failed)
        return failed;
    return syscall(SYS_utimensat, object.fd, "", address ? times : NULL, AT_EMPTY_PATH) < 0 ? -errno : 0;
}

/* The size limit that counts is the caller's, and the kernel would ask for ours. */
static int cut(const struct cb_call *call, struct target target, off_t length)
{
    autoobject struct object object = OBJECT_INIT;
    struct rlimit limit;
    if (length < 0)
        return -EINVAL;
    int failed = find(call, &target, &object);
    if (failed)
        return failed;
    if (!S_ISREG(object.found.st_mode))
        return S_ISDIR(object.found.st_mode) ? -EISDIR : -EINVAL;
    if (prlimit((pid_t)call->notice->pid, RLIMIT_FSIZE, NULL, &limit) < 0)
        return -errno;
    if ((rlim_t)length > limit.rlim_cur && length > object.found.st_size)
        return -EFBIG;
    char name[64];
    cb_path_to(object.fd, name);
    /* Not truncate() by name, which would wait for a lease that the code itself may hold. */
    cb_autofd int file = open(name, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (file < 0)
        return errno == EWOULDBLOCK ? -EAGAIN : -errno;
    return ftruncate(file, length) < 0 ? -errno : 0;
}

int cb_attributes_decide(const struct cb_call *call)
{
    const uint64_t *a = (const uint64_t *)call->notice->data.args;
    switch (call->notice->data.nr) {
#ifdef SYS_chmod
    case SYS_chmod:
        return change_mode(call, NAMED(AT_FDCWD, a[0], 0), (mode_t)a[1]);
    case SYS_chown:
        return change_owner(call, NAMED(AT_FDCWD, a[0], 0), (uid_t)a[1], (gid_t)a[2]);
    case SYS_lchown:
        return change_owner(call, NAMED(AT_FDCWD, a[0], AT_SYMLINK_NOFOLLOW), (uid_t)a[1], (gid_t)a[2]);
    case SYS_utime:
        return change_times(call, NAMED(AT_FDCWD, a[0], 0), a[1], SECONDS);
    case SYS_utimes:
        return change_times(call, NAMED(AT_FDCWD, a[0], 0), a[1], MICROSECONDS);
    case SYS_futimesat:
        return change_times(call, a[1] || (int)a[0] == AT_FDCWD ? NAMED(a[0], a[1], 0) : ITSELF(a[0]), a[2],
                            MICROSECONDS);
#endif
    case SYS_fchmod:
        return change_mode(call, ITSELF(a[0]), (mode_t)a[1]);
    case SYS_fchmodat:
        return change_mode(call, NAMED(a[0], a[1], 0), (mode_t)a[2]);
    case CB_SYS_FCHMODAT2:
        return change_mode(call, NAMED(a[0], a[1], a[3]), (mode_t)a[2]);
    case SYS_fchown:
        return change_owner(call, ITSELF(a[0]), (uid_t)a[1], (gid_t)a[2]);
    case SYS_fchownat:
        return change_owner(call, NAMED(a[0], a[1], a[4]), (uid_t)a[2], (gid_t)a[3]);
    case SYS_utimensat:
        return change_times(call, a[1] || (int)a[0] == AT_FDCWD ? NAMED(a[0], a[1], a[3]) : ITSELF(a[0]), a[2],
                            NANOSECONDS);
    case SYS_truncate:
        return cut(call, NAMED(AT_FDCWD, a[0], 0), (off_t)a[1]);
    default:
        return CB_CALL_OTHER;
    }
}
