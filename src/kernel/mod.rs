//! The kernels that a proactor runs on: a selector, the attempt calls and a clock.
//!
//! A [`Kernel`] is what a [`Proactor`](crate::proactor::Proactor) runs on, and [`Calls`] are its
//! calls. [`Os`] is the system with a selector, `ring::Ring` (Linux) the system with io_uring,
//! [`Sim`](crate::sim::Sim) a simulated one, with a seed and virtual time. An attempt never blocks.
//! It returns the number of bytes that it moved, or `-errno`. After `-EAGAIN` the selector reports
//! when another attempt is worth it.
//!
//! # Why no call of the loop's thread waits
//!
//! All other sources stand still while the loop's thread is in a call. So a call that may wait for
//! a disk, a file system, a terminal or a peer is a thread's, and this is the list of those that
//! are not. `tests/fuse.rs` holds each request of a slow file system while the loop has to serve
//! another source.
//!
//! | calls | why they do not wait |
//! |---|---|
//! | `wait`: epoll_pwait2, kevent, ppoll, io_uring_enter | this is the wait; it ends at the next deadline, at an event, or when another thread wakes it |
//! | `register`: epoll_ctl, kevent; timerfd_settime, eventfd, `fcntl` | change memory of the kernel; none asks the driver of the device or the file system |
//! | `recv`, `recvmsg`, `recvmmsg`, `send`, `sendmsg`, `sendmmsg` | have `MSG_DONTWAIT`; where there is no such flag, the description has `O_NONBLOCK` |
//! | `read`, `write` of pipes, terminals, devices | the description has `O_NONBLOCK`. If other code shares one that blocks, a pipe or a terminal is opened anew; all else has `RWF_NOWAIT`, or `EOPNOTSUPP`. (Only a pipe that cannot be opened anew, on macOS or before Linux 6.4, has poll(2) first, and then at most the part that a pipe promises to take: it waits if another process is faster) |
//! | `open` of /proc/self/fd, dup3, for that | the same pipe or terminal is open already; `O_NONBLOCK` |
//! | `accept` | the listener has `O_NONBLOCK` |
//! | `connect` | the socket has `O_NONBLOCK`. A Unix path is looked up at once: in directories of a slow file system the call waits for it |
//! | `shutdown` | starts the end of a connection, and waits for no peer |
//! | `poll` | its timeout is 0 |
//! | `close` of sockets, pipes, eventfds … | frees memory of the kernel. All else is a thread's (`sys/closing.rs`): a file (its blocks are freed, its server is told), a device (output is left), a socket that lingers and is shared. `SO_LINGER` is asked before each close of a stream, and turned off for an abort. io_uring's `IORING_OP_CLOSE` is not used, because the last reference to a file would be dropped in a call of the loop's thread |
//! | recv(2) of passed descriptors that nobody asked for | the kernel drops them: if a peer passes the last descriptor of a removed file, this frees its blocks |
//! | `getsockopt`, setsockopt, getsockname, getpeername | memory of the socket |
//! | statx of an attached file | `AT_STATX_DONT_SYNC`: what the kernel knows already. `Op::open` asks on its thread |
//! | `preadv2` of a file | `RWF_NOWAIT`: bytes of the page cache, or `EAGAIN`. A file system that cannot do this answers `EOPNOTSUPP`, without a try; threads do all reads and writes of its files |
//! | `sendfile` | is called for bytes that the page cache had in the last 100 ms, of file systems with `RWF_NOWAIT`. If they were dropped since, or were between two pages that were looked at, it waits for the disk |
//! | io_uring_enter, for files | the kernel tries reads and direct writes with `IOCB_NOWAIT`, and its own threads do the rest, and syncs. Files of file systems that do not know this flag are not given to it |
//! | io_submit, io_getevents | reads have `RWF_NOWAIT`; a thread of the kernel does syncs; there are no writes. io_getevents has a timeout of 0 |
//! | io_uring_setup, io_uring_register, io_setup, mmap, clone | allocate memory, at the first use of a mechanism |
//! | io_destroy | only after the requests in the kernel have ended, or after the second that a drop may wait (C7) |
//! | `sigaction`, pidfd_open, `waitid` | `WNOHANG`; memory of the kernel |
//! | socket, bind, listen, for `Watcher::listen` | memory of the kernel. A Unix path is made at once: in a directory of a slow file system the call waits for it |
//!
//! Threads make the calls of all other operations: open, stat, the work on names, allocate,
//! truncate, sync_file_range, copies, look-ups of hosts, and what the mechanisms above hand back.
//!
//! Programs have no use for this module. Authors of kernels implement [`Kernel`] and build a
//! watcher with [`Proactor::with_kernel`](crate::proactor::Proactor::with_kernel) and
//! [`Watcher::with_driver`](crate::Watcher::with_driver).

#[cfg(all(target_os = "linux", not(windlass_kqueue)))]
pub(crate) mod aio;
#[path = "no_aio.rs"]
#[cfg(not(all(target_os = "linux", not(windlass_kqueue))))]
pub(crate) mod aio;
mod batches;
mod calls;
mod file_engine;
mod os;
mod os_calls;
mod process_fds;
pub(crate) mod quirks;
#[cfg(all(target_os = "linux", not(windlass_kqueue)))]
pub mod ring;

use std::io::{self, IoSlice};
use std::sync::Arc;

use crate::completion::Done;
use crate::driver::config::Config;
use crate::file::{FileAnswer, FileFacts, FileRequest};
use crate::memory::aligned::AlignedBuf;
use crate::memory::buf::swap::Pool;
use crate::memory::buf::{Buf, Target};
use crate::sys::fd::{BorrowedFd, RawFd};
use crate::sys::interest::Ready;
use crate::sys::waker::Wake;
use crate::words::clock::{self, Clock};
use crate::words::error::{Error, Refusal};
use crate::words::explain::Explain;
use crate::words::source::{Handle, SourceKind};

pub use crate::file::thread_job::ThreadJob;
pub use calls::{Calls, Connecting, Received};
pub use os::Os;
pub use os_calls::OsCalls;

/// The key of the kernel's own wake event.
pub const WAKE: u64 = u64::MAX;

/// The key of the kernel's own event that says that work on files has ended.
pub const FILES: u64 = u64::MAX - 1;

/// Whether a kernel takes an operation that it is to complete by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Started {
    /// The kernel has the operation, and will answer.
    Yes,
    /// The kernel does not complete such operations: the proactor tries it.
    No,
    /// The kernel has no buffer for the operation.
    Starved,
}

/// What a kernel tells of an operation that it has started.
#[derive(Debug)]
pub struct Answer {
    /// The key that the operation was started with; 0 for an answer to no operation.
    pub key: u64,
    /// Whether the operation is the source's write, and not its read.
    pub write: bool,
    /// What became of the operation.
    pub kind: AnswerKind,
    /// The received bytes, if the kernel has chosen the buffer.
    pub data: Buf,
    /// Whether the operation goes on, and further answers follow.
    pub more: bool,
}

/// What became of an operation that the kernel has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerKind {
    /// It has moved so many bytes, or has failed with `-errno`.
    Moved(isize),
    /// The kernel did not find the operation that was to [stop](Kernel::stop). It may not have
    /// ended.
    NotStopped,
    /// A thread of the kernel has the operation that was to [stop](Kernel::stop), and was told to
    /// end it: the operation ends soon.
    Stopping,
}

/// A selector, the attempt calls and a clock.
///
/// Most kernels say when an attempt is worth it. A kernel that [completes](Kernel::COMPLETES) can
/// also take over reads and writes of stream sockets. It gets at most one read and one write of a
/// source at a time, with the key of the source. It answers in one of the next `select`s.
///
/// # Safety
/// An attempt that returns `n` received bytes has written the first `n` bytes of its target (of its
/// targets, one after the other), and `n` is at most their length. The same holds for the answer of
/// a started operation. The kernel does not use the memory of an operation after its last answer.
#[allow(unsafe_code)]
#[allow(unused_variables)] // a default ignores what it is given
pub unsafe trait Kernel {
    /// Its calls on descriptors.
    type Calls: Calls;

    /// Whether it can complete operations by itself.
    const COMPLETES: bool = false;
    /// Whether a registration reports for as long as it exists. If not, the proactor calls
    /// [`arm`](Kernel::arm) before each `select`, with what it waits for.
    const EDGES: bool = true;

    /// Whether a TCP socket registered for writes reports room only after a write found none. If
    /// each acknowledgement reports room, the socket is registered for writes only while a write
    /// waits.
    const QUIET_WRITES: bool = true;

    /// Whether files and memory can be registered with this kernel.
    const REGISTERS: bool = false;

    /// Whether this kernel has files, and threads for work on them.
    const FILES: bool = false;

    /// Whether this kernel runs jobs itself, without threads.
    const JOBS: bool = false;

    /// What `explain` calls it.
    fn name(&self) -> &'static str;

    /// The first generation of a watcher's names. It is far from those of other watchers, so that
    /// their names are stale in this one. A simulated kernel returns one that is the same in each
    /// run.
    fn start(&mut self) -> u32 {
        0
    }

    /// The time in nanoseconds since the process' base `Instant`: that of the system's monotonic
    /// clock, or a virtual time.
    fn now_ns(&self) -> u64 {
        clock::now_ns()
    }

    /// The clock that `now_ns` reads.
    fn clock(&self) -> Clock {
        Clock::system()
    }

    /// Called at the start of each turn: a kernel with virtual time advances it here. (A turn with
    /// completions to deliver does not call `select`.)
    #[inline(always)]
    fn turn(&mut self) {}

    /// Waits at most `timeout_ns` (`None`: for ever) for events. Returns their number.
    ///
    /// # Errors
    /// What the system reports for the wait.
    fn select(&mut self, timeout_ns: Option<u64>) -> io::Result<usize>;

    /// Event `i` of the last `select`: its key, and the conditions that hold.
    fn event(&self, i: usize) -> (u64, Ready);

    /// Registers `fd` for reads, and if `writes` is true also for writes: edge-triggered, until it
    /// is deregistered or closed. A descriptor that is registered for reads can be registered for
    /// both.
    ///
    /// # Errors
    /// The errno.
    fn register(&mut self, fd: RawFd, key: u64, writes: bool) -> Result<(), i32>;

    /// Sets what the proactor waits for on a registered descriptor, until a `select` has reported
    /// an event of the descriptor. `None` stands for nothing. Called only if
    /// [`EDGES`](Kernel::EDGES) is false.
    #[inline(always)]
    fn arm(&mut self, fd: RawFd, key: u64, on: Option<Ready>) {}

    /// Ends a registration.
    fn deregister(&mut self, fd: RawFd, key: u64);

    /// The answer in event `i`, if the event is an answer.
    fn answer(&mut self, i: usize, pool: &mut Pool) -> Option<Answer> {
        None
    }

    /// Whether the kernel itself repeats multishot receives on such sources.
    #[inline(always)]
    fn repeats(&mut self, kind: SourceKind) -> bool {
        true
    }

    /// Whether the kernel takes over writes on such sources.
    #[inline(always)]
    fn sends(&mut self, kind: SourceKind) -> bool {
        kind == SourceKind::Stream
    }

    /// Starts to receive, into `to` or a buffer of the kernel's choice; again and again if
    /// `multishot`.
    ///
    /// # Safety
    /// The caller must not free, move or use the memory before the last answer.
    unsafe fn start_recv(
        &mut self,
        fd: RawFd,
        key: u64,
        to: Option<Target<'_>>,
        multishot: bool,
        pool: &mut Pool,
    ) -> Started {
        Started::No
    }

    /// Starts to send parts, one after the other.
    ///
    /// # Safety
    /// The caller must not free, move or change the memory before the answer.
    unsafe fn start_send(&mut self, fd: RawFd, key: u64, parts: &[IoSlice<'_>]) -> Started {
        Started::No
    }

    /// Asks for the end of the source's read or write. The answer of that operation tells how it
    /// ended.
    fn stop(&mut self, key: u64, write: bool) {}

    /// The number of buffers available to a buffer-less read that is [started](Kernel::start_recv)
    /// now.
    fn buffers(&mut self, pool: &mut Pool) -> usize {
        pool.available(false)
    }

    /// The loop needs a buffer, and the pool has none left. If this kernel holds one for reads that
    /// no lease uses, it gives that back to the pool: at once, or with a later answer.
    fn recall_buffer(&mut self, pool: &mut Pool) {}

    /// Makes another kernel like this one for a forked child. The child can use neither this kernel
    /// nor its registrations.
    ///
    /// # Errors
    /// What the system reports; [`Refusal::Unsupported`] where there is no other.
    fn renew(&self, config: &Config) -> io::Result<Self>
    where
        Self: Sized,
    {
        Err(Refusal::Unsupported.into())
    }

    /// Gives up the operations that were not answered in time. The proactor never uses their memory
    /// again.
    fn abandon(&mut self) {}

    /// A buffer of at least `len` bytes in memory that is registered with the kernel, if enough of
    /// it is left.
    fn registered_buf(&mut self, len: usize) -> Option<AlignedBuf> {
        None
    }

    /// Starts work on a file, if the kernel can do it without blocking a thread of the program.
    /// Returns false if threads must do the work.
    ///
    /// # Safety
    /// The caller must not free, move or change the memory, nor the array of a list, before the
    /// answer.
    unsafe fn start_file(&mut self, request: FileRequest<'_>, facts: FileFacts) -> bool {
        false
    }

    /// The next answer to work that [`start_file`](Kernel::start_file) has started. Called after
    /// each `select`, until it returns `None`.
    fn file_answer(&mut self) -> Option<FileAnswer> {
        None
    }

    /// Whether [`file_answer`](Kernel::file_answer) has an answer that no event reports.
    fn has_file_answers(&self) -> bool {
        false
    }

    /// Asks for the end of work on a file. The answer of that work tells how it ended.
    fn stop_file(&mut self, key: u64) {}

    /// Starts a job, a look-up, or blocking work on a file. A later `select` reports its end.
    /// Called only if [`JOBS`](Kernel::JOBS) is true.
    ///
    /// # Errors
    /// Returns work that this kernel cannot do.
    fn start_job(&mut self, key: u64, work: ThreadJob) -> Result<(), ThreadJob> {
        Err(work)
    }

    /// Takes back a job that has not begun; `None` if it has.
    fn cancel_job(&mut self, key: u64) -> Option<ThreadJob> {
        None
    }

    /// The key and the result of the next job that has ended. Called after each `select`, until it
    /// returns `None`.
    fn job_answer(&mut self) -> Option<(u64, Result<Done, Error>)> {
        None
    }

    /// How many jobs wait, and how many run.
    fn job_counts(&self) -> (u64, u64) {
        (0, 0)
    }

    /// Its calls that change nothing.
    fn calls(&self) -> &Self::Calls;

    /// Its calls.
    fn calls_mut(&mut self) -> &mut Self::Calls;

    /// How other threads end a `select`.
    fn waker(&self) -> Arc<dyn Wake>;

    /// Closes `fd`.
    fn close(&mut self, fd: RawFd);

    /// Hands `fd` over as an owned handle.
    fn release(&mut self, fd: RawFd, kind: SourceKind) -> Handle;

    /// The selector's own descriptor.
    fn pollable(&self) -> Option<BorrowedFd<'_>>;

    /// System calls by name.
    fn system_calls(&self) -> Vec<(&'static str, u64)>;

    /// Adds rows about the selector.
    fn explain(&self, explain: &mut Explain);
}
