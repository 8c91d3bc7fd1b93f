//! Random streams of frames, right and wrong ones: tungstenite tells the same messages, and refuses
//! what we refuse. Each difference is one of [`Difference`].
#![allow(missing_docs)] // a test binary has no users

mod common;

use std::collections::BTreeMap;
use std::io::{self, Read, Write};

use common::random::{Sender, programs, seed};
use common::{CLIENT, SERVER, Seen, Side, binary, messages, ping, text};
use tungstenite::protocol::{Role as OtherRole, WebSocket, WebSocketConfig};
use tungstenite::{Error, Message};
use windlass_websocket::{CloseCode, Role, Rule};

/// Where the two differ, and why.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Difference {
    /// It waits for the whole frame before it looks at more than its head, and for the whole head
    /// before it looks at any of it. We refuse the first byte that is wrong.
    Early,
    /// It takes lengths in more bytes than they need. RFC 6455, section 5.2: "the minimal number of
    /// bytes MUST be used".
    LongLength,
    /// It takes close frames of codes that must not be sent, and tells another code.
    WrongCode,
    /// As a client, it refuses what comes behind a close frame. RFC 6455, section 1.4, discards it,
    /// and so do we.
    BehindClose,
}

/// A connection that has sent all of this, and takes everything.
struct Sent<'a>(&'a [u8]);

impl Read for Sent<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        match self.0.read(to) {
            Ok(0) => Err(io::ErrorKind::WouldBlock.into()),
            other => other,
        }
    }
}

impl Write for Sent<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What tungstenite tells, and whether it refuses something.
fn theirs(side: &Side, input: &[u8]) -> (Vec<Seen>, Option<Error>) {
    let role = if side.role == Role::Server { OtherRole::Server } else { OtherRole::Client };
    let most = side.limits.message as usize;
    let config = WebSocketConfig::default().max_message_size(Some(most)).max_frame_size(Some(most));
    let mut socket = WebSocket::from_raw_socket(Sent(input), role, Some(config));
    let mut told = Vec::new();
    loop {
        told.push(match socket.read() {
            Ok(Message::Text(data)) => text(data.as_str()),
            Ok(Message::Binary(data)) => binary(data),
            Ok(Message::Ping(data)) => ping(data),
            Ok(Message::Pong(data)) => Seen::Pong(data.to_vec()),
            Ok(Message::Close(None)) => Seen::Close(None, Vec::new()),
            Ok(Message::Close(Some(frame))) => {
                Seen::Close(Some(frame.code.into()), frame.reason.as_bytes().to_vec())
            }
            Ok(Message::Frame(_)) => unreachable!("it is never read"),
            Err(Error::ConnectionClosed) => return (told, None),
            Err(Error::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => {
                return (told, None);
            }
            Err(error) => return (told, Some(error)),
        });
    }
}

/// Compares what both say, and counts the differences.
fn compare(side: &Side, input: &[u8], found: &mut BTreeMap<Option<Difference>, usize>) {
    let mut ours = messages(&side.cut(input, &[]));
    let end = ours.pop().expect("an end");
    let (theirs, refusal) = theirs(side, input);
    let is_same = ours == theirs;
    let difference = match (&end, &refusal) {
        (Seen::Refused(_), Some(_)) | (Seen::Waits(..) | Seen::Closed, None) if is_same => None,
        (Seen::Refused(Rule::Length), _) if theirs.starts_with(&ours) => {
            Some(Difference::LongLength)
        }
        // The long form of a length says so of a control frame.
        (Seen::Refused(Rule::ControlLength), _) if !is_same && theirs.starts_with(&ours) => {
            Some(Difference::LongLength)
        }
        (Seen::Closed, Some(_)) if is_same => Some(Difference::BehindClose),
        (Seen::Refused(Rule::CloseCode), _) => {
            let (last, before) = theirs.split_last().expect("a close frame");
            assert_eq!((before, has_wrong_code(last)), (&ours[..], true), "{last:?}");
            Some(Difference::WrongCode)
        }
        (Seen::Refused(rule), None) if is_same => {
            assert!(is_early(side, input, *rule), "{rule:?}: {input:02x?}");
            Some(Difference::Early)
        }
        _ => panic!("{side:?}: {input:02x?}\n{ours:?} {end:?}\n{theirs:?} {refusal:?}"),
    };
    *found.entry(difference).or_default() += 1;
}

/// It tells 1002 for a code that must not be sent.
fn has_wrong_code(close: &Seen) -> bool {
    matches!(close, Seen::Close(Some(code), _)
        if *code == CloseCode::PROTOCOL.number() || CloseCode::new(*code).is_none())
}

/// Whether tungstenite refuses the input too, once the frame that is begun is whole.
fn is_early(side: &Side, input: &[u8], rule: Rule) -> bool {
    let more = |len: usize, byte: u8| [input, &vec![byte; len]].concat();
    // The rest of the head, and of the longest frame that there can be.
    let most = side.limits.message as usize + 14;
    let refuses = |len: usize| {
        [0, 1, 0x80, 0xff].iter().any(|byte| theirs(side, &more(len, *byte)).1.is_some())
    };
    rule == Rule::Length || [1, 4, 14, 140, most].into_iter().any(refuses)
}

#[test]
fn tungstenite_tells_the_same() {
    let (seed, count) = (seed(), 30 * programs(100) as u64);
    let mut found = BTreeMap::new();
    let mut refused = 0;
    for number in 0..count {
        for side in [SERVER, CLIENT].map(|side| side.limit(1000, 1000)) {
            let peer = if side.role == Role::Server { Role::Client } else { Role::Server };
            let mut sender = Sender::new(peer, seed.wrapping_add(number));
            sender.stream(if number % 4 == 0 { 1400 } else { 200 });
            if number % 3 != 0 {
                sender.mutate();
            }
            compare(&side, &sender.out, &mut found);
            let end = side.cut(&sender.out, &[]).pop();
            refused += usize::from(matches!(end, Some(Seen::Refused(_))));
        }
    }
    println!("of {}, {refused} are refused: {found:?}", count * 2);
    assert!(found[&None] > count as usize, "{found:?}");
    assert!(refused > count as usize / 4, "{refused}");
}

/// Each difference is there, so that one that goes is seen.
#[test]
fn the_differences_are_these() {
    let only = |side: &Side, input: &[u8]| {
        let mut found = BTreeMap::new();
        compare(side, input, &mut found);
        found.into_keys().next().expect("one")
    };
    for side in [SERVER, CLIENT] {
        assert_eq!(only(&side, &[0x83]), Some(Difference::Early));
        let text = side.frame(0x81, b"\xff----");
        assert_eq!(only(&side, &text), None);
        assert_eq!(only(&side, &text[..text.len() - 1]), Some(Difference::Early));
        let code = side.frame(0x88, 1005_u16.to_be_bytes());
        assert_eq!(only(&side, &code), Some(Difference::WrongCode));
        let behind = [side.frame(0x88, b""), side.frame(0x82, b"")].concat();
        let is_client = side.role == Role::Client;
        assert_eq!(only(&side, &behind), is_client.then_some(Difference::BehindClose));
        let mut long = side.frame(0x82, b"abc");
        long[1] = long[1] & 0x80 | 126;
        long.splice(2..2, [0, 3]);
        assert_eq!(only(&side, &long), Some(Difference::LongLength));
    }
}
