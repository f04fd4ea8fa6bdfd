/* A policy's own deny and allow lists on top of the table of system calls. See syscalls.h. */
#include "policy/syscalls.h"

#include "base/error.h"

struct cb_syscall_decision cb_decide_syscall(const cellblock_policy *policy, const char *name)
{
    const struct cb_syscall *row = cb_syscall_find(name);
    if (!row)
        return (struct cb_syscall_decision){.verdict = CB_SYSCALL_ENOSYS, .why = "not in the table of system calls"};
    struct cb_syscall_rule rule =
        cb_syscall_rule_for(row, cb_decide_syscall_profile(policy), cb_decide_syscall_custom(policy, name));
    return (struct cb_syscall_decision){.verdict = rule.verdict, .row = row, .why = rule.why};
}

static int check_names(const struct cb_names *names, bool allow, cellblock_error **error)
{
    for (size_t i = 0; i < names->count; i++) {
        const struct cb_named *item = &names->items[i];
        const struct cb_syscall *row = cb_syscall_find(item->name);
        if (!row)
            return cb_fail(error, CELLBLOCK_ERROR_POLICY, 0, "%s:%d:%d: there is no system call \"%s\"",
                           item->origin.document, item->origin.line, item->origin.column, item->name);
        if (allow && row->never) {
            cb_fail(error, CELLBLOCK_ERROR_POLICY, 0, "%s:%d:%d: no policy may allow the system call \"%s\": %s",
                    item->origin.document, item->origin.line, item->origin.column, item->name,
                    row->rules[CB_SYSCALLS_DEFAULT].why);
            return cb_error_hint(error, "remove it from \"allow\"");
        }
    }
    return 0;
}

int cb_policy_check_syscalls(const cellblock_policy *policy, cellblock_error **error)
{
    for (size_t i = 0; i < policy->count; i++) {
        for (size_t j = 0; j < policy->layers[i].count; j++) {
            const struct cb_document *document = policy->layers[i].documents[j];
            if (check_names(&document->syscall_deny, false, error) < 0 ||
                check_names(&document->syscall_allow, true, error) < 0)
                return -1;
        }
    }
    return 0;
}
