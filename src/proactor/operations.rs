//! The operations that wait for something: their slots, their deadlines, and the connects that make
//! sources.

use std::collections::HashMap;
use std::ops::{Index, IndexMut};

use super::ops::race::Race;
use crate::deadline::Deadlines;
use crate::operation::Operation;
use crate::source::Ticket;
use crate::table::{NIL, Table};

/// The operations of a driver, by slot.
pub(super) struct Operations {
    pub(super) table: Table<Operation>,
    /// Deadlines, by slot.
    pub(super) deadlines: Deadlines,
    /// Connects that make sources, by slot.
    pub(super) races: HashMap<u32, Race>,
    /// The number of table entries that the attempts of these connects take.
    pub(super) attempts: u32,
    /// If another thread submitted the operation that is being accepted: the ticket that this
    /// thread has. The slot of the ticket is reserved.
    pub(super) given: Option<Ticket>,
    /// The write being submitted exceeds its source's bound and ends the source.
    pub(super) exceeds: bool,
}

impl Operations {
    pub(super) fn new(table: Table<Operation>) -> Operations {
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
    pub(super) fn queue(&self, head: u32) -> impl Iterator<Item = &Operation> {
        let at = |slot: u32| (slot != NIL).then(|| &self.table[slot]);
        std::iter::successors(at(head), move |op| at(op.next))
    }
}

/// The slots of a queue, from this one on. The operation of a slot may end before the next step.
pub(super) struct Slots(pub(super) u32);

impl Slots {
    #[inline]
    pub(super) fn next(&mut self, ops: &Operations) -> Option<u32> {
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
