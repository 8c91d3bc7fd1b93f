//! Ends of operations and sources: an operation leaves its queue with a completion, a source leaves
//! the table.

#![allow(unsafe_code)]
//! # Safety
//!
//! A read that ends early gives its buffer back with the length that the kernel has written.

use crate::completion::{Completion, Done};
use crate::kernel::{Calls, Kernel};
use crate::op::operation::{InFlight, Operation};
use crate::op::{Family, WaitsIn};
use crate::proactor::ops::race::OF_SOURCE;
use crate::proactor::ops::read::was_inline;
use crate::proactor::ops::timer::moved_ticket;
use crate::proactor::ops::write::is_nothing;
use crate::proactor::parts::operations::Slots;
use crate::proactor::parts::state::{
    ABORTING, CHANGED, CLOSING, CONNECTING, DUPLICATED, HELD, INLINE_READ, INLINE_TICKET, POLLED,
    POLLS, READ_BUSY, READ_PAUSED, READABLE, READS, REGISTERED, RESERVED, WAITING, WRITABLE,
    WRITE_BUSY, WRITE_PAUSED, WRITES,
};
use crate::proactor::{MOST_COPIED, Proactor};
use crate::words::error::{Error, ErrorKind};
use crate::words::source::{Source, SourceKind, Ticket};
use crate::words::table::{Entry, NIL};

impl<K: Kernel> Proactor<K> {
    /// Delivers a result of the read at the head of the queue. The result is final unless the read
    /// is multishot.
    #[inline(always)]
    pub(in crate::proactor) fn finish_read(
        &mut self,
        index: u32,
        slot: u32,
        result: Result<Done, Error>,
    ) {
        let op = &mut self.ops[slot];
        let (code, token, more, next) = (op.code, op.token, op.multishot, op.next);
        let mut ticket = Ticket::from_parts(slot, op.generation());
        if was_inline(op) {
            ticket = moved_ticket(index, op.count);
        }
        let state = &mut self.sources[index];
        let source = state.name(index);
        if !more {
            state.pop_read(&mut self.ops.table, next);
            self.ops.deadlines.remove(slot);
            self.ops.table.vacate(slot);
        }
        self.time.moved(source, READ_PAUSED);
        self.stats.continued += u64::from(more);
        self.outbox
            .batch
            .push(Completion::new(code, source, ticket, token, result).with_more(more));
    }

    /// Delivers the result of a write-side operation.
    pub(in crate::proactor) fn finish_write(
        &mut self,
        index: u32,
        slot: u32,
        result: Result<Done, Error>,
    ) {
        let op = &self.ops[slot];
        let (code, token) = (op.code, op.token);
        let ticket = self.ops.ticket(slot);
        let has_none = code.names_no_source() && op.count != OF_SOURCE;
        let source = if has_none { Source::NONE } else { self.sources[index].name(index) };
        self.remove(slot);
        self.time.moved(source, WRITE_PAUSED);
        self.outbox.push(code, source, ticket, token, result);
    }

    /// Takes an operation out of its queue and the deadline heap, and vacates its slot.
    #[inline]
    pub(in crate::proactor) fn remove(&mut self, slot: u32) {
        self.unlink(slot);
        self.ops.table.vacate(slot);
    }

    /// Takes an operation out of its queue and the deadline heap.
    pub(in crate::proactor) fn unlink(&mut self, slot: u32) {
        self.ops.deadlines.remove(slot);
        let op = &self.ops[slot];
        if op.source == NIL {
            return;
        }
        let (index, state) = (op.source, &mut self.sources[op.source]);
        match op.code.waits_in() {
            WaitsIn::Reads => state.remove_read(&mut self.ops.table, slot),
            WaitsIn::Writes if op.code.family() == Family::SendFile => {
                state.remove_write(&mut self.ops.table, slot);
                self.drop_fetch(index, slot);
            }
            WaitsIn::Writes => state.remove_write(&mut self.ops.table, slot),
            WaitsIn::Unordered | WaitsIn::Kernel => state.remove_poll(&mut self.ops.table, slot),
            WaitsIn::Nothing => {}
        }
    }

    /// Ends an operation with the error `kind` and the bytes that it has moved. If the kernel or a
    /// thread has the operation and it cannot be taken back, this only asks for its end.
    #[cold]
    #[inline(never)]
    pub(in crate::proactor) fn fail(&mut self, slot: u32, kind: ErrorKind) {
        let op = &self.ops[slot];
        if op.in_flight != InFlight::No {
            // The kernel answers every request to stop, so we ask it only once.
            let told = op.in_flight.ending().is_some();
            if told || !op.code.is_file() || !self.withdraw(slot) {
                return self.stop(slot, kind);
            }
        }
        if self.ops[slot].code.family() == Family::Connect && self.ops[slot].count != 0 {
            return self.fail_connect(slot, kind);
        }
        let (ticket, told_code) = (self.ops.ticket(slot), self.ops.told_code(&self.sources, slot));
        self.unlink(slot);
        let op = &mut self.ops[slot];
        let (index, code, token, moved) = (op.source, op.code, op.token, op.moved);
        let unsent = unsent(op);
        let mut buf = op.buf.take();
        let address = op.address.take();
        self.ops.table.vacate(slot);
        if code.fills() {
            // SAFETY: the kernel has written `moved` bytes from the start.
            unsafe { buf.set_filled(moved as usize) };
        }
        self.memory.keep_address(address);
        let source = if code.names_no_source() { Source::NONE } else { self.sources.name(index) };
        let error = Error::new(kind, moved, buf);
        self.outbox.push(told_code, source, ticket, token, Err(error));
        if code.queues() {
            self.unqueue(index, unsent);
        }
        match code.family() {
            Family::Connect => self.close_source(index),
            Family::Close => self.sources.close_failed(index, code),
            _ if code.tears() && moved > 0 && !ends_source(kind) => {
                // The stream has a hole now: the writes queued behind it must not go out.
                while self.sources[index].writes.head != NIL {
                    let head = self.sources[index].writes.head;
                    // The kernel has answered for all writes of the message, so none of them is in
                    // flight.
                    self.ops[head].in_flight = InFlight::No;
                    self.fail(head, ErrorKind::Torn);
                }
            }
            _ if code.is_file() => self.file_left(index),
            _ if !self.sched.waits.is_empty() => self.stop_waiting(index),
            _ => {}
        }
        if code.is_read() {
            self.note_reading(index);
        }
        // The writes behind a `send_file` had to wait while a thread read for it.
        let freed = code.family() == Family::SendFile && self.sources[index].can_write();
        let is_write = code.queues() || code.family() == Family::Close;
        if is_write && self.need_no_room(index) || freed {
            self.enqueue(index);
        }
    }

    /// Ends the wait for a lease: the read that waited may be gone, and the next read may need no
    /// lease.
    #[cold]
    pub(in crate::proactor) fn stop_waiting(&mut self, index: u32) {
        if index == NIL {
            return;
        }
        self.leave_share(index);
        let state = &mut self.sources[index];
        if !state.has(WAITING) {
            return;
        }
        state.flags &= !WAITING;
        self.note_reading(index);
        if self.sources[index].can_read() {
            self.enqueue(index);
        }
    }

    /// Subtracts `bytes` of queued writes, which were sent or never will be.
    #[inline]
    pub(in crate::proactor) fn unqueue(&mut self, index: u32, bytes: u32) {
        let state = &mut self.sources[index];
        // A write that closed its source may have wrapped the count.
        state.queued_bytes = state.queued_bytes.wrapping_sub(bytes);
        if state.has(HELD) {
            self.retry_share(index);
        }
        let state = &self.sources[index];
        if state.has(POLLS) {
            self.run_drains(index);
        }
    }

    /// The time of an operation has come: a timer fires, any other operation ends.
    pub(in crate::proactor) fn expire(&mut self, slot: u32) {
        let op = &self.ops[slot];
        match op.code.family() {
            Family::Connect if op.count == OF_SOURCE => self.expire_connect(slot),
            // This is the timer's own time, not its deadline.
            Family::Timer if op.count == 0 => self.fire(slot),
            _ if self.ends_in_last_try(slot) => {}
            _ => self.fail(slot, ErrorKind::Deadline),
        }
    }

    /// Tries an overdue operation once more if what it waits for may be there: events that had come
    /// are taken first, and its source may be in the ready queue, if the turn's bytes ran out. True
    /// if the operation has ended.
    fn ends_in_last_try(&mut self, slot: u32) -> bool {
        let generation = self.ops[slot].generation();
        self.take_all_events();
        let Some(op) = self.ops.table.find(slot, generation) else { return true };
        let (index, waits_in) = (op.source, op.code.waits_in());
        if index == NIL {
            return false;
        }
        let state = &mut self.sources[index];
        let mut left = self.config.source_budget.min(MOST_COPIED);
        match waits_in {
            WaitsIn::Reads => {
                state.end_pause(READ_PAUSED, READABLE);
                self.run_reads(index, &mut left);
            }
            // What has no order waits for writes, too: for a drain.
            WaitsIn::Writes | WaitsIn::Unordered => {
                if waits_in == WaitsIn::Unordered && state.has(READ_PAUSED | WRITE_PAUSED) {
                    state.end_pause(READ_PAUSED, 0);
                    state.note_polls();
                }
                state.end_pause(WRITE_PAUSED, WRITABLE);
                self.run_writes(index, &mut left);
                if self.sources[index].has(POLLED) {
                    self.run_polls(index);
                }
            }
            WaitsIn::Kernel | WaitsIn::Nothing => return false,
        }
        // What the events have told was tried here.
        self.sched.take_event(index);
        self.requeue(index);
        self.ops.table.find(slot, generation).is_none()
    }

    /// Takes the requests of other threads if the submission of this ticket may be among them:
    /// another thread may have told the program the ticket before the loop took the request.
    pub(in crate::proactor) fn take_submitted(&mut self, ticket: Ticket) {
        let kept = self.ops.table.find(ticket.index(), ticket.generation());
        if !self.inbox.serving && kept.is_some_and(|op| op.reserved) {
            self.take_queued();
        }
    }

    pub(in crate::proactor) fn cancel_ticket(&mut self, ticket: Ticket) -> bool {
        let slot = ticket.index();
        if slot & INLINE_TICKET != 0 {
            if self.sources.is_inline(ticket) {
                self.fail_inline_read(slot & !INLINE_TICKET, ErrorKind::Cancelled);
                return true;
            }
            let moved = self.sources.moved_read(&self.ops, ticket);
            if let Some(slot) = moved {
                self.fail(slot, ErrorKind::Cancelled);
            }
            return moved.is_some();
        }
        self.take_submitted(ticket);
        match self.ops.table.find(slot, ticket.generation()) {
            None => false,
            Some(op) if op.reserved => {
                // At the bound of waiting completions the loop takes no requests. It cancels the
                // operation when it takes the operation's request.
                let waits = self.outbox.batch.is_full() && !self.inbox.serving;
                op.count |= u32::from(waits);
                waits
            }
            Some(op) if op.in_flight != InFlight::No => self.cancel_started(ticket),
            Some(_) => {
                self.fail(slot, ErrorKind::Cancelled);
                true
            }
        }
    }

    pub(in crate::proactor) fn cancel_source(&mut self, source: Source) -> usize {
        if self.state(source).is_none_or(|state| state.has(RESERVED | CONNECTING)) {
            return 0;
        }
        let before = self.outbox.batch.len();
        let told = self.ops.count_ending(&self.sources, source.index());
        self.end_operations(source.index(), ErrorKind::Cancelled);
        let told = self.ops.count_ending(&self.sources, source.index()) - told;
        let count = self.outbox.batch.len() - before + told;
        if K::COMPLETES && self.kernel_ops.cancels_pending {
            self.reap();
        }
        count
    }

    /// Ends every operation of a source: first its connect, then each queue in its order.
    pub(in crate::proactor) fn end_operations(&mut self, index: u32, kind: ErrorKind) {
        let connects = self.sources[index].fd < 0;
        let failed = if connects { self.end_connect_of(index, kind) } else { None };
        self.end_queues(index, kind);
        if let Some(errno) = failed {
            self.sources[index].fail(errno);
        }
    }

    /// Ends the operations in the queues of a source, each queue in its order.
    pub(in crate::proactor) fn end_queues(&mut self, index: u32, kind: ErrorKind) {
        self.fail_reads(index, kind);
        // Operations that wait for a drain end before the writes: once the writes have ended no
        // bytes are queued, but nothing was drained.
        self.fail_polls(index, kind);
        if K::COMPLETES && self.sources[index].has(WRITE_BUSY) {
            return self.stop_queue(self.sources[index].writes.head, kind);
        }
        while self.sources[index].writes.head != NIL {
            self.fail(self.sources[index].writes.head, kind);
        }
    }

    /// Ends the operations of a source that have no order.
    pub(in crate::proactor) fn fail_polls(&mut self, index: u32, kind: ErrorKind) {
        let mut slots = Slots(self.sources[index].polls);
        // Work on a file that has begun stays.
        while let Some(slot) = slots.next(&self.ops) {
            // A timer outlives the failed connect of its source, because it waits only for a time.
            let is_timer = self.ops[slot].code.family() == Family::Timer;
            let stays = matches!(kind, ErrorKind::Os(_)) && is_timer;
            if !stays {
                self.fail(slot, kind);
            }
        }
    }

    /// Ends the reads of a source in their order.
    pub(in crate::proactor) fn fail_reads(&mut self, index: u32, kind: ErrorKind) {
        if self.sources[index].has(INLINE_READ) {
            self.fail_inline_read(index, kind);
        }
        if K::COMPLETES && self.sources[index].has(READ_BUSY) {
            return self.stop_queue(self.sources[index].reads.head, kind);
        }
        while self.sources[index].reads.head != NIL {
            self.fail(self.sources[index].reads.head, kind);
        }
    }

    pub(in crate::proactor) fn abort_source(&mut self, source: Source) -> bool {
        let Some(state) = self.state(source) else {
            return false;
        };
        // An id in reserve names no source yet.
        if state.has(CONNECTING | RESERVED) {
            return false;
        }
        self.end_source(source.index(), ErrorKind::Aborted);
        true
    }

    /// Ends a source and its operations.
    pub(in crate::proactor) fn end_source(&mut self, index: u32, kind: ErrorKind) {
        self.end_operations(index, kind);
        if self.is_in_kernel(index) {
            self.hide(index, ABORTING | CLOSING);
            if K::COMPLETES {
                self.reap();
            }
            return;
        }
        self.close_source(index);
    }

    /// Whether the kernel or a worker has an operation of the source. Then its descriptor must stay
    /// open.
    pub(in crate::proactor) fn is_in_kernel(&self, index: u32) -> bool {
        let state = &self.sources[index];
        state.has(READ_BUSY | WRITE_BUSY)
            || state.kind() == SourceKind::File && self.files.is_at_work(&self.sources, index)
    }

    /// Whether a source can be closed at once: it has no operations, here or in the kernel, and its
    /// close does not wait.
    #[inline]
    pub(in crate::proactor) fn is_done_with(&mut self, index: u32) -> bool {
        const LEFT: u32 = INLINE_READ | READS | WRITES | POLLS | READ_BUSY | WRITE_BUSY;
        let state = &self.sources[index];
        !state.has(LEFT) && state.polls == NIL && !self.closes_late(index)
    }

    /// Whether a thread has to close a source for its `Op::close`, because close(2) may wait: for
    /// the disk or the file system of a file, or for the peer of a socket that lingers.
    pub(in crate::proactor) fn closes_late(&mut self, index: u32) -> bool {
        let state = &self.sources[index];
        let (fd, kind) = (state.fd, state.kind());
        K::FILES
            && (kind == SourceKind::File
                || self.kernel.calls_mut().may_wait_to_close(fd, kind, false))
    }

    /// Closes the descriptor of a source without operations and vacates its slot.
    pub(in crate::proactor) fn close_source(&mut self, index: u32) {
        self.sources.observe_forks();
        let state = &self.sources[index];
        let (fd, flags) = (state.fd, state.flags);
        if fd >= 0 {
            let waits = self.may_wait(index);
            // Closing the last descriptor ends the registration. A duplicate, even in another
            // process, keeps it alive, and so does a thread that closes the descriptor.
            let kept = waits || flags & DUPLICATED != 0;
            if flags & REGISTERED != 0 && kept {
                let key = self.sources[index].name(index).key();
                self.kernel.deregister(fd, key);
            }
            self.close_descriptor(index, waits);
        }
        self.vacate_source(index);
    }

    /// Whether close(2) of a descriptor may wait. A socket that lingers does so no more, unless
    /// other code or another process has it, too: an abort waits for no peer.
    fn may_wait(&mut self, index: u32) -> bool {
        let own = !self.sources.shared.contains(&index) && !self.sources.is_inherited(index);
        let state = &self.sources[index];
        self.kernel.calls_mut().may_wait_to_close(state.fd, state.kind(), own)
    }

    fn close_descriptor(&mut self, index: u32, waits: bool) {
        let state = &mut self.sources[index];
        let (kind, flags) = (state.kind(), state.flags);
        let fd = std::mem::replace(&mut state.fd, -1);
        if flags & (CHANGED | DUPLICATED) == CHANGED | DUPLICATED {
            self.kernel.calls_mut().restore(fd);
        }
        if waits {
            self.kernel.release(fd, kind).close_later(None);
        } else {
            self.kernel.close(fd);
        }
    }

    pub(in crate::proactor) fn vacate_source(&mut self, index: u32) {
        self.stats.hidden -= u32::from(self.sources[index].has(RESERVED | ABORTING));
        self.time.idle.leave(index);
        self.leave_share(index);
        self.sched.forget(index);
        self.sources.vacate(index);
    }

    pub(in crate::proactor) fn close_all(&mut self) {
        if self.sources.closed {
            return;
        }
        self.sources.closed = true;
        self.inbox.remote.close();
        self.end_attempts();
        while let Some(request) = self.inbox.remote.take() {
            self.refuse_closed(request);
        }
        self.for_each_source(|this, index| this.end_operations(index, ErrorKind::Closed));
        if self.kernel_ops.busy > 0 {
            self.drain();
        }
        self.for_each_source(|this, index| {
            if this.is_in_kernel(index) {
                this.hide(index, ABORTING | CLOSING);
            } else {
                this.close_source(index);
            }
        });
        let mut timers: Vec<u32> = self.ops.table.occupied().collect();
        timers.sort_unstable_by_key(|&slot| self.ops[slot].reserved);
        for slot in timers {
            if self.ops[slot].reserved {
                self.ops.table.vacate(slot);
            } else {
                self.fail(slot, ErrorKind::Closed);
            }
        }
        self.sched.clear();
        self.time.paused.clear();
    }

    /// Calls `act` for each source that is still there when its turn comes. The end of one source
    /// may vacate the slot of another one: of a connect, or of an aborted file whose bytes a socket
    /// sends.
    fn for_each_source(&mut self, mut act: impl FnMut(&mut Self, u32)) {
        let occupied = self.sources.table.occupied();
        let names: Vec<Source> = occupied.map(|index| self.sources.name(index)).collect();
        for name in names {
            if self.sources.table.find(name.index(), name.generation()).is_some() {
                act(self, name.index());
            }
        }
    }

    /// Closes the sources that are left when the driver is dropped.
    pub(in crate::proactor) fn close_descriptors(&mut self) {
        self.sources.observe_forks();
        let sources: Vec<u32> = self.sources.table.occupied().collect();
        for index in sources {
            if self.sources[index].kind() == SourceKind::File
                && self.files.is_at_work(&self.sources, index)
            {
                // A thread still uses the descriptor, so its number must not be given to another
                // file.
                continue;
            }
            if self.sources[index].fd >= 0 {
                let waits = self.may_wait(index);
                self.close_descriptor(index, waits);
            }
        }
    }

    /// Sets `WRITABLE` if a shutdown, a close or an empty write heads the writes: a full socket
    /// stops none. True if so.
    pub(in crate::proactor) fn need_no_room(&mut self, index: u32) -> bool {
        let state = &mut self.sources[index];
        let head = state.writes.head;
        let needs_none = head != NIL
            && match self.ops[head].code.family() {
                Family::Close => true,
                Family::Write => is_nothing(state, &self.ops[head]),
                _ => false,
            };
        if needs_none {
            state.flags |= WRITABLE;
        }
        needs_none
    }
}

/// Whether an operation that ends this way ends because its source does.
fn ends_source(kind: ErrorKind) -> bool {
    use ErrorKind::{Aborted, Closed, Forked, Overflow};
    matches!(kind, Aborted | Closed | Forked | Overflow)
}

/// The bytes of a write that were not sent.
fn unsent(op: &Operation) -> u32 {
    match op.code.family() {
        Family::SendFile => op.count - op.moved,
        _ => (op.buf.len() as u32).saturating_sub(op.moved),
    }
}
