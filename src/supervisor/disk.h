/* What a cell has made on disk: see disk.c. */
#pragma once

#include "cellblock.h"
#include "plan/plan.h"
#include "supervisor/tree.h"

#include <time.h>

struct cb_disk;

/* `since`: when the cell was started, on the monotonic clock. Limits: CB_UNLIMITED for none. */
struct cb_disk *cb_disk_new(uint64_t bytes, uint64_t inodes, struct timespec since);
void cb_disk_free(struct cb_disk *disk);
/* A writable directory, by a descriptor (O_PATH will do) that it takes, also when it fails. */
int cb_disk_add(struct cb_disk *disk, int fd);
/* The private directory that a cell without namespaces has on the host. */
int cb_disk_add_private(struct cb_disk *disk, const struct cb_plan *plan, cellblock_error **error);
/* All of a plan. `root`: the cell's root directory; -1: there is none, the paths are the host's. */
int cb_disk_add_plan(struct cb_disk *disk, const struct cb_plan *plan, int root, cellblock_error **error);

/* Microseconds until the first look, at most. */
uint64_t cb_disk_wait(const struct cb_disk *disk);
enum cb_disk_verdict { CB_DISK_FINE, CB_DISK_BYTES, CB_DISK_INODES };
/* When every process is gone: one walk from beginning to end, if the file systems give a reason for it, and if it takes no
 * longer than this. */
enum cb_disk_verdict cb_disk_last_look(struct cb_disk *disk, uint64_t budget_us);
/* Looks at the file systems, and at a few thousand files if there is a reason to. `tree`: the processes, as last read;
 * *wait_us: when to look again. */
enum cb_disk_verdict cb_disk_look(struct cb_disk *disk, const struct cb_tree *tree, uint64_t now_us,
                                  uint64_t *wait_us);
/* What was found so far, as far as there was a reason to walk. `bytes` without what is in memory file systems. */
void cb_disk_found(const struct cb_disk *disk, uint64_t *bytes, uint64_t *inodes);
