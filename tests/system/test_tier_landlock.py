"""Tier landlock: how it is asked for, what it says of itself, and that ordinary programs work in it."""

import ctypes
import os
import struct
import subprocess
import zipfile

import pytest

from conftest import PROGRAM, Ran, is_root, needs_root, which
from tier import FLAGS, Tier


@pytest.fixture
def tier(workspace, home, tmp_path):
    tmp = tmp_path / "tmp"
    tmp.mkdir()
    yield Tier(workspace, home, tmp)
    assert list(tmp.iterdir()) == []


# ---- Asking for it ----

def no_user_namespaces():
    """A filter as in a container: no new namespaces, and no clone3, whose flags a filter can't see."""
    numbers = {"x86_64": (62, 435, 56, 272), "aarch64": (183, 435, 220, 97)}[os.uname().machine]
    _, clone3, clone, unshare = numbers
    allow, refuse, missing = 0x7fff0000, 0x00050001, 0x00050000 | 38
    code = [
        (0x20, 0, 0, 0),                    # load the number
        (0x15, 0, 1, clone3), (0x06, 0, 0, missing),
        (0x15, 0, 1, unshare), (0x06, 0, 0, refuse),
        (0x15, 0, 3, clone),
        (0x20, 0, 0, 16),                   # load the flags
        (0x45, 0, 1, 0x7e020000), (0x06, 0, 0, refuse),
        (0x06, 0, 0, allow),
    ]
    data = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in code))
    program = struct.pack("HxxxxxxQ", len(code), ctypes.addressof(data))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(38, 1, 0, 0, 0) != 0 or libc.prctl(22, 2, program, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def run_without(tier, *arguments):
    done = subprocess.run([PROGRAM, "run", *arguments], env=tier.environment, cwd=tier.workspace, capture_output=True,
                          preexec_fn=no_user_namespaces, timeout=60)
    return Ran(done.returncode, done.stdout, done.stderr)


IDS = FLAGS[2:]


def test_without_namespaces_it_is_refused_with_a_way_out(tier):
    ran = run_without(tier, *IDS, "--", "true")
    assert ran.status == 125 and "layer: user-namespace" in ran.err and "--isolation landlock" in ran.err


def test_with_the_acceptance_it_falls_back_and_says_so(tier):
    ran = run_without(tier, *IDS, "--accept-weaker", "namespaces", "--json", "--", "echo", "hi")
    report = ran.json["report"]
    assert ran.json["stdout"] == "hi\n" and report["tier"] == "landlock", ran.err
    assert report["requested"]["isolation"] == "auto"
    assert any(line.startswith("namespaces: ") and "making the cell's namespaces" in line for line in report["weaker"])


def test_a_demand_for_namespaces_is_not_given_up(tier):
    ran = run_without(tier, *IDS, "--accept-weaker", "namespaces", "--isolation", "namespaces", "--", "true")
    assert ran.status == 125 and "layer: user-namespace" in ran.err


def test_where_there_are_namespaces_the_acceptance_changes_nothing(tier):
    report = tier.command("run", "--accept-weaker", "namespaces", "--json", "--", "true").json["report"]
    assert report["tier"] == "namespaces" and report["weaker"] == []


def test_it_works_where_there_are_no_namespaces(tier):
    ran = run_without(tier, *FLAGS, "--", "sh", "-c", "echo x > f; chmod 600 f; stat -c %a f")
    assert ran.out == "600\n", ran.err


@needs_root
def test_root_has_to_accept_its_id(tier):
    ran = tier.command("run", "--isolation", "landlock", "--", "true")
    assert ran.status == 125 and "layer: ids" in ran.err and "--accept-weaker ids" in ran.err
    weaker = tier.run("true", flags=["--json"]).json["report"]["weaker"]
    assert any(line.startswith("ids: ") for line in weaker)


def test_the_report(tier):
    report = tier.run("true", flags=["--json"]).json["report"]
    assert report["tier"] == "landlock" and report["requested"]["isolation"] == "landlock"
    assert report["enforced"]["namespaces"] == [] and report["enforced"]["network"] == "no sockets"
    assert {line.split(":")[0] for line in report["weaker"]} >= {"namespaces", "files", "processes"}


@pytest.mark.parametrize("what", ["present", "hidden"])
def test_a_protected_path_in_the_workspace(tier, workspace, what):
    """Rights add up along a path: it can't be given less than what lies around it."""
    if what == "present":
        (workspace / ".git" / "hooks").mkdir(parents=True)
        path, flags = ".git/hooks", []
    else:
        (workspace / "private").mkdir()
        path, flags = "private", ["--hide", str(workspace / "private")]
    ran = tier.run("true", flags=flags)
    assert ran.status == 125 and "layer: protected-paths" in ran.err and f"{workspace / path}" in ran.err
    assert "--accept-weaker protected-paths" in ran.err
    ran = tier.sh("echo ran", flags=[*flags, "--accept-weaker", "protected-paths", "--json"])
    assert ran.json["stdout"] == "ran\n" and f"protected-paths: {workspace / path}" in ran.json["report"]["weaker"]


def test_a_protected_path_that_is_not_there_can_not_be_made(tier, workspace):
    """The guard works as in the other tier."""
    ran = tier.sh("mkdir .git && mkdir .git/objects && ! mkdir .git/hooks && ! mkdir .vscode && ! ln -s /tmp .idea && "
                  "mkdir -p x/hooks && ! mv x .git2/hooks 2>/dev/null; ! mv x/hooks .git/hooks && echo held",
                  flags=["--json"])
    assert ran.json["stdout"] == "held\n", ran.json["stderr"]
    assert sorted(os.listdir(workspace)) == [".git", "x"] and os.listdir(workspace / ".git") == ["objects"]
    assert {d["layer"] for d in ran.json["denials"]} == {"guard"}


@pytest.mark.parametrize("where", ["link", "missing", "closed"])
def test_the_place_of_the_private_directory(tier, tmp_path, where):
    place = tmp_path / "place"
    if where == "link":
        (tmp_path / "real").mkdir()
        place.symlink_to("real")
        ran = tier.sh('touch "$TMPDIR"/f && chmod 600 "$TMPDIR"/f && echo "$TMPDIR"', env={"TMPDIR": str(place)})
        assert ran.out.startswith(str(tmp_path / "real")) and os.listdir(place) == [], ran.err
        return
    if where == "closed":
        place.mkdir()
        place.chmod(0o500)
    if where == "closed" and is_root():
        place.rmdir()
        place = "/proc"     # where even root makes no directories
    ran = tier.run("true", env={"TMPDIR": str(place)})
    assert ran.status == 125 and "layer: private-directory" in ran.err


# ---- Modes, owners and times, as without a cell ----

ATTRIBUTES = """
import ctypes, errno, os, socket, stat
libc = ctypes.CDLL(None, use_errno=True)
def say(name, function, *arguments, **keywords):
    try: answer = function(*arguments, **keywords)
    except OSError as error: answer = errno.errorcode[error.errno]
    print(name, answer)
def raw(number, *arguments):
    if libc.syscall(number, *arguments) < 0: raise OSError(ctypes.get_errno(), "call")
def look(path):
    found = os.lstat(path)
    print(path, oct(found.st_mode), *["now" if ns > 10 ** 18 else ns for ns in (found.st_atime_ns, found.st_mtime_ns)])
open("f", "w").close(); os.mkdir("d"); open("d/g", "w").close(); os.symlink("f", "l"); os.symlink("none", "broken")
os.mkfifo("fifo"); os.symlink("loop", "loop")
fd = os.open("f", os.O_RDONLY); name = os.open("f", os.O_PATH); d = os.open("d", os.O_RDONLY)
link = os.open("l", os.O_PATH | os.O_NOFOLLOW)
os.utime("f", (5, 6))
for mode in 0o644, 0o700, 0o1777, 0, 0o600:
    say("chmod", os.chmod, "f", mode); look("f")
say("fchmod", os.fchmod, fd, 0o640); look("f")
say("by link", os.chmod, "l", 0o644); look("f"); look("l")
say("no follow", os.chmod, "f", 0o604, follow_symlinks=False); look("f")
say("dir_fd", os.chmod, "g", 0o604, dir_fd=d); look("d/g")
say("directory", os.chmod, "d", 0o711); look("d")
say("through a name", os.chmod, f"/proc/self/fd/{name}", 0o606); look("f")
say("through a name", os.chmod, f"/dev/fd/{name}", 0o607); look("f")
say("fifo", os.chmod, "fifo", 0o600); look("fifo")
for path in "none", "broken", "f/x", "loop", "", "n" * 300, "d/../f", "./d//g", "d/", "f/", "/none":
    say(path, os.chmod, path, 0o700)
say("bad descriptor", os.fchmod, 99, 0o600)
say("no descriptor", raw, FCHMOD, -100, 0o600)
say("bad pointer", raw, FCHMODAT, -100, 1, 0o600)
say("no pointer", raw, FCHMODAT, -100, 0, 0o600)
say("bad directory", raw, FCHMODAT, 99, b"f", 0o600)
say("no directory", raw, FCHMODAT, fd, b"f", 0o600)
say("chown", os.chown, "f", os.getuid(), os.getgid()); say("chown", os.chown, "f", -1, -1)
say("lchown", os.lchown, "l", os.getuid(), -1); say("lchown", os.lchown, "broken", -1, -1)
say("fchown", os.fchown, fd, os.getuid(), -1); say("fchown", os.fchown, 99, -1, -1)
say("by name", raw, FCHOWNAT, name, b"", os.getuid(), -1, 0x1000)
say("flags", raw, FCHOWNAT, name, b"", -1, -1, 0x8000)
say("utime", os.utime, "f", ns=(1000000007, 2000000008)); look("f")
say("futimens", os.utime, fd, ns=(3000000007, 4000000008)); look("f")
say("of the link", os.utime, "l", ns=(5000000009, 6000000009), follow_symlinks=False); look("l"); look("f")
say("dir_fd", os.utime, "g", (7, 8), dir_fd=d); look("d/g")
say("now", os.utime, "f"); print(os.stat("f").st_mtime > 1e9)
say("now", os.utime, fd)
say("none", os.utime, "none")
UTIME_NOW, UTIME_OMIT = (1 << 30) - 1, (1 << 30) - 2
def times(*numbers): return (ctypes.c_long * 4)(*numbers)
say("omit", raw, UTIMENSAT, -100, b"f", times(9, 0, 0, UTIME_OMIT), 0); print(os.stat("f").st_atime)
say("range", raw, UTIMENSAT, -100, b"f", times(9, 1 << 40, 0, 0), 0)
say("bad times", raw, UTIMENSAT, -100, b"f", 1, 0)
say("bad flags", raw, UTIMENSAT, -100, b"f", None, 0x8000)
say("nothing", raw, UTIMENSAT, -100, None, None, 0)
say("empty", raw, UTIMENSAT, fd, b"", times(11, 0, 12, 0), 0x1000); look("f")
if OLD:
    say("utime", raw, 132, b"f", (ctypes.c_long * 2)(13, 14)); look("f")
    say("utimes", raw, 235, b"f", times(15, 500000, 16, 600000)); look("f")
    say("utimes", raw, 235, b"f", times(15, 1000000, 16, 0)); say("utimes", raw, 235, b"f", times(15, -1, 16, 0))
    say("futimesat", raw, 261, d, b"g", times(17, 0, 18, 0)); look("d/g")
    say("futimesat", raw, 261, fd, None, times(19, 0, 20, 0)); look("f")
r, w = os.pipe(); a, b = socket.socketpair()
for one in r, w, a.fileno(), b.fileno():
    say("no name", os.fchmod, one, 0o600); say("no name", os.utime, one, (1, 1)); say("no name", os.fchown, one, -1, -1)
gone = os.open("gone", os.O_RDWR | os.O_CREAT, 0o600); os.unlink("gone")
say("gone", os.fchmod, gone, 0o640); print(oct(os.fstat(gone).st_mode)); say("gone", os.utime, gone, (1, 2))
unnamed = os.open(".", os.O_RDWR | os.O_TMPFILE, 0o600)
say("unnamed", os.fchmod, unnamed, 0o640); print(oct(os.fstat(unnamed).st_mode))
os.chdir("d"); os.rename("../d", "../renamed"); say("moved", os.chmod, "g", 0o640); look("g")
os.unlink("g"); os.rmdir("../renamed"); say("removed", os.chmod, "g", 0o600); say("removed", os.chmod, "../f", 0o600)
"""


def test_attributes_are_changed_as_without_a_cell(tier, workspace, tmp_path):
    """The same program, bare and in the cell, one line for each call. Root without its capabilities is meant."""
    numbers = {"x86_64": (91, 268, 260, 280), "aarch64": (52, 53, 54, 88)}[os.uname().machine]
    code = "FCHMOD, FCHMODAT, FCHOWNAT, UTIMENSAT = %d, %d, %d, %d\n" % numbers + \
        f"OLD = {os.uname().machine == 'x86_64'}\n" + ATTRIBUTES
    bare = tmp_path / "bare"
    bare.mkdir()
    drop = [which("setpriv"), "--bounding-set", "-all", "--inh-caps", "-all"] if is_root() else []
    plain = subprocess.run([*drop, "/usr/bin/python3", "-c", code], cwd=bare, capture_output=True, text=True)
    assert plain.returncode == 0, plain.stderr
    inside = tier.python(code)
    assert inside.out.splitlines() == plain.stdout.splitlines(), inside.err


def test_what_is_not_granted_is_not_permitted(tier, workspace):
    ran = tier.sh("chmod 600 /usr/bin/env; chmod 700 /; touch /etc/passwd; touch -h /bin; chown $(id -u) /etc/passwd")
    assert ran.err.count("Operation not permitted") + ran.err.count("Permission denied") == 5, ran.err


# ---- Signals, as the kernel would ----

SIGNALS = """
import ctypes, errno, os, signal, struct, subprocess, sys, threading
libc = ctypes.CDLL(None, use_errno=True)
def say(name, function, *arguments):
    try: answer = function(*arguments)
    except OSError as error: answer = errno.errorcode[error.errno]
    print(name, answer)
def raw(number, *arguments):
    if libc.syscall(number, *arguments) < 0: raise OSError(ctypes.get_errno(), "call")
def sleeper(**keywords): return subprocess.Popen(["sleep", "1000"], **keywords)
r, w = os.pipe()
os.set_blocking(w, False)
signal.set_wakeup_fd(w)
signal.signal(signal.SIGUSR1, lambda *_: None)
def hit(name, function, *arguments):
    say(name, function, *arguments)
    print(name, os.read(r, 9))
hit("self", os.kill, os.getpid(), signal.SIGUSR1)
hit("raise", signal.raise_signal, signal.SIGUSR1)
hit("own group", os.kill, 0, signal.SIGUSR1)
hit("own group by number", os.killpg, os.getpgrp(), signal.SIGUSR1)
hit("tgkill", raw, TGKILL, os.getpid(), os.getpid(), signal.SIGUSR1)
hit("tkill", raw, TKILL, os.getpid(), signal.SIGUSR1)
hit("pidfd", signal.pidfd_send_signal, os.pidfd_open(os.getpid()), signal.SIGUSR1)
over = threading.Event(); thread = threading.Thread(target=over.wait); thread.start()
hit("thread", signal.pthread_kill, thread.ident, signal.SIGUSR1)
hit("thread by number", raw, TKILL, thread.native_id, signal.SIGUSR1)
hit("process by thread", os.kill, thread.native_id, signal.SIGUSR1)
over.set(); thread.join()
child = sleeper(); say("child", os.kill, child.pid, 0); say("child", os.kill, child.pid, 15); print(child.wait())
say("reaped", os.kill, child.pid, 0)
child = sleeper(); say("child", raw, TGKILL, child.pid, child.pid, 9); print(child.wait())
child = sleeper(); say("child", raw, TKILL, child.pid, 9); print(child.wait())
child = sleeper(); fd = os.pidfd_open(child.pid); say("child", signal.pidfd_send_signal, fd, 9); print(child.wait())
say("reaped", signal.pidfd_send_signal, fd, 0); say("no pidfd", signal.pidfd_send_signal, r, 0)
say("no descriptor", raw, PIDFD, 99, 0, None, 0); say("flags", raw, PIDFD, fd, 0, None, 1 << 20)
child = sleeper(); say("stop", os.kill, child.pid, signal.SIGSTOP)
print(os.waitpid(child.pid, os.WUNTRACED)[1] == signal.SIGSTOP << 8 | 0x7f)
say("continue", os.kill, child.pid, signal.SIGCONT); child.kill(); print(child.wait())
script = ("import signal, subprocess; p = [subprocess.Popen(['sleep', '1000']) for _ in range(5)]; "
          "print(1, flush=True); signal.pause()")
group = subprocess.Popen([sys.executable, "-c", script], start_new_session=True, stdout=subprocess.PIPE)
group.stdout.read(2); say("group", os.killpg, group.pid, 9); print(group.wait()); group.stdout.read()
say("no group", os.killpg, 4194304, 0)
value = ("import signal; signal.pthread_sigmask(signal.SIG_BLOCK, [34]); print(1, flush=True); "
         "print(signal.sigwaitinfo([34]).si_code)")
child = subprocess.Popen([sys.executable, "-c", value], stdout=subprocess.PIPE)
def info(number, code): return ctypes.create_string_buffer(struct.pack("iii", number, 0, code), 128)
child.stdout.read(2); say("queue", raw, SIGQUEUE, child.pid, 34, info(34, -1)); print(child.stdout.read())
kernel = info(15, 0)
child = sleeper(); say("as the kernel", raw, SIGQUEUE, child.pid, 15, kernel); child.kill(); print(child.wait())
say("as the kernel, to itself", raw, SIGQUEUE, os.getpid(), 0, kernel)
for number in -1, 65, 1000: say("bad number", os.kill, os.getpid(), number)
child = sleeper(); say("bad number", os.kill, child.pid, 65); child.kill(); child.wait()
for pid in -(1 << 31), 4194304, 2147483647: say("nobody", os.kill, pid, 0)
for pid, tid in (-1, 1), (os.getpid(), 0): say("bad thread", raw, TGKILL, pid, tid, 0)
say("bad thread", raw, TKILL, 0, 0)
outside = os.getppid()
say("outside", os.kill, outside, 0); say("outside", os.kill, 1, 0); say("outside", raw, TGKILL, outside, outside, 0)
say("outside", signal.pidfd_send_signal, os.pidfd_open(outside), 0); say("outside", os.killpg, os.getpgid(outside), 0)
children = [sleeper() for _ in range(3)]
signal.signal(signal.SIGTERM, lambda *_: print("not the caller"))
say("everybody", os.kill, -1, 15); print([one.wait() for one in children])
"""


def test_signals_go_where_they_would_without_the_supervisor(tier):
    """One run in which the kernel keeps them inside, one in which the supervisor sends them."""
    numbers = {"x86_64": (234, 200, 424, 129), "aarch64": (131, 130, 424, 138)}[os.uname().machine]
    code = "TGKILL, TKILL, PIDFD, SIGQUEUE = %d, %d, %d, %d\n" % numbers + SIGNALS
    kernel, supervisor = tier.python(code, timeout=30), tier.python(code, abi=5, timeout=30)
    assert kernel.status == 0, kernel.err
    assert supervisor.out.splitlines() == kernel.out.splitlines(), supervisor.err


@pytest.mark.parametrize("abi", [5, None], ids=["before scopes", "scopes"])
def test_job_control_of_a_shell(tier, abi):
    script = """set -m
        sleep 1000 & kill -STOP %1; jobs; kill %1; kill -CONT %1; wait %1; echo $?
        (trap 'echo caught; exit 3' USR1; kill -USR1 $BASHPID; echo missed); echo $?
        timeout -s KILL 0.1 sleep 1000; echo $?
        timeout 0.1 sh -c 'sleep 1000 | sleep 1000'; echo $?"""
    ran = tier.run("bash", "-c", script, abi=abi, timeout=30)
    lines = [line for line in ran.out.splitlines() if "sleep" not in line]
    assert lines == ["143", "caught", "3", "137", "124"], ran.out + ran.err


# ---- Ordinary programs ----

def test_python(tier):
    code = """
import multiprocessing, os, shutil, subprocess, tempfile, threading
def child(end): end.send(os.getpid())
print(subprocess.run(["sh", "-c", "echo from a child | tr a-z A-Z"], capture_output=True, text=True).stdout.strip())
results = []
threads = [threading.Thread(target=results.append, args=(i,)) for i in range(20)]
for one in threads: one.start()
for one in threads: one.join()
print(sorted(results) == list(range(20)))
ours, theirs = multiprocessing.Pipe()
process = multiprocessing.Process(target=child, args=(theirs,))
process.start(); print(ours.recv() == process.pid); process.join()
with tempfile.TemporaryDirectory() as place:
    shutil.copytree(os.path.dirname(shutil.__file__) + "/json", place + "/json")
    print("decoder.py" in os.listdir(place + "/json"))
with tempfile.NamedTemporaryFile() as file:
    file.write(b"x"); file.flush(); shutil.copy2(file.name, "copy"); print(os.path.getsize("copy"))
"""
    ran = tier.python(code)
    assert ran.out.splitlines() == ["FROM A CHILD", "True", "True", "True", "1"], ran.err


def test_git(tier, workspace):
    script = """set -e
        git init -q repo; cd repo; git config user.email a@example.org; git config user.name A
        echo one > f; git add f; git commit -qm one; git checkout -qb side; git mv f g; git commit -qm two
        git checkout -q -; git merge -q side; git log --oneline | wc -l; ls; git gc -q; git status --short
        git clone -q . ../copy; ls ../copy"""
    ran = tier.sh(script)
    assert ran.out.split() == ["2", "g", "g"], ran.err


def test_gcc_and_make(tier, workspace):
    (workspace / "hello.c").write_text('#include <stdio.h>\nint main(void) { puts("hello"); return 0; }\n')
    (workspace / "Makefile").write_text("hello: hello.o\n\t$(CC) -o $@ $<\n%.o: %.c\n\t$(CC) -c -o $@ $<\n")
    which("gcc")
    ran = tier.sh("make -s -j2 && ./hello && touch -d '1 hour ago' hello.o && make -q hello.c && echo ok")
    assert ran.out == "hello\nok\n", ran.err


def test_node(tier):
    which("node")
    code = """
const fs = require("fs"), {Worker} = require("worker_threads"), {execSync} = require("child_process");
fs.mkdirSync("a/b", {recursive: true}); fs.writeFileSync("a/b/f", "x"); fs.chmodSync("a/b/f", 0o600);
fs.utimesSync("a/b/f", 1, 2); fs.renameSync("a", "c"); fs.cpSync("c", "d", {recursive: true, preserveTimestamps: true});
console.log((fs.statSync("d/b/f").mode & 0o777).toString(8), fs.statSync("d/b/f").mtimeMs, execSync("echo child") + "");
new Worker("console.log('worker')", {eval: true});
"""
    ran = tier.run("node", "-e", code)
    assert ran.out.split() == ["600", "2000", "child", "worker"], ran.err


def test_tar_keeps_modes_and_times(tier, workspace):
    script = """set -e
        mkdir -p t/in; echo y > t/in/f; ln -s f t/in/l; chmod 640 t/in/f; touch -d @1000000000 t/in/f; chmod 710 t/in
        touch -d @1000000001 t/in; tar -cf t.tar t; rm -r t; tar -xpf t.tar; stat -c '%a %Y' t/in/f t/in
        cp -a t u; stat -c '%a %Y' u/in/f u/in; readlink u/in/l; install -m 711 t/in/f i; stat -c %a i"""
    ran = tier.sh(script)
    assert ran.out.splitlines() == ["640 1000000000", "710 1000000001"] * 2 + ["f", "711"], ran.err


def make_wheel(directory):
    name = directory / "greet-1.0-py3-none-any.whl"
    with zipfile.ZipFile(name, "w") as wheel:
        wheel.writestr("greet.py", "def main(): print('hello from a wheel')\n")
        wheel.writestr("greet-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: greet\nVersion: 1.0\n")
        wheel.writestr("greet-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("greet-1.0.dist-info/entry_points.txt", "[console_scripts]\ngreet = greet:main\n")
        wheel.writestr("greet-1.0.dist-info/RECORD", "")
    return name


@pytest.mark.slow
def test_pip_installs_into_a_virtual_environment(tier, workspace):
    make_wheel(workspace)
    ran = tier.sh("/usr/bin/python3 -m venv v && v/bin/pip install -q --no-index --disable-pip-version-check *.whl && "
                  "v/bin/greet", timeout=120)
    assert ran.out == "hello from a wheel\n", ran.err


def test_other_daily_programs(tier):
    script = """set -e
        seq 1000 | sort -rn | head -1; seq 3 | xargs -P 3 -n 1 true
        echo b > b; sed -i s/b/c/ b; cat b; gzip b; zcat b.gz
        mktemp -d > m; test -d "$(cat m)"; find . -name m -newer b.gz; diff m m; df . > /dev/null; id -u > /dev/null
        printf 'a\\n' | tee x > /dev/null; perl -e 'utime 1, 2, "x"; print -M "x" > 0 ? "old\\n" : "new\\n"'
        python3 -c 'import sqlite3; d = sqlite3.connect("db"); d.execute("create table t (x)"); d.commit()'; ls db"""
    ran = tier.sh(script)
    assert ran.out.split() == ["1000", "c", "c", "./m", "old", "db"], ran.err


def test_the_end_is_told_as_in_the_other_tier(tier):
    assert tier.sh("exit 7").status == 7
    assert tier.sh("kill -SEGV $$").status == 139
    assert tier.run("/nonexistent").status == 127
    assert tier.sh("sleep 1000", flags=["--timeout", "100ms"]).status == 124
    assert tier.run("cat", input=b"through").out == "through"
    result = tier.sh("echo out; echo err >&2; exit 3", flags=["--json"]).json
    assert (result["end"], result["exit_code"], result["stdout"], result["stderr"]) == ("exited", 3, "out\n", "err\n")
