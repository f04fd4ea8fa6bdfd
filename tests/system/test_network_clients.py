"""Real clients in a cell, against servers outside it: output and exit code are those of the same run without a cell."""

import base64
import hashlib
import io
import json
import os
import pathlib
import pwd
import shutil
import signal
import subprocess
import tarfile
import tempfile
import zipfile

import pytest

from conftest import is_root, skip_because, which
from internet import (PYTHON, WEB, WEB6, Certificate, Hello, cell, file_handler, internet, lab, net,    # noqa: F401
                      until)
from test_programs import empty, write_files


@pytest.fixture
def same(cell, lab, workspace):
    """Runs a script bare and in a cell, both in the lab, in the same directory filled alike, and compares."""

    def run(files, *command, rules=(), flags=(), timeout=120, errors_too=True):
        found = []
        for inside in False, True:
            write_files(workspace, files)
            for name in files:
                if name.endswith("key"):
                    (workspace / name).chmod(0o600)
            if inside:
                ran = cell.run(*command, flags=[*net(*rules), *flags], timeout=timeout)
            else:
                ran = lab.bare(*command, env=cell.environment, cwd=workspace, timeout=timeout)
            found.append((ran.status, ran.out, ran.err if errors_too else None))
            last = ran
            empty(workspace)
        assert found[1] == found[0], last.err
        return last
    return run


@pytest.fixture
def site(lab):
    """An HTTP server with both addresses of a name."""
    port = lab.closed(WEB)
    lab.web(WEB, port)
    lab.web(WEB6, port)
    lab.names.set("www.example.com", WEB, WEB6)
    return port


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    which("openssl")
    return Certificate(tmp_path_factory.mktemp("certificate"), "www.example.com")


# ---- curl, wget ----

def test_curl(same, site, lab):
    which("curl")
    closed = lab.closed(WEB)
    script = f"""
url=http://www.example.com:{site}
curl -sS $url/one; curl -sS -4 $url/two; curl -sS -6 $url/three
curl -sS -d 'some words' $url/post; echo
curl -sS -o /dev/null -w '%{{http_code}} %{{remote_port}}\\n' $url/a $url/b $url/c
curl -sS --parallel $url/x $url/x $url/x 2>/dev/null
curl -sS http://www.example.com:{closed}/ 2>&1 | sed "s/after .* ms/after some time/"
curl -sS http://missing.example.com:{site}/; echo $?
"""
    ran = same({"script": script}, "sh", "script", rules=["*.example.com:1024-65535"])
    assert ran.out.startswith(f"hello /one at www.example.com:{site}\n") and ran.out.endswith("6\n")
    assert "curl: (7)" in ran.out


def test_curl_over_tls(same, lab, certificate):
    which("curl")
    lab.names.set("www.example.com", WEB)
    lab.names.set("wrong.example.com", WEB)
    port = lab.web(WEB, certificate=certificate)
    script = f"""
curl -sS --cacert ca.pem https://www.example.com:{port}/secret
curl -sS --cacert ca.pem https://wrong.example.com:{port}/ >/dev/null 2>&1; echo $?
curl -sS https://www.example.com:{port}/ >/dev/null 2>&1; echo $?
"""
    ran = same({"script": script, "ca.pem": certificate.path.read_text()}, "sh", "script",
               rules=[f"*.example.com:{port}"])
    assert ran.out == f"hello /secret at www.example.com:{port}\n60\n60\n"


def test_curl_is_told_what_is_refused(cell, lab, site):
    """A refused port is a permission, not a network that hangs."""
    which("curl")
    lab.names.set("www.example.com", WEB)
    ran = cell.run("curl", "-sS", f"http://www.example.com:{site}/", flags=net("www.example.com:1"))
    assert ran.status == 7 and ran.stdout == b""
    ran = cell.run("curl", "-sS", f"http://other.example.org:{site}/", flags=net("www.example.com:1"))
    assert ran.status == 6


def test_wget(same, site):
    which("wget")
    script = f"""
wget -q -O - http://www.example.com:{site}/one http://www.example.com:{site}/two
wget -q -O file http://www.example.com:{site}/three; echo $?; cat file
"""
    assert same({"script": script}, "sh", "script", rules=[f"www.example.com:{site}"]).out.count("hello") == 3


# ---- git ----

@pytest.fixture
def repository(tmp_path):
    which("git")
    place = tmp_path / "served"
    place.mkdir()
    script = """
git init -q -b main work; cd work
git config user.email a@example.com; git config user.name a
for i in 1 2 3; do head -c 100000 /dev/urandom | base64 >file$i; git add .; git commit -q -m "number $i"; done
cd ..; git clone -q --bare work repo.git; git -C repo.git update-server-info
"""
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(place), "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(["sh", "-ec", script], cwd=place, env=environment, check=True)
    return place


CLONE = """
export GIT_CONFIG_NOSYSTEM=1 HOME=$PWD
git clone -q URL copy; echo $?
git -C copy log --format=%s; cd copy && git fsck --no-dangling 2>&1 | tail -1; ls
cat file1 file2 file3 | sha256sum
"""


def test_git_over_http(same, lab, repository):
    lab.names.set("git.example.com", WEB)
    port = lab.web(WEB, handler=file_handler(repository))
    script = CLONE.replace("URL", f"http://git.example.com:{port}/repo.git")
    ran = same({"script": script}, "sh", "script", rules=[f"git.example.com:{port}"])
    assert ran.out.startswith("0\nnumber 3\nnumber 2\nnumber 1\n")


SSHD = """
Port {port}
ListenAddress {address}
HostKey {place}/host
PidFile {place}/pid
AuthorizedKeysFile {place}/authorized
UsePAM no
StrictModes no
PasswordAuthentication no
PermitRootLogin yes
"""


@pytest.fixture
def ssh_server(lab, repository):
    """A real one, as whoever runs the tests. Gives the port and the client's key."""
    which("ssh"), which("ssh-keygen")
    daemon = which("sshd")
    if is_root():
        os.makedirs("/run/sshd", mode=0o755, exist_ok=True)
    place = repository
    for name in "host", "client":
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", place / name], check=True)
    shutil.copy(place / "client.pub", place / "authorized")
    port = lab.closed(WEB)
    (place / "config").write_text(SSHD.format(port=port, address=WEB, place=place))
    log = open(place / "log", "wb")
    server = subprocess.Popen([*lab.prefix(place), daemon, "-D", "-e", "-f", place / "config"], stderr=log, stdout=log,
                              env={"PATH": "/usr/bin:/bin"})
    until(lambda: b"listening" in (place / "log").read_bytes() or server.poll() is not None, what="the start of sshd")
    assert server.poll() is None, (place / "log").read_text()
    yield port, (place / "client").read_text()
    server.terminate()
    server.wait(10)
    log.close()


def test_git_over_ssh(same, lab, repository, ssh_server):
    port, key = ssh_server
    lab.names.set("git.example.com", WEB)
    user = pwd.getpwuid(os.getuid()).pw_name
    command = ("ssh -F /dev/null -i $PWD/key -o IdentitiesOnly=yes -o StrictHostKeyChecking=no "
               "-o UserKnownHostsFile=$PWD/known -o LogLevel=ERROR -o BatchMode=yes")
    url = f"ssh://{user}@git.example.com:{port}{repository}/repo.git"
    script = f'export GIT_SSH_COMMAND="{command}"\n' + CLONE.replace("URL", url)
    ran = same({"script": script, "key": key}, "sh", "script", rules=[f"git.example.com:{port}"])
    assert ran.out.startswith("0\nnumber 3\nnumber 2\nnumber 1\n"), (ran.err, (repository / "log").read_text())


# ---- Python ----

def test_python_urllib(same, lab, certificate, site):
    port = lab.web(WEB, certificate=certificate)
    closed = lab.closed(WEB)
    code = f"""
import ssl, urllib.error, urllib.request
print(urllib.request.urlopen("http://www.example.com:{site}/x").read())
context = ssl.create_default_context(cafile="ca.pem")
print(urllib.request.urlopen("https://www.example.com:{port}/y", context=context).read())
for url in "http://www.example.com:{closed}/", "http://missing.example.com:{site}/":
    try:
        urllib.request.urlopen(url, timeout=20)
    except urllib.error.URLError as problem:
        print(problem)
"""
    ran = same({"program.py": code, "ca.pem": certificate.path.read_text()}, PYTHON, "-B", "program.py",
               rules=["*.example.com:1024-65535"])
    assert ran.status == 0 and "Connection refused" in ran.out and "not known" in ran.out


def test_python_httpx(same, lab, certificate, site):
    """Its own way through sockets, blocking and not; IPv4 and IPv6 names, many at once."""
    port, closed = lab.web(WEB, certificate=certificate), lab.closed(WEB)
    code = f"""
import asyncio, httpx
with httpx.Client(verify="ca.pem") as client:
    print(client.get("http://www.example.com:{site}/x").text, client.get("https://www.example.com:{port}/y").text)
    for url in "http://www.example.com:{closed}/", "http://missing.example.com:{site}/":
        try:
            client.get(url)
        except httpx.ConnectError as problem:
            print(problem)
async def many():
    async with httpx.AsyncClient() as client:
        answers = await asyncio.gather(*(client.get(f"http://www.example.com:{site}/{{n}}") for n in range(10)))
        print([answer.text for answer in answers])
asyncio.run(many())
"""
    ran = same({"program.py": code, "ca.pem": certificate.path.read_text()}, PYTHON, "-B", "program.py",
               rules=["*.example.com:1024-65535"])
    assert ran.status == 0 and "refused" in ran.out.lower() and "not known" in ran.out


MUSL = """
#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    for (int i = 2; i < argc; i++) {
        struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
        int failed = getaddrinfo(argv[i], argv[1], &hints, &found);
        if (failed) {
            puts(gai_strerror(failed));
            continue;
        }
        for (struct addrinfo *at = found; at; at = at->ai_next) {
            char host[100], answer[20] = "";
            getnameinfo(at->ai_addr, at->ai_addrlen, host, sizeof host, NULL, 0, NI_NUMERICHOST);
            int made = socket(at->ai_family, at->ai_socktype, 0);
            int refused = connect(made, at->ai_addr, at->ai_addrlen);
            printf("%s %s %zd\\n", host, refused ? "failed" : "connected", refused ? 0 : read(made, answer, 9));
            close(made);
        }
    }
}
"""


def test_musl(same, lab, tmp_path):
    """Another C library, with a resolver of its own: asks for both families at once, and knows no nsswitch."""
    port = lab.says(WEB, b"hello")
    lab.names.set("www.example.com", WEB)
    (tmp_path / "client.c").write_text(MUSL)
    subprocess.run([which("musl-gcc"), "-static", "-o", tmp_path / "client", tmp_path / "client.c"], check=True)
    ran = same({}, tmp_path / "client", str(port), "www.example.com", WEB, "missing.example.com",
               rules=[f"*.example.com:{port}"], flags=["--read", tmp_path / "client"])
    assert ran.out.splitlines()[0] == f"{WEB} connected 5" and "does not resolve" in ran.out, ran.out


ASYNCIO = """
import asyncio
async def one(number):
    reader, writer = await asyncio.open_connection("www.example.com", PORT)
    writer.write(b"GET /%d HTTP/1.0\\r\\nHost: x\\r\\n\\r\\n" % number)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer.split(b"\\r\\n\\r\\n")[1]
async def refused():
    try:
        await asyncio.open_connection("www.example.com", CLOSED)
    except OSError as problem:
        return problem.errno
async def late():
    try:
        await asyncio.wait_for(asyncio.open_connection("www.example.com", FULL), 0.5)
    except asyncio.TimeoutError:
        return "late"
async def main():
    print(sorted(await asyncio.gather(*map(one, range(20)))))
    print(await refused(), await late())
asyncio.run(main())
"""


def test_python_asyncio(same, lab, site):
    lab.names.set("www.example.com", WEB)
    full, kept = lab.full(WEB)
    code = ASYNCIO.replace("PORT", str(site)).replace("CLOSED", str(lab.closed(WEB))).replace("FULL", str(full))
    ran = same({"program.py": code}, PYTHON, "-B", "program.py", rules=["www.example.com:1024-65535"])
    assert ran.out.count("hello") == 20 and ran.out.endswith("111 late\n"), ran.err
    del kept


def test_smtplib(same, lab):
    """A sink for mail, with what it heard."""
    lab.names.set("mail.example.com", WEB)
    letters = []

    def sink(connection):
        stream = connection.makefile("rwb")

        def say(line):
            stream.write(line + b"\r\n")
            stream.flush()
        say(b"220 sink")
        while line := stream.readline():
            word = line.split()[0].upper()
            if word == b"DATA":
                say(b"354 go on")
                letter = b""
                while (line := stream.readline()) not in (b".\r\n", b""):
                    letter += line
                letters.append(letter)
                say(b"250 taken")
            elif word == b"QUIT":
                say(b"221 bye")
                return
            else:
                say(b"250 fine")
    port = lab.serve(WEB, sink)
    code = f"""
import smtplib
with smtplib.SMTP("mail.example.com", {port}, timeout=20, local_hostname="me") as mail:
    print(mail.sendmail("a@example.com", ["b@example.com"], "Subject: hello\\r\\n\\r\\n" + "line\\r\\n" * 5000))
    print(mail.noop())
"""
    assert same({"program.py": code}, PYTHON, "-B", "program.py", rules=[f"mail.example.com:{port}"]).status == 0
    assert len(letters) == 2 and letters[0] == letters[1] and len(letters[0]) > 30000


# ---- Node, Go, Java ----

NODE = """
const http = require('http'), net = require('net'), dns = require('dns');
function get(path) {
    return new Promise((done, failed) => http.get(`http://www.example.com:PORT${path}`, answer => {
        let body = '';
        answer.on('data', part => body += part);
        answer.on('end', () => done(answer.statusCode + ' ' + body.trim()));
    }).on('error', failed));
}
function code(port) {
    return new Promise(done => net.connect(port, 'www.example.com').on('error', problem => done(problem.code)));
}
(async () => {
    console.log(await get('/node'));
    console.log((await Promise.all([...Array(20).keys()].map(n => get('/' + n)))).length);
    const answer = await fetch('http://www.example.com:PORT/fetch', {method: 'POST', body: 'abc'});
    console.log(answer.status, await answer.text());
    console.log(await code(CLOSED));
    console.log(await new Promise(done => dns.lookup('missing.example.com', problem => done(problem.code))));
    console.log(await new Promise(done => dns.resolve4('www.example.com', (problem, list) => done(list))));
})();
"""


@pytest.mark.slow
def test_node(same, lab, site):
    which("node")
    lab.names.set("www.example.com", WEB)
    code = NODE.replace("PORT", str(site)).replace("CLOSED", str(lab.closed(WEB)))
    ran = same({"program.js": code}, "node", "program.js", rules=["*.example.com:1024-65535"])
    assert ran.status == 0 and "200 cba" in ran.out and "ECONNREFUSED" in ran.out and WEB in ran.out, ran.err


GO = """
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"syscall"
	"time"
)

func main() {
	url := os.Args[1]
	done := make(chan string, 20)
	for i := 0; i < 20; i++ {
		go func(n int) {
			answer, err := http.Get(fmt.Sprintf("%s/%d", url, n))
			if err != nil {
				done <- err.Error()
				return
			}
			body, _ := io.ReadAll(answer.Body)
			answer.Body.Close()
			done <- fmt.Sprint(answer.StatusCode, len(body) > 10)
		}(i)
	}
	for i := 0; i < 20; i++ {
		fmt.Println(<-done)
	}
	_, err := net.Dial("tcp", os.Args[2])
	fmt.Println(errors.Is(err, syscall.ECONNREFUSED))
	list, err := net.DefaultResolver.LookupIP(context.Background(), "ip4", "www.example.com")
	fmt.Println(list, err)
	_, err = net.LookupHost("missing.example.com")
	var problem *net.DNSError
	fmt.Println(errors.As(err, &problem) && problem.IsNotFound)
	_, err = net.DialTimeout("tcp", os.Args[3], 500*time.Millisecond)
	timeout, ok := err.(net.Error)
	fmt.Println(ok && timeout.Timeout())
}
"""


@pytest.fixture(scope="module")
def go_client(tmp_path_factory):
    which("go")
    place = tmp_path_factory.mktemp("go")
    (place / "main.go").write_text(GO)
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(place), "GOCACHE": str(place / "cache"),
                   "GO111MODULE": "off"}
    subprocess.run(["go", "build", "-o", "client", "main.go"], cwd=place, env=environment, check=True, timeout=300)
    return place / "client"


@pytest.mark.slow
@pytest.mark.parametrize("resolver", ["go", "cgo"])
def test_go(same, lab, site, go_client, resolver):
    lab.names.set("www.example.com", WEB)
    full, kept = lab.full(WEB)
    ran = same({}, "env", f"GODEBUG=netdns={resolver}", go_client, f"http://www.example.com:{site}",
               f"www.example.com:{lab.closed(WEB)}", f"{WEB}:{full}", rules=["*.example.com:1024-65535"],
               flags=["--read", go_client.parent])
    assert ran.out.count("200 true") == 20 and ran.out.endswith(f"true\n[{WEB}] <nil>\ntrue\ntrue\n"), ran.out
    del kept


JAVA = """
import java.io.*;
import java.net.*;

public class Main {
    public static void main(String[] arguments) throws Exception {
        String url = "http://www.example.com:" + arguments[0];
        HttpURLConnection connection = (HttpURLConnection) new URL(url + "/java").openConnection();
        System.out.println(connection.getResponseCode());
        System.out.print(new String(connection.getInputStream().readAllBytes()));
        Thread[] threads = new Thread[20];
        int[] codes = new int[20];
        for (int i = 0; i < 20; i++) {
            final int n = i;
            threads[i] = new Thread(() -> {
                try {
                    codes[n] = ((HttpURLConnection) new URL(url + "/" + n).openConnection()).getResponseCode();
                } catch (IOException problem) {
                    codes[n] = -1;
                }
            });
            threads[i].start();
        }
        int sum = 0;
        for (int i = 0; i < 20; i++) {
            threads[i].join();
            sum += codes[i];
        }
        System.out.println(sum);
        try {
            new Socket("www.example.com", Integer.parseInt(arguments[1]));
        } catch (ConnectException problem) {
            System.out.println(problem.getMessage());
        }
        try {
            InetAddress.getByName("missing.example.com");
        } catch (UnknownHostException problem) {
            System.out.println(problem.getMessage());
        }
    }
}
"""


@pytest.mark.slow
def test_java(same, lab, site, tmp_path):
    which("javac"), which("java")
    place = tmp_path / "java"
    place.mkdir()
    (place / "Main.java").write_text(JAVA)
    subprocess.run(["javac", "-d", place, place / "Main.java"], check=True, timeout=120)
    ran = same({}, "java", "-cp", place, "Main", str(site), str(lab.closed(WEB)),
               rules=["*.example.com:1024-65535"], flags=["--read", place])
    assert ran.status == 0 and "\n4000\nConnection refused" in ran.out, (ran.out, ran.err)


# ---- Databases ----

def test_redis(same, lab, tmp_path):
    which("redis-cli")
    place = tmp_path / "redis"
    place.mkdir()
    lab.names.set("redis.example.com", WEB)
    port = lab.closed(WEB)
    server = subprocess.Popen([*lab.prefix(place), which("redis-server"), "--bind", WEB, "--port", str(port), "--save",
                               "", "--protected-mode", "no"], stdout=subprocess.DEVNULL, env={"PATH": "/usr/bin:/bin"})
    try:
        def answers():
            try:
                with lab.connect(WEB, port) as made:
                    made.sendall(b"PING\r\n")
                    return made.recv(10) == b"+PONG\r\n"
            except OSError:
                return False
        until(answers, what="the start of redis")
        script = f"""
ask() {{ redis-cli -h redis.example.com -p {port} "$@"; }}
ask ping; ask flushall; ask set key value; ask get key; ask incr count
seq 1 2000 | sed 's/.*/set k& v&/' | redis-cli -h redis.example.com -p {port} --pipe | tail -1
ask dbsize
head -c 2000000 /dev/zero | tr '\\0' x | ask -x set large; ask strlen large
"""
        ran = same({"script": script}, "sh", "script", rules=[f"redis.example.com:{port}"])
        assert ran.out == "PONG\nOK\nOK\nvalue\n1\nerrors: 0, replies: 2000\n2002\nOK\n2000000\n", ran.err
    finally:
        server.terminate()
        server.wait(10)


@pytest.fixture
def postgres(lab):
    """It does not run as root: then as the user that comes with it. Gives the port."""
    found = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not found:
        skip_because("postgresql is not installed")
    become = []
    place = tempfile.mkdtemp(prefix="cellblock-postgres-")
    if is_root():
        user = pwd.getpwnam("postgres")
        os.chown(place, user.pw_uid, user.pw_gid)
        become = ["setpriv", "--reuid", str(user.pw_uid), "--regid", str(user.pw_gid), "--clear-groups"]
    port = lab.closed(WEB)
    environment = {"PATH": f"{found[-1].parent}:/usr/bin:/bin", "LC_ALL": "C.UTF-8", "HOME": place}
    subprocess.run([*become, found[-1], "-D", place + "/d", "-U", "me", "-A", "trust", "--no-sync"], check=True,
                   stdout=subprocess.DEVNULL, env=environment, cwd=place)
    with open(place + "/d/pg_hba.conf", "a") as rules:
        rules.write("host all all 0.0.0.0/0 trust\n")
    server = subprocess.Popen([*lab.prefix(place), *become, "postgres", "-D", place + "/d", "-c",
                               f"listen_addresses={WEB}", "-p", str(port), "-k", place], env=environment,
                              stderr=open(place + "/log", "wb"))
    try:
        until(lambda: b"ready to accept" in pathlib.Path(place, "log").read_bytes() or server.poll() is not None)
        assert server.poll() is None, pathlib.Path(place, "log").read_text()
        yield port
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(20)
        shutil.rmtree(place)


def test_psql(same, lab, postgres):
    which("psql")
    lab.names.set("db.example.com", WEB)
    script = f"""
ask() {{ psql -X -h db.example.com -p {postgres} -U me -d postgres -At "$@"; }}
ask -c 'drop table if exists t' -c 'create table t (n int, s text)' 2>/dev/null
seq 1 20000 | sed 's/.*/&,row &/' | ask -c 'copy t from stdin with (format csv)'
ask -c 'select count(*), sum(n), max(s) from t'
ask -c 'copy t to stdout' | sha256sum
ask -c 'select 1 / 0'; echo $?
ask -c 'select current_user'
"""
    ran = same({"script": script}, "sh", "script", rules=[f"db.example.com:{postgres}"])
    assert "COPY 20000\n20000|200010000|row 9999\n" in ran.out, (ran.out, ran.err)


# ---- Registries ----

def wheel():
    """The smallest package that pip installs."""
    files = {"tiny.py": "word = 'from the registry'\n",
             "tiny-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n",
             "tiny-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}
    files["tiny-1.0.dist-info/RECORD"] = "".join(
        f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b'=').decode()},"
        f"{len(text)}\n" for name, text in files.items()) + "tiny-1.0.dist-info/RECORD,,\n"
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return packed.getvalue()


@pytest.mark.slow
def test_pip(same, lab, tmp_path):
    if subprocess.run([PYTHON, "-m", "pip", "--version"], capture_output=True).returncode:
        skip_because("python3-pip is not installed")
    place = tmp_path / "registry"
    (place / "simple" / "tiny").mkdir(parents=True)
    packed = wheel()
    (place / "tiny-1.0-py3-none-any.whl").write_bytes(packed)
    (place / "simple" / "tiny" / "index.html").write_text(
        f'<a href="/tiny-1.0-py3-none-any.whl#sha256={hashlib.sha256(packed).hexdigest()}">'
        'tiny-1.0-py3-none-any.whl</a>')
    lab.names.set("pypi.example.com", WEB)
    port = lab.web(WEB, handler=file_handler(place))
    pip = (f"{PYTHON} -m pip install -q --disable-pip-version-check --no-cache-dir --root-user-action=ignore "
           f"--index-url http://pypi.example.com:{port}/simple --trusted-host pypi.example.com")
    script = f"""
{pip} --target out tiny; echo $?
PYTHONPATH=out {PYTHON} -B -c 'import tiny; print(tiny.word)'
{pip} --retries 0 --target out missing-package >/dev/null 2>&1; echo $?
"""
    ran = same({"script": script}, "sh", "script", rules=[f"pypi.example.com:{port}"])
    assert ran.out == "0\nfrom the registry\n1\n", ran.err


@pytest.mark.slow
def test_npm(same, lab):
    which("npm")
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        files = {"package.json": '{"name": "tiny", "version": "1.0.0"}', "index.js": "module.exports = 42;\n"}
        for name, text in files.items():
            entry = tarfile.TarInfo("package/" + name)
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    content = packed.getvalue()
    integrity = "sha512-" + base64.b64encode(hashlib.sha512(content).digest()).decode()
    lab.names.set("npm.example.com", WEB)
    port = lab.closed(WEB)

    class Registry(Hello):
        def do_GET(self):
            place = {"tarball": f"http://npm.example.com:{port}/tiny/-/tiny-1.0.0.tgz", "integrity": integrity}
            about = {"name": "tiny", "dist-tags": {"latest": "1.0.0"},
                     "versions": {"1.0.0": {"name": "tiny", "version": "1.0.0", "dist": place}}}
            body = content if self.path.endswith(".tgz") else json.dumps(about).encode()
            self.send_response(200 if "tiny" in self.path else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
    lab.web(WEB, port, handler=Registry)
    script = f"""
export HOME=$PWD npm_config_update_notifier=false
npm install --silent --no-audit --no-fund --cache $PWD/cache --registry http://npm.example.com:{port}/ tiny; echo $?
node -p 'require("tiny")'
"""
    ran = same({"script": script, "package.json": '{"name": "me", "version": "1.0.0"}'}, "sh", "script",
               rules=[f"npm.example.com:{port}"])
    assert ran.out == "0\n42\n", ran.err
