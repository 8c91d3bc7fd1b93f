//! How much work a byte is, and how much memory a connection.

use super::{Event, RequestDecoder, ResponseDecoder};
use crate::head::{RequestHead, ResponseHead};
use crate::limits::Limits;
use crate::scan::work;
use crate::words::{Asked, Method, Version};

/// Feeds the pieces of a message until it ends, and returns how many bytes were looked at.
fn looked_at(message: &[u8], piece: usize) -> usize {
    let mut head = RequestHead::new(Limits::default());
    let mut decoder = RequestDecoder::new();
    let (mut from, mut to) = (0, 0);
    work::take();
    loop {
        let step = decoder.decode(&mut head, &message[from..to]).expect("a valid message");
        from += step.consumed;
        match step.event {
            Event::End => return work::take(),
            Event::NeedMore => to = message.len().min(to + piece),
            _ => {}
        }
    }
}

fn head_of(len: usize) -> Vec<u8> {
    let mut head = b"GET / HTTP/1.1\r\nHost: a\r\n".to_vec();
    while head.len() + 200 < len {
        head.extend_from_slice(format!("X-{:04}: {}\r\n", head.len(), "v".repeat(150)).as_bytes());
    }
    let rest = len - head.len() - "X: \r\n\r\n".len();
    head.extend_from_slice(format!("X: {}\r\n\r\n", "v".repeat(rest)).as_bytes());
    assert_eq!(head.len(), len);
    head
}

/// Each byte is parsed once, and once more or searched before, if the head does not come whole.
#[test]
fn a_head_is_looked_at_twice_at_most() {
    let head = head_of(8192);
    assert_eq!(looked_at(&head, head.len()), head.len(), "a whole head is not searched");
    // Miri takes a minute for each small size.
    let small: &[usize] = if cfg!(miri) { &[] } else { &[1, 2, 3, 7] };
    for piece in [small, &[100, 1000, 4096, 8000, 8191]].concat() {
        assert_eq!(looked_at(&head, piece), 2 * head.len(), "pieces of {piece}");
    }
}

#[test]
fn a_long_request_line_is_looked_at_twice_at_most() {
    let line = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(8000));
    assert_eq!(looked_at(line.as_bytes(), 1), 2 * line.len());
}

#[test]
fn lines_of_chunks_and_trailers_are_looked_at_twice_at_most() {
    let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    let lines =
        format!("1;{}\r\n", "e".repeat(200)).len() + format!("0;{}\r\n", "e".repeat(200)).len();
    let trailers = format!("A: {}\r\n", "v".repeat(100)).repeat(20) + "\r\n";
    let message = format!("{head}1;{0}\r\nx\r\n0;{0}\r\n{trailers}", "e".repeat(200),);
    let looked = looked_at(message.as_bytes(), 1);
    assert_eq!(looked, 2 * head.len() + lines + 2 * trailers.len());
}

/// The bytes of a body are not looked at.
#[test]
fn bodies_are_not_looked_at() {
    let head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n";
    let message = head.to_owned() + &"b".repeat(100_000);
    assert_eq!(looked_at(message.as_bytes(), 200_000), head.len());
    assert_eq!(looked_at(message.as_bytes(), head.len()), head.len());
}

/// An idle connection keeps a decoder.
#[test]
fn decoders_are_small() {
    assert!(size_of::<RequestDecoder>() <= 32, "{}", size_of::<RequestDecoder>());
    assert!(size_of::<ResponseDecoder>() <= 40, "{}", size_of::<ResponseDecoder>());
}

#[test]
fn decoders_are_idle_between_messages() {
    let mut head = RequestHead::new(Limits::default());
    let mut decoder = RequestDecoder::new();
    let message = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    assert!(decoder.is_idle());
    decoder.decode(&mut head, &message[..5]).expect("a part");
    assert!(!decoder.is_idle());
    decoder.decode(&mut head, message).expect("a head");
    assert!(!decoder.is_idle());
    decoder.decode(&mut head, b"").expect("the end");
    assert!(decoder.is_idle());

    let mut head = ResponseHead::new(Limits::default());
    let mut decoder = ResponseDecoder::new();
    assert!(decoder.is_idle());
    decoder.expect(Asked::new(Method::Get, Version::Http11));
    assert!(!decoder.is_idle());
    decoder.decode(&mut head, b"HTTP/1.1 204 No Content\r\n\r\n").expect("a head");
    assert!(!decoder.is_idle());
    decoder.decode(&mut head, b"").expect("the end");
    assert!(decoder.is_idle());
}

/// A caller that loses bytes gets no sense, and no panic.
#[test]
fn fewer_bytes_than_before_are_no_panic() {
    let chunked = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (first, second) in
        [("", "GET / HTTP/1.1\r\nHost"), (chunked, "5;aaaaa"), (chunked, "0\r\nA: b")]
    {
        let mut head = RequestHead::new(Limits::default());
        let mut decoder = RequestDecoder::new();
        decoder.decode(&mut head, first.as_bytes()).expect("a valid message");
        let step = decoder.decode(&mut head, second.as_bytes()).expect("a part");
        for len in (0..second.len() - step.consumed).rev() {
            let rest = &second.as_bytes()[step.consumed..][..len];
            assert_eq!(decoder.decode(&mut head, rest).expect("a part").event, Event::NeedMore);
        }
    }
}

#[test]
fn a_decoder_knows_what_is_left_of_a_body() {
    let mut head = RequestHead::new(Limits::default());
    let mut decoder = RequestDecoder::new();
    assert_eq!(decoder.left(), Some(0));
    let mut decode = |decoder: &mut RequestDecoder, bytes: &[u8]| {
        let event = decoder.decode(&mut head, bytes).map(|step| step.event);
        (event.ok(), decoder.left())
    };
    let long = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n";
    assert_eq!(decode(&mut decoder, long), (Some(Event::Head), Some(3)));
    assert_eq!(decode(&mut decoder, b"a"), (Some(Event::Body(0..1)), Some(2)));
    assert_eq!(decode(&mut decoder, b"bc"), (Some(Event::Body(0..2)), Some(0)));
    assert_eq!(decode(&mut decoder, b""), (Some(Event::End), Some(0)));
    let chunked = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(decode(&mut decoder, chunked), (Some(Event::Head), None));
    assert_eq!(decode(&mut decoder, b"1\r\na\r\n0\r\n\r\n").1, None);
    assert_eq!(decode(&mut decoder, b"\r\n0\r\n\r\n"), (Some(Event::End), Some(0)));
    assert_eq!(decode(&mut decoder, b"\n"), (None, None), "it is refused");
}
