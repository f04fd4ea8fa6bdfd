/* The base: growing arrays and strings, paths, distances, bytes made safe to show, base64, frames, errors. */
#include "base/array.h"
#include "base/base64.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/frame.h"
#include "base/text.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <cmocka.h>

static void test_text_grows(void **state)
{
    (void)state;
    struct cb_text text = {0};
    for (int i = 0; i < 1000; i++)
        cb_text_addf(&text, "%d,", i);
    cb_text_add(&text, "\0x", 2);
    assert_false(text.failed);
    assert_int_equal(text.length, 10 * 2 + 90 * 3 + 900 * 4 + 2);
    assert_int_equal(strlen(text.data), text.length - 2);
    assert_true(cb_has_prefix(text.data, "0,1,2,"));
    cb_autofree char *taken = cb_text_take(&text);
    assert_non_null(taken);
    assert_null(text.data);
    assert_int_equal(text.length, 0);
    cb_text_free(&text);
}

static void test_an_empty_text_is_a_string(void **state)
{
    (void)state;
    struct cb_text text = {0};
    cb_autofree char *taken = cb_text_take(&text);
    assert_string_equal(taken, "");
    cb_autofree char *long_one = cb_format("%0*d", 5000, 7);
    assert_int_equal(strlen(long_one), 5000);
}

static void test_arrays_grow_zeroed(void **state)
{
    (void)state;
    struct item {
        int number;
        char *pointer;
    } *items = NULL;
    size_t count = 0;
    for (int i = 0; i < 100; i++) {
        struct item *item = cb_array_push(&items, &count);
        assert_non_null(item);
        assert_ptr_equal(item, &items[i]);
        assert_int_equal(item->number, 0);
        assert_null(item->pointer);
        item->number = i + 1;
    }
    assert_int_equal(count, 100);
    for (int i = 0; i < 100; i++)
        assert_int_equal(items[i].number, i + 1);
    free(items);
}

static void test_path_within(void **state)
{
    (void)state;
    static const struct {
        const char *path, *directory;
        bool within;
    } table[] = {
        {"/a", "/a", true},      {"/a/b", "/a", true},  {"/ab", "/a", false}, {"/", "/a", false},
        {"/a", "/", true},       {"/", "/", true},      {"/a/b/c", "/a/b", true}, {"/a", "/a/b", false},
        {"/a/bc", "/a/b", false},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (cb_path_within(table[i].path, table[i].directory) != table[i].within)
            fail_msg("%s within %s", table[i].path, table[i].directory);
}

static void test_edit_distance(void **state)
{
    (void)state;
    static const struct {
        const char *a, *b;
        unsigned distance;
    } table[] = {
        {"", "", 0}, {"read", "read", 0}, {"read", "rea", 1}, {"", "abc", 3}, {"strict", "strct", 1}, {"a", "b", 1},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        assert_int_equal(cb_edit_distance(table[i].a, table[i].b, 10), table[i].distance);
        assert_int_equal(cb_edit_distance(table[i].b, table[i].a, 10), table[i].distance);
    }
    assert_int_equal(cb_edit_distance("entirely", "different", 3), 3);
    assert_in_range(cb_edit_distance("raed", "read", 5), 1, 2);
}

static void expect_printable(const char *bytes, size_t length, const char *expected)
{
    cb_autofree char *shown = cb_printable(bytes, length);
    assert_string_equal(shown, expected);
}

static void test_printable(void **state)
{
    (void)state;
    expect_printable("", 0, "");
    expect_printable("plain ä€", strlen("plain ä€"), "plain ä€");
    expect_printable("\x1b[31m", 5, "\\x1b[31m");
    expect_printable("a\0b", 3, "a\\x00b");
    expect_printable("\xff\xc3", 2, "\\xff\\xc3");
    expect_printable("\x7f\r", 2, "\\x7f\\x0d");
    expect_printable("\xc2\x9b", 2, "\\xc2\\x9b"); /* a control character of eight bits, spelled in UTF-8 */
}

static void test_utf8_prefix(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t length, good;
    } table[] = {
        {"", 0, 0},
        {"abc", 3, 3},
        {"a\0b", 3, 3},
        {"\xc3\xa4", 2, 2},
        {"\xe2\x82\xac", 3, 3},
        {"\xf0\x9f\x98\x80", 4, 4},
        {"\xf4\x8f\xbf\xbf", 4, 4},         /* the last one */
        {"\xf4\x90\x80\x80", 4, 0},         /* beyond it */
        {"\xed\xa0\x80", 3, 0},             /* half of a pair */
        {"\xc0\x80", 2, 0},                 /* longer than needed */
        {"\xe0\x80\xaf", 3, 0},
        {"\xf0\x80\x80\xaf", 4, 0},
        {"ok\x80", 3, 2},
        {"ok\xe2\x82", 4, 2},               /* cut off */
        {"\xff", 1, 0},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (cb_utf8_prefix(table[i].bytes, table[i].length) != table[i].good)
            fail_msg("entry %zu", i);
}

static void test_base64(void **state)
{
    (void)state;
    static const char *const table[][2] = {
        {"", ""}, {"f", "Zg=="}, {"fo", "Zm8="}, {"foo", "Zm9v"}, {"foob", "Zm9vYg=="}, {"\xff\xfe\xfd", "//79"},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        cb_autofree char *made = cb_base64(table[i][0], strlen(table[i][0]));
        assert_string_equal(made, table[i][1]);
    }
    cb_autofree char *zeros = cb_base64("\0\0\0\0", 4);
    assert_string_equal(zeros, "AAAAAA==");
}

static void fill_frame(struct cb_text *frame)
{
    static const char *const words[] = {"one", "", "three", NULL}, *const none[] = {NULL};
    cb_frame_number(frame, UINT64_MAX);
    cb_frame_string(frame, "text");
    cb_frame_string(frame, NULL);
    cb_frame_bytes(frame, "a\0b", 3);
    cb_frame_list(frame, words);
    cb_frame_list(frame, none);
}

static void check_frame(const struct cb_text *frame)
{
    struct cb_frame_reader reader = {.at = frame->data, .left = frame->length};
    size_t length;
    assert_true(cb_read_number(&reader) == UINT64_MAX);
    assert_string_equal(cb_read_string(&reader), "text");
    assert_null(cb_read_string(&reader));
    assert_memory_equal(cb_read_bytes(&reader, &length), "a\0b", 4);
    assert_int_equal(length, 3);
    cb_autofree const char **words = cb_read_list(&reader);
    assert_string_equal(words[0], "one");
    assert_string_equal(words[1], "");
    assert_string_equal(words[2], "three");
    assert_null(words[3]);
    cb_autofree const char **none = cb_read_list(&reader);
    assert_null(none[0]);
    assert_false(reader.failed);
    assert_int_equal(reader.left, 0);
}

static void test_frames_come_back(void **state)
{
    (void)state;
    cb_autotext struct cb_text frame = {0};
    fill_frame(&frame);
    check_frame(&frame);
}

/* Every prefix of a frame fails to read, and never reads past its end (the copy has exactly that size). */
static void test_frames_cut_short(void **state)
{
    (void)state;
    cb_autotext struct cb_text frame = {0};
    fill_frame(&frame);
    for (size_t length = 0; length < frame.length; length++) {
        cb_autofree char *copy = malloc(length ? length : 1);
        memcpy(copy, frame.data, length);
        struct cb_frame_reader reader = {.at = copy, .left = length};
        cb_read_number(&reader);
        cb_read_string(&reader);
        cb_read_string(&reader);
        size_t bytes;
        cb_read_bytes(&reader, &bytes);
        free(cb_read_list(&reader));
        cb_autofree const char **none = cb_read_list(&reader);
        assert_true(reader.failed);
        assert_null(none);
    }
}

static void test_frames_travel_with_descriptors(void **state)
{
    (void)state;
    int ends[2], given[2], received[3] = {-1, -1, -1};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    assert_int_equal(pipe(given), 0);
    cb_autotext struct cb_text frame = {0}, back = {0};
    fill_frame(&frame);
    assert_int_equal(cb_frame_send(ends[0], &frame, given, 2), 0);
    assert_int_equal(cb_frame_receive(ends[1], &back, received), 0);
    check_frame(&back);
    assert_int_equal(write(received[1], "x", 1), 1);
    char got;
    assert_int_equal(read(given[0], &got, 1), 1);
    assert_int_equal(received[2], -1);
    assert_true(fcntl(received[0], F_GETFD) & FD_CLOEXEC);

    close(ends[0]);
    assert_int_equal(cb_frame_receive(ends[1], &back, NULL), -1);
    assert_int_equal(errno, EPIPE);
    close(ends[1]);
    for (int i = 0; i < 2; i++) {
        close(given[i]);
        close(received[i]);
    }
}

static void test_errors(void **state)
{
    (void)state;
    cellblock_error *error = NULL;
    assert_int_equal(cb_fail(&error, CELLBLOCK_ERROR_SETUP, ENOENT, "mounting %s", "/x"), -1);
    assert_int_equal(cellblock_error_code(error), CELLBLOCK_ERROR_SETUP);
    assert_int_equal(cellblock_error_errno(error), ENOENT);
    assert_string_equal(cellblock_error_message(error), "mounting /x: No such file or directory");
    assert_null(cellblock_error_layer(error));
    assert_null(cellblock_error_hint(error));
    /* The first one is the cause; what comes later does not hide it. */
    assert_int_equal(cb_fail(&error, CELLBLOCK_ERROR_MEMORY, 0, "later"), -1);
    assert_int_equal(cellblock_error_code(error), CELLBLOCK_ERROR_SETUP);
    assert_int_equal(cb_error_hint(&error, "make %s", "it"), -1);
    assert_int_equal(cb_error_layer(&error, "mounts"), -1);
    assert_string_equal(cellblock_error_hint(error), "make it");
    assert_string_equal(cellblock_error_layer(error), "mounts");
    cellblock_error_free(error);

    assert_int_equal(cb_fail(NULL, CELLBLOCK_ERROR_USAGE, 0, "nobody listens"), -1);
    assert_int_equal(cb_error_hint(NULL, "nobody"), -1);
    assert_string_equal(cellblock_error_message(NULL), "no error");
    cellblock_error_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_grows),
        cmocka_unit_test(test_an_empty_text_is_a_string),
        cmocka_unit_test(test_arrays_grow_zeroed),
        cmocka_unit_test(test_path_within),
        cmocka_unit_test(test_edit_distance),
        cmocka_unit_test(test_printable),
        cmocka_unit_test(test_utf8_prefix),
        cmocka_unit_test(test_base64),
        cmocka_unit_test(test_frames_come_back),
        cmocka_unit_test(test_frames_cut_short),
        cmocka_unit_test(test_frames_travel_with_descriptors),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
