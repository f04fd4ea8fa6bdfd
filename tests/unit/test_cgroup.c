/* The cell's cgroup: real ones, where they can be had. Root can in trees of version 1; everybody can in one of version
 * 2 that was delegated. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/text.h"
#include "supervisor/cgroup.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

enum { EVERYTHING = CB_CGROUP_ALL | CB_CGROUP_CPUACCT };

static const struct cb_tree_limits unlimited = {CB_UNLIMITED, CB_UNLIMITED, CB_UNLIMITED,
                                                CB_UNLIMITED, CB_UNLIMITED, CB_UNLIMITED};

/* One limit, and one for processes, as nearly every policy has it. */
#define limits(...)                              \
    ({                                           \
        struct cb_tree_limits given = unlimited; \
        given.processes = 50;                    \
        given.__VA_ARGS__;                       \
        given;                                   \
    })

static const long long patience_ms = 20000;

static long long now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

/* Waits until `condition` holds, but not for ever. */
#define wait_until(condition)                                             \
    do {                                                                  \
        long long end = now_ms() + patience_ms;                           \
        while (!(condition)) {                                            \
            assert_true(now_ms() < end);                                  \
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);      \
        }                                                                 \
    } while (0)

/* Skips where no cgroup with these controllers can be had, as for an ordinary user without a delegated one. */
static struct cb_cgroup *make(const struct cb_tree_limits *wanted, unsigned controllers)
{
    struct cb_cgroup *group = NULL;
    cellblock_error *error = NULL;
    if ((cb_cgroup_look(wanted) & controllers) != controllers)
        skip();
    assert_int_equal(cb_cgroup_make(wanted, &group, &error), 0);
    assert_non_null(group);
    assert_int_equal(cb_cgroup_holds(group) & controllers, controllers);
    return group;
}

/* How many cgroups of cells of this process are there? In all trees. */
static int count_of(pid_t pid)
{
    struct cb_cgroup_places places;
    int count = 0;
    char mark[32];
    snprintf(mark, sizeof mark, "-%d-", (int)pid);
    cb_cgroup_find(EVERYTHING, &places);
    for (size_t i = 0; i < places.count; i++) {
        cb_autodir DIR *dir = fdopendir(dup(places.place[i].dir));
        rewinddir(dir);
        for (struct dirent *entry; (entry = readdir(dir));)
            count += cb_has_prefix(entry->d_name, "cellblock-") && strstr(entry->d_name, mark);
    }
    cb_cgroup_places_close(&places);
    return count;
}

static int count_descriptors(void)
{
    cb_autodir DIR *dir = opendir("/proc/self/fd");
    int count = 0;
    while (readdir(dir))
        count++;
    return count;
}

/* Starts a process that goes on once it is in the group (which may be NULL). */
static pid_t start_in(struct cb_cgroup *group, int (*function)(void))
{
    int go[2];
    assert_int_equal(pipe(go), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        char byte;
        close(go[1]);
        _exit(read(go[0], &byte, 1) == 1 ? function() : 100);
    }
    cellblock_error *error = NULL;
    if (group)
        assert_int_equal(cb_cgroup_enter(group, pid, &error), 0);
    assert_int_equal(write(go[1], "", 1), 1);
    close(go[0]);
    close(go[1]);
    return pid;
}

static int wait_for(pid_t pid)
{
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static int sleep_long(void)
{
    alarm(60); /* if the test itself is ended */
    while (pause() < 0)
        ;
    return 0;
}

/* As the cell's init: has none of our descriptors, and ends with the supervisor. */
static int sleep_closed(void)
{
    closefrom(3);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    return sleep_long();
}

static int fill_memory(void)
{
    const size_t size = 96 << 20;
    char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return 1;
    memset(memory, 1, size);
    return 0;
}

static void test_memory(void **state)
{
    const struct cb_tree_limits wanted = limits(memory = 32 << 20);
    struct cb_cgroup *group = make(&wanted, CB_CGROUP_MEMORY);
    assert_int_equal(wait_for(start_in(NULL, fill_memory)), 0); /* nothing stops it without */

    struct cb_cgroup_sample sample;
    assert_int_equal(cb_cgroup_look_at(group, &sample), 0);
    assert_int_equal(sample.oom_kills, 0);
    struct pollfd oom = {.fd = cb_cgroup_oom_fd(group), .events = POLLIN};
    assert_true(oom.fd >= 0);
    assert_int_equal(poll(&oom, 1, 0), 0);

    pid_t pid = start_in(group, fill_memory);
    do { /* in version 2, other events come first */
        assert_int_equal(poll(&oom, 1, (int)patience_ms), 1);
        assert_int_equal(cb_cgroup_look_at(group, &sample), 0);
    } while (sample.oom_kills == 0);
    int status = wait_for(pid);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGKILL);
    assert_int_equal(cb_cgroup_look_at(group, &sample), 0);
    assert_true(sample.oom_kills > 0);
    if (sample.memory_peak) { /* Linux 5.19 for version 2 */
        assert_true(sample.memory_peak > 20 << 20);
        assert_true(sample.memory_peak <= 32 << 20);
    }
    assert_int_equal(poll(&oom, 1, 0), 0); /* the look has answered it */
    cb_cgroup_free(group);
}

static int fork_many(void)
{
    int made = 0;
    while (made < 20 && fork() != -1) /* children do the same: all together are limited */
        made++;
    sleep_long();
    return 0;
}

static void test_processes(void **state)
{
    const struct cb_tree_limits wanted = limits(processes = 5);
    struct cb_cgroup *group = make(&wanted, CB_CGROUP_PIDS);
    pid_t pid = start_in(group, fork_many);
    struct cb_cgroup_sample sample;
    wait_until(cb_cgroup_look_at(group, &sample) == 0 && sample.processes == 6 && sample.forks_refused > 0);
    assert_true(sample.processes_peak == 0 || sample.processes_peak == 6); /* Linux 6.1 */
    /* There is no pid namespace here: the group takes all of them along. */
    cb_cgroup_free(group);
    assert_true(WIFSIGNALED(wait_for(pid)));
    assert_int_equal(count_of(getpid()), 0);
}

static void burn_ms(clockid_t clock, long long amount)
{
    struct timespec from, now;
    clock_gettime(clock, &from);
    do
        clock_gettime(clock, &now);
    while ((now.tv_sec - from.tv_sec) * 1000LL + (now.tv_nsec - from.tv_nsec) / 1000000 < amount);
}

static int burn(void)
{
    burn_ms(CLOCK_PROCESS_CPUTIME_ID, 60);
    return 0;
}

static void test_cpu_time(void **state)
{
    const struct cb_tree_limits wanted = limits(cpu_time_ms = 1000);
    struct cb_cgroup *group = make(&wanted, CB_CGROUP_CPUACCT);
    assert_int_equal(wait_for(start_in(group, burn)), 0);
    assert_int_equal(wait_for(start_in(group, burn)), 0); /* what ended counts too */
    struct cb_cgroup_sample sample;
    assert_int_equal(cb_cgroup_look_at(group, &sample), 0);
    assert_in_range(sample.cpu_us, 115000, 1000000);
    assert_int_equal(cb_cgroup_oom_fd(group), -1);
    cb_cgroup_free(group);
}

static void test_cpu_share(void **state)
{
    const struct cb_tree_limits wanted = limits(cpus = 100);
    struct cb_cgroup *group = make(&wanted, CB_CGROUP_CPU);
    /* A tenth of a processor is 10 ms in each 100 ms: 60 ms of work are spread over six such periods. */
    long long from = now_ms();
    assert_int_equal(wait_for(start_in(group, burn)), 0);
    assert_in_range(now_ms() - from, 350, 60000);
    cb_cgroup_free(group);
}

static void test_enter_says_why(void **state)
{
    const struct cb_tree_limits wanted = limits(memory = 32 << 20);
    struct cb_cgroup *group = make(&wanted, CB_CGROUP_MEMORY);
    cellblock_error *error = NULL;
    assert_int_equal(cb_cgroup_enter(group, 1 << 22, &error), -1);
    assert_int_equal(cellblock_error_errno(error), ESRCH);
    assert_string_equal(cellblock_error_layer(error), "cgroup");
    assert_non_null(strstr(cellblock_error_message(error), "/cgroup.procs"));
    cellblock_error_free(error);
    cb_cgroup_free(group);
}

static void test_nothing_wanted(void **state)
{
    struct cb_cgroup *group = (struct cb_cgroup *)1;
    assert_int_equal(cb_cgroup_make(&unlimited, &group, NULL), 0);
    assert_null(group);
    assert_int_equal(cb_cgroup_look(&unlimited), 0);
    cb_cgroup_free(NULL);
}

/* ---- Nothing stays ---- */

static const struct cb_tree_limits two = {64 << 20, 20, CB_UNLIMITED, CB_UNLIMITED, CB_UNLIMITED, CB_UNLIMITED};

static void need_two(void)
{
    cb_cgroup_free(make(&two, CB_CGROUP_MEMORY | CB_CGROUP_PIDS));
    assert_int_equal(count_of(getpid()), 0);
}

static int end_at_once(void)
{
    return 0;
}

static int (*process_inside)(void) = sleep_closed;

/* A supervisor that makes a cgroup, puts a process in and says so. */
static pid_t start_supervisor(void (*then)(void))
{
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct cb_cgroup *group = NULL;
        setpgid(0, 0);
        cb_cgroup_make(&two, &group, NULL);
        start_in(group, process_inside);
        if (!group || count_of(getpid()) == 0 || write(ready[1], "", 1) != 1)
            _exit(1);
        then();
        sleep_long();
    }
    char byte;
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return pid;
}

static void do_nothing(void)
{
}

static void become_another(void)
{
    execl("/bin/sleep", "sleep", "60", (char *)NULL);
}

static int second[2];

static void leave_a_copy(void)
{
    pid_t copy = fork(); /* has all descriptors, and lives on */
    if (copy > 0 && write(second[1], &copy, sizeof copy) < 0)
        _exit(1);
}

static void test_supervisor_killed(void **state)
{
    need_two();
    pid_t pid = start_supervisor(do_nothing);
    kill(pid, SIGKILL);
    wait_for(pid);
    wait_until(count_of(pid) == 0);
}

static void test_its_process_group_killed(void **state)
{
    need_two();
    pid_t pid = start_supervisor(do_nothing);
    kill(-pid, SIGKILL);
    wait_for(pid);
    wait_until(count_of(pid) == 0);
}

static void test_supervisor_goes_on_as_another(void **state)
{
    need_two();
    process_inside = end_at_once;
    pid_t pid = start_supervisor(become_another);
    process_inside = sleep_closed;
    wait_until(count_of(pid) == 0);
    assert_int_equal(kill(pid, SIGKILL), 0);
    wait_for(pid);
}

static void test_supervisor_leaves_a_copy(void **state)
{
    need_two();
    pid_t copy;
    assert_int_equal(pipe(second), 0);
    pid_t pid = start_supervisor(leave_a_copy);
    assert_int_equal(read(second[0], &copy, sizeof copy), sizeof copy);
    kill(pid, SIGKILL);
    wait_for(pid);
    wait_until(count_of(pid) == 0);
    assert_int_equal(kill(copy, SIGKILL), 0);
    close(second[0]);
    close(second[1]);
}

static int sleep_stubborn(void)
{
    closefrom(3);
    return sleep_long();
}

/* A process that does not end by itself is killed after a while. */
static void test_something_stays(void **state)
{
    need_two();
    process_inside = sleep_stubborn;
    pid_t pid = start_supervisor(do_nothing);
    process_inside = sleep_closed;
    kill(pid, SIGKILL);
    wait_for(pid);
    wait_until(count_of(pid) == 0);
}

/* At any moment: while it makes, uses and removes one after the other. */
static void test_killed_at_any_moment(void **state)
{
    need_two();
    for (int i = 0; i < 60; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            setpgid(0, 0);
            for (;;) {
                struct cb_cgroup *group = NULL;
                cb_cgroup_make(&two, &group, NULL);
                wait_for(start_in(group, end_at_once));
                cb_cgroup_free(group);
            }
        }
        nanosleep(&(struct timespec){.tv_nsec = 1000000 + i * 137000}, NULL);
        kill(pid, SIGKILL);
        wait_for(pid);
        wait_until(count_of(pid) == 0);
    }
}

/* ---- The caller does not notice ---- */

static volatile sig_atomic_t children_seen;

static void see_child(int signal)
{
    children_seen++;
}

static void test_caller_sees_nothing(void **state)
{
    need_two();
    int before = count_descriptors();
    struct sigaction old, handler = {.sa_handler = see_child};
    sigaction(SIGCHLD, &handler, &old);
    errno = 0;
    struct cb_cgroup *group = make(&two, CB_CGROUP_MEMORY);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
    cb_cgroup_remove(group);
    assert_int_equal(count_of(getpid()), 0);
    cb_cgroup_free(group);
    sigaction(SIGCHLD, &old, NULL);
    assert_int_equal(children_seen, 0);
    assert_int_equal(count_descriptors(), before);
}

static void *make_and_free(void *data)
{
    int *failures = data;
    for (int i = 0; i < 30; i++) {
        struct cb_cgroup *group = NULL;
        struct cb_cgroup_sample sample;
        if (cb_cgroup_make(&two, &group, NULL) < 0 || !group || cb_cgroup_look_at(group, &sample) < 0)
            ++*failures;
        /* What runs beside us has this thread's memory; its errno it must leave alone. */
        errno = 12345;
        for (int k = 0; k < 20000; k++)
            __asm__ volatile("" ::: "memory");
        if (errno != 12345)
            ++*failures;
        cb_cgroup_free(group);
    }
    return NULL;
}

static void test_many_threads(void **state)
{
    need_two();
    enum { THREADS = 6 };
    pthread_t threads[THREADS];
    int failures[THREADS] = {0}, before = count_descriptors();
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, make_and_free, &failures[i]), 0);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(failures[i], 0);
    }
    assert_int_equal(count_of(getpid()), 0);
    assert_int_equal(count_descriptors(), before);
}

/* ---- When it can't be had ---- */

static void test_too_few_descriptors(void **state)
{
    need_two();
    struct rlimit old, few;
    int before = count_descriptors();
    getrlimit(RLIMIT_NOFILE, &old);
    int highest = dup(0);
    close(highest);
    bool made = false;
    for (int more = 0; !made; more++) {
        struct cb_cgroup *group = NULL;
        few = (struct rlimit){(rlim_t)(highest + more), old.rlim_max};
        setrlimit(RLIMIT_NOFILE, &few);
        int failed = cb_cgroup_make(&two, &group, NULL);
        made = group != NULL;
        cb_cgroup_free(group);
        setrlimit(RLIMIT_NOFILE, &old);
        assert_int_equal(failed, 0);
        assert_true(made ? more > 5 : more < 40);
        assert_int_equal(count_of(getpid()), 0);
        assert_int_equal(count_descriptors(), before);
    }
}

/* Version 1 refuses a share that is larger than that of the cgroup above. */
static void test_limit_refused(void **state)
{
    const struct cb_tree_limits wanted = {64 << 20, 20, CB_UNLIMITED, 2000, CB_UNLIMITED, CB_UNLIMITED};
    if ((cb_cgroup_look(&wanted) & (CB_CGROUP_ALL | CB_CGROUP_V2)) != CB_CGROUP_ALL)
        skip();
    const struct cb_tree_limits small = limits(cpus = 50);
    struct cb_cgroup *outer = make(&small, CB_CGROUP_CPU);
    pid_t pid = fork();
    if (pid == 0) {
        struct cb_cgroup *group = NULL;
        cellblock_error *error = NULL;
        if (cb_cgroup_enter(outer, getpid(), &error) < 0)
            _exit(1);
        int failed = cb_cgroup_make(&wanted, &group, &error);
        _exit(failed ? 2 : group ? 3 : count_of(getpid()) ? 4 : 0);
    }
    assert_int_equal(wait_for(pid), 0);
    cb_cgroup_free(outer);
    assert_int_equal(count_of(getpid()), 0);
}

/* Supervisor and janitor can be ended together: the next one sees to it. */
static void test_left_behind(void **state)
{
    need_two();
    pid_t dead = fork();
    if (dead == 0)
        _exit(0);
    wait_for(dead);
    struct stat space;
    assert_int_equal(stat("/proc/self/ns/pid", &space), 0);
    char left[96], living[96], elsewhere[96];
    snprintf(left, sizeof left, "cellblock-%ju-%d-0", (uintmax_t)space.st_ino, (int)dead);
    snprintf(living, sizeof living, "cellblock-%ju-%d-0", (uintmax_t)space.st_ino, (int)getppid());
    snprintf(elsewhere, sizeof elsewhere, "cellblock-1-%d-0", (int)dead);
    struct cb_cgroup_places places;
    assert_int_equal(cb_cgroup_find(CB_CGROUP_MEMORY | CB_CGROUP_PIDS, &places), 0);
    int dir = places.place[0].dir;
    mkdirat(dir, left, 0755);
    mkdirat(dir, living, 0755);
    mkdirat(dir, elsewhere, 0755);
    struct cb_cgroup *group = make(&two, CB_CGROUP_MEMORY);
    wait_until(faccessat(dir, left, F_OK, 0) < 0);
    cb_cgroup_free(group);
    int kept = unlinkat(dir, living, AT_REMOVEDIR) == 0 && unlinkat(dir, elsewhere, AT_REMOVEDIR) == 0;
    cb_cgroup_places_close(&places);
    assert_true(kept);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_processes),
        cmocka_unit_test(test_cpu_time),
        cmocka_unit_test(test_cpu_share),
        cmocka_unit_test(test_enter_says_why),
        cmocka_unit_test(test_nothing_wanted),
        cmocka_unit_test(test_supervisor_killed),
        cmocka_unit_test(test_its_process_group_killed),
        cmocka_unit_test(test_supervisor_goes_on_as_another),
        cmocka_unit_test(test_supervisor_leaves_a_copy),
        cmocka_unit_test(test_something_stays),
        cmocka_unit_test(test_killed_at_any_moment),
        cmocka_unit_test(test_caller_sees_nothing),
        cmocka_unit_test(test_many_threads),
        cmocka_unit_test(test_too_few_descriptors),
        cmocka_unit_test(test_limit_refused),
        cmocka_unit_test(test_left_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
