//! Frames of WebSocket, byte by byte, on every driver.

use crate::common::{End, Net};
use windlass_web::websocket::{Message, Peer, Socket};
use windlass_web::{App, Status};

struct Echo;

impl Peer<()> for Echo {
    fn message(&mut self, _: &mut (), c: &mut Socket<'_>, message: Message) {
        assert!(c.send(message), "the client reads");
    }
}

fn app() -> App {
    App::new().websocket("/", |_, _| Ok::<_, Status>(Echo))
}

const REQUEST: &[u8] =
    b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

/// A short frame of a client, whose mask changes nothing.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let len = u8::try_from(payload.len()).expect("short");
    [&[first, 0x80 | len, 0, 0, 0, 0], payload].concat()
}

/// What has come behind the head of the response.
fn behind_head(heard: &[u8]) -> Option<&[u8]> {
    let end = b"\r\n\r\n";
    let at = heard.windows(end.len()).position(|four| four == end)?;
    Some(&heard[at + end.len()..])
}

fn open<N: Net>(net: &mut N) -> usize {
    let client = net.connect();
    net.say(client, REQUEST);
    net.hear(client, "a head", |heard| behind_head(heard).is_some());
    client
}

fn hear<N: Net>(net: &mut N, client: usize, expected: &[u8]) {
    let is_there = |heard: &[u8]| behind_head(heard).is_some_and(|it| it.len() >= expected.len());
    net.hear(client, "frames", is_there);
    assert_eq!(behind_head(net.heard(client)), Some(expected));
}

/// A connection that ends in the middle of a message leaves nothing of it to the next one.
fn a_broken_message_is_nobody_elses<N: Net>() {
    let mut net = N::start(app());
    // A reserved opcode, a message within the message, an end of the close handshake.
    for (breaks, close) in [
        (frame(0x83, b""), 1002_u16),
        (frame(0x81, b"another"), 1002),
        (frame(0x88, b"\x03\xe8"), 1000),
    ] {
        let first = open(&mut net);
        net.say(first, &frame(0x01, b"of the first"));
        net.say(first, &breaks);
        assert_eq!(net.end(first), End::Eof);
        let said = behind_head(net.heard(first)).expect("a head");
        assert_eq!((said[0], &said[2..4]), (0x88, &close.to_be_bytes()[..]));

        let second = open(&mut net);
        net.say(second, &frame(0x01, b"its "));
        net.say(second, &frame(0x80, b"own"));
        hear(&mut net, second, b"\x81\x07its own");
        net.finish(second);
        assert_eq!(net.end(second), End::Eof);
    }
}

crate::every_driver! {
    a_broken_message_is_nobody_elses
}
