/* What lies around this process and can explain why an attempt failed. Never used to conclude that something works. */
#pragma once

#include "host/attempt.h"
#include "host/host.h"

struct cb_surroundings {
    unsigned kernel_major, kernel_minor;
    enum cb_mapping mapping;
    bool root;                  /* effective user id 0 */
    bool ids_unmapped;          /* our own id has no place in this user namespace */
    bool chrooted;              /* seen; false may also mean that it can't be seen */
    bool proc_missing;
    bool filtered;              /* a seccomp filter is attached to this process */
    bool filter_refuses_user;   /* and it was seen to refuse new user namespaces, not the kernel */
    bool selinux;               /* enforcing */
    long userns_clone;          /* kernel.unprivileged_userns_clone; -1 where a setting is not there */
    long max_user_namespaces;   /* user.max_user_namespaces */
    long apparmor_restrict;     /* kernel.apparmor_restrict_unprivileged_userns */
    char container[32];         /* "docker", "podman", …, or "" */
    char program[256];          /* path of this program, for an AppArmor profile */
};

void cb_surroundings_look(struct cb_surroundings *surroundings);

/* Puts the outcome of an attempt into words. `user` is the probe of user namespaces (NULL while it is being made), on
 * which most others depend. Returns -1 when out of memory. */
int cb_verdict(enum cb_feature feature, const struct cb_attempt *attempt, const struct cb_surroundings *surroundings,
               const struct cb_probe *user, struct cb_probe *probe);

/* How the examination asks: replaced by tests to stand in for machines that are not there. */
struct cb_host_calls {
    void (*look)(struct cb_surroundings *surroundings);
    int (*attempt)(enum cb_feature feature, struct cb_attempt *attempt, cellblock_error **error);
};
extern const struct cb_host_calls cb_host_calls_here;
int cb_host_examine_with(const struct cb_host_calls *calls, unsigned features, struct cb_host **host,
                         cellblock_error **error);
#define CB_FEATURES_ALL ((1U << CB_FEATURE_COUNT) - 1)

/* Can the feature be had only inside a user namespace? */
bool cb_feature_in_user_namespace(enum cb_feature feature);
/* Does the default policy need it? (Idmapped mounts: only of a root caller.) */
bool cb_feature_needed(enum cb_feature feature, bool root);
