//! Buffers: a program moves one into an operation, and its completion gives it back.
//!
//! `buf/list.rs` has the lists.

#![allow(unsafe_code)]
//! # Safety
//!
//! (B1) A [`Buf`] stores an owner (a vector, a lease …) as its parts: where the bytes start, how
//! many there are, and a tagged word. The tag says which kind of owner to rebuild from the parts:
//! the constructor of that kind has stored the three fields.
//!
//! A read fills the capacity of a `Vec` through a raw pointer, and then sets its length to the
//! number of bytes that the kernel has written. No code makes a reference to uninitialised bytes.
//!
//! The bit `UNIQUE` beside the tag `LEASE` stands for a `LeaseMut` (S1 in `buf/swap.rs`). A `Buf`
//! is not `Clone`, so that its bytes stay unique.

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Bound, Deref, RangeBounds};
use std::ptr;
use std::sync::Arc;

use crate::memory::aligned::{self, AlignedBuf};
use crate::memory::discard::discard;
use crate::memory::region::Piece;
pub use crate::sys::target::Target;
use swap::{Lease, LeaseMut, Pool};

/// The buffer of an operation: a write sends its bytes, a read fills it, and the completion returns
/// it.
///
/// The buffer of a *write* can be made from a `Vec<u8>`, a `Box<[u8]>`, a `String`, `&'static [u8]`
/// or `&'static str`, an `Arc<[u8]>`, a [`Lease`], a [list](Buf::list) of these (vectored I/O), or
/// any other owner of bytes through [`Buf::from_owner`].
///
/// The buffer of a *read* is made from a `Vec<u8>`, an [`AlignedBuf`], or a list of these. The read
/// uses the **whole capacity** from the first byte on, and then sets the length to the number of
/// bytes read. So a program can submit the same `Vec` again and again.
///
/// ```
/// use windlass::Buf;
/// let buf = Buf::from(vec![1, 2, 3]);
/// assert_eq!(&*buf, [1, 2, 3]);
/// assert_eq!(buf.into_vec(), [1, 2, 3]);
/// assert!(Buf::default().is_eof());
/// ```
pub struct Buf {
    /// Where the bytes start.
    start: *const u8,
    /// The number of bytes; 0 for a list.
    len: usize,
    /// The owner: a tag in the low bits, and a pointer or a number in the others.
    owner: *mut (),
}

/// No owner: static bytes, or no bytes.
const STATIC: usize = 0;
/// A lease: a pointer to its chunk, which is aligned to 64 bytes.
const LEASE: usize = 1;
/// A vector: its capacity, no pointer.
const VEC: usize = 2;
/// An `Arc<[u8]>`: `start` and `len` are its raw pointer.
const SHARED: usize = 3;
/// A list: a pointer to a boxed vector of buffers.
const LIST: usize = 4;
/// Any other owner: a pointer to a boxed `Owner`.
const OWNER: usize = 5;
/// An `AlignedBuf` with memory of its own: its capacity and alignment, packed into a number.
const ALIGNED: usize = 6;
/// An `AlignedBuf` in registered memory: a pointer to the boxed piece.
const PIECE: usize = 7;
/// The bits of the tag.
const TAG: usize = 7;
const TAG_BITS: u32 = 3;
/// Of a lease: no other lease has any of its bytes.
const UNIQUE: usize = 1 << 3;
/// Of a unique lease: more may be read directly behind it.
const LAST: usize = 1 << 4;
/// The bits that a lease's chunk leaves free.
const OF_LEASE: usize = TAG | UNIQUE | LAST;

struct Owner {
    /// From `Box::into_raw`. A `Box` here would be wrong: moving it would claim that nothing else
    /// points to its memory.
    owner: *mut (dyn Send + 'static),
}

impl Drop for Owner {
    fn drop(&mut self) {
        // SAFETY: the pointer comes from `Box::into_raw` and is given back once.
        drop(unsafe { Box::from_raw(self.owner) });
    }
}

// SAFETY: every owner is `Send`: `Lease`, `Vec<u8>`, `AlignedBuf`, `Arc<[u8]>`, and `Owner`'s by
// its bound.
unsafe impl Send for Buf {}
// SAFETY: through a shared reference only the bytes can be read, and nothing writes them.
unsafe impl Sync for Buf {}

const _: () = assert!(size_of::<Buf>() <= 32);

impl Buf {
    /// A buffer without bytes.
    pub(crate) const NONE: Buf = Buf { start: ptr::dangling(), len: 0, owner: ptr::null_mut() };

    /// A buffer whose bytes belong to `owner`, for example a `bytes::Bytes` or a memory map. Only
    /// this call uses `as_ref`, once: if that panics, the owner is dropped, and the panic goes on.
    pub fn from_owner<T: AsRef<[u8]> + Send + 'static>(owner: T) -> Buf {
        let owner = Box::into_raw(Box::new(owner));
        // Drops the owner if `as_ref` panics.
        let boxed = Box::new(Owner { owner });
        // SAFETY: a live allocation from right above; it is not touched again until it drops.
        let bytes: &[u8] = unsafe { (*owner).as_ref() };
        let (start, len) = (bytes.as_ptr(), bytes.len());
        Buf { start, len, owner: tagged(Box::into_raw(boxed), OWNER) }
    }

    /// The part of the bytes that `range` names, and with it the whole owner: to write only this
    /// part. Copies no bytes.
    ///
    /// A part of a lease is a lease. A part of another buffer cannot be read into, and
    /// [`into_vec`](Buf::into_vec) copies it. A part of a vector, an `Arc` or an [`AlignedBuf`]
    /// takes two small allocations; other parts take none.
    ///
    /// ```
    /// use windlass::Buf;
    /// let record = Buf::from(b"5:hello".to_vec());
    /// assert_eq!(&*record.slice(2..), b"hello");
    /// ```
    ///
    /// # Panics
    /// If the range is out of bounds, as slicing does. A [list](Buf::list) panics whatever the
    /// range is, because its [parts](Buf::into_parts) have the bytes: slice those.
    #[inline]
    #[track_caller]
    pub fn slice(mut self, range: impl RangeBounds<usize>) -> Buf {
        assert!(!self.is_list(), "a list of buffers has no bytes of its own: slice its parts");
        // Not by an index of two bounds: it takes as long as all else here.
        let skipped = match range.start_bound() {
            Bound::Included(&at) => at,
            Bound::Excluded(&at) => at.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(&at) => at.saturating_add(1),
            Bound::Excluded(&at) => at,
            Bound::Unbounded => self.len,
        };
        let len = self.as_slice()[skipped..end].len();
        if len == self.len {
            return self;
        }
        // SAFETY: at most `len`, so the pointer stays in the memory of the bytes.
        let start = unsafe { self.start.add(skipped) };
        if matches!(self.tag(), STATIC | LEASE | OWNER) {
            (self.start, self.len) = (start, len);
            return self;
        }
        let owner = Box::into_raw(Box::new(self));
        let boxed = Box::into_raw(Box::new(Owner { owner }));
        Buf { start, len, owner: tagged(boxed, OWNER) }
    }

    /// The lease that [`Pool::commit`] returns, as a buffer.
    ///
    /// # Safety
    /// As for `commit`.
    #[inline(always)]
    pub(crate) unsafe fn from_pool(pool: &mut Pool, len: u32) -> Buf {
        // SAFETY: the same promise.
        let (chunk, start) = unsafe { pool.commit_parts(len) };
        // As `commit` does: the lease is unique, and the last in its line.
        let owner = chunk.map_addr(|addr| addr | LEASE | UNIQUE | LAST);
        Buf { start, len: len as usize, owner }
    }

    #[inline(always)]
    fn tag(&self) -> usize {
        self.owner.addr() & TAG
    }

    fn untagged<T>(&self) -> *mut T {
        self.owner.map_addr(|addr| addr & !TAG).cast()
    }

    /// The chunk of a `LEASE`.
    #[inline(always)]
    fn chunk(&self) -> *mut () {
        self.owner.map_addr(|addr| addr & !OF_LEASE)
    }

    /// The vector of a `VEC`.
    ///
    /// # Safety
    /// The tag is `VEC`. Only one of the result and `self` may be dropped: the caller forgets the
    /// other.
    unsafe fn vec(&self) -> ManuallyDrop<Vec<u8>> {
        let capacity = self.owner.addr() >> TAG_BITS;
        // SAFETY: B1.
        ManuallyDrop::new(unsafe { Vec::from_raw_parts(self.start.cast_mut(), self.len, capacity) })
    }

    /// The aligned buffer of an `ALIGNED` or a `PIECE`.
    ///
    /// # Safety
    /// As for `vec`, with one of these tags.
    unsafe fn aligned(&self) -> ManuallyDrop<AlignedBuf> {
        let owner = match self.tag() {
            PIECE => aligned::PackedOwner::Region(self.untagged()),
            _ => aligned::PackedOwner::Own(self.owner.addr() & !TAG),
        };
        // SAFETY: B1.
        let aligned = unsafe { AlignedBuf::from_packed(self.start.cast_mut(), self.len, owner) };
        ManuallyDrop::new(aligned)
    }

    /// The number of bytes; for a list, the sum of its parts.
    #[inline(always)]
    pub fn len(&self) -> usize {
        // A list has `len` 0, so a buffer with bytes needs no look at its tag.
        if self.len > 0 || self.tag() != LIST { self.len } else { self.list_len() }
    }

    #[cold]
    fn list_len(&self) -> usize {
        self.parts().iter().map(Buf::len).sum()
    }

    /// Whether the buffer has no bytes.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.len == 0 && self.len() == 0
    }

    /// Whether the read that returned this buffer met the end of the file: then the buffer has no
    /// bytes. A read of messages (datagrams, records) meets no end this way: its buffer without
    /// bytes is an empty message.
    #[inline(always)]
    pub fn is_eof(&self) -> bool {
        self.is_empty()
    }

    /// The bytes. For a list this is empty: its [parts](Buf::parts) hold the bytes.
    #[inline(always)]
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: B1: the owner keeps `len` bytes at `start` alive and unchanged; a list stores
        // none.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }

    /// The bytes as a `Vec`: the one that the buffer was made from, or else a copy of the bytes.
    pub fn into_vec(self) -> Vec<u8> {
        match self.tag() {
            VEC => {
                // SAFETY: the tag says so, and `self` is forgotten.
                let vec = ManuallyDrop::into_inner(unsafe { self.vec() });
                std::mem::forget(self);
                vec
            }
            LIST => self.parts().iter().flat_map(|part| part.as_slice()).copied().collect(),
            _ => self.as_slice().to_vec(),
        }
    }

    /// The lease, if a lease holds the bytes.
    ///
    /// # Errors
    /// The buffer comes back if another owner holds them.
    pub fn into_lease(self) -> Result<Lease, Buf> {
        if self.tag() != LEASE {
            return Err(self);
        }
        let this = ManuallyDrop::new(self);
        // SAFETY: B1, and `self` is forgotten.
        Ok(unsafe { Lease::from_parts(this.chunk(), this.start, this.len) })
    }

    /// The lease, if no other lease has any of its bytes: what a read without a buffer has
    /// delivered, or a [`LeaseMut`] that was moved in.
    ///
    /// # Errors
    /// The buffer comes back if another owner holds the bytes, or a [`Lease`] that was moved in,
    /// whose bytes may be shared. So does the empty buffer of a read that met the end of the file.
    pub fn into_lease_mut(self) -> Result<LeaseMut, Buf> {
        if !self.is_unique_lease() {
            return Err(self);
        }
        let is_last = self.owner.addr() & LAST != 0;
        self.into_lease().map(|lease| {
            // SAFETY: B1: the bits were set for such a lease, and only parts of it were taken.
            unsafe { LeaseMut::new(lease, is_last) }
        })
    }

    /// Borrows the lease of a `LEASE`.
    ///
    /// # Safety
    /// The tag is `LEASE`.
    unsafe fn lease(&self) -> ManuallyDrop<Lease> {
        // SAFETY: B1; the token stays that of `self`.
        ManuallyDrop::new(unsafe { Lease::from_parts(self.chunk(), self.start, self.len) })
    }

    /// The number of its leases, those outside the pool among them.
    pub(crate) fn leases(&self) -> usize {
        self.parts().iter().filter(|part| part.is_lease()).count()
    }

    /// The number of its leases that keep a swap buffer in use.
    pub(crate) fn pool_leases(&self) -> usize {
        self.parts().iter().filter(|part| part.is_in_pool()).count()
    }

    /// Whether it is one lease on a swap buffer.
    fn is_in_pool(&self) -> bool {
        // SAFETY: the tag says so.
        self.is_lease() && unsafe { self.lease() }.is_in_pool()
    }

    /// Moves the bytes of its leases out of the pool. Returns how many leases and bytes.
    pub(crate) fn copy_leases(&mut self) -> (u64, u64) {
        let parts = match self.is_list() {
            true => self.parts_mut(),
            false => std::slice::from_mut(self),
        };
        let (mut leases, mut bytes) = (0, 0);
        for part in parts.iter_mut().filter(|part| part.is_in_pool()) {
            // SAFETY: it is a lease: a part is no list.
            let copy = unsafe { part.lease() }.copied();
            *part = match part.is_unique_lease() {
                true => Buf::from(copy),
                false => Buf::from(copy.freeze()),
            };
            (leases, bytes) = (leases + 1, bytes + part.len as u64);
        }
        (leases, bytes)
    }

    /// The [`AlignedBuf`] that this buffer was made from, with the length that a read has set.
    ///
    /// # Errors
    /// The buffer comes back if it was made from something else.
    pub fn into_aligned(self) -> Result<AlignedBuf, Buf> {
        if !matches!(self.tag(), ALIGNED | PIECE) {
            return Err(self);
        }
        let this = ManuallyDrop::new(self);
        // SAFETY: the tag says so, and `self` is forgotten.
        Ok(ManuallyDrop::into_inner(unsafe { this.aligned() }))
    }

    /// Drops the buffer, and catches a panic of an owner's `Drop`.
    #[inline(always)]
    pub(crate) fn discard(self) {
        if self.tag() == LEASE { drop(self) } else { self.discard_other() }
    }

    #[inline(never)]
    fn discard_other(self) {
        // Only the drops of these kinds run code of the program: a list may hold any owner.
        if matches!(self.tag(), OWNER | LIST) { discard(self) } else { drop(self) }
    }

    /// Drops the buffer in place if it is a lease or has no owner. Returns whether it did.
    ///
    /// # Safety
    /// After `true`, the buffer is neither used nor dropped again.
    #[inline(always)]
    pub(crate) unsafe fn drop_if_plain(&mut self) -> bool {
        match self.tag() {
            STATIC => {}
            // SAFETY: B1, and the caller's promise.
            LEASE => unsafe { swap::drop_token(self.chunk()) },
            _ => return false,
        }
        true
    }

    /// Whether a lease holds the bytes.
    pub fn is_lease(&self) -> bool {
        self.tag() == LEASE
    }

    /// Whether a lease holds the bytes of which no other lease has any.
    #[inline]
    pub(crate) fn is_unique_lease(&self) -> bool {
        self.owner.addr() & (TAG | UNIQUE) == LEASE | UNIQUE
    }

    /// How many bytes a read can put into this buffer: the capacity of its vector or aligned
    /// buffer; for a list, the sum of its parts; 0 for every other kind.
    pub fn capacity(&self) -> usize {
        if self.tag() == LIST {
            self.parts().iter().map(Buf::capacity).sum()
        } else {
            self.own_room()
        }
    }

    /// The capacity of this buffer itself; 0 for a list.
    #[inline(always)]
    fn own_room(&self) -> usize {
        match self.tag() {
            VEC => self.owner.addr() >> TAG_BITS,
            ALIGNED => aligned::packed_capacity(self.owner.addr()),
            // SAFETY: B1: the pointer comes from `Box::into_raw` and is freed when `self` drops.
            PIECE => unsafe { &*self.untagged::<Piece>() }.capacity(),
            _ => 0,
        }
    }

    /// The memory that a driver lets the kernel write: at most `most` bytes of the capacity, from
    /// byte `from` on. Empty for a list, and for every buffer that a read cannot fill.
    #[inline(always)]
    pub fn target(&mut self, from: usize, most: usize) -> Target<'_> {
        let room = self.own_room();
        let from = from.min(room);
        let len = (room - from).min(most);
        // SAFETY: `from` is at most the capacity, so the pointer stays in the allocation.
        let start = unsafe { self.start.cast_mut().add(from) };
        // SAFETY: the bytes are this buffer's, which is borrowed as long as the target lives.
        unsafe { Target::from_raw(start, len) }
    }

    /// Sets the length after a read into the first `len` bytes of the capacity. In a list, each
    /// part gets its share in order.
    ///
    /// # Safety
    /// The kernel (or the driver, through [`Target`]) has written these bytes.
    pub unsafe fn set_filled(&mut self, mut len: usize) {
        if matches!(self.tag(), VEC | ALIGNED | PIECE) {
            self.len = len.min(self.own_room());
        } else {
            for part in self.parts_mut() {
                let share = len.min(part.capacity());
                // SAFETY: as for this function: the parts are filled in order.
                unsafe { part.set_filled(share) };
                len -= share;
            }
        }
    }

    /// The buffer of a whole read: its [`target`](Buf::target) had room for `len` bytes.
    ///
    /// # Safety
    /// As for [`set_filled`](Buf::set_filled), with all of the room.
    #[inline(always)]
    pub(crate) unsafe fn filled(mut self, len: usize) -> Buf {
        self.len = len;
        self
    }

    /// Takes the buffer out, and leaves one without bytes.
    #[inline(always)]
    pub(crate) fn take(&mut self) -> Buf {
        // Word by word, because words can stay in registers.
        let Buf { start, len, owner } = *self;
        std::mem::forget(std::mem::replace(self, Buf::NONE));
        Buf { start, len, owner }
    }

    #[inline(always)]
    pub(crate) fn is_list(&self) -> bool {
        self.tag() == LIST
    }

    #[cold]
    #[inline(never)]
    fn release(&mut self) {
        match self.tag() {
            // SAFETY: B1, here and below: each owner is put together once, as `self` goes away.
            VEC => drop(ManuallyDrop::into_inner(unsafe { self.vec() })),
            SHARED => {
                let raw = ptr::slice_from_raw_parts(self.start, self.len);
                // SAFETY: as above: the raw pointer of `Arc::into_raw`.
                drop(unsafe { Arc::from_raw(raw) });
            }
            // SAFETY: as above.
            LIST => unsafe { self.release_list() },
            // SAFETY: as above.
            OWNER => drop(unsafe { Box::from_raw(self.untagged::<Owner>()) }),
            // SAFETY: as above.
            ALIGNED | PIECE => drop(ManuallyDrop::into_inner(unsafe { self.aligned() })),
            _ => {}
        }
    }
}

/// A pointer with a tag in its low bits, which its alignment leaves free.
fn tagged<T>(pointer: *mut T, tag: usize) -> *mut () {
    const { assert!(align_of::<T>() > TAG) };
    pointer.cast::<()>().map_addr(|addr| addr | tag)
}

impl Drop for Buf {
    #[inline(always)]
    fn drop(&mut self) {
        match self.tag() {
            STATIC => {}
            // SAFETY: B1: the lease's token goes away with `self`.
            LEASE => unsafe { swap::drop_token(self.chunk()) },
            _ => self.release(),
        }
    }
}

impl Default for Buf {
    fn default() -> Buf {
        Buf::NONE
    }
}

impl Deref for Buf {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl AsRef<[u8]> for Buf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Buf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let owner = match self.tag() {
            STATIC => "static",
            LEASE => "Lease",
            VEC => "Vec",
            SHARED => "Arc",
            ALIGNED | PIECE => "AlignedBuf",
            LIST => return f.debug_list().entries(self.parts()).finish(),
            _ => "owner",
        };
        write!(f, "Buf({owner}, {} bytes)", self.len())
    }
}

impl From<Vec<u8>> for Buf {
    fn from(vec: Vec<u8>) -> Buf {
        let mut vec = ManuallyDrop::new(vec);
        let (start, len, capacity) = (vec.as_mut_ptr(), vec.len(), vec.capacity());
        if capacity > usize::MAX >> TAG_BITS {
            // No address space holds this; capacities of vectors without bytes are 0.
            return Buf::from_owner(ManuallyDrop::into_inner(vec));
        }
        let owner = ptr::without_provenance_mut(capacity << TAG_BITS | VEC);
        Buf { start, len, owner }
    }
}
impl From<AlignedBuf> for Buf {
    fn from(aligned: AlignedBuf) -> Buf {
        let (start, len, owner) = aligned.into_packed();
        let owner = match owner {
            aligned::PackedOwner::Own(packed) => ptr::without_provenance_mut(packed | ALIGNED),
            aligned::PackedOwner::Region(piece) => tagged(piece, PIECE),
        };
        Buf { start, len, owner }
    }
}
impl From<Box<[u8]>> for Buf {
    fn from(bytes: Box<[u8]>) -> Buf {
        Buf::from(bytes.into_vec())
    }
}
impl From<String> for Buf {
    fn from(text: String) -> Buf {
        Buf::from(text.into_bytes())
    }
}
impl From<&'static [u8]> for Buf {
    fn from(bytes: &'static [u8]) -> Buf {
        Buf { start: bytes.as_ptr(), len: bytes.len(), owner: ptr::null_mut() }
    }
}
impl<const N: usize> From<&'static [u8; N]> for Buf {
    fn from(bytes: &'static [u8; N]) -> Buf {
        Buf::from(bytes.as_slice())
    }
}
impl From<&'static str> for Buf {
    fn from(text: &'static str) -> Buf {
        Buf::from(text.as_bytes())
    }
}
impl From<Arc<[u8]>> for Buf {
    fn from(bytes: Arc<[u8]>) -> Buf {
        let len = bytes.len();
        let start = Arc::into_raw(bytes).cast::<u8>();
        Buf { start, len, owner: ptr::without_provenance_mut(SHARED) }
    }
}
impl From<Lease> for Buf {
    #[inline(always)]
    fn from(lease: Lease) -> Buf {
        let (chunk, start, len) = lease.into_parts();
        Buf { start, len, owner: chunk.map_addr(|addr| addr | LEASE) }
    }
}
impl From<LeaseMut> for Buf {
    #[inline(always)]
    fn from(lease: LeaseMut) -> Buf {
        let bits = if lease.is_last() { UNIQUE | LAST } else { UNIQUE };
        let mut buf = Buf::from(lease.freeze());
        buf.owner = buf.owner.map_addr(|addr| addr | bits);
        buf
    }
}

mod list;
pub(crate) mod swap;

#[cfg(test)]
mod tests;
