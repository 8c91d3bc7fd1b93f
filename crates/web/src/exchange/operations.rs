//! Operations of the loop that something waits for.
//!
//! # Why
//! The engine below gives a completion with the token that its operation had. The token is the
//! place of what waits for it: a number below 2^32. (Those of calls to other servers are above.) An
//! operation ends once, and what waits is taken out then, so that no token means two things at a
//! time.

use windlass::Op;
use windlass_serve::{Engine, Id};

use super::{Machine, Slot};

/// What waits for an operation.
pub(super) enum WaitsForOp {
    /// A file that is being opened, by its number.
    Load(u32),
    /// The open files: some may have to be closed.
    Sweep,
    /// A connection that sends a file block by block.
    Block(Id),
    /// A file that a body is saved to, by its number.
    Save(u32),
}

/// The operations of a loop that something waits for.
#[derive(Default)]
pub(super) struct LoopOps {
    waiting: Vec<Option<WaitsForOp>>,
    vacant: Vec<u32>,
}

impl LoopOps {
    /// The token of an operation that this waits for.
    fn add(&mut self, waiting: WaitsForOp) -> u64 {
        let at = self.vacant.pop().unwrap_or_else(|| {
            self.waiting.push(None);
            self.waiting.len() as u32 - 1
        });
        self.waiting[at as usize] = Some(waiting);
        u64::from(at)
    }

    /// What waits for the operation with this token, which has ended.
    pub(super) fn take(&mut self, token: u64) -> Option<WaitsForOp> {
        let at = usize::try_from(token).ok()?;
        let waiting = self.waiting.get_mut(at)?.take()?;
        self.vacant.push(at as u32);
        Some(waiting)
    }
}

impl<K: 'static> Machine<K> {
    /// Submits an operation. `waiting` gets its end.
    pub(super) fn submit(&mut self, engine: &mut Engine<Slot<K>>, op: Op, waiting: WaitsForOp) {
        let token = self.operations.add(waiting);
        engine.submit(op.token(token));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_token_is_taken_once() {
        let mut operations = LoopOps::default();
        let tokens: Vec<u64> = (0..3).map(|n| operations.add(WaitsForOp::Load(n))).collect();
        assert!(matches!(operations.take(tokens[1]), Some(WaitsForOp::Load(1))));
        assert!(operations.take(tokens[1]).is_none() && operations.take(9).is_none());
        assert_eq!(operations.add(WaitsForOp::Sweep), tokens[1], "places are used again");
        assert!(matches!(operations.take(tokens[1]), Some(WaitsForOp::Sweep)));
    }
}
