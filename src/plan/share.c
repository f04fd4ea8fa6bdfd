/* Which processors a cell is pinned to, when a share of them is all that it may use and no cgroup keeps that.
 *
 * A share of 2 means two processors: the kernel then does the rest by itself, without any watching. What is more than a
 * whole number is taken off by the watchdog. The choice is by chance, so that many cells at once spread out. */
#include "plan/share.h"

#include <sys/random.h>

void cb_share_pick(uint64_t thousandths, const cpu_set_t *allowed, uint32_t (*below)(uint32_t), cpu_set_t *chosen)
{
    uint32_t left = (uint32_t)CPU_COUNT(allowed);
    uint64_t wanted = thousandths / 1000 + (thousandths % 1000 != 0);
    if (wanted == 0)
        wanted = 1;
    CPU_ZERO(chosen);
    for (size_t cpu = 0; cpu < CPU_SETSIZE && wanted > 0 && left > 0; cpu++) {
        if (!CPU_ISSET(cpu, allowed))
            continue;
        if (wanted >= left || below(left) < wanted) {
            CPU_SET(cpu, chosen);
            wanted--;
        }
        left--;
    }
}

/* Chance, not secrecy: a slight preference of the remainder for small numbers does no harm. */
static uint32_t random_below(uint32_t bound)
{
    uint32_t number = 0;
    if (getrandom(&number, sizeof number, GRND_NONBLOCK) != (ssize_t)sizeof number)
        number = 0;
    return number % bound;
}

int cb_share_choose(uint64_t thousandths, cpu_set_t *chosen)
{
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    /* More processors than the set has room for: the kernel refuses to tell. */
    if (sched_getaffinity(0, sizeof allowed, &allowed) < 0)
        return -1;
    cb_share_pick(thousandths, &allowed, random_below, chosen);
    return 0;
}
