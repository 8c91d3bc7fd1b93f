//! The states of the workers, in one word: how many live, how many are idle (blocked, or about to
//! block), and how many search (awake and looking for a job).
//!
//! ```text
//!        pick_worker(): Grow              found()
//!   (none) ───────────────▶ searching ───────────────▶ running
//!                             ▲  ▲  └──────┐ search()    │ │
//!        pick_worker(): Wake  │  └─────────┼─────────────┘ │
//!                             │   rest()   ▼      rest()   │
//!                             └────────── idle ◀───────────┘
//! ```
//!
//! One worker that searches is enough: while there is one, no other worker is woken. The last one
//! that finds a job calls the next if there is more to do. So a burst of short jobs costs one
//! system call and not one for each, and a burst of long ones still has all workers running soon.
//!
//! Invariants: (W3) a job is queued before `pick_worker`, and a worker looks at the queues after
//! `rest` and after `found`; so if a look misses a job, the job's `pick_worker` comes after it, and
//! finds the worker idle. (W4) Every idle worker that `pick_worker` took off the count has a token,
//! and a token wakes one.

#[cfg(loom)]
use loom::sync::{
    Condvar, Mutex,
    atomic::{AtomicU64, Ordering},
};
use std::sync::PoisonError;
#[cfg(not(loom))]
use std::sync::{
    Condvar, Mutex,
    atomic::{AtomicU64, Ordering},
};

const ALIVE: u64 = 1;
const IDLE: u64 = 1 << 16;
const SEARCHING: u64 = 1 << 32;
const MASK: u64 = 0xffff;

fn alive(state: u64) -> u64 {
    state & MASK
}

fn idle(state: u64) -> u64 {
    (state / IDLE) & MASK
}

fn searching(state: u64) -> u64 {
    (state / SEARCHING) & MASK
}

/// The action for a new job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pick {
    /// Nothing to do: a worker searches, or as many workers run as the limit allows.
    Nothing,
    /// An idle worker is to be woken: [`IdleWorkers::wake`].
    Wake,
    /// A worker must be created. It counts as alive and searching.
    Grow,
}

struct WakeTokens {
    count: usize,
    closed: bool,
}

pub(super) struct IdleWorkers {
    state: AtomicU64,
    limit: u64,
    tokens: Mutex<WakeTokens>,
    come: Condvar,
}

impl IdleWorkers {
    /// No workers yet, and at most `limit` (1 to 1024).
    pub(super) fn new(limit: usize) -> IdleWorkers {
        IdleWorkers {
            state: AtomicU64::new(0),
            limit: limit as u64,
            tokens: Mutex::new(WakeTokens { count: 0, closed: false }),
            come: Condvar::new(),
        }
    }

    /// How many live.
    pub(super) fn alive(&self) -> usize {
        alive(self.state.load(Ordering::Relaxed)) as usize
    }

    /// How many are idle.
    #[cfg(test)]
    pub(super) fn idle(&self) -> usize {
        idle(self.state.load(Ordering::Relaxed)) as usize
    }

    /// A job has been queued: decides which worker takes it.
    #[inline]
    pub(super) fn pick_worker(&self, may_grow: bool) -> Pick {
        let mut state = self.state.load(Ordering::SeqCst);
        loop {
            let (next, call) = if searching(state) > 0 {
                return Pick::Nothing;
            } else if idle(state) > 0 {
                (state - IDLE + SEARCHING, Pick::Wake)
            } else if may_grow && alive(state) < self.limit {
                (state + ALIVE + SEARCHING, Pick::Grow)
            } else {
                return Pick::Nothing;
            };
            match self.swap(state, next) {
                Ok(()) => return call,
                Err(now) => state = now,
            }
        }
    }

    fn swap(&self, state: u64, next: u64) -> Result<(), u64> {
        self.state.compare_exchange(state, next, Ordering::SeqCst, Ordering::SeqCst).map(drop)
    }

    /// The worker that [`Pick::Grow`] has counted could not be created.
    pub(super) fn not_grown(&self) {
        self.state.fetch_sub(ALIVE + SEARCHING, Ordering::SeqCst);
    }

    /// A searching worker has found a job. True if it was the last one that searched: then it must
    /// see whether there is more to do.
    #[inline]
    pub(super) fn found(&self) -> bool {
        searching(self.state.fetch_sub(SEARCHING, Ordering::SeqCst)) == 1
    }

    /// A running worker that has found nothing begins to search, unless another does.
    pub(super) fn search(&self) -> bool {
        let state = self.state.load(Ordering::SeqCst);
        searching(state) == 0 && self.swap(state, state + SEARCHING).is_ok()
    }

    /// A worker is about to block. Afterwards it must look at the queues once more.
    pub(super) fn rest(&self, was_searching: bool) {
        let change = if was_searching { IDLE.wrapping_sub(SEARCHING) } else { IDLE };
        self.state.fetch_add(change, Ordering::SeqCst);
    }

    /// An idle worker has seen a job and searches again. False if it was picked already: then it
    /// must take its token.
    pub(super) fn rise(&self) -> bool {
        let mut state = self.state.load(Ordering::SeqCst);
        while idle(state) > 0 {
            match self.swap(state, state - IDLE + SEARCHING) {
                Ok(()) => return true,
                Err(now) => state = now,
            }
        }
        false
    }

    /// Blocks an idle worker until it is picked. Afterwards it searches. False if all workers are
    /// to end.
    pub(super) fn sleep(&self) -> bool {
        let mut tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if tokens.closed {
                return false;
            }
            if tokens.count > 0 {
                tokens.count -= 1;
                return true;
            }
            tokens = self.come.wait(tokens).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Wakes an idle worker, after [`Pick::Wake`].
    pub(super) fn wake(&self) {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner).count += 1;
        self.come.notify_one();
    }

    /// Lets all workers end when they find nothing more to do.
    pub(super) fn close(&self) {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
        self.come.notify_all();
    }

    /// A worker ends.
    pub(super) fn leave(&self) {
        self.state.fetch_sub(ALIVE, Ordering::SeqCst);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicUsize, fence};

    /// How many jobs run; each waits for the other.
    #[derive(Default)]
    struct Both(Mutex<usize>, Condvar);

    impl Both {
        fn both(&self) {
            *self.0.lock().unwrap() += 1;
            self.1.notify_all();
            self.wait();
        }

        fn wait(&self) {
            let mut count = self.0.lock().unwrap();
            while *count < 2 {
                count = self.1.wait(count).unwrap();
            }
        }
    }

    /// W3, W4: every queued job is run while there are workers, whatever the others run.
    #[test]
    fn no_job_is_lost() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(2);
        model.check(|| {
            let idle = Arc::new(IdleWorkers::new(2));
            let (queued, ran) = (Arc::new(AtomicUsize::new(0)), Arc::new(Both::default()));
            for _ in 0..2 {
                assert_eq!(idle.pick_worker(true), Pick::Grow);
                // As if it had found a job, so that the next call grows as well.
                idle.found();
            }
            let threads: Vec<_> = (0..2)
                .map(|_| {
                    let (idle, queued, ran) = (idle.clone(), queued.clone(), ran.clone());
                    loom::thread::spawn(move || work(&idle, &queued, &ran))
                })
                .collect();
            for _ in 0..2 {
                queued.fetch_add(1, Ordering::Release);
                fence(Ordering::SeqCst);
                if idle.pick_worker(true) == Pick::Wake {
                    idle.wake();
                }
            }
            ran.wait();
            idle.close();
            for thread in threads {
                thread.join().unwrap();
            }
        });
    }

    fn work(idle: &IdleWorkers, queued: &AtomicUsize, ran: &Both) {
        let mut searching = false;
        let has_work = || {
            fence(Ordering::SeqCst);
            queued.load(Ordering::Relaxed) > 0
        };
        loop {
            let less = |count: usize| count.checked_sub(1);
            if queued.fetch_update(Ordering::AcqRel, Ordering::Relaxed, less).is_ok() {
                if std::mem::take(&mut searching)
                    && idle.found()
                    && has_work()
                    && idle.pick_worker(true) == Pick::Wake
                {
                    idle.wake();
                }
                ran.both();
                continue;
            }
            idle.rest(searching);
            if !(has_work() && idle.rise()) && !idle.sleep() {
                return;
            }
            searching = true;
        }
    }
}
