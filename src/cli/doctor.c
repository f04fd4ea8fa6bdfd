/* cellblock doctor: what this machine can enforce, layer by layer, and how to get what is missing. */
#include "base/cleanup.h"
#include "cli/cli.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { EXIT_GAP = 1 };

static const char usage[] = "cellblock doctor [--json]";
static const char description[] =
    "Tries out, layer by layer, what this machine can enforce, and says how to get what is missing.\n"
    "Nothing is changed: each attempt is made in a short-lived process of its own.\n"
    "\n"
    "Exit status: 0 when the default policy can be enforced, 1 when it can't, 125 when this could not be found out.\n";

static const struct cb_option options[] = {
    {"json", 'j', NULL, "the same as JSON"},
    {"help", 'h', NULL, "this text"},
    {0},
};

struct look {
    const char *word, *mark, *colour;
};

static struct look look_of(const char *state)
{
    if (strcmp(state, "yes") == 0)
        return (struct look){"yes", "✓", "\033[32m"};
    if (strcmp(state, "partly") == 0)
        return (struct look){"partly", "~", "\033[33m"};
    return (struct look){"no", "✗", "\033[31m"};
}

static const char *text_of(const json_t *layer, const char *key)
{
    const char *text = json_string_value(json_object_get(layer, key));
    return text ? text : "";
}

static int width_of(const json_t *layers, const char *key)
{
    size_t width = 0, index;
    const json_t *layer;
    json_array_foreach(layers, index, layer) {
        size_t length = strlen(text_of(layer, key));
        width = length > width ? length : width;
    }
    return (int)width;
}

static void print_layers(const json_t *layers, bool extra, bool colour)
{
    int name = width_of(layers, "name"), purpose = width_of(layers, "purpose");
    size_t index;
    const json_t *layer;
    json_array_foreach(layers, index, layer) {
        if (json_is_true(json_object_get(layer, "extra")) != extra)
            continue;
        struct look look = look_of(text_of(layer, "state"));
        printf("  %s%s %-6s%s  %-*s  %-*s  %s\n", colour ? look.colour : "", look.mark, look.word,
               colour ? "\033[0m" : "", name, text_of(layer, "name"), purpose, text_of(layer, "purpose"),
               text_of(layer, "detail"));
    }
}

/* Prints the names of all layers that share a fix, if `at` is the first of them. */
static bool print_fix_names(const json_t *layers, size_t at, const char *fix)
{
    for (size_t i = 0; i < at; i++)
        if (strcmp(text_of(json_array_get(layers, i), "fix"), fix) == 0)
            return false;
    for (size_t i = at; i < json_array_size(layers); i++) {
        const json_t *layer = json_array_get(layers, i);
        if (strcmp(text_of(layer, "fix"), fix) == 0)
            printf("%s%s%s", i == at ? "  " : ", ", text_of(layer, "name"),
                   json_is_true(json_object_get(layer, "extra")) ? " (extra)" : "");
    }
    printf(":\n");
    return true;
}

/* A fix may have several lines: each is set in below the names. */
static void print_fixes(const json_t *layers)
{
    bool first = true;
    for (size_t at = 0; at < json_array_size(layers); at++) {
        const char *fix = text_of(json_array_get(layers, at), "fix");
        if (!*fix)
            continue;
        if (first)
            printf("\nWhat to do:\n");
        first = false;
        if (!print_fix_names(layers, at, fix))
            continue;
        for (const char *line = fix; *line;) {
            size_t length = strcspn(line, "\n");
            printf("      %.*s\n", (int)length, line);
            line += length + (line[length] == '\n');
        }
    }
}

static void print_table(const json_t *doctor, bool able)
{
    const char *no_colour = getenv("NO_COLOR");
    bool colour = isatty(STDOUT_FILENO) && !(no_colour && *no_colour);
    const json_t *layers = json_object_get(doctor, "layers");
    printf("Needed for the default policy (Linux %s):\n", text_of(doctor, "kernel"));
    print_layers(layers, false, colour);
    printf("\nThe default policy does without:\n");
    print_layers(layers, true, colour);
    print_fixes(layers);
    printf("\n%s\n", able ? "The default policy can be enforced here."
                          : "The default policy can't be enforced here, so cellblock refuses to run programs.");
    if (!able && strcmp(text_of(doctor, "tier"), "landlock") == 0)
        printf("The weaker tier without namespaces can: cellblock run --isolation landlock%s (cellblock-run(1), TIERS).\n",
               geteuid() == 0 ? " --accept-weaker ids" : "");
}

int cb_cli_doctor(int argc, char **argv)
{
    bool as_json = false;
    for (int key; (key = cb_next_option(argc, argv, options)) != -1;)
        switch (key) {
        case 'j':
            as_json = true;
            break;
        case 'h':
            cb_print_help(stdout, usage, description, options);
            return 0;
        default:
            return CB_EXIT_FAILED;
        }
    if (optind < argc)
        return cb_usage_error("doctor", "doctor takes no arguments, but was given '%s'", argv[optind]);
    cb_autofree char *json = NULL;
    cellblock_error *error = NULL;
    if (cellblock_doctor_json(&json, &error) < 0)
        return cb_report_error(error);
    json_t *doctor = json_loads(json, 0, NULL);
    if (!doctor)
        return CB_EXIT_FAILED;
    bool able = json_is_true(json_object_get(doctor, "can_enforce_default"));
    if (as_json)
        puts(json);
    else
        print_table(doctor, able);
    json_decref(doctor);
    return able ? 0 : EXIT_GAP;
}
