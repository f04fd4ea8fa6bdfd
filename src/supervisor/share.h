/* A share of the processors that is not a whole number, kept without a cgroup: see share.c. */
#pragma once

#include "supervisor/tree.h"

/* The arithmetic: how much time the cell may use now. */
struct cb_budget {
    uint64_t thousandths;       /* of a processor */
    uint64_t processors;        /* that it runs on at most */
    uint64_t last_us, last_spent_us;
    int64_t left_us;            /* of processor time; below 0: owed */
};

void cb_budget_start(struct cb_budget *budget, uint64_t thousandths, uint64_t processors, uint64_t now_us);
void cb_budget_look(struct cb_budget *budget, uint64_t now_us, uint64_t spent_us);
/* Microseconds until it can be used up (while running) or is paid back (while stopped). */
uint64_t cb_budget_wait(const struct cb_budget *budget);

struct cb_share {
    struct cb_budget budget;
    bool stopped;
    struct cb_process *ours;    /* those that we have stopped */
    size_t our_count;
};

/* After every look at the tree. `spent_us`: what the cell has used in all. Returns microseconds until the next look is
 * due. */
uint64_t cb_share_look(struct cb_share *share, const struct cb_tree *tree, uint64_t now_us, uint64_t spent_us);
void cb_share_free(struct cb_share *share);
