//! Calls that move bytes at once, between the program's memory and a source.

use std::io::{self, IoSlice, IoSliceMut};

use super::Watcher;
use crate::driver::Driver;
use crate::words::source::Source;
#[cfg(doc)]
use crate::{Op, Refusal};

impl<D: Driver> Watcher<D> {
    /// Receives the bytes that have arrived into memory of the program: at once, or not at all.
    /// Returns their number; 0 is the end, or on a datagram socket an empty message.
    ///
    /// With [`Op::readable`] this serves programs that have their own buffers, and want no bytes
    /// before they are ready for them. Other programs are better served by [`Op::read`], which
    /// needs no buffer while it waits. The bytes count for
    /// [`set_idle_timeout`](Watcher::set_idle_timeout); a `readable` is no read that such a timeout
    /// ends. Nothing else reads from the source meanwhile: the call is refused while reads are in
    /// flight. The part of a message that does not fit is lost.
    ///
    /// ```
    /// use std::io::Write;
    /// use windlass::{Completions, Op, Watcher};
    /// let mut watcher = Watcher::new()?;
    /// let (ours, mut theirs) = std::os::unix::net::UnixStream::pair()?;
    /// let source = watcher.attach(ours)?;
    /// theirs.write_all(b"hello")?;
    /// drop(theirs);
    /// watcher.submit(Op::readable(source))?;
    /// watcher.wait(&mut Completions::new())?;
    /// let mut bytes = [0; 100];
    /// let len = watcher.recv(source, &mut bytes)?;
    /// assert_eq!(&bytes[..len], b"hello");
    /// assert_eq!(watcher.recv(source, &mut bytes)?, 0); // the end
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// - `WouldBlock`: nothing has arrived. Wait for an [`Op::readable`]. (That the system
    ///   has no memory for the call is told in the same way.)
    /// - `ECONNRESET`, `ETIMEDOUT` …: the connection is broken.
    /// - `ENOTCONN`: the source is not connected (yet).
    /// - [`Refusal::Busy`]: reads of the source are in flight.
    /// - [`Refusal::EmptyBuffer`], [`Refusal::TooLong`]: `to` has no room, or more than `i32::MAX`
    ///   bytes; or a message has more than 64 parts.
    /// - [`Refusal::Unsupported`]: the source is a file, a listener, or of the process; or a
    ///   [duplicate](Watcher::attach_dup) of a descriptor that blocks and cannot be opened anew; or
    ///   a connection of records (seqpacket), where 0 would not tell the end from an empty record;
    ///   or a driver of your own does not have this call.
    /// - [`Refusal::Stale`], [`Refusal::Closed`], [`Refusal::Forked`]: the source has ended; the
    ///   watcher is closed; this is a forked child.
    ///
    /// [`Refusal::of`] returns the reasons.
    #[inline]
    pub fn recv(&mut self, source: Source, to: &mut [u8]) -> io::Result<usize> {
        self.driver.recv(source, &mut [IoSliceMut::new(to)])
    }

    /// As [`recv`](Watcher::recv), into several pieces of memory, one after the other. One call
    /// fills at most the first 64.
    ///
    /// ```
    /// use std::io::{IoSliceMut, Write};
    /// use windlass::Watcher;
    /// let mut watcher = Watcher::new()?;
    /// let (ours, mut theirs) = std::os::unix::net::UnixStream::pair()?;
    /// let source = watcher.attach(ours)?;
    /// theirs.write_all(b"headbody")?;
    /// let (mut head, mut body) = ([0; 4], [0; 100]);
    /// let mut parts = [IoSliceMut::new(&mut head), IoSliceMut::new(&mut body)];
    /// assert_eq!(watcher.recv_vectored(source, &mut parts)?, 8);
    /// assert_eq!((&head, &body[..4]), (b"head", &b"body"[..]));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`recv`](Watcher::recv).
    #[inline]
    pub fn recv_vectored(
        &mut self,
        source: Source,
        to: &mut [IoSliceMut<'_>],
    ) -> io::Result<usize> {
        self.driver.recv(source, to)
    }

    /// Sends bytes of the program: at once, and as many as the source takes. Returns their number.
    ///
    /// Bytes that were not taken are still the program's: it sends them after an [`Op::writable`].
    /// An [`Op::write`] sends all bytes by itself. The call is refused while writes are in flight,
    /// because it would overtake them.
    ///
    /// ```
    /// use std::io::Read;
    /// use windlass::Watcher;
    /// let mut watcher = Watcher::new()?;
    /// let (ours, mut theirs) = std::os::unix::net::UnixStream::pair()?;
    /// let source = watcher.attach(ours)?;
    /// assert_eq!(watcher.send(source, b"hello")?, 5);
    /// let mut bytes = [0; 5];
    /// theirs.read_exact(&mut bytes)?;
    /// assert_eq!(&bytes, b"hello");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// - `WouldBlock`: the source has no room. Wait for an [`Op::writable`]. (That the system has
    ///   no memory for the call is told in the same way.)
    /// - `EPIPE`: the writing side is shut, or the peer of a pipe or a Unix socket is gone.
    /// - `EMSGSIZE`: a message is too long.
    /// - [`Refusal::Busy`]: writes of the source are in flight.
    /// - All others as for [`recv`](Watcher::recv), except that `bytes` may be empty: then a socket
    ///   for messages sends an empty one, and any other source nothing.
    #[inline]
    pub fn send(&mut self, source: Source, bytes: &[u8]) -> io::Result<usize> {
        self.driver.send(source, &[IoSlice::new(bytes)])
    }

    /// As [`send`](Watcher::send), of several pieces of memory, one after the other. One call sends
    /// at most the first 64.
    ///
    /// ```
    /// use std::io::IoSlice;
    /// use windlass::Watcher;
    /// let mut watcher = Watcher::new()?;
    /// let (ours, _theirs) = std::os::unix::net::UnixStream::pair()?;
    /// let source = watcher.attach(ours)?;
    /// let parts = [IoSlice::new(b"head"), IoSlice::new(b"body")];
    /// assert_eq!(watcher.send_vectored(source, &parts)?, 8);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`send`](Watcher::send).
    #[inline]
    pub fn send_vectored(&mut self, source: Source, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.driver.send(source, parts)
    }
}
