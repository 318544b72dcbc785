#!/usr/bin/env bash
# The REST door against its own description: a real rig with a real history, schemathesis with all checks (tests/schemathesis.py).
# usage: tests/schemathesis.sh [BINARY]   (default: the debug build)
set -euo pipefail
cd "$(dirname "$0")/.."
what="the REST door is not checked against its description"
# shellcheck source=tests/with-python.sh
. tests/with-python.sh
python_for schemathesis-venv "schemathesis==4.32.5 prometheus_client==0.26.0"
run_python tests/schemathesis.py "$(realpath "$binary")" "$(realpath "$venv/bin/st")"
