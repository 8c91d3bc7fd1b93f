//! UDP clients: a connected socket, which is a session of its own.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use windlass::driver::Driver;
use windlass::net::DatagramOptions;
use windlass::{Address, Completion, Done, ErrorKind, Handle, Op, SourceKind, Watcher};

use crate::engine::Engine;
use crate::engine::events::Pending;
use crate::engine::requests::{ClientSocket, Request, is_full};
use crate::parts::sessions::{Peer, UdpSession};
use crate::parts::table::{CONNECTING, READING, SESSION};
use crate::words::cause::Cause;
use crate::words::event::Event;
use crate::words::id::Id;

/// How many receives a client has in flight. So a turn takes at most as many of its datagrams.
const RECEIVES: usize = 8;

/// The local address of a socket that connects to this one.
fn local(to: SocketAddr) -> SocketAddr {
    match to {
        SocketAddr::V4(to) if to.ip().is_loopback() => (Ipv4Addr::LOCALHOST, 0).into(),
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(to) if to.ip().is_loopback() => (Ipv6Addr::LOCALHOST, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    }
}

/// The cause of a client that could not begin.
fn cause_of(error: impl Into<io::Error>) -> Cause {
    error.into().raw_os_error().map_or(Cause::Rejected, Cause::Os)
}

impl<S> Engine<S> {
    /// Makes a UDP socket that is connected to an internet address. The socket is a session: each
    /// write is one datagram, and each datagram of the peer is an [`Event::Data`]. The program can
    /// write at once. [`Event::Opened`] follows in the next turn, or [`Event::Closed`] if the
    /// system refuses the socket or the address.
    ///
    /// The connect itself waits for nothing, and needs no time limit. A
    /// [read deadline](Engine::set_read_deadline) bounds the time to the first answer.
    ///
    /// Nothing shows whether a peer is there. If its host answers that the port is closed, the
    /// session ends with [`Cause::Os`] and `ECONNREFUSED`, at the earliest after the first
    /// datagram. Other errors of the network end it, too. A datagram that is too long is only
    /// counted, as [`datagram_errors`](crate::report::Counters::datagram_errors).
    ///
    /// [`Limits::session_idle`](crate::Limits::session_idle) ends it when the peer is silent. Its
    /// other limits are those of [sessions](Engine::bind_datagram), except
    /// [`Limits::sessions`](crate::Limits::sessions): a client is not refused.
    ///
    /// In this example one engine has both ends:
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass::driver::Deadline;
    /// use windlass::net::DatagramOptions;
    /// use windlass::{Completions, Watcher};
    /// use windlass_serve::{Config, Engine, Event};
    ///
    /// let (mut watcher, mut engine) = (Watcher::new()?, Engine::<()>::new(Config::new()));
    /// let local = ([127, 0, 0, 1], 0);
    /// let echo = engine.bind_datagram(&mut watcher, local, DatagramOptions::default())?;
    /// let to = watcher.local_address(engine.listeners()[echo])?;
    ///
    /// let client = engine.connect_datagram(to, ()).map_err(|()| "2^24 connections")?;
    /// engine.write(client, "hello")?; // leaves when the client is open
    /// engine.set_read_deadline(client, Deadline::After(Duration::from_secs(10)));
    ///
    /// let (mut done, mut heard) = (Completions::new(), Vec::new());
    /// while heard.is_empty() {
    ///     engine.flush(&mut watcher);
    ///     watcher.wait(&mut done)?;
    ///     let mut batch = done.visit();
    ///     while let Some(event) = engine.next_event_in(&mut watcher, &mut batch) {
    ///         match event {
    ///             Event::Datagram { listener, from, data, .. } => {
    ///                 engine.send_to(listener, from, data)?;
    ///             }
    ///             Event::Data { data, .. } => heard.extend_from_slice(&data),
    ///             Event::Closed { cause, .. } => return Err(cause.into()), // no answer
    ///             _ => {}
    ///         }
    ///     }
    /// }
    /// assert_eq!(heard, b"hello");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The state comes back if the engine has 2^24 connections, or its server shuts down.
    pub fn connect_datagram(&mut self, to: impl Into<Address>, state: S) -> Result<Id, S> {
        let id = self.insert_client(state)?;
        self.request(Request::Client(id, ClientSocket::To(to.into())));
        Ok(id)
    }

    /// Makes a UDP client of a connected datagram socket that the program has, as
    /// [`connect_datagram`](Engine::connect_datagram) makes one of a socket of its own.
    /// [`Event::Closed`] follows alone, with `ENOTCONN`, if the socket has no peer, and with
    /// [`Cause::Rejected`] if it is no datagram socket. [`add_listener`](Engine::add_listener)
    /// takes sockets without a peer.
    ///
    /// # Errors
    /// The handle and the state come back if the engine has 2^24 connections, or its server shuts
    /// down.
    pub fn attach_datagram(
        &mut self,
        handle: impl Into<Handle>,
        state: S,
    ) -> Result<Id, (Handle, S)> {
        let handle = handle.into();
        match self.insert_client(state) {
            Ok(id) => {
                self.request(Request::Client(id, ClientSocket::Given(handle)));
                Ok(id)
            }
            Err(state) => Err((handle, state)),
        }
    }

    fn insert_client(&mut self, state: S) -> Result<Id, S> {
        let id = self.insert_begun(CONNECTING | READING, state)?;
        // A datagram without an address goes to the peer. Some systems refuse one with an address
        // on a connected socket.
        let peer = Peer::Other(Address::unspecified());
        let at = self.udp.sessions.insert(UdpSession::new(id.index(), None, peer));
        self.table.place_mut(id.index()).active = SESSION | at;
        Ok(id)
    }

    /// Opens a client on a socket that is made here, or that the program has given.
    pub(crate) fn begin_client<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        id: Id,
        socket: ClientSocket,
    ) {
        let Some(at) = self.table.session(id) else { return };
        let peer = match socket {
            ClientSocket::To(address) => self.make_socket(watcher, id.index(), address),
            ClientSocket::Given(handle) => self.take_socket(watcher, id.index(), handle),
        };
        match peer {
            Ok(peer) => self.told.pending.push_back(Pending::Opened(id, peer)),
            Err(cause) => self.end_session(watcher, at, cause),
        }
    }

    fn make_socket<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        index: u32,
        to: Address,
    ) -> Result<Option<SocketAddr>, Cause> {
        let ip = to.ip().ok_or(Cause::Rejected)?;
        let source = watcher.bind_datagram(local(ip), DatagramOptions::default());
        let source = source.map_err(cause_of)?;
        self.table.place_mut(index).source = source;
        watcher.connect_datagram(source, to).map_err(cause_of)?;
        self.counters.connected += 1;
        Ok(Some(ip))
    }

    fn take_socket<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        index: u32,
        handle: Handle,
    ) -> Result<Option<SocketAddr>, Cause> {
        let source = watcher.attach(handle).map_err(|_| Cause::Rejected)?;
        self.table.place_mut(index).source = source;
        if watcher.kind(source) != Ok(SourceKind::Datagram) {
            return Err(Cause::Rejected);
        }
        let peer = watcher.peer_address(source).map_err(cause_of)?;
        self.counters.attached += 1;
        Ok(peer.ip())
    }

    /// Begins to receive.
    pub(crate) fn client_opened<D: Driver>(&mut self, watcher: &mut Watcher<D>, id: Id, at: u32) {
        self.note_clock(watcher);
        self.table.begin(id.index(), watcher.now());
        self.udp.sessions.touch(at, watcher.update_now());
        self.arm_expiry(watcher);
        // What the program has written so far leaves now.
        self.work.requests = true;
        for _ in 0..RECEIVES {
            self.receive_of_client(watcher, id);
        }
    }

    pub(crate) fn receive_of_client<D: Driver>(&mut self, watcher: &mut Watcher<D>, id: Id) {
        let Some(source) = self.source(id) else { return };
        let receive = Op::recv_from(source).token(self.token(id.index()));
        if is_full(watcher.submit(receive)) {
            self.request(Request::Receive(id));
        }
    }

    /// A receive of a client has ended.
    pub(crate) fn client_heard<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        index: u32,
        completion: Completion,
    ) -> Option<Event<S>> {
        let id = self.table.id(index);
        let at = self.table.session(id)?;
        match completion.result {
            Ok(Done::Received { data, truncated, .. }) => {
                self.counters.datagrams += 1;
                self.counters.truncated_datagrams += u64::from(truncated);
                self.receive_of_client(watcher, id);
                self.udp.sessions.touch(at, watcher.update_now());
                self.hear(at, data)
            }
            Ok(_) => None,
            Err(error) => {
                let cause = match error.kind() {
                    ErrorKind::Aborted | ErrorKind::Closed | ErrorKind::Cancelled => return None,
                    ErrorKind::Os(errno) => Cause::Os(errno),
                    _ => Cause::Rejected,
                };
                self.end_session(watcher, at, cause);
                None
            }
        }
    }
}
