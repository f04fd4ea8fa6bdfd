"""Runs inside the surroundings that a test has made, and prints what it finds there as JSON:

    inside.py PROGRAM WORKSPACE UID [FLAGS]...

UID is who we are as the machine sees it: in a user namespace root may be somebody else.

by_hand   what can be had here, layer by layer, tried without any code of cellblock's
doctor    what `cellblock doctor --json` says, and its exit status
plain     what an attacker gets at without a cell: the proof that the attacks below would work
runs      for each FLAGS (options of `cellblock run`, one string): how it ended, what the attacker got at, and the report

The attacker is this same file with the argument `attack`. It needs nothing but Python, as does everything here.
"""

import contextlib
import ctypes
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile

libc = ctypes.CDLL(None, use_errno=True)

NEWUSER, NEWNS, NEWPID, NEWNET, NEWIPC, NEWUTS, NEWCGROUP = (
    0x10000000, 0x20000, 0x20000000, 0x40000000, 0x8000000, 0x4000000, 0x2000000)
NOBODY = 65534


def call(function, *arguments):
    result = getattr(libc, function)(*arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), function)
    return result


def system_call(number, *arguments):
    return call("syscall", ctypes.c_long(number), *(ctypes.c_long(word) if isinstance(word, int) else word
                                                    for word in arguments))


# ---- By hand ----

def works(function, *arguments):
    """Whether a function gets through in a process of its own."""
    child = os.fork()
    if child == 0:
        try:
            function(*arguments)
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0


def in_user_namespace(root, function):
    """Does it in a new user namespace, where root stands for nobody, and another user for itself."""
    outside = NOBODY if root else os.getuid()
    up, down = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        try:
            call("unshare", NEWUSER)
            os.write(up[1], b"x")
            os.read(down[0], 1)
            os.setresgid(0, 0, 0)
            os.setresuid(0, 0, 0)
            function()
        except BaseException:
            os._exit(1)
        os._exit(0)
    os.close(up[1])
    try:
        if os.read(up[0], 1):
            for name, text in ("setgroups", "deny"), ("uid_map", f"0 {outside} 1"), ("gid_map", f"0 {outside} 1"):
                pathlib.Path(f"/proc/{child}/{name}").write_text(text)
            os.write(down[1], b"x")
    except OSError:
        os.kill(child, signal.SIGKILL)
    if os.waitpid(child, 0)[1] != 0:
        raise OSError("in the namespace")


def all_namespaces():
    call("unshare", NEWNS | NEWPID | NEWNET | NEWIPC | NEWUTS | NEWCGROUP)


def new_mounts():
    """A tmpfs by the calls that came with Linux 5.2, made read-only by the one of 5.12."""
    all_namespaces()
    there = system_call(430, b"tmpfs", 1)
    system_call(431, there, 6, None, None, 0)
    made = system_call(432, there, 0, 0)
    system_call(442, made, b"", 0x1000, (ctypes.c_uint64 * 4)(1), 32)
    system_call(429, made, b"", -100, b"/tmp", 4)
    os.chdir("/tmp")
    system_call(155 if os.uname().machine == "x86_64" else 41, b".", b".")


def new_proc():
    all_namespaces()
    child = os.fork()
    if child == 0:
        os._exit(0 if libc.mount(b"proc", b"/proc", b"proc", 0, None) == 0 else 1)
    if os.waitpid(child, 0)[1] != 0:
        raise OSError("proc")


def idmapped():
    """Shows the current directory as if what is root's were nobody's."""
    holder = subprocess.Popen(["unshare", "-U", "sleep", "60"])
    try:
        while os.readlink(f"/proc/{holder.pid}/ns/user") == os.readlink("/proc/self/ns/user"):
            if holder.poll() is not None:
                raise OSError("no user namespace")
        for name in "uid_map", "gid_map":
            pathlib.Path(f"/proc/{holder.pid}/{name}").write_text(f"0 {NOBODY} 1")
        tree = system_call(428, -100, b".", 1)
        with open(f"/proc/{holder.pid}/ns/user") as space:
            system_call(442, tree, b"", 0x1000, (ctypes.c_uint64 * 4)(0x100000, 0, 0, space.fileno()), 32)
    finally:
        holder.kill()
        holder.wait()


class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_void_p)]


def filtered(flags):
    allow_all = ctypes.create_string_buffer((6).to_bytes(4, "little") + (0x7FFF0000).to_bytes(4, "little"))
    program = Program(1, ctypes.addressof(allow_all))
    call("prctl", 38, 1, 0, 0, 0)
    system_call(317 if os.uname().machine == "x86_64" else 277, 1, flags, ctypes.byref(program))


def own_cgroup():
    """Makes a group below the one that this process is in, in any of the trees that limit memory or processes."""
    mounts = [line.split(" - ") for line in open("/proc/self/mountinfo")]
    for line in open("/proc/self/cgroup"):
        _, kinds, group = line.rstrip("\n").split(":", 2)
        for left, right in mounts:
            kind, _, options = right.split()[:3]
            root, point = left.split()[3:5]
            fits = kind == "cgroup2" if not kinds else kind == "cgroup" and kinds in options.split(",")
            if not fits or not (group + "/").startswith(root.rstrip("/") + "/") or kinds not in ("", "memory", "pids"):
                continue
            here = pathlib.Path(point, os.path.relpath(group, root))
            if not kinds and not {"memory", "pids"} & set((here / "cgroup.controllers").read_text().split()):
                continue
            with contextlib.suppress(OSError):
                made = pathlib.Path(tempfile.mkdtemp(dir=here))
                made.rmdir()
                return
    raise OSError("none")


def by_hand(root):
    return {
        "user-namespace": works(in_user_namespace, root, os.getpid),
        "namespaces": works(in_user_namespace, root, all_namespaces),
        "mount-api": works(in_user_namespace, root, new_mounts),
        "proc": works(in_user_namespace, root, new_proc),
        "idmap": works(idmapped),
        "landlock": works(system_call, 444, None, 0, 1),
        "seccomp": works(filtered, 0),
        "seccomp-notify": works(filtered, 8),
        "pidfd": works(lambda: signal.pidfd_send_signal(os.pidfd_open(os.getpid()), 0)),
        "close_range": works(system_call, 436, 1000, 1000, 0),
        "openat2": works(system_call, 437, -100, b".", (ctypes.c_uint64 * 3)(), 24),
        "clone3": works(lambda: libc.syscall(435, None, 0) < 0 and ctypes.get_errno() == 22 or os._exit(1)),
        "cgroup": works(own_cgroup),
    }


# ---- The attacker ----

def answer(function, *arguments):
    try:
        function(*arguments)
    except OSError as error:
        return type(error).__name__
    return "worked"


def stay_behind(mark):
    """A process that wants to outlive the run: twice forked, in a session of its own. Returns when it runs."""
    started, starting = os.pipe()       # closed by exec
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            null = os.open("/dev/null", os.O_RDWR)
            for number in range(3):
                os.dup2(null, number)
            os.execv("/bin/sleep", [mark, "600"])
        os._exit(0)
    os.close(starting)
    os.read(started, 1)
    os.wait()


def attack(outside, port, victim, abstract, mark):
    outside = pathlib.Path(outside)
    found = {
        "read a file outside": answer((outside / "secret").read_text),
        "list a directory outside": answer(os.listdir, outside),
        "make a file outside": answer((outside / "made").write_text, "x"),
        "change a file outside": answer(lambda: open(outside / "secret", "a").write("changed")),
        "connect by TCP": answer(socket.create_connection, ("127.0.0.1", int(port)), 5),
        "connect to an abstract socket": answer(lambda: socket.socket(socket.AF_UNIX).connect("\0" + abstract)),
        "signal a process outside": answer(os.kill, int(victim), signal.SIGUSR1),
        "read the memory of a process outside": answer(lambda: open(f"/proc/{victim}/mem", "rb")),
        "work in the workspace": answer(pathlib.Path("made").write_text, "x"),
    }
    found["see a token"] = "worked" if os.environ.get("API_TOKEN") else "absent"
    stay_behind(mark)
    print(json.dumps(found))


def marked(mark):
    """Processes whose first argument is the mark."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                if pathlib.Path("/proc", entry, "cmdline").read_bytes().split(b"\0")[0] == mark.encode():
                    found.append(int(entry))
    return found


class Victim:
    """What an attacker would want to reach: files, sockets, a process; made anew for every try."""

    def __enter__(self):
        self.directory = tempfile.TemporaryDirectory(prefix="outside-")
        self.place = pathlib.Path(self.directory.name)
        (self.place / "secret").write_text("secret\n")
        self.tcp = socket.create_server(("127.0.0.1", 0))
        self.abstract = f"cellblock-victim-{os.getpid()}"
        self.unix = socket.socket(socket.AF_UNIX)
        self.unix.bind("\0" + self.abstract)
        self.unix.listen()
        self.process = subprocess.Popen(["sleep", "600"])
        return self

    def arguments(self, mark):
        return [self.place, self.tcp.getsockname()[1], self.process.pid, self.abstract, mark]

    def __exit__(self, *_):
        self.tcp.close()
        self.unix.close()
        self.process.kill()
        self.process.wait()
        self.directory.cleanup()


def run(command, mark):
    """The end of a command that runs the attacker, and whatever of it stayed behind."""
    with Victim() as victim:
        words = [str(word) for word in (*command, "/usr/bin/python3", __file__, "attack", *victim.arguments(mark))]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL,
                              env={**os.environ, "API_TOKEN": "token"})
        found = json.loads(done.stdout) if done.stdout.startswith("{") else {}
        left = marked(mark)
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        if found:
            found["leave a process behind"] = "worked" if left else "gone"
        return {"status": done.returncode, "stderr": done.stderr, "found": found, "left": len(left)}


def run_in_a_cell(program, options, mark):
    command = [program, "run", *options.split(), "--read", os.path.dirname(__file__)]
    told = subprocess.run([*command, "--json", "--", "true"], capture_output=True, text=True, timeout=60,
                          stdin=subprocess.DEVNULL)
    return {**run([*command, "--"], mark), "report": json.loads(told.stdout).get("report")}


def main(program, workspace, user, *flags):
    os.makedirs(workspace, exist_ok=True)
    os.chdir(workspace)
    doctor = subprocess.run([program, "doctor", "--json"], capture_output=True, text=True, timeout=60)
    told = subprocess.run([program, "doctor"], capture_output=True, text=True, timeout=60)
    report = {
        "by_hand": by_hand(int(user) == 0),
        "doctor": {"status": doctor.returncode, "answer": json.loads(doctor.stdout or "null"), "text": told.stdout,
                   "stderr": doctor.stderr},
        "plain": run([], "mark-plain"),
        "runs": [run_in_a_cell(program, options, f"mark-{number}") for number, options in enumerate(flags)],
    }
    print("REPORT " + json.dumps(report))


if sys.argv[1] == "attack":
    attack(*sys.argv[2:])
else:
    main(*sys.argv[1:])
