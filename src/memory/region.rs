//! Memory that a kernel knows beforehand: one allocation, handed out in pieces for aligned buffers.
//!
//! A piece keeps the whole region alive and goes back into it when it is dropped, on whichever
//! thread. What is left is kept as extents, taken from the lowest that is large enough.
//!
//! Invariant: (G1) extents and pieces are disjoint, and together they are the region.

#![allow(unsafe_code)]
#![allow(dead_code)] // regions are made by the ring only, which not every system has
//! # Safety
//!
//! The region is one allocation, initialised when made, and freed with the last `Arc`. Its bytes
//! are reached through pieces only, each of which is alone with its own (G1).

use std::alloc::{self, Layout};
use std::collections::BTreeMap;
use std::fmt;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::memory::trace;

/// Pieces start at a multiple of this, and have a multiple of it as length: a page, which every
/// disk takes.
pub(crate) const BLOCK: usize = 4096;

/// Memory that is handed out in pieces.
pub(crate) struct Region {
    start: NonNull<u8>,
    bytes: usize,
    /// The free extents: the start and the length of each.
    free: Mutex<BTreeMap<usize, usize>>,
}

// SAFETY: the region itself only lends ranges of its memory, under a lock.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// A region of `bytes`, rounded up to whole blocks; `None` when there is no memory for it.
    pub(crate) fn new(bytes: usize) -> Option<Arc<Region>> {
        let bytes = bytes.max(1).checked_next_multiple_of(BLOCK)?;
        let layout = Layout::from_size_align(bytes, BLOCK).ok()?;
        // SAFETY: the layout is not empty.
        let start = NonNull::new(unsafe { alloc::alloc_zeroed(layout) })?;
        let free = Mutex::new(BTreeMap::from([(0, bytes)]));
        Some(Arc::new(Region { start, bytes, free }))
    }

    /// The start and the length of the region, for the kernel.
    pub(crate) fn range(&self) -> (*mut u8, usize) {
        (self.start.as_ptr(), self.bytes)
    }

    /// Whether memory lies in it.
    #[inline]
    pub(crate) fn contains(&self, start: *const u8, len: usize) -> bool {
        let offset = start.addr().wrapping_sub(self.start.addr().get());
        offset < self.bytes && len <= self.bytes - offset
    }

    fn free(&self) -> MutexGuard<'_, BTreeMap<usize, usize>> {
        // Nothing panics while the lock is held.
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A piece of at least `len` bytes, all zero; `None` when no extent is long enough.
    pub(crate) fn take(self: &Arc<Self>, len: usize) -> Option<Box<Piece>> {
        let capacity = len.max(1).checked_next_multiple_of(BLOCK)?;
        let offset = {
            let mut free = self.free();
            let (&offset, &long) = free.iter().find(|&(_, &long)| long >= capacity)?;
            free.remove(&offset);
            if long > capacity {
                free.insert(offset + capacity, long - capacity);
            }
            offset
        };
        let piece = Box::new(Piece { region: Arc::clone(self), offset, capacity });
        // SAFETY: G1: the bytes of the piece from right above are its alone.
        unsafe { piece.start().write_bytes(0, capacity) };
        trace::made(piece.start().as_ptr(), trace::Kind::Registered, capacity);
        Some(piece)
    }

    /// Takes an extent back, and joins it with its neighbours.
    fn give_back(&self, mut offset: usize, mut long: usize) {
        let mut free = self.free();
        if let Some(behind) = free.remove(&(offset + long)) {
            long += behind;
        }
        if let Some((&before, &len)) = free.range(..offset).next_back()
            && before + len == offset
        {
            (offset, long) = (before, len + long);
        }
        free.insert(offset, long);
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        let layout = Layout::from_size_align(self.bytes, BLOCK).expect("as when it was made");
        // SAFETY: allocated with this layout, and every piece is gone.
        unsafe { alloc::dealloc(self.start.as_ptr(), layout) };
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Region({} bytes)", self.bytes)
    }
}

/// A part of a region that is in use. Its address leaves three low bits free.
#[repr(align(8))]
pub(crate) struct Piece {
    region: Arc<Region>,
    offset: usize,
    capacity: usize,
}

impl Piece {
    /// The start of the piece's bytes.
    pub(crate) fn start(&self) -> NonNull<u8> {
        // SAFETY: G1: inside the region's allocation.
        unsafe { self.region.start.add(self.offset) }
    }

    /// How many there are.
    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        trace::gone(self.start().as_ptr());
        self.region.give_back(self.offset, self.capacity);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Pieces do not overlap, are zero when they are handed out, and come together again.
        #[test]
        fn pieces_come_and_go(
            // Miri looks at every byte.
            steps in prop::collection::vec(
                (any::<bool>(), 0usize..if cfg!(miri) { 1200 } else { 20_000 }),
                0..if cfg!(miri) { 12 } else { 60 },
            ),
        ) {
            let region = Region::new(16 * BLOCK).unwrap();
            let mut held: Vec<Box<Piece>> = Vec::new();
            for (take, n) in steps {
                if take {
                    let longest = region.free().values().copied().max().unwrap_or(0);
                    let piece = region.take(n);
                    let capacity = n.max(1).next_multiple_of(BLOCK);
                    prop_assert_eq!(piece.is_some(), capacity <= longest);
                    let Some(piece) = piece else { continue };
                    prop_assert_eq!(piece.capacity(), capacity);
                    prop_assert!(region.contains(piece.start().as_ptr(), capacity));
                    let at = piece.start().as_ptr();
                    // SAFETY: G1, and the region was initialised when made.
                    let bytes = unsafe { std::slice::from_raw_parts(at, capacity) };
                    prop_assert!(bytes.iter().all(|&byte| byte == 0));
                    // SAFETY: G1.
                    unsafe { piece.start().write_bytes(0xff, capacity) };
                    held.push(piece);
                } else if !held.is_empty() {
                    held.swap_remove(n % held.len());
                }
                let mut taken: Vec<_> = held.iter().map(|p| (p.offset, p.capacity)).collect();
                taken.extend(region.free().iter().map(|(&offset, &long)| (offset, long)));
                taken.sort_unstable();
                let mut at = 0;
                for (offset, long) in taken {
                    prop_assert_eq!(offset, at, "G1");
                    at += long;
                }
                prop_assert_eq!(at, 16 * BLOCK, "G1");
            }
            held.clear();
            prop_assert_eq!(region.free().clone(), BTreeMap::from([(0, 16 * BLOCK)]));
        }
    }

    #[test]
    fn what_lies_in_a_region() {
        let region = Region::new(1).unwrap();
        let (start, bytes) = region.range();
        assert_eq!(bytes, BLOCK);
        assert!(region.contains(start, BLOCK) && region.contains(start.wrapping_add(4095), 1));
        for (offset, len) in [(0, 4097), (4096, 0), (4095, 2), (-1, 1)] {
            assert!(!region.contains(start.wrapping_offset(offset), len), "{offset} {len}");
        }
    }

    /// A piece that is kept keeps the region.
    #[test]
    fn a_piece_outlives_its_region() {
        let region = Region::new(BLOCK).unwrap();
        let piece = region.take(9).unwrap();
        assert!(region.take(1).is_none());
        drop(region);
        // SAFETY: G1.
        unsafe { piece.start().write_bytes(1, BLOCK) };
        std::thread::spawn(move || drop(piece)).join().unwrap();
    }
}
