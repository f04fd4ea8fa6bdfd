#include "base/packet.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/icmp6.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <netinet/ip_icmp.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <string.h>
#include <sys/socket.h>

enum { TTL = 64 };

/* ---- Checksums ---- */

static uint64_t add_bytes(uint64_t sum, const void *data, size_t length)
{
    const uint8_t *bytes = data;
    for (; length > 1; bytes += 2, length -= 2)
        sum += (uint64_t)(bytes[0] << 8 | bytes[1]);
    return length ? sum + (uint64_t)(bytes[0] << 8) : sum;
}

static uint16_t finish(uint64_t sum)
{
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return htons((uint16_t)~sum);
}

/* Of the addresses of an IP header, and what else goes into the checksum of what it carries. */
static uint64_t pseudo(const uint8_t *packet, uint8_t protocol, size_t length)
{
    bool four = packet[0] >> 4 == 4;
    return add_bytes(protocol + (uint64_t)length, packet + (four ? 12 : 8), four ? 8 : 32);
}

/* ---- IP headers ---- */

/* Where what an IP packet carries begins; 0 if it is not the kind of packet that we deal with. */
static size_t header_length(const uint8_t *packet, size_t length)
{
    if (length >= sizeof(struct iphdr) && packet[0] >> 4 == 4) {
        size_t header = (size_t)(packet[0] & 15) * 4;
        return header >= sizeof(struct iphdr) && header <= length ? header : 0;
    }
    return length >= sizeof(struct ip6_hdr) && packet[0] >> 4 == 6 ? sizeof(struct ip6_hdr) : 0;
}

static uint8_t protocol_of(const uint8_t *packet)
{
    return packet[0] >> 4 == 4 ? packet[9] : packet[6];
}

static size_t put_header(uint8_t *out, int family, const uint8_t *from, const uint8_t *to, uint8_t protocol,
                         size_t payload)
{
    if (family == AF_INET) {
        struct iphdr header = {.version = 4, .ihl = 5, .ttl = TTL, .protocol = protocol,
                               .tot_len = htons((uint16_t)(sizeof header + payload))};
        memcpy(&header.saddr, from, 4);
        memcpy(&header.daddr, to, 4);
        header.check = finish(add_bytes(0, &header, sizeof header));
        memcpy(out, &header, sizeof header);
        return sizeof header;
    }
    struct ip6_hdr header = {.ip6_flow = htonl(6U << 28), .ip6_plen = htons((uint16_t)payload), .ip6_nxt = protocol,
                             .ip6_hlim = TTL};
    memcpy(&header.ip6_src, from, 16);
    memcpy(&header.ip6_dst, to, 16);
    memcpy(out, &header, sizeof header);
    return sizeof header;
}

/* Of an answer to a packet: from where that one went, to where it came from. */
static size_t put_answer(uint8_t *out, const uint8_t *packet, uint8_t protocol, size_t payload)
{
    return packet[0] >> 4 == 4 ? put_header(out, AF_INET, packet + 16, packet + 12, protocol, payload)
                               : put_header(out, AF_INET6, packet + 24, packet + 8, protocol, payload);
}

/* ---- TCP ---- */

bool cb_packet_first(const uint8_t *packet, size_t length, struct cb_flow *flow)
{
    size_t header = header_length(packet, length);
    if (!header || protocol_of(packet) != IPPROTO_TCP || length - header < sizeof(struct tcphdr))
        return false;
    struct tcphdr tcp;
    memcpy(&tcp, packet + header, sizeof tcp);
    if (!tcp.syn || tcp.ack || tcp.rst || tcp.fin)
        return false;
    bool four = packet[0] >> 4 == 4;
    *flow = (struct cb_flow){.client_port = ntohs(tcp.source), .target_port = ntohs(tcp.dest)};
    flow->client.family = flow->target.family = four ? AF_INET : AF_INET6;
    memcpy(flow->client.bytes, packet + (four ? 12 : 8), four ? 4 : 16);
    memcpy(flow->target.bytes, packet + (four ? 16 : 24), four ? 4 : 16);
    return true;
}

static void put_checksum(uint8_t *packet, size_t header, size_t length, size_t at)
{
    memset(packet + header + at, 0, 2);
    uint16_t sum = finish(add_bytes(pseudo(packet, protocol_of(packet), length), packet + header, length));
    memcpy(packet + header + at, &sum, 2);
}

void cb_packet_seal(uint8_t *packet, size_t length)
{
    size_t header = header_length(packet, length);
    if (header && length - header >= sizeof(struct tcphdr))
        put_checksum(packet, header, length - header, offsetof(struct tcphdr, check));
}

size_t cb_packet_refusal(const uint8_t *first, size_t length, uint8_t answer[static CB_PACKET_HEAD])
{
    size_t header = header_length(first, length);
    struct tcphdr asked, tcp = {.doff = sizeof tcp / 4, .rst = 1, .ack = 1};
    if (!header || length - header < sizeof asked)
        return 0;
    memcpy(&asked, first + header, sizeof asked);
    tcp.source = asked.dest;
    tcp.dest = asked.source;
    tcp.ack_seq = htonl(ntohl(asked.seq) + 1);
    size_t at = put_answer(answer, first, IPPROTO_TCP, sizeof tcp);
    memcpy(answer + at, &tcp, sizeof tcp);
    put_checksum(answer, at, sizeof tcp, offsetof(struct tcphdr, check));
    return at + sizeof tcp;
}

/* ---- Messages of routers ---- */

/* Of the codes of IPv4 that mean the same, those that are final: UDP sockets do not hear of others. */
static int code_for(int errnum, bool four)
{
    switch (errnum) {
    case ECONNREFUSED:
        return four ? ICMP_PORT_UNREACH : ICMP6_DST_UNREACH_NOPORT;
    case ENETUNREACH:
    case ENETDOWN:
        return four ? ICMP_NET_UNKNOWN : ICMP6_DST_UNREACH_NOROUTE;
    case EACCES:
    case EPERM:
        return four ? ICMP_PKT_FILTERED : ICMP6_DST_UNREACH_ADMIN;
    case ETIMEDOUT:
        return -1;
    default:
        return four ? ICMP_PKT_FILTERED : ICMP6_DST_UNREACH_ADDR;
    }
}

size_t cb_packet_unreachable(const uint8_t *packet, size_t length, int errnum, uint8_t answer[static CB_PACKET_HEAD])
{
    size_t header = header_length(packet, length);
    bool four = packet[0] >> 4 == 4;
    int code = code_for(errnum, four);
    if (!header || length - header < 8 || code < 0)
        return 0;
    /* It quotes the packet's header and eight bytes of what follows: the ports, and TCP's sequence number. */
    uint8_t message[8] = {four ? ICMP_DEST_UNREACH : ICMP6_DST_UNREACH, (uint8_t)code};
    size_t quoted = header + 8, total = sizeof message + quoted;
    size_t at = put_answer(answer, packet, four ? IPPROTO_ICMP : IPPROTO_ICMPV6, total);
    if (at + total > CB_PACKET_HEAD)
        return 0;
    memcpy(answer + at, message, sizeof message);
    memcpy(answer + at + sizeof message, packet, quoted);
    uint16_t sum = finish(add_bytes(four ? 0 : pseudo(answer, IPPROTO_ICMPV6, total), answer + at, total));
    memcpy(answer + at + 2, &sum, 2);
    return at + total;
}

/* ---- Datagrams ---- */

size_t cb_packet_datagram(const struct cb_flow *flow, bool outward, const uint8_t *payload, size_t length,
                          uint8_t headers[static CB_PACKET_DATAGRAM])
{
    const struct cb_address *from = outward ? &flow->client : &flow->target;
    const struct cb_address *to = outward ? &flow->target : &flow->client;
    struct udphdr udp = {.source = htons(outward ? flow->client_port : flow->target_port),
                         .dest = htons(outward ? flow->target_port : flow->client_port),
                         .len = htons((uint16_t)(sizeof udp + length))};
    size_t at = put_header(headers, from->family, from->bytes, to->bytes, IPPROTO_UDP, sizeof udp + length);
    uint64_t sum = add_bytes(pseudo(headers, IPPROTO_UDP, sizeof udp + length), &udp, sizeof udp);
    udp.check = finish(add_bytes(sum, payload, length));
    if (udp.check == 0)
        udp.check = 0xffff;
    memcpy(headers + at, &udp, sizeof udp);
    return at + sizeof udp;
}

/* ---- Flows ---- */

bool cb_flow_equal(const struct cb_flow *one, const struct cb_flow *other)
{
    return one->client_port == other->client_port && one->target_port == other->target_port &&
           cb_address_equal(&one->client, &other->client) && cb_address_equal(&one->target, &other->target);
}

uint32_t cb_flow_hash(const struct cb_flow *flow, uint64_t secret)
{
    uint64_t parts[5], hash = secret;
    memcpy(parts, flow->client.bytes, 16);
    memcpy(parts + 2, flow->target.bytes, 16);
    parts[4] = (uint64_t)flow->client_port << 32 | (uint64_t)flow->target_port << 16 | flow->target.family;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        hash = (hash ^ parts[i]) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 29;
    }
    return (uint32_t)(hash ^ hash >> 32);
}
