//! Lists of buffers. Short lists cost no allocation once a thread has dropped as many before.
//!
//! A list is a boxed vector of buffers. When a list is dropped, its thread keeps the empty vector
//! and its box for the next list. The program may drop a list where it has no watcher, so the
//! thread keeps the vectors, not the watcher. With one loop per thread the effect is the same.

#![allow(unsafe_code)]
//! # Safety
//!
//! The tag `LIST` says that the owner is the pointer of a boxed vector (B1 in `buf.rs`).

use std::cell::RefCell;
use std::ptr;

use super::{Buf, LIST, Target, tagged};
use crate::memory::discard::drop_each;

type ListParts = Vec<Buf>;

/// A thread keeps vectors with room for at most so many parts: longer ones cost much memory.
const MOST_PARTS: usize = 8;
/// A thread keeps at most so many vectors: together at most about 250 KiB.
const MOST_SPARE: usize = 1024;

thread_local! {
    /// Empty vectors of lists that were dropped.
    #[allow(clippy::vec_box, reason = "a list owns its boxed vector, which goes back as it is")]
    static SPARE: RefCell<Vec<Box<ListParts>>> = const { RefCell::new(Vec::new()) };
}

/// An empty vector, with room for some parts if this thread has kept one.
fn empty() -> Box<ListParts> {
    // The thread may be ending.
    let spare = SPARE.try_with(|spare| spare.borrow_mut().pop());
    spare.ok().flatten().unwrap_or_default()
}

/// Keeps a vector that was emptied.
fn keep(parts: Box<ListParts>) {
    debug_assert!(parts.is_empty());
    if !(1..=MOST_PARTS).contains(&parts.capacity()) {
        return;
    }
    // A thread that ends keeps nothing: the closure drops it.
    let _ = SPARE.try_with(|spare| {
        let mut spare = spare.borrow_mut();
        if spare.len() < MOST_SPARE {
            spare.push(parts);
        }
    });
}

impl Buf {
    /// Makes a list of buffers: a write sends them one after the other, and a read fills them one
    /// after the other. A list inside the list is flattened: its parts become parts of this list.
    ///
    /// A list of at most eight parts takes no allocation if this thread has dropped such a list
    /// before: the thread keeps up to 1024 of them for the next ones.
    ///
    /// ```
    /// use windlass::Buf;
    /// let list = Buf::list(["status: ", "fine"]);
    /// assert_eq!((list.len(), list.parts().len()), (12, 2));
    /// assert_eq!(list.into_vec(), b"status: fine");
    /// ```
    pub fn list<T: Into<Buf>>(parts: impl IntoIterator<Item = T>) -> Buf {
        let mut list = empty();
        for part in parts {
            let part: Buf = part.into();
            // Code that walks a list expects parts that are no lists themselves.
            if part.is_list() { list.extend(part.into_parts()) } else { list.push(part) }
        }
        Buf { start: ptr::dangling(), len: 0, owner: tagged(Box::into_raw(list), LIST) }
    }

    /// The parts of a `LIST`.
    fn as_list(&self) -> Option<&ListParts> {
        // SAFETY: B1: the pointer comes from `Box::into_raw` and is freed when `self` drops.
        self.is_list().then(|| unsafe { &*self.untagged::<ListParts>() })
    }

    fn as_list_mut(&mut self) -> Option<&mut ListParts> {
        // SAFETY: as above, and `self` is borrowed exclusively.
        self.is_list().then(|| unsafe { &mut *self.untagged::<ListParts>() })
    }

    /// The parts of a list, to change.
    pub(super) fn parts_mut(&mut self) -> &mut [Buf] {
        self.as_list_mut().map_or(&mut [], Vec::as_mut_slice)
    }

    /// The parts of a list. A buffer that is no list is its own single part.
    pub fn parts(&self) -> &[Buf] {
        match self.as_list() {
            Some(parts) => parts,
            None => std::slice::from_ref(self),
        }
    }

    /// The parts of a list, one after the other. A buffer that is no list is its own single part.
    ///
    /// ```
    /// use windlass::Buf;
    /// let list = Buf::list([vec![1], vec![2, 3]]);
    /// let vecs: Vec<Vec<u8>> = list.into_parts().map(Buf::into_vec).collect();
    /// assert_eq!(vecs, [vec![1], vec![2, 3]]);
    /// ```
    pub fn into_parts(self) -> impl ExactSizeIterator<Item = Buf> {
        let mut list = if self.is_list() { self } else { Buf::list([self]) };
        list.parts_mut().reverse();
        IntoParts { list }
    }

    /// Gives `each` the targets of a list, from byte `from` of its capacity on, at most `bytes`
    /// bytes and `most` targets.
    pub(crate) fn each_target<'a>(
        &'a mut self,
        mut from: usize,
        mut bytes: usize,
        most: usize,
        mut each: impl FnMut(Target<'a>),
    ) {
        let mut count = 0;
        for part in self.parts_mut() {
            let room = part.capacity();
            if from >= room {
                from -= room;
                continue;
            }
            if count == most || bytes == 0 {
                break;
            }
            let target = part.target(from, bytes);
            bytes -= target.len();
            each(target);
            count += 1;
            from = 0;
        }
    }

    /// As `each_target`, into `targets`, as many as it has places. Returns their number.
    pub(crate) fn targets<'a>(
        &'a mut self,
        from: usize,
        bytes: usize,
        targets: &mut [Target<'a>],
    ) -> usize {
        let mut count = 0;
        self.each_target(from, bytes, targets.len(), |target| {
            targets[count] = target;
            count += 1;
        });
        count
    }

    /// Drops the parts of a `LIST`, even if a `Drop` of theirs panics, and keeps the vector.
    ///
    /// # Safety
    /// The buffer is a list and is not used again.
    pub(super) unsafe fn release_list(&mut self) {
        // SAFETY: B1, and the caller's promise.
        let mut parts = unsafe { Box::from_raw(self.untagged::<ListParts>()) };
        drop_each(parts.drain(..));
        keep(parts);
    }
}

/// What [`Buf::into_parts`] returns. Its list has the parts that are left, the next one last.
struct IntoParts {
    list: Buf,
}

impl IntoParts {
    fn parts(&mut self) -> &mut ListParts {
        self.list.as_list_mut().expect("it was made of a list")
    }
}

impl Iterator for IntoParts {
    type Item = Buf;

    fn next(&mut self) -> Option<Buf> {
        self.parts().pop()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let len = self.list.parts().len();
        (len, Some(len))
    }
}

impl ExactSizeIterator for IntoParts {}
