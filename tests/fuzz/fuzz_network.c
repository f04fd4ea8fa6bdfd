/* Fuzz target: any bytes as an address, a range, a name in a rule, a name that is asked for, and a socket address.
 * Nothing may crash; what is taken must print to something that is taken again as the same; and what is decided must
 * keep to the promises of network.h, whatever the rule: no name and no wide range opens anything special. */
#include "base/cleanup.h"
#include "policy/network.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int truth)
{
    if (!truth)
        abort();
}

static void as_address(const char *text)
{
    struct cb_address made, again;
    char printed[CB_ADDRESS_TEXT];
    if (!cb_address_parse(text, &made))
        return;
    cb_address_print(&made, printed);
    require(cb_address_parse(printed, &again) && cb_address_equal(&made, &again));
    struct sockaddr_storage storage;
    uint16_t port = 0;
    unsigned length = cb_address_to(&made, 443, &storage);
    require(cb_address_from((struct sockaddr *)&storage, length, &again, &port) && port == 443);
    require(cb_address_equal(&made, &again));
}

static void as_prefix(const char *text)
{
    struct cb_prefix made, again;
    char printed[CB_PREFIX_TEXT];
    if (cb_prefix_parse(text, &made))
        return;
    cb_prefix_print(&made, printed);
    require(!cb_prefix_parse(printed, &again) && again.length == made.length);
    require(cb_address_equal(&made.address, &again.address) && cb_prefix_contains(&made, &made.address));
}

static void as_socket_address(const uint8_t *data, size_t size)
{
    /* A copy of just that size, so that reading beyond it is noticed. */
    cb_autofree uint8_t *copy = malloc(size ? size : 1);
    struct cb_address made;
    uint16_t port;
    memcpy(copy, data, size);
    if (!cb_address_from((const struct sockaddr *)copy, size, &made, &port))
        return;
    require(made.family == AF_INET || made.family == AF_INET6);
    struct cb_range range = cb_address_range(&made);
    require(range.length <= (made.family == AF_INET ? 32 : 128) && cb_class_word(range.class));
    require(range.class == CB_CLASS_PUBLIC || !cb_range_opened_by(range, 0));
}

/* The rule is read from a document as a person would write it, and asked about addresses of every kind. */
static void in_a_rule(const char *name, bool wildcard)
{
    static const char *const special[] = {"127.0.0.1", "10.0.0.1", "169.254.169.254", "::1",           "fd00::1",
                                          "0.0.0.0",   "::",       "64:ff9b::a00:1",  "2002:7f00:1::", "100.64.0.1",
                                          "fe80::1"};
    char text[400], asked[CB_HOSTNAME_TEXT + 2];
    snprintf(text, sizeof text,
             "{\"cellblock\": 1, \"extends\": [], \"network\": [{\"host\": \"%s%s\", \"ports\": 443}, "
             "{\"cidr\": \"0.0.0.0/0\", \"ports\": 1}, {\"cidr\": \"::/0\", \"ports\": 1}]}",
             wildcard ? "*." : "", name);
    cellblock_policy *policy = NULL;
    require(cellblock_policy_load_text(text, strlen(text), "fuzz", &policy, NULL) == 0);
    snprintf(asked, sizeof asked, "%s%s", wildcard ? "a." : "", name);
    bool fits = strlen(asked) <= CB_HOSTNAME_MOST;
    require(cb_decide_name(policy, asked).allowed == fits);
    require(!wildcard || !cb_decide_name(policy, name).allowed);
    const char *names[] = {asked};
    for (size_t i = 0; i < sizeof special / sizeof *special; i++) {
        struct cb_net_target target = {.port = i % 2 ? 443 : 1, .names = names, .name_count = 1};
        require(cb_address_parse(special[i], &target.address) && !cb_decide_connect(policy, &target).allowed);
    }
    struct cb_net_target public = {.port = 443, .names = names, .name_count = 1};
    require(cb_address_parse("8.8.8.8", &public.address) && (!fits || cb_decide_connect(policy, &public).allowed));
    cellblock_policy_free(policy);
}

static void as_name(const char *text, size_t length)
{
    char name[CB_HOSTNAME_TEXT], again[CB_HOSTNAME_TEXT];
    const char *reason, *hint;
    bool wildcard, more;
    if (cb_hostname_plain(text, length, name)) {
        require(strlen(name) <= CB_HOSTNAME_MOST &&
                strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-.") == strlen(name));
        require(cb_hostname_plain(name, strlen(name), again) && strcmp(name, again) == 0);
        require(cb_hostname_matches(name, false, name) && !cb_hostname_matches(name, true, name));
        struct cb_address address;
        require(!cb_address_parse(name, &address));
    }
    cb_autofree char *string = strndup(text, length);
    if (cb_hostname_rule(string, name, &wildcard, &reason, &hint) < 0) {
        require(reason != NULL);
        return;
    }
    require(cb_hostname_plain(name, strlen(name), again) && strcmp(name, again) == 0);
    require(cb_hostname_rule(name, again, &more, &reason, &hint) == 0 && !more && strcmp(name, again) == 0);
    in_a_rule(name, wildcard);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    cb_autofree char *text = malloc(size + 1);
    memcpy(text, data, size);
    text[size] = '\0';
    as_address(text);
    as_prefix(text);
    as_socket_address(data, size);
    as_name(text, size);
    return 0;
}
