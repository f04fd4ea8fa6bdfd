/* See resolve.h. Runs in the supervisor, with the caller's privileges, before any process of the cell exists.
 *
 * Order: the workspace first (it is where an earlier run may have laid traps), then every rule, then the programs,
 * then one pass that asks cb_decide_file about every path that a rule names, and keeps those where the answer differs
 * from the answer for the directory around it. Three rules about symbolic links:
 *   - outside writable places they are followed, once, here;
 *   - inside the workspace they are never followed for a grant;
 *   - a restriction that meets one in the workspace holds for the name and for what the link leads to. */
#include "policy/resolve.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/missing.h"
#include "base/text.h"
#include "policy/programs.h"
#include "policy/walk.h"
#include "policy/workspace.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

struct resolver {
    const struct cb_context *context;
    struct cb_resolved *out;
    struct cb_document *added;    /* rules of our own making, at the bottom of the first layer */
    int workspace_fd;             /* -1 for a scratch workspace */
    struct cb_place *seen;        /* one for each rule that found its object; `access` is not decided yet */
    size_t seen_count;
};

static void place_clear(struct cb_place *place)
{
    free(place->path);
    cb_close_cleanup(&place->fd);
}

void cb_resolved_free(struct cb_resolved *resolved)
{
    if (!resolved)
        return;
    for (size_t i = 0; i < resolved->place_count; i++)
        place_clear(&resolved->places[i]);
    for (size_t i = 0; i < resolved->link_count; i++) {
        free(resolved->links[i].path);
        free(resolved->links[i].target);
    }
    for (size_t i = 0; i < resolved->absent_count; i++)
        free(resolved->absents[i].path);
    for (size_t i = 0; i < resolved->swept_count; i++) {
        cb_close_cleanup(&resolved->swept[i].directory);
        free(resolved->swept[i].name);
        free(resolved->swept[i].path);
    }
    free(resolved->swept);
    cb_socket_places_free(resolved->sockets, resolved->socket_count);
    free(resolved->places);
    free(resolved->links);
    free(resolved->absents);
    free(resolved->workspace);
    cellblock_policy_free(resolved->policy);
    free(resolved);
}

static void resolver_end(struct resolver *resolver)
{
    for (size_t i = 0; i < resolver->seen_count; i++)
        place_clear(&resolver->seen[i]);
    free(resolver->seen);
    cb_close_cleanup(&resolver->workspace_fd);
    cb_resolved_free(resolver->out);
}

/* "~", "~/x" and relative paths made absolute. */
static char *spell_out(const struct cb_context *context, const char *path, const char *base, cellblock_error **error)
{
    if (path[0] == '~') {
        if (!context->home) {
            cb_fail(error, CELLBLOCK_ERROR_POLICY, 0, "%s: there is no home directory (HOME is not set)", path);
            return NULL;
        }
        base = context->home;
        path++;
    } else if (path[0] == '/') {
        base = "";
    }
    char *made = cb_format("%s/%s", base, path);
    if (!made)
        cb_fail_memory(error);
    else
        cb_path_clean(made);
    return made;
}

static int add_link(struct resolver *resolver, const struct cb_link *link, cellblock_error **error)
{
    struct cb_resolved *out = resolver->out;
    for (size_t i = 0; i < out->link_count; i++)
        if (strcmp(out->links[i].path, link->path) == 0)
            return 0;
    struct cb_link *copy = cb_array_push(&out->links, &out->link_count);
    if (!copy || !(copy->path = strdup(link->path)) || !(copy->target = strdup(link->target)))
        return cb_fail_memory(error);
    return 0;
}

static int add_rule(struct resolver *resolver, const char *path, enum cb_access access, bool directory_only,
                    const char *why, const char *origin, cellblock_error **error)
{
    for (size_t i = 0; i < resolver->added->file_count; i++) {
        struct cb_file_rule *same = &resolver->added->files[i];
        if (strcmp(same->real, path) == 0 && same->access <= access) {
            same->directory_only = same->directory_only && directory_only; /* the stricter of the two */
            return 0;
        }
    }
    struct cb_document *document = resolver->added;
    struct cb_file_rule *rule = cb_array_push(&document->files, &document->file_count);
    if (!rule || !(rule->path = strdup(path)) || !(rule->real = strdup(path)) || !(rule->why = strdup(why)))
        return cb_fail_memory(error);
    rule->access = access;
    rule->directory_only = directory_only;
    rule->origin.document = origin;
    document->files_given = true;
    return 0;
}

/* Notes the object that a path stands for. Rules are looked up again by path once all are known: the array of the
 * document that we add to may still move. */
static int add_seen(struct resolver *resolver, const char *path, int fd, const struct cb_walk *walk,
                    cellblock_error **error)
{
    cb_autofd int owned = fd;
    struct stat found = {0};
    if (walk) {
        found.st_dev = walk->device;
        found.st_ino = walk->inode;
        found.st_mode = walk->mode;
    } else if (fstat(owned, &found) < 0) {
        return cb_fail_errno(error, "looking at %s", path);
    }
    struct cb_place *place = cb_array_push(&resolver->seen, &resolver->seen_count);
    if (!place)
        return cb_fail_memory(error);
    place->fd = cb_steal_fd(&owned);
    place->device = found.st_dev;
    place->inode = found.st_ino;
    place->directory = S_ISDIR(found.st_mode);
    place->path = strdup(path);
    return place->path ? 0 : cb_fail_memory(error);
}

static int add_absent(struct resolver *resolver, const char *path, const struct cb_file_rule *rule,
                      cellblock_error **error)
{
    struct cb_resolved *out = resolver->out;
    struct cb_absent *absent = cb_array_push(&out->absents, &out->absent_count);
    if (!absent || !(absent->path = strdup(path)))
        return cb_fail_memory(error);
    absent->directory_only = rule->directory_only;
    absent->rule = rule;
    return 0;
}

/* ---- The workspace ---- */

static int resolve_workspace(struct resolver *resolver, cellblock_error **error)
{
    const cellblock_policy *policy = resolver->out->policy;
    const char *written = cb_decide_workspace_path(policy);
    bool on_purpose = written[0] == '/' || written[0] == '~';
    cb_autofree char *path = spell_out(resolver->context, written, resolver->context->directory, error);
    if (!path)
        return -1;
    cb_autowalk struct cb_walk walk = CB_WALK_INIT;
    int missing;
    if (cb_walk_path(path, &walk, &missing, error) < 0)
        return -1;
    resolver->out->scratch = cb_decide_workspace_mode(policy) == CB_WORKSPACE_SCRATCH;
    if (walk.fd < 0) {
        cb_fail(error, CELLBLOCK_ERROR_USAGE, missing, "workspace %s", path);
        return cb_error_hint(error, "make the directory first, or name another with --workspace");
    }
    if (!S_ISDIR(walk.mode))
        return cb_fail(error, CELLBLOCK_ERROR_USAGE, ENOTDIR, "workspace %s", path);
    /* In memory it changes nothing of what is there: only the system must not be covered by it. */
    bool harmless = resolver->out->scratch && !cb_is_system_path(walk.path);
    if (cb_workspace_check(walk.path, resolver->context->home, on_purpose || harmless, error) < 0)
        return -1;
    for (size_t i = 0; i < walk.link_count; i++)
        if (add_link(resolver, &walk.links[i], error) < 0)
            return -1;
    resolver->out->workspace = cb_steal(walk.path);
    resolver->workspace_fd = fcntl(walk.fd, F_DUPFD_CLOEXEC, 3);
    if (resolver->workspace_fd < 0)
        return cb_fail_errno(error, "keeping workspace %s", resolver->out->workspace);
    if (add_rule(resolver, resolver->out->workspace, CB_ACCESS_WRITE, false, "the workspace", "workspace", error) < 0)
        return -1;
    return add_seen(resolver, resolver->out->workspace, cb_steal_fd(&walk.fd), &walk, error);
}

/* ---- Rules ---- */

static int open_in_workspace(const struct resolver *resolver, const char *relative, uint64_t resolve)
{
    struct cb_open_how how = {.flags = O_PATH | O_CLOEXEC,
                              .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | resolve};
    return cb_sys_openat2(resolver->workspace_fd, relative, &how);
}

/* `.git/hooks` where `.git` is a file: that file must stay as it is. */
static int protect_file_on_the_way(struct resolver *resolver, const char *relative, cellblock_error **error)
{
    cb_autofree char *prefix = strdup(relative);
    if (!prefix)
        return cb_fail_memory(error);
    for (char *slash = strrchr(prefix, '/'); slash; slash = strrchr(prefix, '/')) {
        *slash = '\0';
        cb_autofd int fd = open_in_workspace(resolver, prefix, RESOLVE_NO_SYMLINKS);
        if (fd < 0)
            continue;
        cb_autofree char *path = cb_format("%s/%s", resolver->out->workspace, prefix);
        if (!path)
            return cb_fail_memory(error);
        if (add_rule(resolver, path, CB_ACCESS_READ, false, "stands where a protected directory would be", "workspace",
                     error) < 0)
            return -1;
        return add_seen(resolver, path, cb_steal_fd(&fd), NULL, error);
    }
    return 0;
}

/* `.git/hooks` where `.git` is a link to somewhere else in the workspace: that place is protected too, whether it
 * exists yet or not. */
static int protect_behind_link(struct resolver *resolver, const char *path, const struct cb_file_rule *rule,
                               cellblock_error **error)
{
    cb_autowalk struct cb_walk walk = CB_WALK_INIT;
    int missing;
    if (cb_walk_path(path, &walk, &missing, error) < 0)
        return -1;
    if (!cb_path_within(walk.path, resolver->out->workspace) || (walk.fd < 0 && missing != ENOENT))
        return 0; /* leads out of the workspace, or in circles: nothing of it is in the cell */
    if (add_rule(resolver, walk.path, rule->access, rule->directory_only,
                 "a protected path leads here by a symbolic link", "workspace", error) < 0)
        return -1;
    return walk.fd < 0 ? 0 : add_seen(resolver, walk.path, cb_steal_fd(&walk.fd), &walk, error);
}

static bool is_option(const struct cb_file_rule *rule)
{
    return rule->origin.line == 0;
}

/* Says where the rule stands: a file with its line, or an option as the person has typed it. */
static int fail_rule(const struct cb_file_rule *rule, int errnum, cellblock_error **error, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

static int fail_rule(const struct cb_file_rule *rule, int errnum, cellblock_error **error, const char *format, ...)
{
    char *made = NULL;
    va_list arguments;
    va_start(arguments, format);
    int length = vasprintf(&made, format, arguments);
    va_end(arguments);
    cb_autofree char *text = length < 0 ? NULL : made;
    if (!text)
        return cb_fail_memory(error);
    cb_autofree char *origin = cb_origin_text(&rule->origin);
    return cb_fail(error, CELLBLOCK_ERROR_POLICY, errnum, "%s: %s", origin ? origin : "", text);
}

static int rule_missing(struct cb_file_rule *rule, const char *path, int missing, cellblock_error **error)
{
    bool reachable = missing == ENOENT || missing == ENOTDIR;
    /* Anything else than that it is not there, or not for us, says nothing about it: a grant must not vanish by that. */
    if (!reachable && missing != EACCES && missing != ELOOP)
        return cb_fail(error, CELLBLOCK_ERROR_SYSTEM, missing, "looking at %s", path);
    bool profile = cb_has_prefix(rule->origin.document, "profile ");
    /* A directory on the way that can't be searched now may be opened by the code that owns it. */
    if (!reachable && !profile && rule->access != CB_ACCESS_WRITE) {
        fail_rule(rule, missing, error, "can't look at %s, so the rule could not be kept", path);
        return cb_error_hint(error, "make the directories above it searchable");
    }
    if (rule->optional || rule->when != CB_WHEN_ALWAYS || rule->access == CB_ACCESS_NONE) {
        /* Hiding what is not there (or what the caller can't reach either) needs no mount, but the decision stands. */
        if (rule->access == CB_ACCESS_NONE && !(rule->real = strdup(path)))
            return cb_fail_memory(error);
        return 0;
    }
    fail_rule(rule, missing, error, "can't grant %s access to %s", cb_access_word(rule->access), path);
    return cb_error_hint(error, is_option(rule) ? "check the spelling, or make it first"
                                                : "make it first, or mark the rule \"optional\": true");
}

/* Only where its directory exists: one that the code makes, with all that is in it, is the code's. */
static int add_swept(struct resolver *resolver, const struct cb_file_rule *rule, const char *path,
                     cellblock_error **error)
{
    cb_autofree char *parent = cb_path_parent(path);
    if (!parent)
        return cb_fail_memory(error);
    const char *relative = parent + strlen(resolver->out->workspace);
    cb_autofd int directory = open_in_workspace(resolver, *relative ? relative + 1 : ".", RESOLVE_NO_SYMLINKS);
    if (directory < 0)
        return 0;
    struct cb_swept *swept = cb_array_push(&resolver->out->swept, &resolver->out->swept_count);
    if (!swept)
        return cb_fail_memory(error);
    swept->directory = cb_steal_fd(&directory);
    swept->rule = rule;
    swept->name = strdup(strrchr(path, '/') + 1);
    swept->path = strdup(path);
    return swept->name && swept->path ? 0 : cb_fail_memory(error);
}

static int resolve_in_workspace(struct resolver *resolver, struct cb_file_rule *rule, const char *path,
                                cellblock_error **error)
{
    bool scratch = resolver->out->scratch;
    if (scratch && (rule->access != CB_ACCESS_READ || cb_has_prefix(rule->origin.document, "profile ")))
        return 0; /* it starts empty and is thrown away: nothing to protect, everything writable */
    const char *relative = path + strlen(resolver->out->workspace);
    relative += *relative == '/';
    cb_autofd int fd = open_in_workspace(resolver, *relative ? relative : ".", RESOLVE_NO_SYMLINKS);
    int failed = fd < 0 ? errno : 0;
    if (failed == ELOOP || failed == EXDEV) {
        if (rule->access == CB_ACCESS_WRITE) {
            cb_fail(error, CELLBLOCK_ERROR_POLICY, 0,
                    "%s leads through a symbolic link inside the workspace, which code in the cell could have planted",
                    rule->path);
            return cb_error_hint(error, "name the place that the link leads to");
        }
        if (protect_behind_link(resolver, path, rule, error) < 0)
            return -1;
    } else if (failed == ENOTDIR) {
        return protect_file_on_the_way(resolver, relative, error);
    } else if (failed && failed != ENOENT) {
        bool denied = failed == ENOSYS || failed == EPERM; /* the call itself, by an old kernel or an outer filter */
        cb_fail(error, denied ? CELLBLOCK_ERROR_REFUSED : CELLBLOCK_ERROR_SYSTEM, failed,
                "looking at %s in the workspace (openat2)", rule->path);
        if (!denied)
            return -1;
        cb_error_layer(error, "openat2");
        return cb_error_hint(error, "a filter around this process hides the call, as in another cell: run cellblock "
                                    "outside of it");
    }
    if (failed && scratch)
        return rule_missing(rule, path, failed, error);
    if (failed == ENOENT && rule->when != CB_WHEN_ALWAYS)
        return rule->when == CB_WHEN_SWEPT ? add_swept(resolver, rule, path, error) : 0;
    if (failed && rule->access == CB_ACCESS_WRITE && !rule->optional)
        return cb_fail(error, CELLBLOCK_ERROR_POLICY, failed, "%s", rule->path);
    rule->real = strdup(path);
    if (!rule->real)
        return cb_fail_memory(error);
    return failed ? 0 : add_seen(resolver, path, cb_steal_fd(&fd), NULL, error);
}

static bool has_dots(const char *path)
{
    for (const char *at = strstr(path, "/.."); at; at = strstr(at + 1, "/.."))
        if (at[3] == '\0' || at[3] == '/')
            return true;
    return false;
}

static int resolve_rule(struct resolver *resolver, struct cb_file_rule *rule, cellblock_error **error)
{
    if (rule->real)
        return 0;
    cb_autofree char *path = spell_out(resolver->context, rule->path, resolver->out->workspace, error);
    if (!path)
        return -1;
    /* With ".." in it the spelling says nothing about the place: only walking does. */
    bool dots = has_dots(path);
    if (!dots && cb_path_within(path, resolver->out->workspace))
        return resolve_in_workspace(resolver, rule, path, error);
    cb_autowalk struct cb_walk walk = CB_WALK_INIT;
    int missing;
    if (cb_walk_path(path, &walk, &missing, error) < 0)
        return -1;
    for (size_t i = 0; i < walk.link_count; i++) {
        if (cb_path_within(walk.links[i].path, resolver->out->workspace)) {
            cb_fail(error, CELLBLOCK_ERROR_POLICY, 0,
                    "%s leads through the symbolic link %s inside the workspace, which "
                    "code in the cell could have planted",
                    path, walk.links[i].path);
            return cb_error_hint(error, "name the place that the link leads to: %s", walk.path);
        }
        if (walk.fd >= 0 && rule->access != CB_ACCESS_NONE && add_link(resolver, &walk.links[i], error) < 0)
            return -1;
    }
    if (walk.fd < 0 && dots)
        return fail_rule(rule, missing, error, "%s: spell it without \"..\"", path);
    if (walk.fd < 0)
        return rule_missing(rule, path, missing, error);
    if (strcmp(walk.path, "/") == 0)
        return fail_rule(rule, 0, error, "a rule for / is too wide: name the directories");
    if (cb_path_within(walk.path, "/proc") || cb_path_within(walk.path, "/dev"))
        return fail_rule(rule, 0, error, "%s: a cell has its own /proc and /dev", path);
    rule->real = strdup(walk.path);
    if (!rule->real)
        return cb_fail_memory(error);
    return add_seen(resolver, rule->real, cb_steal_fd(&walk.fd), &walk, error);
}

/* ---- Programs ---- */

static int grant_program(void *data, const char *path, const char *program, cellblock_error **error)
{
    struct resolver *resolver = data;
    struct cb_file_decision now = cb_decide_file(resolver->out->policy, path);
    if (now.access != CB_ACCESS_NONE || now.rule)
        return 0; /* readable already, or hidden on purpose */
    cb_autowalk struct cb_walk walk = CB_WALK_INIT;
    int missing;
    if (cb_walk_path(path, &walk, &missing, error) < 0)
        return -1;
    if (walk.fd < 0)
        return 0;
    if (strcmp(walk.path, path) != 0) /* a link (lib64 of a virtual environment): it is repeated, not followed */
        return walk.link_count == 1 && !cb_path_within(path, resolver->out->workspace)
                   ? add_link(resolver, &walk.links[0], error)
                   : 0;
    cb_autofree char *why = cb_format("the installation of %s", program);
    if (!why)
        return cb_fail_memory(error);
    if (add_rule(resolver, path, CB_ACCESS_READ, false, why, "programs", error) < 0)
        return -1;
    return add_seen(resolver, path, cb_steal_fd(&walk.fd), &walk, error);
}

static bool program_readable(void *data, const char *path)
{
    const struct resolver *resolver = data;
    if (cb_decide_file(resolver->out->policy, path).access != CB_ACCESS_NONE)
        return true;
    /* Spelled through a link that the cell has as well: /bin for /usr/bin. */
    for (size_t i = 0; i < resolver->out->link_count; i++)
        if (cb_path_within(path, resolver->out->links[i].path))
            return true;
    return false;
}

static bool program_writable(void *data, const char *path)
{
    const struct resolver *resolver = data;
    return cb_decide_file(resolver->out->policy, path).access == CB_ACCESS_WRITE;
}

static bool holds_writable(void *data, const char *path)
{
    const struct resolver *resolver = data;
    const struct cb_layer *layer = &resolver->out->policy->layers[0];
    for (size_t d = 0; d < layer->count; d++)
        for (size_t i = 0; i < layer->documents[d]->file_count; i++) {
            const struct cb_file_rule *rule = &layer->documents[d]->files[i];
            if (rule->real && rule->access == CB_ACCESS_WRITE && cb_path_within(rule->real, path))
                return true;
        }
    return false;
}

static int link_program(void *data, const struct cb_link *link, cellblock_error **error)
{
    struct resolver *resolver = data;
    if (program_writable(resolver, link->path))
        return 0; /* it is there already */
    return add_link(resolver, link, error);
}

static int resolve_programs(struct resolver *resolver, cellblock_error **error)
{
    struct cb_program_finder finder = {
        .context = resolver->context,
        .readable = program_readable,
        .writable = program_writable,
        .holds_writable = holds_writable,
        .grant = grant_program,
        .link = link_program,
        .data = resolver,
    };
    const struct cb_layer *layer = &resolver->out->policy->layers[0];
    for (size_t d = 0; d < layer->count; d++)
        for (size_t i = 0; i < layer->documents[d]->programs.count; i++)
            if (cb_program_find(&finder, layer->documents[d]->programs.items[i].name, error) < 0)
                return -1;
    return resolver->context->argv && resolver->context->argv[0]
               ? cb_program_find(&finder, resolver->context->argv[0], error)
               : 0;
}

/* ---- Places: where the decision changes ---- */

static struct cb_file_decision decide_around(const cellblock_policy *policy, const char *path)
{
    char parent[PATH_MAX];
    const char *slash = strrchr(path, '/');
    size_t length = slash == path ? 1 : (size_t)(slash - path);
    if (length >= sizeof parent)
        return (struct cb_file_decision){.access = CB_ACCESS_NONE};
    memcpy(parent, path, length);
    parent[length] = '\0';
    return cb_decide_file(policy, parent);
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const struct cb_place *)a)->path, ((const struct cb_place *)b)->path);
}

/* A protected file with a second name in something writable could be changed, or read, through that name. */
static int check_other_names(const cellblock_policy *policy, const struct cb_place *place, enum cb_access access,
                             cellblock_error **error)
{
    struct stat found;
    if (place->directory || access == CB_ACCESS_WRITE || decide_around(policy, place->path).access != CB_ACCESS_WRITE)
        return 0;
    if (fstat(place->fd, &found) < 0)
        return cb_fail_errno(error, "looking at %s", place->path);
    if (found.st_nlink < 2)
        return 0;
    cb_fail(error, CELLBLOCK_ERROR_POLICY, 0,
            "%s has a second name (a hard link), through which the code could get at it", place->path);
    return cb_error_hint(error, "make it a file of its own: cp -p '%s' '%s.new' && mv '%s.new' '%s'", place->path,
                         place->path, place->path, place->path);
}

static int choose_places(struct resolver *resolver, cellblock_error **error)
{
    struct cb_resolved *out = resolver->out;
    qsort(resolver->seen, resolver->seen_count, sizeof *resolver->seen, by_path);
    for (size_t i = 0; i < resolver->seen_count; i++) {
        struct cb_place *seen = &resolver->seen[i];
        if (i > 0 && strcmp(seen->path, seen[-1].path) == 0) {
            if (seen->device != seen[-1].device || seen->inode != seen[-1].inode)
                return cb_fail(error, CELLBLOCK_ERROR_SYSTEM, 0, "%s changed while it was looked at", seen->path);
            continue;
        }
        struct cb_file_decision decision = cb_decide_file(out->policy, seen->path);
        if (decision.access == decide_around(out->policy, seen->path).access)
            continue;
        if (check_other_names(out->policy, seen, decision.access, error) < 0)
            return -1;
        struct cb_place *place = cb_array_push(&out->places, &out->place_count);
        if (!place)
            return cb_fail_memory(error);
        place->path = strdup(seen->path);
        place->fd = cb_steal_fd(&seen->fd);
        place->device = seen->device;
        place->inode = seen->inode;
        place->directory = seen->directory;
        place->access = decision.access;
        place->rule = decision.rule;
        place->callers_own = decision.rule && !cb_has_prefix(decision.rule->origin.document, "profile ");
        if (!place->path)
            return cb_fail_memory(error);
    }
    return 0;
}

static bool was_seen(const struct resolver *resolver, const char *path)
{
    struct cb_place key = {.path = (char *)path};
    return resolver->seen_count > 0 &&
           bsearch(&key, resolver->seen, resolver->seen_count, sizeof *resolver->seen, by_path);
}

/* Hiding what is not there keeps it from being made, inside something writable. Elsewhere it is a slip: a typo here
 * would leave the thing that was meant in plain sight. */
static int check_hidden(const cellblock_policy *policy, const struct cb_file_rule *rule, cellblock_error **error)
{
    if (rule->access != CB_ACCESS_NONE || rule->optional || cb_has_prefix(rule->origin.document, "profile ") ||
        decide_around(policy, rule->real).access == CB_ACCESS_WRITE)
        return 0;
    fail_rule(rule, ENOENT, error, "nothing to hide at %s", rule->real);
    return cb_error_hint(error, is_option(rule) ? "check the spelling, or leave the option out: it is not there anyway"
                                                : "check the spelling, or mark the rule \"optional\": true");
}

static int choose_absents(struct resolver *resolver, cellblock_error **error)
{
    const cellblock_policy *policy = resolver->out->policy;
    for (size_t l = 0; l < policy->count; l++)
        for (size_t d = 0; d < policy->layers[l].count; d++)
            for (size_t i = 0; i < policy->layers[l].documents[d]->file_count; i++) {
                const struct cb_file_rule *rule = &policy->layers[l].documents[d]->files[i];
                if (!rule->real || was_seen(resolver, rule->real))
                    continue;
                struct cb_file_decision decision = cb_decide_file(policy, rule->real);
                if (check_hidden(policy, rule, error) < 0)
                    return -1;
                if (decision.rule == rule && decision.access < CB_ACCESS_WRITE &&
                    decide_around(policy, rule->real).access == CB_ACCESS_WRITE &&
                    add_absent(resolver, rule->real, rule, error) < 0)
                    return -1;
            }
    return 0;
}

/* A link inside something writable may have been planted by an earlier run; one that a grant depends on is refused. */
static int check_links(const struct resolver *resolver, cellblock_error **error)
{
    const struct cb_resolved *out = resolver->out;
    for (size_t i = 0; i < out->link_count; i++)
        if (cb_decide_file(out->policy, out->links[i].path).access == CB_ACCESS_WRITE) {
            cb_fail(error, CELLBLOCK_ERROR_POLICY, 0,
                    "a rule leads through the symbolic link %s in a writable directory, "
                    "which code in the cell could have planted",
                    out->links[i].path);
            return cb_error_hint(error, "name the place that the link leads to");
        }
    return 0;
}

int cb_resolve(const cellblock_policy *policy, const struct cb_context *context, struct cb_resolved **resolved,
               cellblock_error **error)
{
    struct resolver resolver __attribute__((cleanup(resolver_end))) = {.context = context, .workspace_fd = -1};
    resolver.out = calloc(1, sizeof *resolver.out);
    if (!resolver.out)
        return cb_fail_memory(error);
    if (cb_policy_copy(policy, &resolver.out->policy, error) < 0)
        return -1;
    struct cb_layer *first = &resolver.out->policy->layers[0];
    struct cb_document *added = calloc(1, sizeof *added);
    if (!added || !(added->name = strdup("workspace"))) {
        free(added);
        return cb_fail_memory(error);
    }
    if (!cb_array_push(&first->documents, &first->count)) {
        cb_document_free(added);
        return cb_fail_memory(error);
    }
    /* At the bottom: what a person writes about the same path ("--read .") wins over it. */
    memmove(first->documents + 1, first->documents, (first->count - 1) * sizeof *first->documents);
    first->documents[0] = resolver.added = added;
    if (resolve_workspace(&resolver, error) < 0)
        return -1;
    for (size_t l = 0; l < resolver.out->policy->count; l++)
        for (size_t d = 0; d < resolver.out->policy->layers[l].count; d++) {
            struct cb_document *document = resolver.out->policy->layers[l].documents[d];
            for (size_t i = 0; document != added && i < document->file_count; i++)
                if (resolve_rule(&resolver, &document->files[i], error) < 0)
                    return -1;
        }
    if (resolve_programs(&resolver, error) < 0 || choose_places(&resolver, error) < 0 ||
        choose_absents(&resolver, error) < 0 || check_links(&resolver, error) < 0 ||
        cb_resolve_sockets(resolver.out->policy, context, &resolver.out->sockets, &resolver.out->socket_count,
                           error) < 0)
        return -1;
    *resolved = cb_steal(resolver.out);
    return 0;
}

bool cb_resolved_shows(const struct cb_resolved *resolved, const char *path)
{
    if (cb_decide_file(resolved->policy, path).access != CB_ACCESS_NONE)
        return true;
    for (size_t i = 0; i < resolved->place_count; i++)
        if (resolved->places[i].access != CB_ACCESS_NONE && cb_path_within(resolved->places[i].path, path))
            return true;
    for (size_t i = 0; i < resolved->link_count; i++)
        if (cb_path_within(resolved->links[i].path, path) || cb_path_within(path, resolved->links[i].path))
            return true;
    return false;
}
