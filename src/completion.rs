//! Completions: what became of an operation.

use std::any::Any;
use std::fmt;
use std::net::SocketAddr;
use std::ops::RangeBounds;
use std::path::PathBuf;

use crate::address::{Address, Descriptors};
use crate::buf::Buf;
use crate::error::{Error, ErrorKind};
use crate::file::{DirEntry, DirPart, HostName, Metadata, StatFs};
use crate::interest::Ready;
use crate::op::OpCode;
use crate::slots;
use crate::source::{Handle, Source, Ticket};

/// The end of an operation, or one result of a multishot operation.
///
/// An accepted operation ends in exactly one final completion. Before that, a multishot operation
/// has any number of completions with [`has_more`](Completion::has_more) set. Dropping a completion
/// unread leaks nothing: buffers, leases and descriptors in it are released.
pub struct Completion {
    /// The source of the operation; [`Source::NONE`] for timers, nops, connects and messages. It
    /// may have ended since.
    pub source: Source,
    /// The operation's token, unchanged.
    pub token: u64,
    /// How it ended.
    pub result: Result<Done, Error>,
    /// The operation's ticket, with its code, `MORE` and `LATE` in its index.
    ticket: Ticket,
}

// One cache line: completions are written here and read there, a batch at a time.
const _: () = assert!(size_of::<Completion>() <= 64);

// Bits of a ticket's index that no driver uses: storing flags in them keeps a completion small.
const MORE: u32 = 1 << 30;
const LATE: u32 = 1 << 29;
const CODE_SHIFT: u32 = 24;
const CODE: u32 = 31 << CODE_SHIFT;
const OURS: u32 = MORE | LATE | CODE;

const _: () = assert!(OpCode::COUNT <= 32 && slots::MOST <= 1 << CODE_SHIFT);

impl Completion {
    /// The final completion of an operation with this code (for authors of drivers). The index of a
    /// ticket uses the lowest 24 bits and the highest bit only.
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

    /// Says that more completions follow (for authors of drivers).
    #[inline]
    pub fn with_more(mut self, more: bool) -> Self {
        let bit = if more { MORE } else { 0 };
        self.ticket = Ticket::from_parts(self.ticket.index() | bit, self.ticket.generation());
        self
    }

    /// Like [`with_more`](Completion::with_more), in place.
    #[inline]
    pub(crate) fn mark_more(&mut self) {
        let index = self.ticket.index() | MORE;
        self.ticket = Ticket::from_parts(index, self.ticket.generation());
    }

    /// Says that the work went on after its deadline or cancel (for authors of drivers).
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

    /// The kind of the operation that this completes, whether it succeeded or failed. A message,
    /// which completes no operation, has [`OpCode::Message`]. All work of the threads (opening,
    /// renaming, jobs …) shares [`OpCode::Task`]: tokens tell it apart.
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
        // Only numbers of codes are stored.
        OpCode::ALL[((self.ticket.index() & CODE) >> CODE_SHIFT) as usize % OpCode::COUNT]
    }

    /// Whether the operation is still in flight: more completions follow.
    #[inline]
    pub fn has_more(&self) -> bool {
        self.ticket.index() & MORE != 0
    }

    /// Whether this is file work that went on after its deadline or cancel and has now ended, with
    /// its real result.
    #[inline]
    pub fn is_late(&self) -> bool {
        self.ticket.index() & LATE != 0
    }

    /// Another ticket for what another thread had submitted under it.
    pub(crate) fn set_ticket(&mut self, ticket: Ticket) {
        let ours = self.ticket.index() & OURS;
        self.ticket = Ticket::from_parts(ticket.index() | ours, ticket.generation());
    }

    /// How many bytes the operation has moved, however it ended.
    pub fn bytes(&self) -> usize {
        match &self.result {
            Ok(Done::Read(buf)) | Ok(Done::Received { data: buf, .. }) => buf.len(),
            Ok(Done::Descriptors { data, .. }) => data.len(),
            Ok(Done::Written { bytes, .. } | Done::Sent(bytes)) => *bytes as usize,
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
    /// A read has these bytes; none at the end of the file ([`Buf::is_eof`]).
    Read(Buf),
    /// A write has sent all of the buffer's bytes.
    Written {
        /// The operation's buffer.
        buf: Buf,
        /// How many bytes it has sent.
        bytes: u32,
    },
    /// A connection from a listener.
    Accepted(Handle),
    /// A connected socket.
    Connected(Handle),
    /// One datagram.
    Received {
        /// Its bytes.
        data: Buf,
        /// Its sender; unspecified for one without a name: an unbound Unix socket, the peer of a
        /// seqpacket socket.
        from: Address,
        /// It was longer than the memory offered, and its rest is lost.
        truncated: bool,
    },
    /// Bytes and descriptors from a Unix socket.
    Descriptors {
        /// The bytes; none at the end of the file.
        data: Buf,
        /// The descriptors that came with them.
        descriptors: Descriptors,
    },
    /// The writing side is shut.
    Shutdown,
    /// The source is closed, after all writes before the close were out.
    Closed,
    /// The queued bytes have fallen to the mark of [`Op::wait_drained`](crate::Op::wait_drained).
    Drained,
    /// The requested conditions that hold.
    Ready(Ready),
    /// The time of a timer has come.
    Timer,
    /// A nop.
    Nop,
    /// A message from another thread.
    Message(Message),
    /// Work on a file without another result: a sync, a rename …
    Finished,
    /// An open file.
    Opened(Handle),
    /// A new temporary file, open, and its path.
    Temporary(Box<(PathBuf, Handle)>),
    /// What the system knows of a file.
    Metadata(Box<Metadata>),
    /// What the system knows of a file system.
    StatFs(Box<StatFs>),
    /// A path.
    Path(PathBuf),
    /// The entries of a directory.
    Entries(Vec<DirEntry>),
    /// A part of a directory's entries.
    Part(Box<DirPart>),
    /// How many bytes were copied.
    Copied(u64),
    /// How many bytes of a file were sent since the operation's last completion.
    Sent(u32),
    /// The addresses of a host.
    Addresses(Vec<SocketAddr>),
    /// The names of a host and a port.
    HostName(Box<HostName>),
    /// What a job has returned.
    Returned(Message),
}

/// What [`Submitter::post`](crate::Submitter::post) sent, or a job has returned.
pub struct Message(pub(crate) Option<Box<dyn Any + Send>>);

impl Message {
    /// A message that carries `value` (for authors of drivers).
    pub fn new(value: Option<Box<dyn Any + Send>>) -> Message {
        Message(value)
    }

    /// Takes the value, if it is a `T`.
    ///
    /// # Errors
    /// The message comes back if it is not.
    pub fn downcast<T: 'static>(self) -> Result<T, Message> {
        let mut this = self;
        match this.0.take() {
            Some(value) => match value.downcast::<T>() {
                Ok(value) => Ok(*value),
                Err(value) => Err(Message(Some(value))),
            },
            None => Err(this),
        }
    }

    /// Whether it carries only a token.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}

impl Drop for Message {
    // Out of line, so that dropping a completion stays small.
    #[inline(never)]
    fn drop(&mut self) {
        self.0 = None;
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_empty() { "Message(empty)" } else { "Message(..)" })
    }
}

/// A batch of completions, filled by [`Watcher::wait`](crate::Watcher::wait) and used again.
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

    /// How many are in it.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether none is in it.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Takes those in `range` out, in order.
    #[inline]
    pub fn drain(&mut self, range: impl RangeBounds<usize>) -> std::vec::Drain<'_, T> {
        self.items.drain(range)
    }

    /// Looks at them in order.
    pub fn iter(&self) -> std::slice::Iter<'_, T> {
        self.items.iter()
    }

    /// Drops them all.
    pub fn clear(&mut self) {
        self.items.clear();
    }

    /// Adds one at the end (for authors of drivers).
    pub fn push(&mut self, item: T) {
        self.items.push(item);
    }

    /// Adds all of `batch`, leaving it empty: by a swap where nothing is here yet (for authors of
    /// drivers).
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
