//! Jobs for an executor of the program.

use std::fmt;
use std::sync::Arc;

use windlass::driver::{self, discard};

#[cfg(doc)]
use crate::Engine;
use crate::inbox::{Command, Shared};
use crate::parts::jobs::Outcome;
use crate::words::job::JobError;

/// A job for the program's [executor](Engine::set_executor).
///
/// Its drop without a run counts as a failure: [`JobError::Dropped`].
pub struct Job {
    pub(crate) job: Option<driver::Job>,
    pub(crate) slot: u32,
    pub(crate) shared: Arc<Shared>,
}

impl Job {
    /// Runs the job on the calling thread, and passes its result to its loop. A panic of the job is
    /// caught.
    pub fn run(mut self) {
        if let Some(job) = self.job.take() {
            self.answer(Outcome::of(job.run(None)));
        }
    }

    pub(crate) fn answer(&self, outcome: Outcome) {
        // It comes back if the loop is over. The program's value may panic as it drops.
        if let Err(unheard) = self.shared.post(Command::Answer(self.slot, Box::new(outcome))) {
            discard(unheard);
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if let Some(job) = self.job.take() {
            discard(job);
            self.answer(Outcome::Failed(JobError::Dropped));
        }
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Job")
    }
}

/// The program's executor.
pub(crate) type Executor = Arc<dyn Fn(Job) + Send + Sync>;
