"""Rules for the network that change while a cell runs: through the library, as an embedder does it, and the same
through the helper program. The cell is asked to try things, one after the other, while the caller changes the rules."""

import json

import pytest

import library
from conftest import is_root
from internet import OTHER, PRELUDE, WEB, WEB6, cell, internet, lab    # noqa: F401: fixtures are used by their names

# What runs in the cell: says what comes of each line.
INSIDE = PRELUDE + """
kept = {}
def keep(name, address, port):
    kept[name] = connect(address, port)
def echo(name, text=b"hello"):
    kept[name].sendall(text)
    return kept[name].recv(100) == text
def reset(name):
    # how a connection is that should have been cut
    try:
        return "over" if kept[name].recv(1) == b"" else "data"
    except OSError as error:
        return errno.errorcode.get(error.errno, repr(error))
def serve(port):
    kept["server"] = socket.create_server(("127.0.0.1", port))
    def loop():
        while True:
            with kept["server"].accept()[0] as made:
                made.sendall(b"own")
    threading.Thread(target=loop, daemon=True).start()
def hears(address, port):
    with connect(address, port) as made:
        return made.recv(100).decode()
def datagram(address, port):
    made = socket.socket(family(address), socket.SOCK_DGRAM)
    made.settimeout(20)
    made.sendto(b"x", (address, port))
    return made.recv(10)
print("ready", flush=True)
for line in sys.stdin:
    try:
        print(eval(line), flush=True)
    except OSError as error:
        print(errno.errorcode.get(error.errno, repr(error)), flush=True)
"""

# What runs outside: the caller of the library.
CALLER = """
import select, time
class Options(Options):
    _fields_ = [("open_files", ctypes.c_ulong), ("foreground", ctypes.c_int), ("network", ctypes.c_int)]
Cell.library.cellblock_error_hint.restype = Cell.library.cellblock_error_layer.restype = ctypes.c_char_p
class Refused(Exception):
    pass
class Running(Cell):
    def __init__(self, policy=None, network=1, tight=None, program=None):
        self.policy, self.cell, self.error = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        self.check(self.library.cellblock_policy_new(ctypes.byref(self.policy), ctypes.byref(self.error)))
        for document in (policy, {"cellblock": 1, "isolation": tier, "accept_weaker": accepts}):
            if document:
                text = json.dumps(document).encode()
                name = b"own" if document is policy else b"tier"
                self.check(self.library.cellblock_policy_add_text(self.policy, text, ctypes.c_size_t(len(text)), name,
                                                                  ctypes.byref(self.error)))
        if tight:
            text, other = json.dumps(tight).encode(), ctypes.c_void_p()
            self.check(self.library.cellblock_policy_load_text(text, ctypes.c_size_t(len(text)), b"tight",
                                                               ctypes.byref(other), ctypes.byref(self.error)))
            self.check(self.library.cellblock_policy_tighten(self.policy, other, ctypes.byref(self.error)))
            self.library.cellblock_policy_free(other)
        given, self.stdin = os.pipe()
        self.stdout, written = os.pipe()
        self.text = b""
        program = program or ["/usr/bin/python3", "-c", inside]
        self.options = Options(size=ctypes.sizeof(Options), argv=_strings(program), stdio=(given, written, 2),
                               helper=helper, helper_path=os.fsencode(self.program), network=network)
        self.check(self.library.cellblock_start(self.policy, ctypes.byref(self.options), ctypes.byref(self.cell),
                                                ctypes.byref(self.error)))
        self.ours = given, written      # the library writes to the second while the cell runs
    def check(self, failed):
        if failed:
            message = self.library.cellblock_error_message(self.error).decode()
            found = (self.library.cellblock_error_code(self.error), message,
                     self.library.cellblock_error_layer(self.error))
            self.library.cellblock_error_free(self.error)
            self.error = ctypes.c_void_p()
            raise Refused(*found)
    def line(self):
        deadline = time.monotonic() + 60
        while b"\\n" not in self.text:
            assert time.monotonic() < deadline, "nothing was said"
            for ready in select.select([self.library.cellblock_fd(self.cell), self.stdout], [], [], 1)[0]:
                if ready == self.stdout:
                    self.text += os.read(ready, 10000)
            self.library.cellblock_dispatch(self.cell, None)
        line, self.text = self.text.split(b"\\n", 1)
        return line.decode()
    def ask(self, expression):
        os.write(self.stdin, expression.encode() + b"\\n")
        return self.line()
    def connects(self, address, port):
        return self.ask(f"outcome(connect, {address!r}, {port})")
    def add(self, name, *rules, **more):
        self.add_text(name, json.dumps({"cellblock": 1, "network": list(rules), **more}))
    def add_text(self, name, text):
        text = text.encode()
        self.check(self.library.cellblock_rules_add(self.cell, text, ctypes.c_size_t(len(text)), name.encode(),
                                                    ctypes.byref(self.error)))
    def remove(self, name, cut=0):
        self.check(self.library.cellblock_rules_remove(self.cell, name.encode(), cut, ctypes.byref(self.error)))
    def refused(self, function, *arguments, **keywords):
        try:
            function(*arguments, **keywords)
        except Refused as refused:
            return refused.args
        raise AssertionError("it was taken")
    def end(self):
        os.close(self.stdin)
        _, result = self.wait()
        for fd in *self.ours, self.stdout:
            os.close(fd)
        return result
_strings = Cell.__init__.__globals__["_strings"]
def rule(address, port, **more):
    return {"cidr": address, "ports": port, **more}
def ready(*arguments, **keywords):
    made = Running(*arguments, **keywords)
    assert made.line() == "ready"
    return made
USAGE, POLICY = 2, 1
"""


class Caller:
    def __init__(self, cell, helper, tier):
        self.cell, self.helper, self.tier = cell, helper, tier

    def __call__(self, code, **values):
        settled = {"helper": self.helper, "inside": INSIDE, "tier": self.tier, "WEB": WEB, "OTHER": OTHER, "WEB6": WEB6,
                   "accepts": ["ids"] if self.tier == "landlock" and is_root() else [], **values}
        before = f"globals().update({settled!r})\n"
        ran = self.cell.lab.bare(*library.caller(before + CALLER + code + "\nprint('done')"),
                                 env=self.cell.environment, cwd=self.cell.workspace, timeout=120)
        assert (ran.status, ran.out) == (0, "done\n"), ran.out + ran.err


@pytest.fixture(params=[library.NEVER, library.ALWAYS], ids=["alone", "helper"])
def caller(cell, request):
    return Caller(cell, request.param, "namespaces")


@pytest.fixture(params=["namespaces", "landlock"])
def either(cell, request):
    """In both tiers."""
    return Caller(cell, library.NEVER, request.param)


# ---- Adding and removing ----

ADD_AND_REMOVE = """
cell = ready()
assert cell.connects(WEB, port) == "EACCES"
cell.add("first", rule(WEB, port))
assert cell.connects(WEB, port) == "worked"
assert cell.connects(OTHER, other) == "EACCES"
cell.add("second", rule(OTHER, other))
assert (cell.connects(WEB, port), cell.connects(OTHER, other)) == ("worked", "worked")
cell.remove("first")
assert (cell.connects(WEB, port), cell.connects(OTHER, other)) == ("EACCES", "worked")
cell.remove("second")
assert cell.connects(OTHER, other) == "EACCES"
cell.add("first", rule(WEB, port))
assert cell.connects(WEB, port) == "worked"
denials = {(d["code"], d["object"]): d["count"] for d in cell.end()["denials"]}
assert denials == {("network.connect", f"{WEB}:{port}"): 2, ("network.connect", f"{OTHER}:{other}"): 2}, denials
"""


def test_adding_and_removing(caller, lab):
    caller(ADD_AND_REMOVE, port=lab.echo(WEB), other=lab.echo(OTHER))


def test_adding_and_removing_in_both_tiers(either, lab):
    either(ADD_AND_REMOVE, port=lab.echo(WEB), other=lab.echo(OTHER))


def test_names(either, lab):
    """A name can be looked up from when its rule is there until it is gone."""
    lab.names.set("api.example.com", WEB)
    either("""
cell = ready()
assert cell.ask("outcome(addresses, 'api.example.com')").startswith("EAI_")
cell.add("name", {"host": "api.example.com", "ports": port})
assert cell.ask("addresses('api.example.com')") == str([WEB])
assert cell.connects("api.example.com", port) == "worked"
cell.remove("name")
assert cell.ask("outcome(addresses, 'api.example.com')").startswith("EAI_")
assert cell.connects(WEB, port) == "EACCES"
cell.end()
""", port=lab.echo(WEB))


def test_datagrams(caller, lab):
    caller("""
cell = ready()
datagram = f"datagram({WEB!r}, {port})"
assert cell.ask(datagram) == "EACCES"
cell.add("udp", rule(WEB, port, protocol="udp"))
assert cell.ask(datagram) == "b'x'"
assert cell.connects(WEB, port) == "EACCES"
cell.remove("udp")
assert cell.ask(datagram) == "EACCES"
cell.end()
""", port=lab.udp_echo(WEB))


def test_rules_of_the_policy_itself(either, lab):
    """Its documents can be removed as well, by the name that they were given."""
    either("""
cell = ready({"cellblock": 1, "network": [rule(WEB, port)]}, network=0)
assert cell.connects(WEB, port) == "worked"
cell.remove("own")
assert cell.connects(WEB, port) == "EACCES"
cell.add("own", rule(WEB, port))
assert cell.connects(WEB, port) == "worked"
cell.end()
""", port=lab.echo(WEB))


def test_documents_of_one_name(caller, lab):
    """The last one goes first."""
    caller("""
cell = ready()
cell.add("rules", rule(WEB, port))
cell.add("rules", rule(OTHER, other))
assert (cell.connects(WEB, port), cell.connects(OTHER, other)) == ("worked", "worked")
cell.remove("rules")
assert (cell.connects(WEB, port), cell.connects(OTHER, other)) == ("worked", "EACCES")
cell.remove("rules")
assert (cell.connects(WEB, port), cell.connects(OTHER, other)) == ("EACCES", "EACCES")
cell.end()
""", port=lab.echo(WEB), other=lab.echo(OTHER))


# ---- Live connections ----

def test_live_connections_stay_unless_they_are_cut(caller, lab):
    caller("""
cell = ready()
for name, address, at in ("one", WEB, port), ("two", OTHER, other), ("six", WEB6, six):
    cell.add(name, rule(address, at))
    assert cell.ask(f"keep({name!r}, {address!r}, {at})") == "None"
    assert cell.ask(f"echo({name!r})") == "True"
cell.remove("one")
assert cell.connects(WEB, port) == "EACCES"
assert cell.ask("echo('one')") == "True"           # it was allowed when it was made
cell.remove("two", cut=1)                           # now what is no longer allowed goes: both
assert cell.ask("reset('two')") == "ECONNRESET"
assert cell.ask("reset('one')") == "ECONNRESET"
assert cell.ask("echo('six')") == "True"
cell.add("two", rule(OTHER, other))                 # adding leaves everything alone
assert cell.ask("echo('six')") == "True"
cell.remove("six", cut=1)
assert cell.ask("reset('six')") == "ECONNRESET"
cell.end()
""", port=lab.echo(WEB), other=lab.echo(OTHER), six=lab.echo(WEB6))


def test_a_cut_is_seen_outside(cell, lab):
    """The other end is not left with a connection that nobody is at."""
    ends = []
    port = lab.serve(WEB, lambda connection: ends.append(ended(connection)))
    Caller(cell, library.NEVER, "namespaces")("""
cell = ready()
cell.add("one", rule(WEB, port))
cell.ask(f"keep('one', {WEB!r}, {port})")
cell.remove("one", cut=1)
assert cell.ask("reset('one')") == "ECONNRESET"
cell.end()
""", port=port)
    assert ends == ["reset"]


def ended(connection):
    connection.settimeout(60)
    try:
        return "closed" if connection.recv(1) == b"" else "data"
    except ConnectionResetError:
        return "reset"


def test_what_another_rule_still_allows_is_not_cut(caller, lab):
    caller("""
cell = ready()
cell.add("narrow", rule(WEB, port))
cell.add("wide", rule("93.184.216.0/24", port))
cell.ask(f"keep('one', {WEB!r}, {port})")
cell.remove("narrow", cut=1)
assert cell.ask("echo('one')") == "True"
cell.remove("wide", cut=1)
assert cell.ask("reset('one')") == "ECONNRESET"
cell.end()
""", port=lab.echo(WEB))


def test_cutting_by_name(caller, lab):
    lab.names.set("api.example.com", WEB)
    caller("""
cell = ready()
cell.add("name", {"host": "*.example.com", "ports": port})
cell.ask(f"keep('one', 'api.example.com', {port})")
assert cell.ask("echo('one')") == "True"
cell.add("other", rule(OTHER, 1))
assert cell.ask("echo('one')") == "True"
cell.remove("other", cut=1)
assert cell.ask("echo('one')") == "True"
cell.remove("name", cut=1)
assert cell.ask("reset('one')") == "ECONNRESET"
cell.end()
""", port=lab.echo(WEB))


def test_tier_landlock_can_not_cut(cell, lab):
    """It says so, and the rule is still there."""
    Caller(cell, library.NEVER, "landlock")("""
cell = ready()
cell.add("one", rule(WEB, port))
code, message, _ = cell.refused(cell.remove, "one", cut=1)
assert code == USAGE and "can't be cut" in message, message
assert cell.connects(WEB, port) == "worked"
cell.remove("one")
assert cell.connects(WEB, port) == "EACCES"
cell.end()
""", port=lab.echo(WEB))


# ---- Loopback: what is the host's, and what the cell's own ----

def test_a_port_of_loopback(caller, lab):
    """The same port is the cell's own, then the host's, and the cell's own again."""
    port, second = lab.says("127.0.0.1", b"host"), lab.says("127.0.0.1", b"second")
    caller("""
cell = ready()
hears = f"hears('127.0.0.1', {port})"
assert cell.ask(hears) == "ECONNREFUSED"
assert cell.ask(f"serve({port})") == "None"
assert cell.ask(hears) == "own"
cell.add("port", {"loopback": port})
assert cell.ask(hears) == "host"
assert cell.ask(f"hears('127.0.0.1', {second})") == "ECONNREFUSED"
cell.add("more", {"loopback": [second, 1]})
assert (cell.ask(hears), cell.ask(f"hears('127.0.0.1', {second})")) == ("host", "second")
cell.remove("port")
assert (cell.ask(hears), cell.ask(f"hears('127.0.0.1', {second})")) == ("own", "second")
cell.remove("more")
assert (cell.ask(hears), cell.ask(f"hears('127.0.0.1', {second})")) == ("own", "ECONNREFUSED")
cell.end()
""", port=port, second=second)


def test_a_port_of_loopback_is_cut(caller, lab):
    caller("""
cell = ready()
cell.add("port", {"loopback": port})
cell.ask(f"keep('one', '127.0.0.1', {port})")
assert cell.ask("echo('one')") == "True"
cell.remove("port", cut=1)
assert cell.ask("reset('one')") == "ECONNRESET"
cell.end()
""", port=lab.echo("127.0.0.1"))


def test_many_ports_of_loopback(caller, lab):
    """As many as a policy may name at once, and one more."""
    port = lab.says("127.0.0.1", b"host")
    caller("""
cell = ready()
cell.add("many", {"loopback": f"{port - 63}-{port}"})
assert cell.ask(f"hears('127.0.0.1', {port})") == "host"
code, message, _ = cell.refused(cell.add, "more", {"loopback": 1})
assert code == POLICY and "more than 64 ports" in message, message
assert cell.ask(f"hears('127.0.0.1', {port})") == "host"
cell.end()
""", port=port)


# ---- What is refused ----

@pytest.mark.parametrize("section", [
    {"files": [{"path": "/etc/shadow", "access": "read"}]}, {"limits": {"wall_time": "1s"}},
    {"publish": [{"port": 80}]}, {"environment": {"set": {"A": "b"}}}, {"sockets": [{"path": "/run/x.sock"}]},
    {"isolation": "landlock"},
    {"accept_weaker": ["ids"]}, {"extends": ["python"]}, {"workspace": "/tmp"},
], ids=lambda value: next(iter(value)))
def test_other_sections(cell, lab, section):
    """Nothing of such a document counts, through the helper neither."""
    for helper in library.NEVER, library.ALWAYS:
        Caller(cell, helper, "namespaces")("""
cell = ready()
code, message, _ = cell.refused(cell.add, "more", rule(WEB, port), **section)
assert code == POLICY and message, message
assert cell.connects(WEB, port) == "EACCES"
cell.refused(cell.remove, "more")
cell.end()
""", port=lab.echo(WEB), section=section)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"cellblock": 2, "network": []}',
                                  '{"cellblock": 1, "network": [{"a": 1}]}',
                                  '{"cellblock": 1, "network": [{"host": "*", "ports": 1}]}'], ids=str)
def test_documents_that_are_none(cell, lab, text):
    """The message names the document, and is the same through the helper."""
    said = cell.workspace / "said"
    for helper in library.NEVER, library.ALWAYS:
        Caller(cell, helper, "namespaces")("""
cell = ready()
code, message, layer = cell.refused(cell.add_text, "thing", text)
assert code == POLICY and "thing" in message, message
if os.path.exists("said"):
    assert open("said").read() == message
open("said", "w").write(message)
cell.add("fine", rule(WEB, port))
assert cell.connects(WEB, port) == "worked"
cell.end()
""", port=lab.echo(WEB), text=text)
    assert said.exists()


def test_removing_what_is_not_there(caller, lab):
    caller("""
cell = ready()
code, message, _ = cell.refused(cell.remove, "nothing")
assert "nothing" in message, message
cell.add("one", rule(WEB, port))
cell.remove("one")
cell.refused(cell.remove, "one")
cell.refused(cell.remove, "one", cut=1)
assert cell.connects(WEB, port) == "EACCES"
cell.end()
""", port=lab.echo(WEB))


@pytest.mark.parametrize("tier", ["namespaces", "landlock"])
def test_a_cell_without_a_relay(cell, lab, tier):
    for helper in library.NEVER, library.ALWAYS:
        Caller(cell, helper, tier)("""
cell = ready(network=0)
for function, arguments in (cell.add, ("one", rule(WEB, port))), (cell.remove, ("own",)):
    code, message, _ = cell.refused(function, *arguments)
    assert code == USAGE and "no relay" in message, message
assert cell.connects(WEB, port) != "worked"
cell.end()
""", port=lab.echo(WEB))


def test_a_cell_that_has_ended(caller, lab):
    caller("""
cell = ready()
os.close(cell.stdin)
deadline = time.monotonic() + 60
while cell.library.cellblock_dispatch(cell.cell, None) == 0:
    assert time.monotonic() < deadline
    select.select([cell.library.cellblock_fd(cell.cell)], [], [], 1)
code, message, _ = cell.refused(cell.add, "one", rule(WEB, 1))
assert code == USAGE and "has ended" in message, message
assert cell.wait()[0] == 0
""")


def test_what_tightens_stays_tight(caller, lab):
    caller("""
tight = {"cellblock": 1, "extends": [], "network": [rule(WEB, port), {"host": "api.example.com", "ports": port}]}
cell = ready(tight=tight)
cell.add("all", rule("0.0.0.0/0", [port, other]), {"host": "*.example.com", "ports": port}, {"loopback": port})
assert cell.connects(WEB, port) == "worked"
assert cell.connects(WEB, other) == "EACCES"
assert cell.connects(OTHER, other) == "EACCES"
assert cell.ask("addresses('api.example.com')") == str([WEB])
assert cell.ask("outcome(addresses, 'www.example.com')").startswith("EAI_")
assert cell.connects("127.0.0.1", port) != "worked"
cell.refused(cell.remove, "tight")                  # it is not one of those that grant
assert cell.connects(OTHER, other) == "EACCES"
cell.end()
""", port=both(lab), other=lab.echo(OTHER))


def both(lab):
    """One port at two addresses."""
    port = lab.echo("127.0.0.1")
    lab.echo(WEB, port)
    for name in "api.example.com", "www.example.com":
        lab.names.set(name, WEB)
    return port


# ---- Often, and while much goes on ----

def test_often(caller, lab):
    """Nothing piles up in the caller, and no change is lost."""
    caller("""
cell = ready()
def open_files():
    return len(os.listdir("/proc/self/fd"))
before = open_files()
for number in range(60):
    cell.add("rule", rule(WEB, port), {"loopback": port})
    assert cell.connects(WEB, port) == "worked", number
    cell.remove("rule", cut=number % 2)
    assert cell.connects(WEB, port) == "EACCES", number
assert open_files() == before
cell.end()
""", port=lab.echo(WEB))


def test_names_at_once(either, lab):
    """Also while the relay has much else to do: a question that comes after the change is answered by the new rules."""
    lab.names.set("api.example.com", WEB)
    lab.names.set("busy.example.com", WEB)
    either("""
program = inside.replace("for line in", '''
def busy():
    while True:
        outcome(addresses, "busy.example.com")
for _ in range(3):
    threading.Thread(target=busy, daemon=True).start()
for line in''', 1)
cell = ready(program=["/usr/bin/python3", "-c", program])
cell.add("busy", {"host": "busy.example.com", "ports": 1})
for number in range(40):
    cell.add("name", {"host": "api.example.com", "ports": port})
    got = cell.ask("outcome(addresses, 'api.example.com', socket.AF_INET)")
    assert got == "worked", (number, got)
    cell.remove("name")
    got = cell.ask("outcome(addresses, 'api.example.com', socket.AF_INET)")
    assert got.startswith("EAI_"), (number, got)
cell.end()
""", port=lab.echo(WEB))


def test_large_documents(caller, lab):
    """Longer than one message to the relay."""
    caller("""
cell = ready()
cell.add("large", *(rule(f"93.{a}.{b}.0/24", [port, a + 1, b + 1]) for a in range(180, 190) for b in range(200, 256)),
         rule(OTHER, other))
assert (cell.connects(WEB, port), cell.connects(OTHER, other)) == ("worked", "worked")
cell.remove("large")
assert (cell.connects(WEB, port), cell.connects(OTHER, other)) == ("EACCES", "EACCES")
cell.end()
""", port=lab.echo(WEB), other=lab.echo(OTHER))


def test_in_between(caller, lab):
    """With connections made all the time: each works or is refused, and what the changes do not touch always works."""
    caller("""
program = inside.replace("for line in", '''
def often():
    # The last two: the rule went after the program was told that it may, while the connection was made.
    results = {"worked": 0, "EACCES": 0, "ECONNRESET": 0, "ECONNREFUSED": 0}
    for number in range(400):
        results[outcome(connect, web, port)] += 1
        assert outcome(connect, also, other) == "worked", number
    return results
for line in''', 1)
program = f"web, port, also, other = {WEB!r}, {port}, {OTHER!r}, {other}\\n" + program
cell = ready(program=["/usr/bin/python3", "-c", program])
cell.add("fixed", rule(OTHER, other))
os.write(cell.stdin, b"often()\\n")
changes = 0
while b"\\n" not in cell.text:
    cell.add("web", rule(WEB, port))
    deadline = time.monotonic() + 0.02
    while time.monotonic() < deadline:
        for ready in select.select([cell.library.cellblock_fd(cell.cell), cell.stdout], [], [], 0.01)[0]:
            if ready == cell.stdout:
                cell.text += os.read(ready, 10000)
        cell.library.cellblock_dispatch(cell.cell, None)
    cell.remove("web", cut=changes % 2)
    changes += 1
results = eval(cell.line())
assert sum(results.values()) == 400 and changes > 2, (results, changes)
cell.end()
""", port=lab.echo(WEB), other=lab.echo(OTHER))
