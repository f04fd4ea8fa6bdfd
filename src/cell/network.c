/* The cell's own network namespace has one interface, loopback, and it starts down: servers and test suites inside need
 * it up. */
#include "cell/cell.h"

#include <errno.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

int cb_cell_network(struct cb_cell_state *state)
{
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return cb_cell_fail(state, CB_STAGE_NETWORK, 0);
    struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING | IFF_LOOPBACK};
    int failed = ioctl(fd, SIOCSIFFLAGS, &request) < 0 ? cb_cell_fail(state, CB_STAGE_NETWORK, 0) : 0;
    close(fd);
    return failed;
}
