/* Arithmetic alone: compute. Nothing in it enters the kernel. */
#include "clock.h"

int main(void)
{
    volatile uint64_t seed = 88172645463325252u;
    uint64_t state = seed, started = now_ns();
    for (int i = 0; i < 60000000; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
    }
    seed = state;
    print_ns(started);
    return 0;
}
