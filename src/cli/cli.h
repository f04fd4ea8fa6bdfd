/* The command line program. It sits on the public API; everything it does, an embedder can do. */
#pragma once

#include "cellblock.h"

#include <getopt.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <termios.h>

enum { CB_EXIT_FAILED = 125, CB_EXIT_CANNOT_RUN = 126, CB_EXIT_NOT_FOUND = 127 };

/* One table per command: getopt_long and the help text are both made from it. */
struct cb_option {
    const char *name;
    int key;                 /* what getopt_long returns; its own character for a short form too */
    const char *argument;    /* what stands for the argument in the help, or NULL */
    const char *help;        /* NULL with no name: `heading` */
};

/* Prints usage, description and the table to `stream`. */
void cb_print_help(FILE *stream, const char *usage, const char *description, const struct cb_option *options);
/* getopt_long over the table; prints a message of its own for what it does not know ('?' is returned). */
int cb_next_option(int argc, char **argv, const struct cb_option *options);

/* Prints "cellblock: …" with layer and hint, safe for a terminal, and frees the error. Returns the exit status. */
int cb_report_error(cellblock_error *error);
/* The same for a mistake in the command line. */
int cb_usage_error(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* One flag, compiled to a document of its own, so that messages can name it. */
struct cb_flag {
    char *name;              /* as the person would recognise it: "--memory '1G'" */
    json_t *document;
};

/* Flags that make up a policy, shared by `run` and `policy show`. */
struct cb_policy_flags {
    const char *policy, *profile;
    const char **tighten;
    size_t tighten_count;
    struct cb_flag *others;  /* on top of that, in their order */
    size_t other_count;
};
int cb_policy_from_flags(const struct cb_policy_flags *flags, cellblock_policy **policy, cellblock_error **error);
/* "~/x" and relative paths as a caller means them, made absolute. NULL when out of memory. */
char *cb_absolute_path(const char *path);
int cb_flag_tighten(struct cb_policy_flags *flags, const char *file);
/* Takes the document over. `value` may be NULL. -1 when it can't be taken. */
int cb_flag_add(struct cb_policy_flags *flags, const char *option, const char *value, json_t *document);
void cb_policy_flags_end(struct cb_policy_flags *flags);

/* Flags that become rules on what can be reached (network.c). Returns 0, or the exit status, the message printed. */
enum cb_network_flag { CB_FLAG_NET, CB_FLAG_PUBLISH, CB_FLAG_SOCKET };
int cb_flag_network(const char *command, enum cb_network_flag kind, const char *text, struct cb_policy_flags *flags);

/* The person's terminal while a program runs (terminal.c). */
struct cb_terminal_mode {
    int fd;                  /* the first of 0, 1 and 2 that is one, or -1 */
    bool lines;              /* standard output is none: what is shown keeps its line ends */
    bool is_raw;
    struct termios before, raw;
};
void cb_terminal_find(struct cb_terminal_mode *mode);
/* Are we in its foreground, with nothing else around that might want its keys? */
bool cb_terminal_is_for_program(const struct cb_terminal_mode *mode);
/* Raw from when keys are passed on; up to the end, as the last output was made for that. */
void cb_terminal_follow(struct cb_terminal_mode *mode, bool reads);
/* We were continued, or are told to stop. */
void cb_terminal_signal(struct cb_terminal_mode *mode, int number);
void cb_terminal_restore(struct cb_terminal_mode *mode);

int cb_cli_run(int argc, char **argv);
int cb_cli_policy(int argc, char **argv);
int cb_cli_doctor(int argc, char **argv);
