/* Makes names in a loop while a second thread changes the string under the call:
 *
 *     race_name HOW HARMLESS FORBIDDEN ROUNDS        HOW: mkdir, symlink, rename, open or bind
 *
 * Something that checks the string and then lets the kernel read it again loses sooner or later. Prints "won" and ends
 * with 0 when the forbidden name came into being, "lost" and 1 otherwise. Both names must have the same length. */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static char shared[256];
static const char *names[2];
static atomic_bool over;

static void *flip(void *unused)
{
    volatile char *target = shared;
    for (unsigned turn = 0; !atomic_load_explicit(&over, memory_order_relaxed); turn++)
        for (size_t i = 0; names[turn & 1][i]; i++)
            target[i] = names[turn & 1][i];
    return unused;
}

static void bind_shared(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    memcpy(address.sun_path, shared, strlen(names[0]));
    bind(fd, (struct sockaddr *)&address, sizeof address);
    close(fd);
}

static void attempt(const char *how)
{
    int fd = -1;
    if (strcmp(how, "mkdir") == 0)
        mkdir(shared, 0755);
    else if (strcmp(how, "symlink") == 0)
        fd = symlink("evil", shared);
    else if (strcmp(how, "open") == 0)
        fd = open(shared, O_WRONLY | O_CREAT, 0644);
    else if (strcmp(how, "bind") == 0)
        bind_shared();
    else if (mkdir("from", 0755) == 0 || access("from", F_OK) == 0)
        rename("from", shared);
    if (fd > 2)
        close(fd);
}

static void remove_harmless(void)
{
    if (unlink(names[0]) < 0)
        rmdir(names[0]);
}

int main(int argc, char **argv)
{
    if (argc != 5 || strlen(argv[2]) != strlen(argv[3]) || strlen(argv[2]) >= sizeof shared) {
        fprintf(stderr, "usage: race_name HOW HARMLESS FORBIDDEN ROUNDS\n");
        return 2;
    }
    names[0] = argv[2];
    names[1] = argv[3];
    strcpy(shared, argv[2]);
    pthread_t flipper;
    if (pthread_create(&flipper, NULL, flip, NULL) != 0)
        return 2;
    struct stat found;
    bool won = false;
    for (long left = atol(argv[4]); left > 0 && !won; left--) {
        attempt(argv[1]);
        won = lstat(names[1], &found) == 0;
        remove_harmless();
    }
    atomic_store(&over, true);
    pthread_join(flipper, NULL);
    puts(won ? "won" : "lost");
    return won ? 0 : 1;
}
