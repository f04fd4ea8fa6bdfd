/* The cell's own terminal, from outside: bytes are relayed between it and the caller's, which never gets into the cell.
 * See terminal.c. */
#pragma once

#include "supervisor/supervisor.h"

/* False when the kernel says that this device is none; true for one that is dead, too. */
bool cb_terminal_may_be(int fd);
/* Finds out which of the caller's streams are its terminal, and marks those of the cell's that become its own
 * (CB_STREAM_TERMINAL). cell->terminal stays NULL when there is none. */
int cb_terminal_prepare(struct cellblock_cell *cell, const int given[3], bool foreground, int streams[3],
                        cellblock_error **error);
const struct cb_terminal_start *cb_terminal_start(const struct cb_terminal *terminal);
/* Begins to relay. Takes our side of the cell's terminal. */
int cb_terminal_open(struct cellblock_cell *cell, int ours, cellblock_error **error);

/* Is this what an event is about? */
bool cb_terminal_owns(const struct cb_terminal *terminal, const void *token);
/* Does what is due. Returns 1 when the limit of output was passed, else 0. */
int cb_terminal_event(struct cellblock_cell *cell, const void *token);

/* The program asks for the terminal: it reads from it, or sets it up. */
void cb_terminal_asked(struct cellblock_cell *cell);
/* The caller's terminal may have another size, or the caller another place on it. */
void cb_terminal_look(struct cellblock_cell *cell);
/* The program has ended: what is typed from here on is not for it. */
void cb_terminal_ended(struct cellblock_cell *cell);
/* Every process is gone: relays what is left. As cb_terminal_event(). */
int cb_terminal_last(struct cellblock_cell *cell);

/* Is there output that was not delivered yet, or may come? */
bool cb_terminal_busy(const struct cb_terminal *terminal);
/* Is what is typed passed on at the moment? */
bool cb_terminal_reads(const struct cb_terminal *terminal);
void cb_terminal_free(struct cb_terminal *terminal);
