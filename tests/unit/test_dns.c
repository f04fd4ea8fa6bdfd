/* Questions for names and answers to them, as bytes; c-ares is the judge of the answers. */
#define CARES_NO_DEPRECATED
#include "relay/dns.h"

#include <ares.h>
#include <arpa/inet.h>
#include <netdb.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <cmocka.h>

#define COUNT(table) (sizeof(table) / sizeof *(table))

struct bytes {
    uint8_t data[1024];
    size_t length;
};

static void add(struct bytes *to, const void *data, size_t length)
{
    memcpy(to->data + to->length, data, length);
    to->length += length;
}

static void add16(struct bytes *to, unsigned number)
{
    add(to, (uint8_t[]){(uint8_t)(number >> 8), (uint8_t)number}, 2);
}

static unsigned get16(const uint8_t *at)
{
    return (unsigned)(at[0] << 8 | at[1]);
}

static struct bytes header(unsigned flags, unsigned questions, unsigned answers, unsigned authorities, unsigned more)
{
    struct bytes made = {.length = 0};
    const unsigned words[] = {0xbeef, flags, questions, answers, authorities, more};
    for (size_t i = 0; i < COUNT(words); i++)
        add16(&made, words[i]);
    return made;
}

/* Labels with dots between them. */
static void add_name(struct bytes *to, const char *name)
{
    while (*name) {
        size_t label = strcspn(name, ".");
        add(to, &(uint8_t){(uint8_t)label}, 1);
        add(to, name, label);
        name += label + (name[label] == '.');
    }
    add(to, "", 1);
}

static struct bytes question(const char *name, unsigned type)
{
    struct bytes made = header(0x0100, 1, 0, 0, 0);
    add_name(&made, name);
    add16(&made, type);
    add16(&made, 1);
    return made;
}

static void add_opt(struct bytes *to, unsigned size)
{
    to->data[11] = 1;
    add(to, "", 1);
    add16(to, 41);
    add16(to, size);
    add(to, "\0\0\0\0\0\0", 6);
}

/* From memory of just that size, so that reading beyond it is noticed. */
static bool read_exact(const uint8_t *data, size_t length, struct cb_question *found)
{
    uint8_t *exact = malloc(length ? length : 1);
    memcpy(exact, data, length);
    memset(found, 0x5a, sizeof *found);
    bool taken = cb_dns_read(exact, length, found);
    free(exact);
    return taken;
}

static struct cb_question read_well(const struct bytes *asked)
{
    struct cb_question found;
    assert_true(read_exact(asked->data, asked->length, &found));
    assert_int_equal(found.wrong, CB_DNS_FINE);
    return found;
}

static void test_questions(void **state)
{
    static const struct {
        const char *asked, *name;
    } table[] = {
        {"api.example.com", "api.example.com"},
        {"API.Example.COM", "api.example.com"},
        {"a", "a"},
        {"xn--bcher-kva.example", "xn--bcher-kva.example"},
        {"1.2.3.4", ""},            /* an address, not a name */
        {"_dmarc.example.com", ""}, /* not a host's */
        {"a b.example.com", ""},
        {"b\xc3\xbc" "cher.example", ""},
        {"-a.example.com", ""},
    };
    static const unsigned types[] = {CB_DNS_A, CB_DNS_AAAA, CB_DNS_HTTPS, CB_DNS_SVCB, 12, 15, 16, 255, 0, 65535};
    for (size_t i = 0; i < COUNT(table); i++)
        for (size_t t = 0; t < COUNT(types); t++) {
            struct bytes asked = question(table[i].asked, types[t]);
            struct cb_question found = read_well(&asked);
            assert_string_equal(found.name, table[i].name);
            assert_int_equal(found.type, types[t]);
            assert_int_equal(found.length, asked.length);
            assert_memory_equal(found.bytes, asked.data, asked.length); /* in the case that it came in */
            assert_int_equal(found.room, 512);
            assert_false(found.extended);
            if (table[i].name[0])
                assert_int_equal(strncasecmp(found.shown, table[i].name, strlen(table[i].name)), 0);
        }
}

/* Every number of bytes that is missing at the end. */
static void test_cut_questions(void **state)
{
    struct bytes asked = question("api.example.com", CB_DNS_A);
    struct cb_question found;
    for (size_t length = 0; length < asked.length; length++) {
        bool taken = read_exact(asked.data, length, &found);
        assert_int_equal(taken, length >= 12);
        if (!taken)
            continue;
        assert_int_equal(found.wrong, CB_DNS_FORMAT);
        assert_int_equal(found.length, 12); /* only the header is repeated */
        assert_string_equal(found.name, "");
    }
}

static void test_odd_names(void **state)
{
    struct {
        const char *bytes;
        size_t length;
        const char *shown;
    } table[] = {
        {"\3a.b\3com\0", 9, "a.b.com"},     /* a dot inside of a label */
        {"\3a\0b\3com\0", 9, NULL},         /* a NUL */
        {"\3a\nb\3com\0", 9, NULL},         /* another control byte */
        {"\3\x1b[2\3com\0", 9, NULL},       /* for terminals */
        {"\0", 1, NULL},                    /* the root */
        {"\1*\3com\0", 7, NULL},
    };
    for (size_t i = 0; i < COUNT(table); i++) {
        struct bytes asked = header(0x0100, 1, 0, 0, 0);
        add(&asked, table[i].bytes, table[i].length);
        add16(&asked, CB_DNS_A);
        add16(&asked, 1);
        struct cb_question found = read_well(&asked);
        assert_string_equal(found.name, "");
        if (table[i].shown)
            assert_string_equal(found.shown, table[i].shown);
        for (const char *at = found.shown; *at; at++)
            assert_true((unsigned char)*at >= 0x20 && *at != 0x7f);
    }
}

static void test_long_names(void **state)
{
    char label[64], longest[256] = "";
    memset(label, 'a', 63);
    label[63] = '\0';
    snprintf(longest, sizeof longest, "%s.%s.%s.%.61s", label, label, label, label); /* 255 bytes as they are sent */
    struct bytes asked = question(longest, CB_DNS_A);
    struct cb_question found = read_well(&asked);
    assert_string_equal(found.name, longest);
    assert_int_equal(strlen(found.name), 253);
    assert_int_equal(found.length, 12 + 255 + 4);
    struct cb_dns_answer *answer = malloc(sizeof *answer);
    cb_dns_begin(answer, &found, CB_DNS_FINE, found.room); /* and there is room to answer it */
    cb_dns_address(answer, &(struct cb_address){.family = AF_INET, .bytes = {9, 8, 7, 6}}, 1);
    cb_dns_end(answer, &found);
    assert_int_equal(answer->length, 12 + 255 + 4 + 16);
    free(answer);

    snprintf(longest, sizeof longest, "%s.%s.%s.%.62s", label, label, label, label);
    asked = question(longest, CB_DNS_A);
    assert_true(read_exact(asked.data, asked.length, &found));
    assert_int_equal(found.wrong, CB_DNS_FORMAT);

    /* All of it bytes that take the most room for people. */
    asked = header(0x0100, 1, 0, 0, 0);
    for (int i = 0; i < 127; i++)
        add(&asked, "\1\xff", 2);
    add(&asked, "", 1);
    add16(&asked, CB_DNS_A);
    add16(&asked, 1);
    found = read_well(&asked);
    assert_true(strlen(found.shown) < sizeof found.shown && strlen(found.shown) > 127);
}

static void test_pointers(void **state)
{
    static const struct {
        const char *bytes;
        size_t length;
    } table[] = {
        {"\xc0\x0c", 2},            /* to itself */
        {"\xc0\x0e", 2},            /* beyond it */
        {"\1a\xc0\x0c", 4},         /* round and round */
        {"\xff\xff", 2},
        {"\x40" "abc", 4},          /* labels of kinds that were never used */
        {"\x80" "abc", 4},
    };
    struct cb_question found;
    for (size_t i = 0; i < COUNT(table); i++) {
        struct bytes asked = header(0x0100, 1, 0, 0, 0);
        add(&asked, table[i].bytes, table[i].length);
        add16(&asked, CB_DNS_A);
        add16(&asked, 1);
        assert_true(read_exact(asked.data, asked.length, &found));
        assert_int_equal(found.wrong, CB_DNS_FORMAT);
        assert_string_equal(found.name, "");
    }
}

static void test_other_messages(void **state)
{
    struct bytes asked = question("a.example", CB_DNS_A);
    struct cb_question found;
    static const struct {
        size_t at;
        unsigned word;
        int wrong; /* -1: not answered at all */
    } table[] = {
        {2, 0x8100, -1},             /* an answer */
        {2, 0x8000, -1},
        {2, 0x0900, CB_DNS_UNKNOWN}, /* inverse, status, notify, update */
        {2, 0x1100, CB_DNS_UNKNOWN},
        {2, 0x2100, CB_DNS_UNKNOWN},
        {2, 0x2900, CB_DNS_UNKNOWN},
        {2, 0x7900, CB_DNS_UNKNOWN},
        {2, 0x0000, CB_DNS_FINE},    /* no recursion wanted: we know no other way */
        {4, 0, CB_DNS_FORMAT},       /* no question, two, very many */
        {4, 2, CB_DNS_FORMAT},
        {4, 0xffff, CB_DNS_FORMAT},
        {6, 1, CB_DNS_FORMAT},       /* an answer in the question */
        {8, 1, CB_DNS_FORMAT},
        {27 - 2, 3, CB_DNS_REFUSED}, /* another class: CHAOS, HESIOD, any, none */
        {27 - 2, 4, CB_DNS_REFUSED},
        {27 - 2, 255, CB_DNS_REFUSED},
        {27 - 2, 254, CB_DNS_REFUSED},
    };
    assert_int_equal(asked.length, 27);
    for (size_t i = 0; i < COUNT(table); i++) {
        struct bytes changed = asked;
        changed.data[table[i].at] = (uint8_t)(table[i].word >> 8);
        changed.data[table[i].at + 1] = (uint8_t)table[i].word;
        bool taken = read_exact(changed.data, changed.length, &found);
        assert_int_equal(taken, table[i].wrong >= 0);
        if (taken)
            assert_int_equal(found.wrong, table[i].wrong);
    }
}

static void test_two_questions(void **state)
{
    struct bytes asked = question("a.example", CB_DNS_A);
    struct cb_question found;
    add_name(&asked, "b.example");
    add16(&asked, CB_DNS_A);
    add16(&asked, 1);
    asked.data[5] = 2;
    assert_true(read_exact(asked.data, asked.length, &found));
    assert_int_equal(found.wrong, CB_DNS_FORMAT);
    asked.data[5] = 1; /* it says one: what follows is not repeated */
    found = read_well(&asked);
    assert_int_equal(found.length, 27);
}

static void test_sizes(void **state)
{
    static const size_t table[][2] = {{0, 512}, {1, 512}, {511, 512}, {512, 512}, {600, 600}, {1232, 1232},
                                      {1233, 1232}, {4096, 1232}, {65535, 1232}};
    struct cb_question found;
    for (size_t i = 0; i < COUNT(table); i++) {
        struct bytes asked = question("a.example", CB_DNS_A);
        add_opt(&asked, (unsigned)table[i][0]);
        found = read_well(&asked);
        assert_true(found.extended);
        assert_int_equal(found.room, table[i][1]);
        assert_int_equal(found.length, 27);
        for (size_t cut = 27; cut < asked.length; cut++) {
            assert_true(read_exact(asked.data, cut, &found));
            assert_false(found.extended);
            assert_int_equal(found.room, 512);
        }
    }
    struct bytes asked = question("a.example", CB_DNS_A);
    add_opt(&asked, 1232);
    asked.data[11] = 0; /* said not to be there */
    found = read_well(&asked);
    assert_false(found.extended);
}

/* ---- Answers ---- */

static struct cb_address address(const char *text)
{
    struct cb_address made;
    assert_true(cb_address_parse(text, &made));
    return made;
}

/* What c-ares reads from an answer, as "name alias… = address/lifetime …", or its error. */
static const char *as_read(const struct cb_dns_answer *answer, bool four)
{
    static char text[4096];
    struct hostent *host = NULL;
    struct ares_addrttl lives4[64];
    struct ares_addr6ttl lives6[64];
    int count = 64, length = 0;
    int status = four ? ares_parse_a_reply(answer->bytes, (int)answer->length, &host, lives4, &count)
                      : ares_parse_aaaa_reply(answer->bytes, (int)answer->length, &host, lives6, &count);
    if (status != ARES_SUCCESS) {
        snprintf(text, sizeof text, "%s", ares_strerror(status));
        return text;
    }
    length = snprintf(text, sizeof text, "%s", host->h_name);
    for (char **alias = host->h_aliases; *alias; alias++)
        length += snprintf(text + length, sizeof text - (size_t)length, " %s", *alias);
    length += snprintf(text + length, sizeof text - (size_t)length, " =");
    for (int i = 0; i < count; i++) {
        char printed[INET6_ADDRSTRLEN];
        if (four)
            inet_ntop(AF_INET, &lives4[i].ipaddr, printed, sizeof printed);
        else
            inet_ntop(AF_INET6, &lives6[i].ip6addr, printed, sizeof printed);
        length += snprintf(text + length, sizeof text - (size_t)length, " %s/%d", printed,
                           four ? lives4[i].ttl : lives6[i].ttl);
    }
    ares_free_hostent(host);
    return text;
}

/* The records as they stand there, with names as c-ares unpacks them: owner, type, lifetime and target. */
static const char *records(const struct cb_dns_answer *answer, size_t at)
{
    static char text[2048];
    int length = 0;
    while (at < answer->length) {
        char *owner, *target = NULL;
        long used;
        assert_int_equal(ares_expand_name(answer->bytes + at, answer->bytes, (int)answer->length, &owner, &used), 0);
        at += (size_t)used;
        assert_true(answer->length - at >= 10);
        unsigned type = get16(answer->bytes + at), size = get16(answer->bytes + at + 8);
        unsigned lifetime = get16(answer->bytes + at + 4) << 16 | get16(answer->bytes + at + 6);
        at += 10;
        if (type == 5) {
            int status = ares_expand_name(answer->bytes + at, answer->bytes, (int)answer->length, &target, &used);
            assert_int_equal(status, 0);
            assert_int_equal(used, size);
        }
        length += snprintf(text + length, sizeof text - (size_t)length, "%s %u %u %s\n", owner, type, lifetime,
                           target ? target : "-");
        ares_free_string(owner);
        ares_free_string(target);
        at += size;
    }
    assert_int_equal(at, answer->length);
    return text;
}

static void test_answers(void **state)
{
    struct cb_dns_answer *answer = malloc(sizeof *answer);
    struct cb_address one = address("93.184.216.34"), two = address("1.2.3.4"), six = address("2606:2800::1");
    struct bytes asked = question("Api.Example.Com", CB_DNS_A);
    struct cb_question found = read_well(&asked);
    cb_dns_begin(answer, &found, CB_DNS_FINE, found.room);
    cb_dns_address(answer, &one, 300);
    cb_dns_address(answer, &two, 0x00012345);
    cb_dns_end(answer, &found);
    assert_int_equal(get16(answer->bytes), 0xbeef);
    assert_int_equal(get16(answer->bytes + 2), 0x8180);
    assert_int_equal(get16(answer->bytes + 4), 1);
    assert_int_equal(get16(answer->bytes + 6), 2);
    assert_int_equal(get16(answer->bytes + 10), 0);
    assert_memory_equal(answer->bytes + 12, asked.data + 12, asked.length - 12); /* the case is kept: programs check */
    assert_string_equal(as_read(answer, true), "Api.Example.Com = 93.184.216.34/300 1.2.3.4/74565");

    asked = question("api.example.com", CB_DNS_AAAA);
    found = read_well(&asked);
    cb_dns_begin(answer, &found, CB_DNS_FINE, CB_DNS_LARGEST);
    cb_dns_address(answer, &six, 60);
    cb_dns_end(answer, &found);
    assert_string_equal(as_read(answer, false), "api.example.com = 2606:2800::1/60");
    free(answer);
}

static void test_aliases(void **state)
{
    struct cb_dns_answer *answer = malloc(sizeof *answer);
    struct cb_address one = address("93.184.216.34");
    struct bytes asked = question("www.example.com", CB_DNS_A);
    add_opt(&asked, 1232);
    struct cb_question found = read_well(&asked);
    cb_dns_begin(answer, &found, CB_DNS_FINE, found.room);
    cb_dns_alias(answer, "cdn.example.net", 20);
    cb_dns_alias(answer, "e1.a.example.org", 300);
    cb_dns_address(answer, &one, 100);
    cb_dns_end(answer, &found);
    assert_int_equal(get16(answer->bytes + 6), 3);
    assert_int_equal(get16(answer->bytes + 10), 1);
    assert_string_equal(records(answer, found.length),
                        "www.example.com 5 20 cdn.example.net\n"
                        "cdn.example.net 5 300 e1.a.example.org\n"
                        "e1.a.example.org 1 100 -\n"
                        " 41 0 -\n");
    assert_string_equal(as_read(answer, true), "cdn.example.net www.example.com cdn.example.net = 93.184.216.34/20");

    cb_dns_begin(answer, &found, CB_DNS_FINE, found.room);
    cb_dns_alias(answer, "a", 20); /* one label */
    cb_dns_address(answer, &one, 100);
    cb_dns_end(answer, &found);
    assert_non_null(strstr(as_read(answer, true), "= 93.184.216.34/"));
    free(answer);
}

static void test_empty_answers(void **state)
{
    static const int codes[] = {CB_DNS_FORMAT, CB_DNS_FAILURE, CB_DNS_NO_NAME, CB_DNS_UNKNOWN, CB_DNS_REFUSED};
    struct cb_dns_answer *answer = malloc(sizeof *answer);
    for (size_t i = 0; i < COUNT(codes); i++) {
        struct bytes asked = question("a.example", CB_DNS_A);
        asked.data[2] = 0; /* no recursion wanted: said so in the answer too */
        struct cb_question found = read_well(&asked);
        cb_dns_begin(answer, &found, codes[i], found.room);
        cb_dns_end(answer, &found);
        assert_int_equal(answer->length, asked.length);
        assert_int_equal(get16(answer->bytes + 2), 0x8080 | codes[i]);
        assert_int_equal(get16(answer->bytes + 6), 0);
    }
    struct bytes asked = question("a.example", CB_DNS_A);
    struct cb_question found = read_well(&asked);
    cb_dns_begin(answer, &found, CB_DNS_FINE, found.room); /* the name is there, and has no address of the kind */
    cb_dns_end(answer, &found);
    assert_string_equal(as_read(answer, true), ares_strerror(ARES_ENODATA));

    struct bytes head = header(0x2900, 1, 2, 3, 4); /* what is only a header gets one back, with nothing counted */
    assert_true(read_exact(head.data, head.length, &found));
    cb_dns_begin(answer, &found, found.wrong, found.room);
    cb_dns_end(answer, &found);
    assert_int_equal(answer->length, 12);
    assert_memory_equal(answer->bytes + 4, "\0\0\0\0\0\0\0\0", 8);
    assert_int_equal(get16(answer->bytes + 2) & 15, CB_DNS_UNKNOWN);
    free(answer);
}

/* Until there is no room any more: then there are none, and it says that there would be more. */
static void test_cut_answers(void **state)
{
    struct cb_dns_answer *answer = malloc(sizeof *answer);
    struct cb_address six = address("2606:2800::1");
    for (int extended = 0; extended < 2; extended++)
        for (int stream = 0; stream < 2; stream++)
            for (unsigned wanted = 0; wanted < 200; wanted++) {
                struct bytes asked = question("api.example.com", CB_DNS_AAAA);
                if (extended)
                    add_opt(&asked, 900);
                struct cb_question found = read_well(&asked);
                size_t room = stream ? CB_DNS_LARGEST : found.room, tail = extended ? 11 : 0;
                cb_dns_begin(answer, &found, CB_DNS_FINE, room);
                for (unsigned i = 0; i < wanted; i++)
                    cb_dns_address(answer, &six, 60);
                cb_dns_end(answer, &found);
                bool fits = found.length + wanted * 28 + tail <= room;
                assert_int_equal(answer->cut, !fits);
                assert_int_equal(answer->length, found.length + (fits ? wanted * 28 : 0) + tail);
                assert_int_equal(get16(answer->bytes + 6), fits ? wanted : 0);
                assert_int_equal(get16(answer->bytes + 2) & 0x0200, fits ? 0 : 0x0200);
                assert_true(answer->length <= room);
            }
    /* Something small after something that did not fit is not taken either: the alias belongs to it. */
    struct bytes asked = question("a.example", CB_DNS_A);
    struct cb_question found = read_well(&asked);
    char name[254];
    memset(name, 'a', sizeof name - 1);
    for (size_t i = 49; i < sizeof name - 1; i += 50)
        name[i] = '.';
    name[sizeof name - 1] = '\0';
    name[sizeof name - 2] = 'a';
    cb_dns_begin(answer, &found, CB_DNS_FINE, found.room);
    cb_dns_alias(answer, name, 1);
    assert_false(answer->cut);
    cb_dns_alias(answer, name, 1);
    assert_true(answer->cut);
    six = address("1.2.3.4");
    cb_dns_address(answer, &six, 1);
    cb_dns_end(answer, &found);
    assert_int_equal(get16(answer->bytes + 6), 0);
    free(answer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_questions),
        cmocka_unit_test(test_cut_questions),
        cmocka_unit_test(test_odd_names),
        cmocka_unit_test(test_long_names),
        cmocka_unit_test(test_pointers),
        cmocka_unit_test(test_other_messages),
        cmocka_unit_test(test_two_questions),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_aliases),
        cmocka_unit_test(test_empty_answers),
        cmocka_unit_test(test_cut_answers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
