//! The completions that a driver has made and not yet delivered.

#![allow(unsafe_code)]
//! # Safety
//!
//! A vector's spare capacity is written once, right before its length says so.

use crate::completion::{Completion, Completions};
use crate::memory::discard::discard;
use crate::words::source::Ticket;

/// The least bound on waiting completions: a small table of operations still serves many sources
/// whose writes end at once.
const LEAST: usize = 4096;

/// Completions in the order in which they were made.
///
/// Completions of accepted operations always have room. While more completions wait than the bound,
/// submissions are refused: an operation that ends at once never takes a slot in the table of
/// operations, so that table does not bound them.
///
/// Invariant: (D1) `room` is the smaller of capacity and bound, so that one comparison checks both.
#[derive(Debug)]
pub(crate) struct Batch {
    done: Vec<Completion>,
    limit: usize,
    room: usize,
}

impl Batch {
    /// Refuses submissions while as many completions wait as `max_operations` (but at least 4096).
    pub(crate) fn new(operations: u32) -> Batch {
        Batch { done: Vec::new(), limit: LEAST.max(operations as usize), room: 0 }
    }

    /// The number of waiting completions from which submissions are refused.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Restores D1 after the capacity or the bound has changed.
    #[inline(always)]
    fn note_room(&mut self) {
        self.room = self.done.capacity().min(self.limit);
    }

    /// Whether submissions are refused now.
    #[inline(always)]
    pub(crate) fn is_full(&self) -> bool {
        self.done.len() >= self.limit
    }

    /// Whether there is room for the completion of the next submission without more memory.
    #[inline(always)]
    pub(crate) fn has_room(&self) -> bool {
        self.done.len() < self.room
    }

    /// Makes room for the completion of the next submission, unless too many completions wait.
    #[cold]
    #[inline(never)]
    pub(crate) fn make_room_within_limit(&mut self) -> bool {
        let len = self.done.len();
        let left = self.limit.saturating_sub(len);
        if left == 0 {
            return false;
        }
        // Exactly: the batch would never use memory beyond the bound.
        self.done.reserve_exact(left.min(len.max(64)));
        self.note_room();
        true
    }

    /// Adds a completion.
    #[inline]
    pub(crate) fn push(&mut self, completion: Completion) {
        self.make_room();
        // SAFETY: room was made right above.
        unsafe { self.put(completion) };
    }

    /// Makes room for one more completion.
    #[inline(always)]
    pub(crate) fn make_room(&mut self) {
        if self.done.len() == self.done.capacity() {
            self.grow(64);
        }
    }

    /// Makes room for `count` more completions.
    #[inline]
    pub(crate) fn reserve(&mut self, count: usize) {
        if self.done.capacity() - self.done.len() < count {
            self.grow(count);
        }
    }

    /// Adds a completion. Nothing can unwind until it is in the batch, so the compiler builds it
    /// there.
    ///
    /// # Safety
    /// Room was [made](Batch::make_room) and not used up since.
    #[inline(always)]
    pub(crate) unsafe fn put(&mut self, completion: Completion) {
        // SAFETY: the caller's promise.
        unsafe { self.stage(completion) };
        // SAFETY: staged right above.
        unsafe { self.put_staged() };
    }

    /// Builds a completion behind the last one without adding it:
    /// [`put_staged`](Batch::put_staged) adds it, and [`take_staged`](Batch::take_staged) takes it
    /// back.
    ///
    /// # Safety
    /// As for [`put`](Batch::put).
    #[inline(always)]
    pub(crate) unsafe fn stage(&mut self, completion: Completion) -> &Completion {
        let len = self.done.len();
        debug_assert!(len < self.done.capacity());
        let end = self.done.as_mut_ptr().wrapping_add(len);
        // SAFETY: there is room for one more behind the first `len`, says the caller.
        unsafe { end.write(completion) };
        // SAFETY: written right above; the batch is borrowed for as long as the answer.
        unsafe { &*end }
    }

    /// Adds the staged completion.
    ///
    /// # Safety
    /// A completion was [staged](Batch::stage), and no method of the batch was called since.
    #[inline(always)]
    pub(crate) unsafe fn put_staged(&mut self) {
        let len = self.done.len();
        // SAFETY: the staged completion is behind the first `len`.
        unsafe { self.done.set_len(len + 1) };
    }

    /// Takes the staged completion back.
    ///
    /// # Safety
    /// As for [`put_staged`](Batch::put_staged).
    #[inline(always)]
    pub(crate) unsafe fn take_staged(&mut self) -> Completion {
        let end = self.done.as_ptr().wrapping_add(self.done.len());
        // SAFETY: the completion was staged, and is read once.
        unsafe { end.read() }
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self, count: usize) {
        self.done.reserve(count);
        self.note_room();
    }

    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.done.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.done.len()
    }

    /// Takes out the final completion of an operation, if it is at index `from` or later.
    pub(crate) fn take_final(&mut self, ticket: Ticket, from: usize) -> Option<Completion> {
        let is_it = |c: &Completion| !c.has_more() && c.ticket() == ticket;
        let at = self.done[from..].iter().position(is_it)?;
        Some(self.done.remove(from + at))
    }

    /// Puts completions in front of all others.
    pub(crate) fn put_back(&mut self, first: Vec<Completion>) {
        self.done.splice(..0, first);
        self.note_room();
    }

    /// Drops all completions. They hold values of the program, whose `Drop` may panic.
    pub(crate) fn discard_all(&mut self) {
        self.done.drain(..).for_each(discard);
    }

    /// Moves all completions behind those in `out`, or swaps the vectors if `out` is empty.
    #[inline]
    pub(crate) fn deliver(&mut self, out: &mut Completions) -> usize {
        let count = out.take_from(&mut self.done);
        self.note_room();
        count
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        self.discard_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::completion::Done;
    use crate::op::OpCode;
    use crate::words::source::Source;
    use std::num::NonZeroU32;

    fn completion() -> Completion {
        let ticket = Ticket::from_parts(0, NonZeroU32::MIN);
        Completion::new(OpCode::Nop, Source::NONE, ticket, 0, Ok(Done::Nop))
    }

    /// Submits like the usual write until a refusal; returns the number of waiting completions.
    fn fill(batch: &mut Batch) -> usize {
        while batch.len() < 64 * LEAST && (batch.has_room() || batch.make_room_within_limit()) {
            batch.push(completion());
        }
        batch.len()
    }

    /// Spare capacity, from operations with a slot or from a delivery, does not evade the bound.
    #[test]
    fn memory_at_hand_is_not_room() {
        let mut batch = Batch::new(8);
        assert_eq!(fill(&mut batch), LEAST);
        batch.push(completion());
        assert_eq!(fill(&mut batch), LEAST + 1, "one beyond has made room for many");
        let mut out = Completions::new();
        batch.deliver(&mut out);
        (0..2 * LEAST).for_each(|_| batch.push(completion()));
        batch.deliver(&mut out);
        out.clear();
        batch.deliver(&mut out);
        assert_eq!(fill(&mut batch), LEAST, "what was delivered has left room for many");
    }
}
