#!/bin/bash
# What a QUIC link carries over paths of Ethernet's packets, and the processor time that it takes there: programs beside one another.
#
#   testing/bench/quic-path.sh NETEM ROUNDS GT [GT…]
#
# NETEM is the program of testing/netem. A visitor downloads through `gt server` and `gt client` in two network namespaces. The first column is processor
# time, of both, over 200 Mbit/s and 5 ms each way (the bridge's is not in it); the others are Mbit/s over 50 Mbit/s with loss, for round trips of 20 and
# 100 ms. Each download lasts 8 s, each program gets ROUNDS of each path, all programs in turn in each round; medians (least..greatest). A round takes a minute for each
# program. Needs root, /dev/net/tun, ip, nginx, openssl, curl; the namespaces gt-left and gt-right are made and removed.
set -euo pipefail
source "$(dirname "$0")/lab.sh"
netem=$(realpath "$1") rounds=$2
shift 2

truncate -s 8G "$dir/large"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 30 -subj /CN=localhost -addext subjectAltName=IP:10.77.0.2 \
    -keyout "$dir/key.pem" -out "$dir/cert.pem" 2>/dev/null
cat >"$dir/files.conf" <<END
$nginx_main pid $dir/files.pid;
http { sendfile on; $nginx_http
  server { listen 127.0.0.1:9560; root $dir; } }
END
chmod 755 "$dir"

left() { ip netns exec gt-left "$@"; }
right() { ip netns exec gt-right "$@"; }
ticks() { awk '{ print $14 + $15 }' "/proc/$1/stat"; }

# One download with program $1 over a path with the settings that follow: bytes, seconds, ticks of both processes.
download() {
    local gt=$1 server client before
    shift
    "$netem" "$@" --seed 7 tun --left gt-left --right gt-right >>"$dir/log" 2>&1 &
    pids=($!)
    until left ip link set lo up 2>/dev/null && right ip link set lo up 2>/dev/null; do sleep 0.1; done
    until left ip -o addr 2>/dev/null | grep -q 10.77.0.1 && right ip -o addr | grep -q 10.77.0.2; do sleep 0.1; done
    ip netns exec gt-left nginx -e "$dir/e.log" -p "$dir" -c "$dir/files.conf" &
    pids+=($!)
    ip netns exec gt-right "$gt" server --no-supervisor -addr 127.0.0.1:9561 -quicAddr 10.77.0.2:9562 -certFile "$dir/cert.pem" -keyFile "$dir/key.pem" \
        -id id1 -secret secret1 -tcpNumber 0 -tcpRange 1024-65535 -logLevel error >>"$dir/log" 2>&1 &
    server=$!
    ip netns exec gt-left "$gt" client --no-supervisor -id id1 -secret secret1 -remote quic://10.77.0.2:9562 -remoteCert "$dir/cert.pem" \
        -local tcp://127.0.0.1:9560 -remoteTCPPort 9563 -logLevel error >>"$dir/log" 2>&1 &
    client=$!
    pids+=("$server" "$client")
    for _ in $(seq 100); do
        right curl -s -m 3 -o /dev/null -r 0-10 http://127.0.0.1:9563/large && break
        sleep 0.2
    done
    before=$(($(ticks "$server") + $(ticks "$client")))
    right curl -s -m 8 -o /dev/null -w '%{size_download} %{time_total}' http://127.0.0.1:9563/large >"$dir/got" || true
    echo "$(cat "$dir/got") $(($(ticks "$server") + $(ticks "$client") - before))"
    kill "${pids[@]}"
    wait "${pids[@]}" 2>/dev/null || true
    pids=()
}

paths=("--rate 200mbit --delay 5ms" "--rate 50mbit --delay 10ms --loss 1%" "--rate 50mbit --delay 10ms --loss 5%"
    "--rate 50mbit --delay 50ms --loss 1%" "--rate 50mbit --delay 50ms --loss 5%")
for _ in $(seq "$rounds"); do
    for path in "${!paths[@]}"; do
        number=0
        for gt in "$@"; do
            # shellcheck disable=SC2086
            download "$(realpath "$gt")" ${paths[path]} >"$dir/one"
            awk -v lossy="$path" -v hertz="$(getconf CLK_TCK)" '{ if ($1 == 0) print "-"
                else printf("%.2f\n", (lossy > 0) ? $1 * 8 / 1e6 / $2 : $3 / hertz / ($1 / 2 ^ 30)) }' "$dir/one" >>"$dir/figures.$number.$path"
            number=$((number + 1))
        done
    done
done

spread() {
    sort -n "$1" | awk '{ v[NR] = $1 } END { printf "%.2f (%.2f..%.2f)", v[int((NR + 1) / 2)], v[1], v[NR] }'
}
echo "| program | CPU s/GiB | 20 ms, 1 % lost | 20 ms, 5 % lost | 100 ms, 1 % lost | 100 ms, 5 % lost |"
echo "|---|---:|---:|---:|---:|---:|"
number=0
for gt in "$@"; do
    echo -n "| \`$gt\` |"
    for path in "${!paths[@]}"; do echo -n " $(spread "$dir/figures.$number.$path") |"; done
    echo
    number=$((number + 1))
done
