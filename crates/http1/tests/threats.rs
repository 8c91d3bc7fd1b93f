//! Requests that two servers could read in two ways, and what refuses them.
//!
//! Each runs at every cut. A request behind it must never be seen.
#![allow(missing_docs)] // a test binary has no users

mod common;
#[path = "common/threats.rs"]
mod threats;

use common::{Seen, refusal, requests};
use threats::SECRET;
use windlass_http1::Rule;

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
    refuses(threats::LINES_END_WITH_CR_LF);
}

#[test]
fn empty_lines_in_front_are_bounded() {
    refuses(threats::EMPTY_LINES_IN_FRONT_ARE_BOUNDED);
}

#[test]
fn request_lines_have_three_words() {
    refuses(threats::REQUEST_LINES_HAVE_THREE_WORDS);
}

#[test]
fn versions_are_two() {
    refuses(threats::VERSIONS_ARE_TWO);
}

#[test]
fn targets_fit_their_methods() {
    for request in threats::TARGETS {
        refuses(&[(&format!("{request}\r\nHost: a\r\n\r\n"), Rule::Target, 400)]);
    }
}

#[test]
fn names_are_tokens_without_space() {
    refuses_fields(threats::NAMES_ARE_TOKENS_WITHOUT_SPACE);
}

#[test]
fn fields_are_not_folded() {
    refuses_fields(threats::FIELDS_ARE_NOT_FOLDED);
    refuses(threats::FIELDS_ARE_NOT_FOLDED_REQUESTS);
}

#[test]
fn values_have_no_control_bytes() {
    refuses_fields(threats::VALUES_HAVE_NO_CONTROL_BYTES);
}

#[test]
fn there_is_one_valid_host() {
    refuses(threats::THERE_IS_ONE_VALID_HOST);
}

#[test]
fn lengths_are_one_number() {
    refuses_fields(threats::LENGTHS_ARE_ONE_NUMBER);
}

#[test]
fn a_length_and_a_coding_are_one_too_many() {
    refuses_fields(threats::A_LENGTH_AND_A_CODING_ARE_ONE_TOO_MANY);
}

#[test]
fn the_coding_is_chunked() {
    refuses_fields(threats::THE_CODING_IS_CHUNKED);
    refuses(threats::THE_CODING_IS_CHUNKED_REQUESTS);
}

#[test]
fn a_connect_has_no_body() {
    refuses(threats::A_CONNECT_HAS_NO_BODY);
}

#[test]
fn expectations_are_one() {
    refuses_fields(threats::EXPECTATIONS_ARE_ONE);
    assert_eq!(Rule::Expectation.status(), 417);
}

#[test]
fn sizes_of_chunks_are_hexadecimal() {
    refuses_chunks(threats::SIZES_OF_CHUNKS_ARE_HEXADECIMAL);
}

#[test]
fn chunks_end_with_cr_lf() {
    refuses_chunks(threats::CHUNKS_END_WITH_CR_LF);
}

/// CVE-2025-55315, CVE-2025-58056, CVE-2026-33870: line ends inside of an extension.
#[test]
fn extensions_of_chunks_have_no_line_ends() {
    refuses_chunks(threats::EXTENSIONS_OF_CHUNKS_HAVE_NO_LINE_ENDS);
}

#[test]
fn trailers_change_no_framing() {
    refuses_chunks(threats::TRAILERS_CHANGE_NO_FRAMING);
}

#[test]
fn trailers_are_as_strict_as_heads() {
    refuses_chunks(threats::TRAILERS_ARE_AS_STRICT_AS_HEADS);
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
