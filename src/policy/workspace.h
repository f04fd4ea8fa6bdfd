/* Is this directory fit to be the one that untrusted code may write? */
#pragma once

#include "policy/resolve.h"

/* Does it lie in a tree that belongs to the system (/usr, /etc, …)? */
bool cb_is_system_path(const char *path);

/* `on_purpose`: the policy spelled the place out (an absolute or "~" path) instead of taking where the caller
 * stands. */
int cb_workspace_check(const char *path, const char *home, bool on_purpose, cellblock_error **error);
