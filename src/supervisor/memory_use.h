/* How much memory a cell uses, as seen from outside. */
#pragma once

#include "supervisor/tree.h"

struct cb_memory_use {
    bool open;
    int scratch;            /* a directory of the cell's memory file system, or -1 */
    dev_t scratch_device;
    uint64_t base;          /* all processes, when they were weighed, without what is in the file system */
    bool weighed;
    bool swap;              /* the host has some */
    uint64_t swap_before;   /* … of which so much was in use when they were weighed */
};

/* Bytes. `least` is sure; `most` can't be passed by what is really used; `likely` is for people to read. */
struct cb_memory_total {
    uint64_t least, likely, most;
    uint64_t tables;        /* page tables, where they are worth counting */
};

#define CB_MEMORY_USE_INIT {.scratch = -1}

/* `root`: the cell's, with a memory file system behind its /dev/shm; -1: there is none. */
void cb_memory_use_open(struct cb_memory_use *use, int root);
void cb_memory_use_close(struct cb_memory_use *use);

/* Cheap: from what cb_tree_read() got. `limit` decides which page tables are worth a look; `objects` are bytes that
 * were given to shared memory objects that no process need hold. Never less than what is used. */
struct cb_memory_total cb_memory_use_quick(struct cb_memory_use *use, const struct cb_tree *tree, uint64_t limit,
                                           uint64_t objects);
/* Dear: asks the kernel for each process what it shares with others. */
struct cb_memory_total cb_memory_use_weigh(struct cb_memory_use *use, const struct cb_tree *tree, uint64_t limit,
                                           uint64_t objects);
