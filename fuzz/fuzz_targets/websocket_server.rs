//! Frames of a client: the same events at all cuts, within the limits.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/websocket/tests/common/mod.rs"]
mod common;
mod websocket;

fuzz_target!(|program: websocket::Program| program.check(common::SERVER));
