/* See hostname.h. International names go through libidn2 (IDNA 2008, as browsers do it); everything else, and what
 * comes out of it, is held to letters, digits and hyphens here. */
#include "policy/hostname.h"

#include "base/cleanup.h"
#include "policy/values.h"

#include <idn2.h>
#include <string.h>

static bool is_label_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
}

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

/* The last label decides whether software takes a name for an address: digits, or 0x and hexadecimal digits. */
static bool ends_in_number(const char *name)
{
    const char *dot = strrchr(name, '.'), *last = dot ? dot + 1 : name;
    if (last[0] == '0' && last[1] == 'x')
        return last[2 + strspn(last + 2, "0123456789abcdef")] == '\0';
    return last[0] && last[strspn(last, "0123456789")] == '\0';
}

/* Copies into the form of hostname.h. Returns what is wrong, or NULL. */
static const char *normalise(const char *bytes, size_t length, char name[static CB_HOSTNAME_TEXT])
{
    if (length > 0 && bytes[length - 1] == '.')
        length--;
    if (length == 0)
        return "is empty: name a host";
    if (length > CB_HOSTNAME_MOST)
        return "is longer than 253 bytes";
    size_t label = 0;
    for (size_t i = 0; i < length; i++) {
        name[i] = lower(bytes[i]);
        bool ends = i + 1 == length || bytes[i + 1] == '.';
        if (name[i] == '.') {
            if (label == 0)
                return "has an empty part between its dots";
            label = 0;
            continue;
        }
        if (!is_label_byte(name[i]))
            return "holds something else than letters, digits, hyphens and dots";
        if (name[i] == '-' && (label == 0 || ends))
            return "has a part that begins or ends with a hyphen";
        if (++label > 63)
            return "has a part of more than 63 bytes";
    }
    if (label == 0)
        return "has an empty part between its dots";
    name[length] = '\0';
    return NULL;
}

bool cb_hostname_plain(const char *bytes, size_t length, char name[static CB_HOSTNAME_TEXT])
{
    return !normalise(bytes, length, name) && !ends_in_number(name);
}

static bool is_ascii(const char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text >= 0x80)
            return false;
    return true;
}

/* Returns 0 and the ASCII form, or -1 as cb_hostname_rule(). */
static int to_ascii(const char *text, char **ascii, const char **reason)
{
    char *made = NULL;
    int status = idn2_to_ascii_8z(text, &made, IDN2_NONTRANSITIONAL);
    if (status == IDN2_OK) {
        *ascii = strdup(made);
        idn2_free(made);
        *reason = NULL;
        return *ascii ? 0 : -1;
    }
    switch (status) {
    case IDN2_MALLOC:
        *reason = NULL;
        break;
    case IDN2_PUNYCODE_BIG_OUTPUT:
    case IDN2_TOO_BIG_LABEL:
    case IDN2_TOO_BIG_DOMAIN:
        *reason = "is too long: 63 bytes for a part, 253 in all, in its ASCII form";
        break;
    default:
        *reason = "is not a name that can be looked up: it holds characters that names can't have, or not together";
    }
    return -1;
}

static const char *check_rule(const char *name, bool wildcard, const char **hint)
{
    if (ends_in_number(name)) {
        *hint = "addresses stand in \"cidr\", in full: {\"cidr\": \"203.0.113.9\", \"ports\": [443]}";
        return "is not the name of a host: software takes it for an address";
    }
    const char *dot = strrchr(name, '.');
    if (strcmp(dot ? dot + 1 : name, "localhost") == 0) {
        *hint = "inside a cell this is the cell's own; a port of the host's loopback is {\"loopback\": 6379}";
        return "is not a name that is looked up";
    }
    if (wildcard && !dot) {
        *hint = "name at least two parts behind the \"*.\", such as \"*.example.org\"";
        return "stands for names of many owners";
    }
    return NULL;
}

int cb_hostname_rule(const char *text, char name[static CB_HOSTNAME_TEXT], bool *wildcard, const char **reason,
                     const char **hint)
{
    *hint = NULL;
    *reason = cb_value_plain(text);
    if (*reason)
        return -1;
    if (strpbrk(text, ":[]/")) {
        *reason = "is not the name of a host";
        *hint = "a host is a bare name, such as \"api.example.com\"; ports stand in \"ports\", addresses in \"cidr\"";
        return -1;
    }
    *wildcard = text[0] == '*' && text[1] == '.';
    const char *rest = *wildcard ? text + 2 : text;
    if (strchr(rest, '*')) {
        *reason =
            strcmp(text, "*") == 0 ? "would stand for every host" : "has a \"*\" that is not all of its first part";
        *hint = "a wildcard is written \"*.example.org\": every name that ends in it, but not \"example.org\" itself";
        return -1;
    }
    cb_autofree char *ascii = NULL;
    if (!is_ascii(rest) && to_ascii(rest, &ascii, reason) < 0)
        return -1;
    rest = ascii ? ascii : rest;
    *reason = normalise(rest, strlen(rest), name);
    if (!*reason)
        *reason = check_rule(name, *wildcard, hint);
    return *reason ? -1 : 0;
}

bool cb_hostname_matches(const char *rule, bool wildcard, const char *name)
{
    if (!wildcard)
        return strcmp(rule, name) == 0;
    size_t suffix = strlen(rule), length = strlen(name);
    return length > suffix + 1 && name[length - suffix - 1] == '.' && strcmp(name + length - suffix, rule) == 0;
}
