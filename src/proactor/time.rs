//! The clock of a driver, and times that end something other than operations.

use std::cell::Cell;

use super::idle::Idle;
use crate::source::Source;

/// The clock of a driver, pauses, and idle timeouts.
pub(super) struct Time {
    /// The clock as it was last read in this turn.
    pub(super) now_ns: u64,
    /// The time that `now` has returned to the program since the last turn; 0 if the program has
    /// not called it.
    pub(super) reported_ns: Cell<u64>,
    /// Directions that are tried again after a pause.
    pub(super) paused: Vec<Pause>,
    /// The idle timeouts of sources.
    pub(super) idle: Idle,
}

/// A direction of a source that is not tried until a time has come.
#[derive(Clone, Copy)]
pub(super) struct Pause {
    pub(super) until_ns: u64,
    pub(super) source: Source,
    /// The flag that the pause has set.
    pub(super) flag: u32,
}

impl Time {
    pub(super) fn new() -> Time {
        Time { now_ns: 0, reported_ns: Cell::new(0), paused: Vec::new(), idle: Idle::new() }
    }

    /// When the first pause ends.
    pub(super) fn next_pause_ns(&self) -> Option<u64> {
        self.paused.iter().map(|pause| pause.until_ns).min()
    }
}
