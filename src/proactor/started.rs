//! Operations that the kernel completes by itself: at most one read and one write of a source.
//!
//! They are started where the proactor would else try them, keep their place and their memory until
//! the kernel's last answer, and end by it: a cancellation, a deadline, an abort are requests.

#![allow(unsafe_code)]
//! # Safety
//!
//! (A1) What is started keeps its place, and so its buffer, until its last answer. (A2) The kernel
//! answers with the number of bytes that it has written.

use super::*;
use crate::error::ErrorKind;
use crate::leaked::{PATIENCE_NS, leak};
use crate::slots::InFlight;
use writes::{Parts, is_nothing};

/// How often an operation that the kernel does not find is asked to end in one turn. (The kernel
/// tries one that is told ready and is not 128 times before it gives it to a thread.)
const MOST_STOPS: usize = 160;
/// How long, and how often, a turn waits for threads of the kernel to end cancelled operations.
const MOMENT_NS: u64 = 100_000;
const MOMENTS: u32 = 20;

impl<K: Kernel> Proactor<K> {
    /// Starts the read at the head of the queue, if the kernel completes such; false when it is to
    /// be tried.
    pub(super) fn begin_read(&mut self, index: u32) -> bool {
        let state = &mut self.sources[index];
        let slot = state.reads.head;
        let op = &mut self.slots[slot];
        if !state.has(STREAM) {
            return false;
        }
        let key = state.name(index).key();
        let to = match op.code {
            // The kernel knows no shares.
            OpCode::Read if op.multishot && self.pool.is_scarce() => return false,
            OpCode::Read => None,
            // Into a buffer of the kernel's: an idle source holds none.
            OpCode::ReadAppend if op.buf.is_unique_lease() => None,
            OpCode::ReadAppend => Some(op.buf.target(op.count as usize, usize::MAX)),
            OpCode::ReadInto if !op.buf.is_list() => Some(op.buf.target(0, usize::MAX)),
            OpCode::ReadExact if !op.buf.is_list() => {
                let from = op.moved as usize;
                Some(op.buf.target(from, op.count as usize - from))
            }
            _ => return false,
        };
        let multishot = op.multishot && self.kernel.repeats(state.kind());
        match self.kernel.start_recv(state.fd, key, to, multishot, &mut self.pool) {
            Started::Yes => {
                op.in_flight = InFlight::Started;
                state.flags |= READ_BUSY;
                self.busy += 1;
                self.waits.begun += 1;
                true
            }
            // It must not wait for memory: it holds a lease.
            Started::Starved if op.code == OpCode::ReadAppend => false,
            // There is room in the swap buffer that the loop keeps for itself.
            Started::Starved if self.pool.available(false) > 0 => false,
            Started::Starved => {
                self.wait_for_buffer(index);
                true
            }
            Started::No => false,
        }
    }

    /// Starts the writes at the head of the queue, as many as one message takes; false when they
    /// are to be tried.
    pub(super) fn begin_write(&mut self, index: u32) -> bool {
        let state = &mut self.sources[index];
        if !state.has(STREAM) || self.slots[state.writes.head].code != OpCode::Write {
            return false;
        }
        if !self.kernel.sends(state.kind()) {
            return false;
        }
        if is_nothing(state, &self.slots[state.writes.head]) {
            return false;
        }
        let parts = Parts::of_writes(&self.slots, state.writes.head, usize::MAX);
        let key = state.name(index).key();
        if self.kernel.start_send(state.fd, key, parts.as_slice()) != Started::Yes {
            return false;
        }
        let mut rest = parts.bytes;
        state.flags |= WRITE_BUSY;
        self.busy += 1;
        let mut slot = state.writes.head;
        while rest > 0 {
            let op = &mut self.slots[slot];
            op.in_flight = InFlight::Started;
            rest = rest.saturating_sub(op.buf.len() - op.moved as usize);
            slot = op.next;
        }
        true
    }

    /// The kernel has answered.
    #[inline]
    pub(super) fn answered(&mut self, answer: Answer) {
        let index = answer.key as u32;
        let Some(state) = self.sources.find_key(index, (answer.key >> 32) as u32) else {
            // No source has this key; a buffer in the answer goes back to the pool.
            if answer.key != 0 {
                self.counts.stale_events += 1;
            }
            return;
        };
        if answer.moved == Answer::POLL_ENDED {
            state.flags &= !(REGISTERED | WRITES_REGISTERED);
            state.flags |= READABLE | WRITABLE | UNSETTLED;
            state.flags |= if state.has(POLLS) { POLLED } else { 0 };
            return self.enqueue(index);
        }
        if answer.moved == Answer::STOPPING {
            self.stopping = true;
            return;
        }
        if answer.moved == Answer::NOT_STOPPED {
            let busy = if answer.write { WRITE_BUSY } else { READ_BUSY };
            if state.has(busy) {
                let head = if answer.write { state.writes.head } else { state.reads.head };
                // Not for a newer operation that was not told to end.
                if self.is_any_told(head) {
                    self.kernel.stop(answer.key, answer.write);
                    self.stops = true;
                }
            }
            return;
        }
        if answer.write {
            state.flags &= !WRITE_BUSY;
            self.busy -= 1;
            self.write_answered(index, answer.moved);
        } else {
            if !answer.more {
                state.flags &= !READ_BUSY;
                self.busy -= 1;
            }
            self.read_answered(index, answer);
        }
    }

    fn read_answered(&mut self, index: u32, answer: Answer) {
        let Answer { moved, data, more, .. } = answer;
        let slot = self.sources[index].reads.head;
        let op = &mut self.slots[slot];
        let ending = op.in_flight.ending();
        if !more {
            op.in_flight = InFlight::No;
        }
        if moved > 0 {
            self.note_bytes(index);
            let op = &mut self.slots[slot];
            match op.code {
                OpCode::Read => {
                    // A multishot read that was told to end ends with the last answer.
                    let goes_on = op.multishot;
                    self.finish_read(index, slot, Ok(Done::Read(data)));
                    if more && self.pool.is_scarce() && ending.is_none() {
                        // From now on the loop reads: the kernel knows no shares.
                        let key = self.sources[index].name(index).key();
                        self.kernel.stop(key, false);
                    }
                    if !more
                        && goes_on
                        && let Some(kind) = ending
                    {
                        self.fail(slot, kind);
                    }
                }
                OpCode::ReadAppend => self.append_answered(index, slot, moved as u32, data),
                _ => {
                    op.moved += moved as u32;
                    if op.code == OpCode::ReadExact && op.moved < op.count {
                        if let Some(kind) = ending {
                            self.fail(slot, kind);
                        }
                    } else {
                        let mut buf = op.buf.take();
                        // SAFETY: A2: `moved` bytes from the start.
                        unsafe { buf.set_filled(op.moved as usize) };
                        self.finish_read(index, slot, Ok(Done::Read(buf)));
                    }
                }
            }
        } else if moved == 0 {
            self.read_stopped(index, slot, 0);
        } else {
            match (-moved as i32, ending) {
                (libc::ECANCELED | libc::EINTR | libc::ENOBUFS | libc::EAGAIN, Some(kind)) => {
                    self.fail(slot, kind);
                }
                // While the pool is scarce, a multishot read continues in the loop, not in the
                // kernel.
                (libc::ENOBUFS, None)
                    if op.code != OpCode::ReadAppend
                        && !(op.multishot && self.pool.is_scarce())
                        && self.buffers_of_kernel_or_loop() == 0 =>
                {
                    self.wait_for_buffer(index);
                }
                (libc::ECANCELED | libc::EINTR | libc::ENOBUFS, None) => {}
                _ => self.read_stopped(index, slot, moved),
            }
        }
        if !more {
            self.end_marked(self.sources[index].reads.head);
            self.go_on(index);
        }
    }

    fn write_answered(&mut self, index: u32, moved: isize) {
        let mut slot = self.sources[index].writes.head;
        while slot != NIL && self.slots[slot].in_flight != InFlight::No {
            // A mark stays: its operation ends below.
            if self.slots[slot].in_flight == InFlight::Started {
                self.slots[slot].in_flight = InFlight::No;
            }
            slot = self.slots[slot].next;
        }
        if moved >= 0 {
            self.advance_queue(index, moved as u32);
        } else if !matches!(-moved as i32, libc::ECANCELED | libc::EINTR) {
            let head = self.sources[index].writes.head;
            let kept = self.slots[head].in_flight;
            self.slots[head].in_flight = InFlight::No;
            self.write_stopped(index, head, moved);
            if self.sources[index].writes.head == head {
                self.slots[head].in_flight = kept;
            }
        }
        self.end_marked(self.sources[index].writes.head);
        if matches!(-moved as i32, libc::ECANCELED | libc::EINTR) {
            self.copy_returned_leases(index);
        }
        self.go_on(index);
    }

    /// Ends operations that were told to end while another one of their queue was in the kernel.
    pub(super) fn end_marked(&mut self, head: u32) {
        let mut slot = head;
        while slot != NIL {
            let op = &mut self.slots[slot];
            let next = op.next;
            let Some(kind) = op.in_flight.ending() else {
                slot = next;
                continue;
            };
            op.in_flight = InFlight::No;
            let whole =
                matches!(kind, ErrorKind::Aborted | ErrorKind::Closed | ErrorKind::Overflow);
            let tears = op.code == OpCode::Write && op.moved > 0 && !whole;
            self.fail(slot, kind);
            if tears {
                // It has taken those behind it with it.
                return;
            }
            slot = next;
        }
    }

    /// Both directions of a source are looked at again: the next operations start, or a source that
    /// was aborted meanwhile goes.
    pub(super) fn go_on(&mut self, index: u32) {
        let state = &mut self.sources[index];
        if state.has(ABORTING) {
            if !state.has(READ_BUSY | WRITE_BUSY) {
                self.close_source(index);
            }
            return;
        }
        if state.can_read() || state.can_write() {
            self.enqueue(index);
        }
    }

    /// Cancels an operation in the kernel: the kernel's answer ends it.
    pub(super) fn stop(&mut self, slot: u32, kind: ErrorKind) {
        let op = &mut self.slots[slot];
        if op.in_flight.ending().is_some() {
            return;
        }
        op.in_flight = InFlight::of(kind);
        self.deadlines.remove(slot);
        // What concerns a file was asked for when it was tried to take it back.
        if self.slots[slot].code.is_file() {
            return;
        }
        let op = &self.slots[slot];
        let write = op.code == OpCode::Write;
        let key = self.sources[op.source].name(op.source).key();
        self.kernel.stop(key, write);
        self.stops = true;
    }

    /// Cancels an operation in the kernel, unless it is done already.
    pub(super) fn cancel_started(&mut self, ticket: Ticket) -> bool {
        let alive = |this: &mut Self| {
            let op = this.slots.find(ticket.index(), ticket.generation());
            op.is_some_and(|op| op.in_flight.ending().is_none())
        };
        if K::COMPLETES && alive(self) {
            self.collect();
        }
        let told = alive(self);
        if told {
            self.fail(ticket.index(), ErrorKind::Cancelled);
            if K::COMPLETES {
                self.collect();
            }
        }
        told
    }

    /// Ends a queue whose head the kernel has: all of it, when the answer comes.
    pub(super) fn stop_queue(&mut self, head: u32, kind: ErrorKind) {
        let first = head;
        let mut slot = head;
        while slot != NIL {
            if slot != first && self.slots[slot].in_flight.ending().is_none() {
                self.deadlines.remove(slot);
                self.slots[slot].in_flight = InFlight::of(kind);
            }
            slot = self.slots[slot].next;
        }
        self.stop(first, kind);
    }

    /// Whether one of those that the kernel has from the head on is told to end: writes that go out
    /// in one message are several.
    fn is_any_told(&self, head: u32) -> bool {
        let mut slot = head;
        while slot != NIL && self.slots[slot].in_flight != InFlight::No {
            if self.slots[slot].in_flight.ending().is_some() {
                return true;
            }
            slot = self.slots[slot].next;
        }
        false
    }

    /// How many operations of a source are told to end and have not.
    pub(super) fn count_told(&self, index: u32) -> usize {
        let state = &self.sources[index];
        let mut count = 0;
        for mut slot in [state.reads.head, state.writes.head, state.polls] {
            while slot != NIL {
                count += usize::from(self.slots[slot].in_flight.ending().is_some());
                slot = self.slots[slot].next;
            }
        }
        count
    }

    /// Gives the kernel the chance to end what was just told to end. One that is between two states
    /// is not found and asked again. A kernel thread is given a moment; if it needs longer, the
    /// answer comes in a later turn.
    pub(super) fn collect(&mut self) {
        let mut moments = MOMENTS;
        self.stopping = false;
        for _ in 0..MOST_STOPS {
            self.stops = false;
            loop {
                match self.kernel.select(Some(0)) {
                    Ok(count) => {
                        self.apply(count);
                        if !self.untold {
                            break;
                        }
                    }
                    Err(_) => return self.take_file_answers(),
                }
            }
            if self.stopping && !self.stops {
                moments = self.await_threads(moments);
            }
            if !self.stops {
                return;
            }
        }
    }

    /// Waits for answers of kernel threads that were told to stop, for so many moments; how many
    /// are left.
    #[cold]
    fn await_threads(&mut self, mut moments: u32) -> u32 {
        while moments > 0 && !self.stops && self.is_any_ending() {
            moments -= 1;
            match self.kernel.select(Some(MOMENT_NS)) {
                Ok(count) => self.apply(count),
                Err(_) => return 0,
            }
        }
        moments
    }

    /// Whether the kernel has something that was told to end.
    fn is_any_ending(&self) -> bool {
        let mut slots = self.slots.occupied();
        slots.any(|slot| self.slots[slot].in_flight.ending().is_some())
    }

    /// Waits for the kernel to end its operations, for a bounded time.
    pub(super) fn drain(&mut self) {
        let until = self.kernel.now_ns().saturating_add(PATIENCE_NS);
        while self.busy > 0 {
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

    /// Leaks the buffer of an operation to the kernel.
    pub(super) fn leave(&mut self, slot: u32) {
        let buf = self.slots[slot].buf.take();
        leak(buf);
    }

    /// An operation that the kernel has not ended keeps its memory for ever.
    pub(super) fn leak(&mut self) {
        self.kernel.abandon();
        std::mem::forget(std::mem::take(&mut self.files.lists));
        let started: Vec<u32> = self.slots.occupied().collect();
        for slot in started {
            if self.slots[slot].in_flight != InFlight::No {
                self.leave(slot);
            }
        }
    }
}
