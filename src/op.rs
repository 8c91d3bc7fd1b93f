//! Operations: what can be submitted.

use std::fmt;
use std::time::{Duration, Instant};

use crate::address::Address;
use crate::buf::Buf;
use crate::clock;
use crate::driver::Deadline;
use crate::extra::Extra;
use crate::interest::Ready;
use crate::source::{Handle, Source};
use crate::sys::fd::OwnedFd;
#[cfg(doc)]
use crate::{Builder, Completion, Done, Error, ErrorKind, Limit, Overflow, Reason, Watcher};

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum OpCode {
    /// Completes at the next wait.
    Nop,
    /// Completes at its deadline.
    Timer,
    /// Reads what is there into a lease.
    Read,
    /// Reads what is there into the operation's buffer.
    ReadInto,
    /// Fills `count` bytes of the operation's buffer.
    ReadExact,
    /// Writes all bytes of the buffer.
    Write,
    /// Takes a connection from a listener.
    Accept,
    /// Connects a new socket.
    Connect,
    /// Shuts the writing side after the writes before it.
    Shutdown,
    /// Receives one datagram and its sender.
    RecvFrom,
    /// Sends one datagram.
    SendTo,
    /// Receives bytes and passed descriptors.
    RecvDescriptors,
    /// Sends bytes and descriptors.
    SendDescriptors,
    /// Waits for readiness.
    Poll,
    /// Closes the source after the writes before it.
    Close,
    /// Waits until few bytes are queued for writing.
    WaitDrained,
    /// Reads a file at an offset.
    ReadAt,
    /// Writes a file at an offset.
    WriteAt,
    /// Everything that a file was written is on the disk.
    SyncAll,
    /// As `SyncAll`, without the metadata that reading does not need.
    SyncData,
    /// Sends a file's bytes over a socket.
    SendFile,
    /// What threads do: opening, renaming, looking names up, work of the program.
    Task,
    /// Not an operation: the code of a message from another thread.
    Message,
}

impl OpCode {
    /// How many codes there are.
    pub const COUNT: usize = OpCode::Message as usize + 1;

    /// Every code, in the order of their numbers.
    pub const ALL: [OpCode; OpCode::COUNT] = [
        OpCode::Nop,
        OpCode::Timer,
        OpCode::Read,
        OpCode::ReadInto,
        OpCode::ReadExact,
        OpCode::Write,
        OpCode::Accept,
        OpCode::Connect,
        OpCode::Shutdown,
        OpCode::RecvFrom,
        OpCode::SendTo,
        OpCode::RecvDescriptors,
        OpCode::SendDescriptors,
        OpCode::Poll,
        OpCode::Close,
        OpCode::WaitDrained,
        OpCode::ReadAt,
        OpCode::WriteAt,
        OpCode::SyncAll,
        OpCode::SyncData,
        OpCode::SendFile,
        OpCode::Task,
        OpCode::Message,
    ];

    /// Whether it stands in the queue of its source's reads.
    pub(crate) const fn is_read(self) -> bool {
        use OpCode::*;
        matches!(self, Read | ReadInto | ReadExact | Accept | RecvFrom | RecvDescriptors)
    }
}

/// An operation, to be given to [`Watcher::submit`].
///
/// A constructor says what to do; the methods add what every operation can have:
///
/// | method | meaning | default |
/// |---|---|---|
/// | [`token`](Op::token) | a number of yours, returned untouched | 0 |
/// | [`deadline`](Op::deadline), [`timeout`](Op::timeout) | when the operation ends at the latest | none |
/// | [`multishot`](Op::multishot) | accept and read: stay in flight, complete again and again | once |
/// | [`priority`](Op::priority) | how urgent work for the threads is | normal |
///
/// An operation owns its buffer: it is moved in here and moved back with the completion, also when
/// that is an error, and with the refusal, if `submit` refuses.
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
/// The page of each constructor lists the errors of its operation. The ones below come on top, and
/// are not repeated there.
///
/// [`Watcher::submit`] refuses an operation, hands it back and reports nothing later, with:
///
/// - [`Reason::Closed`]: the watcher is closed.
/// - [`Reason::Forked`]: the process is a fork of the one that built the watcher.
/// - [`Reason::Stale`]: the source was aborted or detached, or an [`Op::close`] was submitted for
///   it.
/// - [`Reason::Full`] with [`Limit::Operations`]: too many operations are in flight.
/// - [`Reason::Full`] with [`Limit::Completions`]: too many completions wait for delivery.
/// - [`Reason::Os`] with `EBADF`: other code has closed the descriptor before its first operation.
///
/// [`Submitter::submit`](crate::Submitter::submit) delivers these refusals as completions.
///
/// An accepted operation ends in exactly one final completion. If it fails, [`Error::kind`] says
/// how, [`Error::bytes`] how many bytes had moved, and [`Error::into_buf`] returns the buffer:
///
/// - [`ErrorKind::Deadline`]: its deadline has passed.
/// - [`ErrorKind::Cancelled`]: [`Watcher::cancel`] or [`Watcher::cancel_all`] has ended it.
/// - [`ErrorKind::Aborted`]: [`Watcher::abort`] or an [`Op::close`] has ended its source.
/// - [`ErrorKind::Overflow`]: as `Aborted`, by [`Overflow::Close`].
/// - [`ErrorKind::Closed`]: [`Watcher::close`] has ended everything.
/// - [`ErrorKind::Forked`]: the parent had submitted it before the process was forked.
/// - [`ErrorKind::Os`]: the system reports an errno. Besides those of the constructor's page these
///   can be `ENOSPC` and `ENOMEM`, when the operation has to wait and the selector takes no further
///   descriptor (epoll: `/proc/sys/fs/epoll/max_user_watches`); `EBADF`, when other code has closed
///   the descriptor; and on io_uring `EIO`, when the kernel has lost an answer.
///
/// `EAGAIN` and `EINTR` never end an operation on a socket or pipe. After `ENOBUFS` and `ENOMEM` of
/// a read, write or accept the driver tries again, every millisecond.
///
/// # Cancellation of every operation
///
/// [`Watcher::cancel`] is a request, and the operation's completion is the answer. It counts the
/// bytes that had moved, and returns the buffer. If the operation was done already, the cancel
/// returns false and the completion has the real result. A cancel or deadline leaves the source
/// usable. On io_uring the kernel owns the buffers of the reads and writes that it has begun until
/// it answers, so that the completion of a cancel may need another wait.
///
/// Dropping the watcher drops operations without completions. It waits at most one second for the
/// kernel and the threads; a buffer that the kernel still uses then is leaked and
/// [counted](crate::driver::leaked_buffers).
///
/// # File work
///
/// A regular file, directory or block device is attached like any descriptor. Its operations say
/// where they start, keep no order among each other, and leave the file's position alone. What is
/// in the page cache is read at once; the rest is done by io_uring, Linux AIO (for `O_DIRECT`) or
/// threads, as [`Watcher::explain`] tells. An operation on a path needs no source; the source of
/// its completion is [`Source::NONE`].
///
/// **Errors.** File work, jobs and look-ups are also refused with:
///
/// - [`Reason::NoFiles`]: the watcher runs on a [simulation](crate::sim), which has no files.
/// - [`Reason::Unsupported`]: the source is no regular file, directory or block device.
/// - [`Reason::Full`] with [`Limit::Jobs`]: too many jobs are in flight for the threads
///   ([`Builder::max_jobs`]).
/// - [`Reason::Os`]: no thread runs yet, and the system allows none (`EAGAIN`).
///
/// An operation on a path can end with:
///
/// - `ENOENT`: nothing has this name, or a directory on the way does not exist; the path is empty.
/// - `ENOTDIR`: something on the way is no directory.
/// - `EACCES`: the process may not search a directory on the way, or not do this.
/// - `ELOOP`: too many symbolic links on the way.
/// - `ENAMETOOLONG`: the path, or a name in it, is too long.
/// - `EINVAL`: the path contains a NUL.
/// - `EROFS`, `ENOSPC`, `EDQUOT`: the file system is read-only, or full, or the user's quota is,
///   for what changes something.
/// - `EMFILE`, `ENFILE`: out of descriptors, for what opens something.
/// - `EIO`: the device failed. Windows' errors that have no errno are `EIO`, too.
///
/// **Cancellation.** A cancel, deadline, abort or close of the watcher takes back what neither
/// kernel nor thread has begun. What has begun goes on, because a system call on a file cannot be
/// abandoned: the operation ends with its real result, and its completion is marked
/// [`is_late`](Completion::is_late). Whether it was done is then in the result, not in the cancel.
/// The descriptor of an aborted source stays open until the work on it has ended.
///
/// **Platforms.** epoll, kqueue, poll, io_uring and Windows do the same, by different mechanisms.
/// The threads are the only one on macOS, FreeBSD and Windows.
#[must_use = "an operation does nothing until it is submitted"]
pub struct Op {
    pub(crate) source: Source,
    pub(crate) token: u64,
    /// Absolute (nanoseconds of `clock`), or a span with the bit `RELATIVE`; 0 is none.
    pub(crate) deadline_ns: u64,
    pub(crate) buf: Buf,
    pub(crate) extra: Extra,
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

/// A time as an operation carries it: at least 1, clamped to 292 years.
fn bounded(ns: u64) -> u64 {
    ns.clamp(1, RELATIVE - 1)
}

/// A deadline as `deadline_ns` carries it.
pub(crate) fn due_ns(due: Deadline) -> u64 {
    match due {
        Deadline::At(at) => bounded(clock::ns_of(at)),
        Deadline::After(span) => bounded(clock::ns_of_duration(span)) | RELATIVE,
    }
}

/// The deadline of a timer with these flags and this extra: see [`Op::limit_ns`].
pub(crate) fn limit_ns(flags: u8, extra: &Extra) -> u64 {
    match flags & (LIMITED | LIMITED_RELATIVE) {
        0 => 0,
        LIMITED => extra.as_offset(),
        _ => extra.as_offset() | RELATIVE,
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
            extra: Extra::NONE,
            count: 0,
            code,
            flags: 0,
        }
    }

    #[inline(always)]
    pub(crate) fn with_buf(code: OpCode, source: Source, buf: Buf) -> Op {
        Op { source, token: 0, deadline_ns: 0, buf, extra: Extra::NONE, count: 0, code, flags: 0 }
    }

    /// An operation that does nothing.
    ///
    /// Completes with [`Done::Nop`] at the next wait.
    ///
    /// ```
    /// use windlass::{Completions, Done, Op, Watcher};
    /// let mut watcher = Watcher::new()?;
    /// watcher.submit(Op::nop().token(1))?;
    /// let mut done = Completions::new();
    /// watcher.wait(&mut done)?;
    /// assert!(matches!(done.drain(..).next().unwrap().result, Ok(Done::Nop)));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// It never fails. It is refused as [every operation](Op#errors-of-every-operation) is; it
    /// takes no place among the operations in flight, so that only [`Limit::Completions`] bounds
    /// it.
    ///
    /// # Platforms
    ///
    /// The same everywhere, also in the simulation.
    ///
    /// # Cancellation
    ///
    /// It has ended when `submit` returns: a cancel finds it stale, and a deadline has no effect.
    pub const fn nop() -> Op {
        Op::plain(OpCode::Nop, Source::NONE)
    }

    /// A timer that ends when `span` has passed since submission.
    ///
    /// Completes with [`Done::Timer`]: never early, late by no more than the wait's granularity.
    /// Timers of equal deadline complete in the order of submission. A `span` beyond 292 years
    /// counts as 292 years; zero ends at the next wait. [`Watcher::reschedule`] gives a timer
    /// another time.
    ///
    /// A timer may have a deadline, too. The earlier of the two ends the timer: its own time with
    /// [`Done::Timer`], its deadline with [`ErrorKind::Deadline`].
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass::{Completions, Done, Op, Watcher};
    /// let mut watcher = Watcher::new()?;
    /// watcher.submit(Op::timer(Duration::from_millis(20)).token(2))?;
    /// watcher.submit(Op::timer(Duration::from_millis(1)).token(1))?;
    /// let mut done = Completions::new();
    /// watcher.wait(&mut done)?;
    /// let first = done.drain(..).next().unwrap();
    /// assert_eq!(first.token, 1);
    /// assert!(matches!(first.result, Ok(Done::Timer)));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The system has no part in a timer: it fails only as [every
    /// operation](Op#errors-of-every-operation) does.
    ///
    /// # Platforms
    ///
    /// The clock is the system's monotonic one, which on Linux stands still while the machine is
    /// suspended. A wait is late by microseconds, or by up to a millisecond where the system's wait
    /// takes milliseconds: Windows, poll(2) on macOS. In the simulation, time is virtual and the
    /// timer exact.
    ///
    /// # Cancellation
    ///
    /// A cancelled timer ends with [`ErrorKind::Cancelled`]. There is nothing to undo.
    pub fn timer(span: Duration) -> Op {
        let mut op = Op::plain(OpCode::Timer, Source::NONE);
        op.deadline_ns = bounded(clock::ns_of_duration(span)) | RELATIVE;
        op
    }

    /// As [`Op::timer`], at an absolute time.
    ///
    /// Completes with [`Done::Timer`]. A time that has passed ends it at the next wait.
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass::{Completions, Op, Watcher};
    /// let mut watcher = Watcher::new()?;
    /// let at = watcher.now() + Duration::from_millis(2);
    /// watcher.submit(Op::timer_at(at))?;
    /// watcher.wait(&mut Completions::new())?;
    /// assert!(watcher.update_now() >= at);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`Op::timer`].
    ///
    /// # Platforms
    ///
    /// As for [`Op::timer`]. In the simulation, use the times of [`Watcher::now`].
    ///
    /// # Cancellation
    ///
    /// As for [`Op::timer`].
    pub fn timer_at(deadline: Instant) -> Op {
        let mut op = Op::plain(OpCode::Timer, Source::NONE);
        op.deadline_ns = bounded(clock::ns_of(deadline));
        op
    }

    /// Reads what is there, at least one byte, into library-owned memory.
    ///
    /// Completes with [`Done::Read`]: a [`Lease`](crate::Lease) of at most [`Builder::buffer_size`]
    /// bytes, or nothing at the end of the file. While it waits it holds no buffer. With
    /// [`multishot`](Op::multishot) it goes on until the end of the file, an error, or a cancel.
    /// When the swap buffers reach their limit ([`Builder::swap_limit`]) it waits for a lease to
    /// come back.
    ///
    /// Of a datagram socket it takes one datagram; an empty one looks like the end of a file and is
    /// none. [`Op::recv_from`] returns the sender, and whether the datagram was longer than a swap
    /// buffer.
    ///
    /// ```
    /// use std::io::Write;
    /// use windlass::{Completions, Done, Op, Watcher};
    /// let mut watcher = Watcher::new()?;
    /// let (ours, mut theirs) = std::os::unix::net::UnixStream::pair()?;
    /// let source = watcher.attach(ours)?;
    /// watcher.submit(Op::read(source))?;
    /// theirs.write_all(b"hello")?;
    /// let mut done = Completions::new();
    /// watcher.wait(&mut done)?;
    /// let Ok(Done::Read(data)) = done.drain(..).next().unwrap().result else { panic!() };
    /// assert_eq!(&*data, b"hello");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Refused, besides as [every operation](Op#errors-of-every-operation), with:
    ///
    /// - [`Reason::Unsupported`]: the source is a listener, a regular file, a directory or a block
    ///   device.
    ///
    /// Ends with:
    ///
    /// - `ECONNRESET`: the peer has reset the connection.
    /// - `ETIMEDOUT`: the peer does not answer any more (keep-alive, `TCP_USER_TIMEOUT`).
    /// - `EHOSTUNREACH`, `ENETUNREACH`: the network to the peer is broken.
    /// - `ECONNREFUSED`: an earlier datagram of a connected socket has found no receiver.
    /// - `ENOTCONN`: the stream socket was never connected.
    /// - `EBADF`: the descriptor is not open for reading, for example a pipe's writing end.
    /// - `EIO`: a terminal has hung up, or the process is in its background.
    ///
    /// One error is reported once, to the operation that meets it first; after a reset the stream
    /// is at its end.
    ///
    /// # Platforms
    ///
    /// io_uring reads streams in the kernel, from Linux 6.12 on. All else, and every other driver,
    /// reads with recv(2) or read(2) once the selector has reported bytes. Windows reads sockets
    /// only. The simulation has stream and datagram sockets.
    ///
    /// # Cancellation
    ///
    /// An ended read has taken no bytes: they stay where they were, for the next read. Leases that
    /// a multishot read has delivered remain valid.
    #[inline(always)]
    pub const fn read(source: Source) -> Op {
        Op::plain(OpCode::Read, source)
    }

    /// Reads what is there, at least one byte, into `buf`.
    ///
    /// Completes with [`Done::Read`] and the buffer, its length the bytes read: 0 at the end of the
    /// file. `buf` is a `Vec<u8>`, whose whole capacity is offered from its start, or a list of
    /// them, which are filled one after the other. It has room for 1 to 2^31 - 1 bytes. The part of
    /// a datagram that does not fit is lost, and only [`Op::recv_from_into`] says so.
    ///
    /// ```
    /// use std::io::Write;
    /// use windlass::{Completions, Done, Op, Watcher};
    /// let mut watcher = Watcher::new()?;
    /// let (ours, mut theirs) = std::os::unix::net::UnixStream::pair()?;
    /// let source = watcher.attach(ours)?;
    /// theirs.write_all(b"hello")?;
    /// watcher.submit(Op::read_into(source, Vec::with_capacity(4)))?;
    /// let mut done = Completions::new();
    /// watcher.wait(&mut done)?;
    /// let Ok(Done::Read(data)) = done.drain(..).next().unwrap().result else { panic!() };
    /// assert_eq!(data.into_vec(), b"hell"); // the same memory; "o" is for the next read
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`Op::read`]. It is also refused with:
    ///
    /// - [`Reason::EmptyBuffer`]: `buf` has no room.
    /// - [`Reason::TooLong`]: `buf` has room for more than 2^31 - 1 bytes.
    ///
    /// And it ends with `EINVAL` if the descriptor wants more room than there is: an eventfd or a
    /// timerfd is read by eight bytes.
    ///
    /// # Platforms
    ///
    /// As for [`Op::read`], with one difference: io_uring reads a stream into one buffer in the
    /// kernel on every release, and waits with a list until bytes are there.
    ///
    /// # Cancellation
    ///
    /// An ended read has taken no bytes. The buffer comes back with length 0 and its capacity.
    #[inline]
    pub fn read_into(source: Source, buf: impl Into<Buf>) -> Op {
        Op::with_buf(OpCode::ReadInto, source, buf.into())
    }

    /// As [`Op::read_into`] with several vectors, which are filled in order: readv(2).
    ///
    /// Completes with [`Done::Read`] and the list. The number of vectors is not bounded: one system
    /// call takes 64 of them.
    ///
    /// ```
    /// use std::io::Write;
    /// use windlass::{Completions, Done, Op, Watcher};
    /// let mut watcher = Watcher::new()?;
    /// let (ours, mut theirs) = std::os::unix::net::UnixStream::pair()?;
    /// let source = watcher.attach(ours)?;
    /// theirs.write_all(b"headbody")?;
    /// let parts = vec![Vec::with_capacity(4), Vec::with_capacity(100)];
    /// watcher.submit(Op::read_vectored(source, parts))?;
    /// let mut done = Completions::new();
    /// watcher.wait(&mut done)?;
    /// let Ok(Done::Read(data)) = done.drain(..).next().unwrap().result else { panic!() };
    /// assert_eq!((&*data.parts()[0], &*data.parts()[1]), (&b"head"[..], &b"body"[..]));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`Op::read_into`].
    ///
    /// # Platforms
    ///
    /// As for [`Op::read_into`].
    ///
    /// # Cancellation
    ///
    /// As for [`Op::read_into`]: the list comes back, each vector with length 0.
    pub fn read_vectored(source: Source, bufs: Vec<Vec<u8>>) -> Op {
        Op::with_buf(OpCode::ReadInto, source, Buf::list(bufs))
    }

    /// Reads exactly `count` bytes into `buf`.
    ///
    /// Completes with [`Done::Read`] and the buffer, its length `count`. The operation takes bytes
    /// as they arrive, and no byte more. `count` is 1 to 2^31 - 1, and at most the capacity of
    /// `buf`.
    ///
    /// ```
    /// use std::io::Write;
    /// use windlass::{Completions, Done, Op, Watcher};
    /// let mut watcher = Watcher::new()?;
    /// let (ours, mut theirs) = std::os::unix::net::UnixStream::pair()?;
    /// let source = watcher.attach(ours)?;
    /// watcher.submit(Op::read_exact(source, Vec::with_capacity(8), 8))?;
    /// theirs.write_all(b"head")?;
    /// theirs.write_all(b"erbody")?;
    /// let mut done = Completions::new();
    /// watcher.wait(&mut done)?;
    /// let Ok(Done::Read(data)) = done.drain(..).next().unwrap().result else { panic!() };
    /// assert_eq!(&*data, b"headerbo");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`Op::read`]. It is also refused with:
    ///
    /// - [`Reason::BadCount`]: `count` is 0, or more than `buf` has room for.
    /// - [`Reason::TooLong`]: `count`, and the room of `buf`, are more than 2^31 - 1 bytes.
    ///
    /// And it ends with:
    ///
    /// - [`ErrorKind::Eof`]: the file ends before `count` bytes. The buffer holds those that came.
    ///
    /// Every error comes with the bytes that were read before it.
    ///
    /// # Platforms
    ///
    /// As for [`Op::read_into`].
    ///
    /// # Cancellation
    ///
    /// The bytes that it has taken are in the buffer, and [`Error::bytes`] counts them. They do not
    /// go back into the socket: a program that goes on reading the stream starts behind them.
    #[inline]
    pub fn read_exact(source: Source, buf: impl Into<Buf>, count: usize) -> Op {
        let mut op = Op::with_buf(OpCode::ReadExact, source, buf.into());
        op.count = u32::try_from(count).unwrap_or(u32::MAX);
        op
    }

    /// Writes all bytes of `buf`; a stream's short writes are continued.
    ///
    /// Completes with [`Done::Written`] and the buffer, when the kernel has all bytes. Writes of a
    /// source go out in the order of their submission. `buf` has 1 to 2^31 - 1 bytes. To a datagram
    /// socket with a peer, it is one datagram.
    ///
    /// An example is at [`Op::read`] the other way round; this one sends a string:
    ///
    /// ```
    /// use std::io::Read;
    /// use windlass::{Completions, Done, Op, Watcher};
    /// let mut watcher = Watcher::new()?;
    /// let (ours, mut theirs) = std::os::unix::net::UnixStream::pair()?;
    /// let source = watcher.attach(ours)?;
    /// watcher.submit(Op::write(source, "hello"))?;
    /// let mut done = Completions::new();
    /// watcher.wait(&mut done)?;
    /// let result = done.drain(..).next().unwrap().result;
    /// assert!(matches!(result, Ok(Done::Written { bytes: 5, .. })));
    /// let mut text = [0; 5];
    /// theirs.read_exact(&mut text)?;
    /// assert_eq!(&text, b"hello");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Refused, besides as [every operation](Op#errors-of-every-operation), with:
    ///
    /// - [`Reason::EmptyBuffer`]: `buf` has no bytes.
    /// - [`Reason::TooLong`]: `buf` has more than 2^31 - 1 bytes.
    /// - [`Reason::Unsupported`]: the source is a listener, a regular file, a directory or a block
    ///   device.
    /// - [`Reason::Full`] with [`Limit::Writes`]: the source has too many bytes queued
    ///   ([`Builder::write_limit`]).
    ///
    /// Ends with:
    ///
    /// - `EPIPE`: the peer reads no more, or this side was shut down before; on Linux also a stream
    ///   socket that was never connected.
    /// - `ECONNRESET`: the peer has reset the connection.
    /// - `ETIMEDOUT`, `EHOSTUNREACH`, `ENETUNREACH`: the peer cannot be reached any more.
    /// - `EBADF`: the descriptor is not open for writing, for example a pipe's reading end.
    /// - `EDESTADDRREQ`: a datagram socket without a peer; `EMSGSIZE`: a datagram that is too long.
    /// - [`ErrorKind::Torn`]: a write before it ended partly sent; no byte of this one was sent.
    ///
    /// An error does not say which bytes the peer has read, only how many the kernel had taken.
    ///
    /// # Platforms
    ///
    /// io_uring sends to streams in the kernel when the socket had no room at submission. Sockets
    /// raise no SIGPIPE on any system. A pipe whose reader is gone raises it, unless the program
    /// ignores it, as Rust programs do. Windows writes to sockets only. The simulation has stream
    /// and datagram sockets.
    ///
    /// # Cancellation
    ///
    /// Bytes that the kernel has taken cannot be called back: [`Error::bytes`] counts them, and the
    /// whole buffer comes back. If some are out, but not all, the writes and the [`Op::shutdown`]
    /// or [`Op::close`] that are queued behind end as [`ErrorKind::Torn`], so that the stream has
    /// no hole. Later writes are sent.
    #[inline(always)]
    pub fn write(source: Source, buf: impl Into<Buf>) -> Op {
        Op::with_buf(OpCode::Write, source, buf.into())
    }

    /// Writes all bytes of all `bufs` in order, without copying them together: writev(2).
    ///
    /// Completes with [`Done::Written`] and the list. All parts together have 1 to 2^31 - 1 bytes;
    /// a part may be empty. Their number is not bounded: one system call takes 64 of them. To a
    /// datagram socket, all parts are one datagram, which is copied together if they are more than
    /// 64.
    ///
    /// ```
    /// use std::io::Read;
    /// use windlass::{Buf, Completions, Op, Watcher};
    /// let mut watcher = Watcher::new()?;
    /// let (ours, mut theirs) = std::os::unix::net::UnixStream::pair()?;
    /// let source = watcher.attach(ours)?;
    /// let parts = vec![Buf::from("head"), Buf::from(vec![b'!'; 4])];
    /// watcher.submit(Op::write_vectored(source, parts))?;
    /// watcher.wait(&mut Completions::new())?;
    /// let mut text = [0; 8];
    /// theirs.read_exact(&mut text)?;
    /// assert_eq!(&text, b"head!!!!");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`Op::write`].
    ///
    /// # Platforms
    ///
    /// As for [`Op::write`]. Windows sends the parts one by one when they are more than 64 KiB
    /// together.
    ///
    /// # Cancellation
    ///
    /// As for [`Op::write`]; [`Error::bytes`] counts from the first part on.
    pub fn write_vectored(source: Source, bufs: Vec<Buf>) -> Op {
        Op::with_buf(OpCode::Write, source, Buf::list(bufs))
    }

    /// Takes a connection from a listener.
    ///
    /// Completes with [`Done::Accepted`]. With [`multishot`](Op::multishot) it takes connections
    /// until it is cancelled. Connections that were aborted before they could be taken are passed
    /// over.
    ///
    /// It stays in flight, and the listener pauses, when:
    ///
    /// - descriptors run out (`EMFILE`, `ENFILE`): the connection at the head is accepted and
    ///   closed with a spare descriptor, so that its client is told;
    /// - the watcher has no room for another source ([`Builder::max_sources`]);
    /// - the network fails (`ENETDOWN`, `EPROTO`) or a filter forbids the call (`EPERM`), which
    ///   removes no connection. After about a second of such errors the operation ends with the
    ///   error.
    ///
    /// ```
    /// use windlass::{Completions, Done, Op, Watcher};
    /// let mut watcher = Watcher::new()?;
    /// let listener = watcher.listen(([127, 0, 0, 1], 0))?;
    /// let address = watcher.local_address(listener)?;
    /// watcher.submit(Op::accept(listener))?;
    /// let client = std::net::TcpStream::connect(address.ip().unwrap())?;
    /// let mut done = Completions::new();
    /// watcher.wait(&mut done)?;
    /// let Ok(Done::Accepted(socket)) = done.drain(..).next().unwrap().result else { panic!() };
    /// let server = watcher.attach(socket)?;
    /// assert_eq!(watcher.peer_address(server)?.ip(), Some(client.local_addr()?));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Refused, besides as [every operation](Op#errors-of-every-operation), with:
    ///
    /// - [`Reason::Unsupported`]: the source does not listen, or is a duplicate of a blocking
    ///   listener ([`Watcher::attach_dup`]).
    ///
    /// Ends with:
    ///
    /// - `EINVAL`: the socket does not listen any more.
    /// - `ENETDOWN`, `ENETUNREACH`, `EHOSTDOWN`, `EHOSTUNREACH`, `EPROTO`, `ENOPROTOOPT`, on Linux
    ///   `ENONET`: the network has failed for about a second.
    /// - `EPERM`: a filter (seccomp, a firewall) has forbidden accepts for about a second.
    ///
    /// # Platforms
    ///
    /// accept4(2) on every driver, once the selector has reported a connection; io_uring's ring is
    /// the selector. macOS has accept(2) and fcntl(2): a fork between the two passes the descriptor
    /// on. The simulation has listeners of its own.
    ///
    /// # Cancellation
    ///
    /// No connection is lost: what was taken is delivered before the end, what was not stays in the
    /// backlog for the next accept. An accepted socket in a completion that is dropped unread is
    /// closed.
    #[inline]
    pub const fn accept(listener: Source) -> Op {
        Op::plain(OpCode::Accept, listener)
    }

    /// Opens a stream socket and connects it to `address`.
    ///
    /// Completes with [`Done::Connected`] and the socket, non-blocking and closed on exec. The
    /// source of its completion is [`Source::NONE`]. While it lasts it counts as a source. Give it
    /// a [`timeout`](Op::timeout): the system's own takes minutes.
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass::{Completions, Done, Op, Watcher};
    /// let mut watcher = Watcher::new()?;
    /// let server = std::net::TcpListener::bind("127.0.0.1:0")?;
    /// watcher.submit(Op::connect(server.local_addr()?).timeout(Duration::from_secs(5)))?;
    /// let mut done = Completions::new();
    /// watcher.wait(&mut done)?;
    /// let Ok(Done::Connected(socket)) = done.drain(..).next().unwrap().result else { panic!() };
    /// let client = watcher.attach(socket)?;
    /// assert_eq!(watcher.peer_address(client)?.ip(), Some(server.local_addr()?));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Refused, besides as [every operation](Op#errors-of-every-operation), with:
    ///
    /// - [`Reason::Full`] with [`Limit::Sources`]: the source table is full.
    ///
    /// Ends with:
    ///
    /// - `ECONNREFUSED`: no socket listens there.
    /// - `ETIMEDOUT`: the peer did not answer in the system's time.
    /// - `EHOSTUNREACH`, `ENETUNREACH`: there is no way to the peer.
    /// - `ENOENT`: no socket has this path (Unix sockets).
    /// - `EACCES`: the process may not write to the socket at this path; `EACCES`, `EPERM`: a
    ///   firewall forbids the connection, or the address is a broadcast address.
    /// - `EADDRNOTAVAIL`, `EAGAIN`: no local port is free.
    /// - `EAFNOSUPPORT`: the system has no such sockets; [`Address::unspecified`] belongs to none.
    /// - `EMFILE`, `ENFILE`: out of descriptors.
    ///
    /// # Platforms
    ///
    /// A non-blocking connect(2) on every driver. Where the backlog of a Unix listener is full,
    /// Linux refuses with `EAGAIN`: the driver tries again every millisecond. Windows has no Unix
    /// sockets (`EAFNOSUPPORT`). The simulation connects to listeners of its own world.
    ///
    /// # Cancellation
    ///
    /// The socket is closed, and with it the attempt. The peer may have seen the connection
    /// nevertheless, and then sees its end.
    pub fn connect(address: impl Into<Address>) -> Op {
        let mut op = Op::plain(OpCode::Connect, Source::NONE);
        op.extra = Extra::from(address.into());
        op
    }

    /// As [`Op::connect`] with a socket of yours, which may be bound and have options set.
    ///
    /// Completes with [`Done::Connected`] and the socket. It may be of any kind that connect(2)
    /// takes: for a datagram socket, this sets its peer. The socket is made non-blocking, and stays
    /// so.
    ///
    /// ```
    /// use windlass::{Completions, Done, Op, Watcher};
    /// let mut watcher = Watcher::new()?;
    /// let server = std::net::UdpSocket::bind("127.0.0.1:0")?;
    /// let socket = std::net::UdpSocket::bind("127.0.0.1:0")?;
    /// watcher.submit(Op::connect_with(socket, server.local_addr()?))?;
    /// let mut done = Completions::new();
    /// watcher.wait(&mut done)?;
    /// assert!(matches!(done.drain(..).next().unwrap().result, Ok(Done::Connected(_))));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`Op::connect`]. It is also refused with:
    ///
    /// - [`Reason::NoDescriptor`]: the handle is of a simulated kernel.
    ///
    /// And it ends with:
    ///
    /// - `ENOTSOCK`: the descriptor is no socket.
    /// - `EISCONN`: the socket is connected already.
    /// - `EAFNOSUPPORT`, `EINVAL`: the address is of another family than the socket.
    ///
    /// Whatever the error, the socket is closed.
    ///
    /// # Platforms
    ///
    /// As for [`Op::connect`]. The simulation has no descriptors: it ends with `EOPNOTSUPP` there.
    ///
    /// # Cancellation
    ///
    /// As for [`Op::connect`]: the socket is closed, and does not come back.
    pub fn connect_with(socket: impl Into<Handle>, address: impl Into<Address>) -> Op {
        let mut op = Op::plain(OpCode::Connect, Source::NONE);
        let mut address = address.into();
        match socket.into().into_fd() {
            Ok(fd) => address.set_descriptors(vec![fd]),
            Err(_virtual_handle) => op.count = 1,
        }
        op.extra = Extra::from(address);
        op
    }

    /// Shuts the writing side down after the writes that were queued before it.
    ///
    /// Completes with [`Done::Shutdown`]. The peer reads the end of the file, and this side can
    /// still read.
    ///
    /// ```
    /// use windlass::{Completions, Op, Watcher};
    /// let mut watcher = Watcher::new()?;
    /// let (ours, mut theirs) = std::os::unix::net::UnixStream::pair()?;
    /// let source = watcher.attach(ours)?;
    /// watcher.submit(Op::write(source, "all of it"))?;
    /// watcher.submit(Op::shutdown(source))?;
    /// let mut done = Completions::new();
    /// while done.len() < 2 {
    ///     watcher.wait(&mut done)?;
    /// }
    /// assert_eq!(std::io::read_to_string(&mut theirs)?, "all of it");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Refused, besides as [every operation](Op#errors-of-every-operation), with:
    ///
    /// - [`Reason::Unsupported`]: the source is no socket.
    ///
    /// Ends with:
    ///
    /// - `ENOTCONN`: the socket is not connected, or not any more.
    /// - [`ErrorKind::Torn`]: a write before it ended partly sent. It was not done: the peer must
    ///   not take what it has for all.
    ///
    /// # Platforms
    ///
    /// shutdown(2) on every driver. On macOS and FreeBSD a second shutdown may end with `ENOTCONN`.
    ///
    /// # Cancellation
    ///
    /// The writing side stays open; the writes before it go on. Once the writes before it are out
    /// it is done at once, and cannot be cancelled any more.
    pub const fn shutdown(source: Source) -> Op {
        Op::plain(OpCode::Shutdown, source)
    }

    /// Receives one datagram into library-owned memory.
    ///
    /// Completes with [`Done::Received`], which says where from, and whether the datagram was
    /// longer than a swap buffer ([`Builder::buffer_size`]). On a connected socket, and from an
    /// unnamed Unix socket, the sender is [unspecified](Address::is_unspecified). When the swap
    /// buffers reach their limit it waits for a lease to come back.
    ///
    /// ```
    /// use windlass::{Completions, Done, Op, Watcher};
    /// let mut watcher = Watcher::new()?;
    /// let ours = std::net::UdpSocket::bind("127.0.0.1:0")?;
    /// let theirs = std::net::UdpSocket::bind("127.0.0.1:0")?;
    /// theirs.send_to(b"ping", ours.local_addr()?)?;
    /// let source = watcher.attach(ours)?;
    /// watcher.submit(Op::recv_from(source))?;
    /// let mut done = Completions::new();
    /// watcher.wait(&mut done)?;
    /// let result = done.drain(..).next().unwrap().result;
    /// let Ok(Done::Received { data, from, truncated: false }) = result else { panic!() };
    /// assert_eq!((&*data, from.ip()), (&b"ping"[..], Some(theirs.local_addr()?)));
    /// watcher.submit(Op::send_to(source, data, from))?; // back to the sender, without a copy
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Refused, besides as [every operation](Op#errors-of-every-operation), with:
    ///
    /// - [`Reason::Unsupported`]: the source is no datagram or seqpacket socket.
    ///
    /// Ends with:
    ///
    /// - `ECONNREFUSED`: an earlier datagram of this connected socket has found no receiver.
    /// - `ECONNRESET`, `ENOTCONN`: a seqpacket socket whose connection was reset, or that has none.
    ///
    /// # Platforms
    ///
    /// recvmsg(2) on every driver; Windows passes over the resets that unconnected sockets report
    /// there. The simulation delivers, loses and reorders datagrams as its faults say.
    ///
    /// # Cancellation
    ///
    /// An ended receive has taken no datagram.
    pub const fn recv_from(source: Source) -> Op {
        Op::plain(OpCode::RecvFrom, source)
    }

    /// As [`Op::recv_from`], into `buf`, which is one buffer.
    ///
    /// Completes with [`Done::Received`] and the buffer, its length that of the datagram. `buf` has
    /// room for 1 to 2^31 - 1 bytes; what does not fit is lost, and `truncated` says so.
    ///
    /// ```
    /// use windlass::{Completions, Done, Op, Watcher};
    /// let mut watcher = Watcher::new()?;
    /// let ours = std::net::UdpSocket::bind("127.0.0.1:0")?;
    /// std::net::UdpSocket::bind("127.0.0.1:0")?.send_to(b"too long", ours.local_addr()?)?;
    /// let source = watcher.attach(ours)?;
    /// watcher.submit(Op::recv_from_into(source, Vec::with_capacity(3)))?;
    /// let mut done = Completions::new();
    /// watcher.wait(&mut done)?;
    /// let result = done.drain(..).next().unwrap().result;
    /// let Ok(Done::Received { data, truncated: true, .. }) = result else { panic!() };
    /// assert_eq!(&*data, b"too");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`Op::recv_from`]. It is also refused with:
    ///
    /// - [`Reason::EmptyBuffer`]: `buf` has no room.
    /// - [`Reason::TooLong`]: `buf` has room for more than 2^31 - 1 bytes.
    /// - [`Reason::Unsupported`]: `buf` is a list.
    ///
    /// # Platforms
    ///
    /// As for [`Op::recv_from`].
    ///
    /// # Cancellation
    ///
    /// An ended receive has taken no datagram. The buffer comes back with length 0 and its
    /// capacity.
    pub fn recv_from_into(source: Source, buf: impl Into<Buf>) -> Op {
        let mut op = Op::with_buf(OpCode::RecvFrom, source, buf.into());
        op.count = 1;
        op
    }

    /// Sends `buf` as one datagram to `address`.
    ///
    /// Completes with [`Done::Written`] and the buffer, when the kernel has taken the datagram. An
    /// empty one can be sent. [`Address::unspecified`] stands for the peer of a connected socket.
    /// Sends of a source go out in the order of their submission.
    ///
    /// An example is at [`Op::recv_from`].
    ///
    /// # Errors
    ///
    /// Refused, besides as [every operation](Op#errors-of-every-operation), with:
    ///
    /// - [`Reason::Unsupported`]: the source is no datagram or seqpacket socket, or `buf` is a
    ///   list.
    /// - [`Reason::TooLong`]: `buf` has more than 2^31 - 1 bytes.
    /// - [`Reason::Full`] with [`Limit::Writes`]: the source has too many bytes queued
    ///   ([`Builder::write_limit`]).
    ///
    /// Ends with:
    ///
    /// - `EMSGSIZE`: the datagram is longer than the protocol or the send buffer allows (UDP over
    ///   IPv4: 65,507 bytes).
    /// - `EDESTADDRREQ`: no address, and the socket has no peer.
    /// - `ECONNREFUSED`: no socket listens at the Unix path; or an earlier datagram found no
    ///   receiver.
    /// - `ENOENT`: nothing has this path (Unix sockets).
    /// - `EHOSTUNREACH`, `ENETUNREACH`: there is no way to the address.
    /// - `EACCES`: a broadcast address without `SO_BROADCAST`; a Unix path that may not be written
    ///   to.
    /// - `EAFNOSUPPORT`: the address is of another family than the socket.
    ///
    /// # Platforms
    ///
    /// sendmsg(2) on every driver. No selector reports that the queue of a Unix receiver has room
    /// again: while it is full, the driver tries every millisecond. macOS and FreeBSD answer
    /// `EISCONN` where a connected socket is given an address.
    ///
    /// # Cancellation
    ///
    /// A datagram is sent whole or not at all: an ended send has sent nothing, and those queued
    /// behind it go out.
    pub fn send_to(source: Source, buf: impl Into<Buf>, address: impl Into<Address>) -> Op {
        let mut op = Op::with_buf(OpCode::SendTo, source, buf.into());
        op.extra = Extra::from(address.into());
        op
    }

    /// Sends `buf` and `descriptors` over a Unix socket: `SCM_RIGHTS`.
    ///
    /// Completes with [`Done::Written`] and the buffer. `buf` has 1 to 2^31 - 1 bytes; at most 253
    /// descriptors travel with its first one. They are closed here when the operation ends, however
    /// it ends.
    ///
    /// ```
    /// use std::io::Read;
    /// use std::os::unix::net::UnixStream;
    /// use windlass::{Completions, Done, Op, Watcher};
    /// let mut watcher = Watcher::new()?;
    /// let (a, b) = UnixStream::pair()?;
    /// let (a, b) = (watcher.attach(a)?, watcher.attach(b)?);
    /// let (reader, writer) = std::io::pipe()?;
    /// watcher.submit(Op::send_descriptors(a, "a pipe", vec![reader.into()]))?;
    /// watcher.submit(Op::recv_descriptors(b))?;
    /// let mut done = Completions::new();
    /// while done.len() < 2 {
    ///     watcher.wait(&mut done)?;
    /// }
    /// let mut passed = Vec::new();
    /// for c in done.drain(..) {
    ///     if let Done::Descriptors { data, descriptors } = c.result? {
    ///         assert_eq!(&*data, b"a pipe");
    ///         passed = descriptors.take();
    ///     }
    /// }
    /// drop(writer);
    /// let mut pipe = std::fs::File::from(passed.pop().unwrap());
    /// assert_eq!(pipe.read(&mut [0; 9])?, 0); // its only writer is gone
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Refused, besides as [every operation](Op#errors-of-every-operation), with:
    ///
    /// - [`Reason::EmptyBuffer`], [`Reason::TooLong`]: `buf` has no bytes, or more than 2^31 - 1.
    /// - [`Reason::Unsupported`]: the source is no Unix stream, datagram or seqpacket socket, or
    ///   `buf` is a list.
    /// - [`Reason::Full`] with [`Limit::Writes`]: the source has too many bytes queued
    ///   ([`Builder::write_limit`]).
    ///
    /// Ends with the errors of [`Op::write`], and with:
    ///
    /// - `EINVAL`: more than 253 descriptors.
    /// - `ETOOMANYREFS`: the process has too many descriptors on their way (Linux: as many as
    ///   `RLIMIT_NOFILE`).
    ///
    /// # Platforms
    ///
    /// sendmsg(2) on every Unix. Windows refuses it as unsupported. The simulation refuses it, too,
    /// or ends it with `EOPNOTSUPP`.
    ///
    /// # Cancellation
    ///
    /// As for [`Op::write`]. The descriptors go with the first byte: if [`Error::bytes`] is 0, the
    /// peer has none of them.
    pub fn send_descriptors(source: Source, buf: impl Into<Buf>, descriptors: Vec<OwnedFd>) -> Op {
        let mut op = Op::with_buf(OpCode::SendDescriptors, source, buf.into());
        let mut address = Address::unspecified();
        address.set_descriptors(descriptors);
        op.extra = Extra::from(address);
        op
    }

    /// Receives bytes and the descriptors that came with them over a Unix socket.
    ///
    /// Completes with [`Done::Descriptors`]: bytes in library-owned memory, at most
    /// [`Builder::buffer_size`], none at the end of the file; and the descriptors, closed on exec.
    /// It waits for a lease as [`Op::read`] does. Other reads close the descriptors that come with
    /// their bytes.
    ///
    /// An example is at [`Op::send_descriptors`].
    ///
    /// # Errors
    ///
    /// Refused, besides as [every operation](Op#errors-of-every-operation), with:
    ///
    /// - [`Reason::Unsupported`]: the source is no Unix stream, datagram or seqpacket socket.
    ///
    /// Ends with the errors of [`Op::read`]. The system closes the descriptors that are beyond the
    /// process' limit (`RLIMIT_NOFILE`), without an error.
    ///
    /// # Platforms
    ///
    /// recvmsg(2) on every Unix; macOS sets `CLOEXEC` after the call, so that a fork between the
    /// two passes the descriptors on. Windows refuses it as unsupported. The simulation refuses it,
    /// too, or ends it with `EOPNOTSUPP`.
    ///
    /// # Cancellation
    ///
    /// An ended receive has taken neither bytes nor descriptors. Descriptors in a completion that
    /// is dropped unread are closed.
    pub const fn recv_descriptors(source: Source) -> Op {
        Op::plain(OpCode::RecvDescriptors, source)
    }

    /// Waits until one of the conditions in `interest` holds.
    ///
    /// Completes with [`Done::Ready`]: those of the conditions that hold. Errors and hang-ups are
    /// always reported. It takes any descriptor that poll(2) understands: sockets, listeners,
    /// pipes, eventfd, timerfd, pidfd, terminals. It asks poll(2) first, then waits for the next
    /// edge. It takes no bytes and has no place in the order of reads and writes.
    ///
    /// ```
    /// use std::io::Write;
    /// use windlass::{Completions, Done, Op, Ready, Watcher};
    /// let mut watcher = Watcher::new()?;
    /// let (ours, mut theirs) = std::os::unix::net::UnixStream::pair()?;
    /// let source = watcher.attach(ours)?;
    /// watcher.submit(Op::poll(source, Ready::READABLE))?;
    /// theirs.write_all(b"!")?;
    /// let mut done = Completions::new();
    /// watcher.wait(&mut done)?;
    /// let Ok(Done::Ready(ready)) = done.drain(..).next().unwrap().result else { panic!() };
    /// assert!(ready.contains(Ready::READABLE));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Refused, besides as [every operation](Op#errors-of-every-operation), with:
    ///
    /// - [`Reason::Unsupported`]: the source is a regular file, a directory or a block device.
    ///
    /// It ends with an errno only as every operation does: `ENOSPC`, `ENOMEM`, `EBADF`.
    ///
    /// # Platforms
    ///
    /// kqueue reports a hang-up as a half-close unless a write waits, too; urgent data is not told
    /// on FreeBSD, a half-close with the poll driver on Linux only. On Windows, sockets only. The
    /// simulation has the conditions of its sockets.
    ///
    /// # Cancellation
    ///
    /// There is nothing to undo. A condition that came true just before the end is there for the
    /// next poll.
    pub const fn poll(source: Source, interest: Ready) -> Op {
        let mut op = Op::plain(OpCode::Poll, source);
        op.count = interest.bits() as u32;
        op
    }

    /// Waits until at most `bytes` of queued writes are still to go out on the source.
    ///
    /// Completes with [`Done::Drained`], at the next wait if that is so already. `bytes` is the
    /// low-water mark of back-pressure, beside [`Watcher::queued_bytes`] for the high one; 0 waits
    /// for all of them. Bytes whose write has failed count as gone: the completions of the writes
    /// say what became of them.
    ///
    /// ```
    /// use std::io::Read;
    /// use windlass::{Completions, Done, Op, Watcher};
    /// let mut watcher = Watcher::new()?;
    /// let (ours, mut theirs) = std::os::unix::net::UnixStream::pair()?;
    /// let source = watcher.attach(ours)?;
    /// watcher.submit(Op::write(source, vec![0; 4 << 20]).token(1))?;
    /// watcher.submit(Op::wait_drained(source, 1 << 20).token(2))?;
    /// assert!(watcher.queued_bytes(source)? > 1 << 20); // more than the socket takes
    /// let slow = std::thread::spawn(move || theirs.read_exact(&mut vec![0; 4 << 20]));
    /// let mut done = Completions::new();
    /// watcher.wait(&mut done)?;
    /// let first = done.drain(..).next().unwrap();
    /// assert!(first.token == 2 && matches!(first.result, Ok(Done::Drained)));
    /// assert!(watcher.queued_bytes(source)? <= 1 << 20);
    /// # while watcher.queued_bytes(source)? > 0 {
    /// #     watcher.wait(&mut done)?;
    /// # }
    /// # slow.join().unwrap()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The system has no part in it: it fails only as [every
    /// operation](Op#errors-of-every-operation) does.
    ///
    /// # Platforms
    ///
    /// The same everywhere, also in the simulation. What the kernel has taken does not count as
    /// queued, whether the peer has it or not; on io_uring a write that the kernel has begun counts
    /// until it answers.
    ///
    /// # Cancellation
    ///
    /// The writes go on; only the wait ends.
    pub const fn wait_drained(source: Source, bytes: usize) -> Op {
        let mut op = Op::plain(OpCode::WaitDrained, source);
        op.count = if bytes > u32::MAX as usize { u32::MAX } else { bytes as u32 };
        op
    }

    /// Closes the source after the writes that were queued before it: flush, then close.
    ///
    /// Completes with [`Done::Closed`]. Reads and polls that are still pending end before it, with
    /// [`ErrorKind::Aborted`]. Submissions after it are refused as stale. A source without
    /// operations closes within `submit` (not a file), and takes no place in the table of
    /// operations for it.
    ///
    /// [`Watcher::abort`] closes at once. After an [`Op::close`] it does not wait for the writes:
    /// it cuts the flush short.
    ///
    /// A file is closed by a worker thread once the work on it has ended, because close(2) frees on
    /// the disk what a removed file had there. (Without room for another job, the loop closes it.)
    ///
    /// ```
    /// use windlass::{Completions, Op, Reason, Watcher};
    /// let mut watcher = Watcher::new()?;
    /// let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
    /// let source = watcher.attach(ours)?;
    /// watcher.submit(Op::write(source, "goodbye"))?;
    /// watcher.submit(Op::close(source))?;
    /// let mut done = Completions::new();
    /// while done.len() < 2 {
    ///     watcher.wait(&mut done)?;
    /// }
    /// assert_eq!(std::io::read_to_string(theirs)?, "goodbye");
    /// assert_eq!(watcher.submit(Op::read(source)).unwrap_err().reason, Reason::Stale);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Refused as [every operation](Op#errors-of-every-operation). Ends with:
    ///
    /// - [`ErrorKind::Torn`]: a write before it ended partly sent (a cancel, a deadline, a reset
    ///   connection). The source was not closed, because the close promises that everything is out.
    ///   [`Watcher::abort`] closes it.
    /// - `EIO`, `ENOSPC`, `EDQUOT`, `EINTR`, of a file: written data may be lost. Network file
    ///   systems and FUSE may report it only here. The descriptor is closed and the source is gone
    ///   all the same.
    ///
    /// # Platforms
    ///
    /// close(2) on every driver. Errors of close(2) on sockets and pipes mean nothing, and are not
    /// reported. In the simulation it closes the simulated socket.
    ///
    /// # Cancellation
    ///
    /// Before the writes are out, a cancel or deadline ends it and leaves the source as it is. Then
    /// nothing takes it back: a file that a thread closes is closed, and its completion is
    /// [`is_late`](Completion::is_late).
    pub const fn close(source: Source) -> Op {
        Op::plain(OpCode::Close, source)
    }

    /// Sets the number that the completion returns untouched: any `u64`, 0 if it is not set.
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
    /// A deadline that has passed already gives the operation a single try, if it is at the head of
    /// its queue: data that is there wins. The source stays usable. A timer keeps its own time: the
    /// earlier of the two ends it. Of `deadline` and [`timeout`](Op::timeout) the last call counts.
    /// The deadline of a [multishot](Op::multishot) operation limits its whole life: completions do
    /// not extend it. [`Watcher::reschedule_at`] moves the deadline of an operation in flight.
    ///
    /// # Errors
    ///
    /// The operation ends with [`ErrorKind::Deadline`], the bytes that had moved, and its buffer.
    ///
    /// # Platforms
    ///
    /// Never early, on any driver; late by no more than the wait's granularity, as [`Op::timer`].
    /// In the simulation, use the times of [`Watcher::now`].
    ///
    /// # Cancellation
    ///
    /// A deadline leaves what a cancel leaves: the constructor's page says what that is. File work
    /// that has begun is not ended: it completes [`is_late`](Completion::is_late).
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

    /// As [`Op::deadline`], counted from the submission. Beyond 292 years it counts as 292 years.
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
        self.extra = Extra::offset(ns);
        self.flags = self.flags & !(LIMITED | LIMITED_RELATIVE) | flags;
        self
    }

    /// A timer's deadline in addition to its own time, in the form of `deadline_ns`; 0 is none.
    pub(crate) fn limit_ns(&self) -> u64 {
        limit_ns(self.flags, &self.extra)
    }

    /// Keeps the operation in flight after a completion, until it fails or ends.
    ///
    /// All completions but the last have [`has_more`](Completion::has_more) set. A
    /// [deadline](Op::deadline) ends it, however many completions it has had. It works on
    /// [`Op::accept`], [`Op::read`] and [`Op::send_file`]; other operations ignore it.
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
    /// An error ends the operation: submit it again to go on. An accept passes over the errors that
    /// concern one connection.
    ///
    /// # Platforms
    ///
    /// io_uring repeats reads of streams in the kernel where it can; elsewhere the driver repeats
    /// the operation. The completions are the same.
    ///
    /// # Cancellation
    ///
    /// What was delivered stays valid. Bytes and connections that were not delivered stay where
    /// they were.
    #[inline(always)]
    pub const fn multishot(mut self) -> Op {
        if matches!(self.code, OpCode::Read | OpCode::Accept | OpCode::SendFile) {
            self.flags |= MULTISHOT;
        }
        self
    }

    /// What it does.
    #[inline]
    pub const fn code(&self) -> OpCode {
        self.code
    }

    /// The source it is for; [`Source::NONE`] where it needs none.
    #[inline]
    pub const fn source(&self) -> Source {
        self.source
    }

    /// Its buffer.
    pub fn buf(&self) -> &Buf {
        &self.buf
    }

    /// Takes its buffer back out of a refused operation.
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
