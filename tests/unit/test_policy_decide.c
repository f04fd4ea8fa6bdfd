/* Deciding: precedence inside a layer, and that a further layer can only take away. */
#include "base/error.h"
#include "policy/policy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#define P(text) "{\"cellblock\":1, \"extends\": [], " text "}"
/* The same without "extends". */
#define Q(text) "{\"cellblock\":1, " text "}"

static cellblock_policy *load(const char *text)
{
    cellblock_policy *policy = NULL;
    cellblock_error *error = NULL;
    if (cellblock_policy_load_text(text, strlen(text), "p", &policy, &error) < 0)
        fail_msg("%s: %s", text, cellblock_error_message(error));
    return policy;
}

static void add(cellblock_policy *policy, const char *text)
{
    assert_int_equal(cellblock_policy_add_text(policy, text, strlen(text), "more", NULL), 0);
}

static void tighten(cellblock_policy *policy, const char *text)
{
    cellblock_policy *other = load(text);
    cellblock_error *error = NULL;
    if (cellblock_policy_tighten(policy, other, &error) < 0)
        fail_msg("%s", cellblock_error_message(error));
    cellblock_policy_free(other);
}

static void tighten_refused(cellblock_policy *policy, const char *text, const char *message)
{
    cellblock_policy *other = load(text);
    cellblock_error *error = NULL;
    size_t before = policy->count;
    assert_int_equal(cellblock_policy_tighten(policy, other, &error), -1);
    assert_string_equal(cellblock_error_message(error), message);
    assert_int_equal(policy->count, before);
    cellblock_error_free(error);
    cellblock_policy_free(other);
}

/* What the resolver does where nothing is a link: absolute paths stand for themselves. */
static void resolve(cellblock_policy *policy)
{
    for (size_t i = 0; i < policy->count; i++)
        for (size_t j = 0; j < policy->layers[i].count; j++) {
            struct cb_document *document = policy->layers[i].documents[j];
            for (size_t k = 0; k < document->file_count; k++)
                if (!document->files[k].real && document->files[k].path[0] == '/')
                    document->files[k].real = strdup(document->files[k].path);
        }
}

#define RULE(path, access) "{\"path\":\"" path "\",\"access\":\"" access "\"}"

static void test_most_specific_path_wins(void **state)
{
    cellblock_policy *policy = load(P("\"files\": [" RULE("/a/b", "write") "," RULE("/a", "read") "," RULE(
        "/a/b/c", "none") "," RULE("rel", "write") "," RULE("/a/b/c/d", "read") "]"));
    static const struct {
        const char *path;
        enum cb_access access;
        const char *rule;
    } table[] = {
        {"/", CB_ACCESS_NONE, NULL},          {"/a", CB_ACCESS_READ, "/a"},
        {"/ab", CB_ACCESS_NONE, NULL},        {"/a/x", CB_ACCESS_READ, "/a"},
        {"/a/b", CB_ACCESS_WRITE, "/a/b"},    {"/a/b/x/y", CB_ACCESS_WRITE, "/a/b"},
        {"/a/bc", CB_ACCESS_READ, "/a"},      {"/a/b/c", CB_ACCESS_NONE, "/a/b/c"},
        {"/a/b/c/x", CB_ACCESS_NONE, "/a/b/c"}, {"/a/b/c/d/e", CB_ACCESS_READ, "/a/b/c/d"},
    };
    resolve(policy);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct cb_file_decision decision = cb_decide_file(policy, table[i].path);
        assert_int_equal(decision.access, table[i].access);
        if (table[i].rule)
            assert_string_equal(decision.rule->path, table[i].rule);
        else
            assert_null(decision.rule);
    }
    cellblock_policy_free(policy);
}

static void test_equal_paths(void **state)
{
    cellblock_policy *policy = load(P("\"files\": [" RULE("/a", "read") "," RULE("/n", "none") "," RULE("/m",
        "write") "]"));
    add(policy, Q("\"files\": [" RULE("/a", "write") "," RULE("/n", "write") "," RULE("/m", "none") "]"));
    add(policy, Q("\"files\": [" RULE("/m", "read") "]"));
    resolve(policy);
    assert_int_equal(cb_decide_file(policy, "/a/x").access, CB_ACCESS_WRITE);
    assert_string_equal(cb_decide_file(policy, "/a/x").rule->origin.document, "more");
    assert_int_equal(cb_decide_file(policy, "/n").access, CB_ACCESS_NONE);
    assert_int_equal(cb_decide_file(policy, "/m").access, CB_ACCESS_NONE);
    cellblock_policy_free(policy);

    policy = load(P("\"files\": [" RULE("/", "read") "]"));
    resolve(policy);
    assert_int_equal(cb_decide_file(policy, "/any/thing").access, CB_ACCESS_READ);
    cellblock_policy_free(policy);
}

static void test_a_layer_has_no_opinion_on_what_it_does_not_mention(void **state)
{
    cellblock_policy *policy = load(P("\"files\": [" RULE("/a", "write") "], \"limits\": {\"processes\": 10},"
                                      "\"env\": {\"pass\": [\"A\", \"B*\"], \"set\": {\"S\": \"1\"}},"
                                      "\"accept_weaker\": [\"cgroup\", \"landlock\"], \"workspace\": {\"path\": "
                                      "\"/w\"}"));
    tighten(policy, Q("\"files\": [" RULE("/a/b", "read") "," RULE("/new", "write") "]"));
    assert_int_equal(policy->count, 2);
    assert_int_equal(policy->layers[1].count, 1); /* without the implicit base */
    resolve(policy);
    assert_int_equal(cb_decide_file(policy, "/a").access, CB_ACCESS_WRITE);
    assert_int_equal(cb_decide_file(policy, "/a/b/c").access, CB_ACCESS_READ);
    assert_int_equal(cb_decide_file(policy, "/new").access, CB_ACCESS_NONE);
    assert_int_equal(cb_decide_limit(policy, CB_LIMIT_PROCESSES).value, 10);
    assert_true(cb_decide_limit(policy, CB_LIMIT_MEMORY).value == CB_UNLIMITED);
    assert_true(cb_decide_env(policy, "A").pass);
    assert_true(cb_decide_env(policy, "BCD").pass);
    assert_false(cb_decide_env(policy, "LANG").pass);
    assert_true(cb_decide_accept_weaker(policy, "cgroup"));
    assert_false(cb_decide_accept_weaker(policy, "seccomp"));
    assert_string_equal(cb_decide_workspace_path(policy), "/w");

    tighten(policy, Q("\"env\": {\"pass\": [\"BC\", \"X\"]}, \"limits\": {\"processes\": 20, \"memory\": \"1G\", "
    "\"tmp\": null},"
                      "\"accept_weaker\": [\"landlock\", \"seccomp\"]"));
    assert_false(cb_decide_env(policy, "A").pass);
    assert_true(cb_decide_env(policy, "BC").pass);
    assert_false(cb_decide_env(policy, "BCD").pass);
    assert_false(cb_decide_env(policy, "X").pass);
    assert_string_equal(cb_decide_env(policy, "S").set, "1");
    assert_int_equal(cb_decide_limit(policy, CB_LIMIT_PROCESSES).value, 10);
    assert_int_equal(cb_decide_limit(policy, CB_LIMIT_MEMORY).value, 1 << 30);
    assert_true(cb_decide_limit(policy, CB_LIMIT_TMP).value == CB_UNLIMITED);
    assert_false(cb_decide_accept_weaker(policy, "cgroup"));
    assert_true(cb_decide_accept_weaker(policy, "landlock"));
    assert_false(cb_decide_accept_weaker(policy, "seccomp"));

    tighten(policy, Q("\"env\": {\"pass\": []}, \"accept_weaker\": []"));
    assert_false(cb_decide_env(policy, "BC").pass);
    assert_false(cb_decide_accept_weaker(policy, "landlock"));
    cellblock_policy_free(policy);
}

static void test_explicit_profiles_are_opinions(void **state)
{
    cellblock_policy *policy = load("{\"cellblock\": 1}");
    tighten(policy, Q("\"extends\": [\"strict\"]"));
    assert_int_equal(cb_decide_syscall_profile(policy), CB_SYSCALLS_STRICT);
    assert_int_equal(cb_decide_limit(policy, CB_LIMIT_PROCESSES).value, 64);
    assert_false(cb_decide_env(policy, "USER").pass);
    assert_true(cb_decide_env(policy, "LANG").pass);
    assert_string_equal(cb_decide_env(policy, "GIT_TEMPLATE_DIR").set, "");
    tighten(policy, Q("\"extends\": [\"base\"]"));
    assert_int_equal(cb_decide_limit(policy, CB_LIMIT_PROCESSES).value, 64);
    cellblock_policy_free(policy);
}

static void test_what_can_not_tighten_is_refused(void **state)
{
    cellblock_policy *policy = load(P("\"workspace\": {\"path\": \"w\"}"));
    tighten_refused(policy, Q("\"env\": {\"set\": {\"A\": \"1\"}}"),
                    "p:1:33: this policy sets variables (env.set), but it is used to tighten another one, and so it "
                    "can "
                    "only take away");
    tighten_refused(policy, Q("\"syscalls\": {\"allow\": [\"ptrace\"]}"),
                    "p:1:40: this policy allows system calls (syscalls.allow), but it is used to tighten another one, "
                    "and so it can only take away");
    tighten_refused(policy, Q("\"workspace\": {\"path\": \"..\"}"),
                    "p:1:17: this policy names another workspace (workspace.path), but it is used to tighten another "
                    "one, and so it can only take away");
    tighten(policy, Q("\"workspace\": {\"path\": \"./w/\"}, \"env\": {\"set\": {}}, \"syscalls\": {\"allow\": []}"));
    cellblock_policy_free(policy);
}

static void test_single_values(void **state)
{
    cellblock_policy *policy = load(P("\"workspace\": {\"mode\": \"scratch\"}, \"syscalls\": \"strict\""));
    assert_string_equal(cb_decide_workspace_path(policy), ".");
    add(policy, Q("\"workspace\": {\"mode\": \"direct\"}, \"syscalls\": {\"profile\": \"default\", \"deny\": "
    "[\"ptrace\"],"
                  "\"allow\": [\"ptrace\", \"kcmp\"]}"));
    assert_int_equal(cb_decide_workspace_mode(policy), CB_WORKSPACE_DIRECT);
    assert_int_equal(cb_decide_syscall_profile(policy), CB_SYSCALLS_DEFAULT);
    assert_true(cb_policy_has_custom_syscalls(policy));
    assert_int_equal(cb_decide_syscall_custom(policy, "ptrace"), -1);
    assert_int_equal(cb_decide_syscall_custom(policy, "kcmp"), 1);
    assert_int_equal(cb_decide_syscall_custom(policy, "bpf"), 0);
    add(policy, Q("\"syscalls\": {\"deny\": []}")); /* no profile named: the one before stays */
    assert_int_equal(cb_decide_syscall_profile(policy), CB_SYSCALLS_DEFAULT);
    assert_int_equal(cb_decide_isolation(policy), CB_ISOLATION_AUTO);

    tighten(policy, Q("\"syscalls\": {\"profile\": \"strict\", \"deny\": [\"keyctl\"]}, \"isolation\": \"namespaces\","
                      "\"workspace\": {\"mode\": \"scratch\"}"));
    assert_int_equal(cb_decide_syscall_profile(policy), CB_SYSCALLS_STRICT);
    assert_int_equal(cb_decide_syscall_custom(policy, "keyctl"), -1);
    assert_int_equal(cb_decide_isolation(policy), CB_ISOLATION_NAMESPACES);
    assert_int_equal(cb_decide_workspace_mode(policy), CB_WORKSPACE_SCRATCH);
    tighten(policy, Q("\"syscalls\": \"default\", \"isolation\": \"auto\", \"workspace\": {\"mode\": \"direct\"}"));
    assert_int_equal(cb_decide_syscall_profile(policy), CB_SYSCALLS_STRICT);
    assert_int_equal(cb_decide_isolation(policy), CB_ISOLATION_NAMESPACES);
    assert_int_equal(cb_decide_workspace_mode(policy), CB_WORKSPACE_SCRATCH);

    /* No second tier can be written down yet, so the contradiction is made by hand. */
    cellblock_policy *other = load(Q("\"isolation\": \"namespaces\""));
    other->layers[0].documents[1]->isolation = CB_ISOLATION_LANDLOCK;
    cellblock_error *error = NULL;
    assert_int_equal(cellblock_policy_tighten(policy, other, &error), -1);
    assert_string_equal(cellblock_error_message(error),
                        "p:1:17: this policy demands the isolation \"landlock\", another one demands \"namespaces\"");
    cellblock_error_free(error);
    cellblock_policy_free(other);
    cellblock_policy_free(policy);
}

struct visited {
    char text[256];
    int stop_after;
};

static int visit(const char *name, const char *value, void *data)
{
    struct visited *visited = data;
    strcat(visited->text, name);
    strcat(visited->text, "=");
    strcat(visited->text, value);
    strcat(visited->text, ";");
    return --visited->stop_after == 0 ? 7 : 0;
}

static void test_env_set_is_visited_once_each(void **state)
{
    cellblock_policy *policy = load(P("\"env\": {\"set\": {\"A\": \"1\", \"B\": \"2\"}}"));
    add(policy, Q("\"env\": {\"set\": {\"C\": \"4\", \"A\": \"3\"}}"));
    struct visited visited = {0};
    assert_int_equal(cb_policy_env_set(policy, visit, &visited), 0);
    assert_string_equal(visited.text, "B=2;C=4;A=3;");
    visited = (struct visited){.stop_after = 2};
    assert_int_equal(cb_policy_env_set(policy, visit, &visited), 7);
    assert_string_equal(visited.text, "B=2;C=4;");
    cellblock_policy_free(policy);
}

static void test_json_marks_tightening_rules(void **state)
{
    cellblock_policy *policy = load(P("\"files\": [" RULE("/a/", "write") "]"));
    tighten(policy, Q("\"files\": [" RULE("/a", "read") "], \"limits\": {\"processes\": 3}"));
    char *text = NULL;
    assert_int_equal(cellblock_policy_json(policy, &text, NULL), 0);
    json_t *shown = json_loads(text, 0, NULL);
    json_t *expected = json_pack("[{s:s, s:s, s:s}, {s:s, s:s, s:s, s:b}]", "path", "/a/", "access", "write", "origin",
                                 "p:1", "path", "/a", "access", "read", "origin", "p:1", "tightens", 1);
    assert_true(json_equal(json_object_get(shown, "files"), expected));
    json_t *limit = json_object_get(json_object_get(shown, "limits"), "processes");
    assert_int_equal(json_integer_value(json_object_get(limit, "value")), 3);
    json_decref(expected);
    json_decref(shown);
    free(text);
    cellblock_policy_free(policy);
}

/* ---- A property: whatever the rules, a combination allows no more than each part that has a say ---- */

static unsigned random_state = 1;

static unsigned pick(unsigned below)
{
    random_state = random_state * 1103515245 + 12345; /* the same sequence in every run */
    return (random_state >> 16) % below;
}

static void random_path(char *path)
{
    static const char *const parts[] = {"a", "b", "ab", "c"};
    size_t length = 0;
    for (unsigned depth = pick(4) + 1; depth > 0; depth--)
        length += (size_t)sprintf(path + length, "/%s", parts[pick(4)]);
}

static cellblock_policy *random_policy(void)
{
    static const char *const accesses[] = {"none", "read", "write"};
    char text[2048], path[64];
    int at = sprintf(text, "{\"cellblock\":1,\"extends\":[],\"files\":[");
    for (unsigned i = pick(8); i > 0; i--) {
        random_path(path);
        at += sprintf(text + at, "{\"path\":\"%s\",\"access\":\"%s\"},", path, accesses[pick(3)]);
    }
    at += sprintf(text + at, "],\"limits\":{");
    if (pick(2))
        at += sprintf(text + at, "\"processes\":%u", pick(100) + 1);
    at += sprintf(text + at, "}");
    if (pick(2)) {
        at += sprintf(text + at, ",\"env\":{\"pass\":[");
        for (unsigned i = pick(4); i > 0; i--)
            at += sprintf(text + at, "\"%c%s\",", 'A' + (int)pick(3), pick(2) ? "*" : "X");
        at += sprintf(text + at, "]}");
    }
    if (pick(2))
        at += sprintf(text + at, ",\"syscalls\":\"%s\"", pick(2) ? "strict" : "default");
    sprintf(text + at, "}");
    cellblock_policy *policy = load(text);
    resolve(policy);
    return policy;
}

static void test_tightening_only_tightens(void **state)
{
    for (int round = 0; round < 2000; round++) {
        cellblock_policy *first = random_policy(), *other = random_policy(), *both = NULL;
        assert_int_equal(cb_policy_copy(first, &both, NULL), 0);
        assert_int_equal(cellblock_policy_tighten(both, other, NULL), 0);
        char path[64];
        for (int i = 0; i < 20; i++) {
            random_path(path);
            struct cb_file_decision one = cb_decide_file(first, path), two = cb_decide_file(other, path);
            enum cb_access least = one.access;
            if (two.rule && two.access < least)
                least = two.access;
            assert_int_equal(cb_decide_file(both, path).access, least);
        }
        uint64_t limit = cb_decide_limit(both, CB_LIMIT_PROCESSES).value;
        assert_true(limit <= cb_decide_limit(first, CB_LIMIT_PROCESSES).value);
        assert_true(limit <= cb_decide_limit(other, CB_LIMIT_PROCESSES).value);
        static const char *const names[] = {"A", "AX", "AXY", "B", "BX", "CX", "D"};
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
            bool opinion = other->layers[0].documents[0]->env_pass.given;
            assert_int_equal(cb_decide_env(both, names[i]).pass,
                             cb_decide_env(first, names[i]).pass && (!opinion || cb_decide_env(other, names[i]).pass));
        }
        assert_true(cb_decide_syscall_profile(both) >= cb_decide_syscall_profile(first));
        assert_true(cb_decide_syscall_profile(both) >= cb_decide_syscall_profile(other));
        cellblock_policy_free(first);
        cellblock_policy_free(other);
        cellblock_policy_free(both);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_most_specific_path_wins),
        cmocka_unit_test(test_equal_paths),
        cmocka_unit_test(test_a_layer_has_no_opinion_on_what_it_does_not_mention),
        cmocka_unit_test(test_explicit_profiles_are_opinions),
        cmocka_unit_test(test_what_can_not_tighten_is_refused),
        cmocka_unit_test(test_single_values),
        cmocka_unit_test(test_env_set_is_visited_once_each),
        cmocka_unit_test(test_json_marks_tightening_rules),
        cmocka_unit_test(test_tightening_only_tightens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
