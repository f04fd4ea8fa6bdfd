/* From the words of a policy to objects: walking paths, the workspace, programs, places and absent paths. */
#include "base/cleanup.h"
#include "base/error.h"
#include "base/text.h"
#include "place.h"
#include "policy/network.h"
#include "policy/programs.h"
#include "policy/resolve.h"
#include "policy/walk.h"
#include "policy/workspace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

/* ---- Paths ---- */

static void test_clean(void **state)
{
    static const char *const table[][2] = {
        {"/", "/"},         {"//", "/"},       {"/a/", "/a"},       {"/a//b", "/a/b"},
        {"/./a/./b/.", "/a/b"}, {"/a/../b", "/a/../b"}, {"/...", "/..."}, {"/a/.b", "/a/.b"},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        char path[64];
        snprintf(path, sizeof path, "%s", table[i][0]);
        cb_path_clean(path);
        assert_string_equal(path, table[i][1]);
    }
}

static void test_parent(void **state)
{
    static const char *const table[][2] = {{"/", "/"}, {"/a", "/"}, {"/a/b", "/a"}, {"/a/b/c", "/a/b"}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        cb_autofree char *parent = cb_path_parent(table[i][0]);
        assert_string_equal(parent, table[i][1]);
    }
}

static void expect_walk(const char *path, const char *canonical, size_t links)
{
    cb_autowalk struct cb_walk walk = CB_WALK_INIT;
    int missing = -1;
    assert_int_equal(cb_walk_path(path, &walk, &missing, NULL), 0);
    if (walk.fd < 0)
        fail_msg("%s: %s", path, strerror(missing));
    assert_string_equal(walk.path, canonical);
    assert_int_equal(walk.link_count, links);
    struct stat found;
    assert_int_equal(stat(canonical, &found), 0);
    assert_true(walk.inode == found.st_ino && walk.device == found.st_dev);
}

static void test_walk(void **state)
{
    const struct place *place = *state;
    place_file(place, "a/b/file", "");
    place_link(place, "a/rel", "b/file");
    place_link(place, "a/up", "../a/b");
    place_link(place, "abs", place_path(place, "a"));
    place_link(place, "chain", "abs/up");
    const char *file = place_path(place, "a/b/file"), *b = place_path(place, "a/b");
    expect_walk(file, file, 0);
    expect_walk(place_path(place, "a//b/./file"), file, 0);
    expect_walk(place_path(place, "a/b/../b/file"), file, 0);
    expect_walk(place_path(place, "a/rel"), file, 1);
    expect_walk(place_path(place, "a/up/file"), file, 1);
    expect_walk(place_path(place, "abs/b/file"), file, 1);
    expect_walk(place_path(place, "chain"), b, 3);
    expect_walk(place_path(place, "chain/../rel"), file, 4);
    expect_walk("/", "/", 0);
    expect_walk("/..", "/", 0);
}

static void expect_missing(const char *path, int reason)
{
    cb_autowalk struct cb_walk walk = CB_WALK_INIT;
    int missing = 0;
    assert_int_equal(cb_walk_path(path, &walk, &missing, NULL), 0);
    assert_int_equal(walk.fd, -1);
    assert_int_equal(missing, reason);
    assert_non_null(walk.path);
}

static void test_walk_that_does_not_arrive(void **state)
{
    const struct place *place = *state;
    place_file(place, "file", "");
    place_link(place, "round", "other");
    place_link(place, "other", "round");
    place_link(place, "dangling", "nowhere");
    expect_missing(place_path(place, "missing"), ENOENT);
    expect_missing(place_path(place, "missing/deeper"), ENOENT);
    expect_missing(place_path(place, "file/deeper"), ENOTDIR);
    expect_missing(place_path(place, "dangling"), ENOENT);
    expect_missing(place_path(place, "round"), ELOOP);
}

/* ---- The workspace ---- */

static void test_workspace_check(void **state)
{
    static const struct {
        const char *path, *home;
        bool by_chance, on_purpose;
    } table[] = {
        {"/", "/home/u", false, false},          {"/proc", "/home/u", false, false},
        {"/proc/self", "/home/u", false, false}, {"/dev/shm", "/home/u", false, false},
        {"/sys", "/home/u", false, false},       {"/usr", "/home/u", false, true},
        {"/usr/src/x", "/home/u", false, true},  {"/etc", "/home/u", false, true},
        {"/tmp", "/home/u", false, true},        {"/tmp/x", "/home/u", true, true},
        {"/home", "/home/u", false, true},       {"/home/u", "/home/u", false, true},
        {"/home/u/p", "/home/u", true, true},    {"/home/other", "/home/u", false, true},
        {"/home/other/p", "/home/u", true, true}, {"/root", NULL, false, true},
        {"/root/p", "/root", true, true},        {"/data", "/data/home/u", false, true},
        {"/data/project", "/data/home/u", true, true}, {"/srv/app", NULL, true, true},
        {"/var/lib", NULL, false, true},         {"/var/lib/app", NULL, true, true},
        {"/userdata", "/home/u", true, true},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        for (int on_purpose = 0; on_purpose < 2; on_purpose++) {
            cellblock_error *error = NULL;
            bool fine = cb_workspace_check(table[i].path, table[i].home, on_purpose, &error) == 0;
            if (fine != (on_purpose ? table[i].on_purpose : table[i].by_chance))
                fail_msg("%s, %s", table[i].path, on_purpose ? "on purpose" : "by chance");
            assert_true(fine || strstr(cellblock_error_message(error), table[i].path));
            cellblock_error_free(error);
        }
}

/* ---- Programs ---- */

struct granted {
    const char *workspace;
    char paths[32][512];
    size_t count;
};

static bool is_readable(void *data, const char *path)
{
    const struct granted *granted = data;
    return cb_path_within(path, "/usr") || cb_path_within(path, "/bin") || cb_path_within(path, granted->workspace);
}

static bool is_writable(void *data, const char *path)
{
    const struct granted *granted = data;
    return cb_path_within(path, granted->workspace);
}

static bool holds_writable(void *data, const char *path)
{
    const struct granted *granted = data;
    return cb_path_within(granted->workspace, path);
}

static int note_grant(void *data, const char *path, const char *program, cellblock_error **error)
{
    struct granted *granted = data;
    assert_true(granted->count < 32);
    snprintf(granted->paths[granted->count++], 512, "%s", path);
    return 0;
}

static int ignore_link(void *data, const struct cb_link *link, cellblock_error **error)
{
    return 0;
}

/* Finding a program makes `opens` readable (NULL: nothing outside the system and the workspace), and never the key.
 * Home and workspace are "home" and "home/desk" of the place. */
static void expect_grants(const struct place *place, const char *search_path, const char *program, const char *opens)
{
    struct granted granted = {.workspace = place_path(place, "home/desk")};
    const struct cb_context context = {
        .directory = place_path(place, "home/desk"), .home = place_path(place, "home"), .search_path = search_path};
    const struct cb_program_finder finder = {
        .context = &context, .readable = is_readable, .writable = is_writable,
        .holds_writable = holds_writable, .grant = note_grant, .link = ignore_link, .data = &granted};
    assert_int_equal(cb_program_find(&finder, program, NULL), 0);
    const char *key = place_path(place, "home/.ssh/id");
    bool opened = false;
    for (size_t i = 0; i < granted.count; i++) {
        const char *path = granted.paths[i];
        if (!opens && !is_readable(&granted, path))
            fail_msg("%s opens %s", program, path);
        if (cb_path_within(key, path))
            fail_msg("%s opens the key by %s", program, path);
        opened = opened || (opens && cb_path_within(opens, path));
    }
    if (opens && !opened)
        fail_msg("%s does not open %s", program, opens);
}

static void test_programs_by_name_and_path(void **state)
{
    const struct place *place = *state;
    place_directory(place, "home/desk");
    place_file(place, "home/venv/pyvenv.cfg", "home = /usr/bin\n");
    place_file(place, "home/venv/bin/python", "binary");
    place_file(place, "home/bin/tool", "#!/bin/sh\n");
    const char *python = place_path(place, "home/venv/bin/python"), *bin = place_path(place, "home/bin");
    expect_grants(place, place_path(place, "home/venv/bin"), "python", python);
    expect_grants(place, place_path(place, "home/venv/bin"), "python", place_path(place, "home/venv/lib/x"));
    expect_grants(place, NULL, python, python);
    expect_grants(place, "/usr/bin:/bin", "sh", NULL);
    expect_grants(place, bin, "tool", place_path(place, "home/bin/tool"));
    expect_grants(place, bin, "missing", NULL);
    expect_grants(place, NULL, "tool", NULL);
}

static void test_programs_through_scripts(void **state)
{
    const struct place *place = *state;
    place_file(place, "home/venv/pyvenv.cfg", "");
    place_file(place, "home/venv/bin/python", "binary");
    char line[1024];
    snprintf(line, sizeof line, "#!%s -s\n", place_path(place, "home/venv/bin/python"));
    place_file(place, "home/desk/script", line);
    place_file(place, "home/desk/by-env", "#!/usr/bin/env -S python -u\n");
    place_file(place, "home/desk/relative", "#!../.ssh/id\n");
    place_file(place, "home/desk/itself", "#!./itself\n");
    place_file(place, "home/.ssh/id", "key");
    const char *python = place_path(place, "home/venv/bin/python"), *bin = place_path(place, "home/venv/bin");
    expect_grants(place, NULL, "./script", python);
    expect_grants(place, bin, "./by-env", python);
    expect_grants(place, NULL, "./relative", NULL);
    expect_grants(place, NULL, "./itself", NULL);
}

static void test_planted_programs_open_nothing(void **state)
{
    const struct place *place = *state;
    place_file(place, "home/.ssh/id", "key");
    place_link(place, "home/desk/bin/python", place_path(place, "home/.ssh/id"));
    char line[1024];
    snprintf(line, sizeof line, "#!%s\n", place_path(place, "home/.ssh/id"));
    place_file(place, "home/desk/script", line);
    snprintf(line, sizeof line, "home = %s\n", place_path(place, "home/.ssh"));
    place_file(place, "home/desk/venv/pyvenv.cfg", line);
    place_file(place, "home/desk/venv/bin/python", "binary");
    expect_grants(place, place_path(place, "home/desk/bin"), "python", NULL);
    expect_grants(place, NULL, "bin/python", NULL);
    expect_grants(place, NULL, "./script", NULL);
    expect_grants(place, NULL, "venv/bin/python", NULL);
    /* Put there in an earlier run, found from another workspace: nothing that is not a program, and no way through env. */
    place_link(place, "home/tools/node", place_path(place, "home/.ssh/id"));
    snprintf(line, sizeof line, "#!/usr/bin/env -S -u %s sh\n", place_path(place, "home/.ssh/id"));
    place_file(place, "home/tools/pytest", line);
    expect_grants(place, place_path(place, "home/tools"), "node", NULL);
    expect_grants(place, place_path(place, "home/tools"), "pytest", place_path(place, "home/tools/pytest"));
}

/* The marks of an installation may have been planted, and a prefix may hold more than the installation. */
static void test_only_parts_of_an_installation(void **state)
{
    const struct place *place = *state;
    place_file(place, "home/lib/rustlib/x", "");
    place_file(place, "home/.local/lib/python3.12/os.py", "");
    place_file(place, "home/.local/share/keyrings/k", "key");
    place_file(place, "home/.local/bin/python3", "binary");
    place_file(place, "home/.ssh/id", "key");
    place_directory(place, "home/desk");
    char line[1024];
    snprintf(line, sizeof line, "#!%s\n", place_path(place, "home/.ssh/id"));
    place_file(place, "home/desk/script", line);
    expect_grants(place, NULL, "./script", NULL);
    expect_grants(place, place_path(place, "home/.local/bin"), "python3", place_path(place, "home/.local/lib/x"));
    struct granted granted = {.workspace = place_path(place, "home/desk")};
    const struct cb_context context = {.directory = granted.workspace, .home = place_path(place, "home"),
                                       .search_path = place_path(place, "home/.local/bin")};
    const struct cb_program_finder finder = {
        .context = &context, .readable = is_readable, .writable = is_writable, .holds_writable = holds_writable,
        .grant = note_grant, .link = ignore_link, .data = &granted};
    assert_int_equal(cb_program_find(&finder, "python3", NULL), 0);
    for (size_t i = 0; i < granted.count; i++)
        assert_null(strstr(granted.paths[i], "share"));
}

static void test_a_home_is_never_an_installation(void **state)
{
    const struct place *place = *state;
    place_directory(place, "home/desk");
    place_file(place, "home/.ssh/id", "key");
    place_file(place, "home/pyvenv.cfg", "");
    place_file(place, "pyvenv.cfg", "");
    place_file(place, "home/bin/tool", "#!/bin/sh\n");
    place_file(place, "bin/tool", "#!/bin/sh\n");
    expect_grants(place, place_path(place, "home/bin"), "tool", place_path(place, "home/bin/tool"));
    expect_grants(place, place_path(place, "bin"), "tool", place_path(place, "bin/tool"));
}

static void test_base_of_an_environment_in_the_workspace(void **state)
{
    const struct place *place = *state;
    place_file(place, "home/opt/py/bin/python3", "binary");
    place_file(place, "home/opt/py/lib/python3.11/os.py", "");
    place_link(place, "home/desk/venv/bin/python", place_path(place, "home/opt/py/bin/python3"));
    place_file(place, "home/desk/venv/pyvenv.cfg", "");
    const char *library = place_path(place, "home/opt/py/lib/python3.11/os.py");
    expect_grants(place, NULL, "venv/bin/python", library);
    expect_grants(place, place_path(place, "home/desk/venv/bin"), "python", library);
}

/* ---- All together ---- */

static struct cb_resolved *resolve(const struct place *place, const char *files, cellblock_error **error)
{
    const struct cb_context context = {.directory = place_path(place, "home/desk"), .home = place_path(place, "home")};
    cb_autofree char *text = cb_format("{\"cellblock\": 1, \"extends\": [], \"files\": [%s]}", files);
    cellblock_policy *policy = NULL;
    struct cb_resolved *resolved = NULL;
    if (cellblock_policy_load_text(text, strlen(text), "p", &policy, error) == 0)
        cb_resolve(policy, &context, &resolved, error);
    cellblock_policy_free(policy);
    return resolved;
}

static const char *rule(const char *path, const char *access)
{
    static char text[8][512];
    static unsigned next;
    char *made = text[next++ % 8];
    snprintf(made, 512, "{\"path\": \"%s\", \"access\": \"%s\"}", path, access);
    return made;
}

static const struct cb_place *find_place(const struct cb_resolved *resolved, const char *path)
{
    for (size_t i = 0; i < resolved->place_count; i++)
        if (strcmp(resolved->places[i].path, path) == 0)
            return &resolved->places[i];
    return NULL;
}

static void expect_place(const struct cb_resolved *resolved, const char *path, enum cb_access access)
{
    const struct cb_place *found = find_place(resolved, path);
    if (!found)
        fail_msg("%s is not there", path);
    assert_int_equal(found->access, access);
    struct stat named, held;
    assert_int_equal(stat(path, &named), 0);
    assert_int_equal(fstat(found->fd, &held), 0);
    assert_true(named.st_ino == held.st_ino && held.st_ino == found->inode);
}

static struct cb_resolved *must_resolve(const struct place *place, const char *files)
{
    cellblock_error *error = NULL;
    struct cb_resolved *resolved = resolve(place, files, &error);
    if (!resolved)
        fail_msg("%s", cellblock_error_message(error));
    return resolved;
}

static void must_refuse(const struct place *place, const char *files, const char *word)
{
    cellblock_error *error = NULL;
    struct cb_resolved *resolved = resolve(place, files, &error);
    assert_null(resolved);
    if (!strstr(cellblock_error_message(error), word))
        fail_msg("%s", cellblock_error_message(error));
    cellblock_error_free(error);
}

static void test_places(void **state)
{
    const struct place *place = *state;
    place_directory(place, "home/desk/fixed");
    place_directory(place, "data/deep/er");
    place_file(place, "data/key", "");
    cb_autofree char *files = cb_format("%s, %s, %s, %s, %s", rule(place_path(place, "data"), "read"),
                                        rule(place_path(place, "data/deep"), "write"),
                                        rule(place_path(place, "data/key"), "none"), rule("fixed", "read"),
                                        rule(place_path(place, "data/deep/er"), "write"));
    struct cb_resolved *resolved = must_resolve(place, files);
    assert_string_equal(resolved->workspace, place_path(place, "home/desk"));
    expect_place(resolved, place_path(place, "home/desk"), CB_ACCESS_WRITE);
    expect_place(resolved, place_path(place, "home/desk/fixed"), CB_ACCESS_READ);
    expect_place(resolved, place_path(place, "data"), CB_ACCESS_READ);
    expect_place(resolved, place_path(place, "data/deep"), CB_ACCESS_WRITE);
    expect_place(resolved, place_path(place, "data/key"), CB_ACCESS_NONE);
    assert_null(find_place(resolved, place_path(place, "data/deep/er"))); /* nothing changes there */
    for (size_t i = 1; i < resolved->place_count; i++)
        assert_true(strcmp(resolved->places[i - 1].path, resolved->places[i].path) < 0);
    assert_true(cb_resolved_shows(resolved, place_path(place, "data/deep/x")));
    assert_true(cb_resolved_shows(resolved, place_path(place, "home")));
    assert_false(cb_resolved_shows(resolved, place_path(place, "home/other")));
    assert_false(cb_resolved_shows(resolved, place_path(place, "data/key")));
    cb_resolved_free(resolved);
}

static void test_absent_paths(void **state)
{
    const struct place *place = *state;
    place_directory(place, "home/desk");
    place_directory(place, "data");
    cb_autofree char *files = cb_format("%s, %s, %s", rule(".tool/", "read"), rule(".secret", "none"),
                                        rule("deep/er", "read"));
    struct cb_resolved *resolved = must_resolve(place, files);
    assert_int_equal(resolved->absent_count, 3);
    /* Nothing of data is in the cell: a rule that hides something absent there is a slip. */
    must_refuse(place, rule(place_path(place, "data/x"), "none"), "nothing to hide");
    bool directory_only = false;
    for (size_t i = 0; i < resolved->absent_count; i++)
        if (strcmp(resolved->absents[i].path, place_path(place, "home/desk/.tool")) == 0)
            directory_only = resolved->absents[i].directory_only;
    assert_true(directory_only);
    cb_resolved_free(resolved);
}

static void test_links_in_the_workspace_grant_nothing(void **state)
{
    const struct place *place = *state;
    place_directory(place, "home/desk");
    place_directory(place, "data");
    place_link(place, "home/desk/planted", place_path(place, "data"));
    must_refuse(place, rule("planted", "write"), "symbolic link");
    must_refuse(place, rule("planted/x", "write"), "symbolic link");
    struct cb_resolved *resolved = must_resolve(place, rule("planted", "read"));
    assert_null(find_place(resolved, place_path(place, "data")));
    assert_false(cb_resolved_shows(resolved, place_path(place, "data")));
    cb_resolved_free(resolved);
}

static void test_a_protected_path_behind_a_link(void **state)
{
    const struct place *place = *state;
    place_directory(place, "home/desk/real/hooks");
    place_link(place, "home/desk/.git", "real");
    struct cb_resolved *resolved = must_resolve(place, rule(".git/hooks/", "read"));
    expect_place(resolved, place_path(place, "home/desk/real/hooks"), CB_ACCESS_READ);
    cb_resolved_free(resolved);
}

static void test_links_outside_are_followed_and_kept(void **state)
{
    const struct place *place = *state;
    place_directory(place, "home/desk");
    place_file(place, "data/file", "");
    place_link(place, "link", "data");
    struct cb_resolved *resolved = must_resolve(place, rule(place_path(place, "link/file"), "read"));
    expect_place(resolved, place_path(place, "data/file"), CB_ACCESS_READ);
    assert_int_equal(resolved->link_count, 1);
    assert_string_equal(resolved->links[0].path, place_path(place, "link"));
    assert_string_equal(resolved->links[0].target, "data");
    cb_resolved_free(resolved);
}

/* "work/../data" is not in the workspace, whatever it begins with. */
static void test_dots_lead_out_of_the_workspace(void **state)
{
    const struct place *place = *state;
    place_directory(place, "home/desk/sub");
    place_directory(place, "home/data");
    struct cb_resolved *resolved = must_resolve(place, rule(place_path(place, "home/desk/../data"), "read"));
    expect_place(resolved, place_path(place, "home/data"), CB_ACCESS_READ);
    cb_resolved_free(resolved);
    resolved = must_resolve(place, rule(place_path(place, "home/data/../desk/sub"), "read"));
    expect_place(resolved, place_path(place, "home/desk/sub"), CB_ACCESS_READ);
    cb_resolved_free(resolved);
}

static void test_what_is_refused(void **state)
{
    const struct place *place = *state;
    place_directory(place, "home/desk");
    must_refuse(place, rule("/", "read"), "too wide");
    must_refuse(place, rule("/proc/1", "read"), "/proc");
    must_refuse(place, rule("/dev", "write"), "/dev");
    must_refuse(place, rule(place_path(place, "missing"), "read"), "missing");
    must_refuse(place, rule("missing", "write"), "missing");
}

static void test_home(void **state)
{
    const struct place *place = *state;
    place_directory(place, "home/desk");
    place_directory(place, "home/data");
    struct cb_resolved *resolved = must_resolve(place, rule("~/data", "read"));
    expect_place(resolved, place_path(place, "home/data"), CB_ACCESS_READ);
    cb_resolved_free(resolved);
}

/* Ends the list of files, so that what follows is another section. */
static const char *sockets(const char *path, const char *other)
{
    static char text[1024];
    snprintf(text, sizeof text, "], \"sockets\": [{\"path\": \"%s\"}, {\"path\": \"%s\"}", path, other ? other : path);
    return text;
}

static void test_sockets(void **state)
{
    const struct place *place = *state;
    place_directory(place, "home/desk");
    place_file(place, "file", "");
    place_link(place, "link", "home/s");
    place_link(place, "home/desk/planted", "../s");
    const char *path = place_path(place, "home/s");
    assert_int_equal(mknod(path, S_IFSOCK | 0600, 0), 0);

    struct cb_resolved *resolved = must_resolve(place, sockets("~/s", place_path(place, "link")));
    assert_int_equal(resolved->socket_count, 1); /* two names for one */
    struct stat named, held;
    assert_string_equal(resolved->sockets[0].rule->real, path);
    assert_int_equal(stat(path, &named), 0);
    assert_int_equal(fstat(resolved->sockets[0].fd, &held), 0);
    assert_true(named.st_ino == held.st_ino && S_ISSOCK(held.st_mode));
    assert_true(cb_decide_socket(resolved->policy, path).allowed);

    /* A further policy takes away, also by naming something that is not there. */
    const struct cb_context context = {.directory = place_path(place, "home/desk"), .home = place_path(place, "home")};
    static const char text[] = "{\"cellblock\": 1, \"sockets\": [{\"path\": \"/missing/socket\"}]}";
    cellblock_policy *other = NULL, *both = NULL;
    struct cb_socket_place *places = NULL;
    size_t count = 9;
    assert_int_equal(cellblock_policy_load_text(text, strlen(text), "other", &other, NULL), 0);
    assert_int_equal(cb_policy_copy(resolved->policy, &both, NULL), 0);
    assert_int_equal(cellblock_policy_tighten(both, other, NULL), 0);
    assert_int_equal(cb_resolve_sockets(both, &context, &places, &count, NULL), 0);
    assert_int_equal(count, 0);
    cb_socket_places_free(places, count);
    cellblock_policy_free(both);
    cellblock_policy_free(other);
    cb_resolved_free(resolved);

    must_refuse(place, sockets(place_path(place, "missing"), NULL), "missing: No such file");
    must_refuse(place, sockets(place_path(place, "file"), NULL), "is not a unix socket");
    must_refuse(place, sockets(place_path(place, "home/desk/planted"), NULL), "could have planted");
}

#define in_place(test) cmocka_unit_test_setup_teardown(test, place_make, place_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_clean),
        cmocka_unit_test(test_parent),
        in_place(test_walk),
        in_place(test_walk_that_does_not_arrive),
        cmocka_unit_test(test_workspace_check),
        in_place(test_programs_by_name_and_path),
        in_place(test_programs_through_scripts),
        in_place(test_planted_programs_open_nothing),
        in_place(test_only_parts_of_an_installation),
        in_place(test_a_home_is_never_an_installation),
        in_place(test_base_of_an_environment_in_the_workspace),
        in_place(test_places),
        in_place(test_absent_paths),
        in_place(test_links_in_the_workspace_grant_nothing),
        in_place(test_a_protected_path_behind_a_link),
        in_place(test_links_outside_are_followed_and_kept),
        in_place(test_dots_lead_out_of_the_workspace),
        in_place(test_what_is_refused),
        in_place(test_home),
        in_place(test_sockets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
