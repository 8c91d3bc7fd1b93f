//! How connections end.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use windlass_serve::Cause;
use windlass_websocket::CloseCode;

use super::unfinished_output::UnfinishedOutput;
use crate::client::error::FetchError;

/// How a connection was closed: for [`Peer::closed`](super::Peer::closed).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SocketEnd {
    /// The code of the first close frame, of either side; `None` if it had no code, or if the
    /// connection ended without a close frame.
    pub code: Option<CloseCode>,
    /// The reason in that frame.
    pub reason: String,
    /// Whether both sides have sent a close frame. Without one, a browser shows 1006.
    pub is_clean: bool,
    /// How the TCP connection has ended. The [guide](crate::guide#talk-over-websockets) says what
    /// each cause means for a WebSocket.
    pub cause: Cause,
    /// Why the handshake of [`Remote::open_websocket`](crate::Remote::open_websocket) has failed.
    /// `None` if the connection was open.
    pub failed: Option<FetchError>,
}

impl SocketEnd {
    pub(crate) fn not_opened(error: FetchError, cause: Cause) -> SocketEnd {
        let reason = String::new();
        SocketEnd { code: None, reason, is_clean: false, cause, failed: Some(error) }
    }
}

/// What few connections have, and none that is idle.
#[derive(Default)]
pub(super) struct Extras {
    /// Of the first close frame.
    pub(super) code: Option<CloseCode>,
    pub(super) reason: String,
    pub(super) is_noted: bool,
    /// Tells other threads that a close frame was sent.
    pub(super) has_closed: Option<Arc<AtomicBool>>,
    /// A message that is sent in parts.
    pub(super) output: Option<Box<UnfinishedOutput>>,
}

impl Extras {
    pub(super) fn is_nothing(&self) -> bool {
        !self.is_noted && self.has_closed.is_none() && self.output.is_none()
    }
}
