//! A ring of io_uring(7) for files alone, beside a selector: its completions make an eventfd readable.
//!
//! It is never waited in. What the kernel puts off runs at the end of any system call (no
//! `DEFER_TASKRUN`), and completions are taken where the kernel maps them: what is in the kernel is
//! answered also where io_uring_enter(2) is denied from some time on.
//!
//! It knows nothing of operations or buffers: whoever pushes a request promises that the memory which
//! the request names stays what it is until the request's completion.

#![allow(unsafe_code)]
//! # Safety
//!
//! Entries are built by the `io-uring` crate; the memory they name is the pusher's promise.

use std::collections::VecDeque;
use std::io;

use io_uring::register::Probe;
use io_uring::squeue::{Entry, Flags};
use io_uring::types::{Fd, FsyncFlags};
use io_uring::{EnterFlags, IoUring, opcode};

use crate::sys::fd::RawFd;
use crate::sys::file_request::{Code, Completed, Request};
use crate::sys::uring::{
    CLAMP, COOP_TASKRUN, CQSIZE, Flag, NO_SQARRAY, Refused, SINGLE_ISSUER, TASKRUN_FLAG, climb,
    judge, judge_probe,
};
use crate::sys::wake_fd::WakeFd;

pub(crate) use crate::sys::uring::release;

/// Entries of the submission queue. The completion queue has eight times as many.
const SUBMISSIONS: u32 = 256;
/// Requests that may be in the ring at a time: with a cancellation for each they fit into the completion
/// queue, which so never overflows.
const MOST: u32 = 1024;
/// The key of cancellations. They are answered only when they fail.
const CANCEL: u64 = u64::MAX;

/// As for the ring of a driver, but nothing is deferred to the next enter.
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

/// The features that are asked for; the last came with Linux 5.17.
pub(crate) const FEATURES: &str = "the features NODROP, SUBMIT_STABLE, CQE_SKIP (Linux 5.17)";

/// The operations that are used.
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

/// What has been done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    /// Calls of io_uring_enter(2).
    pub(crate) enters: u64,
    /// Requests that it took.
    pub(crate) submitted: u64,
}

/// A ring for files. A child of fork(2) may drop its copy and nothing else.
pub(crate) struct FileRing {
    ring: IoUring,
    event_fd: WakeFd,
    /// What the submission queue holds, by key, in its order.
    queued: VecDeque<u64>,
    in_kernel: u32,
    most: u32,
    /// What was queued when the kernel began to deny.
    returned: Vec<u64>,
    denied: Option<i32>,
    counters: Counters,
    setup: String,
}

impl FileRing {
    /// Sets a ring up for the calling thread.
    ///
    /// # Errors
    /// With the step: the system is short of something (descriptors, memory). That io_uring is not there,
    /// or denied, is an answer and no error.
    pub(crate) fn open() -> io::Result<Result<FileRing, Refused>> {
        let (ring, setup) = match climb(LADDER, SUBMISSIONS)? {
            Ok(found) => found,
            Err(refused) => return Ok(Err(refused)),
        };
        let lacking = |step| Ok(Err(Refused::new(step, libc::ENOSYS)));
        let params = ring.params();
        let has_features = params.is_feature_nodrop()
            && params.is_feature_submit_stable()
            && params.is_feature_skip_cqe_on_success();
        if !has_features {
            return lacking(FEATURES);
        }
        let mut probe = Probe::new();
        if let Err(error) = ring.submitter().register_probe(&mut probe) {
            return judge_probe(error).map(Err);
        }
        if let Some((_, name)) = OPERATIONS.iter().find(|(code, _)| !probe.is_supported(*code)) {
            return lacking(name);
        }
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
            counters: Counters::default(),
            setup,
        };
        // A submission tells whether there may be others.
        this.queue(0, &opcode::Nop::new().build());
        this.flush();
        let mut taken = Vec::new();
        this.take(&mut taken);
        match (this.denied.take(), &taken[..]) {
            (Some(errno), _) => {
                let error = io::Error::from_raw_os_error(errno);
                return judge(ENTER, error).map(Err);
            }
            (None, [Completed { result: 0, .. }]) => {}
            (None, [Completed { result, .. }]) => return Ok(Err(Refused::new("a NOP", -result))),
            _ => return lacking("a NOP"),
        }
        if let Err(error) = this.ring.submitter().register_eventfd(this.event_fd.raw()) {
            return judge(REGISTER, error).map(Err);
        }
        this.counters = Counters::default();
        Ok(Ok(this))
    }

    /// Its flags and sizes.
    pub(crate) fn setup(&self) -> &str {
        &self.setup
    }

    /// Whether a thread of the kernel looks for submissions.
    #[cfg(test)]
    pub(crate) fn polls_submissions(&self) -> bool {
        self.ring.params().is_setup_sqpoll()
    }

    /// Becomes readable with each completion; it is to be watched for edges and not to be read.
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

    /// Requests that wait for [`flush`](FileRing::flush), and cancellations.
    #[inline]
    pub(crate) fn queued(&self) -> usize {
        self.queued.len()
    }

    /// Requests that the kernel has: those whose completions have not been taken from it.
    #[inline]
    pub(crate) fn in_kernel(&self) -> u32 {
        self.in_kernel
    }

    /// The errno with which the kernel has refused to take more, if it has: for good.
    #[inline]
    pub(crate) fn denied(&self) -> Option<i32> {
        self.denied
    }

    pub(crate) fn counters(&self) -> Counters {
        self.counters
    }

    /// Queues a request for the next `flush`; there is room.
    ///
    /// # Safety
    /// The memory that it names stays what it is, and nobody's else if it is read into, until the
    /// completion with its key has been taken, or for ever if the ring is dropped before. An array of
    /// `iovec` stays until the request has been submitted.
    #[inline]
    pub(crate) unsafe fn push(&mut self, request: Request) {
        let Request { key, code, fd, start, len, offset, .. } = request;
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

    /// Asks for the end of a request; its completion tells.
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
        // SAFETY: promised by whoever pushes it.
        if unsafe { self.ring.submission().push(&entry) }.is_ok() {
            self.queued.push_back(key);
        } else {
            debug_assert!(false, "there is room");
            self.returned.push(key);
        }
    }

    /// Submits what is queued. What the kernel has no memory for stays queued until another `flush`, for
    /// which the next completion is the time.
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
                Err(libc::EAGAIN | libc::EBUSY) if self.in_kernel > 0 => return,
                // Denied; or there is no completion to come that would be the time to try again.
                Err(errno) => self.deny(errno),
            }
        }
    }

    /// The kernel's head says what it has taken.
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

    /// What is queued stays in a queue that the kernel never looks at again.
    #[cold]
    fn deny(&mut self, errno: i32) {
        self.denied = Some(errno);
        self.returned.extend(self.queued.drain(..).filter(|&key| key != CANCEL));
    }

    /// Takes what the kernel has denied to take.
    pub(crate) fn take_returned(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.returned)
    }

    /// Whether there is something to take, without asking the kernel.
    #[inline]
    pub(crate) fn has_completed(&self) -> bool {
        // SAFETY: nobody else looks at the completion queue meanwhile: it is neither shared nor entered.
        !self.returned.is_empty() || unsafe { !self.ring.completion_shared().is_empty() }
    }

    /// Takes the completions that are there, without a system call.
    #[inline]
    pub(crate) fn take(&mut self, into: &mut Vec<Completed>) {
        for entry in self.ring.completion() {
            let (key, result) = (entry.user_data(), entry.result());
            if key != CANCEL {
                self.in_kernel -= 1;
                into.push(Completed { key, result });
            }
        }
    }
}

/// Why a ring is not chosen for sockets where nobody has chosen: it cannot be had (the smallest is made, and
/// goes), or it is not worth it.
pub(crate) fn why_not_for_sockets() -> Option<String> {
    let why = match climb(&[&[]], 1) {
        Ok(Ok(_)) => "it is there, but no faster on sockets: measured, PERFORMANCE.md".to_owned(),
        Ok(Err(refused)) => refused.to_string(),
        Err(error) => format!("io_uring is not available: io_uring_setup(2): {error}"),
    };
    Some(why)
}
