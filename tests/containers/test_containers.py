"""cellblock in containers, namespaces and cells of others: doctor tells the truth there, and a run either enforces or
refuses and says why. What is true is found out in each place by other means (inside.py)."""

import json
import tempfile

import pytest

from conftest import PROGRAM, is_sanitized, needs_root, skip_because
from places import PLACES, Directory

pytestmark = needs_root

# Options of the runs in every place: nothing special, the weaker tier by name, and whatever can be had.
PLAIN, BY_NAME, ANY = range(3)

# What has to work for the attacker where there is no cell, or the rest proves nothing.
WORKS_PLAIN = ["read a file outside", "list a directory outside", "make a file outside", "change a file outside",
               "connect by TCP", "connect to an abstract socket", "signal a process outside", "work in the workspace",
               "see a token", "leave a process behind"]


def flags(place):
    ids = "--accept-weaker ids" if place.user == 0 or place.plays_root else ""
    return ["", f"--isolation landlock {ids}", f"--accept-weaker namespaces {ids}"]


@pytest.fixture(scope="module", params=PLACES, ids=str)
def seen(request):
    """What inside.py found in a place."""
    if is_sanitized():
        skip_because("needs a build without sanitizers: they need more than a container gives")
    place = request.param
    with tempfile.TemporaryDirectory(prefix="cellblock-place-") as path:
        directory = Directory(path, place.user)
        workspace = place.workspace or directory.volume
        ran = place.run(["/usr/bin/python3", directory.programs / "inside.py", directory.programs / PROGRAM.name,
                         workspace, place.user, *flags(place)], directory)
    reports = [line for line in ran.stdout.splitlines() if line.startswith("REPORT ")]
    assert ran.returncode == 0 and len(reports) == 1, ran.stdout + ran.stderr
    return {"place": place, **json.loads(reports[0].removeprefix("REPORT "))}


def layers(seen):
    return {layer["name"]: layer for layer in seen["doctor"]["answer"]["layers"]}


def named_layer(run):
    return [line.split(": ", 1)[1] for line in run["stderr"].splitlines() if line.startswith("  layer: ")]


def test_the_attacks_work_without_a_cell(seen):
    found = seen["plain"]["found"]
    assert {name: found.get(name) for name in WORKS_PLAIN} == dict.fromkeys(WORKS_PLAIN, "worked"), seen["plain"]


def test_doctor_tells_the_truth(seen):
    """Layer by layer, it says what is also found by hand."""
    said = {name: layer["state"] != "no" for name, layer in layers(seen).items()}
    found = seen["by_hand"]
    if layers(seen)["idmap"]["detail"] == "not needed for an ordinary user":
        assert seen["place"].user != 0
        found["idmap"] = True
    assert {name: said[name] for name in found if name in said} == {name: found[name] for name in found if name in said}


def test_doctor_says_what_to_do(seen):
    """For every layer that it can't have, except those that fail because another does."""
    without = [layer["name"] for layer in layers(seen).values()
               if layer["state"] == "no" and not layer["fix"] and not layer["detail"].startswith("not tried")]
    assert without == []


def test_doctor_and_run_agree(seen):
    """On whether the default policy can be enforced here, and each says so in all the ways that it has."""
    able = seen["doctor"]["answer"]["can_enforce_default"]
    assert seen["doctor"]["status"] == (0 if able else 1), seen["doctor"]["stderr"]
    assert (seen["runs"][PLAIN]["status"] == 0) == able, seen["runs"][PLAIN]["stderr"]
    assert ("can be enforced here" in seen["doctor"]["text"]) == able


@pytest.mark.parametrize("which", [PLAIN, BY_NAME, ANY], ids=["plain", "landlock", "any"])
def test_a_run_enforces_or_refuses(seen, which):
    run = seen["runs"][which]
    assert run["left"] == 0, "a process outlived the run"
    if run["status"] == 0:
        got = dict(run["found"])
        assert got.pop("work in the workspace") == "worked"
        assert {name: answer for name, answer in got.items() if answer == "worked"} == {}, run
        assert set(WORKS_PLAIN) <= set(run["found"])
        return
    assert (run["status"], run["found"]) == (125, {}), run
    assert len(named_layer(run)) == 1, run["stderr"]
    assert "  what to do: " in run["stderr"] and "  what to do: or " not in run["stderr"], run["stderr"]
    missing = {name for name, layer in layers(seen).items() if layer["state"] == "no"} | {"ids"}
    assert named_layer(run)[0] in missing, run["stderr"]


def test_the_report_names_the_tier(seen):
    """And what is weaker in it. `any` is the strong one wherever that can be had."""
    plain, by_name, any_tier = [run["report"] or {} for run in seen["runs"]]
    if seen["runs"][PLAIN]["status"] == 0:
        assert (plain["tier"], plain["weaker"]) == ("namespaces", [])
        assert (any_tier["tier"], any_tier["weaker"]) == ("namespaces", [])
    elif seen["runs"][ANY]["status"] == 0:
        assert any_tier["tier"] == "landlock" and any_tier["weaker"]
    if seen["runs"][BY_NAME]["status"] == 0:
        assert by_name["tier"] == "landlock"
        assert {"namespaces", "files", "processes"} <= {line.split(":")[0] for line in by_name["weaker"]}


def test_what_is_known_to_be_had_here(seen):
    """So that a place where it works, or is refused for good reasons, does not quietly become the other."""
    place = seen["place"]
    ended = ["".join(named_layer(run)) for run in seen["runs"]]
    assert ended == [place.refuses, place.refuses_landlock, place.refuses_any], [run["stderr"] for run in seen["runs"]]
