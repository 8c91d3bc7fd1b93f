//! Decoders allocate nothing, and encoders nothing beyond the memory that they get.
#![allow(missing_docs)] // a test binary has no users

use windlass_http1::{
    Asked, Event, Limits, Method, RequestDecoder, RequestHead, ResponseDecoder, ResponseEncoder,
    ResponseHead, Version,
};

#[path = "../../../tests/common/alloc.rs"]
mod alloc;

const REQUESTS: &[u8] = b"GET /a HTTP/1.1\r\nHost: a\r\nConnection: keep-alive\r\nA: b\r\n\r\n\
    POST /b HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\nhello\
    POST /c HTTP/1.1\r\nHost: [::1]:80\r\nTransfer-Encoding: chunked\r\n\r\n\
    5;a=b\r\nhello\r\n0\r\nMd5: c\r\n\r\n";

const RESPONSE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n\
    HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nServer: a\r\n\r\n\
    5;a=b\r\nhello\r\n0\r\nMd5: c\r\n\r\n";

/// How many allocations `work` makes.
fn allocations(work: impl FnOnce()) -> u64 {
    let before = alloc::allocations();
    work();
    alloc::allocations() - before
}

/// Reads the requests in pieces of this size, and answers each.
fn serve(head: &mut RequestHead, out: &mut Vec<u8>, piece: usize) {
    let mut decoder = RequestDecoder::new();
    let (mut from, mut to, mut ends) = (0, 0, 0);
    while ends < 3 {
        let bytes = &REQUESTS[from..to];
        let step = decoder.decode(head, bytes).expect("valid requests");
        from += step.consumed;
        match step.event {
            Event::Head => {
                out.clear();
                assert_eq!(head.get(bytes, "nothing"), None);
                let path = head.path(bytes);
                let mut response = ResponseEncoder::new(out, head.asked(), 200).expect("a status");
                response.field("Path", path).expect("a value");
                let mut body = response.chunked().expect("a body");
                body.data(out, b"hello").expect("a body");
                body.end_with(out, [("a", &b"b"[..])]).expect("trailers");
            }
            Event::End => ends += 1,
            Event::NeedMore => to = REQUESTS.len().min(to + piece),
            _ => {}
        }
    }
}

fn read(head: &mut ResponseHead, piece: usize) {
    let mut decoder = ResponseDecoder::new();
    decoder.expect(Asked::new(Method::Get, Version::Http11));
    let (mut from, mut to) = (0, 0);
    loop {
        let step = decoder.decode(head, &RESPONSE[from..to]).expect("a valid response");
        from += step.consumed;
        match step.event {
            Event::End => return,
            Event::NeedMore => to = RESPONSE.len().min(to + piece),
            _ => {}
        }
    }
}

#[test]
fn messages_allocate_nothing() {
    let mut head = RequestHead::new(Limits::default());
    let mut out = Vec::with_capacity(1000);
    let mut answer = ResponseHead::new(Limits::default());
    // httparse asks the processor for its vector instructions once.
    serve(&mut head, &mut out, 1000);
    let count = allocations(|| {
        for piece in [1, 2, 3, 10, 100, 1000] {
            serve(&mut head, &mut out, piece);
            read(&mut answer, piece);
        }
    });
    assert_eq!(count, 0);
    // The count counts: a head has one table.
    assert_eq!(allocations(|| drop(RequestHead::new(Limits::default()))), 1);
}

#[test]
fn refusals_allocate_nothing() {
    let mut head = RequestHead::new(Limits::default());
    let count = allocations(|| {
        for bytes in
            [&b"GET / HTTP/1.1\r\nA : b\r\n\r\n"[..], b"\x16\x03", b"GET / HTTP/2.0\r\n\r\n"]
        {
            let mut decoder = RequestDecoder::new();
            let error = decoder.decode(&mut head, bytes).expect_err("a refusal");
            assert!(error.status() >= 400);
        }
    });
    assert_eq!(count, 0);
}
