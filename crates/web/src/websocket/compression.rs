//! SocketCompression of messages, as a loop and its connections have it.
//!
//! # Why
//! A loop has the deflaters and inflaters, and a connection only what its messages can refer to:
//! nothing without context takeover, and otherwise the last bytes of each direction.

use std::collections::VecDeque;
use std::sync::Arc;

use windlass_serve::Id;
use windlass_websocket::deflate::{
    Context, DeflaterSettings, Deflaters, History, InflateCaps, InflaterSettings, Inflaters,
    StreamingInflater, Window,
};
use windlass_websocket::handshake::Deflate;
use windlass_websocket::{Error, FrameHead, Kind, Role, Rule, mask};

use crate::message::publication::Published;

/// What a loop has for compressed messages. Nothing is made before it is needed.
pub(super) struct LoopCompression {
    /// One for each setting among the connections: most programs have one.
    deflaters: Vec<(DeflaterSettings, Deflaters)>,
    inflaters: Inflaters,
    plain: Vec<u8>,
    /// Connections that wait for an inflater.
    waiting: VecDeque<Id>,
}

impl Default for LoopCompression {
    fn default() -> LoopCompression {
        LoopCompression {
            deflaters: Vec::new(),
            inflaters: Inflaters::new(InflaterSettings::default()),
            plain: Vec::new(),
            waiting: VecDeque::new(),
        }
    }
}

impl LoopCompression {
    /// A connection waits for an inflater.
    pub(super) fn wait_for_inflater(&mut self, id: Id) {
        if !self.waiting.contains(&id) {
            self.waiting.push_back(id);
        }
    }

    /// A connection that has waited, if there is an inflater for it.
    #[inline]
    pub(super) fn next_waiting(&mut self) -> Option<Id> {
        match self.waiting.is_empty() || !self.inflaters.has_room() {
            true => None,
            false => self.waiting.pop_front(),
        }
    }

    fn deflaters(&mut self, level: u8) -> &mut Deflaters {
        let settings = DeflaterSettings { level, ..DeflaterSettings::default() };
        let found = self.deflaters.iter().position(|(of, _)| *of == settings);
        let at = found.unwrap_or_else(|| {
            self.deflaters.push((settings, Deflaters::new(settings)));
            self.deflaters.len() - 1
        });
        &mut self.deflaters[at].1
    }
}

/// What a connection has for compressed messages.
pub(super) struct SocketCompression {
    level: u8,
    /// The window of what is sent.
    window: Window,
    sent: Option<History>,
    received: Option<History>,
}

impl SocketCompression {
    /// As both sides have agreed.
    pub(super) fn new(role: Role, agreed: Deflate, level: u8) -> SocketCompression {
        let server = (agreed.server_window, agreed.server_takeover);
        let client = (agreed.client_window, agreed.client_takeover);
        let (out, inward) = match role {
            Role::Server => (server, client),
            Role::Client => (client, server),
        };
        let window = |bits| Window::new(bits).unwrap_or(Window::MAX);
        let history =
            |(bits, takes_over): (u8, bool)| takes_over.then(|| History::new(window(bits)));
        SocketCompression {
            level,
            window: window(out.0),
            sent: history(out),
            received: history(inward),
        }
    }

    fn context(history: Option<&mut History>, window: Window) -> Context<'_> {
        history.map_or(Context::Fresh(window), Context::Kept)
    }

    /// Appends the frame of a compressed message.
    pub(super) fn compress(
        &mut self,
        shared: &mut LoopCompression,
        message: (Kind, &[u8]),
        key: Option<[u8; 4]>,
        out: &mut Vec<u8>,
    ) {
        let context = SocketCompression::context(self.sent.as_mut(), self.window);
        put_compressed(shared.deflaters(self.level), context, message, key, out);
    }

    /// The frame of a message that goes to many connections.
    pub(super) fn frame_for(
        &mut self,
        shared: &mut LoopCompression,
        what: &Published,
    ) -> Arc<[u8]> {
        let (kind, plain) = what.message();
        what.compressed_frame(self.window.bits(), || {
            let mut frame = Vec::new();
            let context = Context::Fresh(self.window);
            let deflaters = shared.deflaters(self.level);
            put_compressed(deflaters, context, (kind, plain), None, &mut frame);
            frame.into()
        })
    }

    /// A message was sent in such a frame.
    pub(super) fn note_sent(&mut self, plain: &[u8]) {
        if let Some(history) = &mut self.sent {
            history.append(plain);
        }
    }

    /// The text of a compressed message.
    pub(super) fn inflate(
        &mut self,
        shared: &mut LoopCompression,
        kind: Kind,
        payload: &[u8],
        most: u64,
    ) -> Result<Vec<u8>, Error> {
        let caps = InflateCaps { bytes: most, ..InflateCaps::default() };
        let context = SocketCompression::context(self.received.as_mut(), Window::MAX);
        shared.plain.clear();
        shared.inflaters.inflate(context, payload, caps, &mut shared.plain)?;
        if kind == Kind::Text && simdutf8::basic::from_utf8(&shared.plain).is_err() {
            return Err(Rule::Utf8.into());
        }
        // A large one is the message itself, a small one is copied to memory of its size.
        match shared.plain.len() > KEPT {
            true => Ok(std::mem::take(&mut shared.plain)),
            false => Ok(shared.plain.clone()),
        }
    }

    /// An inflater for a message in parts, if the loop has one left.
    pub(super) fn take_inflater(
        &mut self,
        shared: &mut LoopCompression,
        most: u64,
    ) -> Option<StreamingInflater> {
        let caps = InflateCaps { bytes: most, ..InflateCaps::default() };
        let context = SocketCompression::context(self.received.as_mut(), Window::MAX);
        shared.inflaters.take(context, caps)
    }

    pub(super) fn put_inflater_back(
        &mut self,
        shared: &mut LoopCompression,
        inflater: StreamingInflater,
    ) {
        shared.inflaters.put_back(inflater, self.received.as_mut());
    }

    /// Whether messages that are sent refer to those before.
    pub(super) fn keeps_sent(&self) -> bool {
        self.sent.is_some()
    }

    /// The memory that it takes.
    pub(super) fn held(&self) -> usize {
        let histories = self.sent.iter().chain(&self.received);
        histories.map(History::allocated).sum()
    }
}

/// How many bytes of text a loop keeps room for.
const KEPT: usize = 64 << 10;

fn put_compressed(
    deflaters: &mut Deflaters,
    context: Context<'_>,
    (kind, plain): (Kind, &[u8]),
    key: Option<[u8; 4]>,
    out: &mut Vec<u8>,
) {
    let start = out.len();
    out.resize(start + FrameHead::MOST, 0);
    deflaters.compress(context, plain, out);
    let len = out.len() - start - FrameHead::MOST;
    let mut head = FrameHead::new(kind.into(), len as u64).compressed();
    if let Some(key) = key {
        head = head.masked(key);
        mask(key, &mut out[start + FrameHead::MOST..]);
    }
    let mut bytes = [0; FrameHead::MOST];
    let size = head.write(&mut bytes);
    // The payload moves to where its head ends.
    out.copy_within(start + FrameHead::MOST.., start + size);
    out.truncate(start + size + len);
    out[start..start + size].copy_from_slice(&bytes[..size]);
}
