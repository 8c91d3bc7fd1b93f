//! The io_uring kernel of the proactor: it completes reads and writes of streams in the kernel. For
//! all other sources, an epoll set that the ring polls reports readiness. The loop itself moves
//! bulk data of streams, unless the read is multishot (`proactor/started.rs`).
//!
//! ```text
//!   start_recv / start_send ──entry──▶ ring ──one enter per wait──▶ completion ──▶ answer
//!   register ──▶ epoll set ──poll──────▶ │                               └─epoll_wait─▶ event
//! ```
//!
//! The tag of an entry is the name of its source (index and generation) and the purpose of the
//! entry. A completion with a stale name is dropped, and its bytes return to the pool. At most one
//! read and one write of a source are in the kernel.
//!
//! # Why readiness comes from an epoll set
//!
//! A poll of the ring holds the file of its source. When a process is killed, the kernel ends the
//! requests of its ring in deferred work, some 6 to 13 ms after the process has ended, and only
//! then closes the listener: a server that is restarted at once got `EADDRINUSE`. A set of epoll
//! holds no file. Also, 200 sources that are ready are 200 items of deferred work for polls of the
//! ring, and one for the set.
//!
//! # Why a wait may enter several times
//!
//! An enter runs at most 20 items of deferred work (`IO_LOCAL_TW_DEFAULT_MAX`), and leaves the rest
//! to the next one. The driver judges deadlines when a wait has found fewer events than it takes.
//! So a wait goes on while the ring says that there is work.

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
mod messages;
mod recall;
mod registered;

use std::cell::OnceCell;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::Arc;

use io_uring::{cqueue, opcode, squeue, types};

use crate::driver::config::Config;
use crate::file::{FileAnswer, FileBackend, FileFacts, FileRequest};
use crate::kernel::os::add_to;
use crate::kernel::quirks::{NO_SQPOLL, Quirk, Quirks};
use crate::kernel::{Answer, AnswerKind, Kernel, OsCalls, Started, WAKE};
use crate::memory::aligned::AlignedBuf;
use crate::memory::buf::swap::Pool;
use crate::memory::buf::{Buf, Target};
use crate::memory::leaked::leave_to_kernel;
use crate::sys::Select;
use crate::sys::epoll::Epoll;
use crate::sys::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use crate::sys::interest::Ready;
use crate::sys::uring::{Cqe, Uring, release};
use crate::sys::waker::{Wake, WakeFd};
use crate::words::clock;
use crate::words::explain::Explain;
use crate::words::source::{Handle, SourceKind};
use crate::words::table;
use buffers::Buffers;
use embedded::Embedded;
use long_multishot::LongMultishot;
use messages::Messages;
use recall::Recall;
use registered::Registered;

/// A wait enters at least so often while there is work that posts no completion.
const LEAST_ENTERS: usize = 64;

/// The purpose of an entry, in bits 24 to 31 of its tag, above the source's index.
const TAG_SHIFT: u32 = 24;
const TAG_MASK: u64 = 0xff << TAG_SHIFT;
/// Readiness, from the set: no entry has this tag.
const READY: u64 = 0;
const RECV: u64 = 2 << TAG_SHIFT;
const SEND: u64 = 3 << TAG_SHIFT;
/// Answers to cancels. They come only if the cancel has failed.
const CANCEL: u64 = 4 << TAG_SHIFT;
const CANCEL_SEND: u64 = 5 << TAG_SHIFT;
/// Work on a file; the rest of the tag names its operation.
const FILE: u64 = 7 << TAG_SHIFT;
/// A read that makes the kernel give a buffer back. It is of no source.
const RECALL: u64 = 8 << TAG_SHIFT;

/// The key of the poll of the set of epoll.
const SET: u64 = u64::MAX - 2;
/// The ring polls only what reports by becoming readable: the set, and the waker.
const READS: u32 = libc::POLLIN as u32 | libc::EPOLLET as u32;
/// The flag of an event of the set, which says that its poll goes on.
const GOES_ON: u32 = 1 << 1;

#[derive(Default)]
struct RingCounts {
    registered: u64,
    looks: u64,
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
    /// The sources whose readiness is reported.
    set: Epoll,
    /// The set may have events that were not taken.
    set_has_events: bool,
    waker: Arc<WakeFd>,
    /// None where the kernel cannot consume buffers piece by piece: then reads wait for a poll.
    buffers: Option<Buffers>,
    recall: Recall,
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
        let set = Epoll::new(most_events)?;
        let waker = Arc::new(WakeFd::new()?);
        let mut ring = Ring {
            uring,
            calls: OsCalls::new(),
            set,
            set_has_events: false,
            waker,
            buffers,
            recall: Recall::default(),
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
        };
        ring.poll_for(ring.waker.raw(), WAKE);
        ring.poll_for(ring.set.as_fd().as_raw_fd(), SET);
        ring.flush();
        Ok(ring)
    }

    fn poll_for(&mut self, fd: RawFd, key: u64) {
        let poll = opcode::PollAdd::new(types::Fd(fd), READS).multi(true);
        // SAFETY: it names no memory.
        unsafe { self.uring.push(poll.build().user_data(key)) };
    }

    fn cancel(&mut self, tag: u64) {
        self.counts.cancels += 1;
        let entry = opcode::AsyncCancel::new(tag).build();
        let answer = if tag & TAG_MASK == SEND { CANCEL_SEND } else { CANCEL };
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

    /// Takes completions, until there are none or as many as one wait takes, and events of the set,
    /// at most as many again.
    fn take_events(&mut self) -> io::Result<()> {
        let (mut over, mut is_less) = ([false; 2], false);
        for _ in 0..self.most_events.max(LEAST_ENTERS) {
            let (events, has_events) = (&mut self.events, &mut self.set_has_events);
            self.uring.take(self.most_events - events.len(), |cqe| {
                if cqe.key < SET {
                    return events.push(cqe);
                }
                *has_events |= cqe.key == SET;
                is_less |= cqe.key == SET;
                over[usize::from(cqe.key == SET)] |= !cqueue::more(cqe.flags);
                if cqe.key == WAKE {
                    events.push(cqe);
                }
            });
            if self.events.len() == self.most_events {
                break;
            }
            // The poll of the set has taken the place of an event.
            if std::mem::take(&mut is_less) {
                continue;
            }
            if !self.uring.has_work() {
                break;
            }
            self.uring.enter(None)?;
        }
        if over[0] {
            self.poll_for(self.waker.raw(), WAKE);
        }
        if over[1] {
            self.poll_for(self.set.as_fd().as_raw_fd(), SET);
        }
        // Streams that always have completions must not keep readiness away.
        if self.set_has_events { self.take_events_of_set() } else { Ok(()) }
    }

    /// # Errors
    /// `EBADR`: the kernel has lost a completion. Some operations may never be answered, and the
    /// bytes behind a lost answer may be others than it says, so no answer is used any more.
    #[inline]
    fn check_lost(&mut self) -> io::Result<()> {
        if self.uring.has_lost() { Err(io::Error::from_raw_os_error(libc::EBADR)) } else { Ok(()) }
    }

    #[inline(never)]
    fn take_events_of_set(&mut self) -> io::Result<()> {
        self.counts.looks += 1;
        let count = self.set.select(Some(0))?;
        self.set_has_events = count == self.most_events;
        for i in 0..count {
            let (key, ready) = self.set.event(i);
            self.events.push(Cqe { key, result: ready.bits().into(), flags: GOES_ON });
        }
        Ok(())
    }

    /// Wakes the embedding loop, if there is one, if the ring has more to do.
    fn tell_embedder(&mut self) {
        if let Some(embedded) = self.embedded.get()
            && (self.set_has_events || self.uring.has_completions() || self.uring.has_work())
        {
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
        self.check_lost()?;
        if let Some(embedded) = self.embedded.get_mut() {
            embedded.clear();
        }
        let has_completions = self.uring.has_completions();
        if !has_completions && let Some(buffers) = &mut self.buffers {
            buffers.round();
        }
        let at_hand = has_completions || self.set_has_events;
        if !at_hand || self.uring.has_entries() {
            let wait = if at_hand || timeout_ns == Some(0) { None } else { Some(timeout_ns) };
            self.uring.enter(wait).inspect_err(|_| self.tell_embedder())?;
            self.recycle_messages();
        }
        let taken = self.take_events();
        self.tell_embedder();
        self.check_lost()?;
        // The next wait meets the same error.
        if self.events.is_empty() { taken.map(|()| 0) } else { Ok(self.events.len()) }
    }

    fn event(&self, i: usize) -> (u64, Ready) {
        let event = self.events[i];
        // `answer` has taken all others. No code reads the conditions of the waker.
        (event.key, Ready::from_bits(event.result as u16))
    }

    fn answer(&mut self, i: usize, pool: &mut Pool) -> Option<Answer> {
        let Cqe { key: tag, result, flags } = self.events[i];
        if i == 0
            && let Some(buffers) = &mut self.buffers
        {
            buffers.refill(pool);
        }
        if tag & TAG_MASK == READY || tag == WAKE {
            return None;
        }
        let key = tag & !TAG_MASK;
        let mut answer = Answer {
            key,
            write: false,
            kind: AnswerKind::Moved(result as isize),
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
                }
                let full = cqueue::sock_nonempty(flags);
                if self.long_multishot.must_restart(tag, full, answer.more)
                    && self.quirks.applies(Quirk::LongMultishot)
                {
                    self.cancel(tag);
                }
            }
            RECALL => {
                self.recall.end(result > 0);
                let Some(buffers) = &mut self.buffers else { return Some(answer) };
                if result <= 0 {
                    buffers.recall_failed();
                }
                if let Some(id) = cqueue::buffer_select(flags) {
                    let more = cqueue::buffer_more(flags);
                    drop(buffers.filled(pool, id, result.max(0) as u32, more, false));
                }
            }
            FILE => {
                self.files_in_kernel = self.files_in_kernel.saturating_sub(1);
                self.file_answers.push_back(FileAnswer { key, moved: result as isize });
                answer.key = 0;
            }
            SEND => answer.write = true,
            // The kernel does not find a request that is between two states: we must ask it again
            // (io_uring_cancelation(7)).
            CANCEL | CANCEL_SEND if result == -libc::ENOENT => {
                answer.kind = AnswerKind::NotStopped;
                answer.write = tag & TAG_MASK == CANCEL_SEND;
            }
            CANCEL | CANCEL_SEND if result == -libc::EALREADY => {
                answer.kind = AnswerKind::Stopping;
            }
            _ => answer.key = 0,
        }
        Some(answer)
    }

    fn register(&mut self, fd: RawFd, key: u64, writes: bool) -> Result<(), i32> {
        self.counts.registered += 1;
        add_to(&mut self.set, fd, key, writes, &mut self.calls.counts.register)
    }

    fn deregister(&mut self, fd: RawFd, _key: u64) {
        self.calls.counts.register += 1;
        // ENOENT and EBADF: the registration is gone already.
        let _ = self.set.remove(fd);
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

    fn recall_buffer(&mut self, _: &mut Pool) {
        let Some(buffers) = &self.buffers else { return };
        if buffers.can_recall() && self.recall.begin(&mut self.uring) {
            self.flush();
            self.tell_embedder();
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
        calls.push(("epoll_wait", self.counts.looks));
        calls
    }

    fn explain(&self, explain: &mut Explain) {
        let counts = &self.counts;
        explain.row("wait", "io_uring_enter", self.uring.setup(), self.uring.enters());
        let why =
            "edge-triggered, for what the ring neither reads nor writes; the ring polls the set";
        explain.row("registration", "epoll", why, counts.registered);
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
        if self.recall.count > 0 {
            let why = "the loop needed a buffer while the kernel held all that were free";
            explain.row("buffers that come back", "READ of /dev/zero", why, self.recall.count);
        }
        explain.row("submission", "io_uring_enter", NO_SQPOLL, self.uring.enters());
        self.registered.explain(explain);
        self.quirks.explain(explain);
    }
}
