/* Names of hosts: how they are written in rules, and whether one matches. Pure functions. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define CB_HOSTNAME_MOST 253
#define CB_HOSTNAME_TEXT (CB_HOSTNAME_MOST + 1)

/* Reads the name of a rule: an exact one, or "*." and a suffix (then *wildcard, and `name` is the suffix). It comes
 * out in lower case, without a dot at its end, international names in their ASCII form. Returns 0; or -1 with, in
 * *reason, what is wrong, worded to follow the text, and in *hint what to do (or NULL); *reason is NULL when memory
 * ran out. */
int cb_hostname_rule(const char *text, char name[static CB_HOSTNAME_TEXT], bool *wildcard, const char **reason,
                     const char **hint);

/* Brings a name that somebody asks for into the same form, or returns false if no rule could match it. For bytes that
 * are not to be trusted: any bytes, any length, with or without a dot at the end, no wildcards and nothing
 * international. */
bool cb_hostname_plain(const char *bytes, size_t length, char name[static CB_HOSTNAME_TEXT]);

/* Both in that form. A wildcard stands for one or more labels in front of the suffix. */
bool cb_hostname_matches(const char *rule, bool wildcard, const char *name);
