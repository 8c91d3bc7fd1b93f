//! Jobs: work of the program that runs off the loop, one at a time for each connection.
//!
//! A connection that has jobs has a queue in a table of its own. `flush` gives the first job of a
//! queue to the watcher's worker threads, or to the program's executor. The next one follows in the
//! flush after its end.
//!
//! Invariant: (Q1) a queue keeps its place in the table while a job of it is at work: the answer
//! names the place.

use std::any::Any;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use windlass::driver::{self, Driver, discard};
use windlass::{Done, Error, ErrorKind, Message, Op, Refusal as Reason, Ticket, Watcher};

use super::conn::*;
use super::events::Pending;
use super::listener::{Request, is_full};
use super::{Command, Engine, Event, JOBS, LAST_JOBS, Remote, Shared};
use crate::log::LogEvent;

/// A job that was refused, with the job.
pub struct RefusedJob<J> {
    /// The job, which has not run.
    pub job: J,
    /// Why the job was refused.
    pub reason: Refusal,
}

impl<J> fmt::Debug for RefusedJob<J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RefusedJob({:?})", self.reason)
    }
}

impl<J> fmt::Display for RefusedJob<J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(f)
    }
}

impl<J> std::error::Error for RefusedJob<J> {}

/// Why a job has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum JobError {
    /// The job panicked. The text is what the panic said; empty if that was no text.
    Panicked(String),
    /// The watcher refused the job: the system gave it no thread, or the program has closed it.
    Refused(Reason),
    /// The program's [executor](Engine::set_executor) dropped the job.
    Dropped,
}

impl fmt::Display for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JobError::Panicked(text) => write!(f, "the job panicked: {text}"),
            JobError::Refused(reason) => write!(f, "the job was refused: {reason}"),
            JobError::Dropped => f.write_str("the executor dropped the job"),
        }
    }
}

impl std::error::Error for JobError {}

/// What an engine has counted of its jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct JobCounts {
    /// Jobs that have returned.
    pub done: u64,
    /// Jobs that have panicked.
    pub panicked: u64,
    /// Jobs that the watcher refused, or the program's executor dropped.
    pub failed: u64,
    /// Jobs that were dropped before they began, because their connection ended, or because a
    /// shutdown had waited long enough.
    pub dropped: u64,
}

impl JobCounts {
    /// Adds the counts of another engine.
    pub(crate) fn add(&mut self, other: &JobCounts) {
        self.done += other.done;
        self.panicked += other.panicked;
        self.failed += other.failed;
        self.dropped += other.dropped;
    }
}

/// A job for the program's [executor](Engine::set_executor).
///
/// Its drop without a run counts as a failure: [`JobError::Dropped`].
pub struct Work {
    job: Option<driver::Job>,
    slot: u32,
    shared: Arc<Shared>,
}

impl Work {
    /// Runs the job on the calling thread, and passes its result to its loop. A panic of the job is
    /// caught.
    pub fn run(mut self) {
        if let Some(job) = self.job.take() {
            self.answer(Outcome::of(job.run(None)));
        }
    }

    fn answer(&self, outcome: Outcome) {
        // It comes back if the loop is over. The program's value may panic as it drops.
        if let Err(unheard) = self.shared.post(Command::Answer(self.slot, Box::new(outcome))) {
            discard(unheard);
        }
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        if let Some(job) = self.job.take() {
            discard(job);
            self.answer(Outcome::Failed(JobError::Dropped));
        }
    }
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Work")
    }
}

/// How a job has ended.
pub(crate) enum Outcome {
    Returned(Message),
    Failed(JobError),
    /// It was cancelled before it began.
    Cancelled,
}

impl Outcome {
    fn of(result: Result<Done, Error>) -> Outcome {
        match result {
            Ok(Done::Returned(value)) => Outcome::Returned(value),
            // A job has no other result.
            Ok(_) => Outcome::Cancelled,
            Err(error) if error.kind() == ErrorKind::Panicked => {
                let text = String::from_utf8_lossy(&error.into_buf()).into_owned();
                Outcome::Failed(JobError::Panicked(text))
            }
            Err(_) => Outcome::Cancelled,
        }
    }
}

/// What a server does with the value of a job: true shuts it down.
pub(crate) type Then<S> = Box<dyn FnOnce(&mut Engine<S>, &Remote, u32, Message) -> bool + Send>;

/// The program's executor.
pub(crate) type Executor = Arc<dyn Fn(Work) + Send + Sync>;

struct Job<S> {
    op: Op,
    then: Option<Then<S>>,
    /// It runs even when its connection has ended.
    must: bool,
}

struct AtWork<S> {
    /// Its name; `None` in an executor.
    ticket: Option<Ticket>,
    then: Option<Then<S>>,
    must: bool,
}

/// The jobs of a connection.
struct Queue<S> {
    id: Id,
    waiting: VecDeque<Job<S>>,
    at_work: Option<AtWork<S>>,
    /// Whether it is in `Jobs::listed`.
    is_listed: bool,
    /// Whether a job has ended since the last flush.
    has_ended: bool,
}

impl<S> Queue<S> {
    /// Whether a close waits for it: only jobs that must run are not waited for.
    fn holds(&self) -> bool {
        self.at_work.as_ref().is_some_and(|job| !job.must)
            || self.waiting.iter().any(|job| !job.must)
    }

    fn len(&self) -> usize {
        self.waiting.len() + usize::from(self.at_work.is_some())
    }

    /// Whether a job of it must run, or runs, that a shutdown waits for.
    fn must_run(&self) -> bool {
        self.at_work.as_ref().is_some_and(|job| job.must) || self.waiting.iter().any(|job| job.must)
    }
}

/// The jobs of all connections.
pub(crate) struct Jobs<S> {
    queues: Vec<Option<Queue<S>>>,
    vacant: Vec<u32>,
    of: HashMap<Id, u32>,
    /// Queues that the next flush looks at.
    listed: VecDeque<u32>,
    /// Jobs that wait or are at work.
    count: usize,
    executor: Option<Executor>,
    /// What to do with the value in the event that was made last.
    then: Option<Then<S>>,
    /// Whether the time of the last jobs runs, and whether it has passed.
    bounded: bool,
    gave_up: bool,
}

impl<S> Default for Jobs<S> {
    fn default() -> Jobs<S> {
        Jobs {
            queues: Vec::new(),
            vacant: Vec::new(),
            of: HashMap::new(),
            listed: VecDeque::new(),
            count: 0,
            executor: None,
            then: None,
            bounded: false,
            gave_up: false,
        }
    }
}

impl<S> Jobs<S> {
    fn find(&self, id: Id) -> Option<&Queue<S>> {
        self.queues[*self.of.get(&id)? as usize].as_ref()
    }

    fn list(&mut self, slot: u32) {
        if let Some(queue) = &mut self.queues[slot as usize]
            && !queue.is_listed
        {
            queue.is_listed = true;
            self.listed.push_back(slot);
        }
    }

    fn push(&mut self, id: Id, job: Job<S>) {
        let slot = *self.of.entry(id).or_insert_with(|| {
            let queue = Queue {
                id,
                waiting: VecDeque::new(),
                at_work: None,
                is_listed: false,
                has_ended: false,
            };
            match self.vacant.pop() {
                Some(slot) => {
                    self.queues[slot as usize] = Some(queue);
                    slot
                }
                None => {
                    self.queues.push(Some(queue));
                    self.queues.len() as u32 - 1
                }
            }
        });
        if let Some(queue) = &mut self.queues[slot as usize] {
            queue.waiting.push_back(job);
        }
        self.count += 1;
        self.list(slot);
    }

    fn remove(&mut self, slot: u32) {
        if let Some(queue) = self.queues[slot as usize].take() {
            self.of.remove(&queue.id);
            self.vacant.push(slot);
        }
    }
}

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
    /// connection, for at most [`Limits::close`], and meanwhile the connection takes writes. When
    /// the connection has ended, a job that runs goes on without an event, and those that have not
    /// begun are dropped: [`JobCounts::dropped`]. A session does not wait at its
    /// close. An [idle](super::Limits::idle) limit goes on while a job runs.
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
    /// [`RefusedJob`] hands the job back, with:
    ///
    /// - [`Refusal::Stale`]: the connection has ended, closes, detaches, or has not opened yet.
    /// - [`Refusal::Jobs`]: [`Limits::jobs`] jobs of the connection, or [`Limits::loop_jobs`] of
    ///   the loop, wait or run.
    ///
    /// [`Builder::threads`]: windlass::Builder::threads
    /// [`Limits::close`]: super::Limits::close
    /// [`Limits::jobs`]: super::Limits::jobs
    /// [`Limits::loop_jobs`]: super::Limits::loop_jobs
    pub fn execute<T, J>(&mut self, id: Id, job: J) -> Result<(), RefusedJob<J>>
    where
        T: Any + Send,
        J: FnOnce() -> T + Send + 'static,
    {
        match self.may_execute(id) {
            Ok(()) => {
                self.queue_job(id, Op::run(job), None, false);
                Ok(())
            }
            Err(reason) => Err(RefusedJob { job, reason }),
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
    /// [`JobCounts::panicked`] counts a panic. If the connection has not ended,
    /// [`Event::JobFailed`] follows, too. A shutdown of a server waits for such jobs, for at most
    /// [`Limits::close`](super::Limits::close) after the last connection has ended. An engine that
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
    /// [`Work::run`] once, on any thread, and now or later. `executor` is called in
    /// [`flush`](Engine::flush), on the loop's thread, and must not block there.
    ///
    /// ```
    /// use windlass::Watcher;
    /// use windlass_serve::{Config, Engine, Work};
    /// let mut watcher = Watcher::new()?;
    /// let mut engine = Engine::<()>::new(Config::new());
    /// let (jobs, work) = std::sync::mpsc::channel::<Work>();
    /// std::thread::spawn(move || work.into_iter().for_each(Work::run));
    /// engine.set_executor(&mut watcher, move |work| {
    ///     let _ = jobs.send(work); // a job that is dropped fails
    /// });
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn set_executor<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        executor: impl Fn(Work) + Send + Sync + 'static,
    ) {
        // The answers come through the inbox.
        self.share(watcher);
        self.share_executor(Arc::new(executor));
    }

    /// Uses an executor, on an engine that has a `Remote`.
    pub(crate) fn share_executor(&mut self, executor: Executor) {
        self.jobs.executor = Some(executor);
    }

    /// Whether a job of a connection is taken.
    pub(crate) fn may_execute(&self, id: Id) -> Result<(), Refusal> {
        let limits = &self.config.limits;
        let over = OVER | DETACH | CONNECTING;
        if self.table.get(id).is_none_or(|place| place.flags & over != 0) {
            return Err(Refusal::Stale);
        }
        if self.jobs_of(id) >= limits.jobs || self.jobs.count >= limits.loop_jobs {
            return Err(Refusal::Jobs);
        }
        Ok(())
    }

    /// Queues a job for the next flush.
    pub(crate) fn queue_job(&mut self, id: Id, op: Op, then: Option<Then<S>>, must: bool) {
        self.jobs.push(id, Job { op, then, must });
        self.requests = true;
    }

    /// Gives each queue's next job to a thread.
    #[cold]
    pub(crate) fn submit_jobs<D: Driver>(&mut self, watcher: &mut Watcher<D>) {
        for _ in 0..self.jobs.listed.len() {
            let Some(slot) = self.jobs.listed.pop_front() else { return };
            let Some(queue) = &mut self.jobs.queues[slot as usize] else { continue };
            (queue.is_listed, queue.has_ended) = (false, false);
            if queue.at_work.is_some() {
                continue;
            }
            let Some(job) = queue.waiting.pop_front() else {
                self.jobs.remove(slot);
                continue;
            };
            let Job { op, then, must } = job;
            queue.at_work = Some(AtWork { ticket: None, then, must });
            let executor = self.jobs.executor.clone();
            if let (Some(executor), Some(shared)) = (executor, &self.shared) {
                let job = op.into_parts().job;
                let work = Work { job, slot, shared: Arc::clone(shared) };
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
                queue.waiting.push_front(Job { op, then, must });
            }
            queue.is_listed = true;
            self.jobs.listed.push_front(slot);
            self.requests = true;
            return;
        }
    }

    /// A job has ended: its event comes in its turn.
    pub(crate) fn pending_answer(&mut self, slot: u32, outcome: Outcome) {
        self.pending.push_back(Pending::Job(slot, Box::new(outcome)));
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
        self.requests = true;
        let counts = &mut self.counts.jobs;
        *match &outcome {
            Outcome::Returned(_) => &mut counts.done,
            Outcome::Failed(JobError::Panicked(_)) => &mut counts.panicked,
            Outcome::Failed(_) => &mut counts.failed,
            Outcome::Cancelled => &mut counts.dropped,
        } += 1;
        if let Outcome::Failed(error) = &outcome {
            self.log(LogEvent::JobFailed { id, error });
        }
        let flags = self.table.get(id).map(|place| place.flags);
        if flags.is_some_and(|flags| flags & (CLOSE | DETACH) != 0) {
            // The end may wait for this job.
            self.dirty(id.index());
        }
        let delivers = flags.is_some_and(|flags| flags & (CONNECTING | CLOSING | ABORT) == 0);
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

    /// Whether a connection that is to end takes writes, because it waits for its jobs.
    pub(crate) fn takes_answers(&self, index: u32) -> bool {
        const ENDS: u16 = OVER | SHUT | SHUTTING;
        let flags = self.table.place(index).flags;
        let only_waits = flags & ENDS & !CLOSE == 0;
        only_waits
            && self.session_at(index).is_none()
            && self
                .jobs
                .find(self.table.id(index))
                .is_some_and(|queue| queue.has_ended || queue.holds())
    }

    /// A connection ends: drops its jobs that have not begun, except those that must run.
    pub(crate) fn end_jobs(&mut self, id: Id) {
        let Some(&slot) = self.jobs.of.get(&id) else { return };
        let Some(queue) = &mut self.jobs.queues[slot as usize] else { return };
        let waiting = std::mem::take(&mut queue.waiting);
        let (kept, dropped) = waiting.into_iter().partition(|job| job.must);
        queue.waiting = kept;
        let dropped: VecDeque<Job<S>> = dropped;
        let mut unused = None;
        if let Some(job) = &mut queue.at_work
            && !job.must
        {
            unused = job.then.take();
            if let Some(ticket) = job.ticket {
                self.request(Request::CancelJob(ticket));
            }
        }
        self.jobs.count -= dropped.len();
        self.counts.jobs.dropped += dropped.len() as u64;
        self.jobs.list(slot);
        self.requests = true;
        discard(unused);
        dropped.into_iter().for_each(|job| discard((job.op, job.then)));
    }

    /// Whether a shutdown waits for jobs that must run.
    pub(crate) fn waits_for_last_jobs(&self) -> bool {
        self.jobs.count > 0
            && !self.jobs.gave_up
            && self.jobs.queues.iter().flatten().any(Queue::must_run)
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
        self.counts.jobs.dropped += dropped.len() as u64;
        dropped.into_iter().for_each(|job| discard((job.op, job.then)));
    }
}
