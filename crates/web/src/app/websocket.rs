//! Routes whose connections become WebSockets.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use windlass::Buf;
use windlass_serve::memory::Budget;
use windlass_serve::{Cause, Id, Refusal, Refused, Reserved};

use super::App;
use super::upgrade::{Protocol, RawConn};
use crate::message::publication::Published;
use crate::message::request::Request;
use crate::message::response::Response;
use crate::remote::Remote;
use crate::topics::TopicCall;
use crate::websocket::{
    AgreedSocket, Carrier, LoopSockets, Peer, PeerNews, Session, Socket, SocketSettings,
    WebSocketSettings,
};
use crate::words::error::Error;

impl<S: 'static> App<S> {
    /// Adds a route whose connections become [WebSockets](crate::websocket). The handler gets the
    /// request, with its fields and cookies. It returns a [`Peer`], the program's part of the
    /// connection, or refuses by an error, which is the response in the place of the 101.
    ///
    /// A request that is none for a WebSocket does not come to the handler. It gets a 426, or a 400
    /// that says what is wrong. Pages of other hosts get a 403: see
    /// [`origins`](WebSocketSettings::origins).
    ///
    /// The settings are the [defaults](WebSocketSettings::new). A 101 with fields of its own is for
    /// [`Request::websocket`].
    ///
    /// ```
    /// use windlass_web::websocket::{Message, Peer, Socket};
    /// use windlass_web::{App, Status};
    ///
    /// struct Member { name: String }
    /// impl Peer<()> for Member {
    ///     fn open(&mut self, _: &mut (), c: &mut Socket<'_>) {
    ///         c.subscribe("lobby");
    ///     }
    ///     fn message(&mut self, _: &mut (), c: &mut Socket<'_>, message: Message) {
    ///         if let Message::Text(text) = message {
    ///             c.publish("lobby", format!("{}: {text}", self.name));
    ///         }
    ///     }
    /// }
    ///
    /// App::new().websocket("/chat", |_, q| {
    ///     let name = q.query("name").ok_or(Status::UNAUTHORIZED)?.to_owned();
    ///     Ok::<_, Status>(Member { name })
    /// });
    /// ```
    ///
    /// # Panics
    ///
    /// As [`route`](App::route).
    pub fn websocket<P: Peer<S>, R: Into<Response>>(
        self,
        route: &str,
        handler: impl Fn(&mut S, &mut Request<'_, S>) -> Result<P, R> + Send + Sync + 'static,
    ) -> App<S> {
        self.websocket_with(WebSocketSettings::new(), route, handler)
    }

    /// Adds a route as [`websocket`](App::websocket) does, with settings of its own.
    ///
    /// # Panics
    ///
    /// As [`route`](App::route).
    pub fn websocket_with<P: Peer<S>, R: Into<Response>>(
        self,
        settings: WebSocketSettings,
        route: &str,
        handler: impl Fn(&mut S, &mut Request<'_, S>) -> Result<P, R> + Send + Sync + 'static,
    ) -> App<S> {
        let accept = move |state: &mut S, q: &mut Request<'_, S>| {
            let agreed = match q.agree(settings.settings()) {
                Ok(agreed) => agreed,
                Err(error) => return error.into(),
            };
            match handler(state, q) {
                Ok(peer) => q.become_websocket(settings.settings(), agreed, peer),
                Err(refusal) => refusal.into(),
            }
        };
        self.route("GET", route, accept).at_head()
    }
}

impl<S: 'static> Request<'_, S> {
    /// Makes the connection a [WebSocket](crate::websocket), by a 101. Return the response; fields
    /// that it gets are in the head of the 101. [`App::websocket`] does the same, and refuses what
    /// is none before it asks its handler.
    pub fn websocket(&mut self, settings: &WebSocketSettings, peer: impl Peer<S>) -> Response {
        match self.agree(settings.settings()) {
            Ok(agreed) => self.become_websocket(settings.settings(), agreed, peer),
            Err(error) => error.into(),
        }
    }

    fn agree(&self, settings: &SocketSettings) -> Result<AgreedSocket, Error> {
        AgreedSocket::of(self.arrived(), self.has_unread_body(), settings)
    }

    fn become_websocket(
        &mut self,
        settings: &Arc<SocketSettings>,
        agreed: AgreedSocket,
        peer: impl Peer<S>,
    ) -> Response {
        let (session, fields) = agreed.into_session(settings);
        let response = self.upgrade("websocket", SocketProtocol { session, peer });
        let add = |response: Response, (name, value)| response.header(name, value);
        fields.into_iter().fold(response, add)
    }
}

impl<S> super::Perform<S> {
    /// Gives a seed of a simulation one trace.
    pub(super) fn simulate_masks(&mut self) {
        self.sockets.keys.simulate();
    }
}

/// A connection that is served.
pub(super) struct SocketProtocol<P> {
    pub(super) session: Session,
    pub(super) peer: P,
}

impl<P> SocketProtocol<P> {
    /// Takes input that was kept back while the connection was paused.
    fn go_on<S: 'static>(&mut self, state: &mut S, c: &mut RawConn<'_, S>)
    where
        P: Peer<S>,
    {
        if self.session.goes_on() {
            self.data(state, c, Buf::default());
        }
    }
}

impl<P: Peer<S>, S: 'static> Protocol<S> for SocketProtocol<P> {
    fn opened(&mut self, state: &mut S, c: &mut RawConn<'_, S>) {
        self.session.opened(c);
        self.peer.open(state, &mut Socket::new(&mut self.session, c));
    }

    fn data(&mut self, state: &mut S, c: &mut RawConn<'_, S>, data: Buf) {
        let id = c.id;
        let waits = c.sockets.intake.take_if(|(of, _)| *of == id).map(|(_, intake)| intake);
        let Some(mut intake) = waits.or_else(|| self.session.begin(c, data)) else { return };
        let peer = &mut self.peer;
        let mut hear = |session: &mut Session, carrier: &mut dyn Carrier, news: PeerNews<'_>| {
            let socket = &mut Socket::new(session, carrier);
            match news {
                PeerNews::Message(message) => peer.message(state, socket, message),
                PeerNews::Part(part) => peer.part(state, socket, part),
                PeerNews::Pong(data) => peer.pong(state, socket, data),
            }
        };
        while self.session.advance(c, &mut intake, &mut hear) {
            if !c.topic_calls.is_empty() {
                c.sockets.intake = Some((id, intake));
                return;
            }
        }
        self.session.finish(c, intake);
    }

    fn eof(&mut self, _: &mut S, c: &mut RawConn<'_, S>) {
        self.session.eof(c);
    }

    fn drained(&mut self, state: &mut S, c: &mut RawConn<'_, S>) {
        if self.session.is_open() {
            self.peer.drained(state, &mut Socket::new(&mut self.session, c));
            self.go_on(state, c);
        }
    }

    fn limit_reached(&mut self, _: &mut S, c: &mut RawConn<'_, S>, cause: Cause) {
        self.session.limit_reached(c, cause);
    }

    fn wake(&mut self, state: &mut S, c: &mut RawConn<'_, S>) {
        if self.session.is_open() {
            self.peer.wake(state, &mut Socket::new(&mut self.session, c));
            self.go_on(state, c);
        }
    }

    fn told(&mut self, state: &mut S, c: &mut RawConn<'_, S>, value: Box<dyn Any + Send>) {
        if let Some(value) = self.session.told(c, value)
            && self.session.is_open()
        {
            self.peer.told(state, &mut Socket::new(&mut self.session, c), value);
        }
        self.go_on(state, c);
    }

    fn stopping(&mut self, state: &mut S, c: &mut RawConn<'_, S>) {
        if self.session.is_open() {
            self.peer.stopping(state, &mut Socket::new(&mut self.session, c));
            self.go_on(state, c);
        }
    }

    fn published(&mut self, _: &mut S, c: &mut RawConn<'_, S>, what: &Arc<Published>) {
        self.session.published(c, what);
    }

    fn closed(self: Box<Self>, state: &mut S, cause: Cause) {
        let SocketProtocol { session, mut peer } = *self;
        peer.closed(state, &session.into_end(cause));
    }
}

impl<S: 'static> Carrier for RawConn<'_, S> {
    fn id(&self) -> Id {
        self.id
    }

    fn write(&mut self, data: Buf) -> Result<(), Refused<Buf>> {
        self.engine.write(self.id, data)
    }

    fn write_slice(&mut self, bytes: &[u8]) -> Result<(), Refusal> {
        self.engine.write_slice(self.id, bytes)
    }

    fn would_take(&mut self, bytes: usize) -> Result<(), Refusal> {
        self.engine.would_take(self.id, bytes)
    }

    fn reserve(&mut self, bytes: usize) -> Result<Reserved, Refusal> {
        self.engine.reserve(self.id, bytes)
    }

    fn use_room(&mut self, room: Option<Reserved>) {
        self.engine.use_room(room);
    }

    fn waiting(&mut self) -> usize {
        self.engine.waiting(self.id)
    }

    fn is_full(&mut self) -> bool {
        self.engine.is_full(self.id)
    }

    fn is_behind(&mut self) -> bool {
        self.engine.is_behind(self.id)
    }

    fn pause(&mut self) {
        self.engine.pause(self.id);
    }

    fn resume(&mut self) {
        self.engine.resume(self.id);
    }

    fn unread(&mut self, data: Buf) -> Result<(), Buf> {
        self.engine.unread(self.id, data).map_err(|refused| refused.value)
    }

    fn limit(&mut self, span: Option<Duration>, least: u32) {
        self.engine.limit(self.id, span, least);
    }

    fn time_limit(&mut self, span: Option<Duration>) {
        self.engine.time_limit(self.id, span);
    }

    fn set_idle_timeout(&mut self, span: Option<Duration>) {
        self.engine.set_idle_timeout(self.id, span);
    }

    fn charge(&mut self, bytes: usize) {
        self.engine.charge(self.id, bytes);
    }

    fn budget(&self) -> &Budget {
        self.engine.budget()
    }

    fn close(&mut self) {
        RawConn::close(self);
    }

    fn abort(&mut self) {
        RawConn::abort(self);
    }

    fn sockets(&mut self) -> &mut LoopSockets {
        self.sockets
    }

    fn call(&mut self, call: TopicCall) {
        self.topic_calls.push_back(call);
    }

    fn remote(&self) -> &Remote {
        self.remote
    }

    fn count(&mut self, is_lost: bool) {
        match is_lost {
            true => self.remote.count_lost_event(),
            false => self.remote.count_slow_subscriber(),
        }
    }
}
