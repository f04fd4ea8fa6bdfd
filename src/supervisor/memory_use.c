/* See memory_use.h. Runs in the supervisor, from the watchdog.
 *
 * Memory that a limit should count: pages of processes that no file on disk stands behind (private, shared, swapped
 * out), page tables, the cell's memory file system whether mapped or not, System V objects. Pages of mapped files are
 * not counted: the kernel takes them back when it needs them. What the kernel itself holds for pipes, sockets and open
 * files can't be seen from here: only a cgroup counts that.
 *
 * What is cheap to read counts shared pages once for every process that has them. That sum is only an upper bound, and
 * mostly enough: as long as it is below the limit nothing more has to be known. When it is above, the processes are
 * weighed: the kernel divides each shared page among its users. After that only growth counts. What a process has more
 * than when it was weighed can be new memory; so the weighed sum plus all growth is again an upper bound, and the next
 * weighing waits until that passes the limit.
 *
 * A process that has just been made by vfork() runs in its parent's memory, and both tell the same pages as their own,
 * until it executes something. They can't be told from outside from two that are alike; so a process of that kind is in
 * `most`, and not in `least`. */
#include "supervisor/memory_use.h"

#include "base/cleanup.h"
#include "base/missing.h"
#include "supervisor/tally.h"

#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <sys/vfs.h>
#include <time.h>

/* Address spaces so large that page tables alone could take this part of the limit. */
enum { TABLE_SHARE = 32, PER_TABLE = 512, INODE_BYTES = 1024 };

/* For one weighing, of our own processor time: neither a busy machine nor a slow one may make honest cells look large. */
enum { WEIGHING_US = 300000 };

static bool is_too_long(uint64_t began)
{
    return cb_clock_us(CLOCK_THREAD_CPUTIME_ID) - began > WEIGHING_US;
}

static uint64_t swap_in_use(const struct cb_memory_use *use)
{
    struct sysinfo info;
    if (!use->swap || sysinfo(&info) < 0)
        return 0;
    return (uint64_t)(info.totalswap - info.freeswap) * info.mem_unit;
}

void cb_memory_use_open(struct cb_memory_use *use, int root)
{
    struct cb_open_how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
                              .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS};
    struct stat found;
    use->open = true;
    use->scratch = root < 0 ? -1 : cb_sys_openat2(root, "dev/shm", &how);
    struct sysinfo info;
    use->swap = sysinfo(&info) == 0 && info.totalswap > 0;
    use->swap_before = swap_in_use(use);
    if (use->scratch >= 0 && fstat(use->scratch, &found) == 0)
        use->scratch_device = found.st_dev;
}

void cb_memory_use_close(struct cb_memory_use *use)
{
    cb_close_cleanup(&use->scratch);
    use->scratch = -1;
}

static uint64_t scratch_bytes(const struct cb_memory_use *use)
{
    struct statfs found;
    if (use->scratch < 0 || fstatfs(use->scratch, &found) < 0)
        return 0;
    return (uint64_t)(found.f_blocks - found.f_bfree) * (uint64_t)found.f_bsize +
           (uint64_t)(found.f_files - found.f_ffree) * INODE_BYTES;
}

static const struct cb_process *parent_of(const struct cb_tree *tree, const struct cb_process *process)
{
    for (size_t i = 0; i < tree->now.count; i++)
        if (tree->now.list[i].pid == process->parent)
            return &tree->now.list[i];
    return NULL;
}

static bool may_borrow(const struct cb_tree *tree, const struct cb_process *process)
{
    const struct cb_process *parent = process->forked ? parent_of(tree, process) : NULL;
    return parent && parent->size == process->size;
}

struct tables {
    uint64_t all, sure; /* bytes; `sure` without those that may be the parent's */
};

static struct tables page_tables(const struct cb_tree *tree, uint64_t limit)
{
    struct tables sum = {0};
    uint64_t possible = 0;
    for (size_t i = 0; i < tree->now.count; i++)
        possible += tree->now.list[i].size / PER_TABLE;
    for (size_t i = 0; i < tree->now.count && possible > limit / TABLE_SHARE; i++) {
        const struct cb_process *process = &tree->now.list[i];
        uint64_t one;
        if (process->size / PER_TABLE <= limit / TABLE_SHARE / tree->now.count || cb_tree_page_tables(tree, process, &one) < 0)
            continue;
        sum.all += one;
        sum.sure += may_borrow(tree, process) ? 0 : one;
    }
    return sum;
}

static uint64_t more(uint64_t than, uint64_t amount)
{
    return amount > than ? amount - than : 0;
}

/* What a process that was not weighed yet has that others have not: a copy begins with its parent's pages, others with
 * those of files. */
static uint64_t likely_own(const struct cb_tree *tree, const struct cb_process *process)
{
    const struct cb_process *parent = process->forked ? parent_of(tree, process) : NULL;
    return more(parent ? parent->resident : process->shared, process->resident);
}

struct cb_memory_total cb_memory_use_quick(struct cb_memory_use *use, const struct cb_tree *tree, uint64_t limit,
                                           uint64_t objects)
{
    uint64_t resident = 0, grown = 0, likely = 0, swap = swap_in_use(use);
    for (size_t i = 0; i < tree->now.count; i++) {
        const struct cb_process *process = &tree->now.list[i];
        uint64_t growth = more(process->weighed_resident, process->resident);
        resident += process->resident;
        grown += growth;
        likely += process->weighed_resident > 0 ? growth : likely_own(tree, process);
    }
    for (size_t i = 0; use->weighed && i < tree->before.count; i++) {
        const struct cb_process *process = &tree->before.list[i];
        if (!cb_tree_find(&tree->now, process))
            use->base = more(process->weighed_private, use->base);
    }
    struct tables tables = page_tables(tree, limit);
    uint64_t scratch = scratch_bytes(use), rest = scratch + tables.all + objects;
    uint64_t most = use->weighed && use->base + grown < resident ? use->base + grown : resident;
    most += more(use->swap_before, swap);
    return (struct cb_memory_total){.least = scratch + tables.sure,
                                    .likely = use->base + likely + rest,
                                    .most = most + rest,
                                    .tables = tables.all};
}

/* What is mapped from the memory file system is there once, not twice. */
static uint64_t count_twice(const struct cb_memory_use *use, const struct cb_tree *tree, uint64_t began)
{
    uint64_t sum = 0, one;
    for (size_t i = 0; i < tree->now.count && !is_too_long(began); i++)
        if (tree->now.list[i].pid != tree->first &&
            cb_tree_mapped_from(tree, &tree->now.list[i], use->scratch_device, &one) == 0)
            sum += one;
    return sum;
}

struct cb_memory_total cb_memory_use_weigh(struct cb_memory_use *use, const struct cb_tree *tree, uint64_t limit,
                                           uint64_t objects)
{
    uint64_t own = 0, borrowed = 0, shared = 0, began = cb_clock_us(CLOCK_THREAD_CPUTIME_ID);
    for (size_t i = 0; i < tree->now.count; i++) {
        struct cb_process *process = &tree->now.list[i];
        struct cb_memory_parts parts;
        process->weighed_resident = process->resident;
        process->weighed_private = 0;
        if (process->pid == tree->first || process->state == 'Z')
            continue;
        /* Thousands of mappings make it dear: from then on what is cheap to read has to do. */
        if (is_too_long(began) || cb_tree_memory(tree, process, &parts) < 0)
            parts = (struct cb_memory_parts){.anonymous = process->resident};
        own += parts.anonymous + parts.swapped;
        shared += parts.shared;
        process->weighed_private = parts.private;
        if (may_borrow(tree, process))
            borrowed += parts.anonymous + parts.swapped;
    }
    struct tables tables = page_tables(tree, limit);
    uint64_t scratch = scratch_bytes(use), rest = tables.all + objects;
    uint64_t common = scratch < shared ? scratch : shared, twice = 0;
    if (common > 0 && own + shared + scratch + rest > limit) {
        twice = common;
        if (own + shared + scratch + rest - common <= limit) {
            uint64_t mapped = count_twice(use, tree, began);
            twice = mapped < common ? mapped : common;
        }
    }
    use->weighed = true;
    use->swap_before = swap_in_use(use);
    use->base = own + shared - twice;
    uint64_t most = use->base + scratch + rest;
    return (struct cb_memory_total){.least = most - borrowed - (tables.all - tables.sure),
                                    .likely = most,
                                    .most = most,
                                    .tables = tables.all};
}
