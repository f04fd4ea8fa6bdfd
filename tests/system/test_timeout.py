"""Wall time: TERM first, so that the program can clean up; then KILL, for everything."""

import signal
import time

import pytest


def test_the_program_can_clean_up(cellblock, workspace):
    script = "trap 'echo cleaned > cleaned; exit 0' TERM; sleep 1000 & wait"
    ran = cellblock.sh(script, flags=["--timeout", "300ms"], timeout=20)
    assert ran.status == 124
    assert (workspace / "cleaned").read_text() == "cleaned\n"


def test_one_that_ignores_it_is_killed(cellblock):
    before = time.monotonic()
    ran = cellblock.sh("trap '' TERM; echo deaf; while :; do sleep 1; done", flags=["--timeout", "300ms"], timeout=20)
    assert (ran.status, ran.out) == (124, "deaf\n")
    assert time.monotonic() - before < 10


def test_everything_it_started_is_killed_too(cellblock):
    """Returns only when nobody holds the pipe any more."""
    script = "for i in 1 2 3; do (trap '' TERM HUP INT; exec sleep 1000) & done; setsid sleep 1000 & wait"
    assert cellblock.sh(script, flags=["--timeout", "300ms"], timeout=20).status == 124


def test_a_program_that_stopped_itself(cellblock):
    assert cellblock.sh("kill -STOP $$", flags=["--timeout", "300ms"], timeout=20).status == 124


def test_quick_enough(cellblock):
    ran = cellblock.sh("echo quick", flags=["--timeout", "1h"])
    assert (ran.status, ran.out) == (0, "quick\n")


def test_the_end_in_the_result(cellblock):
    document = cellblock.sh("trap 'exit 5' TERM; sleep 1000 & wait", flags=["--json", "--timeout", "300ms"]).json
    assert document["end"] == "timeout"
    assert document["usage"]["wall_ms"] >= 300


def test_from_a_policy(cellblock, workspace):
    (workspace / "p.jsonc").write_text('{"cellblock": 1, "limits": {"wall_time": "200ms"}}')
    assert cellblock.run("sleep", "1000", flags=["--policy", "p.jsonc"], timeout=20).status == 124


def test_cpu_time(cellblock):
    ran = cellblock.sh("while :; do :; done", flags=["--cpu-time", "1s"], timeout=30)
    assert ran.status == 124 and "cpu_time" in ran.err


@pytest.mark.parametrize("flags, code", [
    (["--memory", "64M"], "bytearray(256 << 20)"),
    (["--open-files", "32"], "[open('/dev/null') for _ in range(64)]"),
    (["--tmp", "8M"], "open('/tmp/f', 'wb').write(bytes(16 << 20))"),
    (["--tmp", "8M"], "open('/dev/shm/f', 'wb').write(bytes(16 << 20))"),
    (["--procs", "8"], "import os, signal\nfor _ in range(16):\n if os.fork() == 0: signal.pause()"),
])
def test_a_limit_is_felt(cellblock, flags, code):
    assert cellblock.python(code).status == 0 or "fork" in code
    ran = cellblock.python(code, flags=flags)
    assert ran.status == 1 and "Error" in ran.err


def test_file_size(cellblock, workspace):
    ran = cellblock.sh("head -c 2M /dev/zero > f", flags=["--file-size", "1M"])
    assert ran.status != 0
    assert (workspace / "f").stat().st_size == 1 << 20
