/* Landlock: finding the ABI by building rulesets, and enforcing one for real.
 *
 * The number that the kernel reports is only where the search begins: a backport or an outer filter can make it lie,
 * so a ruleset with every right of that ABI is built, one ABI less each time the kernel says EINVAL. The attempt (in a
 * child) then enforces one and looks whether each kind of right is really refused. */
#include "host/landlock.h"

#include "base/cleanup.h"
#include "host/attempt.h"
#include "host/host.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

struct cb_landlock_ruleset_attr cb_landlock_handled(int abi, size_t *size)
{
    struct cb_landlock_ruleset_attr attr = {0};
    if (abi >= 1)
        attr.handled_access_fs |= (LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1;
    if (abi >= 2)
        attr.handled_access_fs |= LANDLOCK_ACCESS_FS_REFER;
    if (abi >= 3)
        attr.handled_access_fs |= LANDLOCK_ACCESS_FS_TRUNCATE;
    if (abi >= 4)
        attr.handled_access_net |= LANDLOCK_ACCESS_NET_BIND_TCP | LANDLOCK_ACCESS_NET_CONNECT_TCP;
    if (abi >= 5)
        attr.handled_access_fs |= LANDLOCK_ACCESS_FS_IOCTL_DEV;
    if (abi >= 6)
        attr.scoped |= LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | LANDLOCK_SCOPE_SIGNAL;
    if (abi >= 9)
        attr.handled_access_fs |= LANDLOCK_ACCESS_FS_RESOLVE_UNIX;
    *size = abi >= 6 ? sizeof attr
            : abi >= 4 ? offsetof(struct cb_landlock_ruleset_attr, scoped)
                       : offsetof(struct cb_landlock_ruleset_attr, handled_access_net);
    return attr;
}

int cb_landlock_find(const struct cb_landlock_calls *calls, int *errnum)
{
    *errnum = 0;
    int abi = calls->version(calls->data);
    if (abi <= 0) {
        *errnum = abi < 0 ? errno : EOPNOTSUPP;
        return 0;
    }
    if (abi > CB_LANDLOCK_ABI_KNOWN)
        abi = CB_LANDLOCK_ABI_KNOWN;
    for (; abi > 0; abi--) {
        size_t size;
        struct cb_landlock_ruleset_attr attr = cb_landlock_handled(abi, &size);
        int ruleset = calls->create(&attr, size, calls->data);
        if (ruleset >= 0) {
            calls->close(ruleset, calls->data);
            *errnum = 0;
            return abi;
        }
        *errnum = errno;
        if (errno != EINVAL && errno != E2BIG)
            return 0;
    }
    return 0;
}

static int kernel_version(void *data)
{
    return cb_sys_landlock_create_ruleset(NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
}

static int kernel_create(const struct cb_landlock_ruleset_attr *attr, size_t size, void *data)
{
    return cb_sys_landlock_create_ruleset(attr, size, 0);
}

static void kernel_close(int ruleset, void *data)
{
    close(ruleset);
}

int cb_landlock_find_here(int *errnum)
{
    return cb_landlock_find(&(struct cb_landlock_calls){kernel_version, kernel_create, kernel_close, NULL}, errnum);
}

int cb_host_landlock_abi(void)
{
    int errnum, abi = cb_landlock_find_here(&errnum);
#ifdef CELLBLOCK_TEST_HOOKS
    /* What an older kernel would have, to try it on this one. */
    const char *most = getenv("CELLBLOCK_TEST_LANDLOCK_ABI");
    if (most && atoi(most) < abi)
        return atoi(most);
#endif
    return abi;
}

static struct cb_attempt not_enforced(const char *step, int abi)
{
    return (struct cb_attempt){.step = step, .errnum = errno, .value = abi};
}

struct cb_attempt cb_try_landlock(int abi)
{
    size_t size;
    struct cb_landlock_ruleset_attr attr = cb_landlock_handled(abi, &size);
    cb_autofd int ruleset = cb_sys_landlock_create_ruleset(&attr, size, 0);
    if (ruleset < 0)
        return not_enforced("landlock_create_ruleset", abi - 1);

    /* Files may be read everywhere, directories nowhere. */
    cb_autofd int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    struct cb_landlock_path_beneath_attr rule = {.allowed_access = LANDLOCK_ACCESS_FS_READ_FILE, .parent_fd = root};
    if (root < 0 || cb_sys_landlock_add_rule(ruleset, CB_LANDLOCK_RULE_PATH_BENEATH, &rule, 0) < 0)
        return not_enforced("landlock_add_rule", 0);

    cb_autofd int file_before = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    cb_autofd int dir_before = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    cb_autofd int tcp = abi >= 4 ? socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0) : -1;
    bool signal_before = abi >= 6 && kill(getppid(), 0) == 0;

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return not_enforced("prctl(PR_SET_NO_NEW_PRIVS)", 0);
    if (cb_sys_landlock_restrict_self(ruleset, abi >= 7 ? LANDLOCK_RESTRICT_SELF_LOG_SAME_EXEC_OFF : 0) < 0)
        return not_enforced("landlock_restrict_self", abi >= 7 && errno == EINVAL ? 6 : 0);

    errno = 0;
    cb_autofd int dir = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir_before >= 0 && (dir >= 0 || errno != EACCES))
        return not_enforced("refusing to read a directory under a Landlock ruleset", 0);
    cb_autofd int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    if (file_before >= 0 && file < 0)
        return not_enforced("reading an allowed file under a Landlock ruleset", 0);

    struct sockaddr_in discard = {.sin_family = AF_INET, .sin_port = htons(9)};
    discard.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (tcp >= 0 && (connect(tcp, (struct sockaddr *)&discard, sizeof discard) == 0 || errno != EACCES))
        return not_enforced("refusing a TCP connection under a Landlock ruleset", 3);
    errno = 0;
    if (signal_before && (kill(getppid(), 0) == 0 || errno != EPERM))
        return not_enforced("refusing a signal to the outside under a Landlock ruleset", 5);
    return (struct cb_attempt){.value = abi};
}
