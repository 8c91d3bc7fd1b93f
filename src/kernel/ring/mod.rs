//! The io_uring kernel of the proactor: it completes reads and writes of streams in the kernel. For
//! all other sources, polls of the ring report readiness. The loop itself moves bulk data of
//! streams, unless the read is multishot (`proactor/started.rs`).
//!
//! ```text
//!   start_recv / start_send ──entry──▶ ring ──one enter per wait──▶ completion ──▶ answer
//!   register ──multishot poll────────▶  │                               └───────▶ event
//! ```
//!
//! The tag of an entry is the name of its source (index and generation) and the purpose of the
//! entry. A completion with a stale name is dropped, and its bytes return to the pool. At most one
//! read and one write of a source are in the kernel.
//!
//! When a process is killed, the requests of its ring outlive it by a moment: the kernel ends them
//! in deferred work, and only then closes listeners and connections. So a process that listens at
//! the same address right after that may get `EADDRINUSE`.

#![allow(unsafe_code)]
//! # Safety
//!
//! (U1) The memory of an operation in the kernel belongs to its slot in the table, which is not
//! vacated before the answer. (U2) Provided buffers are lent by the pool and taken back when the
//! kernel has said that it is done with them, or never.

mod buffer_target;
mod buffers;
mod embedded;
mod files;
mod long_multishot;
mod lost;
mod messages;
mod registered;

use std::cell::OnceCell;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::Arc;

use io_uring::{cqueue, opcode, squeue, types};

use crate::driver::config::Config;
use crate::file::{FileAnswer, FileBackend, FileFacts, FileRequest};
use crate::kernel::quirks::{NO_SQPOLL, Quirk, Quirks};
use crate::kernel::{Answer, Kernel, OsCalls, Started, WAKE};
use crate::memory::aligned::AlignedBuf;
use crate::memory::buf::swap::Pool;
use crate::memory::buf::{Buf, Target};
use crate::memory::leaked::leave_to_kernel;
use crate::sys::Select;
use crate::sys::epoll::Epoll;
use crate::sys::fd::{AsFd, BorrowedFd, RawFd};
use crate::sys::interest::Mode;
use crate::sys::interest::Ready;
use crate::sys::os_errno;
use crate::sys::uring::{Cqe, Uring, release};
use crate::sys::waker::{Wake, WakeFd};
use crate::words::clock;
use crate::words::explain::Explain;
use crate::words::source::{Handle, SourceKind};
use crate::words::table;
use buffers::Buffers;
use embedded::Embedded;
use long_multishot::LongMultishot;
use lost::Lost;
use messages::Messages;
use registered::Registered;

/// The purpose of an entry, in bits 24 to 31 of its tag, above the source's index.
const TAG_SHIFT: u32 = 24;
const TAG_MASK: u64 = 0xff << TAG_SHIFT;
const POLL: u64 = 0;
const POLL_WRITES: u64 = 1 << TAG_SHIFT;
const RECV: u64 = 2 << TAG_SHIFT;
const SEND: u64 = 3 << TAG_SHIFT;
/// Answers to cancels. They come only if the cancel has failed.
const CANCEL: u64 = 4 << TAG_SHIFT;
const CANCEL_SEND: u64 = 5 << TAG_SHIFT;
const CANCEL_POLL: u64 = 6 << TAG_SHIFT;
/// The answer to a cancel of everything.
const RECALL: u64 = 8 << TAG_SHIFT;
/// Work on a file; the rest of the tag names its operation.
const FILE: u64 = 7 << TAG_SHIFT;

/// The conditions that a poll waits for.
const READS: u32 = (libc::POLLIN | libc::POLLPRI | libc::POLLRDHUP) as u32;
const WRITES: u32 = libc::POLLOUT as u32;
const EDGE: u32 = libc::EPOLLET as u32;

#[derive(Default)]
struct RingCounts {
    polls: u64,
    recvs: u64,
    multishot_recvs: u64,
    sends: u64,
    sendmsgs: u64,
    cancels: u64,
    files: u64,
    unaligned: u64,
    starved: u64,
}

/// The system with a ring as its selector, which also completes reads and writes of streams.
pub struct Ring {
    // Dropped first: the kernel cancels what is left in it.
    uring: Uring,
    calls: OsCalls,
    /// Used only to find out at once whether a descriptor can be polled.
    epoll: Epoll,
    waker: Arc<WakeFd>,
    /// None where the kernel cannot consume buffers piece by piece: then reads wait for a poll.
    buffers: Option<Buffers>,
    /// The descriptor that another loop sleeps on, once the program has asked for it.
    embedded: OnceCell<Embedded>,
    events: Vec<Cqe>,
    most_events: usize,
    messages: Messages,
    /// Whether the ring serves work on files.
    serves_files: bool,
    /// The number of file requests that the kernel has.
    files_in_kernel: u32,
    /// The most file requests that one system call submits, see `is_batch`.
    file_batch: u32,
    /// Answers to file requests.
    file_answers: VecDeque<FileAnswer>,
    registered: Registered,
    counts: RingCounts,
    quirks: Quirks,
    long_multishot: LongMultishot,
    lost: Lost,
    buffer_bytes: u32,
}

impl Ring {
    /// Sets the ring up for the calling thread.
    pub(crate) fn new(config: &Config) -> io::Result<Ring> {
        let most_events = config.events_per_wait.clamp(1, 1 << 16);
        let quirks = Quirks::new(release(), &config.quirks)?;
        let uring = Uring::open()?;
        let buffers = match quirks.has(Quirk::WholeBuffers) {
            true => None,
            false => Buffers::new(&uring, config.buffer_size)?,
        };
        let registered = Registered::new(config, &uring);
        clock::start();
        let epoll = Epoll::new(1)?;
        let waker = Arc::new(WakeFd::new()?);
        let mut ring = Ring {
            uring,
            calls: OsCalls::new(),
            epoll,
            waker,
            buffers,
            embedded: OnceCell::new(),
            events: Vec::with_capacity(most_events),
            most_events,
            messages: Messages::default(),
            serves_files: config.file_backend != FileBackend::Pool,
            files_in_kernel: 0,
            file_batch: config.file_batch.max(1),
            file_answers: VecDeque::new(),
            registered,
            counts: RingCounts::default(),
            quirks,
            long_multishot: LongMultishot::default(),
            lost: Lost::default(),
            buffer_bytes: config.buffer_size,
        };
        let fd = ring.waker.raw();
        ring.poll_for(fd, WAKE, READS);
        ring.flush();
        Ok(ring)
    }

    fn poll_for(&mut self, fd: RawFd, tag: u64, conditions: u32) {
        self.counts.polls += 1;
        let poll = opcode::PollAdd::new(types::Fd(fd), conditions | EDGE).multi(true);
        // SAFETY: it names no memory.
        unsafe { self.uring.push(poll.build().user_data(tag)) };
    }

    fn cancel(&mut self, tag: u64) {
        self.counts.cancels += 1;
        let entry = opcode::AsyncCancel::new(tag).build();
        let answer = match tag & TAG_MASK {
            SEND => CANCEL_SEND,
            RECV => CANCEL,
            _ => CANCEL_POLL,
        };
        let quiet = entry.user_data(tag & !TAG_MASK | answer);
        // SAFETY: it names no memory.
        unsafe { self.uring.push(quiet.flags(squeue::Flags::SKIP_SUCCESS)) };
    }

    /// Submits the queued entries. The next `select` takes their completions.
    fn flush(&mut self) {
        // The next wait meets the same error, and reports it.
        let _ = self.uring.enter(None);
        self.recycle_messages();
    }

    /// Wakes the embedding loop, if there is one, because the ring has more to do.
    fn tell_embedder(&self) {
        if let Some(embedded) = self.embedded.get() {
            embedded.tell();
        }
    }

    fn recycle_messages(&mut self) {
        if !self.messages.is_empty() && !self.uring.has_entries() {
            self.messages.recycle();
        }
    }
}

// SAFETY: received bytes are in the memory that `start_recv` was given, or in a provided buffer,
// and the kernel says how much of it it has filled; the attempts are those of `Os`.
unsafe impl Kernel for Ring {
    type Calls = OsCalls;

    const COMPLETES: bool = true;
    const FILES: bool = true;
    const REGISTERS: bool = true;

    fn name(&self) -> &'static str {
        "io_uring"
    }

    fn start(&mut self) -> u32 {
        table::another_start()
    }

    fn select(&mut self, timeout_ns: Option<u64>) -> io::Result<usize> {
        self.events.clear();
        if let Some(embedded) = self.embedded.get_mut() {
            embedded.clear();
        }
        let at_hand = self.uring.has_completions();
        if !at_hand && let Some(buffers) = &mut self.buffers {
            buffers.round();
        }
        if !at_hand || self.uring.has_entries() {
            let wait = if at_hand || timeout_ns == Some(0) { None } else { Some(timeout_ns) };
            self.uring.enter(wait).inspect_err(|_| self.tell_embedder())?;
            self.recycle_messages();
        }
        self.uring.take(&mut self.events, self.most_events);
        // Checked before any completion is used: those behind a lost one may name the wrong bytes.
        if self.uring.has_lost() && !self.lost.is_recovering {
            self.lost.is_recovering = true;
            self.lost.count += 1;
        }
        if self.embedded.get().is_some() && (self.uring.has_completions() || self.uring.has_work())
        {
            self.tell_embedder();
        }
        Ok(self.events.len())
    }

    fn event(&self, i: usize) -> (u64, Ready) {
        let event = self.events[i];
        let key = if event.key == WAKE { WAKE } else { event.key & !TAG_MASK };
        // `answer` has taken every result that is an error, except that of the waker's poll, whose
        // conditions no code reads.
        (key, Ready::from_bits(event.result as u16))
    }

    fn answer(&mut self, i: usize, pool: &mut Pool) -> Option<Answer> {
        let Cqe { key: tag, result, flags } = self.events[i];
        if i == 0
            && let Some(buffers) = &mut self.buffers
        {
            buffers.refill(pool);
        }
        if self.lost.is_recovering && tag != RECALL {
            self.lost.note_other_answer();
        }
        if tag == WAKE {
            if !cqueue::more(flags) && !self.lost.is_recovering {
                let fd = self.waker.raw();
                self.poll_for(fd, WAKE, READS);
            }
            return None;
        }
        let key = tag & !TAG_MASK;
        let mut answer = Answer {
            key,
            write: false,
            moved: result as isize,
            data: Buf::NONE,
            more: cqueue::more(flags),
        };
        match tag & TAG_MASK {
            RECV => {
                if result == -libc::ENOBUFS {
                    self.counts.starved += 1;
                    if let Some(buffers) = &mut self.buffers {
                        buffers.ran_out();
                    }
                }
                if let (Some(buffers), Some(id)) = (&mut self.buffers, cqueue::buffer_select(flags))
                {
                    let len = result.max(0) as u32;
                    let more = cqueue::buffer_more(flags);
                    answer.data = buffers.filled(pool, id, len, more, answer.more);
                    if self.lost.is_recovering {
                        // The receive of these bytes is unknown.
                        answer.data = Buf::NONE;
                        answer.moved = -(libc::EIO as isize);
                    }
                }
                let full = cqueue::sock_nonempty(flags);
                if self.long_multishot.must_restart(tag, full, answer.more)
                    && self.quirks.applies(Quirk::LongMultishot)
                {
                    self.cancel(tag);
                }
            }
            FILE => {
                self.files_in_kernel = self.files_in_kernel.saturating_sub(1);
                self.file_answers.push_back(FileAnswer { key, moved: result as isize });
                answer.key = 0;
            }
            SEND => answer.write = true,
            RECALL => {
                self.lost.note_cancel_all(result);
                answer.key = 0;
            }
            POLL | POLL_WRITES if answer.more => return None,
            POLL | POLL_WRITES if self.lost.is_recovering => answer.moved = Answer::POLL_ENDED,
            // The poll has ended by itself, for example because the completion queue was full.
            POLL | POLL_WRITES if result != -libc::ECANCELED => {
                self.cancel(key | POLL);
                self.cancel(key | POLL_WRITES);
                answer.moved = Answer::POLL_ENDED;
            }
            // The kernel does not find a request that is between two states: we must ask it again
            // (io_uring_cancelation(7)).
            CANCEL | CANCEL_SEND if result == -libc::ENOENT => {
                answer.moved = Answer::NOT_STOPPED;
                answer.write = tag & TAG_MASK == CANCEL_SEND;
            }
            CANCEL | CANCEL_SEND if result == -libc::EALREADY => answer.moved = Answer::STOPPING,
            _ => answer.key = 0,
        }
        Some(answer)
    }

    fn register(&mut self, fd: RawFd, key: u64, writes: bool, again: bool) -> Result<(), i32> {
        // Asks epoll whether the descriptor can be polled, because the ring would answer too late.
        self.calls.counts.register += 2;
        let errno = |error: io::Error| os_errno(&error).unwrap_or(libc::EIO);
        self.epoll.add(fd, 0, Ready::READABLE, Mode::Edge).map_err(errno)?;
        let _ = self.epoll.remove(fd);
        if writes {
            self.poll_for(fd, key | POLL_WRITES, WRITES);
        }
        if !again {
            self.poll_for(fd, key | POLL, READS);
        }
        Ok(())
    }

    fn deregister(&mut self, _fd: RawFd, key: u64) {
        self.cancel(key | POLL);
        self.cancel(key | POLL_WRITES);
        // Submits the cancels now, because a poll keeps the file open.
        self.flush();
    }

    #[inline(always)]
    fn calls(&self) -> &OsCalls {
        &self.calls
    }

    #[inline(always)]
    fn calls_mut(&mut self) -> &mut OsCalls {
        &mut self.calls
    }

    fn waker(&self) -> Arc<dyn Wake> {
        self.waker.clone()
    }

    fn repeats(&mut self, kind: SourceKind) -> bool {
        kind == SourceKind::Stream || !self.quirks.applies(Quirk::UnixMultishot)
    }

    fn sends(&mut self, kind: SourceKind) -> bool {
        kind == SourceKind::Stream || !self.quirks.applies(Quirk::UnixSends)
    }

    unsafe fn start_recv(
        &mut self,
        fd: RawFd,
        key: u64,
        to: Option<Target<'_>>,
        multishot: bool,
        pool: &mut Pool,
    ) -> Started {
        let fd = types::Fd(fd);
        let entry = match to {
            Some(mut to) => {
                self.counts.recvs += 1;
                let len = u32::try_from(to.len()).unwrap_or(u32::MAX);
                opcode::Recv::new(fd, to.as_mut_ptr(), len).build()
            }
            None => {
                let Some(buffers) = &mut self.buffers else {
                    self.quirks.applies(Quirk::WholeBuffers);
                    return Started::No;
                };
                if !buffers.fill(pool) {
                    return if buffers.can_lend(pool) { Started::Starved } else { Started::No };
                }
                if multishot {
                    self.counts.multishot_recvs += 1;
                    opcode::RecvMulti::new(fd, 0).build()
                } else {
                    self.counts.recvs += 1;
                    let recv = opcode::Recv::new(fd, std::ptr::null_mut(), 0).buf_group(0);
                    recv.build().flags(squeue::Flags::BUFFER_SELECT)
                }
            }
        };
        // SAFETY: the caller's promise, or memory that `buffers` has lent to the ring.
        unsafe { self.uring.push(entry.user_data(key | RECV)) };
        Started::Yes
    }

    unsafe fn start_send(&mut self, fd: RawFd, key: u64, parts: &[IoSlice<'_>]) -> Started {
        let fd = types::Fd(fd);
        let flags = libc::MSG_NOSIGNAL;
        let entry = if let [part] = parts {
            self.counts.sends += 1;
            opcode::Send::new(fd, part.as_ptr(), part.len() as u32).flags(flags).build()
        } else {
            self.counts.sendmsgs += 1;
            let header = self.messages.add(parts);
            opcode::SendMsg::new(fd, header).flags(flags as u32).build()
        };
        // SAFETY: the caller's promise; the header stays until the entry is submitted.
        unsafe { self.uring.push(entry.user_data(key | SEND)) };
        Started::Yes
    }

    unsafe fn start_file(&mut self, request: FileRequest<'_>, facts: FileFacts) -> bool {
        // SAFETY: the caller's promise.
        unsafe { self.start_on_file(request, facts) }
    }

    fn file_answer(&mut self) -> Option<FileAnswer> {
        self.file_answers.pop_front()
    }

    fn stop_file(&mut self, key: u64) {
        self.cancel(key | FILE);
    }

    fn stop(&mut self, key: u64, write: bool) {
        self.cancel(key | if write { SEND } else { RECV });
    }

    fn has_lost(&mut self) -> bool {
        self.lost.is_recovering
    }

    fn recall(&mut self) -> bool {
        self.recall_all()
    }

    fn recovered(&mut self, pool: &mut Pool, empty: bool) {
        self.start_over(pool, empty, self.buffer_bytes);
    }

    fn renew(&self, config: &Config) -> io::Result<Ring> {
        let mut ring = Ring::new(config)?;
        ring.calls.inherit(&self.calls)?;
        Ok(ring)
    }

    fn abandon(&mut self) {
        if let Some(buffers) = self.buffers.take() {
            leave_to_kernel(buffers);
        }
        self.messages.abandon();
        self.registered.abandon();
    }

    fn registered_buf(&mut self, len: usize) -> Option<AlignedBuf> {
        self.registered.buf(len)
    }

    fn buffers(&mut self, pool: &mut Pool) -> usize {
        match &mut self.buffers {
            Some(buffers) if buffers.can_lend(pool) => buffers.filled_up(pool),
            _ => pool.available(false),
        }
    }

    fn close(&mut self, fd: RawFd) {
        self.registered.forget(fd, &self.uring);
        self.calls.close(fd);
    }

    fn release(&mut self, fd: RawFd, kind: SourceKind) -> Handle {
        self.registered.forget(fd, &self.uring);
        self.calls.release(fd, kind)
    }

    fn pollable(&self) -> Option<BorrowedFd<'_>> {
        if self.embedded.get().is_none() {
            let _ = self.embedded.set(Embedded::new(&self.uring, &self.waker).ok()?);
        }
        self.embedded.get().map(AsFd::as_fd)
    }

    fn system_calls(&self) -> Vec<(&'static str, u64)> {
        let mut calls = self.calls.named();
        calls.push(("wait", self.uring.enters()));
        calls
    }

    fn explain(&self, explain: &mut Explain) {
        let counts = &self.counts;
        explain.row("wait", "io_uring_enter", self.uring.setup(), self.uring.enters());
        let poll = "what is neither read nor written by the ring is polled by it, edge-triggered";
        explain.row("registration", "POLL_ADD multishot", poll, counts.polls);
        let (recv, why) = match &self.buffers {
            Some(buffers) if buffers.min_left() > 0 => {
                ("RECV", "into provided buffers, piece by piece but for the last sixteenth")
            }
            Some(_) => {
                ("RECV", "into provided buffers that are consumed piece by piece (Linux 6.12)")
            }
            None if self.quirks.has(Quirk::WholeBuffers) => {
                ("poll, then recv", "a quirk, see below")
            }
            None => ("poll, then recv", "the kernel refuses IOU_PBUF_RING_INC (Linux 6.12)"),
        };
        explain.row("stream reads", recv, why, counts.recvs);
        let bulk = "bulk data, unless the read is multishot; and what the ring does not take";
        let by_loop = self.calls.counts.recv + self.calls.counts.send;
        explain.row("stream reads, writes", "recv, send", bulk, by_loop);
        explain.row("stream reads, multishot", recv, why, counts.multishot_recvs);
        let one = "one in the kernel for each source; the loop sends 16 KiB or more itself";
        explain.row("stream writes", "SEND", one, counts.sends);
        let merged = "several queued writes, or a list, in one entry";
        explain.row("stream writes", "SENDMSG", merged, counts.sendmsgs);
        self.calls.explain_batches(explain);
        let by_tag = "by the tag of the entry, never by descriptor";
        explain.row("cancel", "ASYNC_CANCEL", by_tag, counts.cancels);
        let held = self.buffers.as_ref().map_or(0, Buffers::wanted);
        let none = format!("times that the kernel had none left; it is to hold {held} now");
        explain.row("buffers", "the pool", none, counts.starved);
        if counts.unaligned > 0 {
            let unaligned = "memory, offset or length is not aligned as the file requires";
            explain.row("direct reads, writes", "threads", unaligned, counts.unaligned);
        }
        explain.row("submission", "io_uring_enter", NO_SQPOLL, self.uring.enters());
        if self.lost.count > 0 {
            let why = "everything was cancelled; unanswered operations ended with EIO";
            explain.row("completions", "lost by the kernel", why, self.lost.count);
        }
        self.registered.explain(explain);
        self.quirks.explain(explain);
    }
}
