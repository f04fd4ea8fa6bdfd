"""What a run could leave on the machine: processes, mounts, cgroups, files. Taken before and after, and compared."""

import os
import pathlib
import re
import time

from attacks import listing


def processes(marker):
    """Every process that has the marker in its arguments or its environment: {pid: arguments}. Zombies have neither."""
    found = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        for file in "cmdline", "environ":
            try:
                content = pathlib.Path("/proc", entry, file).read_bytes()
            except OSError:
                continue        # gone, or not ours to look at
            if marker.encode() in content:
                found[int(entry)] = content[:200]
                break
    return found


def mounts():
    return pathlib.Path("/proc/self/mountinfo").read_text().splitlines()


def cgroup_roots():
    """Our own cgroup in every tree that is mounted, of version 1 and 2."""
    own = {}
    for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        for name in names.split(","):
            own[name.removeprefix("name=")] = path
    for line in mounts():
        words = line.split()
        kind, _, options = words[words.index("-") + 1:]
        if kind not in ("cgroup", "cgroup2"):
            continue
        names = [""] if kind == "cgroup2" else [option.removeprefix("name=") for option in options.split(",")]
        for path in {own[name] for name in names if name in own}:
            relative = os.path.relpath(path, words[3])
            if not relative.startswith(".."):
                yield os.path.normpath(os.path.join(words[4], relative))


def cgroups(pids=None):
    """Every cgroup below our own; or those that one of these processes has made: the name tells."""
    numbers = {str(pid) for pid in pids or ()}
    return {os.path.join(where, name) for root in cgroup_roots() for where, directories, _ in os.walk(root)
            for name in directories if pids is None or numbers & set(re.findall(r"\d+", name))}


def lines_of_path(path):
    """The path and everything above it."""
    return {str(path), *map(str, pathlib.Path(path).parents)}


class Leftovers:
    """Remembers how things are; `found` names what is new. What takes a moment to go is waited for.

    Of mounts, those count that are where a cell has some: in our own places, above them, or in the system."""

    def __init__(self, *places):
        self.places = places
        self.above = set().union(*map(lines_of_path, places))
        self.cgroups = cgroups()
        self.before = self.look([])

    def is_ours(self, mount):
        place = mount.split()[4]
        system = ("/proc", "/dev", "/sys", "/run", "/usr", "/etc", "/opt")
        return place in self.above or bool(lines_of_path(place) & {*map(str, self.places), *system})

    def look(self, pids):
        return {"mounts": set(filter(self.is_ours, mounts())), "cgroups": cgroups(pids) - self.cgroups,
                **{str(place): set(listing(place).items()) for place in self.places}}

    def found(self, pids, patience=10):
        deadline = time.monotonic() + patience
        while True:
            new = {what: sorted(map(str, now ^ self.before[what])) for what, now in self.look(pids).items()
                   if now != self.before[what]}
            if not new or time.monotonic() > deadline:
                return new
            time.sleep(0.01)
