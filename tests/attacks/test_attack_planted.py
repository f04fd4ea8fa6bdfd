"""Traps that an earlier run has laid for the next one, and streams that lead past the rules.

Each shows first what the trap is made of (the link, the script, the file is really there), then that the next run does
not fall into it.
"""

import json
import os
import socket
import subprocess

import pytest

from conftest import PROGRAM, needs_user

KEY = "SECRET KEY"


def plant(path, text, mode=0o755):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


def run_in(cellblock, directory, *program, **keywords):
    return cellblock.run(*program, cwd=directory, **keywords)


# ---- Programs ----

@pytest.mark.parametrize("line", ["#!/usr/bin/env -S -u {key} sh", "#!{key}"])
def test_a_script_of_an_earlier_workspace_opens_no_file(cellblock, home, workspace, line):
    key = home / ".ssh" / "id_rsa"
    script = home / "earlier" / "bin" / "pytest"
    plant(script, line.format(key=key) + f"\ncat {key}\n")
    for ran in (cellblock.run(script), cellblock.run("pytest", env={"PATH": f"{script.parent}:/usr/bin:/bin"}),
                cellblock.run("cat", key, env={"PATH": f"{script.parent}:/usr/bin:/bin"})):
        assert KEY not in ran.out + ran.err


def test_a_link_of_an_earlier_workspace_opens_no_file(cellblock, home):
    key = home / ".ssh" / "id_rsa"
    tools = home / "earlier"
    tools.mkdir()
    for name in "python3", "node":
        (tools / name).symlink_to(key)
    key.chmod(0o700)
    assert KEY not in cellblock.run("/bin/cat", key, env={"PATH": f"{tools}:/usr/bin:/bin"}).out


def test_planted_marks_of_an_installation(cellblock, home):
    """A workspace called lib, in a project with secrets beside it."""
    project = home / "thing"
    library = project / "lib"
    (library / "rustlib").mkdir(parents=True)
    (project / ".env").write_text(KEY)
    plant(project / "x" / "tool", "#!/bin/sh\n")
    plant(library / "run", f"#!{project}/x/tool\n")
    run_in(cellblock, library, "./run")
    assert KEY not in run_in(cellblock, library, "/bin/cat", project / ".env").out
    shown = run_in(cellblock, library, "./run", flags=["--plan"]).json["root"]
    assert str(project) not in [step["path"] for step in shown]


def test_data_beside_an_installation(cellblock, home):
    local = home / ".local"
    (local / "lib" / "python3.11").mkdir(parents=True)
    (local / "lib" / "python3.11" / "os.py").write_text("")
    plant(local / "bin" / "python3", "#!/bin/sh\ncat $1\n")
    (local / "share" / "keyrings").mkdir(parents=True)
    (local / "share" / "keyrings" / "k").write_text(KEY)
    ran = cellblock.run("python3", local / "share" / "keyrings" / "k", env={"PATH": f"{local}/bin:/usr/bin:/bin"})
    assert ran.status != 0 and KEY not in ran.out


# ---- Rules that the code tries to lift before the next run ----

@needs_user  # root's look at the path is not stopped by modes
def test_a_hidden_path_made_unsearchable(cellblock, outside):
    (outside / "sub").mkdir()
    (outside / "sub" / "secret").write_text(KEY)
    flags = ["--write", outside, "--hide", outside / "sub" / "secret"]
    cellblock.sh(f"chmod 000 {outside}/sub", flags=flags)
    ran = cellblock.sh(f"chmod 700 {outside}/sub; cat {outside}/sub/secret", flags=flags)
    assert KEY not in ran.out
    assert ran.status == 125 and "could not be kept" in ran.err
    (outside / "sub").chmod(0o700)


def test_a_second_name_of_a_protected_file(cellblock, workspace):
    config = workspace / ".mcp.json"
    config.write_text("{}")
    os.link(config, workspace / "notes")
    ran = cellblock.sh("echo evil >notes")
    assert config.read_text() == "{}"
    assert ran.status == 125 and "second name" in ran.err


@pytest.mark.parametrize("names", [(".vscode", ".mcp.json"), (".mcp.json", ".vscode"), (".envrc", ".mcp.json")])
def test_two_protected_names_that_lead_to_one_absent_place(cellblock, workspace, names):
    """One of them is a directory, the other a file: neither may come into being there."""
    for name in names:
        (workspace / name).symlink_to("target")
    cellblock.sh("echo x >target; mkdir target; echo y >other")
    assert not (workspace / "target").exists()
    assert (workspace / "other").exists()


# ---- What is swept ----

@pytest.mark.parametrize("before", ["true", "chmod 555 .git", "chmod 000 .git"])
def test_commondir_is_removed(cellblock, workspace, before):
    subprocess.run(["git", "init", "-q", "."], cwd=workspace, check=True, env=cellblock.environment)
    ran = cellblock.sh(f"echo ../evil >.git/commondir && test -f .git/commondir && {before}", flags=["--json"])
    assert ran.json["exit_code"] == 0        # it can be made …
    assert not (workspace / ".git" / "commondir").exists()
    assert [d["code"] for d in ran.json["denials"]] == ["file.swept"]


# ---- Streams ----

REWRITE = """
import os
for mode in "r+b", "wb":
    try:
        with open("/proc/self/fd/0", mode) as f:
            f.write(b"EVIL")
    except OSError as error:
        print(error.strerror)
"""


@pytest.mark.parametrize("flags", [["--read", "{file}"], ["--hide", "{file}"], []])
def test_a_protected_file_as_standard_input(cellblock, workspace, flags):
    file = workspace / ".mcp.json"
    file.write_text("{}")
    with open(file) as stream:
        cellblock.python(REWRITE, flags=[flag.format(file=file) for flag in flags], stdin=stream)
    assert file.read_text() == "{}"
    # The bytes themselves arrive.
    with open(file) as stream:
        assert cellblock.run("cat", stdin=stream).out == "{}"


def test_output_passed_to_another_process_does_not_hold_the_result(cellblock, workspace):
    """Outside, a process keeps an end of the cell's stdout; the result must neither wait for it nor take its words."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(workspace / "s"))
    listener.listen()
    code = ("import socket; s = socket.socket(socket.AF_UNIX); s.connect('s');"
            "socket.send_fds(s, [b'x'], [1]); s.recv(1); print('done')")
    process = subprocess.Popen([PROGRAM, "run", "--json", "--", "/usr/bin/python3", "-c", code], cwd=workspace,
                               env=cellblock.environment, stdout=subprocess.PIPE)
    peer, _ = listener.accept()
    _, fds, _, _ = socket.recv_fds(peer, 1, 1)
    peer.send(b"g")
    result = json.loads(process.communicate(timeout=20)[0])     # ends although we hold the pipe
    assert (result["end"], result["stdout"]) == ("exited", "done\n")
    with pytest.raises(BrokenPipeError):
        os.write(fds[0], b"forged")
    os.close(fds[0])


# ---- Around the workspace ----

def test_the_workspace_carried_off_with_a_directory_above_it(cellblock, workspace):
    """After a rename of a directory above it, no path on the guard's list would name what is in it."""
    above = workspace.parents[1]
    script = f"mv {above} {above}-x && mkdir {above}-x/home/project/.vscode; mkdir -p .vscode"
    cellblock.sh(script)
    assert not (workspace / ".vscode").exists()


def test_the_workspace_carried_off_inside_a_granted_directory(cellblock, outside):
    inner = outside / "a" / "ws"
    inner.mkdir(parents=True)
    script = f"mv {outside}/a {outside}/b; mkdir {outside}/b/ws/.vscode; mkdir {outside}/a/ws/.vscode"
    run_in(cellblock, inner, "sh", "-c", script, flags=["--write", outside])
    assert not list(outside.rglob(".vscode"))
    assert inner.is_dir()


def test_a_workspace_that_is_only_to_be_read(cellblock, workspace):
    assert cellblock.sh("touch x", flags=["--read", "."]).status != 0
    assert not (workspace / "x").exists()


# ---- Callers with unusual signals ----

def test_a_caller_that_ignores_the_end_of_children(cellblock):
    """Inherited, that would hide the end of the program from the cell's init."""
    ran = subprocess.run(["/usr/bin/python3", "-c", "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN);"
                          "os.execv(sys.argv[1], sys.argv[1:])", PROGRAM, "run", "--", "sh", "-c", "exit 7"],
                         cwd=cellblock.workspace, env=cellblock.environment, timeout=20, check=False)
    assert ran.returncode == 7
