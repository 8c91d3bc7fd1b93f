//! Connections that go over to HTTP, to another protocol, to TLS, or to other code.
//!
//! # Why
//! A connection has HTTP or is raw. Each way between them, and out of the engine, keeps the bytes
//! that were read ahead: those behind a request go back into the engine below, in front of all that
//! comes; those that the program has read ahead come first in what it goes over to.
//!
//! ```text
//!           begin_http, attach            detach
//! raw ────────────────────────▶ HTTP      (raw) ──▶ the program
//!   ◀─────────────────────────
//!    upgrade                              encrypt
//!                                         (raw) ──▶ (raw), with TLS
//! ```

use std::borrow::Cow;
use std::net::SocketAddr;
use std::time::Duration;

use windlass::{Buf, Handle, Refused};
use windlass_serve::{Id, Origin};

use super::events::{Event, Refusal, RequestId};
use super::{Engine, queue::Remains};
use windlass_http1::Method;

use crate::exchange::Slot;
use crate::exchange::program::Answer;
use crate::exchange::raw::Switch;
use crate::message::head::Head;
use crate::words::status::Status;

/// What a connection goes over to: a protocol, and fields for the head of the 101.
///
/// ```
/// use windlass_web::engine::Switching;
///
/// let plain = Switching::from("echo");
/// let more = Switching::to("websocket").header("Sec-WebSocket-Accept", "c2VjcmV0");
/// # let _ = (plain, more);
/// ```
#[derive(Debug)]
pub struct Switching {
    head: Head,
    protocol: Option<Cow<'static, str>>,
}

impl Switching {
    /// A protocol that the client has to offer.
    pub fn to(protocol: impl Into<Cow<'static, str>>) -> Switching {
        let head = Head::new(Status::SWITCHING_PROTOCOLS, None);
        Switching { head, protocol: Some(protocol.into()) }
    }

    /// The tunnel that a `CONNECT` asks for, behind a 200.
    pub fn tunnel() -> Switching {
        Switching { head: Head::new(Status::OK, None), protocol: None }
    }

    /// Adds a field to the head of the response.
    pub fn header(
        mut self,
        name: impl Into<Cow<'static, str>>,
        value: impl Into<Cow<'static, str>>,
    ) -> Switching {
        self.head.add(name, value);
        self
    }
}

impl From<&'static str> for Switching {
    fn from(protocol: &'static str) -> Switching {
        Switching::to(protocol)
    }
}

impl<S: Default + 'static> Engine<S> {
    /// Answers a request with a 101, or with the 200 of a tunnel, and makes its connection raw. The
    /// bytes that the client has sent behind the request come first, as [`Event::Data`].
    ///
    /// ```
    /// use windlass_web::Engine;
    /// use windlass_web::engine::{OwnedRequest, Refusal, RequestId};
    /// use windlass_web::serve::Id;
    ///
    /// fn echo(engine: &mut Engine<String>, id: RequestId, of: &OwnedRequest) -> Option<Id> {
    ///     let name = of.header("X-Name").unwrap_or("nobody").to_owned();
    ///     engine.upgrade(id, "echo", name).ok()
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Refused`] hands the state back, with:
    ///
    /// - [`Refusal::Stale`]: the request is over, or has been answered.
    /// - [`Refusal::NotOffered`]: the client has not offered this protocol, or has not asked for a
    ///   tunnel. The request still waits: a 426 names the protocol by a field `Upgrade`.
    /// - [`Refusal::Invalid`]: the head cannot be written, and the client gets a 500; or the engine
    ///   shuts down, and it gets a 503.
    pub fn upgrade(
        &mut self,
        id: RequestId,
        to: impl Into<Switching>,
        state: S,
    ) -> Result<Id, Refused<S, Refusal>> {
        let Switching { head, protocol } = to.into();
        let refused = |value, reason| Err(Refused { value, reason });
        let Some(connection) = self.queue.connection(id) else {
            return refused(state, Refusal::Stale);
        };
        let peer = self.below.state(connection).and_then(|slot| self.machine.peer(slot));
        let is_offered = self.machine.look_at(&self.below, connection, |request| match &protocol {
            Some(protocol) => request.offers(protocol),
            None => request.head.kind() == Method::Connect,
        });
        match is_offered {
            None => return refused(state, Refusal::Stale),
            Some(false) => return refused(state, Refusal::NotOffered),
            Some(true) => {}
        }
        let raw = self.queue.add_raw(state, peer);
        self.switch(connection, head, protocol, raw)
    }

    /// Answers the request of a connection, which goes over.
    pub(super) fn switch(
        &mut self,
        connection: Id,
        head: Head,
        protocol: Option<Cow<'static, str>>,
        raw: u32,
    ) -> Result<Id, Refused<S, Refusal>> {
        let (machine, queue, mut wire) = self.parts(connection);
        machine.begin_callback(wire.engine);
        let switch = Answer::Switch(Box::new(Switch { head, protocol, raw }));
        machine.answer_waiting(queue, &mut wire, switch);
        match self.queue.take_over() {
            Some((value, Remains::Nothing)) => Err(Refused { value, reason: Refusal::Invalid }),
            _ => Ok(connection),
        }
    }

    /// Begins HTTP on a raw connection, and returns its state. `rest` has the bytes that the
    /// program has read ahead: the first ones of the first request. The connection has no limit of
    /// the program any more, and is read if it was paused.
    ///
    /// # Errors
    ///
    /// [`Refused`] hands the bytes back: [`Refusal::Stale`], or [`Refusal::Kind`] for one that is
    /// not raw.
    pub fn begin_http(&mut self, id: Id, rest: impl Into<Buf>) -> Result<S, Refused<Buf, Refusal>> {
        let rest = rest.into();
        let Some(slot) = self.below.state(id) else {
            return Err(Refused { value: rest, reason: Refusal::Stale });
        };
        let raw = slot.raw().filter(|raw| !self.queue.has_socket(*raw));
        let peer = raw.and_then(|raw| self.queue.peer(raw));
        let has_ended = raw.is_some_and(|raw| self.queue.has_ended(raw));
        let Some(state) = raw.and_then(|raw| self.queue.remove_raw(raw)) else {
            return Err(Refused { value: rest, reason: Refusal::Kind });
        };
        self.below.limit(id, None, 0);
        self.below.charge(id, 0);
        self.below.resume(id);
        self.begin(id, peer, rest);
        if has_ended {
            // The engine below tells of it once.
            let (machine, queue, mut wire) = self.parts(id);
            machine.eof(queue, &mut wire);
        }
        Ok(state)
    }

    /// A connection has HTTP from here on.
    fn begin(&mut self, id: Id, peer: Option<SocketAddr>, rest: Buf) {
        #[cfg(feature = "tls")]
        let is_tls = self.below.tls(id).is_some();
        #[cfg(not(feature = "tls"))]
        let is_tls = false;
        let (machine, queue, mut wire) = self.parts(id);
        machine.begin_callback(wire.engine);
        machine.opened(queue, &mut wire, peer, is_tls);
        if !rest.is_empty() {
            machine.data(queue, &mut wire, rest);
        }
    }

    /// Begins HTTP on a socket that the program has, with the bytes that it has read ahead. A
    /// [`Event::Closed`] follows if the watcher refuses the socket.
    ///
    /// # Errors
    ///
    /// The handle comes back if the engine has 2^24 connections.
    pub fn attach(
        &mut self,
        handle: impl Into<Handle>,
        rest: impl Into<Buf>,
    ) -> Result<Id, Handle> {
        let id = self.below.attach(handle, Slot::default()).map_err(|(handle, _)| handle)?;
        self.beginning.push((id, rest.into()));
        Ok(id)
    }

    /// Makes a raw connection of a socket that the program has. [`Event::Opened`] follows, or
    /// [`Event::Closed`] alone if the watcher refuses the socket.
    ///
    /// # Errors
    ///
    /// The handle and the state come back if the engine has 2^24 connections.
    pub fn attach_raw(&mut self, handle: impl Into<Handle>, state: S) -> Result<Id, (Handle, S)> {
        let raw = self.queue.add_raw(state, None);
        self.below
            .attach(handle, Slot::of_raw(raw))
            .map_err(|(handle, _)| (handle, self.queue.remove_raw(raw).expect("right from above")))
    }

    /// Hands the descriptor of a raw connection to the program when its output is sent:
    /// [`Event::Detached`]. Data that this engine has told before comes out before it.
    ///
    /// # Errors
    ///
    /// Those of [`windlass_serve::Engine::detach`]: [`Refusal::Tls`] for a connection with TLS,
    /// whose session does not leave it; and [`Refusal::Unsupported`] for one that is not raw.
    ///
    /// [`Refusal::Tls`]: windlass_serve::Refusal::Tls
    /// [`Refusal::Unsupported`]: windlass_serve::Refusal::Unsupported
    pub fn detach(&mut self, id: Id) -> Result<(), windlass_serve::Refusal> {
        match self.below.state(id) {
            Some(_) if !self.has_bytes(id) => Err(windlass_serve::Refusal::Unsupported),
            _ => self.below.detach(id),
        }
    }

    /// Lets a raw connection go over to TLS: see [`windlass_serve::Engine::upgrade`], which says
    /// what `rest` is, and what becomes of output. [`Event::Encrypted`] follows.
    ///
    /// # Errors
    ///
    /// Those of [`windlass_serve::Engine::upgrade`], and
    /// [`Refusal::Unsupported`](windlass_serve::Refusal::Unsupported) for one that is not raw.
    #[cfg(feature = "tls")]
    pub fn encrypt(
        &mut self,
        id: Id,
        role: impl Into<windlass_serve::tls::Role>,
        rest: impl Into<Buf>,
    ) -> Result<(), windlass_serve::Refused<Buf>> {
        let rest = rest.into();
        match self.below.state(id) {
            Some(_) if !self.has_bytes(id) => {
                Err(Refused { value: rest, reason: windlass_serve::Refusal::Unsupported })
            }
            _ => self.below.upgrade(id, role, rest),
        }
    }

    #[cfg(feature = "tls")]
    pub(super) fn encrypted(&mut self, id: Id) -> Option<Event<S>> {
        Some(Event::Encrypted { id })
    }

    /// A connection has opened: as what it begins.
    pub(super) fn opened(&mut self, id: Id, origin: Origin) -> Option<Event<S>> {
        if self.below.state(id).and_then(Slot::link).is_some() {
            let (machine, queue, mut wire) = self.parts(id);
            machine.opened(queue, &mut wire, None, false);
            return None;
        }
        if self.is_raw(id) {
            return Some(Event::Opened { id, origin });
        }
        if origin.listener.is_some_and(|listener| self.raw_listeners.contains(&listener)) {
            let raw = self.queue.add_raw(S::default(), origin.peer);
            *self.below.state_mut(id)? = Slot::of_raw(raw);
            return Some(Event::Opened { id, origin });
        }
        let at = self.beginning.iter().position(|(of, _)| *of == id);
        let rest = at.map(|at| self.beginning.swap_remove(at).1);
        self.begin(id, origin.peer, rest.unwrap_or_default());
        None
    }

    /// Whether a connection that has ended had not opened.
    pub(super) fn end_beginning(&mut self, id: Id) -> bool {
        let at = self.beginning.iter().position(|(of, _)| *of == id);
        at.map(|at| self.beginning.swap_remove(at)).is_some()
    }

    /// A raw connection's state; `None` for a stale id, and for a connection with HTTP.
    pub fn state(&mut self, id: Id) -> Option<&mut S> {
        self.queue.state(self.below.state(id)?.raw()?)
    }

    /// The address of a raw connection's peer.
    pub fn peer(&mut self, id: Id) -> Option<SocketAddr> {
        self.queue.peer(self.below.state(id)?.raw()?)
    }
}

/// A verb of the engine below that is for raw connections: those with HTTP are left alone.
macro_rules! for_raw {
    ($($(#[doc = $doc:literal])+ $name:ident($($arg:ident: $type:ty),*);)+) => {
        impl<S: Default + 'static> Engine<S> {
            $(
                $(#[doc = $doc])+
                #[doc = ""]
                #[doc = "For a raw connection. False for a stale id, and for one with HTTP or"]
                #[doc = "WebSocket."]
                pub fn $name(&mut self, id: Id, $($arg: $type),*) -> bool {
                    self.has_bytes(id) && self.below.$name(id, $($arg),*)
                }
            )+
        }
    };
}

for_raw! {
    /// Stops reading: see [`windlass_serve::Engine::pause`].
    pause();
    /// Reads again.
    resume();
    /// Shuts down the output behind what is written.
    shutdown();
    /// Makes an [`Event::Wake`] after the next [`flush`](Engine::flush).
    wake();
    /// Whether more output waits than [`windlass_serve::Limits::high`] says.
    is_full();
    /// Limits the time of what the peer sends: see [`windlass_serve::Engine::limit`].
    limit(span: impl Into<Option<Duration>>, least_rate: u32);
    /// Limits a time of the program's own: see [`windlass_serve::Engine::time_limit`].
    time_limit(span: impl Into<Option<Duration>>);
    /// Sets how long the connection may be idle. [`Limits::keep_alive`](crate::Limits::keep_alive)
    /// is its time before.
    set_idle_timeout(span: impl Into<Option<Duration>>);
}

impl<S: Default + 'static> Engine<S> {
    /// Sends bytes on a raw connection, without a copy.
    ///
    /// # Errors
    ///
    /// Those of [`windlass_serve::Engine::write`], and
    /// [`Refusal::Unsupported`](windlass_serve::Refusal::Unsupported) for one with HTTP.
    pub fn write(
        &mut self,
        id: Id,
        data: impl Into<Buf>,
    ) -> Result<(), windlass_serve::Refused<Buf>> {
        match self.below.state(id) {
            Some(_) if !self.has_bytes(id) => {
                let reason = windlass_serve::Refusal::Unsupported;
                Err(Refused { value: data.into(), reason })
            }
            _ => self.below.write(id, data),
        }
    }

    /// Gives bytes back that the program has read ahead on a raw connection: see
    /// [`windlass_serve::Engine::unread`].
    ///
    /// # Errors
    ///
    /// As there, and as for [`write`](Engine::write).
    pub fn unread(
        &mut self,
        id: Id,
        data: impl Into<Buf>,
    ) -> Result<(), windlass_serve::Refused<Buf>> {
        match self.below.state(id) {
            Some(_) if !self.has_bytes(id) => {
                let reason = windlass_serve::Refusal::Unsupported;
                Err(Refused { value: data.into(), reason })
            }
            _ => self.below.unread(id, data),
        }
    }
}
