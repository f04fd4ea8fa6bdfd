/* From flags to a policy: a base (a file, a profile, or the default), the other flags as documents on top of it, and
 * what may only tighten. */
#include "base/array.h"
#include "base/cleanup.h"
#include "base/text.h"
#include "cli/cli.h"

#include <string.h>

int cb_flag_tighten(struct cb_policy_flags *flags, const char *file)
{
    const char **slot = cb_array_push(&flags->tighten, &flags->tighten_count);
    if (!slot)
        return -1;
    *slot = file;
    return 0;
}

static char *name_flag(const char *option, const char *value)
{
    enum { SHOWN = 200 };
    return !value                           ? cb_format("--%s", option)
           : strnlen(value, SHOWN + 1) > SHOWN ? cb_format("--%s '%.*s…'", option, SHOWN, value)
                                               : cb_format("--%s '%s'", option, value);
}

int cb_flag_add(struct cb_policy_flags *flags, const char *option, const char *value, json_t *document)
{
    struct cb_flag *added = cb_array_push(&flags->others, &flags->other_count);
    if (!added) {
        json_decref(document);
        return -1;
    }
    added->document = document;
    added->name = name_flag(option, value);
    return added->name ? 0 : -1;
}

void cb_policy_flags_end(struct cb_policy_flags *flags)
{
    for (size_t i = 0; i < flags->other_count; i++) {
        free(flags->others[i].name);
        json_decref(flags->others[i].document);
    }
    free(flags->others);
    free(flags->tighten);
}

char *cb_absolute_path(const char *path)
{
    const char *home = getenv("HOME");
    if (path[0] == '/')
        return strdup(path);
    if (path[0] == '~' && (path[1] == '/' || !path[1]) && home)
        return cb_format("%s%s", home, path + 1);
    cb_autofree char *here = getcwd(NULL, 0);
    return cb_format("%s/%s", here ? here : "", path);
}

static int load_base(const struct cb_policy_flags *flags, cellblock_policy **policy, cellblock_error **error)
{
    if (flags->policy)
        return cellblock_policy_load_file(flags->policy, policy, error);
    if (!flags->profile)
        return cellblock_policy_new(policy, error);
    json_t *document = json_pack("{s:i, s:[s]}", "cellblock", 1, "extends", flags->profile);
    cb_autofree char *text = document ? json_dumps(document, 0) : NULL;
    json_decref(document);
    cb_autofree char *name = name_flag("profile", flags->profile);
    return cellblock_policy_load_text(text ? text : "", text ? strlen(text) : 0, name ? name : "--profile", policy,
                                      error);
}

int cb_policy_from_flags(const struct cb_policy_flags *flags, cellblock_policy **policy, cellblock_error **error)
{
    if (load_base(flags, policy, error) < 0)
        return -1;
    for (size_t i = 0; i < flags->other_count; i++) {
        cb_autofree char *text = json_dumps(flags->others[i].document, 0);
        if (cellblock_policy_add_text(*policy, text ? text : "", text ? strlen(text) : 0, flags->others[i].name,
                                      error) < 0)
            return -1;
    }
    for (size_t i = 0; i < flags->tighten_count; i++) {
        cellblock_policy *other = NULL;
        int failed = cellblock_policy_load_file(flags->tighten[i], &other, error) < 0 ||
                     cellblock_policy_tighten(*policy, other, error) < 0;
        cellblock_policy_free(other);
        if (failed)
            return -1;
    }
    return 0;
}
