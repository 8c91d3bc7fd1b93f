//! What a connection sends, and what must come back.
//!
//! TCP echo sends the bytes of a pattern; each connection begins at another place of it. Messages
//! have no frames: a message is answered when as many bytes have come back. A WebSocket sends
//! frames of a ring, and each connection begins at another of them; their echoes have other heads
//! and no mask.

use crate::pattern;
use crate::websocket_load::{head, put_masked};

/// The longest message, and the longest piece that is compared at once.
pub const LONGEST: usize = 1 << 20;

/// Frames with different bytes. No length of a sample divides their number.
const FRAMES: usize = 61;

/// The bytes of all connections in one direction: made once for the life of the process. They
/// repeat after a period.
#[derive(Clone, Copy, Debug)]
struct Ring {
    bytes: &'static [u8],
    period: usize,
    /// Bytes of a message.
    message: usize,
    /// Bytes between the places where two connections begin.
    step: usize,
}

impl Ring {
    /// The place of a byte, by its number, of a connection that begins `start` steps in.
    fn at(&self, start: usize, number: u64) -> usize {
        (start * self.step + (number % self.period as u64) as usize) % self.period
    }
}

/// How messages are sent, and how their echoes look.
#[derive(Clone, Copy, Debug)]
pub struct Wire {
    sent: Ring,
    heard: Ring,
}

impl Wire {
    /// Messages of `size` bytes without frames.
    pub fn plain(size: usize) -> Wire {
        let bytes = pattern::of(LONGEST).leak();
        let ring = Ring { bytes, period: pattern::PERIOD, message: size, step: 1 };
        Wire { sent: ring, heard: ring }
    }

    /// Messages of a WebSocket, with `size` bytes of payload.
    pub fn websocket(size: usize) -> Wire {
        let pattern = pattern::of(size);
        let (mut sent, mut heard) = (Vec::new(), Vec::new());
        for number in 0..FRAMES {
            let payload = &pattern[pattern::start(number + 1)..][..size];
            put_masked(0x82, payload, number, &mut sent);
            heard.extend_from_slice(&head(0x82, size, None));
            heard.extend_from_slice(payload);
        }
        let ring = |frames: Vec<u8>, longest: usize| {
            let (period, message) = (frames.len(), frames.len() / FRAMES);
            let bytes: Vec<u8> = frames.into_iter().cycle().take(period + longest).collect();
            Ring { bytes: bytes.leak(), period, message, step: message }
        };
        Wire { sent: ring(sent, 0), heard: ring(heard, LONGEST) }
    }
}

/// The bytes of one connection, in both directions.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    /// Where in the rings it begins.
    start: usize,
    /// Messages that were sent, and bytes that were heard.
    sent: u64,
    heard: u64,
}

impl Stream {
    pub fn new(index: usize) -> Stream {
        Stream { start: index * 31 % pattern::PERIOD, sent: 0, heard: 0 }
    }

    /// The next message, with its frame.
    pub fn next(&mut self, wire: &Wire) -> &'static [u8] {
        let Ring { bytes, message, .. } = wire.sent;
        let from = wire.sent.at(self.start, self.sent * message as u64);
        self.sent += 1;
        &bytes[from..from + message]
    }

    /// Compares bytes that came back. Returns which messages they complete, by number from 0.
    pub fn hear(&mut self, wire: &Wire, data: &[u8]) -> Result<std::ops::Range<u64>, String> {
        let Ring { bytes, message, .. } = wire.heard;
        let message = message as u64;
        let first = self.heard / message;
        if data.len() as u64 > self.sent * message - self.heard {
            return Err(format!("{} bytes more than were sent", data.len()));
        }
        for piece in data.chunks(LONGEST) {
            let from = wire.heard.at(self.start, self.heard);
            if piece != &bytes[from..from + piece.len()] {
                return Err("other bytes than were sent".into());
            }
            self.heard += piece.len() as u64;
        }
        Ok(first..self.heard / message)
    }

    /// How many messages were sent, and how many of them have come back.
    pub fn messages(&self, wire: &Wire) -> (u64, u64) {
        (self.sent, self.heard / wire.heard.message as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The echo of a message.
    fn echo(wire: &Wire, message: &[u8]) -> Vec<u8> {
        if wire.sent.message == wire.heard.message {
            return message.to_vec();
        }
        let extra = if message[1] == 0x80 | 126 { 2 } else { 0 };
        let (head, masked) = message.split_at(2 + extra);
        let (key, masked) = masked.split_at(4);
        let plain = masked.iter().zip(key.iter().cycle()).map(|(byte, key)| byte ^ key);
        let head = [&[head[0], head[1] & 0x7f], &head[2..]].concat();
        head.into_iter().chain(plain).collect()
    }

    #[test]
    fn every_byte_is_compared() {
        let sizes = [1, 100, 1024, 70_000].map(Wire::plain).into_iter();
        for wire in sizes.chain([1, 100, 1024].map(Wire::websocket)) {
            let mut stream = Stream::new(5000);
            let mut echoes = Vec::new();
            for _ in 0..200 {
                echoes.extend(echo(&wire, stream.next(&wire)));
            }
            let mut wrong = stream;
            let mut answered = 0;
            for piece in echoes.chunks(777) {
                let messages = stream.hear(&wire, piece).unwrap();
                assert_eq!(messages.start, answered);
                answered = messages.end;
            }
            assert_eq!(stream.messages(&wire), (200, 200));
            assert!(stream.hear(&wire, &[1]).unwrap_err().contains("more"));
            let last = echoes.len() - 1;
            echoes[last] ^= 1;
            assert!(wrong.hear(&wire, &echoes).unwrap_err().contains("other"));
        }
    }

    #[test]
    fn a_message_that_comes_twice_or_not_at_all_is_seen() {
        for wire in [Wire::plain(1024), Wire::websocket(1024)] {
            let mut stream = Stream::new(1);
            let first = echo(&wire, stream.next(&wire));
            let second = echo(&wire, stream.next(&wire));
            let mut twice = stream;
            assert_eq!(twice.hear(&wire, &first), Ok(0..1));
            assert!(twice.hear(&wire, &first).is_err());
            assert!(stream.hear(&wire, &second).is_err());
        }
    }
}
