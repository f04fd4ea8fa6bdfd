/* SPDX-License-Identifier: Apache-2.0
 *
 * libcellblock: run code that nobody vouches for, in a cell.
 *
 * In short:
 *
 *     cellblock_policy *policy = NULL;
 *     cellblock_result *result = NULL;
 *     cellblock_error *error = NULL;
 *     const char *argv[] = {"python3", "-c", "print(6 * 7)", NULL};
 *     struct cellblock_options options = {.size = sizeof options, .argv = argv, .collect = 1};
 *
 *     if (cellblock_policy_new(&policy, &error) == 0 &&
 *         cellblock_run(policy, &options, &result, &error) == 0)
 *         printf("%s", cellblock_result_stdout(result, NULL));
 *     else
 *         fprintf(stderr, "%s\n", cellblock_error_message(error));
 *
 * Rules that hold for every function:
 *  - Handles are opaque. Each has one free function, which accepts NULL.
 *  - A function that can fail returns 0, or -1 and an error object through its last parameter (which may be NULL).
 *    Outputs are written only on success.
 *  - The library prints nothing, never exits, installs no signal handler, keeps no global state and leaves the
 *    caller's working directory, umask and signal mask alone.
 *  - Different handles may be used from different threads at the same time; one handle from one thread at a time.
 *  - Strings that a getter returns live as long as the handle that they came from.
 *  - If a protection that the policy asks for can't be applied, the program does not run.
 */
#ifndef CELLBLOCK_H
#define CELLBLOCK_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CELLBLOCK_PUBLIC __attribute__((visibility("default")))

typedef struct cellblock_error cellblock_error;
typedef struct cellblock_policy cellblock_policy;
typedef struct cellblock_cell cellblock_cell;
typedef struct cellblock_result cellblock_result;

/* The version of the library that is running, such as "0.1.0". */
CELLBLOCK_PUBLIC const char *cellblock_version(void);

/* ---- Errors -------------------------------------------------------------------------------------------------- */

enum cellblock_error_code {
    CELLBLOCK_ERROR_POLICY = 1, /* the policy is malformed or contradicts itself */
    CELLBLOCK_ERROR_USAGE,      /* the caller's arguments make no sense */
    CELLBLOCK_ERROR_REFUSED,    /* a protection that was asked for can't be had on this machine */
    CELLBLOCK_ERROR_SETUP,      /* a step of setting up the cell failed; nothing ran */
    CELLBLOCK_ERROR_SYSTEM,     /* a system call outside the cell failed */
    CELLBLOCK_ERROR_MEMORY,     /* out of memory */
    CELLBLOCK_ERROR_PROGRAM,    /* the program is not there in the cell (ENOENT), or can't be executed */
};

CELLBLOCK_PUBLIC enum cellblock_error_code cellblock_error_code(const cellblock_error *error);
/* The errno behind it, or 0. */
CELLBLOCK_PUBLIC int cellblock_error_errno(const cellblock_error *error);
/* What was tried, on what, and why it failed. Never NULL; "no error" for NULL. */
CELLBLOCK_PUBLIC const char *cellblock_error_message(const cellblock_error *error);
/* The protection that could not be applied ("user-namespace", "landlock", …), or NULL. */
CELLBLOCK_PUBLIC const char *cellblock_error_layer(const cellblock_error *error);
/* What the person can do about it, or NULL. */
CELLBLOCK_PUBLIC const char *cellblock_error_hint(const cellblock_error *error);
CELLBLOCK_PUBLIC void cellblock_error_free(cellblock_error *error);

/* ---- Policies ------------------------------------------------------------------------------------------------ */

/* The default policy: the built-in profile "base". */
CELLBLOCK_PUBLIC int cellblock_policy_new(cellblock_policy **policy, cellblock_error **error);

/* Reads a policy from a file. A document that has no "extends" extends "base". */
CELLBLOCK_PUBLIC int cellblock_policy_load_file(const char *path, cellblock_policy **policy, cellblock_error **error);

/* Reads a policy from memory; `name` stands for it in messages and origins. */
CELLBLOCK_PUBLIC int cellblock_policy_load_text(const char *text, size_t length, const char *name,
                                                cellblock_policy **policy, cellblock_error **error);

/* Adds a document on top of a policy, as if it had the policy in its "extends": lists grow, single values are
 * replaced. This is what command-line flags and constructor arguments compile to: it can grant. */
CELLBLOCK_PUBLIC int cellblock_policy_add_text(cellblock_policy *policy, const char *text, size_t length,
                                               const char *name, cellblock_error **error);

/* Takes a document away again that cellblock_policy_add_text() added (or the one that was loaded), by its name; of
 * several with that name the last one. Profiles that it extended stay, and so does what tightens. */
CELLBLOCK_PUBLIC int cellblock_policy_remove(cellblock_policy *policy, const char *name, cellblock_error **error);

/* Combines with another policy so that the result allows only what both allow. What `other` says nothing about stays
 * as it is. For a file that came with a project nobody vouches for: it can only tighten. */
CELLBLOCK_PUBLIC int cellblock_policy_tighten(cellblock_policy *policy, const cellblock_policy *other,
                                              cellblock_error **error);

/* The resolved policy as JSON, each rule with its origin. The caller frees the string with free(). */
CELLBLOCK_PUBLIC int cellblock_policy_json(const cellblock_policy *policy, char **json, cellblock_error **error);

/* The JSON Schema of policy files, generated from the table that the parser uses. Free with free(). */
CELLBLOCK_PUBLIC int cellblock_policy_schema(char **json, cellblock_error **error);

CELLBLOCK_PUBLIC void cellblock_policy_free(cellblock_policy *policy);

/* ---- The machine --------------------------------------------------------------------------------------------- */

/* What this machine can enforce, layer by layer, as JSON: {"tier": …, "can_enforce_default": …, "layers": [{"name",
 * "state", "detail", "fix"}]}. Found by trying; starts short-lived child processes. Free with free(). */
CELLBLOCK_PUBLIC int cellblock_doctor_json(char **json, cellblock_error **error);

/* ---- Running ------------------------------------------------------------------------------------------------- */

enum cellblock_helper {
    CELLBLOCK_HELPER_AUTO = 0,  /* a helper process when this process is large (forking it would be slow) */
    CELLBLOCK_HELPER_NEVER,     /* always start the cell from this process */
    CELLBLOCK_HELPER_ALWAYS,    /* always through the helper; fails if there is none */
};

struct cellblock_options {
    size_t size;                  /* sizeof(struct cellblock_options): lets the struct grow */
    const char *const *argv;      /* the program and its arguments, NULL-terminated; looked up in PATH of the cell */
    const char *const *envp;      /* the environment that the policy filters; NULL: this process's own */
    const char *directory;        /* where relative paths and the default workspace start; NULL: the current one */
    int collect;                  /* 1: stdout and stderr are collected into the result */
    int stdio[3];                 /* the descriptors to pass as 0, 1 and 2 (with collect, only the first counts). All
                                   * zero: this process's own. -1: nothing (/dev/null). Files and pipes as input are
                                   * handed over; what the program writes to a file, a pipe or a socket is relayed, by
                                   * cellblock_dispatch(), as no such descriptor enters a cell. Instead of a terminal
                                   * the cell gets one of its own, with the same settings and size, whose other side
                                   * is relayed: see cellblock_reads_terminal() */
    enum cellblock_helper helper;
    const char *helper_path;      /* the `cellblock` program; NULL: where this library was installed with it */
    unsigned long open_files;     /* the soft limit on open files that the program starts with, for a caller that has
                                   * raised its own; 0: this process's own */
    int foreground;               /* 1: what is typed at this process's terminal goes to the program from the start.
                                   * 0: only once the program reads from its terminal, or changes its settings */
    int network;                  /* 1: rules for the network may be added while the cell runs, also when the policy has
                                   * none: see cellblock_rules_add() */
};

/* What would be enforced, as JSON, with no process started. Free with free(). */
CELLBLOCK_PUBLIC int cellblock_plan_json(const cellblock_policy *policy, const struct cellblock_options *options,
                                         char **json, cellblock_error **error);

/* Starts a cell and returns once the program has been started in it (or could not be). */
CELLBLOCK_PUBLIC int cellblock_start(const cellblock_policy *policy, const struct cellblock_options *options,
                                     cellblock_cell **cell, cellblock_error **error);

/* A descriptor that polls readable when cellblock_dispatch() has something to do. Owned by the cell. */
CELLBLOCK_PUBLIC int cellblock_fd(const cellblock_cell *cell);

/* Does what is due, without blocking. Returns 1 when the run has ended and the result is there, 0 when it goes on, -1
 * on error (the cell is then ended). */
CELLBLOCK_PUBLIC int cellblock_dispatch(cellblock_cell *cell, cellblock_error **error);

/* Returns 1 while what is typed at this process's terminal is passed on to the program, by cellblock_dispatch(); else
 * 0. It is while the program uses a terminal of its own for input (see `foreground`) and this process is in the
 * foreground of its. The library leaves the settings of this process's terminal alone. To let single keys and Ctrl-C
 * get through, and not to show what is typed twice, put it into raw mode (cfmakeraw) while this returns 1; look after
 * cellblock_start() and after each cellblock_dispatch(). */
CELLBLOCK_PUBLIC int cellblock_reads_terminal(const cellblock_cell *cell);

/* Sends a signal to the program (SIGKILL ends every process of the cell). If the cell has a terminal, SIGWINCH makes it
 * take the size of this process's terminal again instead, and the kernel tells whoever is in its foreground. */
CELLBLOCK_PUBLIC int cellblock_signal(cellblock_cell *cell, int signal, cellblock_error **error);

/* Ends the cell now, every process in it; the result then says "cancelled". */
CELLBLOCK_PUBLIC int cellblock_cancel(cellblock_cell *cell, cellblock_error **error);

/* Blocks until the run has ended and hands over its result. */
CELLBLOCK_PUBLIC int cellblock_wait(cellblock_cell *cell, cellblock_result **result, cellblock_error **error);

/* The result, once cellblock_dispatch() has returned 1. */
CELLBLOCK_PUBLIC int cellblock_finish(cellblock_cell *cell, cellblock_result **result, cellblock_error **error);

/* Ends the cell if it still runs, and frees it. */
CELLBLOCK_PUBLIC void cellblock_cell_free(cellblock_cell *cell);

/* Changes what a running cell may connect to, at once, for new connections. A document with nothing but "network"
 * rules, under a name; what the policy was tightened by still holds. */
CELLBLOCK_PUBLIC int cellblock_rules_add(cellblock_cell *cell, const char *text, size_t length, const char *name,
                                         cellblock_error **error);
/* Takes the document of that name away again: one that was added, or one of the policy's own. cut 1: connections that
 * are no longer allowed are reset. */
CELLBLOCK_PUBLIC int cellblock_rules_remove(cellblock_cell *cell, const char *name, int cut, cellblock_error **error);

/* start + wait. */
CELLBLOCK_PUBLIC int cellblock_run(const cellblock_policy *policy, const struct cellblock_options *options,
                                   cellblock_result **result, cellblock_error **error);

/* What the helper program runs: serves the one caller at the other end of the descriptor, and returns the exit status
 * of the helper. The `cellblock` program does this; an embedder that ships its own helper may too. */
CELLBLOCK_PUBLIC int cellblock_helper_serve(int fd);
/* Likewise: what the same program runs as the relay of a cell whose policy has rules for the network. */
CELLBLOCK_PUBLIC int cellblock_relay_serve(int fd);

/* ---- Results ------------------------------------------------------------------------------------------------- */

/* "exited", "signaled", "timeout", "cancelled", or the limit that ended the run: "memory", "processes", "disk" or
 * "output". Decided by what did the ending. */
CELLBLOCK_PUBLIC const char *cellblock_result_end(const cellblock_result *result);
/* The policy's word for the limit that ended the run ("wall_time", "cpu_time", "memory", "inodes", …), or NULL. */
CELLBLOCK_PUBLIC const char *cellblock_result_limit(const cellblock_result *result);
/* The program's exit code, or -1 when it did not exit by itself. */
CELLBLOCK_PUBLIC int cellblock_result_exit_code(const cellblock_result *result);
/* The signal that ended the program, or 0. */
CELLBLOCK_PUBLIC int cellblock_result_signal(const cellblock_result *result);
/* What a shell would report: the exit code, 128 + signal, or 124 for a timeout. */
CELLBLOCK_PUBLIC int cellblock_result_shell_status(const cellblock_result *result);
/* Collected output, NUL-terminated (it may hold NUL bytes of its own: use the length). */
CELLBLOCK_PUBLIC const char *cellblock_result_stdout(const cellblock_result *result, size_t *length);
CELLBLOCK_PUBLIC const char *cellblock_result_stderr(const cellblock_result *result, size_t *length);
/* What the program wrote to stream 1 or 2 could not be written to the descriptor that the caller gave for it: the errno
 * (ENOSPC, …), or 0. A pipe that nobody reads does not count. */
CELLBLOCK_PUBLIC int cellblock_result_lost(const cellblock_result *result, int stream);
/* The whole result as JSON (see cellblock-run(1)). Free with free(). */
CELLBLOCK_PUBLIC int cellblock_result_json(const cellblock_result *result, char **json, cellblock_error **error);
CELLBLOCK_PUBLIC void cellblock_result_free(cellblock_result *result);

#ifdef __cplusplus
}
#endif

#endif
