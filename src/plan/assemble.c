/* Assembles the seccomp filter.
 *
 * libseccomp supplies the numbers of the system calls; the program is written here, for two reasons. Under a default
 * that refuses, libseccomp can't say "allowed, except with these arguments" (an allow without conditions silently
 * replaces the refusals with conditions, and the complement of a masked comparison does not exist), which is what
 * ioctl, prctl and open need. And attaching a filter is part of every start: the kernel runs the whole program once for
 * each system call to find those that are always allowed, and translates it to machine code. Neighbouring numbers
 * mostly share a verdict, so a search over ranges is far shorter than one over single numbers: 249 instructions, where
 * libseccomp's binary tree for the same calls, without any argument checks, has 463. Attaching takes 0.6 of the time
 * (72 to 87 µs on a quiet machine; Linux 6.18, x86_64).
 *
 * Layout: architecture test, then a binary search over ranges by number; each leaf is a return, or the argument checks
 * of one call. Equal returns and equal checks are shared, as each instruction costs time when the filter is attached.
 *
 * Another architecture kills the process: its numbers mean other calls. On x86_64 so do numbers with the x32 bit, which
 * reach the same kernel code under the same architecture value. (-1 has that bit too, but it is what tracers and
 * probes use for "no call": ENOSYS.) */
#include "plan/assemble.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/error.h"

#include <linux/audit.h>
#include <linux/seccomp.h>
#include <seccomp.h>

#define X32_BIT 0x40000000u
#define NUMBERS 1024 /* more than any architecture has */
#define KILL SECCOMP_RET_KILL_PROCESS
#define ERRNO(errnum) (SECCOMP_RET_ERRNO | ((uint32_t)(errnum) & SECCOMP_RET_DATA))

struct leaf {
    uint32_t start;                     /* the first number that it is for */
    uint32_t action;                    /* when rule is NULL */
    const struct cb_syscall_rule *rule; /* with checks */
    size_t label;                       /* of its checks, once they are written */
};

/* Written from the last instruction to the first, so that every target of a jump is there before the jump, and equal
 * ends can be shared. A label is an index into this backward array. */
struct program {
    struct sock_filter *code;
    size_t length;
    bool failed; /* out of memory; asked once, at the end */
};

static size_t emit(struct program *program, struct sock_filter instruction)
{
    struct sock_filter *slot = program->failed ? NULL : cb_array_push(&program->code, &program->length);
    if (!slot) {
        program->failed = true;
        return 0;
    }
    *slot = instruction;
    return program->length - 1;
}

static size_t emit_jump(struct program *program, size_t target)
{
    return emit(program, (struct sock_filter)BPF_STMT(BPF_JMP | BPF_JA, (uint32_t)(program->length - target - 1)));
}

/* An instruction that falls through to `next`. */
static size_t emit_before(struct program *program, struct sock_filter instruction, size_t next)
{
    if (next + 1 != program->length)
        emit_jump(program, next);
    return emit(program, instruction);
}

static size_t emit_load(struct program *program, size_t offset, size_t next)
{
    return emit_before(program, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset), next);
}

/* The low half of an argument: the first one, as all our architectures are little-endian. */
static size_t emit_load_argument(struct program *program, unsigned argument, size_t next)
{
    return emit_load(program, offsetof(struct seccomp_data, args) + 8 * argument, next);
}

/* Conditional jumps reach 255 instructions. The margin is for what may come between this call and the jump. */
static bool in_reach(const struct program *program, size_t target)
{
    return program->length - target < UINT8_MAX - 2;
}

static size_t emit_return(struct program *program, uint32_t action)
{
    for (size_t i = program->length; i-- > 0 && in_reach(program, i);)
        if (program->code[i].code == (BPF_RET | BPF_K) && program->code[i].k == action)
            return i;
    return emit(program, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, action));
}

static size_t bring_near(struct program *program, size_t target)
{
    if (program->failed || in_reach(program, target))
        return target;
    const struct sock_filter *far = &program->code[target];
    return far->code == (BPF_RET | BPF_K) ? emit_return(program, far->k) : emit_jump(program, target);
}

static size_t emit_branch(struct program *program, uint16_t test, uint32_t operand, size_t yes, size_t no)
{
    yes = bring_near(program, yes);
    no = bring_near(program, no);
    size_t here = program->length;
    return emit(program, (struct sock_filter)BPF_JUMP(BPF_JMP | test | BPF_K, operand, (uint8_t)(here - yes - 1),
                                                      (uint8_t)(here - no - 1)));
}

/* Does testing this condition leave the whole argument in the accumulator? */
static bool keeps_argument(const struct cb_condition *condition)
{
    return condition->mask == UINT32_MAX || condition->value == 0;
}

/* The test of a condition, with its argument already loaded. */
static size_t emit_condition(struct program *program, const struct cb_condition *condition, size_t yes, size_t no)
{
    bool equal = condition->compare == CB_COMPARE_EQUAL;
    if (condition->compare == CB_COMPARE_ABOVE)
        return emit_branch(program, BPF_JGT, condition->value, yes, no);
    if (condition->mask != UINT32_MAX && condition->value == 0) /* JSET: are some of these bits set? */
        return emit_branch(program, BPF_JSET, condition->mask, equal ? no : yes, equal ? yes : no);
    size_t test = emit_branch(program, BPF_JEQ, condition->value, equal ? yes : no, equal ? no : yes);
    if (condition->mask == UINT32_MAX)
        return test;
    return emit_before(program, (struct sock_filter)BPF_STMT(BPF_ALU | BPF_AND | BPF_K, condition->mask), test);
}

static size_t emit_checks(struct program *program, const struct cb_syscall_rule *rule)
{
    /* Where the following check starts: with nothing loaded, and with its first argument loaded. */
    size_t unloaded = 0, loaded = 0;
    const struct cb_condition *first = NULL;
    for (size_t i = rule->check_count; i-- > 0;) {
        const struct cb_argument_check *check = &rule->checks[i];
        size_t here = emit_return(program, check->errnum ? ERRNO(check->errnum) : SECCOMP_RET_ALLOW);
        size_t count = 0;
        while (count < CB_CONDITIONS && check->when[count].compare != CB_COMPARE_NONE)
            count++;
        size_t tested = here;
        for (size_t c = count; c-- > 0;) {
            const struct cb_condition *condition = &check->when[c];
            bool stays = first && keeps_argument(condition) && condition->argument == first->argument;
            tested = emit_condition(program, condition, here, stays ? loaded : unloaded);
            here = c > 0 ? emit_load_argument(program, condition->argument, tested) : tested;
        }
        first = count > 0 ? &check->when[0] : NULL;
        loaded = unloaded = tested;
        bool alone = i > 0 && rule->checks[i - 1].when[1].compare == CB_COMPARE_NONE &&
                     keeps_argument(&rule->checks[i - 1].when[0]);
        if (first && !(alone && rule->checks[i - 1].when[0].argument == first->argument))
            unloaded = emit_load_argument(program, first->argument, tested);
    }
    return unloaded;
}

/* Calls with equal checks share them. */
static size_t emit_leaf(struct program *program, struct leaf *leaf, const struct leaf *end)
{
    if (!leaf->rule)
        return emit_return(program, leaf->action);
    for (const struct leaf *later = leaf + 1; later < end; later++)
        if (later->rule && later->rule->checks == leaf->rule->checks)
            return leaf->label = later->label;
    return leaf->label = emit_checks(program, leaf->rule);
}

static size_t emit_search(struct program *program, struct leaf *leaves, size_t count, const struct leaf *end)
{
    if (count == 1)
        return emit_leaf(program, leaves, end);
    size_t middle = count / 2;
    size_t right = emit_search(program, leaves + middle, count - middle, end);
    size_t left = emit_search(program, leaves, middle, end);
    return emit_branch(program, BPF_JGE, leaves[middle].start, right, left);
}

int cb_syscall_number(const struct cb_syscall *row, uint32_t arch)
{
    int number = seccomp_syscall_resolve_name_arch(arch, row->name);
    if (number == __NR_SCMP_ERROR && row->number > 0)
        return row->number;
    return number >= 0 ? number : -1; /* other negative numbers: known, but not on this architecture */
}

static uint32_t rule_action(const struct cb_syscall_rule *rule)
{
    return rule->verdict == CB_SYSCALL_ALLOW ? SECCOMP_RET_ALLOW
                                             : ERRNO(rule->verdict == CB_SYSCALL_EPERM ? EPERM : ENOSYS);
}

static int push_leaf(struct leaf **leaves, size_t *count, uint32_t start, uint32_t action,
                     const struct cb_syscall_rule *rule)
{
    const struct leaf *last = *count ? &(*leaves)[*count - 1] : NULL;
    if (last && !last->rule && !rule && last->action == action)
        return 0;
    struct leaf *leaf = cb_array_push(leaves, count);
    if (!leaf)
        return -1;
    *leaf = (struct leaf){.start = start, .action = action, .rule = rule};
    return 0;
}

static int find_leaves(const struct cb_syscall_rule *rules, uint32_t arch, struct leaf **leaves, size_t *count,
                       cellblock_error **error)
{
    const struct cb_syscall_rule *by_number[NUMBERS] = {0};
    size_t rows;
    const struct cb_syscall *table = cb_syscall_table(&rows);
    for (size_t i = 0; i < rows; i++) {
        int number = cb_syscall_number(&table[i], arch);
        if (number >= NUMBERS || (number >= 0 && by_number[number]))
            return cb_fail(error, CELLBLOCK_ERROR_SETUP, 0, "system call %s: the number %d can't be right",
                           table[i].name, number);
        if (number >= 0)
            by_number[number] = &rules[i];
    }
    static const struct cb_syscall_rule unknown = {.verdict = CB_SYSCALL_ENOSYS};
    for (uint32_t number = 0; number < NUMBERS; number++) {
        const struct cb_syscall_rule *rule = by_number[number] ? by_number[number] : &unknown;
        bool check = rule->verdict == CB_SYSCALL_CHECK;
        if (push_leaf(leaves, count, number, check ? 0 : rule_action(rule), check ? rule : NULL) < 0)
            return cb_fail_memory(error);
    }
    if (arch == SCMP_ARCH_X86_64 && (push_leaf(leaves, count, X32_BIT, KILL, NULL) < 0 ||
                                     push_leaf(leaves, count, UINT32_MAX, ERRNO(ENOSYS), NULL) < 0))
        return cb_fail_memory(error);
    return 0;
}

int cb_filter_assemble(const struct cb_syscall_rule *rules, uint32_t arch, struct cb_filter *filter,
                       cellblock_error **error)
{
    if (arch != SCMP_ARCH_X86_64 && arch != SCMP_ARCH_AARCH64)
        return cb_fail(error, CELLBLOCK_ERROR_REFUSED, 0,
                       "no system call filter for this architecture: only x86_64 and aarch64 have one");
    cb_autofree struct leaf *leaves = NULL;
    size_t count = 0;
    if (find_leaves(rules, arch, &leaves, &count, error) < 0)
        return -1;

    struct program program = {0};
    size_t start = emit_search(&program, leaves, count, leaves + count);
    start = emit_load(&program, offsetof(struct seccomp_data, nr), start);
    start = emit_branch(&program, BPF_JEQ, arch, start, emit_return(&program, KILL));
    emit_load(&program, offsetof(struct seccomp_data, arch), start);
    cb_autofree struct sock_filter *code = program.code;
    if (program.failed)
        return cb_fail_memory(error);
    for (size_t i = 0, j = program.length - 1; i < j; i++, j--) {
        struct sock_filter swapped = code[i];
        code[i] = code[j];
        code[j] = swapped;
    }
    if (program.length > BPF_MAXINSNS)
        return cb_fail(error, CELLBLOCK_ERROR_SETUP, 0, "the system call filter is too long: %zu instructions of %d",
                       program.length, BPF_MAXINSNS);
    *filter = (struct cb_filter){.code = cb_steal(code), .length = program.length, .owned = true};
    return 0;
}
