#!/bin/bash
# How long one who is connected waits for an answer while a hundred clients say hello at one moment: gt's reverse proxy, others of its builds, nginx.
#
#   testing/bench/handshakes.sh GT [GT…]
#
# Each proxy has core 0, the origin (nginx) and the clients have core 1. The hundred send their ClientHello and no more, so that no client's own
# cryptography is in the figures: wrk, which counts its handshakes' time in its answers', is slower at them than a proxy. Forty times each; a line of
# the table for each program. Takes about 10 s for each, needs nginx, openssl and python3, and the ports 9560 to 9562.
set -euo pipefail
source "$(dirname "$0")/lab.sh"

openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 30 -subj /CN=localhost \
    -keyout "$dir/key.pem" -out "$dir/cert.pem" 2>/dev/null
cat >"$dir/nginx.conf" <<END
$nginx_main pid $dir/nginx.pid;
http { $nginx_http
  upstream app { server 127.0.0.1:9560; keepalive 1024; }
  server { listen 127.0.0.1:9561 backlog=4096; listen 127.0.0.1:9562 ssl backlog=4096; ssl_certificate $dir/cert.pem; ssl_certificate_key $dir/key.pem;
    location / { proxy_pass http://app; proxy_http_version 1.1; proxy_set_header Connection ""; } } }
END
cat >"$dir/gt.yml" <<END
version: 1.0
type: proxy
options: { workers: 1, logLevel: error }
proxy:
  listeners: [{ addr: "127.0.0.1:9561" }, { addr: "127.0.0.1:9562", certFile: $dir/cert.pem, keyFile: $dir/key.pem }]
  upstreams: { app: { servers: [{ addr: "127.0.0.1:9560" }], keepAlive: { connections: 1024 } } }
  routes: [{ to: app }]
END
cat >"$dir/clients.py" <<'END'
import socket, ssl, statistics, sys, time

context = ssl.create_default_context()
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
out = ssl.MemoryBIO()
try:
    context.wrap_bio(ssl.MemoryBIO(), out, server_hostname="localhost").do_handshake()
except ssl.SSLWantReadError:
    pass
hello = out.read()


def connect(port):
    for _ in range(200):
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=10)
        except ConnectionRefusedError:
            time.sleep(0.02)
    sys.exit("nobody listens")


connected = connect(9561)
connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def ask():
    began = time.perf_counter()
    connected.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    if not connected.recv(4096).startswith(b"HTTP/1.1 200"):
        sys.exit("not the answer")
    return (time.perf_counter() - began) * 1e3


quiet = [ask() for _ in range(300)]
longest = []
for _ in range(40):
    clients = [connect(9562) for _ in range(100)]
    # Everybody is accepted, and nobody says a word.
    time.sleep(0.02)
    for client in clients:
        client.send(hello)
    until, waited = time.perf_counter() + 0.04, []
    while time.perf_counter() < until:
        waited.append(ask())
    longest.append(max(waited))
    for client in clients:
        client.close()
    time.sleep(0.02)
median = statistics.median
print(f"{median(quiet):.2f} | {median(longest):.2f} ({min(longest):.2f}..{max(longest):.2f})")
END

start() {
    taskset -c "$@" >>"$dir/log" 2>&1 &
    pids+=($!)
}
start 1 nginx -e "$dir/e.log" -p "$dir" -c "$dir/origin.conf"
echo "| proxy | an answer, ms | the longest wait beside 100 hellos, ms |"
echo "|---|---:|---:|"
for program in "$@" nginx; do
    case "$program" in
        nginx) start 0 nginx -e "$dir/e.log" -p "$dir" -c "$dir/nginx.conf" ;;
        *) start 0 "$program" proxy --no-supervisor -c "$dir/gt.yml" ;;
    esac
    echo "| \`$program\` | $(taskset -c 1 python3 "$dir/clients.py") |"
    kill "${pids[-1]}"
    wait "${pids[-1]}" 2>/dev/null || true
    unset 'pids[-1]'
done
