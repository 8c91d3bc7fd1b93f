//! Every limit, at its last value and behind it, with the status of the answer.
#![allow(missing_docs)] // a test binary has no users

mod common;

use common::{Requests, Seen, refusal, requests_with};
use windlass_http1::{Limits, Rule};

/// The input fits, and with one byte less of the limit it does not.
#[track_caller]
fn is_the_last(limits: Limits, less: Limits, input: &str, rule: Rule, status: u16) {
    let seen = requests_with(limits, input);
    assert_eq!(refusal(&seen), None, "{seen:?}");
    let seen = requests_with(less, input);
    assert_eq!(refusal(&seen), Some((rule, status)), "{seen:?}");
}

const GET: &str = "GET /abc HTTP/1.1\r\nHost: a\r\n\r\n";
const POST: &str = "POST / HTTP/1.1\r\nHost: a\r\n";
const CHUNKED: &str = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";

#[test]
fn first_lines_have_a_limit() {
    let line = |line| Limits { line, ..Limits::default() };
    is_the_last(line(17), line(16), GET, Rule::LineTooLong, 414);
    let skipped = format!("\r\n{GET}");
    is_the_last(line(17), line(16), &skipped, Rule::LineTooLong, 414);
    // Without an end, and before anything else is wrong with it.
    let seen = requests_with(line(100), "a".repeat(102));
    assert_eq!(refusal(&seen), Some((Rule::LineTooLong, 414)));
    let seen = requests_with(line(100), "a".repeat(101));
    assert_eq!(seen, [Seen::Waits(101)]);
    let seen = requests_with(line(100), format!("{} {}\r\n\r\n", "a".repeat(40), "/ ".repeat(40)));
    assert_eq!(refusal(&seen), Some((Rule::LineTooLong, 414)));
    let seen = requests_with(line(16), GET.replace("\r\n", "\n"));
    assert_eq!(refusal(&seen), Some((Rule::LineEnd, 400)), "a bare LF is one byte less");
}

#[test]
fn heads_have_a_limit() {
    let head = |head| Limits { head, ..Limits::default() };
    let len = GET.len() as u32;
    is_the_last(head(len), head(len - 1), GET, Rule::HeadTooLong, 431);
    is_the_last(head(len), head(len - 1), &format!("\r\n{GET}"), Rule::HeadTooLong, 431);
    let seen = requests_with(head(100), format!("GET / HTTP/1.1\r\nA: {}", "b".repeat(100)));
    assert_eq!(refusal(&seen), Some((Rule::HeadTooLong, 431)));
    let seen = requests_with(head(100), format!("GET / HTTP/1.1\r\nA : {}", "b".repeat(100)));
    assert_eq!(refusal(&seen), Some((Rule::HeadTooLong, 431)), "before anything else is wrong");
    // The bytes of the next request do not count.
    let seen = requests_with(head(len), GET.repeat(5));
    assert_eq!(refusal(&seen), None);
}

#[test]
fn fields_have_a_limit() {
    let fields = |fields| Limits { fields, ..Limits::default() };
    let request = format!("{POST}A: b\r\nC: d\r\n\r\n");
    is_the_last(fields(3), fields(2), &request, Rule::TooManyFields, 431);
    let request = format!("{CHUNKED}0\r\nA: b\r\nC: d\r\nE: f\r\n\r\n");
    is_the_last(fields(3), fields(2), &request, Rule::TooManyFields, 431);
    let many = |count: usize| format!("{POST}{}\r\n", "A: b\r\n".repeat(count - 1));
    is_the_last(Limits::default(), fields(99), &many(100), Rule::TooManyFields, 431);
    let seen = requests_with(fields(1000), many(256));
    assert_eq!(refusal(&seen), None);
    let seen = requests_with(fields(1000), many(257));
    assert_eq!(refusal(&seen), Some((Rule::TooManyFields, 431)), "1000 counts as 256");
}

#[test]
fn bodies_have_a_limit() {
    let body = |body| Limits { body, ..Limits::default() };
    let length = format!("{POST}Content-Length: 5\r\n\r\nhello");
    is_the_last(body(5), body(4), &length, Rule::BodyTooLong, 413);
    let chunks = format!("{CHUNKED}2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n");
    is_the_last(body(5), body(4), &chunks, Rule::BodyTooLong, 413);
    // A sum that does not fit is too much, too.
    let chunks = format!("{CHUNKED}2\r\nhe\r\nffffffffffffffff\r\n");
    let seen = requests_with(body(u64::MAX), chunks);
    assert_eq!(refusal(&seen), Some((Rule::BodyTooLong, 413)));
    assert_eq!(seen[1], Seen::Body(b"he".to_vec()));
}

#[test]
fn lines_of_chunks_have_a_limit() {
    let line = |chunk_line| Limits { chunk_line, ..Limits::default() };
    let chunks = format!("{CHUNKED}1;abc=def\r\nx\r\n0\r\n\r\n");
    is_the_last(line(9), line(8), &chunks, Rule::ChunkLineTooLong, 400);
    let seen = requests_with(line(50), format!("{CHUNKED}{}", "0".repeat(52)));
    assert_eq!(refusal(&seen), Some((Rule::ChunkLineTooLong, 400)));
}

/// A chunk of a byte with an extension of many: the sum over the body counts.
#[test]
fn extensions_have_a_limit() {
    let sum = |extensions| Limits { extensions, ..Limits::default() };
    let chunks = format!("{CHUNKED}{}0;ab\r\n\r\n", "1;abc\r\nx\r\n".repeat(10));
    is_the_last(sum(33), sum(32), &chunks, Rule::ExtensionsTooLong, 400);
    // The sum is that of one body.
    let seen = requests_with(sum(33), chunks.repeat(3));
    assert_eq!(refusal(&seen), None);
    // A signature of each chunk that is shorter than the data does not count.
    let chunks = format!("{CHUNKED}{}0;a\r\n\r\n", "4;abc\r\nxxxx\r\n".repeat(10));
    is_the_last(sum(2), sum(1), &chunks, Rule::ExtensionsTooLong, 400);
}

#[test]
fn trailers_have_a_limit() {
    let trailers = |trailers| Limits { trailers, ..Limits::default() };
    let chunks = format!("{CHUNKED}0\r\nA: b\r\n\r\n");
    is_the_last(trailers(8), trailers(7), &chunks, Rule::TrailersTooLong, 431);
    let seen = requests_with(trailers(50), format!("{CHUNKED}0\r\nA: {}", "b".repeat(50)));
    assert_eq!(refusal(&seen), Some((Rule::TrailersTooLong, 431)));
}

#[test]
fn the_limit_of_a_body_can_be_set_behind_its_head() {
    let set = |head: &str, most| {
        let mut server = Requests::new(Limits { body: u64::MAX, ..Limits::default() });
        server.decoder.decode(&mut server.head, head.as_bytes()).expect("a head");
        let set = server.decoder.limit_body(most);
        (server, set)
    };
    let head = format!("{POST}Content-Length: 5\r\n\r\n");
    set(&head, 5).1.expect("it fits");
    let (mut server, error) = set(&head, 4);
    let error = error.expect_err("a length of 5");
    assert_eq!((error.rule(), error.status()), (Rule::BodyTooLong, 413));
    assert_eq!(server.decoder.decode(&mut server.head, b"hello"), Err(error));
    let (mut server, result) = set(CHUNKED, 4);
    result.expect("no length is known");
    server.decoder.decode(&mut server.head, b"4\r\nhell\r\n").expect("it fits");
    let error = server.decoder.decode(&mut server.head, b"\r\n1\r\n").expect_err("too much");
    assert_eq!(error.rule(), Rule::BodyTooLong);
}

/// Each rule has a text of its own, and a status that says whose fault it is.
#[test]
fn rules_have_texts_and_statuses() {
    let mut texts: Vec<&str> = Rule::ALL.iter().map(|rule| rule.text()).collect();
    texts.sort_unstable();
    texts.dedup();
    assert_eq!(texts.len(), Rule::ALL.len());
    for rule in Rule::ALL {
        let known = [400, 413, 414, 417, 431, 501, 505];
        assert!(known.contains(&rule.status()), "{rule:?}");
    }
}
