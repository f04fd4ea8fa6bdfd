/* The public functions that make policies: load, add, tighten, free; and the deep copy. */
#include "policy/policy.h"
#include "policy/syscalls.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/text.h"
#include "policy/compose.h"
#include "policy/jsonc.h"
#include "policy/network.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

static void policy_cleanup(cellblock_policy **policy)
{
    cellblock_policy_free(*policy);
}
#define cb_autopolicy __attribute__((cleanup(policy_cleanup)))

static cellblock_policy *policy_with_layer(void)
{
    cb_autopolicy cellblock_policy *policy = calloc(1, sizeof *policy);
    if (!policy || !cb_array_push(&policy->layers, &policy->count))
        return NULL;
    return cb_steal(policy);
}

int cellblock_policy_new(cellblock_policy **policy, cellblock_error **error)
{
    cb_autopolicy cellblock_policy *made = policy_with_layer();
    if (!made)
        return cb_fail_memory(error);
    if (cb_layer_add_profile(&made->layers[0], "base", cb_profile_text, error) < 0)
        return -1;
    *policy = cb_steal(made);
    return 0;
}

int cellblock_policy_load_text(const char *text, size_t length, const char *name, cellblock_policy **policy,
                               cellblock_error **error)
{
    cb_autopolicy cellblock_policy *made = policy_with_layer();
    if (!made)
        return cb_fail_memory(error);
    if (cb_layer_add(&made->layers[0], text, length, name, CB_COMPOSE_IMPLICIT_BASE, cb_profile_text, error) < 0 ||
        cb_policy_check_syscalls(made, error) < 0)
        return -1;
    *policy = cb_steal(made);
    return 0;
}

/* Reads until the end, or until more than a policy may have. */
static int read_all(int fd, const char *shown, char *text, size_t room, size_t *length, cellblock_error **error)
{
    *length = 0;
    while (*length < room) {
        ssize_t got = read(fd, text + *length, room - *length);
        if (got == 0)
            return 0;
        if (got > 0)
            *length += (size_t)got;
        else if (errno != EINTR)
            return cb_fail_errno(error, "can't read the policy %s", shown);
    }
    return 0;
}

int cellblock_policy_load_file(const char *path, cellblock_policy **policy, cellblock_error **error)
{
    cb_autofree char *shown = cb_printable(path, strlen(path));
    if (!shown)
        return cb_fail_memory(error);
    /* O_NONBLOCK: opening a FIFO that somebody planted must not hang. */
    cb_autofd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct stat status;
    if (fd < 0 || fstat(fd, &status) < 0)
        return cb_fail_errno(error, "can't open the policy %s", shown);
    if (!S_ISREG(status.st_mode))
        return cb_fail(error, CELLBLOCK_ERROR_POLICY, 0, "the policy %s is not a regular file", shown);
    size_t room = CB_JSONC_MAX_LENGTH + 1, length;
    if (status.st_size >= 0 && (size_t)status.st_size < CB_JSONC_MAX_LENGTH)
        room = (size_t)status.st_size + 1;
    cb_autofree char *text = malloc(room);
    if (!text)
        return cb_fail_memory(error);
    if (read_all(fd, shown, text, room, &length, error) < 0)
        return -1;
    if (length == room && room <= CB_JSONC_MAX_LENGTH)
        return cb_fail(error, CELLBLOCK_ERROR_POLICY, 0, "the policy %s grew while it was read", shown);
    /* What begins so is a name of ours, of a profile or an option. */
    bool ours = cb_has_prefix(path, "profile ") || cb_has_prefix(path, "--");
    cb_autofree char *name = cb_format("%s%s", ours ? "./" : "", path);
    return name ? cellblock_policy_load_text(text, length, name, policy, error) : cb_fail_memory(error);
}

int cellblock_policy_add_text(cellblock_policy *policy, const char *text, size_t length, const char *name,
                              cellblock_error **error)
{
    if (cb_layer_add(&policy->layers[0], text, length, name, CB_COMPOSE_NO_BASE, cb_profile_text, error) < 0)
        return -1;
    return cb_policy_check_syscalls(policy, error);
}

/* The topmost document of that name in the first layer that is no profile; `count` if there is none. */
static size_t find_document(const struct cb_layer *layer, const char *name)
{
    for (size_t i = layer->count; i-- > 0;)
        if (layer->documents[i]->text && strcmp(layer->documents[i]->name, name) == 0)
            return i;
    return layer->count;
}

static void drop_document(struct cb_layer *layer, size_t index)
{
    cb_document_free(layer->documents[index]);
    layer->count--;
    memmove(layer->documents + index, layer->documents + index + 1,
            (layer->count - index) * sizeof *layer->documents);
}

int cellblock_policy_remove(cellblock_policy *policy, const char *name, cellblock_error **error)
{
    struct cb_layer *layer = &policy->layers[0];
    cb_autofree char *shown = cb_printable(name, strlen(name)); /* as documents keep it */
    if (!shown)
        return cb_fail_memory(error);
    size_t index = find_document(layer, shown);
    if (index == layer->count) {
        cb_fail(error, CELLBLOCK_ERROR_USAGE, 0, "the policy has no document \"%.80s\" that could be removed", shown);
        return cb_error_hint(error, "profiles and what tightens stay; others go by the name that they were added with");
    }
    drop_document(layer, index);
    return 0;
}

/* What a document says beside the rules that can change while a cell runs; NULL for nothing. */
static const char *other_section(const struct cb_document *document)
{
    bool limits = false;
    for (int i = 0; i < CB_LIMIT_COUNT; i++)
        limits |= document->limit_given[i];
    const struct {
        bool given;
        const char *name;
    } sections[] = {
        {document->workspace_path || document->workspace_mode_given, "workspace"},
        {document->files_given, "files"},
        {document->programs.given, "programs"},
        {document->sockets_given, "sockets"},
        {document->publish_given, "publish"},
        {limits, "limits"},
        {document->env_pass.given || document->env_set.given, "env"},
        {document->syscalls_given || document->syscall_deny.given || document->syscall_allow.given, "syscalls"},
        {document->isolation_given, "isolation"},
        {document->accept_weaker.given, "accept_weaker"},
    };
    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++)
        if (sections[i].given)
            return sections[i].name;
    return NULL;
}

int cb_policy_add_rules(cellblock_policy *policy, const char *text, size_t length, const char *name,
                        cellblock_error **error)
{
    struct cb_layer *layer = &policy->layers[0];
    struct cb_document *document;
    struct cb_names extends;
    if (cb_document_parse(text, length, name, &document, &extends, error) < 0)
        return -1;
    const char *other = extends.given ? "extends" : other_section(document);
    cb_names_free(&extends);
    struct cb_document **slot = other ? NULL : cb_array_push(&layer->documents, &layer->count);
    if (slot) {
        *slot = document;
        return 0;
    }
    if (other)
        cb_fail(error, CELLBLOCK_ERROR_POLICY, 0,
                "%s: \"%s\" can't change while a cell runs: only \"network\" can",
                document->name, other);
    else
        cb_fail_memory(error);
    cb_document_free(document);
    return -1;
}

/* ---- Tightening ---- */

/* What only the first layer can say, because no answer would be stricter. Built-in profiles may carry such entries for
 * use as a first layer; in a further one they say nothing. */
static int check_tightening(const cellblock_policy *policy, const struct cb_document *document, cellblock_error **error)
{
    if (!document->text)
        return 0;
    const char *what = NULL;
    const struct cb_origin *origin = NULL;
    if (document->env_set.count > 0) {
        what = "sets variables (env.set)";
        origin = &document->env_set.items[0].origin;
    } else if (document->syscall_allow.count > 0) {
        what = "allows system calls (syscalls.allow)";
        origin = &document->syscall_allow.items[0].origin;
    } else if (document->workspace_path && strcmp(document->workspace_path, cb_decide_workspace_path(policy)) != 0) {
        what = "names another workspace (workspace.path)";
        origin = &document->workspace_origin;
    }
    if (!what)
        return 0;
    return cb_fail(error, CELLBLOCK_ERROR_POLICY, 0,
                   "%s:%d:%d: this policy %s, but it is used to tighten another one, "
                   "and so it can only take away",
                   origin->document, origin->line, origin->column, what);
}

static int check_isolation(const cellblock_policy *policy, const struct cb_document *document, cellblock_error **error)
{
    enum cb_isolation demanded = cb_decide_isolation(policy);
    if (!document->isolation_given || document->isolation == CB_ISOLATION_AUTO || demanded == CB_ISOLATION_AUTO ||
        demanded == document->isolation)
        return 0;
    return cb_fail(error, CELLBLOCK_ERROR_POLICY, 0,
                   "%s:%d:%d: this policy demands the isolation \"%s\", another one "
                   "demands \"%s\"",
                   document->isolation_origin.document, document->isolation_origin.line,
                   document->isolation_origin.column, cb_isolation_word(document->isolation),
                   cb_isolation_word(demanded));
}

/* Copies the documents that count as opinions. */
static int copy_opinions(const struct cb_layer *from, struct cb_layer *to, cellblock_error **error)
{
    for (size_t i = 0; i < from->count; i++) {
        if (from->documents[i]->implicit)
            continue;
        struct cb_document *copy;
        if (cb_document_copy(from->documents[i], &copy, error) < 0)
            return -1;
        struct cb_document **slot = cb_array_push(&to->documents, &to->count);
        if (!slot) {
            cb_document_free(copy);
            return cb_fail_memory(error);
        }
        *slot = copy;
    }
    return 0;
}

int cellblock_policy_tighten(cellblock_policy *policy, const cellblock_policy *other, cellblock_error **error)
{
    for (size_t i = 0; i < other->count; i++)
        for (size_t j = 0; j < other->layers[i].count; j++) {
            const struct cb_document *document = other->layers[i].documents[j];
            if (!document->implicit &&
                (check_tightening(policy, document, error) < 0 || check_isolation(policy, document, error) < 0))
                return -1;
        }
    size_t before = policy->count, wanted = other->count;
    for (size_t i = 0; i < wanted; i++) {
        struct cb_layer *layer = cb_array_push(&policy->layers, &policy->count);
        if (layer && copy_opinions(&other->layers[i], layer, error) == 0)
            continue;
        while (policy->count > before)
            cb_layer_free(&policy->layers[--policy->count]);
        return layer ? -1 : cb_fail_memory(error);
    }
    return 0;
}

int cb_policy_copy(const cellblock_policy *policy, cellblock_policy **copy, cellblock_error **error)
{
    cb_autopolicy cellblock_policy *made = calloc(1, sizeof *made);
    if (!made)
        return cb_fail_memory(error);
    for (size_t i = 0; i < policy->count; i++) {
        const struct cb_layer *from = &policy->layers[i];
        struct cb_layer *to = cb_array_push(&made->layers, &made->count);
        if (!to)
            return cb_fail_memory(error);
        for (size_t j = 0; j < from->count; j++) {
            struct cb_document **slot = cb_array_push(&to->documents, &to->count);
            if (!slot)
                return cb_fail_memory(error);
            if (cb_document_copy(from->documents[j], slot, error) < 0)
                return -1;
        }
    }
    *copy = cb_steal(made);
    return 0;
}

void cellblock_policy_free(cellblock_policy *policy)
{
    if (!policy)
        return;
    for (size_t i = 0; i < policy->count; i++)
        cb_layer_free(&policy->layers[i]);
    free(policy->layers);
    free(policy);
}
