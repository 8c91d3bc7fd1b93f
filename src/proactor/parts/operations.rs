//! The operations that wait for something: their slots, their deadlines, and the connects that make
//! sources.

use std::collections::HashMap;
use std::ops::{Index, IndexMut};

use crate::driver::deadline::Deadlines;
use crate::op::operation::Operation;
use crate::proactor::ops::race::Race;
use crate::words::source::Ticket;
use crate::words::table::{NIL, Table};

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
