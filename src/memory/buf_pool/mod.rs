//! A pool of a program's own buffers in size classes, and a tracer of buffers that never come back.
//!
//! A read without a buffer needs no pool: it returns a [lease](crate::Lease). A [`BufPool`] is for
//! a program that passes memory of its own to operations ([`Op::read_into`](crate::Op::read_into),
//! formatted answers, direct I/O) and wants to allocate it once. It hands out plain vectors, and
//! [`AlignedBuf`]s for direct I/O. Their sizes are powers of two. A completion returns the buffer
//! of its operation however the operation ended, so the program can give it back to the pool:
//!
//! ```
//! use std::io::Write;
//! use std::os::unix::net::UnixStream;
//! use windlass::buf_pool::BufPool;
//! use windlass::{Completions, Done, Op, Watcher};
//!
//! let (ours, mut theirs) = UnixStream::pair()?;
//! let mut watcher = Watcher::new()?;
//! let source = watcher.attach(ours)?;
//! let pool = BufPool::traced(64 << 10, 16 << 20);
//!
//! theirs.write_all(b"hello")?;
//! watcher.submit(Op::read_into(source, pool.take(1000)))?;
//! let mut done = Completions::new();
//! watcher.wait(&mut done)?;
//! for c in done.drain(..) {
//!     match c.result {
//!         Ok(Done::Read(data)) => {
//!             assert_eq!((&*data, data.capacity()), (&b"hello"[..], 1024));
//!             pool.give(data);
//!         }
//!         Ok(other) => panic!("{other:?}"),
//!         Err(error) => pool.give(error.into_buf()), // also after a deadline or a cancel
//!     }
//! }
//! let report = pool.report().expect("the pool is traced");
//! assert!(report.places.is_empty(), "these buffers have not come back:\n{report}");
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! # What cannot go wrong, and what can
//!
//! A buffer has one owner, so no program can give it back twice, or use it afterwards:
//!
//! ```compile_fail,E0382
//! let pool = windlass::buf_pool::BufPool::default();
//! let buf = pool.take(100);
//! pool.give(buf);
//! pool.give(buf); // error: use of moved value
//! ```
//!
//! A program can drop a buffer instead of giving it back. Then the memory is freed, and the pool
//! allocates again. The [report](BufPool::report) of a traced pool names the line that has taken
//! such a buffer. A program can also give back a buffer that is not the pool's. The pool
//! looks only at its capacity and its alignment, so that does no harm. The bound on the memory that
//! the pool keeps holds for all buffers.

mod sizes;
#[cfg(test)]
mod tests;
mod tracer;

use std::fmt;
use std::panic::Location;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::memory::aligned::AlignedBuf;
use crate::memory::buf::Buf;
use sizes::{PoolMemory, Sizes};
use tracer::Tracer;

pub use sizes::{PoolCounters, SizeClass};
pub use tracer::{TakenAt, TraceReport};

/// The smallest vector, in bytes.
const LEAST: usize = 32;
/// The smallest aligned buffer, and the alignment of all.
const BLOCK: usize = 4096;
/// The largest size class that there may be.
const MOST: usize = 1 << 30;

/// A pool of buffers in size classes, which threads share: a clone is the same pool.
///
/// A vector's size class is a power of two from 32 bytes on, an aligned buffer's one from 4096 on.
/// Both end at the pool's largest class. The pool keeps buffers that come back, up to a bound in
/// bytes, and frees the others. It holds no memory for buffers that are out. Its methods take one
/// lock for a short time. Threads that take buffers very often should have a pool each.
///
/// The allocator is faster than the pool for vectors of about a kilobyte. The pool is faster for
/// large and aligned buffers, and it has the bound, the counts and the tracer.
///
/// The default has classes up to 64 KiB, keeps 16 MiB, and is not traced.
#[derive(Clone)]
pub struct BufPool(Arc<BufPoolShared>);

struct BufPoolShared {
    largest: usize,
    keep: usize,
    kept: Mutex<Kept>,
    tracer: Option<Mutex<Tracer>>,
}

/// The buffers that are in the pool.
struct Kept {
    vectors: Sizes<Vec<u8>>,
    aligned: Sizes<AlignedBuf>,
}

impl Kept {
    /// How many bytes may be kept besides.
    fn room(&self, keep: usize) -> usize {
        keep.saturating_sub(self.vectors.kept_bytes() + self.aligned.kept_bytes())
    }
}

impl BufPool {
    /// A pool with size classes up to `largest` bytes that keeps at most `keep` bytes.
    ///
    /// `largest` is rounded up to a power of two, from 32 bytes to 1 GiB. With `keep` 0 the pool
    /// keeps nothing, and only counts.
    pub fn new(largest: usize, keep: usize) -> BufPool {
        BufPool::with_tracer(largest, keep, None)
    }

    /// A pool that remembers which line of the program has taken each buffer, for
    /// [`report`](BufPool::report).
    ///
    /// This is for debugging: every call takes a second lock, and each buffer that does not come
    /// back costs about 50 bytes for the life of the pool.
    pub fn traced(largest: usize, keep: usize) -> BufPool {
        BufPool::with_tracer(largest, keep, Some(Mutex::default()))
    }

    fn with_tracer(largest: usize, keep: usize, tracer: Option<Mutex<Tracer>>) -> BufPool {
        let largest = largest.clamp(LEAST, MOST).next_power_of_two();
        let kept =
            Kept { vectors: Sizes::new(LEAST, largest), aligned: Sizes::new(BLOCK, largest) };
        BufPool(Arc::new(BufPoolShared { largest, keep, kept: Mutex::new(kept), tracer }))
    }

    /// The size of the largest class, in bytes.
    pub fn largest(&self) -> usize {
        self.0.largest
    }

    /// How many bytes the pool keeps at most.
    pub fn keep(&self) -> usize {
        self.0.keep
    }

    /// An empty vector with room for `len` bytes.
    ///
    /// Its capacity is the least size class that is enough, or `len` if none is. (It can be more,
    /// but less than twice the class, if a buffer of such a size was given back.)
    ///
    /// # Panics
    ///
    /// If `len` is more than `isize::MAX`, as `Vec` does.
    #[track_caller]
    pub fn take(&self, len: usize) -> Vec<u8> {
        let size = sizes::rounded(len, LEAST, self.0.largest);
        let kept = self.kept().vectors.take(size);
        let vec = kept.unwrap_or_else(|| Vec::with_capacity(size));
        self.trace_taken(&vec);
        vec
    }

    /// An empty buffer with room for `len` bytes that starts at a multiple of 4096 bytes, as direct
    /// I/O needs it.
    ///
    /// Its capacity is the least size class from 4096 on that is enough, or else the next multiple
    /// of 4096. [`set_len`](AlignedBuf::set_len) can show bytes that earlier users of the buffer
    /// have left in it. For memory that is registered with a ring see
    /// [`Watcher::aligned_buf`](crate::Watcher::aligned_buf).
    ///
    /// # Panics
    ///
    /// If `len` is more than `isize::MAX`.
    #[track_caller]
    pub fn take_aligned(&self, len: usize) -> AlignedBuf {
        let size = sizes::rounded(len, BLOCK, self.0.largest);
        let kept = self.kept().aligned.take(size);
        let buf = kept.unwrap_or_else(|| AlignedBuf::with_capacity(size, BLOCK));
        self.trace_taken(&buf);
        buf
    }

    /// Gives a buffer back: a vector, an aligned buffer, or the buffer of a completion.
    ///
    /// The pool empties the buffer and keeps it for a later [`take`](BufPool::take). It frees the
    /// buffer instead if
    ///
    /// - it would keep more than its bound,
    /// - the capacity is less than the least size class, or at least twice the largest,
    /// - an aligned buffer has an alignment below 4096, or registered memory, which goes back to
    ///   its watcher.
    ///
    /// A buffer of any origin may be given. Of a list the pool takes the parts. It drops every
    /// other kind of buffer (a lease, static bytes, a part of a vector …).
    pub fn give(&self, buf: impl Into<Buf>) {
        let buf = buf.into();
        if buf.is_list() {
            buf.into_parts().for_each(|part| self.give_one(part));
        } else {
            self.give_one(buf);
        }
    }

    fn give_one(&self, buf: Buf) {
        match buf.into_aligned() {
            Ok(aligned) => self.keep_one(aligned, |kept| &mut kept.aligned),
            // Only a vector has room for a read now: the buffer is no list.
            Err(buf) if buf.capacity() > 0 => {
                self.keep_one(buf.into_vec(), |kept| &mut kept.vectors)
            }
            Err(_) => {}
        }
    }

    fn keep_one<M: PoolMemory>(&self, memory: M, sizes: fn(&mut Kept) -> &mut Sizes<M>) {
        self.trace_given(&memory);
        let mut kept = self.kept();
        let room = kept.room(self.0.keep);
        let freed = sizes(&mut kept).give(memory, room);
        drop((kept, freed)); // unlocks first
    }

    /// Makes room for `more` bytes behind those of `buf`.
    ///
    /// A vector without this room is replaced by one of a larger size class with the same bytes,
    /// and goes back to the pool. A vector that grows by itself would stay out of the pool's
    /// counts.
    ///
    /// ```
    /// let pool = windlass::buf_pool::BufPool::default();
    /// let mut buf = pool.take(100);
    /// pool.append(&mut buf, &[7; 100]);
    /// assert_eq!(buf.capacity(), 128);
    /// pool.append(&mut buf, b"more than 128 bytes together");
    /// assert_eq!((buf.len(), buf.capacity()), (128, 128));
    /// pool.reserve(&mut buf, 1);
    /// assert_eq!((buf.len(), buf.capacity()), (128, 256));
    /// pool.give(buf);
    /// assert_eq!(pool.counters().kept_bytes, 128 + 256);
    /// ```
    ///
    /// # Panics
    ///
    /// If the vector would have more than `isize::MAX` bytes.
    #[track_caller]
    pub fn reserve(&self, buf: &mut Vec<u8>, more: usize) {
        if more <= buf.capacity() - buf.len() {
            return;
        }
        let len = buf.len().checked_add(more).expect("a length is at most isize::MAX");
        // Beyond the largest class the capacity doubles, as a vector's does.
        let doubled = if len > self.0.largest { 2 * buf.capacity() } else { 0 };
        let mut larger = self.take(len.max(doubled));
        larger.extend_from_slice(buf);
        self.give(std::mem::replace(buf, larger));
    }

    /// Appends `bytes` to `buf`, in a larger vector if need be: see [`reserve`](BufPool::reserve).
    ///
    /// # Panics
    ///
    /// If the vector would have more than `isize::MAX` bytes.
    #[track_caller]
    pub fn append(&self, buf: &mut Vec<u8>, bytes: &[u8]) {
        self.reserve(buf, bytes.len());
        buf.extend_from_slice(bytes);
    }

    /// Frees buffers that the pool keeps, the largest first, until it keeps at most `bytes`.
    pub fn trim(&self, bytes: usize) {
        let mut freed = (Vec::new(), Vec::new());
        let mut kept = self.kept();
        let Kept { vectors, aligned } = &mut *kept;
        while vectors.kept_bytes() + aligned.kept_bytes() > bytes {
            if vectors.largest_kept() > aligned.largest_kept() {
                freed.0.extend(vectors.free_largest());
            } else {
                freed.1.extend(aligned.free_largest());
            }
        }
        drop((kept, freed)); // unlocks first
    }

    /// What the pool has done, and how much it keeps.
    pub fn counters(&self) -> PoolCounters {
        let kept = self.kept();
        kept.vectors.counters() + kept.aligned.counters()
    }

    /// The size classes: those of vectors from 32 bytes on, then those of aligned buffers from 4096
    /// on. Buffers of other sizes are in [`counters`](BufPool::counters) only.
    pub fn classes(&self) -> Vec<SizeClass> {
        let kept = self.kept();
        kept.vectors.classes(false).chain(kept.aligned.classes(true)).collect()
    }

    /// Which lines of the program have taken the buffers that have not come back; `None` if the
    /// pool is not [traced](BufPool::traced).
    pub fn report(&self) -> Option<TraceReport> {
        let tracer = self.0.tracer.as_ref()?;
        Some(tracer.lock().unwrap_or_else(PoisonError::into_inner).report())
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        // Nothing panics while the lock is held.
        self.0.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[track_caller]
    fn trace_taken(&self, memory: &impl PoolMemory) {
        if let Some(tracer) = &self.0.tracer {
            let mut tracer = tracer.lock().unwrap_or_else(PoisonError::into_inner);
            tracer.taken(memory.start(), memory.bytes(), Location::caller());
        }
    }

    fn trace_given(&self, memory: &impl PoolMemory) {
        if let Some(tracer) = &self.0.tracer {
            tracer.lock().unwrap_or_else(PoisonError::into_inner).given(memory.start());
        }
    }
}

impl Default for BufPool {
    fn default() -> BufPool {
        BufPool::new(64 << 10, 16 << 20)
    }
}

impl fmt::Debug for BufPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BufPool")
            .field("largest", &self.0.largest)
            .field("keep", &self.0.keep)
            .field("counters", &self.counters())
            .finish_non_exhaustive()
    }
}
