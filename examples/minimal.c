/* SPDX-License-Identifier: Apache-2.0
 *
 * The smallest embedder: runs a program in a cell with the default policy, prints what it said, and ends as it ended.
 *
 *     cc minimal.c $(pkg-config --cflags --libs cellblock)
 *     ./a.out python3 -c 'print(6 * 7)'
 */
#include <cellblock.h>

#include <stdio.h>

int main(int argc, char **argv)
{
    const char *default_program[] = {"sh", "-c", "echo $((6 * 7))", NULL};
    struct cellblock_options options = {
        .size = sizeof options,
        .argv = argc > 1 ? (const char *const *)argv + 1 : default_program,
        .collect = 1,
    };
    cellblock_policy *policy = NULL;
    cellblock_result *result = NULL;
    cellblock_error *error = NULL;
    int status = 125;

    if (cellblock_policy_new(&policy, &error) == 0 && cellblock_run(policy, &options, &result, &error) == 0) {
        size_t length;
        const char *text = cellblock_result_stdout(result, &length);
        fwrite(text, 1, length, stdout);
        text = cellblock_result_stderr(result, &length);
        fwrite(text, 1, length, stderr);
        status = cellblock_result_shell_status(result);
    } else {
        fprintf(stderr, "%s\n", cellblock_error_message(error));
        if (cellblock_error_hint(error))
            fprintf(stderr, "%s\n", cellblock_error_hint(error));
    }
    cellblock_result_free(result);
    cellblock_policy_free(policy);
    cellblock_error_free(error);
    return status;
}
