/* Packets of the cell's network, read and made by hand: the few kinds that tell a program how its connection or its
 * datagram fared outside. Pure functions. */
#pragma once

#include "base/address.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Who in the cell talks to whom. */
struct cb_flow {
    struct cb_address client, target; /* of one family */
    uint16_t client_port, target_port;
};

enum { CB_PACKET_HEAD = 128 }; /* room for all packets but datagrams */

/* Reads the first packet of a TCP connection, as it was captured; false if it is anything else, or cut off. */
bool cb_packet_first(const uint8_t *packet, size_t length, struct cb_flow *flow);
/* Its checksum may have been left to a network card that is not there: puts it right. */
void cb_packet_seal(uint8_t *packet, size_t length);
/* The refusal of that connection: "connection refused" to the program. Returns the length. */
size_t cb_packet_refusal(const uint8_t *first, size_t length, uint8_t answer[static CB_PACKET_HEAD]);
/* The message of a router that the target of a packet can't be reached, for this errno. 0: there is none for it, and
 * silence says it. */
size_t cb_packet_unreachable(const uint8_t *packet, size_t length, int errnum, uint8_t answer[static CB_PACKET_HEAD]);

/* A datagram's headers, up to the payload, which is looked at for the checksum: from the target to the client, or with
 * `outward` the other way round. Returns their length. */
enum { CB_PACKET_DATAGRAM = 48 };
size_t cb_packet_datagram(const struct cb_flow *flow, bool outward, const uint8_t *payload, size_t length,
                          uint8_t headers[static CB_PACKET_DATAGRAM]);

bool cb_flow_equal(const struct cb_flow *one, const struct cb_flow *other);
/* With a secret, so that the code can't choose flows that all meet in one place of a table. */
uint32_t cb_flow_hash(const struct cb_flow *flow, uint64_t secret);
