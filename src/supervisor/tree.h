/* The processes of a cell, as /proc tells.
 *
 * Everything here can vanish at any moment: a process that can't be read is left out, never an error. The numbers come
 * from the kernel; the one thing in them that the code chooses is the name in `stat`, and that is skipped. */
#pragma once

#include <dirent.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct cb_process {
    pid_t pid, parent;          /* as the /proc that they were read from counts */
    uint64_t started;           /* clock ticks since boot: with the pid, who it is */
    char state;
    pid_t thread;               /* the main thread is over and shows nothing any more: another one that does; else 0 */
    bool forked;                /* runs the program of its parent, and perhaps in its memory */
    uint64_t threads;
    uint64_t user_us, system_us;                /* its own */
    uint64_t waited_user_us, waited_system_us;  /* of children that it has waited for */
    uint64_t size, resident;    /* bytes; the second only roughly, unless it was asked for */
    uint64_t shared;            /* … of the resident ones: of files, and of memory that is meant to be shared */
    uint64_t written;           /* bytes that went towards a disk, with those of children that it has waited for */
    uint64_t calls;             /* reads and writes, likewise */
    unsigned looks;             /* how many times it was seen */
    uint64_t pace;              /* thousandths of a processor that it used, when it was seen for the first time */
    /* What its memory really comes to, when that was looked at (memory_use.c). */
    uint64_t weighed_resident, weighed_private;
};

struct cb_processes {
    struct cb_process *list;    /* by pid */
    size_t count;
};

struct cb_tree {
    int proc;                   /* the cell's own /proc, or the host's */
    int host;                   /* the host's when `proc` is the cell's; for a first process that hides itself */
    bool ready;                 /* what takes time was opened too, with the first reading */
    uint64_t roughly;           /* by how many bytes the rough size of one process can be wrong */
    bool own;                   /* `proc` lists the cell's processes and no others */
    bool by_parents;            /* it does not, and has no lists of children either */
    off_t listing_start;        /* where the processes begin in it */
    pid_t first;                /* the cell's init, by the numbers of `proc`; it is never the code's */
    pid_t first_outside;        /* … by our own numbers */
    struct cb_processes now, before;
};

#define CB_TREE_INIT {.proc = -1, .host = -1}

/* What is read beside the number of threads, the times and the rough size of memory. */
enum cb_tree_parts { CB_TREE_MEMORY = 1 /* exactly, of new processes */, CB_TREE_WRITTEN = 2 };

/* `root`: the cell's root directory, with a /proc of its own; -1: find the descendants of `first` in the host's. */
int cb_tree_open(struct cb_tree *tree, int root, pid_t first);
void cb_tree_close(struct cb_tree *tree);
/* Fills `now`, with what was there becoming `before`. -1 when nothing can be read at all. */
int cb_tree_read(struct cb_tree *tree, unsigned parts);
/* The memory of all of them exactly, after that. */
void cb_tree_read_memory(struct cb_tree *tree);
/* In a sorted list; NULL when it is not there. */
struct cb_process *cb_tree_find(const struct cb_processes *list, const struct cb_process *who);

/* What only some need. Each returns -1 when it can't be read. */
struct cb_memory_parts {
    uint64_t anonymous, shared, swapped, private;   /* bytes; the first three divided among those that share them */
};
int cb_tree_memory(const struct cb_tree *tree, const struct cb_process *who, struct cb_memory_parts *parts);
/* The part of it that is mapped from one file system. */
int cb_tree_mapped_from(const struct cb_tree *tree, const struct cb_process *who, dev_t device, uint64_t *bytes);
/* Page tables, in bytes. */
int cb_tree_page_tables(const struct cb_tree *tree, const struct cb_process *who, uint64_t *bytes);
/* A listing of what it has open, each entry to be followed; NULL when it can't be read. */
DIR *cb_tree_open_files(const struct cb_tree *tree, const struct cb_process *who);
/* A descriptor to send signals by (pidfd_send_signal takes a directory in /proc as well as a pidfd): it can't reach
 * another process that has got the number since. -1 when it is gone. */
int cb_tree_handle(const struct cb_tree *tree, const struct cb_process *who);

/* For tests: one line of `stat`, of `io` and of a memory summary. */
int cb_tree_parse_stat(const char *text, struct cb_process *process);
uint64_t cb_tree_parse_field(const char *text, const char *name);
