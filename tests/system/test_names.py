"""Names in a cell: which are answered, with what, and that an answer is the only way to an address by name."""

import socket
import time

import pytest

from internet import (A, AAAA, ANY, CNAME, HTTPS, MX, NXDOMAIN, OTHER, PRIVATE, PTR, SERVFAIL, SVCB, THIRD, TXT, WEB,
                      WEB6, Answer, cell, internet, lab)    # noqa: F401: fixtures are used by their names

ASK = """
CODES = ["FINE", "FORMAT", "FAILURE", "NXDOMAIN", "NOTIMP", "REFUSED"]
SERVER = next(line.split()[1] for line in open("/etc/resolv.conf") if line.startswith("nameserver"))
def packed(name):
    return b"".join(bytes([len(label)]) + label for label in name.encode().split(b".") if label) + b"\\0"
def wire(name, kind, room=None, raw=None, flags=0x100):
    more = b"" if room is None else b"\\0" + struct.pack("!HHIH", 41, room, 0, 0)
    return (struct.pack("!6H", 7, flags, 1, 0, 0, room is not None) + (packed(name) if raw is None else raw)
            + struct.pack("!HH", kind, 1) + more)
def skip(data, at):
    while data[at]:
        if data[at] >= 192:
            return at + 2
        at += 1 + data[at]
    return at + 1
def text(data, at):
    labels = []
    while data[at]:
        if data[at] >= 192:
            at = struct.unpack("!H", data[at:at + 2])[0] & 0x3fff
            continue
        labels.append(data[at + 1:at + 1 + data[at]].decode())
        at += 1 + data[at]
    return ".".join(labels)
def read(data):
    number, flags, questions, count, _, more = struct.unpack("!6H", data[:12])
    assert number == 7 and flags & 0x8000
    at, found = 12, []
    for _ in range(questions):
        at = skip(data, at) + 4
    for _ in range(count):
        owner = text(data, at)
        at = skip(data, at)
        kind, _, ttl, length = struct.unpack("!HHIH", data[at:at + 10])
        value = data[at + 10:at + 10 + length]
        found.append((kind, text(data, at + 10) if kind == 5 else
                      socket.inet_ntop(socket.AF_INET if kind == 1 else socket.AF_INET6, value), ttl, owner))
        at += 10 + length
    return CODES[flags & 15] + (" cut" if flags & 0x200 else "") + (" extended" if more else ""), found
def udp(data, server=None, timeout=20):
    made = connect(server or SERVER, 53, timeout, socket.SOCK_DGRAM)
    made.send(data)
    return made.recv(65536)
def tcp(*questions, server=None):
    made = connect(server or SERVER, 53)
    made.sendall(b"".join(struct.pack("!H", len(data)) + data for data in questions))
    stream, answers = made.makefile("rb"), []
    for _ in questions:
        answers.append(stream.read(struct.unpack("!H", stream.read(2))[0]))
    return answers
def ask(name, kind=1, room=None, **keywords):
    return read(udp(wire(name, kind, room, **keywords)))
"""


def says(cell, code, *rules, **keywords):
    return cell.says(ASK + code, *rules, **keywords)


def result(cell, code, *rules, **keywords):
    found = cell.result(ASK + code, *rules, **keywords)
    assert found.end == "exited" and found.code == 0, found.err
    return found


# ---- What is answered ----

def test_addresses(cell, lab):
    lab.names.set("api.example.com", WEB, OTHER, WEB6, ttl=1234)
    code = """
print(sorted(ask("api.example.com", 1)[1]))
print(ask("api.example.com", 28))
print(addresses("api.example.com"))
"""
    assert says(cell, code, "api.example.com:443").split("\n") == [
        str([(A, WEB, 1234, "api.example.com"), (A, OTHER, 1234, "api.example.com")]),
        str(("FINE", [(AAAA, WEB6, 1234, "api.example.com")])), str(sorted([WEB, OTHER, WEB6]))]


def test_getaddrinfo_is_as_bare(cell, lab):
    lab.names.set("api.example.com", WEB, WEB6)
    lab.names.set("four.example.com", WEB)
    lab.names.set("six.example.com", WEB6)
    lab.names.set("none.example.com")
    lab.names.set("broken.example.com", code=SERVFAIL)
    code = """
for name in "api", "four", "six", "none", "missing", "broken", "API", "four":
    print(name, outcome(addresses, name + ".example.com"),
          [addresses(name + ".example.com", f) for f in (0, socket.AF_INET, socket.AF_INET6)
           if outcome(addresses, name + ".example.com", f) == "worked"])
print(socket.gethostbyname("api.example.com"), socket.gethostbyname_ex("four.example.com"))
print(addresses("api.example.com."))
"""
    bare = cell.bare(code).strip()
    assert "EAI_NONAME" in bare and "EAI_AGAIN" in bare
    assert cell.says(code, "*.example.com:443") == bare


def test_addresses_of_the_families_that_the_host_has(cell, lab):
    """What most programs ask for; the cell has both."""
    lab.names.set("api.example.com", WEB, WEB6)
    code = """
for flags in socket.AI_ADDRCONFIG, socket.AI_ADDRCONFIG | socket.AI_V4MAPPED, socket.AI_CANONNAME:
    print(sorted({item[4][0] for item in socket.getaddrinfo("api.example.com", 443, flags=flags)}))
"""
    assert cell.says(code, "api.example.com:443") == cell.bare(code).strip()


def test_a_chain_of_names(cell, lab):
    """Only the first has to be allowed: it is what the program asked for."""
    lab.names.set("www.example.com", cname="edge.cdn.example.net")
    lab.names.set("edge.cdn.example.net", cname="node7.cdn.example.net", ttl=20)
    lab.names.set("node7.cdn.example.net", WEB, ttl=5)
    port = lab.says(WEB, b"x")
    code = f"""
print(ask("www.example.com"))
print(outcome(connect, {WEB!r}, {port}))
print(ask("node7.cdn.example.net"))
"""
    assert says(cell, code, f"www.example.com:{port}").split("\n") == [
        str(("FINE", [(CNAME, "edge.cdn.example.net", 60, "www.example.com"),
                      (CNAME, "node7.cdn.example.net", 20, "edge.cdn.example.net"),
                      (A, WEB, 5, "node7.cdn.example.net")])), "worked", "('REFUSED', [])"]


def test_a_chain_without_end(cell, lab):
    lab.names.set("one.example.com", cname="two.example.com")
    lab.names.set("two.example.com", cname="one.example.com")
    lab.names.set("self.example.com", cname="self.example.com")
    code = "print(ask('one.example.com')[1], ask('self.example.com')[1], outcome(addresses, 'one.example.com'))"
    out = says(cell, code, "*.example.com:443")
    assert A not in eval(out.split("] [")[0] + "]") and out.split()[-1].startswith("EAI_")


def test_a_chain_with_foreign_addresses_beside_it(cell, lab):
    """An address of a name that nobody asked for is not an answer."""
    lab.names.answers["api.example.com"] = Answer([(A, WEB, 60), (A, OTHER, 60, "evil.example.net")])
    port = lab.says(OTHER, b"x")
    code = f"print(ask('api.example.com')[1], outcome(connect, {OTHER!r}, {port}))"
    assert says(cell, code, f"api.example.com:{port}") == f"{[(A, WEB, 60, 'api.example.com')]} EACCES"


def test_nothing_and_no_such_name(cell, lab):
    lab.names.set("empty.example.com")
    lab.names.set("four.example.com", WEB)
    code = """
print(ask("empty.example.com"), ask("four.example.com", 28), ask("missing.example.com"))
"""
    result_ = result(cell, code, "*.example.com:443")
    assert result_.out == "('FINE', []) ('FINE', []) ('NXDOMAIN', [])" and result_.denials == []


def test_a_server_that_fails(cell, lab):
    lab.names.set("broken.example.com", code=SERVFAIL)
    assert says(cell, "print(ask('broken.example.com'))", "broken.example.com:443") == "('FAILURE', [])"


def test_a_server_that_does_not_answer(cell, lab):
    """The program's own patience ends first; another name is answered meanwhile."""
    lab.names.set("silent.example.com", silent=True)
    lab.names.set("api.example.com", WEB)
    code = """
made = connect(SERVER, 53, 1, socket.SOCK_DGRAM)
made.send(wire("silent.example.com", 1))
print(ask("api.example.com")[0], outcome(made.recv, 100))
"""
    assert says(cell, code, "*.example.com:443") == "FINE timeout"


def test_a_server_that_answers_late(cell, lab):
    """The first question is lost; it is asked again."""
    lab.names.script("late.example.com", lambda kind, times: Answer(silent=True) if times == 0 else
                     Answer([(A, WEB, 60)]))
    assert says(cell, "print(ask('late.example.com')[0])", "late.example.com:443") == "FINE"
    assert lab.names.count("late.example.com") >= 2


@pytest.mark.parametrize("cut", [True, False], ids=["cut", "large"])
def test_answers_that_need_a_connection(cell, lab, cut):
    """Outside and inside: what does not fit is asked for again over TCP, by both sides."""
    many = [f"93.184.{n // 200}.{n % 200 + 1}" for n in range(100 if not cut else 2)]
    lab.names.set("large.example.com", *many, cut=cut)
    code = """
first = ask("large.example.com")
again = read(tcp(wire("large.example.com", 1))[0])
print(first[0], len(first[1]), again[0], len(again[1]), len(addresses("large.example.com")))
"""
    expected = "FINE 2 FINE 2 2" if cut else "FINE cut 0 FINE 100 100"
    assert says(cell, code, "large.example.com:443") == expected
    assert {how for name, _, how in lab.names.asked if name == "large.example.com"} == {"udp", "tcp"}


def test_extended_answers(cell, lab):
    """A client that says how much it can take gets that much in one datagram."""
    lab.names.set("large.example.com", *[f"93.184.1.{n}" for n in range(1, 41)])
    code = """
for room in None, 512, 1232, 4096:
    found = ask("large.example.com", 1, room)
    print(found[0], len(found[1]))
"""
    assert says(cell, code, "large.example.com:443").split("\n") == [
        "FINE cut 0", "FINE cut extended 0", "FINE extended 40", "FINE extended 40"]


def test_several_questions_over_one_connection(cell, lab):
    for name in "abc":
        lab.names.set(name + ".example.com", WEB)
    code = """
print(sorted(read(answer)[1][0][3] for answer in tcp(*(wire(n + ".example.com", 1) for n in "abc"))))
"""
    assert says(cell, code, "*.example.com:443") == str([name + ".example.com" for name in "abc"])


def test_a_client_that_has_nothing_more_to_ask(cell, lab):
    """It closes its side of the connection, and still gets the answer, which takes its time."""
    def slowly(kind, times):
        time.sleep(0.3)
        return Answer([(A, WEB, 60)])
    lab.names.script("api.example.com", slowly)
    code = """
made = connect(SERVER, 53)
asked = wire("api.example.com", 1)
made.sendall(struct.pack("!H", len(asked)) + asked)
made.shutdown(socket.SHUT_WR)
print(len(everything(made)) > 20)
"""
    assert says(cell, code, "api.example.com:443") == "True"


def test_any_letter_case(cell, lab):
    """Programs that mix it to be safe from forgery want their question back as it was."""
    lab.names.set("api.example.com", WEB)
    port = lab.says(WEB, b"x")
    code = f"""
data = udp(wire("aPi.ExAmPlE.cOm", 1))
print(b"aPi" in data, read(data)[0], outcome(connect, {WEB!r}, {port}))
"""
    assert says(cell, code, f"api.example.com:{port}") == "True FINE worked"


# ---- The host's own settings ----

def test_search_domains(cell, lab):
    """Short names work as on the host, and the detour over a search domain is not a refusal."""
    lab.settle(resolv="nameserver 127.0.0.1\nsearch corp.example intern.example\noptions timeout:1 ndots:2\n")
    lab.names.set("db.intern.example", WEB)
    lab.names.set("api.example.com", OTHER)
    code = "print(addresses('db'), addresses('api.example.com'))"
    bare = cell.bare(code).strip()
    found = cell.result(code, "db.intern.example:5432", "api.example.com:443")
    assert found.out == bare == f"['{WEB}'] ['{OTHER}']", found.err


def test_a_short_name_by_rule(cell, lab):
    lab.settle(resolv="nameserver 127.0.0.1\nsearch corp.example\n")
    lab.names.set("redis", WEB)
    assert cell.says("print(addresses('redis'))", "redis:6379") == f"['{WEB}']"


def test_the_hosts_list(cell, lab):
    """/etc/hosts counts for names that are allowed, and only for those."""
    lab.settle(hosts=f"127.0.0.1 localhost\n{WEB} listed.example.com listed\n{OTHER} secret.example.net\n"
                     f"{PRIVATE} inner.example.com\n")
    port = lab.says(WEB, b"x")
    code = f"""
print(addresses("listed.example.com"), outcome(connect, {WEB!r}, {port}))
print(outcome(addresses, "secret.example.net") == "worked" and outcome(connect, {OTHER!r}, {port}))
print(outcome(connect, {PRIVATE!r}, {port}), addresses("localhost"))
"""
    out = says(cell, code, f"*.example.com:{port}").split("\n")
    assert out[0] == f"['{WEB}'] worked" and out[1] in ("False", "EACCES") and out[2].startswith("EACCES")
    assert lab.names.count("listed.example.com", A) == 0


def test_the_hosts_list_is_the_last_word(cell, lab):
    """A name that stands in it is not looked up elsewhere, also not for the other family."""
    lab.settle(hosts=f"127.0.0.1 localhost\n{WEB} listed.example.com\n")
    lab.names.set("listed.example.com", OTHER, WEB6)
    code = "print(addresses('listed.example.com'))"
    assert cell.bare(code).strip() == f"['{WEB}']"
    assert cell.says(code, "listed.example.com:443") == f"['{WEB}']"


def test_several_servers(cell, lab):
    """One that is not there costs time, and no more."""
    lab.settle(resolv=f"nameserver {THIRD}\nnameserver 127.0.0.1\noptions timeout:1\n")
    lab.names.set("api.example.com", WEB)
    assert says(cell, "print(addresses('api.example.com'))", "api.example.com:443") == f"['{WEB}']"


# ---- What is not ----

@pytest.mark.parametrize("kind", [HTTPS, SVCB])
def test_services_are_answered_with_nothing(cell, lab, kind):
    lab.names.answers["api.example.com"] = Answer([(A, WEB, 60)])
    found = result(cell, f"print(ask('api.example.com', {kind}))", "api.example.com:443")
    assert found.out == "('FINE', [])" and found.denials == []
    assert lab.names.count("api.example.com", kind) == 0


@pytest.mark.parametrize("kind", [MX, TXT, ANY, PTR, 2, 6, 33, 257, 65535, 0])
def test_other_types_are_refused(cell, lab, kind):
    lab.names.set("api.example.com", WEB)
    found = result(cell, f"print(ask('api.example.com', {kind}))", "api.example.com:443")
    assert found.out == "('REFUSED', [])" and lab.names.asked == []
    assert found.refused() == [("network.name", f"api.example.com (type {kind})")]
    assert found.denials[0]["layer"] == "resolver" and found.denials[0]["suggest"] is None


def test_other_names_are_refused_and_never_asked(cell, lab):
    lab.names.set("other.example.org", WEB)
    code = """
print(ask("other.example.org"), ask("other.example.org", 28), outcome(addresses, "other.example.org"))
print(read(tcp(wire("other.example.org", 1))[0]))
"""
    found = result(cell, code, "api.example.com:443", "*.example.com:443")
    assert found.out.startswith("('REFUSED', []) ('REFUSED', []) EAI_") and found.out.endswith("('REFUSED', [])")
    assert lab.names.asked == []
    assert found.refused() == [("network.name", "other.example.org")]
    assert found.denials[0]["count"] >= 4
    assert found.denials[0]["suggest"] == {"host": "other.example.org", "ports": [443]}


@pytest.mark.parametrize("name, allowed", [("example.com", False), ("a.example.com", True), ("a.b.example.com", True),
                                           ("aexample.com", False), ("a.example.com.evil.net", False),
                                           ("*.example.com", False), ("-a.example.com", False),
                                           ("_http.example.com", None), ("a..example.com", None)])
def test_a_wildcard(cell, lab, name, allowed):
    """By suffix, with at least one label in front."""
    lab.names.set(name, WEB)
    raw = "b''.join(bytes([len(l)]) + l.encode() for l in %r.split('.') if l) + b'\\0'" % name
    found = result(cell, f"print(ask('', raw={raw})[0])", "*.example.com:443")
    if allowed is not None:
        assert found.out == ("FINE" if allowed else "REFUSED"), found.denials
    if found.out == "REFUSED":
        assert name not in lab.names.names()


ODD = {
    "a dot in a label": [b"api.example", b"com"],
    "NUL": [b"api\0", b"example", b"com"],
    "NUL before the suffix": [b"evil\0", b"api", b"example", b"com"],
    "control": [b"\x1b[31m", b"example", b"com"],
    "newline": [b"a\nb", b"example", b"com"],
    "space": [b"a b", b"example", b"com"],
    "high": [b"\xff\xfe", b"example", b"com"],
    "quote": [b'a"b', b"example", b"com"],
    "backslash": [b"a\\046b", b"example", b"com"],
    "percent": [b"a%sb", b"example", b"com"],
    "slash": [b"..", b"example", b"com"],
}


@pytest.mark.parametrize("labels", ODD.values(), ids=ODD.keys())
def test_names_of_odd_bytes(cell, lab, labels):
    """Refused, never passed on, and shown in a form that does no harm."""
    raw = b"".join(bytes([len(label)]) + label for label in labels) + b"\0"
    found = result(cell, f"print(ask('', raw={raw!r}))", "*.example.com:443", "api.example.com:443")
    assert found.out == "('REFUSED', [])" and lab.names.asked == []
    assert len(found.denials) == 1 and found.denials[0]["object"].isprintable()


MALFORMED = {
    "short": b"\0\7\1\0\0\1\0\0",
    "no question": b"\0\7\1\0\0\0\0\0\0\0\0\0",
    "two questions": b"\0\7\1\0\0\2\0\0\0\0\0\0" + b"\1a\0\0\1\0\1" * 2,
    "cut in the name": b"\0\7\1\0\0\1\0\0\0\0\0\0\x20abc",
    "pointer": b"\0\7\1\0\0\1\0\0\0\0\0\0\xc0\x0c\0\1\0\1",
    "pointer to itself": b"\0\7\1\0\0\1\0\0\0\0\0\0\1a\xc0\x0c\0\1\0\1",
    "no type": b"\0\7\1\0\0\1\0\0\0\0\0\0\1a\0",
    "a name that is too long": b"\0\7\1\0\0\1\0\0\0\0\0\0" + b"\x3f" + b"a" * 63 + b"\x3f" + b"a" * 63 + b"\x3f"
                               + b"a" * 63 + b"\x3f" + b"a" * 63 + b"\0\0\1\0\1",
    "an answer": b"\0\7\x81\x80\0\1\0\0\0\0\0\0\1a\0\0\1\0\1",
    "another operation": b"\0\7\x29\0\0\1\0\0\0\0\0\0\1a\0\0\1\0\1",
    "another class": b"\0\7\1\0\0\1\0\0\0\0\0\0\3api\7example\3com\0\0\1\0\3",
    "half an extension": b"\0\7\1\0\0\1\0\0\0\0\0\1\3api\7example\3com\0\0\1\0\1\0\0\x29",
    "empty": b"",
}


def test_malformed_questions(cell, lab):
    """None brings it down: the next one is answered."""
    lab.names.set("api.example.com", WEB)
    code = f"""
for name, data in {MALFORMED!r}.items():
    made = connect(SERVER, 53, 0.2, socket.SOCK_DGRAM)
    made.send(data)
    outcome(made.recv, 100)
    stream = connect(SERVER, 53, 0.2)
    stream.sendall(struct.pack("!H", len(data)) + data)
    outcome(stream.recv, 100)
    assert ask("api.example.com")[0] == "FINE", name
long = connect(SERVER, 53)
long.sendall(b"\\xff\\xff" + bytes(2000))
print(outcome(everything, long) in ("worked", "ECONNRESET"), ask("api.example.com")[0])
"""
    assert says(cell, code, "api.example.com:443") == "True FINE"


# ---- Names that lead elsewhere ----

RANGES = [PRIVATE, "172.16.0.5", "192.168.0.5", "127.0.0.1", "127.9.9.9", "169.254.169.254", "169.254.7.7",
          "100.64.0.5", "0.0.0.0", "255.255.255.255", "224.0.0.1", "198.18.0.5", "192.0.2.1", "240.0.0.1",
          "::1", "::", "fe80::1", "fd12:3456::5", "fd00:ec2::254", "ff02::1", "::ffff:10.0.0.5", "::ffff:127.0.0.1",
          "::10.0.0.5", "::127.0.0.1", "64:ff9b::a00:5", "64:ff9b::7f00:1", "2002:a00:5::1", "2001:db8::1"]


@pytest.mark.parametrize("address", RANGES)
def test_special_addresses_are_not_answers(cell, lab, address):
    """Not told, not reachable, and noted."""
    kind = AAAA if ":" in address else A
    lab.names.set("evil.example.com", address)
    code = f"print(ask('evil.example.com', {kind}))\nprint(outcome(connect, {address!r}, 80, 2))"
    found = result(cell, code, "*.example.com:80", "0.0.0.0/0:80", "[::/0]:80")
    answer, reached = found.out.split("\n")
    assert reached != "worked"
    if "::ffff:" in address:        # no address of that family: left out, whatever it carries
        assert answer == "('FINE', [])"
        return
    assert answer == "('REFUSED', [])"
    codes = [code for code, _ in found.refused()]
    assert codes[0] == "network.answer" and found.denials[0]["object"].startswith("evil.example.com (")


@pytest.mark.parametrize("address, rule", [(PRIVATE, "10.0.0.0/8"), (PRIVATE, PRIVATE),
                                           ("192.168.0.5", "192.168.0.0/24"),
                                           ("169.254.169.254", "169.254.169.254"), ("100.64.0.5", "100.64.0.0/10"),
                                           ("fd12:3456::5", "[fd12:3456::/32]")])
def test_a_range_that_is_named(cell, lab, address, rule):
    lab.names.set("inner.example.com", address)
    port = lab.says(address, b"x")
    code = f"print(addresses('inner.example.com'), outcome(connect, {address!r}, {port}))"
    assert cell.says(code, f"{rule}:{port}", f"inner.example.com:{port}") == f"['{address}'] worked"


def test_the_link_local_range_does_not_open_metadata(cell, lab):
    lab.names.set("evil.example.com", "169.254.169.254")
    port = lab.says("169.254.169.254", b"credentials")
    code = f"print(ask('evil.example.com')[0], outcome(connect, '169.254.169.254', {port}))"
    assert says(cell, code, f"169.254.0.0/16:{port}", f"*.example.com:{port}") == "REFUSED EACCES"


def test_the_good_ones_among_bad_ones(cell, lab):
    lab.names.set("mixed.example.com", PRIVATE, WEB, "127.0.0.1", OTHER)
    found = result(cell, "print(sorted(a[1] for a in ask('mixed.example.com')[1]))", "mixed.example.com:443")
    assert found.out == str([WEB, OTHER])
    assert [object for _, object in found.refused()] == [f"mixed.example.com ({address})"
                                                         for address in (PRIVATE, "127.0.0.1")]


def test_rebinding(cell, lab):
    """A second answer that is private is not passed on and leads nowhere; the first stays good."""
    lab.names.script("evil.example.com", lambda kind, times: Answer([(A, WEB if times == 0 else PRIVATE, 0)]))
    port = lab.says(WEB, b"x")
    lab.says(PRIVATE, b"secret", port)
    code = f"""
print(ask("evil.example.com"), outcome(connect, {WEB!r}, {port}))
for _ in range(3):
    print(ask("evil.example.com"), outcome(connect, {PRIVATE!r}, {port}))
print(outcome(connect, {WEB!r}, {port}))
"""
    lines = says(cell, code, f"evil.example.com:{port}").split("\n")
    assert lines == [str(("FINE", [(A, WEB, 0, "evil.example.com")])) + " worked",
                     *["('REFUSED', []) EACCES"] * 3, "worked"]


def test_a_name_moves(cell, lab):
    """To another public address: both were answers for this cell."""
    lab.names.script("api.example.com", lambda kind, times: Answer([(A, WEB if times == 0 else OTHER, 0)]))
    port = lab.says(WEB, b"x")
    lab.says(OTHER, b"y", port)
    code = f"""
print(ask("api.example.com")[1][0][1], outcome(connect, {OTHER!r}, {port}))
print(ask("api.example.com")[1][0][1], outcome(connect, {OTHER!r}, {port}), outcome(connect, {WEB!r}, {port}))
"""
    assert says(cell, code, f"api.example.com:{port}") == f"{WEB} EACCES\n{OTHER} worked worked"


def test_what_one_cell_learned_is_not_another_ones(cell, lab):
    lab.names.set("api.example.com", WEB)
    port = lab.says(WEB, b"x")
    code = f"print(addresses('api.example.com'), outcome(connect, {WEB!r}, {port}))"
    assert cell.says(code, f"api.example.com:{port}").endswith("worked")
    assert cell.says(f"print(outcome(connect, {WEB!r}, {port}))", f"api.example.com:{port}") == "EACCES"


def test_the_ports_belong_to_the_name(cell, lab):
    """Two names, two addresses, two ports: not crosswise."""
    lab.names.set("one.example.com", WEB)
    lab.names.set("two.example.com", OTHER)
    first = lab.says(WEB, b"x")
    second = lab.says(OTHER, b"x")
    for address, port in (WEB, second), (OTHER, first):
        lab.says(address, b"x", port)
    code = f"""
addresses("one.example.com"), addresses("two.example.com")
print(*(outcome(connect, address, port) for address in ({WEB!r}, {OTHER!r}) for port in ({first}, {second})))
"""
    assert cell.says(code, f"one.example.com:{first}", f"two.example.com:{second}") == "worked EACCES EACCES worked"


def test_an_evil_name_can_not_open_anothers_address(cell, lab):
    """A name of the attacker's that leads to the address of another name gives that address to its own ports only."""
    lab.names.set("mail.example.com", WEB)
    lab.names.set("evil.example.net", WEB)
    one, two, three = (lab.says(WEB, b"x") for _ in range(3))
    code = f"""
addresses("evil.example.net")
print(*(outcome(connect, {WEB!r}, port) for port in ({one}, {two}, {three})))
"""
    rules = f"mail.example.com:{one}", f"evil.example.net:{two}"
    assert cell.says(code, *rules) == "EACCES worked EACCES"


def test_lookups_are_shared_by_nobody(cell, lab):
    """The server's answer counts each time: there is no cache that keeps what is over."""
    lab.names.set("api.example.com", WEB, ttl=3600)
    says(cell, "for _ in range(3): ask('api.example.com')", "api.example.com:443")
    first = lab.names.count("api.example.com", A)
    lab.names.set("api.example.com", code=NXDOMAIN)
    assert says(cell, "print(ask('api.example.com')[0])", "api.example.com:443") == "NXDOMAIN"
    assert first >= 1


def test_datagrams_by_name(cell, lab):
    lab.names.set("voice.example.com", WEB)
    port = lab.udp_echo(WEB)
    code = f"""
made = socket.socket(type=socket.SOCK_DGRAM)
made.settimeout(20)
print(outcome(made.sendto, b"x", ({WEB!r}, {port})))
made.sendto(b"hello", ("voice.example.com", {port}))
print(made.recvfrom(100))
"""
    assert cell.says(code, f"udp://voice.example.com:{port}") == f"EACCES\n(b'hello', ('{WEB}', {port}))"


def test_names_of_international_form(cell, lab):
    lab.names.set("xn--bcher-kva.example", WEB)
    assert cell.says("print(addresses('b\\u00fccher.example'))", "bücher.example:443") == f"['{WEB}']"


def test_the_resolver_over_the_hosts_own_address(cell, lab):
    """Programs that have the host's name server written into them reach the cell's resolver there."""
    lab.settle(resolv=f"nameserver {OTHER}\n")
    own = lab.make(socket.SOCK_DGRAM, OTHER, 53)
    code = f"print(read(udp(wire('other.example.org', 1), {OTHER!r})))"
    assert says(cell, code, "api.example.com:443") == "('REFUSED', [])"
    own.setblocking(False)
    with pytest.raises(BlockingIOError):
        own.recv(100)
    own.close()


@pytest.mark.parametrize("protocol", ["tcp", "udp"])
def test_a_name_server_that_a_rule_names(cell, lab, protocol):
    """A rule for its address is a rule: then the program talks to it, and not to the cell's resolver."""
    lab.settle(resolv=f"nameserver {OTHER}\n")
    kind = socket.SOCK_STREAM if protocol == "tcp" else socket.SOCK_DGRAM
    with lab.make(kind, OTHER, 53, backlog=8 if protocol == "tcp" else None) as own:
        if protocol == "tcp":
            code = f"made = connect({OTHER!r}, 53)\nmade.sendall(b'direct')\nmade.close()"
        else:
            code = f"socket.socket(type=socket.SOCK_DGRAM).sendto(b'direct', ({OTHER!r}, 53))"
        cell.says(code, f"{protocol}://{OTHER}:53")
        own.settimeout(5)
        heard = own.accept()[0] if protocol == "tcp" else own
        assert heard.recv(100) == b"direct"
        heard.close()
