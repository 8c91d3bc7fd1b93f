//! Parts of messages.

use windlass::Buf;
use windlass_websocket::Kind;
#[cfg(feature = "deflate")]
use windlass_websocket::{Utf8, deflate::StreamingInflater};

/// A part of a message: see [`WebSocketSettings::in_parts`](super::WebSocketSettings::in_parts).
#[derive(Debug)]
#[non_exhaustive]
pub struct MessagePart {
    /// What the message is.
    pub kind: Kind,
    /// The next bytes of the message. A text may be cut within a character; all of it is checked
    /// as it comes.
    pub data: Buf,
    /// Whether the message begins here.
    pub is_first: bool,
    /// Whether the message ends here.
    pub is_last: bool,
}

/// A compressed message that is told in parts.
#[cfg(feature = "deflate")]
pub(super) struct InflatingParts {
    pub(super) kind: Kind,
    pub(super) inflater: Option<StreamingInflater>,
    /// What has come of it and is not inflated.
    pub(super) pending: Vec<u8>,
    pub(super) has_all: bool,
    pub(super) is_told: bool,
    /// Whether the inflater makes more without further input.
    pub(super) has_more: bool,
    pub(super) utf8: Utf8,
}

#[cfg(feature = "deflate")]
impl InflatingParts {
    /// A message that begins.
    pub(super) fn new(kind: Kind) -> InflatingParts {
        InflatingParts {
            kind,
            inflater: None,
            pending: Vec::new(),
            has_all: false,
            is_told: false,
            has_more: false,
            utf8: Utf8::default(),
        }
    }

    /// Whether more can be told without further input.
    pub(super) fn is_pending(&self) -> bool {
        !self.pending.is_empty() || self.has_all || self.has_more
    }

    pub(super) fn held(&self) -> usize {
        size_of::<InflatingParts>() + self.pending.capacity()
    }
}
