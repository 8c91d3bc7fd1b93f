//! Writes: attempts of what sends bytes or datagrams, connects, shuts down or closes.

use std::io::IoSlice;

use super::*;
use crate::buf::Buf;
use crate::error::ErrorKind;
use crate::slots::InFlight;
use crate::source::SourceKind;
use crate::sys::descriptor::VECTORS;
use connects::ATTEMPT;
use waits::MEMORY_PAUSE_NS;

const fn is(moved: isize, errno: i32) -> bool {
    moved == -(errno as isize)
}

impl<K: Kernel> Proactor<K> {
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
                OpCode::Write if is_nothing(state, op) => {
                    self.advance(index, slot, 0);
                }
                OpCode::Write if state.has(STREAM) && (op.next != NIL || op.buf.is_list()) => {
                    self.run_write_queue(index, left);
                }
                OpCode::Write => {
                    let from = op.moved as usize;
                    let split = op.buf.parts().len() > VECTORS;
                    let (moved, offered) = if split && state.kind().is_message() {
                        // A message is not cut to the size that one call takes.
                        let whole = gather(&op.buf);
                        self.counts.copied_bytes += whole.len() as u64;
                        (self.kernel.send(state.fd, state.kind(), &whole), whole.len())
                    } else if op.buf.is_list() && !op.buf.is_empty() {
                        let parts = Parts::of(&op.buf, from);
                        let moved =
                            self.kernel.send_vectored(state.fd, state.kind(), parts.as_slice());
                        (moved, parts.bytes)
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
                OpCode::SendTo if op.next != NIL => self.run_sends(index, left),
                OpCode::SendTo => {
                    let to = op.address.as_ref().expect("a send has an address");
                    let moved = self.kernel.send_to(state.fd, &op.buf, to);
                    let is_unix = to.raw().is_unix();
                    *left = left.saturating_sub(moved.max(1) as usize);
                    if is(moved, libc::EAGAIN) && is_unix {
                        // No edge tells that the receiver's queue has room again (unix(7)).
                        self.pause(index, WRITE_PAUSED, MEMORY_PAUSE_NS);
                    } else {
                        self.sent(index, slot, moved);
                    }
                }
                OpCode::SendDescriptors => {
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
                OpCode::SendFile => self.run_send_file(index, slot, left),
                OpCode::Connect if op.address.is_some() => {
                    // The listener had no room.
                    let to = op.address.as_ref().expect("looked at right above");
                    match self.kernel.connect_again(state.fd, to) {
                        Ok(connecting) => self.connecting(index, slot, connecting),
                        Err(errno) => self.fail(slot, ErrorKind::Os(errno)),
                    }
                }
                OpCode::Connect => match self.kernel.connect_result(state.fd) {
                    0 => self.connected(index, slot),
                    // The report was not about this: the connection goes on.
                    libc::EINPROGRESS => self.block_write(index),
                    errno => self.fail(slot, ErrorKind::Os(errno)),
                },
                OpCode::Shutdown => {
                    let answer = self.kernel.shutdown(state.fd);
                    if answer < 0 {
                        self.fail(slot, ErrorKind::Os(-answer as i32));
                    } else {
                        self.finish_write(index, slot, Ok(Done::Shutdown));
                    }
                }
                OpCode::Close if K::FILES && state.kind() == SourceKind::File => {
                    return self.close_file(index, slot);
                }
                OpCode::Close => {
                    // The completion stands behind those of the reads that it ends.
                    let (source, token) = (state.name(index), op.token);
                    let ticket = self.ticket(slot);
                    self.unlink(slot);
                    self.slots.vacate(slot);
                    self.abort_source(source);
                    let done =
                        Completion::new(OpCode::Close, source, ticket, token, Ok(Done::Closed));
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
        if moved > 0 {
            self.note_bytes(index);
        }
        let op = &mut self.slots[slot];
        op.moved += moved;
        let done = op.moved as usize == op.buf.len();
        if done && op.quiet && op.in_flight != InFlight::Cancelled {
            self.finish_quietly(index, slot, moved);
        } else if done {
            let (buf, bytes, address) = (op.buf.take(), op.moved, op.address.take());
            // Descriptors that were passed are closed here.
            self.keep_address(address);
            self.finish_write(index, slot, Ok(Done::Written { buf, bytes }));
            self.unqueue(index, moved);
        } else {
            self.unqueue(index, moved);
        }
        done
    }

    /// The last `moved` bytes of a quiet write went out: it ends without a completion.
    fn finish_quietly(&mut self, index: u32, slot: u32, moved: u32) {
        let buf = self.slots[slot].buf.take();
        self.unlink(slot);
        self.slots.vacate(slot);
        self.counts.quiet_done += 1;
        self.unqueue(index, moved);
        // Last, because the owner's `Drop` is code of the program.
        buf.discard();
    }

    /// `moved` more bytes of the writes at the head of the queue are out.
    pub(super) fn advance_queue(&mut self, index: u32, moved: u32) {
        let mut rest = moved;
        while rest > 0 {
            let head = self.sources[index].writes.head;
            let op = &self.slots[head];
            let share = rest.min((op.buf.len() - op.moved as usize) as u32);
            rest -= share;
            self.advance(index, head, share);
        }
        // Empty writes behind these need no attempt of their own.
        while let head = self.sources[index].writes.head
            && head != NIL
            && self.slots[head].code == OpCode::Write
            && self.slots[head].in_flight == InFlight::No
            && is_nothing(&self.sources[index], &self.slots[head])
        {
            self.advance(index, head, 0);
        }
    }

    /// One attempt for the writes at the head of the queue of a stream: as many of them as one call
    /// and `left` take.
    fn run_write_queue(&mut self, index: u32, left: &mut usize) {
        let state = &mut self.sources[index];
        let parts = Parts::of_writes(&self.slots, state.writes.head, *left);
        let offered = parts.bytes;
        let moved = match parts.as_slice() {
            [one] => self.kernel.send(state.fd, state.kind(), one),
            many => self.kernel.send_vectored(state.fd, state.kind(), many),
        };
        *left = left.saturating_sub(moved.max(1) as usize);
        let head = state.writes.head;
        if moved < 0 {
            return self.write_stopped(index, head, moved);
        }
        self.advance_queue(index, moved as u32);
        if (moved as usize) < offered {
            self.block_write(index);
        }
    }

    /// A datagram is out, or the attempt answered `-errno`.
    #[inline(always)]
    pub(super) fn sent(&mut self, index: u32, slot: u32, moved: isize) {
        if moved < 0 {
            return self.write_stopped(index, slot, moved);
        }
        self.note_bytes(index);
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

    /// A connect is done, goes on, or is to be tried again.
    pub(super) fn connecting(&mut self, index: u32, slot: u32, how: Connecting) {
        if how == Connecting::Full {
            return self.pause(index, WRITE_PAUSED, MEMORY_PAUSE_NS);
        }
        let address = self.slots[slot].address.take();
        self.keep_address(address);
        if how == Connecting::Done { self.connected(index, slot) } else { self.block_write(index) }
    }

    /// A connect has succeeded: its socket leaves the table.
    pub(super) fn connected(&mut self, index: u32, slot: u32) {
        if self.slots[slot].count == ATTEMPT {
            return self.attempt_done(index, slot);
        }
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
}

/// Whether a write has nothing to send: it is empty, and not a message.
#[inline]
pub(super) fn is_nothing(state: &State, write: &Operation) -> bool {
    write.buf.is_empty() && !state.kind().is_message()
}

/// The bytes of a list in one piece.
#[cold]
fn gather(list: &Buf) -> Vec<u8> {
    list.parts().iter().flat_map(Buf::as_slice).copied().collect()
}

/// The bytes that one call takes, as slices of the buffers they stand in.
pub(super) struct Parts<'a> {
    items: [IoSlice<'a>; VECTORS],
    count: usize,
    /// How many bytes they are.
    pub(super) bytes: usize,
}

impl<'a> Parts<'a> {
    fn none() -> Parts<'a> {
        Parts { items: [IoSlice::new(&[]); VECTORS], count: 0, bytes: 0 }
    }

    pub(super) fn as_slice(&self) -> &[IoSlice<'a>] {
        &self.items[..self.count]
    }

    /// Adds a buffer from byte `from` on, up to `most` bytes in all; false when that, or the
    /// places, are used up.
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
    fn of(buf: &'a Buf, from: usize) -> Parts<'a> {
        let mut parts = Parts::none();
        parts.add(buf, from, usize::MAX);
        parts
    }

    /// What the writes from `head` on have still to send, at most `most` bytes.
    pub(super) fn of_writes(slots: &'a Table<Operation>, head: u32, most: usize) -> Parts<'a> {
        let mut parts = Parts::none();
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
