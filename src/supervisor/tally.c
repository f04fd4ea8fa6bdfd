/* See tally.h. */
#include "supervisor/tally.h"

#include <time.h>

enum { LEAST_US = 5000, QUIET_US = 300000, BOMB_US = 1000000, BUSY_SHARE = 20, QUIET_SHARE = 280,
       CALL_US = 50 };

static uint64_t lesser(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Takes from both as much as they have in common. */
static void settle(uint64_t *debt, uint64_t *credit)
{
    uint64_t paid = lesser(*debt, *credit);
    *debt -= paid;
    *credit -= paid;
}

uint64_t cb_clock_us(clockid_t clock)
{
    struct timespec now = {0};
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

uint64_t cb_tally_add(struct cb_tally *tally, uint64_t live, uint64_t gone, uint64_t waited)
{
    uint64_t credit = tally->credit + waited;
    settle(&tally->owed, &credit);
    tally->lost += tally->owed;
    tally->owed = gone;
    settle(&tally->owed, &credit);
    /* What came in with this look is kept whole for one more: an account can be read a moment before or after the
     * process that it grew by. */
    tally->credit = lesser(credit, waited + tally->leeway);
    return live + tally->owed + tally->lost;
}

uint64_t cb_tally_glimpse(uint64_t known_us, uint64_t pace, uint64_t interval_us)
{
    uint64_t estimate = interval_us * pace / 1000 / 2;
    return estimate > known_us ? estimate : known_us;
}

uint64_t cb_wait_for(uint64_t limit, uint64_t used, uint64_t per_second)
{
    double left = limit > used ? (double)(limit - used) : 0;
    double microseconds = left * 1e6 / (double)per_second;
    return microseconds < 1e9 ? (uint64_t)microseconds : (uint64_t)1e9;
}

uint64_t cb_wait_us(const struct cb_wait *wait)
{
    uint64_t floor = wait->cost_us * BUSY_SHARE;
    if (wait->quiet)
        floor = lesser(wait->cost_us * QUIET_SHARE, floor > QUIET_US ? floor : QUIET_US);
    if (floor < LEAST_US)
        floor = LEAST_US;
    return wait->soonest_us > floor ? wait->soonest_us : floor;
}

uint64_t cb_wait_by_chance(uint64_t wait_us, uint32_t chance)
{
    return wait_us - wait_us * (chance % 256) / 1024;
}

/* Sums can step back a little when a process ends between two readings. */
static uint64_t grown(uint64_t before, uint64_t now)
{
    return now > before ? now - before : 0;
}

bool cb_bomb_look(struct cb_bomb *bomb, bool at_limit, uint64_t now_us, const struct cb_effort *effort)
{
    uint64_t elapsed = now_us - bomb->since_us;
    bomb->always_running = bomb->always_running && effort->running;
    if (at_limit && bomb->at_limit && elapsed < BOMB_US)
        return false;
    uint64_t user = grown(bomb->before.user_us, effort->user_us);
    uint64_t system = grown(bomb->before.system_us, effort->system_us);
    uint64_t calls = grown(bomb->before.calls, effort->calls);
    bool busy = system > elapsed / 2 || (bomb->always_running && system > elapsed / 50);
    bool is_one = at_limit && bomb->at_limit && busy && system > user && calls < system / CALL_US;
    *bomb = (struct cb_bomb){at_limit, true, now_us, *effort}; /* if it was quiet for this second, judge the next one */
    return is_one;
}
