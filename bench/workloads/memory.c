/* Mapping memory and touching every page of it for the first time: memory. */
#include "clock.h"

#include <sys/mman.h>

int main(void)
{
    const size_t size = 16u << 20;
    uint64_t started = now_ns();
    for (int round = 0; round < 24; round++) {
        char *area = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (area == MAP_FAILED)
            give_up("mmap");
        madvise(area, size, MADV_NOHUGEPAGE);
        for (size_t at = 0; at < size; at += 4096)
            area[at] = 1;
        munmap(area, size);
    }
    print_ns(started);
    return 0;
}
