//! Files: what the page cache has is read at once; what the kernel does without waiting it is
//! given; threads do the rest (`jobs`).
//!
//! ```text
//!   submit ──▶ read_now ──done──▶ batch          (no place, no queue)
//!                 │ would wait
//!                 ▼
//!              start_file ──answer──▶ batch
//!                 │ not for this kernel, or it would have to wait: EAGAIN
//!                 ▼
//!              workers ──completion, bell──▶ batch
//! ```
//!
//! Invariant: (F1) an operation that the kernel has keeps its place and its buffer until the kernel
//! has answered.

#![allow(unsafe_code)]
//! # Safety
//!
//! What a kernel says it has written becomes the length of a vector: the promise of `Kernel`'s
//! implementers.

use std::collections::{HashMap, VecDeque};

use super::*;
use crate::error::{Error, ErrorKind};
use crate::file::work::WorkItem;
use crate::file::{FileAnswer, FileRequest, FileWork, Vectors};
use crate::slots::InFlight;
use crate::source::SourceKind;
use crate::sys::fs::MOST_VECTORS;
use crate::workers::{Job, Workers};
use send_file::Fetch;
use submit::check_len;

/// The work on files of a proactor, made at its first use.
#[derive(Default)]
pub(super) struct Files {
    pub(super) workers: Option<Workers<WorkItem>>,
    /// What workers have, by place.
    pub(super) jobs: HashMap<u32, Job<WorkItem>>,
    /// Places whose kernel would have had to wait, while the workers had as many jobs as may be.
    pub(super) parked: VecDeque<u32>,
    /// The vectors of the lists that the kernel has, by place.
    pub(super) lists: HashMap<u32, Vectors>,
    /// Empty vectors, kept for their memory.
    pub(super) spare_lists: Vec<Vectors>,
    /// Operations that the kernel has.
    pub(super) in_kernel: u32,
    /// How many jobs and look-ups the kernel has.
    pub(super) tasks: usize,
    /// What threads read for sockets, by the sockets' places.
    pub(super) fetches: HashMap<u32, Fetch>,
    /// The files, by place, whose descriptors threads have for that, by the number of the fetch.
    pub(super) reading: HashMap<u32, u32>,
    /// The last such number.
    pub(super) serial: u32,
    /// The last nap was for nothing: until a job has ended, the loop sleeps.
    pub(super) overslept: bool,
    pub(super) counts: FileCounts,
}

impl Files {
    /// Memory for the vectors of a list.
    fn vectors(&mut self) -> Vectors {
        self.spare_lists.pop().unwrap_or_default()
    }

    fn keep_vectors(&mut self, list: Vectors) {
        const KEPT: usize = 64;
        if self.spare_lists.len() < KEPT {
            self.spare_lists.push(list);
        }
    }
}

#[derive(Default)]
pub(super) struct FileCounts {
    /// Reads that were done at submission.
    pub(super) at_once: u64,
    /// Operations that were given to the kernel, and those that it handed back.
    pub(super) started: u64,
    pub(super) handed_back: u64,
    /// Operations and tasks that were given to workers, and writes among them that go one by one.
    pub(super) jobs: u64,
    pub(super) in_a_row: u64,
    /// Pieces of files that were read before they were sent.
    pub(super) fetches: u64,
}

impl Files {
    /// Operations that threads have or wait for, and tasks that the kernel has.
    pub(super) fn at_work(&self) -> usize {
        self.jobs.len() + self.parked.len() + self.tasks
    }

    /// Takes a job back that was not begun; true when it was not.
    pub(super) fn withdraw(&mut self, job: &Job<WorkItem>) -> bool {
        self.workers.as_mut().is_some_and(|workers| workers.cancel(job).is_some())
    }

    /// Whether a thread has more to do than it needs the loop for, so that what ends meanwhile can
    /// be taken a little later.
    #[inline]
    pub(super) fn may_nap(&self) -> bool {
        !self.overslept && self.workers.as_ref().is_some_and(|workers| workers.are_ahead())
    }

    pub(super) fn threads(&self) -> usize {
        self.workers.as_ref().map_or(0, |workers| workers.counts().threads)
    }
}

type Answer = Result<Ticket, Reason>;

impl OpCode {
    /// Work on a file, in no order: kernel or workers do it.
    pub(super) fn is_file(self) -> bool {
        matches!(
            self,
            OpCode::ReadAt | OpCode::WriteAt | OpCode::SyncAll | OpCode::SyncData | OpCode::Task
        )
    }
}

/// Whether an operation can move so many bytes at this offset: what could not be carried is the
/// largest.
fn check_range(offset: u64, len: usize) -> Result<(), Reason> {
    if offset >= Extra::MOST_OFFSET { Err(Reason::Os(libc::EINVAL)) } else { check_len(len) }
}

impl<K: Kernel> Proactor<K> {
    /// The index of a file, of which is known what there is to know.
    #[inline]
    pub(super) fn file(&mut self, source: Source) -> Result<u32, Reason> {
        if self.forks == fork::generation()
            && let Some(state) = self.sources.find(source.index(), source.generation())
            && state.is_known_file()
        {
            return Ok(source.index());
        }
        self.new_file(source)
    }

    #[cold]
    fn new_file(&mut self, source: Source) -> Result<u32, Reason> {
        let index = self.usable(source)?;
        if !K::FILES {
            return Err(Reason::NoFiles);
        }
        let state = &mut self.sources[index];
        if state.kind() != SourceKind::File {
            return Err(Reason::Unsupported);
        }
        if !state.facts().is_known() {
            let facts = self.kernel.file_facts(state.fd);
            state.set_facts(facts);
        }
        Ok(index)
    }

    #[inline(never)]
    pub(super) fn submit_read_at(
        &mut self,
        source: Source,
        token: u64,
        due_ns: u64,
        offset: u64,
        flags: u8,
        mut buf: Buf,
    ) -> Option<Ticket> {
        let answer = self.file(source).and_then(|index| {
            check_range(offset, buf.capacity())?;
            self.check_completions()?;
            let token = self.token(source, token);
            if let Some(result) = self.read_now(index, &mut buf, offset) {
                self.counts.submitted[OpCode::ReadAt as usize] += 1;
                self.files.counts.at_once += 1;
                let ticket = self.loose_ticket();
                self.batch.push(Completion::new(OpCode::ReadAt, source, ticket, token, result));
                return Ok(ticket);
            }
            self.begin_file(OpCode::ReadAt, index, token, due_ns, offset, flags, &mut buf)
        });
        answer.map_err(|reason| self.refusal = (reason, buf)).ok()
    }

    /// Reads the bytes that need no wait; `None` if some bytes need one, and then reads none.
    #[inline]
    fn read_now(&mut self, index: u32, buf: &mut Buf, offset: u64) -> Option<Result<Done, Error>> {
        let state = &mut self.sources[index];
        let mut facts = state.facts();
        if !facts.may_read_now() {
            return None;
        }
        let (fd, room) = (state.fd, buf.capacity());
        let is_list = buf.is_list();
        let most = self.config.source_budget.min(MOST_COPIED);
        if room > most || is_list && buf.parts().len() > MOST_VECTORS {
            // Copying it would keep the other sources waiting: a thread does.
            return None;
        }
        let mut moved = 0;
        while moved < room {
            let at = offset + moved as u64;
            let got = if is_list {
                let list = self.files.vectors().of_room(buf, moved);
                let got = self.kernel.read_list_now(fd, list.list(), at);
                self.files.keep_vectors(list);
                got
            } else {
                self.kernel.read_now(fd, buf.target(moved, usize::MAX), at)
            };
            match got {
                1.. => moved += got as usize,
                0 => break,
                _ => match -got as i32 {
                    libc::EINTR => {}
                    libc::EAGAIN => return None,
                    libc::EOPNOTSUPP | libc::ENOSYS => {
                        facts.never_read_now();
                        self.sources[index].set_facts(facts);
                        return None;
                    }
                    errno => {
                        // SAFETY: the kernel has written `moved` bytes from the start.
                        unsafe { buf.set_filled(moved) };
                        let kind = ErrorKind::Os(errno);
                        return Some(Err(Error::new(kind, moved as u32, buf.take())));
                    }
                },
            }
        }
        // SAFETY: the kernel has written `moved` bytes from the start.
        unsafe { buf.set_filled(moved) };
        Some(Ok(Done::Read(buf.take())))
    }

    #[inline(never)]
    pub(super) fn submit_write_at(
        &mut self,
        source: Source,
        token: u64,
        due_ns: u64,
        offset: u64,
        flags: u8,
        buf: &mut Buf,
    ) -> Answer {
        let index = self.file(source)?;
        check_range(offset, buf.len())?;
        self.begin_file(OpCode::WriteAt, index, token, due_ns, offset, flags, buf)
    }

    #[inline(never)]
    pub(super) fn submit_sync(
        &mut self,
        code: OpCode,
        source: Source,
        token: u64,
        due_ns: u64,
        flags: u8,
    ) -> Answer {
        let index = self.file(source)?;
        self.begin_file(code, index, token, due_ns, 0, flags, &mut Buf::default())
    }

    /// Accepts work on a file, and gives it to kernel or workers.
    #[allow(clippy::too_many_arguments)] // the parts of an operation; none is built twice
    fn begin_file(
        &mut self,
        code: OpCode,
        index: u32,
        token: u64,
        due_ns: u64,
        offset: u64,
        flags: u8,
        buf: &mut Buf,
    ) -> Answer {
        let ticket = self.place(code, index, token)?;
        let slot = ticket.index();
        let op = &mut self.slots[slot];
        op.buf = buf.take();
        op.offset = offset;
        op.count = u32::from(flags);
        self.sources[index].push_poll(&mut self.slots, slot);
        if !self.start_in_kernel(slot)
            && let Err(reason) = self.give_to_workers(slot)
        {
            *buf = self.slots[slot].buf.take();
            self.counts.submitted[code as usize] -= 1;
            self.unlink(slot);
            self.slots.vacate(slot);
            return Err(reason);
        }
        self.set_deadline(ticket, due_ns);
        Ok(ticket)
    }

    /// Has the kernel do what an operation has still to do; false when it is not for it.
    fn start_in_kernel(&mut self, slot: u32) -> bool {
        let ticket = self.ticket(slot);
        let op = &mut self.slots[slot];
        if op.buf.parts().len() > MOST_VECTORS {
            return false;
        }
        let state = &self.sources[op.source];
        if op.code == OpCode::ReadAt
            && !state.facts().is_direct()
            && op.buf.capacity() > self.config.source_budget.min(MOST_COPIED)
        {
            // What of it is cached would be copied right here.
            return false;
        }
        let moved = op.moved as usize;
        let list = match op.code {
            OpCode::ReadAt if op.buf.is_list() => {
                Some(self.files.vectors().of_room(&mut op.buf, moved))
            }
            OpCode::WriteAt if op.buf.is_list() => {
                Some(self.files.vectors().of_bytes(&op.buf, moved))
            }
            _ => None,
        };
        let work = match (op.code, &list) {
            (OpCode::ReadAt, None) => FileWork::Read(op.buf.target(moved, usize::MAX)),
            (OpCode::ReadAt, Some(list)) => FileWork::ReadList(list.list()),
            (OpCode::WriteAt, None) => FileWork::Write(&op.buf[moved..]),
            (OpCode::WriteAt, Some(list)) => FileWork::WriteList(list.list()),
            (OpCode::SyncAll, _) => FileWork::SyncAll,
            _ => FileWork::SyncData,
        };
        let offset = op.offset + moved as u64;
        let request = FileRequest { key: ticket.key(), fd: state.fd, offset, work };
        if !self.kernel.start_file(request, state.facts()) {
            list.into_iter().for_each(|list| self.files.keep_vectors(list));
            return false;
        }
        op.in_flight = InFlight::Started;
        if let Some(list) = list {
            self.files.lists.insert(slot, list);
        }
        self.busy += 1;
        self.files.in_kernel += 1;
        self.files.counts.started += 1;
        true
    }

    /// Which mechanism serves which work on files.
    pub(super) fn explain_files(&self, explain: &mut Explain) {
        if K::TASKS {
            let virtually = "no threads: the kernel runs them in its own time";
            explain.row("jobs, look-ups", "the kernel", virtually, self.files.counts.jobs);
        }
        if !K::FILES {
            return explain.row("files", "none", "this kernel has no files", 0);
        }
        let count = |code: OpCode| self.counts.submitted[code as usize];
        let counts = &self.files.counts;
        let cached = "in the page cache: no thread has to be woken for it";
        explain.row("read_at", "preadv2(RWF_NOWAIT) at submission", cached, counts.at_once);
        let not_cached = "what the page cache does not have, what is written, what is synced";
        explain.row("read_at, write_at, sync", "the kernel", not_cached, counts.started);
        let waits = "the kernel would have had to wait, or cannot: done again by threads";
        explain.row(
            "read_at, write_at, sync",
            "the kernel, then threads",
            waits,
            counts.handed_back,
        );
        let threads = format!("{} of {} threads", self.files.threads(), self.most_threads());
        let blocking = "blocking calls; jobs and look-ups on half of the threads at most";
        explain.row("files, tasks, jobs", threads, blocking, counts.jobs);
        let lock = "into the page cache: more threads would contend for the file's lock; behind \
                    a MiB more, the loop looks by itself instead of being woken";
        explain.row("write_at", "one thread for each file", lock, counts.in_a_row);
        let place = "in its place among the writes";
        explain.row("send_file", "sendfile", place, count(OpCode::SendFile));
        let fetched = "pieces that the page cache did not have, where the system says so (Linux)";
        explain.row("send_file", "a thread reads, then sendfile", fetched, counts.fetches);
    }

    /// Takes the answers of the kernel.
    #[inline(never)]
    pub(super) fn take_file_answers(&mut self) {
        while self.files.in_kernel > 0
            && let Some(answer) = self.kernel.file_answer()
        {
            self.file_answered(answer);
        }
    }

    /// The kernel has answered.
    fn file_answered(&mut self, answer: FileAnswer) {
        let FileAnswer { key, moved } = answer;
        let slot = key as u32;
        let Some(op) = self.slots.find_key(slot, (key >> 32) as u32) else {
            self.counts.stale_events += 1;
            return;
        };
        self.busy -= 1;
        self.files.in_kernel -= 1;
        let ending = op.in_flight.ending();
        op.in_flight = InFlight::No;
        if op.buf.is_list()
            && let Some(list) = self.files.lists.remove(&slot)
        {
            self.files.keep_vectors(list);
        }
        if moved < 0 {
            return match (-moved as i32, ending) {
                // Nothing was done.
                (libc::ECANCELED | libc::EINTR | libc::EAGAIN | libc::EOPNOTSUPP, Some(kind)) => {
                    self.fail(slot, kind)
                }
                (libc::EAGAIN | libc::EOPNOTSUPP | libc::ECANCELED | libc::EINTR, None) => {
                    self.hand_back(slot, -moved as i32);
                }
                // What a kernel without such a sync says (AIO before 4.18), and a file without any.
                (libc::EINVAL, None) if matches!(op.code, OpCode::SyncAll | OpCode::SyncData) => {
                    self.hand_back(slot, libc::EINVAL);
                }
                (errno, _) => self.fail_file(slot, ErrorKind::Os(errno), ending.is_some()),
            };
        }
        op.moved += moved as u32;
        let state = &self.sources[op.source];
        let (total, ended) = match op.code {
            // A direct read that ends inside a block has met the end of the file.
            OpCode::ReadAt => {
                let block = if state.facts().is_direct() { state.facts().block() } else { 1 };
                (op.buf.capacity(), !(moved as u64).is_multiple_of(block) || moved == 0)
            }
            OpCode::WriteAt => (op.buf.len(), false),
            _ => (0, true),
        };
        if (op.moved as usize) < total && !ended {
            return match ending {
                Some(kind) => self.fail_file(slot, kind, false),
                // The rest of it.
                None if moved > 0 && self.start_in_kernel(slot) => {}
                None => self.hand_back(slot, 0),
            };
        }
        let moved = op.moved;
        let mut buf = op.buf.take();
        let result = match op.code {
            OpCode::ReadAt => {
                // SAFETY: the kernel has written so many bytes from the start.
                unsafe { buf.set_filled(moved as usize) };
                Ok(Done::Read(buf))
            }
            OpCode::WriteAt => Ok(Done::Written { buf, bytes: moved }),
            _ => Ok(Done::Finished),
        };
        self.finish_file(slot, result, ending.is_some());
    }

    /// The kernel would have had to wait, or cannot do it: workers do it again from its start.
    #[cold]
    fn hand_back(&mut self, slot: u32, errno: i32) {
        self.files.counts.handed_back += 1;
        let index = self.slots[slot].source;
        if errno == libc::EOPNOTSUPP {
            let mut facts = self.sources[index].facts();
            facts.refuse();
            self.sources[index].set_facts(facts);
        }
        if !self.give_back_to_workers(slot) {
            self.slots[slot].in_flight = InFlight::Started;
            self.files.parked.push_back(slot);
        }
    }

    /// Ends an operation that kernel or workers had with an error and the bytes that it has moved.
    #[cold]
    pub(super) fn fail_file(&mut self, slot: u32, kind: ErrorKind, is_late: bool) {
        let op = &mut self.slots[slot];
        let moved = op.moved;
        let mut buf = op.buf.take();
        if op.code == OpCode::ReadAt {
            // SAFETY: the kernel has written so many bytes from the start.
            unsafe { buf.set_filled(moved as usize) };
        }
        self.finish_file(slot, Err(Error::new(kind, moved, buf)), is_late);
    }

    /// Delivers the result of work on a file, or of a task.
    pub(super) fn finish_file(&mut self, slot: u32, result: Result<Done, Error>, is_late: bool) {
        let op = &mut self.slots[slot];
        op.in_flight = InFlight::No;
        let (code, index, token) = (op.code, op.source, op.token);
        // A thread closes the file: see `close_file`.
        let closes = index != NIL && self.sources[index].fd < 0;
        let code = if closes { OpCode::Close } else { code };
        let ticket = self.ticket(slot);
        let source = if index == NIL { Source::NONE } else { self.sources[index].name(index) };
        self.unlink(slot);
        self.slots.vacate(slot);
        let done = Completion::new(code, source, ticket, token, result).with_late(is_late);
        self.batch.push(done);
        self.file_left(index);
    }

    /// Whether kernel or workers have work on a file.
    pub(super) fn is_at_work(&self, index: u32) -> bool {
        self.sources[index].polls != NIL
            || self.files.reading.values().any(|&reading| reading == index)
    }

    /// Work on a file has ended: a close that waits for it may go on, or an aborted source go.
    pub(super) fn file_left(&mut self, index: u32) {
        if index == NIL || self.is_at_work(index) {
            return;
        }
        if self.sources[index].has(ABORTING) {
            self.close_source(index);
        } else if self.need_no_room(index) {
            self.enqueue(index);
        }
    }

    /// Takes back what workers have not begun, or asks the kernel to stop; true when the operation
    /// is the caller's again, its buffer in its place.
    pub(super) fn withdraw(&mut self, slot: u32) -> bool {
        if K::TASKS {
            return self.withdraw_task(slot);
        }
        let files = &mut self.files;
        if let Some(at) = files.parked.iter().position(|&parked| parked == slot) {
            files.parked.remove(at);
        } else if let Some(workers) = &mut files.workers
            && let Some(job) = files.jobs.get(&slot)
        {
            // What closes a descriptor has it: there is no way back.
            if self.slots[slot].source != NIL && self.sources[self.slots[slot].source].fd < 0 {
                return false;
            }
            let Some(task) = workers.cancel(job) else { return false };
            files.jobs.remove(&slot);
            if !files.parked.is_empty() {
                // There is room for one of them.
                self.remote.waker()();
            }
            self.slots[slot].buf = task.into_buf();
        } else {
            let key = self.ticket(slot).key();
            self.kernel.stop_file(key);
            return false;
        }
        self.slots[slot].in_flight = InFlight::No;
        true
    }
}
