/* Attempt with control groups: may a cgroup be made where the cell's would be, and which controllers would it have?
 *
 * Runs in the caller's process. It only reads, except that it makes one empty cgroup per tree, under a name that is
 * unique, and removes it at once. */
#include "host/attempt.h"

#include "base/cleanup.h"
#include "base/missing.h"

#include <stdio.h>
#include <sys/stat.h>
#include <time.h>

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

struct cb_attempt cb_try_cgroup(void)
{
    struct cb_cgroup_places places;
    cb_cgroup_find(CB_CGROUP_ALL, &places);
    unsigned bits = 0;
    int errnum = places.errnum;
    for (size_t i = 0; i < places.count; i++)
        if (make_and_remove(places.place[i].dir) == 0)
            bits |= places.place[i].controllers;
        else
            errnum = errno;
    cb_cgroup_places_close(&places);
    if ((bits & CB_CGROUP_ALL) == CB_CGROUP_ALL)
        return (struct cb_attempt){.value = (int)bits};
    return (struct cb_attempt){.step = "making a cgroup below our own", .errnum = errnum, .value = (int)bits};
}
