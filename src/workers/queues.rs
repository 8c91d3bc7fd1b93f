//! The queues of waiting jobs: a lane for each priority. A lane has a queue of quick jobs, one of
//! slow jobs, and one of the strands that have jobs.
//!
//! The next job comes from the highest lane that has any, with two exceptions:
//!
//! - *Ageing.* When [`AGEING`] jobs of higher lanes have gone before a waiting one, the next job
//!   comes from the lane of the waiting one; from the lowest such lane first. If several workers
//!   look at once, the bound is exceeded by at most one job for each.
//! - *Slow work* runs on at most half of the workers (rounded up). Further slow jobs are passed
//!   over. A worker that ends a slow job looks for them.
//!
//! Within a lane quick jobs, strands and slow jobs take turns.
//!
//! A withdrawn job leaves an empty slot behind, which is dropped when its turn comes, or when the
//! queue has no room for the next.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicUsize, Ordering, fence};
use std::sync::{Arc, OnceLock};

use crossbeam_channel::{Receiver, Sender, TrySendError};

use super::Run;
use super::job::JobSlot;
use super::strand::Strand;

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

/// The waiting jobs, in the order in which they came. Made when the first one comes.
struct JobQueue<T>(OnceLock<Ends<Arc<T>>>);

impl<T> JobQueue<T> {
    #[inline]
    fn is_empty(&self) -> bool {
        self.0.get().is_none_or(|(_, receiver)| receiver.is_empty())
    }

    fn pop(&self) -> Option<Arc<T>> {
        self.0.get()?.1.try_recv().ok()
    }
}

impl<W: Run> JobQueue<Strand<W>> {
    /// Puts a strand in, on a worker's thread. The strand comes back if there is no room.
    fn try_push(&self, strand: Arc<Strand<W>>, room: usize) -> Result<(), Arc<Strand<W>>> {
        let (sender, _) = self.0.get_or_init(|| crossbeam_channel::bounded(room));
        sender.try_send(strand).map_err(TrySendError::into_inner)
    }

    /// Puts a strand in, on the loop's thread. There is always room once the strands are gone whose
    /// jobs were all withdrawn: the others are no more than the jobs that may wait, and each worker
    /// brings back one at a time.
    fn push(&self, mut strand: Arc<Strand<W>>, room: usize) {
        while let Err(back) = self.try_push(strand, room) {
            strand = back;
            let all: Vec<_> = std::iter::from_fn(|| self.pop()).collect();
            for strand in all.into_iter().filter(|strand| !strand.retire()) {
                let pushed = self.try_push(strand, room);
                debug_assert!(pushed.is_ok(), "as above");
            }
        }
    }

    /// The next job of the next strand that has one, started.
    fn start(&self) -> Option<StartedJob<W>> {
        loop {
            let strand = self.pop()?;
            if let Some((slot, work)) = strand.start() {
                return Some(StartedJob { slot, work, slow: false, strand: Some(strand) });
            }
        }
    }
}

impl<W: Run> JobQueue<JobSlot<W>> {
    /// The next job that was not withdrawn, started.
    fn start(&self, slow: bool) -> Option<StartedJob<W>> {
        loop {
            let slot = self.pop()?;
            if let Some(work) = slot.start() {
                return Some(StartedJob { slot, work, slow, strand: None });
            }
        }
    }

    /// Puts a slot in, on the loop's thread only. The queue holds twice as many slots as jobs may
    /// wait, so that dropping the empty slots, which makes room, is rare. The slot comes back if
    /// there is no room all the same.
    fn push(&self, slot: Arc<JobSlot<W>>, most: usize) -> Result<(), Arc<JobSlot<W>>> {
        let (sender, receiver) = self.0.get_or_init(|| crossbeam_channel::bounded(2 * most));
        let Err(TrySendError::Full(slot) | TrySendError::Disconnected(slot)) =
            sender.try_send(slot)
        else {
            return Ok(());
        };
        for _ in 0..receiver.len() {
            let Ok(slot) = receiver.try_recv() else { break };
            if slot.is_waiting() {
                // The slot was just taken out, and no other thread puts slots in, so there is room.
                sender.try_send(slot).map_err(TrySendError::into_inner)?;
            }
        }
        sender.try_send(slot).map_err(TrySendError::into_inner)
    }
}

/// The kind of a job in its lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobClass {
    Quick,
    /// Slow jobs run on half of the workers at most.
    Slow,
    /// Jobs of its lane with the same number run one after the other.
    Strand(u32),
}

/// The kinds of jobs of a lane, in the order of their turns.
const QUICK: u8 = 0;
const STRANDS: u8 = 1;
const SLOW: u8 = 2;
const KINDS: u8 = 3;

struct Kinds<W: Run> {
    quick: JobQueue<JobSlot<W>>,
    strands: JobQueue<Strand<W>>,
    slow: JobQueue<JobSlot<W>>,
    /// The kind whose turn is next.
    turn: AtomicU8,
    /// How many jobs of higher lanes went before the one that waits here.
    passed: AtomicU32,
}

impl<W: Run> Kinds<W> {
    fn new() -> Kinds<W> {
        Kinds {
            quick: JobQueue(OnceLock::new()),
            strands: JobQueue(OnceLock::new()),
            slow: JobQueue(OnceLock::new()),
            turn: AtomicU8::new(QUICK),
            passed: AtomicU32::new(0),
        }
    }

    fn has_quick(&self) -> bool {
        !self.quick.is_empty() || !self.strands.is_empty()
    }

    fn is_empty(&self) -> bool {
        !self.has_quick() && self.slow.is_empty()
    }
}

/// A job that a worker has started.
pub(super) struct StartedJob<W: Run> {
    pub(super) slot: Arc<JobSlot<W>>,
    pub(super) work: W,
    /// Whether it counts as slow: [`Queues::slow_ended`] is due.
    pub(super) slow: bool,
    /// The job's strand, which the worker has.
    pub(super) strand: Option<Arc<Strand<W>>>,
}

/// All jobs that wait.
pub(super) struct Queues<W: Run> {
    queues: [Kinds<W>; 3],
    /// How many jobs may wait.
    most: usize,
    /// How many strands a lane has room for.
    strands: usize,
    slow_running: AtomicUsize,
    slow_limit: usize,
}

impl<W: Run> Queues<W> {
    /// Queues for so many waiting jobs, and so many workers.
    pub(super) fn new(most: usize, workers: usize) -> Queues<W> {
        let queues = [Kinds::new(), Kinds::new(), Kinds::new()];
        let (strands, slow_limit) = (2 * most + workers, workers.div_ceil(2));
        Queues { queues, most, strands, slow_running: AtomicUsize::new(0), slow_limit }
    }

    pub(super) fn push(
        &self,
        lane: Lane,
        slow: bool,
        slot: Arc<JobSlot<W>>,
    ) -> Result<(), Arc<JobSlot<W>>> {
        let kinds = &self.queues[lane as usize];
        let queue = if slow { &kinds.slow } else { &kinds.quick };
        queue.push(slot, self.most)
    }

    /// Puts a strand that has got its first job in its lane.
    pub(super) fn push_strand(&self, strand: Arc<Strand<W>>) {
        self.queues[strand.lane as usize].strands.push(strand, self.strands);
    }

    /// Puts a strand that has more jobs back at the end of its lane, unless there is no room.
    pub(super) fn yield_strand(&self, strand: Arc<Strand<W>>) -> Result<(), Arc<Strand<W>>> {
        self.queues[strand.lane as usize].strands.try_push(strand, self.strands)
    }

    /// Whether a worker that looks now may take a job of this kind. If the answer changes later,
    /// the worker that changes it sees the jobs that were pushed before.
    #[inline]
    pub(super) fn admits(&self, slow: bool) -> bool {
        fence(Ordering::SeqCst);
        !slow || self.slow_running.load(Ordering::SeqCst) < self.slow_limit
    }

    /// Whether a worker that looks now finds something (perhaps only withdrawn jobs).
    #[inline]
    pub(super) fn has_work(&self) -> bool {
        let slow = self.admits(true);
        self.queues.iter().any(|lane| lane.has_quick() || slow && !lane.slow.is_empty())
    }

    /// Starts the next job.
    #[inline]
    pub(super) fn start(&self) -> Option<StartedJob<W>> {
        let is_aged = |lane: &usize| self.queues[*lane].passed.load(Ordering::Relaxed) >= AGEING;
        let aged = [2, 1].into_iter().find(is_aged);
        let order = aged.into_iter().chain((0..3).filter(|lane| Some(*lane) != aged));
        for lane in order {
            if let Some(started) = self.start_from(&self.queues[lane]) {
                self.account(lane);
                return Some(started);
            }
        }
        None
    }

    fn account(&self, from: usize) {
        let passed = &self.queues[from].passed;
        if passed.load(Ordering::Relaxed) > 0 {
            passed.store(0, Ordering::Relaxed);
        }
        for lower in &self.queues[from + 1..] {
            if !lower.is_empty() {
                lower.passed.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn start_from(&self, kinds: &Kinds<W>) -> Option<StartedJob<W>> {
        let turn = kinds.turn.load(Ordering::Relaxed);
        for kind in (turn..KINDS).chain(0..turn) {
            let started = match kind {
                QUICK if !kinds.quick.is_empty() => kinds.quick.start(false),
                STRANDS if !kinds.strands.is_empty() => kinds.strands.start(),
                SLOW if !kinds.slow.is_empty() => self.start_slow(kinds),
                _ => None,
            };
            if started.is_some() {
                let next = (kind + 1) % KINDS;
                if next != turn {
                    kinds.turn.store(next, Ordering::Relaxed);
                }
                return started;
            }
        }
        None
    }

    fn start_slow(&self, kinds: &Kinds<W>) -> Option<StartedJob<W>> {
        if !self.enter_slow() {
            return None;
        }
        let started = kinds.slow.start(true);
        if started.is_none() {
            self.slow_ended();
        }
        started
    }

    fn enter_slow(&self) -> bool {
        let more = |running| (running < self.slow_limit).then_some(running + 1);
        self.slow_running.fetch_update(Ordering::SeqCst, Ordering::Relaxed, more).is_ok()
    }

    /// A slow job has ended. The worker looks for the next job before it blocks. If it finds a
    /// quick job for which another worker was woken, it leaves the waiting slow job to that worker.
    pub(super) fn slow_ended(&self) {
        self.slow_running.fetch_sub(1, Ordering::SeqCst);
    }

    /// Takes back all waiting jobs that belong to no strand, one by one.
    pub(super) fn withdraw(&self) -> impl Iterator<Item = W> {
        let queues = self.queues.iter().flat_map(|lane| [&lane.quick, &lane.slow]);
        let slots = queues.flat_map(|queue| std::iter::from_fn(|| queue.pop()));
        slots.filter_map(|slot| slot.withdraw())
    }
}
