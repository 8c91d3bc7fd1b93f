//! Operations: what can be submitted.

use std::fmt;
use std::time::{Duration, Instant};

use crate::address::Address;
use crate::buf::Buf;
use crate::clock;
use crate::driver::Due;
use crate::extra::Extra;
use crate::interest::Ready;
use crate::source::{Handle, Source};
use crate::sys::fd::OwnedFd;

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum Code {
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
    /// Frees the source after the writes before it.
    Close,
    /// Waits until few bytes are queued for writing.
    Drained,
    /// Reads a file at an offset.
    ReadAt,
    /// Writes a file at an offset.
    WriteAt,
    /// Everything that a file was written is on the disk.
    Sync,
    /// As `Sync`, without the metadata that reading does not need.
    DataSync,
    /// Sends a file's bytes over a socket.
    SendFile,
    /// What threads do: opening, renaming, looking names up, work of the program.
    Task,
    /// Not an operation: the code of a message from another thread.
    Message,
}

impl Code {
    /// How many codes there are.
    pub const COUNT: usize = Code::Message as usize + 1;

    /// Every code, in the order of their numbers.
    pub const ALL: [Code; Code::COUNT] = [
        Code::Nop,
        Code::Timer,
        Code::Read,
        Code::ReadInto,
        Code::ReadExact,
        Code::Write,
        Code::Accept,
        Code::Connect,
        Code::Shutdown,
        Code::RecvFrom,
        Code::SendTo,
        Code::RecvDescriptors,
        Code::SendDescriptors,
        Code::Poll,
        Code::Close,
        Code::Drained,
        Code::ReadAt,
        Code::WriteAt,
        Code::Sync,
        Code::DataSync,
        Code::SendFile,
        Code::Task,
        Code::Message,
    ];

    /// Whether it stands in the queue of its source's reads.
    pub(crate) const fn is_read(self) -> bool {
        use Code::*;
        matches!(self, Read | ReadInto | ReadExact | Accept | RecvFrom | RecvDescriptors)
    }
}

/// An operation, to be given to [`Watcher::submit`](crate::Watcher::submit).
///
/// A constructor says what to do; the methods add what every operation can have:
///
/// | method | meaning | default |
/// |---|---|---|
/// | [`token`](Op::token) | a number of yours, returned untouched | 0 |
/// | [`deadline`](Op::deadline), [`timeout`](Op::timeout) | when the operation ends at the latest | none |
/// | [`multishot`](Op::multishot) | accept and read: stay in flight, complete again and again | once |
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
#[must_use = "an operation does nothing until it is submitted"]
pub struct Op {
    pub(crate) source: Source,
    pub(crate) token: u64,
    /// Absolute (nanoseconds of `clock`), or a span with the bit `RELATIVE`; 0 is none.
    pub(crate) deadline_ns: u64,
    pub(crate) buf: Buf,
    pub(crate) extra: Extra,
    pub(crate) count: u32,
    pub(crate) code: Code,
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
pub(crate) fn due_ns(due: Due) -> u64 {
    match due {
        Due::At(at) => bounded(clock::ns_of(at)),
        Due::After(span) => bounded(clock::ns_of_duration(span)) | RELATIVE,
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
    pub(crate) const fn plain(code: Code, source: Source) -> Op {
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
    pub(crate) fn with_buf(code: Code, source: Source, buf: Buf) -> Op {
        Op { source, token: 0, deadline_ns: 0, buf, extra: Extra::NONE, count: 0, code, flags: 0 }
    }

    /// Completes with [`Done::Nop`](crate::Done::Nop) at the next wait.
    pub const fn nop() -> Op {
        Op::plain(Code::Nop, Source::NONE)
    }

    /// Completes with [`Done::Timer`](crate::Done::Timer) when `span` has passed since submission:
    /// never early, late by no more than the wait's granularity. Timers of equal deadline complete
    /// in the order of submission.
    ///
    /// A timer may have a deadline, too. The earlier of the two ends the timer: its own time with
    /// [`Done::Timer`](crate::Done::Timer), its deadline with
    /// [`ErrorKind::Deadline`](crate::ErrorKind::Deadline).
    pub fn timer(span: Duration) -> Op {
        let mut op = Op::plain(Code::Timer, Source::NONE);
        op.deadline_ns = bounded(clock::ns_of_duration(span)) | RELATIVE;
        op
    }

    /// As [`timer`](Op::timer), at an absolute time.
    pub fn timer_at(deadline: Instant) -> Op {
        let mut op = Op::plain(Code::Timer, Source::NONE);
        op.deadline_ns = bounded(clock::ns_of(deadline));
        op
    }

    /// Reads what is there, at least one byte, into library-owned memory.
    ///
    /// Completes with [`Done::Read`](crate::Done::Read): a [`Lease`](crate::Lease), or nothing at
    /// the end of the file. While it waits it holds no buffer. With
    /// [`multishot`](Op::multishot) it goes on until the end of the file, an error, or a cancel.
    /// When the swap buffers' limit is reached it waits for a lease to come back.
    ///
    /// Of a datagram socket it takes one datagram; an empty one looks like the end of a file and is
    /// none. Use [`recv_from`](Op::recv_from) to know the sender, or whether it was longer than a
    /// swap buffer.
    #[inline(always)]
    pub const fn read(source: Source) -> Op {
        Op::plain(Code::Read, source)
    }

    /// Reads what is there, at least one byte, into `buf`: the whole capacity of a `Vec<u8>` from
    /// its start, or of a list of them one after the other.
    ///
    /// Completes with [`Done::Read`](crate::Done::Read) and the buffer, its length the bytes read.
    /// Refused with [`EmptyBuffer`](crate::Reason::EmptyBuffer) if there is no room. What does not
    /// fit of a datagram is lost, and only [`recv_from_into`](Op::recv_from_into) says so.
    #[inline]
    pub fn read_into(source: Source, buf: impl Into<Buf>) -> Op {
        Op::with_buf(Code::ReadInto, source, buf.into())
    }

    /// As [`read_into`](Op::read_into) with several vectors: one readv(2).
    pub fn read_vectored(source: Source, bufs: Vec<Vec<u8>>) -> Op {
        Op::with_buf(Code::ReadInto, source, Buf::list(bufs))
    }

    /// Reads exactly `count` bytes into `buf`.
    ///
    /// Ends with [`ErrorKind::Eof`](crate::ErrorKind::Eof) and the bytes so far if the file ends
    /// before. Refused with [`BadCount`](crate::Reason::BadCount) if `count` is 0 or more than the
    /// buffer's capacity.
    #[inline]
    pub fn read_exact(source: Source, buf: impl Into<Buf>, count: usize) -> Op {
        let mut op = Op::with_buf(Code::ReadExact, source, buf.into());
        op.count = u32::try_from(count).unwrap_or(u32::MAX);
        op
    }

    /// Writes all bytes of `buf`; a stream's short writes are continued.
    ///
    /// Completes with [`Done::Written`](crate::Done::Written) and the buffer. A write to a stream
    /// whose reader is gone fails with `EPIPE`; no signal is raised for sockets.
    #[inline(always)]
    pub fn write(source: Source, buf: impl Into<Buf>) -> Op {
        Op::with_buf(Code::Write, source, buf.into())
    }

    /// Writes all bytes of all `bufs` in order, without copying them together: writev(2).
    pub fn write_vectored(source: Source, bufs: Vec<Buf>) -> Op {
        Op::with_buf(Code::Write, source, Buf::list(bufs))
    }

    /// Takes a connection from a listener.
    ///
    /// Completes with [`Done::Accepted`](crate::Done::Accepted). With [`multishot`](Op::multishot)
    /// it takes connections until it is cancelled. Connections that were aborted before they could
    /// be taken are passed over. When descriptors run out (`EMFILE`, `ENFILE`) the connection at
    /// the head is accepted and closed with a spare descriptor, so that its client is told, and the
    /// listener pauses; the operation stays in flight. It also waits while the watcher has no room
    /// for another source. A network error (`ENETDOWN`, `EPROTO`) or the `EPERM` of a filter, which
    /// removes no connection, pauses the listener, too. After about a second of such errors the
    /// operation ends with the error.
    #[inline]
    pub const fn accept(listener: Source) -> Op {
        Op::plain(Code::Accept, listener)
    }

    /// Opens a stream socket and connects it to `address`.
    ///
    /// Completes with [`Done::Connected`](crate::Done::Connected) and the socket, or with the error
    /// that the connection met (`ECONNREFUSED`, `ETIMEDOUT` …). Its completion's source is
    /// [`Source::NONE`].
    pub fn connect(address: impl Into<Address>) -> Op {
        let mut op = Op::plain(Code::Connect, Source::NONE);
        op.extra = Extra::from(address.into());
        op
    }

    /// As [`connect`](Op::connect) with a socket of yours, which may be bound and have options set.
    /// A system descriptor is needed: a handle of a simulated kernel is refused as unsupported.
    pub fn connect_with(socket: impl Into<Handle>, address: impl Into<Address>) -> Op {
        let mut op = Op::plain(Code::Connect, Source::NONE);
        let mut address = address.into();
        match socket.into().into_fd() {
            Ok(fd) => address.set_descriptors(vec![fd]),
            Err(_virtual_handle) => op.count = 1,
        }
        op.extra = Extra::from(address);
        op
    }

    /// Shuts the writing side down after the writes that were queued before it: the peer reads the
    /// end of the file, and this side can still read. Behind a write that ended partly sent it ends
    /// as [`Torn`](crate::ErrorKind::Torn) and is not done: the peer must not take what it has for
    /// all. Of sockets only; others are refused as unsupported.
    pub const fn shutdown(source: Source) -> Op {
        Op::plain(Code::Shutdown, source)
    }

    /// Receives one datagram, up to the size of a swap buffer, into library-owned memory.
    ///
    /// Completes with [`Done::Received`](crate::Done::Received), which says where from and whether
    /// the datagram was longer than the memory.
    pub const fn recv_from(source: Source) -> Op {
        Op::plain(Code::RecvFrom, source)
    }

    /// As [`recv_from`](Op::recv_from), into `buf`, which is one buffer: a list is refused as
    /// unsupported.
    pub fn recv_from_into(source: Source, buf: impl Into<Buf>) -> Op {
        let mut op = Op::with_buf(Code::RecvFrom, source, buf.into());
        op.count = 1;
        op
    }

    /// Sends `buf` as one datagram to `address`. An empty one can be sent.
    pub fn send_to(source: Source, buf: impl Into<Buf>, address: impl Into<Address>) -> Op {
        let mut op = Op::with_buf(Code::SendTo, source, buf.into());
        op.extra = Extra::from(address.into());
        op
    }

    /// Sends `buf` (at least one byte) and `descriptors` over a Unix socket (`SCM_RIGHTS`, at most
    /// 253 of them). The descriptors are closed here when the operation ends.
    pub fn send_descriptors(source: Source, buf: impl Into<Buf>, descriptors: Vec<OwnedFd>) -> Op {
        let mut op = Op::with_buf(Code::SendDescriptors, source, buf.into());
        let mut address = Address::unspecified();
        address.set_descriptors(descriptors);
        op.extra = Extra::from(address);
        op
    }

    /// Receives bytes and the descriptors that came with them over a Unix socket, with
    /// `CLOEXEC` set. Completes with [`Done::Descriptors`](crate::Done::Descriptors).
    pub const fn recv_descriptors(source: Source) -> Op {
        Op::plain(Code::RecvDescriptors, source)
    }

    /// Waits until one of the conditions in `interest` holds, on any descriptor that poll(2)
    /// understands: sockets, pipes, eventfd, timerfd, pidfd, terminals.
    ///
    /// Asks poll(2) first, then waits for the next edge. Completes with
    /// [`Done::Ready`](crate::Done::Ready); errors and hang-ups are always reported. It takes no
    /// bytes and has no place in the order of reads and writes.
    pub const fn poll(source: Source, interest: Ready) -> Op {
        let mut op = Op::plain(Code::Poll, source);
        op.count = interest.bits() as u32;
        op
    }

    /// Waits until at most `bytes` of queued writes are still to go out on the source: the
    /// low-water mark of back-pressure, with
    /// [`Watcher::queued_bytes`](crate::Watcher::queued_bytes) for the high one. Completes with
    /// [`Done::Drained`](crate::Done::Drained); 0 waits for all of them.
    pub const fn drained(source: Source, bytes: usize) -> Op {
        let mut op = Op::plain(Code::Drained, source);
        op.count = if bytes > u32::MAX as usize { u32::MAX } else { bytes as u32 };
        op
    }

    /// Frees the source after the writes that were queued before it: flush, then close.
    ///
    /// A [`free`](crate::Watcher::free) after it does not wait for the writes: it cuts the flush
    /// short.
    ///
    /// Completes with [`Done::Closed`](crate::Done::Closed); reads that are still pending end as
    /// freed before it. Submissions after it are refused as stale. If its deadline passes first,
    /// the source stays as it is. It does, too, behind a write that ended partly sent (a cancel, a
    /// deadline, a reset connection): then the close ends as [`Torn`](crate::ErrorKind::Torn),
    /// because it promises that everything is out, and [`Watcher::free`](crate::Watcher::free)
    /// closes. A source without operations closes within `submit` (not a file), and takes no place
    /// in the table of operations for it.
    ///
    /// A file is closed by a worker thread once what is at work on it has ended, because close(2)
    /// frees on the disk what a removed file had there (the loop does, where there is no room for
    /// another job); from then on neither a cancel nor a deadline stops it (the completion is
    /// late). [`Watcher::free`](crate::Watcher::free) closes at once, on the loop. An error of
    /// close(2) (`EIO`, `ENOSPC` or `EDQUOT`, which network file systems and FUSE may report only
    /// here) becomes the completion's error: written data may be lost. The descriptor is closed and
    /// the source is freed all the same.
    pub const fn close(source: Source) -> Op {
        Op::plain(Code::Close, source)
    }

    /// Sets the number that the completion returns untouched.
    #[inline(always)]
    pub const fn token(mut self, token: u64) -> Op {
        self.token = token;
        self
    }

    /// Ends the operation with [`ErrorKind::Deadline`](crate::ErrorKind::Deadline) if it has not
    /// ended by `deadline`. One that has passed already gives the operation a single try, if it is
    /// at the head of its queue: data that is there wins. The source stays usable. A timer keeps
    /// its own time: the earlier of the two ends it. Of `deadline` and [`timeout`](Op::timeout) the
    /// last call counts. The deadline of a [multishot](Op::multishot) operation limits its whole
    /// life: completions do not extend it.
    #[inline]
    pub fn deadline(mut self, deadline: Instant) -> Op {
        let deadline_ns = bounded(clock::ns_of(deadline));
        if self.code == Code::Timer {
            return self.limit(deadline_ns, LIMITED);
        }
        self.deadline_ns = deadline_ns;
        self
    }

    /// As [`deadline`](Op::deadline), counted from the submission.
    #[inline]
    pub fn timeout(mut self, timeout: Duration) -> Op {
        let timeout_ns = bounded(clock::ns_of_duration(timeout));
        if self.code == Code::Timer {
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

    /// Keeps the operation in flight after a completion, until it fails or ends, or its
    /// [deadline](Op::deadline) passes, which completions do not extend. Of accepts, buffer-less
    /// reads and [`send_file`](Op::send_file); others ignore it.
    #[inline(always)]
    pub const fn multishot(mut self) -> Op {
        if matches!(self.code, Code::Read | Code::Accept | Code::SendFile) {
            self.flags |= MULTISHOT;
        }
        self
    }

    /// What it does.
    #[inline]
    pub const fn code(&self) -> Code {
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
