/* The janitor: a small process that removes the cgroups of one cell when the supervisor is gone, however it went. */
#pragma once

#include "host/cgroup.h"

#include <sys/types.h>

struct cb_janitor;

enum { CB_CGROUP_NAME = 96 };

/* A name for the cgroups of one cell, by which a later janitor can tell whose they were. */
int cb_janitor_name(char name[CB_CGROUP_NAME]);

/* Starts it for the cgroups of that name in these places, which need not be there yet. -1 with errno. */
int cb_janitor_start(const struct cb_cgroup_places *places, const char *name, struct cb_janitor **janitor);
/* Not to be killed with the rest: a process that cleans up after the others by itself, and then goes. */
void cb_janitor_spare(struct cb_janitor *janitor, pid_t pid);
/* Removes the cgroups; what is in them is killed. Tries for this long. Once they are gone, the janitor is sent home. */
void cb_janitor_remove(struct cb_janitor *janitor, int patience_ms);
/* The same with more patience, and waits for the janitor's end. What even then can't be removed is left to it. */
void cb_janitor_free(struct cb_janitor *janitor);
