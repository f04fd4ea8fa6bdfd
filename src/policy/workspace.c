/* See workspace.h. The mistake this prevents: `cellblock run` typed while standing in a home directory, which would
 * hand shell start-up files and keys to the code. */
#include "policy/workspace.h"

#include "base/cleanup.h"
#include "base/error.h"
#include "base/text.h"
#include "policy/walk.h"

#include <string.h>

/* Never: the cell has its own. */
static const char *const own_trees[] = {"/proc", "/sys", "/dev"};
/* With everything below. */
static const char *const system_trees[] = {"/bin",   "/boot", "/etc", "/lib",  "/lib32",
                                           "/lib64", "/libx32", "/sbin", "/usr"};
/* The directory itself; something below it is an ordinary place. */
static const char *const shared_places[] = {"/home", "/root", "/srv",  "/tmp", "/var",     "/var/tmp", "/var/lib",
                                            "/mnt",  "/opt",  "/run",  "/media", "/var/log", "/var/cache", "/run/user"};

bool cb_is_system_path(const char *path)
{
    for (size_t i = 0; i < sizeof system_trees / sizeof *system_trees; i++)
        if (cb_path_within(path, system_trees[i]))
            return true;
    return false;
}

static int refuse(const char *path, const char *what, cellblock_error **error)
{
    cb_fail(error, CELLBLOCK_ERROR_POLICY, 0, "workspace %s is %s: code in the cell could change all of it", path,
            what);
    return cb_error_hint(error, "go to a project directory, or name the place on purpose: --workspace %s", path);
}

int cb_workspace_check(const char *path, const char *home, bool on_purpose, cellblock_error **error)
{
    if (strcmp(path, "/") == 0) {
        cb_fail(error, CELLBLOCK_ERROR_POLICY, 0, "workspace / can't be used: it is the whole system");
        return cb_error_hint(error, "go to a project directory, or name one with --workspace");
    }
    for (size_t i = 0; i < sizeof own_trees / sizeof *own_trees; i++)
        if (cb_path_within(path, own_trees[i]))
            return cb_fail(error, CELLBLOCK_ERROR_POLICY, 0, "workspace %s can't be used: a cell has its own %s", path,
                           own_trees[i]);
    if (on_purpose)
        return 0;
    if (cb_is_system_path(path))
        return refuse(path, "a system directory", error);
    for (size_t i = 0; i < sizeof shared_places / sizeof *shared_places; i++)
        if (strcmp(path, shared_places[i]) == 0)
            return refuse(path, strcmp(path, "/root") == 0 ? "a whole home directory" : "a shared directory", error);
    cb_autofree char *parent = cb_path_parent(path);
    if (!parent)
        return cb_fail_memory(error);
    if ((home && cb_path_within(home, path)) || strcmp(parent, "/home") == 0)
        return refuse(path, "a whole home directory", error);
    return 0;
}
