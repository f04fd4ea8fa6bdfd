/* Netlink messages put together by hand: whole, in order, nested right, and nothing of them lost unnoticed; and what
 * the rules of a cell's network say, read back from the bytes. */
#include "base/divert.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

static size_t padded(size_t length)
{
    return (length + 3) & ~(size_t)3;
}

/* The attributes that the marked range is made of, down to the last; -1 if they do not fill it exactly. */
static int count_attributes(const char *data, size_t length)
{
    int count = 0;
    while (length >= sizeof(struct nlattr)) {
        struct nlattr header;
        memcpy(&header, data, sizeof header);
        if (header.nla_len < sizeof header || header.nla_len > length)
            return -1;
        if (header.nla_type & NLA_F_NESTED) {
            int inside = count_attributes(data + sizeof header, header.nla_len - sizeof header);
            if (inside < 0)
                return -1;
            count += inside;
        }
        count++;
        size_t whole = padded(header.nla_len) < length ? padded(header.nla_len) : length;
        for (size_t i = header.nla_len; i < whole; i++)
            if (data[i] != 0)
                return -1; /* what pads must not tell what was in memory */
        data += whole;
        length -= whole;
    }
    return length == 0 ? count : -1;
}

/* The data of the first attribute of that type, or NULL. */
static const char *find(const char *data, size_t length, unsigned type, size_t *found)
{
    *found = 0;
    while (length >= sizeof(struct nlattr)) {
        struct nlattr header;
        memcpy(&header, data, sizeof header);
        if ((header.nla_type & NLA_TYPE_MASK) == type) {
            *found = header.nla_len - sizeof header;
            return data + sizeof header;
        }
        size_t whole = padded(header.nla_len) < length ? padded(header.nla_len) : length;
        data += whole;
        length -= whole;
    }
    return NULL;
}

struct message {
    uint16_t type, flags;
    uint32_t sequence;
    const char *attributes;
    size_t length;
};

/* Walks a batch whose messages have a fixed part of this size; all in it is checked. Returns how many there are. */
static size_t walk(const struct cb_netlink *batch, size_t fixed, struct message *messages, size_t most)
{
    size_t count = 0, at = 0;
    uint32_t sequence = 0;
    assert_false(batch->full);
    while (at < batch->length) {
        struct nlmsghdr header;
        assert_true(batch->length - at >= sizeof header);
        memcpy(&header, batch->data + at, sizeof header);
        assert_true(header.nlmsg_len >= sizeof header && header.nlmsg_len <= batch->length - at);
        assert_int_equal(header.nlmsg_len % 4, 0);
        assert_true(header.nlmsg_flags & NLM_F_REQUEST);
        if (header.nlmsg_flags & NLM_F_ACK)
            assert_int_equal(header.nlmsg_seq, ++sequence);
        size_t own = header.nlmsg_type == RTM_NEWADDR ? sizeof(struct { char bytes[8]; }) : fixed;
        size_t rest = header.nlmsg_len - sizeof header;
        assert_true(rest >= own && count < most);
        messages[count] = (struct message){header.nlmsg_type, header.nlmsg_flags, header.nlmsg_seq,
                                           batch->data + at + sizeof header + own, rest - own};
        assert_true(count_attributes(messages[count].attributes, rest - own) >= 0);
        count++;
        at += header.nlmsg_len;
    }
    assert_int_equal(at, batch->length);
    assert_int_equal(sequence, batch->last);
    return count;
}

static void test_a_message(void **state)
{
    struct cb_netlink *batch = calloc(1, sizeof *batch);
    const uint32_t fixed = 0x01020304;
    struct message found[4];
    size_t size;
    for (int i = 0; i < 3; i++) {
        size_t at = cb_netlink_begin(batch, (uint16_t)(100 + i), i == 1 ? 0 : NLM_F_ACK, &fixed, sizeof fixed);
        cb_netlink_text(batch, 1, "four"); /* five bytes, and three that pad */
        size_t nest = cb_netlink_nest(batch, 2);
        cb_netlink_number(batch, 3, 0xa1b2c3d4);
        size_t inner = cb_netlink_nest(batch, 4);
        cb_netlink_end_nest(batch, inner);
        cb_netlink_attribute(batch, 5, "x", 1);
        cb_netlink_end_nest(batch, nest);
        cb_netlink_attribute(batch, 6, NULL, 0);
        cb_netlink_end(batch, at);
    }
    assert_int_equal(walk(batch, sizeof fixed, found, 4), 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(found[i].type, 100 + i);
        assert_int_equal(found[i].sequence, i == 0 ? 1 : i == 1 ? 0 : 2);
        assert_int_equal(count_attributes(found[i].attributes, found[i].length), 6);
        assert_string_equal(find(found[i].attributes, found[i].length, 1, &size), "four");
        assert_int_equal(size, 5);
        size_t outer;
        const char *nest = find(found[i].attributes, found[i].length, 2, &outer);
        assert_memory_equal(find(nest, outer, 3, &size), "\xa1\xb2\xc3\xd4", 4); /* in network order */
        assert_non_null(find(nest, outer, 4, &size));
        assert_int_equal(size, 0);
        assert_memory_equal(find(nest, outer, 5, &size), "x", 1);
        assert_non_null(find(found[i].attributes, found[i].length, 6, &size));
    }
    free(batch);
}

/* Whatever does not fit any more, at whichever place: it is noticed, nothing is written beyond the end, and the batch
 * is not sent. */
static void test_overflow(void **state)
{
    struct {
        struct cb_netlink batch;
        char after[256];
    } *room = malloc(sizeof *room);
    static const char filling[256];
    for (size_t left = 0; left <= 64; left += 4) {
        memset(room, 0, sizeof *room);
        memset(room->after, 0x5a, sizeof room->after);
        struct cb_netlink *batch = &room->batch;
        while (sizeof batch->data - batch->length > 64 + sizeof filling)
            cb_netlink_put(batch, filling, sizeof filling);
        while (sizeof batch->data - batch->length > left)
            cb_netlink_put(batch, filling, 4);
        assert_false(batch->full);
        size_t at = cb_netlink_begin(batch, 7, NLM_F_ACK, "abcd", 4); /* 20 bytes */
        size_t nest = cb_netlink_nest(batch, 1);                     /* 4 */
        cb_netlink_text(batch, 2, "name");                           /* 4 + 8 */
        cb_netlink_number(batch, 3, 1);                              /* 8 */
        cb_netlink_end_nest(batch, nest);
        cb_netlink_end(batch, at);
        assert_int_equal(batch->full, left < 44);
        assert_true(batch->length <= sizeof batch->data);
        for (size_t i = 0; i < sizeof room->after; i++)
            assert_int_equal(room->after[i], 0x5a);
        if (!batch->full)
            continue;
        size_t length = batch->length;
        cb_netlink_put(batch, "x", 1); /* full stays full, also for what would fit */
        assert_int_equal(batch->length, length);
        uint32_t refused = 9;
        assert_int_equal(cb_netlink_talk(-1, batch, &refused), -1);
        assert_int_equal(errno, ENOBUFS);
        assert_int_equal(refused, 0);
    }
    free(room);
}

/* The kernel's answers: the first refusal counts, by its number. */
static void test_talking(void **state)
{
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    struct cb_netlink *batch = calloc(1, sizeof *batch);
    const struct rtgenmsg any = {.rtgen_family = AF_UNSPEC};
    uint32_t refused = 9;
    assert_true(fd >= 0);
    cb_netlink_end(batch, cb_netlink_begin(batch, NLMSG_NOOP, NLM_F_ACK, &any, sizeof any));
    assert_int_equal(cb_netlink_talk(fd, batch, &refused), 0);
    assert_int_equal(refused, 0);
    *batch = (struct cb_netlink){.length = 0};
    cb_netlink_end(batch, cb_netlink_begin(batch, NLMSG_NOOP, NLM_F_ACK, &any, sizeof any));
    cb_netlink_end(batch, cb_netlink_begin(batch, 0xfff0, NLM_F_ACK, &any, sizeof any)); /* there is no such thing */
    cb_netlink_end(batch, cb_netlink_begin(batch, NLMSG_NOOP, NLM_F_ACK, &any, sizeof any));
    assert_int_equal(cb_netlink_talk(fd, batch, &refused), -1);
    assert_int_equal(errno, EOPNOTSUPP);
    assert_int_equal(refused, 2);
    free(batch);
    assert_int_equal(cb_netlink_talk(-1, &(struct cb_netlink){.length = 4}, NULL), -1);
    assert_int_equal(errno, EBADF);
    close(fd);
}

static void test_routes(void **state)
{
    for (int four = 0; four < 2; four++) {
        struct cb_netlink *batch = calloc(1, sizeof *batch);
        struct message found[4];
        size_t size, own = four ? 4 : 16;
        const void *address = four ? (const void *)cb_divert_own4 : cb_divert_own6;
        cb_divert_routes(batch, 1, four ? AF_INET : AF_INET6);
        assert_int_equal(walk(batch, sizeof(struct rtmsg), found, 4), 2);
        assert_int_equal(found[0].type, RTM_NEWADDR);
        assert_memory_equal(find(found[0].attributes, found[0].length, IFA_LOCAL, &size), address, own);
        assert_int_equal(size, own);
        assert_int_equal(found[1].type, RTM_NEWROUTE);
        assert_null(find(found[1].attributes, found[1].length, RTA_DST, &size)); /* everything */
        assert_memory_equal(find(found[1].attributes, found[1].length, RTA_OIF, &size), &(uint32_t){1}, 4);
        assert_memory_equal(find(found[1].attributes, found[1].length, RTA_PREFSRC, &size), address, own);
        assert_true(found[0].flags & NLM_F_ACK && found[1].flags & NLM_F_ACK);
        free(batch);
    }
}

/* The verdict at the end of a rule, as "accept", "drop" or the chain that goes on. */
static const char *verdict_of(const struct message *rule)
{
    static char text[32];
    size_t size, expression = 0, data;
    const char *list = find(rule->attributes, rule->length, NFTA_RULE_EXPRESSIONS, &size);
    const char *end = list + size, *last = NULL;
    for (const char *at = list; at < end;) {
        struct nlattr header;
        memcpy(&header, at, sizeof header);
        last = at + sizeof header;
        expression = header.nla_len - sizeof header;
        at += padded(header.nla_len);
    }
    assert_string_equal(find(last, expression, NFTA_EXPR_NAME, &size), "immediate");
    const char *inside = find(last, expression, NFTA_EXPR_DATA, &data);
    inside = find(inside, data, NFTA_IMMEDIATE_DATA, &data);
    inside = find(inside, data, NFTA_DATA_VERDICT, &data);
    uint32_t code;
    memcpy(&code, find(inside, data, NFTA_VERDICT_CODE, &size), sizeof code);
    const char *chain = find(inside, data, NFTA_VERDICT_CHAIN, &size);
    snprintf(text, sizeof text, "%s",
             chain ? chain : (int)ntohl(code) == 1 ? "accept" : (int)ntohl(code) == 0 ? "drop" : "other");
    return text;
}

/* Is this compared with anywhere in the rule? */
static bool compares(const struct message *rule, const void *bytes, size_t length)
{
    size_t size, expression = 0, data;
    const char *list = find(rule->attributes, rule->length, NFTA_RULE_EXPRESSIONS, &size);
    for (const char *at = list, *end = list + size; at < end;) {
        struct nlattr header;
        memcpy(&header, at, sizeof header);
        const char *here = at + sizeof header;
        expression = header.nla_len - sizeof header;
        at += padded(header.nla_len);
        if (strcmp(find(here, expression, NFTA_EXPR_NAME, &data), "cmp") != 0)
            continue;
        const char *inside = find(here, expression, NFTA_EXPR_DATA, &data);
        inside = find(inside, data, NFTA_CMP_DATA, &data);
        inside = find(inside, data, NFTA_DATA_VALUE, &data);
        if (data == length && memcmp(inside, bytes, length) == 0)
            return true;
    }
    return false;
}

static void test_rules(void **state)
{
    enum { MOST = 256, NFT = NFNL_SUBSYS_NFTABLES << 8 };
    static const size_t counts[] = {0, 1, 2, CB_DIVERT_PORTS};
    struct message *found = calloc(MOST, sizeof *found);
    size_t without = 0;
    for (int four = 0; four < 2; four++)
        for (size_t c = 0; c < 2 * sizeof counts / sizeof *counts; c++) {
            bool again = c % 2;
            struct cb_netlink *batch = calloc(1, sizeof *batch);
            struct cb_divert divert = {.count = counts[c / 2]};
            size_t size;
            for (size_t i = 0; i < counts[c / 2]; i++)
                divert.loopback[i] = (struct cb_divert_port){(uint16_t)(6379 + 7 * i), i % 2};
            cb_divert_rules(batch, &divert, four ? AF_INET : AF_INET6, again);
            if (batch->full)
                fail_msg("there is no room for %zu ports of loopback", counts[c / 2]);
            size_t count = walk(batch, sizeof(struct nfgenmsg), found, MOST), rules = 0;
            assert_int_equal(found[0].type, NFNL_MSG_BATCH_BEGIN);
            assert_int_equal(found[count - 1].type, NFNL_MSG_BATCH_END);
            assert_int_equal(found[1].type, NFT | (again ? NFT_MSG_DELTABLE : NFT_MSG_NEWTABLE));
            assert_int_equal(found[1 + again].type, NFT | NFT_MSG_NEWTABLE);
            for (size_t i = 1; i + 1 < count; i++) {
                assert_true(found[i].flags & NLM_F_ACK);
                if (found[i].type != (NFT | NFT_MSG_NEWRULE))
                    continue;
                rules++;
                assert_true(found[i].flags & NLM_F_APPEND);
                assert_string_equal(find(found[i].attributes, found[i].length, NFTA_RULE_TABLE, &size), "cellblock");
            }
            if (counts[c / 2] == 0)
                without = rules;
            assert_int_equal(rules, without + counts[c / 2]); /* one for each port */
            free(batch);
        }
    free(found);
}

/* Which rule a packet meets first decides: those for single ports come before the one that keeps loopback. */
static void test_order_of_rules(void **state)
{
    enum { MOST = 64, NFT = NFNL_SUBSYS_NFTABLES << 8 };
    struct cb_netlink *batch = calloc(1, sizeof *batch);
    struct cb_divert divert = {.loopback = {{6379, false}, {5432, true}}, .count = 2};
    struct message found[MOST], arrivals[MOST];
    size_t size, count, kept = 0;
    cb_divert_rules(batch, &divert, AF_INET, false);
    count = walk(batch, sizeof(struct nfgenmsg), found, MOST);
    for (size_t i = 0; i < count; i++)
        if (found[i].type == (NFT | NFT_MSG_NEWRULE) &&
            strcmp(find(found[i].attributes, found[i].length, NFTA_RULE_CHAIN, &size), "arrivals") == 0)
            arrivals[kept++] = found[i];
    const uint8_t net[4] = {127};
    size_t own = kept, resolver = kept, first = kept, second = kept, loopback = kept;
    for (size_t i = 0; i < kept; i++)
        if (compares(&arrivals[i], cb_divert_own4, 4))
            own = i;
        else if (compares(&arrivals[i], cb_divert_resolver, 4) && compares(&arrivals[i], &(uint16_t){htons(53)}, 2))
            resolver = i;
        else if (compares(&arrivals[i], net, 4) && compares(&arrivals[i], &(uint16_t){htons(6379)}, 2))
            first = i;
        else if (compares(&arrivals[i], net, 4) && compares(&arrivals[i], &(uint16_t){htons(5432)}, 2))
            second = i;
        else if (compares(&arrivals[i], net, 4) && strcmp(verdict_of(&arrivals[i]), "accept") == 0)
            loopback = i;
    assert_true(own < kept && resolver < loopback && first < loopback && second < loopback && loopback == kept - 2);
    assert_string_equal(verdict_of(&arrivals[own]), "accept");
    assert_string_equal(verdict_of(&arrivals[resolver]), "diverted");
    assert_true(compares(&arrivals[first], &(uint8_t){IPPROTO_TCP}, 1));
    assert_true(compares(&arrivals[second], &(uint8_t){IPPROTO_UDP}, 1));
    assert_string_equal(verdict_of(&arrivals[first]), "diverted");
    assert_string_equal(verdict_of(&arrivals[second]), "diverted");
    assert_string_equal(verdict_of(&arrivals[kept - 1]), "diverted"); /* whatever else */
    for (size_t i = 0; i < count; i++) /* what has no mark is dropped before it gets to a socket */
        if (found[i].type == (NFT | NFT_MSG_NEWRULE) &&
            strcmp(find(found[i].attributes, found[i].length, NFTA_RULE_CHAIN, &size), "diverted") == 0) {
            assert_string_equal(verdict_of(&found[i]), "drop");
            assert_true(compares(&found[i], &(uint32_t){CB_DIVERT_MARK}, 4));
            break;
        }
    free(batch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_message), cmocka_unit_test(test_overflow),       cmocka_unit_test(test_talking),
        cmocka_unit_test(test_routes),    cmocka_unit_test(test_rules),          cmocka_unit_test(test_order_of_rules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
