//! Operations that send a range of a file over a stream socket.
//!
//! ```text
//!   run_send_file ──what is next is in the page cache──▶ sendfile(2)
//!         │ it is not                                        ▲
//!         ▼                                                  │ without another look
//!       fetch: a thread reads it there ──completion──▶ fetched
//! ```
//!
//! Without a fetch, the loop would wait for the disk in sendfile(2). The loop still waits there if
//! the system cannot tell which bytes the page cache has, or if the cache has dropped the fetched
//! bytes.

use crate::completion::{Completion, Done};
use crate::file::Arguments;
use crate::file::work::WorkItem;
use crate::kernel::{Calls, Kernel};
use crate::memory::buf::Target;
use crate::op::payload::Payload;
use crate::op::{Op, OpCode};
use crate::proactor::Proactor;
use crate::proactor::ops::Submitted;
use crate::proactor::ops::submit::MOST_BYTES;
use crate::proactor::parts::files::AssignedJob;
use crate::proactor::parts::report::Stats;
use crate::proactor::parts::state::{INLINE_TICKET, RESERVED, STREAM, WRITE_PAUSED};
use crate::words::error::{ErrorKind, Refusal};
use crate::words::explain::Explain;
use crate::words::source::{Source, Ticket};
use crate::workers::{JobClass, Lane};

/// The driver looks for one byte in the page cache at each multiple of this distance, because the
/// cache loads and drops its pages in larger pieces.
const PROBE_DISTANCE: u64 = 64 << 10;

/// Marks the keys of fetches among those of jobs. The rest of such a key is the slot of the socket
/// and the number of the fetch.
pub(in crate::proactor) const FETCH: u32 = INLINE_TICKET;

/// The bytes that a thread reads, or has read, for the range at the head of a socket's writes.
pub(in crate::proactor) struct Fetch {
    op: Ticket,
    /// The offset in the file at which it ends.
    end: u64,
    serial: u32,
    /// `None` when the thread is done.
    job: Option<AssignedJob>,
}

impl<K: Kernel> Proactor<K> {
    /// Accepts a `send_file`, which is queued among the writes of a stream socket.
    #[inline(never)]
    pub(in crate::proactor) fn submit_send_file(&mut self, op: &mut Op, token: u64) -> Submitted {
        let Some(arguments) = op.payload.take_arguments() else {
            unreachable!("its operation carries the range");
        };
        let Arguments::Range { file, offset } = *arguments else {
            unreachable!("its operation carries the range");
        };
        let answer = self.begin_send_file(op, token, file, offset);
        if answer.is_err() {
            op.payload = Payload::from(arguments);
        }
        answer
    }

    fn begin_send_file(&mut self, op: &Op, token: u64, file: Source, offset: u64) -> Submitted {
        // The socket is looked up last: looking up the file may take requests of other threads,
        // after which an index may be another source's.
        self.file(file)?;
        let index = self.reader(op.source)?;
        let count = op.count;
        let state = &mut self.sources[index];
        if !state.has(STREAM) {
            return Err(Refusal::Unsupported);
        }
        if count == 0 || count as usize > MOST_BYTES {
            return Err(Refusal::BadCount);
        }
        // sendfile(2) has no flag that keeps it from waiting for the peer.
        // A socket that connects is the driver's own, and does not block.
        let (fd, shared) = (state.fd, self.sources.shared.contains(&index));
        let changed = fd >= 0 && self.kernel.calls_mut().forbid_blocking(fd, shared)?;
        if changed {
            self.sources[index].flags |= self.sources.changed(index);
        }
        let ticket = self.push_bytes(op.code, index, token, count as usize, false)?;
        let entry = &mut self.ops[ticket.index()];
        (entry.file, entry.offset, entry.count) = (file, offset, count);
        entry.multishot = op.is_multishot();
        self.finish_write_start(index, ticket, op.deadline_ns);
        Ok(ticket)
    }

    /// One attempt to send the next bytes of a range.
    pub(in crate::proactor) fn run_send_file(&mut self, index: u32, slot: u32, left: &mut usize) {
        let op = &self.ops[slot];
        let (file, socket) = (op.file, self.sources[index].fd);
        let Some(fd) = self.state(file).filter(|state| !state.has(RESERVED)).map(|state| state.fd)
        else {
            // The file is aborted.
            return self.fail(slot, ErrorKind::Os(libc::EBADF));
        };
        let op = &self.ops[slot];
        let (len, offset) = ((op.count - op.moved) as usize, op.offset + u64::from(op.moved));
        let len = len.min(*left);
        let Some(offered) = self.sendable_now(index, slot, file, offset, len) else { return };
        let moved = self.kernel.calls_mut().send_file(socket, fd, offset, offered);
        *left = left.saturating_sub(moved.max(1) as usize);
        if moved < 0 {
            return self.write_stopped(index, slot, moved);
        }
        if moved > 0 {
            self.note_bytes(index);
        }
        let op = &mut self.ops[slot];
        op.moved += moved as u32;
        let told = if op.multishot { moved as u32 } else { op.moved };
        let ended = moved == 0 || op.moved == op.count;
        let unsent = if ended { op.count - op.moved } else { 0 };
        if ended {
            self.finish_write(index, slot, Ok(Done::Sent(told)));
        } else if op.multishot {
            let (token, ticket) = (op.token, self.ticket(slot));
            let source = self.sources[index].name(index);
            let done =
                Completion::new(OpCode::SendFile, source, ticket, token, Ok(Done::Sent(told)));
            self.stats.continued += 1;
            self.outbox.batch.push(done.with_more(true));
        }
        // Fewer bytes than asked for are a full socket, or the end of the file: the next attempt
        // tells.
        self.unqueue(index, moved as u32 + unsent);
    }

    /// How many of the next `len` bytes of a range can be sent without a wait for the disk, as far
    /// as the system says. `None` if a thread reads the bytes first: then the writes of the socket
    /// pause until the thread is done.
    fn sendable_now(
        &mut self,
        index: u32,
        slot: u32,
        file: Source,
        offset: u64,
        len: usize,
    ) -> Option<usize> {
        let op = self.ticket(slot);
        if let Some(fetch) = self.files.fetches.remove(&index)
            && fetch.op == op
            && fetch.end > offset
        {
            return Some(len.min((fetch.end - offset) as usize));
        }
        let state = &self.sources[file.index()];
        let mut facts = state.facts();
        if !facts.may_read_now() {
            return Some(len);
        }
        let (fd, end) = (state.fd, offset.saturating_add(len as u64));
        let mut at = offset;
        while at < end {
            let got = self.kernel.calls_mut().read_now(fd, Target::from_slice(&mut [0]), at);
            match -got as i32 {
                libc::EAGAIN if self.fetch(index, op, file, offset, len) => return None,
                libc::EOPNOTSUPP | libc::ENOSYS => {
                    facts.never_read_now();
                    self.sources[file.index()].set_facts(facts);
                    break;
                }
                // The end of the file, an error that sendfile(2) will report, or no thread for the
                // job.
                0.. => break,
                _ => {}
            }
            // Look for the last byte, too.
            at = if at + 1 == end { end } else { (at + PROBE_DISTANCE).min(end - 1) };
        }
        Some(len)
    }

    /// Lets a thread read a range of a file for a socket. False if no thread can take the job.
    #[cold]
    fn fetch(&mut self, index: u32, op: Ticket, file: Source, offset: u64, len: usize) -> bool {
        self.files.last_fetch = self.files.last_fetch.wrapping_add(1);
        let serial = self.files.last_fetch;
        let key = u64::from(serial) << 32 | u64::from(FETCH | index);
        let fd = self.sources[file.index()].fd;
        let work = WorkItem::Fetch { fd, offset, len };
        let Ok(job) = self.submit_job(key, Lane::Normal, JobClass::Quick, work) else {
            return false;
        };
        let end = offset.saturating_add(len as u64);
        self.files.fetches.insert(index, Fetch { op, end, serial, job: Some(job) });
        self.files.fetched_files.insert(serial, file.index());
        self.sources[index].flags |= WRITE_PAUSED;
        self.files.counts.fetches += 1;
        true
    }

    /// A thread has read the bytes that a socket is to send, unless the range has ended meanwhile.
    pub(in crate::proactor) fn fetched(&mut self, key: u64) {
        let (index, serial) = (key as u32 & !FETCH, (key >> 32) as u32);
        if let Some(fetch) = self.files.fetches.get_mut(&index)
            && fetch.serial == serial
        {
            fetch.job = None;
            self.sources[index].flags &= !WRITE_PAUSED;
            if self.sources[index].can_write() {
                self.enqueue(index);
            }
        }
        self.release_file(serial);
    }

    /// A range leaves the queue. Its fetch ends, and the writes behind the range need not wait for
    /// the fetch.
    #[cold]
    pub(in crate::proactor) fn drop_fetch(&mut self, index: u32, slot: u32) {
        let op = self.ticket(slot);
        if self.files.fetches.get(&index).is_none_or(|fetch| fetch.op != op) {
            return;
        }
        let Some(Fetch { serial, job: Some(job), .. }) = self.files.fetches.remove(&index) else {
            return;
        };
        self.sources[index].flags &= !WRITE_PAUSED;
        if self.take_back(&job).is_some() {
            self.release_file(serial);
        }
    }

    /// The fetch `serial` no longer uses its file, so the file may close.
    fn release_file(&mut self, serial: u32) {
        if let Some(file) = self.files.fetched_files.remove(&serial) {
            self.file_left(file);
        }
    }
}

/// How the driver serves these operations, and how often; `fetches` is the number of pieces that
/// threads have read.
pub(super) fn explain(stats: &Stats, fetches: u64, explain: &mut Explain) {
    let place = "in its place among the writes";
    explain.row("send_file", "sendfile", place, stats.count(OpCode::SendFile));
    let fetched = "pieces that the page cache did not have, where the system says so (Linux)";
    explain.row("send_file", "a thread reads, then sendfile", fetched, fetches);
}
