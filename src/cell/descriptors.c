/* Descriptors: the program gets 0, 1 and 2 and nothing else. */
#include "cell/cell.h"

#include "base/missing.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

int cb_cell_stdio(struct cb_cell_state *state)
{
    int high[3];
    /* First out of each other's way, then into place: any of them may be one of 0, 1 and 2 already. */
    for (int i = 0; i < 3; i++) {
        int fd = state->entry->stdio[i] >= 0 ? state->entry->stdio[i] : state->entry->null;
        high[i] = fcntl(fd, F_DUPFD_CLOEXEC, 10);
        if (high[i] < 0)
            return cb_cell_fail(state, CB_STAGE_DESCRIPTORS, i);
    }
    for (int i = 0; i < 3; i++)
        if (dup2(high[i], i) < 0)
            return cb_cell_fail(state, CB_STAGE_DESCRIPTORS, i);
    if (!cb_layer_on(state->plan, CB_OFF_DESCRIPTORS))
        return 0;
    return cb_sys_close_range(3, ~0U, 0) < 0 ? cb_cell_fail(state, CB_STAGE_DESCRIPTORS, 3) : 0;
}
