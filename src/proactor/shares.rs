//! Shares of the swap buffers: how many of them the queued writes of one source may hold.
//!
//! A peer that does not read keeps the writes to it in their queue, and each lease in such a write
//! keeps a swap buffer in use. So the writes of one source hold at most as many swap buffers as
//! are free. At this bound the reads of the source wait: an echo to a peer that sends and never
//! reads stops there. A write that would exceed the bound, because its bytes came from another
//! source or from the program, is copied out of the pool when it is queued. The bound is the
//! dynamic threshold of shared-memory switches (Choudhury and Hahne, 1998): of `n` peers that never
//! read, each holds at most one part in `n + 1` of the pool, and one such part stays free.
//!
//! For a read each lease counts as a whole swap buffer, even a copied one: otherwise the copy would
//! make room for the next read of the same source, and so on without end. Only queued writes count,
//! because they end without any further read. So no read waits for a lease that the program gives
//! back only after that read. No read waits while at most a quarter of the pool is in use (unless
//! the pool is small): small messages may have more leases than the pool has buffers.

use std::collections::{BTreeSet, HashMap};

use crate::kernel::Kernel;
use crate::memory::buf::Buf;
use crate::proactor::Proactor;
use crate::proactor::parts::state::{HELD, WRITES};

/// The sources whose reads wait because of their writes.
#[derive(Debug, Default)]
pub(in crate::proactor) struct Shares {
    /// By source: the number of leases of its writes (0: to be counted again), a number that grows
    /// with each arrival, and the key of the source.
    waiting: BTreeSet<(usize, u64, u64)>,
    /// The first two of these, by key.
    noted: HashMap<u64, (usize, u64)>,
    arrivals: u64,
}

impl Shares {
    /// The number of sources that wait.
    pub(in crate::proactor) fn len(&self) -> usize {
        self.noted.len()
    }

    /// The source whose writes held the fewest leases: how many, and its key.
    fn first(&self) -> Option<(usize, u64)> {
        self.waiting.first().map(|&(held, _, key)| (held, key))
    }

    /// A source waits, and its writes hold so many leases now.
    fn note(&mut self, key: u64, held: usize) {
        let arrival = match self.noted.get(&key) {
            Some(&(before, _)) if before == held => return,
            Some(&(before, arrival)) => {
                self.waiting.remove(&(before, arrival, key));
                arrival
            }
            None => {
                self.arrivals += 1;
                self.arrivals
            }
        };
        self.noted.insert(key, (held, arrival));
        self.waiting.insert((held, arrival, key));
    }

    fn remove(&mut self, key: u64) {
        if let Some((held, arrival)) = self.noted.remove(&key) {
            self.waiting.remove(&(held, arrival, key));
        }
    }
}

/// Whether writes with `held` leases may hold `more` besides.
fn fits(held: usize, more: usize, free: usize) -> bool {
    held == 0 || held.saturating_add(more) <= free
}

impl<K: Kernel> Proactor<K> {
    /// Whether a read of the source has to wait, because the source's queued writes hold its share.
    #[inline(always)]
    pub(in crate::proactor) fn holds_share(&mut self, index: u32) -> bool {
        self.sources[index].has(WRITES)
            && !self.memory.pool.is_plentiful()
            && self.writes_hold_share(index)
    }

    #[cold]
    #[inline(never)]
    fn writes_hold_share(&mut self, index: u32) -> bool {
        let free = self.memory.pool.free_chunks();
        let held = self.ops.count_leases(self.sources[index].writes.head, free, Buf::leases);
        // The read takes a free buffer, and its bytes may join the writes.
        !fits(held, 2, free)
    }

    /// The reads of a source that holds its share begin to wait.
    #[cold]
    pub(in crate::proactor) fn wait_for_share(&mut self, index: u32) {
        self.stats.counters.share_waits += 1;
        self.sources[index].flags |= HELD;
        self.note_share(index);
        self.note_reading(index);
        self.sched.waits.note();
    }

    /// Counts what the writes of a source that waits hold.
    fn note_share(&mut self, index: u32) -> usize {
        let state = &self.sources[index];
        let held = self.ops.count_leases(state.writes.head, usize::MAX - 1, Buf::leases);
        self.sched.waits.shares.note(state.name(index).key(), held);
        held
    }

    /// The reads of a source need not wait for its writes any more: they are tried again.
    #[cold]
    pub(in crate::proactor) fn leave_share(&mut self, index: u32) {
        let state = &mut self.sources[index];
        if !state.has(HELD) {
            return;
        }
        state.flags &= !HELD;
        self.sched.waits.shares.remove(state.name(index).key());
        self.note_reading(index);
        if self.sources[index].can_read() {
            self.enqueue(index);
        }
    }

    /// Bytes have left the write queue of a source whose reads wait. `retry_shares` counts the
    /// leases again, once for all the writes of a turn.
    #[cold]
    pub(in crate::proactor) fn retry_share(&mut self, index: u32) {
        if !self.sources[index].has(WRITES) {
            return self.leave_share(index);
        }
        let key = self.sources[index].name(index).key();
        self.sched.waits.shares.note(key, 0);
    }

    /// Resumes the sources whose writes hold nothing any more, and those whose share has grown: of
    /// these at most as many as there are free buffers.
    pub(in crate::proactor) fn retry_shares(&mut self) {
        let free = self.memory.pool.free_chunks();
        let is_plentiful = self.memory.pool.is_plentiful();
        let mut left = free;
        while let Some((noted, key)) = self.sched.waits.shares.first()
            && (noted == 0 || left > 0 && (is_plentiful || fits(noted, 2, free)))
        {
            let index = key as u32;
            let held = self.note_share(index);
            // Without writes, the read waits for a buffer as others do, if none is free.
            if held == 0 || left > 0 && (is_plentiful || fits(held, 2, free)) {
                left = left.saturating_sub(1);
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
        let head = self.sources[index].writes.head;
        if self.ops[slot].buf.pool_leases() > 0
            && self.ops.count_leases(head, free, Buf::pool_leases) > free
        {
            let (leases, bytes) = self.ops[slot].buf.copy_leases();
            self.stats.counters.copied_leases += leases;
            self.stats.counters.copied_bytes += bytes;
        }
    }
}
