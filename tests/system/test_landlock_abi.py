"""Older kernels have less of Landlock. What is missing is made up for by the mounts in one tier, by the filter and the
supervisor in the other; the report says what it is."""

import ctypes
import os

import pytest

from conftest import need_landlock
from tier import Namespaces, Tier

NEWEST = ctypes.CDLL(None).syscall(444, None, 0, 1)
LACKS = ["moving between directories", "truncating", "TCP", "ioctl on devices",
         "scopes for signals and abstract sockets"]

PRELUDE = """
import ctypes, errno, os
libc = ctypes.CDLL(None, use_errno=True)
def attempt(function, *arguments, **keywords):
    try: function(*arguments, **keywords)
    except OSError as error: print(errno.errorcode[error.errno])
    else: print("worked")
def exchange(a, b):
    if libc.renameat2(-100, a, -100, b, 2) < 0: raise OSError(ctypes.get_errno(), "renameat2")
"""


@pytest.fixture(params=[Tier, Namespaces], ids=["landlock", "namespaces"])
def cell(request, workspace, home, tmp_path):
    tmp = tmp_path / "tmp"
    tmp.mkdir()
    yield request.param(workspace, home, tmp)
    assert list(tmp.iterdir()) == []


@pytest.fixture
def landlock(workspace, home, tmp_path):
    (tmp_path / "tmp").mkdir()
    return Tier(workspace, home, tmp_path / "tmp")


@pytest.fixture
def read(tmp_path):
    directory = tmp_path / "read"
    directory.mkdir()
    (directory / "data").write_text("data\n")
    return directory


@pytest.fixture
def secret(outside):
    (outside / "secret").write_text("SECRET\n")
    (outside / "secret").chmod(0o600)
    return outside / "secret"


@pytest.mark.parametrize("abi", range(1, NEWEST + 1))
def test_a_run_works(cell, abi):
    script = """set -e
        echo x > f; mkdir d; mv f d/g; cat d/g; ln -s g d/l; cat d/l; mv d e; cp -p e/g h; chmod 600 h; touch -d @7 h
        : > h; rm -r e; T=${TMPDIR:-/tmp}; echo y > "$T"/t; cat "$T"/t; truncate -s 3 h; stat -c '%a %s' h; rm h
        sleep 1000 & kill $!; wait $! || echo $?; true | cat"""
    ran = cell.sh(script, abi=abi)
    assert ran.out == "x\nx\ny\n600 3\n143\n", ran.err


@pytest.mark.parametrize("abi", range(1, NEWEST + 1))
def test_the_report_says_what_is_missing(cell, abi):
    report = cell.run("true", flags=["--json"], abi=abi).json["report"]["enforced"]
    assert report["landlock"] == {"abi": abi, "scopes": abi >= 6, "lacks": LACKS[max(0, abi - 1):]}
    if isinstance(cell, Tier) and not isinstance(cell, Namespaces):
        assert report["signals"] == ("Landlock scope" if abi >= 6 else "sent by the supervisor")


ATTACKS = {
    "read": 'attempt(open, "{secret}")',
    "read by a link": 'os.symlink("{secret}", "l")\nattempt(open, "l")',
    "link to it": 'attempt(os.link, "{secret}", "stolen")',
    "write": 'attempt(open, "{secret}", "r+")',
    "create": 'attempt(open, "{secret}.new", "w")',
    "make a directory": 'attempt(os.mkdir, "{secret}.new")',
    "move it": 'attempt(os.rename, "{secret}", "{secret}.new")',
    "take it": 'attempt(os.rename, "{secret}", "stolen")',
    "replace it": 'open("f", "w")\nattempt(os.rename, "f", "{secret}")',
    "exchange it": 'open("f", "w")\nattempt(exchange, b"f", b"{secret}")',
    "remove it": 'attempt(os.unlink, "{secret}")',
    "truncate it by name": 'attempt(os.truncate, "{secret}", 0)',
    "truncate it by opening": 'attempt(os.open, "{secret}", os.O_RDONLY | os.O_TRUNC)',
    "truncate it by opening for neither": 'attempt(os.open, "{secret}", 3 | os.O_TRUNC)',
    "mode": 'attempt(os.chmod, "{secret}", 0o666)',
    "times": 'attempt(os.utime, "{secret}")',
    "write what may be read": 'attempt(open, "{read}/data", "r+")',
    "truncate what may be read, by name": 'attempt(os.truncate, "{read}/data", 0)',
    "truncate what may be read, by opening": 'attempt(os.open, "{read}/data", os.O_RDONLY | os.O_TRUNC)',
    "truncate what may be read, by opening for neither": 'attempt(os.open, "{read}/data", 3 | os.O_TRUNC)',
    "truncate what may be read, by creating": 'attempt(os.open, "{read}/data", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)',
    "move what may be read": 'attempt(os.rename, "{read}/data", "stolen")',
    "connect": 'import socket\nattempt(lambda: socket.create_connection(("127.0.0.1", 9)))',
}


@pytest.mark.parametrize("abi", range(1, NEWEST + 1))
def test_the_attacks_on_files_fail(cell, secret, read, workspace, abi):
    """All in one run: what each of them needs without a protection is in the attack tests."""
    code = PRELUDE + "".join(
        f"os.mkdir('w{i}'); os.chdir('w{i}')\n{code}\nos.chdir('..')\n" for i, code in enumerate(ATTACKS.values()))
    code = code.replace("{secret}", str(secret)).replace("{read}", str(read))
    ran = cell.run("/usr/bin/python3", "-c", code, flags=["--read", str(read)], abi=abi)
    answers = dict(zip(ATTACKS, ran.out.split(), strict=True))
    assert [name for name, answer in answers.items() if answer == "worked"] == [], ran.err
    assert secret.read_text() == "SECRET\n" and secret.stat().st_mode & 0o777 == 0o600
    assert (read / "data").read_text() == "data\n" and sorted(os.listdir(secret.parent)) == ["secret"]


EMPTYING = {
    "by name": 'attempt(os.truncate, "{path}", 0)',
    "by opening": 'attempt(os.open, "{path}", os.O_RDONLY | os.O_TRUNC)',
    "by opening for neither": 'attempt(os.open, "{path}", 3 | os.O_TRUNC)',
}


@pytest.mark.parametrize("way", EMPTYING)
def test_without_a_right_for_truncating_the_filter_is_needed(landlock, read, way):
    """Before ABI 3 Landlock alone lets a file be emptied that may only be read; from then on it does not."""
    need_landlock(3)
    code = PRELUDE + EMPTYING[way].replace("{path}", str(read / "data"))
    run = {"flags": ["--read", str(read)]}
    assert landlock.python(code, abi=2, **run).out.strip() in {"EACCES", "EPERM"}
    assert landlock.python(code, abi=3, off=["seccomp"], **run).out == "EACCES\n"
    assert (read / "data").read_text() == "data\n"
    assert landlock.python(code, abi=2, off=["seccomp"], **run).out == "worked\n"
    assert (read / "data").read_text() == ""


def test_truncating_by_name_in_the_workspace(landlock, workspace):
    """The supervisor does it: up to the limit for the code's files, and not for what the code may not write."""
    (workspace / "f").write_text("12345")
    (workspace / "directory").mkdir()
    os.mkfifo(workspace / "fifo")
    code = PRELUDE + """
attempt(os.truncate, "f", 3); print(os.stat("f").st_size)
attempt(os.truncate, "f", 1 << 20); print(os.stat("f").st_size)
attempt(os.truncate, "f", (1 << 20) + 1); print(os.stat("f").st_size)
for path, size in ("directory", 0), ("fifo", 0), ("f", -1), ("none", 0), ("f/x", 0): attempt(os.truncate, path, size)
os.chmod("f", 0o400)
attempt(os.truncate, "f", 0)
"""
    expected = ["worked", "3", "worked", "1048576", "EFBIG", "1048576", "EISDIR", "EINVAL", "EINVAL", "ENOENT",
                "ENOTDIR", "EACCES"]
    ran = landlock.python("import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n" + code,
                          flags=["--file-size", "1M"], abi=2)
    assert ran.out.split() == expected, ran.err
    (workspace / "f").chmod(0o600)
    ran = landlock.python("import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n" + code,
                          flags=["--file-size", "1M"], abi=3)
    assert ran.out.split() == expected, ran.err


def test_without_landlock_the_tier_is_refused(landlock):
    ran = landlock.run("true", env={"CELLBLOCK_TEST_LANDLOCK_ABI": "0"}, off=["nothing"])
    assert ran.status == 125 and "layer: landlock" in ran.err
