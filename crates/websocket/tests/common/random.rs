//! Random messages, in random frames, and what is wrong with them.

use fastrand::Rng;
use windlass_websocket::{CloseCode, FrameHead, Opcode, Role, mask, put_close};

use super::{Seen, binary, ping, text};

/// A count that a variable sets.
pub fn programs(usual: usize) -> usize {
    std::env::var("WINDLASS_PROGRAMS").map_or(usual, |count| count.parse().expect("a count"))
}

/// A seed, which is printed, and which a variable sets.
pub fn seed() -> u64 {
    let seed = std::env::var("WINDLASS_SEED");
    let seed = seed.map_or_else(|_| fastrand::u64(..), |seed| seed.parse().expect("a seed"));
    println!("WINDLASS_SEED={seed}");
    seed
}

/// Characters of all lengths.
const CHARACTERS: [char; 8] = ['a', '\u{0}', 'é', 'ß', '€', '\u{ffff}', '😀', '\u{10ffff}'];

pub fn characters(random: &mut Rng, count: usize) -> String {
    (0..count).map(|_| CHARACTERS[random.usize(..CHARACTERS.len())]).collect()
}

/// The side that sends.
pub struct Sender {
    pub random: Rng,
    /// That of the sender.
    pub role: Role,
    pub out: Vec<u8>,
}

impl Sender {
    pub fn new(role: Role, seed: u64) -> Sender {
        Sender { random: Rng::with_seed(seed), role, out: Vec::new() }
    }

    fn key(&mut self) -> Option<[u8; 4]> {
        let random: [u8; 4] = self.random.u32(..).to_ne_bytes();
        (self.role == Role::Client).then_some(if self.random.u8(..8) == 0 {
            [0; 4]
        } else {
            random
        })
    }

    /// Sends a frame.
    pub fn frame(&mut self, head: FrameHead, payload: &[u8]) {
        let (from, key) = (self.out.len(), self.key());
        let head = key.map_or(head, |key| head.masked(key));
        head.put(&mut self.out);
        let at = self.out.len();
        assert_eq!(at - from, head.size());
        self.out.extend_from_slice(payload);
        if let Some(key) = key {
            mask(key, &mut self.out[at..]);
        }
    }

    fn bytes(&mut self, most: usize) -> Vec<u8> {
        let len = match self.random.u8(..8) {
            0 => 0,
            1 => most,
            _ => self.random.usize(..=most),
        };
        (0..len).map(|_| self.random.u8(..)).collect()
    }

    /// Sends a ping or a pong, and returns it.
    fn control(&mut self) -> Seen {
        let payload = self.bytes(125);
        let is_ping = self.random.bool();
        let opcode = if is_ping { Opcode::Ping } else { Opcode::Pong };
        self.frame(FrameHead::new(opcode, payload.len() as u64), &payload);
        if is_ping { ping(payload) } else { Seen::Pong(payload) }
    }

    /// Sends a message in fragments with control frames between them, and returns them in the order
    /// of their ends.
    pub fn message(&mut self, most: usize) -> Vec<Seen> {
        let is_text = self.random.bool();
        let payload = if is_text {
            let count = self.random.usize(..=most / 4);
            characters(&mut self.random, count).into_bytes()
        } else {
            self.bytes(most)
        };
        let fragments = [1, 1, 2, 5][self.random.usize(..4)];
        let mut cuts: Vec<usize> =
            (1..fragments).map(|_| self.random.usize(..=payload.len())).collect();
        cuts.push(payload.len());
        cuts.sort_unstable();
        let (mut sent, mut from) = (Vec::new(), 0);
        for (number, end) in cuts.iter().copied().enumerate() {
            let opcode = match (number, is_text) {
                (0, true) => Opcode::Text,
                (0, false) => Opcode::Binary,
                _ => Opcode::Continuation,
            };
            let head = FrameHead::new(opcode, (end - from) as u64);
            let is_last = number + 1 == cuts.len();
            self.frame(if is_last { head } else { head.continues() }, &payload[from..end]);
            from = end;
            while !is_last && self.random.u8(..4) == 0 {
                sent.push(self.control());
            }
        }
        sent.push(if is_text { text(payload) } else { binary(payload) });
        sent
    }

    /// Sends messages and control frames, and at times a close frame at the end.
    pub fn stream(&mut self, most: usize) -> Vec<Seen> {
        let mut sent = Vec::new();
        for _ in 0..self.random.usize(..6) {
            if self.random.u8(..3) == 0 {
                sent.push(self.control());
            } else {
                sent.extend(self.message(most));
            }
        }
        if self.random.u8(..3) == 0 {
            let codes = [None, Some(1000), Some(1003), Some(1011), Some(3000), Some(4999)];
            let code = codes[self.random.usize(..codes.len())];
            let count = self.random.usize(..40);
            let reason = characters(&mut self.random, count);
            let key = self.key();
            let from = self.out.len();
            put_close(code.and_then(CloseCode::new), &reason, key, &mut self.out);
            let head = 2 + if key.is_some() { 4 } else { 0 };
            let len = self.out.len() - from - head;
            let reason = &reason.as_bytes()[..len.saturating_sub(2)];
            sent.push(Seen::Close(code, reason.to_vec()));
        }
        sent
    }

    /// Changes some bytes of what was sent, mostly those at the start of frames.
    pub fn mutate(&mut self) {
        for _ in 0..self.random.usize(1..4) {
            if self.out.is_empty() {
                return;
            }
            let most = if self.random.bool() { self.out.len() } else { self.out.len().min(16) };
            let at = self.random.usize(..most);
            match self.random.u8(..5) {
                0 => self.out[at] ^= 1 << self.random.u8(..8),
                1 => self.out[at] = self.random.u8(..),
                2 => drop(self.out.remove(at)),
                3 => self.out.insert(at, [0, 0x7e, 0x7f, 0x80, 0x88, 0xff][self.random.usize(..6)]),
                _ => self.out.truncate(at),
            }
        }
    }
}
