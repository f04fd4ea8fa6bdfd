"""Tier landlock, processes: those of the host are in sight and have the same id, and no pid namespace ends those of the
cell. On kernels whose Landlock keeps no signals inside (before ABI 6) the supervisor sends them."""

import os
import random
import select
import signal
import subprocess
import time
import uuid

import pytest

from attacks import PRELUDE, Attack, outside_helper, prove, start
from conftest import HOOKED, PROGRAM, is_root, needs_root, which
from leftovers import Leftovers, processes
from test_attack_processes import DAEMON, ends, pulse  # noqa: F401
from test_attack_secrets import SECRETS
from tier import FLAGS, Tier

BEFORE_SCOPES = 5


@pytest.fixture
def tier(workspace, home, tmp_path):
    tmp = tmp_path / "tmp"
    tmp.mkdir()
    yield Tier(workspace, home, tmp)
    assert list(tmp.iterdir()) == []


@pytest.fixture
def other():
    """An unrelated process of the same user."""
    process = subprocess.Popen(["sleep", "1000"])
    yield process
    process.kill()
    process.wait()


WHO = PRELUDE + """
import resource, signal
def parent(pid):
    return int(open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[1])
warden = os.getppid()
supervisor = parent(warden)
other = %d
room = ctypes.create_string_buffer(16)
local = (ctypes.c_ulong * 2)(ctypes.addressof(room), 16)
def mapped(pid):
    try: address = int(open(f"/proc/{pid}/maps").read().split("-")[0], 16)
    except OSError: address = 4096
    return (ctypes.c_ulong * 2)(address, 16)
"""

# ---- Looking into others ----

LOOKING = {
    "environment": ('open(f"/proc/{pid}/environ").read()', {"landlock": "EACCES"}),
    "root": ('os.listdir(f"/proc/{pid}/root/")', {"landlock": "EACCES"}),
    "secret through its root": ('open(f"/proc/{pid}/root/etc/passwd")', {"landlock": "EACCES"}),
    "directory": ('os.listdir(f"/proc/{pid}/cwd/")', {"landlock": "EACCES"}),
    "program": ('os.readlink(f"/proc/{pid}/exe")', {"landlock": "EACCES"}),
    "what a descriptor is": ('os.readlink(f"/proc/{pid}/fd/0")', {"landlock": "EACCES"}),
    "a descriptor": ('os.open(f"/proc/{pid}/fd/0", os.O_PATH)', {"landlock": "EACCES"}),
    "memory": ('os.open(f"/proc/{pid}/mem", os.O_RDONLY)', {"landlock": "EACCES"}),
    "map": ('open(f"/proc/{pid}/maps").read()', {"landlock": "EACCES"}),
    "trace": ('call("ptrace", 0x4206, pid, 0, 0)', {"seccomp": "EPERM", "landlock": "EPERM"}),
    "process_vm_readv": ('call("process_vm_readv", pid, local, 1, mapped(pid), 1, 0)',
                         {"seccomp": "EPERM", "landlock": "EPERM"}),
    "pidfd_getfd": ('call("syscall", 438, os.pidfd_open(pid), 0, 0)', {"seccomp": "EPERM", "landlock": "EPERM"}),
}


@pytest.mark.parametrize("who", ["supervisor", "other"])
@pytest.mark.parametrize("way", LOOKING)
def test_nobody_is_looked_into(tier, other, way, who):
    code, refused_by = LOOKING[way]
    code = WHO % other.pid + f"pid = {who}\nattempt(lambda: {code})"
    if not is_root():
        prove(tier, Attack(way, code, refused_by), {})
        return
    # Root is kept from who has more capabilities, too.
    assert tier.python(code, off=["landlock", "seccomp", "capabilities"]).out == "worked\n"
    for off in [], ["landlock"], ["seccomp"], ["landlock", "seccomp"]:
        assert tier.python(code, off=off).out.strip() in {"EACCES", "EPERM"}, off


@pytest.mark.parametrize("way", LOOKING)
def test_the_warden_is_not_looked_into(tier, other, way):
    """Untraceable too: one layer more."""
    code = WHO % other.pid + f"pid = warden\nattempt(lambda: {LOOKING[way][0]})"
    for off in [], ["landlock"], ["seccomp"], ["landlock", "seccomp"]:
        assert tier.python(code, off=off).out.strip() in {"EACCES", "EPERM"}, off


# ---- Signals ----

# Each sends SIGTERM to `pid`, if it can.
SIGNALS = {
    "kill": "os.kill(pid, 15)",
    "group": "os.killpg(os.getpgid(pid), 15)",
    "tgkill": 'call("tgkill", pid, pid, 15)',
    "tkill": f'call("syscall", {200 if os.uname().machine == "x86_64" else 130}, pid, 15)',
    "sigqueue": 'call("sigqueue", pid, 15, None)',
    "descriptor": "signal.pidfd_send_signal(os.pidfd_open(pid), 15)",
}
# A socket that is told to signal somebody when something arrives. Not always refused, but nothing comes of it.
ARRIVING = """
r, w = [end.detach() for end in socket.socketpair()]
fcntl.fcntl(r, fcntl.F_SETSIG, 15)
{own}
fcntl.fcntl(r, fcntl.F_SETFL, os.O_ASYNC)
os.write(w, b"x")
"""
OWNING = {
    "fcntl": "fcntl.fcntl(r, fcntl.F_SETOWN, pid)",
    "fcntl, a group": "fcntl.fcntl(r, fcntl.F_SETOWN, -os.getpgid(pid))",
    "fcntl, extended": "fcntl.fcntl(r, 15, struct.pack('ii', 1, pid))",
    "ioctl": "fcntl.ioctl(r, 0x8901, struct.pack('i', pid))",
    "ioctl, another": "fcntl.ioctl(r, 0x8902, struct.pack('i', pid))",
}


def is_alive(process):
    """A signal that was sent has an effect at once, or none."""
    try:
        process.wait(timeout=0.1)
    except subprocess.TimeoutExpired:
        return True
    return False


@pytest.fixture
def victims():
    started = []

    def one():
        # In a group of its own, so that nobody else is hit.
        started.append(subprocess.Popen(["sleep", "1000"], start_new_session=True))
        return started[-1]

    yield one
    for process in started:
        process.kill()
        process.wait()


@pytest.mark.parametrize("abi", [BEFORE_SCOPES, None], ids=["before scopes", "scopes"])
@pytest.mark.parametrize("way", SIGNALS)
def test_nobody_outside_is_signalled(tier, victims, way, abi):
    layer = "seccomp" if abi else "landlock"
    code = WHO + f"pid = other\nattempt(lambda: {SIGNALS[way]})"
    hit = victims()
    assert tier.python(code % hit.pid, abi=abi, off=[layer]).out == "worked\n"
    assert hit.wait(timeout=30) == -15
    spared = victims()
    assert tier.python(code % spared.pid, abi=abi).out == "EPERM\n"
    assert is_alive(spared)


@pytest.mark.parametrize("abi", [BEFORE_SCOPES, None], ids=["before scopes", "scopes"])
@pytest.mark.parametrize("way", OWNING)
def test_nobody_outside_is_signalled_by_what_arrives(tier, victims, way, abi):
    code = WHO + "pid = other\n" + ARRIVING.replace("{own}", OWNING[way])
    hit = victims()
    tier.python(code % hit.pid, abi=abi, off=["landlock", "seccomp"])
    assert hit.wait(timeout=30) == -15
    spared = victims()
    tier.python(code % spared.pid, abi=abi)
    assert is_alive(spared)


@pytest.mark.parametrize("abi", [BEFORE_SCOPES, None], ids=["before scopes", "scopes"])
@pytest.mark.parametrize("who", ["warden", "supervisor"])
@pytest.mark.parametrize("way", [way for way in SIGNALS if way != "group"])
@pytest.mark.parametrize("number", ["0", "15", "9", "19", "17"])
def test_neither_warden_nor_supervisor_is_signalled(tier, way, who, number, abi):
    code = WHO % 0 + f"pid = {who}\nattempt(lambda: {SIGNALS[way].replace('15', number)})\nsys.exit(7)"
    ran = tier.python(code, abi=abi, timeout=30)
    assert ran.status == 7 and ran.out == "EPERM\n"


@pytest.mark.parametrize("abi", [BEFORE_SCOPES, None], ids=["before scopes", "scopes"])
def test_a_signal_to_everybody_stays_inside(tier, abi):
    """One that is ignored by whoever did not ask for it; the process outside did ask, as did the one inside."""
    asks = "import signal, sys, os\nsignal.signal(signal.SIGURG, lambda *_: os.write(1, b'hit'))\n" \
           "os.write(1, b'up')\nwhile True: signal.pause()"
    outside = subprocess.Popen(["/usr/bin/python3", "-c", asks], stdout=subprocess.PIPE)
    assert outside.stdout.read(2) == b"up"
    code = f"import os, signal, subprocess\np = subprocess.Popen(['/usr/bin/python3', '-c', {asks!r}], " \
           "stdout=subprocess.PIPE)\np.stdout.read(2)\nos.kill(-1, signal.SIGURG)\nprint(p.stdout.read(3))"
    try:
        assert tier.python(code, abi=abi, timeout=30).out == "b'hit'\n"
        assert not select.select([outside.stdout], [], [], 0.1)[0]
    finally:
        outside.kill()
        outside.communicate()


@pytest.mark.parametrize("abi", [BEFORE_SCOPES, None], ids=["before scopes", "scopes"])
@pytest.mark.parametrize("target", ["0", "-1", "-os.getpgid(supervisor)", "-os.getpgrp()"])
def test_the_shell_around_it_is_still_there(tier, target, abi):
    code = WHO % 0 + f"signal.signal(15, signal.SIG_IGN)\ntry: os.kill({target}, 15)\nexcept OSError: pass\n"
    ran = subprocess.run(["setsid", "-w", "sh", "-c", '"$@"; echo "still here"', "sh", HOOKED, "run", *FLAGS, "--",
                          "/usr/bin/python3", "-c", code], cwd=tier.workspace, capture_output=True, text=True,
                         env={**tier.environment, "CELLBLOCK_TEST_LANDLOCK_ABI": str(abi or 99)}, timeout=30)
    assert "still here" in ran.stdout, ran.stderr


def test_numbers_that_change_hands(tier, other):
    """Children come and go while they are signalled: each signal reaches the one that was meant, or nobody."""
    code = WHO % other.pid + """
import subprocess, threading
over = False
def churn():
    while not over:
        subprocess.run(["true"])
thread = threading.Thread(target=churn)
thread.start()
for _ in range(60):
    p = subprocess.Popen(["sleep", "1000"])
    os.kill(p.pid, 9)
    assert p.wait() == -9
    try: os.kill(p.pid, 9)
    except ProcessLookupError: pass
    try: os.kill(other, 9)
    except PermissionError: pass
    else: print("reached")
over = True
thread.join()
print("done")
"""
    assert tier.python(code, abi=BEFORE_SCOPES).out == "done\n"
    assert other.poll() is None


# ---- Priorities and limits of others ----

SETTING = {
    "limits": "resource.prlimit(pid, resource.RLIMIT_NOFILE, (100, 100))",
    "priority": "os.setpriority(os.PRIO_PROCESS, pid, 19)",
    "disk priority": f'call("syscall", {251 if os.uname().machine == "x86_64" else 30}, 1, pid, 2 << 13 | 7)',
    "affinity": "os.sched_setaffinity(pid, [0])",
    "scheduler": "os.sched_setscheduler(pid, os.SCHED_BATCH, os.sched_param(0))",
    "parameters": "os.sched_setparam(pid, os.sched_param(0))",
}


@pytest.mark.parametrize("way", SETTING)
def test_nobody_else_is_slowed_or_limited(tier, other, way):
    # Root is kept from who has more capabilities, too, but for its limits.
    also = ["capabilities"] if is_root() else []
    code = WHO % other.pid + f"pid = other\nattempt(lambda: {SETTING[way]})"
    assert tier.python(code, off=["seccomp", *also]).out == "worked\n"
    assert tier.python(code, off=also).out == "EPERM\n" and tier.python(code).out == "EPERM\n"
    for who in "warden", "supervisor":
        assert tier.python(WHO % 0 + f"pid = {who}\nattempt(lambda: {SETTING[way]})").out == "EPERM\n"
    own = tier.python(WHO % 0 + f"pid = 0\nattempt(lambda: {SETTING[way]})")
    assert own.out == "worked\n", own.err


@pytest.mark.parametrize("who", ["0", "os.getuid()"])
def test_the_whole_user_is_not_slowed(tier, who):
    assert tier.python(PRELUDE + f"attempt(os.setpriority, os.PRIO_USER, {who}, 19)").out == "EPERM\n"


# ---- Privileges, hand-over ----

@needs_root
def test_a_set_user_id_program_gains_nothing(tier, outside):
    copy = outside / "id"
    subprocess.run(["cp", which("id"), copy], check=True)
    os.chown(copy, 1001, 1001)
    copy.chmod(0o4755)
    run = ["--read", str(outside)]
    # Without it the kernel takes neither rules nor filters.
    assert tier.run(str(copy), "-u", flags=run, off=["privileges", "landlock", "seccomp", "guard"]).out == "1001\n"
    assert tier.run(str(copy), "-u", flags=run).out == "0\n"


def test_no_capability_is_left(tier):
    code = "print([l.split()[1] for l in open('/proc/self/status') if l.startswith(('CapEff', 'CapPrm', 'CapInh', "\
           "'CapAmb'))], [l.split()[1] for l in open('/proc/self/status') if l.startswith(('NoNewPrivs', 'Seccomp:'))])"
    assert tier.python(code).out == f"{['0' * 16] * 4} ['1', '2']\n"
    if is_root():
        assert "0" * 16 not in tier.python(code, off=["capabilities"]).out.split("CapPrm")[0].split(",")[1]


def test_the_environment_holds_no_secrets(tier):
    assert "SECRET" not in tier.run("env", env=SECRETS).out
    assert "SECRET1" in tier.run("env", env=SECRETS, off=["environment"]).out
    code = "import glob\nfor p in glob.glob('/proc/[0-9]*/environ'):\n" \
           "  try: print(open(p, 'rb').read())\n  except OSError: pass"
    assert "SECRET" not in tier.python(code, env=SECRETS).out
    assert "SECRET" in tier.python(code, env=SECRETS, off=["landlock", "capabilities"]).out


def test_no_descriptor_comes_along(tier, outside):
    (outside / "secret").write_text("SECRET\n")
    code = "import os\nfor n in range(3, 50):\n  try: print(os.readlink(f'/proc/self/fd/{n}'))\n  except OSError: pass"
    with open(outside / "secret") as file:
        for off, expected in ([], False), (["descriptors"], True):
            ran = tier.python(code, off=off, pass_fds=[file.fileno()])
            assert (str(outside) in ran.out) is expected


# ---- Outliving the run ----

def test_a_daemon_ends_with_the_run(tier, pulse):  # noqa: F811
    reader, writer = pulse
    ran = tier.python(DAEMON.format(also="", then='print("over", flush=True)'), stdout=writer)
    os.close(writer)
    assert ran.status == 0 and ends(reader)


DAEMONS = {
    "many": "for _ in range(30):\n  if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0: signal.pause()\n"
            "    os._exit(0)",
    "from a thread": "import threading\ndef run():\n  if os.fork() == 0: signal.pause()\n"
                     "t = threading.Thread(target=run); t.start(); t.join()",
    "a chain": "for _ in range(40):\n  if os.fork() != 0: signal.pause()",
    "under a reaper of its own": "import ctypes\nctypes.CDLL(None).prctl(36, 1, 0, 0, 0)\nif os.fork() == 0:\n"
                                 "  if os.fork() == 0: os.setsid(); signal.pause()\n  os._exit(0)",
    "that keep forking": "for _ in range(3):\n  if os.fork() == 0:\n    os.setsid()\n    while True:\n"
                         "      if os.fork() != 0: os._exit(0)",
    "stopped": "if os.fork() == 0: os.kill(os.getpid(), signal.SIGSTOP)",
}


@pytest.mark.parametrize("kind", DAEMONS)
def test_daemons_of_every_kind_end_with_the_run(tier, kind):
    mark = str(uuid.uuid4())
    code = f"import os, signal, sys\nif os.fork() == 0:\n" + \
        "".join(f"  {line}\n" for line in DAEMONS[kind].splitlines()) + "  signal.pause()\n" \
        "import time\nprint('over', flush=True)"
    ran = tier.python(code, flags=["--env", f"MARK={mark}"], timeout=30)
    assert ran.out == "over\n" and processes(mark) == {}


# Processes that live for an instant and are somewhere else by the time one looks. They give up after some seconds.
MOVING = """
import os, sys, time
end = time.monotonic() + 20
for _ in range(10):
    if os.fork() == 0:
        while time.monotonic() < end:
            if os.fork() > 0: os._exit(0)
            os.setsid()
        os._exit(1)
print("over", flush=True)
"""


@pytest.mark.parametrize("abi", [BEFORE_SCOPES, None], ids=["before scopes", "scopes"])
def test_processes_that_keep_moving_end_with_the_run(tier, other, abi):
    """With scopes the kernel ends them all in one step, and nobody else of the same user."""
    mark = str(uuid.uuid4())
    ran = tier.python(MOVING, flags=["--env", f"MARK={mark}"], abi=abi, timeout=60)
    assert ran.out == "over\n" and processes(mark) == {}
    assert other.poll() is None


@pytest.mark.parametrize("call", ["pidfd_open", "pidfd_send_signal"])
@pytest.mark.parametrize("error", ["ENOSYS", "EPERM"])
def test_daemons_end_where_processes_have_no_descriptors(tier, call, error):
    """An outer filter that knows nothing of them."""
    mark = str(uuid.uuid4())
    code = "for i in 1 2 3; do (setsid sleep 1000 & setsid sh -c 'sleep 1000; true' &); done; echo over"
    ran = subprocess.run([outside_helper("deny_syscall"), call, error, "--", PROGRAM, "run", *FLAGS, "--env",
                          f"MARK={mark}", "--", "sh", "-c", code], cwd=tier.workspace, env=tier.environment,
                         capture_output=True, text=True, timeout=30)
    assert ran.stdout == "over\n" and processes(mark) == {}, ran.stderr


def test_the_warden_is_not_the_first_to_go(tier):
    """When memory runs out, the kernel takes the program: the warden still has to end the rest."""
    code = "import os\nprint([int(open(f'/proc/{p}/oom_score_adj').read()) for p in (os.getpid(), os.getppid())])"
    program, warden = eval(tier.python(code).out)
    assert program == 1000 and warden == int(open("/proc/self/oom_score_adj").read())


def test_time_is_up_for_who_ignores_it(tier):
    mark = str(uuid.uuid4())
    code = DAEMON.format(also="", then="print('up', flush=True)\nwhile True: time.sleep(1000)")
    ran = tier.python(code, flags=["--timeout", "300ms", "--json", "--env", f"MARK={mark}"], timeout=30)
    assert ran.json["end"] == "timeout" and ran.json["stdout"] == "up\n" and ran.status == 124
    assert processes(mark) == {}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=str)
def test_a_cancelled_run_leaves_nobody(tier, number):
    mark = str(uuid.uuid4())
    code = DAEMON.format(also="", then="signal.signal(signal.SIGTERM, signal.SIG_DFL)\n"
                         "signal.signal(signal.SIGHUP, signal.SIG_DFL)\nprint('up', flush=True)\nsignal.pause()")
    process = start(tier, *FLAGS, "--env", f"MARK={mark}", "--", "/usr/bin/python3", "-c", code)
    assert process.stdout.readline() == b"up\n", process.stderr.read()
    process.send_signal(number)
    process.communicate(timeout=30)
    assert processes(mark) == {}


def test_killing_the_supervisor_at_any_moment_leaves_nothing(tier, workspace, tmp_path):
    """From before the first process exists to long after the program has started its daemons."""
    mark = str(uuid.uuid4())
    before = Leftovers(tier.tmp)
    code = "mkdir -p $TMPDIR/a/b; touch $TMPDIR/a/f; setsid sleep 1000 & (setsid sleep 1000 &) ; sleep 1000"
    chance = random.Random(4)
    pids = []
    for _ in range(60):
        process = start(tier, *FLAGS, "--env", f"MARK={mark}", "--", "sh", "-c", code)
        try:
            process.wait(timeout=chance.uniform(0, 0.06))
        except subprocess.TimeoutExpired:
            process.kill()
        process.communicate()
        pids.append(process.pid)
    deadline = time.monotonic() + 20
    while processes(mark) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert processes(mark) == {} and before.found(pids) == {}


FORK_BOMB = ("import os, signal\nn = 0\ntry:\n  while n < 500:\n    if os.fork() == 0: signal.pause()\n    n += 1\n"
             "except OSError: pass\nprint(n)")


def test_a_fork_bomb_is_held(tier):
    mark = str(uuid.uuid4())
    ran = tier.python(FORK_BOMB, flags=["--procs", "20", "--json", "--env", f"MARK={mark}"], timeout=30)
    assert ran.json["end"] == "processes" or int(ran.json["stdout"]) <= 20, ran.json
    assert processes(mark) == {}
    assert tier.python(FORK_BOMB, flags=["--procs", "20"], off=["limits"], timeout=30).out == "500\n"


# ---- The private directory ----

def test_it_is_private_and_empty(tier):
    code = "import os, stat\nfor n in 'TMPDIR', 'HOME':\n  p = os.environ[n]\n" \
           "  print(oct(os.stat(p).st_mode & 0o777), os.listdir(p), oct(os.stat(os.path.dirname(p)).st_mode & 0o777))"
    assert tier.python(code).out == "0o700 [] 0o700\n" * 2


def test_another_cell_does_not_get_into_it(tier):
    first = start(tier, *FLAGS, "--", "sh", "-c", "echo secret > $TMPDIR/f; echo $TMPDIR; read x")
    path = first.stdout.readline().decode().strip()
    try:
        for code in f'attempt(open, "{path}/f")', f'attempt(os.listdir, "{path}")', f'attempt(write, "{path}/f")':
            prove(tier, Attack("neighbour", code, {"landlock": "EACCES"}), {})
        assert tier.python(PRELUDE + f'attempt(os.chmod, "{path}", 0o777)').out == "EPERM\n"
    finally:
        first.communicate(b"\n", timeout=30)


MESSES = {
    "deep": "os.chdir(os.environ['TMPDIR'])\nfor i in range(5000):\n  os.mkdir('d'); os.chdir('d')",
    "deep and narrow names": "os.chdir(os.environ['HOME'])\nfor i in range(300):\n"
                             "  os.mkdir('n' * 255); os.chdir('n' * 255)",
    "closed": "os.chdir(os.environ['TMPDIR'])\nfor i in range(20):\n  os.makedirs('a/b/c', exist_ok=True)\n"
              "  open('a/b/c/f', 'w').close(); os.chmod('a/b/c/f', 0); os.chmod('a/b/c', 0); os.chmod('a/b', 0)\n"
              "  os.chmod('a', 0); os.rename('a', f'closed{i}')",
    "many": "for i in range(10000): open(os.environ['TMPDIR'] + f'/{i}', 'w').close()",
    "odd": "os.chdir(os.environ['TMPDIR'])\nos.mkfifo('fifo'); open('new\\nline', 'w')\n"
           "open('~0123456789abcdef', 'w')\n"
           "os.mkdir('\\\\'); open(b'\\xff\\xfe', 'w'); os.link('new\\nline', 'twice'); os.mkdir(' ')",
    "links": "os.chdir(os.environ['TMPDIR'])\nos.symlink('{outside}', 'directory')\nos.symlink('{outside}/f', 'file')\n"
             "os.mkdir('in'); os.symlink('{outside}', 'in/directory'); os.symlink('../..', 'in/up')",
    "in place of its parts": "d = os.path.dirname(os.environ['TMPDIR'])\nos.chdir(d)\nfor n in os.listdir('.'):\n"
                             "  os.rmdir(n); os.symlink('{outside}', n)",
    "closed itself": "d = os.path.dirname(os.environ['TMPDIR'])\nos.mkdir(d + '/x'); os.chmod(d, 0)",
}


@pytest.mark.parametrize("mess", MESSES)
@pytest.mark.parametrize("killed", [False, True], ids=["ended", "killed"])
def test_it_is_removed_whatever_is_in_it(tier, outside, mess, killed):
    (outside / "f").write_text("survives\n")
    (outside / "f").chmod(0o640)
    outside.chmod(0o750)
    code = MESSES[mess].replace("{outside}", str(outside))
    code = f"import os, sys\n{code}\nprint('made', flush=True)\n"
    if killed:
        process = start(tier, *FLAGS, "--", "/usr/bin/python3", "-c", code + "sys.stdin.readline()")
        assert process.stdout.readline() == b"made\n", process.stderr.read()
        process.kill()
        process.communicate()
        deadline = time.monotonic() + 60
        while list(tier.tmp.iterdir()) and time.monotonic() < deadline:
            time.sleep(0.01)
    else:
        ran = tier.python(code)
        assert ran.out == "made\n", ran.err
    assert list(tier.tmp.iterdir()) == []
    assert (outside / "f").read_text() == "survives\n" and (outside / "f").stat().st_mode & 0o777 == 0o640
    assert outside.stat().st_mode & 0o777 == 0o750
