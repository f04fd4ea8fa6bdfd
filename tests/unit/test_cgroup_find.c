/* Where the cell's cgroup may be made: discovery, on made-up trees. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "host/cgroup.h"
#include "place.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

enum { EVERYTHING = CB_CGROUP_ALL | CB_CGROUP_CPUACCT };

/* A line of mountinfo for a directory of the place, `shown` as it is written there. */
static void add_mount(struct cb_text *mountinfo, const struct place *place, const char *path, const char *shown,
                      const char *root, const char *kind)
{
    struct stat found;
    assert_int_equal(stat(place_path(place, path), &found), 0);
    cb_text_addf(mountinfo, "31 23 %u:%u %s %s/%s rw,nosuid shared:9 - %s\n", major(found.st_dev), minor(found.st_dev),
                 root, place->root, shown, kind);
}

static unsigned find_in(const char *cgroup, struct cb_text *mountinfo, unsigned wanted,
                        struct cb_cgroup_places *places)
{
    const struct cb_cgroup_texts texts = {cgroup, mountinfo->data ? mountinfo->data : ""};
    int failed = cb_cgroup_find_in(&texts, wanted, places);
    assert_int_equal(failed, places->count ? 0 : -1);
    if (failed)
        assert_int_equal(errno, places->errnum);
    return places->controllers;
}

static void assert_is(int dir, const char *path)
{
    struct stat a, b;
    assert_int_equal(fstat(dir, &a), 0);
    assert_int_equal(stat(path, &b), 0);
    assert_int_equal(a.st_ino, b.st_ino);
    assert_int_equal(a.st_dev, b.st_dev);
}

static void test_v1_trees(void **state)
{
    const struct place *place = *state;
    place_directory(place, "memory/a/b");
    place_directory(place, "cpu/a");
    cb_autotext struct cb_text mountinfo = {0};
    cb_text_addf(&mountinfo, "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n22 1 0:5 /");
    cb_text_addf(&mountinfo, "\nnonsense - cgroup\n - cgroup cgroup rw,memory\n");
    add_mount(&mountinfo, place, "memory", "memory", "/", "cgroup cgroup rw,memory");
    add_mount(&mountinfo, place, "cpu", "cpu", "/", "cgroup cgroup rw,cpu,cpuacct");
    struct cb_cgroup_places places;
    const char *cgroup = "12:hugetlb:/x\n4:memory:/a/b\n3:cpu,cpuacct:/a\n1:name=memory:/\nbroken\n0::/\n";
    assert_int_equal(find_in(cgroup, &mountinfo, EVERYTHING, &places),
                     CB_CGROUP_MEMORY | CB_CGROUP_CPU | CB_CGROUP_CPUACCT);
    assert_int_equal(places.errnum, ENOENT); /* no tree with pids */
    assert_int_equal(places.count, 2); /* two controllers in one tree are one place */
    assert_is(places.place[0].dir, place_path(place, "memory/a/b"));
    assert_is(places.place[1].dir, place_path(place, "cpu/a"));
    assert_int_equal(places.place[1].controllers, CB_CGROUP_CPU | CB_CGROUP_CPUACCT);
    cb_cgroup_places_close(&places);

    assert_int_equal(find_in(cgroup, &mountinfo, CB_CGROUP_MEMORY, &places), CB_CGROUP_MEMORY);
    assert_int_equal(places.count, 1); /* only what is needed */
    assert_int_equal(places.errnum, 0);
    cb_cgroup_places_close(&places);

    assert_int_equal(find_in("", &mountinfo, EVERYTHING, &places), 0);
    assert_int_equal(find_in(cgroup, &(struct cb_text){0}, EVERYTHING, &places), 0);
    assert_int_equal(places.errnum, ENOENT);
}

/* A container: the mount begins at its own cgroup. And a name with a blank, which mountinfo writes as \040. */
static void test_part_of_a_tree(void **state)
{
    const struct place *place = *state;
    place_directory(place, "my memory/inner");
    cb_autotext struct cb_text mountinfo = {0};
    add_mount(&mountinfo, place, "my memory", "my\\040memory", "/pods/a\\040pod", "cgroup cgroup rw,memory");
    struct cb_cgroup_places places;
    assert_int_equal(find_in("4:memory:/pods/a pod/inner\n", &mountinfo, CB_CGROUP_MEMORY, &places), CB_CGROUP_MEMORY);
    assert_is(places.place[0].dir, place_path(place, "my memory/inner"));
    cb_cgroup_places_close(&places);
    assert_int_equal(find_in("4:memory:/pods/a pod\n", &mountinfo, CB_CGROUP_MEMORY, &places), CB_CGROUP_MEMORY);
    assert_is(places.place[0].dir, place_path(place, "my memory"));
    cb_cgroup_places_close(&places);
    /* Not in the part that is shown, although the names could be put together. */
    assert_int_equal(find_in("4:memory:/inner\n", &mountinfo, CB_CGROUP_MEMORY, &places), 0);
    assert_int_equal(find_in("4:memory:/pods/a podx\n", &mountinfo, CB_CGROUP_MEMORY, &places), 0);
}

static void test_what_is_not_ours(void **state)
{
    const struct place *place = *state;
    place_directory(place, "memory/a");
    place_directory(place, "outside");
    cb_autotext struct cb_text mountinfo = {0}, covered = {0};
    add_mount(&mountinfo, place, "memory", "memory", "/", "cgroup cgroup rw,memory");
    struct cb_cgroup_places places;
    /* Outside of our cgroup namespace: the name would lead out of the mount. */
    assert_int_equal(find_in("4:memory:/../outside\n", &mountinfo, CB_CGROUP_MEMORY, &places), 0);
    assert_int_equal(find_in("4:memory:/..\n", &mountinfo, CB_CGROUP_MEMORY, &places), 0);
    /* Gone in the meantime. */
    assert_int_equal(find_in("4:memory:/gone\n", &mountinfo, CB_CGROUP_MEMORY, &places), 0);
    assert_int_equal(places.errnum, ENOENT);
    /* Something else is mounted on top. */
    cb_text_addf(&covered, "31 23 0:99999 / %s rw - cgroup cgroup rw,memory\n", place_path(place, "memory"));
    assert_int_equal(find_in("4:memory:/a\n", &covered, CB_CGROUP_MEMORY, &places), 0);
    /* Another user's. */
    if (geteuid() == 0) {
        assert_int_equal(chmod(place->root, 0755), 0);
        assert_int_equal(seteuid(65534), 0);
        unsigned found = find_in("4:memory:/a\n", &mountinfo, CB_CGROUP_MEMORY, &places);
        assert_int_equal(seteuid(0), 0);
        assert_int_equal(found, 0);
        assert_int_equal(places.errnum, EACCES);
    }
}

static void make_v2(const struct place *place, const char *path, const char *available, const char *handed)
{
    char name[128];
    const struct {
        const char *file, *content;
    } files[] = {{"cgroup.controllers", available}, {"cgroup.subtree_control", handed}, {"cgroup.procs", ""}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(name, sizeof name, "%s/%s", path, files[i].file);
        place_file(place, name, files[i].content);
    }
}

static const char *const all = "cpuset cpu io memory pids\n";

static void test_v2_trees(void **state)
{
    const struct place *place = *state;
    cb_autotext struct cb_text mountinfo = {0};
    struct cb_cgroup_places places;

    make_v2(place, "top", all, "cpu memory pids\n");
    add_mount(&mountinfo, place, "top", "top", "/", "cgroup2 cgroup2 rw,nsdelegate");
    /* We are in the root of the tree, which hands controllers down. */
    assert_int_equal(find_in("0::/\n", &mountinfo, EVERYTHING, &places), EVERYTHING | CB_CGROUP_V2);
    assert_is(places.place[0].dir, place_path(place, "top"));
    cb_cgroup_places_close(&places);

    /* In a container's cgroup namespace, below its top: beside us. */
    place_file(place, "top/cgroup.type", "domain\n");
    make_v2(place, "top/we", "cpu memory pids\n", "");
    assert_int_equal(find_in("0::/we\n", &mountinfo, EVERYTHING, &places), EVERYTHING | CB_CGROUP_V2);
    assert_is(places.place[0].dir, place_path(place, "top"));
    assert_int_equal(places.place[0].enable, 0);
    cb_cgroup_places_close(&places);
    /* … unless it would free the cell from a limit that we are under. */
    place_file(place, "top/we/memory.max", "1073741824\n");
    assert_int_equal(find_in("0::/we\n", &mountinfo, EVERYTHING, &places), 0);
    place_file(place, "top/we/memory.max", "max\n");
    place_file(place, "top/we/pids.max", "100\n");
    assert_int_equal(find_in("0::/we\n", &mountinfo, CB_CGROUP_MEMORY, &places), 0);
    assert_int_equal(find_in("0::/we\n", &mountinfo, CB_CGROUP_MEMORY | CB_CGROUP_PIDS, &places),
                     CB_CGROUP_MEMORY | CB_CGROUP_PIDS | CB_CGROUP_V2);
    cb_cgroup_places_close(&places);
    place_file(place, "top/we/pids.max", "max\n");

    /* What was delegated but is not yet handed down can be; only that. */
    place_file(place, "top/cgroup.subtree_control", "memory\n");
    place_file(place, "top/cgroup.controllers", "memory pids\n");
    place_file(place, "top/we/cgroup.controllers", "memory\n");
    assert_int_equal(find_in("0::/we\n", &mountinfo, EVERYTHING, &places),
                     CB_CGROUP_MEMORY | CB_CGROUP_PIDS | CB_CGROUP_CPUACCT | CB_CGROUP_V2);
    assert_int_equal(places.place[0].enable, CB_CGROUP_PIDS);
    assert_int_equal(places.errnum, ENOENT);
    cb_cgroup_places_close(&places);

    /* Further down only what is handed down already. */
    make_v2(place, "top/part", "memory\n", "memory\n");
    make_v2(place, "top/part/we", "memory\n", "");
    assert_int_equal(find_in("0::/part/we\n", &mountinfo, EVERYTHING, &places),
                     CB_CGROUP_MEMORY | CB_CGROUP_CPUACCT | CB_CGROUP_V2);
    assert_is(places.place[0].dir, place_path(place, "top/part"));
    assert_int_equal(places.place[0].enable, 0);
    cb_cgroup_places_close(&places);

    /* We are in the top itself: it was given to us, but we are in the way. */
    assert_int_equal(find_in("0::/\n", &mountinfo, CB_CGROUP_PIDS, &places), 0);
    assert_int_equal(places.errnum, EBUSY);
    /* Time is counted without a controller, so being in the way does not matter. */
    assert_int_equal(find_in("0::/\n", &mountinfo, CB_CGROUP_CPUACCT, &places), CB_CGROUP_CPUACCT | CB_CGROUP_V2);
    cb_cgroup_places_close(&places);
}

/* To root everything is writable: that alone is no delegation. To an ordinary user it is. */
static void test_v2_by_owner(void **state)
{
    const struct place *place = *state;
    cb_autotext struct cb_text mountinfo = {0};
    struct cb_cgroup_places places;
    make_v2(place, "top/user/we", all, "");
    make_v2(place, "top/user", all, "memory pids\n");
    make_v2(place, "top", all, all);
    add_mount(&mountinfo, place, "top", "top", "/", "cgroup2 cgroup2 rw");
    unsigned found = find_in("0::/user/we\n", &mountinfo, EVERYTHING, &places);
    cb_cgroup_places_close(&places);
    if (geteuid() == 0) {
        assert_int_equal(found, 0);
        assert_int_equal(places.errnum, EACCES);
        assert_int_equal(chown(place->root, 65534, 65534), 0);
        for (const char *const *name = (const char *const[]){"top/user", "top/user/cgroup.procs",
                                                             "top/user/cgroup.subtree_control", NULL}; *name; name++)
            assert_int_equal(chown(place_path(place, *name), 65534, 65534), 0);
        assert_int_equal(seteuid(65534), 0);
        found = find_in("0::/user/we\n", &mountinfo, EVERYTHING, &places);
        assert_int_equal(seteuid(0), 0);
        cb_cgroup_places_close(&places);
    }
    /* Not cpu: whoever divides that cgroup does not hand it down. */
    assert_int_equal(found, CB_CGROUP_MEMORY | CB_CGROUP_PIDS | CB_CGROUP_CPUACCT | CB_CGROUP_V2);
}

/* Memory in a tree of version 1, the rest in one of version 2: each is taken where it is. */
static void test_both_versions(void **state)
{
    const struct place *place = *state;
    cb_autotext struct cb_text mountinfo = {0};
    struct cb_cgroup_places places;
    make_v2(place, "top", "pids\n", "pids\n");
    place_directory(place, "memory");
    add_mount(&mountinfo, place, "memory", "memory", "/", "cgroup cgroup rw,memory");
    add_mount(&mountinfo, place, "top", "top", "/", "cgroup2 cgroup2 rw");
    assert_int_equal(find_in("4:memory:/\n0::/\n", &mountinfo, CB_CGROUP_MEMORY | CB_CGROUP_PIDS, &places),
                     CB_CGROUP_MEMORY | CB_CGROUP_PIDS | CB_CGROUP_V2);
    assert_int_equal(places.count, 2);
    cb_cgroup_places_close(&places);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_v1_trees, place_make, place_remove),
        cmocka_unit_test_setup_teardown(test_part_of_a_tree, place_make, place_remove),
        cmocka_unit_test_setup_teardown(test_what_is_not_ours, place_make, place_remove),
        cmocka_unit_test_setup_teardown(test_v2_trees, place_make, place_remove),
        cmocka_unit_test_setup_teardown(test_v2_by_owner, place_make, place_remove),
        cmocka_unit_test_setup_teardown(test_both_versions, place_make, place_remove),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
