#!/usr/bin/env bash
# The REST door against its own description: a real rig with a real history, schemathesis with all checks (tests/schemathesis.py).
# usage: tests/schemathesis.sh [BINARY]   (default: the debug build)
# Without Python, or where the packages cannot be had, it says so and checks nothing, except in CI (THERMITE_CI=1).
set -euo pipefail
cd "$(dirname "$0")/.."

skip() {
    if [ -n "${THERMITE_CI:-}" ]; then
        echo "tests/schemathesis.sh: $1; CI must have it" >&2
        exit 1
    fi
    echo "skipped: $1"
    exit 0
}

target="${CARGO_TARGET_DIR:-target}"
binary="${1:-$target/debug/thermite}"
[ -x "$binary" ] || cargo build -p thermite-svc
command -v python3 >/dev/null 2>&1 || skip "python3 is not installed, so the REST door is not checked against its description"
venv="$target/schemathesis-venv"
wanted="schemathesis==4.32.5 prometheus_client==0.26.0"
if [ "$(cat "$venv/holds" 2>/dev/null || true)" != "$wanted" ]; then
    rm -rf "$venv"
    # Debian's python3 may come without ensurepip; its own pip then installs into the folder.
    # shellcheck disable=SC2086 # two packages
    if python3 -m venv "$venv" >/dev/null 2>&1; then
        "$venv/bin/pip" install --quiet --disable-pip-version-check $wanted || skip "pip cannot install $wanted"
    else
        rm -rf "$venv"
        python3 -m pip install --quiet --disable-pip-version-check --target "$venv" $wanted \
            || skip "python3 has neither venv nor pip for $wanted (Debian: apt-get install python3-venv)"
    fi
    echo "$wanted" >"$venv/holds"
fi
python=python3
if [ -x "$venv/bin/python" ]; then
    python="$venv/bin/python"
else
    PYTHONPATH="$(realpath "$venv")"
    export PYTHONPATH
fi
status=0
"$python" tests/schemathesis.py "$(realpath "$binary")" "$(realpath "$venv/bin/st")" || status=$?
# 77: this machine gives runs no isolation, which was said.
if [ "$status" = 77 ]; then exit 0; fi
exit "$status"
