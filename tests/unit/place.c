/* See place.h. */
#include "place.h"

#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { PATHS = 64 };
static char paths[PATHS][PATH_MAX]; /* handed out in turn: more than any one test keeps */

int place_make(void **state)
{
    char template[] = "/tmp/cellblock-unit-XXXXXX";
    struct place *place = calloc(1, sizeof *place);
    if (!place || !mkdtemp(template) || !(place->root = realpath(template, NULL)))
        return -1;
    *state = place;
    return 0;
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *where)
{
    return remove(path);
}

int place_remove(void **state)
{
    struct place *place = *state;
    int failed = nftw(place->root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    free(place->root);
    free(place);
    return failed;
}

const char *place_path(const struct place *place, const char *path)
{
    static unsigned next;
    char *made = paths[next++ % PATHS];
    assert_true(snprintf(made, PATH_MAX, "%s%s%s", place->root, *path ? "/" : "", path) < PATH_MAX);
    return made;
}

static void make_parents(const char *full)
{
    char copy[PATH_MAX];
    snprintf(copy, sizeof copy, "%s", full);
    for (char *slash = strchr(copy + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(copy, 0755);
        *slash = '/';
    }
}

void place_directory(const struct place *place, const char *path)
{
    const char *full = place_path(place, path);
    make_parents(full);
    mkdir(full, 0755);
}

void place_file(const struct place *place, const char *path, const char *content)
{
    const char *full = place_path(place, path);
    make_parents(full);
    int fd = open(full, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0755);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, content, strlen(content)), strlen(content));
    close(fd);
}

void place_link(const struct place *place, const char *path, const char *target)
{
    const char *full = place_path(place, path);
    make_parents(full);
    assert_int_equal(symlink(target, full), 0);
}
