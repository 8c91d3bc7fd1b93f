//! Reads of bytes: into a lease, into a buffer, or until a buffer is full.
//!
//! The usual read of a message rests in its source: see `inline_read.rs`. This file has all other
//! reads.

#![allow(unsafe_code)]
//! # Safety
//!
//! What a kernel says it has written becomes the length of a lease or a vector: the promise of
//! `Kernel`'s implementers.

use crate::completion::Done;
use crate::kernel::{Calls, Kernel, Received};
use crate::memory::buf::{Buf, Target};
use crate::op::operation::Operation;
use crate::op::{Op, OpCode};
use crate::proactor::Proactor;
use crate::proactor::ops::Submitted;
use crate::proactor::ops::reads::BULK;
use crate::proactor::ops::submit::{MOST_BYTES, check_len};
use crate::proactor::parts::report::Stats;
use crate::proactor::parts::state::{FULL, READ_PAUSED};
use crate::sys::descriptor::VECTORS;
use crate::sys::fd::RawFd;
use crate::words::error::{ErrorKind, Refusal};
use crate::words::explain::Explain;
use crate::words::source::{Source, SourceKind, Ticket};

/// What an attempt that moves nothing counts for in a source's share.
pub(in crate::proactor) const EMPTY_COST: usize = 1024;

impl<K: Kernel> Proactor<K> {
    /// Accepts a read without a buffer. If it is refused, the reason is in the outbox.
    #[inline(never)]
    pub(in crate::proactor) fn submit_read(
        &mut self,
        source: Source,
        token: u64,
        due_ns: u64,
        multishot: bool,
    ) -> Option<Ticket> {
        let checked = self.reader(source).and_then(|index| {
            self.check_completions()?;
            Ok(index)
        });
        let index = match checked {
            Ok(index) => index,
            Err(reason) => return self.refuse_read(reason),
        };
        let token = self.sources.token(source, token);
        let state = &mut self.sources[index];
        if !(K::COMPLETES || due_ns != 0 || state.has_reads()) {
            self.stats.submitted[OpCode::Read as usize] += 1;
            let ticket = state.start_inline(index, token, multishot);
            self.note_reading(index);
            self.try_reads(index);
            return Some(ticket);
        }
        match self.occupy(OpCode::Read, index, token) {
            Ok(ticket) => {
                self.ops[ticket.index()].multishot = multishot;
                Some(self.start_read(index, ticket, due_ns))
            }
            Err(reason) => self.refuse_read(reason),
        }
    }

    #[cold]
    fn refuse_read(&mut self, reason: Refusal) -> Option<Ticket> {
        self.outbox.refusal = (reason, Buf::NONE);
        None
    }

    /// Accepts a read that takes a slot instead of resting in its source.
    pub(super) fn submit_read_in_slot(&mut self, op: &Op) -> Submitted {
        let index = self.reader(op.source)?;
        let token = self.sources.token(op.source, op.token);
        let ticket = self.place(OpCode::Read, index, token)?;
        self.ops[ticket.index()].multishot = op.is_multishot();
        Ok(self.start_read(index, ticket, op.deadline_ns))
    }

    /// Accepts a read into the operation's own buffer.
    #[inline(never)]
    pub(in crate::proactor) fn submit_read_with_buffer(
        &mut self,
        op: &mut Op,
        token: u64,
    ) -> Submitted {
        let index = self.reader(op.source)?;
        match op.code {
            OpCode::ReadAppend => self.check_append(index, &op.buf)?,
            OpCode::ReadExact => check_exact(op.count as usize, &op.buf)?,
            _ => check_len(op.buf.capacity())?,
        }
        let ticket = self.place(op.code, index, token)?;
        let entry = &mut self.ops[ticket.index()];
        // For a read behind the bytes of a buffer, `count` says how many these are.
        entry.count = if op.code == OpCode::ReadAppend { op.buf.len() as u32 } else { op.count };
        entry.buf = op.buf.take();
        Ok(self.start_read(index, ticket, op.deadline_ns))
    }

    /// One attempt of a read that has a slot.
    #[inline(always)]
    pub(in crate::proactor) fn run_read_op(&mut self, index: u32, slot: u32, left: &mut usize) {
        match self.ops[slot].code {
            OpCode::Read => self.run_read(index, slot, left),
            OpCode::ReadAppend => self.run_append(index, slot, left),
            _ => self.run_read_into(index, slot, left),
        }
    }

    /// The kernel has received bytes for the read at the head of a source's queue: into `data` if
    /// the kernel has chosen the buffer. `more` says that the read goes on, `ending` how it is to
    /// end.
    pub(in crate::proactor) fn read_op_answered(
        &mut self,
        index: u32,
        slot: u32,
        moved: u32,
        data: Buf,
        more: bool,
        ending: Option<ErrorKind>,
    ) {
        let op = &mut self.ops[slot];
        if moved >= BULK && !op.multishot {
            self.sources[index].flags |= FULL;
        }
        match op.code {
            OpCode::Read => {
                // A multishot read that was told to end ends with the last answer.
                let goes_on = op.multishot;
                self.finish_read(index, slot, Ok(Done::Read(data)));
                if more
                    && ending.is_none()
                    && (self.memory.pool.is_scarce() || self.holds_share(index))
                {
                    // The kernel does not know the shares, so from now on the loop decides before
                    // each piece.
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
            OpCode::ReadAppend => self.append_answered(index, slot, moved, data),
            code => {
                op.moved += moved;
                if code == OpCode::ReadExact && op.moved < op.count {
                    return ending.into_iter().for_each(|kind| self.fail(slot, kind));
                }
                let mut buf = op.buf.take();
                // SAFETY: the kernel has written `moved` bytes from the start.
                unsafe { buf.set_filled(op.moved as usize) };
                self.finish_read(index, slot, Ok(Done::Read(buf)));
            }
        }
    }

    /// The read at the head of a source's queue has met the end of the bytes.
    pub(in crate::proactor) fn read_op_ended(&mut self, index: u32, slot: u32) {
        let message = self.sources[index].kind().is_message();
        match self.ops[slot].code {
            // An empty message adds no bytes.
            OpCode::ReadExact if message => {}
            OpCode::ReadExact => self.fail(slot, ErrorKind::Eof),
            OpCode::ReadAppend => {
                let buf = self.ops[slot].buf.take();
                self.finish_read(index, slot, Ok(Done::Appended { buf, bytes: 0 }));
            }
            _ => {
                self.ops[slot].multishot &= message;
                let mut buf = self.ops[slot].buf.take();
                // SAFETY: no bytes.
                unsafe { buf.set_filled(0) };
                self.finish_read(index, slot, Ok(Done::Read(buf)));
            }
        }
    }

    /// A read without a buffer that has a slot: behind another, or with a deadline.
    pub(super) fn run_read(&mut self, index: u32, slot: u32, left: &mut usize) {
        let Some((start, room)) = self.memory(index) else { return };
        let got = self.receive(index, start, room);
        if got.moved <= 0 {
            return self.read_stopped(index, slot, got);
        }
        let len = got.moved as u32;
        self.sources[index].settle(len, room, got.cut);
        // SAFETY: the kernel has written `len` bytes of the space, and of the spill behind it.
        let data = unsafe { self.lease(len, room) };
        *left = left.saturating_sub(len as usize);
        self.sched.turn_bytes -= len as isize;
        self.finish_read(index, slot, Ok(Done::Read(data)));
    }

    /// One attempt of a `ReadInto` or a `ReadExact`.
    fn run_read_into(&mut self, index: u32, slot: u32, left: &mut usize) {
        let state = &mut self.sources[index];
        let op = &mut self.ops[slot];
        let from = op.moved as usize;
        let most = if op.code == OpCode::ReadExact { op.count as usize - from } else { usize::MAX };
        let (got, room) = if op.buf.is_list() {
            let parts = op.buf.parts().len();
            if state.kind().is_message() && parts > VECTORS {
                // Bytes of a message that one call leaves are lost; those of a stream are not.
                let mut targets = Target::nones(parts);
                let count = op.buf.targets(from, most, &mut targets);
                let to = &mut targets[..count];
                let room = to.iter().map(Target::len).sum();
                let got = recv_whole(self.kernel.calls_mut(), state.fd, state.kind(), to, room);
                self.stats.counters.copied_bytes += got.moved.max(0) as u64;
                (got, room)
            } else {
                let mut targets = [const { Target::NONE }; VECTORS];
                let count = op.buf.targets(from, most, &mut targets);
                let to = &mut targets[..count];
                let room = to.iter().map(Target::len).sum();
                (self.kernel.calls_mut().recv_vectored(state.fd, state.kind(), to), room)
            }
        } else {
            let target = op.buf.target(from, most);
            let room = target.len();
            (self.kernel.calls_mut().recv(state.fd, state.kind(), target), room)
        };
        if got.moved <= 0 {
            return self.read_stopped(index, slot, got);
        }
        let len = got.moved as usize;
        state.settle(len as u32, room as u32, got.cut);
        op.moved += len as u32;
        *left = left.saturating_sub(len);
        self.sched.turn_bytes -= len as isize;
        if op.code == OpCode::ReadExact && op.moved < op.count {
            return self.time.moved(state.name(index), READ_PAUSED);
        }
        let mut buf = op.buf.take();
        // SAFETY: the kernel has written `moved` bytes from the start.
        unsafe { buf.set_filled(op.moved as usize) };
        self.finish_read(index, slot, Ok(Done::Read(buf)));
    }
}

/// Whether a read takes memory of the pool.
pub(in crate::proactor) fn takes_lease(op: &Operation) -> bool {
    match op.code {
        OpCode::Read => true,
        OpCode::ReadAppend => op.buf.is_unique_lease(),
        _ => false,
    }
}

/// The memory for a read that the kernel completes: `Some(None)` for a buffer of the kernel's
/// choice; `None` if the loop reads by itself.
#[allow(clippy::option_option)] // three answers, which `start_recv` takes apart
pub(in crate::proactor) fn kernel_target(op: &mut Operation) -> Option<Option<Target<'_>>> {
    match op.code {
        OpCode::Read => Some(None),
        // Into a buffer of the kernel's: an idle source holds none.
        OpCode::ReadAppend if op.buf.is_unique_lease() => Some(None),
        OpCode::ReadAppend => Some(Some(op.buf.target(op.count as usize, usize::MAX))),
        _ if op.buf.is_list() => None,
        OpCode::ReadInto => Some(Some(op.buf.target(0, usize::MAX))),
        OpCode::ReadExact => {
            let from = op.moved as usize;
            Some(Some(op.buf.target(from, op.count as usize - from)))
        }
        _ => None,
    }
}

/// Whether a read has rested in its source when it was submitted, and has a slot now.
#[inline(always)]
pub(in crate::proactor) fn was_inline(op: &Operation) -> bool {
    op.code == OpCode::Read && op.count != 0
}

/// Whether a read can fill `count` bytes of its buffer.
fn check_exact(count: usize, buf: &Buf) -> Result<(), Refusal> {
    if count > MOST_BYTES && buf.capacity() > MOST_BYTES {
        return Err(Refusal::TooLong);
    }
    if count == 0 || count > buf.capacity() { Err(Refusal::BadCount) } else { Ok(()) }
}

/// Receives one message into more targets than a call takes: first into one buffer, then copied to
/// the targets.
#[cold]
fn recv_whole<C: Calls>(
    calls: &mut C,
    fd: RawFd,
    kind: SourceKind,
    targets: &mut [Target<'_>],
    room: usize,
) -> Received {
    let mut whole = Buf::from(Vec::<u8>::with_capacity(room));
    let got = calls.recv(fd, kind, whole.target(0, room));
    // SAFETY: the kernel has written `moved` bytes from the start.
    unsafe { whole.set_filled(got.moved.max(0) as usize) };
    let mut rest = whole.as_slice();
    for target in targets {
        rest = &rest[target.write(rest)..];
    }
    got
}

/// How the driver serves these operations, and how often.
pub(super) fn explain(stats: &Stats, explain: &mut Explain) {
    let read = "tried at submission; what would block waits for the edge";
    explain.row("read", "recv / read into a lease", read, stats.count(OpCode::Read));
    let own = "tried at submission, into the operation's own buffer";
    let codes = [OpCode::ReadInto, OpCode::ReadAppend, OpCode::ReadExact];
    let into = codes.into_iter().map(|code| stats.count(code)).sum();
    explain.row("read_into, read_append, read_exact", "recv / readv", own, into);
}
