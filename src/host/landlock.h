/* Which Landlock ABI can be relied on, and what an ABI can handle. */
#pragma once

#include "base/missing.h"

/* The newest ABI whose rights are known here. A kernel that offers more is used as this one. */
#define CB_LANDLOCK_ABI_KNOWN 9

/* All rights and scopes that an ABI can handle. *size is how much of the structure this ABI knows. */
struct cb_landlock_ruleset_attr cb_landlock_handled(int abi, size_t *size);

/* The two calls of the search, so that a test can stand in for a kernel. Each returns -1 and errno on failure. */
struct cb_landlock_calls {
    int (*version)(void *data);                                                              /* the ABI it claims */
    int (*create)(const struct cb_landlock_ruleset_attr *attr, size_t size, void *data);     /* a descriptor */
    void (*close)(int ruleset, void *data);
    void *data;
};

/* The highest ABI, at most what is claimed, for which a ruleset with all its rights can be made. 0 and *errnum when
 * there is none. */
int cb_landlock_find(const struct cb_landlock_calls *calls, int *errnum);
/* The same, asking the kernel. */
int cb_landlock_find_here(int *errnum);
