#!/usr/bin/env bash
# Drives gt through what it does for its users, some seconds each, so that a profile knows its hot paths: the reverse proxy over every version of HTTP, and
# relays over every kind of link, in both modes; small and large bodies, connections that stay and that don't.
#
#   testing/bench/train.sh GT BENCH
#
# GT is built to write profiles (scripts/pgo.sh), which it does at its end; so every process is asked to end, and has to. Takes a minute; needs nginx, wrk,
# h2load, curl and openssl, and the ports 9560 to 9569, TCP and UDP.
set -euo pipefail
gt=$(realpath "$1") bench=$(realpath "$2")
source "$(dirname "$0")/lab.sh"

# Asks the programs of one part to end, and waits until they have.
stop() {
    for pid in "$@"; do
        kill -TERM "$pid"
    done
    for pid in "$@"; do
        timeout 30 tail --pid="$pid" -f /dev/null || { echo "process $pid did not end in 30 s" >&2; exit 1; }
    done
}

until_answered() {
    for _ in $(seq 300); do
        curl -sk -o /dev/null "$@" && return
        sleep 0.1
    done
    echo "no answer: $*" >&2
    cat "$dir"/*.log >&2
    exit 1
}

mkdir "$dir/www"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost,IP:127.0.0.1 \
    -keyout "$dir/key.pem" -out "$dir/cert.pem" 2>/dev/null
for size in 30 10240 1048576 67108864; do
    head -c "$size" /dev/zero | tr '\0' x >"$dir/www/$size"
done
cat >"$dir/nginx.conf" <<END
$nginx_main pid $dir/pid;
http { $nginx_http client_max_body_size 0;
  server { listen 127.0.0.1:9560 backlog=4096; location / { root $dir/www; try_files \$uri @hello; } location @hello { return 200 "hello world\n"; }
    location = /chunked { gzip on; gzip_min_length 1; gzip_types *; root $dir/www; try_files /10240 =404; } } }
END
chmod -R go+rX "$dir"
nginx -e "$dir/e.log" -p "$dir" -c "$dir/nginx.conf" &
pids+=($!)

# What visitors do at a door for HTTP: URL, then options of curl.
visit() {
    local url=$1
    wrk -t1 -c100 -d2s "$url/" >/dev/null
    wrk -t1 -c20 -d1s "$url/10240" >/dev/null
    wrk -t1 -c20 -d1s -H 'Connection: close' "$url/" >/dev/null
    wrk -t1 -c20 -d1s -H 'Accept-Encoding: gzip' "$url/chunked" >/dev/null
    wrk -t1 -c4 -d1s "$url/1048576" >/dev/null
    curl -skf "$url/67108864" -o "$dir/came"
    curl -sk -o /dev/null --data-binary "@$dir/came" "$url/30"
}

proxy() {
    cat >"$dir/proxy.yml" <<END
version: 1.0
type: proxy
options: { workers: 1, logLevel: error }
proxy:
  listeners: [{ addr: "127.0.0.1:9561" }, { addr: "127.0.0.1:9562", protocol: https, http3: true, certFile: $dir/cert.pem, keyFile: $dir/key.pem }]
  upstreams: { app: { servers: [{ addr: "127.0.0.1:9560" }], keepAlive: { connections: 1024 } } }
  routes: [{ to: app, multiplex: $1 }]
END
    "$gt" proxy --no-supervisor -c "$dir/proxy.yml" >>"$dir/gt.log" 2>&1 &
    local pid=$!
    pids+=("$pid")
    until_answered http://127.0.0.1:9561/
    visit http://127.0.0.1:9561
    visit https://127.0.0.1:9562
    h2load -c10 -m10 -D2 https://127.0.0.1:9562/ >/dev/null
    h2load -c4 -m2 -D1 https://127.0.0.1:9562/1048576 >/dev/null
    (echo go; sleep 3) | "$bench" http3-load 127.0.0.1:9562 --work requests --connections 10 --streams 4 --size 30 --seconds 2 >/dev/null
    (echo go; sleep 3) | "$bench" http3-load 127.0.0.1:9562 --work download --size 67108864 >/dev/null
    stop "$pid"
}

# One kind of link: URL of the server, then options of the server.
relay() {
    local remote=$1
    shift
    "$gt" server --no-supervisor -addr 127.0.0.1:9563 -id home -secret train -tcpNumber 1 -tcpRange 9566-9567 -workers 1 -logLevel error "$@" >>"$dir/gt.log" 2>&1 &
    local server=$!
    "$gt" client --no-supervisor -id home -secret train -remote "$remote" -remoteCert "$dir/cert.pem" -logLevel error \
        -local http://127.0.0.1:9560 -local tcp://127.0.0.1:9560 -remoteTCPPort 9566 >>"$dir/gt.log" 2>&1 &
    local client=$!
    pids+=("$server" "$client")
    until_answered http://127.0.0.1:9566/
    visit http://127.0.0.1:9566
    wrk -t1 -c100 -d1s -H 'Host: home.localhost' http://127.0.0.1:9563/ >/dev/null
    stop "$client" "$server"
}

secure=(-certFile "$dir/cert.pem" -keyFile "$dir/key.pem")
proxy false
proxy true
relay tcp://127.0.0.1:9563
relay ws://127.0.0.1:9563
relay tls://127.0.0.1:9564 -tlsAddr 127.0.0.1:9564 "${secure[@]}"
relay wss://127.0.0.1:9564 -tlsAddr 127.0.0.1:9564 "${secure[@]}"
relay quic://127.0.0.1:9564 -quicAddr 127.0.0.1:9564 "${secure[@]}"
relay kcp://127.0.0.1:9565 -kcpAddr 127.0.0.1:9565
