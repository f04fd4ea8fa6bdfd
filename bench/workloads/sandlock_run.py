"""Runs a command through the Python package sandlock: sandlock_run.py WORKSPACE COUNT PROGRAM [ARGUMENT…].

COUNT 0: once, with the caller's own streams. Otherwise one run that is not counted, then COUNT runs, and a line with
the nanoseconds of each: the interpreter and the package are loaded already, so only the sandbox itself is timed."""
import os
import sys
import time

import sandlock


def sandbox(workspace):
    system = [path for path in ("/usr", "/bin", "/lib", "/lib64", "/etc", "/opt", "/proc") if os.path.exists(path)]
    return sandlock.Sandbox(fs_readable=system, fs_writable=[workspace, "/dev"], cwd=workspace)


def timed(workspace, command):
    started = time.monotonic_ns()
    box = sandbox(workspace)
    if box.run_interactive(command) != 0:
        sys.exit(f"{command[0]} failed in sandlock")
    return time.monotonic_ns() - started


def main():
    workspace, count, command = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    if count == 0:
        sys.exit(sandbox(workspace).run_interactive(command))
    timed(workspace, command)
    for _ in range(count):
        print(timed(workspace, command))


main()
