/* Reading policies: what is refused and where, units, composition, the schema, the profiles. */
#include "base/error.h"
#include "policy/compose.h"
#include "policy/policy.h"
#include "policy/schema.h"
#include "policy/values.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

static cellblock_policy *load(const char *text)
{
    cellblock_policy *policy = NULL;
    cellblock_error *error = NULL;
    if (cellblock_policy_load_text(text, strlen(text), "p", &policy, &error) < 0)
        fail_msg("%s: %s", text, cellblock_error_message(error));
    return policy;
}

/* The message of a document that must be refused. */
static char *refusal(const char *text, size_t length)
{
    cellblock_policy *policy = NULL;
    cellblock_error *error = NULL;
    if (cellblock_policy_load_text(text, length, "p", &policy, &error) == 0)
        fail_msg("accepted: %s", text);
    assert_null(policy);
    assert_int_equal(cellblock_error_code(error), CELLBLOCK_ERROR_POLICY);
    char *message = strdup(cellblock_error_message(error));
    cellblock_error_free(error);
    return message;
}

static void expect_refusals(const char *const (*table)[2], size_t count)
{
    for (size_t i = 0; i < count; i++) {
        char *message = refusal(table[i][0], strlen(table[i][0]));
        if (strcmp(message, table[i][1]) != 0)
            fail_msg("for %s\n  got      %s\n  expected %s", table[i][0], message, table[i][1]);
        free(message);
    }
}
#define COUNT(table) (sizeof(table) / sizeof *(table))

/* The text inside {"cellblock": 1, …}; the column of its first byte is 17. */
#define P(text) "{\"cellblock\":1, " text "}"

static void test_syntax_is_strict(void **state)
{
    static const char *const table[][2] = {
        {"", "p:1:1: the policy is empty"},
        {" \n ", "p:1:1: the policy is empty"},
        {"{", "p:1:2: the text ends too early"},
        {"{\"cellblock\": 1", "p:1:16: the text ends too early"},
        {"{\"cellblock\": 1} x", "p:1:18: nothing more is expected here"},
        {"{\"cellblock\": 1}\n{}", "p:2:1: nothing more is expected here"},
        {"{\"cellblock\" 1}", "p:1:14: a colon is expected here"},
        {"{cellblock: 1}", "p:1:2: a key in double quotes is expected here"},
        {"{,}", "p:1:2: a key in double quotes is expected here"},
        {"{\"cellblock\": 1,,}", "p:1:17: a key in double quotes is expected here"},
        {"[,]", "p:1:2: a value is expected here"},
        {"[1,,]", "p:1:4: a value is expected here"},
        {"[1 2]", "p:1:4: a comma or ] is expected here"},
        {"{\"cellblock\": 1 \"files\": []}", "p:1:17: a comma or } is expected here"},
        {"{\"cellblock\": True}", "p:1:15: unknown word: a string needs double quotes"},
        {"{\"cellblock\": 'x'}", "p:1:15: a value is expected here"},
        {"{\"cellblock\": 01}", "p:1:15: this is not a number"},
        {"{\"cellblock\": 1.}", "p:1:15: this is not a number"},
        {"{\"cellblock\": -}", "p:1:15: this is not a number"},
        {"{\"cellblock\": 1e}", "p:1:15: this is not a number"},
        {"{\"cellblock\": .5}", "p:1:15: a value is expected here"},
        {"{\"cellblock\": NaN}", "p:1:15: unknown word: a string needs double quotes"},
        {"{\"cellblock\": 1} /* never", "p:1:18: this comment does not end"},
        {"{\"cellblock\": 1} / x", "p:1:18: nothing more is expected here"},
        {"{\"a", "p:1:2: this string does not end"},
        {"{\"a\nb\": 1}", "p:1:2: this string does not end"},
        {"{\"a\tb\": 1}", "p:1:4: a control character in a string must be escaped"},
        {"{\"a\\x\": 1}", "p:1:4: JSON has no such escape in a string"},
        {"{\"a\\u12g4\": 1}", "p:1:4: \\u needs four hexadecimal digits"},
        {"{\"a\\u0000\": 1}", "p:1:4: a string can't hold a NUL character"},
        {"{\"\\ud800\": 1}", "p:1:3: this is half of a character: \\u needs the other half of the surrogate pair"},
        {"{\"\\udc00\": 1}", "p:1:3: this is half of a character: \\u needs the other half of the surrogate pair"},
        {"{\"\xff\": 1}", "p:1:3: this is not valid UTF-8"},
        {"\xef\xbb\xbf{\"cellblock\": 1}", "p:1:1: a policy must not start with a byte order mark"},
        {"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]", "p:1:33: nested too deeply"},
        {"[]", "p:1:1: a policy must be an object, not a list"},
        {"1", "p:1:1: a policy must be an object, not a number"},
        {"\n  null", "p:2:3: a policy must be an object, not null"},
    };
    expect_refusals(table, COUNT(table));

    char *message = refusal("{\n \0}", 5);
    assert_string_equal(message, "p:2:2: a policy must not hold NUL bytes");
    free(message);
    size_t length = ((size_t)1 << 20) + 1;
    char *large = malloc(length);
    memset(large, ' ', length);
    message = refusal(large, length);
    assert_string_equal(message, "p:1:1: a policy may have at most 1 MiB of text");
    free(message);
    free(large);
}

static void test_keys_and_types_are_strict(void **state)
{
    static const char *const table[][2] = {
        {"{}", "p:1:1: cellblock is missing: a policy starts with {\"cellblock\": 1"},
        {"{\"cellblock\": 2}", "p:1:15: cellblock must be 1: this version knows no other policy format"},
        {"{\"cellblock\": 1.0}", "p:1:15: cellblock must be 1: this version knows no other policy format"},
        {"{\"cellblock\": \"1\"}", "p:1:15: cellblock must be the number 1, not a string"},
        {"{\"cellblock\": 1, \"cellblock\": 1}", "p:1:18: cellblock is there twice"},
        {P("\n \"fils\": []"), "p:2:2: unknown key \"fils\", did you mean \"files\"?"},
        {P("\"xyzzy\": []"), "p:1:17: unknown key \"xyzzy\""},
        {P("\"\\u001b[2J\": 1"), "p:1:17: unknown key \"\\x1b[2J\""},
        {P("/* \xc3\xa4\xc3\xb6 */ \"fils\": []"), "p:1:26: unknown key \"fils\", did you mean \"files\"?"},
        {P("\"files\": {}"), "p:1:26: files must be a list of objects, not an object"},
        {P("\"files\": [1]"), "p:1:27: files must be a list of objects, not a number"},
        {P("\"files\": [{}]"), "p:1:27: files[0].path is missing"},
        {P("\"files\": [{\"path\": \"/x\"}]"), "p:1:27: files[0].access is missing"},
        {P("\"files\": [{\"path\": 1}]"), "p:1:36: files[0].path must be a string, not a number"},
        {P("\"files\": [\n{\"path\":\"/x\",\"access\":\"read\"},\n{\"path\":\"/x\",\"acess\":\"read\"}]"),
         "p:3:14: unknown key \"acess\" in files[1], did you mean \"access\"?"},
        {P("\"files\": [{\"path\":\"/x\",\"access\":\"raed\"}]"),
         "p:1:49: files[0].access: \"raed\" is not known, did you mean \"read\"?"},
        {P("\"files\": [{\"path\":\"/x\",\"access\":\"everything\"}]"),
         "p:1:49: files[0].access: \"everything\" is not one of \"none\", \"read\", \"write\""},
        {P("\"files\": [{\"path\":\"/x\",\"access\":\"read\",\"optional\":1}]"),
         "p:1:67: files[0].optional must be true or false, not a number"},
        {P("\"files\": [{\"path\":\"/x\",\"access\":\"read\",\"path\":\"/y\"}]"), "p:1:56: files[0].path is there "
        "twice"},
        {P("\"files\": [{\"path\":\"/x\",\"access\":\"read\",\"why\":\"\\u001b\"}]"),
         "p:1:62: files[0].why: \"\\x1b\" holds a control character"},
        {P("\"files\": [{\"path\":\"/x\",\"access\":\"read\",\"when\":\"absent\"}]"),
         "p:1:63: files[0].when: \"absent\" is not known, did you mean \"present\"?"},
        {P("\"workspace\": \".\""), "p:1:30: workspace must be an object, not a string"},
        {P("\"workspace\": {\"mod\": 1}"), "p:1:31: unknown key \"mod\" in workspace, did you mean \"mode\"?"},
        {P("\"extends\": \"base\""), "p:1:28: extends must be a list of strings, not a string"},
        {P("\"extends\": [1]"), "p:1:29: extends must be a list of strings, not a number"},
        {P("\"extends\": [\"pyton\"]"), "p:1:29: there is no profile \"pyton\", did you mean \"python\"?"},
        {P("\"extends\": [\"/etc/passwd\"]"), "p:1:29: there is no profile \"/etc/passwd\""},
        {P("\"programs\": [\"/bin/sh\"]"),
         "p:1:30: programs: \"/bin/sh\" is a path: \"programs\" takes names that are looked up in PATH, use "
         "\"files\" for "
         "paths"},
        {P("\"env\": {\"pass\": [\"*\"]}"),
         "p:1:34: env.pass: \"*\" would pass every variable, secrets included: name them, or a prefix such as "
         "\"LC_*\""},
        {P("\"env\": {\"pass\": [\"A*B\"]}"),
         "p:1:34: env.pass: \"A*B\" is not the name of a variable: letters, digits and _ only, with a \"*\" at the "
         "end for "
         "a prefix"},
        {P("\"env\": {\"set\": {\"1A\": \"\"}}"),
         "p:1:33: env.set: \"1A\" is not the name of a variable: letters, digits and _ only"},
        {P("\"env\": {\"set\": {\"A\": 1}}"), "p:1:38: env.set must be an object of strings, not a number"},
        {P("\"env\": {\"set\": {\"A\": \"\", \"A\": \"\"}}"), "p:1:42: env.set: \"A\" is there twice"},
        {P("\"syscalls\": \"strct\""), "p:1:29: syscalls: \"strct\" is not known, did you mean \"strict\"?"},
        {P("\"syscalls\": []"), "p:1:29: syscalls must be a string or an object, not a list"},
        {P("\"syscalls\": {\"deny\": [\"ptrac\"]}"),
         "p:1:39: syscalls.deny: \"ptrac\" is not a known system call, did you mean \"ptrace\"?"},
        {P("\"syscalls\": {\"deny\": [\"PTRACE\"]}"),
         "p:1:39: syscalls.deny: \"PTRACE\" is not the name of a system call"},
        {P("\"limits\": {\"cpus\": \"1\"}"), "p:1:36: limits.cpus must be a number, or null for unlimited, not a string"},
        {P("\"limits\": {\"cpus\": 0}"), "p:1:36: limits.cpus must be at least 0.010"},
        {P("\"limits\": {\"inodes\": 1.5}"), "p:1:38: limits.inodes must be a whole number"},
        {P("\"isolation\": \"none\""), "p:1:30: isolation: \"none\" is not one of \"auto\", \"namespaces\", \"landlock\""},
        {P("\"accept_weaker\": [\"landlok\"]"),
         "p:1:35: accept_weaker: \"landlok\" is not known, did you mean \"landlock\"?"},
        {P("\"$schema\": 1"), "p:1:28: $schema must be a string, not a number"},
    };
    expect_refusals(table, COUNT(table));
}

static void test_what_is_not_available_is_refused_by_name(void **state)
{
    static const char *const table[][2] = {
        {P("\"workspace\": {\"mode\": \"review\"}"),
         "p:1:39: workspace.mode: review workspaces are not available in this version: use \"direct\" or \"scratch\""},
        {P("\"isolation\": \"gvisor\""),
         "p:1:30: isolation: the tier \"gvisor\" is not available in this version: use \"namespaces\""},
    };
    expect_refusals(table, COUNT(table));
    cellblock_policy_free(load(P("\"network\": [], \"sockets\": [], \"publish\": [], \"$schema\": \"x\"")));
}

static void test_paths(void **state)
{
    static const char *const table[][2] = {
        {P("\"files\": [{\"path\":\"\",\"access\":\"read\"}]"),
         "p:1:35: files[0].path: \"\" is empty: a path is absolute, starts with \"~/\", or is relative to the "
         "workspace"},
        {P("\"files\": [{\"path\":\"a/../../b\",\"access\":\"read\"}]"),
         "p:1:35: files[0].path: \"a/../../b\" has a \"..\": relative paths are relative to the workspace and can't "
         "leave "
         "it"},
        {P("\"files\": [{\"path\":\"~/..\",\"access\":\"read\"}]"),
         "p:1:35: files[0].path: \"~/..\" has a \"..\": paths below the home directory can't leave it"},
        {P("\"files\": [{\"path\":\"~root/x\",\"access\":\"read\"}]"),
         "p:1:35: files[0].path: \"~root/x\" names the home directory of another user: write it as an absolute path"},
        {P("\"files\": [{\"path\":\"/x/*.py\",\"access\":\"read\"}]"),
         "p:1:35: files[0].path: \"/x/*.py\" holds a glob: globs are not supported in enforcement, name the directory "
         "instead"},
        {P("\"files\": [{\"path\":\"/x\\n\",\"access\":\"read\"}]"),
         "p:1:35: files[0].path: \"/x\\x0a\" holds a control character"},
    };
    expect_refusals(table, COUNT(table));

    static const struct {
        const char *in, *out;
        bool directory;
    } fine[] = {
        {"/", "/", false},          {"/a//b/./c", "/a/b/c", false}, {"/a/", "/a", true}, {"a/.", "a", true},
        {"./a", "a", false},        {".", ".", true},               {"./", ".", true},   {"~", "~", false},
        {"~/", "~", true},          {"~//x/", "~/x", true},         {"/a/../b", "/a/../b", false},
        {".git/hooks/", ".git/hooks", true}, {"a..b/...", "a..b/...", false}, {"//", "/", true},
    };
    for (size_t i = 0; i < COUNT(fine); i++) {
        char path[64];
        bool directory = false;
        snprintf(path, sizeof path, "%s", fine[i].in);
        assert_null(cb_value_file_path(path, &directory));
        assert_string_equal(path, fine[i].out);
        if (strcmp(fine[i].in, "/") != 0 && directory != fine[i].directory)
            fail_msg("directory of %s", fine[i].in);
    }
    char longest[5000];
    bool directory;
    memset(longest, 'a', sizeof longest);
    longest[256] = '\0';
    assert_string_equal(cb_value_file_path(longest, &directory), "has a component of more than 255 bytes");
    longest[255] = '\0';
    assert_null(cb_value_file_path(longest, &directory));
    for (size_t i = 0; i < sizeof longest; i++)
        longest[i] = i % 2 ? 'a' : '/';
    longest[4096] = '\0';
    assert_string_equal(cb_value_file_path(longest, &directory), "is longer than 4095 bytes");
    longest[4095] = '\0';
    assert_null(cb_value_file_path(longest, &directory));

    char up[] = "../x[1]/";
    assert_null(cb_value_workspace_path(up));
    assert_string_equal(up, "../x[1]");
}

static void test_units(void **state)
{
    static const struct {
        const char *text;
        uint64_t value;
    } sizes[] = {{"0", 0},          {"1", 1},          {"1K", 1024},      {"256M", 256u << 20},  {"3G", 3ull << 30},
                 {"2T", 2ull << 40}, {"1KiB", 1024},   {"1MiB", 1 << 20}, {"1GiB", 1 << 30},     {"1TiB", 1ull << 40},
                 {"8388607T", 8388607ull << 40},       {"9223372036854775807", INT64_MAX}},
      times[] = {{"5", 5000},      {"5s", 5000},  {"100ms", 100},   {"2m", 120000}, {"1h", 3600000}, {"1.5s", 1500},
                 {"0.0001s", 1},   {"0.5ms", 1},  {"0s", 0},        {"1.0000000001", 1000}};
    static const char *const bad_sizes[] = {"", "M", "-1", "+1", " 1", "1 ", "1.5G", "1KB", "1m", "1MiBx", "0x10",
        "1e3",
                                            "nan", "inf"},
                            *const bad_times[] = {"", "s", "-1s", "5 s", "5sec", "1.s", ".5s", "1e3", "nan", "inf",
                                "5S"};
    uint64_t value;
    for (size_t i = 0; i < COUNT(sizes); i++) {
        assert_null(cb_value_size(sizes[i].text, &value));
        assert_true(value == sizes[i].value);
    }
    for (size_t i = 0; i < COUNT(times); i++) {
        assert_null(cb_value_duration(times[i].text, &value));
        if (value != times[i].value)
            fail_msg("%s is %llu", times[i].text, (unsigned long long)value);
    }
    for (size_t i = 0; i < COUNT(bad_sizes); i++)
        assert_non_null(strstr(cb_value_size(bad_sizes[i], &value), "is not a size"));
    for (size_t i = 0; i < COUNT(bad_times); i++)
        assert_non_null(strstr(cb_value_duration(bad_times[i], &value), "is not a duration"));
    assert_string_equal(cb_value_size("9223372036854775808", &value), "is too large");
    assert_string_equal(cb_value_size("8388608T", &value), "is too large");
    assert_string_equal(cb_value_size("99999999999999999999999", &value), "is too large");
    assert_string_equal(cb_value_duration("9223372036854", &value), "is too large");
    assert_string_equal(cb_value_duration("99999999999999999999999ms", &value), "is too large");

    static const char *const table[][2] = {
        {P("\"limits\": {\"memory\": -1}"), "p:1:38: limits.memory must not be negative"},
        {P("\"limits\": {\"memory\": 0}"), "p:1:38: limits.memory must be at least 1048576 bytes"},
        {P("\"limits\": {\"memory\": 1.5}"), "p:1:38: limits.memory must be a whole number"},
        {P("\"limits\": {\"memory\": 1e9}"), "p:1:38: limits.memory must be written without an exponent"},
        {P("\"limits\": {\"memory\": 9223372036854775808}"), "p:1:38: limits.memory is too large"},
        {P("\"limits\": {\"memory\": \"5MB\"}"),
         "p:1:38: limits.memory: \"5MB\" is not a size: write a number of bytes, or a whole number with K, M, G or "
         "T, such "
         "as \"256M\""},
        {P("\"limits\": {\"memory\": true}"),
         "p:1:38: limits.memory must be a number, a string with a unit, or null for unlimited, not true"},
        {P("\"limits\": {\"cpu_time\": 0}"), "p:1:40: limits.cpu_time must be at least 1 ms"},
        {P("\"limits\": {\"wall_time\": \"0s\"}"), "p:1:41: limits.wall_time must be at least 1 ms"},
        {P("\"limits\": {\"wall_time\": -0.5}"), "p:1:41: limits.wall_time must not be negative"},
        {P("\"limits\": {\"processes\": 0}"), "p:1:41: limits.processes must be at least 1"},
        {P("\"limits\": {\"processes\": \"5\"}"),
         "p:1:41: limits.processes must be a whole number, or null for unlimited, not a string"},
        {P("\"limits\": {\"processes\": 3000000000}"), "p:1:41: limits.processes is too large"},
        {P("\"limits\": {\"tmp\": 0}"), "p:1:35: limits.tmp must be at least 65536 bytes"},
        {P("\"limits\": {\"memry\": 1}"), "p:1:28: unknown key \"memry\" in limits, did you mean \"memory\"?"},
    };
    expect_refusals(table, COUNT(table));

    cellblock_policy *policy = load(P("\"limits\": {\"wall_time\": 0.25, \"memory\": null, \"file_size\": 0}"));
    assert_true(cb_decide_limit(policy, CB_LIMIT_WALL_TIME).value == 250);
    assert_true(cb_decide_limit(policy, CB_LIMIT_MEMORY).value == CB_UNLIMITED);
    assert_true(cb_decide_limit(policy, CB_LIMIT_FILE_SIZE).value == 0);
    cellblock_policy_free(policy);
}

static void test_comments_commas_and_origins(void **state)
{
    static const char text[] = "// head\n"
                               "{ /* a \n b */ \"cellblock\": 1, \"extends\": [],\n"
                               "  \"files\": [ // \"}\n"
                               "    {\"path\": \"/\\u00e4\\ud83d\\ude00//b/\", \"access\": \"write\", \"why\": \"// "
                               "kept\",},\n"
                               "  ],\n"
                               "  \"limits\": {\"processes\": 7,},\n"
                               "}\n// tail";
    struct cb_document *document;
    struct cb_names extends;
    cellblock_error *error = NULL;
    assert_int_equal(cb_document_parse(text, strlen(text), "name", &document, &extends, &error), 0);
    assert_true(extends.given);
    assert_int_equal(extends.count, 0);
    assert_int_equal(document->file_count, 1);
    const struct cb_file_rule *rule = &document->files[0];
    assert_string_equal(rule->path, "/\xc3\xa4\xf0\x9f\x98\x80/b");
    assert_string_equal(rule->why, "// kept");
    assert_true(rule->directory_only);
    assert_int_equal(rule->access, CB_ACCESS_WRITE);
    assert_string_equal(rule->origin.document, "name");
    assert_int_equal(rule->origin.line, 5);
    assert_int_equal(rule->origin.column, 5);
    assert_int_equal(document->limit_origin[CB_LIMIT_PROCESSES].line, 7);
    assert_int_equal(document->limit_origin[CB_LIMIT_PROCESSES].column, 14);
    assert_string_equal(document->text, text);
    cb_names_free(&extends);
    cb_document_free(document);
}

static void test_lists_have_a_limit(void **state)
{
    char *text = malloc(100000);
    char *out = text + sprintf(text, "{\"cellblock\":1,\"programs\":[");
    for (int i = 0; i < 4097; i++)
        out += sprintf(out, "\"a\",");
    sprintf(out, "]}");
    char *message = refusal(text, strlen(text));
    assert_string_equal(message, "p:1:27: programs has 4097 entries: at most 4096 are possible");
    free(message);
    free(text);
}

/* ---- Composition ---- */

static const char *cyclic_lookup(const char *name, size_t *length)
{
    static const char one[] = "{\"cellblock\":1,\n\"extends\":[\"two\"]}", two[] =
        "{\"cellblock\":1,\"extends\":[\"one\"]}";
    const char *text = strcmp(name, "one") == 0 ? one : strcmp(name, "two") == 0 ? two : NULL;
    *length = text ? strlen(text) : 0;
    return text;
}

static void test_extends(void **state)
{
    cellblock_policy *policy = load("{\"cellblock\":1}");
    assert_int_equal(policy->layers[0].count, 2);
    assert_string_equal(policy->layers[0].documents[0]->name, "profile base");
    assert_true(policy->layers[0].documents[0]->implicit);
    assert_null(policy->layers[0].documents[0]->text);
    assert_string_equal(policy->layers[0].documents[1]->name, "p");
    cellblock_policy_free(policy);

    policy = load(P("\"extends\": []"));
    assert_int_equal(policy->layers[0].count, 1);
    cellblock_policy_free(policy);

    policy = load(P("\"extends\": [\"python\", \"node\", \"base\", \"python\"]"));
    assert_int_equal(policy->layers[0].count, 4);
    assert_string_equal(policy->layers[0].documents[0]->name, "profile base");
    assert_string_equal(policy->layers[0].documents[1]->name, "profile python");
    assert_string_equal(policy->layers[0].documents[2]->name, "profile node");
    assert_false(policy->layers[0].documents[0]->implicit);
    cellblock_policy_free(policy);

    struct cb_layer layer = {0};
    cellblock_error *error = NULL;
    const char *text = P("\"extends\": [\"one\"]");
    assert_int_equal(cb_layer_add(&layer, text, strlen(text), "p", CB_COMPOSE_NO_BASE, cyclic_lookup, &error), -1);
    assert_string_equal(cellblock_error_message(error), "profile two:1:27: the profile \"one\" extends itself");
    assert_int_equal(layer.count, 0);
    cellblock_error_free(error);

    error = NULL;
    text = P("\"extends\": [\"nodejs\"]");
    assert_int_equal(cellblock_policy_load_text(text, strlen(text), "p", &policy, &error), -1);
    assert_string_equal(cellblock_error_hint(error), "the profiles are: base, node, python, shell, strict");
    cellblock_error_free(error);
}

static void test_add_text(void **state)
{
    cellblock_policy *policy = load(P("\"limits\": {\"processes\": 5}, \"env\": {\"set\": {\"A\": \"1\", \"B\": "
    "\"2\"}}"));
    cellblock_error *error = NULL;
    const char *text = P("\"limits\": {\"processes\": 9}, \"env\": {\"pass\": [\"C\"], \"set\": {\"A\": \"3\"}}");
    assert_int_equal(cellblock_policy_add_text(policy, text, strlen(text), "flags", &error), 0);
    assert_int_equal(policy->layers[0].count, 3);
    assert_true(policy->layers[0].documents[0]->implicit);
    assert_int_equal(cb_decide_limit(policy, CB_LIMIT_PROCESSES).value, 9);
    assert_string_equal(cb_decide_env(policy, "A").set, "3");
    assert_string_equal(cb_decide_env(policy, "B").set, "2");
    assert_true(cb_decide_env(policy, "C").pass);
    assert_true(cb_decide_env(policy, "LC_TIME").pass);
    assert_false(cb_decide_env(policy, "AWS_SECRET_ACCESS_KEY").pass);

    /* A failure leaves no trace. */
    text = P("\"extends\": [\"base\", \"python\", \"none\"]");
    assert_int_equal(cellblock_policy_add_text(policy, text, strlen(text), "flags", &error), -1);
    cellblock_error_free(error);
    assert_int_equal(policy->layers[0].count, 3);
    assert_true(policy->layers[0].documents[0]->implicit);
    text = P("\"extends\": [\"base\", \"python\"]");
    assert_int_equal(cellblock_policy_add_text(policy, text, strlen(text), "flags", NULL), 0);
    assert_int_equal(policy->layers[0].count, 5);
    assert_false(policy->layers[0].documents[0]->implicit);
    cellblock_policy_free(policy);
}

static void test_load_file(void **state)
{
    char path[] = "/tmp/cellblock-policy-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    static const char text[] = "{\"cellblock\": 1,\n \"fils\": []}";
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    cellblock_policy *policy = NULL;
    cellblock_error *error = NULL;
    assert_int_equal(cellblock_policy_load_file(path, &policy, &error), -1);
    char expected[128];
    snprintf(expected, sizeof expected, "%s:2:2: unknown key \"fils\", did you mean \"files\"?", path);
    assert_string_equal(cellblock_error_message(error), expected);
    assert_non_null(strstr(cellblock_error_hint(error), "known keys here: $schema, cellblock, extends"));
    cellblock_error_free(error);
    error = NULL;

    assert_int_equal(ftruncate(fd, (1 << 20) + 1), 0);
    assert_int_equal(cellblock_policy_load_file(path, &policy, &error), -1);
    assert_non_null(strstr(cellblock_error_message(error), "at most 1 MiB"));
    cellblock_error_free(error);
    error = NULL;
    close(fd);
    unlink(path);

    assert_int_equal(cellblock_policy_load_file(path, &policy, &error), -1);
    assert_int_equal(cellblock_error_code(error), CELLBLOCK_ERROR_SYSTEM);
    cellblock_error_free(error);
    error = NULL;
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(cellblock_policy_load_file(path, &policy, &error), -1);
    assert_non_null(strstr(cellblock_error_message(error), "is not a regular file"));
    cellblock_error_free(error);
    unlink(path);
}

/* ---- Output ---- */

static json_t *properties_of(json_t *schema)
{
    json_t *any;
    size_t i;
    json_t *items = json_object_get(schema, "items");
    if (items)
        return json_object_get(items, "properties");
    json_array_foreach(json_object_get(schema, "anyOf"), i, any)
        if (json_object_get(any, "properties"))
            return json_object_get(any, "properties");
    return json_object_get(schema, "properties");
}

static void check_covered(const struct cb_section *section, json_t *properties)
{
    assert_int_equal(json_object_size(properties), section->count);
    for (size_t i = 0; i < section->count; i++) {
        json_t *made = json_object_get(properties, section->keys[i].name);
        if (!made)
            fail_msg("the schema lacks %s", section->keys[i].name);
        assert_true(json_string_length(json_object_get(made, "description")) > 0);
        if (section->keys[i].section)
            check_covered(section->keys[i].section, properties_of(made));
    }
}

static void test_schema_covers_the_table(void **state)
{
    char *text = NULL;
    assert_int_equal(cellblock_policy_schema(&text, NULL), 0);
    json_error_t cause;
    json_t *schema = json_loads(text, JSON_REJECT_DUPLICATES, &cause);
    if (!schema)
        fail_msg("line %d: %s", cause.line, cause.text);
    assert_string_equal(json_string_value(json_object_get(schema, "$schema")),
                        "https://json-schema.org/draft/2020-12/schema");
    check_covered(&cb_schema, json_object_get(schema, "properties"));
    json_decref(schema);
    free(text);
}

static void test_json_shows_origins(void **state)
{
    cellblock_policy *policy = load("{\"cellblock\": 1, \"extends\": [],\n"
                                    "\"files\": [{\"path\": \"/a\", \"access\": \"read\"},\n"
                                    "{\"path\": \"/a\", \"access\": \"write\", \"why\": \"both \\\"ways\\\" \\\\\"}],\n"
                                    "\"limits\": {\"memory\": \"1G\"}}");
    char *text = NULL;
    assert_int_equal(cellblock_policy_json(policy, &text, NULL), 0);
    json_t *shown = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    json_t *expected = json_pack("[{s:s, s:s, s:s, s:s}]", "path", "/a", "access", "write", "why", "both \"ways\" \\",
                                 "origin", "p:3");
    assert_true(json_equal(json_object_get(shown, "files"), expected));
    json_decref(expected);
    json_t *limits = json_object_get(shown, "limits");
    assert_int_equal(json_object_size(limits), CB_LIMIT_COUNT);
    expected = json_pack("{s:I, s:s, s:s}", "value", (json_int_t)1 << 30, "unit", "bytes", "origin", "p:4");
    assert_true(json_equal(json_object_get(limits, "memory"), expected));
    json_decref(expected);
    expected = json_pack("{s:n, s:s}", "value", "origin", "default");
    assert_true(json_equal(json_object_get(limits, "processes"), expected));
    json_decref(expected);
    json_decref(shown);
    free(text);
    cellblock_policy_free(policy);
}

static void test_profiles(void **state)
{
    const char *previous = "";
    for (const char *const *name = cb_profile_names(); *name; name++) {
        assert_true(strcmp(previous, *name) < 0);
        previous = *name;
        char text[128];
        snprintf(text, sizeof text, P("\"extends\": [\"%s\"]"), *name);
        cellblock_policy *policy = load(text);
        char *json = NULL;
        assert_int_equal(cellblock_policy_json(policy, &json, NULL), 0);
        json_t *parsed = json_loads(json, JSON_REJECT_DUPLICATES, NULL);
        assert_non_null(parsed);
        json_decref(parsed);
        free(json);
        static const char *const secrets[] = {"AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "OPENAI_API_KEY", "NPM_TOKEN",
                                              "SSH_AUTH_SOCK", "PIP_INDEX_URL", "npm_config_token", "HOME", "PATH",
                                              "LD_PRELOAD", "PYTHONPATH", "NODE_OPTIONS"};
        for (size_t i = 0; i < COUNT(secrets); i++)
            assert_false(cb_decide_env(policy, secrets[i]).pass);
        cellblock_policy_free(policy);
    }
    assert_null(cb_profile_text("nothing", &(size_t){0}));

    cellblock_policy *policy = load(P("\"extends\": [\"strict\"]"));
    assert_int_equal(cb_decide_syscall_profile(policy), CB_SYSCALLS_STRICT);
    assert_true(cb_decide_limit(policy, CB_LIMIT_MEMORY).value == 512u << 20);
    assert_false(cb_decide_env(policy, "USER").pass);
    cellblock_policy_free(policy);
}

static void test_copy_stands_alone(void **state)
{
    cellblock_policy *policy = load(P("\"env\": {\"set\": {\"A\": \"1\"}}, \"files\": [{\"path\": \"/x\", "
    "\"access\": \"read\"}]"));
    cellblock_policy *copy = NULL;
    char *before = NULL, *after = NULL;
    assert_int_equal(cellblock_policy_json(policy, &before, NULL), 0);
    assert_int_equal(cb_policy_copy(policy, &copy, NULL), 0);
    cellblock_policy_free(policy);
    assert_int_equal(cellblock_policy_json(copy, &after, NULL), 0);
    assert_string_equal(before, after);
    const char *text = P("\"extends\": [\"node\"]");
    assert_int_equal(cellblock_policy_add_text(copy, text, strlen(text), "more", NULL), 0);
    cellblock_policy_free(copy);
    free(before);
    free(after);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_syntax_is_strict),
        cmocka_unit_test(test_keys_and_types_are_strict),
        cmocka_unit_test(test_what_is_not_available_is_refused_by_name),
        cmocka_unit_test(test_paths),
        cmocka_unit_test(test_units),
        cmocka_unit_test(test_comments_commas_and_origins),
        cmocka_unit_test(test_lists_have_a_limit),
        cmocka_unit_test(test_extends),
        cmocka_unit_test(test_add_text),
        cmocka_unit_test(test_load_file),
        cmocka_unit_test(test_schema_covers_the_table),
        cmocka_unit_test(test_json_shows_origins),
        cmocka_unit_test(test_profiles),
        cmocka_unit_test(test_copy_stands_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
