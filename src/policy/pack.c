/* See pack.h. What "extends" named stands in the list as documents of its own, so it is not followed again. */
#include "policy/pack.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/error.h"

#include <string.h>

static const char profile_prefix[] = "profile ";

void cb_policy_pack(const cellblock_policy *policy, struct cb_text *frame)
{
    cb_frame_number(frame, policy->count);
    for (size_t l = 0; l < policy->count; l++) {
        cb_frame_number(frame, policy->layers[l].count);
        for (size_t d = 0; d < policy->layers[l].count; d++) {
            const struct cb_document *document = policy->layers[l].documents[d];
            cb_frame_string(frame, document->name);
            cb_frame_bytes(frame, document->text ? document->text : "", document->text ? document->text_length : 0);
        }
    }
}

static int unpack_document(struct cb_frame_reader *reader, struct cb_layer *layer, cellblock_error **error)
{
    size_t length;
    const char *name = cb_read_string(reader);
    const char *text = cb_read_bytes(reader, &length);
    if (!name || !text)
        return cb_fail(error, CELLBLOCK_ERROR_SYSTEM, EPROTO, "reading a policy from the caller");
    if (strncmp(name, profile_prefix, strlen(profile_prefix)) == 0)
        text = cb_profile_text(name + strlen(profile_prefix), &length);
    struct cb_names extends = {0};
    struct cb_document **slot = cb_array_push(&layer->documents, &layer->count);
    if (!slot)
        return cb_fail_memory(error);
    int failed = text ? cb_document_parse(text, length, name, slot, &extends, error)
                      : cb_fail(error, CELLBLOCK_ERROR_SYSTEM, 0, "%s is unknown to the helper", name);
    cb_names_free(&extends);
    if (failed)
        layer->count--;
    return failed;
}

int cb_policy_unpack(struct cb_frame_reader *reader, cellblock_policy **policy, cellblock_error **error)
{
    cellblock_policy *made = calloc(1, sizeof *made);
    if (!made)
        return cb_fail_memory(error);
    uint64_t layers = cb_read_number(reader);
    int failed = 0;
    for (uint64_t l = 0; l < layers && !reader->failed && !failed; l++) {
        struct cb_layer *layer = cb_array_push(&made->layers, &made->count);
        if (!layer)
            failed = cb_fail_memory(error);
        uint64_t documents = failed ? 0 : cb_read_number(reader);
        for (uint64_t d = 0; d < documents && !failed; d++)
            failed = unpack_document(reader, layer, error);
    }
    if (!failed && (reader->failed || made->count == 0))
        failed = cb_fail(error, CELLBLOCK_ERROR_SYSTEM, EPROTO, "reading a policy from the caller");
    if (failed)
        cellblock_policy_free(made);
    else
        *policy = made;
    return failed;
}
