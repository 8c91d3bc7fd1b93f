//! The flights of handshakes that have come, and wait for their turn.
//!
//! A flight is what one end of a handshake sends before it waits for the other end. The answer of a
//! server to a hello is one call of the library of TLS that nothing divides: a third of a
//! millisecond with a key on P-256, some milliseconds with one of RSA-4096. So each flight waits
//! here, in its order, and a turn of the loop answers few of them.

use std::collections::VecDeque;

use crate::parts::trim::trim_queue;
use crate::words::id::Id;

#[derive(Default)]
pub(crate) struct Flights {
    /// Some of these connections may have ended.
    waiting: VecDeque<Id>,
    /// Whether a completion is on its way that brings the next turn.
    pub(crate) is_announced: bool,
}

impl Flights {
    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn push(&mut self, id: Id) {
        self.waiting.push_back(id);
    }

    /// Takes the one out that waits longest. A flood leaves little memory behind.
    pub(crate) fn pop(&mut self) -> Option<Id> {
        let first = self.waiting.pop_front();
        trim_queue(&mut self.waiting);
        first
    }
}
