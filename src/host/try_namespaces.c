/* Attempts with user namespaces: is a new root there really one, or has a security module taken its powers? */
#include "host/attempt.h"

#include "base/missing.h"

#include <linux/capability.h>

/* Under AppArmor's restriction the namespace can be made, and every use of a capability in it is then refused.
 * Dropping one from the bounding set is the smallest use that has no other condition. */
struct cb_attempt cb_try_capability(int unused)
{
    if (prctl(PR_CAPBSET_DROP, CAP_MKNOD, 0, 0, 0) < 0)
        return cb_attempt_failed("using a capability in the new user namespace");
    return (struct cb_attempt){0};
}

struct cb_attempt cb_try_nothing(int unused)
{
    return (struct cb_attempt){0};
}
