//! Requests: the same events at all cuts, within the limits, and no head that has a line too many.
#![no_main]

use libfuzzer_sys::fuzz_target;
use windlass_http1::{Event, RequestDecoder, RequestHead};

mod http1;

use http1::{Program, drive};

fuzz_target!(|program: Program| {
    let input = program.input("GET / HTTP/1.1\r\nHost: a\r\n");
    let run = |cuts: &[u8]| {
        let mut head = RequestHead::new(program.limits());
        let mut decoder = RequestDecoder::new();
        drive(&input, cuts, |bytes| {
            let step = decoder.decode(&mut head, bytes)?;
            for (name, value) in head.fields(bytes) {
                let is_event = matches!(step.event, Event::Head | Event::Trailers);
                let has_control = value.iter().any(|byte| b"\r\n\0".contains(byte));
                assert!(!is_event || !name.is_empty() && !has_control);
            }
            let fields = || format!("{:?}", head.fields(bytes).collect::<Vec<_>>());
            let text = match step.event {
                Event::Head => Some(format!(
                    "{} {} {:?} {:?} {:?} {:?} {}",
                    head.method(bytes),
                    head.target(bytes),
                    head.authority(bytes),
                    head.path(bytes),
                    head.framing(),
                    head.asked(),
                    fields()
                )),
                Event::Trailers => Some(fields()),
                _ => None,
            };
            Ok((step, text))
        })
    };
    assert_eq!(run(&program.cuts), run(&[]));
});
