"""Rules for the network in tier landlock: what they allow works as without a cell, what they do not allow is refused
and noted, and what this tier can't do is said beforehand."""

import socket
import struct
import subprocess
import threading

import pytest

from internet import (NOWHERE, OTHER, OTHER6, PRELUDE, PRIVATE, PYTHON, UNREACHABLE, WEB, WEB6, internet, lab, net,
                      question, until)      # noqa: F401: fixtures are used by their names
from landlock_lab import UnixServer, tier   # noqa: F401


# ---- What is allowed ----

@pytest.mark.parametrize("rule, reached", [
    ("api.example.com:PORT", "api.example.com"),
    ("*.example.com:PORT", "api.example.com"),
    (f"{WEB}:PORT", WEB),
    ("93.184.216.0/24:PORT", WEB),
    ("0.0.0.0/0:PORT", WEB),
    (f"[{WEB6}]:PORT", WEB6),
    ("[2606:2800::/32]:PORT", WEB6),
    ("six.example.com:PORT", "six.example.com"),
    (f"{PRIVATE}:PORT", PRIVATE),
    ("loopback:PORT", "127.0.0.1"),
    ("loopback:PORT", "localhost"),
], ids=str)
def test_allowed(tier, lab, rule, reached):
    lab.names.set("api.example.com", WEB)
    lab.names.set("six.example.com", WEB6)
    address = {"api.example.com": WEB, "six.example.com": WEB6, "localhost": "127.0.0.1"}.get(reached, reached)
    port = lab.says(address, b"from outside")
    code = f"print(everything(socket.create_connection(({reached!r}, {port}), 20)).decode())"
    result = tier.result(code, rule.replace("PORT", str(port)))
    assert (result.out, result.denials) == ("from outside", []), result.err


def test_names_are_asked_for_by_tcp(tier, lab):
    """Programs are told so, unless the caller has an opinion of its own."""
    lab.names.set("api.example.com", WEB, WEB6)
    code = 'print(os.environ["RES_OPTIONS"], *addresses("api.example.com"))'
    assert tier.says(code, "api.example.com:80") == f"use-vc {WEB6} {WEB}"
    own = tier.says(code, "api.example.com:80", flags=["--env", "RES_OPTIONS=use-vc ndots:2"])
    assert own == f"use-vc ndots:2 {WEB6} {WEB}"
    assert "RES_OPTIONS" not in tier.says("print(*os.environ)")


def test_without_a_cell_it_looks_the_same(tier, lab):
    port = lab.says(WEB, b"x")
    code = f"""
made = socket.socket()
print(made.connect(({WEB!r}, {port})), made.getpeername(), made.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
print(made.recv(10), made.recv(10), made.gettimeout())
print(os.get_blocking(made.fileno()), os.get_inheritable(made.fileno()))
mapped = socket.socket(socket.AF_INET6)
mapped.connect(("::ffff:{WEB}", {port}))
print(mapped.getpeername(), mapped.recv(10))
kept = socket.socket(type=socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
print(os.get_blocking(kept.fileno()), kept.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE))
raw = libc.socket(socket.AF_INET, socket.SOCK_STREAM, 0)
print(os.get_inheritable(raw), os.get_blocking(raw))
"""
    assert tier.says(code, f"{WEB}:{port}") + "\n" == tier.bare(code)


def test_much_data_both_ways(tier, lab):
    port = lab.echo(WEB)
    out = tier.says(f"""
import hashlib
made, data, got = connect({WEB!r}, {port}), os.urandom(1 << 16) * 128, hashlib.sha256()
def send():
    made.sendall(data)
    made.shutdown(socket.SHUT_WR)
thread = threading.Thread(target=send)
thread.start()
while part := made.recv(1 << 20):
    got.update(part)
thread.join()
print(got.digest() == hashlib.sha256(data).digest())
""", f"{WEB}:{port}")
    assert out == "True"


def test_many_connections_at_once(tier, lab):
    port = lab.echo(WEB)
    out = tier.says(f"""
made = []
for number in range(200):
    one = socket.socket()
    one.setblocking(False)
    assert one.connect_ex(({WEB!r}, {port})) in (0, errno.EINPROGRESS)
    made.append(one)
waiting = select.poll()
for one in made:
    one.setblocking(True)
    one.sendall(b"%d" % one.fileno())
print(sum(one.recv(10) == b"%d" % one.fileno() for one in made))
""", f"{WEB}:{port}")
    assert out == "200"


def test_threads_and_children_connect(tier, lab):
    port = lab.says(WEB, b"x")
    out = tier.says(f"""
results = []
def one():
    results.append(outcome(connect, {WEB!r}, {port}))
threads = [threading.Thread(target=one) for _ in range(16)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
child = os.fork()
if child == 0:
    os._exit(0 if outcome(connect, {WEB!r}, {port}) == "worked" else 1)
print(results.count("worked"), os.waitpid(child, 0)[1])
""", f"{WEB}:{port}")
    assert out == "16 0"


def test_real_programs(tier, lab):
    lab.names.set("web.example.com", WEB)
    port = lab.web(WEB)
    ran = tier.run("curl", "-sS", f"http://web.example.com:{port}/x", flags=net(f"web.example.com:{port}"))
    assert ran.out == f"hello /x at web.example.com:{port}\n", ran.err
    ran = tier.python("import asyncio\nasync def main():\n"
                      f"    reader, writer = await asyncio.open_connection('web.example.com', {port})\n"
                      "    writer.write(b'GET /y HTTP/1.0\\r\\n\\r\\n')\n    print((await reader.read())[-20:])\n"
                      "asyncio.run(main())", flags=net(f"web.example.com:{port}"))
    assert "/y" in ran.out, ran.err


# ---- How connecting goes ----

def test_epoll_that_was_there_before(tier, lab):
    port = lab.says(WEB, b"x")
    code = f"""
made, waiting = socket.socket(), select.epoll()
made.setblocking(False)
waiting.register(made, select.EPOLLIN | select.EPOLLOUT | select.EPOLLET)
waiting.poll(0)
print(made.connect_ex(({WEB!r}, {port})) in (0, errno.EINPROGRESS))
seen = 0
while not seen & select.EPOLLIN:
    for _, events in waiting.poll(20):
        seen |= events
print(bool(seen & select.EPOLLOUT), made.recv(10), made.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
"""
    assert tier.says(code, f"{WEB}:{port}") + "\n" == tier.bare(code)


def test_connecting_once_more(tier, lab):
    """To the same place: the connection is there already."""
    port = lab.echo(WEB)
    code = f"""
made = socket.socket()
print([made.connect_ex(({WEB!r}, {port})) for _ in range(3)] == [0, errno.EISCONN, errno.EISCONN])
made.sendall(b"x")
print(made.recv(1))
"""
    assert tier.says(code, f"{WEB}:{port}") + "\n" == tier.bare(code)


@pytest.mark.parametrize("blocking", [True, False])
def test_refused_outside(tier, lab, blocking):
    """The outside's own error, and no record: nothing of ours refused it."""
    port = lab.closed(WEB)
    result = tier.result(f"""
made = socket.socket()
made.setblocking({blocking})
first = made.connect_ex(({WEB!r}, {port}))
if first == errno.EINPROGRESS:
    select.select([], [made], [], 20)
    first = made.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
print(errno.errorcode[first])
""", f"{WEB}:{port}")
    assert (result.out, result.denials) == ("ECONNREFUSED", []), result.err


@pytest.mark.parametrize("address, error", [(UNREACHABLE, "EHOSTUNREACH"), (NOWHERE, "ENETUNREACH")])
def test_unreachable_outside(tier, lab, address, error):
    result = tier.result(f"print(outcome(socket.socket().connect, ({address!r}, 80)))", f"{address}:80")
    assert (result.out, result.denials) == (error, []), result.err


def test_timeouts(tier, lab):
    """A server that never answers: the program's own patience counts."""
    port, kept = lab.full(WEB)
    code = f"""
began = time.monotonic()
print(outcome(connect, {WEB!r}, {port}, timeout=0.5), 0.4 < time.monotonic() - began < 10)
made = socket.socket()
made.setblocking(False)
print(errno.errorcode[made.connect_ex(({WEB!r}, {port}))], select.select([], [made], [], 0.2)[1])
print(errno.errorcode[made.connect_ex(({WEB!r}, {port}))])
"""
    assert tier.says(code, f"{WEB}:{port}") + "\n" == tier.bare(code)
    assert kept


def test_a_timeout_of_the_socket(tier, lab):
    """SO_SNDTIMEO is the other way to be impatient."""
    port, kept = lab.full(WEB)
    code = f"""
made = socket.socket()
made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 0, 500000))
began = time.monotonic()
print(outcome(made.connect, ({WEB!r}, {port})), time.monotonic() - began < 10)
"""
    assert tier.says(code, f"{WEB}:{port}", timeout=30, flags=["--timeout", "5s"]) + "\n" == tier.bare(code)
    assert kept


def test_an_interrupted_connect(tier, lab):
    """A signal arrives while connect() waits: the call is not stuck, and the program goes on."""
    port, kept = lab.full(WEB)
    code = f"""
import signal
class Enough(Exception):
    pass
def enough(*_):
    raise Enough
signal.signal(signal.SIGALRM, enough)
signal.setitimer(signal.ITIMER_REAL, 0.3)
try:
    print(socket.socket().connect(({WEB!r}, {port})))
except Enough:
    print("interrupted")
print(outcome(connect, {WEB!r}, {port}, timeout=0.3))
"""
    assert tier.says(code, f"{WEB}:{port}", flags=["--timeout", "5s"]) + "\n" == tier.bare(code)
    assert kept


def drain(listener, kept):
    """Makes room for those that wait."""
    try:
        while True:
            kept.append(listener.accept()[0])
    except OSError:
        pass


@pytest.mark.parametrize("bare", [True, False], ids=["bare", "cell"])
def test_a_connect_that_goes_on_after_a_signal(tier, lab, bare):
    """With handlers that restart calls, connect() waits on for the same connection."""
    listener = lab.listen(WEB, 0, 0)
    port = listener.getsockname()[1]
    kept = [lab.make() for _ in range(3)]
    for made in kept:
        made.setblocking(False)
        made.connect_ex((WEB, port))
    code = f"""
handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(lambda number: os.write(1, b"signal\\n") and None)
libc.signal(14, handler)        # restarts calls
libc.ualarm(300000, 0)
target = struct.pack("<H", socket.AF_INET) + struct.pack(">H", {port}) + socket.inet_aton({WEB!r}) + bytes(8)
fd = libc.socket(socket.AF_INET, socket.SOCK_STREAM, 0)
print("connecting", flush=True)
print(libc.connect(fd, target, 16), ctypes.get_errno())
"""
    run = (subprocess.Popen([*lab.prefix(tier.workspace), PYTHON, "-c", PRELUDE + code], stdout=subprocess.PIPE)
           if bare else tier.start(PYTHON, "-c", PRELUDE + code, flags=[*net(f"{WEB}:{port}"), "--timeout", "5s"]))
    with run:
        assert [run.stdout.readline() for _ in range(2)] == [b"connecting\n", b"signal\n"]
        threading.Thread(target=drain, args=(listener, kept), daemon=True).start()
        assert run.stdout.read() == b"0 0\n"
        listener.shutdown(socket.SHUT_RDWR)


def test_killing_the_program_while_it_connects(tier, lab):
    """Nothing waits for a connection that nobody wants any more."""
    port, kept = lab.full(WEB)
    run = tier.start(PYTHON, "-c", PRELUDE + f"print('now', flush=True)\nsocket.socket().connect(({WEB!r}, {port}))",
                     flags=[*net(f"{WEB}:{port}"), "--timeout", "2s"])
    assert run.stdout.readline() == b"now\n"
    run.communicate(timeout=15)
    assert run.returncode == 124 and kept


# ---- What is refused ----

@pytest.mark.parametrize("address, port", [(OTHER, 80), (WEB, 81), (OTHER6, 80), (PRIVATE, 80), ("127.0.0.1", 80)])
def test_refused(tier, lab, address, port):
    result = tier.result(f"""
address, port = {address!r}, {port}
print(outcome(socket.socket(family(address)).connect, (address, port)))
made = socket.socket(family(address))
made.setblocking(False)
print(errno.errorcode[made.connect_ex((address, port))])
""", f"{WEB}:80")
    shown = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
    assert result.out.split() == ["EACCES"] * 2
    assert result.refused() == [("network.connect", shown)] and result.denials[0]["count"] == 2


def test_refused_by_another_spelling(tier, lab):
    result = tier.result(f'print(outcome(connect, "::ffff:{OTHER}", 80))', f"{WEB}:80")
    assert result.out == "EACCES" and result.refused() == [("network.connect", f"{OTHER}:80")]


def test_a_name_that_no_rule_allows(tier, lab):
    lab.names.set("other.example.com", OTHER)
    result = tier.result("print(outcome(addresses, 'other.example.com'))", "api.example.com:80")
    assert result.out.startswith("EAI_") and "other.example.com" in str(result.refused())
    assert "other.example.com" not in lab.names.names()


def test_a_name_is_needed_for_a_rule_by_name(tier, lab):
    lab.names.set("api.example.com", WEB)
    port = lab.says(WEB, b"x")
    code = f"""
print(outcome(connect, {WEB!r}, {port}))
addresses("api.example.com")
print(outcome(connect, {WEB!r}, {port}))
"""
    assert tier.says(code, f"api.example.com:{port}").split() == ["EACCES", "worked"]


def test_a_name_that_leads_to_a_private_address(tier, lab):
    lab.names.set("api.example.com", PRIVATE)
    port = lab.says(PRIVATE, b"x")
    code = f"""
print(outcome(socket.create_connection, ('api.example.com', {port})), outcome(connect, {PRIVATE!r}, {port}))
"""
    out = tier.says(code, f"api.example.com:{port}").split()
    assert out[0].startswith("EAI_") and out[1] == "EACCES"


def test_without_rules_there_are_no_sockets(tier, lab):
    assert tier.says("print(outcome(socket.socket))") == "EACCES"


# ---- What this tier can't do ----

@pytest.mark.parametrize("flags, what", [
    (["--net", f"udp://{WEB}:53"], "datagrams can't be relayed"),
    (["--net", f"{WEB}:80", "--network-bytes", "1M"], "bytes and connections can't be counted"),
    (["--net", f"{WEB}:80", "--connections", "5"], "bytes and connections can't be counted"),
], ids=["udp", "bytes", "connections"])
def test_what_has_to_be_accepted(tier, lab, flags, what):
    ran = tier.run("true", flags=flags)
    assert ran.status == 125 and what in ran.err and "layer: egress" in ran.err, ran.err
    assert "--accept-weaker egress" in ran.err
    port = lab.says(WEB, b"x")
    accepted = tier.result(f"print(outcome(connect, {WEB!r}, {port}))\n"
                           "print(outcome(lambda: socket.socket(type=socket.SOCK_DGRAM)))",
                           f"{WEB}:{port}", flags=[*flags, "--accept-weaker", "egress"])
    assert accepted.out.split() == ["worked", "EACCES"], accepted.err
    assert any(line.startswith("egress: ") and what in line for line in accepted.document["report"]["weaker"])


def test_the_acceptance_alone_changes_nothing(tier, lab):
    result = tier.result("pass", f"{WEB}:80", flags=["--accept-weaker", "egress"])
    assert not any("egress" in line for line in result.document["report"]["weaker"])


@pytest.mark.parametrize("more", [[], ["--accept-weaker", "egress"]], ids=["plain", "accepted"])
def test_ports_can_not_be_published(tier, lab, more):
    ran = tier.run("true", flags=["--publish", "8080", *more])
    assert ran.status == 125 and "ports can't be published" in ran.err and "layer: egress" in ran.err, ran.err


# ---- The resolver ----

def listening(lab):
    """Ports of the lab's 127.0.0.1 at which somebody listens."""
    lines = open(f"/proc/{lab.agent.pid}/net/tcp").read().split("\n")[1:-1]
    return {int(line.split()[1].split(":")[1], 16) for line in lines
            if line.split()[3] == "0A" and line.split()[1].startswith("0100007F:")}


def test_the_resolver_serves_nobody_else(tier, lab):
    """Its port can be seen on the host's loopback: others get no word out of it, and the cell still does."""
    lab.names.set("api.example.com", WEB)
    before = listening(lab)
    code = PRELUDE + """
for line in sys.stdin:
    print(outcome(addresses, "api.example.com"), flush=True)
"""
    run = tier.start(PYTHON, "-c", code, flags=net("api.example.com:80"))
    run.stdin.write(b"\n")
    run.stdin.flush()
    assert run.stdout.readline() == b"worked\n"
    ports = listening(lab) - before
    assert len(ports) == 1
    asked = lab.names.count("api.example.com")
    for _ in range(20):
        with lab.connect("127.0.0.1", *ports) as foreign:
            try:
                asks = question("api.example.com", 1)
                foreign.sendall(struct.pack("!H", len(asks)) + asks)
                assert foreign.recv(1000) == b""
            except (BrokenPipeError, ConnectionResetError):
                pass
    assert lab.names.count("api.example.com") == asked
    out, _ = run.communicate(b"\n")
    assert out == b"worked\n" and run.returncode == 0
    until(lambda: listening(lab) == before, what="closing the port")


def test_many_questions_at_once(tier, lab):
    """Every connection to the resolver is announced to it, and none is taken for a stranger's."""
    lab.names.set("api.example.com", WEB)
    out = tier.says("""
results = []
def often():
    for _ in range(25):
        results.append(outcome(addresses, "api.example.com", socket.AF_INET))
threads = [threading.Thread(target=often) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print({result: results.count(result) for result in results})
""", "api.example.com:80")
    assert out == "{'worked': 200}"


def test_questions_by_hand(tier, lab):
    """At the address that the host's own name server has, and at ours: it is the cell's resolver that answers."""
    lab.names.set("api.example.com", WEB)
    lab.names.set("other.example.com", OTHER)
    asks = {name: question(name, 1) for name in ("api.example.com", "other.example.com")}
    out = tier.says(f"""
for server in "127.0.0.1", "127.0.0.53":
    for name, asks in {asks!r}.items():
        made = connect(server, 53)
        made.sendall(struct.pack("!H", len(asks)) + asks)
        data = made.recv(1000)
        print(server, name, data[5] & 15, struct.unpack("!H", data[8:10])[0])
""", "api.example.com:80")
    assert out.split("\n") == ["127.0.0.1 api.example.com 0 1", "127.0.0.1 other.example.com 5 0",
                               "127.0.0.53 api.example.com 0 1", "127.0.0.53 other.example.com 5 0"]


# ---- Unix sockets ----

@pytest.fixture
def unix(tmp_path):
    """In directories that no policy names."""
    made = []

    def make(name, says=b"said", **keywords):
        (tmp_path / "run").mkdir(exist_ok=True)
        made.append(UnixServer(tmp_path / "run" / name, says, **keywords))
        return made[-1]
    yield make
    for server in made:
        server.close()


def dial(path):
    return f"""
def dial(path):
    made = socket.socket(socket.AF_UNIX)
    made.settimeout(20)
    made.connect(path)
    return made.recv(100)
def tries(path):
    try:
        print(dial(path))
    except OSError as error:
        print(errno.errorcode[error.errno])
tries({str(path)!r})
"""


def test_a_unix_socket_by_rule(tier, unix):
    server, other = unix("server"), unix("other")
    assert tier.says(dial(server.path), flags=["--socket", server.path]) == "b'said'"
    result = tier.result(dial(other.path), flags=["--socket", server.path])
    assert result.out == "EACCES" and other.heard == 0
    assert tier.says(dial(server.path)) == "EACCES"


def test_a_unix_socket_and_a_network_rule(tier, unix, lab):
    server, port = unix("server"), lab.says(WEB, b"x")
    code = f"print(outcome(connect, {WEB!r}, {port}), outcome(connect, {OTHER!r}, {port}))"
    out = tier.says(dial(server.path) + code, f"{WEB}:{port}", flags=["--socket", server.path])
    assert out == "b'said'\nworked EACCES"


def test_only_unix_sockets_means_no_network(tier, unix, lab):
    server = unix("server")
    port = lab.says(WEB, b"x")
    code = dial(server.path) + f"print(outcome(connect, {WEB!r}, {port}), outcome(addresses, 'api.example.com'))"
    out = tier.says(code, flags=["--socket", server.path]).split()
    assert out[0] == "b'said'" and out[1] != "worked" and out[2].startswith("EAI_")


def test_other_ways_to_a_granted_socket(tier, unix):
    """By another path to the same thing it is still the same; by a link of the code's own too."""
    server = unix("server")
    code = dial(server.path) + f"""
tries({str(server.path.parent)!r} + "/../run/./server")
os.symlink({str(server.path)!r}, "link")
tries(os.path.abspath("link"))
"""
    assert tier.says(code, flags=["--socket", server.path]).split() == ["b'said'"] * 3


def test_blocking_and_not(tier, unix):
    server = unix("server")
    code = f"""
for blocking in True, False:
    made = socket.socket(socket.AF_UNIX)
    made.setblocking(blocking)
    print(made.connect_ex({str(server.path)!r}), os.get_blocking(made.fileno()))
    made.setblocking(True)
    print(made.recv(10), made.getpeername() != "")
    print(errno.errorcode[made.connect_ex({str(server.path)!r})])
"""
    assert tier.says(code, flags=["--socket", server.path]).split("\n") == [
        "0 True", "b'said' True", "EISCONN", "0 False", "b'said' True", "EISCONN"]


def test_nobody_listens_any_more(tier, unix):
    server = unix("server")
    server.close()
    assert tier.says(dial(server.path), flags=["--socket", server.path]) == "ECONNREFUSED"


def test_for_the_caller_only(tier, unix):
    """The code has the caller's id in this tier, and what that may do."""
    server = unix("server", mode=0o600)
    assert tier.says(dial(server.path), flags=["--socket", server.path]) == "b'said'"
