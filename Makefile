# Watchbell. `make run` and `make test` are all that a newcomer needs; `make help` lists the rest.

.DEFAULT_GOAL := help
.PHONY: help run test test-clients check fix release bench bench-triggers bench-queue bench-workers bench-large soak

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: ## Run the main job: watchbell dev, with its data in ./watchbell-data
	@scripts/need run
	@WATCHBELL_GUARD=$$(scripts/guard) cargo build --profile quick --package watchbell --features small-guard
	@scripts/run

test: ## Install what is missing, check, and run all tests; ends with a table of times
	@scripts/test

test-clients: ## Test what the libraries for workers promise, alone (a part of make test)
	@scripts/need test
	@scripts/libraries build
	@cargo build --package watchbell-worker --example case_worker
	@cargo test --package watchbell --test dev library
	@scripts/libraries test $(or $(CARGO_TARGET_DIR),target)/debug/watchbell

check: ## Check format, lints and documents; never writes to the tree
	@scripts/check

fix: ## Repair what check complains about, where a tool can
	cargo fmt --all
	cargo fmt --manifest-path bench/Cargo.toml
	cargo clippy --workspace --all-targets --fix --allow-dirty --allow-staged

release: ## Build what ships: target/dist/watchbell, stripped, and its debug information beside it
	@scripts/release

bench: ## Measure, beside bare engines, in one run (about 6 minutes)
	@scripts/need bench
	cargo run --release --manifest-path bench/Cargo.toml

BENCH = cargo run --release --quiet --manifest-path bench/Cargo.toml -- triggers
MEASURED = --watchbell $(or $(CARGO_TARGET_DIR),target)/release/watchbell --dir target

bench-triggers: ## Measure triggers: memory, lateness, fires per second, idle cost
	@scripts/need bench
	@cargo build --release --package watchbell
	$(BENCH) memory $(MEASURED) --action-bytes 64
	$(BENCH) memory $(MEASURED) --action-bytes 200
	$(BENCH) lateness $(MEASURED) --burst 10000
	$(BENCH) fires $(MEASURED)
	$(BENCH) idle $(MEASURED)

bench-queue: ## Measure queues beside BullMQ on Redis, graphile-worker and River on Postgres
	@scripts/need rivals
	@cargo build --release --package watchbell
	bench/rivals/run $(or $(CARGO_TARGET_DIR),target)/release/watchbell

bench-workers: ## Measure workers: programs beside xargs, handlers of each library beside a bare loop
	@scripts/need test
	@scripts/libraries build
	@WATCHBELL_GUARD=$$(scripts/guard) cargo build --release --package watchbell --features small-guard
	@cargo build --release --package watchbell-worker --example measure
	@bench/workers/run $(or $(CARGO_TARGET_DIR),target)/release/watchbell $(or $(CARGO_TARGET_DIR),target)/release/examples/measure

bench-large: ## Measure memory with ten million triggers
	@scripts/need bench
	@cargo build --release --package watchbell
	$(BENCH) memory $(MEASURED) --count 10000000 --action-bytes 64
	$(BENCH) memory $(MEASURED) --count 10000000 --action-bytes 200

soak: ## Run the long tests (some hours)
	@scripts/need test
	cargo run --profile sim --package watchbell-sim -- --seeds 0..20000
	cargo run --profile sim --package watchbell-sim -- --shard --seeds 0..200000
	cargo run --profile sim --package watchbell-sim -- --fleet --seeds 0..5000
	cargo run --profile sim --package watchbell-sim -- --fleet --queues --seeds 0..5000
	cargo run --profile sim --package watchbell-sim -- --hold --seeds 0..20000
	cargo build --profile quick --package watchbell
	former=$$(scripts/former) && WATCHBELL_FORMER=$$former WATCHBELL_QUICK=$$(realpath $(or $(CARGO_TARGET_DIR),target)/quick/watchbell) \
		cargo test --workspace -- --ignored --nocapture
