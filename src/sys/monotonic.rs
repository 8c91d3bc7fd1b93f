//! The clock behind [`Instant`](std::time::Instant), as a number.

#![allow(unsafe_code)]
//! # Safety
//!
//! The kernel fills a local struct.

/// Nanoseconds of `CLOCK_MONOTONIC`, which is what `Instant` reads there: a third of the
/// instructions of the way over `Instant`.
#[cfg(any(target_os = "linux", target_os = "android"))]
#[inline]
pub(crate) fn now_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: room for one timespec. It fails for clocks that are not there, which this one always
    // is.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Nanoseconds since its first call.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(crate) fn now_ns() -> u64 {
    use std::sync::OnceLock;
    use std::time::Instant;
    static BASE: OnceLock<Instant> = OnceLock::new();
    u64::try_from(BASE.get_or_init(Instant::now).elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// Milliseconds of a timeout, rounded up so that no wait ends early.
#[allow(dead_code)] // there are systems whose waits take nanoseconds
pub(crate) fn ms_up(ns: u64) -> i32 {
    ns.div_ceil(1_000_000).min(i32::MAX as u64) as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn milliseconds_round_up_and_clamp() {
        assert_eq!(ms_up(1), 1);
        assert_eq!(ms_up(1_000_000), 1);
        assert_eq!(ms_up(1_000_001), 2);
        assert_eq!(ms_up(u64::MAX), i32::MAX);
    }
}
