"""The exit status of `cellblock run`: the program's own, 128 + signal, 124, 125, 126, 127."""

import os
import signal

import pytest


def script(path, text, mode=0o755):
    path.write_text(text)
    path.chmod(mode)
    return path


@pytest.mark.parametrize("code", [0, 1, 2, 42, 124, 125, 126, 127, 128, 255])
def test_the_programs_own_code(cellblock, code):
    ran = cellblock.sh(f"exit {code}")
    assert (ran.status, ran.stdout, ran.stderr) == (code, b"", b"")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGABRT, signal.SIGPIPE,
                                    signal.SIGUSR1, signal.SIGXCPU])
def test_a_signal_is_128_more(cellblock, number):
    ran = cellblock.sh(f"kill -{int(number)} $$")
    assert (ran.status, ran.stderr) == (128 + number, b"")


def test_a_child_that_a_signal_ends_is_the_programs_affair(cellblock):
    assert cellblock.sh("sh -c 'kill -9 $$'; echo $?; exit 3").out == "137\n"


def test_time_is_up(cellblock):
    assert cellblock.run("sleep", "100", flags=["--timeout", "100ms"]).status == 124


def test_cellblock_itself_failed(cellblock):
    ran = cellblock.run("true", flags=["--read", "/no/such/place"])
    assert ran.status == 125 and ran.stdout == b""
    assert ran.err.startswith("cellblock: ")
    assert "/no/such/place" in ran.err


def test_not_executable(cellblock, workspace):
    script(workspace / "plain", "echo hello\n", mode=0o644)
    ran = cellblock.run("./plain")
    assert ran.status == 126 and "plain" in ran.err


def test_a_directory(cellblock, workspace):
    (workspace / "folder").mkdir()
    ran = cellblock.run("./folder")
    assert ran.status == 126 and "folder" in ran.err


@pytest.mark.parametrize("content", [b"", b"\0\1\2\3 nothing that a kernel knows", b"\x7fELF broken"])
def test_bad_format(cellblock, workspace, content):
    path = workspace / "odd"
    path.write_bytes(content)
    path.chmod(0o755)
    ran = cellblock.run("./odd")
    assert ran.status == 126 and "odd" in ran.err


def test_not_found_by_name(cellblock):
    ran = cellblock.run("no-such-program-anywhere")
    assert ran.status == 127 and "no-such-program-anywhere" in ran.err


@pytest.mark.parametrize("path", ["./missing", "missing/too", "/missing/too"])
def test_not_found_by_path(cellblock, path):
    ran = cellblock.run(path)
    assert ran.status == 127 and path in ran.err


def test_a_name_on_the_way_that_is_a_file(cellblock, workspace):
    (workspace / "file").write_text("")
    assert cellblock.run("./file/program").status in (126, 127)


def test_on_the_host_but_not_in_the_cell(cellblock, outside):
    program = script(outside / "tool", "#!/bin/sh\necho ran\n")
    ran = cellblock.run("sh", "-c", f"{program}")
    assert ran.status == 127 and ran.stdout == b""


def test_hidden_on_purpose(cellblock, outside):
    program = script(outside / "tool", "#!/bin/sh\necho ran\n")
    ran = cellblock.run(program, flags=["--hide", outside])
    assert ran.status == 127 and ran.stdout == b"" and "tool" in ran.err


def test_an_interpreter_that_is_not_there(cellblock, workspace):
    script(workspace / "tool", "#!/no/such/interpreter\n")
    assert cellblock.run("./tool").status == 127


def test_a_name_that_is_not_executable_is_passed_over_in_path(cellblock, workspace):
    first, second = workspace / "first", workspace / "second"
    first.mkdir()
    second.mkdir()
    script(first / "tool", "#!/bin/sh\necho first\n", mode=0o644)
    script(second / "tool", "#!/bin/sh\necho second\n")
    path = f"{first}:{second}:/usr/bin:/bin"
    assert cellblock.run("tool", env={"PATH": path}).out == "second\n"


def test_only_a_name_that_is_not_executable_in_path(cellblock, workspace):
    script(workspace / "tool", "#!/bin/sh\n", mode=0o644)
    assert cellblock.run("tool", env={"PATH": f"{workspace}:/usr/bin:/bin"}).status == 126


def test_an_empty_program_name(cellblock):
    ran = cellblock.run("")
    assert ran.status in (125, 127) and ran.stderr


def test_no_program(cellblock):
    ran = cellblock.command("run")
    assert ran.status == 125 and "no program" in ran.err


def test_options_after_the_program_are_its_own(cellblock):
    assert cellblock.command("run", "echo", "--json", "-n").out == "--json -n\n"


def test_arguments_arrive_as_they_are(cellblock):
    odd = ["", " ", "a b", "*", "$HOME", "'\"\\", "\n", "ä€😀"]
    ran = cellblock.run("/usr/bin/python3", "-c", "import sys; print(ascii(sys.argv[1:]))", *odd)
    assert ran.out == ascii(odd) + "\n"


def test_an_argument_that_is_not_utf8(cellblock):
    ran = cellblock.run("printf", b"\xff\xfe")
    assert ran.stdout == b"\xff\xfe"


def test_many_arguments(cellblock):
    many = ["x" * 1000] * 1000
    assert cellblock.run("sh", "-c", "echo $#", "sh", *many).out == "1000\n"


def test_pid_1_is_not_the_program(cellblock):
    assert cellblock.sh("test $$ -gt 1 && test $PPID -eq 1 && echo has a parent").out == "has a parent\n"


def test_processes_left_behind_are_gone(cellblock):
    """The pipe that the left-over holds must close: this returns only when nobody has it any more."""
    ran = cellblock.sh("(trap '' TERM HUP; exec sleep 1000) & setsid sleep 1000 & echo done", timeout=20)
    assert (ran.status, ran.out) == (0, "done\n")


def test_unknown_commands(cellblock):
    for arguments in (["walk"], [], ["policy", "burn"], ["--what"]):
        ran = cellblock.command(*arguments)
        assert ran.status == 125 and ran.stderr, arguments


def test_help_and_version(cellblock):
    for arguments in (["--help"], ["run", "--help"], ["doctor", "--help"], ["policy", "--help"], ["version"]):
        ran = cellblock.command(*arguments)
        assert ran.status == 0 and ran.stdout and not ran.stderr, arguments


def test_the_working_directory(cellblock, workspace):
    (workspace / "deep" / "er").mkdir(parents=True)
    ran = cellblock.run("pwd", flags=["--workspace", workspace], cwd=workspace / "deep" / "er")
    assert ran.out == f"{workspace / 'deep' / 'er'}\n"
    assert os.path.isabs(ran.out.strip())
