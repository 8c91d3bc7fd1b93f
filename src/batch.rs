//! The completions that a driver has made and not yet delivered.

#![allow(unsafe_code)]
//! # Safety
//!
//! A vector's spare capacity is written once, right before its length says so.

use crate::completion::{Completion, Completions};
use crate::discard::discard;

/// However few operations there may be, so many completions may wait: a table of few operations serves
/// many sources whose writes end at once.
const LEAST: usize = 4096;

/// Completions in the order in which they were made.
///
/// Those of accepted operations always have room. What is submitted while more than a bound of them wait
/// is refused, because it may end at once and never take a place in the table of operations. (The usual
/// write looks at the bound only where memory would have to grow.)
#[derive(Debug)]
pub(crate) struct Batch(Vec<Completion>, usize);

impl Batch {
    /// Submissions are refused when as many wait as there may be operations (a few thousand at least).
    pub(crate) fn new(operations: u32) -> Batch {
        Batch(Vec::new(), LEAST.max(operations as usize))
    }

    /// How many may wait before submissions are refused.
    pub(crate) fn limit(&self) -> usize {
        self.1
    }

    /// Changes that; what it was.
    pub(crate) fn set_limit(&mut self, limit: usize) -> usize {
        std::mem::replace(&mut self.1, limit)
    }

    /// Whether a submission is to be refused.
    #[inline(always)]
    pub(crate) fn is_full(&self) -> bool {
        self.0.len() >= self.1
    }

    /// Makes room for the completion of what is about to be submitted, unless too many wait.
    #[inline(always)]
    pub(crate) fn has_room(&mut self) -> bool {
        self.0.len() < self.0.capacity() || self.grow_to_limit()
    }

    #[cold]
    #[inline(never)]
    fn grow_to_limit(&mut self) -> bool {
        let len = self.0.len();
        let left = self.1.saturating_sub(len);
        // Exactly, so that there is no room beyond the bound that nobody looks at.
        self.0.reserve_exact(left.min(len.max(64)));
        left > 0
    }

    /// Adds one.
    #[inline]
    pub(crate) fn push(&mut self, completion: Completion) {
        self.make_room();
        // SAFETY: right above.
        unsafe { self.put(completion) };
    }

    /// Makes room for one more.
    #[inline(always)]
    pub(crate) fn make_room(&mut self) {
        if self.0.len() == self.0.capacity() {
            self.grow();
        }
    }

    /// Makes room for `count` more.
    #[inline]
    pub(crate) fn reserve(&mut self, count: usize) {
        self.0.reserve(count);
    }

    /// Adds one. Nothing can unwind while the completion is in hand, so that the compiler builds it
    /// where it stays.
    ///
    /// # Safety
    /// Room was [made](Batch::make_room) and not used up since.
    #[inline(always)]
    pub(crate) unsafe fn put(&mut self, completion: Completion) {
        let len = self.0.len();
        debug_assert!(len < self.0.capacity());
        let end = self.0.as_mut_ptr().wrapping_add(len);
        // SAFETY: there is room for one more behind the first `len`, says the caller.
        unsafe { end.write(completion) };
        // SAFETY: it was written right above.
        unsafe { self.0.set_len(len + 1) };
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self) {
        self.0.reserve(64);
    }

    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn last_mut(&mut self) -> Option<&mut Completion> {
        self.0.last_mut()
    }

    /// Moves all of it behind what is in `out`: by a swap where nothing is.
    #[inline]
    pub(crate) fn deliver(&mut self, out: &mut Completions) -> usize {
        out.take_from(&mut self.0)
    }
}

impl Drop for Batch {
    /// What is in them is the program's.
    fn drop(&mut self) {
        self.0.drain(..).for_each(discard);
    }
}
