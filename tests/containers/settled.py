"""Runs a command in a user namespace that knows all ids and has settings of its own, so that the machine's stay as they
are:

    settled.py UID SETTING=VALUE... -- COMMAND...

Settings are those below /proc/sys/user, which every user namespace has for itself. Needs root.
"""

import ctypes
import os
import pathlib
import sys

NEWUSER = 0x10000000


def main(user, *words):
    settings, command = words[:words.index("--")], words[words.index("--") + 1:]
    ready, mapped = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        if ctypes.CDLL(None).unshare(NEWUSER) != 0:
            os._exit(2)
        os.write(ready[1], b"x")
        os.read(mapped[0], 1)
        for setting in settings:
            name, value = setting.split("=")
            pathlib.Path("/proc/sys/user", name).write_text(value)
        os.setgroups([])
        os.setresgid(int(user), int(user), int(user))
        os.setresuid(int(user), int(user), int(user))
        os.execvp(command[0], command)
    os.read(ready[0], 1)
    for name in "uid_map", "gid_map":
        pathlib.Path(f"/proc/{child}/{name}").write_text("0 0 65536")
    os.write(mapped[1], b"x")
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


main(*sys.argv[1:])
