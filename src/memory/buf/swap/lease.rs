//! Leases: counted pointers to bytes in a chunk, shared ones and unique ones.

#![allow(unsafe_code)]
//! # Safety
//!
//! Every block cites the invariant of `mod.rs` that it rests on. A lease holds one token of its
//! chunk.

use std::fmt;
use std::ops::{Deref, DerefMut, RangeBounds};
use std::ptr::{self, NonNull};

use super::{Chunk, HEADER, drop_token};

/// Bytes are copied out of a chunk when they are less than one part in so many of it.
const SMALL_SHARE: usize = 4;

/// The bytes of a read without a buffer, in memory of the library.
///
/// A counted pointer: cloning it copies no bytes, dropping the last clone gives the memory back to
/// the watcher's pool, from any thread. A lease can be the buffer of a write, so that an echo or a
/// proxy forwards the bytes of a read without a copy. Leases outlive their watcher.
///
/// A lease keeps a whole swap buffer in use. At the pool's limit, reads without a buffer wait for a
/// lease to come back. So give writes to peers that may stall a deadline, and
/// [compact](Lease::compact) a small lease that you keep. The driver copies a lease out of its swap
/// buffer if it is to wait in a queue of writes that holds its share of the pool
/// ([`Counters::copied_leases`](crate::Counters::copied_leases)).
///
/// Clones are counted for the whole swap buffer, not for each lease. So no call turns a `Lease`
/// into a [`LeaseMut`]: nothing could tell whether other leases share its bytes.
pub struct Lease {
    pub(super) chunk: NonNull<Chunk>,
    pub(super) offset: u32,
    pub(super) len: u32,
}

const _: () = assert!(size_of::<Lease>() <= 16 && size_of::<Option<Lease>>() <= 16);

// SAFETY: leases only read the bytes (S1), the count is atomic, and the pool is reached through the
// atomics of `SwapShared`.
unsafe impl Send for Lease {}
// SAFETY: as above.
unsafe impl Sync for Lease {}

/// The place at which a lease of `len` bytes is split.
#[track_caller]
fn checked(at: usize, len: u32) -> u32 {
    assert!(at <= len as usize, "split at {at} of a lease of {len} bytes");
    at as u32
}

impl Lease {
    /// The part of the bytes that `range` names, sharing the same memory.
    ///
    /// # Panics
    /// If the range is out of bounds, as slicing does.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Lease {
        let bytes = &self[(range.start_bound().cloned(), range.end_bound().cloned())];
        let start = bytes.as_ptr().addr() - self.as_ptr().addr();
        let len = bytes.len() as u32;
        let mut part = self.clone();
        part.offset += start as u32;
        part.len = len;
        part
    }

    /// Takes the first `at` bytes out: this lease keeps the rest. Copies nothing.
    ///
    /// # Panics
    /// If the lease has fewer bytes than `at`. It stays as it was.
    #[track_caller]
    pub fn split_to(&mut self, at: usize) -> Lease {
        let at = checked(at, self.len);
        let mut head = self.clone();
        head.len = at;
        self.offset += at;
        self.len -= at;
        head
    }

    /// Takes the bytes from `at` on out: this lease keeps the first `at` bytes. Copies nothing.
    ///
    /// # Panics
    /// If the lease has fewer bytes than `at`. It stays as it was.
    #[track_caller]
    pub fn split_off(&mut self, at: usize) -> Lease {
        let head = self.split_to(at);
        std::mem::replace(self, head)
    }

    /// Makes one lease of this one and of `behind`, whose bytes begin where these end: parts of one
    /// lease, or of two reads that stand one behind the other. An empty lease joins every other.
    /// Copies nothing.
    ///
    /// # Errors
    /// Both leases come back, this one first, if their bytes do not touch.
    pub fn try_join(self, behind: Lease) -> Result<Lease, (Lease, Lease)> {
        if behind.is_empty() {
            return Ok(self);
        }
        if self.is_empty() {
            return Ok(behind);
        }
        if !self.touches(&behind) {
            return Err((self, behind));
        }
        let mut whole = self;
        whole.len += behind.len;
        Ok(whole)
    }

    /// Whether `behind` begins where this one ends.
    fn touches(&self, behind: &Lease) -> bool {
        self.chunk == behind.chunk && self.offset + self.len == behind.offset
    }

    /// Copies the bytes into memory of their own if they are less than a quarter of the memory that
    /// they keep in use. Returns the number of copied bytes, which
    /// [`Counters::compacted_bytes`](crate::Counters::compacted_bytes) counts; 0 if it has left the
    /// lease as it was.
    ///
    /// For a lease that a program keeps for long. The swap buffer is free when its other leases
    /// are dropped, too. The copy does not count for
    /// [`Builder::swap_limit`](crate::Builder::swap_limit).
    ///
    /// ```
    /// use windlass::Watcher;
    /// let mut watcher = Watcher::new()?;
    /// let mut key = watcher.lease(|space| {
    ///     space[..5].copy_from_slice(b"key 7");
    ///     5
    /// })?;
    /// assert_eq!(key.compact(), 5);
    /// assert_eq!((&*key, key.held_bytes()), (&b"key 7"[..], 5));
    /// assert_eq!(watcher.counters().compacted_bytes, 5);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn compact(&mut self) -> usize {
        if !self.is_small() {
            return 0;
        }
        // SAFETY: a lease keeps its chunk alive (S3).
        unsafe { self.chunk.as_ref() }.pool.compacted.add(self.len());
        *self = self.copied().freeze();
        self.len()
    }

    /// Whether its bytes are in a swap buffer of the pool, not in memory of their own.
    pub(crate) fn is_in_pool(&self) -> bool {
        // SAFETY: a lease keeps its chunk alive (S3).
        !unsafe { self.chunk.as_ref() }.alone
    }

    /// Whether the lease has less than a quarter of the bytes that it keeps in use.
    fn is_small(&self) -> bool {
        self.len() * SMALL_SHARE < self.held_bytes()
    }

    /// A copy of the bytes in memory of their own, outside the pool.
    pub(crate) fn copied(&self) -> LeaseMut {
        // SAFETY: a lease keeps its chunk alive (S3).
        Chunk::alone(&unsafe { self.chunk.as_ref() }.pool, &[self])
    }

    /// The bytes of memory that this lease keeps in use: a whole swap buffer, or its own bytes
    /// after [`compact`](Lease::compact).
    pub fn held_bytes(&self) -> usize {
        // SAFETY: a lease keeps its chunk alive (S3).
        unsafe { self.chunk.as_ref() }.size as usize
    }

    /// Takes the lease apart: its chunk, where its bytes start, how many there are.
    #[inline(always)]
    pub(crate) fn into_parts(self) -> (*mut (), *const u8, usize) {
        let this = std::mem::ManuallyDrop::new(self);
        (this.chunk.as_ptr().cast(), this.as_ptr(), this.len as usize)
    }

    /// Puts a lease together again.
    ///
    /// # Safety
    /// The parts come from `into_parts`, or name a part of the same bytes, and are used once.
    #[inline(always)]
    pub(crate) unsafe fn from_parts(chunk: *mut (), start: *const u8, len: usize) -> Lease {
        let offset = (start.addr() - chunk.addr() - HEADER) as u32;
        // SAFETY: the chunk of a lease, says the caller.
        let chunk = unsafe { NonNull::new_unchecked(chunk.cast::<Chunk>()) };
        Lease { chunk, offset, len: len as u32 }
    }

    #[inline(always)]
    pub(crate) fn as_ptr(&self) -> *const u8 {
        self.start()
    }

    #[inline(always)]
    fn start(&self) -> *mut u8 {
        // SAFETY: `offset` lies inside the chunk's allocation.
        unsafe { self.chunk.as_ptr().cast::<u8>().add(HEADER + self.offset as usize) }
    }
}

impl Deref for Lease {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: S1: `len` bytes at `offset` were written before the lease was made and are not
        // written again while it exists.
        unsafe { std::slice::from_raw_parts(self.as_ptr(), self.len as usize) }
    }
}

impl AsRef<[u8]> for Lease {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Clone for Lease {
    fn clone(&self) -> Lease {
        // SAFETY: a lease keeps its chunk alive (S3).
        unsafe { self.chunk.as_ref() }.tokens.add();
        Lease { chunk: self.chunk, offset: self.offset, len: self.len }
    }
}

impl Drop for Lease {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the lease's token goes with it.
        unsafe { drop_token(self.chunk.as_ptr().cast()) };
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lease({} bytes)", self.len)
    }
}

/// A lease that shares no byte with another lease: a program can change its bytes in place, for
/// example to decrypt or unmask them.
///
/// Every read without a buffer returns one, in its [`Buf`](crate::Buf):
/// [`Buf::into_lease_mut`](crate::Buf::into_lease_mut) takes it out. It is not `Clone`.
/// [`freeze`](LeaseMut::freeze) turns it into a [`Lease`]. No call turns a `Lease` into a
/// `LeaseMut`.
///
/// ```
/// use std::io::Write;
/// use windlass::{Completions, Done, Op, Watcher};
/// let mut watcher = Watcher::new()?;
/// let (ours, mut theirs) = std::os::unix::net::UnixStream::pair()?;
/// let source = watcher.attach(ours)?;
/// watcher.submit(Op::read(source))?;
/// theirs.write_all(b"head|body")?;
/// let mut done = Completions::new();
/// watcher.wait(&mut done)?;
/// let Ok(Done::Read(data)) = done.drain(..).next().unwrap().result else { panic!() };
/// let mut body = data.into_lease_mut().unwrap();
/// let head = body.split_to(5).freeze();
/// body.make_ascii_uppercase();
/// assert_eq!((&*head, &*body), (&b"head|"[..], &b"BODY"[..]));
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct LeaseMut {
    pub(super) lease: Lease,
    /// No other lease has bytes between its end and the next multiple of a line: more may be read
    /// directly behind it.
    pub(super) is_last: bool,
}

impl LeaseMut {
    /// # Safety
    /// No other lease has any of the bytes (S1); `is_last` as the field says.
    #[inline(always)]
    pub(crate) unsafe fn new(lease: Lease, is_last: bool) -> LeaseMut {
        LeaseMut { lease, is_last }
    }

    #[inline(always)]
    pub(crate) fn is_last(&self) -> bool {
        self.is_last
    }

    /// Turns it into a [`Lease`], which can be cloned and shared among threads, but not changed.
    /// Copies nothing.
    pub fn freeze(self) -> Lease {
        self.lease
    }

    /// Takes the first `at` bytes out: this lease keeps the rest. Copies nothing.
    ///
    /// # Panics
    /// If the lease has fewer bytes than `at`. It stays as it was.
    #[track_caller]
    pub fn split_to(&mut self, at: usize) -> LeaseMut {
        // S1: the two parts have no byte in common.
        LeaseMut { lease: self.lease.split_to(at), is_last: false }
    }

    /// Takes the bytes from `at` on out: this lease keeps the first `at` bytes. Copies nothing.
    ///
    /// # Panics
    /// If the lease has fewer bytes than `at`. It stays as it was.
    #[track_caller]
    pub fn split_off(&mut self, at: usize) -> LeaseMut {
        let head = self.split_to(at);
        std::mem::replace(self, head)
    }

    /// Makes one lease of this one and of `behind`, as [`Lease::try_join`] does.
    ///
    /// # Errors
    /// Both leases come back, this one first, if their bytes do not touch.
    pub fn try_join(self, behind: LeaseMut) -> Result<LeaseMut, (LeaseMut, LeaseMut)> {
        let (first, last) = (self.is_last, behind.is_last);
        let of_whole = if behind.is_empty() { first } else { last };
        match self.lease.try_join(behind.lease) {
            Ok(lease) => Ok(LeaseMut { lease, is_last: of_whole }),
            Err((lease, behind)) => {
                Err((LeaseMut { lease, is_last: first }, LeaseMut { lease: behind, is_last: last }))
            }
        }
    }

    /// The bytes of memory that this lease keeps in use: a whole swap buffer, or its own bytes
    /// after an [`Op::read_append`](crate::Op::read_append) has moved them out of the pool.
    pub fn held_bytes(&self) -> usize {
        self.lease.held_bytes()
    }
}

impl Deref for LeaseMut {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        &self.lease
    }
}

impl DerefMut for LeaseMut {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: S1: no other lease has any of the bytes, and this one is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.lease.start(), self.lease.len as usize) }
    }
}

impl AsRef<[u8]> for LeaseMut {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl AsMut<[u8]> for LeaseMut {
    fn as_mut(&mut self) -> &mut [u8] {
        self
    }
}

impl From<LeaseMut> for Lease {
    fn from(lease: LeaseMut) -> Lease {
        lease.freeze()
    }
}

impl fmt::Debug for LeaseMut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LeaseMut({} bytes)", self.lease.len)
    }
}

/// Copies `parts` to `start`, one behind the other.
///
/// # Safety
/// As many bytes can be written there, and none of `parts` is among them.
pub(super) unsafe fn copy_all(parts: &[&[u8]], mut start: *mut u8) {
    for part in parts {
        // SAFETY: the caller's promise.
        unsafe { ptr::copy_nonoverlapping(part.as_ptr(), start, part.len()) };
        // SAFETY: at most one past the end of that memory.
        start = unsafe { start.add(part.len()) };
    }
}
