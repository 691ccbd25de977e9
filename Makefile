# Two commands matter: `make run` and `make test`. `make help` lists the rest.

# A bare environment is enough: these are where a toolchain and Debian's tools live.
export HOME ?= $(shell getent passwd $$(id -u) | cut -d: -f6)
export PATH := $(HOME)/.cargo/bin:$(PATH):/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help run test soak check fmt up down bench

help: ## List the commands
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "  make %-8s %s\n", $$1, $$2 }'

run: ## Build and start Tidegate with no other server: SQLite in ./data (ARGS="--addr …" for flags)
	@scripts/install build
	@echo "==> Building Tidegate (about three minutes the first time on two cores, seconds later)"
	@cargo build -p tidegate --no-default-features
	@exec cargo run --quiet -p tidegate --no-default-features -- serve $(ARGS)

test: ## Run every test against real Redis, PostgreSQL and Kafka, and leave nothing running
	@scripts/install build test
	@echo "==> Building the tests (about four minutes the first time, seconds later)"
	@cargo test --workspace --no-run
	@cargo check --quiet -p tidegate --no-default-features # what `make run` builds
	@cargo run --quiet -p testkit --bin servers -- run -- cargo test --workspace --no-fail-fast

soak: ## The fault tests in their long form: hours of kills, outages and rebalances (ARGS=kafka:: for some; ARGS=steady MINUTES=60)
	@scripts/install build test
	@cargo test -p tidegate --test it --no-run
	@SOAK=$(or $(MINUTES),5) cargo run --quiet -p testkit --bin servers -- run -- cargo test -p tidegate --test it -- --test-threads 1 --nocapture $(or $(ARGS),dispatch::crash_points dispatch::fair dispatch::full_disk dispatch::kafka dispatch::keep_alive dispatch::many_rows dispatch::nothing_lost dispatch::once dispatch::outage dispatch::steady limits::bars)

check: ## Format, clippy with -D warnings, licences and bans, the tidy test
	@scripts/install build test deny
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --quiet -- -D warnings
	cargo clippy --quiet -p tidegate --no-default-features -- -D warnings
	cargo deny --log-level error check licenses bans sources
	cargo test --quiet -p tidegate --test tidy

fmt: ## Format all code
	cargo fmt --all

up: ## Start Redis, PostgreSQL and Kafka for local work, and print the environment to use
	@scripts/install build test
	@cargo run --quiet -p testkit --bin servers -- up

down: ## Stop what `make up` started (ARGS=--wipe also removes its data)
	@cargo run --quiet -p testkit --bin servers -- down $(ARGS)

bench: ## Print the tables of docs/performance.md, measured here with the build that ships (ten minutes the first time)
	@scripts/install build test
	@cargo build --profile dist -p tidegate
	@cargo run --quiet -p testkit --bin servers -- with -- sh -ec ' \
		bench() { cargo run --quiet --profile dist -p tidegate -- bench "$$@"; }; \
		bench dispatch; \
		export REDIS_URL=redis://$$TESTKIT_REDIS; \
		bench gate; \
		bench limits; \
		export DATABASE_URL=postgres://postgres@$$TESTKIT_POSTGRES/postgres; \
		bench dispatch --subscriptions 10000; \
		export KAFKA_BROKERS=$$TESTKIT_KAFKA; \
		bench dispatch --subscriptions 10000'
