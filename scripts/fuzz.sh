#!/usr/bin/env bash
# Runs every fuzz target for the given number of seconds, from the committed corpus. What is found new goes to the target
# directory; a crash is left in testing/fuzz/libfuzzer/artifacts, and its input belongs into testing/fuzz/corpus.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:?seconds per target}
dir=testing/fuzz/libfuzzer

if ! cargo +nightly --version >/dev/null 2>&1; then
    echo "missing: nightly Rust (rustup toolchain install nightly)" >&2
    exit 1
fi
if ! cargo +nightly fuzz --version >/dev/null 2>&1; then
    echo "missing: cargo-fuzz (cargo install cargo-fuzz)" >&2
    exit 1
fi

for target in $(cargo +nightly fuzz list --fuzz-dir "$dir"); do
    echo "== $target: $seconds s"
    found=${CARGO_TARGET_DIR:-target}/fuzz/$target
    mkdir -p "$found"
    cargo +nightly fuzz run --fuzz-dir "$dir" "$target" "$found" "testing/fuzz/corpus/$target" -- \
        -max_total_time="$seconds" -print_final_stats=1
done
