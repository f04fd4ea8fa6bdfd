/* From a failed step of set-up to words: which layer, on what, why, and what the person can do. */
#include "supervisor/supervisor.h"

#include "base/cleanup.h"
#include "base/error.h"
#include "base/text.h"
#include "host/host.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

static const struct {
    enum cb_stage stage;
    const char *what;
    const char *layer;
    int feature; /* whose probe can explain it, or -1 */
} stages[] = {
    {CB_STAGE_IDS, "mapping ids into the cell", "user-namespace", CB_FEATURE_USER_NAMESPACE},
    {CB_STAGE_ROOT, "making the cell's private root", "mount-api", CB_FEATURE_MOUNT_API},
    {CB_STAGE_PIVOT, "switching to the cell's root", "mount-api", CB_FEATURE_MOUNT_API},
    {CB_STAGE_NETWORK, "bringing up the cell's loopback", "network-namespace", CB_FEATURE_NAMESPACES},
    {CB_STAGE_DIVERT, "setting up the cell's way to the network", "egress", CB_FEATURE_DIVERT},
    {CB_STAGE_PROGRAM, "making the program's process", "processes", -1},
    {CB_STAGE_SESSION, "making a session for the program", "session", -1},
    {CB_STAGE_TERMINAL, "making the cell's own terminal", "terminal", -1},
    {CB_STAGE_LIMITS, "setting a limit", "limits", -1},
    {CB_STAGE_PROCESSORS, "pinning the cell to some processors", "limits", -1},
    {CB_STAGE_NO_NEW_PRIVS, "setting no_new_privs", "privileges", -1},
    {CB_STAGE_CAPABILITIES, "dropping capabilities", "capabilities", -1},
    {CB_STAGE_LANDLOCK, "applying Landlock", "landlock", CB_FEATURE_LANDLOCK},
    {CB_STAGE_CALLS, "setting up the calls that the supervisor answers", "seccomp-notify", CB_FEATURE_SECCOMP_NOTIFY},
    {CB_STAGE_DESCRIPTORS, "setting up descriptors", "descriptors", CB_FEATURE_CLOSE_RANGE},
    {CB_STAGE_SECCOMP, "applying the system call filter", "seccomp", CB_FEATURE_SECCOMP},
    {CB_STAGE_INIT, "settling the cell's first process", "init", -1},
    {CB_STAGE_PRIVATE, "making the cell's private directory", "private-directory", -1},
};

static int explain_step(const struct cb_plan *plan, const struct cb_message *failure, cellblock_error **error)
{
    if (failure->detail < 0 || (size_t)failure->detail >= plan->step_count)
        return cb_fail(error, CELLBLOCK_ERROR_SETUP, failure->errnum, "assembling the cell's root");
    const struct cb_step *step = &plan->steps[failure->detail];
    if (step->kind == CB_STEP_PROC) {
        cb_fail(error, CELLBLOCK_ERROR_REFUSED, failure->errnum, "mounting the cell's own /proc");
        cb_error_layer(error, "proc");
        cb_host_explain(CB_FEATURE_PROC, failure->errnum, error);
        return -1;
    }
    if (failure->errnum == ESTALE)
        return cb_fail(error, CELLBLOCK_ERROR_SETUP, 0,
                       "/%s was replaced by something else while the cell was being set "
                       "up",
                       step->at);
    cb_fail(error, CELLBLOCK_ERROR_SETUP, failure->errnum, "putting /%s into the cell (%s)", step->at,
            step->kind == CB_STEP_SCRATCH ? "scratch" : cb_access_word(step->access));
    return cb_error_layer(error, "mounts");
}

/* The interpreter that the first line of a script names; false when it names none. `line` holds it, cut at the end. */
static bool read_interpreter(const char *path, char line[256])
{
    cb_autofd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    ssize_t length = fd < 0 ? -1 : read(fd, line, 255);
    if (length < 3 || line[0] != '#' || line[1] != '!')
        return false;
    line[length] = '\0';
    memmove(line, line + 2 + strspn(line + 2, " \t"), strlen(line + 2 + strspn(line + 2, " \t")) + 1);
    line[strcspn(line, "\n")] = '\0';
    return true;
}

/* Why does a program not start that is given by its path? */
static int hint_for_path(const struct cb_plan *plan, int errnum, cellblock_error **error)
{
    char line[256];
    cb_autofree char *path = plan->argv[0][0] == '/' ? strdup(plan->argv[0])
                                                     : cb_format("%s/%s", plan->directory, plan->argv[0]);
    if (!path)
        return -1;
    struct stat found;
    if (errnum == EACCES && stat(path, &found) == 0 && S_ISDIR(found.st_mode))
        return cb_error_hint(error, "it is a directory: name the program in it that is to run");
    if (errnum == EACCES)
        return cb_error_hint(error,
                             "is it executable (chmod +x)? If it is a script: name its interpreter, as in `sh %s`",
                             plan->argv[0]);
    if (errnum == ENOEXEC)
        return cb_error_hint(error, "it is neither a program for this machine nor a script that begins with \"#!\"");
    if (errnum != ENOENT)
        return -1;
    if (!read_interpreter(path, line))
        return cb_error_hint(error, "is it inside the workspace, or granted with --read?");
    if (strchr(line, '\r'))
        return cb_error_hint(error, "the script has Windows line endings: sed -i 's/\\r$//' %s", plan->argv[0]);
    line[strcspn(line, " \t")] = '\0';
    return cb_error_hint(error, "its interpreter, %s, is not in the cell", line);
}

static int explain_exec(const struct cb_plan *plan, const struct cb_message *failure, cellblock_error **error)
{
    const char *program = plan->argv[0];
    cb_fail(error, CELLBLOCK_ERROR_PROGRAM, failure->errnum, "%s", program);
    if (strchr(program, '/'))
        return hint_for_path(plan, failure->errnum, error);
    if (failure->errnum != ENOENT)
        return -1;
    for (size_t i = 0; plan->envp[i]; i++)
        if (strncmp(plan->envp[i], "PATH=", 5) == 0)
            return cb_error_hint(error, "it is in no directory of the cell's PATH: %s", plan->envp[i] + 5);
    return -1;
}

int cb_explain_failure(const struct cb_plan *plan, const struct cb_message *failure, cellblock_error **error)
{
    if (failure->stage == CB_STAGE_STEP)
        return explain_step(plan, failure, error);
    if (failure->stage == CB_STAGE_PLACE && failure->detail >= 0 && (size_t)failure->detail < plan->step_count) {
        cb_fail(error, CELLBLOCK_ERROR_REFUSED, failure->errnum, "making a Landlock rule for /%s",
                plan->steps[failure->detail].at);
        return cb_error_layer(error, "landlock");
    }
    if (failure->stage == CB_STAGE_EXEC)
        return explain_exec(plan, failure, error);
    if (failure->stage == CB_STAGE_DIRECTORY)
        return cb_fail(error, CELLBLOCK_ERROR_USAGE, failure->errnum, "starting in %s", plan->directory);
    for (size_t i = 0; i < sizeof stages / sizeof *stages; i++)
        if (stages[i].stage == failure->stage) {
            cb_fail(error, CELLBLOCK_ERROR_REFUSED, failure->errnum, "%s", stages[i].what);
            cb_error_layer(error, stages[i].layer);
            if (stages[i].feature >= 0)
                cb_host_explain((enum cb_feature)stages[i].feature, failure->errnum, error);
            return -1;
        }
    return cb_fail(error, CELLBLOCK_ERROR_SETUP, failure->errnum, "setting up the cell");
}
