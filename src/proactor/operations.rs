//! The operations that wait for something: their slots, their deadlines, and the connects that make
//! sources.

use std::collections::HashMap;
use std::ops::{Index, IndexMut};

use super::ops::race::Race;
use crate::deadline::Deadlines;
use crate::operation::Operation;
use crate::source::Ticket;
use crate::table::Table;

/// The operations of a driver, by slot.
pub(super) struct Operations {
    pub(super) table: Table<Operation>,
    /// Deadlines, by slot.
    pub(super) deadlines: Deadlines,
    /// Connects that make sources, by slot.
    pub(super) races: HashMap<u32, Race>,
    /// The number of entries that their attempts take in the tables.
    pub(super) attempts: u32,
    /// The operation being submitted is another thread's, which has this ticket: its slot is
    /// reserved.
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
