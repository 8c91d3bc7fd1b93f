//! One time line for deadlines: nanoseconds since a base `Instant` that the process fixes once.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::sys::monotonic;

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
