//! Swap buffers that the kernel holds: a ring of provided buffers, which the kernel consumes piece
//! by piece (`IOU_PBUF_RING_INC`).
//!
//! Each entry is a whole chunk of the pool. The kernel fills the chunk read by read, and reports
//! when it is done with the chunk. Each read becomes a lease on its piece, as it does when the loop
//! reads.

#![allow(unsafe_code)]
//! # Safety
//!
//! (U3) The mapping is as large as the ring that was registered, and stays until the kernel's ring
//! is gone. (U4) A chunk in an entry is lent by the pool: only the kernel writes it.

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::types::BufRingEntry;

use super::buffer_target::BufferTarget;
use crate::memory::buf::Buf;
use crate::memory::buf::swap::{Lent, Pool};
use crate::sys::step;
use crate::sys::uring::Uring;

/// Entries of the ring: chunks that the kernel may hold at once.
const ENTRIES: u16 = 512;
/// The kernel leaves the last sixteenth of a chunk unused, if it has this feature. So the end of a
/// chunk does not cut a message that is no longer than this part.
const MIN_LEFT_PART: u32 = 16;

pub(super) struct Buffers {
    entries: NonNull<BufRingEntry>,
    tail: u16,
    /// The chunk of each id, while the kernel has it.
    lent: Vec<Option<Lent>>,
    vacant: Vec<u16>,
    buffer_target: BufferTarget,
    /// A receive that goes on has used up a chunk. Only this flag asks for the next chunk.
    needs_chunk: bool,
    /// The kernel has got a chunk since it last failed to give one back.
    can_recall: bool,
    /// How many bytes at the end of a chunk the kernel leaves unused, so as not to cut a message
    /// there.
    min_left: u32,
}

impl Buffers {
    /// Registers the ring; `None` where the kernel does not know how.
    pub(super) fn new(uring: &Uring, chunk_bytes: u32) -> io::Result<Option<Buffers>> {
        let len = size_of::<BufRingEntry>() * ENTRIES as usize;
        // SAFETY: a new anonymous mapping.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(step::at("mmap(2) of buffers", io::Error::last_os_error()));
        }
        let Some(entries) = NonNull::new(start.cast::<BufRingEntry>()) else {
            return Err(io::Error::from_raw_os_error(libc::ENOMEM));
        };
        let mut buffers = Buffers {
            entries,
            tail: 0,
            lent: (0..ENTRIES).map(|_| None).collect(),
            vacant: (0..ENTRIES).rev().collect(),
            buffer_target: BufferTarget::new(chunk_bytes),
            needs_chunk: false,
            can_recall: false,
            min_left: 0,
        };
        // SAFETY: U3.
        match unsafe { uring.register_buffers(start.cast(), ENTRIES, chunk_bytes / MIN_LEFT_PART) }
        {
            Ok(min_left) => {
                buffers.min_left = min_left;
                Ok(Some(buffers))
            }
            Err(error) => match error.raw_os_error() {
                Some(libc::ENOMEM) => Err(step::at("io_uring_register(2) of buffers", error)),
                _ => Ok(None),
            },
        }
    }

    fn held(&self) -> u16 {
        ENTRIES - self.vacant.len() as u16
    }

    /// Lends the kernel chunks until it holds as many as are wanted. Returns whether it holds any.
    #[inline]
    pub(super) fn fill(&mut self, pool: &mut Pool) -> bool {
        if self.held() < self.buffer_target.wanted() {
            self.fill_slowly(pool);
        }
        self.held() > 0
    }

    /// As [`fill`](Buffers::fill); returns how many buffers the kernel holds.
    pub(super) fn filled_up(&mut self, pool: &mut Pool) -> usize {
        self.fill(pool);
        self.held().into()
    }

    #[cold]
    fn fill_slowly(&mut self, pool: &mut Pool) {
        while self.held() < self.buffer_target.wanted()
            && let Some(mut chunk) = pool.lend(self.held() as usize)
        {
            let id = self.vacant.pop().expect("fewer than all are wanted");
            let (start, len) = chunk.room();
            let index = (self.tail & (ENTRIES - 1)) as usize;
            // SAFETY: U3: one of the mapping's entries.
            let mut entry = unsafe { self.entries.add(index) };
            // SAFETY: the kernel does not look at entries behind the tail.
            let entry = unsafe { entry.as_mut() };
            entry.set_addr(start.expose_provenance() as u64);
            entry.set_len(len);
            entry.set_bid(id);
            self.lent[id as usize] = Some(chunk);
            self.can_recall = true;
            self.tail = self.tail.wrapping_add(1);
        }
        // SAFETY: U3: the tail stands in the first entry.
        let tail = unsafe { BufRingEntry::tail(self.entries.as_ptr()) };
        // SAFETY: a u16 of the mapping, which the kernel only reads.
        let tail = unsafe { AtomicU16::from_ptr(tail.cast_mut()) };
        tail.store(self.tail, Ordering::Release);
    }

    /// The kernel has run out of buffers, and should hold more.
    pub(super) fn ran_out(&mut self) {
        self.buffer_target.ran_out();
    }

    /// How many bytes at the end of a chunk the kernel leaves unused.
    pub(super) fn min_left(&self) -> u32 {
        self.min_left
    }

    /// Whether the kernel holds a chunk that no lease uses, and may give it back.
    pub(super) fn can_recall(&self) -> bool {
        self.can_recall && self.held() > 0 && self.lent.iter().flatten().any(Lent::is_unused)
    }

    /// The kernel has given no chunk back. Without new ones, it is not asked again.
    pub(super) fn recall_failed(&mut self) {
        self.can_recall = false;
    }

    /// How many chunks the kernel is to hold.
    pub(super) fn wanted(&self) -> u16 {
        self.buffer_target.wanted()
    }

    /// Call when all answers of the last wait were handled. If receives that go on have used up
    /// chunks, lends the kernel others, whose leases may have come back meanwhile.
    #[inline]
    pub(super) fn refill(&mut self, pool: &mut Pool) {
        // While the pool is scarce, no multishot receive continues in the kernel.
        if std::mem::take(&mut self.needs_chunk) && !pool.is_scarce() {
            self.fill(pool);
        }
    }

    /// A round ends: the kernel is entered again, and no completion is left to be handled.
    #[inline]
    pub(super) fn round(&mut self) {
        self.buffer_target.round();
    }

    /// Whether the pool is large enough to share it with the kernel.
    pub(super) fn can_lend(&self, pool: &Pool) -> bool {
        pool.limit_bytes() > pool.chunk_bytes()
    }

    /// The kernel has filled `len` bytes of buffer `id`. If `more`, the kernel goes on filling the
    /// buffer. If `lasting`, the receive goes on.
    #[inline]
    pub(super) fn filled(
        &mut self,
        pool: &mut Pool,
        id: u16,
        len: u32,
        more: bool,
        lasting: bool,
    ) -> Buf {
        let place = &mut self.lent[id as usize];
        let chunk = place.as_mut().expect("the kernel names what it holds");
        // SAFETY: the kernel has written the next `len` bytes of this chunk.
        let data = unsafe { chunk.commit(len) };
        if !more {
            self.needs_chunk |= lasting;
            pool.take_back(place.take().expect("looked at above"));
            self.vacant.push(id);
        }
        data
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        let len = size_of::<BufRingEntry>() * ENTRIES as usize;
        // SAFETY: U3: the ring has been dropped before (field order), so that the kernel's
        // registration is gone; nothing else knows the mapping.
        unsafe { libc::munmap(self.entries.as_ptr().cast(), len) };
    }
}
