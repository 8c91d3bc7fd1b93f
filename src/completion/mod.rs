//! Completions: how operations ended, and the batch that a wait fills.

pub(crate) mod batch;
pub(crate) mod verbs;
mod visit;

pub use visit::Visit;

use std::fmt;
use std::mem;
use std::net::SocketAddr;
use std::ops::RangeBounds;
use std::path::PathBuf;
use std::process::ExitStatus;

use crate::file::{DirEntry, DirPart, HostName, Metadata, StatFs};
use crate::memory::buf::Buf;
use crate::op::OpCode;
use crate::sys::interest::Ready;
use crate::words::address::{Address, Descriptors};
use crate::words::error::{Error, ErrorKind};
use crate::words::message::Message;
use crate::words::source::{Handle, Source, Ticket};
use crate::words::table;

/// The end of an operation, or one result of a multishot operation.
///
/// An accepted operation ends in exactly one final completion. Before that, a multishot operation
/// has any number of completions with [`has_more`](Completion::has_more) set. Dropping a completion
/// unread leaks nothing: buffers, leases and descriptors in it are released.
pub struct Completion {
    /// The source of the operation; [`Source::NONE`] for timers without an
    /// [owner](crate::Op::owned_by), nops, [`Op::connect`](crate::Op::connect) and messages. The
    /// source may have ended since.
    pub source: Source,
    /// The operation's token, unchanged.
    pub token: u64,
    /// How the operation ended, with its buffer or its value.
    pub result: Result<Done, Error>,
    /// The operation's ticket. Its index also holds the operation's code and the flags `MORE` and
    /// `LATE`.
    ticket: Ticket,
}

// One cache line: the driver writes a batch of completions, and the program then reads it.
const _: () = assert!(size_of::<Completion>() <= 64);

// Bits of a ticket's index that no driver uses: storing flags in them keeps a completion small.
const MORE: u32 = 1 << 30;
const LATE: u32 = 1 << 29;
const CODE_SHIFT: u32 = 24;
const CODE: u32 = 31 << CODE_SHIFT;
const OURS: u32 = MORE | LATE | CODE;

const _: () = assert!(OpCode::COUNT <= 32 && table::MOST <= 1 << CODE_SHIFT);

impl Completion {
    /// The final completion of an operation with this code (for authors of drivers). The ticket's
    /// index may use only its lowest 24 bits and its highest bit.
    #[inline(always)]
    pub fn new(
        code: OpCode,
        source: Source,
        ticket: Ticket,
        token: u64,
        result: Result<Done, Error>,
    ) -> Self {
        debug_assert!(ticket.index() & OURS == 0);
        let index = ticket.index() | (code as u32) << CODE_SHIFT;
        let ticket = Ticket::from_parts(index, ticket.generation());
        Completion { source, token, result, ticket }
    }

    /// Sets whether more completions follow: [`has_more`](Completion::has_more) (for authors of
    /// drivers).
    #[inline]
    pub fn with_more(mut self, more: bool) -> Self {
        let bit = if more { MORE } else { 0 };
        self.ticket = Ticket::from_parts(self.ticket.index() | bit, self.ticket.generation());
        self
    }

    /// Sets whether the work went on after its deadline or cancel: [`is_late`](Completion::is_late)
    /// (for authors of drivers).
    #[inline]
    pub fn with_late(mut self, late: bool) -> Self {
        let bit = if late { LATE } else { 0 };
        self.ticket = Ticket::from_parts(self.ticket.index() | bit, self.ticket.generation());
        self
    }

    /// The ticket that `submit` returned.
    #[inline]
    pub fn ticket(&self) -> Ticket {
        Ticket::from_parts(self.ticket.index() & !OURS, self.ticket.generation())
    }

    /// The kind of the operation, whether it succeeded or failed. A message completes no operation,
    /// and has [`OpCode::Message`]. All work of the worker threads (opens, renames, jobs …) has
    /// [`OpCode::Job`]; a program tells such operations apart by their tokens.
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass::driver::OpCode;
    /// use windlass::{Completions, ErrorKind, Op, Watcher};
    /// let mut watcher = Watcher::new()?;
    /// let timer = watcher.submit(Op::timer(Duration::from_secs(60)))?;
    /// watcher.cancel(timer);
    /// let mut done = Completions::new();
    /// watcher.wait(&mut done)?;
    /// let completion = done.drain(..).next().unwrap();
    /// assert_eq!(completion.error_kind(), Some(ErrorKind::Cancelled));
    /// assert_eq!(completion.code(), OpCode::Timer);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[inline]
    pub fn code(&self) -> OpCode {
        // The remainder never changes the number: only codes are stored. It spares a check of the
        // bounds.
        OpCode::ALL[((self.ticket.index() & CODE) >> CODE_SHIFT) as usize % OpCode::COUNT]
    }

    /// Whether the operation is still in flight: more completions follow.
    #[inline]
    pub fn has_more(&self) -> bool {
        self.ticket.index() & MORE != 0
    }

    /// Whether this completes file work that went on after its deadline or cancel. The result is
    /// the real one.
    #[inline]
    pub fn is_late(&self) -> bool {
        self.ticket.index() & LATE != 0
    }

    /// The bytes of a successful write; empty for every other completion.
    #[inline(always)]
    pub(crate) fn written(&self) -> &[u8] {
        match &self.result {
            Ok(Done::Written { buf, .. }) => buf,
            _ => &[],
        }
    }

    /// Takes the bytes of a read ([`Done::Read`]) out of the completion; `None` if it is not of a
    /// successful read.
    ///
    /// The result becomes [`Done::Nop`], so a second call returns `None`. Everything else (source,
    /// token, ticket, [`code`](Completion::code), [`has_more`](Completion::has_more)) stays. An
    /// example is at [`Completions::visit`].
    #[inline(always)]
    pub fn take_read(&mut self) -> Option<Buf> {
        let Ok(Done::Read(data)) = &mut self.result else { return None };
        let data = data.take();
        // The replaced value is empty. Without the `forget` it would be copied, only to be dropped.
        mem::forget(mem::replace(&mut self.result, Ok(Done::Nop)));
        Some(data)
    }

    /// Takes the buffer out of any completion: the bytes of a read or a datagram, or the buffer of
    /// a write or an error. Returns an empty buffer if the completion has none.
    ///
    /// Everything else stays. But [`bytes`](Completion::bytes) of a read or a datagram is the
    /// length of the buffer, so it is 0 afterwards.
    pub fn take_buf(&mut self) -> Buf {
        match &mut self.result {
            Ok(Done::Read(buf) | Done::Written { buf, .. } | Done::Appended { buf, .. }) => {
                buf.take()
            }
            Ok(Done::Received { data, .. } | Done::Descriptors { data, .. }) => data.take(),
            Ok(_) => Buf::NONE,
            Err(error) => error.take_buf(),
        }
    }

    /// Takes the socket of an accept or a connect, or the file of an open, out of the completion;
    /// `None` if it has neither. The result becomes [`Done::Nop`].
    pub fn take_handle(&mut self) -> Option<Handle> {
        match &self.result {
            Ok(Done::Accepted(_) | Done::Socket(_) | Done::Opened(_)) => {}
            _ => return None,
        }
        match std::mem::replace(&mut self.result, Ok(Done::Nop)) {
            Ok(Done::Accepted(handle) | Done::Socket(handle) | Done::Opened(handle)) => {
                Some(handle)
            }
            _ => unreachable!("looked at right above"),
        }
    }

    /// How many bytes the operation has moved, however it ended.
    pub fn bytes(&self) -> usize {
        match &self.result {
            Ok(Done::Read(buf)) | Ok(Done::Received { data: buf, .. }) => buf.len(),
            Ok(Done::Descriptors { data, .. }) => data.len(),
            Ok(Done::Appended { bytes, .. } | Done::Written { bytes, .. } | Done::Sent(bytes)) => {
                *bytes as usize
            }
            Ok(Done::Copied(bytes)) => *bytes as usize,
            Ok(_) => 0,
            Err(error) => error.bytes(),
        }
    }

    /// How the operation failed, if it did.
    pub fn error_kind(&self) -> Option<ErrorKind> {
        self.result.as_ref().err().map(Error::kind)
    }
}

impl fmt::Debug for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Completion")
            .field("code", &self.code())
            .field("source", &self.source)
            .field("token", &self.token)
            .field("result", &self.result)
            .field("ticket", &self.ticket())
            .field("more", &self.has_more())
            .field("late", &self.is_late())
            .finish()
    }
}

/// What an operation has done.
#[derive(Debug)]
#[non_exhaustive]
pub enum Done {
    /// The bytes of a read: empty at the end of the file ([`Buf::is_eof`]), or an empty message.
    Read(Buf),
    /// A read has put bytes behind those of the operation's buffer:
    /// [`Op::read_append`](crate::Op::read_append).
    Appended {
        /// The operation's buffer, with the new bytes.
        buf: Buf,
        /// How many bytes are new; 0 at the end of the file.
        bytes: u32,
    },
    /// The kernel has taken all bytes of a write.
    Written {
        /// The operation's buffer.
        buf: Buf,
        /// How many bytes the kernel has taken.
        bytes: u32,
    },
    /// A connection that a listener has accepted.
    Accepted(Handle),
    /// The socket that a connect has connected.
    Socket(Handle),
    /// A source is connected to this address, the first of
    /// [its list](crate::Watcher::connect) that answered.
    Connected(Address),
    /// A datagram has arrived.
    Received {
        /// The bytes of the datagram.
        data: Buf,
        /// The address of the sender. It is unspecified if the sender has none: an unbound Unix
        /// socket, or the peer of a seqpacket socket.
        from: Address,
        /// Whether the datagram was longer than the memory for it; then the rest of it is lost.
        truncated: bool,
    },
    /// Bytes and descriptors have arrived on a Unix socket.
    Descriptors {
        /// The bytes: empty at the end of a stream, or of an empty message.
        data: Buf,
        /// The descriptors that came with these bytes.
        descriptors: Descriptors,
        /// Whether other descriptors came with these bytes, and are lost: the process or the system
        /// had no room for them (`RLIMIT_NOFILE`), and closed them.
        lost: bool,
        /// Whether the message was longer than the memory for it; then the rest of it is lost.
        /// Always false on a stream, which keeps its bytes.
        truncated: bool,
    },
    /// The writing side of the socket is shut down.
    Shutdown,
    /// The source is closed. The kernel had taken all writes queued before the close.
    Closed,
    /// No more bytes of writes are queued than [`Op::wait_drained`](crate::Op::wait_drained) asked
    /// for.
    Drained,
    /// The requested conditions that hold, at the end of a poll.
    Ready(Ready),
    /// A signal has come: its number.
    Signal(i32),
    /// A child process has ended, and was reaped: its exit code, or the signal that has ended it.
    Exited(ExitStatus),
    /// The time of a timer has passed.
    Timer,
    /// A nop has ended.
    Nop,
    /// Another thread has posted a message.
    Message(Message),
    /// Work on a file that returns no value: a sync, a rename …
    Finished,
    /// The file that an operation has opened.
    Opened(Handle),
    /// The path of a new temporary file, and the open file.
    Temporary(Box<(PathBuf, Handle)>),
    /// The metadata of a file.
    Metadata(Box<Metadata>),
    /// The metadata of a file system: its size, its free space …
    StatFs(Box<StatFs>),
    /// The path that an operation has found: the target of a link, a canonical path.
    Path(PathBuf),
    /// All entries of a directory.
    Entries(Vec<DirEntry>),
    /// Some of the entries of a directory, and the place to go on from.
    Part(Box<DirPart>),
    /// How many bytes a copy has copied.
    Copied(u64),
    /// How many bytes of a file a `send_file` has sent since its last completion.
    Sent(u32),
    /// The addresses of a host: the result of [`Op::lookup_host`](crate::Op::lookup_host).
    Addresses(Vec<SocketAddr>),
    /// The name of a host, and that of a service: the result of
    /// [`Op::lookup_addr`](crate::Op::lookup_addr).
    HostName(Box<HostName>),
    /// The value that a job has returned.
    Returned(Message),
}

/// A batch of completions. [`Watcher::wait`](crate::Watcher::wait) fills it, and a program reuses
/// it for the next wait.
///
/// ```
/// use windlass::{Completions, Op, Watcher};
/// let mut watcher = Watcher::new()?;
/// let mut done = Completions::new();
/// watcher.submit(Op::nop())?;
/// watcher.wait(&mut done)?;
/// for completion in done.drain(..) {
///     println!("{completion:?}");
/// }
/// assert!(done.is_empty());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Completions<T = Completion> {
    pub(crate) items: Vec<T>,
}

impl<T> Completions<T> {
    /// An empty batch.
    pub const fn new() -> Completions<T> {
        Completions { items: Vec::new() }
    }

    /// The number of completions in the batch.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether the batch has no completions.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Removes the completions in `range`, and yields them in order.
    #[inline]
    pub fn drain(&mut self, range: impl RangeBounds<usize>) -> std::vec::Drain<'_, T> {
        self.items.drain(range)
    }

    /// Iterates over the completions in order.
    pub fn iter(&self) -> std::slice::Iter<'_, T> {
        self.items.iter()
    }

    /// Drops all completions.
    pub fn clear(&mut self) {
        self.items.clear();
    }

    /// Appends a completion (for authors of drivers).
    pub fn push(&mut self, item: T) {
        self.items.push(item);
    }

    /// Moves all completions out of `batch` to the end of this one, and returns their number. If
    /// this one is empty, the two vectors are swapped (for authors of drivers).
    #[inline]
    pub fn take_from(&mut self, batch: &mut Vec<T>) -> usize {
        let count = batch.len();
        if self.items.is_empty() {
            std::mem::swap(&mut self.items, batch);
        } else {
            self.items.append(batch);
        }
        count
    }
}

impl<T> Default for Completions<T> {
    fn default() -> Self {
        Completions::new()
    }
}

impl<T> IntoIterator for Completions<T> {
    type Item = T;
    type IntoIter = std::vec::IntoIter<T>;
    fn into_iter(self) -> Self::IntoIter {
        self.items.into_iter()
    }
}

impl<'a, T> IntoIterator for &'a Completions<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;
    fn into_iter(self) -> Self::IntoIter {
        self.items.iter()
    }
}
