"""Interpreters that live below a home directory are there in the cell, and nothing else of that home."""

import os
import pathlib
import shutil
import subprocess
import sysconfig

import pytest

SYSTEM_PYTHON = pathlib.Path("/usr/bin/python3").resolve()
VERSION = SYSTEM_PYTHON.name  # python3.11


def write(path, text, mode=0o755):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


def make_venv(directory, *options, python="/usr/bin/python3"):
    subprocess.run([python, "-m", "venv", "--without-pip", *options, directory], check=True)
    site = next(directory.glob("lib/python*/site-packages"))
    (site / "only_here.py").write_text("word = 'from the environment'\n")
    return directory


def make_python(prefix):
    """An installation of its own: the binary copied, the library a link to the system's."""
    (prefix / "bin").mkdir(parents=True)
    (prefix / "lib").mkdir()
    shutil.copy(SYSTEM_PYTHON, prefix / "bin" / VERSION)
    (prefix / "bin" / "python3").symlink_to(VERSION)
    (prefix / "bin" / "python").symlink_to("python3")
    (prefix / "lib" / VERSION).symlink_to(sysconfig.get_path("stdlib"))
    return prefix


def make_pyenv(root):
    make_python(root / "versions" / "3.11.99")
    write(root / "version", "3.11.99\n", 0o644)
    write(root / "libexec" / "pyenv", f"""#!/usr/bin/env bash
set -e
shift
program=$1
shift
exec "$PYENV_ROOT/versions/$(cat "$PYENV_ROOT/version")/bin/$program" "$@"
""")
    for name in ("python3", "python"):
        write(root / "shims" / name, f"""#!/usr/bin/env bash
set -e
export PYENV_ROOT="{root}"
exec "{root}/libexec/pyenv" exec "${{0##*/}}" "$@"
""")
    return root


def make_nvm(root):
    prefix = root / "versions" / "node" / "v99.1.0"
    write(prefix / "include" / "node" / "node.h", "", 0o644)
    write(prefix / "bin" / "node", '#!/bin/sh\nif [ -f "$1" ]; then sed 1d "$1"; else echo "node-like $*"; fi\n')
    write(prefix / "lib" / "node_modules" / "npm" / "package.json", "{}", 0o644)
    write(prefix / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js", "#!/usr/bin/env node\nthis is npm\n")
    (prefix / "bin" / "npm").symlink_to("../lib/node_modules/npm/bin/npm-cli.js")
    return prefix


def visible(cellblock, home, *program_path, env=None):
    """What of the home can be seen, two levels deep, without the workspace and what leads to it."""
    ran = cellblock.sh(f"find {home} -maxdepth 2 -mindepth 1 | sort", env=env)
    assert ran.status == 0, ran.err
    return {line[len(str(home)) + 1:] for line in ran.out.split("\n") if line} - {"project"}


def check_nothing_else(cellblock, home, allowed, env=None):
    (home / ".aws").mkdir()
    (home / ".aws" / "credentials").write_text("secret")
    seen = visible(cellblock, home, env=env)
    assert all(name.split("/")[0] == allowed for name in seen), seen
    assert cellblock.sh(f"cat {home}/.ssh/id_rsa", env=env).out == ""


def path_with(directory):
    return {"PATH": f"{directory}:/usr/local/bin:/usr/bin:/bin"}


USE_IT = "import only_here, sys; print(only_here.word); print(sys.prefix)"


@pytest.mark.parametrize("options", [["--symlinks"], ["--copies"]], ids=["links", "copies"])
class TestVenvInHome:
    def test_by_name(self, cellblock, home, options):
        venv = make_venv(home / "venv", *options)
        for name in ("python", "python3"):
            ran = cellblock.run(name, "-c", USE_IT, env=path_with(venv / "bin"))
            assert (ran.err, ran.out) == ("", f"from the environment\n{venv}\n")
        check_nothing_else(cellblock, home, "venv", env=path_with(venv / "bin"))

    def test_by_path(self, cellblock, home, options):
        venv = make_venv(home / "venv", *options)
        ran = cellblock.run(venv / "bin" / "python", "-c", USE_IT)
        assert (ran.err, ran.out) == ("", f"from the environment\n{venv}\n")

    def test_it_is_read_only(self, cellblock, home, options):
        venv = make_venv(home / "venv", *options)
        ran = cellblock.run(venv / "bin" / "python", "-c", f"open('{venv}/lib/new', 'w')")
        assert ran.status == 1 and not (venv / "lib" / "new").exists()

    def test_not_there_when_nobody_uses_it(self, cellblock, home, options):
        venv = make_venv(home / "venv", *options)
        assert cellblock.run("test", "-e", venv).status == 1

    def test_in_the_workspace(self, cellblock, workspace, options):
        venv = make_venv(workspace / ".venv", *options)
        for ran in (cellblock.run(".venv/bin/python", "-c", USE_IT),
                    cellblock.run("python", "-c", USE_IT, env=path_with(venv / "bin"))):
            assert (ran.err, ran.out) == ("", f"from the environment\n{venv}\n")

    def test_in_the_workspace_on_a_base_below_the_home(self, cellblock, home, workspace, options):
        base = make_python(home / "opt" / "python")
        venv = make_venv(workspace / ".venv", *options, python=base / "bin" / "python3")
        for ran in (cellblock.run(".venv/bin/python", "-c", USE_IT),
                    cellblock.run("python", "-c", USE_IT, env=path_with(venv / "bin"))):
            assert (ran.err, ran.out) == ("", f"from the environment\n{venv}\n")
        assert cellblock.run(".venv/bin/python", "-c", f"open('{home}/.ssh/id_rsa')").status == 1

    def test_script_in_the_workspace(self, cellblock, home, workspace, options):
        venv = make_venv(home / "venv", *options)
        write(workspace / "script", f"#!{venv}/bin/python\n{USE_IT}\n")
        ran = cellblock.run("./script")
        assert (ran.err, ran.out) == ("", f"from the environment\n{venv}\n")

    def test_script_below_the_home(self, cellblock, home, options):
        """As pipx does it: a script in ~/.local/bin for an environment elsewhere."""
        venv = make_venv(home / ".local" / "share" / "venvs" / "tool", *options)
        write(venv / "bin" / "tool", f"#!{venv}/bin/python\n{USE_IT}\n")
        (home / ".local" / "bin").mkdir()
        (home / ".local" / "bin" / "tool").symlink_to(venv / "bin" / "tool")
        (home / ".local" / "share" / "keyring").write_text("secret")
        for ran in (cellblock.run("tool", env=path_with(home / ".local" / "bin")),
                    cellblock.run(home / ".local" / "bin" / "tool")):
            assert (ran.err, ran.out) == ("", f"from the environment\n{venv}\n")
        assert cellblock.run("cat", home / ".local" / "share" / "keyring").status == 1


class TestPyenv:
    def test_by_name(self, cellblock, home):
        root = make_pyenv(home / ".pyenv")
        prefix = root / "versions" / "3.11.99"
        for name in ("python3", "python"):
            ran = cellblock.run(name, "-c", "import sys, json; print(sys.prefix)", env=path_with(root / "shims"))
            assert (ran.err, ran.out) == ("", f"{prefix}\n")
        check_nothing_else(cellblock, home, ".pyenv", env=path_with(root / "shims"))

    def test_by_path(self, cellblock, home):
        root = make_pyenv(home / ".pyenv")
        prefix = root / "versions" / "3.11.99"
        for program in (root / "shims" / "python3", prefix / "bin" / "python3", prefix / "bin" / VERSION):
            ran = cellblock.run(program, "-c", "import sys; print(sys.prefix)")
            assert (ran.err, ran.out) == ("", f"{prefix}\n")

    def test_venv_in_the_workspace_of_it(self, cellblock, home, workspace):
        root = make_pyenv(home / ".pyenv")
        venv = make_venv(workspace / ".venv", python=root / "versions" / "3.11.99" / "bin" / "python3")
        ran = cellblock.run(".venv/bin/python", "-c", USE_IT)
        assert (ran.err, ran.out) == ("", f"from the environment\n{venv}\n")


class TestNvm:
    def test_by_name(self, cellblock, home):
        prefix = make_nvm(home / ".nvm")
        env = path_with(prefix / "bin")
        assert cellblock.run("node", "a", "b", env=env).out == "node-like a b\n"
        assert cellblock.run("npm", env=env).out == "this is npm\n"
        check_nothing_else(cellblock, home, ".nvm", env=env)

    def test_by_path(self, cellblock, home):
        prefix = make_nvm(home / ".nvm")
        assert cellblock.run(prefix / "bin" / "node", "a").out == "node-like a\n"

    def test_script_with_env(self, cellblock, home, workspace):
        prefix = make_nvm(home / ".nvm")
        write(workspace / "script.js", "#!/usr/bin/env node\nthe script\n")
        assert cellblock.run("./script.js", env=path_with(prefix / "bin")).out == "the script\n"

    def test_other_versions_stay_out(self, cellblock, home):
        prefix = make_nvm(home / ".nvm")
        other = write(prefix.parent / "v1.0.0" / "bin" / "node", "#!/bin/sh\n")
        assert cellblock.run("test", "-e", other, env=path_with(prefix / "bin")).status == 1


def test_a_single_script_of_the_caller(cellblock, home):
    write(home / "bin" / "hello", "#!/bin/sh\necho hello\n")
    (home / "bin" / "secret").write_text("secret")
    assert cellblock.run("hello", env=path_with(home / "bin")).out == "hello\n"
    assert cellblock.run(home / "bin" / "hello").out == "hello\n"
    assert cellblock.run("cat", home / "bin" / "secret", env=path_with(home / "bin")).status == 1


def test_a_planted_link_opens_nothing(cellblock, home, workspace):
    """A workspace that an earlier run filled: its links must not make private files readable."""
    (workspace / "bin").mkdir()
    (workspace / "bin" / "python3").symlink_to(home / ".ssh" / "id_rsa")
    os.chmod(home / ".ssh" / "id_rsa", 0o755)
    env = path_with(workspace / "bin")
    assert cellblock.run("cat", home / ".ssh" / "id_rsa", env=env).status == 1
    cellblock.run("bin/python3", env=env)
    assert cellblock.sh(f"cat bin/python3; cat {home}/.ssh/id_rsa", env=env).out == ""


def test_a_planted_shebang_opens_nothing(cellblock, home, workspace):
    os.chmod(home / ".ssh" / "id_rsa", 0o755)
    write(workspace / "script", f"#!{home}/.ssh/id_rsa\n")
    ran = cellblock.run("./script")
    assert ran.status in (126, 127) and "SECRET" not in ran.out + ran.err


def test_a_home_that_looks_like_an_installation(cellblock, home, workspace):
    """bin/ of the home itself: the whole home must not become an installation."""
    write(home / "pyvenv.cfg", "home = /usr/bin\n", 0o644)
    write(home / "bin" / "tool", "#!/bin/sh\necho ran\n")
    ran = cellblock.run("tool", env=path_with(home / "bin"))
    assert ran.out == "ran\n"
    assert cellblock.run("cat", home / ".ssh" / "id_rsa", env=path_with(home / "bin")).status == 1
