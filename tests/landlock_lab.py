"""Tier landlock in the lab of internet.py: the same rules, without a network namespace of the cell's own."""

import contextlib
import os
import pathlib
import socket
import threading

import pytest

from internet import InLab, internet, lab    # noqa: F401: fixtures are used by their names
from tier import FLAGS


class TierInLab(InLab):
    flags = FLAGS

    def __init__(self, lab, workspace, home, tmp):
        super().__init__(lab, workspace, home)
        self.environment["TMPDIR"] = str(tmp)

    def run(self, *program, flags=(), **keywords):
        return super().run(*program, flags=[*self.flags, *flags], **keywords)

    def start(self, *program, flags=(), **keywords):
        return super().start(*program, flags=[*self.flags, *flags], **keywords)


@pytest.fixture
def tier(lab, workspace, home, tmp_path):
    tmp = tmp_path / "tmp"
    tmp.mkdir()
    yield TierInLab(lab, workspace, home, tmp)
    assert list(tmp.iterdir()) == []            # the private directory of every run is gone


class UnixServer:
    """A unix socket of the host's that says one thing to everybody; `heard` counts them."""

    def __init__(self, path, says, mode=0o666):
        self.path, self.says, self.heard = pathlib.Path(path), says, 0
        self.socket = socket.socket(socket.AF_UNIX)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        self.socket.bind(str(path))
        os.chmod(path, mode)
        self.socket.listen(64)
        threading.Thread(target=self.loop, daemon=True).start()

    def loop(self):
        with contextlib.suppress(OSError):
            while True:
                made, _ = self.socket.accept()
                self.heard += 1
                with made, contextlib.suppress(OSError):
                    made.sendall(self.says)

    def close(self):
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
