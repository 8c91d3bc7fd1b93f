//! Work for threads: jobs, and work on files that the kernel does not do without waiting. A kernel
//! that runs jobs by itself, as the simulated one does, gets the jobs instead of threads.
//!
//! Invariants: (J1) an operation that threads have keeps its slot until they have answered; its
//! buffer is theirs. (K4) A job in the kernel keeps its slot until the kernel has answered, or has
//! given the job back.

use std::time::Duration;

use crate::completion::Done;
use crate::driver::parts;
use crate::file::thread_job::{JobEnd, ThreadJob, Value, end_of};
use crate::file::{Arguments, Job};
use crate::kernel::Kernel;
use crate::memory::buf::Buf;
use crate::op::operation::InFlight;
use crate::op::payload::Payload;
use crate::op::{HIGH, LOW, Op, OpCode};
use crate::proactor::Proactor;
use crate::proactor::ops::{Submitted, send_file};
use crate::proactor::parts::files::AssignedJob;
use crate::proactor::parts::state::{ABORTING, CLOSING, REGISTERED, WRITABLE};
use crate::words::error::{ErrorKind, Limit, Refusal};
use crate::words::source::{Handle, Source, SourceKind, Ticket};
use crate::words::table::NIL;
use crate::workers::{DEFAULT_THREADS, Finished, JobClass, Lane, Workers};

fn lane_of(flags: u8) -> Lane {
    match flags & (HIGH | LOW) {
        HIGH => Lane::High,
        LOW => Lane::Low,
        _ => Lane::Normal,
    }
}

impl<K: Kernel> Proactor<K> {
    #[inline(never)]
    pub(in crate::proactor) fn submit_job(&mut self, op: &mut Op, token: u64) -> Submitted {
        let Some(Arguments::Job(job)) = op.payload.take_arguments().map(|boxed| *boxed) else {
            // The program has built the operation from parts without a job.
            return Err(Refusal::Unsupported);
        };
        let (index, ticket) = match self.occupy_for_job(op.source, token, &job) {
            Ok(place) => place,
            Err(reason) => {
                op.payload = Payload::from(Box::new(Arguments::Job(job)));
                return Err(reason);
            }
        };
        let slot = ticket.index();
        let mut fd = -1;
        if index != NIL {
            self.sources[index].push_poll(&mut self.ops.table, slot);
            fd = self.sources[index].fd;
        }
        let class = if job.is_slow() { JobClass::Slow } else { JobClass::Quick };
        let work = ThreadJob::Job { fd, job };
        if let Err((work, reason)) = self.submit_work(slot, lane_of(op.flags), class, work) {
            let ThreadJob::Job { job, .. } = work else { unreachable!("it comes back") };
            return Err(self.refuse_job(slot, job, reason, &mut op.payload));
        }
        self.set_deadline(ticket, op.deadline_ns);
        Ok(ticket)
    }

    /// Vacates the slot of a refused job, and puts the job back into its operation.
    #[cold]
    fn refuse_job(
        &mut self,
        slot: u32,
        job: Job,
        reason: Refusal,
        payload: &mut Payload,
    ) -> Refusal {
        *payload = Payload::from(Box::new(Arguments::Job(job)));
        self.stats.submitted[OpCode::Job as usize] -= 1;
        self.remove(slot);
        reason
    }

    /// Takes a slot for a job. Returns the index of its file, if it has one, and its ticket.
    fn occupy_for_job(
        &mut self,
        source: Source,
        token: u64,
        job: &Job,
    ) -> Result<(u32, Ticket), Refusal> {
        self.sources.check_open()?;
        let has_threads = K::FILES || (K::JOBS && job.is_slow());
        if !has_threads {
            return Err(Refusal::NoFiles);
        }
        let index = match source.is_none() {
            true if job.needs_file() => return Err(Refusal::Stale),
            true => NIL,
            false => self.file(source)?,
        };
        Ok((index, self.place(OpCode::Job, index, token)?))
    }

    /// Has a thread close a source, because close(2) may wait: a file once no other work on it is
    /// left, a socket once its other operations have ended. From now on the program cannot use the
    /// source. The slot of the source is vacated when the thread has answered.
    #[cold]
    pub(in crate::proactor) fn close_late(&mut self, index: u32, slot: u32) {
        self.end_timers(index);
        if self.sources[index].kind() != SourceKind::File {
            self.fail_reads(index, ErrorKind::Aborted);
            self.fail_polls(index, ErrorKind::Aborted);
        }
        let busy = self.files.is_at_work(&self.sources, index);
        let state = &mut self.sources[index];
        if busy {
            // The work on the file must end first. Its end makes the loop try the close again.
            state.flags &= !WRITABLE;
            return;
        }
        state.remove_write(&mut self.ops.table, slot);
        state.push_poll(&mut self.ops.table, slot);
        let (kind, registered, key) =
            (state.kind(), state.has(REGISTERED), state.name(index).key());
        let fd = std::mem::replace(&mut state.fd, -1);
        self.hide(index, ABORTING | CLOSING);
        if registered {
            self.kernel.deregister(fd, key);
        }
        let op = &mut self.ops[slot];
        (op.code, op.in_flight) = (OpCode::Job, InFlight::Started);
        let handle = self.kernel.release(fd, kind);
        self.give_close(slot, handle);
    }

    /// Gives a thread, or the kernel, a descriptor to close. This takes no place among the jobs.
    fn give_close(&mut self, slot: u32, handle: Handle) {
        let key = self.ops.ticket(slot).key();
        if K::JOBS {
            match self.kernel.start_job(key, ThreadJob::Close(handle)) {
                Ok(()) => self.files.jobs_in_kernel += 1,
                Err(work) => return self.job_done(slot, work.run(), false),
            }
            self.files.jobs.insert(slot, AssignedJob::Close);
            return;
        }
        self.files.jobs.insert(slot, AssignedJob::Close);
        let (closed, _) = self.files.closed.get_or_insert_with(crossbeam_channel::unbounded);
        let (closed, wake) = (closed.clone(), self.inbox.remote.wake_state());
        handle.close_later(Some(Box::new(move |result| {
            // If the driver is gone, the result is dropped.
            let _ = closed.send((key, result));
            wake.notify();
        })));
    }

    /// Gives an operation to workers, which do it from its start. Bytes that the kernel has written
    /// stay counted, because they are in the file even if no worker begins.
    pub(in crate::proactor) fn give_to_workers(&mut self, slot: u32) -> Result<(), Refusal> {
        let op = &mut self.ops[slot];
        let (fd, buf, offset) = (self.sources[op.source].fd, op.buf.take(), op.offset);
        let work = match op.code {
            OpCode::ReadAt => ThreadJob::ReadAt { fd, buf, offset },
            OpCode::WriteAt => ThreadJob::WriteAt { fd, buf, offset },
            OpCode::SyncAll => ThreadJob::Sync { fd },
            _ => ThreadJob::DataSync { fd },
        };
        if op.code != OpCode::WriteAt {
            op.moved = 0;
        }
        let lane = lane_of(op.count as u8);
        let state = &self.sources[op.source];
        let class = match op.code {
            OpCode::WriteAt if state.facts().locks_for_writes() => JobClass::Strand(op.source),
            _ => JobClass::Quick,
        };
        self.submit_work(slot, lane, class, work).map_err(|(work, reason)| {
            self.ops[slot].buf = work.into_buf();
            reason
        })
    }

    /// Gives a job to the workers, which are created for the first one.
    fn submit_work(
        &mut self,
        slot: u32,
        lane: Lane,
        class: JobClass,
        work: ThreadJob,
    ) -> Result<(), (ThreadJob, Refusal)> {
        let job = self.assign(self.ops.ticket(slot).key(), lane, class, work)?;
        self.files.jobs.insert(slot, job);
        self.ops[slot].in_flight = InFlight::Started;
        Ok(())
    }

    /// Gives a job to workers, or to the kernel.
    pub(in crate::proactor) fn assign(
        &mut self,
        key: u64,
        lane: Lane,
        class: JobClass,
        work: ThreadJob,
    ) -> Result<AssignedJob, (ThreadJob, Refusal)> {
        if K::JOBS {
            return self.give_to_kernel(key, work);
        }
        let threads = self.config.threads.unwrap_or(DEFAULT_THREADS);
        let (jobs, remote) = (self.config.max_jobs, &self.inbox.remote);
        let workers = self
            .files
            .workers
            .get_or_insert_with(|| Workers::new(threads, jobs, remote.wake_state()));
        match workers.submit(key, lane, class, work) {
            Ok(job) => {
                self.files.counts.jobs += 1;
                self.files.counts.in_strands += u64::from(matches!(class, JobClass::Strand(_)));
                Ok(AssignedJob::Thread(job))
            }
            Err(rejected) => Err((rejected.value, rejected.reason)),
        }
    }

    /// Takes what workers and closing threads have done.
    #[cold]
    pub(in crate::proactor) fn take_from_workers(&mut self) {
        while let Some(workers) = &mut self.files.workers
            && let Some(Finished { key, result }) = workers.take()
        {
            if key as u32 & send_file::FETCH != 0 {
                let (bytes, error) = match result {
                    Ok(end) => (end.buf, end.result.err()),
                    Err(_) => (Buf::NONE, Some(libc::EIO)),
                };
                self.fetched(key, bytes, error);
                continue;
            }
            let Some((slot, is_late)) = self.files.take_ended(&mut self.ops, key) else { continue };
            match result {
                Ok(outcome) => self.job_done(slot, outcome, is_late),
                Err(panic) => self.finish_file(slot, Err(parts::panicked(&panic)), is_late),
            }
        }
        while let Some((_, closed)) = &self.files.closed
            && let Ok((key, result)) = closed.try_recv()
        {
            let Some((slot, is_late)) = self.files.take_ended(&mut self.ops, key) else { continue };
            self.job_done(slot, end_of(result.map(|()| Value::Closed)), is_late);
        }
        self.unpark_files();
    }

    /// Gives the workers the parked operations for which there is room among the jobs.
    fn unpark_files(&mut self) {
        while let Some(slot) = self.files.parked.pop_front() {
            if !self.give_back_to_workers(slot) {
                return self.files.parked.push_front(slot);
            }
        }
        self.unstall_fetches();
    }

    /// Takes back work that has not begun; `None` if it has.
    pub(in crate::proactor) fn take_back(&mut self, job: &AssignedJob) -> Option<ThreadJob> {
        let work = match job {
            AssignedJob::Thread(job) => self.files.workers.as_mut()?.cancel(job)?,
            AssignedJob::Kernel(key) => {
                let work = self.kernel.cancel_job(*key)?;
                self.files.jobs_in_kernel -= 1;
                work
            }
            AssignedJob::Close => return None,
        };
        if !self.files.parked.is_empty() {
            // A parked operation may become a job now.
            self.inbox.remote.wake();
        }
        Some(work)
    }

    /// Gives workers an operation that the kernel has handed back. False if they already have as
    /// many jobs as they may have. If no thread can be created, the operation fails.
    pub(in crate::proactor) fn give_back_to_workers(&mut self, slot: u32) -> bool {
        match self.give_to_workers(slot) {
            Err(Refusal::Os(errno)) => self.fail_file(slot, ErrorKind::Os(errno), false),
            Err(_) => return false,
            Ok(()) => {}
        }
        true
    }

    /// Lets threads end their work, for a bounded time, and takes the results, so that their files
    /// close.
    pub(in crate::proactor) fn stop_workers(&mut self, patience: Duration) {
        if let Some(workers) = &mut self.files.workers {
            workers.stop(patience);
        }
        self.take_from_workers();
        self.files.workers = None;
    }

    /// A job has ended.
    fn job_done(&mut self, slot: u32, end: JobEnd, is_late: bool) {
        let JobEnd { result, buf, bytes } = end;
        let moved = u32::try_from(bytes).unwrap_or(u32::MAX);
        let result = match (self.ops[slot].code, result) {
            (OpCode::ReadAt, Ok(_)) => Ok(Done::Read(buf)),
            (OpCode::WriteAt, Ok(_)) => Ok(Done::Written { buf, bytes: moved }),
            (_, result) => parts::ended(JobEnd { result, buf, bytes }),
        };
        let result = self.ops.count_written(slot, result);
        self.finish_file(slot, result, is_late);
    }

    /// Gives the kernel a job instead of a thread.
    fn give_to_kernel(
        &mut self,
        key: u64,
        work: ThreadJob,
    ) -> Result<AssignedJob, (ThreadJob, Refusal)> {
        let most = self.config.max_jobs.max(1);
        if self.files.jobs_in_kernel >= most {
            return Err((work, Refusal::Full { limit: Limit::Jobs, count: most }));
        }
        self.kernel.start_job(key, work).map_err(|work| (work, Refusal::NoFiles))?;
        self.files.jobs_in_kernel += 1;
        self.files.counts.jobs += 1;
        Ok(AssignedJob::Kernel(key))
    }

    /// Takes the results of what the kernel has done instead of threads.
    #[cold]
    pub(in crate::proactor) fn take_from_kernel(&mut self) {
        while self.files.jobs_in_kernel > 0
            && let Some((key, result)) = self.kernel.job_answer()
        {
            self.files.jobs_in_kernel -= 1;
            if key as u32 & send_file::FETCH != 0 {
                let (bytes, error) = match result {
                    Ok(Done::Read(bytes)) => (bytes, None),
                    Ok(_) => (Buf::NONE, Some(libc::EIO)),
                    Err(error) => {
                        let errno = error.raw_os_error().unwrap_or(libc::EIO);
                        (error.into_buf(), Some(errno))
                    }
                };
                self.fetched(key, bytes, error);
                continue;
            }
            let Some((slot, is_late)) = self.files.take_ended(&mut self.ops, key) else { continue };
            let result = self.ops.count_written(slot, result);
            self.finish_file(slot, result, is_late);
        }
        self.unpark_files();
    }
}
