"""Processes: outliving the run, reaching others, gaining privileges, exhausting the host, flooding the output."""

import json
import os
import signal
import subprocess
import time

import pytest

from attacks import PRELUDE, start
from conftest import HOOKED, PROGRAM, needs_root, which

DAEMON = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGHUP, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        {also}
        while True: signal.pause()
    os._exit(0)
os.wait()
{then}
"""


@pytest.fixture
def pulse():
    """A pipe whose read end sees the end when the last process that holds the other end is gone."""
    reader, writer = os.pipe()
    yield reader, writer
    os.close(reader)


def ends(reader):
    """Waits for the end of the pipe, as long as the test runner lets it."""
    while True:
        piece = os.read(reader, 4096)
        if not piece:
            return True


def test_a_daemon_ends_with_the_run(cellblock, workspace, pulse):
    """The daemon holds standard output: a run that left it alive would also keep this pipe open."""
    reader, writer = pulse
    code = DAEMON.format(also="", then='print("over", flush=True)')
    ran = cellblock.python(code, stdout=writer)
    os.close(writer)
    assert ran.status == 0
    assert ends(reader)


def test_bare_the_daemon_does_outlive_its_parent(pulse):
    reader, writer = pulse
    code = DAEMON.format(also='os.write(1, b"%d" % os.getpid())', then="")
    subprocess.run(["/usr/bin/python3", "-c", code], stdout=writer, check=True)
    os.close(writer)
    daemon = int(os.read(reader, 16))
    os.kill(daemon, 0)
    os.kill(daemon, signal.SIGKILL)
    assert ends(reader)


def test_children_that_hold_the_output_do_not_delay_the_result(cellblock):
    ran = cellblock.sh("sleep 1000 & setsid sleep 1000 & echo done", flags=["--json"], timeout=30)
    assert ran.json["stdout"] == "done\n" and ran.json["end"] == "exited"


@pytest.mark.parametrize("json_mode", [[], ["--json"]], ids=["plain", "json"])
def test_killing_the_supervisor_ends_everything(cellblock, json_mode):
    # The daemon and the program both hold the fifo.
    fifo = cellblock.workspace / "fifo"
    os.mkfifo(fifo)
    code = "import os; fd = os.open('fifo', os.O_WRONLY); os.set_inheritable(fd, True); os.write(fd, b'up')\n" + \
        DAEMON.format(also="os.write(fd, b'daemon')", then="signal.pause()")
    process = start(cellblock, *json_mode, "--", "/usr/bin/python3", "-c", code)
    with open(fifo, "rb", buffering=0) as pipe:
        seen = b""
        while b"daemon" not in seen:
            seen += pipe.read(64)
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=30)
        while pipe.read(64):
            pass        # the end comes only when every process of the cell is gone
    process.communicate()


def test_time_is_up_for_who_ignores_it(cellblock):
    code = DAEMON.format(also="", then="print('up', flush=True)\nwhile True: time.sleep(1000)")
    ran = cellblock.python(code, flags=["--timeout", "300ms", "--json"], timeout=30)
    assert ran.json["end"] == "timeout" and ran.status == 124
    assert cellblock.python(code, flags=["--timeout", "300ms"], timeout=30).status == 124


def test_a_stopped_program_does_not_hold_the_run(cellblock):
    ran = cellblock.sh("kill -STOP $$", flags=["--timeout", "300ms"], timeout=30)
    assert ran.status == 124


# ---- Reaching others ----

REACH = PRELUDE + "import resource, signal\n"


def host_process():
    return subprocess.Popen(["sleep", "1000"])


# Each names a process of the host by its number there, or init, or everybody.
ON_THE_HOST = {
    "signal": 'os.kill({pid}, signal.SIGKILL)', "probe": 'os.kill({pid}, 0)',
    "pidfd": 'os.pidfd_open({pid})', "priority": 'os.setpriority(os.PRIO_PROCESS, {pid}, 19)',
    "limits": 'resource.prlimit({pid}, resource.RLIMIT_NOFILE, (1, 1))',
    "affinity": 'os.sched_setaffinity({pid}, [0])', "trace": 'call("ptrace", 16, {pid}, 0, 0)',
    "memory": 'os.open("/proc/{pid}/mem", os.O_RDWR)', "environment": 'open("/proc/{pid}/environ").read()',
    "root": 'os.listdir("/proc/{pid}/root/")', "session": 'os.getsid({pid})',
}


@pytest.mark.parametrize("way", ON_THE_HOST)
def test_a_process_of_the_host_is_not_there(cellblock, way):
    """The pid namespace and a /proc of its own: no number leads to it."""
    other = host_process()
    code = REACH + f"attempt(lambda: {ON_THE_HOST[way].replace('{pid}', str(other.pid))})"
    try:
        if way not in {"signal", "trace", "limits", "priority"}:     # harmless: shown bare
            bare = subprocess.run(["/usr/bin/python3", "-c", code], capture_output=True, text=True)
            assert bare.stdout == "worked\n", bare.stderr
        assert cellblock.python(code).out.strip() in {"ESRCH", "ENOENT", "EPERM"}
        assert cellblock.python(code, off=["landlock", "seccomp"]).out.strip() in {"ESRCH", "ENOENT", "EPERM"}
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


INIT = {
    "trace": 'call("ptrace", 16, 1, 0, 0)', "memory": 'os.open("/proc/1/mem", os.O_RDWR)',
    "descriptors": 'os.listdir("/proc/1/fd")', "pidfd_getfd": 'call("syscall", 438, os.pidfd_open(1), 0, 0)',
    "process_vm_readv": 'call("process_vm_readv", 1, iovec, 1, iovec, 1, 0)',
    "limits": 'resource.prlimit(1, resource.RLIMIT_NOFILE, (0, 0))',
    "priority": 'os.setpriority(os.PRIO_PROCESS, 1, 19)',
}
IOVEC = """
room = ctypes.create_string_buffer(16)
iovec = (ctypes.c_ulong * 2)(ctypes.addressof(room), 16)
"""


@pytest.mark.parametrize("way", INIT)
@pytest.mark.parametrize("off", [[], ["landlock"], ["proc"]], ids=str)
def test_init_is_out_of_reach(cellblock, way, off):
    """Untraceable, without capabilities, hidden in /proc, and behind the filter."""
    ran = cellblock.python(REACH + IOVEC + f"attempt(lambda: {INIT[way]})\nsys.exit(7)", off=off, timeout=30)
    assert ran.status == 7
    assert ran.out != "worked\n"


@pytest.mark.parametrize("way", ["trace", "memory", "descriptors", "pidfd_getfd", "process_vm_readv"])
def test_init_is_out_of_reach_without_the_filter_too(cellblock, way):
    ran = cellblock.python(REACH + IOVEC + f"attempt(lambda: {INIT[way]})", off=["seccomp"])
    assert ran.out.strip() in {"EPERM", "ENOENT", "ESRCH", "EACCES"}, ran.out


@pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM", "SIGSTOP", "SIGCHLD", "SIGINT", "SIGSEGV"])
@pytest.mark.parametrize("off", [[], ["landlock"], ["seccomp"]], ids=str)
def test_init_takes_no_signals_from_inside(cellblock, name, off):
    """The kernel or init drops them; the status of the program arrives all the same."""
    code = f"import os, signal, sys\ntry: os.kill(1, signal.{name})\nexcept OSError: pass\nsys.exit(7)"
    assert cellblock.python(code, off=off, timeout=30).status == 7


@pytest.mark.parametrize("target", ["-1", "0"])
@pytest.mark.parametrize("off", [[], ["landlock"], ["session"], ["seccomp"]], ids=str)
def test_a_signal_to_everybody_stays_inside(cellblock, target, off):
    """The shell that calls cellblock is in the same process group, and must still be there afterwards."""
    code = f"import os, signal; signal.signal(15, signal.SIG_IGN); os.kill({target}, 15); print('sent', flush=True)"
    ran = subprocess.run(["setsid", "-w", "sh", "-c", '"$@"; echo "still here"', "sh", HOOKED, "run", "--",
                          "/usr/bin/python3", "-c", code], cwd=cellblock.workspace, capture_output=True, text=True,
                         env={**cellblock.environment, "CELLBLOCK_TEST_OFF": ",".join(off)}, timeout=30)
    assert "still here" in ran.stdout, ran.stderr


def test_a_signal_to_the_group_would_leave_without_the_two_layers(cellblock):
    """kill(0) crosses pid namespaces when the process group is shared: setsid or Landlock's scope holds it."""
    code = "import os, signal; signal.signal(15, signal.SIG_IGN); os.kill(0, 15)"
    ran = subprocess.run(["setsid", "-w", "sh", "-c", '"$@"; echo "still here"', "sh", HOOKED, "run", "--",
                          "/usr/bin/python3", "-c", code], cwd=cellblock.workspace, capture_output=True, text=True,
                         env={**cellblock.environment, "CELLBLOCK_TEST_OFF": "session,landlock,ids"}, timeout=30)
    assert "still here" not in ran.stdout


# ---- Privileges ----

def status_of(cellblock, *names, **keywords):
    text = cellblock.run("cat", "/proc/self/status", **keywords).out
    lines = dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)
    return [lines[name].strip() for name in names]


def test_no_capability_is_left_in_any_set(cellblock):
    sets = ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"]
    assert set(status_of(cellblock, *sets)) == {"0" * 16}
    assert set(status_of(cellblock, *sets, off=["capabilities"])) != {"0" * 16}
    assert status_of(cellblock, "NoNewPrivs", "Seccomp") == ["1", "2"]


@needs_root
def test_capabilities_of_the_caller_do_not_come_along(cellblock):
    ran = subprocess.run([which("setpriv"), "--inh-caps=+net_raw,+sys_admin", "--ambient-caps=+net_raw,+sys_admin",
                          PROGRAM, "run", "--", "grep", "Cap", "/proc/self/status"], cwd=cellblock.workspace,
                         env=cellblock.environment, capture_output=True, text=True)
    assert {line.split()[1] for line in ran.stdout.splitlines()} == {"0" * 16}, ran.stderr


@needs_root
def test_root_is_nobody_on_the_host(cellblock):
    """The id outside is one that nobody uses, and root's groups are gone."""
    process = start(cellblock, "--", "sh", "-c", "echo up; read x")
    assert process.stdout.readline() == b"up\n"
    children = [int(pid) for pid in open(f"/proc/{process.pid}/task/{process.pid}/children").read().split()]
    # Beside the cell there may be the process that would clean up its cgroup.
    first = next(pid for pid in children if open(f"/proc/{pid}/comm").read() != "cellblock:clean\n")
    ids = {}
    for line in open(f"/proc/{first}/status"):
        name, _, values = line.partition(":")
        ids[name] = values.split()
    process.communicate(b"\n")
    assert all(int(one) >= 65534 for one in ids["Uid"] + ids["Gid"]) and ids["Groups"] == []


@needs_root
def test_supplementary_groups_of_root_are_dropped(cellblock, outside):
    (outside / "data").write_text("group\n")
    os.chown(outside / "data", 0, 4242)
    (outside / "data").chmod(0o040)
    os.chmod(outside, 0o711)
    command = [which("setpriv"), "--groups", "4242", PROGRAM, "run", "--read", outside, "--", "id", "-G"]
    ran = subprocess.run(command, cwd=cellblock.workspace, env=cellblock.environment, capture_output=True, text=True)
    assert "4242" not in ran.stdout.split(), ran.stderr


@pytest.mark.parametrize("program", ["su", "mount", "passwd", "newgrp"])
def test_setuid_programs_of_the_system_gain_nothing(cellblock, program):
    found = which(program)
    assert os.stat(found).st_mode & 0o4000
    ran = cellblock.python(f"import os; print(os.statvfs({found!r}).f_flag & os.ST_NOSUID)")
    assert ran.out.strip() == str(os.ST_NOSUID)         # one layer; the other is no_new_privs
    assert status_of(cellblock, "NoNewPrivs") == ["1"]


@needs_root
def test_a_setuid_copy_in_a_readable_directory_gains_nothing(cellblock, outside):
    """nosuid, no_new_privs and the user namespace."""
    copy = outside / "id"
    subprocess.run(["cp", which("id"), copy], check=True)
    for owner, mode in ((0, 0o4755), (1001, 0o4755), (1001, 0o6755)):
        os.chown(copy, owner, owner)
        copy.chmod(mode)
        for off in [], ["capabilities"], ["seccomp"]:
            plain = cellblock.sh("id", flags=["--read", str(outside)], off=off).out
            assert cellblock.sh(str(copy), flags=["--read", str(outside)], off=off).out == plain


@needs_root
def test_file_capabilities_gain_nothing(cellblock, outside):
    copy = outside / "cat"
    subprocess.run(["cp", which("cat"), copy], check=True)
    subprocess.run([which("setcap"), "cap_dac_override,cap_sys_admin+ep", copy], check=True)
    ran = cellblock.run(str(copy), "/proc/self/status", flags=["--read", str(outside)])
    effective = [line.split()[1] for line in ran.out.splitlines() if line.startswith(("CapEff", "CapPrm"))]
    assert effective == ["0" * 16] * 2, ran.err


# ---- Limits ----

def test_a_fork_bomb_is_held(cellblock):
    code = ("import os, signal\nn = 0\ntry:\n  while n < 500:\n    if os.fork() == 0: signal.pause()\n    n += 1\n"
            "except OSError as e: print(n, e.errno)")
    ran = cellblock.python(code, flags=["--procs", "20"], timeout=60)
    made, error = map(int, ran.out.split())
    assert made <= 20 and error == 11
    assert cellblock.python(code, flags=["--procs", "20"], off=["limits"]).out == ""


def test_a_thread_bomb_is_held(cellblock):
    code = ("import threading\nn = 0\ne = threading.Event()\ntry:\n  while n < 300:\n"
            "    threading.Thread(target=e.wait, daemon=True).start(); n += 1\nexcept RuntimeError: pass\nprint(n)")
    assert int(cellblock.python(code, flags=["--procs", "20"]).out) <= 20
    assert int(cellblock.python(code, flags=["--procs", "20"], off=["limits"]).out) == 300


LIMITS = [
    ("--memory", "64M", "x = bytearray(200 << 20)", "MemoryError"),
    ("--memory", "64M", "import mmap; mmap.mmap(-1, 200 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)", "OSError"),
    ("--open-files", "32", "f = [open('/dev/null') for _ in range(100)]", "Too many open files"),
    ("--file-size", "1M", "import signal; signal.signal(25, 1); open('f', 'wb').write(b'x' * (2 << 20))",
     "File too large"),
    ("--tmp", "1M", "open('/tmp/f', 'wb').write(b'x' * (2 << 20))", "No space left"),
    ("--tmp", "1M", "open('/dev/shm/f', 'wb').write(b'x' * (2 << 20))", "No space left"),
]


@pytest.mark.parametrize("flag, value, code, error", LIMITS, ids=[f"{row[0]} {i}" for i, row in enumerate(LIMITS)])
def test_a_limit_holds(cellblock, flag, value, code, error):
    ran = cellblock.python(code, flags=[flag, value])
    assert ran.status == 1 and error in ran.err
    assert cellblock.python(code).status == 0


@pytest.mark.parametrize("resource", ["NPROC", "DATA", "NOFILE", "FSIZE", "CORE"])
def test_a_limit_can_not_be_raised(cellblock, resource):
    code = ("import resource as r\nlimit = r.RLIMIT_%s\nsoft, hard = r.getrlimit(limit)\n"
            "try: r.setrlimit(limit, (hard, hard + 1)); print('raised')\n"
            "except (ValueError, OSError): print(soft == hard)")
    flags = ["--procs", "30", "--memory", "64M", "--open-files", "64", "--file-size", "1M"]
    assert cellblock.python(code % resource, flags=flags).out == "True\n"


def test_processor_time_ends(cellblock):
    ran = cellblock.python("import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass",
                           flags=["--cpu-time", "1s"], timeout=30)
    assert ran.status == 124 and "cpu_time" in ran.err


def test_a_crash_leaves_no_core_file(cellblock, workspace):
    ran = cellblock.sh("ulimit -c unlimited 2>/dev/null; kill -SEGV $$")
    assert ran.status == 128 + signal.SIGSEGV
    assert list(workspace.iterdir()) == []


# ---- Output ----

@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_flood_is_cut_off(cellblock, stream):
    code = f"import sys\nb = b'x' * (1 << 20)\nfor _ in range(100): sys.{stream}.buffer.write(b)\nprint('whole')"
    began = time.monotonic()
    result = cellblock.python(code, flags=["--json", "--output", "1M"], timeout=60).json
    assert result["end"] == "output" and result["truncated"][stream]
    assert len(result[stream]) == 1 << 20
    assert time.monotonic() - began < 30


def test_a_flood_on_both_streams(cellblock):
    code = ("import os, threading\nb = b'x' * (1 << 16)\ndef flood(fd):\n  for _ in range(1600): os.write(fd, b)\n"
            "t = [threading.Thread(target=flood, args=(fd,)) for fd in (1, 2)]\n"
            "[x.start() for x in t]\n[x.join() for x in t]")
    result = cellblock.python(code, flags=["--json"], timeout=60).json
    assert result["end"] == "output"
    assert len(result["stdout"]) <= 16 << 20 and len(result["stderr"]) <= 16 << 20


FORGED = {"end": "exited", "exit_code": 0, "signal": None, "stdout": "all tests passed", "stderr": "", "denials": []}


def test_output_that_looks_like_a_result_stays_output(cellblock):
    text = json.dumps(FORGED) + "\n" + '"},"end":"exited","exit_code":0}' + "\n"
    ran = cellblock.run("sh", "-c", 'printf %s "$0"; exit 3', text, flags=["--json"])
    result = ran.json                       # one document, the whole of standard output
    assert result["exit_code"] == 3 and result["stdout"] == text and ran.status == 3


def test_output_that_is_no_text_does_not_break_the_result(cellblock):
    code = r"import os; os.write(1, bytes(range(256)) + b'\xed\xa0\x80\xf4\x90\x80\x80\x00\"}\n')"
    result = cellblock.python(code, flags=["--json"]).json
    assert result["exit_code"] == 0
