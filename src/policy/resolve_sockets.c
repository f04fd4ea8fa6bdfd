/* Unix sockets that rules name: found once, by descriptor. Runs in the supervisor with the caller's own privileges,
 * after the paths of files are resolved. Who connects does so through the descriptor: whatever is put at that path
 * later is another socket. */
#include "policy/resolve.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/text.h"
#include "policy/network.h"
#include "policy/walk.h"

#include <string.h>
#include <sys/stat.h>

void cb_socket_places_free(struct cb_socket_place *places, size_t count)
{
    for (size_t i = 0; i < count; i++)
        cb_close_cleanup(&places[i].fd);
    free(places);
}

/* A link inside something writable may have been planted by an earlier run. */
static int check_links(const cellblock_policy *policy, const struct cb_walk *walk, cellblock_error **error)
{
    for (size_t i = 0; i < walk->link_count; i++)
        if (cb_decide_file(policy, walk->links[i].path).access == CB_ACCESS_WRITE) {
            cb_fail(error, CELLBLOCK_ERROR_POLICY, 0,
                    "a socket is named through the symbolic link %s in a writable directory, which code in the cell "
                    "could have planted",
                    walk->links[i].path);
            return cb_error_hint(error, "name the place that the link leads to");
        }
    return 0;
}

static int refuse(const struct cb_socket_rule *rule, int errnum, const char *what, cellblock_error **error)
{
    cb_autofree char *origin = cb_origin_text(&rule->origin);
    return cb_fail(error, CELLBLOCK_ERROR_POLICY, errnum, "%s: the socket %s%s", origin ? origin : "", rule->path, what);
}

/* A rule of a further layer for something that is not there says just that: nothing there is allowed. */
static int resolve(const cellblock_policy *policy, const struct cb_context *context, struct cb_socket_rule *rule,
                   bool grants, int *fd, cellblock_error **error)
{
    bool home = rule->path[0] == '~';
    if (home && !context->home)
        return grants ? refuse(rule, 0, ": there is no home directory (HOME is not set)", error) : 0;
    cb_autofree char *path = home ? cb_format("%s%s", context->home, rule->path + 1) : strdup(rule->path);
    if (!path)
        return cb_fail_memory(error);
    cb_autowalk struct cb_walk walk = CB_WALK_INIT;
    int missing;
    if (cb_walk_path(path, &walk, &missing, error) < 0)
        return -1;
    if (walk.fd < 0 || !S_ISSOCK(walk.mode)) {
        if (!grants)
            return 0;
        return walk.fd < 0 ? refuse(rule, missing, "", error) : refuse(rule, 0, " is not a unix socket", error);
    }
    if (check_links(policy, &walk, error) < 0)
        return -1;
    free(rule->real);
    rule->real = cb_steal(walk.path);
    *fd = cb_steal_fd(&walk.fd);
    return 0;
}

int cb_resolve_sockets(cellblock_policy *policy, const struct cb_context *context, struct cb_socket_place **places,
                       size_t *count, cellblock_error **error)
{
    struct cb_socket_place *made = NULL;
    size_t made_count = 0;
    int failed = 0;
    for (size_t l = 0; l < policy->count && !failed; l++)
        for (size_t d = 0; d < policy->layers[l].count && !failed; d++) {
            struct cb_document *document = policy->layers[l].documents[d];
            for (size_t i = 0; i < document->socket_count && !failed; i++) {
                cb_autofd int fd = -1;
                failed = resolve(policy, context, &document->sockets[i], l == 0, &fd, error);
                struct cb_socket_place *place = fd >= 0 && l == 0 ? cb_array_push(&made, &made_count) : NULL;
                if (place)
                    *place = (struct cb_socket_place){cb_steal_fd(&fd), &document->sockets[i]};
                else if (fd >= 0 && l == 0)
                    failed = cb_fail_memory(error);
            }
        }
    if (failed) {
        cb_socket_places_free(made, made_count);
        return -1;
    }
    /* Only now does every layer have its say. */
    size_t kept = 0;
    for (size_t i = 0; i < made_count; i++) {
        if (cb_decide_socket(policy, made[i].rule->real).rule == made[i].rule)
            made[kept++] = made[i];
        else
            cb_close_cleanup(&made[i].fd);
    }
    *places = made;
    *count = kept;
    return 0;
}
