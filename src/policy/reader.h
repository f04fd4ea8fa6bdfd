/* What reading a document is made of: values by the table in schema.c, and refusals that name the place. Shared by
 * document.c and network_rules.c. All functions return 0, or -1 with the error filled in. */
#pragma once

#include "policy/jsonc.h"
#include "policy/policy.h"
#include "policy/schema.h"

struct cb_reader {
    struct cb_document *document;
    struct cb_names *extends;
    /* The rule that is being read: one of these, and its slot for "why". */
    struct cb_file_rule *rule;
    struct cb_net_rule *net;
    struct cb_socket_rule *socket;
    struct cb_publish_rule *publish;
    char **why;
    cellblock_error **error;
};

/* Where a key stands, for messages only: "", "limits" or "files" with an index. */
struct cb_where {
    const char *section;
    long index; /* -1: not in a list */
};

#define CB_SHOWN 80 /* bytes of the person's own text that a message repeats */

int cb_refuse(const struct cb_reader *reader, int line, int column, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* "files[0].access must be a string, not a number" */
int cb_refuse_type(const struct cb_reader *reader, struct cb_where where, const struct cb_key *key,
                   const struct cb_json *value, const char *wanted);
/* files[0].path: "text" reason */
int cb_refuse_value(const struct cb_reader *reader, struct cb_where where, const struct cb_key *key,
                    const struct cb_json *value, const char *text, const char *reason);
int cb_refuse_word(const struct cb_reader *reader, struct cb_where where, const struct cb_key *key,
                   const struct cb_json *value, const char *text);

/* The name of a key as a person would point at it: files[3].access. */
const char *cb_full_name(const struct cb_reader *reader, struct cb_where where, const char *key, char buffer[static 128]);
const char *cb_type_word(const struct cb_json *value);
/* NULL when it is no string. */
const char *cb_string_of(const struct cb_json *value);
struct cb_origin cb_origin_of(const struct cb_reader *reader, const struct cb_json *node);

int cb_copy_string(const struct cb_reader *reader, const char *text, char **out);
int cb_check_length(const struct cb_reader *reader, struct cb_where where, const struct cb_key *key,
                    const struct cb_json *value);
int cb_read_word(const struct cb_reader *reader, struct cb_where where, const struct cb_key *key,
                 const struct cb_json *value, int *out);
int cb_read_text(const struct cb_reader *reader, struct cb_where where, const struct cb_key *key,
                 const struct cb_json *value, const char **out);

/* ---- network_rules.c ---- */

/* The keys of rules in "network", "sockets" and "publish". */
int cb_read_net_host(const struct cb_reader *reader, struct cb_where where, const struct cb_key *key,
                     const struct cb_json *value);
int cb_read_net_cidr(const struct cb_reader *reader, struct cb_where where, const struct cb_key *key,
                     const struct cb_json *value);
int cb_read_net_ports(const struct cb_reader *reader, struct cb_where where, const struct cb_key *key,
                      const struct cb_json *value);
int cb_read_port(const struct cb_reader *reader, struct cb_where where, const struct cb_key *key,
                 const struct cb_json *value, uint16_t *port);
int cb_read_socket_path(const struct cb_reader *reader, struct cb_where where, const struct cb_key *key,
                        const struct cb_json *value);
/* Once all keys of a rule are read. */
int cb_finish_publish(const struct cb_reader *reader, struct cb_where where, const struct cb_json *item);
