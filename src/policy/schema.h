/* The one table of what a policy may say: the parser reads by it, and the published JSON Schema is printed from it. */
#pragma once

#include "cellblock.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum cb_kind {
    CB_KIND_VERSION, /* the number 1 */
    CB_KIND_TEXT,    /* a string for people or editors */
    CB_KIND_PATH,
    CB_KIND_WORD,     /* one of `words` */
    CB_KIND_FLAG,     /* true or false */
    CB_KIND_SIZE,     /* bytes; null: unlimited */
    CB_KIND_DURATION, /* time; null: unlimited */
    CB_KIND_COUNT,    /* a whole number; null: unlimited */
    CB_KIND_SHARE,    /* a number with up to three decimals, kept in thousandths; null: unlimited */
    CB_KIND_NAMES,    /* a list of strings, each one of `words` or passed by `check` */
    CB_KIND_VALUES,   /* an object of strings, the keys passed by `check` */
    CB_KIND_OBJECT,   /* an object with the keys of `section` */
    CB_KIND_RULES,    /* a list of such objects */
    CB_KIND_WORD_OR_OBJECT,
    CB_KIND_HOST,  /* the name of a host, or a wildcard */
    CB_KIND_CIDR,  /* an address, or a range of them */
    CB_KIND_PORT,  /* a number */
    CB_KIND_PORTS, /* a number, a range such as "8000-8100", or a list of both */
};

enum cb_key_id {
    CB_KEY_SCHEMA,
    CB_KEY_VERSION,
    CB_KEY_EXTENDS,
    CB_KEY_WORKSPACE,
    CB_KEY_WORKSPACE_PATH,
    CB_KEY_WORKSPACE_MODE,
    CB_KEY_FILES,
    CB_KEY_FILE_PATH,
    CB_KEY_FILE_ACCESS,
    CB_KEY_FILE_OPTIONAL,
    CB_KEY_FILE_WHEN,
    CB_KEY_WHY, /* of any kind of rule */
    CB_KEY_PROGRAMS,
    CB_KEY_NETWORK,
    CB_KEY_NET_HOST,
    CB_KEY_NET_CIDR,
    CB_KEY_NET_LOOPBACK,
    CB_KEY_NET_PORTS,
    CB_KEY_NET_PROTOCOL,
    CB_KEY_SOCKETS,
    CB_KEY_SOCKET_PATH,
    CB_KEY_PUBLISH,
    CB_KEY_PUBLISH_PORT,
    CB_KEY_PUBLISH_AS,
    CB_KEY_LIMITS,
    CB_KEY_LIMIT, /* which one: `number` */
    CB_KEY_ENV,
    CB_KEY_ENV_PASS,
    CB_KEY_ENV_SET,
    CB_KEY_SYSCALLS,
    CB_KEY_SYSCALL_PROFILE,
    CB_KEY_SYSCALL_DENY,
    CB_KEY_SYSCALL_ALLOW,
    CB_KEY_ISOLATION,
    CB_KEY_ACCEPT_WEAKER,
};

struct cb_word {
    const char *word;
    int value;               /* of the C enum that it stands for */
    const char *unavailable; /* why it is refused in this version, or NULL */
};

struct cb_section;

struct cb_key {
    const char *name;
    enum cb_key_id id;
    enum cb_kind kind;
    const char *doc; /* one sentence */
    bool required;
    int number;                         /* CB_KEY_LIMIT: the enum cb_limit */
    uint64_t minimum, maximum;          /* sizes, durations (milliseconds) and counts */
    const struct cb_word *words;        /* ends with a NULL word */
    const char *(*check)(const char *); /* see values.h */
    const char *pattern;                /* the same as `check`, as a regular expression for editors */
    const struct cb_section *section;
};

/* One of the forms that an object can have: it is told by the key that only this form has. */
struct cb_form {
    const char *key;
    const char *needs;     /* a key that this form must have as well, or NULL */
    const char *needs_why; /* said when it is missing */
    const char *bars;      /* a key that it can't have, or NULL */
    const char *bars_why;
};

struct cb_section {
    const struct cb_key *keys;
    size_t count;
    const struct cb_form *forms; /* ends with a NULL key; NULL: there is but one form */
};

/* The top level of a document. */
extern const struct cb_section cb_schema;

const struct cb_key *cb_schema_find(const struct cb_section *section, const char *name);
/* The known key that a person probably meant, or NULL. */
const char *cb_schema_nearest(const struct cb_section *section, const char *name);
const struct cb_word *cb_word_find(const struct cb_word *words, const char *word);
const char *cb_word_nearest(const struct cb_word *words, const char *word);
/* The word for a value, or NULL. */
const char *cb_word_of(const struct cb_word *words, int value);

/* Keeps the best candidate: `*nearest` becomes `candidate` when it is close to `name` and closer than *distance. Start
 * with cb_nearest_start(). */
void cb_nearest(const char *name, const char *candidate, const char **nearest, unsigned *distance);
unsigned cb_nearest_start(const char *name);

extern const struct cb_word cb_access_words[], cb_mode_words[], cb_when_words[], cb_syscall_profile_words[],
    cb_isolation_words[], cb_weaker_words[], cb_protocol_words[];
