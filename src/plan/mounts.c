/* The root of the cell: from places, links and the fixed furniture (/proc, /dev, scratch directories) to one ordered
 * list of steps. A path that no step makes does not exist in the cell.
 *
 * Three kinds of ground can lie under a path: the private root, a scratch directory (both ours: directories and mount
 * points are made there as needed), or a bind of the host (not ours: a mount point must be there already, and is, since
 * every bind sits under its own path). */
#include "plan/plan.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/missing.h"
#include "base/text.h"
#include "policy/workspace.h"

#include <fcntl.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

static const char *const device_nodes[] = {"null", "zero", "full", "random", "urandom", "tty"};

/* Files of /proc that the read-only mount and the file's own mode already guard, or should: masked all the same. */
static const char *const masked_proc[] = {"/proc/kcore", "/proc/keys", "/proc/sysrq-trigger", "/proc/timer_list"};

static struct cb_step *add_step(struct cb_plan *plan, enum cb_step_kind kind, const char *path, cellblock_error **error)
{
    struct cb_step *step = cb_array_push(&plan->steps, &plan->step_count);
    if (!step) {
        cb_fail_memory(error);
        return NULL;
    }
    step->kind = kind;
    step->checked = step->tree = -1;
    step->at = strdup(path[0] == '/' ? path + 1 : path);
    if (!step->at) {
        cb_fail_memory(error);
        return NULL;
    }
    return step;
}

static bool step_covers(const struct cb_step *step, const char *path)
{
    size_t length = strlen(step->at);
    return strncmp(path + 1, step->at, length) == 0 && (path[length + 1] == '\0' || path[length + 1] == '/');
}

static bool is_mount(const struct cb_step *step)
{
    return step->kind >= CB_STEP_BIND;
}

/* The innermost mount so far that holds a path; NULL is the private root. */
static const struct cb_step *ground_of(const struct cb_plan *plan, const char *path)
{
    const struct cb_step *best = NULL;
    for (size_t i = 0; i < plan->step_count; i++) {
        const struct cb_step *step = &plan->steps[i];
        if (is_mount(step) && step_covers(step, path) && (!best || strlen(step->at) >= strlen(best->at)))
            best = step;
    }
    return best;
}

static bool is_ours(const struct cb_step *ground)
{
    return !ground || ground->kind == CB_STEP_SCRATCH || ground->kind == CB_STEP_VEIL;
}

static bool exists_already(const struct cb_plan *plan, const char *path)
{
    for (size_t i = 0; i < plan->step_count; i++)
        if (strcmp(plan->steps[i].at, path + 1) == 0)
            return true;
    return false;
}

/* Makes the directories above a path, where the ground is ours. */
static int make_parents(struct cb_plan *plan, const char *path, cellblock_error **error)
{
    cb_autofree char *part = strdup(path);
    if (!part)
        return cb_fail_memory(error);
    for (char *slash = strchr(part + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (!exists_already(plan, part) && is_ours(ground_of(plan, part)) &&
            !add_step(plan, CB_STEP_DIRECTORY, part, error))
            return -1;
        *slash = '/';
    }
    return 0;
}

/* Makes what a mount will sit on, where the ground is ours. */
static int make_mount_point(struct cb_plan *plan, const char *path, bool directory, cellblock_error **error)
{
    if (make_parents(plan, path, error) < 0)
        return -1;
    if (!is_ours(ground_of(plan, path)) || exists_already(plan, path))
        return 0;
    return add_step(plan, directory ? CB_STEP_DIRECTORY : CB_STEP_FILE, path, error) ? 0 : -1;
}

static int add_scratch(struct cb_plan *plan, const char *path, const char *name, cellblock_error **error)
{
    if (make_mount_point(plan, path, true, error) < 0)
        return -1;
    struct cb_step *step = add_step(plan, CB_STEP_SCRATCH, path, error);
    if (!step)
        return -1;
    step->directory = true;
    step->access = CB_ACCESS_WRITE;
    step->source = strdup(name);
    return step->source ? 0 : cb_fail_memory(error);
}

/* The system's files keep their owners even when root grants them: an idmapped view of /etc would show /etc/shadow. */
static bool wants_idmap(const struct cb_plan *plan, const struct cb_place *place)
{
    return plan->privileged && place->callers_own && !cb_is_system_path(place->path);
}

/* A directory between a writable bind and something protected in it: mounted on itself, so that it can't be renamed
 * and another put in its place. */
static int pin_parents(struct cb_plan *plan, const char *path, cellblock_error **error)
{
    const struct cb_step *ground = ground_of(plan, path);
    size_t start = strlen(ground->at) + 1;
    cb_autofree char *part = strdup(path);
    if (!part)
        return cb_fail_memory(error);
    for (char *slash = strchr(part + start + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (!exists_already(plan, part)) {
            struct cb_open_how how = {.flags = O_PATH | O_CLOEXEC | O_DIRECTORY, .resolve = RESOLVE_NO_SYMLINKS};
            cb_autofd int fd = cb_sys_openat2(AT_FDCWD, part, &how);
            struct stat found;
            if (fd < 0 || fstat(fd, &found) < 0)
                return cb_fail_errno(error, "looking at %s", part);
            struct cb_step *step = add_step(plan, CB_STEP_REBIND, part, error);
            if (!step)
                return -1;
            step->directory = true;
            step->access = CB_ACCESS_WRITE;
            step->device_number = found.st_dev;
            step->inode = found.st_ino;
        }
        *slash = '/';
    }
    return 0;
}

/* Is something below this place visible again? */
static bool opens_below(const struct cb_plan *plan, const struct cb_place *place)
{
    for (size_t i = 0; i < plan->resolved->place_count; i++) {
        const struct cb_place *other = &plan->resolved->places[i];
        if (other != place && other->access != CB_ACCESS_NONE && cb_path_within(other->path, place->path))
            return true;
    }
    return false;
}

static int add_place(struct cb_plan *plan, const struct cb_place *place, cellblock_error **error)
{
    const struct cb_step *ground = ground_of(plan, place->path);
    bool inside_writable = !is_ours(ground) && ground->access == CB_ACCESS_WRITE;
    if (place->access == CB_ACCESS_NONE && is_ours(ground))
        return 0; /* it is not there anyway */
    if (inside_writable && pin_parents(plan, place->path, error) < 0)
        return -1;
    if (make_mount_point(plan, place->path, place->directory, error) < 0)
        return -1;
    bool hidden = place->access == CB_ACCESS_NONE;
    enum cb_step_kind kind = hidden ? (opens_below(plan, place) ? CB_STEP_VEIL : CB_STEP_MASK)
                             : inside_writable ? CB_STEP_REBIND
                                               : CB_STEP_BIND;
    struct cb_step *step = add_step(plan, kind, place->path, error);
    if (!step)
        return -1;
    if (kind == CB_STEP_VEIL && !(step->source = cb_format("veil%zu", plan->step_count)))
        return cb_fail_memory(error);
    step->directory = place->directory;
    step->access = place->access;
    step->device_number = place->device;
    step->inode = place->inode;
    if (kind == CB_STEP_BIND) {
        step->checked = place->fd;
        step->idmapped = wants_idmap(plan, place);
        step->source = strdup(place->path);
        if (!step->source)
            return cb_fail_memory(error);
    }
    return 0;
}

static int add_link(struct cb_plan *plan, const char *path, const char *target, cellblock_error **error)
{
    if (exists_already(plan, path) || !is_ours(ground_of(plan, path)))
        return 0; /* on the host's ground the link is there as it is */
    if (make_parents(plan, path, error) < 0)
        return -1;
    struct cb_step *step = add_step(plan, CB_STEP_SYMLINK, path, error);
    if (!step)
        return -1;
    step->source = strdup(target);
    return step->source ? 0 : cb_fail_memory(error);
}

static int add_device(struct cb_plan *plan, const char *name, cellblock_error **error)
{
    cb_autofree char *path = cb_format("/dev/%s", name);
    struct stat found;
    if (!path)
        return cb_fail_memory(error);
    if (stat(path, &found) < 0)
        return errno == ENOENT ? 0 /* a host without it: so is the cell */ : cb_fail_errno(error, "looking at %s", path);
    if (!S_ISCHR(found.st_mode))
        return 0;
    if (make_mount_point(plan, path, false, error) < 0)
        return -1;
    struct cb_step *step = add_step(plan, CB_STEP_BIND, path, error);
    if (!step)
        return -1;
    step->access = CB_ACCESS_WRITE;
    step->device = true;
    step->device_number = found.st_dev;
    step->inode = found.st_ino;
    step->source = cb_steal(path);
    return 0;
}

/* Where it can be seen already, in a directory that is granted, there is nothing to do. The socket itself is shown, not
 * whatever is at that path later. */
static int add_socket(struct cb_plan *plan, const struct cb_socket_place *place, cellblock_error **error)
{
    const char *path = place->rule->real;
    struct stat found;
    if (exists_already(plan, path) || !is_ours(ground_of(plan, path)))
        return 0;
    if (fstat(place->fd, &found) < 0)
        return cb_fail_errno(error, "looking at the socket %s", path);
    if (make_mount_point(plan, path, false, error) < 0)
        return -1;
    struct cb_step *step = add_step(plan, CB_STEP_BIND, path, error);
    if (!step)
        return -1;
    step->access = CB_ACCESS_READ;
    step->socket = true;
    step->checked = place->fd;
    step->device_number = found.st_dev;
    step->inode = found.st_ino;
    step->idmapped = plan->privileged && !(found.st_mode & S_IWOTH);
    step->source = strdup(path);
    return step->source ? 0 : cb_fail_memory(error);
}

/* A file with a text of ours, where the ground is. */
static int add_text(struct cb_plan *plan, const char *path, const char *text, cellblock_error **error)
{
    if (exists_already(plan, path) || !is_ours(ground_of(plan, path)))
        return 0;
    if (make_parents(plan, path, error) < 0)
        return -1;
    struct cb_step *step = add_step(plan, CB_STEP_FILE, path, error);
    if (!step)
        return -1;
    step->source = strdup(text);
    return step->source ? 0 : cb_fail_memory(error);
}

/* Names are looked up through the relay, and only there: what stands in the host's own list would lead to addresses
 * that no name led to. */
static bool is_replaced(const struct cb_plan *plan, const char *path)
{
    return plan->network.relayed && (strcmp(path, "/etc/hosts") == 0 || strcmp(path, "/etc/resolv.conf") == 0);
}

static int add_furniture(struct cb_plan *plan, cellblock_error **error)
{
    if (!add_step(plan, CB_STEP_DIRECTORY, "/proc", error) || !add_step(plan, CB_STEP_PROC, "/proc", error) ||
        !add_step(plan, CB_STEP_DIRECTORY, "/dev", error))
        return -1;
    for (size_t i = 0; i < sizeof masked_proc / sizeof *masked_proc; i++)
        if (access(masked_proc[i], F_OK) < 0) {
            if (errno != ENOENT)
                return cb_fail_errno(error, "looking at %s", masked_proc[i]);
        } else if (!add_step(plan, CB_STEP_MASK, masked_proc[i], error)) {
            return -1;
        }
    for (size_t i = 0; i < sizeof device_nodes / sizeof *device_nodes; i++)
        if (add_device(plan, device_nodes[i], error) < 0)
            return -1;
    if (!add_step(plan, CB_STEP_DIRECTORY, "/dev/pts", error) || !add_step(plan, CB_STEP_DEVPTS, "/dev/pts", error) ||
        add_scratch(plan, "/dev/shm", "shm", error) < 0)
        return -1;
    return add_link(plan, "/dev/ptmx", "pts/ptmx", error) < 0 ||
                   add_link(plan, "/dev/fd", "/proc/self/fd", error) < 0 ||
                   add_link(plan, "/dev/stdin", "/proc/self/fd/0", error) < 0 ||
                   add_link(plan, "/dev/stdout", "/proc/self/fd/1", error) < 0 ||
                   add_link(plan, "/dev/stderr", "/proc/self/fd/2", error) < 0
               ? -1
               : 0;
}

/* Scratch directories come before what lies inside them: a workspace below /tmp or below the home directory. */
static int add_scratch_before(struct cb_plan *plan, const char *next, const char **pending, const char *name,
                              cellblock_error **error)
{
    if (!*pending || (next && strcmp(*pending, next) > 0))
        return 0;
    const char *path = *pending;
    *pending = NULL;
    return add_scratch(plan, path, name, error);
}

static bool stays_private(const struct cb_plan *plan, const char *path)
{
    return cb_decide_file(plan->resolved->policy, path).access == CB_ACCESS_NONE;
}

int cb_plan_mounts(struct cb_plan *plan, cellblock_error **error)
{
    const struct cb_resolved *resolved = plan->resolved;
    const char *tmp = stays_private(plan, "/tmp") ? "/tmp" : NULL;
    const char *home = stays_private(plan, plan->home) ? plan->home : NULL;
    if (add_furniture(plan, error) < 0)
        return -1;
    for (size_t i = 0; i <= resolved->place_count; i++) {
        const struct cb_place *place = i < resolved->place_count ? &resolved->places[i] : NULL;
        const char *next = place ? place->path : NULL;
        bool home_first = tmp && home && strcmp(home, tmp) < 0;
        if ((home_first && add_scratch_before(plan, next, &home, "home", error) < 0) ||
            add_scratch_before(plan, next, &tmp, "tmp", error) < 0 ||
            add_scratch_before(plan, next, &home, "home", error) < 0)
            return -1;
        if (!place)
            break;
        if (is_replaced(plan, place->path))
            continue;
        bool scratch = resolved->scratch && strcmp(place->path, resolved->workspace) == 0;
        if ((scratch ? add_scratch(plan, place->path, "work", error) : add_place(plan, place, error)) < 0)
            return -1;
    }
    for (size_t i = 0; i < resolved->link_count; i++)
        if (add_link(plan, resolved->links[i].path, resolved->links[i].target, error) < 0)
            return -1;
    for (size_t i = 0; i < resolved->socket_count; i++)
        if (add_socket(plan, &resolved->sockets[i], error) < 0)
            return -1;
    if (plan->network.relayed && (add_text(plan, "/etc/hosts", plan->network.hosts, error) < 0 ||
                                  add_text(plan, "/etc/resolv.conf", plan->network.resolver, error) < 0))
        return -1;
    return add_link(plan, "/var/tmp", "/tmp", error);
}
