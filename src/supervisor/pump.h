/* Moves bytes between a pipe of the cell and the caller: collects them, or relays them one way with back-pressure. */
#pragma once

#include "base/text.h"

#include <stdbool.h>
#include <stdint.h>

struct cb_pump {
    int from, to;            /* to == -1: collect into `text` */
    bool own_from, own_to;   /* ours to close; the caller's own descriptors are left as they are */
    bool from_polls, to_polls; /* can be waited for (a regular file can't, and never blocks) */
    bool last;               /* every writer that counts is gone: what is there now is all */
    bool open;
    bool truncated;
    int lost;                /* errno: the other end took no more, for another reason than that nobody reads */
    uint64_t limit, total;
    struct cb_text text;
    char *buffer;
    size_t start, length;    /* what of it is still to be relayed */
    int epoll;
    /* Changes what was read before it is relayed; returns its new length, at most one byte more. May be NULL. */
    size_t (*adapt)(struct cb_pump *pump, char *data, size_t length);
    void *owner;             /* for that */
};

#define CB_PUMP_INIT {.from = -1, .to = -1}

int cb_pump_open(struct cb_pump *pump, int epoll);
/* Moves what can be moved. Returns 1 when the limit was passed, 0 otherwise; `open` turns false at the end. */
int cb_pump_run(struct cb_pump *pump);
void cb_pump_close(struct cb_pump *pump);
