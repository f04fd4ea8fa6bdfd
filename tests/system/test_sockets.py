"""Unix sockets of the host's in a cell: those that a rule names are there under their own paths, and no others."""

import json
import os
import socket
import stat
import subprocess

import pytest

from conftest import PROGRAM, is_root, needs_root
from landlock_lab import UnixServer

DIAL = """
import errno, os, socket, sys
def dial(path, kind=socket.SOCK_STREAM):
    with socket.socket(socket.AF_UNIX, kind) as made:
        made.settimeout(20)
        made.connect(path)
        return made.recv(100)
def tries(path, **keywords):
    try:
        print(dial(path, **keywords), flush=True)
    except OSError as error:
        print(errno.errorcode[error.errno], flush=True)
"""


@pytest.fixture
def unix(tmp_path):
    """Makes servers in a directory that no policy names."""
    made = []
    (tmp_path / "run").mkdir()

    def make(name, says=b"said", **keywords):
        path = tmp_path / "run" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        made.append(UnixServer(path, says, **keywords))
        return made[-1]
    yield make
    for server in made:
        server.close()


def said(cellblock, code, *sockets, flags=(), **keywords):
    words = [word for path in sockets for word in ("--socket", str(path))]
    ran = cellblock.python(DIAL + code, flags=[*words, *flags], **keywords)
    assert ran.status == 0, ran.err
    return ran.out.strip()


def tries(path):
    return f"tries({str(path)!r})\n"


def test_by_rule(cellblock, unix):
    server = unix("server")
    assert said(cellblock, tries(server.path), server.path) == "b'said'"
    assert server.heard == 1


def test_without_a_rule_it_is_not_there(cellblock, unix):
    server = unix("server")
    assert said(cellblock, tries(server.path)) == "ENOENT" and server.heard == 0


def test_others_are_not_there(cellblock, unix):
    """Beside it, below it, above it: nothing but that one."""
    server = unix("deep/server")
    others = [unix("deep/other"), unix("other"), unix("deep/server2")]
    code = tries(server.path) + "".join(tries(other.path) for other in others)
    code += f"print(os.listdir({str(server.path.parent)!r}), os.listdir({str(server.path.parent.parent)!r}))"
    assert said(cellblock, code, server.path) == "b'said'\nENOENT\nENOENT\nENOENT\n['server'] ['deep']"
    assert not any(other.heard for other in others)


def test_several(cellblock, unix):
    one, two = unix("one", b"1"), unix("two", b"2")
    assert said(cellblock, tries(one.path) + tries(two.path), one.path, two.path) == "b'1'\nb'2'"


def test_in_a_policy_file(cellblock, unix, workspace):
    server = unix("server")
    policy = workspace.parent / "p.jsonc"
    policy.write_text(json.dumps({"cellblock": 1, "sockets": [{"path": str(server.path), "why": "the agent"}]}))
    assert said(cellblock, tries(server.path), flags=["--policy", policy]) == "b'said'"


def test_in_the_home_directory(cellblock, home, tmp_path):
    server = UnixServer(home / "s", b"said")
    assert said(cellblock, tries(server.path), "~/s") == "b'said'"
    server.close()


def test_in_a_directory_that_is_granted(cellblock, workspace, unix):
    """It is seen there anyway; the rule makes it more than a name."""
    server = UnixServer(workspace / "s", b"said")
    assert said(cellblock, tries(server.path), server.path) == "b'said'"
    server.close()


def test_there_is_no_network_by_it(cellblock, unix):
    server = unix("server")
    code = tries(server.path) + """
try:
    socket.create_connection(("93.184.216.34", 80), 5)
except OSError as error:
    print(errno.errorcode[error.errno])
"""
    assert said(cellblock, code, server.path) == "b'said'\nENETUNREACH"


def test_together_with_rules_for_the_network(cellblock, unix):
    server = unix("server")
    assert said(cellblock, tries(server.path), server.path, flags=["--net", "93.184.216.34:80"]) == "b'said'"


@pytest.mark.parametrize("kind", ["SOCK_DGRAM", "SOCK_SEQPACKET"])
def test_other_kinds(cellblock, tmp_path, kind):
    path = tmp_path / "other"
    with socket.socket(socket.AF_UNIX, getattr(socket, kind)) as service:
        service.bind(str(path))
        os.chmod(path, 0o666)
        if kind == "SOCK_SEQPACKET":
            service.listen()
        service.settimeout(20)
        out = said(cellblock, f"made = socket.socket(socket.AF_UNIX, socket.{kind})\nmade.connect({str(path)!r})\n"
                   "print(made.send(b'hello'))", path)
        assert out == "5"
        if kind == "SOCK_SEQPACKET":
            assert service.accept()[0].recv(100) == b"hello"
        else:
            assert service.recv(100) == b"hello"


# ---- Who may use it ----

@needs_root
def test_one_for_root_only(cellblock, unix):
    """The cell is not root outside, but the rule says that it may use this one, as the caller may."""
    server = unix("server", mode=0o600)
    assert os.stat(server.path).st_uid == 0
    assert said(cellblock, tries(server.path), server.path) == "b'said'"
    assert stat.S_IMODE(os.stat(server.path).st_mode) == 0o600 and os.stat(server.path).st_uid == 0


def test_one_for_the_caller_only(cellblock, unix):
    server = unix("server", mode=0o600)
    assert said(cellblock, tries(server.path), server.path) == "b'said'"


def test_in_a_directory_for_the_caller_only(cellblock, unix):
    """As sockets of agents and of user services are."""
    server = unix("private/server", mode=0o600)
    os.chmod(server.path.parent, 0o700)
    assert said(cellblock, tries(server.path), server.path) == "b'said'"


@needs_root
def test_of_another_user(cellblock, unix):
    """The cell is given what the caller has; what only another user may use stays that user's."""
    server = unix("server", mode=0o600)
    os.chown(server.path, 1234, 1234)
    assert said(cellblock, tries(server.path), server.path) == "EACCES"


def test_who_is_seen_at_the_other_end(cellblock, tmp_path):
    """An id of the cell: nothing that a service would take for root."""
    path = tmp_path / "asks"
    with socket.socket(socket.AF_UNIX) as service:
        service.bind(str(path))
        os.chmod(path, 0o666)
        service.listen()
        run = subprocess.Popen([PROGRAM, "run", "--socket", path, "--", "/usr/bin/python3", "-c",
                                DIAL + tries(path)], env=cellblock.environment, cwd=cellblock.workspace)
        service.settimeout(30)
        made, _ = service.accept()
        seen = int.from_bytes(made.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)[4:8], "little")
        made.sendall(b"x")
        made.close()
        assert run.wait(30) == 0
    assert seen != 0 if is_root() else seen == os.getuid()


def test_the_socket_itself_can_not_be_changed(cellblock, unix):
    """Neither its mode, nor its place: for connecting only."""
    server = unix("server")
    before = os.stat(server.path)
    code = f"""
path = {str(server.path)!r}
def attempt(function, *arguments):
    try:
        function(*arguments)
    except OSError as error:
        print(errno.errorcode[error.errno])
    else:
        print("worked")
attempt(os.chmod, path, 0o777)
attempt(os.chown, path, os.getuid(), os.getgid())
attempt(os.utime, path)
attempt(os.unlink, path)
attempt(os.rename, path, path + "x")
attempt(lambda: socket.socket(socket.AF_UNIX).bind(path))
attempt(open, path)
""" + tries(server.path)
    out = said(cellblock, code, server.path).split()
    assert "worked" not in out and out[-1] == "b'said'", out
    after = os.stat(server.path)
    assert (before.st_mode, before.st_uid, before.st_mtime, before.st_ino) == (
        after.st_mode, after.st_uid, after.st_mtime, after.st_ino)


# ---- By what it is, not by what it is called ----

def test_another_socket_at_that_path(cellblock, unix):
    """The one that was there when the cell started stays the one that is reached, or none."""
    server = unix("server", b"first")
    run = subprocess.Popen([PROGRAM, "run", "--socket", server.path, "--", "/usr/bin/python3", "-c", DIAL +
                            "for line in sys.stdin:\n    " + tries(server.path)], stdin=subprocess.PIPE,
                           stdout=subprocess.PIPE, env=cellblock.environment, cwd=cellblock.workspace)

    def ask():
        run.stdin.write(b"\n")
        run.stdin.flush()
        return run.stdout.readline()
    assert ask() == b"b'first'\n"
    os.rename(server.path, server.path.with_name("aside"))
    other = unix("server", b"second")
    assert ask() == b"b'first'\n" and other.heard == 0
    os.unlink(server.path.with_name("aside"))
    server.close()
    assert ask() == b"ECONNREFUSED\n" and other.heard == 0
    run.communicate()
    assert run.returncode == 0


def test_in_the_workspace_another_one_is_not_reached(cellblock, workspace, unix):
    """There the code itself can put another thing at that path: that is its own, and no way to anything else."""
    server, other = UnixServer(workspace / "s", b"said"), unix("other", b"other")
    out = said(cellblock, tries(server.path) + f"os.rename('s', 'aside')\nos.symlink({str(other.path)!r}, 's')\n"
               + tries(server.path), server.path)
    assert out.split()[1] in ("ENOENT", "EACCES", "ECONNREFUSED") and other.heard == 0
    server.close()


def test_a_link_to_it(cellblock, unix, tmp_path):
    """In a place that the code can't write, a link is followed; the socket is at its own path."""
    server = unix("server")
    link = tmp_path / "link"
    link.symlink_to(server.path)
    assert said(cellblock, tries(server.path), link) == "b'said'"


def test_a_link_that_may_have_been_planted(cellblock, unix, workspace):
    server = unix("server")
    (workspace / "link").symlink_to(server.path)
    ran = cellblock.run("true", flags=["--socket", workspace / "link"])
    assert ran.status == 125 and "symbolic link" in ran.err and "planted" in ran.err, ran.err


# ---- What is refused ----

def test_nothing_there(cellblock, tmp_path):
    ran = cellblock.run("true", flags=["--socket", tmp_path / "nothing"])
    assert ran.status == 125 and str(tmp_path / "nothing") in ran.err and "No such file" in ran.err, ran.err


@pytest.mark.parametrize("make", [lambda path: path.write_text("x"), lambda path: path.mkdir(), os.mkfifo],
                         ids=["file", "directory", "pipe"])
def test_not_a_socket(cellblock, tmp_path, make):
    make(tmp_path / "thing")
    ran = cellblock.run("true", flags=["--socket", tmp_path / "thing"])
    assert ran.status == 125 and "is not a unix socket" in ran.err, ran.err


@pytest.mark.parametrize("path", ["relative", "", "/a/../b", "@abstract"])
def test_paths_that_are_none(cellblock, path):
    ran = cellblock.run("true", flags=["--socket", path])
    assert ran.status in (125, 2) and ran.err, ran.err


def test_what_tightens(cellblock, unix, workspace):
    """A project's own policy can take it away, and can't add one."""
    server, other = unix("server"), unix("other")
    policy = workspace.parent / "tight.jsonc"
    nothing = "ENOENT\nENOENT"
    for allowed, expected in ([server.path], "b'said'\nENOENT"), ([], nothing), ([other.path], nothing):
        policy.write_text(json.dumps({"cellblock": 1, "extends": [],
                                      "sockets": [{"path": str(path)} for path in allowed]}))
        out = said(cellblock, tries(server.path) + tries(other.path), server.path, flags=["--tighten", policy])
        assert out == expected, allowed


# ---- Older kernels ----

@pytest.mark.parametrize("abi", [1, 3, 5, 6, 8])
def test_an_older_landlock(cellblock, unix, abi):
    """Before ABI 9 it has no word on unix sockets: that they are not there is the mounts' doing."""
    server, other = unix("server"), unix("other")
    out = said(cellblock, tries(server.path) + tries(other.path), server.path, off=["nothing"],
               env={"CELLBLOCK_TEST_LANDLOCK_ABI": str(abi)})
    assert out == "b'said'\nENOENT"
