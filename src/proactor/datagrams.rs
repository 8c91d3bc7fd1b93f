//! Datagrams with their addresses: receives, and sends of several at once.
//!
//! Receives that wait together are served by one call, and so are sends that are queued together
//! (`Kernel::recv_many`, `Kernel::send_many`). The completions are those of one call for each: in
//! order, with the length, the sender and the error of its own datagram.

#![allow(unsafe_code)]
//! # Safety
//!
//! What a kernel says it has written becomes the length of a lease or a vector: the promise of
//! `Kernel`'s implementers.

use super::reads::EMPTY_COST;
use super::waits::{MEMORY_PAUSE_NS, Memory};
use super::*;
use crate::buf::{Buf, Target};
use crate::slots::NIL;
use crate::source::SourceKind;

/// Most datagrams that one call takes here.
const MOST: usize = 32;
/// How many a call offers room for at least: most calls find one datagram or none.
const LEAST: usize = 2;
/// The datagrams of a call start at different lines of the cache's sets.
const SKEW: usize = 192;

/// What the next call for several datagrams is likely to find.
pub(super) struct Expected {
    /// How many it offers room for.
    count: usize,
    /// The longest one of the last call, in bytes.
    len: usize,
}

impl Default for Expected {
    fn default() -> Expected {
        Expected { count: LEAST, len: 1 }
    }
}

impl Expected {
    /// A call that had room for `asked` has found `found`, the longest one with `len` bytes.
    fn learn(&mut self, asked: usize, found: usize, len: usize) {
        // The last call of a burst finds fewer than the burst had.
        let next = if found == asked { 2 * asked } else { (asked / 2).max(found + 1) };
        self.count = next.clamp(LEAST, MOST);
        self.len = len.max(1);
    }
}

impl<K: Kernel> Proactor<K> {
    pub(super) fn run_recv_from(&mut self, index: u32, slot: u32, left: &mut usize) {
        let op = &self.slots[slot];
        let several = op.multishot || op.next != NIL;
        if !several || !self.receive_many(index, slot, left) {
            self.receive_one(index, slot, left);
        }
    }

    #[inline(never)]
    fn receive_one(&mut self, index: u32, slot: u32, left: &mut usize) {
        let op = &mut self.slots[slot];
        let (own, multishot) = (op.count != 0, op.multishot);
        let mut from = self.address();
        let mut memory = None;
        let got = if own {
            let to = self.slots[slot].buf.target(0, usize::MAX);
            self.kernel.recv_from(self.sources[index].fd, &mut [to], &mut from)
        } else {
            let Some(lent) = self.memory(index, multishot) else {
                return self.addresses.push(from);
            };
            let mut to = Self::message_targets(&mut self.spill, &self.pool, lent.start, lent.room);
            let parts = if to[1].is_empty() { 1 } else { 2 };
            memory = Some(lent);
            self.kernel.recv_from(self.sources[index].fd, &mut to[..parts], &mut from)
        };
        if got.moved < 0 {
            self.addresses.push(from);
            if let Some(memory) = memory {
                self.give_back(memory);
            }
            return self.read_stopped(index, slot, got.moved);
        }
        let len = got.moved as usize;
        let data = match memory {
            // An empty datagram takes nothing of a buffer that is its source's alone.
            Some(memory @ Memory { own: Some(_), .. }) if len == 0 => {
                self.give_back(memory);
                Buf::NONE
            }
            // SAFETY: the kernel has written `len` bytes of the space, and of the spill behind it.
            Some(memory) => unsafe { self.lease(len as u32, memory.room, memory.own) },
            None => {
                let mut buf = self.slots[slot].buf.take();
                // SAFETY: the kernel has written `len` bytes from the start.
                unsafe { buf.set_filled(len) };
                buf
            }
        };
        *left = left.saturating_sub(if multishot { len.max(EMPTY_COST) } else { len.max(1) });
        self.turn_bytes -= len as isize;
        self.note_bytes(index);
        self.finish_read(index, slot, Ok(Done::Received { data, from, truncated: got.cut }));
    }

    /// One call for the receives at the head of the queue, or for a multishot one as often as it is
    /// likely to find a datagram. False if they are to be tried one by one.
    #[inline(never)]
    fn receive_many(&mut self, index: u32, head: u32, left: &mut usize) -> bool {
        let most = self.kernel.datagrams_per_call(false).min(MOST);
        // No call takes much more than the source's share.
        let asked = most.min(self.expected.count).min(*left / self.expected.len);
        // While memory is scarce, a source has a share of it.
        if asked < LEAST || self.slots[head].multishot && self.pool.is_scarce() {
            return false;
        }
        let free = self.pool.free_chunks();
        let chunk = self.pool.chunk_bytes();
        let mut slots = [NIL; MOST];
        let mut to = [const { Target::NONE }; MOST];
        let (mut count, mut leases) = (0, 0);
        let mut slot = head;
        while count < asked && slot != NIL && self.slots[slot].code == OpCode::RecvFrom {
            let op = &mut self.slots[slot];
            let (start, len) = if op.count != 0 {
                let mut target = op.buf.target(0, usize::MAX);
                (target.as_mut_ptr(), target.len())
            } else if leases < free {
                if leases == 0 {
                    self.spill.clear();
                    self.spill.reserve(MOST * (chunk + SKEW));
                }
                leases += 1;
                (self.spill.as_mut_ptr().wrapping_add((leases - 1) * (chunk + SKEW)), chunk)
            } else {
                break;
            };
            // SAFETY: the operation's own buffer, which has at most one target, or its part of the
            // spill's capacity. Nothing else uses either before the call has answered.
            to[count] = unsafe { Target::from_raw(start, len) };
            slots[count] = slot;
            count += 1;
            if !op.multishot {
                slot = op.next;
            }
        }
        if count < LEAST {
            return false;
        }
        let short = count.saturating_sub(self.addresses.len());
        self.addresses.extend((0..short).map(|_| Address::unspecified()));
        let base = self.addresses.len() - count;
        let mut got = [Received::plain(0); MOST];
        let fd = self.sources[index].fd;
        let from = &mut self.addresses[base..];
        let found = self.kernel.recv_many(fd, &mut to[..count], from, &mut got[..count]);
        if found < 0 {
            if found == -(libc::EOPNOTSUPP as isize) {
                return false;
            }
            self.read_stopped(index, head, found);
            return true;
        }
        let found = (found as usize).min(count);
        let mut senders = [const { None }; MOST];
        for (place, sender) in senders.iter_mut().zip(self.addresses.drain(base..base + found)) {
            *place = Some(sender);
        }
        let mut longest = 0;
        for i in 0..found {
            let slot = slots[i];
            let len = got[i].moved.max(0) as usize;
            longest = longest.max(len);
            let op = &mut self.slots[slot];
            let cost = if op.multishot { len.max(EMPTY_COST) } else { len.max(1) };
            let data = if op.count != 0 {
                let mut buf = op.buf.take();
                // SAFETY: the kernel has written `len` bytes from the start.
                unsafe { buf.set_filled(len) };
                buf
            } else {
                // SAFETY: the kernel has written `len` bytes of this target, in the spill.
                let bytes = unsafe { std::slice::from_raw_parts(to[i].as_mut_ptr(), len) };
                self.counts.copied_bytes += len as u64;
                // There is a chunk for each of them.
                self.pool.copy_whole(bytes).map_or_else(|| Buf::from(bytes.to_vec()), Buf::from)
            };
            *left = left.saturating_sub(cost);
            self.turn_bytes -= len as isize;
            let from = senders[i].take().expect("one for each");
            let done = Done::Received { data, from, truncated: got[i].cut };
            self.finish_read(index, slot, Ok(done));
        }
        self.expected.learn(count, found, longest);
        self.note_bytes(index);
        true
    }

    /// Sends the datagrams at the head of the queue, of which there are several, or the first one.
    #[inline(never)]
    pub(super) fn run_sends(&mut self, index: u32, left: &mut usize) {
        if self.send_many(index, left) {
            return;
        }
        let state = &self.sources[index];
        let (fd, head) = (state.fd, state.writes.head);
        let op = &self.slots[head];
        let to = op.address.as_ref().expect("a send has an address");
        let is_unix = to.raw().is_unix();
        let moved = self.kernel.send_to(fd, &op.buf, to);
        *left = left.saturating_sub(moved.max(1) as usize);
        self.sent_or_paused(index, head, is_unix, moved);
    }

    /// One call for the datagrams at the head of the queue. False if there is one only, or they are
    /// to be tried one by one.
    fn send_many(&mut self, index: u32, left: &mut usize) -> bool {
        let state = &self.sources[index];
        let most = self.kernel.datagrams_per_call(true).min(MOST);
        if most < LEAST || state.kind() != SourceKind::Datagram {
            return false;
        }
        let head = state.writes.head;
        let mut slots = [NIL; MOST];
        let nothing = Address::unspecified();
        let mut datagrams = [(&[][..], &nothing); MOST];
        let (mut count, mut bytes) = (0, 0);
        let mut slot = head;
        while count < most && slot != NIL && bytes < *left {
            let op = &self.slots[slot];
            // The first unsent datagram's error is lost, and met again when it is tried again. The
            // error that an earlier datagram left on a connected socket is not met again.
            let Some(to) = op.address.as_ref().filter(|to| to.raw().len() > 0) else { break };
            if op.code != OpCode::SendTo {
                break;
            }
            datagrams[count] = (&op.buf, to);
            slots[count] = slot;
            count += 1;
            bytes += op.buf.len().max(1);
            slot = op.next;
        }
        if count < LEAST {
            return false;
        }
        let sent = self.kernel.send_many(state.fd, &datagrams[..count]);
        let is_unix = datagrams[0].1.raw().is_unix();
        if sent < 0 {
            if sent == -(libc::EOPNOTSUPP as isize) {
                return false;
            }
            *left = left.saturating_sub(1);
            self.sent_or_paused(index, head, is_unix, sent);
            return true;
        }
        for &slot in &slots[..count.min(sent as usize)] {
            let len = self.slots[slot].buf.len();
            *left = left.saturating_sub(len.max(1));
            self.sent_or_paused(index, slot, is_unix, len as isize);
        }
        true
    }

    /// A datagram is out, or the attempt answered `-errno`.
    #[inline(never)]
    fn sent_or_paused(&mut self, index: u32, slot: u32, is_unix: bool, moved: isize) {
        if moved == -(libc::EAGAIN as isize) && is_unix {
            // No edge tells that the receiver's queue has room again (unix(7)).
            self.pause(index, WRITE_PAUSED, MEMORY_PAUSE_NS);
        } else {
            self.sent(index, slot, moved);
        }
    }

    /// Leaves a datagram to the next turn, which sends all that its source has then. One that
    /// exceeds the source's bound ends the source at once, as others do.
    pub(super) fn defer_send(&mut self, index: u32, ticket: Ticket) {
        if self.exceeds {
            return self.finish_write_start(index, ticket, 0);
        }
        if self.sources[index].can_write() {
            self.enqueue(index);
        }
        self.note_queued_lease(ticket);
    }

    /// Makes room for another deferred datagram of `len` bytes: those before it go out if it would
    /// be refused because of them.
    pub(super) fn make_room(&mut self, index: u32, len: usize) {
        let state = &self.sources[index];
        let queued = state.queued_bytes as usize;
        let exceeds = queued > 0 && queued + len > self.config.write_limit as usize;
        if (exceeds || self.slots.len() >= self.slots.limit()) && state.can_write() {
            let mut left = self.config.source_budget.min(MOST_COPIED);
            self.run_writes(index, &mut left);
            self.requeue(index);
        }
    }
}
