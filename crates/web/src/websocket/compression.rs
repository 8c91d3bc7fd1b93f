//! Compression of messages, as a loop and its connections have it.
//!
//! # Why
//! A loop has the deflaters and inflaters, and a connection only what its messages can refer to:
//! nothing without context takeover, and otherwise the last bytes of each direction.

use std::collections::VecDeque;
use std::sync::Arc;

use windlass_serve::Id;
use windlass_websocket::deflate::{
    Context, DeflaterSettings, Deflaters, History, InflateCaps, InflaterSettings, Inflaters,
    StreamingDeflater, StreamingInflater, UnsentMessage, Window,
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

/// The last bytes of each direction whose messages refer to those before.
pub(super) struct Histories {
    sent: Option<History>,
    received: Option<History>,
}

/// What a connection has for compressed messages. Where nothing is taken over, that is the window
/// of what is sent.
#[derive(Clone, Copy)]
pub(super) struct SocketWindow(Window);

impl SocketWindow {
    /// As both sides have agreed.
    pub(super) fn new(role: Role, agreed: Deflate) -> (SocketWindow, Option<Box<Histories>>) {
        let server = (agreed.server_window, agreed.server_takeover);
        let client = (agreed.client_window, agreed.client_takeover);
        let (out, inward) = match role {
            Role::Server => (server, client),
            Role::Client => (client, server),
        };
        let window = |bits| Window::new(bits).unwrap_or(Window::MAX);
        let history =
            |(bits, takes_over): (u8, bool)| takes_over.then(|| History::new(window(bits)));
        let own = Histories { sent: history(out), received: history(inward) };
        let has_any = own.sent.is_some() || own.received.is_some();
        (SocketWindow(window(out.0)), has_any.then(|| Box::new(own)))
    }
}

impl Histories {
    /// What is sent joins it.
    pub(super) fn sent(&mut self) -> Option<&mut History> {
        self.sent.as_mut()
    }

    fn received(own: Option<&mut Histories>) -> Context<'_> {
        let received = own.and_then(|own| own.received.as_mut());
        received.map_or(Context::Fresh(Window::MAX), Context::Kept)
    }
}

impl LoopCompression {
    /// Appends the frame of a compressed message. Nothing of the connection changes before the
    /// text [joins](History::join) what was sent. `None`: the frame would be as long as that of
    /// the message as it is.
    pub(super) fn compress(
        &mut self,
        (level, SocketWindow(window)): (u8, SocketWindow),
        sent: Option<&mut History>,
        message: (Kind, &[u8]),
        key: Option<[u8; 4]>,
        out: &mut Vec<u8>,
    ) -> Option<UnsentMessage> {
        put_compressed(self.deflaters(level), (window, sent), message, key, out)
    }

    /// The frame of a message that goes to many connections, and whether it is compressed: then
    /// the text joins what is sent.
    pub(super) fn frame_for(
        &mut self,
        (level, SocketWindow(window)): (u8, SocketWindow),
        what: &Published,
    ) -> (Arc<[u8]>, bool) {
        what.compressed_frame(window.bits(), || {
            let (mut frame, to) = (Vec::new(), (window, None));
            let made = put_compressed(self.deflaters(level), to, what.message(), None, &mut frame);
            made.map(|_| frame.into())
        })
    }

    /// The text of a compressed message.
    pub(super) fn inflate(
        &mut self,
        own: Option<&mut Histories>,
        kind: Kind,
        payload: &[u8],
        most: u64,
    ) -> Result<Vec<u8>, Error> {
        let caps = InflateCaps { bytes: most, ..InflateCaps::default() };
        let plain = &mut self.plain;
        plain.clear();
        let inflated = self.inflaters.inflate(Histories::received(own), payload, caps, plain);
        if inflated.is_err() && plain.capacity() > KEPT {
            *plain = Vec::new();
        }
        inflated?;
        if kind == Kind::Text && simdutf8::basic::from_utf8(plain).is_err() {
            return Err(Rule::Utf8.into());
        }
        // A large one is the message itself, a small one is copied to memory of its size.
        match plain.len() > KEPT {
            true => Ok(std::mem::take(plain)),
            false => Ok(plain.clone()),
        }
    }

    /// A deflater for a message that is sent in parts, if the loop has one left.
    pub(super) fn take_deflater(
        &mut self,
        (level, SocketWindow(window)): (u8, SocketWindow),
        sent: Option<&mut History>,
    ) -> Option<StreamingDeflater> {
        self.deflaters(level).take(sent.map_or(Context::Fresh(window), Context::Kept))
    }

    /// The text of a message that has ended joins what was sent.
    pub(super) fn put_deflater_back(
        &mut self,
        level: u8,
        sent: Option<&mut History>,
        deflater: StreamingDeflater,
    ) {
        self.deflaters(level).put_back(deflater, sent);
    }

    /// An inflater for a message in parts, if the loop has one left.
    pub(super) fn take_inflater(
        &mut self,
        own: Option<&mut Histories>,
        most: u64,
    ) -> Option<StreamingInflater> {
        let caps = InflateCaps { bytes: most, ..InflateCaps::default() };
        self.inflaters.take(Histories::received(own), caps)
    }

    pub(super) fn put_inflater_back(
        &mut self,
        own: Option<&mut Histories>,
        inflater: StreamingInflater,
    ) {
        self.inflaters.put_back(inflater, own.and_then(|own| own.received.as_mut()));
    }
}

/// How many bytes of text a loop keeps room for.
const KEPT: usize = 64 << 10;

fn put_compressed(
    deflaters: &mut Deflaters,
    (window, sent): (Window, Option<&mut History>),
    (kind, plain): (Kind, &[u8]),
    key: Option<[u8; 4]>,
    out: &mut Vec<u8>,
) -> Option<UnsentMessage> {
    let start = out.len();
    out.resize(start + FrameHead::MOST, 0);
    let unsent = match sent {
        Some(history) => deflaters.compress_unsent(history, plain, out),
        None => {
            deflaters.compress(Context::Fresh(window), plain, out);
            UnsentMessage::default()
        }
    };
    let len = out.len() - start - FrameHead::MOST;
    if len >= plain.len() {
        out.truncate(start);
        return None;
    }
    seal(out, start, FrameHead::new(kind.into(), len as u64).compressed(), key);
    Some(unsent)
}

/// Puts the head in front of a payload that has room for any head before it, and the mask on it.
pub(super) fn seal(out: &mut Vec<u8>, start: usize, head: FrameHead, key: Option<[u8; 4]>) {
    let len = out.len() - start - FrameHead::MOST;
    let head = key.map_or(head, |key| head.masked(key));
    if let Some(key) = key {
        mask(key, &mut out[start + FrameHead::MOST..]);
    }
    let mut bytes = [0; FrameHead::MOST];
    let size = head.write(&mut bytes);
    // The payload moves to where its head ends.
    out.copy_within(start + FrameHead::MOST.., start + size);
    out.truncate(start + size + len);
    out[start..start + size].copy_from_slice(&bytes[..size]);
}
