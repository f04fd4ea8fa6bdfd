/* The public API as an embedder uses it: the public header, the shared library, nothing else. */
#include <cellblock.h>

#include "place.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define SH(script) ((const char *const[]){"sh", "-c", script, NULL})
enum { PATIENCE_MS = 30000 };

/* What each test starts from: the default policy and a workspace. */
struct bench {
    struct place *place;
    cellblock_policy *policy;
    struct cellblock_options options;
};

static int bench_make(void **state)
{
    struct bench *bench = calloc(1, sizeof *bench);
    void *place = NULL;
    if (!bench || place_make(&place) < 0 || cellblock_policy_new(&bench->policy, NULL) < 0)
        return -1;
    bench->place = place;
    bench->options = (struct cellblock_options){.size = sizeof bench->options, .directory = bench->place->root,
                                                .collect = 1, .helper = CELLBLOCK_HELPER_NEVER,
                                                .helper_path = CELLBLOCK_PROGRAM};
    *state = bench;
    return 0;
}

static int bench_remove(void **state)
{
    struct bench *bench = *state;
    void *place = bench->place;
    cellblock_policy_free(bench->policy);
    free(bench);
    return place_remove(&place);
}

static cellblock_result *run(const struct bench *bench, const char *const *argv)
{
    struct cellblock_options options = bench->options;
    cellblock_result *result = NULL;
    cellblock_error *error = NULL;
    options.argv = argv;
    if (cellblock_run(bench->policy, &options, &result, &error) < 0)
        fail_msg("%s", cellblock_error_message(error));
    return result;
}

static cellblock_cell *start(const struct bench *bench, const char *const *argv)
{
    struct cellblock_options options = bench->options;
    cellblock_cell *cell = NULL;
    cellblock_error *error = NULL;
    options.argv = argv;
    if (cellblock_start(bench->policy, &options, &cell, &error) < 0)
        fail_msg("%s", cellblock_error_message(error));
    return cell;
}

static cellblock_result *wait_for(cellblock_cell *cell)
{
    cellblock_result *result = NULL;
    cellblock_error *error = NULL;
    if (cellblock_wait(cell, &result, &error) < 0)
        fail_msg("%s", cellblock_error_message(error));
    cellblock_cell_free(cell);
    return result;
}

static int count_descriptors(void)
{
    DIR *directory = opendir("/proc/self/fd");
    int count = 0;
    while (readdir(directory))
        count++;
    closedir(directory);
    return count;
}

/* Waits until nobody holds the other end of a pipe any more. */
static void expect_end_of(int fd)
{
    char bytes[256];
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    for (;;) {
        assert_int_equal(poll(&ready, 1, PATIENCE_MS), 1);
        ssize_t got = read(fd, bytes, sizeof bytes);
        if (got == 0)
            return;
        assert_true(got > 0);
    }
}

static void expect_line(int fd, const char *line)
{
    char bytes[64] = "";
    size_t length = strlen(line);
    assert_int_equal(read(fd, bytes, length), length);
    assert_string_equal(bytes, line);
}

/* ---- Options and errors ---- */

static void expect_failure(const struct bench *bench, const struct cellblock_options *options,
                           enum cellblock_error_code code, int errnum)
{
    cellblock_cell *cell = (cellblock_cell *)&cell;
    cellblock_error *error = NULL;
    assert_int_equal(cellblock_start(bench->policy, options, &cell, &error), -1);
    assert_ptr_equal(cell, &cell); /* outputs are written only on success */
    if ((int)cellblock_error_code(error) != (int)code)
        fail_msg("%d: %s", cellblock_error_code(error), cellblock_error_message(error));
    assert_int_equal(cellblock_error_errno(error), errnum);
    assert_true(strlen(cellblock_error_message(error)) > 0);
    cellblock_error_free(error);
    assert_int_equal(cellblock_start(bench->policy, options, &cell, NULL), -1);
}

static void test_size_of_the_options(void **state)
{
    const struct bench *bench = *state;
    struct cellblock_options options = bench->options;
    options.argv = SH("echo here");
    expect_failure(bench, NULL, CELLBLOCK_ERROR_USAGE, 0);
    options.size = 0;
    expect_failure(bench, &options, CELLBLOCK_ERROR_USAGE, 0);

    /* Compiled against an older header, whose struct ended earlier: what comes after it is not looked at. */
    options.size = offsetof(struct cellblock_options, helper);
    options.helper = CELLBLOCK_HELPER_ALWAYS;
    options.helper_path = "/no/such/helper";
    cellblock_result *result = NULL;
    assert_int_equal(cellblock_run(bench->policy, &options, &result, NULL), 0);
    assert_string_equal(cellblock_result_stdout(result, NULL), "here\n");
    cellblock_result_free(result);

    /* Compiled against a newer one. */
    struct {
        struct cellblock_options known;
        char unknown[64];
    } longer = {.known = bench->options};
    longer.known.argv = SH("echo there");
    longer.known.size = sizeof longer;
    assert_int_equal(cellblock_run(bench->policy, &longer.known, &result, NULL), 0);
    assert_string_equal(cellblock_result_stdout(result, NULL), "there\n");
    cellblock_result_free(result);
}

static void test_programs_that_can_not_be_run(void **state)
{
    const struct bench *bench = *state;
    struct cellblock_options options = bench->options;
    expect_failure(bench, &options, CELLBLOCK_ERROR_USAGE, 0);
    options.argv = (const char *const[]){NULL};
    expect_failure(bench, &options, CELLBLOCK_ERROR_USAGE, 0);
    options.argv = (const char *const[]){"no-such-program", NULL};
    expect_failure(bench, &options, CELLBLOCK_ERROR_PROGRAM, ENOENT);
    options.argv = (const char *const[]){"/usr", NULL};
    expect_failure(bench, &options, CELLBLOCK_ERROR_PROGRAM, EACCES);
    options.argv = SH("true");
    options.directory = "/no/such/directory";
    expect_failure(bench, &options, CELLBLOCK_ERROR_USAGE, ENOENT);
}

static void test_policy_errors(void **state)
{
    cellblock_policy *policy = NULL;
    cellblock_error *error = NULL;
    assert_int_equal(cellblock_policy_load_text("{", 1, "mine", &policy, &error), -1);
    assert_null(policy);
    assert_int_equal(cellblock_error_code(error), CELLBLOCK_ERROR_POLICY);
    assert_non_null(strstr(cellblock_error_message(error), "mine:1:"));
    cellblock_error_free(error);
    error = NULL;
    assert_int_equal(cellblock_policy_load_file("/no/such/policy", &policy, &error), -1);
    assert_int_equal(cellblock_error_errno(error), ENOENT);
    cellblock_error_free(error);
    assert_int_equal(cellblock_policy_load_text("[]", 2, "mine", &policy, NULL), -1);
}

static void test_free_accepts_nothing(void **state)
{
    cellblock_error_free(NULL);
    cellblock_policy_free(NULL);
    cellblock_cell_free(NULL);
    cellblock_result_free(NULL);
    assert_string_equal(cellblock_error_message(NULL), "no error");
    assert_null(cellblock_error_hint(NULL));
    assert_null(cellblock_error_layer(NULL));
    assert_true(strlen(cellblock_version()) >= 5);
}

static void test_documents(void **state)
{
    const struct bench *bench = *state;
    struct cellblock_options options = bench->options;
    options.argv = SH("touch made");
    char *json = NULL;
    assert_int_equal(cellblock_plan_json(bench->policy, &options, &json, NULL), 0);
    assert_non_null(strstr(json, "\"namespaces\""));
    free(json);
    assert_int_not_equal(access(place_path(bench->place, "made"), F_OK), 0);
    assert_int_equal(cellblock_policy_json(bench->policy, &json, NULL), 0);
    assert_non_null(strstr(json, "profile base"));
    free(json);
    assert_int_equal(cellblock_policy_schema(&json, NULL), 0);
    free(json);
    assert_int_equal(cellblock_doctor_json(&json, NULL), 0);
    assert_non_null(strstr(json, "can_enforce_default"));
    free(json);
}

/* ---- Running ---- */

static void expect_result(cellblock_result *result, const char *end, int exit_code, int signal, int status)
{
    assert_string_equal(cellblock_result_end(result), end);
    assert_int_equal(cellblock_result_exit_code(result), exit_code);
    assert_int_equal(cellblock_result_signal(result), signal);
    assert_int_equal(cellblock_result_shell_status(result), status);
    char *json = NULL;
    assert_int_equal(cellblock_result_json(result, &json, NULL), 0);
    assert_non_null(strstr(json, end));
    free(json);
    cellblock_result_free(result);
}

static void add(const struct bench *bench, const char *document)
{
    assert_int_equal(cellblock_policy_add_text(bench->policy, document, strlen(document), "test", NULL), 0);
}

static void test_ends(void **state)
{
    const struct bench *bench = *state;
    expect_result(run(bench, SH("exit 3")), "exited", 3, 0, 3);
    expect_result(run(bench, SH("kill -SEGV $$")), "signaled", -1, SIGSEGV, 128 + SIGSEGV);
    add(bench, "{\"cellblock\": 1, \"limits\": {\"wall_time\": \"200ms\"}}");
    cellblock_result *result = run(bench, SH("echo partial; exec sleep 1000"));
    assert_string_equal(cellblock_result_stdout(result, NULL), "partial\n");
    assert_string_equal(cellblock_result_end(result), "timeout");
    assert_int_equal(cellblock_result_shell_status(result), 124);
    cellblock_result_free(result);
}

static void test_output(void **state)
{
    const struct bench *bench = *state;
    cellblock_result *result = run(bench, SH("printf 'a\\0b'; printf err >&2"));
    size_t length;
    assert_memory_equal(cellblock_result_stdout(result, &length), "a\0b", 4);
    assert_int_equal(length, 3);
    assert_string_equal(cellblock_result_stderr(result, &length), "err");
    assert_int_equal(length, 3);
    cellblock_result_free(result);
    result = run(bench, SH("true"));
    assert_string_equal(cellblock_result_stdout(result, &length), "");
    assert_int_equal(length, 0);
    cellblock_result_free(result);
}

static void test_finish_is_for_the_end(void **state)
{
    const struct bench *bench = *state;
    cellblock_cell *cell = start(bench, SH("exec sleep 1000"));
    cellblock_result *result = NULL;
    cellblock_error *error = NULL;
    assert_true(cellblock_fd(cell) >= 0);
    assert_int_equal(cellblock_dispatch(cell, &error), 0);
    assert_int_equal(cellblock_finish(cell, &result, &error), -1);
    assert_int_equal(cellblock_error_code(error), CELLBLOCK_ERROR_USAGE);
    cellblock_error_free(error);
    cellblock_cell_free(cell);
}

static void test_cancel_and_signal(void **state)
{
    const struct bench *bench = *state;
    cellblock_cell *cell = start(bench, SH("trap '' TERM INT; while :; do sleep 1000; done"));
    assert_int_equal(cellblock_cancel(cell, NULL), 0);
    expect_result(wait_for(cell), "cancelled", -1, SIGKILL, 128 + SIGKILL);
    cell = start(bench, (const char *const[]){"sleep", "1000", NULL});
    assert_int_equal(cellblock_signal(cell, SIGTERM, NULL), 0);
    expect_result(wait_for(cell), "signaled", -1, SIGTERM, 128 + SIGTERM);
    cell = start(bench, SH("sleep 1000 & exec sleep 1000"));
    assert_int_equal(cellblock_signal(cell, SIGKILL, NULL), 0);
    expect_result(wait_for(cell), "signaled", -1, SIGKILL, 128 + SIGKILL);
}

static void test_a_cell_that_has_ended(void **state)
{
    const struct bench *bench = *state;
    cellblock_cell *cell = start(bench, SH("exit 4"));
    cellblock_result *result = NULL;
    assert_int_equal(cellblock_wait(cell, &result, NULL), 0);
    assert_int_equal(cellblock_signal(cell, SIGTERM, NULL), 0);
    assert_int_equal(cellblock_cancel(cell, NULL), 0);
    assert_int_equal(cellblock_dispatch(cell, NULL), 1);
    cellblock_cell_free(cell);
    expect_result(result, "exited", 4, 0, 4);
}

static void test_own_descriptors(void **state)
{
    const struct bench *bench = *state;
    struct bench own = *bench;
    int in[2], out[2];
    assert_int_equal(pipe2(in, O_CLOEXEC), 0);
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    own.options.collect = 0;
    own.options.stdio[0] = in[0];
    own.options.stdio[1] = out[1];
    own.options.stdio[2] = -1;
    assert_int_equal(write(in[1], "given\n", 6), 6);
    close(in[1]);
    expect_result(run(&own, SH("echo lost >&2; cat; exit 2")), "exited", 2, 0, 2);
    close(out[1]);
    expect_line(out[0], "given\n");
    expect_end_of(out[0]);
    close(out[0]);
    close(in[0]);
}

static void test_a_socket_as_standard_input(void **state)
{
    const struct bench *bench = *state;
    struct bench own = *bench;
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    own.options.stdio[0] = ends[0];
    assert_int_equal(write(ends[1], "by socket", 9), 9);
    shutdown(ends[1], SHUT_WR);
    cellblock_result *result = run(&own, SH("test ! -S /proc/self/fd/0 && cat"));
    assert_string_equal(cellblock_result_stdout(result, NULL), "by socket");
    expect_result(result, "exited", 0, 0, 0);
    close(ends[0]);
    close(ends[1]);
}

/* ---- The caller's process is left alone ---- */

static atomic_int children_heard_of;

static void on_child(int signal)
{
    children_heard_of++;
}

static void leaves_alone(const struct bench *given, enum cellblock_helper helper)
{
    struct bench bench = *given;
    struct sigaction heard = {.sa_handler = on_child}, before;
    sigset_t mask, mask_after;
    char directory[PATH_MAX], directory_after[PATH_MAX];
    bench.options.helper = helper;
    cellblock_result_free(run(&bench, SH("true"))); /* whatever libc keeps open, it opens now */
    int descriptors = count_descriptors();
    children_heard_of = 0;
    sigaction(SIGCHLD, &heard, &before);
    pthread_sigmask(SIG_BLOCK, NULL, &mask);
    mode_t umask_before = umask(027);
    assert_non_null(getcwd(directory, sizeof directory));
    for (int i = 0; i < 5; i++) {
        cellblock_result_free(run(&bench, SH("sleep 0 & exit 1")));
        cellblock_cell_free(start(&bench, SH("exec sleep 1000")));
        struct cellblock_options options = bench.options;
        options.argv = (const char *const[]){"no-such-program", NULL};
        cellblock_cell *cell = NULL;
        assert_int_equal(cellblock_start(bench.policy, &options, &cell, NULL), -1);
    }
    assert_int_equal(count_descriptors(), descriptors);
    assert_int_equal(waitpid(-1, NULL, WNOHANG | __WALL), -1); /* no zombie */
    assert_int_equal(errno, ECHILD);
    pthread_sigmask(SIG_BLOCK, NULL, &mask_after);
    for (int i = 1; i < NSIG; i++)
        assert_int_equal(sigismember(&mask, i), sigismember(&mask_after, i));
    assert_int_equal(umask(umask_before), 027);
    assert_non_null(getcwd(directory_after, sizeof directory_after));
    assert_string_equal(directory, directory_after);
    sigaction(SIGCHLD, &before, NULL);
    assert_int_equal(children_heard_of, 0);
}

static void test_nothing_is_left_in_the_caller(void **state)
{
    leaves_alone(*state, CELLBLOCK_HELPER_NEVER);
}

static void test_nothing_is_left_in_the_caller_by_a_helper(void **state)
{
    leaves_alone(*state, CELLBLOCK_HELPER_ALWAYS);
}

/* The caller's other children are its own: the library does not wait for them, and theirs are not missed. */
static void test_the_callers_own_children(void **state)
{
    const struct bench *bench = *state;
    pid_t child = fork();
    if (child == 0)
        _exit(9);
    cellblock_result_free(run(bench, SH("true")));
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(WEXITSTATUS(status), 9);
}

enum { THREADS = 8, CELLS_EACH = 6 };

struct worker {
    pthread_t thread;
    int number;
    enum cellblock_helper helper;
    const struct bench *bench;
    int wrong;
};

static void *work(void *data)
{
    struct worker *worker = data;
    for (int i = 0; i < CELLS_EACH; i++) {
        char script[64], expected[64];
        snprintf(script, sizeof script, "echo %d-%d; exit %d", worker->number, i, worker->number);
        snprintf(expected, sizeof expected, "%d-%d\n", worker->number, i);
        struct cellblock_options options = worker->bench->options;
        options.argv = SH(script);
        options.helper = worker->helper;
        cellblock_policy *policy = NULL;
        cellblock_result *result = NULL;
        int failed = cellblock_policy_new(&policy, NULL) < 0 || cellblock_run(policy, &options, &result, NULL) < 0;
        worker->wrong += failed || strcmp(cellblock_result_stdout(result, NULL), expected) != 0 ||
                         cellblock_result_exit_code(result) != worker->number;
        cellblock_result_free(result);
        cellblock_policy_free(policy);
    }
    return NULL;
}

static void test_threads(void **state)
{
    const struct bench *bench = *state;
    struct worker workers[THREADS];
    int descriptors = count_descriptors();
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.number = i, .bench = bench,
                                     .helper = i % 2 ? CELLBLOCK_HELPER_ALWAYS : CELLBLOCK_HELPER_NEVER};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    int wrong = 0;
    for (int i = 0; i < THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
        wrong += workers[i].wrong;
    }
    assert_int_equal(wrong, 0);
    assert_int_equal(count_descriptors(), descriptors);
}

static void test_many_cells_in_one_thread(void **state)
{
    enum { CELLS = 20 };
    const struct bench *bench = *state;
    cellblock_cell *cells[CELLS];
    for (int i = 0; i < CELLS; i++) {
        char script[32];
        snprintf(script, sizeof script, "echo %d", i);
        cells[i] = start(bench, SH(script));
    }
    for (int i = CELLS - 1; i >= 0; i--) {
        char expected[32];
        snprintf(expected, sizeof expected, "%d\n", i);
        cellblock_result *result = wait_for(cells[i]);
        assert_string_equal(cellblock_result_stdout(result, NULL), expected);
        cellblock_result_free(result);
    }
}

/* ---- The helper ---- */

/* The process whose pidfd the library holds: with a helper, that is the helper. */
static bool runs(pid_t pid, const char *program)
{
    char path[64], target[PATH_MAX] = "";
    snprintf(path, sizeof path, "/proc/%d/exe", (int)pid);
    return readlink(path, target, sizeof target - 1) > 0 && strcmp(target, program) == 0;
}

/* The one that runs our program: a pidfd may also have been inherited from whoever started the test. */
static pid_t process_behind_pidfd(void)
{
    DIR *directory = opendir("/proc/self/fdinfo");
    int found = -1;
    for (struct dirent *entry; found < 0 && (entry = readdir(directory));) {
        char path[300], line[256];
        snprintf(path, sizeof path, "/proc/self/fdinfo/%s", entry->d_name);
        FILE *file = fopen(path, "re");
        int pid = -1;
        while (file && fgets(line, sizeof line, file))
            if (sscanf(line, "Pid: %d", &pid) == 1 && pid > 0 && runs(pid, CELLBLOCK_PROGRAM))
                found = pid;
        if (file)
            fclose(file);
    }
    closedir(directory);
    return found;
}

static void compare(const struct bench *bench, const char *const *argv)
{
    struct bench through_helper = *bench;
    through_helper.options.helper = CELLBLOCK_HELPER_ALWAYS;
    cellblock_result *direct = run(bench, argv), *other = run(&through_helper, argv);
    assert_string_equal(cellblock_result_end(direct), cellblock_result_end(other));
    assert_int_equal(cellblock_result_exit_code(direct), cellblock_result_exit_code(other));
    assert_int_equal(cellblock_result_signal(direct), cellblock_result_signal(other));
    size_t one, two;
    const char *first = cellblock_result_stdout(direct, &one), *second = cellblock_result_stdout(other, &two);
    assert_int_equal(one, two);
    assert_memory_equal(first, second, one);
    assert_string_equal(cellblock_result_stderr(direct, NULL), cellblock_result_stderr(other, NULL));
    cellblock_result_free(direct);
    cellblock_result_free(other);
}

static void test_helper_gives_the_same(void **state)
{
    const struct bench *bench = *state;
    add(bench, "{\"cellblock\": 1, \"env\": {\"set\": {\"GIVEN\": \"value\"}}, \"limits\": {\"output\": \"100K\", "
               "\"open_files\": 77}}");
    compare(bench, SH("echo $GIVEN; pwd; ulimit -n; env | sort; id -u; echo err >&2; exit 3"));
    compare(bench, SH("kill -ABRT $$"));
    compare(bench, SH("printf '\\0\\377'"));
    compare(bench, SH("head -c 50000 /dev/zero"));
    compare(bench, SH("yes"));
    struct cellblock_options options = bench->options;
    options.helper = CELLBLOCK_HELPER_ALWAYS;
    options.argv = (const char *const[]){"no-such-program", NULL};
    expect_failure(bench, &options, CELLBLOCK_ERROR_PROGRAM, ENOENT);
    options.argv = SH("true");
    options.helper_path = "/no/such/helper";
    expect_failure(bench, &options, CELLBLOCK_ERROR_USAGE, ENOENT);
}

static void test_a_large_caller_uses_the_helper(void **state)
{
    struct bench bench = *(struct bench *)*state;
    const size_t size = 200 << 20;
    char *large = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    assert_true(large != MAP_FAILED);
    memset(large, 1, size);
    bench.options.helper = CELLBLOCK_HELPER_AUTO;
    cellblock_cell *cell = start(&bench, SH("echo small"));
    assert_true(runs(process_behind_pidfd(), CELLBLOCK_PROGRAM));
    cellblock_result *result = wait_for(cell);
    assert_string_equal(cellblock_result_stdout(result, NULL), "small\n");
    cellblock_result_free(result);
    bench.options.helper_path = "/no/such/helper"; /* slower, and nothing else */
    cellblock_result_free(run(&bench, SH("true")));
    munmap(large, size);
}

static void test_helper_cancel_and_signal(void **state)
{
    struct bench bench = *(struct bench *)*state;
    bench.options.helper = CELLBLOCK_HELPER_ALWAYS;
    cellblock_cell *cell = start(&bench, SH("trap '' TERM; while :; do sleep 1000; done"));
    assert_int_equal(cellblock_cancel(cell, NULL), 0);
    expect_result(wait_for(cell), "cancelled", -1, SIGKILL, 128 + SIGKILL);
    cell = start(&bench, (const char *const[]){"sleep", "1000", NULL});
    assert_int_equal(cellblock_signal(cell, SIGUSR1, NULL), 0);
    expect_result(wait_for(cell), "signaled", -1, SIGUSR1, 128 + SIGUSR1);
}

/* A cell that holds `out`, so that its end can be seen there. */
static cellblock_cell *start_holding(struct bench bench, int out)
{
    bench.options.collect = 0;
    bench.options.stdio[0] = bench.options.stdio[2] = -1;
    bench.options.stdio[1] = out;
    return start(&bench, SH("(trap '' TERM HUP; exec sleep 1000) & echo ready; exec sleep 1000"));
}

static void test_a_helper_that_dies(void **state)
{
    struct bench bench = *(struct bench *)*state;
    int out[2];
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    bench.options.helper = CELLBLOCK_HELPER_ALWAYS;
    cellblock_cell *cell = start_holding(bench, out[1]);
    close(out[1]);
    expect_line(out[0], "ready\n");
    pid_t helper = process_behind_pidfd();
    assert_true(runs(helper, CELLBLOCK_PROGRAM));
    assert_int_equal(kill(helper, SIGKILL), 0);
    cellblock_result *result = NULL;
    cellblock_error *error = NULL;
    assert_int_equal(cellblock_wait(cell, &result, &error), -1);
    assert_non_null(strstr(cellblock_error_message(error), "helper"));
    cellblock_error_free(error);
    cellblock_cell_free(cell);
    expect_end_of(out[0]);
    close(out[0]);
}

static void a_caller_that_dies(const struct bench *bench, enum cellblock_helper helper)
{
    int out[2];
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    pid_t caller = fork();
    if (caller == 0) {
        struct bench own = *bench;
        own.options.helper = helper;
        wait_for(start_holding(own, out[1])); /* output may be relayed by us */
        _exit(0);
    }
    close(out[1]);
    expect_line(out[0], "ready\n");
    kill(caller, SIGKILL);
    waitpid(caller, NULL, 0);
    expect_end_of(out[0]);
    close(out[0]);
}

static void test_a_caller_that_dies(void **state)
{
    a_caller_that_dies(*state, CELLBLOCK_HELPER_NEVER);
    a_caller_that_dies(*state, CELLBLOCK_HELPER_ALWAYS);
}

#define on_bench(test) cmocka_unit_test_setup_teardown(test, bench_make, bench_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        on_bench(test_size_of_the_options),
        on_bench(test_programs_that_can_not_be_run),
        cmocka_unit_test(test_policy_errors),
        cmocka_unit_test(test_free_accepts_nothing),
        on_bench(test_documents),
        on_bench(test_ends),
        on_bench(test_output),
        on_bench(test_finish_is_for_the_end),
        on_bench(test_cancel_and_signal),
        on_bench(test_a_cell_that_has_ended),
        on_bench(test_own_descriptors),
        on_bench(test_a_socket_as_standard_input),
        on_bench(test_nothing_is_left_in_the_caller),
        on_bench(test_nothing_is_left_in_the_caller_by_a_helper),
        on_bench(test_the_callers_own_children),
        on_bench(test_threads),
        on_bench(test_many_cells_in_one_thread),
        on_bench(test_helper_gives_the_same),
        on_bench(test_a_large_caller_uses_the_helper),
        on_bench(test_helper_cancel_and_signal),
        on_bench(test_a_helper_that_dies),
        on_bench(test_a_caller_that_dies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
