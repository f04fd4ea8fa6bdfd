/* See jsonc.h. One pass of recursive descent over a private copy of the text, in which strings are decoded in place.
 * The original is only read, to count columns and to quote from in messages. */
#include "policy/jsonc.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/text.h"

#include <stdbool.h>
#include <string.h>

struct parser {
    const char *source; /* the text as it came */
    char *text;         /* the copy: the same offsets, a NUL at `length`, a spare byte in front */
    size_t length;
    size_t at;
    size_t line_start; /* offset of the line that `at` is in */
    size_t wide;       /* bytes since then that take no column: continuations of UTF-8 */
    int line;
    unsigned depth;
    struct cb_json *nodes;
    size_t count;
    const char *name;
    cellblock_error **error;
};

static bool continues(char c)
{
    return ((unsigned char)c & 0xc0) == 0x80;
}

static int fail_at(const struct parser *parser, size_t offset, const char *what)
{
    int line = 1, column = 1;
    for (size_t i = 0; i < offset; i++) {
        if (parser->source[i] == '\n') {
            line++;
            column = 1;
        } else if (!continues(parser->source[i])) {
            column++;
        }
    }
    return cb_fail(parser->error, CELLBLOCK_ERROR_POLICY, 0, "%s:%d:%d: %s", parser->name, line, column, what);
}

static int fail_here(const struct parser *parser, const char *what)
{
    if (parser->at >= parser->length)
        return fail_at(parser, parser->length, "the text ends too early");
    return fail_at(parser, parser->at, what);
}

/* ---- Between values ---- */

static void new_line(struct parser *parser)
{
    parser->line++;
    parser->line_start = parser->at;
    parser->wide = 0;
}

static int skip_comment(struct parser *parser)
{
    size_t start = parser->at;
    bool block = parser->text[parser->at + 1] == '*';
    parser->at += 2;
    while (parser->at < parser->length) {
        char c = parser->text[parser->at];
        if (!block && c == '\n')
            return 0;
        parser->at++;
        if (c == '\n')
            new_line(parser);
        else if (block && c == '*' && parser->text[parser->at] == '/') {
            parser->at++;
            return 0;
        }
        parser->wide += continues(c);
    }
    return block ? fail_at(parser, start, "this comment does not end") : 0;
}

static int skip_space(struct parser *parser)
{
    for (;;) {
        char c = parser->text[parser->at];
        if (c == '/' && (parser->text[parser->at + 1] == '/' || parser->text[parser->at + 1] == '*')) {
            if (skip_comment(parser) < 0)
                return -1;
            continue;
        }
        if (c != ' ' && c != '\t' && c != '\n' && c != '\r')
            return 0;
        parser->at++;
        if (c == '\n')
            new_line(parser);
    }
}

static int column(const struct parser *parser)
{
    return (int)(parser->at - parser->line_start - parser->wide) + 1;
}

/* ---- Values ---- */

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The number behind "\u" at `at`, or -1. The copy ends with a NUL, so that reading ahead stops in time. */
static int32_t hex_unit(const struct parser *parser, size_t at)
{
    int32_t unit = 0;
    for (size_t i = at; i < at + 4; i++) {
        int digit = hex_digit(parser->text[i]);
        if (digit < 0)
            return -1;
        unit = unit * 16 + digit;
    }
    return unit;
}

static char *put_utf8(char *out, int32_t code)
{
    if (code < 0x80) {
        *out++ = (char)code;
    } else if (code < 0x800) {
        *out++ = (char)(0xc0 | code >> 6);
        *out++ = (char)(0x80 | (code & 0x3f));
    } else if (code < 0x10000) {
        *out++ = (char)(0xe0 | code >> 12);
        *out++ = (char)(0x80 | (code >> 6 & 0x3f));
        *out++ = (char)(0x80 | (code & 0x3f));
    } else {
        *out++ = (char)(0xf0 | code >> 18);
        *out++ = (char)(0x80 | (code >> 12 & 0x3f));
        *out++ = (char)(0x80 | (code >> 6 & 0x3f));
        *out++ = (char)(0x80 | (code & 0x3f));
    }
    return out;
}

/* Decodes the escape at `at`, which never gets longer by it. */
static int read_escape(struct parser *parser, char **out)
{
    static const char letters[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    char c = parser->text[parser->at + 1];
    const char *found = c ? strchr(letters, c) : NULL;
    if (found) {
        *(*out)++ = meant[found - letters];
        parser->at += 2;
        return 0;
    }
    if (c != 'u')
        return fail_here(parser, "JSON has no such escape in a string");
    int32_t code = hex_unit(parser, parser->at + 2);
    if (code < 0)
        return fail_here(parser, "\\u needs four hexadecimal digits");
    if (code == 0)
        return fail_here(parser, "a string can't hold a NUL character");
    size_t taken = 6;
    if (code >= 0xd800 && code < 0xe000) {
        bool second = code < 0xdc00 && parser->text[parser->at + 6] == '\\' && parser->text[parser->at + 7] == 'u';
        int32_t low = second ? hex_unit(parser, parser->at + 8) : -1;
        if (low < 0xdc00 || low >= 0xe000)
            return fail_here(parser, "this is half of a character: \\u needs the other half of the surrogate pair");
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
        taken = 12;
    }
    *out = put_utf8(*out, code);
    parser->at += taken;
    return 0;
}

static int read_string(struct parser *parser, const char **string)
{
    size_t start = parser->at++;
    char *out = parser->text + parser->at;
    *string = out;
    for (;;) {
        char c = parser->text[parser->at];
        if (c == '"')
            break;
        if (c == '\\') {
            if (read_escape(parser, &out) < 0)
                return -1;
            continue;
        }
        if (parser->at >= parser->length || c == '\n')
            return fail_at(parser, start, "this string does not end");
        if ((unsigned char)c < 0x20)
            return fail_here(parser, "a control character in a string must be escaped");
        *out++ = c;
        parser->wide += continues(c);
        parser->at++;
    }
    parser->at++;
    *out = '\0';
    return 0;
}

static bool skip_digits(struct parser *parser)
{
    size_t start = parser->at;
    while (parser->text[parser->at] >= '0' && parser->text[parser->at] <= '9')
        parser->at++;
    return parser->at > start;
}

static int read_number(struct parser *parser, const char **number)
{
    size_t start = parser->at;
    char *text = parser->text;
    parser->at += text[parser->at] == '-';
    bool zero = text[parser->at] == '0';
    size_t digits = parser->at;
    bool fine = skip_digits(parser) && !(zero && parser->at > digits + 1);
    if (fine && text[parser->at] == '.') {
        parser->at++;
        fine = skip_digits(parser);
    }
    if (fine && (text[parser->at] | 0x20) == 'e') {
        parser->at++;
        parser->at += text[parser->at] == '+' || text[parser->at] == '-';
        fine = skip_digits(parser);
    }
    if (!fine)
        return fail_at(parser, start, "this is not a number");
    /* The byte before is spent and the byte behind is not: moved down by one, there is room for the NUL. */
    memmove(text + start - 1, text + start, parser->at - start);
    text[parser->at - 1] = '\0';
    *number = text + start - 1;
    return 0;
}

static int read_literal(struct parser *parser, enum cb_json_type *type)
{
    static const struct {
        const char *word;
        enum cb_json_type type;
    } words[] = {{"true", CB_JSON_TRUE}, {"false", CB_JSON_FALSE}, {"null", CB_JSON_NULL}};
    const char *here = parser->text + parser->at;
    size_t length = 0;
    while ((here[length] | 0x20) >= 'a' && (here[length] | 0x20) <= 'z')
        length++;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (length != strlen(words[i].word) || memcmp(here, words[i].word, length) != 0)
            continue;
        *type = words[i].type;
        parser->at += length;
        return 0;
    }
    return fail_here(parser, length > 0 ? "unknown word: a string needs double quotes" : "a value is expected here");
}

static int read_value(struct parser *parser, const char *key, int key_line, int key_column);

static int read_member(struct parser *parser)
{
    if (parser->text[parser->at] != '"')
        return fail_here(parser, "a key in double quotes is expected here");
    int key_line = parser->line, key_column = column(parser);
    const char *key;
    if (read_string(parser, &key) < 0 || skip_space(parser) < 0)
        return -1;
    if (parser->text[parser->at] != ':')
        return fail_here(parser, "a colon is expected here");
    parser->at++;
    return skip_space(parser) < 0 ? -1 : read_value(parser, key, key_line, key_column);
}

/* What stands between brackets; a comma may follow the last one. */
static int read_container(struct parser *parser, size_t node, bool object)
{
    char close = object ? '}' : ']';
    if (++parser->depth > CB_JSONC_MAX_DEPTH)
        return fail_here(parser, "nested too deeply");
    parser->at++;
    for (;;) {
        if (skip_space(parser) < 0)
            return -1;
        if (parser->text[parser->at] == close)
            break;
        if ((object ? read_member(parser) : read_value(parser, NULL, 0, 0)) < 0 || skip_space(parser) < 0)
            return -1;
        parser->nodes[node].count++;
        if (parser->text[parser->at] == ',')
            parser->at++;
        else if (parser->text[parser->at] != close)
            return fail_here(parser, object ? "a comma or } is expected here" : "a comma or ] is expected here");
    }
    parser->at++;
    parser->depth--;
    return 0;
}

static int read_value(struct parser *parser, const char *key, int key_line, int key_column)
{
    size_t index = parser->count;
    struct cb_json *node = cb_array_push(&parser->nodes, &parser->count);
    if (!node)
        return cb_fail_memory(parser->error);
    *node = (struct cb_json){
        .key = key, .key_line = key_line, .key_column = key_column, .line = parser->line, .column = column(parser)};
    char c = parser->text[parser->at];
    int result;
    if (c == '{' || c == '[') {
        node->type = c == '{' ? CB_JSON_OBJECT : CB_JSON_LIST;
        result = read_container(parser, index, c == '{');
    } else if (c == '"') {
        node->type = CB_JSON_STRING;
        result = read_string(parser, &node->text);
    } else if (c == '-' || (c >= '0' && c <= '9')) {
        node->type = CB_JSON_NUMBER;
        result = read_number(parser, &node->text);
    } else {
        result = read_literal(parser, &node->type);
    }
    parser->nodes[index].span = (uint32_t)(parser->count - index);
    return result;
}

/* ---- The whole text ---- */

/* Most policies are ASCII: eight bytes at a time until one is not. */
static size_t ascii_prefix(const char *text, size_t length)
{
    size_t at = 0;
    for (uint64_t word; at + sizeof word <= length; at += sizeof word) {
        memcpy(&word, text + at, sizeof word);
        if (word & 0x8080808080808080)
            break;
    }
    return at;
}

static int check_bytes(const struct parser *parser)
{
    const char *text = parser->source;
    size_t length = parser->length;
    if (length >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0)
        return fail_at(parser, 0, "a policy must not start with a byte order mark");
    const char *nul = memchr(text, '\0', length);
    if (nul)
        return fail_at(parser, (size_t)(nul - text), "a policy must not hold NUL bytes");
    size_t ascii = ascii_prefix(text, length);
    size_t valid = ascii + cb_utf8_prefix(text + ascii, length - ascii);
    return valid < length ? fail_at(parser, valid, "this is not valid UTF-8") : 0;
}

static int read_document(struct parser *parser)
{
    if (skip_space(parser) < 0)
        return -1;
    if (parser->at >= parser->length)
        return fail_at(parser, 0, "the policy is empty");
    if (read_value(parser, NULL, 0, 0) < 0 || skip_space(parser) < 0)
        return -1;
    return parser->at < parser->length ? fail_here(parser, "nothing more is expected here") : 0;
}

int cb_jsonc_read(const char *text, size_t length, const char *name, struct cb_jsonc *out, cellblock_error **error)
{
    struct parser parser = {.source = text, .length = length, .line = 1, .name = name, .error = error};
    if (length == 0)
        return fail_at(&parser, 0, "the policy is empty");
    if (length > CB_JSONC_MAX_LENGTH)
        return fail_at(&parser, 0, "a policy may have at most 1 MiB of text");
    if (check_bytes(&parser) < 0)
        return -1;
    cb_autojsonc struct cb_jsonc made = {.text = malloc(length + 2)};
    if (!made.text)
        return cb_fail_memory(error);
    made.text[0] = ' '; /* see read_number() */
    parser.text = memcpy(made.text + 1, text, length);
    parser.text[length] = '\0';
    int result = read_document(&parser);
    made.nodes = parser.nodes;
    made.count = parser.count;
    if (result < 0)
        return -1;
    *out = made;
    made = (struct cb_jsonc){0};
    return 0;
}

void cb_jsonc_free(struct cb_jsonc *jsonc)
{
    free(jsonc->nodes);
    free(jsonc->text);
    *jsonc = (struct cb_jsonc){0};
}
