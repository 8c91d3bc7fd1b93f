//! A workaround for long runs of multishot receives: the kernel may not report what has arrived
//! behind such a run.
//!
//! The kernel takes 33 pieces of a socket in a row, and then postpones the receive. A postponed
//! receive takes the rest, finds that nothing else is queued, and waits for a wake-up. An end or an
//! error that arrived before that wait causes no wake-up. A restarted receive sees it.

/// After this many pieces in a row that have others behind them, the kernel postpones a receive.
const POSTPONED_AFTER: u32 = 33;

#[derive(Default)]
pub(super) struct LongMultishot {
    /// The receive of the last piece that had others behind it, and the number of such pieces in a
    /// row.
    last: (u64, u32),
    /// Postponed receives that have not reached the end of the queued bytes.
    postponed: Vec<u64>,
}

impl LongMultishot {
    /// Notes a piece. `full` means that the kernel reports further queued pieces, `more` that the
    /// receive goes on. True if the receive must be restarted.
    #[inline]
    pub(super) fn must_restart(&mut self, tag: u64, full: bool, more: bool) -> bool {
        if more && full {
            self.last = (tag, if self.last.0 == tag { self.last.1 + 1 } else { 1 });
            if self.last.1 == POSTPONED_AFTER {
                self.postponed.push(tag);
            }
            return false;
        }
        if self.last.0 == tag {
            self.last = (0, 0);
        }
        !self.postponed.is_empty() && self.forget_postponed(tag) && more
    }

    /// Forgets a postponed receive. Returns whether the receive was postponed.
    #[cold]
    fn forget_postponed(&mut self, tag: u64) -> bool {
        let place = self.postponed.iter().position(|&other| other == tag);
        place.map(|place| self.postponed.swap_remove(place)).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_end_of_a_long_run_restarts() {
        let mut runs = LongMultishot::default();
        for length in [0, 1, 31, 32, 33, 34, 500] {
            (0..length).for_each(|_| assert!(!runs.must_restart(7, true, true)));
            assert_eq!(runs.must_restart(7, false, true), length >= POSTPONED_AFTER, "{length}");
            assert!(!runs.must_restart(7, false, true), "once");
        }
    }

    #[test]
    fn others_may_come_between_once_it_is_put_off() {
        let mut runs = LongMultishot::default();
        (0..POSTPONED_AFTER).for_each(|_| assert!(!runs.must_restart(7, true, true)));
        (0..9).for_each(|_| assert!(!runs.must_restart(8, true, true)));
        assert!(!runs.must_restart(8, false, true));
        assert!(runs.must_restart(7, false, true));
    }

    #[test]
    fn one_that_has_ended_is_forgotten() {
        let mut runs = LongMultishot::default();
        (0..POSTPONED_AFTER).for_each(|_| assert!(!runs.must_restart(7, true, true)));
        assert!(!runs.must_restart(7, true, false));
        assert!(!runs.must_restart(7, false, true));
        assert!(runs.postponed.is_empty());
    }
}
