//! Operations that make connections.

use super::{Op, OpCode};
use crate::op::payload::Payload;
use crate::words::address::Address;
use crate::words::source::{Handle, Source};
#[cfg(doc)]
use crate::{Builder, Done, Limit, Refusal, Watcher};

/// Operations that make connections.
impl Op {
    /// Takes a connection from a listener.
    ///
    /// Completes with [`Done::Accepted`]. With [`multishot`](Op::multishot) the operation takes one
    /// connection after the other until it is cancelled. It skips connections that the peer has
    /// aborted before the accept.
    ///
    /// The accept stays in flight, and the listener pauses, when:
    ///
    /// - descriptors run out (`EMFILE`, `ENFILE`): the driver frees its spare descriptor, accepts
    ///   the first connection in its place and closes it, so that this client does not wait in
    ///   vain;
    /// - the watcher has no room for another source ([`Builder::max_sources`]);
    /// - the network fails (`ENETDOWN`, `EPROTO`), or a filter forbids the call (`EPERM`). After
    ///   about a second of such errors the operation ends with the error.
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
    /// The refusals are those of [every operation](Op#errors-of-every-operation), and:
    ///
    /// - [`Refusal::Unsupported`]: the source does not listen, or is a duplicate of a blocking
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
    /// Every driver calls accept4(2) once the selector (on io_uring the ring) has reported a
    /// connection. macOS has accept(2) and fcntl(2) instead: a process that is forked between the
    /// two calls inherits the descriptor. The simulation has listeners of its own.
    ///
    /// # Cancellation
    ///
    /// No connection is lost. The watcher delivers the accepted ones before the final completion,
    /// and the others stay in the backlog for the next accept. Dropping a completion unread closes
    /// the accepted socket in it.
    #[inline]
    pub const fn accept(listener: Source) -> Op {
        Op::plain(OpCode::Accept, listener)
    }

    /// Opens a stream socket and connects it to `address`.
    ///
    /// Completes with [`Done::Socket`] and the socket, which is non-blocking and closed on exec.
    /// The source of the completion is [`Source::NONE`]. While the connect is in flight, it counts
    /// as a source. Give it a [`timeout`](Op::timeout): the system itself gives up only after
    /// minutes.
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass::{Completions, Done, Op, Watcher};
    /// let mut watcher = Watcher::new()?;
    /// let server = std::net::TcpListener::bind("127.0.0.1:0")?;
    /// watcher.submit(Op::connect(server.local_addr()?).timeout(Duration::from_secs(5)))?;
    /// let mut done = Completions::new();
    /// watcher.wait(&mut done)?;
    /// let Ok(Done::Socket(socket)) = done.drain(..).next().unwrap().result else { panic!() };
    /// let client = watcher.attach(socket)?;
    /// assert_eq!(watcher.peer_address(client)?.ip(), Some(server.local_addr()?));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The refusals are those of [every operation](Op#errors-of-every-operation), and:
    ///
    /// - [`Refusal::Full`] with [`Limit::Sources`]: the source table is full.
    ///
    /// Ends with:
    ///
    /// - `ECONNREFUSED`: no socket listens at the address.
    /// - `ETIMEDOUT`: the peer did not answer within the system's own limit.
    /// - `EHOSTUNREACH`, `ENETUNREACH`: no route leads to the peer.
    /// - `ENOENT`: no socket has this path (Unix sockets).
    /// - `EACCES`: the process may not write to the socket at this path.
    /// - `EACCES`, `EPERM`: a firewall forbids the connection, or the address is a broadcast
    ///   address.
    /// - `EADDRNOTAVAIL`, `EAGAIN`: no local port is free.
    /// - `EAFNOSUPPORT`: the system has no sockets for this kind of address, or the address is
    ///   [`Address::unspecified`].
    /// - `EMFILE`, `ENFILE`: out of descriptors.
    ///
    /// # Platforms
    ///
    /// Every driver calls a non-blocking connect(2). While the backlog of a Unix listener is full,
    /// Linux refuses with `EAGAIN`, and the driver tries again, with [growing
    /// pauses](Op#errors-of-every-operation). Windows has no Unix sockets (`EAFNOSUPPORT`). The
    /// simulation connects to its own listeners.
    ///
    /// # Cancellation
    ///
    /// The driver closes the socket, which ends the attempt. A peer that has already accepted the
    /// connection sees it end.
    pub fn connect(address: impl Into<Address>) -> Op {
        let mut op = Op::plain(OpCode::Connect, Source::NONE);
        op.payload = Payload::from(address.into());
        op
    }

    /// As [`Op::connect`], with a socket that you made. The socket may be bound, and may have
    /// options set.
    ///
    /// Completes with [`Done::Socket`] and the socket. Any kind of socket works that connect(2)
    /// takes: connecting a datagram socket sets its peer. The driver makes the socket non-blocking,
    /// and it stays so.
    ///
    /// ```
    /// use windlass::{Completions, Done, Op, Watcher};
    /// let mut watcher = Watcher::new()?;
    /// let server = std::net::UdpSocket::bind("127.0.0.1:0")?;
    /// let socket = std::net::UdpSocket::bind("127.0.0.1:0")?;
    /// watcher.submit(Op::connect_with(socket, server.local_addr()?))?;
    /// let mut done = Completions::new();
    /// watcher.wait(&mut done)?;
    /// assert!(matches!(done.drain(..).next().unwrap().result, Ok(Done::Socket(_))));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`Op::connect`]. It is also refused with:
    ///
    /// - [`Refusal::NoDescriptor`]: the handle belongs to a [simulation](crate::sim).
    ///
    /// The operation can also end with:
    ///
    /// - `ENOTSOCK`: the descriptor is no socket.
    /// - `EISCONN`: the socket is connected already.
    /// - `EAFNOSUPPORT`, `EINVAL`: the address is of another family than the socket.
    ///
    /// Every error closes the socket.
    ///
    /// # Platforms
    ///
    /// As for [`Op::connect`]. The simulation has no descriptors: there the operation ends with
    /// `EOPNOTSUPP`.
    ///
    /// # Cancellation
    ///
    /// As for [`Op::connect`]: the driver closes the socket, and the program does not get it back.
    pub fn connect_with(socket: impl Into<Handle>, address: impl Into<Address>) -> Op {
        let mut op = Op::plain(OpCode::Connect, Source::NONE);
        let mut address = address.into();
        match socket.into().into_fd() {
            Ok(fd) => address.set_descriptors(vec![fd]),
            Err(_virtual_handle) => op.count = 1,
        }
        op.payload = Payload::from(address);
        op
    }
}
