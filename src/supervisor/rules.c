/* Changing the rules of a running cell: on a copy of its policy, which takes the place of the old one only when the relay
 * has it. */
#include "base/cleanup.h"
#include "base/error.h"
#include "policy/network.h"
#include "supervisor/egress.h"
#include "supervisor/remote.h"

static void policy_cleanup(cellblock_policy **policy)
{
    cellblock_policy_free(*policy);
}

/* `text` NULL: the document of that name goes. */
static int change(cellblock_cell *cell, const char *name, const char *text, size_t length, bool cut,
                  cellblock_error **error)
{
    const cellblock_policy *now = cb_egress_policy(cell->egress);
    cellblock_policy *made __attribute__((cleanup(policy_cleanup))) = NULL;
    if (!now)
        return cb_fail(error, CELLBLOCK_ERROR_USAGE, 0, "the cell has no relay: it was started without rules for the "
                                                        "network, and without the option that they may come later");
    if (cb_policy_copy(now, &made, error) < 0 ||
        (text ? cb_policy_add_rules(made, text, length, name, error) : cellblock_policy_remove(made, name, error)) < 0 ||
        cb_egress_change(cell, made, cut, error) < 0)
        return -1;
    made = NULL;
    return 0;
}

int cellblock_rules_add(cellblock_cell *cell, const char *text, size_t length, const char *name,
                        cellblock_error **error)
{
    return cell->remote ? cb_remote_rules(cell, name, text, length, false, error)
                        : change(cell, name, text, length, false, error);
}

int cellblock_rules_remove(cellblock_cell *cell, const char *name, int cut, cellblock_error **error)
{
    return cell->remote ? cb_remote_rules(cell, name, NULL, 0, cut != 0, error)
                        : change(cell, name, NULL, 0, cut != 0, error);
}
