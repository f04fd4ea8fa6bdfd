/* Tier landlock: the cell works on the host's own tree, and what it may do there is said by rules instead of mounts. The
 * same places as in the other tier, less what only a mount can do:
 *   - a path inside a granted directory can't be given less than that directory (rights add up along a path); one that
 *     does not exist yet can, by the guard
 *   - there is no private /tmp and home: the cell's first process makes a directory of its own for both
 *   - /proc is the host's: of other processes the code sees what anybody may (command lines, states); what takes the right
 *     to trace them (memory, environment, descriptors) Landlock refuses */
#include "plan/plan.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/text.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

static const char *const devices[] = {"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"};

static struct cb_step *add_step(struct cb_plan *plan, const char *path, enum cb_access access, const struct stat *found,
                                cellblock_error **error)
{
    struct cb_step *step = cb_array_push(&plan->steps, &plan->step_count);
    if (step)
        *step = (struct cb_step){.kind = CB_STEP_BIND,
                                 .at = strdup(path + 1),
                                 .source = strdup(path),
                                 .directory = S_ISDIR(found->st_mode),
                                 .access = access,
                                 .device = S_ISCHR(found->st_mode),
                                 .device_number = found->st_dev,
                                 .inode = found->st_ino,
                                 .checked = -1,
                                 .tree = -1};
    if (step && step->at && step->source)
        return step;
    cb_fail_memory(error);
    return NULL;
}

/* What is granted around a path. */
static enum cb_access around(const struct cb_plan *plan, const char *path)
{
    enum cb_access most = CB_ACCESS_NONE;
    for (size_t i = 0; i < plan->step_count; i++)
        if (plan->steps[i].directory && plan->steps[i].access > most && cb_path_within(path, plan->steps[i].source))
            most = plan->steps[i].access;
    return most;
}

static int give_up_protection(struct cb_plan *plan, const struct cb_place *place, cellblock_error **error)
{
    if (cb_decide_accept_weaker(plan->resolved->policy, "protected-paths"))
        return json_array_append_new(plan->weaker, json_sprintf("protected-paths: %s", place->path)) < 0
                   ? cb_fail_memory(error)
                   : 0;
    cb_fail(error, CELLBLOCK_ERROR_REFUSED, 0, "%s lies inside a directory that is granted, and without namespaces it "
            "can't be %s there", place->path, place->access == CB_ACCESS_NONE ? "hidden" : "kept read-only");
    cb_error_layer(error, "protected-paths");
    return cb_error_hint(error, "work in a directory without it, or accept that the code can %s it: --accept-weaker "
                         "protected-paths", place->access == CB_ACCESS_NONE ? "see" : "change");
}

static int add_place(struct cb_plan *plan, const struct cb_place *place, cellblock_error **error)
{
    enum cb_access outer = around(plan, place->path);
    if (outer > place->access)
        return give_up_protection(plan, place, error);
    if (place->access == CB_ACCESS_NONE)
        return 0;
    const struct stat found = {.st_dev = place->device,
                               .st_ino = place->inode,
                               .st_mode = place->directory ? S_IFDIR : S_IFREG};
    struct cb_step *step = add_step(plan, place->path, place->access, &found, error);
    if (!step)
        return -1;
    step->checked = place->fd;
    return 0;
}

static int add_host(struct cb_plan *plan, const char *path, enum cb_access access, cellblock_error **error)
{
    struct stat found;
    if (stat(path, &found) < 0)
        return errno == ENOENT ? 0 /* a host without it: so is the cell */ : cb_fail_errno(error, "looking at %s", path);
    return add_step(plan, path, access, &found, error) ? 0 : -1;
}

static int choose_private(struct cb_plan *plan, const char *parent, cellblock_error **error)
{
    uint64_t number;
    const char *given = parent && parent[0] == '/' ? parent : "/tmp";
    cb_autofree char *real = realpath(given, NULL); /* what lies below it is judged by its real path */
    if (!real) {
        cb_fail(error, CELLBLOCK_ERROR_SETUP, errno, "%s, where the cell's private directory would be made", given);
        cb_error_layer(error, "private-directory");
        return cb_error_hint(error, "set TMPDIR to a directory that you can write");
    }
    if (getrandom(&number, sizeof number, 0) != sizeof number)
        return cb_fail_errno(error, "choosing a name for the cell's private directory");
    plan->private_directory = cb_format("%s/cellblock-%016llx", real, (unsigned long long)number);
    free(plan->home);
    plan->home = plan->private_directory ? cb_format("%s/home", plan->private_directory) : NULL;
    return plan->home ? 0 : cb_fail_memory(error);
}

int cb_plan_places(struct cb_plan *plan, const char *temporary, cellblock_error **error)
{
    const struct cb_resolved *resolved = plan->resolved;
    if (choose_private(plan, temporary, error) < 0)
        return -1;
    for (size_t i = 0; i < resolved->place_count; i++) {
        const struct cb_place *place = &resolved->places[i];
        bool scratch = resolved->scratch && strcmp(place->path, resolved->workspace) == 0;
        if (!scratch && add_place(plan, place, error) < 0)
            return -1;
    }
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++)
        if (add_host(plan, devices[i], CB_ACCESS_WRITE, error) < 0)
            return -1;
    if (plan->network.brokered && add_host(plan, "/etc/resolv.conf", CB_ACCESS_READ, error) < 0)
        return -1;
    return add_host(plan, "/proc", CB_ACCESS_READ, error);
}
