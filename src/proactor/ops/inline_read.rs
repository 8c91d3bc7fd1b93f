//! The usual read: it rests in its source, and takes no slot. Most messages are read by it, so
//! every instruction in it counts.
//!
//! ```text
//!   submit_plain_read ──▶ rests in the source ──event──▶ run_inline_read ──▶ batch
//!                              │ deadline, cancel …          │ anything unusual
//!                              ▼                             ▼
//!                          fail_inline_read                inline_read_done, inline_read_stopped
//! ```
//!
//! All other cases go on in separate functions, so that the functions here save few registers.

#![allow(unsafe_code)]
//! # Safety
//!
//! The number of bytes that a kernel reports becomes the length of a lease: implementers of
//! `Kernel` promise that it is right. The usual read writes its completion into room that the batch
//! has reserved.

use crate::completion::{Completion, Done};
use crate::kernel::{Calls, Kernel, Received};
use crate::memory::buf::swap::Pool;
use crate::memory::buf::{Buf, Target};
use crate::op::OpCode;
use crate::proactor::Proactor;
use crate::proactor::parts::state::{
    BYTES, CLOSING, CONNECTING, FULL, HELD, INLINE_MULTISHOT, INLINE_READ, PLAIN, POLLS, QUIET,
    READ_PAUSED, READABLE, READS, REGISTERED, STREAM, UNSETTLED, WAITING, WRITES, stream_kind,
};
use crate::sys::fork;
use crate::sys::interest::Ready;
use crate::words::error::{Error, ErrorKind};
use crate::words::source::{Source, Ticket};

/// The usual source of an event has all flags of `USUAL`, and none of `OTHER`.
const USUAL: u32 = READABLE | REGISTERED | STREAM | INLINE_READ;
const OTHER: u32 = UNSETTLED | WAITING | HELD | READ_PAUSED | READS | WRITES | POLLS;
// One comparison checks the source and its event: all conditions but "readable" and "writable" have
// the bits of flags in `OTHER`.
const _: () = assert!(Ready::ALL.difference(PLAIN).bits() as u32 & !OTHER == 0);

impl<K: Kernel> Proactor<K> {
    /// The usual read is submitted when no bytes have arrived: it rests in its source.
    #[inline(never)]
    pub(in crate::proactor) fn submit_plain_read(
        &mut self,
        source: Source,
        token: u64,
    ) -> Option<Ticket> {
        if self.sources.forks.generation == fork::generation()
            && let Some(state) = self.sources.table.find(source.index(), source.generation())
            && state.flags & (BYTES | CLOSING | CONNECTING | INLINE_READ | READS | READABLE | QUIET)
                == BYTES
        {
            self.stats.submitted[OpCode::Read as usize] += 1;
            return Some(state.start_inline(source.index(), token, false));
        }
        self.submit_read(source, token, 0, false)
    }

    /// Applies an event. If it is the usual one (a stream socket whose inline read finds bytes, and
    /// nothing else to be done), runs the source. False for any other event: then the event was
    /// applied, and nothing else was done.
    ///
    /// # Safety
    /// There is room in the batch for a completion of each event that is still to come; there still
    /// is afterwards.
    #[inline(always)]
    pub(in crate::proactor) unsafe fn run_inline_read(&mut self, key: u64, ready: Ready) -> bool {
        let index = key as u32;
        let Some(state) = self.sources.table.find_key(index, (key >> 32) as u32) else {
            return false;
        };
        let flags = state.flags | u32::from(ready.bits());
        if flags & (USUAL | OTHER) != USUAL {
            return self.run_unusual(index, ready);
        }
        let at_hand = self.memory.pool.space_at_hand();
        let Some((start, room)) =
            at_hand.or_else(|| next_buffer(&mut self.memory.pool, &mut self.sched.turn_bytes))
        else {
            state.flags = flags;
            return false;
        };
        // SAFETY: the pool lends `room` bytes at `start` until `commit`.
        let target = unsafe { Target::from_raw(start, room as usize) };
        let got = self.kernel.calls_mut().recv(state.fd, stream_kind(flags), target);
        // `cut` comes first: of TCP the compiler knows it.
        if got.cut || got.moved <= 0 || got.moved >= room as isize {
            state.flags = flags;
            return self.run_inline_read_on(index, got.moved, got.cut, room);
        }
        let len = got.moved as u32;
        let more = flags & INLINE_MULTISHOT != 0;
        // As `settle` does after a short read.
        let mut flags = flags & !(INLINE_READ | READABLE | FULL | QUIET);
        if more {
            // A multishot read stays in its source.
            flags |= INLINE_READ;
            self.stats.continued += 1;
        }
        state.flags = flags;
        let (source, token) = (state.name(index), state.read_token);
        let ticket = state.inline_ticket(index);
        // SAFETY: the kernel has written `len` bytes of the space.
        let data = unsafe { Buf::from_pool(&mut self.memory.pool, len) };
        let result = Ok(Done::Read(data));
        let done = Completion::new(OpCode::Read, source, ticket, token, result).with_more(more);
        // SAFETY: the caller's promise; nothing was added since.
        unsafe { self.outbox.batch.put(done) };
        true
    }

    /// As `run_inline_read`, for unusual events. If the event reports an end, the inline read runs,
    /// and usually finds that end.
    #[inline(never)]
    fn run_unusual(&mut self, index: u32, ready: Ready) -> bool {
        let state = &mut self.sources[index];
        if state.apply(ready) & (USUAL | OTHER) != USUAL | UNSETTLED {
            state.note_polls();
            return false;
        }
        let Some((start, room)) = self.memory.pool.space_at_hand() else { return false };
        let got = self.receive(index, start, room);
        self.run_inline_read_on(index, got.moved, got.cut, room)
    }

    /// The attempt of `run_inline_read` has met something unusual.
    #[cold]
    #[inline(never)]
    fn run_inline_read_on(&mut self, index: u32, moved: isize, cut: bool, room: u32) -> bool {
        let got = Received { cut, ..Received::plain(moved) };
        if got.moved <= 0 {
            self.inline_read_stopped(index, got);
            if !K::EDGES && got.moved == -(libc::EAGAIN as isize) {
                self.pause_vain(index, READABLE);
            }
        } else {
            self.inline_read_done(index, got, room);
        }
        self.requeue(index);
        // Fewer events than that are still to come.
        self.outbox.batch.reserve(self.sched.events);
        true
    }

    /// The inline read has bytes.
    pub(in crate::proactor) fn inline_read_done(&mut self, index: u32, got: Received, room: u32) {
        let len = got.moved as u32;
        let state = &mut self.sources[index];
        state.settle(len, room, got.cut);
        let more = state.has(INLINE_MULTISHOT);
        if !more {
            state.flags &= !INLINE_READ;
        }
        let (source, token) = (state.name(index), state.read_token);
        let ticket = state.inline_ticket(index);
        // SAFETY: the kernel has written `len` bytes of the space, and of the spill behind it.
        let data = unsafe { self.lease(len, room) };
        self.sched.turn_bytes -= len as isize;
        self.time.moved(source, READ_PAUSED);
        self.stats.continued += u64::from(more);
        let result = Ok(Done::Read(data));
        self.outbox
            .batch
            .push(Completion::new(OpCode::Read, source, ticket, token, result).with_more(more));
    }

    /// Handles an attempt of the inline read that moved nothing.
    #[cold]
    #[inline(never)]
    pub(in crate::proactor) fn inline_read_stopped(&mut self, index: u32, got: Received) {
        if got.end {
            // An empty buffer would be an empty record.
            self.fail_inline_read(index, ErrorKind::Eof);
        } else if got.moved == 0 {
            let state = &mut self.sources[index];
            let (source, ticket) = (state.name(index), state.inline_ticket(index));
            let token = state.read_token;
            // An empty message is not the end of anything.
            let message = state.kind().is_message();
            let more = state.has(INLINE_MULTISHOT) && message;
            if !more {
                state.flags &= !(INLINE_READ | INLINE_MULTISHOT);
            }
            state.settle(0, 0, false);
            if message {
                self.note_bytes(index, READ_PAUSED)
            } else {
                self.note_reading(index)
            }
            self.stats.continued += u64::from(more);
            let eof = Ok(Done::Read(Buf::NONE));
            self.outbox
                .batch
                .push(Completion::new(OpCode::Read, source, ticket, token, eof).with_more(more));
        } else if let Some(kind) = self.read_blocked(index, got.moved) {
            self.fail_inline_read(index, kind);
        }
    }

    /// Ends the inline read.
    pub(in crate::proactor) fn fail_inline_read(&mut self, index: u32, kind: ErrorKind) {
        let state = &mut self.sources[index];
        state.flags &= !(INLINE_READ | INLINE_MULTISHOT);
        let (source, ticket) = (state.name(index), state.inline_ticket(index));
        let token = state.read_token;
        let error = Error::new(kind, 0, Buf::NONE);
        self.outbox.push(OpCode::Read, source, ticket, token, Err(error));
        if self.outbox.batch.is_full() {
            // A read that comes to rest skips the check for waiting completions: the next
            // submission checks.
            self.sources[index].flags |= READABLE;
        }
        if !self.sched.waits.is_empty() {
            self.stop_waiting(index);
        }
        self.note_reading(index);
    }
}

/// Opens another swap buffer for the usual reads, if the turn's share of bytes is not used up.
#[cold]
#[inline(never)]
fn next_buffer(pool: &mut Pool, turn_bytes: &mut isize) -> Option<(*mut u8, u32)> {
    if *turn_bytes <= 0 {
        return None;
    }
    *turn_bytes -= pool.chunk_bytes() as isize;
    pool.space()
}
