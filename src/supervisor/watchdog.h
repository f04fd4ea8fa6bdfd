/* The watchdog: keeps the limits over the whole cell that no cgroup keeps, and notes peaks.
 *
 * Runs in the supervisor, from its event loop, on a timer of its own. How soon it looks again depends on how near a
 * limit is: memory can't grow faster than the machine can clear pages. */
#pragma once

#include "supervisor/supervisor.h"

struct cb_watchdog;

/* Starts watching, once the program runs; cell->watchdog stays NULL when the plan leaves nothing to watch. */
int cb_watchdog_start(struct cellblock_cell *cell, cellblock_error **error);
/* Its timer, to be polled. */
int cb_watchdog_fd(const struct cb_watchdog *watchdog);
/* Looks once, and ends the cell (cb_cell_end) when a limit is passed. */
void cb_watchdog_look(struct cellblock_cell *cell);
/* The last look, when every process is gone: peaks, and what the cgroup counted. */
void cb_watchdog_finish(struct cellblock_cell *cell);
void cb_watchdog_free(struct cb_watchdog *watchdog);
