//! How much of a pool is left, and from when on that is too little for everybody to take what comes.

use std::sync::atomic::Ordering;

use super::Pool;

/// A pool of fewer chunks has no shares: what one read takes is too much of it.
const LEAST_CHUNKS: usize = 8;

impl Pool {
    /// Whether it is large enough to be shared out.
    pub(super) fn has_shares(&self) -> bool {
        self.limit_chunks >= LEAST_CHUNKS
    }

    /// Half of the pool is in use: what is left is for all.
    pub(super) fn note_scarcity(&mut self) {
        let used = self.allocated - self.free.len() - self.lent;
        let scarce = self.has_shares() && used * 2 >= self.limit_chunks;
        self.usual_room = if scarce { u32::MAX } else { self.least_room };
    }

    /// Whether half of the pool is in use, as far as it was looked at.
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

    /// How many chunks can be had without waiting, other than the one at hand.
    pub(crate) fn free_chunks(&mut self) -> usize {
        self.is_still_scarce();
        self.free.len() + self.limit_chunks - self.allocated
    }

    /// How many chunks with room there are. If `awaited`, or where there is none, the pool wakes its driver
    /// when one comes back.
    pub fn available(&mut self, awaited: bool) -> usize {
        let at_hand = self.room_at_hand(self.least_room).is_some();
        if !at_hand {
            // So that it is told when it comes back.
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
