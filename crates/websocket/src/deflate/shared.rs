//! Messages that go to many connections.

use super::{Context, Deflaters, Window};

/// A message that goes to many connections, compressed once for each window among them.
///
/// It is compressed without a context, so that each peer can read it. With context takeover its
/// text is a part of what later messages refer to: so [`SharedPayloads::payload_for`] appends it to
/// the connection's history, as the peer does.
///
/// ```
/// use windlass_websocket::deflate::{
///     DeflaterSettings, Deflaters, Context, History, SharedPayloads, Window,
/// };
///
/// let mut deflaters = Deflaters::new(DeflaterSettings::default());
/// let mut shared = SharedPayloads::new();
/// let mut history = History::new(Window::MIN);
/// shared.begin();
/// let plain = b"all of you";
/// let fresh = Context::Fresh(Window::MAX);
/// assert!(!shared.payload_for(fresh, plain, &mut deflaters).is_empty());
/// let kept = Context::Kept(&mut history);
/// assert!(!shared.payload_for(kept, plain, &mut deflaters).is_empty());
/// assert_eq!(history.len(), plain.len());
/// ```
#[derive(Debug, Default)]
pub struct SharedPayloads {
    /// A payload is not empty: without a byte there is none yet.
    payloads: [Vec<u8>; Window::COUNT],
}

impl SharedPayloads {
    /// No message yet.
    pub fn new() -> SharedPayloads {
        SharedPayloads::default()
    }

    /// The next message. The memory stays.
    pub fn begin(&mut self) {
        self.payloads.iter_mut().for_each(Vec::clear);
    }

    /// The payload for a connection, compressed if it is the first one with this window. `plain` is
    /// the text of the message, the same until the next [`begin`](SharedPayloads::begin).
    pub fn payload_for(
        &mut self,
        context: Context<'_>,
        plain: &[u8],
        deflaters: &mut Deflaters,
    ) -> &[u8] {
        let window = context.window();
        let payload = &mut self.payloads[window.index()];
        if payload.is_empty() {
            deflaters.compress(Context::Fresh(window), plain, payload);
        }
        if let Context::Kept(history) = context {
            history.append(plain);
        }
        payload
    }
}
