/* The watchdog's arithmetic: what numbers that were read say about limits. Pure functions, without a process. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* What a clock says. */
uint64_t cb_clock_us(clockid_t clock);

/* ---- Sums that must not shrink ----
 *
 * What a process used is added to its parent's account when the parent waits for it. A parent that ignores the end of
 * its children never does: what they used would vanish with them. So whatever vanishes is owed, until the accounts of
 * those who are left have grown by as much; what is still owed one look later was lost, and stays in the sum. */
struct cb_tally {
    uint64_t lost;
    uint64_t owed;      /* vanished at the last look */
    uint64_t credit;    /* the accounts grew by this much more than what was seen to vanish */
    uint64_t leeway;    /* how much of that is kept for later looks */
};

/* One look. `live`: the sum over the living; `gone`: last known of those that vanished; `waited`: by how much the
 * living's accounts of waited-for children grew. Returns the whole sum. */
uint64_t cb_tally_add(struct cb_tally *tally, uint64_t live, uint64_t gone, uint64_t waited);

/* What a process stands for that was seen once and then never again. Many may have come and gone between two looks, and
 * each was seen with a chance of its life by the interval: so the one that was seen, busy at `pace` (thousandths of a
 * processor), stands for the whole interval. Half of that is charged: an estimate must not end an honest program. */
uint64_t cb_tally_glimpse(uint64_t known_us, uint64_t pace, uint64_t interval_us);

/* ---- When to look again ---- */

/* Microseconds until something that has used so much can have passed its limit at the earliest. */
uint64_t cb_wait_for(uint64_t limit, uint64_t used, uint64_t per_second);

struct cb_wait {
    uint64_t soonest_us;    /* when a limit can be passed at the earliest */
    uint64_t cost_us;       /* of the last look */
    bool quiet;             /* nothing grew since the look before */
};
/* Not too often: looking costs at most about a twentieth of a processor when it matters, and a two-hundredth as long as
 * nothing moves. */
uint64_t cb_wait_us(const struct cb_wait *wait);
/* A little less, by chance: something that happens in the rhythm of the looks would always or never be seen. */
uint64_t cb_wait_by_chance(uint64_t wait_us, uint32_t chance);

/* ---- Fork bombs ---- */

/* What a cell has done so far, all processes together. */
struct cb_effort {
    uint64_t user_us, system_us;
    uint64_t calls;         /* that read or wrote something */
    bool running;           /* somebody wants a processor right now */
};

/* A program may sit at its limit of processes for hours; one that keeps forking against it burns system time, and has
 * no reads and writes to show for it. */
struct cb_bomb {
    bool at_limit;
    bool always_running;    /* at every look: on a busy machine a bomb gets little time, but always wants more */
    uint64_t since_us;
    struct cb_effort before;
};
/* True when it is one. `now_us` is the clock. */
bool cb_bomb_look(struct cb_bomb *bomb, bool at_limit, uint64_t now_us, const struct cb_effort *effort);
