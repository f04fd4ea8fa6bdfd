/* Messages between supervisor and relay: there and back with texts and descriptors, and what is no message. */
#include "relay/link.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static int ends[2];
static char text[CB_LINK_TEXT + 1];

static int set_up(void **state)
{
    return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends);
}

static int tear_down(void **state)
{
    close(ends[0]);
    close(ends[1]);
    return 0;
}

static int open_count(void)
{
    int count = 0;
    for (int fd = 0; fd < 256; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

static const struct cb_link_message sample = {
    .kind = CB_LINK_ASK,
    .number = -7,
    .id = 0xfedcba9876543210,
    .counts = {1, UINT64_MAX, 3, 4},
    .address = {.family = AF_INET6, .bytes = {0x20, 1, [15] = 9}},
    .port = 65535,
    .protocol = 2,
};

static void test_there_and_back(void **state)
{
    struct cb_link_message got;
    int fd = 77;
    assert_int_equal(cb_link_send(ends[0], &sample, NULL, 0, -1, 0), 0);
    assert_int_equal(cb_link_receive(ends[1], &got, text, &fd, 0), 0);
    assert_memory_equal(&got, &sample, sizeof got);
    assert_string_equal(text, "");
    assert_int_equal(fd, -1);
}

static void test_texts(void **state)
{
    static char sent[CB_LINK_TEXT];
    static const size_t lengths[] = {0, 1, 2, 4095, 4096, CB_LINK_TEXT - 1, CB_LINK_TEXT};
    struct cb_link_message got;
    int fd;
    for (size_t i = 0; i < sizeof sent; i++)
        sent[i] = (char)(i * 31); /* with NULs among them */
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        memset(text, 'x', sizeof text);
        assert_int_equal(cb_link_send(ends[0], &sample, sent, lengths[i], -1, 0), 0);
        assert_int_equal(cb_link_receive(ends[1], &got, text, &fd, 0), lengths[i]);
        assert_memory_equal(text, sent, lengths[i]);
        assert_int_equal(text[lengths[i]], '\0');
    }
}

static void test_borders_are_kept(void **state)
{
    struct cb_link_message message = sample, got;
    int fd;
    for (message.number = 0; message.number < 10; message.number++)
        assert_int_equal(cb_link_send(ends[0], &message, "abcdefghij", (size_t)message.number, -1, 0), 0);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(cb_link_receive(ends[1], &got, text, &fd, 0), i);
        assert_int_equal(got.number, i);
    }
    errno = 0;
    assert_int_equal(cb_link_receive(ends[1], &got, text, &fd, MSG_DONTWAIT), -1);
    assert_int_equal(errno, EAGAIN);
    assert_int_equal(fd, -1);
}

static void test_descriptors(void **state)
{
    struct cb_link_message got;
    struct stat was, is;
    int fd, before = open_count(), pipe_ends[2];
    assert_int_equal(pipe(pipe_ends), 0);
    assert_int_equal(fstat(pipe_ends[0], &was), 0);
    assert_int_equal(cb_link_send(ends[0], &sample, "with", 4, pipe_ends[0], 0), 0);
    assert_int_equal(cb_link_receive(ends[1], &got, text, &fd, 0), 4);
    assert_true(fd >= 0 && fstat(fd, &is) == 0);
    assert_true(was.st_ino == is.st_ino && was.st_dev == is.st_dev);
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    assert_int_equal(write(pipe_ends[1], "x", 1), 1);
    assert_int_equal(read(fd, text, 1), 1);
    close(fd);
    close(pipe_ends[0]);
    close(pipe_ends[1]);
    assert_int_equal(open_count(), before);
}

/* The sender keeps its own, also when it does not work. */
static void test_a_descriptor_stays_with_the_sender(void **state)
{
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_int_equal(cb_link_send(ends[0], &sample, NULL, 0, fd, 0), 0);
    assert_true(fcntl(fd, F_GETFD) >= 0);
    struct cb_link_message got;
    int copy;
    assert_int_equal(cb_link_receive(ends[1], &got, text, &copy, 0), 0);
    close(copy);
    close(ends[1]);
    assert_int_equal(cb_link_send(ends[0], &sample, NULL, 0, fd, 0), -1);
    assert_int_equal(errno, EPIPE); /* and no signal */
    assert_true(fcntl(fd, F_GETFD) >= 0);
    close(fd);
    ends[1] = -1;
}

/* By hand: `count` descriptors with that many bytes. */
static void send_raw(size_t length, int count)
{
    static char bytes[sizeof(struct cb_link_message) + CB_LINK_TEXT + 100];
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(8 * sizeof(int))];
    } control = {0};
    struct iovec data = {.iov_base = bytes, .iov_len = length};
    struct msghdr header = {.msg_iov = &data, .msg_iovlen = 1};
    if (count) {
        int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
        header.msg_control = control.space;
        header.msg_controllen = CMSG_SPACE((size_t)count * sizeof(int));
        struct cmsghdr *item = CMSG_FIRSTHDR(&header);
        item->cmsg_level = SOL_SOCKET;
        item->cmsg_type = SCM_RIGHTS;
        item->cmsg_len = CMSG_LEN((size_t)count * sizeof(int));
        for (int i = 0; i < count; i++)
            memcpy(CMSG_DATA(item) + (size_t)i * sizeof(int), &null, sizeof null);
        assert_int_equal(sendmsg(ends[0], &header, 0), length);
        close(null);
        return;
    }
    assert_int_equal(sendmsg(ends[0], &header, 0), length);
}

static void test_cut_messages(void **state)
{
    struct cb_link_message got;
    for (int count = 0; count < 3; count++)
        for (size_t length = 1; length < sizeof got; length++) {
            int before = open_count(), fd = 5;
            send_raw(length, count);
            errno = 0;
            assert_int_equal(cb_link_receive(ends[1], &got, text, &fd, 0), -1);
            assert_int_equal(errno, EPROTO);
            assert_int_equal(fd, -1);
            assert_int_equal(open_count(), before); /* what came along is closed */
        }
}

static void test_messages_that_are_too_long(void **state)
{
    struct cb_link_message got;
    for (size_t more = 0; more < 3; more++) {
        int before = open_count(), fd;
        memset(text, 'x', sizeof text);
        send_raw(sizeof got + CB_LINK_TEXT + more, 1);
        ssize_t length = cb_link_receive(ends[1], &got, text, &fd, 0);
        assert_int_equal(length, more ? -1 : CB_LINK_TEXT);
        if (more)
            assert_int_equal(errno, EPROTO);
        else
            close(fd);
        assert_int_equal(open_count(), before);
    }
}

/* More of them than are expected are not left open either: the kernel gives no more than there is room for. */
static void test_several_descriptors(void **state)
{
    struct cb_link_message got;
    for (int count = 2; count <= 8; count++) {
        int before = open_count(), fd = -1;
        send_raw(sizeof got, count);
        cb_link_receive(ends[1], &got, text, &fd, 0);
        if (fd >= 0)
            close(fd);
        assert_int_equal(open_count(), before);
    }
}

static void test_the_end(void **state)
{
    struct cb_link_message got;
    int fd;
    assert_int_equal(cb_link_send(ends[0], &sample, "last", 4, -1, 0), 0);
    close(ends[0]);
    assert_int_equal(cb_link_receive(ends[1], &got, text, &fd, 0), 4);
    assert_int_equal(cb_link_receive(ends[1], &got, text, &fd, 0), -1);
    assert_int_equal(errno, EPIPE);
    ends[0] = -1;
}

static void test_a_full_link(void **state)
{
    int sent = 0;
    while (cb_link_send(ends[0], &sample, text, CB_LINK_TEXT, -1, MSG_DONTWAIT) == 0)
        sent++;
    assert_int_equal(errno, EAGAIN);
    assert_true(sent > 0);
    struct cb_link_message got;
    int fd;
    for (; sent > 0; sent--) /* all that were taken arrive */
        assert_int_equal(cb_link_receive(ends[1], &got, text, &fd, MSG_DONTWAIT), CB_LINK_TEXT);
    assert_int_equal(cb_link_receive(ends[1], &got, text, &fd, MSG_DONTWAIT), -1);
    assert_int_equal(errno, EAGAIN);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_there_and_back),
        TEST(test_texts),
        TEST(test_borders_are_kept),
        TEST(test_descriptors),
        TEST(test_a_descriptor_stays_with_the_sender),
        TEST(test_cut_messages),
        TEST(test_messages_that_are_too_long),
        TEST(test_several_descriptors),
        TEST(test_the_end),
        TEST(test_a_full_link),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
