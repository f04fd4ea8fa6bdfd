/* cellblock run: flags to a policy, start, pass on signals, wait, and end as the program ended. */
#include "base/cleanup.h"
#include "base/text.h"
#include "cli/cli.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

static const char usage[] = "cellblock run [OPTIONS] -- PROGRAM [ARGUMENT…]";
static const char description[] =
    "Runs a program in a cell. Without options: the system is there read-only (no home directories, no secrets),\n"
    "the current directory is the workspace and writable, /tmp and the home directory are private and empty, and\n"
    "there is no network.";

enum {
    POLICY = 256, TIGHTEN, PROFILE, STRICT, WORKSPACE, SCRATCH, READ, WRITE, HIDE, NET, PUBLISH, SOCKET, ENV,
    MEMORY, CPU_TIME, CPUS, TIMEOUT, PROCS, OPEN_FILES, FILE_SIZE, DISK, INODES, TMP, OUTPUT,
    NETWORK_BYTES, CONNECTIONS, ISOLATION, ACCEPT_WEAKER, JSON, PLAN,
};

static const struct cb_option options[] = {
    {NULL, 0, NULL, "Policy"},
    {"policy", POLICY, "FILE", "take the policy from a file"},
    {"profile", PROFILE, "NAME", "start from a built-in profile: base, python, node, shell, strict"},
    {"tighten", TIGHTEN, "FILE", "combine with a further policy that can only take away (repeatable)"},
    {"strict", STRICT, NULL, "the strict list of system calls: no new processes, no sockets"},
    {NULL, 0, NULL, "Files"},
    {"workspace", WORKSPACE, "DIR", "the directory to work in, writable (the current one)"},
    {"scratch", SCRATCH, NULL, "an empty workspace in memory instead, gone afterwards"},
    {"read", READ, "PATH", "let the program read it (repeatable)"},
    {"write", WRITE, "PATH", "let the program read and write it (repeatable)"},
    {"hide", HIDE, "PATH", "keep the program from seeing or making it (repeatable)"},
    {NULL, 0, NULL, "Network (nothing can be reached without)"},
    {"net", NET, "RULE", "let the program connect: HOST:PORT, '*.SUFFIX:PORT', ADDRESS[/N]:PORT, [IPV6]:PORT or\n"
     "                          loopback:PORT; also PORT,PORT and PORT-PORT; udp:// in front for UDP (repeatable)"},
    {"publish", PUBLISH, "CELL[:HOST]", "show a TCP port of the program on the host's loopback (repeatable)"},
    {"socket", SOCKET, "PATH", "let the program use a unix socket (repeatable)"},
    {NULL, 0, NULL, "Environment"},
    {"env", ENV, "NAME[=VALUE]", "pass a variable on, or set it (repeatable)"},
    {NULL, 0, NULL, "Limits (sizes: 64M, 1G; durations: 500ms, 60s, 5m)"},
    {"memory", MEMORY, "SIZE", "memory of all its processes together"},
    {"cpu-time", CPU_TIME, "DURATION", "processor time of all its processes together"},
    {"cpus", CPUS, "N", "how many processors it may keep busy, such as 1 or 0.5"},
    {"timeout", TIMEOUT, "DURATION", "time on the clock"},
    {"procs", PROCS, "N", "processes and threads at the same time"},
    {"open-files", OPEN_FILES, "N", "open files of each process"},
    {"file-size", FILE_SIZE, "SIZE", "size of any file that is written"},
    {"disk", DISK, "SIZE", "bytes written to the workspace and other directories on disk"},
    {"inodes", INODES, "N", "files and directories made there"},
    {"tmp", TMP, "SIZE", "/tmp, the private home directory and /dev/shm together"},
    {"output", OUTPUT, "SIZE", "standard output, and likewise standard error"},
    {"network-bytes", NETWORK_BYTES, "SIZE", "bytes to and from the network together"},
    {"connections", CONNECTIONS, "N", "connections to the network at the same time"},
    {NULL, 0, NULL, "Isolation"},
    {"isolation", ISOLATION, "TIER", "auto, namespaces, or landlock (weaker, for places without namespaces)"},
    {"accept-weaker", ACCEPT_WEAKER, "NAME", "go without a protection that can't be had here (repeatable)"},
    {NULL, 0, NULL, "What is shown"},
    {"json", JSON, NULL, "collect the output and print one JSON result"},
    {"plan", PLAN, NULL, "start nothing: print what would be enforced"},
    {"help", 'h', NULL, "this text"},
    {0},
};

static const struct {
    int key;
    const char *limit;
} limits[] = {
    {MEMORY, "memory"},         {CPU_TIME, "cpu_time"},   {TIMEOUT, "wall_time"}, {PROCS, "processes"},
    {OPEN_FILES, "open_files"}, {FILE_SIZE, "file_size"}, {TMP, "tmp"},           {OUTPUT, "output"},
    {CPUS, "cpus"},             {DISK, "disk"},           {INODES, "inodes"},
    {NETWORK_BYTES, "network_bytes"}, {CONNECTIONS, "connections"},
};

enum { MOST_OPTIONS = 4096 }; /* as for any list in a policy: keeps what is made of it in bounds */

struct request {
    struct cb_policy_flags flags;
    json_t *document;           /* what the option that is being read compiles to */
    bool json, plan;
};

static void request_end(struct request *request)
{
    json_decref(request->document);
    cb_policy_flags_end(&request->flags);
}

static json_t *section(struct request *request, const char *name, json_t *(*make)(void))
{
    json_t *found = json_object_get(request->document, name);
    if (!found && json_object_set_new(request->document, name, make()) == 0)
        found = json_object_get(request->document, name);
    return found;
}

/* Paths in flags are relative to where the caller stands; in policies, to the workspace. "~/" arrives here unexpanded
 * when the shell did not see it as the start of a word (--hide=~/x). */
static int add_file(struct request *request, const char *path, const char *access)
{
    cb_autofree char *absolute = cb_absolute_path(path);
    return absolute ? json_array_append_new(section(request, "files", json_array),
                                            json_pack("{s:s, s:s}", "path", absolute, "access", access))
                    : -1;
}

/* A grant for something that is not there is a slip; left to the policy, in a workspace it would become a
 * protection. */
static int check_path(const char *option, const char *path)
{
    struct stat found;
    if (!path[0] || strcmp(path, "--") == 0)
        return cb_usage_error("run", "%s needs a path", option);
    if (strcmp(option, "--hide") == 0 || strchr("/~", path[0]) || stat(path, &found) == 0 || errno == EACCES)
        return 0;
    return cb_usage_error("run", "%s %s: %s", option, path, strerror(errno));
}

static int add_variable(struct request *request, const char *text)
{
    json_t *env = section(request, "env", json_object);
    const char *equals = strchr(text, '=');
    const char *key = equals ? "set" : "pass";
    json_t *found = json_object_get(env, key);
    if (!found && json_object_set_new(env, key, equals ? json_object() : json_array()) == 0)
        found = json_object_get(env, key);
    if (!equals)
        return json_array_append_new(found, json_string(text));
    cb_autofree char *name = strndup(text, (size_t)(equals - text));
    return name ? json_object_set_new(found, name, json_string(equals + 1)) : -1;
}

/* A bare number goes in as a number: counts, bytes, seconds. */
static int add_limit(struct request *request, const char *name, const char *text)
{
    char *end = NULL;
    errno = 0;
    long long whole = strtoll(text, &end, 10);
    bool integer = text[0] && !*end && errno == 0;
    double real = integer ? 0 : strtod(text, &end);
    bool number = text[0] >= '0' && text[0] <= '9' && !*end && errno == 0 && !strpbrk(text, "xXpPeE");
    json_t *value = integer ? json_integer(whole) : number ? json_real(real) : json_string(text);
    return json_object_set_new(section(request, "limits", json_object), name, value);
}

static int set_workspace(struct request *request, const char *key, const char *value)
{
    return json_object_set_new(section(request, "workspace", json_object), key, json_string(value));
}

/* Returns 0, or -1 when a value can't be put into the document (not UTF-8, or out of memory). */
static int compile_option(struct request *request, int key)
{
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
        if (limits[i].key == key)
            return add_limit(request, limits[i].limit, optarg);
    switch (key) {
    case POLICY:
        request->flags.policy = optarg;
        return 0;
    case PROFILE:
        request->flags.profile = optarg;
        return 0;
    case TIGHTEN:
        return cb_flag_tighten(&request->flags, optarg);
    case STRICT:
        return json_object_set_new(request->document, "syscalls", json_string("strict"));
    case WORKSPACE:
        return set_workspace(request, "path", optarg);
    case SCRATCH:
        return set_workspace(request, "mode", "scratch");
    case READ:
        return add_file(request, optarg, "read");
    case WRITE:
        return add_file(request, optarg, "write");
    case HIDE:
        return add_file(request, optarg, "none");
    case ENV:
        return add_variable(request, optarg);
    case ISOLATION:
        return json_object_set_new(request->document, "isolation", json_string(optarg));
    case ACCEPT_WEAKER:
        return json_array_append_new(section(request, "accept_weaker", json_array), json_string(optarg));
    case JSON:
        request->json = true;
        return 0;
    default:
        request->plan = true;
        return 0;
    }
}

static int take_option(struct request *request, int key)
{
    const struct cb_option *option = options;
    while (option->key != key)
        option++;
    request->document = json_pack("{s:i}", "cellblock", 1);
    if (compile_option(request, key) < 0)
        return -1;
    if (json_object_size(request->document) == 1) { /* one that says nothing of the policy */
        json_decref(cb_steal(request->document));
        return 0;
    }
    /* The value of a variable may be a secret: no message repeats it. */
    cb_autofree char *variable = key == ENV ? strndup(optarg, strcspn(optarg, "=")) : NULL;
    return cb_flag_add(&request->flags, option->name, variable ? variable : optarg, cb_steal(request->document));
}

/* For whoever reads the JSON: the same truth that goes to standard error. */
static int report_failure(const struct request *request, cellblock_error *error)
{
    enum cellblock_error_code code = cellblock_error_code(error);
    const char *layer = cellblock_error_layer(error), *hint = cellblock_error_hint(error);
    json_t *result =
        !request->json ? NULL
                       : json_pack("{s:s, s:n, s:n, s:{s:s, s:s?, s:s?}}", "end",
                                   code == CELLBLOCK_ERROR_REFUSED ? "refused" : "setup-failed", "exit_code", "signal",
                                   "error", "message", cellblock_error_message(error), "layer", layer, "hint", hint);
    if (result) {
        json_dumpf(result, stdout, JSON_COMPACT);
        putchar('\n');
        json_decref(result);
    }
    return cb_report_error(error);
}

/* Signals that a person or a service manager sends to us are meant for the program. They are held back from before it
 * starts; one that we were told to ignore (nohup) stays ignored. */
static int hold_signals(void)
{
    static const int passed_on[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCONT, SIGWINCH, SIGTSTP};
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof passed_on / sizeof *passed_on; i++) {
        struct sigaction now;
        if (sigaction(passed_on[i], NULL, &now) == 0 && now.sa_handler != SIG_IGN)
            sigaddset(&set, passed_on[i]);
    }
    sigprocmask(SIG_BLOCK, &set, NULL);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

static int wait_for_end(cellblock_cell *cell, int signals, struct cb_terminal_mode *terminal, cellblock_error **error)
{
    cb_terminal_follow(terminal, cellblock_reads_terminal(cell));
    for (;;) {
        int over = cellblock_dispatch(cell, error);
        if (over)
            return over < 0 ? -1 : 0;
        cb_terminal_follow(terminal, cellblock_reads_terminal(cell));
        struct pollfd ready[] = {{.fd = cellblock_fd(cell), .events = POLLIN}, {.fd = signals, .events = POLLIN}};
        if (poll(ready, 2, -1) < 0 && errno != EINTR)
            continue;
        struct signalfd_siginfo info;
        while (signals >= 0 && read(signals, &info, sizeof info) == sizeof info) {
            cb_terminal_signal(terminal, (int)info.ssi_signo);
            if (info.ssi_signo != SIGTSTP)
                cellblock_signal(cell, (int)info.ssi_signo, NULL);
        }
    }
}

/* Making a cell takes a descriptor for each mount. Returns the limit as it was, for the program. */
static unsigned long raise_open_files(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return 0;
    rlim_t before = limit.rlim_cur;
    const rlim_t enough = 4096;
    if (before < enough && before < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max < enough ? limit.rlim_max : enough;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    return before;
}

/* Output that never arrived must not look like success. */
static int report_loss(const cellblock_result *result, int status)
{
    static const char *const names[] = {"", "standard output", "standard error"};
    for (int stream = 1; stream <= 2; stream++) {
        int lost = result ? cellblock_result_lost(result, stream) : 0;
        if (lost)
            fprintf(stderr, "cellblock: what the program wrote to %s is lost: %s\n", names[stream], strerror(lost));
        if (lost && status == 0)
            status = CB_EXIT_FAILED;
    }
    return status;
}

/* A run that was ended must not last for as long as somebody leaves its errors unread: then the status has to tell. */
static void report_limit(const cellblock_result *result)
{
    enum { PATIENCE_MS = 1000 };
    struct pollfd room = {.fd = STDERR_FILENO, .events = POLLOUT}; /* in a pipe: for more than this line */
    const char *limit = result ? cellblock_result_limit(result) : NULL;
    if (limit && poll(&room, 1, PATIENCE_MS) != 0)
        fprintf(stderr, "cellblock: ended: the limit \"%s\" was passed\n", limit);
}

static int run(const struct request *request, char **argv)
{
    cellblock_policy *policy = NULL;
    cellblock_cell *cell = NULL;
    cellblock_result *result = NULL;
    cellblock_error *error = NULL;
    struct cb_terminal_mode terminal;
    cb_terminal_find(&terminal);
    const struct cellblock_options how = {.size = sizeof how,
                                          .argv = (const char *const *)argv,
                                          .collect = request->json,
                                          .helper = CELLBLOCK_HELPER_NEVER,
                                          .helper_path = "/proc/self/exe",
                                          .open_files = raise_open_files(),
                                          .foreground = !request->json && cb_terminal_is_for_program(&terminal)};
    cb_autofree char *json = NULL;
    cb_autofd int signals = request->plan ? -1 : hold_signals();
    int status = -1;
    if (!request->plan && signals < 0) {
        fprintf(stderr,
                "cellblock: watching for signals (signalfd): %s\n  layer: supervision\n"
                "  what to do: whatever filters cellblock's own system calls here must let it make a signalfd\n",
                strerror(errno));
        return CB_EXIT_FAILED;
    }
    if (cb_policy_from_flags(&request->flags, &policy, &error) == 0) {
        if (request->plan)
            status = cellblock_plan_json(policy, &how, &json, &error);
        else if (cellblock_start(policy, &how, &cell, &error) == 0 &&
                 wait_for_end(cell, signals, &terminal, &error) == 0 && cellblock_finish(cell, &result, &error) == 0)
            status = request->json && cellblock_result_json(result, &json, &error) < 0
                         ? -1
                         : cellblock_result_shell_status(result);
    }
    cb_terminal_restore(&terminal);
    if (json)
        puts(json);
    status = report_loss(result, status);
    if (!request->json)
        report_limit(result);
    if (status < 0)
        status = report_failure(request, error);
    cellblock_result_free(result);
    cellblock_cell_free(cell);
    cellblock_policy_free(policy);
    return status;
}

int cb_cli_run(int argc, char **argv)
{
    struct request request __attribute__((cleanup(request_end))) = {0};
    for (int key; (key = cb_next_option(argc, argv, options)) != -1;) {
        if (key == 'h') {
            cb_print_help(stdout, usage, description, options);
            return 0;
        }
        if (key == '?')
            return CB_EXIT_FAILED;
        if ((key == POLICY && request.flags.policy) || (key == PROFILE && request.flags.profile))
            return cb_usage_error("run", "%s is given twice: use --tighten to combine policies",
                                  key == POLICY ? "--policy" : "--profile");
        const char *option = key == READ ? "--read" : key == WRITE ? "--write" : key == HIDE ? "--hide" : NULL;
        if (option && check_path(option, optarg))
            return CB_EXIT_FAILED;
        if (key == NET || key == PUBLISH || key == SOCKET) {
            enum cb_network_flag kind = key == NET ? CB_FLAG_NET : key == PUBLISH ? CB_FLAG_PUBLISH : CB_FLAG_SOCKET;
            if (cb_flag_network("run", kind, optarg, &request.flags))
                return CB_EXIT_FAILED;
            continue;
        }
        if (take_option(&request, key) < 0)
            return cb_usage_error("run", "an argument is not text in UTF-8: %s", optarg ? optarg : "");
    }
    if (optind >= argc)
        return cb_usage_error("run", "no program to run");
    if (request.flags.other_count > MOST_OPTIONS)
        return cb_usage_error("run", "more than %d options: put them into a policy file", MOST_OPTIONS);
    if (request.flags.policy && request.flags.profile)
        return cb_usage_error("run", "--policy and --profile exclude each other: a file names profiles in \"extends\"");
    return run(&request, argv + optind);
}
