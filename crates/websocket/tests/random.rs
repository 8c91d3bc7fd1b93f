//! Random messages: what is sent is what comes, and the same events come at every cut.
#![allow(missing_docs)] // a test binary has no users

mod common;

use common::random::{Sender, programs, seed};
use common::{CLIENT, SERVER, Seen, Side, messages};
use windlass_websocket::{FrameHead, Opcode, Role};

/// The other side of a connection.
fn peer(side: &Side) -> Role {
    if side.role == Role::Server { Role::Client } else { Role::Server }
}

#[test]
fn what_is_sent_comes() {
    let seed = seed();
    let (mut all, mut closed) = (0, 0);
    for number in 0..programs(100) as u64 {
        for side in [SERVER, CLIENT] {
            let mut sender = Sender::new(peer(&side), seed.wrapping_add(number));
            let most = [20, 200, 70_000][sender.random.usize(..3)];
            let mut sent = sender.stream(most);
            all += sent.len();
            let is_closed = matches!(sent.last(), Some(Seen::Close(..)));
            closed += usize::from(is_closed);
            sent.push(if is_closed { Seen::Closed } else { Seen::Waits(0, 0) });
            assert_eq!(messages(&side.decode(&sender.out)), sent);
        }
    }
    assert!(all > 0 && closed > 0, "{all} messages, {closed} close frames");
}

/// Whatever comes, each cut tells the same.
#[test]
fn what_is_wrong_is_so_at_every_cut() {
    let seed = seed();
    let (mut refused, mut told) = (0, 0);
    for number in 0..programs(100) as u64 {
        for side in [SERVER, CLIENT, SERVER.deflate(), CLIENT.deflate(), SERVER.limit(30, 3)] {
            let mut sender = Sender::new(peer(&side), seed.wrapping_add(number));
            sender.stream(60);
            sender.mutate();
            let seen = side.decode(&sender.out);
            refused += usize::from(matches!(seen.last(), Some(Seen::Refused(_))));
            told += seen.len() - 1;
        }
    }
    assert!(refused > 0 && told > 0, "{refused} refusals, {told} events");
}

/// Compressed bytes come as they are sent, with what is not compressed between them.
#[test]
fn compressed_bytes_come_as_they_are() {
    let seed = seed();
    for number in 0..programs(100) as u64 {
        for side in [SERVER.deflate(), CLIENT.deflate()] {
            let mut sender = Sender::new(peer(&side), seed.wrapping_add(number));
            let mut sent = Vec::new();
            for _ in 0..sender.random.usize(1..5) {
                if sender.random.bool() {
                    sent.extend(sender.message(100));
                    continue;
                }
                let bytes: Vec<u8> = (0..sender.random.usize(..50)).map(|i| !(i as u8)).collect();
                let at = sender.random.usize(..=bytes.len());
                let head = FrameHead::new(Opcode::Text, at as u64).continues().compressed();
                sender.frame(head, &bytes[..at]);
                let rest = (bytes.len() - at) as u64;
                sender.frame(FrameHead::new(Opcode::Continuation, rest), &bytes[at..]);
                let mut message = common::text(bytes);
                if let Seen::Data { is_compressed, .. } = &mut message {
                    *is_compressed = true;
                }
                sent.push(message);
            }
            sent.push(Seen::Waits(0, 0));
            assert_eq!(messages(&side.decode(&sender.out)), sent);
        }
    }
}
