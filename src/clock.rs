//! One time line for deadlines: nanoseconds since a base `Instant` that the process fixes once.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

fn base() -> Instant {
    static BASE: OnceLock<Instant> = OnceLock::new();
    *BASE.get_or_init(Instant::now)
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
pub(crate) fn now_ns() -> u64 {
    ns_of(Instant::now())
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
