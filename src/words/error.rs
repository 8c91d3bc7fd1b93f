//! Errors: how `submit` refuses an operation, and how an accepted operation fails.
//!
//! `submit` can refuse an operation: [`Refused`] says why, and hands the operation back with its
//! buffer. No completion follows. An accepted operation can fail: [`Error`] is the result of its
//! completion. It says how many bytes moved, and hands the buffer back.

use std::fmt;
use std::io;

use crate::memory::buf::Buf;
use crate::sys::step::CallError;
use crate::sys::{os_errno, os_error};

/// The bound that refused a submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Limit {
    /// Sources that a watcher may own: [`Builder::max_sources`](crate::Builder::max_sources).
    Sources,
    /// Operations in flight: [`Builder::max_operations`](crate::Builder::max_operations).
    Operations,
    /// Bytes of writes that one source may have queued:
    /// [`Builder::write_limit`](crate::Builder::write_limit), with
    /// [`Overflow::Refuse`](crate::Overflow::Refuse).
    Writes,
    /// Requests from other threads that wait for the loop:
    /// [`Builder::remote_queue`](crate::Builder::remote_queue).
    RemoteQueue,
    /// Names of sources and operations that the loop keeps ready for other threads:
    /// [`Builder::id_reserve`](crate::Builder::id_reserve).
    IdReserve,
    /// Bytes of swap buffers: [`Builder::swap_limit`](crate::Builder::swap_limit).
    /// [`Watcher::lease`](crate::Watcher::lease) is refused, and a
    /// [`wait_for`](crate::Watcher::wait_for) a read that waits for leases of other completions.
    /// Reads are never refused: they wait.
    SwapBytes,
    /// Jobs for worker threads in flight: [`Builder::max_jobs`](crate::Builder::max_jobs).
    Jobs,
    /// Completions that wait for delivery:
    /// [`Builder::max_operations`](crate::Builder::max_operations). An operation that ends at
    /// submission is never in flight, so only this bound counts it.
    Completions,
    /// Different idle timeouts that sources have at a time: 255. See
    /// [`Watcher::set_idle_timeout`](crate::Watcher::set_idle_timeout).
    IdleTimeouts,
    /// Requests that an `AioFiles` of [`fs`](crate::fs) has in flight: its depth.
    Depth,
}

/// Why the watcher has refused an operation, a handle or another request.
///
/// An [`io::Error`] made from a reason keeps the reason ([`Refusal::of`]) and has this kind:
///
/// | refusal | kind | cause |
/// |---|---|---|
/// | [`Full`](Refusal::Full) | `ResourceBusy` | a bound of the [`Builder`], which the reason names |
/// | [`Stale`](Refusal::Stale) | `NotFound` | a source or ticket that has ended |
/// | [`Closed`](Refusal::Closed) | `NotConnected` | [`close`], or a watcher that was dropped |
/// | [`Forked`](Refusal::Forked) | `Unsupported` | a forked child before [`reinit_after_fork`] |
/// | [`EmptyBuffer`](Refusal::EmptyBuffer) | `InvalidInput` | a buffer without bytes or room |
/// | [`TooLong`](Refusal::TooLong) | `InvalidInput` | a buffer that is too long |
/// | [`BadCount`](Refusal::BadCount) | `InvalidInput` | a count that is out of range |
/// | [`NoAddress`](Refusal::NoAddress) | `InvalidInput` | [`connect`] to an empty list |
/// | [`Unsupported`](Refusal::Unsupported) | `Unsupported` | an unfit descriptor, buffer or system |
/// | [`NoDescriptor`](Refusal::NoDescriptor) | `Unsupported` | a handle of another kernel |
/// | [`NoFiles`](Refusal::NoFiles) | `Unsupported` | file work on a kernel without files |
/// | [`NoProcessor`](Refusal::NoProcessor) | `InvalidInput` | [`set_affinity`], [`affinity`] |
/// | [`Busy`](Refusal::Busy) | `ResourceBusy` | [`detach`], [`recv`]: operations in flight |
/// | [`Deadlock`](Refusal::Deadlock) | `Deadlock` | the loop's thread waits on its [`Submitter`] |
/// | [`Os`](Refusal::Os) | the errno's | the system |
///
/// [`Builder`]: crate::Builder
/// [`Submitter`]: crate::Submitter
/// [`affinity`]: crate::Builder::affinity
/// [`close`]: crate::Watcher::close
/// [`connect`]: crate::Watcher::connect
/// [`detach`]: crate::Watcher::detach
/// [`recv`]: crate::Watcher::recv
/// [`reinit_after_fork`]: crate::Watcher::reinit_after_fork
/// [`set_affinity`]: crate::Watcher::set_affinity
///
/// If other code has closed the selector's descriptor, the wait fails with `EBADF`, or on epoll
/// with `EINVAL` when the number now belongs to another file. An accepted operation that fails has
/// an [`ErrorKind`] instead of a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Refusal {
    /// A bound is reached. Try again after the next completions.
    Full {
        /// Which bound.
        limit: Limit,
        /// The value that the bound is set to.
        count: usize,
    },
    /// The source or the ticket has ended, or has never existed.
    Stale,
    /// The watcher is closed.
    Closed,
    /// The process is a fork of the one that built the watcher.
    Forked,
    /// The buffer has no capacity to read into; or no bytes, where an empty write has no meaning
    /// (beside descriptors, at an offset of a file).
    EmptyBuffer,
    /// The buffer is longer than `i32::MAX` bytes, the most that one operation moves.
    TooLong,
    /// The count of a `read_exact` is 0, or more than the capacity of its buffer.
    BadCount,
    /// The list of addresses to connect to is empty.
    NoAddress,
    /// The descriptor cannot do this. For example, a stream cannot accept, a listener cannot be
    /// read, and a regular file cannot be polled.
    Unsupported,
    /// The handle or source has no descriptor that this driver can use. A simulation takes only its
    /// own handles, the system's kernel takes none of them, and a simulated source has no
    /// descriptor to lend out.
    NoDescriptor,
    /// The driver's kernel, which is neither the system's nor a simulation's, has no files, or no
    /// threads for jobs and look-ups.
    NoFiles,
    /// The processor does not exist, or the process may not use it.
    NoProcessor(usize),
    /// Operations are in flight on the source, so it cannot be detached, and a
    /// [`recv`](crate::Watcher::recv) or [`send`](crate::Watcher::send) would overtake them.
    Busy,
    /// A [`Submitter`](crate::Submitter) would have to wait for its loop, but the loop runs on this
    /// very thread.
    Deadlock,
    /// The system reported this errno. (On Windows it is one of the C library's: `libc::EAGAIN` …)
    Os(i32),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Full { limit, count } => {
                let (what, knob) = match limit {
                    Limit::Sources => ("sources", "Builder::max_sources"),
                    Limit::Operations => ("operations in flight", "Builder::max_operations"),
                    Limit::Writes => ("bytes of queued writes on a source", "Builder::write_limit"),
                    Limit::RemoteQueue => {
                        ("submissions from other threads", "Builder::remote_queue")
                    }
                    Limit::SwapBytes => ("bytes of swap buffers", "Builder::swap_limit"),
                    Limit::Jobs => ("jobs for worker threads", "Builder::max_jobs"),
                    Limit::Completions => ("completions that wait", "Builder::max_operations"),
                    Limit::IdleTimeouts => ("different idle timeouts", "Watcher::set_idle_timeout"),
                    Limit::Depth => ("requests at a time", "AioFiles::new"),
                    Limit::IdReserve => ("ids in reserve for other threads", "Builder::id_reserve"),
                };
                write!(f, "the limit of {count} {what} is reached ({knob} sets it)")
            }
            Refusal::Stale => f.write_str("the source or ticket is stale: it has ended"),
            Refusal::Closed => f.write_str("the watcher is closed"),
            Refusal::Forked => {
                f.write_str("the watcher belongs to the parent of this forked process")
            }
            Refusal::EmptyBuffer => {
                f.write_str("the buffer is empty: nothing to write, or no room")
            }
            Refusal::TooLong => write!(f, "the buffer is longer than {} bytes", i32::MAX),
            Refusal::BadCount => {
                write!(
                    f,
                    "the count must be from 1 to the room of its buffer, at most {}",
                    i32::MAX
                )
            }
            Refusal::NoAddress => f.write_str("the list of addresses to connect to is empty"),
            Refusal::Unsupported => f.write_str(
                "the descriptor, the kind of its buffer, or this system or driver does not support \
                 this operation",
            ),
            Refusal::NoDescriptor => f.write_str(
                "the handle or source has no descriptor of this driver's kernel (a simulated one \
                 and the system's do not mix)",
            ),
            Refusal::NoFiles => f.write_str(
                "this driver's kernel has no files, and no threads for jobs and look-ups",
            ),
            Refusal::NoProcessor(cpu) => {
                write!(f, "processor {cpu} does not exist, or this process may not use it")
            }
            Refusal::Busy => f.write_str("operations are in flight on the source"),
            Refusal::Deadlock => f.write_str("the loop's own thread must not wait for room"),
            Refusal::Os(errno) => os_error(*errno).fmt(f),
        }
    }
}

impl std::error::Error for Refusal {}

impl From<Refusal> for io::Error {
    fn from(reason: Refusal) -> io::Error {
        let kind = match reason {
            Refusal::Os(errno) => return os_error(errno),
            Refusal::Full { .. } | Refusal::Busy => io::ErrorKind::ResourceBusy,
            Refusal::Stale => io::ErrorKind::NotFound,
            Refusal::Closed => io::ErrorKind::NotConnected,
            Refusal::EmptyBuffer
            | Refusal::TooLong
            | Refusal::BadCount
            | Refusal::NoAddress
            | Refusal::NoProcessor(_) => io::ErrorKind::InvalidInput,
            Refusal::Forked | Refusal::Unsupported | Refusal::NoDescriptor | Refusal::NoFiles => {
                io::ErrorKind::Unsupported
            }
            Refusal::Deadlock => io::ErrorKind::Deadlock,
        };
        io::Error::new(kind, reason)
    }
}

impl Refusal {
    /// The reason inside an [`io::Error`] that this crate made. For an error of building a watcher,
    /// this is the errno of the failed call.
    ///
    /// ```
    /// use windlass::{Refusal, Watcher};
    /// let mut watcher = Watcher::new()?;
    /// watcher.close();
    /// let error = watcher.wait(&mut windlass::Completions::new()).unwrap_err();
    /// assert_eq!(Refusal::of(&error), Some(Refusal::Closed));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn of(error: &io::Error) -> Option<Refusal> {
        let inner = error.get_ref()?;
        let of_system =
            || inner.downcast_ref::<CallError>().and_then(CallError::errno).map(Refusal::Os);
        inner.downcast_ref::<Refusal>().copied().or_else(of_system)
    }
}

impl Refusal {
    /// What an [`io::Error`] of a kernel says.
    pub(crate) fn from_io(error: io::Error) -> Refusal {
        let of_kind = || match error.kind() {
            io::ErrorKind::Unsupported => Refusal::Unsupported,
            _ => Refusal::Os(libc::EIO),
        };
        Refusal::of(&error).or_else(|| os_errno(&error).map(Refusal::Os)).unwrap_or_else(of_kind)
    }
}

/// A refusal: the reason, and the refused value itself (with its buffer, if it is an operation).
///
/// A crate on top of this one has reasons of its own, of type `R`.
pub struct Refused<T, R = Refusal> {
    /// The refused value: an operation, a handle or a message.
    pub value: T,
    /// Why it was refused.
    pub reason: R,
}

impl<T, R> Refused<T, R> {
    /// Returns the refused value.
    pub fn into_inner(self) -> T {
        self.value
    }
}

impl<T, R: fmt::Debug> fmt::Debug for Refused<T, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Refused({:?})", self.reason)
    }
}

impl<T, R: fmt::Display> fmt::Display for Refused<T, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(f)
    }
}

impl<T, R: fmt::Debug + fmt::Display> std::error::Error for Refused<T, R> {}

impl<T> From<Refused<T>> for io::Error {
    fn from(rejected: Refused<T>) -> io::Error {
        rejected.reason.into()
    }
}

/// How an accepted operation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The system reported this errno.
    Os(i32),
    /// The operation's deadline passed.
    Deadline,
    /// The operation was cancelled.
    Cancelled,
    /// Its source was aborted.
    Aborted,
    /// The watcher was closed.
    Closed,
    /// An earlier write on the same source ended after only a part of its bytes was sent. So this
    /// write would have left a hole in the stream, and no byte of it was sent. A shutdown or a
    /// close with this error has done nothing: the source is as open as before.
    Torn,
    /// The file ended before `read_exact` had all its bytes; or a read met the end of a connection
    /// of records (seqpacket), where an empty buffer is an empty record.
    Eof,
    /// The job panicked. The buffer of the [`Error`] holds the text of the panic.
    Panicked,
    /// The process is a forked child, and the parent had submitted the operation before the fork:
    /// see [`Watcher::reinit_after_fork`](crate::Watcher::reinit_after_fork).
    Forked,
    /// The queued writes of the source exceeded
    /// [`Builder::write_limit`](crate::Builder::write_limit), and
    /// [`Overflow::Close`](crate::Overflow::Close) has aborted the source.
    Overflow,
    /// The directory has more than 65,536 entries, the most that
    /// [`Op::read_dir`](crate::Op::read_dir) reads. [`Op::read_dir_part`](crate::Op::read_dir_part)
    /// reads such a directory in parts.
    TooManyEntries,
}

/// The failure of an accepted operation: how it ended, how many bytes had moved, and its buffer.
pub struct Error {
    buf: Buf,
    /// An errno, or one of the negative codes below.
    code: i32,
    bytes: u32,
}

const _: () = assert!(size_of::<Error>() <= 32);

impl ErrorKind {
    const fn code(self) -> i32 {
        match self {
            ErrorKind::Os(errno) => errno,
            ErrorKind::Deadline => -1,
            ErrorKind::Cancelled => -2,
            ErrorKind::Aborted => -3,
            ErrorKind::Closed => -4,
            ErrorKind::Torn => -5,
            ErrorKind::Eof => -6,
            ErrorKind::Panicked => -7,
            ErrorKind::Forked => -8,
            ErrorKind::Overflow => -9,
            ErrorKind::TooManyEntries => -10,
        }
    }
}

impl Error {
    /// A failure of `kind` after the operation has moved `bytes` bytes (for authors of drivers).
    #[inline]
    pub fn new(kind: ErrorKind, bytes: u32, buf: Buf) -> Error {
        Error { buf, code: kind.code(), bytes }
    }

    /// How the operation ended.
    pub fn kind(&self) -> ErrorKind {
        match self.code {
            -1 => ErrorKind::Deadline,
            -2 => ErrorKind::Cancelled,
            -3 => ErrorKind::Aborted,
            -4 => ErrorKind::Closed,
            -5 => ErrorKind::Torn,
            -6 => ErrorKind::Eof,
            -7 => ErrorKind::Panicked,
            -8 => ErrorKind::Forked,
            -9 => ErrorKind::Overflow,
            -10 => ErrorKind::TooManyEntries,
            errno => ErrorKind::Os(errno),
        }
    }

    /// The errno, when the system reported one.
    pub fn raw_os_error(&self) -> Option<i32> {
        (self.code >= 0).then_some(self.code)
    }

    /// How many bytes had moved when the operation ended.
    pub fn bytes(&self) -> usize {
        self.bytes as usize
    }

    /// The operation's buffer. For a read it holds the bytes that had been read.
    pub fn buf(&self) -> &Buf {
        &self.buf
    }

    pub(crate) fn take_buf(&mut self) -> Buf {
        self.buf.take()
    }

    /// The operation's buffer. For a read it holds the bytes that had been read.
    pub fn into_buf(self) -> Buf {
        self.buf
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.kind())
            .field("bytes", &self.bytes)
            .field("buf", &self.buf)
            .finish()
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ErrorKind::Os(errno) => os_error(*errno).fmt(f),
            ErrorKind::Deadline => f.write_str("the deadline passed"),
            ErrorKind::Cancelled => f.write_str("the operation was cancelled"),
            ErrorKind::Aborted => f.write_str("the source was aborted"),
            ErrorKind::Closed => f.write_str("the watcher was closed"),
            ErrorKind::Torn => f.write_str("an earlier write was sent only in part"),
            ErrorKind::Eof => f.write_str("end of file before all bytes, or any record, were read"),
            ErrorKind::Panicked => f.write_str("the job panicked"),
            ErrorKind::Forked => f.write_str("since the fork, only the parent has this operation"),
            ErrorKind::Overflow => {
                f.write_str("the source was closed: its queued writes exceeded their limit")
            }
            ErrorKind::TooManyEntries => f.write_str(
                "the directory has more than 65536 entries (Op::read_dir_part reads it in parts)",
            ),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind().fmt(f)?;
        if self.bytes > 0 { write!(f, " (after {} bytes)", self.bytes) } else { Ok(()) }
    }
}

impl std::error::Error for Error {}

impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        let kind = match error.kind() {
            ErrorKind::Os(errno) => return os_error(errno),
            ErrorKind::Deadline => io::ErrorKind::TimedOut,
            ErrorKind::Cancelled
            | ErrorKind::Aborted
            | ErrorKind::Closed
            | ErrorKind::Forked
            | ErrorKind::Overflow => io::ErrorKind::ConnectionAborted,
            ErrorKind::Torn => io::ErrorKind::BrokenPipe,
            ErrorKind::Eof => io::ErrorKind::UnexpectedEof,
            ErrorKind::TooManyEntries => io::ErrorKind::QuotaExceeded,
            ErrorKind::Panicked => io::ErrorKind::Other,
        };
        io::Error::new(kind, error)
    }
}
