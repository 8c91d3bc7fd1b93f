//! One budget of bytes for all connections of a server.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use windlass::Submitter;

use crate::inbox::BOOKKEEPING;
use crate::words::limits::LEAST;

/// A loop that was asked to shed and has not answered for this long is left out.
const PATIENCE: Duration = Duration::from_millis(100);

/// Counts the bytes that wait in all loops of a server: output and datagrams that the kernel has
/// not taken, queued writes of other threads, and data that is held back from the program.
///
/// Above three quarters of the limit, connections stop reading at their next data. They read again
/// at half of the limit. Above the limit, the loops close connections until the rest fits. The
/// first to close is the connection whose output has made no progress for longest. A loop that does
/// not answer within 100 ms is left out. No connection is closed for data that is held back.
#[derive(Clone, Debug)]
pub struct Budget(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    limit: usize,
    high: usize,
    used: AtomicUsize,
    /// The loops that have had waiting output.
    loops: Mutex<Vec<Stalls>>,
}

/// The state of a loop's stalls for the other loops.
#[derive(Debug)]
struct Stalls {
    /// Wakes the loop.
    submitter: Submitter,
    token: u64,
    /// The longest stall of the loop began at this time or later; `None` if no output waits.
    oldest: Option<Instant>,
    /// When another loop has asked it to shed.
    asked: Option<Instant>,
}

impl Budget {
    /// A budget of `limit` bytes, at least 256.
    pub fn new(limit: usize) -> Budget {
        let limit = limit.max(LEAST);
        let (used, loops) = (AtomicUsize::new(0), Mutex::default());
        Budget(Arc::new(Shared { limit, high: limit / 4 * 3, used, loops }))
    }

    /// The limit, in bytes.
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

    /// The longest write of another thread for which there is room at any time when the memory is
    /// low, at least 1. A longer one could be woken for ever, and find no room.
    pub(crate) fn room_when_low(&self) -> usize {
        self.0.limit - self.0.limit / 2 - BOOKKEEPING as usize
    }

    /// Whether a connection must be closed.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.used() > self.0.limit
    }

    /// Whether other threads or loops share the budget.
    pub(crate) fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    fn loops(&self) -> MutexGuard<'_, Vec<Stalls>> {
        self.0.loops.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Notes when the longest stall of a loop began. `token` names the loop, and wakes it.
    pub(crate) fn note_oldest(
        &self,
        token: u64,
        oldest: Option<Instant>,
        submitter: impl FnOnce() -> Submitter,
    ) {
        let mut loops = self.loops();
        match loops.iter_mut().find(|stalls| stalls.token == token) {
            Some(stalls) => {
                stalls.oldest = oldest;
                if oldest.is_none() {
                    stalls.asked = None; // it has done what it was asked for
                }
            }
            None => loops.push(Stalls { submitter: submitter(), token, oldest, asked: None }),
        }
    }

    /// Notes that a loop was woken, and is about to look whether it has to shed.
    pub(crate) fn answer(&self, token: u64) {
        if let Some(stalls) = self.loops().iter_mut().find(|stalls| stalls.token == token) {
            stalls.asked = None;
        }
    }

    /// Wakes the loop with a longer stall than `oldest`, if there is one and it answers.
    pub(crate) fn asks_another(&self, token: u64, oldest: Option<Instant>, now: Instant) -> bool {
        let mut loops = self.loops();
        let others = loops.iter_mut().filter(|stalls| {
            let answers = stalls.asked.is_none_or(|asked| now < asked + PATIENCE);
            stalls.token != token && stalls.oldest.is_some() && answers
        });
        let Some(longest) = others.min_by_key(|stalls| stalls.oldest) else { return false };
        if oldest.is_some() && oldest <= longest.oldest {
            return false;
        }
        if longest.asked.is_none() {
            longest.asked = Some(now);
            // The post is refused if the watcher is closed or its queue is full: no answer comes.
            let _ = longest.submitter.wake(longest.token);
        }
        true
    }

    /// Forgets a loop.
    pub(crate) fn leave(&self, token: u64) {
        self.loops().retain(|stalls| stalls.token != token);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn a_charge_that_does_not_fit_never_shows() {
        let (budget, is_over) = (Budget::new(1000), AtomicBool::new(false));
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
    fn a_loop_whose_stalls_have_ended_is_asked_again() {
        let (budget, now) = (Budget::new(1), Instant::now());
        let mut watcher = windlass::Watcher::new().unwrap();
        budget.note_oldest(2, Some(now), || watcher.submitter());
        assert!(budget.asks_another(1, None, now));
        // It does not answer in time.
        assert!(!budget.asks_another(1, None, now + 2 * PATIENCE));
        budget.note_oldest(2, None, || unreachable!());
        budget.note_oldest(2, Some(now), || unreachable!());
        assert!(budget.asks_another(1, None, now + 2 * PATIENCE));
    }

    #[test]
    fn a_charge_fits_or_changes_nothing() {
        let budget = Budget::new(1000);
        assert!(budget.try_charge(600) && !budget.try_charge(401) && budget.try_charge(400));
        assert!(budget.is_high() && !budget.is_over() && !budget.is_low());
        budget.change(600, 700);
        assert!(budget.is_over());
        budget.change(700, 0);
        assert_eq!(budget.used(), 400);
        assert!(budget.is_low());
    }
}
