"""The JSON result of `cellblock run --json`."""

import base64
import json
import os

import pytest


def result(cellblock, *program, flags=(), **keywords):
    ran = cellblock.run(*program, flags=["--json", *flags], **keywords)
    return ran.status, json.loads(ran.stdout)


def sh(cellblock, script, **keywords):
    return result(cellblock, "sh", "-c", script, **keywords)


def test_shape(cellblock, workspace):
    ran = cellblock.sh("cat; echo err >&2; exit 3", flags=["--json"], input=b"in\n")
    assert ran.stderr == b"" and ran.stdout.count(b"\n") == 1 and ran.stdout.endswith(b"\n")
    document = ran.json
    assert ran.status == 3
    assert set(document) == {"end", "limit", "exit_code", "signal", "stdout", "stderr", "truncated", "usage", "denials",
                             "changes", "report"}
    assert (document["end"], document["exit_code"], document["signal"]) == ("exited", 3, None)
    assert (document["stdout"], document["stderr"]) == ("in\n", "err\n")
    assert document["truncated"] == {"stdout": False, "stderr": False}
    assert document["denials"] == [] and not document["changes"]
    report = document["report"]
    assert report["tier"] == "namespaces" and report["weaker"] == []
    assert report["requested"]["workspace"] == str(workspace)
    assert report["enforced"]["network"] == "loopback only"
    assert report["enforced"]["ids"]["unprivileged"] is True
    assert report["enforced"]["landlock"]["abi"] >= 1


def test_signaled(cellblock):
    status, document = sh(cellblock, "echo before; kill -SEGV $$")
    assert status == 139
    assert (document["end"], document["exit_code"], document["signal"]) == ("signaled", None, 11)
    assert document["stdout"] == "before\n"


def test_timeout_keeps_what_was_said(cellblock):
    status, document = sh(cellblock, "echo partial; exec sleep 1000", flags=["--timeout", "500ms"])
    assert (status, document["end"], document["stdout"]) == (124, "timeout", "partial\n")
    assert document["usage"]["wall_ms"] >= 500


def test_output_cap(cellblock):
    status, document = sh(cellblock, "yes", flags=["--output", "10K"], timeout=20)
    assert document["end"] == "output"
    assert document["truncated"] == {"stdout": True, "stderr": False}
    assert document["stdout"] == "y\n" * (5 * 1024)
    assert status != 0


def test_output_cap_of_standard_error(cellblock):
    _, document = sh(cellblock, "echo kept; yes >&2", flags=["--output", "1K"], timeout=20)
    assert (document["end"], document["stdout"]) == ("output", "kept\n")
    assert document["truncated"] == {"stdout": False, "stderr": True}
    assert len(document["stderr"]) == 1024


def test_output_exactly_at_the_cap(cellblock):
    status, document = result(cellblock, "head", "-c", "1024", "/dev/zero", flags=["--output", "1K"])
    assert (status, document["end"], document["truncated"]["stdout"]) == (0, "exited", False)
    assert document["stdout"] == "\0" * 1024


def test_the_cap_holds_without_json_when_it_is_asked_for(cellblock):
    ran = cellblock.run("yes", flags=["--output", "10K"], timeout=20)
    assert len(ran.stdout) == 10 * 1024 and ran.status != 0


def test_large_output_below_the_cap(cellblock):
    status, document = result(cellblock, "head", "-c", str(10 << 20), "/dev/zero")
    assert (status, len(document["stdout"])) == (0, 10 << 20)


def test_nul_bytes_are_text(cellblock):
    _, document = result(cellblock, "printf", "a\\0b\\0")
    assert document["stdout"] == "a\0b\0"
    assert "stdout_base64" not in document


@pytest.mark.parametrize("data", [b"\xff", b"ok \xc3\x28 ok", b"\xed\xa0\x80", b"\xf8\x88\x80\x80\x80", b"cut \xe2\x82",
                                  bytes(range(256)), b"\xc0\x80"])
def test_output_that_is_not_utf8_survives(cellblock, data):
    for stream, script in (("stdout", "cat"), ("stderr", "cat >&2")):
        status, document = sh(cellblock, script, input=data)
        assert status == 0
        assert base64.b64decode(document[stream + "_base64"], validate=True) == data
        assert "\ufffd" in document[stream]


@pytest.mark.parametrize("text", ["ä€😀", "\u2028\ufeff", "\U0010ffff", "\x1b[31mred\x07", "\\\"/\b\f\r\t"])
def test_text_is_text(cellblock, text):
    _, document = result(cellblock, "cat", input=text.encode())
    assert document["stdout"] == text
    assert "stdout_base64" not in document


def test_usage_is_plausible(cellblock):
    code = "data = bytearray(64 << 20)\nfor i in range(3_000_000): pass\nopen('f', 'wb').write(data)"
    _, document = result(cellblock, "/usr/bin/python3", "-c", code)
    usage = document["usage"]
    assert set(usage) >= {"wall_ms", "cpu_ms", "peak_memory", "written"}
    assert 0 < usage["cpu_ms"] and 0 < usage["wall_ms"] < 60000
    assert 64 << 20 <= usage["peak_memory"] < 1 << 30
    assert usage["written"] >= 0


def test_usage_counts_processes(cellblock):
    _, document = sh(cellblock, "true; true")
    assert document["usage"]["processes"] >= 1


def test_usage_is_small_for_little(cellblock):
    usage = result(cellblock, "true")[1]["usage"]
    assert usage["cpu_ms"] < 1000 and usage["peak_memory"] < 100 << 20


def test_refused_says_why(cellblock, outside):
    ran = cellblock.run("true", flags=["--json", "--read", outside / "missing"])
    document = ran.json
    assert ran.status == 125
    assert document["end"] in ("refused", "setup-failed")
    assert (document["exit_code"], document["signal"]) == (None, None)
    assert str(outside / "missing") in document["error"]["message"]
    assert set(document["error"]) >= {"message", "layer", "hint"}
    assert str(outside / "missing") in ran.err


def test_a_broken_policy_with_json(cellblock, workspace):
    (workspace / "p.jsonc").write_text('{"cellblock": 1, "filez": []}')
    ran = cellblock.run("true", flags=["--json", "--policy", "p.jsonc"])
    assert ran.status == 125 and "filez" in ran.json["error"]["message"]


@pytest.mark.parametrize("program, status", [("no-such-program", 127), ("./plain", 126)])
def test_a_program_that_can_not_be_run(cellblock, workspace, program, status):
    (workspace / "plain").write_text("")
    ran = cellblock.run(program, flags=["--json"])
    assert ran.status == status
    assert ran.json["end"] == "setup-failed" and ran.json["error"]["message"]


def test_a_result_that_can_not_be_delivered(cellblock):
    with open("/dev/full", "wb") as full:
        ran = cellblock.run("echo", "hello", flags=["--json"], stdout=full)
    assert ran.status == 125 and ran.stderr


@pytest.mark.parametrize("arguments", [["policy", "show"], ["policy", "schema"], ["doctor"], ["doctor", "--json"],
                                       ["run", "--plan", "--", "true"]], ids=" ".join)
def test_a_document_that_can_not_be_delivered(cellblock, arguments):
    with open("/dev/full", "wb") as full:
        assert cellblock.command(*arguments, stdout=full).status == 125


def test_a_full_device_is_the_programs_affair_without_json(cellblock):
    with open("/dev/full", "wb") as full:
        ran = cellblock.run("echo", "hello", stdout=full)
    assert ran.status == 1 and "No space left" in ran.err


def test_standard_input_is_passed_with_json(cellblock, tmp_path):
    path = tmp_path / "in"
    path.write_text("from a file")
    with open(path) as handle:
        assert result(cellblock, "cat", stdin=handle)[1]["stdout"] == "from a file"


def test_a_left_over_writer_does_not_hold_the_result(cellblock):
    status, document = sh(cellblock, "echo said; (trap '' TERM HUP; exec sleep 1000) &", timeout=20)
    assert (status, document["stdout"]) == (0, "said\n")


def test_a_refused_protected_path_is_recorded(cellblock, workspace):
    _, document = sh(cellblock, "mkdir .vscode; mkdir .vscode; mkdir fine")
    denials = [denial for denial in document["denials"] if denial["object"] == str(workspace / ".vscode")]
    assert len(denials) == 1 and denials[0]["count"] == 2 and denials[0]["code"] == "file.create"
    assert not (workspace / ".vscode").exists() and (workspace / "fine").is_dir()


def test_plan_starts_nothing(cellblock, workspace):
    ran = cellblock.run("touch", "made", flags=["--plan"])
    plan = ran.json
    assert ran.status == 0 and ran.stderr == b""
    assert not (workspace / "made").exists()
    assert plan["program"] == ["touch", "made"] and plan["directory"] == str(workspace)
    assert plan["report"]["tier"] == "namespaces"
    paths = {step["path"]: step for step in plan["root"]}
    assert paths[str(workspace)]["access"] == "write" and paths["/usr"]["access"] == "read"
    assert str(workspace / ".vscode") in plan["cannot_be_made"]
    assert any(entry.startswith("PATH=") for entry in plan["environment"])


def test_plan_of_a_program_that_is_not_there(cellblock):
    assert cellblock.run("no-such-program", flags=["--plan"]).status == 0


def test_the_report_names_the_id(cellblock):
    ids = result(cellblock, "true")[1]["report"]["enforced"]["ids"]
    assert ids["inside"] == os.geteuid()
    assert ids["outside"] != 0
