//! Shares of the swap buffers: how many of them the queued writes of one source may hold.
//!
//! A peer that does not read keeps the writes to it in their queue, and each lease in such a write
//! keeps a swap buffer in use. So the writes of one source hold at most as many swap buffers as are
//! free. At this bound the reads of the source wait: an echo to a peer that sends and never reads
//! stops there. A write that would exceed the bound, because its bytes came from another source or
//! from the program, is copied out of the pool when it is queued. This is the dynamic threshold of
//! shared-memory switches (Choudhury and Hahne, 1998): of `n` peers that never read, each holds one
//! part in `n + 1` of the pool at most, and one such part stays free.
//!
//! Each lease counts as a whole swap buffer. Only queued writes count, because they end without any
//! further read. So no read waits for a lease that the program gives back after that read only.
//!
//! A source that waits here goes on when its own writes end, or when enough swap buffers are free.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::kernel::Kernel;
use crate::proactor::Proactor;
use crate::proactor::parts::state::{HELD, WRITES};

/// Stale entries are dropped when there are more than this, and more than twice as many entries as
/// sources that wait.
const MOST_GONE: usize = 64;

/// The sources whose reads wait because of their writes.
#[derive(Debug, Default)]
pub(in crate::proactor) struct Shares {
    /// The fewest held buffers first, then in order of arrival. Entries may be stale.
    waiting: BinaryHeap<Reverse<(usize, u64, u64)>>,
    order: u64,
    /// The number of sources that wait.
    count: usize,
}

impl Shares {
    /// The number of sources that wait.
    pub(in crate::proactor) fn len(&self) -> usize {
        self.count
    }
}

/// Whether writes that hold so many swap buffers may hold as many more.
fn fits(held: usize, more: usize, free: usize) -> bool {
    held == 0 || held.saturating_add(more) <= free
}

impl<K: Kernel> Proactor<K> {
    /// Whether a read of the source has to wait, because the source's queued writes hold its share.
    #[inline(always)]
    pub(in crate::proactor) fn holds_share(&mut self, index: u32) -> bool {
        self.sources[index].has(WRITES)
            && self.memory.pool.is_scarce()
            && self.held_by_writes(index).is_some()
    }

    /// How many swap buffers the queued writes of a source hold, if that is its share.
    #[cold]
    #[inline(never)]
    fn held_by_writes(&mut self, index: u32) -> Option<usize> {
        let free = self.memory.pool.free_chunks();
        let held = self.ops.count_leases(self.sources[index].writes.head, free);
        // The read takes a free buffer, and its bytes may join the writes.
        (!fits(held, 2, free)).then_some(held)
    }

    /// The reads of a source that holds its share begin to wait.
    #[cold]
    pub(in crate::proactor) fn wait_for_share(&mut self, index: u32) {
        // All of them: with fewer the source would go on too early, its writes would be copied, and
        // make room for the next read, without end.
        let held = self.ops.count_leases(self.sources[index].writes.head, usize::MAX - 1);
        self.stats.counters.share_waits += 1;
        let state = &mut self.sources[index];
        let key = state.name(index).key();
        let (shares, sources) = (&mut self.sched.waits.shares, &mut self.sources.table);
        if shares.waiting.len() > MOST_GONE + 2 * shares.count {
            let mut is_there = |key: u64| {
                let state = sources.find_key(key as u32, (key >> 32) as u32);
                state.is_some_and(|state| state.has(HELD))
            };
            shares.waiting.retain(|&Reverse((_, _, key))| is_there(key));
        }
        shares.order += 1;
        shares.count += 1;
        shares.waiting.push(Reverse((held, shares.order, key)));
        self.sources[index].flags |= HELD;
        self.note_reading(index);
        self.sched.waits.note();
    }

    /// The reads of a source need not wait for its writes any more: they are tried again.
    #[cold]
    pub(in crate::proactor) fn leave_share(&mut self, index: u32) {
        let state = &mut self.sources[index];
        if !state.has(HELD) {
            return;
        }
        state.flags &= !HELD;
        self.sched.waits.shares.count -= 1;
        self.note_reading(index);
        if self.sources[index].can_read() {
            self.enqueue(index);
        }
    }

    /// A write of a source whose reads wait has left its queue.
    #[cold]
    pub(in crate::proactor) fn retry_share(&mut self, index: u32) {
        if !self.holds_share(index) {
            self.leave_share(index);
        }
    }

    /// Resumes the sources whose share has grown, at most as many as there are free buffers.
    pub(in crate::proactor) fn retry_shares(&mut self) {
        let free = self.memory.pool.free_chunks();
        let mut left = free;
        while left > 0
            && let Some(&Reverse((held, _, key))) = self.sched.waits.shares.waiting.peek()
        {
            if !fits(held, 2, free) {
                return;
            }
            self.sched.waits.shares.waiting.pop();
            let (index, generation) = (key as u32, (key >> 32) as u32);
            if let Some(state) = self.sources.table.find_key(index, generation)
                && state.has(HELD)
            {
                left -= 1;
                self.leave_share(index);
            }
        }
    }

    /// Copies the leases of a write that is about to wait in its queue, if the source's writes
    /// would hold more than its share with it.
    #[inline]
    pub(in crate::proactor) fn keep_to_share(&mut self, index: u32, slot: u32) {
        if self.memory.pool.is_scarce() {
            self.copy_beyond_share(index, slot);
        }
    }

    #[cold]
    #[inline(never)]
    fn copy_beyond_share(&mut self, index: u32, slot: u32) {
        let free = self.memory.pool.free_chunks();
        if self.ops[slot].buf.pool_leases() > 0
            && self.ops.count_leases(self.sources[index].writes.head, free) > free
        {
            let (leases, bytes) = self.ops[slot].buf.copy_leases();
            self.stats.counters.copied_leases += leases;
            self.stats.counters.copied_bytes += bytes;
        }
    }
}
