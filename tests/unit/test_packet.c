/* Packets made by hand: first packets are read right or not at all, checksums are right by another way of computing
 * them, and refusals say what they are meant to. */
#include "base/packet.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <cmocka.h>

#define COUNT(table) (sizeof(table) / sizeof *(table))

enum { FIN = 1, SYN = 2, RST = 4, PSH = 8, ACK = 16, TCP = 6, UDP = 17, ICMP = 1, ICMP6 = 58 };

static struct cb_address address(const char *text)
{
    struct cb_address made;
    assert_true(cb_address_parse(text, &made));
    return made;
}

static struct cb_flow flow(bool four)
{
    return (struct cb_flow){.client = address(four ? "192.0.2.1" : "fd00:cb::1"),
                            .target = address(four ? "93.184.216.34" : "2606:2800:220:1::1"),
                            .client_port = 40001,
                            .target_port = 443};
}

static unsigned get16(const uint8_t *at)
{
    return (unsigned)(at[0] << 8 | at[1]);
}

static uint32_t get32(const uint8_t *at)
{
    return (uint32_t)get16(at) << 16 | get16(at + 2);
}

static void put16(uint8_t *at, unsigned number)
{
    at[0] = (uint8_t)(number >> 8);
    at[1] = (uint8_t)number;
}

/* The whole as one large number, modulo 65535: zero if the checksum in it is right. */
static uint32_t rest(uint32_t so_far, const uint8_t *bytes, size_t length)
{
    for (size_t i = 0; i < length; i++)
        so_far = (so_far + (i % 2 ? bytes[i] : bytes[i] * 256u)) % 65535;
    return so_far;
}

static size_t header_of(const uint8_t *packet)
{
    return packet[0] >> 4 == 4 ? (size_t)(packet[0] & 15) * 4 : 40;
}

/* What is carried is split in two when its payload lies elsewhere. */
static bool carried_is_right(const uint8_t *packet, size_t length, const uint8_t *payload, size_t size)
{
    bool four = packet[0] >> 4 == 4;
    size_t header = header_of(packet);
    uint8_t protocol = four ? packet[9] : packet[6];
    uint8_t tail[4] = {0, protocol};
    put16(tail + 2, (unsigned)(length - header + size));
    uint32_t sum = 0;
    if (protocol != ICMP) {
        sum = rest(sum, packet + (four ? 12 : 8), four ? 8 : 32);
        sum = rest(sum, tail, sizeof tail);
    }
    sum = rest(sum, packet + header, length - header);
    return rest(sum, payload, size) == 0;
}

static bool header_is_right(const uint8_t *packet, size_t length)
{
    if (packet[0] >> 4 == 6)
        return get16(packet + 4) == length - 40;
    return rest(0, packet, header_of(packet)) == 0 && get16(packet + 2) == length;
}

/* A first packet as the kernel makes it, but for the checksum of TCP, which it leaves to a card; `options` are bytes of
 * options of an IPv4 header. */
static size_t first_packet(uint8_t packet[static 256], bool four, uint8_t flags, size_t options, size_t payload)
{
    struct cb_flow from = flow(four);
    size_t header = four ? 20 + options : 40, tcp = 20 + 12, length = header + tcp + payload;
    memset(packet, 0, 256);
    if (four) {
        packet[0] = (uint8_t)(0x40 | header / 4);
        put16(packet + 2, (unsigned)length);
        packet[8] = 64;
        packet[9] = TCP;
        memcpy(packet + 12, from.client.bytes, 4);
        memcpy(packet + 16, from.target.bytes, 4);
        memset(packet + 20, 1, options);
    } else {
        packet[0] = 0x60;
        put16(packet + 4, (unsigned)(tcp + payload));
        packet[6] = TCP;
        packet[7] = 64;
        memcpy(packet + 8, from.client.bytes, 16);
        memcpy(packet + 24, from.target.bytes, 16);
    }
    uint8_t *at = packet + header;
    put16(at, from.client_port);
    put16(at + 2, from.target_port);
    memcpy(at + 4, "\xff\xff\xff\xff", 4); /* a sequence number whose next is zero */
    at[12] = 0x80;
    at[13] = flags;
    put16(at + 16, 0x1234); /* a checksum that is wrong */
    memset(at + 20, 1, 12);
    memset(at + tcp, 0xa5, payload);
    return length;
}

static void test_first(void **state)
{
    uint8_t packet[256];
    for (int four = 0; four < 2; four++)
        for (size_t options = 0; options <= (four ? 40 : 0); options += 4) {
            size_t length = first_packet(packet, four, SYN, options, 0);
            struct cb_flow want = flow(four), found;
            assert_true(cb_packet_first(packet, length, &found));
            assert_true(cb_flow_equal(&found, &want));
            assert_int_equal(found.client.family, four ? AF_INET : AF_INET6);
            assert_int_equal(found.target_port, 443);
            for (size_t cut = 0; cut < header_of(packet) + 20; cut++) {
                cb_address_parse("1.2.3.4", &found.client);
                uint8_t *exact = malloc(cut ? cut : 1); /* so that reading beyond is noticed */
                memcpy(exact, packet, cut);
                assert_false(cb_packet_first(exact, cut, &found));
                free(exact);
            }
        }
}

static void test_other_packets(void **state)
{
    static const uint8_t flags[] = {0, ACK, SYN | ACK, RST, SYN | RST, FIN, SYN | FIN, FIN | ACK, PSH | ACK};
    static const uint8_t fine[] = {SYN, SYN | PSH, SYN | 0x40 | 0x80 /* asks for congestion marks */};
    uint8_t packet[256];
    struct cb_flow found;
    for (int four = 0; four < 2; four++) {
        for (size_t i = 0; i < COUNT(flags); i++) {
            size_t length = first_packet(packet, four, flags[i], 0, 0);
            assert_false(cb_packet_first(packet, length, &found));
        }
        for (size_t i = 0; i < COUNT(fine); i++) {
            size_t length = first_packet(packet, four, fine[i], 0, 0);
            assert_true(cb_packet_first(packet, length, &found));
        }
        size_t length = first_packet(packet, four, SYN, 0, 0);
        packet[four ? 9 : 6] = UDP;
        assert_false(cb_packet_first(packet, length, &found));
        packet[four ? 9 : 6] = 0; /* extension headers of IPv6 */
        assert_false(cb_packet_first(packet, length, &found));
    }
    size_t length = first_packet(packet, true, SYN, 0, 0);
    static const uint8_t heads[] = {0x00, 0x40, 0x44, 0x4f, 0x55, 0x65, 0x75, 0xf5};
    for (size_t i = 0; i < COUNT(heads); i++) { /* no version, or a header too short or too long */
        packet[0] = heads[i];
        assert_false(cb_packet_first(packet, 50, &found));
    }
    assert_true(length >= 50);
}

static void test_seal(void **state)
{
    uint8_t packet[256], before[256];
    for (int four = 0; four < 2; four++)
        for (size_t payload = 0; payload < 10; payload++)
            for (size_t options = 0; options <= (four ? 8 : 0); options += 4) {
                size_t length = first_packet(packet, four, SYN, options, payload);
                memcpy(before, packet, sizeof before);
                assert_false(carried_is_right(packet, length, NULL, 0));
                cb_packet_seal(packet, length);
                assert_true(carried_is_right(packet, length, NULL, 0));
                memcpy(before + header_of(packet) + 16, packet + header_of(packet) + 16, 2);
                assert_memory_equal(packet, before, sizeof before); /* nothing else was touched */
            }
    size_t length = first_packet(packet, true, SYN, 0, 0);
    memcpy(before, packet, sizeof before);
    for (size_t cut = 0; cut < 40; cut++)
        cb_packet_seal(packet, cut);
    assert_memory_equal(packet, before, sizeof before);
    assert_true(length > 40);
}

/* Every sum that the field can be: zero is a number like others to TCP. */
static void test_seal_of_every_sum(void **state)
{
    uint8_t packet[256];
    size_t length = first_packet(packet, true, SYN, 0, 2);
    for (unsigned word = 0; word < 65536; word++) {
        put16(packet + length - 2, word);
        cb_packet_seal(packet, length);
        assert_true(carried_is_right(packet, length, NULL, 0));
    }
}

static void expect_answer(const uint8_t *packet, const uint8_t *answer, size_t length)
{
    bool four = packet[0] >> 4 == 4;
    size_t from = four ? 12 : 8, to = four ? 16 : 24, size = four ? 4 : 16;
    assert_int_equal(answer[0] >> 4, four ? 4 : 6);
    assert_memory_equal(answer + from, packet + to, size);
    assert_memory_equal(answer + to, packet + from, size);
    assert_true(header_is_right(answer, length));
    assert_true(carried_is_right(answer, length, NULL, 0));
    assert_true(answer[four ? 8 : 7] > 1);
}

static void test_refusal(void **state)
{
    uint8_t packet[256], answer[CB_PACKET_HEAD];
    for (int four = 0; four < 2; four++) {
        size_t length = first_packet(packet, four, SYN, four ? 40 : 0, 7);
        size_t made = cb_packet_refusal(packet, length, answer), header = four ? 20 : 40;
        assert_int_equal(made, header + 20);
        expect_answer(packet, answer, made);
        assert_int_equal(answer[four ? 9 : 6], TCP);
        assert_int_equal(get16(answer + header), 443);
        assert_int_equal(get16(answer + header + 2), 40001);
        assert_int_equal(get32(answer + header + 8), 0); /* the number after the last */
        assert_int_equal(answer[header + 12] >> 4, 5);
        assert_int_equal(answer[header + 13], RST | ACK);
        for (size_t cut = 0; cut < header_of(packet) + 20; cut++)
            assert_int_equal(cb_packet_refusal(packet, cut, answer), 0);
    }
}

static void test_router_messages(void **state)
{
    static const struct {
        int errnum, four, six;
    } table[] = {
        {ECONNREFUSED, 3, 4}, {ENETUNREACH, 6, 0},    {ENETDOWN, 6, 0}, {EHOSTUNREACH, 13, 3},
        {EHOSTDOWN, 13, 3},   {EACCES, 13, 1},        {EPERM, 13, 1},   {ETIMEDOUT, -1, -1},
        {ECONNRESET, 13, 3},  {EADDRNOTAVAIL, 13, 3}, {EINVAL, 13, 3},  {ENOBUFS, 13, 3},
    };
    uint8_t packet[256], answer[CB_PACKET_HEAD];
    for (size_t i = 0; i < COUNT(table); i++)
        for (int four = 0; four < 2; four++) {
            size_t length = first_packet(packet, four, SYN, 0, 3), header = four ? 20 : 40;
            size_t made = cb_packet_unreachable(packet, length, table[i].errnum, answer);
            int code = four ? table[i].four : table[i].six;
            if (code < 0) {
                assert_int_equal(made, 0);
                continue;
            }
            assert_int_equal(made, header + 8 + header + 8);
            expect_answer(packet, answer, made);
            assert_int_equal(answer[four ? 9 : 6], four ? ICMP : ICMP6);
            assert_int_equal(answer[header], four ? 3 : 1); /* "destination unreachable" */
            assert_int_equal(answer[header + 1], code);
            assert_memory_equal(answer + header + 8, packet, header + 8);
        }
}

static void test_router_messages_of_odd_packets(void **state)
{
    uint8_t packet[256], answer[CB_PACKET_HEAD + 64];
    memset(answer, 0x5a, sizeof answer);
    for (size_t options = 0; options <= 40; options += 4) { /* the longest header and its quote still have room */
        size_t length = first_packet(packet, true, SYN, options, 0);
        size_t made = cb_packet_unreachable(packet, length, EHOSTUNREACH, answer);
        assert_int_equal(made, 20 + 8 + 20 + options + 8);
        expect_answer(packet, answer, made);
    }
    for (int four = 0; four < 2; four++) {
        first_packet(packet, four, SYN, 0, 0);
        for (size_t cut = 0; cut < header_of(packet) + 8; cut++) {
            uint8_t *exact = malloc(cut ? cut : 1);
            memcpy(exact, packet, cut);
            assert_int_equal(cb_packet_unreachable(exact, cut, EHOSTUNREACH, answer), 0);
            free(exact);
        }
        assert_true(cb_packet_unreachable(packet, header_of(packet) + 8, EHOSTUNREACH, answer) > 0);
    }
    for (size_t i = CB_PACKET_HEAD; i < sizeof answer; i++)
        assert_int_equal(answer[i], 0x5a);
}

static void test_datagrams(void **state)
{
    static const size_t lengths[] = {0, 1, 2, 3, 511, 512, 1472, 9000, 65507 - 20, 65507};
    uint8_t *payload = malloc(65507), headers[CB_PACKET_DATAGRAM];
    for (size_t i = 0; i < 65507; i++)
        payload[i] = (uint8_t)(i * 7 + i / 256);
    for (size_t i = 0; i < COUNT(lengths); i++)
        for (int four = 0; four < 2; four++)
            for (int outward = 0; outward < 2; outward++) {
                struct cb_flow between = flow(four);
                size_t made = cb_packet_datagram(&between, outward, payload, lengths[i], headers);
                size_t header = four ? 20 : 40;
                assert_int_equal(made, header + 8);
                assert_true(header_is_right(headers, made + lengths[i]));
                assert_true(carried_is_right(headers, made, payload, lengths[i]));
                assert_int_equal(headers[four ? 9 : 6], UDP);
                const struct cb_address *from = outward ? &between.client : &between.target;
                const struct cb_address *to = outward ? &between.target : &between.client;
                assert_memory_equal(headers + (four ? 12 : 8), from->bytes, four ? 4 : 16);
                assert_memory_equal(headers + (four ? 16 : 24), to->bytes, four ? 4 : 16);
                assert_int_equal(get16(headers + header), outward ? 40001 : 443);
                assert_int_equal(get16(headers + header + 2), outward ? 443 : 40001);
                assert_int_equal(get16(headers + header + 4), 8 + lengths[i]);
                assert_int_not_equal(get16(headers + header + 6), 0); /* that would mean: no checksum */
            }
    free(payload);
}

/* A sum of zero is written as its other form, as zero means that there is none. */
static void test_datagrams_of_every_sum(void **state)
{
    struct cb_flow between = flow(true);
    uint8_t payload[2], headers[CB_PACKET_DATAGRAM];
    unsigned all_ones = 0;
    for (unsigned word = 0; word < 65536; word++) {
        put16(payload, word);
        cb_packet_datagram(&between, false, payload, sizeof payload, headers);
        assert_int_not_equal(get16(headers + 26), 0);
        assert_true(carried_is_right(headers, 28, payload, sizeof payload));
        all_ones += get16(headers + 26) == 0xffff;
    }
    assert_in_range(all_ones, 1, 2);
}

static void test_flows(void **state)
{
    struct cb_flow one = flow(true), other = one;
    assert_true(cb_flow_equal(&one, &other));
    assert_int_equal(cb_flow_hash(&one, 1), cb_flow_hash(&other, 1));
    other.client_port++;
    assert_false(cb_flow_equal(&one, &other));
    other = one;
    other.target_port++;
    assert_false(cb_flow_equal(&one, &other));
    other = one;
    other.client.bytes[3]++;
    assert_false(cb_flow_equal(&one, &other));
    other = one;
    other.target.bytes[0]++;
    assert_false(cb_flow_equal(&one, &other));
    other = flow(false);
    assert_false(cb_flow_equal(&one, &other));
    other = one; /* the other way round is another flow */
    other.client = one.target;
    other.target = one.client;
    assert_false(cb_flow_equal(&one, &other));
}

/* Over a table of 1024 places, with whatever of the flow changes; and flows that meet under one secret do not
 * meet under the next. */
static void test_hashes_spread(void **state)
{
    static const uint64_t secrets[] = {0, 1, 0x0123456789abcdef, UINT64_MAX};
    enum { PLACES = 1024, FLOWS = 8 * PLACES };
    for (size_t s = 0; s < COUNT(secrets); s++)
        for (int which = 0; which < 3; which++) {
            static unsigned places[PLACES];
            unsigned fullest = 0;
            memset(places, 0, sizeof places);
            for (unsigned i = 0; i < FLOWS; i++) {
                struct cb_flow at = flow(which != 2);
                if (which == 0)
                    at.client_port = (uint16_t)(32768 + i);
                else if (which == 1)
                    at.target_port = (uint16_t)i;
                else
                    put16(at.target.bytes + 14, i);
                unsigned count = ++places[cb_flow_hash(&at, secrets[s]) % PLACES];
                fullest = count > fullest ? count : fullest;
            }
            assert_in_range(fullest, 8, 40);
        }
    unsigned met = 0, again = 0;
    struct cb_flow base = flow(true);
    for (unsigned i = 1; i < 65535; i++) {
        struct cb_flow at = base;
        at.client_port = (uint16_t)(base.client_port + i);
        bool meets = cb_flow_hash(&at, 5) % PLACES == cb_flow_hash(&base, 5) % PLACES;
        met += meets;
        again += meets && cb_flow_hash(&at, UINT64_MAX) % PLACES == cb_flow_hash(&base, UINT64_MAX) % PLACES;
    }
    assert_true(met > 20 && again < met / 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first),
        cmocka_unit_test(test_other_packets),
        cmocka_unit_test(test_seal),
        cmocka_unit_test(test_seal_of_every_sum),
        cmocka_unit_test(test_refusal),
        cmocka_unit_test(test_router_messages),
        cmocka_unit_test(test_router_messages_of_odd_packets),
        cmocka_unit_test(test_datagrams),
        cmocka_unit_test(test_datagrams_of_every_sum),
        cmocka_unit_test(test_flows),
        cmocka_unit_test(test_hashes_spread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
