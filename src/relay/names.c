/* The cell's resolver: answers questions for names that the policy allows, live, from the host's own name servers
 * (c-ares), and remembers which name led to which address. A connection by name can go to those addresses and no others,
 * so what counts is what this cell was told, not what a name leads to a moment later or for somebody else.
 *
 *   A, AAAA       answered; addresses that the rules do not allow are left out, and noted
 *   HTTPS, SVCB   answered with nothing: they carry addresses that would pass by what is remembered, and programs go on
 *                 to ask for those that don't
 *   others        refused, and so are other names
 *
 * Questions come as datagrams or over connections. Both are bounded, and answered or dropped. */
#include "relay/relay.h"

#include "base/cleanup.h"
#include "base/text.h"
#include "relay/dns.h"

#include <ares.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>

enum {
    PINS = 8192,
    BUCKETS = 1024,
    LOOKUPS = 256,          /* under way at the same time */
    CLIENTS = 64,
    SERVERS = 8,
    CLIENT_MS = 30000,
    PATIENCE_MS = 2500,     /* for one server, the first time */
    TRIES = 3,
    ALIASES = 16,
    EXPECTED = 256,
};

/* This name led to this address. */
struct pin {
    struct pin *chain;
    struct cb_address address;
    char name[CB_HOSTNAME_TEXT];
};

/* A socket of c-ares. */
struct errand {
    struct cb_source source;
    struct errand *next;
    struct cb_names_service *names;
    int fd;
};

/* A connection to the resolver. */
struct client {
    struct cb_source source;
    struct client *next;
    struct cb_names_service *names;
    int fd;
    size_t lookups;         /* that still refer to it */
    bool ended;             /* no more questions come */
    uint64_t since;
    size_t have;
    uint8_t bytes[2 + 1024];
};

struct lookup {
    struct cb_names_service *names;
    struct cb_question question;
    struct cb_flow flow;
    struct client *client;  /* or NULL: it came as a datagram */
};

struct cb_names_service {
    struct cb_relay *relay;
    ares_channel channel;
    bool library;           /* c-ares was initialised */
    struct pin *buckets[BUCKETS];
    struct pin *pins[PINS]; /* a ring: the oldest makes room */
    size_t next_pin;
    struct errand *errands, *spent;
    struct client *clients, *gone;
    size_t lookup_count, client_count;
    struct cb_address servers[SERVERS];
    size_t server_count;
    char **domains;         /* that the host's resolver appends to short names */
    int domain_count;
    struct ares_options found;
    struct cb_source door;  /* tier landlock: where connections to the resolver arrive */
    int listener;
    uint16_t expected[EXPECTED];
    size_t next_expected;
};

/* ---- What led where ---- */

static struct pin **bucket_of(const struct cb_names_service *names, const struct cb_address *address)
{
    uint32_t hash = 0;
    for (size_t i = 0; i < 16; i++)
        hash = (hash ^ address->bytes[i]) * 16777619u;
    return (struct pin **)(uintptr_t)&names->buckets[(hash ^ hash >> 16) % BUCKETS];
}

static void forget(struct cb_names_service *names, struct pin *pin)
{
    struct pin **at = bucket_of(names, &pin->address);
    while (*at != pin)
        at = &(*at)->chain;
    *at = pin->chain;
    free(pin);
}

static int remember(struct cb_names_service *names, const char *name, const struct cb_address *address)
{
    struct pin **bucket = bucket_of(names, address);
    for (const struct pin *at = *bucket; at; at = at->chain)
        if (cb_address_equal(&at->address, address) && strcmp(at->name, name) == 0)
            return 0;
    struct pin *pin = calloc(1, sizeof *pin);
    if (!pin)
        return -1;
    pin->address = *address;
    strcpy(pin->name, name); /* both have room for CB_HOSTNAME_TEXT */
    pin->chain = *bucket;
    *bucket = pin;
    struct pin **slot = &names->pins[names->next_pin++ % PINS];
    if (*slot)
        forget(names, *slot);
    *slot = pin;
    return 0;
}

size_t cb_names_of(const struct cb_names_service *names, const struct cb_address *address, const char **list,
                   size_t most)
{
    size_t count = 0;
    for (const struct pin *at = *bucket_of(names, address); at && count < most; at = at->chain)
        if (cb_address_equal(&at->address, address))
            list[count++] = at->name;
    return count;
}

bool cb_names_is_server(const struct cb_names_service *names, const struct cb_address *address)
{
    for (size_t i = 0; i < names->server_count; i++)
        if (cb_address_equal(&names->servers[i], address))
            return true;
    return false;
}

/* ---- Answering ---- */

static void close_client(struct client *client)
{
    struct cb_names_service *names = client->names;
    struct client **at = &names->clients;
    while (*at && *at != client)
        at = &(*at)->next;
    if (!*at)
        return;
    *at = client->next;
    cb_close_cleanup(&client->fd);
    client->fd = -1;
    names->client_count--;
    client->next = names->gone; /* freed once nothing refers to it */
    names->gone = client;
}

static void deliver(const struct lookup *lookup, const struct cb_dns_answer *answer)
{
    struct cb_names_service *names = lookup->names;
    if (!lookup->client) {
        cb_udp_reply(names->relay, &lookup->flow, answer->bytes, answer->length);
        return;
    }
    uint8_t framed[2 + CB_DNS_LARGEST];
    framed[0] = (uint8_t)(answer->length >> 8);
    framed[1] = (uint8_t)answer->length;
    memcpy(framed + 2, answer->bytes, answer->length);
    size_t size = answer->length + 2;
    if (lookup->client->fd >= 0 &&
        send(lookup->client->fd, framed, size, MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)size)
        close_client(lookup->client); /* it does not read what it asks for */
}

static size_t room_for(const struct lookup *lookup)
{
    return lookup->client ? CB_DNS_LARGEST : lookup->question.room;
}

static void answer_code(const struct lookup *lookup, int code)
{
    struct cb_dns_answer answer;
    cb_dns_begin(&answer, &lookup->question, code, room_for(lookup));
    cb_dns_end(&answer, &lookup->question);
    deliver(lookup, &answer);
}

/* The way from the name to the one that has the addresses, as far as it consists of names. */
static void add_aliases(struct cb_dns_answer *answer, const char *name, const struct ares_addrinfo *found)
{
    char plain[CB_HOSTNAME_TEXT];
    for (int i = 0; i < ALIASES; i++) {
        const struct ares_addrinfo_cname *at = found->cnames;
        while (at && !(at->alias && at->name && strcasecmp(at->alias, name) == 0))
            at = at->next;
        if (!at || !cb_hostname_plain(at->name, strlen(at->name), plain))
            return;
        cb_dns_alias(answer, plain, at->ttl > 0 ? (uint32_t)at->ttl : 0);
        name = at->name;
    }
}

/* An answer that grows by what is allowed of what was found. */
struct finding {
    struct lookup *lookup;
    struct cb_dns_answer answer;
    bool any, refused;
};

static void begin_finding(struct finding *finding, struct lookup *lookup)
{
    *finding = (struct finding){.lookup = lookup};
    cb_dns_begin(&finding->answer, &lookup->question, CB_DNS_FINE, room_for(lookup));
}

static void add_found(struct finding *finding, const struct cb_address *address, uint32_t lifetime)
{
    struct cb_relay *relay = finding->lookup->names->relay;
    const char *name = finding->lookup->question.name;
    struct cb_net_decision decision = cb_decide_answer(relay->policy, name, address);
    if (decision.allowed && remember(finding->lookup->names, name, address) == 0) {
        finding->any = true;
        cb_dns_address(&finding->answer, address, lifetime);
    } else if (!decision.allowed) {
        char text[CB_ADDRESS_TEXT];
        cb_address_print(address, text);
        cb_autofree char *object = cb_format("%s (%s)", name, text);
        finding->refused = true;
        if (object)
            cb_refuse_name(relay, "network.answer", object, &decision);
    }
}

static void end_finding(struct finding *finding)
{
    if (!finding->any) {
        answer_code(finding->lookup, finding->refused ? CB_DNS_REFUSED : CB_DNS_FINE);
        return;
    }
    cb_dns_end(&finding->answer, &finding->lookup->question);
    deliver(finding->lookup, &finding->answer);
}

static void answer_found(struct lookup *lookup, const struct ares_addrinfo *found)
{
    struct finding finding;
    begin_finding(&finding, lookup);
    add_aliases(&finding.answer, lookup->question.name, found);
    for (const struct ares_addrinfo_node *at = found->nodes; at; at = at->ai_next) {
        struct cb_address address;
        uint16_t port;
        if (cb_address_from(at->ai_addr, at->ai_addrlen, &address, &port) && address.family == at->ai_family)
            add_found(&finding, &address, at->ai_ttl > 0 ? (uint32_t)at->ai_ttl : 0);
    }
    end_finding(&finding);
}

/* The host's list has the last word on names that are in it, also when they have addresses of the other family only. */
static bool is_listed(struct lookup *lookup, int family)
{
    struct cb_names_service *names = lookup->names;
    struct hostent *found = NULL, *other = NULL;
    struct finding finding;
    bool listed = ares_gethostbyname_file(names->channel, lookup->question.name, family, &found) == ARES_SUCCESS;
    if (!listed && ares_gethostbyname_file(names->channel, lookup->question.name,
                                           family == AF_INET ? AF_INET6 : AF_INET, &other) != ARES_SUCCESS)
        return false;
    begin_finding(&finding, lookup);
    for (char **at = listed && found->h_addrtype == family ? found->h_addr_list : NULL; at && *at; at++) {
        struct cb_address address = {.family = (uint16_t)family};
        memcpy(address.bytes, *at, family == AF_INET ? 4 : 16);
        add_found(&finding, &address, 0);
    }
    end_finding(&finding);
    ares_free_hostent(found);
    ares_free_hostent(other);
    return true;
}

static void on_found(void *data, int status, int timeouts, struct ares_addrinfo *found)
{
    struct lookup *lookup = data;
    (void)timeouts;
    /* The policy may have changed meanwhile. */
    if (status == ARES_EDESTRUCTION || status == ARES_ECANCELLED)
        ;
    else if (!cb_decide_name(lookup->names->relay->policy, lookup->question.name).allowed)
        answer_code(lookup, CB_DNS_REFUSED);
    else if (status == ARES_SUCCESS && found)
        answer_found(lookup, found);
    else
        answer_code(lookup, status == ARES_ENODATA     ? CB_DNS_FINE
                            : status == ARES_ENOTFOUND ? CB_DNS_NO_NAME
                                                       : CB_DNS_FAILURE);
    if (found)
        ares_freeaddrinfo(found);
    if (lookup->client)
        lookup->client->lookups--;
    lookup->names->lookup_count--;
    free(lookup);
}

/* ---- Questions ---- */

static bool is_allowed_with(const struct cb_names_service *names, const char *front, size_t length, const char *domain)
{
    char whole[CB_HOSTNAME_TEXT];
    int size = snprintf(whole, sizeof whole, "%.*s%s%s", (int)length, front, domain ? "." : "", domain ? domain : "");
    return size > 0 && (size_t)size < sizeof whole && cb_decide_name(names->relay->policy, whole).allowed;
}

/* A name with one of the host's search domains behind it: what a resolver library asks first, or as a last resort, for any
 * name. If the name is allowed without it, or with another of them, "no such name" lets it go on. */
static bool is_search(const struct cb_names_service *names, const char *name)
{
    size_t length = strlen(name);
    for (int i = 0; i < names->domain_count; i++) {
        size_t tail = strlen(names->domains[i]);
        if (length <= tail + 1 || strcasecmp(name + length - tail, names->domains[i]) != 0 ||
            name[length - tail - 1] != '.')
            continue;
        size_t front = length - tail - 1;
        bool allowed = is_allowed_with(names, name, front, NULL);
        for (int j = 0; j < names->domain_count && !allowed; j++)
            allowed = is_allowed_with(names, name, front, names->domains[j]);
        if (allowed)
            return true;
    }
    return false;
}

static void refuse(const struct lookup *lookup, const struct cb_net_decision *decision, bool type)
{
    const struct cb_question *question = &lookup->question;
    cb_autofree char *object = type ? cb_format("%s (type %u)", question->shown, question->type)
                                    : strdup(question->name[0] ? question->name : question->shown);
    if (object)
        cb_refuse_name(lookup->names->relay, "network.name", object, decision);
    answer_code(lookup, CB_DNS_REFUSED);
}

/* True when the lookup is under way, and no longer ours. */
static bool ask(struct lookup *lookup)
{
    struct cb_names_service *names = lookup->names;
    const struct cb_question *question = &lookup->question;
    if (question->wrong) {
        answer_code(lookup, question->wrong);
        return false;
    }
    struct cb_net_decision decision = cb_decide_name(names->relay->policy, question->name);
    bool address = question->type == CB_DNS_A || question->type == CB_DNS_AAAA;
    bool nothing = question->type == CB_DNS_HTTPS || question->type == CB_DNS_SVCB;
    if (!decision.allowed && question->name[0] && is_search(names, question->name)) {
        answer_code(lookup, CB_DNS_NO_NAME);
        return false;
    }
    if (!decision.allowed || !(address || nothing)) {
        decision.suggest.kind = decision.allowed ? 0 : decision.suggest.kind;
        refuse(lookup, &decision, decision.allowed);
        return false;
    }
    if (nothing || names->relay->finishing) {
        answer_code(lookup, CB_DNS_FINE);
        return false;
    }
    if (names->lookup_count >= LOOKUPS) {
        answer_code(lookup, CB_DNS_FAILURE);
        return false;
    }
    int family = question->type == CB_DNS_A ? AF_INET : AF_INET6;
    if (is_listed(lookup, family))
        return false;
    const struct ares_addrinfo_hints hints = {
        .ai_family = family, .ai_flags = ARES_AI_NOSORT,
        .ai_socktype = SOCK_STREAM};
    names->lookup_count++;
    if (lookup->client)
        lookup->client->lookups++;
    ares_getaddrinfo(names->channel, question->name, NULL, &hints, on_found, lookup);
    return true;
}

static void take_question(struct cb_names_service *names, const struct cb_flow *flow, struct client *client,
                          const uint8_t *bytes, size_t length)
{
    struct lookup *lookup = calloc(1, sizeof *lookup);
    if (!lookup)
        return;
    lookup->names = names;
    lookup->client = client;
    if (flow)
        lookup->flow = *flow;
    if (!cb_dns_read(bytes, length, &lookup->question) || !ask(lookup))
        free(lookup);
}

void cb_names_question(struct cb_names_service *names, const struct cb_flow *flow, const uint8_t *bytes, size_t length)
{
    take_question(names, flow, NULL, bytes, length);
}

static void on_client(struct cb_source *source, uint32_t events)
{
    struct client *client = cb_container_of(source, struct client, source);
    (void)events;
    if (client->fd < 0)
        return;
    ssize_t got = recv(client->fd, client->bytes + client->have, sizeof client->bytes - client->have, MSG_DONTWAIT);
    if (got == 0 && client->lookups > 0) {
        client->ended = true; /* it still reads: closed when all is answered */
        cb_relay_unwatch(client->names->relay, client->fd);
        return;
    }
    if (got <= 0) {
        if (got == 0 || (errno != EAGAIN && errno != EINTR))
            close_client(client);
        return;
    }
    client->have += (size_t)got;
    client->since = client->names->relay->now;
    while (client->fd >= 0 && client->have >= 2) {
        size_t length = (size_t)(client->bytes[0] << 8 | client->bytes[1]);
        if (length > sizeof client->bytes - 2) {
            close_client(client); /* no question is that long */
            return;
        }
        if (client->have < length + 2)
            return;
        take_question(client->names, NULL, client, client->bytes + 2, length);
        client->have -= length + 2;
        memmove(client->bytes, client->bytes + length + 2, client->have);
    }
}

void cb_names_accept(struct cb_names_service *names, int fd)
{
    struct client *client = names->client_count < CLIENTS ? calloc(1, sizeof *client) : NULL;
    if (!client) {
        close(fd);
        return;
    }
    client->source.ready = on_client;
    client->names = names;
    client->fd = fd;
    client->since = names->relay->now;
    client->next = names->clients;
    names->clients = client;
    names->client_count++;
    if (cb_relay_watch(names->relay, fd, &client->source, EPOLLIN | EPOLLRDHUP) < 0)
        close_client(client);
}

static void on_door(struct cb_source *source, uint32_t events)
{
    struct cb_names_service *names = cb_container_of(source, struct cb_names_service, door);
    struct sockaddr_in from = {0};
    socklen_t size = sizeof from;
    (void)events;
    cb_autofd int fd = cb_relay_accept(names->relay, names->listener);
    if (fd < 0 || getpeername(fd, (struct sockaddr *)&from, &size) < 0 ||
        from.sin_addr.s_addr != htonl(INADDR_LOOPBACK))
        return;
    for (size_t i = 0; fd >= 0 && i < EXPECTED; i++)
        if (names->expected[i] != 0 && names->expected[i] == ntohs(from.sin_port)) {
            names->expected[i] = 0;
            cb_names_accept(names, cb_steal_fd(&fd));
        }
}

int cb_names_listen(struct cb_names_service *names, int listener)
{
    names->listener = listener;
    names->door.ready = on_door;
    return cb_relay_watch(names->relay, listener, &names->door, EPOLLIN);
}

void cb_names_expect(struct cb_names_service *names, uint16_t port)
{
    names->expected[names->next_expected++ % EXPECTED] = port;
}

uint16_t cb_names_door(const struct cb_names_service *names)
{
    struct sockaddr_in at = {0};
    socklen_t size = sizeof at;
    return names->listener >= 0 && getsockname(names->listener, (struct sockaddr *)&at, &size) == 0 ? ntohs(at.sin_port)
                                                                                                    : 0;
}

/* ---- c-ares ---- */

static void on_errand(struct cb_source *source, uint32_t events)
{
    struct errand *errand = cb_container_of(source, struct errand, source);
    if (errand->fd < 0)
        return;
    bool reads = events & (EPOLLIN | EPOLLERR | EPOLLHUP);
    ares_process_fd(errand->names->channel, reads ? errand->fd : ARES_SOCKET_BAD,
                    events & EPOLLOUT ? errand->fd : ARES_SOCKET_BAD);
}

/* It tells which of its sockets it waits for, and for what; for nothing before it closes one. */
static void on_socket(void *data, ares_socket_t fd, int reads, int writes)
{
    struct cb_names_service *names = data;
    struct errand **at = &names->errands;
    while (*at && (*at)->fd != fd)
        at = &(*at)->next;
    struct errand *errand = *at;
    if (!reads && !writes) {
        if (!errand)
            return;
        *at = errand->next;
        cb_relay_unwatch(names->relay, fd);
        errand->fd = -1;
        errand->next = names->spent; /* an event for it may still be waiting */
        names->spent = errand;
        return;
    }
    struct epoll_event event = {.events = (reads ? EPOLLIN : 0) | (writes ? EPOLLOUT : 0)};
    if (errand) {
        event.data.ptr = &errand->source;
        epoll_ctl(names->relay->epoll, EPOLL_CTL_MOD, fd, &event);
        return;
    }
    errand = calloc(1, sizeof *errand);
    if (!errand)
        return; /* it gives up on that server after a while */
    *errand = (struct errand){.source.ready = on_errand, .names = names, .fd = fd, .next = names->errands};
    names->errands = errand;
    cb_relay_watch(names->relay, fd, &errand->source, event.events);
}

int cb_names_timeout(struct cb_names_service *names)
{
    struct timeval room;
    if (names->lookup_count == 0)
        return names->clients ? 1000 : -1;
    struct timeval *left = ares_timeout(names->channel, NULL, &room);
    return left ? (int)(left->tv_sec * 1000 + left->tv_usec / 1000 + 1) : 1000;
}

void cb_names_tick(struct cb_names_service *names)
{
    if (names->lookup_count > 0)
        ares_process_fd(names->channel, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
    for (struct client *at = names->clients, *next; at; at = next) {
        next = at->next;
        if ((at->ended || names->relay->now - at->since > CLIENT_MS) && at->lookups == 0)
            close_client(at);
    }
    for (struct client **at = &names->gone; *at;) {
        struct client *client = *at;
        if (client->lookups > 0) {
            at = &client->next;
            continue;
        }
        *at = client->next;
        free(client);
    }
    for (struct errand *at = cb_steal(names->spent); at;) {
        struct errand *next = at->next;
        free(at);
        at = next;
    }
}

/* Which servers, and which domains for short names, is read here, before the relay is confined. */
static int read_settings(struct cb_names_service *names)
{
    struct ares_addr_node *servers = NULL;
    int mask = 0;
    if (ares_get_servers(names->channel, &servers) != ARES_SUCCESS)
        return -1;
    for (const struct ares_addr_node *at = servers; at && names->server_count < SERVERS; at = at->next) {
        struct cb_address *address = &names->servers[names->server_count++];
        address->family = (uint16_t)at->family;
        memcpy(address->bytes, &at->addr, at->family == AF_INET ? 4 : 16);
    }
    ares_free_data(servers);
    if (ares_save_options(names->channel, &names->found, &mask) != ARES_SUCCESS)
        return -1;
    names->domains = names->found.domains;
    names->domain_count = names->found.ndomains;
    return 0;
}

struct cb_names_service *cb_names_open(struct cb_relay *relay)
{
    struct cb_names_service *names = calloc(1, sizeof *names);
    if (!names)
        return NULL;
    names->relay = relay;
    names->listener = -1;
    static char order[] = "b"; /* the host's list is looked at before */
    struct ares_options options = {.flags = ARES_FLAG_NOSEARCH, .timeout = PATIENCE_MS, .tries = TRIES,
                                   .lookups = order, .sock_state_cb = on_socket, .sock_state_cb_data = names};
    int given = ARES_OPT_FLAGS | ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES | ARES_OPT_LOOKUPS | ARES_OPT_SOCK_STATE_CB;
#ifdef ARES_OPT_QUERY_CACHE
    given |= ARES_OPT_QUERY_CACHE; /* for no time at all: newer versions keep answers unless told so */
#endif
    names->library = ares_library_init(ARES_LIB_INIT_ALL) == ARES_SUCCESS;
    if (names->library && ares_init_options(&names->channel, &options, given) == ARES_SUCCESS &&
        read_settings(names) == 0)
        return names;
    cb_names_close(names);
    errno = ENOMEM;
    return NULL;
}

void cb_names_close(struct cb_names_service *names)
{
    if (!names)
        return;
    if (names->channel)
        ares_destroy(names->channel); /* ends every lookup */
    ares_destroy_options(&names->found);
    cb_close_cleanup(&names->listener);
    while (names->clients)
        close_client(names->clients);
    names->lookup_count = 0;
    cb_names_tick(names);
    for (size_t i = 0; i < PINS; i++)
        free(names->pins[i]);
    if (names->library)
        ares_library_cleanup();
    free(names);
}
