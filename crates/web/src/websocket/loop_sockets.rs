//! What the connections of a loop share.

use windlass_serve::Id;
use windlass_websocket::{Decoder, Role};

#[cfg(feature = "deflate")]
use super::compression::LoopCompression;
use super::mask_keys::MaskKeys;
use super::unfinished::{Intake, UnfinishedInput};

/// What the connections of a loop share: memory that is used again, and what they ask for.
#[derive(Default)]
pub(crate) struct LoopSockets {
    #[allow(clippy::vec_box)] // they move between here and connections
    spare: Vec<Box<UnfinishedInput>>,
    pub(super) out: Vec<u8>,
    /// Input of the connection whose callback has just asked for something.
    pub(crate) intake: Option<(Id, Intake)>,
    pub(crate) keys: MaskKeys,
    #[cfg(feature = "deflate")]
    pub(super) compression: LoopCompression,
}

/// How many spare ones a loop keeps.
const SPARE: usize = 64;

impl LoopSockets {
    pub(super) fn begin(&mut self, role: Role, deflates: bool) -> Box<UnfinishedInput> {
        let mut unfinished = self.spare.pop().unwrap_or_default();
        let decoder = Decoder::new(role);
        unfinished.decoder = if deflates { decoder.deflate() } else { decoder };
        unfinished
    }

    /// A connection that goes on: what it has waited for is there.
    #[inline]
    pub(crate) fn next_waiting(&mut self) -> Option<Id> {
        #[cfg(feature = "deflate")]
        let waiting = self.compression.next_waiting();
        #[cfg(not(feature = "deflate"))]
        let waiting = None;
        waiting
    }

    /// Takes one whose connection is done with it, also in the middle of a message.
    pub(super) fn give_back(&mut self, mut unfinished: Box<UnfinishedInput>) {
        unfinished.forget();
        if self.spare.len() < SPARE && unfinished.held() <= 4096 {
            self.spare.push(unfinished);
        }
    }
}
