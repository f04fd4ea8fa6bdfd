"""Descriptors that lead out, what two cells could share, and secrets of the caller."""

import fcntl
import os
import socket
import subprocess

import pytest

from attacks import PRELUDE, start
from conftest import HOOKED, PROGRAM

OPEN_DESCRIPTORS = "import os\nfor fd in range(3, 256):\n  try: print(fd, os.readlink(f'/proc/self/fd/{fd}'))\n" \
                   "  except OSError: pass"


def run_with(cellblock, code, off=(), flags=(), **keywords):
    environment = {**cellblock.environment, **({"CELLBLOCK_TEST_OFF": ",".join(off)} if off else {})}
    return subprocess.run([HOOKED if off else PROGRAM, "run", *flags, "--", "/usr/bin/python3", "-c", code],
                          cwd=cellblock.workspace, env=environment, timeout=60, **keywords)


@pytest.mark.parametrize("kind", ["directory", "file", "socket", "pipe", "listener"])
def test_descriptors_that_the_caller_leaked_do_not_enter(cellblock, outside, kind):
    (outside / "data").write_text("private\n")
    kept = []
    if kind == "directory":
        leaked = os.open(outside, os.O_RDONLY)
    elif kind == "file":
        leaked = os.open(outside / "data", os.O_RDWR)
    elif kind == "pipe":
        other, leaked = os.pipe()
        kept.append(other)
    else:
        one, two = socket.socketpair()
        kept += [one, two]
        leaked = one.fileno()
    high = fcntl.fcntl(leaked, fcntl.F_DUPFD, 77)
    use = f"import os; os.fstat({high})"
    if kind == "directory":
        use = f"import os; os.open('data', os.O_RDONLY, dir_fd={high})"
    ran = run_with(cellblock, use, pass_fds=[high], capture_output=True)
    assert ran.returncode == 1 and b"Bad file descriptor" in ran.stderr
    without = run_with(cellblock, use, off=["descriptors", "landlock"], pass_fds=[high], capture_output=True)
    assert without.returncode == 0, without.stderr
    if kind == "directory":         # two layers: Landlock refuses what the descriptor leads to
        alone = run_with(cellblock, use, off=["descriptors"], pass_fds=[high], capture_output=True)
        assert b"Permission denied" in alone.stderr
    os.close(high)


def test_only_the_three_descriptors_are_open(cellblock):
    ran = cellblock.python(OPEN_DESCRIPTORS)
    assert (ran.status, ran.out) == (0, "")


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_PATH], ids=["opened", "path"])
def test_a_directory_as_a_standard_stream_is_refused(cellblock, workspace, outside, number, flags):
    (outside / "data").write_text("private\n")
    directory = os.open(outside, flags | os.O_DIRECTORY)
    code = "import os; open('marker', 'w'); os.open('data', os.O_RDONLY, dir_fd=%d)" % number
    streams = {("stdin", "stdout", "stderr")[number]: directory}
    ran = run_with(cellblock, code, **{"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE,
                                       "stderr": subprocess.PIPE, **streams})
    os.close(directory)
    assert ran.returncode == 125
    assert not (workspace / "marker").exists()


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_path_descriptor_of_a_file_is_refused(cellblock, workspace, outside, number):
    (outside / "data").write_text("private\n")
    name = os.open(outside / "data", os.O_PATH)
    ran = run_with(cellblock, "open('marker', 'w')", **{
        "stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE,
        ("stdin", "stdout", "stderr")[number]: name})
    os.close(name)
    assert ran.returncode == 125 and not (workspace / "marker").exists()


def test_a_socket_as_a_standard_stream_is_relayed_and_does_not_enter(cellblock):
    """A socket of the host would be a way to send descriptors, and to the host's network."""
    ours, theirs = socket.socketpair()
    code = "import os, stat, sys\nprint([stat.S_IFMT(os.fstat(fd).st_mode) == stat.S_IFSOCK for fd in (0, 1, 2)])\n" \
           "print(sys.stdin.readline(), end='', flush=True)"
    ours.sendall(b"hello\n")
    ours.shutdown(socket.SHUT_WR)
    ran = run_with(cellblock, code, stdin=theirs, stdout=theirs, stderr=theirs)
    theirs.close()
    received = b""
    while piece := ours.recv(4096):
        received += piece
    ours.close()
    assert ran.returncode == 0 and received == b"[False, False, False]\nhello\n"


def test_descriptors_sent_over_a_socket_stream_do_not_arrive(cellblock, outside):
    ours, theirs = socket.socketpair()
    directory = os.open(outside, os.O_RDONLY)
    socket.send_fds(ours, [b"x"], [directory])
    ours.shutdown(socket.SHUT_WR)
    ran = run_with(cellblock, "import sys; sys.stdin.read()\n" + OPEN_DESCRIPTORS, stdin=theirs, capture_output=True)
    assert (ran.returncode, ran.stdout) == (0, b"")
    for one in ours, theirs:
        one.close()
    os.close(directory)


def test_closed_standard_streams(cellblock, workspace):
    """What the cell opens next must not become its standard output by accident, and nothing of ours may either."""
    for closed in "<&-", ">&-", "2>&-", "<&- >&- 2>&-":
        look = "readlink /proc/self/fd/0 /proc/self/fd/1 /proc/self/fd/2 >seen"
        ran = subprocess.run(["sh", "-c", f'"$0" run -- sh -c "{look}" {closed}', PROGRAM], cwd=workspace,
                             env=cellblock.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE)
        assert ran.returncode == 0
        seen = (workspace / "seen").read_text().split()
        assert all(path == "/dev/null" or path.startswith("pipe:") or path.endswith("/seen") for path in seen), seen


INPUT = [
    ("write", "fd = os.open('/proc/self/fd/0', os.O_RDWR); os.write(fd, b'x')"),
    ("write by /dev/stdin", "fd = os.open('/dev/stdin', os.O_WRONLY); os.write(fd, b'x')"),
    ("truncate", "os.truncate('/proc/self/fd/0', 0)"),
]


@pytest.mark.parametrize("code", [code for _, code in INPUT], ids=[name for name, _ in INPUT])
def test_a_file_as_input_can_not_be_reopened_for_writing(cellblock, outside, code):
    """The descriptor is read-only, but its file is the caller's: only Landlock stands between."""
    data = outside / "data"
    data.write_text("input\n")
    data.chmod(0o666)
    code = f"import os\ntry: {code}\nexcept OSError as e: print(e.errno)"
    for off, expected in ([], b"13\n"), (["landlock"], b""):
        with data.open() as stream:
            assert run_with(cellblock, code, off=off, stdin=stream, stdout=subprocess.PIPE).stdout == expected
        if not off:
            assert data.read_text() == "input\n"
    assert data.read_text() != "input\n"


def test_the_directory_around_an_input_file_stays_closed(cellblock, outside):
    (outside / "data").write_text("input\n")
    (outside / "secret").write_text("private\n")
    code = "import os\nfor p in ('/proc/self/fd/0/../secret',\n" \
           "          os.path.dirname(os.readlink('/proc/self/fd/0')) + '/secret'):\n" \
           "  try: print(open(p).read())\n  except OSError: pass"
    with (outside / "data").open() as stream:
        assert run_with(cellblock, code, stdin=stream, stdout=subprocess.PIPE).stdout == b""


# ---- Two cells at once ----

SHARED = {
    "/tmp": ("open('/tmp/mark', 'w')", "open('/tmp/mark')"),
    "/var/tmp": ("open('/var/tmp/mark', 'w')", "open('/var/tmp/mark')"),
    "/dev/shm": ("open('/dev/shm/mark', 'w')", "open('/dev/shm/mark')"),
    "home": ("open(os.path.expanduser('~/mark'), 'w')", "open(os.path.expanduser('~/mark'))"),
    "System V shared memory": ("call('shmget', 4242, 4096, 0o1666)", "call('shmget', 4242, 4096, 0)"),
    "System V messages": ("call('msgget', 4242, 0o1666)", "call('msgget', 4242, 0)"),
    "System V semaphores": ("call('semget', 4242, 1, 0o1666)", "call('semget', 4242, 1, 0)"),
    "abstract socket": ("s = socket.socket(socket.AF_UNIX); s.bind('\\0mark'); s.listen()",
                        "socket.socket(socket.AF_UNIX).connect('\\0mark')"),
    "loopback": ("s = socket.socket(); s.bind(('127.0.0.1', 4242)); s.listen()",
                 "socket.create_connection(('127.0.0.1', 4242))"),
}


@pytest.mark.parametrize("what", SHARED)
def test_two_cells_share_nothing_but_the_workspace(cellblock, what):
    make, find = SHARED[what]
    script = PRELUDE + f"def make():\n    global s\n    {make}\nmake()\nprint('made', flush=True)\nsys.stdin.readline()"
    look = PRELUDE + f"attempt(lambda: {find})"
    first = start(cellblock, "--", "/usr/bin/python3", "-c", script)
    assert first.stdout.readline() == b"made\n", first.stderr.read()
    try:
        second = cellblock.python(look)
        assert second.out.strip() in {"ENOENT", "ECONNREFUSED", "EPERM"}, second.err
        # In one cell, or bare, the same two steps do meet.
        met = cellblock.python(PRELUDE + f"def make():\n    global s\n    {make}\nmake()\nattempt(lambda: {find})")
        assert met.out == "worked\n", met.err
    finally:
        first.communicate(b"\n", timeout=30)


def test_posix_message_queues_are_not_shared(cellblock):
    """Two layers: Landlock, which knows no rule for that file system, and the ipc namespace."""
    make = "call('mq_open', b'/mark', os.O_CREAT | os.O_RDWR, 0o666, None)"
    find = "call('mq_open', b'/mark', os.O_RDWR)"
    assert cellblock.python(PRELUDE + f"attempt(lambda: {make})").out == "EACCES\n"
    hold = PRELUDE + f"{make}\nprint('made', flush=True)\nsys.stdin.readline()"
    first = start(cellblock, "--", "/usr/bin/python3", "-c", hold, program=HOOKED,
                  env={"CELLBLOCK_TEST_OFF": "landlock"})
    assert first.stdout.readline() == b"made\n", first.stderr.read()
    assert cellblock.python(PRELUDE + f"attempt(lambda: {find})", off=["landlock"]).out == "ENOENT\n"
    first.communicate(b"\n", timeout=30)


def test_the_hosts_sockets_are_out_of_reach(cellblock, tmp_path):
    """Abstract names and loopback of the host: another network namespace."""
    listener = socket.socket(socket.AF_UNIX)
    name = "\0cellblock-attack-%d" % os.getpid()
    listener.bind(name)
    listener.listen()
    tcp = socket.create_server(("127.0.0.1", 0))
    code = PRELUDE + f"attempt(socket.socket(socket.AF_UNIX).connect, {name!r})\n" \
                     f"attempt(socket.create_connection, ('127.0.0.1', {tcp.getsockname()[1]}))"
    bare = subprocess.run(["/usr/bin/python3", "-c", code], capture_output=True, text=True)
    assert bare.stdout == "worked\nworked\n"
    for off in [], ["landlock"], ["seccomp"]:
        assert set(cellblock.python(code, off=off).out.split()) <= {"EPERM", "ECONNREFUSED"}
    listener.close()
    tcp.close()


# ---- Secrets of the caller ----

SECRETS = {"AWS_SECRET_ACCESS_KEY": "SECRET1", "OPENAI_API_KEY": "SECRET2", "GITHUB_TOKEN": "SECRET3",
           "SSH_AUTH_SOCK": "/SECRET4", "DBUS_SESSION_BUS_ADDRESS": "unix:path=/SECRET5", "DATABASE_URL": "SECRET6",
           "LD_PRELOAD": "", "PYTHONPATH": "/SECRET7", "NPM_TOKEN": "SECRET8", "DISPLAY": ":SECRET9"}


def test_the_environment_holds_no_secrets(cellblock):
    assert "SECRET" not in cellblock.run("env", env=SECRETS).out
    assert "SECRET1" in cellblock.run("env", env=SECRETS, off=["environment"]).out
    assert "SECRET1" in cellblock.run("env", env=SECRETS, flags=["--env", "AWS_SECRET_ACCESS_KEY"]).out


def test_neither_does_what_proc_tells(cellblock):
    """Its own environment and arguments, and those of every process that it can see: not the caller's."""
    code = "import glob\nfor p in glob.glob('/proc/[0-9]*/environ') + glob.glob('/proc/[0-9]*/cmdline'):\n" \
           "  try: print(open(p, 'rb').read())\n  except OSError: pass"
    flags = ["--env", "HARMLESS=1", "--read", "/usr/share/doc"]
    for off in [], ["landlock"], ["proc"]:
        ran = cellblock.python(code, env=SECRETS, flags=flags, off=off)
        assert ran.status == 0
        assert "SECRET" not in ran.out and "/usr/share/doc" not in ran.out


def test_memory_of_the_supervisor_does_not_come_along(cellblock):
    """Between clone and exec the program's process has the supervisor's memory: exec must have replaced all of it."""
    code = ("import re\nfound = 0\nfor line in open('/proc/self/maps'):\n"
            "  a, b = (int(x, 16) for x in line.split()[0].split('-'))\n"
            "  if 'r' not in line.split()[1] or '[v' in line: continue\n"
            "  m = open('/proc/self/mem', 'rb', 0); m.seek(a)\n"
            "  try: found += len(re.findall(rb'SECRET[1]', m.read(b - a)))\n  except OSError: pass\nprint(found)")
    assert int(cellblock.python(code, env=SECRETS, off=["environment"]).out) > 0
    assert cellblock.python(code, env=SECRETS).out == "0\n"


HOME_FILES = [".bash_history", ".python_history", ".aws/credentials", ".netrc", ".git-credentials",
              ".config/gh/hosts.yml", ".docker/config.json", ".npmrc", ".pypirc", ".kube/config", ".gnupg/secring.gpg",
              ".mozilla/x/cookies.sqlite"]


def test_the_home_directory_is_empty(cellblock, home, workspace):
    for name in HOME_FILES:
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("SECRET\n")
    assert cellblock.sh("ls -A ~").out.split() in ([], [workspace.name])
    assert cellblock.sh(f"ls -A {home}").out.split() == [workspace.name]
    assert "SECRET" not in cellblock.sh("cd; cat " + " ".join(HOME_FILES)).out
    ran = cellblock.sh("echo x >~/.bashrc; echo x >~/.ssh-new; mkdir -p ~/.ssh; echo x >~/.ssh/authorized_keys")
    assert ran.status == 0                      # its own, and gone afterwards
    assert not (home / ".bashrc").exists() and not (home / ".ssh" / "authorized_keys").exists()


@pytest.mark.parametrize("path", ["/etc/shadow", "/etc/ssh", "/etc/sudoers", "/root", "/run", "/var/lib", "/var/log",
                                  "/var/run/docker.sock", "/boot", "/srv", "/mnt", "/media",
                                  "/etc/ssl/private", "/proc/1/environ"])
def test_secret_places_of_the_system_are_not_there(cellblock, path):
    ran = cellblock.sh(f"ls -A {path} 2>/dev/null")
    assert ran.out in ("", "home\n" if path == "/run" else "")     # the cell's own home directory
