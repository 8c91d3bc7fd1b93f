//! The flights of handshakes that have come, and wait for their turn.
//!
//! A flight is what one end of a handshake sends before it waits for the other end. The answer of a
//! server to a hello is one call of the library of TLS that nothing divides: a third of a
//! millisecond with a key on P-256, some milliseconds with one of RSA-4096. So each flight waits
//! here, in its order, and a turn of the loop answers few of them, or workers answer it.

use std::collections::VecDeque;

use crate::parts::trim::trim_queue;
use crate::words::id::Id;

/// How many flights of a loop the workers have at most. The others wait here, and not in front of
/// the program's own jobs.
const AT_WORK: usize = 4;

#[derive(Default)]
pub(crate) struct Flights {
    /// Those that the loop answers. Some of these connections may have ended.
    waiting: VecDeque<Id>,
    /// Those that workers answer.
    for_workers: VecDeque<Id>,
    /// How many of them workers have.
    at_work: usize,
    /// How many hellos wait for the program.
    asked: usize,
    /// Whether a completion is on its way that brings the next turn.
    pub(crate) is_announced: bool,
}

impl Flights {
    /// How many wait, also for the program.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len() + self.for_workers.len() + self.asked
    }

    /// Whether some wait that the loop answers.
    pub(crate) fn has_more(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub(crate) fn push(&mut self, id: Id, is_for_workers: bool) {
        if is_for_workers {
            self.for_workers.push_back(id);
        } else {
            self.waiting.push_back(id);
        }
    }

    /// Takes the one out that waits longest. A flood leaves little memory behind.
    pub(crate) fn pop(&mut self) -> Option<Id> {
        let first = self.waiting.pop_front();
        trim_queue(&mut self.waiting);
        first
    }

    /// Takes the one out that waits longest for a worker, if they have not enough already.
    pub(crate) fn pop_for_workers(&mut self) -> Option<Id> {
        if self.at_work >= AT_WORK {
            return None;
        }
        let first = self.for_workers.pop_front();
        trim_queue(&mut self.for_workers);
        first
    }

    /// The program is asked about a hello.
    pub(crate) fn question_begins(&mut self) {
        self.asked += 1;
    }

    /// The program has answered, or need not answer any more.
    pub(crate) fn question_ends(&mut self) {
        self.asked -= 1;
    }

    /// A worker has a flight.
    pub(crate) fn work_begins(&mut self) {
        self.at_work += 1;
    }

    /// A worker is done with a flight.
    pub(crate) fn work_ends(&mut self) {
        self.at_work -= 1;
    }
}
