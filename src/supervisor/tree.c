/* See tree.h.
 *
 * Runs in the supervisor. With a pid namespace, the cell's own /proc lists exactly its processes; it was opened from
 * the cell's root, so nothing that the code does can put another in its place, and the supervisor, whose child the
 * cell's user namespace is, has the rights that reading the cell's processes takes. Only the cell's init, which runs no
 * program of the cell's, hides from an ordinary user there: it is read from the host's /proc, by the number that the
 * supervisor knows and that stays its own until the supervisor has waited for it.
 *
 * Without a pid namespace the tree is what descends from the cell's first process, which adopts orphans: nothing leaves
 * the tree. The kernel's lists of children can miss one while others end, so a process that was seen once is looked up
 * by its number until it is really gone. */
#include "supervisor/tree.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/missing.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>

#define FORKED_FLAG 0x40u /* PF_FORKNOEXEC, in the flags of `stat` */

/* ---- Reading ---- */

static ssize_t read_text(int directory, const char *path, char *text, size_t room)
{
    cb_autofd int fd = openat(directory, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    ssize_t length = fd < 0 ? -1 : read(fd, text, room - 1);
    if (length >= 0)
        text[length] = '\0';
    return length;
}

static ssize_t read_of(const struct cb_tree *tree, pid_t pid, const char *file, char *text, size_t room)
{
    char path[48];
    bool outside = tree->own && pid == tree->first && tree->host >= 0;
    snprintf(path, sizeof path, "%d/%s", outside ? tree->first_outside : pid, file);
    return read_text(outside ? tree->host : tree->proc, path, text, room);
}

/* By way of a thread that is alive, where the main one is over: the process goes on, and has all that it had. */
static void path_of(const struct cb_process *process, const char *file, char path[static 64])
{
    if (process->thread)
        snprintf(path, 64, "%d/task/%d/%s", process->pid, process->thread, file);
    else
        snprintf(path, 64, "%d/%s", process->pid, file);
}

static ssize_t read_from(const struct cb_tree *tree, const struct cb_process *process, const char *file, char *text,
                         size_t room)
{
    char path[64];
    path_of(process, file, path);
    return process->thread ? read_text(tree->proc, path, text, room)
                           : read_of(tree, process->pid, file, text, room);
}

static uint64_t ticks_us(uint64_t ticks)
{
    long per_second = sysconf(_SC_CLK_TCK);
    return ticks * (1000000 / (uint64_t)(per_second > 0 ? per_second : 100));
}

/* The name is the code's choice and may hold anything, brackets and newlines included; after the last bracket come
 * numbers only. */
int cb_tree_parse_stat(const char *text, struct cb_process *process)
{
    enum { PARENT = 4, FLAGS = 9, USER = 14, SYSTEM, WAITED_USER, WAITED_SYSTEM, THREADS = 20, STARTED = 22, SIZE,
           RESIDENT, LAST };
    uint64_t fields[LAST] = {0};
    const char *at = strrchr(text, ')');
    if (!at || at[1] != ' ' || at[2] == '\0' || at[3] != ' ')
        return -1;
    process->pid = (pid_t)strtol(text, NULL, 10);
    process->state = at[2];
    at += 4;
    for (int i = PARENT; i < LAST; i++) {
        char *end;
        fields[i] = strtoull(at, &end, 10); /* one of those that are skipped can be negative */
        if (end == at || *end != ' ')
            return -1;
        at = end + 1;
    }
    process->parent = (pid_t)fields[PARENT];
    process->forked = fields[FLAGS] & FORKED_FLAG;
    process->user_us = ticks_us(fields[USER]);
    process->system_us = ticks_us(fields[SYSTEM]);
    process->waited_user_us = ticks_us(fields[WAITED_USER]);
    process->waited_system_us = ticks_us(fields[WAITED_SYSTEM]);
    process->threads = fields[THREADS];
    process->started = fields[STARTED];
    process->size = fields[SIZE];
    process->resident = fields[RESIDENT] * (uint64_t)sysconf(_SC_PAGESIZE);
    return 0;
}

/* "Name:   123 kB" at the start of a line; 0 when there is none. */
uint64_t cb_tree_parse_field(const char *text, const char *name)
{
    size_t length = strlen(name);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, name, length) == 0 && line[length] == ':')
            return strtoull(line + length + 1, NULL, 10);
    }
    return 0;
}

static void read_memory(const struct cb_tree *tree, struct cb_process *process)
{
    char text[128];
    unsigned long long size, resident, shared;
    if (read_from(tree, process, "statm", text, sizeof text) <= 0 ||
        sscanf(text, "%llu %llu %llu", &size, &resident, &shared) != 3)
        return;
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    process->size = size * page;
    process->resident = resident * page;
    process->shared = shared * page;
}

static void read_written(const struct cb_tree *tree, struct cb_process *process)
{
    char text[256];
    if (read_from(tree, process, "io", text, sizeof text) <= 0)
        return;
    uint64_t written = cb_tree_parse_field(text, "write_bytes");
    uint64_t taken_back = cb_tree_parse_field(text, "cancelled_write_bytes");
    process->written = written > taken_back ? written - taken_back : 0;
    process->calls = cb_tree_parse_field(text, "syscr") + cb_tree_parse_field(text, "syscw");
}

/* How busy a process is that was never seen before: of the time in which it wanted to run, how much it got; nothing
 * when it sleeps. */
static uint64_t read_pace(const struct cb_tree *tree, const struct cb_process *process)
{
    char text[128];
    unsigned long long ran, waited;
    if (process->state != 'R' || read_of(tree, process->pid, "schedstat", text, sizeof text) <= 0 ||
        sscanf(text, "%llu %llu", &ran, &waited) != 2 || ran + waited == 0)
        return 0;
    return (uint64_t)((double)ran * 1000 / (double)(ran + waited));
}

struct cb_process *cb_tree_find(const struct cb_processes *list, const struct cb_process *who)
{
    size_t low = 0, high = list->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        struct cb_process *found = &list->list[middle];
        if (found->pid == who->pid)
            return found->started == who->started ? found : NULL;
        if (found->pid < who->pid)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

/* What was known of a process stays known where it is not read again. The first process is not the code's: its memory
 * is the supervisor's own, copied. */
static void complete(const struct cb_tree *tree, struct cb_process *process, unsigned parts)
{
    const struct cb_process *known = cb_tree_find(&tree->before, process);
    if (known) {
        process->looks = known->looks;
        process->pace = known->pace;
        process->shared = known->shared;
        process->written = known->written;
        process->calls = known->calls;
        process->weighed_resident = known->weighed_resident;
        process->weighed_private = known->weighed_private;
    } else {
        process->pace = read_pace(tree, process);
    }
    process->looks++;
    if (process->pid == tree->first)
        process->size = process->resident = 0;
    else if (parts & CB_TREE_MEMORY && process->looks <= 2) /* it may have executed something meanwhile */
        read_memory(tree, process);
    if (parts & CB_TREE_WRITTEN)
        read_written(tree, process);
}

void cb_tree_read_memory(struct cb_tree *tree)
{
    for (size_t i = 0; i < tree->now.count; i++)
        if (tree->now.list[i].pid != tree->first && tree->now.list[i].resident > 0)
            read_memory(tree, &tree->now.list[i]);
}

static pid_t number(const char *name)
{
    char *end;
    long value = name[0] >= '1' && name[0] <= '9' ? strtol(name, &end, 10) : 0;
    return value > 0 && value <= INT32_MAX && *end == '\0' ? (pid_t)value : 0;
}

static DIR *open_listing(int directory, const char *path)
{
    int fd = openat(directory, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    DIR *listing = fd < 0 ? NULL : fdopendir(fd);
    if (fd >= 0 && !listing)
        close(fd);
    return listing;
}

static void look_through_thread(const struct cb_tree *tree, struct cb_process *process)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "%d/task", process->pid);
    cb_autodir DIR *listing = open_listing(tree->proc, path);
    for (struct dirent *entry; listing && (entry = readdir(listing));) {
        pid_t thread = number(entry->d_name);
        struct cb_process seen = {0};
        snprintf(path, sizeof path, "%d/task/%d/stat", process->pid, thread);
        if (thread <= 0 || thread == process->pid || read_text(tree->proc, path, text, sizeof text) <= 0 ||
            cb_tree_parse_stat(text, &seen) < 0 || seen.state == 'Z' || seen.state == 'X')
            continue;
        process->thread = thread;
        process->state = seen.state;
        process->size = seen.size;
        process->resident = seen.resident;
        return;
    }
}

static int add_process(struct cb_tree *tree, pid_t pid, unsigned parts)
{
    char text[1024];
    struct cb_process read_in = {0};
    if (read_of(tree, pid, "stat", text, sizeof text) <= 0 || cb_tree_parse_stat(text, &read_in) < 0)
        return -1;
    read_in.pid = pid;
    if (read_in.state == 'Z' && read_in.threads > 1)
        look_through_thread(tree, &read_in);
    complete(tree, &read_in, parts);
    struct cb_process *added = cb_array_push(&tree->now.list, &tree->now.count);
    if (!added)
        return -1;
    *added = read_in;
    return 0;
}

/* ---- Finding them ---- */

/* The first process comes first, so that what it has waited for is never counted twice. In /proc other files come
 * before the processes: the next listing begins behind them. */
static int list_own(struct cb_tree *tree, unsigned parts)
{
    char buffer[16 * 1024] __attribute__((aligned(__alignof__(struct dirent64))));
    bool seen_number = tree->listing_start > 0;
    if (lseek(tree->proc, tree->listing_start, SEEK_SET) < 0)
        return -1;
    add_process(tree, tree->first, parts);
    for (;;) {
        long length = syscall(SYS_getdents64, tree->proc, buffer, sizeof buffer);
        if (length <= 0)
            return length < 0 ? -1 : 0;
        for (long at = 0; at < length;) {
            const struct dirent64 *entry = (const struct dirent64 *)(const void *)(buffer + at);
            pid_t pid = number(entry->d_name);
            if (pid > 0 && pid != tree->first)
                add_process(tree, pid, parts);
            seen_number = seen_number || pid > 0;
            if (!seen_number)
                tree->listing_start = entry->d_off;
            at += entry->d_reclen;
        }
    }
}

/* Adds the children of one thread. -1 when the kernel does not list them. */
static int add_children(struct cb_tree *tree, pid_t pid, pid_t thread, unsigned parts)
{
    char path[64], text[4096];
    snprintf(path, sizeof path, "%d/task/%d/children", pid, thread);
    cb_autofd int fd = openat(tree->proc, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    size_t kept = 0;
    for (ssize_t got; (got = read(fd, text + kept, sizeof text - 1 - kept)) > 0;) {
        size_t length = kept + (size_t)got;
        text[length] = '\0';
        char *at = text, *space;
        while ((space = strchr(at, ' '))) { /* each number is followed by one */
            *space = '\0';
            pid_t child = number(at);
            if (child > 0)
                add_process(tree, child, parts);
            at = space + 1;
        }
        kept = (size_t)(text + length - at);
        memmove(text, at, kept);
    }
    return 0;
}

static int add_children_of_all_threads(struct cb_tree *tree, pid_t pid, unsigned parts)
{
    char path[48];
    snprintf(path, sizeof path, "%d/task", pid);
    cb_autodir DIR *listing = open_listing(tree->proc, path);
    if (!listing)
        return 0; /* gone */
    for (struct dirent *entry; (entry = readdir(listing));)
        if (number(entry->d_name) > 0)
            add_children(tree, pid, number(entry->d_name), parts);
    return 0;
}

/* Where the kernel does not list children: every process of the host, those of the tree picked by their parents. */
static int list_by_parents(struct cb_tree *tree, unsigned parts)
{
    cb_autodir DIR *listing = open_listing(tree->proc, ".");
    struct cb_processes all = {0};
    if (!listing)
        return -1;
    for (struct dirent *entry; (entry = readdir(listing));) {
        char text[1024];
        struct cb_process read_in = {0};
        pid_t pid = number(entry->d_name);
        struct cb_process *added;
        if (pid <= 0 || pid == tree->first || read_of(tree, pid, "stat", text, sizeof text) <= 0 ||
            cb_tree_parse_stat(text, &read_in) < 0 || !(added = cb_array_push(&all.list, &all.count)))
            continue;
        *added = read_in;
    }
    for (size_t i = 0; i < tree->now.count; i++)
        for (size_t j = 0; j < all.count; j++)
            if (all.list[j].parent == tree->now.list[i].pid)
                add_process(tree, all.list[j].pid, parts);
    free(all.list);
    return 0;
}

static int by_pid(const void *left, const void *right)
{
    const struct cb_process *a = left, *b = right;
    return (a->pid > b->pid) - (a->pid < b->pid);
}

/* One that got another parent meanwhile can have been met twice. */
static void sort(struct cb_processes *processes)
{
    size_t kept = 0;
    qsort(processes->list, processes->count, sizeof *processes->list, by_pid);
    for (size_t i = 0; i < processes->count; i++)
        if (i == 0 || processes->list[i].pid != processes->list[kept - 1].pid)
            processes->list[kept++] = processes->list[i];
    processes->count = kept;
}

static int list_descendants(struct cb_tree *tree, unsigned parts)
{
    if (add_process(tree, tree->first, parts) < 0)
        return -1;
    if (tree->by_parents || add_children(tree, tree->first, tree->first, parts) < 0) {
        tree->by_parents = true;
        return list_by_parents(tree, parts);
    }
    for (size_t i = 1; i < tree->now.count; i++) {
        pid_t pid = tree->now.list[i].pid;
        if (tree->now.list[i].threads > 1)
            add_children_of_all_threads(tree, pid, parts);
        else
            add_children(tree, pid, pid, parts);
    }
    return 0;
}

/* Those that were seen before and missed now. */
static void look_up_missed(struct cb_tree *tree, unsigned parts)
{
    size_t listed = tree->now.count;
    for (size_t i = 0; i < tree->before.count; i++) {
        const struct cb_process *known = &tree->before.list[i];
        const struct cb_processes sorted = {.list = tree->now.list, .count = listed};
        if (!cb_tree_find(&sorted, known) && add_process(tree, known->pid, parts) == 0 &&
            tree->now.list[tree->now.count - 1].started != known->started)
            tree->now.count--; /* somebody else's by now */
    }
}

static bool is_proc(int fd)
{
    struct statfs found;
    return fd >= 0 && fstatfs(fd, &found) == 0 && found.f_type == PROC_SUPER_MAGIC;
}

/* Only one that counts as we do: a /proc of another pid namespace has other processes under the same numbers. */
static int open_host_proc(void)
{
    char link[32];
    cb_autofd int fd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ssize_t length = is_proc(fd) ? readlinkat(fd, "self", link, sizeof link - 1) : -1;
    if (length <= 0)
        return -1;
    link[length] = '\0';
    return number(link) == getpid() ? cb_steal_fd(&fd) : -1;
}

/* Kernels count pages on each processor and add them up now and then: three counters (private, file, shared), each with
 * what the kernel calls a batch on every processor. */
static uint64_t count_roughly(void)
{
    long configured = sysconf(_SC_NPROCESSORS_CONF);
    uint64_t processors = configured > 0 ? (uint64_t)configured : 1;
    uint64_t batch = 2 * processors > 32 ? 2 * processors : 32;
    return 3 * batch * processors * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Many runs are over before anybody looks: what can be done then is not done at the start. */
static void get_ready(struct cb_tree *tree)
{
    tree->ready = true;
    tree->roughly = count_roughly();
    if (tree->own)
        tree->host = open_host_proc();
}

int cb_tree_read(struct cb_tree *tree, unsigned parts)
{
    if (!tree->ready)
        get_ready(tree);
    struct cb_processes spare = tree->before;
    tree->before = tree->now;
    tree->now = spare;
    tree->now.count = 0;
    if ((tree->own ? list_own(tree, parts) : list_descendants(tree, parts)) < 0)
        return -1;
    sort(&tree->now);
    if (!tree->own) {
        look_up_missed(tree, parts);
        sort(&tree->now);
    }
    return tree->now.count > 0 ? 0 : -1;
}

/* ---- Opening ---- */

static int open_own_proc(int root)
{
    struct cb_open_how how = {.flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC,
                              .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS};
    char link[32];
    cb_autofd int fd = cb_sys_openat2(root, "proc", &how);
    /* One that knows us is not the cell's. */
    return is_proc(fd) && readlinkat(fd, "self", link, sizeof link) < 0 ? cb_steal_fd(&fd) : -1;
}

int cb_tree_open(struct cb_tree *tree, int root, pid_t first)
{
    tree->own = root >= 0;
    tree->first_outside = first;
    tree->first = tree->own ? 1 : first;
    tree->proc = tree->own ? open_own_proc(root) : open_host_proc();
    return tree->proc < 0 ? -1 : 0;
}

void cb_tree_close(struct cb_tree *tree)
{
    cb_close_cleanup(&tree->proc);
    cb_close_cleanup(&tree->host);
    tree->proc = tree->host = -1;
    free(tree->now.list);
    free(tree->before.list);
    tree->now = tree->before = (struct cb_processes){0};
}

/* ---- What only some need ---- */

int cb_tree_memory(const struct cb_tree *tree, const struct cb_process *who, struct cb_memory_parts *parts)
{
    char text[4096];
    if (read_from(tree, who, "smaps_rollup", text, sizeof text) <= 0)
        return -1;
    parts->anonymous = cb_tree_parse_field(text, "Pss_Anon") << 10;
    parts->shared = cb_tree_parse_field(text, "Pss_Shmem") << 10;
    parts->swapped = cb_tree_parse_field(text, "SwapPss") << 10;
    if (!strstr(text, "\nPss_Anon:")) /* Linux before 5.3 has one sum for all */
        parts->anonymous = cb_tree_parse_field(text, "Pss") << 10;
    parts->private = cb_tree_parse_field(text, "Private_Dirty") << 10;
    if (parts->private > parts->anonymous)
        parts->private = parts->anonymous;
    return 0;
}

int cb_tree_mapped_from(const struct cb_tree *tree, const struct cb_process *who, dev_t device, uint64_t *bytes)
{
    char path[64];
    cb_autofree char *line = NULL; /* whole lines: a path in one of them may look like the start of another */
    size_t room = 0;
    path_of(who, "smaps", path);
    int fd = openat(tree->proc, path, O_RDONLY | O_CLOEXEC);
    FILE *stream = fd < 0 ? NULL : fdopen(fd, "re");
    if (!stream) {
        cb_close_cleanup(&fd);
        return -1;
    }
    bool matches = false;
    *bytes = 0;
    while (getline(&line, &room, stream) > 0) {
        unsigned from_major, from_minor;
        unsigned long long kilobytes;
        /* "addresses rights offset device inode path", then lines of "Name: value". */
        if (sscanf(line, "%*x-%*x %*s %*x %x:%x", &from_major, &from_minor) == 2)
            matches = makedev(from_major, from_minor) == device;
        else if (matches && sscanf(line, "Pss: %llu", &kilobytes) == 1)
            *bytes += kilobytes << 10;
    }
    fclose(stream);
    return 0;
}

int cb_tree_page_tables(const struct cb_tree *tree, const struct cb_process *who, uint64_t *bytes)
{
    char text[4096];
    if (read_from(tree, who, "status", text, sizeof text) <= 0)
        return -1;
    *bytes = cb_tree_parse_field(text, "VmPTE") << 10;
    return 0;
}

DIR *cb_tree_open_files(const struct cb_tree *tree, const struct cb_process *who)
{
    char path[64];
    path_of(who, "fd", path);
    return open_listing(tree->proc, path);
}

int cb_tree_handle(const struct cb_tree *tree, const struct cb_process *who)
{
    char name[16], text[1024];
    struct cb_process found;
    snprintf(name, sizeof name, "%d", who->pid);
    cb_autofd int directory = openat(tree->proc, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (directory < 0 || read_text(directory, "stat", text, sizeof text) <= 0 ||
        cb_tree_parse_stat(text, &found) < 0 || found.started != who->started)
        return -1;
    return cb_steal_fd(&directory);
}
