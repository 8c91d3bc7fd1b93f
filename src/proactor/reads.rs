//! Reads: attempts of what takes bytes, datagrams or connections.

#![allow(unsafe_code)]
//! # Safety
//!
//! What a kernel says it has written becomes the length of a lease or a vector: the promise of
//! `Kernel`'s implementers.

use super::*;
use crate::buf::{Buf, Target};
use crate::error::ErrorKind;
use crate::source::SourceKind;
use crate::swap::Lent;
use crate::sys::descriptor::VECTORS;
use crate::sys::fd::RawFd;
use crate::sys::net;
use waits::MEMORY_PAUSE_NS;

/// How long accepts pause when descriptors have run out.
const SHORTAGE_PAUSE_NS: u64 = 20_000_000;
/// What one accept counts for in a source's share of a turn, at least, and how many make up a
/// share.
const ACCEPT_COST: usize = 1024;
const MOST_ACCEPTS: usize = 256;
/// Errors in a row after which accepts pause.
const ERRORS_PER_PAUSE: u32 = 16;
/// Pauses with the same error after which the accept ends with it: about a second.
const PAUSES_BEFORE_END: u32 = 50;
/// The same for errors that peers can cause: a whole backlog may have them.
const ABORTS_PER_PAUSE: u32 = 1024;
/// What an empty datagram counts for.
pub(super) const EMPTY_COST: usize = 1024;
/// A read of so many bytes is one of bulk.
const MUCH: u32 = 16 << 10;

impl<K: Kernel> Proactor<K> {
    /// Memory for a message: the space at hand and, where that is less than a swap buffer, memory
    /// behind it, because what does not fit is lost.
    pub(super) fn message_targets<'a>(
        spill: &'a mut Vec<u8>,
        pool: &Pool,
        start: *mut u8,
        room: u32,
    ) -> [Target<'a>; 2] {
        let rest = pool.chunk_bytes() - room as usize;
        spill.clear();
        spill.reserve(rest);
        // SAFETY: the pool lends `room` bytes at `start` until `commit`.
        let first = unsafe { Target::from_raw(start, room as usize) };
        // SAFETY: `rest` bytes of capacity, borrowed for as long as the target lives.
        [first, unsafe { Target::from_raw(spill.as_mut_ptr(), rest) }]
    }

    /// Receives into the `room` bytes at `start` that the pool has lent; of a message also what
    /// does not fit there.
    #[inline]
    pub(super) fn receive(&mut self, index: u32, start: *mut u8, room: u32) -> Received {
        let state = &self.sources[index];
        if state.kind().is_message() && (room as usize) < self.pool.chunk_bytes() {
            let mut to = Self::message_targets(&mut self.spill, &self.pool, start, room);
            return self.kernel.recv_vectored(state.fd, state.kind(), &mut to);
        }
        // SAFETY: the pool lends `room` bytes at `start` until `commit`.
        let target = unsafe { Target::from_raw(start, room as usize) };
        self.kernel.recv(state.fd, state.kind(), target)
    }

    /// The `len` bytes that were received into the `room` bytes that the pool has lent and, beyond
    /// them, into the spill; or into a chunk of the read's own.
    ///
    /// # Safety
    /// They were, and nothing was asked of the pool since.
    #[inline]
    pub(super) unsafe fn lease(&mut self, len: u32, room: u32, own: Option<Lent>) -> Buf {
        if let Some(mut own) = own {
            let key = own.owner();
            // SAFETY: the same promise; the read's own chunk has room for all of it.
            let data = unsafe { own.commit(len) };
            self.pool.take_back(own);
            self.waits.shares.take(key);
            return data;
        }
        if len <= room {
            // SAFETY: the same promise.
            return Buf::from(unsafe { self.pool.commit(len) });
        }
        // SAFETY: the kernel has written what is beyond the room, at most the capacity.
        unsafe { self.spill.set_len((len - room) as usize) };
        // SAFETY: the kernel has filled the room.
        match unsafe { self.pool.commit_with(&self.spill) } {
            // Joined here, then copied into another swap buffer.
            Ok(lease) => {
                self.counts.copied_bytes += 2 * u64::from(len);
                Buf::from(lease)
            }
            Err(bytes) => {
                self.counts.copied_bytes += u64::from(len);
                Buf::from(bytes)
            }
        }
    }

    /// The resting read has bytes.
    pub(super) fn rest_done(&mut self, index: u32, got: Received, room: u32, own: Option<Lent>) {
        let len = got.moved as u32;
        let state = &mut self.sources[index];
        state.settle(index, len, room, got.cut, &mut self.rechecks);
        let more = state.has(RESTING_MORE);
        if !more {
            state.flags &= !RESTING;
        }
        let (source, token) = (state.name(index), state.read_token);
        let ticket = state.resting_ticket(index);
        // SAFETY: the kernel has written `len` bytes of the space, and of the spill behind it.
        let data = unsafe { self.lease(len, room, own) };
        self.turn_bytes -= len as isize;
        self.counts.went_on += u64::from(more);
        let result = Ok(Done::Read(data));
        self.batch
            .push(Completion::new(OpCode::Read, source, ticket, token, result).with_more(more));
    }

    /// Tries the reads of a source, once or for as long as they are worth trying and `left` bytes
    /// and the turn allow.
    pub(super) fn run_reads(&mut self, index: u32, left: &mut usize) {
        let mut first = true;
        while *left > 0 && (std::mem::take(&mut first) || self.turn_bytes > 0) {
            let state = &mut self.sources[index];
            if !state.can_read() {
                return;
            }
            if !state.has(RESTING) {
                if K::COMPLETES && self.begin_read(index) {
                    return;
                }
                self.run_queued_read(index, left);
                continue;
            }
            let multishot = state.has(RESTING_MORE);
            let Some(memory) = self.memory(index, multishot) else { return };
            let got = self.receive(index, memory.start, memory.room);
            if got.moved <= 0 {
                self.give_back(memory);
                self.rest_stopped(index, got.moved);
                *left = left.saturating_sub(EMPTY_COST);
                continue;
            }
            *left = left.saturating_sub(got.moved as usize);
            self.rest_done(index, got, memory.room, memory.own);
        }
    }

    /// An attempt of the resting read moved nothing.
    #[cold]
    #[inline(never)]
    pub(super) fn rest_stopped(&mut self, index: u32, moved: isize) {
        if moved == 0 {
            let state = &mut self.sources[index];
            let (source, ticket) = (state.name(index), state.resting_ticket(index));
            let token = state.read_token;
            // An empty datagram is not the end of anything.
            let more = state.has(RESTING_MORE) && state.kind() == SourceKind::Datagram;
            if !more {
                state.flags &= !(RESTING | RESTING_MORE);
            }
            state.settle(index, 0, 0, false, &mut self.rechecks);
            let message = state.kind().is_message();
            if message {
                self.note_bytes(index)
            } else {
                self.note_pause(index)
            }
            self.counts.went_on += u64::from(more);
            let eof = Ok(Done::Read(Buf::NONE));
            self.batch
                .push(Completion::new(OpCode::Read, source, ticket, token, eof).with_more(more));
        } else if let Some(kind) = self.read_blocked(index, moved) {
            self.fail_rest(index, kind);
        }
    }

    /// One attempt of the read at the head of the queue.
    #[inline(never)]
    fn run_queued_read(&mut self, index: u32, left: &mut usize) {
        let slot = self.sources[index].reads.head;
        match self.slots[slot].code {
            OpCode::Read => self.run_read(index, slot, left),
            OpCode::Accept => {
                let cost = ACCEPT_COST.max(self.config.source_budget / MOST_ACCEPTS);
                *left = left.saturating_sub(cost);
                self.run_accept(index, slot);
            }
            OpCode::RecvFrom => self.run_recv_from(index, slot, left),
            OpCode::ReadAppend => self.run_append(index, slot, left),
            OpCode::RecvDescriptors => self.run_recv_descriptors(index, slot, left),
            OpCode::Signal => self.run_signal(index, slot, left),
            OpCode::ChildExit => self.run_child_exit(index, slot),
            _ => self.run_read_into(index, slot, left),
        }
    }

    /// A read without a buffer that has a place: behind another, or with a deadline.
    fn run_read(&mut self, index: u32, slot: u32, left: &mut usize) {
        let multishot = self.slots[slot].multishot;
        let Some(memory) = self.memory(index, multishot) else { return };
        let got = self.receive(index, memory.start, memory.room);
        if got.moved <= 0 {
            self.give_back(memory);
            *left = left.saturating_sub(EMPTY_COST);
            return self.read_stopped(index, slot, got.moved);
        }
        let len = got.moved as u32;
        self.sources[index].settle(index, len, memory.room, got.cut, &mut self.rechecks);
        // SAFETY: the kernel has written `len` bytes of the space, and of the spill behind it.
        let data = unsafe { self.lease(len, memory.room, memory.own) };
        *left = left.saturating_sub(len as usize);
        self.turn_bytes -= len as isize;
        self.finish_read(index, slot, Ok(Done::Read(data)));
    }

    /// `ReadInto` and `ReadExact`.
    fn run_read_into(&mut self, index: u32, slot: u32, left: &mut usize) {
        let state = &mut self.sources[index];
        let op = &mut self.slots[slot];
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
                let got = recv_whole(&mut self.kernel, state.fd, state.kind(), to, room);
                self.counts.copied_bytes += got.moved.max(0) as u64;
                (got, room)
            } else {
                let mut targets = [const { Target::NONE }; VECTORS];
                let count = op.buf.targets(from, most, &mut targets);
                let to = &mut targets[..count];
                let room = to.iter().map(Target::len).sum();
                (self.kernel.recv_vectored(state.fd, state.kind(), to), room)
            }
        } else {
            let target = op.buf.target(from, most);
            let room = target.len();
            (self.kernel.recv(state.fd, state.kind(), target), room)
        };
        if got.moved <= 0 {
            return self.read_stopped(index, slot, got.moved);
        }
        let len = got.moved as usize;
        state.settle(index, len as u32, room as u32, got.cut, &mut self.rechecks);
        op.moved += len as u32;
        *left = left.saturating_sub(len);
        self.turn_bytes -= len as isize;
        if op.code == OpCode::ReadExact && op.moved < op.count {
            return;
        }
        let mut buf = op.buf.take();
        // SAFETY: the kernel has written `moved` bytes from the start.
        unsafe { buf.set_filled(op.moved as usize) };
        self.finish_read(index, slot, Ok(Done::Read(buf)));
    }

    /// An attempt to read answered `-errno`: blocked, paused, to be repeated, or an error.
    pub(super) fn read_blocked(&mut self, index: u32, moved: isize) -> Option<ErrorKind> {
        match -moved as i32 {
            libc::EAGAIN => self.block_read(index),
            libc::EINTR => {}
            // The kernel's memory, not the connection's.
            libc::ENOBUFS | libc::ENOMEM => self.pause(index, READ_PAUSED, MEMORY_PAUSE_NS),
            errno => return Some(ErrorKind::Os(errno)),
        }
        None
    }

    /// An attempt to read moved nothing: the end of the file, or `-errno`.
    #[inline(never)]
    pub(super) fn read_stopped(&mut self, index: u32, slot: u32, moved: isize) {
        if moved < 0 {
            if let Some(kind) = self.read_blocked(index, moved) {
                self.fail(slot, kind);
            }
            return;
        }
        // The end of the file; of a datagram socket that is not one: an empty datagram.
        if self.sources[index].kind().is_message() {
            self.sources[index].settle(index, 0, 0, false, &mut self.rechecks);
            self.note_bytes(index);
        }
        match self.slots[slot].code {
            OpCode::ReadExact => self.fail(slot, ErrorKind::Eof),
            OpCode::ReadAppend => {
                let buf = self.slots[slot].buf.take();
                self.finish_read(index, slot, Ok(Done::Appended { buf, bytes: 0 }));
            }
            OpCode::RecvDescriptors => {
                let descriptors = crate::address::Descriptors(self.address());
                let done = Done::Descriptors { data: Buf::default(), descriptors };
                self.finish_read(index, slot, Ok(done));
            }
            _ => {
                if self.sources[index].kind() != SourceKind::Datagram {
                    self.slots[slot].multishot = false;
                }
                let mut buf = self.slots[slot].buf.take();
                // SAFETY: no bytes.
                unsafe { buf.set_filled(0) };
                self.finish_read(index, slot, Ok(Done::Read(buf)));
            }
        }
        self.note_pause(index);
    }

    fn run_accept(&mut self, index: u32, slot: u32) {
        // Every connection needs a place for its source.
        let vacant = self.sources.limit() - self.sources.len();
        if self.accepted >= vacant as usize {
            return self.wait_for_place(index);
        }
        let state = &self.sources[index];
        match self.kernel.accept(state.fd, state.kind()) {
            Ok(handle) => {
                self.accepted += 1;
                self.slots[slot].count = 0;
                self.finish_read(index, slot, Ok(Done::Accepted(handle)));
            }
            Err(libc::EAGAIN) => {
                self.slots[slot].count = 0;
                self.block_read(index);
            }
            Err(errno) if net::is_of_connection(errno) => self.accept_failed(index, slot, errno),
            Err(libc::EMFILE | libc::ENFILE) => {
                self.counts.descriptor_shortages += 1;
                let fd = state.fd;
                self.kernel.relieve(fd);
                self.pause(index, READ_PAUSED, SHORTAGE_PAUSE_NS);
            }
            Err(libc::ENOBUFS | libc::ENOMEM) => {
                self.pause(index, READ_PAUSED, MEMORY_PAUSE_NS);
            }
            Err(errno) => self.fail(slot, ErrorKind::Os(errno)),
        }
    }

    /// The connection is gone, or a signal came: the next accept may succeed. But a seccomp filter
    /// or a network that is down can fail every accept without removing a connection. So accepts
    /// pause, and an accept that meets only such errors ends. (Errors that peers and signals cause
    /// end none.)
    #[cold]
    fn accept_failed(&mut self, index: u32, slot: u32, errno: i32) {
        self.counts.accept_errors += 1;
        let op = &mut self.slots[slot];
        // An accept does not use these fields otherwise: they hold the range of a file.
        let (errors, last) = (&mut op.count, &mut op.offset);
        if *last != errno as u64 {
            (*errors, *last) = (0, errno as u64);
        }
        *errors += 1;
        let harmless = matches!(errno, libc::ECONNABORTED | libc::EINTR);
        let run = if harmless { ABORTS_PER_PAUSE } else { ERRORS_PER_PAUSE };
        if *errors % run != 0 {
            return;
        }
        if *errors == ERRORS_PER_PAUSE * PAUSES_BEFORE_END && !harmless {
            return self.fail(slot, ErrorKind::Os(errno));
        }
        if harmless {
            *errors = 0;
        }
        self.pause(index, READ_PAUSED, SHORTAGE_PAUSE_NS);
    }

    fn run_recv_descriptors(&mut self, index: u32, slot: u32, left: &mut usize) {
        let state = &mut self.sources[index];
        let Some((start, room)) = self.pool.space() else {
            return self.wait_for_lease(index);
        };
        let mut to = Self::message_targets(&mut self.spill, &self.pool, start, room);
        // A stream keeps what does not fit.
        let parts = if state.has(STREAM) || to[1].is_empty() { 1 } else { 2 };
        let mut received = Vec::new();
        let moved = self.kernel.recv_descriptors(state.fd, &mut to[..parts], &mut received);
        if moved < 0 || moved == 0 && received.is_empty() {
            return self.read_stopped(index, slot, moved);
        }
        // A read stops behind passed descriptors, so a short one proves nothing.
        state.flags &= !QUIET;
        state.settle(index, 0, 1, true, &mut self.rechecks);
        // SAFETY: the kernel has written `moved` bytes of the space, and of the spill behind it.
        let data = unsafe { self.lease(moved as u32, room, None) };
        *left = left.saturating_sub(moved as usize);
        self.turn_bytes -= moved;
        let mut address = self.address();
        address.set_descriptors(received);
        let descriptors = crate::address::Descriptors(address);
        self.finish_read(index, slot, Ok(Done::Descriptors { data, descriptors }));
    }
}

/// Receives one message into more targets than a call takes: in one piece, then dealt out.
#[cold]
fn recv_whole<K: Kernel>(
    kernel: &mut K,
    fd: RawFd,
    kind: SourceKind,
    targets: &mut [Target<'_>],
    room: usize,
) -> Received {
    let mut whole = Buf::from(Vec::<u8>::with_capacity(room));
    let got = kernel.recv(fd, kind, whole.target(0, room));
    // SAFETY: the kernel has written `moved` bytes from the start.
    unsafe { whole.set_filled(got.moved.max(0) as usize) };
    let mut rest = whole.as_slice();
    for target in targets {
        rest = &rest[target.write(rest)..];
    }
    got
}

impl State {
    /// After a read that moved `len` of `room` bytes: whether another is worth trying. A short one
    /// of a stream says that nothing is left, unless the event said more than "readable"; the
    /// selector must know the descriptor, or nothing would say when there is more.
    #[inline(always)]
    pub(super) fn settle(
        &mut self,
        index: u32,
        len: u32,
        room: u32,
        cut: bool,
        rechecks: &mut Rechecks,
    ) {
        if cut {
            self.flags |= UNSETTLED;
        }
        let short = len < room;
        self.flags &= if len > 0 { !(FULL | QUIET) } else { !FULL };
        self.flags |= if short || len < MUCH { 0 } else { FULL };
        if short && self.flags & (STREAM | UNSETTLED | REGISTERED) == STREAM | REGISTERED {
            self.flags &= !READABLE;
            if self.kind() == SourceKind::UnixStream {
                self.queue_recheck(index, rechecks);
            }
        }
    }

    /// A short read of a Unix stream may have stopped at passed descriptors with more behind them
    /// (unix(7)). Only recvmsg(2) says so, which would cost every read a tenth of an echo: instead
    /// the loop reads the source once more (`rechecks`).
    #[cold]
    #[inline(never)]
    pub(super) fn queue_recheck(&mut self, index: u32, rechecks: &mut Rechecks) {
        if !self.has(TO_RECHECK) {
            self.flags |= TO_RECHECK;
            rechecks.push(self.name(index));
        }
    }
}
