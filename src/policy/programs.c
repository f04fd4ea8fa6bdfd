/* See programs.h. Runs in the supervisor, before any process exists, and only reads.
 *
 * The danger here is a workspace that was prepared by code that ran before: a link `venv/bin/python` that leads to a
 * private key must not make the key readable. So what is found through a link or a script in a writable place may only
 * open an *installation*, recognised by what it holds, and never a single file or a home directory. */
#include "policy/programs.h"

#include "base/cleanup.h"
#include "base/error.h"
#include "base/text.h"
#include "policy/walk.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_DEPTH = 4 }; /* script → env → shim → interpreter */

static int find(const struct cb_program_finder *finder, const char *program, int depth, bool trusted,
                cellblock_error **error);

static bool has(const char *directory, const char *entry)
{
    char path[PATH_MAX];
    return snprintf(path, sizeof path, "%s/%s", directory, entry) < (int)sizeof path && access(path, F_OK) == 0;
}

/* lib/python3.12/os.py and the like: the version is not known beforehand. */
static bool has_python_library(const char *prefix)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/lib", prefix) >= (int)sizeof path)
        return false;
    cb_autodir DIR *lib = opendir(path);
    for (struct dirent *entry; lib && (entry = readdir(lib));) {
        char inside[NAME_MAX + 16];
        snprintf(inside, sizeof inside, "%s/os.py", entry->d_name);
        if ((cb_has_prefix(entry->d_name, "python") || cb_has_prefix(entry->d_name, "pypy")) && has(path, inside))
            return true;
    }
    return false;
}

/* The root, a home directory, or something above one: too wide for anything, whatever it holds. */
static bool is_too_wide(const char *prefix, const char *home)
{
    return strcmp(prefix, "/") == 0 || (home && cb_path_within(home, prefix));
}

/* Is this directory a whole installation of an interpreter or of a version manager, and nothing wider? */
static bool is_installation(const char *prefix, bool trusted)
{
    bool interpreter = has_python_library(prefix) || has(prefix, "include/node/node.h") ||
                       has(prefix, "lib/node_modules/npm/package.json") || has(prefix, "lib/jvm.cfg") ||
                       has(prefix, "lib/rustlib");
    if (!trusted)
        return interpreter; /* an ordinary project may hold the marks below */
    interpreter = interpreter || has(prefix, "pkg/tool");
    bool manager = (has(prefix, "shims") && (has(prefix, "versions") || has(prefix, "installs"))) ||
                   (has(prefix, "tools/image") && has(prefix, "bin/volta"));
    return interpreter || manager;
}

/* The base interpreter that a virtual environment names, for environments that hold copies instead of links. */
static int grant_venv_home(const struct cb_program_finder *finder, const char *venv, cellblock_error **error)
{
    cb_autofree char *path = cb_format("%s/pyvenv.cfg", venv);
    if (!path)
        return cb_fail_memory(error);
    cb_autofd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW);
    char text[4096];
    ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (length <= 0)
        return 0;
    text[length] = '\0';
    for (char *save = NULL, *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char home[PATH_MAX];
        if (sscanf(line, " home = %4095[^\r]", home) != 1 || home[0] != '/')
            continue;
        cb_autowalk struct cb_walk walk = CB_WALK_INIT;
        int missing;
        if (cb_walk_path(home, &walk, &missing, error) < 0)
            return -1;
        cb_autofree char *prefix = walk.fd >= 0 ? cb_path_parent(walk.path) : NULL;
        if (prefix && !is_too_wide(prefix, finder->context->home) && is_installation(prefix, false))
            return finder->grant(finder->data, prefix, "python3", error);
    }
    return 0;
}

/* A virtual environment may lie in a project's own directory: only what belongs to it is opened. */
static int grant_venv(const struct cb_program_finder *finder, const char *venv, const char *program,
                      cellblock_error **error)
{
    static const char *const parts[] = {"pyvenv.cfg", "bin", "lib", "lib64", "include", "share"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        cb_autofree char *path = cb_format("%s/%s", venv, parts[i]);
        if (!path)
            return cb_fail_memory(error);
        if (finder->grant(finder->data, path, program, error) < 0)
            return -1;
    }
    return grant_venv_home(finder, venv, error);
}

/* Grants the installation around a file in some …/bin (or …/shims), if there is one. Sets *found. */
static int grant_installation(const struct cb_program_finder *finder, const char *file, const char *program,
                              bool trusted, bool *found, cellblock_error **error)
{
    cb_autofree char *directory = cb_path_parent(file);
    cb_autofree char *spelled = directory ? cb_path_parent(directory) : NULL;
    if (!spelled)
        return cb_fail_memory(error);
    cb_autowalk struct cb_walk walk = CB_WALK_INIT;
    int missing;
    if (cb_walk_path(spelled, &walk, &missing, error) < 0)
        return -1;
    if (walk.fd < 0 || is_too_wide(walk.path, finder->context->home))
        return 0;
    if (has(walk.path, "pyvenv.cfg")) {
        *found = true;
        return grant_venv(finder, walk.path, program, error);
    }
    if (!is_installation(walk.path, trusted))
        return 0;
    *found = true;
    return finder->grant(finder->data, walk.path, program, error);
}

/* A script's first line names the program that is really needed. */
static int follow_script(const struct cb_program_finder *finder, int fd, int depth, bool trusted,
                         cellblock_error **error)
{
    char magic[PATH_MAX], line[512];
    snprintf(magic, sizeof magic, "/proc/self/fd/%d", fd);
    cb_autofd int file = open(magic, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    ssize_t length = file < 0 ? -1 : read(file, line, sizeof line - 1);
    if (length < 3 || line[0] != '#' || line[1] != '!')
        return 0;
    line[length] = '\0';
    line[strcspn(line, "\n")] = '\0';
    char *save = NULL;
    char *interpreter = strtok_r(line + 2, " \t\r", &save);
    if (!interpreter)
        return 0;
    const char *base = strrchr(interpreter, '/');
    char *argument = strtok_r(NULL, " \t\r", &save);
    if (base && strcmp(base, "/env") == 0) {
        while (argument && (argument[0] == '-' || strchr(argument, '=')))
            argument = strtok_r(NULL, " \t\r", &save);
        interpreter = argument;
    }
    if (!interpreter || (strchr(interpreter, '/') && interpreter[0] != '/'))
        return 0;
    return find(finder, interpreter, depth + 1, trusted, error);
}

static int found_at(const struct cb_program_finder *finder, const char *path, const char *program, int depth,
                    bool trusted, cellblock_error **error)
{
    cb_autowalk struct cb_walk walk = CB_WALK_INIT;
    int missing;
    if (cb_walk_path(path, &walk, &missing, error) < 0)
        return -1;
    if (walk.fd < 0 || !S_ISREG(walk.mode))
        return 0;
    if (walk.link_count == 0 && finder->readable(finder->data, walk.path) &&
        !finder->writable(finder->data, walk.path))
        return 0; /* a program of the system */
    bool installed = false;
    trusted = trusted && !finder->writable(finder->data, path) && !finder->writable(finder->data, walk.path);
    if (grant_installation(finder, path, program, trusted, &installed, error) < 0)
        return -1;
    for (size_t i = 0; i < walk.link_count; i++) {
        trusted = trusted && !finder->writable(finder->data, walk.links[i].path);
        if (finder->link(finder->data, &walk.links[i], error) < 0 ||
            grant_installation(finder, walk.links[i].path, program, trusted, &installed, error) < 0)
            return -1;
    }
    bool here = false;
    if (grant_installation(finder, walk.path, program, trusted, &here, error) < 0)
        return -1;
    if (!here && trusted && finder->grant(finder->data, walk.path, program, error) < 0)
        return -1;
    return follow_script(finder, walk.fd, depth, trusted, error);
}

/* The path of a program in one entry of PATH; false when it is not there. */
static bool in_entry(const char *entry, size_t length, const char *program, char path[PATH_MAX])
{
    return entry[0] == '/' && snprintf(path, PATH_MAX, "%.*s/%s", (int)length, entry, program) < PATH_MAX &&
           access(path, X_OK) == 0;
}

/* Entries that the cell can read anyway are looked into only when a later one, which it can't, has the program too:
 * with a PATH of system directories alone nothing is looked up at all. */
static int find_in_path(const struct cb_program_finder *finder, const char *program, int depth, bool trusted,
                        cellblock_error **error)
{
    const char *list = finder->context->search_path;
    for (const char *at = list; at && *at;) {
        size_t length = strcspn(at, ":");
        char path[PATH_MAX];
        bool private = length < sizeof path;
        if (private) {
            memcpy(path, at, length);
            path[length] = '\0';
            /* What the workspace holds is often a link to an interpreter elsewhere. */
            private = finder->writable(finder->data, path) || !finder->readable(finder->data, path);
        }
        if (private && in_entry(at, length, program, path)) {
            for (const char *before = list; before < at; before += strcspn(before, ":") + 1) {
                char other[PATH_MAX];
                if (in_entry(before, strcspn(before, ":"), program, other))
                    return found_at(finder, other, program, depth, trusted, error);
            }
            return found_at(finder, path, program, depth, trusted, error);
        }
        at += length;
        at += *at == ':';
    }
    return 0;
}

static int find(const struct cb_program_finder *finder, const char *program, int depth, bool trusted,
                cellblock_error **error)
{
    if (depth > MAX_DEPTH || !program[0])
        return 0;
    if (strchr(program, '/')) {
        cb_autofree char *path = program[0] == '/' ? strdup(program)
                                                   : cb_format("%s/%s", finder->context->directory, program);
        if (!path)
            return cb_fail_memory(error);
        return found_at(finder, path, program, depth, trusted, error);
    }
    return find_in_path(finder, program, depth, trusted, error);
}

int cb_program_find(const struct cb_program_finder *finder, const char *program, cellblock_error **error)
{
    return find(finder, program, 0, true, error);
}
