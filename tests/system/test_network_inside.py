"""The cell's own loopback beside rules for the network, ports of the host's, published ones, and what a run leaves."""

import os
import pathlib
import signal
import socket
import threading

import pytest

from internet import (PRELUDE, PRIVATE, PYTHON, WEB, WEB6, cell, internet, lab, net,    # noqa: F401: fixtures
                      until)


# ---- Loopback ----

INSIDE = """
for address in "127.0.0.1", "::1":
    listener = socket.create_server((address, 0), family=family(address))
    client = connect(address, listener.getsockname()[1])
    server, peer = listener.accept()
    server.sendall(b"inside")
    print(client.recv(10), peer[0])
    one, two = (socket.socket(family(address), socket.SOCK_DGRAM) for _ in range(2))
    one.bind((address, 0))
    two.sendto(b"datagram", one.getsockname()[:2])
    print(one.recv(100))
print(outcome(connect, "127.0.0.1", 9))
print(outcome(connect, "::1", 9))
everywhere = socket.create_server(("0.0.0.0", 0))
print(outcome(connect, "0.0.0.0", everywhere.getsockname()[1]))
"""


@pytest.mark.parametrize("rules", [[], [f"{WEB}:80"], ["loopback:4567"], ["udp://1.1.1.1:53", "*.example.com:443"]],
                         ids=lambda rules: " ".join(rules) or "none")
def test_loopback_inside(cell, lab, rules):
    """Servers and clients in the cell, whatever else is allowed."""
    expected = ["b'inside' 127.0.0.1", "b'datagram'", "b'inside' ::1", "b'datagram'", *["ECONNREFUSED"] * 2, "worked"]
    assert cell.bare(INSIDE).split("\n")[:-1] == expected
    assert cell.says(INSIDE, *rules).split("\n") == expected


def test_the_cells_own_address(cell, lab):
    """What a program takes for its own address, as many find it, is one at which its servers can be reached."""
    code = f"""
for target, everywhere in ({WEB!r}, "0.0.0.0"), ({WEB6!r}, "::"):
    own = connect(target, 53, 5, socket.SOCK_DGRAM).getsockname()[0]
    listener = socket.create_server((everywhere, 0), family=family(target))
    print(outcome(connect, own, listener.getsockname()[1]))
    listener = socket.create_server((own, 0), family=family(target))
    client = connect(own, listener.getsockname()[1])
    listener.accept()[0].sendall(b"x")
    print(client.recv(1), outcome(connect, own, 9))
"""
    out = cell.says(code, f"udp://{WEB}:53", f"udp://[{WEB6}]:53")
    assert out.split("\n") == ["worked", "b'x' ECONNREFUSED"] * 2


def test_one_port_of_the_hosts_loopback(cell, lab):
    """And only that one."""
    port, other = lab.says("127.0.0.1", b"the host's"), lab.says("127.0.0.1", b"not this")
    code = f"""
print(everything(connect("127.0.0.1", {port})))
print(everything(socket.create_connection(("localhost", {port}))))
print(outcome(connect, "127.0.0.1", {other}))
"""
    result = cell.result(code, f"loopback:{port}")
    assert result.out == "b\"the host's\"\nb\"the host's\"\nECONNREFUSED", result.err


def test_the_hosts_loopback_over_ipv6_and_udp(cell, lab):
    six, datagrams = lab.says("::1", b"six"), lab.udp_echo("127.0.0.1")
    code = f"""
print(everything(connect("::1", {six})))
made = connect("127.0.0.1", {datagrams}, 20, socket.SOCK_DGRAM)
made.send(b"over udp")
print(made.recv(100))
"""
    assert cell.says(code, f"loopback:{six}", f"udp://loopback:{datagrams}") == "b'six'\nb'over udp'"


def test_the_hosts_loopback_is_closed_otherwise(cell, lab):
    """Also to rules that are as wide as can be."""
    port = lab.says("127.0.0.1", b"no")
    code = f"print(outcome(connect, '127.0.0.1', {port}), outcome(connect, '127.8.9.10', {port}))"
    assert cell.says(code, "0.0.0.0/0:1-65535", "[::/0]:1-65535") == "ECONNREFUSED ECONNREFUSED"


# ---- Published ports ----

SERVER = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = b"served " + self.path.encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        pass
class Server(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
Server.request_queue_size = 64
server = Server((sys.argv[1], int(sys.argv[2])), Handler)
print("ready", flush=True)
server.serve_forever()
"""


def request(lab, port, path, address="127.0.0.1"):
    with lab.connect(address, port) as made:
        made.sendall(b"GET %s HTTP/1.0\r\n\r\n" % path)
        got = b""
        while data := made.recv(1 << 16):
            got += data
    return got.split(b"\r\n\r\n")[1]


@pytest.fixture
def publish(cell):
    running = []

    def start(address, port, *flags):
        program = cell.start(PYTHON, "-c", PRELUDE + SERVER, address, str(port), flags=flags)
        running.append(program)
        assert program.stdout.readline() == b"ready\n", program.stderr.read()
        return program
    yield start
    for program in running:
        program.terminate()
        program.communicate(timeout=20)


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0", "::1"])
def test_publish(publish, lab, address):
    port = lab.closed("127.0.0.1")
    publish(address, port, "--publish", str(port))
    assert request(lab, port, b"/x") == b"served /x"


def test_publish_as_another_port(publish, lab):
    port = lab.closed("127.0.0.1")
    publish("127.0.0.1", 8080, "--publish", f"8080:{port}", *net(f"{WEB}:80"))
    assert request(lab, port, b"/y") == b"served /y"


def test_several_requests_at_once(publish, lab):
    port = lab.closed("127.0.0.1")
    publish("127.0.0.1", port, "--publish", str(port))
    got = {}

    def one(number):
        got[number] = request(lab, port, b"/%d" % number)
    threads = [threading.Thread(target=one, args=(number,)) for number in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert got == {number: b"served /%d" % number for number in range(40)}


def test_a_published_port_on_both_loopback_addresses(publish, lab):
    port = lab.closed("127.0.0.1")
    publish("127.0.0.1", port, "--publish", str(port))
    assert request(lab, port, b"/six", "::1") == b"served /six"


def test_much_through_a_published_port(cell, lab):
    port = lab.closed("127.0.0.1")
    program = cell.start(PYTHON, "-c", PRELUDE + f"""
listener = socket.create_server(("127.0.0.1", {port}))
print("ready", flush=True)
guest, _ = listener.accept()
guest.sendall(everything(guest))
""", flags=["--publish", str(port)])
    assert program.stdout.readline() == b"ready\n"
    data = os.urandom(1 << 20) * 16
    with lab.connect("127.0.0.1", port) as made:
        made.sendall(data)
        made.shutdown(socket.SHUT_WR)
        got = b"".join(iter(lambda: made.recv(1 << 20), b""))
    program.communicate(timeout=20)
    assert got == data and program.returncode == 0


def test_from_one_cell_to_another(publish, cell, lab):
    """By a published port of the one and a rule of the other."""
    port = lab.closed("127.0.0.1")
    publish("127.0.0.1", 8080, "--publish", f"8080:{port}")
    code = f"""
made = connect("127.0.0.1", {port})
made.sendall(b"GET /cell HTTP/1.0\\r\\n\\r\\n")
print(everything(made).decode().splitlines()[-1])
"""
    assert cell.says(code, f"loopback:{port}") == "served /cell"


def test_published_and_nobody_listens(cell, lab):
    """The host's client is turned away."""
    port = lab.closed("127.0.0.1")
    program = cell.start("sh", "-c", "echo ready; read line", flags=["--publish", str(port)])
    assert program.stdout.readline() == b"ready\n"
    with pytest.raises(OSError), lab.connect("127.0.0.1", port) as made:
        made.sendall(b"x")
        if made.recv(1) == b"":
            raise ConnectionResetError
    program.communicate(b"\n", timeout=20)
    assert program.returncode == 0


def test_a_published_port_is_on_loopback_only(publish, lab):
    port = lab.closed("127.0.0.1")
    publish("127.0.0.1", port, "--publish", str(port))
    for address in WEB, PRIVATE, WEB6:
        with pytest.raises(ConnectionRefusedError):
            lab.connect(address, port)


def test_a_port_of_the_host_that_is_taken(cell, lab):
    port = lab.says("127.0.0.1", b"x")
    ran = cell.run("echo", "never", flags=["--publish", str(port)])
    assert ran.status == 125 and ran.stdout == b""
    assert f"127.0.0.1:{port}" in ran.err and "in use" in ran.err.lower(), ran.err
    assert f"--publish {port}:" in ran.err, "the port of the cell comes first"


def test_the_port_is_free_again(publish, cell, lab):
    port = lab.closed("127.0.0.1")
    for _ in range(2):
        program = publish("127.0.0.1", port, "--publish", str(port))
        assert request(lab, port, b"/") == b"served /"
        program.terminate()
        program.communicate(timeout=20)
    with pytest.raises(ConnectionRefusedError):
        lab.connect("127.0.0.1", port)


# ---- What is left ----

def stat(entry):
    """Parent, session and name of a process."""
    text = (entry / "stat").read_text()
    rest = text[text.rindex(")") + 2:].split()
    return int(rest[1]), int(rest[3]), text[text.index("(") + 1:text.rindex(")")]


def family_of(pid):
    """The processes that come from this one, the head of a session of its own: {pid: name}."""
    found = {}
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            found[int(entry.name)] = stat(entry)
        except OSError:
            continue
    ours, grown = {pid} | {each for each in found if found[each][1] == pid}, True
    while grown:
        more = {each for each in found if found[each][0] in ours} - ours
        ours |= more
        grown = bool(more)
    return {each: found[each][2] for each in ours - {pid} if each in found}


def command_line(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def alive(pids):
    def state(pid):
        try:
            text = pathlib.Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return "gone"
        return text[text.rindex(")") + 2]
    return [pid for pid in pids if state(pid) not in ("gone", "Z")]


@pytest.mark.parametrize("how", ["ends", signal.SIGTERM, signal.SIGKILL], ids=["ends", "terminated", "killed"])
def test_nothing_is_left(cell, lab, how):
    """Also not of a relay that is in the middle of something."""
    closed = threading.Event()

    def server(connection):
        try:
            while connection.recv(1 << 16):
                pass
        except OSError:
            pass
        closed.set()
    port = lab.serve(WEB, server)
    program = cell.start(PYTHON, "-c", PRELUDE + f"""
made = connect({WEB!r}, {port})
made.sendall(b"x")
print("connected", flush=True)
input()
""", flags=net(f"{WEB}:{port}"), start_new_session=True)
    assert program.stdout.readline() == b"connected\n"
    ours = family_of(program.pid)
    assert len(ours) >= 3 and any(b"\0relay" in command_line(pid) for pid in ours), ours
    if how == "ends":
        program.communicate(b"\n", timeout=20)
    else:
        program.send_signal(how)
        program.communicate(timeout=20)
    until(lambda: not alive(ours), what="the end of every process")
    assert closed.wait(20)


def test_a_relay_that_falls_ends_the_run(cell, lab):
    """Nothing goes on without it, and nobody waits for it."""
    port = lab.says(WEB, b"x")
    program = cell.start(PYTHON, "-c", PRELUDE + f"""
connect({WEB!r}, {port}).recv(1)
print("connected", flush=True)
input()
while True:
    outcome(connect, {WEB!r}, {port}, 1)
""", flags=net(f"{WEB}:{port}"), start_new_session=True)
    assert program.stdout.readline() == b"connected\n"
    ours = family_of(program.pid)
    os.kill(next(pid for pid in ours if b"\0relay" in command_line(pid)), signal.SIGKILL)
    _, err = program.communicate(b"\n", timeout=20)
    assert program.returncode == 125 and b"relay" in err, err
    until(lambda: not alive(ours), what="the end of every process")


def test_a_run_that_can_not_start_leaves_nothing(cell, lab):
    program = cell.start("no-such-program", flags=net(f"{WEB}:80"), start_new_session=True)
    program.communicate(timeout=20)
    assert program.returncode == 127
    until(lambda: not alive(family_of(program.pid)), what="the end of every process")


def test_the_end_does_not_wait_for_an_idle_connection(cell, lab):
    """A server that never closes keeps nobody from ending."""
    stop = threading.Event()
    port = lab.serve(WEB, lambda connection: stop.wait(60))
    code = f"made = connect({WEB!r}, {port})\nprint('over', flush=True)\nos._exit(0)"
    result = cell.result(code, f"{WEB}:{port}")
    assert result.out == "over" and result.document["usage"]["wall_ms"] < 4000
    stop.set()
