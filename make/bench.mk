# Benches and soak: what stands beside gt is built from pinned sources, then everything is measured in one run.

CARGO_TARGET_DIR ?= target
PEERS := $(abspath $(CARGO_TARGET_DIR))/peers
# Another build of gt to be measured, as the one of `make dist`: make bench-proxy GT=target/pgo/gt
GT ?= $(CARGO_TARGET_DIR)/release/gt
SOAK_SECONDS ?= 300
SOAK_SEED ?= 1

.PHONY: bench bench-quic bench-reload bench-kcp bench-kcp-scale bench-peers bench-proxy bench-relay bench-bulk bench-idle bench-keystroke soak bench-kcp-path bench-auto bench-links soak-paths soak-reload

bench: bench-relay bench-bulk bench-idle bench-keystroke ## gt beside rathole and frp; needs Go, nginx, wrk

bench-relay bench-bulk bench-idle bench-keystroke: bench-%: bench-peers
	cargo build --release -p gt -p bench
	$(CARGO_TARGET_DIR)/release/bench $* --gt $(GT) --peers $(PEERS)

KCP_ROUNDS ?= 7
KCP_MILLIS ?= 1000

bench-kcp: ## KCP's CPU beside kcp-go, into bench/results; needs Go
	cargo bench -p kcp --features tokio --bench cpu -- --rounds $(KCP_ROUNDS) --millis $(KCP_MILLIS) \
		| tee bench/results/$$(date +%F)-kcp-cpu.md

bench-kcp-scale: ## 10,000 KCP sessions at one listener beside kcp-go's, in turns; 5 minutes; needs Go
	ulimit -n 20000 && cargo bench -p kcp --features tokio --bench scale -- --cycles 0

bench-proxy: ## gt proxy beside nginx and HAProxy; needs nginx, haproxy, wrk, h2load
	cargo build --release -p gt -p bench
	$(CARGO_TARGET_DIR)/release/bench proxy --gt $(GT)

bench-quic: $(PEERS)/bin/quic-go-bench ## HTTP/3 of crate quic beside quic-go; needs Go
	cargo build --release -p bench
	$(CARGO_TARGET_DIR)/release/bench quic --peers $(PEERS)

$(PEERS)/bin/quic-go-bench: testing/interop/quic/bench/main.go testing/interop/quic/go.mod testing/interop/quic/go.sum
	cd testing/interop/quic && go build -trimpath -o $@ ./bench

bench-peers: $(PEERS)/bin/rathole $(PEERS)/bin/frp-run

# Without --locked, so that its dependencies are the newest that fit and not those of its release day.
$(PEERS)/bin/rathole:
	CARGO_TARGET_DIR=$(PEERS)/build cargo install rathole --version 0.5.0 --root $(PEERS)

$(PEERS)/bin/frp-run: testing/bench/frp/main.go testing/bench/frp/go.mod testing/bench/frp/go.sum
	cd testing/bench/frp && go build -trimpath -o $@ .

# In real time, so that other work on the machine neither delays the path nor the ends; all subjects alike. Needs root.
bench-kcp-path: $(PEERS)/bin/kcp-go-path ## KCP beside kcp-go, TCP and QUIC on impaired paths, 18 minutes; root, Go, iproute2
	cargo build --release -p kcp-path -p netem
	chrt -r 50 $(CARGO_TARGET_DIR)/release/netem calibrate
	for what in goodput latency fairness; do \
		chrt -r 50 $(CARGO_TARGET_DIR)/release/kcp-path $$what --kcp-go $(PEERS)/bin/kcp-go-path || exit 1; done

$(PEERS)/bin/kcp-go-path: testing/interop/kcp/path/main.go testing/interop/kcp/go.mod testing/interop/kcp/go.sum
	cd testing/interop/kcp && go build -trimpath -o $@ ./path

soak: ## seeded load for SOAK_SECONDS (300) while links, services and clients are killed
	cargo build --release -p gt -p soak
	$(CARGO_TARGET_DIR)/release/soak --seconds $(SOAK_SECONDS) --seed $(SOAK_SEED) --gt $(CARGO_TARGET_DIR)/release/gt

# Cases run side by side; their paths carry at most 50 Mbit/s each, so that the machine is not the limit. Some 9 minutes.
bench-auto: ## which transport a client chooses on impaired paths, and what it carries beside each fixed one, into bench/results; root, iproute2
	cargo build --release -p gt -p auto-path
	$(CARGO_TARGET_DIR)/release/auto-path --out bench/results/$$(date +%F)-auto.md

# 20 Mbit/s each, all four at a time; in real time as bench-kcp-path.
bench-links: ## what links over TLS, WebSocket and KCP carry of what long and lossy paths do, 7 minutes, into bench/results; root, iproute2
	cargo build --release -p gt -p auto-path
	chrt -r 50 $(CARGO_TARGET_DIR)/release/auto-path --links --parallel 4 --seconds 4 --out bench/results/$$(date +%F)-links.md

soak-paths: ## the soak for SOAK_SECONDS (300) with clients that choose their transport, change addresses and lose UDP; nothing may fail
	cargo build --release -p gt -p soak
	$(CARGO_TARGET_DIR)/release/soak --paths --seconds $(SOAK_SECONDS) --seed $(SOAK_SEED) --gt $(CARGO_TARGET_DIR)/release/gt

soak-reload: ## 200 reloads of server, clients and proxy, 5 a second, under seeded load with transfers of 1 GiB; nothing may be lost
	cargo build --release -p gt -p soak
	$(CARGO_TARGET_DIR)/release/soak --reloads 200 --rate 5 --seed $(SOAK_SEED) --visitors 6 --gt $(CARGO_TARGET_DIR)/release/gt

bench-reload: ## gt proxy, nginx and HAProxy reloaded 5 times a second under the same load; needs nginx, haproxy
	cargo build --release -p gt -p soak
	$(CARGO_TARGET_DIR)/release/soak --beside bench/results --seconds 20 --rate 5 --seed $(SOAK_SEED) --gt $(CARGO_TARGET_DIR)/release/gt
