/* seccomp-bpf filters: one table of decisions (src/policy/syscalls.c), assembled for the default profiles when the
 * product is built, for custom policies once per plan. */
#pragma once

#include "policy/policy.h"

#include <linux/filter.h>
#include <stddef.h>
#include <stdint.h>

struct cb_filter {
    struct sock_filter *code; /* not const only because the kernel's struct sock_fprog is not; never written to */
    size_t length;            /* instructions */
    bool owned;               /* false: points into the program's read-only data */
};

/* The filter that the policy asks for: a precompiled one, or compiled here when the policy has custom rules. Custom
 * rules that name unknown system calls, or that allow what no policy may allow, are errors. */
int cb_filter_for_policy(const cellblock_policy *policy, struct cb_filter *filter, cellblock_error **error);
void cb_filter_free(struct cb_filter *filter);

/* Compiles a profile (plus a policy's custom rules, when policy is not NULL) for an architecture (a libseccomp token,
 * SCMP_ARCH_*). Used by custom policies and by the tests of the other architectures' verdicts. */
int cb_filter_compile(enum cb_syscall_profile profile, const cellblock_policy *policy, uint32_t arch,
                      struct cb_filter *filter, cellblock_error **error);

/* Written by tools/genfilter.c when the product is built. */
extern const struct sock_filter cb_filter_default[], cb_filter_strict[];
extern const size_t cb_filter_default_length, cb_filter_strict_length;
