"""Prints what came of the runs in the emulated machines: table.py PROGRAM RESULTS...

One column for this machine, as PROGRAM sees it, and two for each machine: as root and as an ordinary user. Exit status
1 if anything failed there.
"""

import collections
import json
import os
import pathlib
import subprocess
import sys

KINDS = ("root", "user")


def read(path):
    return path.read_text(errors="replace") if path.exists() else ""


class Column:
    """What is known of one kind of user on one machine."""

    def __init__(self, title, doctor, status, refusal=""):
        self.title, self.status, self.refusal = title, status, refusal
        self.doctor = json.loads(doctor or "{}")
        self.layers = {layer["name"]: layer["state"] for layer in self.doctor.get("layers", [])}
        self.tests = None            # passed, failed, skipped, not reached
        self.units = {}              # name: exit status
        self.finished = True         # the machine was not stopped before
        self.failures, self.skips = [], collections.Counter()

    def run(self):
        return "works" if self.status == "0" else f"FAILS ({self.status or 'no answer'})"


def this_machine(program):
    doctor = subprocess.run([program, "doctor", "--json"], capture_output=True, text=True)
    run = subprocess.run([program, "run", "--scratch", "--", "true"], capture_output=True, text=True)
    who = "root" if os.geteuid() == 0 else "user"
    return Column(("this machine", f"as {who}"), doctor.stdout, str(run.returncode), run.stderr)


def machine(results, kind):
    directory = results / kind
    column = Column((results.name, f"as {kind}"), read(directory / "doctor.json"),
                    read(directory / "run.status").strip(), read(directory / "run").strip())
    lines = [json.loads(line) for line in read(directory / "outcomes").splitlines()]
    outcomes = {line["test"]: line for line in lines}.values()      # the last word on each
    chosen = read(directory / "chosen").strip()
    if chosen:
        found = collections.Counter(outcome["outcome"] for outcome in outcomes)
        column.tests = found["passed"], found["failed"], found["skipped"], int(chosen) - len(outcomes)
    column.failures = [f"FAILED {outcome['test']}" for outcome in outcomes if outcome["outcome"] == "failed"]
    column.skips.update(outcome["reason"].removeprefix("Skipped: ") for outcome in outcomes
                        if outcome["outcome"] == "skipped")
    column.finished = (results / "finished").exists()
    column.units = dict(line.split() for line in read(directory / "units").splitlines())
    return column


def rows(columns):
    yield "Landlock ABI", [str(column.doctor.get("landlock_abi", "-")) for column in columns]
    for name in {name: None for column in columns for name in column.layers}:
        yield name, [column.layers.get(name, "-") for column in columns]
    yield "default policy", ["enforced" if column.doctor.get("can_enforce_default") else "NOT ENFORCED"
                             for column in columns]
    yield "cellblock run", [column.run() for column in columns]
    if any(column.units for column in columns):
        yield "unit tests", ["", *("{} of {}".format(sum(status == "0" for status in column.units.values()),
                                                     len(column.units)) for column in columns[1:])]
    for position, name in enumerate(("passed", "failed", "skipped", "not reached")):
        # On this machine the other steps run them.
        yield f"tests {name}", ["", *(str(column.tests[position]) if column.tests else "no report"
                                      for column in columns[1:])]


def show(lines):
    widths = [max(len(line[at]) for line in lines) for at in range(len(lines[0]))]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip())


def problems(column):
    """What makes the run a failure, in words."""
    if column.status != "0":
        yield column.refusal or "cellblock run gave no answer"
    yield from (f"{name} ended with status {status}" for name, status in column.units.items() if status != "0")
    yield from column.failures
    if not column.finished:
        yield "the machine was stopped before it had finished"
    if not column.tests:
        yield "the tests gave no report"
    elif column.tests[3] > 0 and os.environ.get("CI") == "true":
        yield f"{column.tests[3]} tests were not reached"


def main(program, *results):
    columns = [this_machine(program)]
    columns += [machine(pathlib.Path(directory), kind) for directory in results for kind in KINDS]
    show([["", *(column.title[0] for column in columns)], ["", *(column.title[1] for column in columns)],
          *([name, *cells] for name, cells in rows(columns))])
    bad = False
    for column in columns[1:]:
        where = ", ".join(column.title)
        for reason, count in sorted(column.skips.items()):
            print(f"{where}: skipped {count}: {reason}")
        if column.tests and column.tests[3] > 0:
            print(f"!! NOT RUN, {where}: {column.tests[3]} tests, as the time was up")
        for problem in problems(column):
            print(f"{where}: {problem}")
            bad = True
    return 1 if bad else 0


sys.exit(main(*sys.argv[1:]))
