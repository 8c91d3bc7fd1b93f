//! Long runs of multishot receives, behind which a kernel may miss bytes that have arrived.
//!
//! The kernel takes 33 pieces of a socket in a row and then puts the receive off. One that was put
//! off takes the rest, is told that nothing else is queued and waits for a wake, which an end or an
//! error that was there before does not make. A restarted receive would see it.

/// Pieces in a row that have others behind them, after which a receive is put off.
const LONG: u32 = 33;

#[derive(Default)]
pub(super) struct LongMultishot {
    /// The receive of the last piece that had others behind it, and how many those are in a row.
    last: (u64, u32),
    /// Receives that were put off and have not reached the end of what is queued.
    long: Vec<u64>,
}

impl LongMultishot {
    /// A piece has come: `full` if the kernel says that others are queued, `more` if it goes on.
    /// True when the receive is to be started afresh.
    #[inline]
    pub(super) fn must_restart(&mut self, tag: u64, full: bool, more: bool) -> bool {
        if more && full {
            self.last = (tag, if self.last.0 == tag { self.last.1 + 1 } else { 1 });
            if self.last.1 == LONG {
                self.long.push(tag);
            }
            return false;
        }
        if self.last.0 == tag {
            self.last = (0, 0);
        }
        !self.long.is_empty() && self.is_over(tag) && more
    }

    /// Forgets a receive that was put off; whether it was.
    #[cold]
    fn is_over(&mut self, tag: u64) -> bool {
        let place = self.long.iter().position(|&long| long == tag);
        place.map(|place| self.long.swap_remove(place)).is_some()
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
            assert_eq!(runs.must_restart(7, false, true), length >= LONG, "{length}");
            assert!(!runs.must_restart(7, false, true), "once");
        }
    }

    #[test]
    fn others_may_come_between_once_it_is_put_off() {
        let mut runs = LongMultishot::default();
        (0..LONG).for_each(|_| assert!(!runs.must_restart(7, true, true)));
        (0..9).for_each(|_| assert!(!runs.must_restart(8, true, true)));
        assert!(!runs.must_restart(8, false, true));
        assert!(runs.must_restart(7, false, true));
    }

    #[test]
    fn one_that_has_ended_is_forgotten() {
        let mut runs = LongMultishot::default();
        (0..LONG).for_each(|_| assert!(!runs.must_restart(7, true, true)));
        assert!(!runs.must_restart(7, true, false));
        assert!(!runs.must_restart(7, false, true));
        assert!(runs.long.is_empty());
    }
}
