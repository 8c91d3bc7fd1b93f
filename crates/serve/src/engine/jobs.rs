//! Jobs: work of the program that runs off the loop, one at a time for each connection.
//!
//! A connection that has jobs has a queue in a table of its own. `flush` gives the first job of a
//! queue to the watcher's worker threads, or to the program's executor. The next one follows in the
//! flush after its end.
//!
//! Invariant: (Q1) a queue keeps its place in the table while a job of it is at work: the answer
//! names the place.

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use windlass::driver::{Driver, discard};
use windlass::{Done, Error, Message, Op, Refusal as Reason, Watcher};

use crate::engine::events::Pending;
use crate::engine::requests::{Request, is_full};
use crate::engine::{Engine, JOBS, LAST_JOBS};
use crate::handles::job::{Executor, Job};
use crate::handles::remote::Remote;
use crate::log::LogEvent;
use crate::parts::jobs::{AtWork, Outcome, Queue, Queued};
use crate::parts::table::{ABORT, CONNECTING, FINISHING, Place, SHUT, SHUTTING};
#[cfg(doc)]
use crate::report::Jobs;
use crate::stage::{Stage, StageClock};
use crate::words::event::Event;
use crate::words::id::Id;
use crate::words::job::JobError;
use crate::words::refused::{Refusal, Refused};

/// What a server does with the value of a job: true shuts it down.
pub(crate) type Then<S> = Box<dyn FnOnce(&mut Engine<S>, &Remote, u32, Message) -> bool + Send>;

impl<S> Engine<S> {
    /// Takes the value's callback out of the event that was made last.
    pub(crate) fn take_then(&mut self) -> Option<Then<S>> {
        self.jobs.then.take()
    }

    /// Runs a job of a connection on a worker thread of the watcher, off the loop. Its value comes
    /// back as [`Event::Executed`], and its panic as [`Event::JobFailed`].
    ///
    /// The jobs of a connection run in the order of these calls, one at a time: the next one begins
    /// after the event of the one before it was made. Jobs of different connections run beside each
    /// other, on half of the watcher's threads at most ([`Builder::threads`], 4 by default).
    ///
    /// A [close](Engine::close) and a [detach](Engine::detach) wait for the jobs of their
    /// connection, for at most [`Limits::close`], and meanwhile the connection takes writes. So
    /// does a [half-close](Engine::shutdown), for the jobs before it, and as long as they take.
    /// When the connection has ended, a job that runs goes on without an event, and those that have
    /// not begun are dropped: [`Jobs::dropped`]. A session does not wait at its close. An
    /// [idle](crate::Limits::idle) limit goes on while a job runs.
    ///
    /// Data of the connection counts in a job as it does outside. What else a job captures, and its
    /// result, the engine does not see: give both a [`Charge`](crate::memory::Charge) for memory
    /// whose size the peer decides.
    ///
    /// ```
    /// use windlass::driver::Driver;
    /// use windlass::Watcher;
    /// use windlass_serve::{Engine, Event, Id};
    /// fn take<D: Driver>(engine: &mut Engine<()>, watcher: &mut Watcher<D>) {
    ///     while let Some(event) = engine.next_event(watcher) {
    ///         match event {
    ///             Event::Data { id, data } => {
    ///                 let sum = move || data.iter().map(|&byte| u64::from(byte)).sum::<u64>();
    ///                 if let Err(refused) = engine.execute(id, sum) {
    ///                     println!("too much to do: {refused}");
    ///                 }
    ///             }
    ///             Event::Executed { id, output } => {
    ///                 let sum = output.downcast::<u64>().expect("what the job returns");
    ///                 let _ = engine.write(id, sum.to_string()); // refused if it has ended
    ///             }
    ///             Event::JobFailed { id, error } => println!("{id}: {error}"),
    ///             _ => {}
    ///         }
    ///     }
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Refused`] hands the job back, with:
    ///
    /// - [`Refusal::Stale`]: the connection has ended, closes, detaches, or has not opened yet.
    /// - [`Refusal::Jobs`]: [`Limits::jobs`] jobs of the connection, or [`Limits::loop_jobs`] of
    ///   the loop, wait or run.
    ///
    /// [`Builder::threads`]: windlass::Builder::threads
    /// [`Limits::close`]: crate::Limits::close
    /// [`Limits::jobs`]: crate::Limits::jobs
    /// [`Limits::loop_jobs`]: crate::Limits::loop_jobs
    pub fn execute<T, J>(&mut self, id: Id, job: J) -> Result<(), Refused<J>>
    where
        T: Any + Send,
        J: FnOnce() -> T + Send + 'static,
    {
        match self.may_execute(id) {
            Ok(()) => {
                self.queue_job(id, Op::run(job), None, false);
                Ok(())
            }
            Err(reason) => Err(Refused { value: job, reason }),
        }
    }

    /// Runs a job even if the connection closes or has ended, after the connection's other jobs:
    /// for a clean-up at the end, for example. The job has no value. No limit refuses it, so call
    /// it a bounded number of times for each connection.
    ///
    /// ```
    /// use std::path::PathBuf;
    /// use windlass_serve::{Action, Closed, Context, Handler};
    ///
    /// /// Keeps a temporary file for each connection, and removes it at the end.
    /// struct Uploads;
    /// impl Handler for Uploads {
    ///     type State = Option<PathBuf>;
    ///     fn closed(
    ///         &mut self,
    ///         server: &mut Context<'_, Self::State>,
    ///         closed: Closed<Self::State>,
    ///     ) -> Action {
    ///         if let Some(path) = closed.state {
    ///             let remove = move || {
    ///                 if let Err(error) = std::fs::remove_file(&path) {
    ///                     eprintln!("{}: {error}", path.display());
    ///                 }
    ///             };
    ///             server.engine().must_execute(closed.id, remove);
    ///         }
    ///         Action::None
    ///     }
    /// }
    /// ```
    ///
    /// [`Jobs::panicked`] counts a panic. If the connection has not ended,
    /// [`Event::JobFailed`] follows, too. A shutdown of a server waits for such jobs, for at most
    /// [`Limits::close`](crate::Limits::close) after the last connection has ended. An engine that
    /// is dropped drops jobs that have not begun: see [`jobs`](Engine::jobs).
    ///
    /// The job fails if the watcher cannot run it: [`JobError::Refused`].
    pub fn must_execute(&mut self, id: Id, job: impl FnOnce() + Send + 'static) {
        self.queue_job(id, Op::run(job), None, true);
    }

    /// How many jobs of a connection wait or run, those that must run included. After the end of
    /// the connection it has only these.
    pub fn jobs_of(&self, id: Id) -> usize {
        self.jobs.find(id).map_or(0, Queue::len)
    }

    /// How many jobs of this engine wait or run.
    pub fn jobs(&self) -> usize {
        self.jobs.count
    }

    /// Passes the jobs to an executor of the program, in place of the watcher's threads. It calls
    /// [`Job::run`] once, on any thread, and now or later. `executor` is called in
    /// [`flush`](Engine::flush), on the loop's thread, and must not block there.
    ///
    /// ```
    /// use windlass::Watcher;
    /// use windlass_serve::{Config, Engine, jobs::Job};
    /// let mut watcher = Watcher::new()?;
    /// let mut engine = Engine::<()>::new(Config::new());
    /// let (jobs, work) = std::sync::mpsc::channel::<Job>();
    /// std::thread::spawn(move || work.into_iter().for_each(Job::run));
    /// engine.set_executor(&mut watcher, move |work| {
    ///     let _ = jobs.send(work); // a job that is dropped fails
    /// });
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn set_executor<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        executor: impl Fn(Job) + Send + Sync + 'static,
    ) {
        // The answers come through the inbox.
        self.share(watcher);
        self.share_executor(Arc::new(executor));
    }

    /// Uses an executor, on an engine that has a `Remote`.
    pub(crate) fn share_executor(&mut self, executor: Executor) {
        self.outside.executor = Some(executor);
    }

    /// Whether a job of a connection is taken.
    pub(crate) fn may_execute(&self, id: Id) -> Result<(), Refusal> {
        let limits = &self.config.limits;
        let is_over = |place: &Place<S>| place.is_to_end() || place.flags & CONNECTING != 0;
        if self.table.get(id).is_none_or(is_over) {
            return Err(Refusal::Stale);
        }
        if self.jobs_of(id) >= limits.jobs || self.jobs.count >= limits.loop_jobs {
            return Err(Refusal::Jobs);
        }
        Ok(())
    }

    /// Queues a job for the next flush.
    pub(crate) fn queue_job(&mut self, id: Id, op: Op, then: Option<Then<S>>, must: bool) {
        self.jobs.push(id, Queued { op, then, must });
        self.work.requests = true;
    }

    /// Gives each queue's next job to a thread.
    #[cold]
    pub(crate) fn submit_jobs<D: Driver>(&mut self, watcher: &mut Watcher<D>) {
        for _ in 0..self.jobs.listed.len() {
            let Some(slot) = self.jobs.listed.pop_front() else { return };
            let Some(queue) = &mut self.jobs.queues[slot as usize] else { continue };
            queue.before_shut = queue.before_shut.saturating_sub(usize::from(queue.has_ended));
            (queue.is_listed, queue.has_ended) = (false, false);
            if queue.at_work.is_some() {
                continue;
            }
            let Some(job) = queue.waiting.pop_front() else {
                self.jobs.remove(slot);
                continue;
            };
            let Queued { op, then, must } = job;
            queue.at_work = Some(AtWork { ticket: None, then, must });
            let executor = self.outside.executor.clone();
            if let (Some(executor), Some(shared)) = (executor, &self.outside.shared) {
                let job = op.into_parts().job;
                let work = Job { job, slot, shared: Arc::clone(shared) };
                // A panic drops the job, which then fails.
                let _ = catch_unwind(AssertUnwindSafe(|| executor(work)));
                continue;
            }
            let submitted = watcher.submit(op.token(self.token(JOBS | slot)));
            let ticket = submitted.as_ref().ok().copied();
            let Some(queue) = &mut self.jobs.queues[slot as usize] else { continue };
            if let Some(at_work) = &mut queue.at_work {
                at_work.ticket = ticket;
            }
            let Err(refused) = submitted else { continue };
            let (op, reason) = (refused.value, refused.reason);
            if !matches!(reason, Reason::Full { .. }) {
                discard(op);
                self.pending_answer(slot, Outcome::Failed(JobError::Refused(reason)));
                continue;
            }
            // It is submitted again after the next completions.
            if let Some(AtWork { then, must, .. }) = queue.at_work.take() {
                queue.waiting.push_front(Queued { op, then, must });
            }
            queue.is_listed = true;
            self.jobs.listed.push_front(slot);
            self.work.requests = true;
            return;
        }
    }

    /// A job has ended: its event comes in its turn.
    pub(crate) fn pending_answer(&mut self, slot: u32, outcome: Outcome) {
        self.told.pending.push_back(Pending::Job(slot, Box::new(outcome)));
    }

    /// The event of a completion of a job.
    pub(crate) fn job_completed(
        &mut self,
        slot: u32,
        result: Result<Done, Error>,
    ) -> Option<Event<S>> {
        self.job_ended(slot, Outcome::of(result))
    }

    /// The event of a job that has ended.
    pub(crate) fn job_ended(&mut self, slot: u32, outcome: Outcome) -> Option<Event<S>> {
        let queue = self.jobs.queues.get_mut(slot as usize)?.as_mut()?;
        let AtWork { then, must, .. } = queue.at_work.take()?;
        let id = queue.id;
        queue.has_ended = true;
        self.jobs.count -= 1;
        self.jobs.list(slot);
        self.work.requests = true;
        let counters = &mut self.counters.jobs;
        *match &outcome {
            Outcome::Returned(_) => &mut counters.done,
            Outcome::Failed(JobError::Panicked(_)) => &mut counters.panicked,
            Outcome::Failed(_) => &mut counters.failed,
            Outcome::Cancelled => &mut counters.dropped,
        } += 1;
        if let Outcome::Failed(error) = &outcome {
            self.log(LogEvent::JobFailed { id, error });
        }
        let place = self.table.get(id);
        let delivers = place.is_some_and(|place| {
            place.stage <= Stage::Closing && place.flags & (CONNECTING | FINISHING | ABORT) == 0
        });
        let ends =
            |place: &Place<S>| place.stage.clock() == StageClock::OfEnd || place.flags & SHUT != 0;
        if place.is_some_and(ends) {
            // The end may wait for this job.
            self.dirty(id.index());
        }
        match outcome {
            Outcome::Returned(output) if delivers && !must => {
                self.jobs.then = then;
                Some(Event::Executed { id, output })
            }
            Outcome::Failed(error) if delivers => {
                discard(then);
                Some(Event::JobFailed { id, error })
            }
            unheard => {
                discard((unheard, then));
                None
            }
        }
    }

    /// Whether a connection that is to end has to wait for its jobs.
    pub(crate) fn waits_for_jobs(&self, index: u32) -> bool {
        !self.jobs.of.is_empty() && self.jobs.find(self.table.id(index)).is_some_and(Queue::holds)
    }

    /// A connection is to shut its output down, behind the jobs that it has now.
    pub(crate) fn shut_behind_jobs(&mut self, id: Id) {
        if let Some(&slot) = self.jobs.of.get(&id)
            && let Some(queue) = &mut self.jobs.queues[slot as usize]
        {
            queue.note_shut();
        }
    }

    /// Whether a half-close has to wait for jobs.
    pub(crate) fn waits_to_shut(&self, index: u32) -> bool {
        !self.jobs.of.is_empty()
            && self.jobs.find(self.table.id(index)).is_some_and(Queue::holds_shut)
    }

    /// Whether a connection that is to end, or to shut down its output, takes writes, because it
    /// waits for its jobs.
    pub(crate) fn takes_answers(&self, index: u32) -> bool {
        let place = self.table.place(index);
        let only_waits =
            place.stage <= Stage::Closing && place.flags & (FINISHING | SHUTTING | ABORT) == 0;
        let is_shut = place.flags & SHUT != 0;
        let waits = |queue: &Queue<Then<S>>| match is_shut {
            true => queue.before_shut > 0,
            false => queue.has_ended || queue.holds(),
        };
        only_waits && self.jobs.find(self.table.id(index)).is_some_and(waits)
    }

    /// A connection ends: drops its jobs that have not begun, except those that must run.
    pub(crate) fn end_jobs(&mut self, id: Id) {
        let Some(&slot) = self.jobs.of.get(&id) else { return };
        let Some(queue) = &mut self.jobs.queues[slot as usize] else { return };
        let waiting = std::mem::take(&mut queue.waiting);
        let (kept, dropped) = waiting.into_iter().partition(|job| job.must);
        queue.waiting = kept;
        let dropped: VecDeque<Queued<Then<S>>> = dropped;
        let mut unused = None;
        if let Some(job) = &mut queue.at_work
            && !job.must
        {
            unused = job.then.take();
            if let Some(ticket) = job.ticket {
                self.request(Request::Cancel(ticket));
            }
        }
        self.jobs.count -= dropped.len();
        self.counters.jobs.dropped += dropped.len() as u64;
        self.jobs.list(slot);
        self.work.requests = true;
        discard(unused);
        dropped.into_iter().for_each(|job| discard((job.op, job.then)));
    }

    /// Whether a shutdown waits for jobs that must run, or for operations of the program.
    pub(crate) fn waits_for_last_jobs(&self) -> bool {
        let must_run =
            || self.jobs.count > 0 && self.jobs.queues.iter().flatten().any(Queue::must_run);
        !self.jobs.gave_up && (self.work.ops.work > 0 || must_run())
    }

    /// The last connection has ended: begins the time that its jobs still have.
    #[cold]
    pub(crate) fn bound_last_jobs<D: Driver>(&mut self, watcher: &mut Watcher<D>) {
        if !self.jobs.bounded {
            let timer = Op::timer(self.config.limits.close).token(self.token(LAST_JOBS));
            // If the watcher is full, completions wait, and the next turn tries again.
            self.jobs.bounded = !is_full(watcher.submit(timer));
        }
    }

    /// The last jobs had their time: drops those that have not begun.
    pub(crate) fn give_up_last_jobs(&mut self) {
        self.jobs.gave_up = true;
        let mut dropped = Vec::new();
        for queue in self.jobs.queues.iter_mut().flatten() {
            dropped.extend(queue.waiting.drain(..));
        }
        self.jobs.count -= dropped.len();
        self.counters.jobs.dropped += dropped.len() as u64;
        dropped.into_iter().for_each(|job| discard((job.op, job.then)));
    }
}
