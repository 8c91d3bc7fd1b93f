//! One time line for deadlines: nanoseconds since a base `Instant` that the process fixes once.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::sys::monotonic;
#[cfg(doc)]
use crate::watcher::Watcher;

/// The base as an `Instant`, and as the number of the system's clock, which is read right after it.
/// So a deadline is never early, and late by the time between the two reads.
static BASE: OnceLock<(Instant, u64)> = OnceLock::new();

#[inline(always)]
fn both() -> &'static (Instant, u64) {
    BASE.get_or_init(|| (Instant::now(), monotonic::now_ns()))
}

fn base() -> Instant {
    both().0
}

/// Fixes the base now, so that no deadline can lie before it.
pub(crate) fn start() {
    base();
}

/// `instant` in nanoseconds since the base: at least 1, at most what 64 bits hold (584 years).
pub(crate) fn ns_of(instant: Instant) -> u64 {
    ns_of_duration(instant.saturating_duration_since(base())).max(1)
}

/// A span in nanoseconds, clamped to what 64 bits hold.
pub(crate) fn ns_of_duration(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// The `Instant` at `ns` after the base; the base itself where the platform cannot represent it.
pub(crate) fn instant_of(ns: u64) -> Instant {
    base().checked_add(Duration::from_nanos(ns)).unwrap_or_else(base)
}

/// The time now, in nanoseconds since the base.
#[inline]
pub(crate) fn now_ns() -> u64 {
    let base_ns = both().1;
    monotonic::now_ns().saturating_sub(base_ns).max(1)
}

/// Reads the clock of a driver where there is no watcher: in a callback, or on another thread.
/// [`Watcher::clock`] makes it. On a simulated kernel it tells the virtual time.
///
/// [`Watcher::now`] stands still between two waits, and this clock does not.
///
/// ```
/// use std::time::Duration;
/// use windlass::sim::Sim;
/// use windlass::{Completions, Op, Watcher};
///
/// let mut watcher = Watcher::simulated(&Sim::new(1));
/// let clock = watcher.clock();
/// let start = clock.now();
/// watcher.submit(Op::timer(Duration::from_secs(3600)))?;
/// watcher.wait(&mut Completions::new())?;
/// assert!(clock.now() - start >= Duration::from_secs(3600));
/// assert_eq!(clock.now(), watcher.now());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Clock(Option<Arc<AtomicU64>>);

impl Clock {
    /// The system's monotonic clock.
    pub const fn system() -> Clock {
        Clock(None)
    }

    /// A clock of virtual time, in nanoseconds since the base.
    pub(crate) fn at(ns: u64) -> Clock {
        Clock(Some(Arc::new(AtomicU64::new(ns))))
    }

    /// Sets a clock of virtual time.
    pub(crate) fn set(&self, ns: u64) {
        if let Some(time) = &self.0 {
            time.store(ns, Ordering::Relaxed);
        }
    }

    /// The time.
    pub fn now(&self) -> Instant {
        instant_of(self.0.as_ref().map_or_else(now_ns, |time| time.load(Ordering::Relaxed)))
    }
}

/// The deadline of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deadline {
    /// At this time.
    At(Instant),
    /// When this time has passed since the submission.
    After(Duration),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip_and_clamping() {
        let now = Instant::now();
        assert_eq!(ns_of(instant_of(5_000)), 5_000);
        assert!(ns_of(now) >= 1);
        assert_eq!(ns_of_duration(Duration::MAX), u64::MAX);
        assert!(instant_of(u64::MAX) >= base());
    }
}
