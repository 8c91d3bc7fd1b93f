//! Random inputs: the same events at every cut, and messages that go out and come in again.
#![allow(missing_docs)] // a test binary has no users

mod common;

use common::random::Requests;
use common::{Seen, bodies, pieces, requests, responses};
use windlass_http1::{Asked, Method, RequestEncoder, ResponseEncoder, Version};

fn programs(usual: usize) -> usize {
    std::env::var("WINDLASS_PROGRAMS").map_or(usual, |count| count.parse().expect("a count"))
}

fn seed() -> u64 {
    let seed = std::env::var("WINDLASS_SEED");
    let seed = seed.map_or_else(|_| fastrand::u64(..), |seed| seed.parse().expect("a seed"));
    println!("WINDLASS_SEED={seed}");
    seed
}

#[test]
fn random_requests_are_the_same_at_every_cut() {
    let mut random = Requests::new(seed());
    let (mut whole, mut refused) = (0, 0);
    for _ in 0..programs(200) {
        let (input, _) = random.input();
        let seen = requests(&input);
        whole += bodies(&seen).len();
        refused += usize::from(matches!(seen.last(), Some(Seen::Refused(..))));
    }
    assert!(whole > 0 && refused > 0, "{whole} requests, {refused} refusals");
}

/// The same bytes as responses: most are refused, some are bodies up to the end.
#[test]
fn random_responses_are_the_same_at_every_cut() {
    let mut random = Requests::new(seed());
    let asked = Asked::new(Method::Get, Version::Http11);
    for _ in 0..programs(200) {
        let (input, count) = random.input();
        let text = common::latin(&input);
        let lines = ["HTTP/1.1 200 OK", "HTTP/1.1 204 No Content", "HTTP/1.1 100 Continue"];
        let mut input = text;
        for (method, line) in ["GET", "POST", "PUT"].iter().zip(lines) {
            for target in ["/", "/a", "/%41"] {
                input = input.replace(&format!("{method} {target} HTTP/1.1"), line);
            }
        }
        let bytes: Vec<u8> = input.chars().map(|c| c as u32 as u8).collect();
        responses(&vec![asked; count], bytes);
    }
}

#[test]
fn what_is_written_is_read() {
    let mut random = fastrand::Rng::with_seed(seed());
    let text: Vec<u8> = (0..300).map(|_| random.u8(..)).collect();
    for _ in 0..programs(40) {
        let (mut out, mut back, mut sent) = (Vec::new(), Vec::new(), Vec::new());
        let mut all_asked = Vec::new();
        for number in 0..random.usize(1..4) {
            let method = ["GET", "HEAD", "POST", "OPTIONS"][random.usize(..4)];
            let body = &text[..random.usize(..text.len())];
            let target = format!("/{number}");
            let mut head = RequestEncoder::new(&mut out, method, &target, "host:1").unwrap();
            head.field("A", format!("b{number}")).unwrap();
            all_asked.push(head.asked());
            let is_chunked = random.bool();
            let mut encoder =
                if is_chunked { head.chunked() } else { head.length(body.len() as u64) }.unwrap();
            for part in pieces(&mut random, body) {
                encoder.data(&mut out, part).unwrap();
            }
            let trailers = [("T", &b"u"[..])];
            encoder.end_with(&mut out, trailers).unwrap();
            sent.push(body.to_vec());
        }
        let seen = requests(&out);
        assert_eq!(bodies(&seen), sent);
        assert_eq!(seen.last(), Some(&Seen::Waits(0)));
        let asked = seen.iter().filter_map(|event| match event {
            Seen::Request(request) => Some(request.asked),
            _ => None,
        });
        assert_eq!(asked.collect::<Vec<_>>(), all_asked);

        for (asked, body) in all_asked.iter().zip(&mut sent) {
            let head = ResponseEncoder::new(&mut back, *asked, 200).unwrap();
            let is_chunked = random.bool();
            let mut encoder =
                if is_chunked { head.chunked() } else { head.length(body.len() as u64) }.unwrap();
            for part in pieces(&mut random, body) {
                encoder.data(&mut back, part).unwrap();
            }
            encoder.end(&mut back).unwrap();
            if asked.method == Method::Head {
                body.clear();
            }
        }
        let seen = responses(&all_asked, &back);
        assert_eq!(bodies(&seen), sent);
        assert_eq!(seen.last(), Some(&Seen::Closed));
    }
}
