/* Chooses or compiles the filter of a plan. See filter.h. */
#include "plan/filter.h"

#include "base/cleanup.h"
#include "base/error.h"
#include "plan/assemble.h"

#include <seccomp.h>

int cb_filter_compile(enum cb_syscall_profile profile, const cellblock_policy *policy, uint32_t arch,
                      struct cb_filter *filter, cellblock_error **error)
{
    size_t count;
    const struct cb_syscall *table = cb_syscall_table(&count);
    cb_autofree struct cb_syscall_rule *rules = calloc(count, sizeof *rules);
    if (!rules)
        return cb_fail_memory(error);
    for (size_t i = 0; i < count; i++) {
        int custom = policy ? cb_decide_syscall_custom(policy, table[i].name) : 0;
        rules[i] = cb_syscall_rule_for(&table[i], profile, custom);
    }
    return cb_filter_assemble(rules, arch, filter, error);
}

int cb_filter_for_policy(const cellblock_policy *policy, struct cb_filter *filter, cellblock_error **error)
{
    enum cb_syscall_profile profile = cb_decide_syscall_profile(policy);
    if (cb_policy_has_custom_syscalls(policy)) {
        if (cb_policy_check_syscalls(policy, error) < 0)
            return -1;
        return cb_filter_compile(profile, policy, seccomp_arch_native(), filter, error);
    }
    bool strict = profile == CB_SYSCALLS_STRICT;
    *filter = (struct cb_filter){
        .code = (struct sock_filter *)(uintptr_t)(strict ? cb_filter_strict : cb_filter_default),
        .length = strict ? cb_filter_strict_length : cb_filter_default_length,
    };
    return 0;
}

void cb_filter_free(struct cb_filter *filter)
{
    if (filter->owned)
        free(filter->code);
    *filter = (struct cb_filter){0};
}
