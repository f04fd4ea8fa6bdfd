/* Questions for names and the answers to them, as bytes (RFC 1035, the size of datagrams by RFC 6891). Reads what the
 * code in the cell wrote: any bytes. Pure functions. */
#pragma once

#include "base/address.h"
#include "policy/hostname.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CB_DNS_A = 1, CB_DNS_AAAA = 28, CB_DNS_SVCB = 64, CB_DNS_HTTPS = 65 };
enum { CB_DNS_FINE = 0, CB_DNS_FORMAT = 1, CB_DNS_FAILURE = 2, CB_DNS_NO_NAME = 3, CB_DNS_UNKNOWN = 4, CB_DNS_REFUSED = 5 };
enum { CB_DNS_QUESTION = 12 + 255 + 4, CB_DNS_LARGEST = 4096 };

struct cb_question {
    uint8_t bytes[CB_DNS_QUESTION]; /* header and question, as they came: both are repeated in the answer */
    size_t length;
    uint16_t type;
    int wrong;              /* CB_DNS_*: what is to be answered at once, or CB_DNS_FINE */
    char name[CB_HOSTNAME_TEXT];    /* in the form of cb_hostname_plain(); empty for what can't be a host's name */
    char shown[CB_HOSTNAME_TEXT * 4]; /* for people, whatever it is */
    size_t room;            /* how large an answer may be as a datagram */
    bool extended;          /* the question has an OPT record */
};

/* False: not a question at all, and not to be answered. */
bool cb_dns_read(const uint8_t *bytes, size_t length, struct cb_question *question);

struct cb_dns_answer {
    uint8_t bytes[CB_DNS_LARGEST];
    size_t length;
    size_t room;
    uint16_t owner;         /* where the name is that the next record is about */
    unsigned count;
    bool cut;               /* there was no room for all */
};

/* `room` is that of the question, or CB_DNS_LARGEST for an answer that does not go as a datagram. */
void cb_dns_begin(struct cb_dns_answer *answer, const struct cb_question *question, int code, size_t room);
/* What was asked for is another name's; the next records are about that one. */
void cb_dns_alias(struct cb_dns_answer *answer, const char *name, uint32_t lifetime);
void cb_dns_address(struct cb_dns_answer *answer, const struct cb_address *address, uint32_t lifetime);
void cb_dns_end(struct cb_dns_answer *answer, const struct cb_question *question);
