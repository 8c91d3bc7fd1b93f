//! Delimiters: the same frames at all cuts of the input, and decoded frames can be encoded.
#![no_main]

use libfuzzer_sys::fuzz_target;
use windlass_serve::framing::Delimited;

mod framing;

fuzz_target!(|program: (bool, [bool; 5], framing::Cut)| {
    let (short, delimiter, cut) = program;
    // Few letters, so that parts of the delimiter are frequent.
    let delimiter = delimiter.map(u8::from);
    if short {
        let new = || Delimited::new(&[delimiter[0]], cut.limit());
        framing::check(&cut, new, |codec, frame, out| codec.encode(frame, out).expect("a frame"));
    } else {
        let new = || Delimited::new(&delimiter, cut.limit());
        framing::check(&cut, new, |codec, frame, out| codec.encode(frame, out).expect("a frame"));
        let new = || Delimited::new(&delimiter, cut.limit()).keep_delimiter();
        framing::check(&cut, new, |codec, frame, out| {
            codec.encode(&frame[..frame.len() - 5], out).expect("a frame");
        });
    }
});
