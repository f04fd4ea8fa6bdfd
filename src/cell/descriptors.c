/* Descriptors: the program gets 0, 1 and 2 and nothing else. */
#include "cell/cell.h"

#include "base/missing.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* An outer filter that does not know close_range refuses it: then one by one, as far as the kernel lists them. */
int cb_cell_close_from(unsigned first)
{
    if (cb_sys_close_range(first, ~0U, 0) == 0)
        return 0;
    struct {
        uint64_t inode;
        int64_t offset;
        unsigned short length;
        unsigned char type;
        char name[1024 - 19];
    } buffer;
    int list = open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (list < 0)
        return -1;
    for (bool closed = true; closed;) {
        closed = false;
        lseek(list, 0, SEEK_SET);
        for (long got; (got = syscall(SYS_getdents64, list, &buffer, sizeof buffer)) > 0;)
            for (char *at = (char *)&buffer; at < (char *)&buffer + got;) {
                const char *name = at + offsetof(typeof(buffer), name);
                unsigned short length;
                memcpy(&length, at + offsetof(typeof(buffer), length), sizeof length);
                at += length;
                unsigned number = 0;
                for (; *name >= '0' && *name <= '9'; name++)
                    number = number * 10 + (unsigned)(*name - '0');
                if (*name == '\0' && number >= first && (int)number != list)
                    closed |= close((int)number) == 0;
            }
    }
    return close(list);
}

int cb_cell_stdio(struct cb_cell_state *state)
{
    int high[3];
    /* First out of each other's way, then into place: any of them may be one of 0, 1 and 2 already. */
    for (int i = 0; i < 3; i++) {
        int given = state->entry->stdio[i];
        int fd = given >= 0 ? given : given == CB_STREAM_TERMINAL ? state->terminal : state->entry->null;
        high[i] = fcntl(fd, F_DUPFD_CLOEXEC, 10);
        if (high[i] < 0)
            return cb_cell_fail(state, CB_STAGE_DESCRIPTORS, i);
    }
    for (int i = 0; i < 3; i++)
        if (dup2(high[i], i) < 0)
            return cb_cell_fail(state, CB_STAGE_DESCRIPTORS, i);
    if (!cb_layer_on(state->plan, CB_OFF_DESCRIPTORS))
        return 0;
    return cb_cell_close_from(3) < 0 ? cb_cell_fail(state, CB_STAGE_DESCRIPTORS, 3) : 0;
}
