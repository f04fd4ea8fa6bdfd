/* The words of "accept_weaker" are the words of the host's features, all of them, and then what a tier can do without. */
#include "host/host.h"
#include "policy/schema.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static void test_accept_weaker_knows_every_feature(void **state)
{
    for (int i = 0; i < CB_FEATURE_COUNT; i++)
        assert_string_equal(cb_weaker_words[i].word, cb_feature_word((enum cb_feature)i));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_accept_weaker_knows_every_feature)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
