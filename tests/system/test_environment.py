"""The environment is an allow-list; PATH, HOME and PWD are made for the cell."""

import pytest

SECRETS = {"AWS_SECRET_ACCESS_KEY": "k", "GITHUB_TOKEN": "t", "OPENAI_API_KEY": "o", "SSH_AUTH_SOCK": "/tmp/agent",
           "LD_PRELOAD": "/tmp/x.so", "PYTHONPATH": "/tmp", "NODE_OPTIONS": "--inspect",
           "DBUS_SESSION_BUS_ADDRESS": "d",
           "BASH_ENV": "/tmp/env", "http_proxy": "http://user:password@proxy", "CELLBLOCK_TEST_OFF": "seccomp"}


def environment(cellblock, *flags, env=None):
    ran = cellblock.run("env", "-0", flags=flags, env=env)
    assert ran.status == 0, ran.err
    return dict(entry.split("=", 1) for entry in ran.out.split("\0") if entry)


def test_secrets_are_not_inherited(cellblock):
    inside = environment(cellblock, env=SECRETS)
    assert not set(inside) & set(SECRETS)


def test_harmless_ones_are(cellblock):
    given = {"LANG": "de_DE.UTF-8", "LC_TIME": "C", "TZ": "UTC", "TERM": "xterm", "NO_COLOR": "1", "CI": "true"}
    inside = environment(cellblock, env=given)
    assert {name: inside.get(name) for name in given} == given


def test_home_and_pwd(cellblock, workspace):
    inside = environment(cellblock, env={"PWD": "/somewhere/else", "OLDPWD": "/else", "TMPDIR": "/var/tmp/x"})
    assert (inside["HOME"], inside["PWD"]) == ("/run/home", str(workspace))
    assert not {"OLDPWD", "TMPDIR"} & set(inside)


def test_pass_by_name(cellblock):
    inside = environment(cellblock, "--env", "MINE", "--env", "MISSING", env={"MINE": "a=b c\nd", "OTHER": "x"})
    assert inside["MINE"] == "a=b c\nd"
    assert not {"MISSING", "OTHER"} & set(inside)


def test_pass_by_beginning(cellblock):
    inside = environment(cellblock, "--env", "MY_*", env={"MY_A": "1", "MY_B": "2", "MYC": "3"})
    assert (inside["MY_A"], inside["MY_B"]) == ("1", "2") and "MYC" not in inside


def test_set(cellblock):
    inside = environment(cellblock, "--env", "A=1", "--env", "EMPTY=", "--env", "B=x=y z", env={"A": "callers"})
    assert (inside["A"], inside["EMPTY"], inside["B"]) == ("1", "", "x=y z")


def test_the_last_one_counts(cellblock):
    assert environment(cellblock, "--env", "A=1", "--env", "A=2")["A"] == "2"


@pytest.mark.parametrize("value", ["=x", "A B=c", ""])
def test_names_that_are_none(cellblock, value):
    ran = cellblock.run("env", flags=["--env", value])
    assert ran.status == 125 and ran.stderr


def test_path_has_only_what_is_there(cellblock, home, workspace, outside):
    (workspace / "bin").mkdir()
    path = f"{home}/.local/bin:relative:{outside}::/usr/bin:{workspace}/bin:/no/such:/bin"
    inside = environment(cellblock, env={"PATH": path})
    assert inside["PATH"].split(":") == ["/usr/bin", f"{workspace}/bin", "/no/such", "/bin"] or \
        inside["PATH"].split(":") == ["/usr/bin", f"{workspace}/bin", "/bin"]


def test_without_any_environment(cellblock):
    cellblock.environment = {}
    inside = environment(cellblock)
    assert "/usr/bin" in inside["PATH"].split(":") and inside["HOME"].startswith("/")


def test_a_policy_sets_and_passes(cellblock, workspace):
    (workspace / "p.jsonc").write_text('{"cellblock": 1, "env": {"pass": ["P"], "set": {"S": "fixed"}}}')
    inside = environment(cellblock, "--policy", "p.jsonc", env={"P": "passed", "S": "callers"})
    assert (inside["P"], inside["S"]) == ("passed", "fixed")


def test_tightening_takes_variables_away(cellblock, workspace):
    (workspace / "t.jsonc").write_text('{"cellblock": 1, "env": {"pass": ["LANG"]}}')
    inside = environment(cellblock, "--env", "MINE", "--tighten", "t.jsonc",
                         env={"MINE": "1", "LANG": "C", "TZ": "UTC"})
    assert "MINE" not in inside and inside.get("LANG") == "C"


def test_a_tightening_policy_sets_nothing(cellblock, workspace):
    (workspace / "t.jsonc").write_text('{"cellblock": 1, "env": {"set": {"LD_PRELOAD": "./evil.so"}}}')
    ran = cellblock.run("env", flags=["--tighten", "t.jsonc"])
    assert ran.status == 125 or "LD_PRELOAD" not in ran.out
