//! Waits of a direction that is not ready: for the selector, for a time, for a lease.

use super::resource_waits::{ResourceWaits, WaitQueue};
use crate::kernel::Kernel;
use crate::proactor::Proactor;
use crate::proactor::parts::state::{
    READABLE, REGISTERED, UNSETTLED, WAITING, WRITABLE, WRITES_REGISTERED,
};
use crate::words::error::ErrorKind;
use crate::words::source::{Source, SourceKind};
use crate::words::table::NIL;

impl<K: Kernel> Proactor<K> {
    /// Reads are not worth trying until the selector says so.
    pub(in crate::proactor) fn block_read(&mut self, index: u32) {
        self.sources[index].flags &= !(READABLE | UNSETTLED);
        if let Err(errno) = self.register(index, false) {
            self.fail_reads(index, ErrorKind::Os(errno));
            self.sources[index].flags |= READABLE;
        }
    }

    /// Writes are not worth trying until the selector says so.
    pub(in crate::proactor) fn block_write(&mut self, index: u32) {
        self.sources[index].flags &= !WRITABLE;
        if let Err(errno) = self.register(index, true) {
            let name = self.sources[index].name(index);
            while let Some(state) = self.state(name)
                && state.writes.head != NIL
            {
                // The kernel has none of these writes, and none was told to end: it gets writes
                // only of sources that are registered.
                let head = state.writes.head;
                self.fail(head, ErrorKind::Os(errno));
            }
            if let Some(state) = self.state(name) {
                state.flags |= WRITABLE;
            }
        }
    }

    /// Tells the selector to watch the source, for writes too if `writes`.
    ///
    /// On Linux a TCP socket reports room only after a write found none, so one registration serves
    /// both directions. kqueue reports room at each acknowledgement (`sowwakeup`); Unix and
    /// datagram sockets do each time the peer reads (`unix_write_space`, `sock_def_write_space` in
    /// Linux). Those sockets are registered for writes only while a write waits.
    #[inline]
    pub(in crate::proactor) fn register(&mut self, index: u32, writes: bool) -> Result<(), i32> {
        let state = &mut self.sources[index];
        let writes = writes || K::QUIET_WRITES && state.kind() == SourceKind::Stream;
        let known = if writes { REGISTERED | WRITES_REGISTERED } else { REGISTERED };
        if state.flags & known != known {
            self.kernel.register(state.fd, state.name(index).key(), writes)?;
            state.flags |= known;
        }
        Ok(())
    }

    /// Pauses a direction that no event will resume: the kernel has no memory or no descriptor, the
    /// backlog of a Unix listener is full, errors come one after the other, or a condition holds
    /// that no try clears. Each further pause of the direction is longer.
    #[cold]
    pub(in crate::proactor) fn pause(&mut self, index: u32, which: u32) {
        let state = &mut self.sources[index];
        if state.has(which) {
            return;
        }
        state.flags |= which;
        let name = state.name(index);
        self.time.pause(name, which, self.kernel.now_ns());
    }

    /// A signal has interrupted a call for a direction of a source. The call is made again: at
    /// once, or after a pause if there are very many signals.
    #[cold]
    pub(in crate::proactor) fn interrupted(&mut self, index: u32, which: u32) {
        if !self.time.interrupted(self.kernel.now_ns()) {
            self.pause(index, which);
        }
    }

    /// A read of the source waits for a swap buffer.
    #[cold]
    pub(in crate::proactor) fn wait_for_lease(&mut self, index: u32) {
        self.stats.counters.lease_waits += 1;
        self.wait_in(index, |waits| &mut waits.leases);
    }

    /// A read that the kernel is to do waits until the kernel holds a swap buffer.
    #[cold]
    pub(in crate::proactor) fn wait_for_buffer(&mut self, index: u32) {
        self.stats.counters.lease_waits += 1;
        self.wait_in(index, |waits| &mut waits.buffers);
    }

    /// An accept of the source waits for a slot in the table.
    #[cold]
    pub(in crate::proactor) fn wait_for_slot(&mut self, index: u32) {
        self.stats.counters.table_waits += 1;
        self.wait_in(index, |waits| &mut waits.source_slots);
    }

    fn wait_in(&mut self, index: u32, queue: impl Fn(&mut ResourceWaits) -> &mut WaitQueue) {
        self.sources[index].flags |= WAITING;
        self.note_reading(index);
        let name = self.sources[index].name(index);
        let (count, sources) = (self.sources.table.len(), &mut self.sources.table);
        self.sched.waits.note();
        queue(&mut self.sched.waits).push(name, count, |name| {
            let state = sources.find(name.index(), name.generation());
            state.is_some_and(|state| state.has(WAITING))
        });
    }

    /// Drops the names at the heads of the queues whose sources wait no more.
    pub(in crate::proactor) fn drop_gone_waits(&mut self) {
        let (waits, sources) = (&mut self.sched.waits, &mut self.sources.table);
        for queue in [&mut waits.leases, &mut waits.buffers, &mut waits.source_slots] {
            queue.drop_gone(|name| {
                let state = sources.find(name.index(), name.generation());
                state.is_some_and(|state| state.has(WAITING))
            });
        }
    }

    /// Resumes waiting sources, as many as there are resources for.
    #[cold]
    #[inline(never)]
    pub(in crate::proactor) fn retry_waiting(&mut self) {
        self.drop_gone_waits();
        let ahead = self.sched.ready.len() + self.sched.bulk.len();
        if !self.sched.waits.source_slots.is_empty() {
            let vacant = self.sources.table.limit().saturating_sub(self.sources.table.len());
            // Accepted sockets in the batch need slots, too.
            let room = (vacant as usize).saturating_sub(self.outbox.accepted);
            self.resume_waiting(room, ahead, |waits| &mut waits.source_slots);
        }
        if !self.sched.waits.buffers.is_empty() {
            let left = self.buffers_of_kernel_or_loop().saturating_sub(self.sched.waits.begun);
            self.resume_waiting(left, ahead, |waits| &mut waits.buffers);
        }
        let held = self.sched.waits.shares.len() > 0;
        if !self.sched.waits.leases.is_empty() || held {
            let mut left = self.memory.pool.available(held);
            if left == 0 && !self.sched.waits.leases.is_empty() {
                self.kernel.recall_buffer(&mut self.memory.pool);
                left = self.memory.pool.available(held);
            }
            self.resume_waiting(left, ahead, |waits| &mut waits.leases);
            self.retry_shares();
        }
        self.sched.waits.settle();
    }

    /// Resumes waiting sources between two turns.
    #[cold]
    pub(in crate::proactor) fn retry_between_turns(&mut self) {
        self.retry_waiting();
        if K::COMPLETES && self.kernel_ops.cancels_pending {
            // We ask the kernel for the writes back now, because the embedding loop may sleep next.
            self.reap();
        }
    }

    /// The number of swap buffers that the kernel has for reads. If it has none and can get none,
    /// the number that the loop has: then the loop itself does the reads.
    pub(in crate::proactor) fn buffers_of_kernel_or_loop(&mut self) -> usize {
        match self.kernel.buffers(&mut self.memory.pool) {
            0 => self.memory.pool.available(false),
            count => count,
        }
    }

    fn resume_waiting(
        &mut self,
        left: usize,
        ahead: usize,
        queue: impl Fn(&mut ResourceWaits) -> &mut WaitQueue,
    ) {
        let mut count = queue(&mut self.sched.waits).quota(left, ahead);
        while count > 0 {
            let Some(source) = queue(&mut self.sched.waits).next() else { return };
            count -= usize::from(self.resume(source));
        }
    }

    /// Resumes a waiting source. False if it does not wait any more.
    fn resume(&mut self, source: Source) -> bool {
        let waits = self.state(source).filter(|state| state.has(WAITING));
        let Some(state) = waits else { return false };
        state.flags &= !WAITING;
        let may_read = state.can_read();
        self.note_reading(source.index());
        if may_read {
            self.enqueue(source.index());
        }
        true
    }
}
