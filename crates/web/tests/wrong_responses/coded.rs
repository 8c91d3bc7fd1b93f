//! Bodies that are compressed wrongly.

use std::fmt::Write as _;

use windlass_web::client::{Fetch, FetchSettings};

use crate::alloc::{begin_peak, peak_bytes};
use crate::common::Harness;
use crate::hostile::server::Act;
use crate::hostile::{Who, scene};
use crate::table::check;

crate::every_driver! {
    wrong_codings_have_one_outcome
    a_bomb_is_refused
}

/// A member of gzip with stored blocks only.
fn stored(text: &[u8]) -> Vec<u8> {
    let mut bytes = b"\x1f\x8b\x08\0\0\0\0\0\0\xff".to_vec();
    bytes.push(1);
    bytes.extend((text.len() as u16).to_le_bytes());
    bytes.extend((!(text.len() as u16)).to_le_bytes());
    bytes.extend(text);
    bytes.extend(crc32fast::hash(text).to_le_bytes());
    bytes.extend((text.len() as u32).to_le_bytes());
    bytes
}

fn response(coding: &str, body: &[u8]) -> Vec<u8> {
    let mut head = String::from("HTTP/1.1 200 OK\r\n");
    let _ = write!(head, "Content-Encoding: {coding}\r\nContent-Length: {}\r\n\r\n", body.len());
    let mut bytes = head.into_bytes();
    bytes.extend(body);
    bytes
}

fn wrong_codings_have_one_outcome<T: Harness>() {
    for who in [Who::App, Who::Own, Who::Streams] {
        let mut scene = scene::<T>(who, FetchSettings::new());
        let url = scene.url("/");
        let whole = stored(b"hello");
        let mut wrong_sum = whole.clone();
        wrong_sum[20] ^= 1;
        let mut wrong_length = whole.clone();
        wrong_length[24] ^= 1;
        let mut wrong_block = whole.clone();
        wrong_block[10] = 7;
        for (coding, body, wanted) in [
            ("gzip", &whole[..], "200 hello"),
            ("x-gzip", &whole[..], "200 hello"),
            ("GZIP", &whole[..], "200 hello"),
            ("gzip", b"hello", "Body"),
            ("gzip", b"\x1f", "Body"),
            ("gzip", &whole[..9], "Body"),
            ("gzip", &whole[..14], "Body"),
            ("gzip", &whole[..20], "Body"),
            ("gzip", &whole[..whole.len() - 1], "Body"),
            ("gzip", &wrong_sum, "Body"),
            ("gzip", &wrong_length, "Body"),
            ("gzip", &wrong_block, "Body"),
            ("gzip", &[&whole[..], b"!"].concat(), "Body"),
            ("deflate", b"hello", "Body"),
            ("gzip, gzip", &whole[..], "Body"),
            ("br", &whole[..], "Body"),
        ] {
            let acts = vec![Act::Say(response(coding, body))];
            check(&mut scene, Fetch::get(&url), acts, wanted);
        }
        // Whoever does not ask for a coding gets the bytes.
        let acts = vec![Act::Say(response("gzip", b"hello"))];
        check(&mut scene, Fetch::get(&url).decode(false), acts, "200 hello");
    }
}

/// Ones, compressed: 1 MiB in about 1 KiB. A bomb is many of them, one after the other.
fn bomb() -> Vec<u8> {
    // A fixed block: a literal, then matches of length 258 at distance 1.
    let mut bits: Vec<bool> = Vec::new();
    let mut put = |value: u32, count: u32, is_code: bool| {
        for at in 0..count {
            let at = if is_code { count - 1 - at } else { at };
            bits.push(value >> at & 1 == 1);
        }
    };
    put(0, 1, false); // more blocks follow
    put(1, 2, false); // fixed codes
    put(0x30 + u32::from(b'x'), 8, true);
    for _ in 0..40_000 {
        put(0b1100_0101, 8, true); // 285: length 258
        put(0, 5, true); // distance 1
    }
    put(0, 7, true); // the end of the block
    let mut bytes = b"\x1f\x8b\x08\0\0\0\0\0\0\xff".to_vec();
    for byte in bits.chunks(8) {
        bytes.push(byte.iter().enumerate().map(|(at, bit)| u8::from(*bit) << at).sum());
    }
    bytes
}

fn a_bomb_is_refused<T: Harness>() {
    let bytes = bomb();
    for who in [Who::App, Who::Own, Who::Streams] {
        let mut scene = scene::<T>(who, FetchSettings::new());
        let url = scene.url("/");
        let acts = vec![Act::Say(response("gzip", &bytes))];
        scene.script("/", acts.clone());
        begin_peak();
        check(&mut scene, Fetch::get(&url).body_limit(300_000), acts, "TooLong");
        let peak = peak_bytes();
        assert!(peak < 1_500_000, "{peak} bytes");
    }
}
