/* Memory that belongs to no process, where no cgroup counts it.
 *
 * A memfd that was written and is not mapped shows up in no process, and one that is under way in a socket not even in
 * a list of descriptors. So the code gets an unnamed file in the cell's own memory file system instead: that has a size
 * limit, and the watchdog counts it. It can't be sealed; everything else is the same.
 *
 * System V objects stay when nobody is attached. Their sizes are in registers, so the kernel may make them (nothing can
 * change after the check), as long as all that were ever asked for together stay below the limit on memory. */
#include "supervisor/notify.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/memfd.h>
#include <sys/ipc.h>
#include <sys/syscall.h>
#include <unistd.h>

/* What the kernel keeps for a semaphore, and the most that one message queue holds with its bookkeeping. */
enum { SEMAPHORE_BYTES = 128, QUEUE_BYTES = 64 << 10, PAGE = 4096 };

static int give_file(const struct cb_call *call)
{
    struct cellblock_cell *cell = call->cell;
    unsigned flags = (unsigned)call->notice->data.args[1];
    if (cell->shm < 0)
        cell->shm = openat(cell->root, "dev/shm", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int fd = cell->shm < 0 ? -1 : openat(cell->shm, ".", O_TMPFILE | O_EXCL | O_RDWR | O_CLOEXEC, 0700);
    if (fd < 0)
        return errno == ENOSPC ? -ENOMEM : -errno;
    int answer = cb_call_waits(call) ? cb_call_give(call, fd, flags & MFD_CLOEXEC ? O_CLOEXEC : 0) : -ESRCH;
    close(fd);
    return answer;
}

static int take_room(const struct cb_call *call, uint64_t bytes)
{
    uint64_t *taken = &call->cell->ipc_memory, sum;
    if (__builtin_add_overflow(*taken, bytes, &sum) || sum > call->cell->plan->tree.memory)
        return -ENOSPC;
    *taken = sum;
    return CB_CALL_GO_ON;
}

int cb_memory_decide(const struct cb_call *call)
{
    const uint64_t *a = (const uint64_t *)call->notice->data.args;
    bool create = (int)a[0] == IPC_PRIVATE;
    switch (call->notice->data.nr) {
    case SYS_memfd_create:
        return give_file(call);
    case SYS_shmget:
        return create || a[2] & IPC_CREAT ? take_room(call, (a[1] | (PAGE - 1)) + 1) : CB_CALL_GO_ON;
    case SYS_semget:
        return create || a[2] & IPC_CREAT ? take_room(call, (uint64_t)(uint32_t)a[1] * SEMAPHORE_BYTES)
                                          : CB_CALL_GO_ON;
    default:
        return create || a[1] & IPC_CREAT ? take_room(call, QUEUE_BYTES) : CB_CALL_GO_ON;
    }
}
