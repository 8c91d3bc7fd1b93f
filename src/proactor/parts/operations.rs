//! The operations that wait for something: their slots, their deadlines, and the connects that make
//! sources.

use std::collections::HashMap;
use std::ops::{Index, IndexMut};

use crate::completion::Done;
use crate::driver::deadline::Deadlines;
use crate::memory::buf::Buf;
use crate::memory::leaked::leak;
use crate::op::operation::{InFlight, Operation};
use crate::op::{Family, OpCode};
use crate::proactor::ops::race::Race;
use crate::proactor::ops::timer::moved_ticket;
use crate::proactor::ops::was_inline;
use crate::proactor::parts::sources::Sources;
use crate::words::error::{Error, Limit, Refusal};
use crate::words::source::Ticket;
use crate::words::table::{NIL, Table};

/// The leases of so many writes are counted. A queue of more writes counts as one that holds more
/// than any share.
const MOST_COUNTED: usize = 4096;

/// The operations of a driver, by slot.
pub(in crate::proactor) struct Operations {
    pub(in crate::proactor) table: Table<Operation>,
    /// Deadlines, by slot.
    pub(in crate::proactor) deadlines: Deadlines,
    /// Connects that make sources, by slot.
    pub(in crate::proactor) races: HashMap<u32, Race>,
    /// The number of table entries that the attempts of these connects take.
    pub(in crate::proactor) attempts: u32,
    /// If another thread submitted the operation that is being accepted: the ticket that this
    /// thread has. The slot of the ticket is reserved.
    pub(in crate::proactor) given: Option<Ticket>,
    /// The write being submitted exceeds its source's bound and ends the source.
    pub(in crate::proactor) exceeds: bool,
}

impl Operations {
    pub(in crate::proactor) fn new(table: Table<Operation>) -> Operations {
        Operations {
            table,
            deadlines: Deadlines::new(),
            races: HashMap::new(),
            attempts: 0,
            given: None,
            exceeds: false,
        }
    }

    /// The operations of a queue, from `head` on.
    pub(in crate::proactor) fn queue(&self, head: u32) -> impl Iterator<Item = &Operation> {
        let at = |slot: u32| (slot != NIL).then(|| &self.table[slot]);
        std::iter::successors(at(head), move |op| at(op.next))
    }

    #[inline]
    pub(in crate::proactor) fn ticket(&self, slot: u32) -> Ticket {
        use crate::words::table::Entry;
        let op = &self[slot];
        if was_inline(op) {
            return moved_ticket(op.source, op.count);
        }
        Ticket::from_parts(slot, op.generation())
    }

    /// All slots are taken, apart from those of the attempts of connects.
    #[cold]
    pub(in crate::proactor) fn full(&self) -> Refusal {
        Refusal::Full {
            limit: Limit::Operations,
            count: (self.table.limit() - self.attempts) as usize,
        }
    }

    /// Sets a timer's own time. If the timer has a deadline, too, the earlier of the two ends it.
    pub(in crate::proactor) fn set_timer(&mut self, slot: u32, due_ns: u64, now_ns: u64) {
        let op = &mut self[slot];
        let limit_ns = op.offset;
        // A timer whose time has come fires even if its deadline has passed: in the same way,
        // available data wins over the deadline of a read.
        let ends = limit_ns != 0 && limit_ns < due_ns && due_ns > now_ns;
        op.count = u32::from(ends);
        self.deadlines.set(slot, if ends { limit_ns } else { due_ns });
    }

    /// If a write fails, the result also counts the bytes that the kernel had written before a
    /// thread started the write again.
    pub(in crate::proactor) fn count_written(
        &self,
        slot: u32,
        result: Result<Done, Error>,
    ) -> Result<Done, Error> {
        let op = &self[slot];
        result.map_err(|error| match op.code {
            OpCode::WriteAt if error.bytes() < op.moved as usize => {
                Error::new(error.kind(), op.moved, error.into_buf())
            }
            _ => error,
        })
    }

    /// Whether any started operation of the queue at `head` was told to end. The kernel has several
    /// of them if they go out in one message.
    pub(in crate::proactor) fn is_any_ending_from(&self, head: u32) -> bool {
        let mut started = self.queue(head).take_while(|op| op.in_flight != InFlight::No);
        started.any(|op| op.in_flight.ending().is_some())
    }

    pub(in crate::proactor) fn is_ending(&mut self, ticket: Ticket) -> bool {
        let op = self.table.find(ticket.index(), ticket.generation());
        op.is_some_and(|op| op.in_flight.ending().is_some())
    }

    /// Leaks the buffer of an operation to the kernel. What a read has moved goes with its buffer.
    pub(in crate::proactor) fn leave_to_kernel(&mut self, slot: u32) {
        let op = &mut self[slot];
        leak(op.buf.take());
        if op.code.fills() {
            op.moved = 0;
        }
    }

    /// Vacates a slot that was reserved for another thread's ticket.
    pub(in crate::proactor) fn vacate_reserved(&mut self, ticket: Ticket) {
        let op = &mut self[ticket.index()];
        debug_assert!(op.reserved);
        op.reserved = false;
        self.table.vacate(ticket.index());
    }

    /// The code that the completion of an operation has. (A job of a thread closes a file: see
    /// `close_late`.)
    pub(in crate::proactor) fn told_code(&self, sources: &Sources, slot: u32) -> OpCode {
        let op = &self[slot];
        let is_job = op.code.family() == Family::Job;
        let closes = is_job && op.source != NIL && sources[op.source].fd < 0;
        if closes { OpCode::Close } else { op.code }
    }

    /// The number of operations of a source that were told to end and have not ended.
    pub(in crate::proactor) fn count_ending(&self, sources: &Sources, index: u32) -> usize {
        let state = &sources[index];
        let heads = [state.reads.head, state.writes.head, state.polls].into_iter();
        let all = heads.flat_map(|head| self.queue(head));
        all.filter(|op| op.in_flight.ending().is_some()).count()
    }

    /// The number of leases in a queue of writes, as `of` counts those of a buffer. It counts up to
    /// `most` and the leases of one more write.
    pub(in crate::proactor) fn count_leases(
        &self,
        head: u32,
        most: usize,
        of: impl Fn(&Buf) -> usize,
    ) -> usize {
        let (mut held, mut looks) = (0, 0);
        for op in self.queue(head) {
            if held > most {
                break;
            }
            held += of(&op.buf);
            looks += 1;
            if looks == MOST_COUNTED {
                return most + 1;
            }
        }
        held
    }
}

/// The slots of a queue, from this one on. The operation of a slot may end before the next step.
pub(in crate::proactor) struct Slots(pub(in crate::proactor) u32);

impl Slots {
    #[inline]
    pub(in crate::proactor) fn next(&mut self, ops: &Operations) -> Option<u32> {
        let slot = self.0;
        if slot == NIL {
            return None;
        }
        self.0 = ops[slot].next;
        Some(slot)
    }
}

impl Index<u32> for Operations {
    type Output = Operation;

    #[inline(always)]
    fn index(&self, slot: u32) -> &Operation {
        &self.table[slot]
    }
}

impl IndexMut<u32> for Operations {
    #[inline(always)]
    fn index_mut(&mut self, slot: u32) -> &mut Operation {
        &mut self.table[slot]
    }
}
