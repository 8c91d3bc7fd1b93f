//! Waits for a number of completions, or for the completion of one operation. Also completions that
//! the program gives back.

use std::io;

use crate::completion::verbs::Wait;
use crate::completion::{Completion, Done};
use crate::kernel::Kernel;
use crate::proactor::Proactor;
use crate::proactor::parts::state::{HELD, INLINE_TICKET, WAITING};
use crate::words::error::{Limit, Refusal};
use crate::words::source::{SourceKind, Ticket};

impl<K: Kernel> Proactor<K> {
    /// Waits for the final completion of an operation, and takes it out. All others stay.
    pub(in crate::proactor) fn take_one(&mut self, ticket: Ticket) -> io::Result<Completion> {
        self.sources.check_fork()?;
        self.outbox.forget_delivered();
        if ticket.index() & INLINE_TICKET == 0 {
            self.take_submitted(ticket);
        }
        let (mut seen, mut tried) = (0, false);
        loop {
            if let Some(done) = self.outbox.batch.take_final(ticket, seen) {
                self.outbox.delivered_accepts =
                    usize::from(matches!(done.result, Ok(Done::Accepted(_))));
                self.stats.note_delivery(1);
                return Ok(done);
            }
            self.check_in_flight(ticket)?;
            let held_up = self.why_held_up(ticket);
            if tried && let Some(reason) = held_up {
                return Err(reason.into());
            }
            // New completions are added behind those that this loop has searched.
            seen = self.outbox.batch.len();
            // The program may have returned the lease or vacated the slot meanwhile, so we try one
            // turn first.
            tried = held_up.is_some();
            let wait = if tried { Wait::Now } else { Wait::Forever };
            if self.sources.closed {
                self.turn_closed(wait)?;
            } else {
                self.turn(wait, seen + 1)?;
            }
        }
    }

    /// Puts completions back that were delivered last. The next delivery begins with them.
    pub(crate) fn put_back(&mut self, left: Vec<Completion>) {
        self.stats.counters.completed -= left.len() as u64;
        let is_connection = |c: &&Completion| matches!(c.result, Ok(Done::Accepted(_)));
        let connections = left.iter().filter(is_connection).count();
        // The connections need slots again, unless they are still counted.
        let counted = connections.min(self.outbox.delivered_accepts);
        self.outbox.delivered_accepts -= counted;
        self.outbox.accepted += connections - counted;
        self.outbox.batch.put_back(left);
    }

    /// Whether undelivered completions may hold the leases, or the slots for connections, that
    /// operations wait for.
    pub(in crate::proactor) fn may_hold_up(&mut self) -> bool {
        if self.outbox.batch.is_empty() || self.sched.waits.is_empty() {
            return false;
        }
        self.drop_gone_waits();
        self.sched.waits.reads_wait() || self.sched.waits.has_accepts()
    }

    /// The limit at which an operation waits, if undelivered completions may hold its resource.
    fn why_held_up(&mut self, ticket: Ticket) -> Option<Refusal> {
        if !self.may_hold_up() {
            return None;
        }
        let index = match ticket.index() & INLINE_TICKET {
            0 => {
                let op = self.ops.table.find(ticket.index(), ticket.generation())?;
                if op.code.is_read() { op.source } else { return None }
            }
            _ => ticket.index() & !INLINE_TICKET,
        };
        let state = self.sources.table.peek(index).filter(|state| state.has(WAITING | HELD))?;
        if state.kind() == SourceKind::Listener {
            return Some(self.sources.full());
        }
        let count = self.memory.pool.limit_bytes();
        Some(Refusal::Full { limit: Limit::SwapBytes, count })
    }

    /// Checks that a completion of this ticket will come, and that there is room for others before
    /// it.
    fn check_in_flight(&mut self, ticket: Ticket) -> Result<(), Refusal> {
        let (slot, generation) = (ticket.index(), ticket.generation());
        let waits_in_queue = match slot & INLINE_TICKET {
            0 => self.ops.table.find(slot, generation).map(|op| op.reserved),
            _ => (self.sources.is_inline(ticket)
                || self.sources.moved_read(&self.ops, ticket).is_some())
            .then_some(false),
        };
        match waits_in_queue {
            _ if self.outbox.batch.is_full() => Err(self.outbox.full()),
            Some(false) => Ok(()),
            _ => Err(self.sources.stale()),
        }
    }
}
