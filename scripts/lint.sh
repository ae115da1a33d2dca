#!/usr/bin/env bash
# Format, clippy, documentation, dependencies. Uses the profile of the tests, so that a CI compiles the dependencies once.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo=${CARGO:-cargo}

"$cargo" fmt --all --check
"$cargo" clippy --workspace --all-targets --profile test -- -D warnings
RUSTDOCFLAGS="-D warnings" "$cargo" doc --workspace --no-deps --profile test

if ! "$cargo" deny --version >/dev/null 2>&1; then
    echo "cargo-deny is not installed: licences and sources were not checked (cargo install cargo-deny)"
    exit 0
fi
# What needs no network must pass. Advisories need a database that is fetched; without one that is said and passed over.
"$cargo" deny --log-level error check licenses bans sources
if "$cargo" deny fetch db >/dev/null 2>&1; then
    "$cargo" deny --log-level error check --disable-fetch advisories
else
    echo "the advisory database cannot be fetched: advisories were not checked"
fi
