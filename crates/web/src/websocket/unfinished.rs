//! What has come, and is not whole.

use windlass_websocket::{Decoder, Role};

use super::incoming::Incoming;
#[cfg(feature = "deflate")]
use super::parts::InflatingParts;

/// A frame or a message that has begun.
pub(crate) struct UnfinishedInput {
    pub(super) decoder: Decoder,
    /// The beginning of a frame, or all that came before the end of the input.
    pub(super) kept: Vec<u8>,
    /// The message so far.
    pub(super) message: Vec<u8>,
    /// A compressed message that is told in parts.
    #[cfg(feature = "deflate")]
    pub(super) inflating: Option<Box<InflatingParts>>,
}

impl Default for UnfinishedInput {
    fn default() -> UnfinishedInput {
        let decoder = Decoder::new(Role::Server);
        UnfinishedInput {
            decoder,
            kept: Vec::new(),
            message: Vec::new(),
            #[cfg(feature = "deflate")]
            inflating: None,
        }
    }
}

impl UnfinishedInput {
    pub(super) fn is_nothing(&self) -> bool {
        #[cfg(feature = "deflate")]
        if self.inflating.is_some() {
            return false;
        }
        self.decoder.is_idle() && self.kept.is_empty()
    }

    /// Drops what has come: the next connection gets none of it.
    pub(super) fn forget(&mut self) {
        self.kept.clear();
        self.message.clear();
        #[cfg(feature = "deflate")]
        {
            self.inflating = None;
        }
    }

    /// Whether there is more of a message to tell without further input.
    pub(super) fn is_pending(&self) -> bool {
        #[cfg(feature = "deflate")]
        let is_pending = self.inflating.as_ref().is_some_and(|inflating| inflating.is_pending());
        #[cfg(not(feature = "deflate"))]
        let is_pending = false;
        is_pending
    }

    /// Adds to the message. Its memory is at most twice what has come, and at most what the frame
    /// says.
    pub(super) fn add(&mut self, part: &[u8]) {
        if self.message.capacity() - self.message.len() < part.len() {
            let left = usize::try_from(self.decoder.left()).unwrap_or(usize::MAX);
            let more = left.min((self.message.len() + part.len()).max(1024));
            self.message.reserve_exact(part.len() + more);
        }
        self.message.extend_from_slice(part);
    }

    /// The memory that it needs for what has begun.
    pub(super) fn needed(&self) -> u64 {
        let message = self.decoder.left().saturating_add(self.message.len() as u64);
        message.max(self.held() as u64)
    }

    /// The memory that it takes.
    pub(super) fn held(&self) -> usize {
        let held = size_of::<UnfinishedInput>() + self.kept.capacity() + self.message.capacity();
        #[cfg(feature = "deflate")]
        let held = held + self.inflating.as_ref().map_or(0, |inflating| inflating.held());
        held
    }
}

/// Input that is being taken.
pub(crate) struct Intake {
    pub(super) unfinished: Box<UnfinishedInput>,
    pub(super) input: Incoming,
    /// Whether a message has ended in it.
    pub(super) has_message: bool,
}
