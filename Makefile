# One recipe per job. `make demo` and `make test` do all their own set-up.
SHELL := /bin/bash
CARGO ?= cargo
.DEFAULT_GOAL := help

.PHONY: help demo test nightly build guest up down verify fix bench bench-controller bench-dictionary bench-migration faults sim fuzz peers setup-demo setup-test setup-bench setup-fuzz clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

demo: setup-demo build guest ## build, start two nodes, boot a VM, reach it, live-migrate it, stop it, print timelines
	bin/ferrovirt demo --guest build/guest

test: setup-test guest ## all tests; ARGS=--timings for what took how long
	$(CARGO) run -q -p xtask -- test $(ARGS)

build: ## the program, at bin/ferrovirt
	$(CARGO) build -p ferrovirt
	@mkdir -p bin && ln -sf ../target/debug/ferrovirt bin/ferrovirt && ln -sf ferrovirt bin/virtctl

guest: ## the test guest, at build/guest
	tools/guest/build.sh build/guest

up: setup-demo build guest ## a cluster of two nodes in the foreground, with the guest images imported
	bin/ferrovirt up --nodes 2 --import-guest build/guest

down: ## shut the guests down in order and take the cluster away
	bin/ferrovirt down

nightly: setup-test setup-fuzz guest ## what `make test` leaves out for its length: all 52,000 histories, the fault matrix, fuzzing; about an hour
	$(CARGO) run -q -p xtask -- nightly

verify: setup-test ## format, lints and tests: what CI runs, changing no file
	$(CARGO) fmt --all -- --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	$(MAKE) test

fix: ## format and apply what clippy can
	$(CARGO) fmt --all
	$(CARGO) clippy --workspace --all-targets --fix --allow-dirty --allow-staged

bench: bench-dictionary setup-demo guest bench-migration ## figures as ratios against a reference in the same run
	$(CARGO) build --profile bench-fast -p ferrovirt -p bench
	FERROVIRT_BIN=target/bench-fast/ferrovirt FERROVIRT_GUEST_DIR=build/guest target/bench-fast/bench

bench-dictionary: setup-bench ## instructions and throughput of judging an instance
	$(CARGO) run -q --profile bench-fast -p bench-dictionary

bench-migration: setup-test guest ## live migration beside bare virsh migrate, and what its proxies cost beside plain TCP
	$(CARGO) build --profile bench-fast -p ferrovirt -p bench
	FERROVIRT_BIN=target/bench-fast/ferrovirt FERROVIRT_GUEST_DIR=build/guest target/bench-fast/bench migration

bench-controller: ## what our controller costs beside KubeVirt's, on a real kube-apiserver; ARGS="--instances 10000"
	$(CARGO) build --profile bench-fast -p ferrovirt
	FERROVIRT_BIN=target/bench-fast/ferrovirt $(CARGO) run -q --profile bench-fast -p bench-controller -- --until scheduling $(ARGS)
	FERROVIRT_BIN=target/bench-fast/ferrovirt $(CARGO) run -q --profile bench-fast -p bench-controller -- --until scheduled $(ARGS)

faults: setup-test guest ## every party of a migration killed at each of ten points and in post-copy: a hundred real migrations, half an hour
	$(CARGO) run -q -p xtask -- faults

sim: ## 1,000,000 simulated histories with faults, for a night; ARGS="--seeds 50000" for fewer
	$(CARGO) run -q --profile bench-fast -p sim -- $(or $(ARGS),--seeds 1000000 --start 7000000)

fuzz: setup-fuzz ## 60 s of mutated manifests through reader, schemas, defaults and rules
	$(CARGO) run -q -p xtask -- fuzz 60

peers: ## KubeVirt's virtctl and judge, Kubernetes' control plane and etcd, in a cache outside the work tree
	@$(CARGO) run -q -p xtask -- peers

setup-demo:
	@tools/setup.sh demo

setup-test:
	@tools/setup.sh test

setup-bench:
	@tools/setup.sh bench

setup-fuzz:
	@tools/setup.sh fuzz

clean: ## remove what was built
	rm -rf bin build
	$(CARGO) clean
