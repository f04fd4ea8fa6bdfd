"""Real programs behave in a default cell as they do without one: same output, same exit code, same files."""

import os
import shutil
import stat
import subprocess

import pytest

from conftest import skip_because, which

PYTHON = "/usr/bin/python3"


def write_files(directory, files):
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        if text.startswith("#!"):
            path.chmod(0o755)


def empty(directory):
    for entry in directory.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def tree(directory):
    """Every file with kind, permissions and owner."""
    found = {}
    for path in sorted(directory.rglob("*")):
        info = path.lstat()
        found[str(path.relative_to(directory))] = (stat.filemode(info.st_mode), info.st_uid, info.st_gid)
    return found


@pytest.fixture
def same(cellblock, workspace, home):
    """Runs a command bare and in a cell, in the same directory filled alike, and compares."""

    def run(files, *command, flags=(), files_too=True, timeout=120):
        write_files(workspace, files)
        done = subprocess.run(command, cwd=workspace, env=cellblock.environment, stdin=subprocess.DEVNULL,
                              capture_output=True, timeout=timeout)
        bare = (done.returncode, done.stdout.decode(), done.stderr.decode(), tree(workspace) if files_too else None)
        empty(workspace)
        write_files(workspace, files)
        ran = cellblock.run(*command, flags=flags, timeout=timeout)
        inside = (ran.status, ran.out, ran.err, tree(workspace) if files_too else None)
        assert inside == bare
        return ran

    return run


def python(same, code, **keywords):
    return same({"program.py": code}, PYTHON, "-B", "program.py", **keywords)


class TestPython:
    def test_language_and_errors(self, same):
        ran = python(same, "import sys\nprint(sys.argv, sys.flags.isolated)\nprint(sum(range(1000)))\n1 / 0\n")
        assert ran.status == 1 and "ZeroDivisionError" in ran.err

    def test_sqlite(self, same):
        code = """
import sqlite3
for name in ("data.db", ":memory:"):
    base = sqlite3.connect(name)
    base.execute("pragma journal_mode = wal")
    base.execute("create table t (n integer, s text)")
    base.executemany("insert into t values (?, ?)", ((n, str(n)) for n in range(1000)))
    base.commit()
    print(base.execute("select count(*), sum(n), max(s) from t").fetchone())
    base.close()
"""
        assert python(same, code).status == 0

    def test_ssl(self, same):
        code = """
import ssl, hashlib, hmac, secrets
context = ssl.create_default_context()
print(ssl.OPENSSL_VERSION, len(context.get_ca_certs()), context.minimum_version)
print(hashlib.sha256(b"x").hexdigest(), hmac.digest(b"k", b"m", "sha512").hex(), len(secrets.token_bytes(32)))
one, two = ssl.MemoryBIO(), ssl.MemoryBIO()
client = context.wrap_bio(one, two, server_hostname="example.org")
try:
    client.do_handshake()
except ssl.SSLWantReadError:
    print("hello sent", two.pending > 100)
"""
        assert python(same, code).status == 0

    @pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
    def test_multiprocessing(self, same, method):
        code = f"""
import multiprocessing as mp
from multiprocessing import shared_memory
def square(n):
    return n * n
def child(queue, lock, value, event):
    event.wait()
    with lock:
        value.value += 1
    queue.put("done")
if __name__ == "__main__":
    mp.set_start_method("{method}")
    with mp.Pool(3) as pool:
        print(pool.map(square, range(20)))
    queue, lock, value, event = mp.Queue(), mp.Lock(), mp.Value("i", 0), mp.Event()
    children = [mp.Process(target=child, args=(queue, lock, value, event)) for _ in range(4)]
    for process in children:
        process.start()
    event.set()
    print([queue.get() for _ in children])
    for process in children:
        process.join()
    print(value.value, [process.exitcode for process in children])
    memory = shared_memory.SharedMemory(create=True, size=100)
    memory.buf[0] = 7
    again = shared_memory.SharedMemory(memory.name)
    print(again.buf[0])
    again.close()
    memory.close()
    memory.unlink()
    with mp.Manager() as manager:
        shared = manager.list([1])
        shared.append(2)
        print(list(shared))
"""
        assert python(same, code).status == 0

    def test_threads_and_futures(self, same):
        code = """
import threading, concurrent.futures, queue
with concurrent.futures.ThreadPoolExecutor(16) as pool:
    print(sum(pool.map(lambda n: n * n, range(1000))))
with concurrent.futures.ProcessPoolExecutor(2) as pool:
    print(sorted(pool.map(abs, range(-10, 0))))
barrier = threading.Barrier(50)
threads = [threading.Thread(target=barrier.wait) for _ in range(50)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(threading.active_count())
"""
        assert python(same, code).status == 0

    def test_subprocesses(self, same):
        code = """
import subprocess, os, sys
print(subprocess.run("echo $((6 * 7)) | tr 4 x", shell=True, capture_output=True))
print(subprocess.run(["cat"], input=b"x" * 200000, capture_output=True).stdout == b"x" * 200000)
print(subprocess.run([sys.executable, "-c", "import sys; sys.exit(9)"]).returncode)
print(subprocess.call("kill -9 $$", shell=True), os.system("exit 3"))
child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
child.terminate()
print(child.wait())
try:
    subprocess.run(["sleep", "1000"], timeout=0.1)
except subprocess.TimeoutExpired:
    print("timeout")
try:
    subprocess.run(["no-such-program"])
except FileNotFoundError as problem:
    print(problem)
pid = os.posix_spawn("/bin/sh", ["sh", "-c", "exit 4"], os.environ)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
        assert python(same, code).status == 0

    def test_asyncio(self, same):
        code = """
import asyncio
async def echo(reader, writer):
    writer.write((await reader.readline()).upper())
    await writer.drain()
    writer.close()
async def main():
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async def ask(n):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"word %d\\n" % n)
        answer = await reader.readline()
        writer.close()
        return answer
    print(await asyncio.gather(*(ask(n) for n in range(20))))
    local = await asyncio.start_unix_server(echo, "socket")
    reader, writer = await asyncio.open_unix_connection("socket")
    writer.write(b"unix\\n")
    print(await reader.readline())
    writer.close()
    local.close()
    child = await asyncio.create_subprocess_shell("echo child; exit 2", stdout=asyncio.subprocess.PIPE)
    print((await child.communicate())[0], child.returncode)
asyncio.run(main())
"""
        assert python(same, code).status == 0

    def test_temporary_files(self, same):
        code = """
import tempfile, os, pathlib, shutil
with tempfile.TemporaryDirectory() as directory:
    pathlib.Path(directory, "f").write_text("x")
    print(tempfile.gettempdir(), os.listdir(directory))
with tempfile.NamedTemporaryFile("w+") as named:
    named.write("text"); named.flush()
    print(open(named.name).read())
with tempfile.TemporaryFile() as nameless:
    nameless.write(b"1"); print(nameless.tell())
with tempfile.TemporaryDirectory(dir=".") as here:
    print(os.path.isdir(here))
fd = os.memfd_create("m"); os.write(fd, b"abc"); print(os.pread(fd, 3, 0))
print(os.path.expanduser("~/x") == os.environ["HOME"] + "/x", shutil.disk_usage("/tmp").total > 0)
"""
        assert python(same, code).status == 0

    def test_files(self, same):
        code = """
import os, mmap, fcntl, shutil, pathlib
pathlib.Path("a/b").mkdir(parents=True)
pathlib.Path("a/b/f").write_bytes(b"0" * 10000)
with open("a/b/f", "r+b") as f:
    m = mmap.mmap(f.fileno(), 0); m[0:3] = b"abc"; m.flush(); m.close()
    fcntl.flock(f, fcntl.LOCK_EX); fcntl.lockf(f, fcntl.LOCK_EX)
    os.fsync(f.fileno())
os.link("a/b/f", "a/hard"); os.symlink("b/f", "a/soft"); os.rename("a/b", "a/c")
os.mkfifo("fifo"); os.truncate("a/hard", 5); os.chmod("a/hard", 0o600)
print(sorted(os.walk("a")), open("a/hard").read(), os.readlink("a/soft"), os.path.exists("a/soft"))
shutil.copytree("a/c", "d"); shutil.move("d", "e"); shutil.make_archive("archive", "zip", "e")
print(sorted(os.listdir(".")), os.stat("a/hard").st_nlink)
os.utime("a/hard", (1, 2)); print(os.stat("a/hard").st_mtime)
os.replace("a/hard", "top"); shutil.rmtree("e"); print(os.access("top", os.W_OK))
"""
        assert python(same, code).status == 0

    @pytest.mark.slow
    def test_numpy(self, same):
        if subprocess.run([PYTHON, "-c", "import numpy"], capture_output=True).returncode:
            skip_because("numpy is not installed")
        code = """
import numpy
generator = numpy.random.default_rng(7)
a = generator.random((200, 200))
print((a @ numpy.linalg.inv(a)).round(6).trace(), numpy.fft.fft(a[0]).real.round(3)[:4].tolist())
numpy.save("a.npy", a); print((numpy.load("a.npy", mmap_mode="r") == a).all())
"""
        assert python(same, code).status == 0

    def test_http_server(self, same):
        code = """
import http.server, threading, urllib.request
class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/program.py").read()[:20])
server.shutdown()
"""
        assert python(same, code).status == 0

    def test_venv_made_inside(self, same):
        same({}, "sh", "-c", f"{PYTHON} -m venv --without-pip v && v/bin/python -c 'import sys; print(sys.prefix)'")

    @pytest.mark.slow
    def test_pytest(self, same):
        files = {
            "pkg/__init__.py": "def add(a, b):\n    return a + b\n",
            "tests/test_add.py": "import pytest\nfrom pkg import add\n\n@pytest.mark.parametrize('n', range(20))\n"
                                 "def test_add(n, tmp_path):\n    (tmp_path / 'f').write_text(str(n))\n"
                                 "    assert add(n, 1) == n + 1\n\n"
                                 "def test_wrong():\n    assert add(1, 1) == 3\n",
        }
        write = "sed -E 's/in [0-9.]+s/in N s/; /^rootdir/d'"
        script = f"{PYTHON} -B -m pytest -p no:cacheprovider tests > out; status=$?; {write} out; rm out; exit $status"
        ran = same(files, "sh", "-c", script)
        assert ran.status == 1 and "20 passed" in ran.out


def node(same, code):
    which("node")
    return same({"program.js": code}, "node", "program.js")


class TestNode:
    def test_files_and_children(self, same):
        code = """
const fs = require('fs'), path = require('path'), child = require('child_process'), os = require('os');
fs.mkdirSync('a/b', {recursive: true});
fs.writeFileSync('a/b/f', 'text');
fs.symlinkSync('b/f', 'a/link');
console.log(fs.readFileSync('a/link', 'utf8'), fs.readdirSync('a'), os.tmpdir());
console.log(child.execSync('echo $((6*7))').toString());
console.log(child.spawnSync('cat', {input: 'x'.repeat(100000)}).stdout.length);
const forked = child.fork(__filename + '.child.js');
forked.on('message', m => { console.log(m); forked.send('bye'); });
forked.on('exit', code => { console.log('exit', code); process.exit(5); });
"""
        child = "process.send({hello: 1}); process.on('message', () => process.exit(3));\n"
        files = {"program.js": code, "program.js.child.js": child}
        which("node")
        assert same(files, "node", "program.js").status == 5

    def test_workers(self, same):
        code = """
const {Worker, isMainThread, parentPort, workerData} = require('worker_threads');
if (isMainThread) {
    const results = [];
    for (let i = 0; i < 4; i++)
        new Worker(__filename, {workerData: i}).on('message', m => {
            results.push(m);
            if (results.length === 4) console.log(results.sort());
        });
} else parentPort.postMessage(workerData * workerData);
"""
        assert node(same, code).status == 0

    def test_http(self, same):
        code = """
const http = require('http'), crypto = require('crypto');
const server = http.createServer((q, s) => s.end('hello ' + q.url)).listen(0, '127.0.0.1', () =>
    http.get({port: server.address().port, host: '127.0.0.1', path: '/x'}, r => {
        r.on('data', d => console.log(d.toString())).on('end', () => server.close());
    }));
console.log(crypto.createHash('sha1').update('x').digest('hex'));
"""
        assert node(same, code).status == 0

    def test_an_error(self, same):
        which("node")
        code = "process.exitCode = 4; Promise.reject(new Error('x')).catch(e => console.log(e.message))"
        assert same({}, "node", "-e", code).status == 4


MAKEFILE = """
objects = main.o $(patsubst %,part%.o,1 2 3 4 5 6 7 8)
program: $(objects)
\t$(CC) -o $@ $^
%.o: %.c parts.h
\t$(CC) -O1 -c -o $@ $<
part%.c:
\tprintf '#include "parts.h"\\nint part%s(void) { return %s; }\\n' $* $* > $@
check: program
\t./program
"""


class TestBuilding:
    @pytest.mark.slow
    def test_gcc_and_make(self, same):
        which("gcc"), which("make")
        numbers = range(1, 9)
        files = {
            "Makefile": MAKEFILE,
            "parts.h": "".join(f"int part{n}(void);\n" for n in numbers),
            "main.c": '#include <stdio.h>\n#include "parts.h"\nint main(void) { printf("%d\\n", '
                      + " + ".join(f"part{n}()" for n in numbers) + "); return 3; }\n",
        }
        ran = same(files, "make", "-j4", "--output-sync", "-s", "CC=gcc", "program")
        assert ran.status == 0
        assert same(files, "sh", "-c", "make -s -j4 CC=gcc program && ./program").status == 3

    def test_a_compile_error(self, same):
        which("gcc")
        ran = same({"bad.c": "int main(void) { return x; }\n"}, "gcc", "-c", "bad.c")
        assert ran.status == 1 and "undeclared" in ran.err

    def test_sanitizers_and_debug(self, same):
        which("gcc")
        code = "#include <stdlib.h>\nint main(void) { char *p = malloc(10); free(p); return p != NULL; }\n"
        assert same({"a.c": code}, "sh", "-c", "gcc -g -O2 -pthread -o a a.c -lm && ./a; echo $?").out == "1\n"


GIT = """
set -e
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.org GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example.org
export GIT_AUTHOR_DATE='2020-01-01T00:00:00Z' GIT_COMMITTER_DATE='2020-01-01T00:00:00Z' GIT_TEMPLATE_DIR=
git init -q -b main repo
cd repo
echo one > a; git add a; git commit -q -m first
git branch side; git checkout -q side
mkdir -p d/e; echo two > d/e/b; git add -A; git commit -q -m second
git checkout -q main; echo three > c; git add c; git commit -q -m third
git merge -q --no-edit side
git tag v1; git log --oneline --graph --all; git status --short; git diff HEAD~1 --stat
git mv a renamed; git stash -q; git stash pop -q; git reset -q --hard; git gc -q
git clone -q . ../copy
cd ../copy; git log --format='%H %s'; git rev-parse v1; git fsck
git worktree add -q ../tree side; ls ../tree
"""


class TestTools:
    @pytest.mark.slow
    def test_git(self, same):
        which("git")
        same({}, "sh", "-c", GIT, files_too=False)

    def test_git_in_an_existing_repository(self, same, workspace):
        which("git")
        script = ("git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x --date=2020-01-01 && "
                  "git log --format=%s && git switch -q -c other && git branch --format='%(refname)'")
        files = {".git/HEAD": "ref: refs/heads/main\n", ".git/config": "[core]\n\tbare = false\n",
                 ".git/objects/info/keep": "", ".git/refs/heads/.keep": ""}
        same(files, "sh", "-c", script, files_too=False)

    def test_perl(self, same):
        which("perl")
        code = """use strict; use warnings; use File::Temp 'tempfile'; use POSIX; use Data::Dumper; use Socket;
my ($h, $n) = tempfile(); print $h "x\\n"; close $h; print -s $n, "\\n";
my $pid = fork(); if (!$pid) { exit 3 } waitpid $pid, 0; print $? >> 8, "\\n";
open my $p, '-|', 'echo from a pipe' or die; print <$p>; close $p;
print join(',', sort { $a <=> $b } map { $_ ** 2 } 1 .. 10), "\\n"; 
local $Data::Dumper::Sortkeys = 1; print Dumper({a => 1});
socketpair(my $a, my $b, AF_UNIX, SOCK_STREAM, PF_UNSPEC) or die; syswrite $a, "s"; sysread $b, my $x, 1; print "$x\\n";
exit 6;
"""
        assert same({"p.pl": code}, "perl", "p.pl").status == 6

    @pytest.mark.slow
    @pytest.mark.parametrize("shell", ["sh", "bash"])
    def test_hundreds_of_pipelines(self, same, shell):
        script = """
i=0
while [ $i -lt 300 ]; do
    echo "line $i" | sed 's/line/number/' | tr a-z A-Z | cut -d' ' -f2 >> out
    i=$((i + 1))
done
sort -n out | tail -1; wc -l < out; x=$(grep -c 9 out); echo $x
"""
        assert same({"script": script}, shell, "script").out.split() == ["299", "300", "57"]

    def test_shell_features(self, same):
        which("bash")
        script = """
set -u; a=(1 2 3); echo ${a[@]} ${#a[*]}; declare -A m=([k]=v); echo ${m[k]}
f() { local x=$1; return $x; }; f 3; echo $?
coproc cat; echo hi >&${COPROC[1]}; read -u ${COPROC[0]} line; echo $line
sleep 1000 & kill $!; wait $! 2>/dev/null; echo $?
trap 'echo bye' EXIT; diff <(echo a) <(echo b); echo $((2 ** 40)) {1..3}; ulimit -c; umask; exit 7
"""
        assert same({"s.sh": script}, "bash", "s.sh").status == 7

    def test_tar_find_sed(self, same):
        script = """
set -e
mkdir -p t/a t/b; for n in 1 2 3; do echo $n > t/a/f$n; done; ln -s ../a/f1 t/b/l; chmod 640 t/a/f2
tar -cf t.tar t; tar -czf t.tgz t; rm -r t; tar -xf t.tar; find t | sort; find t -type f -exec sed -i 's/^/x/' {} +
cat t/a/*; find . -name 'f*' -newer t.tar -delete; tar -tzf t.tgz | sort; xargs -a t/b/l -r echo 2>/dev/null || true
cp -a t u; du -s u > /dev/null; ls -l --time-style=+ u | wc -l; awk 'BEGIN { print 1 / 4 }'
gzip -k t.tar; zcat t.tar.gz | cmp - t.tar; rm t.tar.gz t.tgz
split -b 2000 t.tar part.; cat part.* | md5sum > /dev/null
"""
        same({"s": script}, "sh", "s")

    def test_sqlite_program(self, same):
        which("sqlite3")
        same({}, "sqlite3", "d.db", "create table t(x); insert into t values (1), (2); select sum(x) from t;")

    def test_locale_and_time(self, same):
        script = "date -u -d @0; TZ=Europe/Berlin date -d @0; locale; printf 'ä' | wc -m; getconf PAGESIZE; nproc"
        same({}, "sh", "-c", script)

    def test_names_of_users(self, same):
        same({}, "sh", "-c", "id -u; id -un; getent passwd root; getent hosts localhost")

    def test_debuggers_and_their_like_fail_politely(self, cellblock):
        ran = cellblock.sh("ls /proc/1/fd; mount -t tmpfs x /tmp; unshare -U true; echo on we go")
        assert ran.out.endswith("on we go\n")
