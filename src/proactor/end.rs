//! Ends: how operations leave their queues, and sources the table.

#![allow(unsafe_code)]
//! # Safety
//!
//! A read that ends early gives its buffer back with the length that the kernel has written.

use super::writes::is_nothing;
use super::*;
use crate::buf::Buf;
use crate::error::{Error, ErrorKind};
use crate::slots::{Entry, InFlight};
use crate::source::SourceKind;

impl<K: Kernel> Proactor<K> {
    /// Delivers the result of the head of the reads: the final one, or with `more` if the operation
    /// goes on.
    #[inline(always)]
    pub(super) fn finish_read(&mut self, index: u32, slot: u32, result: Result<Done, Error>) {
        let op = &mut self.slots[slot];
        let (code, token, more, next) = (op.code, op.token, op.multishot, op.next);
        let mut ticket = Ticket::from_parts(slot, op.generation());
        if code == OpCode::Read && op.count != 0 {
            ticket = moved_ticket(index, op.count);
        }
        let state = &mut self.sources[index];
        let source = state.name(index);
        if !more {
            state.pop_read(&mut self.slots, next);
            self.deadlines.remove(slot);
            self.slots.vacate(slot);
        }
        self.counts.went_on += u64::from(more);
        self.batch.push(Completion::new(code, source, ticket, token, result).with_more(more));
    }

    /// Delivers the result of a write-side operation.
    pub(super) fn finish_write(&mut self, index: u32, slot: u32, result: Result<Done, Error>) {
        let op = &self.slots[slot];
        let (code, token) = (op.code, op.token);
        let ticket = self.ticket(slot);
        let source = match code {
            OpCode::Connect if op.count != OF_SOURCE => Source::NONE,
            _ => self.sources[index].name(index),
        };
        self.unlink(slot);
        self.slots.vacate(slot);
        self.batch.push(Completion::new(code, source, ticket, token, result));
    }

    /// Delivers the result of a poll.
    pub(super) fn finish_poll(&mut self, index: u32, slot: u32, result: Result<Done, Error>) {
        self.finish_write(index, slot, result);
    }

    /// Takes an operation out of its queue and the deadline heap.
    pub(super) fn unlink(&mut self, slot: u32) {
        self.deadlines.remove(slot);
        let op = &self.slots[slot];
        if op.source == NIL {
            return;
        }
        let state = &mut self.sources[op.source];
        match op.code {
            OpCode::Poll | OpCode::WaitDrained | OpCode::Timer => {
                state.remove_poll(&mut self.slots, slot);
            }
            code if code.is_file() => state.remove_poll(&mut self.slots, slot),
            OpCode::Nop => {}
            OpCode::SendFile => {
                let index = op.source;
                state.remove_write(&mut self.slots, slot);
                self.drop_fetch(index, slot);
            }
            code if code.is_read() => state.remove_read(&mut self.slots, slot),
            _ => state.remove_write(&mut self.slots, slot),
        }
    }

    /// Ends an operation that does not end well, with the bytes that it has moved.
    #[cold]
    #[inline(never)]
    pub(super) fn fail(&mut self, slot: u32, kind: ErrorKind) {
        let op = &self.slots[slot];
        if op.in_flight != InFlight::No {
            // The kernel is asked once: it answers each time.
            let told = op.in_flight.ending().is_some();
            if told || !op.code.is_file() || !self.withdraw(slot) {
                return self.stop(slot, kind);
            }
        }
        if self.slots[slot].code == OpCode::Connect && self.slots[slot].count != 0 {
            return self.fail_connect(slot, kind);
        }
        let ticket = self.ticket(slot);
        self.unlink(slot);
        let op = &mut self.slots[slot];
        let (index, code, token, moved) = (op.source, op.code, op.token, op.moved);
        let count = op.count;
        let mut buf = op.buf.take();
        let address = op.address.take();
        self.slots.vacate(slot);
        if matches!(code, OpCode::ReadInto | OpCode::ReadExact | OpCode::RecvFrom | OpCode::ReadAt)
        {
            // SAFETY: the kernel has written `moved` bytes from the start.
            unsafe { buf.set_filled(moved as usize) };
        }
        self.keep_address(address);
        let source = match code {
            OpCode::Connect | OpCode::Nop => Source::NONE,
            _ if index == NIL => Source::NONE,
            _ => self.sources[index].name(index),
        };
        let writes = matches!(
            code,
            OpCode::Write | OpCode::SendTo | OpCode::SendDescriptors | OpCode::SendFile
        );
        let unsent = match code {
            OpCode::SendFile => count - moved,
            _ if writes => buf.len() as u32 - moved,
            _ => 0,
        };
        let error = Error::new(kind, moved, buf);
        self.batch.push(Completion::new(code, source, ticket, token, Err(error)));
        if writes {
            self.unqueue(index, unsent);
        }
        match code {
            OpCode::Connect => {
                self.close_source(index);
            }
            OpCode::Close => self.sources[index].flags &= !CLOSING,
            OpCode::Write | OpCode::SendDescriptors | OpCode::SendFile
                if moved > 0
                    && !matches!(
                        kind,
                        ErrorKind::Aborted
                            | ErrorKind::Closed
                            | ErrorKind::Forked
                            | ErrorKind::Overflow
                    ) =>
            {
                // A hole in the stream: the writes queued behind it must not go out.
                while self.sources[index].writes.head != NIL {
                    let head = self.sources[index].writes.head;
                    // The kernel has answered: the operation ends as it was told to.
                    self.slots[head].in_flight = InFlight::No;
                    self.fail(head, ErrorKind::Torn);
                }
            }
            code if code.is_file() => self.file_left(index),
            _ if !self.waits.is_empty() => self.stop_waiting(index),
            _ => {}
        }
        if code.is_read() {
            self.note_pause(index);
        }
        // A range that a thread reads for has kept those behind it waiting.
        let freed = code == OpCode::SendFile && self.sources[index].can_write();
        if (writes || code == OpCode::Shutdown) && self.need_no_room(index) || freed {
            self.enqueue(index);
        }
    }

    /// Whether a shutdown, a close or an empty write is at the head of the writes. It may succeed
    /// even if the socket is full.
    pub(super) fn need_no_room(&mut self, index: u32) -> bool {
        let state = &mut self.sources[index];
        let head = state.writes.head;
        let needs_none = head != NIL
            && match self.slots[head].code {
                OpCode::Shutdown | OpCode::Close => true,
                OpCode::Write => is_nothing(state, &self.slots[head]),
                _ => false,
            };
        if needs_none {
            state.flags |= WRITABLE;
        }
        needs_none
    }

    /// A read that waited for a lease may be gone; what is behind it may need none.
    #[cold]
    fn stop_waiting(&mut self, index: u32) {
        if index == NIL || !self.sources[index].has(WAITING) {
            return;
        }
        self.sources[index].flags &= !WAITING;
        self.note_read(index);
        if self.sources[index].can_read() {
            self.enqueue(index);
        }
    }

    /// Bytes of queued writes are out, or will never be.
    #[inline]
    pub(super) fn unqueue(&mut self, index: u32, bytes: u32) {
        let state = &mut self.sources[index];
        // A write that closed its source may have wrapped the count.
        state.queued_bytes = state.queued_bytes.wrapping_sub(bytes);
        if state.has(POLLS) {
            self.run_drains(index);
        }
    }

    /// Ends the [`Op::wait_drained`] operations whose number of queued bytes is reached.
    #[cold]
    pub(super) fn run_drains(&mut self, index: u32) {
        if self.sources[index].fd < 0 {
            // It connects: they wait for that.
            return;
        }
        let mut slot = self.sources[index].polls;
        while slot != NIL {
            let op = &self.slots[slot];
            let next = op.next;
            if op.code == OpCode::WaitDrained && self.sources[index].queued_bytes <= op.count {
                self.finish_write(index, slot, Ok(Done::Drained));
            }
            slot = next;
        }
    }

    /// The time of an operation has come.
    pub(super) fn expire(&mut self, slot: u32) {
        let op = &self.slots[slot];
        if op.code == OpCode::Connect && op.count == OF_SOURCE {
            return self.expire_connect(slot);
        }
        if op.code != OpCode::Timer || op.count != 0 {
            // The timer's deadline came, not its own time.
            if !self.ends_in_last_try(slot) {
                self.fail(slot, ErrorKind::Deadline);
            }
            return;
        }
        let (ticket, token, index) = (self.ticket(slot), op.token, op.source);
        let source = if index == NIL { Source::NONE } else { self.sources[index].name(index) };
        self.unlink(slot);
        self.slots.vacate(slot);
        let done = Ok(Done::Timer);
        self.batch.push(Completion::new(OpCode::Timer, source, ticket, token, done));
    }

    /// Tries an operation whose time has come once more where what it waits for may be there
    /// already: its source stands in the ready queue but the turn's share was used up before it,
    /// the selector had more to tell than one wait takes, or bytes may stand behind passed
    /// descriptors. True when the operation has ended.
    fn ends_in_last_try(&mut self, slot: u32) -> bool {
        let op = &self.slots[slot];
        let (index, generation) = (op.source, op.generation());
        if index == NIL {
            return false;
        }
        let state = &mut self.sources[index];
        let mut left = self.config.source_budget.min(MOST_COPIED);
        if state.has(READS) && state.reads.head == slot && !state.has(RESTING) {
            if self.untold || state.has(TO_RECHECK) {
                state.flags |= READABLE;
            }
            self.run_reads(index, &mut left);
        } else if state.writes.head == slot {
            if self.untold {
                state.flags |= WRITABLE;
            }
            self.run_writes(index, &mut left);
        } else {
            return false;
        }
        self.requeue(index);
        self.slots.find(slot, generation).is_none()
    }

    /// Whether a ticket belongs to a read that rests in its source.
    pub(super) fn rests(&self, ticket: Ticket) -> bool {
        self.sources.peek(ticket.index() & !RESTS).is_some_and(|state| {
            state.has(RESTING) && state.read_generation == ticket.generation().get()
        })
    }

    /// Serves the queue if it may hold the submission of this ticket: another thread may have
    /// handed the ticket to the program before the loop took the request.
    pub(super) fn take_submitted(&mut self, ticket: Ticket) {
        let kept = self.slots.find(ticket.index(), ticket.generation());
        if !self.serving && kept.is_some_and(|op| op.reserved) {
            self.take_queued();
        }
    }

    pub(super) fn cancel_ticket(&mut self, ticket: Ticket) -> bool {
        let slot = ticket.index();
        if slot & RESTS != 0 {
            if self.rests(ticket) {
                self.fail_rest(slot & !RESTS, ErrorKind::Cancelled);
                return true;
            }
            let moved = self.moved_read(ticket);
            if let Some(slot) = moved {
                self.fail(slot, ErrorKind::Cancelled);
            }
            return moved.is_some();
        }
        self.take_submitted(ticket);
        match self.slots.find(slot, ticket.generation()) {
            None => false,
            Some(op) if op.reserved => {
                // At the bound of waiting completions the loop takes no requests. It cancels the
                // operation when it takes the operation's request.
                let waits = self.batch.is_full() && !self.serving;
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

    pub(super) fn cancel_source(&mut self, source: Source) -> usize {
        if self.state(source).is_none_or(|state| state.has(RESERVED | CONNECTING)) {
            return 0;
        }
        let before = self.batch.len();
        let told = self.count_told(source.index());
        self.end_operations(source.index(), ErrorKind::Cancelled);
        let told = self.count_told(source.index()) - told;
        let count = self.batch.len() - before + told;
        if K::COMPLETES && self.stops {
            self.collect();
        }
        count
    }

    /// Ends every operation of a source, each queue in its order; its connect first.
    pub(super) fn end_operations(&mut self, index: u32, kind: ErrorKind) {
        let connects = self.sources[index].fd < 0;
        let failed = if connects { self.end_connect_of(index, kind) } else { None };
        self.end_queues(index, kind);
        if let Some(errno) = failed {
            self.sources[index].fail(errno);
        }
    }

    /// Ends the operations in the queues of a source, each queue in its order.
    pub(super) fn end_queues(&mut self, index: u32, kind: ErrorKind) {
        self.fail_reads(index, kind);
        // Drains before the writes: with these nothing is queued, but nothing has drained.
        let mut slot = self.sources[index].polls;
        while slot != NIL {
            // Work on a file that has begun stays.
            let next = self.slots[slot].next;
            // A timer of a source whose connect has failed goes on: it has waited for a time only.
            let stays = matches!(kind, ErrorKind::Os(_)) && self.slots[slot].code == OpCode::Timer;
            if !stays {
                self.fail(slot, kind);
            }
            slot = next;
        }
        if K::COMPLETES && self.sources[index].has(WRITE_BUSY) {
            return self.stop_queue(self.sources[index].writes.head, kind);
        }
        while self.sources[index].writes.head != NIL {
            self.fail(self.sources[index].writes.head, kind);
        }
    }

    /// Ends the reads of a source in their order.
    pub(super) fn fail_reads(&mut self, index: u32, kind: ErrorKind) {
        if self.sources[index].has(RESTING) {
            self.fail_rest(index, kind);
        }
        if K::COMPLETES && self.sources[index].has(READ_BUSY) {
            return self.stop_queue(self.sources[index].reads.head, kind);
        }
        while self.sources[index].reads.head != NIL {
            self.fail(self.sources[index].reads.head, kind);
        }
    }

    /// Ends the resting read.
    pub(super) fn fail_rest(&mut self, index: u32, kind: ErrorKind) {
        let state = &mut self.sources[index];
        state.flags &= !(RESTING | RESTING_MORE);
        let (source, ticket) = (state.name(index), state.resting_ticket(index));
        let token = state.read_token;
        let error = Error::new(kind, 0, Buf::NONE);
        self.batch.push(Completion::new(OpCode::Read, source, ticket, token, Err(error)));
        if self.batch.is_full() {
            // A read that comes to rest skips the check for waiting completions: the next
            // submission checks.
            self.sources[index].flags |= READABLE;
        }
        if !self.waits.is_empty() {
            self.stop_waiting(index);
        }
        self.note_pause(index);
    }

    pub(super) fn abort_source(&mut self, source: Source) -> bool {
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
    pub(super) fn end_source(&mut self, index: u32, kind: ErrorKind) {
        self.end_operations(index, kind);
        if self.is_in_kernel(index) {
            self.hide(index, ABORTING | CLOSING);
            if K::COMPLETES {
                self.collect();
            }
            return;
        }
        self.close_source(index);
    }

    /// Whether kernel or workers have something of a source, so that its descriptor must stay.
    fn is_in_kernel(&self, index: u32) -> bool {
        let state = &self.sources[index];
        state.has(READ_BUSY | WRITE_BUSY)
            || state.kind() == SourceKind::File && self.is_at_work(index)
    }

    /// Whether nothing of a source is left to do, here or in the kernel: it can be closed at once.
    /// (To close a file may take long.)
    #[inline]
    pub(super) fn is_done_with(&self, index: u32) -> bool {
        const LEFT: u32 = RESTING | READS | WRITES | POLLS | READ_BUSY | WRITE_BUSY;
        let state = &self.sources[index];
        !state.has(LEFT) && state.polls == NIL && state.kind() != SourceKind::File
    }

    /// Closes the descriptor of a source without operations and vacates its place.
    pub(super) fn close_source(&mut self, index: u32) {
        self.note_forks();
        let state = &self.sources[index];
        let (fd, flags) = (state.fd, state.flags);
        if fd >= 0 {
            // Closing the last descriptor ends the registration; a duplicate, also another
            // process's, would keep it alive, and so does a kernel that holds the file.
            let kept = K::COMPLETES || flags & DUPLICATED != 0;
            if flags & REGISTERED != 0 && kept {
                let key = self.sources[index].name(index).key();
                self.kernel.deregister(fd, key);
            }
            if flags & (CHANGED | DUPLICATED) == CHANGED | DUPLICATED {
                self.kernel.restore(fd);
            }
            self.kernel.close(fd);
        }
        self.vacate_source(index);
    }

    pub(super) fn vacate_source(&mut self, index: u32) {
        if !self.inherited.is_empty() {
            self.inherited.remove(&index);
        }
        if !self.shared.is_empty() {
            self.shared.remove(&index);
        }
        self.drop_token(index);
        let state = &mut self.sources[index];
        self.counts.hidden -= u32::from(state.has(RESERVED | ABORTING));
        self.idle.leave(index);
        state.fd = -1;
        state.flags = 0;
        self.sources.vacate(index);
    }

    pub(super) fn close_all(&mut self) {
        if self.closed {
            return;
        }
        self.closed = true;
        self.remote.close();
        self.end_attempts();
        while let Some(request) = self.remote.take() {
            self.refuse_closed(request);
        }
        let sources: Vec<u32> = self.sources.occupied().collect();
        for &index in &sources {
            // A connect's source vacates its place when the operation ends.
            self.end_operations(index, ErrorKind::Closed);
        }
        if self.busy > 0 {
            self.drain();
        }
        let sources: Vec<u32> = self.sources.occupied().collect();
        for &index in &sources {
            if self.is_in_kernel(index) {
                self.hide(index, ABORTING | CLOSING);
            } else {
                self.close_source(index);
            }
        }
        let mut timers: Vec<u32> = self.slots.occupied().collect();
        timers.sort_unstable_by_key(|&slot| self.slots[slot].reserved);
        for slot in timers {
            if self.slots[slot].reserved {
                self.slots.vacate(slot);
            } else {
                self.fail(slot, ErrorKind::Closed);
            }
        }
        self.ready.clear();
        self.bulk.clear();
        self.waits.clear();
        self.rechecks.clear();
        self.paused.clear();
    }

    /// Closes the sources that are left when the driver is dropped.
    pub(super) fn close_descriptors(&mut self) {
        self.note_forks();
        let sources: Vec<u32> = self.sources.occupied().collect();
        for index in sources {
            if self.sources[index].kind() == SourceKind::File && self.is_at_work(index) {
                // A thread is still at it: the number must not become another file's.
                continue;
            }
            let (fd, flags) = (self.sources[index].fd, self.sources[index].flags);
            if fd >= 0 {
                if flags & (CHANGED | DUPLICATED) == CHANGED | DUPLICATED {
                    self.kernel.restore(fd);
                }
                self.kernel.close(fd);
                self.sources[index].fd = -1;
            }
        }
    }
}
