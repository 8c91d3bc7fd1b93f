//! The table and the heap of deadlines.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::time::Instant;

use windlass::Ticket;
use windlass::driver::Deadline;

use crate::parts::trim::{excess, trim_map};
use crate::words::id::Id;

/// The two deadlines of a connection. Of two at the same time, the first one is the cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Read,
    Write,
}

/// A deadline, and its place in the heap.
#[derive(Clone, Copy, Default)]
pub(crate) struct Slot {
    pub(crate) deadline: Option<Deadline>,
    /// The time that stands for it in the heap.
    pub(crate) queued: Option<Instant>,
}

#[derive(Default)]
pub(crate) struct Times(pub(crate) [Slot; 2]);

/// The deadlines of an engine.
#[derive(Default)]
pub(crate) struct Deadlines {
    pub(crate) of: HashMap<Id, Times>,
    pub(crate) heap: BinaryHeap<Reverse<(Instant, Id, Kind)>>,
    /// The timer, and its time.
    pub(crate) timer: Option<(Ticket, Instant)>,
    /// Whether a request to look at the table is queued.
    pub(crate) asked: bool,
    /// Deadlines that `flush` puts into the heap.
    pub(crate) fresh: Vec<(Id, Kind)>,
}

impl Deadlines {
    /// Forgets a connection that has ended.
    pub(crate) fn forget(&mut self, id: Id) {
        if !self.of.is_empty() {
            self.of.remove(&id);
        }
    }

    /// The timer, which is not needed any more.
    pub(crate) fn take_timer(&mut self) -> Option<Ticket> {
        self.timer.take().map(|(timer, _)| timer)
    }

    pub(crate) fn slot(&mut self, id: Id, kind: Kind) -> Option<&mut Slot> {
        self.of.get_mut(&id).map(|times| &mut times.0[kind as usize])
    }

    /// Takes a deadline away.
    pub(crate) fn clear(&mut self, id: Id, kind: Kind) {
        if let Some(slot) = self.slot(id, kind) {
            slot.deadline = None;
            if self.of[&id].0.iter().all(|slot| slot.deadline.is_none()) {
                self.of.remove(&id);
            }
        }
    }

    /// Puts a time into the heap, unless one stands there that is at least as early.
    pub(crate) fn queue(&mut self, id: Id, kind: Kind, at: Instant) {
        let Some(slot) = self.slot(id, kind) else { return };
        slot.deadline = Some(Deadline::At(at));
        if slot.queued.is_some_and(|queued| queued <= at) {
            return;
        }
        slot.queued = Some(at);
        self.heap.push(Reverse((at, id, kind)));
        self.clean();
    }

    /// Empties the heap of those that stand for deadlines that are gone or have moved, if most do.
    fn clean(&mut self) {
        if self.heap.len() > 4 * self.of.len() + 64 {
            let of = &self.of;
            self.heap.retain(|Reverse((at, id, kind))| {
                of.get(id).is_some_and(|times| times.0[*kind as usize].queued == Some(*at))
            });
        }
    }

    /// Gives memory back that a burst has left.
    pub(crate) fn trim(&mut self) {
        self.clean();
        trim_map(&mut self.of);
        if let Some(capacity) = excess(self.heap.capacity(), self.heap.len()) {
            self.heap.shrink_to(capacity);
        }
    }

    /// The next deadline that has passed. `None` with an empty place in the heap in between.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<Option<(Id, Kind)>> {
        let Reverse((at, id, kind)) = *self.heap.peek()?;
        if at > now {
            return None;
        }
        self.heap.pop();
        let Some(slot) = self.slot(id, kind) else { return Some(None) };
        if slot.queued != Some(at) {
            return Some(None);
        }
        slot.queued = None;
        match slot.deadline {
            Some(Deadline::At(at)) if at > now => {
                self.queue(id, kind, at);
                Some(None)
            }
            Some(Deadline::At(_)) => Some(Some((id, kind))),
            // It was taken away.
            _ => Some(None),
        }
    }
}
