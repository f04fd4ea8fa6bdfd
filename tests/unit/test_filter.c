/* The seccomp filter, evaluated instruction by instruction for x86_64 and aarch64, as seen from every ABI that a
 * process on such a machine can use. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/error.h"
#include "bpf.h"
#include "plan/assemble.h"
#include "plan/filter.h"
#include "policy/syscalls.h"

#include <errno.h>
#include <linux/audit.h>
#include <seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define NUMBERS 1024
#define X32 0x40000000u
#define HIGH 0x100000000ull      /* a bit that the kernel drops from 32-bit arguments */
#define SIGN 0xffffffff00000000ull
#define KILLED (-1)
#define OPEN_CREATE 0100
#define OPEN_TMPFILE 020200000

static const uint32_t arches[] = {SCMP_ARCH_X86_64, SCMP_ARCH_AARCH64};
static const enum cb_syscall_profile profiles[] = {CB_SYSCALLS_DEFAULT, CB_SYSCALLS_STRICT};
static struct cb_filter filters[COUNT(arches)][COUNT(profiles)];

static int compile_all(void **state)
{
    cellblock_error *error = NULL;
    for (size_t a = 0; a < COUNT(arches); a++)
        for (size_t p = 0; p < COUNT(profiles); p++)
            if (cb_filter_compile(profiles[p], NULL, arches[a], &filters[a][p], &error) < 0)
                return -1;
    return 0;
}

static int free_all(void **state)
{
    for (size_t a = 0; a < COUNT(arches); a++)
        for (size_t p = 0; p < COUNT(profiles); p++)
            cb_filter_free(&filters[a][p]);
    return 0;
}

/* 0 for allowed, the errno, or KILLED. */
static int judge(const struct cb_filter *filter, uint32_t arch, uint32_t number, const uint64_t *args, bool *args_read)
{
    struct seccomp_data data = {.nr = (int)number, .arch = arch, .instruction_pointer = 0x7fff12345678};
    if (args)
        memcpy(data.args, args, sizeof data.args);
    uint32_t answer = bpf_run(filter->code, filter->length, &data, NULL, args_read);
    if (answer == SECCOMP_RET_ALLOW)
        return 0;
    if (answer == SECCOMP_RET_KILL_PROCESS)
        return KILLED;
    assert_int_equal(answer & SECCOMP_RET_ACTION_FULL, SECCOMP_RET_ERRNO);
    assert_int_not_equal(answer & SECCOMP_RET_DATA, 0);
    return (int)(answer & SECCOMP_RET_DATA);
}

/* What the table says, read in the plainest way. */
static int expected(const struct cb_syscall_rule *rule, const uint64_t *args)
{
    switch (rule->verdict) {
    case CB_SYSCALL_ALLOW:
        return 0;
    case CB_SYSCALL_EPERM:
        return EPERM;
    case CB_SYSCALL_ENOSYS:
        return ENOSYS;
    case CB_SYSCALL_CHECK:
        break;
    }
    for (size_t i = 0; i < rule->check_count; i++) {
        bool all = true;
        for (size_t c = 0; c < CB_CONDITIONS; c++) {
            const struct cb_condition *when = &rule->checks[i].when[c];
            uint32_t value = (uint32_t)args[when->argument];
            all &= when->compare == CB_COMPARE_NONE ||
                   (when->compare == CB_COMPARE_EQUAL && (value & when->mask) == when->value) ||
                   (when->compare == CB_COMPARE_NOT_EQUAL && (value & when->mask) != when->value) ||
                   (when->compare == CB_COMPARE_ABOVE && value > when->value);
        }
        if (all)
            return rule->checks[i].errnum;
    }
    fail_msg("checks without an end");
    return KILLED;
}

static const struct cb_syscall *row_of_number(uint32_t arch, int number)
{
    size_t count;
    const struct cb_syscall *table = cb_syscall_table(&count);
    for (size_t i = 0; i < count; i++)
        if (cb_syscall_number(&table[i], arch) == number)
            return &table[i];
    return NULL;
}

/* Repeatable randomness: a failure must come back on the next run. */
static uint64_t next_random(void)
{
    static uint64_t seed = 88172645463325252ull;
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed;
}

/* ---- The table ---- */

static void check_rule(const struct cb_syscall *row, const struct cb_syscall_rule *rule)
{
    if (rule->verdict == CB_SYSCALL_EPERM || rule->verdict == CB_SYSCALL_ENOSYS)
        assert_non_null(rule->why);
    assert_int_equal(rule->verdict == CB_SYSCALL_CHECK, rule->check_count > 0);
    for (size_t i = 0; i < rule->check_count; i++) {
        const struct cb_argument_check *check = &rule->checks[i];
        bool last = i + 1 == rule->check_count;
        assert_int_equal(check->when[0].compare == CB_COMPARE_NONE, last);
        assert_int_equal(check->errnum != 0, check->why != NULL);
        for (size_t c = 0; c < CB_CONDITIONS; c++) {
            const struct cb_condition *when = &check->when[c];
            assert_true(when->argument < 6);
            assert_true(when->compare == CB_COMPARE_NONE || (when->value & ~when->mask) == 0);
            assert_true(when->compare != CB_COMPARE_ABOVE || when->mask == UINT32_MAX);
            if (c > 0 && check->when[c - 1].compare == CB_COMPARE_NONE)
                assert_int_equal(when->compare, CB_COMPARE_NONE);
        }
    }
    if (row->never)
        assert_true(rule->verdict == CB_SYSCALL_EPERM || rule->verdict == CB_SYSCALL_ENOSYS);
}

static void test_table_is_sound(void **state)
{
    size_t count;
    const struct cb_syscall *table = cb_syscall_table(&count);
    for (size_t i = 0; i < count; i++) {
        for (size_t j = 0; j < i; j++)
            assert_string_not_equal(table[i].name, table[j].name);
        assert_ptr_equal(cb_syscall_find(table[i].name), &table[i]);
        assert_true(table[i].number == 0 || table[i].number >= 424);
        for (size_t p = 0; p < COUNT(profiles); p++)
            check_rule(&table[i], &table[i].rules[profiles[p]]);
        const struct cb_syscall_rule *wide = &table[i].rules[CB_SYSCALLS_DEFAULT];
        const struct cb_syscall_rule *strict = &table[i].rules[CB_SYSCALLS_STRICT];
        if (wide->verdict == CB_SYSCALL_EPERM || wide->verdict == CB_SYSCALL_ENOSYS)
            assert_int_equal(strict->verdict, wide->verdict);
        if (wide->verdict == CB_SYSCALL_CHECK)
            assert_int_not_equal(strict->verdict, CB_SYSCALL_ALLOW);
    }
    assert_null(cb_syscall_find("no_such_call"));
}

static void test_table_knows_every_name(void **state)
{
    for (size_t a = 0; a < COUNT(arches); a++) {
        for (int number = 0; number < NUMBERS; number++) {
            char *name = seccomp_syscall_resolve_num_arch(arches[a], number);
            if (name && !cb_syscall_find(name))
                fail_msg("%s has no row", name);
            free(name);
        }
    }
}

/* The numbers that the table gives itself must be those of libseccomp, where that knows the name. */
static void test_table_numbers(void **state)
{
    size_t count;
    const struct cb_syscall *table = cb_syscall_table(&count);
    for (size_t i = 0; i < count; i++) {
        for (size_t a = 0; a < COUNT(arches); a++) {
            int known = seccomp_syscall_resolve_name_arch(arches[a], table[i].name);
            if (known >= 0 && (table[i].number || known >= 424))
                assert_int_equal(known, table[i].number);
        }
    }
}

/* ---- The programs ---- */

static void test_programs_are_valid(void **state)
{
    for (size_t a = 0; a < COUNT(arches); a++) {
        for (size_t p = 0; p < COUNT(profiles); p++) {
            const char *reason = NULL;
            if (!bpf_valid(filters[a][p].code, filters[a][p].length, &reason))
                fail_msg("%s", reason);
        }
    }
}

static void test_every_number_agrees_with_the_table(void **state)
{
    for (size_t a = 0; a < COUNT(arches); a++) {
        for (int number = 0; number < NUMBERS; number++) {
            const struct cb_syscall *row = row_of_number(arches[a], number);
            for (size_t p = 0; p < COUNT(profiles); p++) {
                static const struct cb_syscall_rule unknown = {.verdict = CB_SYSCALL_ENOSYS};
                const struct cb_syscall_rule *rule = row ? &row->rules[profiles[p]] : &unknown;
                for (int round = 0; round < 50; round++) {
                    uint64_t args[6];
                    for (size_t i = 0; i < COUNT(args); i++)
                        args[i] = next_random() >> (next_random() % 64);
                    bool args_read = false;
                    int answer = judge(&filters[a][p], arches[a], (uint32_t)number, args, &args_read);
                    if (answer != expected(rule, args))
                        fail_msg("%s (%d): %d, not %d", row ? row->name : "?", number, answer, expected(rule, args));
                    /* Only so does the kernel keep it in its bitmap and skip the filter. */
                    assert_int_equal(args_read, rule->verdict == CB_SYSCALL_CHECK);
                }
            }
        }
    }
}

/* Random arguments seldom hit a check: try every value that a check mentions, alone and with high bits. */
static void test_every_check_at_its_edges(void **state)
{
    size_t count;
    const struct cb_syscall *table = cb_syscall_table(&count);
    for (size_t i = 0; i < count; i++) {
        for (size_t p = 0; p < COUNT(profiles); p++) {
            const struct cb_syscall_rule *rule = &table[i].rules[profiles[p]];
            for (int round = 0; rule->verdict == CB_SYSCALL_CHECK && round < 20000; round++) {
                uint64_t args[6] = {0};
                for (int hit = 0; hit < 3; hit++) {
                    const struct cb_argument_check *check = &rule->checks[next_random() % rule->check_count];
                    const struct cb_condition *when = &check->when[next_random() % CB_CONDITIONS];
                    static const uint64_t highs[] = {0, HIGH, SIGN};
                    uint32_t values[] = {when->value,     when->value + 1, when->value - 1,
                                         when->mask,      when->mask & (uint32_t)next_random(),
                                         when->value | ~when->mask};
                    args[when->argument] = values[next_random() % COUNT(values)] | highs[next_random() % COUNT(highs)];
                }
                for (size_t a = 0; a < COUNT(arches); a++) {
                    int number = cb_syscall_number(&table[i], arches[a]);
                    if (number >= 0 &&
                        judge(&filters[a][p], arches[a], (uint32_t)number, args, NULL) != expected(rule, args))
                        fail_msg("%s(%#lx, %#lx, %#lx, %#lx)", table[i].name, (unsigned long)args[0],
                                 (unsigned long)args[1], (unsigned long)args[2], (unsigned long)args[3]);
                }
            }
        }
    }
}

/* Policies with rules of their own can make programs so long that jumps no longer reach: any mix of rules must come out
 * right. */
static void test_any_mix_of_rules(void **state)
{
    size_t count, longest = 0;
    const struct cb_syscall *table = cb_syscall_table(&count);
    struct cb_syscall_rule *rules = calloc(count, sizeof *rules);
    assert_non_null(rules);
    /* Copies of the longest list of checks: equal ones would be shared, and the program would stay short. */
    const struct cb_syscall_rule *socket_rule = &cb_syscall_find("socket")->rules[CB_SYSCALLS_DEFAULT];
    struct cb_argument_check copies[32][16];
    assert_true(socket_rule->check_count <= COUNT(copies[0]));
    for (size_t i = 0; i < COUNT(copies); i++)
        memcpy(copies[i], socket_rule->checks, socket_rule->check_count * sizeof *socket_rule->checks);
    for (int round = 0; round < 60; round++) {
        size_t a = (size_t)round % COUNT(arches);
        for (size_t i = 0; i < count; i++) {
            static const struct cb_syscall_rule plain[] = {
                {.verdict = CB_SYSCALL_ALLOW}, {.verdict = CB_SYSCALL_EPERM}, {.verdict = CB_SYSCALL_ENOSYS}};
            const struct cb_syscall *other = &table[next_random() % count];
            rules[i] = next_random() % 4 ? plain[next_random() % 3] : other->rules[CB_SYSCALLS_DEFAULT];
        }
        for (size_t i = 0; i < COUNT(copies); i++)
            rules[next_random() % count] = (struct cb_syscall_rule){
                .verdict = CB_SYSCALL_CHECK, .checks = copies[i], .check_count = socket_rule->check_count};
        struct cb_filter filter = {0};
        assert_int_equal(cb_filter_assemble(rules, arches[a], &filter, NULL), 0);
        const char *reason = NULL;
        if (!bpf_valid(filter.code, filter.length, &reason))
            fail_msg("%s", reason);
        longest = filter.length > longest ? filter.length : longest;
        for (size_t i = 0; i < count; i++) {
            int number = cb_syscall_number(&table[i], arches[a]);
            for (int try = 0; number >= 0 && try < 5; try++) {
                uint64_t args[6];
                for (size_t j = 0; j < COUNT(args); j++)
                    args[j] = next_random() >> (next_random() % 64);
                assert_int_equal(judge(&filter, arches[a], (uint32_t)number, args, NULL), expected(&rules[i], args));
            }
        }
        cb_filter_free(&filter);
    }
    free(rules);
    assert_true(longest > 1000); /* or this test does not test what it says */
}

static void test_other_architectures_are_killed(void **state)
{
    static const uint32_t seen[] = {AUDIT_ARCH_X86_64, AUDIT_ARCH_I386, AUDIT_ARCH_AARCH64, AUDIT_ARCH_ARM,
                                    AUDIT_ARCH_RISCV64, 0, UINT32_MAX};
    for (size_t a = 0; a < COUNT(arches); a++)
        for (size_t p = 0; p < COUNT(profiles); p++)
            for (size_t s = 0; s < COUNT(seen); s++)
                for (uint32_t number = 0; seen[s] != arches[a] && number < NUMBERS; number++) {
                    assert_int_equal(judge(&filters[a][p], seen[s], number, NULL, NULL), KILLED);
                    assert_int_equal(judge(&filters[a][p], seen[s], number | X32, NULL, NULL), KILLED);
                    assert_int_equal(judge(&filters[a][p], seen[s], ~number, NULL, NULL), KILLED);
                }
}

static void test_x32_is_killed(void **state)
{
    for (size_t p = 0; p < COUNT(profiles); p++) {
        for (uint32_t number = 0; number < NUMBERS; number++)
            assert_int_equal(judge(&filters[0][p], AUDIT_ARCH_X86_64, number | X32, NULL, NULL), KILLED);
        assert_int_equal(judge(&filters[0][p], AUDIT_ARCH_X86_64, 0x7fffffff, NULL, NULL), KILLED);
        assert_int_equal(judge(&filters[0][p], AUDIT_ARCH_X86_64, 0x80000000, NULL, NULL), KILLED);
        assert_int_equal(judge(&filters[0][p], AUDIT_ARCH_X86_64, 0xfffffffe, NULL, NULL), KILLED);
    }
}

static void test_numbers_that_do_not_exist(void **state)
{
    static const uint32_t numbers[] = {335, 400, 999, 1023, 1024, 4096, 0x3fffffff, UINT32_MAX};
    for (size_t a = 0; a < COUNT(arches); a++)
        for (size_t p = 0; p < COUNT(profiles); p++)
            for (size_t n = 0; n < COUNT(numbers); n++)
                assert_int_equal(judge(&filters[a][p], arches[a], numbers[n], NULL, NULL), ENOSYS);
    assert_int_equal(judge(&filters[1][0], AUDIT_ARCH_AARCH64, X32, NULL, NULL), ENOSYS);
}

/* ---- Verdicts, by hand ---- */

static const struct verdict {
    const char *call;
    uint64_t args[6];
    int in_default, in_strict;
} verdicts[] = {
    {"read", {0}, 0, 0},
    {"execve", {0}, 0, 0},
    {"futex", {0}, 0, 0},
    {"getrandom", {0}, 0, 0},
    {"landlock_restrict_self", {0}, 0, 0},
    {"fork", {0}, 0, EPERM},
    {"vfork", {0}, 0, EPERM},
    {"shmget", {0}, 0, EPERM},
    {"mq_open", {0}, 0, EPERM},
    {"connect", {0}, 0, EPERM},

    {"mount", {0}, EPERM, EPERM},
    {"umount2", {0}, EPERM, EPERM},
    {"fsopen", {0}, EPERM, EPERM},
    {"fsmount", {0}, EPERM, EPERM},
    {"fsconfig", {0}, EPERM, EPERM},
    {"fspick", {0}, EPERM, EPERM},
    {"open_tree", {0}, EPERM, EPERM},
    {"open_tree_attr", {0}, EPERM, EPERM},
    {"move_mount", {0}, EPERM, EPERM},
    {"mount_setattr", {0}, EPERM, EPERM},
    {"pivot_root", {0}, EPERM, EPERM},
    {"chroot", {0}, EPERM, EPERM},
    {"setns", {0}, EPERM, EPERM},
    {"unshare", {0}, EPERM, EPERM},
    {"io_uring_setup", {0}, EPERM, EPERM},
    {"io_uring_enter", {0}, EPERM, EPERM},
    {"io_uring_register", {0}, EPERM, EPERM},
    {"userfaultfd", {0}, EPERM, EPERM},
    {"bpf", {0}, EPERM, EPERM},
    {"keyctl", {0}, EPERM, EPERM},
    {"add_key", {0}, EPERM, EPERM},
    {"request_key", {0}, EPERM, EPERM},
    {"ptrace", {0}, EPERM, EPERM},
    {"process_vm_readv", {0}, EPERM, EPERM},
    {"process_vm_writev", {0}, EPERM, EPERM},
    {"pidfd_getfd", {0}, EPERM, EPERM},
    {"perf_event_open", {0}, EPERM, EPERM},
    {"open_by_handle_at", {0}, EPERM, EPERM},
    {"kexec_load", {0}, EPERM, EPERM},
    {"kexec_file_load", {0}, EPERM, EPERM},
    {"init_module", {0}, EPERM, EPERM},
    {"finit_module", {0}, EPERM, EPERM},
    {"delete_module", {0}, EPERM, EPERM},
    {"swapon", {0}, EPERM, EPERM},
    {"reboot", {0}, EPERM, EPERM},
    {"syslog", {0}, EPERM, EPERM},
    {"iopl", {0}, EPERM, EPERM},
    {"clock_settime", {0}, EPERM, EPERM},
    {"fanotify_init", {0}, EPERM, EPERM},
    {"modify_ldt", {0}, EPERM, EPERM},
    {"clone3", {0}, ENOSYS, ENOSYS},
    {"openat2", {0}, ENOSYS, ENOSYS},
    {"memfd_secret", {0}, ENOSYS, ENOSYS},

    /* clone: a fork, a vfork, a thread as glibc makes it, each namespace, the signal 0x80 that is not NEWTIME */
    {"clone", {0x01200011}, 0, EPERM},
    {"clone", {0x00004111}, 0, EPERM},
    {"clone", {0x003d0f00}, 0, 0},
    {"clone", {0x003d0f00 | HIGH}, 0, 0},
    {"clone", {0x00020011}, EPERM, EPERM},
    {"clone", {0x02000011}, EPERM, EPERM},
    {"clone", {0x04000011}, EPERM, EPERM},
    {"clone", {0x08000011}, EPERM, EPERM},
    {"clone", {0x10000011}, EPERM, EPERM},
    {"clone", {0x20000011}, EPERM, EPERM},
    {"clone", {0x40000011}, EPERM, EPERM},
    {"clone", {0x10000011 | HIGH}, EPERM, EPERM},
    {"clone", {0x003d0f00 | 0x10000000}, EPERM, EPERM},
    {"clone", {0x00000080}, 0, EPERM},

    /* socket: family, type, protocol */
    {"socket", {1, 1, 0}, 0, EPERM},
    {"socket", {1, 2, 0}, 0, EPERM},
    {"socket", {1, 5 | 0x80800, 0}, 0, EPERM},
    {"socket", {1, 3, 0}, ESOCKTNOSUPPORT, EPERM},
    {"socket", {2, 1, 0}, 0, EPERM},
    {"socket", {2, 1 | 0x80000, 6}, 0, EPERM},
    {"socket", {2, 1 | 0x800, 0}, 0, EPERM},
    {"socket", {10, 1, 6}, 0, EPERM},
    {"socket", {2, 2, 17}, 0, EPERM},
    {"socket", {10, 2, 0}, 0, EPERM},
    {"socket", {2 | HIGH, 1 | HIGH, HIGH}, 0, EPERM},
    {"socket", {2, 1, 262}, EPROTONOSUPPORT, EPERM},        /* MPTCP */
    {"socket", {2, 1, 262 | HIGH}, EPROTONOSUPPORT, EPERM},
    {"socket", {10, 1, 132}, EPROTONOSUPPORT, EPERM},       /* SCTP */
    {"socket", {2, 5, 132}, EPROTONOSUPPORT, EPERM},
    {"socket", {2, 2, 1}, EPROTONOSUPPORT, EPERM},          /* ICMP */
    {"socket", {10, 2, 58}, EPROTONOSUPPORT, EPERM},
    {"socket", {2, 2, 136}, EPROTONOSUPPORT, EPERM},        /* UDP-Lite */
    {"socket", {2, 3, 6}, EPERM, EPERM},                    /* raw */
    {"socket", {10, 3 | 0x80000, 255}, EPERM, EPERM},
    {"socket", {2 | HIGH, 3 | HIGH, 1}, EPERM, EPERM},
    {"socket", {2, 10, 0}, EPROTONOSUPPORT, EPERM},         /* SOCK_PACKET by its old name */
    {"socket", {16, 3, 0}, 0, EPERM},                       /* netlink: route, audit, netfilter, crypto */
    {"socket", {16, 3, 9}, EPROTONOSUPPORT, EPERM},
    {"socket", {16, 3, 12}, EPROTONOSUPPORT, EPERM},
    {"socket", {16, 2, 21}, EPROTONOSUPPORT, EPERM},
    {"socket", {17, 3, 0}, EAFNOSUPPORT, EPERM},            /* packet */
    {"socket", {38, 5, 0}, EAFNOSUPPORT, EPERM},            /* ALG */
    {"socket", {40, 1, 0}, EAFNOSUPPORT, EPERM},            /* vsock */
    {"socket", {44, 3, 0}, EAFNOSUPPORT, EPERM},            /* XDP */
    {"socket", {0, 1, 0}, EAFNOSUPPORT, EPERM},
    {"socket", {UINT64_MAX, 1, 0}, EAFNOSUPPORT, EPERM},
    {"socketpair", {1, 1, 0}, 0, 0},
    {"socketpair", {2, 1, 0}, EAFNOSUPPORT, EAFNOSUPPORT},
    {"socketpair", {30, 1, 0}, EAFNOSUPPORT, EAFNOSUPPORT}, /* TIPC */

    {"sendto", {0, 0, 0, 0x4000}, 0, 0},
    {"sendto", {0, 0, 0, 0x20000000}, EPERM, EPERM},
    {"sendto", {0, 0, 0, 0x20004000 | HIGH}, EPERM, EPERM},
    {"sendmsg", {0, 0, 0x20000000}, EPERM, EPERM},
    {"sendmsg", {0, 0, 0x4000, 0x20000000}, 0, 0},
    {"sendmmsg", {0, 0, 0, 0x20000000}, EPERM, EPERM},

    {"ioctl", {0, 0x5401}, 0, 0},
    {"ioctl", {0, 0x5412}, EPERM, EPERM},
    {"ioctl", {0, 0x5412 | HIGH}, EPERM, EPERM},
    {"ioctl", {0, 0x5412 | SIGN}, EPERM, EPERM},
    {"ioctl", {0, 0x541c}, EPERM, EPERM},
    {"ioctl", {0, 0x541c | SIGN}, EPERM, EPERM},
    {"ioctl", {0, 0x541d}, EPERM, EPERM},
    {"ioctl", {0, 0x5423}, EPERM, EPERM},
    {"ioctl", {0, 0x5413}, 0, 0},

    {"prctl", {15}, 0, 0},
    {"prctl", {38, 1}, 0, 0},
    {"prctl", {22, 2}, 0, EPERM},
    {"prctl", {35}, EPERM, EPERM},
    {"prctl", {35 | HIGH}, EPERM, EPERM},
    {"prctl", {62}, EPERM, EPERM},
    {"prctl", {0x53564d41}, 0, 0},
    {"prctl", {0x59616d61}, 0, 0},
    {"prctl", {500}, EINVAL, EINVAL},
    {"personality", {0}, 0, EPERM},
    {"personality", {0xffffffff}, 0, EPERM},
    {"personality", {UINT64_MAX}, 0, EPERM},
    {"personality", {0x0040000}, EPERM, EPERM},
    {"personality", {0x0020000}, EPERM, EPERM},
    {"personality", {8}, EPERM, EPERM},
    {"seccomp", {1, 0}, 0, EPERM},
    {"seccomp", {1, 1}, 0, EPERM},
    {"seccomp", {1, 8}, EPERM, EPERM},
    {"seccomp", {1 | HIGH, 9 | HIGH}, EPERM, EPERM},
    {"seccomp", {2, 0}, 0, EPERM},
    {"seccomp", {4, 0}, EINVAL, EPERM},
    {"memfd_create", {0, 1}, 0, 0},
    {"memfd_create", {0, 4}, EPERM, EPERM},
    {"move_pages", {0}, 0, 0},
    {"move_pages", {1}, EPERM, EPERM},

    /* setuid and setgid bits, device nodes */
    {"chmod", {0, 0755}, 0, 0},
    {"chmod", {0, 01777}, 0, 0},
    {"chmod", {0, 04755}, EPERM, EPERM},
    {"chmod", {0, 02755 | HIGH}, EPERM, EPERM},
    {"fchmod", {0, 06755}, EPERM, EPERM},
    {"fchmodat", {0, 0, 04755}, EPERM, EPERM},
    {"fchmodat", {04755, 04755, 0755}, 0, 0},
    {"fchmodat2", {0, 0, 04755}, EPERM, EPERM},
    {"fchmodat2", {0, 0, 0644, 0x100}, 0, 0},
    {"creat", {0, 04644}, EPERM, EPERM},
    {"creat", {0, 0644}, 0, 0},
    {"open", {0, OPEN_CREATE, 0644}, 0, 0},
    {"open", {0, OPEN_CREATE, 04644}, EPERM, EPERM},
    {"open", {0, 0, 07777}, 0, 0}, /* no file is made: what is in that register is nobody's business */
    {"openat", {0, 0, OPEN_CREATE | 01, 0100666}, 0, 0},
    {"openat", {0, 0, OPEN_CREATE | 01, 02666}, EPERM, EPERM},
    {"openat", {0, 0, OPEN_CREATE | HIGH, 04666 | HIGH}, EPERM, EPERM},
    {"openat", {0, 0, OPEN_TMPFILE | 02, 04600}, EPERM, EPERM},
    {"openat", {0, 0, OPEN_TMPFILE | 02, 0600}, 0, 0},
    {"openat", {0, 0, 0200000, 07777}, 0, 0},
    {"mkdir", {0, 02755}, 0, 0},
    {"mknod", {0, 0644}, 0, 0},
    {"mknod", {0, 0100644}, 0, 0},
    {"mknod", {0, 0010644}, 0, 0},
    {"mknod", {0, 0140644}, 0, 0},
    {"mknod", {0, 0020644}, EPERM, EPERM},
    {"mknod", {0, 0060644}, EPERM, EPERM},
    {"mknodat", {0, 0, 0010644}, 0, 0},
    {"mknodat", {0, 0, 0020000 | HIGH}, EPERM, EPERM},
    {"mknodat", {0, 0, 0060600}, EPERM, EPERM},
    {"mknodat", {0, 0, 0104755}, EPERM, EPERM},
    {"mknodat", {0, 0, 0040755}, EPERM, EPERM},
};

static void test_verdicts(void **state)
{
    for (size_t i = 0; i < COUNT(verdicts); i++) {
        const struct verdict *verdict = &verdicts[i];
        const struct cb_syscall *row = cb_syscall_find(verdict->call);
        assert_non_null(row);
        int found = 0;
        for (size_t a = 0; a < COUNT(arches); a++) {
            int number = cb_syscall_number(row, arches[a]);
            if (number < 0)
                continue;
            found++;
            int in_default = judge(&filters[a][0], arches[a], (uint32_t)number, verdict->args, NULL);
            int in_strict = judge(&filters[a][1], arches[a], (uint32_t)number, verdict->args, NULL);
            if (in_default != verdict->in_default || in_strict != verdict->in_strict)
                fail_msg("line %zu of the table, %s: default %d, strict %d", i, verdict->call, in_default, in_strict);
        }
        assert_true(found > 0);
    }
}

/* ---- Policies ---- */

/* A policy of one document, made by hand, so that only the filter is under test. */
struct hand_made {
    struct cb_named deny[2], allow[2];
    struct cb_document document, *documents[1];
    struct cb_layer layers[1];
    cellblock_policy policy;
};

static void make(struct hand_made *made, enum cb_syscall_profile profile, const char *deny, const char *allow)
{
    static const struct cb_origin origin = {.document = "p.jsonc", .line = 3, .column = 7};
    *made = (struct hand_made){
        .deny = {{.name = (char *)(uintptr_t)deny, .origin = origin}},
        .allow = {{.name = (char *)(uintptr_t)allow, .origin = origin}},
        .document = {.name = (char *)(uintptr_t)"p.jsonc", .syscalls_given = true, .syscall_profile = profile},
    };
    made->document.syscall_deny = (struct cb_names){.items = made->deny, .count = deny != NULL, .given = deny != NULL};
    made->document.syscall_allow =
        (struct cb_names){.items = made->allow, .count = allow != NULL, .given = allow != NULL};
    made->documents[0] = &made->document;
    made->layers[0] = (struct cb_layer){.documents = made->documents, .count = 1};
    made->policy = (cellblock_policy){.layers = made->layers, .count = 1};
}

static int judge_native(const struct cb_filter *filter, const char *call, const uint64_t *args)
{
    uint32_t arch = seccomp_arch_native();
    int number = cb_syscall_number(cb_syscall_find(call), arch);
    assert_true(number >= 0);
    return judge(filter, arch, (uint32_t)number, args, NULL);
}

static void test_precompiled_equals_fresh(void **state)
{
    for (size_t p = 0; p < COUNT(profiles); p++) {
        struct hand_made made;
        struct cb_filter chosen = {0}, fresh = {0};
        make(&made, profiles[p], NULL, NULL);
        assert_int_equal(cb_filter_for_policy(&made.policy, &chosen, NULL), 0);
        assert_int_equal(cb_filter_compile(profiles[p], NULL, seccomp_arch_native(), &fresh, NULL), 0);
        assert_false(chosen.owned);
        assert_int_equal(chosen.length, fresh.length);
        assert_memory_equal(chosen.code, fresh.code, fresh.length * sizeof *fresh.code);
        cb_filter_free(&chosen);
        cb_filter_free(&fresh);
    }
}

/* What a person is told about a call is what the filter does, for every row without checks. */
static void test_decisions_agree_with_the_filter(void **state)
{
    size_t count;
    const struct cb_syscall *table = cb_syscall_table(&count);
    for (size_t p = 0; p < COUNT(profiles); p++) {
        struct hand_made made;
        struct cb_filter filter = {0};
        make(&made, profiles[p], "getcwd", "ptrace");
        assert_int_equal(cb_filter_for_policy(&made.policy, &filter, NULL), 0);
        assert_true(filter.owned);
        assert_true(bpf_valid(filter.code, filter.length, NULL));
        for (size_t i = 0; i < count; i++) {
            struct cb_syscall_decision decision = cb_decide_syscall(&made.policy, table[i].name);
            assert_ptr_equal(decision.row, &table[i]);
            if (cb_syscall_number(&table[i], seccomp_arch_native()) < 0 || decision.verdict == CB_SYSCALL_CHECK)
                continue;
            static const int errnos[] = {[CB_SYSCALL_EPERM] = EPERM, [CB_SYSCALL_ENOSYS] = ENOSYS};
            int told = decision.verdict == CB_SYSCALL_ALLOW ? 0 : errnos[decision.verdict];
            assert_int_equal(judge_native(&filter, table[i].name, NULL), told);
            assert_int_equal(told != 0, decision.why != NULL);
        }
        assert_int_equal(judge_native(&filter, "getcwd", NULL), EPERM);
        assert_int_equal(judge_native(&filter, "ptrace", NULL), 0);
        cb_filter_free(&filter);
    }
    struct hand_made made;
    make(&made, CB_SYSCALLS_DEFAULT, NULL, NULL);
    struct cb_syscall_decision decision = cb_decide_syscall(&made.policy, "no_such_call");
    assert_int_equal(decision.verdict, CB_SYSCALL_ENOSYS);
    assert_null(decision.row);
}

static void test_custom_rules(void **state)
{
    static const uint64_t raw_socket[6] = {2, 3, 255}, tcp_socket[6] = {2, 1, 0}, fork_clone[6] = {17},
                          user_clone[6] = {0x10000011}, sti[6] = {0, 0x5412};
    struct hand_made made;
    struct cb_filter filter = {0};

    /* Deny wins over allow, and over the checks. */
    make(&made, CB_SYSCALLS_DEFAULT, "socket", "socket");
    assert_int_equal(cb_filter_for_policy(&made.policy, &filter, NULL), 0);
    assert_int_equal(judge_native(&filter, "socket", tcp_socket), EPERM);
    cb_filter_free(&filter);

    /* What strict refuses comes back as it is in the default profile, checks included. */
    make(&made, CB_SYSCALLS_STRICT, NULL, "socket");
    assert_int_equal(cb_filter_for_policy(&made.policy, &filter, NULL), 0);
    assert_int_equal(judge_native(&filter, "socket", tcp_socket), 0);
    assert_int_equal(judge_native(&filter, "socket", raw_socket), EPERM);
    cb_filter_free(&filter);
    make(&made, CB_SYSCALLS_STRICT, NULL, "clone");
    assert_int_equal(cb_filter_for_policy(&made.policy, &filter, NULL), 0);
    assert_int_equal(judge_native(&filter, "clone", fork_clone), 0);
    assert_int_equal(judge_native(&filter, "clone", user_clone), EPERM);
    cb_filter_free(&filter);

    /* Allowing a call that is checked lifts no check. */
    make(&made, CB_SYSCALLS_DEFAULT, NULL, "ioctl");
    assert_int_equal(cb_filter_for_policy(&made.policy, &filter, NULL), 0);
    assert_int_equal(judge_native(&filter, "ioctl", sti), EPERM);
    cb_filter_free(&filter);
}

static void test_rules_that_no_policy_may_have(void **state)
{
    static const char *const closed[] = {"mount",      "fsopen",      "open_tree",   "setns",  "unshare",
                                         "bpf",        "userfaultfd", "keyctl",      "clone3", "io_uring_setup",
                                         "kexec_load", "init_module", "pidfd_getfd", "openat2", "open_by_handle_at"};
    struct hand_made made;
    struct cb_filter filter = {0};
    for (size_t i = 0; i < COUNT(closed); i++) {
        cellblock_error *error = NULL;
        make(&made, CB_SYSCALLS_DEFAULT, NULL, closed[i]);
        assert_int_equal(cb_filter_for_policy(&made.policy, &filter, &error), -1);
        assert_int_equal(cellblock_error_code(error), CELLBLOCK_ERROR_POLICY);
        assert_non_null(strstr(cellblock_error_message(error), closed[i]));
        assert_non_null(strstr(cellblock_error_message(error), "p.jsonc:3:7"));
        assert_null(filter.code);
        cellblock_error_free(error);
        make(&made, CB_SYSCALLS_DEFAULT, closed[i], NULL); /* denying it once more is fine */
        assert_int_equal(cb_filter_for_policy(&made.policy, &filter, NULL), 0);
        cb_filter_free(&filter);
    }
    for (int allow = 0; allow < 2; allow++) {
        cellblock_error *error = NULL;
        make(&made, CB_SYSCALLS_DEFAULT, allow ? NULL : "opennat", allow ? "opennat" : NULL);
        assert_int_equal(cb_filter_for_policy(&made.policy, &filter, &error), -1);
        assert_int_equal(cellblock_error_code(error), CELLBLOCK_ERROR_POLICY);
        cellblock_error_free(error);
    }
}

static void test_architectures_without_a_filter(void **state)
{
    struct cb_filter filter = {0};
    cellblock_error *error = NULL;
    assert_int_equal(cb_filter_compile(CB_SYSCALLS_DEFAULT, NULL, SCMP_ARCH_ARM, &filter, &error), -1);
    assert_int_equal(cellblock_error_code(error), CELLBLOCK_ERROR_REFUSED);
    cellblock_error_free(error);
}

/* ---- The evaluator itself ---- */

static void test_evaluator_refuses_malformed(void **state)
{
    const struct sock_filter ok = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    const struct sock_filter programs[][2] = {
        {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 64), ok},
        {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 2), ok},
        {BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 0), ok},
        {BPF_STMT(BPF_JMP | BPF_JA, 1), ok},
        {BPF_STMT(BPF_JMP | BPF_JA, 0xffffffff), ok},
        {BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0), ok},
        {BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, 0, 0, 255), ok},
        {BPF_STMT(0xffff, 0), ok},
        {ok, BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 1)},
    };
    for (size_t i = 0; i < COUNT(programs); i++) {
        const char *reason = NULL;
        assert_false(bpf_valid(programs[i], 2, &reason));
        assert_non_null(reason);
    }
    assert_false(bpf_valid(&ok, 0, NULL));
    assert_true(bpf_valid(&ok, 1, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table_is_sound),
        cmocka_unit_test(test_table_knows_every_name),
        cmocka_unit_test(test_table_numbers),
        cmocka_unit_test(test_programs_are_valid),
        cmocka_unit_test(test_every_number_agrees_with_the_table),
        cmocka_unit_test(test_every_check_at_its_edges),
        cmocka_unit_test(test_any_mix_of_rules),
        cmocka_unit_test(test_other_architectures_are_killed),
        cmocka_unit_test(test_x32_is_killed),
        cmocka_unit_test(test_numbers_that_do_not_exist),
        cmocka_unit_test(test_verdicts),
        cmocka_unit_test(test_precompiled_equals_fresh),
        cmocka_unit_test(test_decisions_agree_with_the_filter),
        cmocka_unit_test(test_custom_rules),
        cmocka_unit_test(test_rules_that_no_policy_may_have),
        cmocka_unit_test(test_architectures_without_a_filter),
        cmocka_unit_test(test_evaluator_refuses_malformed),
    };
    return cmocka_run_group_tests(tests, compile_all, free_all);
}
