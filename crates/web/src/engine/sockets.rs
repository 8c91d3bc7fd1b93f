//! WebSockets.
//!
//! # Why
//! A connection has one event at a time: the next frame is looked at when the program has taken the
//! event before. So a program can answer a message that the peer's close has followed, and a pause
//! holds back all that comes behind the event.

use windlass::{Buf, Refused};
use windlass_serve::{Event as Below, Id};

use super::events::{Event, Refusal, RequestId};
use super::{Engine, queue::OwnSocket};
use crate::client::fetch::Fetch;
use crate::client::own::FetchId;
use crate::exchange::Slot;
use crate::exchange::raw::News;
use crate::message::head::Head;
use crate::websocket::{
    AgreedSocket, ClientHandshake, CloseCode, PeerNews, Socket, WebSocketSettings,
};
use crate::words::status::Status;

impl<S: Default + 'static> Engine<S> {
    /// Answers a request with a 101, and makes its connection a [WebSocket](crate::websocket). Its
    /// messages are [`Event::SocketMessage`], also those that the client has sent behind the
    /// request, and its last event is [`Event::SocketClosed`]. [`socket`](Engine::socket) sends.
    ///
    /// ```
    /// use windlass_web::Engine;
    /// use windlass_web::engine::{Event, Refusal};
    /// use windlass_web::websocket::WebSocketSettings;
    ///
    /// /// Echoes; its page is something else.
    /// fn take(engine: &mut Engine, settings: &WebSocketSettings, event: Event<()>) {
    ///     match event {
    ///         Event::Request { id, .. } => match engine.accept_websocket(id, settings, ()) {
    ///             Ok(connection) => println!("{connection:?} has opened"),
    ///             Err(refused) if refused.reason == Refusal::NotOffered => {
    ///                 engine.respond(id, "a page").expect("it waits");
    ///             }
    ///             Err(_) => {} // the client has its answer, or has gone
    ///         },
    ///         Event::SocketMessage { id, message } => {
    ///             if let Some(mut socket) = engine.socket(id) {
    ///                 socket.send(message);
    ///             }
    ///         }
    ///         _ => {}
    ///     }
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Refused`] hands the state back, with:
    ///
    /// - [`Refusal::Stale`]: the request is over, or has been answered.
    /// - [`Refusal::NotOffered`]: the client has not asked for a WebSocket. The request still
    ///   waits.
    /// - [`Refusal::Invalid`]: the handshake is wrong, its origin may not connect, or it offers
    ///   other sub-protocols only. The client has got the answer that says so.
    pub fn accept_websocket(
        &mut self,
        id: RequestId,
        settings: &WebSocketSettings,
        state: S,
    ) -> Result<Id, Refused<S, Refusal>> {
        let refused = |value, reason| Err(Refused { value, reason });
        let Some(connection) = self.queue.connection(id) else {
            return refused(state, Refusal::Stale);
        };
        let settings = settings.clone().whole();
        let settings = settings.settings();
        let agreed = self.machine.look_at(&self.below, connection, |request| {
            request.offers("websocket").then(|| AgreedSocket::of(request, false, settings))
        });
        let agreed = match agreed {
            None => return refused(state, Refusal::Stale),
            Some(None) => return refused(state, Refusal::NotOffered),
            Some(Some(Ok(agreed))) => agreed,
            Some(Some(Err(error))) => {
                let _ = self.respond(id, error); // it waits: see above
                return refused(state, Refusal::Invalid);
            }
        };
        let peer = self.below.state(connection).and_then(|slot| self.machine.peer(slot));
        let (session, fields) = agreed.into_session(settings);
        let mut head = Head::new(Status::SWITCHING_PROTOCOLS, None);
        fields.into_iter().for_each(|(name, value)| head.add(name, value));
        let raw = self.queue.add_raw(state, peer);
        self.queue.add_socket(raw, session, None);
        self.switch(connection, head, Some("websocket".into()), raw)
    }

    /// Opens a WebSocket to another server: see
    /// [`Client::open_websocket`](crate::Client::open_websocket). [`Event::SocketOpened`] follows,
    /// or [`Event::SocketFailed`]. [`cancel_fetch`](Engine::cancel_fetch) ends the handshake.
    pub fn open_websocket(
        &mut self,
        to: impl Into<Fetch>,
        settings: &WebSocketSettings,
        state: S,
    ) -> FetchId {
        let mut fetch = to.into();
        let handshake = ClientHandshake::new(
            &mut fetch,
            &settings.clone().whole(),
            &mut self.below.sockets.keys,
        );
        let call = self.machine.begin_switch(&mut self.below, fetch);
        self.queue.add_handshake(call, handshake, state);
        FetchId(call)
    }

    /// A WebSocket that is open or closes: to send, to close, to pause, to hear topics. `None` for
    /// a stale id, and for another connection.
    ///
    /// What is sent and published leaves with the next [`flush`](Engine::flush).
    pub fn socket(&mut self, id: Id) -> Option<Socket<'_>> {
        let raw = self.below.state(id)?.raw()?;
        let socket = self.queue.socket(raw)?;
        Some(Socket::new(&mut socket.session, self.below.of(id)))
    }

    /// Does what WebSockets have asked for, and sends what is published.
    pub(super) fn make_socket_calls(&mut self) {
        self.queue.topic_calls.append(&mut self.below.topic_calls);
        self.machine.make_topic_calls(&mut self.queue, &mut self.below);
        while let Some((id, what)) = self.queue.published.pop_front() {
            let raw = self.below.state(id).and_then(Slot::raw);
            if let Some(socket) = raw.and_then(|raw| self.queue.socket(raw)) {
                socket.session.published(self.below.of(id), &what);
            }
        }
    }

    /// The next event of WebSockets that needs nothing from below.
    pub(super) fn next_heard(&mut self) -> Option<Event<S>> {
        loop {
            if let Some(event) = self.next_frame() {
                return Some(event);
            }
            let (id, news) = self.queue.socket_news.pop_front()?;
            if let Some(event) = self.take_news(id, news) {
                return Some(event);
            }
        }
    }

    /// The next event of the input that is being taken.
    fn next_frame(&mut self) -> Option<Event<S>> {
        let (id, mut intake) = self.hearing.take()?;
        let raw = self.below.state(id)?.raw()?;
        let OwnSocket { session, .. } = self.queue.socket(raw)?;
        let carrier = self.below.of(id);
        let mut event = None;
        while session.advance(carrier, &mut intake, &mut |_, _, news| {
            event = Some(match news {
                PeerNews::Message(message) => Event::SocketMessage { id, message },
                PeerNews::Part(_) => return, // its settings are for whole messages
                PeerNews::Pong(data) => Event::SocketPong { id, data: data.to_vec() },
            });
        }) {
            if event.is_some() {
                self.hearing = Some((id, intake));
                return event;
            }
        }
        session.finish(carrier, intake);
        event
    }

    /// Takes what has happened on a WebSocket.
    fn take_news(&mut self, id: Id, news: News) -> Option<Event<S>> {
        let raw = self.below.state(id)?.raw()?;
        let OwnSocket { session, call } = self.queue.socket(raw)?;
        let carrier = self.below.of(id);
        match news {
            News::Opened => {
                session.opened(carrier);
                return call.map(|call| Event::SocketOpened { id, call });
            }
            News::Data(data) => return self.hear(id, data),
            News::Eof => session.eof(carrier),
            News::LimitReached(cause) => session.limit_reached(carrier, cause),
            News::Drained if session.is_open() => return Some(Event::Drained { id }),
            News::Wake if session.goes_on() => return self.hear(id, Buf::default()),
            News::Stopping => session.close(carrier, CloseCode::GOING_AWAY, ""),
            News::Told(value) => _ = session.told(carrier, value), // no callback hears the rest
            News::Published(_) | News::Drained | News::Wake => {}
        }
        None
    }

    fn hear(&mut self, id: Id, data: Buf) -> Option<Event<S>> {
        let raw = self.below.state(id)?.raw()?;
        let OwnSocket { session, .. } = self.queue.socket(raw)?;
        let intake = session.begin(self.below.of(id), data);
        self.hearing = intake.map(|intake| (id, intake));
        self.next_frame()
    }

    /// Takes an event that is of a WebSocket. Others come back.
    pub(super) fn take_from_socket(
        &mut self,
        event: Below<Slot<()>>,
    ) -> Result<Option<Event<S>>, Below<Slot<()>>> {
        let (Below::Data { id, .. }
        | Below::Eof { id }
        | Below::Drained { id }
        | Below::LimitReached { id, .. }
        | Below::Wake { id }) = event
        else {
            return Err(event);
        };
        let raw = self.below.state(id).and_then(Slot::raw);
        if !raw.is_some_and(|raw| self.queue.has_socket(raw)) {
            return Err(event);
        }
        let news = match event {
            Below::Data { data, .. } => News::Data(data),
            Below::Eof { .. } => News::Eof,
            Below::Drained { .. } => News::Drained,
            Below::LimitReached { cause, .. } => News::LimitReached(cause),
            _ => News::Wake,
        };
        Ok(self.take_news(id, news))
    }
}
