//! Operations that send a range of a file over a stream socket.
//!
//! ```text
//!   run_send_file ──little is left, and the page cache has it──▶ preadv2(2), send(2)
//!         │        ──what is next is in the page cache─────────▶ sendfile(2)
//!         │ it is not, or the system cannot tell
//!         ▼
//!       fetch: a thread reads it into memory ──completion──▶ send(2)
//! ```
//!
//! sendfile(2) waits for the disk, or for whatever serves the file system. So it gets only what the
//! page cache has, as far as a look at some of its pages tells. A look holds for a moment: a file
//! that many connections send is not looked at for each of them. For a few KiB the looks and
//! sendfile(2) cost more than a copy does.

use std::ops::Range;

use crate::completion::{Completion, Done};
use crate::file::Arguments;
use crate::file::thread_job::ThreadJob;
use crate::kernel::{Calls, Kernel};
use crate::memory::aligned::AlignedBuf;
use crate::memory::buf::{Buf, Target};
use crate::op::payload::Payload;
use crate::op::{Op, OpCode};
use crate::proactor::ops::Submitted;
use crate::proactor::ops::submit::MOST_BYTES;
use crate::proactor::ops::writes::cost;
use crate::proactor::parts::files::AssignedJob;
use crate::proactor::parts::report::Stats;
use crate::proactor::parts::state::{INLINE_TICKET, RESERVED, STREAM, WRITE_PAUSED};
use crate::proactor::{MOST_COPIED, Proactor};
use crate::words::error::{ErrorKind, Refusal};
use crate::words::explain::Explain;
use crate::words::source::{Source, Ticket};
use crate::workers::{JobClass, Lane};

/// The driver looks for one byte in the page cache at each multiple of this distance, because the
/// cache loads and drops its pages in larger pieces.
const PROBE_DISTANCE: u64 = 64 << 10;

/// How long the driver takes it that the page cache still has what it had.
const PROBE_HOLDS_NS: u64 = 100_000_000;

/// Of so many files the driver remembers what the page cache had.
const MOST_PROBED: usize = 256;

/// A part of at most so many bytes is copied.
const MOST_BY_COPY: usize = 16 << 10;

/// Marks the keys of fetches among those of jobs. The rest of such a key is the slot of the socket
/// and the number of the fetch.
pub(in crate::proactor) const FETCH: u32 = INLINE_TICKET;

/// What a thread reads, or has read, for the range at the head of a socket's writes.
pub(in crate::proactor) struct Fetch {
    op: Ticket,
    /// The offset in the file at which its bytes start.
    start: u64,
    state: FetchState,
}

enum FetchState {
    /// The threads had the most jobs that they may have.
    Waits,
    Reads {
        serial: u32,
        job: AssignedJob,
    },
    /// The bytes, up to the end of the file or to an error.
    Has {
        bytes: Buf,
        error: Option<i32>,
    },
}

/// What the page cache had of a file at a time.
pub(in crate::proactor) struct Probed {
    range: Range<u64>,
    at_ns: u64,
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
        let offset = op.offset + u64::from(op.moved);
        let len = ((op.count - op.moved) as usize).min(*left);
        let ticket = self.ops.ticket(slot);
        let fetch = self.files.fetches.get(&index).filter(|fetch| fetch.op == ticket);
        let moved = if let Some(Fetch { start, state, .. }) = fetch {
            let FetchState::Has { bytes, error } = state else {
                // A last try comes also while a thread reads.
                self.sources[index].flags |= WRITE_PAUSED;
                return;
            };
            let rest = bytes.get((offset - start) as usize..).unwrap_or(&[]);
            match error {
                Some(errno) if rest.is_empty() => {
                    let errno = *errno;
                    return self.fail(slot, ErrorKind::Os(errno));
                }
                _ if rest.is_empty() => 0,
                _ => {
                    let kind = self.sources[index].kind();
                    let rest = &rest[..rest.len().min(len)];
                    self.kernel.calls_mut().send(socket, kind, rest)
                }
            }
        } else if len <= MOST_BY_COPY {
            match self.copy_now(index, file, offset, len) {
                Some(moved) => moved,
                None => return self.fetch(index, slot, file, offset),
            }
        } else if self.is_sendable_now(file, offset, len) {
            self.kernel.calls_mut().send_file(socket, fd, offset, len)
        } else {
            return self.fetch(index, slot, file, offset);
        };
        *left = left.saturating_sub(cost(moved));
        if moved < 0 {
            return self.write_stopped(index, slot, moved);
        }
        if moved > 0 {
            self.note_bytes(index, WRITE_PAUSED);
        }
        let op = &mut self.ops[slot];
        op.moved += moved as u32;
        let told = if op.multishot { moved as u32 } else { op.moved };
        let ended = moved == 0 || op.moved == op.count;
        let unsent = if ended { op.count - op.moved } else { 0 };
        let next = offset + moved as u64;
        let is_used_up = |fetch: &Fetch| match &fetch.state {
            FetchState::Has { bytes, .. } => ended || fetch.start + bytes.len() as u64 <= next,
            _ => false,
        };
        if self.files.fetches.get(&index).is_some_and(is_used_up) {
            self.files.fetches.remove(&index);
        }
        if ended {
            self.finish_write(index, slot, Ok(Done::Sent(told)));
        } else if op.multishot {
            let (token, ticket) = (op.token, self.ops.ticket(slot));
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

    /// Sends the next bytes of a range through memory, if the page cache has some of them. Returns
    /// what the call returned that has sent or has failed, and 0 at the end of the file.
    fn copy_now(&mut self, index: u32, file: Source, offset: u64, len: usize) -> Option<isize> {
        let state = &self.sources[file.index()];
        let (fd, mut facts) = (state.fd, state.facts());
        if !facts.may_read_now() {
            return None;
        }
        let mut memory = std::mem::take(&mut self.files.copied);
        memory.resize(memory.len().max(len), 0);
        let target = Target::from_slice(&mut memory[..len]);
        let moved = match self.kernel.calls_mut().read_now(fd, target, offset) {
            0 => Some(0),
            got @ 1.. => {
                let socket = &self.sources[index];
                let (fd, kind) = (socket.fd, socket.kind());
                Some(self.kernel.calls_mut().send(fd, kind, &memory[..got as usize]))
            }
            failed => match -failed as i32 {
                libc::EAGAIN | libc::EINTR => None,
                errno @ (libc::EOPNOTSUPP | libc::ENOSYS) => {
                    facts.cannot_read_now(errno);
                    self.sources[file.index()].set_facts(facts);
                    None
                }
                // An error that sendfile(2) will report.
                _ => {
                    let socket = self.sources[index].fd;
                    Some(self.kernel.calls_mut().send_file(socket, fd, offset, len))
                }
            },
        };
        self.files.copied = memory;
        moved
    }

    /// Whether the next `len` bytes of a range can be sent without a wait for the file system, as
    /// far as the system says.
    fn is_sendable_now(&mut self, file: Source, offset: u64, len: usize) -> bool {
        let state = &self.sources[file.index()];
        let mut facts = state.facts();
        if !facts.may_read_now() {
            return false;
        }
        let (fd, end) = (state.fd, offset.saturating_add(len as u64));
        let now_ns = self.kernel.now_ns();
        if let Some(Probed { range, at_ns }) = self.files.probed.get(&file)
            && range.contains(&offset)
            && end <= range.end
            && now_ns.saturating_sub(*at_ns) < PROBE_HOLDS_NS
        {
            return true;
        }
        let mut at = offset;
        while at < end {
            let got = self.kernel.calls_mut().read_now(fd, Target::from_slice(&mut [0]), at);
            match -got as i32 {
                libc::EAGAIN | libc::EINTR => return false,
                errno @ (libc::EOPNOTSUPP | libc::ENOSYS) => {
                    facts.cannot_read_now(errno);
                    self.sources[file.index()].set_facts(facts);
                    return false;
                }
                // The end of the file, or an error that sendfile(2) will report.
                0.. => break,
                _ => {}
            }
            // Look for the last byte, too.
            at = if at + 1 == end { end } else { (at + PROBE_DISTANCE).min(end - 1) };
        }
        if at == end {
            if self.files.probed.len() >= MOST_PROBED {
                self.files.probed.clear();
            }
            self.files.probed.insert(file, Probed { range: offset..end, at_ns: now_ns });
        }
        true
    }

    /// Lets a thread read the next bytes of a range for a socket. The next attempt finds the fetch
    /// running, and pauses the writes of the socket.
    #[cold]
    fn fetch(&mut self, index: u32, slot: u32, file: Source, offset: u64) {
        self.files.last_fetch = self.files.last_fetch.wrapping_add(1);
        let serial = self.files.last_fetch;
        let key = u64::from(serial) << 32 | u64::from(FETCH | index);
        let op = &self.ops[slot];
        let len = ((op.count - op.moved) as usize).min(self.config.source_budget.min(MOST_COPIED));
        let state = &self.sources[file.index()];
        // Direct I/O takes whole blocks only.
        let block = state.facts().block();
        let start = offset - offset % block;
        let end = offset.saturating_add(len as u64).div_ceil(block).saturating_mul(block);
        let memory = AlignedBuf::with_capacity((end - start) as usize, block.max(4096) as usize);
        let work = ThreadJob::ReadAt { fd: state.fd, buf: Buf::from(memory), offset: start };
        let state = match self.assign(key, Lane::Normal, JobClass::Quick, work) {
            Ok(job) => {
                self.files.fetched_files.insert(serial, file.index());
                self.files.counts.fetches += 1;
                FetchState::Reads { serial, job }
            }
            Err((_, Refusal::Os(errno))) => return self.fail(slot, ErrorKind::Os(errno)),
            Err(_) => {
                self.files.stalled.push(index);
                FetchState::Waits
            }
        };
        self.files.fetches.insert(index, Fetch { op: self.ops.ticket(slot), start, state });
    }

    /// A thread has read the bytes that a socket is to send, unless the range has ended meanwhile.
    pub(in crate::proactor) fn fetched(&mut self, key: u64, bytes: Buf, error: Option<i32>) {
        let (index, number) = (key as u32 & !FETCH, (key >> 32) as u32);
        if let Some(fetch) = self.files.fetches.get_mut(&index)
            && matches!(fetch.state, FetchState::Reads { serial, .. } if serial == number)
        {
            fetch.state = FetchState::Has { bytes, error };
            self.resume_writes(index);
        }
        self.release_file(number);
    }

    /// Fetches for which there was no room among the jobs are tried again.
    pub(in crate::proactor) fn unstall_fetches(&mut self) {
        for index in std::mem::take(&mut self.files.stalled) {
            let waits = |fetch: &Fetch| matches!(fetch.state, FetchState::Waits);
            if self.files.fetches.get(&index).is_some_and(waits) {
                self.files.fetches.remove(&index);
                self.resume_writes(index);
            }
        }
    }

    fn resume_writes(&mut self, index: u32) {
        self.sources[index].flags &= !WRITE_PAUSED;
        if self.sources[index].can_write() {
            self.enqueue(index);
        }
    }

    /// A range leaves the queue. Its fetch ends, and the writes behind the range need not wait for
    /// the fetch.
    #[cold]
    pub(in crate::proactor) fn drop_fetch(&mut self, index: u32, slot: u32) {
        let op = self.ops.ticket(slot);
        if self.files.fetches.get(&index).is_none_or(|fetch| fetch.op != op) {
            return;
        }
        match self.files.fetches.remove(&index).map(|fetch| fetch.state) {
            Some(FetchState::Reads { serial, job }) => {
                self.sources[index].flags &= !WRITE_PAUSED;
                if self.take_back(&job).is_some() {
                    self.release_file(serial);
                }
            }
            Some(FetchState::Waits) => self.sources[index].flags &= !WRITE_PAUSED,
            _ => {}
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
    let place = "in its place among the writes; at most 16 KiB through memory";
    explain.row("send_file", "sendfile", place, stats.count(OpCode::SendFile));
    let fetched = "pieces that the page cache did not have, as far as the system says";
    explain.row("send_file", "a thread reads, then send", fetched, fetches);
}
