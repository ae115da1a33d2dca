#!/bin/bash
# How many instructions gt's reverse proxy takes in user space per request, and where: callgrind over wrk's load with nginx behind.
#
#   testing/bench/instructions-http1.sh GT [keep|varied|closing] [ROWS]
#
# keep: the same request again and again; varied: each asks for another path; closing: a connection for each.
# GT is a program with debug symbols (cargo build --release). Takes about 15 s, needs valgrind, wrk, nginx and curl, and the ports 9560 and 9561.
set -euo pipefail
gt=$(realpath "$1") kind=${2:-keep} rows=${3:-40}
source "$(dirname "$0")/lab.sh"

cat >"$dir/gt.yml" <<EOF
version: 1.0
type: proxy
options: { workers: 1, logLevel: error }
proxy:
  listeners: [{ addr: "127.0.0.1:9561" }]
  xForwardedProto: false
  xForwardedHost: false
  upstreams: { app: { servers: [{ addr: "127.0.0.1:9560" }], keepAlive: { connections: 1024 } } }
  routes: [{ to: app }]
EOF
nginx -e "$dir/e.log" -p "$dir" -c "$dir/origin.conf" &
pids+=($!)
valgrind --tool=callgrind --instr-atstart=no --dump-instr=no --callgrind-out-file="$dir/out" \
    "$gt" proxy --no-supervisor -c "$dir/gt.yml" >"$dir/gt.log" 2>&1 &
valgrind=$!
pids+=("$valgrind")
for _ in $(seq 300); do
    curl -s -o /dev/null http://127.0.0.1:9561/ && break
    sleep 0.2
done
last=()
case "$kind" in
    closing) last=(-H 'Connection: close') ;;
    varied)
        echo 'local n = 0 request = function() n = n + 1 return wrk.format("GET", "/" .. n) end' >"$dir/varied.lua"
        last=(-s "$dir/varied.lua")
        ;;
esac
load() { timeout 30 wrk -t1 -c100 -d"$1"s -H 'Host: app.example.com' "${last[@]}" http://127.0.0.1:9561/; }
load 2 >/dev/null
callgrind_control -i on "$valgrind" >/dev/null 2>&1
requests=$(load 4 | awk '/requests in/ { print $1 }')
callgrind_control -i off "$valgrind" >/dev/null 2>&1
kill "$valgrind"
wait "$valgrind" 2>/dev/null || true

# Each function's own cost: lines of a position and a cost, but for those behind `calls=`, which are the callee's.
awk -v requests="$requests" -v rows="$rows" '
    /^fn=/ { n = $0; sub(/^fn=\([0-9]+\) ?/, "", n); id = $0; sub(/\).*/, "", id); sub(/^fn=\(/, "", id)
             if (n != "") name[id] = n; now = id; next }
    /^cfn=/ { n = $0; sub(/^cfn=\([0-9]+\) ?/, "", n); id = $0; sub(/\).*/, "", id); sub(/^cfn=\(/, "", id)
              if (n != "") name[id] = n; next }
    /^calls=/ { called = 1; next }
    /^[-+*0-9][0-9]* [0-9]+$/ { if (called) { called = 0; next } own[now] += $2; all += $2 }
    END {
        printf "| %d requests | instructions per request |\n|---|---:|\n| all | %d |\n", requests, all / requests
        for (id in own) printf "| `%s` | %d |\n", name[id], own[id] / requests | "sort -t\"|\" -k3 -rn | head -" rows
    }' "$dir/out"
