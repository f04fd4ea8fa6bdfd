/* What every workload shares: a monotonic clock, the line that the harness reads, and giving up with a reason. */
#pragma once

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static inline uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline void print_ns(uint64_t started)
{
    printf("%llu\n", (unsigned long long)(now_ns() - started));
}

__attribute__((noreturn)) static inline void give_up(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}
