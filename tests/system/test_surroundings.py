"""Odd places to be called from: whatever is missing or narrow around the caller, a run works, or says why it can't."""

import os
import resource
import signal
import stat
import subprocess

import pytest

import library
from conftest import PROGRAM, is_root, is_sanitized, needs_root, needs_user, skip_because, which

ULIMITED = "ulimit {limit} && exec \"$@\""


def under(cellblock, limit, *arguments):
    """cellblock called from a shell that has set a limit on itself."""
    return subprocess.run(["bash", "-c", ULIMITED.format(limit=limit), "bash", PROGRAM, *arguments],
                          cwd=cellblock.workspace, env=cellblock.environment, capture_output=True, text=True,
                          timeout=60)


def in_mounts(cellblock, script, *arguments):
    """A script in a mount namespace of its own; as an ordinary user it is root there, but of nothing else."""
    unshare = [which("unshare"), "-m"] if is_root() else [which("unshare"), "-Urm"]
    return subprocess.run([*unshare, "sh", "-c", script, "sh", *arguments], cwd=cellblock.workspace,
                          env=cellblock.environment, capture_output=True, text=True, timeout=60)


class TestDirectory:
    def test_deleted(self, cellblock, workspace):
        gone = workspace / "gone"
        gone.mkdir()
        ran = cellblock.run("touch", "marker", cwd=gone, preexec_fn=lambda: os.rmdir(gone))
        assert ran.status == 125 and "directory" in ran.err and not gone.exists()

    @pytest.mark.parametrize("flags", [["--workspace", "{workspace}"], ["--scratch"]], ids=lambda flags: flags[0])
    def test_deleted_but_not_needed(self, cellblock, workspace, flags):
        """The workspace is somewhere else: nothing is missing."""
        gone = workspace / "gone"
        gone.mkdir()
        flags = [flag.format(workspace=workspace) for flag in flags]
        ran = cellblock.sh("echo works", flags=flags, cwd=gone, preexec_fn=lambda: os.rmdir(gone))
        assert (ran.status, ran.out) == (0, "works\n"), ran.err

    @needs_root
    def test_on_a_read_only_file_system(self, cellblock, outside):
        script = f'mount -t tmpfs -o ro none {outside} && cd {outside} && exec "$@"'
        ran = in_mounts(cellblock, script, PROGRAM, "run", "--", "sh", "-c", "pwd; ls -a; echo x >made")
        assert ran.stdout.split() == [str(outside), ".", ".."], ran.stderr
        assert ran.returncode == 2 and "Read-only" in ran.stderr

    def test_not_writable(self, cellblock, workspace):
        """Not even for root's cell, which has no power over what its owner has closed."""
        (workspace / "file").write_text("content\n")
        workspace.chmod(0o555)
        try:
            ran = cellblock.sh("cat file; pwd; touch made")
            assert (ran.status, ran.out) == (1, f"content\n{workspace}\n")
            assert not (workspace / "made").exists()
        finally:
            workspace.chmod(0o755)

    @needs_user
    @pytest.mark.parametrize("mode", [0o111, 0o311], ids=oct)
    def test_not_readable(self, cellblock, workspace, mode):
        """As bare: what is known by name can be used, but nothing be listed."""
        (workspace / "file").write_text("content\n")
        workspace.chmod(mode)
        try:
            ran = cellblock.sh("cat file; ls; echo over")
            bare = subprocess.run(["sh", "-c", "cat file; ls; echo over"], cwd=workspace, capture_output=True)
            assert (ran.status, ran.stdout) == (bare.returncode, bare.stdout) == (0, b"content\nover\n"), ran.err
        finally:
            workspace.chmod(0o755)

    @needs_user
    def test_not_searchable(self, cellblock, workspace):
        inner = workspace / "inner"
        inner.mkdir()
        ran = cellblock.run("true", cwd=inner, preexec_fn=lambda: inner.chmod(0))
        inner.chmod(0o755)
        assert ran.status == 125 and "Permission denied" in ran.err

    def test_a_very_long_path(self, cellblock, workspace):
        deep = workspace
        for _ in range(15):
            deep = deep / ("d" * 200)
            deep.mkdir()
        ran = cellblock.sh("pwd; echo x >made", flags=["--workspace", workspace], cwd=deep)
        assert ran.out == f"{deep}\n" and (deep / "made").exists(), ran.err


class TestHome:
    @pytest.mark.parametrize("value", [None, "", "relative", "/no/such/home", "/dev/null", "/", "/root", "/proc/self"])
    def test_an_odd_one(self, cellblock, value):
        """The cell has one of its own, whatever the caller's is."""
        del cellblock.environment["HOME"]
        ran = cellblock.sh("echo $HOME; cd && touch made && pwd", env={} if value is None else {"HOME": value})
        assert (ran.status, ran.out) == (0, "/run/home\n/run/home\n"), ran.err

    def test_of_somebody_else(self, cellblock, tmp_path, outside):
        """Secrets there are no more visible than in one's own."""
        (outside / ".ssh").mkdir()
        (outside / ".ssh" / "id_rsa").write_text("SECRET")
        assert cellblock.run("cat", outside / ".ssh" / "id_rsa", env={"HOME": str(outside)}).status == 1


def without_sanitizers():
    if is_sanitized():
        skip_because("needs a build without sanitizers: they need more than there is here")


class TestProc:
    WITHOUT = 'umount -l /proc && exec "$@"'

    @pytest.fixture(autouse=True)
    def plain(self):
        without_sanitizers()

    @needs_root
    def test_not_mounted(self, cellblock, workspace):
        ran = in_mounts(cellblock, self.WITHOUT, PROGRAM, "run", "--", "touch", "marker")
        if ran.returncode == 0:
            return
        assert ran.returncode == 125 and not (workspace / "marker").exists()
        assert "/proc" in ran.stderr, "it says what is missing"

    @needs_root
    def test_doctor_says_it(self, cellblock):
        ran = in_mounts(cellblock, self.WITHOUT, PROGRAM, "doctor")
        assert "/proc" in ran.stdout

    def test_something_else_is_there(self, cellblock, workspace):
        """An empty directory that is not the kernel's: nothing is believed that it does not say."""
        script = 'mount -t tmpfs none /proc && exec "$@"'
        ran = in_mounts(cellblock, script, PROGRAM, "run", "--", "touch", "marker")
        assert ran.returncode == 125 and not (workspace / "marker").exists()


class TestLimitsOfTheCaller:
    @pytest.mark.parametrize("number", [16, 24, 64])
    def test_few_open_files_by_habit(self, cellblock, number):
        """The soft limit alone: it can be raised for ourselves, and the program gets it as it was."""
        ran = under(cellblock, f"-Sn {number}", "run", "--", "bash", "-c", "ulimit -Sn")
        assert (ran.returncode, ran.stdout) == (0, f"{number}\n"), ran.stderr

    @pytest.mark.parametrize("number", [4, 8, 16, 24, 64, 128])
    def test_few_open_files(self, cellblock, workspace, number):
        ran = under(cellblock, f"-n {number}", "run", "--", "sh", "-c", "touch marker; ulimit -n")
        if ran.returncode == 0:
            assert ran.stdout == f"{number}\n"
        else:
            assert ran.returncode == 125 and "Too many open files" in ran.stderr
            assert not (workspace / "marker").exists()

    @needs_user
    @pytest.mark.parametrize("number", [1, 2, 3, 4, 8, 64])
    def test_few_processes(self, cellblock, workspace, number):
        ran = under(cellblock, f"-u {number}", "run", "--", "sh", "-c", "echo x >marker; echo works")
        if ran.returncode == 0:
            assert ran.stdout == "works\n"
        else:
            assert ran.returncode == 125 and "temporarily unavailable" in ran.stderr
            assert not (workspace / "marker").exists()

    @pytest.mark.parametrize("limit, word", [("-v 100000", "memory"), ("-s 256", "stack"), ("-f 0", "files"),
                                             ("-c 0", "cores"), ("-l 0", "locked"), ("-t 20", "time")])
    def test_others(self, cellblock, limit, word):
        if word == "memory":
            without_sanitizers()
        ran = under(cellblock, limit, "run", "--", "sh", "-c", f"echo {word}")
        assert (ran.returncode, ran.stdout) == (0, f"{word}\n"), ran.stderr

    def test_a_limit_of_the_caller_stays(self, cellblock):
        """A cell never has more than its caller."""
        ran = under(cellblock, "-n 200", "run", "--open-files", "4000", "--", "sh", "-c", "ulimit -n")
        assert (ran.returncode, ran.stdout) == (0, "200\n"), ran.stderr


class TestLargeThings:
    def test_an_environment_of_a_megabyte(self, cellblock):
        big = {f"BIG_{number}": chr(97 + number) * 100_000 for number in range(10)}
        code = "import os; print(sum(len(os.environ[n]) for n in os.environ if n.startswith('BIG_')))"
        assert cellblock.python(code, env=big).out == "0\n"
        ran = cellblock.python(code, env=big, flags=["--env", "BIG_*"])
        assert (ran.status, ran.out) == (0, "1000000\n"), ran.err
        assert cellblock.python(code, env=big, flags=["--env", "BIG_*", "--json"]).json["stdout"] == "1000000\n"

    def test_an_argument_of_a_hundred_kilobytes(self, cellblock):
        ran = cellblock.run("sh", "-c", "echo ${#1}", "sh", "x" * 100_000)
        assert (ran.status, ran.out) == (0, "100000\n"), ran.err

    def test_more_than_a_program_can_take(self, cellblock):
        """Together they are too large for the kernel: as in a shell, the program can't be executed."""
        big = {f"BIG_{number}": "x" * 100_000 for number in range(3)}
        ran = cellblock.run("sh", "-c", "echo ran", *["y" * 100_000] * 15, env=big,
                            flags=["--env", "BIG_*"], preexec_fn=lambda: resource.setrlimit(
                                resource.RLIMIT_STACK, (8 << 20, resource.RLIM_INFINITY)))
        assert ran.status in (0, 126) and (ran.status == 0) == (ran.out == "ran\n"), ran.err


class TestSignals:
    ALL = [number for number in signal.valid_signals() if number not in (signal.SIGKILL, signal.SIGSTOP)]

    def test_all_blocked(self, cellblock):
        """The timeout works, the program starts with none blocked, its end is seen."""
        def block():
            signal.pthread_sigmask(signal.SIG_BLOCK, self.ALL)

        code = "import signal; print(signal.pthread_sigmask(signal.SIG_BLOCK, [])); exit(3)"
        ran = cellblock.python(code, preexec_fn=block)
        assert (ran.status, ran.out) == (3, "set()\n")
        assert cellblock.run("sleep", "1000", flags=["--timeout", "200ms"], preexec_fn=block, timeout=20).status == 124

    def test_all_ignored(self, cellblock):
        def ignore():
            for number in self.ALL:
                try:
                    signal.signal(number, signal.SIG_IGN)
                except OSError:
                    pass        # real-time ones that the C library keeps for itself

        ran = cellblock.sh("(exit 4); echo $?; exit 3", preexec_fn=ignore)
        assert (ran.status, ran.out) == (3, "4\n"), ran.err
        ran = cellblock.run("sleep", "1000", flags=["--timeout", "200ms", "--json"], preexec_fn=ignore, timeout=20)
        assert ran.status == 124 and ran.json["end"] == "timeout"

    def test_in_the_background_of_a_shell(self, cellblock):
        """`cellblock run … &` in a script: SIGINT and SIGQUIT are ignored, standard input is /dev/null."""
        script = '"$0" run -- sh -c "cat; echo works; exit 5" & wait $!; echo $?'
        ran = subprocess.run(["sh", "-c", script, PROGRAM], cwd=cellblock.workspace, env=cellblock.environment,
                             capture_output=True, text=True, timeout=20)
        assert ran.stdout == "works\n5\n", ran.stderr


HUGE = """
import mmap, os
size, times = 64 << 20, 32
fd = os.memfd_create("large")
os.ftruncate(fd, size)
shown = [mmap.mmap(fd, size, mmap.MAP_SHARED | mmap.MAP_POPULATE) for _ in range(times)]
resident = int(open("/proc/self/statm").read().split()[1]) * mmap.PAGESIZE
assert resident >= 2 << 30, resident
for helper in AUTO, NEVER, ALWAYS:
    status, result = Cell("sh", "-c", "echo small; exit 6", helper=helper).wait()
    assert (status, result["stdout"]) == (6, "small\\n"), result
    assert result["usage"]["peak_memory"] < 100 << 20, result["usage"]
print("done")
"""

THREADS = """
import threading
wrong, cells = [], 3
def work(number):
    for turn in range(cells):
        helper = (NEVER, ALWAYS, AUTO)[(number + turn) % 3]
        try:
            status, result = Cell("sh", "-c", f"echo {number}-{turn}; exit {number}", helper=helper).wait()
            if (status, result["stdout"]) != (number, f"{number}-{turn}\\n"):
                wrong.append(result)
        except RuntimeError as problem:
            wrong.append(str(problem))
Cell("true").wait()         # what is opened once, and stays
before = len(os.listdir("/proc/self/fd"))
threads = [threading.Thread(target=work, args=(number,)) for number in range(32)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert not wrong, wrong
assert len(os.listdir("/proc/self/fd")) == before
try:
    os.waitpid(-1, os.WNOHANG)
    raise AssertionError("a child is left")
except ChildProcessError:
    print("done")
"""

# A language runtime or a service manager may do this: every child that ends is collected, whoever's it is.
REAPER = """
import threading
flags, seen, over = int(sys.argv[1], 0), [], threading.Event()
child = os.fork()
if child == 0:
    os._exit(9)
def collect():
    while not over.is_set():
        try:
            seen.append(os.waitpid(-1, flags | os.WNOHANG)[0])
        except ChildProcessError:
            pass
thread = threading.Thread(target=collect, daemon=True)
thread.start()
for helper in NEVER, ALWAYS:
    for number in range(10):
        status, result = Cell("sh", "-c", f"sleep 0 & echo {number}; exit {number}", helper=helper).wait()
        assert (status, result["stdout"], result["end"]) == (number, f"{number}\\n", "exited"), result
over.set()
thread.join()
assert child in seen
print("done")
"""


def library_caller(cellblock, code, *arguments, timeout=120):
    ran = subprocess.run(library.caller(code, *arguments), cwd=cellblock.workspace, env=cellblock.environment,
                         capture_output=True, text=True, timeout=timeout)
    assert (ran.returncode, ran.stdout) == (0, "done\n"), ran.stderr


class TestCallers:
    def test_two_gigabytes(self, cellblock):
        """Resident, by the kernel's count; by mapping the same memory often, so that the machine need not have it."""
        library_caller(cellblock, HUGE)

    @pytest.mark.slow
    def test_thirty_two_threads(self, cellblock):
        library_caller(cellblock, THREADS)

    @pytest.mark.parametrize("flags", ["0", "0x40000000"], ids=["usual", "all"])
    def test_one_that_collects_every_child(self, cellblock, flags):
        """With __WALL it even gets those that are not announced."""
        library_caller(cellblock, REAPER, flags)

    def test_a_parent_that_never_collects(self, cellblock):
        """SIGCHLD ignored: the kernel collects, and there is no status to be had by wait."""
        script = 'trap "" CHLD; "$0" run -- sh -c "(exit 2); exit 7"; echo $?'
        ran = subprocess.run(["bash", "-c", script, PROGRAM], cwd=cellblock.workspace, env=cellblock.environment,
                             capture_output=True, text=True, timeout=20)
        assert ran.stdout == "7\n", ran.stderr

    def test_the_mode_of_new_files_is_the_callers(self, cellblock, workspace):
        cellblock.sh("touch file; mkdir directory", preexec_fn=lambda: os.umask(0o027))
        assert stat.S_IMODE((workspace / "file").stat().st_mode) == 0o640
        assert stat.S_IMODE((workspace / "directory").stat().st_mode) == 0o750
