#!/usr/bin/env bash
# Installs the WebSocket clients of others that crates/web/tests/websocket_peers.rs runs, below
# target/peers: the npm packages ws, bun and deno, the Python package websockets, and a program in
# Go with github.com/coder/websocket and github.com/gorilla/websocket.
#
# Each that cannot be had is a line `LACKS name reason`; the tests skip it.

set -euo pipefail
cd "$(dirname "$0")/.."

at=${CARGO_TARGET_DIR:-$PWD/target}/peers
mkdir -p "$at"

# Runs a command for a peer; says that it is lacking when the command fails.
try() {
    local name=$1
    shift
    local status=0
    timeout --kill-after=10 300 "$@" </dev/null >"$at/$name.log" 2>&1 || status=$?
    [ "$status" != 0 ] || return 0
    tail -n 5 "$at/$name.log"
    printf 'LACKS %s: status %s of %s\n' "$name" "$status" "$*"
    return 1
}

for package in ws@8.23.0 bun@1.4.5 deno@2.9.6; do
    name=${package%@*}
    [ -e "$at/$name-$package" ] && continue
    # Each in a directory of its own, so that one that cannot be had leaves the others.
    mkdir -p "$at/$name"
    if try "$name" npm install --prefix "$at/$name" --no-audit --no-fund --ignore-scripts \
        --no-package-lock "$package"; then
        touch "$at/$name-$package"
    fi
done
# The programs themselves, which packages of their own have: so no script of the packages runs.
ln -sf "$at"/bun/node_modules/@oven/*/bin/bun "$at/bun/bun"
ln -sf "$at"/deno/node_modules/@deno/*/deno "$at/deno/deno"

if [ ! -e "$at/python-websockets-17.4" ]; then
    if try websockets python3 -m venv "$at/python" \
        && try websockets "$at/python/bin/python" -m pip install -q --disable-pip-version-check \
            websockets==17.4; then
        touch "$at/python-websockets-17.4"
    fi
fi

try go-websocket go build -C crates/web/tests/peers/websocket -o "$at/go-websocket" . || true
