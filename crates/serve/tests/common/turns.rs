//! Loops that a test turns until something is there, or for a time.

use std::time::{Duration, Instant};

use windlass::Watcher;
use windlass::driver::Driver;

use super::PATIENCE;

/// What a test turns: a watcher, and engines or a server on it.
pub trait Turns {
    /// The driver of the watcher.
    type Driver: Driver;

    /// The watcher.
    fn watcher(&mut self) -> &mut Watcher<Self::Driver>;

    /// One turn, which waits for at most this time; how many completions it had.
    fn turn(&mut self, span: Duration) -> usize;

    /// The time of the watcher.
    fn now(&mut self) -> Instant {
        self.watcher().update_now()
    }

    /// Turns until it is so; a panic with `what` if it never is.
    #[track_caller]
    fn until(&mut self, what: &str, mut ready: impl FnMut(&mut Self) -> bool) {
        let start = self.now();
        while !ready(self) {
            assert!(self.watcher().now() - start < 50 * PATIENCE, "still waits until {what}");
            self.turn(50 * PATIENCE);
        }
    }

    /// Turns for a time.
    fn run_for(&mut self, span: Duration) {
        let end = self.now() + span;
        while let Some(left) = end.checked_duration_since(self.now())
            && !left.is_zero()
        {
            self.turn(left);
        }
    }
}
