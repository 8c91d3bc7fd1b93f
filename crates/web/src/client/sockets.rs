//! WebSockets of a client in a loop that the program owns.
//!
//! # Why
//! A connection has one event at a time: the next frame is looked at when the program has taken the
//! event before. So a program can answer a message that the peer's close has followed, and a pause
//! holds back all that comes behind the event.

use windlass::{Buf, Message};
use windlass_serve::{Event as Below, Id};

use super::call::{CallId, Requester};
use super::error::FetchError;
use super::fetch::Fetch;
use super::own::{Client, FetchEvent, FetchId, LinkPlace};
use crate::remote::ToldValue;
use crate::websocket::{ClientHandshake, CloseCode, PeerNews, Socket, WebSocketSettings};

impl Client {
    /// Opens a WebSocket: to a URL of `ws` or `wss`, or with a [`Fetch`] that has fields and a
    /// [time](Fetch::timeout) for the handshake, 30 s by default. The settings have the
    /// sub-protocols that are offered, and the limits of the connection.
    ///
    /// [`FetchEvent::Opened`] has the id of the connection, and [`FetchEvent::Closed`] is its last
    /// event. [`FetchEvent::Failed`] says why there is none: [`FetchError::NoWebSocket`] has the
    /// status of a response that refuses it, or leads elsewhere. [`cancel`](Client::cancel) ends
    /// the handshake.
    ///
    /// The connection counts for the [limits](super::FetchSettings::connections) of those to its
    /// server until it is open.
    ///
    /// ```
    /// use windlass_web::client::FetchEvent;
    /// use windlass_web::websocket::{CloseCode, WebSocketSettings};
    /// use windlass_web::windlass::Watcher;
    /// use windlass_web::{App, Client};
    ///
    /// # use windlass_web::websocket::{Message, Peer, Socket};
    /// # struct Echo;
    /// # impl Peer<()> for Echo {
    /// #     fn message(&mut self, _: &mut (), c: &mut Socket<'_>, message: Message) {
    /// #         c.send(message);
    /// #     }
    /// # }
    /// # let server = App::new().websocket("/echo", |_, _| Ok::<_, windlass_web::Status>(Echo));
    /// # let server = server.listen("127.0.0.1:0")?.start()?;
    /// # let address = server.address();
    /// let (mut watcher, mut client) = (Watcher::new()?, Client::new(Default::default()));
    /// client.open_websocket(format!("ws://{address}/echo"), &WebSocketSettings::new());
    /// loop {
    ///     match client.wait_event(&mut watcher)? {
    ///         FetchEvent::Opened { socket, .. } => {
    ///             client.socket(socket).expect("it is open").send("hello");
    ///         }
    ///         FetchEvent::Message { socket, message } => {
    ///             assert_eq!(message.as_text(), Some("hello"));
    ///             client.socket(socket).expect("it is open").close(CloseCode::NORMAL, "");
    ///         }
    ///         FetchEvent::Closed { end, .. } => break assert!(end.is_clean),
    ///         FetchEvent::Failed { error, .. } => return Err(error.into()),
    ///         _ => {}
    ///     }
    /// }
    /// # server.shutdown()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open_websocket(
        &mut self,
        to: impl Into<Fetch>,
        settings: &WebSocketSettings,
    ) -> FetchId {
        let mut fetch = to.into();
        let opening = ClientHandshake::new(
            &mut fetch,
            &settings.clone().whole(),
            &mut self.below.sockets.keys,
        );
        let call = self.hub.begin_own(&mut *self.below, Box::new(fetch), Requester::OwnSwitch);
        self.sockets.handshakes.insert(call, opening);
        FetchId(call)
    }

    /// A WebSocket that is open or closes: to send, to close, to pause. `None` for a stale id.
    ///
    /// What is sent leaves with the next [`flush`](Client::flush). Topics are for the connections
    /// of servers: what a client's connection subscribes to or publishes has no effect.
    pub fn socket(&mut self, id: Id) -> Option<Socket<'_>> {
        let LinkPlace::Socket(number) = *self.below.state(id)? else { return None };
        let session = self.sockets.sessions.get_mut(number)?;
        Some(Socket::new(session, self.below.of(id)))
    }

    /// Draws the masks from a fixed beginning: for a watcher on a simulated kernel. A seed has one
    /// trace then.
    pub fn simulate_masks(&mut self) {
        self.below.sockets.keys.simulate();
    }

    /// Closes all WebSockets.
    pub(super) fn close_websockets(&mut self) {
        let ids: Vec<Id> = self.below.ids().collect();
        for id in ids {
            if let Some(mut socket) = self.socket(id) {
                socket.close(CloseCode::GOING_AWAY, "");
            }
        }
    }

    /// A server has gone over to another protocol.
    pub(super) fn switched(&mut self, call: CallId) -> FetchEvent {
        let id = FetchId(call);
        let checked = match (self.sockets.handshakes.remove(&call), self.hub.response()) {
            (Some(opening), Some((head, bytes))) => {
                opening.check(head, bytes).map_err(FetchError::Handshake)
            }
            _ => Err(FetchError::Ended),
        };
        let session = match checked {
            Ok(session) => session,
            Err(error) => {
                self.hub.cancel(&mut *self.below, call);
                return FetchEvent::Failed { id, error };
            }
        };
        let taken = self.hub.take_over(&mut *self.below, call);
        let Some((socket, rest, has_ended)) = taken else {
            return FetchEvent::Failed { id, error: FetchError::Ended };
        };
        let number = self.sockets.sessions.add(session);
        if let Some(place) = self.below.state_mut(socket) {
            *place = LinkPlace::Socket(number);
        }
        let session = self.sockets.sessions.get_mut(number).expect("right from above");
        let carrier = self.below.of(socket);
        session.opened(carrier);
        let intake = session.begin(carrier, rest);
        self.sockets.hearing = intake.map(|intake| (socket, intake, has_ended));
        FetchEvent::Opened { id, socket }
    }

    /// The next event of the input that is being taken.
    pub(super) fn next_heard(&mut self) -> Option<FetchEvent> {
        let (socket, mut intake, has_ended) = self.sockets.hearing.take()?;
        let LinkPlace::Socket(number) = *self.below.state(socket)? else { return None };
        let session = self.sockets.sessions.get_mut(number)?;
        let carrier = self.below.of(socket);
        let mut event = None;
        while session.advance(carrier, &mut intake, &mut |_, _, news| {
            event = Some(match news {
                PeerNews::Message(message) => FetchEvent::Message { socket, message },
                PeerNews::Part(_) => return, // its settings are for whole messages
                PeerNews::Pong(data) => FetchEvent::Pong { socket, data: data.to_vec() },
            });
        }) {
            if event.is_some() {
                self.sockets.hearing = Some((socket, intake, has_ended));
                return event;
            }
        }
        session.finish(carrier, intake);
        if has_ended {
            session.eof(carrier);
        }
        event
    }

    /// Another thread sends to a connection, or closes it.
    fn told(&mut self, message: Message) {
        if let Ok(ToldValue(id, value)) = message.downcast()
            && let Some(LinkPlace::Socket(number)) = self.below.state(id).copied()
            && let Some(session) = self.sockets.sessions.get_mut(number)
        {
            session.told(self.below.of(id), value);
        }
    }

    /// Takes what has happened on a WebSocket. What is of another connection comes back.
    pub(super) fn hear(
        &mut self,
        event: Below<LinkPlace>,
    ) -> Result<Option<FetchEvent>, Below<LinkPlace>> {
        if let Below::Message { message } = event {
            self.told(message);
            return Ok(None);
        }
        let socket = match &event {
            Below::Data { id, .. }
            | Below::Eof { id }
            | Below::Drained { id }
            | Below::Wake { id }
            | Below::LimitReached { id, .. }
            | Below::Closed { id, .. } => *id,
            _ => return Err(event),
        };
        let place = match &event {
            Below::Closed { state, .. } => Some(*state),
            _ => self.below.state(socket).copied(),
        };
        let Some(LinkPlace::Socket(number)) = place else { return Err(event) };
        if let Below::Closed { cause, .. } = event {
            let session = self.sockets.sessions.remove(number);
            return Ok(session.map(|session| {
                let end = session.into_end(cause);
                FetchEvent::Closed { socket, end }
            }));
        }
        let Some(session) = self.sockets.sessions.get_mut(number) else { return Ok(None) };
        let carrier = self.below.of(socket);
        match event {
            Below::Data { data, .. } => {
                let intake = session.begin(carrier, data);
                self.sockets.hearing = intake.map(|intake| (socket, intake, false));
                return Ok(self.next_heard());
            }
            Below::Wake { .. } if session.goes_on() => {
                let intake = session.begin(carrier, Buf::default());
                self.sockets.hearing = intake.map(|intake| (socket, intake, false));
                return Ok(self.next_heard());
            }
            Below::Eof { .. } => session.eof(carrier),
            Below::LimitReached { cause, .. } => session.limit_reached(carrier, cause),
            Below::Drained { .. } if session.is_open() => {
                return Ok(Some(FetchEvent::Drained { socket }));
            }
            _ => {}
        }
        Ok(None)
    }
}
