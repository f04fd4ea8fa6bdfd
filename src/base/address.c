/* See address.h. The ranges are those of IANA's special-purpose registries that are not reachable from everywhere, and
 * the metadata services that clouds document. */
#include "base/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static unsigned bits_of(const struct cb_address *address)
{
    return address->family == AF_INET ? 32 : 128;
}

/* ::ffff:1.2.3.4 is 1.2.3.4. */
static void unmap(struct cb_address *address)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    if (address->family != AF_INET6 || memcmp(address->bytes, mapped, sizeof mapped) != 0)
        return;
    struct cb_address plain = {.family = AF_INET};
    memcpy(plain.bytes, address->bytes + 12, 4);
    *address = plain;
}

/* As it is written, ::ffff:1.2.3.4 included. */
static bool parse(const char *text, struct cb_address *address)
{
    *address = (struct cb_address){.family = strchr(text, ':') ? AF_INET6 : AF_INET};
    return inet_pton(address->family, text, address->bytes) == 1;
}

bool cb_address_parse(const char *text, struct cb_address *address)
{
    if (!parse(text, address))
        return false;
    unmap(address);
    return true;
}

bool cb_address_from(const struct sockaddr *from, size_t length, struct cb_address *address, uint16_t *port)
{
    struct sockaddr_in four;
    struct sockaddr_in6 six;
    sa_family_t family;
    if (length < offsetof(struct sockaddr, sa_data))
        return false;
    memcpy(&family, &from->sa_family, sizeof family);
    *address = (struct cb_address){.family = family};
    if (family == AF_INET && length >= sizeof four) {
        memcpy(&four, from, sizeof four);
        memcpy(address->bytes, &four.sin_addr, 4);
        *port = ntohs(four.sin_port);
        return true;
    }
    /* The kernel takes them without the scope too. */
    if (family == AF_INET6 && length >= offsetof(struct sockaddr_in6, sin6_scope_id)) {
        memcpy(&six, from, offsetof(struct sockaddr_in6, sin6_scope_id));
        memcpy(address->bytes, &six.sin6_addr, 16);
        *port = ntohs(six.sin6_port);
        unmap(address);
        return true;
    }
    return false;
}

unsigned cb_address_to(const struct cb_address *address, uint16_t port, struct sockaddr_storage *to)
{
    memset(to, 0, sizeof *to);
    if (address->family == AF_INET) {
        struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(port)};
        memcpy(&four.sin_addr, address->bytes, 4);
        memcpy(to, &four, sizeof four);
        return sizeof four;
    }
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    memcpy(&six.sin6_addr, address->bytes, 16);
    memcpy(to, &six, sizeof six);
    return sizeof six;
}

void cb_address_print(const struct cb_address *address, char text[static CB_ADDRESS_TEXT])
{
    if (!inet_ntop(address->family, address->bytes, text, CB_ADDRESS_TEXT))
        text[0] = '\0';
}

struct cb_address cb_address_plain(struct cb_address address)
{
    unmap(&address);
    return address;
}

bool cb_address_equal(const struct cb_address *one, const struct cb_address *other)
{
    return one->family == other->family && memcmp(one->bytes, other->bytes, sizeof one->bytes) == 0;
}

/* Are the first bits the same? */
static bool same_bits(const uint8_t *one, const uint8_t *other, unsigned bits)
{
    unsigned whole = bits / 8, rest = bits % 8;
    if (memcmp(one, other, whole) != 0)
        return false;
    return rest == 0 || (one[whole] ^ other[whole]) >> (8 - rest) == 0;
}

/* Clears the bits beyond the length; true when there were any. */
static bool clear_beyond(struct cb_prefix *prefix)
{
    uint8_t *bytes = prefix->address.bytes;
    bool any = false;
    for (unsigned bit = prefix->length; bit < bits_of(&prefix->address); bit++) {
        uint8_t mask = (uint8_t)(0x80 >> bit % 8);
        any |= (bytes[bit / 8] & mask) != 0;
        bytes[bit / 8] &= (uint8_t)~mask;
    }
    return any;
}

const char *cb_prefix_parse(const char *text, struct cb_prefix *prefix)
{
    static const char *const reason = "is not an address: write one such as \"203.0.113.9\" or \"2001:db8::9\", or a "
                                      "range such as \"10.1.0.0/16\"";
    *prefix = (struct cb_prefix){0};
    struct cb_prefix made = {0};
    const char *slash = strchr(text, '/');
    size_t length = slash ? (size_t)(slash - text) : strlen(text);
    char address[CB_ADDRESS_TEXT];
    if (length >= sizeof address)
        return reason;
    memcpy(address, text, length);
    address[length] = '\0';
    if (!parse(address, &made.address))
        return reason;
    unsigned most = bits_of(&made.address), bits = most;
    if (slash) {
        const char *digits = slash + 1;
        size_t count = strspn(digits, "0123456789");
        bool number = count > 0 && count <= 3 && !digits[count] && (digits[0] != '0' || count == 1);
        if (!number || (bits = (unsigned)strtoul(digits, NULL, 10)) > most)
            return most == 32 ? "has no length from 0 to 32 behind the \"/\""
                              : "has no length from 0 to 128 behind the \"/\"";
    }
    made.length = (uint8_t)bits;
    bool beyond = clear_beyond(&made);
    unmap(&made.address);
    if (most == 128 && made.address.family == AF_INET) {
        if (bits < 96)
            return "holds all of IPv4 and more: write the IPv4 range as such";
        made.length = (uint8_t)(bits - 96);
    }
    *prefix = made;
    return beyond ? "has bits set beyond its length" : NULL;
}

void cb_prefix_print(const struct cb_prefix *prefix, char text[static CB_PREFIX_TEXT])
{
    char address[CB_ADDRESS_TEXT];
    cb_address_print(&prefix->address, address);
    if (prefix->length == bits_of(&prefix->address))
        snprintf(text, CB_PREFIX_TEXT, "%s", address);
    else
        snprintf(text, CB_PREFIX_TEXT, "%s/%u", address, prefix->length);
}

bool cb_prefix_contains(const struct cb_prefix *prefix, const struct cb_address *address)
{
    return prefix->address.family == address->family &&
           same_bits(prefix->address.bytes, address->bytes, prefix->length);
}

/* ---- Special ranges ---- */

struct special {
    uint8_t bytes[16];
    uint8_t length;
    enum cb_class class;
};

static const struct special four[] = {
    {{0}, 8, CB_CLASS_UNSPECIFIED},
    {{10}, 8, CB_CLASS_PRIVATE},
    {{100, 64}, 10, CB_CLASS_CARRIER},
    {{100, 100, 100, 200}, 32, CB_CLASS_METADATA}, /* Alibaba */
    {{127}, 8, CB_CLASS_LOOPBACK},
    {{168, 63, 129, 16}, 32, CB_CLASS_METADATA}, /* Azure, in the middle of public addresses */
    {{169, 254}, 16, CB_CLASS_LINK_LOCAL},
    {{169, 254, 0, 23}, 32, CB_CLASS_METADATA},    /* Tencent */
    {{169, 254, 42, 42}, 32, CB_CLASS_METADATA},   /* Scaleway */
    {{169, 254, 169, 254}, 32, CB_CLASS_METADATA}, /* nearly all */
    {{169, 254, 170, 2}, 32, CB_CLASS_METADATA},   /* Amazon, containers */
    {{169, 254, 170, 23}, 32, CB_CLASS_METADATA},  /* Amazon, pods */
    {{172, 16}, 12, CB_CLASS_PRIVATE},
    {{192, 0, 0}, 24, CB_CLASS_RESERVED},
    {{192, 0, 0, 192}, 32, CB_CLASS_METADATA}, /* Oracle */
    {{192, 0, 2}, 24, CB_CLASS_RESERVED},
    {{192, 88, 99}, 24, CB_CLASS_RESERVED}, /* relays of 6to4 */
    {{192, 168}, 16, CB_CLASS_PRIVATE},
    {{198, 18}, 15, CB_CLASS_RESERVED},
    {{198, 51, 100}, 24, CB_CLASS_RESERVED},
    {{203, 0, 113}, 24, CB_CLASS_RESERVED},
    {{224}, 4, CB_CLASS_MULTICAST},
    {{240}, 4, CB_CLASS_RESERVED},
    {{255, 255, 255, 255}, 32, CB_CLASS_BROADCAST},
};

static const struct special six[] = {
    {{0}, 128, CB_CLASS_UNSPECIFIED},
    {{[15] = 1}, 128, CB_CLASS_LOOPBACK},
    {{0}, 96, CB_CLASS_RESERVED},                                  /* compatible with IPv4, long given up */
    {{0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff}, 96, CB_CLASS_RESERVED}, /* translated, likewise */
    {{0x00, 0x64, 0xff, 0x9b, 0x00, 0x01}, 48, CB_CLASS_PRIVATE},  /* NAT64 of one network */
    {{0x01}, 64, CB_CLASS_RESERVED},                               /* discard */
    {{0x20, 0x01}, 23, CB_CLASS_RESERVED},                         /* protocols, with Teredo and benchmarks */
    {{0x20, 0x01, 0x0d, 0xb8}, 32, CB_CLASS_RESERVED},
    {{0x20, 0x02}, 16, CB_CLASS_RESERVED}, /* 6to4 */
    {{0x3f, 0xff}, 20, CB_CLASS_RESERVED},
    {{0x5f, 0x00}, 16, CB_CLASS_RESERVED},
    {{0xfc}, 7, CB_CLASS_PRIVATE},
    {{0xfd, 0x00, 0x00, 0x42, [15] = 0x42}, 128, CB_CLASS_METADATA},                   /* Scaleway */
    {{0xfd, 0x00, 0x00, 0xc1, [12] = 0xa9, 0xfe, 0xa9, 0xfe}, 128, CB_CLASS_METADATA}, /* Oracle */
    {{0xfd, 0x00, 0x0e, 0xc2, [15] = 0x23}, 128, CB_CLASS_METADATA},                   /* Amazon, pods */
    {{0xfd, 0x00, 0x0e, 0xc2, [14] = 0x02, 0x54}, 128, CB_CLASS_METADATA},             /* Amazon */
    {{0xfd, 0x20, 0x00, 0xce, [14] = 0x02, 0x54}, 128, CB_CLASS_METADATA},             /* Google */
    {{0xfe, 0x80}, 10, CB_CLASS_LINK_LOCAL},
    {{0xfe, 0x80, [12] = 0xa9, 0xfe, 0xa9, 0xfe}, 128, CB_CLASS_METADATA}, /* OpenStack */
    {{0xfe, 0xc0}, 10, CB_CLASS_PRIVATE},                                  /* of a site, given up */
    {{0xff}, 8, CB_CLASS_MULTICAST},
};

/* Where an IPv6 address carries an IPv4 address. Teredo has two: its server, and behind it, inverted, the other end. A
 * NAT64 under a prefix of a network's own can't be told from other addresses of that network. */
enum { WELL_KNOWN_NAT64 };
static const struct {
    uint8_t bytes[16];
    uint8_t length;
    uint8_t at; /* the byte where it starts */
    bool inverted;
} carriers[] = {
    [WELL_KNOWN_NAT64] = {{0x00, 0x64, 0xff, 0x9b}, 96, 12, false},
    {{0}, 96, 12, false},
    {{0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff}, 96, 12, false},
    {{0x00, 0x64, 0xff, 0x9b, 0x00, 0x01}, 48, 12, false},
    {{0x20, 0x02}, 16, 2, false},
    {{0x20, 0x01}, 32, 4, false},
    {{0x20, 0x01}, 32, 12, true},
};

bool cb_class_is_closed(enum cb_class class)
{
    return class == CB_CLASS_UNSPECIFIED || class == CB_CLASS_LOOPBACK || class == CB_CLASS_BROADCAST;
}

static void narrower(struct cb_range *best, struct cb_range found)
{
    bool first = cb_class_is_closed(found.class), last = cb_class_is_closed(best->class);
    if (best->class == CB_CLASS_PUBLIC || (first != last ? first : found.length > best->length))
        *best = found;
}

static void look_up(const struct special *table, size_t count, const uint8_t *bytes, unsigned start, bool carried,
                    struct cb_range *best)
{
    for (size_t i = 0; i < count; i++)
        if (same_bits(table[i].bytes, bytes, table[i].length))
            narrower(best, (struct cb_range){table[i].class, (uint8_t)(start + table[i].length), carried});
}

#define COUNT(table) (sizeof(table) / sizeof *(table))

struct cb_range cb_address_range(const struct cb_address *address)
{
    struct cb_range best = {.class = CB_CLASS_PUBLIC};
    if (address->family == AF_INET) {
        look_up(four, COUNT(four), address->bytes, 0, false, &best);
        return best;
    }
    look_up(six, COUNT(six), address->bytes, 0, false, &best);
    /* :: and ::1 are in the range of the compatible form, but carry nothing. */
    if (cb_class_is_closed(best.class))
        return best;
    for (size_t i = 0; i < COUNT(carriers); i++) {
        if (!same_bits(carriers[i].bytes, address->bytes, carriers[i].length))
            continue;
        uint8_t carried[4];
        for (unsigned byte = 0; byte < 4; byte++)
            carried[byte] = address->bytes[carriers[i].at + byte] ^ (carriers[i].inverted ? 0xff : 0);
        look_up(four, COUNT(four), carried, carriers[i].at * 8u, true, &best);
    }
    /* What is not 2000::/3 is nobody's, or somebody's overlay network; but for NAT64, whose addresses stand for
     * others. */
    if (best.class == CB_CLASS_PUBLIC && address->bytes[0] >> 5 != 1 &&
        !same_bits(carriers[WELL_KNOWN_NAT64].bytes, address->bytes, 96))
        best = (struct cb_range){.class = CB_CLASS_RESERVED, .length = 3};
    return best;
}

bool cb_range_opened_by(struct cb_range range, unsigned length)
{
    return range.class == CB_CLASS_PUBLIC || (!cb_class_is_closed(range.class) && length >= range.length);
}

const char *cb_class_word(enum cb_class class)
{
    static const char *const words[] = {
        [CB_CLASS_PUBLIC] = "public",       [CB_CLASS_UNSPECIFIED] = "unspecified", [CB_CLASS_LOOPBACK] = "loopback",
        [CB_CLASS_PRIVATE] = "private",     [CB_CLASS_LINK_LOCAL] = "link-local",   [CB_CLASS_METADATA] = "metadata",
        [CB_CLASS_CARRIER] = "carrier NAT", [CB_CLASS_MULTICAST] = "multicast",     [CB_CLASS_BROADCAST] = "broadcast",
        [CB_CLASS_RESERVED] = "reserved",
    };
    return words[class];
}
