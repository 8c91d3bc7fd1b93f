//! Waits of threads for room in the queue and in the reserve of ids.
//!
//! Invariant: (I3) a thread registers as waiting, looks for room, and then sleeps. The loop makes
//! room, and then looks for waiting threads. A fence between the two steps on each side ensures
//! that one side sees the other: no thread sleeps while there is room for it.
//!
//! The loop pays a fence each time it makes room, and a lock only if threads wait.

use std::cell::Cell;
use std::time::Instant;

#[cfg(loom)]
use loom::sync::{
    Condvar, Mutex, MutexGuard,
    atomic::{AtomicU64, AtomicUsize, Ordering, fence},
};
#[cfg(not(loom))]
use std::sync::{
    Condvar, Mutex, MutexGuard,
    atomic::{AtomicU64, AtomicUsize, Ordering, fence},
};

/// Marks the number of a thread that is perhaps the loop's: the thread has called `submitter`, and
/// the loop has taken no turn since.
const PERHAPS: u64 = 1 << 63;

/// Whether the loop runs on the calling thread. If so, this thread must not wait for the loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Runs {
    /// The loop runs on another thread.
    Elsewhere,
    /// The loop runs on this thread, unless the watcher has moved and has not taken a turn yet.
    PerhapsHere,
    /// The loop runs on this thread.
    Here,
}

/// The threads that wait for room.
pub(super) struct Room {
    /// The number of threads that wait, or are about to.
    waiting: AtomicUsize,
    /// How often the loop has woken the waiting threads.
    wakes: Mutex<u64>,
    condvar: Condvar,
    /// The number of the thread that the loop runs on; 0 while that is unknown.
    runner: AtomicU64,
}

impl Room {
    pub(super) fn new() -> Room {
        Room {
            waiting: AtomicUsize::new(0),
            wakes: Mutex::new(0),
            condvar: Condvar::new(),
            runner: AtomicU64::new(0),
        }
    }

    fn wakes(&self) -> MutexGuard<'_, u64> {
        self.wakes.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Registers the calling thread as waiting. After this, and before each sleep, it looks for
    /// room.
    pub(super) fn enter(&self) -> Waiting<'_> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        Waiting { room: self, wakes: *self.wakes() }
    }

    /// Whether threads wait. Call it after making room, or after closing.
    pub(super) fn has_waiting(&self) -> bool {
        fence(Ordering::SeqCst);
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Wakes the waiting threads: the loop has made room, or never will.
    pub(super) fn wake_all(&self) {
        if self.has_waiting() {
            *self.wakes() += 1;
            self.condvar.notify_all();
        }
    }

    /// The loop takes a turn on the calling thread.
    pub(super) fn run_here(&self) {
        let here = number();
        if self.runner.load(Ordering::Relaxed) != here {
            self.runner.store(here, Ordering::Relaxed);
        }
    }

    /// Notes that the loop may run on the calling thread, unless it was seen on another.
    pub(super) fn may_run_here(&self) {
        if self.runner.load(Ordering::Relaxed) == 0 {
            self.runner.store(number() | PERHAPS, Ordering::Relaxed);
        }
    }

    /// Whether the loop runs on the calling thread.
    pub(super) fn runs(&self) -> Runs {
        let (runner, here) = (self.runner.load(Ordering::Relaxed), number());
        match runner {
            _ if runner == here => Runs::Here,
            _ if runner == here | PERHAPS => Runs::PerhapsHere,
            _ => Runs::Elsewhere,
        }
    }

    #[cfg(test)]
    pub(super) fn lock(&self) -> MutexGuard<'_, u64> {
        self.wakes()
    }

    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::SeqCst)
    }
}

/// A thread that waits, until this is dropped.
pub(super) struct Waiting<'a> {
    room: &'a Room,
    wakes: u64,
}

impl Waiting<'_> {
    /// Sleeps until there may be room; false after `until`.
    pub(super) fn sleep(&mut self, until: Option<Instant>) -> bool {
        let mut wakes = self.room.wakes();
        while *wakes == self.wakes {
            let Some(until) = until else {
                wakes =
                    self.room.condvar.wait(wakes).unwrap_or_else(|poisoned| poisoned.into_inner());
                continue;
            };
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let slept = self.room.condvar.wait_timeout(wakes, left);
            wakes = slept.unwrap_or_else(|poisoned| poisoned.into_inner()).0;
        }
        self.wakes = *wakes;
        true
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.room.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A unique number of the calling thread, from 1.
fn number() -> u64 {
    static LAST: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    thread_local! {
        static NUMBER: Cell<u64> = const { Cell::new(0) };
    }
    NUMBER.with(|number| {
        if number.get() == 0 {
            number.set(LAST.fetch_add(1, Ordering::Relaxed) + 1);
        }
        number.get()
    })
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    /// I3: waiting threads get room in every interleaving with the loop. (loom reports a thread
    /// that sleeps for ever as a deadlock.)
    #[test]
    fn no_room_is_missed() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let (room, space) = (Arc::new(Room::new()), Arc::new(AtomicUsize::new(0)));
            let threads: Vec<_> = (0..2)
                .map(|_| {
                    let (room, space) = (room.clone(), space.clone());
                    thread::spawn(move || {
                        let mut waiting = room.enter();
                        let take = |space: usize| space.checked_sub(1);
                        let (set, get) = (Ordering::Relaxed, Ordering::Relaxed);
                        while space.fetch_update(set, get, take).is_err() {
                            assert!(waiting.sleep(None));
                        }
                    })
                })
                .collect();
            for _ in 0..2 {
                space.fetch_add(1, Ordering::Relaxed);
                room.wake_all();
            }
            for thread in threads {
                thread.join().unwrap();
            }
            assert!(!room.has_waiting());
        });
    }
}
