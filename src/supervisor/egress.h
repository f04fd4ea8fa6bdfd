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

/* What is done for a call that may go there, when that is more than letting it go on (tier landlock). */
struct cb_errand {
    int socket;             /* a duplicate of the caller's */
    int flags;              /* of the caller's socket, to be put back */
    pid_t thread;           /* the caller */
    struct cb_address address;
    uint16_t port;
};

/* Asks the relay whether the call may go there, and answers the call when it has answered. With an errand, which is
 * taken, it is cb_broker_go() that does. */
int cb_egress_ask(const struct cb_call *call, enum cb_protocol protocol, bool sends, const struct cb_address *address,
                  uint16_t port, const struct cb_errand *errand);
/* Connects: to where the relay allows it, or to the resolver. */
void cb_broker_go(struct cellblock_cell *cell, uint64_t id, struct cb_errand *errand, bool resolver);
bool cb_broker_owns(const struct cellblock_cell *cell, const void *token);
void cb_broker_event(struct cellblock_cell *cell, void *token);
void cb_broker_free(struct cellblock_cell *cell);
/* The resolver's address, once its socket expects a connection from `port`. */
uint16_t cb_egress_resolver(struct cb_egress *egress, uint16_t port);
/* The rules in force; NULL without a relay. */
const cellblock_policy *cb_egress_policy(const struct cb_egress *egress);
/* Puts a changed policy in force, and takes it, for new connections; with `cut` also for those that exist. */
int cb_egress_change(struct cellblock_cell *cell, cellblock_policy *policy, bool cut, cellblock_error **error);

struct cb_traffic cb_egress_traffic(const struct cb_egress *egress);
