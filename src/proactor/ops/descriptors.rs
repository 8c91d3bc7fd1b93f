//! Messages that carry descriptors, on Unix sockets.

#![allow(unsafe_code)]
//! # Safety
//!
//! What a kernel says it has written becomes the length of a lease: the promise of `Kernel`'s
//! implementers.

use crate::completion::Done;
use crate::kernel::{Calls, Kernel};
use crate::memory::buf::Buf;
use crate::op::{Op, OpCode};
use crate::proactor::Proactor;
use crate::proactor::ops::submit::check_len;
use crate::proactor::ops::writes::cost;
use crate::proactor::ops::{Submitted, TRIED};
use crate::proactor::parts::report::Stats;
use crate::proactor::parts::state::{QUIET, STREAM};
use crate::words::address::Address;
use crate::words::error::Refusal;
use crate::words::explain::Explain;
use crate::words::source::SourceKind;

impl<K: Kernel> Proactor<K> {
    /// Whether messages of a source can carry descriptors. Datagram sockets other than Unix ones
    /// send the bytes and silently drop the descriptors.
    fn passes_descriptors(&mut self, index: u32) -> bool {
        let state = &self.sources[index];
        match state.kind() {
            SourceKind::UnixStream => true,
            SourceKind::Seqpacket | SourceKind::Datagram => {
                self.kernel.calls().local_address(state.fd).is_ok_and(|at| at.raw().is_unix())
            }
            _ => false,
        }
    }

    #[inline(never)]
    pub(in crate::proactor) fn submit_descriptors(&mut self, op: &mut Op, token: u64) -> Submitted {
        let index = self.usable(op.source)?;
        if !self.passes_descriptors(index) || op.buf.is_list() {
            return Err(Refusal::Unsupported);
        }
        if op.code.is_read() {
            let ticket = self.place(op.code, index, token)?;
            return Ok(self.start_read(index, ticket, op.deadline_ns));
        }
        check_len(op.buf.len())?;
        let ticket = self.push_write(op.code, index, token, &mut op.buf, false)?;
        self.ops[ticket.index()].address = op.payload.take_address();
        self.finish_write_start(index, ticket, op.deadline_ns);
        Ok(ticket)
    }

    pub(in crate::proactor) fn run_recv_descriptors(
        &mut self,
        index: u32,
        slot: u32,
        left: &mut usize,
    ) {
        let Some((start, room)) = self.memory(index) else { return };
        let state = &mut self.sources[index];
        let mut to = Self::message_targets(&mut self.memory.spill, &self.memory.pool, start, room);
        // A stream keeps the bytes that do not fit.
        let parts = if state.has(STREAM) || to[1].is_empty() { 1 } else { 2 };
        let mut received = Vec::new();
        let (fd, kind) = (state.fd, state.kind());
        let (got, lost) =
            self.kernel.calls_mut().recv_descriptors(fd, kind, &mut to[..parts], &mut received);
        let moved = got.moved;
        if moved < 0 || moved == 0 && received.is_empty() && !lost {
            return self.read_stopped(index, slot, got);
        }
        // A read stops behind passed descriptors, so a short one proves nothing.
        state.flags &= !QUIET;
        state.settle(0, 1, true);
        // SAFETY: the kernel has written `moved` bytes of the space, and of the spill behind it.
        let data = unsafe { self.lease(moved as u32, room) };
        *left = left.saturating_sub(moved as usize);
        self.sched.turn_bytes -= moved;
        let mut address = self.memory.address();
        address.set_descriptors(received);
        let descriptors = crate::words::address::Descriptors(address);
        self.finish_read(
            index,
            slot,
            Ok(Done::Descriptors { data, descriptors, lost, truncated: got.cut }),
        );
    }

    /// A receive has met the end of the bytes.
    pub(in crate::proactor) fn recv_descriptors_ended(&mut self, index: u32, slot: u32) {
        let descriptors = crate::words::address::Descriptors(self.memory.address());
        let data = Buf::default();
        let done = Done::Descriptors { data, descriptors, lost: false, truncated: false };
        self.finish_read(index, slot, Ok(done));
    }

    pub(in crate::proactor) fn run_send_descriptors(
        &mut self,
        index: u32,
        slot: u32,
        left: &mut usize,
    ) {
        let (state, op) = (&self.sources[index], &self.ops[slot]);
        let from = op.moved as usize;
        let offered = op.buf.len() - from;
        let moved = if from == 0 {
            let descriptors = op.address.as_ref().map_or(&[][..], Address::descriptors);
            self.kernel.calls_mut().send_descriptors(state.fd, &op.buf, descriptors)
        } else {
            self.kernel.calls_mut().send(state.fd, state.kind(), &op.buf[from..])
        };
        *left = left.saturating_sub(cost(moved));
        self.wrote(index, slot, moved, offered);
    }
}

/// How the driver serves these operations, and how often.
pub(super) fn explain(stats: &Stats, explain: &mut Explain) {
    let passed = stats.count(OpCode::RecvDescriptors) + stats.count(OpCode::SendDescriptors);
    explain.row("descriptors", "SCM_RIGHTS", TRIED, passed);
}
