/* Attempts with mounts: the steps that put the root of a cell together, a fresh /proc, an idmapped mount, an overlay.
 *
 * They run in mount namespaces of their own (the idmapped one stays detached), so nothing is left behind. */
#include "host/attempt.h"

#include "base/cleanup.h"
#include "base/missing.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

/* A mounted, still detached filesystem, or -1 with *step. `options` is a list of key, value pairs that ends with NULL;
 * an empty value makes the key a flag. */
static int new_mount(const char *type, const char *const *options, const char **step)
{
    cb_autofd int context = cb_sys_fsopen(type, FSOPEN_CLOEXEC);
    *step = "fsopen";
    if (context < 0)
        return -1;
    *step = "fsconfig";
    for (; options && *options; options += 2) {
        unsigned command = *options[1] ? CB_FSCONFIG_SET_STRING : CB_FSCONFIG_SET_FLAG;
        if (cb_sys_fsconfig(context, command, options[0], *options[1] ? options[1] : NULL, 0) < 0)
            return -1;
    }
    *step = "fsconfig(CMD_CREATE)";
    if (cb_sys_fsconfig(context, CB_FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
        return -1;
    *step = "fsmount";
    return cb_sys_fsmount(context, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
}

static const char *const tmpfs_options[] = {"size", "64k", "mode", "0755", NULL};

struct cb_attempt cb_try_mount_api(int unused)
{
    const char *step;
    cb_autofd int root = new_mount("tmpfs", tmpfs_options, &step);
    if (root < 0)
        return cb_attempt_failed(step);
    if (cb_sys_move_mount(root, "", AT_FDCWD, "/", MOVE_MOUNT_F_EMPTY_PATH) < 0)
        return cb_attempt_failed("move_mount");

    cb_autofd int tree = cb_sys_open_tree(AT_FDCWD, "/", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE);
    if (tree < 0)
        return cb_attempt_failed("open_tree");
    struct cb_mount_attr attr = {.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV};
    if (cb_sys_mount_setattr(tree, "", AT_EMPTY_PATH | AT_RECURSIVE, &attr) < 0)
        return cb_attempt_failed("mount_setattr");
    struct statvfs seen;
    errno = 0;
    if (fstatvfs(tree, &seen) < 0 || !(seen.f_flag & ST_RDONLY))
        return cb_attempt_failed("making a tree read-only by mount_setattr");
    if (mkdirat(root, "tree", 0755) < 0 ||
        cb_sys_move_mount(tree, "", root, "tree", MOVE_MOUNT_F_EMPTY_PATH) < 0)
        return cb_attempt_failed("move_mount of a cloned tree");
    if (fchdir(root) < 0 || cb_sys_pivot_root(".", ".") < 0)
        return cb_attempt_failed("pivot_root");
    if (umount2(".", MNT_DETACH) < 0)
        return cb_attempt_failed("umount of the old root");
    return (struct cb_attempt){0};
}

struct cb_attempt cb_try_proc(int unused)
{
    const char *step;
    cb_autofd int proc = new_mount("proc", NULL, &step);
    if (proc < 0)
        return cb_attempt_failed(strcmp(step, "fsmount") == 0 ? "mounting a fresh /proc" : step);
    char self[16] = "";
    if (readlinkat(proc, "self", self, sizeof self - 1) < 0 || strcmp(self, "1") != 0)
        return cb_attempt_failed("finding the new pid namespace in a fresh /proc");
    return (struct cb_attempt){0};
}

struct cb_attempt cb_try_idmap(int unused)
{
    /* The mapping is taken from a user namespace: that of a second process which only waits. */
    cb_autofd int pidfd = -1;
    int pid = cb_attempt_fork(CLONE_NEWUSER, &pidfd);
    if (pid < 0)
        return cb_attempt_failed("clone(CLONE_NEWUSER)");
    if (pid == 0) {
        for (;;)
            pause();
    }
    struct cb_attempt attempt = {0};
    char path[64], map[32];
    snprintf(map, sizeof map, "0 %d 1\n", CB_NOBODY);
    static const char *const files[] = {"uid_map", "gid_map"};
    for (int i = 0; i < 2 && !attempt.step; i++) {
        snprintf(path, sizeof path, "/proc/%d/%s", pid, files[i]);
        cb_autofd int fd = open(path, O_WRONLY | O_CLOEXEC);
        if (fd < 0 || write(fd, map, strlen(map)) < 0)
            attempt = cb_attempt_failed("writing the map of an idmapped mount");
    }
    snprintf(path, sizeof path, "/proc/%d/ns/user", pid);
    cb_autofd int user = attempt.step ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    if (!attempt.step && user < 0)
        attempt = cb_attempt_failed("opening the map of an idmapped mount");
    cb_autofd int tree = attempt.step ? -1 : cb_sys_open_tree(AT_FDCWD, ".", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    if (!attempt.step && tree < 0)
        attempt = cb_attempt_failed("open_tree");
    struct cb_mount_attr attr = {.attr_set = MOUNT_ATTR_IDMAP, .userns_fd = (uint64_t)user};
    if (!attempt.step && cb_sys_mount_setattr(tree, "", AT_EMPTY_PATH, &attr) < 0)
        attempt = cb_attempt_failed("mount_setattr(MOUNT_ATTR_IDMAP) on the current directory");
    cb_attempt_reap(pid);
    return attempt;
}

struct cb_attempt cb_try_overlay(int unused)
{
    const char *step;
    cb_autofd int layers = new_mount("tmpfs", tmpfs_options, &step);
    if (layers < 0)
        return cb_attempt_failed(step);
    /* Attached, because an overlay takes only layers that are mounted in its namespace. */
    if (cb_sys_move_mount(layers, "", AT_FDCWD, "/", MOVE_MOUNT_F_EMPTY_PATH) < 0 || fchdir(layers) < 0)
        return cb_attempt_failed("move_mount");
    if (mkdir("lower", 0755) < 0 || mkdir("upper", 0755) < 0 || mkdir("work", 0755) < 0 ||
        mkdir("lower/gone", 0755) < 0)
        return cb_attempt_failed("mkdir on a tmpfs");
    static const char *const options[] = {"source",   "overlay", "lowerdir", "lower", "upperdir", "upper",
                                          "workdir",  "work",    "userxattr", "",     NULL};
    cb_autofd int merged = new_mount("overlay", options, &step);
    if (merged < 0)
        return cb_attempt_failed(strcmp(step, "fsopen") == 0 ? "fsopen(overlay)" : "mounting an overlay");
    struct stat seen;
    if (mkdirat(merged, "made", 0755) < 0 || unlinkat(merged, "gone", AT_REMOVEDIR) < 0 ||
        stat("upper/made", &seen) < 0 || lstat("upper/gone", &seen) < 0)
        return cb_attempt_failed("changing files through an overlay");
    return (struct cb_attempt){0};
}
