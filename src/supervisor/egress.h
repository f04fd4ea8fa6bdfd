/* The way out of a cell: its relay, a process of its own (src/relay), which the supervisor starts, gives the cell's
 * sockets to, and asks. */
#pragma once

#include "supervisor/notify.h"
#include "supervisor/supervisor.h"

/* Starts the relay, if the plan has one: before the cell, so that both get ready at the same time. `program` is the
 * cellblock program. */
int cb_egress_start(struct cellblock_cell *cell, const cellblock_policy *policy, const char *program,
                    cellblock_error **error);
/* A socket that the cell made; at the end of the row it waits until the relay is ready, and says "go". Takes it. */
int cb_egress_take(struct cellblock_cell *cell, int which, int fd, cellblock_error **error);
int cb_egress_fd(const struct cb_egress *egress);
/* The relay has said something. */
void cb_egress_event(struct cellblock_cell *cell);
/* A socket that the relay wanted; or -1. */
void cb_egress_inner(struct cellblock_cell *cell, int fd);
/* The cell is gone: the relay delivers what is on its way. Until then it is busy. */
void cb_egress_finish(struct cellblock_cell *cell);
bool cb_egress_busy(const struct cb_egress *egress);
void cb_egress_give_up(struct cb_egress *egress);
void cb_egress_free(struct cb_egress *egress);

/* Asks the relay whether the call may go there, and answers the call when it has answered. */
int cb_egress_ask(const struct cb_call *call, enum cb_protocol protocol, bool sends, const struct cb_address *address,
                  uint16_t port);

/* Tier landlock: hands the relay a duplicate of the caller's socket, to be connected; takes it. cb_broker_answered() is
 * called with what came of it, and cb_egress_done() lets the relay close it. */
int cb_egress_connect(struct cellblock_cell *cell, uint64_t id, int socket, const void *address, size_t length);
void cb_egress_done(struct cellblock_cell *cell, uint64_t id);
void cb_broker_answered(struct cellblock_cell *cell, uint64_t id, int errnum);
void cb_broker_look(struct cellblock_cell *cell);
void cb_broker_free(struct cellblock_cell *cell);

/* The rules in force; NULL without a relay. */
const cellblock_policy *cb_egress_policy(const struct cb_egress *egress);
/* Puts a changed policy in force, and takes it, for new connections; with `cut` also for those that exist. */
int cb_egress_change(struct cellblock_cell *cell, cellblock_policy *policy, bool cut, cellblock_error **error);

struct cb_traffic cb_egress_traffic(const struct cb_egress *egress);
