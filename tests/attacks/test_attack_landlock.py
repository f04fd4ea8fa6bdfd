"""Tier landlock: the host's own tree, processes and network are all in sight. What must not be done with them is
refused by Landlock, by the filters, or by the supervisor, which changes modes and times for the code (layer "seccomp":
without the filter it would not be asked)."""

import ctypes
import os
import socket
import subprocess

import pytest

from attacks import PRELUDE, Attack, prove, table
from conftest import need_landlock, needs_root, which
from tier import Tier


@pytest.fixture
def tier(workspace, home, tmp_path):
    tmp = tmp_path / "tmp"
    tmp.mkdir()
    yield Tier(workspace, home, tmp)
    assert list(tmp.iterdir()) == []            # the private directory of every run is gone


def fill(outside):
    for name, text in ("secret", "SECRET\n"), ("empty", ""):
        (outside / name).unlink(missing_ok=True)
        (outside / name).write_text(text)
    (outside / "secret").chmod(0o600)
    os.utime(outside / "secret", (1, 1))
    (outside / "directory").mkdir(exist_ok=True)
    for name in "made", "moved":
        path = outside / name
        if path.is_symlink() or path.is_file() or path.is_fifo() or path.is_socket():
            path.unlink()
        elif path.is_dir():
            path.rmdir()


# ---- Files ----

READING = [
    Attack("by its path", 'attempt(open, "{outside}/secret")', {"landlock": "EACCES"}),
    Attack("by a symbolic link", 'os.symlink("{outside}/secret", "l%d" % os.getpid())\n'
           'attempt(open, "l%d" % os.getpid())', {"landlock": "EACCES"}),
    Attack("through /proc/self/root", 'attempt(open, "/proc/self/root{outside}/secret")', {"landlock": "EACCES"}),
    Attack("through /proc/self/cwd", 'attempt(open, "/proc/self/cwd/../../outside/secret")', {"landlock": "EACCES"}),
    Attack("from its directory", 'd = os.open("{outside}", os.O_PATH)\n'
           'attempt(lambda: open("secret", opener=lambda p, f: os.open(p, f, dir_fd=d)))', {"landlock": "EACCES"}),
    Attack("by opening a name of it again", 'f = os.open("{outside}/secret", os.O_PATH)\n'
           'attempt(open, "/proc/self/fd/%d" % f)', {"landlock": "EACCES"}),
    Attack("standing beside it", 'os.chdir("{outside}")\nattempt(open, "secret")', {"landlock": "EACCES"}),
    Attack("by a hard link", 'def steal():\n    os.link("{outside}/secret", "stolen")\n    os.unlink("stolen")\n'
           'attempt(steal)', {"landlock": "EXDEV"}),
    Attack("its directory", 'attempt(os.listdir, "{outside}")', {"landlock": "EACCES"}),
    Attack("names in its directory, by watching", 'i = call("inotify_init")\n'
           'attempt(call, "inotify_add_watch", i, b"{outside}", 0x100)', {"seccomp": "ENOSPC"}),
    Attack("extended attributes", 'attempt(lambda: os.listxattr("{outside}/secret"))', {"seccomp": "ENOTSUP"}),
    Attack("executing it", 'attempt(os.posix_spawn, "{outside}/program", ["program"], os.environ)',
           {"landlock": "EACCES"}),
    Attack("mapping it", 'import mmap\nattempt(lambda: mmap.mmap(os.open("{outside}/secret", os.O_RDONLY), 0,'
           ' prot=mmap.PROT_READ))', {"landlock": "EACCES"}),
]

WRITING = [
    Attack("write", 'attempt(write, "{outside}/secret")', {"landlock": "EACCES"}),
    Attack("append", 'attempt(write, "{outside}/secret", flags=os.O_WRONLY | os.O_APPEND)', {"landlock": "EACCES"}),
    Attack("create", 'attempt(write, "{outside}/made", flags=os.O_CREAT | os.O_WRONLY)', {"landlock": "EACCES"}),
    Attack("make a directory", 'attempt(os.mkdir, "{outside}/made")', {"landlock": "EACCES"}),
    Attack("make a symbolic link", 'attempt(os.symlink, "/", "{outside}/made")', {"landlock": "EACCES"}),
    Attack("make a pipe", 'attempt(os.mkfifo, "{outside}/made")', {"landlock": "EACCES"}),
    Attack("link into it", 'open("f", "w")\nattempt(os.link, "f", "{outside}/made")', {"landlock": "EACCES"}),
    Attack("move into it", 'open("f", "w")\nattempt(os.rename, "f", "{outside}/moved")', {"landlock": "EACCES"}),
    Attack("move within it", 'attempt(os.rename, "{outside}/secret", "{outside}/moved")', {"landlock": "EACCES"}),
    Attack("move out of it", 'attempt(os.rename, "{outside}/secret", "moved")', {"landlock": "EACCES"}),
    Attack("exchange", 'open("f", "w")\nattempt(call, "renameat2", -100, b"f", -100, b"{outside}/secret", 2)',
           {"landlock": "EACCES"}),
    Attack("remove", 'attempt(os.unlink, "{outside}/secret")', {"landlock": "EACCES"}),
    Attack("remove a directory", 'attempt(os.rmdir, "{outside}/directory")', {"landlock": "EACCES"}),
    Attack("truncate by name", 'attempt(os.truncate, "{outside}/secret", 0)', {"landlock": "EACCES"}),
    Attack("truncate by opening", 'attempt(os.open, "{outside}/secret", os.O_RDONLY | os.O_TRUNC)',
           {"landlock": "EACCES"}),
    Attack("open for neither reading nor writing", 'attempt(os.open, "{outside}/secret", 3)', {"seccomp": "EACCES"}),
    Attack("truncate by opening for neither", 'attempt(os.open, "{outside}/secret", 3 | os.O_TRUNC)',
           {"seccomp": "EACCES", "landlock": "EACCES"}),
    Attack("its mode", 'attempt(os.chmod, "{outside}/secret", 0o666)', {"seccomp": "EPERM"}),
    Attack("the mode of a directory", 'attempt(os.chmod, "{outside}", 0o777)', {"seccomp": "EPERM"}),
    Attack("its mode, by a link", 'os.symlink("{outside}/secret", "l%d" % os.getpid())\n'
           'attempt(os.chmod, "l%d" % os.getpid(), 0o666)', {"seccomp": "EPERM"}),
    Attack("its mode, by a name of it", 'f = os.open("{outside}/secret", os.O_PATH)\n'
           'attempt(os.chmod, "/proc/self/fd/%d" % f, 0o666)', {"seccomp": "EPERM"}),
    Attack("its mode, from its directory", 'd = os.open("{outside}", os.O_PATH)\n'
           'attempt(os.chmod, "secret", 0o666, dir_fd=d)', {"seccomp": "EPERM"}),
    Attack("its mode, with flags", 'attempt(call, "syscall", 452, -100, b"{outside}/secret", 0o666, 0)',
           {"seccomp": "EPERM"}),
    Attack("its mode, by a descriptor", 'f = os.open("{outside}/secret", os.O_PATH)\n'
           'attempt(call, "syscall", 452, f, b"", 0o666, 0x1000)', {"seccomp": "EPERM"}),
    Attack("its owner", 'attempt(os.chown, "{outside}/secret", os.getuid(), -1)', {"seccomp": "EPERM"}),
    Attack("its owner, by a descriptor", 'f = os.open("{outside}/secret", os.O_PATH)\n'
           'attempt(call, "fchownat", f, b"", os.getuid(), -1, 0x1000)', {"seccomp": "EPERM"}),
    Attack("the owner of a link", 'attempt(os.lchown, "{outside}/link", os.getuid(), -1)', {"seccomp": "EPERM"}),
    Attack("its times", 'attempt(os.utime, "{outside}/secret", (7, 7))', {"seccomp": "EPERM"}),
    Attack("its times, now", 'attempt(os.utime, "{outside}/secret")', {"seccomp": "EPERM"}),
    Attack("its times, by a descriptor", 'f = os.open("{outside}/secret", os.O_PATH)\n'
           'attempt(call, "utimensat", f, b"", None, 0x1000)', {"seccomp": "EPERM"}),
    Attack("an extended attribute", 'attempt(os.setxattr, "{outside}/secret", "user.x", b"x")',
           {"seccomp": "ENOTSUP"}),
    Attack("removing an extended attribute", 'attempt(os.removexattr, "{outside}/secret", "user.mark")',
           {"seccomp": "ENOTSUP"}),
    Attack("settings of the kernel", 'attempt(os.open, "/proc/sys/kernel/core_pattern", os.O_WRONLY)',
           {"landlock": "EACCES"}, root=True),
    Attack("what is granted for reading: its mode", 'attempt(os.chmod, "{read}/data", 0o600)', {"seccomp": "EPERM"},
           flags=("--read", "{read}")),
    Attack("what is granted for reading: its times", 'attempt(os.utime, "{read}/data")', {"seccomp": "EPERM"},
           flags=("--read", "{read}")),
    Attack("what is granted for reading: its content", 'attempt(write, "{read}/data")', {"landlock": "EACCES"},
           flags=("--read", "{read}")),
    Attack("what is granted for reading: truncating", 'attempt(os.open, "{read}/data", os.O_RDONLY | os.O_TRUNC)',
           {"landlock": "EACCES"}, flags=("--read", "{read}")),
]

if os.uname().machine == "x86_64":
    WRITING += [
        Attack("its times, by utime", 'attempt(call, "syscall", 132, b"{outside}/secret", None)', {"seccomp": "EPERM"}),
        Attack("its times, by utimes", 'attempt(call, "syscall", 235, b"{outside}/secret", None)',
               {"seccomp": "EPERM"}),
        Attack("its times, by futimesat", 'attempt(call, "syscall", 261, -100, b"{outside}/secret", None)',
               {"seccomp": "EPERM"}),
    ]


@pytest.fixture
def places(workspace, home, outside, tmp_path):
    fill(outside)
    os.symlink("secret", outside / "link")
    subprocess.run(["cp", which("true"), outside / "program"], check=True)
    os.setxattr(outside / "secret", "user.mark", b"x")
    read = tmp_path / "read"
    read.mkdir()
    (read / "data").write_text("data\n")
    return {"workspace": workspace, "home": home, "outside": outside, "read": read}


def restore(places):
    fill(places["outside"])
    os.setxattr(places["outside"] / "secret", "user.mark", b"x")
    places["outside"].chmod(0o755)


@pytest.mark.parametrize("attack", table(READING), ids=str)
def test_nothing_outside_is_read(tier, places, attack):
    prove(tier, attack, places, lambda: restore(places))


@pytest.mark.parametrize("attack", table(WRITING), ids=str)
def test_nothing_outside_is_changed(tier, places, attack):
    prove(tier, attack, places, lambda: restore(places))
    found = os.stat(places["outside"] / "secret")
    assert (places["outside"] / "secret").read_text() == "SECRET\n"
    assert found.st_mode & 0o777 == 0o600 and found.st_mtime == 1


# ---- Modes and times that the supervisor changes: nothing to win by racing it ----

RACE = """
import threading
inside, outside = b"{workspace}/inside", b"{outside}/secret"
name = ctypes.create_string_buffer(b"x" * 200)
over = False
def flip():
    while not over:
        ctypes.memmove(name, inside + b"\\0", len(inside) + 1)
        ctypes.memmove(name, outside + b"\\0", len(outside) + 1)
threads = [threading.Thread(target=flip) for _ in range(2)]
for thread in threads: thread.start()
answers = set()
for _ in range(2000):
    answers.add(libc.chmod(name, 0o666))
over = True
for thread in threads: thread.join()
print(sorted(answers))
"""

SWAP = """
import threading
over = False
os.symlink("inside", "link")
def flip():
    while not over:
        for target in "inside", "{outside}/secret":
            os.symlink(target, "next")
            os.rename("next", "link")
thread = threading.Thread(target=flip)
thread.start()
answers = set()
for _ in range(1000):
    answers.add(libc.chmod(b"link", 0o666))
over = True
thread.join()
print(sorted(answers))
"""


@pytest.mark.parametrize("code", [RACE, SWAP], ids=["argument", "link"])
def test_what_is_judged_is_what_is_changed(tier, places, workspace, code):
    """Both outcomes are seen, and the file outside keeps its mode: it was never the one that was judged well."""
    (workspace / "inside").write_text("")
    code = code.replace("{workspace}", str(workspace)).replace("{outside}", str(places["outside"]))
    ran = tier.python(PRELUDE + code)
    assert ran.out == "[-1, 0]\n", ran.err
    assert os.stat(places["outside"] / "secret").st_mode & 0o777 == 0o600


@needs_root
def test_root_changes_no_file_of_another_user(tier, workspace):
    """The code is root without capabilities, which can't change what others own; nor does the supervisor, for it."""
    (workspace / "theirs").write_text("x")
    os.chown(workspace / "theirs", 1001, 1001)
    (workspace / "theirs").chmod(0o644)
    directory = workspace / "directory"
    directory.mkdir()
    os.chown(directory, 1001, 1001)
    code = ('attempt(os.chmod, "theirs", 0o666)\nattempt(os.chown, "theirs", 0, 0)\n'
            'attempt(os.utime, "theirs", (1, 1))\nattempt(os.mkdir, "directory/made")\n'
            'attempt(os.symlink, "x", "directory/made")\nattempt(os.truncate, "theirs", 0)\n')
    for abi in None, 2:
        assert tier.python(PRELUDE + code, abi=abi).out.split() == ["EPERM"] * 3 + ["EACCES"] * 3
    assert (workspace / "theirs").read_text() == "x" and list(directory.iterdir()) == []


@needs_root
def test_root_gives_nothing_away(tier, workspace):
    (workspace / "mine").write_text("x")
    code = 'attempt(os.chown, "mine", 1001, -1)\nattempt(os.chown, "mine", -1, 1001)\nattempt(os.chown, "mine", 0, 0)'
    assert tier.python(PRELUDE + code).out.split() == ["EPERM", "EPERM", "worked"]


def test_no_set_id_bits(tier, workspace):
    (workspace / "file").write_text("x")
    code = "".join(f'attempt(os.chmod, "file", 0o{bits})\n' for bits in ("4755", "2755", "6755", "1755"))
    assert tier.python(PRELUDE + code).out.split() == ["EPERM", "EPERM", "EPERM", "worked"]
    assert (workspace / "file").stat().st_mode & 0o7777 == 0o1755


def test_what_is_refused_is_noted(tier, places):
    code = f'attempt(os.chmod, "{places["outside"]}/secret", 0o666)\n' \
           f'attempt(os.utime, "{places["outside"]}/secret")\nattempt(os.chmod, "/usr/bin/env", 0o777)'
    denials = tier.python(PRELUDE + code, flags=["--json"]).json["denials"]
    assert [(d["code"], d["object"], d["layer"], d["count"]) for d in denials] == [
        ("file.attributes", f"{places['outside']}/secret", "supervisor", 2),
        ("file.attributes", "/usr/bin/env", "supervisor", 1)]


def test_the_notes_do_not_grow_for_ever(tier):
    code = 'import glob\nfor p in sorted(glob.glob("/usr/bin/*"))[:300]:\n' \
           '  try: os.chmod(p, 0o700)\n  except OSError: pass'
    assert 2 <= len(tier.python(PRELUDE + code, flags=["--json"]).json["denials"]) <= 64


def test_a_scratch_workspace_is_only_a_name(tier, workspace):
    (workspace / "file").write_text("x")
    (workspace / "file").chmod(0o644)
    code = f'attempt(os.chmod, "{workspace}/file", 0o666)\nattempt(write, "{workspace}/file")\n' \
           'write("mine", flags=os.O_CREAT | os.O_WRONLY)\nattempt(os.chmod, "mine", 0o600)'
    policy = tier.home / "policy.jsonc"
    policy.write_text('{"cellblock": 1, "extends": ["base"], "workspace": {"mode": "scratch"}}')
    ran = tier.python(PRELUDE + code, flags=["--policy", str(policy)])
    assert ran.out.split() == ["EPERM", "EACCES", "worked"], ran.err
    assert (workspace / "file").stat().st_mode & 0o777 == 0o644


# ---- Sockets: no network namespace, so none at all ----

@pytest.fixture
def services(tmp_path):
    """Of the host: one for each way to reach it."""
    made = {"tcp": socket.create_server(("127.0.0.1", 0))}
    for name, kind in ("stream", socket.SOCK_STREAM), ("datagram", socket.SOCK_DGRAM):
        for where in "path", "abstract":
            made[f"{where} {name}"] = service = socket.socket(socket.AF_UNIX, kind)
            service.bind(str(tmp_path / name) if where == "path" else f"\0cellblock-{os.getpid()}-{name}")
            if kind == socket.SOCK_STREAM:
                service.listen()
    yield {name: service.getsockname() for name, service in made.items()}
    for service in made.values():
        service.close()


REACHING = [
    Attack("tcp", 'attempt(lambda: socket.create_connection({tcp}))', {"seccomp": "EACCES", "landlock": "EACCES"}),
    Attack("udp", 'attempt(lambda: socket.socket(type=socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", 9)))',
           {"seccomp": "EACCES"}),
    Attack("tcp service of its own", 'attempt(lambda: socket.create_server(("127.0.0.1", 0)))',
           {"seccomp": "EACCES", "landlock": "EACCES"}),
    Attack("unix stream", 'attempt(lambda: socket.socket(socket.AF_UNIX).connect({path stream}))',
           {"seccomp": "EACCES"}),
    Attack("unix datagram", 'attempt(lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)'
           '.sendto(b"x", {path datagram}))', {"seccomp": "EACCES"}),
    Attack("abstract stream", 'attempt(lambda: socket.socket(socket.AF_UNIX).connect({abstract stream}))',
           {"seccomp": "EACCES", "landlock": "EPERM"}),
    Attack("abstract datagram", 'attempt(lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)'
           '.sendto(b"x", {abstract datagram}))', {"seccomp": "EACCES", "landlock": "EPERM"}),
    Attack("one of a pair, sending elsewhere", 'attempt(lambda: socket.socketpair(type=socket.SOCK_DGRAM)[0]'
           '.sendto(b"x", {path datagram}))', {"seccomp": "EACCES"}),
    Attack("one of a pair, connecting elsewhere", 'attempt(lambda: socket.socketpair(type=socket.SOCK_DGRAM)[0]'
           '.connect({path datagram}))', {"seccomp": "EACCES"}),
    Attack("one of a raw pair, sending elsewhere", 'attempt(lambda: socket.socketpair(type=socket.SOCK_RAW)[0]'
           '.sendto(b"x", {path datagram}))', {"seccomp": "EACCES"}),
    Attack("netlink", 'attempt(lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0))', {"seccomp": "EACCES"}),
]


@pytest.mark.parametrize("attack", REACHING, ids=str)
def test_no_service_is_reached(tier, services, attack):
    if "landlock" in attack.refused_by:
        need_landlock(6 if attack.name.startswith("abstract") else 4)
    prove(tier, attack, {name: repr(address) for name, address in services.items()})


@pytest.mark.parametrize("kind", ["SOCK_STREAM", "SOCK_SEQPACKET"])
def test_pairs_of_streams_lead_nowhere_else(tier, services, kind):
    """They stay, for programs that talk to their own children; nothing can be done with one but that."""
    code = f'a, b = socket.socketpair(type=socket.{kind})\na.send(b"x"); print(b.recv(1))\n' \
           f'attempt(lambda: a.connect({services["path stream"]!r}))\nattempt(lambda: a.listen())\n' \
           f'try: a.sendto(b"y", {services["path datagram"]!r}); print(b.recv(1))\n' \
           f'except OSError as e: print(errno.errorcode[e.errno])'
    out = tier.python(PRELUDE + code).out.split()
    assert out[0] == "b'x'" and "worked" not in out[1:3] and out[3] in {"EISCONN", "EOPNOTSUPP", "b'y'"}


@pytest.mark.parametrize("family", ["AF_VSOCK", "AF_PACKET", "AF_ALG", "AF_BLUETOOTH", "AF_CAN"])
def test_no_socket_of_any_family(tier, family):
    ran = tier.python(PRELUDE + f"attempt(lambda: socket.socket(socket.{family}, socket.SOCK_STREAM))")
    assert ran.out.strip() in {"EACCES", "EAFNOSUPPORT", "EPERM"}


# ---- Memory and queues shared with the host ----

@pytest.fixture
def segment():
    libc = ctypes.CDLL(None, use_errno=True)
    number = libc.shmget(0, 4096, 0o1600)
    assert number >= 0
    yield number
    libc.shmctl(number, 0, None)


def test_system_v_memory_of_the_host(tier, segment):
    libc = 'libc.shmat.restype = ctypes.c_long\n'
    attack = Attack("shmat", libc + f'attempt(call, "shmat", {segment}, None, 0)', {"seccomp": "ENOSYS"})
    prove(tier, attack, {})


@pytest.mark.parametrize("code", ['"shmget", 7, 4096, 0o1600', '"semget", 7, 1, 0o1600', '"msgget", 7, 0o1600'])
def test_no_system_v_objects_are_left_on_the_host(tier, code):
    assert tier.python(PRELUDE + f"attempt(call, {code})").out == "ENOSYS\n"


def test_message_queues_of_the_host(tier):
    """Here the filter refuses; without it Landlock, which knows no rule for that file system."""
    code = "attempt(call, 'mq_open', b'/cellblock-mark', os.O_CREAT | os.O_RDWR, 0o600, None)\n" \
           "libc.mq_unlink(b'/cellblock-mark')"
    assert tier.python(PRELUDE + code, off=["seccomp", "landlock"]).out == "worked\n"
    assert tier.python(PRELUDE + code).out == "ENOSYS\n"
    assert tier.python(PRELUDE + code, off=["seccomp"]).out == "EACCES\n"


@pytest.fixture
def shared():
    path = f"/dev/shm/cellblock-{os.getpid()}"
    with open(path, "w") as file:
        file.write("SECRET\n")
    yield path
    os.unlink(path)


def test_shared_memory_of_the_host(tier, shared):
    for code in f'attempt(open, "{shared}")', f'attempt(write, "{shared}")', 'attempt(os.listdir, "/dev/shm")':
        prove(tier, Attack("shm", code, {"landlock": "EACCES"}), {})


def test_memory_files_do_not_slip_past_the_limit(tier):
    """Where nobody counts them. A cgroup does: then they are there."""
    ran = tier.python(PRELUDE + 'attempt(os.memfd_create, "x")', flags=["--memory", "64M", "--json"])
    counted = ran.json["report"]["enforced"]["limits"]["memory"].startswith("cgroup")
    assert ran.json["stdout"] == ("worked\n" if counted else "ENOSYS\n")
