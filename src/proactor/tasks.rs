//! Jobs and look-ups that the kernel runs itself, without threads: the simulated kernel does.
//!
//! Invariant: (T1) a task in the kernel keeps its place in the table until the kernel has answered,
//! or has given the task back.

use super::*;
use crate::discard::discard;
use crate::file::Task;
use crate::slots::InFlight;

impl<K: Kernel> Proactor<K> {
    /// Gives a task to the kernel.
    pub(super) fn give_to_kernel(&mut self, slot: u32, task: Task) -> Result<(), (Task, Reason)> {
        let most = self.config.max_jobs.max(1);
        if self.files.tasks >= most {
            let count = u32::try_from(most).unwrap_or(u32::MAX);
            return Err((task, Reason::Full { limit: Limit::Jobs, count }));
        }
        let key = self.ticket(slot).key();
        self.kernel.start_task(key, task).map_err(|task| (task, Reason::NoFiles))?;
        self.slots[slot].in_flight = InFlight::Started;
        self.files.tasks += 1;
        self.files.counts.jobs += 1;
        Ok(())
    }

    /// Takes the results of tasks that have ended.
    #[cold]
    pub(super) fn take_tasks(&mut self) {
        while self.files.tasks > 0
            && let Some((key, result)) = self.kernel.task_answer()
        {
            self.files.tasks -= 1;
            let slot = key as u32;
            let Some(op) = self.slots.find_key(slot, (key >> 32) as u32) else {
                debug_assert!(false, "a place is kept until its task has ended");
                continue;
            };
            let is_late = op.in_flight.ending().is_some();
            self.finish_file(slot, result, is_late);
        }
    }

    /// Takes back a task that has not begun; false if it has.
    pub(super) fn withdraw_task(&mut self, slot: u32) -> bool {
        let key = self.ticket(slot).key();
        let Some(task) = self.kernel.cancel_task(key) else { return false };
        self.files.tasks -= 1;
        self.slots[slot].in_flight = InFlight::No;
        discard(task);
        true
    }
}
