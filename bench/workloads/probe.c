/* Tries to get out, and says of each way whether it was open: probe FILE PORT PID. The file is outside the workspace,
 * a server listens on the port of the host's loopback, and the process was started outside. */
#include "clock.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

static int can_read(const char *path)
{
    char byte;
    int fd = open(path, O_RDONLY);
    return fd >= 0 && read(fd, &byte, 1) == 1;
}

static int can_connect(int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    return fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) == 0;
}

static int can_see(int pid)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/status", pid);
    return can_read(path);
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    printf("{\"file\": %d, \"network\": %d, \"signal\": %d, \"process\": %d}\n", can_read(argv[1]),
           can_connect(atoi(argv[2])), kill(atoi(argv[3]), 0) == 0, can_see(atoi(argv[3])));
    return 0;
}
