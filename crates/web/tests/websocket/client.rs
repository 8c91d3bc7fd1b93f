//! A client that writes frames as a test says, and checks every byte of the server.
#![allow(dead_code, unreachable_pub)] // it is a module of a test binary

use windlass::driver::Driver;
use windlass::{Buf, Source};
use windlass_websocket::{Decoder, Event, Kind, Limits, Role, handshake, mask};

use crate::bench::Web;

pub const PART: u8 = 0x00;
pub const TEXT_PART: u8 = 0x01;
pub const LAST: u8 = 0x80;
pub const TEXT: u8 = 0x81;
pub const BINARY: u8 = 0x82;
pub const CLOSE: u8 = 0x88;
pub const PING: u8 = 0x89;
pub const PONG: u8 = 0x8a;

/// A frame of a client with this first byte.
pub fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut all = vec![first];
    match payload.len() {
        len @ ..126 => all.push(0x80 | len as u8),
        len @ ..0x1_0000 => {
            all.push(0x80 | 126);
            all.extend_from_slice(&(len as u16).to_be_bytes());
        }
        len => {
            all.push(0x80 | 127);
            all.extend_from_slice(&(len as u64).to_be_bytes());
        }
    }
    let key = (payload.len() as u32 ^ u32::from(first)).wrapping_mul(0x9e37_79b9).to_be_bytes();
    all.extend_from_slice(&key);
    let start = all.len();
    all.extend_from_slice(payload);
    mask(key, &mut all[start..]);
    all
}

pub fn text(text: &str) -> Vec<u8> {
    frame(TEXT, text.as_bytes())
}

pub fn close(code: u16, reason: &str) -> Vec<u8> {
    frame(CLOSE, &[&code.to_be_bytes(), reason.as_bytes()].concat())
}

/// The key of all requests, of which the RFC says the answer.
pub const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";

/// A request for a WebSocket, with fields that end with a line break each.
pub fn request(path: &str, fields: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nHost: test\r\nConnection: keep-alive, Upgrade\r\n\
         Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}\r\n\
         {fields}\r\n"
    )
}

/// What a client gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Got {
    Text(String),
    Binary(Vec<u8>),
    Ping(Vec<u8>),
    Pong(Vec<u8>),
    Close(Option<u16>, String),
}

/// A text as a client gets it.
pub fn said(text: &str) -> Got {
    Got::Text(text.to_owned())
}

pub fn closed(code: u16) -> Got {
    Got::Close(Some(code), String::new())
}

/// The input of a client: a head, and then frames.
pub struct Inbox {
    decoder: Decoder,
    kept: Vec<u8>,
    part: Vec<u8>,
    /// The head of the response, when it is whole.
    pub head: Option<String>,
    pub got: Vec<Got>,
}

impl Default for Inbox {
    fn default() -> Inbox {
        let (kept, part, got) = (Vec::new(), Vec::new(), Vec::new());
        Inbox { decoder: Decoder::new(Role::Client), kept, part, head: None, got }
    }
}

impl Inbox {
    /// Takes bytes. Each has to be right.
    #[track_caller]
    pub fn take(&mut self, bytes: &[u8]) {
        self.kept.extend_from_slice(bytes);
        if self.head.is_none() {
            let Some(end) = self.kept.windows(4).position(|four| four == b"\r\n\r\n") else {
                return;
            };
            let head: Vec<u8> = self.kept.drain(..end + 4).collect();
            let head = String::from_utf8(head).expect("a text");
            assert!(head.starts_with("HTTP/1.1 101 Switching Protocols\r\n"), "{head}");
            let accept = handshake::accept(KEY).expect("a key");
            assert!(head.contains(&format!("Sec-WebSocket-Accept: {accept}\r\n")), "{head}");
            self.head = Some(head);
        }
        let limits = Limits { message: u64::MAX, fragments: u32::MAX };
        let mut at = 0;
        loop {
            let left = &mut self.kept[at..];
            let step = self.decoder.decode(&limits, left).expect("what a server may send");
            match step.event {
                Event::NeedMore => break,
                Event::Data { kind, payload, is_last, .. } => {
                    self.part.extend_from_slice(&left[payload]);
                    if is_last {
                        let all = std::mem::take(&mut self.part);
                        self.got.push(match kind {
                            Kind::Text => Got::Text(String::from_utf8(all).expect("a text")),
                            Kind::Binary => Got::Binary(all),
                        });
                    }
                }
                Event::Ping(data) => self.got.push(Got::Ping(left[data].to_vec())),
                Event::Pong(data) => self.got.push(Got::Pong(left[data].to_vec())),
                Event::Close(code, reason) => {
                    let reason = String::from_utf8_lossy(&left[reason]).into_owned();
                    self.got.push(Got::Close(code.map(|code| code.number()), reason));
                }
                _ => {
                    assert_eq!(step.consumed, 0, "bytes behind a close frame");
                    break;
                }
            }
            at += step.consumed;
        }
        self.kept.drain(..at);
    }

    /// Whether a message or a frame is not whole.
    pub fn is_within(&self) -> bool {
        let is_closed = matches!(self.got.last(), Some(Got::Close(..)));
        !self.part.is_empty() || !self.kept.is_empty() || !is_closed && !self.decoder.is_idle()
    }
}

/// A client on the watcher of the server.
pub struct Ws {
    pub source: Source,
    seen: usize,
    pub inbox: Inbox,
    /// How many of what it has got the test has taken.
    taken: usize,
}

impl Ws {
    /// A client that asks for a WebSocket, and says more behind the request.
    pub fn ask<D: Driver, S: 'static>(
        web: &mut Web<D, S>,
        path: &str,
        more: impl AsRef<[u8]>,
    ) -> Ws {
        let source = web.connect();
        let mut all = request(path, "").into_bytes();
        all.extend_from_slice(more.as_ref());
        web.say(source, all);
        Ws::of(source)
    }

    pub fn of(source: Source) -> Ws {
        Ws { source, seen: 0, inbox: Inbox::default(), taken: 0 }
    }

    /// A client whose WebSocket is open.
    #[track_caller]
    pub fn open<D: Driver, S: 'static>(web: &mut Web<D, S>, path: &str) -> Ws {
        let mut ws = Ws::ask(web, path, "");
        web.until("the 101", |web| ws.look(web).head.is_some());
        ws
    }

    pub fn say<D: Driver, S: 'static>(&self, web: &mut Web<D, S>, what: impl Into<Buf>) {
        web.say(self.source, what);
    }

    /// What it has got.
    #[track_caller]
    pub fn look<D: Driver, S: 'static>(&mut self, web: &Web<D, S>) -> &mut Inbox {
        let heard = &web.client(self.source).heard;
        if heard.len() > self.seen {
            self.inbox.take(&heard[self.seen..]);
            self.seen = heard.len();
        }
        &mut self.inbox
    }

    /// The next thing that it gets.
    #[track_caller]
    pub fn next<D: Driver, S: 'static>(&mut self, web: &mut Web<D, S>) -> Got {
        let at = self.taken;
        web.until("one more", |web| {
            let has = self.look(web).got.len() > at;
            assert!(
                has || !web.client(self.source).is_over(),
                "it has ended: {:?}",
                self.inbox.got
            );
            has
        });
        self.taken += 1;
        self.inbox.got[at].clone()
    }

    /// All that it gets to the end of its connection, which has to be an end of file.
    #[track_caller]
    pub fn rest<D: Driver, S: 'static>(&mut self, web: &mut Web<D, S>) -> Vec<Got> {
        web.until("the end", |web| web.client(self.source).is_over());
        let client = web.client(self.source);
        assert!(client.eof, "a reset in the place of an end: {:?}", client.error);
        self.look(web);
        assert!(!self.inbox.is_within(), "an end within a message");
        let rest = self.inbox.got[self.taken..].to_vec();
        self.taken = self.inbox.got.len();
        web.close(self.source);
        rest
    }
}
