//! Where jobs wait: a queue for each priority, and in each the slow ones by themselves.
//!
//! The next job is one of the highest lane that has any, with two exceptions:
//!
//! - *Ageing.* When [`AGEING`] jobs of higher lanes have gone before a waiting one, the next is of its
//!   lane; the lowest such lane first. With several workers that look at once, the bound is exceeded
//!   by at most one job for each.
//! - *Slow work* runs on at most half of the workers (rounded up). Slow jobs beyond that are passed,
//!   and whoever ends a slow one looks for them. Within a lane, slow and quick jobs take turns.
//!
//! A withdrawn job leaves an empty cell behind, which is dropped when its turn comes, or when the
//! queue has no room for the next.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering, fence};
use std::sync::{Arc, OnceLock};

use crossbeam_channel::{Receiver, Sender, TrySendError};

use super::Work;
use super::job::Cell;

/// How many jobs of higher lanes go before a waiting one of a lower lane.
pub(crate) const AGEING: u32 = 16;

/// How urgent a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Lane {
    /// Before all others.
    High,
    /// The usual.
    Normal,
    /// When nothing else waits, or when it has waited for [`AGEING`] others.
    Low,
}

type Ends<T> = (Sender<T>, Receiver<T>);

/// Jobs in the order in which they came; made when the first one comes.
struct Queue<W: Work>(OnceLock<Ends<Arc<Cell<W>>>>);

impl<W: Work> Queue<W> {
    #[inline]
    fn is_empty(&self) -> bool {
        self.0.get().is_none_or(|(_, receiver)| receiver.is_empty())
    }

    fn pop(&self) -> Option<Arc<Cell<W>>> {
        self.0.get()?.1.try_recv().ok()
    }

    /// The next job that was not withdrawn, started.
    fn start(&self) -> Option<(Arc<Cell<W>>, W)> {
        loop {
            let cell = self.pop()?;
            if let Some(work) = cell.start() {
                return Some((cell, work));
            }
        }
    }

    /// Only the loop pushes. The queue holds twice as many as may wait, so that dropping the empty
    /// cells, which makes room, is rare. The cell comes back if there is no room all the same.
    fn push(&self, cell: Arc<Cell<W>>, most: usize) -> Result<(), Arc<Cell<W>>> {
        let (sender, receiver) = self.0.get_or_init(|| crossbeam_channel::bounded(2 * most));
        let Err(TrySendError::Full(cell) | TrySendError::Disconnected(cell)) =
            sender.try_send(cell)
        else {
            return Ok(());
        };
        for _ in 0..receiver.len() {
            let Ok(cell) = receiver.try_recv() else { break };
            if cell.is_waiting() {
                // It was just taken out, and nobody else puts any in: there is room.
                sender.try_send(cell).map_err(TrySendError::into_inner)?;
            }
        }
        sender.try_send(cell).map_err(TrySendError::into_inner)
    }
}

struct Pair<W: Work> {
    quick: Queue<W>,
    slow: Queue<W>,
    /// Whose turn it is when both have jobs.
    slow_next: AtomicBool,
    /// How many jobs of higher lanes went before the one that waits here.
    passed: AtomicU32,
}

impl<W: Work> Pair<W> {
    fn new() -> Pair<W> {
        Pair {
            quick: Queue(OnceLock::new()),
            slow: Queue(OnceLock::new()),
            slow_next: AtomicBool::new(false),
            passed: AtomicU32::new(0),
        }
    }

    fn is_empty(&self) -> bool {
        self.quick.is_empty() && self.slow.is_empty()
    }
}

/// A job that a worker has started.
pub(super) struct Started<W: Work> {
    pub(super) cell: Arc<Cell<W>>,
    pub(super) work: W,
    /// Whether it counts as slow: [`Lanes::slow_ended`] is due.
    pub(super) slow: bool,
}

/// All jobs that wait.
pub(super) struct Lanes<W: Work> {
    lanes: [Pair<W>; 3],
    /// How many may wait.
    most: usize,
    slow_running: AtomicUsize,
    slow_limit: usize,
}

impl<W: Work> Lanes<W> {
    pub(super) fn new(most: usize, slow_limit: usize) -> Lanes<W> {
        let lanes = [Pair::new(), Pair::new(), Pair::new()];
        Lanes { lanes, most, slow_running: AtomicUsize::new(0), slow_limit }
    }

    pub(super) fn push(
        &self,
        lane: Lane,
        slow: bool,
        cell: Arc<Cell<W>>,
    ) -> Result<(), Arc<Cell<W>>> {
        let pair = &self.lanes[lane as usize];
        let queue = if slow { &pair.slow } else { &pair.quick };
        queue.push(cell, self.most)
    }

    /// Whether a worker that looks now may take a job of this kind. What was pushed before is seen
    /// by whoever changes the answer after.
    #[inline]
    pub(super) fn admits(&self, slow: bool) -> bool {
        fence(Ordering::SeqCst);
        !slow || self.slow_running.load(Ordering::SeqCst) < self.slow_limit
    }

    /// Whether a worker that looks now finds something (perhaps only what was withdrawn).
    #[inline]
    pub(super) fn has_work(&self) -> bool {
        let slow = self.admits(true);
        self.lanes.iter().any(|lane| !lane.quick.is_empty() || slow && !lane.slow.is_empty())
    }

    /// Starts the next job.
    #[inline]
    pub(super) fn start(&self) -> Option<Started<W>> {
        let is_aged = |lane: &usize| self.lanes[*lane].passed.load(Ordering::Relaxed) >= AGEING;
        let aged = [2, 1].into_iter().find(is_aged);
        let order = aged.into_iter().chain((0..3).filter(|lane| Some(*lane) != aged));
        for lane in order {
            if let Some(started) = self.start_from(&self.lanes[lane]) {
                self.account(lane);
                return Some(started);
            }
        }
        None
    }

    fn account(&self, from: usize) {
        let passed = &self.lanes[from].passed;
        if passed.load(Ordering::Relaxed) > 0 {
            passed.store(0, Ordering::Relaxed);
        }
        for lower in &self.lanes[from + 1..] {
            if !lower.is_empty() {
                lower.passed.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn start_from(&self, pair: &Pair<W>) -> Option<Started<W>> {
        let slow_next = pair.slow_next.load(Ordering::Relaxed);
        if slow_next && let Some(started) = self.start_slow(pair) {
            return Some(started);
        }
        if !pair.quick.is_empty()
            && let Some((cell, work)) = pair.quick.start()
        {
            if !slow_next && !pair.slow.is_empty() {
                pair.slow_next.store(true, Ordering::Relaxed);
            }
            return Some(Started { cell, work, slow: false });
        }
        if slow_next { None } else { self.start_slow(pair) }
    }

    fn start_slow(&self, pair: &Pair<W>) -> Option<Started<W>> {
        if pair.slow.is_empty() || !self.enter_slow() {
            return None;
        }
        let Some((cell, work)) = pair.slow.start() else {
            self.slow_ended();
            return None;
        };
        pair.slow_next.store(false, Ordering::Relaxed);
        Some(Started { cell, work, slow: true })
    }

    fn enter_slow(&self) -> bool {
        let more = |running| (running < self.slow_limit).then_some(running + 1);
        self.slow_running.fetch_update(Ordering::SeqCst, Ordering::Relaxed, more).is_ok()
    }

    /// A slow job has ended; the worker looks for the next before it blocks. Should it find a quick one
    /// that it takes from somebody who was called for that, it leaves the slow one to them.
    pub(super) fn slow_ended(&self) {
        self.slow_running.fetch_sub(1, Ordering::SeqCst);
    }

    /// Takes all waiting jobs back, one by one.
    pub(super) fn withdraw(&self) -> impl Iterator<Item = W> {
        let queues = self.lanes.iter().flat_map(|lane| [&lane.quick, &lane.slow]);
        let cells = queues.flat_map(|queue| std::iter::from_fn(|| queue.pop()));
        cells.filter_map(|cell| cell.withdraw())
    }
}
