/* The table of system calls: one row each, the one place where a verdict on a system call is written down. The filter
 * is assembled from it (plan/assemble.c), and questions about it are answered from it. */
#pragma once

#include "policy/policy.h"

#include <stdint.h>

enum cb_verdict {
    CB_SYSCALL_ALLOW,
    CB_SYSCALL_EPERM,   /* known to be dangerous: refused */
    CB_SYSCALL_ENOSYS,  /* unknown, or better answered as "this kernel has none": programs fall back */
    CB_SYSCALL_CHECK,   /* depends on arguments, see checks */
};

enum cb_compare {
    CB_COMPARE_NONE,      /* no condition: ends the list */
    CB_COMPARE_EQUAL,     /* (argument & mask) == value */
    CB_COMPARE_NOT_EQUAL, /* (argument & mask) != value */
    CB_COMPARE_ABOVE,     /* argument > value, unsigned; the mask must be full */
};

/* Always on the low 32 bits of the argument. Only arguments that the kernel itself cuts to 32 bits (or fewer) are
 * checked: a comparison of all 64 would let a call through that differs only in bits that the kernel drops. */
struct cb_condition {
    unsigned argument; /* 0 to 5 */
    enum cb_compare compare;
    uint32_t mask;
    uint32_t value;
};

#define CB_CONDITIONS 3

struct cb_argument_check {
    struct cb_condition when[CB_CONDITIONS]; /* all of them must hold */
    int errnum;                              /* then this is the answer; 0: allowed */
    const char *why;                         /* for refusals */
};

struct cb_syscall_rule {
    enum cb_verdict verdict;
    const struct cb_argument_check *checks; /* CB_SYSCALL_CHECK: the first that holds decides; the last one does */
    size_t check_count;
    const char *why;                        /* for refusals: what it could be used for */
};

struct cb_syscall {
    const char *name;
    int number; /* from 424 on a call has one number on all architectures: given here, as libseccomp may be too old to
                 * know the name; 0 for older calls */
    bool never; /* no policy may allow it: it would open the cell, or blind the filter */
    struct cb_syscall_rule rules[2]; /* by enum cb_syscall_profile */
};

const struct cb_syscall *cb_syscall_table(size_t *count);
/* NULL when the table has no such row. */
const struct cb_syscall *cb_syscall_find(const char *name);

/* The rule that holds for a row in a profile, with a custom opinion on top (-1 deny, +1 allow, 0 none). An `allow`
 * lifts a refusal and what the strict profile adds, but no argument check of the default profile, and it does nothing
 * for rows marked `never`. */
struct cb_syscall_rule cb_syscall_rule_for(const struct cb_syscall *row, enum cb_syscall_profile profile, int custom);

/* ---- With a policy (syscall_rules.c) ---- */

/* The decision for a system call by name: the profile's row, then the policy's own deny and allow. A name that is not
 * in the table is CB_SYSCALL_ENOSYS. */
struct cb_syscall_decision {
    enum cb_verdict verdict;
    const struct cb_syscall *row;    /* NULL: not in the table */
    const char *why;                 /* NULL when allowed; CB_SYSCALL_CHECK has the reasons in the row's checks */
};
struct cb_syscall_decision cb_decide_syscall(const cellblock_policy *policy, const char *name);

/* Fails when the policy's deny or allow names a system call that is not in the table, or allows one that no policy may
 * allow. The message has the place in the policy. */
int cb_policy_check_syscalls(const cellblock_policy *policy, cellblock_error **error);
