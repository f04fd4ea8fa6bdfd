"""Files that the policy does not grant: reading, writing, changing their attributes, special files, /proc and /sys."""

import dataclasses
import os
import socket
import stat
import subprocess

import pytest

from attacks import Attack, is_root, listing, prove, table
from conftest import PROGRAM, needs_root, skip_because, which

REACHING_OUT = [
    Attack("read a file outside", 'attempt(lambda: open("{outside}/data").read())',
           {"mounts": "ENOENT", "landlock": "EACCES"}),
    Attack("read a key at home", 'attempt(lambda: open("{home}/.ssh/id_rsa").read())',
           {"mounts": "ENOENT"}, also_off=("landlock",)),
    Attack("list a directory outside", 'attempt(os.listdir, "{outside}")', {"mounts": "ENOENT", "landlock": "EACCES"}),
    Attack("make a file outside", 'attempt(write, "{outside}/new", flags=os.O_WRONLY | os.O_CREAT)',
           {"mounts": "ENOENT", "landlock": "EACCES"}),
    Attack("change a file outside", 'attempt(write, "{outside}/data")', {"mounts": "ENOENT", "landlock": "EACCES"}),
    Attack("remove a file outside", 'attempt(os.unlink, "{outside}/data")',
           {"mounts": "ENOENT", "landlock": "EACCES"}),
    Attack("read outside by /proc/self/root", 'attempt(lambda: open("/proc/self/root{outside}/data").read())',
           {"mounts": "ENOENT", "landlock": "EACCES"}),
    Attack("read outside by ..", 'attempt(lambda: open("../../outside/data").read())',
           {"mounts": "ENOENT", "landlock": "EACCES"}),
    Attack("read outside by a symbolic link",
           'os.symlink("{outside}/data", "link"); attempt(lambda: open("link").read()); os.unlink("link")',
           {"mounts": "ENOENT", "landlock": "EACCES"}),
    Attack("read outside by /proc/self/cwd", 'attempt(lambda: open("/proc/self/cwd/../../outside/data").read())',
           {"mounts": "ENOENT", "landlock": "EACCES"}),
    Attack("read password hashes", 'attempt(lambda: open("/etc/shadow").read())',
           {"mounts": "ENOENT", "landlock": "EACCES"}, root=True),
    Attack("connect to a socket outside",
           's = socket.socket(socket.AF_UNIX); attempt(s.connect, "{outside}/socket")', {"mounts": "ENOENT"}),
]


@pytest.fixture
def places(workspace, home, outside):
    (outside / "data").write_text("private\n")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(outside / "socket"))
    listener.listen()
    yield {"workspace": workspace, "home": home, "outside": outside}
    listener.close()


@pytest.mark.parametrize("attack", table(REACHING_OUT), ids=str)
def test_what_is_not_granted_is_out_of_reach(cellblock, attack, places, outside):
    def restore():
        (outside / "data").write_text("private\n")
        (outside / "new").unlink(missing_ok=True)

    prove(cellblock, attack, places, restore)
    assert (outside / "data").read_text() == "private\n"
    assert not (outside / "new").exists()


# What was granted for reading. Landlock knows nothing of modes, owners, times and attributes: the mount alone holds.
READ_ONLY = [
    Attack("write", 'attempt(write, "{outside}/data")', {"mounts": "EROFS", "landlock": "EACCES"}),
    Attack("truncate", 'attempt(os.truncate, "{outside}/data", 0)', {"mounts": "EROFS", "landlock": "EACCES"}),
    Attack("make a file", 'attempt(write, "{outside}/new", flags=os.O_WRONLY | os.O_CREAT)',
           {"mounts": "EROFS", "landlock": "EACCES"}),
    Attack("unlink", 'attempt(os.unlink, "{outside}/data")', {"mounts": "EROFS", "landlock": "EACCES"}),
    Attack("rename", 'attempt(os.rename, "{outside}/data", "{outside}/new")',
           {"mounts": "EROFS", "landlock": "EACCES"}),
    Attack("chmod", 'attempt(os.chmod, "{outside}/data", 0o777)', {"mounts": "EROFS"}, also_off=("landlock",)),
    Attack("chown", 'attempt(os.chown, "{outside}/data", os.getuid(), os.getgid())', {"mounts": "EROFS"},
           also_off=("landlock",)),
    Attack("utime", 'attempt(os.utime, "{outside}/data", (1, 1))', {"mounts": "EROFS"}, also_off=("landlock",)),
    Attack("fchmod through a descriptor that was opened for reading",
           'attempt(os.fchmod, os.open("{outside}/data", os.O_RDONLY), 0o777)', {"mounts": "EROFS"},
           also_off=("landlock",)),
    Attack("utime through a descriptor", 'attempt(os.utime, os.open("{outside}/data", os.O_RDONLY), (1, 1))',
           {"mounts": "EROFS"}, also_off=("landlock",)),
    Attack("reopen for writing by /proc/self/fd",
           'fd = os.open("{outside}/data", os.O_RDONLY); attempt(write, f"/proc/self/fd/{fd}")',
           {"mounts": "EROFS", "landlock": "EACCES"}),
]


@pytest.mark.parametrize("attack", table(READ_ONLY), ids=str)
def test_a_read_grant_is_read_only(cellblock, attack, places, outside):
    (outside / "data").chmod(0o644)

    def restore():
        (outside / "new").unlink(missing_ok=True)
        (outside / "data").write_text("private\n")
        os.utime(outside / "data", (1000, 1000))
        (outside / "data").chmod(0o644)

    restore()
    attack = dataclasses.replace(attack, flags=("--read", "{outside}"))
    prove(cellblock, attack, places, restore)
    left = (outside / "data").stat()
    assert (stat.S_IMODE(left.st_mode), left.st_mtime) == (0o644, 1000)
    assert (outside / "data").read_text() == "private\n"


def test_extended_attributes_of_a_read_grant(cellblock, places, outside):
    try:
        os.setxattr(outside / "data", "user.test", b"1")
    except OSError:
        skip_because("this file system has no user attributes")
    attack = Attack("setxattr", 'attempt(os.setxattr, "{outside}/data", "user.test", b"2")', {"mounts": "EROFS"},
                    flags=("--read", "{outside}"), also_off=("landlock",))
    prove(cellblock, attack, places, lambda: os.setxattr(outside / "data", "user.test", b"1"))
    assert os.getxattr(outside / "data", "user.test") == b"1"


SYSTEM = [
    Attack("raise one's own out-of-memory score", 'attempt(write, "/proc/self/oom_score_adj", "500")',
           {"proc": "EROFS"}),
    Attack("write a process's name by /proc", 'attempt(write, "/proc/self/comm", "other")', {"proc": "EROFS"}),
]


@pytest.mark.parametrize("attack", table(SYSTEM), ids=str)
def test_proc_can_not_be_written(cellblock, attack, places):
    prove(cellblock, attack, places)


NEVER_WRITABLE = ["/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/proc/sys/kernel/modprobe",
                  "/proc/sys/vm/drop_caches", "/proc/sys/fs/binfmt_misc/register", "/proc/irq/0/smp_affinity",
                  "/proc/self/uid_map", "/proc/self/setgroups", "/sys/kernel/uevent_helper",
                  "/sys/fs/cgroup/release_agent",
                  "/sys/devices/system/cpu/cpu1/online", "/sys/devices/system/cpu/uevent"]


@pytest.mark.parametrize("path", NEVER_WRITABLE)
@pytest.mark.parametrize("off", [[], ["landlock"], ["capabilities"], ["seccomp"], ["proc"], ["landlock", "seccomp"]],
                         ids=str)
def test_kernel_settings_stay_closed_with_any_single_layer_off(cellblock, path, off):
    """Opening is not writing: nothing is set even where a test run as root gets this far."""
    ran = cellblock.python(f"open({path!r}, 'wb', buffering=0)", off=off)
    assert ran.status == 1
    assert any(word in ran.err for word in ("PermissionError", "FileNotFoundError", "Read-only file system")), ran.err


def test_sys_shows_only_processors_and_nodes(cellblock):
    assert set(cellblock.sh("ls /sys /sys/devices").out.split()) <= {
        "/sys:", "devices", "/sys/devices:", "system"}


def test_proc_files_with_secrets_of_the_kernel_are_empty(cellblock):
    code = "import os\nfor p in ('kcore', 'keys', 'sysrq-trigger', 'timer_list'):\n" \
           "  try: print(p, len(open('/proc/' + p, 'rb').read(16)))\n" \
           "  except OSError as e: print(p, e.strerror)"
    for line in cellblock.python(code).out.splitlines():
        assert line.endswith((" 0", "Permission denied", "No such file or directory", "Operation not permitted")), line


def test_the_launcher_can_not_be_overwritten(cellblock, workspace):
    """The way of CVE-2019-5736. Init is the launcher's own image; nothing of it shows, whichever layer is off."""
    code = "import os\nfor p in ('/proc/1/exe', '/proc/1/root', '/proc/1/fd', '/proc/1/mem', '/proc/1/environ'):\n" \
           "  try: os.open(p, os.O_RDONLY); print(p)\n  except OSError: pass"
    for off in [], ["landlock"], ["seccomp"], ["proc"], ["capabilities"]:
        ran = cellblock.python(code, off=off)
        assert (ran.status, ran.out) == (0, ""), off


def test_the_programs_own_image_is_read_only(cellblock):
    ran = cellblock.python("import os\ntry: os.open('/proc/self/exe', os.O_WRONLY)\n"
                           "except OSError as e: print(e.errno)")
    assert ran.out.strip() in {"26", "30", "13"}    # busy, read-only or refused


def test_policy_and_program_are_not_writable_from_the_cell(cellblock, workspace, tmp_path):
    """A policy inside the workspace is the caller's mistake to make; one outside can't be reached."""
    policy = tmp_path / "policy.jsonc"
    policy.write_text('{"cellblock": 1}')
    cellblock.sh(f"echo x > {policy}", flags=["--policy", str(policy)])    # /tmp is the cell's own
    assert policy.read_text() == '{"cellblock": 1}'


# ---- Special files ----

SET_ID = [
    ("chmod", 'os.chmod("f", 0o4755)'), ("fchmod", 'os.fchmod(os.open("f", os.O_RDONLY), 0o2755)'),
    ("fchmodat", 'os.chmod("f", 0o4755, dir_fd=os.open(".", os.O_RDONLY))'),
    ("fchmodat2", 'call("syscall", 452, -100, b"f", 0o4755, 0)'),
    ("open", 'os.open("g", os.O_CREAT | os.O_WRONLY, 0o4755)'), ("creat", 'call("creat", b"g", 0o6755)'),
    ("tmpfile", 'os.open(".", os.O_TMPFILE | os.O_WRONLY, 0o4755)'),
    ("mknod", 'os.mknod("g", stat.S_IFREG | 0o4755)'),
]


@pytest.mark.parametrize("code", [code for _, code in SET_ID], ids=[name for name, _ in SET_ID])
def test_no_setuid_file_is_left_behind(cellblock, workspace, places, code):
    (workspace / "f").write_text("#!/bin/sh\n")
    (workspace / "f").chmod(0o755)

    def restore():
        (workspace / "f").chmod(0o755)
        (workspace / "g").unlink(missing_ok=True)

    prove(cellblock, Attack("set-id", f"attempt(lambda: {code})", {"seccomp": "EPERM"}), places, restore)
    assert not any(path.lstat().st_mode & 0o6000 for path in workspace.iterdir())


def test_mkdir_gives_no_set_id_bits(cellblock, workspace):
    assert cellblock.python("import os; os.umask(0); os.mkdir('d', 0o6777)").status == 0
    assert stat.S_IMODE((workspace / "d").stat().st_mode) == 0o777


@pytest.mark.parametrize("kind", ["S_IFCHR", "S_IFBLK"])
def test_no_device_nodes(cellblock, workspace, kind):
    """Two layers say no: the filter, and the kernel to a caller without capabilities over the machine."""
    code = f"import os, stat; os.mknod('device', stat.{kind} | 0o666, os.makedev(1, 3))"
    if is_root():
        subprocess.run([which("mknod"), workspace / "bare", "c", "1", "3"], check=True)
        (workspace / "bare").unlink()
    for off in [], ["seccomp"], ["capabilities", "privileges"], ["landlock"]:
        assert "Operation not permitted" in cellblock.python(code, off=off).err
    assert not (workspace / "device").exists()


@needs_root
def test_a_device_node_that_lies_in_the_workspace_is_dead(cellblock, workspace):
    os.mknod(workspace / "zero", stat.S_IFCHR | 0o666, os.makedev(1, 5))
    os.chmod(workspace / "zero", 0o666)
    assert (workspace / "zero").open("rb").read(1) == b"\0"
    ran = cellblock.python("open('zero', 'rb').read(1)")
    assert "PermissionError" in ran.err


@needs_root
def test_a_setuid_program_in_the_workspace_gains_nothing(cellblock, workspace):
    for name, mode in (("id-setuid", 0o4755), ("id-setgid", 0o2755)):
        subprocess.run(["cp", which("id"), workspace / name], check=True)
        os.chown(workspace / name, 65534, 65534)
        (workspace / name).chmod(mode)
    plain = cellblock.sh("id").out
    assert cellblock.sh("./id-setuid").out == plain
    assert cellblock.sh("./id-setgid").out == plain


# ---- Names that lead elsewhere ----

@pytest.mark.parametrize("name", ["../../outside/x", "{outside}/x", "~/../../outside/x", "a/../../../outside/x"])
def test_a_file_name_chosen_by_the_code_does_not_leave(cellblock, workspace, outside, name):
    (workspace / "a").mkdir()
    name = name.replace("{outside}", str(outside))
    before = listing(outside)
    ran = cellblock.python(f"import os; open(os.path.expanduser({name!r}), 'w').write('x')")
    assert ran.status != 0
    assert listing(outside) == before
    with open(workspace / name if not name.startswith("~") else outside / "x", "w"):
        pass        # the same name, bare: it does lead out
    assert (outside / "x").exists()


def test_a_working_directory_that_is_gone_leads_nowhere(cellblock, workspace, outside):
    """`(unreachable)`: a descriptor or directory that has lost its place in the tree (CVE-2024-21626)."""
    (outside / "data").write_text("private\n")
    code = ("import os\nos.mkdir('d'); os.chdir('d'); os.rmdir('../d')\n"
            "for p in ('../../../outside/data', '/proc/self/cwd/../../../outside/data'):\n"
            "  try: os.open(p, os.O_RDONLY); print('opened', p)\n  except OSError as e: pass")
    ran = cellblock.python(code)
    assert (ran.status, ran.out) == (0, "")


def test_a_starting_directory_that_is_gone_is_refused(cellblock, workspace, tmp_path):
    lost = tmp_path / "lost"
    lost.mkdir()
    ran = subprocess.run(["sh", "-c", f'cd "{lost}" && rmdir "{lost}" && exec "$0" run -- touch marker',
                          str(PROGRAM)], env=cellblock.environment, capture_output=True)
    assert ran.returncode == 125
    assert b"current directory" in ran.stderr
