"""Ways around the limits over all processes of a cell: to be overlooked, to keep the supervisor busy, to be too quick.

Most of it is about the supervisor's own watch, so the cgroup is off (root; an ordinary user has none). Each attack is
first shown to come to its end under a limit that is large enough."""

import os
import signal
import time

import pytest

from attacks import PRELUDE, start
from conftest import HOOKED, needs_root
from leftovers import cgroups
from tier import FLAGS, Tier

NO_CGROUP = ["cgroup"]
TIERS = {"namespaces": [], "landlock": [*FLAGS, "--accept-weaker", "namespaces"]}

STAY = "\nwhile True: time.sleep(1)"

# ---- A process without a main thread ----

# Its main thread is over: the kernel shows it as a zombie that has nothing, while another thread goes on.
HEADLESS = """
import ctypes, mmap, os, sys, threading, time
def go_on():
    while open('/proc/self/stat').read().rsplit(')', 1)[1].split()[0] != 'Z': time.sleep(0.001)
    attack()
    print('over', flush=True)
    stay()
    os._exit(0)
def attack():
%s
def stay():
    %s
threading.Thread(target=go_on).start()
ctypes.CDLL(None).pthread_exit(None)
"""

HEADLESS_ATTACKS = {
    # Shared with nobody: private memory has a limit of its own, which the kernel keeps for each process.
    "memory": (["--memory", "100M"], ["--memory", "2G"],
               "    global kept\n    kept = mmap.mmap(-1, 300 << 20)\n"
               "    for at in range(0, len(kept), 4096): kept[at] = 1"),
    "disk": (["--disk", "30M"], ["--disk", "1G"],
             "    with open('f', 'wb', buffering=0) as file:\n        for _ in range(100): file.write(bytes(1 << 20))"),
    "cpu_time": (["--cpu-time", "500ms"], ["--cpu-time", "1h"],
                 "    until = time.thread_time() + 1.5\n    while time.thread_time() < until: pass"),
}


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("limit", HEADLESS_ATTACKS)
def test_a_process_without_a_main_thread_is_counted(cellblock, limit, tier):
    small, large, code = HEADLESS_ATTACKS[limit]
    free = cellblock.python(HEADLESS % (code, "time.sleep(1)"), flags=["--json", *TIERS[tier], *large],
                            off=NO_CGROUP).json
    assert (free["end"], free["stdout"]) == ("exited", "over\n")
    cellblock.sh("rm -f f")
    held = cellblock.python(HEADLESS % (code, "time.sleep(1000)"), flags=["--json", *TIERS[tier], *small],
                            off=NO_CGROUP).json
    assert held["limit"] == limit


@pytest.mark.parametrize("tier", TIERS)
def test_a_process_without_a_main_thread_keeps_its_share(cellblock, tier):
    code = HEADLESS % ("    until = time.monotonic() + 2\n    while time.monotonic() < until: pass", "pass")
    free = cellblock.python(code, flags=["--json", *TIERS[tier], "--cpus", "0.3"], off=["cgroup", "limits"]).json
    held = cellblock.python(code, flags=["--json", *TIERS[tier], "--cpus", "0.3"], off=NO_CGROUP).json
    assert (free["stdout"], held["stdout"]) == ("over\n", "over\n")
    assert held["usage"]["cpu_ms"] / held["usage"]["wall_ms"] < 0.3 * 1.25
    assert free["usage"]["cpu_ms"] > held["usage"]["cpu_ms"]


# ---- Page tables ----

# One page in every 2 MiB: a page table for each, and nothing else. The page itself is the one that is full of zeros.
TABLES = """
import ctypes, mmap, os, time
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
step, size = 2 << 20, 1 << 40
def room():
    at = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000, -1, 0)
    libc.madvise(at, size, 15)      # no huge pages
    return at
def touch(at, count):
    for place in range(at, at + count * step, step): ctypes.c_char.from_address(place).value
def crowd(count, function):
    reader, writer = os.pipe()
    for _ in range(count):
        if os.fork() == 0:
            function()
            os.write(writer, b'.')
            while True: time.sleep(1)
    for _ in range(count): os.read(reader, 1)
"""

TABLE_ATTACKS = {
    "one process": "touch(room(), 60000)",
    "many processes": "crowd(6, lambda: touch(room(), 10000))",
    "inherited": "at = room(); crowd(6, lambda: touch(at, 10000))",
}


@pytest.mark.parametrize("kind", TABLE_ATTACKS)
def test_page_tables_are_memory(cellblock, kind):
    code = TABLES + TABLE_ATTACKS[kind] + "\nprint('over', flush=True)"
    free = cellblock.python(code + "\ntime.sleep(1)", flags=["--json", "--memory", "2G"], off=NO_CGROUP).json
    assert (free["end"], free["stdout"]) == ("exited", "over\n")
    assert free["usage"]["peak_memory"] > 200 << 20
    held = cellblock.python(code + STAY, flags=["--json", "--memory", "150M"], off=NO_CGROUP).json
    assert (held["end"], held["limit"]) == ("memory", "memory")


# ---- Keeping the supervisor busy ----

# Processes that share all of their memory, in as many mappings as there may be. Together they seem to have more than
# the limit, and there is always a new one, so they have to be weighed again and again; every mapping makes that dearer.
MAPPINGS = """
import ctypes, mmap, os, time
if os.fork() == 0:
    while True:
        print(time.monotonic(), flush=True)
        time.sleep(0.02)
libc = ctypes.CDLL(None)
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
count = 25000
room = mmap.mmap(-1, 2 * count * 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for at in range(0, len(room), 4096): room[at] = 1
address = ctypes.addressof(ctypes.c_char.from_buffer(room))
for at in range(0, len(room), 8192): libc.mprotect(address + at, 4096, mmap.PROT_READ)
assert sum(1 for _ in open('/proc/self/maps')) > 2 * count
for _ in range(16):
    if os.fork() == 0:
        while True: time.sleep(1)
while True:
    child = os.fork()
    if child == 0:
        time.sleep(0.3)
        os._exit(0)
    os.waitpid(child, 0)
"""


@pytest.mark.parametrize("tier", TIERS)
def test_many_mappings_do_not_hold_the_supervisor(cellblock, tier):
    """What the cell says still arrives at once, and its time is up when it is up. (Whether such a cell is also taken
    for one that has too much memory is another matter.)"""
    flags = [*TIERS[tier], "--memory", "400M", "--timeout", "6s"]
    began = time.monotonic()
    process = start(cellblock, *flags, "--", "/usr/bin/python3", "-c", MAPPINGS, program=HOOKED,
                    env={"CELLBLOCK_TEST_OFF": "cgroup"})
    delays = [time.monotonic() - float(line) for line in process.stdout]
    complaint = process.communicate(timeout=30)[1].decode()
    assert "wall_time" in complaint or "memory" in complaint, complaint
    assert time.monotonic() - began < 15
    assert len(delays) > 1 and max(delays) < 3, max(delays)


# ---- Disk ----

WRITE = """
import os, signal, time
def grow(name, megabytes):
    file = os.open(name, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for _ in range(megabytes): os.write(file, bytes(1 << 20))
    os.close(file)
"""

GROWERS = {
    "one file": "grow('old', 200)",
    "many files": "[grow(f'old{n}', 20) for n in range(10)]",
    "by children that nobody waits for": """
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for _ in range(200):
    if os.fork() == 0: grow('old', 1), os._exit(0)
    try: os.wait()
    except ChildProcessError: pass
""",
}


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("kind", GROWERS)
def test_a_file_that_was_there_before_does_not_grow_for_free(cellblock, workspace, kind, tier):
    """Nothing is made, so looking for what is new finds nothing."""
    def begin():
        for name in ["old", *(f"old{n}" for n in range(10))]:
            (workspace / name).write_bytes(bytes(1 << 20))
            os.utime(workspace / name, (1, 1))
    code = WRITE + GROWERS[kind] + "\nprint('over', flush=True)"
    begin()
    free = cellblock.python(code, flags=["--json", *TIERS[tier], "--disk", "1G"]).json
    assert (free["end"], free["stdout"]) == ("exited", "over\n")
    begin()
    held = cellblock.python(code + STAY, flags=["--json", *TIERS[tier], "--disk", "30M"]).json
    assert (held["end"], held["limit"]) == ("disk", "disk")


def test_what_was_there_before_is_nobodys_fault(cellblock, workspace):
    (workspace / "old").write_bytes(bytes(100 << 20))
    result = cellblock.python(WRITE + "grow('old', 1)\nos.utime('old')\ntime.sleep(1)\nprint('over')",
                              flags=["--json", "--disk", "30M"]).json
    assert (result["end"], result["stdout"]) == ("exited", "over\n")


QUICK = {
    "one file": "head -c 100M /dev/zero >f",
    "many files": "for n in 1 2 3 4 5 6 7 8 9 10; do head -c 10M /dev/zero >f$n; done",
    "a file that was there before": "head -c 100M /dev/zero >>old",
    "in the background": "(head -c 100M /dev/zero >f &) & wait; while [ $(stat -c %s f) -lt 104857600 ]; do :; done",
}


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("kind", QUICK)
def test_too_much_and_gone_at_once_is_no_success(cellblock, workspace, kind, tier):
    """Over before anybody has looked: what is left to do is to say so."""
    (workspace / "old").write_bytes(b"x")
    free = cellblock.sh(QUICK[kind], flags=["--json", *TIERS[tier], "--disk", "1G"])
    assert (free.status, free.json["end"]) == (0, "exited")
    cellblock.sh("rm -f f*; : >old")
    held = cellblock.sh(QUICK[kind], flags=["--json", *TIERS[tier], "--disk", "30M"])
    assert (held.json["end"], held.json["limit"]) == ("disk", "disk")
    assert held.status != 0
    cellblock.sh("rm -f f*; : >old")
    said = cellblock.sh(QUICK[kind], flags=[*TIERS[tier], "--disk", "30M"])
    assert said.status != 0 and '"disk"' in said.err


def test_room_that_is_taken_without_writing(cellblock):
    """No account of what was written shows it."""
    code = PRELUDE + "attempt(os.posix_fallocate, os.open('f', os.O_RDWR | os.O_CREAT), 0, 100 << 20)"
    took = "import os\nprint(os.stat('f').st_blocks * 512 >> 20)"
    free = cellblock.python(code, flags=["--disk", "30M"], off=["seccomp", "limits"])
    assert free.out == "worked\n" and int(cellblock.python(took).out) >= 100
    cellblock.sh("rm -f f")
    held = cellblock.python(code, flags=["--json", "--disk", "30M"]).json
    assert held["end"] == "disk" or held["stdout"] == "EOPNOTSUPP\n", held


# ---- Writing by way of the kernel's own threads ----

ASYNCHRONOUS = PRELUDE + """
setup, submit = (206, 209) if os.uname().machine == 'x86_64' else (0, 2)
context = ctypes.c_ulong(0)
def write_through_kernel():
    call('syscall', setup, 1, ctypes.byref(context))
    data = ctypes.create_string_buffer(1 << 20)
    file = os.open('f', os.O_RDWR | os.O_CREAT)
    request = struct.pack('=QIIHhIQQqQII', 0, 0, 0, 1, 0, file, ctypes.addressof(data), len(data), 0, 0, 0, 0)
    kept = ctypes.create_string_buffer(request, len(request))
    list = (ctypes.c_void_p * 1)(ctypes.addressof(kept))
    call('syscall', submit, context, ctypes.c_long(1), list)
    assert os.stat('f').st_size == 1 << 20
"""


def test_asynchronous_writes_are_not_to_be_had(cellblock, workspace):
    code = ASYNCHRONOUS + "attempt(write_through_kernel)"
    assert cellblock.python(code, off=["seccomp"]).out == "worked\n"
    (workspace / "f").unlink()
    assert cellblock.python(code).out == "ENOSYS\n"
    assert not (workspace / "f").exists()
    code = ASYNCHRONOUS + "attempt(call, 'syscall', submit, context, ctypes.c_long(1), None)"
    assert cellblock.python(code).out == "ENOSYS\n"


def test_rings_are_not_to_be_had(cellblock):
    """Some kernels have them turned off for everybody: then there is nothing to show without the filter."""
    code = PRELUDE + "attempt(call, 'syscall', 425, 1, ctypes.create_string_buffer(120))"
    assert cellblock.python(code, off=["seccomp"]).out in ("worked\n", "ENOSYS\n", "EPERM\n")
    assert cellblock.python(code).out in ("EPERM\n", "ENOSYS\n")


# ---- A share of the processors ----

BUSY = """
import os, signal, threading, time
began = time.monotonic()
def burn(seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until: pass
"""

EATERS = {
    "processes": "[os.fork() == 0 and (burn(2), os._exit(0)) for _ in range(3)]; [os.wait() for _ in range(3)]",
    "threads": "[threading.Thread(target=burn, args=[2]).start() for _ in range(3)]",
    "one after the other": "while time.monotonic() - began < 2:"
                           " os.waitpid(os.fork() or (burn(0.03), os._exit(0))[1], 0)",
    "continuing each other": """
pids = []
for n in range(3):
    pid = os.fork()
    if pid == 0:
        while time.monotonic() - began < 2:
            for other in pids:
                try: os.kill(other, signal.SIGCONT)
                except OSError: pass
        os._exit(0)
    pids.append(pid)
for _ in pids: os.wait()
""",
}


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("kind", EATERS)
def test_a_share_is_kept_without_a_cgroup(cellblock, kind, tier):
    """Unheld it takes more, unless others keep the machine busy just then: so it may try again."""
    def share(off):
        usage = cellblock.python(BUSY + EATERS[kind], flags=["--json", *TIERS[tier], "--cpus", "0.4"],
                                 off=off).json["usage"]
        return usage["cpu_ms"] / usage["wall_ms"]
    held = share(NO_CGROUP)
    assert held < 0.4 * 1.25
    assert any(share(["cgroup", "limits"]) > held for _ in range(5))


# ---- Who cleans up ----


def state_of(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0]
    except OSError:
        return None


def wait_until(condition, seconds=30):
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    return condition()


@needs_root
def test_the_janitor_spares_who_cleans_up(workspace, home, tmp_path):
    """Tier landlock, and the supervisor is killed: the janitor of the cgroups ends whoever is left in them, but not the
    warden, who has a directory to remove. Here it is held up for longer than the janitor is patient."""
    tmp = tmp_path / "tmp"
    tmp.mkdir()
    tier = Tier(workspace, home, tmp)
    before = cgroups()
    process = start(tier, *FLAGS, "--memory", "1G", "--", "/usr/bin/python3", "-c",
                    "import os, signal\nprint(os.getppid(), os.getpid(), flush=True)\nsignal.pause()")
    warden, program = map(int, process.stdout.readline().split())
    try:
        made = {group for group in cgroups() - before if str(process.pid) in group}
        assert made and list(tmp.iterdir())
        os.kill(warden, signal.SIGSTOP)
        assert wait_until(lambda: state_of(warden) == "T")
        process.kill()
        process.wait()
        assert wait_until(lambda: state_of(program) in (None, "Z")), "nobody ended what was left"
        assert state_of(warden) == "T", "the warden was ended too"
        assert list(tmp.iterdir())
    finally:
        os.kill(warden, signal.SIGCONT)
        process.communicate()
    assert wait_until(lambda: not list(tmp.iterdir()))
    assert wait_until(lambda: not made & cgroups())
