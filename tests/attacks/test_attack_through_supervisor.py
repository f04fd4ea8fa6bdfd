"""Tier landlock: the supervisor stands outside the rules and acts for the code. It must not carry anything over their
border, wait for the code, or be ended together with the process that cleans up after it."""

import os
import pathlib
import signal
import subprocess
import time

import pytest

from attacks import PRELUDE
from conftest import PROGRAM, is_root
from tier import FLAGS, Tier


@pytest.fixture
def tier(workspace, home, tmp_path):
    (tmp_path / "tmp").mkdir()
    return Tier(workspace, home, tmp_path / "tmp")


@pytest.fixture
def kept(outside):
    (outside / "directory").mkdir()
    (outside / "directory" / "key").write_text("KEY\n")
    (outside / "rc").write_text("as it was\n")
    return outside


CARRIED = {
    "a directory, in": 'attempt(os.rename, "{0}/directory", "stolen")',
    "a directory, out": 'd = "d%d" % os.getpid()\nos.mkdir(d)\nattempt(os.rename, d, "{0}/made")',
    "a link, out, over a file": 'd = "d%d" % os.getpid()\nos.symlink("/evil", d)\nattempt(os.rename, d, "{0}/rc")',
    "a link, out": 'd = "d%d" % os.getpid()\nos.symlink("/evil", d)\nattempt(os.rename, d, "{0}/made")',
    "exchanged": 'd = "d%d" % os.getpid()\nos.mkdir(d)\n'
                 'attempt(call, "renameat2", -100, d.encode(), -100, b"{0}/directory", 2)',
    "a new directory": 'attempt(os.mkdir, "{0}/made")',
    "a new link": 'attempt(os.symlink, "/evil", "{0}/made")',
}


@pytest.mark.parametrize("how", CARRIED)
def test_nothing_is_carried_over_the_border(tier, workspace, kept, how):
    """Directories and links are the ones that the supervisor moves: the workspace has protected names in it."""
    code = PRELUDE + CARRIED[how].format(kept)
    before = sorted(str(path) for path in kept.rglob("*"))
    assert tier.python(code).out in ("EACCES\n", "EXDEV\n")
    assert sorted(str(path) for path in kept.rglob("*")) == before
    assert (kept / "rc").read_text() == "as it was\n" and not (workspace / "stolen").exists()
    assert tier.python(code, off=["landlock", "guard"]).out == "worked\n"     # it is Landlock that says no


def test_links_and_directories_move_inside(tier, workspace):
    assert tier.sh("mkdir a && ln -s x a/l && mv a b && mv b/l c && rmdir b && readlink c").out == "x\n"


def alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def until(condition, seconds=30):
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    return condition()


@pytest.mark.parametrize("flags", [FLAGS, []], ids=["landlock", "namespaces"])
def test_the_end_of_the_whole_process_group(tier, workspace, flags):
    """As `timeout -s KILL` or a shell does it: the supervisor and all that is in its group go at once."""
    script = ("(setsid sh -c 'read pid rest </proc/self/stat; echo $pid >daemon; exec sleep 600' &) ; "
              "while ! test -s daemon; do :; done; echo ready; sleep 600")
    process = subprocess.Popen([PROGRAM, "run", *flags, "--", "sh", "-c", script], cwd=workspace, env=tier.environment,
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout.readline() == b"ready\n"
    below = subprocess.run(["ps", "-o", "pid=", "--ppid", str(process.pid)], capture_output=True, text=True).stdout
    first = [pid for pid in below.split() if "sleep" not in pathlib.Path(f"/proc/{pid}/comm").read_text()]
    everybody = {process.pid, *map(int, first)}
    for pid in first:
        everybody |= {int(child) for child in subprocess.run(["pgrep", "-P", pid], capture_output=True,
                                                             text=True).stdout.split()}
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert until(lambda: not any(map(alive, everybody)))
    sleepers = subprocess.run(["pgrep", "-f", "^sleep 600$", "-u", str(os.geteuid())], capture_output=True, text=True)
    if flags or not is_root():
        mine = [pid for pid in sleepers.stdout.split() if os.path.realpath(f"/proc/{pid}/cwd") == str(workspace)]
        assert until(lambda: not any(map(alive, mine)))
    assert until(lambda: list(tier.tmp.iterdir()) == [])


FLAGS_OF_INODES = """
import fcntl, struct
f = os.open("{0}/rc", os.O_RDONLY)
def set_flag():
    flags = struct.unpack("l", fcntl.ioctl(f, 0x80086601, struct.pack("l", 0)))[0]
    fcntl.ioctl(f, 0x40086602, struct.pack("l", flags | 0x40))
attempt(set_flag)
"""


def test_flags_of_a_file_that_may_only_be_read(tier, kept):
    code = PRELUDE + FLAGS_OF_INODES.format(kept)
    bare = tier.python(code, flags=["--read", str(kept)], off=["seccomp"]).out
    assert tier.python(code, flags=["--read", str(kept)]).out == "EPERM\n"
    assert bare in ("worked\n", "ENOTTY\n", "ENOTSUP\n")      # not every file system has them


def test_a_lease_does_not_hold_the_supervisor(tier, workspace):
    """Before Landlock's third version the supervisor cuts files for the code: it must not wait for the code's own lease."""
    code = PRELUDE + """
import fcntl, signal
signal.signal(signal.SIGIO, signal.SIG_IGN)
open("f", "w").write("x")
f = os.open("f", os.O_RDONLY)
fcntl.fcntl(f, 1024, fcntl.F_RDLCK)
attempt(os.truncate, "f", 0)
"""
    assert tier.python(code, abi=2, flags=["--timeout", "20s"]).out == "EAGAIN\n"


def test_subvolumes_are_made_by_nobody(cellblock, tier):
    """btrfs makes directories by ioctl, past every rule for paths: the filter says that there is no such thing."""
    code = PRELUDE + "import fcntl\nattempt(fcntl.ioctl, os.open('.', os.O_RDONLY), 0x5000940e, bytearray(4096))"
    for kind in cellblock, tier:
        assert kind.python(code).out == "ENOTTY\n"
    clone = PRELUDE + ("import fcntl\nopen('a', 'w').write('x')\n"
                       "attempt(fcntl.ioctl, os.open('b', os.O_RDWR | os.O_CREAT), 0x40049409, os.open('a', 0))")
    assert cellblock.python(clone).out in ("worked\n", "ENOTSUP\n", "EINVAL\n", "EXDEV\n")
