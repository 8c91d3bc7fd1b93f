#!/usr/bin/env bash
# Autobahn's test suite for WebSocket: wstest as the client of the example websocket_echo, and as
# the server of the example websocket_client.
#
#   .ci/autobahn.sh                           server and client, plain and TLS, all 517 cases
#   .ci/autobahn.sh server plain '1.*' 12.1.1 one of them, these cases
#
# WINDLASS_DRIVER chooses the driver of the examples. The reports for people are in
# target/autobahn/reports. PEER names another program in the place of the example: it gets the same
# arguments. wstest needs Python 2.7 and packages from PyPI, which are installed below
# target/autobahn. Where that cannot be had, this prints SKIP with the reason, and succeeds.

set -euo pipefail
cd "$(dirname "$0")/.."

. .ci/common.sh

ALL=517
at=$target/autobahn
modes=(server client)
transports=(plain tls)
case ${1:-} in
server | client)
    modes=("$1")
    shift
    ;;
esac
case ${1:-} in
plain | tls)
    transports=("$1")
    shift
    ;;
esac
cases=("${@:-*}")
driver=${WINDLASS_DRIVER:-auto}

# A Python 2.7 that can install packages.
find_python() {
    for python in python2.7 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/2.7*/bin/python2.7; do
        "$python" -W ignore -m pip --version >/dev/null 2>&1 && return
    done
    return 1
}

# Installs wstest once for each list of its packages.
install_wstest() {
    local done_by install
    done_by=$at/installed-$(cksum <.ci/autobahn.txt | tr ' ' -)
    export PYTHONUSERBASE=$at/python
    [ ! -e "$done_by" ] || return 0
    rm -rf "$at/python"
    mkdir -p "$at"
    install=("$python" -W ignore -m pip install -q --disable-pip-version-check --user
        --no-warn-script-location --ignore-installed --no-deps)
    timeout 600 "${install[@]}" -r .ci/autobahn.txt >"$at/install" 2>&1 || return 1
    # Masks and UTF-8 in C: has to be compiled. The suite works without, slower.
    timeout 300 "${install[@]}" wsaccel==0.6.6 >>"$at/install" 2>&1 \
        || echo "wsaccel cannot be compiled: wstest is slower"
    wstest -a >>"$at/install" 2>&1 || return 1
    touch "$done_by"
}

# Not its script in bin/, which asks for packages that it can do without.
wstest() {
    timeout --kill-after=10 "$seconds" "$python" -u -W ignore -m autobahntestsuite.wstest "$@"
}
seconds=60

# The settings of a run: $1 has what depends on the mode.
settings() {
    local list
    list=$(printf '"%s", ' "${cases[@]}")
    printf '{%s, "outdir": "%s", "cases": [%s], "exclude-cases": [], "exclude-agent-cases": {}}\n' \
        "$1" "$reports" "${list%, }" >"$scratch/settings"
}

# Starts wstest or a peer in the background: its output goes to $scratch/NAME, its pid is in $pid.
begin() {
    local name=$1
    shift
    "$@" </dev/null >"$scratch/$name" 2>&1 &
    pid=$!
}

# Waits until the program $pid, whose output is in $scratch/NAME, does what the command finds.
await() {
    local name=$1
    shift
    for _ in $(seq 400); do
        "$@" && return
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.05
    done
    tail -n 20 "$scratch/$name"
    die "$name does not begin"
}

# Ends what `begin` started.
end() {
    kill -TERM "$1" 2>/dev/null || true
    for _ in $(seq 200); do
        kill -0 "$1" 2>/dev/null || return 0
        sleep 0.05
    done
    kill -KILL "$1"
    die "$2 does not end on SIGTERM"
}

listens() {
    port=$(sed -n 's/^listening on .*:\([0-9]*\)$/\1/p' "$scratch/peer")
    [ -n "$port" ]
}

answers() {
    (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null
}

# A program has failed: $1 names it, $2 is its status.
ended() {
    tail -n 20 "$scratch/wstest" "$scratch/peer"
    die "$1 ends with status $2"
}

server() {
    # Messages that refer to the ones before them, and with TLS such that do not.
    local scheme=ws options=(--port 0 --takeover) peer
    if [ "$1" = tls ]; then
        scheme=wss
        options=(--port 0 --deflate --tls)
    fi
    # shellcheck disable=SC2206
    peer=(${PEER:-$target/debug/examples/websocket_echo})
    begin peer "${peer[@]}" "${options[@]}"
    peer=$pid
    await peer listens
    settings "\"servers\": [{\"agent\": \"windlass\", \"url\": \"$scheme://127.0.0.1:$port\"}]"
    wstest -m fuzzingclient -s "$scratch/settings" >"$scratch/wstest" 2>&1 \
        || ended wstest $?
    end "$peer" websocket_echo
}

client() {
    local scheme=ws own= options=() wstest peer
    if [ "$1" = tls ]; then
        scheme=wss
        options=(--trust "$scratch/own.pem")
        own=", \"key\": \"$scratch/own.key\", \"cert\": \"$scratch/own.pem\""
        openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 \
            -keyout "$scratch/own.key" -out "$scratch/own.pem" -subj '/CN=localhost' \
            -addext basicConstraints=critical,CA:FALSE \
            -addext subjectAltName=DNS:localhost,IP:127.0.0.1 2>/dev/null
    fi
    # It does not tell which port it got.
    port=$("$python" -c 'import socket
it = socket.socket()
it.bind(("127.0.0.1", 0))
print(it.getsockname()[1])')
    settings "\"url\": \"$scheme://127.0.0.1:$port\"$own"
    # By itself, for `begin` has to know the process that is ended.
    begin wstest "$python" -u -W ignore -m autobahntestsuite.wstest -m fuzzingserver \
        -s "$scratch/settings" -u 0
    wstest=$pid
    await wstest answers
    # shellcheck disable=SC2206
    peer=(${PEER:-$target/debug/examples/websocket_client})
    timeout --kill-after=10 "$seconds" "${peer[@]}" "${options[@]}" \
        --autobahn "$scheme://127.0.0.1:$port" </dev/null >"$scratch/peer" 2>&1 \
        || ended websocket_client $?
    end "$wstest" wstest
}

# Runs the cases, and says whether all of them end well.
judged() {
    local count
    rm -rf "$reports"
    "$1" "$2"
    count=$(sed -n 's/^Ok, will run \([0-9]*\) test cases.*/\1/p' "$scratch/wstest")
    [ "${cases[*]}" != '*' ] || [ "$count" = "$ALL" ] || die "wstest has $count cases"
    "$python" .ci/autobahn_report.py "$reports/index.json" "$1" "$count" .ci/autobahn.known
}

if ! find_python; then
    skip "Autobahn: there is no Python 2.7 with pip"
elif ! install_wstest; then
    tail -n 20 "$at/install"
    skip "Autobahn: its test suite could not be installed, see above"
elif ! command -v openssl >/dev/null && ! packages openssl; then
    skip "Autobahn: the package openssl could not be installed"
else
    [ -n "${PEER:-}" ] || limit 900 cargo build --workspace --features "$full" \
        --example websocket_echo --example websocket_client
    failed=()
    # A case lasts seconds, most of them far less.
    seconds=2400
    for mode in "${modes[@]}"; do
        for transport in "${transports[@]}"; do
            section "Autobahn: $mode, $transport, $driver"
            reports=$at/reports/$mode-$transport-$driver
            judged "$mode" "$transport" && continue
            # wstest gives a peer half a second in many cases: on a busy machine a few run again.
            all=("${cases[@]}")
            read -r -a cases <"$reports/bad"
            if [ "${#cases[@]}" = 0 ] || [ "${#cases[@]}" -gt 5 ] \
                || ! judged "$mode" "$transport"; then
                failed+=("$mode, $transport, $driver")
            fi
            cases=("${all[@]}")
        done
    done
    [ "${#failed[@]}" = 0 ] || die "Autobahn: $(printf '%s; ' "${failed[@]}")"
fi
passed=passed
