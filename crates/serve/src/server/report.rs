//! The report of a server that has ended.

use std::time::Duration;

use crate::words::cause::Phase;
use crate::words::counters::Counters;
use crate::words::id::Id;

/// What a server has done, and what it could not finish.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Report {
    /// The counts of all loops together.
    pub counters: Counters,
    /// Callbacks that have panicked.
    pub panics: u64,
    /// Threads of an [`IoMode`](crate::modes::IoMode) that could not begin, because the system or
    /// the builder of the watchers refused, and threads whose wait has failed.
    pub thread_errors: u64,
    /// Jobs that had not ended: a shutdown has left them to themselves. The drop of a loop's
    /// watcher waits one second for them.
    pub unfinished_jobs: usize,
    /// Operations of [`Engine::submit`](crate::Engine::submit) that do something, and that the
    /// shutdown has not waited for any longer: they were cancelled, and may or may not be done.
    pub unfinished_operations: usize,
    /// How often an accept found no descriptor left. The watcher ends a connection that it cannot
    /// accept. The figure is [`Counters::descriptor_shortages`] of the loops' watchers when the
    /// shutdown begins, and 0 before.
    ///
    /// [`Counters::descriptor_shortages`]: windlass::driver::Counters::descriptor_shortages
    pub descriptor_shortages: u64,
    /// Connections that ended during the shutdown, and whose output was not all sent.
    pub unfinished: Vec<Unfinished>,
}

/// A connection that ended during a shutdown before all its output was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unfinished {
    /// The connection.
    pub id: Id,
    /// What the connection was doing: [`Phase::Open`] if it was open when the shutdown began.
    pub phase: Phase,
    /// How long it was open, in steps of 100 ms; zero if it never opened.
    pub age: Duration,
    /// How many bytes of output the kernel has not taken, as
    /// [`Event::Closed`](crate::Event::Closed) counts them.
    pub unsent: usize,
}

impl Report {
    /// Adds the report of another loop.
    pub(crate) fn add(&mut self, other: Report) {
        self.counters.add(&other.counters);
        self.panics += other.panics;
        self.thread_errors += other.thread_errors;
        self.unfinished_jobs += other.unfinished_jobs;
        self.unfinished_operations += other.unfinished_operations;
        self.descriptor_shortages += other.descriptor_shortages;
        self.unfinished.extend(other.unfinished);
    }
}
