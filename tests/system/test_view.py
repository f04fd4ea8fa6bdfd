"""What a program finds in a cell that was started with no options at all."""

import os
import stat
import subprocess
import time

import pytest

from conftest import PROGRAM, needs_root, needs_user


def test_shadow_is_not_there(cellblock):
    ran = cellblock.run("cat", "/etc/shadow")
    assert ran.status == 1 and "No such file" in ran.err


@pytest.mark.parametrize("path", ["/root", "/srv", "/run/user", "/run/systemd", "/var/lib", "/var/log", "/boot",
                                  "/etc/ssh", "/etc/ssl/private", "/sys/kernel",
                                  "/sys/fs", "/dev/mem", "/dev/kmsg", "/dev/sda", "/etc/sudoers", "/mnt", "/media"])
def test_places_that_are_not_there(cellblock, path):
    assert cellblock.run("test", "!", "-e", path).status == 0


def test_the_root_holds_little(cellblock):
    names = set(cellblock.run("ls", "/").out.split())
    assert {"usr", "etc", "tmp", "proc", "dev"} <= names
    assert not names & {"root", "home", "srv", "boot", "mnt", "media", "lost+found"}


def test_home_is_private(cellblock, home):
    script = "ls -A ~; echo mine > ~/file && mkdir ~/folder && cat ~/file"
    ran = cellblock.sh(script)
    assert ran.out == "mine\n"
    assert sorted(entry.name for entry in home.iterdir()) == [".ssh", "project"]
    assert not os.path.exists("/run/home")
    assert cellblock.sh("ls -A ~").out == ""


def test_the_callers_home_holds_only_the_workspace(cellblock, home):
    assert cellblock.sh(f"ls -A {home}; echo x > {home}/file").out == "project\n"
    assert not (home / "file").exists()


def test_tmp_is_private(cellblock, outside):
    probe = outside / "probe"
    probe.write_text("")
    ran = cellblock.sh(f"test ! -e {probe} && echo mine > /tmp/cellblock-test-file && cat /tmp/cellblock-test-file")
    assert ran.out == "mine\n"
    assert not os.path.exists("/tmp/cellblock-test-file")
    assert cellblock.run("test", "-e", "/tmp/cellblock-test-file").status == 1


def test_tmp_takes_programs_and_sockets(cellblock):
    script = ("cp /bin/true /tmp/t && /tmp/t && cp /bin/true ~/t && ~/t && mkfifo /tmp/fifo && ln -s t /tmp/link && "
              "/tmp/link && chmod 1777 /tmp && echo fine")
    assert cellblock.sh(script).out == "fine\n"


def test_only_loopback(cellblock):
    ran = cellblock.run("cat", "/proc/net/dev")
    names = [line.split(":")[0].strip() for line in ran.out.splitlines()[2:]]
    assert names == ["lo"]


def test_loopback_works(cellblock):
    code = """
import socket, threading
for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
    server = socket.create_server((address, 0), family=family)
    def serve():
        peer, _ = server.accept()
        peer.sendall(peer.recv(100).upper())
        peer.close()
    thread = threading.Thread(target=serve)
    thread.start()
    client = socket.create_connection(server.getsockname()[:2])
    client.sendall(b"hello")
    print(client.recv(100).decode())
    thread.join()
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.bind(("127.0.0.1", 0))
udp.sendto(b"datagram", udp.getsockname())
print(udp.recv(100).decode())
"""
    ran = cellblock.python(code)
    assert (ran.out, ran.err) == ("HELLO\nHELLO\ndatagram\n", "")


def test_nothing_else_is_reachable(cellblock):
    code = ("import socket, errno\nfor a in ('192.0.2.1', '10.0.0.1', '169.254.169.254'):\n"
            " s = socket.socket(); s.settimeout(5)\n print(s.connect_ex((a, 80)) != 0)")
    assert cellblock.python(code).out == "True\n" * 3


def test_the_loopback_is_not_the_hosts(cellblock):
    import socket
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        ran = cellblock.python(f"import socket; socket.create_connection(('127.0.0.1', {port}))")
    assert ran.status == 1 and "ConnectionRefusedError" in ran.err


@pytest.mark.parametrize("directory", ["/", "/usr", "/usr/bin", "/etc", "/dev", "/proc", "/lib"])
def test_the_system_is_read_only(cellblock, directory):
    ran = cellblock.sh(f"echo x > {directory}/cellblock-test-file")
    assert ran.status != 0
    assert not os.path.exists(f"{directory}/cellblock-test-file")


def test_system_files_can_not_be_changed(cellblock):
    ran = cellblock.sh("for f in /etc/passwd /usr/bin/env /bin/sh; do : >> $f && echo wrote $f; chmod 0777 $f && "
                       "echo changed $f; rm -f $f && echo removed $f; done 2>/dev/null")
    assert ran.out == ""


def test_the_workspace_is_writable_and_the_callers(cellblock, workspace):
    script = ("mkdir -p a/b && echo new > a/b/file && echo run > tool && chmod 755 tool && ln -s file a/b/link && "
              "mkfifo pipe")
    ran = cellblock.sh(script)
    assert (ran.status, ran.err) == (0, "")
    for name in ("a", "a/b", "a/b/file", "tool", "a/b/link", "pipe"):
        info = (workspace / name).lstat()
        assert (info.st_uid, info.st_gid) == (os.geteuid(), os.getegid()), name
    assert (workspace / "a/b/file").read_text() == "new\n"
    assert stat.S_IMODE((workspace / "tool").stat().st_mode) == 0o755


def test_the_umask_is_the_callers(cellblock, workspace):
    cellblock.sh("umask; touch file", preexec_fn=lambda: os.umask(0o027))
    assert stat.S_IMODE((workspace / "file").stat().st_mode) == 0o640


def test_existing_files_can_be_changed_and_removed(cellblock, workspace):
    for name in ("change", "remove", "rename"):
        (workspace / name).write_text("old\n")
    (workspace / "change").chmod(0o600)
    ran = cellblock.sh("cat change; echo new >> change; rm remove; mv rename renamed; chmod 640 change; "
                       "touch -d @0 change")
    assert (ran.status, ran.out, ran.err) == (0, "old\n", "")
    assert sorted(entry.name for entry in workspace.iterdir()) == ["change", "renamed"]
    info = (workspace / "change").stat()
    assert (stat.S_IMODE(info.st_mode), info.st_mtime) == (0o640, 0)


def test_who_am_i(cellblock):
    ran = cellblock.sh("id -u; id -g; touch f; stat -c %u:%g f; stat -c %u:%g .")
    uid, gid = os.geteuid(), os.getegid()
    assert ran.out == f"{uid}\n{gid}\n{uid}:{gid}\n{uid}:{gid}\n"


def processes_below(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as children:
        direct = [int(child) for child in children.read().split()]
    return direct + [deeper for child in direct for deeper in processes_below(child)]


def ids_of(pid):
    with open(f"/proc/{pid}/status") as status:
        fields = dict(line.rstrip("\n").split(":\t", 1) for line in status if ":\t" in line)
    return fields


def look_from_outside(cellblock):
    """The status of every process of a running cell, as the host sees it."""
    process = subprocess.Popen([PROGRAM, "run", "--", "sh", "-c", "echo ready; read line"], cwd=cellblock.workspace,
                               env=cellblock.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    assert process.stdout.readline() == b"ready\n"
    # Beside the cell there may be the process that would clean up its cgroup, once it has its name.
    seen, deadline = [], time.monotonic() + 20
    while len(seen) != 2 and time.monotonic() < deadline:
        seen = [fields for fields in map(ids_of, processes_below(process.pid)) if fields["Name"] != "cellblock:clean"]
    process.communicate(b"\n", timeout=20)
    assert len(seen) == 2
    return seen


@needs_root
def test_root_is_nobody_on_the_host(cellblock):
    for fields in look_from_outside(cellblock):
        for key in ("Uid", "Gid"):
            assert all(int(number) > 65535 for number in fields[key].split()), fields


@needs_user
def test_an_ordinary_user_stays_the_same(cellblock):
    for fields in look_from_outside(cellblock):
        assert set(fields["Uid"].split()) == {str(os.geteuid())}


def test_the_program_has_no_powers(cellblock):
    program = look_from_outside(cellblock)[1]
    for key in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(program[key], 16) == 0, key
    assert (program["NoNewPrivs"], program["Seccomp"]) == ("1", "2")


@needs_root
def test_roots_private_project_files(cellblock, workspace):
    (workspace / "private").write_text("only for root\n")
    (workspace / "private").chmod(0o600)
    (workspace / "folder").mkdir(mode=0o700)
    ran = cellblock.sh("cat private; echo more >> private; touch folder/new; chmod 600 folder/new")
    assert (ran.status, ran.out, ran.err) == (0, "only for root\n", "")
    assert (workspace / "folder" / "new").stat().st_uid == 0


@needs_root
def test_somebody_elses_files_stay_theirs(cellblock, workspace):
    path = workspace / "theirs"
    path.write_text("theirs\n")
    os.chown(path, 1234, 1234)
    path.chmod(0o600)
    ran = cellblock.sh("cat theirs; echo mine > theirs; chown 0:0 theirs")
    assert ran.status != 0 and ran.out == ""
    assert path.read_text() == "theirs\n"
    assert path.stat().st_uid == 1234


def test_no_setuid_is_left_behind(cellblock, workspace):
    cellblock.sh("cp /bin/true t; chmod 4755 t; cp /bin/true u; chmod 2755 u; mkdir d; chmod 2775 d")
    for name in ("t", "u"):
        path = workspace / name
        assert not path.exists() or not path.stat().st_mode & (stat.S_ISUID | stat.S_ISGID), name


def test_the_path_inside_is_the_path_outside(cellblock, workspace):
    assert cellblock.run("pwd").out == f"{workspace}\n"


def test_protected_paths_can_not_be_made(cellblock, workspace):
    (workspace / ".git").mkdir()
    for name in (".vscode", ".git/hooks", ".claude", ".idea"):
        ran = cellblock.run("mkdir", name)
        assert ran.status == 1 and name in ran.err, name
        assert not (workspace / name).exists()


def test_other_directories_can_be_made(cellblock, workspace):
    ran = cellblock.sh("mkdir .vscode2 src .github && mkdir -p deep/.vscode && mv src lib && ln -s lib .link")
    assert (ran.status, ran.err) == (0, "")
    assert sorted(entry.name for entry in workspace.iterdir()) == [".github", ".link", ".vscode2", "deep", "lib"]


def test_existing_protected_paths_are_read_only(cellblock, workspace):
    hooks = workspace / ".git" / "hooks"
    hooks.mkdir(parents=True)
    (hooks / "pre-commit").write_text("#!/bin/sh\n")
    (workspace / ".bashrc").write_text("# mine\n")
    ran = cellblock.sh("cat .git/hooks/pre-commit; echo x >> .git/hooks/pre-commit; echo y > .git/hooks/new; "
                       "mv .git .tig; echo z >> .bashrc; rm -f .bashrc; true")
    assert ran.out == "#!/bin/sh\n"
    assert (hooks / "pre-commit").read_text() == "#!/bin/sh\n"
    assert [entry.name for entry in hooks.iterdir()] == ["pre-commit"]
    assert (workspace / ".bashrc").read_text() == "# mine\n"


def test_only_its_own_processes(cellblock):
    names = [name for name in cellblock.run("ls", "/proc").out.split() if name.isdigit()]
    assert set(names) <= {"1", "2", "3"}


def test_devices(cellblock):
    script = ("echo x > /dev/null && head -c 4 /dev/zero | wc -c && head -c 4 /dev/urandom | wc -c && "
              "! echo x > /dev/full; ls /dev")
    ran = cellblock.sh(script)
    lines = ran.out.split()
    assert lines[:2] == ["4", "4"]
    assert {"null", "zero", "full", "random", "urandom", "shm", "pts", "ptmx", "fd", "stdin", "stdout",
            "stderr"} <= set(lines)


def test_pseudo_terminals_work_inside(cellblock):
    code = ("import pty, os\npid, fd = pty.fork()\nif pid == 0: os.execlp('tty', 'tty')\n"
            "print(os.read(fd, 100).decode().strip())")
    assert cellblock.python(code).out.startswith("/dev/pts/")


def test_a_clean_session(cellblock):
    ran = cellblock.python("import os; print(os.getsid(0) == os.getpid(), os.getpgrp() == os.getpid())")
    assert ran.out == "True True\n"


def test_names_of_this_machine(cellblock):
    code = "import os, socket, pwd; print(socket.gethostbyname('localhost'), pwd.getpwuid(os.getuid()).pw_uid)"
    ran = cellblock.python(code)
    assert ran.out == f"127.0.0.1 {os.geteuid()}\n"
