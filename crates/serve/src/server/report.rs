//! The report of a server that has ended.

use std::time::Duration;

use crate::engine::{Counts, Id, Phase};

/// What a server has done, and what it could not finish.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Report {
    /// The counts of all loops together.
    pub counts: Counts,
    /// Callbacks that have panicked.
    pub panics: u64,
    /// Times that an accept found no descriptor left, until the shutdown: from the counters of the
    /// loops' watchers. The watcher ends a connection that it cannot accept.
    pub descriptor_shortages: u64,
    /// Connections whose output was not sent before the shutdown gave them up.
    pub unfinished: Vec<Unfinished>,
}

/// A connection that was not finished at the end of a shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unfinished {
    /// The connection.
    pub id: Id,
    /// What it was doing: [`Phase::Open`] if the shutdown has found it open.
    pub phase: Phase,
    /// How long it had been open.
    pub age: Duration,
    /// How many bytes of output were not sent.
    pub unsent: usize,
}

impl Report {
    /// Adds the report of another loop.
    pub(crate) fn add(&mut self, other: Report) {
        self.counts.add(&other.counts);
        self.panics += other.panics;
        self.descriptor_shortages += other.descriptor_shortages;
        self.unfinished.extend(other.unfinished);
    }
}
