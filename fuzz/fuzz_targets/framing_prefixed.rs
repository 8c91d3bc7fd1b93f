//! Length prefixes: the same frames however the input is cut, and what was decoded can be encoded.
#![no_main]

use libfuzzer_sys::fuzz_target;
use windlass_serve::framing::{Prefix, Prefixed};

mod framing;

const PREFIXES: [Prefix; 10] = [
    Prefix::U8,
    Prefix::U16Be,
    Prefix::U16Le,
    Prefix::U24Be,
    Prefix::U24Le,
    Prefix::U32Be,
    Prefix::U32Le,
    Prefix::U64Be,
    Prefix::U64Le,
    Prefix::Varint,
];

fuzz_target!(|program: (u8, framing::Cut)| {
    let (prefix, cut) = program;
    let prefix = PREFIXES[usize::from(prefix) % PREFIXES.len()];
    let new = || Prefixed::new(prefix, cut.limit());
    framing::check(&cut, new, |codec, frame, out| codec.encode(frame, out).expect("a frame"));
});
