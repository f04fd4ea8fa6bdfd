"""The supervisor looks at descriptors of the code's, and holds their files for that moment. A socket that the code closes
just then must not make it wait: no socket of a cell has a time to linger, wherever calls are answered."""

import pytest

SET = """
import socket, struct
for made in socket.socket(), socket.socket(socket.AF_INET6), socket.socketpair()[0]:
    made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 3600))
    print(*struct.unpack("ii", made.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8)))
"""


@pytest.mark.parametrize("flags", [[], ["--net", "203.0.113.5:80"], ["--scratch", "--disk", "1G"],
                                   ["--scratch", "--inodes", "1000"]], ids=["guard", "network", "disk", "inodes"])
def test_no_socket_has_a_time_to_linger(cellblock, flags):
    """With one, a program that closes a full socket in one thread while another names it in a call leaves the last close,
    and the wait for the time it has set, to whoever answers that call."""
    assert cellblock.python(SET, flags=flags, off=["linger"]).out.splitlines() == ["1 3600"] * 3
    assert cellblock.python(SET, flags=flags).out.splitlines() == ["0 0"] * 3


def test_closing_at_once_still_resets(cellblock):
    code = """
import socket, struct
listener = socket.create_server(("127.0.0.1", 0))
def pair(*linger):
    made = socket.create_connection(listener.getsockname())
    made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", *linger))
    return made, listener.accept()[0]
for linger in (1, 0), (1, 30), (0, 0), (0, 5):
    made, other = pair(*linger)
    made.sendall(b"x")
    made.close()
    try:
        print(other.recv(1), other.recv(1))
    except ConnectionResetError:
        print("reset")
"""
    assert cellblock.python(code).out.splitlines() == ["reset"] + ["b'x' b''"] * 3
