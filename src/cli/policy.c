/* cellblock policy: show what a policy comes to, check a file, print the schema. */
#include "base/cleanup.h"
#include "cli/cli.h"

#include <string.h>

static const char usage[] = "cellblock policy show [OPTIONS] | check FILE… | schema";
static const char description[] = "show    prints the resolved policy as JSON, each rule with where it comes from\n"
                                  "check   reads policy files and reports the first mistake in each, with its place\n"
                                  "schema  prints the JSON Schema of policy files, for editors\n"
                                  "\n"
                                  "Options of show:";

enum { POLICY = 256, PROFILE, TIGHTEN, NET, PUBLISH, SOCKET };

static const struct cb_option options[] = {
    {"policy", POLICY, "FILE", "the policy to show"},
    {"profile", PROFILE, "NAME", "a built-in profile instead: base, python, node, shell, strict"},
    {"tighten", TIGHTEN, "FILE", "a further policy that can only tighten (repeatable)"},
    {"net", NET, "RULE", "with this rule on top, as `cellblock run` takes it (repeatable)"},
    {"publish", PUBLISH, "CELL[:HOST]", "likewise (repeatable)"},
    {"socket", SOCKET, "PATH", "likewise (repeatable)"},
    {"help", 'h', NULL, "this text"},
    {0},
};

static void flags_cleanup(struct cb_policy_flags *flags)
{
    cb_policy_flags_end(flags);
}

static int print_json(int failed, char *json, cellblock_error *error)
{
    if (failed)
        return cb_report_error(error);
    puts(json);
    free(json);
    return 0;
}

static int show(int argc, char **argv)
{
    struct cb_policy_flags flags __attribute__((cleanup(flags_cleanup))) = {0};
    for (int key; (key = cb_next_option(argc, argv, options)) != -1;)
        switch (key) {
        case POLICY:
        case PROFILE:
            if (key == POLICY ? flags.policy : flags.profile)
                return cb_usage_error("policy", "%s is given twice: use --tighten to combine policies",
                                      key == POLICY ? "--policy" : "--profile");
            *(key == POLICY ? &flags.policy : &flags.profile) = optarg;
            break;
        case TIGHTEN:
            if (cb_flag_tighten(&flags, optarg) < 0)
                return CB_EXIT_FAILED;
            break;
        case NET:
        case PUBLISH:
        case SOCKET:
            if (cb_flag_network("policy", key == NET ? CB_FLAG_NET : key == PUBLISH ? CB_FLAG_PUBLISH : CB_FLAG_SOCKET,
                                optarg, &flags))
                return CB_EXIT_FAILED;
            break;
        default:
            return CB_EXIT_FAILED;
        }
    if (optind < argc)
        return cb_usage_error("policy", "unexpected argument '%s'", argv[optind]);
    if (flags.policy && flags.profile)
        return cb_usage_error("policy",
                              "--policy and --profile exclude each other: a file names profiles in \"extends\"");
    cellblock_policy *policy = NULL;
    cellblock_error *error = NULL;
    char *json = NULL;
    int failed = cb_policy_from_flags(&flags, &policy, &error) < 0 || cellblock_policy_json(policy, &json, &error) < 0;
    cellblock_policy_free(policy);
    return print_json(failed, json, error);
}

static int check(int argc, char **argv)
{
    if (argc < 2)
        return cb_usage_error("policy", "check needs a file");
    int status = 0;
    for (int i = 1; i < argc; i++) {
        cellblock_policy *policy = NULL;
        cellblock_error *error = NULL;
        if (cellblock_policy_load_file(argv[i], &policy, &error) < 0) {
            status =
                cellblock_error_code(error) == CELLBLOCK_ERROR_POLICY && status != CB_EXIT_FAILED ? 1 : CB_EXIT_FAILED;
            cb_report_error(error);
        } else {
            printf("%s: ok\n", argv[i]);
        }
        cellblock_policy_free(policy);
    }
    return status;
}

static int schema(int argc, char **argv)
{
    if (argc > 1)
        return cb_usage_error("policy", "schema takes no arguments, but was given '%s'", argv[1]);
    char *json = NULL;
    cellblock_error *error = NULL;
    int failed = cellblock_policy_schema(&json, &error) < 0;
    return print_json(failed, json, error);
}

static bool asks_for_help(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return true;
    return false;
}

int cb_cli_policy(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(int argc, char **argv);
    } commands[] = {{"show", show}, {"check", check}, {"schema", schema}};
    if (asks_for_help(argc, argv)) {
        cb_print_help(stdout, usage, description, options);
        return 0;
    }
    if (argc < 2)
        return cb_usage_error("policy", "policy needs show, check or schema");
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (strcmp(argv[1], commands[i].name) == 0)
            return commands[i].run(argc - 1, argv + 1);
    return cb_usage_error("policy", "there is no 'policy %s': it is show, check or schema", argv[1]);
}
