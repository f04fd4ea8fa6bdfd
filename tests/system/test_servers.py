"""Runtimes and servers in a default cell, with their clients beside them: same output and exit code as without one."""

import os
import pathlib
import socket
import subprocess

import pytest

from conftest import needs_user, skip_because, which
from test_programs import MAKEFILE, PYTHON, same    # noqa: F401: a fixture is used by its name


def free_port():
    """For the run without a cell; in a cell every port is free."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


# ---- Many processes ----

@pytest.mark.slow
def test_three_stage_pipelines(same):
    script = """
i=0
while [ $i -lt 100 ]; do
    seq $i $((i + 50)) | grep -v 7 | wc -l
    printf '%s\\n' c a b | sort -r | head -n 1
    i=$((i + 1))
done
"""
    assert len(same({"script": script}, "sh", "script").out.split()) == 200


@pytest.mark.slow
def test_make_with_eight_jobs(same):
    which("gcc"), which("make")
    count = 40
    files = {
        "Makefile": MAKEFILE.replace("1 2 3 4 5 6 7 8", " ".join(map(str, range(count)))),
        "parts.h": "".join(f"int part{n}(void);\n" for n in range(count)),
        "main.c": '#include <stdio.h>\n#include "parts.h"\nint main(void) { printf("%d\\n", '
                  + " + ".join(f"part{n}()" for n in range(count)) + "); return 3; }\n",
    }
    ran = same(files, "sh", "-c", "make -s -j8 CC=gcc program && ./program")
    assert (ran.status, ran.out) == (3, "780\n")


@pytest.mark.slow
def test_pytest_in_many_processes(same):
    if subprocess.run([PYTHON, "-c", "import xdist"], capture_output=True).returncode:
        skip_because("pytest-xdist is not installed")
    files = {
        "test_many.py": "import os, pytest\n\n@pytest.mark.parametrize('n', range(60))\n"
                        "def test_it(n, tmp_path, worker_id):\n    assert worker_id.startswith('gw')\n"
                        "    (tmp_path / 'f').write_text(str(n))\n\ndef test_wrong():\n    assert 1 == 2\n",
    }
    script = (f"{PYTHON} -B -m pytest -n 4 -q -p no:cacheprovider test_many.py >out; status=$?; "
              "tail -n 1 out | sed -E 's/in [0-9.]+s.*//'; rm out; exit $status")
    ran = same(files, "sh", "-c", script)
    assert ran.status == 1 and "60 passed" in ran.out


# ---- Go ----

GO = """
package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
	"time"
)

func main() {
	// Many goroutines and a collected heap.
	var group sync.WaitGroup
	sums := make(chan int, 1000)
	for i := 0; i < 1000; i++ {
		group.Add(1)
		go func(n int) {
			defer group.Done()
			data := make([]byte, 64<<10)
			data[n%len(data)] = 1
			runtime.Gosched()
			sums <- n
		}(i)
	}
	group.Wait()
	close(sums)
	total := 0
	for n := range sums {
		total += n
	}
	runtime.GC()
	fmt.Println("goroutines", total)

	// A server and its clients.
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "hello ", r.URL.Path)
	})}
	go server.Serve(listener)
	for i := 0; i < 20; i++ {
		answer, err := http.Get(fmt.Sprintf("http://%s/%d", listener.Addr(), i))
		if err != nil {
			panic(err)
		}
		body, _ := io.ReadAll(answer.Body)
		answer.Body.Close()
		if i == 19 {
			fmt.Println(answer.StatusCode, string(body))
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	fmt.Println("shutdown", server.Shutdown(ctx))

	// Other processes, files, signals.
	for i := 0; i < 20; i++ {
		exec.Command("true").Run()
	}
	out, err := exec.Command("sh", "-c", "echo child; exit 3").Output()
	fmt.Printf("%q %v\\n", out, err)
	notified := make(chan os.Signal, 1)
	signal.Notify(notified, syscall.SIGUSR1)
	syscall.Kill(os.Getpid(), syscall.SIGUSR1)
	fmt.Println(<-notified)
	os.WriteFile("written", []byte("by go"), 0o644)
	_, err = os.ReadFile("/etc/shadow.not.there")
	fmt.Println(err)
	os.Exit(4)
}
"""


@pytest.fixture(scope="module")
def go_program(tmp_path_factory):
    """Compiled outside, once."""
    which("go")
    place = tmp_path_factory.mktemp("go")
    (place / "main.go").write_text(GO)
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(place), "GOCACHE": str(place / "cache"), "GO111MODULE": "off"}
    subprocess.run(["go", "build", "-o", "program", "main.go"], cwd=place, env=environment, check=True, timeout=300)
    return place / "program"


@pytest.mark.slow
class TestGo:
    def test_a_program(self, same, go_program):
        ran = same({}, go_program, flags=["--read", go_program.parent])
        assert ran.status == 4 and "goroutines 499500" in ran.out

    def test_building_inside(self, cellblock, workspace):
        """Without a cache from before: private, in the cell's home."""
        which("go")
        (workspace / "main.go").write_text('package main\n\nimport "fmt"\n\nfunc main() { fmt.Println(6 * 7) }\n')
        script = "GO111MODULE=off go build -o program main.go && ./program"
        ran = cellblock.sh(script, timeout=300)
        assert (ran.status, ran.out) == (0, "42\n"), ran.err


# ---- Java ----

JAVA = """
import com.sun.net.httpserver.HttpServer;
import java.io.*;
import java.net.*;
import java.nio.file.*;
import java.util.*;
import java.util.concurrent.*;
import java.util.stream.*;

public class Main {
    public static void main(String[] arguments) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(16);
        List<Future<Long>> sums = new ArrayList<>();
        for (int i = 0; i < 100; i++) {
            final int n = i;
            sums.add(pool.submit(() -> LongStream.range(0, 1000L * n).sum()));
        }
        long total = 0;
        for (Future<Long> sum : sums)
            total += sum.get();
        pool.shutdown();
        System.out.println("threads " + total + " " + pool.awaitTermination(5, TimeUnit.SECONDS));

        // More garbage than the heap holds.
        List<byte[]> kept = new ArrayList<>();
        for (int i = 0; i < 2000; i++) {
            byte[] block = new byte[1 << 18];
            block[i] = 1;
            if (i % 100 == 0)
                kept.add(block);
        }
        System.out.println("kept " + kept.size() + " " + IntStream.range(0, 1000).parallel().sum());

        HttpServer server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
        server.createContext("/", exchange -> {
            byte[] answer = ("hello " + exchange.getRequestURI()).getBytes();
            exchange.sendResponseHeaders(200, answer.length);
            exchange.getResponseBody().write(answer);
            exchange.close();
        });
        server.start();
        URL url = new URL("http://127.0.0.1:" + server.getAddress().getPort() + "/x");
        try (InputStream stream = url.openStream()) {
            System.out.println(new String(stream.readAllBytes()));
        }
        server.stop(0);

        Process child = new ProcessBuilder("sh", "-c", "echo child; exit 3").start();
        System.out.print(new String(child.getInputStream().readAllBytes()));
        System.out.println(child.waitFor());
        Files.writeString(Path.of("written"), "by java");
        Path temporary = Files.createTempFile("x", "y");
        Files.delete(temporary);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> System.out.println("bye")));
        try {
            new FileInputStream("/no/such/file");
        } catch (FileNotFoundException problem) {
            System.out.println(problem.getMessage());
        }
        System.exit(4);
    }
}
"""


@pytest.mark.slow
@pytest.mark.parametrize("options", ["", "-Xmx64m -XX:+UseSerialGC"], ids=["usual", "small"])
def test_java(same, options):
    which("javac"), which("java")
    ran = same({"Main.java": JAVA}, "sh", "-c", f"javac Main.java && exec java {options} Main", timeout=180)
    assert ran.status == 4 and ran.out.endswith("bye\n")


# ---- Node: threads that start processes, processes that start threads ----

NODE = """
const {Worker, isMainThread, parentPort, workerData} = require('worker_threads');
const child = require('child_process');
if (isMainThread && process.argv[2] !== 'child') {
    const shared = new Int32Array(new SharedArrayBuffer(4));
    const found = [];
    for (let i = 0; i < 6; i++)
        new Worker(__filename, {workerData: {i, shared}}).on('message', m => {
            found.push(m);
            if (found.length < 6) return;
            console.log(found.sort().join(' '), Atomics.load(shared, 0));
            const forked = child.fork(__filename, ['child']);
            forked.on('message', m => console.log('child says', m));
            forked.on('exit', code => process.exit(code));
        });
} else if (isMainThread) {
    new Worker('require("worker_threads").parentPort.postMessage(6 * 7)', {eval: true})
        .on('message', m => process.send(m, () => process.exit(5)));
} else {
    Atomics.add(workerData.shared, 0, workerData.i);
    child.execFile('sh', ['-c', `echo thread ${workerData.i}`], (problem, out) => parentPort.postMessage(out.trim()));
}
"""


@pytest.mark.slow
def test_node_threads_and_processes(same):
    which("node")
    ran = same({"program.js": NODE}, "node", "program.js")
    assert ran.status == 5 and ran.out.endswith("child says 42\n")


# ---- Servers ----

REDIS = """
redis-server --port $PORT --bind 127.0.0.1 --save '' --dir . --logfile redis.log &
ask() { redis-cli -p $PORT "$@"; }
tries=0
until ask ping >/dev/null 2>&1 || [ $tries -gt 200 ]; do tries=$((tries + 1)); sleep 0.05; done
ask ping; ask set key value; ask get key; ask incrby count 41; ask incr count
ask rpush list a b c; ask lrange list 0 -1
ask eval 'local s = 0 for i = 1, 1000 do s = s + i end return s' 0
for i in 1 2 3 4 5; do ask incr together >/dev/null & jobs="$jobs $!"; done; wait $jobs; ask get together
redis-benchmark -p $PORT -q -n 2000 -c 20 -t set,get >/dev/null; echo $?
ask bgsave; ask shutdown save
wait; echo over $?
head -c 5 dump.rdb
"""


@pytest.mark.slow
def test_redis(same):
    which("redis-server")
    script = REDIS.replace("$PORT", str(free_port()))
    ran = same({"script": script}, "sh", "script", files_too=False)
    assert ran.status == 0 and ran.out.startswith("PONG\nOK\nvalue\n41\n42\n") and ran.out.endswith("over 0\nREDIS")


NGINX = """
daemon off;
{user}
worker_processes 2;
pid nginx.pid;
error_log error.log notice;
events {{ worker_connections 64; }}
http {{
    access_log access.log;
    client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    gzip on;
    gzip_min_length 10;
    server {{
        listen 127.0.0.1:{port};
        root www;
        location /again/ {{ proxy_pass http://127.0.0.1:{port}/; }}
        location /made {{ return 201 "made\\n"; }}
    }}
}}
"""
NGINX_CLIENT = """
import subprocess, sys, time, urllib.error, urllib.request
server = subprocess.Popen(["nginx", "-e", "error.log", "-p", ".", "-c", "nginx.conf"])
def ask(path, **headers):
    try:
        answer = urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=headers))
        return answer.status, answer.headers.get("Content-Encoding"), len(answer.read())
    except urllib.error.HTTPError as problem:
        return problem.code
port = int(sys.argv[1])
deadline = time.monotonic() + 20
while True:
    try:
        ask("/made")
        break
    except OSError:
        if time.monotonic() > deadline or server.poll() is not None:
            sys.exit(open("error.log").read())
        time.sleep(0.02)
print(ask("/made"), ask("/index.html"), ask("/large"), ask("/again/large"), ask("/missing"))
print([ask("/index.html", **{"Accept-Encoding": "gzip"})[1] for _ in range(20)][-1])
server.send_signal(1)       # read the configuration again, with new workers
print(ask("/made"))
server.terminate()
print(server.wait())
print(open("access.log").read().count("GET"))
"""


@pytest.mark.slow
def test_nginx(same):
    """Called by root it would become somebody else, which is told not to: a cell has one id."""
    which("nginx")
    port = free_port()
    files = {"nginx.conf": NGINX.format(port=port, user="user root root;" if os.geteuid() == 0 else ""),
             "client.py": NGINX_CLIENT, "www/index.html": "<p>hello</p>\n" * 20, "www/large": "x" * 3_000_000}
    ran = same(files, PYTHON, "-B", "client.py", str(port), files_too=False)
    assert ran.status == 0 and "(200, None, 3000000)" in ran.out, ran.err


POSTGRES = """
set -e
PATH={bin}:$PATH
initdb -D d -U me -A trust --no-sync --no-instructions >initdb.log
pg_ctl -D d -s -w -l server.log -o "-c listen_addresses='127.0.0.1' -p {port} -k $PWD/d" start
ask() {{ psql -X -h "$PWD/d" -p {port} -U me -d postgres -At "$@"; }}
ask -c 'create table t (n int, s text)' -c "insert into t select i, 'row ' || i from generate_series(1, 10000) i"
ask -c 'create index on t (n)' -c 'select count(*), sum(n), max(s) from t'
ask -c 'set max_parallel_workers_per_gather = 2' -c 'select count(*) from t a join t b using (n)'
psql -X -h 127.0.0.1 -p {port} -U me -d postgres -Atc 'select 6 * 7'
ask -c 'select 1 / 0' || echo "refused $?"
ask -c 'show dynamic_shared_memory_type'
pg_ctl -D d -s -m fast stop
echo stopped
"""


@pytest.mark.slow
@needs_user     # it refuses to run as root
def test_postgres(same):
    found = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not found:
        skip_because("postgresql is not installed")
    script = POSTGRES.format(bin=found[-1].parent, port=free_port())
    ran = same({"script": script}, "sh", "script", files_too=False)
    assert ran.status == 0 and ran.out.endswith("stopped\n"), ran.err
