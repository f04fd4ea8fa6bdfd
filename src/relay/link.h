/* What the supervisor and the relay of a cell say to each other: small messages on a socket pair that keeps their
 * borders, each with at most one descriptor. The relay reads bytes that the code in the cell chose, so the supervisor
 * trusts nothing that comes back: it checks sizes, and takes texts as texts. */
#pragma once

#include "base/address.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum cb_link_kind {
    /* supervisor → relay */
    CB_LINK_SETTINGS = 1,   /* counts: bytes, connections, uid, gid (0: stay as you are); `number` is 0, but in tests */
    CB_LINK_POLICY,         /* a piece of the packed policy in `text`; `number` is 1 for the last one, which takes
                             * effect, and 2 if connections that it no longer allows are to be cut */
    CB_LINK_SOCKET,         /* carries a socket of base/divert.h: `number` */
    CB_LINK_PUBLISH,        /* carries a listening socket of the host's, for the cell's `port` */
    CB_LINK_ASK,            /* may the cell connect (`number` 0) or send (1) to this address? */
    CB_LINK_INNER,          /* carries a socket made in the cell, as was wanted, or none */
    CB_LINK_RESOLVER,       /* tier landlock: carries a listening socket for questions for names */
    CB_LINK_PLACE,          /* … carries a unix socket that may be connected to, as O_PATH */
    CB_LINK_CONNECT,        /* … carries a socket of the code's, with the address of its connect() in `text` */
    CB_LINK_DONE,           /* … that call `id` is answered, and the supervisor has let go of the socket */
    CB_LINK_FINISH,         /* the cell is gone: deliver what is on its way (`number` 1: not for long), tell the counts,
                             * and end */
    /* relay → supervisor */
    CB_LINK_READY,          /* confined, and holding what it needs */
    CB_LINK_FAILED,         /* `number` is errno, `text` what was tried */
    CB_LINK_ANSWER,         /* to `id`: 0, or an errno */
    CB_LINK_CHANGED,        /* the policy is in force; or `number` is errno, and it is the old one */
    CB_LINK_DENIAL,         /* code, object and details (JSON) in `text`, each with its zero; counts: how often */
    CB_LINK_LIMIT,          /* the bytes are used up */
    CB_LINK_WANT_INNER,     /* a socket of the family `number`, for a connection to a published port */
    CB_LINK_COUNTS,         /* counts: connections, bytes out, bytes in; the last word */
};

enum { CB_LINK_TEXT = 32768 };

struct cb_link_message {
    uint32_t kind;
    int32_t number;
    uint64_t id;
    uint64_t counts[4];
    struct cb_address address;
    uint16_t port;
    uint16_t protocol;
};

/* What finds no room now waits here: neither end ever waits for the other while a cell runs. */
struct cb_link_queue {
    int link;
    struct cb_link_waiting *first, *last;
};

/* Sends now, or later. The descriptor stays the caller's. -1 with errno when that can't be. */
int cb_link_tell(struct cb_link_queue *queue, const struct cb_link_message *message, const void *text, size_t length,
                 int fd);
/* Sends what waits, as far as there is room. */
void cb_link_flush(struct cb_link_queue *queue);
bool cb_link_waits(const struct cb_link_queue *queue);
void cb_link_clear(struct cb_link_queue *queue);

/* Sends, with `length` bytes of text and a descriptor (or -1). Returns 0, or -1 with errno. */
int cb_link_send(int link, const struct cb_link_message *message, const void *text, size_t length, int fd, int flags);
/* Receives. `text` has room for CB_LINK_TEXT bytes and one more, and is terminated. Returns its length, or -1 with errno:
 * EPIPE when the other end is gone, EPROTO for what is no message. *fd is -1 without one. */
ssize_t cb_link_receive(int link, struct cb_link_message *message, char *text, int *fd, int flags);
