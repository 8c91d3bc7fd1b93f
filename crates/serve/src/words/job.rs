//! What becomes of jobs.

use std::fmt;

#[cfg(doc)]
use crate::Engine;
use windlass::Refusal as Reason;

/// Why a job has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum JobError {
    /// The job panicked. The text is what the panic said; empty if that was no text.
    Panicked(String),
    /// The watcher refused the job: the system gave it no thread, or the program has closed it.
    Refused(Reason),
    /// The program's [executor](Engine::set_executor) dropped the job.
    Dropped,
}

impl fmt::Display for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JobError::Panicked(text) => write!(f, "the job panicked: {text}"),
            JobError::Refused(reason) => write!(f, "the job was refused: {reason}"),
            JobError::Dropped => f.write_str("the executor dropped the job"),
        }
    }
}

impl std::error::Error for JobError {}

/// What an engine has counted of its jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Jobs {
    /// Jobs that have returned.
    pub done: u64,
    /// Jobs that have panicked.
    pub panicked: u64,
    /// Jobs that the watcher refused, or the program's executor dropped.
    pub failed: u64,
    /// Jobs that were dropped before they began, because their connection ended, or because a
    /// shutdown had waited long enough.
    pub dropped: u64,
}

impl Jobs {
    /// Adds the counts of another engine.
    pub(crate) fn add(&mut self, other: &Jobs) {
        self.done += other.done;
        self.panicked += other.panicked;
        self.failed += other.failed;
        self.dropped += other.dropped;
    }
}
