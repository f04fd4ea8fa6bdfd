"""Connections and datagrams out of a cell: what the rules allow works as it does without one, and nothing else does."""

import hashlib
import os
import socket
import struct
import threading

import pytest

from internet import (NOWHERE, OTHER, OTHER6, PRIVATE, PRELUDE, PYTHON, THIRD, UNREACHABLE, UNREACHABLE6, WEB, WEB6,
                      cell, internet, lab, net)    # noqa: F401: fixtures are used by their names

RESET = struct.pack("ii", 1, 0)


def reset(connection):
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    connection.close()


def wrap(address):
    return f"[{address}]" if ":" in address else address


# ---- What is allowed ----

@pytest.mark.parametrize("rule, reached", [
    ("api.example.com:PORT", "api.example.com"),
    ("*.example.com:PORT", "api.example.com"),
    ("*.example.com:PORT", "a.b.example.com"),
    (f"{WEB}:PORT", WEB),
    ("93.184.216.0/24:PORT", WEB),
    ("0.0.0.0/0:PORT", WEB),
    (f"[{WEB6}]:PORT", WEB6),
    ("[2606:2800::/32]:PORT", WEB6),
    ("only6.example.com:PORT", "only6.example.com"),
    (f"{WEB}:1,PORT", WEB),
    (f"{WEB}:1024-65535", WEB),
    (f"{PRIVATE}:PORT", PRIVATE),
    ("10.0.0.0/8:PORT", PRIVATE),
], ids=lambda value: value)
def test_allowed(cell, lab, rule, reached):
    for name in "api.example.com", "a.b.example.com":
        lab.names.set(name, WEB)
    lab.names.set("only6.example.com", WEB6)
    address = WEB6 if "6" in reached and reached.startswith("only") else reached if reached[0].isdigit() else WEB
    port = lab.says(address, b"from outside")
    code = f"print(everything(socket.create_connection(({reached!r}, {port}), 20)).decode())"
    result = cell.result(code, rule.replace("PORT", str(port)))
    assert (result.out, result.denials) == ("from outside", []), result.err


def test_what_the_program_sees_of_the_connection(cell, lab):
    """The peer's address is the one that was asked for."""
    port, port6 = lab.says(WEB, b"x"), lab.says(WEB6, b"x")
    code = f"""
for address, port in ({WEB!r}, {port}), ({WEB6!r}, {port6}):
    made = connect(address, port)
    print(made.getpeername()[:2] == (address, port), made.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
mapped = socket.socket(socket.AF_INET6)
mapped.connect(("::ffff:{WEB}", {port}))
print(mapped.getpeername()[0], mapped.recv(1))
"""
    out = cell.says(code, f"{WEB}:{port}", f"[{WEB6}]:{port6}")
    assert out == f"True 0\nTrue 0\n::ffff:{WEB} b'x'" and out + "\n" == cell.bare(code)


def test_both_families_of_one_name(cell, lab):
    """A program that tries the addresses of a name in turn gets to the one that works."""
    lab.names.set("api.example.com", WEB, WEB6)
    port = lab.says(WEB, b"four")
    code = f'print(socket.create_connection(("api.example.com", {port}), 20).recv(10))'
    assert cell.says(code, f"api.example.com:{port}") == "b'four'"


# ---- What is refused ----

REFUSED = """
def blocking():
    socket.socket(family(address)).connect((address, port))
def asked():
    print(errno.errorcode[socket.socket(family(address)).connect_ex((address, port))])
def later():
    made = socket.socket(family(address))
    made.setblocking(False)
    print(errno.errorcode[made.connect_ex((address, port))])
print(outcome(blocking))
asked()
later()
"""


@pytest.mark.parametrize("address, port", [(OTHER, 80), (WEB, 81), (OTHER6, 80), (PRIVATE, 80)])
def test_refused(cell, lab, address, port):
    """Whatever is outside is not asked, even if it would answer."""
    try:
        lab.echo(address, port)
    except OSError:
        pass        # from the test before
    result = cell.result(f"address, port = {address!r}, {port}\n" + REFUSED, f"{WEB}:80")
    assert result.out.split() == ["EACCES"] * 3
    assert result.denials == [{"code": "network.connect", "object": f"{wrap(address)}:{port}", "layer": "relay",
                               "count": 3, "reason": result.denials[0]["reason"], "rule": None, "final": False,
                               "suggest": {"cidr": address, "ports": [port]}}]


def test_the_suggestion_is_by_name_where_a_name_led_there(cell, lab):
    lab.names.set("api.example.com", WEB)
    result = cell.result(f"addresses('api.example.com')\nprint(outcome(connect, {WEB!r}, 81))", "api.example.com:80")
    assert result.out == "EACCES" and result.denials[0]["suggest"] == {"host": "api.example.com", "ports": [81]}


def test_the_suggestion_works(cell, lab):
    port = lab.says(OTHER, b"x")
    code = f"print(outcome(connect, {OTHER!r}, {port}))"
    refused = cell.result(code, f"{WEB}:80")
    suggest = refused.denials[0]["suggest"]
    assert refused.out == "EACCES"
    assert cell.says(code, f"{WEB}:80", f"{suggest['cidr']}:{suggest['ports'][0]}") == "worked"


def test_a_name_is_needed_for_a_rule_by_name(cell, lab):
    """The address alone is not what the rule says."""
    lab.names.set("api.example.com", WEB)
    port = lab.says(WEB, b"x")
    code = f"""
print(outcome(connect, {WEB!r}, {port}))
print(addresses("api.example.com"), outcome(connect, {WEB!r}, {port}))
"""
    assert cell.says(code, f"api.example.com:{port}").split("\n") == ["EACCES", f"['{WEB}'] worked"]


def test_without_rules_there_is_no_way_out(cell, lab):
    port = lab.says(WEB, b"x")
    result = cell.result(f"print(outcome(connect, {WEB!r}, {port}))\nprint(outcome(addresses, 'api.example.com'))")
    assert result.out.split()[0] != "worked" and result.out.split()[1].startswith("EAI_")
    assert lab.names.asked == []


def test_an_empty_list_means_nothing(cell, lab, workspace):
    policy = workspace.parent / "p.jsonc"
    policy.write_text('{"cellblock": 1, "network": []}')
    port = lab.says(WEB, b"x")
    result = cell.result(f"print(outcome(connect, {WEB!r}, {port}))", flags=["--policy", policy])
    assert result.out != "worked"


def test_a_policy_that_tightens(cell, lab, workspace):
    policy = workspace.parent / "p.jsonc"
    policy.write_text('{"cellblock": 1, "network": [{"cidr": "%s", "ports": ["1-65535"]}]}' % WEB)
    here, there = lab.says(WEB, b"x"), lab.says(OTHER, b"x")
    code = f"print(outcome(connect, {WEB!r}, {here}), outcome(connect, {OTHER!r}, {there}))"
    result = cell.result(code, "93.184.216.0/24:1-65535", flags=["--tighten", policy])
    assert result.out == "worked EACCES" and "polic" in result.denials[0]["reason"]


# ---- Errors of the outside ----

ERRORS = """
for address, port in TARGETS:
    print(outcome(connect, address, port))
    made = socket.socket(family(address))
    made.setblocking(False)
    first = made.connect_ex((address, port))
    if first == errno.EINPROGRESS:
        print(select.select([], [made], [], 20)[1] == [made])
        first = made.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    print(errno.errorcode[first])
"""


@pytest.mark.parametrize("which", ["refused", "refused6", "unreachable", "unreachable6", "nowhere"])
def test_the_real_error_arrives(cell, lab, which):
    address = {"refused": WEB, "refused6": WEB6, "unreachable": UNREACHABLE, "unreachable6": UNREACHABLE6,
               "nowhere": NOWHERE}[which]
    expected = {"r": "ECONNREFUSED", "u": "EHOSTUNREACH", "n": "ENETUNREACH"}[which[0]]
    port = lab.closed(address) if which[0] == "r" else 80
    code = ERRORS.replace("TARGETS", repr([(address, port)]))
    result = cell.result(code, f"{wrap(address)}:{port}")
    bare = cell.bare(code).split()
    assert bare[0] == bare[-1] == expected
    assert result.out.split()[0] == result.out.split()[-1] == expected and "False" not in result.out
    assert result.denials == []


def test_a_host_that_does_not_answer(cell, lab):
    """The connection stays pending, and the program's own patience ends it."""
    port, kept = lab.full(WEB)
    code = f"""
made = socket.socket()
made.setblocking(False)
print(errno.errorcode[made.connect_ex(({WEB!r}, {port}))], select.select([], [made], [], 0.7)[1])
print(made.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
print(outcome(connect, {WEB!r}, {port}, 0.7))
"""
    assert cell.says(code, f"{WEB}:{port}").split("\n") == ["EINPROGRESS []", "0", "timeout"]
    del kept


def test_epoll_registered_before_connect(cell, lab):
    port = lab.says(WEB, b"hello")
    code = f"""
poll = select.epoll()
made = socket.socket()
made.setblocking(False)
poll.register(made, select.EPOLLIN | select.EPOLLOUT | select.EPOLLET)
poll.poll(0)
print(made.connect_ex(({WEB!r}, {port})) in (0, errno.EINPROGRESS))
seen = 0
while not seen & select.EPOLLIN:
    seen |= dict(poll.poll(20))[made.fileno()]
print(bool(seen & select.EPOLLOUT), made.recv(10))
refused = socket.socket()
refused.setblocking(False)
poll.register(refused, select.EPOLLOUT | select.EPOLLET)
poll.poll(0)
refused.connect_ex(({WEB!r}, {lab.closed(WEB)}))
while refused.fileno() not in (seen := dict(poll.poll(20))):
    pass
print(bool(seen[refused.fileno()] & select.EPOLLERR), errno.errorcode[refused.getsockopt(1, socket.SO_ERROR)])
"""
    expected = "True\nTrue b'hello'\nTrue ECONNREFUSED"
    assert cell.bare(code).strip() == expected
    assert cell.says(code, f"{WEB}:1-65535") == expected


def test_a_server_that_is_only_there_later(cell, lab):
    """Nothing is remembered of a failure."""
    port = lab.closed(WEB)
    program = cell.start(PYTHON, "-c", PRELUDE + f"""
print(outcome(connect, {WEB!r}, {port}), flush=True)
input()
print(outcome(connect, {WEB!r}, {port}), flush=True)
""", flags=net(f"{WEB}:{port}"))
    assert program.stdout.readline() == b"ECONNREFUSED\n"
    lab.says(WEB, b"x", port)
    out, err = program.communicate(b"\n", timeout=30)
    assert (out, program.returncode) == (b"worked\n", 0), err


# ---- Streams ----

def test_half_close_by_the_program(cell, lab):
    """The server hears the end, and can still answer."""
    def server(connection):
        got = b""
        while data := connection.recv(1 << 16):
            got += data
        connection.sendall(hashlib.sha256(got).hexdigest().encode())
    port = lab.serve(WEB, server)
    code = f"""
import hashlib
made = connect({WEB!r}, {port})
data = os.urandom(300000)
made.sendall(data)
made.shutdown(socket.SHUT_WR)
print(everything(made).decode() == hashlib.sha256(data).hexdigest())
"""
    assert cell.says(code, f"{WEB}:{port}") == "True"


def test_half_close_by_the_server(cell, lab):
    heard = []
    done = threading.Event()

    def server(connection):
        connection.sendall(b"mine")
        connection.shutdown(socket.SHUT_WR)
        while data := connection.recv(1 << 16):
            heard.append(data)
        done.set()
    port = lab.serve(WEB, server)
    code = f"""
made = connect({WEB!r}, {port})
print(everything(made))
for _ in range(10):
    made.sendall(b"x" * 10000)
made.close()
"""
    assert cell.says(code, f"{WEB}:{port}") == "b'mine'"
    assert done.wait(20) and sum(map(len, heard)) == 100000


def test_a_reset_is_a_reset(cell, lab):
    """In both directions."""
    seen = []
    done = threading.Event()

    def server(connection):
        if connection.recv(1) == b"r":
            reset(connection)
            return
        connection.sendall(b"k")
        try:
            seen.append(connection.recv(1))
        except ConnectionResetError:
            seen.append("reset")
        done.set()
    port = lab.serve(WEB, server)
    code = f"""
made = connect({WEB!r}, {port})
made.sendall(b"r")
print(outcome(made.recv, 1))
made = connect({WEB!r}, {port})
made.sendall(b"s")
made.recv(1)
made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
made.close()
"""
    assert cell.says(code, f"{WEB}:{port}") == "ECONNRESET"
    assert done.wait(20) and seen == ["reset"]


LARGE = """
import hashlib, random
made = connect(ADDRESS, PORT, 60)
block = random.Random(1).randbytes(1 << 20)
sent, got = hashlib.sha256(), hashlib.sha256()
def send():
    for _ in range(64):
        made.sendall(block)
        sent.update(block)
    made.shutdown(socket.SHUT_WR)
sender = threading.Thread(target=send)
sender.start()
count = 0
while data := made.recv(1 << 18):
    got.update(data)
    count += len(data)
sender.join()
print(count, sent.digest() == got.digest())
"""


@pytest.mark.parametrize("address", [WEB, WEB6])
def test_a_large_transfer_both_ways(cell, lab, address):
    port = lab.echo(address)
    code = LARGE.replace("ADDRESS", repr(address)).replace("PORT", str(port))
    result = cell.result(code, f"{wrap(address)}:{port}", timeout=120)
    assert result.out == f"{64 << 20} True", result.err
    assert result.network == {"connections": 1, "sent": 64 << 20, "received": 64 << 20}


@pytest.mark.slow
def test_what_is_not_read_is_not_sent(cell, lab):
    """A reader that does not read stops the writer: nothing piles up in between."""
    stop = threading.Event()

    def server(connection):
        stop.wait(60)
    port = lab.serve(WEB, server)
    code = f"""
made = socket.create_connection(({WEB!r}, {port}))
made.setblocking(False)
count = quiet = 0
while quiet < 5 and count < 200 << 20:
    if not select.select([], [made], [], 0.2)[1]:
        quiet += 1
        continue
    quiet = 0
    count += made.send(bytes(1 << 16))
print(count < 64 << 20)
"""
    assert cell.says(code, f"{WEB}:{port}") == "True"
    stop.set()


def test_a_slow_reader_gets_everything(cell, lab):
    data = os.urandom(1 << 20) * 12

    def server(connection):
        connection.sendall(data)
    port = lab.serve(WEB, server)
    code = f"""
import hashlib
made = socket.socket()
made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
made.connect(({WEB!r}, {port}))
got = hashlib.sha256()
while part := made.recv(3000):
    got.update(part)
print(got.hexdigest())
"""
    assert cell.says(code, f"{WEB}:{port}", timeout=120) == hashlib.sha256(data).hexdigest()


def test_a_server_that_dies_in_the_middle(cell, lab):
    """What it had sent arrives; then its reset, or its end."""
    def server(connection):
        if connection.recv(1) == b"e":
            connection.sendall(b"x" * 100000)
            return
        connection.sendall(b"x" * 100000)
        connection.recv(1)
        reset(connection)
    port = lab.serve(WEB, server)
    code = f"""
made = connect({WEB!r}, {port})
made.sendall(b"e")
print(len(everything(made)))
made = connect({WEB!r}, {port})
made.sendall(b"r")
count = 0
while count < 100000:
    count += len(made.recv(100000))
made.sendall(b"x")
print(count, outcome(made.recv, 1))
"""
    assert cell.says(code, f"{WEB}:{port}") == "100000\n100000 ECONNRESET"


def test_what_is_written_last_arrives(cell, lab):
    """The program exits at once; the outside still gets all of it."""
    heard = []
    done = threading.Event()

    def server(connection):
        while data := connection.recv(1 << 16):
            heard.append(len(data))
        done.set()
    port = lab.serve(WEB, server)
    code = f"""
made = connect({WEB!r}, {port})
made.sendall(bytes(2 << 20))
made.close()
os._exit(0)
"""
    cell.says(code, f"{WEB}:{port}")
    assert done.wait(20) and sum(heard) == 2 << 20


def test_small_writes(cell, lab):
    """Many small writes keep their order, and a request and its answer do not wait for one another."""
    port = lab.echo(WEB)
    code = f"""
made = connect({WEB!r}, {port})
start = time.monotonic()
for i in range(200):
    made.sendall(b"%d" % i)
    got = b""
    while len(got) < len(b"%d" % i):
        got += made.recv(100)
    assert got == b"%d" % i
print(time.monotonic() - start < 8)     # 40 ms for each, were they held back
"""
    assert cell.says(code, f"{WEB}:{port}") == "True"


def test_many_connections_at_once(cell, lab):
    port = lab.echo(WEB)
    code = f"""
made = [connect({WEB!r}, {port}) for _ in range(200)]
for i, one in enumerate(made):
    one.sendall(b"%d" % i)
print(all(one.recv(10) == b"%d" % i for i, one in enumerate(made)))
"""
    result = cell.result(code, f"{WEB}:{port}")
    assert result.out == "True" and result.network["connections"] == 200, result.err


# ---- Limits ----

def test_a_byte_cap(cell, lab):
    port = lab.echo(WEB)
    code = f"""
made = connect({WEB!r}, {port})
print("begun", flush=True)
while True:
    made.sendall(bytes(10000))
    made.recv(10000)
"""
    result = cell.result(code, f"{WEB}:{port}", flags=["--network-bytes", "1M"])
    assert (result.end, result.document["limit"], result.out) == ("network", "network_bytes", "begun")


def test_the_result_of_a_capped_run_has_the_counts(cell, lab):
    port = lab.echo(WEB)
    code = f"made = connect({WEB!r}, {port})\nwhile True:\n    made.sendall(bytes(10000))\n    made.recv(10000)"
    result = cell.result(code, f"{WEB}:{port}", flags=["--network-bytes", "1M"])
    assert result.network["connections"] == 1
    assert (1 << 20) <= result.network["sent"] + result.network["received"] < (2 << 20)


def test_a_byte_cap_counts_datagrams(cell, lab):
    port = lab.udp_echo(WEB)
    code = f"""
made = socket.socket(type=socket.SOCK_DGRAM)
while True:
    made.sendto(bytes(10000), ({WEB!r}, {port}))
    made.settimeout(1)
    outcome(made.recv, 20000)
"""
    result = cell.result(code, f"udp://{WEB}:{port}", flags=["--network-bytes", "1M"])
    assert (result.end, result.document["limit"]) == ("network", "network_bytes")


def test_below_the_cap_nothing_is_lost(cell, lab):
    port = lab.echo(WEB)
    code = f"""
made = connect({WEB!r}, {port})
made.sendall(bytes(500000))
made.shutdown(socket.SHUT_WR)
print(len(everything(made)))
"""
    result = cell.result(code, f"{WEB}:{port}", flags=["--network-bytes", "1000000"])
    assert (result.end, result.out) == ("exited", "500000")


def test_a_limit_of_connections(cell, lab):
    """The one too many waits for room, as for a host that is busy."""
    port = lab.echo(WEB)
    code = f"""
made = [connect({WEB!r}, {port}) for _ in range(3)]
print(outcome(connect, {WEB!r}, {port}, 1.5))
made.pop().close()
print(outcome(connect, {WEB!r}, {port}, 20))
"""
    assert cell.says(code, f"{WEB}:{port}", flags=["--connections", "3"]) == "timeout\nworked"


# ---- Datagrams ----

@pytest.mark.parametrize("address", [WEB, WEB6])
def test_datagrams(cell, lab, address):
    port = lab.udp_echo(address, front=b"re:")
    code = f"""
made = socket.socket(family({address!r}), socket.SOCK_DGRAM)
made.settimeout(20)
for size in 0, 1, 1400, 9000, 60000:
    data = os.urandom(size)
    made.sendto(data, ({address!r}, {port}))
    got, sender = made.recvfrom(65536)
    print(size, got == b"re:" + data, sender[:2] == ({address!r}, {port}))
made.connect(({address!r}, {port}))
made.send(b"connected")
print(made.recv(100))
"""
    result = cell.result(code, f"udp://{wrap(address)}:{port}")
    expected = "".join(f"{size} True True\n" for size in (0, 1, 1400, 9000, 60000)) + "b're:connected'"
    assert (result.out, result.denials) == (expected, []), result.err
    assert result.network["connections"] == 1 and result.network["sent"] == 70401 + 9


def test_replies_come_from_the_address_that_was_asked(cell, lab):
    """One socket, two peers, each with its own answers."""
    one, two = lab.udp_echo(WEB, front=b"one "), lab.udp_echo(OTHER, front=b"two ")
    code = f"""
made = socket.socket(type=socket.SOCK_DGRAM)
made.settimeout(20)
for i in range(10):
    made.sendto(b"%d" % i, ({WEB!r}, {one}))
    made.sendto(b"%d" % i, ({OTHER!r}, {two}))
got = sorted(made.recvfrom(100) for _ in range(20))
print(all((sender == ({WEB!r}, {one})) == data.startswith(b"one") for data, sender in got), len(set(got)))
"""
    assert cell.says(code, f"udp://{WEB}:{one}", f"udp://{OTHER}:{two}") == "True 20"


def test_a_closed_port_outside_is_heard_of(cell, lab):
    port = lab.closed(WEB, socket.SOCK_DGRAM)
    code = f"""
made = connect({WEB!r}, {port}, 20, socket.SOCK_DGRAM)
made.send(b"x")
print(outcome(made.recv, 10))
"""
    assert cell.bare(code).strip() == "ECONNREFUSED"
    assert cell.says(code, f"udp://{WEB}:{port}") == "ECONNREFUSED"


def test_datagrams_of_a_socket_for_both_families(cell, lab):
    port = lab.udp_echo(WEB)
    code = f"""
made = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
made.settimeout(20)
made.sendto(b"hello", ("::ffff:{WEB}", {port}))
data, sender = made.recvfrom(100)
print(data, sender[0])
"""
    assert cell.says(code, f"udp://{WEB}:{port}") == f"b'hello' ::ffff:{WEB}" == cell.bare(code).strip()


def test_a_host_that_can_not_be_reached_by_datagrams(cell, lab):
    code = f"""
def talk():
    made = connect({UNREACHABLE!r}, 9, 20, socket.SOCK_DGRAM)
    made.send(b"x")
    made.recv(1)
print(outcome(talk))
"""
    assert cell.bare(code).strip() == "EHOSTUNREACH" == cell.says(code, f"udp://{UNREACHABLE}:9")


def test_refused_datagrams(cell, lab):
    """By sendto the program is told; however it sends, nothing leaves."""
    own = lab.make(socket.SOCK_DGRAM, OTHER)
    port = own.getsockname()[1]
    witness = lab.udp_echo(WEB)
    code = f"""
made = socket.socket(type=socket.SOCK_DGRAM)
print(outcome(made.sendto, b"sendto", ({OTHER!r}, {port})))
outcome(made.sendmsg, [b"sendmsg"], [], 0, ({OTHER!r}, {port}))
class Header(ctypes.Structure):
    _fields_ = [("name", ctypes.c_void_p), ("length", ctypes.c_uint32), ("parts", ctypes.c_void_p),
                ("count", ctypes.c_size_t), ("control", ctypes.c_void_p), ("size", ctypes.c_size_t),
                ("flags", ctypes.c_int), ("sent", ctypes.c_uint)]
where = ctypes.create_string_buffer(struct.pack("=HH4s8x", 2, socket.htons({port}), socket.inet_aton({OTHER!r})))
text = ctypes.create_string_buffer(b"sendmmsg")
part = ctypes.create_string_buffer(struct.pack("QQ", ctypes.addressof(text), 8))
many = (Header * 2)(*(Header(ctypes.addressof(where), 16, ctypes.addressof(part), 1) for _ in range(2)))
libc.sendmmsg(made.fileno(), many, 2, 0)
print(outcome(connect, {OTHER!r}, {port}, 5, socket.SOCK_DGRAM))
# What is behind those has arrived, so they have had their chance.
last = connect({WEB!r}, {witness}, 20, socket.SOCK_DGRAM)
last.send(b"last")
print(last.recv(10))
"""
    result = cell.result(code, f"udp://{WEB}:{witness}")
    assert result.out == "EACCES\nEACCES\nb'last'", result.err
    own.setblocking(False)
    with pytest.raises(BlockingIOError):
        own.recv(100)
    assert result.refused() == [("network.send", f"udp://{OTHER}:{port}"), ("network.connect", f"udp://{OTHER}:{port}")]
    assert result.denials[0]["suggest"] == {"cidr": OTHER, "ports": [port], "protocol": "udp"}


def test_a_rule_is_for_one_protocol(cell, lab):
    tcp, udp = lab.says(WEB, b"x"), lab.udp_echo(WEB)
    code = f"""
print(outcome(connect, {WEB!r}, {udp}))
made = socket.socket(type=socket.SOCK_DGRAM)
print(outcome(made.sendto, b"x", ({WEB!r}, {tcp})))
"""
    assert cell.says(code, f"{WEB}:{tcp}", f"udp://{WEB}:{udp}") == "EACCES\nEACCES"


# ---- Counts ----

def test_counts(cell, lab):
    port = lab.echo(WEB)
    code = f"""
for _ in range(3):
    made = connect({WEB!r}, {port})
    made.sendall(bytes(1000))
    made.shutdown(socket.SHUT_WR)
    everything(made)
print(outcome(connect, {THIRD!r}, 1))
"""
    result = cell.result(code, f"{WEB}:{port}")
    assert result.network == {"connections": 3, "sent": 3000, "received": 3000} and result.out == "EACCES"


def test_a_plain_run_prints_nothing_of_its_own(cell, lab):
    """Nothing is added to the program's own output."""
    ran = cell.python(PRELUDE + f"print(outcome(connect, {OTHER!r}, 80))", flags=net(f"{WEB}:80"))
    assert (ran.status, ran.out, ran.err) == (0, "EACCES\n", "")


def test_the_report_tells_of_the_way_out(cell, lab):
    enforced = cell.result("pass", f"{WEB}:80").document["report"]["enforced"]
    assert enforced["network"] != "loopback only"
    assert cell.result("pass").document["report"]["enforced"]["network"] == "loopback only"


def test_subprocesses_and_other_programs_obey_too(cell, lab):
    """Whatever language: a static binary has no choice either. bash's own connections stand for it."""
    port = lab.says(WEB, b"said\n")
    script = (f"exec 3<>/dev/tcp/{WEB}/{port}; cat <&3; exec 3<&-; "
              f"(exec 3<>/dev/tcp/{OTHER}/{port}) 2>/dev/null || echo refused")
    ran = cell.run("bash", "-c", script, flags=net(f"{WEB}:{port}"))
    assert ran.out == "said\nrefused\n"
