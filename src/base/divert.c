#include "base/divert.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/if_addr.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

const uint8_t cb_divert_own4[4] = {192, 0, 0, 8};
const uint8_t cb_divert_own6[16] = {0xfd, 0x00, 0x00, 0xcb, [15] = 1};
const uint8_t cb_divert_resolver[4] = {127, 0, 0, 53};

bool cb_divert_is_own(int family, const uint8_t *bytes)
{
    return family == AF_INET ? memcmp(bytes, cb_divert_own4, sizeof cb_divert_own4) == 0
                             : memcmp(bytes, cb_divert_own6, sizeof cb_divert_own6) == 0;
}

int cb_divert_loopback_up(void)
{
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING | IFF_LOOPBACK};
    int failed = ioctl(fd, SIOCSIFFLAGS, &request) < 0 || ioctl(fd, SIOCGIFINDEX, &request) < 0;
    int saved = errno;
    close(fd);
    errno = saved;
    return failed ? -1 : request.ifr_ifindex;
}

/* ---- Address and route ---- */

void cb_divert_routes(struct cb_netlink *batch, int loopback_index, int family)
{
    bool four = family == AF_INET;
    const void *own = four ? (const void *)cb_divert_own4 : cb_divert_own6;
    size_t size = four ? sizeof cb_divert_own4 : sizeof cb_divert_own6;
    const struct ifaddrmsg address = {.ifa_family = (uint8_t)family, .ifa_prefixlen = four ? 32 : 128,
                                      .ifa_flags = IFA_F_PERMANENT | (four ? 0 : IFA_F_NODAD),
                                      .ifa_index = (unsigned)loopback_index};
    size_t at = cb_netlink_begin(batch, RTM_NEWADDR, NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL, &address, sizeof address);
    cb_netlink_attribute(batch, IFA_LOCAL, own, size);
    cb_netlink_attribute(batch, IFA_ADDRESS, own, size);
    cb_netlink_end(batch, at);

    const struct rtmsg route = {.rtm_family = (uint8_t)family, .rtm_table = RT_TABLE_LOCAL, .rtm_protocol = RTPROT_BOOT,
                                .rtm_scope = RT_SCOPE_HOST, .rtm_type = RTN_LOCAL};
    const uint32_t index = (uint32_t)loopback_index;
    at = cb_netlink_begin(batch, RTM_NEWROUTE, NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL, &route, sizeof route);
    cb_netlink_attribute(batch, RTA_OIF, &index, sizeof index);
    cb_netlink_attribute(batch, RTA_PREFSRC, own, size);
    cb_netlink_end(batch, at);
}

/* ---- nftables ---- */

static const char table[] = "cellblock", arrivals[] = "arrivals", diverted[] = "diverted";

static size_t begin(struct cb_netlink *batch, unsigned type, int family)
{
    const struct nfgenmsg header = {.nfgen_family = family == AF_INET ? NFPROTO_IPV4 : NFPROTO_IPV6};
    return cb_netlink_begin(batch, (uint16_t)(NFNL_SUBSYS_NFTABLES << 8 | type),
                            NLM_F_ACK | NLM_F_CREATE | (type == NFT_MSG_NEWRULE ? NLM_F_APPEND : 0), &header,
                            sizeof header);
}

static void border(struct cb_netlink *batch, uint16_t type)
{
    const struct nfgenmsg header = {.res_id = htons(NFNL_SUBSYS_NFTABLES)};
    cb_netlink_end(batch, cb_netlink_begin(batch, type, 0, &header, sizeof header));
}

static void table_message(struct cb_netlink *batch, unsigned type, int family)
{
    size_t message = begin(batch, type, family);
    cb_netlink_text(batch, NFTA_TABLE_NAME, table);
    cb_netlink_end(batch, message);
}

/* A rule is a list of expressions; the first that does not hold ends it. */
struct rule {
    struct cb_netlink *batch;
    size_t message, list;
};

static struct rule begin_rule(struct cb_netlink *batch, int family, const char *chain)
{
    struct rule rule = {.batch = batch, .message = begin(batch, NFT_MSG_NEWRULE, family)};
    cb_netlink_text(batch, NFTA_RULE_TABLE, table);
    cb_netlink_text(batch, NFTA_RULE_CHAIN, chain);
    rule.list = cb_netlink_nest(batch, NFTA_RULE_EXPRESSIONS);
    return rule;
}

static void end_rule(const struct rule *rule)
{
    cb_netlink_end_nest(rule->batch, rule->list);
    cb_netlink_end(rule->batch, rule->message);
}

struct expression {
    struct cb_netlink *batch;
    size_t element, data;
};

static struct expression begin_expression(const struct rule *rule, const char *name)
{
    struct expression expression = {.batch = rule->batch, .element = cb_netlink_nest(rule->batch, NFTA_LIST_ELEM)};
    cb_netlink_text(rule->batch, NFTA_EXPR_NAME, name);
    expression.data = cb_netlink_nest(rule->batch, NFTA_EXPR_DATA);
    return expression;
}

static void end_expression(const struct expression *expression)
{
    cb_netlink_end_nest(expression->batch, expression->data);
    cb_netlink_end_nest(expression->batch, expression->element);
}

static void value(struct cb_netlink *batch, unsigned type, const void *bytes, size_t length)
{
    size_t nest = cb_netlink_nest(batch, type);
    cb_netlink_attribute(batch, NFTA_DATA_VALUE, bytes, length);
    cb_netlink_end_nest(batch, nest);
}

static void compare(const struct rule *rule, unsigned operation, const void *bytes, size_t length)
{
    struct expression expression = begin_expression(rule, "cmp");
    cb_netlink_number(rule->batch, NFTA_CMP_SREG, NFT_REG_1);
    cb_netlink_number(rule->batch, NFTA_CMP_OP, operation);
    value(rule->batch, NFTA_CMP_DATA, bytes, length);
    end_expression(&expression);
}

static void load(const struct rule *rule, unsigned header, unsigned offset, unsigned length)
{
    struct expression expression = begin_expression(rule, "payload");
    cb_netlink_number(rule->batch, NFTA_PAYLOAD_DREG, NFT_REG_1);
    cb_netlink_number(rule->batch, NFTA_PAYLOAD_BASE, header);
    cb_netlink_number(rule->batch, NFTA_PAYLOAD_OFFSET, offset);
    cb_netlink_number(rule->batch, NFTA_PAYLOAD_LEN, length);
    end_expression(&expression);
}

static void load_meta(const struct rule *rule, unsigned key)
{
    struct expression expression = begin_expression(rule, "meta");
    cb_netlink_number(rule->batch, NFTA_META_DREG, NFT_REG_1);
    cb_netlink_number(rule->batch, NFTA_META_KEY, key);
    end_expression(&expression);
}

static void mask(const struct rule *rule, const void *bits, size_t length)
{
    static const uint8_t zero[16];
    struct expression expression = begin_expression(rule, "bitwise");
    cb_netlink_number(rule->batch, NFTA_BITWISE_SREG, NFT_REG_1);
    cb_netlink_number(rule->batch, NFTA_BITWISE_DREG, NFT_REG_1);
    cb_netlink_number(rule->batch, NFTA_BITWISE_LEN, (uint32_t)length);
    value(rule->batch, NFTA_BITWISE_MASK, bits, length);
    value(rule->batch, NFTA_BITWISE_XOR, zero, length);
    end_expression(&expression);
}

static void verdict(const struct rule *rule, int code, const char *chain)
{
    struct expression expression = begin_expression(rule, "immediate");
    cb_netlink_number(rule->batch, NFTA_IMMEDIATE_DREG, NFT_REG_VERDICT);
    size_t data = cb_netlink_nest(rule->batch, NFTA_IMMEDIATE_DATA);
    size_t nest = cb_netlink_nest(rule->batch, NFTA_DATA_VERDICT);
    cb_netlink_number(rule->batch, NFTA_VERDICT_CODE, (uint32_t)code);
    if (chain)
        cb_netlink_text(rule->batch, NFTA_VERDICT_CHAIN, chain);
    cb_netlink_end_nest(rule->batch, nest);
    cb_netlink_end_nest(rule->batch, data);
    end_expression(&expression);
}

static void has_protocol(const struct rule *rule, uint8_t protocol)
{
    load_meta(rule, NFT_META_L4PROTO);
    compare(rule, NFT_CMP_EQ, &protocol, sizeof protocol);
}

static void load_destination(const struct rule *rule, int family)
{
    if (family == AF_INET)
        load(rule, NFT_PAYLOAD_NETWORK_HEADER, 16, 4);
    else
        load(rule, NFT_PAYLOAD_NETWORK_HEADER, 24, 16);
}

static void is_loopback(const struct rule *rule, int family)
{
    static const uint8_t bits[4] = {255}, net[4] = {127}, six[16] = {[15] = 1};
    load_destination(rule, family);
    if (family == AF_INET)
        mask(rule, bits, sizeof bits);
    compare(rule, NFT_CMP_EQ, family == AF_INET ? (const void *)net : six, family == AF_INET ? sizeof net : sizeof six);
}

static void has_port(const struct rule *rule, uint16_t port)
{
    port = htons(port);
    load(rule, NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2);
    compare(rule, NFT_CMP_EQ, &port, sizeof port);
}

static void add_chain(struct cb_netlink *batch, int family, const char *name, bool hooked)
{
    size_t message = begin(batch, NFT_MSG_NEWCHAIN, family);
    cb_netlink_text(batch, NFTA_CHAIN_TABLE, table);
    cb_netlink_text(batch, NFTA_CHAIN_NAME, name);
    if (hooked) {
        size_t hook = cb_netlink_nest(batch, NFTA_CHAIN_HOOK);
        cb_netlink_number(batch, NFTA_HOOK_HOOKNUM, NF_INET_PRE_ROUTING);
        cb_netlink_number(batch, NFTA_HOOK_PRIORITY, (uint32_t)-150);
        cb_netlink_end_nest(batch, hook);
        cb_netlink_text(batch, NFTA_CHAIN_TYPE, "filter");
    }
    cb_netlink_end(batch, message);
}

static void is_marked(const struct rule *rule)
{
    const uint32_t mark = CB_DIVERT_MARK;
    load_meta(rule, NFT_META_MARK);
    compare(rule, NFT_CMP_EQ, &mark, sizeof mark);
}

/* What carries our mark was sent by whoever holds the sockets, and is on its way to the cell; but for first packets. */
static void let_marked_in(struct cb_netlink *batch, int family)
{
    static const uint8_t tcp = IPPROTO_TCP, flags = 0x12, syn = 0x02; /* SYN of SYN and ACK */
    struct rule rule = begin_rule(batch, family, arrivals);
    is_marked(&rule);
    load_meta(&rule, NFT_META_L4PROTO);
    compare(&rule, NFT_CMP_NEQ, &tcp, sizeof tcp);
    verdict(&rule, NF_ACCEPT, NULL);
    end_rule(&rule);
    rule = begin_rule(batch, family, arrivals);
    is_marked(&rule);
    has_protocol(&rule, IPPROTO_TCP);
    load(&rule, NFT_PAYLOAD_TRANSPORT_HEADER, 13, 1);
    mask(&rule, &flags, 1);
    compare(&rule, NFT_CMP_NEQ, &syn, 1);
    verdict(&rule, NF_ACCEPT, NULL);
    end_rule(&rule);
}

/* What is the cell's own stays; the rest is diverted. */
static void add_arrivals(struct cb_netlink *batch, const struct cb_divert *divert, int family)
{
    let_marked_in(batch, family);
    struct rule rule = begin_rule(batch, family, arrivals); /* the listener's own port: seen, and held, like others */
    has_protocol(&rule, IPPROTO_TCP);
    has_port(&rule, CB_DIVERT_PORT);
    verdict(&rule, NFT_GOTO, diverted);
    end_rule(&rule);
    rule = begin_rule(batch, family, arrivals);
    load_destination(&rule, family);
    compare(&rule, NFT_CMP_EQ, family == AF_INET ? (const void *)cb_divert_own4 : cb_divert_own6,
            family == AF_INET ? sizeof cb_divert_own4 : sizeof cb_divert_own6);
    verdict(&rule, NF_ACCEPT, NULL);
    end_rule(&rule);
    static const uint8_t protocols[] = {IPPROTO_UDP, IPPROTO_TCP};
    for (size_t i = 0; i < sizeof protocols && family == AF_INET; i++) {
        rule = begin_rule(batch, family, arrivals);
        load_destination(&rule, family);
        compare(&rule, NFT_CMP_EQ, cb_divert_resolver, sizeof cb_divert_resolver);
        has_protocol(&rule, protocols[i]);
        has_port(&rule, 53);
        verdict(&rule, NFT_GOTO, diverted);
        end_rule(&rule);
    }
    for (size_t i = 0; i < divert->count; i++) {
        rule = begin_rule(batch, family, arrivals);
        is_loopback(&rule, family);
        has_protocol(&rule, divert->loopback[i].datagrams ? IPPROTO_UDP : IPPROTO_TCP);
        has_port(&rule, divert->loopback[i].port);
        verdict(&rule, NFT_GOTO, diverted);
        end_rule(&rule);
    }
    rule = begin_rule(batch, family, arrivals);
    is_loopback(&rule, family);
    verdict(&rule, NF_ACCEPT, NULL);
    end_rule(&rule);
    rule = begin_rule(batch, family, arrivals);
    verdict(&rule, NFT_GOTO, diverted);
    end_rule(&rule);
}

static void hold_first_packets(struct cb_netlink *batch, int family)
{
    static const uint8_t flags = 0x17, syn = 0x02; /* SYN of SYN, ACK, RST and FIN */
    const uint32_t mark = CB_DIVERT_MARK;
    struct rule rule = begin_rule(batch, family, diverted);
    has_protocol(&rule, IPPROTO_TCP);
    load(&rule, NFT_PAYLOAD_TRANSPORT_HEADER, 13, 1);
    mask(&rule, &flags, 1);
    compare(&rule, NFT_CMP_EQ, &syn, 1);
    load_meta(&rule, NFT_META_MARK);
    compare(&rule, NFT_CMP_NEQ, &mark, sizeof mark);
    verdict(&rule, NF_DROP, NULL);
    end_rule(&rule);
}

static void give_to_socket(struct cb_netlink *batch, int family, uint8_t protocol)
{
    const uint16_t port = htons(CB_DIVERT_PORT);
    struct rule rule = begin_rule(batch, family, diverted);
    has_protocol(&rule, protocol);
    struct expression expression = begin_expression(&rule, "immediate");
    cb_netlink_number(batch, NFTA_IMMEDIATE_DREG, NFT_REG_1);
    value(batch, NFTA_IMMEDIATE_DATA, &port, sizeof port);
    end_expression(&expression);
    expression = begin_expression(&rule, "tproxy");
    cb_netlink_number(batch, NFTA_TPROXY_FAMILY, family == AF_INET ? NFPROTO_IPV4 : NFPROTO_IPV6);
    cb_netlink_number(batch, NFTA_TPROXY_REG_PORT, NFT_REG_1);
    end_expression(&expression);
    verdict(&rule, NF_ACCEPT, NULL);
    end_rule(&rule);
}

void cb_divert_rules(struct cb_netlink *batch, const struct cb_divert *divert, int family, bool again)
{
    border(batch, NFNL_MSG_BATCH_BEGIN);
    if (again)
        table_message(batch, NFT_MSG_DELTABLE, family);
    table_message(batch, NFT_MSG_NEWTABLE, family);
    add_chain(batch, family, diverted, false);
    add_chain(batch, family, arrivals, true);
    hold_first_packets(batch, family);
    give_to_socket(batch, family, IPPROTO_TCP);
    give_to_socket(batch, family, IPPROTO_UDP);
    struct rule rule = begin_rule(batch, family, diverted);
    verdict(&rule, NF_DROP, NULL);
    end_rule(&rule);
    add_arrivals(batch, divert, family);
    border(batch, NFNL_MSG_BATCH_END);
}

/* ---- Sockets ---- */

static int fail_and_close(int fd)
{
    int saved = errno;
    close(fd);
    errno = saved;
    return -1;
}

static int set(int fd, int level, int option, int number)
{
    return setsockopt(fd, level, option, &number, sizeof number);
}

/* At port 1 of the address that the kernel takes for loopback's first: it sorts those of IPv6 by their reach. */
static int bind_to_port(int fd, int family)
{
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(CB_DIVERT_PORT)};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons(CB_DIVERT_PORT)};
    four.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    memcpy(&six.sin6_addr, cb_divert_own6, sizeof six.sin6_addr);
    return family == AF_INET ? bind(fd, (struct sockaddr *)&four, sizeof four)
                             : bind(fd, (struct sockaddr *)&six, sizeof six);
}

static int open_diverted(int family, int type)
{
    int fd = socket(family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    int level = family == AF_INET ? SOL_IP : SOL_IPV6;
    int failed = set(fd, level, family == AF_INET ? IP_TRANSPARENT : IPV6_TRANSPARENT, 1);
    if (!failed)
        failed = set(fd, SOL_SOCKET, SO_MARK, CB_DIVERT_MARK); /* and so of every connection that arrives */
    if (!failed && family == AF_INET6)
        failed = set(fd, SOL_IPV6, IPV6_V6ONLY, 1);
    if (!failed && type == SOCK_DGRAM)
        failed = set(fd, level, family == AF_INET ? IP_RECVORIGDSTADDR : IPV6_RECVORIGDSTADDR, 1);
    failed = failed || bind_to_port(fd, family) < 0 || (type == SOCK_STREAM && listen(fd, 4096) < 0);
    return failed ? fail_and_close(fd) : fd;
}

static int open_raw(int family)
{
    int fd = socket(family, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_RAW);
    if (fd < 0)
        return -1;
    return set(fd, SOL_SOCKET, SO_MARK, CB_DIVERT_MARK) < 0 || set(fd, SOL_SOCKET, SO_SNDBUF, 4 << 20) < 0
               ? fail_and_close(fd)
               : fd;
}

/* Sees first packets without our mark. Whole ones only, without extension headers: others stay dropped. */
static int open_tap(int family, int loopback_index)
{
    struct sock_filter four[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)SKF_AD_OFF + SKF_AD_MARK),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, CB_DIVERT_MARK, 8, 0),
        BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 9),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, IPPROTO_TCP, 0, 6),
        BPF_STMT(BPF_LD | BPF_H | BPF_ABS, 6),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, 0x3fff, 4, 0), /* a fragment */
        BPF_STMT(BPF_LDX | BPF_B | BPF_MSH, 0),
        BPF_STMT(BPF_LD | BPF_B | BPF_IND, 13),
        BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0x17),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0x02, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, 0),
        BPF_STMT(BPF_RET | BPF_K, 0xffff),
    };
    struct sock_filter six[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)SKF_AD_OFF + SKF_AD_MARK),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, CB_DIVERT_MARK, 5, 0),
        BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 6),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, IPPROTO_TCP, 0, 3),
        BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 40 + 13),
        BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0x17),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0x02, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, 0),
        BPF_STMT(BPF_RET | BPF_K, 0xffff),
    };
    const struct sock_fprog program = {
        .len = (unsigned short)(family == AF_INET ? sizeof four / sizeof *four : sizeof six / sizeof *six),
        .filter = family == AF_INET ? four : six};
    const uint16_t protocol = htons(family == AF_INET ? ETH_P_IP : ETH_P_IPV6);
    const struct sockaddr_ll where = {
        .sll_family = AF_PACKET, .sll_protocol = protocol, .sll_ifindex = loopback_index};
    int fd = socket(AF_PACKET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); /* deaf until it is bound */
    if (fd < 0)
        return -1;
    return setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program) < 0 ||
                   set(fd, SOL_SOCKET, SO_RCVBUF, 4 << 20) < 0 ||
                   bind(fd, (const struct sockaddr *)&where, sizeof where) < 0
               ? fail_and_close(fd)
               : fd;
}

int cb_divert_open(enum cb_divert_socket which, int loopback_index)
{
    switch (which) {
    case CB_DIVERT_LISTENER4: return open_diverted(AF_INET, SOCK_STREAM);
    case CB_DIVERT_LISTENER6: return open_diverted(AF_INET6, SOCK_STREAM);
    case CB_DIVERT_UDP4: return open_diverted(AF_INET, SOCK_DGRAM);
    case CB_DIVERT_UDP6: return open_diverted(AF_INET6, SOCK_DGRAM);
    case CB_DIVERT_RAW4: return open_raw(AF_INET);
    case CB_DIVERT_RAW6: return open_raw(AF_INET6);
    case CB_DIVERT_TAP4: return open_tap(AF_INET, loopback_index);
    case CB_DIVERT_TAP6: return open_tap(AF_INET6, loopback_index);
    case CB_DIVERT_NETFILTER: return socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_NETFILTER);
    case CB_DIVERT_SOCKETS: break;
    }
    errno = EINVAL;
    return -1;
}
