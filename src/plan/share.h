/* A share of the processors, for a cell that has no cgroup to keep it. */
#pragma once

#include <sched.h>
#include <stdint.h>

/* Picks as many processors as a share (in thousandths) needs, rounded up, from those that the caller may use. All of
 * them when there are no more than that. -1 and errno when the kernel does not tell. */
int cb_share_choose(uint64_t thousandths, cpu_set_t *chosen);

/* The same, from a given set and with a given source of chance (a number below its argument). */
void cb_share_pick(uint64_t thousandths, const cpu_set_t *allowed, uint32_t (*below)(uint32_t), cpu_set_t *chosen);
