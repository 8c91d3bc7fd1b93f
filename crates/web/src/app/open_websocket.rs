//! WebSockets that a server opens to others.

use std::any::TypeId;
use std::fmt;

use windlass_http1::ResponseHead;
use windlass_serve::{Cause, Engine};

use super::upgrade::Protocol;
use super::websocket::SocketProtocol;
use super::{Kept, Perform};
use crate::client::error::FetchError;
use crate::client::fetch::Fetch;
use crate::client::fetched::Fetched;
use crate::client::hub::CallId;
use crate::exchange::{Machine, Slot};
use crate::message::request::Request;
use crate::remote::Remote;
use crate::websocket::{ClientHandshake, Peer, Session, SocketEnd, WebSocketSettings, refusal};

/// A message to a loop: it opens a WebSocket.
pub(super) struct ToOpen<S> {
    fetch: Fetch,
    settings: WebSocketSettings,
    peer: Box<dyn Awaiting<S> + Send>,
}

impl<S> fmt::Debug for ToOpen<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToOpen").field("fetch", &self.fetch).finish_non_exhaustive()
    }
}

/// A peer whose handshake is not over.
pub(super) trait Awaiting<S> {
    fn opened(self: Box<Self>, session: Session) -> Box<dyn Protocol<S>>;
    fn failed(self: Box<Self>, state: &mut S, end: &SocketEnd);
}

struct AwaitingPeer<P>(P);

impl<S: 'static, P: Peer<S>> Awaiting<S> for AwaitingPeer<P> {
    fn opened(self: Box<Self>, session: Session) -> Box<dyn Protocol<S>> {
        Box::new(SocketProtocol { session, peer: self.0 })
    }

    fn failed(mut self: Box<Self>, state: &mut S, end: &SocketEnd) {
        self.0.closed(state, end);
    }
}

/// A handshake whose response has not come, and whom it is for.
pub(super) type Opened<S> = (ClientHandshake, Box<dyn Awaiting<S>>);

impl Remote {
    /// Opens a WebSocket to another server, on one of the server's loops, with the rules of its
    /// [client](crate::App::client). [`Client::open_websocket`] says what `to` is.
    ///
    /// The peer has the callbacks of a connection that was accepted. If there is no connection,
    /// [`closed`](Peer::closed) is the only one, and [`SocketEnd::failed`] says why. `S` is the
    /// type of the application's state.
    ///
    /// False, and no callback: there is no such loop, it is over or has no memory for it, or the
    /// application has a state of another type.
    ///
    /// ```
    /// use std::time::Duration;
    /// use windlass_web::App;
    /// use windlass_web::websocket::{Message, Peer, Socket, SocketEnd, WebSocketSettings};
    ///
    /// /// The prices of another server, told to all that hear them here.
    /// struct Prices;
    /// impl Peer<bool> for Prices {
    ///     fn message(&mut self, _: &mut bool, c: &mut Socket<'_>, message: Message) {
    ///         if let Message::Text(text) = message {
    ///             c.publish("prices", text.to_string());
    ///         }
    ///     }
    ///     fn closed(&mut self, is_open: &mut bool, _: &SocketEnd) {
    ///         *is_open = false;
    ///     }
    /// }
    ///
    /// let app = App::with(|_loop| false).every(Duration::from_secs(1), |is_open, remote| {
    ///     if !*is_open {
    ///         let settings = WebSocketSettings::new();
    ///         *is_open = remote.open_websocket(0, "wss://prices.example/", &settings, Prices);
    ///     }
    /// });
    /// # let _ = app;
    /// ```
    ///
    /// [`Client::open_websocket`]: crate::Client::open_websocket
    pub fn open_websocket<S: 'static>(
        &self,
        loop_index: usize,
        to: impl Into<Fetch>,
        settings: &WebSocketSettings,
        peer: impl Peer<S> + Send,
    ) -> bool {
        let (fetch, settings) = (to.into(), settings.clone());
        let peer = Box::new(AwaitingPeer(peer));
        self.has_state(TypeId::of::<S>())
            && self.post(loop_index, ToOpen::<S> { fetch, settings, peer })
    }
}

impl<S: 'static> Request<'_, S> {
    /// Opens a WebSocket to another server, on the loop of this request: see
    /// [`Remote::open_websocket`].
    pub fn open_websocket(
        &self,
        to: impl Into<Fetch>,
        settings: &WebSocketSettings,
        peer: impl Peer<S> + Send,
    ) -> bool {
        self.remote().open_websocket(self.connection().loop_index(), to, settings, peer)
    }
}

impl<S: 'static> Perform<S> {
    /// Begins a handshake.
    pub(super) fn open_websocket(
        &mut self,
        machine: &mut Machine<Kept<S>>,
        engine: &mut Engine<Slot<Kept<S>>>,
        to: ToOpen<S>,
    ) {
        let ToOpen { mut fetch, settings, peer } = to;
        let opening = ClientHandshake::new(&mut fetch, &settings, &mut self.sockets.keys);
        let call = machine.begin_switch(engine, fetch);
        self.openings.insert(call, (opening, peer));
        machine.take_own_steps(self, engine);
    }

    /// The server has gone over to another protocol: the number of what takes the connection over.
    pub(super) fn switched(
        &mut self,
        call: CallId,
        head: &ResponseHead,
        bytes: &[u8],
    ) -> Option<u32> {
        let (opening, peer) = self.openings.remove(&call)?;
        match opening.check(head, bytes) {
            Ok(session) => Some(self.raws.add(peer.opened(session))),
            Err(error) => {
                self.not_opened(peer, FetchError::Handshake(error));
                None
            }
        }
    }

    /// There is no connection.
    pub(super) fn not_switched(&mut self, call: CallId, result: Result<Fetched, FetchError>) {
        if let Some((_, peer)) = self.openings.remove(&call) {
            self.not_opened(peer, refusal(result));
        }
    }

    fn not_opened(&mut self, peer: Box<dyn Awaiting<S>>, error: FetchError) {
        let cause = match &error {
            FetchError::Connection(cause) => *cause,
            _ => Cause::Closed,
        };
        let end = SocketEnd::not_opened(error, cause);
        self.guard(|state| peer.failed(state, &end));
    }
}
