/* Deep copies. Origins of a copy point to the name of the copy, so that it lives on its own. */
#include "base/cleanup.h"
#include "base/error.h"
#include "policy/compose.h"

#include <string.h>

static bool copy_string(char **slot, const char *text)
{
    *slot = text ? strdup(text) : NULL;
    return !text || *slot;
}

/* Room for `count` items in a zeroed array that cb_array_push() can go on with: a power of two. */
static void *room_for(size_t count, size_t size)
{
    size_t room = 1;
    while (room < count)
        room *= 2;
    return calloc(room, size);
}

static bool copy_names(struct cb_names *copy, const struct cb_names *names, const char *document)
{
    copy->given = names->given;
    if (names->count == 0)
        return true;
    copy->items = room_for(names->count, sizeof *copy->items);
    if (!copy->items)
        return false;
    copy->count = names->count;
    bool fine = true;
    for (size_t i = 0; i < names->count; i++) {
        struct cb_named *item = &copy->items[i];
        item->origin = names->items[i].origin;
        item->origin.document = document;
        fine =
            copy_string(&item->name, names->items[i].name) && copy_string(&item->value, names->items[i].value) && fine;
    }
    return fine;
}

static bool copy_files(struct cb_document *copy, const struct cb_document *document)
{
    if (document->file_count == 0)
        return true;
    copy->files = room_for(document->file_count, sizeof *copy->files);
    if (!copy->files)
        return false;
    copy->file_count = document->file_count;
    bool fine = true;
    for (size_t i = 0; i < document->file_count; i++) {
        const struct cb_file_rule *from = &document->files[i];
        struct cb_file_rule *to = &copy->files[i];
        *to = *from;
        to->origin.document = copy->name;
        to->path = to->why = to->real = NULL;
        fine = copy_string(&to->path, from->path) && copy_string(&to->why, from->why) &&
               copy_string(&to->real, from->real) && fine;
    }
    return fine;
}

static bool copy_network(struct cb_document *copy, const struct cb_document *document)
{
    if (document->network_count == 0)
        return true;
    copy->network = room_for(document->network_count, sizeof *copy->network);
    if (!copy->network)
        return false;
    copy->network_count = document->network_count;
    bool fine = true;
    for (size_t i = 0; i < document->network_count; i++) {
        const struct cb_net_rule *from = &document->network[i];
        struct cb_net_rule *to = &copy->network[i];
        *to = *from;
        to->origin.document = copy->name;
        to->host = to->why = NULL;
        to->ports = room_for(from->port_count, sizeof *to->ports);
        fine = copy_string(&to->host, from->host) && copy_string(&to->why, from->why) && to->ports && fine;
        if (to->ports)
            memcpy(to->ports, from->ports, from->port_count * sizeof *to->ports);
    }
    return fine;
}

static bool copy_sockets(struct cb_document *copy, const struct cb_document *document)
{
    if (document->socket_count == 0)
        return true;
    copy->sockets = room_for(document->socket_count, sizeof *copy->sockets);
    if (!copy->sockets)
        return false;
    copy->socket_count = document->socket_count;
    bool fine = true;
    for (size_t i = 0; i < document->socket_count; i++) {
        const struct cb_socket_rule *from = &document->sockets[i];
        struct cb_socket_rule *to = &copy->sockets[i];
        to->origin = from->origin;
        to->origin.document = copy->name;
        fine = copy_string(&to->path, from->path) && copy_string(&to->why, from->why) &&
               copy_string(&to->real, from->real) && fine;
    }
    return fine;
}

static bool copy_publish(struct cb_document *copy, const struct cb_document *document)
{
    if (document->publish_count == 0)
        return true;
    copy->publish = room_for(document->publish_count, sizeof *copy->publish);
    if (!copy->publish)
        return false;
    copy->publish_count = document->publish_count;
    bool fine = true;
    for (size_t i = 0; i < document->publish_count; i++) {
        copy->publish[i] = document->publish[i];
        copy->publish[i].origin.document = copy->name;
        fine = copy_string(&copy->publish[i].why, document->publish[i].why) && fine;
    }
    return fine;
}

int cb_document_copy(const struct cb_document *document, struct cb_document **copy, cellblock_error **error)
{
    struct cb_document *made = calloc(1, sizeof *made);
    if (!made)
        return cb_fail_memory(error);
    *made = *document;
    made->text = made->workspace_path = NULL;
    made->files = NULL;
    made->file_count = 0;
    made->network = NULL;
    made->sockets = NULL;
    made->publish = NULL;
    made->network_count = made->socket_count = made->publish_count = 0;
    const struct {
        struct cb_names *to;
        const struct cb_names *from;
    } lists[] = {
        {&made->programs, &document->programs},
        {&made->env_pass, &document->env_pass},
        {&made->env_set, &document->env_set},
        {&made->syscall_deny, &document->syscall_deny},
        {&made->syscall_allow, &document->syscall_allow},
        {&made->accept_weaker, &document->accept_weaker},
    };
    const size_t count = sizeof lists / sizeof *lists;
    for (size_t i = 0; i < count; i++)
        *lists[i].to = (struct cb_names){0};

    bool fine = copy_string(&made->name, document->name) && copy_string(&made->text, document->text) &&
                copy_string(&made->workspace_path, document->workspace_path) && copy_files(made, document) &&
                copy_network(made, document) && copy_sockets(made, document) && copy_publish(made, document);
    for (size_t i = 0; i < count && fine; i++)
        fine = copy_names(lists[i].to, lists[i].from, made->name);
    if (!fine) {
        cb_document_free(made);
        return cb_fail_memory(error);
    }
    made->workspace_origin.document = made->syscalls_origin.document = made->isolation_origin.document = made->name;
    for (int i = 0; i < CB_LIMIT_COUNT; i++)
        made->limit_origin[i].document = made->name;
    *copy = made;
    return 0;
}
