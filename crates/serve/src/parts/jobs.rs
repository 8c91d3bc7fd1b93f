//! The queues of jobs, one for each connection that has any.
//!
//! Invariant: (Q1) a queue keeps its place in the table while a job of it is at work: the answer
//! names the place.

use std::collections::{HashMap, VecDeque};

use windlass::{Done, Error, ErrorKind, Message, Op, Ticket};

use crate::parts::trim::{trim_map, trim_places, trim_queue};
use crate::words::id::Id;
use crate::words::job::JobError;

/// How a job has ended.
pub(crate) enum Outcome {
    Returned(Message),
    Failed(JobError),
    /// It was cancelled before it began.
    Cancelled,
}

impl Outcome {
    pub(crate) fn of(result: Result<Done, Error>) -> Outcome {
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

pub(crate) struct Queued<T> {
    pub(crate) op: Op,
    pub(crate) then: Option<T>,
    /// It runs even when its connection has ended.
    pub(crate) must: bool,
}

pub(crate) struct AtWork<T> {
    /// Its name; `None` in an executor.
    pub(crate) ticket: Option<Ticket>,
    pub(crate) then: Option<T>,
    pub(crate) must: bool,
}

/// The jobs of a connection.
pub(crate) struct Queue<T> {
    pub(crate) id: Id,
    pub(crate) waiting: VecDeque<Queued<T>>,
    pub(crate) at_work: Option<AtWork<T>>,
    /// Whether it is in `JobTable::listed`.
    pub(crate) is_listed: bool,
    /// Whether a job has ended since the last flush.
    pub(crate) has_ended: bool,
    /// How many of its first jobs a half-close waits for, with the one that has ended.
    pub(crate) before_shut: usize,
}

impl<T> Queue<T> {
    /// Whether a close waits for it: only jobs that must run are not waited for.
    pub(crate) fn holds(&self) -> bool {
        self.at_work.as_ref().is_some_and(|job| !job.must)
            || self.waiting.iter().any(|job| !job.must)
    }

    /// A half-close waits for the jobs that are there now, as a close does.
    pub(crate) fn note_shut(&mut self) {
        let first = self.at_work.iter().map(|job| job.must);
        let all = first.chain(self.waiting.iter().map(|job| job.must));
        let last = all.enumerate().filter(|(_, must)| !must).last();
        let ended = usize::from(self.has_ended);
        self.before_shut = last.map_or(ended, |(at, _)| at + 1 + ended);
    }

    /// Whether a half-close waits for a job.
    pub(crate) fn holds_shut(&self) -> bool {
        self.before_shut > usize::from(self.has_ended)
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.len() + usize::from(self.at_work.is_some())
    }

    /// Whether a job of it must run, or runs, that a shutdown waits for.
    pub(crate) fn must_run(&self) -> bool {
        self.at_work.as_ref().is_some_and(|job| job.must) || self.waiting.iter().any(|job| job.must)
    }
}

/// The jobs of all connections.
pub(crate) struct JobTable<T> {
    pub(crate) queues: Vec<Option<Queue<T>>>,
    pub(crate) vacant: Vec<u32>,
    pub(crate) of: HashMap<Id, u32>,
    /// Queues that the next flush looks at.
    pub(crate) listed: VecDeque<u32>,
    /// Jobs that wait or are at work.
    pub(crate) count: usize,
    /// What to do with the value in the event that was made last.
    pub(crate) then: Option<T>,
    /// Whether the time of the last jobs runs, and whether it has passed.
    pub(crate) bounded: bool,
    pub(crate) gave_up: bool,
}

impl<T> Default for JobTable<T> {
    fn default() -> JobTable<T> {
        JobTable {
            queues: Vec::new(),
            vacant: Vec::new(),
            of: HashMap::new(),
            listed: VecDeque::new(),
            count: 0,
            then: None,
            bounded: false,
            gave_up: false,
        }
    }
}

impl<T> JobTable<T> {
    pub(crate) fn find(&self, id: Id) -> Option<&Queue<T>> {
        self.queues[*self.of.get(&id)? as usize].as_ref()
    }

    pub(crate) fn list(&mut self, slot: u32) {
        if let Some(queue) = &mut self.queues[slot as usize]
            && !queue.is_listed
        {
            queue.is_listed = true;
            self.listed.push_back(slot);
        }
    }

    pub(crate) fn push(&mut self, id: Id, job: Queued<T>) {
        let slot = *self.of.entry(id).or_insert_with(|| {
            let queue = Queue {
                id,
                waiting: VecDeque::new(),
                at_work: None,
                is_listed: false,
                has_ended: false,
                before_shut: 0,
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

    pub(crate) fn remove(&mut self, slot: u32) {
        if let Some(queue) = self.queues[slot as usize].take() {
            self.of.remove(&queue.id);
            self.vacant.push(slot);
        }
    }

    /// Gives memory back that a burst has left.
    pub(crate) fn trim(&mut self) {
        trim_places(&mut self.queues, &mut self.vacant);
        trim_map(&mut self.of);
        trim_queue(&mut self.listed);
    }
}
