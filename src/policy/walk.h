/* Path resolution by descriptor: one component at a time, symbolic links followed by us and written down. */
#pragma once

#include "policy/resolve.h"

struct cb_walk {
    int fd;               /* O_PATH descriptor of what the path leads to; -1 when it does not exist */
    char *path;           /* canonical; for something that does not exist, as far as it got plus the rest */
    dev_t device;
    ino_t inode;
    mode_t mode;
    struct cb_link *links; /* every symbolic link that was followed, in order */
    size_t link_count;
};
#define CB_WALK_INIT {.fd = -1}

/* Follows an absolute path. Returns 0 with fd >= 0, 0 with fd == -1 and errno in *missing (ENOENT, ENOTDIR, EACCES,
 * ELOOP), or -1 when out of memory. */
int cb_walk_path(const char *path, struct cb_walk *walk, int *missing, cellblock_error **error);
void cb_walk_end(struct cb_walk *walk);
#define cb_autowalk __attribute__((cleanup(cb_walk_end)))

/* Collapses "//", "/./" and a trailing "/" of an absolute path, in place; ".." is left alone. */
void cb_path_clean(char *path);
/* The parent of an absolute path, newly allocated; "/" for "/". NULL when out of memory. */
char *cb_path_parent(const char *path);
