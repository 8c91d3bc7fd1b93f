//! Small leases in writes that wait: the driver copies them, so that they hold no swap buffer.
//!
//! A peer that does not read keeps the writes to it in their queue. A lease of a hundred bytes in
//! such a write would keep a whole swap buffer in use. So when a write has been in its queue for
//! some turns, the driver moves its small leases into memory of their own. It does so at once when
//! a read waits for a swap buffer.
//!
//! A write that the kernel has keeps its memory until the kernel answers. So the driver asks the
//! kernel for the write back, copies, and starts the write again.

use std::collections::VecDeque;
use std::num::NonZeroU32;

use crate::kernel::Kernel;
use crate::op::operation::InFlight;
use crate::proactor::Proactor;
use crate::proactor::parts::operations::Slots;
use crate::words::source::Ticket;

/// How many turns a write stays in its queue before its small leases are copied.
const PATIENCE: u64 = 32;
/// Entries of writes that have ended are dropped when there are more than this, and more than twice
/// as many entries as operations.
const MOST_GONE: usize = 64;

/// A write with a small lease.
#[derive(Debug)]
struct QueuedLease {
    slot: u32,
    generation: NonZeroU32,
    /// The turn in which the entry was made.
    turn: u64,
}

/// The writes that have small leases, the oldest first. Some may have ended.
#[derive(Debug, Default)]
pub(super) struct QueuedLeases {
    writes: VecDeque<QueuedLease>,
    /// Writes that the driver has asked the kernel to give back. The kernel may have sent a part of
    /// such a write, or all of it.
    asked: VecDeque<QueuedLease>,
}

impl QueuedLeases {
    pub(super) fn is_empty(&self) -> bool {
        self.writes.is_empty() && self.asked.is_empty()
    }

    /// Takes an entry that is due. An entry of `writes` is due after `patience` turns.
    fn next(&mut self, now: u64, patience: u64) -> Option<QueuedLease> {
        let is_due = |entry: &QueuedLease, patience| entry.turn + patience <= now;
        if self.asked.front().is_some_and(|entry| is_due(entry, PATIENCE)) {
            return self.asked.pop_front();
        }
        let due = self.writes.front().is_some_and(|entry| is_due(entry, patience));
        if due { self.writes.pop_front() } else { None }
    }
}

impl<K: Kernel> Proactor<K> {
    /// Adds a write to the list if it waits in its queue and has a small lease.
    pub(super) fn note_queued_lease(&mut self, ticket: Ticket) {
        let (slot, generation) = (ticket.index(), ticket.generation());
        let op = self.ops.table.find(slot, generation);
        if !op.is_some_and(|op| op.buf.has_small_lease()) {
            return;
        }
        let (queued, slots) = (&mut self.sched.waits.queued.writes, &mut self.ops.table);
        if queued.len() > MOST_GONE + 2 * slots.len() as usize {
            queued.retain(|entry| slots.find(entry.slot, entry.generation).is_some());
        }
        queued.push_back(QueuedLease { slot, generation, turn: self.stats.counters.turns });
        self.sched.waits.note();
    }

    /// Copies the small leases of writes that have waited for `PATIENCE` turns. If `pressing`,
    /// copies those of all writes, because reads wait for a swap buffer.
    #[cold]
    pub(super) fn copy_queued_leases(&mut self, pressing: bool) {
        let patience = if pressing { 0 } else { PATIENCE };
        let now = self.stats.counters.turns;
        while let Some(entry) = self.sched.waits.queued.next(now, patience) {
            let Some(op) = self.ops.table.find(entry.slot, entry.generation) else { continue };
            match op.in_flight {
                InFlight::No => self.copy_leases_of(entry.slot),
                InFlight::Started if op.buf.has_small_lease() => {
                    let key = self.sources[op.source].name(op.source).key();
                    self.kernel.stop(key, true);
                    self.kernel_ops.cancels_pending = true;
                    self.sched.waits.queued.asked.push_back(QueuedLease { turn: now, ..entry });
                }
                // The write ends with the kernel's answer, or its leases were copied before.
                _ => {}
            }
        }
    }

    /// The kernel has given back the writes of a source.
    #[cold]
    pub(super) fn copy_returned_leases(&mut self, index: u32) {
        let mut slots = Slots(self.sources[index].writes.head);
        while let Some(slot) = slots.next(&self.ops) {
            if self.ops[slot].in_flight == InFlight::No {
                self.copy_leases_of(slot);
            }
        }
    }

    fn copy_leases_of(&mut self, slot: u32) {
        let (leases, bytes) = self.ops[slot].buf.copy_small_leases();
        self.stats.counters.copied_leases += leases;
        self.stats.counters.copied_bytes += bytes;
    }
}
