/* A directory of its own for each test, filled by short paths and removed afterwards. */
#pragma once

#include "base/text.h"

struct place {
    char *root; /* canonical */
};

int place_make(void **state);
int place_remove(void **state);
/* Paths are below the root; parents are made as needed. What is returned lives as long as the place's test. */
const char *place_path(const struct place *place, const char *path);
void place_directory(const struct place *place, const char *path);
void place_file(const struct place *place, const char *path, const char *content);
/* The target is taken as it is. */
void place_link(const struct place *place, const char *path, const char *target);
