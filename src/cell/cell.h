/* The inside of a cell: code that runs in the new processes. It gets a finished plan in memory prepared before the
 * clone, allocates nothing, and calls only what is safe after a fork of a threaded process. */
#pragma once

#include "plan/plan.h"

#include <signal.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <termios.h>

/* Where it is when something fails; the supervisor turns it into words. */
enum cb_stage {
    CB_STAGE_IDS,
    CB_STAGE_ROOT,          /* the private root and the scratch file system */
    CB_STAGE_STEP,          /* one step of the plan's list: `detail` is its index */
    CB_STAGE_PIVOT,
    CB_STAGE_NETWORK,
    CB_STAGE_DIVERT,        /* of what leaves for elsewhere: addresses, rules, sockets, or the relay (`detail`) */
    CB_STAGE_PROGRAM,       /* cloning the program's process */
    CB_STAGE_SESSION,
    CB_STAGE_TERMINAL,      /* the cell's own */
    CB_STAGE_LIMITS,        /* `detail` is the resource */
    CB_STAGE_PROCESSORS,    /* pinning to some */
    CB_STAGE_NO_NEW_PRIVS,
    CB_STAGE_CAPABILITIES,
    CB_STAGE_LANDLOCK,
    CB_STAGE_CALLS,         /* the filter of calls that the supervisor answers */
    CB_STAGE_DESCRIPTORS,
    CB_STAGE_DIRECTORY,
    CB_STAGE_SECCOMP,
    CB_STAGE_EXEC,
    CB_STAGE_INIT,          /* the reaper's own set-up */
    CB_STAGE_PRIVATE,       /* tier landlock: the private directory */
    CB_STAGE_PLACE,         /* … and a rule for a place: `detail` is the index of its step */
};

enum cb_message_kind {
    CB_MESSAGE_GO = 1,      /* supervisor → init: ids are mapped, trees are ready */
    CB_MESSAGE_ROOT,        /* carries the cell's root directory */
    CB_MESSAGE_LISTENER,    /* carries the notification descriptor */
    CB_MESSAGE_TERMINAL,    /* carries our side of the cell's terminal */
    CB_MESSAGE_NETWORK,     /* carries a socket of base/divert.h: `detail`. At the end of the row: "go" is waited for */
    CB_MESSAGE_SOCKET,      /* supervisor → init: make a socket of the family `detail`; and back, with the socket */
    CB_MESSAGE_ASKED,       /* the program is stopped: it uses its terminal, from the background */
    CB_MESSAGE_STARTED,
    CB_MESSAGE_FAILED,      /* stage, detail, errnum */
    CB_MESSAGE_STOP,        /* supervisor → warden: end every process */
    CB_MESSAGE_ENDED,       /* status as from wait(); `detail`: how many processes and threads there were */
};

struct cb_message {
    uint32_t kind;
    uint32_t stage;
    int32_t detail;
    int32_t errnum;
    int32_t status;
};

/* A standard stream that is the cell's own terminal. */
enum { CB_STREAM_TERMINAL = -2 };

/* How that terminal starts: as the caller's is. */
struct cb_terminal_start {
    struct termios settings;
    struct winsize size;
    bool foreground;        /* the program is in its foreground from the start */
};

/* What the supervisor prepares for one entry. */
struct cb_entry {
    const struct cb_plan *plan;
    int wire;               /* our end of the socket pair (SOCK_SEQPACKET) */
    int peer;               /* the supervisor's end, which the child must not keep: its closing is how we know */
    int stdio[3];           /* what becomes 0, 1 and 2; -1: /dev/null; or CB_STREAM_TERMINAL */
    const struct cb_terminal_start *terminal; /* NULL: no stream is one */
    int null;               /* an open /dev/null */
    bool waits;             /* nothing is done before the supervisor says "go" */
    rlim_t processes_outside; /* that the kernel counts together with the cell's; 0 with a user namespace */
    bool die_with_parent;   /* the clone was made by the supervisor's main thread: a parent-death signal is right */
};

/* Runs as pid 1 of the cell, straight after the clone. */
_Noreturn void cb_cell_enter(const struct cb_entry *entry);

/* ---- Shared by the files of this folder ---- */

struct cb_cell_state {
    const struct cb_plan *plan;
    const struct cb_entry *entry;
    int ruleset;            /* Landlock, -1 when off */
    int listener;
    int signals;            /* init's signalfd */
    int terminal;           /* the program's side of it, or -1 */
    bool foreground;        /* the program was put into its foreground */
    bool asked;             /* … or has asked for that */
    int children;           /* tier landlock: the list of our children in /proc */
    int private;            /* … and the private directory */
    bool fenced;            /* … and whether signals of ours reach the cell and nobody else */
    int score;              /* how soon the kernel takes us when memory runs out, as a file; and what it was */
    ssize_t score_length;
    char score_before[8];
    struct cb_message failure; /* filled where something fails, sent by enter.c */
};

/* Notes a failure with errno; returns -1. */
int cb_cell_fail(struct cb_cell_state *state, enum cb_stage stage, int detail);
int cb_wire_send(int wire, const struct cb_message *message, int fd);
int cb_wire_receive(int wire, struct cb_message *message);

int cb_cell_wait_for_go(struct cb_cell_state *state);
int cb_cell_ids(struct cb_cell_state *state);
int cb_cell_mounts(struct cb_cell_state *state);
int cb_cell_network(struct cb_cell_state *state);
/* Sends a new socket of the cell's network namespace, or none, to the supervisor. */
void cb_cell_give_socket(int wire, int family);
int cb_cell_landlock_begin(struct cb_cell_state *state);
int cb_cell_landlock_add(struct cb_cell_state *state, int fd, uint64_t rights);
int cb_cell_landlock_stdio(struct cb_cell_state *state);
int cb_cell_landlock_enforce(struct cb_cell_state *state);
int cb_cell_processors(struct cb_cell_state *state);
int cb_cell_limits(struct cb_cell_state *state);
int cb_cell_no_new_privs(struct cb_cell_state *state);
int cb_cell_drop_capabilities(struct cb_cell_state *state);
int cb_cell_calls(struct cb_cell_state *state);
int cb_cell_filter(struct cb_cell_state *state);
/* Closes every descriptor from this number on. */
int cb_cell_close_from(unsigned first);
int cb_cell_stdio(struct cb_cell_state *state);
/* terminal.c */
int cb_cell_terminal(struct cb_cell_state *state);
int cb_cell_session(struct cb_cell_state *state);
/* The program has stopped. Returns true when the supervisor is to be told that it asks for the terminal. */
bool cb_cell_terminal_stopped(struct cb_cell_state *state, pid_t program, int number);
/* A signal from outside was passed on to it. */
void cb_cell_terminal_signalled(struct cb_cell_state *state, pid_t program, int number);
int cb_cell_init_prepare(struct cb_cell_state *state);
/* Tier landlock (warden.c). */
int cb_warden_prepare(struct cb_cell_state *state);
int cb_warden_private(struct cb_cell_state *state);
int cb_warden_fence(struct cb_cell_state *state);
int cb_cell_landlock_places(struct cb_cell_state *state);
/* Ends every process below us, removes the private directory. */
void cb_warden_clean_up(struct cb_cell_state *state);
/* The end of the cell's first process: nobody and nothing is left behind. */
_Noreturn void cb_cell_leave(struct cb_cell_state *state, int status);
/* Reaps, forwards signals, and ends the cell with the program. */
_Noreturn void cb_cell_init(struct cb_cell_state *state, pid_t program);
