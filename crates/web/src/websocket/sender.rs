//! Messages from other threads.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use windlass_serve::{Id, Refusal, Refused, Reserved};
use windlass_websocket::CloseCode;

use super::message::{Message, ROOM};
use crate::remote::Remote;

/// Sends to a connection from any thread: [`Socket::sender`](super::Socket::sender) makes it.
/// Clones send to the same connection. No call waits.
///
/// Messages of one thread arrive in their order. The loop of the connection sends them as its own:
/// it compresses them, and they wait while a message is sent [in parts](super::Socket::send_part).
/// Until they have left, they count for the [cap](windlass_serve::Limits::cap) of the connection.
///
/// ```
/// use std::thread;
/// use windlass_web::websocket::{CloseCode, Message, Peer, Socket};
///
/// struct Count;
/// impl Peer<()> for Count {
///     fn open(&mut self, _: &mut (), c: &mut Socket<'_>) {
///         let sender = c.sender();
///         thread::spawn(move || {
///             for number in 0..3 {
///                 if sender.send(number.to_string()).is_err() {
///                     return; // it has ended, or does not keep up
///                 }
///             }
///             sender.close(CloseCode::NORMAL, "that is all");
///         });
///     }
///     fn message(&mut self, _: &mut (), _: &mut Socket<'_>, _: Message) {}
/// }
/// ```
#[derive(Clone)]
pub struct SocketSender {
    remote: Remote,
    id: Id,
    has_closed: Arc<AtomicBool>,
}

/// A thread closes a connection.
pub(super) struct CloseSocket(pub(super) CloseCode, pub(super) String);

/// A thread sends a message, whose room it has.
pub(super) struct SendSocket(pub(super) Message, pub(super) Reserved);

impl SocketSender {
    pub(super) fn new(remote: Remote, id: Id, has_closed: Arc<AtomicBool>) -> SocketSender {
        SocketSender { remote, id, has_closed }
    }

    /// The id of the connection.
    pub fn id(&self) -> Id {
        self.id
    }

    /// Sends a message. A message that was taken is dropped if the connection ends, or closes,
    /// before its loop has sent it.
    ///
    /// # Errors
    ///
    /// [`Refused`] hands the message back, with:
    ///
    /// - [`Refusal::Stale`]: the connection has ended, or closes.
    /// - [`Refusal::Cap`]: more bytes than [`Limits::cap`](windlass_serve::Limits::cap) would wait.
    /// - [`Refusal::Memory`]: the server has no memory for it.
    pub fn send(&self, message: impl Into<Message>) -> Result<(), Refused<Message>> {
        let message = message.into();
        if self.has_closed.load(Ordering::Relaxed) {
            return Err(Refused { value: message, reason: Refusal::Stale });
        }
        let room = match self.remote.reserve(self.id, message.as_bytes().len() + ROOM) {
            Ok(room) => room,
            Err(reason) => return Err(Refused { value: message, reason }),
        };
        let told = self.remote.try_tell(self.id, SendSocket(message, room));
        told.map_err(|Refused { value: SendSocket(value, _), reason }| Refused { value, reason })
    }

    /// Closes the connection behind what this thread has sent before: see
    /// [`Socket::close`](super::Socket::close). False if it has ended.
    pub fn close(&self, code: CloseCode, reason: &str) -> bool {
        self.remote.tell(self.id, CloseSocket(code, reason.to_owned()))
    }
}

impl fmt::Debug for SocketSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SocketSender").field("id", &self.id).finish_non_exhaustive()
    }
}
