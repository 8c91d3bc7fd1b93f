//! Connections that the program begins: connects, and sockets that it gives, plain and with TLS.

use windlass::driver::Driver;
use windlass::net::ConnectOptions;
use windlass::{Address, Completion, Done, ErrorKind, Handle, Source, Watcher};

use crate::engine::Engine;
use crate::engine::events::Pending;
use crate::engine::requests::Request;
use crate::parts::cipher::Destination;
use crate::parts::table::{CODED, CONNECTING, MOST, WOKEN};
use crate::parts::transport::Handshake;
use crate::stage::Step;
use crate::words::cause::Cause;
use crate::words::event::{Event, Origin};
use crate::words::id::Id;

impl<S: Default> Engine<S> {
    /// Opens a connection of a descriptor that the program has given.
    pub(crate) fn attached<D: Driver>(&mut self, watcher: &mut Watcher<D>, id: Id, origin: Origin) {
        self.opens(id, Step::Connected);
        self.log_opened(id, origin);
        if let Some(at) = self.table.session(id) {
            return self.client_opened(watcher, id, at);
        }
        self.set_options_of_connection(watcher, id, false);
        self.begin(watcher, id);
    }

    /// Opens a connection: from now on it sends, and gets wakes.
    fn opens(&mut self, id: Id, step: Step) {
        let place = self.table.place_mut(id.index());
        place.flags &= !CONNECTING;
        place.advance(step);
        if place.flags & WOKEN != 0 {
            self.told.pending.push_back(Pending::Wake(id));
        }
        self.dirty(id.index());
    }

    /// A connect has succeeded, or the handshake behind it: opens the connection, unless the
    /// program has closed it. Then it ends when its output is sent.
    pub(crate) fn has_connected<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        id: Id,
        origin: Origin,
        step: Step,
    ) -> Option<Event<S>> {
        self.opens(id, step);
        if self.table.place(id.index()).is_over() {
            return None;
        }
        self.log_opened(id, origin);
        self.set_options_of_connection(watcher, id, false);
        self.begin(watcher, id);
        Some(Event::Opened { id, origin })
    }

    /// A connect has ended.
    pub(crate) fn connected<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        index: u32,
        completion: Completion,
    ) -> Option<Event<S>> {
        let id = self.table.id(index);
        match completion.result {
            Ok(Done::Connected(address)) => {
                self.counters.connected += 1;
                if self.table.place(index).flags & CODED != 0 {
                    self.greet(watcher, index, address.ip());
                    return None;
                }
                let origin = Origin { listener: None, peer: address.ip() };
                self.has_connected(watcher, id, origin, Step::Connected)
            }
            Ok(_) => None,
            Err(error) => {
                let cause = match error.kind() {
                    ErrorKind::Deadline => Cause::ConnectTimeout,
                    ErrorKind::Os(errno) => Cause::Os(errno),
                    _ => Cause::Rejected,
                };
                self.fail(watcher, index, cause);
                None
            }
        }
    }
}

impl<S> Engine<S> {
    /// Connects to the first of `addresses` that answers. The program can write to the connection
    /// at once. [`Event::Opened`] follows when it is connected, or [`Event::Closed`] if that fails.
    ///
    /// `options` are those of [`Watcher::connect`]. The engine replaces their token. Without a
    /// deadline, [`Limits::connect`](crate::Limits::connect) applies. After the deadline the
    /// connection ends with [`Cause::ConnectTimeout`]. If the deadline has passed before, the first
    /// address still has one try, which succeeds if the system connects at once.
    ///
    /// A [`close`](Engine::close) or an [`abort`](Engine::abort) of the id ends the connect.
    /// However it ends, there is one [`Event::Closed`].
    ///
    /// # Errors
    /// The state comes back if the engine has 2^24 connections, or its server shuts down.
    pub fn connect<A: Into<Address>>(
        &mut self,
        addresses: impl IntoIterator<Item = A>,
        options: ConnectOptions,
        state: S,
    ) -> Result<Id, S> {
        let addresses = addresses.into_iter().map(Into::into).collect();
        self.connect_to(addresses, options, None, state)
    }

    /// Connects as [`connect`](Engine::connect), and then agrees on TLS with the server `to`: one
    /// [`Event::Opened`] follows when both have succeeded. The program reads and writes plain text.
    /// What it writes before `Opened` waits, and leaves encrypted. [`tls`](Engine::tls) tells what
    /// was agreed on.
    ///
    /// The handshake begins when the socket is connected, and may take
    /// [`Limits::handshake`](crate::Limits::handshake). If it takes longer, the connection ends
    /// with [`Cause::ReadTimeout`]. If it fails, it ends with [`Cause::Tls`], and
    /// [`Event::Closed`] has the [error](crate::tls::Error), which names the certificate, the name
    /// or the time that is wrong. With several addresses, the first one that answers is the only
    /// one that a handshake is tried with.
    ///
    /// With TLS 1.3, a client has agreed before the server has looked at its certificate. So a
    /// server that refuses the certificate ends the connection after [`Event::Opened`], with the
    /// error [`Alert`](crate::tls::Error::Alert).
    ///
    /// ```no_run
    /// # #[cfg(feature = "webpki-roots")] {
    /// use windlass::net::ConnectOptions;
    /// use windlass_serve::{Engine, Id, tls::TlsClient};
    ///
    /// # type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;
    /// fn ask(engine: &mut Engine<()>, trust: &TlsClient) -> Result<Id> {
    ///     let server = trust.to("example.com")?;
    ///     let addresses = [([192, 0, 2, 1], 443)]; // what a look-up of the name has found
    ///     let options = ConnectOptions::default();
    ///     let begun = engine.connect_tls(addresses, options, &server, ());
    ///     let id = begun.map_err(|()| "too many connections")?;
    ///     engine.write(id, "GET / HTTP/1.1\r\nhost: example.com\r\n\r\n")?; // waits for TLS
    ///     Ok(id)
    /// }
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`connect`](Engine::connect).
    #[cfg(feature = "tls")]
    pub fn connect_tls<A: Into<Address>>(
        &mut self,
        addresses: impl IntoIterator<Item = A>,
        options: ConnectOptions,
        to: &Destination,
        state: S,
    ) -> Result<Id, S> {
        let addresses = addresses.into_iter().map(Into::into).collect();
        self.connect_to(addresses, options, Some(to.clone()), state)
    }

    /// As `connect`, with TLS if there is a destination.
    pub(crate) fn connect_to(
        &mut self,
        addresses: Vec<Address>,
        options: ConnectOptions,
        tls: Option<Destination>,
        state: S,
    ) -> Result<Id, S> {
        let id = self.insert_begun(CONNECTING, state)?;
        self.expect_tls(id, tls);
        self.request(Request::Connect(id, addresses, options));
        Ok(id)
    }

    /// Makes a connection of a stream socket that the program has, a `std::net::TcpStream` for
    /// example. [`Event::Opened`] follows. [`Event::Closed`] follows alone if the watcher refuses
    /// the socket, with `ENOTCONN` if the socket is not connected (yet), and with
    /// [`Cause::Rejected`] if it is a listener or a datagram socket: see
    /// [`add_listener`](Engine::add_listener) and [`attach_datagram`](Engine::attach_datagram).
    ///
    /// ```
    /// use std::net::{TcpListener, TcpStream};
    /// use windlass::{Completions, Watcher};
    /// use windlass_serve::{Config, Engine, Event};
    ///
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let socket = TcpStream::connect(listener.local_addr()?)?;
    /// let (mut watcher, mut engine) = (Watcher::new()?, Engine::<()>::new(Config::new()));
    /// let id = engine.attach(socket, ()).map_err(|_| "2^24 connections")?;
    /// engine.write(id, "hello")?;
    /// engine.flush(&mut watcher);
    /// watcher.wait(&mut Completions::new())?;
    /// assert!(matches!(engine.next_event(&mut watcher), Some(Event::Opened { .. })));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The handle and the state come back if the engine has 2^24 connections, or its server shuts
    /// down.
    pub fn attach(&mut self, handle: impl Into<Handle>, state: S) -> Result<Id, (Handle, S)> {
        self.attach_to(handle.into(), None, state)
    }

    /// Makes a connection with TLS of a stream socket that the program has, as
    /// [`attach`](Engine::attach) makes a plain one: this end is the client, and agrees with the
    /// server `to` as [`connect_tls`](Engine::connect_tls) does.
    ///
    /// # Errors
    /// As for [`attach`](Engine::attach).
    #[cfg(feature = "tls")]
    pub fn attach_tls(
        &mut self,
        handle: impl Into<Handle>,
        to: &Destination,
        state: S,
    ) -> Result<Id, (Handle, S)> {
        self.attach_to(handle.into(), Some(to.clone()), state)
    }

    /// As `attach`, with TLS if there is a destination.
    pub(crate) fn attach_to(
        &mut self,
        handle: Handle,
        tls: Option<Destination>,
        state: S,
    ) -> Result<Id, (Handle, S)> {
        match self.insert_begun(CONNECTING, state) {
            Ok(id) => {
                self.expect_tls(id, tls);
                self.request(Request::Attach(id, handle));
                Ok(id)
            }
            Err(state) => Err((handle, state)),
        }
    }

    /// A handshake follows the connect.
    fn expect_tls(&mut self, id: Id, to: Option<Destination>) {
        let Some(to) = to else { return };
        // So that no output leaves before the session has it.
        self.table.place_mut(id.index()).flags |= CODED;
        let handshake = Handshake::client(to, self.config.limits.handshake);
        self.entrance.transports.insert(id.index(), handshake);
    }

    /// The session of a connection with TLS, to read what was agreed on: the protocol (ALPN), the
    /// name that the client has asked for, the version, the suite, the certificates of the peer.
    /// `None` for a stale id, for a plain connection, and before [`Event::Opened`].
    ///
    /// ```
    /// use windlass_serve::{Engine, Id};
    ///
    /// fn speaks_h2(engine: &Engine<()>, id: Id) -> bool {
    ///     engine.tls(id).is_some_and(|session| session.alpn() == Some(b"h2"))
    /// }
    /// ```
    #[cfg(feature = "tls")]
    pub fn tls(&self, id: Id) -> Option<&crate::tls::Session> {
        self.table.get(id).filter(|place| place.flags & CODED != 0)?;
        self.entrance.transports.open_session(id.index())
    }

    /// A place for a connection that the program begins. The state comes back if there is none.
    pub(crate) fn insert_begun(&mut self, flags: u16, state: S) -> Result<Id, S> {
        if self.entrance.refuses || self.table.len >= MOST as usize {
            return Err(state);
        }
        let Some(id) = self.table.insert(Source::NONE, flags, Some(state)) else {
            unreachable!("there are fewer than 2^24")
        };
        self.count_load(1);
        Ok(id)
    }
}
