/* Single values of a policy: sizes, durations, paths, names. Pure functions: each returns NULL when the value is fine,
 * or a constant text that says what is wrong with it, worded to follow the value ("… is not a size: …"). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes: "4096", "256M", "1GiB". */
const char *cb_value_size(const char *text, uint64_t *bytes);
/* Milliseconds: "5", "1.5s", "100ms", "2m", "1h". Parts of a millisecond are rounded up. */
const char *cb_value_duration(const char *text, uint64_t *milliseconds);

/* Thousandths: "2", "0.5", "1.25". */
const char *cb_value_share(const char *text, uint64_t *thousandths);

/* Checks a path of a file rule, and rewrites it in place: "//" and "/./" collapse, a trailing slash goes and sets
 * *directory. */
const char *cb_value_file_path(char *path, bool *directory);
/* The same for workspace.path: it may go up, and it names one directory, so that "*" is an ordinary character. */
const char *cb_value_workspace_path(char *path);

const char *cb_value_profile_name(const char *text);
const char *cb_value_program_name(const char *text);
const char *cb_value_env_name(const char *text);
const char *cb_value_env_pattern(const char *text);
const char *cb_value_syscall_name(const char *text);
/* Text for a person: no control characters, which could play tricks on a terminal. */
const char *cb_value_plain(const char *text);
