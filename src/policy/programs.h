/* Which files does a program need that lives outside the system directories (a virtual environment, pyenv, nvm, conda,
 * …)? Finds its installation, so that this and nothing else of a home directory becomes readable. */
#pragma once

#include "policy/resolve.h"

struct cb_program_finder {
    const struct cb_context *context;
    /* Is this path readable in the cell anyway? Then there is nothing to find out about it. */
    bool (*readable)(void *data, const char *path);
    /* Could code in a cell have put there what is there? Then it opens installations only. */
    bool (*writable)(void *data, const char *path);
    /* May the code write something below this directory? */
    bool (*holds_writable)(void *data, const char *path);
    /* Called for each path to make readable. */
    int (*grant)(void *data, const char *path, const char *program, cellblock_error **error);
    /* Called for each symbolic link on the way. */
    int (*link)(void *data, const struct cb_link *link, cellblock_error **error);
    void *data;
};

/* A program by name (looked up in PATH) or by path. One that is not found is no error: running it will say so. */
int cb_program_find(const struct cb_program_finder *finder, const char *program, cellblock_error **error);
