/* What a cell has made in the writable places on disk, found by looking at the places.
 *
 * Runs in the supervisor, from the watchdog, beside what the kernel counts for each process (which misses what was
 * taken without writing, and what processes wrote that came and went unseen).
 *
 *   1. Every look asks the file systems how much of them is in use. As long as that has grown by less than the limit
 *      since the start, whoever it was, there is nothing to find.
 *   2. When it has grown by more, the places are walked: what was made since the start is added up. Walking goes by
 *      descriptors and follows no links, in slices, so that the event loop never stands still; and costs no more than a
 *      two-hundredth of a processor over time, however busy others are on the same file system.
 *   3. What was found is the cell's part; the rest of the growth was somebody else's. From there, back to 1.
 * What others remove meanwhile can hide what the cell makes; and some file systems don't count inodes. So the places
 * are also walked from time to time without a reason.
 *
 * A file counts when it came into being since the start; one without a name counts while a process has it open. What
 * was there before and only grew is left to the kernel's count of writes. A directory that can't be entered (no rights
 * left on it, or too deep) counts as too much if the file system says so as well. A file system that is mounted below a
 * writable place is not walked. */
#include "supervisor/disk.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/missing.h"
#include "base/text.h"
#include "supervisor/tally.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <time.h>

enum {
    DEPTH = 128,            /* directories held open */
    SLICE = 2000,           /* entries at a time */
    MOST_OLDS = 4096,
    HELD = 20000,           /* open files looked at, of all processes together */
    WALK_SHARE = 200,       /* a walk may begin when this many times the duration of the last one have gone by */
    HURRIED_SHARE = 20,
    INODE_PARTS = 1024,     /* a file with several names counts in parts, one for each name */
    INODE_BYTES = 512,      /* on disk, at least */
    LEAST_US = 5000, MOST_US = 250000, PAUSE_US = 200000, REGULAR_US = 10000000,
};

/* No disk or memory takes more, with all processors writing. */
static const uint64_t bytes_per_second = 4ULL << 30, inodes_per_second = 500000;

struct amount {
    int64_t bytes, inodes;
};

struct volume {
    dev_t device;
    bool in_memory, tells_bytes, tells_inodes;
    struct amount base;         /* in use on it when the cell had nothing of it, as far as is known */
    struct amount at_walk;      /* in use when the walk began */
    struct amount found;        /* the cell's part, by the last complete walk */
    uint64_t bytes, inode_parts; /* … by the one that is under way */
};

/* A file that was there before the cell, as it was when it was first seen to be changed. */
struct old {
    dev_t device;
    uint64_t inode, blocks;
};

struct place {
    int fd;
    size_t volume;
};

struct walk {
    bool under_way;
    size_t place;
    DIR *stack[DEPTH];
    size_t depth;
    uint64_t taken_us;          /* so far */
    bool blind;                 /* there is something that can't be entered */
};

struct cb_disk {
    uint64_t bytes, inodes;     /* limits */
    struct timespec since;      /* files that are younger are the cell's; on the monotonic clock */
    int64_t clock_offset_ns;    /* of the clock of files against that */
    int64_t youngest_ns;        /* of files that are not the cell's, on their own clock */
    struct place *places;
    size_t place_count;
    struct volume *volumes;
    size_t volume_count;
    struct walk walk;
    uint64_t next_walk_us;      /* with a reason */
    uint64_t hurried_walk_us;   /* … that is urgent */
    uint64_t regular_walk_us;   /* without one */
    uint64_t *held;             /* files without a name that were counted, by inode */
    size_t held_count;
    struct old *olds;
    size_t old_count;
};

/* ---- The clock ---- */

static int64_t nanoseconds(struct timespec time)
{
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

/* Files get their times from the coarse clock. */
static int64_t offset_now(void)
{
    struct timespec real, monotonic;
    clock_gettime(CLOCK_REALTIME_COARSE, &real);
    clock_gettime(CLOCK_MONOTONIC_COARSE, &monotonic);
    return nanoseconds(real) - nanoseconds(monotonic);
}

/* If somebody sets the clock back, files that are made from then on seem older. */
static void follow_clock(struct cb_disk *disk)
{
    struct timespec tick = {0};
    int64_t offset = offset_now();
    clock_getres(CLOCK_REALTIME_COARSE, &tick);
    if (offset < disk->clock_offset_ns)
        disk->clock_offset_ns = offset;
    disk->youngest_ns = nanoseconds(disk->since) + disk->clock_offset_ns - tick.tv_nsec;
}

static bool is_younger(const struct cb_disk *disk, const struct statx_timestamp *time)
{
    return time->tv_sec * 1000000000 + (int64_t)time->tv_nsec >= disk->youngest_ns;
}

/* ---- Places ---- */

struct cb_disk *cb_disk_new(uint64_t bytes, uint64_t inodes, struct timespec since)
{
    struct cb_disk *disk = calloc(1, sizeof *disk);
    if (disk) {
        disk->bytes = bytes;
        disk->inodes = inodes;
        disk->since = since;
        disk->clock_offset_ns = offset_now();
        disk->regular_walk_us = cb_clock_us(CLOCK_MONOTONIC) + REGULAR_US;
    }
    return disk;
}

static void stop_walk(struct walk *walk)
{
    while (walk->depth > 0)
        closedir(walk->stack[--walk->depth]);
    walk->under_way = false;
}

void cb_disk_free(struct cb_disk *disk)
{
    if (!disk)
        return;
    stop_walk(&disk->walk);
    for (size_t i = 0; i < disk->place_count; i++)
        close(disk->places[i].fd);
    free(disk->places);
    free(disk->volumes);
    free(disk->held);
    free(disk->olds);
    free(disk);
}

static int in_use(int fd, struct amount *amount, struct statfs *found)
{
    if (fstatfs(fd, found) < 0)
        return -1;
    amount->bytes = (int64_t)(found->f_blocks - found->f_bfree) * (int64_t)found->f_bsize;
    amount->inodes = (int64_t)(found->f_files - found->f_ffree);
    return 0;
}

static int add_volume(struct cb_disk *disk, int fd, size_t *index)
{
    struct stat where;
    struct statfs found;
    struct amount used;
    if (fstat(fd, &where) < 0 || in_use(fd, &used, &found) < 0)
        return -1;
    for (*index = 0; *index < disk->volume_count; (*index)++)
        if (disk->volumes[*index].device == where.st_dev)
            return 0;
    struct volume *volume = cb_array_push(&disk->volumes, &disk->volume_count);
    if (!volume)
        return -1;
    volume->device = where.st_dev;
    volume->base = used;
    volume->in_memory = found.f_type == TMPFS_MAGIC || found.f_type == RAMFS_MAGIC;
    volume->tells_bytes = found.f_blocks > 0;
    volume->tells_inodes = found.f_files > 0;
    return 0;
}

int cb_disk_add(struct cb_disk *disk, int fd)
{
    size_t volume;
    struct place *place = fd < 0 || add_volume(disk, fd, &volume) < 0
                              ? NULL
                              : cb_array_push(&disk->places, &disk->place_count);
    if (!place) {
        cb_close_cleanup(&fd);
        return -1;
    }
    *place = (struct place){.fd = fd, .volume = volume};
    return 0;
}

static bool is_inside_another(const struct cb_plan *plan, size_t which)
{
    for (size_t i = 0; i < which; i++) {
        const struct cb_step *step = &plan->steps[i];
        size_t length = strlen(step->at);
        if (step->kind == CB_STEP_BIND && step->directory && step->access == CB_ACCESS_WRITE &&
            strncmp(plan->steps[which].at, step->at, length) == 0 && plan->steps[which].at[length] == '/')
            return true;
    }
    return false;
}

static int open_place(const struct cb_step *step, int root)
{
    struct cb_open_how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
                              .resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS};
    if (root >= 0)
        how.resolve |= RESOLVE_BENEATH;
    cb_autofd int fd = cb_sys_openat2(root >= 0 ? root : AT_FDCWD, root >= 0 ? step->at : step->source, &how);
    struct stat found;
    if (fd < 0 || fstat(fd, &found) < 0)
        return -1;
    if (found.st_dev != step->device_number || found.st_ino != step->inode) {
        errno = ESTALE;
        return -1;
    }
    return cb_steal_fd(&fd);
}

int cb_disk_add_private(struct cb_disk *disk, const struct cb_plan *plan, cellblock_error **error)
{
    struct cb_open_how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
                              .resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS};
    return cb_disk_add(disk, cb_sys_openat2(AT_FDCWD, plan->private_directory, &how)) < 0
               ? cb_fail_errno(error, "watching what is written to %s", plan->private_directory)
               : 0;
}

int cb_disk_add_plan(struct cb_disk *disk, const struct cb_plan *plan, int root, cellblock_error **error)
{
    for (size_t i = 0; i < plan->step_count; i++) {
        const struct cb_step *step = &plan->steps[i];
        if (step->kind != CB_STEP_BIND || step->device || !step->directory || step->access != CB_ACCESS_WRITE ||
            is_inside_another(plan, i))
            continue;
        if (cb_disk_add(disk, open_place(step, root)) < 0)
            return cb_fail_errno(error, "watching what is written to /%s", step->at);
    }
    return plan->private_directory ? cb_disk_add_private(disk, plan, error) : 0;
}

/* ---- Walking ---- */

/* Blocks by which a file has grown that is older than the cell, since a walk first saw that it was changed. What it had
 * grown by then is known to nobody. */
static uint64_t growth(struct cb_disk *disk, const struct volume *volume, const struct statx *found)
{
    for (size_t i = 0; i < disk->old_count; i++)
        if (disk->olds[i].inode == found->stx_ino && disk->olds[i].device == volume->device)
            return found->stx_blocks > disk->olds[i].blocks ? found->stx_blocks - disk->olds[i].blocks : 0;
    struct old *added = disk->old_count < MOST_OLDS ? cb_array_push(&disk->olds, &disk->old_count) : NULL;
    if (added)
        *added = (struct old){volume->device, found->stx_ino, found->stx_blocks};
    return 0;
}

static void count(struct cb_disk *disk, struct volume *volume, const struct statx *found)
{
    if (!is_younger(disk, found->stx_mask & STATX_BTIME ? &found->stx_btime : &found->stx_ctime)) {
        if (S_ISREG(found->stx_mode) && is_younger(disk, &found->stx_ctime))
            volume->bytes += growth(disk, volume, found) * 512 / (found->stx_nlink > 0 ? found->stx_nlink : 1);
        return;
    }
    uint64_t names = S_ISDIR(found->stx_mode) || found->stx_nlink == 0 ? 1 : found->stx_nlink;
    volume->bytes += found->stx_blocks * 512 / names;
    volume->inode_parts += INODE_PARTS / names;
}

/* The code may have taken our rights on a directory of its own, which changes it; one that has not changed since the
 * start holds nothing that is new and out of sight, and one that belongs to somebody else is out of its reach too. */
static void note_blind(struct cb_disk *disk, const struct statx *found, int failed)
{
    if (is_younger(disk, &found->stx_ctime) && (failed != EACCES || found->stx_uid == geteuid()))
        disk->walk.blind = true;
}

static void enter(struct cb_disk *disk, int parent, const char *name, const struct statx *found)
{
    struct walk *walk = &disk->walk;
    errno = ELOOP;
    cb_autofd int fd = walk->depth < DEPTH ? openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
    DIR *opened = fd < 0 ? NULL : fdopendir(fd);
    if (!opened) {
        if (errno != ENOENT && errno != ENOTDIR)
            note_blind(disk, found, errno);
        return;
    }
    fd = -1;
    walk->stack[walk->depth++] = opened;
}

static void visit(struct cb_disk *disk, int parent, const char *name)
{
    struct volume *volume = &disk->volumes[disk->places[disk->walk.place].volume];
    struct statx found;
    if (statx(parent, name, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_STATX_DONT_SYNC,
              STATX_BASIC_STATS | STATX_BTIME, &found) < 0 ||
        makedev(found.stx_dev_major, found.stx_dev_minor) != volume->device)
        return;
    count(disk, volume, &found);
    if (S_ISDIR(found.stx_mode))
        enter(disk, parent, name, &found);
}

static void enter_place(struct cb_disk *disk)
{
    struct statx found;
    int fd = disk->places[disk->walk.place].fd;
    if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_BASIC_STATS, &found) == 0)
        enter(disk, fd, ".", &found);
}

static void begin_walk(struct cb_disk *disk)
{
    struct statfs unused;
    disk->walk.under_way = true;
    disk->walk.blind = false;
    disk->walk.place = 0;
    disk->walk.taken_us = 0;
    for (size_t i = 0; i < disk->place_count; i++) {
        struct volume *volume = &disk->volumes[disk->places[i].volume];
        in_use(disk->places[i].fd, &volume->at_walk, &unused);
        volume->bytes = volume->inode_parts = 0;
    }
    enter_place(disk);
}

/* ---- Files without a name ---- */

/* One file can be open in many processes, many times. */
static bool is_new(struct cb_disk *disk, uint64_t inode)
{
    for (size_t i = 0; i < disk->held_count; i++)
        if (disk->held[i] == inode)
            return false;
    uint64_t *added = cb_array_push(&disk->held, &disk->held_count);
    if (added)
        *added = inode;
    return added;
}

static void count_held_file(struct cb_disk *disk, const struct statx *found)
{
    if (!S_ISREG(found->stx_mode) || found->stx_nlink > 0)
        return;
    for (size_t i = 0; i < disk->volume_count; i++)
        if (disk->volumes[i].device == makedev(found->stx_dev_major, found->stx_dev_minor) &&
            is_new(disk, found->stx_ino))
            count(disk, &disk->volumes[i], found);
}

/* Files that were removed, or never had a name, stay as long as somebody has them open. */
static void count_held(struct cb_disk *disk, const struct cb_tree *tree)
{
    size_t left = HELD;
    disk->held_count = 0;
    for (size_t i = 0; i < tree->now.count && left > 0; i++) {
        const struct cb_process *process = &tree->now.list[i];
        errno = 0;
        cb_autodir DIR *listing = process->pid == tree->first ? NULL : cb_tree_open_files(tree, process);
        /* One that is not dumpable hides its files, and what it has written: the file system has to tell. */
        disk->walk.blind |= !listing && process->state != 'Z' && (errno == EACCES || errno == EPERM);
        struct dirent *entry;
        struct statx found;
        while (listing && left > 0 && (entry = readdir(listing))) {
            left--;
            if (entry->d_name[0] != '.' &&
                statx(dirfd(listing), entry->d_name, AT_NO_AUTOMOUNT | AT_STATX_DONT_SYNC,
                      STATX_BASIC_STATS | STATX_BTIME, &found) == 0)
                count_held_file(disk, &found);
        }
    }
    disk->walk.blind |= left == 0;
}

/* True when the walk has come to its end. */
static bool walk_slice(struct cb_disk *disk)
{
    struct walk *walk = &disk->walk;
    for (int seen = 0; seen < SLICE;) {
        if (walk->depth == 0) {
            if (++walk->place >= disk->place_count)
                return true;
            enter_place(disk);
            continue;
        }
        DIR *directory = walk->stack[walk->depth - 1];
        struct dirent *entry = readdir(directory);
        if (!entry) {
            closedir(directory);
            walk->depth--;
        } else if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            visit(disk, dirfd(directory), entry->d_name);
            seen++;
        }
    }
    return false;
}

/* ---- Looking ---- */

static bool passes(int64_t amount, uint64_t limit)
{
    return limit != CB_UNLIMITED && amount > 0 && (uint64_t)amount > limit;
}

static enum cb_disk_verdict judge(const struct cb_disk *disk)
{
    uint64_t bytes = 0, parts = 0;
    for (size_t i = 0; i < disk->volume_count; i++) {
        bytes += disk->volumes[i].bytes;
        parts += disk->volumes[i].inode_parts;
    }
    return passes((int64_t)bytes, disk->bytes)                   ? CB_DISK_BYTES
           : passes((int64_t)(parts / INODE_PARTS), disk->inodes) ? CB_DISK_INODES
                                                                 : CB_DISK_FINE;
}

/* What the file system says must not be forgotten when there is something that the walk could not see. */
static enum cb_disk_verdict finish_walk(struct cb_disk *disk, uint64_t now_us)
{
    struct walk *walk = &disk->walk;
    enum cb_disk_verdict verdict = judge(disk);
    for (size_t i = 0; i < disk->volume_count; i++) {
        struct volume *volume = &disk->volumes[i];
        bool bytes = volume->tells_bytes && passes(volume->at_walk.bytes - volume->base.bytes, disk->bytes);
        bool inodes = volume->tells_inodes ? passes(volume->at_walk.inodes - volume->base.inodes, disk->inodes)
                                           : disk->inodes != CB_UNLIMITED;
        if (verdict == CB_DISK_FINE && walk->blind && (bytes || inodes))
            verdict = bytes ? CB_DISK_BYTES : CB_DISK_INODES;
        volume->found = (struct amount){(int64_t)volume->bytes, (int64_t)(volume->inode_parts / INODE_PARTS)};
        volume->base.bytes = volume->at_walk.bytes - volume->found.bytes;
        volume->base.inodes = volume->at_walk.inodes - volume->found.inodes;
    }
    stop_walk(walk);
    disk->next_walk_us = now_us + PAUSE_US + WALK_SHARE * walk->taken_us;
    disk->hurried_walk_us = now_us + PAUSE_US + HURRIED_SHARE * walk->taken_us;
    disk->regular_walk_us = disk->next_walk_us + REGULAR_US;
    return verdict;
}

static void sooner(uint64_t *wait_us, int64_t grown, uint64_t limit, uint64_t per_second)
{
    uint64_t used = grown > 0 ? (uint64_t)grown : 0;
    double wait = limit > used ? (double)(limit - used) / (double)per_second * 1e6 : 0;
    if (limit != CB_UNLIMITED && wait < (double)*wait_us)
        *wait_us = wait > LEAST_US ? (uint64_t)wait : LEAST_US;
}

uint64_t cb_disk_wait(const struct cb_disk *disk)
{
    uint64_t wait = MOST_US;
    sooner(&wait, 0, disk->bytes, bytes_per_second);
    sooner(&wait, 0, disk->inodes, inodes_per_second);
    return wait;
}

/* Is there a reason to walk? */
static bool look_at_volumes(struct cb_disk *disk, uint64_t now_us, uint64_t *wait_us)
{
    bool reason = false;
    for (size_t i = 0; i < disk->place_count; i++) {
        struct volume *volume = &disk->volumes[disk->places[i].volume];
        struct statfs unused;
        struct amount used;
        if (in_use(disk->places[i].fd, &used, &unused) < 0)
            continue;
        /* Somebody freed some: the cell still has what it had. */
        if (used.bytes - volume->found.bytes < volume->base.bytes)
            volume->base.bytes = used.bytes - volume->found.bytes;
        if (used.inodes - volume->found.inodes < volume->base.inodes)
            volume->base.inodes = used.inodes - volume->found.inodes;
        int64_t bytes = used.bytes - volume->base.bytes, inodes = used.inodes - volume->base.inodes;
        bool untold = (disk->bytes != CB_UNLIMITED && !volume->tells_bytes) ||
                      (disk->inodes != CB_UNLIMITED && !volume->tells_inodes);
        bool hurried = untold && passes(bytes / INODE_BYTES, disk->inodes);
        bool told = passes(bytes, disk->bytes) || (volume->tells_inodes && passes(inodes, disk->inodes));
        if (((told || untold) && now_us >= disk->next_walk_us) || (hurried && now_us >= disk->hurried_walk_us) ||
            now_us >= disk->regular_walk_us)
            reason = true;
        if (!told) {
            sooner(wait_us, bytes, disk->bytes, bytes_per_second);
            sooner(wait_us, volume->tells_inodes ? inodes : 0, disk->inodes, inodes_per_second);
        }
    }
    return reason;
}

enum cb_disk_verdict cb_disk_last_look(struct cb_disk *disk, uint64_t budget_us)
{
    const struct cb_tree nobody = CB_TREE_INIT;
    uint64_t began = cb_clock_us(CLOCK_MONOTONIC), unused;
    enum cb_disk_verdict verdict = CB_DISK_FINE;
    stop_walk(&disk->walk);
    disk->next_walk_us = disk->hurried_walk_us = 0;
    do
        verdict = cb_disk_look(disk, &nobody, cb_clock_us(CLOCK_MONOTONIC), &unused);
    while (verdict == CB_DISK_FINE && disk->walk.under_way && cb_clock_us(CLOCK_MONOTONIC) - began < budget_us);
    return verdict;
}

enum cb_disk_verdict cb_disk_look(struct cb_disk *disk, const struct cb_tree *tree, uint64_t now_us,
                                  uint64_t *wait_us)
{
    *wait_us = MOST_US;
    if (disk->place_count == 0)
        return CB_DISK_FINE;
    if (!disk->walk.under_way) {
        if (!look_at_volumes(disk, now_us, wait_us))
            return CB_DISK_FINE;
        follow_clock(disk);
        begin_walk(disk);
    }
    uint64_t before = cb_clock_us(CLOCK_MONOTONIC);
    bool over = walk_slice(disk);
    if (over && judge(disk) == CB_DISK_FINE)
        count_held(disk, tree);
    uint64_t taken = cb_clock_us(CLOCK_MONOTONIC) - before;
    disk->walk.taken_us += taken;
    *wait_us = taken * 4 > LEAST_US ? taken * 4 : LEAST_US;
    return over ? finish_walk(disk, now_us) : judge(disk);
}

void cb_disk_found(const struct cb_disk *disk, uint64_t *bytes, uint64_t *inodes)
{
    *bytes = *inodes = 0;
    for (size_t i = 0; i < disk->volume_count; i++) {
        const struct volume *volume = &disk->volumes[i];
        uint64_t known = (uint64_t)volume->found.bytes, made = (uint64_t)volume->found.inodes;
        uint64_t parts = volume->inode_parts / INODE_PARTS;
        if (!volume->in_memory)
            *bytes += volume->bytes > known ? volume->bytes : known;
        *inodes += parts > made ? parts : made;
    }
}
