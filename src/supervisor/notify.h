/* System calls of the cell that the supervisor answers (seccomp user notification). */
#pragma once

#include "base/missing.h"
#include "supervisor/supervisor.h"

struct cb_call {
    struct cellblock_cell *cell;
    const struct cb_seccomp_notif *notice;
};

/* What a decision says: a negative errno, 0 (done), or one of these. */
enum {
    CB_CALL_GO_ON = 1,      /* the kernel may do it: only where a change of memory arguments does no harm */
    CB_CALL_ANSWERED = 2,   /* nothing left to say */
    CB_CALL_OTHER = 3,      /* not a call that this part answers */
};

/* Answers a call later: a negative errno, 0, or CB_CALL_GO_ON. */
void cb_notify_reply(struct cellblock_cell *cell, uint64_t id, int answer);
bool cb_notify_waits(const struct cellblock_cell *cell, uint64_t id);
/* Does the caller still wait? Asked right before something is done for it. */
bool cb_call_waits(const struct cb_call *call);
/* Answers with a descriptor for the caller. */
int cb_call_give(const struct cb_call *call, int fd, int flags);
/* Answers that it was done, for what can only be done after that. */
int cb_call_done(const struct cb_call *call);

int cb_guard_decide(const struct cb_call *call);   /* names: guard.c */
int cb_linger_decide(const struct cb_call *call);  /* linger.c */
int cb_connect_decide(const struct cb_call *call); /* connect.c */
int cb_broker_decide(const struct cb_call *call);  /* sockets in tier landlock: broker.c */
int cb_memory_decide(const struct cb_call *call);  /* memory.c */
int cb_attributes_decide(const struct cb_call *call); /* modes, owners, times: attributes.c */
int cb_signals_decide(const struct cb_call *call);    /* signals.c */
