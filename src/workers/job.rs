//! A job: the slot that its work waits in, and its result.
//!
//! ```text
//!            submit            a worker: start          a worker: finish        the loop: take
//!   Vacant ─────────▶ Waiting ─────────────▶ Running ────────────────▶ Ended ─────────────▶ Vacant
//!                        └──────── the loop: withdraw (cancel, stop) ─────────────────────────▲
//! ```
//!
//! Invariant: (W1) exactly one thread takes the work out of a waiting slot: a worker to run it, or
//! the loop to give it back. A slot is used again only when no other owner holds it.

use std::any::Any;
use std::fmt;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Run;
use crate::memory::discard::{discard, discard_payload};

/// Names a submitted job, for [`cancel`](super::Workers::cancel). Dropping it does nothing.
pub(crate) struct JobHandle<W: Run>(pub(super) Arc<JobSlot<W>>);

impl<W: Run> fmt::Debug for JobHandle<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JobHandle({})", self.0.key)
    }
}

/// A job that has ended.
#[derive(Debug)]
pub(crate) struct Finished<O> {
    /// The key that the job was submitted with.
    pub(crate) key: u64,
    /// The result of the work, or its panic.
    pub(crate) result: Result<O, Panic>,
}

/// The work panicked. The worker that ran it lives on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Panic(Option<Box<str>>);

impl Panic {
    /// The message of the panic, if it had one.
    pub(crate) fn message(&self) -> Option<&str> {
        self.0.as_deref()
    }

    pub(crate) fn from_payload(payload: Box<dyn Any + Send>) -> Panic {
        let text = match payload.downcast_ref::<&'static str>() {
            Some(text) => Some((*text).into()),
            None => payload.downcast_ref::<String>().map(|text| text.as_str().into()),
        };
        discard_payload(payload);
        Panic(text)
    }
}

impl fmt::Display for Panic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.message() {
            Some(text) => write!(f, "the work panicked: {text}"),
            None => f.write_str("the work panicked"),
        }
    }
}

enum JobState<W: Run> {
    Vacant,
    Waiting(W),
    Running,
    Ended(Result<W::Output, Panic>),
}

/// The work of one job, and then its result.
pub(super) struct JobSlot<W: Run> {
    key: u64,
    state: Mutex<JobState<W>>,
}

impl<W: Run> JobSlot<W> {
    pub(super) fn new(key: u64, work: W) -> JobSlot<W> {
        JobSlot { key, state: Mutex::new(JobState::Waiting(work)) }
    }

    /// Uses a slot again that has no other owner.
    pub(super) fn reuse(&mut self, key: u64, work: W) {
        self.key = key;
        *self.state.get_mut().unwrap_or_else(PoisonError::into_inner) = JobState::Waiting(work);
    }

    /// No foreign code runs under the lock, so it is never poisoned.
    fn lock(&self) -> MutexGuard<'_, JobState<W>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, then: JobState<W>) -> Option<W> {
        let mut state = self.lock();
        if !matches!(*state, JobState::Waiting(_)) {
            return None;
        }
        match mem::replace(&mut *state, then) {
            JobState::Waiting(work) => Some(work),
            _ => None,
        }
    }

    /// A worker takes the work to run it; `None` when it was withdrawn.
    pub(super) fn start(&self) -> Option<W> {
        self.take(JobState::Running)
    }

    /// The loop takes the work back; `None` when it was started.
    pub(super) fn withdraw(&self) -> Option<W> {
        self.take(JobState::Vacant)
    }

    pub(super) fn is_waiting(&self) -> bool {
        matches!(*self.lock(), JobState::Waiting(_))
    }

    /// Runs the work that was taken, and keeps the result.
    pub(super) fn run(&self, work: W) {
        let result = catch_unwind(AssertUnwindSafe(|| work.run())).map_err(Panic::from_payload);
        *self.lock() = JobState::Ended(result);
    }

    /// The loop takes the result of a job that has ended.
    pub(super) fn finish(&self) -> Option<Finished<W::Output>> {
        match mem::replace(&mut *self.lock(), JobState::Vacant) {
            JobState::Ended(result) => Some(Finished { key: self.key, result }),
            _ => None,
        }
    }
}

impl<W: Run> Drop for JobSlot<W> {
    /// Drops a job that never ran, or a result that was never taken. A panic of its `Drop` does not
    /// stop the worker or the loop.
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let work @ (JobState::Waiting(_) | JobState::Ended(_)) =
            mem::replace(state, JobState::Vacant)
        {
            discard(work);
        }
    }
}
