//! Times: timers, the deadlines of operations, and how both are moved.

use std::num::NonZeroU32;

use crate::completion::Done;
use crate::kernel::Kernel;
use crate::op::operation::InFlight;
use crate::op::{Op, OpCode, RELATIVE};
use crate::proactor::Proactor;
use crate::proactor::ops::Submitted;
use crate::proactor::ops::race::OF_SOURCE;
use crate::proactor::parts::operations::Slots;
use crate::proactor::parts::report::Stats;
use crate::proactor::parts::state::{INLINE_MULTISHOT, INLINE_READ, INLINE_TICKET};
use crate::words::error::{ErrorKind, Refusal};
use crate::words::explain::Explain;
use crate::words::source::Ticket;
use crate::words::table::NIL;

/// The ticket of a read that has rested in the source at `index`, and has a slot of its own since
/// its deadline was set: the operation's `count` is the generation of the ticket.
#[inline]
pub(in crate::proactor) fn moved_ticket(index: u32, generation: u32) -> Ticket {
    let generation = NonZeroU32::new(generation).expect("a generation is odd");
    Ticket::from_parts(INLINE_TICKET | index, generation)
}

impl<K: Kernel> Proactor<K> {
    #[inline(never)]
    pub(in crate::proactor) fn submit_timer(&mut self, op: &Op, token: u64) -> Submitted {
        let (due_ns, limit_ns) = (op.deadline_ns, op.limit_ns());
        self.sources.check_open()?;
        if due_ns == 0 {
            // The program has built the operation from parts without a time.
            return Err(Refusal::Unsupported);
        }
        let index = if op.source.is_none() { NIL } else { self.usable(op.source)? };
        let ticket = self.place(op.code, index, token)?;
        if index != NIL {
            self.sources[index].push_timer(&mut self.ops.table, ticket.index());
        }
        // A timer keeps its deadline in this field, which file operations use for the offset.
        self.ops[ticket.index()].offset = 0;
        if limit_ns == 0 {
            self.set_deadline(ticket, due_ns);
            return Ok(ticket);
        }
        // Both times count from the same instant.
        let now_ns = self.kernel.now_ns();
        self.ops[ticket.index()].offset = absolute(limit_ns, now_ns);
        self.ops.set_timer(ticket.index(), absolute(due_ns, now_ns), now_ns);
        Ok(ticket)
    }

    /// A timer's own time has come.
    pub(in crate::proactor) fn fire(&mut self, slot: u32) {
        let op = &self.ops[slot];
        let (ticket, token, index) = (self.ops.ticket(slot), op.token, op.source);
        let source = self.sources.name(index);
        self.remove(slot);
        let done = Ok(Done::Timer);
        self.outbox.push(OpCode::Timer, source, ticket, token, done);
    }

    /// Ends the timers that a source owns, before it closes.
    pub(in crate::proactor) fn end_timers(&mut self, index: u32) {
        let mut slots = Slots(self.sources[index].polls);
        while let Some(slot) = slots.next(&self.ops) {
            if self.ops[slot].code == OpCode::Timer {
                self.fail(slot, ErrorKind::Aborted);
            }
        }
    }

    /// Gives an operation in flight another deadline, a timer another time.
    pub(in crate::proactor) fn move_deadline(
        &mut self,
        ticket: Ticket,
        due_ns: u64,
    ) -> Result<(), Refusal> {
        let mut slot = ticket.index();
        if slot & INLINE_TICKET != 0 {
            slot = match self.sources.is_inline(ticket) {
                true => self.move_to_slot(slot & !INLINE_TICKET)?,
                false => self.sources.moved_read(&self.ops, ticket).ok_or(self.sources.stale())?,
            };
        } else {
            self.take_submitted(ticket);
            let stale = self.sources.stale();
            let op = self.ops.table.find(slot, ticket.generation()).ok_or(stale)?;
            if op.reserved {
                let waits = !self.inbox.serving && self.outbox.batch.is_full();
                return Err(if waits { self.outbox.full() } else { Refusal::Stale });
            }
            if op.in_flight.ending().is_some() {
                return Err(Refusal::Stale);
            }
        }
        let now_ns = self.kernel.now_ns();
        let due_ns = absolute(due_ns, now_ns);
        let op = &self.ops[slot];
        match op.code {
            OpCode::Timer => self.ops.set_timer(slot, due_ns, now_ns),
            OpCode::Connect if op.count == OF_SOURCE => self.move_connect_deadline(slot, due_ns),
            _ => self.ops.deadlines.set(slot, due_ns),
        }
        Ok(())
    }

    /// Gives the inline read of a source a slot of its own, at the head of the queue. The read
    /// keeps its ticket.
    fn move_to_slot(&mut self, index: u32) -> Result<u32, Refusal> {
        // The read is accepted already, so no limit of the table refuses it.
        self.ops.table.set_limit(u32::MAX);
        let occupied = self.ops.table.occupy();
        self.set_limits();
        let (slot, _) = occupied.ok_or(self.ops.full())?;
        let state = &mut self.sources[index];
        let op = &mut self.ops[slot];
        op.source = index;
        op.token = state.read_token;
        op.moved = 0;
        op.count = state.read_generation.get();
        op.code = OpCode::Read;
        op.multishot = state.has(INLINE_MULTISHOT);
        op.quiet = false;
        op.in_flight = InFlight::No;
        state.flags &= !(INLINE_READ | INLINE_MULTISHOT);
        state.push_first_read(&mut self.ops.table, slot);
        Ok(slot)
    }

    /// Gives an operation that is still in flight its deadline.
    pub(in crate::proactor) fn set_deadline(&mut self, ticket: Ticket, due_ns: u64) {
        if due_ns == 0 || self.ops.table.find(ticket.index(), ticket.generation()).is_none() {
            return;
        }
        let now_ns = if due_ns & RELATIVE != 0 { self.kernel.now_ns() } else { 0 };
        self.ops.deadlines.push(ticket.index(), absolute(due_ns, now_ns));
    }
}

/// The absolute time of `due_ns`, which is relative to `now_ns` or absolute.
pub(in crate::proactor) fn absolute(due_ns: u64, now_ns: u64) -> u64 {
    if due_ns & RELATIVE != 0 { now_ns.saturating_add(due_ns ^ RELATIVE) } else { due_ns }
}

/// How the driver serves these operations, and how often.
pub(super) fn explain(stats: &Stats, explain: &mut Explain) {
    let heap = "one heap for all deadlines; the wait's timeout is its top";
    explain.row("timer", "deadline heap", heap, stats.count(OpCode::Timer));
}
