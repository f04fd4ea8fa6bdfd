/* seccomp. Two filters: a small one of this cell's own, with calls that the supervisor answers and calls that its limits
 * refuse (plan/calls.c); and the main one, the last lock before exec. Where both have a say the kernel takes the stricter answer. */
#include "cell/cell.h"

#include "base/missing.h"

#include <errno.h>
#include <linux/seccomp.h>
#include <unistd.h>

static int attach(const struct cb_filter *filter, unsigned flags)
{
    struct sock_fprog program = {.len = (unsigned short)filter->length, .filter = filter->code};
    return cb_sys_seccomp(SECCOMP_SET_MODE_FILTER, flags, &program);
}

int cb_cell_calls(struct cb_cell_state *state)
{
    const struct cb_plan *plan = state->plan;
    if (plan->call_filter.length == 0)
        return 0;
    if (!plan->answered)
        return attach(&plan->call_filter, 0) < 0 ? cb_cell_fail(state, CB_STAGE_CALLS, 0) : 0;
    /* Once the supervisor acts, a signal must not make the program repeat a call that is already done (Linux 5.19). */
    state->listener = attach(&plan->call_filter,
                             SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV);
    if (state->listener < 0 && errno == EINVAL)
        state->listener = attach(&plan->call_filter, SECCOMP_FILTER_FLAG_NEW_LISTENER);
    const struct cb_message message = {.kind = CB_MESSAGE_LISTENER};
    if (state->listener < 0 || cb_wire_send(state->entry->wire, &message, state->listener) < 0)
        return cb_cell_fail(state, CB_STAGE_CALLS, 0);
    close(state->listener);
    return 0;
}

int cb_cell_filter(struct cb_cell_state *state)
{
    if (!cb_layer_on(state->plan, CB_OFF_SECCOMP))
        return 0;
    return attach(&state->plan->filter, 0) < 0 ? cb_cell_fail(state, CB_STAGE_SECCOMP, 0) : 0;
}
