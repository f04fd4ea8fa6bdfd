/* Fuzz target: any bytes as a question for a name, and every kind of answer to it. Nothing may be read or written out
 * of bounds; what is taken for a host's name is one; the question is repeated as it came; and the answer is never
 * larger than there is room for, says how many records it has, and c-ares can read it. */
#define CARES_NO_DEPRECATED
#include "base/cleanup.h"
#include "relay/dns.h"

#include <ares.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int truth)
{
    if (!truth)
        abort();
}

static unsigned get16(const uint8_t *at)
{
    return (unsigned)(at[0] << 8 | at[1]);
}

static void check(const struct cb_question *question, const uint8_t *data, size_t size)
{
    char again[CB_HOSTNAME_TEXT];
    require(question->length >= 12 && question->length <= sizeof question->bytes && question->length <= size);
    require(memcmp(question->bytes, data, question->length) == 0);
    require(question->room >= 512 && question->room <= 1232 && question->wrong >= 0 && question->wrong <= 5);
    require(memchr(question->shown, '\0', sizeof question->shown) != NULL);
    for (const char *at = question->shown; *at; at++)
        require((unsigned char)*at >= 0x20 && *at != 0x7f);
    if (question->name[0])
        require(cb_hostname_plain(question->name, strlen(question->name), again) && strcmp(question->name, again) == 0);
    require(!question->wrong || question->wrong == CB_DNS_REFUSED || !question->name[0]);
}

/* `plan` is what is put in: one byte for each record. */
static void respond(const struct cb_question *question, size_t room, const uint8_t *plan, size_t count)
{
    static const char *const names[] = {"a", "cdn.example.net", "xn--bcher-kva.example",
                                        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.example.org"};
    cb_autofree struct cb_dns_answer *answer = malloc(sizeof *answer);
    struct cb_address address = {.family = AF_INET, .bytes = {1, 2, 3, 4}};
    unsigned put = 0;
    cb_dns_begin(answer, question, question->wrong, room);
    for (size_t i = 0; i < count && question->length > 12; i++, put++) {
        address.family = plan[i] & 1 ? AF_INET : AF_INET6;
        if (plan[i] & 2)
            cb_dns_alias(answer, names[plan[i] >> 2 & 3], plan[i]);
        else
            cb_dns_address(answer, &address, plan[i]);
    }
    cb_dns_end(answer, question);
    require(answer->length <= room && answer->length <= sizeof answer->bytes);
    require(get16(answer->bytes + 6) == (answer->cut ? 0 : put) && get16(answer->bytes + 2) & 0x8000);
    require(get16(answer->bytes) == get16(question->bytes));
    require(!(get16(answer->bytes + 2) & 0x0200) == !answer->cut);
    struct hostent *host = NULL;
    struct ares_addrttl lives[64];
    int most = 64;
    int status = ares_parse_a_reply(answer->bytes, (int)answer->length, &host, lives, &most);
    require(status != ARES_EBADRESP || question->length == 12 || !question->name[0]);
    ares_free_hostent(host);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    cb_autofree uint8_t *copy = malloc(size ? size : 1); /* of just that size */
    struct cb_question question;
    memcpy(copy, data, size);
    if (!cb_dns_read(copy, size, &question)) {
        require(size < 12 || data[2] & 0x80);
        return 0;
    }
    check(&question, data, size);
    const uint8_t *plan = data + question.length;
    size_t count = size - question.length < 256 ? size - question.length : 256;
    respond(&question, question.room, plan, count);
    respond(&question, CB_DNS_LARGEST, plan, count);
    return 0;
}
