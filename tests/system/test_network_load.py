"""Many connections through one cell, many cells at once, and peers that stall: nothing is lost, and memory stays bounded."""

import os
import pathlib
import resource
import selectors
import threading

import pytest

from internet import PRELUDE, PYTHON, WEB, cell, internet, lab, net    # noqa: F401: fixtures

MANY = 2000

CROWD = """
import asyncio, hashlib
async def one(number):
    reader, writer = await asyncio.open_connection({address!r}, {port})
    everybody.append(number)
    while len(everybody) < {many}:
        await asyncio.sleep(0.01)
    data = b"%06d" % number * 500
    writer.write(data)
    assert await reader.readexactly(len(data)) == data
    writer.close()
async def main():
    await asyncio.gather(*(one(number) for number in range({many})))
    print("all")
everybody = []
asyncio.run(main())
"""


@pytest.fixture
def busy_server(lab):
    """Echoes, to thousands at once."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    listener = lab.listen(WEB, 0, 4096)
    stop, stopped = os.pipe()
    thread = threading.Thread(target=echo_all, args=(listener, stop), daemon=True)
    thread.start()
    yield listener.getsockname()[1]
    os.close(stopped)
    thread.join()
    os.close(stop)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def echo_all(listener, stop):
    with selectors.EpollSelector() as ready:
        ready.register(listener, selectors.EVENT_READ)
        ready.register(stop, selectors.EVENT_READ)
        while True:
            for key, _ in ready.select():
                if key.fileobj == stop:
                    return
                if key.fileobj is listener:
                    ready.register(listener.accept()[0], selectors.EVENT_READ)
                    continue
                try:
                    data = key.fileobj.recv(1 << 17)
                    key.fileobj.sendall(data)
                except OSError:
                    data = b""
                if not data:
                    ready.unregister(key.fileobj)
                    key.fileobj.close()


def relays():
    """The relays on this machine."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "comm").read_text() == "cellblock-relay\n":
                found.append(entry)
        except OSError:
            pass
    return found


def peak_of(entry):
    try:
        text = (entry / "status").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in text.splitlines() if line.startswith("VmHWM")), 0)


@pytest.mark.slow
def test_two_thousand_connections(cell, lab, busy_server):
    """All open at the same time before the first byte is sent."""
    code = CROWD.format(address=WEB, port=busy_server, many=MANY)
    before = {entry.name for entry in relays()}
    run = cell.start(PYTHON, "-c", PRELUDE + code, flags=[*net(f"{WEB}:{busy_server}"), "--open-files", "8000"])
    peak = 0
    while run.poll() is None:
        peak = max([peak, *(peak_of(entry) for entry in relays() if entry.name not in before)])
    out, err = run.communicate(timeout=60)
    assert (run.returncode, out) == (0, b"all\n"), err[-2000:]
    assert 0 < peak < 16 << 10, f"{peak} kB"


@pytest.mark.slow
def test_sixty_four_cells(cell, lab, busy_server):
    code = PRELUDE + f"""
for _ in range(3):
    made = connect({WEB!r}, {busy_server})
    data = os.urandom(100000)
    made.sendall(data)
    got = b""
    while len(got) < len(data):
        got += made.recv(1 << 16)
    assert got == data
print("ok")
"""
    runs = [cell.start(PYTHON, "-c", code, flags=net(f"{WEB}:{busy_server}")) for _ in range(64)]
    assert [run.communicate(timeout=120)[0] for run in runs] == [b"ok\n"] * 64


def test_stalled_peers_cost_no_more_than_their_pipes(cell, lab):
    """A hundred servers that accept and never read, each sent as much as it takes; one more connection still works."""
    hold = threading.Event()
    stalled = lab.serve(WEB, lambda connection: hold.wait(60))
    quick = lab.says(WEB, b"still here")
    code = f"""
made = [connect({WEB!r}, {stalled}) for _ in range(100)]
for one in made:
    one.setblocking(False)
    try:
        while True:
            one.send(b"x" * 65536)
    except BlockingIOError:
        pass
print(connect({WEB!r}, {quick}).recv(100))
"""
    before = {entry.name for entry in relays()}
    run = cell.start(PYTHON, "-c", PRELUDE + code, flags=net(f"{WEB}:{stalled}", f"{WEB}:{quick}"))
    peak = 0
    while run.poll() is None:
        peak = max([peak, *(peak_of(entry) for entry in relays() if entry.name not in before)])
        if (line := run.stdout.readline()):
            assert line == b"b'still here'\n"
    hold.set()
    assert run.wait(60) == 0 and peak < 16 << 10, f"{peak} kB"
