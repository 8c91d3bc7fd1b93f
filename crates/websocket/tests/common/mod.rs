//! Frames, and what a decoder tells of them at every cut.
#![allow(dead_code, unreachable_pub)] // each test binary uses a part

use windlass_websocket::{Decoder, Event, FrameHead, Kind, Limits, Opcode, Role, Rule, mask};

pub mod random;

/// The key of the frames of these tests.
pub const KEY: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];

/// What a decoder has told, without what depends on the cuts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Seen {
    /// Neighbouring parts of a message, joined. Those that end with a refusal are left out.
    Data {
        kind: Kind,
        bytes: Vec<u8>,
        is_compressed: bool,
        is_first: bool,
        is_last: bool,
    },
    Ping(Vec<u8>),
    Pong(Vec<u8>),
    Close(Option<u16>, Vec<u8>),
    Refused(Rule),
    /// So many bytes at the end are not consumed, and so many bytes of a frame are missing.
    Waits(usize, u64),
    Closed,
}

pub fn text(bytes: impl AsRef<[u8]>) -> Seen {
    whole(Kind::Text, bytes.as_ref())
}

pub fn binary(bytes: impl AsRef<[u8]>) -> Seen {
    whole(Kind::Binary, bytes.as_ref())
}

fn whole(kind: Kind, bytes: &[u8]) -> Seen {
    let bytes = bytes.to_vec();
    Seen::Data { kind, bytes, is_compressed: false, is_first: true, is_last: true }
}

pub fn ping(bytes: impl AsRef<[u8]>) -> Seen {
    Seen::Ping(bytes.as_ref().to_vec())
}

/// The input of one side.
#[derive(Clone, Copy, Debug)]
pub struct Side {
    pub role: Role,
    pub deflates: bool,
    pub limits: Limits,
}

pub const SERVER: Side = Side {
    role: Role::Server,
    deflates: false,
    limits: Limits { message: 1 << 20, fragments: 131_072 },
};

pub const CLIENT: Side = Side { role: Role::Client, ..SERVER };

impl Side {
    pub fn deflate(mut self) -> Side {
        self.deflates = true;
        self
    }

    pub fn limit(mut self, message: u64, fragments: u32) -> Side {
        self.limits = Limits { message, fragments };
        self
    }

    pub fn decoder(&self) -> Decoder {
        let decoder = Decoder::new(self.role);
        if self.deflates { decoder.deflate() } else { decoder }
    }

    /// A frame that this side gets, with any first byte, and its length in as few bytes as it
    /// needs.
    pub fn frame(&self, first: u8, payload: impl AsRef<[u8]>) -> Vec<u8> {
        let mut payload = payload.as_ref().to_vec();
        let mut frame = self.head(first, payload.len() as u64);
        if self.role == Role::Server {
            mask(KEY, &mut payload);
        }
        frame.extend(payload);
        frame
    }

    /// The head of a frame, likewise.
    pub fn head(&self, first: u8, len: u64) -> Vec<u8> {
        let mut out = Vec::new();
        let head = FrameHead::new(Opcode::Binary, len);
        match self.role {
            Role::Server => head.masked(KEY).put(&mut out),
            Role::Client => head.put(&mut out),
        }
        out[0] = first;
        out
    }

    /// What a decoder tells when the input comes in pieces that end at these cuts.
    pub fn cut(&self, input: &[u8], cuts: &[usize]) -> Vec<Seen> {
        let (mut decoder, mut seen) = (self.decoder(), Vec::new());
        let (mut held, mut from) = (Vec::new(), 0);
        for end in cuts.iter().copied().chain([input.len()]) {
            held.extend_from_slice(&input[from..end]);
            from = end;
            let mut used = 0;
            loop {
                let bytes = &mut held[used..];
                let before = bytes.to_vec();
                let step = match decoder.decode(&self.limits, bytes) {
                    Ok(step) => step,
                    Err(error) => {
                        let again = decoder.decode(&self.limits, &mut before.clone());
                        assert_eq!(again, Err(error), "an error stays");
                        if matches!(seen.last(), Some(Seen::Data { is_last: false, .. })) {
                            seen.pop();
                        }
                        seen.push(Seen::Refused(error.rule()));
                        return seen;
                    }
                };
                let told = Self::told(&step.event, bytes);
                assert!(step.consumed <= bytes.len());
                used += step.consumed;
                match step.event {
                    Event::NeedMore => {
                        assert_eq!(step.consumed, 0);
                        assert_eq!(bytes, before, "what is kept does not change");
                        assert!(bytes.len() <= 130, "{} bytes are kept", bytes.len());
                        break;
                    }
                    Event::Closed => {
                        assert_eq!(used, held.len());
                        break;
                    }
                    _ => join(&mut seen, told.expect("an event")),
                }
            }
            held.drain(..used);
        }
        let is_closed = matches!(seen.last(), Some(Seen::Close(..)));
        assert!(!is_closed || held.is_empty());
        let begun = matches!(
            seen.iter().rfind(|seen| matches!(seen, Seen::Data { .. })),
            Some(Seen::Data { is_last: false, .. })
        );
        assert_eq!(decoder.is_idle(), !is_closed && !begun);
        let end = Seen::Waits(held.len(), decoder.left());
        seen.push(if is_closed { Seen::Closed } else { end });
        seen
    }

    fn told(event: &Event, bytes: &[u8]) -> Option<Seen> {
        Some(match event {
            Event::Data { kind, payload, is_compressed, is_first, is_last } => Seen::Data {
                kind: *kind,
                bytes: bytes[payload.clone()].to_vec(),
                is_compressed: *is_compressed,
                is_first: *is_first,
                is_last: *is_last,
            },
            Event::Ping(payload) => Seen::Ping(bytes[payload.clone()].to_vec()),
            Event::Pong(payload) => Seen::Pong(bytes[payload.clone()].to_vec()),
            Event::Close(code, reason) => {
                Seen::Close(code.map(|code| code.number()), bytes[reason.clone()].to_vec())
            }
            _ => return None,
        })
    }

    /// What a decoder tells of the whole input. It tells the same at every cut: each one, each two
    /// of a short input, byte by byte, and in random pieces.
    pub fn decode(&self, input: impl AsRef<[u8]>) -> Vec<Seen> {
        let input = input.as_ref();
        let seen = self.cut(input, &[]);
        let check = |cuts: &[usize]| {
            let other = self.cut(input, cuts);
            assert_eq!(other, seen, "{self:?}: {input:02x?} is cut at {cuts:?}");
        };
        let len = input.len();
        (0..=len).step_by(1 + len * len / 2_000_000).for_each(|at| check(&[at]));
        if len <= 60 {
            (0..=len).for_each(|a| (a..=len).for_each(|b| check(&[a, b])));
        }
        if len <= 3000 {
            check(&(0..len).collect::<Vec<_>>());
        }
        let mut random = fastrand::Rng::with_seed(len as u64);
        for _ in 0..4 {
            let mut cuts: Vec<usize> =
                (0..random.usize(2..20)).map(|_| random.usize(..=len)).collect();
            cuts.sort_unstable();
            check(&cuts);
        }
        seen
    }

    /// The rule that the input breaks, at every cut. Nothing else may be told of it.
    pub fn refuses(&self, input: impl AsRef<[u8]>) -> Rule {
        match &self.decode(input)[..] {
            [Seen::Refused(rule)] => *rule,
            other => panic!("{other:?}"),
        }
    }
}

/// Adds a part of a message to the one before, if they are neighbours.
fn join(seen: &mut Vec<Seen>, next: Seen) {
    if let (
        Some(Seen::Data { kind, bytes, is_compressed, is_last: is_last @ false, .. }),
        Seen::Data {
            kind: next_kind,
            bytes: more,
            is_compressed: next_compressed,
            is_first,
            is_last: ends,
        },
    ) = (seen.last_mut(), &next)
    {
        assert!(!is_first, "a message begins within another one");
        assert_eq!((*kind, *is_compressed), (*next_kind, *next_compressed));
        bytes.extend_from_slice(more);
        *is_last = *ends;
    } else {
        seen.push(next);
    }
}

/// The messages and control frames, without the cuts of messages into fragments.
pub fn messages(seen: &[Seen]) -> Vec<Seen> {
    let (mut done, mut open): (Vec<Seen>, Vec<Seen>) = (Vec::new(), Vec::new());
    for one in seen {
        match one {
            Seen::Data { is_last, .. } => {
                let mut part = one.clone();
                if let (Seen::Data { is_first, .. }, false) = (&mut part, open.is_empty()) {
                    *is_first = false;
                }
                join(&mut open, part);
                if *is_last {
                    done.append(&mut open);
                }
            }
            other => done.push(other.clone()),
        }
    }
    done
}
