/* Connections and questions for names, from both ends.
 *
 *   traffic serve                                serves on a port of loopback, which it prints, until its input ends
 *   traffic connect ADDRESS PORT COUNT           prints the nanoseconds of each connect()
 *   traffic requests ADDRESS PORT COUNT fresh|kept   … of COUNT requests, with a new connection for each or on one
 *   traffic bulk ADDRESS PORT out|in STREAMS MILLISECONDS   … and the bytes that arrived, all streams together
 *   traffic resolver PROGRAM [ARGUMENT…]         answers any question on port 53 of loopback, which it brings up, while
 *                                                the program runs; for a network namespace of its own
 *   traffic lookup COUNT                         prints the nanoseconds of each question to the first name server
 *
 * The first byte of a connection says what it wants: an answer of 64 bytes to as many ('q'), all that the server can
 * send ('i'), or to be heard ('o'). Small requests are served in one loop, streams by a thread each. */
#define _GNU_SOURCE
#include "clock.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { REQUEST = 64, BLOCK = 256 << 10, MOST_STREAMS = 64, DNS_LARGEST = 512, TYPE_A = 1 };

static char block[BLOCK]; /* what is sent; nobody looks at it */

static void all(bool fine, const char *what)
{
    if (!fine)
        give_up(what);
}

static struct sockaddr_in address_of(const char *address, int port)
{
    struct sockaddr_in made = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    errno = EINVAL;
    all(inet_pton(AF_INET, address, &made.sin_addr) == 1, address);
    return made;
}

static void at_once(int fd)
{
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

static void send_all(int fd, const char *bytes, size_t size)
{
    while (size > 0) {
        ssize_t put = send(fd, bytes, size, MSG_NOSIGNAL);
        all(put > 0, "send");
        bytes += put;
        size -= (size_t)put;
    }
}

static void receive_all(int fd, char *bytes, size_t size)
{
    while (size > 0) {
        ssize_t got = recv(fd, bytes, size, 0);
        errno = got == 0 ? ECONNRESET : errno;
        all(got > 0, "recv");
        bytes += got;
        size -= (size_t)got;
    }
}

/* ---- The server ---- */

static void *stream_in(void *data)
{
    int fd = (int)(intptr_t)data;
    while (send(fd, block, sizeof block, MSG_NOSIGNAL) > 0)
        ;
    close(fd);
    return NULL;
}

static void *stream_out(void *data)
{
    int fd = (int)(intptr_t)data;
    char *room = malloc(BLOCK);
    all(room != NULL, "malloc");
    while (recv(fd, room, BLOCK, 0) > 0)
        ;
    send(fd, "", 1, MSG_NOSIGNAL); /* all of it is here */
    close(fd);
    free(room);
    return NULL;
}

static void serve_one(int epoll, int fd)
{
    char request[REQUEST];
    ssize_t got = recv(fd, request, sizeof request, 0);
    if (got == REQUEST && request[0] == 'q' && send(fd, request, REQUEST, MSG_NOSIGNAL) == REQUEST)
        return;
    if (got > 0 && (request[0] == 'i' || request[0] == 'o')) {
        pthread_t thread;
        epoll_ctl(epoll, EPOLL_CTL_DEL, fd, NULL);
        errno = pthread_create(&thread, NULL, request[0] == 'i' ? stream_in : stream_out, (void *)(intptr_t)fd);
        all(errno == 0, "pthread_create");
        pthread_detach(thread);
        return;
    }
    close(fd);
}

static int serve(void)
{
    struct sockaddr_in address = address_of("127.0.0.1", 0);
    socklen_t size = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0), epoll = epoll_create1(0);
    all(listener >= 0 && epoll >= 0 && bind(listener, (struct sockaddr *)&address, size) == 0 &&
            listen(listener, 4096) == 0 && getsockname(listener, (struct sockaddr *)&address, &size) == 0,
        "listen");
    struct epoll_event event = {.events = EPOLLIN, .data.fd = listener};
    all(epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event) == 0, "epoll_ctl");
    event.data.fd = STDIN_FILENO;
    all(epoll_ctl(epoll, EPOLL_CTL_ADD, STDIN_FILENO, &event) == 0, "epoll_ctl");
    printf("%u\n", ntohs(address.sin_port));
    fflush(stdout);
    for (;;) {
        struct epoll_event ready[64];
        int count = epoll_wait(epoll, ready, 64, -1);
        for (int i = 0; i < count; i++) {
            int fd = ready[i].data.fd;
            if (fd == STDIN_FILENO)
                return 0;
            if (fd != listener) {
                serve_one(epoll, fd);
                continue;
            }
            event.data.fd = accept(listener, NULL, NULL);
            if (event.data.fd >= 0) {
                at_once(event.data.fd);
                epoll_ctl(epoll, EPOLL_CTL_ADD, event.data.fd, &event);
            }
        }
    }
}

/* ---- Clients ---- */

static int connect_to(const struct sockaddr_in *address)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    all(fd >= 0 && connect(fd, (const struct sockaddr *)address, sizeof *address) == 0, "connect");
    return fd;
}

/* Only connect() is timed. Each connection is over at both ends before the next begins, so that taking one down is not
 * in the time of another. */
static int time_connects(const struct sockaddr_in *address, int count)
{
    for (int i = 0; i < count; i++) {
        char byte;
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        uint64_t started = now_ns();
        all(fd >= 0 && connect(fd, (const struct sockaddr *)address, sizeof *address) == 0, "connect");
        uint64_t took = now_ns() - started;
        shutdown(fd, SHUT_WR);
        all(recv(fd, &byte, 1, 0) == 0, "the end of the connection");
        close(fd);
        printf("%llu\n", (unsigned long long)took);
    }
    return 0;
}

static int time_requests(const struct sockaddr_in *address, int count, bool kept)
{
    char request[REQUEST] = "q";
    int fd = -1;
    uint64_t started = now_ns();
    for (int i = 0; i < count; i++) {
        if (fd < 0) {
            fd = connect_to(address);
            at_once(fd);
        }
        send_all(fd, request, sizeof request);
        receive_all(fd, request, sizeof request);
        if (!kept) {
            close(fd);
            fd = -1;
        }
    }
    print_ns(started);
    return 0;
}

struct stream {
    pthread_t thread;
    const struct sockaddr_in *address;
    uint64_t until, bytes;
    bool outward;
};

static void *flow(void *data)
{
    struct stream *stream = data;
    char *room = malloc(BLOCK);
    int fd = connect_to(stream->address);
    all(room != NULL, "malloc");
    send_all(fd, stream->outward ? "o" : "i", 1);
    while (now_ns() < stream->until) {
        ssize_t moved = stream->outward ? send(fd, block, sizeof block, MSG_NOSIGNAL) : recv(fd, room, BLOCK, 0);
        all(moved > 0, "moving bytes");
        stream->bytes += (uint64_t)moved;
    }
    if (stream->outward) {
        shutdown(fd, SHUT_WR);
        receive_all(fd, room, 1); /* what counts is what arrived */
    }
    close(fd);
    free(room);
    return NULL;
}

static int time_bulk(const struct sockaddr_in *address, bool outward, int count, int milliseconds)
{
    static struct stream streams[MOST_STREAMS];
    uint64_t started = now_ns(), bytes = 0;
    errno = EINVAL;
    all(count > 0 && count <= MOST_STREAMS, "streams");
    for (int i = 0; i < count; i++) {
        streams[i] = (struct stream){.address = address, .outward = outward,
                                     .until = started + (uint64_t)milliseconds * 1000000u};
        errno = pthread_create(&streams[i].thread, NULL, flow, &streams[i]);
        all(errno == 0, "pthread_create");
    }
    for (int i = 0; i < count; i++) {
        pthread_join(streams[i].thread, NULL);
        bytes += streams[i].bytes;
    }
    print_ns(started);
    printf("%llu\n", (unsigned long long)bytes);
    return 0;
}

/* ---- Names ---- */

static void bring_up_loopback(void)
{
    struct ifreq request = {.ifr_name = "lo"};
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    all(fd >= 0 && ioctl(fd, SIOCGIFFLAGS, &request) == 0, "lo");
    request.ifr_flags |= IFF_UP;
    all(ioctl(fd, SIOCSIFFLAGS, &request) == 0, "lo");
    close(fd);
}

/* Any name has this one address; other types have nothing. */
static void answer(int fd)
{
    static const uint8_t record[] = {0xc0, 12, 0, TYPE_A, 0, 1, 0, 0, 0, 60, 0, 4, 93, 184, 216, 34};
    uint8_t bytes[DNS_LARGEST + sizeof record];
    struct sockaddr_in from;
    socklen_t size = sizeof from;
    ssize_t length = recvfrom(fd, bytes, DNS_LARGEST, 0, (struct sockaddr *)&from, &size);
    ssize_t end = 12;
    while (end < length && bytes[end])
        end += bytes[end] + 1;
    end += 5; /* the root, type and class */
    if (end > length)
        return;
    bool address = bytes[end - 3] == TYPE_A;
    bytes[2] = 0x81;
    bytes[3] = 0x80;
    bytes[7] = address;
    memset(bytes + 8, 0, 4);
    if (address)
        memcpy(bytes + end, record, sizeof record);
    sendto(fd, bytes, (size_t)end + (address ? sizeof record : 0), 0, (struct sockaddr *)&from, size);
}

static int resolver(char **program)
{
    const struct sockaddr_in address = address_of("127.0.0.1", 53);
    bring_up_loopback();
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    all(fd >= 0 && bind(fd, (const struct sockaddr *)&address, sizeof address) == 0, "port 53");
    pid_t server = fork();
    all(server >= 0, "fork");
    if (server == 0)
        for (;;)
            answer(fd);
    close(fd);
    pid_t client = fork();
    all(client >= 0, "fork");
    if (client == 0) {
        execv(program[0], program);
        give_up(program[0]);
    }
    int status = 0;
    waitpid(client, &status, 0);
    kill(server, SIGKILL);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

static struct sockaddr_in name_server(void)
{
    char line[256], address[64];
    FILE *file = fopen("/etc/resolv.conf", "re");
    all(file != NULL, "/etc/resolv.conf");
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "nameserver %63s", address) == 1) {
            fclose(file);
            return address_of(address, 53);
        }
    errno = ENOENT;
    give_up("a name server in /etc/resolv.conf");
}

/* With a new socket for each, as libraries do. */
static int time_lookups(int count)
{
    static const char name[] = "\3api\7example\3com";
    const struct sockaddr_in server = name_server();
    for (int i = 0; i < count; i++) {
        uint8_t question[12 + sizeof name + 4] = {(uint8_t)(i >> 8), (uint8_t)i, 1, 0, 0, 1}, reply[DNS_LARGEST];
        memcpy(question + 12, name, sizeof name);
        question[12 + sizeof name + 1] = TYPE_A;
        question[12 + sizeof name + 3] = 1;
        uint64_t started = now_ns();
        int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        all(fd >= 0 && connect(fd, (const struct sockaddr *)&server, sizeof server) == 0 &&
                send(fd, question, sizeof question, 0) == sizeof question,
            "asking");
        all(poll(&wait, 1, 5000) == 1, "waiting for an answer");
        ssize_t got = recv(fd, reply, sizeof reply, 0);
        close(fd);
        uint64_t took = now_ns() - started;
        errno = EPROTO;
        all(got > 12 && memcmp(reply, question, 2) == 0 && (reply[3] & 15) == 0 && reply[7] == 1, "the answer");
        printf("%llu\n", (unsigned long long)took);
    }
    return 0;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    if (strcmp(what, "serve") == 0)
        return serve();
    if (strcmp(what, "resolver") == 0 && argc > 2)
        return resolver(argv + 2);
    if (strcmp(what, "lookup") == 0 && argc == 3)
        return time_lookups(atoi(argv[2]));
    if (argc < 5)
        return 2;
    const struct sockaddr_in address = address_of(argv[2], atoi(argv[3]));
    if (strcmp(what, "connect") == 0)
        return time_connects(&address, atoi(argv[4]));
    if (strcmp(what, "requests") == 0 && argc == 6)
        return time_requests(&address, atoi(argv[4]), strcmp(argv[5], "kept") == 0);
    if (strcmp(what, "bulk") == 0 && argc == 7)
        return time_bulk(&address, strcmp(argv[4], "out") == 0, atoi(argv[5]), atoi(argv[6]));
    return 2;
}
