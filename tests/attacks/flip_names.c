/* Exchanges two names again and again until its standard input ends: what a previous run's survivor, or a cell on the
 * same workspace, could do while another cell is being set up.
 *
 *     flip_names A B        prints "ready" after the first exchange; leaves the names as they were */
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXCHANGE 2

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: flip_names A B\n");
        return 2;
    }
    struct pollfd end = {.fd = 0, .events = POLLIN};
    bool swapped = false, told = false;
    while (swapped || poll(&end, 1, 0) == 0) {
        if (syscall(SYS_renameat2, AT_FDCWD, argv[1], AT_FDCWD, argv[2], EXCHANGE) < 0) {
            perror("renameat2");
            return 1;
        }
        swapped = !swapped;
        if (!told) {
            puts("ready");
            fflush(stdout);
            told = true;
        }
    }
    return 0;
}
