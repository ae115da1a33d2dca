# What takes minutes: kcptun of Debian against the examples of crate kcp, in every combination. `make test` runs a part of it.

# Exchanges at a time.
GT_PARALLEL ?= 4
INTEROP := $(abspath $(CARGO_TARGET_DIR))/interop

.PHONY: interop-kcp

interop-kcp: ## every cipher, FEC, role, smux version, compression and loss with kcptun; needs the Debian package
	mkdir -p $(INTEROP)
	-GT_PARALLEL=$(GT_PARALLEL) GT_TABLE=$(INTEROP)/itself.md $(CARGO) test --release -p kcp --test kcptun kcptun_with_itself -- --ignored --nocapture
	GT_PARALLEL=$(GT_PARALLEL) GT_TABLE=$(INTEROP)/all.md $(CARGO) test --release -p kcp --test kcptun every_combination -- --ignored --nocapture
	GT_PARALLEL=$(GT_PARALLEL) GT_TABLE=$(INTEROP)/large.md $(CARGO) test --release -p kcp --test kcptun large_transfers -- --ignored --nocapture
	@echo 'tables: $(INTEROP)/*.md'
