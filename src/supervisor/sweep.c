/* Sweeping: files whose mere presence makes a program of the host run something, and that nothing honest makes
 * (.git/commondir). Keeping them from being made would mean to watch the creation of every file; so they are removed when
 * every process of the cell is gone. By descriptor of a directory that was there before, and by name: a link is removed
 * itself, nothing is followed. */
#include "supervisor/supervisor.h"

#include <unistd.h>

void cb_sweep(struct cellblock_cell *cell)
{
    const struct cb_resolved *resolved = cell->plan->resolved;
    for (size_t i = 0; i < resolved->swept_count; i++)
        if (unlinkat(resolved->swept[i].directory, resolved->swept[i].name, 0) == 0)
            cb_denial_note(cell, "file.swept", resolved->swept[i].path, resolved->swept[i].rule);
}
