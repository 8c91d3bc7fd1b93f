//! A buffer whose memory starts at a multiple of a block size, for I/O that bypasses the page
//! cache.

#![allow(unsafe_code)]
//! # Safety
//!
//! (A1) An [`AlignedBuf`] is one allocation: `capacity` bytes, a multiple of `align`, at a multiple
//! of `align`, which is a power of two of at least [`LEAST`]. The allocation is zeroed when made
//! and only ever written after that, so that each of its bytes is initialised and any length up to
//! the capacity can be set. (A2) Or it is a piece of a region, of which the same is true.

use std::alloc::{self, Layout};
use std::fmt;
use std::io;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use crate::memory::region::{BLOCK, Piece};
use crate::memory::trace;

/// The least alignment: a sector, and as many low bits of the capacity as [`Packed`] needs.
const LEAST: usize = 512;
/// Where [`Packed`] has the alignment's logarithm: above the bits of the tag of a `Buf`.
const SHIFT: u32 = 3;

/// Capacity and alignment in a word whose lowest three bits are 0: the capacity is a multiple of
/// 512, and the logarithm of the alignment takes six bits.
pub(crate) type Packed = usize;

/// The capacity in it, in bytes.
#[inline]
pub(crate) const fn packed_capacity(packed: Packed) -> usize {
    packed & !(LEAST - 1)
}

/// A buffer for direct I/O (`O_DIRECT`): its memory starts at a multiple of `align` bytes, and its
/// capacity is one.
///
/// Reads take its whole capacity, writes send its length: it converts into a [`Buf`](crate::Buf),
/// and [`Buf::into_aligned`](crate::Buf::into_aligned) takes it out again. The capacity is fixed:
/// nothing here moves the bytes. The memory is zeroed when it is made.
///
/// The block size of a file is in [`Metadata::direct`](crate::fs::Metadata::direct); 4096 does for
/// every common disk. Lengths and offsets have to be multiples, too. A file whose size is no
/// multiple is written with its tail [padded](AlignedBuf::pad) and truncated afterwards:
///
/// ```
/// use windlass::AlignedBuf;
/// let mut buf = AlignedBuf::from_slice(&[7; 5000], 4096);
/// assert_eq!(buf.capacity(), 8192);
/// assert_eq!(buf.as_ptr().addr() % 4096, 0);
/// let size = buf.pad();
/// assert_eq!((size, buf.len()), (5000, 8192)); // write 8192 bytes, then truncate to 5000
/// ```
pub struct AlignedBuf {
    start: NonNull<u8>,
    len: usize,
    capacity: usize,
    align: usize,
    /// The piece whose memory it is, if it has none of its own.
    piece: Option<Box<Piece>>,
}

/// Whose memory that of an `AlignedBuf` is, in a word whose lowest three bits are 0.
pub(crate) enum PackedOwner {
    /// Its own.
    Own(Packed),
    /// A region's: from `Box::into_raw`.
    Region(*mut Piece),
}

// SAFETY: it owns its bytes, as a `Vec<u8>` does.
unsafe impl Send for AlignedBuf {}
// SAFETY: as above; a shared reference only reads.
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    /// An empty buffer with room for `len` bytes, rounded up to a multiple of `align` (at least
    /// one).
    ///
    /// # Panics
    /// If `align` is no power of two, or the capacity more than `isize::MAX`. An alignment below
    /// 512 becomes 512.
    pub fn with_capacity(len: usize, align: usize) -> AlignedBuf {
        assert!(align.is_power_of_two(), "an alignment is a power of two, not {align}");
        let align = align.max(LEAST);
        let layout = len
            .max(1)
            .checked_next_multiple_of(align)
            .and_then(|capacity| Layout::from_size_align(capacity, align).ok())
            .expect("a capacity is at most isize::MAX");
        // SAFETY: the size is at least one block.
        let start = unsafe { alloc::alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start) else { alloc::handle_alloc_error(layout) };
        trace::made(start.as_ptr(), trace::Kind::Aligned, layout.size());
        AlignedBuf { start, len: 0, capacity: layout.size(), align, piece: None }
    }

    /// An empty buffer on a piece of a region.
    pub(crate) fn from_piece(piece: Box<Piece>) -> AlignedBuf {
        let (start, capacity) = (piece.start(), piece.capacity());
        AlignedBuf { start, len: 0, capacity, align: BLOCK, piece: Some(piece) }
    }

    /// Whether its memory is part of what a watcher has registered with its kernel, see
    /// [`Watcher::aligned_buf`](crate::Watcher::aligned_buf).
    pub fn is_registered(&self) -> bool {
        self.piece.is_some()
    }

    /// A buffer with a copy of `bytes`.
    ///
    /// # Panics
    /// As for [`with_capacity`](AlignedBuf::with_capacity).
    pub fn from_slice(bytes: &[u8], align: usize) -> AlignedBuf {
        let mut buf = AlignedBuf::with_capacity(bytes.len(), align);
        buf.set_len(bytes.len());
        buf.copy_from_slice(bytes);
        buf
    }

    /// How many bytes fit: a multiple of the alignment.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// What its start and its capacity are multiples of, in bytes.
    #[inline]
    pub fn align(&self) -> usize {
        self.align
    }

    /// `len` rounded up to a multiple of the alignment.
    ///
    /// # Panics
    /// If that is more than `usize::MAX`.
    pub fn round_up(&self, len: usize) -> usize {
        len.checked_next_multiple_of(self.align).expect("a length is at most isize::MAX")
    }

    /// Sets the length to `len`. New bytes are zero, or bytes of an earlier read.
    ///
    /// # Panics
    /// If `len` is more than the capacity.
    pub fn set_len(&mut self, len: usize) {
        assert!(len <= self.capacity, "{len} bytes in a buffer of {}", self.capacity);
        self.len = len;
    }

    /// Makes the length `len`; bytes that join are `value`.
    ///
    /// # Panics
    /// If `len` is more than the capacity.
    pub fn resize(&mut self, len: usize, value: u8) {
        let old = self.len;
        self.set_len(len);
        if let Some(new) = self.get_mut(old..) {
            new.fill(value);
        }
    }

    /// Fills the last block with zeroes, so that the length is a multiple of the alignment; answers
    /// the length before.
    pub fn pad(&mut self) -> usize {
        let len = self.len;
        self.resize(self.round_up(len), 0);
        len
    }

    fn layout(&self) -> Layout {
        Layout::from_size_align(self.capacity, self.align).expect("A1")
    }

    /// Takes it apart: where it starts, its length, the rest.
    pub(crate) fn into_packed(self) -> (*mut u8, usize, PackedOwner) {
        let mut this = ManuallyDrop::new(self);
        let log = this.align.trailing_zeros() as usize;
        let owner = match this.piece.take() {
            Some(piece) => PackedOwner::Region(Box::into_raw(piece)),
            None => PackedOwner::Own(this.capacity | log << SHIFT),
        };
        (this.start.as_ptr(), this.len, owner)
    }

    /// Puts it together again.
    ///
    /// # Safety
    /// The parts come from [`into_packed`](AlignedBuf::into_packed), once; `len` may be any up to
    /// the capacity.
    pub(crate) unsafe fn from_packed(start: *mut u8, len: usize, owner: PackedOwner) -> AlignedBuf {
        match owner {
            PackedOwner::Own(packed) => {
                // SAFETY: it was a `NonNull`.
                let start = unsafe { NonNull::new_unchecked(start) };
                let align = 1 << ((packed & (LEAST - 1)) >> SHIFT);
                AlignedBuf { start, len, capacity: packed_capacity(packed), align, piece: None }
            }
            PackedOwner::Region(piece) => {
                // SAFETY: from `Box::into_raw`, once.
                let piece = unsafe { Box::from_raw(piece) };
                let mut buf = AlignedBuf::from_piece(piece);
                buf.len = len;
                buf
            }
        }
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        if self.piece.is_some() {
            // A2: its memory goes with the piece.
            return;
        }
        trace::gone(self.start.as_ptr());
        // SAFETY: A1: the allocation was made with this layout.
        unsafe { alloc::dealloc(self.start.as_ptr(), self.layout()) };
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: A1: the bytes are there and initialised.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl AsRef<[u8]> for AlignedBuf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Clone for AlignedBuf {
    fn clone(&self) -> AlignedBuf {
        let mut copy = AlignedBuf::with_capacity(self.capacity, self.align);
        copy.set_len(self.len);
        copy.copy_from_slice(self);
        copy
    }
}

/// Appends as much as fits: `write_all` of more fails with `WriteZero`.
impl io::Write for AlignedBuf {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let (old, count) = (self.len, bytes.len().min(self.capacity - self.len));
        self.len += count;
        self[old..].copy_from_slice(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AlignedBuf({} of {} bytes at {})", self.len, self.capacity, self.align)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Buf;
    use proptest::prelude::*;
    use std::io::Write;

    #[test]
    fn starts_and_capacities_are_multiples() {
        for (len, align, capacity) in
            [(0, 512, 512), (1, 1, 512), (512, 512, 512), (513, 512, 1024), (5, 1 << 16, 1 << 16)]
        {
            let buf = AlignedBuf::with_capacity(len, align);
            assert_eq!((buf.capacity(), buf.len()), (capacity, 0));
            assert_eq!(buf.as_ptr().addr() % buf.align(), 0);
            assert_eq!(buf.align(), align.max(512));
        }
    }

    #[test]
    #[should_panic(expected = "a power of two")]
    fn alignments_are_powers_of_two() {
        AlignedBuf::with_capacity(1, 768);
    }

    #[test]
    #[should_panic(expected = "513 bytes in a buffer of 512")]
    fn the_capacity_is_fixed() {
        AlignedBuf::with_capacity(1, 512).set_len(513);
    }

    #[test]
    fn too_much_is_written_as_far_as_it_fits() {
        let mut buf = AlignedBuf::with_capacity(512, 512);
        assert_eq!(buf.write_all(&[1; 600]).unwrap_err().kind(), io::ErrorKind::WriteZero);
        assert_eq!(&*buf, [1; 512]);
    }

    proptest! {
        /// Against a vector, through a `Buf` and back after each step.
        #[test]
        fn it_behaves_like_a_vector(
            log in 9u32..14,
            len in 0usize..9000,
            steps in prop::collection::vec((0u8..5, 0usize..6000, any::<u8>()), 0..12),
        ) {
            let mut buf = AlignedBuf::with_capacity(len, 1 << log);
            let capacity = buf.capacity();
            let mut model = Vec::new();
            for (what, n, value) in steps {
                match what {
                    0 => {
                        let fits = n.min(capacity - model.len());
                        prop_assert_eq!(buf.write(&vec![value; n]).unwrap(), fits);
                        model.resize(model.len() + fits, value);
                    }
                    1 => {
                        buf.resize(n.min(capacity), value);
                        model.resize(n.min(capacity), value);
                    }
                    2 => {
                        buf.set_len(n.min(model.len()));
                        model.truncate(n);
                    }
                    3 => {
                        prop_assert_eq!(buf.pad(), model.len());
                        model.resize(model.len().next_multiple_of(1 << log), 0);
                    }
                    _ => {
                        buf.fill(value);
                        model.fill(value);
                    }
                }
                let start = buf.as_ptr();
                let outer = Buf::from(buf);
                prop_assert_eq!(&*outer, &model[..]);
                prop_assert_eq!(outer.capacity(), capacity);
                buf = outer.into_aligned().expect("an aligned buffer");
                prop_assert_eq!(buf.as_ptr(), start);
                prop_assert_eq!((buf.align(), buf.capacity()), (1 << log, capacity));
                prop_assert_eq!(&*buf.clone(), &model[..]);
            }
        }
    }
}
