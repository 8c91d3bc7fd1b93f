# What .ci/run and .ci/nightly share. Sourced, at the root of the repository.

# Nobody looks at what is built here with a debugger: half of the building is debug information.
export CARGO_PROFILE_DEV_DEBUG=0 CARGO_PROFILE_TEST_DEBUG=0

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

# Ends what was started, whatever happened.
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
    local root=
    [ "$(id -u)" = 0 ] || root="sudo -n"
    # shellcheck disable=SC2086
    timeout 600 $root apt-get install -y -qq --no-install-recommends "$@" >/dev/null 2>&1 \
        || { timeout 600 $root apt-get update -qq && timeout 600 $root apt-get install -y -qq --no-install-recommends "$@"; } \
            >/dev/null 2>&1
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
