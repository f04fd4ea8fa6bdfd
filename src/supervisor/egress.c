/* See egress.h. Runs in the supervisor, from its event loop. It waits for the relay only while a cell starts and while
 * rules change; a relay that is busy keeps nobody waiting but its own cell. */
#include "supervisor/egress.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/missing.h"
#include "host/ids.h"
#include "policy/network.h"
#include "policy/pack.h"
#include "relay/link.h"
#include "supervisor/launch.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

enum { READY_MS = 15000, END_MS = 2000, FIRST_RELAY_ID = 1879048191 };

struct cb_egress {
    int link;
    struct cb_link_queue queue;
    bool queue_watched;
    bool changed;           /* the relay has answered to a change of rules, */
    int change_failed;      /* … with this errno */
    int pidfd;
    int netfilter;          /* of the cell's network namespace, for changes of rules */
    struct cb_divert divert;
    cellblock_policy *policy; /* as it was given: a relay has no use for what paths led to */
    uint64_t *questions;    /* calls that wait for the relay's word, by their ids */
    size_t question_count;
    int *stuck;             /* files of the code's that could not be handed over */
    size_t stuck_count;
    bool over;
    struct cb_traffic traffic;
    char text[CB_LINK_TEXT + 1];
};

int cb_egress_fd(const struct cb_egress *egress)
{
    return egress->link;
}

bool cb_egress_busy(const struct cb_egress *egress)
{
    return egress && !egress->over;
}

struct cb_traffic cb_egress_traffic(const struct cb_egress *egress)
{
    return egress ? egress->traffic : (struct cb_traffic){.unknown = false};
}

const cellblock_policy *cb_egress_policy(const struct cb_egress *egress)
{
    return egress ? egress->policy : NULL;
}

/* ---- Starting ---- */

/* It may have said why before it went. */
static int fail(struct cb_egress *egress, int errnum, const char *what, cellblock_error **error)
{
    struct cb_link_message message;
    int fd;
    ssize_t length = cb_link_receive(egress->link, &message, egress->text, &fd, MSG_DONTWAIT);
    cb_close_cleanup(&fd);
    if (length >= 0 && message.kind == CB_LINK_FAILED)
        cb_fail(error, CELLBLOCK_ERROR_REFUSED, message.number, "the cell's relay: %s", egress->text);
    else
        cb_fail(error, CELLBLOCK_ERROR_SETUP, errnum, "%s", what);
    return cb_error_layer(error, "relay");
}

static int tell(struct cb_egress *egress, const struct cb_link_message *message, int fd, cellblock_error **error)
{
    return cb_link_send(egress->link, message, NULL, 0, fd, 0) == 0
               ? 0
               : fail(egress, errno, "talking to the cell's relay", error);
}

static int send_policy(struct cb_egress *egress, const cellblock_policy *policy, int last, cellblock_error **error)
{
    cb_autotext struct cb_text packed = {0};
    cb_policy_pack(policy, &packed);
    if (packed.failed)
        return cb_fail_memory(error);
    for (size_t at = 0; at < packed.length; at += CB_LINK_TEXT) {
        size_t piece = packed.length - at < CB_LINK_TEXT ? packed.length - at : CB_LINK_TEXT;
        const struct cb_link_message message = {.kind = CB_LINK_POLICY, .number = at + piece == packed.length ? last : 0};
        if (cb_link_send(egress->link, &message, packed.data + at, piece, -1, 0) < 0)
            return fail(egress, errno, "talking to the cell's relay", error);
    }
    return 0;
}

/* An id that no cell is given either: relay and code share nothing. */
static struct cb_link_message settings_of(const struct cb_plan *plan)
{
    unsigned id = !plan->privileged ? 0 : cb_id_mapped(FIRST_RELAY_ID) ? FIRST_RELAY_ID : CB_NOBODY;
    return (struct cb_link_message){.kind = CB_LINK_SETTINGS, .number = !cb_layer_on(plan, CB_OFF_RELAY),
                                    .counts = {plan->network.bytes, plan->network.connections, id, id}};
}

struct publishing {
    struct cb_egress *egress;
    cellblock_error **error;
};

/* A listener at one of the two addresses of the host's loopback. */
static int listen_at(int family, uint16_t port)
{
    const struct cb_address loopback = family == AF_INET
                                           ? (struct cb_address){.family = AF_INET, .bytes = {127, 0, 0, 1}}
                                           : (struct cb_address){.family = AF_INET6, .bytes = {[15] = 1}};
    const int on = 1;
    struct sockaddr_storage address;
    socklen_t size = cb_address_to(&loopback, port, &address);
    cb_autofd int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) < 0 ||
        bind(fd, (struct sockaddr *)&address, size) < 0 || listen(fd, 128) < 0)
        return -1;
    return cb_steal_fd(&fd);
}

static int publish(const struct cb_publish_rule *rule, void *data)
{
    const struct publishing *publishing = data;
    const struct cb_link_message message = {.kind = CB_LINK_PUBLISH, .port = rule->port};
    cb_autofd int four = listen_at(AF_INET, rule->as);
    if (four < 0) {
        cb_fail(publishing->error, CELLBLOCK_ERROR_SETUP, errno, "publishing the cell's port %u as 127.0.0.1:%u", rule->port,
                rule->as);
        return cb_error_hint(publishing->error, "choose another port of the host: --publish %u:OTHER", rule->port);
    }
    if (tell(publishing->egress, &message, four, publishing->error) < 0)
        return -1;
    cb_autofd int six = listen_at(AF_INET6, rule->as);
    if (six < 0 && errno == EADDRINUSE) {
        cb_fail(publishing->error, CELLBLOCK_ERROR_SETUP, errno, "publishing the cell's port %u as [::1]:%u", rule->port,
                rule->as);
        return cb_error_hint(publishing->error, "choose another port of the host: --publish %u:OTHER", rule->port);
    }
    return six < 0 ? 0 : tell(publishing->egress, &message, six, publishing->error); /* a host without IPv6 */
}

static int wait_until_ready(struct cb_egress *egress, cellblock_error **error)
{
    struct cb_link_message message;
    struct pollfd ready = {.fd = egress->link, .events = POLLIN};
    int fd = -1, waited;
    while ((waited = poll(&ready, 1, READY_MS)) < 0 && errno == EINTR)
        ;
    if (waited <= 0)
        return fail(egress, waited == 0 ? ETIMEDOUT : errno, "waiting for the cell's relay", error);
    if (recv(egress->link, &message, sizeof message, MSG_PEEK | MSG_DONTWAIT) != (ssize_t)sizeof message ||
        message.kind != CB_LINK_READY)
        return fail(egress, EPIPE, "waiting for the cell's relay", error);
    cb_link_receive(egress->link, &message, egress->text, &fd, MSG_DONTWAIT);
    cb_close_cleanup(&fd);
    return 0;
}

/* Tier landlock: no sockets come from the cell. Names are asked for by TCP, at a port of the host's loopback. */
static int begin_brokering(struct cellblock_cell *cell, cellblock_error **error)
{
    struct cb_egress *egress = cell->egress;
    const struct cb_link_message carries = {.kind = CB_LINK_RESOLVER};
    const struct cb_link_message last = {.kind = CB_LINK_SOCKET, .number = CB_DIVERT_SOCKETS};
    const struct cb_resolved *resolved = cell->plan->resolved;
    cb_autofd int listener = listen_at(AF_INET, 0);
    if (listener < 0)
        return cb_fail_errno(error, "making a socket for the cell's resolver");
    for (size_t i = 0; i < resolved->socket_count; i++) {
        const struct cb_link_message place = {.kind = CB_LINK_PLACE};
        if (tell(egress, &place, resolved->sockets[i].fd, error) < 0)
            return -1;
    }
    return tell(egress, &carries, listener, error) < 0 || tell(egress, &last, -1, error) < 0 ||
                   wait_until_ready(egress, error) < 0
               ? -1
               : 0;
}

int cb_egress_start(struct cellblock_cell *cell, const cellblock_policy *policy, const char *program,
                    cellblock_error **error)
{
    const struct cb_plan *plan = cell->plan;
    int ends[2];
    if (!plan->network.relay)
        return 0;
    struct cb_egress *egress = cell->egress = calloc(1, sizeof *egress);
    if (!egress)
        return cb_fail_memory(error);
    egress->link = egress->pidfd = egress->netfilter = -1;
    egress->traffic.unknown = true;
    egress->divert = plan->network.divert;
    if (cb_policy_copy(policy, &egress->policy, error) < 0)
        return -1;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return cb_fail_errno(error, "making a socket pair");
    const struct timeval patience = {.tv_sec = READY_MS / 1000};
    egress->link = egress->queue.link = ends[0];
    egress->pidfd = cb_launch(program, "relay", ends[1], true);
    int failed = errno;
    close(ends[1]);
    setsockopt(egress->link, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    if (egress->pidfd < 0) {
        errno = failed;
        cb_fail(error, CELLBLOCK_ERROR_SETUP, errno, "starting the cell's relay, %s", program);
        cb_error_layer(error, "relay");
        return cb_error_hint(error, "install the cellblock program, or name it in helper_path");
    }
    const struct cb_link_message settings = settings_of(plan);
    struct publishing publishing = {.egress = egress, .error = error};
    if (tell(egress, &settings, -1, error) < 0 || send_policy(egress, policy, 1, error) < 0)
        return -1;
    return plan->network.brokered ? begin_brokering(cell, error)
                                  : cb_policy_publish_rules(plan->resolved->policy, publish, &publishing);
}

int cb_egress_take(struct cellblock_cell *cell, int which, int fd, cellblock_error **error)
{
    cb_autofd int socket = fd;
    struct cb_egress *egress = cell->egress;
    if (!egress || which < 0 || which > CB_DIVERT_SOCKETS || (socket < 0) != (which == CB_DIVERT_SOCKETS))
        return cb_fail(error, CELLBLOCK_ERROR_SETUP, EPROTO, "the cell while it was being set up");
    if (which == CB_DIVERT_NETFILTER) {
        egress->netfilter = cb_steal_fd(&socket);
        return 0;
    }
    const struct cb_link_message message = {.kind = CB_LINK_SOCKET, .number = which};
    if (tell(egress, &message, socket, error) < 0)
        return -1;
    if (which < CB_DIVERT_SOCKETS)
        return 0;
    const struct cb_message go = {.kind = CB_MESSAGE_GO};
    if (wait_until_ready(egress, error) < 0)
        return -1;
    return cb_wire_send(cell->wire, &go, -1) < 0
               ? cb_fail(error, CELLBLOCK_ERROR_SETUP, errno, "talking to the cell while it starts")
               : 0;
}

/* ---- Questions ---- */

/* Room on the link is only waited for while something is to be said. */
static void watch_queue(struct cellblock_cell *cell)
{
    struct cb_egress *egress = cell->egress;
    cb_link_flush(&egress->queue);
    bool waits = cb_link_waits(&egress->queue);
    struct epoll_event event = {.events = EPOLLIN | (waits ? EPOLLOUT : 0), .data.ptr = &cell->egress};
    if (waits != egress->queue_watched && epoll_ctl(cell->epoll, EPOLL_CTL_MOD, egress->link, &event) == 0)
        egress->queue_watched = waits;
}

static void say(struct cellblock_cell *cell, const struct cb_link_message *message, int fd)
{
    if (cb_link_tell(&cell->egress->queue, message, NULL, 0, fd) == 0)
        watch_queue(cell);
}

int cb_egress_ask(const struct cb_call *call, enum cb_protocol protocol, bool sends, const struct cb_address *address,
                  uint16_t port)
{
    struct cb_egress *egress = call->cell->egress;
    uint64_t *question = egress->over ? NULL : cb_array_push(&egress->questions, &egress->question_count);
    if (!question)
        return -ENETDOWN;
    const struct cb_link_message message = {.kind = CB_LINK_ASK, .id = call->notice->id, .number = sends,
                                            .address = *address, .port = port, .protocol = (uint16_t)protocol};
    *question = call->notice->id;
    say(call->cell, &message, -1);
    return CB_CALL_ANSWERED; /* later */
}

static void on_answer(struct cellblock_cell *cell, const struct cb_link_message *message)
{
    struct cb_egress *egress = cell->egress;
    int errnum = message->number > 0 && message->number < 4096 ? message->number : 0;
    if (cell->plan->network.brokered) {
        cb_broker_answered(cell, message->id, errnum);
        return;
    }
    for (size_t i = 0; i < egress->question_count; i++) {
        if (egress->questions[i] != message->id)
            continue;
        egress->questions[i] = egress->questions[--egress->question_count];
        cb_notify_reply(cell, message->id, errnum ? -errnum : CB_CALL_GO_ON);
        return;
    }
}

/* ---- Tier landlock: sockets of the code's ---- */

/* Not closed by us while the code lives: the last close of a socket can take as long as its owner has set. In the end
 * nobody can set anything any more. */
static int keep_stuck(struct cb_egress *egress, int fd)
{
    int *slot = cb_array_push(&egress->stuck, &egress->stuck_count);
    if (slot)
        *slot = fd; /* without memory it stays open, which is as good */
    return -1;
}

static void close_stuck(struct cb_egress *egress)
{
    const struct linger now = {.l_onoff = 1};
    for (size_t i = 0; i < egress->stuck_count; i++) {
        setsockopt(egress->stuck[i], SOL_SOCKET, SO_LINGER, &now, sizeof now);
        close(egress->stuck[i]);
    }
    free(egress->stuck);
}

int cb_egress_connect(struct cellblock_cell *cell, uint64_t id, int socket, const void *address, size_t length)
{
    struct cb_egress *egress = cell->egress;
    const struct cb_link_message message = {.kind = CB_LINK_CONNECT, .id = id};
    /* Never queued: what waits here would have to be closed here. */
    if (egress->over || cb_link_waits(&egress->queue) ||
        cb_link_send(egress->link, &message, address, length, socket, MSG_DONTWAIT) < 0)
        return keep_stuck(egress, socket);
    close(socket); /* the relay has one until it is told that we have none */
    return 0;
}

void cb_egress_done(struct cellblock_cell *cell, uint64_t id)
{
    const struct cb_link_message message = {.kind = CB_LINK_DONE, .id = id};
    if (cell->egress && !cell->egress->over)
        say(cell, &message, -1);
}

/* ---- What the relay says ---- */

/* Three texts, one after the other. */
static void on_denial(struct cellblock_cell *cell, const struct cb_link_message *message, const char *text, size_t length)
{
    const char *end = text + length;
    const char *parts[3];
    for (size_t i = 0; i < 3; i++) {
        const char *stop = text < end ? memchr(text, '\0', (size_t)(end - text)) : NULL;
        if (!stop)
            return;
        parts[i] = text;
        text = stop + 1;
    }
    cb_denial_network(cell, parts[0], parts[1], parts[2], message->counts[0]);
}

static void want_inner(struct cellblock_cell *cell, int family)
{
    const struct cb_message message = {.kind = CB_MESSAGE_SOCKET, .detail = family};
    if (cell->gone || send(cell->wire, &message, sizeof message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
        cb_egress_inner(cell, -1);
}

void cb_egress_inner(struct cellblock_cell *cell, int fd)
{
    const struct cb_link_message message = {.kind = CB_LINK_INNER};
    if (cell->egress && !cell->egress->over)
        say(cell, &message, fd);
    cb_close_cleanup(&fd);
}

/* Without it nothing gets out, and a call may wait for an answer that does not come. */
static void on_lost(struct cellblock_cell *cell)
{
    struct cb_egress *egress = cell->egress;
    epoll_ctl(cell->epoll, EPOLL_CTL_DEL, egress->link, NULL);
    if (!egress->over && !cell->gone)
        cell->broken = ENETDOWN;
    egress->over = true;
}

static void on_message(struct cellblock_cell *cell, const struct cb_link_message *message, size_t length)
{
    struct cb_egress *egress = cell->egress;
    switch (message->kind) {
    case CB_LINK_ANSWER:
        on_answer(cell, message);
        break;
    case CB_LINK_DENIAL:
        on_denial(cell, message, egress->text, length);
        break;
    case CB_LINK_LIMIT:
        cb_cell_end(cell, CB_END_NETWORK, cb_limit_word(CB_LIMIT_NETWORK_BYTES));
        break;
    case CB_LINK_WANT_INNER:
        want_inner(cell, message->number);
        break;
    case CB_LINK_CHANGED:
        egress->changed = true;
        egress->change_failed = message->number;
        break;
    case CB_LINK_COUNTS:
        if (!cell->gone)
            break; /* nobody has asked for its last word: it is about to be lost */
        egress->traffic =
            (struct cb_traffic){cell->plan->network.brokered, message->counts[0], message->counts[1], message->counts[2]};
        egress->over = true;
        break;
    default:
        break;
    }
}

/* Not all at once: a relay that talks without end must not keep us from the rest. */
void cb_egress_event(struct cellblock_cell *cell)
{
    enum { TURN = 256 };
    struct cb_egress *egress = cell->egress;
    struct cb_link_message message;
    watch_queue(cell);
    for (int i = 0; i < TURN; i++) {
        int fd;
        ssize_t length = cb_link_receive(egress->link, &message, egress->text, &fd, MSG_DONTWAIT);
        if (length < 0) {
            if (errno != EAGAIN)
                on_lost(cell);
            return;
        }
        cb_close_cleanup(&fd); /* nothing of the kind is expected */
        on_message(cell, &message, (size_t)length);
    }
}

/* ---- Changing rules ---- */

static int divert_again(struct cb_egress *egress, const struct cb_divert *divert, cellblock_error **error)
{
    static const int families[] = {AF_INET, AF_INET6};
    cb_autofree struct cb_netlink *batch = calloc(1, sizeof *batch);
    if (!batch)
        return cb_fail_memory(error);
    for (size_t i = 0; i < 2; i++) {
        cb_netlink_clear(batch);
        cb_divert_rules(batch, divert, families[i], true);
        if (cb_netlink_talk(egress->netfilter, batch, NULL) == 0 ||
            (families[i] == AF_INET6 && (errno == EAFNOSUPPORT || errno == ENOENT))) /* a kernel without */
            continue;
        cb_fail(error, CELLBLOCK_ERROR_SYSTEM, errno, "changing the rules of the cell's network");
        return cb_error_layer(error, "egress");
    }
    return 0;
}

/* Reads on while it waits: the relay may have other things to say first. */
static int wait_for_change(struct cellblock_cell *cell, cellblock_error **error)
{
    struct cb_egress *egress = cell->egress;
    for (int left = READY_MS; !egress->changed && !egress->over && left > 0;) {
        struct pollfd ready = {.fd = egress->link, .events = POLLIN | (cb_link_waits(&egress->queue) ? POLLOUT : 0)};
        enum { STEP_MS = 100 };
        if (poll(&ready, 1, STEP_MS) == 0)
            left -= STEP_MS;
        cb_egress_event(cell);
    }
    if (egress->changed && egress->change_failed == 0)
        return 0;
    cb_fail(error, CELLBLOCK_ERROR_SYSTEM, egress->changed ? egress->change_failed : ETIMEDOUT,
            "giving the cell's relay its new rules");
    return cb_error_layer(error, "relay");
}

static int queue_policy(struct cb_egress *egress, const cellblock_policy *policy, bool cut, cellblock_error **error)
{
    cb_autotext struct cb_text packed = {0};
    cb_policy_pack(policy, &packed);
    bool failed = packed.failed;
    for (size_t at = 0; at < packed.length && !failed; at += CB_LINK_TEXT) {
        size_t piece = packed.length - at < CB_LINK_TEXT ? packed.length - at : CB_LINK_TEXT;
        const struct cb_link_message message = {
            .kind = CB_LINK_POLICY, .number = at + piece < packed.length ? 0 : cut ? 2 : 1};
        failed = cb_link_tell(&egress->queue, &message, packed.data + at, piece, -1) < 0;
    }
    return failed ? cb_fail_memory(error) : 0;
}

static bool same_ports(const struct cb_divert *one, const struct cb_divert *other)
{
    if (one->count != other->count)
        return false;
    for (size_t i = 0; i < one->count; i++)
        if (one->loopback[i].port != other->loopback[i].port || one->loopback[i].datagrams != other->loopback[i].datagrams)
            return false;
    return true;
}

/* Ports of loopback first: if that fails nothing has changed, and a port that the relay does not allow yet is only a
 * closed one. */
int cb_egress_change(struct cellblock_cell *cell, cellblock_policy *policy, bool cut, cellblock_error **error)
{
    struct cb_egress *egress = cell->egress;
    struct cb_divert divert, before = egress->divert;
    bool brokered = cell->plan->network.brokered;
    if (egress->over)
        return cb_fail(error, CELLBLOCK_ERROR_USAGE, 0, "the cell has ended");
    if (cut && brokered)
        return cb_fail(error, CELLBLOCK_ERROR_USAGE, 0,
                       "connections can't be cut in tier landlock: the code has the sockets");
    if (cb_plan_divert(policy, &divert, error) < 0)
        return -1;
    bool ports = !brokered && !same_ports(&divert, &before);
    if (ports && divert_again(egress, &divert, error) < 0)
        return -1;
    egress->changed = false;
    if (queue_policy(egress, policy, cut, error) < 0 || wait_for_change(cell, error) < 0) {
        if (ports)
            divert_again(egress, &before, NULL);
        return -1;
    }
    egress->divert = divert;
    cellblock_policy_free(egress->policy);
    egress->policy = policy;
    return 0;
}

/* ---- Ending ---- */

void cb_egress_finish(struct cellblock_cell *cell)
{
    const struct cb_link_message message = {.kind = CB_LINK_FINISH, .number = cell->reason != CB_END_NONE};
    if (cell->egress && !cell->egress->over)
        say(cell, &message, -1);
}

void cb_egress_give_up(struct cb_egress *egress)
{
    if (!egress)
        return;
    cb_sys_pidfd_send_signal(egress->pidfd, SIGKILL, NULL, 0);
    egress->over = true;
}

void cb_egress_free(struct cb_egress *egress)
{
    if (!egress)
        return;
    cb_link_clear(&egress->queue);
    cb_close_cleanup(&egress->link); /* it ends when it sees this */
    /* One that has said its last word only has its sockets to close, for which the kernel takes its time. */
    if (egress->pidfd >= 0 && !egress->over) {
        struct pollfd gone = {.fd = egress->pidfd, .events = POLLIN};
        int waited;
        while ((waited = poll(&gone, 1, END_MS)) < 0 && errno == EINTR)
            ;
        if (waited == 0)
            cb_sys_pidfd_send_signal(egress->pidfd, SIGKILL, NULL, 0);
    }
    cb_close_cleanup(&egress->pidfd);
    cb_close_cleanup(&egress->netfilter);
    cellblock_policy_free(egress->policy);
    close_stuck(egress);
    free(egress->questions);
    free(egress);
}
