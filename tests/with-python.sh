#!/usr/bin/env bash
# What the tests in Python share; sourced by them, from the project's folder, with `what` said: what is not checked without.
# `python_for VENV WANTED`: sets `python` and `venv`, a folder with the packages WANTED. Without Python, or where the packages
# cannot be had, it says so and ends the script, except in CI (THERMITE_CI=1), where that is a failure.

skip() {
    if [ -n "${THERMITE_CI:-}" ]; then
        echo "$0: $1; CI must have it" >&2
        exit 1
    fi
    echo "skipped: $1"
    exit 0
}

target="${CARGO_TARGET_DIR:-target}"
binary="${1:-$target/debug/thermite}"
[ -x "$binary" ] || cargo build --workspace --all-features --bin thermite

python_for() {
    venv="$target/$1"
    local wanted="$2"
    command -v python3 >/dev/null 2>&1 || skip "python3 is not installed, so $what"
    if [ "$(cat "$venv/holds" 2>/dev/null || true)" != "$wanted" ]; then
        rm -rf "$venv"
        # Debian's python3 may come without ensurepip; its own pip then installs into the folder.
        # shellcheck disable=SC2086 # several packages
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
}

# 77: this machine gives runs no isolation, which was said.
run_python() {
    local status=0
    "$python" "$@" || status=$?
    if [ "$status" = 77 ]; then exit 0; fi
    exit "$status"
}
