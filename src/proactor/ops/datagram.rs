//! Datagrams with their addresses: receives, and sends of several at once.
//!
//! Receives that wait together are served by one call, and so are sends that are queued together
//! (`Kernel::recv_many`, `Kernel::send_many`). The completions are the same as with one call for
//! each datagram: in order, each with the length, the sender and the error of its own datagram.

#![allow(unsafe_code)]
//! # Safety
//!
//! What a kernel says it has written becomes the length of a lease or a vector: the promise of
//! `Kernel`'s implementers.

use crate::completion::Done;
use crate::kernel::{Calls, Kernel, Received};
use crate::memory::buf::{Buf, Target};
use crate::op::{self, Op, OpCode};
use crate::proactor::ops::read::EMPTY_COST;
use crate::proactor::ops::submit::check_most;
use crate::proactor::ops::timer::absolute;
use crate::proactor::ops::writes::cost;
use crate::proactor::ops::{Submitted, TRIED};
use crate::proactor::parts::report::Stats;
use crate::proactor::parts::state::{READ_PAUSED, WRITE_PAUSED};
use crate::proactor::{MOST_COPIED, Proactor};
use crate::words::address::Address;
use crate::words::error::Refusal;
use crate::words::explain::Explain;
use crate::words::source::{SourceKind, Ticket};
use crate::words::table::NIL;

/// The most datagrams that one call takes.
const MOST: usize = 32;
/// The least number of datagrams that a call has room for: most calls find one datagram or none.
const LEAST: usize = 2;
/// The distance between the buffers of a call is their size plus this many bytes, so that the
/// datagrams start in different sets of the cache.
const SKEW: usize = 192;

/// Most memory that one call offers for datagrams without a buffer of their own.
const MOST_MEMORY: usize = 4 << 20;

/// How many datagrams, and how long ones, the next call is likely to find.
pub(in crate::proactor) struct Expected {
    /// How many datagrams the next call has room for.
    count: usize,
    /// The length of the longest datagram of the last call, in bytes.
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
    #[inline(never)]
    pub(in crate::proactor) fn submit_datagram(&mut self, op: &mut Op, token: u64) -> Submitted {
        let index = self.usable(op.source)?;
        if !self.sources[index].kind().is_message() || op.buf.is_list() {
            return Err(Refusal::Unsupported);
        }
        if op.code.is_read() {
            self.submit_recv_from(index, op, token)
        } else {
            self.submit_send_to(index, op, token)
        }
    }

    fn submit_recv_from(&mut self, index: u32, op: &mut Op, token: u64) -> Submitted {
        // A count other than 0 means that the operation has a buffer of its own.
        if op.count != 0 && op.buf.capacity() == 0 {
            return Err(Refusal::EmptyBuffer);
        }
        check_most(op.buf.capacity())?;
        let ticket = self.place(op.code, index, token)?;
        let entry = &mut self.ops[ticket.index()];
        (entry.buf, entry.count, entry.multishot) = (op.buf.take(), op.count, op.is_multishot());
        Ok(self.start_read(index, ticket, op.deadline_ns))
    }

    fn submit_send_to(&mut self, index: u32, op: &mut Op, token: u64) -> Submitted {
        if !op.payload.is_address() {
            return Err(Refusal::Unsupported);
        }
        check_most(op.buf.len())?;
        let (mut deferred, mut due_ns) = (op.flags & op::DEFERRED != 0, op.deadline_ns);
        if deferred && due_ns != 0 {
            let now_ns = self.kernel.now_ns();
            due_ns = absolute(due_ns, now_ns);
            // A send whose deadline has passed is tried now.
            deferred = due_ns > now_ns;
        }
        if deferred {
            self.make_room(index, op.buf.len());
        }
        let ticket = self.push_write(op.code, index, token, &mut op.buf, false)?;
        self.ops[ticket.index()].address = op.payload.take_address();
        if deferred {
            self.defer_send(index, ticket);
            self.set_deadline(ticket, due_ns);
        } else {
            self.finish_write_start(index, ticket, due_ns);
        }
        Ok(ticket)
    }

    pub(in crate::proactor) fn run_recv_from(&mut self, index: u32, slot: u32, left: &mut usize) {
        let op = &self.ops[slot];
        let several = op.multishot || op.next != NIL;
        if !several || !self.receive_many(index, slot, left) {
            self.receive_one(index, slot, left);
        }
    }

    #[inline(never)]
    fn receive_one(&mut self, index: u32, slot: u32, left: &mut usize) {
        let op = &mut self.ops[slot];
        let (own, multishot) = (op.count != 0, op.multishot);
        let (fd, kind) = (self.sources[index].fd, self.sources[index].kind());
        let mut from = self.memory.address();
        let mut space = None;
        let got = if own {
            let to = self.ops[slot].buf.target(0, usize::MAX);
            self.kernel.calls_mut().recv_from(fd, kind, &mut [to], &mut from)
        } else {
            let Some((start, room)) = self.memory(index) else {
                return self.memory.addresses.push(from);
            };
            let mut to =
                Self::message_targets(&mut self.memory.spill, &self.memory.pool, start, room);
            let parts = if to[1].is_empty() { 1 } else { 2 };
            space = Some(room);
            self.kernel.calls_mut().recv_from(fd, kind, &mut to[..parts], &mut from)
        };
        if got.moved < 0 || got.end {
            self.memory.addresses.push(from);
            return self.read_stopped(index, slot, got);
        }
        let len = got.moved as usize;
        let data = match space {
            // SAFETY: the kernel has written `len` bytes of the space, and of the spill behind it.
            Some(room) => unsafe { self.lease(len as u32, room) },
            None => {
                let mut buf = self.ops[slot].buf.take();
                // SAFETY: the kernel has written `len` bytes from the start.
                unsafe { buf.set_filled(len) };
                buf
            }
        };
        *left = left.saturating_sub(if multishot { len.max(EMPTY_COST) } else { len.max(1) });
        self.sched.turn_bytes -= len as isize;
        self.note_bytes(index, READ_PAUSED);
        self.finish_read(index, slot, Ok(Done::Received { data, from, truncated: got.cut }));
    }

    /// One call for the receives at the head of the queue, or for a multishot one with room for as
    /// many datagrams as the call is likely to find. False if they must be tried one by one.
    #[inline(never)]
    fn receive_many(&mut self, index: u32, head: u32, left: &mut usize) -> bool {
        let most = self.kernel.calls().datagrams_per_call(false).min(MOST);
        // A call should not take many more bytes than the source's share.
        let asked = most.min(self.memory.expected.count).min(*left / self.memory.expected.len);
        // `receive_one` waits, if the first one takes memory of the pool.
        if asked < LEAST || self.holds_share(index) {
            return false;
        }
        let chunk = self.memory.pool.chunk_bytes();
        // The larger the buffers are, the fewer a call has. A datagram takes at most 64 KiB of one.
        let room = (MOST_MEMORY / (chunk + SKEW)).min(MOST);
        let free = self.memory.pool.free_chunks().min(room);
        let mut slots = [NIL; MOST];
        let mut to = [const { Target::NONE }; MOST];
        let (mut count, mut leases) = (0, 0);
        let mut slot = head;
        while count < asked && slot != NIL && self.ops[slot].code == OpCode::RecvFrom {
            let op = &mut self.ops[slot];
            let (start, len) = if op.count != 0 {
                let mut target = op.buf.target(0, usize::MAX);
                (target.as_mut_ptr(), target.len())
            } else if leases < free {
                if leases == 0 {
                    self.memory.spill.clear();
                    self.memory.spill.reserve(room * (chunk + SKEW));
                }
                leases += 1;
                (self.memory.spill.as_mut_ptr().wrapping_add((leases - 1) * (chunk + SKEW)), chunk)
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
        let short = count.saturating_sub(self.memory.addresses.len());
        self.memory.addresses.extend((0..short).map(|_| Address::unspecified()));
        let base = self.memory.addresses.len() - count;
        let mut got = [Received::plain(0); MOST];
        let (fd, kind) = (self.sources[index].fd, self.sources[index].kind());
        let from = &mut self.memory.addresses[base..];
        let to_all = &mut to[..count];
        let found = self.kernel.calls_mut().recv_many(fd, kind, to_all, from, &mut got[..count]);
        if found < 0 {
            if found == -(libc::EOPNOTSUPP as isize) {
                return false;
            }
            self.read_stopped(index, head, Received::plain(found));
            return true;
        }
        let found = (found as usize).min(count);
        let mut senders = [const { None }; MOST];
        for (place, sender) in
            senders.iter_mut().zip(self.memory.addresses.drain(base..base + found))
        {
            *place = Some(sender);
        }
        let mut longest = 0;
        for i in 0..found {
            let slot = slots[i];
            if got[i].end {
                self.read_stopped(index, slot, got[i]);
                return true;
            }
            let len = got[i].moved.max(0) as usize;
            longest = longest.max(len);
            let op = &mut self.ops[slot];
            let cost = if op.multishot { len.max(EMPTY_COST) } else { len.max(1) };
            let data = if op.count != 0 {
                let mut buf = op.buf.take();
                // SAFETY: the kernel has written `len` bytes from the start.
                unsafe { buf.set_filled(len) };
                buf
            } else {
                // SAFETY: the kernel has written `len` bytes of this target, in the spill.
                let bytes = unsafe { std::slice::from_raw_parts(to[i].as_mut_ptr(), len) };
                self.stats.counters.copied_bytes += len as u64;
                // A chunk is free for each datagram of the call.
                self.memory
                    .pool
                    .copy_whole(bytes)
                    .map_or_else(|| Buf::from(bytes.to_vec()), Buf::from)
            };
            *left = left.saturating_sub(cost);
            self.sched.turn_bytes -= len as isize;
            let from = senders[i].take().expect("one for each");
            let done = Done::Received { data, from, truncated: got[i].cut };
            self.finish_read(index, slot, Ok(done));
        }
        self.memory.expected.learn(count, found, longest);
        self.note_bytes(index, READ_PAUSED);
        true
    }

    /// One attempt to send the datagram at the head of the queue, or several at once.
    pub(in crate::proactor) fn run_send_to(&mut self, index: u32, slot: u32, left: &mut usize) {
        if self.ops[slot].next != NIL {
            return self.run_sends(index, left);
        }
        self.send_one(index, slot, left);
    }

    #[inline(always)]
    fn send_one(&mut self, index: u32, slot: u32, left: &mut usize) {
        let op = &self.ops[slot];
        let to = op.address.as_ref().expect("a send has an address");
        let is_unix = to.raw().is_unix();
        let moved = self.kernel.calls_mut().send_to(self.sources[index].fd, &op.buf, to);
        *left = left.saturating_sub(cost(moved));
        self.sent_or_paused(index, slot, is_unix, moved);
    }

    /// Sends the datagrams at the head of the queue: several with one call, or else the first one.
    #[inline(never)]
    pub(in crate::proactor) fn run_sends(&mut self, index: u32, left: &mut usize) {
        if !self.send_many(index, left) {
            self.send_one(index, self.sources[index].writes.head, left);
        }
    }

    /// One call for the datagrams at the head of the queue. False if there is only one, or if they
    /// must be tried one by one.
    fn send_many(&mut self, index: u32, left: &mut usize) -> bool {
        let state = &self.sources[index];
        let most = self.kernel.calls().datagrams_per_call(true).min(MOST);
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
            let op = &self.ops[slot];
            // The error of the first unsent datagram is lost here, and comes again when that
            // datagram is tried again. The error that an earlier datagram left on a connected
            // socket does not come again.
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
        let sent = self.kernel.calls_mut().send_many(state.fd, &datagrams[..count]);
        let is_unix = datagrams[0].1.raw().is_unix();
        if sent < 0 {
            if sent == -(libc::EOPNOTSUPP as isize) {
                return false;
            }
            *left = left.saturating_sub(cost(sent));
            self.sent_or_paused(index, head, is_unix, sent);
            return true;
        }
        for &slot in &slots[..count.min(sent as usize)] {
            let len = self.ops[slot].buf.len();
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
            self.pause(index, WRITE_PAUSED);
        } else {
            self.sent(index, slot, moved);
        }
    }

    /// Leaves a datagram to the next turn, which sends all that its source has queued by then. One
    /// that exceeds the source's bound ends the source at once, as other writes do.
    pub(in crate::proactor) fn defer_send(&mut self, index: u32, ticket: Ticket) {
        if self.ops.exceeds {
            return self.finish_write_start(index, ticket, 0);
        }
        if self.sources[index].can_write() {
            self.enqueue(index);
        }
    }

    /// Makes room for another deferred datagram of `len` bytes: if the queued ones would cause its
    /// refusal, they are sent first.
    pub(in crate::proactor) fn make_room(&mut self, index: u32, len: usize) {
        let state = &self.sources[index];
        let queued = state.queued_bytes as usize;
        let exceeds = queued > 0 && queued + len > self.config.write_limit as usize;
        if (exceeds || self.ops.table.len() >= self.ops.table.limit()) && state.can_write() {
            let mut left = self.config.source_budget.min(MOST_COPIED);
            self.run_writes(index, &mut left);
            self.requeue(index);
        }
    }

    /// A datagram is out, or the attempt answered `-errno`.
    #[inline(always)]
    pub(in crate::proactor) fn sent(&mut self, index: u32, slot: u32, moved: isize) {
        if moved < 0 {
            return self.write_stopped(index, slot, moved);
        }
        self.note_bytes(index, WRITE_PAUSED);
        let op = &mut self.ops[slot];
        let buf = op.buf.take();
        let address = op.address.take();
        let len = buf.len() as u32;
        self.memory.keep_address(address);
        self.finish_write(index, slot, Ok(Done::Written { buf, bytes: moved as u32 }));
        self.unqueue(index, len);
    }
}

/// How the driver serves these operations, and how often.
pub(super) fn explain(stats: &Stats, explain: &mut Explain) {
    let datagrams = stats.count(OpCode::RecvFrom) + stats.count(OpCode::SendTo);
    explain.row("recv_from, send_to", "recvmsg / sendmsg", TRIED, datagrams);
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::driver::config::Config;
    use crate::sim::Sim;
    use crate::{Completions, Watcher};

    /// A call takes at most 4 MiB for buffers of any size, and all datagrams arrive.
    #[test]
    fn large_buffers_are_not_offered_in_batches() {
        const DATAGRAMS: u64 = 64;
        for size in [64 << 10, 1 << 20, 3 << 20] {
            let config = Config { buffer_size: size, swap_limit: 1 << 30, ..Config::default() };
            let driver = Proactor::simulated(&Sim::new(1), config);
            let mut watcher = Watcher::with_driver(driver);
            let here = watcher.bind_datagram((Ipv4Addr::LOCALHOST, 1), <_>::default()).unwrap();
            let there = watcher.bind_datagram((Ipv4Addr::LOCALHOST, 2), <_>::default()).unwrap();
            let to = watcher.local_address(here).unwrap();
            let mut done = Completions::new();
            let mut heard = Vec::new();
            watcher.submit(Op::recv_from(here).multishot()).unwrap();
            // The first datagrams teach the driver to expect several at a time.
            for at in 0..DATAGRAMS {
                watcher.submit(Op::send_to(there, vec![7; at as usize], to.clone())).unwrap();
                if at % 8 > 0 {
                    continue;
                }
                while heard.len() as u64 <= at {
                    watcher.wait(&mut done).unwrap();
                    for c in done.drain(..) {
                        if let Ok(Done::Received { data, .. }) = c.result {
                            heard.push(data.len());
                        }
                    }
                }
            }
            let order: Vec<usize> = (0..heard.len()).collect();
            assert_eq!(heard, order);
            let room = watcher.driver().memory.spill.capacity();
            assert!(room <= MOST_MEMORY, "{room} bytes for buffers of {size}");
        }
    }
}
