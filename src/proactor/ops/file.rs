//! Operations on files. Bytes in the page cache are read at submission; the kernel gets the work
//! that it does without waiting; threads do the rest (see `job.rs`).
//!
//! ```text
//!   submit ──▶ read_now ──done──▶ batch          (no slot, no queue)
//!                 │ would wait
//!                 ▼
//!              start_file ──answer──▶ batch
//!                 │ not for this kernel, or it would have to wait: EAGAIN
//!                 ▼
//!              workers ──completion, wake──▶ batch
//! ```
//!
//! Invariant: (F1) an operation that the kernel has keeps its slot and its buffer until the kernel
//! has answered.

#![allow(unsafe_code)]
//! # Safety
//!
//! What a kernel says it has written becomes the length of a vector: the promise of `Kernel`'s
//! implementers. The usual read puts its completion into the batch, where room was made before.

use crate::completion::{Completion, Done};
use crate::file::{FileAnswer, FileRequest, FileWork};
use crate::kernel::{Calls, Kernel};
use crate::memory::buf::Buf;
use crate::op::operation::InFlight;
use crate::op::payload::Payload;
use crate::op::{Op, OpCode};
use crate::proactor::ops::submit::check_len;
use crate::proactor::ops::{Submitted, send_file};
use crate::proactor::parts::state::ABORTING;
use crate::proactor::parts::time::MOST_INTERRUPTED;
use crate::proactor::{MOST_COPIED, Proactor};
use crate::sys::fork;
use crate::sys::fs::MOST_VECTORS;
use crate::words::error::{Error, ErrorKind, Refusal};
use crate::words::explain::Explain;
use crate::words::source::{Source, SourceKind, Ticket};
use crate::words::table::NIL;
use crate::workers::DEFAULT_THREADS;

/// Checks that an operation can move `len` bytes at this offset. `MOST_OFFSET` also stands for all
/// larger offsets, which an operation cannot carry.
fn check_range(offset: u64, len: usize) -> Result<(), Refusal> {
    if offset >= Payload::MOST_OFFSET { Err(Refusal::Os(libc::EINVAL)) } else { check_len(len) }
}

/// A new read of a file. It stays in memory, so that its parts take no registers.
pub(in crate::proactor) struct NewReadAt {
    pub(in crate::proactor) source: Source,
    pub(in crate::proactor) token: u64,
    pub(in crate::proactor) due_ns: u64,
    pub(in crate::proactor) offset: u64,
    pub(in crate::proactor) flags: u8,
    pub(in crate::proactor) buf: Buf,
}

impl<K: Kernel> Proactor<K> {
    /// The slot of a file that takes operations. Its facts are known afterwards.
    #[inline]
    pub(in crate::proactor) fn file(&mut self, source: Source) -> Result<u32, Refusal> {
        if self.sources.forks.generation == fork::generation()
            && let Some(state) = self.sources.table.find(source.index(), source.generation())
            && state.is_known_file()
        {
            return Ok(source.index());
        }
        self.new_file(source)
    }

    #[cold]
    fn new_file(&mut self, source: Source) -> Result<u32, Refusal> {
        let index = self.usable(source)?;
        if !K::FILES {
            return Err(Refusal::NoFiles);
        }
        let state = &mut self.sources[index];
        if state.kind() != SourceKind::File {
            return Err(Refusal::Unsupported);
        }
        if !state.facts().is_known() {
            let facts = self.kernel.calls_mut().file_facts(state.fd);
            state.set_facts(facts);
        }
        Ok(index)
    }

    /// The usual read of a file finds all its bytes in the page cache. It is inlined into the
    /// program, because the first return behind a system call takes as long as all of this code.
    #[inline(always)]
    pub(in crate::proactor) fn submit_read_at(&mut self, mut read: NewReadAt) -> Option<Ticket> {
        let source = read.source;
        let target = read.buf.target(0, usize::MAX);
        let room = target.len();
        if self.sources.forks.generation == fork::generation()
            && let Some(state) = self.sources.table.find(source.index(), source.generation())
            && state.is_known_file()
            && state.facts().may_read_now()
            // At least 1 byte, and at most what one read may copy. A list has no target, so its
            // room is 0.
            && room.wrapping_sub(1) < self.config.source_budget.min(MOST_COPIED)
            && read.offset < Payload::MOST_OFFSET
            && self.outbox.batch.has_room()
            // An operation whose ticket another thread has needs its slot.
            && self.ops.given.is_none()
        {
            let moved = self.kernel.calls_mut().read_now(state.fd, target, read.offset);
            if moved != room as isize {
                return self.submit_read_at_slowly(read, Some(moved));
            }
            self.stats.submitted[OpCode::ReadAt as usize] += 1;
            self.files.counts.at_once += 1;
            let token = self.sources.token(source, read.token);
            let ticket = self.outbox.placeless_ticket();
            // SAFETY: the kernel has written all of the room.
            let buf = unsafe { read.buf.filled(room) };
            let result = Ok(Done::Read(buf));
            let done = Completion::new(OpCode::ReadAt, source, ticket, token, result);
            // SAFETY: there is room: checked above, and nothing was added since.
            unsafe { self.outbox.batch.put(done) };
            return Some(ticket);
        }
        self.submit_read_at_slowly(read, None)
    }

    /// Reads a file. If the first attempt was made already, `tried` is its answer.
    #[inline(never)]
    fn submit_read_at_slowly(&mut self, read: NewReadAt, tried: Option<isize>) -> Option<Ticket> {
        let NewReadAt { source, token, due_ns, offset, flags, mut buf } = read;
        let answer = self.file(source).and_then(|index| {
            check_range(offset, buf.capacity())?;
            self.check_completions()?;
            let token = self.sources.token(source, token);
            if let Some(result) = self.read_now(index, &mut buf, offset, tried) {
                self.stats.submitted[OpCode::ReadAt as usize] += 1;
                self.files.counts.at_once += 1;
                let ticket = self.ended_ticket();
                self.outbox.push(OpCode::ReadAt, source, ticket, token, result);
                return Ok(ticket);
            }
            self.begin_file(OpCode::ReadAt, index, token, due_ns, offset, flags, &mut buf)
        });
        answer.map_err(|reason| self.outbox.refusal = (reason, buf)).ok()
    }

    /// Reads the bytes if none of them needs a wait. If some bytes need one, returns `None`, and
    /// the read has moved nothing. If the first attempt was made already, `tried` is its answer.
    fn read_now(
        &mut self,
        index: u32,
        buf: &mut Buf,
        offset: u64,
        mut tried: Option<isize>,
    ) -> Option<Result<Done, Error>> {
        let state = &mut self.sources[index];
        let mut facts = state.facts();
        if !facts.may_read_now() {
            return None;
        }
        let (fd, room) = (state.fd, buf.capacity());
        let is_list = buf.is_list();
        let most = self.config.source_budget.min(MOST_COPIED);
        if room > most || is_list && buf.parts().len() > MOST_VECTORS {
            // Copying so many bytes would keep the other sources waiting, so a thread does it.
            return None;
        }
        let (mut moved, mut interrupted) = (0, 0);
        while moved < room {
            let at = offset + moved as u64;
            let got = if let Some(got) = tried.take() {
                got
            } else if is_list {
                let list = self.files.vectors().of_room(buf, moved);
                let got = self.kernel.calls_mut().read_list_now(fd, list.list(), at);
                self.files.keep_vectors(list);
                got
            } else {
                self.kernel.calls_mut().read_now(fd, buf.target(moved, usize::MAX), at)
            };
            match got {
                1.. => moved += got as usize,
                0 => break,
                _ => match -got as i32 {
                    libc::EINTR if interrupted < MOST_INTERRUPTED => interrupted += 1,
                    libc::EAGAIN | libc::EINTR => return None,
                    errno @ (libc::EOPNOTSUPP | libc::ENOSYS) => {
                        facts.cannot_read_now(errno);
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

    /// Accepts a write or a sync.
    #[inline(never)]
    pub(in crate::proactor) fn submit_file(&mut self, op: &mut Op, token: u64) -> Submitted {
        let index = self.file(op.source)?;
        let offset = op.payload.as_offset();
        if op.code == OpCode::WriteAt {
            check_range(offset, op.buf.len())?;
        }
        let (code, due_ns, flags) = (op.code, op.deadline_ns, op.flags);
        self.begin_file(code, index, token, due_ns, offset, flags, &mut op.buf)
    }

    /// Accepts work on a file, and gives it to the kernel or to workers.
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
    ) -> Submitted {
        let ticket = self.place(code, index, token)?;
        let slot = ticket.index();
        let op = &mut self.ops[slot];
        op.buf = buf.take();
        op.offset = offset;
        op.count = u32::from(flags);
        self.sources[index].push_poll(&mut self.ops.table, slot);
        if !self.start_in_kernel(slot)
            && let Err(reason) = self.give_to_workers(slot)
        {
            *buf = self.ops[slot].buf.take();
            self.stats.submitted[code as usize] -= 1;
            self.remove(slot);
            return Err(reason);
        }
        self.set_deadline(ticket, due_ns);
        Ok(ticket)
    }

    /// Gives the kernel the rest of an operation. False if the kernel does not do it.
    fn start_in_kernel(&mut self, slot: u32) -> bool {
        let ticket = self.ops.ticket(slot);
        let op = &mut self.ops[slot];
        if op.buf.parts().len() > MOST_VECTORS {
            return false;
        }
        let state = &self.sources[op.source];
        if op.code == OpCode::ReadAt
            && !state.facts().is_direct()
            && op.buf.capacity() > self.config.source_budget.min(MOST_COPIED)
        {
            // The loop itself would copy what the page cache has of these bytes.
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
        // SAFETY: F1: the operation keeps its slot, its buffer and its list until the answer.
        if !unsafe { self.kernel.start_file(request, state.facts()) } {
            list.into_iter().for_each(|list| self.files.keep_vectors(list));
            return false;
        }
        op.in_flight = InFlight::Started;
        if let Some(list) = list {
            self.files.lists.insert(slot, list);
        }
        self.kernel_ops.busy += 1;
        self.files.in_kernel += 1;
        self.files.counts.started += 1;
        true
    }

    /// Which mechanism serves which work on files.
    pub(in crate::proactor) fn explain_files(&self, explain: &mut Explain) {
        if K::JOBS {
            let virtually = "no threads: the kernel runs them in its own time";
            explain.row("jobs, look-ups", "the kernel", virtually, self.files.counts.jobs);
        }
        if !K::FILES {
            return explain.row("files", "none", "this kernel has no files", 0);
        }
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
        let most = self.config.threads.unwrap_or(DEFAULT_THREADS);
        let threads = format!("{} of {most} threads", self.files.threads());
        let blocking = "blocking calls; jobs and look-ups on half of the threads at most";
        explain.row("files, jobs", threads, blocking, counts.jobs);
        let lock = "into the page cache: more threads would contend for the file's lock";
        explain.row("write_at", "one thread for each file", lock, counts.in_strands);
        send_file::explain(&self.stats, counts.fetches, explain);
    }

    /// Takes the answers of the kernel.
    #[inline(never)]
    pub(in crate::proactor) fn take_file_answers(&mut self) {
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
        let Some(op) = self.ops.table.find_key(slot, (key >> 32) as u32) else {
            self.stats.counters.stale_events += 1;
            return;
        };
        self.kernel_ops.busy -= 1;
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
                // The kernel has done nothing.
                (libc::ECANCELED | libc::EINTR | libc::EAGAIN | libc::EOPNOTSUPP, Some(kind)) => {
                    self.fail(slot, kind)
                }
                (libc::EAGAIN | libc::EOPNOTSUPP | libc::ECANCELED | libc::EINTR, None) => {
                    self.hand_back(slot, -moved as i32);
                }
                // A kernel without this kind of sync answers so (AIO before 4.18), and so does a
                // file that cannot be synced.
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
                // The kernel continues with the rest.
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

    /// Hands an operation to workers, because the kernel would have had to wait, or cannot do it.
    /// The workers do it again from its start.
    #[cold]
    fn hand_back(&mut self, slot: u32, errno: i32) {
        self.files.counts.handed_back += 1;
        let index = self.ops[slot].source;
        if errno == libc::EOPNOTSUPP {
            let mut facts = self.sources[index].facts();
            facts.refuse();
            self.sources[index].set_facts(facts);
        }
        if !self.give_back_to_workers(slot) {
            self.ops[slot].in_flight = InFlight::Started;
            self.files.parked.push_back(slot);
        }
    }

    /// Ends an operation that the kernel or workers had, with an error and the bytes that it has
    /// moved.
    #[cold]
    pub(in crate::proactor) fn fail_file(&mut self, slot: u32, kind: ErrorKind, is_late: bool) {
        let op = &mut self.ops[slot];
        let moved = op.moved;
        let mut buf = op.buf.take();
        if op.code == OpCode::ReadAt {
            // SAFETY: the kernel has written so many bytes from the start.
            unsafe { buf.set_filled(moved as usize) };
        }
        self.finish_file(slot, Err(Error::new(kind, moved, buf)), is_late);
    }

    /// Delivers the result of work on a file, or of a job.
    pub(in crate::proactor) fn finish_file(
        &mut self,
        slot: u32,
        result: Result<Done, Error>,
        is_late: bool,
    ) {
        let op = &mut self.ops[slot];
        op.in_flight = InFlight::No;
        let (index, token) = (op.source, op.token);
        let (code, ticket) = (self.ops.told_code(&self.sources, slot), self.ops.ticket(slot));
        let source = self.sources.name(index);
        self.remove(slot);
        let done = Completion::new(code, source, ticket, token, result).with_late(is_late);
        self.outbox.batch.push(done);
        self.file_left(index);
    }

    /// Work on a file has ended: a close that waits for it is tried, or an aborted source closes.
    pub(in crate::proactor) fn file_left(&mut self, index: u32) {
        if index == NIL || self.files.is_at_work(&self.sources, index) {
            return;
        }
        if self.sources[index].has(ABORTING) {
            self.close_source(index);
        } else if self.need_no_room(index) {
            self.enqueue(index);
        }
    }

    /// Takes back an operation that workers have not begun, or asks the kernel to stop it. True if
    /// it was taken back and its slot has its buffer again.
    pub(in crate::proactor) fn withdraw(&mut self, slot: u32) -> bool {
        let files = &mut self.files;
        if let Some(at) = files.parked.iter().position(|&parked| parked == slot) {
            files.parked.remove(at);
        } else if let Some(job) = files.jobs.remove(&slot) {
            let Some(thread_job) = self.take_back(&job) else {
                self.files.jobs.insert(slot, job);
                return false;
            };
            self.ops[slot].buf = thread_job.into_buf();
        } else {
            let key = self.ops.ticket(slot).key();
            self.kernel.stop_file(key);
            return false;
        }
        self.ops[slot].in_flight = InFlight::No;
        true
    }
}
