# One recipe per job. `make demo` and `make test` do all their own set-up.
SHELL := /bin/bash
CARGO ?= cargo
.DEFAULT_GOAL := help

.PHONY: help demo test nightly build guest up down verify fix bench bench-controller bench-dictionary bench-kube bench-migration faults sim fuzz peers kube-demo kube-test kube-up kube-down setup-demo setup-test setup-bench setup-fuzz setup-kube images install setup-images setup-go clean

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

down: ## shut the guests down in order and remove the cluster
	bin/ferrovirt down

nightly: setup-test setup-fuzz guest ## what `make test` leaves out for its length: all 52,000 histories, the fault matrix, lost nodes of a real cluster, fuzzing; about an hour
	$(CARGO) run -q -p xtask -- nightly

verify: setup-test ## format, lints and tests: what CI runs, changing no file
	$(CARGO) fmt --all -- --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	$(MAKE) test

fix: ## format and apply what clippy can
	$(CARGO) fmt --all
	$(CARGO) clippy --workspace --all-targets --fix --allow-dirty --allow-staged

bench: bench-dictionary setup-demo guest bench-migration ## figures as ratios against a reference in the same run; bench-controller and bench-kube have their own
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

bench-kube: setup-go setup-kube setup-images guest ## an installation on a real Kubernetes cluster: memory of its Pods, starts, 50 VMs at once; builds the images first, a quarter of an hour
	$(CARGO) run -q -p xtask -- images --prefix ferrovirt.io --tag latest
	FERROVIRT_BIN=target/x86_64-unknown-linux-musl/dist/ferrovirt FERROVIRT_GUEST_DIR=build/guest $(CARGO) run -q -p bench -- kubernetes

faults: setup-test guest ## every party of a migration killed at each of ten points and in post-copy, on an embedded cluster: a hundred real migrations, half an hour
	$(CARGO) run -q -p xtask -- faults

sim: ## 1,000,000 simulated histories with faults, for a night; ARGS="--seeds 50000" for fewer
	$(CARGO) run -q --profile bench-fast -p sim -- $(or $(ARGS),--seeds 1000000 --start 7000000)

fuzz: setup-fuzz ## 60 s: mutated manifests through reader, schemas, defaults and rules; disk images through the reader of headers
	$(CARGO) run -q -p xtask -- fuzz 60

peers: ## KubeVirt's virtctl and judge, Kubernetes' control plane and etcd, in a cache outside the work tree
	@$(CARGO) run -q -p xtask -- peers

kube-demo: setup-go setup-test build guest ## a real Kubernetes cluster, an installation, a VM that boots and moves between nodes, and nothing left
	@$(CARGO) run -q -p xtask -- kube-demo

kube-test: setup-go setup-test guest ## every end-to-end scenario on a real Kubernetes cluster; ARGS="--lane moves"; the lane `upgrade` builds the images of HEAD~1 first, ARGS="--upgrade-from same" does not; ARGS=--all-faults plays the whole fault matrix there and nothing else, a few hours
	$(CARGO) run -q -p xtask -- kube-test $(ARGS)

kube-up: setup-go setup-kube ## a real Kubernetes cluster in the background; ARGS="--nodes 2 --image FILE"
	@$(CARGO) run -q -p xtask -- kube-up $(ARGS)

kube-down: ## end that cluster; ARGS=--wipe removes its logs, too
	@$(CARGO) run -q -p xtask -- kube-down $(ARGS)

images: PREFIX ?= registry.local/ferrovirt
images: setup-images guest ## our images, in build/images; PREFIX=registry.local/ferrovirt TAG=v1 ARGS=--quick
	$(CARGO) run -q -p xtask -- images --prefix $(PREFIX) $(if $(TAG),--tag $(TAG)) $(ARGS)

install: PREFIX ?= /usr/local
install: setup-images ## the optimised static program onto this machine; DESTDIR= PREFIX=/usr/local
	$(CARGO) run -q -p xtask -- program
	install -D -m 755 target/x86_64-unknown-linux-musl/dist/ferrovirt $(DESTDIR)$(PREFIX)/bin/ferrovirt
	ln -sf ferrovirt $(DESTDIR)$(PREFIX)/bin/virtctl

setup-demo:
	@tools/setup.sh demo

setup-test:
	@tools/setup.sh test

setup-bench:
	@tools/setup.sh bench

setup-fuzz:
	@tools/setup.sh fuzz

setup-kube:
	@tools/setup.sh kube

setup-images:
	@tools/setup.sh images

setup-go:
	@tools/setup.sh go

clean: ## remove what was built
	rm -rf bin build
	$(CARGO) clean
