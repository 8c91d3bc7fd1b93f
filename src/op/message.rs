//! Operations on messages: datagrams, and descriptors that travel with bytes.

use super::{DEFERRED, Op, OpCode};
use crate::memory::buf::Buf;
use crate::op::payload::Payload;
use crate::sys::fd::OwnedFd;
use crate::words::address::Address;
use crate::words::source::Source;
#[cfg(doc)]
use crate::{Builder, Done, Error, Limit, Refusal, Watcher};

/// Operations on messages: datagrams, and descriptors that travel with bytes.
impl Op {
    /// Receives one datagram into memory of the watcher.
    ///
    /// Completes with [`Done::Received`]: the bytes, the sender, and whether the datagram was
    /// longer than a swap buffer ([`Builder::buffer_size`]). A sender without an address is
    /// [unspecified](Address::is_unspecified): an unbound Unix socket, or the peer of a seqpacket
    /// socket. While all swap buffers are in use ([`Builder::swap_limit`]), the receive waits until
    /// the program drops a lease.
    ///
    /// A [multishot](Op::multishot) receive completes once for each datagram, and needs the fewest
    /// system calls: see the second example.
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
    /// One multishot receive takes all datagrams:
    ///
    /// ```
    /// use windlass::{Completions, Done, Op, Watcher};
    /// let mut watcher = Watcher::new()?;
    /// let ours = std::net::UdpSocket::bind("127.0.0.1:0")?;
    /// let theirs = std::net::UdpSocket::bind("127.0.0.1:0")?;
    /// for text in ["one", "two", "three"] {
    ///     theirs.send_to(text.as_bytes(), ours.local_addr()?)?;
    /// }
    /// let source = watcher.attach(ours)?;
    /// watcher.submit(Op::recv_from(source).multishot())?;
    /// let (mut done, mut received) = (Completions::new(), 0);
    /// while received < 3 {
    ///     watcher.wait(&mut done)?;
    ///     for c in done.drain(..) {
    ///         assert!(c.has_more()); // otherwise the receive has ended: submit another one
    ///         received += usize::from(matches!(c.result, Ok(Done::Received { .. })));
    ///     }
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The refusals are those of [every operation](Op#errors-of-every-operation), and:
    ///
    /// - [`Refusal::Unsupported`]: the source is no datagram or seqpacket socket.
    ///
    /// Ends with:
    ///
    /// - `ECONNREFUSED`: an earlier datagram that this connected socket has sent found no receiver.
    /// - [`ErrorKind::Eof`](crate::ErrorKind::Eof): the peer of a seqpacket socket has shut its
    ///   writing side. All its records were received before, also empty ones.
    /// - `ECONNRESET`, `ENOTCONN`: the peer has reset the connection of a seqpacket socket, or the
    ///   socket has no connection.
    ///
    /// # Platforms
    ///
    /// Every driver calls recvmsg(2). On Linux and Android it calls recvmmsg(2) if the operation is
    /// multishot, or if several receives wait at the head of the source's queue. The completions
    /// are the same. recvmsg(2) answers 0 at the end of a seqpacket connection and for an empty
    /// record. So that the kernel marks records, Linux has `SO_TIMESTAMP` set on a Unix socket of
    /// this kind while the driver owns it. On a duplicate ([`Watcher::attach_dup`]) an empty record
    /// right before the end counts as the end. On Windows the driver ignores the resets that
    /// unconnected sockets report. The simulation keeps datagrams in order. It drops a datagram to
    /// an internet address that no socket has.
    ///
    /// # Cancellation
    ///
    /// A receive that is cancelled has taken no datagram.
    pub const fn recv_from(source: Source) -> Op {
        Op::plain(OpCode::RecvFrom, source)
    }

    /// As [`Op::recv_from`], but into `buf`: a single buffer, not a list.
    ///
    /// Completes with [`Done::Received`] and the buffer, whose length is that of the datagram. The
    /// capacity of `buf` is 1 to 2^31 - 1 bytes. If the datagram is longer, the rest of it is lost,
    /// and `truncated` is true.
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
    /// - [`Refusal::EmptyBuffer`]: `buf` has no capacity.
    /// - [`Refusal::TooLong`]: `buf` has a capacity of more than 2^31 - 1 bytes.
    /// - [`Refusal::Unsupported`]: `buf` is a list.
    ///
    /// # Platforms
    ///
    /// As for [`Op::recv_from`].
    ///
    /// # Cancellation
    ///
    /// A receive that is cancelled has taken no datagram. The buffer comes back with length 0 and
    /// its capacity.
    pub fn recv_from_into(source: Source, buf: impl Into<Buf>) -> Op {
        let mut op = Op::with_buf(OpCode::RecvFrom, source, buf.into());
        op.count = 1;
        op
    }

    /// Sends `buf` as one datagram to `address`.
    ///
    /// Completes with [`Done::Written`] and the buffer, when the kernel has taken the datagram. The
    /// datagram may be empty. [`Address::unspecified`] stands for the peer of a connected socket.
    /// Sends of a source go out in the order of their submission.
    ///
    /// An example is at [`Op::recv_from`].
    ///
    /// # Errors
    ///
    /// The refusals are those of [every operation](Op#errors-of-every-operation), and:
    ///
    /// - [`Refusal::Unsupported`]: the source is no datagram or seqpacket socket, or `buf` is a
    ///   list.
    /// - [`Refusal::TooLong`]: `buf` has more than 2^31 - 1 bytes.
    /// - [`Refusal::Full`] with [`Limit::Writes`]: the source has too many bytes queued
    ///   ([`Builder::write_limit`]).
    ///
    /// Ends with:
    ///
    /// - `EMSGSIZE`: the datagram is longer than the protocol or the send buffer allows (UDP over
    ///   IPv4: 65,507 bytes).
    /// - `EDESTADDRREQ`: the address is unspecified, and the socket has no peer.
    /// - `ECONNREFUSED`: no socket has the Unix path any more, or an earlier datagram found no
    ///   receiver.
    /// - `ENOENT`: nothing has this path (Unix sockets).
    /// - `EHOSTUNREACH`, `ENETUNREACH`: no route leads to the address.
    /// - `EACCES`: the address is a broadcast address and the socket lacks `SO_BROADCAST`, or the
    ///   process may not write to the Unix path.
    /// - `EAFNOSUPPORT`: the address is of another family than the socket.
    ///
    /// # Platforms
    ///
    /// Every driver calls sendmsg(2). On Linux and Android it calls sendmmsg(2) if several sends
    /// with an address are queued on a datagram socket ([`Op::deferred`]). The completions are the
    /// same, with one exception: an error that an earlier datagram has left on a connected socket
    /// can go unseen.
    ///
    /// No selector reports when the queue of a Unix receiver has room again. So while that queue is
    /// full, the driver tries again and again, with [growing pauses](Op#errors-of-every-operation).
    /// On macOS and FreeBSD a connected socket takes no address (`EISCONN`).
    ///
    /// # Cancellation
    ///
    /// A datagram is sent whole or not at all: a send that is cancelled has sent nothing, and the
    /// sends queued behind it go on.
    pub fn send_to(source: Source, buf: impl Into<Buf>, address: impl Into<Address>) -> Op {
        let mut op = Op::with_buf(OpCode::SendTo, source, buf.into());
        op.payload = Payload::from(address.into());
        op
    }

    /// Lets the driver send this datagram at the next wait, together with the other deferred ones
    /// of its source: many datagrams then take one system call. Other operations than
    /// [`Op::send_to`] ignore the setting.
    ///
    /// Use it for the answers to a batch of completions. Without it, `submit` sends at once, with a
    /// system call for each datagram. The datagrams of a source go out in the order of their
    /// submission, deferred or not: a later send waits for the deferred ones before it. If the next
    /// wait has completions to deliver at once, the one after it sends. A send whose
    /// [deadline](Op::deadline) has passed is not deferred.
    ///
    /// ```
    /// use windlass::{Completions, Done, Op, Watcher};
    /// let mut watcher = Watcher::new()?;
    /// let ours = watcher.attach(std::net::UdpSocket::bind("127.0.0.1:0")?)?;
    /// let theirs = std::net::UdpSocket::bind("127.0.0.1:0")?;
    /// for text in ["one", "two", "three"] {
    ///     watcher.submit(Op::send_to(ours, text, theirs.local_addr()?).deferred())?;
    /// }
    /// assert_eq!(watcher.queued_bytes(ours)?, 11); // none is out yet
    /// let mut done = Completions::new();
    /// watcher.wait(&mut done)?;
    /// assert!(done.drain(..).all(|c| matches!(c.result, Ok(Done::Written { .. }))));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`Op::send_to`]. Each datagram ends with its own error.
    ///
    /// # Platforms
    ///
    /// Linux and Android send up to 32 datagrams with one sendmmsg(2). Elsewhere, and where a
    /// filter denies that call, the driver sends them one by one ([`Watcher::explain`] tells).
    ///
    /// # Cancellation
    ///
    /// Until the wait, the send is queued: it counts in [`Watcher::queued_bytes`], and a cancel, an
    /// abort of its source, or a drop of the watcher keeps it from going out.
    #[inline(always)]
    pub const fn deferred(mut self) -> Op {
        if matches!(self.code, OpCode::SendTo) {
            self.flags |= DEFERRED;
        }
        self
    }

    /// Sends `buf` and `descriptors` over a Unix socket: `SCM_RIGHTS`.
    ///
    /// Completes with [`Done::Written`] and the buffer. `buf` has 1 to 2^31 - 1 bytes; at most 253
    /// descriptors travel with its first byte. The driver closes its own copies of them when the
    /// operation ends, even if it fails.
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
    ///     if let Done::Descriptors { data, descriptors, .. } = c.result? {
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
    /// The refusals are those of [every operation](Op#errors-of-every-operation), and:
    ///
    /// - [`Refusal::EmptyBuffer`], [`Refusal::TooLong`]: `buf` has no bytes, or more than 2^31 - 1.
    /// - [`Refusal::Unsupported`]: the source is no Unix stream, datagram or seqpacket socket, or
    ///   `buf` is a list.
    /// - [`Refusal::Full`] with [`Limit::Writes`]: the source has too many bytes queued
    ///   ([`Builder::write_limit`]).
    ///
    /// The operation can end with the errors of [`Op::write`], and with:
    ///
    /// - `EINVAL`: more than 253 descriptors.
    /// - `ETOOMANYREFS`: the process has sent too many descriptors that no process has received yet
    ///   (Linux: as many as `RLIMIT_NOFILE`).
    ///
    /// # Platforms
    ///
    /// On Unix, every driver calls sendmsg(2). Windows cannot pass descriptors: `submit` refuses
    /// the operation as unsupported. The simulation cannot pass them either: it refuses the
    /// operation, or ends it with `EOPNOTSUPP`.
    ///
    /// # Cancellation
    ///
    /// As for [`Op::write`]. The descriptors travel with the first byte: if [`Error::bytes`] is 0,
    /// the peer has none of them.
    pub fn send_descriptors(source: Source, buf: impl Into<Buf>, descriptors: Vec<OwnedFd>) -> Op {
        let mut op = Op::with_buf(OpCode::SendDescriptors, source, buf.into());
        let mut address = Address::unspecified();
        address.set_descriptors(descriptors);
        op.payload = Payload::from(address);
        op
    }

    /// Receives bytes and the descriptors that came with them over a Unix socket.
    ///
    /// Completes with [`Done::Descriptors`]. Its data is a lease of at most
    /// [`Builder::buffer_size`] bytes, and is empty at the end of a stream. (The end of a seqpacket
    /// connection is an error, as for [`Op::read`].) The descriptors are closed on exec. While all
    /// swap buffers are in use, the receive waits, as [`Op::read`] does. All other reads close
    /// descriptors that come with their bytes.
    ///
    /// An example is at [`Op::send_descriptors`].
    ///
    /// # Errors
    ///
    /// The refusals are those of [every operation](Op#errors-of-every-operation), and:
    ///
    /// - [`Refusal::Unsupported`]: the source is no Unix stream, datagram or seqpacket socket.
    ///
    /// The operation can end with the errors of [`Op::read`]. Descriptors beyond the process's
    /// limit (`RLIMIT_NOFILE`) are lost: the system closes them. This is no error, but the result
    /// says so in `lost`.
    ///
    /// # Platforms
    ///
    /// On Unix, every driver calls recvmsg(2). On macOS the driver sets `CLOEXEC` after that call:
    /// a process that is forked in between inherits the descriptors. Windows cannot pass
    /// descriptors: `submit` refuses the operation as unsupported. The simulation cannot pass them
    /// either: it refuses the operation, or ends it with `EOPNOTSUPP`.
    ///
    /// # Cancellation
    ///
    /// A receive that is cancelled has taken neither bytes nor descriptors. Dropping a completion
    /// unread closes the descriptors in it.
    pub const fn recv_descriptors(source: Source) -> Op {
        Op::plain(OpCode::RecvDescriptors, source)
    }
}
