"""Standard input, output and error pass through untouched, whatever they are."""

import errno
import itertools
import os
import pty
import socket
import subprocess

import pytest

from conftest import PROGRAM

SUBSETS = [subset for count in (1, 2, 3) for subset in itertools.combinations(range(3), count)]


def popen(cellblock, *arguments, **keywords):
    return subprocess.Popen([PROGRAM, *arguments], cwd=cellblock.workspace, env=cellblock.environment, **keywords)


def read_all(fd):
    """Up to the end; a terminal whose other side is closed says EIO."""
    pieces = []
    while True:
        try:
            piece = os.read(fd, 65536)
        except OSError as problem:
            assert problem.errno == errno.EIO
            piece = b""
        if not piece:
            return b"".join(pieces)
        pieces.append(piece)


def test_the_launcher_adds_nothing(cellblock):
    ran = cellblock.run("true")
    assert (ran.status, ran.stdout, ran.stderr) == (0, b"", b"")
    ran = cellblock.sh("echo out; echo err >&2; exit 3")
    assert (ran.status, ran.stdout, ran.stderr) == (3, b"out\n", b"err\n")


def test_binary_there_and_back(cellblock):
    data = bytes(range(256)) * 4096 + b"\0\n\r\n\x1b[0m"
    assert cellblock.run("cat", input=data).stdout == data
    assert cellblock.sh("cat >&2", input=data).stderr == data


def test_large_volume(cellblock):
    size = 256 << 20
    process = popen(cellblock, "run", "--", "head", "-c", str(size), "/dev/zero", stdout=subprocess.PIPE)
    count = 0
    while piece := process.stdout.read(1 << 20):
        count += len(piece)
    assert (process.wait(), count) == (0, size)


def test_large_volume_in(cellblock):
    assert cellblock.run("wc", "-c", input=b"x" * (64 << 20)).out == f"{64 << 20}\n"


REPORT = """
import os
def what(fd):
    try:
        info = os.fstat(fd)
    except OSError:
        return "closed"
    return "null" if info.st_rdev == os.makedev(1, 3) else "open"
open("report", "w").write(" ".join(what(fd) for fd in range(3)))
"""


@pytest.mark.parametrize("closed", SUBSETS, ids=lambda subset: "".join(map(str, subset)))
def test_closed_descriptors(cellblock, workspace, tmp_path, closed):
    """A descriptor that the caller does not have is /dev/null inside; the others stay what they are."""
    with open(tmp_path / "given", "w+b") as given:
        def close_them():
            for fd in closed:
                os.close(fd)

        process = popen(cellblock, "run", "--", "/usr/bin/python3", "-c", REPORT, stdin=given, stdout=given,
                        stderr=given, preexec_fn=close_them)
        assert process.wait() == 0
        assert (workspace / "report").read_text() == " ".join("null" if fd in closed else "open" for fd in range(3))
        assert os.fstat(given.fileno()).st_size == 0


@pytest.mark.parametrize("closed", SUBSETS, ids=lambda subset: "".join(map(str, subset)))
def test_closed_descriptors_with_json(cellblock, tmp_path, closed):
    """A result that could not be delivered is a failure of cellblock."""
    with open(tmp_path / "given", "w+b") as given:
        def close_them():
            for fd in closed:
                os.close(fd)

        process = popen(cellblock, "run", "--json", "--", "echo", "hello", stdin=given, stdout=given, stderr=given,
                        preexec_fn=close_them)
        assert process.wait() == (125 if 1 in closed else 0)


def test_no_other_descriptor_gets_in(cellblock, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("secret")
    with open(secret) as handle:
        os.set_inheritable(handle.fileno(), True)
        process = popen(cellblock, "run", "--", "ls", "/proc/self/fd", stdin=subprocess.DEVNULL,
                        stdout=subprocess.PIPE, pass_fds=[handle.fileno()])
        out = process.communicate()[0].split()
    assert set(out) == {b"0", b"1", b"2", b"3"}  # 3 is the directory that ls reads


def test_stdin_is_a_file_with_its_offset(cellblock, tmp_path):
    path = tmp_path / "input"
    path.write_bytes(b"0123456789")
    with open(path, "rb", buffering=0) as handle:
        handle.read(2)
        ran = cellblock.run("dd", "bs=3", "count=1", "status=none", stdin=handle)
        assert ran.stdout == b"234"
        assert handle.read() == b"56789"


def test_stdout_is_a_file_that_grows(cellblock, tmp_path):
    path = tmp_path / "output"
    with open(path, "ab") as handle:
        for word in ("one", "two"):
            cellblock.run("echo", word, stdout=handle)
    assert path.read_text() == "one\ntwo\n"


def test_stdin_is_a_terminal(cellblock):
    ours, theirs = pty.openpty()
    process = popen(cellblock, "run", "--", "sh", "-c", "test -t 0 && read line && echo got $line", stdin=theirs,
                    stdout=subprocess.PIPE)
    os.close(theirs)
    os.write(ours, b"words\n")
    assert process.communicate()[0] == b"got words\n"
    os.close(ours)
    assert process.returncode == 0


def test_all_three_are_a_terminal(cellblock):
    ours, theirs = pty.openpty()
    process = popen(cellblock, "run", "--", "sh", "-c", "test -t 0 && test -t 1 && test -t 2 && echo all; exit 5",
                    stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    assert read_all(ours) == b"all\r\n"
    os.close(ours)
    assert process.wait() == 5


def test_stdin_is_a_socket(cellblock):
    ours, theirs = socket.socketpair()
    process = popen(cellblock, "run", "--", "cat", stdin=theirs, stdout=subprocess.PIPE)
    theirs.close()
    ours.sendall(b"through a socket\0\xff")
    ours.shutdown(socket.SHUT_WR)
    assert process.communicate()[0] == b"through a socket\0\xff"
    ours.close()


def test_stdin_is_a_socket_that_stays_open(cellblock):
    """The program does not read to the end, and the caller does not close: the run ends all the same."""
    ours, theirs = socket.socketpair()
    process = popen(cellblock, "run", "--", "head", "-n", "1", stdin=theirs, stdout=subprocess.PIPE)
    theirs.close()
    ours.sendall(b"first\n")
    assert process.communicate(timeout=20)[0] == b"first\n"
    ours.close()


def test_all_three_are_sockets(cellblock):
    """As node does it for a child process."""
    pairs = [socket.socketpair() for _ in range(3)]
    process = popen(cellblock, "run", "--", "sh", "-c", "cat; echo err >&2; exit 4", stdin=pairs[0][1],
                    stdout=pairs[1][1], stderr=pairs[2][1])
    for _, theirs in pairs:
        theirs.close()
    pairs[0][0].sendall(b"x" * 100000)
    pairs[0][0].shutdown(socket.SHUT_WR)
    assert read_all(pairs[1][0].fileno()) == b"x" * 100000
    assert read_all(pairs[2][0].fileno()) == b"err\n"
    assert process.wait() == 4
    for ours, _ in pairs:
        ours.close()


def test_no_socket_of_the_host_is_inside(cellblock):
    ours, theirs = socket.socketpair()
    code = "import os, stat; print([stat.S_ISSOCK(os.fstat(fd).st_mode) for fd in range(3)])"
    process = popen(cellblock, "run", "--", "/usr/bin/python3", "-c", code, stdin=theirs, stdout=theirs, stderr=theirs)
    theirs.close()
    assert read_all(ours.fileno()) == b"[False, False, False]\n"
    ours.close()
    assert process.wait() == 0


def test_a_socket_whose_reader_left(cellblock):
    ours, theirs = socket.socketpair()
    process = popen(cellblock, "run", "--", "yes", stdin=subprocess.DEVNULL, stdout=theirs)
    theirs.close()
    assert ours.recv(2) == b"y\n"
    ours.close()
    assert process.wait(timeout=20) == 141


WRITE_BY_NAME = "echo out > /dev/stdout; echo err > /dev/stderr; echo more >> /dev/stdout"


def test_dev_stdout_as_a_pipe(cellblock):
    ran = cellblock.sh(WRITE_BY_NAME)
    assert (ran.status, ran.out, ran.err) == (0, "out\nmore\n", "err\n")


def test_dev_stdout_as_a_file(cellblock, tmp_path):
    with open(tmp_path / "out", "ab") as out, open(tmp_path / "err", "ab") as err:
        ran = cellblock.sh(WRITE_BY_NAME, stdout=out, stderr=err)
    assert (ran.status, (tmp_path / "err").read_text()) == (0, "err\n")
    assert (tmp_path / "out").read_text() == "out\nmore\n"


def test_dev_stdout_as_a_terminal(cellblock):
    ours, theirs = pty.openpty()
    process = popen(cellblock, "run", "--", "sh", "-c", WRITE_BY_NAME, stdin=subprocess.DEVNULL, stdout=theirs,
                    stderr=theirs)
    os.close(theirs)
    assert read_all(ours) == b"out\r\nerr\r\nmore\r\n"
    os.close(ours)
    assert process.wait() == 0


def test_dev_stdin_by_name(cellblock):
    assert cellblock.run("cat", "/dev/stdin", input=b"by name").stdout == b"by name"
    assert cellblock.run("cat", "/dev/fd/0", input=b"by name").stdout == b"by name"


def test_the_reader_leaves_early(cellblock):
    line = f"'{PROGRAM}' run -- yes | head -n 1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", line], cwd=cellblock.workspace, env=cellblock.environment,
                          capture_output=True, timeout=20)
    assert (done.stdout, done.stderr) == (b"y\n141\n", b"")


@pytest.mark.parametrize("stream", [0, 1, 2])
def test_a_directory_as_a_stream_is_refused(cellblock, outside, stream):
    """It would lead out of the cell."""
    fd = os.open(outside, os.O_RDONLY)
    streams = {name: subprocess.PIPE for name in ("stdin", "stdout", "stderr")}
    streams[("stdin", "stdout", "stderr")[stream]] = fd
    process = popen(cellblock, "run", "--", "true", **streams)
    process.communicate()
    os.close(fd)
    assert process.returncode == 125


def test_process_substitution_and_here_documents(cellblock):
    script = "diff <(printf 'a\\nb\\n') <(printf 'a\\nb\\n') && cat <<< here && cat <<EOF\nthere\nEOF"
    ran = cellblock.run("bash", "-c", script)
    assert (ran.status, ran.out) == (0, "here\nthere\n")
