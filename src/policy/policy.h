/* The policy: what is asked, before anything is known of the machine.
 *
 * A document (one file, one profile, or the flags of a call) becomes a `cb_document`. A `cellblock_policy` is a list of
 * layers; each layer is a list of documents that compose (profiles first, later ones on top: lists grow, single values
 * are replaced). Between layers nothing composes: every question is asked of every layer and the strictest answer
 * counts, so a further layer can only tighten. A layer other than the first has no opinion on what it does not mention.
 */
#pragma once

#include "cellblock.h"
#include "base/address.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cb_origin {
    const char *document; /* name of the document: "profile base", "p.jsonc", "--memory '1G'"; owned by the document */
    int line;             /* 1-based; 0 when there is no text behind it that a person has written */
    int column;
};

/* "p.jsonc:12", or an option as it was typed. NULL when out of memory. */
char *cb_origin_text(const struct cb_origin *origin);

enum cb_access { CB_ACCESS_NONE, CB_ACCESS_READ, CB_ACCESS_WRITE };

/* What a rule that protects says of a path that does not exist. */
enum cb_when {
    CB_WHEN_ALWAYS,        /* it can't be made */
    CB_WHEN_PRESENT,       /* nothing */
    CB_WHEN_SWEPT,         /* a file that the code makes there is removed when the cell has ended */
};

struct cb_file_rule {
    char *path;            /* as written: absolute, "~", "~/…", or relative to the workspace */
    enum cb_access access;
    bool optional;         /* a grant for a path that does not exist is skipped, not an error */
    bool directory_only;   /* written with a trailing slash */
    enum cb_when when;
    char *why;             /* or NULL */
    struct cb_origin origin;
    char *real;            /* set by the resolver: the canonical absolute path that the rule stands for; NULL when the
                            * rule does not apply here (optional and absent) */
};

enum cb_protocol { CB_PROTOCOL_TCP, CB_PROTOCOL_UDP };

struct cb_ports {          /* a range, both ends included */
    uint16_t first, last;
};

enum cb_net_kind {
    CB_NET_HOST = 1,
    CB_NET_CIDR,
    CB_NET_LOOPBACK,       /* ports of the host's loopback */
};

struct cb_net_rule {
    enum cb_net_kind kind;
    enum cb_protocol protocol;
    char *host;            /* CB_NET_HOST: in the form of hostname.h; a suffix if it is a wildcard */
    bool wildcard;
    struct cb_prefix prefix; /* CB_NET_CIDR */
    struct cb_ports *ports;
    size_t port_count;     /* at least 1 */
    char *why;             /* or NULL */
    struct cb_origin origin;
};

struct cb_socket_rule {
    char *path;            /* as written: absolute, or "~/…" */
    char *why;
    struct cb_origin origin;
    char *real;            /* set by the resolver: the canonical absolute path */
};

struct cb_publish_rule {
    uint16_t port;         /* the cell's */
    uint16_t as;           /* on the host's loopback */
    char *why;
    struct cb_origin origin;
};

enum cb_workspace_mode { CB_WORKSPACE_DIRECT, CB_WORKSPACE_SCRATCH };

enum cb_limit {
    CB_LIMIT_MEMORY,     /* bytes */
    CB_LIMIT_CPU_TIME,   /* milliseconds */
    CB_LIMIT_WALL_TIME,  /* milliseconds */
    CB_LIMIT_PROCESSES,  /* count */
    CB_LIMIT_OPEN_FILES, /* count */
    CB_LIMIT_FILE_SIZE,  /* bytes */
    CB_LIMIT_OUTPUT,     /* bytes, per stream */
    CB_LIMIT_TMP,        /* bytes: /tmp, the private home and /dev/shm together */
    CB_LIMIT_CPUS,       /* thousandths of a processor */
    CB_LIMIT_DISK,       /* bytes written to writable directories */
    CB_LIMIT_INODES,     /* files made in writable directories */
    CB_LIMIT_NETWORK_BYTES, /* bytes relayed in both directions together */
    CB_LIMIT_CONNECTIONS, /* count, relayed at the same time */
    CB_LIMIT_COUNT,
};
#define CB_UNLIMITED UINT64_MAX

enum cb_syscall_profile { CB_SYSCALLS_DEFAULT, CB_SYSCALLS_STRICT };
enum cb_isolation { CB_ISOLATION_AUTO, CB_ISOLATION_NAMESPACES, CB_ISOLATION_LANDLOCK };

struct cb_named {           /* a string with its origin: list items of several kinds */
    char *name;
    char *value;            /* env.set only, else NULL */
    struct cb_origin origin;
};

struct cb_names {
    struct cb_named *items;
    size_t count;
    bool given;             /* the section was there, even if empty */
};

struct cb_document {
    char *name;
    char *text;             /* the source, kept so that a policy can be handed to a helper process; NULL for profiles */
    size_t text_length;
    bool implicit;          /* the profile is here only because a document had no "extends" */

    char *workspace_path;   /* or NULL */
    bool workspace_mode_given;
    enum cb_workspace_mode workspace_mode;
    struct cb_origin workspace_origin;

    struct cb_file_rule *files;
    size_t file_count;
    bool files_given;

    struct cb_net_rule *network;
    size_t network_count;
    bool network_given;

    struct cb_socket_rule *sockets;
    size_t socket_count;
    bool sockets_given;

    struct cb_publish_rule *publish;
    size_t publish_count;
    bool publish_given;

    struct cb_names programs;      /* names whose installation becomes readable */
    struct cb_names env_pass;      /* exact, or a prefix followed by "*" */
    struct cb_names env_set;

    bool limit_given[CB_LIMIT_COUNT];
    uint64_t limit[CB_LIMIT_COUNT];          /* CB_UNLIMITED for null */
    struct cb_origin limit_origin[CB_LIMIT_COUNT];

    bool syscalls_given;    /* a profile was named; the two lists below have their own `given` */
    enum cb_syscall_profile syscall_profile;
    struct cb_origin syscalls_origin;
    struct cb_names syscall_deny, syscall_allow;

    bool isolation_given;
    enum cb_isolation isolation;
    struct cb_origin isolation_origin;

    struct cb_names accept_weaker;
};

struct cb_layer {
    struct cb_document **documents; /* in order of composition: the last one is on top */
    size_t count;
};

struct cellblock_policy {
    struct cb_layer *layers;
    size_t count; /* at least 1 */
};

/* ---- Reading (document.c, jsonc.c, schema.c) ---- */

/* Parses one document, strictly. Errors name line, column and the nearest known key. `extends` is returned as a list
 * of profile names, for the caller to load. */
int cb_document_parse(const char *text, size_t length, const char *name, struct cb_document **document,
                      struct cb_names *extends, cellblock_error **error);
void cb_document_free(struct cb_document *document);
void cb_names_free(struct cb_names *names);
/* The rules of network.h; network_rules.c. */
void cb_document_free_network(struct cb_document *document);

/* The built-in profiles, embedded at build time (profiles.c). NULL when there is none of that name. */
const char *cb_profile_text(const char *name, size_t *length);
/* NULL-terminated list of the names. */
const char *const *cb_profile_names(void);

/* A deep copy, so that resolving one use of a policy does not touch another. */
int cb_policy_copy(const cellblock_policy *policy, cellblock_policy **copy, cellblock_error **error);

/* ---- Deciding (decide.c; for the network, network.h): the only places where a policy is interpreted ---- */

struct cb_file_decision {
    enum cb_access access;
    const struct cb_file_rule *rule; /* NULL: no rule matched, the default (none) decided */
};

/* What the policy says of a canonical absolute path, after resolution (rules without `real` are passed over). Most
 * specific path wins; among rules for an equal path the later document wins, except that none beats all. Across
 * layers the strictest answer counts. */
struct cb_file_decision cb_decide_file(const cellblock_policy *policy, const char *path);

struct cb_limit_decision {
    uint64_t value;                    /* CB_UNLIMITED when nobody set one */
    const struct cb_origin *origin;    /* NULL: default */
};
struct cb_limit_decision cb_decide_limit(const cellblock_policy *policy, enum cb_limit limit);

/* May a variable of the caller's environment be passed on? */
struct cb_env_decision {
    bool pass;
    const char *set;                   /* a fixed value that replaces it, or NULL */
    const struct cb_origin *origin;
};
struct cb_env_decision cb_decide_env(const cellblock_policy *policy, const char *name);

/* The names that env.set gives (each once, in order), for those that the caller's environment lacks. Calls visit until
 * it returns non-zero, and returns that. */
int cb_policy_env_set(const cellblock_policy *policy,
                      int (*visit)(const char *name, const char *value, void *data), void *data);

enum cb_workspace_mode cb_decide_workspace_mode(const cellblock_policy *policy);
/* As written, relative to the caller's directory; "." by default. */
const char *cb_decide_workspace_path(const cellblock_policy *policy);

enum cb_syscall_profile cb_decide_syscall_profile(const cellblock_policy *policy);
/* Custom rules on top of the profile: -1 deny, +1 allow, 0 no opinion. Deny wins. */
int cb_decide_syscall_custom(const cellblock_policy *policy, const char *syscall);
bool cb_policy_has_custom_syscalls(const cellblock_policy *policy);

enum cb_isolation cb_decide_isolation(const cellblock_policy *policy);
/* Does every layer that has an opinion accept to go without this? */
bool cb_decide_accept_weaker(const cellblock_policy *policy, const char *what);

/* ---- Words (shared by the parser, the schema and the JSON output) ---- */
const char *cb_access_word(enum cb_access access);
const char *cb_limit_word(enum cb_limit limit);
const char *cb_protocol_word(enum cb_protocol protocol);
const char *cb_isolation_word(enum cb_isolation isolation);
