# Everything a person or a CI calls by name. `make help` lists it.

CARGO ?= cargo
CARGO_TARGET_DIR ?= target
# The shortest time per fuzz target, in seconds.
SECONDS ?= 600

.DEFAULT_GOAL := help
.PHONY: help build dist run test lint fuzz soak-ci

help: ## this list
	@echo 'gt: make WHAT'
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  \1\t\2/' | expand -t 20
	@echo '  bench-relay, bench-bulk, bench-idle, bench-keystroke: one bench alone'

build: ## the program: target/release/gt
	$(CARGO) build --release -p gt

dist: ## the same laid out by profile, a fifth fewer instructions: target/pgo/gt; 10 minutes; needs nginx, wrk, h2load, llvm-tools
	@scripts/pgo.sh

run: ## a server, a client and a page behind them, on this machine; Ctrl-C ends it
	@scripts/run.sh

test: ## all tests; as root, installs the Debian packages they need
	@scripts/test.sh

lint: ## format, clippy, documentation, licences
	@scripts/lint.sh

fuzz: ## every fuzz target for SECONDS (600); needs nightly Rust and cargo-fuzz
	@scripts/fuzz.sh $(SECONDS)

# With the binaries that `make test` has built: the CI compiles everything once, with overflow checks in the soak besides.
soak-ci: ## the soak for a minute and 100 reloads of everything, in the build of the tests
	$(CARGO) build --profile test -p gt -p soak
	$(CARGO_TARGET_DIR)/debug/soak --seconds 60 --seed 1 --gt $(CARGO_TARGET_DIR)/debug/gt
	$(CARGO_TARGET_DIR)/debug/soak --reloads 100 --rate 5 --seed 1 --visitors 6 --long 100000000 --gt $(CARGO_TARGET_DIR)/debug/gt

include make/bench.mk
include make/interop.mk
