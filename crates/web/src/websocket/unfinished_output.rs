//! A message that is sent in parts, and is not whole.

use std::collections::VecDeque;
use std::sync::Arc;

use windlass_serve::Reserved;
#[cfg(feature = "deflate")]
use windlass_websocket::deflate::StreamingDeflater;
use windlass_websocket::{Kind, Utf8};

use super::message::{Message, ROOM};
use crate::message::publication::Published;

/// A message of which a part was sent.
pub(super) struct UnfinishedOutput {
    pub(super) kind: Kind,
    pub(super) utf8: Utf8,
    /// What compresses it, if it is compressed.
    #[cfg(feature = "deflate")]
    pub(super) deflater: Option<StreamingDeflater>,
    /// What leaves behind it, in its order, each with its room.
    pub(super) waiting: VecDeque<(SentBehind, Reserved)>,
    /// The room that this has.
    pub(super) waiting_bytes: usize,
}

/// A whole message that waits.
pub(super) enum SentBehind {
    Message(Message),
    Published(Arc<Published>),
}

impl UnfinishedOutput {
    pub(super) fn new(kind: Kind) -> UnfinishedOutput {
        UnfinishedOutput {
            kind,
            utf8: Utf8::default(),
            #[cfg(feature = "deflate")]
            deflater: None,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
        }
    }

    /// The memory that it takes.
    pub(super) fn held(&self) -> usize {
        size_of::<UnfinishedOutput>() + self.waiting_bytes
    }
}

impl SentBehind {
    /// The room that it needs.
    pub(super) fn room(&self) -> usize {
        let len = match self {
            SentBehind::Message(message) => message.as_bytes().len(),
            SentBehind::Published(what) => what.message().1.len(),
        };
        len + ROOM
    }
}
