//! Responses that are compressed.
//!
//! # Why
//! A loop that compresses serves no other connection meanwhile. So a callback compresses about
//! 64 KiB, and goes on in a later turn. A source is asked when all that it has made is compressed:
//! what waits here is one part of it.

use std::sync::Arc;
use std::thread;

use windlass_serve::memory::Charge;

use super::Machine;
use crate::coding::deflate::{BorrowedCompressor, Compressors, Flush};
use crate::message::compress::{Compress, mark};
use crate::message::head::Head;
use crate::message::response::Body;
use crate::message::source::{At, BodySource, Flow, Part};

/// Longer bodies are compressed in parts.
const MOST_AT_ONCE: usize = 128 << 10;

/// How many bytes a callback compresses before it leaves the loop to others.
const TURN: usize = 64 << 10;

/// More memory than that goes back to the system.
const MOST_KEPT: usize = 64 << 10;

/// What a loop has to compress with.
pub(crate) struct Compression {
    rules: Arc<Compress>,
    compressors: Compressors,
    /// The last whole body.
    made: Vec<u8>,
}

impl Compression {
    pub(crate) fn new(rules: Arc<Compress>) -> Compression {
        Compression { compressors: rules.compressors(), rules, made: Vec::new() }
    }
}

/// What becomes of a whole body.
pub(super) enum Whole {
    AtOnce(Body),
    InParts(Box<dyn BodySource>, Box<Packing>),
}

/// A body that is compressed while it is sent.
pub(super) struct Packing {
    lease: BorrowedCompressor,
    /// What the source has made, and where it is not compressed yet.
    input: Vec<u8>,
    at: usize,
    /// What the source has said of it.
    after: Flow,
    /// Whether something may be in the compressor.
    is_dirty: bool,
    /// Whether the source has heard of the end of the peer.
    is_end_told: bool,
    charge: Option<Charge>,
}

/// What a step of a body has done.
pub(super) struct PackStep {
    pub(super) flow: Flow,
    /// Whether the source has made an empty part.
    pub(super) is_empty: bool,
    /// How many bytes were compressed.
    pub(super) packed: usize,
}

impl<K: 'static> Machine<K> {
    /// Whether a callback has compressed so much that others have their turn.
    #[inline]
    pub(super) fn is_turn_over(&self) -> bool {
        self.packed >= TURN
    }

    /// Compresses a whole body, if it is one to compress. `bytes` are the head of its request.
    #[inline(never)]
    pub(super) fn pack_whole(
        &mut self,
        head: &mut Head,
        body: Body,
        bytes: Option<&[u8]>,
        may_stream: bool,
    ) -> Whole {
        let plain = match &body {
            Body::Static(plain) => plain,
            Body::Bytes(plain) => &plain[..],
            Body::Shared(plain) => &plain[..],
            _ => return Whole::AtOnce(body),
        };
        let Some(compression) = &mut self.compression else { return Whole::AtOnce(body) };
        let Compression { rules, compressors, made } = &mut **compression;
        let request = bytes.map(|bytes| (&self.head, bytes));
        let Some(choice) = rules.choose(head, Some(plain.len()), request) else {
            return Whole::AtOnce(body);
        };
        if plain.len() > MOST_AT_ONCE && may_stream {
            let Some(lease) = compressors.lease(choice.coding) else { return Whole::AtOnce(body) };
            mark(head, choice.coding);
            let source = Box::new(InParts { body, at: 0, charge: None });
            return Whole::InParts(source, Box::new(Packing::new(lease)));
        }
        made.clear();
        compressors.whole(choice.coding, plain, made);
        self.packed += plain.len();
        if made.len() >= plain.len() && !choice.refuses_plain {
            return Whole::AtOnce(body);
        }
        mark(head, choice.coding);
        let packed = Body::Bytes(made.as_slice().to_vec());
        if made.capacity() > MOST_KEPT {
            *made = Vec::new();
        }
        Whole::AtOnce(packed)
    }

    /// Decides whether a body that is made while it is sent is compressed.
    pub(super) fn pack_stream(
        &mut self,
        head: &mut Head,
        bytes: Option<&[u8]>,
    ) -> Option<Box<Packing>> {
        let Compression { rules, compressors, .. } = &**self.compression.as_ref()?;
        let choice = rules.choose(head, None, bytes.map(|bytes| (&self.head, bytes)))?;
        let lease = compressors.lease(choice.coding)?;
        mark(head, choice.coding);
        Some(Box::new(Packing::new(lease)))
    }
}

impl Packing {
    fn new(lease: BorrowedCompressor) -> Packing {
        Packing {
            lease,
            input: Vec::new(),
            at: 0,
            after: Flow::More,
            is_dirty: false,
            is_end_told: false,
            charge: None,
        }
    }

    /// Appends some of the compressed body to `out`. `ask` makes a part of the plain one.
    pub(super) fn next(
        &mut self,
        out: &mut Vec<u8>,
        at: At<'_>,
        ask: impl FnOnce(&mut Vec<u8>) -> thread::Result<Flow>,
    ) -> thread::Result<PackStep> {
        let is_open = matches!(self.after, Flow::More | Flow::Wait);
        let is_news = at.has_peer_ended && !self.is_end_told;
        let asks = is_open && (self.at == self.input.len() || is_news);
        let mut is_empty = false;
        if asks {
            self.is_end_told = at.has_peer_ended;
            self.after = match self.at == self.input.len() {
                true => {
                    self.input.clear();
                    self.at = 0;
                    ask(&mut self.input)?
                }
                // A part of its own: a source may take the whole memory of it.
                false => {
                    let mut part = Vec::new();
                    let flow = ask(&mut part)?;
                    self.input.extend_from_slice(&part);
                    flow
                }
            };
            is_empty = self.at == self.input.len();
        }
        let rest = &self.input[self.at..];
        let packed = rest.len().min(TURN);
        let (now, is_last) = (&rest[..packed], packed == rest.len());
        let (behind, flow) = match (is_last, self.after) {
            (true, Flow::End) => (Flush::End, Flow::End),
            // It is woken for what it has made since: it is asked first.
            (true, Flow::Wait) if asks => (Flush::Pause, Flow::Wait),
            (_, Flow::Fail) => (Flush::More, Flow::Fail),
            _ => (Flush::More, Flow::More),
        };
        if packed > 0 || behind == Flush::End || behind == Flush::Pause && self.is_dirty {
            self.lease.write(now, behind, out);
            self.is_dirty = behind == Flush::More;
        }
        self.at += packed;
        self.charge(at);
        Ok(PackStep { flow, is_empty, packed })
    }

    /// What waits here counts for its connection.
    fn charge(&mut self, at: At<'_>) {
        let waiting = self.input.len() - self.at;
        if waiting == 0 {
            self.charge = None;
            if self.input.capacity() > MOST_KEPT {
                (self.input, self.at) = (Vec::new(), 0);
            }
            return;
        }
        self.charge.get_or_insert_with(|| (at.hold)().0).set(waiting);
    }

    /// Appends a text that is complete, so that the client can decode it at once. It follows what
    /// is not compressed yet.
    pub(super) fn say(&mut self, text: &[u8], out: &mut Vec<u8>) {
        if self.at < self.input.len() {
            self.input.extend_from_slice(text);
            return;
        }
        self.lease.write(text, Flush::Pause, out);
        self.is_dirty = false;
    }
}

/// A long body, whose parts are compressed one after the other.
struct InParts {
    body: Body,
    at: usize,
    charge: Option<Charge>,
}

impl BodySource for InParts {
    fn next(&mut self, part: &mut Part<'_>) -> Flow {
        let (bytes, is_held) = match &self.body {
            Body::Static(bytes) => (*bytes, false),
            Body::Bytes(bytes) => (&bytes[..], true),
            Body::Shared(bytes) => (&bytes[..], true),
            _ => return Flow::Fail,
        };
        let end = bytes.len().min(self.at + TURN);
        part.write(&bytes[self.at..end]);
        self.at = end;
        if end == bytes.len() {
            return Flow::End;
        }
        if is_held {
            self.charge.get_or_insert_with(|| part.hold().0).set(bytes.len());
        }
        Flow::More
    }
}
