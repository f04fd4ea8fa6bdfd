"""Runs a command in a network namespace that slirp4netns serves, and prints what it prints: slirp_run.py COMMAND…"""
import os
import subprocess
import sys

ids = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
waits = ["sh", "-c", 'echo here; read go; exec "$@"', "sh", *sys.argv[1:]]
with subprocess.Popen(["unshare", *ids, "--net", *waits], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as inside:
    inside.stdout.readline()
    ready, tell = os.pipe()
    with subprocess.Popen(["slirp4netns", "--configure", "--mtu=65520", f"--ready-fd={tell}", str(inside.pid), "tap0"],
                          pass_fds=[tell], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as slirp:
        os.close(tell)
        if os.read(ready, 1):
            output = inside.communicate(b"go\n")[0]
            slirp.terminate()
            sys.stdout.buffer.write(output)
            sys.exit(inside.returncode)
        inside.kill()
        sys.exit(slirp.communicate()[1].decode().strip() or "slirp4netns ended")
