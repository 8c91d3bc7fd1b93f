//! What threads do for the proactor: tasks, and work on files that the kernel does not do without
//! waiting.
//!
//! Invariant: (J1) an operation that threads have keeps its place until they have answered; its
//! buffer is theirs.

use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::error::ErrorKind;
use crate::file::work::{Outcome, WorkItem};
use crate::file::{Arguments, Task};
use crate::file::{HIGH, LOW};
use crate::parts;
use crate::slots::InFlight;
use crate::source::SourceKind;
use crate::workers::{Class, DEFAULT_THREADS, Finished, Job, Lane, Workers};

type Answer = Result<Ticket, Reason>;

fn lane_of(flags: u8) -> Lane {
    match flags & (HIGH | LOW) {
        HIGH => Lane::High,
        LOW => Lane::Low,
        _ => Lane::Normal,
    }
}

impl<K: Kernel> Proactor<K> {
    #[inline(never)]
    pub(super) fn submit_task(
        &mut self,
        source: Source,
        token: u64,
        due_ns: u64,
        flags: u8,
        extra: &mut Extra,
    ) -> Answer {
        let Some(Arguments::Task(task)) = extra.take_arguments().map(|boxed| *boxed) else {
            // The program has put it together from parts without one.
            return Err(Reason::Unsupported);
        };
        let (index, ticket) = match self.place_task(source, token, &task) {
            Ok(place) => place,
            Err(reason) => {
                *extra = Extra::from(Box::new(Arguments::Task(task)));
                return Err(reason);
            }
        };
        let slot = ticket.index();
        let mut fd = -1;
        if index != NIL {
            self.sources[index].push_poll(&mut self.slots, slot);
            fd = self.sources[index].fd;
        }
        if K::TASKS {
            if let Err((task, reason)) = self.give_to_kernel(slot, task) {
                return Err(self.refuse_task(slot, task, reason, extra));
            }
            self.set_deadline(ticket, due_ns);
            return Ok(ticket);
        }
        let class = if task.is_slow() { Class::Slow } else { Class::Quick };
        let work = WorkItem::Task { fd, task };
        if let Err((work, reason)) = self.employ(slot, lane_of(flags), class, work) {
            let WorkItem::Task { task, .. } = work else { unreachable!("it comes back") };
            return Err(self.refuse_task(slot, task, reason, extra));
        }
        self.set_deadline(ticket, due_ns);
        Ok(ticket)
    }

    /// Frees the place of a refused task, and puts the task back into its operation.
    #[cold]
    fn refuse_task(&mut self, slot: u32, task: Task, reason: Reason, extra: &mut Extra) -> Reason {
        *extra = Extra::from(Box::new(Arguments::Task(task)));
        self.counts.submitted[OpCode::Task as usize] -= 1;
        self.unlink(slot);
        self.slots.vacate(slot);
        reason
    }

    /// Takes a place for a task: the index of its file, if it has one, and its ticket.
    fn place_task(
        &mut self,
        source: Source,
        token: u64,
        task: &Task,
    ) -> Result<(u32, Ticket), Reason> {
        self.check_fork()?;
        if self.closed {
            return Err(Reason::Closed);
        }
        let has_threads = K::FILES || (K::TASKS && task.is_slow());
        if !has_threads {
            return Err(Reason::NoFiles);
        }
        let index = match source.is_none() {
            true if task.needs_file() => return Err(Reason::Stale),
            true => NIL,
            false => self.file(source)?,
        };
        Ok((index, self.place(OpCode::Task, index, token)?))
    }

    /// Has a thread close a file when nothing else is at work on it: close(2) may have much to free
    /// on the disk. The source is gone for its users, and vacates its place when the thread has
    /// answered.
    #[cold]
    pub(super) fn close_file(&mut self, index: u32, slot: u32) {
        self.end_timers(index);
        let busy = self.is_at_work(index);
        let state = &mut self.sources[index];
        if busy {
            // That ends first, and says so.
            state.flags &= !WRITABLE;
            return;
        }
        state.remove_write(&mut self.slots, slot);
        state.push_poll(&mut self.slots, slot);
        let fd = std::mem::replace(&mut state.fd, -1);
        self.hide(index, ABORTING | CLOSING);
        self.slots[slot].code = OpCode::Task;
        let handle = self.kernel.release(fd, SourceKind::File);
        let work = WorkItem::Close(handle);
        if let Err((work, _)) = self.employ(slot, Lane::Normal, Class::Quick, work) {
            // The system gives no thread.
            self.worked(slot, work.run(), false);
        }
    }

    /// Has workers do an operation, from its start.
    pub(super) fn give_to_workers(&mut self, slot: u32) -> Result<(), Reason> {
        let op = &mut self.slots[slot];
        let (fd, buf, offset) = (self.sources[op.source].fd, op.buf.take(), op.offset);
        let work = match op.code {
            OpCode::ReadAt => WorkItem::ReadAt { fd, buf, offset },
            OpCode::WriteAt => WorkItem::WriteAt { fd, buf, offset },
            OpCode::SyncAll => WorkItem::Sync { fd },
            _ => WorkItem::DataSync { fd },
        };
        op.moved = 0;
        let lane = lane_of(op.count as u8);
        let state = &self.sources[op.source];
        let class = match op.code {
            OpCode::WriteAt if state.facts().writes_in_a_row() => Class::Strand(op.source),
            _ => Class::Quick,
        };
        self.employ(slot, lane, class, work).map_err(|(work, reason)| {
            self.slots[slot].buf = work.into_buf();
            reason
        })
    }

    /// Gives a task to the workers, which are hired at the first one.
    fn employ(
        &mut self,
        slot: u32,
        lane: Lane,
        class: Class,
        work: WorkItem,
    ) -> Result<(), (WorkItem, Reason)> {
        let job = self.hire(self.ticket(slot).key(), lane, class, work)?;
        self.files.jobs.insert(slot, job);
        self.slots[slot].in_flight = InFlight::Started;
        Ok(())
    }

    /// The same, for the operation with this `key`.
    pub(super) fn hire(
        &mut self,
        key: u64,
        lane: Lane,
        class: Class,
        work: WorkItem,
    ) -> Result<Job<WorkItem>, (WorkItem, Reason)> {
        let threads = self.most_threads();
        let (jobs, bell) = (self.config.max_jobs, &self.remote);
        let workers = self
            .files
            .workers
            .get_or_insert_with(|| Workers::new(threads, jobs, Arc::new(bell.notifier())));
        match workers.submit(key, lane, class, work) {
            Ok(job) => {
                self.files.counts.jobs += 1;
                self.files.counts.in_a_row += u64::from(matches!(class, Class::Strand(_)));
                Ok(job)
            }
            Err(rejected) => Err((rejected.value, rejected.reason)),
        }
    }

    pub(super) fn most_threads(&self) -> usize {
        if self.config.threads == 0 { DEFAULT_THREADS } else { self.config.threads }
    }

    /// Takes what workers have done.
    #[cold]
    pub(super) fn take_jobs(&mut self) {
        while let Some(workers) = &mut self.files.workers
            && let Some(Finished { key, result }) = workers.take()
        {
            let slot = key as u32;
            self.files.overslept = false;
            if slot & send_file::FETCH != 0 {
                self.fetched(key);
                continue;
            }
            self.files.jobs.remove(&slot);
            let Some(op) = self.slots.find_key(slot, (key >> 32) as u32) else {
                debug_assert!(false, "a place is kept until the job has ended");
                continue;
            };
            let is_late = op.in_flight.ending().is_some();
            match result {
                Ok(outcome) => self.worked(slot, outcome, is_late),
                Err(panic) => self.finish_file(slot, Err(parts::panicked(&panic)), is_late),
            }
        }
        while let Some(slot) = self.files.parked.pop_front() {
            if !self.give_back_to_workers(slot) {
                return self.files.parked.push_front(slot);
            }
        }
    }

    /// Has workers do what the kernel has handed back; false when they have as many jobs as may be.
    /// An operation that no thread can be made for fails.
    pub(super) fn give_back_to_workers(&mut self, slot: u32) -> bool {
        match self.give_to_workers(slot) {
            Err(Reason::Os(errno)) => self.fail_file(slot, ErrorKind::Os(errno), false),
            Err(_) => return false,
            Ok(()) => {}
        }
        true
    }

    /// Lets threads end what they do, for a bounded time, and takes it, so that their files close.
    pub(super) fn stop_workers(&mut self, patience: Duration) {
        if let Some(workers) = &mut self.files.workers {
            workers.stop(patience);
        }
        self.take_jobs();
        self.files.workers = None;
    }

    /// A task has come to its end.
    fn worked(&mut self, slot: u32, outcome: Outcome, is_late: bool) {
        let Outcome { result, buf, bytes } = outcome;
        let moved = u32::try_from(bytes).unwrap_or(u32::MAX);
        let result = match (self.slots[slot].code, result) {
            (OpCode::ReadAt, Ok(_)) => Ok(Done::Read(buf)),
            (OpCode::WriteAt, Ok(_)) => Ok(Done::Written { buf, bytes: moved }),
            (_, result) => parts::ended(Outcome { result, buf, bytes }),
        };
        self.finish_file(slot, result, is_late);
    }
}
