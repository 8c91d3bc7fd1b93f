//! The kernel of a proactor: a selector, the attempt calls and a clock.
//!
//! [`Os`](super::Os) is the system's; [`Sim`](crate::sim::Sim) is simulated, seeded and has virtual
//! time. An attempt never blocks. It answers how many bytes moved, or `-errno`; `-EAGAIN` says that
//! the selector will report when it is worth another try.

use std::io::{self, IoSlice};
use std::sync::Arc;

use super::calls::Calls;
use crate::aligned::AlignedBuf;
use crate::buf::swap::Pool;
use crate::buf::{Buf, Target};
use crate::clock;
use crate::completion::Done;
use crate::config::Config;
use crate::error::{Error, Reason};
use crate::explain::Explain;
use crate::file::work::WorkItem;
use crate::file::{FileAnswer, FileFacts, FileRequest};
use crate::source::{Handle, SourceKind};
use crate::sys::fd::{BorrowedFd, RawFd};
use crate::sys::interest::Ready;
use crate::sys::waker::Wake;

/// The key of the kernel's own wake event.
pub const WAKE: u64 = u64::MAX;

/// The key of the kernel's own event that says that work on files has ended.
pub const FILES: u64 = u64::MAX - 1;

/// The result of a receiving attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Bytes, or `-errno`.
    pub moved: isize,
    /// The message ended before the data did (a boundary at passed descriptors), or was longer than
    /// the memory (a datagram).
    pub cut: bool,
}

impl Received {
    /// An answer that was not cut.
    #[inline(always)]
    pub const fn plain(moved: isize) -> Received {
        Received { moved, cut: false }
    }
}

/// How far an attempt to connect has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connecting {
    /// It is connected.
    Done,
    /// It goes on; the socket becomes writable when it has ended.
    GoesOn,
    /// The listener has no room, and nothing will say when it has (Unix sockets): to be tried
    /// again.
    Full,
}

/// The answer of a kernel to an operation that it is to complete by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Started {
    /// It has it: an answer will come.
    Yes,
    /// It does not do that: try it.
    No,
    /// It has no buffer for it.
    Starved,
}

/// How an operation that a kernel has started has gone.
#[derive(Debug)]
pub struct Answer {
    /// The key that the operation was started with; 0 for an answer to no operation.
    pub key: u64,
    /// The source's write, not its read.
    pub write: bool,
    /// Bytes, or `-errno`, or [`POLL_ENDED`](Answer::POLL_ENDED).
    pub moved: isize,
    /// The bytes, where the kernel has chosen the buffer.
    pub data: Buf,
    /// The operation goes on.
    pub more: bool,
}

impl Answer {
    /// The registration of the source has ended by itself.
    pub const POLL_ENDED: isize = isize::MIN;
    /// The operation that was to [stop](Kernel::stop) was not found, and has perhaps not ended.
    pub const NOT_STOPPED: isize = isize::MIN + 1;
    /// The operation that was to [stop](Kernel::stop) stands in a thread, which was told: it ends
    /// soon.
    pub const STOPPING: isize = isize::MIN + 2;
}

/// A selector, the attempt calls and a clock.
///
/// Most kernels say when an attempt is worth it. One that [completes](Kernel::COMPLETES) can also
/// take reads and writes of stream sockets over: it is given at most one read and one write of a
/// source at a time, with the source's key, and answers in one of the next `select`s.
///
/// # Safety
/// An attempt that answers `n` received bytes has written the first `n` bytes of its target (of its
/// targets, one after the other), and `n` is at most their length. So has an answer, and the memory
/// of what was started is not used after its last answer.
#[allow(unsafe_code)]
#[allow(unused_variables)] // a default ignores what it is given
pub unsafe trait Kernel {
    /// Its calls on descriptors.
    type Calls: Calls;

    /// Whether it can complete operations by itself.
    const COMPLETES: bool = false;
    /// Whether a registration reports for life. Where it does not, [`arm`](Kernel::arm) is told
    /// before each `select` what is waited for.
    const EDGES: bool = true;

    /// Whether a TCP socket registered for writes reports room only after a write found none. If
    /// each acknowledgement reports room, the socket is registered for writes only while a write
    /// waits.
    const QUIET_WRITES: bool = true;

    /// Whether it can know files and memory beforehand.
    const REGISTERS: bool = false;

    /// Whether there are files and threads.
    const FILES: bool = false;

    /// Whether this kernel does itself, without threads, what threads would do.
    const TASKS: bool = false;

    /// What `explain` calls it.
    fn name(&self) -> &'static str;

    /// Where the generations of a watcher's names are to begin: far from those of other watchers,
    /// whose names are stale here then. (A simulated kernel decides it by what is repeatable.)
    fn start(&mut self) -> u32 {
        0
    }

    /// The time in nanoseconds since the process' base `Instant`, which is what the system's
    /// monotonic clock says; time may also be virtual.
    fn now_ns(&self) -> u64 {
        clock::now_ns()
    }

    /// Called at the start of each turn: a kernel with virtual time advances it here. (A turn with
    /// completions to deliver does not call `select`.)
    #[inline(always)]
    fn turn(&mut self) {}

    /// Waits at most `timeout_ns` (`None`: for ever) for events; answers how many there are.
    ///
    /// # Errors
    /// What the system reports for the wait.
    fn select(&mut self, timeout_ns: Option<u64>) -> io::Result<usize>;

    /// Event `i` of the last `select`: its key, and the conditions that hold.
    fn event(&self, i: usize) -> (u64, Ready);

    /// Registers `fd` for reads, and for writes if `writes`: edge-triggered, for life. Called
    /// `again` when writes are to be added.
    ///
    /// # Errors
    /// The errno.
    fn register(&mut self, fd: RawFd, key: u64, writes: bool, again: bool) -> Result<(), i32>;

    /// Says what is waited for on a registered descriptor until a `select` has reported something
    /// of it; `None` for nothing. Called where [`EDGES`](Kernel::EDGES) is false only.
    #[inline(always)]
    fn arm(&mut self, fd: RawFd, key: u64, on: Option<Ready>) {}

    /// Ends a registration.
    fn deregister(&mut self, fd: RawFd, key: u64);

    /// The answer that event `i` is, if it is one.
    fn answer(&mut self, i: usize, pool: &mut Pool) -> Option<Answer> {
        None
    }

    /// Whether multishot receives of such sources are multishot ones of the kernel.
    #[inline(always)]
    fn repeats(&mut self, kind: SourceKind) -> bool {
        true
    }

    /// Whether writes of such sources are started.
    #[inline(always)]
    fn sends(&mut self, kind: SourceKind) -> bool {
        kind == SourceKind::Stream
    }

    /// Starts to receive, into `to` or a buffer of the kernel's choice; again and again if
    /// `multishot`.
    ///
    /// # Safety
    /// The memory stays what it is until the last answer.
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
    /// The memory stays what it is until the answer.
    unsafe fn start_send(&mut self, fd: RawFd, key: u64, parts: &[IoSlice<'_>]) -> Started {
        Started::No
    }

    /// Asks for the end of the source's read or write; its answer tells.
    fn stop(&mut self, key: u64, write: bool) {}

    /// The number of buffers available to a buffer-less read that is [started](Kernel::start_recv)
    /// now.
    fn buffers(&mut self, pool: &mut Pool) -> usize {
        pool.available(false)
    }

    /// Whether the kernel has lost answers since [`recovered`](Kernel::recovered): some started
    /// operations may never be answered. Called after each `select`.
    fn has_lost(&mut self) -> bool {
        false
    }

    /// Cancels all started operations and all registrations. Returns true when the kernel holds
    /// nothing any more (except file work), so that their memory is free. Called repeatedly, before
    /// each `select`.
    fn recall(&mut self) -> bool {
        true
    }

    /// Starts over with nothing started and nothing registered. `empty` if a `recall` has returned
    /// true.
    fn recovered(&mut self, pool: &mut Pool, empty: bool) {}

    /// Another kernel like this one, for a forked child, which can use neither this one nor what it
    /// knows.
    ///
    /// # Errors
    /// What the system reports; [`Reason::Unsupported`] where there is no other.
    fn renew(&self, config: &Config) -> io::Result<Self>
    where
        Self: Sized,
    {
        Err(Reason::Unsupported.into())
    }

    /// Leaves to itself what is started and was not answered in time: its memory is never used
    /// again.
    fn abandon(&mut self) {}

    /// A buffer of at least `len` bytes in memory that the kernel knows beforehand, if it has any
    /// left.
    fn registered_buf(&mut self, len: usize) -> Option<AlignedBuf> {
        None
    }

    /// Starts work on a file, if the kernel does it without a thread of ours waiting; false when
    /// threads are to do it.
    ///
    /// # Safety
    /// The memory, a list's array too, stays what it is until the answer.
    unsafe fn start_file(&mut self, request: FileRequest<'_>, facts: FileFacts) -> bool {
        false
    }

    /// The next answer to what [`start_file`](Kernel::start_file) has started. Asked for after each
    /// `select` until there is none.
    fn file_answer(&mut self) -> Option<FileAnswer> {
        None
    }

    /// Whether there is an answer without an event.
    fn has_file_answers(&self) -> bool {
        false
    }

    /// Asks for the end of such work; its answer tells.
    fn stop_file(&mut self, key: u64) {}

    /// Starts what threads would do: jobs, look-ups, blocking work on files. A later `select`
    /// reports its end. Called only if [`TASKS`](Kernel::TASKS) is true.
    ///
    /// # Errors
    /// Returns work that this kernel cannot do.
    fn start_task(&mut self, key: u64, work: WorkItem) -> Result<(), WorkItem> {
        Err(work)
    }

    /// Takes back a task that has not begun; `None` if it has.
    fn cancel_task(&mut self, key: u64) -> Option<WorkItem> {
        None
    }

    /// The key and the result of the next task that has ended. Called after each `select`, until it
    /// returns `None`.
    fn task_answer(&mut self) -> Option<(u64, Result<Done, Error>)> {
        None
    }

    /// How many tasks wait, and how many run.
    fn task_counts(&self) -> (u64, u64) {
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

    /// Gives `fd` away.
    fn release(&mut self, fd: RawFd, kind: SourceKind) -> Handle;

    /// The selector's own descriptor.
    fn pollable(&self) -> Option<BorrowedFd<'_>>;

    /// System calls by name.
    fn system_calls(&self) -> Vec<(&'static str, u64)>;

    /// Adds rows about the selector.
    fn explain(&self, explain: &mut Explain);
}
