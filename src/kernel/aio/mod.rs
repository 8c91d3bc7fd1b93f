//! Linux AIO as a component: requests on files in, completions out, an eventfd that tells.
//!
//! ```text
//!            submit                 io_submit(2)             the kernel
//!   AioOp ───────────▶ held back ───────────────▶ in flight ───────────▶ Completion
//!     ◀── refused          │ cancel                                        ▲  eventfd
//!                          └───────────────────────────────────────────────┘
//! ```
//!
//! A [`Store`] decides the type of a request, and where it stays meanwhile: programs hand over
//! requests that own their buffers ([`Owned`]); the proactor keeps its operations itself ([`Raw`]).

#![allow(unsafe_code)]
//! # Safety
//!
//! A [`Store`] promises that the memory of a request stays valid.

mod op;
mod owned;
mod store;
#[cfg(all(test, not(miri)))] // Miri knows none of these calls
mod tests;

use std::fmt;
use std::io;

use crate::completion::Completions;
use crate::completion::verbs::{Complete, Submit, Wait};
use crate::sys::aio::{Aio, AioCounters, AioRefused, NOWAIT};
use crate::sys::fd::{AsFd, BorrowedFd};
use crate::sys::file_request::{self, EngineRequest, is_batch};
use crate::words::clock;
use crate::words::error::{Limit, Refusal, Refused};
use crate::words::source::Ticket;
use owned::Owned;
pub(crate) use store::Raw;
use store::Store;

/// The names that programs use.
pub(crate) mod public {
    pub use super::AioFiles;
    pub use super::op::AioOp;
}

/// The largest depth.
const MOST_DEPTH: u32 = 1 << 20;

/// Reads files with `O_DIRECT` and syncs files on Linux AIO, without a thread.
///
/// It is for a program whose own loop waits in poll(2), epoll or another selector: the loop watches
/// the eventfd (`as_fd`), which becomes readable with each completion. A program that uses a
/// [`Watcher`](crate::Watcher) does not need it: the watcher uses it inside.
///
/// It implements [`Submit`] and [`Complete`]: its operation is an [`AioOp`](op::AioOp), its item a
/// [`Completion`](crate::Completion) whose source is [`Source::NONE`](crate::Source::NONE).
///
/// ```
/// use std::fs::File;
/// use std::os::fd::OwnedFd;
/// use windlass::fs::{AioFiles, AioOp};
/// use windlass::driver::Wait;
/// use windlass::{Complete, Completions, Done, Submit};
///
/// # fn main() -> std::io::Result<()> {
/// # let Ok(files) = AioFiles::new(64) else { return Ok(()) };
/// # drop(files);
/// let mut files = AioFiles::new(64)?;
/// let file = OwnedFd::from(File::open("Cargo.toml")?);
/// files.submit(AioOp::sync_all(file).token(7))?;
///
/// let mut done = Completions::new();
/// files.complete(Wait::Forever, &mut done)?;
/// for completion in done.drain(..) {
///     assert_eq!(completion.token, 7);
///     assert!(matches!(completion.result?, Done::Finished));
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Requests
///
/// | request | in the kernel | ends with |
/// |---|---|---|
/// | [`read_at`](op::AioOp::read_at) of a file with `O_DIRECT` | asynchronous | bytes of one read |
/// | [`read_at`](op::AioOp::read_at) of another file | the page cache copies | bytes, `EAGAIN` |
/// | [`sync_all`](op::AioOp::sync_all) | a thread of the kernel | `Done::Finished` |
/// | [`sync_data`](op::AioOp::sync_data) | a thread of the kernel | `Done::Finished` |
///
/// It carries no writes: io_submit(2) blocks while a write extends the file, fills a hole, or meets
/// a frozen file system, even with `RWF_NOWAIT`. Reads have that flag, so `submit` never waits for
/// a disk: what would have to wait ends with `EAGAIN`. Do such a read on a thread.
///
/// # In a loop
///
/// Watch `as_fd` for readability, for its level or its edges. When it is readable, call
/// [`complete`](Complete::complete) with [`Wait::Now`]: it takes all that has ended, and reads the
/// eventfd, so that a level-triggered wait does not spin. The eventfd may be readable without a
/// completion; with one, it is readable.
///
/// While the kernel has requests, `submit` holds others back, until there are twice as many: it
/// submits these with one system call. The next `complete` submits the rest.
///
/// # Cancel, drop, fork
///
/// Linux cannot stop a request on a file that it has begun. [`cancel`](Submit::cancel) takes back a
/// request that was held back, which ends with [`Cancelled`](crate::ErrorKind::Cancelled). Any
/// other request ends with its own result and is [late](crate::Completion::is_late).
///
/// Drop waits at most one second for the requests in the kernel. The buffers of later requests are
/// left to the kernel, with the context, and [counted](crate::driver::leaked_buffers); their memory
/// is never used again.
///
/// After fork(2) the child can only drop its copy, which ends nothing of the parent's:
/// [`Refusal::Forked`].
///
/// # Platform
///
/// Linux only (not Android); syncs from 4.18 on, `EINVAL` before.
///
/// [`AioOp`]: crate::fs::AioOp
/// [`AioOp::read_at`]: crate::fs::AioOp::read_at
/// [`AioOp::sync_all`]: crate::fs::AioOp::sync_all
/// [`AioOp::sync_data`]: crate::fs::AioOp::sync_data
pub struct AioFiles<S: Store = Owned> {
    store: S,
    aio: Aio,
    /// The most requests that one io_submit(2) takes.
    most: u32,
}

const _: () = {
    const fn send<T: Send>() {}
    send::<AioFiles>();
};

impl AioFiles {
    /// Sets Linux AIO up for `depth` requests at a time, from 1 to 1,048,576 (2^20).
    ///
    /// Contexts share a limit of the system, `fs.aio-max-nr` (65,536 by default), from which this
    /// one takes `depth`, but at least 32, until it is dropped.
    ///
    /// # Errors
    /// `InvalidInput` for a depth out of range. [`Refusal::of`] has the errno of the others:
    /// `EAGAIN` when `fs.aio-max-nr` has no such room (the message says how much is used), `ENOSYS`
    /// on a kernel without Linux AIO, `EPERM` or `EACCES` when a filter of system calls (seccomp)
    /// denies it, `EMFILE`, `ENFILE`, `ENOMEM`.
    pub fn new(depth: u32) -> io::Result<AioFiles> {
        if !(1..=MOST_DEPTH).contains(&depth) {
            let why = format!("the depth of AioFiles is from 1 to {MOST_DEPTH}, not {depth}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        clock::start();
        let aio = Aio::open_exactly(depth)??;
        Ok(AioFiles { store: Owned::new(depth), aio, most: u32::MAX })
    }

    /// How many requests it takes at a time.
    pub fn depth(&self) -> u32 {
        self.store.depth()
    }

    /// How many requests have been accepted and not yet delivered.
    pub fn len(&self) -> usize {
        self.store.len()
    }

    /// Whether nothing is in flight.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl AioFiles<Raw> {
    /// For so many requests whose memory the caller keeps, or for fewer when `fs.aio-max-nr` is
    /// nearly used up. Its eventfd is to be watched for edges.
    ///
    /// # Errors
    /// `Unsupported` with the refused step; `WouldBlock` while `fs.aio-max-nr` is used up;
    /// `EMFILE`, `ENFILE`, `ENOMEM`.
    pub(crate) fn open(entries: u32, most: u32) -> io::Result<AioFiles<Raw>> {
        let refused = |refused: AioRefused| {
            let is_short = refused.errno == libc::EAGAIN;
            let kind =
                if is_short { io::ErrorKind::WouldBlock } else { io::ErrorKind::Unsupported };
            io::Error::new(kind, refused)
        };
        let aio = Aio::open(entries)?.map_err(refused)?;
        Ok(AioFiles { store: Raw, aio, most })
    }
}

impl<S: Store> AioFiles<S> {
    /// Submits the requests that are held back.
    #[inline]
    pub(crate) fn flush(&mut self) {
        self.aio.flush();
    }

    /// Whether there are completions that can be taken without asking the kernel, also completions
    /// that the eventfd does not report.
    #[inline]
    pub(crate) fn has_completed(&self) -> bool {
        self.aio.has_completed()
    }

    /// The errno, if io_submit(2) was denied after the context was opened.
    #[inline]
    pub(crate) fn denied(&self) -> Option<i32> {
        self.aio.denied()
    }

    pub(crate) fn counters(&self) -> AioCounters {
        self.aio.counters()
    }

    /// The context's size, why it differs from the requested one, and how completions are taken.
    pub(crate) fn setup(&self) -> &str {
        self.aio.setup()
    }

    /// Why no request is accepted now.
    #[cold]
    fn why_full(&self) -> Refusal {
        let full = Refusal::Full { limit: Limit::Depth, count: self.aio.entries() as usize };
        self.store.check().err().and_then(|error| Refusal::of(&error)).unwrap_or(full)
    }

    /// Submits the requests that are held back, and takes the completions that are there.
    #[inline(always)]
    fn turn(&mut self, out: &mut Completions<S::Item>) -> usize {
        self.aio.flush();
        let count = self.store.take(&mut self.aio, out);
        if self.aio.queued() > 0 {
            // The kernel had no memory for these requests. If it has no other request now, no
            // completion will come after which they could be tried again.
            self.aio.flush();
            self.store.changed(&mut self.aio);
        }
        count
    }

    /// Waits for completions.
    #[cold]
    fn wait(&mut self, wait: Wait, out: &mut Completions<S::Item>) -> io::Result<usize> {
        loop {
            let left = match wait {
                Wait::Until(at) => Some(clock::ns_of(at).saturating_sub(clock::now_ns())),
                // Only the owner submits, so nothing would ever end this wait.
                Wait::Forever if self.aio.in_kernel() == 0 && !self.aio.has_completed() => {
                    return Ok(0);
                }
                Wait::Forever => None,
                Wait::Now => Some(0),
            };
            self.aio.wait(left)?;
            let count = self.turn(out);
            if count > 0 || left == Some(0) {
                return Ok(count);
            }
        }
    }
}

impl<S: Store> Submit for AioFiles<S> {
    type Op = S::Op;

    /// Accepts a request. Never waits for a disk.
    ///
    /// # Errors
    /// The request comes back with its buffer and its file: [`Refusal::Full`] with
    /// [`Limit::Depth`] when `depth` requests are not delivered yet, [`Refusal::EmptyBuffer`] for a
    /// read without room, [`Refusal::TooLong`] for one with more than `i32::MAX` bytes,
    /// [`Refusal::Unsupported`] for one into a list of buffers, [`Refusal::Forked`].
    ///
    /// What the kernel refuses is the error of a completion: `EBADF` (the file is not open for
    /// reading), `EISDIR` or `EINVAL` (a directory; memory, length or offset not aligned for
    /// `O_DIRECT`; an offset beyond `i64::MAX`; a sync of what has none), `EAGAIN` (it would have
    /// to wait), `EOPNOTSUPP` (the file cannot be read without waiting), `ESPIPE` (an offset in a
    /// socket), `EIO`, `EPERM` or `ENOSYS` (a filter that was loaded meanwhile).
    #[inline(always)]
    fn submit(&mut self, op: S::Op) -> Result<Ticket, Refused<S::Op>> {
        if !self.aio.has_room() {
            return Err(Refused { value: op, reason: self.why_full() });
        }
        let (ticket, request) = self.store.keep(op)?;
        let syncs = matches!(request.code, file_request::Code::Fsync | file_request::Code::Fdsync);
        let rw_flags = if syncs { 0 } else { NOWAIT };
        // SAFETY: the store's promise.
        unsafe { self.aio.push(EngineRequest { rw_flags, ..request }) };
        if is_batch(self.aio.queued(), self.aio.in_kernel(), self.most) {
            self.aio.flush();
            self.store.changed(&mut self.aio);
        }
        Ok(ticket)
    }

    /// Asks for the end of a request. One that was held back is taken back; the kernel does not
    /// stop what it has, which ends as it ends and is [late](crate::Completion::is_late). False for
    /// a stale ticket, and in a forked child.
    fn cancel(&mut self, ticket: Ticket) -> bool {
        let is_alive = self.store.cancel(ticket, &mut self.aio);
        if is_alive {
            // In a forked child no ticket is alive, so the eventfd, which is also the parent's, is
            // left alone.
            self.store.changed(&mut self.aio);
        }
        is_alive
    }
}

impl<S: Store> Complete for AioFiles<S> {
    type Item = S::Item;

    /// Submits what was held back, takes what has ended, and waits for it if `wait` says so. A wait
    /// for ever with nothing in flight answers 0 at once: nothing could end it.
    ///
    /// # Errors
    /// [`Refusal::Forked`] in a child process; `ENOMEM` of ppoll(2).
    #[inline]
    fn complete(&mut self, wait: Wait, out: &mut Completions<S::Item>) -> io::Result<usize> {
        self.store.check()?;
        let count = self.turn(out);
        if count > 0 || wait == Wait::Now { Ok(count) } else { self.wait(wait, out) }
    }
}

/// The eventfd, which is readable when [`complete`](Complete::complete) with [`Wait::Now`] would
/// find something. It is non-blocking and closed on exec. Code that reads it itself may miss a
/// completion until its next call of `complete`.
impl<S: Store> AsFd for AioFiles<S> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.aio.as_fd()
    }
}

impl<S: Store> fmt::Debug for AioFiles<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AioFiles")
            .field("entries", &self.aio.entries())
            .field("in_kernel", &self.aio.in_kernel())
            .field("held_back", &self.aio.queued())
            .finish_non_exhaustive()
    }
}

impl<S: Store> Drop for AioFiles<S> {
    fn drop(&mut self) {
        self.store.end(&mut self.aio);
    }
}
