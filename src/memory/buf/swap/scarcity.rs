//! How many chunks of a pool are free, and from when on the pool is scarce.

use std::sync::atomic::Ordering;

use super::Pool;

/// A pool of fewer chunks is small. A kernel gets all of them but one: a part would be too few.
const LEAST_CHUNKS: usize = 8;

impl Pool {
    /// How many chunks a kernel leaves to the loop.
    pub(super) fn kept_from_kernel(&self) -> usize {
        if self.limit_chunks >= LEAST_CHUNKS { self.limit_chunks * 3 / 4 } else { 1 }
    }

    /// Whether at least as many chunks are in use as are free. Chunks of a kernel are neither.
    #[inline(always)]
    pub(crate) fn is_scarce(&mut self) -> bool {
        // The first condition follows from the second, and costs less.
        self.in_use() >= self.limit_chunks / 8 && self.free_chunks() <= self.in_use()
    }

    /// Whether at most a quarter of the chunks is in use, and the pool is not scarce. False for a
    /// small pool, where each chunk counts.
    pub(crate) fn is_plentiful(&mut self) -> bool {
        self.limit_chunks >= LEAST_CHUNKS
            && self.in_use() <= self.limit_chunks / 4
            && !self.is_scarce()
    }

    #[inline(always)]
    fn in_use(&self) -> usize {
        self.allocated - self.free.len() - self.lent
    }

    /// The number of chunks available without waiting, except the current one.
    pub(crate) fn free_chunks(&mut self) -> usize {
        if !self.shared.returned.load(Ordering::Relaxed).is_null() {
            self.take_returned();
        }
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
        self.free_chunks() + usize::from(at_hand)
    }
}
