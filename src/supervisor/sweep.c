/* Sweeping: files whose mere presence makes a program of the host run something, and that nothing honest makes
 * (.git/commondir). Keeping them from being made would mean to watch the creation of every file; so they are removed
 * when every process of the cell is gone. By descriptor of a directory that was there before, and by name: a link is
 * removed itself, nothing is followed. */
#include "supervisor/supervisor.h"

#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* The code may have taken the write permission from the directory, which belongs to the caller. */
static int remove_from(int directory, const char *name)
{
    char path[64];
    if (unlinkat(directory, name, 0) == 0)
        return 0;
    if (errno != EACCES && errno != EPERM)
        return -1;
    struct stat found;
    snprintf(path, sizeof path, "/proc/self/fd/%d", directory);
    return fstat(directory, &found) < 0 || chmod(path, (found.st_mode & 0777) | 0700) < 0 ? -1
                                                                                         : unlinkat(directory, name, 0);
}

void cb_sweep(struct cellblock_cell *cell)
{
    const struct cb_resolved *resolved = cell->plan->resolved;
    for (size_t i = 0; i < resolved->swept_count; i++)
        if (remove_from(resolved->swept[i].directory, resolved->swept[i].name) == 0)
            cb_denial_note(cell, "file.swept", resolved->swept[i].path, resolved->swept[i].rule);
        else if (errno != ENOENT)
            cb_denial_note(cell, "file.not-swept", resolved->swept[i].path, resolved->swept[i].rule);
}
