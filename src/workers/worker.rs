//! One worker, and the state that all workers share with the loop.

use std::convert::Infallible;
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use crossbeam_channel::Sender;

use super::Run;
use super::idle::{IdleWorkers, Pick};
use super::job::JobSlot;
use super::queues::{Queues, StartedJob};
use crate::sys::{affinity, os_errno};
use crate::words::wake_state::WakeState;

/// How often a worker that has nothing to do looks again before it blocks, some microseconds in
/// all. Without any look, half as many empty jobs run per second. With a thousand looks it is the
/// same, because the loop needs the processor, too.
const LOOKS: u32 = 64;

/// The counts of a worker; only the worker writes them.
#[derive(Default)]
#[repr(align(64))]
pub(super) struct Tally {
    started: AtomicU64,
    ended: AtomicU64,
}

impl Tally {
    fn add(count: &AtomicU64) {
        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Release);
    }
}

/// The threads that were started.
pub(super) struct Roster {
    pub(super) handles: Vec<JoinHandle<()>>,
    tallies: Vec<Arc<Tally>>,
    /// Each thread holds a clone. When the last clone is dropped, the loop's end of the channel
    /// reports that all threads have ended. `None` if no more threads may start.
    pub(super) open: Option<Sender<Infallible>>,
    /// The size of the threads' stacks in bytes, where it is not the system's choice.
    pub(super) stack_bytes: Option<usize>,
}

pub(super) struct WorkersShared<W: Run> {
    pub(super) queues: Queues<W>,
    pub(super) idle: IdleWorkers,
    pub(super) threads: Mutex<Roster>,
    done: Sender<Arc<JobSlot<W>>>,
    wake: Arc<WakeState>,
}

impl<W: Run> WorkersShared<W> {
    pub(super) fn new(
        queues: Queues<W>,
        idle: IdleWorkers,
        open: Sender<Infallible>,
        done: Sender<Arc<JobSlot<W>>>,
        wake: Arc<WakeState>,
    ) -> WorkersShared<W> {
        let (handles, tallies) = (Vec::new(), Vec::new());
        let threads = Roster { handles, tallies, open: Some(open), stack_bytes: None };
        WorkersShared { queues, idle, threads: Mutex::new(threads), done, wake }
    }

    /// Makes sure that a worker looks at the queues, if there is one left. The error is the errno
    /// of a thread that could not be made.
    #[inline]
    pub(super) fn wake_or_spawn(self: &Arc<Self>) -> Result<(), i32> {
        match self.idle.pick_worker(true) {
            Pick::Nothing => Ok(()),
            Pick::Wake => {
                self.idle.wake();
                Ok(())
            }
            Pick::Grow => self.grow(),
        }
    }

    #[cold]
    fn grow(self: &Arc<Self>) -> Result<(), i32> {
        let Err(error) = self.spawn() else { return Ok(()) };
        self.idle.not_grown();
        // A worker that has become idle meanwhile was not woken, because the one that failed seemed
        // to search.
        if self.queues.has_work() && self.idle.pick_worker(false) == Pick::Wake {
            self.idle.wake();
        }
        Err(error)
    }

    fn spawn(self: &Arc<Self>) -> Result<(), i32> {
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        // After `stop`, all queued jobs are being dropped.
        let Some(open) = threads.open.clone() else {
            self.idle.not_grown();
            return Ok(());
        };
        let mut builder = thread::Builder::new();
        builder = builder.name(format!("windlass-{}", threads.handles.len()));
        if let Some(bytes) = threads.stack_bytes {
            builder = builder.stack_size(bytes);
        }
        let (shared, tally) = (Arc::clone(self), Arc::new(Tally::default()));
        threads.tallies.push(Arc::clone(&tally));
        let unbind = affinity::unbind_of();
        let spawned = builder.spawn(move || {
            unbind();
            shared.work(&tally);
            drop(shared);
            drop(open);
        });
        match spawned {
            Ok(handle) => {
                threads.handles.push(handle);
                Ok(())
            }
            Err(error) => {
                threads.tallies.pop();
                Err(os_errno(&error).unwrap_or(libc::EAGAIN))
            }
        }
    }

    /// How many jobs were ever started, and how many of them have ended.
    pub(super) fn tally(&self) -> (u64, u64) {
        let threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        threads.tallies.iter().fold((0, 0), |(started, ended), tally| {
            // `ended` first: it is never ahead of `started`.
            let more = tally.ended.load(Ordering::Acquire);
            (started + tally.started.load(Ordering::Acquire), ended + more)
        })
    }

    fn work(self: &Arc<Self>, tally: &Tally) {
        let mut searching = true;
        loop {
            if let Some(started) = self.queues.start() {
                let last = mem::take(&mut searching) && self.idle.found();
                if last && self.queues.has_work() {
                    // If no thread can be created, the next submission reports that, too.
                    let _ = self.wake_or_spawn();
                }
                self.run(started, tally);
                continue;
            }
            if !searching && self.idle.search() {
                searching = true;
                if self.look() {
                    continue;
                }
            }
            self.idle.rest(mem::take(&mut searching));
            let risen = self.queues.has_work() && self.idle.rise();
            if !risen && !self.idle.sleep() {
                break;
            }
            searching = true;
        }
        self.idle.leave();
    }

    /// Looks for work for a while. True if there is some.
    fn look(&self) -> bool {
        (0..LOOKS).any(|_| {
            std::hint::spin_loop();
            self.queues.has_work()
        })
    }

    /// Runs a job, and the other jobs of its strand as long as nothing else waits.
    fn run(self: &Arc<Self>, started: StartedJob<W>, tally: &Tally) {
        let StartedJob { mut slot, mut work, slow, strand } = started;
        let Some(mut strand) = strand else {
            self.run_one(&slot, work, tally);
            if slow {
                self.queues.slow_ended();
            }
            self.deliver(slot);
            return self.wake.notify();
        };
        loop {
            self.run_one(&slot, work, tally);
            // Deliver before another worker can have the strand, so that its jobs come back in
            // their order.
            self.deliver(slot);
            self.wake.notify();
            if self.queues.has_work() {
                let Err(back) = self.queues.yield_strand(strand) else { break };
                strand = back;
            }
            let Some(next) = strand.start() else { return };
            (slot, work) = next;
        }
        // The strand and another job wait. This worker takes one of them next, and an idle worker
        // may take the other.
        let _ = self.wake_or_spawn();
    }

    fn run_one(&self, slot: &JobSlot<W>, work: W, tally: &Tally) {
        Tally::add(&tally.started);
        slot.run(work);
        Tally::add(&tally.ended);
    }

    /// Gives the loop a job that has ended. The caller must notify the loop afterwards.
    fn deliver(&self, slot: Arc<JobSlot<W>>) {
        // The channel has room for all jobs in flight. Without a loop, the result is dropped here.
        let _ = self.done.try_send(slot);
    }
}
