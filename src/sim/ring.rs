//! The bytes of a socket that were sent to it and were not read yet.

use crate::memory::buf::Target;

/// The least memory that a ring in use has.
const LEAST: usize = 256;

/// A bounded queue of bytes. Its memory is a power of two and grows with need, so that idle
/// connections cost none.
pub(super) struct RingBuffer {
    bytes: Vec<u8>,
    head: usize,
    len: usize,
    /// How many of its last bytes have not arrived yet.
    hidden: usize,
    limit: usize,
}

impl RingBuffer {
    pub(super) const fn new(limit: usize) -> RingBuffer {
        RingBuffer { bytes: Vec::new(), head: 0, len: 0, hidden: 0, limit }
    }

    /// How many bytes it holds, including those that have not arrived yet.
    #[inline(always)]
    pub(super) fn count(&self) -> usize {
        self.len
    }

    /// How many bytes have arrived.
    #[inline(always)]
    pub(super) fn readable(&self) -> usize {
        self.len - self.hidden
    }

    /// Whether no byte has arrived.
    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.len == self.hidden
    }

    /// Hides the last bytes: they have not arrived yet.
    pub(super) fn hide(&mut self, count: usize) {
        self.hidden += count;
    }

    /// Shows the first hidden bytes: they have arrived.
    pub(super) fn show(&mut self, count: usize) {
        self.hidden -= count;
    }

    /// How many bytes fit.
    #[inline(always)]
    pub(super) fn room(&self) -> usize {
        self.limit - self.len
    }

    /// Whether a writer should be told that there is room: if a third of the ring is free, as with
    /// TCP. So a slow reader does not cause an event per byte.
    #[inline(always)]
    pub(super) fn is_roomy(&self) -> bool {
        self.room() >= self.limit.div_ceil(3)
    }

    /// Adds `from` at the end. The caller has checked that it fits.
    #[inline(always)]
    pub(super) fn push(&mut self, from: &[u8]) {
        debug_assert!(from.len() <= self.room());
        let len = self.len + from.len();
        if len > self.bytes.len() {
            self.grow(len);
        }
        let at = (self.head + self.len) & (self.bytes.len().wrapping_sub(1));
        let first = from.len().min(self.bytes.len() - at);
        self.bytes[at..at + first].copy_from_slice(&from[..first]);
        if first < from.len() {
            let rest = &from[first..];
            self.bytes[..rest.len()].copy_from_slice(rest);
        }
        self.len = len;
    }

    /// Moves bytes from the start to `to`, at most `most`. Returns their number.
    #[inline(always)]
    pub(super) fn pop(&mut self, to: &mut Target<'_>, most: usize) -> usize {
        let count = self.readable().min(most).min(to.len());
        let first = count.min(self.bytes.len() - self.head);
        to.write(&self.bytes[self.head..self.head + first]);
        if first < count {
            to.skip(first).write(&self.bytes[..count - first]);
        }
        self.len -= count;
        // An empty ring begins at its start again, where its memory is in the cache.
        self.head = if self.len == 0 { 0 } else { (self.head + count) & (self.bytes.len() - 1) };
        count
    }

    #[cold]
    fn grow(&mut self, len: usize) {
        let mut bytes = vec![0; len.next_power_of_two().max(LEAST)];
        let first = self.len.min(self.bytes.len() - self.head);
        bytes[..first].copy_from_slice(&self.bytes[self.head..self.head + first]);
        bytes[first..self.len].copy_from_slice(&self.bytes[..self.len - first]);
        self.bytes = bytes;
        self.head = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::rng::Rng;

    #[test]
    fn it_is_a_queue_of_bytes() {
        let mut rng = Rng::new(1);
        let mut ring = RingBuffer::new(1000);
        let (mut next_in, mut next_out) = (0u8, 0u8);
        let mut memory = [0; 1000];
        for _ in 0..if cfg!(miri) { 50 } else { 10_000 } {
            let count = rng.below(ring.room() as u64 + 1) as usize;
            let bytes: Vec<u8> = (0..count).map(|i| next_in.wrapping_add(i as u8)).collect();
            next_in = next_in.wrapping_add(count as u8);
            ring.push(&bytes);
            let most = rng.below(1001) as usize;
            let before = ring.count();
            let count = ring.pop(&mut Target::from_slice(&mut memory), most);
            assert_eq!(count, before.min(most));
            for byte in &memory[..count] {
                assert_eq!(*byte, next_out);
                next_out = next_out.wrapping_add(1);
            }
        }
    }
}
