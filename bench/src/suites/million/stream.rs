//! What a connection sends, and what must come back.
//!
//! TCP echo sends the bytes of a pattern; each connection begins at another place of it. Messages
//! have no frames: a message is answered when as many bytes have come back. A protocol with frames
//! needs another [`Stream`]: its `next` returns the frame of a message, its `hear` counts the
//! messages whose frames are complete, and the rest of the suite stays as it is.

/// Prime, so that no length of a message divides it: a byte at the wrong place is another byte.
const PERIOD: usize = 65_521;
/// The longest message, and the longest piece that is compared at once.
pub const LONGEST: usize = 1 << 20;

/// The bytes of all connections, made once for the life of the process.
pub fn pattern() -> &'static [u8] {
    let byte = |at: usize| (at % PERIOD).wrapping_mul(0x9E37_79B1).to_be_bytes()[4];
    (0..PERIOD + LONGEST).map(byte).collect::<Vec<u8>>().leak()
}

/// The bytes of one connection, in both directions.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    /// Where in the pattern it begins.
    start: usize,
    sent: u64,
    heard: u64,
}

impl Stream {
    pub fn new(index: usize) -> Stream {
        Stream { start: index * 31 % PERIOD, sent: 0, heard: 0 }
    }

    fn at(&self, position: u64) -> usize {
        (self.start + (position % PERIOD as u64) as usize) % PERIOD
    }

    /// The next message, of `size` bytes.
    pub fn next(&mut self, pattern: &'static [u8], size: usize) -> &'static [u8] {
        let from = self.at(self.sent);
        self.sent += size as u64;
        &pattern[from..from + size]
    }

    /// Compares bytes that came back. Returns which messages they complete, by number from 0.
    pub fn hear(
        &mut self,
        pattern: &[u8],
        size: usize,
        data: &[u8],
    ) -> Result<std::ops::Range<u64>, String> {
        let first = self.heard / size as u64;
        if data.len() as u64 > self.sent - self.heard {
            return Err(format!("{} bytes more than were sent", data.len()));
        }
        for piece in data.chunks(LONGEST) {
            let from = self.at(self.heard);
            if piece != &pattern[from..from + piece.len()] {
                return Err("other bytes than were sent".into());
            }
            self.heard += piece.len() as u64;
        }
        Ok(first..self.heard / size as u64)
    }

    /// How many messages of `size` bytes were sent, and how many of them have come back.
    pub fn messages(&self, size: usize) -> (u64, u64) {
        (self.sent / size as u64, self.heard / size as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_compared() {
        let pattern = pattern();
        for size in [1, 100, 1024, 70_000] {
            let mut stream = Stream::new(5000);
            let mut echo = Vec::new();
            for _ in 0..200 {
                echo.extend_from_slice(stream.next(pattern, size));
            }
            let mut wrong = stream;
            let mut answered = 0;
            for piece in echo.chunks(777) {
                let messages = stream.hear(pattern, size, piece).unwrap();
                assert_eq!(messages.start, answered);
                answered = messages.end;
            }
            assert_eq!(stream.messages(size), (200, 200));
            assert!(stream.hear(pattern, size, &[1]).unwrap_err().contains("more"));
            let last = echo.len() - 1;
            echo[last] ^= 1;
            assert!(wrong.hear(pattern, size, &echo).unwrap_err().contains("other"));
        }
    }

    #[test]
    fn a_message_that_comes_twice_or_not_at_all_is_seen() {
        let pattern = pattern();
        let mut stream = Stream::new(1);
        let first = stream.next(pattern, 1024);
        let second = stream.next(pattern, 1024);
        let mut twice = stream;
        assert_eq!(twice.hear(pattern, 1024, first), Ok(0..1));
        assert!(twice.hear(pattern, 1024, first).is_err());
        assert!(stream.hear(pattern, 1024, second).is_err());
    }
}
