/* Reading the rules on what can be reached: what is taken, what is refused and where, and that nothing of it is lost by
 * copying, showing, packing, adding and removing. */
#include "base/error.h"
#include "base/frame.h"
#include "policy/network.h"
#include "policy/pack.h"
#include "policy/policy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#define COUNT(table) (sizeof(table) / sizeof *(table))

/* The column of the first byte of the text is 32. */
#define P(text) "{\"cellblock\":1, \"extends\": [], " text "}"
#define NET(rule) P("\"network\": [" rule "]") /* the rule starts at column 44 */

static cellblock_policy *load(const char *text)
{
    cellblock_policy *policy = NULL;
    cellblock_error *error = NULL;
    if (cellblock_policy_load_text(text, strlen(text), "p", &policy, &error) < 0)
        fail_msg("%s: %s", text, cellblock_error_message(error));
    return policy;
}

static const struct cb_document *document(const cellblock_policy *policy)
{
    return policy->layers[0].documents[0];
}

static void expect_refusals(const char *const (*table)[2], size_t count)
{
    for (size_t i = 0; i < count; i++) {
        cellblock_policy *policy = NULL;
        cellblock_error *error = NULL;
        if (cellblock_policy_load_text(table[i][0], strlen(table[i][0]), "p", &policy, &error) == 0)
            fail_msg("accepted: %s", table[i][0]);
        assert_int_equal(cellblock_error_code(error), CELLBLOCK_ERROR_POLICY);
        if (strcmp(cellblock_error_message(error), table[i][1]) != 0)
            fail_msg("for %s\n  got      %s\n  expected %s", table[i][0], cellblock_error_message(error), table[i][1]);
        cellblock_error_free(error);
    }
}

static void test_rules_are_read(void **state)
{
    cellblock_policy *policy =
        load(P("\n\"network\": [\n"
               "{\"host\": \"API.example.com.\", \"ports\": [443, \"8000-8100\"], \"why\": \"the model\"},\n"
               "{\"ports\": 5432, \"cidr\": \"10.1.0.0/16\", \"protocol\": \"udp\"},\n"
               "{\"loopback\": 6379}, {\"loopback\": [1, \"3-65535\"]},\n"
               "{\"host\": \"*.example.org\", \"ports\": \"1-65535\"}],\n"
               "\"sockets\": [{\"path\": \"/run//x/./s\", \"why\": \"s\"}, {\"path\": \"~/s\"}],\n"
               "\"publish\": [{\"port\": 8080}, {\"port\": 80, \"as\": 18080, \"why\": \"w\"}],\n"
               "\"limits\": {\"network_bytes\": \"1G\", \"connections\": 100}"));
    const struct cb_document *one = document(policy);
    assert_true(one->network_given && one->sockets_given && one->publish_given);
    assert_int_equal(one->network_count, 5);
    const struct cb_net_rule *rule = one->network;
    assert_int_equal(rule->kind, CB_NET_HOST);
    assert_string_equal(rule->host, "api.example.com");
    assert_false(rule->wildcard);
    assert_int_equal(rule->protocol, CB_PROTOCOL_TCP);
    assert_int_equal(rule->port_count, 2);
    assert_int_equal(rule->ports[0].first, 443);
    assert_int_equal(rule->ports[0].last, 443);
    assert_int_equal(rule->ports[1].first, 8000);
    assert_int_equal(rule->ports[1].last, 8100);
    assert_string_equal(rule->why, "the model");
    assert_string_equal(rule->origin.document, "p");
    assert_int_equal(rule->origin.line, 3);
    rule++;
    assert_int_equal(rule->kind, CB_NET_CIDR);
    assert_int_equal(rule->protocol, CB_PROTOCOL_UDP);
    assert_int_equal(rule->prefix.length, 16);
    assert_int_equal(rule->ports[0].first, 5432);
    rule++;
    assert_int_equal(rule->kind, CB_NET_LOOPBACK);
    assert_int_equal(rule->ports[0].last, 6379);
    rule++;
    assert_int_equal(rule->port_count, 2);
    assert_int_equal(rule->ports[1].last, 65535);
    rule++;
    assert_true(rule->wildcard);
    assert_string_equal(rule->host, "example.org");

    assert_int_equal(one->socket_count, 2);
    assert_string_equal(one->sockets[0].path, "/run/x/s");
    assert_string_equal(one->sockets[1].path, "~/s");
    assert_int_equal(one->publish_count, 2);
    assert_int_equal(one->publish[0].as, 8080);
    assert_int_equal(one->publish[1].port, 80);
    assert_int_equal(one->publish[1].as, 18080);
    assert_int_equal(cb_decide_limit(policy, CB_LIMIT_NETWORK_BYTES).value, 1 << 30);
    assert_int_equal(cb_decide_limit(policy, CB_LIMIT_CONNECTIONS).value, 100);
    cellblock_policy_free(policy);

    policy = load(P("\"network\": []"));
    assert_true(document(policy)->network_given);
    assert_false(cb_policy_has_network(policy));
    cellblock_policy_free(policy);
}

static void test_shape_is_strict(void **state)
{
    static const char *const table[][2] = {
        {P("\"network\": true"), "p:1:43: network must be a list of objects, not true"},
        {P("\"network\": {}"), "p:1:43: network must be a list of objects, not an object"},
        {NET("\"api.example.com:443\""), "p:1:44: network must be a list of objects, not a string"},
        {NET("{}"), "p:1:44: network[0] needs one of \"host\", \"cidr\" or \"loopback\""},
        {NET("{\"ports\": [443]}"), "p:1:44: network[0] needs one of \"host\", \"cidr\" or \"loopback\""},
        {NET("{\"hots\": \"a.b\"}"), "p:1:45: unknown key \"hots\" in network[0], did you mean \"host\"?"},
        {NET("{\"host\": \"a.b\", \"port\": 443}"),
         "p:1:60: unknown key \"port\" in network[0], did you mean \"ports\"?"},
        {NET("{\"host\": \"a.b\", \"host\": \"a.b\", \"ports\": 1}"), "p:1:60: network[0].host is there twice"},
        {NET("{\"host\": \"a.b\", \"ports\": [443], \"cidr\": \"1.2.3.4\"}"),
         "p:1:76: network[0] has both \"host\" and \"cidr\": write two rules"},
        {NET("{\"loopback\": 1, \"host\": \"a.b\", \"ports\": [443]}"),
         "p:1:45: network[0] has both \"host\" and \"loopback\": write two rules"},
        {NET("{\"loopback\": 1, \"ports\": [443]}"),
         "p:1:60: network[0].ports does not go with \"loopback\": the ports stand in \"loopback\" itself"},
        {NET("{\"host\": \"a.b\"}"),
         "p:1:44: network[0].ports is missing: name the ports, such as [443]; \"1-65535\" is every port"},
        {NET("{\"cidr\": \"1.2.3.4\", \"protocol\": \"tcp\"}"),
         "p:1:44: network[0].ports is missing: name the ports, such as [443]; \"1-65535\" is every port"},
        {NET("{\"host\": \"a.b\", \"ports\": [1], \"protocol\": \"tpc\"}"),
         "p:1:86: network[0].protocol: \"tpc\" is not known, did you mean \"tcp\"?"},
        {NET("{\"host\": \"a.b\", \"ports\": [1], \"protocol\": \"anything\"}"),
         "p:1:86: network[0].protocol: \"anything\" is not one of \"tcp\", \"udp\""},
        {NET("{\"host\": \"a.b\", \"ports\": [1], \"why\": 1}"),
         "p:1:81: network[0].why must be a string, not a number"},
        {NET("{\"host\": 1, \"ports\": [1]}"), "p:1:53: network[0].host must be a string, not a number"},
        {NET("{\"cidr\": [], \"ports\": [1]}"), "p:1:53: network[0].cidr must be a string, not a list"},
    };
    expect_refusals(table, COUNT(table));
}

static void test_values_are_strict(void **state)
{
    static const char *const table[][2] = {
        {NET("{\"host\": \"a.b\", \"ports\": []}"),
         "p:1:69: network[0].ports is empty: name the ports, such as [443]; \"1-65535\" is every port"},
        {NET("{\"host\": \"a.b\", \"ports\": null}"),
         "p:1:69: network[0].ports must be a port, a range such as \"8000-8100\", or a list of them, not null"},
        {NET("{\"host\": \"a.b\", \"ports\": [443, [80]]}"),
         "p:1:75: network[0].ports must be a port, a range such as \"8000-8100\", or a list of them, not a list"},
        {NET("{\"host\": \"a.b\", \"ports\": [0]}"),
         "p:1:70: network[0].ports: 0 is not a port: they are numbers from 1 to 65535"},
        {NET("{\"host\": \"a.b\", \"ports\": [65536]}"),
         "p:1:70: network[0].ports: 65536 is not a port: they are numbers from 1 to 65535"},
        {NET("{\"host\": \"a.b\", \"ports\": [-1]}"),
         "p:1:70: network[0].ports: -1 is not a port: they are numbers from 1 to 65535"},
        {NET("{\"host\": \"a.b\", \"ports\": [80.0]}"),
         "p:1:70: network[0].ports: 80.0 is not a port: they are numbers from 1 to 65535"},
        {NET("{\"host\": \"a.b\", \"ports\": [8e1]}"),
         "p:1:70: network[0].ports: 8e1 is not a port: they are numbers from 1 to 65535"},
        {NET("{\"host\": \"a.b\", \"ports\": [\"443\"]}"),
         "p:1:70: network[0].ports: \"443\" is a single port: write it as a number, without quotes"},
        {NET("{\"host\": \"a.b\", \"ports\": [\"https\"]}"),
         "p:1:70: network[0].ports: \"https\" is not a range of ports: write one such as \"8000-8100\""},
        {NET("{\"host\": \"a.b\", \"ports\": [\"9-8\"]}"),
         "p:1:70: network[0].ports: \"9-8\" is a range of ports that ends before it begins"},
        {NET("{\"host\": \"a.b\", \"ports\": [\"0-65535\"]}"),
         "p:1:70: network[0].ports: \"0-65535\" is not a range of ports: write one such as \"8000-8100\", from 1 to "
         "65535"},
        {NET("{\"host\": \"a.b\", \"ports\": [\"1-65536\"]}"),
         "p:1:70: network[0].ports: \"1-65536\" is not a range of ports: write one such as \"8000-8100\", from 1 to "
         "65535"},
        {NET("{\"host\": \"a.b\", \"ports\": [\"1-2-3\"]}"),
         "p:1:70: network[0].ports: \"1-2-3\" is not a range of ports: write one such as \"8000-8100\", from 1 to "
         "65535"},
        {NET("{\"loopback\": true}"), "p:1:57: network[0].loopback must be a port, a range such as \"8000-8100\", or a "
                                      "list of them, not true"},
        {NET("{\"host\": \"a_b\", \"ports\": [1]}"),
         "p:1:53: network[0].host: \"a_b\" holds something else than letters, digits, hyphens and dots"},
        {NET("{\"host\": \"127.1\", \"ports\": [1]}"),
         "p:1:53: network[0].host: \"127.1\" is not the name of a host: software takes it for an address"},
        {NET("{\"host\": \"a\\u0001b\", \"ports\": [1]}"),
         "p:1:53: network[0].host: \"a\\x01b\" holds a control character"},
        {NET("{\"host\": \"a\\u0000b\", \"ports\": [1]}"), "p:1:55: a string can't hold a NUL character"},
        {NET("{\"cidr\": \"010.0.0.1\", \"ports\": [1]}"),
         "p:1:53: network[0].cidr: \"010.0.0.1\" is not an address: write one such as \"203.0.113.9\" or "
         "\"2001:db8::9\", or a range such as \"10.1.0.0/16\""},
        {NET("{\"cidr\": \"10.0.0.1/8\", \"ports\": [1]}"),
         "p:1:53: network[0].cidr: \"10.0.0.1/8\" has bits set beyond its length, did you mean \"10.0.0.0/8\"?"},
        {NET("{\"cidr\": \"127.0.0.1\", \"ports\": [1]}"),
         "p:1:53: network[0].cidr: \"127.0.0.1\" is loopback, which \"cidr\" does not open"},
        {NET("{\"cidr\": \"::1/128\", \"ports\": [1]}"),
         "p:1:53: network[0].cidr: \"::1/128\" is loopback, which \"cidr\" does not open"},
        {NET("{\"cidr\": \"::ffff:127.0.0.0/104\", \"ports\": [1]}"),
         "p:1:53: network[0].cidr: \"::ffff:127.0.0.0/104\" is loopback, which \"cidr\" does not open"},
        {NET("{\"cidr\": \"0.0.0.0/8\", \"ports\": [1]}"),
         "p:1:53: network[0].cidr: \"0.0.0.0/8\" is an address that no rule opens"},
        {NET("{\"cidr\": \"64:ff9b::127.0.0.1\", \"ports\": [1]}"),
         "p:1:53: network[0].cidr: \"64:ff9b::127.0.0.1\" is an address that no rule opens"},
        {P("\"sockets\": [{}]"), "p:1:44: sockets[0].path is missing"},
        {P("\"sockets\": [{\"path\": \"run/s\"}]"),
         "p:1:53: sockets[0].path: \"run/s\" is relative: write the path of a socket from \"/\" or \"~/\""},
        {P("\"sockets\": [{\"path\": \"/run/\"}]"),
         "p:1:53: sockets[0].path: \"/run/\" names a directory, not a socket"},
        {P("\"sockets\": [{\"path\": \"~\"}]"), "p:1:53: sockets[0].path: \"~\" names a directory, not a socket"},
        {P("\"sockets\": [{\"path\": \"/run/*\"}]"), "p:1:53: sockets[0].path: \"/run/*\" holds a glob: globs are not "
                                                     "supported in enforcement, name the directory instead"},
        {P("\"sockets\": [{\"path\": \"/s\", \"access\": \"read\"}]"), "p:1:59: unknown key \"access\" in sockets[0]"},
        {P("\"publish\": [8080]"), "p:1:44: publish must be a list of objects, not a number"},
        {P("\"publish\": [{\"as\": 1}]"), "p:1:44: publish[0].port is missing"},
        {P("\"publish\": [{\"port\": \"8080\"}]"),
         "p:1:53: publish[0].port must be the number of a port, not a string"},
        {P("\"publish\": [{\"port\": 0}]"),
         "p:1:53: publish[0].port: 0 is not a port: they are numbers from 1 to 65535"},
        {P("\"publish\": [{\"port\": 80}, {\"port\": 81, \"as\": 80}]"),
         "p:1:58: publish[1]: the port 80 of the host is there twice"},
        {P("\"limits\": {\"connections\": 0}"), "p:1:58: limits.connections must be at least 1"},
        {P("\"limits\": {\"network_bytes\": 0}"), "p:1:60: limits.network_bytes must be at least 1 bytes"},
    };
    expect_refusals(table, COUNT(table));
}

static void test_hints(void **state)
{
    static const char *const table[][2] = {
        {NET("{\"host\": \"0x7f.1\", \"ports\": [1]}"), "cidr"},
        {NET("{\"host\": \"localhost\", \"ports\": [1]}"), "loopback"},
        {NET("{\"host\": \"*.com\", \"ports\": [1]}"), "two parts"},
        {NET("{\"cidr\": \"127.0.0.1\", \"ports\": [1]}"), "{\"loopback\": 6379}"},
    };
    for (size_t i = 0; i < COUNT(table); i++) {
        cellblock_policy *policy = NULL;
        cellblock_error *error = NULL;
        assert_int_equal(cellblock_policy_load_text(table[i][0], strlen(table[i][0]), "p", &policy, &error), -1);
        assert_non_null(cellblock_error_hint(error));
        assert_non_null(strstr(cellblock_error_hint(error), table[i][1]));
        cellblock_error_free(error);
    }
}

static const char everything[] =
    P("\"network\": [{\"host\": \"*.Bücher.example\", \"ports\": [443, \"1-2\"], \"why\": \"w\"},"
      "{\"cidr\": \"::ffff:10.0.0.0/104\", \"ports\": 1, \"protocol\": \"udp\"}, {\"loopback\": 3}],"
      "\"sockets\": [{\"path\": \"~/s\", \"why\": \"x\"}], \"publish\": [{\"port\": 1, \"as\": 2, \"why\": \"y\"}]");

static char *shown(const cellblock_policy *policy)
{
    char *text = NULL;
    assert_int_equal(cellblock_policy_json(policy, &text, NULL), 0);
    return text;
}

static void test_json(void **state)
{
    cellblock_policy *policy = load(everything), *other = load(P("\"network\": [{\"loopback\": 9}]"));
    assert_int_equal(cellblock_policy_tighten(policy, other, NULL), 0);
    char *text = shown(policy);
    json_t *json = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    json_t *network =
        json_pack("[{s:s, s:[i, s], s:s, s:s, s:s}, {s:s, s:[i], s:s, s:s}, {s:[i], s:s, s:s}, {s:[i], s:s, s:s, s:b}]",
                  "host", "*.xn--bcher-kva.example", "ports", 443, "1-2", "protocol", "tcp", "why", "w", "origin",
                  "p:1", "cidr", "10.0.0.0/8", "ports", 1, "protocol", "udp", "origin", "p:1", "loopback", 3,
                  "protocol", "tcp", "origin", "p:1", "loopback", 9, "protocol", "tcp", "origin", "p:1", "tightens", 1);
    assert_non_null(network);
    assert_true(json_equal(json_object_get(json, "network"), network));
    json_t *sockets = json_pack("[{s:s, s:s, s:s}]", "path", "~/s", "why", "x", "origin", "p:1");
    assert_true(json_equal(json_object_get(json, "sockets"), sockets));
    json_t *publish = json_pack("[{s:i, s:i, s:s, s:s}]", "port", 1, "as", 2, "why", "y", "origin", "p:1");
    assert_true(json_equal(json_object_get(json, "publish"), publish));
    json_decref(network);
    json_decref(sockets);
    json_decref(publish);
    json_decref(json);
    free(text);
    cellblock_policy_free(policy);
    cellblock_policy_free(other);
}

static void test_copies_and_packs(void **state)
{
    cellblock_policy *policy = load(everything), *copy = NULL, *unpacked = NULL;
    char *before = shown(policy);
    struct cb_text frame = {0};
    cb_policy_pack(policy, &frame);
    assert_int_equal(cb_policy_copy(policy, &copy, NULL), 0);
    cellblock_policy_free(policy);
    char *after = shown(copy);
    assert_string_equal(before, after);
    free(after);
    cellblock_policy_free(copy);

    struct cb_frame_reader reader = {frame.data, frame.length, false};
    assert_int_equal(cb_policy_unpack(&reader, &unpacked, NULL), 0);
    after = shown(unpacked);
    assert_string_equal(before, after);
    free(after);
    free(before);
    cb_text_free(&frame);
    cellblock_policy_free(unpacked);
}

static void add(cellblock_policy *policy, const char *text, const char *name)
{
    assert_int_equal(cellblock_policy_add_text(policy, text, strlen(text), name, NULL), 0);
}

static void test_documents_can_be_removed(void **state)
{
    cellblock_policy *policy = NULL;
    cellblock_error *error = NULL;
    assert_int_equal(cellblock_policy_new(&policy, NULL), 0);
    char *before = shown(policy);
    add(policy, "{\"cellblock\": 1, \"network\": [{\"loopback\": 1}]}", "one");
    char *with_one = shown(policy);
    add(policy, "{\"cellblock\": 1, \"network\": [{\"loopback\": 2}]}", "two\n");
    add(policy, "{\"cellblock\": 1, \"network\": [{\"loopback\": 3}]}", "one");
    assert_int_equal(cellblock_policy_remove(policy, "one", NULL), 0); /* the last of that name */
    assert_int_equal(cellblock_policy_remove(policy, "two\n", NULL), 0);
    char *after = shown(policy);
    assert_string_equal(after, with_one);
    free(after);
    assert_int_equal(cellblock_policy_remove(policy, "one", NULL), 0);
    after = shown(policy);
    assert_string_equal(after, before);
    static const char *const absent[] = {"one", "", "base", "profile base"};
    for (size_t i = 0; i < COUNT(absent); i++) {
        assert_int_equal(cellblock_policy_remove(policy, absent[i], &error), -1);
        assert_int_equal(cellblock_error_code(error), CELLBLOCK_ERROR_USAGE);
        cellblock_error_free(error);
        error = NULL;
    }
    /* What tightens stays. */
    cellblock_policy *other = load(P("\"network\": []"));
    assert_int_equal(cellblock_policy_tighten(policy, other, NULL), 0);
    assert_int_equal(cellblock_policy_remove(policy, "p", NULL), -1);
    assert_int_equal(policy->count, 2);
    /* And room is still as it has to be. */
    for (int i = 0; i < 20; i++)
        add(policy, "{\"cellblock\": 1}", "n");
    for (int i = 0; i < 20; i++)
        assert_int_equal(cellblock_policy_remove(policy, "n", NULL), 0);
    for (int i = 0; i < 20; i++)
        add(policy, "{\"cellblock\": 1}", "n");
    free(before);
    free(with_one);
    free(after);
    cellblock_policy_free(other);
    cellblock_policy_free(policy);
}

static void test_a_running_cell_gets_only_rules(void **state)
{
    cellblock_policy *policy = load(P("\"network\": []"));
    static const char fine[] = "{\"cellblock\": 1, \"network\": [{\"loopback\": 1}]}";
    assert_int_equal(cb_policy_add_rules(policy, fine, strlen(fine), "more", NULL), 0);
    assert_true(cb_policy_has_network(policy));
    assert_int_equal(cellblock_policy_remove(policy, "more", NULL), 0);
    assert_false(cb_policy_has_network(policy));
    static const char *const others[][2] = {
        {"\"extends\": []", "extends"},
        {"\"files\": []", "files"},
        {"\"workspace\": {\"path\": \"x\"}", "workspace"},
        {"\"workspace\": {\"mode\": \"scratch\"}", "workspace"},
        {"\"programs\": []", "programs"},
        {"\"sockets\": []", "sockets"},
        {"\"publish\": []", "publish"},
        {"\"limits\": {\"network_bytes\": 1}", "limits"},
        {"\"env\": {\"pass\": []}", "env"},
        {"\"env\": {\"set\": {}}", "env"},
        {"\"syscalls\": \"strict\"", "syscalls"},
        {"\"syscalls\": {\"deny\": []}", "syscalls"},
        {"\"isolation\": \"auto\"", "isolation"},
        {"\"accept_weaker\": []", "accept_weaker"},
    };
    for (size_t i = 0; i < COUNT(others); i++) {
        char text[256], expected[256];
        cellblock_error *error = NULL;
        snprintf(text, sizeof text, "{\"cellblock\": 1, %s, \"network\": []}", others[i][0]);
        snprintf(expected, sizeof expected,
                 "more: \"%s\" can't change while a cell runs: only \"network\" can",
                 others[i][1]);
        assert_int_equal(cb_policy_add_rules(policy, text, strlen(text), "more", &error), -1);
        assert_string_equal(cellblock_error_message(error), expected);
        cellblock_error_free(error);
        assert_int_equal(policy->layers[0].count, 1);
    }
    cellblock_policy_free(policy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rules_are_read),
        cmocka_unit_test(test_shape_is_strict),
        cmocka_unit_test(test_values_are_strict),
        cmocka_unit_test(test_hints),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_copies_and_packs),
        cmocka_unit_test(test_documents_can_be_removed),
        cmocka_unit_test(test_a_running_cell_gets_only_rules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
