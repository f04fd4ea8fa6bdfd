/* Looks around: settings, filters, container, chroot. See surroundings.h. */
#include "host/surroundings.h"

#include "base/cleanup.h"
#include "base/missing.h"
#include "base/text.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>

/* The start of a small file; "" when it can't be read. */
static void read_start(const char *path, char *buffer, size_t size)
{
    cb_autofd int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? 0 : read(fd, buffer, size - 1);
    buffer[length > 0 ? length : 0] = '\0';
}

static long read_number(const char *path)
{
    char text[32], *end;
    read_start(path, text, sizeof text);
    long number = strtol(text, &end, 10);
    return end == text ? -1 : number;
}

static bool filter_attached(void)
{
    char status[4096];
    read_start("/proc/self/status", status, sizeof status);
    const char *line = strstr(status, "\nSeccomp:");
    return line && strtol(line + strlen("\nSeccomp:"), NULL, 10) == 2;
}

/* A user namespace that shares its root directory is nonsense, and the kernel says EINVAL to it before it asks about
 * rights. Whatever else comes back was said by a filter. No process can come out of this. */
static bool filter_refuses_user_namespace(void)
{
    long result = syscall(SYS_clone, CLONE_NEWUSER | CLONE_FS | SIGCHLD, 0, 0, 0, 0);
    if (result == 0)
        _exit(0);
    return result < 0 && errno != EINVAL;
}

/* A chroot that is no mount point has no entry for "/" in its list of mounts; root can also compare with process 1. */
static bool in_chroot(void)
{
    struct stat ours, first;
    if (stat("/", &ours) == 0 && stat("/proc/1/root/", &first) == 0 &&
        (ours.st_dev != first.st_dev || ours.st_ino != first.st_ino)) {
        struct stat our_mounts, first_mounts;
        if (stat("/proc/self/ns/mnt", &our_mounts) == 0 && stat("/proc/1/ns/mnt", &first_mounts) == 0 &&
            our_mounts.st_ino == first_mounts.st_ino)
            return true;
    }
    FILE *file = fopen("/proc/self/mountinfo", "re");
    if (!file)
        return false;
    bool found = false;
    cb_autofree char *line = NULL;
    size_t room = 0;
    while (!found && getline(&line, &room, file) > 0) {
        char point[4] = "";
        found = sscanf(line, "%*s %*s %*s %*s %3s", point) == 1 && strcmp(point, "/") == 0;
    }
    fclose(file);
    return !found;
}

static const char *container_kind(void)
{
    static const char *const kinds[] = {"docker", "podman", "kubernetes", "lxc", "systemd-nspawn"};
    if (getenv("KUBERNETES_SERVICE_HOST"))
        return "kubernetes";
    if (access("/.dockerenv", F_OK) == 0)
        return "docker";
    if (access("/run/.containerenv", F_OK) == 0)
        return "podman";
    char name[32];
    read_start("/run/systemd/container", name, sizeof name);
    name[strcspn(name, "\n")] = '\0';
    const char *variable = getenv("container");
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(name, kinds[i]) == 0 || (variable && strcmp(variable, kinds[i]) == 0))
            return kinds[i];
    return "";
}

void cb_surroundings_look(struct cb_surroundings *surroundings)
{
    *surroundings = (struct cb_surroundings){
        .mapping = cb_mapping_of_caller(),
        .root = geteuid() == 0,
        .ids_unmapped = cb_ids_unmapped(),
        .proc_missing = access("/proc/self/status", F_OK) != 0,
        .filtered = filter_attached(),
        .filter_refuses_user = filter_refuses_user_namespace(),
        .selinux = read_number("/sys/fs/selinux/enforce") == 1,
        .userns_clone = read_number("/proc/sys/kernel/unprivileged_userns_clone"),
        .max_user_namespaces = read_number("/proc/sys/user/max_user_namespaces"),
        .apparmor_restrict = read_number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns"),
    };
    surroundings->chrooted = !surroundings->proc_missing && in_chroot();
    snprintf(surroundings->container, sizeof surroundings->container, "%s", container_kind());
    struct utsname name;
    if (uname(&name) == 0)
        sscanf(name.release, "%u.%u", &surroundings->kernel_major, &surroundings->kernel_minor);
    ssize_t length = readlink("/proc/self/exe", surroundings->program, sizeof surroundings->program - 1);
    surroundings->program[length > 0 ? length : 0] = '\0';
}
