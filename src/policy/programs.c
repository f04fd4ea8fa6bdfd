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

/* The root, a home directory, something above one, or above what the code may write: too wide, whatever it holds (and
 * what it holds may have been put there). */
static bool is_too_wide(const struct cb_program_finder *finder, const char *prefix)
{
    const char *home = finder->context->home;
    return strcmp(prefix, "/") == 0 || (home && cb_path_within(home, prefix)) ||
           finder->holds_writable(finder->data, prefix);
}

static bool is_interpreter(const char *prefix)
{
    return has_python_library(prefix) || has(prefix, "include/node/node.h") ||
           has(prefix, "lib/node_modules/npm/package.json") || has(prefix, "lib/jvm.cfg") ||
           has(prefix, "lib/rustlib") || has(prefix, "pkg/tool");
}

static bool is_manager(const char *prefix)
{
    return (has(prefix, "shims") && (has(prefix, "versions") || has(prefix, "installs"))) ||
           (has(prefix, "tools/image") && has(prefix, "bin/volta"));
}

/* Only what belongs to an installation is opened, by name: its prefix may hold more (~/.local, a project's
 * directory). */
static int grant_parts(const struct cb_program_finder *finder, const char *prefix, const char *const *parts,
                       const char *program, cellblock_error **error)
{
    for (; *parts; parts++) {
        cb_autofree char *path = cb_format("%s/%s", prefix, *parts);
        if (!path)
            return cb_fail_memory(error);
        if (finder->grant(finder->data, path, program, error) < 0)
            return -1;
    }
    return 0;
}

static const char *const code_parts[] = {"bin", "lib", "lib32", "lib64", "libexec", "include", NULL};
/* Besides: what the toolchains of Java and Go, and conda, keep beside these. */
static const char *const more_parts[] = {"conf",    "jmods", "release", "pkg", "src", "VERSION",
                                         "go.env", "share", "ssl",     NULL};
static const char *const manager_parts[] = {"shims", "versions", "installs", "plugins", "tools", "version", "pyenv.d",
                                            NULL};
static const char *const venv_parts[] = {"pyvenv.cfg", "bin", "lib", "lib64", "include", NULL};

static int grant_interpreter(const struct cb_program_finder *finder, const char *prefix, const char *program,
                             bool trusted, cellblock_error **error)
{
    const char *name = strrchr(prefix, '/') + 1;
    bool shared = strcmp(name, ".local") == 0; /* many programs keep their data there */
    if (grant_parts(finder, prefix, code_parts, program, error) < 0)
        return -1;
    return trusted && !shared ? grant_parts(finder, prefix, more_parts, program, error) : 0;
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
        if (prefix && !is_too_wide(finder, prefix) && is_interpreter(prefix))
            return grant_interpreter(finder, prefix, "python3", false, error);
    }
    return 0;
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
    if (walk.fd < 0)
        return 0;
    /* A virtual environment may be the workspace's own: that it holds something writable does not make it wide. */
    if (has(walk.path, "pyvenv.cfg") && strcmp(walk.path, "/") != 0 &&
        !(finder->context->home && cb_path_within(finder->context->home, walk.path))) {
        *found = true;
        return grant_parts(finder, walk.path, venv_parts, program, error) < 0
                   ? -1
                   : grant_venv_home(finder, walk.path, error);
    }
    if (is_too_wide(finder, walk.path))
        return 0;
    if (is_interpreter(walk.path)) {
        *found = true;
        return grant_interpreter(finder, walk.path, program, trusted, error);
    }
    if (!trusted || !is_manager(walk.path))
        return 0;
    *found = true;
    return grant_parts(finder, walk.path, code_parts, program, error) < 0
               ? -1
               : grant_parts(finder, walk.path, manager_parts, program, error);
}

/* Does it begin as a program does? Nothing else is opened as a single file: a key, say, that a planted link leads
 * to. */
static bool is_program(int fd)
{
    char magic[64], start[4];
    snprintf(magic, sizeof magic, "/proc/self/fd/%d", fd);
    cb_autofd int file = open(magic, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    struct stat found;
    return file >= 0 && fstat(file, &found) == 0 && found.st_mode & 0111 && read(file, start, 4) == 4 &&
           (memcmp(start, "\177ELF", 4) == 0 || memcmp(start, "#!", 2) == 0);
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
    if (base && strcmp(base, "/env") == 0) {
        interpreter = strtok_r(NULL, " \t\r", &save);
        if (interpreter && strcmp(interpreter, "-S") == 0)
            interpreter = strtok_r(NULL, " \t\r", &save);
        if (interpreter && (interpreter[0] == '-' || strchr(interpreter, '=')))
            return 0; /* more than a name: not for us to take apart */
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
    if (!here && trusted && depth == 0 && is_program(walk.fd) &&
        finder->grant(finder->data, walk.path, program, error) < 0)
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
