/* See compose.h. A profile is known by the name of its document, "profile NAME". */
#include "policy/compose.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/text.h"
#include "policy/schema.h"

#include <string.h>

#define PROFILE_PREFIX "profile "

/* The profiles that are being loaded right now, innermost first: a name that comes up again is a cycle. */
struct chain {
    const char *profile;
    const struct chain *outer;
};

struct composer {
    struct cb_layer *layer;    /* what is there already */
    struct cb_layer added;     /* what goes on top once all of it is read */
    struct cb_document *named; /* a profile that was in the layer only by default, and is now asked for */
    cb_profile_lookup *lookup;
    cellblock_error **error;
};

void cb_layer_free(struct cb_layer *layer)
{
    for (size_t i = 0; i < layer->count; i++)
        cb_document_free(layer->documents[i]);
    free(layer->documents);
    *layer = (struct cb_layer){0};
}

static struct cb_document *find_profile(const struct cb_layer *layer, const char *profile)
{
    for (size_t i = 0; i < layer->count; i++) {
        struct cb_document *document = layer->documents[i];
        if (!document->text && strcmp(document->name + strlen(PROFILE_PREFIX), profile) == 0)
            return document;
    }
    return NULL;
}

static int fail_unknown(const struct composer *composer, const char *profile, const struct cb_origin *origin)
{
    const char *nearest = NULL;
    unsigned distance = cb_nearest_start(profile);
    cb_autotext struct cb_text known = {0};
    for (const char *const *name = cb_profile_names(); *name; name++) {
        cb_nearest(profile, *name, &nearest, &distance);
        cb_text_addf(&known, "%s%s", known.length ? ", " : "", *name);
    }
    cb_autofree char *shown = cb_printable(profile, strnlen(profile, 80));
    cb_autofree char *place =
        !origin            ? strdup("")
        : origin->line > 0 ? cb_format("%s:%d:%d: ", origin->document, origin->line, origin->column)
                           : cb_format("%s: ", origin->document);
    cb_autofree char *guess = nearest ? cb_format(", did you mean \"%s\"?", nearest) : strdup("");
    if (!shown || !place || !guess || known.failed)
        return cb_fail_memory(composer->error);
    cb_fail(composer->error, CELLBLOCK_ERROR_POLICY, 0, "%sthere is no profile \"%s\"%s", place, shown, guess);
    return cb_error_hint(composer->error, "the profiles are: %s", known.data);
}

static int add_profile(struct composer *composer, const char *profile, const struct cb_origin *origin, bool implicit,
                       const struct chain *outer);

static int push(struct composer *composer, struct cb_document *document)
{
    struct cb_document **slot = cb_array_push(&composer->added.documents, &composer->added.count);
    if (!slot) {
        cb_document_free(document);
        return cb_fail_memory(composer->error);
    }
    *slot = document;
    return 0;
}

/* Parses one document, loads what it extends, and puts it on top. */
static int add_document(struct composer *composer, const char *text, size_t length, const char *name,
                        enum cb_compose_base base, bool profile, bool implicit, const struct chain *chain)
{
    struct cb_document *document;
    struct cb_names extends;
    if (cb_document_parse(text, length, name, &document, &extends, composer->error) < 0)
        return -1;
    document->implicit = implicit;
    if (profile) {
        free(document->text);
        document->text = NULL;
        document->text_length = 0;
    }
    int result = 0;
    if (!extends.given && base == CB_COMPOSE_IMPLICIT_BASE)
        result = add_profile(composer, "base", NULL, true, chain);
    for (size_t i = 0; i < extends.count && result == 0; i++)
        result = add_profile(composer, extends.items[i].name, &extends.items[i].origin, implicit, chain);
    cb_names_free(&extends);
    if (result < 0) {
        cb_document_free(document);
        return -1;
    }
    return push(composer, document);
}

static int add_profile(struct composer *composer, const char *profile, const struct cb_origin *origin, bool implicit,
                       const struct chain *outer)
{
    for (const struct chain *link = outer; link; link = link->outer)
        if (strcmp(link->profile, profile) == 0)
            return cb_fail(composer->error, CELLBLOCK_ERROR_POLICY, 0, "%s:%d:%d: the profile \"%s\" extends itself",
                           origin->document, origin->line, origin->column, profile);
    struct cb_document *there = find_profile(&composer->added, profile);
    if (there) {
        there->implicit = there->implicit && implicit;
        return 0;
    }
    there = find_profile(composer->layer, profile);
    if (there) {
        if (there->implicit && !implicit)
            composer->named = there;
        return 0;
    }
    size_t length;
    const char *text = composer->lookup(profile, &length);
    if (!text)
        return fail_unknown(composer, profile, origin);
    cb_autofree char *name = cb_format(PROFILE_PREFIX "%s", profile);
    if (!name)
        return cb_fail_memory(composer->error);
    struct chain chain = {profile, outer};
    return add_document(composer, text, length, name, CB_COMPOSE_IMPLICIT_BASE, true, implicit, &chain);
}

/* Moves what was added into the layer. */
static int finish(struct composer *composer)
{
    size_t before = composer->layer->count;
    for (size_t i = 0; i < composer->added.count; i++) {
        struct cb_document **slot = cb_array_push(&composer->layer->documents, &composer->layer->count);
        if (!slot) {
            composer->layer->count = before;
            return cb_fail_memory(composer->error);
        }
        *slot = composer->added.documents[i];
    }
    composer->added.count = 0;
    if (composer->named)
        composer->named->implicit = false;
    return 0;
}

int cb_layer_add(struct cb_layer *layer, const char *text, size_t length, const char *name, enum cb_compose_base base,
                 cb_profile_lookup *lookup, cellblock_error **error)
{
    struct composer composer = {.layer = layer, .lookup = lookup, .error = error};
    int result = add_document(&composer, text, length, name, base, false, false, NULL);
    if (result == 0)
        result = finish(&composer);
    cb_layer_free(&composer.added);
    return result;
}

int cb_layer_add_profile(struct cb_layer *layer, const char *profile, cb_profile_lookup *lookup,
                         cellblock_error **error)
{
    struct composer composer = {.layer = layer, .lookup = lookup, .error = error};
    int result = add_profile(&composer, profile, NULL, false, NULL);
    if (result == 0)
        result = finish(&composer);
    cb_layer_free(&composer.added);
    return result;
}
