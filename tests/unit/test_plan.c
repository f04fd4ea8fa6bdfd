/* The plan: everything decided before a process exists. */
#include "base/cleanup.h"
#include "base/error.h"
#include "base/missing.h"
#include "base/text.h"
#include "place.h"
#include "plan/plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *const program[] = {"tool", "-x", NULL};

/* `document` is what comes after "cellblock": 1; the home is "home", the directory "home/work". */
static struct cb_plan *make(const struct place *place, const char *document, const char *const *more_env,
                            cellblock_error **error)
{
    cb_autofree char *text = cb_format("{\"cellblock\": 1%s%s}", *document ? ", " : "", document);
    cb_autofree char *home = cb_format("HOME=%s", place_path(place, "home"));
    const char *envp[16] = {home};
    for (size_t i = 0; more_env && more_env[i]; i++)
        envp[i + 1] = more_env[i];
    place_directory(place, "home/work");
    const struct cellblock_options options = {
        .size = sizeof options, .argv = program, .envp = envp, .directory = place_path(place, "home/work")};
    cellblock_policy *policy = NULL;
    struct cb_plan *plan = NULL;
    if (cellblock_policy_load_text(text, strlen(text), "p", &policy, error) == 0)
        cb_plan_make(policy, &options, &(struct cb_ground){0}, &plan, error);
    cellblock_policy_free(policy);
    return plan;
}

static struct cb_plan *must_make(const struct place *place, const char *document, const char *const *more_env)
{
    cellblock_error *error = NULL;
    struct cb_plan *plan = make(place, document, more_env, &error);
    if (!plan)
        fail_msg("%s", cellblock_error_message(error));
    return plan;
}

static const struct cb_step *step_at(const struct cb_plan *plan, const char *path, enum cb_step_kind kind)
{
    for (size_t i = 0; i < plan->step_count; i++)
        if (plan->steps[i].kind == kind && strcmp(plan->steps[i].at, path + 1) == 0)
            return &plan->steps[i];
    return NULL;
}

static void test_default(void **state)
{
    const struct place *place = *state;
    struct cb_plan *plan = must_make(place, "", NULL);
    const char *work = place_path(place, "home/work");
    assert_string_equal(plan->directory, work);
    assert_false(cb_path_within(plan->home, place_path(place, "home"))); /* no grant lies in something writable */
    const struct cb_step *workspace = step_at(plan, work, CB_STEP_BIND);
    assert_non_null(workspace);
    assert_int_equal(workspace->access, CB_ACCESS_WRITE);
    assert_true(workspace->directory);
    const struct cb_step *system = step_at(plan, "/usr", CB_STEP_BIND);
    assert_non_null(system);
    assert_int_equal(system->access, CB_ACCESS_READ);
    assert_non_null(step_at(plan, "/proc", CB_STEP_PROC));
    assert_non_null(step_at(plan, "/tmp", CB_STEP_SCRATCH));
    assert_non_null(step_at(plan, plan->home, CB_STEP_SCRATCH));
    assert_null(step_at(plan, "/etc", CB_STEP_BIND));
    assert_null(step_at(plan, "/etc/shadow", CB_STEP_BIND));
    assert_true(plan->filter.length > 0);
    assert_int_equal(json_array_size(plan->weaker), 0);
    cb_plan_free(plan);
}

/* A mount needs the directory that it is put on, and what is put on a directory hides what came there before. */
static void test_parents_come_first(void **state)
{
    const struct place *place = *state;
    place_directory(place, "home/data/deep/er");
    cb_autofree char *document = cb_format("\"files\": [{\"path\": \"%s\", \"access\": \"write\"}, {\"path\": \"%s\", "
                                           "\"access\": \"read\"}, {\"path\": \"%s\", \"access\": \"none\"}]",
                                           place_path(place, "home/data/deep/er"), place_path(place, "home/data"),
                                           place_path(place, "home/data/deep"));
    struct cb_plan *plan = must_make(place, document, NULL);
    for (size_t i = 0; i < plan->step_count; i++)
        for (size_t j = i + 1; j < plan->step_count; j++) {
            cb_autofree char *earlier = cb_format("/%s", plan->steps[i].at);
            cb_autofree char *later = cb_format("/%s", plan->steps[j].at);
            if (strcmp(earlier, later) != 0 && cb_path_within(earlier, later))
                fail_msg("%s comes before %s", earlier, later);
        }
    cb_plan_free(plan);
}

static void test_ids(void **state)
{
    struct cb_plan *plan = must_make(*state, "", NULL);
    assert_int_equal(plan->inside_uid, geteuid());
    assert_int_equal(plan->inside_gid, getegid());
    assert_int_not_equal(plan->outside_uid, 0);
    assert_int_equal(plan->privileged, geteuid() == 0);
    if (geteuid() != 0)
        assert_int_equal(plan->outside_uid, geteuid());
    cb_plan_free(plan);
}

static rlim_t limit_of(const struct cb_plan *plan, int resource)
{
    for (size_t i = 0; i < plan->rlimit_count; i++)
        if (plan->rlimits[i].resource == resource)
            return plan->rlimits[i].value;
    return RLIM_INFINITY;
}

static void test_limits(void **state)
{
    struct cb_plan *plan = must_make(*state, "\"limits\": {\"memory\": \"64M\", \"processes\": 7, \"open_files\": 33, "
                                             "\"cpu_time\": \"1500ms\", \"wall_time\": \"2s\", \"output\": \"3K\", "
                                             "\"file_size\": \"1G\", \"tmp\": \"8M\"}", NULL);
    assert_int_equal(limit_of(plan, RLIMIT_DATA), 64 << 20);
    assert_int_equal(limit_of(plan, RLIMIT_NPROC), 8); /* with init */
    assert_int_equal(limit_of(plan, RLIMIT_NOFILE), 33);
    assert_int_equal(limit_of(plan, RLIMIT_CPU), 4); /* the watchdog comes first */
    assert_int_equal(plan->tree.cpu_time_ms, 1500);
    assert_int_equal(plan->tree.memory, 64 << 20);
    assert_int_equal(limit_of(plan, RLIMIT_FSIZE), 1 << 30);
    assert_int_equal(limit_of(plan, RLIMIT_CORE), 0);
    assert_int_equal(plan->wall_time_ms, 2000);
    assert_int_equal(plan->output, 3072);
    assert_true(plan->output_given);
    assert_int_equal(plan->scratch_size, 8 << 20);
    cb_plan_free(plan);
}

static void test_no_limits(void **state)
{
    struct cb_plan *plan = must_make(
        *state, "\"limits\": {\"memory\": null, \"processes\": null, \"open_files\": null}", NULL);
    assert_true(limit_of(plan, RLIMIT_DATA) == RLIM_INFINITY);
    assert_true(limit_of(plan, RLIMIT_NPROC) == RLIM_INFINITY);
    assert_true(plan->wall_time_ms == CB_UNLIMITED);
    assert_false(plan->output_given);
    cb_plan_free(plan);
}

static const char *value_of(const struct cb_plan *plan, const char *name)
{
    for (size_t i = 0; plan->envp[i]; i++)
        if (cb_has_prefix(plan->envp[i], name) && plan->envp[i][strlen(name)] == '=')
            return plan->envp[i] + strlen(name) + 1;
    return NULL;
}

static void test_environment(void **state)
{
    const struct place *place = *state;
    static const char *const given[] = {"PATH=/usr/bin:relative::/no/such/place:/bin", "LANG=C", "SECRET=1", "MINE=2",
                                        "=odd", "PWD=/elsewhere", "MINE=3", "word", NULL};
    struct cb_plan *plan = must_make(place, "\"env\": {\"pass\": [\"MINE\"], \"set\": {\"FIXED\": \"4\"}}", given);
    assert_string_equal(value_of(plan, "LANG"), "C");
    assert_string_equal(value_of(plan, "MINE"), "2");
    assert_string_equal(value_of(plan, "FIXED"), "4");
    assert_string_equal(value_of(plan, "HOME"), plan->home);
    assert_string_equal(value_of(plan, "PWD"), place_path(place, "home/work"));
    assert_null(value_of(plan, "SECRET"));
    assert_null(strstr(value_of(plan, "PATH"), "relative"));
    assert_null(strstr(value_of(plan, "PATH"), "/no/such"));
    assert_string_equal(plan->candidates[0], "/usr/bin/tool");
    assert_string_equal(plan->argv[0], "tool");
    assert_string_equal(plan->argv[1], "-x");
    assert_null(plan->argv[2]);
    cb_plan_free(plan);
}

static void test_guard(void **state)
{
    const struct place *place = *state;
    place_directory(place, "home/work/.git/hooks");
    struct cb_plan *plan = must_make(place, "", NULL);
    bool vscode = false, hooks = false;
    for (size_t i = 0; i < plan->guard.absent_count; i++) {
        vscode = vscode || strcmp(plan->guard.absents[i], place_path(place, "home/work/.vscode")) == 0;
        hooks = hooks || strstr(plan->guard.absents[i], ".git/hooks");
    }
    assert_true(vscode);
    assert_false(hooks); /* it is there: pinned and read-only instead */
    const struct cb_step *pinned = step_at(plan, place_path(place, "home/work/.git/hooks"), CB_STEP_REBIND);
    assert_non_null(pinned);
    assert_int_equal(pinned->access, CB_ACCESS_READ);
    assert_false(plan->guard.files);
    assert_true(plan->call_filter.length > 0);
    cb_plan_free(plan);
    plan = must_make(place, "\"files\": [{\"path\": \"secret\", \"access\": \"none\"}]", NULL);
    assert_true(plan->guard.files); /* it may not even come as a file */
    cb_plan_free(plan);
}

static void test_nothing_to_guard(void **state)
{
    struct cb_plan *plan = must_make(*state, "\"extends\": []", NULL);
    assert_int_equal(plan->guard.absent_count, 0);
    assert_int_equal(plan->call_filter.length, 0);
    cb_plan_free(plan);
}

static void test_landlock_says_the_same_as_the_mounts(void **state)
{
    const struct place *place = *state;
    struct cb_plan *plan = must_make(place, "", NULL);
    assert_true(plan->landlock_abi >= 1);
    const struct cb_step *workspace = step_at(plan, place_path(place, "home/work"), CB_STEP_BIND);
    const struct cb_step *system = step_at(plan, "/usr", CB_STEP_BIND);
    const uint64_t write = LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_REMOVE_FILE;
    assert_true((workspace->landlock & write) == write);
    assert_true(!(system->landlock & write) && system->landlock & LANDLOCK_ACCESS_FS_EXECUTE);
    for (size_t i = 0; i < plan->step_count; i++)
        assert_true(!(plan->steps[i].landlock & ~plan->landlock_handled));
    cb_plan_free(plan);
}

static void test_scratch(void **state)
{
    const struct place *place = *state;
    struct cb_plan *plan = must_make(place, "\"workspace\": {\"mode\": \"scratch\"}", NULL);
    assert_null(step_at(plan, place_path(place, "home/work"), CB_STEP_BIND));
    assert_non_null(step_at(plan, place_path(place, "home/work"), CB_STEP_SCRATCH));
    assert_string_equal(plan->directory, place_path(place, "home/work"));
    cb_plan_free(plan);
}

static void test_json(void **state)
{
    const struct place *place = *state;
    struct cb_plan *plan = must_make(place, "", NULL);
    json_t *whole = cb_plan_json(plan), *report = cb_plan_report(plan);
    assert_non_null(whole);
    assert_true(json_equal(json_object_get(whole, "report"), report));
    assert_string_equal(json_string_value(json_object_get(report, "tier")), "namespaces");
    const json_t *requested = json_object_get(report, "requested");
    assert_string_equal(json_string_value(json_object_get(requested, "workspace")), place_path(place, "home/work"));
    assert_true(json_is_null(json_object_get(json_object_get(requested, "limits"), "wall_time")));
    assert_true(json_array_size(json_object_get(whole, "root")) > 10);
    json_decref(whole);
    json_decref(report);
    cb_plan_free(plan);
}

static void must_refuse(const struct place *place, const char *document, enum cellblock_error_code code,
                        const char *word)
{
    cellblock_error *error = NULL;
    assert_null(make(place, document, NULL, &error));
    if (!strstr(cellblock_error_message(error), word))
        fail_msg("%s", cellblock_error_message(error));
    assert_int_equal(cellblock_error_code(error), code);
    cellblock_error_free(error);
}

static void test_refusals(void **state)
{
    const struct place *place = *state;
    must_refuse(place, "\"workspace\": {\"path\": \"/\"}", CELLBLOCK_ERROR_POLICY, "workspace /");
    must_refuse(place, "\"workspace\": {\"path\": \"missing\"}", CELLBLOCK_ERROR_USAGE, "missing");
    must_refuse(place, "\"workspace\": {\"path\": \"..\"}", CELLBLOCK_ERROR_POLICY, "home directory");
    must_refuse(place, "\"files\": [{\"path\": \"/no/such\", \"access\": \"read\"}]", CELLBLOCK_ERROR_POLICY,
                "/no/such");
}

#define in_place(test) cmocka_unit_test_setup_teardown(test, place_make, place_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        in_place(test_default),     in_place(test_parents_come_first),
        in_place(test_ids),         in_place(test_limits),
        in_place(test_no_limits),   in_place(test_environment),
        in_place(test_guard),       in_place(test_nothing_to_guard),
        in_place(test_scratch),     in_place(test_landlock_says_the_same_as_the_mounts),
        in_place(test_json),        in_place(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
