"""Supervision: what the program said arrives, whole or up to the end that it met; who is left behind holds nothing up;
and what can't be delivered is not passed over in silence."""

import fcntl
import hashlib
import os
import signal
import socket
import subprocess
import threading
import time

import pytest

from conftest import PROGRAM

F_ADD_SEALS, F_SEAL_GROW = 1033, 4


def popen(cellblock, *arguments, **keywords):
    return subprocess.Popen([PROGRAM, "run", *arguments], cwd=cellblock.workspace, env=cellblock.environment,
                            **keywords)


# A daemon as they are made: two forks and a session of its own, deaf to what can be ignored, with the streams kept.
DAEMON = """
import os, signal, sys, time
def daemon():
    if os.fork() == 0:
        os.setsid()
        for number in signal.SIGTERM, signal.SIGHUP, signal.SIGINT:
            signal.signal(number, signal.SIG_IGN)
        if os.fork():
            os._exit(0)
        open("daemon", "w").close()
        while True:
            signal.pause()
daemon()
while not os.path.exists("daemon"):
    time.sleep(0.001)
print("said", flush=True)
print("complained", file=sys.stderr, flush=True)
"""


class TestLeftBehind:
    @pytest.mark.parametrize("flags", [[], ["--json"]], ids=["relayed", "collected"])
    def test_a_daemon_that_holds_the_streams(self, cellblock, flags):
        ran = cellblock.python(DAEMON, flags=flags, timeout=20)
        said = (ran.json["stdout"], ran.json["stderr"]) if flags else (ran.out, ran.err)
        assert (ran.status, *said) == (0, "said\n", "complained\n")

    def test_a_daemon_when_the_time_is_up(self, cellblock):
        code = DAEMON + "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True: signal.pause()"
        began = time.monotonic()
        ran = cellblock.python(code, flags=["--json", "--timeout", "1s"], timeout=20)
        assert (ran.status, ran.json["end"]) == (124, "timeout")
        assert (ran.json["stdout"], ran.json["stderr"]) == ("said\n", "complained\n")
        assert time.monotonic() - began < 10

    def test_hundreds_of_them(self, cellblock):
        script = "i=0; while [ $i -lt 200 ]; do (setsid sleep 1000 &) ; i=$((i + 1)); done; echo made"
        assert cellblock.sh(script, timeout=60).out == "made\n"

    def test_processes_that_are_being_made_at_the_end(self, cellblock):
        """A chain in which each starts the next and ends: there is never a list of them that is right."""
        script = ("chain() { (setsid sh -c 'while :; do (: &) ; done' &); }; chain; chain; chain; echo over; "
                  "exec 1>&- 2>&-; exit 3")
        ran = cellblock.sh(script, flags=["--procs", "200"], timeout=30)
        assert (ran.status, ran.out) == (3, "over\n")

    def test_stopped_ones(self, cellblock):
        assert cellblock.sh("sh -c 'kill -STOP $$' & sh -c 'kill -STOP $$' & echo over", timeout=20).out == "over\n"

    def test_the_program_ends_before_its_children_have_spoken(self, cellblock):
        """What was written in time is delivered, however large a pipe is."""
        ran = cellblock.sh("head -c 60000 /dev/zero & wait $!; exit 0", flags=["--json"])
        assert len(ran.json["stdout"]) == 60000


class TestTimeout:
    @pytest.mark.parametrize("flags", [[], ["--json"]], ids=["relayed", "collected"])
    def test_partial_output_is_kept(self, cellblock, flags):
        """From both streams, without a line's end, and what it says when it is told to go."""
        script = ("printf 'half a line'; printf 'a complaint' >&2; trap 'printf \" and a last word\"; exit 0' TERM; "
                  "sleep 1000 & wait")
        ran = cellblock.sh(script, flags=["--timeout", "500ms", *flags], timeout=20)
        said = (ran.json["stdout"], ran.json["stderr"]) if flags else (ran.out, ran.err)
        assert (ran.status, said[0]) == (124, "half a line and a last word") and said[1].startswith("a complaint")

    def test_much_partial_output_is_kept(self, cellblock):
        script = "head -c 3000000 /dev/zero; exec sleep 1000"
        ran = cellblock.sh(script, flags=["--timeout", "1s", "--json"], timeout=20)
        assert (ran.json["end"], len(ran.json["stdout"])) == ("timeout", 3_000_000)

    def test_everybody_ignores_the_request(self, cellblock):
        script = "trap '' TERM; for i in 1 2 3; do (while :; do sleep 1; done) & done; echo deaf; wait"
        began = time.monotonic()
        ran = cellblock.sh(script, flags=["--timeout", "300ms", "--json"], timeout=20)
        assert (ran.status, ran.json["end"], ran.json["stdout"]) == (124, "timeout", "deaf\n")
        assert time.monotonic() - began < 10

    def test_while_nobody_reads(self, cellblock, workspace):
        """The program waits for a reader that does not read: its time is up all the same."""
        reader, writer = os.pipe()
        script = "trap 'echo told >told' TERM; echo $$ >begun; yes"
        process = popen(cellblock, "--timeout", "300ms", "--", "sh", "-c", script, stdin=subprocess.DEVNULL,
                        stdout=writer)
        os.close(writer)
        deadline = time.monotonic() + 20
        while not (workspace / "told").exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        while os.read(reader, 1 << 16):
            pass
        os.close(reader)
        assert process.wait(timeout=20) == 124

    # Each fills the pipe first, so that the supervisor is left with something that it can't deliver.
    UNREAD = {
        "time on the clock": ["--timeout", "500ms"],
        "processor time": ["--cpu-time", "500ms"],
        "output": ["--output", "1M"],
    }

    @pytest.mark.parametrize("stream", ["stdout", "stderr"])
    @pytest.mark.parametrize("limit", UNREAD)
    def test_nobody_ever_reads(self, cellblock, limit, stream):
        """A caller that waits for the end and reads only then: the end comes all the same, soon after the limit was
        passed, and what is in the pipe by then is there to be read."""
        reader, writer = os.pipe()
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 1 << 20 if limit == "output" else 1 << 16)
        script = "yes & while :; do :; done" if stream == "stdout" else "yes >&2 & while :; do :; done"
        began = time.monotonic()
        process = popen(cellblock, *self.UNREAD[limit], "--", "sh", "-c", script, stdin=subprocess.DEVNULL,
                        **{"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, stream: writer})
        os.close(writer)
        process.wait(timeout=30)
        assert process.returncode not in (0, None) and time.monotonic() - began < 20
        assert os.read(reader, 4) == b"y\ny\n"
        os.close(reader)

    def test_standard_input_that_never_ends(self, cellblock):
        reader, writer = os.pipe()
        process = popen(cellblock, "--timeout", "300ms", "--json", "--", "cat", stdin=reader, stdout=subprocess.PIPE)
        os.close(reader)
        os.write(writer, b"begin")
        out = process.communicate(timeout=20)[0]
        os.close(writer)
        assert process.returncode == 124 and b'"stdout":"begin"' in out


# Both streams at once, from two threads, and a number for each that the reader can check.
FLOOD = """
import os, threading
block = bytes(range(256)) * 256
def flood(fd):
    for _ in range({blocks}):
        view = memoryview(block)
        while view:
            view = view[os.write(fd, view):]
threads = [threading.Thread(target=flood, args=(fd,)) for fd in (1, 2)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""
BLOCK = bytes(range(256)) * 256


def digest_of(blocks):
    digest = hashlib.sha1()
    for _ in range(blocks):
        digest.update(BLOCK)
    return digest.hexdigest()


class Reader(threading.Thread):
    """Reads everything, in pieces of that size, and waits for its turn before each."""

    def __init__(self, stream, piece, expected=0, turn=None):
        super().__init__()
        self.fd, self.piece, self.expected, self.turn = stream.fileno(), piece, expected, turn
        self.digest, self.count, self.has_all = hashlib.sha1(), 0, threading.Event()
        self.start()

    def run(self):
        while True:
            if self.turn:
                self.turn()
            data = os.read(self.fd, self.piece)
            if not data:
                return
            self.digest.update(data)
            self.count += len(data)
            if self.count == self.expected:
                self.has_all.set()


def peak_memory(pid):
    with open(f"/proc/{pid}/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("VmHWM"))


class TestFlood:
    @pytest.mark.slow
    def test_relayed_without_a_limit(self, cellblock):
        """100 MB on each stream at once, every byte in its place."""
        blocks = 1600
        process = popen(cellblock, "--", "/usr/bin/python3", "-c", FLOOD.format(blocks=blocks),
                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        readers = [Reader(stream, 1 << 16) for stream in (process.stdout, process.stderr)]
        for reader in readers:
            reader.join(timeout=60)
        assert process.wait(timeout=20) == 0
        assert [reader.digest.hexdigest() for reader in readers] == [digest_of(blocks)] * 2

    @pytest.mark.slow
    def test_to_a_slow_reader(self, cellblock):
        """One stream is read in small pieces, and only when the other is through: nothing is lost, nothing piles up in
        the supervisor, and neither waits for the other."""
        blocks = 400                # 25 MB each
        process = popen(cellblock, "--", "/usr/bin/python3", "-c", FLOOD.format(blocks=blocks),
                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        fast = Reader(process.stderr, 1 << 16, expected=blocks * len(BLOCK))
        peaks = []

        def slowly():
            # Begins when the other stream is through: that must not need this one.
            if not peaks:
                fast.has_all.wait(timeout=60)
            peaks.append(peak_memory(process.pid) if len(peaks) % 100 == 0 else 0)

        slow = Reader(process.stdout, 4000, turn=slowly)
        assert fast.has_all.wait(timeout=60)
        for reader in slow, fast:
            reader.join(timeout=60)
        assert process.wait(timeout=20) == 0
        assert [slow.digest.hexdigest(), fast.digest.hexdigest()] == [digest_of(blocks)] * 2
        assert 0 < max(peaks) < 32 << 20

    @pytest.mark.slow
    def test_collected_up_to_a_limit_on_both(self, cellblock):
        """Each stream up to its limit; the supervisor has room for that, and not for what the program would write."""
        process = popen(cellblock, "--json", "--output", "4M", "--", "/usr/bin/python3", "-c",
                        FLOOD.format(blocks=1600), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        first = os.read(process.stdout.fileno(), 1)
        peak = peak_memory(process.pid)
        document = first + process.communicate(timeout=60)[0]
        assert b'"end":"output"' in document
        assert peak < 256 << 20     # many times the limit, for bytes that are no text; all of it would be gigabytes


class TestDelivery:
    """Standard output is a place that takes no more. For anybody, without a full disk: a file that can't grow."""

    @pytest.fixture
    def full(self):
        fd = os.memfd_create("full", os.MFD_ALLOW_SEALING)
        fcntl.fcntl(fd, F_ADD_SEALS, F_SEAL_GROW)
        yield fd
        os.close(fd)

    def test_bare_the_program_notices(self, full):
        ran = subprocess.run(["sh", "-c", "echo hello"], stdout=full, stderr=subprocess.PIPE)
        assert ran.returncode != 0 and ran.stderr

    @pytest.mark.parametrize("script", ["echo hello", "seq 100000", "echo hello; sleep 0.3; exit 0"])
    def test_lost_output_is_not_success(self, cellblock, full, script):
        ran = cellblock.sh(script, stdout=full, timeout=20)
        assert ran.status != 0
        assert "cellblock: " in ran.err, "and somebody says why"

    def test_lost_errors_are_not_success(self, cellblock, full):
        assert cellblock.sh("echo hello >&2", stderr=full, timeout=20).status != 0

    def test_a_real_full_disk(self, cellblock, full, tmp_path):
        with open("/dev/full", "wb") as device:
            ran = cellblock.sh("echo hello", stdout=device)
        assert ran.status != 0 and ran.err

    def test_nobody_reads(self, cellblock):
        """A closed pipe: as in any pipeline the program is told, and ends by that."""
        reader, writer = os.pipe()
        os.close(reader)
        process = popen(cellblock, "--", "yes", stdin=subprocess.DEVNULL, stdout=writer, stderr=subprocess.PIPE)
        os.close(writer)
        assert process.communicate(timeout=20)[1] == b""
        assert process.returncode == 128 + signal.SIGPIPE

    def test_nobody_reads_and_it_does_not_care(self, cellblock, workspace):
        reader, writer = os.pipe()
        os.close(reader)
        script = "trap '' PIPE; i=0; while [ $i -lt 5000 ]; do echo x; i=$((i + 1)); done 2>/dev/null; echo went on >on"
        process = popen(cellblock, "--", "sh", "-c", script, stdin=subprocess.DEVNULL, stdout=writer)
        os.close(writer)
        process.wait(timeout=30)
        assert (workspace / "on").read_text() == "went on\n"


class TestStandardInput:
    """Each kind, with more than a pipe holds, and with a program that does not read it."""
    SIZE = 1 << 20

    def given(self, kind, tmp_path):
        data = os.urandom(self.SIZE)
        if kind == "file":
            path = tmp_path / "input"
            path.write_bytes(data)
            return open(path, "rb"), data, None
        ours, theirs = socket.socketpair() if kind == "socket" else reversed(os.pipe())
        ours, theirs = [open(end, "r+b" if kind == "socket" else mode, buffering=0) if isinstance(end, int) else end
                        for end, mode in ((ours, "wb"), (theirs, "rb"))]

        def feed():
            try:
                ours.sendall(data) if kind == "socket" else ours.write(data)
            except BrokenPipeError:
                pass
            ours.close()

        thread = threading.Thread(target=feed)
        thread.start()
        return theirs, data, thread

    @pytest.mark.parametrize("kind", ["file", "pipe", "socket"])
    def test_it_arrives(self, cellblock, tmp_path, kind):
        stream, data, thread = self.given(kind, tmp_path)
        process = popen(cellblock, "--", "sha1sum", stdin=stream, stdout=subprocess.PIPE)
        stream.close()
        out = process.communicate(timeout=30)[0]
        if thread:
            thread.join()
        assert out.split()[0].decode() == hashlib.sha1(data).hexdigest()

    @pytest.mark.parametrize("kind", ["file", "pipe", "socket"])
    def test_nobody_wants_it(self, cellblock, tmp_path, kind):
        stream, _, thread = self.given(kind, tmp_path)
        process = popen(cellblock, "--", "echo", "ignored", stdin=stream, stdout=subprocess.PIPE)
        stream.close()
        assert process.communicate(timeout=30)[0] == b"ignored\n"
        if thread:
            thread.join(timeout=30)
        assert process.returncode == 0

    def test_closed(self, cellblock):
        """Reading fails, as it does bare."""
        command = ["sh", "-c", "cat 2>/dev/null; echo $?"]
        ends = [subprocess.run([*before, *command], cwd=cellblock.workspace, env=cellblock.environment,
                               stdout=subprocess.PIPE, preexec_fn=lambda: os.close(0), timeout=20).stdout
                for before in ([], [PROGRAM, "run", "--"])]
        assert ends == [b"1\n"] * 2
