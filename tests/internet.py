"""An internet for tests: a network namespace with public addresses on its loopback, in which everything runs that a
test wants to reach, and the cellblock that is to reach it.

An agent process lives in the namespace and makes sockets there, which it hands to the tests: servers are threads of the
test, so that a test can tell them what to answer and look at what was asked. Commands are put into the namespace by
nsenter, without any capability that the agent has. Works for root, and for users who may make namespaces.
"""

import array
import contextlib
import http.server
import json
import os
import pathlib
import socket
import socketserver
import ssl
import struct
import subprocess
import sys
import threading
import time

import pytest

import conftest

WEB = "93.184.216.34"               # several addresses that anybody could have
OTHER = "93.184.216.35"
THIRD = "93.184.216.36"
WEB6 = "2606:2800:220:1::1"
OTHER6 = "2606:2800:220:1::2"
PRIVATE = "10.0.0.5"
SPECIAL = [PRIVATE, "172.16.0.5", "192.168.0.5", "169.254.169.254", "169.254.7.7", "100.64.0.5", "198.18.0.5"]
SPECIAL6 = ["fd12:3456::5", "fd00:ec2::254", "64:ff9b::a00:5", "2002:a00:5::1", "::10.0.0.5", "64:ff9b::5db8:d822"]
UNREACHABLE = "93.184.217.1"        # the host says so
UNREACHABLE6 = "2606:2800:221::1"
NOWHERE = "93.184.218.1"            # no route

PYTHON = "/usr/bin/python3"


# ---- The agent: the only part that runs in the namespace ----

def agent(wire, resolv, hosts):
    def ip(*words):
        subprocess.run(["ip", *words], check=True)
    ip("link", "set", "lo", "up")
    for address in [WEB, OTHER, THIRD, *SPECIAL]:
        ip("addr", "add", address + "/32", "dev", "lo")
    for address in [WEB6, OTHER6, *SPECIAL6]:
        ip("addr", "add", address + "/128", "dev", "lo", "nodad")
    ip("route", "add", "unreachable", UNREACHABLE)
    ip("-6", "route", "add", "unreachable", UNREACHABLE6)
    subprocess.run(["mount", "--bind", resolv, "/etc/resolv.conf"], check=True)
    subprocess.run(["mount", "--bind", hosts, "/etc/hosts"], check=True)
    wire.send(b"{}")
    while True:
        wish = wire.recv(4096)
        if not wish:
            return
        wish = json.loads(wish)
        try:
            made = socket.socket(wish["family"], wish["type"])
            if wish["address"]:
                made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, wish["type"] == socket.SOCK_STREAM)
                if wish["family"] == socket.AF_INET6:
                    made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                made.bind(wish["address"][0] if wish["family"] == socket.AF_UNIX else tuple(wish["address"]))
            if wish["backlog"] is not None:
                made.listen(wish["backlog"])
            wire.sendmsg([b"{}"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [made.fileno()]))])
            made.close()
        except OSError as problem:
            wire.send(json.dumps({"errno": problem.errno}).encode())


# ---- Names ----

A, NS, CNAME, PTR, MX, TXT, AAAA, OPT, SVCB, HTTPS, ANY = 1, 2, 5, 12, 15, 16, 28, 41, 64, 65, 255
FINE, FORMAT, SERVFAIL, NXDOMAIN, NOTIMP, REFUSED = range(6)


def packed_name(name):
    return b"".join(bytes([len(label)]) + label.encode() for label in name.split(".") if label) + b"\0"


def question(name, kind, number=1, room=None, flags=0x100, labels=None):
    """The bytes of a question; `labels` instead of the name for what no name is made of."""
    raw = b"".join(bytes([len(label)]) + label for label in labels) + b"\0" if labels is not None else packed_name(name)
    more = b"" if room is None else b"\0" + struct.pack("!HHIH", OPT, room, 0, 0)
    return struct.pack("!6H", number, flags, 1, 0, 0, room is not None) + raw + struct.pack("!HH", kind, 1) + more


class Answer:
    """What a question gets. `records` are (type, value, lifetime) of the name, or (type, value, lifetime, owner)."""

    def __init__(self, records=(), code=FINE, silent=False, cut=False, lie=None):
        self.records, self.code, self.silent, self.cut, self.lie = list(records), code, silent, cut, lie

    def bytes(self, asked, end, over_udp):
        body = b""
        for kind, value, lifetime, *owner in self.records:
            data = (socket.inet_pton(socket.AF_INET, value) if kind == A else
                    socket.inet_pton(socket.AF_INET6, value) if kind == AAAA else
                    packed_name(value) if kind == CNAME else value)
            body += packed_name(owner[0]) if owner else b"\xc0\x0c"
            body += struct.pack("!HHIH", kind, 1, lifetime, len(data)) + data
        count, flags = len(self.records), 0x8180 | self.code
        if over_udp and (self.cut or len(body) > 1100):
            body, count, flags = b"", 0, flags | 0x200
        return asked[:2] + struct.pack("!5H", flags, 1, count, 0, 0) + asked[12:end] + body


class Names:
    """The DNS server of the lab, on 127.0.0.1. What it says is set by each test; `asked` is what it was asked."""

    def __init__(self, lab):
        self.answers, self.asked, self.lock = {}, [], threading.Lock()
        self.udp = lab.make(socket.SOCK_DGRAM, "127.0.0.1", 53)
        self.tcp = lab.listen("127.0.0.1", 53)
        threading.Thread(target=self.serve_udp, daemon=True).start()
        threading.Thread(target=self.serve_tcp, daemon=True).start()

    def reset(self):
        with self.lock:
            self.answers, self.asked = {}, []

    def set(self, name, *addresses, ttl=60, cname=None, **keywords):
        """Addresses are A or AAAA, by their form. Without any: the name exists and has none."""
        records = [(AAAA if ":" in address else A, address, ttl) for address in addresses]
        if cname:
            records.append((CNAME, cname, ttl))
        self.answers[name] = Answer(records, **keywords)

    def script(self, name, function):
        """function(type, how often this was asked before) gives the Answer."""
        self.answers[name] = function

    def count(self, name, kind=None):
        with self.lock:
            return sum(1 for n, k, _ in self.asked if n == name and kind in (None, k))

    def names(self):
        with self.lock:
            return {name for name, _, _ in self.asked}

    def resolve(self, name, kind):
        """As a server does that finds the addresses at the end of a chain itself."""
        records, seen, owner = [], set(), name
        while True:
            found = self.answers.get(owner)
            if callable(found):
                found = found(kind, self.count(name, kind) - 1)
            if found is None:
                return Answer(records, NXDOMAIN)
            if found.code or found.silent:
                return found
            here = [record for record in found.records if record[0] == kind]
            aliases = [record for record in found.records if record[0] == CNAME and len(record) == 3]
            extra = [record for record in found.records if len(record) == 4]
            records += [(*record, owner) for record in here] + extra
            if here or not aliases or owner in seen:
                return Answer(records, cut=found.cut)
            seen.add(owner)
            records.append((*aliases[0], owner))
            owner = aliases[0][1]

    def answer(self, asked, over_udp):
        at, labels = 12, []
        while asked[at]:
            labels.append(asked[at + 1:at + 1 + asked[at]].decode(errors="replace"))
            at += 1 + asked[at]
        kind = struct.unpack("!H", asked[at + 1:at + 3])[0]
        name = ".".join(labels).lower()
        with self.lock:
            self.asked.append((name, kind, "udp" if over_udp else "tcp"))
        found = self.resolve(name, kind)
        return None if found.silent else found.bytes(asked, at + 5, over_udp)

    def serve_udp(self):
        while True:
            asked, sender = self.udp.recvfrom(4096)
            with contextlib.suppress(IndexError, struct.error):
                answer = self.answer(asked, True)
                if answer:
                    self.udp.sendto(answer, sender)

    def serve_tcp(self):
        while True:
            try:
                client, _ = self.tcp.accept()
            except OSError:
                return
            threading.Thread(target=self.serve_client, args=(client,), daemon=True).start()

    def serve_client(self, client):
        with client, contextlib.suppress(OSError, IndexError, struct.error), client.makefile("rb") as stream:
            while True:
                length = stream.read(2)
                if len(length) < 2:
                    return
                answer = self.answer(stream.read(struct.unpack("!H", length)[0]), False)
                if answer:
                    client.sendall(struct.pack("!H", len(answer)) + answer)


# ---- The lab ----

class Lab:
    def __init__(self, directory):
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.resolv, self.hosts = directory / "resolv.conf", directory / "hosts"
        self.names = None
        self.listeners = []
        self.settle()
        self.wire, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.lock = threading.Lock()
        unshare = ["unshare", "-n", "-m"] if conftest.is_root() else ["unshare", "-U", "-c", "--keep-caps", "-n", "-m"]
        self.agent = subprocess.Popen([*unshare, PYTHON, "-B", __file__, str(other.fileno()), self.resolv, self.hosts],
                                      pass_fds=[other.fileno()], stdin=subprocess.DEVNULL)
        other.close()
        self.wire.settimeout(30)
        if not self.wire.recv(100):
            raise RuntimeError("the namespace for the test could not be made")
        self.names = Names(self)

    def close(self):
        for listener in self.listeners:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)     # whoever waits there is woken, and ends
        self.wire.close()
        self.agent.wait(10)

    def settle(self, resolv="nameserver 127.0.0.1\noptions timeout:1 attempts:1\n", hosts="127.0.0.1 localhost\n"):
        """The files are bound into the namespace: written in place."""
        for path, text in (self.resolv, resolv), (self.hosts, hosts):
            path.write_text(text)
            path.chmod(0o644)
        if self.names:
            self.names.reset()

    # Sockets

    def make(self, kind=socket.SOCK_STREAM, address=None, port=0, backlog=None, family=None):
        family = family or (socket.AF_INET6 if address and ":" in address else socket.AF_INET)
        wish = {"family": family, "type": kind, "address": address and [address, port], "backlog": backlog}
        with self.lock:
            self.wire.send(json.dumps(wish).encode())
            answer, given, _, _ = self.wire.recvmsg(100, socket.CMSG_SPACE(4))
        answer = json.loads(answer)
        if "errno" in answer:
            raise OSError(answer["errno"], os.strerror(answer["errno"]), f"{address}:{port}")
        return socket.socket(fileno=array.array("i", given[0][2])[0])

    def listen(self, address, port=0, backlog=128):
        return self.make(socket.SOCK_STREAM, address, port, backlog)

    def connect(self, address, port, timeout=20):
        made = self.make(family=socket.AF_INET6 if ":" in address else socket.AF_INET)
        made.settimeout(timeout)
        made.connect((address, port))
        return made

    # Commands

    def prefix(self, cwd):
        enter = ["nsenter", "-t", str(self.agent.pid), "-n", "-m"]
        if not conftest.is_root():
            enter += ["-U", "--preserve-credentials"]
        return [*enter, "env", "-C", str(cwd)]

    def bare(self, *command, env, cwd, input=b"", timeout=60):
        """Without a cell."""
        done = subprocess.run([*self.prefix(cwd), *map(str, command)], env=env, input=input, capture_output=True,
                              timeout=timeout)
        return conftest.Ran(done.returncode, done.stdout, done.stderr)

    # Servers

    def serve(self, address, handler, port=0, backlog=128):
        """handler(connection) in a thread for each connection; gives the port."""
        listener = self.listen(address, port, backlog)
        self.listeners.append(listener)

        def one(connection):
            with connection, contextlib.suppress(OSError):
                handler(connection)

        def loop():
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=one, args=(connection,), daemon=True).start()
        threading.Thread(target=loop, daemon=True).start()
        return listener.getsockname()[1]

    def echo(self, address, port=0):
        """Sends back what comes, and the end."""
        def handler(connection):
            while data := connection.recv(1 << 16):
                connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
        return self.serve(address, handler, port)

    def says(self, address, text, port=0):
        """Says one thing, and closes."""
        def handler(connection):
            connection.sendall(text)
            connection.shutdown(socket.SHUT_WR)
            connection.recv(100)
        return self.serve(address, handler, port)

    def udp_echo(self, address, port=0, front=b""):
        own = self.make(socket.SOCK_DGRAM, address, port)

        def loop():
            while True:
                data, sender = own.recvfrom(65536)
                with contextlib.suppress(OSError):
                    own.sendto(front + data, sender)
        threading.Thread(target=loop, daemon=True).start()
        return own.getsockname()[1]

    def full(self, address):
        """A port that never answers a new connection: those in front of it are not accepted, and there is no room."""
        listener = self.listen(address, 0, 0)
        port = listener.getsockname()[1]
        kept = [listener]
        for _ in range(4):
            made = self.make()
            made.setblocking(False)
            made.connect_ex((address, port))
            kept.append(made)
        return port, kept

    def closed(self, address, kind=socket.SOCK_STREAM):
        """A port at which nobody is."""
        with self.make(kind, address, 0) as made:
            return made.getsockname()[1]

    def web(self, address, port=0, handler=None, certificate=None):
        """An HTTP server; with a certificate, HTTPS. The default handler answers with what was asked."""
        listener = self.listen(address, port)
        port = listener.getsockname()[1]

        class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
            daemon_threads = True

            def handle_error(self, request, client):
                pass
        server = Server((address, port), handler or Hello, bind_and_activate=False)
        server.socket.close()
        server.socket = certificate.wrap(listener) if certificate else listener
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return port


class Hello(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        body = f"hello {self.path} at {self.headers['Host']}\n".encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[::-1])

    def log_message(self, *_):
        pass


def file_handler(directory):
    """Serves a directory."""
    class Files(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments):
            super().__init__(*arguments, directory=str(directory))

        def log_message(self, *_):
            pass
    return Files


class Certificate:
    """A certificate of a test, for these names; `path` is what a client has to trust."""

    def __init__(self, directory, *names):
        self.path, self.key = directory / "certificate.pem", directory / "key.pem"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-keyout", self.key,
                        "-out", self.path, "-subj", f"/CN={names[0]}", "-addext",
                        "subjectAltName=" + ",".join("DNS:" + name for name in names)], check=True, capture_output=True)

    def wrap(self, listener):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.path, self.key)
        return context.wrap_socket(listener, server_side=True, do_handshake_on_connect=False)


class InLab(conftest.Cellblock):
    """cellblock, run in the lab."""

    def __init__(self, lab, workspace, home):
        super().__init__(workspace, home)
        self.lab = lab

    def words(self, arguments, off, cwd):
        return [*self.lab.prefix(cwd or self.workspace), conftest.HOOKED if off else conftest.PROGRAM, *arguments]

    def surroundings(self, off, env):
        environment = {**self.environment, **(env or {})}
        if off:
            environment["CELLBLOCK_TEST_OFF"] = ",".join(off)
        return {**environment, **{n: os.environ[n] for n in ("ASAN_OPTIONS", "UBSAN_OPTIONS") if n in os.environ}}

    def command(self, *arguments, off=(), env=None, cwd=None, input=b"", timeout=60, **keywords):
        if "stdin" not in keywords:
            keywords["input"] = input
        done = subprocess.run(self.words(arguments, off, cwd), env=self.surroundings(off, env), timeout=timeout,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, **keywords)
        return conftest.Ran(done.returncode, done.stdout, done.stderr)

    def start(self, *program, flags=(), off=(), env=None, **keywords):
        """A run that the test talks to while it lasts: its pid is the supervisor's."""
        for stream in "stdin", "stdout", "stderr":
            keywords.setdefault(stream, subprocess.PIPE)
        return subprocess.Popen(self.words(["run", *flags, "--", *program], off, None),
                                env=self.surroundings(off, env), **keywords)

    def result(self, code, *rules, flags=(), **keywords):
        """Runs Python code; gives the result as JSON."""
        ran = self.python(PRELUDE + code, flags=["--json", *net(*rules), *flags], **keywords)
        assert ran.stdout, ran.err
        return Result(ran.json)

    def says(self, code, *rules, flags=(), **keywords):
        """Runs Python code that is expected to end well; gives its words."""
        result = self.result(code, *rules, flags=flags, **keywords)
        assert result.end == "exited" and result.code == 0, (result.out, result.err)
        return result.out

    def bare(self, code, **keywords):
        ran = self.lab.bare(PYTHON, "-c", PRELUDE + code, env=self.environment, cwd=self.workspace, **keywords)
        assert ran.status == 0, ran.err
        return ran.out


class Result:
    def __init__(self, document):
        self.document = document
        self.end, self.code = document["end"], document["exit_code"]
        self.out, self.err = document["stdout"].strip(), document["stderr"]
        self.denials, self.network = document["denials"], document["usage"].get("network")

    def refused(self):
        return [(denial["code"], denial["object"]) for denial in self.denials]


PRELUDE = """
import ctypes, errno, os, select, socket, struct, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
def family(address):
    return socket.AF_INET6 if ":" in address else socket.AF_INET
def connect(address, port, timeout=20, kind=socket.SOCK_STREAM):
    made = socket.socket(family(address), kind)
    made.settimeout(timeout)
    made.connect((address, port))
    return made
def outcome(function, *arguments, **keywords):
    # "worked", or the name of the error
    try:
        function(*arguments, **keywords)
    except socket.gaierror as error:
        return {v: k for k, v in vars(socket).items() if k.startswith("EAI_")}[error.errno]
    except TimeoutError as error:
        return errno.errorcode.get(error.errno, "timeout")
    except OSError as error:
        return errno.errorcode.get(error.errno, repr(error))
    return "worked"
def everything(made):
    parts = []
    while data := made.recv(1 << 20):
        parts.append(data)
    return b"".join(parts)
def addresses(name, family=0):
    return sorted({item[4][0] for item in socket.getaddrinfo(name, 1, family, socket.SOCK_STREAM)})
"""


def net(*rules):
    return [word for rule in rules for word in ("--net", rule)]


def until(condition, patience=20, what="the expected"):
    """Waits for something that other processes do."""
    deadline = time.monotonic() + patience
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not happen")
        time.sleep(0.01)
    return found


@pytest.fixture(scope="module")
def internet(tmp_path_factory):
    lab = Lab(tmp_path_factory.mktemp("lab"))
    yield lab
    lab.close()


@pytest.fixture
def lab(internet):
    internet.settle()
    return internet


@pytest.fixture
def cell(lab, workspace, home):
    return InLab(lab, workspace, home)


if __name__ == "__main__":
    agent(socket.socket(fileno=int(sys.argv[1])), pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]))
