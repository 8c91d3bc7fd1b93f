//! The inputs of nbio's parser tests (nbhttp/parser_test.go), each twice in a row and in random
//! pieces. nbio takes space around names and behind the sizes of chunks, which RFC 9112 has servers
//! refuse: those inputs are here as they were, with the rule, and without the space.
#![allow(missing_docs)] // a test binary has no users

mod common;

use common::{Requests, Responses, Seen, drive, get, pieces, refusal, requests, responses};
use windlass_http1::{Limits, Rule};

/// Random cuts of each input.
const ROUNDS: usize = 1000;

fn seeded() -> (u64, fastrand::Rng) {
    let seed = fastrand::u64(..);
    (seed, fastrand::Rng::with_seed(seed))
}

fn ends(seen: &[Seen]) -> usize {
    seen.iter().filter(|event| **event == Seen::End).count()
}

fn server_reads_twice(input: &str) {
    let twice = input.repeat(2);
    let (seed, mut random) = seeded();
    for _ in 0..ROUNDS {
        let pieces = pieces(&mut random, twice.as_bytes());
        let seen = drive(&mut Requests::new(Limits::default()), &pieces, false);
        assert_eq!(ends(&seen), 2, "seed {seed}: {input:?}: {seen:?}");
        assert_eq!(seen.last(), Some(&Seen::Waits(0)), "seed {seed}: {input:?}");
    }
}

fn client_reads_twice(input: &str) {
    let twice = input.repeat(2);
    let (seed, mut random) = seeded();
    for _ in 0..ROUNDS {
        let pieces = pieces(&mut random, twice.as_bytes());
        let mut client = Responses::new(Limits::default(), &[get(), get()]);
        let seen = drive(&mut client, &pieces, true);
        assert_eq!(ends(&seen), 2, "seed {seed}: {input:?}: {seen:?}");
        assert_eq!(seen.last(), Some(&Seen::Closed), "seed {seed}: {input:?}");
    }
}

#[test]
fn server_content_length() {
    for input in [
        "POST /echo HTTP/1.1\r\nEmpty:\r\nEmpty2:\r\nHost: localhost:8080   \r\nAccept-Encoding:  \
         gzip , deflate ,br  \r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: localhost:8080\r\nContent-Length:  0\r\n\
         Accept-Encoding: gzip \r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: localhost:8080\r\nContent-Length:  5\r\n\
         Accept-Encoding: gzip \r\n\r\nhello",
    ] {
        server_reads_twice(input);
    }
    for (input, rule) in [
        (
            "POST /echo HTTP/1.1\r\nEmpty:\r\n Empty2:\r\nHost : localhost:8080   \r\n\
             Connection: close \r\n Accept-Encoding :  gzip , deflate ,br  \r\n\r\n",
            Rule::Folded,
        ),
        (
            "POST /echo HTTP/1.1\r\nHost: localhost:8080\r\nContent-Length :  5\r\n\
             Accept-Encoding : gzip \r\n\r\nhello",
            Rule::FieldName,
        ),
    ] {
        assert_eq!(refusal(&requests(input)), Some((rule, 400)), "{input:?}");
    }
}

#[test]
fn server_chunks() {
    let head = "POST / HTTP/1.1\r\nHost: localhost:1235\r\nUser-Agent: Go-http-client/1.1\r\n\
                Transfer-Encoding: chunked\r\nAccept-Encoding: gzip\r\n\r\n";
    server_reads_twice(&format!("{head}4\r\nbody\r\n0\r\n\r\n"));
    server_reads_twice(&format!("{head}0\r\n\r\n"));
    for chunks in ["4   \r\nbody\r\n0\r\n\r\n", "4\r\nbody\r\n0  \r\n\r\n"] {
        let seen = requests(format!("{head}{chunks}"));
        assert_eq!(refusal(&seen), Some((Rule::ChunkSize, 400)), "{chunks:?}");
    }
}

#[test]
fn server_header_tokens() {
    for name in ["123456789", "!#$%&'*+-.^_`|~"] {
        server_reads_twice(&format!("POST / HTTP/1.1\r\nHost: a\r\n{name}: value \r\n\r\n"));
        let seen = requests(format!("POST / HTTP/1.1\r\n{name}: value \r\n\r\n"));
        assert_eq!(refusal(&seen), Some((Rule::HostMissing, 400)));
    }
}

#[test]
fn server_trailers() {
    let head = "POST / HTTP/1.1\r\nHost: localhost:1235\r\nUser-Agent: Go-http-client/1.1   \r\n\
                Transfer-Encoding: chunked\r\nTrailer: Md5,Size\r\nAccept-Encoding: gzip  \r\n\r\n";
    for chunks in [
        "4\r\nbody\r\n0\r\nMd5: 841a2d689ad86bd1611447453c22c6fc \r\nSize: 4  \r\n\r\n",
        "0\r\nMd5: 841a2d689ad86bd1611447453c22c6fc \r\nSize: 4 \r\n\r\n",
        "0\r\n123456789: value \r\n!#$%&'*+-.^_`|~: value \r\n\r\n",
    ] {
        server_reads_twice(&format!("{head}{chunks}"));
    }
    for (chunks, rule) in [
        ("0\r\n  Md5  : 841a2d689ad86bd1611447453c22c6fc \r\n\r\n", Rule::Folded),
        ("0\r\nMd5 : 841a2d689ad86bd1611447453c22c6fc \r\n\r\n", Rule::FieldName),
        ("0\r\n123456789: value \r\n !#$%&'*+-.^_`|~: value \r\n\r\n", Rule::Folded),
    ] {
        let seen = requests(format!("{head}{chunks}"));
        assert_eq!(refusal(&seen), Some((rule, 400)), "{chunks:?}");
    }
}

#[test]
fn client_content_length() {
    let head = "HTTP/1.1 200 OK\r\nHost: localhost:8080\r\nAccept-Encoding: gzip  \r\n";
    client_reads_twice(&format!("{head}Content-Length:  0\r\n\r\n"));
    client_reads_twice(&format!("{head}Content-Length:  5\r\n\r\nhello"));
    let seen = responses(&[get()], format!("{head} Content-Length :  5\r\n\r\nhello"));
    assert_eq!(refusal(&seen), Some((Rule::Folded, 502)));
    // nbio takes a response without a length for one without a body.
    let seen = responses(&[get()], format!("{head}\r\nHTTP/1.1 200 OK\r\n\r\n"));
    assert_eq!(common::bodies(&seen), [b"HTTP/1.1 200 OK\r\n\r\n"]);
}

#[test]
fn client_chunks_and_trailers() {
    let head = "HTTP/1.1 200 OK\r\nHost: localhost:1235\r\nUser-Agent: Go-http-client/1.1\r\n\
                Transfer-Encoding: chunked\r\nTrailer: Md5,Size\r\nAccept-Encoding: gzip\r\n\r\n";
    for chunks in [
        "4\r\nbody\r\n0\r\n\r\n",
        "0\r\n\r\n",
        "4\r\nbody\r\n0\r\nMd5: 841a2d689ad86bd1611447453c22c6fc\r\nSize: 4\r\n\r\n",
        "0\r\nMd5: 841a2d689ad86bd1611447453c22c6fc\r\nSize: 4\r\n\r\n",
    ] {
        client_reads_twice(&format!("{head}{chunks}"));
    }
    let seen = responses(&[get()], "HTTP/1.1 200 OK\r\nTransfer-Encoding : chunked\r\n\r\n");
    assert_eq!(refusal(&seen), Some((Rule::FieldName, 502)));
}

/// A length beside a coding is not dropped.
#[test]
fn nbio_bug_length_with_coding() {
    let input = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\
                 \r\n0\r\n\r\n";
    assert_eq!(refusal(&requests(input)), Some((Rule::LengthWithCoding, 400)));
}
