/* Addresses and names: what is read, what is not, which ranges are special, and which names match. */
#include "base/address.h"
#include "policy/hostname.h"

#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cmocka.h>

#define COUNT(table) (sizeof(table) / sizeof *(table))

static struct cb_address address(const char *text)
{
    struct cb_address made;
    if (!cb_address_parse(text, &made))
        fail_msg("%s was not taken", text);
    return made;
}

static void test_addresses(void **state)
{
    static const char *const table[][2] = {
        {"1.2.3.4", "1.2.3.4"},
        {"255.255.255.255", "255.255.255.255"},
        {"::", "::"},
        {"2001:DB8:0:0::1", "2001:db8::1"},
        {"::ffff:1.2.3.4", "1.2.3.4"},
        {"::ffff:102:304", "1.2.3.4"},
        {"0:0:0:0:0:FFFF:1.2.3.4", "1.2.3.4"},
        {"64:ff9b::1.2.3.4", "64:ff9b::102:304"},
        {"1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7:8"},
    };
    for (size_t i = 0; i < COUNT(table); i++) {
        char text[CB_ADDRESS_TEXT];
        struct cb_address made = address(table[i][0]);
        cb_address_print(&made, text);
        assert_string_equal(text, table[i][1]);
        struct cb_address again = address(text);
        assert_true(cb_address_equal(&made, &again));
    }
    static const char *const refused[] = {
        "",
        "1",
        "127.1",
        "1.2.3",
        "1.2.3.4.",
        "1.2.3.4.5",
        "01.2.3.4",
        "1.2.3.010",
        "0x7f.0.0.1",
        "0177.0.0.1",
        "256.1.1.1",
        "1.2.3.-4",
        " 1.2.3.4",
        "1.2.3.4 ",
        "1.2.3.4\n",
        "+1.2.3.4",
        "2130706433",
        "[::1]",
        "::1%lo",
        "fe80::1%2",
        ":::",
        "1::2::3",
        "12345::",
        "::1/128",
        "::g",
        "1:2:3:4:5:6:7",
        "1:2:3:4:5:6:7:8:9",
        "::1.2.3",
        "::1.2.3.04",
        "::ffff:0x1.2.3.4",
        ":1",
        "1:",
    };
    struct cb_address made;
    for (size_t i = 0; i < COUNT(refused); i++)
        if (cb_address_parse(refused[i], &made))
            fail_msg("\"%s\" was taken", refused[i]);
}

static void test_prefixes(void **state)
{
    static const char *const table[][2] = {
        {"10.1.0.0/16", "10.1.0.0/16"},
        {"203.0.113.9", "203.0.113.9"},
        {"203.0.113.9/32", "203.0.113.9"},
        {"0.0.0.0/0", "0.0.0.0/0"},
        {"::/0", "::/0"},
        {"2001:db8::/32", "2001:db8::/32"},
        {"2001:db8::1/128", "2001:db8::1"},
        {"128.0.0.0/1", "128.0.0.0/1"},
        {"::ffff:10.0.0.0/104", "10.0.0.0/8"},
        {"::ffff:0:0/96", "0.0.0.0/0"},
        {"::ffff:1.2.3.4", "1.2.3.4"},
        {"::/95", "::/95"},
    };
    struct cb_prefix prefix;
    char text[CB_PREFIX_TEXT];
    for (size_t i = 0; i < COUNT(table); i++) {
        if (cb_prefix_parse(table[i][0], &prefix))
            fail_msg("%s was not taken", table[i][0]);
        cb_prefix_print(&prefix, text);
        assert_string_equal(text, table[i][1]);
    }
    static const char *const refused[] = {
        "",
        "/",
        "/8",
        "10/8",
        "10.0.0.0/",
        "10.0.0.0/33",
        "10.0.0.0/08",
        "10.0.0.0/-1",
        "10.0.0.0/+8",
        "10.0.0.0/ 8",
        "10.0.0.0/8 ",
        "10.0.0.0/8/8",
        "10.0.0.0/255.0.0.0",
        "::/129",
        "::/0128",
        "::/1000",
        "10.0.0.0/4294967304",
        "x/8",
        "[::]/0",
        "10.0.0.0-10.0.0.9",
        "1.2.3.4%1/8",
    };
    for (size_t i = 0; i < COUNT(refused); i++) {
        if (!cb_prefix_parse(refused[i], &prefix))
            fail_msg("\"%s\" was taken", refused[i]);
        assert_int_equal(prefix.address.family, 0);
    }
    /* A slip, and what was meant. */
    assert_string_equal(cb_prefix_parse("10.1.2.3/9", &prefix), "has bits set beyond its length");
    cb_prefix_print(&prefix, text);
    assert_string_equal(text, "10.0.0.0/9");
    assert_non_null(cb_prefix_parse("2001:db8::1/64", &prefix));
    cb_prefix_print(&prefix, text);
    assert_string_equal(text, "2001:db8::/64");
    assert_non_null(cb_prefix_parse("::ffff:10.1.2.3/104", &prefix));
    cb_prefix_print(&prefix, text);
    assert_string_equal(text, "10.0.0.0/8");
}

static bool contains(const char *prefix, const char *inside)
{
    struct cb_prefix made;
    struct cb_address of = address(inside);
    assert_null(cb_prefix_parse(prefix, &made));
    return cb_prefix_contains(&made, &of);
}

static void test_containment(void **state)
{
    assert_true(contains("10.0.0.0/8", "10.255.255.255"));
    assert_false(contains("10.0.0.0/8", "11.0.0.0"));
    assert_true(contains("10.128.0.0/9", "10.128.0.0"));
    assert_false(contains("10.128.0.0/9", "10.127.255.255"));
    assert_true(contains("1.2.3.4", "1.2.3.4"));
    assert_true(contains("1.2.3.4", "::ffff:1.2.3.4"));
    assert_false(contains("1.2.3.4", "1.2.3.5"));
    assert_true(contains("0.0.0.0/0", "255.1.2.3"));
    assert_true(contains("2001:db8:8000::/33", "2001:db8:ffff::"));
    assert_false(contains("2001:db8:8000::/33", "2001:db8:7fff::"));
    /* The two families have nothing to do with one another. */
    assert_false(contains("0.0.0.0/0", "::1"));
    assert_false(contains("::/0", "1.2.3.4"));
    assert_false(contains("::/0", "::ffff:1.2.3.4"));
}

static void test_socket_addresses(void **state)
{
    struct cb_address made;
    uint16_t port = 0;
    struct sockaddr_storage storage;
    struct cb_address four = address("192.0.2.7"), six = address("2001:db8::7");
    assert_int_equal(cb_address_to(&four, 443, &storage), sizeof(struct sockaddr_in));
    assert_true(cb_address_from((struct sockaddr *)&storage, sizeof(struct sockaddr_in), &made, &port));
    assert_true(cb_address_equal(&made, &four));
    assert_int_equal(port, 443);
    for (size_t length = 0; length < sizeof(struct sockaddr_in); length++)
        assert_false(cb_address_from((struct sockaddr *)&storage, length, &made, &port));

    assert_int_equal(cb_address_to(&six, 65535, &storage), sizeof(struct sockaddr_in6));
    assert_true(cb_address_from((struct sockaddr *)&storage, sizeof storage, &made, &port));
    assert_true(cb_address_equal(&made, &six));
    assert_int_equal(port, 65535);
    assert_true(cb_address_from((struct sockaddr *)&storage, 24, &made, &port)); /* as the kernel takes it */
    for (size_t length = 0; length < 24; length++)
        assert_false(cb_address_from((struct sockaddr *)&storage, length, &made, &port));

    struct sockaddr_in6 mapped = {.sin6_family = AF_INET6, .sin6_scope_id = 3};
    mapped.sin6_addr.s6_addr[10] = mapped.sin6_addr.s6_addr[11] = 0xff;
    mapped.sin6_addr.s6_addr[12] = 127;
    mapped.sin6_addr.s6_addr[15] = 1;
    assert_true(cb_address_from((struct sockaddr *)&mapped, sizeof mapped, &made, &port));
    assert_int_equal(made.family, AF_INET);
    assert_int_equal(cb_address_range(&made).class, CB_CLASS_LOOPBACK);

    struct sockaddr_un un = {.sun_family = AF_UNIX};
    assert_false(cb_address_from((struct sockaddr *)&un, sizeof un, &made, &port));
    struct sockaddr_storage nothing = {.ss_family = AF_UNSPEC};
    assert_false(cb_address_from((struct sockaddr *)&nothing, sizeof nothing, &made, &port));
}

static void test_ranges(void **state)
{
    static const struct {
        const char *text;
        enum cb_class class;
        unsigned length;
        bool carried;
    } table[] = {
        {"8.8.8.8", CB_CLASS_PUBLIC, 0, false},
        {"2606:4700::1111", CB_CLASS_PUBLIC, 0, false},
        {"0.0.0.0", CB_CLASS_UNSPECIFIED, 8, false},
        {"0.1.2.3", CB_CLASS_UNSPECIFIED, 8, false},
        {"::", CB_CLASS_UNSPECIFIED, 128, false},
        {"127.0.0.1", CB_CLASS_LOOPBACK, 8, false},
        {"127.255.255.254", CB_CLASS_LOOPBACK, 8, false},
        {"128.0.0.0", CB_CLASS_PUBLIC, 0, false},
        {"::1", CB_CLASS_LOOPBACK, 128, false},
        {"10.0.0.1", CB_CLASS_PRIVATE, 8, false},
        {"172.15.255.255", CB_CLASS_PUBLIC, 0, false},
        {"172.16.0.0", CB_CLASS_PRIVATE, 12, false},
        {"172.31.255.255", CB_CLASS_PRIVATE, 12, false},
        {"172.32.0.0", CB_CLASS_PUBLIC, 0, false},
        {"192.168.1.1", CB_CLASS_PRIVATE, 16, false},
        {"fc00::1", CB_CLASS_PRIVATE, 7, false},
        {"fdff::1", CB_CLASS_PRIVATE, 7, false},
        {"fec0::1", CB_CLASS_PRIVATE, 10, false},
        {"169.254.1.1", CB_CLASS_LINK_LOCAL, 16, false},
        {"fe80::1", CB_CLASS_LINK_LOCAL, 10, false},
        {"febf::1", CB_CLASS_LINK_LOCAL, 10, false},
        {"169.254.169.254", CB_CLASS_METADATA, 32, false},
        {"169.254.170.2", CB_CLASS_METADATA, 32, false},
        {"100.100.100.200", CB_CLASS_METADATA, 32, false},
        {"168.63.129.16", CB_CLASS_METADATA, 32, false},
        {"fd00:ec2::254", CB_CLASS_METADATA, 128, false},
        {"fd00:ec2::23", CB_CLASS_METADATA, 128, false},
        {"fd20:ce::254", CB_CLASS_METADATA, 128, false},
        {"fd00:42::42", CB_CLASS_METADATA, 128, false},
        {"fd00:c1::a9fe:a9fe", CB_CLASS_METADATA, 128, false},
        {"fe80::a9fe:a9fe", CB_CLASS_METADATA, 128, false},
        {"100.64.0.1", CB_CLASS_CARRIER, 10, false},
        {"100.127.255.255", CB_CLASS_CARRIER, 10, false},
        {"100.128.0.0", CB_CLASS_PUBLIC, 0, false},
        {"224.0.0.1", CB_CLASS_MULTICAST, 4, false},
        {"239.255.255.255", CB_CLASS_MULTICAST, 4, false},
        {"ff02::1", CB_CLASS_MULTICAST, 8, false},
        {"255.255.255.255", CB_CLASS_BROADCAST, 32, false},
        {"240.0.0.1", CB_CLASS_RESERVED, 4, false},
        {"192.0.0.8", CB_CLASS_RESERVED, 24, false},
        {"192.0.2.1", CB_CLASS_RESERVED, 24, false},
        {"198.19.0.1", CB_CLASS_RESERVED, 15, false},
        {"198.51.100.1", CB_CLASS_RESERVED, 24, false},
        {"203.0.113.9", CB_CLASS_RESERVED, 24, false},
        {"2001:db8::1", CB_CLASS_RESERVED, 32, false},
        {"100::1", CB_CLASS_RESERVED, 64, false},
        {"200::1", CB_CLASS_RESERVED, 3, false}, /* an overlay network, or nobody's */
        {"4000::1", CB_CLASS_RESERVED, 3, false},
        /* IPv4 in IPv6 */
        {"::ffff:10.0.0.1", CB_CLASS_PRIVATE, 8, false},
        {"::ffff:169.254.169.254", CB_CLASS_METADATA, 32, false},
        {"::ffff:8.8.8.8", CB_CLASS_PUBLIC, 0, false},
        {"::127.0.0.1", CB_CLASS_LOOPBACK, 104, true},
        {"::8.8.8.8", CB_CLASS_RESERVED, 96, false},
        {"::10.0.0.1", CB_CLASS_PRIVATE, 104, true},
        {"::ffff:0:127.0.0.1", CB_CLASS_LOOPBACK, 104, true},
        {"64:ff9b::8.8.8.8", CB_CLASS_PUBLIC, 0, false},
        {"64:ff9b::127.0.0.1", CB_CLASS_LOOPBACK, 104, true},
        {"64:ff9b::10.1.2.3", CB_CLASS_PRIVATE, 104, true},
        {"64:ff9b::169.254.169.254", CB_CLASS_METADATA, 128, true},
        {"64:ff9b::0.0.0.0", CB_CLASS_UNSPECIFIED, 104, true},
        {"64:ff9b:1::8.8.8.8", CB_CLASS_PRIVATE, 48, false},
        {"64:ff9b:1::169.254.169.254", CB_CLASS_METADATA, 128, true},
        {"64:ff9b:1::127.0.0.1", CB_CLASS_LOOPBACK, 104, true},
        {"2002:808:808::1", CB_CLASS_RESERVED, 16, false},
        {"2002:7f00:1::1", CB_CLASS_LOOPBACK, 24, true},
        {"2002:a00:1::", CB_CLASS_PRIVATE, 24, true},
        {"2002:a9fe:a9fe::1", CB_CLASS_METADATA, 48, true},
        {"2001:0:808:808:0:0:f7f7:f7f7", CB_CLASS_RESERVED, 23, false},
        {"2001:0:a00:1:0:0:f7f7:f7f7", CB_CLASS_PRIVATE, 40, true},     /* the server */
        {"2001:0:808:808:0:0:f5ff:fffe", CB_CLASS_PRIVATE, 104, true},  /* the other end: 10.0.0.1 */
        {"2001:0:808:808:0:0:5601:5601", CB_CLASS_METADATA, 128, true}, /* 169.254.169.254 */
        {"2001:0:808:808:0:0:80ff:fffe", CB_CLASS_LOOPBACK, 104, true}, /* 127.0.0.1 */
    };
    for (size_t i = 0; i < COUNT(table); i++) {
        struct cb_address of = address(table[i].text);
        struct cb_range range = cb_address_range(&of);
        if (range.class != table[i].class || range.length != table[i].length || range.carried != table[i].carried)
            fail_msg("%s: %s, %u bits, %s", table[i].text, cb_class_word(range.class), range.length,
                     range.carried ? "carried" : "its own");
    }
    for (int class = CB_CLASS_PUBLIC; class <= CB_CLASS_RESERVED; class ++)
        assert_true(strlen(cb_class_word((enum cb_class) class)) > 0);
}

/* ---- Names ---- */

static void test_names_of_rules(void **state)
{
    static const struct {
        const char *text, *name;
        bool wildcard;
    } table[] = {
        {"api.example.com", "api.example.com", false},
        {"API.Example.COM.", "api.example.com", false},
        {"*.example.org", "example.org", true},
        {"*.Example.org.", "example.org", true},
        {"redis", "redis", false},
        {"a", "a", false},
        {"1and1.com", "1and1.com", false},
        {"1.2.3.com", "1.2.3.com", false},
        {"0x7f.example", "0x7f.example", false},
        {"x--y.example", "x--y.example", false},
        {"bücher.example", "xn--bcher-kva.example", false},
        {"BÜCHER.example", "xn--bcher-kva.example", false},
        {"bu\xcc\x88"
         "cher.example",
         "xn--bcher-kva.example", false}, /* u and a combining diaeresis */
        {"*.bücher.example", "xn--bcher-kva.example", true},
        {"faß.example", "xn--fa-hia.example", false}, /* not "fass" */
        {"xn--bcher-kva.example", "xn--bcher-kva.example", false},
        {"例え。テスト", "xn--r8jz45g.xn--zckzah", false},
    };
    char name[CB_HOSTNAME_TEXT];
    const char *reason, *hint;
    bool wildcard;
    for (size_t i = 0; i < COUNT(table); i++) {
        if (cb_hostname_rule(table[i].text, name, &wildcard, &reason, &hint) < 0)
            fail_msg("%s: %s", table[i].text, reason ? reason : "out of memory");
        assert_string_equal(name, table[i].name);
        assert_int_equal(wildcard, table[i].wildcard);
    }
}

static void test_names_that_are_refused(void **state)
{
    static const struct {
        const char *text, *reason, *hint;
    } table[] = {
        {"", "is empty", NULL},
        {".", "is empty", NULL},
        {"..", "empty part", NULL},
        {"a..b", "empty part", NULL},
        {".a", "empty part", NULL},
        {"a.b..", "empty part", NULL},
        {"-a.b", "hyphen", NULL},
        {"a-.b", "hyphen", NULL},
        {"a.b-", "hyphen", NULL},
        {"a_b.c", "letters, digits", NULL},
        {"a b.c", "letters, digits", NULL},
        {"a\\b.c", "letters, digits", NULL},
        {"a%2e.c", "letters, digits", NULL},
        {"a@b.c", "letters, digits", NULL},
        {"a\n.c", "control character", NULL},
        {"a\x7f.c", "control character", NULL},
        {"a\xc2\x85.c", "control character", NULL},
        {"a:443", "not the name of a host", "ports"},
        {"http://a.b", "not the name of a host", "bare name"},
        {"a.b/c", "not the name of a host", "bare name"},
        {"[::1]", "not the name of a host", "cidr"},
        {"::1", "not the name of a host", "cidr"},
        {"127.0.0.1", "takes it for an address", "cidr"},
        {"127.1", "takes it for an address", "cidr"},
        {"127.0.0.1.", "takes it for an address", "cidr"},
        {"0x7f.1", "takes it for an address", "cidr"},
        {"0x7f000001", "takes it for an address", "cidr"},
        {"0X7F.0x0.0x0.0X1", "takes it for an address", "cidr"},
        {"2130706433", "takes it for an address", "cidr"},
        {"017700000001", "takes it for an address", "cidr"},
        {"a.0x", "takes it for an address", "cidr"},
        {"*.0.0.1", "takes it for an address", "cidr"},
        {"\xef\xbc\x91\xef\xbc\x92\xef\xbc\x97.0.0.1", "takes it for an address", "cidr"}, /* wide digits */
        {"127\xe3\x80\x82"
         "0\xe3\x80\x82"
         "0\xe3\x80\x82"
         "1",
         "takes it for an address", "cidr"}, /* ideographic dots */
        {"localhost", "not a name that is looked up", "loopback"},
        {"LocalHost.", "not a name that is looked up", "loopback"},
        {"a.localhost", "not a name that is looked up", "loopback"},
        {"*", "every host", "*.example.org"},
        {"*.", "is empty", NULL},
        {"*.com", "many owners", "two parts"},
        {"*.com.", "many owners", "two parts"},
        {"*.*.com", "not all of its first part", "*.example.org"},
        {"a.*.com", "not all of its first part", "*.example.org"},
        {"a*.example.com", "not all of its first part", "*.example.org"},
        {"**.example.com", "not all of its first part", "*.example.org"},
        {"\xef\xbc\x8a.example.com", "letters, digits", NULL}, /* a wide asterisk */
        {"a\xef\xbc\x8f"
         "b.example",
         "letters, digits", NULL}, /* a wide slash */
        {"a\xff.example", "looked up", NULL},
        {"\xe2\x80\xae"
         "a.example",
         "looked up", NULL}, /* writing direction */
        {"\xd7\x90"
         "a.example",
         "looked up", NULL}, /* two directions in one part */
    };
    char name[CB_HOSTNAME_TEXT];
    const char *reason, *hint;
    bool wildcard;
    for (size_t i = 0; i < COUNT(table); i++) {
        if (cb_hostname_rule(table[i].text, name, &wildcard, &reason, &hint) == 0)
            fail_msg("\"%s\" was taken, as %s", table[i].text, name);
        if (!reason || !strstr(reason, table[i].reason))
            fail_msg("\"%s\": %s", table[i].text, reason ? reason : "out of memory");
        if (!table[i].hint != !hint || (hint && !strstr(hint, table[i].hint)))
            fail_msg("\"%s\": hint %s", table[i].text, hint ? hint : "none");
    }
}

static void test_lengths_of_names(void **state)
{
    char text[300], name[CB_HOSTNAME_TEXT];
    const char *reason, *hint;
    bool wildcard;
    memset(text, 'a', sizeof text);
    text[63] = '\0';
    assert_int_equal(cb_hostname_rule(text, name, &wildcard, &reason, &hint), 0);
    text[63] = 'a';
    text[64] = '\0';
    assert_int_equal(cb_hostname_rule(text, name, &wildcard, &reason, &hint), -1);
    assert_string_equal(reason, "has a part of more than 63 bytes");
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = i % 2 ? '.' : 'a';
    text[253] = '\0';
    assert_int_equal(cb_hostname_rule(text, name, &wildcard, &reason, &hint), 0);
    assert_int_equal(strlen(name), 253);
    text[253] = '.';
    text[254] = '\0';
    assert_int_equal(cb_hostname_rule(text, name, &wildcard, &reason, &hint), 0); /* the last dot does not count */
    text[253] = 'a';
    assert_int_equal(cb_hostname_rule(text, name, &wildcard, &reason, &hint), -1);
    assert_string_equal(reason, "is longer than 253 bytes");
    /* Short in UTF-8, too long in ASCII. */
    for (size_t i = 0; i < 120; i += 2)
        memcpy(text + i, "\xc3\xbc", 2);
    strcpy(text + 120, ".example");
    assert_int_equal(cb_hostname_rule(text, name, &wildcard, &reason, &hint), -1);
    assert_non_null(strstr(reason, "too long"));
}

static void test_names_that_are_asked_for(void **state)
{
    char name[CB_HOSTNAME_TEXT];
    assert_true(cb_hostname_plain("API.example.com.", 16, name));
    assert_string_equal(name, "api.example.com");
    static const char *const refused[] = {"", ".", "a_b.c", "*.a.b", "1.2.3.4", "bücher.example", "a b", "a..b", "0x1"};
    for (size_t i = 0; i < COUNT(refused); i++)
        assert_false(cb_hostname_plain(refused[i], strlen(refused[i]), name));
    assert_false(cb_hostname_plain("a\0.example.com", 14, name));
    assert_false(cb_hostname_plain("a\\.example.com", 14, name)); /* how a dot inside of a part is often shown */
}

static void test_matching(void **state)
{
    assert_true(cb_hostname_matches("a.b", false, "a.b"));
    assert_false(cb_hostname_matches("a.b", false, "x.a.b"));
    assert_false(cb_hostname_matches("a.b", false, "a.bc"));
    assert_true(cb_hostname_matches("a.b", true, "x.a.b"));
    assert_true(cb_hostname_matches("a.b", true, "x.y.a.b"));
    assert_false(cb_hostname_matches("a.b", true, "a.b"));
    assert_false(cb_hostname_matches("a.b", true, ".a.b"));
    assert_false(cb_hostname_matches("a.b", true, "xa.b"));
    assert_false(cb_hostname_matches("a.b", true, "x.a.b.c"));
    assert_false(cb_hostname_matches("a.b", true, "b"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_prefixes),
        cmocka_unit_test(test_containment),
        cmocka_unit_test(test_socket_addresses),
        cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_names_of_rules),
        cmocka_unit_test(test_names_that_are_refused),
        cmocka_unit_test(test_lengths_of_names),
        cmocka_unit_test(test_names_that_are_asked_for),
        cmocka_unit_test(test_matching),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
