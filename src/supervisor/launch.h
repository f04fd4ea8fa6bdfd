/* Starting another copy of the cellblock program, for a part of the work. */
#pragma once

/* The descriptor that it finds its socket at. */
enum { CB_LAUNCH_FD = 3 };

/* Runs `path` with the command `word`, an empty environment, and this socket as its only descriptor besides the
 * standard ones. Returns a pidfd, or -1 with errno. Nobody waits for it: it is not a child of the caller. */
int cb_launch(const char *path, const char *word, int socket);
