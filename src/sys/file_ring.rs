//! A ring of io_uring(7) for files alone, beside a selector: its completions make an eventfd
//! readable.
//!
//! The loop never waits in it. Deferred work of the kernel runs at the end of any system call (no
//! `DEFER_TASKRUN`), and the loop reads completions from the mapped queue. So requests in the
//! kernel are answered even if io_uring_enter(2) is denied later.
//!
//! It knows nothing of operations or buffers: the caller of `push` promises that the memory of a
//! request stays valid until the request's completion.

#![allow(unsafe_code)]
//! # Safety
//!
//! Entries are built by the `io-uring` crate; the memory they name is the pusher's promise.

use std::collections::VecDeque;
use std::io;

use io_uring::squeue::{Entry, Flags};
use io_uring::types::{Fd, FsyncFlags};
use io_uring::{EnterFlags, IoUring, opcode};

use crate::sys::fd::RawFd;
use crate::sys::file_request::{Code, EngineRequest, FileCompletion};
use crate::sys::uring::{
    CLAMP, COOP_TASKRUN, CQSIZE, Flag, NO_SQARRAY, SINGLE_ISSUER, TASKRUN_FLAG, check_operations,
    climb, failed, refused, says_no,
};
use crate::sys::wake_fd::WakeFd;

pub(crate) use crate::sys::uring::release;

/// Entries of the submission queue. The completion queue has eight times as many.
const SUBMISSIONS: u32 = 256;
/// The most requests in the ring at a time. With a cancellation for each, they fit into the
/// completion queue, so it never overflows.
const MOST: u32 = 1024;
/// The key of cancellations. They complete only when they fail.
const CANCEL: u64 = u64::MAX;

/// As for the ring of a driver, but without work deferred to the next enter.
const LADDER: &[&[Flag]] = &[
    // 6.6
    &[SINGLE_ISSUER, COOP_TASKRUN, TASKRUN_FLAG, CQSIZE, CLAMP, NO_SQARRAY],
    // 6.0
    &[SINGLE_ISSUER, COOP_TASKRUN, TASKRUN_FLAG, CQSIZE, CLAMP],
    // 5.19
    &[COOP_TASKRUN, TASKRUN_FLAG, CQSIZE, CLAMP],
    // 5.6
    &[CQSIZE, CLAMP],
];

/// The required features; the last came with Linux 5.17.
pub(crate) const FEATURES: &str = "the features NODROP, SUBMIT_STABLE, CQE_SKIP (Linux 5.17)";

/// The required operations.
pub(crate) const OPERATIONS: &[(u8, &str)] = &[
    (opcode::Nop::CODE, "NOP"),
    (opcode::Read::CODE, "READ"),
    (opcode::Write::CODE, "WRITE"),
    (opcode::Readv::CODE, "READV"),
    (opcode::Writev::CODE, "WRITEV"),
    (opcode::Fsync::CODE, "FSYNC"),
    (opcode::AsyncCancel::CODE, "ASYNC_CANCEL"),
];

const REGISTER: &str = "io_uring_register(2)";
const ENTER: &str = "io_uring_enter(2)";

/// Counters since the ring was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FileRingCounters {
    /// Calls of io_uring_enter(2).
    pub(crate) enters: u64,
    /// Requests that the kernel took.
    pub(crate) submitted: u64,
}

/// A ring for files. A child of fork(2) may drop its copy and nothing else.
pub(crate) struct FileRing {
    ring: IoUring,
    event_fd: WakeFd,
    /// The keys of the entries in the submission queue, in order.
    queued: VecDeque<u64>,
    in_kernel: u32,
    most: u32,
    /// The keys of the entries that were queued when the kernel first denied.
    returned: Vec<u64>,
    denied: Option<i32>,
    counters: FileRingCounters,
    setup: String,
}

impl FileRing {
    /// Sets a ring up for the calling thread.
    ///
    /// # Errors
    /// A shortage of the system (descriptors, memory), with the step. `Unsupported`: there is no
    /// io_uring, or it is denied.
    pub(crate) fn open() -> io::Result<FileRing> {
        let (ring, setup) = climb(LADDER, SUBMISSIONS)?;
        let lacking = |step| Err(refused(step, libc::ENOSYS));
        let params = ring.params();
        let has_features = params.is_feature_nodrop()
            && params.is_feature_submit_stable()
            && params.is_feature_skip_cqe_on_success();
        if !has_features {
            return lacking(FEATURES);
        }
        check_operations(&ring, OPERATIONS)?;
        let event_fd = WakeFd::new()?;
        let most = MOST.min(ring.params().cq_entries() / 2);
        let mut this = FileRing {
            ring,
            event_fd,
            queued: VecDeque::new(),
            in_kernel: 0,
            most,
            returned: Vec::new(),
            denied: None,
            counters: FileRingCounters::default(),
            setup,
        };
        // The first submission shows whether the kernel takes others.
        this.queue(0, &opcode::Nop::new().build());
        this.flush();
        let mut taken = Vec::new();
        this.take(&mut taken);
        match (this.denied.take(), &taken[..]) {
            (Some(errno), _) => return Err(failed(ENTER, io::Error::from_raw_os_error(errno))),
            (None, [FileCompletion { result: 0, .. }]) => {}
            (None, [FileCompletion { result, .. }]) => return Err(refused("a NOP", -result)),
            _ => return lacking("a NOP"),
        }
        let registered = this.ring.submitter().register_eventfd(this.event_fd.raw());
        registered.map_err(|error| failed(REGISTER, error))?;
        this.counters = FileRingCounters::default();
        Ok(this)
    }

    /// The flags and the sizes of the ring.
    pub(crate) fn setup(&self) -> &str {
        &self.setup
    }

    /// Whether a thread of the kernel looks for submissions.
    #[cfg(test)]
    pub(crate) fn polls_submissions(&self) -> bool {
        self.ring.params().is_setup_sqpoll()
    }

    /// Becomes readable with each completion. Watch it for edges, and do not read it.
    pub(crate) fn event_fd(&self) -> RawFd {
        self.event_fd.raw()
    }

    /// Whether a request may be pushed.
    #[inline]
    pub(crate) fn has_room(&mut self) -> bool {
        if self.queued.len() + self.in_kernel as usize >= self.most as usize {
            return false;
        }
        if self.ring.submission().is_full() {
            self.flush();
        }
        self.denied.is_none() && !self.ring.submission().is_full()
    }

    /// Requests and cancellations that wait for [`flush`](FileRing::flush).
    #[inline]
    pub(crate) fn queued(&self) -> usize {
        self.queued.len()
    }

    /// Requests that the kernel has, including completions not taken yet.
    #[inline]
    pub(crate) fn in_kernel(&self) -> u32 {
        self.in_kernel
    }

    /// The errno, if the kernel has denied io_uring_enter(2), or had no memory for it while it had
    /// no request. This ring takes no requests any more.
    #[inline]
    pub(crate) fn denied(&self) -> Option<i32> {
        self.denied
    }

    /// The errno, if the ring takes no requests any more because the system was short of something.
    /// Another ring may do.
    pub(crate) fn is_short(&self) -> Option<i32> {
        self.denied.filter(|&errno| !says_no(errno))
    }

    pub(crate) fn counters(&self) -> FileRingCounters {
        self.counters
    }

    /// Queues a request for the next `flush`. There must be room.
    ///
    /// # Safety
    /// The memory that the request names stays valid, and exclusive if the kernel writes to it,
    /// until the completion with its key has been taken, or for ever if the ring is dropped before.
    /// An array of `iovec` stays valid until the request has been submitted.
    #[inline]
    pub(crate) unsafe fn push(&mut self, request: EngineRequest) {
        let EngineRequest { key, code, fd, start, len, offset, .. } = request;
        let (fd, len) = (Fd(fd), u32::try_from(len).unwrap_or(u32::MAX));
        let entry = match code {
            Code::Read => opcode::Read::new(fd, start, len).offset(offset).build(),
            Code::Write => opcode::Write::new(fd, start, len).offset(offset).build(),
            Code::ReadVectored => opcode::Readv::new(fd, start.cast(), len).offset(offset).build(),
            Code::WriteVectored => {
                opcode::Writev::new(fd, start.cast(), len).offset(offset).build()
            }
            Code::Fsync => opcode::Fsync::new(fd).build(),
            Code::Fdsync => opcode::Fsync::new(fd).flags(FsyncFlags::DATASYNC).build(),
            #[cfg(all(test, not(miri)))]
            Code::Poll => opcode::PollAdd::new(fd, libc::POLLIN as u32).build(),
        };
        self.queue(key, &entry);
    }

    /// Cancels a request; its completion tells whether that succeeded.
    pub(crate) fn cancel(&mut self, key: u64) {
        if self.ring.submission().is_full() {
            self.flush();
        }
        if self.denied.is_none() && !self.ring.submission().is_full() {
            let entry = opcode::AsyncCancel::new(key).build().flags(Flags::SKIP_SUCCESS);
            self.queue(CANCEL, &entry);
        }
    }

    #[inline]
    fn queue(&mut self, key: u64, entry: &Entry) {
        let entry = entry.clone().user_data(key);
        // SAFETY: the caller's promise.
        if unsafe { self.ring.submission().push(&entry) }.is_ok() {
            self.queued.push_back(key);
        } else {
            debug_assert!(false, "there is room");
            self.returned.push(key);
        }
    }

    /// Submits the queued requests. A request that the kernel has no memory for stays queued until
    /// another `flush`, which should follow the next completion.
    pub(crate) fn flush(&mut self) {
        while self.denied.is_none() && !self.queued.is_empty() {
            self.counters.enters += 1;
            let (count, mut flags) = (self.queued.len() as u32, EnterFlags::empty());
            if self.ring.submission().cq_overflow() {
                flags |= EnterFlags::GETEVENTS;
            }
            // SAFETY: no argument is passed.
            let answer = unsafe {
                self.ring.submitter().enter::<libc::sigset_t>(count, 0, flags.bits(), None)
            };
            self.note_submitted();
            match answer.map_err(|error| error.raw_os_error().unwrap_or(libc::EIO)) {
                Ok(_) | Err(libc::EINTR) => {}
                Err(libc::EAGAIN | libc::EBUSY | libc::ENOMEM) if self.in_kernel > 0 => return,
                // Denied; or no completion will come after which to try again.
                Err(errno) => self.deny(errno),
            }
        }
    }

    /// Counts the entries that the kernel has taken, as its head of the queue shows.
    fn note_submitted(&mut self) {
        let left = self.ring.submission().len();
        let taken = self.queued.len() - left;
        for key in self.queued.drain(..taken) {
            if key != CANCEL {
                self.in_kernel += 1;
                self.counters.submitted += 1;
            }
        }
    }

    /// Notes that the kernel denies io_uring_enter(2). Queued entries stay in a queue that the
    /// kernel never reads again.
    #[cold]
    fn deny(&mut self, errno: i32) {
        self.denied = Some(errno);
        self.returned.extend(self.queued.drain(..).filter(|&key| key != CANCEL));
    }

    /// Takes the key of a request that the kernel denied.
    pub(crate) fn take_returned(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.returned)
    }

    /// Whether completions are there, without a system call.
    #[inline]
    pub(crate) fn has_completed(&self) -> bool {
        // SAFETY: the completion queue has no other user meanwhile: it is neither shared nor
        // entered.
        !self.returned.is_empty() || unsafe { !self.ring.completion_shared().is_empty() }
    }

    /// Takes the available completions, without a system call.
    #[inline]
    pub(crate) fn take(&mut self, into: &mut Vec<FileCompletion>) {
        for entry in self.ring.completion() {
            let (key, result) = (entry.user_data(), entry.result());
            if key != CANCEL {
                self.in_kernel -= 1;
                into.push(FileCompletion { key, result });
            }
        }
    }
}

/// Why `auto` does not choose a ring for sockets, whether or not the system has one.
pub(crate) const WHY_NOT_FOR_SOCKETS: Option<&str> =
    Some("measured no faster on sockets (PERFORMANCE.md); `DriverKind::Uring` chooses it");
