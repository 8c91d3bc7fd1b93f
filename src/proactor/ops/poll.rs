//! Polls, which wait for readiness, and operations that wait until a queue of writes is short.

use crate::completion::Done;
use crate::kernel::{Calls, Kernel};
use crate::op::{Op, OpCode};
use crate::proactor::Proactor;
use crate::proactor::ops::Submitted;
use crate::proactor::parts::operations::Slots;
use crate::proactor::parts::report::Stats;
use crate::proactor::parts::state::POLLED;
use crate::sys::interest::Ready;
use crate::words::error::{ErrorKind, Refusal};
use crate::words::explain::Explain;
use crate::words::source::SourceKind;

impl<K: Kernel> Proactor<K> {
    #[inline(never)]
    pub(in crate::proactor) fn submit_poll(&mut self, op: &Op, token: u64) -> Submitted {
        let index = self.usable(op.source)?;
        let polls = op.code == OpCode::Poll;
        if polls && self.sources[index].kind() == SourceKind::File {
            return Err(Refusal::Unsupported);
        }
        let ticket = self.place(op.code, index, token)?;
        self.ops[ticket.index()].count = op.count;
        self.sources[index].push_poll(&mut self.ops.table, ticket.index());
        if polls {
            self.sources[index].flags |= POLLED;
            self.run_polls(index);
        } else {
            self.run_drains(index);
        }
        self.set_deadline(ticket, op.deadline_ns);
        Ok(ticket)
    }

    /// The conditions that the polls of a source wait for, if it has any polls.
    pub(in crate::proactor) fn polled_for(&self, index: u32) -> Option<Ready> {
        let polls = self.ops.queue(self.sources[index].polls).filter(|op| op.code == OpCode::Poll);
        polls.map(|op| Ready::from_bits(op.count as u16)).reduce(|all, on| all | on)
    }

    /// Answers the polls of a source whose conditions hold.
    pub(in crate::proactor) fn run_polls(&mut self, index: u32) {
        self.sources[index].flags &= !POLLED;
        if self.sources[index].fd < 0 {
            // The source is not connected yet. Its polls begin when it is.
            return;
        }
        let mut slots = Slots(self.sources[index].polls);
        let mut pending = false;
        while let Some(slot) = slots.next(&self.ops) {
            // The list also has operations that wait for a drain.
            if self.ops[slot].code == OpCode::Poll {
                let interest = Ready::from_bits(self.ops[slot].count as u16);
                match self.kernel.calls_mut().poll(self.sources[index].fd, interest) {
                    Ok(ready) if ready.is_empty() => pending = true,
                    Ok(ready) => self.finish_write(index, slot, Ok(Done::Ready(ready))),
                    Err(errno) => self.fail(slot, ErrorKind::Os(errno)),
                }
            }
        }
        if pending && let Err(errno) = self.register(index, true) {
            let mut slots = Slots(self.sources[index].polls);
            while let Some(slot) = slots.next(&self.ops) {
                if self.ops[slot].code == OpCode::Poll {
                    self.fail(slot, ErrorKind::Os(errno));
                }
            }
        }
    }

    /// Ends the [`Op::wait_drained`] operations whose number of queued bytes is reached.
    #[cold]
    pub(in crate::proactor) fn run_drains(&mut self, index: u32) {
        if self.sources[index].fd < 0 {
            // The source is not connected yet. These operations wait until it is.
            return;
        }
        let mut slots = Slots(self.sources[index].polls);
        while let Some(slot) = slots.next(&self.ops) {
            let op = &self.ops[slot];
            if op.code == OpCode::WaitDrained && self.sources[index].queued_bytes <= op.count {
                self.finish_write(index, slot, Ok(Done::Drained));
            }
        }
    }
}

/// How the driver serves these operations, and how often.
pub(super) fn explain(stats: &Stats, explain: &mut Explain) {
    let counted = "when a write of the source ends";
    let drains = stats.count(OpCode::WaitDrained);
    explain.row("wait_drained", "count of queued bytes", counted, drains);
    let asked = "asked first, then at each edge";
    explain.row("poll", "poll", asked, stats.count(OpCode::Poll));
}
