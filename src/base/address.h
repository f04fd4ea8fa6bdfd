/* Internet addresses: reading, printing, prefixes, and which of them are special. Pure functions.
 *
 * An address that is IPv4 in an IPv6 notation (::ffff:1.2.3.4) is the IPv4 address: the kernel makes no difference
 * when it connects, so it becomes one as soon as it is read. Other IPv6 addresses that carry an IPv4 address (NAT64,
 * 6to4, Teredo, the old compatible form) remain what they are, and what is special about the address that they carry
 * is special about them too: a gateway on the way may send the packets there. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sockaddr;
struct sockaddr_storage;

struct cb_address {
    uint16_t family;    /* AF_INET or AF_INET6 */
    uint8_t bytes[16];  /* as on the wire; IPv4 in the first four, the rest zero */
};

struct cb_prefix {
    struct cb_address address; /* no bits set beyond the length */
    uint8_t length;            /* in bits: 0 to 32, or to 128 */
};

#define CB_ADDRESS_TEXT 46 /* room for a printed address */
#define CB_PREFIX_TEXT 50

/* Dotted decimal with four numbers, or IPv6 without a zone: nothing shorter, octal or hexadecimal. */
bool cb_address_parse(const char *text, struct cb_address *address);
/* From a socket address of any family and any length; false when it is none, or cut off. The scope of an IPv6 address
 * is left out: it counts interfaces of a cell, which mean nothing outside. */
bool cb_address_from(const struct sockaddr *from, size_t length, struct cb_address *address, uint16_t *port);
/* Returns the length for connect(). */
unsigned cb_address_to(const struct cb_address *address, uint16_t port, struct sockaddr_storage *to);
void cb_address_print(const struct cb_address *address, char text[static CB_ADDRESS_TEXT]);
/* ::ffff:1.2.3.4 becomes 1.2.3.4, everything else stays; for addresses that came from elsewhere. */
struct cb_address cb_address_plain(struct cb_address address);
bool cb_address_equal(const struct cb_address *one, const struct cb_address *other);

/* "10.1.0.0/16", "2001:db8::/32" or a single address. Returns NULL, or what is wrong, worded to follow the text. Bits
 * beyond the length are refused, and *prefix then holds what was probably meant; in all other cases its family is 0. */
const char *cb_prefix_parse(const char *text, struct cb_prefix *prefix);
/* A single address is printed without its length. */
void cb_prefix_print(const struct cb_prefix *prefix, char text[static CB_PREFIX_TEXT]);
bool cb_prefix_contains(const struct cb_prefix *prefix, const struct cb_address *address);

enum cb_class {
    CB_CLASS_PUBLIC,      /* none of the others */
    CB_CLASS_UNSPECIFIED, /* 0.0.0.0/8, ::; to Linux the host itself */
    CB_CLASS_LOOPBACK,
    CB_CLASS_PRIVATE,
    CB_CLASS_LINK_LOCAL,
    CB_CLASS_METADATA, /* services of a cloud's host machine, which hand out credentials */
    CB_CLASS_CARRIER,  /* shared by customers of a provider, also used inside clouds and by overlay networks */
    CB_CLASS_MULTICAST,
    CB_CLASS_BROADCAST,
    CB_CLASS_RESERVED, /* for documentation, benchmarks, protocols, or the future */
};

/* A special range that an address is in. */
struct cb_range {
    enum cb_class class; /* CB_CLASS_PUBLIC: there is none */
    uint8_t length;      /* how many bits of the address it takes to be in it; counted from the start of the address as
                          * it is, also when the range is that of an IPv4 address inside of it */
    bool carried;        /* it is the range of an IPv4 address that the IPv6 address carries */
};

/* The narrowest special range of an address. One that nothing may open (unspecified, loopback, broadcast) comes before
 * all others. */
struct cb_range cb_address_range(const struct cb_address *address);
/* Does a prefix of this length that contains the address open the range to it? Only one that lies in the range, which
 * is to say: names it, or a part of it. */
bool cb_range_opened_by(struct cb_range range, unsigned length);
/* Is this one of those that no prefix opens? */
bool cb_class_is_closed(enum cb_class class);

/* "private", "link-local", … */
const char *cb_class_word(enum cb_class class);
