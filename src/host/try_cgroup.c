/* Attempt with control groups: may a cgroup be made below our own, and which controllers would it have?
 *
 * Runs in the caller's process. It only reads, except that it makes one empty cgroup per tree, under a name that is
 * unique, and removes it at once. */
#include "host/attempt.h"

#include "base/cleanup.h"
#include "base/missing.h"
#include "base/text.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

static const struct {
    const char *name;
    int bit;
} controllers[] = {{"memory", CB_CGROUP_MEMORY}, {"pids", CB_CGROUP_PIDS}, {"cpu", CB_CGROUP_CPU}};
#define CONTROLLERS (sizeof controllers / sizeof *controllers)

static void close_file(FILE **file)
{
    if (*file)
        fclose(*file);
}
#define autofile __attribute__((cleanup(close_file)))

static bool has_word(const char *list, const char *word, const char *separators)
{
    size_t length = strlen(word);
    for (const char *at = list; *at;) {
        size_t span = strcspn(at, separators);
        if (span == length && memcmp(at, word, length) == 0)
            return true;
        at += span;
        at += strspn(at, separators);
    }
    return false;
}

/* The path of our own cgroup in a tree, from /proc/self/cgroup ("ID:CONTROLLERS:PATH"); "" stands for version 2. */
static char *own_path(const char *controller)
{
    autofile FILE *file = fopen("/proc/self/cgroup", "re");
    cb_autofree char *line = NULL;
    size_t room = 0;
    while (file && getline(&line, &room, file) > 0) {
        char *list = strchr(line, ':');
        char *path = list ? strchr(list + 1, ':') : NULL;
        if (!path)
            continue;
        *path++ = '\0';
        path[strcspn(path, "\n")] = '\0';
        if (*controller ? has_word(list + 1, controller, ",") : list[1] == '\0' && cb_has_prefix(line, "0"))
            return strdup(path);
    }
    return NULL;
}

/* Opens our own cgroup in the tree of a controller, through the place where that tree is mounted (mountinfo: "ID PARENT
 * MAJOR:MINOR ROOT POINT OPTIONS … - TYPE SOURCE SUPER"). */
static int open_own(const char *controller)
{
    cb_autofree char *own = own_path(controller);
    autofile FILE *file = own ? fopen("/proc/self/mountinfo", "re") : NULL;
    cb_autofree char *line = NULL;
    size_t room = 0;
    while (file && getline(&line, &room, file) > 0) {
        cb_autofree char *root = NULL, *point = NULL, *type = NULL, *super = NULL;
        const char *tail = strstr(line, " - ");
        if (!tail || sscanf(line, "%*s %*s %*s %ms %ms", &root, &point) != 2 ||
            sscanf(tail, " - %ms %*s %ms", &type, &super) != 2)
            continue;
        bool wanted = *controller ? strcmp(type, "cgroup") == 0 && has_word(super, controller, ",")
                                  : strcmp(type, "cgroup2") == 0;
        if (!wanted)
            continue;
        /* A mount may show only a part of the tree; our own cgroup must lie in it. */
        const char *below = own;
        if (strcmp(root, "/") != 0) {
            if (!cb_path_within(own, root))
                continue;
            below += strlen(root);
        }
        cb_autofree char *path = cb_format("%s/%s", point, below);
        return path ? open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    }
    errno = ENOENT;
    return -1;
}

static int make_and_remove(int dir)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    char name[64];
    snprintf(name, sizeof name, "cellblock-probe-%d-%lld", (int)getpid(), now.tv_sec * 1000000000LL + now.tv_nsec);
    if (mkdirat(dir, name, 0755) < 0)
        return -1;
    return unlinkat(dir, name, AT_REMOVEDIR);
}

/* A delegated version 2 cgroup: children can be made, and both files that hand things down are ours to write. */
static int examine_v2(int *bits)
{
    cb_autofd int dir = open_own("");
    if (dir < 0)
        return -1;
    cb_autofd int fd = openat(dir, "cgroup.controllers", O_RDONLY | O_CLOEXEC);
    char list[512];
    ssize_t length = fd < 0 ? -1 : read(fd, list, sizeof list - 1);
    if (length < 0)
        return -1;
    list[length] = '\0';
    int found = 0;
    for (size_t i = 0; i < CONTROLLERS; i++)
        if (has_word(list, controllers[i].name, " \n"))
            found |= controllers[i].bit;
    if (!found) {
        errno = EOPNOTSUPP;
        return -1;
    }
    if (faccessat(dir, "cgroup.subtree_control", W_OK, AT_EACCESS) < 0 ||
        faccessat(dir, "cgroup.procs", W_OK, AT_EACCESS) < 0 || make_and_remove(dir) < 0)
        return -1;
    *bits |= found | CB_CGROUP_V2;
    return 0;
}

struct cb_attempt cb_try_cgroup(void)
{
    int bits = 0, errnum = 0;
    if (examine_v2(&bits) < 0)
        errnum = errno;
    for (size_t i = 0; i < CONTROLLERS && !(bits & CB_CGROUP_V2); i++) {
        cb_autofd int dir = open_own(controllers[i].name);
        if (dir < 0)
            continue;
        if (make_and_remove(dir) == 0)
            bits |= controllers[i].bit;
        else
            errnum = errno;
    }
    if ((bits & CB_CGROUP_ALL) == CB_CGROUP_ALL)
        return (struct cb_attempt){.value = bits};
    return (struct cb_attempt){.step = "making a cgroup below our own", .errnum = errnum, .value = bits};
}
