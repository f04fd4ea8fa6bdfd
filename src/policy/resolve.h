/* From the words of a policy to objects on this machine. Every path is resolved here, once, by descriptor; what comes
 * out carries the descriptor and the identity (device, inode) of what was looked at, and the cell refuses to mount
 * anything else under that name. */
#pragma once

#include "policy/policy.h"

#include <sys/types.h>

/* Where the questions are asked from. */
struct cb_context {
    const char *directory;        /* absolute; where the caller stands */
    const char *home;             /* absolute, or NULL */
    const char *search_path;      /* the caller's PATH, or NULL */
    const char *const *argv;
};

/* An object that the cell gets to see (or, inside something visible, gets not to see) on its own terms. */
struct cb_place {
    char *path;                   /* canonical */
    int fd;                       /* O_PATH */
    dev_t device;
    ino_t inode;
    bool directory;
    enum cb_access access;
    const struct cb_file_rule *rule;
    bool callers_own;             /* named by the caller rather than by a profile: root's files may be shown through an
                                   * idmapped mount here, and only here */
};

/* A symbolic link on the way to a granted path, repeated in the cell so that the spelled path works there too. */
struct cb_link {
    char *path;
    char *target;
};

/* A protected path inside something writable that does not exist: the code must not be able to make it. */
struct cb_absent {
    char *path;
    bool directory_only;
    const struct cb_file_rule *rule;
};

/* A file that must not be there when the cell has ended; its directory was there before. */
struct cb_swept {
    int directory;
    char *name;
    char *path;
    const struct cb_file_rule *rule;
};

/* A unix socket of the host that the cell may use. */
struct cb_socket_place {
    int fd;                       /* O_PATH: to connect by /proc/self/fd/N */
    const struct cb_socket_rule *rule;
};

struct cb_resolved {
    cellblock_policy *policy;     /* a copy with `real` filled in, and with rules for the workspace and the programs */
    char *workspace;              /* canonical path, on the host and in the cell */
    bool scratch;                 /* the workspace is an empty tmpfs at that path */
    struct cb_place *places;      /* sorted by path: parents before children */
    size_t place_count;
    struct cb_link *links;
    size_t link_count;
    struct cb_absent *absents;
    size_t absent_count;
    struct cb_swept *swept;
    size_t swept_count;
    struct cb_socket_place *sockets;
    size_t socket_count;
};

int cb_resolve(const cellblock_policy *policy, const struct cb_context *context, struct cb_resolved **resolved,
               cellblock_error **error);
void cb_resolved_free(struct cb_resolved *resolved);

/* Finds the sockets that the rules of a policy name, fills in `real`, and returns those that every layer allows
 * (resolve_sockets.c). A part of cb_resolve(); on its own for rules that come while a cell runs, with a copy of the
 * resolved policy. Rules that grant a socket which is not there are errors. */
int cb_resolve_sockets(cellblock_policy *policy, const struct cb_context *context, struct cb_socket_place **places,
                       size_t *count, cellblock_error **error);
void cb_socket_places_free(struct cb_socket_place *places, size_t count);

/* Is the path, or anything below it, there in the cell? */
bool cb_resolved_shows(const struct cb_resolved *resolved, const char *path);
