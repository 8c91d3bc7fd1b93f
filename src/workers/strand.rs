//! A strand: jobs that run one after the other, in the order in which they came.
//!
//! A strand is for work that a lock of the system serializes anyway, such as the buffered writes of
//! one file: workers that wait for such a lock are missing elsewhere. The worker that ends a job of
//! a strand goes on with the next one, without a round trip to the loop. If something else waits,
//! the strand goes to the end of its lane instead.
//!
//! Invariant: (W2) a strand is *held* from the job that finds it empty until a worker finds it
//! empty. All that time it is in its lane once, or one worker has it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Run;
use super::job::JobSlot;
use super::queues::Lane;

pub(super) struct Strand<W: Run> {
    pub(super) lane: Lane,
    state: Mutex<StrandState<W>>,
}

struct StrandState<W: Run> {
    slots: VecDeque<Arc<JobSlot<W>>>,
    held: bool,
}

impl<W: Run> StrandState<W> {
    fn drop_withdrawn(&mut self) {
        self.slots.retain(|slot| slot.is_waiting());
    }
}

impl<W: Run> Strand<W> {
    pub(super) fn new(lane: Lane) -> Strand<W> {
        Strand { lane, state: Mutex::new(StrandState { slots: VecDeque::new(), held: false }) }
    }

    /// No foreign code runs under the lock, so it is never poisoned.
    fn lock(&self) -> MutexGuard<'_, StrandState<W>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a job. True if no worker holds the strand, so that it must be put in its lane.
    pub(super) fn push(&self, slot: Arc<JobSlot<W>>) -> bool {
        let mut state = self.lock();
        if state.slots.len() == state.slots.capacity() {
            // Drop the slots of withdrawn jobs before the queue takes more memory.
            state.drop_withdrawn();
        }
        state.slots.push_back(slot);
        !std::mem::replace(&mut state.held, true)
    }

    /// Starts the next job that was not withdrawn. If there is none, no worker holds the strand any
    /// more.
    pub(super) fn start(&self) -> Option<(Arc<JobSlot<W>>, W)> {
        let mut state = self.lock();
        while let Some(slot) = state.slots.pop_front() {
            if let Some(work) = slot.start() {
                return Some((slot, work));
            }
        }
        state.held = false;
        None
    }

    /// Drops the slots of withdrawn jobs, in a strand that was taken out of its lane. True if no
    /// slots are left and the strand is no longer held.
    pub(super) fn retire(&self) -> bool {
        let mut state = self.lock();
        state.drop_withdrawn();
        state.held = !state.slots.is_empty();
        !state.held
    }

    pub(super) fn is_held(&self) -> bool {
        self.lock().held
    }

    /// Takes all waiting jobs back.
    pub(super) fn withdraw(&self) -> VecDeque<Arc<JobSlot<W>>> {
        std::mem::take(&mut self.lock().slots)
    }
}
