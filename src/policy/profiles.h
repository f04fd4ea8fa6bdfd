/* The built-in profiles, as tools/embed.c writes them into the build. */
#pragma once

#include <stddef.h>

struct cb_embedded {
    const char *text;
    size_t length;
};

/* Sorted by name; both lists have the same order and the names end with NULL. */
extern const char *const cb_embedded_names[];
extern const struct cb_embedded cb_embedded_profiles[];
