//! Whether the loop sleeps, and how to wake it: one atomic.
//!
//! The flag has four states, so that a burst of submissions costs one system call and submissions
//! to a loop that is awake cost none:
//!
//! ```text
//!          doze(), nap()              ring(): write the eventfd
//!   AWAKE ───────────────▶ ASLEEP ──────────────▶ RUNG
//!     │  ▲                or NAPPING                │
//!     │  └──── rouse() ◀──────┴─────────────────────┤
//!     └──────── ring(): no system call ────────────▶┘
//! ```
//!
//! A loop that naps wakes by itself soon, and looks then whether the bell was rung or not: `tap`,
//! for what can wait so long, leaves it alone. It is a `ring` for all other loops.
//!
//! Invariant: (R1) a message is queued before `ring` or `tap`, and the loop empties the queue after
//! `rouse`; so a message that is missed by one emptying has rung after it and is seen by the next.

#[cfg(loom)]
use loom::sync::atomic::{AtomicU8, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU8, Ordering};

/// The loop runs and looks at the queue before it sleeps.
const AWAKE: u8 = 0;
/// The loop blocks or is about to: it needs the eventfd.
const ASLEEP: u8 = 1;
/// A thread has queued something since.
const RUNG: u8 = 2;
/// The loop blocks for a short time, or is about to: it needs the eventfd for urgent requests.
const NAPPING: u8 = 3;

/// How soon the loop must know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// At once.
    Now,
    /// When it looks next, which must be soon.
    Soon,
}

/// Whether the loop sleeps.
#[derive(Debug)]
pub(crate) struct Bell(AtomicU8);

impl Bell {
    pub(crate) fn new() -> Bell {
        Bell(AtomicU8::new(AWAKE))
    }

    /// Says that there is something to do; true when the loop sleeps and must be woken.
    #[inline]
    pub(crate) fn ring(&self) -> bool {
        matches!(self.0.swap(RUNG, Ordering::SeqCst), ASLEEP | NAPPING)
    }

    /// As [`ring`](Bell::ring), for what can wait for the end of a nap.
    #[inline]
    pub(crate) fn tap(&self) -> bool {
        // It writes also where it changes nothing: so the end of the nap sees what was queued
        // before.
        let naps = self.0.compare_exchange(NAPPING, NAPPING, Ordering::SeqCst, Ordering::SeqCst);
        naps.is_err() && self.ring()
    }

    /// The loop is about to block; false when it must not, because the bell has rung.
    #[inline]
    pub(crate) fn doze(&self) -> bool {
        // It may already be asleep: after a wait that returned nothing.
        match self.0.compare_exchange(AWAKE, ASLEEP, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => true,
            Err(state) => state == ASLEEP,
        }
    }

    /// The loop is about to block for a short time; false when it must not.
    #[inline]
    pub(crate) fn nap(&self) -> bool {
        self.0.compare_exchange(AWAKE, NAPPING, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Whether the bell has rung.
    #[inline]
    pub(crate) fn has_rung(&self) -> bool {
        self.0.load(Ordering::Acquire) == RUNG
    }

    /// The loop is awake; true when the bell had rung or it has napped, and the queue must be
    /// emptied.
    #[inline]
    pub(crate) fn rouse(&self) -> bool {
        matches!(self.0.swap(AWAKE, Ordering::SeqCst), RUNG | NAPPING)
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::atomic::AtomicUsize;

    /// R1: the loop sees every request that is queued before a ring, before it sleeps for good.
    #[test]
    fn no_ring_is_lost() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let bell = loom::sync::Arc::new(Bell::new());
            let queued = loom::sync::Arc::new(AtomicUsize::new(0));
            let woken = loom::sync::Arc::new(AtomicUsize::new(0));
            let threads: Vec<_> = (0..2)
                .map(|_| {
                    let (bell, queued, woken) = (bell.clone(), queued.clone(), woken.clone());
                    loom::thread::spawn(move || {
                        queued.fetch_add(1, Ordering::Relaxed);
                        if bell.ring() {
                            woken.fetch_add(1, Ordering::Release);
                        }
                    })
                })
                .collect();
            let mut seen = 0;
            while seen < 2 {
                if bell.doze() {
                    // Blocked until a thread writes the eventfd.
                    while woken.swap(0, Ordering::Acquire) == 0 {
                        loom::thread::yield_now();
                    }
                }
                bell.rouse();
                seen = queued.load(Ordering::Relaxed);
            }
            for thread in threads {
                thread.join().unwrap();
            }
        });
    }

    /// R1 for taps: what was queued before one is seen at the end of a nap, or has rung.
    #[test]
    fn no_tap_is_lost() {
        loom::model(|| {
            let bell = loom::sync::Arc::new(Bell::new());
            let queued = loom::sync::Arc::new(AtomicUsize::new(0));
            let woken = loom::sync::Arc::new(AtomicUsize::new(0));
            let thread = {
                let (bell, queued, woken) = (bell.clone(), queued.clone(), woken.clone());
                loom::thread::spawn(move || {
                    for _ in 0..2 {
                        queued.fetch_add(1, Ordering::Relaxed);
                        if bell.tap() {
                            woken.fetch_add(1, Ordering::Release);
                        }
                    }
                })
            };
            // One nap, which may end by itself before anything has come; then it sleeps for good.
            bell.nap();
            bell.rouse();
            // (A load may see an older count, as a look at a queue may; a swap could not.)
            let mut seen = queued.load(Ordering::Relaxed);
            while seen < 2 {
                if bell.doze() {
                    while woken.swap(0, Ordering::Acquire) == 0 {
                        loom::thread::yield_now();
                    }
                }
                bell.rouse();
                seen = queued.load(Ordering::Relaxed);
            }
            thread.join().unwrap();
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_needs_one_wake() {
        let bell = Bell::new();
        assert!(!bell.ring(), "awake: it will look at the queue itself");
        assert!(!bell.doze(), "it rang");
        assert!(bell.rouse());
        assert!(bell.doze());
        assert!(bell.ring());
        assert!(!bell.ring());
        assert!(bell.rouse());
        assert!(!bell.rouse());
    }

    #[test]
    fn a_tap_leaves_a_loop_that_naps_alone() {
        let bell = Bell::new();
        assert!(bell.nap());
        assert!(!bell.tap(), "it will look soon");
        assert!(bell.rouse(), "and does so without a ring");
        assert!(bell.nap());
        assert!(bell.ring(), "an urgent request ends the nap");
        assert!(!bell.tap());
        assert!(bell.rouse());
        assert!(bell.doze());
        assert!(bell.tap(), "a loop that sleeps would not look");
        assert!(!bell.nap(), "it rang");
        assert!(bell.rouse());
        assert!(!bell.tap());
        assert!(!bell.doze(), "a tap to a loop that is awake is a ring");
    }
}
