"""Tier landlock with rules for the network: the sockets are the host's own, made and connected for the code.
Whatever would bring one of them to where no rule leads is refused, by the filters (layer "seccomp": with it goes the
supervisor's part too) and in part by Landlock as well."""

import dataclasses
import os
import socket
import struct

import pytest

import attacks
from attacks import Attack, prove, table
from conftest import need_landlock
from internet import OTHER, PRELUDE, WEB, WEB6, internet, lab, net     # noqa: F401: fixtures are used by their names
from landlock_lab import UnixServer, tier   # noqa: F401

MORE = attacks.PRELUDE + PRELUDE + """
import select, threading
def raw(address, port):
    # a socket address, as bytes
    if ":" in address:
        return struct.pack("<H", 10) + struct.pack(">H", port) + bytes(4) + socket.inet_pton(10, address) + bytes(4)
    return struct.pack("<H", socket.AF_INET) + struct.pack(">H", port) + socket.inet_aton(address) + bytes(8)
"""


@pytest.fixture
def places(lab):
    """The allowed server and another one at the same port."""
    port = lab.echo(WEB)
    lab.echo(OTHER, port)
    lab.echo(WEB6, port)
    udp = lab.udp_echo(OTHER)
    return {"web": WEB, "other": OTHER, "web6": WEB6, "port": port, "udp": udp}


def forge(attack, **changes):
    return dataclasses.replace(attack, code=MORE.replace(attacks.PRELUDE, "", 1) + attack.code, **changes)


def allowed(places):
    return (*net(f"{places['web']}:{places['port']}", f"[{places['web6']}]:{places['port']}"),)


BOTH = {"seccomp": "EACCES", "landlock": "EACCES"}
FILTER = {"seccomp": "EACCES"}

ELSEWHERE = [
    Attack("connecting", 'attempt(connect, "{other}", {port})', BOTH),
    Attack("connecting by another spelling", 'attempt(connect, "::ffff:{other}", {port})', BOTH),
    Attack("connecting, from a child", 'if os.fork() == 0:\n    attempt(connect, "{other}", {port})\n'
           '    sys.stdout.flush()\n    os._exit(0)\nos.wait()', BOTH),
    Attack("with data instead of connect()", 'made = socket.socket()\nattempt(made.sendto, b"x", 0x20000000, '
           '("{other}", {port}))', {"seccomp": "EPERM"}),
    Attack("with a message instead of connect()", 'made = socket.socket()\n'
           'attempt(made.sendmsg, [b"x"], [], 0x20000000, ("{other}", {port}))', {"seccomp": "EPERM"}),
    Attack("with several messages instead of connect()", """
made = socket.socket()
address, data = ctypes.create_string_buffer(raw("{other}", {port})), ctypes.create_string_buffer(b"x")
vector = struct.pack("QQ", ctypes.addressof(data), 1)
kept = ctypes.create_string_buffer(vector)
message = struct.pack("QIxxxxQQQQIxxxxIxxxx", ctypes.addressof(address), 16, ctypes.addressof(kept), 1, 0, 0, 0, 0)
attempt(call, "sendmmsg", made.fileno(), message, 1, 0x20000000)
""", {"seccomp": "EPERM"}),
    Attack("datagrams", 'attempt(lambda: socket.socket(type=socket.SOCK_DGRAM).sendto(b"x", ("{other}", {udp})))',
           FILTER),
    Attack("a connected socket for datagrams", 'attempt(lambda: connect("{other}", {udp}, kind=socket.SOCK_DGRAM))',
           FILTER),
    Attack("another protocol for the same", 'attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)'
           '.connect(("{other}", {port})))', {"seccomp": "EPROTONOSUPPORT"}),
    Attack("listening", 'attempt(lambda: socket.socket().listen())', FILTER),
    Attack("binding", 'attempt(lambda: socket.socket().bind(("127.0.0.1", 0)))', BOTH),
    Attack("binding for datagrams", 'attempt(lambda: socket.socket(type=socket.SOCK_DGRAM).bind(("127.0.0.1", 0)))',
           FILTER),
    # The kernel itself has source routes of IPv4 for the privileged only: shown with another option of packets.
    Attack("options of packets", 'made = socket.socket()\n'
           'route = bytes([7, 7, 4]) + socket.inet_aton("{other}") + b"\\0"\n'
           'attempt(made.setsockopt, socket.IPPROTO_IP, 4, route)', {"seccomp": "EPERM"}),
    Attack("options of packets of IPv6", 'made = socket.socket(socket.AF_INET6)\n'
           'route = bytes([0, 2, 4, 0, 0, 0, 0, 0]) + socket.inet_pton(10, "2606:2800:220:1::2")\n'
           'attempt(made.setsockopt, 41, 57, route)', {"seccomp": "EPERM"}),
    Attack("names of interfaces", 'made = socket.socket()\nattempt(fcntl.ioctl, made, 0x8912, bytes(16))',
           {"seccomp": "EPERM"}),
]

@pytest.mark.parametrize("attack", table(ELSEWHERE), ids=str)
def test_elsewhere(tier, places, attack):
    if "landlock" in attack.refused_by:
        need_landlock(4)
    prove(tier, forge(attack, flags=allowed(places)), places)


@pytest.mark.parametrize("option", [57, 5, 6], ids=["IPV6_RTHDR", "IPV6_2292RTHDR", "IPV6_2292PKTOPTIONS"])
def test_routing_headers(tier, places, option):
    """Packets of an allowed connection would go to whoever is named in a header. Which kinds a kernel takes depends on
    how it was built, so every way to set one is closed, also for what this kernel would not take, or would not mind."""
    target = socket.inet_pton(socket.AF_INET6, "2606:2800:220:1::2")
    values = [bytes([0, 2, 2, 1, 0, 0, 0, 0]) + target, bytes([0, 2, 4, 0, 0, 0, 0, 0]) + target]
    if option == 6:     # a list of them, and another thing that could be in it
        values = [struct.pack("Qii", 16 + len(value), 41, 57) + value for value in values]
        values.append(struct.pack("Qiii4x", 20, 41, 67, 0))
    code = MORE + f"""
for value in {values!r}:
    attempt(socket.socket(socket.AF_INET6).setsockopt, 41, {option}, value)
"""
    ran = tier.python(code, flags=allowed(places))
    assert ran.out.split() == ["EPERM"] * len(values), ran.err


def test_a_connection_is_not_aimed_again(tier, places, lab):
    """Neither by connecting once more, nor by taking the connection apart first."""
    code = MORE + f"""
web, other, port = {WEB!r}, {OTHER!r}, {places['port']}
made = connect(web, port)
attempt(made.connect, (other, port))
for length in 2, 16, 28, 128:
    attempt(call, "connect", made.fileno(), bytes(length), length)
made.sendall(b"still")
print(made.recv(10), made.getpeername() == (web, port))
fresh = socket.socket()
attempt(call, "connect", fresh.fileno(), bytes(16), 16)
attempt(fresh.connect, (other, port))
print(outcome(fresh.connect, (web, port)))
"""
    out = tier.python(code, flags=allowed(places)).out.split("\n")
    assert out == ["EACCES", *["EACCES"] * 4, "b'still' True", "EACCES", "EACCES", "worked", ""]


ODD = """
made = socket.socket()
fd = made.fileno()
for address, length in [(raw(other, port), 15), (raw(other, port), 8), (raw(other, port), 2), (b"\\2", 1), (b"", 0),
                        (raw(other, port) + bytes(200), 129), (raw(other, port) + bytes(200), 216),
                        (raw(other, port) + bytes(200), 128), (raw(other, port), -1), (raw("::1", 80), 27),
                        (struct.pack("<H", 1) + b"/x", 4), (struct.pack("<H", 40) + bytes(14), 16)]:
    buffer = ctypes.create_string_buffer(address, 256)
    attempt(call, "connect", fd, buffer, length)
attempt(call, "connect", fd, 0, 16)
attempt(call, "connect", fd, 1, 16)
attempt(call, "connect", -1, raw(other, port), 16)
attempt(call, "connect", 0, raw(other, port), 16)
attempt(call, "connect", 999, raw(other, port), 16)
left, right = socket.socketpair()
attempt(call, "connect", left.fileno(), raw(other, port), 16)
print(outcome(made.connect, (web, port)))
"""


def test_odd_addresses(tier, places, lab):
    """None of them is taken for something else, and the supervisor goes on."""
    before = f"web, other, port = {WEB!r}, {OTHER!r}, {places['port']}\n"
    result = tier.result(MORE + before + ODD, flags=allowed(places))
    out = result.out.split()
    assert out[-1] == "worked" and "worked" not in out[:-1], (out, result.err)


@pytest.mark.parametrize("length", [3, 109, 110, 111, 112, 120, 127, 128])
def test_long_names_of_unix_sockets(tier, tmp_path, length):
    """As long as the kernel's structure for any address, and longer than that of a unix socket."""
    server = UnixServer(tmp_path / "server", b"said")
    result = tier.result(MORE + f"""
made = socket.socket(socket.AF_UNIX)
address = ctypes.create_string_buffer(struct.pack("<H", 1) + b"/" + b"a" * 200, 256)
attempt(call, "connect", made.fileno(), address, {length})
print(outcome(made.connect, {str(server.path)!r}))
""", flags=["--socket", server.path])
    server.close()
    first, second = result.out.split()
    assert first != "worked" and second == "worked", (result.document, result.err)


FLIP = """
allowed, forbidden = raw(web, port), raw(other, port)
address = ctypes.create_string_buffer(allowed, 16)
over, flips = False, 0
def flip():
    global flips
    while not over:
        ctypes.memmove(address, forbidden, 16)
        ctypes.memmove(address, allowed, 16)
        flips += 1
sys.setswitchinterval(1e-5)
thread = threading.Thread(target=flip)
thread.start()
results = {}
for number in range(tries):
    made = socket.socket()
    result = libc.connect(made.fileno(), address, 16)
    name = errno.errorcode[ctypes.get_errno()] if result else "worked"
    results[name] = results.get(name, 0) + 1
    if not result and made.getpeername() != (web, port):
        results["reached"] = made.getpeername()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    made.close()
over = True
thread.join()
print(flips > tries, results)
"""


def test_a_thread_that_flips_the_address(tier, lab):
    """The address is read once, and what was read is what is connected to. Both are seen often enough for it to have
    been won against one that looks first and lets the call go on."""
    reached = []
    port = lab.serve(WEB, lambda connection: connection.recv(1))
    lab.serve(OTHER, lambda connection: reached.append(connection), port)
    result = tier.result(MORE + f"web, other, port, tries = {WEB!r}, {OTHER!r}, {port}, 4000\n" + FLIP,
                         f"{WEB}:{port}", timeout=120)
    assert result.out.startswith("True {"), (result.out, result.err)
    counts = eval(result.out[5:])
    assert set(counts) == {"worked", "EACCES"} and min(counts.values()) > 100, counts
    assert sum(counts.values()) == 4000 and reached == []


def test_flipping_wins_where_the_call_goes_on(tier, lab):
    """The same race against a build that looks at the address and then lets the kernel look once more."""
    reached = []
    port = lab.serve(WEB, lambda connection: connection.recv(1))
    lab.serve(OTHER, lambda connection: reached.append(connection), port)
    result = tier.result(MORE + f"web, other, port, tries = {WEB!r}, {OTHER!r}, {port}, 4000\n" + FLIP,
                         f"{WEB}:{port}", timeout=120, off=["broker", "landlock"])
    assert "reached" in result.out and reached, (result.out, result.err)


def test_a_descriptor_that_is_exchanged(tier, lab):
    """While connect() is answered another thread puts another socket at the same number: what was allowed is connected,
    and nothing else is."""
    port = lab.echo(WEB)
    code = MORE + f"""
first, second = socket.socket(), socket.socket()
number, over = os.dup(first.fileno()), False
def swap():
    while not over:
        os.dup2(first.fileno(), number)
        os.dup2(second.fileno(), number)
sys.setswitchinterval(1e-5)
thread = threading.Thread(target=swap)
thread.start()
seen = set()
for _ in range(500):
    result = libc.connect(number, raw({OTHER!r}, {port}), 16)
    seen.add(errno.errorcode[ctypes.get_errno()] if result else "worked")
over = True
thread.join()
print(seen)
"""
    assert tier.says(code, f"{WEB}:{port}") == "{'EACCES'}"


# ---- Unix sockets ----

@pytest.fixture
def unix(tmp_path):
    made = []

    def make(name, says=b"said"):
        (tmp_path / "run").mkdir(exist_ok=True)
        made.append(UnixServer(tmp_path / "run" / name, says))
        return made[-1]
    yield make
    for server in made:
        server.close()


DIAL = MORE + """
def dial(path):
    with socket.socket(socket.AF_UNIX) as made:
        made.settimeout(20)
        made.connect(path)
        return made.recv(100)
def tries(path):
    try:
        print(dial(path), flush=True)
    except OSError as error:
        print(errno.errorcode[error.errno], flush=True)
"""


def test_another_socket_at_that_path(tier, unix):
    """The rule is about the socket that was there when the cell started."""
    server = unix("server", b"first")
    run = tier.start("/usr/bin/python3", "-c", DIAL + f"for line in sys.stdin:\n    tries({str(server.path)!r})",
                     flags=["--socket", server.path])

    def ask():
        run.stdin.write(b"\n")
        run.stdin.flush()
        return run.stdout.readline()
    assert ask() == b"b'first'\n"
    os.rename(server.path, server.path.with_name("aside"))
    other = unix("server", b"second")
    assert ask() == b"EACCES\n" and other.heard == 0
    os.unlink(other.path)
    os.rename(server.path.with_name("aside"), server.path)
    assert ask() == b"b'first'\n"
    run.communicate()


def test_a_link_in_the_workspace_leads_nowhere_else(tier, unix, workspace):
    server, other = unix("server"), unix("other")
    result = tier.result(DIAL + f"""
os.symlink({str(other.path)!r}, "link")
tries(os.path.abspath("link"))
tries("link")
tries("/proc/self/cwd/link")
""", flags=["--socket", server.path])
    assert result.out.split() == ["EACCES"] * 3 and other.heard == 0


def test_flipping_the_path(tier, unix):
    server, other = unix("server"), unix("other")
    out = tier.says(DIAL + f"""
good = b"\\1\\0" + {str(server.path)!r}.encode() + b"\\0"
bad = b"\\1\\0" + {str(other.path)!r}.encode() + b"\\0\\0"
size = max(len(good), len(bad))
address, over = ctypes.create_string_buffer(good, size), False
def flip():
    while not over:
        ctypes.memmove(address, bad.ljust(size, b"\\0"), size)
        ctypes.memmove(address, good.ljust(size, b"\\0"), size)
sys.setswitchinterval(1e-5)
thread = threading.Thread(target=flip)
thread.start()
results = {{}}
for _ in range(3000):
    made = socket.socket(socket.AF_UNIX)
    failed = libc.connect(made.fileno(), address, size)
    name = errno.errorcode[ctypes.get_errno()] if failed else "worked"
    results[name] = results.get(name, 0) + 1
    made.close()
over = True
thread.join()
print(results)
""", flags=["--socket", server.path], timeout=120)
    results = eval(out)
    assert results.get("worked", 0) > 50 and results.get("EACCES", 0) > 50, results
    assert set(results) <= {"worked", "EACCES", "ENOENT", "EAGAIN"} and other.heard == 0


OTHERS = [
    Attack("another path", 'attempt(dial, "{unix}")', FILTER),
    Attack("for datagrams", 'attempt(lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)'
           '.sendto(b"x", "{datagram}"))', FILTER),
    Attack("a service of its own", 'attempt(lambda: socket.socket(socket.AF_UNIX).bind("own%d" % os.getpid()))',
           FILTER),
]


@pytest.mark.parametrize("attack", OTHERS, ids=str)
def test_other_unix_sockets(tier, unix, tmp_path, attack):
    granted, other = unix("granted"), unix("other")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagram:
        path = tmp_path / "run" / "datagram"
        datagram.bind(str(path))
        datagram.setblocking(False)
        code = DIAL.replace(attacks.PRELUDE, "", 1) + attack.code
        attack = dataclasses.replace(attack, code=code, flags=("--socket", str(granted.path)), also_off=("landlock",))
        prove(tier, attack, {"unix": other.path, "datagram": path})


def test_one_of_a_pair_goes_nowhere(tier, unix):
    granted, other = unix("granted"), unix("other")
    result = tier.result(DIAL + f"""
for path in {str(granted.path)!r}, {str(other.path)!r}:
    for kind in socket.SOCK_STREAM, socket.SOCK_SEQPACKET:
        attempt(socket.socketpair(socket.AF_UNIX, kind)[0].connect, path)
""", flags=["--socket", granted.path])
    assert "worked" not in result.out and (granted.heard, other.heard) == (0, 0)


def test_abstract_sockets(tier, unix):
    """They have no path: no rule can be about one."""
    granted = unix("granted")
    name = f"\0cellblock-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as service:
        service.bind(name)
        service.listen()
        result = tier.result(DIAL + f"tries({name!r})", flags=["--socket", granted.path])
        assert result.out == "EACCES"
