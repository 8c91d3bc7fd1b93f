//! Length prefixes: the same frames at all cuts of the input, and decoded frames can be encoded.
#![no_main]

use libfuzzer_sys::fuzz_target;
use windlass_serve::framing::{Prefix, Prefixed};

mod framing;
#[path = "../../crates/serve/src/framing/tests/prefixes.rs"]
mod prefixes;

use prefixes::PREFIXES;

fuzz_target!(|program: (u8, framing::Cut)| {
    let (prefix, cut) = program;
    let prefix = PREFIXES[usize::from(prefix) % PREFIXES.len()];
    let new = || Prefixed::new(prefix, cut.limit());
    framing::check(&cut, new, |codec, frame, out| codec.encode(frame, out).expect("a frame"));
});
