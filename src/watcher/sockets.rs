//! Sockets that a watcher makes, and their options.

use std::io;

use super::Watcher;
use crate::driver::Driver;
use crate::driver::endpoint::DatagramOptions;
use crate::sys::socket_option::SocketOption;
use crate::words::address::Address;
use crate::words::error::Refusal;
use crate::words::source::{Source, SourceKind};
#[cfg(doc)]
use crate::{Limit, Op};

impl<D: Driver> Watcher<D> {
    /// Makes a datagram socket, binds it to `address`, and attaches it: UDP for an internet
    /// address. Port 0 lets the system choose a port, and
    /// [`local_address`](Watcher::local_address) returns it. The source takes [`Op::recv_from`] and
    /// [`Op::send_to`].
    ///
    /// ```
    /// use windlass::net::DatagramOptions;
    /// use windlass::{Completion, Completions, Done, Op, Watcher};
    /// let mut watcher = Watcher::new()?;
    /// let here = watcher.bind_datagram(([127, 0, 0, 1], 0), DatagramOptions::default())?;
    /// let address = watcher.local_address(here)?;
    /// watcher.submit(Op::recv_from(here))?;
    /// watcher.submit(Op::send_to(here, "to myself", address))?;
    /// let mut done = Completions::new();
    /// let received = |c: &Completion| matches!(c.result, Ok(Done::Received { .. }));
    /// while !done.iter().any(received) {
    ///     watcher.wait(&mut done)?;
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// On an error the call leaves no socket behind. The errors are:
    ///
    /// - `EADDRINUSE`: another socket has the address. For a Unix path as in
    ///   [`listen`](Watcher::listen), which also takes over a path that no socket has any more.
    /// - `EADDRNOTAVAIL`: the address does not belong to this machine.
    /// - `EACCES`: the port is reserved, or the process may not write to the Unix socket's
    ///   directory.
    /// - `EAFNOSUPPORT`: the system has no sockets for this kind of address.
    /// - `EMFILE`, `ENFILE`: out of descriptors.
    /// - `Unsupported`: [`reuse_port`](DatagramOptions::reuse_port) on Windows; a driver of your
    ///   own makes no such sockets.
    /// - [`Refusal::Full`] with [`Limit::Sources`]: the source table is full.
    /// - [`Refusal::Closed`], [`Refusal::Forked`]: the watcher is closed; this is a forked child.
    pub fn bind_datagram(
        &mut self,
        address: impl Into<Address>,
        options: DatagramOptions,
    ) -> io::Result<Source> {
        self.driver.bind_datagram(&address.into(), options)
    }

    /// The kind of a source. Of a descriptor that the program has attached, the first operation or
    /// this call asks the system.
    ///
    /// ```
    /// use windlass::{SourceKind, Watcher};
    /// let mut watcher = Watcher::new()?;
    /// let source = watcher.attach(std::net::UdpSocket::bind("127.0.0.1:0")?)?;
    /// assert_eq!(watcher.kind(source)?, SourceKind::Datagram);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// - [`Refusal::Os`]: the system's error of the question; of a source whose
    ///   [connect](Watcher::connect) has failed, the errno of the connect.
    /// - [`Refusal::Unsupported`]: the descriptor takes no operations; a driver of your own does
    ///   not tell.
    /// - [`Refusal::Stale`], [`Refusal::Forked`]: the source has ended; this is a forked child.
    pub fn kind(&mut self, source: Source) -> Result<SourceKind, Refusal> {
        self.driver.kind(source)
    }

    /// Sets the peer of a datagram socket, as connect(2) does: the socket then receives only from
    /// this address. [`Op::write`] and an [`Op::send_to`] to [`Address::unspecified`] send there. A
    /// later call changes the peer. Nothing is sent, and the call does not block.
    ///
    /// The socket hears when the peer's host answers that the port is closed: the next operation
    /// ends with `ECONNREFUSED`, and the socket stays usable. (On Windows it is `ECONNRESET`. No
    /// test has shown that there yet: wine does not tell it.)
    ///
    /// ```
    /// use windlass::net::DatagramOptions;
    /// use windlass::{Completions, Done, Op, Watcher};
    /// let mut watcher = Watcher::new()?;
    /// let server = watcher.bind_datagram(([127, 0, 0, 1], 0), DatagramOptions::default())?;
    /// let client = watcher.bind_datagram(([127, 0, 0, 1], 0), DatagramOptions::default())?;
    /// let address = watcher.local_address(server)?;
    /// watcher.connect_datagram(client, address.clone())?;
    /// assert_eq!(watcher.peer_address(client)?, address);
    /// watcher.submit(Op::write(client, "hello"))?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// - [`Refusal::Unsupported`]: the source is no datagram socket; a driver of your own has none.
    /// - [`Refusal::Os`] with `EAFNOSUPPORT` or `EINVAL`: the address is of another family, or
    ///   [unspecified](Address::unspecified).
    /// - [`Refusal::Os`] with `ENETUNREACH`: no route leads to the address.
    /// - [`Refusal::Os`] with `EACCES`: it is a broadcast address.
    /// - [`Refusal::Os`] with `ENOENT` or `ECONNREFUSED`: no socket has this Unix path.
    /// - [`Refusal::Stale`], [`Refusal::Forked`]: the source has ended; this is a forked child.
    pub fn connect_datagram(
        &mut self,
        source: Source,
        peer: impl Into<Address>,
    ) -> Result<(), Refusal> {
        self.driver.connect_datagram(source, &peer.into())
    }

    /// Sets an option of a socket. The connections that a listener accepts later have the options
    /// of the listener. (On macOS they do not have the times of
    /// [`Keepalive`](SocketOption::Keepalive).) In a simulation only a linger time of 0 has an
    /// effect.
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass::Watcher;
    /// use windlass::net::{Keepalive, SocketOption};
    /// let mut watcher = Watcher::new()?;
    /// let listener = watcher.listen(([127, 0, 0, 1], 0))?;
    /// let probes = Keepalive::new(Duration::from_secs(60));
    /// watcher.set_option(listener, SocketOption::Keepalive(Some(probes)))?;
    /// watcher.set_option(listener, SocketOption::RecvBuffer(256 << 10))?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// - [`Refusal::Os`] with `EOPNOTSUPP`, `ENOPROTOOPT`: the socket or the system does not have
    ///   this option: for example, a Unix socket has no option of TCP.
    /// - [`Refusal::Os`] with `EINVAL`: the value is out of the range of the system.
    /// - [`Refusal::Os`] with `ENOTSOCK`: the source is no socket.
    /// - [`Refusal::Unsupported`]: a driver of your own has no options.
    /// - The reasons for which [`fd`](Watcher::fd) fails, except `NoDescriptor`.
    pub fn set_option(&mut self, source: Source, option: SocketOption) -> Result<(), Refusal> {
        self.driver.set_option(source, option)
    }

    /// Takes the error out that waits at a socket, as an errno; `None` if there is none. A poll
    /// that reports [`Ready::ERROR`] says only that there is one. This call takes no bytes, so it
    /// also tells of a reset behind bytes that were not read. The next read or write does not tell
    /// the error again.
    ///
    /// ```
    /// use std::net::{TcpListener, TcpStream};
    /// use windlass::{Completions, Op, Ready, Watcher};
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let mut ours = TcpStream::connect(listener.local_addr()?)?;
    /// let (theirs, _) = listener.accept()?;
    /// # use std::io::Write;
    /// ours.write_all(b"never read")?;
    /// # while theirs.peek(&mut [0; 10])? < 10 {}
    /// let mut watcher = Watcher::new()?;
    /// let source = watcher.attach(ours)?;
    /// assert_eq!(watcher.take_error(source)?, None);
    /// drop(theirs); // with bytes unread: a reset
    /// watcher.submit(Op::poll(source, Ready::READ_CLOSED))?;
    /// watcher.wait(&mut Completions::new())?;
    /// # #[cfg(unix)]
    /// assert_eq!(watcher.take_error(source)?, Some(libc::ECONNRESET));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// - [`Refusal::Os`] with `ENOTSOCK`: the source is no socket.
    /// - [`Refusal::Unsupported`]: a driver of your own does not tell.
    /// - The reasons for which [`fd`](Watcher::fd) fails, except `NoDescriptor`.
    ///
    /// [`Ready::ERROR`]: crate::Ready::ERROR
    pub fn take_error(&mut self, source: Source) -> Result<Option<i32>, Refusal> {
        self.driver.take_error(source)
    }
}
