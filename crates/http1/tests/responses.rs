//! Responses: what frames them, and what is refused.
#![allow(missing_docs)] // a test binary has no users

mod common;

use common::{Responses, Seen, bodies, get, refusal, response, responses};
use windlass_http1::Rule::{self, *};
use windlass_http1::{Asked, Framing, Limits, Method, Version};

const OK: &str = "HTTP/1.1 200 OK\r\n";

fn heads(seen: &[Seen]) -> Vec<&common::Response> {
    let mut heads = Vec::new();
    for event in seen {
        if let Seen::Response(head) = event {
            heads.push(head);
        }
    }
    heads
}

#[track_caller]
fn refuses(rows: &[(&str, Rule)]) {
    for (input, rule) in rows {
        let seen = response(input);
        assert_eq!(refusal(&seen), Some((*rule, 502)), "{input:?}: {seen:?}");
    }
}

fn asked(method: Method) -> Asked {
    Asked::new(method, Version::Http11)
}

#[test]
fn a_head_has_its_parts() {
    for (line, status, reason) in [
        ("HTTP/1.1 200 OK", 200, "OK"),
        ("HTTP/1.1 404 Not Found", 404, "Not Found"),
        ("HTTP/1.1 200 ", 200, ""),
        ("HTTP/1.1 200", 200, ""),
        ("HTTP/1.0 599  a\tb ", 599, " a\tb "),
        ("HTTP/1.1 999 \u{e9}", 999, "\u{c3}\u{a9}"),
    ] {
        let seen = response(format!("{line}\r\nContent-Length: 0\r\nA: b\r\n\r\n"));
        let head = heads(&seen)[0];
        assert_eq!((head.status, head.reason.as_str()), (status, reason), "{line:?}");
        assert_eq!(head.fields[1], ("A".to_owned(), "b".to_owned()));
    }
}

#[test]
fn fields_of_requests_mean_nothing() {
    let fields = "Host: a b\r\nHost:\r\nExpect: a\r\nContent-Length: 0\r\n";
    let seen = response(format!("{OK}{fields}\r\n"));
    assert_eq!(heads(&seen)[0].fields.len(), 4);
    assert_eq!(seen.last(), Some(&Seen::Closed));
}

#[test]
fn bodies_have_lengths_chunks_or_the_end() {
    for (rest, body, framing) in [
        ("Content-Length: 2\r\n\r\nhi", "hi", Framing::Length(2)),
        ("Content-Length: 0\r\n\r\n", "", Framing::Empty),
        ("Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", "hi", Framing::Chunked),
        ("Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nA: b\r\n\r\n", "hi", Framing::Chunked),
        ("\r\nall that follows", "all that follows", Framing::UntilClose),
        ("\r\n", "", Framing::UntilClose),
    ] {
        let seen = response(format!("{OK}{rest}"));
        assert_eq!(bodies(&seen), [body.as_bytes()], "{rest:?}");
        assert_eq!(heads(&seen)[0].framing, framing);
        assert_eq!(heads(&seen)[0].keep_alive, framing != Framing::UntilClose);
        assert_eq!(seen.last(), Some(&Seen::Closed));
    }
}

/// RFC 9112, 6.3: the request decides, too.
#[test]
fn some_responses_have_no_body() {
    let next = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    for (method, head) in [
        (Method::Head, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"),
        (Method::Head, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"),
        (Method::Head, "HTTP/1.1 200 OK\r\n\r\n"),
        (Method::Get, "HTTP/1.1 204 No Content\r\n\r\n"),
        (Method::Get, "HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n"),
        (Method::Get, "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n"),
        (Method::Get, "HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n"),
        (Method::Connect, "HTTP/1.1 407 No\r\nContent-Length: 0\r\n\r\n"),
    ] {
        let seen = responses(&[asked(method), get()], format!("{head}{next}"));
        assert_eq!(heads(&seen).len(), 2, "{head:?}: {seen:?}");
        assert_eq!(heads(&seen)[0].framing, Framing::Empty, "{head:?}");
        assert_eq!(seen.last(), Some(&Seen::Closed));
    }
}

#[test]
fn a_tunnel_begins_behind_a_connect() {
    for head in [
        "HTTP/1.1 200 OK\r\n\r\n",
        "HTTP/1.1 299 OK\r\nContent-Length: 5\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
    ] {
        let seen = responses(&[asked(Method::Connect)], format!("{head}\x16\x03"));
        assert_eq!(heads(&seen)[0].framing, Framing::Tunnel, "{head:?}");
        assert_eq!(seen[1..], [Seen::End, Seen::Closed], "{head:?}");
    }
    let seen =
        responses(&[asked(Method::Connect)], "HTTP/1.1 502 No\r\nContent-Length: 2\r\n\r\nno");
    assert_eq!(bodies(&seen), [b"no"]);
}

#[test]
fn a_switch_is_asked_for() {
    let head = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: a\r\n\r\n";
    let seen = responses(&[Asked { upgrade: true, ..get() }], format!("{head}\x01\x02"));
    assert_eq!(heads(&seen)[0].framing, Framing::Tunnel);
    assert_eq!(heads(&seen)[0].upgrade.as_deref(), Some("a"));
    assert_eq!(seen[1..], [Seen::End, Seen::Closed]);
    refuses(&[(head, SwitchUnasked)]);
    let seen = responses(
        &[Asked { upgrade: true, ..get() }],
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: a\r\n\r\n",
    );
    assert_eq!(refusal(&seen), Some((SwitchUnasked, 502)), "Connection does not name it");
}

#[test]
fn interim_responses_come_before() {
    let interim = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n\
                   HTTP/1.1 199 x\r\n\r\n";
    let seen = response(format!("{interim}{OK}Content-Length: 2\r\n\r\nhi"));
    assert_eq!(seen[..3], [Seen::Interim(100), Seen::Interim(103), Seen::Interim(199)]);
    assert_eq!(bodies(&seen), [b"hi"]);
    let limits = Limits { interim: 60, ..Limits::default() };
    let seen = common::responses_with(limits, &[get()], interim.to_owned() + OK);
    assert_eq!(refusal(&seen), Some((InterimTooLong, 502)));
    assert_eq!(seen[0], Seen::Interim(100));
    // The sum is that of one response.
    let one = format!("HTTP/1.1 100 Continue\r\n\r\n{OK}Content-Length: 0\r\n\r\n");
    let seen = common::responses_with(limits, &[get(), get(), get()], one.repeat(3));
    assert_eq!(heads(&seen).len(), 3);
}

#[test]
fn responses_come_in_the_order_of_their_requests() {
    let two = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n";
    let all = [get(), asked(Method::Head), get()];
    let seen = responses(&all, format!("{two}{head}{two}"));
    assert_eq!(bodies(&seen), [&b"hi"[..], b"", b"hi"]);
    assert_eq!(seen.last(), Some(&Seen::Closed));
}

/// What a server sends without a request is no answer to the next one.
#[test]
fn responses_without_requests_are_refused() {
    let ok = format!("{OK}Content-Length: 0\r\n\r\n");
    let seen = responses(&[get()], format!("{ok}{ok}"));
    assert_eq!(heads(&seen).len(), 1);
    assert_eq!(refusal(&seen), Some((Unsolicited, 502)));
    assert_eq!(refusal(&responses(&[], &ok)), Some((Unsolicited, 502)));
    assert_eq!(responses(&[], ""), [Seen::Closed]);
    // A 204 whose body the server sends all the same.
    let seen = responses(&[get()], "HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\nbody");
    assert_eq!(refusal(&seen), Some((Unsolicited, 502)));
}

#[test]
fn connections_are_kept_or_closed() {
    let ok = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    for (head, keeps) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n", true),
        ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n", false),
        ("HTTP/1.0 200 OK\r\nContent-Length: 0\r\n", false),
        ("HTTP/1.0 200 OK\r\nContent-Length: 0\r\nConnection: keep-alive\r\n", true),
    ] {
        let seen = responses(&[get(), get()], format!("{head}\r\n{ok}"));
        assert_eq!(heads(&seen)[0].keep_alive, keeps, "{head:?}");
        assert_eq!(heads(&seen).len(), if keeps { 2 } else { 1 }, "{head:?}");
        assert_eq!(seen.last(), Some(&Seen::Closed));
    }
    // The client has said that it is the last one.
    let last = Asked { keep_alive: false, ..get() };
    let seen = responses(&[last, get()], ok.repeat(2));
    assert_eq!(seen[1..], [Seen::End, Seen::Closed]);
}

#[test]
fn malformed_heads_are_refused() {
    refuses(&[
        ("\r\nHTTP/1.1 200 OK\r\n\r\n", StatusLine),
        ("GET / HTTP/1.1\r\n\r\n", StatusLine),
        ("HTTP/2.0 200 OK\r\n\r\n", Version),
        ("HTTP/1.2 200 OK\r\n\r\n", Version),
        ("HTTQ/1.1 200 OK\r\n\r\n", StatusLine),
        ("HTTP/1.1  200 OK\r\n\r\n", StatusLine),
        ("HTTP/1.1 20 OK\r\n\r\n", StatusLine),
        ("HTTP/1.1 2000 OK\r\n\r\n", StatusLine),
        ("HTTP/1.1 099 OK\r\n\r\n", StatusLine),
        ("HTTP/1.1 +20 OK\r\n\r\n", StatusLine),
        ("HTTP/1.1 200 O\0K\r\n\r\n", StatusLine),
        ("HTTP/1.1 200 OK\n\n", LineEnd),
        ("HTTP/1.1 200 OK\r\nA: b\nC: d\r\n\r\n", LineEnd),
        ("HTTP/1.1 200 O\rK\r\n\r\n", StatusLine),
        ("HTTP/1.1 200 OK\r\nA: b\rC: d\r\n\r\n", LineEnd),
        ("HTTP/1.1 200 OK\r\nA : b\r\n\r\n", FieldName),
        ("HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n", Folded),
        ("HTTP/1.1 200 OK\r\nA: \0\r\n\r\n", FieldValue),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n", LengthRepeated),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\n", LengthInvalid),
        ("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", LengthInvalid),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
            LengthWithCoding,
        ),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", CodingNotChunked),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", CodingUnknown),
        ("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", CodingInVersion10),
        ("HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n", BodyForbidden),
        ("HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n", BodyForbidden),
        ("HTTP/1.1 100 Continue\r\nContent-Length: 5\r\n\r\n", BodyForbidden),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0x5\r\n", ChunkSize),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n", ChunkEnd),
    ]);
}

#[test]
fn the_input_ends_between_responses_or_inside() {
    refuses(&[
        ("", HeadTruncated),
        ("H", HeadTruncated),
        ("HTTP/1.1 200 OK\r\n", HeadTruncated),
        ("HTTP/1.1 100 Continue\r\n\r\n", HeadTruncated),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell", BodyTruncated),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", BodyTruncated),
    ]);
}

/// What fits comes, in whatever pieces, and then the refusal.
#[test]
fn a_body_without_a_length_has_a_limit() {
    let limits = Limits { body: 5, ..Limits::default() };
    let seen = common::responses_with(limits, &[get()], format!("{OK}\r\nhello"));
    assert_eq!(bodies(&seen), [b"hello"]);
    let seen = common::responses_with(limits, &[get()], format!("{OK}\r\nhello!"));
    assert_eq!(seen[1..], [Seen::Body(b"hello".to_vec()), Seen::Refused(BodyTooLong, 502)]);
}

/// The body of a response that fails is not taken for the whole.
#[test]
fn a_limit_of_one_body_can_be_set() {
    let head = format!("{OK}\r\n");
    let mut client = Responses::new(Limits::default(), &[get()]);
    client.decoder.decode(&mut client.head, head.as_bytes()).expect("a head");
    client.decoder.limit_body(3).expect("no length is known");
    client.decoder.decode(&mut client.head, b"abc").expect("three bytes");
    let error = client.decoder.decode(&mut client.head, b"d").expect_err("four bytes");
    assert_eq!((error.rule(), error.status()), (BodyTooLong, 502));
}
