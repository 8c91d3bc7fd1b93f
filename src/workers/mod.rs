//! Worker threads for what would block the loop: file work, name look-ups, work of the program.
//!
//! [`Workers`] belongs to the loop's thread. Jobs go to the workers through a queue for each
//! priority and come back through one for all; no lock is shared by two jobs. A job has a slot of
//! its own, and the holder of its lock has the work ([`job`]), so that cancelling is exact and
//! gives the work back at once. [`queues`] chooses the next job, [`strand`] keeps jobs from running
//! beside each other, and [`idle`] chooses the worker to wake.

mod idle;
mod job;
mod queues;
mod strand;
#[cfg(test)]
mod tests;
mod worker;

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::fmt;
use std::mem;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError};

use crate::memory::discard::discard;
use crate::sys::fork;
use crate::words::error::{Limit, Refusal, Refused};
use crate::words::wake_state::WakeState;

pub(crate) use job::{Finished, JobHandle, Panic};
pub(crate) use queues::{JobClass, Lane};

use idle::IdleWorkers;
use job::JobSlot;
use queues::Queues;
use strand::Strand;
use worker::WorkersShared;

/// The most workers that there may be.
pub(crate) const MOST_THREADS: usize = 1024;

/// Most jobs in flight: memory for all of them is allocated at once.
const MOST_QUEUED: usize = 1 << 20;

/// The number of workers by default.
pub(crate) const DEFAULT_THREADS: usize = 4;

/// How long dropping [`Workers`] waits for jobs that run.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);

/// The work of a worker.
pub(crate) trait Run: Send + 'static {
    /// The result of the work.
    type Output: Send + 'static;
    /// Does it, on a worker's thread. A panic is caught and reported.
    fn run(self) -> Self::Output;
}

/// The numbers of jobs in each state. Those of present states change while they are read; those of
/// past ones are the loop's own and exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct JobCounters {
    /// Accepted and not yet started.
    pub(crate) queued: u64,
    /// Being run.
    pub(crate) running: u64,
    /// Completions that were taken, panics among them.
    pub(crate) done: u64,
    /// Given back by `cancel` or dropped by `stop` before they were started.
    pub(crate) cancelled: u64,
    /// Completions that were taken and report a panic.
    pub(crate) panicked: u64,
    /// Worker threads that exist.
    pub(crate) threads: usize,
}

/// A pool of worker threads, used by one loop.
///
/// Threads are made when there is a job and no thread is idle, up to the limit, and stay until the
/// end; they are named `windlass-0`, `windlass-1`, …
pub(crate) struct Workers<W: Run> {
    shared: Arc<WorkersShared<W>>,
    done: Receiver<Arc<JobSlot<W>>>,
    /// Disconnected when no thread is left.
    threads: Receiver<Infallible>,
    /// Slots to be used again, as soon as they have no other owner.
    slots: VecDeque<Arc<JobSlot<W>>>,
    strands: HashMap<(u32, Lane), Arc<Strand<W>>>,
    queue: usize,
    in_flight: usize,
    accepted: u64,
    ended: u64,
    cancelled: u64,
    panicked: u64,
    closed: bool,
    forks: u32,
}

impl<W: Run> Workers<W> {
    /// At most `threads` threads (1 to 1024) and `queue` jobs in flight (1 to 2^20): accepted,
    /// their completion not yet taken. `wake` is notified after each completion, on the worker's
    /// thread. Nothing is started yet; the memory is 16 bytes for each job of `queue`, and twice
    /// that for each kind of lane when it is first used.
    pub(crate) fn new(threads: usize, queue: usize, wake: Arc<WakeState>) -> Self {
        let (limit, queue) = (threads.clamp(1, MOST_THREADS), queue.clamp(1, MOST_QUEUED));
        let (open, threads) = crossbeam_channel::bounded(0);
        let (done_in, done) = crossbeam_channel::bounded(queue);
        fork::watch();
        let queues = Queues::new(queue, limit);
        Workers {
            shared: Arc::new(WorkersShared::new(
                queues,
                IdleWorkers::new(limit),
                open,
                done_in,
                wake,
            )),
            done,
            threads,
            slots: VecDeque::new(),
            strands: HashMap::new(),
            queue,
            in_flight: 0,
            accepted: 0,
            ended: 0,
            cancelled: 0,
            panicked: 0,
            closed: false,
            forks: fork::generation(),
        }
    }

    /// Hands a job to the workers. Its completion carries `key`.
    ///
    /// # Errors
    /// [`Refusal::Full`] when as many jobs as may be are in flight, [`Refusal::Os`] when there is
    /// no thread and none can be made, [`Refusal::Closed`] after [`stop`](Workers::stop),
    /// [`Refusal::Forked`] in a forked child. The work comes back.
    pub(crate) fn submit(
        &mut self,
        key: u64,
        lane: Lane,
        class: JobClass,
        work: W,
    ) -> Result<JobHandle<W>, Refused<W>> {
        if let Err(reason) = self.ready() {
            return Err(Refused { value: work, reason });
        }
        let slot = self.slot(key, work);
        let job = JobHandle(Arc::clone(&slot));
        let slow = class == JobClass::Slow;
        let mut is_next = true;
        if let JobClass::Strand(number) = class {
            let strand = self.strand(number, lane);
            is_next = strand.push(slot);
            if is_next {
                self.shared.queues.push_strand(strand);
            }
        } else if let Err(slot) = self.shared.queues.push(lane, slow, slot)
            && let Some(op) = slot.withdraw()
        {
            return Err(Refused { value: op, reason: self.full() });
        }
        self.accepted += 1;
        self.in_flight += 1;
        if is_next && self.shared.queues.admits(slow) {
            // A thread is alive, so an error here only delays the job.
            let _ = self.shared.wake_or_spawn();
        }
        Ok(job)
    }

    fn strand(&mut self, number: u32, lane: Lane) -> Arc<Strand<W>> {
        if self.strands.len() == self.strands.capacity() {
            // Strands without a job make room before the map takes more memory.
            self.strands.retain(|_, strand| strand.is_held());
        }
        Arc::clone(
            self.strands.entry((number, lane)).or_insert_with(|| Arc::new(Strand::new(lane))),
        )
    }

    /// Whether a job may be submitted; makes the first thread.
    #[inline]
    fn ready(&mut self) -> Result<(), Refusal> {
        if self.is_forked() {
            return Err(Refusal::Forked);
        }
        if self.closed {
            return Err(Refusal::Closed);
        }
        if self.in_flight >= self.queue {
            return Err(self.full());
        }
        if self.accepted == 0 && self.shared.idle.alive() == 0 {
            return self.shared.wake_or_spawn().map_err(Refusal::Os);
        }
        Ok(())
    }

    fn full(&self) -> Refusal {
        Refusal::Full { limit: Limit::Jobs, count: self.queue }
    }

    /// A slot with this work in it: a vacant one without another owner, or a new one.
    fn slot(&mut self, key: u64, work: W) -> Arc<JobSlot<W>> {
        let Some(mut slot) = self.slots.pop_front() else {
            return Arc::new(JobSlot::new(key, work));
        };
        if let Some(vacant) = Arc::get_mut(&mut slot) {
            vacant.reuse(key, work);
            return slot;
        }
        // Other code still has a `JobHandle` on this slot.
        self.slots.push_back(slot);
        Arc::new(JobSlot::new(key, work))
    }

    /// Takes the work back if it was not started: no completion follows. `None` when it was: its
    /// completion comes, or has come already. `job` must be of these workers.
    pub(crate) fn cancel(&mut self, job: &JobHandle<W>) -> Option<W> {
        let work = job.0.withdraw()?;
        self.withdrawn();
        Some(work)
    }

    fn withdrawn(&mut self) {
        self.in_flight -= 1;
        self.cancelled += 1;
    }

    /// Takes the next completion, if there is one. Call it after each notification, until there is
    /// none.
    pub(crate) fn take(&mut self) -> Option<Finished<W::Output>> {
        let slot = self.done.try_recv().ok()?;
        let finished = slot.finish()?;
        if self.slots.len() < self.queue {
            self.slots.push_back(slot);
        }
        self.in_flight -= 1;
        self.ended += 1;
        self.panicked += u64::from(finished.result.is_err());
        Some(finished)
    }

    /// How many jobs were accepted and have neither been taken nor cancelled.
    #[cfg(test)]
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// The numbers of jobs in each state.
    pub(crate) fn counts(&self) -> JobCounters {
        let (started, ended) = self.shared.tally();
        JobCounters {
            queued: (self.accepted - self.cancelled).saturating_sub(started),
            running: started - ended,
            done: self.ended,
            cancelled: self.cancelled,
            panicked: self.panicked,
            threads: self.shared.idle.alive(),
        }
    }

    /// Drops the jobs that were not started (no completion follows) and lets the others end, for
    /// `patience` at most. False when some still run: their threads are left to themselves and end
    /// with their job. Completions can still be taken.
    pub(crate) fn stop(&mut self, patience: Duration) -> bool {
        if self.is_forked() {
            return true;
        }
        self.closed = true;
        let shared = Arc::clone(&self.shared);
        let handles = {
            let mut threads = shared.threads.lock().unwrap_or_else(PoisonError::into_inner);
            threads.open = None;
            mem::take(&mut threads.handles)
        };
        for work in shared.queues.withdraw() {
            self.withdrawn();
            discard(work);
        }
        for strand in mem::take(&mut self.strands).into_values() {
            for slot in strand.withdraw() {
                if let Some(work) = slot.withdraw() {
                    self.withdrawn();
                    discard(work);
                }
            }
        }
        shared.idle.close();
        let until = Instant::now().checked_add(patience);
        let ended = match until {
            Some(until) => self.threads.recv_deadline(until).err(),
            None => self.threads.recv().err().map(|_| RecvTimeoutError::Disconnected),
        };
        if ended != Some(RecvTimeoutError::Disconnected) {
            return false;
        }
        for handle in handles {
            // Panics of jobs are caught, and nothing else panics there.
            let _ = handle.join();
        }
        true
    }

    /// Whether this is a fork of the process that the workers are in.
    fn is_forked(&self) -> bool {
        self.forks != fork::generation()
    }
}

impl<W: Run> Drop for Workers<W> {
    /// As [`stop`](Workers::stop), with a second's patience, unless that was called.
    fn drop(&mut self) {
        if self.is_forked() {
            // The threads do not exist in this process, and may have held any lock at the fork:
            // what they share stays as it is.
            mem::forget((Arc::clone(&self.shared), self.done.clone()));
            return;
        }
        if !self.closed {
            self.stop(PATIENCE);
        }
    }
}

impl<W: Run> fmt::Debug for Workers<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Workers({} jobs, {} threads)", self.in_flight, self.shared.idle.alive())
    }
}
