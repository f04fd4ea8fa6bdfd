"""The examples, as they were built: with the public header and the shared library."""

import subprocess

import pytest

from conftest import BUILD, ROOT


def run(cellblock, name, *arguments):
    return subprocess.run([BUILD / "examples" / name, *arguments], cwd=cellblock.workspace, env=cellblock.environment,
                          stdin=subprocess.DEVNULL, capture_output=True, timeout=60, text=True)


def test_minimal(cellblock):
    done = run(cellblock, "minimal")
    assert (done.returncode, done.stdout, done.stderr) == (0, "42\n", "")


def test_minimal_with_a_program(cellblock):
    done = run(cellblock, "minimal", "sh", "-c", "echo out; echo err >&2; test -e /etc/shadow; exit 7")
    assert (done.returncode, done.stdout, done.stderr) == (7, "out\n", "err\n")


def test_minimal_without_a_program(cellblock):
    done = run(cellblock, "minimal", "no-such-program")
    assert done.returncode == 125 and "no-such-program" in done.stderr


def test_poll_loop(cellblock):
    done = run(cellblock, "poll_loop")
    assert (done.returncode, done.stderr) == (0, "")
    for said in ('cell 0: exited, status 0, said "42\n"\n', 'cell 1: exited, status 3, said ""\n',
                 'cell 2: signaled, status 139, said ""\n'):
        assert said in done.stdout
    assert done.stdout.endswith('cell 3: cancelled, status 137, said ""\n'), "the one that the timer ended comes last"


@pytest.mark.parametrize("name", ["minimal", "poll_loop"])
def test_only_the_public_header(name):
    included = [line.split()[1] for line in (ROOT / "examples" / f"{name}.c").read_text().splitlines()
                if line.startswith("#include")]
    assert included[0] == "<cellblock.h>" and all(entry.startswith("<") for entry in included)
