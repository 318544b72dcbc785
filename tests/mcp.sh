#!/usr/bin/env bash
# The door for agents as an agent uses it: a real rig, and the MCP client of PyPI's `mcp` (tests/mcp_client.py).
# usage: tests/mcp.sh [BINARY]   (default: the debug build)
set -euo pipefail
cd "$(dirname "$0")/.."
what="the MCP door is not tried with a client"
# shellcheck source=tests/with-python.sh
. tests/with-python.sh
python_for mcp-venv "mcp==2.3.0"
run_python tests/mcp_client.py "$(realpath "$binary")"
