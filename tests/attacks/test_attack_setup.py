"""Attacks on the setting-up of a cell: the workspace changes, a mount hides in a mount, a layer is missing."""

import os
import subprocess

import pytest

from attacks import is_root, listing, outside_helper
from conftest import HOOKED, PROGRAM, is_sanitized, needs_root, skip_because, which


class Flipper:
    """Exchanges two names for as long as the block lasts."""

    def __init__(self, one, other):
        self.command = [outside_helper("flip_names"), one, other]

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.process.stdout.readline() == b"ready\n"

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait(timeout=30)
        self.process.stdout.close()


@pytest.mark.slow
def test_the_workspace_is_exchanged_for_a_link_while_cells_start(cellblock, workspace, home, outside):
    """Never writes outside: it works in the directory, or refuses. The link leads to what the caller can write."""
    work = home / "work"
    work.mkdir()
    (home / "link").symlink_to(outside)
    before = listing(outside)
    ends = {}
    with Flipper(work, home / "link"):
        for _ in range(200):
            ran = cellblock.command("run", "--workspace", "work", "--", "sh", "-c", "pwd -P; echo x >made", cwd=home)
            if ran.status == 0 and ran.out.strip() == str(outside):
                # Asked for while the name was a link: then that directory is the workspace, as a person would expect.
                (outside / "made").unlink()
                ends["link"] = ends.get("link", 0) + 1
                continue
            assert listing(outside) == before, ran.out + ran.err
            assert ran.status in {0, 125}, ran.err
            ends[ran.status] = ends.get(ran.status, 0) + 1
    assert len(ends) > 1, f"the race was never met: {ends}"


@pytest.mark.slow
@pytest.mark.parametrize("name", [".vscode", ".git"])
def test_a_protected_directory_is_exchanged_for_a_link_while_cells_start(cellblock, workspace, outside, name):
    """A rule in the workspace is looked up there and nowhere else: what the link leads to is not shown, not written."""
    (workspace / name / "hooks").mkdir(parents=True)
    (workspace / "other").symlink_to(outside)
    (outside / "hooks").mkdir()
    (outside / "data").write_text("private\n")
    before = listing(outside)
    with Flipper(workspace / name, workspace / "other"):
        for _ in range(200):
            ran = cellblock.sh(f"cat {name}/data other/data; echo x >{name}/hooks/x; echo x >{name}/x; true")
            assert "private" not in ran.out
            assert ran.status in {0, 125}, ran.err
    assert listing(outside) == before


@pytest.mark.slow
def test_a_grant_is_exchanged_while_cells_start(cellblock, workspace, home, outside):
    """--read data, while data and a directory that was not granted change places: the objects are compared."""
    data = outside / "data"
    data.mkdir()
    (data / "which").write_text("granted\n")
    (outside / "secret").mkdir()
    (outside / "secret" / "which").write_text("SECRET\n")
    link = outside / "link"
    link.symlink_to("secret")
    seen = set()
    with Flipper(data, link):
        for _ in range(200):
            ran = cellblock.sh(f"cat {data}/which; echo x >{data}/new", flags=["--read", str(data)])
            seen.add(ran.out)
    assert not (data / "new").exists() and not (outside / "secret" / "new").exists()
    assert seen <= {"granted\n", "SECRET\n", ""}        # by name it is one or the other, and never writable


# ---- A mount in a mount ----

SUBMOUNT = """
mkdir -p {outside}/sub && mount -t tmpfs none {outside}/sub || exit 99
chmod 777 {outside}/sub
echo inner >{outside}/sub/file
echo bare >{outside}/sub/bare || exit 98
exec {program} run --read {outside} -- sh -c 'cat {outside}/sub/file
echo x >{outside}/sub/file; echo x >{outside}/sub/new
chmod 777 {outside}/sub/file; rm {outside}/sub/file; ls {outside}/sub'
"""


def run_with_submount(cellblock, outside, program=PROGRAM, env=None):
    unshare = [which("unshare"), "-m"] if is_root() else [which("unshare"), "-Urm"]
    script = SUBMOUNT.format(outside=outside, program=program)
    return subprocess.run([*unshare, "sh", "-c", script], cwd=cellblock.workspace, capture_output=True, text=True,
                          env={**cellblock.environment, **(env or {})})


def test_a_mount_below_a_read_grant_is_read_only_too(cellblock, outside):
    ran = run_with_submount(cellblock, outside)
    if ran.returncode in {98, 99}:
        skip_because("no mount can be made here")
    if "root" in ran.stderr and ran.returncode == 125:
        skip_because("an ordinary user who plays root in a user namespace can't give the cell another id")
    assert ran.stdout.split() == ["inner", "bare", "file"], ran.stderr
    assert ran.stderr.count("Read-only file system") >= 3


# ---- A layer is missing ----

# What is taken away, and the layers that the refusal may name for it.
MISSING = {
    "landlock_create_ruleset": {"landlock"}, "landlock_add_rule": {"landlock"},
    "landlock_restrict_self": {"landlock"}, "mount_setattr": {"idmap", "mounts", "mount-api"},
    "move_mount": {"mount-api"},
    "fsopen": {"mount-api"}, "fsconfig": {"mount-api"}, "fsmount": {"mount-api"},
    "open_tree": {"idmap", "mounts", "mount-api"},
    "seccomp": {"seccomp", "seccomp-notify"}, "pivot_root": {"mount-api"}, "umount2": {"mount-api"},
    "openat2": {"mounts", "mount-api", "openat2"}, "capset": {"capabilities"},
    "setsid": {"session"}, "prctl": {"privileges"}, "signalfd4": {"init", "supervision"}, "prlimit64": {"limits"},
    "clone": {"processes"},
}


# For these there is another way: all layers hold without them.
REPLACED = ["clone3", "close_range", "faccessat2", "memfd_create"]


@pytest.mark.parametrize("error", ["ENOSYS", "EPERM"])
@pytest.mark.parametrize("call", REPLACED)
def test_a_missing_call_is_replaced(cellblock, workspace, outside, call, error):
    """An outer filter that does not know a call must not keep the cell from being made, nor make it weaker."""
    (outside / "secret").write_text("SECRET")
    probe = f"cat {outside}/secret; touch {outside}/made; ls /proc/self/fd | wc -l; cat /proc/self/status"
    ran = subprocess.run([outside_helper("deny_syscall"), call, error, "--", PROGRAM, "run", "--", "sh", "-c", probe],
                         cwd=workspace, env=cellblock.environment, capture_output=True, text=True, timeout=30)
    bare = cellblock.sh(probe)
    assert "SECRET" not in ran.stdout and not (outside / "made").exists()
    assert ran.stdout.splitlines()[0] == bare.out.splitlines()[0], "a descriptor was left open"
    assert "NoNewPrivs:\t1" in ran.stdout and "CapBnd:\t0000000000000000" in ran.stdout


@pytest.mark.parametrize("error", ["ENOSYS", "EPERM"])
@pytest.mark.parametrize("call", MISSING)
def test_a_missing_layer_refuses_the_run(cellblock, workspace, call, error):
    """Nothing runs, not even for a moment; the status is cellblock's own; the message says what was missing."""
    if call in ("prlimit64", "clone") and is_sanitized():
        skip_because("needs a build without sanitizers: they make this call themselves")
    deny = outside_helper("deny_syscall")
    marker = workspace / "marker"

    def run(*before):
        return subprocess.run([*before, PROGRAM, "run", "--", "sh", "-c", "echo ran >marker"], cwd=workspace,
                              env=cellblock.environment, capture_output=True, text=True, timeout=30)

    assert run().returncode == 0 and marker.exists()
    marker.unlink()
    ran = run(deny, call, error, "--")
    assert not marker.exists(), "it ran without this layer"
    assert ran.returncode == 125, (ran.returncode, ran.stderr)
    named = [line.split(": ", 1)[1] for line in ran.stderr.splitlines() if line.startswith("  layer: ")]
    assert named and set(named) <= MISSING[call], ran.stderr


def test_no_process_is_left_after_a_refusal(cellblock, workspace, tmp_path):
    """The read end sees the end of the pipe only when the last process of the failed cell is gone."""
    reader, writer = os.pipe()
    ran = subprocess.run([outside_helper("deny_syscall"), "landlock_restrict_self", "EPERM", "--", PROGRAM, "run", "--",
                          "true"], cwd=workspace, env=cellblock.environment, stdout=writer, stderr=subprocess.DEVNULL,
                         pass_fds=[writer])
    os.close(writer)
    assert ran.returncode == 125
    assert os.read(reader, 1) == b""
    os.close(reader)


def test_no_room_for_processes(cellblock, workspace):
    """A limit of the caller's that leaves no room for a cell is no reason to go without one."""
    prlimit = which("prlimit")
    for limit in "--nofile=8:8", "--nofile=16:16", "--as=8000000:8000000", "--nproc=1:1":
        if limit.startswith("--nproc") and is_root():
            continue
        subprocess.run([prlimit, limit, PROGRAM, "run", "--", "sh", "-c", "id -u >marker"], cwd=workspace,
                       env=cellblock.environment, capture_output=True, timeout=30)
        marker = workspace / "marker"
        if marker.exists():       # the limit did not bite: then it ran in a cell
            assert cellblock.sh("test -e /proc/1/exe").status != 0
            marker.unlink()


@needs_root
def test_root_without_the_means_to_become_nobody(cellblock, workspace):
    ran = subprocess.run([which("setpriv"), "--bounding-set=-setuid", "--inh-caps=-all", PROGRAM, "run", "--",
                          "touch", "marker"], cwd=workspace, env=cellblock.environment, capture_output=True, text=True)
    assert ran.returncode == 125 and "layer: ids" in ran.stderr
    assert not (workspace / "marker").exists()


def test_the_product_has_no_switch_for_layers(cellblock, workspace, outside):
    """CELLBLOCK_TEST_OFF is for the test build alone."""
    (outside / "data").write_text("private\n")
    outcome = {}
    for program in PROGRAM, HOOKED:
        off = "mounts,landlock,seccomp,guard,ids"
        ran = subprocess.run([program, "run", "--", "cat", outside / "data"], cwd=workspace, capture_output=True,
                             env={**cellblock.environment, "CELLBLOCK_TEST_OFF": off})
        outcome[program] = ran.stdout
    assert outcome == {PROGRAM: b"", HOOKED: b"private\n"}
    assert b"CELLBLOCK_TEST_OFF" not in PROGRAM.read_bytes()
