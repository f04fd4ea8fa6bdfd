#include "relay/dns.h"

#include "base/cleanup.h"
#include "base/text.h"

#include <string.h>
#include <sys/socket.h>

enum { HEADER = 12, RESPONSE = 0x8000, OPCODE = 0x7800, CUT = 0x0200, RECURSION = 0x0100, RECURSION_HERE = 0x0080 };
enum { OPT = 41, CLASS_IN = 1, CNAME = 5, PLAIN_DATAGRAM = 512, OUR_DATAGRAM = 1232, POINTER = 0xc000 };

static uint16_t get16(const uint8_t *at)
{
    return (uint16_t)(at[0] << 8 | at[1]);
}

static void put16(uint8_t *at, unsigned number)
{
    at[0] = (uint8_t)(number >> 8);
    at[1] = (uint8_t)number;
}

/* Where the name that starts at `at` ends; 0 if it is none. A question has no use for pointers. */
static size_t name_end(const uint8_t *bytes, size_t length, size_t at)
{
    size_t start = at;
    while (at < length && bytes[at] != 0) {
        if (bytes[at] > 63)
            return 0;
        at += 1u + bytes[at];
    }
    return at < length && at + 1 - start <= 255 ? at + 1 : 0;
}

/* The labels with dots between them; a label with a dot in it, or anything else that no host is called, leaves it
 * empty. */
static void read_name(struct cb_question *question, size_t end)
{
    char text[256];
    size_t length = 0;
    bool odd = false;
    for (size_t at = HEADER; at + 1 < end; at += 1u + question->bytes[at]) {
        if (length)
            text[length++] = '.';
        for (size_t i = 1; i <= question->bytes[at]; i++) {
            odd |= question->bytes[at + i] == '.';
            text[length++] = (char)question->bytes[at + i];
        }
    }
    if (odd || !cb_hostname_plain(text, length, question->name))
        question->name[0] = '\0';
    cb_autofree char *shown = cb_printable(text, length);
    size_t size = shown ? strlen(shown) : 0;
    if (size >= sizeof question->shown)
        size = sizeof question->shown - 1;
    if (size)
        memcpy(question->shown, shown, size);
    question->shown[size] = '\0';
}

/* An OPT record says how large an answer may be. It can only be the first after the question here, as a question has
 * nothing before it that we accept. */
static void read_extension(const uint8_t *bytes, size_t length, size_t at, struct cb_question *question)
{
    if (get16(bytes + 10) == 0 || length - at < 11 || bytes[at] != 0 || get16(bytes + at + 1) != OPT)
        return;
    size_t size = get16(bytes + at + 3);
    question->extended = true;
    question->room = size < PLAIN_DATAGRAM ? PLAIN_DATAGRAM : size > OUR_DATAGRAM ? OUR_DATAGRAM : size;
}

bool cb_dns_read(const uint8_t *bytes, size_t length, struct cb_question *question)
{
    *question = (struct cb_question){.room = PLAIN_DATAGRAM, .length = HEADER};
    if (length < HEADER || get16(bytes + 2) & RESPONSE)
        return false;
    memcpy(question->bytes, bytes, HEADER);
    if (get16(bytes + 2) & OPCODE) {
        question->wrong = CB_DNS_UNKNOWN;
        return true;
    }
    size_t end = get16(bytes + 4) == 1 && get16(bytes + 6) == 0 && get16(bytes + 8) == 0
                     ? name_end(bytes, length, HEADER)
                     : 0;
    if (!end || length - end < 4) {
        question->wrong = CB_DNS_FORMAT;
        return true;
    }
    question->length = end + 4;
    memcpy(question->bytes, bytes, question->length);
    question->type = get16(bytes + end);
    question->wrong = get16(bytes + end + 2) == CLASS_IN ? CB_DNS_FINE : CB_DNS_REFUSED;
    read_name(question, end);
    read_extension(bytes, length, question->length, question);
    return true;
}

void cb_dns_begin(struct cb_dns_answer *answer, const struct cb_question *question, int code, size_t room)
{
    *answer = (struct cb_dns_answer){.length = question->length, .owner = HEADER};
    answer->room = (room < sizeof answer->bytes ? room : sizeof answer->bytes) - (question->extended ? 11 : 0);
    memcpy(answer->bytes, question->bytes, question->length);
    put16(answer->bytes + 2, RESPONSE | (get16(question->bytes + 2) & RECURSION) | RECURSION_HERE | (unsigned)code);
    put16(answer->bytes + 4, question->length > HEADER);
    memset(answer->bytes + 6, 0, 6);
}

/* Returns where the data goes, or NULL when it does not fit. */
static uint8_t *record(struct cb_dns_answer *answer, unsigned type, uint32_t lifetime, size_t size)
{
    if (answer->cut || answer->room - answer->length < 12 + size) {
        answer->cut = true;
        return NULL;
    }
    uint8_t *at = answer->bytes + answer->length;
    put16(at, POINTER | answer->owner);
    put16(at + 2, type);
    put16(at + 4, CLASS_IN);
    put16(at + 6, lifetime >> 16);
    put16(at + 8, lifetime & 0xffff);
    put16(at + 10, (unsigned)size);
    answer->length += 12 + size;
    answer->count++;
    return at + 12;
}

/* `name` is in the plain form: labels of 1 to 63 bytes. */
void cb_dns_alias(struct cb_dns_answer *answer, const char *name, uint32_t lifetime)
{
    uint8_t *at = record(answer, CNAME, lifetime, strlen(name) + 2);
    if (!at)
        return;
    answer->owner = (uint16_t)(at - answer->bytes);
    for (;;) {
        size_t label = strcspn(name, ".");
        *at++ = (uint8_t)label;
        memcpy(at, name, label);
        at += label;
        if (!name[label])
            break;
        name += label + 1;
    }
    *at = 0;
}

void cb_dns_address(struct cb_dns_answer *answer, const struct cb_address *address, uint32_t lifetime)
{
    bool four = address->family == AF_INET;
    uint8_t *at = record(answer, four ? CB_DNS_A : CB_DNS_AAAA, lifetime, four ? 4 : 16);
    if (at)
        memcpy(at, address->bytes, four ? 4 : 16);
}

void cb_dns_end(struct cb_dns_answer *answer, const struct cb_question *question)
{
    if (answer->cut) { /* as if there were none: whoever needs them asks again, over a connection */
        answer->length = question->length;
        answer->count = 0;
        put16(answer->bytes + 2, get16(answer->bytes + 2) | CUT);
    }
    put16(answer->bytes + 6, answer->count);
    if (!question->extended)
        return;
    const uint8_t opt[11] = {0, 0, OPT, OUR_DATAGRAM >> 8, OUR_DATAGRAM & 0xff};
    memcpy(answer->bytes + answer->length, opt, sizeof opt);
    answer->length += sizeof opt;
    put16(answer->bytes + 10, 1);
}
