/* Puts the outcome of an attempt into words: what was seen, and what a person can do about it.
 *
 * One function per kind of feature. The order of the reasons matters: what was proved (a filter that refuses) comes
 * before what is likely (a setting that would explain it). */
#include "host/surroundings.h"

#include "base/cleanup.h"
#include "base/missing.h"
#include "base/text.h"

#include <string.h>

struct verdict {
    enum cb_probe_state state;
    struct cb_text detail, fix;
};

static void verdict_free(struct verdict *verdict)
{
    cb_text_free(&verdict->detail);
    cb_text_free(&verdict->fix);
}

#define see(...) cb_text_addf(&verdict->detail, __VA_ARGS__)
#define fix(...) cb_text_addf(&verdict->fix, __VA_ARGS__)

/* The first kernel that has all of what an attempt uses. */
static const struct {
    unsigned major, minor;
    const char *option; /* of the kernel's build */
} since[CB_FEATURE_COUNT] = {
    [CB_FEATURE_USER_NAMESPACE] = {3, 8, "CONFIG_USER_NS"},
    [CB_FEATURE_NAMESPACES] = {4, 6, "CONFIG_NAMESPACES, CONFIG_PID_NS, CONFIG_NET_NS, CONFIG_IPC_NS, CONFIG_UTS_NS"},
    [CB_FEATURE_MOUNT_API] = {5, 12, "CONFIG_TMPFS"},
    [CB_FEATURE_PROC] = {5, 2, "CONFIG_PROC_FS"},
    [CB_FEATURE_IDMAP] = {5, 12, "CONFIG_USER_NS"},
    [CB_FEATURE_LANDLOCK] = {5, 13, "CONFIG_SECURITY_LANDLOCK"},
    [CB_FEATURE_SECCOMP] = {4, 14, "CONFIG_SECCOMP_FILTER"},
    [CB_FEATURE_SECCOMP_NOTIFY] = {5, 9, "CONFIG_SECCOMP_FILTER"},
    [CB_FEATURE_PIDFD] = {5, 4, "nothing special"},
    [CB_FEATURE_CLOSE_RANGE] = {5, 11, "nothing special"},
    [CB_FEATURE_OPENAT2] = {5, 6, "nothing special"},
    [CB_FEATURE_OVERLAY] = {5, 11, "CONFIG_OVERLAY_FS"},
    [CB_FEATURE_CGROUP] = {4, 5, "CONFIG_CGROUPS, CONFIG_MEMCG, CONFIG_CGROUP_PIDS, CONFIG_CGROUP_SCHED"},
    [CB_FEATURE_DIVERT] = {4, 19, "CONFIG_NF_TABLES, CONFIG_NFT_TPROXY, CONFIG_PACKET"},
};

static bool too_old(enum cb_feature feature, const struct cb_surroundings *around)
{
    return around->kernel_major < since[feature].major ||
           (around->kernel_major == since[feature].major && around->kernel_minor < since[feature].minor);
}

static void see_failure(struct verdict *verdict, const struct cb_attempt *attempt)
{
    char buffer[128];
    see("%s failed", attempt->step);
    if (attempt->errnum)
        see(" (%s)", strerror_r(attempt->errnum, buffer, sizeof buffer));
}

/* How to start the container so that its filter, or its security module, lets us be. */
static void fix_container(struct verdict *verdict, const struct cb_surroundings *around, const char *why)
{
    if (strcmp(around->container, "docker") == 0)
        fix("start the container with: docker run --security-opt seccomp=unconfined --security-opt "
            "apparmor=unconfined --security-opt systempaths=unconfined … (or a seccomp profile that allows clone, "
            "clone3, unshare and the mount calls)");
    else if (strcmp(around->container, "podman") == 0)
        fix("start the container with: podman run --security-opt seccomp=unconfined --security-opt unmask=ALL …");
    else if (strcmp(around->container, "kubernetes") == 0)
        fix("in the pod's securityContext set seccompProfile.type: Unconfined and procMount: Unmasked (the latter with "
            "hostUsers: false)");
    else if (*around->container)
        fix("start the %s container without its %s, or run cellblock outside of it", around->container, why);
    else
        fix("start this process without the %s that is around it (look at the service's SystemCallFilter= and "
            "RestrictNamespaces=, or at the sandbox that started this shell)", why);
}

/* A call that is not there: the kernel is old, was built without it, or a filter pretends so. */
static void explain_absent(struct verdict *verdict, enum cb_feature feature, const struct cb_surroundings *around)
{
    if (too_old(feature, around)) {
        see(": Linux %u.%u is too old", around->kernel_major, around->kernel_minor);
        fix("upgrade to Linux %u.%u or newer", since[feature].major, since[feature].minor);
    } else if (around->filtered) {
        see(": a seccomp filter around this process hides it%s%s", *around->container ? ", as is usual in " : "",
            around->container);
        fix_container(verdict, around, "seccomp filter");
    } else {
        see(": this kernel was built without it");
        fix("use a kernel that is built with it (%s)", since[feature].option);
    }
}

static void explain_refused(struct verdict *verdict, const struct cb_surroundings *around)
{
    if (*around->container || around->filtered) {
        see(": refused by what is around this process (%s%s)", *around->container ? around->container : "",
            around->filtered ? *around->container ? ", a seccomp filter" : "a seccomp filter" : "");
        fix_container(verdict, around, around->filtered ? "seccomp filter" : "security profile");
    } else if (around->selinux) {
        see(": most likely refused by SELinux");
        fix("see what was refused with: sudo ausearch -m avc -ts recent");
    } else {
        see(": refused by a security module or by the rights of this process");
        fix("look for the refusal with: sudo dmesg | grep -i -e denied -e apparmor | tail");
    }
}

static void explain_general(struct verdict *verdict, enum cb_feature feature, const struct cb_attempt *attempt,
                            const struct cb_surroundings *around)
{
    switch (attempt->errnum) {
    case ENOSYS:
    case ENODEV: /* an unknown filesystem */
    case EINVAL:
    case EOPNOTSUPP:
        explain_absent(verdict, feature, around);
        break;
    case EPERM:
    case EACCES:
        if (too_old(feature, around))
            explain_absent(verdict, feature, around);
        else
            explain_refused(verdict, around);
        break;
    case ENOSPC:
    case EUSERS:
        see(": a limit on such namespaces is reached");
        fix("raise it: sysctl -a | grep 'user.max_.*_namespaces' shows the limits, and for example sudo sysctl -w "
            "user.max_net_namespaces=15000 sets one");
        break;
    case EAGAIN:
    case EMFILE:
    case ENFILE:
    case ENOMEM:
        fix("this process, or this user, is at a limit: raise it (ulimit -a shows them) and try again");
        break;
    default:
        fix("please report this, with the output of: cellblock doctor --json");
    }
}

/* ---- User namespaces ---- */

static void explain_apparmor(struct verdict *verdict, const struct cb_surroundings *around)
{
    see(": refused by AppArmor (kernel.apparmor_restrict_unprivileged_userns = %ld, as in Ubuntu 23.10 and newer)",
        around->apparmor_restrict);
    const char *program = *around->program ? around->program : "/usr/bin/cellblock";
    fix("allow it for this program alone:\n"
        "  printf 'abi <abi/4.0>,\\nprofile cellblock %s flags=(unconfined) {\\n  userns,\\n}\\n' | sudo tee "
        "/etc/apparmor.d/cellblock && sudo apparmor_parser -r /etc/apparmor.d/cellblock\n"
        "or for all programs: sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0", program);
}

static void explain_user_limit(struct verdict *verdict, const struct cb_surroundings *around)
{
    if (around->max_user_namespaces == 0) {
        see(": user.max_user_namespaces is 0, which forbids them");
        fix("sudo sysctl -w user.max_user_namespaces=15000 (to keep it: echo user.max_user_namespaces=15000 | sudo tee "
            "/etc/sysctl.d/50-cellblock.conf)");
        return;
    }
    see(": the limit of %ld user namespaces is used up, or they are nested 32 deep", around->max_user_namespaces);
    if (around->max_user_namespaces < 1000000)
        fix("sudo sysctl -w user.max_user_namespaces=%ld, or ",
            around->max_user_namespaces > 0 ? around->max_user_namespaces * 2 : 15000);
    fix("run cellblock less deeply nested in other sandboxes");
}

static void explain_user_refused(struct verdict *verdict, const struct cb_attempt *attempt,
                                 const struct cb_surroundings *around)
{
    if (around->filter_refuses_user) {
        see(": a seccomp filter around this process refuses user namespaces%s%s",
            *around->container ? ", as is usual in " : "", around->container);
        fix_container(verdict, around, "seccomp filter");
    } else if (around->userns_clone == 0 && !around->root) {
        see(": kernel.unprivileged_userns_clone is 0, which keeps them for root");
        fix("sudo sysctl -w kernel.unprivileged_userns_clone=1 (to keep it: echo kernel.unprivileged_userns_clone=1 | "
            "sudo tee /etc/sysctl.d/50-cellblock.conf)");
    } else if (around->ids_unmapped) {
        see(": this user or group id has no place in the user namespace that this process is in");
        fix("run cellblock as an id that is mapped there (see /proc/self/uid_map and gid_map)");
    } else if (around->chrooted) {
        see(": this process is in a chroot, where the kernel allows none");
        fix("run cellblock outside of the chroot, or enter that tree by pivot_root (systemd-nspawn, bwrap or a "
            "container do so) instead of chroot");
    } else if (around->apparmor_restrict > 0 && !around->root) {
        explain_apparmor(verdict, around);
    } else if (around->root && strstr(attempt->step, "_map")) {
        see(": root here lacks CAP_SETUID, CAP_SETGID or CAP_SYS_ADMIN");
        fix("keep these capabilities (in a container: --cap-add SETUID --cap-add SETGID --cap-add SYS_ADMIN), or run "
            "cellblock as an ordinary user");
    } else if (*around->container || around->filtered || around->selinux) {
        explain_refused(verdict, around);
    } else {
        see(": refused by a security module, or this process is in a chroot");
        fix("run cellblock outside of any chroot; else look for the refusal with: sudo dmesg | grep -i -e denied -e "
            "apparmor | tail");
    }
}

static void explain_user_namespace(struct verdict *verdict, const struct cb_attempt *attempt,
                                   const struct cb_surroundings *around)
{
    if (around->mapping == CB_MAPPING_NONE && !around->proc_missing) {
        see("root is the only id in this user namespace, so a cell could run as nothing else");
        fix("map more ids into the namespace that cellblock is in (such as unshare --map-root-user --map-auto), or run "
            "it as an ordinary user");
        return;
    }
    if (around->proc_missing) {
        see("no /proc is mounted here, so ids can't be mapped");
        fix("sudo mount -t proc proc /proc");
        return;
    }
    see_failure(verdict, attempt);
    switch (attempt->errnum) {
    case ENOSPC:
    case EUSERS:
        explain_user_limit(verdict, around);
        break;
    case EPERM:
    case EACCES:
        explain_user_refused(verdict, attempt, around);
        break;
    default:
        if (around->filter_refuses_user)
            explain_user_refused(verdict, attempt, around);
        else
            explain_general(verdict, CB_FEATURE_USER_NAMESPACE, attempt, around);
    }
}

/* ---- The others that have something of their own to say ---- */

static void explain_mount_api(struct verdict *verdict, const struct cb_attempt *attempt,
                              const struct cb_surroundings *around)
{
    see_failure(verdict, attempt);
    if (strcmp(attempt->step, "pivot_root") == 0 && attempt->errnum == EINVAL) {
        see(": the root of this system is the initial ramdisk, which can't be left");
        fix("boot into a root that is mounted (switch_root at the end of the ramdisk's init)");
        return;
    }
    explain_general(verdict, CB_FEATURE_MOUNT_API, attempt, around);
}

static void explain_proc(struct verdict *verdict, const struct cb_attempt *attempt,
                         const struct cb_surroundings *around)
{
    see_failure(verdict, attempt);
    if (attempt->errnum != EPERM) {
        explain_general(verdict, CB_FEATURE_PROC, attempt, around);
        return;
    }
    see(": %s, and the kernel then gives out no uncovered one",
        around->proc_missing ? "no /proc is mounted here" : "parts of /proc are covered or read-only here, as is usual "
                                                            "in a container");
    if (strcmp(around->container, "docker") == 0)
        fix("start the container with: docker run --security-opt systempaths=unconfined …");
    else if (strcmp(around->container, "podman") == 0)
        fix("start the container with: podman run --security-opt unmask=ALL …");
    else if (strcmp(around->container, "kubernetes") == 0)
        fix("in the pod's securityContext set procMount: Unmasked (with hostUsers: false)");
    else
        fix("mount a whole /proc where this process is started (findmnt -R /proc shows what covers it)");
}

static void explain_idmap(struct verdict *verdict, const struct cb_attempt *attempt,
                          const struct cb_surroundings *around)
{
    see_failure(verdict, attempt);
    if (attempt->errnum == EINVAL && !too_old(CB_FEATURE_IDMAP, around)) {
        see(": the filesystem of the current directory can't be idmapped");
        fix("work in a directory on ext4, xfs, btrfs or (Linux 6.3 and newer) tmpfs, or run cellblock as an ordinary "
            "user");
    } else if (attempt->errnum == EPERM) {
        see(": root here has no rights over the filesystem, as is usual in a container");
        fix("run cellblock as an ordinary user, who needs no idmapped mount");
    } else {
        explain_general(verdict, CB_FEATURE_IDMAP, attempt, around);
    }
}

static void explain_landlock(struct verdict *verdict, const struct cb_attempt *attempt,
                             const struct cb_surroundings *around)
{
    if (attempt->value > 0) {
        verdict->state = attempt->value >= 6 && !attempt->step ? CB_PROBE_YES : CB_PROBE_PARTLY;
        see("ABI %d, ", attempt->value);
        if (attempt->step)
            see("because with a higher one this failed: %s", attempt->step);
        else
            see("seen to refuse what it should");
        static const struct {
            int abi;
            const char *lack;
        } lacks[] = {{2, "moving files between directories"}, {3, "truncation"}, {4, "TCP"},
                     {5, "device ioctls"}, {6, "signals and abstract sockets"}};
        const char *separator = "; it knows nothing of ";
        for (size_t i = 0; i < sizeof lacks / sizeof *lacks; i++) {
            if (attempt->value >= lacks[i].abi)
                continue;
            see("%s%s", separator, lacks[i].lack);
            separator = ", ";
        }
        if (attempt->value < 6) {
            see(" (the namespaces stand for these)");
            fix("upgrade to Linux 6.12 or newer for a complete second wall");
        }
        return;
    }
    see_failure(verdict, attempt);
    if (attempt->errnum == EOPNOTSUPP) {
        see(": the kernel has it but it was not switched on at boot");
        fix("add landlock to the list in /sys/kernel/security/lsm and boot with it: lsm=landlock,… on the kernel's "
            "command line (GRUB_CMDLINE_LINUX in /etc/default/grub, then sudo update-grub and reboot)");
    } else if (attempt->errnum == E2BIG) {
        see(": this process is already under 16 rulesets, the most that the kernel takes");
        fix("run cellblock less deeply nested in other sandboxes");
    } else {
        explain_general(verdict, CB_FEATURE_LANDLOCK, attempt, around);
    }
}

static void explain_notify(struct verdict *verdict, const struct cb_attempt *attempt,
                           const struct cb_surroundings *around)
{
    see_failure(verdict, attempt);
    if (attempt->errnum == EBUSY) {
        see(": another supervisor already listens to this process, and the kernel takes only one");
        fix("run cellblock outside of the sandbox or container whose supervisor it is");
        return;
    }
    explain_general(verdict, CB_FEATURE_SECCOMP_NOTIFY, attempt, around);
}

static void see_cgroup(struct verdict *verdict, int bits)
{
    see("%s tree with%s%s%s", bits & CB_CGROUP_V2 ? "a delegated version 2" : "a writable version 1",
        bits & CB_CGROUP_MEMORY ? " memory" : "", bits & CB_CGROUP_PIDS ? " pids" : "",
        bits & CB_CGROUP_CPU ? " cpu" : "");
}

static void explain_cgroup(struct verdict *verdict, const struct cb_attempt *attempt,
                           const struct cb_surroundings *around)
{
    if (attempt->value & CB_CGROUP_ALL) {
        verdict->state = CB_PROBE_PARTLY;
        see_cgroup(verdict, attempt->value);
        see(" only");
    } else if (attempt->errnum == ENOENT || attempt->errnum == EOPNOTSUPP) {
        see("no cgroup tree with memory, pids or cpu is there for this process");
    } else if (attempt->errnum == EBUSY) {
        see("our cgroup is delegated, but this process is in it itself, and it can't have both processes and limits "
            "for cgroups below");
        fix("start it from one below: sh -c 'cd /sys/fs/cgroup$(cut -d: -f3 /proc/self/cgroup) && mkdir -p main && "
            "echo $$ >main/cgroup.procs && cd \"$OLDPWD\" && exec cellblock …' (a service: DelegateSubgroup=main, "
            "systemd 254)");
        fix("; limits work without it, less exactly");
        return;
    } else {
        see_failure(verdict, attempt);
        see(": our cgroup is not delegated to this user");
    }
    fix("start it in a cgroup of its own: systemd-run --user --scope -p Delegate=yes -- cellblock …");
    if (*around->container)
        fix(" (in a container: with --cgroupns=private and a writable /sys/fs/cgroup)");
    fix("; limits work without it, less exactly");
}

static void explain_divert(struct verdict *verdict, const struct cb_attempt *attempt,
                             const struct cb_surroundings *around)
{
    see_failure(verdict, attempt);
    switch (attempt->errnum) {
    case ENOENT:
    case EOPNOTSUPP:
    case EPROTONOSUPPORT:
    case ENOPROTOOPT:
    case EINVAL:
    case ETIMEDOUT:
        see(": parts of nftables are not loaded, or not in this kernel; without rules for the network it is not needed");
        fix("sudo modprobe -a nf_tables nft_tproxy af_packet (kernel options %s)",
            since[CB_FEATURE_DIVERT].option);
        break;
    default:
        explain_general(verdict, CB_FEATURE_DIVERT, attempt, around);
    }
}

static const char *seen_to_work(enum cb_feature feature)
{
    switch (feature) {
    case CB_FEATURE_NAMESPACES: return "mount, pid, net, ipc, uts and cgroup";
    case CB_FEATURE_MOUNT_API: return "a root was put together, made read-only and entered";
    case CB_FEATURE_PROC: return "a fresh one was mounted";
    case CB_FEATURE_IDMAP: return "works on the filesystem of the current directory";
    case CB_FEATURE_SECCOMP: return "a filter refused what it should";
    case CB_FEATURE_SECCOMP_NOTIFY: return "a call was answered, and a descriptor handed over";
    case CB_FEATURE_PIDFD: return "clone, signal, poll and wait";
    case CB_FEATURE_OVERLAY: return "files were changed through one, on tmpfs";
    case CB_FEATURE_DIVERT: return "a connection was held, let through, and arrived";
    default: return "works";
    }
}

static void explain_success(struct verdict *verdict, enum cb_feature feature, const struct cb_attempt *attempt,
                            const struct cb_surroundings *around)
{
    verdict->state = CB_PROBE_YES;
    if (feature == CB_FEATURE_USER_NAMESPACE)
        see("%s", around->mapping == CB_MAPPING_NOBODY ? "root can be mapped to an unprivileged id"
                                                       : "made, and our own id mapped in it");
    else if (feature == CB_FEATURE_IDMAP && around->mapping != CB_MAPPING_NOBODY)
        see("not needed for an ordinary user");
    else if (feature == CB_FEATURE_CGROUP)
        see_cgroup(verdict, attempt->value);
    else
        see("%s", seen_to_work(feature));
}

static void explain(struct verdict *verdict, enum cb_feature feature, const struct cb_attempt *attempt,
                    const struct cb_surroundings *around)
{
    if (feature == CB_FEATURE_LANDLOCK) {
        explain_landlock(verdict, attempt, around);
        return;
    }
    if (!attempt->step) {
        explain_success(verdict, feature, attempt, around);
        return;
    }
    switch (feature) {
    case CB_FEATURE_USER_NAMESPACE: explain_user_namespace(verdict, attempt, around); break;
    case CB_FEATURE_MOUNT_API: explain_mount_api(verdict, attempt, around); break;
    case CB_FEATURE_PROC: explain_proc(verdict, attempt, around); break;
    case CB_FEATURE_IDMAP: explain_idmap(verdict, attempt, around); break;
    case CB_FEATURE_SECCOMP_NOTIFY: explain_notify(verdict, attempt, around); break;
    case CB_FEATURE_CGROUP: explain_cgroup(verdict, attempt, around); break;
    case CB_FEATURE_DIVERT: explain_divert(verdict, attempt, around); break;
    default:
        see_failure(verdict, attempt);
        explain_general(verdict, feature, attempt, around);
    }
}

int cb_verdict(enum cb_feature feature, const struct cb_attempt *attempt, const struct cb_surroundings *surroundings,
               const struct cb_probe *user, struct cb_probe *probe)
{
    __attribute__((cleanup(verdict_free))) struct verdict made = {.state = CB_PROBE_NO};
    struct verdict *verdict = &made;
    bool without = user && user->state == CB_PROBE_NO;
    if (without && (cb_feature_in_user_namespace(feature) ||
                    (feature == CB_FEATURE_IDMAP && surroundings->mapping != CB_MAPPING_SELF)))
        see("not tried: it needs a user namespace");
    else
        explain(verdict, feature, attempt, surroundings);

    bool has_fix = made.fix.length > 0 || made.fix.failed;
    cb_autofree char *detail = cb_text_take(&made.detail);
    cb_autofree char *remedy = has_fix ? cb_text_take(&made.fix) : NULL;
    if (!detail || (has_fix && !remedy))
        return -1;
    probe->state = made.state;
    probe->errnum = attempt->step ? attempt->errnum : 0;
    probe->detail = cb_steal(detail);
    probe->fix = cb_steal(remedy);
    return 0;
}
