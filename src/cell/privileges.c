/* Letting go of every privilege, for good, in init before the program exists: no_new_privs, all capability sets, the
 * bounding set, and the securebits that would give capabilities to id 0 (a root caller's cell sees itself as 0). */
#include "cell/cell.h"

#include "base/missing.h"

#include <errno.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

int cb_cell_no_new_privs(struct cb_cell_state *state)
{
    if (!cb_layer_on(state->plan, CB_OFF_PRIVILEGES))
        return 0;
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ? cb_cell_fail(state, CB_STAGE_NO_NEW_PRIVS, 0) : 0;
}

/* 1, 0, or -1 with errno. */
static int may_set_capabilities(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {0};
    return syscall(SYS_capget, &header, data) < 0 ? -1 : (data[0].effective >> CAP_SETPCAP & 1) != 0;
}

int cb_cell_drop_capabilities(struct cb_cell_state *state)
{
    if (!cb_layer_on(state->plan, CB_OFF_CAPABILITIES))
        return 0;
    const unsigned long bits = SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP |
                               SECBIT_NO_SETUID_FIXUP_LOCKED | SECBIT_KEEP_CAPS_LOCKED | SECBIT_NO_CAP_AMBIENT_RAISE |
                               SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED;
    /* Without a user namespace an ordinary caller has nothing to drop, and no right to change these; no_new_privs, which
     * is on by now, keeps capabilities from coming back by any exec. */
    int may = may_set_capabilities();
    if (may < 0)
        return cb_cell_fail(state, CB_STAGE_CAPABILITIES, 0);
    bool may_not = may == 0;
    if (!may_not && prctl(PR_SET_SECUREBITS, bits, 0, 0, 0) < 0)
        return cb_cell_fail(state, CB_STAGE_CAPABILITIES, 0);
    /* Upwards until the kernel knows no more: a newer one may have more than our headers. */
    for (unsigned long capability = 0; !may_not; capability++) {
        int there = prctl(PR_CAPBSET_READ, capability, 0, 0, 0);
        if (there < 0 && errno == EINVAL)
            break;
        if (there < 0 || prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) < 0)
            return cb_cell_fail(state, CB_STAGE_CAPABILITIES, (int)capability);
    }
    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0)
        return cb_cell_fail(state, CB_STAGE_CAPABILITIES, 0);
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {0};
    return syscall(SYS_capset, &header, none) < 0 ? cb_cell_fail(state, CB_STAGE_CAPABILITIES, 0) : 0;
}
