/* Deciding what can be reached: which rule allows what, that special ranges open only to a rule that names them, and
 * that a further layer only takes away. */
#include "policy/network.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(table) (sizeof(table) / sizeof *(table))
#define P(text) "{\"cellblock\":1, \"extends\": [], " text "}"
#define NET(rules) P("\"network\": [" rules "]")
#define HOST(name, ports) "{\"host\": \"" name "\", \"ports\": [" ports "]}"
#define CIDR(range, ports) "{\"cidr\": \"" range "\", \"ports\": [" ports "]}"

static cellblock_policy *load(const char *text)
{
    cellblock_policy *policy = NULL;
    cellblock_error *error = NULL;
    if (cellblock_policy_load_text(text, strlen(text), "p", &policy, &error) < 0)
        fail_msg("%s: %s", text, cellblock_error_message(error));
    return policy;
}

static void tighten(cellblock_policy *policy, const char *text)
{
    cellblock_policy *other = NULL;
    assert_int_equal(cellblock_policy_load_text(text, strlen(text), "other", &other, NULL), 0);
    assert_int_equal(cellblock_policy_tighten(policy, other, NULL), 0);
    cellblock_policy_free(other);
}

static struct cb_address address(const char *text)
{
    struct cb_address made;
    if (!cb_address_parse(text, &made))
        fail_msg("%s", text);
    return made;
}

/* TCP, by up to two names. */
static struct cb_net_decision ask(const cellblock_policy *policy, const char *text, uint16_t port, const char *one,
                                  const char *two)
{
    const char *names[] = {one, two};
    struct cb_net_target target = {
        .address = address(text), .port = port, .names = names, .name_count = (size_t)(one != NULL) + (two != NULL)};
    struct cb_net_decision decision = cb_decide_connect(policy, &target);
    assert_int_equal(decision.allowed, decision.refusal == CB_NET_ALLOWED);
    assert_true(!decision.allowed || (decision.rule && !decision.suggest.kind));
    /* The name lives as long as the target does; these names are constants. */
    assert_true(!decision.name || decision.name == one || decision.name == two);
    return decision;
}

static bool allowed(const cellblock_policy *policy, const char *text, uint16_t port, const char *name)
{
    return ask(policy, text, port, name, NULL).allowed;
}

static void test_nothing_is_allowed_by_default(void **state)
{
    static const char *const silent[] = {P("\"network\": []"), P("\"files\": []"), "{\"cellblock\": 1}"};
    for (size_t i = 0; i < COUNT(silent); i++) {
        cellblock_policy *policy = load(silent[i]);
        static const char *const texts[] = {"8.8.8.8", "127.0.0.1", "10.0.0.1", "::1", "2606:4700::1", "0.0.0.0"};
        for (size_t j = 0; j < COUNT(texts); j++)
            assert_false(allowed(policy, texts[j], 443, "a.example.com"));
        assert_false(cb_decide_name(policy, "a.example.com").allowed);
        assert_false(cb_decide_publish(policy, 80, 80).allowed);
        assert_false(cb_decide_socket(policy, "/run/s").allowed);
        assert_false(cb_policy_has_network(policy));
        cellblock_policy_free(policy);
    }
}

static void test_host_rules(void **state)
{
    cellblock_policy *policy =
        load(NET(HOST("api.example.com", "443, \"8000-8100\"") "," HOST("*.example.org", "443")));
    assert_true(allowed(policy, "93.184.216.34", 443, "api.example.com"));
    assert_true(allowed(policy, "93.184.216.34", 8000, "api.example.com"));
    assert_true(allowed(policy, "93.184.216.34", 8100, "api.example.com"));
    assert_false(allowed(policy, "93.184.216.34", 7999, "api.example.com"));
    assert_false(allowed(policy, "93.184.216.34", 8101, "api.example.com"));
    assert_false(allowed(policy, "93.184.216.34", 80, "api.example.com"));
    assert_false(allowed(policy, "93.184.216.34", 443, NULL)); /* an address that no name led to */
    assert_false(allowed(policy, "93.184.216.34", 443, "evil.example.com"));
    assert_true(allowed(policy, "2606:2800::1", 443, "x.y.example.org"));
    assert_false(allowed(policy, "2606:2800::1", 443, "example.org"));
    assert_false(allowed(policy, "2606:2800::1", 8000, "x.example.org"));
    struct cb_net_decision decision = ask(policy, "93.184.216.34", 443, "evil.example.com", "a.example.org");
    assert_true(decision.allowed);
    assert_string_equal(decision.name, "a.example.org");
    assert_true(decision.rule->wildcard);

    struct cb_net_target udp = {.protocol = CB_PROTOCOL_UDP,
                                .address = address("93.184.216.34"),
                                .port = 443,
                                .names = (const char *const[]){"api.example.com"},
                                .name_count = 1};
    assert_false(cb_decide_connect(policy, &udp).allowed);

    /* A name that leads to a special range opens nothing, in no spelling. */
    static const char *const rebound[] = {
        "127.0.0.1",
        "10.0.0.1",
        "172.16.0.1",
        "192.168.0.1",
        "169.254.169.254",
        "169.254.1.1",
        "100.64.0.1",
        "0.0.0.0",
        "224.0.0.1",
        "255.255.255.255",
        "240.0.0.1",
        "168.63.129.16",
        "192.0.2.1",
        "198.18.0.1",
        "::",
        "::1",
        "fe80::1",
        "fd00::1",
        "ff02::1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "::127.0.0.1",
        "::10.0.0.1",
        "64:ff9b::10.0.0.1",
        "64:ff9b::169.254.169.254",
        "64:ff9b:1::8.8.8.8",
        "2002:a00:1::",
        "2002:7f00:1::",
        "2001:0:808:808::80ff:fffe",
        "2001:db8::1",
        "fd00:ec2::254",
    };
    for (size_t i = 0; i < COUNT(rebound); i++) {
        decision = ask(policy, rebound[i], 443, "api.example.com", NULL);
        if (decision.allowed)
            fail_msg("%s is open", rebound[i]);
        struct cb_address of = address(rebound[i]);
        assert_false(cb_decide_answer(policy, "api.example.com", &of).allowed);
    }
    /* NAT64 of a public address is how IPv6-only machines reach it. */
    assert_true(allowed(policy, "64:ff9b::93.184.216.34", 443, "api.example.com"));
    cellblock_policy_free(policy);
}

/* The heart of it: which ranges does a cidr rule open? */
static void test_a_range_opens_only_to_a_rule_that_names_it(void **state)
{
    static const struct {
        const char *rule, *address;
        bool open;
    } table[] = {
        {"0.0.0.0/0", "8.8.8.8", true},
        {"0.0.0.0/0", "10.0.0.1", false},
        {"0.0.0.0/0", "127.0.0.1", false},
        {"0.0.0.0/0", "169.254.169.254", false},
        {"0.0.0.0/0", "168.63.129.16", false},
        {"0.0.0.0/0", "0.0.0.0", false},
        {"0.0.0.0/0", "255.255.255.255", false},
        {"0.0.0.0/0", "::ffff:8.8.8.8", true},
        {"0.0.0.0/0", "::ffff:127.0.0.1", false},
        {"0.0.0.0/1", "10.0.0.1", false},
        {"10.0.0.0/7", "10.0.0.1", false},
        {"10.0.0.0/7", "11.0.0.1", true},
        {"10.0.0.0/8", "10.0.0.1", true},
        {"10.1.0.0/16", "10.1.255.255", true},
        {"10.1.0.0/16", "10.2.0.0", false},
        {"10.1.2.3", "10.1.2.3", true},
        {"172.16.0.0/12", "172.31.0.1", true},
        {"172.0.0.0/8", "172.16.0.1", false},
        {"172.0.0.0/8", "172.32.0.1", true},
        {"192.168.0.0/16", "192.168.3.4", true},
        {"192.0.0.0/8", "192.168.3.4", false},
        {"169.254.0.0/16", "169.254.1.1", true},
        {"169.254.0.0/16", "169.254.169.254", false},
        {"169.254.169.0/24", "169.254.169.254", false},
        {"169.254.169.254", "169.254.169.254", true},
        {"100.64.0.0/10", "100.64.0.1", true},
        {"100.64.0.0/10", "100.100.100.200", false},
        {"168.63.0.0/16", "168.63.1.1", true},
        {"168.63.0.0/16", "168.63.129.16", false},
        {"224.0.0.0/4", "239.1.2.3", true},
        {"240.0.0.0/4", "255.255.255.255", false},
        {"240.0.0.0/4", "255.255.255.254", true},
        {"203.0.113.9", "203.0.113.9", true},
        {"126.0.0.0/7", "127.0.0.1", false},
        {"::/0", "2606:4700::1", true},
        {"::/0", "::1", false},
        {"::/0", "::", false},
        {"::/0", "fd00::1", false},
        {"::/0", "fe80::1", false},
        {"::/0", "200::1", false},
        {"::/0", "64:ff9b::8.8.8.8", true},
        {"::/0", "64:ff9b::10.0.0.1", false},
        {"::/0", "::ffff:8.8.8.8", false}, /* that is IPv4 */
        {"::/64", "::1", false},
        {"fc00::/7", "fd12::1", true},
        {"fc00::/7", "fd00:ec2::254", false},
        {"fd00:ec2::/32", "fd00:ec2::254", false},
        {"fd00:ec2::254", "fd00:ec2::254", true},
        {"fe80::/10", "fe80::1", true},
        {"fe80::/10", "fe80::a9fe:a9fe", false},
        {"ff00::/8", "ff02::1", true},
        {"200::/7", "200::1", true},
        {"2000::/3", "2001:db8::1", false},
        {"2001:db8::/32", "2001:db8::1", true},
        /* What an address carries has to be named as well. */
        {"64:ff9b::/96", "64:ff9b::8.8.8.8", true},
        {"64:ff9b::/96", "64:ff9b::10.0.0.1", false},
        {"64:ff9b::a00:0/104", "64:ff9b::10.0.0.1", true},
        {"64:ff9b::a00:0/103", "64:ff9b::10.0.0.1", false},
        {"64:ff9b::a9fe:0/112", "64:ff9b::169.254.1.1", true},
        {"64:ff9b::a9fe:0/112", "64:ff9b::169.254.169.254", false},
        {"64:ff9b::a9fe:a9fe", "64:ff9b::169.254.169.254", true},
        {"64:ff9b::/96", "64:ff9b::127.0.0.1", false},
        {"64:ff9b:1::/48", "64:ff9b:1::8.8.8.8", true},
        {"64:ff9b:1::/48", "64:ff9b:1::10.0.0.1", false},
        {"64:ff9b:1::a00:0/104", "64:ff9b:1::10.0.0.1", true},
        {"2002::/16", "2002:808:808::1", true},
        {"2002::/16", "2002:a00:1::1", false},
        {"2002:a00::/24", "2002:a00:1::1", true},
        {"2002::/16", "2002:7f00:1::1", false},
        {"2001::/32", "2001:0:808:808:0:0:f7f7:f7f7", true},
        {"2001::/32", "2001:0:a00:1:0:0:f7f7:f7f7", false},
        {"2001:0:a00::/40", "2001:0:a00:1:0:0:f7f7:f7f7", true},
        {"2001:0:808:808::/64", "2001:0:808:808:0:0:f5ff:fffe", false},
        {"2001:0:808:808:0:0:f500:0/104", "2001:0:808:808:0:0:f5ff:fffe", true},
        {"::/96", "::8.8.8.8", true},
        {"::/96", "::10.0.0.1", false},
        {"::a00:0/104", "::10.0.0.1", true},
        {"10.0.0.0/8", "64:ff9b::10.0.0.1", false}, /* another address, by another way */
    };
    for (size_t i = 0; i < COUNT(table); i++) {
        char text[256];
        snprintf(text, sizeof text, NET(CIDR("%s", "443")), table[i].rule);
        cellblock_policy *policy = load(text);
        struct cb_net_decision decision = ask(policy, table[i].address, 443, NULL, NULL);
        if (decision.allowed != table[i].open)
            fail_msg("%s is %s by %s", table[i].address, decision.allowed ? "open" : "closed", table[i].rule);
        assert_false(allowed(policy, table[i].address, 444, NULL));
        cellblock_policy_free(policy);
    }
}

static void test_loopback_rules(void **state)
{
    cellblock_policy *policy = load(NET("{\"loopback\": 6379}," CIDR("0.0.0.0/0", "80") "," CIDR("::/0", "80")));
    static const char *const loopback[] = {"127.0.0.1", "127.0.0.53", "::1", "::ffff:127.0.0.1"};
    for (size_t i = 0; i < COUNT(loopback); i++) {
        assert_true(allowed(policy, loopback[i], 6379, NULL));
        assert_false(allowed(policy, loopback[i], 6380, NULL));
        assert_false(allowed(policy, loopback[i], 80, NULL));
    }
    static const char *const others[] = {
        "8.8.8.8", "10.0.0.1", "0.0.0.0", "::", "::127.0.0.1", "64:ff9b::127.0.0.1", "2002:7f00:1::1"};
    for (size_t i = 0; i < COUNT(others); i++)
        assert_false(allowed(policy, others[i], 6379, NULL));
    /* No name leads there. */
    struct cb_address of = address("127.0.0.1");
    assert_false(cb_decide_answer(policy, "a.example.com", &of).allowed);
    cellblock_policy_free(policy);
}

static void test_names(void **state)
{
    cellblock_policy *policy = load(NET(HOST("api.example.com", "443") "," HOST("*.example.org", "1") "," CIDR(
        "10.1.0.0/16", "5432") ",{\"loopback\": 53}"));
    static const char *const fine[] = {"api.example.com", "API.EXAMPLE.COM.", "a.example.org", "a.b.c.example.org."};
    for (size_t i = 0; i < COUNT(fine); i++) {
        struct cb_net_decision decision = cb_decide_name(policy, fine[i]);
        assert_true(decision.allowed && decision.rule && decision.name == fine[i]);
    }
    static const char *const refused[] = {"example.com",
                                          "example.org",
                                          "xapi.example.com",
                                          "api.example.com.evil.net",
                                          "evil-example.org",
                                          "10.1.2.3",
                                          "localhost",
                                          "",
                                          ".",
                                          "a_b.example.org",
                                          "a\\.example.org",
                                          "*.example.org"};
    for (size_t i = 0; i < COUNT(refused); i++)
        assert_false(cb_decide_name(policy, refused[i]).allowed);
    struct cb_net_decision decision = cb_decide_name(policy, "Other.example.COM");
    assert_int_equal(decision.suggest.kind, CB_NET_HOST);
    assert_string_equal(decision.suggest.what, "other.example.com");
    assert_int_equal(decision.suggest.port, 443);
    assert_int_equal(cb_decide_name(policy, "a_b.example.org").suggest.kind, 0);

    /* Answers: public, or in a range that a cidr rule names. */
    struct cb_address public = address("93.184.216.34"), named = address("10.1.2.3"), other = address("10.2.2.3");
    assert_true(cb_decide_answer(policy, "api.example.com", &public).allowed);
    assert_true(cb_decide_answer(policy, "API.example.com.", &named).allowed);
    decision = cb_decide_answer(policy, "api.example.com", &other);
    assert_int_equal(decision.refusal, CB_NET_RANGE);
    assert_int_equal(decision.range.class, CB_CLASS_PRIVATE);
    assert_false(cb_decide_answer(policy, "other.example.com", &public).allowed);
    cellblock_policy_free(policy);
}

static void test_further_layers_take_away(void **state)
{
    cellblock_policy *policy = load(NET(HOST("*.example.com", "443, 80") "," CIDR("10.0.0.0/8", "\"1-65535\"")));
    tighten(policy, P("\"files\": []")); /* no opinion */
    assert_true(allowed(policy, "93.184.216.34", 80, "a.example.com"));
    tighten(policy, NET(HOST("a.example.com", "443") "," HOST("new.net", "443") "," CIDR("10.1.0.0/16", "5432")));
    assert_true(allowed(policy, "93.184.216.34", 443, "a.example.com"));
    assert_true(allowed(policy, "10.1.2.3", 5432, NULL));
    static const struct {
        const char *address;
        uint16_t port;
        const char *name;
    } gone[] = {{"93.184.216.34", 80, "a.example.com"},
                {"93.184.216.34", 443, "b.example.com"},
                {"10.1.2.3", 5433, NULL},
                {"10.2.2.3", 5432, NULL}};
    for (size_t i = 0; i < COUNT(gone); i++) {
        struct cb_net_decision decision = ask(policy, gone[i].address, gone[i].port, gone[i].name, NULL);
        assert_int_equal(decision.refusal, CB_NET_TIGHTENED);
        assert_string_equal(decision.document, "other");
        assert_int_equal(decision.suggest.kind, 0);
        assert_string_equal(decision.rule->origin.document, "p");
    }
    assert_int_equal(ask(policy, "93.184.216.34", 443, "new.net", NULL).refusal, CB_NET_NO_RULE);
    assert_true(cb_decide_name(policy, "a.example.com").allowed);
    assert_int_equal(cb_decide_name(policy, "b.example.com").refusal, CB_NET_TIGHTENED);
    assert_int_equal(cb_decide_name(policy, "new.net").refusal, CB_NET_NO_RULE);
    tighten(policy, P("\"network\": []"));
    assert_false(allowed(policy, "93.184.216.34", 443, "a.example.com"));
    assert_false(cb_decide_name(policy, "a.example.com").allowed);
    cellblock_policy_free(policy);

    /* A wide rule of a further layer opens no range there, and so takes it away. */
    policy = load(NET(CIDR("10.0.0.0/8", "1")));
    tighten(policy, NET(CIDR("0.0.0.0/0", "1")));
    assert_false(allowed(policy, "10.0.0.1", 1, NULL));
    cellblock_policy_free(policy);

    /* Two layers can't be satisfied by two different names. */
    policy = load(NET(HOST("a.example.com", "443") "," HOST("b.example.com", "80")));
    tighten(policy, NET(HOST("a.example.com", "80") "," HOST("b.example.com", "443")));
    assert_false(ask(policy, "93.184.216.34", 443, "a.example.com", "b.example.com").allowed);
    assert_false(ask(policy, "93.184.216.34", 80, "a.example.com", "b.example.com").allowed);
    cellblock_policy_free(policy);

    /* By name in one layer and by address in another is the same connection. */
    policy = load(NET(HOST("a.example.com", "443")));
    tighten(policy, NET(CIDR("93.184.0.0/16", "443")));
    assert_true(allowed(policy, "93.184.216.34", 443, "a.example.com"));
    assert_false(allowed(policy, "93.185.216.34", 443, "a.example.com"));
    cellblock_policy_free(policy);
}

static void test_reasons_and_suggestions(void **state)
{
    cellblock_policy *policy = load(NET(HOST("api.example.com", "443")));
    static const struct {
        const char *address;
        uint16_t port;
        const char *name;
        enum cb_net_refusal refusal;
        enum cb_net_kind kind;
        const char *what, *reason;
    } table[] = {
        {"93.184.216.34", 443, NULL, CB_NET_NO_RULE, CB_NET_CIDR, "93.184.216.34", "is in no rule"},
        {"93.184.216.34", 80, "api.example.com", CB_NET_NO_RULE, CB_NET_HOST, "api.example.com", "is in no rule"},
        {"::ffff:9.9.9.9", 443, NULL, CB_NET_NO_RULE, CB_NET_CIDR, "9.9.9.9", "is in no rule"},
        {"10.0.0.1", 443, "api.example.com", CB_NET_RANGE, CB_NET_CIDR, "10.0.0.1",
         "is an address of the private range, which only a \"cidr\" rule inside that range opens"},
        {"64:ff9b::a00:1", 443, "api.example.com", CB_NET_RANGE, CB_NET_CIDR, "64:ff9b::a00:1",
         "carries an address of the private range, which only a \"cidr\" rule inside that range opens"},
        {"169.254.169.254", 443, "api.example.com", CB_NET_RANGE, 0, "",
         "is an address of the metadata range, which only a \"cidr\" rule inside that range opens"},
        {"127.0.0.1", 443, NULL, CB_NET_NO_RULE, CB_NET_LOOPBACK, "", "is in no rule"},
        {"0.0.0.0", 443, NULL, CB_NET_NEVER, 0, "", "is an address of the unspecified range, which no rule opens"},
        {"64:ff9b::7f00:1", 443, NULL, CB_NET_NEVER, 0, "",
         "carries an address of the loopback range, which no rule opens"},
        {"93.184.216.34", 0, NULL, CB_NET_NEVER, 0, "", "is nothing that a rule could name"},
    };
    for (size_t i = 0; i < COUNT(table); i++) {
        struct cb_net_decision decision = ask(policy, table[i].address, table[i].port, table[i].name, NULL);
        char reason[CB_NET_REASON];
        cb_net_reason(&decision, reason);
        assert_int_equal(decision.refusal, table[i].refusal);
        assert_string_equal(reason, table[i].reason);
        assert_int_equal(decision.suggest.kind, table[i].kind);
        assert_string_equal(decision.suggest.what, table[i].what);
        assert_int_equal(decision.suggest.port, table[i].kind ? table[i].port : 0);
    }
    struct cb_net_target strange = {.port = 443};
    assert_int_equal(cb_decide_connect(policy, &strange).refusal, CB_NET_NEVER);
    cellblock_policy_free(policy);
}

/* A suggestion, taken as it is, allows what was refused. */
static void test_suggestions_help(void **state)
{
    static const struct {
        const char *address, *name;
    } table[] = {{"93.184.216.34", NULL},       {"93.184.216.34", "b.example.com"},
                 {"10.0.0.1", "b.example.com"}, {"fd00::1", NULL},
                 {"127.0.0.1", NULL},           {"::1", NULL},
                 {"64:ff9b::a00:1", NULL},      {"2002:a00:1::", NULL},
                 {"224.0.0.1", NULL},           {"::ffff:8.8.8.8", NULL}};
    for (size_t i = 0; i < COUNT(table); i++) {
        cellblock_policy *policy = load(P("\"network\": []"));
        struct cb_net_suggestion suggest = ask(policy, table[i].address, 443, table[i].name, NULL).suggest;
        char rule[400], text[600];
        if (suggest.kind == CB_NET_LOOPBACK)
            snprintf(rule, sizeof rule, "{\"loopback\": %u}", suggest.port);
        else
            snprintf(rule, sizeof rule, "{\"%s\": \"%s\", \"ports\": [%u]}",
                     suggest.kind == CB_NET_HOST ? "host" : "cidr", suggest.what, suggest.port);
        snprintf(text, sizeof text, "{\"cellblock\": 1, \"network\": [%s]}", rule);
        cellblock_error *error = NULL;
        if (cb_policy_add_rules(policy, text, strlen(text), "more", &error) < 0)
            fail_msg("%s: %s", text, cellblock_error_message(error));
        assert_true(allowed(policy, table[i].address, 443, table[i].name));
        assert_int_equal(cellblock_policy_remove(policy, "more", NULL), 0);
        assert_false(allowed(policy, table[i].address, 443, table[i].name));
        cellblock_policy_free(policy);
    }
}

static int count_publish(const struct cb_publish_rule *rule, void *data)
{
    unsigned *sum = data;
    *sum += rule->port * 100000u + rule->as;
    return 0;
}

static void test_publish(void **state)
{
    cellblock_policy *policy = load(P("\"publish\": [{\"port\": 80, \"as\": 8080}, {\"port\": 81}]"));
    assert_true(cb_decide_publish(policy, 80, 8080).allowed);
    assert_false(cb_decide_publish(policy, 80, 80).allowed);
    assert_false(cb_decide_publish(policy, 81, 8080).allowed);
    assert_true(cb_decide_publish(policy, 81, 81).allowed);
    static const char more[] = "{\"cellblock\": 1, \"publish\": [{\"port\": 90, \"as\": 8080}]}";
    assert_int_equal(cellblock_policy_add_text(policy, more, strlen(more), "more", NULL), 0);
    assert_true(cb_decide_publish(policy, 90, 8080).allowed); /* the later document has the port of the host */
    assert_false(cb_decide_publish(policy, 80, 8080).allowed);
    unsigned sum = 0;
    assert_int_equal(cb_policy_publish_rules(policy, count_publish, &sum), 0);
    assert_int_equal(sum, 9008080 + 8100081);
    tighten(policy, P("\"network\": []"));
    assert_true(cb_decide_publish(policy, 81, 81).allowed);
    tighten(policy, P("\"publish\": [{\"port\": 90, \"as\": 8080}]"));
    assert_true(cb_decide_publish(policy, 90, 8080).allowed);
    assert_false(cb_decide_publish(policy, 81, 81).allowed);
    tighten(policy, P("\"publish\": []"));
    sum = 0;
    assert_int_equal(cb_policy_publish_rules(policy, count_publish, &sum), 0);
    assert_int_equal(sum, 0);
    cellblock_policy_free(policy);
}

static int count_sockets(const struct cb_socket_rule *rule, void *data)
{
    return ++*(int *)data == 10;
}

/* What the resolver does where nothing is a link. */
static void resolve(cellblock_policy *policy)
{
    for (size_t i = 0; i < policy->count; i++)
        for (size_t j = 0; j < policy->layers[i].count; j++)
            for (size_t k = 0; k < policy->layers[i].documents[j]->socket_count; k++) {
                struct cb_socket_rule *rule = &policy->layers[i].documents[j]->sockets[k];
                if (!rule->real && rule->path[0] == '/')
                    rule->real = strdup(rule->path);
            }
}

static void test_sockets(void **state)
{
    cellblock_policy *policy =
        load(P("\"sockets\": [{\"path\": \"/run/a\"}, {\"path\": \"/run/b\"}, {\"path\": \"~/c\"},"
               "{\"path\": \"/run/a\"}]"));
    assert_false(cb_decide_socket(policy, "/run/a").allowed); /* not before it is resolved */
    resolve(policy);
    assert_true(cb_decide_socket(policy, "/run/a").allowed);
    assert_false(cb_decide_socket(policy, "/run").allowed);
    assert_false(cb_decide_socket(policy, "/run/a/b").allowed);
    assert_false(cb_decide_socket(policy, "~/c").allowed);
    int count = 0;
    assert_int_equal(cb_policy_socket_rules(policy, count_sockets, &count), 0);
    assert_int_equal(count, 2);
    tighten(policy, P("\"sockets\": [{\"path\": \"/run/b\"}, {\"path\": \"/run/new\"}]"));
    resolve(policy);
    assert_false(cb_decide_socket(policy, "/run/a").allowed);
    assert_true(cb_decide_socket(policy, "/run/b").allowed);
    assert_false(cb_decide_socket(policy, "/run/new").allowed);
    tighten(policy, P("\"sockets\": []"));
    assert_false(cb_decide_socket(policy, "/run/b").allowed);
    cellblock_policy_free(policy);
}

/* ---- A property: a combination allows just what each part allows that has a say ---- */

static unsigned random_state = 1;

static unsigned pick(unsigned below)
{
    random_state = random_state * 1103515245 + 12345; /* the same sequence in every run */
    return (random_state >> 16) % below;
}

static const char *const names[] = {"a.example.com", "b.example.com", "c.b.example.com", "x.example.org", "other.net"};
static const char *const addresses[] = {"8.8.8.8",         "10.1.2.3", "10.2.2.3",  "127.0.0.1",
                                        "169.254.169.254", "::1",      "fd00::1",   "2606:4700::1",
                                        "64:ff9b::a00:1",  "0.0.0.0",  "100.64.0.1"};

static cellblock_policy *random_policy(void)
{
    static const char *const hosts[] = {"a.example.com", "*.example.com", "*.b.example.com", "*.example.org"};
    static const char *const ranges[] = {"0.0.0.0/0", "10.0.0.0/8", "10.1.0.0/16",  "8.8.8.8",        "169.254.0.0/16",
                                         "::/0",      "fc00::/7",   "64:ff9b::/96", "169.254.169.254"};
    char text[2048];
    int at = sprintf(text, "{\"cellblock\":1,\"extends\":[]");
    if (pick(8)) {
        at += sprintf(text + at, ",\"network\":[");
        for (unsigned i = pick(10); i > 0; i--) {
            unsigned first = 1 + pick(2), kind = pick(5);
            if (kind == 0)
                at += sprintf(text + at, "{\"loopback\":%u},", first);
            else if (kind < 3)
                at += sprintf(text + at, "{\"host\":\"%s\",\"ports\":\"%u-%u\"},", hosts[pick(4)], first,
                              first + pick(5));
            else
                at += sprintf(text + at, "{\"cidr\":\"%s\",\"ports\":\"%u-%u\",\"protocol\":\"%s\"},", ranges[pick(9)],
                              first, first + pick(5), pick(4) ? "tcp" : "udp");
        }
        at += sprintf(text + at, "]");
    }
    sprintf(text + at, "}");
    return load(text);
}

static void test_tightening_only_tightens(void **state)
{
    unsigned open = 0;
    for (int round = 0; round < 2000; round++) {
        cellblock_policy *first = random_policy(), *other = random_policy(), *both = NULL;
        assert_int_equal(cb_policy_copy(first, &both, NULL), 0);
        assert_int_equal(cellblock_policy_tighten(both, other, NULL), 0);
        bool opinion = other->layers[0].documents[0]->network_given;
        for (int i = 0; i < 20; i++) {
            const char *name = pick(2) ? names[pick(5)] : NULL;
            struct cb_net_target target = {.protocol = pick(4) ? CB_PROTOCOL_TCP : CB_PROTOCOL_UDP,
                                           .address = address(addresses[pick(COUNT(addresses))]),
                                           .port = (uint16_t)(1 + pick(5)),
                                           .names = &name,
                                           .name_count = name != NULL};
            bool one = cb_decide_connect(first, &target).allowed, two = cb_decide_connect(other, &target).allowed;
            assert_int_equal(cb_decide_connect(both, &target).allowed, one && (!opinion || two));
            open += one && opinion && two;
            if (name)
                assert_int_equal(cb_decide_name(both, name).allowed,
                                 cb_decide_name(first, name).allowed &&
                                     (!opinion || cb_decide_name(other, name).allowed));
            if (name && cb_decide_answer(both, name, &target.address).allowed)
                assert_true(cb_decide_name(both, name).allowed);
        }
        cellblock_policy_free(first);
        cellblock_policy_free(other);
        cellblock_policy_free(both);
    }
    assert_true(open > 100); /* or else nothing was tested */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_is_allowed_by_default),
        cmocka_unit_test(test_host_rules),
        cmocka_unit_test(test_a_range_opens_only_to_a_rule_that_names_it),
        cmocka_unit_test(test_loopback_rules),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_further_layers_take_away),
        cmocka_unit_test(test_reasons_and_suggestions),
        cmocka_unit_test(test_suggestions_help),
        cmocka_unit_test(test_publish),
        cmocka_unit_test(test_sockets),
        cmocka_unit_test(test_tightening_only_tightens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
