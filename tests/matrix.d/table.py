"""Prints what came of the runs in the emulated machine: table.py RESULTS. Exit status 1 if anything failed."""

import json
import os
import pathlib
import sys
import xml.etree.ElementTree

KINDS = ("root", "user")


def read(path):
    return path.read_text(errors="replace") if path.exists() else ""


def doctor_rows(results):
    reports = [json.loads(read(results / kind / "doctor.json") or "{}") for kind in KINDS]
    yield "kernel", [report.get("kernel", "no answer") for report in reports]
    yield "Landlock ABI", [str(report.get("landlock_abi", "-")) for report in reports]
    yield "default policy", ["yes" if report.get("can_enforce_default") else "NO" for report in reports]
    states = [{layer["name"]: layer["state"] for layer in report.get("layers", [])} for report in reports]
    for name in {name: None for kind in states for name in kind}:
        yield name, [kind.get(name, "-") for kind in states]


def run_result(directory):
    status = read(directory / "run.status").strip()
    return "works" if status == "0" else f"FAILS ({status or 'no answer'})"


def count_tests(directory):
    """Passed, failed, skipped, not reached; None where the tests gave no report at all."""
    report = read(directory / "junit.xml")
    if not report:
        return None
    suite = next(xml.etree.ElementTree.fromstring(report).iter("testsuite"))
    ran, skipped = int(suite.get("tests")), int(suite.get("skipped"))
    failed = int(suite.get("failures")) + int(suite.get("errors"))
    return ran - failed - skipped, failed, skipped, int(read(directory / "chosen") or ran) - ran


def failures(directory):
    """The short summary that pytest ends with, and what `run -- true` said."""
    if read(directory / "run.status").strip() != "0":
        yield read(directory / "run").strip() or "cellblock run gave no answer"
    for line in read(directory / "pytest").splitlines():
        if line.startswith(("FAILED ", "ERROR ")):
            yield line


def main():
    results = pathlib.Path(sys.argv[1])
    counts = [count_tests(results / kind) for kind in KINDS]
    rows = list(doctor_rows(results))
    rows.append(("cellblock run", [run_result(results / kind) for kind in KINDS]))
    for position, name in enumerate(("passed", "failed", "skipped", "not reached")):
        rows.append((f"tests {name}", [str(count[position]) if count else "no report" for count in counts]))
    print(f"{'':18}{KINDS[0]:24}{KINDS[1]}")
    for name, (first, second) in rows:
        print(f"{name:18}{first:24}{second}")
    bad = False
    for kind, count in zip(KINDS, counts):
        for line in failures(results / kind):
            print(f"{kind}: {line}")
            bad = True
        unreached = count and count[3] > 0
        if unreached:
            print(f"!! NOT RUN as {kind}: {count[3]} tests, as the time was up")
        bad = bad or not count or count[1] > 0 or (unreached and os.environ.get("CI") == "true")
    return 1 if bad else 0


sys.exit(main())
