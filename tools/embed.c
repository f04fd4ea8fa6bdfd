/* Runs during the build: writes the profiles as a C source, so that the library needs no files at run time.
 *
 *     embed OUTPUT DIRECTORY/NAME.jsonc …
 *
 * See src/policy/profiles.h for what the output defines. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int by_name(const void *a, const void *b)
{
    const char *const *left = a, *const *right = b;
    return strcmp(*left, *right);
}

static void write_name(FILE *out, const char *path)
{
    const char *name = strrchr(path, '/');
    name = name ? name + 1 : path;
    fprintf(out, "\"%.*s\"", (int)strcspn(name, "."), name);
}

/* One string literal per line of the file; returns how many bytes it had, or -1. */
static long write_text(FILE *out, const char *path)
{
    FILE *in = fopen(path, "rb");
    if (!in) {
        perror(path);
        return -1;
    }
    long count = 0;
    int c;
    fputs("    {\"", out);
    while ((c = fgetc(in)) != EOF) {
        count++;
        if (c == '\n')
            fputs("\\n\"\n     \"", out);
        else if (c == '"' || c == '\\')
            fprintf(out, "\\%c", c);
        else if (c < 0x20 || c > 0x7e || c == '?')
            fprintf(out, "\\%03o", (unsigned)c);
        else
            fputc(c, out);
    }
    int failed = ferror(in);
    fclose(in);
    fprintf(out, "\", %ld},\n", count);
    return failed ? -1 : count;
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: embed OUTPUT FILE...\n");
        return 2;
    }
    FILE *out = fopen(argv[1], "wb");
    if (!out) {
        perror(argv[1]);
        return 1;
    }
    qsort(argv + 2, (size_t)argc - 2, sizeof *argv, by_name);
    fputs("/* Written by tools/embed.c. */\n#include \"policy/profiles.h\"\n\n"
          "const char *const cb_embedded_names[] = {\n",
          out);
    for (int i = 2; i < argc; i++) {
        fputs("    ", out);
        write_name(out, argv[i]);
        fputs(",\n", out);
    }
    fputs("    NULL,\n};\n\nconst struct cb_embedded cb_embedded_profiles[] = {\n", out);
    int failed = 0;
    for (int i = 2; i < argc; i++)
        failed |= write_text(out, argv[i]) < 0;
    fputs("};\n", out);
    failed |= ferror(out) != 0;
    failed |= fclose(out) != 0;
    if (failed)
        remove(argv[1]);
    return failed;
}
