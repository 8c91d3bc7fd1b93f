//! Responses: the same events at all cuts, whatever was asked.
#![no_main]

use libfuzzer_sys::fuzz_target;
use windlass_http1::{Asked, Event, Method, ResponseDecoder, ResponseHead, Version};

mod http1;

use http1::{Program, drive};

const METHODS: [Method; 4] = [Method::Get, Method::Head, Method::Connect, Method::Post];

fuzz_target!(|program: (Program, [u8; 4])| {
    let (program, asked) = program;
    let input = program.input("HTTP/1.1 200 OK\r\n");
    let run = |cuts: &[u8]| {
        let mut head = ResponseHead::new(program.limits());
        let mut decoder = ResponseDecoder::new();
        let mut asked = asked.iter().map(|bits| Asked {
            upgrade: bits & 4 != 0,
            keep_alive: bits & 8 == 0,
            ..Asked::new(METHODS[usize::from(bits & 3)], Version::Http11)
        });
        asked.next().into_iter().for_each(|first| decoder.expect(first));
        drive(&input, cuts, |bytes| {
            let step = decoder.decode(&mut head, bytes)?;
            if step.event == Event::End {
                asked.next().into_iter().for_each(|next| decoder.expect(next));
            }
            let fields = || format!("{:?}", head.fields(bytes).collect::<Vec<_>>());
            let text = match step.event {
                Event::Head | Event::Interim => Some(format!(
                    "{} {:?} {:?} {} {}",
                    head.status(),
                    head.reason(bytes),
                    head.framing(),
                    head.keep_alive(),
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
