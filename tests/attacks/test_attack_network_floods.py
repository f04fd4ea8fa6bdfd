"""Floods of connections and questions out of one cell: its own relay bears them, and nobody else does."""

import json
import struct
import threading
import time

import pytest

from internet import (A, PRELUDE, PYTHON, WEB, cell, internet, lab, net,    # noqa: F401: fixtures are names too
                      packed_name)

FLOOD = """
made, count = [], 0
print("begun", flush=True)
while count < LEAST or not select.select([sys.stdin], [], [], 0)[0]:
    count += 1
    BODY
    if len(made) > 3000:
        made.clear()
print(count, flush=True)
"""
CONNECTS = """
    made.append(socket.socket())
    made[-1].setblocking(False)
    made[-1].connect_ex(("93.%d.%d.7" % (count >> 8 & 255, count & 255), PORT))
"""
PENDING = """
    made.append(socket.socket())
    made[-1].setblocking(False)
    made[-1].connect_ex((ADDRESS, PORT))
"""
QUESTIONS = """
    asked = struct.pack("!6H", count & 65535, 256, 1, 0, 0, 0) + bytes([8]) + b"%08d" % count + REST
    asking.sendto(asked, (SERVER, 53))
"""


def flood(cell, lab, code, rules, least):
    """Runs it until another cell has had an answer; gives the result, and how long that took."""
    echo = lab.echo(WEB)
    lab.names.set("quick.example.org", WEB)
    program = cell.start(PYTHON, "-c", PRELUDE + code.replace("LEAST", str(least)), flags=["--json", *net(*rules)])
    start = time.monotonic()
    other = f"""
print(addresses("quick.example.org"))
made = connect({WEB!r}, {echo})
made.sendall(b"hello")
print(made.recv(10))
"""
    out = [cell.says(other, f"quick.example.org:{echo}") for _ in range(5)]
    took = (time.monotonic() - start) / 5
    assert program.poll() is None, "the flood was over too soon"
    document, err = program.communicate(b"\n", timeout=100)
    assert out == [f"['{WEB}']\nb'hello'"] * 5
    result = json.loads(document)
    assert result["end"] == "exited" and result["exit_code"] == 0, (result, err)
    return result, took


@pytest.mark.slow
def test_a_flood_of_refused_connections(cell, lab):
    """Layer: one relay for each cell. Its own records are bounded, and another cell does not notice."""
    code = FLOOD.replace("BODY", CONNECTS).replace("PORT", "80")
    result, took = flood(cell, lab, code, [f"{WEB}:80"], 5000)
    assert int(result["stdout"].split()[-1]) >= 5000 and took < 5
    assert 0 < len(result["denials"]) <= 128


@pytest.mark.slow
def test_a_flood_of_pending_connections(cell, lab):
    port, kept = lab.full(WEB)
    code = FLOOD.replace("BODY", PENDING).replace("PORT", str(port)).replace("ADDRESS", repr(WEB))
    result, took = flood(cell, lab, code, [f"{WEB}:{port}"], 5000)
    assert int(result["stdout"].split()[-1]) >= 5000 and took < 5 and result["denials"] == []
    del kept


@pytest.mark.slow
@pytest.mark.parametrize("suffix, rules", [("evil.example.net", [f"{WEB}:80"]), ("example.com", ["*.example.com:443"])],
                         ids=["refused", "allowed"])
def test_a_flood_of_questions(cell, lab, suffix, rules):
    """Those that are refused stay inside; those that are allowed are bounded in number at the same time."""
    code = ('SERVER = next(line.split()[1] for line in open("/etc/resolv.conf") if line.startswith("nameserver"))\n'
            "asking = socket.socket(type=socket.SOCK_DGRAM)\n"
            f"REST = {packed_name(suffix) + struct.pack('!HH', A, 1)!r}\n" + FLOOD.replace("BODY", QUESTIONS))
    result, took = flood(cell, lab, code, rules, 20000)
    assert int(result["stdout"].split()[-1]) >= 20000 and took < 5
    if suffix != "example.com":
        assert not any(name.endswith(suffix) for name in lab.names.names())


@pytest.mark.slow
def test_a_flood_can_be_ended(cell, lab):
    """The supervisor still listens to its caller."""
    code = FLOOD.replace("BODY", CONNECTS).replace("PORT", "80").replace("LEAST", "10 ** 9")
    program = cell.start(PYTHON, "-c", PRELUDE + code, flags=net(f"{WEB}:80"))
    assert program.stdout.readline() == b"begun\n"
    start = time.monotonic()
    program.terminate()
    program.communicate(timeout=30)
    assert program.returncode == 128 + 15 and time.monotonic() - start < 5


@pytest.mark.slow
def test_peers_that_never_read(cell, lab):
    """Fifty of them hold up nobody."""
    stop = threading.Event()
    stuck = lab.serve(WEB, lambda connection: stop.wait(60))
    echo = lab.echo(WEB)
    code = f"""
made = [connect({WEB!r}, {stuck}) for _ in range(50)]
for one in made:
    one.setblocking(False)
    try:
        while True:
            one.send(bytes(1 << 16))
    except BlockingIOError:
        pass
made = connect({WEB!r}, {echo})
made.sendall(b"still here")
print(made.recv(20), flush=True)
os._exit(0)
"""
    assert cell.says(code, f"{WEB}:1-65535", timeout=120) == "b'still here'"
    stop.set()
