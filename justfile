# The sections of the gate by name, for `just` (https://just.systems). `.ci/run` is the gate itself:
# it needs no just, and `.ci/run lints tests` runs the same sections.

# All sections
gate:
    .ci/run

# Fresh random programs for so many minutes
nightly minutes="300":
    MINUTES={{minutes}} .ci/nightly

# A shard of mutants: today's, or one such as 7/200
mutants shard="":
    .ci/mutants {{shard}}

# The raw loops and the peers beside windlass: echo, files, memory, all
compare suite="echo":
    cargo run --release --manifest-path bench/Cargo.toml -- {{suite}}

# `cargo fmt --check`
formatting: (section "formatting")

# Words that must not stay, tests ignored without a reason, actions without a pin
leftovers: (section "leftovers")

# clippy, with and without features
lints: (section "lints")

# Unit, documentation and conformance tests
tests: (section "tests")

# Builds with other features than those of the tests
features: (section "features")

# The ring without shared buffers
quirks: (section "quirks")

# rustdoc without warnings
documentation: (section "documentation")

# Whether the benches build
benches: (section "benches")

# clippy on bench/, its tests, and a short run of 2000 connections
bench-package: (section "bench-package")

# Each example starts, serves a client, and ends with 0 on SIGTERM
examples: (section "examples")

# Autobahn's test suite, its short classes, on the WebSocket examples
autobahn: (section "autobahn")

# kqueue's selector on Linux
kqueue: (section "kqueue")

# Types and lints on macOS, FreeBSD, Android, Windows
other-systems: (section "other-systems")

# Tests under wine
windows: (section "windows")

# Tests with musl's library
musl: (section "musl")

# Tests under qemu
aarch64: (section "aarch64")

# `rust-version` of Cargo.toml
oldest-rust: (section "oldest-rust")

# Memory orderings
loom: (section "loom")

# Undefined behaviour
miri: (section "miri")

# Memory of operations, under AddressSanitizer
asan: (section "asan")

# Threads that share connections, under ThreadSanitizer
tsan: (section "tsan")

# Each fuzz target for a minute
fuzz: (section "fuzz")

# What is published, and whether it builds
package: (section "package")

# Licences, sources, advisories, by cargo-deny
dependencies: (section "dependencies")

[private]
section name:
    .ci/run {{name}}
