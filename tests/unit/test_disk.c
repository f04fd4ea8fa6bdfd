/* What was made on disk: found by walking, when the file system has a reason. */
#include "base/cleanup.h"
#include "place.h"
#include "supervisor/disk.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include <cmocka.h>

enum { MEGABYTE = 1 << 20 };

static void disk_cleanup(struct cb_disk **disk)
{
    cb_disk_free(*disk);
}
#define autodisk __attribute__((cleanup(disk_cleanup)))

static const struct cb_tree no_processes = CB_TREE_INIT;

static uint64_t clock_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* Files get their times from a clock that ticks: what comes after this is younger than what came before. */
static void let_it_tick(void)
{
    struct timespec first, now;
    for (int ticks = 0; ticks < 3; ticks++) {
        clock_gettime(CLOCK_REALTIME_COARSE, &first);
        do
            clock_gettime(CLOCK_REALTIME_COARSE, &now);
        while (now.tv_sec == first.tv_sec && now.tv_nsec == first.tv_nsec);
    }
}

/* Watches the directory "work" of the place. */
static struct cb_disk *start(const struct place *place, uint64_t bytes, uint64_t inodes)
{
    struct timespec since;
    place_directory(place, "work/");
    place_directory(place, "other/");
    let_it_tick();
    clock_gettime(CLOCK_MONOTONIC, &since);
    struct cb_disk *disk = cb_disk_new(bytes, inodes, since);
    assert_non_null(disk);
    assert_int_equal(cb_disk_add(disk, open(place_path(place, "work"), O_PATH | O_DIRECTORY | O_CLOEXEC)), 0);
    return disk;
}

/* Looks as the watchdog would, until something is passed, for a while on a clock of ours. */
static enum cb_disk_verdict look(struct cb_disk *disk, const struct cb_tree *tree)
{
    uint64_t now = clock_us(), wait;
    enum cb_disk_verdict verdict = CB_DISK_FINE;
    for (int i = 0; i < 200 && verdict == CB_DISK_FINE; i++) {
        verdict = cb_disk_look(disk, tree, now, &wait);
        assert_true(wait > 0); /* how long depends on what a look costs, and so on how busy the machine is */
        now += wait;
    }
    return verdict;
}

static void write_file(const struct place *place, const char *path, int megabytes)
{
    static char data[MEGABYTE];
    cb_autofd int fd = open(place_path(place, path), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    memset(data, 'x', sizeof data);
    for (int i = 0; i < megabytes; i++)
        assert_int_equal(write(fd, data, sizeof data), sizeof data);
}

static void make_files(const struct place *place, const char *directory, int count)
{
    for (int i = 0; i < count; i++) {
        char path[256];
        snprintf(path, sizeof path, "%s/%d", directory, i);
        cb_autofd int fd = open(place_path(place, path), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        assert_true(fd >= 0);
    }
}

static void test_too_many_bytes(void **state)
{
    struct place *place = *state;
    autodisk struct cb_disk *disk = start(place, 4 * MEGABYTE, CB_UNLIMITED);
    uint64_t bytes, inodes;
    place_directory(place, "work/a/b/");
    assert_int_equal(look(disk, &no_processes), CB_DISK_FINE);
    write_file(place, "work/a/b/one", 3);
    write_file(place, "work/two", 3);
    assert_int_equal(look(disk, &no_processes), CB_DISK_BYTES);
    cb_disk_found(disk, &bytes, &inodes);
    assert_true(bytes == 0 || bytes > 4 * MEGABYTE); /* 0 when the place is in memory */
}

static void test_too_many_inodes(void **state)
{
    struct place *place = *state;
    autodisk struct cb_disk *disk = start(place, CB_UNLIMITED, 5000);
    uint64_t bytes, inodes;
    make_files(place, "work", 4000);
    assert_int_equal(look(disk, &no_processes), CB_DISK_FINE);
    place_directory(place, "work/more/");
    make_files(place, "work/more", 1500);
    assert_int_equal(look(disk, &no_processes), CB_DISK_INODES);
    cb_disk_found(disk, &bytes, &inodes);
    assert_in_range(inodes, 5001, 5501);
}

static void test_what_others_do(void **state)
{
    struct place *place = *state;
    place_directory(place, "work/");
    write_file(place, "work/old", 8); /* before the start */
    autodisk struct cb_disk *disk = start(place, 4 * MEGABYTE, CB_UNLIMITED);
    uint64_t bytes, inodes;
    write_file(place, "other/large", 8);
    assert_int_equal(look(disk, &no_processes), CB_DISK_FINE);
    write_file(place, "work/small", 3);
    write_file(place, "other/again", 3);
    assert_int_equal(look(disk, &no_processes), CB_DISK_FINE);
    cb_disk_found(disk, &bytes, &inodes);
    assert_in_range(bytes, 0, 4 * MEGABYTE);
    /* They free as much as the cell takes: what it has is not forgotten. */
    assert_int_equal(unlink(place_path(place, "other/large")), 0);
    assert_int_equal(look(disk, &no_processes), CB_DISK_FINE);
    write_file(place, "work/much", 8);
    assert_int_equal(look(disk, &no_processes), CB_DISK_BYTES);
}

static void test_links(void **state)
{
    struct place *place = *state;
    write_file(place, "elsewhere", 1); /* also makes sure that this is not counted through a link */
    autodisk struct cb_disk *disk = start(place, 4 * MEGABYTE, 100);
    place_directory(place, "other/directory/");
    write_file(place, "other/directory/large", 8);
    place_link(place, "work/link", place_path(place, "other/directory"));
    place_link(place, "work/file", place_path(place, "other/directory/large"));
    place_link(place, "work/loop", ".");
    write_file(place, "work/name", 3);
    for (int i = 0; i < 200; i++) {
        char path[64];
        snprintf(path, sizeof path, "work/name%d", i);
        assert_int_equal(link(place_path(place, "work/name"), place_path(place, path)), 0);
    }
    make_files(place, "other", 200);
    assert_int_equal(look(disk, &no_processes), CB_DISK_FINE);
    write_file(place, "work/more", 2);
    write_file(place, "other/more", 8);
    assert_int_equal(look(disk, &no_processes), CB_DISK_BYTES);
}

static void make_deep(const struct place *place, int levels)
{
    cb_autofd int fd = open(place_path(place, "work"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; i < levels; i++) {
        assert_int_equal(mkdirat(fd, "d", 0700), 0);
        int next = openat(fd, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_true(next >= 0);
        close(fd);
        fd = next;
    }
    for (int i = 0; i < 300; i++) {
        char name[16];
        snprintf(name, sizeof name, "%d", i);
        cb_autofd int file = openat(fd, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        assert_true(file >= 0);
    }
}

static void test_deep_down(void **state)
{
    struct place *place = *state;
    autodisk struct cb_disk *disk = start(place, CB_UNLIMITED, 400);
    make_deep(place, 140);
    assert_int_equal(look(disk, &no_processes), CB_DISK_INODES);
}

static void test_out_of_sight(void **state)
{
    struct place *place = *state;
    autodisk struct cb_disk *disk = start(place, CB_UNLIMITED, 100);
    place_directory(place, "work/closed/");
    make_files(place, "work/closed", 200);
    assert_int_equal(chmod(place_path(place, "work/closed"), 0), 0); /* root can still look */
    assert_int_equal(look(disk, &no_processes), CB_DISK_INODES);
    assert_int_equal(chmod(place_path(place, "work/closed"), 0700), 0);
}

static void test_a_directory_that_was_closed_before(void **state)
{
    struct place *place = *state;
    place_directory(place, "work/closed/");
    assert_int_equal(chmod(place_path(place, "work/closed"), 0), 0);
    autodisk struct cb_disk *disk = start(place, CB_UNLIMITED, 100);
    make_files(place, "other", 300);
    assert_int_equal(look(disk, &no_processes), CB_DISK_FINE);
    assert_int_equal(chmod(place_path(place, "work/closed"), 0700), 0);
}

static void hold_until_end(int hold)
{
    char byte;
    while (read(hold, &byte, 1) > 0)
        ;
    _exit(0);
}

static void test_files_without_a_name(void **state)
{
    struct place *place = *state;
    autodisk struct cb_disk *disk = start(place, 4 * MEGABYTE, CB_UNLIMITED);
    int ready[2], hold[2];
    assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
    assert_int_equal(pipe2(hold, O_CLOEXEC), 0);
    pid_t first = fork();
    if (first == 0) {
        close(hold[1]);
        if (fork() == 0) {
            write_file(place, "work/f", 3);
            int fd = open(place_path(place, "work/f"), O_RDWR);
            if (fd < 0 || dup(fd) < 0 || unlink(place_path(place, "work/f")) < 0)
                _exit(1);
            fork(); /* both have it open, twice */
            if (write(ready[1], ".", 1) != 1)
                _exit(1);
        }
        hold_until_end(hold[0]);
    }
    close(ready[1]);
    close(hold[0]);
    for (int i = 0; i < 2; i++) {
        char byte;
        assert_int_equal(read(ready[0], &byte, 1), 1);
    }
    struct cb_tree tree = CB_TREE_INIT;
    assert_int_equal(cb_tree_open(&tree, -1, first), 0);
    assert_int_equal(cb_tree_read(&tree, 0), 0);
    write_file(place, "other/large", 8);
    assert_int_equal(look(disk, &tree), CB_DISK_FINE);
    write_file(place, "work/more", 2);
    write_file(place, "other/again", 8);
    assert_int_equal(look(disk, &tree), CB_DISK_BYTES);
    cb_tree_close(&tree);
    close(hold[1]);
    assert_int_equal(waitpid(first, NULL, 0), first);
    close(ready[0]);
}

static void test_a_plan_is_checked(void **state)
{
    struct place *place = *state;
    autodisk struct cb_disk *disk = start(place, MEGABYTE, CB_UNLIMITED);
    struct stat found;
    assert_int_equal(stat(place_path(place, "other"), &found), 0);
    char source[256], at[256];
    snprintf(source, sizeof source, "%s", place_path(place, "other"));
    snprintf(at, sizeof at, "%s", source + 1);
    struct cb_step step = {.kind = CB_STEP_BIND,
                           .at = at,
                           .source = source,
                           .directory = true,
                           .access = CB_ACCESS_WRITE,
                           .device_number = found.st_dev,
                           .inode = found.st_ino};
    const struct cb_plan plan = {.steps = &step, .step_count = 1};
    cb_autofd int root = open("/", O_PATH | O_CLOEXEC);
    assert_int_equal(cb_disk_add_plan(disk, &plan, -1, NULL), 0);
    assert_int_equal(cb_disk_add_plan(disk, &plan, root, NULL), 0);
    step.inode++; /* something else is there by now */
    assert_int_equal(cb_disk_add_plan(disk, &plan, -1, NULL), -1);
    step.access = CB_ACCESS_READ; /* not written to: not looked at */
    assert_int_equal(cb_disk_add_plan(disk, &plan, -1, NULL), 0);
    assert_int_equal(cb_disk_add(disk, -1), -1);
}

int main(void)
{
#define with_place(test) cmocka_unit_test_setup_teardown(test, place_make, place_remove)
    const struct CMUnitTest tests[] = {
        with_place(test_too_many_bytes),
        with_place(test_too_many_inodes),
        with_place(test_what_others_do),
        with_place(test_links),
        with_place(test_deep_down),
        with_place(test_out_of_sight),
        with_place(test_a_directory_that_was_closed_before),
        with_place(test_files_without_a_name),
        with_place(test_a_plan_is_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
