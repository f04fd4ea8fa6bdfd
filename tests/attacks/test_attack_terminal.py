"""The caller's terminal: whoever holds it can do harm with it, during the run and afterwards. A cell has its own."""

import os
import pathlib
import subprocess

import pytest

from attacks import PRELUDE, is_root, with_ids
from conftest import HOOKED, PROGRAM
from terminals import TIERS, Shell, Terminal, first_processes

PYTHON = "/usr/bin/python3"


def person(cellblock, code, inside, afterwards, off=(), flags=()):
    """A shell on a terminal that runs this code, in a cell or bare, and goes on. Says `ready` in between."""
    program = [PYTHON, "-c", PRELUDE + "import signal, subprocess, termios, tty\n" + code]
    if inside:
        program = [HOOKED if off else PROGRAM, "run", *flags, "--", *program]
    env = {"CELLBLOCK_TEST_OFF": ",".join(off)} if off else {}
    return Terminal(["sh", "-c", f'"$@"; echo ready; {afterwards}', "sh", *program], cellblock, env=env)


@pytest.mark.parametrize("inside", [False, True], ids=["bare", "cell"])
def test_its_settings(cellblock, inside):
    with person(cellblock, "tty.setraw(0)", inside, "exec sleep 1000") as terminal:
        terminal.expect(b"ready")
        assert (terminal.settings == terminal.before) == inside


@pytest.mark.parametrize("inside", [False, True], ids=["bare", "cell"])
def test_its_flags(cellblock, inside):
    """Non-blocking, it would be so for the shell and all its jobs."""
    with person(cellblock, "os.set_blocking(0, False)", inside, "exec sleep 1000") as terminal:
        terminal.expect(b"ready\r\n")
        assert os.get_blocking(terminal.inside) == inside


TAKE = "os.setpgid(0, 0); signal.signal(signal.SIGTTOU, signal.SIG_IGN); os.tcsetpgrp(0, os.getpid())\n"


@pytest.mark.parametrize("inside", [False, True], ids=["bare", "cell"])
def test_its_foreground(cellblock, inside):
    """Whose keys are Ctrl-C and Ctrl-Z?"""
    with person(cellblock, "if os.fork() == 0:\n    " + TAKE.replace("; ", "\n    ") + "else: os.wait()", inside,
                "exec sleep 1000") as terminal:
        terminal.expect(b"ready\r\n")
        assert (terminal.foreground == terminal.process.pid) == inside


LISTEN = f"""
ready, tell = os.pipe()
if os.fork() == 0:
    {TAKE.strip().replace("; ", chr(10) + "    ")}
    os.write(tell, b"x")
    typed = os.read(0, 100)
    os.write(os.open("stolen", os.O_WRONLY | os.O_CREAT, 0o600), typed)
os.read(ready, 1)
"""


@pytest.mark.parametrize("inside", [False, True], ids=["bare", "cell"])
def test_what_is_typed_later(cellblock, workspace, inside):
    stolen = workspace / "stolen"
    afterwards = "read -r line; echo the shell got $line" if inside else "sleep 1000"
    with person(cellblock, LISTEN, inside, afterwards) as terminal:
        terminal.expect(b"ready\r\n")
        terminal.type(b"a secret\r")
        if inside:
            terminal.expect(b"the shell got a secret\r\n")
            assert not stolen.exists()
        else:
            terminal.until(lambda: stolen.exists() and stolen.read_bytes() == b"a secret\n")


# ---- Typing into it ----

TYPE = "attempt(lambda: [fcntl.ioctl(0, 0x5412, bytes([c])) for c in b'echo pwned'])"
READ_REST = 'stty -icanon min 0 time 0; echo "<$(cat)>"; echo end'


def kernel_allows_typing():
    """Off by a setting since Linux 6.2, but for root."""
    setting = pathlib.Path("/proc/sys/dev/tty/legacy_tiocsti")
    return is_root() or not setting.exists() or setting.read_text().strip() == "1"


@pytest.mark.parametrize("off", [[], ["seccomp"], ["seccomp", "capabilities"], ["seccomp", "session"]],
                         ids=lambda layers: "+".join(layers) or "nothing")
def test_typing_into_it(cellblock, off):
    """TIOCSTI. The filter refuses it. Without the filter it works, if the kernel allows it, and reaches nobody but the
    program itself."""
    if not off and kernel_allows_typing():
        with person(cellblock, TYPE, False, READ_REST) as terminal:
            assert b"<echo pwned>" in terminal.expect(b"end\r\n")
    with person(cellblock, TYPE, True, READ_REST, off=off) as terminal:
        shown = terminal.expect(b"end\r\n")
        assert b"<>" in shown
        assert (b"EPERM" in shown and b"pwned" not in shown) or off
        if kernel_allows_typing() and off == ["seccomp"]:
            assert b"worked" in shown


# ---- Reaching it by another name ----

FIND = """
found = set()
def note(fd):
    try:
        state = os.fstat(fd)
        if os.isatty(fd):
            found.add((state.st_dev, state.st_ino, state.st_rdev))
    except OSError:
        pass
def look(path):
    try:
        note(os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK))
    except OSError:
        pass
for fd in range(64):
    note(fd)
    try:
        note(fcntl.ioctl(fd, 0x5441, os.O_RDWR | os.O_NOCTTY))  # TIOCGPTPEER
    except OSError:
        pass
for path in "/dev/tty", "/dev/console", "/dev/stdin", {name!r}:
    look(path)
for place in "/dev/pts", "/dev", "/proc/self/fd", *(f"/proc/{pid}/fd" for pid in (*range(1, 100), os.getppid())):
    try:
        for name in os.listdir(place):
            if name not in ("ptmx", "ptm"):
                look(place + "/" + name)
    except OSError:
        pass
print("found" if {identity!r} in found else "not found", len(found) > 0)
"""


@pytest.mark.parametrize("case", ["bare", "cell", "tier landlock", "without mounts", "without mounts and Landlock"])
def test_looking_for_it(cellblock, case):
    """By descriptor, by path and by what the kernel offers. The private root has no name for it; without that, Landlock
    refuses to open it."""
    off = {"without mounts": ["mounts"], "without mounts and Landlock": ["mounts", "landlock"]}.get(case, [])
    with Terminal(["cat"], cellblock) as terminal:
        state = os.fstat(terminal.inside)
        identity = (state.st_dev, state.st_ino, state.st_rdev)
        code = FIND.replace("{name!r}", repr(os.ttyname(terminal.inside))).replace("{identity!r}", repr(identity))
        program = [PYTHON, "-c", PRELUDE + code]
        if case != "bare":
            flags = TIERS["landlock"] if case == "tier landlock" else ()
            program = [HOOKED if off else PROGRAM, "run", *flags, "--", *program]
        layers = with_ids(off)
        done = subprocess.run(program, stdin=terminal.inside, stdout=subprocess.PIPE, timeout=60,
                              cwd=cellblock.workspace,
                              env={**cellblock.environment, "CELLBLOCK_TEST_OFF": ",".join(layers)})
        expected = "found" if case in ("bare", "without mounts and Landlock") else "not found"
        assert done.stdout.decode() == f"{expected} True\n", done


def test_no_process_of_the_cell_holds_it(cellblock):
    """Seen from outside: the program, and the cell's first process where one may look at it."""
    with Terminal([PROGRAM, "run", "--", "sh", "-c", "echo ready; cat"], cellblock) as terminal:
        terminal.expect(b"ready\r\n")
        name = os.ttyname(terminal.inside)
        wanted = [terminal.process.pid]
        links = {}
        for pid in wanted:
            children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            wanted += [int(child) for child in children]
            if is_root() or pid in (terminal.process.pid, wanted[-1]):
                try:
                    links[pid] = {os.readlink(f"/proc/{pid}/fd/{fd}"): os.stat(f"/proc/{pid}/fd/{fd}").st_dev
                                  for fd in os.listdir(f"/proc/{pid}/fd")}
                except (FileNotFoundError, PermissionError):
                    continue
        assert name in links.pop(terminal.process.pid), "the supervisor has it"
        assert links
        device = os.fstat(terminal.inside).st_dev
        for pid, held in links.items():
            assert all(where != device for link, where in held.items() if link.startswith("/dev/pts")), (pid, held)


# ---- Using it against the supervisor ----

def test_limits_hold_while_it_waits_for_the_terminal(cellblock):
    """A program that reads from the background is stopped. Its supervisor is not, or no limit would hold any more for
    the rest of the cell."""
    with Shell(cellblock) as shell:
        shell.do(b"$C run --timeout 1s -- sh -c 'sleep 1000 & exec cat' &")
        job, = shell.children
        shell.until(lambda: first_processes(job))
        shell.until(lambda: not first_processes(job))
        assert b"<124>" in shell.do(b"wait %1; echo \"<$?>\"")


def test_a_program_can_not_stop_its_supervisor(cellblock):
    code = b"import os; [os.kill(who, number) for who in (0, os.getpid()) for number in (20, 21, 22)]; print(1234)"
    with Shell(cellblock) as shell:
        assert shell.do(b"$C run -- /usr/bin/python3 -c '" + code + b"'") == b"1234\r\n"
        shown = shell.do(b"$C run -- /usr/bin/python3 -c '" + code + b"' | cat")
        assert shown == b"1234\r\n"


# ---- Terminals that don't look like one ----

def test_a_dead_terminal_does_not_get_in(cellblock, workspace):
    """Hung up, it says that it is none. Its device may be alive again by then."""
    report = "import os, stat; print([stat.S_ISCHR(os.fstat(fd).st_mode) for fd in (0, 2)])"
    with Terminal(["cat"], cellblock) as terminal:
        os.close(terminal.outside)
        terminal.outside = -1
        assert not os.isatty(terminal.inside)
        done = subprocess.run([PROGRAM, "run", "--", PYTHON, "-c", report], stdin=terminal.inside,
                              stderr=terminal.inside, stdout=subprocess.PIPE, cwd=workspace, env=cellblock.environment)
        assert done.stdout == b"[False, False]\n"
