#!/usr/bin/env bash
# The long repetitions that the gate leaves out: minutes, more on a busy machine.
# usage: tests/long.sh [SEED]   (a printed seed of a failure, to have it again)
set -euo pipefail
cd "$(dirname "$0")/.."

if [ -n "${1:-}" ]; then export THERMITE_TEST_SEED=$1; fi
export THERMITE_LONG=1
cargo build --workspace --all-features --bins
# 50 kills of a rig as root and as an ordinary user, through pruning and backups; every escape script by limit and by
# kill; two minutes of real load; twenty minutes of mixed work whose memory, descriptors, processes and disk stay flat.
cargo test -p thermite-tests-service --test service whole:: -- --nocapture
cargo test -p thermite-tests-service --test service cards:: -- --nocapture
# Kills of each process of a rig on a bus (20 each), a bus that stands still for 70 s, partitions of 30 and 90 s, and what
# the bus and the first transfer of a repository of 45 MB cost; the table is docs/faults.md.
cargo test -p thermite-tests-service --test service bus:: -- --nocapture
# What an ask costs holds for the optimised build.
cargo test --release -p thermite-tests-service --test service bus::link::an_ask_costs -- --nocapture
# Core and runners over a bus that drops, delays up to 61 s, doubles and reorders, with deaths on both sides.
THERMITE_BUS_SEEDS=0..10000 cargo test -p thermite-tests-rules --test rules runner_bus:: -- --nocapture
