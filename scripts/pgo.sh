#!/usr/bin/env bash
# gt with its code laid out by profile: built twice, and in between driven by testing/bench/train.sh. The program is target/pgo/gt.
#
# A fifth fewer instructions per request than target/release/gt. Needs the tools of the same LLVM (rustup component add llvm-tools) and what train.sh
# needs; takes two release builds and a minute.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo=${CARGO:-cargo}
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
host=$(rustc -vV | sed -n 's/^host: //p')
profdata=$(rustc --print sysroot)/lib/rustlib/$host/bin/llvm-profdata
[ -x "$profdata" ] || { echo "llvm-profdata of this Rust is missing: rustup component add llvm-tools" >&2; exit 1; }
export CARGO_TARGET_DIR=$target/pgo
raw=$CARGO_TARGET_DIR/raw

# With a target named, flags are not for build scripts and macros.
build() { RUSTFLAGS=$1 "$cargo" build --release --target "$host" "${@:2}"; }

rm -rf "$raw"
mkdir -p "$raw"
build "-Cprofile-generate=$raw" -p gt
# The load is no part of what is profiled.
CARGO_TARGET_DIR=$target "$cargo" build --release -p bench
testing/bench/train.sh "$CARGO_TARGET_DIR/$host/release/gt" "$target/release/bench"
"$profdata" merge -o "$CARGO_TARGET_DIR/gt.profdata" "$raw"/*.profraw
build "-Cprofile-use=$CARGO_TARGET_DIR/gt.profdata" -p gt
install "$CARGO_TARGET_DIR/$host/release/gt" "$CARGO_TARGET_DIR/gt"
echo "built: $CARGO_TARGET_DIR/gt"
