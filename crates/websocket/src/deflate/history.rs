//! What the peer's context holds.

use std::fmt;

use super::Window;

/// The last bytes of one direction of a connection with context takeover: what the next compressed
/// message can refer to. 40 bytes, and what it holds: at most 2^w, and nothing before the first
/// message.
///
/// It gets the plain text of *compressed* messages, in their order, and of no others: control
/// frames and messages that are sent as they are do not pass through the peer's compressor. A
/// history with one message too many or too few gives wrong text, and no error tells.
/// [`Deflaters`](super::Deflaters) and [`Inflaters`](super::Inflaters) keep it; a program
/// [appends](History::append) what it has compressed for several connections at once.
pub struct History {
    /// It grows to the window's size. Then it is a ring.
    bytes: Vec<u8>,
    /// Where the next byte goes, and the oldest one is, when the ring is full.
    next: u16,
    window: Window,
    /// Which live deflater has this context, if its stamp is still the same. 0 is no stamp.
    pub(super) slot: u16,
    pub(super) stamp: u64,
}

/// A message that is compressed, and not sent yet:
/// [`Deflaters::compress_unsent`](super::Deflaters::compress_unsent) makes it.
#[derive(Debug, Default)]
#[must_use = "a message that is sent joins the history"]
pub struct UnsentMessage {
    /// The live deflater that has the context with this message in it. By default none has.
    pub(super) slot: u16,
    pub(super) stamp: u64,
}

impl History {
    /// No bytes yet. It takes no memory before the first message.
    pub const fn new(window: Window) -> History {
        History { bytes: Vec::new(), next: 0, window, slot: 0, stamp: 0 }
    }

    /// The most bytes that it holds.
    pub fn window(&self) -> Window {
        self.window
    }

    /// How many bytes it holds.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether it holds no bytes.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Bytes of memory that it has allocated: at most 2^w.
    pub fn allocated(&self) -> usize {
        self.bytes.capacity()
    }

    /// Appends the plain text of a message that was compressed without this history: of one that
    /// [`Context::Fresh`](super::Context::Fresh) made, with a window not larger than this one.
    pub fn append(&mut self, plain: &[u8]) {
        self.stamp = 0;
        let size = self.window.bytes();
        let plain = &plain[plain.len().saturating_sub(size)..];
        if plain.len() == size {
            self.next = 0;
            self.bytes.clear();
        }
        let (fill, over) = plain.split_at(plain.len().min(size - self.bytes.len()));
        let len = self.bytes.len() + fill.len();
        if len > self.bytes.capacity() {
            // A step of 2^n: no more than 2^w, and few steps.
            let capacity = len.next_power_of_two().clamp(64, size);
            self.bytes.reserve_exact(capacity - self.bytes.len());
        }
        self.bytes.extend_from_slice(fill);
        if !over.is_empty() {
            let at = usize::from(self.next);
            let (end, front) = over.split_at(over.len().min(size - at));
            self.bytes[at..at + end.len()].copy_from_slice(end);
            self.bytes[..front.len()].copy_from_slice(front);
            self.next = ((at + over.len()) % size) as u16;
        }
    }

    /// The last message that was [compressed](super::Deflaters::compress_unsent) with this history
    /// is sent: its plain text joins.
    pub fn join(&mut self, plain: &[u8], message: UnsentMessage) {
        self.append(plain);
        (self.slot, self.stamp) = (message.slot, message.stamp);
    }

    /// What it holds: the older part, and the newer one.
    pub(super) fn parts(&self) -> [&[u8]; 2] {
        let (newer, older) = self.bytes.split_at(usize::from(self.next));
        [older, newer]
    }

    /// The last `most` bytes of what it holds.
    pub(super) fn last(&self, most: usize) -> [&[u8]; 2] {
        let [older, newer] = self.parts();
        let newer = &newer[newer.len().saturating_sub(most)..];
        [&older[older.len().saturating_sub(most - newer.len())..], newer]
    }

    /// Forgets all, and keeps the memory.
    pub(super) fn clear(&mut self) {
        (self.next, self.stamp) = (0, 0);
        self.bytes.clear();
    }

    /// Holds what another one holds, as far as its window goes.
    pub(super) fn copy_from(&mut self, other: &History) {
        self.clear();
        for part in other.parts() {
            self.append(part);
        }
    }
}

impl fmt::Debug for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("History")
            .field("window", &self.window)
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_holds_the_last_bytes_of_what_it_got() {
        assert_eq!(size_of::<History>(), 40);
        let mut random = fastrand::Rng::with_seed(1);
        for bits in [9, 10, 15] {
            let window = Window::new(bits).unwrap();
            let (mut history, mut all) = (History::new(window), Vec::new());
            for _ in 0..2000 {
                let most = [3, 40, 600, window.bytes() + 2][random.usize(..4)];
                let text: Vec<u8> = (0..random.usize(..most)).map(|_| random.u8(..)).collect();
                history.append(&text);
                all.extend_from_slice(&text);
                let last = &all[all.len().saturating_sub(window.bytes())..];
                assert_eq!(history.parts().concat(), last);
                assert!(history.allocated() <= window.bytes());
                let most = random.usize(..window.bytes() + 3);
                assert_eq!(history.last(most).concat(), last[last.len().saturating_sub(most)..]);
            }
        }
    }

    #[test]
    fn one_byte_less_or_more_than_the_window() {
        let window = Window::MIN;
        for front in [0, 1, 5, 511, 512, 513] {
            for len in [511, 512, 513] {
                let all: Vec<u8> = (0..front + len).map(|at| (at % 251) as u8).collect();
                let mut history = History::new(window);
                history.append(&all[..front]);
                history.append(&all[front..]);
                let kept = history.parts().concat();
                assert_eq!(kept, all[all.len().saturating_sub(512)..], "{front} {len}");
                history.clear();
                assert!(history.is_empty());
            }
        }
    }
}
