//! The operations of the program that wait for the watcher, and those that it has.

use std::collections::VecDeque;

use windlass::driver::OpCode;
use windlass::{Op, Ticket};

use crate::parts::trim::{trim_places, trim_queue};

/// An operation of the program that the watcher has.
pub(crate) struct OpAtWork {
    /// The token of the program.
    pub(crate) token: u64,
    pub(crate) ticket: Ticket,
    /// Whether a shutdown waits for it.
    pub(crate) is_work: bool,
}

/// The operations of the program.
#[derive(Default)]
pub(crate) struct OpTable {
    /// Those that the next flush submits.
    pub(crate) waiting: VecDeque<Op>,
    /// Those that the watcher has. The tokens there name their places.
    pub(crate) submitted: Vec<Option<OpAtWork>>,
    pub(crate) vacant: Vec<u32>,
    /// How many of both a shutdown waits for.
    pub(crate) work: usize,
    /// For how many of these it has not waited any longer.
    pub(crate) unfinished: usize,
}

impl OpTable {
    /// How many operations wait, or are at the watcher.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len() + self.submitted.len() - self.vacant.len()
    }

    /// A place for an operation that is about to be submitted.
    pub(crate) fn place(&mut self) -> u32 {
        self.vacant.pop().unwrap_or_else(|| {
            self.submitted.push(None);
            self.submitted.len() as u32 - 1
        })
    }

    /// The operation that has a place, if it is that of the ticket.
    pub(crate) fn find(&self, place: u32, ticket: Ticket) -> Option<&OpAtWork> {
        let found = self.submitted.get(place as usize)?.as_ref()?;
        (found.ticket == ticket).then_some(found)
    }

    /// The operation that has a place has ended.
    pub(crate) fn vacate(&mut self, place: u32) {
        if let Some(ended) = self.submitted[place as usize].take() {
            self.work -= usize::from(ended.is_work);
        }
        self.vacant.push(place);
    }

    /// Gives memory back that a burst has left.
    pub(crate) fn trim(&mut self) {
        trim_queue(&mut self.waiting);
        trim_places(&mut self.submitted, &mut self.vacant);
    }
}

/// Whether a shutdown waits for an operation: it does something, and does not only wait for what
/// others do.
pub(crate) fn is_work(op: &Op) -> bool {
    use OpCode::{
        Close, Job, ReadAt, SendDescriptors, SendFile, SendTo, SyncAll, SyncData, Write, WriteAt,
    };
    matches!(
        op.code(),
        Close
            | ReadAt
            | WriteAt
            | SyncAll
            | SyncData
            | Job
            | SendFile
            | Write
            | SendTo
            | SendDescriptors
    )
}
