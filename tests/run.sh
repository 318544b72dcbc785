#!/usr/bin/env bash
# The gate, here and in CI: formatting, lints, documentation, all tests, the embedders' example.
# usage: tests/run.sh [quick|long]
#   quick  formatting, lints and the tests of the core only
#   long   also the heavy searches (minutes to hours; see tests/long.sh)
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '\n== %s\n' "$*"; }
missing=()
need() { command -v "$1" >/dev/null 2>&1 || missing+=("$2"); }

say "what the tests need"
need git git
need cc gcc
need c++ g++
need make make
need ps procps
need unshare util-linux
need setpriv util-linux
need nats-server nats-server
if [ ${#missing[@]} -gt 0 ]; then
    if [ "$(id -u)" = 0 ]; then as_root=(); elif command -v sudo >/dev/null 2>&1; then as_root=(sudo); else as_root=(false); fi
    echo "installing: ${missing[*]}"
    # The tests start servers of their own: the package must not start one for the machine, now or at its next boot.
    case " ${missing[*]} " in *" nats-server "*) fresh_nats=yes ;; *) fresh_nats=no ;; esac
    unit() { if [ $fresh_nats = yes ] && command -v systemctl >/dev/null 2>&1; then "${as_root[@]}" systemctl --root=/ "$@" nats-server.service >/dev/null 2>&1 || true; fi; }
    trap 'unit unmask --runtime' EXIT
    unit mask --runtime
    if ! { "${as_root[@]}" apt-get update -qq && "${as_root[@]}" apt-get install -y -qq "${missing[@]}"; }; then
        echo "tests/run.sh: cannot install ${missing[*]}; install them yourself (as root: apt-get install ${missing[*]})" >&2
        exit 1
    fi
    unit unmask --runtime
    unit disable
    trap - EXIT
fi
if ! command -v cargo >/dev/null 2>&1; then
    echo "tests/run.sh: cargo is not on PATH; install the Rust toolchain (https://rustup.rs), then run this again" >&2
    exit 1
fi
# Nothing is built twice there: what would make that quicker is more than half of what the build leaves on the disk.
if [ -n "${CI:-}" ]; then export CARGO_INCREMENTAL=0; fi
cargo --version
git --version
echo "root: $([ "$(id -u)" = 0 ] && echo yes || echo 'no; tests that need root say so and are skipped')"

say "formatting"
cargo fmt --all --check

say "lints"
cargo clippy --workspace --all-targets --all-features --quiet -- -D warnings

if [ "${1:-}" = quick ]; then
    say "tests of the core"
    cargo test -p thermite-core -p thermite-tests-rules
    exit 0
fi

# One set of features for all that is built here: each other set would build everything anew.
say "the programs that the tests start"
cargo build --workspace --all-features --bins --examples

# Most tests of whole rigs wait for processes: more of them at a time than there are CPUs.
export RUST_TEST_THREADS="${RUST_TEST_THREADS:-4}"
say "tests"
cargo test --workspace --all-features

say "the REST door against its own description"
bash tests/schemathesis.sh

say "the door for agents with an MCP client"
bash tests/mcp.sh

say "the embedders' examples"
built="${CARGO_TARGET_DIR:-target}/debug"
"$built/examples/own_ports"
"$built/thermite-example-own-http" --demo

say "documentation"
RUSTDOCFLAGS="-D warnings" cargo doc --workspace --all-features --no-deps --quiet

say "what comes into the build"
if command -v cargo-deny >/dev/null 2>&1; then
    cargo deny --all-features check bans licenses sources
else
    echo "skipped: cargo-deny is not installed (cargo install cargo-deny --locked); deny.toml says what it would check"
fi

if [ "${1:-}" = long ]; then
    exec bash tests/long.sh
fi
say "all passed"
