//! One worker, and what all of them share with the loop.

use std::convert::Infallible;
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use crossbeam_channel::Sender;

use super::crew::{Call, Crew};
use super::job::Cell;
use super::lanes::{Lanes, Started};
use super::{AHEAD, Work};
use crate::bell::Urgency;
use crate::sys::{affinity, os_errno};

/// How often a worker that has nothing to do looks again before it blocks, some microseconds in
/// all. No look costs half of the jobs per second that do nothing, and a thousand as much: the
/// processor is the loop's as well.
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

/// The threads that were made.
pub(super) struct Roster {
    pub(super) handles: Vec<JoinHandle<()>>,
    tallies: Vec<Arc<Tally>>,
    /// Each thread holds a copy; with the last one the loop's end of the channel says that all have
    /// ended. `None`: no more threads.
    pub(super) open: Option<Sender<Infallible>>,
    /// The size of the threads' stacks in bytes, where it is not the system's choice.
    pub(super) stack_bytes: Option<usize>,
}

pub(super) struct Shared<W: Work> {
    pub(super) lanes: Lanes<W>,
    pub(super) crew: Crew,
    pub(super) roster: Mutex<Roster>,
    done: Sender<Arc<Cell<W>>>,
    bell: Arc<dyn Fn(Urgency) + Send + Sync>,
}

impl<W: Work> Shared<W> {
    pub(super) fn new(
        lanes: Lanes<W>,
        crew: Crew,
        open: Sender<Infallible>,
        done: Sender<Arc<Cell<W>>>,
        bell: Arc<dyn Fn(Urgency) + Send + Sync>,
    ) -> Shared<W> {
        let (handles, tallies) = (Vec::new(), Vec::new());
        let roster = Roster { handles, tallies, open: Some(open), stack_bytes: None };
        Shared { lanes, crew, roster: Mutex::new(roster), done, bell }
    }

    /// Makes sure that a worker looks at the queues, if there is one left. The error is the errno
    /// of a thread that could not be made.
    #[inline]
    pub(super) fn summon(self: &Arc<Self>) -> Result<(), i32> {
        match self.crew.call(true) {
            Call::Nothing => Ok(()),
            Call::Wake => {
                self.crew.wake();
                Ok(())
            }
            Call::Grow => self.grow(),
        }
    }

    #[cold]
    fn grow(self: &Arc<Self>) -> Result<(), i32> {
        let Err(error) = self.spawn() else { return Ok(()) };
        self.crew.not_grown();
        // A worker that has become idle meanwhile was not woken, since one seemed to search.
        if self.lanes.has_work() && self.crew.call(false) == Call::Wake {
            self.crew.wake();
        }
        Err(error)
    }

    fn spawn(self: &Arc<Self>) -> Result<(), i32> {
        let mut roster = self.roster.lock().unwrap_or_else(PoisonError::into_inner);
        // After `stop`: whatever is queued is being dropped.
        let Some(open) = roster.open.clone() else {
            self.crew.not_grown();
            return Ok(());
        };
        let mut builder = thread::Builder::new();
        builder = builder.name(format!("windlass-{}", roster.handles.len()));
        if let Some(bytes) = roster.stack_bytes {
            builder = builder.stack_size(bytes);
        }
        let (shared, tally) = (Arc::clone(self), Arc::new(Tally::default()));
        roster.tallies.push(Arc::clone(&tally));
        let unbind = affinity::unbind_of();
        let spawned = builder.spawn(move || {
            unbind();
            shared.work(&tally);
            drop(shared);
            drop(open);
        });
        match spawned {
            Ok(handle) => {
                roster.handles.push(handle);
                Ok(())
            }
            Err(error) => {
                roster.tallies.pop();
                Err(os_errno(&error).unwrap_or(libc::EAGAIN))
            }
        }
    }

    /// How many jobs were ever started, and how many of them have ended.
    pub(super) fn tally(&self) -> (u64, u64) {
        let roster = self.roster.lock().unwrap_or_else(PoisonError::into_inner);
        roster.tallies.iter().fold((0, 0), |(started, ended), tally| {
            // `ended` first: it is never ahead of `started`.
            let more = tally.ended.load(Ordering::Acquire);
            (started + tally.started.load(Ordering::Acquire), ended + more)
        })
    }

    fn work(self: &Arc<Self>, tally: &Tally) {
        let mut searching = true;
        loop {
            if let Some(started) = self.lanes.start() {
                let last = mem::take(&mut searching) && self.crew.found();
                if last && self.lanes.has_work() {
                    // A thread that cannot be made is missed by the next submission as well.
                    let _ = self.summon();
                }
                self.run(started, tally);
                continue;
            }
            if !searching && self.crew.search() {
                searching = true;
                if self.look() {
                    continue;
                }
            }
            self.crew.rest(mem::take(&mut searching));
            let risen = self.lanes.has_work() && self.crew.rise();
            if !risen && !self.crew.sleep() {
                break;
            }
            searching = true;
        }
        self.crew.leave();
    }

    /// Looks for a while; true when there is something.
    fn look(&self) -> bool {
        (0..LOOKS).any(|_| {
            std::hint::spin_loop();
            self.lanes.has_work()
        })
    }

    /// Runs a job, and what there is of its strand as long as nothing else waits.
    fn run(self: &Arc<Self>, started: Started<W>, tally: &Tally) {
        let Started { mut cell, mut work, slow, strand } = started;
        let Some(mut strand) = strand else {
            self.run_one(&cell, work, tally);
            if slow {
                self.lanes.slow_ended();
            }
            self.deliver(cell);
            return (self.bell)(Urgency::Now);
        };
        loop {
            self.run_one(&cell, work, tally);
            // Before another worker can have the strand, so that its jobs come back in their order.
            self.deliver(cell);
            let next = if self.lanes.has_work() {
                (self.bell)(Urgency::Now);
                let Err(back) = self.lanes.yield_strand(strand) else { break };
                strand = back;
                strand.start()
            } else {
                let next = strand.start();
                let ahead = next.as_ref().map_or(0, |&(.., bytes)| bytes);
                (self.bell)(if ahead > AHEAD { Urgency::Soon } else { Urgency::Now });
                next
            };
            let Some((next, next_work, _)) = next else { return };
            (cell, work) = (next, next_work);
        }
        // This worker takes one of the jobs next, and an idle one may take the other.
        let _ = self.summon();
    }

    fn run_one(&self, cell: &Cell<W>, work: W, tally: &Tally) {
        Tally::add(&tally.started);
        cell.run(work);
        Tally::add(&tally.ended);
    }

    /// Gives the loop a job that has ended. The bell is to be rung after it.
    fn deliver(&self, cell: Arc<Cell<W>>) {
        // There is room for all that are in flight; without a loop the result is dropped here.
        let _ = self.done.try_send(cell);
    }
}
