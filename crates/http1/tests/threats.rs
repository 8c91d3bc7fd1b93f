//! Requests that two servers could read in two ways, and what refuses them.
//!
//! Each runs at every cut. A request behind it must never be seen.
#![allow(missing_docs)] // a test binary has no users

mod common;

use common::{Seen, refusal, requests};
use windlass_http1::Rule::{self, *};

/// A request that would be smuggled.
const SECRET: &str = "GET /secret HTTP/1.1\r\nHost: a\r\n\r\n";

/// Requests are refused by their rule, and nothing behind them is taken for a request.
#[track_caller]
fn refuses(rows: &[(&str, Rule, u16)]) {
    for (request, rule, status) in rows {
        let input = format!("{request}{SECRET}");
        let seen = requests(&input);
        assert_eq!(refusal(&seen), Some((*rule, *status)), "{request:?}: {seen:?}");
        let is_secret = |event: &Seen| matches!(event, Seen::Request(r) if r.target == "/secret");
        assert!(!seen.iter().any(is_secret), "{request:?}");
    }
}

/// The same for fields behind a request line and a Host.
#[track_caller]
fn refuses_fields(rows: &[(&str, Rule)]) {
    for (fields, rule) in rows {
        let request = format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        refuses(&[(&request, *rule, rule.status())]);
    }
}

/// The same for a chunked body.
#[track_caller]
fn refuses_chunks(rows: &[(&str, Rule)]) {
    for (body, rule) in rows {
        let request =
            format!("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{body}");
        refuses(&[(&request, *rule, rule.status())]);
    }
}

#[test]
fn lines_end_with_cr_lf() {
    refuses(&[
        ("GET / HTTP/1.1\nHost: a\n\n", LineEnd, 400),
        ("GET / HTTP/1.1\nHost: a\r\n\r\n", LineEnd, 400),
        ("GET / HTTP/1.1\r\nHost: a\n\r\n", LineEnd, 400),
        ("GET / HTTP/1.1\r\nHost: a\nB: c\r\n\r\n", LineEnd, 400),
        ("GET / HTTP/1.1\r\nB:\nHost: a\r\n\r\n", LineEnd, 400),
        ("GET / HTTP/1.1\r\nHost: a\r\n\n", LineEnd, 400),
        ("GET / HTTP/1.0\n\n", LineEnd, 400),
        ("GET / HTTP/1.0\r\n\n", LineEnd, 400),
        ("GET / HTTP/1.1\rHost: a\r\n\r\n", LineEnd, 400),
        ("GET / HTTP/1.1\r\nHost: a\rB: c\r\n\r\n", LineEnd, 400),
        ("GET / HTTP/1.1\r\nHost: a\r\n\rB: c\r\n\r\n", LineEnd, 400),
        ("GET / HTTP/1.1\r\nHost: a\r\r\n\r\n", LineEnd, 400),
        ("\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", LineEnd, 400),
        ("\rGET / HTTP/1.1\r\nHost: a\r\n\r\n", LineEnd, 400),
    ]);
}

#[test]
fn empty_lines_in_front_are_bounded() {
    refuses(&[
        ("\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", EmptyLine, 400),
        ("\r\n\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", LineEnd, 400),
        ("\r\n GET / HTTP/1.1\r\nHost: a\r\n\r\n", RequestLine, 400),
    ]);
}

#[test]
fn request_lines_have_three_words() {
    refuses(&[
        ("GET /\r\n\r\n", RequestLine, 400),
        ("GET  / HTTP/1.1\r\nHost: a\r\n\r\n", RequestLine, 400),
        ("GET /  HTTP/1.1\r\nHost: a\r\n\r\n", RequestLine, 400),
        ("GET / b HTTP/1.1\r\nHost: a\r\n\r\n", RequestLine, 400),
        ("GET\t/\tHTTP/1.1\r\nHost: a\r\n\r\n", RequestLine, 400),
        (" GET / HTTP/1.1\r\nHost: a\r\n\r\n", RequestLine, 400),
        ("GET / HTTP/1.1 \r\nHost: a\r\n\r\n", RequestLine, 400),
        ("GET / HTTP/1.1\tx\r\nHost: a\r\n\r\n", RequestLine, 400),
        ("GET / \r\n\r\n", RequestLine, 400),
        ("GET HTTP/1.1\r\nHost: a\r\n\r\n", RequestLine, 400),
        ("G(T / HTTP/1.1\r\nHost: a\r\n\r\n", RequestLine, 400),
        ("G\0T / HTTP/1.1\r\nHost: a\r\n\r\n", RequestLine, 400),
        ("GET /\0 HTTP/1.1\r\nHost: a\r\n\r\n", RequestLine, 400),
        ("GET /\x7f HTTP/1.1\r\nHost: a\r\n\r\n", RequestLine, 400),
        ("\x16\x03\x01\x02", RequestLine, 400),
        ("{}", RequestLine, 400),
    ]);
}

#[test]
fn versions_are_two() {
    refuses(&[
        ("GET / HTTP/1.2\r\nHost: a\r\n\r\n", Version, 505),
        ("GET / HTTP/0.9\r\nHost: a\r\n\r\n", Version, 505),
        ("GET / HTTP/9.9\r\nHost: a\r\n\r\n", Version, 505),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Version, 505),
        ("GET / http/1.1\r\nHost: a\r\n\r\n", RequestLine, 400),
        ("GET / HTTP/1\r\nHost: a\r\n\r\n", RequestLine, 400),
        ("GET / HTTP/1.10\r\nHost: a\r\n\r\n", RequestLine, 400),
        ("GET / HTTP/1,1\r\nHost: a\r\n\r\n", RequestLine, 400),
        ("GET / HTTPS/1.1\r\nHost: a\r\n\r\n", RequestLine, 400),
    ]);
}

#[test]
fn targets_fit_their_methods() {
    for request in [
        "GET * HTTP/1.1",
        "GET a HTTP/1.1",
        "GET a:80 HTTP/1.1",
        "GET ?a HTTP/1.1",
        "GET /#a HTTP/1.1",
        "GET /\u{e9} HTTP/1.1",
        "GET http:///a HTTP/1.1",
        "GET http://u:p@b/ HTTP/1.1",
        "GET ftp://b/ HTTP/1.1",
        "GET /\\..\\a HTTP/1.1",
        "OPTIONS *a HTTP/1.1",
        "CONNECT / HTTP/1.1",
        "CONNECT a HTTP/1.1",
        "CONNECT a: HTTP/1.1",
        "CONNECT a:0x50 HTTP/1.1",
        "CONNECT http://a:80 HTTP/1.1",
    ] {
        refuses(&[(&format!("{request}\r\nHost: a\r\n\r\n"), Target, 400)]);
    }
}

#[test]
fn names_are_tokens_without_space() {
    refuses_fields(&[
        ("A : b\r\n", FieldName),
        ("A\t: b\r\n", FieldName),
        ("Transfer-Encoding : chunked\r\n", FieldName),
        ("Content-Length : 5\r\n", FieldName),
        (": b\r\n", FieldName),
        ("A\r\n", FieldName),
        ("A b: c\r\n", FieldName),
        ("A[]: c\r\n", FieldName),
        ("\u{e9}: c\r\n", FieldName),
        ("\0: c\r\n", FieldName),
        ("A\0: c\r\n", FieldName),
        ("Content-Length\x0b: 5\r\n", FieldName),
    ]);
}

#[test]
fn fields_are_not_folded() {
    refuses_fields(&[
        ("A: b\r\n c\r\n", Folded),
        ("A: b\r\n\tc\r\n", Folded),
        ("A:\r\n b\r\n", Folded),
        ("Transfer-Encoding:\r\n chunked\r\n", Folded),
        ("A: b\r\n \r\n", Folded),
    ]);
    refuses(&[("GET / HTTP/1.1\r\n Host: a\r\n\r\n", Folded, 400)]);
}

#[test]
fn values_have_no_control_bytes() {
    refuses_fields(&[
        ("A: b\0c\r\n", FieldValue),
        ("A: \x07\r\n", FieldValue),
        ("A: b\x0bc\r\n", FieldValue),
        ("A: b\x7fc\r\n", FieldValue),
        ("A: b\x1b[0m\r\n", FieldValue),
        ("Transfer-Encoding: \x0bchunked\r\n", FieldValue),
        ("A: b\rc\r\n", LineEnd),
    ]);
}

#[test]
fn there_is_one_valid_host() {
    refuses(&[
        ("GET / HTTP/1.1\r\n\r\n", HostMissing, 400),
        ("GET / HTTP/1.1\r\nXost: a\r\n\r\n", HostMissing, 400),
        ("GET http://a/ HTTP/1.1\r\n\r\n", HostMissing, 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", HostRepeated, 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nhOST: b\r\n\r\n", HostRepeated, 400),
        ("GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n", HostRepeated, 400),
        ("GET / HTTP/1.1\r\nHost:\r\n\r\n", HostInvalid, 400),
        ("GET / HTTP/1.1\r\nHost: a b\r\n\r\n", HostInvalid, 400),
        ("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", HostInvalid, 400),
        ("GET / HTTP/1.1\r\nHost: u@a\r\n\r\n", HostInvalid, 400),
        ("GET / HTTP/1.1\r\nHost: a:b\r\n\r\n", HostInvalid, 400),
        ("GET / HTTP/1.1\r\nHost: a:80:80\r\n\r\n", HostInvalid, 400),
        ("GET / HTTP/1.1\r\nHost: http://a\r\n\r\n", HostInvalid, 400),
        ("GET / HTTP/1.1\r\nHost: [::1\r\n\r\n", HostInvalid, 400),
        ("GET / HTTP/1.1\r\nHost: \u{e9}\r\n\r\n", HostInvalid, 400),
        ("GET / HTTP/1.0\r\nHost: a b\r\n\r\n", HostInvalid, 400),
    ]);
}

#[test]
fn lengths_are_one_number() {
    refuses_fields(&[
        ("Content-Length: 5\r\nContent-Length: 6\r\n", LengthRepeated),
        ("Content-Length: 5\r\nContent-Length: 5\r\n", LengthRepeated),
        ("Content-Length: 0\r\ncontent-length: 44\r\n", LengthRepeated),
        ("Content-Length: 5, 5\r\n", LengthInvalid),
        ("Content-Length: 5,\r\n", LengthInvalid),
        ("Content-Length: +5\r\n", LengthInvalid),
        ("Content-Length: -5\r\n", LengthInvalid),
        ("Content-Length: -123456789123456789123456789\r\n", LengthInvalid),
        ("Content-Length: 0x5\r\n", LengthInvalid),
        ("Content-Length: 5 5\r\n", LengthInvalid),
        ("Content-Length: 5;a\r\n", LengthInvalid),
        ("Content-Length: 5.0\r\n", LengthInvalid),
        ("Content-Length: 1e1\r\n", LengthInvalid),
        ("Content-Length: \"5\"\r\n", LengthInvalid),
        ("Content-Length: \u{665}\r\n", LengthInvalid),
        ("Content-Length:\r\n", LengthInvalid),
        ("Content-Length: abc\r\n", LengthInvalid),
        ("Content-Length: 18446744073709551616\r\n", BodyTooLong),
        ("Content-Length: 18446744073709551621\r\n", BodyTooLong),
    ]);
}

#[test]
fn a_length_and_a_coding_are_one_too_many() {
    refuses_fields(&[
        ("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", LengthWithCoding),
        ("Transfer-Encoding: chunked\r\nContent-Length: 0\r\n", LengthWithCoding),
        ("content-LengtH: 5\r\nTransFer-Encoding: CHUNKED\r\n", LengthWithCoding),
    ]);
}

#[test]
fn the_coding_is_chunked() {
    refuses_fields(&[
        ("Transfer-Encoding: gzip, chunked\r\n", CodingUnknown),
        ("Transfer-Encoding: a;b=c, chunked\r\n", CodingUnknown),
        ("Transfer-Encoding: gzip\r\n", CodingNotChunked),
        ("Transfer-Encoding: identity\r\n", CodingNotChunked),
        ("Transfer-Encoding: chunked, identity\r\n", CodingNotChunked),
        ("Transfer-Encoding: chunked, gzip\r\n", CodingNotChunked),
        ("Transfer-Encoding: xchunked\r\n", CodingNotChunked),
        ("Transfer-Encoding: chunkedx\r\n", CodingNotChunked),
        ("Transfer-Encoding: chunked;a=b\r\n", CodingNotChunked),
        ("Transfer-Encoding: \"chunked\"\r\n", CodingNotChunked),
        ("Transfer-Encoding: x chunked\r\n", CodingNotChunked),
        ("Transfer-Encoding: ,chunked\r\n", CodingNotChunked),
        ("Transfer-Encoding: chunked,\r\n", CodingNotChunked),
        ("Transfer-Encoding:\r\n", CodingNotChunked),
        ("Transfer-Encoding: chunked, chunked\r\n", CodingRepeated),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", CodingRepeated),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", CodingRepeated),
        ("Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n", CodingNotChunked),
    ]);
    refuses(&[(
        "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        CodingInVersion10,
        400,
    )]);
}

#[test]
fn a_connect_has_no_body() {
    refuses(&[
        ("CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\nContent-Length: 0\r\n\r\n", ConnectWithBody, 400),
        (
            "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            ConnectWithBody,
            400,
        ),
    ]);
}

#[test]
fn expectations_are_one() {
    refuses_fields(&[
        ("Expect: 200-ok\r\n", Expectation),
        ("Expect: 100-continue, b\r\n", Expectation),
        ("Expect: 100-continue\r\nExpect: b\r\n", Expectation),
        ("Expect:\r\n", Expectation),
    ]);
    assert_eq!(Expectation.status(), 417);
}

#[test]
fn sizes_of_chunks_are_hexadecimal() {
    refuses_chunks(&[
        ("\r\n", ChunkSize),
        ("+5\r\nhello\r\n0\r\n\r\n", ChunkSize),
        ("-5\r\nhello\r\n0\r\n\r\n", ChunkSize),
        ("0x5\r\nhello\r\n0\r\n\r\n", ChunkSize),
        ("5_0\r\nhello\r\n0\r\n\r\n", ChunkSize),
        (" 5\r\nhello\r\n0\r\n\r\n", ChunkSize),
        ("5 \r\nhello\r\n0\r\n\r\n", ChunkSize),
        ("5\t\r\nhello\r\n0\r\n\r\n", ChunkSize),
        ("g\r\n", ChunkSize),
        ("5,5\r\nhello\r\n0\r\n\r\n", ChunkSize),
        ("10000000000000000\r\n", ChunkSize),
        ("10000000000000005\r\nhello\r\n0\r\n\r\n", ChunkSize),
        ("ffffffffffffffff\r\n", BodyTooLong),
        ("fffffffffffffffff\r\n", ChunkSize),
        ("00000000000000005\r\nhello\r\n0\r\n\r\n", ChunkSize),
        ("\u{665}\r\nhello\r\n0\r\n\r\n", ChunkSize),
    ]);
}

#[test]
fn chunks_end_with_cr_lf() {
    refuses_chunks(&[
        ("5\nhello\r\n0\r\n\r\n", LineEnd),
        ("5\r\nhello\n0\r\n\r\n", ChunkEnd),
        ("5\r\nhello0\r\n\r\n", ChunkEnd),
        ("5\r\nhello!\r\n0\r\n\r\n", ChunkEnd),
        ("5\r\nhello\r0\r\n\r\n", ChunkEnd),
        ("5\r\nhello\r\n0\n\r\n", LineEnd),
        ("0\r\n\n", LineEnd),
        ("0\r\n\rG", LineEnd),
    ]);
}

/// CVE-2025-55315, CVE-2025-58056, CVE-2026-33870: line ends inside of an extension.
#[test]
fn extensions_of_chunks_have_no_line_ends() {
    refuses_chunks(&[
        ("5;a\nhello\r\n0\r\n\r\n", LineEnd),
        ("5;a\rb\r\nhello\r\n0\r\n\r\n", LineEnd),
        ("5;\n\r\nhello\r\n0\r\n\r\n", LineEnd),
        ("5;a=\"\n\"\r\nhello\r\n0\r\n\r\n", LineEnd),
        ("5;a=\"\r\"\r\nhello\r\n0\r\n\r\n", LineEnd),
        ("5;a=\"b\r\n\"\r\nhello\r\n0\r\n\r\n", ChunkExtension),
        ("0;a\n\r\n", LineEnd),
        ("5;\r\nhello\r\n0\r\n\r\n", ChunkExtension),
        ("5;a=\0\r\nhello\r\n0\r\n\r\n", ChunkExtension),
        ("5 ;a\r\nhello\r\n0\r\n\r\n", ChunkSize),
    ]);
}

#[test]
fn trailers_change_no_framing() {
    refuses_chunks(&[
        ("0\r\nContent-Length: 5\r\n\r\n", TrailerForbidden),
        ("0\r\nTransfer-Encoding: chunked\r\n\r\n", TrailerForbidden),
        ("0\r\nhost: b\r\n\r\n", TrailerForbidden),
        ("0\r\nConnection: close\r\n\r\n", TrailerForbidden),
        ("0\r\nUpgrade: a\r\n\r\n", TrailerForbidden),
        ("0\r\nA: b\r\nTE: c\r\n\r\n", TrailerForbidden),
    ]);
}

#[test]
fn trailers_are_as_strict_as_heads() {
    refuses_chunks(&[
        ("0\r\nA : b\r\n\r\n", FieldName),
        ("0\r\n: b\r\n\r\n", FieldName),
        ("0\r\n A: b\r\n\r\n", Folded),
        ("0\r\nA: b\r\n c\r\n\r\n", Folded),
        ("0\r\nA: b\nC: d\r\n\r\n", LineEnd),
        ("0\r\nA: b\n\n", LineEnd),
        ("0\r\nA: b\rc\r\n\r\n", LineEnd),
        ("0\r\nA: \0\r\n\r\n", FieldValue),
        ("0\r\n\0: b\r\n\r\n", FieldName),
    ]);
}

/// A body whose length the peer does not believe: the next request is where ours says.
#[test]
fn a_body_of_length_zero_hides_no_request() {
    let seen = requests(format!("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n{SECRET}"));
    let targets: Vec<&str> = seen
        .iter()
        .filter_map(|event| match event {
            Seen::Request(request) => Some(request.target.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(targets, ["/", "/secret"]);
    let seen =
        requests(format!("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{SECRET}", 35));
    assert_eq!(seen[1..], [Seen::Body(SECRET.into()), Seen::Waits(0)], "two bytes are missing");
}
