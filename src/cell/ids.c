/* Ids. An ordinary caller maps its own id onto itself, which needs nobody's help. For root the supervisor maps an id
 * that nobody uses and that has no rights on the host; here we only become it. */
#include "cell/cell.h"

#include "base/missing.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static int write_file(const char *path, const char *text, size_t length)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    ssize_t written = write(fd, text, length);
    int saved = errno;
    close(fd);
    errno = saved;
    return written == (ssize_t)length ? 0 : -1;
}

/* snprintf is not safe here. */
static char *add_number(char *at, unsigned number)
{
    char digits[16];
    int count = 0;
    do
        digits[count++] = (char)('0' + number % 10);
    while (number /= 10);
    while (count)
        *at++ = digits[--count];
    return at;
}

static int map_self(const char *path, unsigned inside, unsigned outside)
{
    char line[48];
    char *end = add_number(line, inside);
    *end++ = ' ';
    end = add_number(end, outside);
    memcpy(end, " 1\n", 3);
    return write_file(path, line, (size_t)(end + 3 - line));
}

/* Until the supervisor has mapped the ids (for root) and put us into the cell's cgroup (where there is one). */
int cb_cell_wait_for_go(struct cb_cell_state *state)
{
    struct cb_message message;
    if (!state->entry->waits)
        return 0;
    if (cb_wire_receive(state->entry->wire, &message) < 0)
        return cb_cell_fail(state, CB_STAGE_IDS, 0);
    errno = EPROTO;
    return message.kind == CB_MESSAGE_GO ? 0 : cb_cell_fail(state, CB_STAGE_IDS, 0);
}

static int become_mapped(const struct cb_cell_state *state)
{
    /* Raw calls: the C library's wrappers try to do the same in threads that are not here. */
    return syscall(SYS_setgroups, 0, NULL) < 0 ||
                   syscall(SYS_setresgid, state->plan->inside_gid, state->plan->inside_gid, state->plan->inside_gid) <
                       0 ||
                   syscall(SYS_setresuid, state->plan->inside_uid, state->plan->inside_uid, state->plan->inside_uid) < 0
               ? -1
               : 0;
}

int cb_cell_ids(struct cb_cell_state *state)
{
    const struct cb_plan *plan = state->plan;
    if (cb_cell_wait_for_go(state) < 0)
        return -1;
    int failed = plan->privileged ? become_mapped(state)
                                  : (write_file("/proc/self/setgroups", "deny", 4) < 0 ||
                                             map_self("/proc/self/uid_map", plan->inside_uid, plan->outside_uid) < 0 ||
                                             map_self("/proc/self/gid_map", plan->inside_gid, plan->outside_gid) < 0
                                         ? -1
                                         : 0);
    return failed ? cb_cell_fail(state, CB_STAGE_IDS, 0) : 0;
}
