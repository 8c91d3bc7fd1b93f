//! Polls, which wait for readiness, and operations that wait until a queue of writes is short.

use crate::completion::{Completion, Done};
use crate::kernel::{Calls, Kernel};
use crate::op::operation::Operation;
use crate::op::{Op, OpCode};
use crate::proactor::Proactor;
use crate::proactor::ops::Submitted;
use crate::proactor::parts::operations::Slots;
use crate::proactor::parts::report::Stats;
use crate::proactor::parts::state::{
    INLINE_READ, POLLED, READ_PAUSED, READABLE, READS, REGISTERED, SourceState, WRITABLE,
    WRITE_PAUSED, WRITES, WRITES_REGISTERED,
};
use crate::sys::interest::Ready;
use crate::words::error::{ErrorKind, Refusal};
use crate::words::explain::Explain;
use crate::words::source::SourceKind;

impl<K: Kernel> Proactor<K> {
    #[inline(never)]
    pub(in crate::proactor) fn submit_poll(&mut self, op: &Op, token: u64) -> Submitted {
        let index = self.usable(op.source)?;
        let polls = op.code != OpCode::WaitDrained;
        if polls && self.sources[index].kind() == SourceKind::File {
            return Err(Refusal::Unsupported);
        }
        let ticket = self.place(op.code, index, token)?;
        let entry = &mut self.ops[ticket.index()];
        (entry.count, entry.multishot) = (op.count, op.is_multishot());
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

    /// Answers the polls of a source whose conditions hold.
    pub(in crate::proactor) fn run_polls(&mut self, index: u32) {
        self.sources[index].flags &= !POLLED;
        if self.sources[index].fd < 0 {
            // The source is not connected yet. Its polls begin when it is.
            return;
        }
        let mut slots = Slots(self.sources[index].polls);
        // Whether any poll goes on, and then whether one of them waits for writes.
        let mut pending = None;
        while let Some(slot) = slots.next(&self.ops) {
            let state = &mut self.sources[index];
            match self.ops[slot].code {
                OpCode::Poll => {
                    let interest = Ready::from_bits(self.ops[slot].count as u16);
                    match self.kernel.calls_mut().poll(state.fd, interest) {
                        Ok(ready) if ready.is_empty() => pending = Some(true),
                        Ok(ready) => self.finish_write(index, slot, Ok(Done::Ready(ready))),
                        Err(errno) => self.fail(slot, ErrorKind::Os(errno)),
                    }
                }
                OpCode::Readable if state.is_worth(READING) => {
                    self.tell_ready(index, slot, Ready::READABLE);
                }
                OpCode::Writable if state.is_worth(WRITING) => {
                    self.tell_ready(index, slot, Ready::WRITABLE);
                }
                OpCode::Readable => pending = pending.or(Some(false)),
                OpCode::Writable => pending = Some(true),
                // The list also has other operations without an order.
                _ => {}
            }
        }
        if let Some(writes) = pending
            && let Err(errno) = self.register(index, writes)
        {
            self.sources[index].flags |= READABLE | WRITABLE;
            let mut slots = Slots(self.sources[index].polls);
            while let Some(slot) = slots.next(&self.ops) {
                if matches!(self.ops[slot].code, OpCode::Poll | OpCode::Readable | OpCode::Writable)
                {
                    self.fail(slot, ErrorKind::Os(errno));
                }
            }
        }
    }

    /// An attempt in a direction is worth it: completes an operation that waits for that.
    fn tell_ready(&mut self, index: u32, slot: u32, ready: Ready) {
        if !K::EDGES {
            self.sched.note_told(index, u32::from(ready.bits()));
        }
        let result = Ok(Done::Ready(ready));
        if !self.ops[slot].multishot {
            return self.finish_write(index, slot, result);
        }
        let (source, ticket) = (self.sources[index].name(index), self.ops.ticket(slot));
        let (code, token) = (self.ops[slot].code, self.ops[slot].token);
        self.stats.continued += 1;
        let done = Completion::new(code, source, ticket, token, result).with_more(true);
        self.outbox.batch.push(done);
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

    /// The conditions that the polls of a source wait for, if it has any polls.
    pub(in crate::proactor) fn polled_for(&self, index: u32) -> Option<Ready> {
        let flags = self.sources[index].flags;
        let polls = self.ops.queue(self.sources[index].polls);
        polls.filter_map(|op| awaited(op, flags)).reduce(|all, on| all | on)
    }
}

/// A direction of a source, by its flags: worth an attempt, paused, registered, with operations in
/// its queue.
struct Direction(u32, u32, u32, u32);

const READING: Direction = Direction(READABLE, READ_PAUSED, REGISTERED, INLINE_READ | READS);
const WRITING: Direction =
    Direction(WRITABLE, WRITE_PAUSED, REGISTERED | WRITES_REGISTERED, WRITES);

impl SourceState {
    /// Whether an attempt is worth it, as far as the selector has told. Without a registration the
    /// flag is only a guess: this call clears it, and the registration reports.
    fn is_worth(&mut self, direction: Direction) -> bool {
        let Direction(worth, paused, registered, queued) = direction;
        if self.flags & registered != registered {
            self.flags &= if self.has(queued) { !0 } else { !worth };
            return false;
        }
        self.flags & (worth | paused) == worth
    }
}

/// The conditions that an operation without an order waits for, if it waits for any. (A selector
/// without edges would report again and again what is known already.)
fn awaited(op: &Operation, flags: u32) -> Option<Ready> {
    match op.code {
        OpCode::Poll => Some(Ready::from_bits(op.count as u16)),
        OpCode::Readable if flags & READABLE == 0 => Some(Ready::READABLE),
        OpCode::Writable if flags & WRITABLE == 0 => Some(Ready::WRITABLE),
        _ => None,
    }
}

/// How the driver serves these operations, and how often.
pub(super) fn explain(stats: &Stats, explain: &mut Explain) {
    let counted = "when a write of the source ends";
    let drains = stats.count(OpCode::WaitDrained);
    explain.row("wait_drained", "count of queued bytes", counted, drains);
    let known = [OpCode::Readable, OpCode::Writable].map(|code| stats.count(code));
    let told = "what the selector has told, and what the last attempt has found";
    explain.row("readable, writable", "no call", told, known.iter().sum());
    let asked = "asked first, then at each edge";
    explain.row("poll", "poll", asked, stats.count(OpCode::Poll));
}
