"""Signals: those that are sent to cellblock are meant for the program; and a cell never outlives its supervisor."""

import os
import pty
import signal
import subprocess

import pytest

from conftest import PROGRAM

TRAP = """
import signal, sys
wanted = int(sys.argv[1])
signal.pthread_sigmask(signal.SIG_BLOCK, [wanted])
print("ready", flush=True)
print("got", int(signal.sigwait([wanted])), flush=True)
sys.exit(7)
"""


def start(cellblock, *program, flags=(), **keywords):
    keywords.setdefault("stdin", subprocess.DEVNULL)
    process = subprocess.Popen([PROGRAM, "run", *flags, "--", *program], cwd=cellblock.workspace,
                               env=cellblock.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
                               **keywords)
    assert process.stdout.readline() == b"ready\n"
    return process


FORWARDED = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2]


@pytest.mark.parametrize("number", FORWARDED)
def test_the_program_handles_it(cellblock, number):
    process = start(cellblock, "/usr/bin/python3", "-c", TRAP, str(int(number)))
    process.send_signal(number)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out, err) == (7, b"got %d\n" % number, b"")


@pytest.mark.parametrize("number", FORWARDED)
def test_the_program_does_not_handle_it(cellblock, number):
    process = start(cellblock, "sh", "-c", "echo ready; exec sleep 1000")
    process.send_signal(number)
    process.communicate(timeout=20)
    assert process.returncode == 128 + number


def test_the_shell_cleans_up(cellblock, workspace):
    process = start(cellblock, "sh", "-c", "trap 'echo bye > bye; exit 9' TERM; echo ready; sleep 1000 & wait")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=20)
    assert process.returncode == 9
    assert (workspace / "bye").read_text() == "bye\n"


def test_ctrl_c_on_a_terminal(cellblock):
    """The key is passed on to the program's own terminal, which makes the signal. (More: test_terminal.py.)"""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(cellblock.workspace)
        os.execve(PROGRAM, [str(PROGRAM), "run", "--", "sh", "-c", "echo ready; exec sleep 1000"],
                  cellblock.environment)
    seen = b""
    while b"ready" not in seen:
        seen += os.read(terminal, 1000)
    os.write(terminal, b"\x03")
    status = os.waitpid(pid, 0)[1]
    os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 130


def test_a_killed_supervisor_takes_its_cell_along(cellblock):
    process = start(cellblock, "sh", "-c", "(trap '' TERM HUP; exec sleep 1000) & echo ready; exec sleep 1000")
    process.kill()
    # Nobody holds the pipe any more once every process of the cell is gone.
    assert process.communicate(timeout=20) == (b"", b"")
    assert process.returncode == -signal.SIGKILL


def test_blocked_and_ignored_signals_of_the_caller(cellblock):
    """The program starts with no signal blocked."""
    def block():
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGUSR1, signal.SIGCHLD])

    code = "import signal; print('ready'); print(signal.pthread_sigmask(signal.SIG_BLOCK, []))"
    process = start(cellblock, "/usr/bin/python3", "-c", code, preexec_fn=block)
    assert process.communicate(timeout=20)[0] == b"set()\n"


def test_one_that_the_caller_ignores_stays_ignored(cellblock):
    """As under nohup."""
    def ignore():
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    code = "import signal; print('ready', flush=True); input(); print(signal.getsignal(signal.SIGHUP).name)"
    process = start(cellblock, "/usr/bin/python3", "-c", code, preexec_fn=ignore, stdin=subprocess.PIPE)
    process.send_signal(signal.SIGHUP)
    assert process.communicate(b"\n", timeout=20)[0] == b"SIG_IGN\n"


def test_stop_and_go_on(cellblock):
    """SIGCONT sent to cellblock reaches a program that stopped itself."""
    script = "echo ready; kill -STOP $$; echo went on"
    process = start(cellblock, "sh", "-c", script)
    while process.poll() is None:
        # There is no event for "has stopped" that an outsider can wait for; SIGCONT to a running program is harmless.
        process.send_signal(signal.SIGCONT)
        try:
            process.wait(timeout=0.05)
        except subprocess.TimeoutExpired:
            continue
    assert (process.stdout.read(), process.returncode) == (b"went on\n", 0)
