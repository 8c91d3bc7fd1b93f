//! Lines: the same frames at all cuts of the input, and decoded frames can be encoded.
#![no_main]

use libfuzzer_sys::fuzz_target;
use windlass_serve::framing::{Ending, Lines};

mod framing;

fuzz_target!(|program: (u8, framing::Cut)| {
    let (ending, cut) = program;
    let ending = [Ending::Lf, Ending::CrLf, Ending::Either][usize::from(ending % 3)];
    let new = || Lines::with_ending(ending, cut.limit());
    framing::check(&cut, new, |lines, line, out| {
        // A CR at the end of a line that may end with LF alone cannot be told from its ending.
        if !(ending == Ending::Either && line.ends_with(b"\r")) {
            return lines.encode(line, out).expect("it was a line");
        }
        assert!(lines.encode(line, out).is_err());
        out.extend_from_slice(line);
        out.extend_from_slice(b"\r\n");
    });
});
