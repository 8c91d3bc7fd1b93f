//! The clock of a driver, and times that end something other than operations.

use std::cell::Cell;

use crate::proactor::turn::idle::Idle;
use crate::words::source::Source;

/// The clock of a driver, pauses, and idle timeouts.
pub(in crate::proactor) struct Time {
    /// The clock as it was last read in this turn.
    pub(in crate::proactor) now_ns: u64,
    /// The time that `now` has returned to the program since the last turn; 0 if the program has
    /// not called it.
    pub(in crate::proactor) reported_ns: Cell<u64>,
    /// Directions that are tried again after a pause.
    pub(in crate::proactor) paused: Vec<Pause>,
    /// The idle timeouts of sources.
    pub(in crate::proactor) idle: Idle,
}

/// A direction of a source that is not tried until a time has come.
#[derive(Clone, Copy)]
pub(in crate::proactor) struct Pause {
    pub(in crate::proactor) until_ns: u64,
    pub(in crate::proactor) source: Source,
    /// The flag that the pause has set.
    pub(in crate::proactor) flag: u32,
}

impl Time {
    pub(in crate::proactor) fn new() -> Time {
        Time { now_ns: 0, reported_ns: Cell::new(0), paused: Vec::new(), idle: Idle::new() }
    }

    /// When the first pause ends.
    pub(in crate::proactor) fn next_pause_ns(&self) -> Option<u64> {
        self.paused.iter().map(|pause| pause.until_ns).min()
    }
}
