//! Requests that own their buffers and share their files.

#![allow(private_interfaces)] // only this crate implements a `Store`
#![allow(unsafe_code)]
//! # Safety
//!
//! (O1) The buffer and the file of a request stay in its slot of the table from `keep` until its
//! completion has been taken: no other code reaches them there. Requests that the kernel still has
//! when the store ends are leaked. (O2) The kernel answers with the number of bytes that it has
//! written.

use std::io;
use std::num::NonZeroU32;
use std::sync::Arc;

use super::op::AioOp;
use super::store::Store;
use crate::completion::{Completion, Completions, Done};
use crate::memory::buf::Buf;
use crate::memory::leaked::{PATIENCE_NS, leak};
use crate::op::OpCode;
use crate::sys::aio::{Aio, EngineRequest, FileCompletion};
use crate::sys::fd::{AsRawFd, OwnedFd};
use crate::sys::{file_request, fork};
use crate::words::clock;
use crate::words::error::{Error, ErrorKind, Limit, Refusal, Refused};
use crate::words::source::{Source, Ticket};
use crate::words::table::{self, Entry, NIL, Table, VACANT, entry_in_fields};

/// The most bytes of one request.
const MOST_BYTES: usize = i32::MAX as usize;

/// A table of requests in flight.
pub struct Owned {
    table: Table<Slot>,
    taken: Vec<FileCompletion>,
    forks: u32,
}

/// A slot of the table.
struct Slot {
    generation: NonZeroU32,
    next: u32,
    token: u64,
    buf: Buf,
    /// Present while the slot is occupied.
    file: Option<Arc<OwnedFd>>,
    code: OpCode,
    cancelled: bool,
}

impl Owned {
    pub(super) fn new(depth: u32) -> Owned {
        fork::watch();
        Owned {
            table: Table::starting_at(depth, table::another_start()),
            taken: Vec::new(),
            forks: fork::generation(),
        }
    }

    pub(super) fn depth(&self) -> u32 {
        self.table.limit()
    }

    pub(super) fn len(&self) -> usize {
        self.table.len() as usize
    }

    fn check_fork(&self) -> Result<(), Refusal> {
        if self.forks == fork::generation() { Ok(()) } else { Err(Refusal::Forked) }
    }

    /// Checks that a request can be accepted, and takes a slot for it.
    fn place(&mut self, op: &AioOp) -> Result<(u32, NonZeroU32), Refusal> {
        self.check_fork()?;
        if op.code == OpCode::ReadAt {
            match op.buf.capacity() {
                _ if op.buf.is_list() => return Err(Refusal::Unsupported),
                0 => return Err(Refusal::EmptyBuffer),
                1..=MOST_BYTES => {}
                _ => return Err(Refusal::TooLong),
            }
        }
        let full = Refusal::Full { limit: Limit::Depth, count: self.table.limit() as usize };
        self.table.occupy().ok_or(full)
    }

    /// Vacates the slot of a request that has ended. Returns its completion.
    fn finish(&mut self, completed: FileCompletion) -> Option<Completion> {
        let FileCompletion { key, result } = completed;
        let ticket = Ticket::of_key(key);
        let slot = self.table.find(ticket.index(), ticket.generation());
        debug_assert!(slot.is_some(), "the kernel has ended {ticket:?} twice");
        let slot = slot?;
        let (code, token, cancelled) = (slot.code, slot.token, slot.cancelled);
        let mut buf = slot.buf.take();
        slot.file = None;
        self.table.vacate(ticket.index());
        let taken_back = cancelled && result == -libc::ECANCELED;
        if code == OpCode::ReadAt {
            // SAFETY: O2: so many bytes from the start; none of a read that has failed.
            unsafe { buf.set_filled(result.max(0) as usize) };
        }
        let result = match result {
            ..0 if taken_back => Err(Error::new(ErrorKind::Cancelled, 0, buf)),
            ..0 => Err(Error::new(ErrorKind::Os(-result), 0, buf)),
            _ if code == OpCode::ReadAt => Ok(Done::Read(buf)),
            _ => Ok(Done::Finished),
        };
        let done = Completion::new(code, Source::NONE, ticket, token, result);
        Some(done.with_late(cancelled && !taken_back))
    }

    /// Drops the request in a slot.
    fn forget(&mut self, key: u64) {
        let ticket = Ticket::of_key(key);
        if let Some(slot) = self.table.find(ticket.index(), ticket.generation()) {
            slot.buf = Buf::default();
            slot.file = None;
            self.table.vacate(ticket.index());
        }
    }

    /// Waits for the kernel to end its requests, for a bounded time.
    fn drain(&mut self, aio: &mut Aio) {
        let until = clock::now_ns().saturating_add(PATIENCE_NS);
        loop {
            let mut taken = std::mem::take(&mut self.taken);
            aio.take(&mut taken);
            taken.drain(..).for_each(|completed| self.forget(completed.key));
            self.taken = taken;
            let left = until.saturating_sub(clock::now_ns());
            if aio.in_kernel() == 0 || left == 0 || aio.wait(Some(left)).is_err() {
                return;
            }
        }
    }
}

// SAFETY: O1; a child of fork(2), whose memory is its own, submits nothing.
unsafe impl Store for Owned {
    type Op = AioOp;
    type Item = Completion;

    fn check(&self) -> io::Result<()> {
        Ok(self.check_fork()?)
    }

    fn keep(&mut self, mut op: AioOp) -> Result<(Ticket, EngineRequest), Refused<AioOp>> {
        let (index, generation) = match self.place(&op) {
            Ok(place) => place,
            Err(reason) => return Err(Refused { value: op, reason }),
        };
        let ticket = Ticket::from_parts(index, generation);
        let code = match op.code {
            OpCode::ReadAt => file_request::Code::Read,
            OpCode::SyncAll => file_request::Code::Fsync,
            _ => file_request::Code::Fdsync,
        };
        let (start, len) = match op.code {
            OpCode::ReadAt => {
                let mut to = op.buf.target(0, usize::MAX);
                (to.as_mut_ptr(), to.len())
            }
            _ => (std::ptr::null_mut(), 0),
        };
        let (fd, offset) = (op.file.as_raw_fd(), op.offset);
        let slot = &mut self.table[index];
        (slot.code, slot.token, slot.cancelled) = (op.code, op.token, false);
        slot.buf = op.buf.take();
        slot.file = Some(op.file);
        let key = ticket.key();
        Ok((ticket, EngineRequest { key, code, fd, start, len, offset, rw_flags: 0 }))
    }

    fn cancel(&mut self, ticket: Ticket, aio: &mut Aio) -> bool {
        if self.check_fork().is_err() {
            return false;
        }
        let slot = self.table.find(ticket.index(), ticket.generation());
        let Some(slot) = slot else { return false };
        slot.cancelled = true;
        aio.withdraw(ticket.key());
        true
    }

    fn changed(&self, aio: &mut Aio) {
        aio.tell();
    }

    fn take(&mut self, aio: &mut Aio, out: &mut Completions<Completion>) -> usize {
        let mut taken = std::mem::take(&mut self.taken);
        aio.take(&mut taken);
        if aio.quiet() {
            aio.take(&mut taken);
        }
        let before = out.len();
        out.items.extend(taken.drain(..).filter_map(|completed| self.finish(completed)));
        self.taken = taken;
        out.len() - before
    }

    /// Drops the requests that the kernel does not have. Waits a bounded time for the others, and
    /// leaves to the kernel those that have not ended by then.
    fn end(&mut self, aio: &mut Aio) {
        if self.check_fork().is_err() {
            // The kernel writes into the parent's memory; this is a copy.
            return;
        }
        aio.forget_queued().for_each(|key| self.forget(key));
        self.drain(aio);
        let left: Vec<u32> = self.table.occupied().collect();
        left.into_iter().for_each(|index| leak(self.table[index].buf.take()));
    }
}

impl Default for Slot {
    fn default() -> Slot {
        Slot {
            generation: VACANT,
            next: NIL,
            token: 0,
            buf: Buf::default(),
            file: None,
            code: OpCode::Nop,
            cancelled: false,
        }
    }
}

impl Entry for Slot {
    entry_in_fields!(generation, next);
}
