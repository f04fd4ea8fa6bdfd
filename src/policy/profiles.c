/* The built-in profiles: found by name among the embedded texts. */
#include "policy/profiles.h"

#include "policy/policy.h"

#include <string.h>

const char *cb_profile_text(const char *name, size_t *length)
{
    for (size_t i = 0; cb_embedded_names[i]; i++) {
        if (strcmp(cb_embedded_names[i], name) != 0)
            continue;
        *length = cb_embedded_profiles[i].length;
        return cb_embedded_profiles[i].text;
    }
    return NULL;
}

const char *const *cb_profile_names(void)
{
    return cb_embedded_names;
}
