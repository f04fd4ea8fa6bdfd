"""On a terminal: the program has one of its own, and everything works as it does without a cell."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import time

import pytest

from conftest import PROGRAM, needs_user, which
from library import caller
from terminals import TIERS, Shell, Terminal, first_processes, run

PROMPT = b"inside> "
TWO_LINES = b"one\r\ntwo\r\n"


def inner_shell(cellblock, flags=(), **keywords):
    """bash in a cell, with job control."""
    terminal = run(cellblock, "bash", "--norc", "--noprofile", "-i",
                   flags=["--env", "PS1=" + PROMPT.decode(), *flags], env={"TERM": "dumb"}, **keywords)
    terminal.expect(PROMPT)
    return terminal


def do(terminal, line):
    terminal.type(line + b"\r")
    terminal.expect(line + b"\r\n")
    return terminal.expect(PROMPT)[:-len(PROMPT)]


# ---- What the program finds ----

def test_it_is_a_terminal(cellblock):
    script = "test -t 0 && test -t 1 && test -t 2 && tty && stty size"
    with run(cellblock, "sh", "-c", script, size=(33, 101)) as terminal:
        assert terminal.wait() == 0
        assert terminal.shown == b"/dev/pts/0\r\n33 101\r\n"


@pytest.mark.parametrize("tier", TIERS)
def test_it_can_be_opened_by_name(cellblock, tier):
    script = "echo one > /dev/tty; echo two > $(tty); echo three > /dev/stdout; echo four > /dev/stderr"
    with run(cellblock, "sh", "-c", script, flags=TIERS[tier]) as terminal:
        assert terminal.wait() == 0
        assert terminal.shown == b"one\r\ntwo\r\nthree\r\nfour\r\n"


def test_settings_are_the_callers(cellblock):
    with Shell(cellblock) as shell:
        shell.do(b"stty -ixon intr ^B erase ^H")
        shown = shell.do(b"$C run -- stty -a")
        assert shown == shell.do(b"stty -a")
        assert b"intr = ^B" in shown and b"-ixon" in shown


def test_the_size_follows(cellblock):
    code = ("import os, signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGWINCH])\n"
            "print('ready', flush=True)\nsignal.sigwait([signal.SIGWINCH])\nprint(*os.get_terminal_size())")
    with run(cellblock, "/usr/bin/python3", "-c", code) as terminal:
        terminal.expect(b"ready\r\n")
        terminal.resize(50, 132)
        terminal.expect(b"132 50\r\n")
        assert terminal.wait() == 0


def test_the_program_is_in_the_foreground(cellblock):
    code = "import os; print(os.tcgetpgrp(0) == os.getpgrp() == os.getpid())"
    with run(cellblock, "/usr/bin/python3", "-c", code) as terminal:
        assert terminal.wait() == 0
        assert terminal.shown == b"True\r\n"


def stdin(case):
    """With the terminal as standard input too, the caller's is raw; else it does its own part."""
    return {} if case == "terminal" else {0: subprocess.DEVNULL}


@pytest.mark.parametrize("case", ["terminal", "other"])
def test_lines_end_as_they_do_without_a_cell(cellblock, case):
    script = "echo one; echo two; printf 'x\\r\\ny\\rz\\n'; printf 'end\\r'"
    with Terminal(["sh", "-c", script], cellblock) as bare:
        with run(cellblock, "sh", "-c", script, streams=stdin(case)) as terminal:
            assert (bare.wait(), terminal.wait()) == (0, 0)
            assert terminal.shown == bare.shown == b"one\r\ntwo\r\nx\r\r\ny\rz\r\nend\r"


@pytest.mark.parametrize("case", ["terminal", "other"])
def test_much_output_is_complete(cellblock, case):
    expected = b"".join(b"%d\r\n" % number for number in range(150000))
    with run(cellblock, "/usr/bin/python3", "-c", "for i in range(150000): print(i)", streams=stdin(case)) as terminal:
        assert terminal.wait() == 0
        assert len(expected) > 1 << 20 and terminal.shown == expected


# ---- Interactive programs ----

@pytest.mark.parametrize("tier", TIERS)
def test_job_control(cellblock, tier):
    with inner_shell(cellblock, flags=TIERS[tier]) as terminal:
        assert b"no job control" not in terminal.shown
        do(terminal, b"sleep 1000 &")
        assert b"Running" in do(terminal, b"jobs")
        do(terminal, b"kill %1; wait")
        # cat answers: it reads, so it is in the foreground.
        terminal.type(b"echo re''ady; cat\r")
        terminal.expect(b"ready\r\n")
        terminal.type(b"hello\r")
        terminal.expect(b"hello\r\nhello\r\n")
        terminal.type(b"\x1a")
        terminal.expect(b"Stopped")
        terminal.expect(PROMPT)
        terminal.type(b"fg\r")
        terminal.expect(b"fg\r\ncat\r\n")
        terminal.type(b"again\r")
        terminal.expect(b"again\r\nagain\r\n")
        terminal.type(b"\x03")
        terminal.expect(PROMPT)
        assert do(terminal, b"echo $?") == b"130\r\n"
        terminal.type(b"exit 7\r")
        assert terminal.wait() == 7
        assert terminal.settings == terminal.before


def test_ctrl_z_without_a_shell_inside(cellblock):
    """Nobody could let the program go on: it is not stopped for good."""
    with run(cellblock, "cat") as terminal:
        terminal.until(lambda: terminal.is_raw)
        terminal.type(b"one\r")
        terminal.expect(b"one\r\none\r\n")
        terminal.type(b"\x1a")
        terminal.expect(b"^Z")
        terminal.type(b"two\r\x04")
        terminal.expect(b"two\r\ntwo\r\n")
        assert terminal.wait() == 0


def test_ctrl_c_and_ctrl_backslash(cellblock):
    for key, number in (b"\x03", signal.SIGINT), (b"\x1c", signal.SIGQUIT):
        with run(cellblock, "sh", "-c", "echo ready; exec sleep 1000") as terminal:
            terminal.expect(b"ready\r\n")
            assert terminal.is_raw
            terminal.type(key)
            assert terminal.wait() == 128 + number
            assert terminal.settings == terminal.before


def test_ctrl_c_as_the_program_wants_it(cellblock):
    script = "trap 'echo caught; exit 5' INT; echo ready; while :; do sleep 0.02; done"
    with run(cellblock, "sh", "-c", script) as terminal:
        terminal.expect(b"ready\r\n")
        terminal.type(b"\x03")
        terminal.expect(b"caught\r\n")
        assert terminal.wait() == 5


def test_end_of_file(cellblock):
    with run(cellblock, "sh", "-c", "cat; echo between; cat; echo after") as terminal:
        terminal.until(lambda: terminal.is_raw)
        terminal.type(b"one\r\x04")
        terminal.expect(b"one\r\none\r\nbetween\r\n")
        terminal.type(b"two\r\x04")
        terminal.expect(b"two\r\ntwo\r\nafter\r\n")
        assert terminal.wait() == 0


def test_python_with_its_line_editor(cellblock):
    with run(cellblock, "/usr/bin/python3", "-i") as terminal:
        terminal.expect(b">>> ")
        terminal.type(b"6 * 7\r")
        terminal.expect(b"42\r\n")
        terminal.expect(b">>> ")
        terminal.type(b"\x1b[A + 1\r")  # arrow up: the line before
        terminal.expect(b"43\r\n")
        terminal.expect(b">>> ")
        terminal.type(b"\x04")
        assert terminal.wait() == 0
        assert terminal.settings == terminal.before


def test_a_pager(cellblock, workspace):
    which("less")
    (workspace / "text").write_text("".join(f"line {number}\n" for number in range(1000)))
    with run(cellblock, "less", "text") as terminal:
        terminal.expect(b"line 20")
        terminal.type(b"G")
        terminal.expect(b"line 999")
        terminal.type(b"g")
        terminal.expect(b"line 20")
        terminal.type(b"/line 555\r")
        terminal.expect(b"line 556")
        terminal.type(b"q")
        assert terminal.wait() == 0
        assert terminal.settings == terminal.before


FULL_SCREEN = """
import curses
def main(screen):
    while True:
        screen.clear()
        screen.addstr(0, 0, "size %d %d" % screen.getmaxyx())
        screen.refresh()
        key = screen.getch()
        if key == ord("q"):
            return
        if key == curses.KEY_DOWN:
            screen.addstr(5, 5, "down was pressed")
            screen.refresh()
            screen.getch()
curses.wrapper(main)
"""


def test_a_full_screen_program(cellblock):
    with run(cellblock, "/usr/bin/python3", "-c", FULL_SCREEN) as terminal:
        terminal.expect(b"size 24 80")
        terminal.type(b"\x1bOB")
        terminal.expect(b"down was pressed")
        terminal.type(b"x")
        terminal.expect(b"size")
        terminal.resize(40, 120)
        terminal.type(b"z")  # curses may miss a signal that comes just before it waits, until the next key
        terminal.expect(b"size 40 120")
        terminal.type(b"q")
        assert terminal.wait() == 0
        assert terminal.settings == terminal.before


def test_a_terminal_in_the_terminal(cellblock):
    which("script")
    with run(cellblock, "script", "-q", "-c", "tty; stty size; read x; echo got $x", "/dev/null") as terminal:
        terminal.expect(b"/dev/pts/1\r\n24 80\r\n")
        terminal.type(b"words\r")
        terminal.expect(b"got words\r\n")
        assert terminal.wait() == 0


# ---- The caller's terminal afterwards ----

@pytest.mark.parametrize("script, status", [
    ("stty raw -echo; exit 3", 3),
    ("stty raw -echo; kill -KILL $$", 137),
    ("stty raw -echo; kill -SEGV $$", 139),
    ("stty -icanon; nonexistent-program", 127),
])
def test_settings_are_as_before(cellblock, script, status):
    with run(cellblock, "sh", "-c", script) as terminal:
        assert terminal.wait() == status
        assert terminal.settings == terminal.before


def test_the_shell_is_in_the_foreground_again(cellblock):
    with Shell(cellblock) as shell:
        before = shell.settings
        for line in (b"$C run -- bash --norc -i -c 'cat & exit'", b"$C run -- sh -c 'kill -KILL $$'", b"$C run -- x",
                     b"$C run -- stty raw"):
            shell.do(line)
            assert (shell.foreground, shell.settings) == (shell.process.pid, before)


def test_settings_after_a_start_that_failed(cellblock):
    for arguments, status in (["nonexistent"], 127), (["/etc/passwd"], 126):
        with run(cellblock, *arguments) as terminal:
            assert terminal.wait() == status
            assert terminal.settings == terminal.before
            assert b"\n" not in terminal.shown.replace(b"\r\n", b"")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT])
def test_settings_after_a_signal_to_cellblock(cellblock, number):
    with run(cellblock, "sh", "-c", "stty -echo; echo ready; exec sleep 1000") as terminal:
        terminal.expect(b"ready\r\n")
        assert terminal.is_raw
        terminal.process.send_signal(number)
        assert terminal.wait() == 128 + number
        assert terminal.settings == terminal.before


def test_settings_after_a_limit(cellblock):
    with run(cellblock, "yes", flags=["--output", "1000"]) as terminal:
        assert terminal.wait() == 137
        assert terminal.settings == terminal.before
        assert 600 < len(terminal.shown.partition(b"cellblock:")[0].replace(b"\r", b"")) <= 1000
    with run(cellblock, "sleep", "1000", flags=["--timeout", "200ms"]) as terminal:
        assert terminal.wait() == 124
        assert terminal.settings == terminal.before


def test_the_person_hangs_up(cellblock, workspace):
    script = "trap 'echo bye > bye; exit' HUP; echo ready; while :; do sleep 0.02; done"
    with run(cellblock, "sh", "-c", script) as terminal:
        terminal.expect(b"ready\r\n")
        terminal.close()
        terminal.process.wait(timeout=30)
    assert (workspace / "bye").read_text() == "bye\n"


def test_what_is_typed_after_its_end_is_left_alone(cellblock, workspace):
    """Even if the supervisor has not noticed the end yet: it is stopped meanwhile."""
    with run(cellblock, "sh", "-c", "echo ready; while ! test -e go; do sleep 0.02; done") as terminal:
        terminal.expect(b"ready\r\n")
        first, = first_processes(terminal.process.pid)
        terminal.process.send_signal(signal.SIGSTOP)
        (workspace / "go").touch()
        terminal.until(lambda: "\nState:\tZ" in pathlib.Path(f"/proc/{first}/status").read_text())
        terminal.type(b"for the shell\r")
        terminal.process.send_signal(signal.SIGCONT)
        assert terminal.wait() == 0
        os.set_blocking(terminal.inside, False)
        assert os.read(terminal.inside, 100).replace(b"\r", b"\n") == b"for the shell\n"
        assert terminal.settings == terminal.before


def test_a_terminal_that_nobody_reads_from(cellblock):
    """It takes no more output. That does not keep the supervisor from ending the cell in time."""
    with run(cellblock, "yes", flags=["--timeout", "1s"]) as terminal:
        deadline = time.monotonic() + 30
        for there in True, False:
            while bool(first_processes(terminal.process.pid)) != there:
                assert time.monotonic() < deadline
                time.sleep(0.01)
        assert terminal.process.poll() is None, "what was shown is still to be read"
        assert terminal.wait() == 124


# ---- Only some streams are a terminal ----

@pytest.fixture
def pipe():
    ends = os.pipe()
    yield ends
    for end in ends:
        with contextlib.suppress(OSError):
            os.close(end)


def test_stdin_is_a_pipe(cellblock, pipe):
    """Colours work, input stays as it is, and the terminal is left alone: others of the pipeline write there too."""
    os.write(pipe[1], b"from the pipe\n")
    with run(cellblock, "sh", "-c", "test -t 1 && ! test -t 0 && cat && echo ready && read x",
             streams={0: pipe[0]}) as terminal:
        os.close(pipe[0])
        assert terminal.expect(b"pipe\r\n") == b"from the pipe\r\n"
        os.close(pipe[1])
        terminal.expect(b"ready\r\n")
        assert terminal.wait() == 1
        assert terminal.settings == terminal.before


def test_ctrl_c_with_a_pipe_as_stdin(cellblock, pipe):
    with run(cellblock, "sh", "-c", "echo ready; exec sleep 1000", streams={0: pipe[0]}) as terminal:
        terminal.expect(b"ready\r\n")
        assert terminal.settings == terminal.before
        terminal.type(b"\x03")
        assert terminal.wait() == 130


def test_a_pager_with_a_pipe_as_stdin(cellblock, pipe):
    """Its keys come from /dev/tty."""
    which("less")
    os.write(pipe[1], b"".join(b"line %d\n" % number for number in range(1000)))
    os.close(pipe[1])
    with run(cellblock, "less", streams={0: pipe[0]}) as terminal:
        terminal.expect(b"line 20")
        terminal.until(lambda: terminal.is_raw)
        terminal.type(b"G")
        terminal.expect(b"line 999")
        terminal.type(b"q")
        assert terminal.wait() == 0
        assert terminal.settings == terminal.before


def test_a_full_screen_program_with_a_pipe_as_stdin(cellblock, pipe):
    code = "import os; os.dup2(os.open('/dev/tty', os.O_RDWR), 0)\n" + FULL_SCREEN
    with run(cellblock, "/usr/bin/python3", "-c", code, streams={0: pipe[0]}) as terminal:
        terminal.expect(b"size 24 80")
        terminal.type(b"\x1bOB")
        terminal.expect(b"down was pressed")
        terminal.type(b"xq")
        assert terminal.wait() == 0
        assert terminal.settings == terminal.before


@pytest.mark.parametrize("tier", TIERS)
def test_stdout_is_a_file(cellblock, tmp_path, tier):
    code = "import getpass; print(input('name? '), getpass.getpass('word? '))"
    with open(tmp_path / "out", "w+b") as out:
        with run(cellblock, "/usr/bin/python3", "-c", code, streams={1: out}, flags=TIERS[tier]) as terminal:
            terminal.until(lambda: terminal.is_raw)
            terminal.type(b"somebody\r")
            shown = terminal.expect(b"word? ")
            terminal.type(b"secret\r")
            assert terminal.wait() == 0
            assert b"somebody\r\n" in shown, "what is typed is shown"
            assert b"secret" not in terminal.shown, "but not where the program turned that off"
            assert terminal.settings == terminal.before
        assert (tmp_path / "out").read_bytes() == b"name? somebody secret\n"


def test_with_json(cellblock, tmp_path):
    """Output is collected; what is typed still gets there, and is echoed on the terminal."""
    with open(tmp_path / "out", "w+b") as out:
        with run(cellblock, "sh", "-c", "read x; echo got $x", flags=["--json"], streams={1: out}) as terminal:
            terminal.until(lambda: terminal.is_raw)
            terminal.type(b"words\r")
            assert terminal.wait() == 0
            assert terminal.shown == b"words\r\n"
        assert json.loads((tmp_path / "out").read_text())["stdout"] == "got words\n"


def test_stderr_alone_is_a_terminal(cellblock, pipe):
    script = "test -t 2 && ! test -t 0 && ! test -t 1 && echo out && echo err >&2 && stty size < /dev/tty"
    with run(cellblock, "sh", "-c", script, streams={0: subprocess.DEVNULL, 1: pipe[1]}) as terminal:
        os.close(pipe[1])
        assert terminal.wait() == 0
        assert (terminal.shown, os.read(pipe[0], 100)) == (b"err\r\n", b"out\n24 80\n")


def test_another_terminal_as_stderr(cellblock):
    """It is no way in either: what goes there is relayed as to a file."""
    with run(cellblock, "true") as other:
        assert other.wait() == 0
        with run(cellblock, "sh", "-c", "test -t 1 && ! test -t 2 && echo err >&2; echo out",
                 streams={2: other.inside}) as terminal:
            assert terminal.wait() == 0
            assert terminal.shown == b"out\r\n"
        other.expect(b"err\r\n")


def test_output_limit_holds_for_stderr_too(cellblock, pipe):
    with run(cellblock, "sh", "-c", "yes >&2", flags=["--output", "1000"], streams={1: pipe[1]}) as terminal:
        assert terminal.wait() == 137
        assert 600 < len(terminal.shown.partition(b"cellblock:")[0].replace(b"\r", b"")) <= 1000


def test_it_is_not_the_controlling_terminal(cellblock):
    """As with `su -c`."""
    with run(cellblock, "sh", "-c", "read x; echo got $x", controlling=False) as terminal:
        terminal.until(lambda: terminal.is_raw)
        terminal.type(b"words\r")
        assert terminal.wait() == 0
        assert terminal.shown == b"words\r\ngot words\r\n"
        assert terminal.settings == terminal.before


@needs_user  # root can open every terminal
@pytest.mark.parametrize("controlling", [True, False])
def test_a_terminal_that_can_not_be_opened_again(cellblock, controlling):
    """As after `su`: it belongs to another user."""
    script = "echo ready; read x; echo got $x; seq 1 20000"
    with Terminal(["sh", "-c", 'chmod 0 "$(tty)"; exec "$@"', "sh", PROGRAM, "run", "--", "sh", "-c", script],
                  cellblock, controlling=controlling) as terminal:
        terminal.expect(b"ready\r\n")
        terminal.type(b"words\r")
        terminal.expect(b"got words\r\n")
        assert terminal.wait() == 0
        assert terminal.shown == b"".join(b"%d\r\n" % number for number in range(1, 20001))


# ---- Among other programs, under a shell with job control ----

def test_in_a_pipeline_the_others_keep_the_terminal(cellblock):
    which("less")
    with Shell(cellblock) as shell:
        shell.do(b"TERM=xterm")
        shell.enter(b"$C run -- seq 1 1000 | less")
        shell.expect(b"20\r\n")
        shell.type(b"G")
        shell.expect(b"1000\r\n")
        shell.type(b"q")
        shell.expect(shell.PROMPT)
        assert shell.do(b"echo she''ll") == b"shell\r\n"


def test_in_a_pipeline_lines_stay_lines(cellblock):
    with Shell(cellblock) as shell:
        shown = shell.do(b"$C run -- sh -c 'echo one; sleep 0.1; echo two' | cat")
        assert shown == TWO_LINES
        # The program asks for the terminal while another one writes to it.
        shell.enter(b"$C run -- sh -c 'echo one; read x; echo two $x' | cat")
        shell.expect(b"one\r\n")
        shell.until(lambda: shell.is_raw)
        shell.type(b"x\r")
        assert sorted(shell.expect(shell.PROMPT).split(b"\r\n")) == [shell.PROMPT, b"two x", b"x"]


def test_a_program_that_does_not_read_leaves_what_is_typed(cellblock):
    with Shell(cellblock) as shell:
        shell.enter(b"$C run -- sh -c 'echo ready >&2; sleep 0.3' | cat")
        shell.expect(b"ready\r\n")
        shell.type(b"echo typed ah''ead\r")
        shell.expect(b"typed ahead\r\n")


def test_in_the_background(cellblock, workspace):
    """A job that does not read runs on, whatever the person types meanwhile."""
    with Shell(cellblock) as shell:
        shell.do(b"$C run -- sh -c 'while ! test -e go; do sleep 0.02; done; echo one; echo two' &")
        before = shell.settings
        assert shell.do(b"echo typing on").endswith(b"typing on\r\n")
        assert b"Running" in shell.do(b"jobs")
        (workspace / "go").touch()
        assert shell.expect(b"two\r\n").endswith(TWO_LINES)
        assert b"Stopped" not in shell.do(b"wait; echo $?")
        assert shell.settings == before


def test_a_background_job_that_reads_waits_for_fg(cellblock):
    with Shell(cellblock) as shell:
        shell.do(b"$C run -- sh -c 'echo ready; read x; echo got $x' &")
        shell.expect(b"ready\r\n")
        # It is not for the job, and the job does not get it.
        assert shell.do(b"echo for the she''ll").endswith(b"for the shell\r\n")
        assert b"Running" in shell.do(b"jobs")
        shell.enter(b"fg")
        shell.until(lambda: shell.is_raw)
        shell.type(b"words\r")
        shell.expect(b"got words\r\n")
        shell.expect(shell.PROMPT)
        assert shell.do(b"echo $?") == b"0\r\n"
        assert b" echo " in shell.do(b"stty -a") and b"-echo " not in shell.shown


def test_a_background_job_that_waits_can_be_killed(cellblock):
    with Shell(cellblock) as shell:
        shell.do(b"$C run -- sh -c 'echo ready; read x; echo got $x' &")
        shell.expect(b"ready\r\n")
        assert b"143" in shell.do(b"kill %1; wait %1; echo $?")


def test_a_shell_started_in_the_background(cellblock):
    with Shell(cellblock) as shell:
        shell.do(b"$C run --env PS1='inside> ' -- bash --norc --noprofile -i &")
        shell.enter(b"fg")
        shell.expect(PROMPT)
        shell.type(b"stty -a | grep -o ' icanon'; exit 5\r")
        shell.expect(b" icanon\r\n")
        shell.expect(shell.PROMPT)
        assert shell.do(b"echo $?") == b"5\r\n"


@pytest.mark.parametrize("number", [signal.SIGTSTP, signal.SIGSTOP])
def test_stopped_and_brought_back(cellblock, number):
    with Shell(cellblock) as shell:
        shell.enter(b"$C run -- cat")
        shell.until(lambda: shell.is_raw)
        shell.type(b"one\r")
        shell.expect(b"one\r\none\r\n")
        job, = shell.children
        os.kill(job, number)
        shell.expect(b"Stopped")
        shell.expect(shell.PROMPT)
        assert shell.do(b"echo in the she''ll") == b"in the shell\r\n"
        assert shell.do(b"bg").endswith(b"run -- cat &\r\n")
        assert b"Running" in shell.do(b"jobs")
        shell.enter(b"fg")
        shell.until(lambda: shell.is_raw)
        shell.type(b"two\r\x04")
        shell.expect(b"two\r\ntwo\r\n")
        shell.expect(shell.PROMPT)
        assert b" echo " in shell.do(b"stty -a")


def test_ctrl_z_in_a_pipeline(cellblock, workspace):
    """The terminal is not raw there: it is a key for the person's own shell."""
    with Shell(cellblock) as shell:
        shell.enter(b"$C run -- sh -c 'echo ready >&2; while ! test -e go; do sleep 0.1; done; echo one; echo two' | cat")
        shell.expect(b"ready\r\n")
        shell.type(b"\x1a")
        shell.expect(b"Stopped")
        shell.expect(shell.PROMPT)
        (workspace / "go").touch()
        shell.enter(b"fg")
        assert TWO_LINES in shell.expect(shell.PROMPT)


def test_who_writes_from_the_background_with_tostop(cellblock):
    """As the terminal wants it, the output waits for the foreground. The supervisor itself is never stopped."""
    with Shell(cellblock) as shell:
        shell.do(b"stty tostop")
        shell.do(b"$C run -- sh -c 'echo one; echo two' &")
        assert b"Running" in shell.do(b"sleep 0.5; jobs")
        shell.enter(b"fg")
        assert TWO_LINES in shell.expect(shell.PROMPT)


# ---- From a library, and through its helper ----

LIBRARY = """
class Mine(Options):
    _fields_ = [("foreground", ctypes.c_int)]
import select, signal
policy, cell, result = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
library = Cell.library
assert library.cellblock_policy_new(ctypes.byref(policy), None) == 0
argv = (ctypes.c_char_p * 4)(b"sh", b"-c", sys.argv[2].encode(), None)
options = Mine(size=ctypes.sizeof(Mine), argv=argv, helper=int(sys.argv[1]), helper_path=Cell.program.encode())
assert library.cellblock_start(policy, ctypes.byref(options), ctypes.byref(cell), None) == 0
signal.signal(signal.SIGWINCH, lambda *_: library.cellblock_signal(cell, signal.SIGWINCH, None))
asked = False
while True:
    over = library.cellblock_dispatch(cell, None)
    assert over >= 0
    if over:
        break
    if library.cellblock_reads_terminal(cell) and not asked:
        asked = True
        print("it reads", flush=True)
    select.select([library.cellblock_fd(cell)], [], [])
assert library.cellblock_finish(cell, ctypes.byref(result), None) == 0
print("status", library.cellblock_result_shell_status(result))
"""


@pytest.mark.parametrize("helper", [1, 2], ids=["inside", "helper"])
def test_a_caller_of_the_library(cellblock, helper):
    script = "tty; test -t 0 && read x; echo got $x; while [ \"$(stty size)\" != '30 90' ]; do :; done; exit 6"
    with Terminal(caller(LIBRARY, str(helper), script), cellblock) as terminal:
        terminal.until(lambda: b"it reads\r\n" in terminal.shown and b"/dev/pts/0\r\n" in terminal.shown)
        assert terminal.settings == terminal.before, "those are the caller's business"
        terminal.type(b"words\r")
        terminal.expect(b"got words\r\n")
        terminal.resize(30, 90)
        terminal.expect(b"status 6\r\n")
        assert terminal.wait() == 0


@pytest.mark.parametrize("helper", [1, 2], ids=["inside", "helper"])
def test_the_end_of_input_of_a_caller_of_the_library(cellblock, helper):
    """Its terminal is not raw, so Ctrl-D is an end of file there already."""
    with Terminal(caller(LIBRARY, str(helper), "cat; echo between; cat; echo after"), cellblock) as terminal:
        terminal.expect(b"it reads\r\n")
        terminal.type(b"\x04")
        terminal.expect(b"between\r\n")
        terminal.type(b"\x04")
        terminal.expect(b"after\r\nstatus 0\r\n")
        assert terminal.wait() == 0
