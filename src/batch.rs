//! The completions that a driver has made and not yet delivered.

#![allow(unsafe_code)]
//! # Safety
//!
//! A vector's spare capacity is written once, right before its length says so.

use crate::completion::{Completion, Completions};
use crate::discard::discard;

/// The least bound on waiting completions: a small table of operations still serves many sources
/// whose writes end at once.
const LEAST: usize = 4096;

/// Completions in the order in which they were made.
///
/// Completions of accepted operations always have room. While more completions wait than the bound,
/// submissions are refused: an operation that ends at once never takes a place in the table of
/// operations. (The usual write checks the bound only when the memory would have to grow.)
#[derive(Debug)]
pub(crate) struct Batch(Vec<Completion>, usize);

impl Batch {
    /// Refuses submissions while as many completions wait as `operations` (but at least 4096).
    pub(crate) fn new(operations: u32) -> Batch {
        Batch(Vec::new(), LEAST.max(operations as usize))
    }

    /// The number of waiting completions from which submissions are refused.
    pub(crate) fn limit(&self) -> usize {
        self.1
    }

    /// Changes the limit; returns the old one.
    pub(crate) fn set_limit(&mut self, limit: usize) -> usize {
        std::mem::replace(&mut self.1, limit)
    }

    /// Whether submissions are refused now.
    #[inline(always)]
    pub(crate) fn is_full(&self) -> bool {
        self.0.len() >= self.1
    }

    /// Makes room for the completion of the next submission, unless too many completions wait.
    #[inline(always)]
    pub(crate) fn has_room(&mut self) -> bool {
        self.0.len() < self.0.capacity() || self.grow_to_limit()
    }

    #[cold]
    #[inline(never)]
    fn grow_to_limit(&mut self) -> bool {
        let len = self.0.len();
        let left = self.1.saturating_sub(len);
        // Exactly: the usual write does not check the bound while there is spare capacity.
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
    /// Completions hold values of the program, whose `Drop` may panic.
    fn drop(&mut self) {
        self.0.drain(..).for_each(discard);
    }
}
