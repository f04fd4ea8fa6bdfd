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

int cb_next_option(int argc, char **argv, const struct cb_option *options)
{
    struct option table[MAX_OPTIONS] = {{0}};
    size_t count = 0;
    for (; (options->name || options->help) && count < MAX_OPTIONS - 1; options++)
        if (options->name)
            table[count++] = (struct option){.name = options->name,
                                             .has_arg = options->argument ? required_argument : no_argument,
                                             .val = options->key};
    opterr = 0;
    /* "+": the first word that is no option is the program, and what follows belongs to it. */
    int found = getopt_long(argc, argv, "+:h", table, NULL);
    if (found == ':')
        cb_usage_error(argv[0], "%s needs an argument", argv[optind - 1]);
    else if (found == '?')
        cb_usage_error(argv[0], "there is no option '%s'", argv[optind - 1]);
    return found == ':' ? '?' : found;
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
