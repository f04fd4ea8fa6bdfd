"""The kernel's surface: system calls, other tables of them, terminals."""

import os
import pty
import select
import subprocess

import pytest

from attacks import PRELUDE, helper
from conftest import HOOKED, PROGRAM, needs_root

# Whole calls that the filter refuses, and the answer.
EPERM = """mount umount2 pivot_root chroot fsopen fsconfig fsmount fspick open_tree open_tree_attr move_mount
mount_setattr setns unshare io_uring_setup io_uring_enter io_uring_register userfaultfd bpf keyctl add_key request_key
ptrace process_vm_readv process_vm_writev pidfd_getfd process_madvise process_mrelease kcmp perf_event_open
open_by_handle_at
name_to_handle_at kexec_load init_module finit_module delete_module swapon swapoff reboot acct quotactl syslog
settimeofday clock_settime adjtimex sethostname setdomainname fanotify_init iopl ioperm modify_ldt
tiocsti tiocsti-high tioclinux tioccons tiocsetd clone-newuser clone-newuser-high clone-newns clone-newnet socket-raw
sendto-fastopen sendmsg-fastopen sendmmsg-fastopen chmod-setuid fchmod-setuid fchmodat-setuid fchmodat2-setuid
mknod-device mknodat-device mknodat-setuid open-setuid openat-setuid openat-tmpfile-setuid creat-setuid memfd-hugetlb
prctl-set-mm personality-norandom seccomp-listener""".split()
ENOSYS = ["clone3", "openat2", "memfd_secret", "unknown-999"]
FAMILIES = """socket-packet socket-netlink-audit socket-netlink-netfilter socket-alg socket-vsock socket-mptcp
socket-sctp socket-icmp""".split()
ALLOWED = "getpid fork tcgets socket-tcp socket-udp socket-unix socket-netlink-route seccomp-filter".split()


def probe(cellblock, workspace, names, off=(), flags=()):
    program = helper("probe_syscalls", workspace)
    ran = cellblock.run(f"./{program.name}", *names, off=off, flags=flags)
    assert ran.status == 0, ran.err
    return dict(line.split(" ", 1) for line in ran.out.splitlines())


def bare(workspace, names):
    program = helper("probe_syscalls", workspace)
    out = subprocess.run([program, *names], capture_output=True, text=True, check=True).stdout
    return dict(line.split(" ", 1) for line in out.splitlines())


def test_dangerous_calls_are_refused_by_the_filter(cellblock, workspace):
    with_filter = probe(cellblock, workspace, EPERM)
    refused = {"blocked EPERM", "absent"}
    assert {name: answer for name, answer in with_filter.items() if answer not in refused} == {}
    # The kernel, too, refuses some of them to who has no privileges. The rest must get through without the filter.
    without = probe(cellblock, workspace, EPERM, off=["seccomp"])
    kernel_refuses = {name for name, answer in without.items() if answer.startswith("blocked")}
    reached = {name for name, answer in without.items() if answer.startswith("reached")}
    assert len(reached) > 25, without
    for name in "tiocsti", "keyctl", "ptrace", "process_vm_readv", "clone-newuser", "fchmod-setuid", "userfaultfd":
        assert name in reached or name in kernel_refuses and name == "userfaultfd", (name, without[name])


@needs_root
def test_root_without_a_cell_gets_through(cellblock, workspace):
    """What the filter refuses is really there to be used."""
    answers = bare(workspace, EPERM)
    blocked = {name for name, answer in answers.items() if answer.startswith("blocked")}
    assert len(blocked) < len(EPERM) / 3, blocked
    assert probe(cellblock, workspace, sorted(set(EPERM) - blocked)).keys() == set(EPERM) - blocked


@pytest.mark.parametrize("names, answers", [(ENOSYS, {"blocked ENOSYS"}),
                                            (FAMILIES, {"blocked EAFNOSUPPORT", "blocked EPROTONOSUPPORT"})],
                         ids=["hidden calls", "socket families"])
def test_hidden_calls_and_families(cellblock, workspace, names, answers):
    found = probe(cellblock, workspace, names)
    assert set(found.values()) <= answers, found


def test_ordinary_calls_get_through(cellblock, workspace):
    found = probe(cellblock, workspace, ALLOWED)
    assert all(answer.startswith("reached") for answer in found.values()), found


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="needs x86_64")
@pytest.mark.parametrize("name", ["int80-getpid", "x32-getpid"])
def test_other_system_call_tables_kill(cellblock, workspace, name):
    assert probe(cellblock, workspace, [name]) == {name: "killed SIGSYS"}
    assert probe(cellblock, workspace, [name], off=["seccomp"])[name] != "killed SIGSYS"


def test_no_new_namespace_with_the_filter_off(cellblock, workspace):
    """A second layer behind the filter for what matters most: without capabilities only a user namespace is left, and
    it gives no way to what the cell has not got."""
    answers = probe(cellblock, workspace, ["clone-newns", "clone-newnet", "mount", "setns", "chroot"], off=["seccomp"])
    assert answers["clone-newns"] == answers["clone-newnet"] == "blocked EPERM"


def test_in_a_user_namespace_of_its_own_landlock_still_forbids_mounts(cellblock, workspace):
    code = PRELUDE + 'call("unshare", 0x10000000 | 0x20000)\n' \
                     'attempt(call, "mount", b"none", b"/tmp", b"tmpfs", 0, None)'
    assert cellblock.python(code, off=["seccomp"]).out == "EPERM\n"
    assert cellblock.python(code, off=["seccomp", "landlock"]).out == "worked\n"
    assert "PermissionError: [Errno 1] unshare" in cellblock.python(code).err


def test_a_further_filter_does_not_loosen_the_first(cellblock, workspace):
    assert probe(cellblock, workspace, ["seccomp-filter", "mount"])["mount"] == "blocked EPERM"


# ---- Terminals ----

def in_terminal(cellblock, code, off=()):
    """Runs cellblock with a terminal as the three descriptors and as its controlling terminal. Returns what the program
    printed, and what could be read from the terminal afterwards as if a person had typed it."""
    master, slave = pty.openpty()
    program = [HOOKED if off else PROGRAM, "run", "--", "/usr/bin/python3", "-c", PRELUDE + code]
    command = ["setsid", "-c", "-w", "sh", "-c", '"$@"; stty -icanon min 0 time 0; echo "<$(cat)>"', "sh", *program]
    environment = {**cellblock.environment, "CELLBLOCK_TEST_OFF": ",".join(off)}
    process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, cwd=cellblock.workspace,
                               env=environment)
    os.close(slave)
    shown = b""
    while select.select([master], [], [], 30)[0]:
        try:
            piece = os.read(master, 4096)
        except OSError:
            break
        if not piece:
            break
        shown += piece
    process.wait(timeout=30)
    os.close(master)
    return shown.decode(errors="replace")


def test_the_high_half_of_the_request_does_not_help(cellblock):
    shown = in_terminal(cellblock, 'attempt(call, "syscall", 16, 0, ctypes.c_ulong(0x100005412), b"x")')
    assert "EPERM" in shown


def test_the_callers_terminal_can_not_be_taken(cellblock):
    """What the program controls is a terminal of its own; the caller's keeps its session and its foreground. (What else
    a terminal could be used for: test_attack_terminal.py.)"""
    shown = in_terminal(cellblock, 'attempt(os.open, "/dev/tty", os.O_RDWR); attempt(fcntl.ioctl, 0, 0x540E, 0); '
                                   'attempt(os.tcsetpgrp, 0, os.getpgrp())')
    assert shown.split() == ["worked", "EPERM", "worked", "<>"], shown
    # In the caller's session it would be the caller's, with a foreground that has no number in the cell.
    code = 'print(os.tcgetpgrp(os.open("/dev/tty", os.O_RDWR)), os.getpgrp())'
    assert in_terminal(cellblock, code).split() == ["2", "2", "<>"]
    assert in_terminal(cellblock, code, off=["session"]).split()[0] == "0"


NASTY = "\x1b]0;owned\x07\x1b[31m\r\n\x9b31m"


@pytest.mark.parametrize("arguments", [
    ["run", "--", NASTY], ["run", "--", "./" + NASTY], ["run", "--workspace", NASTY, "--", "true"],
    ["run", "--read", "/" + NASTY, "--", "true"], ["run", "--policy", NASTY, "--", "true"],
    ["run", "--profile", NASTY, "--", "true"], ["run", "--memory", NASTY, "--", "true"], ["run", "--" + NASTY],
    ["run", "--env", NASTY + "=1", "--", "true"], [NASTY], ["policy", NASTY], ["policy", "check", NASTY],
    ["doctor", NASTY]], ids=lambda value: " ".join(value).encode("unicode_escape").decode())
def test_cellblock_prints_no_escape_sequences_of_others(cellblock, arguments):
    ran = cellblock.command(*arguments)
    assert ran.status != 0
    assert not set(ran.stderr + ran.stdout) & (set(range(32)) - {10} | {0x7f}), ran.stderr
    assert b"\xc2\x9b" not in ran.stderr + ran.stdout


def test_escape_sequences_in_names_that_the_code_left(cellblock, workspace):
    """A script whose interpreter, and a directory whose name, the code of an earlier run chose."""
    (workspace / "script").write_text("#!/\x1b[31mx\n")
    (workspace / "script").chmod(0o755)
    (workspace / "pol\x1b[31m").write_text('{"cellblock": 1, "\\u001b[31m": 1, "files": [{"path": "\x9b31m"}]}')
    (workspace / "dir\x1b[31m").mkdir()
    for ran in (cellblock.run("./script"), cellblock.run("true", flags=["--policy", "pol\x1b[31m"]),
                cellblock.command("policy", "check", "pol\x1b[31m"),
                cellblock.run("nonexistent", cwd=workspace / "dir\x1b[31m"),
                cellblock.run("true", flags=["--workspace", "dir\x1b[31m", "--write", "dir\x1b[31m/x"])):
        assert b"\x1b" not in ran.stderr + ran.stdout and b"\xc2\x9b" not in ran.stderr, ran.stderr
