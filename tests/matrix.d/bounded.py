"""A pytest plugin for slow machines: ends the run in good order when its time is up, so that what was found so far is
reported; goes through all files in turn, so that each gets its share of the time; and can take just the first case of
every parametrized test.

BOUNDED_SECONDS   how long the run may take
BOUNDED_CASES     "all", or else the first case of every test
BOUNDED_RESULTS   a directory: `chosen` gets the number of tests that were chosen, and `outcomes` a line of JSON for each
                  that has run, as soon as it has, so that they are known even if the machine does not survive
"""

import collections
import json
import os
import pathlib
import time

import pytest

RESULTS = pathlib.Path(os.environ["BOUNDED_RESULTS"])
DEADLINE = time.monotonic() + float(os.environ["BOUNDED_SECONDS"])


def take_first_cases(config, items):
    seen, kept, left_out = set(), [], []
    for item in items:
        function = item.nodeid.partition("[")[0]
        (left_out if function in seen else kept).append(item)
        seen.add(function)
    config.hook.pytest_deselected(items=left_out)
    items[:] = kept


def take_files_in_turn(items):
    turns, so_far = {}, collections.Counter()
    for item in items:
        turns[item] = so_far[item.path]
        so_far[item.path] += 1
    items.sort(key=turns.get)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    if os.environ["BOUNDED_CASES"] != "all":
        take_first_cases(config, items)
    take_files_in_turn(items)


def pytest_collection_finish(session):
    (RESULTS / "chosen").write_text(f"{len(session.items)}\n")


def pytest_runtest_logreport(report):
    # One line for a test: of its call, or of what came before or after it if that is where it ended.
    if report.when != "call" and report.passed:
        return
    reason = str(report.longrepr[2]) if report.skipped else ""
    with open(RESULTS / "outcomes", "a") as file:
        file.write(json.dumps({"test": report.nodeid, "outcome": report.outcome, "reason": reason,
                               "seconds": round(report.duration, 1)}) + "\n")


def pytest_runtest_teardown(item):
    if time.monotonic() > DEADLINE:
        item.session.shouldstop = f"time is up after {item.nodeid}"
