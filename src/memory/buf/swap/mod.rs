//! Swap buffers: library-owned memory for reads without a buffer, handed out as counted leases.
//!
//! A [`Pool`] owns chunks of one size (64 KiB unless told otherwise) and packs what is read into
//! the chunk at hand, one read behind the other, so that many small messages share few hot pages.
//! Every read yields a [`LeaseMut`]: a counted pointer to bytes. A chunk can be written again when
//! all of its leases are gone; the last one to drop, on whichever thread, puts it on the return
//! stack.
//!
//! Files: `lease.rs` has the leases, `append.rs` reads behind a lease, `scarcity.rs` counts free
//! chunks, `tokens.rs` the holders of a chunk.
//!
//! ```text
//!            space()/commit()                last lease drops                refill()
//!   free ───────────────────▶ current ──retire──▶ leased ───────▶ return stack ───────▶ free
//!                              └── all leases gone: written again from its start ──┘
//! ```
//!
//! `tokens.rs` counts: a current chunk holds `FULL` tokens of which all but `rest` belong to
//! leases. Retiring a chunk takes the pool's tokens away. The holder that brings the count to zero
//! owns the chunk.
//!
//! Invariants:
//!
//! - (S1) The bytes that a lease has are written by nothing but a `LeaseMut` while it exists, and a
//!   `LeaseMut` has no byte in common with any other lease. A commit makes a `LeaseMut` of bytes
//!   without a lease. It can be split, joined with one that it touches, and frozen; it cannot be
//!   cloned, and no `Lease` becomes one. (A `Buf` keeps in a bit whether its lease is unique.)
//! - (S2) Bytes of the current chunk that no lease has (those behind `start`, and those between the
//!   end of a lease and the next line) belong to the pool alone. All bytes are initialised.
//! - (S3) A chunk is freed only by the owner of its last token.
//! - (S4) At most `limit` bytes of the pool's chunks exist. (A chunk that is `alone` is a copy
//!   outside the pool.)

#![allow(unsafe_code)]
//! # Safety
//!
//! Chunks are raw allocations with a header. Every block cites the invariant above that it rests
//! on.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use crate::memory::buf::Buf;
use crate::memory::trace;
use crate::sys::waker::Wake;
pub use lease::{Lease, LeaseMut};
use tokens::{FULL, Tokens};

/// Distance between the starts of two leases: a cache line.
const ALIGN: usize = 64;

#[repr(C, align(64))]
struct Chunk {
    tokens: Tokens,
    size: u32,
    next: AtomicPtr<Chunk>,
    pool: Arc<SwapShared>,
    /// The chunk counts as lent to a kernel.
    lent: AtomicBool,
    /// It holds a copy that is not the pool's: freed, not returned.
    alone: bool,
}

const HEADER: usize = size_of::<Chunk>();
#[cfg(not(loom))]
const _: () = assert!(HEADER == ALIGN);

/// The state that the pool and its leases on other threads share.
struct SwapShared {
    /// Chunks whose last lease has dropped: pushed by anyone, taken as a whole by the loop.
    returned: AtomicPtr<Chunk>,
    /// Set while a read waits for a chunk.
    starving: AtomicBool,
    /// Set when the pool is gone: the thread that returns a chunk then frees it.
    closed: AtomicBool,
    waker: Arc<dyn Wake>,
    /// Bytes that leases have copied to give their chunk back.
    compacted: Compacted,
}

/// A count of bytes.
#[derive(Default)]
struct Compacted(AtomicU64);

impl Compacted {
    fn add(&self, bytes: usize) {
        self.0.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// Stands for a chunk where there is none: a count that never equals the pool's tokens.
fn no_chunk() -> NonNull<Chunk> {
    static NO_CHUNK: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    NonNull::from(&NO_CHUNK).cast()
}

fn layout(size: u32) -> Layout {
    Layout::from_size_align(HEADER + size as usize, ALIGN).expect("chunk sizes fit an isize")
}

/// # Safety
/// The caller owns the chunk's last token (S3).
unsafe fn free_chunk(chunk: NonNull<Chunk>) {
    // SAFETY: the chunk is alive until the `dealloc` below.
    let size = unsafe { chunk.as_ref() }.size;
    // SAFETY: S3: nothing else can reach the header; it is dropped once.
    unsafe { ptr::drop_in_place(chunk.as_ptr()) };
    // SAFETY: allocated in `Pool::allocate` with this layout.
    unsafe { dealloc(chunk.as_ptr().cast(), layout(size)) };
}

impl Chunk {
    /// A chunk for `size` bytes, all zero, with so many tokens.
    fn allocate(pool: &Arc<SwapShared>, size: u32, tokens: u32, alone: bool) -> NonNull<Chunk> {
        let layout = layout(size);
        // SAFETY: the layout is not empty.
        let memory = unsafe { alloc_zeroed(layout) };
        let Some(chunk) = NonNull::new(memory.cast::<Chunk>()) else { handle_alloc_error(layout) };
        let header = Chunk {
            tokens: Tokens::new(tokens),
            size,
            next: AtomicPtr::new(ptr::null_mut()),
            pool: Arc::clone(pool),
            lent: AtomicBool::new(false),
            alone,
        };
        // SAFETY: freshly allocated with room and alignment for the header.
        unsafe { chunk.as_ptr().write(header) };
        chunk
    }

    /// A copy of `parts`, one behind the other, in a chunk of its own outside the pool.
    fn alone(pool: &Arc<SwapShared>, parts: &[&[u8]]) -> LeaseMut {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        let size = u32::try_from(len).expect("a lease and what is read behind it are small");
        let chunk = Chunk::allocate(pool, size, 1, true);
        trace::made(chunk.as_ptr(), trace::Kind::Swap, len);
        // SAFETY: the data starts behind the header, inside the allocation.
        let start = unsafe { chunk.as_ptr().cast::<u8>().add(HEADER) };
        // SAFETY: the new chunk has `size` bytes there.
        unsafe { lease::copy_all(parts, start) };
        let lease = Lease { chunk, offset: 0, len: size };
        // SAFETY: S1: the chunk's only token, and lease.
        unsafe { LeaseMut::new(lease, false) }
    }
}

impl SwapShared {
    /// Takes the whole return stack and gives every chunk on it to `each`.
    fn drain(&self, mut each: impl FnMut(NonNull<Chunk>)) {
        let mut head = self.returned.swap(ptr::null_mut(), Ordering::SeqCst);
        while let Some(chunk) = NonNull::new(head) {
            // SAFETY: chunks on the stack are alive, and the swap made this stack ours.
            head = unsafe { chunk.as_ref() }.next.load(Ordering::Relaxed);
            each(chunk);
        }
    }
}

/// Drops one lease's token of a chunk.
///
/// # Safety
/// The caller owns that token and does not use it again.
#[inline(always)]
pub(crate) unsafe fn drop_token(chunk: *mut ()) {
    let chunk = chunk.cast::<Chunk>();
    // SAFETY: a token keeps its chunk alive (S3).
    if unsafe { &*chunk }.tokens.drop_one() {
        // SAFETY: that was the last token: the chunk is the caller's.
        unsafe { release(chunk) };
    }
}

/// Puts a chunk onto its return stack.
///
/// # Safety
/// The caller has dropped the chunk's last token (S3).
#[cold]
#[inline(never)]
unsafe fn release(chunk: *mut Chunk) {
    trace::gone(chunk);
    // SAFETY: the chunk is ours.
    let header = unsafe { &*chunk };
    if header.alone {
        // SAFETY: a reference to it is no null pointer.
        let chunk = unsafe { NonNull::new_unchecked(chunk) };
        // SAFETY: S3: the caller owns it.
        return unsafe { free_chunk(chunk) };
    }
    let shared = Arc::clone(&header.pool);
    let mut head = shared.returned.load(Ordering::Relaxed);
    loop {
        header.next.store(head, Ordering::Relaxed);
        let put =
            shared.returned.compare_exchange_weak(head, chunk, Ordering::SeqCst, Ordering::Relaxed);
        match put {
            Ok(_) => break,
            Err(now) => head = now,
        }
    }
    // From here on the chunk may be gone; `shared` is held by the clone above.
    if shared.closed.load(Ordering::SeqCst) {
        // SAFETY: S3: chunks on the return stack have no tokens left.
        shared.drain(|chunk| unsafe { free_chunk(chunk) });
    } else if shared.starving.load(Ordering::SeqCst)
        && shared.starving.swap(false, Ordering::SeqCst)
    {
        shared.waker.wake();
    }
}

/// The swap buffers of one driver.
pub struct Pool {
    shared: Arc<SwapShared>,
    /// The current chunk; `no_chunk` if there is none.
    current: NonNull<Chunk>,
    /// Where the next lease in the current chunk starts.
    start: *mut u8,
    /// How many bytes of the current chunk are left from there.
    room: u32,
    /// The tokens of the current chunk that are the pool's: `FULL` less one for each lease handed
    /// out.
    rest: u32,
    chunk_size: u32,
    /// A chunk with less room than this is retired: no read gets a smaller buffer.
    least_room: u32,
    free: Vec<NonNull<Chunk>>,
    allocated: usize,
    limit_chunks: usize,
    /// The number of chunks lent to a kernel.
    lent: usize,
}

impl Pool {
    /// A pool of chunks of `chunk_size` bytes (at least 64; rounded up to a multiple of 64), at
    /// most `limit` bytes together but never less than one chunk. `waker` is called, on the thread
    /// that dropped the lease, when a read waits for a chunk and one has come back.
    pub fn new(limit: usize, chunk_size: u32, waker: Arc<dyn Wake>) -> Pool {
        let chunk_size = chunk_size.clamp(ALIGN as u32, 1 << 30).next_multiple_of(ALIGN as u32);
        let least_room = (chunk_size / 2).max(ALIGN as u32);
        Pool {
            shared: Arc::new(SwapShared {
                returned: AtomicPtr::new(ptr::null_mut()),
                starving: AtomicBool::new(false),
                closed: AtomicBool::new(false),
                waker,
                compacted: Compacted::default(),
            }),
            current: no_chunk(),
            start: ptr::null_mut(),
            room: 0,
            rest: FULL,
            chunk_size,
            least_room,
            free: Vec::new(),
            allocated: 0,
            limit_chunks: (limit / chunk_size as usize).max(1),
            lent: 0,
        }
    }

    /// Memory for one read: where it starts and how many bytes there are. `None` when the limit is
    /// reached and every chunk is leased; the pool then wakes its driver when one comes back.
    ///
    /// The memory stays the pool's until [`commit`](Pool::commit).
    #[inline]
    pub fn space(&mut self) -> Option<(*mut u8, u32)> {
        self.reuse_if_returned();
        let at_hand = (self.room >= self.least_room).then_some((self.start, self.room));
        at_hand.or_else(|| self.refill())
    }

    /// As [`space`](Pool::space), but only in the rest of the current chunk.
    #[inline(always)]
    pub(crate) fn space_at_hand(&mut self) -> Option<(*mut u8, u32)> {
        if self.room >= self.least_room { Some((self.start, self.room)) } else { None }
    }

    /// Starts again at the beginning of the current chunk, whose memory is hot, once all its leases
    /// are dropped.
    #[inline(always)]
    pub(crate) fn reuse_if_returned(&mut self) {
        // SAFETY: the count stands at the start of a chunk, and of what `no_chunk` names; the pool
        // holds tokens of its current chunk (S3).
        let tokens = unsafe { self.current.cast::<Tokens>().as_ref() };
        if tokens.are_back(self.rest) {
            self.open(self.current);
        }
    }

    /// Starts to fill a chunk that is the pool's alone (S1).
    fn open(&mut self, chunk: NonNull<Chunk>) {
        // SAFETY: the pool keeps the chunk alive (S3).
        unsafe { chunk.as_ref() }.tokens.refill();
        self.current = chunk;
        self.rest = FULL;
        self.room = self.chunk_size;
        // SAFETY: the data starts behind the header, inside the allocation.
        self.start = unsafe { chunk.as_ptr().cast::<u8>().add(HEADER) };
    }

    /// Turns the first `len` bytes of the last [`space`](Pool::space) into a lease.
    ///
    /// # Safety
    /// `space` has returned memory, nothing else was called since, and the first `len` bytes of the
    /// memory were written; `len` is at most the returned room.
    #[inline]
    pub unsafe fn commit(&mut self, len: u32) -> LeaseMut {
        // SAFETY: the same promise.
        let (chunk, start) = unsafe { self.commit_parts(len) };
        // SAFETY: the parts of a lease, used once.
        let lease = unsafe { Lease::from_parts(chunk, start, len as usize) };
        // SAFETY: S2: no other lease had the bytes, nor has what is left of their last line.
        unsafe { LeaseMut::new(lease, true) }
    }

    /// As [`commit`](Pool::commit): the lease's chunk, and where its bytes start.
    ///
    /// # Safety
    /// As for `commit`.
    #[inline(always)]
    pub(crate) unsafe fn commit_parts(&mut self, len: u32) -> (*mut (), *const u8) {
        let start = self.start;
        // A chunk's size is a multiple of `ALIGN`, so the start stays in the chunk.
        // An empty read takes room, too: the lease needs a token.
        let taken = len.max(1).next_multiple_of(ALIGN as u32);
        // SAFETY: at most what is left of the chunk.
        self.start = unsafe { start.add(taken as usize) };
        self.room -= taken;
        self.rest -= 1;
        (self.current.as_ptr().cast(), start)
    }

    /// Makes one lease of the whole of the last [`space`](Pool::space) and of `rest`, which did not
    /// fit there, in a chunk of its own. If no chunk is free, the bytes come back in a vector.
    ///
    /// # Safety
    /// `space` has answered, nothing else was called since, and all that it answered has been
    /// written.
    #[cold]
    pub(crate) unsafe fn commit_with(&mut self, rest: &[u8]) -> Result<LeaseMut, Vec<u8>> {
        let (start, room) = (self.start, self.room as usize);
        // SAFETY: written, says the caller. Nothing writes there before this function does (S2).
        // Chunks are not freed while the pool lives, even if the refill below retires this one.
        let first: &[u8] = unsafe { std::slice::from_raw_parts(start, room) };
        let whole = [first, rest].concat();
        let Some((start, room)) = self.refill() else { return Err(whole) };
        debug_assert!(whole.len() <= room as usize);
        let len = whole.len().min(room as usize);
        // SAFETY: S2: the space is `room` bytes that belong to the pool alone.
        unsafe { ptr::copy_nonoverlapping(whole.as_ptr(), start, len) };
        // SAFETY: `len` bytes were written right above.
        Ok(unsafe { self.commit(len as u32) })
    }

    /// Copies `bytes` (at most what the pool has room for) into a lease: for drivers whose kernel
    /// fills memory of its own.
    pub fn copy(&mut self, bytes: &[u8]) -> Option<LeaseMut> {
        let (start, room) = self.space()?;
        let len = bytes.len().min(room as usize);
        // SAFETY: S2: the space is `room` bytes that belong to the pool alone.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), start, len) };
        // SAFETY: `len` bytes were written right above.
        Some(unsafe { self.commit(len as u32) })
    }

    /// Copies all of `bytes`, at most a chunk, into a lease.
    pub(crate) fn copy_whole(&mut self, bytes: &[u8]) -> Option<LeaseMut> {
        let (mut start, mut room) = self.space()?;
        if room < bytes.len() as u32 {
            (start, room) = self.refill()?;
        }
        let len = bytes.len().min(room as usize);
        // SAFETY: S2: the space is `room` bytes that belong to the pool alone.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), start, len) };
        // SAFETY: `len` bytes were written right above.
        Some(unsafe { self.commit(len as u32) })
    }

    /// Lets `fill` write into the next space: the first bytes, as many as it returns, become a
    /// lease. `None` when the limit is reached and every chunk is leased. The space is at least
    /// half a chunk, and holds zeros or bytes of earlier reads.
    ///
    /// # Panics
    /// If `fill` returns more than the space has. After that, and after a panic of `fill`, the pool
    /// is as it was.
    pub fn fill(&mut self, fill: impl FnOnce(&mut [u8]) -> usize) -> Option<LeaseMut> {
        let (start, room) = self.space()?;
        // SAFETY: S2: the space is `room` initialised bytes that belong to the pool alone.
        let space = unsafe { std::slice::from_raw_parts_mut(start, room as usize) };
        let len = fill(space);
        assert!(len <= room as usize, "{len} bytes were said to be in a space of {room}");
        // SAFETY: `fill` has the space no more, and all of its bytes are initialised.
        Some(unsafe { self.commit(len as u32) })
    }

    #[cold]
    #[inline(never)]
    fn refill(&mut self) -> Option<(*mut u8, u32)> {
        self.retire();
        let chunk = self.obtain()?;
        self.open(chunk);
        Some((self.start, self.room))
    }

    /// A chunk that is the pool's alone.
    fn obtain(&mut self) -> Option<NonNull<Chunk>> {
        if !self.shared.returned.load(Ordering::Relaxed).is_null() {
            self.take_returned();
        }
        self.free.pop().or_else(|| self.allocate()).or_else(|| {
            self.starve();
            self.free.pop().inspect(|_| self.shared.starving.store(false, Ordering::SeqCst))
        })
    }

    /// Sets the `starving` flag, then looks again: a lease that drops meanwhile sees the flag, or
    /// we see its chunk.
    fn starve(&mut self) {
        self.shared.starving.store(true, Ordering::SeqCst);
        self.take_returned();
    }

    /// Lends a chunk to a kernel that fills it by itself and already has `held` chunks. To get one
    /// back costs a system call, so three quarters of the pool, or at least one chunk, stay
    /// for reads by the loop. Leases may have these, so the last free chunk stays, too.
    pub fn lend(&mut self, held: usize) -> Option<Lent> {
        if held >= self.limit_chunks - self.kept_from_kernel() || self.free_chunks() < 2 {
            return None;
        }
        self.lend_chunk()
    }

    pub(super) fn lend_chunk(&mut self) -> Option<Lent> {
        let chunk = self.obtain()?;
        self.lent += 1;
        // SAFETY: the chunk is the pool's alone (S1).
        let header = unsafe { chunk.as_ref() };
        header.tokens.refill();
        header.lent.store(true, Ordering::Relaxed);
        // SAFETY: the data starts behind the header, inside the allocation.
        let start = unsafe { chunk.as_ptr().cast::<u8>().add(HEADER) };
        Some(Lent { chunk, start, room: self.chunk_size, rest: FULL })
    }

    /// Takes a lent chunk back, which the kernel does not write any more. A chunk of another pool
    /// goes to that pool.
    pub fn take_back(&mut self, lent: Lent) {
        // SAFETY: the lent chunk holds `rest` of its tokens (S3).
        let header = unsafe { lent.chunk.as_ref() };
        if !Arc::ptr_eq(&header.pool, &self.shared) {
            return drop(lent);
        }
        header.lent.store(false, Ordering::Relaxed);
        self.lent -= 1;
        let lent = std::mem::ManuallyDrop::new(lent);
        trace::made(lent.chunk.as_ptr(), trace::Kind::Swap, self.chunk_size as usize);
        if header.tokens.give_up(lent.rest) {
            trace::gone(lent.chunk.as_ptr());
            self.free.push(lent.chunk);
        }
    }

    fn retire(&mut self) {
        let chunk = std::mem::replace(&mut self.current, no_chunk());
        let rest = std::mem::replace(&mut self.rest, FULL);
        self.room = 0;
        if chunk == no_chunk() {
            return;
        }
        trace::made(chunk.as_ptr(), trace::Kind::Swap, self.chunk_size as usize);
        // SAFETY: the pool holds `rest` tokens of its current chunk (S3).
        if unsafe { chunk.as_ref() }.tokens.give_up(rest) {
            trace::gone(chunk.as_ptr());
            self.free.push(chunk);
        }
    }

    fn take_returned(&mut self) {
        let (free, lent) = (&mut self.free, &mut self.lent);
        self.shared.drain(|chunk| {
            // SAFETY: the chunk is the pool's alone (S1).
            let header = unsafe { chunk.as_ref() };
            // A chunk whose leases were dropped, not one taken back unused.
            *lent -= usize::from(header.lent.swap(false, Ordering::Relaxed));
            free.push(chunk);
        });
    }

    fn allocate(&mut self) -> Option<NonNull<Chunk>> {
        if self.allocated >= self.limit_chunks {
            return None;
        }
        self.allocated += 1;
        Some(Chunk::allocate(&self.shared, self.chunk_size, FULL, false))
    }

    /// Bytes that [`Lease::compact`] has copied so far.
    pub fn compacted_bytes(&self) -> u64 {
        self.shared.compacted.0.load(Ordering::Relaxed)
    }

    /// Bytes of chunks that exist.
    pub fn allocated_bytes(&self) -> usize {
        self.allocated * self.chunk_size as usize
    }

    /// Bytes of chunks that leases or a kernel hold, or that have come back and were not reused
    /// yet.
    pub fn leased_bytes(&self) -> usize {
        let at_hand = usize::from(self.current != no_chunk());
        (self.allocated - self.free.len() - at_hand) * self.chunk_size as usize
    }

    /// Bytes of chunks that may exist.
    pub fn limit_bytes(&self) -> usize {
        self.limit_chunks * self.chunk_size as usize
    }

    /// The size of one chunk in bytes.
    pub fn chunk_bytes(&self) -> usize {
        self.chunk_size as usize
    }
}

/// A chunk in a kernel's hands, filled from its start on.
#[derive(Debug)]
pub struct Lent {
    chunk: NonNull<Chunk>,
    start: *mut u8,
    room: u32,
    rest: u32,
}

impl Lent {
    /// The part that is not filled yet.
    pub fn room(&mut self) -> (*mut u8, u32) {
        (self.start, self.room)
    }

    /// Whether no lease has a part of it.
    pub(crate) fn is_unused(&self) -> bool {
        // SAFETY: a `Lent` holds tokens of its chunk (S3).
        unsafe { self.chunk.as_ref() }.tokens.are_back(self.rest)
    }

    /// Turns the next `len` bytes into a lease; nothing where there are none.
    ///
    /// # Safety
    /// The kernel has written them, and will not write them again.
    #[inline]
    pub unsafe fn commit(&mut self, len: u32) -> Buf {
        let start = self.start;
        let len = len.min(self.room);
        if len == 0 {
            // Each lease has a byte at least, so that a chunk has fewer leases than tokens.
            return Buf::NONE;
        }
        // SAFETY: at most what is left of the chunk.
        self.start = unsafe { start.add(len as usize) };
        self.room -= len;
        self.rest -= 1;
        // SAFETY: the parts of a lease, used once: its token was taken off `rest`.
        let lease = unsafe { Lease::from_parts(self.chunk.as_ptr().cast(), start, len as usize) };
        // SAFETY: S2: no other lease had the bytes. The next lease may begin in the same line.
        Buf::from(unsafe { LeaseMut::new(lease, false) })
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        // SAFETY: a `Lent` holds tokens of its chunk (S3).
        trace::made(
            self.chunk.as_ptr(),
            trace::Kind::Swap,
            unsafe { self.chunk.as_ref() }.size as usize,
        );
        // SAFETY: the lent chunk holds `rest` of its tokens (S3).
        if unsafe { self.chunk.as_ref() }.tokens.give_up(self.rest) {
            // SAFETY: those were the last tokens: the chunk is ours.
            unsafe { release(self.chunk.as_ptr()) };
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.retire();
        self.shared.closed.store(true, Ordering::SeqCst);
        self.take_returned();
        for chunk in self.free.drain(..) {
            // SAFETY: S3: free chunks are the pool's alone.
            unsafe { free_chunk(chunk) };
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("chunk_bytes", &self.chunk_size)
            .field("allocated_bytes", &self.allocated_bytes())
            .field("limit_bytes", &self.limit_bytes())
            .finish()
    }
}

mod append;
mod lease;
mod scarcity;
mod tokens;

#[cfg(test)]
mod tests;
