//! Attempts: what happens when a direction of a source is worth trying.

#![allow(unsafe_code)]
//! # Safety
//!
//! What a kernel says it has written becomes the length of a lease or a vector: the promise of
//! `Kernel`'s implementers.

use std::io::IoSlice;
use std::os::fd::RawFd;

use super::*;
use crate::buf::{Buf, Target};
use crate::error::ErrorKind;
use crate::source::Kind;
use crate::sys::descriptor::VECTORS;
use crate::sys::net;

/// How long accepts pause when descriptors have run out.
const SHORTAGE_PAUSE_NS: u64 = 20_000_000;
/// How long a direction pauses when the kernel's memory has run out.
const MEMORY_PAUSE_NS: u64 = 1_000_000;
/// What one accept counts for in a source's share of a turn.
const ACCEPT_COST: usize = 1024;

const fn is(moved: isize, errno: i32) -> bool {
    moved == -(errno as isize)
}

impl<K: Kernel> Proactor<K> {
    /// Applies an event, and if it is the usual one (a stream socket whose resting read finds bytes,
    /// and nothing else to be done) runs the source. False when it is not that: then the event has
    /// been applied and nothing else done.
    #[inline(always)]
    pub(super) fn run_rest(&mut self, key: u64, ready: Ready) -> bool {
        const USUAL: u32 = READABLE | REGISTERED | STREAM | RESTING;
        const OTHER: u32 =
            UNSETTLED | WAITING | READ_PAUSED | RESTING_MORE | READS | WRITES | POLLS;
        let index = key as u32;
        let Some(state) = self.sources.find_key(index, (key >> 32) as u32) else { return false };
        let flags = state.apply(ready);
        if flags & (USUAL | OTHER) != USUAL {
            return false;
        }
        let at_hand = self.pool.space_at_hand();
        let Some((start, room)) =
            at_hand.or_else(|| next_buffer(&mut self.pool, &mut self.turn_bytes))
        else {
            return false;
        };
        self.batch.make_room();
        // SAFETY: the pool lends `room` bytes at `start` until `commit`.
        let target = unsafe { Target::from_raw(start, room as usize) };
        let got = self.kernel.recv(state.fd, stream_kind(flags), target);
        if got.moved <= 0 || got.cut {
            return self.run_rest_on(index, got);
        }
        let len = got.moved as u32;
        // As `settle` does.
        let settled = if len < room { READABLE } else { 0 };
        state.flags = flags & !(RESTING | settled);
        if settled != 0 && stream_kind(flags) == Kind::UnixStream {
            state.doubt(index, &mut self.doubted);
        }
        let (source, token) = (state.name(index), state.read_token);
        let ticket = state.resting_ticket(index);
        // SAFETY: the kernel has written `len` bytes of the space.
        let data = unsafe { Buf::from_pool(&mut self.pool, len) };
        let result = Ok(Done::Read(data));
        let done = Completion::new(source, ticket, token, result);
        // SAFETY: there is room: made before the attempt, which adds none.
        unsafe { self.batch.put(done) };
        true
    }

    /// The attempt of `run_rest` has met something unusual.
    #[cold]
    #[inline(never)]
    fn run_rest_on(&mut self, index: u32, got: Received) -> bool {
        if got.moved <= 0 {
            self.rest_stopped(index, got.moved);
        } else {
            self.rest_done(index, got, u32::MAX);
        }
        self.requeue(index);
        true
    }

    /// Memory for a message: the space at hand and, where that is less than a swap buffer, memory
    /// behind it, because what does not fit is lost.
    fn message_targets<'a>(
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

    /// Receives into the `room` bytes at `start` that the pool has lent; of a message also what does
    /// not fit there.
    #[inline]
    fn receive(&mut self, index: u32, start: *mut u8, room: u32) -> Received {
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
    /// them, into the spill.
    ///
    /// # Safety
    /// They were, and nothing was asked of the pool since.
    #[inline]
    unsafe fn lease(&mut self, len: u32, room: u32) -> Buf {
        if len <= room {
            // SAFETY: the same promise.
            return Buf::from(unsafe { self.pool.commit(len) });
        }
        // SAFETY: the kernel has written what is beyond the room, at most the capacity.
        unsafe { self.spill.set_len((len - room) as usize) };
        // SAFETY: the kernel has filled the room.
        match unsafe { self.pool.commit_with(&self.spill) } {
            Ok(lease) => Buf::from(lease),
            Err(bytes) => Buf::from(bytes),
        }
    }

    /// The resting read has bytes.
    fn rest_done(&mut self, index: u32, got: Received, room: u32) {
        let len = got.moved as u32;
        let state = &mut self.sources[index];
        state.settle(index, len < room, got.cut, &mut self.doubted);
        let more = state.has(RESTING_MORE);
        if !more {
            state.flags &= !RESTING;
        }
        let (source, token) = (state.name(index), state.read_token);
        let ticket = state.resting_ticket(index);
        // SAFETY: the kernel has written `len` bytes of the space, and of the spill behind it.
        let data = unsafe { self.lease(len, room) };
        self.turn_bytes -= len as isize;
        let result = Ok(Done::Read(data));
        self.batch.push(Completion::new(source, ticket, token, result).and_more(more));
    }

    /// Tries the reads of a source for as long as they are worth trying and `left` bytes allow.
    pub(super) fn run_reads(&mut self, index: u32, left: &mut usize) {
        while *left > 0 {
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
            let Some((start, room)) = self.pool.space() else {
                return self.wait_for_lease(index);
            };
            let got = self.receive(index, start, room);
            if got.moved <= 0 {
                self.rest_stopped(index, got.moved);
                continue;
            }
            *left = left.saturating_sub(got.moved as usize);
            self.rest_done(index, got, room);
        }
    }

    /// An attempt of the resting read moved nothing.
    #[cold]
    #[inline(never)]
    fn rest_stopped(&mut self, index: u32, moved: isize) {
        if moved == 0 {
            let state = &mut self.sources[index];
            let (source, ticket) = (state.name(index), state.resting_ticket(index));
            let token = state.read_token;
            state.flags &= !(RESTING | RESTING_MORE);
            state.settle(index, false, false, &mut self.doubted);
            let eof = Ok(Done::Read(Buf::NONE));
            self.batch.push(Completion::new(source, ticket, token, eof));
        } else if let Some(kind) = self.read_blocked(index, moved) {
            self.fail_rest(index, kind);
        }
    }

    /// One attempt of the read at the head of the queue.
    #[inline(never)]
    fn run_queued_read(&mut self, index: u32, left: &mut usize) {
        let slot = self.sources[index].reads.head;
        match self.slots[slot].code {
            Code::Read => self.run_read(index, slot, left),
            Code::Accept => {
                *left = left.saturating_sub(ACCEPT_COST);
                self.run_accept(index, slot);
            }
            Code::RecvFrom => self.run_recv_from(index, slot, left),
            Code::RecvDescriptors => self.run_recv_descriptors(index, slot, left),
            _ => self.run_read_into(index, slot, left),
        }
    }

    /// A read without a buffer that has a place: behind another, or with a deadline.
    fn run_read(&mut self, index: u32, slot: u32, left: &mut usize) {
        let Some((start, room)) = self.pool.space() else {
            return self.wait_for_lease(index);
        };
        let got = self.receive(index, start, room);
        if got.moved <= 0 {
            return self.read_stopped(index, slot, got.moved);
        }
        let len = got.moved as u32;
        self.sources[index].settle(index, len < room, got.cut, &mut self.doubted);
        // SAFETY: the kernel has written `len` bytes of the space, and of the spill behind it.
        let data = unsafe { self.lease(len, room) };
        *left = left.saturating_sub(len as usize);
        self.turn_bytes -= len as isize;
        self.finish_read(index, slot, Ok(Done::Read(data)));
    }

    /// `ReadInto` and `ReadExact`.
    fn run_read_into(&mut self, index: u32, slot: u32, left: &mut usize) {
        let state = &mut self.sources[index];
        let op = &mut self.slots[slot];
        let from = op.moved as usize;
        let most = if op.code == Code::ReadExact { op.count as usize - from } else { usize::MAX };
        let (got, room) = if op.buf.is_list() {
            let mut targets = Vec::with_capacity(VECTORS);
            // What one call leaves of a message is lost, what it leaves of a stream is not.
            let count = if state.kind().is_message() { usize::MAX } else { VECTORS };
            op.buf.targets(from, most, &mut targets, count);
            let room: usize = targets.iter().map(Target::len).sum();
            let got = if targets.len() > VECTORS {
                recv_whole(&mut self.kernel, state.fd, state.kind(), &mut targets, room)
            } else {
                self.kernel.recv_vectored(state.fd, state.kind(), &mut targets)
            };
            (got, room)
        } else {
            let target = op.buf.target(from, most);
            let room = target.len();
            (self.kernel.recv(state.fd, state.kind(), target), room)
        };
        if got.moved <= 0 {
            return self.read_stopped(index, slot, got.moved);
        }
        let len = got.moved as usize;
        state.settle(index, len < room, got.cut, &mut self.doubted);
        op.moved += len as u32;
        *left = left.saturating_sub(len);
        if op.code == Code::ReadExact && op.moved < op.count {
            return;
        }
        let mut buf = op.buf.take();
        // SAFETY: the kernel has written `moved` bytes from the start.
        unsafe { buf.set_filled(op.moved as usize) };
        self.finish_read(index, slot, Ok(Done::Read(buf)));
    }

    /// An attempt to read answered `-errno`: blocked, paused, to be repeated, or an error.
    fn read_blocked(&mut self, index: u32, moved: isize) -> Option<ErrorKind> {
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
            self.sources[index].settle(index, false, false, &mut self.doubted);
        }
        match self.slots[slot].code {
            Code::ReadExact => self.fail(slot, ErrorKind::Eof),
            Code::RecvDescriptors => {
                let descriptors = crate::address::Descriptors(self.address());
                let done = Done::Descriptors { data: Buf::default(), descriptors };
                self.finish_read(index, slot, Ok(done));
            }
            _ => {
                self.slots[slot].multishot = false;
                let mut buf = self.slots[slot].buf.take();
                // SAFETY: no bytes.
                unsafe { buf.set_filled(0) };
                self.finish_read(index, slot, Ok(Done::Read(buf)));
            }
        }
    }

    fn run_accept(&mut self, index: u32, slot: u32) {
        // Every connection needs a place for its source.
        let vacant = self.sources.limit() - self.sources.len();
        if self.accepted >= vacant as usize {
            self.counts.table_waits += 1;
            self.sources[index].flags |= WAITING;
            let name = self.sources[index].name(index);
            return self.waiting.push(name);
        }
        let state = &self.sources[index];
        match self.kernel.accept(state.fd, state.kind()) {
            Ok(handle) => {
                self.accepted += 1;
                self.finish_read(index, slot, Ok(Done::Accepted(handle)));
            }
            Err(libc::EAGAIN) => self.block_read(index),
            // The connection is gone, or a signal came: the next one.
            Err(errno) if net::is_of_connection(errno) => {}
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

    fn run_recv_from(&mut self, index: u32, slot: u32, left: &mut usize) {
        let mut from = self.address();
        let state = &mut self.sources[index];
        let op = &mut self.slots[slot];
        let own = op.count != 0;
        let mut lent = 0;
        let got = if own {
            self.kernel.recv_from(state.fd, &mut [op.buf.target(0, usize::MAX)], &mut from)
        } else {
            let Some((start, room)) = self.pool.space() else {
                self.addresses.push(from);
                return self.wait_for_lease(index);
            };
            lent = room;
            let mut to = Self::message_targets(&mut self.spill, &self.pool, start, room);
            let parts = if to[1].is_empty() { 1 } else { 2 };
            self.kernel.recv_from(state.fd, &mut to[..parts], &mut from)
        };
        if got.moved < 0 {
            self.addresses.push(from);
            return self.read_stopped(index, slot, got.moved);
        }
        let len = got.moved as usize;
        let data = if own {
            let mut buf = op.buf.take();
            // SAFETY: the kernel has written `len` bytes from the start.
            unsafe { buf.set_filled(len) };
            buf
        } else {
            // SAFETY: the kernel has written `len` bytes of the space, and of the spill behind it.
            unsafe { self.lease(len as u32, lent) }
        };
        *left = left.saturating_sub(len.max(1));
        self.turn_bytes -= len as isize;
        self.finish_read(index, slot, Ok(Done::Received { data, from, truncated: got.cut }));
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
        if moved <= 0 {
            return self.read_stopped(index, slot, moved);
        }
        // A read stops behind passed descriptors, so a short one proves nothing.
        state.settle(index, true, true, &mut self.doubted);
        // SAFETY: the kernel has written `moved` bytes of the space, and of the spill behind it.
        let data = unsafe { self.lease(moved as u32, room) };
        *left = left.saturating_sub(moved as usize);
        let mut address = self.address();
        address.set_descriptors(received);
        let descriptors = crate::address::Descriptors(address);
        self.finish_read(index, slot, Ok(Done::Descriptors { data, descriptors }));
    }

    /// Tries the writes of a source for as long as they are worth trying and `left` bytes allow.
    pub(super) fn run_writes(&mut self, index: u32, left: &mut usize) {
        while *left > 0 && self.sources[index].can_write() {
            if K::COMPLETES && self.begin_write(index) {
                return;
            }
            let state = &mut self.sources[index];
            let slot = state.writes.head;
            let op = &mut self.slots[slot];
            match op.code {
                Code::Write if state.has(STREAM) && (op.next != NOWHERE || op.buf.is_list()) => {
                    self.run_write_queue(index, left);
                }
                Code::Write => {
                    let from = op.moved as usize;
                    let split = op.buf.parts().len() > VECTORS;
                    let (moved, offered) = if split && state.kind().is_message() {
                        // A message is not cut to what one call takes.
                        let whole = gather(&op.buf);
                        (self.kernel.send(state.fd, state.kind(), &whole), whole.len())
                    } else if op.buf.is_list() {
                        let parts = slices(&op.buf, from);
                        let parts = &parts.items[..parts.len];
                        let offered = parts.iter().map(|part| part.len()).sum();
                        (self.kernel.send_vectored(state.fd, state.kind(), parts), offered)
                    } else {
                        let bytes = &op.buf[from..];
                        // A message is not cut to its source's share.
                        let most = if state.has(STREAM) { *left } else { usize::MAX };
                        let bytes = &bytes[..bytes.len().min(most)];
                        (self.kernel.send(state.fd, state.kind(), bytes), bytes.len())
                    };
                    *left = left.saturating_sub(moved.max(1) as usize);
                    self.wrote(index, slot, moved, offered);
                }
                Code::SendTo => {
                    let to = op.address.as_ref().expect("a send has an address");
                    let moved = self.kernel.send_to(state.fd, &op.buf, to);
                    let unix = to.raw().family() == libc::AF_UNIX;
                    *left = left.saturating_sub(moved.max(1) as usize);
                    if is(moved, libc::EAGAIN) && unix {
                        // No edge tells that the receiver's queue has room again (unix(7)).
                        self.pause(index, WRITE_PAUSED, MEMORY_PAUSE_NS);
                    } else {
                        self.sent(index, slot, moved);
                    }
                }
                Code::SendDescriptors => {
                    let from = op.moved as usize;
                    let offered = op.buf.len() - from;
                    let moved = if from == 0 {
                        let descriptors = op.address.as_ref().map_or(&[][..], Address::descriptors);
                        self.kernel.send_descriptors(state.fd, &op.buf, descriptors)
                    } else {
                        self.kernel.send(state.fd, state.kind(), &op.buf[from..])
                    };
                    *left = left.saturating_sub(moved.max(1) as usize);
                    self.wrote(index, slot, moved, offered);
                }
                Code::Connect => match self.kernel.connect_result(state.fd) {
                    0 => self.connected(index, slot),
                    // The report was not about this: the connection goes on.
                    libc::EINPROGRESS => self.block_write(index),
                    errno => self.fail(slot, ErrorKind::Os(errno)),
                },
                Code::Shutdown => {
                    let answer = self.kernel.shutdown(state.fd);
                    if answer < 0 {
                        self.fail(slot, ErrorKind::Os(-answer as i32));
                    } else {
                        self.finish_write(index, slot, Ok(Done::Shutdown));
                    }
                }
                Code::Close => {
                    // The completion stands behind those of the reads that it ends.
                    let (source, token) = (state.name(index), op.token);
                    let ticket = self.ticket(slot);
                    self.unlink(slot);
                    self.slots.vacate(slot);
                    self.free_source(source);
                    let done = Completion::new(source, ticket, token, Ok(Done::Closed));
                    self.batch.push(done);
                    return;
                }
                code => unreachable!("{code:?} is not a write"),
            }
        }
    }

    /// An attempt to write `offered` bytes has moved some, or answered `-errno`.
    pub(super) fn wrote(&mut self, index: u32, slot: u32, moved: isize, offered: usize) {
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

    /// `moved` more bytes of a write are out; true when that were all, and it is done.
    pub(super) fn advance(&mut self, index: u32, slot: u32, moved: u32) -> bool {
        let op = &mut self.slots[slot];
        op.moved += moved;
        let done = op.moved as usize == op.buf.len();
        if done {
            let (buf, bytes, address) = (op.buf.take(), op.moved, op.address.take());
            // Descriptors that were passed are closed here.
            self.keep_address(address);
            self.finish_write(index, slot, Ok(Done::Written { buf, bytes }));
        }
        self.unqueue(index, moved);
        done
    }

    /// One attempt for the writes at the head of the queue of a stream: as many of them as one call
    /// and `left` take.
    fn run_write_queue(&mut self, index: u32, left: &mut usize) {
        let state = &mut self.sources[index];
        let mut parts = [IoSlice::new(&[]); VECTORS];
        let (mut count, mut offered) = (0, 0);
        let mut slot = state.writes.head;
        while slot != NOWHERE && self.slots[slot].code == Code::Write {
            let op = &self.slots[slot];
            let mut skip = op.moved as usize;
            for part in op.buf.parts() {
                let bytes = &part.as_slice()[skip.min(part.len())..];
                skip -= part.len() - bytes.len();
                if bytes.is_empty() || count == VECTORS || offered >= *left {
                    continue;
                }
                let bytes = &bytes[..bytes.len().min(*left - offered)];
                parts[count] = IoSlice::new(bytes);
                count += 1;
                offered += bytes.len();
            }
            slot = op.next;
            if count == VECTORS || offered >= *left {
                break;
            }
        }
        let moved = match &parts[..count] {
            [one] => self.kernel.send(state.fd, state.kind(), one),
            many => self.kernel.send_vectored(state.fd, state.kind(), many),
        };
        *left = left.saturating_sub(moved.max(1) as usize);
        let head = state.writes.head;
        if moved < 0 {
            return self.write_stopped(index, head, moved);
        }
        let mut rest = moved as u32;
        while rest > 0 {
            let head = self.sources[index].writes.head;
            let op = &self.slots[head];
            let share = rest.min((op.buf.len() - op.moved as usize) as u32);
            rest -= share;
            self.advance(index, head, share);
        }
        if (moved as usize) < offered {
            self.block_write(index);
        }
    }

    /// A datagram is out, or the attempt answered `-errno`.
    fn sent(&mut self, index: u32, slot: u32, moved: isize) {
        if moved < 0 {
            return self.write_stopped(index, slot, moved);
        }
        let op = &mut self.slots[slot];
        let buf = op.buf.take();
        let address = op.address.take();
        let len = buf.len() as u32;
        self.keep_address(address);
        self.finish_write(index, slot, Ok(Done::Written { buf, bytes: moved as u32 }));
        self.unqueue(index, len);
    }

    pub(super) fn write_stopped(&mut self, index: u32, slot: u32, moved: isize) {
        if is(moved, libc::EAGAIN) {
            self.block_write(index);
        } else if is(moved, libc::ENOBUFS) || is(moved, libc::ENOMEM) {
            // No edge says that the kernel has memory again.
            self.pause(index, WRITE_PAUSED, MEMORY_PAUSE_NS);
        } else if !is(moved, libc::EINTR) {
            self.fail(slot, ErrorKind::Os(-moved as i32));
        }
    }

    /// A connect has succeeded: its socket leaves the table.
    pub(super) fn connected(&mut self, index: u32, slot: u32) {
        let state = &self.sources[index];
        let (fd, kind, registered) = (state.fd, state.kind(), state.has(REGISTERED));
        if registered {
            let key = state.name(index).key();
            self.kernel.deregister(fd, key);
        }
        let handle = self.kernel.release(fd, kind);
        // The descriptor is the handle's now.
        self.sources[index].fd = -1;
        self.finish_write(index, slot, Ok(Done::Connected(handle)));
        self.vacate_source(index);
    }

    /// Answers the polls of a source whose conditions hold.
    pub(super) fn run_polls(&mut self, index: u32) {
        self.sources[index].flags &= !POLLED;
        let mut slot = self.sources[index].polls;
        let mut pending = false;
        while slot != NOWHERE {
            let next = self.slots[slot].next;
            // Drains stand in the same list.
            if self.slots[slot].code == Code::Poll {
                let interest = Ready::from_bits(self.slots[slot].count as u16);
                match self.kernel.poll(self.sources[index].fd, interest) {
                    Ok(ready) if ready.is_empty() => pending = true,
                    Ok(ready) => self.finish_poll(index, slot, Ok(Done::Ready(ready))),
                    Err(errno) => self.fail(slot, ErrorKind::Os(errno)),
                }
            }
            slot = next;
        }
        if pending && let Err(errno) = self.register(index, true) {
            let mut slot = self.sources[index].polls;
            while slot != NOWHERE {
                let next = self.slots[slot].next;
                if self.slots[slot].code == Code::Poll {
                    self.fail(slot, ErrorKind::Os(errno));
                }
                slot = next;
            }
        }
    }

    /// Reads are not worth trying until the selector says so.
    fn block_read(&mut self, index: u32) {
        self.sources[index].flags &= !(READABLE | UNSETTLED);
        if let Err(errno) = self.register(index, false) {
            self.fail_reads(index, ErrorKind::Os(errno));
            self.sources[index].flags |= READABLE;
        }
    }

    /// Writes are not worth trying until the selector says so.
    pub(super) fn block_write(&mut self, index: u32) {
        self.sources[index].flags &= !WRITABLE;
        if let Err(errno) = self.register(index, true) {
            let name = self.sources[index].name(index);
            while let Some(state) = self.state(name)
                && state.writes.head != NOWHERE
            {
                let head = state.writes.head;
                self.fail(head, ErrorKind::Os(errno));
            }
            if let Some(state) = self.state(name) {
                state.flags |= WRITABLE;
            }
        }
    }

    /// Lets the selector know the source, and that `writes` wait.
    ///
    /// TCP says that it is writable only to somebody who was told to wait, so that one registration
    /// does for both directions. Unix and datagram sockets say it each time the other side has read
    /// (`unix_write_space`, `sock_def_write_space` in Linux): they are asked when a write waits.
    #[inline]
    fn register(&mut self, index: u32, writes: bool) -> Result<(), i32> {
        let state = &mut self.sources[index];
        let writes = writes || state.kind() == Kind::Stream;
        let known = if writes { REGISTERED | WRITES_REGISTERED } else { REGISTERED };
        if state.flags & known != known {
            let again = state.has(REGISTERED);
            self.kernel.register(state.fd, state.name(index).key(), writes, again)?;
            state.flags |= known;
        }
        Ok(())
    }

    /// Tries a direction again when `span_ns` has passed.
    fn pause(&mut self, index: u32, which: u32, span_ns: u64) {
        let state = &mut self.sources[index];
        if state.has(which) {
            return;
        }
        state.flags |= which;
        let name = state.name(index);
        let until = self.kernel.now_ns().saturating_add(span_ns);
        self.paused.push((until, name, which));
    }

    #[cold]
    pub(super) fn wait_for_lease(&mut self, index: u32) {
        self.counts.lease_waits += 1;
        let state = &mut self.sources[index];
        state.flags |= WAITING;
        let name = state.name(index);
        self.waiting.push(name);
    }

    /// Memory for an address.
    fn address(&mut self) -> Address {
        self.addresses.pop().unwrap_or_else(Address::unspecified)
    }

    pub(super) fn keep_address(&mut self, address: Option<Address>) {
        const KEPT: usize = 64;
        if let Some(mut address) = address
            && self.addresses.len() < KEPT
        {
            address.take_descriptors();
            self.addresses.push(address);
        }
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

/// Receives one message into more targets than a call takes: in one piece, then dealt out.
#[cold]
fn recv_whole<K: Kernel>(
    kernel: &mut K,
    fd: RawFd,
    kind: Kind,
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

/// The bytes of a list in one piece.
#[cold]
fn gather(list: &Buf) -> Vec<u8> {
    list.parts().iter().flat_map(Buf::as_slice).copied().collect()
}

struct Slices<'a> {
    items: [IoSlice<'a>; VECTORS],
    len: usize,
}

/// The parts of a list from byte `from` on, as many as one call takes.
fn slices(buf: &Buf, mut from: usize) -> Slices<'_> {
    let mut slices = Slices { items: [IoSlice::new(&[]); VECTORS], len: 0 };
    for part in buf.parts() {
        let bytes = part.as_slice();
        if from >= bytes.len() {
            from -= bytes.len();
            continue;
        }
        if slices.len == VECTORS {
            break;
        }
        slices.items[slices.len] = IoSlice::new(&bytes[from..]);
        slices.len += 1;
        from = 0;
    }
    slices
}

impl State {
    /// After a read that moved bytes: whether another is worth trying. A short one of a stream says
    /// that nothing is left, unless the event said more than "readable"; the selector must know the
    /// descriptor, or nothing would say when there is more.
    #[inline(always)]
    fn settle(&mut self, index: u32, short: bool, cut: bool, doubted: &mut Vec<Source>) {
        if cut {
            self.flags |= UNSETTLED;
        }
        if short && self.flags & (STREAM | UNSETTLED | REGISTERED) == STREAM | REGISTERED {
            self.flags &= !READABLE;
            if self.kind() == Kind::UnixStream {
                self.doubt(index, doubted);
            }
        }
    }

    /// A short read of a Unix stream may have stopped at passed descriptors with more behind them
    /// (unix(7)). Only recvmsg(2) says so, which would cost every read a tenth of an echo: instead
    /// the source is asked once more before the loop sleeps.
    #[cold]
    #[inline(never)]
    fn doubt(&mut self, index: u32, doubted: &mut Vec<Source>) {
        if !self.has(DOUBTED) {
            self.flags |= DOUBTED;
            doubted.push(self.name(index));
        }
    }
}
