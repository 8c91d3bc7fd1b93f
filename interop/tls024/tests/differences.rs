//! Where sessions on 0.24.0-dev.2 are not those on 0.23. These tests take the place of those of
//! windlass-serve that `README.md` names, and fail when the next version differs again.
#![allow(missing_docs)] // a test binary has no users

use std::io::IoSlice;

use tls::{Pair, settings};
use windlass_serve::tls::{Error, Provider, Session, Version};

#[path = "../../../crates/serve/tests/common/tls.rs"]
mod tls;

fn open(version: Version) -> Pair {
    let (_, server, client) = settings(Provider::default());
    let server = server.versions([version]).build().unwrap();
    Pair::open(&server, &client.versions([version]).build().unwrap())
}

/// The lengths of the records of an output.
fn records(mut out: &[u8]) -> Vec<usize> {
    let mut lens = Vec::new();
    while let [_, _, _, high, low, ..] = out {
        let len = usize::from(u16::from_be_bytes([*high, *low]));
        lens.push(len);
        out = &out[5 + len..];
    }
    assert!(out.is_empty());
    lens
}

/// A record is at most 16 KiB long with what the suite adds, which TLS does not ask for. So a write
/// of 64 KiB is five records, and the last one is short.
#[test]
fn a_full_record_has_less_text_than_16_kib() {
    for (version, text) in [(Version::Tls12, 16_384 - 24), (Version::Tls13, 16_384 - 17)] {
        for len in [64, 16 << 10, 1 << 20] {
            let mut pair = open(version);
            let sent: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
            for _ in 0..2 {
                let mut out = Vec::new();
                pair.client.write_all(&sent, &mut out).unwrap();
                let expected: usize =
                    sent.chunks(64 << 10).map(|piece| piece.len().div_ceil(text)).sum();
                assert_eq!(records(&out).len(), expected, "{version}, {len} bytes");
                assert!(records(&out).iter().all(|len| *len <= 16 << 10));
                let mut heard = Vec::new();
                for piece in out.chunks_mut(9973) {
                    let fed = pair.server.feed(piece);
                    fed.result.unwrap();
                    heard.extend(&piece[..fed.plain]);
                    pair.server.take_plain(&mut heard);
                }
                assert!(heard == sent, "{version}, {len} bytes");
                std::mem::swap(&mut pair.client, &mut pair.server);
            }
        }
    }
}

#[test]
fn text_without_room_waits() {
    for version in Version::ALL {
        let mut pair = open(*version);
        let sent: Vec<u8> = (0..40_000).map(|i| i as u8).collect();
        let mut out = Vec::new();
        pair.client.write_all(&sent, &mut out).unwrap();
        // All but the last byte of the first record, then the rest: more than there is room for.
        let (first, rest) = out.split_at_mut(5 + 16_383);
        let fed = pair.server.feed(first);
        fed.result.unwrap();
        assert_eq!((fed.consumed, fed.plain), (first.len(), 0));
        let fed = pair.server.feed(rest);
        fed.result.unwrap();
        assert_eq!(fed.consumed, rest.len());
        let mut heard = rest[..fed.plain].to_vec();
        assert!(pair.server.plain_len() > 0);
        pair.server.take_plain(&mut heard);
        assert!(heard == sent);
    }
}

/// Few parts, and more than the adapter has room for without an allocation.
#[test]
fn several_parts_are_one_text() {
    for version in Version::ALL {
        let mut pair = open(*version);
        let body = vec![9; 30_000];
        let many: Vec<&[u8]> = (0..40).flat_map(|i| [&body[..i], b"between"]).collect();
        for parts in [&[&b"head"[..], b"", &body, b"end"][..], &many] {
            let whole = parts.concat();
            let slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
            let taken = pair.client.write(&slices, &mut pair.to_server).unwrap();
            assert_eq!(taken, whole.len());
            assert_eq!(records(&pair.to_server).len(), whole.len().div_ceil(16_300));
            pair.run().unwrap();
            assert!(std::mem::take(&mut pair.server_plain) == whole);
            // At most 64 KiB at a time.
            let long = [IoSlice::new(&body), IoSlice::new(&body), IoSlice::new(&body)];
            let taken = pair.client.write(&long, &mut pair.to_server).unwrap();
            assert_eq!(taken, 64 << 10);
            pair.run().unwrap();
            assert!(std::mem::take(&mut pair.server_plain) == [9; 64 << 10]);
        }
    }
}

/// While the peer has not answered a change of keys, another one is none.
#[test]
fn one_change_of_keys_is_on_its_way() {
    let mut pair = open(Version::Tls13);
    for count in [1, 0, 0] {
        assert!(pair.client.update_keys());
        let mut update = Vec::new();
        pair.client.take_output(&mut update);
        assert_eq!(records(&update).len(), count);
        pair.to_server.extend(update);
    }
    pair.run().unwrap();
    assert!(pair.client.update_keys());
    assert!(pair.client.has_output());
    // A peer that only listens has its answer, and text comes behind it.
    pair.client.take_output(&mut pair.to_server);
    pair.server.feed_into(&pair.to_server, &mut pair.server_plain).unwrap();
    pair.to_server.clear();
    assert!(pair.server.has_output());
    let taken = pair.server.write(&[IoSlice::new(&[7; 100])], &mut pair.to_client).unwrap();
    assert_eq!((taken, records(&pair.to_client).len()), (100, 2));
    pair.run().unwrap();
    assert_eq!(pair.client_plain, [7; 100]);
}

#[test]
fn an_alert_of_an_unknown_level_breaks_a_rule() {
    let (_, server, _) = settings(Provider::default());
    let mut session = Session::server(&server.build().unwrap()).unwrap();
    let result = session.feed_into(&[21, 3, 3, 0, 2, 3, 40], &mut Vec::new());
    assert!(matches!(result, Err(Error::Misbehaved(_))), "{result:?}");
}
