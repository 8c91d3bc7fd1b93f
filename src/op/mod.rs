//! Operations, and their common settings.
//!
//! ```text
//! op.rs              the type `Op`, and the settings of every operation
//! op/code.rs         the codes of operations, and what drivers know of each
//! op/stream.rs       bytes: read, write, shutdown, close
//! op/connection.rs   accept, connect
//! op/message.rs      datagrams, passed descriptors
//! op/process.rs      signals, the exit of children
//! op/wait.rs         timers, readiness, drained write queues
//! op/file.rs         files, names, look-ups and jobs
//! ```

mod code;
mod connection;
mod file;
mod message;
pub(crate) mod operation;
pub(crate) mod payload;
mod process;
mod stream;
mod wait;

pub use code::OpCode;
pub(crate) use code::{Family, WaitsIn};
pub use file::Priority;
pub(crate) use file::{HIGH, LOW};

use std::fmt;
use std::time::{Duration, Instant};

use crate::memory::buf::Buf;
use crate::op::payload::Payload;
use crate::words::clock::{self, Deadline};
use crate::words::source::Source;
#[cfg(doc)]
use crate::{Builder, Completion, Done, Error, ErrorKind, Limit, Overflow, Refusal, Watcher};

/// An operation, to be given to [`Watcher::submit`].
///
/// A constructor says what the operation does. Its methods add settings:
///
/// | method | meaning | default |
/// |---|---|---|
/// | [`token`](Op::token) | a number of yours, returned untouched | 0 |
/// | [`deadline`](Op::deadline), [`timeout`](Op::timeout) | the latest end | none |
/// | [`multishot`](Op::multishot) | stay in flight, and complete many times | one completion |
/// | [`quiet`](Op::quiet) | write: no completion if it succeeds | one completion |
/// | [`deferred`](Op::deferred) | datagram: send it at the next wait | send it at submission |
/// | [`priority`](Op::priority) | how urgent work for the threads is | normal |
///
/// An operation owns its buffer. Its completion gives the buffer back, even if the operation
/// failed. If `submit` refuses the operation, the refusal gives the buffer back.
///
/// ```
/// use std::time::Duration;
/// use windlass::{Done, Op, Watcher};
/// let mut watcher = Watcher::new()?;
/// watcher.submit(Op::timer(Duration::from_millis(1)).token(7))?;
/// let mut done = windlass::Completions::new();
/// watcher.wait(&mut done)?;
/// let timer = done.drain(..).next().unwrap();
/// assert_eq!(timer.token, 7);
/// assert!(matches!(timer.result, Ok(Done::Timer)));
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors of every operation
///
/// The page of each constructor lists the errors of its operation. Every operation can also meet
/// the errors below.
///
/// [`Watcher::submit`] can refuse an operation. Then it hands the operation back, and no completion
/// follows. The reasons are:
///
/// - [`Refusal::Closed`]: the watcher is closed.
/// - [`Refusal::Forked`]: the process is a fork of the one that built the watcher.
/// - [`Refusal::Stale`]: the source was aborted or detached, or an [`Op::close`] was submitted for
///   it.
/// - [`Refusal::Full`] with [`Limit::Operations`]: too many operations are in flight.
/// - [`Refusal::Full`] with [`Limit::Completions`]: too many completions wait for delivery.
/// - [`Refusal::Os`] with `EBADF`: other code has closed the descriptor before its first operation.
///
/// A [`Submitter`](crate::Submitter::submit) accepts an operation of another thread before the loop
/// sees it. If the loop then refuses the operation, the refusal comes as a completion.
///
/// An accepted operation ends in exactly one final completion. (A [quiet](Op::quiet) write that
/// succeeds ends without one.) If it fails, [`Error::kind`] says how, [`Error::bytes`] how many
/// bytes had moved, and [`Error::into_buf`] returns the buffer:
///
/// - [`ErrorKind::Deadline`]: its deadline has passed.
/// - [`ErrorKind::Cancelled`]: [`Watcher::cancel`] or [`Watcher::cancel_all`] has ended it.
/// - [`ErrorKind::Aborted`]: [`Watcher::abort`] or an [`Op::close`] has ended its source.
/// - [`ErrorKind::Overflow`]: the source's queued writes exceeded their limit, and
///   [`Overflow::Close`] has ended the source.
/// - [`ErrorKind::Closed`]: [`Watcher::close`] has ended all operations.
/// - [`ErrorKind::Forked`]: this process is a forked child, and the parent had submitted the
///   operation before the fork.
/// - [`ErrorKind::Os`]: the system reports an errno. The constructor's page lists the usual ones.
///   Any operation that has to wait can end with `ENOSPC` or `ENOMEM`: the selector takes no
///   further descriptor (epoll: `/proc/sys/fs/epoll/max_user_watches`). `EBADF` means that other
///   code has closed the descriptor.
///
/// `EINTR`, and `EAGAIN` of reads, writes and accepts, never end an operation on a socket or pipe:
/// the driver waits, and tries again. When no event will tell that another try is worth it (after
/// `ENOBUFS`, `ENOMEM`, and where a page of an operation says so), the driver pauses
/// first: for a millisecond, and twice as long after each further vain try, up to 32 milliseconds.
/// The pauses are of one direction of one source, they begin anew when it has moved, and a cancel
/// or a deadline does not wait for their end. On the poll driver a direction also pauses while a
/// condition holds that no try clears, for example an error in a queue that nobody reads.
///
/// # Cancellation of every operation
///
/// [`Watcher::cancel`] is a request, and the operation's completion is the answer. The completion
/// says how many bytes had moved, and returns the buffer. If the operation had ended already, the
/// cancel returns false, and the completion has the real result. A cancel or a deadline leaves the
/// source usable. On io_uring the kernel keeps the buffer of a read or write that it has begun,
/// until it answers. So the completion of a cancel may come one wait later.
///
/// Dropping the watcher drops the operations in flight: they get no completions. The drop waits at
/// most one second for the kernel and the threads. A buffer that the kernel uses for longer is
/// leaked and [counted](crate::driver::leaked_buffers).
///
/// # File work
///
/// A regular file, directory or block device is attached like any descriptor. Each operation on it
/// names the offset where it starts, and does not move the file's position (except on Windows).
/// Operations on one file have no order.
///
/// On Linux, `submit` itself reads data that is in the page cache. io_uring, Linux AIO (for
/// `O_DIRECT`) or worker threads do all other work: [`Watcher::explain`] says which. Other systems
/// have only the worker threads. Every driver offers the same operations. An operation on a path
/// needs no source; the source of its completion is [`Source::NONE`].
///
/// ## Errors of file work
///
/// File work, jobs and look-ups are also refused with:
///
/// - [`Refusal::NoFiles`]: the driver's kernel has no files.
/// - [`Refusal::Unsupported`]: the source is no regular file, directory or block device.
/// - [`Refusal::Full`] with [`Limit::Jobs`]: too many jobs are in flight for the threads
///   ([`Builder::max_jobs`]).
/// - [`Refusal::Os`]: no worker thread runs yet, and the system refuses to start one (`EAGAIN`).
///
/// ## Errors of paths
///
/// An operation on a path can end with:
///
/// - `ENOENT`: nothing has this name, a directory in the path does not exist, or the path is empty.
/// - `ENOTDIR`: a part of the path before the last is no directory.
/// - `EACCES`: the process may not search a directory in the path, or the operation needs a
///   permission that it lacks.
/// - `ELOOP`: the path leads through too many symbolic links.
/// - `ENAMETOOLONG`: the path, or a name in it, is too long.
/// - `EINVAL`: the path contains a NUL.
/// - `EROFS`, `ENOSPC`, `EDQUOT`: the operation would change a file system that is read-only or
///   full, or the user's quota is used up.
/// - `EMFILE`, `ENFILE`: the operation would open a file, and no descriptor is free.
/// - `EIO`: the device failed. On Windows, `EIO` also stands for every error that has no errno.
///
/// ## Cancellation of file work
///
/// A cancel, a deadline, an abort of the source, and a close of the watcher end an operation that
/// neither the kernel nor a thread has begun. An operation that has begun goes on, because a system
/// call on a file cannot be abandoned. It ends with its real result, and its completion is marked
/// as [late](Completion::is_late). The result says whether the work was done. The descriptor of an
/// aborted source stays open until the work on it has ended.
#[must_use = "an operation does nothing until it is submitted"]
pub struct Op {
    pub(crate) source: Source,
    pub(crate) token: u64,
    /// An absolute time (nanoseconds of `clock`), or a span with the bit `RELATIVE`. 0 means no
    /// deadline.
    pub(crate) deadline_ns: u64,
    pub(crate) buf: Buf,
    pub(crate) payload: Payload,
    pub(crate) count: u32,
    pub(crate) code: OpCode,
    pub(crate) flags: u8,
}

const _: () = assert!(size_of::<Op>() <= 64);

/// The operation stays in flight after a completion.
pub(crate) const MULTISHOT: u8 = 1;
/// `deadline_ns` counts from the submission.
pub(crate) const RELATIVE: u64 = 1 << 63;
/// A timer has a deadline in addition to its own time, in the field that file operations use for
/// the offset.
pub(crate) const LIMITED: u8 = 1 << 3;
/// That deadline counts from the submission.
const LIMITED_RELATIVE: u8 = 1 << 4;
/// The operation makes no completion if it succeeds.
pub(crate) const QUIET: u8 = 1 << 5;
/// The driver may send it at the next wait, together with others.
pub(crate) const DEFERRED: u8 = 1 << 6;

/// A time in the form that an operation stores: from 1 ns to 292 years.
fn bounded(ns: u64) -> u64 {
    ns.clamp(1, RELATIVE - 1)
}

/// A deadline in the form of `deadline_ns`.
pub(crate) fn due_ns(due: Deadline) -> u64 {
    match due {
        Deadline::At(at) => bounded(clock::ns_of(at)),
        Deadline::After(span) => bounded(clock::ns_of_duration(span)) | RELATIVE,
    }
}

impl Op {
    #[inline(always)]
    pub(crate) const fn plain(code: OpCode, source: Source) -> Op {
        Op {
            source,
            token: 0,
            deadline_ns: 0,
            buf: Buf::NONE,
            payload: Payload::NONE,
            count: 0,
            code,
            flags: 0,
        }
    }

    #[inline(always)]
    pub(crate) fn with_buf(code: OpCode, source: Source, buf: Buf) -> Op {
        Op { buf, ..Op::plain(code, source) }
    }
}

/// Settings that every operation can have, and the fields of an operation.
impl Op {
    /// Sets the token: a number that the completion returns unchanged. Any `u64`; the default is 0.
    ///
    /// The driver does not look at it. Two operations may have the same token.
    ///
    /// # Platforms
    ///
    /// The same everywhere, also in the simulation.
    ///
    /// An example is at [`Op`].
    #[inline(always)]
    pub const fn token(mut self, token: u64) -> Op {
        self.token = token;
        self
    }

    /// Ends the operation with [`ErrorKind::Deadline`] if it has not ended by `deadline`.
    ///
    /// If the deadline has passed at submission, the driver still tries the operation once,
    /// provided that it is at the head of its queue. So data that has already arrived wins over the
    /// deadline. The source stays usable. On a timer, the earlier of the deadline and the timer's
    /// own time ends it. If a program calls both `deadline` and [`timeout`](Op::timeout), the last
    /// call counts. The deadline of a [multishot](Op::multishot) operation limits the whole
    /// operation: its completions do not extend the deadline. [`Watcher::reschedule_at`] moves the
    /// deadline of an operation in flight.
    ///
    /// # Errors
    ///
    /// The operation ends with [`ErrorKind::Deadline`], the bytes that had moved, and its buffer.
    ///
    /// # Platforms
    ///
    /// A deadline is never early on any driver. It is late by no more than the granularity of the
    /// system's wait, as for [`Op::timer`]. In the simulation, use the times of [`Watcher::now`].
    ///
    /// # Cancellation
    ///
    /// A deadline has the effect of a cancel, which the constructor's page describes. File work
    /// that has begun is not ended: its completion is marked as [late](Completion::is_late).
    ///
    /// An example is at [`Op::timeout`].
    #[inline]
    pub fn deadline(mut self, deadline: Instant) -> Op {
        let deadline_ns = bounded(clock::ns_of(deadline));
        if self.code == OpCode::Timer {
            return self.limit(deadline_ns, LIMITED);
        }
        self.deadline_ns = deadline_ns;
        self
    }

    /// As [`Op::deadline`], counted from the submission. A timeout of more than 292 years counts as
    /// 292 years.
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass::{Completions, ErrorKind, Op, Watcher};
    /// let mut watcher = Watcher::new()?;
    /// let (ours, _silent) = std::os::unix::net::UnixStream::pair()?;
    /// let source = watcher.attach(ours)?;
    /// watcher.submit(Op::read(source).timeout(Duration::from_millis(5)))?;
    /// let mut done = Completions::new();
    /// watcher.wait(&mut done)?;
    /// assert_eq!(done.drain(..).next().unwrap().error_kind(), Some(ErrorKind::Deadline));
    /// watcher.submit(Op::read(source))?; // the source is as usable as before
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`Op::deadline`].
    ///
    /// # Platforms
    ///
    /// As for [`Op::deadline`].
    ///
    /// # Cancellation
    ///
    /// As for [`Op::deadline`].
    #[inline]
    pub fn timeout(mut self, timeout: Duration) -> Op {
        let timeout_ns = bounded(clock::ns_of_duration(timeout));
        if self.code == OpCode::Timer {
            return self.limit(timeout_ns, LIMITED | LIMITED_RELATIVE);
        }
        self.deadline_ns = timeout_ns | RELATIVE;
        self
    }

    /// Gives a timer a deadline in addition to its own time.
    #[cold]
    fn limit(mut self, ns: u64, flags: u8) -> Op {
        self.payload = Payload::offset(ns);
        self.flags = self.flags & !(LIMITED | LIMITED_RELATIVE) | flags;
        self
    }

    /// A timer's deadline in addition to its own time, in the form of `deadline_ns`. 0 means none.
    pub(crate) fn limit_ns(&self) -> u64 {
        match self.flags & (LIMITED | LIMITED_RELATIVE) {
            0 => 0,
            LIMITED => self.payload.as_offset(),
            _ => self.payload.as_offset() | RELATIVE,
        }
    }

    #[inline]
    pub(crate) fn is_multishot(&self) -> bool {
        self.flags & MULTISHOT != 0
    }

    /// Keeps the operation in flight after a completion, until it fails or ends.
    ///
    /// [`Completion::has_more`] is true for every completion but the last. A
    /// [deadline](Op::deadline) ends the operation, however many completions it has had. The
    /// setting works on [`Op::accept`], [`Op::read`], [`Op::recv_from`], [`Op::send_file`],
    /// [`Op::signal`], [`Op::readable`] and [`Op::writable`]; other operations ignore it.
    ///
    /// ```
    /// use std::io::Write;
    /// use windlass::{Completions, Done, Op, Watcher};
    /// let mut watcher = Watcher::new()?;
    /// let (ours, mut theirs) = std::os::unix::net::UnixStream::pair()?;
    /// let source = watcher.attach(ours)?;
    /// watcher.submit(Op::read(source).multishot())?;
    /// let mut done = Completions::new();
    /// for text in ["one", "two"] {
    ///     theirs.write_all(text.as_bytes())?;
    ///     watcher.wait(&mut done)?;
    ///     let c = done.drain(..).next().unwrap();
    ///     assert!(c.has_more());
    ///     let Ok(Done::Read(data)) = c.result else { panic!() };
    ///     assert_eq!(&*data, text.as_bytes());
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// An error ends the operation: submit it again to go on. An accept skips a connection that
    /// fails, and goes on.
    ///
    /// # Platforms
    ///
    /// io_uring repeats reads of streams in the kernel where it can; elsewhere the driver repeats
    /// the operation. The completions are the same.
    ///
    /// # Cancellation
    ///
    /// Leases and sockets that were delivered stay valid. Bytes that were not delivered stay in the
    /// socket, and connections in the backlog.
    #[inline(always)]
    pub const fn multishot(mut self) -> Op {
        use OpCode::{Accept, Read, Readable, RecvFrom, SendFile, Signal, Writable};
        // A receive into a buffer of its own has one buffer, and so one completion.
        let repeats = match self.code {
            RecvFrom => self.count == 0,
            code => matches!(code, Read | Accept | SendFile | Signal | Readable | Writable),
        };
        if repeats {
            self.flags |= MULTISHOT;
        }
        self
    }

    /// A write makes no completion if it succeeds.
    ///
    /// Use it in programs that do nothing when a write is done: a server that answers, a proxy that
    /// passes bytes on. A write that fails makes its one completion, with its buffer: after an
    /// error of the system, a deadline, a cancel, an abort, a close, an overflow, or the failure of
    /// an earlier write. So the program still learns of every failure.
    ///
    /// When a quiet write succeeds, the driver drops its buffer, on the loop's thread. It catches a
    /// panic of the owner's `Drop`, and [counts](crate::driver::panicked_drops) it. Leases go back
    /// to the pool without another wait.
    ///
    /// Until it ends, the write is an operation in flight: it counts in
    /// [`in_flight`](crate::Counters::in_flight) and [`Watcher::queued_bytes`],
    /// [`Op::wait_drained`] waits for it, and a write limit bounds it. Once it has succeeded, it
    /// counts in [`quiet_done`](crate::Counters::quiet_done). Its success does not end a
    /// [`Watcher::wait`]: with only quiet writes in flight, a wait may block for ever. To learn
    /// when all writes are sent, submit an [`Op::wait_drained`] of 0 bytes.
    ///
    /// ```
    /// use std::io::Read;
    /// use windlass::{Completions, Op, Watcher};
    /// let mut watcher = Watcher::new()?;
    /// let (ours, mut theirs) = std::os::unix::net::UnixStream::pair()?;
    /// let source = watcher.attach(ours)?;
    /// watcher.submit(Op::write(source, "hello").quiet())?;
    /// let mut text = [0; 5];
    /// theirs.read_exact(&mut text)?;
    /// assert_eq!(watcher.try_wait(&mut Completions::new())?, 0);
    /// assert_eq!(watcher.counters().quiet_done, 1);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Op::write`] and [`Op::write_vectored`] can be quiet. Every other operation is refused with
    /// [`Refusal::Unsupported`], because a program waits for its result. If another thread submits
    /// it, the refusal is a completion, as all refusals that only the loop can decide.
    ///
    /// # Platforms
    ///
    /// The same everywhere, also in the simulation.
    ///
    /// # Cancellation
    ///
    /// The ticket goes stale when the write succeeds: a later [`Watcher::cancel`] returns false.
    /// After a cancel that returned true, a completion follows, even if the kernel takes all bytes.
    #[inline(always)]
    pub const fn quiet(mut self) -> Op {
        self.flags |= QUIET;
        self
    }

    /// The code of the operation.
    #[inline]
    pub const fn code(&self) -> OpCode {
        self.code
    }

    /// Whether the operation makes no completion if it succeeds: [`Op::quiet`].
    #[inline]
    pub const fn is_quiet(&self) -> bool {
        self.flags & QUIET != 0
    }

    /// Sets another token, and returns the one before: for a layer that passes on operations of its
    /// program and knows them by tokens of its own.
    #[inline]
    pub const fn replace_token(&mut self, token: u64) -> u64 {
        std::mem::replace(&mut self.token, token)
    }

    /// The source that the operation is for, or [`Source::NONE`].
    #[inline]
    pub const fn source(&self) -> Source {
        self.source
    }

    /// The buffer of the operation.
    pub fn buf(&self) -> &Buf {
        &self.buf
    }

    /// Takes the buffer out of an operation that was refused.
    pub fn into_buf(self) -> Buf {
        self.buf
    }
}

impl fmt::Debug for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Op")
            .field("code", &self.code)
            .field("source", &self.source)
            .field("token", &self.token)
            .field("deadline_ns", &self.deadline_ns)
            .field("buf", &self.buf)
            .finish_non_exhaustive()
    }
}
