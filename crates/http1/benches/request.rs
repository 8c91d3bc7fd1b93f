//! What a request costs: with httparse alone, with the decoder, and with an answer.
//!
//! ```text
//! cargo bench -p windlass-http1 --bench request -- httparse|decode|answer|chunked|response [COUNT]
//! valgrind --tool=callgrind --callgrind-out-file=/dev/null …
//! ```
//!
//! The difference of two runs, with two counts, is what the requests between them cost.
#![allow(missing_docs)] // a bench has no users

use std::hint::black_box;
use std::mem::MaybeUninit;

use windlass_http1::{
    Asked, Event, Limits, Method, RequestDecoder, RequestHead, ResponseDecoder, ResponseEncoder,
    ResponseHead, Version,
};

/// A request of 417 bytes, as load generators send it.
const REQUEST: &[u8] = b"GET /plaintext HTTP/1.1\r\n\
    Host: 127.0.0.1:8080\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64) Gecko/20130501 Firefox/30.0 AppleWebKit/600.00 \
    Chrome/30.0.0000.0 Trident/10.0 Safari/600.00\r\n\
    Cookie: uid=12345678901234567890; __utma=1.1234567890.1234567890.1234567890.1234567890.12\r\n\
    Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8,text/plain\r\n\
    Accept-Language: en-US,en;q=0.5\r\n\
    Connection: keep-alive\r\n\r\n";

const CHUNKED: &[u8] = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
    b\r\nhello world\r\n0\r\n\r\n";

const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\n\
    Server: floor\r\n\
    Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
    Content-Type: text/plain\r\n\
    Content-Length: 13\r\n\
    \r\n\
    Hello, World!";

fn httparse(count: usize) {
    for _ in 0..count {
        let mut fields = [const { MaybeUninit::uninit() }; 100];
        let mut request = httparse::Request::new(&mut []);
        let parsed = request.parse_with_uninit_headers(black_box(REQUEST), &mut fields);
        assert_eq!(parsed, Ok(httparse::Status::Complete(REQUEST.len())));
        black_box(&request);
    }
}

/// Decodes requests up to their ends.
fn decode(bytes: &[u8], count: usize, mut answer: impl FnMut(&RequestHead)) {
    let mut head = RequestHead::new(Limits::default());
    let mut decoder = RequestDecoder::new();
    for _ in 0..count {
        let mut input = black_box(bytes);
        loop {
            let step = decoder.decode(&mut head, input).expect("a valid request");
            input = &input[step.consumed..];
            match step.event {
                Event::Head => answer(black_box(&head)),
                Event::End => break,
                _ => {}
            }
        }
    }
}

/// Encodes the usual answer of a benchmark.
fn encode(out: &mut Vec<u8>, asked: Asked) {
    let mut head = ResponseEncoder::new(out, asked, 200).expect("a status");
    head.field("Server", black_box("floor")).expect("a value");
    head.field("Date", black_box("Sun, 06 Nov 1994 08:49:37 GMT")).expect("a value");
    head.field("Content-Type", black_box("text/plain")).expect("a value");
    let mut body = head.length(13).expect("a body");
    body.data(out, b"Hello, World!").expect("13 bytes");
    body.end(out).expect("13 bytes");
}

fn response(count: usize) {
    let mut head = ResponseHead::new(Limits::default());
    let mut decoder = ResponseDecoder::new();
    for _ in 0..count {
        decoder.expect(Asked::new(Method::Get, Version::Http11));
        let mut input = black_box(RESPONSE);
        loop {
            let step = decoder.decode(&mut head, input).expect("a valid response");
            input = &input[step.consumed..];
            black_box(&head);
            if step.event == Event::End {
                break;
            }
        }
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let what = arguments.next().unwrap_or_else(|| "decode".to_owned());
    let count = arguments.next().map_or(100_000, |count| count.parse().expect("a count"));
    let mut out = Vec::with_capacity(512);
    let start = std::time::Instant::now();
    match what.as_str() {
        "httparse" => httparse(count),
        "decode" => decode(REQUEST, count, |_| {}),
        "answer" => decode(REQUEST, count, |head| {
            out.clear();
            encode(&mut out, head.asked());
            black_box(&out);
        }),
        "chunked" => decode(CHUNKED, count, |_| {}),
        "response" => response(count),
        other => panic!("there is no {other}"),
    }
    println!("{what}: {:.0} ns each", start.elapsed().as_nanos() as f64 / count as f64);
}
