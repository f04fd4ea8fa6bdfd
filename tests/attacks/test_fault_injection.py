"""Every system call that a run makes before its program starts, and every one of the supervisor after that, is made to
fail once: a table with a row for each call, not a sample.

A row passes in one of two ways. The run is refused: status 125, with a message that says what failed. Or the run is
the same as ever, down to what the program can see of its own confinement, and the list below says why that may be.
Nothing runs outside a cell, and no process, mount, cgroup or file is left.

Which calls there are is found out first, by following a run that goes well; so the table grows with the product.
"""

import collections
import errno
import os
import re
import subprocess

import pytest

from attacks import is_root, outside_helper
from conftest import PROGRAM, is_sanitized, skip_because
from leftovers import Leftovers

# What the call fails with: an error that it really knows, and that does not mean "there is none" for what was asked.
ERRORS = {
    **dict.fromkeys(["openat", "openat2", "open_tree", "fsopen", "fsmount", "pipe2", "socket", "socketpair",
                     "epoll_create1", "timerfd_create", "signalfd4", "eventfd2", "pidfd_open", "memfd_create", "dup2",
                     "dup3", "inotify_init1"], "EMFILE"),
    **dict.fromkeys(["newfstatat", "fstat", "statx", "statfs", "fstatfs", "readlink", "readlinkat", "access",
                     "faccessat", "faccessat2", "getcwd", "mmap", "mprotect", "mremap", "epoll_ctl",
                     "landlock_add_rule", "ioctl", "sendmsg", "recvmsg", "sendto", "recvfrom", "getdents64", "poll",
                     "ppoll", "chdir", "fchdir", "mkdirat", "symlinkat", "process_vm_readv"], "ENOMEM"),
    **dict.fromkeys(["clone", "clone3", "fork", "vfork"], "EAGAIN"),
    **dict.fromkeys(["read", "write", "pread64", "pwrite64", "close"], "EIO"),
    "execve": "EIO",
    "prctl": "EACCES",
}
OTHERS = "EPERM"

# In the manual there is no error that these could meet here.
CANNOT_FAIL = {
    "getpid", "gettid", "getppid", "getuid", "geteuid", "getgid", "getegid", "getresuid", "getresgid", "umask",
    "exit", "exit_group", "rt_sigprocmask", "rt_sigaction", "rt_sigpending", "rt_sigreturn", "set_tid_address",
    "setfsuid", "setfsgid", "sched_getaffinity", "uname", "clock_gettime", "restart_syscall",
    "brk",                          # answers with an address, and never with an error
    "wait4", "waitid",              # for a child that is there
    "munmap", "lseek", "sysinfo", "timerfd_settime", "fcntl F_GETFD",   # of what is there, and with what makes sense
    "rmdir",                        # of our own empty directory
    "running recvfrom", "running read",     # from our own pipes, and what is ready
}

# Where the second argument tells what the call is about: its number there, and a word.
KINDS = {
    "fcntl": (1, {0: "F_DUPFD", 1: "F_GETFD", 2: "F_SETFD", 3: "F_GETFL", 4: "F_SETFL", 1030: "F_DUPFD_CLOEXEC"}),
    "prctl": (0, {1: "PR_SET_PDEATHSIG", 2: "PR_GET_PDEATHSIG", 3: "PR_GET_DUMPABLE", 4: "PR_SET_DUMPABLE",
                  15: "PR_SET_NAME", 22: "PR_SET_SECCOMP", 23: "PR_CAPBSET_READ", 24: "PR_CAPBSET_DROP",
                  28: "PR_SET_SECUREBITS", 36: "PR_SET_CHILD_SUBREAPER", 38: "PR_SET_NO_NEW_PRIVS",
                  47: "PR_CAP_AMBIENT"}),
    "ioctl": (1, {0x5401: "TCGETS", 0x5413: "TIOCGWINSZ", 0x8914: "SIOCSIFFLAGS", 0xC0502100: "NOTIF_RECV",
                  0xC0182101: "NOTIF_SEND", 0x40082102: "NOTIF_ID_VALID", 0x40082104: "NOTIF_SET_FLAGS"}),
    "epoll_ctl": (1, {1: "ADD", 2: "DEL", 3: "MOD"}),
    "landlock_create_ruleset": (1, {0: "version"}),
}

# Calls whose failure may leave a run as it is, by who makes them; everything else must refuse it. The supervisor's life
# has three parts: planning, up to the clone; starting, until the program runs; running.
NO_CGROUP = "no cgroup then: the watchdog keeps the limits"
NO_LOOK = "the watchdog looks again, and what can't be read counts as it did; the guard refuses that one call"
GOES_ON = {
    "planning prlimit64": "the C library, before main: how large a stack might be",
    "planning readlink": "the C library, before main: the program's own name",
    "planning set_robust_list": "the C library, before main: there is no robust lock",
    "planning rseq": "the C library, before main: it does without",
    "planning getrandom": "the C library, before main: it has another source. Or the name of a cgroup: none then",
    "planning prctl PR_CAPBSET_READ": "libcap, before main: how many capabilities it has names for",
    "planning capget": "libcap, before main: which version; the one that asks for capabilities refuses",
    "planning fcntl F_GETFL": "how a terminal was, to put it back; for a stream that is handed over it refuses",
    "planning ioctl TCGETS": "is this a terminal, to put it back afterwards?",
    "planning openat2": "the path is walked step by step instead, with the same checks",
    "planning newfstatat": "the C library: the best size for a buffer. Or a cgroup: none then",
    "planning openat": "/dev/urandom, for the order in tables of a library: it has another source. Or a cgroup",
    "planning read": "likewise",
    **dict.fromkeys([f"planning {name}" for name in (
        "faccessat2", "pipe2", "pidfd_open", "mmap", "clone", "setpgid", "mkdirat", "write", "eventfd2", "getxattr",
        "fgetxattr", "unlinkat", "pidfd_send_signal", "pread64")], NO_CGROUP),
    "janitor *": "it tidies up after us and after others; the supervisor removes its own cgroup first",
    "running prctl": "the guard, as root: what becoming the cell's id clears is put back, and there was nothing",
    **dict.fromkeys([f"running {name}" for name in (
        "openat", "openat2", "newfstatat", "fstatfs", "readlink", "readlinkat", "pread64", "getdents64", "getrandom",
        "process_vm_readv", "capget", "capset", "mkdirat", "ioctl NOTIF_ID_VALID")], NO_LOOK),
    "starting ioctl NOTIF_SET_FLAGS": "answers take a little longer",
    "running recvmsg": "the wire is read once more when the cell is gone",
    "running unlinkat": "the janitor removes the cgroup then",
    "running pidfd_send_signal": "the janitor, which is no longer needed, also ends by itself",
    "running epoll_ctl DEL": "nobody listens to it any more",
    "running epoll_ctl MOD": "it is not watched yet, and is then added",
    "planning getdents64": "without namespaces: how many processes the user has, for the limit; taken as none",
    "planning epoll_ctl DEL": "likewise",
    "planning epoll_ctl MOD": "likewise",
    "running poll": "asked again",
    **dict.fromkeys(["running sendto", "running write"], "had it been part of the output, that would show"),
    "init prctl PR_SET_NAME": "a name for people",
    "init prctl PR_SET_PDEATHSIG": "it also ends when the wire to the supervisor does",
    "init write": "oom_score_adj: who goes first when memory runs out",
    "init openat": "likewise; or /proc/loadavg at the end: how many processes there were",
    "init read": "likewise; or a signal, which is still there when it is asked for again",
    **dict.fromkeys([f"init {name}" for name in ("pread64", "getdents64", "unlinkat", "fchmod", "fchmodat",
                                               "kill", "pidfd_open", "pidfd_send_signal")],
                    "without namespaces, at the end: it looks again, and tries again, until nothing is left"),
    "init clock_nanosleep": "likewise: a moment's wait between two looks",
    "program openat": "oom_score_adj: who goes first when memory runs out",
    "program write": "likewise",
    "program prctl PR_SET_PDEATHSIG": "without namespaces: the first process ends it; this is for when that is killed",
    "init close_range": "the descriptors are closed one by one",
    "program close_range": "likewise",
    "program fcntl F_GETFL": "no Landlock rule for a stream that can't be looked at: less, not more, is allowed",
    "program newfstatat": "likewise",
    "* close": "a descriptor that stays open is closed by close_range before the program starts, or with its process",
}

# Not a refusal, and not the same as ever: other ends that are right.
OTHER_ENDS = {
    "program execve": (126, "the program could not be executed: as in a shell"),
    "running write": (141, "what the program wrote could not be delivered: it is told so, and so is the caller"),
    "running sendto": (141, "likewise"),
    "init poll": (137, "init can't go on, and the cell ends with it"),
    "init sendmsg": (137, "init's last word is lost: how the program ended is not known, so not well"),
    "planning mprotect": (127, "the C library, before main, ends the program with a message of its own"),
    "planning arch_prctl": (127, "likewise"),
}

# After the program has started, what it writes is relayed in pieces, and how many there are is chance.
RELAY = {"read", "write", "recvfrom", "sendto", "poll", "epoll_wait", "epoll_ctl", "close"}
OCCURRENCES = {name: 12 for name in RELAY}

# What is written outside would be found there afterwards, and who stays behind would be seen.
PROBE = """
(setsid sleep 1000 >/dev/null 2>&1 &)
read line <{outside}/secret && echo "CAN READ OUTSIDE"
echo x >{outside}/made
echo x >/usr/made && echo "CAN WRITE THE SYSTEM"
echo x >{outside}/granted/made
mkdir .vscode && echo "CAN MAKE A PROTECTED PATH"
echo x >.git/hooks/made && echo "CAN WRITE A PROTECTED PATH"
read line <hidden/secret && echo "CAN READ WHAT IS HIDDEN"
set
echo /proc/self/fd/*
exec cat /proc/self/status /proc/self/limits /proc/net/dev /proc/self/mountinfo
"""
CHANGES = re.compile(r"(Tgid|Ngid|Pid|PPid|PPID|TracerPid|NS\w+|State|FDSize|SigQ|Vm\w+|Rss\w+|Huge\w+|Cpus\w+|Mems\w+|"
                     r"(non)?voluntary\w+)\b")


def confinement(text, namespaces):
    """What the program found out about itself, without what is different every time. Without namespaces of its own it
    sees the host's mounts, and its limit of processes counts those of the user."""
    lines = []
    for line in text.splitlines():
        words = line.split()
        if not words or CHANGES.match(line):
            continue
        if "-" in words and words[0].isdigit():         # a mount: root, place, options, kind
            if not namespaces:
                continue
            line = " ".join(words[3:6] + [words[words.index("-") + 1]])
        if line.startswith("Max processes") and not namespaces:
            continue
        if len(words) == 17 and words[0].endswith(":"):
            line = words[0]                             # an interface, with counts
        lines.append(re.sub(r"cellblock-[0-9a-f]{16}", "cellblock-…", line))
    return lines


Row = collections.namedtuple("Row", "role process name kind occurrence")
Call = collections.namedtuple("Call", "process name arguments")


class Table:
    def __init__(self, cellblock, outside, tmp_path, flags):
        self.flags = flags
        self.namespaces = "landlock" not in flags
        self.workspace = cellblock.workspace
        self.outside = outside
        self.report = tmp_path / "report"
        self.temporary = tmp_path / "temporary"
        self.temporary.mkdir()
        (outside / "secret").write_text("SECRET\n")
        self.probe = PROBE.format(outside=outside)
        self.environment = {**cellblock.environment, "PATH": "/usr/bin:/bin", "TMPDIR": str(self.temporary)}
        self.places = [outside, cellblock.home, self.temporary]
        self.tool = outside_helper("deny_syscall")

    def run(self, *how):
        return subprocess.run([self.tool, *how, "--", PROGRAM, "run", *self.flags, "--", "sh", "-c", self.probe],
                              cwd=self.workspace, env=self.environment, stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, errors="replace", timeout=60)

    def seen(self, ran):
        return confinement(ran.stdout, self.namespaces)

    def look(self):
        """A run that goes well: its calls, and what the program sees."""
        ran = self.run("--list", self.report)
        assert ran.returncode == 0, ran.stderr
        assert "CAN" not in ran.stdout
        calls = []
        for line in self.report.read_text().splitlines():
            word, *rest = line.split()
            if word == "call":
                calls.append(Call(int(rest[0]), rest[1], [int(number, 16) for number in rest[2:]]))
        return calls, self.seen(ran)

    def try_row(self, row):
        """What is wrong with it, or None."""
        leftovers = Leftovers(*self.places)
        error = ERRORS.get(row.name, OTHERS)
        ran = self.run(row.name, error, str(row.process), str(row.occurrence), self.report)
        lines = [line.split() for line in self.report.read_text().splitlines()]
        told = {word: int(number) for word, number, *_ in lines}
        pids = [int(rest[0]) for word, _, *rest in lines if word == "process"]
        problem = problem_of(row, getattr(errno, error), ran, self.seen(ran), self.usual, told)
        if ran.returncode != 3 and (left := leftovers.found(pids)):
            problem = f"left behind: {left}"
        return f"{row.role} {row.name} {row.kind} #{row.occurrence} {error}: {problem}" if problem else None


def roles(calls):
    """Who is who among the processes: by what only that one does."""
    made = collections.defaultdict(set)
    for call in calls:
        made[call.process].add(call.name)
    return {process: "init" if process and "landlock_create_ruleset" in names else
            "program" if "execve" in names else "janitor" for process, names in made.items()}


def rows(calls, most):
    who = roles(calls)
    seen = collections.Counter()
    cloned = next(i for i, call in enumerate(calls) if call.process == 0 and call.name == "clone3")
    waits = next(i for i, call in enumerate(calls) if call.process == 0 and call.name == "epoll_wait")
    started = max(i for i, call in enumerate(calls[:waits]) if call.process == 0 and call.name == "recvmsg")
    for index, call in enumerate(calls):
        key = call.process, call.name
        seen[key] += 1
        where, words = KINDS.get(call.name, (0, {}))
        kind = words.get(call.arguments[where] & 0xFFFFFFFF, "")
        part = "planning" if index <= cloned else "starting" if index <= started else "running"
        role = who[call.process] if call.process else part
        words = {call.name, f"{call.name} {kind}", f"{role} {call.name}"}
        if not words & CANNOT_FAIL and seen[key] <= most.get(call.name, 1000):
            yield Row(role, call.process, call.name, kind, seen[key])


def listed(table, row):
    for what in (f"{row.role} {row.name} {row.kind}", f"{row.role} {row.name}", f"{row.role} *", f"* {row.name}"):
        if what in table:
            return table[what]
    return None


def problem_of(row, error, ran, found, usual, told):
    """None when the row is as it should be. 3 is how deny_syscall ends what takes too long."""
    if ran.returncode == 3:
        return "it never ends"
    if told["left"]:
        return f"{told['left']} processes left, status {ran.returncode}: {ran.stderr[-200:]}"
    if "CAN" in ran.stdout:
        return "not confined: " + " ".join(line for line in ran.stdout.splitlines() if "CAN" in line)
    if not told["denied"]:
        return None             # relayed in other pieces this time
    if ran.returncode == 125:
        said = (row.role == "janitor" or os.strerror(error) in ran.stderr or
                re.search(r"cellblock: (?!the cell ended while)", ran.stderr))
        return None if said else f"refused without a reason: {ran.stderr[-200:]!r}"
    if (ran.returncode, found) == (0, usual):
        return None if listed(GOES_ON, row) else "it ran as ever, and nothing says why it may"
    status, _ = listed(OTHER_ENDS, row) or (None, None)
    missing = [line for line in usual if line not in found]
    new = [line for line in found if line not in usual]
    said = row.name not in ("write", "sendto") or f"is lost: {os.strerror(error)}" in ran.stderr
    if status == ran.returncode and said and len(new) <= 1:     # the last line may be half of one
        return None
    return f"status {ran.returncode}, without {missing[:3]}, with {new[:3]}: {ran.stderr[-200:]!r}"


LOOKUPS = {"openat", "openat2", "newfstatat", "readlink", "readlinkat", "access", "open_tree", "mount_setattr",
           "move_mount", "landlock_add_rule", "mkdirat", "symlinkat"}
# Without namespaces all processes of the host are looked at: as often as there are some.
SCAN = {"openat": 60}
# Flags; which calls, or None for all; and how many of some.
SCENARIOS = {
    "default": ([], None, {}),
    # Rules for paths that are there, of each kind: what looks them up and what puts them into the cell.
    "rules": (["--hide", "hidden", "--read", "{outside}/granted", "--write", "{outside}/writable", "--timeout", "60s"],
              LOOKUPS, {}),
    "landlock": (["--isolation", "landlock", *(["--accept-weaker", "ids"] if is_root() else [])], None, SCAN),
}


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_call_of_set_up_fails_once(cellblock, workspace, outside, tmp_path, scenario):
    if is_sanitized():
        skip_because("needs a build without sanitizers: they make calls themselves, and can't be followed")
    flags, names, most = SCENARIOS[scenario]
    if scenario == "rules":
        for directory in workspace / "hidden", workspace / ".git" / "hooks", outside / "granted", outside / "writable":
            directory.mkdir(parents=True)
        (workspace / "hidden" / "secret").write_text("SECRET\n")
    table = Table(cellblock, outside, tmp_path, [flag.format(outside=outside) for flag in flags])
    calls, table.usual = table.look()
    assert table.look()[1] == table.usual
    chosen = [row for row in rows(calls, {**OCCURRENCES, **most}) if not names or row.name in names]
    assert len(chosen) > 300, len(chosen)
    problems = []
    for row in chosen:
        problem = table.try_row(row)
        if problem and "left behind" in problem:
            problem = table.try_row(row)    # somebody else may have mounted something meanwhile
        if problem:
            problems.append(problem)
    assert not problems, f"{len(problems)} of {len(chosen)} rows:\n" + "\n".join(problems)
