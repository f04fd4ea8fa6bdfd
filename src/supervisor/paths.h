/* What a call of the cell names: read from the caller's memory, once, and found by descriptor. */
#pragma once

#include "supervisor/notify.h"

#include <limits.h>

/* Each returns 0 or a negative errno. What was read may have changed in the caller's memory since: it is never read
 * again, and the kernel is never told to. */
int cb_call_read(const struct cb_call *call, uint64_t address, void *data, size_t size);
int cb_call_read_string(const struct cb_call *call, uint64_t address, char text[PATH_MAX]);

/* A duplicate of a descriptor of the caller's, or -1 with errno. Closing it never waits: see linger.c. */
int cb_call_duplicate(const struct cb_call *call, int number);
/* The caller's own descriptor, or its working directory for AT_FDCWD, as one of ours that only names the object
 * (O_PATH); or a negative errno. */
int cb_call_open(const struct cb_call *call, int number);

/* Where something that we have open is. For what has no place in the tree (a pipe) it does not begin with a slash. */
int cb_path_of(int fd, char path[PATH_MAX]);
/* Tier landlock, where the host's own tree is what a call names: may the code write there? */
bool cb_plan_grants_write(const struct cb_plan *plan, const char *path);
/* A name under which a descriptor of ours can be handed to calls that only take paths. */
void cb_path_to(int fd, char path[64]);
