/* cellblock: picks the command. One file per command. */
#include "cli/cli.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static const char usage[] =
    "Usage: cellblock COMMAND [OPTIONS]\n"
    "\n"
    "Runs code that nobody vouches for, in a cell: it sees the system read-only, can write only its\n"
    "workspace, has no network, and is gone when it ends.\n"
    "\n"
    "  run [OPTIONS] -- PROGRAM [ARGUMENT…]   run a program in a cell\n"
    "  doctor                                 what this machine can enforce, and how to get what is missing\n"
    "  policy show | check | schema           look at policies\n"
    "  version                                print the version\n"
    "\n"
    "`cellblock COMMAND --help` says more. With no options at all, `cellblock run -- PROGRAM` is already safe.\n";

static int print_version(int argc, char **argv)
{
    if (argc > 1)
        return cb_usage_error(NULL, "version takes no arguments, but was given '%s'", argv[1]);
    printf("cellblock %s\n", cellblock_version());
    return 0;
}

static int print_help(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    fputs(usage, stdout);
    return 0;
}

/* Not for people: the supervisor of a cell that a large process started through the library. */
static int serve_caller(int argc, char **argv)
{
    (void)argv;
    return argc == 1 ? cellblock_helper_serve(3) : CB_EXIT_FAILED;
}

/* Not for people either: the relay of a cell with rules for the network. */
static int serve_relay(int argc, char **argv)
{
    (void)argv;
    return argc == 1 ? cellblock_relay_serve(3) : CB_EXIT_FAILED;
}

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
} commands[] = {
    {"run", cb_cli_run},         {"doctor", cb_cli_doctor},  {"policy", cb_cli_policy}, {"version", print_version},
    {"--version", print_version}, {"help", print_help},       {"--help", print_help},    {"-h", print_help},
    {"helper", serve_caller},    {"relay", serve_relay},
};

/* With 0, 1 or 2 closed, the next file that is opened would take its place. What fills the gap is open the wrong way
 * round, so that using it fails as it would have. */
static bool fill_standard_descriptors(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd)
            return false;
    return true;
}

/* Output that could not be written (a full disk, say) is a failure, not a detail. */
static int finish(int status)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return status;
    perror("cellblock: writing to standard output");
    return CB_EXIT_FAILED;
}

int main(int argc, char **argv)
{
    if (!fill_standard_descriptors()) {
        perror("cellblock: opening /dev/null");
        return CB_EXIT_FAILED;
    }
    if (argc < 2) {
        fputs(usage, stderr);
        return CB_EXIT_FAILED;
    }
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (strcmp(argv[1], commands[i].name) == 0)
            return finish(commands[i].run(argc - 1, argv + 1));
    return cb_usage_error(NULL, "there is no command '%s'", argv[1]);
}
