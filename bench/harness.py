"""What the measurements share: subjects (ways to run a command), places to run in, interleaved rounds, tables.

A subject is declared once, in SUBJECTS: its name and how it wraps a command. A workload is declared once, in
bench/start or bench/overhead: its name and its command. A subject has to show that it confines before it is timed."""
import argparse
import contextlib
import dataclasses
import json
import os
import pathlib
import platform
import random
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable

BENCH = pathlib.Path(__file__).resolve().parent
SOURCES = BENCH / "workloads"
PYTHON = "/usr/bin/python3"
SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ORDINARY_ID = 1001
SCHEDULING = {os.SCHED_OTHER: "normal", os.SCHED_FIFO: "real-time, fifo", os.SCHED_RR: "real-time, round robin"}
WAYS_OUT = ("file", "network", "signal", "process")


class Unable(Exception):
    """A subject can't be measured here; the text says why."""


# ---- Where it runs ----

@dataclasses.dataclass
class Place:
    """A workspace, a secret beside it, a home directory, and who runs there."""
    who: str
    base: pathlib.Path
    prefix: list[str]

    def __post_init__(self):
        for name in ("workspace", "workspace/bin", "outside", "home"):
            (self.base / name).mkdir()
        self.workspace, self.bin = self.base / "workspace", self.base / "workspace/bin"
        self.secret = self.base / "outside/secret"
        self.secret.write_text("not for the cell\n", encoding="ascii")
        self.environment = {"PATH": SEARCH_PATH, "HOME": str(self.base / "home"), "LANG": "C.UTF-8"}
        for source in SOURCES.iterdir():
            if source.suffix == ".c":
                subprocess.run(["cc", "-O2", "-Wall", "-o", self.bin / source.stem, source], check=True)
            elif source.suffix == ".py":
                shutil.copy(source, self.bin)
        if self.prefix:
            for path in (self.base, *self.base.rglob("*")):
                os.chown(path, ORDINARY_ID, ORDINARY_ID)

    def run(self, command):
        """The output of a command that the person of this place runs in the workspace."""
        done = subprocess.run([*self.prefix, *map(str, command)], cwd=self.workspace, env=self.environment, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
        if done.returncode != 0:
            reason = (done.stderr.strip() or f"status {done.returncode}").splitlines()[-1]
            raise Unable(reason)
        return done.stdout


@contextlib.contextmanager
def places(ordinary_too):
    """The caller's place and, for root, one of an ordinary user."""
    people = [("root" if os.geteuid() == 0 else "user", [])]
    if os.geteuid() == 0 and ordinary_too and shutil.which("setpriv"):
        change = ["setpriv", f"--reuid={ORDINARY_ID}", f"--regid={ORDINARY_ID}", "--clear-groups", "--"]
        people.append(("user", change))
    with contextlib.ExitStack() as stack:
        made = []
        for who, prefix in people:
            base = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cellblock-bench-")))
            base.chmod(0o755)
            made.append(Place(who, base, prefix))
        yield made


# ---- Subjects ----

@dataclasses.dataclass
class Subject:
    name: str
    wrap: Callable[[Place, list], list]
    version: str = ""
    confines: bool = True
    timer: Callable[[Place, int, list], list] | None = None

    def time_command(self, place, count, command):
        """A command that prints the nanoseconds of each of `count` runs of `command` under this subject."""
        if self.timer:
            return self.timer(place, count, command)
        return [place.bin / "timer", count, *self.wrap(place, command)]


def first_line(command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.CalledProcessError) as error:
        raise Unable(f"not there ({error.__class__.__name__})") from error
    return (done.stdout.strip() or done.stderr.strip()).splitlines()[0]


def find_program(name):
    found = shutil.which(name)
    if not found:
        raise Unable("not installed")
    return found


def bare(_arguments):
    return Subject("bare", lambda place, command: command, confines=False)


def cellblock(arguments):
    program = os.path.abspath(arguments.cellblock)
    return Subject("cellblock", lambda place, command: [program, "run", "--", *command],
                   first_line([program, "--version"]))


# What bubblewrap has in common with a cell beside the mounts: all namespaces, a session of its own, no capabilities,
# the end with its parent.
BUBBLEWRAP_OPTIONS = ["--unshare-all", "--new-session", "--die-with-parent", "--cap-drop", "ALL"]


def same_mounts(plan):
    """A plan's root as options of bubblewrap. Its --dev makes /dev as a cell has it: the same six nodes, own terminals,
    the links. It has no idmapped mounts: a plain bind stands for one."""
    options = []
    for step in plan["root"]:
        path, kind = step["path"], step["is"]
        if kind == "own /proc":
            options += ["--proc", path, "--dev", "/dev"]
        elif kind == "scratch":
            options += ["--tmpfs", path]
        elif path.startswith("/dev/"):
            continue
        elif kind == "masked":
            options += ["--ro-bind", "/dev/null", path]
        elif kind == "link":
            options += ["--symlink", step["target"], path]
        else:
            options += ["--bind" if step["access"] == "write" else "--ro-bind", path, path]
    return options


def bubblewrap_same(arguments):
    program, plans = find_program("bwrap"), {}

    def wrap(place, command):
        if place.base not in plans:
            shown = place.run([os.path.abspath(arguments.cellblock), "run", "--plan", "--", "/bin/true"])
            plans[place.base] = same_mounts(json.loads(shown))
        return [program, *BUBBLEWRAP_OPTIONS, *plans[place.base], "--chdir", place.workspace, "--", *command]

    return Subject("bubblewrap, same mounts", wrap, first_line([program, "--version"]))


def bubblewrap_short(_arguments):
    program = find_program("bwrap")
    links = [option for name in ("bin", "sbin", "lib", "lib64") if os.path.islink(f"/{name}")
             for option in ("--symlink", f"usr/{name}", f"/{name}")]
    mounts = ["--ro-bind", "/usr", "/usr", "--ro-bind", "/etc", "/etc", *links, "--proc", "/proc", "--dev", "/dev",
              "--tmpfs", "/tmp"]

    def wrap(place, command):
        own = ["--bind", place.workspace, place.workspace, "--chdir", place.workspace]
        return [program, *BUBBLEWRAP_OPTIONS, *mounts, *own, "--", *command]

    return Subject("bubblewrap, short list", wrap, first_line([program, "--version"]))


def sandlock(arguments):
    python = arguments.sandlock or PYTHON
    version = first_line([python, "-c", "import sandlock; print('sandlock', sandlock.__version__)"])

    def timer(place, count, command):
        return [python, place.bin / "sandlock_run.py", place.workspace, count, *command]

    return Subject("sandlock", lambda place, command: timer(place, 0, command), version, timer=timer)


def srt(arguments):
    program = find_program(arguments.srt)

    def wrap(place, command):
        settings = place.base / "srt.json"
        if not settings.exists():
            settings.write_text(json.dumps({
                "network": {"allowedDomains": [], "deniedDomains": []},
                "filesystem": {"denyRead": [str(place.secret.parent)], "allowWrite": [str(place.workspace)],
                               "denyWrite": []}}), encoding="ascii")
        return [program, "--settings", settings, "-c", shlex.join(map(str, command))]

    return Subject("srt", wrap, "srt " + first_line([program, "--version"]))


def runsc(_arguments):
    program = find_program("runsc")
    options = ["--ignore-cgroups", "--network=none"] + ([] if os.geteuid() == 0 else ["--rootless"])
    return Subject("runsc", lambda place, command: [program, *options, "do", "--", *command],
                   first_line([program, "--version"]))


SUBJECTS = {"bare": bare, "cellblock": cellblock, "bubblewrap, same mounts": bubblewrap_same,
            "bubblewrap, short list": bubblewrap_short, "sandlock": sandlock, "srt": srt, "runsc": runsc}


def subjects(arguments):
    """Those that are here, and a line for each that is not."""
    found = []
    for name, declare in SUBJECTS.items():
        if arguments.only and name not in ("bare", "cellblock") and not any(word in name for word in arguments.only):
            continue
        try:
            found.append(declare(arguments))
        except Unable as reason:
            print(f"  skipped: {name}: {reason}")
    return found


# ---- Is it really enforcing? ----

@contextlib.contextmanager
def something_outside(place):
    """A server on loopback and a process, both to be out of reach."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        # It speaks once it is who it should be: before that, setpriv has not changed its ids yet.
        victim = subprocess.Popen([*place.prefix, "sh", "-c", "echo ready; exec sleep 600"], stdout=subprocess.PIPE)
        victim.stdout.readline()
        try:
            yield server.getsockname()[1], victim.pid
        finally:
            victim.kill()
            victim.communicate()


def probe(place, subject):
    """Which ways out are open under this subject."""
    with something_outside(place) as (port, pid):
        output = place.run(subject.wrap(place, [place.bin / "probe", place.secret, port, pid]))
    found = json.loads(output.strip().splitlines()[-1])
    return [way for way in WAYS_OUT if found[way]]


def check(place, candidates):
    """The subjects that may be timed in this place, and whether one of them that should run could not."""
    fit, failed = [], False
    print(f"\nWhat can be reached outside, as {place.who}:")
    for subject in candidates:
        try:
            reached = probe(place, subject)
        except Unable as reason:
            print(f"  {subject.name:26} could not run: {reason}")
            failed = True
            continue
        expected = not reached if subject.confines else reached == list(WAYS_OUT)
        verdict = "" if expected else "   NOT AS EXPECTED: not timed"
        print(f"  {subject.name:26} {', '.join(reached) or 'nothing'}{verdict}")
        failed |= not expected
        if expected:
            fit.append(subject)
    return fit, failed


# ---- Rounds ----

def interleaved(fit, rounds, measure):
    """Round robin, in a new random order each round: {subject name: [nanoseconds, …]}. A subject that fails is out."""
    samples = {subject.name: [] for subject in fit}
    for _ in range(rounds):
        for subject in random.sample(fit, len(fit)):
            if subject.name not in samples:
                continue
            try:
                samples[subject.name] += measure(subject)
            except Unable as reason:
                print(f"\n  {subject.name} could not run: {reason}")
                del samples[subject.name]
    return samples


def numbers(output):
    return [int(line) for line in output.split()]


def quantile(ordered, share):
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def summary(values):
    ordered = sorted(values)
    told = {"n": len(ordered), "median": quantile(ordered, 0.5), "p25": quantile(ordered, 0.25),
            "p75": quantile(ordered, 0.75)}
    if len(ordered) >= 100:
        told["p99"] = quantile(ordered, 0.99)
    return told


# ---- What people see ----

def scale(smallest):
    return (1e3, 0, "µs") if smallest < 10e6 else (1e6, 1, "ms")


def ratio(rows, name, other):
    return rows[name]["median"] / rows[other]["median"] if other in rows else None


def show(title, rows, bars):
    """One table: a row for each subject. `bars` is {other subject: the most that cellblock may take of its time}."""
    unit, digits, word = scale(min(row["median"] for row in rows.values()))
    same = "bubblewrap, same mounts"
    print(f"\n{title}  ({word}, n = {min(row['n'] for row in rows.values())})")
    print(f"  {'':26}{'median':>10}{'p25 – p75':>20}{'p99':>10}{'× bare':>9}{'× bwrap':>9}")
    for name, row in rows.items():
        median, p25, p75, p99 = (f"{row[key] / unit:,.{digits}f}" if key in row else "–"
                                 for key in ("median", "p25", "p75", "p99"))
        against = [f"{value:.2f}" if value else "–" for value in (ratio(rows, name, "bare"), ratio(rows, name, same))]
        print(f"  {name:26}{median:>10}{f'{p25} – {p75}':>20}{p99:>10}{against[0]:>9}{against[1]:>9}")
    for other, most in bars.items():
        reached = ratio(rows, "cellblock", other) if "cellblock" in rows else None
        if reached:
            verdict = "reached" if reached <= most else "missed"
            print(f"  bar: at most {most} × {other}: {verdict} ({reached:.3f})")


def machine():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        models = [line.partition(":")[2].strip() for line in file if line.startswith(("model name", "CPU part"))]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {"processor": models[0] if models else platform.machine(), "processors": os.cpu_count(),
            "memory_bytes": memory, "kernel": f"{platform.system()} {platform.release()} {platform.machine()}",
            "load_before": round(os.getloadavg()[0], 2),
            "scheduling": SCHEDULING.get(os.sched_getscheduler(0), "other")}


def parse(description, rounds, quick_rounds):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("cellblock", nargs="?", default=os.environ.get("CELLBLOCK", BENCH.parent / "build/cellblock"),
                        help="the program to measure (or variable CELLBLOCK; default: build/cellblock)")
    parser.add_argument("--rounds", type=int, metavar="N", help=f"rounds of interleaved runs (default: {rounds})")
    parser.add_argument("--quick", action="store_true", help=f"{quick_rounds} rounds")
    parser.add_argument("--json", metavar="FILE", help="write the results there too")
    parser.add_argument("--only", action="append", metavar="WORD",
                        help="beside bare and cellblock, only subjects with this word in their name")
    parser.add_argument("--workload", action="append", metavar="WORD",
                        help="only workloads with this word in their name")
    parser.add_argument("--sandlock", metavar="PYTHON", help="an interpreter that can import sandlock")
    parser.add_argument("--srt", metavar="PROGRAM", default="srt", help="the srt program")
    arguments = parser.parse_args()
    arguments.rounds = arguments.rounds or (quick_rounds if arguments.quick else rounds)
    return arguments


def wanted(arguments, name):
    return not arguments.workload or any(word in name for word in arguments.workload)


def main(description, rounds, quick_rounds, ordinary_too, workloads, measure, bars_of):
    """workloads: {name: command, given the place}; measure(place, subject, command) gives nanoseconds."""
    arguments = parse(description, rounds, quick_rounds)
    about = machine()
    print(f"{about['processor']}, {about['processors']} processors, {about['kernel']}, load {about['load_before']}, "
          f"scheduling {about['scheduling']}")
    candidates = subjects(arguments)
    results, failed = [], False
    with places(ordinary_too) as made:
        for place in made:
            fit, unfit = check(place, candidates)
            failed |= unfit
            for name, command_in in workloads.items():
                if not wanted(arguments, name):
                    continue
                command = command_in(place)
                samples = interleaved(fit, arguments.rounds, lambda subject, command=command, place=place:
                                      measure(place, subject, command))
                failed |= len(samples) < len(fit)
                rows = {subject: summary(values) for subject, values in samples.items()}
                show(f"{name}, as {place.who}", rows, bars_of(name))
                results.append({"workload": name, "as": place.who, "nanoseconds": rows})
    if arguments.json:
        document = {"machine": about,
                    "versions": {subject.name: subject.version for subject in candidates if subject.version},
                    "rounds": arguments.rounds, "results": results}
        pathlib.Path(arguments.json).write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n",
                                                encoding="utf-8")
    sys.exit(1 if failed else 0)
