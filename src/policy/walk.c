/* See walk.h. Runs in the supervisor with the caller's own privileges: what the caller can't reach is not granted.
 *
 * The common case, a path without symbolic links, costs one openat2. Only when the kernel says that there is a link on
 * the way is the path walked component by component, so that each link can be written down (to be repeated in the
 * cell) and judged by its place (a link inside a writable directory may have been planted). */
#include "policy/walk.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/missing.h"
#include "base/text.h"

#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_LINKS = 40 };

void cb_path_clean(char *path)
{
    char *to = path;
    for (const char *from = path; *from;) {
        while (*from == '/')
            from++;
        size_t length = strcspn(from, "/");
        bool dot = length == 1 && from[0] == '.';
        if (length > 0 && !dot) {
            *to++ = '/';
            memmove(to, from, length);
            to += length;
        }
        from += length;
    }
    if (to == path)
        *to++ = '/';
    *to = '\0';
}

char *cb_path_parent(const char *path)
{
    const char *slash = strrchr(path, '/');
    size_t length = slash == path ? 1 : (size_t)(slash - path);
    return strndup(path, length);
}

void cb_walk_end(struct cb_walk *walk)
{
    cb_close_cleanup(&walk->fd);
    free(walk->path);
    for (size_t i = 0; i < walk->link_count; i++) {
        free(walk->links[i].path);
        free(walk->links[i].target);
    }
    free(walk->links);
    *walk = (struct cb_walk)CB_WALK_INIT;
}

static int take(struct cb_walk *walk, int fd, char *path)
{
    struct stat found;
    if (fstat(fd, &found) < 0) {
        int saved = errno;
        close(fd);
        free(path);
        return saved;
    }
    walk->fd = fd;
    free(walk->path);
    walk->path = path;
    walk->device = found.st_dev;
    walk->inode = found.st_ino;
    walk->mode = found.st_mode;
    return 0;
}

/* One link: written down, and its target put in front of what is left of the path. */
static int follow(struct cb_walk *walk, int link_fd, const char *link_path, const char *rest, char **next)
{
    char target[PATH_MAX];
    ssize_t length = readlinkat(link_fd, "", target, sizeof target - 1);
    if (length <= 0)
        return length < 0 ? errno : ENOENT;
    target[length] = '\0';
    struct cb_link *link = cb_array_push(&walk->links, &walk->link_count);
    if (!link || !(link->path = strdup(link_path)) || !(link->target = strdup(target)))
        return ENOMEM;
    cb_autofree char *parent = cb_path_parent(link_path);
    if (!parent)
        return ENOMEM;
    *next = target[0] == '/' ? cb_format("%s/%s", target, rest) : cb_format("%s/%s/%s", parent, target, rest);
    return *next ? 0 : ENOMEM;
}

/* Where the missing thing would be, with every link before it resolved. */
static int note_missing(struct cb_walk *walk, const char *here, const char *name, const char *rest, int missing)
{
    free(walk->path);
    walk->path = cb_format("%s/%s%s%s", here, name, *rest ? "/" : "", rest);
    return walk->path ? missing : ENOMEM;
}

/* Returns 0 and fills the walk, or an errno. Sets *again to the path to start over with after a link. */
static int step_through(struct cb_walk *walk, char *path, char **again)
{
    cb_path_clean(path);
    cb_autofd int at = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (at < 0)
        return errno;
    cb_autotext struct cb_text here = {0};
    cb_text_add(&here, "", 0);
    for (char *rest = path + 1; *rest;) {
        size_t length = strcspn(rest, "/");
        cb_autofree char *name = strndup(rest, length);
        if (!name)
            return ENOMEM;
        rest += length;
        while (*rest == '/')
            rest++;
        cb_autofd int next = openat(at, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
        if (next < 0)
            return note_missing(walk, here.data, name, rest, errno);
        if (strcmp(name, "..") == 0) {
            char *slash = here.length ? strrchr(here.data, '/') : NULL;
            here.length = slash ? (size_t)(slash - here.data) : 0;
            here.data[here.length] = '\0';
        } else {
            cb_text_addf(&here, "/%s", name);
        }
        struct stat found;
        if (here.failed)
            return ENOMEM;
        if (fstat(next, &found) < 0)
            return errno;
        if (S_ISLNK(found.st_mode))
            return follow(walk, next, here.data, rest, again);
        if (*rest && !S_ISDIR(found.st_mode))
            return ENOTDIR;
        int old = at;
        at = cb_steal_fd(&next);
        close(old);
    }
    if (here.length == 0)
        cb_text_add(&here, "/", 1);
    char *final = cb_text_take(&here);
    return final ? take(walk, cb_steal_fd(&at), final) : ENOMEM;
}

/* In one go, where no link is on the way: true when that settled it. */
static bool walk_at_once(struct cb_walk *walk, char **path, int *missing)
{
    cb_path_clean(*path);
    if (strstr(*path, "/.."))
        return false;
    struct cb_open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS};
    int fd = cb_sys_openat2(AT_FDCWD, *path, &how);
    if (fd >= 0) {
        *missing = take(walk, fd, cb_steal(*path));
        return true;
    }
    if (errno != ENOENT && errno != ENOTDIR && errno != EACCES) /* those: and no link was met before */
        return false;
    *missing = errno;
    free(walk->path);
    walk->path = cb_steal(*path);
    return true;
}

int cb_walk_path(const char *path, struct cb_walk *walk, int *missing, cellblock_error **error)
{
    *missing = 0;
    cb_autofree char *current = strdup(path);
    if (!current)
        return cb_fail_memory(error);
    int failed = ELOOP;
    for (int links = 0; links <= MAX_LINKS; links++) {
        cb_autofree char *again = NULL;
        if (walk_at_once(walk, &current, missing))
            return 0;
        failed = step_through(walk, current, &again);
        if (failed || !again)
            break;
        free(current);
        current = cb_steal(again);
        failed = ELOOP;
    }
    if (failed == ENOMEM)
        return cb_fail_memory(error);
    if (failed && !walk->path)
        walk->path = cb_steal(current);
    *missing = failed;
    return 0;
}
