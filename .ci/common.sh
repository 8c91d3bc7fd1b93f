# What .ci/run and .ci/nightly share. Sourced, at the root of the repository.

# The builds of the gate need no debug information, which takes half of the time of a build.
export CARGO_PROFILE_DEV_DEBUG=0 CARGO_PROFILE_TEST_DEBUG=0
# All features that users have. The table of buffers in use is for debugging.
full=windlass-web/full

target=${CARGO_TARGET_DIR:-$PWD/target}
scratch=$(mktemp -d)
skips=()
passed=

section() {
    printf '\n=== [%4ss] %s\n' "$SECONDS" "$1"
}

skip() {
    printf '\nSKIP: %s\n' "$1"
    skips+=("$1")
}

die() {
    printf '\nFAILED: %s\n' "$1" >&2
    exit 1
}

# Ends the processes that were started, also after a failure.
finish() {
    for child in $(jobs -p); do
        kill "$child" 2>/dev/null || true
    done
    rm -rf "$scratch"
    printf '\n=== [%4ss] %s\n' "$SECONDS" "${passed:-FAILED}"
}
trap finish EXIT

# Runs a command with a limit, so that a hang is a failure with a name.
limit() {
    local seconds=$1
    shift
    printf '$ %s\n' "$*"
    timeout --kill-after=10 "$seconds" "$@" </dev/null || {
        local status=$?
        [ "$status" = 124 ] && die "no end after $seconds s: $*"
        die "status $status: $*"
    }
}

# Installs Debian packages, if this is such a system and we may; false otherwise.
packages() {
    command -v apt-get >/dev/null || return 1
    local apt=(timeout 600 apt-get) install
    [ "$(id -u)" = 0 ] || apt=(timeout 600 sudo -n apt-get)
    install=("${apt[@]}" install -y -qq --no-install-recommends "$@")
    {
        "${install[@]}" || { "${apt[@]}" update -qq && "${install[@]}"; }
    } >/dev/null 2>&1
}

# What every run needs: a toolchain and a C linker.
need_tools() {
    [ -f "$HOME/.cargo/env" ] && . "$HOME/.cargo/env"
    command -v rustup >/dev/null || die "rustup is needed"
    command -v cc >/dev/null || packages gcc libc6-dev || die "a C compiler is needed"
    rustup show active-toolchain >/dev/null 2>&1 || limit 900 rustup default stable
    rustc --version
    cargo --version
}

# Makes a kqueue of epoll. `kqueue` has the variables that let a build use its selector, for env(1).
make_kqueue() {
    local at=${CARGO_TARGET_DIR:-$target}/kqueue
    mkdir -p "$at/lib"
    # Optimised a little, or the tests with thousands of connections take their time.
    limit 60 cc -shared -fPIC -O2 -Wall -Wextra -Werror -o "$at/lib/libkqueue.so" .ci/kqueue.c \
        -lpthread
    kqueue=(CARGO_TARGET_DIR="$at" LD_LIBRARY_PATH="$at/lib"
        RUSTFLAGS="--cfg windlass_kqueue -L native=$at/lib")
}

declare -A installing=()

# Begins to install a subcommand of cargo that is missing. It compiles for minutes and is needed
# last: beside the other sections, at the lowest priority, and without optimisations.
install_cargo_tool() {
    command -v "$1" >/dev/null && return
    env -u CARGO_TARGET_DIR -u RUSTFLAGS CARGO_PROFILE_DEV_DEBUG=0 \
        nice -n 19 timeout 1800 cargo install --debug --locked "$1" \
        </dev/null >"$scratch/$1.log" 2>&1 &
    installing[$1]=$!
}

# Whether there is this subcommand of cargo, once its installation has ended.
has_cargo_tool() {
    if [ -n "${installing[$1]:-}" ]; then
        wait "${installing[$1]}" || tail -n 20 "$scratch/$1.log"
        unset "installing[$1]"
    fi
    command -v "$1" >/dev/null
}

# Installs a nightly toolchain with these components; false when it cannot be had.
nightly() {
    local components=()
    for component in "$@"; do
        components+=(--component "$component")
    done
    rustup toolchain install nightly --no-self-update --profile minimal "${components[@]}"
}

# Whether fuzz targets can be built and run here; installs what is missing.
has_fuzzer() {
    { rustc +nightly --version 2>/dev/null || nightly; } \
        && has_cargo_tool cargo-fuzz \
        && { command -v c++ >/dev/null || packages g++; }
}

# Builds all fuzz targets once, then runs them at the same time, each for so many seconds. What one
# finds is kept in fuzz/artifacts: `cargo +nightly fuzz run TARGET FILE` repeats it.
fuzz() {
    local seconds=$1 name status i built failed=
    declare -A running=()
    built=$target/fuzz/$(rustc -vV | sed -n 's/^host: //p')/release
    CARGO_TARGET_DIR=$target/fuzz limit 1800 cargo +nightly fuzz build
    for name in $(cargo +nightly fuzz list); do
        mkdir -p "fuzz/corpus/$name" "fuzz/artifacts/$name"
        # libFuzzer begins with inputs of a byte; these are programs at once.
        for i in 1 2 3 4 5 6 7 8; do
            head -c $((i * 128)) /dev/urandom >"fuzz/corpus/$name/seed-$i"
        done
        ASAN_OPTIONS=detect_odr_violation=0 timeout --kill-after=10 "$((seconds + 300))" \
            "$built/$name" "fuzz/corpus/$name" -artifact_prefix="fuzz/artifacts/$name/" \
            -max_total_time="$seconds" -timeout=150 -rss_limit_mb=4096 -max_len=1024 \
            -len_control=0 -print_final_stats=1 </dev/null >"$scratch/fuzz-$name" 2>&1 &
        running[$name]=$!
    done
    for name in "${!running[@]}"; do
        status=0
        wait "${running[$name]}" || status=$?
        if [ "$status" = 0 ]; then
            printf '%s: %s programs\n' "$name" \
                "$(sed -n 's/^stat::number_of_executed_units: *//p' "$scratch/fuzz-$name")"
        else
            tail -n 60 "$scratch/fuzz-$name"
            failed="$failed $name"
        fi
    done
    [ -z "$failed" ] || die "fuzz:$failed"
}
