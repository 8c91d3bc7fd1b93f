//! Connections whose [transport](crate::parts::transport) has not agreed with the peer.
//!
//! The program knows nothing of the accepted ones: they have a place, which counts for the limit of
//! connections, and no state. A client has both: until its handshake is done, it connects. What the
//! program writes to it waits, and an end that the program asks for waits for that. Each read has
//! the end of the handshake as its deadline, so that no byte begins the clock again. It is one read
//! at a time: when the transport has agreed, no read is in flight, and the connection begins as a
//! plain one does.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use windlass::driver::{Driver, OpCode};
use windlass::{Buf, Completion, Done, ErrorKind, Op, Source, Watcher};

use crate::engine::Engine;
use crate::engine::events::Pending;
use crate::log::{LogEvent, RefusedBecause};
use crate::parts::cipher::{Failure, Tls};
use crate::parts::table::{ABORT, CODED, CONNECTING, HELD};
use crate::parts::transport::{Accepted, Agreement, Door, Handshake, because};
use crate::stage::Step;
use crate::words::cause::Cause;
use crate::words::event::{Event, Origin};
use crate::words::id::Id;
use crate::words::proxy::Versions;

impl<S> Engine<S> {
    /// The door of a new listener, by what its address says of the versions.
    pub(crate) fn door(
        &self,
        versions: Option<Versions>,
        tls: Option<Tls>,
    ) -> io::Result<Option<Door>> {
        let wrong = |why| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        let proxy = match (self.config.proxy, versions) {
            (_, Some(Versions::NONE)) | (None, None) => None,
            (None, Some(_)) => {
                return wrong("?proxy needs Config::proxy, which lists the proxies' networks");
            }
            (Some(proxy), _) if proxy.networks.is_empty() => {
                return wrong(
                    "Config::proxy lists no networks (Proxy::from), so it would take no connection",
                );
            }
            (Some(proxy), versions) => Some((proxy, versions.unwrap_or(proxy.versions))),
        };
        let time = self.config.limits.handshake;
        Ok((proxy.is_some() || tls.is_some()).then_some(Door { proxy, tls, time }))
    }

    /// Whether an accepted connection comes from a peer that the listener's door lets in.
    pub(crate) fn is_let_in<D: Driver>(&self, watcher: &Watcher<D>, accepted: &Accepted) -> bool {
        let Some((proxy, _)) = accepted.door().and_then(|door| door.proxy) else { return true };
        let peer = accepted.handle.peer();
        // Without an address it is the peer of a Unix socket. Some systems have none for a peer of
        // TCP that is gone already.
        let is_of_unix = || {
            let source = self.entrance.listeners[accepted.listener()];
            watcher.local_address(source).is_ok_and(|address| address.ip().is_none())
        };
        (peer.is_some() || is_of_unix()) && proxy.networks.contains(peer)
    }

    /// Begins the handshake of an accepted and counted connection, for which there is room.
    pub(crate) fn begin_handshake<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        source: Source,
        door: Arc<Door>,
        origin: Origin,
    ) {
        let Some(id) = self.table.insert(source, 0, None) else {
            self.did_not_open(origin, RefusedBecause::Connections);
            return self.say_farewell(watcher, source, door.tls.is_none());
        };
        let now = watcher.update_now();
        let handshake = Handshake::new(door, origin, now);
        self.counters.handshakes.begun += u64::from(handshake.is_tls());
        self.entrance.transports.insert(id.index(), handshake);
        self.read_handshake(watcher, id.index());
    }

    fn read_handshake<D: Driver>(&mut self, watcher: &mut Watcher<D>, index: u32) {
        let Some(handshake) = self.entrance.transports.get_mut(index) else { return };
        let (bytes, until) = (handshake.bytes(), handshake.until);
        if bytes > 0 {
            self.activate(index).held_bytes = bytes;
            self.recharge(index);
        }
        // A read whose deadline has passed still takes what is there: a peer that always has one
        // more byte on its way would go on.
        if until.is_some_and(|until| until <= watcher.now()) {
            return self.fail(watcher, index, Cause::ReadTimeout);
        }
        let mut read = Op::read(self.table.place(index).source).token(self.token(index));
        if let Some(until) = until {
            read = read.deadline(until);
        }
        if watcher.submit(read).is_err() {
            self.fail(watcher, index, Cause::Rejected);
        }
    }

    /// Does what follows from an agreement, or from its failure. `out` is to be sent.
    pub(crate) fn take_agreement<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        index: u32,
        agreement: Agreement,
        out: Vec<u8>,
    ) {
        if let Agreement::NoSession(failure) = agreement {
            return self.refuse_session(watcher, index, &failure, out);
        }
        if !self.say_in_handshake(watcher, index, out) {
            return;
        }
        match agreement {
            // The program's state is made where its events are.
            Agreement::Agreed { rest } => {
                self.told.pending.push_back(Pending::Agreed(self.table.id(index), rest));
            }
            Agreement::Failed(because) => self.refuse(watcher, index, because),
            Agreement::Waits => self.queue_flight(watcher, index),
            Agreement::Asked => self.ask_about(watcher, index),
            Agreement::More | Agreement::NoSession(_) => self.read_handshake(watcher, index),
        }
    }

    /// A connection has ended before its transport has agreed.
    #[cold]
    pub(crate) fn end_handshake(&mut self, index: u32, cause: Cause) {
        self.forget_flight(index);
        if let Some(handshake) = self.entrance.transports.remove(index) {
            self.counters.handshakes.failed += u64::from(handshake.is_tls());
            self.did_not_open(handshake.origin, because(cause));
        }
    }

    /// The handshake of TLS has failed: the peer gets the alert, and then an end.
    #[cold]
    fn refuse_session<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        index: u32,
        failure: &Failure,
        alert: Vec<u8>,
    ) {
        let Some(handshake) = self.entrance.transports.get_mut(index) else { return };
        let (peer, error) = (handshake.origin.peer, &*failure.to_string());
        let id = self.is_client(index).then(|| self.table.id(index));
        self.log(LogEvent::TlsFailed { id, peer, error });
        let source = std::mem::replace(&mut self.table.place_mut(index).source, Source::NONE);
        self.end_connection(watcher, index, Cause::Tls, 0);
        self.say_last(watcher, source, alert.into());
    }

    /// Whether a connection in its handshake is a client, which the program knows.
    fn is_client(&self, index: u32) -> bool {
        self.table.place(index).state.is_some()
    }

    /// Whether a connection in its handshake is about to end without it. A client that closes sends
    /// its output first, for which it needs the session.
    pub(crate) fn has_left_handshake(&self, index: u32) -> bool {
        let place = self.table.place(index);
        place.is_over() && (place.flags & CONNECTING == 0 || place.flags & ABORT != 0)
    }

    /// Ends the handshakes of accepted connections in the next flush: the server shuts down. (A
    /// client closes as others do.)
    pub(crate) fn abort_handshakes(&mut self) {
        for index in self.entrance.transports.indices() {
            if !self.is_client(index) {
                self.abort_as(self.table.id(index), Cause::Shutdown);
            }
        }
    }

    /// The socket of a client is connected: says hello.
    pub(crate) fn greet<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        index: u32,
        peer: Option<SocketAddr>,
    ) {
        if self.table.place(index).flags & ABORT != 0 {
            return; // The next flush ends it.
        }
        let (mut out, now) = (Vec::new(), watcher.update_now());
        let Some(handshake) = self.entrance.transports.get_mut(index) else { return };
        let begun = handshake.begin(peer, now, &mut out);
        self.counters.handshakes.begun += u64::from(begun.is_ok());
        self.table.place_mut(index).advance(Step::Greets);
        match begun {
            Err(failure) => self.refuse_session(watcher, index, &failure, out),
            Ok(()) if self.say_in_handshake(watcher, index, out) => {
                self.read_handshake(watcher, index);
            }
            Ok(()) => {}
        }
    }

    /// Sends what a transport has to say. False if that has ended the connection.
    fn say_in_handshake<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        index: u32,
        out: Vec<u8>,
    ) -> bool {
        if out.is_empty() {
            return true;
        }
        let source = self.table.place(index).source;
        let write = Op::write(source, out).token(self.token(index)).quiet();
        let is_taken = watcher.submit(write).is_ok();
        if !is_taken {
            self.fail(watcher, index, Cause::Rejected);
        }
        is_taken
    }
}

impl<S> Engine<S> {
    /// A read of a handshake has ended.
    #[cold]
    pub(crate) fn handshake_read<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        index: u32,
        completion: Completion,
    ) {
        if self.has_left_handshake(index) {
            return; // The next flush ends it.
        }
        if completion.code() == OpCode::Timer {
            let handshake = self.entrance.transports.get_mut(index);
            if completion.result.is_ok() && handshake.is_some_and(|one| one.is_asked()) {
                self.fail(watcher, index, Cause::ReadTimeout);
            }
            return;
        }
        match completion.result {
            Ok(Done::Read(data)) if data.is_empty() => {
                let handshake = self.entrance.transports.get_mut(index);
                match handshake.and_then(Handshake::end_of_input) {
                    Some(cut) if self.is_client(index) => {
                        self.refuse_session(watcher, index, &cut, Vec::new());
                    }
                    _ => self.fail(watcher, index, Cause::Eof),
                }
            }
            Ok(Done::Read(data)) => {
                let (mut out, now) = (Vec::new(), watcher.update_now());
                if let Some(handshake) = self.entrance.transports.get_mut(index) {
                    let was_tls = handshake.is_tls();
                    let agreement = handshake.take(data, now, &mut out);
                    let begins = !was_tls && handshake.is_tls();
                    self.counters.handshakes.begun += u64::from(begins);
                    self.take_agreement(watcher, index, agreement, out);
                }
            }
            Ok(_) => {}
            Err(error) => {
                let cause = match error.kind() {
                    ErrorKind::Deadline => Cause::ReadTimeout,
                    ErrorKind::Os(errno) => Cause::Os(errno),
                    _ => Cause::Rejected,
                };
                self.fail(watcher, index, cause);
            }
        }
    }
}

impl<S: Default> Engine<S> {
    /// A client has agreed with its server. What waits for that leaves with the next flush.
    fn client_agreed<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        id: Id,
        rest: Buf,
        origin: Origin,
    ) -> Option<Event<S>> {
        if let Some(active) = self.table.active_of(id.index()) {
            active.held_bytes = 0;
        }
        let opened = self.has_connected(watcher, id, origin, Step::Agreed)?;
        if !rest.is_empty() {
            self.told.pending.push_back(Pending::Agreed(id, Buf::from(rest.into_vec())));
        }
        Some(opened)
    }

    /// The transport has agreed with the peer: opens the connection. Then the rest of the input
    /// follows, with a second call.
    #[cold]
    pub(crate) fn agreed<D: Driver>(
        &mut self,
        watcher: &mut Watcher<D>,
        id: Id,
        rest: Buf,
    ) -> Option<Event<S>> {
        let index = id.index();
        if self.table.get(id).is_none() || self.has_left_handshake(index) {
            return None;
        }
        let Some(handshake) = self.entrance.transports.remove(index) else {
            // An empty buffer is the end of the input, which has waited behind a flight.
            return if self.table.lives(id) { self.decode(watcher, index, rest) } else { None };
        };
        let origin = handshake.origin;
        if let Some(session) = handshake.into_session() {
            self.counters.handshakes.completed += 1;
            self.counters.handshakes.resumed += u64::from(session.is_resumed());
            self.table.place_mut(index).flags |= CODED;
            self.entrance.transports.keep_session(index, session);
            self.dirty(index); // The session may have more to say.
        }
        if self.is_client(index) {
            return self.client_agreed(watcher, id, rest, origin);
        }
        // The default is the program's, and can panic: then the next flush ends the connection.
        self.table.place_mut(index).flags |= ABORT;
        self.dirty(index);
        self.told.making = Some(origin);
        let state = S::default();
        self.told.making = None;
        let place = self.table.place_mut(index);
        place.flags &= !ABORT;
        place.state = Some(state);
        place.advance(Step::Agreed);
        let bytes = rest.len();
        if let Some(active) = self.table.active_of(index) {
            active.held_bytes = 0;
        }
        if bytes > 0 && self.table.place(index).flags & CODED != 0 {
            let rest = Buf::from(rest.into_vec());
            self.told.pending.push_back(Pending::Agreed(id, rest));
        } else if bytes > 0 {
            self.table.place_mut(index).flags |= HELD;
            let active = self.activate(index);
            active.held_bytes = bytes;
            // However long the program takes: other connections need the lease.
            active.held.push_back(Buf::from(rest.into_vec()));
            self.told.pending.push_back(Pending::Held(id));
        }
        self.recharge(index);
        Some(self.opened(watcher, id, origin))
    }
}
