/* SPDX-License-Identifier: Apache-2.0
 *
 * Several cells at once in one poll loop, with a timer beside them: each cell is one more descriptor to poll. Results
 * are printed as they come; when the timer fires, whatever still runs is cancelled.
 */
#include <cellblock.h>

#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/timerfd.h>
#include <unistd.h>

static const char *const programs[][4] = {
    {"sh", "-c", "echo $((6 * 7))"},
    {"sh", "-c", "cat /etc/shadow; exit 3"},
    {"sh", "-c", "kill -SEGV $$"},
    {"sleep", "1000"},
};
enum { CELLS = sizeof programs / sizeof *programs, TIMER = CELLS, WATCHED };

static const struct itimerspec patience = {.it_value = {.tv_sec = 1}};

static int complain(const char *what, cellblock_error *error)
{
    fprintf(stderr, "%s: %s\n", what, cellblock_error_message(error));
    cellblock_error_free(error);
    return -1;
}

static int print_result(int number, cellblock_cell *cell)
{
    cellblock_result *result = NULL;
    cellblock_error *error = NULL;
    if (cellblock_finish(cell, &result, &error) < 0)
        return complain("result", error);
    printf("cell %d: %s, status %d, said \"%s\"\n", number, cellblock_result_end(result),
           cellblock_result_shell_status(result), cellblock_result_stdout(result, NULL));
    cellblock_result_free(result);
    return 0;
}

/* Returns 1 when the cell has ended, 0 when it goes on, -1 on failure. */
static int serve(int number, cellblock_cell *cell)
{
    cellblock_error *error = NULL;
    int over = cellblock_dispatch(cell, &error);
    if (over < 0)
        return complain("cell", error);
    return over && print_result(number, cell) < 0 ? -1 : over;
}

static int loop(cellblock_cell *cells[CELLS], int timer)
{
    struct pollfd watched[WATCHED] = {[TIMER] = {.fd = timer, .events = POLLIN}};
    for (int i = 0; i < CELLS; i++)
        watched[i] = (struct pollfd){.fd = cellblock_fd(cells[i]), .events = POLLIN};
    for (int running = CELLS; running > 0;) {
        if (poll(watched, WATCHED, -1) < 0 && errno != EINTR)
            return -1;
        for (int i = 0; i < CELLS; i++) {
            int over = watched[i].fd >= 0 && watched[i].revents ? serve(i, cells[i]) : 0;
            if (over < 0)
                return -1;
            if (over) {
                watched[i].fd = -1; /* poll passes over it */
                running--;
            }
        }
        uint64_t ticks;
        if (watched[TIMER].revents && read(timer, &ticks, sizeof ticks) == sizeof ticks)
            for (int i = 0; i < CELLS; i++)
                if (watched[i].fd >= 0)
                    cellblock_cancel(cells[i], NULL); /* its end arrives on its descriptor, like any other */
    }
    return 0;
}

static int start_all(cellblock_cell *cells[CELLS])
{
    cellblock_policy *policy = NULL;
    cellblock_error *error = NULL;
    int failed = cellblock_policy_new(&policy, &error);
    for (int i = 0; i < CELLS && !failed; i++) {
        struct cellblock_options options = {.size = sizeof options, .argv = programs[i], .collect = 1};
        failed = cellblock_start(policy, &options, &cells[i], &error);
    }
    cellblock_policy_free(policy); /* the cells do not need it any more */
    return failed ? complain("start", error) : 0;
}

int main(void)
{
    cellblock_cell *cells[CELLS] = {NULL};
    int timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    int failed = timer < 0 || start_all(cells) < 0 || timerfd_settime(timer, 0, &patience, NULL) < 0 ||
                 loop(cells, timer) < 0;
    for (int i = 0; i < CELLS; i++)
        cellblock_cell_free(cells[i]); /* ends what still runs */
    if (timer >= 0)
        close(timer);
    return failed ? 1 : 0;
}
