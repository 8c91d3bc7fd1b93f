//! Operations on bytes: reads and writes, and the ends of a source.

use super::{Op, OpCode};
use crate::buf::Buf;
use crate::source::Source;
#[cfg(doc)]
use crate::{Builder, Completion, Done, Error, ErrorKind, Limit, Reason, Watcher};

/// Operations on the bytes of sockets, pipes and other descriptors.
impl Op {
    /// Reads what is there, at least one byte, into library-owned memory.
    ///
    /// Completes with [`Done::Read`]: a [`Lease`](crate::Lease) of at most [`Builder::buffer_size`]
    /// bytes, or nothing at the end of the file. While it waits it holds no buffer. With
    /// [`multishot`](Op::multishot) it goes on until the end of the file, an error, or a cancel.
    /// When the swap buffers reach their limit ([`Builder::swap_limit`]) it waits until a lease is
    /// dropped.
    ///
    /// From a datagram socket it takes one datagram. An empty datagram looks like the end of a
    /// file, but more datagrams may follow. [`Op::recv_from`] returns the sender, and whether the
    /// datagram was longer than a swap buffer.
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
    /// The refusals are those of [every operation](Op#errors-of-every-operation), and:
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
    /// - `EIO`: the terminal has hung up, or the process is one of its background jobs.
    ///
    /// The system reports an error once, to the operation that meets it first. After a reset, later
    /// reads find the end of the file.
    ///
    /// # Platforms
    ///
    /// io_uring reads streams in the kernel, from Linux 6.12 on. Other sources, and every other
    /// driver, use recv(2) or read(2) once the selector has reported bytes. Windows reads sockets
    /// only. The simulation has stream and datagram sockets.
    ///
    /// # Cancellation
    ///
    /// A read that is cancelled has taken no bytes: they stay in the socket for the next read.
    /// Leases that a multishot read has delivered remain valid.
    #[inline(always)]
    pub const fn read(source: Source) -> Op {
        Op::plain(OpCode::Read, source)
    }

    /// Reads what is there, at least one byte, into `buf`.
    ///
    /// Completes with [`Done::Read`] and the buffer, whose length is the number of bytes read: 0 at
    /// the end of the file. `buf` is a `Vec<u8>`, whose whole capacity is offered from its start,
    /// or a list of them, which are filled one after the other. It has room for 1 to 2^31 - 1
    /// bytes. The part of a datagram that does not fit is lost, and only [`Op::recv_from_into`]
    /// says so.
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
    /// It also ends with `EINVAL` if `buf` is too small for the descriptor: an eventfd or a timerfd
    /// yields eight bytes at a time.
    ///
    /// # Platforms
    ///
    /// As for [`Op::read`], with one difference: on every release, the kernel of io_uring itself
    /// reads into a single buffer. The driver reads into a list once bytes have arrived.
    ///
    /// # Cancellation
    ///
    /// A read that is cancelled has taken no bytes. The buffer comes back with length 0 and its
    /// capacity.
    #[inline]
    pub fn read_into(source: Source, buf: impl Into<Buf>) -> Op {
        Op::with_buf(OpCode::ReadInto, source, buf.into())
    }

    /// As [`Op::read_into`] with several vectors, which are filled in order: readv(2).
    ///
    /// Completes with [`Done::Read`] and the list. There may be any number of vectors. One system
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
    /// Completes with [`Done::Read`] and the buffer, whose length is `count`. It takes bytes as
    /// they arrive, and leaves later bytes in the socket. `count` is 1 to 2^31 - 1, and at most the
    /// capacity of `buf`.
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
    /// - [`Reason::TooLong`]: both `count` and the capacity of `buf` are more than 2^31 - 1 bytes.
    ///
    /// And it ends with:
    ///
    /// - [`ErrorKind::Eof`]: the file ends before `count` bytes. The buffer holds the bytes that
    ///   were read.
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
    /// go back into the socket: the next read of the stream starts after them.
    #[inline]
    pub fn read_exact(source: Source, buf: impl Into<Buf>, count: usize) -> Op {
        let mut op = Op::with_buf(OpCode::ReadExact, source, buf.into());
        op.count = u32::try_from(count).unwrap_or(u32::MAX);
        op
    }

    /// Writes all bytes of `buf`, in as many system calls as a stream needs.
    ///
    /// Completes with [`Done::Written`] and the buffer, when the kernel has all bytes. Writes of a
    /// source go out in the order of their submission. `buf` has 1 to 2^31 - 1 bytes. On a datagram
    /// socket with a peer, a write is one datagram.
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
    /// The refusals are those of [every operation](Op#errors-of-every-operation), and:
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
    /// - `EPIPE`: the peer has stopped reading, or the program has shut this side down. Linux also
    ///   reports it for a stream socket that was never connected.
    /// - `ECONNRESET`: the peer has reset the connection.
    /// - `ETIMEDOUT`, `EHOSTUNREACH`, `ENETUNREACH`: the peer cannot be reached any more.
    /// - `EBADF`: the descriptor is not open for writing, for example a pipe's reading end.
    /// - `EDESTADDRREQ`: the source is a datagram socket without a peer.
    /// - `EMSGSIZE`: the datagram is too long.
    /// - [`ErrorKind::Torn`]: an earlier write ended partly sent. No byte of this one was sent.
    ///
    /// An error says how many bytes the kernel had taken, not how many the peer has read.
    ///
    /// # Platforms
    ///
    /// On io_uring the kernel completes a write to a stream that had no room at submission. Sockets
    /// raise no SIGPIPE on any system. A pipe whose reader is gone raises SIGPIPE, unless the
    /// program ignores the signal, as Rust programs do by default. Windows writes to sockets only.
    /// The simulation has stream and datagram sockets.
    ///
    /// # Cancellation
    ///
    /// Bytes that the kernel has taken cannot be called back: [`Error::bytes`] counts them, and the
    /// whole buffer comes back. If only a part was sent, the operations queued behind (writes, an
    /// [`Op::shutdown`], an [`Op::close`]) end as [`ErrorKind::Torn`], so that the stream has no
    /// hole. Writes submitted later are sent.
    #[inline(always)]
    pub fn write(source: Source, buf: impl Into<Buf>) -> Op {
        Op::with_buf(OpCode::Write, source, buf.into())
    }

    /// Writes all bytes of all `bufs` in order, without copying them together: writev(2).
    ///
    /// Completes with [`Done::Written`] and the list. All parts together have 1 to 2^31 - 1 bytes;
    /// a part may be empty. There may be any number of parts. One system call takes 64 of them. On
    /// a datagram socket all parts are one datagram: if there are more than 64, the driver first
    /// copies them into one buffer.
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
    /// As for [`Op::write`]. Windows sends the parts one by one if they have more than 64 KiB in
    /// total.
    ///
    /// # Cancellation
    ///
    /// As for [`Op::write`]. [`Error::bytes`] counts across the parts, from the start of the first.
    pub fn write_vectored(source: Source, bufs: Vec<Buf>) -> Op {
        Op::with_buf(OpCode::Write, source, Buf::list(bufs))
    }

    /// Shuts the writing side down, once all writes queued before it are sent.
    ///
    /// Completes with [`Done::Shutdown`]. The peer then reads the end of the file. This side can
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
    /// The refusals are those of [every operation](Op#errors-of-every-operation), and:
    ///
    /// - [`Reason::Unsupported`]: the source is no socket.
    ///
    /// Ends with:
    ///
    /// - `ENOTCONN`: the socket is not connected, or not any more.
    /// - [`ErrorKind::Torn`]: an earlier write ended partly sent. The socket was not shut down: the
    ///   peer would take the bytes that it has for all bytes.
    ///
    /// # Platforms
    ///
    /// shutdown(2) on every driver. On macOS and FreeBSD a second shutdown may end with `ENOTCONN`.
    ///
    /// # Cancellation
    ///
    /// The writing side stays open, and the writes queued before the shutdown go on. Once they are
    /// sent, the shutdown follows at once, and a cancel comes too late.
    pub const fn shutdown(source: Source) -> Op {
        Op::plain(OpCode::Shutdown, source)
    }

    /// Closes the source, once all writes queued before it are sent: flush, then close.
    ///
    /// Completes with [`Done::Closed`]. Reads and polls that are still pending then end first, with
    /// [`ErrorKind::Aborted`]. Later submissions for the source are refused as stale. The close of
    /// a source without operations, unless it is a file, runs inside `submit`, and takes no place
    /// in the table of operations.
    ///
    /// [`Watcher::abort`] closes at once. Called after an `Op::close`, it drops the unsent writes.
    ///
    /// A worker thread closes a file when the work on it has ended, because close(2) may free a
    /// removed file's blocks on the disk. (Without room for another job, the loop closes it.)
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
    /// The refusals are those of [every operation](Op#errors-of-every-operation). The operation can
    /// end with:
    ///
    /// - [`ErrorKind::Torn`]: an earlier write ended partly sent (a cancel, a deadline, a reset
    ///   connection). The source was not closed, because a close promises that all writes were
    ///   sent. [`Watcher::abort`] closes it.
    /// - `EIO`, `ENOSPC`, `EDQUOT`, `EINTR`, of a file: written data may be lost. Network file
    ///   systems and FUSE may report it only here. The descriptor is closed and the source is gone
    ///   all the same.
    ///
    /// # Platforms
    ///
    /// close(2) on every driver. On sockets and pipes an error of close(2) means nothing, so the
    /// driver does not report it. In the simulation the operation closes the simulated socket.
    ///
    /// # Cancellation
    ///
    /// While writes are queued, a cancel or deadline ends the close, and the source stays open.
    /// Later it cannot be stopped: a worker thread that has begun to close a file goes on, and the
    /// completion is [late](Completion::is_late).
    pub const fn close(source: Source) -> Op {
        Op::plain(OpCode::Close, source)
    }
}
