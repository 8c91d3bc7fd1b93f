//! A client that compresses with zlib in C, and has one context for each direction as long as it
//! lives. What it has agreed to is what it reads in the response.

use windlass::Source;
use windlass::driver::Driver;
use windlass_websocket::{Decoder, Event, Kind, Limits, Role};

use super::zlib::{Receiver, Sender};
use crate::bench::Web;
use crate::client::{BINARY, Got, Inbox, PART, TEXT, frame, request};

/// The bit of a compressed message in the first byte of its first frame.
pub(crate) const COMPRESSED: u8 = 0x40;
const LAST: u8 = 0x80;

/// What both sides have agreed to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Terms {
    pub(crate) server: (u8, bool),
    pub(crate) client: (u8, bool),
}

impl Terms {
    /// What an answer says, to an offer.
    #[track_caller]
    pub(crate) fn of(offer: &str, answer: &str) -> Terms {
        let has = |name: &str| answer.split("; ").any(|one| one == name);
        let bits = |text: &str, name: &str| -> Option<u8> {
            let mut all = text.split("; ").filter_map(|one| one.strip_prefix(name));
            all.next().map(|bits| bits.parse().expect("a number"))
        };
        assert!(answer.starts_with("permessage-deflate"), "{answer}");
        let promised = bits(offer, "client_max_window_bits=").unwrap_or(15);
        let told = bits(answer, "client_max_window_bits=").unwrap_or(15);
        Terms {
            server: (
                bits(answer, "server_max_window_bits=").unwrap_or(15),
                !has("server_no_context_takeover"),
            ),
            client: (promised.min(told), !has("client_no_context_takeover")),
        }
    }
}

/// The value of a field of a response.
pub(crate) fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

/// A client with contexts.
pub(crate) struct ZlibPeer {
    pub(crate) source: Source,
    pub(crate) terms: Option<Terms>,
    pub(crate) head: String,
    seen: usize,
    decoder: Decoder,
    kept: Vec<u8>,
    part: Vec<u8>,
    zlib: Option<(Sender, Receiver)>,
    /// What has come, and whether it was compressed.
    pub(crate) got: Vec<(Got, bool)>,
    taken: usize,
}

impl ZlibPeer {
    /// A client whose WebSocket is open, with an offer or none.
    #[track_caller]
    pub(crate) fn open<D: Driver, S: 'static>(
        web: &mut Web<D, S>,
        path: &str,
        offer: &str,
        level: u32,
    ) -> ZlibPeer {
        let fields = match offer {
            "" => String::new(),
            offer => format!("Sec-WebSocket-Extensions: {offer}\r\n"),
        };
        let source = web.ask(request(path, &fields));
        let end = |web: &Web<D, S>| {
            let heard = &web.client(source).heard;
            heard.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4)
        };
        web.until("the 101", |web| end(web).is_some());
        let seen = end(web).expect("right from above");
        let mut inbox = Inbox::default();
        inbox.take(&web.client(source).heard[..seen]);
        let head = inbox.head.expect("it is whole");
        let terms = field(&head, "Sec-WebSocket-Extensions").map(|it| Terms::of(offer, it));
        let decoder = Decoder::new(Role::Client);
        ZlibPeer {
            source,
            terms,
            head,
            seen,
            decoder: if terms.is_some() { decoder.deflate() } else { decoder },
            kept: Vec::new(),
            part: Vec::new(),
            zlib: terms.map(|Terms { server, client }| {
                (Sender::new(level, client.0, client.1), Receiver::new(server.0, server.1))
            }),
            got: Vec::new(),
            taken: 0,
        }
    }

    /// The frames of a message, cut at these places of its payload. It is compressed if it may be.
    pub(crate) fn frames(&mut self, what: &Got, compressed: bool, cuts: &[usize]) -> Vec<Vec<u8>> {
        let (first, plain) = match what {
            Got::Text(text) => (TEXT, text.as_bytes()),
            Got::Binary(bytes) => (BINARY, &bytes[..]),
            other => panic!("{other:?}"),
        };
        let (mut first, payload) = match &mut self.zlib {
            Some((sender, _)) if compressed => (first | COMPRESSED, sender.send(plain)),
            _ => (first, plain.to_vec()),
        };
        let (mut frames, mut at) = (Vec::new(), 0);
        for cut in cuts.iter().copied().filter(|cut| *cut <= payload.len()) {
            let cut = cut.max(at);
            frames.push(frame(first & !LAST, &payload[at..cut]));
            (first, at) = (PART, cut);
        }
        frames.push(frame(first | LAST, &payload[at..]));
        frames
    }

    /// Reads what has come.
    #[track_caller]
    pub(crate) fn look<D: Driver, S: 'static>(&mut self, web: &Web<D, S>) -> usize {
        let heard = &web.client(self.source).heard;
        self.kept.extend_from_slice(&heard[self.seen..]);
        self.seen = heard.len();
        let limits = Limits { message: u64::MAX / 2, fragments: u32::MAX };
        let mut at = 0;
        loop {
            let left = &mut self.kept[at..];
            let step = self.decoder.decode(&limits, left).expect("what a server may send");
            match step.event {
                Event::NeedMore => break,
                Event::Data { kind, payload, is_last, is_compressed, .. } => {
                    self.part.extend_from_slice(&left[payload]);
                    if is_last {
                        let all = std::mem::take(&mut self.part);
                        let all = match &mut self.zlib {
                            Some((_, receiver)) if is_compressed => receiver.receive(&all),
                            _ => all,
                        };
                        let got = match kind {
                            Kind::Text => Got::Text(String::from_utf8(all).expect("a text")),
                            Kind::Binary => Got::Binary(all),
                        };
                        self.got.push((got, is_compressed));
                    }
                }
                Event::Ping(data) => self.got.push((Got::Ping(left[data].to_vec()), false)),
                Event::Pong(data) => self.got.push((Got::Pong(left[data].to_vec()), false)),
                Event::Close(code, reason) => {
                    let reason = String::from_utf8_lossy(&left[reason]).into_owned();
                    let code = code.map(|code| code.number());
                    self.got.push((Got::Close(code, reason), false));
                }
                _ => break,
            }
            at += step.consumed;
        }
        self.kept.drain(..at);
        self.got.len()
    }

    pub(crate) fn say<D: Driver, S: 'static>(&self, web: &mut Web<D, S>, bytes: Vec<u8>) {
        web.say(self.source, bytes);
    }

    /// Says a message in one frame.
    pub(crate) fn tell<D: Driver, S: 'static>(
        &mut self,
        web: &mut Web<D, S>,
        what: &Got,
        compressed: bool,
    ) {
        let frames = self.frames(what, compressed, &[]).concat();
        self.say(web, frames);
    }

    /// The next thing that it gets, and whether it was compressed.
    #[track_caller]
    pub(crate) fn next<D: Driver, S: 'static>(&mut self, web: &mut Web<D, S>) -> (Got, bool) {
        let at = self.taken;
        web.until("one more", |web| {
            let has = self.look(web) > at;
            assert!(has || !web.client(self.source).is_over(), "{:?}", self.got);
            has
        });
        self.taken += 1;
        self.got[at].clone()
    }
}
