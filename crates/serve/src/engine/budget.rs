//! One budget of bytes for all connections of a server.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts the bytes that wait in all loops of a server: output that the kernel has not taken,
/// writes of other threads that are queued, and data that is held back from the program.
///
/// Above three quarters of the limit, connections stop reading at their next data. Above the limit,
/// a loop that flushes closes its own connections until the rest fits, first the one whose output
/// has made no progress for longest. No connection is closed for data that is held back.
#[derive(Clone, Debug)]
pub struct Budget(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    limit: usize,
    high: usize,
    used: AtomicUsize,
}

impl Budget {
    /// A budget of so many bytes.
    pub fn new(limit: usize) -> Budget {
        Budget(Arc::new(Shared { limit, high: limit / 4 * 3, used: AtomicUsize::new(0) }))
    }

    /// The limit.
    pub fn limit(&self) -> usize {
        self.0.limit
    }

    /// How many bytes wait now.
    pub fn used(&self) -> usize {
        // Each party adds before it subtracts, but a reader may see that in another order.
        let used = self.0.used.load(Ordering::Relaxed);
        if used > isize::MAX as usize { 0 } else { used }
    }

    /// Changes the charge of one party.
    #[inline]
    pub(crate) fn change(&self, before: u32, now: u32) {
        let change = (now as usize).wrapping_sub(before as usize);
        self.0.used.fetch_add(change, Ordering::Relaxed);
    }

    /// Charges `bytes` unless they exceed the limit.
    pub(crate) fn try_charge(&self, bytes: u32) -> bool {
        // One atomic step, because a loop that saw a charge which does not fit would shed a
        // connection.
        let charge =
            |used: usize| used.checked_add(bytes as usize).filter(|sum| *sum <= self.0.limit);
        self.0.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, charge).is_ok()
    }

    /// Whether connections must stop reading.
    #[inline]
    pub(crate) fn is_high(&self) -> bool {
        self.used() > self.0.high
    }

    /// Whether connections that have stopped may read again.
    pub(crate) fn is_low(&self) -> bool {
        self.used() <= self.0.limit / 2
    }

    /// Whether a connection must be closed.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.used() > self.0.limit
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn a_charge_that_does_not_fit_never_shows() {
        let (budget, is_over) = (Budget::new(100), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    assert!(!budget.try_charge(1 << 30));
                }
            });
            let seen = (0..200_000).map(|_| budget.used()).max();
            is_over.store(true, Ordering::Relaxed);
            assert_eq!(seen, Some(0));
        });
    }

    #[test]
    fn a_charge_fits_or_changes_nothing() {
        let budget = Budget::new(100);
        assert!(budget.try_charge(60) && !budget.try_charge(41) && budget.try_charge(40));
        assert!(budget.is_high() && !budget.is_over() && !budget.is_low());
        budget.change(60, 70);
        assert!(budget.is_over());
        budget.change(70, 0);
        assert_eq!(budget.used(), 40);
        assert!(budget.is_low());
    }
}
