/* Netlink messages put together by hand, in memory that the caller has: nothing is allocated, so that a cell can use it
 * after the clone. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cb_netlink {
    _Alignas(8) char data[65536];  /* large: keep it off small stacks */
    size_t length;
    bool full;              /* something did not fit: asked once, when it is sent */
    uint32_t last;          /* sequence number of the last message that wants an answer */
};

size_t cb_netlink_put(struct cb_netlink *batch, const void *data, size_t length);
/* `header` is the fixed part that follows the netlink header. Returns where the message starts, for the end. */
size_t cb_netlink_begin(struct cb_netlink *batch, uint16_t type, uint16_t flags, const void *header, size_t length);
void cb_netlink_end(struct cb_netlink *batch, size_t at);
void cb_netlink_attribute(struct cb_netlink *batch, unsigned type, const void *data, size_t length);
void cb_netlink_text(struct cb_netlink *batch, unsigned type, const char *text);
void cb_netlink_number(struct cb_netlink *batch, unsigned type, uint32_t number); /* in network order */
size_t cb_netlink_nest(struct cb_netlink *batch, unsigned type);
void cb_netlink_end_nest(struct cb_netlink *batch, size_t at);

/* Sends it, and waits until the last message that asked for one is acknowledged. Returns 0, or -1 with errno: what the
 * kernel said of the first that it refused, and its sequence number (they count from 1) in *refused. */
int cb_netlink_talk(int socket, struct cb_netlink *batch, uint32_t *refused);
/* The same on a socket of its own. */
int cb_netlink_once(int protocol, struct cb_netlink *batch);
void cb_netlink_clear(struct cb_netlink *batch);
