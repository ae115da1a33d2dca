# What takes minutes: kcptun of Debian against the examples of crate kcp, in every combination, and the reverse proxy among programs of others. `make test` runs
# a part of each.

# Exchanges at a time.
GT_PARALLEL ?= 4
INTEROP := $(abspath $(CARGO_TARGET_DIR))/interop

.PHONY: interop-kcp interop-proxy

interop-kcp: ## every cipher, FEC, role, smux version, compression and loss with kcptun; needs the Debian package
	mkdir -p $(INTEROP)
	-GT_PARALLEL=$(GT_PARALLEL) GT_TABLE=$(INTEROP)/itself.md $(CARGO) test --release -p kcp --test kcptun kcptun_with_itself -- --ignored --nocapture
	GT_PARALLEL=$(GT_PARALLEL) GT_TABLE=$(INTEROP)/all.md $(CARGO) test --release -p kcp --test kcptun every_combination -- --ignored --nocapture
	GT_PARALLEL=$(GT_PARALLEL) GT_TABLE=$(INTEROP)/large.md $(CARGO) test --release -p kcp --test kcptun large_transfers -- --ignored --nocapture
	@echo 'tables: $(INTEROP)/*.md'

# With what testing/interop/zoo/README.md says is needed, and HAProxy.
interop-proxy: ## framing corpus on all origins and proxies, WebSocket, slowhttptest; see testing/interop/zoo
	mkdir -p $(INTEROP)
	GT_TABLE=$(INTEROP)/framing.md $(CARGO) test -p gt --test zoo -- --include-ignored --nocapture --test-threads 1
	@echo 'table: $(INTEROP)/framing.md'
