"""Policies on the command line: files, profiles, flags, and what is refused."""

import json
import os
import re

import pytest

from conftest import is_root

PROFILES = ["base", "python", "node", "shell", "strict"]


def policy(workspace, document, name="p.jsonc"):
    """Writes a policy beside the workspace, not in it: the code could change it there."""
    path = workspace.parent / name
    path.write_text(document if isinstance(document, str) else json.dumps({"cellblock": 1, **document}))
    return path


def shown(cellblock, *flags):
    ran = cellblock.command("policy", "show", *flags)
    assert ran.status == 0, ran.err
    return ran.json


@pytest.fixture
def data(outside):
    (outside / "file").write_text("data\n")
    (outside / "deep" / "secret").mkdir(parents=True)
    (outside / "deep" / "secret" / "key").write_text("key\n")
    (outside / "deep" / "open").write_text("open\n")
    return outside


class TestFileRules:
    def test_read(self, cellblock, data):
        ran = cellblock.sh(f"cat {data}/file {data}/deep/open; echo x > {data}/file", flags=["--read", data])
        assert ran.out == "data\nopen\n" and ran.status != 0
        assert (data / "file").read_text() == "data\n"

    def test_write(self, cellblock, data):
        ran = cellblock.sh(f"echo more >> {data}/file; mkdir {data}/new", flags=["--write", data])
        assert (ran.status, ran.err) == (0, "")
        assert (data / "file").read_text() == "data\nmore\n"
        assert (data / "new").stat().st_uid == os.geteuid()

    def test_a_single_file(self, cellblock, data):
        ran = cellblock.sh(f"cat {data}/file; ls -A {data}", flags=["--read", data / "file"])
        assert ran.out == "data\nfile\n"

    def test_a_single_file_to_write(self, cellblock, data):
        cellblock.sh(f"echo new > {data}/file; touch {data}/other", flags=["--write", data / "file"])
        assert (data / "file").read_text() == "new\n"
        assert not (data / "other").exists()

    def test_hide_in_what_is_readable(self, cellblock, data):
        ran = cellblock.sh(f"cat {data}/file; cat {data}/deep/secret/key; ls {data}/deep/secret",
                           flags=["--read", data, "--hide", data / "deep" / "secret"])
        assert ran.out == "data\n"

    def test_hide_a_file(self, cellblock, data):
        ran = cellblock.sh(f"cat {data}/file; cat {data}/deep/open", flags=["--read", data, "--hide", data / "file"])
        assert ran.out == "open\n"

    def test_open_inside_what_is_hidden(self, cellblock, data):
        ran = cellblock.sh(f"cat {data}/deep/secret/key; cat {data}/deep/open",
                           flags=["--hide", data / "deep", "--read", data, "--read", data / "deep" / "secret"])
        assert ran.out == "key\n"

    def test_write_inside_read(self, cellblock, data):
        cellblock.sh(f"echo x > {data}/file; echo x > {data}/deep/open",
                     flags=["--read", data, "--write", data / "deep"])
        assert (data / "file").read_text() == "data\n"
        assert (data / "deep" / "open").read_text() == "x\n"

    def test_read_inside_write(self, cellblock, data):
        cellblock.sh(f"echo x > {data}/file; echo x > {data}/deep/open; rm -rf {data}/deep; mv {data}/deep {data}/d",
                     flags=["--write", data, "--read", data / "deep"])
        assert (data / "file").read_text() == "x\n"
        assert (data / "deep" / "open").read_text() == "open\n"

    @pytest.mark.parametrize("order", [0, 1])
    def test_hide_beats_the_same_path(self, cellblock, data, order):
        flags = [["--read", data], ["--hide", data]]
        ran = cellblock.run("cat", data / "file", flags=sum(flags if order else flags[::-1], []))
        assert ran.status == 1 and ran.out == ""

    def test_the_later_one_counts_for_the_same_path(self, cellblock, data):
        cellblock.sh(f"echo x > {data}/file", flags=["--write", data, "--read", data])
        assert (data / "file").read_text() == "data\n"
        cellblock.sh(f"echo x > {data}/file", flags=["--read", data, "--write", data])
        assert (data / "file").read_text() == "x\n"

    def test_hide_in_the_workspace(self, cellblock, workspace):
        (workspace / ".env").write_text("TOKEN=1\n")
        ran = cellblock.sh("cat .env; echo x > .env; rm -f .env; mv .env other; echo done", flags=["--hide", ".env"])
        assert ran.out == "done\n"
        assert (workspace / ".env").read_text() == "TOKEN=1\n"
        assert not (workspace / "other").exists()

    def test_hide_what_is_not_there(self, cellblock, workspace):
        ran = cellblock.sh("echo x > absent; mkdir absent; ln -s /etc absent; touch other; mv other absent; ls -A",
                           flags=["--hide", "absent"])
        assert not os.path.lexists(workspace / "absent")
        assert ran.out == "other\n"

    def test_read_only_part_of_the_workspace(self, cellblock, workspace):
        (workspace / "fixed").mkdir()
        (workspace / "fixed" / "file").write_text("fixed\n")
        ran = cellblock.sh("cat fixed/file; echo x > fixed/file; touch fixed/new; mv fixed other; touch free",
                           flags=["--read", "fixed"])
        assert ran.out == "fixed\n"
        assert (workspace / "fixed" / "file").read_text() == "fixed\n"
        assert sorted(entry.name for entry in workspace.iterdir()) == ["fixed", "free"]

    def test_relative_to_where_the_caller_stands(self, cellblock, workspace, data):
        relative = os.path.relpath(data, workspace)
        assert cellblock.run("cat", data / "file", flags=["--read", relative]).out == "data\n"

    def test_a_link_is_followed_once(self, cellblock, data, tmp_path):
        link = tmp_path / "link"
        link.symlink_to(data)
        ran = cellblock.sh(f"cat {link}/file; cat {data}/file", flags=["--read", link])
        assert ran.out == "data\ndata\n"

    def test_a_relative_link_in_the_middle(self, cellblock, data, tmp_path):
        (tmp_path / "way").symlink_to("outside/deep")
        path = tmp_path / "way" / "open"
        assert cellblock.run("cat", path, flags=["--read", path]).out == "open\n"

    def test_a_link_in_the_workspace_is_not_followed_for_a_grant(self, cellblock, data, workspace):
        (workspace / "planted").symlink_to(data)
        for flag in ("--read", "--write"):
            ran = cellblock.run("cat", data / "file", flags=[flag, "planted"])
            assert ran.out == ""
        assert cellblock.run("cat", data / "file", flags=["--read", workspace / "planted" / "deep"]).out == ""

    def test_a_link_that_goes_round(self, cellblock, tmp_path):
        (tmp_path / "a").symlink_to("b")
        (tmp_path / "b").symlink_to("a")
        ran = cellblock.run("true", flags=["--read", tmp_path / "a"])
        assert ran.status == 125 and "symbolic links" in ran.err

    @pytest.mark.parametrize("flag", ["--read", "--write"])
    def test_a_missing_path_is_an_error(self, cellblock, outside, flag):
        ran = cellblock.run("true", flags=[flag, outside / "missing"])
        assert ran.status == 125 and str(outside / "missing") in ran.err and "No such file" in ran.err

    def test_optional(self, cellblock, workspace, outside):
        rule = {"path": str(outside / "missing"), "access": "read", "optional": True}
        assert cellblock.run("true", flags=["--policy", policy(workspace, {"files": [rule]})]).status == 0

    @pytest.mark.parametrize("path", ["/", "/proc", "/dev", "/proc/self"])
    def test_too_wide(self, cellblock, path):
        assert cellblock.run("true", flags=["--read", path]).status == 125

    def test_odd_names(self, cellblock, tmp_path):
        place = tmp_path / "with space \"quote\" ä\\"
        place.mkdir()
        (place / "f").write_text("odd\n")
        assert cellblock.run("cat", place / "f", flags=["--read", place]).out == "odd\n"

    def test_control_characters_are_refused(self, cellblock, tmp_path):
        (tmp_path / "a\nb").mkdir()
        ran = cellblock.run("true", flags=["--read", tmp_path / "a\nb"])
        assert ran.status == 125 and "control character" in ran.err

    def test_a_name_that_is_not_utf8(self, cellblock, tmp_path):
        place = os.fsencode(tmp_path) + b"/\xff"
        os.mkdir(place)
        ran = cellblock.run("true", flags=["--read", place])
        assert ran.status == 125 and "UTF-8" in ran.err

    def test_home_in_a_policy(self, cellblock, workspace, home):
        (home / "data").mkdir()
        (home / "data" / "f").write_text("mine\n")
        path = policy(workspace, {"files": [{"path": "~/data", "access": "read"}]})
        ran = cellblock.sh(f"cat {home}/data/f; ls -A {home}", flags=["--policy", path])
        assert ran.out == "mine\ndata\nproject\n"

    def test_many_rules(self, cellblock, outside):
        flags = []
        for number in range(100):
            (outside / f"d{number}").mkdir()
            (outside / f"d{number}" / "f").write_text(f"{number}\n")
            flags += ["--read", outside / f"d{number}"]
        assert cellblock.sh(f"cat {outside}/*/f | wc -l", flags=flags).out == "100\n"


class TestPolicyFiles:
    @pytest.mark.parametrize("profile", PROFILES)
    def test_profiles_run(self, cellblock, profile):
        assert cellblock.run("echo", "fine", flags=["--profile", profile]).out == "fine\n"

    def test_strict_starts_no_processes(self, cellblock):
        for flag in (["--strict"], ["--profile", "strict"]):
            ran = cellblock.python("import os\ntry: os.fork()\nexcept OSError as e: print(e.errno)", flags=flag)
            assert ran.out.strip().isdigit()

    def test_strict_has_threads_but_no_sockets(self, cellblock):
        code = ("import threading, socket\nt = threading.Thread(target=print, args=('thread',)); t.start(); t.join()\n"
                "try: socket.socket()\nexcept OSError: print('no socket')")
        assert cellblock.python(code, flags=["--strict"]).out == "thread\nno socket\n"

    def test_an_unknown_profile(self, cellblock):
        ran = cellblock.run("true", flags=["--profile", "pyton"])
        assert ran.status == 125 and "python" in ran.err

    def test_policy_and_profile_exclude_each_other(self, cellblock, workspace):
        ran = cellblock.run("true", flags=["--policy", policy(workspace, {}), "--profile", "base"])
        assert ran.status == 125

    def test_flags_come_on_top(self, cellblock, workspace):
        path = policy(workspace, {"limits": {"open_files": 64}, "env": {"set": {"A": "file"}}})
        ran = cellblock.sh("ulimit -n; echo $A", flags=["--policy", path, "--open-files", "128", "--env", "A=flag"])
        assert ran.out == "128\nflag\n"

    def test_extends_nothing(self, cellblock, workspace):
        ran = cellblock.run("/bin/true", flags=["--policy", policy(workspace, {"extends": []})])
        assert ran.status == 127

    def test_comments_and_trailing_commas(self, cellblock, workspace):
        path = policy(workspace, '// one\n{"cellblock": 1, /* two */ "limits": {"processes": 9,},}\n')
        assert cellblock.run("true", flags=["--policy", path]).status == 0

    def test_missing_policy(self, cellblock, outside):
        ran = cellblock.run("true", flags=["--policy", outside / "none.jsonc"])
        assert ran.status == 125 and "none.jsonc" in ran.err and "No such file" in ran.err

    def test_a_directory_as_policy(self, cellblock, outside):
        ran = cellblock.run("true", flags=["--policy", outside])
        assert ran.status == 125 and str(outside) in ran.err

    def test_unreadable_policy(self, cellblock, workspace):
        path = policy(workspace, {})
        path.chmod(0)
        assert cellblock.run("true", flags=["--policy", path]).status == (0 if is_root() else 125)

    def test_a_policy_that_never_ends(self, cellblock):
        assert cellblock.run("true", flags=["--policy", "/dev/zero"], timeout=20).status == 125

    def test_an_empty_policy(self, cellblock):
        assert cellblock.run("true", flags=["--policy", "/dev/null"]).status == 125

    def test_only_from_a_regular_file(self, cellblock):
        ran = cellblock.run("true", flags=["--policy", "/dev/stdin"], input=b'{"cellblock": 1}')
        assert ran.status == 125 and "not a regular file" in ran.err


class TestTighten:
    def test_it_takes_away(self, cellblock, workspace, data):
        path = policy(workspace, {"files": [{"path": str(data), "access": "none"}]}, "t.jsonc")
        ran = cellblock.run("cat", data / "file", flags=["--read", data, "--tighten", path])
        assert ran.out == ""

    def test_it_never_grants(self, cellblock, workspace, data):
        path = policy(workspace, {"files": [{"path": str(data), "access": "write"}], "limits": {"memory": "1T"},
                                  "env": {"pass": ["SECRET"]}}, "t.jsonc")
        ran = cellblock.sh(f"cat {data}/file; echo $SECRET; ulimit -d", flags=["--tighten", path, "--memory", "1G"],
                           env={"SECRET": "s"})
        assert ran.out == f"\n{1 << 20}\n"

    def test_write_becomes_read(self, cellblock, workspace, data):
        path = policy(workspace, {"files": [{"path": str(data), "access": "read"}, {"path": "/usr", "access": "read"},
                                            {"path": "/bin", "access": "read"}, {"path": "/lib", "access": "read"},
                                            {"path": "/lib64", "access": "read", "optional": True}]}, "t.jsonc")
        cellblock.sh(f"echo x > {data}/file", flags=["--write", data, "--tighten", path])
        assert (data / "file").read_text() == "data\n"

    def test_the_smaller_limit_counts(self, cellblock, workspace):
        for first, second in ((64, 128), (128, 64)):
            path = policy(workspace, {"limits": {"open_files": second}}, "t.jsonc")
            assert cellblock.sh("ulimit -n", flags=["--open-files", str(first), "--tighten", path]).out == "64\n"

    def test_several(self, cellblock, workspace, data):
        one = policy(workspace, {"files": [{"path": str(data / "file"), "access": "none"}]}, "one.jsonc")
        two = policy(workspace, {"files": [{"path": str(data / "deep"), "access": "none"}]}, "two.jsonc")
        ran = cellblock.sh(f"cat {data}/file {data}/deep/open",
                           flags=["--read", data, "--tighten", one, "--tighten", two])
        assert ran.out == ""

    def test_it_can_not_choose_the_workspace(self, cellblock, workspace, data):
        path = policy(workspace, {"workspace": {"path": str(data)}}, "t.jsonc")
        ran = cellblock.run("touch", data / "made", flags=["--tighten", path])
        assert ran.status != 0 and not (data / "made").exists()

    def test_a_broken_one_refuses(self, cellblock, workspace):
        assert cellblock.run("true", flags=["--tighten", policy(workspace, "{", "t.jsonc")]).status == 125


REFUSED_FEATURES = [
    ({"workspace": {"mode": "review"}}, "review"),
    ({"isolation": "gvisor"}, "gvisor"),
]


@pytest.mark.parametrize("document, word", REFUSED_FEATURES, ids=lambda value: value if isinstance(value, str) else "")
def test_features_of_later_versions_are_refused_by_name(cellblock, workspace, document, word):
    path = policy(workspace, document)
    for ran in (cellblock.run("true", flags=["--policy", path]), cellblock.command("policy", "check", path)):
        assert ran.status in (1, 125) and word in ran.err, ran.err


@pytest.mark.parametrize("flag", ["--memory", "--tmp", "--output", "--file-size"])
@pytest.mark.parametrize("value", ["99999999999999999999", "16777217T", "-1", "1e9", "nan", "inf", "0x10", "", " ",
                                   "5X", "1.2.3", "M", "18446744073709551616", "1K K"])
def test_absurd_sizes(cellblock, flag, value):
    ran = cellblock.run("true", flags=[f"{flag}={value}"])
    assert ran.status == 125 and ran.stderr, value


@pytest.mark.parametrize("flag", ["--timeout", "--cpu-time"])
@pytest.mark.parametrize("value", ["99999999999999999999h", "-1s", "nan", "infinity", "5d", "", "s", "1e99",
                                   "0x1", "-0.5"])
def test_absurd_durations(cellblock, flag, value):
    ran = cellblock.run("true", flags=[f"{flag}={value}"])
    assert ran.status == 125 and ran.stderr, value


@pytest.mark.parametrize("flag", ["--procs", "--open-files"])
@pytest.mark.parametrize("value", ["99999999999999999999", "-1", "1.5", "nan", "many", "", "1K"])
def test_absurd_counts(cellblock, flag, value):
    ran = cellblock.run("true", flags=[f"{flag}={value}"])
    assert ran.status == 125 and ran.stderr, value


@pytest.mark.parametrize("flag, value", [("--memory", "1G"), ("--memory", "1073741824"),
                                         ("--timeout", "1.5s"), ("--timeout", "60"), ("--timeout", "2m"),
                                         ("--procs", "50"), ("--tmp", "64M"), ("--output", "1K"),
                                         ("--cpu-time", "500ms")])
def test_sensible_values(cellblock, flag, value):
    ran = cellblock.run("true", flags=[flag, value])
    assert (ran.status, ran.err) == (0, "")


@pytest.mark.parametrize("flags", [["--networking"], ["-x"], ["--read"], ["--timeout"], ["--json=yes"]])
def test_unknown_flags(cellblock, flags):
    ran = cellblock.command("run", *flags)
    assert ran.status == 125 and flags[0].split("=")[0] in ran.err


class TestWorkspace:
    @pytest.mark.parametrize("place", ["/", "/usr", "/usr/lib", "/tmp", "/var", "/etc", "/home", "/proc", "/dev",
                                       "/sys"])
    def test_standing_in_the_wrong_place(self, cellblock, place):
        ran = cellblock.run("true", cwd=place)
        assert ran.status == 125 and "workspace" in ran.err and place in ran.err

    def test_standing_in_the_home(self, cellblock, home):
        ran = cellblock.run("true", cwd=home)
        assert ran.status == 125 and "home directory" in ran.err and f"--workspace {home}" in ran.err

    def test_standing_above_the_home(self, cellblock, home):
        assert cellblock.run("true", cwd=home.parent).status == 125

    def test_the_home_through_a_link(self, cellblock, home, tmp_path):
        (tmp_path / "link").symlink_to(home)
        assert cellblock.run("true", cwd=tmp_path / "link").status == 125

    def test_the_home_on_purpose(self, cellblock, home):
        ran = cellblock.sh("cat .ssh/id_rsa; touch made", flags=["--workspace", home], cwd=home)
        assert (ran.status, ran.out) == (0, "SECRET KEY\n")
        assert (home / "made").exists()

    def test_tmp_on_purpose(self, cellblock, tmp_path):
        probe = tmp_path / "probe"
        probe.write_text("seen\n")
        ran = cellblock.run("cat", probe, flags=["--workspace", "/tmp"], cwd="/tmp")
        assert ran.out == "seen\n"

    @pytest.mark.parametrize("place", ["/", "/proc", "/sys", "/dev"])
    def test_never(self, cellblock, place):
        assert cellblock.run("true", flags=["--workspace", place]).status == 125

    def test_another_directory(self, cellblock, outside):
        ran = cellblock.sh("pwd; touch made", flags=["--workspace", outside])
        assert ran.out == f"{outside}\n" and (outside / "made").exists()

    def test_relative(self, cellblock, workspace):
        (workspace / "sub").mkdir()
        ran = cellblock.sh("touch sub/made; touch not-made", flags=["--workspace", "sub"])
        assert not (workspace / "not-made").exists()

    def test_through_a_link(self, cellblock, outside, tmp_path):
        (tmp_path / "link").symlink_to(outside)
        ran = cellblock.sh(f"touch made; ls {tmp_path}/link", flags=["--workspace", tmp_path / "link"])
        assert ran.out == "made\n" and (outside / "made").exists()

    @pytest.mark.parametrize("place", ["missing", "file", ""])
    def test_not_a_directory(self, cellblock, workspace, place):
        (workspace / "file").write_text("")
        ran = cellblock.run("true", flags=["--workspace", place])
        assert ran.status == 125 and "workspace" in ran.err

    def test_scratch(self, cellblock, workspace):
        (workspace / "file").write_text("")
        ran = cellblock.sh("pwd; ls -A; mkdir .vscode; touch made; ls", flags=["--scratch"])
        assert ran.out == f"{workspace}\nmade\n"
        assert [entry.name for entry in workspace.iterdir()] == ["file"]

    def test_it_vanished(self, cellblock, workspace):
        """The directory that the caller stands in is gone."""
        gone = workspace / "gone"
        gone.mkdir()
        ran = cellblock.run("true", cwd=gone, preexec_fn=lambda: os.rmdir(gone))
        assert ran.status == 125 and "directory" in ran.err

    def test_one_that_the_caller_can_only_read(self, cellblock, workspace):
        if is_root():
            os.chown(workspace, 1234, 1234)
        workspace.chmod(0o555)
        ran = cellblock.run("touch", "made")
        workspace.chmod(0o755)
        assert ran.status == 1 and "Permission denied" in ran.err


class TestShow:
    def test_default(self, cellblock):
        document = shown(cellblock)
        text = json.dumps(document)
        assert "profile base" in text and "/usr" in text

    def test_origins(self, cellblock, workspace, data):
        text = '{\n  "cellblock": 1,\n  "files": [\n    {"path": "%s", "access": "read"}\n  ]\n}' % data
        path = policy(workspace, text)
        text = json.dumps(shown(cellblock, "--policy", path))
        assert f"{path}:4" in text and "profile base" in text

    @pytest.mark.parametrize("profile", PROFILES)
    def test_each_profile(self, cellblock, profile):
        assert f"profile {profile}" in json.dumps(shown(cellblock, "--profile", profile))

    def test_tightening(self, cellblock, workspace):
        path = policy(workspace, {"limits": {"memory": "1M"}}, "t.jsonc")
        assert "t.jsonc" in json.dumps(shown(cellblock, "--tighten", path))

    def test_an_argument_too_many(self, cellblock):
        assert cellblock.command("policy", "show", "x").status == 125


MISTAKES = [
    ('{"cellblock": 1, "filez": []}', "1:18", "files"),
    ('{"cellblock": 1,\n "limits": {"memroy": "1M"}}', "2:13", "memory"),
    ('{"cellblock": 1,\n "files": [\n  {"path": "/x", "access": "raed"}]}', "3:28", "read"),
    ('{"cellblock": 1, "extends": ["pyton"]}', "1:30", "python"),
    ('{"cellblock": 1, "syscalls": "stirct"}', "1:30", "strict"),
    ('{"cellblock": 1, "cellblock": 1}', "1:18", "twice"),
    ('{"cellblock": 2}', "1:15", None),
    ('{}', "1:1", "cellblock"),
    ('{"cellblock": 1, "files": {}}', "1:27", None),
    ('{"cellblock": 1', "1:16", None),
    ('{"cellblock": 1} x', "1:18", None),
    ('{"cellblock": 1, "limits": {"memory": "99999999999T"}}', "1:39", None),
    ('{"cellblock": 1, "limits": {"processes": -1}}', "1:42", None),
]


class TestCheck:
    @pytest.mark.parametrize("text, place, word", MISTAKES)
    def test_mistakes(self, cellblock, workspace, text, place, word):
        path = policy(workspace, text)
        ran = cellblock.command("policy", "check", path)
        assert ran.status == 1
        assert f"{path}:{place}" in ran.err
        assert word is None or word in ran.err

    def test_good_ones(self, cellblock, workspace):
        first, second = policy(workspace, {}, "a.jsonc"), policy(workspace, {"extends": ["node"]}, "b.jsonc")
        ran = cellblock.command("policy", "check", first, second)
        assert ran.status == 0 and ran.out == f"{first}: ok\n{second}: ok\n"

    def test_one_of_several(self, cellblock, workspace):
        good, bad = policy(workspace, {}, "a.jsonc"), policy(workspace, "{", "b.jsonc")
        for order in ([good, bad], [bad, good]):
            ran = cellblock.command("policy", "check", *order)
            assert ran.status == 1 and f"{good}: ok" in ran.out and str(bad) in ran.err

    def test_the_built_in_profiles(self, cellblock):
        from conftest import ROOT
        for profile in PROFILES:
            assert cellblock.command("policy", "check", ROOT / "profiles" / f"{profile}.jsonc").status == 0

    def test_a_file_that_is_not_there(self, cellblock, outside):
        assert cellblock.command("policy", "check", outside / "none").status in (1, 125)

    def test_escapes_do_not_reach_the_terminal(self, cellblock, workspace):
        path = policy(workspace, '{"cellblock": 1, "\\u001b]0;owned\\u0007": 1}')
        assert b"\x1b" not in cellblock.command("policy", "check", path).stderr

    def test_no_file(self, cellblock):
        assert cellblock.command("policy", "check").status == 125


def test_schema(cellblock):
    ran = cellblock.command("policy", "schema")
    schema = ran.json
    assert ran.status == 0 and schema["$schema"].startswith("https://json-schema.org/")
    assert {"cellblock", "extends", "files", "limits", "env", "workspace", "syscalls"} <= set(schema["properties"])
    assert schema["additionalProperties"] is False


class TestSlips:
    """Mistakes that would leave a cell weaker than what was typed."""

    def test_a_tilde_that_the_shell_did_not_expand(self, cellblock, home):
        (home / "data").mkdir()
        (home / "data" / "key").write_text("secret\n")
        ran = cellblock.run("cat", home / "data" / "key", flags=["--read", home / "data", "--hide=~/data/key"])
        assert "secret" not in ran.out

    def test_nothing_to_hide(self, cellblock, outside):
        ran = cellblock.run("true", flags=["--hide", outside / "typo"])
        assert ran.status == 125 and "nothing to hide" in ran.err

    def test_hidden_and_absent_inside_something_writable(self, cellblock, outside):
        cellblock.sh(f"echo x >{outside}/none; mkdir {outside}/none", flags=["--write", outside, "--hide", outside / "none"])
        assert not (outside / "none").exists()

    @pytest.mark.parametrize("flags", [["--policy", "a", "--policy", "b"], ["--profile", "base", "--profile", "node"]])
    def test_twice(self, cellblock, flags):
        ran = cellblock.run("true", flags=flags)
        assert ran.status == 125 and "given twice" in ran.err

    @pytest.mark.parametrize("flags", [["--read", "nope"], ["--read="], ["--write="], ["--read", "--"], ["--tim", "5s"],
                                       ["--raed", "."]])
    def test_not_as_meant(self, cellblock, flags):
        assert cellblock.run("true", flags=flags).status == 125

    def test_a_variable_in_a_policy(self, cellblock, workspace):
        (workspace / "p.jsonc").write_text('{"cellblock": 1, "files": [{"path": "$HOME/x", "access": "none"}]}')
        ran = cellblock.command("policy", "check", "p.jsonc")
        assert ran.status == 1 and "not expanded" in ran.err

    def test_a_system_call_that_no_policy_may_allow(self, cellblock, workspace):
        (workspace / "p.jsonc").write_text('{"cellblock": 1, "syscalls": {"allow": ["mount"]}}')
        ran = cellblock.command("policy", "check", "p.jsonc")
        assert ran.status == 1 and "no policy may allow" in ran.err


class TestOptionsInMessages:
    """What was given as an option is named as it was typed: there is no file, no line, and no key to look for."""

    @pytest.mark.parametrize("option, value, why", [
        ("--memory", "5X", "is not a size"),
        ("--memory", "-5", "must not be negative"),
        ("--memory", "1", "must be at least"),
        ("--procs", "x", "must be a whole number"),
        ("--cpus", "x", "must be a number"),
        ("--timeout", "5x", "is not a duration"),
        ("--isolation", "foo", "is not one of"),
        ("--accept-weaker", "idz", 'did you mean "ids"'),
        ("--env", "a-b", "is not the name of a variable"),
        ("--read", "/usr/*", "holds a glob"),
        ("--read", "/nope", "No such file"),
        ("--hide", "/nope", "nothing to hide"),
        ("--read", "/proc/self", "its own /proc"),
        ("--profile", "pyton", 'did you mean "python"'),
    ])
    def test_a_bad_value(self, cellblock, option, value, why):
        ran = cellblock.run("true", flags=[option, value])
        first = ran.err.splitlines()[0]
        assert ran.status == 125 and first.startswith(f"cellblock: {option} '{value}'") and why in first
        assert not re.search(r":\d+:|limits\.|optional|null|command line", ran.err)

    def test_the_value_of_a_variable_is_not_repeated(self, cellblock):
        ran = cellblock.run("true", flags=["--env", "a-b=secret"])
        assert ran.status == 125 and "a-b" in ran.err and "secret" not in ran.err

    def test_a_policy_file_keeps_its_place(self, cellblock, workspace):
        path = policy(workspace, '{"cellblock": 1,\n "files": [{"path": "/nope", "access": "read"}]}')
        ran = cellblock.run("true", flags=["--policy", path])
        assert ran.status == 125 and f"{path}:2: " in ran.err and "optional" in ran.err

    def test_the_last_one_counts(self, cellblock):
        ran = cellblock.sh("echo $A", flags=["--env", "A=1", "--timeout", "1ms", "--env", "A=2", "--timeout", "1h"])
        assert (ran.status, ran.out) == (0, "2\n")


class TestWhyItDoesNotStart:
    def test_a_directory(self, cellblock, workspace):
        (workspace / "bin").mkdir()
        ran = cellblock.run("./bin")
        assert ran.status == 126 and "it is a directory" in ran.err and "chmod" not in ran.err

    @pytest.mark.parametrize("text, mode, hint", [
        ("#!/bin/sh\r\necho\r\n", 0o755, "Windows line endings"),
        ("#!/opt/nope/python\n", 0o755, "/opt/nope/python, is not in the cell"),
        ("#!/bin/sh\n", 0o644, "chmod +x"),
        ("echo\n", 0o755, "begins with"),
    ])
    def test_hint(self, cellblock, workspace, text, mode, hint):
        (workspace / "script").write_text(text)
        (workspace / "script").chmod(mode)
        ran = cellblock.run("./script")
        assert ran.status in (126, 127) and hint in ran.err
