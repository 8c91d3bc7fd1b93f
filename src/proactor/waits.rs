//! The waits of a direction that is not ready: for the selector, a time, a lease; and polls.

use super::resource_waits::WaitQueue;
use super::*;
use crate::error::ErrorKind;
use crate::source::SourceKind;
use crate::swap::Lent;

/// How long a direction pauses when the kernel's memory has run out.
pub(super) const MEMORY_PAUSE_NS: u64 = 1_000_000;

/// Memory from the pool for one read.
pub(super) struct Memory {
    pub(super) start: *mut u8,
    pub(super) room: u32,
    /// The chunk, if only this read uses it.
    pub(super) own: Option<Lent>,
}

impl<K: Kernel> Proactor<K> {
    /// Answers the polls of a source whose conditions hold.
    pub(super) fn run_polls(&mut self, index: u32) {
        self.sources[index].flags &= !POLLED;
        if self.sources[index].fd < 0 {
            // It connects: they begin when it has.
            return;
        }
        let mut slot = self.sources[index].polls;
        let mut pending = false;
        while slot != NIL {
            let next = self.slots[slot].next;
            // Drains stand in the same list.
            if self.slots[slot].code == OpCode::Poll {
                let interest = Ready::from_bits(self.slots[slot].count as u16);
                match self.kernel.poll(self.sources[index].fd, interest) {
                    Ok(ready) if ready.is_empty() => pending = true,
                    Ok(ready) => self.finish_poll(index, slot, Ok(Done::Ready(ready))),
                    Err(errno) => self.fail(slot, ErrorKind::Os(errno)),
                }
            }
            slot = next;
        }
        if pending && let Err(errno) = self.register(index, true) {
            let mut slot = self.sources[index].polls;
            while slot != NIL {
                let next = self.slots[slot].next;
                if self.slots[slot].code == OpCode::Poll {
                    self.fail(slot, ErrorKind::Os(errno));
                }
                slot = next;
            }
        }
    }

    /// Reads are not worth trying until the selector says so.
    pub(super) fn block_read(&mut self, index: u32) {
        self.sources[index].flags &= !(READABLE | UNSETTLED);
        if let Err(errno) = self.register(index, false) {
            self.fail_reads(index, ErrorKind::Os(errno));
            self.sources[index].flags |= READABLE;
        }
    }

    /// Writes are not worth trying until the selector says so.
    pub(super) fn block_write(&mut self, index: u32) {
        self.sources[index].flags &= !WRITABLE;
        if let Err(errno) = self.register(index, true) {
            let name = self.sources[index].name(index);
            while let Some(state) = self.state(name)
                && state.writes.head != NIL
            {
                let head = state.writes.head;
                self.fail(head, ErrorKind::Os(errno));
            }
            if let Some(state) = self.state(name) {
                state.flags |= WRITABLE;
            }
        }
    }

    /// Lets the selector know the source, and that `writes` wait.
    ///
    /// On Linux a TCP socket reports room only after a write found none, so one registration serves
    /// both directions. kqueue reports room at each acknowledgement (`sowwakeup`); Unix and
    /// datagram sockets do each time the peer reads (`unix_write_space`, `sock_def_write_space` in
    /// Linux). Those sockets are registered for writes only while a write waits.
    #[inline]
    pub(super) fn register(&mut self, index: u32, writes: bool) -> Result<(), i32> {
        let state = &mut self.sources[index];
        let writes = writes || K::QUIET_WRITES && state.kind() == SourceKind::Stream;
        let known = if writes { REGISTERED | WRITES_REGISTERED } else { REGISTERED };
        if state.flags & known != known {
            let again = state.has(REGISTERED);
            self.kernel.register(state.fd, state.name(index).key(), writes, again)?;
            state.flags |= known;
        }
        Ok(())
    }

    /// Tries a direction again when `span_ns` has passed.
    pub(super) fn pause(&mut self, index: u32, which: u32, span_ns: u64) {
        let state = &mut self.sources[index];
        if state.has(which) {
            return;
        }
        state.flags |= which;
        let name = state.name(index);
        let until = self.kernel.now_ns().saturating_add(span_ns);
        self.paused.push((until, name, which));
    }

    /// A read of the source waits for a swap buffer.
    #[cold]
    pub(super) fn wait_for_lease(&mut self, index: u32) {
        self.counts.lease_waits += 1;
        self.wait_in(index, |waits| &mut waits.leases);
    }

    /// A read of the source that the kernel will do waits until the kernel holds a swap buffer.
    #[cold]
    pub(super) fn wait_for_buffer(&mut self, index: u32) {
        self.counts.lease_waits += 1;
        self.wait_in(index, |waits| &mut waits.buffers);
    }

    /// An accept of the source waits for room in the table.
    #[cold]
    pub(super) fn wait_for_place(&mut self, index: u32) {
        self.counts.table_waits += 1;
        self.wait_in(index, |waits| &mut waits.places);
    }

    fn wait_in(&mut self, index: u32, queue: impl Fn(&mut ResourceWaits) -> &mut WaitQueue) {
        self.sources[index].flags |= WAITING;
        self.note_pause(index);
        let name = self.sources[index].name(index);
        let (count, sources) = (self.sources.len(), &mut self.sources);
        self.waits.note();
        queue(&mut self.waits).push(name, count, |name| {
            let state = sources.find(name.index(), name.generation());
            state.is_some_and(|state| state.has(WAITING))
        });
    }

    /// Resumes waiting sources, as many as there are resources for.
    #[cold]
    #[inline(never)]
    pub(super) fn retry_waiting(&mut self) {
        if !self.waits.queued.is_empty() {
            self.copy_queued_leases(self.waits.reads_wait());
        }
        let ahead = self.ready.len() + self.bulk.len();
        if !self.waits.places.is_empty() {
            let vacant = self.sources.limit().saturating_sub(self.sources.len());
            // Accepted sockets in the batch need places, too.
            let room = (vacant as usize).saturating_sub(self.accepted);
            self.resume_waiting(room, ahead, |waits| &mut waits.places);
        }
        if !self.waits.buffers.is_empty() {
            let left = self.buffers_of_kernel_or_loop().saturating_sub(self.waits.begun);
            self.resume_waiting(left, ahead, |waits| &mut waits.buffers);
        }
        if !self.waits.leases.is_empty() || !self.waits.shares.is_idle() {
            let left = self.pool.available(!self.waits.shares.is_idle());
            self.resume_waiting(left, ahead, |waits| &mut waits.leases);
            self.retry_shares();
        }
        self.waits.settle();
    }

    /// Retries what waits while the loop does not run.
    #[cold]
    pub(super) fn retry_between_turns(&mut self) {
        self.retry_waiting();
        if K::COMPLETES && self.stops {
            // The kernel gives a write back only if it is told before the foreign loop sleeps.
            self.collect();
        }
    }

    /// The number of swap buffers for reads that the kernel would do. If it holds none, and can get
    /// none, those of the loop, which then does such reads.
    pub(super) fn buffers_of_kernel_or_loop(&mut self) -> usize {
        match self.kernel.buffers(&mut self.pool) {
            0 => self.pool.available(false),
            count => count,
        }
    }

    fn resume_waiting(
        &mut self,
        left: usize,
        ahead: usize,
        queue: impl Fn(&mut ResourceWaits) -> &mut WaitQueue,
    ) {
        let mut count = queue(&mut self.waits).quota(left, ahead);
        while count > 0 {
            let Some(source) = queue(&mut self.waits).next() else { return };
            count -= usize::from(self.resume(source));
        }
    }

    /// Retries a waiting source; false if it does not wait any more.
    fn resume(&mut self, source: Source) -> bool {
        let waits = self.state(source).filter(|state| state.has(WAITING));
        let Some(state) = waits else { return false };
        state.flags &= !WAITING;
        let may_read = state.can_read();
        self.note_read(source.index());
        if may_read {
            self.enqueue(source.index());
        }
        true
    }

    /// Credits returned swap buffers to the shares of their sources.
    pub(super) fn note_owners(&mut self) {
        while let Some(key) = self.pool.take_owner() {
            if self.waits.shares.came_back(key) {
                self.share_goes_on(key);
            }
        }
    }

    fn share_goes_on(&mut self, key: u64) {
        if let Some(state) = self.sources.find_key(key as u32, (key >> 32) as u32) {
            let source = state.name(key as u32);
            self.resume(source);
        }
    }

    /// Resumes multishot reads below their share, as many as there are free buffers.
    fn retry_shares(&mut self) {
        self.note_owners();
        let (free, scarce) = (self.pool.free_chunks(), self.pool.is_scarce());
        for _ in 0..free {
            let Some(key) = self.waits.shares.next(free, scarce) else { return };
            self.share_goes_on(key);
        }
    }

    /// Memory for a read of the source: the current chunk, or while the pool is scarce a chunk of
    /// its own for a multishot read. `None` if no chunk is free, or the source holds its share:
    /// then the source waits.
    #[inline]
    pub(super) fn memory(&mut self, index: u32, multishot: bool) -> Option<Memory> {
        if multishot && self.pool.is_scarce() {
            return self.own_memory(index);
        }
        match self.pool.space() {
            Some((start, room)) => Some(Memory { start, room, own: None }),
            None => {
                self.wait_for_lease(index);
                None
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn own_memory(&mut self, index: u32) -> Option<Memory> {
        let key = self.sources[index].name(index).key();
        let free = self.pool.free_chunks();
        self.note_owners();
        if !self.waits.shares.may_take(key, free) {
            self.counts.share_waits += 1;
            self.sources[index].flags |= WAITING;
            self.note_pause(index);
            self.waits.shares.wait(key);
            self.waits.note();
            return None;
        }
        let Some(mut own) = self.pool.lend_to(key) else {
            self.wait_for_lease(index);
            return None;
        };
        let (start, room) = own.room();
        Some(Memory { start, room, own: Some(own) })
    }

    /// Returns unused memory.
    #[inline]
    pub(super) fn give_back(&mut self, memory: Memory) {
        if let Some(own) = memory.own {
            self.pool.take_back(own);
        }
    }

    /// Memory for an address.
    pub(super) fn address(&mut self) -> Address {
        self.addresses.pop().unwrap_or_else(Address::unspecified)
    }

    pub(super) fn keep_address(&mut self, address: Option<Address>) {
        const KEPT: usize = 64;
        if let Some(mut address) = address
            && self.addresses.len() < KEPT
        {
            address.take_descriptors();
            self.addresses.push(address);
        }
    }
}
