/* Where a cgroup of our own may be made: inside what was given to us, and nowhere else.
 *
 * In a tree of version 1 that is below our own cgroup. In a tree of version 2 a cgroup holds either processes or
 * children with controllers, so it is
 *   - our own cgroup, if it hands controllers down although we are in it, as only the root of the tree can, or
 *   - the one above ours, if it lies in what was delegated to us as well.
 * If only our own was delegated, we would have to step aside into a leaf first. The process belongs to whoever called
 * us, and so does its place in the tree: it is not moved.
 *
 * Everything is found by reading; nothing is made or changed here. */
#pragma once

#include <stddef.h>

/* Controllers. */
#define CB_CGROUP_MEMORY 1
#define CB_CGROUP_PIDS 2
#define CB_CGROUP_CPU 4         /* share */
#define CB_CGROUP_CPUACCT 8     /* time */
#define CB_CGROUP_V2 16         /* in a tree of version 2 */
#define CB_CGROUP_ALL (CB_CGROUP_MEMORY | CB_CGROUP_PIDS | CB_CGROUP_CPU)

enum { CB_CGROUP_PLACES = 5 }; /* at most one tree of version 2, and one of version 1 for each controller */

struct cb_cgroup_place {
    int dir;                /* a cgroup can be made in it */
    unsigned controllers;   /* the wanted ones that it will have; CB_CGROUP_V2 in a tree of version 2 */
    unsigned enable;        /* version 2: those of them that `dir` must be told to hand down first */
};

struct cb_cgroup_places {
    struct cb_cgroup_place place[CB_CGROUP_PLACES];
    size_t count;
    unsigned controllers;   /* of all places */
    int errnum;             /* why a wanted one is not among them, or 0 */
};

/* What the kernel says about us: /proc/self/cgroup and /proc/self/mountinfo. */
struct cb_cgroup_texts {
    const char *cgroup;
    const char *mountinfo;
};

/* Fills `places` for the wanted controllers; to be closed in every case. Returns 0 if at least one was found, else -1
 * with errno (ENOENT: no tree has them; EACCES, EROFS: not ours; EBUSY: our own is delegated, but we are in it). */
int cb_cgroup_find(unsigned wanted, struct cb_cgroup_places *places);
/* The same for other texts. */
int cb_cgroup_find_in(const struct cb_cgroup_texts *texts, unsigned wanted, struct cb_cgroup_places *places);
void cb_cgroup_places_close(struct cb_cgroup_places *places);

/* The controllers that a file such as cgroup.controllers lists: CB_CGROUP_* bits; -1 with errno. */
int cb_cgroup_listed(int dir, const char *file);
