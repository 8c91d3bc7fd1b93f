//! Operations on messages: datagrams, and descriptors that travel with bytes.

use super::{Op, OpCode};
use crate::address::Address;
use crate::buf::Buf;
use crate::extra::Extra;
use crate::source::Source;
use crate::sys::fd::OwnedFd;
#[cfg(doc)]
use crate::{Builder, Done, Error, Limit, Reason};

/// Operations on messages: datagrams, and descriptors that travel with bytes.
impl Op {
    /// Receives one datagram into library-owned memory.
    ///
    /// Completes with [`Done::Received`]: the bytes, the sender, and whether the datagram was
    /// longer than a swap buffer ([`Builder::buffer_size`]). The sender is
    /// [unspecified](Address::is_unspecified) where it has no name: an unbound Unix socket, the
    /// peer of a seqpacket socket. When the swap buffers reach their limit it waits for a lease to
    /// come back.
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
    /// Refused as [every operation](Op#errors-of-every-operation), and with:
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
    /// there. The simulation keeps datagrams in their order, and loses those to an internet address
    /// that no socket has.
    ///
    /// # Cancellation
    ///
    /// A receive that ends early has taken no datagram.
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
    /// A receive that ends early has taken no datagram. The buffer comes back with length 0 and its
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
    /// Refused as [every operation](Op#errors-of-every-operation), and with:
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
    /// - `ECONNREFUSED`: no socket has the Unix path any more, or an earlier datagram found no
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
    /// A datagram is sent whole or not at all: a send that ends early has sent nothing, and those
    /// queued behind it go out.
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
    /// Refused as [every operation](Op#errors-of-every-operation), and with:
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
    /// sendmsg(2) on every Unix. Windows refuses it as unsupported. The simulation does not pass
    /// descriptors either: it refuses the operation, or ends it with `EOPNOTSUPP`.
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
    /// Refused as [every operation](Op#errors-of-every-operation), and with:
    ///
    /// - [`Reason::Unsupported`]: the source is no Unix stream, datagram or seqpacket socket.
    ///
    /// Ends with the errors of [`Op::read`]. The system closes the descriptors that are beyond the
    /// process' limit (`RLIMIT_NOFILE`), without an error.
    ///
    /// # Platforms
    ///
    /// recvmsg(2) on every Unix; macOS sets `CLOEXEC` after the call, so that a fork between the
    /// two passes the descriptors on. Windows refuses it as unsupported. The simulation does not
    /// pass descriptors either: it refuses the operation, or ends it with `EOPNOTSUPP`.
    ///
    /// # Cancellation
    ///
    /// A receive that ends early has taken neither bytes nor descriptors. Descriptors in a
    /// completion that is dropped unread are closed.
    pub const fn recv_descriptors(source: Source) -> Op {
        Op::plain(OpCode::RecvDescriptors, source)
    }
}
