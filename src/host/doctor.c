/* The examination as JSON: what `cellblock doctor` shows. */
#include "cellblock.h"

#include "base/cleanup.h"
#include "base/error.h"
#include "host/host.h"
#include "host/surroundings.h"

#include <jansson.h>
#include <sys/utsname.h>

static const char *state_word(enum cb_probe_state state)
{
    return state == CB_PROBE_YES ? "yes" : state == CB_PROBE_PARTLY ? "partly" : "no";
}

static json_t *layers_json(const struct cb_host *host)
{
    json_t *layers = json_array();
    for (enum cb_feature feature = 0; layers && feature < CB_FEATURE_COUNT; feature++) {
        const struct cb_probe *probe = &host->probes[feature];
        json_t *layer = json_pack("{s:s, s:s, s:s, s:b, s:s, s:s?}", "name", cb_feature_word(feature), "state",
                                  state_word(probe->state), "purpose", cb_feature_purpose(feature), "extra",
                                  !cb_feature_needed(feature, true), "detail", probe->detail, "fix", probe->fix);
        if (json_array_append_new(layers, layer) < 0) {
            json_decref(layers);
            return NULL;
        }
    }
    return layers;
}

int cellblock_doctor_json(char **json, cellblock_error **error)
{
    struct cb_host *host = NULL;
    if (cb_host_examine(&host, error) < 0)
        return -1;
    struct utsname name;
    const char *kernel = uname(&name) == 0 ? name.release : NULL;
    /* json_pack frees the layers when it fails, and refuses NULL. */
    json_t *root = json_pack("{s:s, s:b, s:s?, s:i, s:o}", "tier", host->tier, "can_enforce_default",
                             host->can_enforce_default, "kernel", kernel, "landlock_abi", host->landlock_abi, "layers",
                             layers_json(host));
    cb_host_free(host);
    char *text = root ? json_dumps(root, JSON_INDENT(2)) : NULL;
    json_decref(root);
    if (!text)
        return cb_fail_memory(error);
    *json = text;
    return 0;
}
