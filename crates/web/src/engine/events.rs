//! What an engine tells the program.

use std::fmt;
use std::time::Duration;

use windlass::{Buf, Completion, ErrorKind, Handle, Message};
use windlass_serve::{Cause, Id, Origin};

use super::request::OwnedRequest;
use crate::client::error::FetchError;
use crate::client::fetched::Fetched;
use crate::client::own::FetchId;
use crate::words::status::Status;

/// The id of a request. It goes stale when the request is [over](Event::Ended), and never names
/// another one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId {
    pub(super) number: u64,
    pub(super) at: u32,
}

impl RequestId {
    /// The number of the request: those of an engine increase.
    pub fn number(self) -> u64 {
        self.number
    }
}

impl fmt::Debug for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RequestId({})", self.number)
    }
}

/// Something that has happened on an engine's connections.
///
/// A connection with HTTP has no events of its own, but those of its requests: each has `Request`
/// and, last, `Ended`. Those of a connection with another protocol (*raw*) are those of
/// [`windlass_serve::Event`], and mean the same.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<S> {
    /// A whole request: [`respond`](crate::Engine::respond) answers it, now or later. The next
    /// request of its connection comes behind the response.
    Request {
        /// The request.
        id: RequestId,
        /// What the client asks for, with the body.
        request: OwnedRequest,
    },
    /// A request is over: its response is written, or its connection has ended. Its id is stale.
    Ended {
        /// The request.
        id: RequestId,
        /// The status of the response: of the engine's, too, a 504 for example. `None`: the
        /// connection has ended before.
        status: Option<Status>,
        /// Bytes of the response's body that were written.
        sent: u64,
        /// How long it took from the first byte of the request to its end.
        took: Duration,
    },
    /// A request of [`Engine::fetch`](crate::Engine::fetch) is over.
    Fetched {
        /// The request to the other server; the id is stale.
        id: FetchId,
        /// Its response.
        result: Result<Fetched, FetchError>,
    },
    /// The engine has answered something that is no request, or that is over its limits.
    Refused {
        /// The status of its response.
        status: Status,
    },
    /// A raw connection has opened.
    Opened {
        /// The connection.
        id: Id,
        /// Where it comes from.
        origin: Origin,
    },
    /// Bytes have come on a raw connection.
    Data {
        /// The connection.
        id: Id,
        /// The bytes.
        data: Buf,
    },
    /// The peer of a raw connection has shut down its output, and may still read.
    Eof {
        /// The connection.
        id: Id,
    },
    /// The output of a raw connection or a WebSocket was full, and has room again.
    Drained {
        /// The connection.
        id: Id,
    },
    /// A raw connection has reached a limit of its time, and goes on.
    LimitReached {
        /// The connection.
        id: Id,
        /// The limit: [`Cause::Idle`] or [`Cause::TooSlow`].
        cause: Cause,
    },
    /// A raw connection was woken.
    Wake {
        /// The connection.
        id: Id,
    },
    /// A raw connection has gone over to TLS, after `Engine::encrypt`.
    Encrypted {
        /// The connection.
        id: Id,
    },
    /// A raw connection has ended, or a descriptor that the program has attached cannot be served.
    Closed {
        /// The connection. The id is stale.
        id: Id,
        /// Why it ended.
        cause: Cause,
        /// Bytes of its output that the system has not taken.
        unsent: usize,
        /// The program's state.
        state: S,
    },
    /// The descriptor of a raw connection is the program's, after
    /// [`detach`](crate::Engine::detach).
    Detached {
        /// The connection. The id is stale.
        id: Id,
        /// The descriptor: non-blocking.
        handle: Handle,
        /// All bytes that had come and were not delivered, in order.
        undelivered: Vec<Buf>,
        /// Whether the peer has shut down its output.
        eof: bool,
        /// The program's state.
        state: S,
    },
    /// The WebSocket of [`Engine::open_websocket`](crate::Engine::open_websocket) is open.
    #[cfg(feature = "websocket")]
    SocketOpened {
        /// The connection.
        id: Id,
        /// What `open_websocket` has returned; it is stale.
        call: FetchId,
    },
    /// `open_websocket` has no connection.
    #[cfg(feature = "websocket")]
    SocketFailed {
        /// What it has returned; it is stale.
        call: FetchId,
        /// Why.
        error: FetchError,
        /// The program's state.
        state: S,
    },
    /// A message has come on a WebSocket.
    #[cfg(feature = "websocket")]
    SocketMessage {
        /// The connection.
        id: Id,
        /// The message.
        message: crate::websocket::Message,
    },
    /// A pong has come on a WebSocket.
    #[cfg(feature = "websocket")]
    SocketPong {
        /// The connection.
        id: Id,
        /// Its bytes: at most 125.
        data: Vec<u8>,
    },
    /// A WebSocket has ended.
    #[cfg(feature = "websocket")]
    SocketClosed {
        /// The connection. The id is stale.
        id: Id,
        /// How.
        end: crate::websocket::SocketEnd,
        /// The program's state.
        state: S,
    },
    /// The time of [`Engine::tick_after`](crate::Engine::tick_after) has passed.
    Tick,
    /// An accept has failed. The listener accepts again after 100 ms.
    AcceptFailed {
        /// The number of the listener.
        listener: usize,
        /// The error of the accept.
        error: ErrorKind,
    },
    /// Another thread has sent a [message](windlass_serve::Remote::post).
    Message {
        /// The value.
        message: Message,
    },
    /// A completion that is not the engine's: only from
    /// [`next_event_in`](crate::Engine::next_event_in).
    Foreign(Completion),
}

/// Why something was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Refusal {
    /// The request is over or has been answered, or the connection has ended.
    Stale,
    /// The client does not offer to go over to this protocol; no `CONNECT` asks for this tunnel.
    NotOffered,
    /// The name of the protocol, or a field of the head, has bytes that it may not have. The
    /// client gets a 500. While the engine shuts down: it has got a 503. For a WebSocket: the
    /// request is none, or its origin may not connect; the client has got a 400, 403, 405 or 426.
    Invalid,
    /// The connection has HTTP, or has another protocol: this is for the other kind.
    Kind,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::Stale => "the request is over or answered, or the connection has ended",
            Refusal::NotOffered => "the client does not offer to go over to this protocol",
            Refusal::Invalid => "the head of the response cannot be written",
            Refusal::Kind => "the connection is of the other kind",
        })
    }
}

impl std::error::Error for Refusal {}
