/* See ids.h. */
#include "host/ids.h"

#include "base/cleanup.h"

#include <stdio.h>
#include <sys/stat.h>

/* Has an id a place in a map (/proc/self/uid_map or gid_map)? `unknown` when the map can't be read. */
static bool mapped(const char *map, unsigned id, bool unknown)
{
    FILE *file = fopen(map, "re");
    if (!file)
        return unknown;
    unsigned inside, outside, count;
    bool found = false;
    while (!found && fscanf(file, "%u %u %u", &inside, &outside, &count) == 3)
        found = id >= inside && id - inside < count;
    fclose(file);
    return found;
}

/* Is our root the machine's? A map shows only one level of nesting, but the kernel's settings belong to the machine's
 * root wherever they are seen from. */
static bool root_of_machine(void)
{
    struct stat settings;
    return stat("/proc/sys/kernel", &settings) < 0 || settings.st_uid == 0;
}

bool cb_id_mapped(unsigned id)
{
    return mapped("/proc/self/uid_map", id, false) && mapped("/proc/self/gid_map", id, false);
}

enum cb_mapping cb_mapping_of_caller(void)
{
    if (geteuid() != 0)
        return CB_MAPPING_SELF;
    if (cb_id_mapped(CB_NOBODY))
        return CB_MAPPING_NOBODY;
    return root_of_machine() ? CB_MAPPING_NONE : CB_MAPPING_SELF;
}

bool cb_ids_unmapped(void)
{
    return !mapped("/proc/self/uid_map", geteuid(), true) || !mapped("/proc/self/gid_map", getegid(), true);
}
