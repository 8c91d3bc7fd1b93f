//! The parts that all submissions have in common: checks, slots, and the first attempt.

use crate::driver::config::Overflow;
use crate::kernel::{Calls, Kernel};
use crate::op::OpCode;
use crate::proactor::ops::Submitted;
use crate::proactor::parts::state::{
    BYTES, CLOSING, CONNECTING, FULL, PREPARED, QUEUED, READABLE, RESERVED, SourceState,
};
use crate::proactor::{MOST_COPIED, Proactor};
use crate::words::error::{ErrorKind, Limit, Refusal};
use crate::words::source::{Source, Ticket};

/// Most bytes that one operation moves.
pub(in crate::proactor) const MOST_BYTES: usize = i32::MAX as usize;

/// Checks that one operation may move `len` bytes: at least 1, and not too many.
pub(in crate::proactor) fn check_len(len: usize) -> Result<(), Refusal> {
    if len == 0 { Err(Refusal::EmptyBuffer) } else { check_most(len) }
}

/// Checks that one operation may move `len` bytes: not too many; 0 is allowed.
pub(in crate::proactor) fn check_most(len: usize) -> Result<(), Refusal> {
    if len > MOST_BYTES { Err(Refusal::TooLong) } else { Ok(()) }
}

/// A source with one of these flags takes no operations.
const NOT_USABLE: u32 = CLOSING | CONNECTING | RESERVED;

impl<K: Kernel> Proactor<K> {
    /// Accepts `len` bytes at the end of a source's writes.
    pub(in crate::proactor) fn push_bytes(
        &mut self,
        code: OpCode,
        index: u32,
        token: u64,
        len: usize,
        anyway: bool,
    ) -> Submitted {
        let limit = self.config.write_limit;
        let queued = self.sources[index].queued_bytes as usize;
        let exceeds = queued > 0 && queued + len > limit as usize;
        if exceeds && self.config.write_overflow == Overflow::Refuse {
            return Err(Refusal::Full { limit: Limit::Writes, count: limit as usize });
        }
        let ticket = if anyway {
            self.ops.table.set_limit(u32::MAX);
            let ticket = self.occupy(code, index, token);
            self.set_limits();
            ticket?
        } else {
            self.place(code, index, token)?
        };
        // We queue the write in spite of the limit, and `finish_write_start` ends it with the
        // others.
        self.ops.exceeds = exceeds;
        let state = &mut self.sources[index];
        state.queued_bytes = state.queued_bytes.wrapping_add(len as u32);
        state.push_write(&mut self.ops.table, ticket.index());
        Ok(ticket)
    }

    /// The slot of a source that takes reads and writes of bytes.
    #[inline]
    pub(in crate::proactor) fn reader(&mut self, source: Source) -> Result<u32, Refusal> {
        self.sources.check_fork()?;
        match self.state(source) {
            Some(state) if state.flags & (NOT_USABLE | BYTES) == BYTES => Ok(source.index()),
            _ => self.make_reader(source),
        }
    }

    /// As `reader`, for a source that has a token, or was not prepared.
    #[inline(never)]
    fn make_reader(&mut self, source: Source) -> Result<u32, Refusal> {
        let index = self.usable(source)?;
        if self.sources[index].takes_bytes() { Ok(index) } else { Err(Refusal::Unsupported) }
    }

    /// The slot of a source that takes operations. Prepares the source for its first one.
    #[inline]
    pub(in crate::proactor) fn usable(&mut self, source: Source) -> Result<u32, Refusal> {
        self.sources.check_fork()?;
        match self.state(source) {
            Some(state) if state.flags & (NOT_USABLE | PREPARED) == PREPARED => Ok(source.index()),
            _ => self.make_usable(source),
        }
    }

    #[inline(never)]
    fn make_usable(&mut self, source: Source) -> Result<u32, Refusal> {
        self.take_arrived(source);
        let stale = self.why_missing(source);
        let state = self.state(source).ok_or(stale)?;
        if state.has(NOT_USABLE) {
            return Err(stale);
        }
        if !state.has(PREPARED) {
            if let Some(reason) = state.why_no_descriptor() {
                return Err(reason);
            }
            let (fd, kind) = (state.fd, state.kind());
            let shared = self.sources.shared.contains(&source.index());
            let (kind, changed) = self.kernel.calls_mut().prepare(fd, kind, shared)?;
            let mark = if changed { self.sources.changed(source.index()) } else { 0 };
            let state = &mut self.sources[source.index()];
            state.prepare(kind);
            state.flags |= mark;
            self.sources.mark_token(source.index());
        }
        Ok(source.index())
    }

    /// A source of the program's that has a descriptor.
    pub(in crate::proactor) fn described(
        &mut self,
        source: Source,
    ) -> Result<&mut SourceState, Refusal> {
        self.sources.check_fork()?;
        self.take_arrived(source);
        let missing = self.why_missing(source);
        let state = self.state(source).filter(|state| !state.has(CONNECTING | RESERVED));
        let state = state.ok_or(missing)?;
        state.why_no_descriptor().map_or(Ok(state), Err)
    }

    /// Takes a slot for an operation, unless too many completions wait.
    #[inline(always)]
    pub(in crate::proactor) fn place(
        &mut self,
        code: OpCode,
        source: u32,
        token: u64,
    ) -> Result<Ticket, Refusal> {
        self.check_completions()?;
        self.occupy(code, source, token)
    }

    /// Whether the completions have room for an operation that ends at submission.
    #[inline(always)]
    pub(in crate::proactor) fn check_completions(&mut self) -> Result<(), Refusal> {
        // An operation whose ticket another thread has was accepted before.
        if self.outbox.batch.is_full() && self.ops.given.is_none() {
            return Err(self.outbox.full());
        }
        Ok(())
    }

    #[inline(always)]
    pub(in crate::proactor) fn occupy(
        &mut self,
        code: OpCode,
        source: u32,
        token: u64,
    ) -> Result<Ticket, Refusal> {
        if self.ops.given.is_some() {
            return Ok(self.occupy_given(code, source, token));
        }
        let Some((slot, generation, op)) = self.ops.table.occupy_entry() else {
            return Err(self.ops.full());
        };
        self.stats.submitted[code as usize] += 1;
        op.begin(code, source, token);
        Ok(Ticket::from_parts(slot, generation))
    }

    /// As `occupy`, in the slot whose ticket another thread has.
    #[cold]
    fn occupy_given(&mut self, code: OpCode, source: u32, token: u64) -> Ticket {
        let ticket = self.ops.given.take().expect("looked at by the caller");
        self.stats.submitted[code as usize] += 1;
        let op = &mut self.ops[ticket.index()];
        op.reserved = false;
        op.begin(code, source, token);
        ticket
    }

    /// The ticket of an operation that ends at once.
    #[inline]
    pub(in crate::proactor) fn ended_ticket(&mut self) -> Ticket {
        let given = self.ops.given.take();
        given.unwrap_or_else(|| self.outbox.placeless_ticket())
    }

    /// Queues a read. If it is the source's only read and worth trying, a kernel that completes
    /// reads gets it, or the loop tries it.
    #[inline(always)]
    pub(in crate::proactor) fn start_read(
        &mut self,
        index: u32,
        ticket: Ticket,
        due_ns: u64,
    ) -> Ticket {
        let state = &mut self.sources[index];
        let first = !state.has_reads();
        if K::COMPLETES && first {
            // This read may succeed where the last one blocked.
            state.flags |= READABLE;
        }
        state.push_read(&mut self.ops.table, ticket.index());
        self.note_reading(index);
        if first && self.sources[index].can_read() {
            if self.is_left_to_next_turn(index) {
                self.enqueue(index);
            } else if !(K::COMPLETES && self.begin_read(index)) {
                self.try_reads_now(index);
            }
        }
        if due_ns != 0 {
            self.set_deadline(ticket, due_ns);
        }
        ticket
    }

    /// Tries a read of any kind that was just submitted.
    #[inline(always)]
    pub(in crate::proactor) fn try_reads(&mut self, index: u32) {
        if self.sources[index].can_read() {
            if self.is_left_to_next_turn(index) {
                return self.enqueue(index);
            }
            self.try_reads_now(index);
        }
    }

    /// Whether a read that was just submitted is left to the next turn: the source has bulk data,
    /// and this turn has moved as many bytes as it may. So the program handles what was read while
    /// it is in the cache.
    #[inline(always)]
    fn is_left_to_next_turn(&self, index: u32) -> bool {
        self.sched.turn_bytes <= 0 && self.sources[index].has(FULL)
    }

    #[inline(never)]
    fn try_reads_now(&mut self, index: u32) {
        let mut left = self.config.source_budget;
        if K::COMPLETES {
            // The kernel has declined the first read, and is not asked for it again.
            self.attempt_read(index, &mut left);
        }
        if !K::COMPLETES || self.sched.turn_bytes > 0 {
            self.run_reads(index, &mut left);
        }
        self.requeue(index);
    }

    pub(in crate::proactor) fn finish_write_start(
        &mut self,
        index: u32,
        ticket: Ticket,
        due_ns: u64,
    ) {
        if std::mem::take(&mut self.ops.exceeds) {
            return self.end_source(index, ErrorKind::Overflow);
        }
        // We try the operation now if all writes before it are out. If they are not, the direction
        // is not worth trying, or the source is in the ready queue.
        if self.sources[index].can_write() && !self.sources[index].has(QUEUED) {
            let mut left = self.config.source_budget.min(MOST_COPIED);
            self.run_writes(index, &mut left);
            self.requeue(index);
        }
        self.set_deadline(ticket, due_ns);
    }
}
