//! Whether the loop sleeps, and what ends its sleep: the one type for a wake.
//!
//! The flag has three states, so that a burst of submissions costs one system call and submissions
//! to a loop that is awake cost none:
//!
//! ```text
//!          prepare_park()          notify(): ends the sleep
//!   AWAKE ───────────────▶ PARKED ──────────────▶ NOTIFIED
//!     │  ▲                    │                     │
//!     │  └─── unpark() ◀──────┴─────────────────────┤
//!     └─────── notify(): no system call ───────────▶┘
//! ```
//!
//! Invariant: (R1) a message is queued before `notify`, and the loop empties the queue after
//! `unpark`; so if one emptying misses a message, the `notify` of that message comes after it, and
//! the next emptying sees the message.

use crate::sys::waker::{SharedWake, Wake};

#[cfg(loom)]
use loom::sync::atomic::{AtomicU8, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU8, Ordering};

/// The loop runs and looks at the queue before it sleeps.
const AWAKE: u8 = 0;
/// The loop blocks or is about to: it needs the eventfd.
const PARKED: u8 = 1;
/// A thread has queued something since.
const NOTIFIED: u8 = 2;

/// Whether the loop sleeps, and what ends its sleep.
pub(crate) struct WakeState {
    flag: AtomicU8,
    waker: SharedWake,
}

impl WakeState {
    /// The state of a loop that is awake. `waker` ends its sleep.
    pub(crate) fn new(waker: SharedWake) -> WakeState {
        WakeState { flag: AtomicU8::new(AWAKE), waker }
    }

    /// Says that there is something to do, and ends the sleep of the loop if it sleeps.
    #[inline]
    pub(crate) fn notify(&self) {
        if self.flag.swap(NOTIFIED, Ordering::SeqCst) == PARKED {
            self.waker.wake();
        }
    }

    /// The loop is about to block. False if it must not, because it was notified.
    #[inline]
    pub(crate) fn prepare_park(&self) -> bool {
        // The loop may be parked already, after a wait that returned nothing.
        match self.flag.compare_exchange(AWAKE, PARKED, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => true,
            Err(state) => state == PARKED,
        }
    }

    /// Whether the loop was notified.
    #[inline]
    pub(crate) fn is_notified(&self) -> bool {
        self.flag.load(Ordering::Acquire) == NOTIFIED
    }

    /// The loop is awake. True if it was notified, and must empty the queue.
    #[inline]
    pub(crate) fn unpark(&self) -> bool {
        self.flag.swap(AWAKE, Ordering::SeqCst) == NOTIFIED
    }
}

#[cfg(test)]
impl WakeState {
    /// Ends the sleep of a loop that was not notified.
    pub(crate) fn wake_without_a_reason(&self) {
        self.waker.wake();
    }
}

impl Wake for WakeState {
    fn wake(&self) {
        self.notify();
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::atomic::AtomicUsize;

    /// A state whose waker counts.
    fn state(woken: &loom::sync::Arc<AtomicUsize>) -> WakeState {
        let woken = woken.clone();
        WakeState::new(std::sync::Arc::new(move || {
            woken.fetch_add(1, Ordering::Release);
        }))
    }

    /// R1: if a request is queued before the `notify`, the loop sees the request before it sleeps
    /// for good.
    #[test]
    fn no_notification_is_lost() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let queued = loom::sync::Arc::new(AtomicUsize::new(0));
            let woken = loom::sync::Arc::new(AtomicUsize::new(0));
            let state = loom::sync::Arc::new(state(&woken));
            let threads: Vec<_> = (0..2)
                .map(|_| {
                    let (state, queued) = (state.clone(), queued.clone());
                    loom::thread::spawn(move || {
                        queued.fetch_add(1, Ordering::Relaxed);
                        state.notify();
                    })
                })
                .collect();
            let mut seen = 0;
            while seen < 2 {
                if state.prepare_park() {
                    // Blocked until a thread writes the eventfd.
                    while woken.swap(0, Ordering::Acquire) == 0 {
                        loom::thread::yield_now();
                    }
                }
                state.unpark();
                seen = queued.load(Ordering::Relaxed);
            }
            for thread in threads {
                thread.join().unwrap();
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    use super::*;

    /// A state, and how often its sleep was ended.
    fn state() -> (WakeState, Arc<AtomicUsize>) {
        let woken = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&woken);
        let waker = Arc::new(move || {
            count.fetch_add(1, Ordering::Relaxed);
        });
        (WakeState::new(waker), woken)
    }

    #[test]
    fn a_burst_needs_one_wake() {
        let (state, woken) = state();
        state.notify();
        assert_eq!(woken.load(Ordering::Relaxed), 0, "awake: it will look at the queue itself");
        assert!(!state.prepare_park(), "it was notified");
        assert!(state.unpark());
        assert!(state.prepare_park());
        state.notify();
        state.notify();
        assert_eq!(woken.load(Ordering::Relaxed), 1);
        assert!(state.unpark());
        assert!(!state.unpark());
    }
}
