"""The surroundings that the tests make: containers, namespaces, a cell, settings. Each runs a command in it."""

import dataclasses
import functools
import json
import os
import pathlib
import shutil
import subprocess

import docker
from conftest import BUILD, PROGRAM, skip_because, which

USER = 1000          # needs no name
NOBODY = 65534

HERE = pathlib.Path(__file__).resolve().parent
COPIED = [PROGRAM, BUILD / "tests/attacks/deny_syscall", HERE / "inside.py", HERE / "settled.py"]

# The root of a container: this system's, with a layer above it for what is changed, as an image would be. It is made in
# a mount namespace of its own, so that nothing of it is seen, or left, outside.
START = """
mount -t tmpfs tmpfs "$1/layer" && mkdir "$1/layer/upper" "$1/layer/work" "$1/root" &&
mount -t overlay -o "lowerdir=/,upperdir=$1/layer/upper,workdir=$1/layer/work" overlay "$1/root" &&
: >"$1/root/.dockerenv" || exit 99
exec "$2" --root "$1/state" run --bundle "$1" "$3"
"""


class Directory:
    """What a place has of its own: `volume`, which is writable there, and copies of the programs that anybody can read,
    wherever the sources are."""

    def __init__(self, path, user):
        owner = 0 if user == NOBODY else user       # a cell of root's sees what is root's as its own
        self.path = pathlib.Path(path)
        self.path.chmod(0o755)
        self.programs, self.volume = self.path / "programs", self.path / "volume"
        self.programs.mkdir()
        self.volume.mkdir()
        os.chown(self.volume, owner, owner)
        for file in COPIED:
            shutil.copy(file, self.programs)
            (self.programs / file.name).chmod(0o755)


def plain(command, directory):
    return subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          cwd=directory, timeout=120)


def in_container(options, command, directory):
    runc = which("runc")
    bundle = directory.path / "bundle"
    (bundle / "layer").mkdir(parents=True)
    volumes = [(directory.programs, "ro"), (directory.volume, "rw")]
    config = docker.config(bundle / "root", command, volumes=volumes, **options)
    (bundle / "config.json").write_text(json.dumps(config))
    name = directory.path.name
    try:
        ran = plain([which("unshare"), "--mount", "--propagation", "private", "sh", "-c", START, "sh", bundle, runc,
                     name], directory.path)
    finally:
        subprocess.run([runc, "--root", bundle / "state", "delete", "--force", name], capture_output=True)
    if ran.returncode == 99 or "runc run failed" in ran.stderr:
        skip_because(f"no container can be made here: {ran.stderr.strip()}")
    return ran


def container(**options):
    return functools.partial(in_container, options)


def behind(*words):
    """A place that is made by putting words before the command. "{programs}" stands for where these are."""
    return lambda command, directory: plain(
        [*(str(word).format(programs=directory.programs) for word in words), *command], directory.volume)


def as_user(*words):
    return behind("setpriv", "--reuid", USER, "--regid", USER, "--clear-groups", *words)


def settled(user, *settings):
    return behind("/usr/bin/python3", "{programs}/settled.py", user, *settings, "--")


@dataclasses.dataclass(frozen=True)
class Place:
    name: str
    run: object                 # (command, Directory) -> what came of it
    user: int = 0               # who works there, as the machine sees it
    plays_root: bool = False    # … but root is what it is called there
    workspace: str = ""         # of the cells there: the volume, or a path that is in the container alone
    refuses: str = ""           # the layer by which a plain run is refused there; none: it works
    refuses_landlock: str = ""  # likewise for the weaker tier, asked for by name
    refuses_any: str = ""       # … and for whatever can be had

    def __str__(self):
        return self.name


IN_A_CELL = ("{programs}/cellblock", "run", "--read", "{programs}", "--")
NO_CLONE3 = ("{programs}/deny_syscall", "clone3", "ENOSYS", "--")

PLACES = [
    Place("docker, root", container(), refuses="ids"),
    Place("docker, root, workspace in the image", container(), workspace="/app", refuses="ids"),
    Place("docker, user", container(user=USER), USER, refuses="user-namespace"),
    Place("docker without its filter, root", container(confined=False), refuses="ids"),
    Place("docker without its filter, user", container(user=USER, confined=False), USER, refuses="proc"),
    Place("docker --privileged, root", container(privileged=True)),
    Place("docker --privileged, root, workspace in the image", container(privileged=True), workspace="/app",
          refuses="idmap", refuses_any="idmap"),
    Place("docker --privileged, user", container(user=USER, privileged=True), USER),
    Place("unshare -Ur by root", behind("unshare", "-Ur"), refuses="ids"),
    Place("unshare -Ur by a user", as_user("unshare", "-Ur"), USER, plays_root=True),
    Place("unshare -Urmp --mount-proc by root", behind("unshare", "-Urmpf", "--mount-proc"), refuses="ids"),
    Place("unshare -Urmp --mount-proc by a user", as_user("unshare", "-Urmpf", "--mount-proc"), USER, plays_root=True),
    Place("a cell of root", behind(*IN_A_CELL), NOBODY, plays_root=True, refuses="openat2", refuses_landlock="openat2",
          refuses_any="openat2"),
    Place("a cell of a user", as_user(*IN_A_CELL), USER, plays_root=True, refuses="openat2",
          refuses_landlock="openat2", refuses_any="openat2"),
    Place("no user namespaces, root", settled(0, "max_user_namespaces=0"), refuses="idmap"),
    Place("no user namespaces, user", settled(USER, "max_user_namespaces=0"), USER, refuses="user-namespace"),
    Place("a user namespace with all ids, root", settled(0), refuses="idmap"),
    Place("a user namespace with all ids, user", settled(USER), USER),
    Place("no clone3, root", behind(*NO_CLONE3)),
    Place("no clone3, user", as_user(*NO_CLONE3), USER),
]
