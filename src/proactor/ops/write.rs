//! Writes of bytes.
//!
//! Most messages take the usual write: nothing is queued before it on a stream socket, and it goes
//! out whole at submission. Every instruction in it counts. All other cases go on in separate
//! functions with the same arguments, so that it saves few registers.

#![allow(unsafe_code)]
//! # Safety
//!
//! The usual write builds its completion in the batch, where room was made for it before.

use std::io::IoSlice;

use crate::completion::{Completion, Done};
use crate::kernel::{Calls, Kernel};
use crate::memory::buf::Buf;
use crate::op::operation::{InFlight, Operation};
use crate::op::{self, Op, OpCode};
use crate::proactor::Proactor;
use crate::proactor::ops::Submitted;
use crate::proactor::ops::reads::BULK;
use crate::proactor::ops::submit::{MOST_BYTES, check_most};
use crate::proactor::ops::writes::cost;
use crate::proactor::parts::report::Stats;
use crate::proactor::parts::state::{
    BYTES, CLOSING, FULL, QUIET, STREAM, SourceState, WRITABLE, WRITE_PAUSED, WRITES,
};
use crate::sys::descriptor::VECTORS;
use crate::sys::fd::RawFd;
use crate::sys::fork;
use crate::words::explain::Explain;
use crate::words::source::{Source, SourceKind, Ticket};
use crate::words::table::{NIL, Table};

/// The flags that decide whether a write is the usual one, and the values that they must have.
const WRITE_FLAGS: u32 = USUAL_WRITE | WRITE_PAUSED | CLOSING | WRITES | QUIET;

const USUAL_WRITE: u32 = BYTES | STREAM | WRITABLE;

impl<K: Kernel> Proactor<K> {
    /// The descriptor, if a write is the usual one: its source is a stream socket, and nothing is
    /// queued before it.
    #[inline(always)]
    fn usual_write(&mut self, source: Source, buf: &Buf) -> Option<RawFd> {
        if self.sources.forks.generation == fork::generation()
            && let Some(state) = self.sources.table.find(source.index(), source.generation())
            // The loop sends bulk data itself: see `begin_read`.
            && (!K::COMPLETES
                || state.kind() == SourceKind::UnixStream
                || state.has(FULL) && buf.as_slice().len() >= BULK as usize)
            && state.flags & WRITE_FLAGS == USUAL_WRITE
            // 1 to MOST_BYTES bytes; for a list `as_slice` is empty.
            && buf.as_slice().len().wrapping_sub(1) < MOST_BYTES
        {
            return Some(state.fd);
        }
        None
    }

    /// The usual write finds nothing queued before it and goes out whole.
    #[inline(never)]
    pub(in crate::proactor) fn submit_write(
        &mut self,
        source: Source,
        token: u64,
        due_ns: u64,
        buf: Buf,
    ) -> Option<Ticket> {
        let Some(fd) = self.usual_write(source, &buf) else {
            return self.submit_write_slowly(source, token, due_ns, buf, false);
        };
        if !self.outbox.batch.has_room() {
            return self.make_room_and_submit(source, token, due_ns, buf);
        }
        let len = buf.as_slice().len();
        let ticket = self.outbox.placeless_ticket();
        let result = Ok(Done::Written { buf, bytes: len as u32 });
        let done = Completion::new(OpCode::Write, source, ticket, token, result);
        // Built before the attempt, so that no part of it needs a register across the call.
        // SAFETY: there is room: made right above.
        let bytes = unsafe { self.outbox.batch.stage(done) }.written();
        let moved = self.kernel.calls_mut().send(fd, SourceKind::Stream, bytes);
        // `bytes` stays in its registers, `len` would need one more.
        if moved != bytes.len() as isize {
            // SAFETY: the completion was staged right above.
            return unsafe { self.submit_rest_of_write(due_ns, moved) };
        }
        self.stats.inline_writes += 1;
        // SAFETY: staged above, and the attempt has added no completion.
        unsafe { self.outbox.batch.put_staged() };
        Some(self.outbox.last_placeless_ticket())
    }

    /// As [`submit_write`](Self::submit_write), for one that makes no completion if it succeeds.
    #[inline(never)]
    pub(in crate::proactor) fn submit_quiet_write(
        &mut self,
        source: Source,
        token: u64,
        due_ns: u64,
        buf: Buf,
    ) -> Option<Ticket> {
        let Some(fd) = self.usual_write(source, &buf) else {
            return self.submit_write_slowly(source, token, due_ns, buf, true);
        };
        // The write may fail, and then needs room for its completion.
        if self.outbox.batch.is_full() {
            return self.refuse_write(buf);
        }
        let bytes = buf.as_slice();
        let len = bytes.len();
        let moved = self.kernel.calls_mut().send(fd, SourceKind::Stream, bytes);
        if moved != len as isize {
            return self.queue_rest_of_write(source, token, due_ns, buf, moved, true);
        }
        self.stats.inline_quiet_writes += 1;
        // The state is whole: the owner's `Drop` is code of the program.
        buf.discard();
        Some(self.outbox.placeless_ticket())
    }

    #[cold]
    #[inline(never)]
    fn make_room_and_submit(
        &mut self,
        source: Source,
        token: u64,
        due_ns: u64,
        buf: Buf,
    ) -> Option<Ticket> {
        if self.outbox.batch.make_room_within_limit() {
            self.submit_write(source, token, due_ns, buf)
        } else {
            self.refuse_write(buf)
        }
    }

    #[cold]
    #[inline(never)]
    fn refuse_write(&mut self, buf: Buf) -> Option<Ticket> {
        self.outbox.refusal = (self.outbox.full(), buf);
        None
    }

    /// Only a part of the usual write went out, or none: queues the rest, and takes the staged
    /// completion back.
    ///
    /// # Safety
    /// The completion of the write is staged.
    #[cold]
    #[inline(never)]
    unsafe fn submit_rest_of_write(&mut self, due_ns: u64, moved: isize) -> Option<Ticket> {
        // SAFETY: the same promise.
        let mut done = unsafe { self.outbox.batch.take_staged() };
        let (source, token, buf) = (done.source, done.token, done.take_buf());
        self.queue_rest_of_write(source, token, due_ns, buf, moved, false)
    }

    #[cold]
    #[inline(never)]
    fn queue_rest_of_write(
        &mut self,
        source: Source,
        token: u64,
        due_ns: u64,
        buf: Buf,
        moved: isize,
        quiet: bool,
    ) -> Option<Ticket> {
        let mut buf = buf; // see `submit_write_slowly`
        let answer = self.queue_write(source.index(), token, due_ns, &mut buf, moved, quiet);
        answer.map_err(|reason| self.outbox.refusal = (reason, buf)).ok()
    }

    #[cold]
    #[inline(never)]
    pub(in crate::proactor) fn submit_write_slowly(
        &mut self,
        source: Source,
        token: u64,
        due_ns: u64,
        buf: Buf,
        quiet: bool,
    ) -> Option<Ticket> {
        // Not `mut buf` above: then each caller would copy the buffer, and need a stack for it.
        let mut buf = buf;
        let answer = self.start_write(source, token, due_ns, &mut buf, quiet);
        answer.map_err(|reason| self.outbox.refusal = (reason, buf)).ok()
    }

    /// Accepts a write that takes a slot, if only for its first attempt.
    pub(super) fn submit_write_in_slot(&mut self, op: &mut Op) -> Submitted {
        let quiet = op.flags & op::QUIET != 0;
        self.start_write(op.source, op.token, op.deadline_ns, &mut op.buf, quiet)
    }

    fn start_write(
        &mut self,
        source: Source,
        token: u64,
        due_ns: u64,
        buf: &mut Buf,
        quiet: bool,
    ) -> Submitted {
        let index = self.reader(source)?;
        check_most(buf.len())?;
        let token = self.sources.token(source, token);
        self.queue_write(index, token, due_ns, buf, 0, quiet)
    }

    /// Accepts a write of which `moved` bytes are out, or whose attempt answered `-errno`; 0 says
    /// that it was not tried.
    #[cold]
    #[inline(never)]
    pub(in crate::proactor) fn queue_write(
        &mut self,
        index: u32,
        token: u64,
        due_ns: u64,
        buf: &mut Buf,
        moved: isize,
        quiet: bool,
    ) -> Submitted {
        let offered = buf.len();
        // A write that is partly sent cannot be refused. It may exceed the bound, once for each
        // source.
        let ticket = self.push_write(OpCode::Write, index, token, buf, moved > 0)?;
        self.ops[ticket.index()].quiet = quiet;
        if moved != 0 {
            self.wrote(index, ticket.index(), moved, offered);
        }
        let exceeds = self.ops.exceeds;
        if offered == 0 {
            self.need_no_room(index);
        }
        self.finish_write_start(index, ticket, due_ns);
        if !exceeds && self.ops.table.find(ticket.index(), ticket.generation()).is_none() {
            // The write was sent at submission after all: it is a list, or its source is no stream.
            self.stats.submitted[OpCode::Write as usize] -= 1;
            self.stats.inline_writes += 1;
        }
        Ok(ticket)
    }

    /// Queues a write, if the source's bound allows it. Its bytes count as queued until they are
    /// sent.
    pub(super) fn push_write(
        &mut self,
        code: OpCode,
        index: u32,
        token: u64,
        buf: &mut Buf,
        anyway: bool,
    ) -> Submitted {
        let ticket = self.push_bytes(code, index, token, buf.len(), anyway)?;
        self.ops[ticket.index()].buf = buf.take();
        self.keep_to_share(index, ticket.index());
        Ok(ticket)
    }

    pub(in crate::proactor) fn run_write(&mut self, index: u32, slot: u32, left: &mut usize) {
        let (state, op) = (&self.sources[index], &self.ops[slot]);
        if is_nothing(state, op) {
            self.advance(index, slot, 0);
            return;
        }
        if state.has(STREAM) && (op.next != NIL || op.buf.is_list()) {
            return self.run_write_queue(index, left);
        }
        let from = op.moved as usize;
        let split = op.buf.parts().len() > VECTORS;
        let (moved, offered) = if split && state.kind().is_message() {
            // A message is not cut to the size that one call takes.
            let whole = gather(&op.buf);
            self.stats.counters.copied_bytes += whole.len() as u64;
            (self.kernel.calls_mut().send(state.fd, state.kind(), &whole), whole.len())
        } else if op.buf.is_list() && !op.buf.is_empty() {
            let parts = WriteParts::of(&op.buf, from);
            let moved =
                self.kernel.calls_mut().send_vectored(state.fd, state.kind(), parts.as_slice());
            (moved, parts.bytes)
        } else {
            let bytes = &op.buf[from..];
            // A message is not cut to its source's share.
            let most = if state.has(STREAM) { *left } else { usize::MAX };
            let bytes = &bytes[..bytes.len().min(most)];
            (self.kernel.calls_mut().send(state.fd, state.kind(), bytes), bytes.len())
        };
        *left = left.saturating_sub(cost(moved));
        self.wrote(index, slot, moved, offered);
    }

    /// An attempt to write `offered` bytes has moved some, or answered `-errno`.
    pub(in crate::proactor) fn wrote(
        &mut self,
        index: u32,
        slot: u32,
        moved: isize,
        offered: usize,
    ) {
        if moved < 0 {
            return self.write_stopped(index, slot, moved);
        }
        if self.advance(index, slot, moved as u32) {
            return;
        }
        // A stream that took less than it was offered is full; of others only EAGAIN says so.
        if self.sources[index].has(STREAM) && (moved as usize) < offered {
            self.block_write(index);
        }
    }

    /// Notes that `moved` more bytes of a write were sent. True if the write is done.
    pub(in crate::proactor) fn advance(&mut self, index: u32, slot: u32, moved: u32) -> bool {
        if moved > 0 {
            self.note_bytes(index, WRITE_PAUSED);
        }
        let op = &mut self.ops[slot];
        op.moved += moved;
        let done = op.moved as usize == op.buf.len();
        if done && op.quiet && op.in_flight != InFlight::Cancelled {
            self.finish_quietly(index, slot, moved);
        } else if done {
            let (buf, bytes, address) = (op.buf.take(), op.moved, op.address.take());
            // Descriptors that were passed are closed here.
            self.memory.keep_address(address);
            self.finish_write(index, slot, Ok(Done::Written { buf, bytes }));
            self.unqueue(index, moved);
        } else {
            self.unqueue(index, moved);
        }
        done
    }

    /// The last `moved` bytes of a quiet write went out: it ends without a completion.
    fn finish_quietly(&mut self, index: u32, slot: u32, moved: u32) {
        let buf = self.ops[slot].buf.take();
        self.remove(slot);
        self.stats.quiet_done += 1;
        self.unqueue(index, moved);
        // Last, because the owner's `Drop` is code of the program.
        buf.discard();
    }

    /// Notes that `moved` more bytes of the writes at the head of the queue were sent.
    pub(in crate::proactor) fn advance_queue(&mut self, index: u32, moved: u32) {
        let mut rest = moved;
        while rest > 0 {
            let head = self.sources[index].writes.head;
            let op = &self.ops[head];
            let share = rest.min((op.buf.len() - op.moved as usize) as u32);
            rest -= share;
            self.advance(index, head, share);
        }
        // Empty writes behind these need no attempt of their own.
        while let head = self.sources[index].writes.head
            && head != NIL
            && self.ops[head].code == OpCode::Write
            && self.ops[head].in_flight == InFlight::No
            && is_nothing(&self.sources[index], &self.ops[head])
        {
            self.advance(index, head, 0);
        }
    }

    /// One attempt for the writes at the head of the queue of a stream: as many of them as one call
    /// and `left` take.
    fn run_write_queue(&mut self, index: u32, left: &mut usize) {
        let state = &mut self.sources[index];
        let parts = WriteParts::of_writes(&self.ops.table, state.writes.head, *left);
        let offered = parts.bytes;
        let moved = match parts.as_slice() {
            [one] => self.kernel.calls_mut().send(state.fd, state.kind(), one),
            many => self.kernel.calls_mut().send_vectored(state.fd, state.kind(), many),
        };
        *left = left.saturating_sub(cost(moved));
        let head = state.writes.head;
        if moved < 0 {
            return self.write_stopped(index, head, moved);
        }
        self.advance_queue(index, moved as u32);
        if (moved as usize) < offered {
            self.block_write(index);
        }
    }
}

/// Whether a write has nothing to send: it is empty, and not a message.
#[inline]
pub(in crate::proactor) fn is_nothing(state: &SourceState, write: &Operation) -> bool {
    write.buf.is_empty() && !state.kind().is_message()
}

/// The bytes of a list in one piece.
#[cold]
fn gather(list: &Buf) -> Vec<u8> {
    list.parts().iter().flat_map(Buf::as_slice).copied().collect()
}

/// The bytes that one call takes, as slices of the buffers they stand in.
pub(in crate::proactor) struct WriteParts<'a> {
    items: [IoSlice<'a>; VECTORS],
    count: usize,
    /// How many bytes they are.
    pub(in crate::proactor) bytes: usize,
}

impl<'a> WriteParts<'a> {
    fn none() -> WriteParts<'a> {
        WriteParts { items: [IoSlice::new(&[]); VECTORS], count: 0, bytes: 0 }
    }

    pub(in crate::proactor) fn as_slice(&self) -> &[IoSlice<'a>] {
        &self.items[..self.count]
    }

    /// Adds a buffer from byte `from` on, up to `most` bytes in all. False when these bytes or the
    /// entries are used up.
    fn add(&mut self, buf: &'a Buf, mut from: usize, most: usize) -> bool {
        for part in buf.parts() {
            let bytes = &part.as_slice()[from.min(part.len())..];
            from -= part.len() - bytes.len();
            if bytes.is_empty() {
                continue;
            }
            if self.count == VECTORS || self.bytes >= most {
                return false;
            }
            let bytes = &bytes[..bytes.len().min(most - self.bytes)];
            self.items[self.count] = IoSlice::new(bytes);
            self.count += 1;
            self.bytes += bytes.len();
        }
        true
    }

    /// The parts of a list from byte `from` on.
    fn of(buf: &'a Buf, from: usize) -> WriteParts<'a> {
        let mut parts = WriteParts::none();
        parts.add(buf, from, usize::MAX);
        parts
    }

    /// The unsent bytes of the writes from `head` on, at most `most` bytes.
    pub(in crate::proactor) fn of_writes(
        slots: &'a Table<Operation>,
        head: u32,
        most: usize,
    ) -> WriteParts<'a> {
        let mut parts = WriteParts::none();
        let mut slot = head;
        while slot != NIL && slots[slot].code == OpCode::Write {
            let op = &slots[slot];
            if !parts.add(&op.buf, op.moved as usize, most) {
                break;
            }
            slot = op.next;
        }
        parts
    }
}

/// How the driver serves these operations, and how often.
pub(super) fn explain(stats: &Stats, explain: &mut Explain) {
    let inline = stats.inline_writes + stats.inline_quiet_writes;
    let first = "nothing was queued before it";
    explain.row("write", "send / sendmsg at submission", first, inline);
    let after = "behind other writes, or the socket was full";
    explain.row("write", "send / sendmsg from the queue", after, stats.count(OpCode::Write));
}
