/* Fuzz target: any bytes as a policy. Nothing may crash or leak; what is accepted must survive a copy, tighten itself,
 * and print as JSON; and the reader must agree with jansson on what JSON is wherever the text has no extensions. */
#include "base/cleanup.h"
#include "base/error.h"
#include "policy/jsonc.h"
#include "policy/policy.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int truth)
{
    if (!truth)
        abort();
}

static unsigned depth_of(const json_t *json)
{
    unsigned deepest = 0;
    const char *key;
    json_t *child;
    size_t index;
    json_object_foreach((json_t *)(uintptr_t)json, key, child)
    {
        unsigned depth = depth_of(child);
        deepest = depth > deepest ? depth : deepest;
    }
    json_array_foreach(json, index, child)
    {
        unsigned depth = depth_of(child);
        deepest = depth > deepest ? depth : deepest;
    }
    return deepest + (json_is_object(json) || json_is_array(json));
}

/* The two trees are the same, node by node. */
static const struct cb_json *compare(const struct cb_json *node, const json_t *json)
{
    const struct cb_json *child = node + 1;
    const char *key;
    json_t *member;
    size_t index;
    switch (node->type) {
    case CB_JSON_OBJECT:
        require(json_is_object(json) && json_object_size(json) == node->count);
        json_object_foreach((json_t *)(uintptr_t)json, key, member)
        {
            require(strcmp(key, child->key) == 0);
            child = compare(child, member);
        }
        break;
    case CB_JSON_LIST:
        require(json_is_array(json) && json_array_size(json) == node->count);
        json_array_foreach(json, index, member) child = compare(child, member);
        break;
    case CB_JSON_STRING:
        require(json_is_string(json) && strcmp(json_string_value(json), node->text) == 0);
        break;
    case CB_JSON_NUMBER:
        require(json_is_number(json));
        if (json_is_integer(json))
            require(strtoll(node->text, NULL, 10) == json_integer_value(json));
        break;
    case CB_JSON_TRUE:
        require(json_is_true(json));
        break;
    case CB_JSON_FALSE:
        require(json_is_false(json));
        break;
    case CB_JSON_NULL:
        require(json_is_null(json));
        break;
    }
    require(child == node + node->span);
    require(node->line >= 1 && node->column >= 1);
    return child;
}

/* What jansson takes, we take, and we see the same in it. Not with NUL bytes: jansson lets one pass behind a
 * number. */
static void against_jansson(const char *text, size_t length)
{
    if (memchr(text, '\0', length))
        return;
    cb_autojsonc struct cb_jsonc ours = {0};
    cellblock_error *error = NULL;
    int result = cb_jsonc_read(text, length, "fuzz", &ours, &error);
    cellblock_error_free(error);
    json_auto_t *theirs = json_loadb(text, length, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, NULL);
    if (!theirs || depth_of(theirs) > CB_JSONC_MAX_DEPTH)
        return;
    require(result == 0);
    compare(ours.nodes, theirs);
}

static void as_document(const char *text, size_t length)
{
    struct cb_document *document = NULL;
    struct cb_names extends = {0};
    cellblock_error *error = NULL;
    if (cb_document_parse(text, length, "fuzz", &document, &extends, &error) == 0) {
        cb_names_free(&extends);
        cb_document_free(document);
        return;
    }
    require(document == NULL && strncmp(cellblock_error_message(error), "fuzz:", 5) == 0);
    cellblock_error_free(error);
}

static void as_policy(const char *text, size_t length)
{
    cellblock_policy *policy = NULL, *copy = NULL;
    if (cellblock_policy_load_text(text, length, "fuzz", &policy, NULL) < 0)
        return;
    cb_autofree char *first = NULL, *second = NULL;
    require(cellblock_policy_json(policy, &first, NULL) == 0);
    require(cb_policy_copy(policy, &copy, NULL) == 0);
    require(cellblock_policy_json(copy, &second, NULL) == 0);
    require(strcmp(first, second) == 0);
    json_auto_t *valid = json_loads(first, JSON_REJECT_DUPLICATES, NULL);
    require(valid != NULL);
    cellblock_policy_tighten(copy, policy, NULL);
    for (int i = 0; i < CB_LIMIT_COUNT; i++)
        require(cb_decide_limit(copy, (enum cb_limit)i).value <= cb_decide_limit(policy, (enum cb_limit)i).value);
    cellblock_policy_free(copy);
    cellblock_policy_free(policy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = size > 0 ? (const char *)data : "";
    against_jansson(text, size);
    as_document(text, size);
    as_policy(text, size);
    return 0;
}
