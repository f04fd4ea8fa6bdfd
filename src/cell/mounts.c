/* The root of the cell, assembled with the new mount API: every mount is made detached, gets its flags while nobody can
 * see it, and is then moved into place. Runs in init before the pivot, with capabilities over the new mount namespace.
 *
 * Nothing here trusts a path: a source is opened without following links and must be the very object (device, inode)
 * that the supervisor checked; a target is opened beneath the new root without following links, and must be the checked
 * object too when something is mounted on itself or masked inside the host's tree, where another process may be at
 * work. */
#include "cell/cell.h"

#include "base/missing.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#define SCRATCH ".cellblock-scratch"

enum { CLONE_TREE = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH };

struct assembly {
    struct cb_cell_state *state;
    int root;
    int scratch;
};

static int keep_errno_close(int fd)
{
    int saved = errno;
    close(fd);
    errno = saved;
    return -1;
}

/* A new file system, detached. `options` are key, value pairs; a NULL value is a flag. */
static int make_filesystem(const char *type, const char *const (*options)[2], unsigned attributes)
{
    int context = cb_sys_fsopen(type, FSOPEN_CLOEXEC);
    if (context < 0)
        return -1;
    for (; options && (*options)[0]; options++)
        if (cb_sys_fsconfig(context, FSCONFIG_SET_STRING, (*options)[0], (*options)[1], 0) < 0)
            return keep_errno_close(context);
    if (cb_sys_fsconfig(context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
        return keep_errno_close(context);
    int made = cb_sys_fsmount(context, FSMOUNT_CLOEXEC, attributes);
    keep_errno_close(context);
    return made;
}

static int open_beneath(int root, const char *path, int flags)
{
    struct cb_open_how how = {.flags = (uint64_t)(O_CLOEXEC | flags),
                              .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS};
    return cb_sys_openat2(root, path, &how);
}

static int same_object(int fd, const struct cb_step *step)
{
    struct stat found;
    if (fstat(fd, &found) < 0)
        return -1;
    if (found.st_dev == step->device_number && found.st_ino == step->inode)
        return 0;
    errno = ESTALE; /* somebody put something else there since it was checked */
    return -1;
}

static int set_attributes(int tree, const struct cb_step *step)
{
    struct cb_mount_attr attr = {
        .attr_set = MOUNT_ATTR_NOSUID | (step->device ? MOUNT_ATTR_NOEXEC : MOUNT_ATTR_NODEV),
        .propagation = MS_PRIVATE,
    };
    if (step->access != CB_ACCESS_WRITE || step->device)
        attr.attr_set |= MOUNT_ATTR_RDONLY;
    return cb_sys_mount_setattr(tree, "", AT_EMPTY_PATH | AT_RECURSIVE, &attr);
}

static int attach(const struct assembly *assembly, int tree, const struct cb_step *step, bool checked)
{
    int target = open_beneath(assembly->root, step->at, O_PATH);
    if (target < 0)
        return -1;
    if ((checked && same_object(target, step) < 0) ||
        cb_sys_move_mount(tree, "", target, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
        return keep_errno_close(target);
    close(target);
    return 0;
}

/* Takes the tree, gives it its flags and its Landlock rule, and moves it into place. */
static int place(const struct assembly *assembly, int tree, const struct cb_step *step, bool checked)
{
    if (tree < 0)
        return -1;
    if (set_attributes(tree, step) < 0 || attach(assembly, tree, step, checked) < 0 ||
        cb_cell_landlock_add(assembly->state, tree, step->landlock) < 0)
        return keep_errno_close(tree);
    close(tree);
    return 0;
}

/* A detached copy of what is open as `source` (which is closed), if it is what was checked. */
static int clone_checked(int source, const struct cb_step *step)
{
    if (source < 0)
        return -1;
    if (same_object(source, step) < 0)
        return keep_errno_close(source);
    int tree = cb_sys_open_tree(source, "", CLONE_TREE | AT_RECURSIVE);
    keep_errno_close(source);
    return tree;
}

static int bind_from_host(const struct assembly *assembly, const struct cb_step *step)
{
    if (step->tree >= 0)
        return place(assembly, step->tree, step, false);
    struct cb_open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS};
    return place(assembly, clone_checked(cb_sys_openat2(AT_FDCWD, step->source, &how), step), step, false);
}

static int bind_on_itself(const struct assembly *assembly, const struct cb_step *step)
{
    return place(assembly, clone_checked(open_beneath(assembly->root, step->at, O_PATH), step), step, true);
}

static int bind_scratch(const struct assembly *assembly, const struct cb_step *step, const char *name, bool checked)
{
    return place(assembly, cb_sys_open_tree(assembly->scratch, name, CLONE_TREE & ~AT_EMPTY_PATH), step, checked);
}

/* Mount points are still to be made in it: it becomes read-only once all are (seal_veils). */
static int veil(const struct assembly *assembly, const struct cb_step *step)
{
    struct cb_step open_step = *step;
    open_step.access = CB_ACCESS_WRITE;
    return mkdirat(assembly->scratch, step->source, 0755) < 0 ? -1
                                                               : bind_scratch(assembly, &open_step, step->source, true);
}

static int mask(const struct assembly *assembly, const struct cb_step *step)
{
    return bind_scratch(assembly, step, step->directory ? "void" : "null", step->inode != 0);
}

static int mount_own(const struct assembly *assembly, const struct cb_step *step, const char *type,
                     const char *const (*options)[2], unsigned attributes)
{
    int made = make_filesystem(type, options, attributes);
    if (made < 0)
        return -1;
    if (attach(assembly, made, step, false) < 0 || cb_cell_landlock_add(assembly->state, made, step->landlock) < 0)
        return keep_errno_close(made);
    close(made);
    return 0;
}

/* Processes that can't be traced by the reader (init is one) are not even listed: hidepid. Read-only as a whole: no
 * sysctl, no sysrq-trigger, whatever the ids. */
static int mount_proc(const struct assembly *assembly, const struct cb_step *step)
{
    static const char *const options[][2] = {{"hidepid", "invisible"}, {NULL, NULL}};
    unsigned attributes = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC;
    if (cb_layer_on(assembly->state->plan, CB_OFF_PROC))
        attributes |= MOUNT_ATTR_RDONLY;
    return mount_own(assembly, step, "proc", options, attributes);
}

static int mount_devpts(const struct assembly *assembly, const struct cb_step *step)
{
    static const char *const options[][2] = {{"ptmxmode", "0666"}, {"mode", "0600"}, {NULL, NULL}};
    return mount_own(assembly, step, "devpts", options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC);
}

static int make_file(const struct assembly *assembly, const struct cb_step *step)
{
    int fd = openat(assembly->root, step->at, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0444);
    size_t length = step->source ? strlen(step->source) : 0;
    if (fd < 0)
        return -1;
    if ((length && write(fd, step->source, length) != (ssize_t)length) ||
        cb_cell_landlock_add(assembly->state, fd, step->landlock) < 0)
        return keep_errno_close(fd);
    return close(fd);
}

static int take_step(const struct assembly *assembly, const struct cb_step *step)
{
    switch (step->kind) {
    case CB_STEP_DIRECTORY:
        return mkdirat(assembly->root, step->at, 0755);
    case CB_STEP_FILE:
        return make_file(assembly, step);
    case CB_STEP_SYMLINK:
        return symlinkat(step->source, assembly->root, step->at);
    case CB_STEP_BIND:
        return bind_from_host(assembly, step);
    case CB_STEP_REBIND:
        return bind_on_itself(assembly, step);
    case CB_STEP_SCRATCH:
        return bind_scratch(assembly, step, step->source, false);
    case CB_STEP_VEIL:
        return veil(assembly, step);
    case CB_STEP_MASK:
        return mask(assembly, step);
    case CB_STEP_PROC:
        return mount_proc(assembly, step);
    case CB_STEP_DEVPTS:
        return mount_devpts(assembly, step);
    }
    errno = EINVAL;
    return -1;
}

static char *format_number(uint64_t number, char buffer[24])
{
    char *at = buffer + 23;
    *at = '\0';
    do
        *--at = (char)('0' + number % 10);
    while (number /= 10);
    return at;
}

/* One file system behind /tmp, the home directory and /dev/shm: one cap for all of them. */
static int make_scratch(uint64_t size, uint64_t inodes)
{
    static const struct {
        const char *name;
        mode_t mode;
    } parts[] = {{"tmp", 01777}, {"shm", 01777}, {"home", 0700}, {"work", 0755}, {"void", 0}, {"old", 0700}};
    char size_text[24], inodes_text[24];
    const char *const options[][2] = {{"size", format_number(size, size_text)},
                                      {"nr_inodes", format_number(inodes, inodes_text)},
                                      {"mode", "0700"},
                                      {NULL, NULL}};
    int scratch = make_filesystem("tmpfs", options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
    for (size_t i = 0; scratch >= 0 && i < sizeof parts / sizeof *parts; i++)
        if (mkdirat(scratch, parts[i].name, parts[i].mode) < 0)
            return keep_errno_close(scratch);
    int null = scratch < 0 ? -1 : openat(scratch, "null", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0);
    if (null >= 0)
        close(null);
    return scratch < 0 || null >= 0 ? scratch : keep_errno_close(scratch);
}

/* Older kernels copy only from trees that are attached: in the new root, until the pivot. */
static int attach_scratch(int root, int scratch)
{
    return mkdirat(root, SCRATCH, 0700) < 0 ||
                   cb_sys_move_mount(scratch, "", root, SCRATCH, MOVE_MOUNT_F_EMPTY_PATH) < 0
               ? -1
               : 0;
}

/* Attached over the old root, unseen: older kernels move mounts only onto trees that are attached. */
static int make_root(void)
{
    static const char *const options[][2] = {{"size", "16m"}, {"nr_inodes", "65536"}, {"mode", "0755"}, {NULL, NULL}};
    int root = make_filesystem("tmpfs", options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
    if (root >= 0 && cb_sys_move_mount(root, "", AT_FDCWD, "/", MOVE_MOUNT_F_EMPTY_PATH) < 0)
        return keep_errno_close(root);
    return root;
}

static int seal_veils(const struct assembly *assembly)
{
    const struct cb_plan *plan = assembly->state->plan;
    for (size_t i = 0; i < plan->step_count; i++) {
        if (plan->steps[i].kind != CB_STEP_VEIL)
            continue;
        struct cb_mount_attr attr = {.attr_set = MOUNT_ATTR_RDONLY};
        int veil_fd = open_beneath(assembly->root, plan->steps[i].at, O_PATH);
        if (veil_fd < 0 || cb_sys_mount_setattr(veil_fd, "", AT_EMPTY_PATH, &attr) < 0)
            return cb_cell_fail(assembly->state, CB_STAGE_STEP, (int)i);
        close(veil_fd);
    }
    return 0;
}

static int seal_root(int root)
{
    struct cb_mount_attr attr = {.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV};
    return cb_sys_mount_setattr(root, "", AT_EMPTY_PATH, &attr);
}

/* The old root goes below the scratch file system for a moment: one call lets go of both. */
static int pivot(int root)
{
    return fchdir(root) < 0 || cb_sys_pivot_root(".", SCRATCH "/old") < 0 || umount2(SCRATCH, MNT_DETACH) < 0 ||
                   unlinkat(root, SCRATCH, AT_REMOVEDIR) < 0 || chdir("/") < 0
               ? -1
               : 0;
}

/* The supervisor looks at paths and processes as the cell sees them. */
static int send_root(struct cb_cell_state *state, int root)
{
    const struct cb_message message = {.kind = CB_MESSAGE_ROOT};
    return cb_wire_send(state->entry->wire, &message, root);
}

#ifdef CELLBLOCK_TEST_HOOKS
/* With this layer turned off the cell sees the host's tree as it is; Landlock's rules are made all the same. */
static int stay_on_host(struct cb_cell_state *state)
{
    for (size_t i = 0; i < state->plan->step_count; i++) {
        const struct cb_step *step = &state->plan->steps[i];
        int fd = step->kind == CB_STEP_BIND ? open(step->source, O_PATH | O_CLOEXEC) : -1;
        if (fd >= 0 && cb_cell_landlock_add(state, fd, step->landlock) < 0)
            return cb_cell_fail(state, CB_STAGE_LANDLOCK, 0);
        if (fd >= 0)
            close(fd);
    }
    int root = open("/", O_PATH | O_CLOEXEC);
    return root < 0 || send_root(state, root) < 0 ? cb_cell_fail(state, CB_STAGE_PIVOT, 0) : close(root);
}
#endif

int cb_cell_mounts(struct cb_cell_state *state)
{
    const struct cb_plan *plan = state->plan;
#ifdef CELLBLOCK_TEST_HOOKS
    if (!cb_layer_on(plan, CB_OFF_MOUNTS))
        return stay_on_host(state);
#endif
    mode_t mask_before = umask(0);
    struct assembly assembly = {.state = state, .root = make_root(), .scratch = -1};
    if (assembly.root < 0 || (assembly.scratch = make_scratch(plan->scratch_size, plan->scratch_inodes)) < 0 ||
        attach_scratch(assembly.root, assembly.scratch) < 0)
        return cb_cell_fail(state, CB_STAGE_ROOT, 0);
    for (size_t i = 0; i < plan->step_count; i++)
        if (take_step(&assembly, &plan->steps[i]) < 0)
            return cb_cell_fail(state, CB_STAGE_STEP, (int)i);
    umask(mask_before);
    if (seal_veils(&assembly) < 0)
        return -1;
    if (cb_cell_landlock_add(state, assembly.root, LANDLOCK_ACCESS_FS_READ_DIR) < 0)
        return cb_cell_fail(state, CB_STAGE_LANDLOCK, 0);
    /* assembly.scratch stays open until init closes everything: the last close takes the detached mount apart, and
     * waits for that, which can as well happen while the program runs. */
    if (pivot(assembly.root) < 0 || seal_root(assembly.root) < 0 || send_root(state, assembly.root) < 0)
        return cb_cell_fail(state, CB_STAGE_PIVOT, 0);
    close(assembly.root);
    return 0;
}
