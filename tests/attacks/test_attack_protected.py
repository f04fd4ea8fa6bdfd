"""Protected paths: what the host acts on later (hooks, editor and agent settings) can't be changed, replaced or
created, and nothing is left on the host to keep them from being created."""

import os
import socket
import subprocess

import pytest

from attacks import PRELUDE, helper, is_root, listing, start
from conftest import which

ABSENT = [".vscode", ".idea", ".husky", ".claude", ".cursor", ".codex", ".gemini", ".devcontainer"]

# Ways to make the directory .vscode, which is not there. Each works bare.
WAYS = {
    "mkdir": 'os.mkdir(".vscode")',
    "mkdir with a slash": 'os.mkdir(".vscode/")',
    "mkdir with many slashes": 'os.mkdir(".//.vscode///")',
    "mkdir by the absolute path": 'os.mkdir(os.getcwd() + "/.vscode")',
    "makedirs": 'os.makedirs(".vscode/deep")',
    "mkdir through ..": 'os.mkdir("sub/../.vscode")',
    "mkdir from below": 'os.chdir("sub"); os.mkdir("../.vscode")',
    "mkdir by a descriptor": 'os.mkdir(".vscode", dir_fd=os.open(".", os.O_RDONLY))',
    "mkdir by an O_PATH descriptor": 'os.mkdir(".vscode", dir_fd=os.open("sub/..", os.O_PATH))',
    "mkdir through /proc/self/cwd": 'os.mkdir("/proc/self/cwd/.vscode")',
    "mkdir through /proc/thread-self/cwd": 'os.mkdir("/proc/thread-self/cwd/.vscode")',
    "mkdir through /proc/self/root": 'os.mkdir("/proc/self/root" + os.getcwd() + "/.vscode")',
    "mkdir through /proc/self/fd": 'fd = os.open(".", os.O_RDONLY); os.mkdir(f"/proc/self/fd/{fd}/.vscode")',
    "mkdir through a link": 'os.symlink(".", "self"); os.mkdir("self/.vscode")',
    "mkdir as a raw call": 'call("syscall", 83, b".vscode", 0o755)',
    "rename of a directory": 'os.mkdir("d"); os.rename("d", ".vscode")',
    "rename of a directory with content": 'os.mkdir("d"); write("d/tasks.json", flags=65); os.rename("d", ".vscode")',
    "rename from a sub-directory": 'os.mkdir("sub/d"); os.rename("sub/d", ".vscode")',
    "rename without replacing": 'os.mkdir("d"); call("syscall", 316, -100, b"d", -100, b".vscode", 1)',
    "rename through /proc/self/cwd": 'os.mkdir("d"); os.rename("/proc/self/cwd/d", "/proc/self/cwd/.vscode")',
    "exchange with a file":
        'os.mkdir("d"); write(".vscode", flags=65); call("syscall", 316, -100, b"d", -100, b".vscode", 2)',
    "exchange the other way":
        'os.mkdir("d"); write(".vscode", flags=65); call("syscall", 316, -100, b".vscode", -100, b"d", 2)',
    "symlink": 'os.mkdir("evil"); os.symlink("evil", ".vscode")',
    "symlink through /proc/self/cwd": 'os.mkdir("evil"); os.symlink("evil", "/proc/self/cwd/.vscode")',
    "rename of a symlink": 'os.mkdir("evil"); os.symlink("evil", "s"); os.rename("s", ".vscode")',
    "hard link to a symlink":
        'os.mkdir("evil"); os.symlink("evil", "s"); os.link("s", ".vscode", follow_symlinks=False)',
    "hard link through /proc/self/cwd":
        'os.mkdir("evil"); os.symlink("evil", "s"); os.link("s", "/proc/self/cwd/.vscode", follow_symlinks=False)',
}


def run_way(cellblock, code, off=(), flags=()):
    lines = PRELUDE + "try:\n    " + code + "\nexcept OSError as error:\n    print(errno.errorcode[error.errno])\n"
    return cellblock.python(lines, off=off, flags=flags)


def is_made(workspace, name=".vscode"):
    """A directory, or a link to one: a plain file of that name harms nobody."""
    return (workspace / name).is_dir()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="needs x86_64")
def test_an_absent_directory_can_not_be_made(cellblock, workspace, way):
    (workspace / "sub").mkdir()
    ran = run_way(cellblock, WAYS[way], off=["guard", "landlock"])
    assert is_made(workspace), ran.out + ran.err        # without the two layers it works
    subprocess.run(["rm", "-rf", *workspace.iterdir()], check=True)
    (workspace / "sub").mkdir()
    for off in [], ["guard"], ["mounts"] if not is_root() else ["mounts", "ids"]:
        run_way(cellblock, WAYS[way], off=off)
        assert not is_made(workspace), f"made, with {off} off"
        if (workspace / ".vscode").exists():
            (workspace / ".vscode").unlink()
        for name in "d", "s", "self", "evil":
            subprocess.run(["rm", "-rf", workspace / name], check=True)


@pytest.mark.parametrize("name", [*ABSENT, ".VSCODE", ".Claude", ".vsCode"])
def test_every_absent_name_in_every_case(cellblock, workspace, name):
    ran = cellblock.run("mkdir", name)
    assert ran.status == 1 and "Permission denied" in ran.err
    assert list(workspace.iterdir()) == []
    assert cellblock.run("mkdir", name, off=["guard", "landlock"]).status == 0


def test_nothing_is_left_on_the_host(cellblock, workspace):
    (workspace / "file").write_text("x")
    before = listing(workspace)
    cellblock.sh("mkdir .vscode .claude .git .git/hooks; ls -A; rm -rf .git")
    assert listing(workspace) == before
    seen = cellblock.sh("ls -A").out.split()
    assert seen == ["file"]             # not even inside


def test_ordinary_directories_and_links_can_be_made_all_the_same(cellblock, workspace):
    ran = cellblock.sh("mkdir -p a/b/c && mv a z && ln -s z/b l && mv l m && "
                       "mkdir -p .vscode2 x/.vscode && touch .vscodex")
    assert (ran.status, ran.err) == (0, "")
    assert {path.name for path in workspace.iterdir()} == {"z", "m", ".vscode2", "x", ".vscodex"}


@pytest.mark.parametrize("how", ["mkdir", "symlink", "rename"])
def test_a_thread_that_changes_the_name_does_not_win(cellblock, workspace, how):
    """The guard lets a call go on when it finds nothing to do for it, as here, where no directory x exists; the kernel
    then reads the name again. With Landlock off that is a hole, and the race is seen to be won."""
    racer = helper("race_name", workspace)
    command = [f"./{racer.name}", how, "x/scode", ".vscode", "4000"]
    won = any(cellblock.run(*command, off=["landlock"]).out == "won\n" for _ in range(10))
    subprocess.run(["rm", "-rf", workspace / ".vscode", workspace / "from"], check=True)
    ran = cellblock.run(*command)
    assert (ran.out, ran.status) == ("lost\n", 1), ran.err
    assert not os.path.lexists(workspace / ".vscode")
    alone = cellblock.run(*command, off=["guard"])
    assert alone.out == "lost\n"
    assert won, "the race is never won: this test proves nothing"


def test_two_cells_on_one_workspace(cellblock, workspace):
    """Each supervisor acts for its own cell; together they must not do what neither would."""
    code = """
import os, sys
sys.stdin.readline()
for i in range(300):
    for step in (lambda: os.mkdir("g"), lambda: os.mkdir(".git"), lambda: os.mkdir("g/hooks"),
                 lambda: os.mkdir(".git/hooks"),
                 lambda: os.rename("g", ".git"), lambda: os.rename(".git", "g"), lambda: os.mkdir(".git/x"),
                 lambda: os.rename(".git/x", ".git/hooks"), lambda: os.rename("g/hooks", ".git/hooks"),
                 lambda: os.symlink("g", ".git"), lambda: os.rmdir("g/hooks"), lambda: os.rmdir(".git/x"),
                 lambda: os.rmdir(".git")):
        try: step()
        except OSError: pass
    if os.path.isdir(".git/hooks"): print("won"); break
"""
    cells = [start(cellblock, "--", "/usr/bin/python3", "-c", code) for _ in range(2)]
    for cell in cells:
        cell.stdin.write(b"go\n")
        cell.stdin.flush()
    for cell in cells:
        out, err = cell.communicate(timeout=60)
        assert (out, err) == (b"", b"")
    assert not (workspace / ".git" / "hooks").exists()


# ---- Present ----

HOOK = "#!/bin/sh\nexit 0\n"
CHANGES = {
    "write": 'write(".git/hooks/pre-commit")',
    "add": 'write(".git/hooks/post-commit", flags=os.O_WRONLY | os.O_CREAT)',
    "remove": 'os.unlink(".git/hooks/pre-commit")',
    "chmod": 'os.chmod(".git/hooks/pre-commit", 0o777)',
    "replace": 'write("mine", flags=65); os.rename("mine", ".git/hooks/pre-commit")',
    "exchange": 'write("mine", flags=65); call("syscall", 316, -100, b"mine", -100, b".git/hooks/pre-commit", 2)',
    "rename the directory": 'os.rename(".git/hooks", ".git/old")',
    "rename its parent": 'os.rename(".git", "old")',
    "rename its parent by /proc/self/cwd": 'os.rename("/proc/self/cwd/.git", "/proc/self/cwd/old")',
    "exchange its parent": 'os.mkdir("d"); call("syscall", 316, -100, b"d", -100, b".git", 2)',
    "replace its empty sibling": 'os.mkdir("d"); os.rename("d", ".git/hooks")',
    "remove the directory": 'os.rmdir(".git/hooks")',
    "link into it": 'write("mine", flags=65); os.link("mine", ".git/hooks/post-commit")',
    "link out of it and write": 'os.link(".git/hooks/pre-commit", "out"); write("out")',
    "write the configuration": 'write(".git/config", "[evil]")',
    "replace the configuration": 'write("mine", flags=65); os.rename("mine", ".git/config")',
    "remove the configuration": 'os.unlink(".git/config")',
    "write by a descriptor of the directory": 'write("/proc/self/fd/%d/pre-commit" % os.open(".git/hooks", os.O_PATH))',
}


def make_repository(workspace):
    (workspace / ".git" / "hooks").mkdir(parents=True)
    (workspace / ".git" / "hooks" / "pre-commit").write_text(HOOK)
    (workspace / ".git" / "config").write_text("[core]\n")


def protected_part(workspace):
    where = workspace / ".git"
    return {"config": (where / "config").read_text(), "hooks": listing(where / "hooks"),
            "mode": (where / "hooks" / "pre-commit").stat().st_mode} if (where / "hooks").is_dir() else None


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="needs x86_64")
def test_present_hooks_can_not_be_changed(cellblock, workspace, change):
    make_repository(workspace)
    before = protected_part(workspace)
    for off in [], ["guard"], ["landlock"]:
        ran = run_way(cellblock, CHANGES[change], off=off)
        assert ran.out.strip() in {"EROFS", "EBUSY", "EACCES", "EXDEV", "ENOTEMPTY"}, (off, ran.out, ran.err)
        assert protected_part(workspace) == before, off
        subprocess.run(["rm", "-rf", workspace / "mine", workspace / "d", workspace / "out"], check=True)
    if change not in {"replace its empty sibling", "remove the directory"}:     # those fail bare too: it is not empty
        everything = ["mounts", "landlock", "guard", *(["ids"] if is_root() else [])]
        run_way(cellblock, CHANGES[change], off=everything)
        try:
            assert protected_part(workspace) != before, "with all three off it should have worked"
        except OSError:
            pass


def git(workspace, home, *arguments):
    return subprocess.run([which("git"), "-c", "user.name=x", "-c", "user.email=x@example.com", *arguments],
                          cwd=workspace, env={"HOME": str(home), "PATH": "/usr/bin:/bin", "GIT_CONFIG_NOSYSTEM": "1"},
                          capture_output=True, text=True)


GIT_TRAPS = {
    # What the code does in a repository, after which a person runs git outside.
    "commondir": 'mkdir -p evil/objects evil/refs && cp .git/config evil/ && '
                 'printf "[core]\\n\\tfsmonitor = touch {mark};false\\n" >>evil/config && echo ../evil >.git/commondir',
    "hooks behind commondir": 'mkdir -p evil/objects evil/refs evil/hooks && cp .git/config evil/ && '
                              'printf "#!/bin/sh\\ntouch {mark}\\n" >evil/hooks/post-index-change && '
                              'chmod +x evil/hooks/* && echo ../evil >.git/commondir',
    "config": 'printf "[core]\\n\\tfsmonitor = touch {mark};false\\n" >>.git/config',
    "config.worktree": 'printf "[core]\\n\\tfsmonitor = touch {mark};false\\n" >>.git/config.worktree',
    "replace by a file": 'rm -rf .git; git init -q evil; printf "[core]\\n\\tfsmonitor = touch {mark};false\\n" '
                         '>>evil/.git/config; echo "gitdir: evil/.git" >.git',
}


@pytest.mark.parametrize("trap", GIT_TRAPS)
def test_git_on_the_host_runs_nothing_of_the_code(cellblock, workspace, home, tmp_path, trap):
    mark = tmp_path / "mark"
    assert git(workspace, home, "init", "-q", ".").returncode == 0
    cellblock.sh(GIT_TRAPS[trap].replace("{mark}", str(mark)))
    (workspace / "file").write_text("x")
    git(workspace, home, "status")
    git(workspace, home, "add", "file")
    assert not mark.exists(), "git on the host ran a command that the code had left"


def test_git_traps_are_real(workspace, home, tmp_path):
    """The first of the traps, laid without a cell."""
    mark = tmp_path / "mark"
    git(workspace, home, "init", "-q", ".")
    subprocess.run(["sh", "-c", GIT_TRAPS["commondir"].replace("{mark}", str(mark))], cwd=workspace, check=True)
    git(workspace, home, "status")
    assert mark.exists()


# ---- Symbolic links that lie in the workspace before the run ----

def test_hooks_behind_a_link_are_protected(cellblock, workspace):
    make_repository(workspace)
    (workspace / ".git").rename(workspace / "real")
    (workspace / ".git").symlink_to("real")
    for path in ".git/hooks/pre-commit", "real/hooks/pre-commit":
        assert cellblock.sh(f"echo x >{path}").status != 0
    assert cellblock.sh("mv real other").status != 0
    assert cellblock.sh("mv real/hooks real/h").status != 0
    assert (workspace / "real" / "hooks" / "pre-commit").read_text() == HOOK
    cellblock.sh("rm .git; mkdir .git; mkdir .git/hooks; ln -s real/x .git; mkdir other; mv other .git")
    assert not (workspace / ".git" / "hooks" / "post-commit").exists()


def test_hooks_that_are_absent_behind_a_link(cellblock, workspace):
    (workspace / "real").mkdir()
    (workspace / ".git").symlink_to("real")
    cellblock.sh("mkdir real/hooks; mkdir .git/hooks; mkdir d; mv d real/hooks; echo x >real/hooks/pre-commit")
    assert not (workspace / ".git" / "hooks").exists()


@pytest.mark.parametrize("name", ABSENT)
def test_a_protected_name_that_is_a_dangling_link(cellblock, workspace, name):
    """It would come into being with what it points to."""
    (workspace / name).symlink_to("target")
    cellblock.sh(f"mkdir target; mkdir {name}; echo x >{name}/settings.json")
    assert not (workspace / name).is_dir()


@pytest.mark.parametrize("name", [".git", *ABSENT])
def test_a_protected_name_that_leads_outside(cellblock, workspace, outside, name):
    (outside / "hooks").mkdir()
    before = listing(outside)
    (workspace / name).symlink_to(outside)
    ran = cellblock.sh(f"echo x >{name}/hooks/x; echo x >{name}/x; rm {name}; mkdir {name}/ && mkdir {name}/hooks; "
                       "echo done")
    assert ran.out == "done\n"
    assert listing(outside) == before
    assert not (workspace / name / "hooks").exists()


def test_git_as_a_file_stays_as_it_is(cellblock, workspace, outside):
    (workspace / ".git").write_text("gitdir: elsewhere\n")
    cellblock.sh("echo 'gitdir: evil' >.git; rm -f .git; mv .git old; echo 'gitdir: evil' >n; mv n .git; mkdir .git")
    assert (workspace / ".git").read_text() == "gitdir: elsewhere\n"
    cellblock.sh("rm -f .git", off=["mounts", "landlock", "guard", *(["ids"] if is_root() else [])])
    assert not (workspace / ".git").exists()


def test_a_link_as_interpreter_does_not_open_a_key(cellblock, workspace, home):
    """An earlier run leaves venv/bin/python -> ~/.ssh/id_rsa; the next one starts venv/bin/python."""
    (workspace / "venv" / "bin").mkdir(parents=True)
    (workspace / "venv" / "pyvenv.cfg").write_text(f"home = {home}/.ssh\n")
    key = home / ".ssh" / "id_rsa"
    key.chmod(0o755)
    for target in key, "../../../.ssh/id_rsa":
        link = workspace / "venv" / "bin" / "python"
        link.unlink(missing_ok=True)
        link.symlink_to(target)
        for environment in {}, {"PATH": f"{link.parent}:/usr/bin:/bin"}:
            ran = cellblock.run("venv/bin/python", env=environment)
            assert ran.status in {126, 127} and "SECRET" not in ran.out + ran.err
            assert "SECRET" not in cellblock.sh("cat venv/bin/python", env=environment).out
            plan = cellblock.run("python", flags=["--plan"], env=environment).out
            assert ".ssh" not in plan


def test_a_script_does_not_open_a_key(cellblock, workspace, home):
    """Its first line names the key as the interpreter."""
    (workspace / "script").write_text(f"#!{home}/.ssh/id_rsa\n")
    (workspace / "script").chmod(0o755)
    assert ".ssh" not in cellblock.run("./script", flags=["--plan"]).out
    assert ".ssh" not in cellblock.run("script", flags=["--plan"], env={"PATH": f"{workspace}:/usr/bin"}).out


def test_a_script_in_another_writable_directory_does_not_open_a_key(cellblock, workspace, home):
    tools = home / "tools"
    tools.mkdir()
    for name in "script", "node":
        (tools / name).write_text(f"#!{home}/.ssh/id_rsa\n")
        (tools / name).chmod(0o755)
    assert ".ssh" not in cellblock.run(str(tools / "script"), flags=["--write", str(tools), "--plan"]).out
    ran = cellblock.sh(f"cat {home}/.ssh/id_rsa", flags=["--write", str(tools)], env={"PATH": f"{tools}:/usr/bin:/bin"})
    assert "SECRET" not in ran.out


@pytest.mark.parametrize("flag", ["--read", "--write"])
def test_a_grant_does_not_follow_a_link_in_the_workspace(cellblock, workspace, outside, flag):
    (outside / "data").write_text("private\n")
    (workspace / "data").symlink_to(outside)
    for path in workspace / "data", workspace / "data" / "data":
        ran = cellblock.sh(f"cat {path}; cat data/data", flags=[flag, str(path)])
        assert "private" not in ran.out


def test_a_workspace_given_as_a_link(cellblock, workspace, home, outside):
    link = home / "link"
    link.symlink_to(workspace)
    ran = cellblock.run("sh", "-c", "pwd -P; echo x >made; mkdir .vscode", flags=["--workspace", str(link)])
    assert ran.out.strip() == str(workspace)
    assert (workspace / "made").exists() and not (workspace / ".vscode").exists()


# ---- Files that are hidden, or may not even come into being ----

NEW_FILE = {
    "open": 'write("secret.txt", flags=os.O_WRONLY | os.O_CREAT)',
    "creat": 'call("creat", b"secret.txt", 0o644)',
    "open by a descriptor": 'os.open("secret.txt", os.O_CREAT | os.O_WRONLY, dir_fd=os.open(".", os.O_RDONLY))',
    "open by /proc/self/cwd": 'write("/proc/self/cwd/secret.txt", flags=os.O_WRONLY | os.O_CREAT)',
    "rename": 'write("f", flags=65); os.rename("f", "secret.txt")',
    "link": 'write("f", flags=65); os.link("f", "secret.txt")',
    "link of an unnamed file": 'fd = os.open(".", os.O_TMPFILE | os.O_RDWR, 0o600); '
                               'call("linkat", -100, b"/proc/self/fd/%d" % fd, -100, b"secret.txt", 0x400)',
    "mknod": 'os.mknod("secret.txt")',
    "fifo": 'os.mkfifo("secret.txt")',
    "socket": 'socket.socket(socket.AF_UNIX).bind("secret.txt")',
    "symlink": 'os.symlink("x", "secret.txt")',
    "mkdir": 'os.mkdir("secret.txt")',
    "exchange": 'write("f", flags=65); write("g", flags=65); os.rename("f", "secret.txt")',
    "through a dangling link": 'os.symlink("secret.txt", "l"); write("l", flags=os.O_WRONLY | os.O_CREAT)',
    "other case": 'write("SECRET.txt", flags=os.O_WRONLY | os.O_CREAT)',
}


@pytest.mark.parametrize("way", NEW_FILE)
def test_a_hidden_file_that_is_absent_can_not_be_made(cellblock, workspace, way):
    flags = ["--hide", "secret.txt"]

    def made():
        return any(path.name.lower() == "secret.txt" for path in workspace.iterdir())

    run_way(cellblock, NEW_FILE[way], off=["guard", "landlock"], flags=flags)
    assert made()
    for off in [], ["guard"]:
        subprocess.run(["rm", "-rf", *workspace.iterdir()], check=True)
        ran = run_way(cellblock, NEW_FILE[way], off=off, flags=flags)
        assert not made(), (off, ran.out, ran.err)


def test_a_thread_that_changes_a_file_name_does_not_win(cellblock, workspace):
    racer = helper("race_name", workspace)
    ran = cellblock.run(f"./{racer.name}", "open", "x/rmless", "secret12", "3000", flags=["--hide", "secret12"])
    assert ran.out == "lost\n", ran.err
    assert not (workspace / "secret12").exists()


def test_a_hidden_file_that_is_present(cellblock, workspace):
    (workspace / "dir").mkdir()
    secret = workspace / "dir" / "secret.txt"
    secret.write_text("PRIVATE\n")
    flags = ["--hide", "dir/secret.txt"]
    ran = cellblock.sh("cat dir/secret.txt; echo x >dir/secret.txt; rm -f dir/secret.txt; mv dir/secret.txt y; "
                       "mv dir z; ln dir/secret.txt l; cat l z/secret.txt; chmod 777 dir/secret.txt; "
                       "cat dir/secret.txt",
                       flags=flags)
    assert "PRIVATE" not in ran.out
    assert secret.read_text() == "PRIVATE\n"
    off = ["mounts", *(["ids"] if is_root() else [])]
    assert "PRIVATE" in cellblock.sh("cat dir/secret.txt", flags=flags, off=off).out


def test_ordinary_work_under_the_file_guard(cellblock, workspace):
    """Everything else functions while every new file is watched."""
    script = """set -e
echo 1 >a; echo 2 >>a; mkdir -p d/e; echo 3 >d/e/f; mv a b; mv d g; cp -r g h; ln -s b l; touch t; rm -r h
git init -q repository; cd repository; echo x >f; git add f
git -c user.name=x -c user.email=x@example.com commit -qm first; git log --oneline | wc -l; cd ..
python3 - <<'P'
import os, tempfile, sqlite3
open("p", "w").write("x" * 100000)
with tempfile.TemporaryFile(dir=".") as f: f.write(b"x")
with tempfile.NamedTemporaryFile(dir=".") as f: f.write(b"x")
d = sqlite3.connect("db"); d.execute("create table t (x)"); d.commit()
os.close(os.open(".", os.O_TMPFILE | os.O_RDWR))
os.close(os.open("excl", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
print(oct(os.stat("excl").st_mode & 0o777))
P
cat b g/e/f l"""
    ran = cellblock.sh(script, flags=["--hide", "secret.txt"])
    assert (ran.status, ran.err) == (0, "")
    assert ran.out == "1\n0o600\n1\n2\n3\n1\n2\n"
    assert {path.name for path in workspace.iterdir()} == {"b", "g", "l", "t", "repository", "p", "db", "excl"}
    assert all(path.lstat().st_uid == os.getuid() for path in workspace.iterdir())


def test_a_socket_named_like_a_protected_directory_is_no_directory(cellblock, workspace):
    cellblock.python("import socket; socket.socket(socket.AF_UNIX).bind('.vscode')")
    assert not is_made(workspace)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(workspace / "bare"))
    listener.close()
