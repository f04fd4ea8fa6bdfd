/* See schema.h. To add a key: a row here, an id in schema.h, and a case in document.c, which the compiler asks for. */
#include "policy/schema.h"

#include "base/text.h"
#include "policy/policy.h"
#include "policy/values.h"

#include <string.h>

const struct cb_word cb_access_words[] = {
    {"none", CB_ACCESS_NONE, NULL},
    {"read", CB_ACCESS_READ, NULL},
    {"write", CB_ACCESS_WRITE, NULL},
    {NULL, 0, NULL},
};

const struct cb_word cb_mode_words[] = {
    {"direct", CB_WORKSPACE_DIRECT, NULL},
    {"scratch", CB_WORKSPACE_SCRATCH, NULL},
    {"review", 0, "review workspaces are not available in this version: use \"direct\" or \"scratch\""},
    {NULL, 0, NULL},
};

const struct cb_word cb_when_words[] = {
    {"always", CB_WHEN_ALWAYS, NULL},
    {"present", CB_WHEN_PRESENT, NULL},
    {"swept", CB_WHEN_SWEPT, NULL},
    {NULL, 0, NULL},
};

const struct cb_word cb_syscall_profile_words[] = {
    {"default", CB_SYSCALLS_DEFAULT, NULL},
    {"strict", CB_SYSCALLS_STRICT, NULL},
    {NULL, 0, NULL},
};

const struct cb_word cb_isolation_words[] = {
    {"auto", CB_ISOLATION_AUTO, NULL},
    {"namespaces", CB_ISOLATION_NAMESPACES, NULL},
    {"landlock", CB_ISOLATION_LANDLOCK, NULL},
    {"gvisor", 0, "the tier \"gvisor\" is not available in this version: use \"namespaces\""},
    {NULL, 0, NULL},
};

/* The names of the layers, as in cb_feature_word(). */
const struct cb_word cb_weaker_words[] = {
    {"user-namespace", 0, NULL}, {"namespaces", 0, NULL}, {"mount-api", 0, NULL},      {"proc", 0, NULL},
    {"idmap", 0, NULL},          {"landlock", 0, NULL},   {"seccomp", 0, NULL},        {"seccomp-notify", 0, NULL},
    {"pidfd", 0, NULL},          {"close_range", 0, NULL}, {"openat2", 0, NULL},       {"overlay", 0, NULL},
    {"cgroup", 0, NULL},         {"egress", 0, NULL},      {"protected-paths", 0, NULL}, {"ids", 0, NULL},
    {"signals", 0, NULL},        {NULL, 0, NULL},
};

const struct cb_word cb_protocol_words[] = {
    {"tcp", CB_PROTOCOL_TCP, NULL},
    {"udp", CB_PROTOCOL_UDP, NULL},
    {NULL, 0, NULL},
};

#define SECTION(table) {.keys = (table), .count = sizeof(table) / sizeof *(table)}

static const struct cb_key workspace_keys[] = {
    {"path", CB_KEY_WORKSPACE_PATH, CB_KIND_PATH,
     "The directory that the code works in, relative to the directory of the caller."},
    {"mode", CB_KEY_WORKSPACE_MODE, CB_KIND_WORD,
     "direct: the directory itself, writable; scratch: an empty directory in memory that is gone afterwards.",
     .words = cb_mode_words},
};
static const struct cb_section workspace_section = SECTION(workspace_keys);

#define WHY "The reason for the rule, quoted where the rule decides."

static const struct cb_key file_keys[] = {
    {"path", CB_KEY_FILE_PATH, CB_KIND_PATH,
     "Absolute, below the home directory (~/…), or relative to the workspace. A slash at the end means a directory.",
     .required = true},
    {"access", CB_KEY_FILE_ACCESS, CB_KIND_WORD,
     "What the code may do with the path and all below it; the most specific path wins, none beats an equal path.",
     .required = true, .words = cb_access_words},
    {"optional", CB_KEY_FILE_OPTIONAL, CB_KIND_FLAG, "Whether a path that does not exist is passed over."},
    {"when", CB_KEY_FILE_WHEN, CB_KIND_WORD,
     "For a protected path that is absent. always: it can't be created; present: nothing is said of it; swept: a file "
     "that the code creates there is removed when the cell has ended.",
     .words = cb_when_words},
    {"why", CB_KEY_WHY, CB_KIND_TEXT, WHY},
};
static const struct cb_section file_section = SECTION(file_keys);

static const struct cb_key network_keys[] = {
    {"host", CB_KEY_NET_HOST, CB_KIND_HOST,
     "A name; or *. and a suffix, for every name that ends in it. It opens public addresses only."},
    {"cidr", CB_KEY_NET_CIDR, CB_KIND_CIDR,
     "An address, or a range of them. It opens a special range (private, link-local, …) only if it lies in it."},
    {"loopback", CB_KEY_NET_LOOPBACK, CB_KIND_PORTS, "Ports of the host's loopback."},
    {"ports", CB_KEY_NET_PORTS, CB_KIND_PORTS, "The ports of a host or of addresses."},
    {"protocol", CB_KEY_NET_PROTOCOL, CB_KIND_WORD, "tcp unless it is said.", .words = cb_protocol_words},
    {"why", CB_KEY_WHY, CB_KIND_TEXT, WHY},
};
#define NEEDS_PORTS "name the ports, such as [443]; \"1-65535\" is every port"
static const struct cb_form network_forms[] = {
    {.key = "host", .needs = "ports", .needs_why = NEEDS_PORTS},
    {.key = "cidr", .needs = "ports", .needs_why = NEEDS_PORTS},
    {.key = "loopback", .bars = "ports", .bars_why = "the ports stand in \"loopback\" itself"},
    {0},
};
static const struct cb_section network_section = {
    .keys = network_keys, .count = sizeof network_keys / sizeof *network_keys, .forms = network_forms};

static const struct cb_key socket_keys[] = {
    {"path", CB_KEY_SOCKET_PATH, CB_KIND_PATH, "Of a unix socket: absolute, or below the home directory (~/…).",
     .required = true},
    {"why", CB_KEY_WHY, CB_KIND_TEXT, WHY},
};
static const struct cb_section socket_section = SECTION(socket_keys);

static const struct cb_key publish_keys[] = {
    {"port", CB_KEY_PUBLISH_PORT, CB_KIND_PORT, "The TCP port that the code serves.", .required = true},
    {"as", CB_KEY_PUBLISH_AS, CB_KIND_PORT, "The port on the host's loopback; the same one unless it is said."},
    {"why", CB_KEY_WHY, CB_KIND_TEXT, WHY},
};
static const struct cb_section publish_section = SECTION(publish_keys);

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)
#define MOST ((uint64_t)INT64_MAX)
#define MOST_TIME ((uint64_t)INT64_MAX / 1000000)
#define MOST_THINGS ((uint64_t)INT32_MAX)
#define MOST_CPUS ((uint64_t)65536)

static const struct cb_key limit_keys[] = {
    {"memory", CB_KEY_LIMIT, CB_KIND_SIZE, "Memory of the whole cell, with what it shares and what it keeps in memory file systems.",
     .number = CB_LIMIT_MEMORY, .minimum = MIB, .maximum = MOST},
    {"cpu_time", CB_KEY_LIMIT, CB_KIND_DURATION, "Processor time of the whole cell.",
     .number = CB_LIMIT_CPU_TIME, .minimum = 1, .maximum = MOST_TIME},
    {"wall_time", CB_KEY_LIMIT, CB_KIND_DURATION, "Time from the start until the cell is ended.",
     .number = CB_LIMIT_WALL_TIME, .minimum = 1, .maximum = MOST_TIME},
    {"processes", CB_KEY_LIMIT, CB_KIND_COUNT, "Processes and threads that exist at the same time.",
     .number = CB_LIMIT_PROCESSES, .minimum = 1, .maximum = MOST_THINGS},
    {"open_files", CB_KEY_LIMIT, CB_KIND_COUNT, "Open descriptors of one process.",
     .number = CB_LIMIT_OPEN_FILES, .minimum = 4, .maximum = MOST_THINGS},
    {"file_size", CB_KEY_LIMIT, CB_KIND_SIZE, "Size of any single file that is written.",
     .number = CB_LIMIT_FILE_SIZE, .minimum = 0, .maximum = MOST},
    {"output", CB_KEY_LIMIT, CB_KIND_SIZE, "Collected output, for each of stdout and stderr.",
     .number = CB_LIMIT_OUTPUT, .minimum = 1, .maximum = MOST},
    {"tmp", CB_KEY_LIMIT, CB_KIND_SIZE, "Room in /tmp, the private home and /dev/shm together.",
     .number = CB_LIMIT_TMP, .minimum = 64 * KIB, .maximum = MOST},
    {"cpus", CB_KEY_LIMIT, CB_KIND_SHARE, "How many processors the whole cell may keep busy: 1.5 is one and a half.",
     .number = CB_LIMIT_CPUS, .minimum = 10, .maximum = 1000 * MOST_CPUS},
    {"disk", CB_KEY_LIMIT, CB_KIND_SIZE, "Bytes that the code may write to the workspace and other directories on disk.",
     .number = CB_LIMIT_DISK, .minimum = 4 * KIB, .maximum = MOST},
    {"inodes", CB_KEY_LIMIT, CB_KIND_COUNT, "Files and directories that the code may make there.",
     .number = CB_LIMIT_INODES, .minimum = 1, .maximum = MOST_THINGS},
    {"network_bytes", CB_KEY_LIMIT, CB_KIND_SIZE, "Bytes to and from the network, both directions together.",
     .number = CB_LIMIT_NETWORK_BYTES, .minimum = 1, .maximum = MOST},
    {"connections", CB_KEY_LIMIT, CB_KIND_COUNT, "Connections to the network that exist at the same time.",
     .number = CB_LIMIT_CONNECTIONS, .minimum = 1, .maximum = MOST_THINGS},
};
static const struct cb_section limit_section = SECTION(limit_keys);

static const struct cb_key env_keys[] = {
    {"pass", CB_KEY_ENV_PASS, CB_KIND_NAMES,
     "Variables of the caller that the code may see; a * at the end matches any rest.",
     .check = cb_value_env_pattern, .pattern = "^[A-Za-z_][A-Za-z0-9_]*\\*?$"},
    {"set", CB_KEY_ENV_SET, CB_KIND_VALUES, "Variables with a fixed value.",
     .check = cb_value_env_name, .pattern = "^[A-Za-z_][A-Za-z0-9_]*$"},
};
static const struct cb_section env_section = SECTION(env_keys);

static const struct cb_key syscall_keys[] = {
    {"profile", CB_KEY_SYSCALL_PROFILE, CB_KIND_WORD, "The list to start from.", .words = cb_syscall_profile_words},
    {"deny", CB_KEY_SYSCALL_DENY, CB_KIND_NAMES, "System calls to refuse on top of it.",
     .check = cb_value_syscall_name, .pattern = "^[a-z0-9_]+$"},
    {"allow", CB_KEY_SYSCALL_ALLOW, CB_KIND_NAMES, "System calls to allow on top of it; a denied one stays denied.",
     .check = cb_value_syscall_name, .pattern = "^[a-z0-9_]+$"},
};
static const struct cb_section syscall_section = SECTION(syscall_keys);

static const struct cb_key top_keys[] = {
    {"$schema", CB_KEY_SCHEMA, CB_KIND_TEXT, "For editors; cellblock ignores it."},
    {"cellblock", CB_KEY_VERSION, CB_KIND_VERSION, "The version of the policy format.", .required = true},
    {"extends", CB_KEY_EXTENDS, CB_KIND_NAMES,
     "Built-in profiles that this document builds on; [\"base\"] when it is absent, nothing when it is empty.",
     .check = cb_value_profile_name},
    {"workspace", CB_KEY_WORKSPACE, CB_KIND_OBJECT, "The directory that the code works in.",
     .section = &workspace_section},
    {"files", CB_KEY_FILES, CB_KIND_RULES, "Which paths exist for the code, and what it may do with them.",
     .section = &file_section},
    {"programs", CB_KEY_PROGRAMS, CB_KIND_NAMES,
     "Programs of the caller's PATH whose installation is readable, even when it lies below a home directory.",
     .check = cb_value_program_name, .pattern = "^[^/]+$"},
    {"network", CB_KEY_NETWORK, CB_KIND_RULES, "What the code may connect to; an empty list means nothing.",
     .section = &network_section},
    {"sockets", CB_KEY_SOCKETS, CB_KIND_RULES, "Unix sockets that the code may use; an empty list means none.",
     .section = &socket_section},
    {"publish", CB_KEY_PUBLISH, CB_KIND_RULES,
     "Ports of the code that the host's loopback shows; an empty list means none.", .section = &publish_section},
    {"limits", CB_KEY_LIMITS, CB_KIND_OBJECT, "What the cell may use up; null means unlimited.",
     .section = &limit_section},
    {"env", CB_KEY_ENV, CB_KIND_OBJECT, "The environment of the code.", .section = &env_section},
    {"syscalls", CB_KEY_SYSCALLS, CB_KIND_WORD_OR_OBJECT, "Which system calls the kernel answers.",
     .words = cb_syscall_profile_words, .section = &syscall_section},
    {"isolation", CB_KEY_ISOLATION, CB_KIND_WORD, "The kind of cell; auto takes the strongest that can be had.",
     .words = cb_isolation_words},
    {"accept_weaker", CB_KEY_ACCEPT_WEAKER, CB_KIND_NAMES,
     "Protections that may be missing: without a name here, a missing one refuses the run.",
     .words = cb_weaker_words},
};
const struct cb_section cb_schema = SECTION(top_keys);

const struct cb_key *cb_schema_find(const struct cb_section *section, const char *name)
{
    for (size_t i = 0; i < section->count; i++)
        if (strcmp(section->keys[i].name, name) == 0)
            return &section->keys[i];
    return NULL;
}

/* A third of the letters may be wrong, and always one of them. */
unsigned cb_nearest_start(const char *name)
{
    size_t length = strlen(name);
    return length < 64 ? (unsigned)length / 3 + 2 : 2;
}

void cb_nearest(const char *name, const char *candidate, const char **nearest, unsigned *distance)
{
    unsigned found = cb_edit_distance(name, candidate, *distance);
    if (found < *distance && found < strlen(candidate)) {
        *distance = found;
        *nearest = candidate;
    }
}

const char *cb_schema_nearest(const struct cb_section *section, const char *name)
{
    const char *nearest = NULL;
    unsigned distance = cb_nearest_start(name);
    for (size_t i = 0; i < section->count; i++)
        cb_nearest(name, section->keys[i].name, &nearest, &distance);
    return nearest;
}

const struct cb_word *cb_word_find(const struct cb_word *words, const char *word)
{
    for (; words->word; words++)
        if (strcmp(words->word, word) == 0)
            return words;
    return NULL;
}

const char *cb_word_nearest(const struct cb_word *words, const char *word)
{
    const char *nearest = NULL;
    unsigned distance = cb_nearest_start(word);
    for (; words->word; words++)
        cb_nearest(word, words->word, &nearest, &distance);
    return nearest;
}

const char *cb_word_of(const struct cb_word *words, int value)
{
    for (; words->word; words++)
        if (words->value == value)
            return words->word;
    return NULL;
}

const char *cb_access_word(enum cb_access access)
{
    return cb_word_of(cb_access_words, (int)access);
}

const char *cb_isolation_word(enum cb_isolation isolation)
{
    return cb_word_of(cb_isolation_words, (int)isolation);
}

const char *cb_protocol_word(enum cb_protocol protocol)
{
    return cb_word_of(cb_protocol_words, (int)protocol);
}

const char *cb_limit_word(enum cb_limit limit)
{
    for (size_t i = 0; i < limit_section.count; i++)
        if (limit_keys[i].number == (int)limit)
            return limit_keys[i].name;
    return NULL;
}
