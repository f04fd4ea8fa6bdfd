/* Landlock: the same grants as the mounts, held by another mechanism. The ruleset is built by init while it mounts (it
 * has every object open anyway) and enforced by the program's process on itself. */
#include "cell/cell.h"

#include "base/missing.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

int cb_cell_landlock_begin(struct cb_cell_state *state)
{
    const struct cb_plan *plan = state->plan;
    if (plan->landlock_handled == 0 || !cb_layer_on(plan, CB_OFF_LANDLOCK))
        return 0;
    struct cb_landlock_ruleset_attr attr = {.handled_access_fs = plan->landlock_handled,
                                            .handled_access_net = plan->landlock_network,
                                            .scoped = plan->landlock_scoped};
    /* Older kernels know a shorter structure, and refuse a longer one unless the rest is zero: it is. */
    state->ruleset = cb_sys_landlock_create_ruleset(&attr, sizeof attr, 0);
    return state->ruleset < 0 ? cb_cell_fail(state, CB_STAGE_LANDLOCK, 0) : 0;
}

int cb_cell_landlock_add(struct cb_cell_state *state, int fd, uint64_t rights)
{
    if (state->ruleset < 0 || rights == 0)
        return 0;
    struct cb_landlock_path_beneath_attr attr = {.allowed_access = rights, .parent_fd = fd};
    return cb_sys_landlock_add_rule(state->ruleset, CB_LANDLOCK_RULE_PATH_BENEATH, &attr, 0) < 0
               ? cb_cell_fail(state, CB_STAGE_LANDLOCK, 0)
               : 0;
}

/* Tier landlock: by the descriptors that were checked; nothing is looked up again, but for the furniture of the host. */
int cb_cell_landlock_places(struct cb_cell_state *state)
{
    for (size_t i = 0; i < state->plan->step_count; i++) {
        const struct cb_step *step = &state->plan->steps[i];
        int opened = step->checked >= 0 ? -1 : open(step->source, O_PATH | O_CLOEXEC);
        int fd = step->checked >= 0 ? step->checked : opened;
        if (fd < 0 || cb_cell_landlock_add(state, fd, step->landlock) < 0)
            return cb_cell_fail(state, CB_STAGE_PLACE, (int)i);
        if (opened >= 0)
            close(opened);
    }
    return 0;
}

/* /dev/stdout and its kin open the inherited file again by name; what the caller handed in may be used that way too, in
 * the direction in which it was opened. */
int cb_cell_landlock_stdio(struct cb_cell_state *state)
{
    for (int i = 0; i < 3 && state->ruleset >= 0; i++) {
        int fd = state->entry->stdio[i];
        struct stat found;
        int flags = fd < 0 ? -1 : fcntl(fd, F_GETFL);
        if (flags < 0 || fstat(fd, &found) < 0 || !(S_ISREG(found.st_mode) || S_ISCHR(found.st_mode)))
            continue;
        uint64_t rights = 0;
        if ((flags & O_ACCMODE) != O_WRONLY)
            rights |= LANDLOCK_ACCESS_FS_READ_FILE;
        if ((flags & O_ACCMODE) != O_RDONLY)
            rights |= LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_TRUNCATE;
        if (S_ISCHR(found.st_mode))
            rights |= LANDLOCK_ACCESS_FS_IOCTL_DEV;
        if (cb_cell_landlock_add(state, fd, rights & state->plan->landlock_handled) < 0)
            return -1;
    }
    return 0;
}

int cb_cell_landlock_enforce(struct cb_cell_state *state)
{
    if (state->ruleset < 0)
        return 0;
    return cb_sys_landlock_restrict_self(state->ruleset, 0) < 0 ? cb_cell_fail(state, CB_STAGE_LANDLOCK, 0) : 0;
}
