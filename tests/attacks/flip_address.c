/* Connects, or sends datagrams, again and again while another thread changes the address that the call points to.
 *
 *   flip_address connect|send ALLOWED REFUSED PORT TRIES
 *
 * Prints how many tries got where, by what the server at the other end says ('a' or 'r'), and by which error the others
 * failed. */
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

static struct sockaddr_in target;
static in_addr_t addresses[2];
static atomic_bool started, over;

static void *flip(void *unused)
{
    volatile in_addr_t *place = &target.sin_addr.s_addr;
    atomic_store(&started, true);
    for (unsigned i = 0; !atomic_load_explicit(&over, memory_order_relaxed); i++) {
        *place = addresses[i & 1];
        for (volatile unsigned pause = i * 2654435761u % 4096; pause; pause--)
            ;
    }
    return unused;
}

int main(int argc, char **argv)
{
    if (argc != 6)
        return 2;
    int sends = strcmp(argv[1], "send") == 0;
    unsigned allowed = 0, refused = 0, eacces = 0, econnrefused = 0, other = 0;
    addresses[0] = inet_addr(argv[2]);
    addresses[1] = inet_addr(argv[3]);
    target = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[4]))};
    target.sin_addr.s_addr = addresses[0];
    pthread_t thread;
    if (pthread_create(&thread, NULL, flip, NULL) != 0)
        return 3;
    while (!atomic_load(&started))
        ;
    for (int i = atoi(argv[5]); i > 0; i--) {
        const struct timeval patience = {.tv_sec = 10};
        char said = 0;
        int fd = socket(AF_INET, sends ? SOCK_DGRAM : SOCK_STREAM, 0);
        if (fd < 0)
            return 4;
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
        int failed = sends ? sendto(fd, "x", 1, 0, (struct sockaddr *)&target, sizeof target) < 0
                           : connect(fd, (struct sockaddr *)&target, sizeof target) < 0;
        if (failed) {
            eacces += errno == EACCES;
            econnrefused += errno == ECONNREFUSED;
            other += errno != EACCES && errno != ECONNREFUSED;
        } else if (!sends && read(fd, &said, 1) == 1) {
            allowed += said == 'a';
            refused += said == 'r';
        }
        close(fd);
    }
    atomic_store(&over, true);
    pthread_join(thread, NULL);
    printf("{\"allowed\": %u, \"refused\": %u, \"eacces\": %u, \"econnrefused\": %u, \"other\": %u}\n", allowed,
           refused, eacces, econnrefused, other);
    return 0;
}
