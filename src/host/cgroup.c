/* See cgroup.h. Runs in the caller's process with its privileges; only reads.
 *
 * /proc/self/cgroup says what our cgroup is called in each tree, mountinfo where that tree can be seen. The two are put
 * together here and the directory is opened; all that follows goes through its descriptor. */
#include "host/cgroup.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/missing.h"
#include "base/text.h"

#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

static const struct {
    const char *name;
    unsigned bit;
} controllers[] = {{"memory", CB_CGROUP_MEMORY},
                   {"pids", CB_CGROUP_PIDS},
                   {"cpu", CB_CGROUP_CPU},
                   {"cpuacct", CB_CGROUP_CPUACCT}};
enum { CONTROLLERS = sizeof controllers / sizeof *controllers };

/* ---- Reading ---- */

static char *read_all(const char *path)
{
    cb_autofd int fd = open(path, O_RDONLY | O_CLOEXEC);
    cb_autotext struct cb_text text = {0};
    char part[8192];
    ssize_t got = -1;
    while (fd >= 0 && (got = read(fd, part, sizeof part)) > 0)
        cb_text_add(&text, part, (size_t)got);
    return got < 0 ? NULL : cb_text_take(&text);
}

/* The controllers named in a list. */
static unsigned bits_of(const char *list, size_t length, const char *separators)
{
    unsigned bits = 0;
    for (const char *at = list, *end = list + length; at < end;) {
        size_t span = strcspn(at, separators);
        span = span < (size_t)(end - at) ? span : (size_t)(end - at);
        for (int i = 0; i < CONTROLLERS; i++)
            if (strlen(controllers[i].name) == span && memcmp(at, controllers[i].name, span) == 0)
                bits |= controllers[i].bit;
        at += span + 1;
    }
    return bits;
}

static ssize_t read_file(int dir, const char *name, char *text, size_t room)
{
    cb_autofd int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? -1 : read(fd, text, room - 1);
    if (length >= 0)
        text[length] = '\0';
    return length;
}

int cb_cgroup_listed(int dir, const char *file)
{
    char list[512];
    ssize_t length = read_file(dir, file, list, sizeof list);
    return length < 0 ? -1 : (int)bits_of(list, (size_t)length, " \n");
}

/* Mountinfo writes blanks and the like as \ooo. In place. */
static void unescape(char *text)
{
    char *to = text;
    for (const char *at = text; *at; to++) {
        bool octal = at[0] == '\\' && at[1] >= '0' && at[1] <= '3' && at[2] >= '0' && at[2] <= '7' && at[3] >= '0' &&
                     at[3] <= '7';
        *to = octal ? (char)((at[1] - '0') * 64 + (at[2] - '0') * 8 + (at[3] - '0')) : *at;
        at += octal ? 4 : 1;
    }
    *to = '\0';
}

/* Names that lead out of what is mounted: a process can be in a cgroup outside of its cgroup namespace. */
static bool climbs(const char *path)
{
    return strcmp(path, "/..") == 0 || cb_has_prefix(path, "/../");
}

/* ---- Our own cgroup ---- */

/* One line of /proc/self/cgroup: "ID:CONTROLLERS:PATH", where version 2 is "0::PATH". */
struct own {
    unsigned controllers;   /* CB_CGROUP_V2 for version 2 */
    char *path;
};

static void own_free(struct own *own)
{
    free(own->path);
}

static const char *next_line(const char *line)
{
    line += strcspn(line, "\n");
    return *line ? line + 1 : line;
}

static bool parse_own(const char *line, struct own *own)
{
    size_t length = strcspn(line, "\n");
    const char *list = memchr(line, ':', length);
    const char *path = list ? memchr(list + 1, ':', length - (size_t)(list + 1 - line)) : NULL;
    if (!path)
        return false;
    list++;
    own->controllers = path == list && cb_has_prefix(line, "0:") ? CB_CGROUP_V2
                                                                : bits_of(list, (size_t)(path - list), ",:");
    if (!own->controllers)
        return false;
    own->path = strndup(path + 1, length - (size_t)(path + 1 - line));
    return own->path != NULL;
}

/* A mounted tree, from mountinfo: "ID PARENT MAJOR:MINOR ROOT POINT OPTIONS … - TYPE SOURCE SUPER". */
struct mounted {
    unsigned controllers;   /* CB_CGROUP_V2 for version 2 */
    dev_t device;
    char *root, *point;     /* in the line below */
    char *line;
};

struct mounts {
    struct mounted *list;
    size_t count;
};

static void mounts_free(struct mounts *mounts)
{
    for (size_t i = 0; i < mounts->count; i++)
        free(mounts->list[i].line);
    free(mounts->list);
}

/* Cuts the next word off; "" at the end. */
static char *next_word(char **at)
{
    char *word = *at;
    *at += strcspn(word, " ");
    if (**at)
        *(*at)++ = '\0';
    return word;
}

static void parse_mount(struct mounted *mounted, char *tail)
{
    char *at = mounted->line;
    next_word(&at);
    next_word(&at);
    char *device = next_word(&at), *minor = strchr(device, ':');
    mounted->device = makedev((unsigned)strtoul(device, NULL, 10), minor ? (unsigned)strtoul(minor + 1, NULL, 10) : 0);
    mounted->root = next_word(&at);
    mounted->point = next_word(&at);
    unescape(mounted->root);
    unescape(mounted->point);
    const char *type = next_word(&tail);
    next_word(&tail);
    const char *super = next_word(&tail);
    mounted->controllers = strcmp(type, "cgroup2") == 0  ? CB_CGROUP_V2
                           : strcmp(type, "cgroup") == 0 ? bits_of(super, strlen(super), ",")
                                                         : 0;
}

static int parse_mounts(const char *mountinfo, struct mounts *mounts)
{
    static const char mark[] = " - cgroup";
    for (const char *at = mountinfo; *at; at = next_line(at)) {
        size_t length = strcspn(at, "\n");
        const char *tail = memmem(at, length, mark, strlen(mark));
        if (!tail) /* as most are */
            continue;
        struct mounted *mounted = cb_array_push(&mounts->list, &mounts->count);
        if (!mounted || !(mounted->line = strndup(at, length)))
            return -1;
        parse_mount(mounted, mounted->line + (tail - at) + strlen(" - "));
    }
    return 0;
}

/* A cgroup, as far as it can be seen: how many others are above it in the mount, and is the topmost of them the root of
 * our cgroup namespace? */
struct seat {
    int dir;
    int above;
    bool whole;
};

static void seat_close(struct seat *seat)
{
    cb_close_cleanup(&seat->dir);
}

/* Opens our own cgroup as seen through one mount. */
static int open_own(const struct own *own, const struct mounted *mounted, struct seat *seat)
{
    /* A mount may show only a part of the tree; our own cgroup must lie in it. */
    if (climbs(own->path) || climbs(mounted->root) || !cb_path_within(own->path, mounted->root)) {
        errno = ENOENT;
        return -1;
    }
    seat->whole = strcmp(mounted->root, "/") == 0;
    const char *below = own->path + (seat->whole ? 0 : strlen(mounted->root));
    for (const char *at = below; *at; at++)
        seat->above += at[0] == '/' && at[1] != '\0';
    cb_autofree char *full = cb_format("%s/%s", mounted->point, below);
    seat->dir = full ? open(full, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    struct stat seen;
    if (seat->dir < 0 || fstat(seat->dir, &seen) < 0)
        return -1;
    if (seen.st_dev != mounted->device) { /* something else is mounted on top */
        errno = ENOENT;
        return -1;
    }
    return 0;
}

/* ---- Is it ours? ---- */

static bool may_write(int dir, const char *name)
{
    return faccessat(dir, name, W_OK, AT_EACCESS) == 0;
}

/* systemd marks what it has delegated. The root of a cgroup namespace counts as well: a container was given it. (The
 * root of the whole tree has no type.) */
static bool is_marked(int dir, bool top)
{
    char value = 0;
    return ((fgetxattr(dir, "user.delegate", &value, 1) == 1 || fgetxattr(dir, "trusted.delegate", &value, 1) == 1) &&
            value == '1') ||
           (top && faccessat(dir, "cgroup.type", F_OK, 0) == 0);
}

static bool is_in_marked(const struct seat *seat)
{
    cb_autofd int at = openat(seat->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int above = seat->above; at >= 0; above--) {
        if (is_marked(at, seat->whole && above == 0))
            return true;
        cb_autofd int lower = at;
        at = above > 0 ? openat(lower, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    }
    return false;
}

/* Delegated to us: writable, and not just because root may write anything. */
static bool is_delegated(const struct seat *seat)
{
    if (!may_write(seat->dir, ".") || !may_write(seat->dir, "cgroup.procs") ||
        !may_write(seat->dir, "cgroup.subtree_control"))
        return false;
    if (geteuid() != 0 || is_in_marked(seat))
        return true;
    errno = EACCES;
    return false;
}

/* A cgroup beside ours is not under the limits of ours; so there must not be any. systemd limits everybody's number of
 * processes: that does not count where the new cgroup has such a limit itself. */
static bool is_unlimited(int own, unsigned wanted)
{
    static const struct {
        const char *file;
        unsigned unless;
    } limits[] = {{"memory.max", 0}, {"memory.high", 0}, {"cpu.max", 0}, {"pids.max", CB_CGROUP_PIDS}};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        char text[64];
        if (!(wanted & limits[i].unless) && read_file(own, limits[i].file, text, sizeof text) > 0 &&
            !cb_has_prefix(text, "max")) {
            errno = EACCES;
            return false;
        }
    }
    return true;
}

/* ---- The places ---- */

static int add_place(struct cb_cgroup_places *places, int *dir, unsigned found, unsigned enable)
{
    places->place[places->count++] = (struct cb_cgroup_place){cb_steal_fd(dir), found, enable};
    places->controllers |= found;
    return 0;
}

static unsigned listed(int dir, const char *file, unsigned wanted)
{
    int bits = cb_cgroup_listed(dir, file);
    return bits < 0 ? 0 : (unsigned)bits & wanted;
}

static int try_v2(struct seat *own, unsigned wanted, struct cb_cgroup_places *places)
{
    const char *const available = "cgroup.controllers", *const handed = "cgroup.subtree_control";
    unsigned time = (wanted & CB_CGROUP_CPUACCT) | CB_CGROUP_V2; /* counted in every cgroup, without a controller */
    wanted &= ~CB_CGROUP_CPUACCT;
    unsigned found = listed(own->dir, handed, wanted), could = listed(own->dir, available, wanted);
    if ((found || !wanted) && may_write(own->dir, ".") && may_write(own->dir, "cgroup.procs"))
        return add_place(places, &own->dir, found | time, 0);

    cb_autofd int dir = own->above > 0 ? openat(own->dir, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    const struct seat parent = {dir, own->above - 1, own->whole};
    if (dir >= 0) {
        found = listed(dir, handed, wanted);
        could |= listed(dir, available, wanted);
        /* What was delegated is ours to divide; further down somebody else has decided what is handed down. */
        unsigned enable = is_marked(dir, parent.whole && parent.above == 0) ? could & ~found : 0;
        if ((found || enable || !wanted) && is_delegated(&parent) && is_unlimited(own->dir, wanted))
            return add_place(places, &dir, found | enable | time, enable);
    }
    if (wanted && !could)
        errno = ENOENT;
    else if (is_delegated(own))
        errno = EBUSY;
    return -1;
}

static int try_v1(struct seat *own, unsigned wanted, struct cb_cgroup_places *places)
{
    return may_write(own->dir, ".") ? add_place(places, &own->dir, wanted, 0) : -1;
}

/* Looks for the wanted controllers in trees of one version. */
static void find_version(const char *cgroup, const struct mounts *mounts, bool v2, unsigned wanted,
                         struct cb_cgroup_places *places)
{
    for (const char *line = cgroup; *line; line = next_line(line)) {
        __attribute__((cleanup(own_free))) struct own own = {0};
        if (!parse_own(line, &own) || (own.controllers == CB_CGROUP_V2) != v2)
            continue;
        for (size_t i = 0; i < mounts->count; i++) {
            unsigned left = wanted & ~places->controllers, here = v2 ? left : left & own.controllers;
            if (!here || (v2 && places->count > 0)) /* a process is in one cgroup of a tree only */
                break;
            if (!(mounts->list[i].controllers & own.controllers))
                continue;
            __attribute__((cleanup(seat_close))) struct seat seat = {.dir = -1};
            if (open_own(&own, &mounts->list[i], &seat) < 0 ||
                (v2 ? try_v2(&seat, here, places) : try_v1(&seat, here, places)) < 0)
                places->errnum = errno;
        }
    }
}

int cb_cgroup_find_in(const struct cb_cgroup_texts *texts, unsigned wanted, struct cb_cgroup_places *places)
{
    *places = (struct cb_cgroup_places){0};
    __attribute__((cleanup(mounts_free))) struct mounts mounts = {0};
    if (parse_mounts(texts->mountinfo, &mounts) < 0) {
        places->errnum = ENOMEM;
    } else {
        find_version(texts->cgroup, &mounts, true, wanted, places);
        find_version(texts->cgroup, &mounts, false, wanted, places);
    }
    if ((places->controllers & wanted) == wanted)
        places->errnum = 0;
    else if (!places->errnum)
        places->errnum = ENOENT;
    errno = places->errnum;
    return places->count ? 0 : -1;
}

int cb_cgroup_find(unsigned wanted, struct cb_cgroup_places *places)
{
    cb_autofree char *cgroup = read_all("/proc/self/cgroup");
    cb_autofree char *mountinfo = cgroup ? read_all("/proc/self/mountinfo") : NULL;
    *places = (struct cb_cgroup_places){.errnum = errno};
    return mountinfo ? cb_cgroup_find_in(&(struct cb_cgroup_texts){cgroup, mountinfo}, wanted, places) : -1;
}

void cb_cgroup_places_close(struct cb_cgroup_places *places)
{
    for (size_t i = 0; i < places->count; i++)
        cb_close_cleanup(&places->place[i].dir);
    places->count = 0;
}
