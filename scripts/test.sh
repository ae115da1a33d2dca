#!/usr/bin/env bash
# Installs what the tests need (as root on Debian), then runs all of them. Arguments go to `cargo test --workspace`.
set -euo pipefail
cd "$(dirname "$0")/.."

# Program, and the Debian package that brings it.
needs=(nginx:nginx-light openssl:openssl kcptun-client:kcptun ip:iproute2 apache2:apache2-bin varnishtest:varnish slowhttptest:slowhttptest
    node:nodejs npm:npm python3:python3-venv pgrep:procps script:bsdutils gtlsclient:ngtcp2-client chromium:chromium)

# Debian keeps nginx in sbin, which is not on everybody's path.
PATH=$PATH:/usr/sbin:/sbin
export PATH

missing=()
for need in "${needs[@]}"; do
    command -v "${need%%:*}" >/dev/null || missing+=("${need#*:}")
done

# Debian's Python comes without what makes virtual environments.
python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)

if ((${#missing[@]})); then
    if [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; then
        echo "installing: ${missing[*]}"
        apt-get update -qq
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
    else
        echo "missing: ${missing[*]} (Debian packages); install them, or run this as root on Debian" >&2
        exit 1
    fi
fi

command -v go >/dev/null || echo "no Go (1.24 or later): the tests against kcp-go and smux themselves and those with h2spec and an origin in Go are skipped (in a CI they fail)"

exec "${CARGO:-cargo}" test --workspace --no-fail-fast "$@"
