"""What the attack tests share: an attack as data, and the proof that one layer or several refuse it.

An attack is code that prints "worked" or the name of the error that stopped it. The claim about it is a table of
layers, each with the error that it answers with. The proof has three parts: with all of these layers off the attack
works; with nothing off it is refused by the first; and each of them refuses it alone, with the others off.
"""

import dataclasses
import os
import shutil
import subprocess

from conftest import BUILD, PROGRAM

PRELUDE = """
import ctypes, errno, fcntl, os, socket, stat, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(function, *arguments):
    # A function of the C library, with OSError for failure.
    result = getattr(libc, function)(*arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), function)
    return result
def attempt(function, *arguments, **keywords):
    try:
        function(*arguments, **keywords)
    except OSError as error:
        print(errno.errorcode[error.errno])
    else:
        print("worked")
def write(path, text="x", flags=os.O_WRONLY):
    fd = os.open(path, flags, 0o644)
    os.write(fd, text.encode())
    os.close(fd)
"""


@dataclasses.dataclass(frozen=True)
class Attack:
    name: str
    code: str                 # after PRELUDE; {outside}, {workspace} and {home} are filled in
    refused_by: dict          # layer -> error; all of these off: it works
    flags: tuple = ()         # of cellblock run, with the same placeholders
    also_off: tuple = ()      # layers that have no part in it but would hide the effect
    root: bool | None = None  # only as root, or only as an ordinary user

    def __str__(self):
        return self.name


def is_root():
    return os.geteuid() == 0


def with_ids(off):
    """With the mounts off, a root caller's cell would still be a stranger to the caller's files: one layer more."""
    return [*off, "ids"] if is_root() and "mounts" in off else list(off)


def attempt(cellblock, attack, places, off):
    code = attack.code
    flags = list(attack.flags)
    for name, path in places.items():
        code = code.replace("{%s}" % name, str(path))
        flags = [flag.replace("{%s}" % name, str(path)) for flag in flags]
    ran = cellblock.python(PRELUDE + code, flags=flags, off=with_ids(off))
    assert ran.status == 0, (attack.name, off, ran.out, ran.err)
    return ran.out.strip()


def prove(cellblock, attack, places, restore=lambda: None):
    """`restore` puts things back after an attempt that was meant to work."""
    layers = list(attack.refused_by)
    assert attempt(cellblock, attack, places, [*layers, *attack.also_off]) == "worked"
    restore()
    assert attempt(cellblock, attack, places, []) == attack.refused_by[layers[0]]
    for alone in layers:
        others = [layer for layer in layers if layer != alone] + list(attack.also_off)
        if others:
            found = attempt(cellblock, attack, places, others)
            assert found == attack.refused_by[alone], f"{alone} alone, without {others}"


def table(attacks):
    """The parameters of a test: those that apply to who runs it."""
    return [attack for attack in attacks if attack.root is None or attack.root == is_root()]


def helper(name, workspace):
    """A compiled helper, copied to where the cell sees it."""
    copy = workspace / name
    shutil.copy(BUILD / "tests" / "attacks" / name, copy)
    return copy


def outside_helper(name):
    return BUILD / "tests" / "attacks" / name


def listing(directory):
    """Everything below a directory: name, type and, for files, content."""
    found = {}
    for where, directories, files in os.walk(directory):
        for name in directories + files:
            path = os.path.join(where, name)
            kind = os.lstat(path).st_mode & 0o170000
            found[os.path.relpath(path, directory)] = (
                kind, os.readlink(path) if os.path.islink(path) else
                open(path, "rb").read() if os.path.isfile(path) else None)
    return found


def start(cellblock, *arguments, program=PROGRAM, env=None, **keywords):
    """A run that the test talks to while it lasts."""
    keywords.setdefault("stdin", subprocess.PIPE)
    keywords.setdefault("stdout", subprocess.PIPE)
    keywords.setdefault("stderr", subprocess.PIPE)
    return subprocess.Popen([program, "run", *arguments], env={**cellblock.environment, **(env or {})},
                            cwd=cellblock.workspace, **keywords)
