"""Limits over all processes of a cell together. The same tests hold with a cgroup (root) and without (an ordinary
user): `report.enforced.limits` says which. Each program is first shown to come to its end without the limit."""

import pytest

from conftest import is_root

# Starts processes that each do something and then hold what they have; says "all" when every one of them has it. A peak
# is seen if it lasts: without a cgroup it is looked for a few times a second.
CROWD = """
import ctypes, mmap, os, signal, sys, time
def crowd(count, have):
    reader, writer = os.pipe()
    for number in range(count):
        if os.fork() == 0:
            kept = have(number)
            os.write(writer, b".")
            while True: signal.pause()
    for _ in range(count): os.read(reader, 1)
    print("all", flush=True)
    time.sleep(0.5)
def fill(room):
    for at in range(0, len(room), 4096): room[at] = 1
    return room
def write(descriptor, megabytes):
    for _ in range(megabytes): os.write(descriptor, bytes(1 << 20))
    return descriptor
"""

MEMORY = {
    "heap in many processes": "crowd(8, lambda n: bytearray(b'x') * (40 << 20))",
    "shared with nobody": "crowd(1, lambda n: [fill(mmap.mmap(-1, 50 << 20)) for _ in range(6)])",
    "shared in many processes": "crowd(6, lambda n: fill(mmap.mmap(-1, 50 << 20)))",
    "shared and inherited": "kept = [fill(mmap.mmap(-1, 50 << 20)) for _ in range(6)]; crowd(4, lambda n: kept)",
    "a file in memory": "kept = write(os.open('/dev/shm/f', os.O_RDWR | os.O_CREAT), 300); crowd(1, lambda n: 0)",
    "many files in /tmp": "crowd(6, lambda n: write(os.open(f'/tmp/{n}', os.O_RDWR | os.O_CREAT), 50))",
    "a file without a name": "kept = write(os.memfd_create('f'), 300); crowd(1, lambda n: 0)",
    "heap and files": "kept = write(os.open('/tmp/f', os.O_RDWR | os.O_CREAT), 150);"
                      "crowd(3, lambda n: bytearray(b'x') * (50 << 20))",
    "page tables": """
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
size = 1 << 40
at = libc.mmap(None, size, 1, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000, -1, 0)
libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
libc.madvise(at, size, 15)
for step in range(at, at + 160000 * (2 << 20), 2 << 20): ctypes.c_char.from_address(step).value
crowd(1, lambda n: 0)
""",
}


# Without a cgroup, what was taken in the last moment before the end may go unseen: so these don't end by themselves.
STAY = "\nwhile True: signal.pause()"


@pytest.mark.parametrize("kind", MEMORY)
def test_memory_of_all_together(cellblock, kind):
    code = CROWD + MEMORY[kind]
    free = cellblock.python(code, flags=["--json", "--memory", "2G"]).json
    assert (free["end"], free["stdout"]) == ("exited", "all\n")
    assert free["usage"]["peak_memory"] > 220 << 20
    held = cellblock.python(code + STAY, flags=["--json", "--memory", "200M"]).json
    assert (held["end"], held["limit"]) == ("memory", "memory")


def test_memory_that_grows_as_fast_as_it_can(cellblock):
    """Without a cgroup it can only be seen afterwards, but soon."""
    code = CROWD + "crowd(8, lambda n: bytearray(b'x') * (180 << 20))"
    held = cellblock.python(code, flags=["--json", "--memory", "200M"]).json
    assert (held["end"], held["stdout"]) == ("memory", "")
    assert held["usage"]["peak_memory"] < 900 << 20


def test_pages_that_are_shared_count_once(cellblock):
    """Eight processes that each have the same 100 MB: a sum over processes would see 900."""
    code = CROWD + """
kept = bytearray(b'x') * (100 << 20)
crowd(8, lambda n: sum(memoryview(kept)[::4096]))
"""
    result = cellblock.python(code, flags=["--json", "--memory", "200M"]).json
    assert (result["end"], result["stdout"]) == ("exited", "all\n")
    assert 100 << 20 < result["usage"]["peak_memory"] < 200 << 20


def test_a_file_that_is_mapped_counts_once(cellblock):
    code = CROWD + """
kept = write(os.open('/dev/shm/f', os.O_RDWR | os.O_CREAT), 120)
crowd(3, lambda n: fill(mmap.mmap(kept, 120 << 20)))
"""
    result = cellblock.python(code, flags=["--json", "--memory", "200M"]).json
    assert (result["end"], result["stdout"]) == ("exited", "all\n")
    assert 120 << 20 < result["usage"]["peak_memory"] < 200 << 20


def test_a_file_on_disk_that_is_mapped_is_not_memory(cellblock, workspace):
    """The kernel can always take its pages back."""
    with open(workspace / "data", "wb") as data:
        for _ in range(150):
            data.write(bytes(1 << 20))
    code = CROWD + """
def look():
    view = mmap.mmap(os.open('data', os.O_RDONLY), 150 << 20, prot=mmap.PROT_READ)
    return view, sum(view[at] for at in range(0, 150 << 20, 4096))
crowd(2, lambda n: look())
"""
    result = cellblock.python(code, flags=["--json", "--memory", "100M"]).json
    assert (result["end"], result["stdout"]) == ("exited", "all\n")


def test_starting_programs_from_a_large_process(cellblock):
    """For a moment a child made by vfork has all of its parent's memory."""
    code = """
import os
kept = bytearray(b'x') * (130 << 20)
for _ in range(300):
    os.waitpid(os.posix_spawn('/bin/true', ['true'], {}), 0)
print('all')
"""
    result = cellblock.python(code, flags=["--json", "--memory", "200M"]).json
    assert (result["end"], result["stdout"]) == ("exited", "all\n")


# ---- Processor time ----

BURN = """
import os, signal, sys, time
def burn(seconds):
    until = time.process_time() + seconds
    while time.process_time() < until: pass
"""

BURNERS = {
    "one process": "burn(1.8)",
    "many processes": "[os.fork() == 0 and (burn(0.3), os._exit(0)) for _ in range(6)]; [os.wait() for _ in range(6)]",
    "one after the other": "[os.waitpid(os.fork() or (burn(0.05), os._exit(0))[1], 0) for _ in range(36)]",
    "orphans": """
reader, writer = os.pipe()
for _ in range(6):
    if os.fork() == 0:
        if os.fork() == 0:
            burn(0.3)
            os.write(writer, b'.')
        os._exit(0)
    os.wait()
for _ in range(6): os.read(reader, 1)
""",
    "nobody waits": """
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for _ in range(6):
    if os.fork() == 0: burn(0.3), os._exit(0)
    try: os.wait()
    except ChildProcessError: pass
""",
    "threads": """
import threading
threads = [threading.Thread(target=lambda: burn(1.8)) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
""",
}


@pytest.mark.parametrize("kind", BURNERS)
def test_processor_time_of_all_together(cellblock, kind):
    code = BURN + BURNERS[kind] + "\nprint('all')"
    free = cellblock.python(code, flags=["--json"]).json
    assert (free["end"], free["stdout"]) == ("exited", "all\n")
    held = cellblock.python(code, flags=["--json", "--cpu-time", "600ms"]).json
    assert (held["end"], held["limit"], held["stdout"]) == ("timeout", "cpu_time", "")
    assert 570 < held["usage"]["cpu_ms"] < 1000


def test_processor_time_of_children_that_come_and_go(cellblock):
    """Each lives for a moment and nobody waits for it: there is no account that it would show up in."""
    code = BURN + """
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
began = time.monotonic()
while time.monotonic() - began < 30:
    if os.fork() == 0: burn(0.02), os._exit(0)
    try: os.wait()
    except ChildProcessError: pass
"""
    held = cellblock.python(code, flags=["--json", "--cpu-time", "1s"]).json
    assert (held["end"], held["limit"]) == ("timeout", "cpu_time")
    assert held["usage"]["wall_ms"] < 15000


def test_sleeping_takes_no_processor_time(cellblock):
    result = cellblock.sh("sleep 2; echo awake", flags=["--json", "--cpu-time", "1s"]).json
    assert (result["end"], result["stdout"]) == ("exited", "awake\n")


# Four processes that take what they get, for two seconds on the clock.
BUSY = BURN + """
began = time.monotonic()
for _ in range(4):
    if os.fork() == 0:
        while time.monotonic() - began < 2: pass
        os._exit(0)
for _ in range(4): os.wait()
"""


@pytest.mark.parametrize("share", ["0.5", "1"])
def test_share_of_the_processors(cellblock, share):
    usage = cellblock.python(BUSY, flags=["--json", "--cpus", share]).json["usage"]
    assert 0 < usage["cpu_ms"] / usage["wall_ms"] < float(share) * 1.25


def test_without_a_share_it_takes_more(cellblock):
    free = cellblock.python(BUSY, flags=["--json"]).json["usage"]
    held = cellblock.python(BUSY, flags=["--json", "--cpus", "0.2"]).json["usage"]
    assert free["cpu_ms"] > held["cpu_ms"]


def test_a_process_that_the_program_stopped_stays_so(cellblock):
    """A share is kept by stopping processes and continuing them: only those that it has stopped."""
    code = BURN + """
told, tell = os.pipe()
child = os.fork()
if child == 0:
    print('runs', flush=True)
    os.write(tell, b'x')
    while True: print('runs', flush=True), time.sleep(0.01)
os.read(told, 1)
os.kill(child, signal.SIGSTOP)
os.waitpid(child, os.WUNTRACED)
print('stopped', flush=True)
burn(0.5)
print('over', flush=True)
os.kill(child, signal.SIGKILL)
"""
    result = cellblock.python(code, flags=["--json", "--cpus", "0.3"]).json
    assert result["end"] == "exited"
    assert result["stdout"].endswith("stopped\nover\n")
    assert "runs" in result["stdout"]


# ---- Processes ----


def test_a_fork_bomb(cellblock):
    code = """
import os, signal
print('start', flush=True)
made = 0
while made < 200:
    try:
        if os.fork() == 0: signal.pause()
        made += 1
    except OSError: pass
print('all')
"""
    free = cellblock.python(code, flags=["--json", "--procs", "300"]).json
    assert (free["end"], free["stdout"]) == ("exited", "start\nall\n")
    held = cellblock.python(code, flags=["--json", "--procs", "30"]).json
    assert (held["end"], held["limit"], held["stdout"]) == ("processes", "processes", "start\n")
    assert held["usage"]["peak_processes"] == 30


@pytest.mark.parametrize("work", ["sum(range(10000))", "os.read(zero, 1 << 16)", "time.sleep(0.1)"])
def test_sitting_at_the_limit_is_no_bomb(cellblock, work):
    code = BURN + f"""
import threading
zero = os.open('/dev/zero', os.O_RDONLY)
everybody = threading.Barrier(19)
def run():
    everybody.wait()
    began = time.monotonic()
    while time.monotonic() - began < 3: {work}
threads = [threading.Thread(target=run) for _ in range(19)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print('all')
"""
    result = cellblock.python(code, flags=["--json", "--procs", "20"]).json
    assert (result["end"], result["stdout"]) == ("exited", "all\n")
    assert result["usage"]["peak_processes"] == 20


# ---- Disk ----

WRITERS = {
    "one file": "write('f', 100)",
    "many files": "[write(f'f{n}', 5) for n in range(20)]",
    "many processes": "[os.fork() == 0 and (write(f'f{n}', 10), os._exit(0)) for n in range(10)];"
                      "[os.wait() for n in range(10)]",
    "through a mapping": """
file = os.open('f', os.O_RDWR | os.O_CREAT)
os.truncate('f', 100 << 20)
room = mmap.mmap(file, 100 << 20)
for at in range(0, 100 << 20, 4096): room[at] = 1
""",
    "again and again": """
for _ in range(20):
    write('f', 5)
    os.fsync(os.open('f', os.O_RDWR))
    os.unlink('f')
""",
    "without a name": """
file = os.open('.', os.O_TMPFILE | os.O_RDWR)
for _ in range(100): os.write(file, bytes(1 << 20))
""",
    "out of sight": """
os.mkdir('d')
inside = os.open('d', os.O_RDONLY)
files = [os.open(f'{n}', os.O_WRONLY | os.O_CREAT, dir_fd=inside) for n in range(20)]
os.chmod('d', 0)
for file in files:
    for _ in range(5): os.write(file, bytes(1 << 20))
""",
    "nobody waits": """
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for n in range(100):
    if os.fork() == 0: write(f'f{n}', 1), os._exit(0)
    try: os.wait()
    except ChildProcessError: pass
""",
}

WRITE = """
import mmap, os, signal, time
def write(name, megabytes):
    with open(name, 'wb', buffering=0) as file:
        for _ in range(megabytes): file.write(bytes(1 << 20))
"""


@pytest.mark.parametrize("kind", WRITERS)
def test_bytes_on_disk(cellblock, kind):
    code = WRITE + WRITERS[kind] + "\nprint('all', flush=True)"
    free = cellblock.python(code, flags=["--json", "--disk", "1G"]).json
    assert (free["end"], free["stdout"]) == ("exited", "all\n")
    cellblock.sh("chmod 700 d; rm -rf *")
    held = cellblock.python(code + STAY, flags=["--json", "--disk", "30M"]).json
    cellblock.sh("chmod 700 d")
    assert (held["end"], held["limit"]) == ("disk", "disk")
    assert 30 << 20 < held["usage"]["written"] < 110 << 20


def test_what_is_in_memory_is_not_written(cellblock):
    result = cellblock.python(WRITE + "write('/tmp/f', 100)\ntime.sleep(1)\nprint('all')",
                              flags=["--json", "--disk", "30M"]).json
    assert (result["end"], result["stdout"]) == ("exited", "all\n")
    assert result["usage"]["written"] < 1 << 20


def test_a_sparse_file_takes_no_room(cellblock):
    result = cellblock.python(WRITE + "write('f', 1)\nos.truncate('f', 10 << 30)\ntime.sleep(1)\nprint('all')",
                              flags=["--json", "--disk", "30M"]).json
    assert (result["end"], result["stdout"]) == ("exited", "all\n")


MAKERS = {
    "files": "for n in range(6000): os.close(os.open(f'f{n}', os.O_WRONLY | os.O_CREAT))",
    "directories": "for n in range(6000): os.makedirs(f'd{n % 100}/{n}')",
    "links": "for n in range(6000): os.symlink('nowhere', f'l{n}')",
    "deep down": """
for n in range(150): os.mkdir('d'), os.chdir('d')
for n in range(6000): os.close(os.open(f'f{n}', os.O_WRONLY | os.O_CREAT))
""",
    "out of sight": """
os.mkdir('d')
os.chdir('d')
os.chmod('.', 0o300)
for n in range(6000): os.close(os.open(f'f{n}', os.O_WRONLY | os.O_CREAT))
""",
}


@pytest.mark.parametrize("kind", MAKERS)
def test_files_that_are_made(cellblock, kind):
    code = WRITE + MAKERS[kind] + "\nprint('all', flush=True)"
    free = cellblock.python(code, flags=["--json", "--inodes", "1000000"]).json
    assert (free["end"], free["stdout"]) == ("exited", "all\n")
    cellblock.sh("chmod 700 d; rm -rf *")
    held = cellblock.python(code + STAY, flags=["--json", "--inodes", "1000"]).json
    cellblock.sh("chmod 700 d")
    assert (held["end"], held["limit"]) == ("disk", "inodes")


def test_one_file_with_many_names_is_one(cellblock):
    code = WRITE + """
open('f', 'w').close()
for n in range(3000): os.link('f', f'f{n}')
time.sleep(1)
print('all')
"""
    result = cellblock.python(code, flags=["--json", "--inodes", "1000"]).json
    assert (result["end"], result["stdout"]) == ("exited", "all\n")


# ---- Without namespaces ----

TIER = ["--isolation", "landlock", "--accept-weaker", "namespaces"] + (["--accept-weaker", "ids"] if is_root() else [])

TEMPORARY = {
    "a file": "write(tempfile.mktemp(), 100)",
    "without a name": "file = tempfile.TemporaryFile(buffering=0)\nfor _ in range(100): file.write(bytes(1 << 20))",
    "in the home directory": "write(os.path.expanduser('~/f'), 100)",
}


WEAKER = {
    "heap": (["--memory", "200M"], CROWD + MEMORY["heap in many processes"]),
    "shared": (["--memory", "200M"], CROWD + MEMORY["shared in many processes"]),
    "orphans": (["--cpu-time", "600ms"], BURN + BURNERS["orphans"]),
    "nobody waits": (["--cpu-time", "600ms"], BURN + BURNERS["nobody waits"]),
    "bytes": (["--disk", "30M"], WRITE + WRITERS["many processes"]),
    "files": (["--inodes", "1000"], WRITE + MAKERS["files"]),
    **{f"tmp: {kind}": (["--tmp", "30M"], WRITE + "import tempfile\n" + code) for kind, code in TEMPORARY.items()},
}


@pytest.mark.parametrize("kind", WEAKER)
def test_without_namespaces(cellblock, kind):
    flags, code = WEAKER[kind]
    code += "\nprint('over', flush=True)"
    free = cellblock.python(code, flags=["--json", *TIER]).json
    assert free["end"] == "exited"
    assert free["stdout"].endswith("over\n")
    cellblock.sh("rm -rf *")
    held = cellblock.python(code + STAY, flags=["--json", *TIER, *flags]).json
    assert held["report"]["tier"] == "landlock"
    assert held["limit"] == flags[0].strip("-").replace("-", "_")


def test_a_share_without_namespaces(cellblock):
    usage = cellblock.python(BUSY, flags=["--json", *TIER, "--cpus", "0.5"]).json["usage"]
    assert usage["cpu_ms"] / usage["wall_ms"] < 0.5 * 1.25
