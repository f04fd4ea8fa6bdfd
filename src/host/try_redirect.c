/* Attempt with nftables: in a network namespace of its own, every outgoing connection is redirected to one listener.
 *
 * The few netlink messages are put together by hand, which spares a library: a table, a nat chain on the output hook
 * and one rule (load a port, redirect to it), in one batch. Then a connection to another port must arrive at the
 * listener and still show where it wanted to go. */
#include "host/attempt.h"

#include "base/cleanup.h"
#include "base/missing.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>

#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter_ipv4.h>
#include <linux/netlink.h>

struct batch {
    _Alignas(8) char data[1024]; /* the whole batch takes about half of it */
    size_t length;
};

/* Every piece of a message is padded to four bytes. */
static size_t put(struct batch *batch, const void *data, size_t length)
{
    size_t at = batch->length;
    if (length)
        memcpy(batch->data + at, data, length);
    batch->length += NLMSG_ALIGN(length);
    return at;
}

static size_t begin_message(struct batch *batch, unsigned type, uint16_t resource, uint32_t sequence)
{
    bool in_batch = type >> 8 == NFNL_SUBSYS_NFTABLES;
    struct nlmsghdr header = {
        .nlmsg_type = (uint16_t)type,
        .nlmsg_flags = in_batch ? NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE : NLM_F_REQUEST,
        .nlmsg_seq = sequence,
    };
    struct nfgenmsg family = {.nfgen_family = in_batch ? NFPROTO_IPV4 : AF_UNSPEC, .res_id = htons(resource)};
    size_t at = put(batch, &header, sizeof header);
    put(batch, &family, sizeof family);
    return at;
}

static void end_message(struct batch *batch, size_t at)
{
    ((struct nlmsghdr *)(void *)(batch->data + at))->nlmsg_len = (uint32_t)(batch->length - at);
}

static void attribute(struct batch *batch, unsigned type, const void *data, size_t length)
{
    struct nlattr header = {.nla_type = (uint16_t)type, .nla_len = (uint16_t)(NLA_HDRLEN + length)};
    put(batch, &header, sizeof header);
    put(batch, data, length);
}

static void attribute_text(struct batch *batch, unsigned type, const char *text)
{
    attribute(batch, type, text, strlen(text) + 1);
}

static void attribute_number(struct batch *batch, unsigned type, uint32_t number)
{
    number = htonl(number);
    attribute(batch, type, &number, sizeof number);
}

static size_t begin_nest(struct batch *batch, unsigned type)
{
    struct nlattr header = {.nla_type = (uint16_t)(type | NLA_F_NESTED)};
    return put(batch, &header, sizeof header);
}

static void end_nest(struct batch *batch, size_t at)
{
    ((struct nlattr *)(void *)(batch->data + at))->nla_len = (uint16_t)(batch->length - at);
}

enum { SEQUENCE_TABLE = 1, SEQUENCE_CHAIN, SEQUENCE_RULE };

static void redirect_batch(struct batch *batch, uint16_t port)
{
    const unsigned nft = NFNL_SUBSYS_NFTABLES << 8;
    end_message(batch, begin_message(batch, NFNL_MSG_BATCH_BEGIN, NFNL_SUBSYS_NFTABLES, 0));

    size_t message = begin_message(batch, nft | NFT_MSG_NEWTABLE, 0, SEQUENCE_TABLE);
    attribute_text(batch, NFTA_TABLE_NAME, "cellblock");
    end_message(batch, message);

    message = begin_message(batch, nft | NFT_MSG_NEWCHAIN, 0, SEQUENCE_CHAIN);
    attribute_text(batch, NFTA_CHAIN_TABLE, "cellblock");
    attribute_text(batch, NFTA_CHAIN_NAME, "out");
    size_t hook = begin_nest(batch, NFTA_CHAIN_HOOK);
    attribute_number(batch, NFTA_HOOK_HOOKNUM, NF_INET_LOCAL_OUT);
    attribute_number(batch, NFTA_HOOK_PRIORITY, (uint32_t)NF_IP_PRI_NAT_DST);
    end_nest(batch, hook);
    attribute_text(batch, NFTA_CHAIN_TYPE, "nat");
    end_message(batch, message);

    message = begin_message(batch, nft | NFT_MSG_NEWRULE, 0, SEQUENCE_RULE);
    attribute_text(batch, NFTA_RULE_TABLE, "cellblock");
    attribute_text(batch, NFTA_RULE_CHAIN, "out");
    size_t expressions = begin_nest(batch, NFTA_RULE_EXPRESSIONS);

    size_t expression = begin_nest(batch, NFTA_LIST_ELEM);
    attribute_text(batch, NFTA_EXPR_NAME, "immediate");
    size_t data = begin_nest(batch, NFTA_EXPR_DATA);
    attribute_number(batch, NFTA_IMMEDIATE_DREG, NFT_REG_1);
    size_t value = begin_nest(batch, NFTA_IMMEDIATE_DATA);
    attribute(batch, NFTA_DATA_VALUE, &port, sizeof port);
    end_nest(batch, value);
    end_nest(batch, data);
    end_nest(batch, expression);

    expression = begin_nest(batch, NFTA_LIST_ELEM);
    attribute_text(batch, NFTA_EXPR_NAME, "redir");
    data = begin_nest(batch, NFTA_EXPR_DATA);
    attribute_number(batch, NFTA_REDIR_REG_PROTO_MIN, NFT_REG_1);
    end_nest(batch, data);
    end_nest(batch, expression);

    end_nest(batch, expressions);
    end_message(batch, message);
    end_message(batch, begin_message(batch, NFNL_MSG_BATCH_END, NFNL_SUBSYS_NFTABLES, SEQUENCE_RULE + 1));
}

/* Reads the kernel's answers until the rule is acknowledged or something is refused. */
static struct cb_attempt acknowledgement(int netlink)
{
    for (;;) {
        struct pollfd poll_fd = {.fd = netlink, .events = POLLIN};
        _Alignas(8) char buffer[4096];
        ssize_t length = poll(&poll_fd, 1, 1500) == 1 ? recv(netlink, buffer, sizeof buffer, 0) : -1;
        if (length < 0)
            return cb_attempt_failed("hearing from nftables");
        size_t left = (size_t)length;
        for (struct nlmsghdr *header = (void *)buffer; NLMSG_OK(header, left); header = NLMSG_NEXT(header, left)) {
            if (header->nlmsg_type != NLMSG_ERROR)
                continue;
            const struct nlmsgerr *answer = NLMSG_DATA(header);
            uint32_t sequence = header->nlmsg_seq;
            if (answer->error != 0)
                return (struct cb_attempt){
                    .step = sequence == SEQUENCE_CHAIN  ? "making an nftables nat chain"
                            : sequence == SEQUENCE_RULE ? "making an nftables redirect rule"
                                                        : "making an nftables table",
                    .errnum = -answer->error,
                };
            if (sequence == SEQUENCE_RULE)
                return (struct cb_attempt){0};
        }
    }
}

static struct cb_attempt add_redirect(uint16_t port)
{
    cb_autofd int netlink = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_NETFILTER);
    if (netlink < 0)
        return cb_attempt_failed("socket(NETLINK_NETFILTER)");
    struct batch batch = {.length = 0};
    redirect_batch(&batch, port);
    struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
    if (sendto(netlink, batch.data, batch.length, 0, (struct sockaddr *)&kernel, sizeof kernel) < 0)
        return cb_attempt_failed("talking to nftables");
    return acknowledgement(netlink);
}

static int loopback_up(void)
{
    cb_autofd int any = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
    return any < 0 ? -1 : ioctl(any, SIOCSIFFLAGS, &request);
}

struct cb_attempt cb_try_redirect(int unused)
{
    if (loopback_up() < 0)
        return cb_attempt_failed("bringing up loopback");
    struct sockaddr_in address = {.sin_family = AF_INET};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    cb_autofd int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, length) < 0 || listen(listener, 1) < 0 ||
        getsockname(listener, (struct sockaddr *)&address, &length) < 0)
        return cb_attempt_failed("listening on loopback");
    struct cb_attempt added = add_redirect(address.sin_port);
    if (added.step)
        return added;

    uint16_t other = htons(ntohs(address.sin_port) == 9 ? 10 : 9);
    address.sin_port = other;
    cb_autofd int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (client < 0 || (connect(client, (struct sockaddr *)&address, sizeof address) < 0 && errno != EINPROGRESS))
        return cb_attempt_failed("connecting through the redirect");
    struct pollfd poll_fd = {.fd = listener, .events = POLLIN};
    if (poll(&poll_fd, 1, 1000) != 1)
        return (struct cb_attempt){.step = "connecting through the redirect", .errnum = ETIMEDOUT};
    cb_autofd int accepted = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    struct sockaddr_in wanted = {0};
    length = sizeof wanted;
    if (accepted < 0 || getsockopt(accepted, SOL_IP, SO_ORIGINAL_DST, &wanted, &length) < 0)
        return cb_attempt_failed("asking for the original destination");
    if (wanted.sin_port != other)
        return (struct cb_attempt){.step = "finding the original destination", .errnum = EADDRNOTAVAIL};
    return (struct cb_attempt){0};
}
