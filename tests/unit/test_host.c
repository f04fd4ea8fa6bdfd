/* The examination of the machine: the real one, and stand-ins for kernels and machines that are not there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "host/host.h"
#include "host/landlock.h"
#include "host/surroundings.h"

#include <jansson.h>
#include <string.h>
#include <time.h>

/* ---- Landlock: stepping down ---- */

struct kernel {
    int claims;      /* the ABI that it reports, or -1 */
    int knows;       /* the ABI that it really has */
    int version_errno;
    int create_errno; /* of every ruleset, or 0 */
    int made, closed, tried;
};

static int fake_version(void *data)
{
    struct kernel *kernel = data;
    errno = kernel->version_errno;
    return kernel->claims;
}

static int fake_create(const struct cb_landlock_ruleset_attr *attr, size_t size, void *data)
{
    struct kernel *kernel = data;
    kernel->tried++;
    size_t known;
    struct cb_landlock_ruleset_attr all = cb_landlock_handled(kernel->knows, &known);
    errno = kernel->create_errno;
    if (errno)
        return -1;
    errno = size > known ? E2BIG : EINVAL;
    if (size > known || attr->handled_access_fs & ~all.handled_access_fs ||
        attr->handled_access_net & ~all.handled_access_net || attr->scoped & ~all.scoped)
        return -1;
    kernel->made++;
    return 1000;
}

static void fake_close(int ruleset, void *data)
{
    struct kernel *kernel = data;
    assert_int_equal(ruleset, 1000);
    kernel->closed++;
}

static int find(struct kernel *kernel, int *errnum)
{
    int abi = cb_landlock_find(&(struct cb_landlock_calls){fake_version, fake_create, fake_close, kernel}, errnum);
    assert_int_equal(kernel->made, kernel->closed);
    return abi;
}

static void test_landlock_honest(void **state)
{
    for (int abi = 1; abi <= CB_LANDLOCK_ABI_KNOWN; abi++) {
        int errnum;
        struct kernel kernel = {.claims = abi, .knows = abi};
        assert_int_equal(find(&kernel, &errnum), abi);
        assert_int_equal(errnum, 0);
        assert_int_equal(kernel.tried, 1);
    }
}

static void test_landlock_newer_than_known(void **state)
{
    int errnum;
    struct kernel kernel = {.claims = 40, .knows = CB_LANDLOCK_ABI_KNOWN};
    assert_int_equal(find(&kernel, &errnum), CB_LANDLOCK_ABI_KNOWN);
}

static void test_landlock_number_lies(void **state)
{
    int errnum;
    struct kernel scopes = {.claims = 9, .knows = 5};
    assert_int_equal(find(&scopes, &errnum), 5);
    assert_int_equal(errnum, 0);
    struct kernel first = {.claims = 7, .knows = 1};
    assert_int_equal(find(&first, &errnum), 1);
    struct kernel nothing = {.claims = 3, .knows = 0};
    assert_int_equal(find(&nothing, &errnum), 0);
    assert_int_equal(errnum, EINVAL);
}

static void test_landlock_absent(void **state)
{
    static const int errors[] = {ENOSYS, EOPNOTSUPP, EPERM};
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        int errnum;
        struct kernel no_version = {.claims = -1, .version_errno = errors[i]};
        assert_int_equal(find(&no_version, &errnum), 0);
        assert_int_equal(errnum, errors[i]);
        assert_int_equal(no_version.tried, 0);
        /* An outer filter that lets the question pass but not the ruleset: no use in asking again. */
        struct kernel no_ruleset = {.claims = 6, .knows = 6, .create_errno = errors[i]};
        assert_int_equal(find(&no_ruleset, &errnum), 0);
        assert_int_equal(errnum, errors[i]);
        assert_int_equal(no_ruleset.tried, 1);
    }
}

static void test_landlock_sizes(void **state)
{
    size_t size;
    assert_int_equal(cb_landlock_handled(1, &size).handled_access_fs, 0x1fff);
    assert_int_equal(size, 8);
    assert_int_equal(cb_landlock_handled(4, &size).handled_access_net, 3);
    assert_int_equal(size, 16);
    assert_int_equal(cb_landlock_handled(6, &size).scoped, 3);
    assert_int_equal(size, 24);
    assert_int_equal(cb_landlock_handled(9, &size).handled_access_fs, 0x1ffff);
}

/* ---- Stand-ins for machines ---- */

static struct cb_surroundings fake_around;
static struct cb_attempt fake_attempts[CB_FEATURE_COUNT];
static unsigned fake_tried;

static void fake_look(struct cb_surroundings *around)
{
    *around = fake_around;
}

static int fake_attempt(enum cb_feature feature, struct cb_attempt *attempt, cellblock_error **error)
{
    fake_tried |= 1U << feature;
    *attempt = fake_attempts[feature];
    return 0;
}

static const struct cb_host_calls fake_calls = {fake_look, fake_attempt};

static int set_up(void **state)
{
    fake_around = (struct cb_surroundings){
        .kernel_major = 6, .kernel_minor = 8, .userns_clone = -1, .max_user_namespaces = 1000, .apparmor_restrict = -1,
        .program = "/usr/bin/cellblock",
    };
    memset(fake_attempts, 0, sizeof fake_attempts);
    fake_attempts[CB_FEATURE_LANDLOCK].value = 7;
    fake_attempts[CB_FEATURE_CGROUP].value = CB_CGROUP_ALL | CB_CGROUP_V2;
    fake_tried = 0;
    return 0;
}

static void fail_at(enum cb_feature feature, const char *step, int errnum)
{
    fake_attempts[feature] = (struct cb_attempt){.step = step, .errnum = errnum};
}

static struct cb_host *examine(void)
{
    struct cb_host *host = NULL;
    cellblock_error *error = NULL;
    assert_int_equal(cb_host_examine_with(&fake_calls, CB_FEATURES_ALL, &host, &error), 0);
    assert_null(error);
    for (enum cb_feature feature = 0; feature < CB_FEATURE_COUNT; feature++)
        assert_non_null(host->probes[feature].detail);
    return host;
}

static void assert_contains(const char *text, const char *part)
{
    if (!text || !strstr(text, part))
        fail_msg("\"%s\" is not in \"%s\"", part, text ? text : "(none)");
}

static void expect_user(const char *detail, const char *remedy)
{
    struct cb_host *host = examine();
    const struct cb_probe *probe = &host->probes[CB_FEATURE_USER_NAMESPACE];
    assert_int_equal(probe->state, CB_PROBE_NO);
    assert_contains(probe->detail, detail);
    assert_contains(probe->fix, remedy);
    assert_false(host->can_enforce_default);
    assert_string_equal(host->tier, "landlock");
    assert_contains(host->probes[CB_FEATURE_PROC].detail, "not tried");
    assert_null(host->probes[CB_FEATURE_PROC].fix);
    assert_false(fake_tried & 1U << CB_FEATURE_PROC);
    cb_host_free(host);
}

static void test_machine_that_can(void **state)
{
    struct cb_host *host = examine();
    assert_true(host->can_enforce_default);
    assert_string_equal(host->tier, "namespaces");
    assert_int_equal(host->landlock_abi, 7);
    for (enum cb_feature feature = 0; feature < CB_FEATURE_COUNT; feature++) {
        assert_int_equal(host->probes[feature].state, CB_PROBE_YES);
        assert_null(host->probes[feature].fix);
    }
    assert_string_equal(host->probes[CB_FEATURE_IDMAP].detail, "not needed for an ordinary user");
    cb_host_free(host);
}

static void test_user_namespace_reasons(void **state)
{
    fail_at(CB_FEATURE_USER_NAMESPACE, "clone", ENOSPC);
    fake_around.max_user_namespaces = 0;
    expect_user("user.max_user_namespaces is 0", "sudo sysctl -w user.max_user_namespaces=15000");
    fake_around.max_user_namespaces = 50;
    expect_user("32 deep", "user.max_user_namespaces=100");

    fail_at(CB_FEATURE_USER_NAMESPACE, "clone", EINVAL);
    expect_user("built without", "CONFIG_USER_NS");

    fail_at(CB_FEATURE_USER_NAMESPACE, "clone", EPERM);
    expect_user("chroot", "dmesg");
    fake_around.chrooted = true;
    expect_user("is in a chroot", "outside of the chroot");
    fake_around.chrooted = false;
    fake_around.userns_clone = 0;
    expect_user("kernel.unprivileged_userns_clone is 0", "sudo sysctl -w kernel.unprivileged_userns_clone=1");
    fake_around.userns_clone = 1;
    fake_around.filtered = fake_around.filter_refuses_user = true;
    expect_user("a seccomp filter around this process refuses", "SystemCallFilter=");
    strcpy(fake_around.container, "docker");
    expect_user("as is usual in docker", "--security-opt seccomp=");
    strcpy(fake_around.container, "podman");
    expect_user("as is usual in podman", "unmask=ALL");
}

static void test_user_namespace_apparmor(void **state)
{
    fake_around.apparmor_restrict = 1;
    fail_at(CB_FEATURE_USER_NAMESPACE, "using a capability in the new user namespace", EPERM);
    expect_user("kernel.apparmor_restrict_unprivileged_userns", "profile cellblock /usr/bin/cellblock");
}

static void test_user_namespace_of_root(void **state)
{
    fake_around.root = true;
    fake_around.mapping = CB_MAPPING_NONE;
    fail_at(CB_FEATURE_USER_NAMESPACE, "finding an id other than root to map", EPERM);
    expect_user("root is the only id", "ordinary user");
    fake_around.mapping = CB_MAPPING_NOBODY;
    fail_at(CB_FEATURE_USER_NAMESPACE, "writing /proc/PID/uid_map", EPERM);
    expect_user("CAP_SETUID", "--cap-add SETUID");
}

static void test_idmap_only_of_root(void **state)
{
    fail_at(CB_FEATURE_IDMAP, "mount_setattr(MOUNT_ATTR_IDMAP) on the current directory", EINVAL);
    struct cb_host *host = examine();
    assert_true(host->can_enforce_default);
    cb_host_free(host);
    fake_around.root = true;
    fake_around.mapping = CB_MAPPING_NOBODY;
    host = examine();
    assert_false(host->can_enforce_default);
    assert_contains(host->probes[CB_FEATURE_IDMAP].detail, "can't be idmapped");
    assert_contains(host->probes[CB_FEATURE_IDMAP].fix, "ext4");
    cb_host_free(host);
}

/* Every needed feature, failing in each way, denies the default policy and leaves something to act on; an extra never
 * does the former. */
static void test_each_feature_failing(void **state)
{
    static const int errors[] = {EINVAL, ENOSYS, EPERM, EACCES, ENOSPC, EBUSY, ETIMEDOUT, EMFILE, ENOENT, E2BIG, 0};
    fake_around.root = true;
    fake_around.mapping = CB_MAPPING_NOBODY;
    for (int filtered = 0; filtered < 2; filtered++) {
        fake_around.filtered = filtered;
        for (enum cb_feature feature = 0; feature < CB_FEATURE_COUNT; feature++) {
            struct cb_attempt before = fake_attempts[feature];
            for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
                fail_at(feature, "a step", errors[i]);
                struct cb_host *host = examine();
                assert_int_equal(host->probes[feature].state, CB_PROBE_NO);
                assert_int_equal(host->probes[feature].errnum, errors[i]);
                assert_non_null(host->probes[feature].fix);
                assert_true(host->can_enforce_default != cb_feature_needed(feature, true));
                cb_host_free(host);
            }
            fake_attempts[feature] = before;
        }
    }
}

static void test_old_kernel(void **state)
{
    fake_around.kernel_major = 5;
    fake_around.kernel_minor = 10;
    fail_at(CB_FEATURE_LANDLOCK, "landlock_create_ruleset", ENOSYS);
    fail_at(CB_FEATURE_MOUNT_API, "mount_setattr", ENOSYS);
    struct cb_host *host = examine();
    assert_contains(host->probes[CB_FEATURE_LANDLOCK].detail, "Linux 5.10 is too old");
    assert_contains(host->probes[CB_FEATURE_LANDLOCK].fix, "Linux 5.13 or newer");
    assert_contains(host->probes[CB_FEATURE_MOUNT_API].fix, "Linux 5.12 or newer");
    assert_string_equal(host->tier, "none");
    cb_host_free(host);
}

static void test_landlock_verdicts(void **state)
{
    fake_attempts[CB_FEATURE_LANDLOCK] = (struct cb_attempt){.value = 3};
    struct cb_host *host = examine();
    assert_int_equal(host->probes[CB_FEATURE_LANDLOCK].state, CB_PROBE_PARTLY);
    assert_contains(host->probes[CB_FEATURE_LANDLOCK].detail, "TCP, device ioctls, signals");
    assert_contains(host->probes[CB_FEATURE_LANDLOCK].fix, "6.12");
    assert_true(host->can_enforce_default);
    cb_host_free(host);

    fail_at(CB_FEATURE_LANDLOCK, "landlock_create_ruleset", EOPNOTSUPP);
    host = examine();
    assert_contains(host->probes[CB_FEATURE_LANDLOCK].fix, "lsm=landlock");
    assert_int_equal(host->landlock_abi, 0);
    cb_host_free(host);
}

static void test_masked_proc(void **state)
{
    strcpy(fake_around.container, "docker");
    fail_at(CB_FEATURE_PROC, "mounting a fresh /proc", EPERM);
    struct cb_host *host = examine();
    assert_contains(host->probes[CB_FEATURE_PROC].detail, "covered");
    assert_contains(host->probes[CB_FEATURE_PROC].fix, "systempaths=unconfined");
    cb_host_free(host);
}

static void test_cgroup_partly(void **state)
{
    fake_attempts[CB_FEATURE_CGROUP] = (struct cb_attempt){"making a cgroup below our own", EACCES, CB_CGROUP_PIDS};
    struct cb_host *host = examine();
    assert_int_equal(host->probes[CB_FEATURE_CGROUP].state, CB_PROBE_PARTLY);
    assert_contains(host->probes[CB_FEATURE_CGROUP].detail, "pids only");
    assert_contains(host->probes[CB_FEATURE_CGROUP].fix, "systemd-run --user --scope -p Delegate=yes");
    assert_true(host->can_enforce_default);
    cb_host_free(host);

    fake_attempts[CB_FEATURE_CGROUP] = (struct cb_attempt){"making a cgroup below our own", EBUSY, 0};
    host = examine();
    assert_int_equal(host->probes[CB_FEATURE_CGROUP].state, CB_PROBE_NO);
    assert_contains(host->probes[CB_FEATURE_CGROUP].detail, "this process is in it itself");
    assert_contains(host->probes[CB_FEATURE_CGROUP].fix, "main/cgroup.procs");
    cb_host_free(host);
}

/* ---- The real machine ---- */

static int open_descriptors(void)
{
    int count = 0;
    for (int fd = 0; fd < 1024; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

static void test_examine_here(void **state)
{
    int before = open_descriptors();
    struct cb_host *host = NULL;
    cellblock_error *error = NULL;
    assert_int_equal(cb_host_examine(&host, &error), 0);
    assert_null(error);
    for (enum cb_feature feature = 0; feature < CB_FEATURE_COUNT; feature++) {
        const struct cb_probe *probe = &host->probes[feature];
        assert_non_null(probe->detail);
        assert_true(probe->state == CB_PROBE_YES || probe->errnum || strstr(probe->detail, "not tried") ||
                    feature == CB_FEATURE_LANDLOCK);
    }
    assert_true(host->landlock_abi <= cb_host_landlock_abi());
    cb_host_free(host);
    cb_host_free(NULL);
    assert_int_equal(open_descriptors(), before);
    assert_int_equal(waitpid(-1, NULL, __WALL | WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
}

static struct cb_attempt hang(int unused)
{
    while (pause() < 0)
        continue;
    return (struct cb_attempt){0};
}

static struct cb_attempt die(int signal)
{
    kill(getpid(), signal);
    return (struct cb_attempt){0};
}

static struct cb_attempt give_back(int value)
{
    return (struct cb_attempt){.value = value};
}

static void test_attempts(void **state)
{
    struct cb_attempt attempt;
    assert_int_equal(cb_attempt_run(0, give_back, 42, &attempt, NULL), 0);
    assert_null(attempt.step);
    assert_int_equal(attempt.value, 42);
    assert_int_equal(cb_attempt_run(0, hang, 0, &attempt, NULL), 0);
    assert_int_equal(attempt.errnum, ETIMEDOUT);
    assert_int_equal(cb_attempt_run(0, die, SIGKILL, &attempt, NULL), 0);
    assert_non_null(attempt.step);
    assert_int_equal(attempt.errnum, ECHILD);
    assert_int_equal(cb_attempt_run(0, die, SIGSYS, &attempt, NULL), 0);
    assert_int_equal(waitpid(-1, NULL, __WALL | WNOHANG), -1);
}

static void test_explain(void **state)
{
    cellblock_error *error = NULL;
    cb_host_explain(CB_FEATURE_SECCOMP, EPERM, &error);
    assert_null(error);
    cb_host_explain(CB_FEATURE_SECCOMP, EPERM, NULL);
    cb_fail(&error, CELLBLOCK_ERROR_SETUP, EPERM, "could not attach the filter");
    cb_host_explain(CB_FEATURE_SECCOMP, EPERM, &error);
    assert_non_null(cellblock_error_hint(error));
    cellblock_error_free(error);
}

static void test_doctor_json(void **state)
{
    char *text = NULL;
    cellblock_error *error = NULL;
    assert_int_equal(cellblock_doctor_json(&text, &error), 0);
    json_t *doctor = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    assert_true(json_is_object(doctor));
    assert_true(json_is_string(json_object_get(doctor, "tier")));
    assert_true(json_is_boolean(json_object_get(doctor, "can_enforce_default")));
    json_t *layers = json_object_get(doctor, "layers");
    assert_int_equal(json_array_size(layers), CB_FEATURE_COUNT);
    for (enum cb_feature feature = 0; feature < CB_FEATURE_COUNT; feature++) {
        json_t *layer = json_array_get(layers, feature);
        assert_string_equal(json_string_value(json_object_get(layer, "name")), cb_feature_word(feature));
        const char *word = json_string_value(json_object_get(layer, "state"));
        assert_true(!strcmp(word, "yes") || !strcmp(word, "partly") || !strcmp(word, "no"));
        assert_true(json_is_string(json_object_get(layer, "detail")));
        assert_true(json_is_string(json_object_get(layer, "purpose")));
        json_t *remedy = json_object_get(layer, "fix");
        assert_true(json_is_string(remedy) || json_is_null(remedy));
        assert_true(json_is_boolean(json_object_get(layer, "extra")));
    }
    json_decref(doctor);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_landlock_honest),
        cmocka_unit_test(test_landlock_newer_than_known),
        cmocka_unit_test(test_landlock_number_lies),
        cmocka_unit_test(test_landlock_absent),
        cmocka_unit_test(test_landlock_sizes),
        cmocka_unit_test_setup(test_machine_that_can, set_up),
        cmocka_unit_test_setup(test_user_namespace_reasons, set_up),
        cmocka_unit_test_setup(test_user_namespace_apparmor, set_up),
        cmocka_unit_test_setup(test_user_namespace_of_root, set_up),
        cmocka_unit_test_setup(test_idmap_only_of_root, set_up),
        cmocka_unit_test_setup(test_each_feature_failing, set_up),
        cmocka_unit_test_setup(test_old_kernel, set_up),
        cmocka_unit_test_setup(test_landlock_verdicts, set_up),
        cmocka_unit_test_setup(test_masked_proc, set_up),
        cmocka_unit_test_setup(test_cgroup_partly, set_up),
        cmocka_unit_test(test_examine_here),
        cmocka_unit_test(test_attempts),
        cmocka_unit_test(test_explain),
        cmocka_unit_test(test_doctor_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
