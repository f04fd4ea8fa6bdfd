/* Fuzz target: any bytes as a packet that the cell sent. Nothing may be read or written out of bounds; what is answered
 * goes back to where the packet came from, is whole, and its checksums are right by another way of computing them. */
#include "base/cleanup.h"
#include "base/packet.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int truth)
{
    if (!truth)
        abort();
}

static uint32_t rest(uint32_t so_far, const uint8_t *bytes, size_t length)
{
    for (size_t i = 0; i < length; i++)
        so_far = (so_far + (i % 2 ? bytes[i] : bytes[i] * 256u)) % 65535;
    return so_far;
}

/* `payload` lies elsewhere. */
static void check(const uint8_t *packet, size_t length, const uint8_t *payload, size_t size)
{
    bool four = packet[0] >> 4 == 4;
    size_t header = four ? (size_t)(packet[0] & 15) * 4 : 40, carried = length - header + size;
    uint8_t protocol = four ? packet[9] : packet[6];
    const uint8_t tail[4] = {0, protocol, (uint8_t)(carried >> 8), (uint8_t)carried};
    uint32_t sum = 0;
    require(length >= header);
    if (protocol != 1) /* the sum of ICMP is of itself only */
        sum = rest(rest(0, packet + (four ? 12 : 8), four ? 8 : 32), tail, sizeof tail);
    require(rest(rest(sum, packet + header, length - header), payload, size) == 0);
    if (four)
        require(rest(0, packet, header) == 0 && (size_t)(packet[2] << 8 | packet[3]) == length + size);
    else
        require((size_t)(packet[4] << 8 | packet[5]) == carried);
}

static void check_answer(const uint8_t *packet, const uint8_t *answer, size_t length)
{
    bool four = packet[0] >> 4 == 4;
    size_t from = four ? 12 : 8, to = four ? 16 : 24, size = four ? 4 : 16;
    require(length <= CB_PACKET_HEAD && answer[0] >> 4 == packet[0] >> 4);
    require(memcmp(answer + from, packet + to, size) == 0 && memcmp(answer + to, packet + from, size) == 0);
    check(answer, length, NULL, 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const int errors[] = {ECONNREFUSED, EHOSTUNREACH, ENETUNREACH, EACCES, ETIMEDOUT, EIO};
    cb_autofree uint8_t *packet = malloc(size ? size : 1); /* of just that size */
    cb_autofree uint8_t *answer = malloc(CB_PACKET_HEAD), *headers = malloc(CB_PACKET_DATAGRAM);
    struct cb_flow flow;
    if (size > 65535 - 8)
        return 0;
    memcpy(packet, data, size);
    if (size == 0) /* the kernel hands over none that is empty */
        return 0;
    bool first = cb_packet_first(packet, size, &flow);
    size_t length = cb_packet_refusal(packet, size, answer);
    require(!first || length > 0);
    if (length)
        check_answer(packet, answer, length);
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        length = cb_packet_unreachable(packet, size, errors[i], answer);
        require(!length || errors[i] != ETIMEDOUT);
        if (length)
            check_answer(packet, answer, length);
    }
    cb_packet_seal(packet, size);
    if (!first)
        return 0;
    struct cb_flow again;
    require(cb_packet_first(packet, size, &again) && cb_flow_equal(&flow, &again));
    require(cb_flow_hash(&flow, size) == cb_flow_hash(&again, size));
    require(flow.client.family == flow.target.family);
    require(flow.client.family == AF_INET || flow.client.family == AF_INET6);
    size_t most = size < 65000 ? size : 65000;
    for (int outward = 0; outward < 2; outward++) {
        length = cb_packet_datagram(&flow, outward, data, most, headers);
        require(length == (flow.client.family == AF_INET ? 28 : 48));
        check(headers, length, data, most);
    }
    return 0;
}
