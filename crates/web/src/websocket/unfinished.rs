//! What has come, and is not whole.

use windlass_websocket::{Decoder, Role};

use super::incoming::Incoming;

/// A frame or a message that has begun.
pub(crate) struct UnfinishedInput {
    pub(super) decoder: Decoder,
    /// The beginning of a frame, or all that came before the end of the input.
    pub(super) kept: Vec<u8>,
    /// The message so far.
    pub(super) message: Vec<u8>,
}

impl Default for UnfinishedInput {
    fn default() -> UnfinishedInput {
        let decoder = Decoder::new(Role::Server);
        UnfinishedInput { decoder, kept: Vec::new(), message: Vec::new() }
    }
}

impl UnfinishedInput {
    pub(super) fn is_nothing(&self) -> bool {
        self.decoder.is_idle() && self.kept.is_empty()
    }

    /// Drops what has come: the next connection gets none of it.
    pub(super) fn forget(&mut self) {
        self.kept.clear();
        self.message.clear();
    }

    /// The memory that it takes.
    pub(super) fn held(&self) -> usize {
        size_of::<UnfinishedInput>() + self.kept.capacity() + self.message.capacity()
    }
}

/// Input that is being taken.
pub(crate) struct Intake {
    pub(super) unfinished: Box<UnfinishedInput>,
    pub(super) input: Incoming,
    /// Whether a message has ended in it.
    pub(super) has_message: bool,
}
