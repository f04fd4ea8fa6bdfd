"""Outliving the run: the supervisor is killed at any moment of it, with no chance to clean up. Nothing may be left: no
process, no mount, no cgroup, no file but those in the workspace."""

import ctypes
import os
import pathlib
import random
import signal
import statistics
import subprocess
import time
import uuid

import pytest

import library
from conftest import PROGRAM, is_root
from leftovers import Leftovers, processes

MOMENTS = 200
PATIENCE = 20

# Forks, makes daemons in every way that a shell has, writes files, and goes on for a while.
ATTACK = """
trap '' HUP TERM INT
echo started >started
(setsid sh -c 'trap "" HUP TERM; echo daemon >daemon; while :; do sleep 1; done' "$0" &)
(exec sleep 1000.7 &)
setsid -f sh -c 'trap "" HUP TERM; mkdir -p deep/er; exec sleep 1000' "$0"
for i in 1 2 3; do (echo $i >file$i; echo $i >"${TMPDIR:-/tmp}/file$i"; : | cat | cat); done
echo ended >ended
"""


@pytest.fixture
def marker():
    """A word that everything that the attack starts has on it. What is left is ended after the test."""
    word = f"outlive-{uuid.uuid4().hex}"
    yield word
    for pid in processes(word):
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0) if pid in children() else None


@pytest.fixture
def reaper():
    """Whoever loses its parent becomes our child: so descendants can't hide, whatever they are called."""
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(36, 1, 0, 0, 0) == 0       # PR_SET_CHILD_SUBREAPER
    yield
    libc.prctl(36, 0, 0, 0, 0)


def children(pid="self"):
    with open(f"/proc/{pid}/task/{os.getpid() if pid == 'self' else pid}/children") as file:
        return {int(child) for child in file.read().split()}


def describe(pid):
    """For the message, should it stay."""
    words = []
    for file in "comm", "cmdline", "wchan", "syscall":
        try:
            words.append(pathlib.Path("/proc", str(pid), file).read_text().replace("\0", " ").strip()[:200])
        except OSError:
            words.append("?")
    return " | ".join(words)


def reap(before):
    """Collects children that have ended, and returns those that have not."""
    for pid in children() - before:
        try:
            os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            pass
    return children() - before


def test_bare_the_daemons_stay(cellblock, workspace, marker):
    environment = {**cellblock.environment, "MARKER": marker}
    process = subprocess.Popen(["sh", "-c", ATTACK, marker], cwd=workspace, env=environment)
    assert process.wait(timeout=PATIENCE) == 0
    left = processes(marker)
    assert len(left) >= 3 and (workspace / "ended").exists(), left


class Killing:
    """Starts the attack again and again and ends whoever started it, at a chosen moment."""

    def __init__(self, cellblock, tmp_path, marker, command, waits_for=None):
        temporary = tmp_path / "temporary"
        temporary.mkdir()
        self.environment = {**cellblock.environment, "TMPDIR": str(temporary)}
        self.workspace = cellblock.workspace
        self.marker = marker
        self.command = command
        self.waits_for = waits_for      # says that it is ready, and waits for a word
        self.leftovers = Leftovers(tmp_path / "outside", temporary, cellblock.home / ".ssh")
        self.before = children()

    def start(self):
        """Returns when the clock starts."""
        process = subprocess.Popen(self.command, cwd=self.workspace, env=self.environment, stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if self.waits_for:
            assert process.stdout.readline() == self.waits_for, process.stderr.read()
            process.stdin.write(b"go\n")
            process.stdin.flush()
        return process

    def duration(self):
        times = []
        for _ in range(5):
            process = self.start()
            began = time.monotonic()
            error = process.communicate(timeout=PATIENCE)[1]
            assert process.returncode == 0, error
            times.append(time.monotonic() - began)
        return statistics.median(times)

    def kill_after(self, delay):
        """Returns how it ended, and which processes could have made a cgroup."""
        process = self.start()
        until = time.monotonic() + delay
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(left, 0.001))
        pids = {process.pid, *children(process.pid)}
        process.kill()
        process.wait(timeout=PATIENCE)
        for stream in process.stdin, process.stdout, process.stderr:
            stream.close()
        return process.returncode, pids

    def settle(self):
        """Waits until no process of the run is left; returns those that stay."""
        deadline = time.monotonic() + PATIENCE
        while True:
            left = reap(self.before) | set(processes(self.marker))
            if not left or time.monotonic() > deadline:
                return {pid: describe(pid) for pid in left}
            time.sleep(0.002)

    def many_times(self, moments):
        """One moment, by chance, in each of that many equal parts of the time that a run takes, and a little after."""
        duration = self.duration() * 1.15
        seed = random.randrange(1 << 32)
        chance = random.Random(seed)
        mark = self.workspace / "started"
        mark.unlink()
        killed = started = 0
        for part in range(moments):
            delay = (part + chance.random()) / moments * duration
            status, pids = self.kill_after(delay)
            killed += status == -signal.SIGKILL
            about = f"killed after {delay * 1000:.2f} ms of {duration * 1000:.2f} ms, seed {seed}"
            assert not (left := self.settle()), f"processes left, {about}: {left}"
            assert not (found := self.leftovers.found(pids)), f"left, {about}: {found}"
            if mark.exists():
                started += 1
                mark.unlink()
        # Some before the program began, some while it ran.
        assert 0 < started < moments and 0 < killed, (started, killed)


LANDLOCK = ["--isolation", "landlock", *(["--accept-weaker", "ids"] if is_root() else [])]


@pytest.mark.slow
@pytest.mark.parametrize("flags", [[], ["--memory", "512M", "--procs", "100", "--json"], LANDLOCK],
                         ids=["default", "limits", "landlock"])
def test_the_supervisor_is_killed_at_any_moment(cellblock, outside, tmp_path, marker, reaper, flags):
    command = [PROGRAM, "run", "--env", f"MARKER={marker}", *flags, "--", "sh", "-c", ATTACK, marker]
    Killing(cellblock, tmp_path, marker, command).many_times(MOMENTS)


CALLER = """
print("ready", flush=True)
input()
cell = Cell("sh", "-c", sys.argv[1], sys.argv[2], helper=int(sys.argv[3]))
status, result = cell.wait()
assert status == 0, result
"""


@pytest.mark.slow
@pytest.mark.parametrize("helper", [library.NEVER, library.ALWAYS], ids=["inside", "helper"])
def test_a_caller_of_the_library_is_killed_at_any_moment(cellblock, outside, tmp_path, marker, reaper, helper):
    """The supervisor is in the caller, or in a helper process that must notice."""
    command = library.caller(CALLER, ATTACK, marker, str(helper))
    Killing(cellblock, tmp_path, marker, command, waits_for=b"ready\n").many_times(MOMENTS // 4)
