//! A strand: jobs that run one after the other, in the order in which they came.
//!
//! For work that a lock of the system's would put in a row anyway, as the buffered writes of one
//! file: workers that wait for each other there are missing elsewhere. The worker that ends one job
//! of a strand goes on with the next, without a round trip to the loop, unless something else
//! waits: then the strand goes to the end of its lane.
//!
//! Invariant: (W2) a strand is *held* from the job that finds it empty until a worker does, and all
//! that time it stands in its lane once or one worker has it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Work;
use super::job::JobSlot;
use super::queues::Lane;

pub(super) struct Strand<W: Work> {
    pub(super) lane: Lane,
    state: Mutex<StrandState<W>>,
}

struct StrandState<W: Work> {
    slots: VecDeque<Arc<JobSlot<W>>>,
    held: bool,
}

impl<W: Work> StrandState<W> {
    fn drop_withdrawn(&mut self) {
        self.slots.retain(|slot| slot.is_waiting());
    }
}

impl<W: Work> Strand<W> {
    pub(super) fn new(lane: Lane) -> Strand<W> {
        Strand { lane, state: Mutex::new(StrandState { slots: VecDeque::new(), held: false }) }
    }

    /// No foreign code runs under the lock, so it is never poisoned.
    fn lock(&self) -> MutexGuard<'_, StrandState<W>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a job; true when no worker holds the strand, and it must be put in its lane.
    pub(super) fn push(&self, slot: Arc<JobSlot<W>>) -> bool {
        let mut state = self.lock();
        if state.slots.len() == state.slots.capacity() {
            // Those that were withdrawn make room before more memory does.
            state.drop_withdrawn();
        }
        state.slots.push_back(slot);
        !std::mem::replace(&mut state.held, true)
    }

    /// Starts the next job that was not withdrawn. Without one, no worker holds the strand any
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

    /// Drops the empty slots of a strand that was taken out of its lane; true when there are no
    /// others and no worker holds it any more.
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
