/* Option tables, help and messages: what all commands share. */
#include "base/cleanup.h"
#include "base/text.h"
#include "cli/cli.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

enum { HELP_COLUMN = 26, MAX_OPTIONS = 48 };

void cb_print_help(FILE *stream, const char *usage, const char *description, const struct cb_option *options)
{
    fprintf(stream, "Usage: %s\n\n%s\n", usage, description);
    for (; options->name || options->help; options++) {
        if (!options->name) {
            fprintf(stream, "\n%s:\n", options->help);
            continue;
        }
        char left[64];
        snprintf(left, sizeof left, "  --%s%s%s", options->name, options->argument ? " " : "",
                 options->argument ? options->argument : "");
        fprintf(stream, "%-*s%s\n", HELP_COLUMN, left, options->help);
    }
}

/* The nearest option, for a slip of the fingers; NULL when none is near. */
static const char *nearest(const struct cb_option *options, const char *name)
{
    const char *best = NULL;
    unsigned distance = 3;
    for (; options->name || options->help; options++)
        if (options->name && cb_edit_distance(name, options->name, 3) < distance) {
            distance = cb_edit_distance(name, options->name, 3);
            best = options->name;
        }
    return best;
}

static int unknown_option(const char *command, const struct cb_option *options, const char *word)
{
    cb_autofree char *name = strndup(word + strspn(word, "-"), strcspn(word + strspn(word, "-"), "="));
    const char *guess = name ? nearest(options, name) : NULL;
    if (guess)
        cb_usage_error(command, "there is no option '%s': did you mean --%s?", word, guess);
    else
        cb_usage_error(command, "there is no option '%s'", word);
    return '?';
}

int cb_next_option(int argc, char **argv, const struct cb_option *options)
{
    struct option table[MAX_OPTIONS] = {{0}};
    size_t count = 0;
    for (const struct cb_option *at = options; (at->name || at->help) && count < MAX_OPTIONS - 1; at++)
        if (at->name)
            table[count++] = (struct option){
                .name = at->name, .has_arg = at->argument ? required_argument : no_argument, .val = at->key};
    opterr = 0;
    int before = optind ? optind : 1, index = -1;
    /* "+": the first word that is no option is the program, and what follows belongs to it. */
    int found = getopt_long(argc, argv, "+:h", table, &index);
    const char *word = before < argc ? argv[before] : "";
    if (found == ':') {
        cb_usage_error(argv[0], "%s needs an argument", word);
        return '?';
    }
    /* No abbreviations: what is short for one option today may be another's tomorrow. */
    size_t length = index >= 0 ? strlen(table[index].name) : 0;
    bool whole = index < 0 || (strncmp(word + 2, table[index].name, length) == 0 &&
                               (word[length + 2] == '\0' || word[length + 2] == '='));
    return found == '?' || !whole ? unknown_option(argv[0], options, word) : found;
}

static void print_safely(const char *prefix, const char *text)
{
    /* Lines are ours, the rest may hold names that somebody chose to upset a terminal. */
    for (const char *line = text; *line;) {
        size_t length = strcspn(line, "\n");
        cb_autofree char *safe = cb_printable(line, length);
        fprintf(stderr, "%s%s\n", prefix, safe ? safe : "");
        line += length + (line[length] == '\n');
        prefix = "  ";
    }
}

int cb_report_error(cellblock_error *error)
{
    enum cellblock_error_code code = cellblock_error_code(error);
    int errnum = cellblock_error_errno(error);
    print_safely("cellblock: ", cellblock_error_message(error));
    if (cellblock_error_layer(error))
        print_safely("  layer: ", cellblock_error_layer(error));
    if (cellblock_error_hint(error))
        print_safely("  what to do: ", cellblock_error_hint(error));
    cellblock_error_free(error);
    if (code != CELLBLOCK_ERROR_PROGRAM)
        return CB_EXIT_FAILED;
    return errnum == ENOENT || errnum == ENOTDIR ? CB_EXIT_NOT_FOUND : CB_EXIT_CANNOT_RUN;
}

int cb_usage_error(const char *command, const char *format, ...)
{
    char *text = NULL;
    va_list arguments;
    va_start(arguments, format);
    if (vasprintf(&text, format, arguments) < 0)
        text = NULL;
    va_end(arguments);
    print_safely("cellblock: ", text ? text : "bad usage");
    free(text);
    fprintf(stderr, "  what to do: see `cellblock %s%s--help`\n", command ? command : "", command ? " " : "");
    return CB_EXIT_FAILED;
}
