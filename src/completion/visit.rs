//! Visits of a batch: they lend the completions without moving them.

#![allow(unsafe_code)]
//! # Safety
//!
//! (V1) A visit empties the vector when it begins, and keeps it borrowed. The completions from
//! `first` to `end` are the visit's: they stand in the vector's memory until the visit drops those
//! before `next`, and gives the others back to the vector.

use std::fmt;
use std::ptr;

use super::{Completion, Completions, Done};

impl Completions {
    /// Lends the completions in order, one at a time, without moving them. The end of the visit
    /// drops those that it has lent. Those that the loop did not reach stay in the batch, in front
    /// of what the next wait adds: an early `return` or a `?` loses none. The wait itself does not
    /// look at them, and may block: visit the rest first. ([`drain`] drops them.)
    ///
    /// `drain` moves each completion, which is a cache line, out of the batch. In a visit the
    /// program takes only what it needs, with [`take_read`](Completion::take_read),
    /// [`take_buf`](Completion::take_buf) or [`take_handle`](Completion::take_handle).
    ///
    /// ```
    /// use std::io::Write;
    /// use windlass::{Completions, Op, Watcher};
    /// let mut watcher = Watcher::new()?;
    /// let (ours, mut theirs) = std::os::unix::net::UnixStream::pair()?;
    /// let source = watcher.attach(ours)?;
    /// watcher.submit(Op::read(source).multishot())?;
    /// theirs.write_all(b"hello")?;
    /// let mut done = Completions::new();
    /// watcher.wait(&mut done)?;
    /// let mut visit = done.visit();
    /// while let Some(c) = visit.next() {
    ///     if let Some(data) = c.take_read() {
    ///         assert_eq!(&*data, b"hello");
    ///         watcher.submit(Op::write(c.source, data).quiet())?;
    ///     }
    /// }
    /// drop(visit);
    /// assert!(done.is_empty());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// [`drain`]: Completions::drain
    #[inline]
    pub fn visit(&mut self) -> Visit<'_> {
        let (first, len) = (self.items.as_mut_ptr(), self.items.len());
        // SAFETY: 0 is at most the capacity. From here on the completions are the visit's.
        unsafe { self.items.set_len(0) };
        let end = first.wrapping_add(len);
        Visit { first, next: first, end, batch: self }
    }
}

/// Lends the completions of a batch one at a time. Its `Drop` drops those that it has lent, and
/// leaves the rest in the batch: see [`Completions::visit`].
pub struct Visit<'a> {
    first: *mut Completion,
    /// The completion to lend next.
    next: *mut Completion,
    end: *mut Completion,
    batch: &'a mut Completions,
}

impl Visit<'_> {
    /// Lends the next completion; `None` after the last one. A `Visit` is not an [`Iterator`],
    /// because each loan ends before the next one begins.
    #[inline]
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Option<&mut Completion> {
        if self.next == self.end {
            return None;
        }
        let at = self.next;
        self.next = at.wrapping_add(1);
        // SAFETY: V1, and `self` is borrowed for as long as the answer.
        Some(unsafe { &mut *at })
    }
}

impl Drop for Visit<'_> {
    #[inline]
    fn drop(&mut self) {
        // Also if the drop of a completion panics.
        let _rest = (self.next != self.end).then(|| Unlent {
            batch: &mut *self.batch,
            first: self.first,
            next: self.next,
            end: self.end,
        });
        let (mut at, end) = (self.first, self.next);
        while at != end {
            // SAFETY: V1, and each is dropped once: here or right below.
            if !unsafe { drop_usual(at) } {
                // SAFETY: as above.
                return unsafe { drop_all(at, end) };
            }
            at = at.wrapping_add(1);
        }
    }
}

/// Gives the completions from `next` to `end` back to their vector, when those before them are
/// dropped.
struct Unlent<'a> {
    batch: &'a mut Completions,
    first: *mut Completion,
    next: *mut Completion,
    end: *mut Completion,
}

impl Drop for Unlent<'_> {
    #[cold]
    fn drop(&mut self) {
        let len = (self.end.addr() - self.next.addr()) / size_of::<Completion>();
        // SAFETY: V1. Nobody uses those before `next` any more, and the vector has room for all.
        unsafe { ptr::copy(self.next, self.first, len) };
        // SAFETY: so many stand at its begin now.
        unsafe { self.batch.items.set_len(len) };
    }
}

/// Drops a completion that holds a lease or no buffer; false if it holds something else.
///
/// # Safety
/// The completion was not dropped before. After `true` it is neither used nor dropped again.
#[inline(always)]
unsafe fn drop_usual(at: *mut Completion) -> bool {
    // SAFETY: the completion was not dropped before.
    match unsafe { &mut (*at).result } {
        Ok(Done::Read(buf) | Done::Appended { buf, .. } | Done::Written { buf, .. }) => {
            // SAFETY: the caller's promise.
            unsafe { buf.drop_if_plain() }
        }
        Ok(Done::Nop) => true,
        _ => false,
    }
}

/// Drops all completions, also those behind one whose `Drop` panics.
///
/// # Safety
/// None of them was dropped before, and none is used or dropped again.
#[inline(never)]
unsafe fn drop_all(at: *mut Completion, end: *mut Completion) {
    let len = (end.addr() - at.addr()) / size_of::<Completion>();
    // SAFETY: the caller's promise.
    unsafe { ptr::drop_in_place(ptr::slice_from_raw_parts_mut(at, len)) };
}

impl fmt::Debug for Visit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Visit").finish_non_exhaustive()
    }
}
