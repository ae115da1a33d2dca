#!/bin/sh
# User-space instructions that `gt proxy` spends on a small request over HTTP/2 and TLS, counted by callgrind: a figure that a busy machine does not change.
#
#   testing/bench/instructions-http2.sh GT [REQUESTS] [REPORT]
#
# GT is a release build. Two loads, of REQUESTS (5,000) and twice as many, over 10 connections with 10 streams each: their difference has no handshakes in it. REPORT gets
# callgrind's list of functions for the larger one. Needs valgrind, h2load, nginx, openssl, curl; half a minute on a machine that has nothing else to do.
set -eu
gt=$(realpath "$1")
requests=${2:-5000}
report=${3:-}
lab=$(mktemp -d)
pids=
trap 'for pid in $pids; do kill "$pid" 2>/dev/null || true; done; wait 2>/dev/null || true; rm -rf "$lab"' EXIT
trap 'exit 1' INT TERM
cd "$lab"
origin=$((20000 + $$ % 10000)) door=$((30000 + $$ % 10000))

openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout key.pem -out cert.pem -days 2 -subj /CN=localhost 2>/dev/null
cat >nginx.conf <<END
worker_processes 1; master_process off; daemon off; pid nginx.pid; error_log stderr crit;
events { worker_connections 2000; }
http { access_log off; keepalive_requests 100000000; client_body_temp_path b; proxy_temp_path p; fastcgi_temp_path f; uwsgi_temp_path u; scgi_temp_path s;
server { listen 127.0.0.1:$origin; location / { return 200 "hello world\n"; } } }
END
nginx -e stderr -p "$lab" -c nginx.conf &
pids="$pids $!"
cat >gt.yml <<END
type: proxy
options: {workers: 1, logLevel: error}
proxy:
  listeners: [{addr: "127.0.0.1:$door", protocol: https, certFile: $lab/cert.pem, keyFile: $lab/key.pem}]
  xForwardedProto: false
  xForwardedHost: false
  upstreams: {app: {servers: ["127.0.0.1:$origin"], keepAlive: {connections: 1024}}}
  routes: [{to: app}]
END

# Instructions of one load, behind another that has warmed everything up.
count() {
    valgrind --tool=callgrind --callgrind-out-file="$lab/out.$1" --instr-atstart=no "$gt" proxy --no-supervisor -c gt.yml >valgrind.log 2>&1 &
    pid=$!
    pids="$pids $pid"
    tries=0
    until curl -sk -m 2 "https://127.0.0.1:$door/" >/dev/null; do
        tries=$((tries + 1))
        [ $tries -lt 200 ] || { cat valgrind.log >&2; exit 1; }
        sleep 0.1
    done
    h2load -t1 -c10 -m10 -n 1000 "https://localhost:$door/" >/dev/null
    callgrind_control -i on "$pid" >/dev/null 2>&1
    h2load -t1 -c10 -m10 -n "$1" "https://localhost:$door/" >load.log
    callgrind_control -i off "$pid" >/dev/null 2>&1
    grep -q " $1 succeeded, 0 failed" load.log || { cat load.log >&2; exit 1; }
    kill "$pid"
    wait "$pid" || true
    callgrind_annotate "$lab/out.$1" 2>/dev/null | awk '/PROGRAM TOTALS/ { gsub(",", "", $1); print $1 }'
}

few=$(count "$requests")
many=$(count $((requests * 2)))
[ -z "$report" ] || callgrind_annotate "$lab/out.$((requests * 2))" >"$OLDPWD/$report" 2>/dev/null
echo "$(((many - few) / requests)) instructions for each of $requests requests"
