//! The memory that the system writes into.

#![allow(unsafe_code)]
//! # Safety
//!
//! A [`Target`] has memory for itself alone as long as it lives: the one who makes it says so.

use std::marker::PhantomData;
use std::ptr;

/// Memory of an operation, for the kernel or a driver to write received bytes into.
///
/// The bytes may be uninitialised, so they can be written but not read.
#[derive(Debug)]
pub struct Target<'a> {
    start: *mut u8,
    len: usize,
    owner: PhantomData<&'a mut [u8]>,
}

impl<'a> Target<'a> {
    /// A target without bytes.
    pub(crate) const NONE: Target<'a> =
        Target { start: ptr::dangling_mut(), len: 0, owner: PhantomData };

    /// So many targets without bytes.
    pub(crate) fn nones(count: usize) -> Vec<Target<'a>> {
        (0..count).map(|_| Target::NONE).collect()
    }

    /// A target that covers `bytes`.
    pub fn from_slice(bytes: &'a mut [u8]) -> Target<'a> {
        Target { start: bytes.as_mut_ptr(), len: bytes.len(), owner: PhantomData }
    }

    /// A target of `len` bytes at `start`.
    ///
    /// # Safety
    /// During `'a`, these bytes may be written, and no other code reads or writes them.
    #[inline]
    pub unsafe fn from_raw(start: *mut u8, len: usize) -> Target<'a> {
        Target { start, len, owner: PhantomData }
    }

    /// The number of bytes that fit into the memory.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no byte fits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// A pointer to the first byte.
    #[inline]
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.start
    }

    /// Copies as many of `bytes` as fit to the start of the memory, and returns their number.
    #[inline]
    pub fn write(&mut self, bytes: &[u8]) -> usize {
        let len = bytes.len().min(self.len);
        // SAFETY: the memory is exclusively ours for `'a` and at least `len` bytes long.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.start, len) };
        len
    }

    /// The memory behind the first `n` bytes.
    pub fn skip(&mut self, n: usize) -> Target<'_> {
        let n = n.min(self.len);
        // SAFETY: `n` is at most the length, so the pointer stays in the allocation.
        let start = unsafe { self.start.add(n) };
        Target { start, len: self.len - n, owner: PhantomData }
    }
}
