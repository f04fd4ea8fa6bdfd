#!/bin/sh
# What `make demo` shows: ordinary work in a cell, then six attacks, first bare and then in a cell, the time that a cell
# takes to start, and what this machine can enforce. Everything happens in a throw-away directory with a made-up home
# and made-up secrets. Ends with 1 if an attack gets through, or if one does not even work bare and so shows nothing.
set -eu

here=$(cd "$(dirname "$0")/.." && pwd)
cellblock=${CELLBLOCK:-${BUILD:-$here/build}/cellblock}
python=/usr/bin/python3
case $cellblock in
    /*) ;;
    *) cellblock=$PWD/$cellblock ;;
esac
for program in "$cellblock" $python; do
    if [ ! -x "$program" ]; then
        echo "demo: $program is missing; \`make demo\` makes and installs what is needed" >&2
        exit 1
    fi
done

bold='' good='' bad='' plain=''
if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then
    bold=$(printf '\033[1m') good=$(printf '\033[32m') bad=$(printf '\033[31m') plain=$(printf '\033[0m')
fi

place=$(mktemp -d "${TMPDIR:-/tmp}/cellblock-demo.XXXXXX")
server='' victim=''
clean_up() {
    status=$?
    trap - EXIT
    for process in $server $victim; do
        kill "$process" 2>/dev/null || true
    done
    rm -rf "$place"
    exit $status
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

mkdir -p "$place/home/.ssh" "$place/home/project/.git" "$place/outside"
chmod 755 "$place"
export HOME="$place/home" DEMO_API_TOKEN=made-up-token
export DEMO_KEY="$HOME/.ssh/id_rsa" DEMO_OUTSIDE="$place/outside/notes.txt"
unset PYTHONPATH PYTHONHOME PYTHONSTARTUP PYTHONINSPECT
echo 'made-up private key' >"$DEMO_KEY"
cd "$HOME/project"

# A server on the loopback of the host, as a database might be. It tells its port by a pipe, so that nobody has to guess
# when it is ready; if it fails, the pipe is closed and nothing waits.
mkfifo "$place/port"
$python -c '
import socket, sys
with open(sys.argv[1], "w") as port:
    server = socket.create_server(("127.0.0.1", 0))
    port.write("%d\n" % server.getsockname()[1])
while True:
    server.accept()[0].close()' "$place/port" &
server=$!
read -r port <"$place/port"
export DEMO_PORT="$port"

new_victim() {
    if [ -n "$victim" ]; then
        kill "$victim" 2>/dev/null || true
        wait "$victim" 2>/dev/null || true
    fi
    sleep 600 &
    victim=$!
    export DEMO_PID=$victim
}
new_victim

# The addresses of the victims are not secret: the code in the cell gets them, so that it has every chance.
in_cell() {
    "$cellblock" run --env DEMO_KEY --env DEMO_OUTSIDE --env DEMO_PORT --env DEMO_PID -- "$@"
}

failures=0
heading() {
    printf '\n%s%s%s\n' "$bold" "$1" "$plain"
}
row() { # ATTACK BARE-SIGN BARE CELL-SIGN CELL LAYER SEEN; the signs stand alone because padding counts bytes
    printf '  %-31s  %s %-6s   %s %-7s   %-18s  %s\n' "$@"
}

# attack WHAT LAYER HARM UNDO CODE: the code ends with 0 if the attack worked, and with 1 and an exception if not. HARM
# is true if the attack has left its mark on the host, whatever the code says.
attack() {
    bare="${bad}✗$plain" bare_word=worked
    if ! $python -c "$5" >/dev/null 2>&1; then
        bare='?' bare_word=failed # so the refusal in the cell would show nothing
        failures=$((failures + 1))
    fi
    eval "$4"
    status=0
    in_cell $python -c "$5" >/dev/null 2>"$place/seen" || status=$?
    if eval "$3"; then
        status=0
    fi
    eval "$4"
    seen=$(tail -n 1 "$place/seen")
    case $status:$seen in
        1:*Error*)
            row "$1" "$bare" "$bare_word" "${good}✓$plain" refused "$2" "${seen%%:*}" ;;
        0:*)
            row "$1" "$bare" "$bare_word" "${bad}✗$plain" WORKED '' 'the attack got through'
            failures=$((failures + 1)) ;;
        *)
            row "$1" "$bare" "$bare_word" '?' 'no cell' '' "$seen"
            failures=$((failures + 1)) ;;
    esac
}

heading 'Ordinary work in a cell'
if ! in_cell $python -c '
import json, tempfile
with tempfile.TemporaryFile() as scratch:
    scratch.write(b"a private /tmp")
with open("result.json", "w") as result:
    json.dump({"squares": [n * n for n in range(5)]}, result)'
then
    printf '  %s✗%s no cell could be made. What this machine has:\n\n' "$bad" "$plain"
    "$cellblock" doctor || true
    exit 1
fi
printf '  %s✓%s a script wrote into its workspace: %s\n' "$good" "$plain" "$(cat result.json)"

heading 'Six attacks, bare and in a cell'
row attack ' ' bare ' ' 'in cell' 'stopped by' 'what the code saw'
attack 'read ~/.ssh/id_rsa' 'private root' false : '
import os
assert "private key" in open(os.environ["DEMO_KEY"]).read()'
attack 'read a token from the variables' environment false : '
import os
os.environ["DEMO_API_TOKEN"]'
attack 'write outside the workspace' 'private root' '[ -e "$DEMO_OUTSIDE" ]' 'rm -f "$DEMO_OUTSIDE"' '
import os
open(os.environ["DEMO_OUTSIDE"], "w").write("changed")'
attack 'plant a git hook' 'Landlock and guard' '[ -e .git/hooks ]' 'rm -rf .git/hooks' '
import os
os.mkdir(".git/hooks")
open(".git/hooks/pre-commit", "w").write("#!/bin/sh\necho the host runs this\n")'
attack 'reach a server of the host' 'network namespace' false : '
import os, socket
socket.create_connection(("127.0.0.1", int(os.environ["DEMO_PORT"])), timeout=5)'
attack 'kill a process of the host' 'pid namespace' 'grep -q "^State:.[ZX]" "/proc/$victim/status"' new_victim '
import os, signal
os.kill(int(os.environ["DEMO_PID"]), signal.SIGKILL)'

heading 'What a cell costs'
$python - "$cellblock" <<'END'
import statistics, subprocess, sys, time

def milliseconds(command):
    start = time.perf_counter()
    subprocess.run(command, check=True)
    return (time.perf_counter() - start) * 1000

commands = {"bare": ["/bin/true"], "cell": [sys.argv[1], "run", "--", "/bin/true"]}
times = {name: [] for name in commands}
for _ in range(40):
    for name, command in commands.items():
        times[name].append(milliseconds(command))
bare, cell = statistics.median(times["bare"]), statistics.median(times["cell"])
print(f"  /bin/true takes {bare:.1f} ms bare and {cell:.1f} ms in a cell (median of 40, taken in turn)")
END

heading 'What this machine can enforce'
if "$cellblock" doctor >"$place/doctor"; then
    printf '  %s✓%s %s\n' "$good" "$plain" "$(tail -n 1 "$place/doctor")"
    printf '    %s of %s layers work; \140cellblock doctor\140 shows them.\n' \
        "$(grep -c '✓' "$place/doctor")" "$(grep -c '^  [✓✗~]' "$place/doctor")"
else
    cat "$place/doctor"
    failures=$((failures + 1))
fi

if [ $failures -gt 0 ]; then
    printf '\n%sdemo: %d of the above went wrong%s\n' "$bad" $failures "$plain" >&2
    exit 1
fi
