//! Operations on bytes: read, write, shut down, close.

use super::{Op, OpCode};
use crate::memory::buf::Buf;
use crate::words::source::Source;
#[cfg(doc)]
use crate::{Builder, Completion, Done, Error, ErrorKind, Limit, Refusal, Watcher};

/// Operations on the bytes of sockets, pipes and other descriptors.
impl Op {
    /// Reads the bytes that have arrived, at least one, into memory of the watcher.
    ///
    /// Completes with [`Done::Read`]: a [`Lease`](crate::Lease) of at most [`Builder::buffer_size`]
    /// bytes, or an empty buffer at the end of the file. A read that waits for bytes holds no
    /// memory. With [`multishot`](Op::multishot) it goes on until the end of the file, an error, or
    /// a cancel.
    ///
    /// Leases lie in the *swap buffers*, a pool of memory that [`Builder::swap_limit`] bounds.
    /// While all of it is in use, the read waits until the program drops a lease.
    ///
    /// From a datagram or seqpacket socket a read takes one message. There an empty buffer is an
    /// empty message, and not the end; the end of a seqpacket connection is the error
    /// [`ErrorKind::Eof`]. [`Op::recv_from`] returns the sender, and whether the
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
    /// - [`Refusal::Unsupported`]: the source is a listener, a regular file, a directory or a block
    ///   device.
    ///
    /// Ends with:
    ///
    /// - [`ErrorKind::Eof`]: the peer of a seqpacket socket has shut its writing side.
    /// - `ECONNRESET`: the peer has reset the connection.
    /// - `ETIMEDOUT`: the peer does not answer any more (keep-alive, `TCP_USER_TIMEOUT`).
    /// - `EHOSTUNREACH`, `ENETUNREACH`: no route leads to the peer any more.
    /// - `ECONNREFUSED`: an earlier datagram that this connected socket has sent found no receiver.
    /// - `ENOTCONN`: the stream socket was never connected.
    /// - `EBADF`: the descriptor is not open for reading, for example a pipe's writing end.
    /// - `EIO`: the terminal has hung up, or the process is one of its background jobs.
    ///
    /// The system reports an error once, to the operation that meets it first. After a reset, later
    /// reads find the end of the file.
    ///
    /// # Platforms
    ///
    /// On io_uring, from Linux 6.12 on, the kernel itself reads streams. In all other cases the
    /// driver calls recv(2) or read(2) once the selector or the ring has reported bytes. Windows
    /// reads sockets only. The simulation has stream and datagram sockets.
    ///
    /// # Cancellation
    ///
    /// A read that is cancelled has taken no bytes: they stay in the socket for the next read.
    /// Leases that a multishot read has delivered remain valid.
    #[inline(always)]
    pub const fn read(source: Source) -> Op {
        Op::plain(OpCode::Read, source)
    }

    /// Reads the bytes that have arrived, at least one, into `buf`.
    ///
    /// Completes with [`Done::Read`] and the buffer, whose length is the number of bytes read: 0 at
    /// the end of the file. `buf` is a `Vec<u8>`, an [`AlignedBuf`](crate::AlignedBuf), or a list
    /// of them, with a capacity of 1 to 2^31 - 1 bytes. The read fills it from its first byte up to
    /// its capacity, a list part by part. The part of a datagram that does not fit is lost, and
    /// only [`Op::recv_from_into`] says so.
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
    /// - [`Refusal::EmptyBuffer`]: `buf` has no capacity.
    /// - [`Refusal::TooLong`]: `buf` has a capacity of more than 2^31 - 1 bytes.
    ///
    /// It also ends with `EINVAL` if `buf` is too small for the descriptor: an eventfd or a timerfd
    /// yields eight bytes at a time.
    ///
    /// # Platforms
    ///
    /// As for [`Op::read`], with one difference. On io_uring the kernel itself reads into a single
    /// buffer on every Linux release. For a list the driver waits until bytes have arrived, and
    /// then reads them.
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
    /// Completes with [`Done::Read`] and the list. The list may have any number of vectors; one
    /// system call fills up to 64.
    ///
    /// ```
    /// use std::io::Write;
    /// use windlass::{Completions, Done, Op, Watcher};
    /// let mut watcher = Watcher::new()?;
    /// let (ours, mut theirs) = std::os::unix::net::UnixStream::pair()?;
    /// let source = watcher.attach(ours)?;
    /// theirs.write_all(b"headbody")?;
    /// let parts = [Vec::with_capacity(4), Vec::with_capacity(100)];
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
    pub fn read_vectored(source: Source, bufs: impl IntoIterator<Item = Vec<u8>>) -> Op {
        Op::with_buf(OpCode::ReadInto, source, Buf::list(bufs))
    }

    /// Reads the bytes that have arrived, at least one, and appends them to the bytes of `buf`. So
    /// a program reads the rest of a request that has arrived in part.
    ///
    /// Completes with [`Done::Appended`]: the buffer with the new bytes, and their number, which is
    /// 0 at the end of the file. `buf` is one of:
    ///
    /// - a `Vec<u8>` or an [`AlignedBuf`](crate::AlignedBuf): the read takes at most its spare
    ///   capacity;
    /// - a [`LeaseMut`](crate::LeaseMut), or the buffer that an [`Op::read`] returned: the bytes go
    ///   directly behind it in its swap buffer. If another read has used that memory, or little
    ///   room is left, the driver moves the lease: it copies its bytes in front of the new ones.
    ///   Both together have at most [`Builder::buffer_size`] bytes. At [`Builder::swap_limit`] the
    ///   lease moves into memory of its own, which does not count for the limit. Otherwise reads
    ///   that each hold a lease could wait for each other's leases for ever.
    ///
    /// [`Counters::copied_bytes`](crate::Counters::copied_bytes) counts the copied bytes. While the
    /// read waits, it holds no memory besides `buf`.
    ///
    /// ```
    /// use std::io::Write;
    /// use windlass::{Completions, Done, Op, Watcher};
    /// let mut watcher = Watcher::new()?;
    /// let (ours, mut theirs) = std::os::unix::net::UnixStream::pair()?;
    /// let source = watcher.attach(ours)?;
    /// watcher.submit(Op::read(source))?;
    /// let mut request = Vec::new();
    /// let mut done = Completions::new();
    /// for part in ["GET / HT", "TP/1.1\r\n\r\n"] {
    ///     theirs.write_all(part.as_bytes())?;
    ///     watcher.wait(&mut done)?;
    ///     let data = match done.drain(..).next().unwrap().result? {
    ///         Done::Read(data) | Done::Appended { buf: data, .. } => data,
    ///         other => panic!("{other:?}"),
    ///     };
    ///     if data.ends_with(b"\r\n\r\n") {
    ///         request = data.into_vec();
    ///     } else {
    ///         watcher.submit(Op::read_append(source, data))?;
    ///     }
    /// }
    /// assert_eq!(request, b"GET / HTTP/1.1\r\n\r\n");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`Op::read`]. It is also refused with:
    ///
    /// - [`Refusal::EmptyBuffer`]: `buf` has no room behind its bytes. A vector has no spare
    ///   capacity, or a lease has as many bytes as a swap buffer. A [`Lease`](crate::Lease) never
    ///   has room, because its bytes may be shared.
    /// - [`Refusal::TooLong`]: the length or the spare capacity of `buf` is above 2^31 - 1 bytes.
    /// - [`Refusal::Unsupported`]: also for a datagram or seqpacket socket, and for a list.
    ///
    /// # Platforms
    ///
    /// As for [`Op::read`]. On io_uring the kernel itself reads into a vector's spare capacity. A
    /// read into a lease goes through a buffer of the ring. If the ring has put the bytes directly
    /// behind the lease, it costs no copy. Otherwise it costs a copy of the new bytes, and one of
    /// the lease when it moves. If a swap buffer cannot hold both, they go into memory of their
    /// own.
    ///
    /// # Cancellation
    ///
    /// A read that is cancelled has taken no bytes. The buffer comes back with the bytes that it
    /// had.
    #[inline]
    pub fn read_append(source: Source, buf: impl Into<Buf>) -> Op {
        Op::with_buf(OpCode::ReadAppend, source, buf.into())
    }

    /// Reads exactly `count` bytes into `buf`.
    ///
    /// Completes with [`Done::Read`] and the buffer, whose length is `count`. The operation takes
    /// bytes as they arrive, and leaves the bytes after these `count` in the socket. `count` is 1
    /// to 2^31 - 1, and at most the capacity of `buf`.
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
    /// - [`Refusal::BadCount`]: `count` is 0, or more than the capacity of `buf`.
    /// - [`Refusal::TooLong`]: both `count` and the capacity of `buf` are more than 2^31 - 1 bytes.
    ///
    /// The operation can also end with:
    ///
    /// - [`ErrorKind::Eof`]: the file ends before `count` bytes. The buffer holds the bytes that
    ///   were read.
    ///
    /// Every error returns the bytes that the operation had read before it.
    ///
    /// # Platforms
    ///
    /// As for [`Op::read_into`].
    ///
    /// # Cancellation
    ///
    /// The buffer holds the bytes that the read has taken, and [`Error::bytes`] counts them. They
    /// do not go back into the socket: the next read of the stream starts after them.
    #[inline]
    pub fn read_exact(source: Source, buf: impl Into<Buf>, count: usize) -> Op {
        let mut op = Op::with_buf(OpCode::ReadExact, source, buf.into());
        op.count = u32::try_from(count).unwrap_or(u32::MAX);
        op
    }

    /// Writes all bytes of `buf`. On a stream this can take several system calls.
    ///
    /// Completes with [`Done::Written`] and the buffer, when the kernel has taken all bytes. Writes
    /// of a source go out in the order of their submission. `buf` has at most 2^31 - 1 bytes. On a
    /// connected datagram socket, one write sends one datagram.
    ///
    /// An empty write completes with 0 bytes once the writes before it have ended. On a datagram or
    /// seqpacket socket it sends an empty message. On other sources it sends nothing, and succeeds
    /// even if the peer is gone.
    ///
    /// A write of a [`Lease`](crate::Lease) keeps a swap buffer in use until it ends. If it has to
    /// wait for 32 turns, or while reads wait for memory, the driver copies a lease that is smaller
    /// than a quarter of its swap buffer. The completion returns a lease of the copy, with the same
    /// bytes.
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
    /// - [`Refusal::TooLong`]: `buf` has more than 2^31 - 1 bytes.
    /// - [`Refusal::Unsupported`]: the source is a listener, a regular file, a directory or a block
    ///   device.
    /// - [`Refusal::Full`] with [`Limit::Writes`]: the source has too many bytes queued
    ///   ([`Builder::write_limit`]).
    ///
    /// Ends with:
    ///
    /// - `EPIPE`: the peer has stopped reading, or the program has shut this side down. Linux also
    ///   reports it for a stream socket that was never connected.
    /// - `ECONNRESET`: the peer has reset the connection.
    /// - `ETIMEDOUT`, `EHOSTUNREACH`, `ENETUNREACH`: the network does not reach the peer any more.
    /// - `EBADF`: the descriptor is not open for writing, for example a pipe's reading end.
    /// - `EDESTADDRREQ`: the source is a datagram socket without a peer.
    /// - `EMSGSIZE`: the datagram is too long.
    /// - [`ErrorKind::Torn`]: an earlier write ended after only a part of its bytes was sent. No
    ///   byte of this one was sent.
    ///
    /// [`Error::bytes`] counts the bytes that the kernel had taken. The peer may have read fewer.
    ///
    /// # Platforms
    ///
    /// On io_uring, when a stream has no room at submission, the kernel itself goes on with the
    /// write. Sockets raise no SIGPIPE on any system. A pipe whose reader is gone raises SIGPIPE,
    /// unless the program ignores the signal, as Rust programs do by default. Windows writes to
    /// sockets only. The simulation has stream and datagram sockets.
    ///
    /// # Cancellation
    ///
    /// Bytes that the kernel has taken cannot be called back: [`Error::bytes`] counts them, and the
    /// whole buffer comes back. If the kernel has taken only a part, the operations queued behind
    /// this write (writes, an [`Op::shutdown`], an [`Op::close`]) end with [`ErrorKind::Torn`], so
    /// that the stream has no hole. Writes submitted later are sent.
    #[inline(always)]
    pub fn write(source: Source, buf: impl Into<Buf>) -> Op {
        Op::with_buf(OpCode::Write, source, buf.into())
    }

    /// Writes all bytes of all `bufs` in order, without copying them together: writev(2).
    ///
    /// Completes with [`Done::Written`] and the list. All parts together have at most 2^31 - 1
    /// bytes; parts may be empty. The list may have any number of parts; one system call takes up
    /// to 64. On a datagram socket all parts are one datagram: if there are more than 64, the
    /// driver first copies them into one buffer.
    ///
    /// ```
    /// use std::io::Read;
    /// use windlass::{Buf, Completions, Op, Watcher};
    /// let mut watcher = Watcher::new()?;
    /// let (ours, mut theirs) = std::os::unix::net::UnixStream::pair()?;
    /// let source = watcher.attach(ours)?;
    /// let parts = [Buf::from("head"), Buf::from(vec![b'!'; 4])];
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
    /// As for [`Op::write`]. [`Error::bytes`] counts the bytes of all parts together.
    pub fn write_vectored(source: Source, bufs: impl IntoIterator<Item = Buf>) -> Op {
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
    /// - [`Refusal::Unsupported`]: the source is no socket.
    ///
    /// Ends with:
    ///
    /// - `ENOTCONN`: the socket is not connected, or not any more.
    /// - [`ErrorKind::Torn`]: an earlier write ended after only a part of its bytes was sent. The
    ///   socket was not shut down, because the peer would believe that it has all bytes.
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
    /// Completes with [`Done::Closed`]. Before that, reads and polls that are still pending end
    /// with [`ErrorKind::Aborted`]. After this call, `submit` refuses operations for the source
    /// with [`Refusal::Stale`]. If no operation of the source is in flight, and its close(2) does
    /// not wait, `submit` closes it at once.
    ///
    /// [`Watcher::abort`] closes at once. An abort after an `Op::close` drops the unsent writes.
    ///
    /// A thread of the process closes what close(2) may wait for: a file, when all work on it has
    /// ended (the disk blocks of a removed file are freed, a file system in user space answers); a
    /// terminal or another device; a socket with `SO_LINGER`, until the peer has acknowledged all
    /// bytes or the linger time is over. It takes no place among the jobs. 32 files and devices,
    /// and 256 sockets, of the process close at a time; all else waits for one of them to end. (If
    /// the system has no thread at all, the loop closes.)
    ///
    /// ```
    /// use windlass::{Completions, Op, Refusal, Watcher};
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
    /// assert_eq!(watcher.submit(Op::read(source)).unwrap_err().reason, Refusal::Stale);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The refusals are those of [every operation](Op#errors-of-every-operation). The operation can
    /// end with:
    ///
    /// - [`ErrorKind::Torn`]: an earlier write ended after only a part of its bytes was sent (by a
    ///   cancel, a deadline, or a reset). The source was not closed, because a close promises that
    ///   all writes were sent. [`Watcher::abort`] closes it.
    /// - `EIO`, `ENOSPC`, `EDQUOT`, `EINTR`, of a file: written data may be lost. Network file
    ///   systems and FUSE may report it only here. Even so, the descriptor is closed and the source
    ///   has ended.
    ///
    /// # Platforms
    ///
    /// close(2) on every driver. On sockets and pipes an error of close(2) means nothing, so the
    /// driver does not report it. In the simulation the operation closes the simulated socket.
    ///
    /// # Cancellation
    ///
    /// While writes are queued, or the kernel has not ended a read yet, a cancel or deadline ends
    /// the close, and the source stays open. After that, nothing stops the close. One that waits
    /// for a thread goes on, and the completion is [late](Completion::is_late).
    pub const fn close(source: Source) -> Op {
        Op::plain(OpCode::Close, source)
    }
}
