//! How many chunks of a pool are free, and from when on the pool is scarce.

use std::sync::atomic::Ordering;

use super::Pool;

/// A pool of fewer chunks has no shares: one read takes too large a part of it.
const LEAST_CHUNKS: usize = 8;

impl Pool {
    /// Whether the pool is large enough for shares.
    pub(super) fn has_shares(&self) -> bool {
        self.limit_chunks >= LEAST_CHUNKS
    }

    /// Updates whether half of the pool is in use.
    pub(super) fn note_scarcity(&mut self) {
        let used = self.allocated - self.free.len() - self.lent;
        let scarce = self.has_shares() && used * 2 >= self.limit_chunks;
        self.usual_room = if scarce { u32::MAX } else { self.least_room };
    }

    /// Whether half of the pool was in use when last checked.
    #[inline(always)]
    pub(crate) fn is_scarce(&self) -> bool {
        self.usual_room != self.least_room
    }

    /// Whether half of the pool is in use.
    #[cold]
    pub(crate) fn is_still_scarce(&mut self) -> bool {
        if !self.shared.returned.load(Ordering::Relaxed).is_null() {
            self.take_returned();
            self.note_scarcity();
        }
        self.is_scarce()
    }

    /// The number of chunks available without waiting, except the current one.
    pub(crate) fn free_chunks(&mut self) -> usize {
        self.is_still_scarce();
        self.free.len() + self.limit_chunks - self.allocated
    }

    /// The number of chunks with room. If `awaited`, or if there is none, the pool wakes its driver
    /// when a chunk comes back.
    pub fn available(&mut self, awaited: bool) -> usize {
        self.reuse_if_returned();
        let at_hand = self.room >= self.least_room;
        if !at_hand {
            // So that the returning chunk wakes the driver.
            self.retire();
        }
        let count = self.free_chunks() + usize::from(at_hand);
        if count > 0 && !awaited {
            return count;
        }
        self.starve();
        self.note_scarcity();
        self.free_chunks() + usize::from(at_hand)
    }
}
