//! Operations that the kernel completes by itself: at most one read and one write of a source.
//!
//! The driver starts them where it would otherwise try them. They keep their slot and their memory
//! until the kernel's last answer, which ends them. A cancel, a deadline or an abort is only a
//! request.

#![allow(unsafe_code)]
//! # Safety
//!
//! (K1) A started operation keeps its slot, and so its buffer, until its last answer. (K2) The
//! kernel answers with the number of bytes that it has written.

use crate::kernel::{Answer, AnswerKind, Kernel, Received, Started};
use crate::memory::buf::Buf;
use crate::memory::leaked::{PATIENCE_NS, leave_to_kernel};
use crate::op::operation::InFlight;
use crate::op::{Family, OpCode};
use crate::proactor::Proactor;
use crate::proactor::ops::read::{kernel_target, takes_lease};
use crate::proactor::ops::write::{WriteParts, is_nothing};
use crate::proactor::parts::operations::Slots;
use crate::proactor::parts::state::{
    ABORTING, CLOSING, FULL, READ_BUSY, READ_PAUSED, STREAM, WRITE_BUSY,
};
use crate::words::error::ErrorKind;
use crate::words::source::Ticket;
use crate::words::table::Entry;

/// How often the kernel is asked for answers at once after it was told to end an operation. It may
/// have other events first. Or it does not find the operation and is told again: if a descriptor is
/// reported ready and is not, the kernel tries 128 times before it gives the operation to a thread.
const MOST_LOOKS: u32 = 160;
/// How long one wait for threads of the kernel takes at most, and how many such waits a turn makes.
/// These threads end cancelled operations.
const THREAD_WAIT_NS: u64 = 100_000;
const MOST_THREAD_WAITS: u32 = 20;

impl<K: Kernel> Proactor<K> {
    /// Starts the read at the head of the queue, if the kernel completes such reads. False if the
    /// loop must try it.
    ///
    /// The loop itself reads bulk data, and writes it, one source after the other: the kernel would
    /// read from all sources before the program writes to the first, and their bytes would not fit
    /// into the cache. Only if the loop has no swap buffer for a read, the kernel may have one.
    pub(in crate::proactor) fn begin_read(&mut self, index: u32) -> bool {
        let slot = self.sources[index].reads.head;
        if takes_lease(&self.ops[slot]) && self.holds_share(index) {
            self.wait_for_share(index);
            return true;
        }
        let state = &mut self.sources[index];
        let (op, pool) = (&mut self.ops[slot], &mut self.memory.pool);
        let is_bulk = state.has(FULL) && !op.multishot;
        if !state.has(STREAM) || is_bulk && (op.code != OpCode::Read || pool.available(false) > 0) {
            return false;
        }
        // In the kernel, the multishot reads of a few sources would take every buffer that it has.
        // So in a scarce pool the loop reads. Without a buffer, the loop has the kernel read once:
        // the free buffers may all be the kernel's.
        let is_cut_short = op.multishot && pool.is_scarce();
        if is_cut_short && pool.available(false) > 0 {
            return false;
        }
        let key = state.name(index).key();
        let repeats = op.multishot && !is_cut_short && self.kernel.repeats(state.kind());
        let Some(to) = kernel_target(op) else { return false };
        // SAFETY: K1: the operation keeps its slot and its buffer until its last answer.
        match unsafe { self.kernel.start_recv(state.fd, key, to, repeats, pool) } {
            Started::Yes => {
                op.in_flight = InFlight::Started;
                state.flags |= READ_BUSY;
                self.kernel_ops.busy += 1;
                self.sched.waits.begun += 1;
                true
            }
            // A read behind a lease must not wait for memory, because it holds some.
            Started::Starved if op.buf.is_unique_lease() => false,
            // The loop's own swap buffer has room.
            Started::Starved if self.memory.pool.available(false) > 0 => false,
            Started::Starved => {
                self.wait_for_buffer(index);
                true
            }
            Started::No => false,
        }
    }

    /// Starts the writes at the head of the queue, as many as one message takes. False if the loop
    /// must try them.
    pub(in crate::proactor) fn begin_write(&mut self, index: u32) -> bool {
        let state = &mut self.sources[index];
        if !state.has(STREAM) || self.ops[state.writes.head].code.family() != Family::Write {
            return false;
        }
        if !self.kernel.sends(state.kind()) {
            return false;
        }
        if is_nothing(state, &self.ops[state.writes.head]) {
            return false;
        }
        let parts = WriteParts::of_writes(&self.ops.table, state.writes.head, usize::MAX);
        let key = state.name(index).key();
        // SAFETY: K1: the operations keep their slots and their buffers until the answer.
        if unsafe { self.kernel.start_send(state.fd, key, parts.as_slice()) } != Started::Yes {
            return false;
        }
        let mut rest = parts.bytes;
        state.flags |= WRITE_BUSY;
        self.kernel_ops.busy += 1;
        let mut slot = state.writes.head;
        while rest > 0 {
            let op = &mut self.ops[slot];
            op.in_flight = InFlight::Started;
            rest = rest.saturating_sub(op.buf.len() - op.moved as usize);
            slot = op.next;
        }
        true
    }

    /// Applies an answer of the kernel.
    #[inline]
    pub(in crate::proactor) fn answered(&mut self, answer: Answer) {
        let index = answer.key as u32;
        let Some(state) = self.sources.table.find_key(index, (answer.key >> 32) as u32) else {
            // No source has this key; a buffer in the answer goes back to the pool.
            if answer.key != 0 {
                self.stats.counters.stale_events += 1;
            }
            return;
        };
        match answer.kind {
            AnswerKind::Moved(moved) if answer.write => {
                state.flags &= !WRITE_BUSY;
                self.kernel_ops.busy -= 1;
                self.write_answered(index, moved);
            }
            AnswerKind::Moved(moved) => {
                if !answer.more {
                    state.flags &= !READ_BUSY;
                    self.kernel_ops.busy -= 1;
                }
                self.read_answered(index, moved, answer.data, answer.more);
            }
            AnswerKind::Stopping => self.kernel_ops.stopping = true,
            AnswerKind::NotStopped => {
                let (busy, head) = match answer.write {
                    true => (WRITE_BUSY, state.writes.head),
                    false => (READ_BUSY, state.reads.head),
                };
                // The operation may be a newer one, which was not told to end.
                if state.has(busy) && self.ops.is_any_ending_from(head) {
                    self.kernel.stop(answer.key, answer.write);
                    self.kernel_ops.cancels_pending = true;
                }
            }
        }
    }

    fn read_answered(&mut self, index: u32, moved: isize, data: Buf, more: bool) {
        let slot = self.sources[index].reads.head;
        let op = &mut self.ops[slot];
        let ending = op.in_flight.ending();
        if !more {
            op.in_flight = InFlight::No;
        }
        if moved > 0 {
            self.note_bytes(index, READ_PAUSED);
            self.read_op_answered(index, slot, moved as u32, data, more, ending);
        } else if moved == 0 {
            self.read_stopped(index, slot, Received::plain(0));
        } else {
            match (-moved as i32, ending) {
                (
                    libc::ECANCELED | libc::EINTR | libc::ENOBUFS | libc::ENOMEM | libc::EAGAIN,
                    Some(kind),
                ) => self.fail(slot, kind),
                // While the pool is scarce, `begin_read` decides who does the next piece of a
                // multishot read.
                (libc::ENOBUFS, None)
                    if !(op.buf.is_unique_lease()
                        || op.multishot && self.memory.pool.is_scarce())
                        && self.buffers_of_kernel_or_loop() == 0 =>
                {
                    self.wait_for_buffer(index);
                }
                (libc::ECANCELED | libc::ENOBUFS, None) => {}
                _ => self.read_stopped(index, slot, Received::plain(moved)),
            }
        }
        if !more {
            self.end_marked(self.sources[index].reads.head);
            self.go_on(index);
        }
    }

    fn write_answered(&mut self, index: u32, moved: isize) {
        let mut slots = Slots(self.sources[index].writes.head);
        while let Some(slot) = slots.next(&self.ops)
            && self.ops[slot].in_flight != InFlight::No
        {
            // An operation that was told to end keeps its mark, and ends below.
            if self.ops[slot].in_flight == InFlight::Started {
                self.ops[slot].in_flight = InFlight::No;
            }
        }
        if moved >= 0 {
            self.advance_queue(index, moved as u32);
        } else if let head = self.sources[index].writes.head
            && let kept = self.ops[head].in_flight
            && !(moved == -(libc::ECANCELED as isize)
                || moved == -(libc::EINTR as isize) && kept.ending().is_some())
        {
            self.ops[head].in_flight = InFlight::No;
            self.write_stopped(index, head, moved);
            if self.sources[index].writes.head == head {
                self.ops[head].in_flight = kept;
            }
        }
        self.end_marked(self.sources[index].writes.head);
        self.go_on(index);
    }

    /// Ends the operations that were told to end while the kernel had another operation of their
    /// queue.
    pub(in crate::proactor) fn end_marked(&mut self, head: u32) {
        let mut slots = Slots(head);
        while let Some(slot) = slots.next(&self.ops) {
            let op = &mut self.ops[slot];
            let Some(kind) = op.in_flight.ending() else { continue };
            op.in_flight = InFlight::No;
            let whole =
                matches!(kind, ErrorKind::Aborted | ErrorKind::Closed | ErrorKind::Overflow);
            let tears = op.code.tears() && op.moved > 0 && !whole;
            self.fail(slot, kind);
            if tears {
                // This end has torn the writes behind it, so none is left.
                return;
            }
        }
    }

    /// Continues both directions of a source: starts the next operations, or closes a source that
    /// was aborted meanwhile.
    pub(in crate::proactor) fn go_on(&mut self, index: u32) {
        let state = &self.sources[index];
        if state.has(ABORTING) {
            // Threads may still have work on a file.
            if !self.is_in_kernel(index) {
                self.close_source(index);
            }
            return;
        }
        if state.can_read()
            || state.can_write()
            // A close may have waited for the end of a read.
            || state.has(CLOSING) && self.need_no_room(index)
        {
            self.enqueue(index);
        }
    }

    /// Cancels an operation in the kernel: the kernel's answer ends it.
    pub(in crate::proactor) fn stop(&mut self, slot: u32, kind: ErrorKind) {
        let op = &mut self.ops[slot];
        if op.in_flight.ending().is_some() {
            return;
        }
        op.in_flight = InFlight::of(kind);
        self.ops.deadlines.remove(slot);
        // `withdraw` has already asked the kernel to end work on a file.
        if self.ops[slot].code.is_file() {
            return;
        }
        let op = &self.ops[slot];
        let write = !op.code.is_read();
        let key = self.sources[op.source].name(op.source).key();
        self.kernel.stop(key, write);
        self.kernel_ops.cancels_pending = true;
    }

    /// Cancels an operation in the kernel, unless it is done already.
    pub(in crate::proactor) fn cancel_started(&mut self, ticket: Ticket) -> bool {
        let alive = |this: &mut Self| {
            let op = this.ops.table.find(ticket.index(), ticket.generation());
            op.is_some_and(|op| op.in_flight.ending().is_none())
        };
        if K::COMPLETES && alive(self) {
            self.reap();
        }
        let told = alive(self);
        if told {
            self.fail(ticket.index(), ErrorKind::Cancelled);
            if K::COMPLETES {
                self.reap();
            }
        }
        told
    }

    /// Ends a queue whose head the kernel has: all of its operations end when the answer comes.
    pub(in crate::proactor) fn stop_queue(&mut self, head: u32, kind: ErrorKind) {
        let mut slots = Slots(self.ops[head].next);
        while let Some(slot) = slots.next(&self.ops) {
            if self.ops[slot].in_flight.ending().is_none() {
                self.ops.deadlines.remove(slot);
                self.ops[slot].in_flight = InFlight::of(kind);
            }
        }
        self.stop(head, kind);
    }

    /// Enters the kernel, so that operations that were just told to end can end. The kernel does
    /// not find an operation that is between two states: then the loop asks again. If a thread of
    /// the kernel has the operation, the loop waits for a moment; if the thread needs longer, the
    /// answer comes in a later turn. Too many other events also delay the answer.
    pub(in crate::proactor) fn reap(&mut self) {
        let (mut looks_left, mut waits_left) = (MOST_LOOKS, MOST_THREAD_WAITS);
        self.kernel_ops.stopping = false;
        while looks_left > 0 {
            self.kernel_ops.cancels_pending = false;
            while looks_left > 0 {
                looks_left -= 1;
                match self.kernel.select(Some(0)) {
                    Ok(count) => {
                        self.apply(count);
                        if !self.sched.may_have_events {
                            break;
                        }
                    }
                    Err(_) => return self.take_file_answers(),
                }
            }
            if self.kernel_ops.stopping && !self.kernel_ops.cancels_pending {
                waits_left = self.await_threads(waits_left);
            }
            if !self.kernel_ops.cancels_pending {
                return;
            }
        }
    }

    /// Waits for answers of kernel threads that were told to stop, at most `waits_left` times.
    /// Returns how many of these waits are left.
    #[cold]
    fn await_threads(&mut self, mut waits_left: u32) -> u32 {
        // Nothing else is told to end meanwhile, so one look through the table finds them all.
        let slots = self.ops.table.occupied();
        let told = slots.filter(|&slot| self.ops[slot].in_flight.ending().is_some());
        let name = |slot| Ticket::from_parts(slot, self.ops[slot].generation());
        let mut told: Vec<Ticket> = told.map(name).collect();
        while waits_left > 0 && !self.kernel_ops.cancels_pending {
            while told.pop_if(|ticket| !self.ops.is_ending(*ticket)).is_some() {}
            if told.is_empty() {
                break;
            }
            waits_left -= 1;
            match self.kernel.select(Some(THREAD_WAIT_NS)) {
                Ok(count) => self.apply(count),
                Err(_) => return 0,
            }
        }
        waits_left
    }

    /// Waits for the kernel to end its operations, for a bounded time.
    pub(in crate::proactor) fn drain(&mut self) {
        let until = self.kernel.now_ns().saturating_add(PATIENCE_NS);
        while self.kernel_ops.busy > 0 {
            let left = until.saturating_sub(self.kernel.now_ns());
            if left == 0 {
                return;
            }
            match self.kernel.select(Some(left)) {
                Ok(count) => self.apply(count),
                // Answers that have already come need no wait.
                Err(_) => return self.take_file_answers(),
            }
        }
    }

    /// Leaves the memory of all operations that the kernel has not ended to the kernel, for ever.
    pub(in crate::proactor) fn leak(&mut self) {
        self.kernel.abandon();
        leave_to_kernel(std::mem::take(&mut self.files.lists));
        let started: Vec<u32> = self.ops.table.occupied().collect();
        for slot in started {
            if self.ops[slot].in_flight != InFlight::No {
                self.ops.leave_to_kernel(slot);
            }
        }
    }
}
