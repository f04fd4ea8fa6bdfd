/* Starting another copy of the cellblock program, for a part of the work. */
#pragma once

#include <stdbool.h>

/* The descriptor that it finds its socket at. */
enum { CB_LAUNCH_FD = 3 };

/* Runs `path` with the command `word`, an empty environment, and this socket as its only descriptor besides the
 * standard ones; `apart` in a process group of its own, where signals to the caller's do not reach it. Returns a pidfd,
 * or -1 with errno. Nobody waits for it: it is not a child of the caller (unless that reaps what others leave). */
int cb_launch(const char *path, const char *word, int socket, bool apart);
