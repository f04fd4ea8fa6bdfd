"""A person's terminal, for tests: a pseudo-terminal whose other side the test looks at and types into."""

import contextlib
import fcntl
import os
import pathlib
import pty
import select
import signal
import struct
import subprocess
import termios
import time

from conftest import PROGRAM

PATIENCE = 30

# The tiers, as flags. What is accepted is what the weaker one can't do for root, or in a workspace with a repository.
TIERS = {"namespaces": (), "landlock": ("--isolation", "landlock", "--accept-weaker", "ids", "--accept-weaker",
                                        "protected-paths")}


class Terminal:
    """Runs a command as the leader of a session with this as its controlling terminal, and as its standard streams
    unless `streams` has something else for some of 0, 1 and 2. What is shown and not yet looked at is in `shown`."""

    def __init__(self, command, cellblock, streams=None, size=(24, 80), env=None, controlling=True):
        self.outside, self.inside = pty.openpty()
        self.resize(*size)
        self.shown = b""
        self.before = termios.tcgetattr(self.inside)
        given = {0: self.inside, 1: self.inside, 2: self.inside, **(streams or {})}

        def take():
            if controlling:
                fcntl.ioctl(self.inside, termios.TIOCSCTTY, 0)

        self.process = subprocess.Popen(
            command, stdin=given[0], stdout=given[1], stderr=given[2], cwd=cellblock.workspace, preexec_fn=take,
            env={**cellblock.environment, "TERM": "xterm", **(env or {})}, start_new_session=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for number in filter(str.isdigit, os.listdir("/proc")):  # background jobs, too
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if os.getsid(int(number)) == self.process.pid:
                    os.kill(int(number), signal.SIGKILL)
        self.process.wait()
        self.close()

    def close(self):
        for name in "outside", "inside":
            if getattr(self, name) >= 0:
                os.close(getattr(self, name))
                setattr(self, name, -1)

    def resize(self, rows, columns):
        """As a window does it: whoever is in the foreground is told."""
        fcntl.ioctl(self.outside, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, keys):
        os.write(self.outside, keys)

    def look(self, patience=0.0):
        """Takes up what is shown. Returns False when that is nothing."""
        if not select.select([self.outside], [], [], patience)[0]:
            return False
        self.shown += os.read(self.outside, 65536)
        return True

    def expect(self, text, patience=PATIENCE):
        """Waits until the text is shown. Returns everything up to its end."""
        deadline = time.monotonic() + patience
        while text not in self.shown:
            left = deadline - time.monotonic()
            assert left > 0, f"{text!r} is not shown, but {self.shown[-4000:]!r}"
            self.look(left)
        end = self.shown.index(text) + len(text)
        found, self.shown = self.shown[:end], self.shown[end:]
        return found

    def until(self, condition, patience=PATIENCE):
        """Polls, and takes up what is shown meanwhile."""
        deadline = time.monotonic() + patience
        while not condition():
            assert time.monotonic() < deadline, f"still not so; shown: {self.shown[-4000:]!r}"
            self.look(0.01)

    def wait(self, patience=PATIENCE):
        """The exit status of the command, once all that it showed was taken up."""
        self.until(lambda: self.process.poll() is not None, patience)
        while self.look():
            pass
        return self.process.returncode

    @property
    def settings(self):
        return termios.tcgetattr(self.inside)

    @property
    def is_raw(self):
        return not self.settings[3] & (termios.ICANON | termios.ECHO | termios.ISIG)

    @property
    def foreground(self):
        return os.tcgetpgrp(self.outside)


def run(cellblock, *program, flags=(), program_path=PROGRAM, **keywords):
    """cellblock run on a terminal."""
    return Terminal([program_path, "run", *flags, "--", *program], cellblock, **keywords)


def first_processes(pid):
    """Those of the cells that this process supervises."""
    found = []
    with contextlib.suppress(FileNotFoundError):
        for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            if pathlib.Path(f"/proc/{child}/comm").read_text() == "cellblock-init\n":
                found.append(int(child))
    return found


class Shell(Terminal):
    """An interactive bash of the person's, with job control, where $C is the program."""

    PROMPT = b"READY> "

    def __init__(self, cellblock, **keywords):
        env = {"PS1": self.PROMPT.decode(), "C": str(PROGRAM), "TERM": "dumb", "LESS": "", **keywords.pop("env", {})}
        super().__init__(["bash", "--norc", "--noprofile", "-i"], cellblock, env=env, size=(24, 200), **keywords)
        self.expect(self.PROMPT)

    def enter(self, line):
        self.type(line + b"\r")
        self.expect(line + b"\r\n")

    def do(self, line):
        """Returns what it shows up to the next prompt."""
        self.enter(line)
        return self.expect(self.PROMPT)[:-len(self.PROMPT)]

    @property
    def children(self):
        with open(f"/proc/{self.process.pid}/task/{self.process.pid}/children") as handle:
            return [int(number) for number in handle.read().split()]
