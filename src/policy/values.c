/* See values.h. */
#include "policy/values.h"

#include <limits.h>
#include <string.h>

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* Reads digits. False when there are none, or too many for 64 bits (then *overflow). */
static bool read_digits(const char **text, uint64_t *value, bool *overflow)
{
    const char *start = *text;
    *value = 0;
    for (; is_digit(**text); ++*text)
        if (__builtin_mul_overflow(*value, 10, value) || __builtin_add_overflow(*value, **text - '0', value))
            *overflow = true;
    return *text != start;
}

const char *cb_value_size(const char *text, uint64_t *bytes)
{
    static const char *const reason =
        "is not a size: write a number of bytes, or a whole number with K, M, G or T, such as \"256M\"";
    static const struct {
        const char *word;
        unsigned shift;
    } units[] = {{"", 0},     {"K", 10},   {"M", 20},   {"G", 30},  {"T", 40},
                 {"KiB", 10}, {"MiB", 20}, {"GiB", 30}, {"TiB", 40}};
    uint64_t value;
    bool overflow = false;
    if (!read_digits(&text, &value, &overflow))
        return reason;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (strcmp(text, units[i].word) != 0)
            continue;
        if (overflow || value > (uint64_t)INT64_MAX >> units[i].shift)
            return "is too large";
        *bytes = value << units[i].shift;
        return NULL;
    }
    return reason;
}

/* Nanoseconds of it still fit in 63 bits, so that timers can be set without a second look. */
#define MAX_MILLISECONDS ((uint64_t)INT64_MAX / 1000000)

const char *cb_value_duration(const char *text, uint64_t *milliseconds)
{
    static const char *const reason =
        "is not a duration: write a number of seconds, or a number with ms, s, m or h, such as \"5s\"";
    static const struct {
        const char *word;
        uint64_t scale;
    } units[] = {{"", 1000}, {"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}};
    uint64_t whole, part = 0, divisor = 1;
    bool overflow = false;
    if (!read_digits(&text, &whole, &overflow))
        return reason;
    if (*text == '.') {
        text++;
        if (!is_digit(*text))
            return reason;
        for (; is_digit(*text); text++) {
            if (divisor < 1000000000) { /* further digits are far below a millisecond */
                part = part * 10 + (uint64_t)(*text - '0');
                divisor *= 10;
            }
        }
    }
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (strcmp(text, units[i].word) != 0)
            continue;
        uint64_t scale = units[i].scale;
        if (overflow || whole > MAX_MILLISECONDS / scale - 1)
            return "is too large";
        *milliseconds = whole * scale + (part * scale + divisor - 1) / divisor;
        return NULL;
    }
    return reason;
}

const char *cb_value_share(const char *text, uint64_t *thousandths)
{
    static const char *const reason = "is not a number of processors: write a number such as 2 or 0.5";
    uint64_t whole;
    bool overflow = false;
    if (!read_digits(&text, &whole, &overflow))
        return reason;
    uint64_t part = 0;
    if (*text == '.') {
        uint64_t worth = 100;
        for (text++; is_digit(*text); text++, worth /= 10)
            part += (uint64_t)(*text - '0') * worth;
    }
    if (*text)
        return reason;
    if (overflow || whole > UINT32_MAX)
        return "is too large";
    *thousandths = whole * 1000 + part;
    return NULL;
}

const char *cb_value_plain(const char *text)
{
    for (const unsigned char *c = (const unsigned char *)text; *c; c++)
        if (*c < 0x20 || *c == 0x7f || (*c == 0xc2 && c[1] >= 0x80 && c[1] < 0xa0))
            return "holds a control character";
    return NULL;
}

/* Visits each component: refuses one that is too long and, with a reason in `no_up`, "..". Rewrites in place. */
static const char *normalise(char *path, const char *no_up, bool *directory)
{
    char *out = path;
    const char *in = path;
    if (*in == '/')
        *out++ = *in++;
    *directory = false;
    while (*in) {
        size_t length = strcspn(in, "/");
        bool slash = in[length] == '/';
        if (length > NAME_MAX)
            return "has a component of more than 255 bytes";
        if (length == 2 && in[0] == '.' && in[1] == '.' && no_up)
            return no_up;
        if (length > 0 && !(length == 1 && in[0] == '.')) {
            if (out > path && out[-1] != '/')
                *out++ = '/';
            memmove(out, in, length);
            out += length;
            *directory = slash;
        } else {
            *directory = true; /* "x/" and "x/." both ask for a directory */
        }
        in += length + slash;
    }
    if (out == path)
        *out++ = '.';
    *out = '\0';
    return NULL;
}

static const char *check_path(char *path, bool up, bool *directory)
{
    if (!*path)
        return "is empty: a path is absolute, starts with \"~/\", or is relative to the workspace";
    if (strlen(path) >= PATH_MAX)
        return "is longer than 4095 bytes";
    const char *reason = cb_value_plain(path);
    if (reason)
        return reason;
    if (path[0] == '~' && path[1] && path[1] != '/')
        return "names the home directory of another user: write it as an absolute path";
    if (path[0] == '$')
        return "begins with \"$\": variables are not expanded, \"~/\" is the home directory";
    const char *no_up = NULL;
    if (path[0] == '~')
        no_up = "has a \"..\": paths below the home directory can't leave it";
    else if (path[0] != '/' && !up)
        no_up = "has a \"..\": relative paths are relative to the workspace and can't leave it";
    return normalise(path, no_up, directory);
}

const char *cb_value_file_path(char *path, bool *directory)
{
    if (strpbrk(path, "*?["))
        return "holds a glob: globs are not supported in enforcement, name the directory instead";
    return check_path(path, false, directory);
}

const char *cb_value_workspace_path(char *path)
{
    bool directory;
    return check_path(path, true, &directory);
}

const char *cb_value_profile_name(const char *text)
{
    if (!*text)
        return "is empty: name a profile";
    return cb_value_plain(text);
}

const char *cb_value_program_name(const char *text)
{
    if (!*text)
        return "is empty: name a program";
    if (strchr(text, '/'))
        return "is a path: \"programs\" takes names that are looked up in PATH, use \"files\" for paths";
    if (strlen(text) > NAME_MAX)
        return "is longer than 255 bytes";
    return cb_value_plain(text);
}

static size_t env_name_length(const char *text)
{
    if (!is_letter(*text) && *text != '_')
        return 0;
    size_t length = 1;
    while (is_letter(text[length]) || is_digit(text[length]) || text[length] == '_')
        length++;
    return length;
}

const char *cb_value_env_name(const char *text)
{
    size_t length = env_name_length(text);
    return length > 0 && !text[length] ? NULL : "is not the name of a variable: letters, digits and _ only";
}

const char *cb_value_env_pattern(const char *text)
{
    size_t length = env_name_length(text);
    if (length > 0 && (!text[length] || strcmp(text + length, "*") == 0))
        return NULL;
    if (strcmp(text, "*") == 0)
        return "would pass every variable, secrets included: name them, or a prefix such as \"LC_*\"";
    return "is not the name of a variable: letters, digits and _ only, with a \"*\" at the end for a prefix";
}

const char *cb_value_syscall_name(const char *text)
{
    size_t length = 0;
    while ((text[length] >= 'a' && text[length] <= 'z') || is_digit(text[length]) || text[length] == '_')
        length++;
    return length > 0 && !text[length] ? NULL : "is not the name of a system call";
}
