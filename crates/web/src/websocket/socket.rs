//! A WebSocket, in a callback or by its id.

use std::fmt;
use std::sync::Arc;

use windlass::Buf;
use windlass_serve::{Id, Refusal, Refused};
use windlass_websocket::{CloseCode, Kind, Opcode};

use super::carrier::Carrier;
use super::message::{Message, Payload};
use super::sender::SocketSender;
use super::session::Session;
use crate::message::publication::{Publication, Published};
use crate::topics::TopicCall;

/// A WebSocket: in a callback of [`Peer`](super::Peer), or from
/// [`Engine::socket`](crate::Engine::socket) and [`Client::socket`](crate::Client::socket).
///
/// No call waits. All that a callback sends leaves as one write behind it.
pub struct Socket<'a> {
    carrier: &'a mut dyn Carrier,
    session: &'a mut Session,
}

impl<'a> Socket<'a> {
    pub(crate) fn new(session: &'a mut Session, carrier: &'a mut dyn Carrier) -> Socket<'a> {
        Socket { carrier, session }
    }

    /// The id of the connection. A [`Remote`](crate::Remote) reaches it from other threads.
    pub fn id(&self) -> Id {
        self.carrier.id()
    }

    /// The sub-protocol that both sides have agreed to: one of
    /// [`protocols`](super::WebSocketSettings::protocols). `None`: without one.
    pub fn protocol(&self) -> Option<&str> {
        let at = usize::from(self.session.protocol).checked_sub(1)?;
        self.session.settings.protocols.get(at).map(|name| &**name)
    }

    /// Sends a message. False if it is not sent: the connection closes, or more bytes than
    /// [`Limits::cap`](windlass_serve::Limits::cap), 64 MiB by default, would wait for a peer that
    /// does not read, or the server has no memory for it. For the last two reasons the connection
    /// is [aborted](Socket::abort): [`try_send`](Socket::try_send) hands the message back instead.
    pub fn send(&mut self, message: impl Into<Message>) -> bool {
        self.session.send_or_abort(self.carrier, message.into())
    }

    /// Sends a message, or hands it back.
    ///
    /// # Errors
    ///
    /// [`Refused`] hands the message back, with:
    ///
    /// - [`Refusal::Stale`]: the connection closes.
    /// - [`Refusal::Cap`]: more bytes than [`Limits::cap`](windlass_serve::Limits::cap) would wait.
    /// - [`Refusal::Memory`]: the server has no memory for it.
    pub fn try_send(&mut self, message: impl Into<Message>) -> Result<(), Refused<Message>> {
        self.session.send(self.carrier, message.into())
    }

    /// Sends the next part of a message, as a frame: the first call begins one, and that with
    /// `is_last` ends it. So a message of any length takes no memory. The kind of the first part is
    /// that of the message. A text may be cut within a character.
    ///
    /// Whether there was room: a peer that does not read what it gets loses its connection, as for
    /// [`send`](Socket::send). A program that stops while the output is
    /// [full](Socket::is_full), and goes on in [`drained`](super::Peer::drained), finds room.
    ///
    /// ```
    /// use windlass_web::App;
    /// use windlass_web::Status;
    /// use windlass_web::websocket::{Kind, Message, MessagePart, Peer, Socket, WebSocketSettings};
    ///
    /// /// Counts to a million, in one message.
    /// #[derive(Default)]
    /// struct Counts(u32);
    /// impl Counts {
    ///     fn go_on(&mut self, c: &mut Socket<'_>) {
    ///         while self.0 < 1_000_000 && !c.is_full() {
    ///             let lines: String = (0..1000).map(|at| format!("{}\n", self.0 + at)).collect();
    ///             self.0 += 1000;
    ///             if !c.send_part(Kind::Text, lines, self.0 == 1_000_000) {
    ///                 return; // it has ended
    ///             }
    ///         }
    ///     }
    /// }
    /// impl Peer<()> for Counts {
    ///     fn open(&mut self, _: &mut (), c: &mut Socket<'_>) {
    ///         self.go_on(c);
    ///     }
    ///     fn drained(&mut self, _: &mut (), c: &mut Socket<'_>) {
    ///         self.go_on(c);
    ///     }
    ///     fn message(&mut self, _: &mut (), _: &mut Socket<'_>, _: Message) {}
    /// }
    ///
    /// /// Echoes messages while they come.
    /// struct Echo;
    /// impl Peer<()> for Echo {
    ///     fn part(&mut self, _: &mut (), c: &mut Socket<'_>, part: MessagePart) {
    ///         c.send_part(part.kind, part.data, part.is_last);
    ///     }
    ///     fn message(&mut self, _: &mut (), _: &mut Socket<'_>, _: Message) {}
    /// }
    ///
    /// let in_parts = WebSocketSettings::new().in_parts();
    /// App::new()
    ///     .websocket("/count", |_, _| Ok::<_, Status>(Counts::default()))
    ///     .websocket_with(in_parts, "/echo", |_, _| Ok::<_, Status>(Echo));
    /// ```
    ///
    /// # Between the parts
    ///
    /// No frame of another message may come between those of one (RFC 6455, section 5.4). So each
    /// whole message waits for the last part, and leaves behind it: of [`send`](Socket::send) and
    /// [`send_prepared`](Socket::send_prepared), of a topic, and of another thread. Those of one
    /// sender keep their order. What waits counts for the
    /// [cap](windlass_serve::Limits::cap) as what is written does, and for the memory of the
    /// connection. A whole message that finds no room is refused. A topic then takes the connection
    /// for one that does not keep up: see [`lossy`](super::WebSocketSettings::lossy). Pings and
    /// pongs leave at once. So does a close: the peer gets neither the rest of the message nor what
    /// waits behind it.
    ///
    /// # Compression
    ///
    /// Where compression is agreed to, the first part decides as a whole message does: the message
    /// is compressed if this part is long enough (`WebSocketSettings::compress`), and gets
    /// smaller. Each part is flushed, so that the peer can read it when it has come. That costs
    /// some bytes, so parts should not be tiny.
    ///
    /// A loop has four deflaters for messages in parts (of each level that its connections have).
    /// One is held from the first part to the last, or to the end of the connection. A message that
    /// finds none leaves as it is.
    pub fn send_part(&mut self, kind: Kind, part: impl Into<Buf>, is_last: bool) -> bool {
        match self.try_send_part(kind, part, is_last) {
            Ok(()) => true,
            Err(Refused { reason: Refusal::Stale, .. }) => false,
            Err(_) => {
                self.abort();
                false
            }
        }
    }

    /// Sends a part as [`send_part`](Socket::send_part) does, or hands it back. The message is
    /// where it was then: the part can be sent again.
    ///
    /// # Errors
    ///
    /// [`Refused`] hands the part back, with:
    ///
    /// - [`Refusal::Stale`]: the connection closes. The text is not UTF-8, if it has not closed
    ///   before: it does with 1007, and the peer gets nothing of the part.
    /// - [`Refusal::Cap`]: more bytes than [`Limits::cap`](windlass_serve::Limits::cap) would wait.
    ///   What waits behind the message does not count: it waits for this part. A part that is to be
    ///   compressed needs room as if it got an eighth longer.
    /// - [`Refusal::Memory`]: the server has no memory for it.
    pub fn try_send_part(
        &mut self,
        kind: Kind,
        part: impl Into<Buf>,
        is_last: bool,
    ) -> Result<(), Refused<Buf>> {
        let part = Payload::from(part);
        let sent = self.session.send_part(self.carrier, kind, part, is_last);
        sent.map_err(|(part, reason)| Refused { value: part.into_buf(), reason })
    }

    /// Sends a message that was prepared: it is framed once, and compressed once for each window,
    /// whatever the number of connections that get it. All else is as for [`send`](Socket::send).
    ///
    /// ```
    /// use std::sync::Arc;
    /// use windlass_web::App;
    /// use windlass_web::events::Published;
    /// use windlass_web::websocket::{Message, Peer, Socket};
    /// use windlass_web::Status;
    ///
    /// struct Rules(Arc<Published>);
    /// impl Peer<()> for Rules {
    ///     fn open(&mut self, _: &mut (), c: &mut Socket<'_>) {
    ///         c.send_prepared(&self.0);
    ///     }
    ///     fn message(&mut self, _: &mut (), _: &mut Socket<'_>, _: Message) {}
    /// }
    ///
    /// let rules = Arc::new(Published::from("be kind"));
    /// App::new().websocket("/chat", move |_, _| Ok::<_, Status>(Rules(Arc::clone(&rules))));
    /// ```
    pub fn send_prepared(&mut self, message: &Arc<Published>) -> bool {
        if !self.session.is_open() {
            return false;
        }
        let sent = self.session.send_published(self.carrier, message);
        if sent.is_err() {
            self.abort();
        }
        sent.is_ok()
    }

    /// What sends to this connection from any thread. It may outlive the connection.
    pub fn sender(&mut self) -> SocketSender {
        let (remote, id) = (self.carrier.remote().clone(), self.carrier.id());
        self.session.sender(remote, id)
    }

    /// Sends a ping, with at most 125 bytes; what is longer is cut. [`Peer::pong`] gets the answer.
    /// False if it is not sent: the connection closes, or there is no room for it.
    ///
    /// Silent connections get [pings](super::WebSocketSettings::ping_every) without this call.
    ///
    /// [`Peer::pong`]: super::Peer::pong
    pub fn ping(&mut self, data: &[u8]) -> bool {
        let data = &data[..data.len().min(125)];
        self.session.is_open() && self.session.control(self.carrier, Opcode::Ping, data).is_ok()
    }

    /// Closes the connection behind what is sent: by a close frame with this code, and a reason
    /// that is cut to 123 bytes. Messages of the peer that are on their way are dropped. So is the
    /// rest of a message [in parts](Socket::send_part), and what waits behind it. The peer has
    /// [`close_time`](super::WebSocketSettings::close_time) for its answer. A second close has no
    /// effect.
    ///
    /// Codes of an application are 4000 to 4999: `CloseCode::new(4001)`.
    pub fn close(&mut self, code: CloseCode, reason: &str) {
        self.session.close(self.carrier, code, reason);
    }

    /// Ends the connection at once, without a close frame, and drops what is not sent. The peer
    /// gets a reset, and the end has [`Cause::Aborted`](windlass_serve::Cause::Aborted).
    pub fn abort(&mut self) {
        self.session.abort(self.carrier);
    }

    /// How many bytes of output wait for the peer: frames that the kernel has not taken, and whole
    /// messages behind one that is sent [in parts](Socket::send_part), before their compression
    /// and with 64 bytes more for each. What other threads send counts when the loop has taken it.
    ///
    /// It may be too high: the kernel may have taken bytes since the loop last looked. Messages
    /// behind one in parts do not count for [`is_full`](Socket::is_full).
    pub fn waiting(&mut self) -> usize {
        self.carrier.waiting() + self.session.waiting_behind()
    }

    /// Whether more output waits than [`Limits::high`](windlass_serve::Limits::high) says, 256 KiB
    /// by default: the peer reads more slowly than the program sends.
    /// [`Peer::drained`](super::Peer::drained) follows when there is room.
    pub fn is_full(&mut self) -> bool {
        self.carrier.is_full()
    }

    /// No message comes from here on, until [`resume`](Socket::resume): the connection is not read,
    /// so that the peer cannot send on. Its pings and its close frame are not seen meanwhile.
    pub fn pause(&mut self) {
        self.session.pause(self.carrier);
    }

    /// Messages come again, behind this callback.
    pub fn resume(&mut self) {
        self.session.resume(self.carrier);
    }

    /// Gets what is published on a topic from now on, by any loop and any thread, until the
    /// connection ends or [unsubscribes](Socket::unsubscribe). A second call for the same topic has
    /// no effect. Topics have any names, need not be made, and take memory while they have
    /// subscribers. The connections of a [`Client`](crate::Client) have no topics.
    pub fn subscribe(&mut self, topic: impl Into<Arc<str>>) {
        self.carrier.call(TopicCall::Subscribe(self.carrier.id(), topic.into()));
    }

    /// Ends what [`subscribe`](Socket::subscribe) began.
    pub fn unsubscribe(&mut self, topic: impl Into<Arc<str>>) {
        self.carrier.call(TopicCall::Unsubscribe(self.carrier.id(), topic.into()));
    }

    /// Sends a message to all subscribers of a topic, to this connection, too, if it is one: see
    /// [`Remote::publish`](crate::Remote::publish). It leaves behind what this callback sends.
    pub fn publish(&mut self, topic: impl Into<Arc<str>>, what: impl Into<Published>) {
        let publication = Publication { topic: topic.into(), what: Arc::new(what.into()) };
        self.carrier.call(TopicCall::Publish(self.carrier.id().loop_index(), publication));
    }
}

impl fmt::Debug for Socket<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Socket").field("id", &self.id()).finish_non_exhaustive()
    }
}
