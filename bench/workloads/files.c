/* Many small files in the current directory: files create | read | stat. Making them and taking them away is what
 * `create` times; the others have them ready beforehand. */
#include "clock.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILES = 10000, STAT_ROUNDS = 10 };

static char names[FILES][16];

static void create(void)
{
    for (int i = 0; i < FILES; i++) {
        int fd = open(names[i], O_WRONLY | O_CREAT | O_EXCL, 0644);
        if (fd < 0 || write(fd, names[i], sizeof names[i]) != sizeof names[i] || close(fd) < 0)
            give_up(names[i]);
    }
}

static void take_away(void)
{
    for (int i = 0; i < FILES; i++)
        if (unlink(names[i]) < 0)
            give_up(names[i]);
}

static void read_all(void)
{
    char buffer[64];
    for (int i = 0; i < FILES; i++) {
        int fd = open(names[i], O_RDONLY);
        if (fd < 0 || read(fd, buffer, sizeof buffer) != sizeof names[i] || close(fd) < 0)
            give_up(names[i]);
    }
}

static void stat_all(void)
{
    struct stat found;
    for (int round = 0; round < STAT_ROUNDS; round++)
        for (int i = 0; i < FILES; i++)
            if (stat(names[i], &found) < 0)
                give_up(names[i]);
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    for (int i = 0; i < FILES; i++)
        snprintf(names[i], sizeof names[i], "f%05d", i);
    int timed_creation = strcmp(argv[1], "create") == 0;
    uint64_t started = now_ns();
    create();
    if (!timed_creation) {
        read_all();
        started = now_ns();
        if (strcmp(argv[1], "read") == 0)
            read_all();
        else
            stat_all();
        print_ns(started);
    }
    take_away();
    if (timed_creation)
        print_ns(started);
    return 0;
}
