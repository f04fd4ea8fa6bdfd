/* Out of memory at every single allocation of reading, copying, tightening and printing a policy: each time an error
 * comes back, and nothing leaks. The allocator of libc is replaced for that, which the sanitizers do not allow. */
#include "policy/network.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#endif

#ifndef SANITIZED

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t size);
void __libc_free(void *pointer);

/* volatile: compilers know that malloc() and free() touch no variable of the program. These do. */
static volatile bool counting;
static volatile long left, alive;

static bool refused(void)
{
    if (!counting || left-- > 0)
        return false;
    errno = ENOMEM;
    return true;
}

/* Visible, or else libc would go on with its own inside strdup() and the like. */
#pragma GCC visibility push(default)

void *malloc(size_t size)
{
    if (refused())
        return NULL;
    alive += counting;
    return __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    if (refused())
        return NULL;
    alive += counting;
    return __libc_calloc(count, size);
}

void *realloc(void *old, size_t size)
{
    if (refused())
        return NULL;
    alive += counting && !old;
    return __libc_realloc(old, size);
}

void free(void *pointer)
{
    alive -= counting && pointer;
    __libc_free(pointer);
}

#pragma GCC visibility pop

static int everything(cellblock_error **error)
{
    static const char text[] = "{\"cellblock\": 1, \"env\": {\"set\": {\"A\": \"1\"}}, \"workspace\": {\"path\": "
                               "\"x\"}}",
                      more[] = "{\"cellblock\": 1, \"extends\": [\"node\"], \"syscalls\": {\"deny\": [\"ptrace\"]}, "
                               "\"network\": [{\"host\": \"*.b\u00fccher.example\", \"ports\": [1, \"2-3\"], \"why\": "
                               "\"w\"}, {\"cidr\": \"10.0.0.0/8\", \"ports\": 1}, {\"loopback\": [1, 2]}], "
                               "\"sockets\": [{\"path\": \"~/s\", \"why\": \"s\"}], \"publish\": [{\"port\": 1, "
                               "\"why\": \"p\"}]}",
                      rules[] = "{\"cellblock\": 1, \"network\": [{\"loopback\": 3}]}",
                      other[] = "{\"cellblock\": 1, \"extends\": [\"strict\"], \"files\": [{\"path\": \"/a\", "
                                "\"access\": "
                                "\"none\", \"why\": \"b\"}]}";
    cellblock_policy *policy = NULL, *tighter = NULL, *copy = NULL;
    char *json = NULL, *schema = NULL;
    int result = -1;
    if (cellblock_policy_load_text(text, strlen(text), "one", &policy, error) == 0 &&
        cellblock_policy_add_text(policy, more, strlen(more), "two", error) == 0 &&
        cellblock_policy_load_text(other, strlen(other), "three", &tighter, error) == 0 &&
        cellblock_policy_tighten(policy, tighter, error) == 0 && cb_policy_copy(policy, &copy, error) == 0 &&
        cellblock_policy_json(copy, &json, error) == 0 && cellblock_policy_schema(&schema, error) == 0 &&
        cb_policy_add_rules(copy, rules, strlen(rules), "four", error) == 0 &&
        cellblock_policy_remove(copy, "four", error) == 0)
        result = 0;
    free(json);
    free(schema);
    cellblock_policy_free(policy);
    cellblock_policy_free(tighter);
    cellblock_policy_free(copy);
    return result;
}

static void test_out_of_memory(void **state)
{
    int result = -1;
    for (long allowed = 0; result != 0 && allowed < 100000; allowed++) {
        cellblock_error *error = NULL;
        left = allowed;
        alive = 0;
        counting = true;
        result = everything(&error);
        enum cellblock_error_code code = cellblock_error_code(error);
        cellblock_error_free(error);
        counting = false;
        assert_int_equal(alive, 0);
        if (result != 0)
            assert_int_equal(code, CELLBLOCK_ERROR_MEMORY);
    }
    assert_int_equal(result, 0);
}

/* The same for a refusal: its text needs memory too. */
static void test_out_of_memory_while_refusing(void **state)
{
    static const char text[] = "{\"cellblock\": 1, \"extends\": [\"pyton\"]}",
                      unknown[] = "{\"cellblock\": 1, \"fils\": []}",
                      network[] = "{\"cellblock\": 1, \"network\": [{\"cidr\": \"10.0.0.1/8\", \"ports\": 1}]}",
                      formless[] = "{\"cellblock\": 1, \"network\": [{\"ports\": 1}]}",
                      address[] = "{\"cellblock\": 1, \"network\": [{\"host\": \"127.1\"}]}";
    static const struct {
        const char *text;
        size_t length;
    } table[] = {{text, sizeof text - 1},
                 {unknown, sizeof unknown - 1},
                 {network, sizeof network - 1},
                 {formless, sizeof formless - 1},
                 {address, sizeof address - 1}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        for (long allowed = 0; allowed < 200; allowed++) {
            cellblock_error *error = NULL;
            cellblock_policy *policy = NULL;
            left = allowed;
            alive = 0;
            counting = true;
            int result = cellblock_policy_load_text(table[i].text, table[i].length, "p", &policy, &error);
            bool told = error != NULL;
            cellblock_error_free(error);
            counting = false;
            assert_int_equal(result, -1);
            assert_true(told);
            assert_int_equal(alive, 0);
        }
}

#else

static void test_out_of_memory(void **state)
{
    skip();
}

static void test_out_of_memory_while_refusing(void **state)
{
    skip();
}

#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_out_of_memory),
        cmocka_unit_test(test_out_of_memory_while_refusing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
