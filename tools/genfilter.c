/* Runs when the product is built: writes the filters of the built-in profiles for one architecture as C source, so that
 * starting a cell only has to attach them.
 *
 *     genfilter ARCHITECTURE OUTPUT      (the architecture as libseccomp calls it: x86_64, aarch64)
 */
#include "plan/assemble.h"

#include <seccomp.h>
#include <stdio.h>
#include <stdlib.h>

static int write_profile(FILE *out, const char *name, enum cb_syscall_profile profile, uint32_t arch)
{
    size_t count;
    const struct cb_syscall *table = cb_syscall_table(&count);
    struct cb_syscall_rule *rules = calloc(count, sizeof *rules);
    struct cb_filter filter = {0};
    cellblock_error *error = NULL;
    if (!rules) {
        fprintf(stderr, "genfilter: out of memory\n");
        return -1;
    }
    for (size_t i = 0; i < count; i++)
        rules[i] = cb_syscall_rule_for(&table[i], profile, 0);
    int result = cb_filter_assemble(rules, arch, &filter, &error);
    free(rules);
    if (result < 0) {
        fprintf(stderr, "genfilter: %s\n", cellblock_error_message(error));
        cellblock_error_free(error);
        return -1;
    }
    fprintf(out, "\nconst struct sock_filter cb_filter_%s[] = {\n", name);
    for (size_t i = 0; i < filter.length; i++)
        fprintf(out, "    {0x%04x, %u, %u, 0x%08x},\n", filter.code[i].code, filter.code[i].jt, filter.code[i].jf,
                filter.code[i].k);
    fprintf(out, "};\nconst size_t cb_filter_%s_length = %zu;\n", name, filter.length);
    free(filter.code);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: genfilter ARCHITECTURE OUTPUT\n");
        return 2;
    }
    uint32_t arch = seccomp_arch_resolve_name(argv[1]);
    FILE *out = fopen(argv[2], "w");
    if (!out) {
        perror(argv[2]);
        return 1;
    }
    fprintf(out, "/* Made by genfilter for %s. */\n#include \"plan/filter.h\"\n", argv[1]);
    int failed = write_profile(out, "default", CB_SYSCALLS_DEFAULT, arch) < 0 ||
                 write_profile(out, "strict", CB_SYSCALLS_STRICT, arch) < 0;
    failed |= ferror(out);
    failed |= fclose(out) != 0;
    return failed ? 1 : 0;
}
