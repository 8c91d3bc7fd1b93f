//! The operations: each file has the submission, the attempts and the ends of operations that
//! belong together. This file says which file serves which operation.

mod accept;
mod append;
mod close;
mod connect;
mod datagram;
mod descriptors;
mod direct;
pub(in crate::proactor) mod end;
mod file;
mod inline_read;
mod job;
mod nop;
mod poll;
mod process;
pub(super) mod race;
mod read;
pub(in crate::proactor) mod reads;
pub(in crate::proactor) mod receive;
pub(super) mod send_file;
pub(in crate::proactor) mod started;
pub(in crate::proactor) mod submit;
pub(super) mod timer;
mod write;
pub(in crate::proactor) mod writes;

use file::NewReadAt;

use crate::completion::verbs::Submit;
use crate::kernel::Kernel;
use crate::memory::buf::Buf;
use crate::op::payload::Payload;
use crate::op::{self, Family, MULTISHOT, Op, OpCode};
use crate::proactor::Proactor;
use crate::proactor::ops::read::EMPTY_COST;
use crate::proactor::parts::report::Stats;
use crate::words::error::{Refusal, Refused};
use crate::words::explain::Explain;
use crate::words::source::{Source, Ticket};

pub(super) use datagram::Expected;
pub(super) use read::was_inline;

/// When the driver tries an operation that may block.
const TRIED: &str = "tried at submission; what would block waits for the edge";

/// The ticket of an accepted operation, or why it is refused.
pub(super) type Submitted = Result<Ticket, Refusal>;

impl<K: Kernel> Proactor<K> {
    /// Accepts an operation whose ticket another thread has: its slot is reserved.
    pub(super) fn submit_in(&mut self, ticket: Ticket, mut op: Op) -> Result<(), Refused<Op>> {
        self.ops.given = Some(ticket);
        let is_quiet = op.flags & op::QUIET != 0;
        let answer = match op.code {
            // `submit` might accept these operations without a slot, and would leave the ticket
            // unused.
            OpCode::Read if !is_quiet => self.submit_read_in_slot(&op),
            OpCode::Write => self.submit_write_in_slot(&mut op),
            _ => return self.submit_given(ticket, op),
        };
        self.settle_given(ticket);
        answer.map(drop).map_err(|reason| Refused { value: op, reason })
    }

    fn submit_given(&mut self, ticket: Ticket, op: Op) -> Result<(), Refused<Op>> {
        let answer = self.submit(op);
        self.settle_given(ticket);
        answer.map(|accepted| debug_assert_eq!(accepted, ticket))
    }

    /// Vacates the slot of another thread's operation if the operation ended at once or was
    /// refused.
    pub(super) fn settle_given(&mut self, ticket: Ticket) {
        self.ops.given = None;
        let op = self.ops.table.find(ticket.index(), ticket.generation());
        if op.is_some_and(|op| op.reserved) {
            self.ops.vacate_reserved(ticket);
        }
    }

    /// Accepts an operation that `submit` does not serve by itself.
    #[inline(never)]
    fn submit_other(&mut self, mut op: Op) -> Result<Ticket, Refused<Op>> {
        if op.flags & op::QUIET != 0 {
            return Err(Refused { reason: self.why_not_quiet(), value: op });
        }
        let token = self.sources.token(op.source, op.token);
        let answer = match op.code.family() {
            Family::Nop => self.submit_nop(token),
            Family::Timer => self.submit_timer(&op, token),
            Family::Read => self.submit_read_with_buffer(&mut op, token),
            Family::Accept => self.submit_accept(&op, token),
            Family::Connect => self.submit_connect(&mut op, token),
            Family::Close => self.submit_after_writes(op.code, op.source, token, op.deadline_ns),
            Family::Datagram => self.submit_datagram(&mut op, token),
            Family::Descriptors => self.submit_descriptors(&mut op, token),
            Family::Poll => self.submit_poll(&op, token),
            Family::Process => self.submit_of_process(&op, token),
            Family::File => self.submit_file(&mut op, token),
            Family::SendFile => self.submit_send_file(&mut op, token),
            Family::Job => self.submit_job(&mut op, token),
            Family::Message => Err(Refusal::Unsupported),
            Family::Write => unreachable!("`submit` serves it"),
        };
        answer.map_err(|reason| Refused { value: op, reason })
    }

    /// One attempt of the read at the head of a source's queue.
    #[inline(never)]
    pub(super) fn attempt_read(&mut self, index: u32, left: &mut usize) {
        let (slot, before) = (self.sources[index].reads.head, *left);
        match self.ops[slot].code.family() {
            Family::Read => self.run_read_op(index, slot, left),
            Family::Accept => self.run_accept(index, slot, left),
            Family::Datagram => self.run_recv_from(index, slot, left),
            Family::Descriptors => self.run_recv_descriptors(index, slot, left),
            Family::Process => self.run_of_process(index, slot, left),
            family => unreachable!("{family:?} is no read"),
        }
        if *left == before {
            *left = left.saturating_sub(EMPTY_COST);
        }
    }

    /// An attempt to read has met the end of the bytes, or an empty message.
    pub(super) fn read_ended(&mut self, index: u32, slot: u32) {
        match self.ops[slot].code.family() {
            Family::Descriptors => self.recv_descriptors_ended(index, slot),
            _ => self.read_op_ended(index, slot),
        }
    }

    /// One attempt of the operation at the head of a source's writes.
    #[inline(always)]
    pub(super) fn attempt_write(&mut self, index: u32, left: &mut usize) {
        let slot = self.sources[index].writes.head;
        match self.ops[slot].code.family() {
            Family::Write => self.run_write(index, slot, left),
            Family::Datagram => self.run_send_to(index, slot, left),
            Family::Descriptors => self.run_send_descriptors(index, slot, left),
            Family::SendFile => self.run_send_file(index, slot, left),
            Family::Connect => self.run_connect(index, slot),
            Family::Close => self.run_close(index, slot),
            family => unreachable!("{family:?} is no write"),
        }
    }

    /// The refusal of a quiet operation that is no write.
    #[cold]
    fn why_not_quiet(&self) -> Refusal {
        self.sources.check_open().err().unwrap_or(Refusal::Unsupported)
    }

    #[cold]
    #[inline(never)]
    fn refuse_quiet(&mut self, buf: Buf) -> Option<Ticket> {
        self.outbox.refusal = (self.why_not_quiet(), buf);
        None
    }

    /// Puts a refused operation together again.
    #[cold]
    #[inline(never)]
    fn refuse(
        &mut self,
        code: OpCode,
        source: Source,
        token: u64,
        deadline_ns: u64,
        flags: u8,
        payload: Payload,
    ) -> Refused<Op> {
        let buf = self.outbox.refusal.1.take();
        let op = Op { source, token, deadline_ns, buf, payload, count: 0, code, flags };
        Refused { value: op, reason: self.outbox.refusal.0 }
    }
}

/// How the driver serves operations on sources, and how often.
pub(super) fn explain(stats: &Stats, explain: &mut Explain, has_files: bool) {
    read::explain(stats, explain);
    write::explain(stats, explain);
    accept::explain(stats, explain);
    connect::explain(stats, explain);
    close::explain(stats, explain, has_files);
    datagram::explain(stats, explain);
    descriptors::explain(stats, explain);
    poll::explain(stats, explain);
    process::explain(stats, explain);
    timer::explain(stats, explain);
}

impl<K: Kernel> Submit for Proactor<K> {
    type Op = Op;

    #[inline(always)]
    fn submit(&mut self, op: Op) -> Result<Ticket, Refused<Op>> {
        // In parts, and inlined where the operation is made: then the usual operations stay in
        // registers.
        let Op { source, token, deadline_ns: due_ns, buf, payload, count, code, flags } = op;
        let mut offset = None;
        let answer = match code {
            OpCode::Read => {
                // It has no buffer and no address to drop.
                std::mem::forget((buf, payload));
                if !K::COMPLETES && due_ns == 0 && flags == 0 {
                    self.submit_plain_read(source, token)
                } else if flags & op::QUIET != 0 {
                    self.refuse_quiet(Buf::NONE)
                } else {
                    self.submit_read(source, token, due_ns, flags & MULTISHOT != 0)
                }
            }
            OpCode::Write => {
                // It has nothing else to drop.
                std::mem::forget(payload);
                if flags & op::QUIET == 0 {
                    self.submit_write(source, token, due_ns, buf)
                } else {
                    self.submit_quiet_write(source, token, due_ns, buf)
                }
            }
            OpCode::ReadAt => {
                let at = *offset.insert(payload.as_offset());
                // It has nothing else to drop.
                std::mem::forget(payload);
                if flags & op::QUIET != 0 {
                    self.refuse_quiet(buf)
                } else {
                    self.submit_read_at(NewReadAt { source, token, due_ns, offset: at, flags, buf })
                }
            }
            OpCode::Close => {
                // As for a read: no buffer and no address to drop.
                std::mem::forget((buf, payload));
                if flags & op::QUIET != 0 {
                    self.refuse_quiet(Buf::NONE)
                } else {
                    self.submit_close(source, token, due_ns)
                }
            }
            _ => {
                let deadline_ns = due_ns;
                let op = Op { source, token, deadline_ns, buf, payload, count, code, flags };
                return self.submit_other(op);
            }
        };
        if let Some(ticket) = answer {
            return Ok(ticket);
        }
        let payload = offset.map_or(Payload::NONE, Payload::offset);
        Err(self.refuse(code, source, token, due_ns, flags, payload))
    }

    fn cancel(&mut self, ticket: Ticket) -> bool {
        self.sources.check_fork().is_ok() && self.cancel_ticket(ticket)
    }
}
