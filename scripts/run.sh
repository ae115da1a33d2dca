#!/usr/bin/env bash
# gt on one machine: a server, a client, and a page inside the client that visitors of the server see. Ctrl-C ends both.
# PORT names the port (else the first free one from 8080 on).
set -euo pipefail
cd "$(dirname "$0")/.."

listens() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

free_port() {
    local port
    for port in $(seq 8080 8179); do
        listens "$port" || { echo "$port"; return; }
    done
    echo "no free port between 8080 and 8179; choose one: make run PORT=9000" >&2
    return 1
}

secret() { od -An -N16 -tx1 /dev/urandom | tr -d ' \n'; }

# The status line of the page, or nothing.
page() {
    (
        exec 3<>"/dev/tcp/127.0.0.1/$port"
        printf 'GET / HTTP/1.1\r\nHost: demo.localhost:%s\r\nConnection: close\r\n\r\n' "$port" >&3
        head -n 1 <&3
    ) 2>/dev/null || true
}

# Waits until a condition holds, as long as the process lives.
await() {
    local pid=$1 log=$2 n
    shift 2
    for ((n = 0; n < 150; n++)); do
        "$@" && return
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.1
    done
    echo "gt did not come up:" >&2
    cat "$log" >&2
    return 1
}

page_is_there() { [[ $(page) == *" 200 "* ]]; }

ended=
end() {
    local status=$?
    trap - EXIT
    # Nothing cuts this short: it is over within seconds anyway, and a second Ctrl-C would leave processes and files behind.
    trap '' INT TERM HUP
    set +e
    [[ -n $ended ]] && echo && echo "ending"
    local pids=(${client:-} ${server:-}) n
    if ((${#pids[@]})); then
        kill -TERM "${pids[@]}" 2>/dev/null
        for ((n = 0; n < 10; n++)); do
            kill -0 "${pids[@]}" 2>/dev/null || break
            sleep 0.1
        done
        # Asked a second time, they do not wait for visitors any more.
        kill -TERM "${pids[@]}" 2>/dev/null
        wait "${pids[@]}" 2>/dev/null
    fi
    rm -rf "$dir"
    [[ -n $ended ]] && status=0
    exit "$status"
}

port=${PORT:-$(free_port)}
if listens "$port"; then
    echo "port $port is taken; choose another: make run PORT=9000" >&2
    exit 1
fi
cargo=${CARGO:-cargo}
if ! command -v "$cargo" >/dev/null; then
    echo "missing: cargo (Rust 1.95 or later, see https://rustup.rs)" >&2
    exit 1
fi
echo "building gt (the first time takes some minutes)"
"$cargo" build --profile fast -p gt
gt=${CARGO_TARGET_DIR:-target}/fast/gt

dir=$(mktemp -d "${TMPDIR:-/tmp}/gt-run.XXXXXX")
trap end EXIT
trap 'ended=1; end' INT TERM HUP
umask 077
cat >"$dir/server.yml" <<YML
type: server
options:
  addr: "127.0.0.1:$port"
  tcpRange: 20000-20099
users:
  demo: {secret: $(secret)}
  mine: {secret: $(secret)}
YML
for id in demo mine; do
    cat >"$dir/$id.yml" <<YML
type: client
options:
  id: $id
  secret: $(sed -n "s/^  $id: {secret: \(.*\)}$/\1/p" "$dir/server.yml")
  remote: "tcp://127.0.0.1:$port"
services:
  - local: builtin:demo
YML
done

# In a process group of its own: Ctrl-C reaches this script alone, which then ends what it has started.
start() {
    set -m
    "$gt" "$1" -c "$2" >"$3" 2>&1 &
    set +m
}

start server "$dir/server.yml" "$dir/server.log"
server=$!
await "$server" "$dir/server.log" listens "$port"
start client "$dir/demo.yml" "$dir/client.log"
client=$!
await "$client" "$dir/client.log" page_is_there

cat <<TEXT

gt runs. Open this page; it comes from the client, through the server:

    http://demo.localhost:$port/

Try next, in another terminal:

    curl http://demo.localhost:$port/headers
    curl --data hello http://demo.localhost:$port/echo

Your own web server (here on port 3000) as http://mine.localhost:$port/, and SSH on a TCP port that the client names:

    $gt client -c $dir/mine.yml -local http://127.0.0.1:3000 \\
        -local tcp://127.0.0.1:22 -remoteTCPRandom

Logs and configuration: $dir
README.md shows the same between two machines, encrypted. Ctrl-C ends everything.
TEXT

wait -n "$server" "$client" || true
echo "one of the two has ended:" >&2
tail -n 5 "$dir/server.log" "$dir/client.log" >&2
exit 1
