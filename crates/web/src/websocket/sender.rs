//! Messages from other threads.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use windlass_serve::{Id, Refusal, Refused};
use windlass_websocket::{CloseCode, FrameHead, Role, mask};

use super::mask_keys::MaskKeys;
use super::message::Message;
use crate::remote::Remote;

/// Sends to a connection from any thread: [`Socket::sender`](super::Socket::sender) makes it.
/// Clones send to the same connection.
///
/// Messages of one thread arrive in their order. They are not compressed. One that is sent while
/// the loop closes the connection may follow the close frame: the peer drops it (RFC 6455, section
/// 5.5.1).
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
    role: Role,
    has_closed: Arc<AtomicBool>,
}

/// A thread closes a connection.
pub(crate) struct CloseSocket(pub(crate) CloseCode, pub(crate) String);

impl SocketSender {
    pub(super) fn new(
        remote: Remote,
        id: Id,
        role: Role,
        has_closed: Arc<AtomicBool>,
    ) -> SocketSender {
        SocketSender { remote, id, role, has_closed }
    }

    /// The id of the connection.
    pub fn id(&self) -> Id {
        self.id
    }

    /// Sends a message.
    ///
    /// # Errors
    ///
    /// [`Refused`] hands the message back, with a reason of
    /// [`Remote::write`](windlass_serve::Remote::write): the connection has ended, or does not keep
    /// up, or the server has no memory. A message is dropped if the connection ends, or closes,
    /// before its loop has it.
    pub fn send(&self, message: impl Into<Message>) -> Result<(), Refused<Message>> {
        let message = message.into();
        if self.has_closed.load(Ordering::Relaxed) {
            return Err(Refused { value: message, reason: Refusal::Stale });
        }
        let (kind, plain) = (message.kind(), message.as_bytes());
        let mut head = FrameHead::new(kind.into(), plain.len() as u64);
        let key = match self.role {
            Role::Server => None,
            Role::Client => Some(MaskKeys::default().next()),
        };
        if let Some(key) = key {
            head = head.masked(key);
        }
        let mut frame = Vec::with_capacity(head.size() + plain.len());
        head.put(&mut frame);
        frame.extend_from_slice(plain);
        if let Some(key) = key {
            mask(key, &mut frame[head.size()..]);
        }
        let written = self.remote.write(self.id, frame.into());
        written.map_err(|refused| Refused { value: message, reason: refused.reason })
    }

    /// Closes the connection behind what is sent. False if it has ended.
    pub fn close(&self, code: CloseCode, reason: &str) -> bool {
        self.remote.tell(self.id, CloseSocket(code, reason.to_owned()))
    }
}

impl fmt::Debug for SocketSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SocketSender").field("id", &self.id).finish_non_exhaustive()
    }
}
