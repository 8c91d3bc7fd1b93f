//! The two verbs by which operations cross layers: submit, and complete.

use std::io;
use std::time::Instant;

use crate::completion::Completions;
#[cfg(doc)]
use crate::driver::Driver;
#[cfg(doc)]
use crate::words::error::Refusal;
use crate::words::error::Refused;
use crate::words::source::Ticket;

/// The first verb: hand an operation over.
pub trait Submit {
    /// The type of operations.
    type Op;

    /// Accepts `op`, or hands it back.
    ///
    /// # Errors
    /// [`Refused`] says why and returns the operation; nothing is reported for it later.
    fn submit(&mut self, op: Self::Op) -> Result<Ticket, Refused<Self::Op>>;

    /// Asks for an operation to end. Its completion is the answer. Returns false for a stale
    /// ticket: the operation has ended already.
    fn cancel(&mut self, ticket: Ticket) -> bool;
}

/// The second verb: take completions.
pub trait Complete {
    /// The type of results.
    type Item;

    /// Appends all items that are ready to `out`, and returns their number. It may block, for as
    /// long as `wait` says; no other call does. An empty `out` is swapped with the batch.
    ///
    /// # Errors
    /// [`Refusal::Closed`] (see [`Refusal::of`]) when the driver is closed and everything was
    /// delivered; [`Refusal::Forked`] in a child process; what the kernel reports for the wait
    /// itself.
    fn complete(&mut self, wait: Wait, out: &mut Completions<Self::Item>) -> io::Result<usize>;
}

/// How long [`Complete::complete`] may block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Not at all.
    Now,
    /// Until there is an item.
    Forever,
    /// Until there is an item, or until this time on the clock of [`Driver::now`].
    Until(Instant),
}
