//! The idle time of a connection of which no read is in flight.

use std::time::{Duration, Instant};

/// The idle time of a connection, while the watcher does not count it. It runs only for connections
/// in the list of the sweep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum IdleClock {
    /// The watcher counts it, or it stands.
    #[default]
    Elsewhere,
    /// No byte has moved since then.
    Since(Instant),
    /// It has passed, and the program may still begin it anew.
    Over,
}

impl IdleClock {
    /// Output has moved.
    pub(crate) fn note_byte(&mut self, now: Instant) {
        if *self != IdleClock::Elsewhere {
            *self = IdleClock::Since(now);
        }
    }

    /// Whether the idle time has passed, if the connection has one.
    pub(crate) fn has_passed(self, now: Instant, idle: Option<Duration>) -> bool {
        match self {
            IdleClock::Elsewhere => false,
            IdleClock::Since(since) => idle.is_some_and(|idle| now - since >= idle),
            IdleClock::Over => true,
        }
    }
}
