"""Shared by the system, attack and document tests: they drive the real program, as a person would.

CELLBLOCK names the program (build/cellblock by default), CELLBLOCK_BUILD the build directory. A test that can't run here
calls `skip_because(reason)`; with CI=true a reason that is not in ALLOWED_SKIPS fails the run.
"""

import ctypes
import dataclasses
import json
import os
import pathlib
import shutil
import signal
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.get("CELLBLOCK_BUILD", ROOT / "build"))
PROGRAM = pathlib.Path(os.environ.get("CELLBLOCK", BUILD / "cellblock"))
HOOKED = BUILD / "tests" / "cellblock-test"

# Reasons that are fine on CI, each with why.
ALLOWED_SKIPS = {
    "needs root": "the suite runs once as root and once as an ordinary user",
    "needs an ordinary user": "likewise",
    "needs a build without sanitizers": "the suite also runs on the build without them",
    "needs x86_64": "other system call tables of the same machine",
    "npm is not installed": "Debian's package of it brings hundreds of others; its client is node, which is tested",
    "needs Landlock ABI": "tests/matrix runs the suite on the oldest kernel that is supported",
}


def pytest_configure(config):
    # Started in the background by a shell, we would ignore some, and so would everything that we start.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM:
        signal.signal(number, signal.SIG_DFL)
    config.addinivalue_line("markers", "slow: left out of `make quick`")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    if report.skipped and os.environ.get("CI") == "true":
        reason = str(call.excinfo.value) if call.excinfo else ""
        if not any(allowed in reason for allowed in ALLOWED_SKIPS):
            report.outcome = "failed"
            report.longrepr = f"skipped on CI, and the reason is not on the allowed list: {reason}"


def skip_because(reason):
    pytest.skip(reason)


@dataclasses.dataclass
class Ran:
    """What came of one run of a command."""

    status: int
    stdout: bytes
    stderr: bytes

    @property
    def out(self):
        return self.stdout.decode(errors="replace")

    @property
    def err(self):
        return self.stderr.decode(errors="replace")

    @property
    def json(self):
        return json.loads(self.stdout)


class Cellblock:
    """Runs the program in a workspace. `off` names layers to turn off; that needs the test build."""

    def __init__(self, workspace, home):
        self.workspace = workspace
        self.home = home
        self.environment = {
            "HOME": str(home),
            "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "LC_ALL": "C.UTF-8",
        }

    def command(self, *arguments, off=(), env=None, cwd=None, input=b"", timeout=60, **keywords):
        program = HOOKED if off else PROGRAM
        environment = {**self.environment, **(env or {})}
        if off:
            environment["CELLBLOCK_TEST_OFF"] = ",".join(off)
        for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS"):
            if name in os.environ:
                environment[name] = os.environ[name]
        if "stdin" not in keywords:
            keywords["input"] = input
        keywords.setdefault("stdout", subprocess.PIPE)
        keywords.setdefault("stderr", subprocess.PIPE)
        done = subprocess.run([program, *arguments], env=environment, cwd=cwd or self.workspace, timeout=timeout,
                              **keywords)
        return Ran(done.returncode, done.stdout or b"", done.stderr or b"")

    def run(self, *program, flags=(), **keywords):
        """cellblock run FLAGS -- PROGRAM"""
        return self.command("run", *flags, "--", *program, **keywords)

    def sh(self, script, *, flags=(), **keywords):
        return self.run("sh", "-c", script, flags=flags, **keywords)

    def python(self, code, *, flags=(), **keywords):
        return self.run("/usr/bin/python3", "-c", code, flags=flags, **keywords)


@pytest.fixture
def home(tmp_path):
    """A home directory with secrets in it, as the caller's."""
    directory = tmp_path / "home"
    (directory / ".ssh").mkdir(parents=True)
    (directory / ".ssh" / "id_rsa").write_text("SECRET KEY\n")
    return directory


@pytest.fixture
def workspace(tmp_path, home):
    directory = home / "project"
    directory.mkdir()
    return directory


@pytest.fixture
def cellblock(workspace, home):
    return Cellblock(workspace, home)


@pytest.fixture
def outside(tmp_path):
    """A directory that no policy names."""
    directory = tmp_path / "outside"
    directory.mkdir()
    return directory


def is_root():
    return os.geteuid() == 0


def is_sanitized():
    return b"__asan_init" in PROGRAM.read_bytes()


needs_root = pytest.mark.skipif(not is_root(), reason="needs root")
needs_user = pytest.mark.skipif(is_root(), reason="needs an ordinary user")


def which(program):
    """A program of the system, or a loud skip."""
    found = shutil.which(program, path="/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
    if not found:
        skip_because(f"{program} is not installed")
    return found


def need_landlock(abi):
    """For what an older Landlock can't do."""
    if ctypes.CDLL(None).syscall(444, None, 0, 1) < abi:
        skip_because(f"needs Landlock ABI {abi}")
