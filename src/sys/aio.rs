//! A context of Linux AIO (io_setup(2)): reads, writes and syncs of files that complete in a ring
//! which the kernel maps into the process, and make an eventfd readable.
//!
//! It knows nothing of operations or buffers: the caller of a push promises that the memory which
//! the request names stays valid until the request's completion.
//!
//! # What the kernel does (fs/aio.c, 4.18 on)
//!
//! - io_submit(2) runs each request as far as it goes without waiting for the device. It runs
//!   buffered I/O to its end, and so a direct write that extends the file or fills a hole: then the
//!   call blocks. Truly asynchronous are direct reads, direct writes of blocks that exist, and
//!   syncs, which a kernel thread makes.
//! - A request that is wrong in itself makes io_submit(2) fail if it is the first of the list, and
//!   return a short count otherwise: `EBADF` (closed, or not open for it), `EINVAL` (code, flags,
//!   reserved fields, a file without that operation), `EOPNOTSUPP` (an RWF flag that the kernel or
//!   the file does not know), `EFAULT` (an array of vectors out of reach), `EOVERFLOW` and `EINVAL`
//!   (the offset). Errors of the file system come as completions: `EINVAL` (not aligned for direct
//!   I/O), `EAGAIN` (`RWF_NOWAIT` would have to wait), `EIO`, `ENOSPC`.
//! - So `EAGAIN` of io_submit(2) is never a request's answer: there is no slot in the context, or
//!   no memory for one.
//! - io_cancel(2) finds only requests that named a function to cancel them: polls and a USB
//!   gadget's. For files it fails with `EINVAL`, and the request's answer comes through the ring in
//!   any case. So it is not used.

#![allow(unsafe_code)]
//! # Safety
//!
//! The mapped ring belongs to the context, which lives as long as [`Aio`]. The memory that requests
//! name is the pusher's promise.

use std::fmt;
use std::io;

use super::aio_abi::{AioRing, IoEvent, Iocb, SIGNALLED};
pub(crate) use crate::sys::file_request::{EngineRequest, FileCompletion};

use crate::sys::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use crate::sys::target::Target;
use crate::sys::{Moved, cvt, descriptor, fork, syscall};

/// `RWF_NOWAIT`: what would have to wait ends with `EAGAIN`.
pub(crate) const NOWAIT: u32 = libc::RWF_NOWAIT as u32;
/// The smallest context that is tried when `fs.aio-max-nr` is nearly used up.
const LEAST: u32 = 32;
/// The largest that is asked for: sixteen times the usual `fs.aio-max-nr`, and within what the
/// kernel takes for sane (4 Mi).
const MOST: u32 = 1 << 20;

/// Linux AIO does not exist here, or is denied: the step that failed, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AioRefused {
    pub(crate) step: &'static str,
    /// `EAGAIN`: `fs.aio-max-nr` is used up. Otherwise Linux AIO does not exist, or is denied.
    pub(crate) errno: i32,
    /// Only with `EAGAIN`.
    pub(crate) limits: Option<Limits>,
}

impl fmt::Display for AioRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let error = io::Error::from_raw_os_error(self.errno);
        write!(f, "Linux AIO is not available: {}: {error}", self.step)?;
        self.limits.map_or(Ok(()), |limits| write!(f, "; {limits}"))
    }
}

impl std::error::Error for AioRefused {}

impl From<AioRefused> for io::Error {
    fn from(refused: AioRefused) -> io::Error {
        let error = io::Error::from_raw_os_error(refused.errno);
        match refused.limits {
            Some(limits) => crate::sys::step::at_limit(refused.step, error, limits.to_string()),
            None => crate::sys::step::at(refused.step, error),
        }
    }
}

/// What all contexts of the system together may ask for, and have asked for, in requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) most: u64,
    pub(crate) used: u64,
}

impl Limits {
    fn read() -> Option<Limits> {
        let number = |path| std::fs::read_to_string(path).ok()?.trim().parse().ok();
        let most = number("/proc/sys/fs/aio-max-nr")?;
        Some(Limits { most, used: number("/proc/sys/fs/aio-nr")? })
    }
}

impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "fs.aio-max-nr is {}, fs.aio-nr {}", self.most, self.used)
    }
}

/// The counts so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AioCounters {
    /// Calls of io_submit(2).
    pub(crate) submits: u64,
    /// Requests that it took.
    pub(crate) submitted: u64,
    /// Requests that io_submit(2) has refused: they failed.
    pub(crate) failed: u64,
    /// Completions read in the mapped ring.
    pub(crate) in_ring: u64,
    /// Calls of io_getevents(2).
    pub(crate) getevents: u64,
}

/// A context. A child of fork(2) inherits the mapped ring, which stays shared, but not the context:
/// there it may be dropped and nothing else, or it steals the parent's completions.
pub(crate) struct Aio {
    context: usize,
    /// `None` if the ring must not be read here: then io_getevents(2) is called.
    ring: Option<AioRing>,
    event_fd: OwnedFd,
    entries: u32,
    queued: Vec<Iocb>,
    /// The addresses of `queued`, while these are submitted.
    addresses: Vec<*mut Iocb>,
    /// Completions of requests that the kernel has refused at submission, and completions that were
    /// taken from the ring to make room in it.
    ended: Vec<FileCompletion>,
    in_kernel: u32,
    /// The events of taken completions that the eventfd counts now or will count, less those that
    /// were read from it.
    untold: i64,
    denied: Option<i32>,
    counters: AioCounters,
    setup: String,
    forks: u32,
}

// SAFETY: a context belongs to the process, not to a thread; `addresses` is empty between calls.
unsafe impl Send for Aio {}

impl Aio {
    /// Sets a context up for so many requests at a time, or for fewer (never less than 32) when
    /// `fs.aio-max-nr` or memory is short.
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE`, `ENOMEM`: the system is short of something. That Linux AIO is not there,
    /// or denied, or that other contexts have taken all of `fs.aio-max-nr`, is an answer and no
    /// error.
    pub(crate) fn open(entries: u32) -> io::Result<Result<Aio, AioRefused>> {
        Aio::open_between(entries.clamp(LEAST, MOST), LEAST)
    }

    /// As [`open`](Aio::open), but for no fewer requests.
    pub(crate) fn open_exactly(entries: u32) -> io::Result<Result<Aio, AioRefused>> {
        let entries = entries.clamp(LEAST, MOST);
        Aio::open_between(entries, entries)
    }

    fn open_between(asked: u32, least: u32) -> io::Result<Result<Aio, AioRefused>> {
        // A test of io_destroy(2): if it is denied, contexts would pile up.
        let answer = syscall!(destroy(0));
        if answer != -(libc::EINVAL as Moved) {
            return judge("io_destroy(2)", -answer as i32).map(Err);
        }
        // SAFETY: no memory is passed.
        let fd = cvt!(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
        // SAFETY: a fresh descriptor without another owner.
        let event_fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let (context, entries) = match set_up(asked, least)? {
            Ok(found) => found,
            Err(refused) => return Ok(Err(refused)),
        };
        fork::watch();
        let ring = AioRing::of(context);
        let mut aio = Aio {
            context,
            ring,
            event_fd,
            entries,
            queued: Vec::with_capacity(entries as usize),
            addresses: Vec::with_capacity(entries as usize),
            ended: Vec::new(),
            in_kernel: 0,
            untold: 0,
            denied: None,
            counters: AioCounters::default(),
            setup: describe(asked, entries, ring.is_some()),
            forks: fork::generation(),
        };
        // A test of io_submit(2): an empty submission tells whether it is denied.
        if let answer @ ..0 = aio.submit(0) {
            return judge("io_submit(2)", -answer as i32).map(Err);
        }
        if let (None, answer @ ..0) = (ring, aio.get_events(&mut [IoEvent::NONE])) {
            return judge("io_getevents(2)", -answer as i32).map(Err);
        }
        aio.counters = AioCounters::default();
        Ok(Ok(aio))
    }

    /// Requests that may be queued and in the kernel at a time.
    pub(crate) fn entries(&self) -> u32 {
        self.entries
    }

    /// The context's size, why it differs from the requested one, and how completions are taken.
    pub(crate) fn setup(&self) -> &str {
        &self.setup
    }

    /// Whether a request may be pushed. More do no harm, but wait for the context to have room.
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        self.queued.len() + (self.in_kernel as usize) < self.entries as usize
    }

    /// Requests that the kernel has: those whose completions have not been taken from it.
    #[inline]
    pub(crate) fn in_kernel(&self) -> u32 {
        self.in_kernel
    }

    /// Requests that wait for [`flush`](Aio::flush).
    #[inline]
    pub(crate) fn queued(&self) -> usize {
        self.queued.len()
    }

    /// The errno, if io_submit(2) was denied after the context was opened.
    #[inline]
    pub(crate) fn denied(&self) -> Option<i32> {
        self.denied
    }

    pub(crate) fn counters(&self) -> AioCounters {
        self.counters
    }

    /// Queues a request for the next `flush`.
    ///
    /// # Safety
    /// The memory that the request names stays valid until the completion with its key has been
    /// taken, or for ever if the context is dropped before. No other code uses memory that a
    /// request reads into. An array of `iovec` stays until it has been submitted.
    #[inline]
    pub(crate) unsafe fn push(&mut self, request: EngineRequest) {
        self.queued.push(Iocb {
            data: request.key,
            key: 0,
            rw_flags: request.rw_flags,
            code: request.code as u16,
            priority: 0,
            fd: request.fd as u32,
            start: request.start.expose_provenance() as u64,
            len: request.len as u64,
            offset: request.offset as i64,
            reserved: 0,
            flags: SIGNALLED,
            event_fd: self.event_fd.as_raw_fd() as u32,
        });
    }

    /// Submits the queued requests. If the kernel refuses one, that one fails, and only that one.
    /// Requests for which the context has no room stay queued until another `flush`: the next
    /// completion is the time for it.
    ///
    /// Blocks for as long as the kernel does: see above.
    #[inline(always)]
    pub(crate) fn flush(&mut self) {
        if !self.queued.is_empty() {
            self.submit_queued();
        }
    }

    #[inline(never)]
    fn submit_queued(&mut self) {
        let start = self.queued.as_mut_ptr();
        // SAFETY: each is one of the queue's elements.
        self.addresses.extend((0..self.queued.len()).map(|i| unsafe { start.add(i) }));
        let mut done = 0;
        while done < self.queued.len() {
            match self.submit(done) {
                count @ 1.. => {
                    done += count as usize;
                    self.in_kernel += count as u32;
                    self.counters.submitted += count as u64;
                }
                answer if answer == -(libc::EINTR as Moved) => {}
                // No slot, or no memory for one. (Never nothing without an error.)
                answer if answer == -(libc::EAGAIN as Moved) || answer == 0 => {
                    let mut ended = std::mem::take(&mut self.ended);
                    let taken = self.reap(&mut ended);
                    self.ended = ended;
                    if taken > 0 {
                        continue;
                    }
                    if self.in_kernel > 0 {
                        break;
                    }
                    // No completion will come after which this request could be tried again.
                    self.fail(done, -libc::EAGAIN);
                    done += 1;
                }
                answer => {
                    if matches!(-answer as i32, libc::EPERM | libc::ENOSYS) {
                        self.denied = Some(-answer as i32);
                    }
                    self.fail(done, answer as i32);
                    done += 1;
                }
            }
        }
        self.addresses.clear();
        self.queued.drain(..done);
    }

    /// Takes a request back that is still queued: it ends with `ECANCELED`. False if the kernel has
    /// it.
    pub(crate) fn withdraw(&mut self, key: u64) -> bool {
        let Some(at) = self.queued.iter().position(|iocb| iocb.data == key) else { return false };
        self.queued.remove(at);
        self.ended.push(FileCompletion { key, result: -libc::ECANCELED });
        true
    }

    /// Drops the queued requests. Returns their keys.
    pub(crate) fn forget_queued(&mut self) -> impl Iterator<Item = u64> + '_ {
        self.queued.drain(..).map(|iocb| iocb.data)
    }

    /// Ends a queued request that the kernel would not take.
    #[cold]
    fn fail(&mut self, at: usize, result: i32) {
        self.ended.push(FileCompletion { key: self.queued[at].data, result });
        self.counters.failed += 1;
    }

    /// Calls io_submit(2) for the queue's addresses but the first `done`.
    fn submit(&mut self, done: usize) -> Moved {
        let list = &self.addresses[done..];
        self.counters.submits += 1;
        // SAFETY: the list names elements of the queue, to which there is no reference; the memory
        // that they name is the pusher's promise.
        syscall!(unsafe {
            libc::syscall(libc::SYS_io_submit, self.context, list.len(), list.as_ptr())
        })
    }

    /// Whether completions can be taken without asking the kernel. Where the ring is not read here,
    /// only the kernel knows of others.
    #[inline]
    pub(crate) fn has_completed(&self) -> bool {
        !self.ended.is_empty() || self.ring.as_ref().is_some_and(|ring| !ring.is_empty())
    }

    /// Makes the eventfd readable if there are completions that it does not tell of.
    #[inline]
    pub(crate) fn tell(&mut self) {
        if !self.ended.is_empty() {
            self.tell_of_ended();
        }
    }

    #[cold]
    fn tell_of_ended(&mut self) {
        let one = 1u64.to_ne_bytes();
        // The write fails only at 2^64 - 1, when the eventfd is readable anyway.
        if descriptor::write(self.event_fd.as_raw_fd(), &one) > 0 {
            self.untold += 1;
        }
    }

    /// Reads the eventfd, unless it can report only completions that are not taken yet. True if it
    /// was read: then completions must be taken once more, because the eventfd may have reported
    /// them.
    #[inline]
    pub(crate) fn quiet(&mut self) -> bool {
        self.untold > 0 && self.read_event_fd()
    }

    fn read_event_fd(&mut self) -> bool {
        let mut told = [0u8; 8];
        let to = Target::from_slice(&mut told);
        if descriptor::read(self.event_fd.as_raw_fd(), to) <= 0 {
            return false;
        }
        self.untold = self.untold.wrapping_sub_unsigned(u64::from_ne_bytes(told));
        true
    }

    /// Waits until the eventfd is readable, the time has passed, or a signal came, and reads it.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(crate) fn wait(&mut self, timeout_ns: Option<u64>) -> io::Result<()> {
        let fd = self.event_fd.as_raw_fd();
        let mut entry = descriptor::PollFd { fd, events: libc::POLLIN, revents: 0 };
        let timeout = timeout_ns.map(descriptor::timespec);
        let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: one entry; a time that lives across the call, or none; no mask.
        let answer = syscall!(unsafe { libc::ppoll(&mut entry, 1, timeout, std::ptr::null()) });
        match -answer as i32 {
            errno if answer < 0 && errno != libc::EINTR => {
                Err(crate::sys::step::at("ppoll(2)", io::Error::from_raw_os_error(errno)))
            }
            _ => {
                self.read_event_fd();
                Ok(())
            }
        }
    }

    /// Takes the completions that are there, without a system call where the ring is read here.
    #[inline]
    pub(crate) fn take(&mut self, into: &mut Vec<FileCompletion>) {
        into.append(&mut self.ended);
        self.reap(into);
    }

    /// Takes completions from the kernel. Returns their number.
    #[inline]
    fn reap(&mut self, into: &mut Vec<FileCompletion>) -> u32 {
        if self.in_kernel == 0 {
            return 0;
        }
        let count = match &mut self.ring {
            Some(ring) => {
                let count = ring.take(into);
                self.counters.in_ring += u64::from(count);
                count
            }
            None => self.reap_by_call(into),
        };
        self.in_kernel -= count;
        self.untold += i64::from(count);
        count
    }

    fn reap_by_call(&mut self, into: &mut Vec<FileCompletion>) -> u32 {
        let mut events = [IoEvent::NONE; 64];
        let mut total = 0;
        loop {
            match self.get_events(&mut events) {
                answer if answer == -(libc::EINTR as Moved) => {}
                // The call worked when the context was opened. No caller can learn that it no
                // longer does.
                answer @ ..0 => {
                    debug_assert!(false, "io_getevents(2): errno {}", -answer);
                    return total;
                }
                count => {
                    into.extend(events[..count as usize].iter().map(|event| event.completed()));
                    total += count as u32;
                    if (count as usize) < events.len() {
                        return total;
                    }
                }
            }
        }
    }

    /// Calls io_getevents(2) for the completions that are there.
    fn get_events(&mut self, events: &mut [IoEvent]) -> Moved {
        self.counters.getevents += 1;
        // Zeros are the same time in every layout that a kernel may expect.
        let now = [0u64; 2];
        // SAFETY: room for as many events as are asked for; the time lives across the call.
        syscall!(unsafe {
            libc::syscall(
                libc::SYS_io_getevents,
                self.context,
                0usize,
                events.len(),
                events.as_mut_ptr(),
                now.as_ptr(),
            )
        })
    }
}

impl AsFd for Aio {
    /// Becomes readable with each completion. Watch it for edges and do not read it, or for its
    /// level and [`quiet`](Aio::quiet) it. It does not tell of what fails in
    /// [`flush`](Aio::flush): see [`has_completed`](Aio::has_completed), [`tell`](Aio::tell).
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event_fd.as_fd()
    }
}

impl Drop for Aio {
    /// Does not wait: io_destroy(2) returns when the last request has ended, which may be never. So
    /// a context with requests in flight stays, with their memory, until the process ends.
    fn drop(&mut self) {
        if self.forks != fork::generation() {
            // The context and its requests are the parent's.
            return;
        }
        self.reap(&mut Vec::new());
        if self.in_kernel == 0 {
            // If io_destroy(2) was denied after the context was opened, the context stays, too.
            destroy(self.context);
        }
    }
}

fn destroy(context: usize) -> libc::c_long {
    // SAFETY: no memory is passed. A context's ring is unmapped with it: it is its owner's last
    // call.
    unsafe { libc::syscall(libc::SYS_io_destroy, context) }
}

/// What an error of `step` means: refused, or an error of the system.
fn judge(step: &'static str, errno: i32) -> io::Result<AioRefused> {
    match errno {
        libc::EPERM | libc::ENOSYS | libc::EACCES | libc::EOPNOTSUPP => {
            Ok(AioRefused { step, errno, limits: None })
        }
        libc::EAGAIN => Ok(AioRefused { step, errno, limits: Limits::read() }),
        _ => Err(crate::sys::step::at(step, io::Error::from_raw_os_error(errno))),
    }
}

/// Calls io_setup(2), for half as many requests when there is no room for so many, but no fewer
/// than `least`: the context and its size.
fn set_up(asked: u32, least: u32) -> io::Result<Result<(usize, u32), AioRefused>> {
    let mut entries = asked;
    loop {
        let mut context = 0usize;
        let to = &raw mut context;
        // SAFETY: room for one context, which must be zero.
        let answer = syscall!(unsafe { libc::syscall(libc::SYS_io_setup, entries, to) });
        match -answer as i32 {
            0 => return Ok(Ok((context, entries))),
            libc::EAGAIN | libc::ENOMEM if entries > least => entries = (entries / 2).max(least),
            errno => return judge("io_setup(2)", errno).map(Err),
        }
    }
}

fn describe(asked: u32, entries: u32, ring: bool) -> String {
    let how = if ring { "in the mapped ring" } else { "by io_getevents(2)" };
    match (entries < asked).then(Limits::read) {
        None => format!("{entries} entries, completions taken {how}"),
        Some(limits) => {
            let why = limits.map_or(String::new(), |limits| format!(" ({limits})"));
            format!("{entries} of {asked} entries{why}, completions taken {how}")
        }
    }
}

// Miri knows none of these calls.
#[cfg(all(test, not(miri)))]
#[path = "tests/aio.rs"]
mod tests;
