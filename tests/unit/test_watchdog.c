/* The watchdog's parts: what is read of processes, and what is decided from it. */
#include "base/cleanup.h"
#include "base/missing.h"
#include "plan/share.h"
#include "supervisor/memory_use.h"
#include "supervisor/share.h"
#include "supervisor/tally.h"
#include "supervisor/tree.h"

#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <cmocka.h>

/* ---- Reading ---- */

#define NUMBERS "1 7 7 0 -1 4194368 10 0 0 0 250 50 1000 200 20 0 3 0 123456 1048576 512 18446744073709551615 1 1"

static void test_stat(void **state)
{
    (void)state;
    struct cb_process process = {0};
    assert_int_equal(cb_tree_parse_stat("7 (python3) R " NUMBERS, &process), 0);
    assert_int_equal(process.pid, 7);
    assert_int_equal(process.parent, 1);
    assert_int_equal(process.state, 'R');
    assert_true(process.forked);
    assert_int_equal(process.threads, 3);
    assert_int_equal(process.started, 123456);
    assert_int_equal(process.size, 1048576);
    assert_int_equal(process.resident, 512 * sysconf(_SC_PAGESIZE));
    uint64_t tick = 1000000 / (uint64_t)sysconf(_SC_CLK_TCK);
    assert_int_equal(process.user_us, 250 * tick);
    assert_int_equal(process.system_us, 50 * tick);
    assert_int_equal(process.waited_user_us, 1000 * tick);
    assert_int_equal(process.waited_system_us, 200 * tick);
}

static void test_a_name_can_hold_anything(void **state)
{
    (void)state;
    static const char *const names[] = {"", ")", ") R 0 0", "a b", "x) S 1 2 3 (", "\n7 (y) Z 9", "((((", "))))"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char text[512];
        struct cb_process process = {0};
        snprintf(text, sizeof text, "7 (%s) T " NUMBERS, names[i]);
        assert_int_equal(cb_tree_parse_stat(text, &process), 0);
        assert_int_equal(process.state, 'T');
        assert_int_equal(process.parent, 1);
        assert_int_equal(process.started, 123456);
    }
}

static void test_stat_that_is_cut_short(void **state)
{
    (void)state;
    const char whole[] = "7 (x) R " NUMBERS;
    const char *end = strstr(whole, " 18446744073709551615");
    for (size_t length = 0; length < (size_t)(end - whole); length++) {
        char text[sizeof whole];
        struct cb_process process;
        memcpy(text, whole, length);
        text[length] = '\0';
        assert_int_equal(cb_tree_parse_stat(text, &process), -1);
    }
}

static void test_fields(void **state)
{
    (void)state;
    const char io[] = "rchar: 5\nwchar: 6\nread_bytes: 7\nwrite_bytes: 4096\ncancelled_write_bytes: 1024\n";
    assert_int_equal(cb_tree_parse_field(io, "write_bytes"), 4096);
    assert_int_equal(cb_tree_parse_field(io, "cancelled_write_bytes"), 1024);
    assert_int_equal(cb_tree_parse_field(io, "rchar"), 5);
    assert_int_equal(cb_tree_parse_field(io, "char"), 0);
    assert_int_equal(cb_tree_parse_field(io, "write"), 0);
    assert_int_equal(cb_tree_parse_field("Pss_Anon:    12 kB\nPss:   30 kB\n", "Pss"), 30);
    assert_int_equal(cb_tree_parse_field("", "Pss"), 0);
}

/* ---- Real processes ---- */

struct family {
    pid_t first;
    int ready, hold; /* they end when `hold` is closed */
};

static void wait_for_end(int hold)
{
    char byte;
    while (read(hold, &byte, 1) > 0)
        ;
    _exit(0);
}

/* A first process with two children, one of which has a child itself. */
static struct family start_family(void)
{
    int ready[2], hold[2];
    assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
    assert_int_equal(pipe2(hold, O_CLOEXEC), 0);
    pid_t first = fork();
    assert_true(first >= 0);
    if (first == 0) {
        prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); /* orphans too are waited for */
        close(hold[1]);
        if (fork() == 0) {
            if (write(ready[1], "b", 1) == 1)
                wait_for_end(hold[0]);
        }
        if (fork() == 0) {
            fork();
            if (write(ready[1], "c", 1) == 1)
                wait_for_end(hold[0]);
        }
        char byte;
        if (write(ready[1], "a", 1) == 1)
            while (read(hold[0], &byte, 1) > 0)
                ;
        while (wait(NULL) > 0)
            ;
        _exit(0);
    }
    close(ready[1]);
    close(hold[0]);
    for (int i = 0; i < 4; i++) {
        char byte;
        assert_int_equal(read(ready[0], &byte, 1), 1);
    }
    return (struct family){first, ready[0], hold[1]};
}

static void end_family(struct family *family)
{
    char byte;
    close(family->hold);
    while (read(family->ready, &byte, 1) > 0)
        ;
    close(family->ready);
    assert_int_equal(waitpid(family->first, NULL, 0), family->first);
}

static void check_family(bool by_parents)
{
    struct family family = start_family();
    struct cb_tree tree = CB_TREE_INIT;
    assert_int_equal(cb_tree_open(&tree, -1, family.first), 0);
    tree.by_parents = by_parents;
    assert_int_equal(cb_tree_read(&tree, CB_TREE_MEMORY | CB_TREE_WRITTEN), 0);
    assert_int_equal(tree.now.count, 4);
    for (size_t i = 0; i < 4; i++) {
        const struct cb_process *process = &tree.now.list[i];
        assert_int_equal(process->threads, 1);
        assert_true(process->forked);
        assert_true(process->pid == family.first ? process->resident == 0 : process->resident > 4096);
        assert_true(i == 0 || process->pid > tree.now.list[i - 1].pid);
        assert_ptr_equal(cb_tree_find(&tree.now, process), process);
    }
    assert_int_equal(cb_tree_read(&tree, 0), 0);
    assert_int_equal(tree.before.count, 4);
    assert_int_equal(tree.now.list[3].looks, 2);
    end_family(&family);
    assert_int_equal(cb_tree_read(&tree, 0), -1);
    cb_tree_close(&tree);
}

static void test_descendants(void **state)
{
    (void)state;
    check_family(false);
}

static void test_descendants_by_their_parents(void **state)
{
    (void)state;
    check_family(true);
}

static char state_of(struct cb_tree *tree, const struct cb_process *who)
{
    struct cb_process wanted = *who;
    assert_int_equal(cb_tree_read(tree, 0), 0);
    const struct cb_process *found = cb_tree_find(&tree->now, &wanted);
    return found ? found->state : 0;
}

static void test_signals_reach_the_one_that_was_meant(void **state)
{
    (void)state;
    struct family family = start_family();
    struct cb_tree tree = CB_TREE_INIT;
    assert_int_equal(cb_tree_open(&tree, -1, family.first), 0);
    assert_int_equal(cb_tree_read(&tree, 0), 0);
    struct cb_process last = tree.now.list[3], other = last;
    cb_autofd int handle = cb_tree_handle(&tree, &last);
    assert_true(handle >= 0);
    assert_int_equal(cb_sys_pidfd_send_signal(handle, SIGSTOP, NULL, 0), 0);
    while (state_of(&tree, &last) != 'T')
        ;
    assert_int_equal(cb_sys_pidfd_send_signal(handle, SIGCONT, NULL, 0), 0);
    while (state_of(&tree, &last) == 'T')
        ;
    other.started++; /* the same number, but somebody else */
    assert_int_equal(cb_tree_handle(&tree, &other), -1);
    assert_null(cb_tree_find(&tree.now, &other));
    end_family(&family);
    assert_int_equal(cb_tree_handle(&tree, &last), -1);
    cb_tree_close(&tree);
}

static void test_a_root_that_is_not_a_cells(void **state)
{
    (void)state;
    struct cb_tree tree = CB_TREE_INIT;
    cb_autofd int root = open("/", O_PATH | O_CLOEXEC), empty = open("/dev", O_PATH | O_CLOEXEC);
    /* Its /proc lists us too: whoever is in there is not the cell's. */
    assert_int_equal(cb_tree_open(&tree, root, getpid()), -1);
    cb_tree_close(&tree);
    assert_int_equal(cb_tree_open(&tree, empty, getpid()), -1);
    cb_tree_close(&tree);
}

/* A page that two processes share is one page. */
static void test_weighing(void **state)
{
    (void)state;
    enum { MEGABYTES = 64 };
    int ready[2], hold[2];
    assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
    assert_int_equal(pipe2(hold, O_CLOEXEC), 0);
    pid_t first = fork();
    if (first == 0) {
        close(hold[1]);
        pid_t child = fork();
        if (child == 0) {
            char *memory = mmap(NULL, MEGABYTES << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            memset(memory, 1, MEGABYTES << 20);
            for (int i = 0; i < 3; i++)
                if (fork() == 0) {
                    for (int at = 0; at < MEGABYTES << 20; at += 4096)
                        ready[1] += memory[at] - 1; /* reads: nothing is copied */
                    break;
                }
            if (write(ready[1], "x", 1) != 1)
                _exit(1);
        }
        wait_for_end(hold[0]);
    }
    close(ready[1]);
    close(hold[0]);
    for (int i = 0; i < 4; i++) {
        char byte;
        assert_int_equal(read(ready[0], &byte, 1), 1);
    }
    struct cb_tree tree = CB_TREE_INIT;
    struct cb_memory_use use = CB_MEMORY_USE_INIT;
    assert_int_equal(cb_tree_open(&tree, -1, first), 0);
    cb_memory_use_open(&use, -1);
    assert_int_equal(cb_tree_read(&tree, CB_TREE_MEMORY), 0);
    assert_int_equal(tree.now.count, 5);
    struct cb_memory_total quick = cb_memory_use_quick(&use, &tree, 1 << 30, 0);
    assert_in_range(quick.most, 4 * MEGABYTES << 20, 5 * MEGABYTES << 20);
    struct cb_memory_total weighed = cb_memory_use_weigh(&use, &tree, 1 << 30, 0);
    assert_in_range(weighed.most, MEGABYTES << 20, (MEGABYTES << 20) * 5 / 4);
    /* From now on only growth counts, and there is none; objects that no process holds do. */
    assert_int_equal(cb_tree_read(&tree, CB_TREE_MEMORY), 0);
    quick = cb_memory_use_quick(&use, &tree, 1 << 30, 0);
    assert_in_range(quick.most, weighed.most, weighed.most + (4 << 20));
    assert_int_equal(cb_memory_use_quick(&use, &tree, 1 << 30, 12345).most, quick.most + 12345);
    close(hold[1]);
    assert_int_equal(waitpid(first, NULL, 0), first);
    close(ready[0]);
    cb_memory_use_close(&use);
    cb_tree_close(&tree);
}

/* ---- Sums ---- */

static void test_waited_for_is_counted_once(void **state)
{
    (void)state;
    struct cb_tally tally = {0};
    assert_int_equal(cb_tally_add(&tally, 100, 0, 0), 100);
    /* A child that used 40 ends, and its parent's account grows by 45: it used some more meanwhile. */
    assert_int_equal(cb_tally_add(&tally, 105, 40, 45), 105);
    assert_int_equal(cb_tally_add(&tally, 105, 0, 0), 105);
    assert_int_equal(tally.lost, 0);
}

static void test_accounts_are_read_early_or_late(void **state)
{
    (void)state;
    struct cb_tally late = {0}, early = {0};
    /* The parent was read before it waited: for a moment only what is owed keeps the sum. */
    assert_int_equal(cb_tally_add(&late, 100, 0, 0), 100);
    assert_int_equal(cb_tally_add(&late, 60, 40, 0), 100);
    assert_int_equal(cb_tally_add(&late, 100, 0, 40), 100);
    assert_int_equal(cb_tally_add(&late, 100, 0, 0), 100);
    assert_int_equal(late.lost, 0);
    /* The parent was read after it waited, the child before: both have it for a moment. */
    assert_int_equal(cb_tally_add(&early, 140, 0, 40), 140);
    assert_int_equal(cb_tally_add(&early, 100, 40, 0), 100);
    assert_int_equal(cb_tally_add(&early, 100, 0, 0), 100);
    assert_int_equal(early.lost, 0);
}

static void test_nobody_waited(void **state)
{
    (void)state;
    struct cb_tally tally = {0};
    assert_int_equal(cb_tally_add(&tally, 100, 0, 0), 100);
    for (int i = 1; i <= 50; i++) /* 30 of the 100 vanish each time, and others use as much again */
        assert_int_equal(cb_tally_add(&tally, 100, 30, 0), 100 + 30 * (uint64_t)i);
    assert_int_equal(tally.lost, 49 * 30);
}

/* A parent that starts children of `life_us` each, one after the other, with a gap, and looks at them. */
static uint64_t simulate(bool waits, uint64_t life_us, uint64_t gap_us, uint64_t total_us)
{
    const uint64_t leeway = 250000;
    struct cb_tally tally = {.leeway = leeway, .credit = leeway};
    uint64_t waited = 0, waited_before = 0, sum = 0, chance = 12345, now = 0, before = 0;
    uint64_t seen_known = 0, seen_number = UINT64_MAX;
    while (now < total_us) {
        chance = chance * 6364136223846793005ULL + 1442695040888963407ULL;
        before = now;
        now += cb_wait_by_chance(100000, (uint32_t)(chance >> 33));
        uint64_t round = life_us + gap_us, number = now / round, into = now % round;
        bool alive = into < life_us;
        waited = waits ? number * life_us + (alive ? 0 : life_us) : 0;
        uint64_t gone = 0;
        if (seen_number != UINT64_MAX && (seen_number != number || !alive))
            gone = cb_tally_glimpse(seen_known, 1000, now - before);
        uint64_t known = alive ? into / 10000 * 10000 : 0; /* the kernel tells hundredths of a second */
        sum = cb_tally_add(&tally, waited + known, gone, waited - waited_before);
        waited_before = waited;
        seen_number = alive ? number : UINT64_MAX;
        seen_known = known;
    }
    return sum;
}

static void test_children_that_come_and_go_between_looks(void **state)
{
    (void)state;
    const uint64_t total = 60000000;
    static const struct {
        uint64_t life, gap;
    } rhythms[] = {{5000, 100}, {30000, 100}, {3000, 3000}, {10000, 90000}, {40000, 200000}, {90000, 10000}};
    for (size_t i = 0; i < sizeof rhythms / sizeof *rhythms; i++) {
        uint64_t life = rhythms[i].life, gap = rhythms[i].gap, used = total / (life + gap) * life;
        /* An honest program is not charged more than it used, but for what a look can be wrong by. */
        assert_in_range(simulate(true, life, gap, total), used - used / 20, used + used / 20 + 200000);
        /* One that hides its children is charged for a good part of it. */
        assert_in_range(simulate(false, life, gap, total), used * 35 / 100 - 250000, used * 65 / 100 + 200000);
    }
}

/* ---- When to look again ---- */

static void test_waiting(void **state)
{
    (void)state;
    assert_int_equal(cb_wait_for(1000, 0, 1000), 1000000);
    assert_int_equal(cb_wait_for(1000, 750, 1000), 250000);
    assert_int_equal(cb_wait_for(1000, 1000, 1000), 0);
    assert_int_equal(cb_wait_for(1000, 5000, 1000), 0);
    assert_int_equal(cb_wait_for(UINT64_MAX - 1, 0, 1), 1000000000);
    static const struct {
        struct cb_wait wait;
        uint64_t expected;
    } table[] = {
        {{.soonest_us = 100000, .cost_us = 30}, 100000},
        {{.soonest_us = 0, .cost_us = 30}, 5000},              /* never more often */
        {{.soonest_us = 0, .cost_us = 1000}, 20000},           /* a twentieth of the time */
        {{.soonest_us = 30000, .cost_us = 200, .quiet = true}, 56000},    /* a two-hundredth and a bit less … */
        {{.soonest_us = 30000, .cost_us = 1200, .quiet = true}, 300000},  /* … but not too rarely … */
        {{.soonest_us = 30000, .cost_us = 20000, .quiet = true}, 400000}, /* … unless it costs very much */
        {{.soonest_us = 30000, .cost_us = 50, .quiet = true}, 30000},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        assert_int_equal(cb_wait_us(&table[i].wait), table[i].expected);
}

/* ---- Fork bombs ---- */

static bool run_bomb(uint64_t seconds, bool at_limit, const struct cb_effort *each_second)
{
    struct cb_bomb bomb = {0};
    bool is_one = false;
    for (uint64_t ms = 0; ms <= seconds * 1000 && !is_one; ms += 100) {
        const struct cb_effort effort = {each_second->user_us * ms / 1000, each_second->system_us * ms / 1000,
                                         each_second->calls * ms / 1000, each_second->running};
        is_one = cb_bomb_look(&bomb, at_limit, 1000000 + ms * 1000, &effort);
    }
    return is_one;
}

static void test_bombs(void **state)
{
    (void)state;
    static const struct {
        uint64_t seconds;
        bool at_limit;
        struct cb_effort each_second;
        bool is_one;
    } table[] = {
        {2, true, {100000, 900000, 10, true}, true},
        {2, true, {400000, 600000, 1000, false}, true},
        {2, true, {10000, 40000, 10, true}, true},          /* on a busy machine */
        {2, false, {100000, 900000, 10, true}, false},      /* busy, but not at its limit */
        {10, true, {900000, 600000, 10, true}, false},      /* at its limit, and works */
        {10, true, {100000, 900000, 50000, true}, false},   /* at its limit, and copies files */
        {10, true, {10000, 100000, 10, false}, false},      /* at its limit, and mostly idle */
        {0, true, {100000, 900000, 10, true}, false},       /* not for long */
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        assert_int_equal(run_bomb(table[i].seconds, table[i].at_limit, &table[i].each_second), table[i].is_one);
    /* A quiet hour at the limit does not hide what comes after. */
    struct cb_bomb bomb = {0};
    struct cb_effort effort = {0};
    for (uint64_t second = 0; second <= 3600; second++) {
        effort.user_us = second * 1000;
        assert_false(cb_bomb_look(&bomb, true, second * 1000000, &effort));
    }
    effort.system_us = 900000;
    assert_true(cb_bomb_look(&bomb, true, 3601ULL * 1000000, &effort));
}

/* ---- Shares ---- */

/* A cell that takes whatever it gets on `processors`; how much it got, in thousandths. */
static uint64_t run_share(uint64_t thousandths, uint64_t processors)
{
    struct cb_budget budget;
    uint64_t now = 0, spent = 0;
    const uint64_t total = 20000000;
    cb_budget_start(&budget, thousandths, processors, now);
    while (now < total) {
        uint64_t wait = cb_budget_wait(&budget);
        if (budget.left_us > 0)
            spent += wait * processors;
        now += wait;
        cb_budget_look(&budget, now, spent);
    }
    return spent * 1000 / now;
}

static void test_budgets(void **state)
{
    (void)state;
    static const uint64_t table[][2] = {{500, 1}, {100, 1}, {10, 1}, {900, 1}, {1500, 2}, {2250, 3}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        assert_in_range(run_share(table[i][0], table[i][1]), table[i][0] * 95 / 100, table[i][0] * 105 / 100 + 5);
    /* Having done nothing for an hour is no reason to take more than one period at once. */
    struct cb_budget budget;
    cb_budget_start(&budget, 500, 1, 0);
    cb_budget_look(&budget, 3600ULL * 1000000, 0);
    assert_int_equal(budget.left_us, 50000);
    /* A sum that steps back a little does no harm. */
    cb_budget_look(&budget, 3600ULL * 1000000, 20000);
    cb_budget_look(&budget, 3600ULL * 1000000, 15000);
    assert_int_equal(budget.left_us, 35000);
}

static uint32_t always_zero(uint32_t bound)
{
    return bound ? 0 : 0;
}

static uint32_t always_last(uint32_t bound)
{
    return bound - 1;
}

static void test_choosing_processors(void **state)
{
    (void)state;
    cpu_set_t allowed, chosen;
    CPU_ZERO(&allowed);
    for (size_t cpu = 3; cpu < 11; cpu += 2)
        CPU_SET(cpu, &allowed); /* 3, 5, 7, 9 */
    static const struct {
        uint64_t thousandths;
        int count;
    } table[] = {{1, 1}, {500, 1}, {1000, 1}, {1001, 2}, {2000, 2}, {3500, 4}, {4000, 4}, {64000, 4}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        cpu_set_t both;
        cb_share_pick(table[i].thousandths, &allowed, always_zero, &chosen);
        assert_int_equal(CPU_COUNT(&chosen), table[i].count);
        cb_share_pick(table[i].thousandths, &allowed, always_last, &chosen);
        assert_int_equal(CPU_COUNT(&chosen), table[i].count);
        CPU_AND(&both, &chosen, &allowed);
        assert_true(CPU_EQUAL(&both, &chosen));
    }
    cb_share_pick(1000, &allowed, always_zero, &chosen);
    assert_true(CPU_ISSET(3, &chosen));
    cb_share_pick(1000, &allowed, always_last, &chosen);
    assert_true(CPU_ISSET(9, &chosen));
    assert_int_equal(cb_share_choose(1000, &chosen), 0);
    assert_int_equal(CPU_COUNT(&chosen), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stat),
        cmocka_unit_test(test_a_name_can_hold_anything),
        cmocka_unit_test(test_stat_that_is_cut_short),
        cmocka_unit_test(test_fields),
        cmocka_unit_test(test_descendants),
        cmocka_unit_test(test_descendants_by_their_parents),
        cmocka_unit_test(test_signals_reach_the_one_that_was_meant),
        cmocka_unit_test(test_a_root_that_is_not_a_cells),
        cmocka_unit_test(test_weighing),
        cmocka_unit_test(test_waited_for_is_counted_once),
        cmocka_unit_test(test_accounts_are_read_early_or_late),
        cmocka_unit_test(test_nobody_waited),
        cmocka_unit_test(test_children_that_come_and_go_between_looks),
        cmocka_unit_test(test_waiting),
        cmocka_unit_test(test_bombs),
        cmocka_unit_test(test_budgets),
        cmocka_unit_test(test_choosing_processors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
