"""Network rules on the command line and in files: what they come to, and what is said of those that are wrong."""

import json

import pytest


def shown(cellblock, *flags, **keywords):
    ran = cellblock.command("policy", "show", *flags, **keywords)
    assert ran.status == 0, ran.err
    return ran.json


def rules(cellblock, section, *flags, **keywords):
    return [{key: value for key, value in rule.items() if key != "origin"}
            for rule in shown(cellblock, *flags, **keywords)[section]]


RULES = [
    ("api.example.com:443", {"host": "api.example.com", "ports": [443], "protocol": "tcp"}),
    ("tcp://api.example.com:443", {"host": "api.example.com", "ports": [443], "protocol": "tcp"}),
    ("API.Example.com.:443", {"host": "api.example.com", "ports": [443], "protocol": "tcp"}),
    ("*.example.org:443,8000-8100", {"host": "*.example.org", "ports": [443, "8000-8100"], "protocol": "tcp"}),
    ("bücher.example:443", {"host": "xn--bcher-kva.example", "ports": [443], "protocol": "tcp"}),
    ("redis:6379", {"host": "redis", "ports": [6379], "protocol": "tcp"}),
    ("10.1.0.0/16:5432", {"cidr": "10.1.0.0/16", "ports": [5432], "protocol": "tcp"}),
    ("203.0.113.9:1-65535", {"cidr": "203.0.113.9", "ports": ["1-65535"], "protocol": "tcp"}),
    ("udp://1.1.1.1:53", {"cidr": "1.1.1.1", "ports": [53], "protocol": "udp"}),
    ("[2001:db8::9]:443", {"cidr": "2001:db8::9", "ports": [443], "protocol": "tcp"}),
    ("[2001:db8::/32]:443", {"cidr": "2001:db8::/32", "ports": [443], "protocol": "tcp"}),
    ("[2001:db8::]/32:443", {"cidr": "2001:db8::/32", "ports": [443], "protocol": "tcp"}),
    ("[::ffff:10.0.0.1]:80", {"cidr": "10.0.0.1", "ports": [80], "protocol": "tcp"}),
    ("loopback:6379", {"loopback": [6379], "protocol": "tcp"}),
    ("udp://loopback:53,5353", {"loopback": [53, 5353], "protocol": "udp"}),
]


@pytest.mark.parametrize("rule, expected", RULES, ids=[rule for rule, _ in RULES])
def test_net(cellblock, rule, expected):
    assert rules(cellblock, "network", "--net", rule) == [expected]


def test_rules_add_up_and_come_behind_those_of_a_file(cellblock, workspace):
    path = workspace.parent / "p.jsonc"
    path.write_text(json.dumps({"cellblock": 1, "network": [{"loopback": 1, "why": "first"}]}))
    found = shown(cellblock, "--policy", path, "--net", "a.b:2", "--net", "loopback:3")["network"]
    assert [rule["origin"] for rule in found] == [f"{path}:1", "--net 'a.b:2'", "--net 'loopback:3'"]
    assert found[0]["why"] == "first" and found[1]["host"] == "a.b" and found[2]["loopback"] == [3]


def test_publish(cellblock):
    assert rules(cellblock, "publish", "--publish", "8080", "--publish", "80:18080") == [
        {"port": 8080, "as": 8080}, {"port": 80, "as": 18080}]


def test_socket(cellblock, workspace, home):
    assert rules(cellblock, "sockets", "--socket", "/run/s", "--socket", "made.sock", "--socket=~/s") == [
        {"path": "/run/s"}, {"path": f"{workspace}/made.sock"}, {"path": f"{home}/s"}]


def test_what_tightens_is_marked(cellblock, workspace):
    path = workspace.parent / "t.jsonc"
    path.write_text(json.dumps({"cellblock": 1, "network": [], "publish": [{"port": 1}]}))
    found = shown(cellblock, "--net", "a.b:1", "--tighten", path)
    assert "tightens" not in found["network"][0] and found["publish"][0]["tightens"] is True


WRONG = [
    (["--net", "api.example.com"], "--net api.example.com: needs a port at its end"),
    (["--net", "api.example.com:"], "needs a port at its end"),
    (["--net", ":443"], "needs a host or an address in front of the port"),
    (["--net", ""], "needs a port"),
    (["--net", "a.b:https"], 'ports: "https" is not a range of ports'),
    (["--net", "a.b:0"], "ports: 0 is not a port"),
    (["--net", "a.b:65536"], "ports: 65536 is not a port"),
    (["--net", "a.b:99999999999999999999"], "is not a range of ports"),
    (["--net", "a.b:-1"], "is not a range of ports"),
    (["--net", "a.b:9-8"], "ends before it begins"),
    (["--net", "a.b:1,,2"], "has an empty place between its ports"),
    (["--net", "a.b:443/"], "is not a range of ports"),
    (["--net", "https://a.b/"], "a rule names a host and ports, not a URL"),
    (["--net", "icmp://a.b:1"], "not a URL"),
    (["--net", "2001:db8::9:443"], "an IPv6 address stands in brackets"),
    (["--net", "[2001:db8::9:443"], "the bracket is not closed"),
    (["--net", "[2001:db8::9]"], "needs a port"),
    (["--net", "[fe80::1%eth0]:443"], "is not an address"),
    (["--net", "[a.b]:443"], "brackets are for IPv6 addresses"),
    (["--net", "10.1.2.3/16:1"], 'did you mean "10.1.0.0/16"?'),
    (["--net", "10.1.0.0/33:1"], "has no length from 0 to 32"),
    (["--net", "010.0.0.1:1"], "software takes it for an address"),
    (["--net", "127.1:1"], "software takes it for an address"),
    (["--net", "0x7f.1:1"], "software takes it for an address"),
    (["--net", "2130706433:1"], "software takes it for an address"),
    (["--net", "127.0.0.1:6379"], "the host's is loopback:6379"),
    (["--net", "[::1]:6379"], "the host's is loopback:6379"),
    (["--net", "Localhost:6379"], "the host's is loopback:6379"),
    (["--net", "127.0.0.0/8:1"], "loopback"),
    (["--net", "0.0.0.0:1"], "no rule opens"),
    (["--net", "*:443"], "every host"),
    (["--net", "*.com:443"], "many owners"),
    (["--net", "a.*.com:443"], "not all of its first part"),
    (["--net", "a_b.c:443"], "letters, digits, hyphens"),
    (["--net", "-a.b:443"], "hyphen"),
    (["--net", "a..b:443"], "empty part"),
    (["--net", "a\x1b[2Jb:443"], "\\x1b"),
    (["--net", b"a\xffb:443"], "not text in UTF-8"),
    (["--publish", "0"], "0 is not a port"),
    (["--publish", "http"], "is not a port of the cell"),
    (["--publish", "80:"], "is not a port of the cell"),
    (["--publish", "80:70000"], "70000 is not a port"),
    (["--publish", "127.0.0.1:80:80"], "is not a port of the cell"),
    (["--publish", "80", "--publish", "81:80"], "the port 80 of the host is there twice"),
    (["--socket", ""], "needs the path of a socket"),
    (["--socket", "/run/"], "names a directory"),
    (["--socket", "/run/*.sock"], "glob"),
]


@pytest.mark.parametrize("flags, message", WRONG, ids=[str(flags[-1]) for flags, _ in WRONG])
def test_mistakes_are_named(cellblock, flags, message):
    for ran in (cellblock.command("policy", "show", *flags), cellblock.run("true", flags=flags)):
        assert ran.status == 125 and ran.stdout == b""
        assert message in ran.err, ran.err
        assert b"\x1b" not in ran.stderr


def test_mistakes_in_a_file_have_a_place_and_a_hint(cellblock, workspace):
    path = workspace.parent / "p.jsonc"
    path.write_text('{"cellblock": 1,\n "network": [\n  {"host": "127.0.0.1", "ports": [80]}]}')
    ran = cellblock.command("policy", "check", path)
    assert ran.status == 1
    assert f'{path}:3:12: network[0].host: "127.0.0.1" is not the name of a host' in ran.err
    assert 'what to do: addresses stand in "cidr"' in ran.err


def test_the_schema_knows_the_rules(cellblock):
    schema = cellblock.command("policy", "schema").json
    rule = schema["properties"]["network"]["items"]
    assert [form["required"] for form in rule["oneOf"]] == [["host", "ports"], ["cidr", "ports"], ["loopback"]]
    assert rule["oneOf"][2]["not"] == {"required": ["ports"]}
    assert rule["additionalProperties"] is False
    assert set(rule["properties"]) == {"host", "cidr", "loopback", "ports", "protocol", "why"}
    assert set(schema["properties"]["publish"]["items"]["properties"]) == {"port", "as", "why"}
    assert {"network_bytes", "connections"} <= set(schema["properties"]["limits"]["properties"])


@pytest.mark.parametrize("flag, key, value", [("--network-bytes", "network_bytes", "1M"),
                                               ("--connections", "connections", "7")])
def test_limits(cellblock, workspace, flag, key, value):
    ran = cellblock.run("true", flags=["--plan", flag, value])
    assert ran.json["report"]["requested"]["limits"][key] == {"1M": 1 << 20, "7": 7}[value]
    assert cellblock.run("true", flags=[flag, "0"]).status == 125
