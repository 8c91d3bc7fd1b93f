//! Memory that the driver receives into: a swap buffer, a spill for what does not fit, and leases
//! on both.

#![allow(unsafe_code)]
//! # Safety
//!
//! What a kernel says it has written becomes the length of a lease: the promise of `Kernel`'s
//! implementers.

use crate::kernel::{Calls, Kernel, Received};
use crate::memory::buf::swap::{Lent, Pool};
use crate::memory::buf::{Buf, Target};
use crate::proactor::Proactor;
use crate::proactor::parts::state::WAITING;

/// Memory from the pool for one read.
pub(in crate::proactor) struct Space {
    pub(in crate::proactor) start: *mut u8,
    pub(in crate::proactor) room: u32,
    /// The chunk, if only this read uses it.
    pub(in crate::proactor) own: Option<Lent>,
}

impl<K: Kernel> Proactor<K> {
    /// Memory for a read of the source: the current chunk, or while the pool is scarce a chunk of
    /// its own for a multishot read. `None` if no chunk is free, or the source holds its share:
    /// then the source waits.
    #[inline]
    pub(in crate::proactor) fn memory(&mut self, index: u32, multishot: bool) -> Option<Space> {
        if multishot && self.memory.pool.is_scarce() {
            return self.own_memory(index);
        }
        match self.memory.pool.space() {
            Some((start, room)) => Some(Space { start, room, own: None }),
            None => {
                self.wait_for_lease(index);
                None
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn own_memory(&mut self, index: u32) -> Option<Space> {
        let key = self.sources[index].name(index).key();
        let free = self.memory.pool.free_chunks();
        self.note_owners();
        if !self.sched.waits.shares.may_take(key, free) {
            self.stats.counters.share_waits += 1;
            self.sources[index].flags |= WAITING;
            self.note_reading(index);
            self.sched.waits.shares.wait(key);
            self.sched.waits.note();
            return None;
        }
        if let Some(mut own) = self.memory.pool.lend_to(key) {
            let (start, room) = own.room();
            return Some(Space { start, room, own: Some(own) });
        }
        // Reads share the rest of the current chunk. While the chunk has room, each turn resumes
        // reads that wait.
        let shared = self.memory.pool.space().map(|(start, room)| Space { start, room, own: None });
        if shared.is_none() {
            self.wait_for_lease(index);
        }
        shared
    }

    /// Returns unused memory.
    #[inline]
    pub(in crate::proactor) fn give_back(&mut self, memory: Space) {
        if let Some(own) = memory.own {
            self.memory.pool.take_back(own);
        }
    }

    /// The targets of a message: the space that the pool has lent and, if that is less than a swap
    /// buffer, a spill behind it. The kernel drops the part of a message that does not fit.
    pub(in crate::proactor) fn message_targets<'a>(
        spill: &'a mut Vec<u8>,
        pool: &Pool,
        start: *mut u8,
        room: u32,
    ) -> [Target<'a>; 2] {
        let rest = pool.chunk_bytes() - room as usize;
        spill.clear();
        spill.reserve(rest);
        // SAFETY: the pool lends `room` bytes at `start` until `commit`.
        let first = unsafe { Target::from_raw(start, room as usize) };
        // SAFETY: `rest` bytes of capacity, borrowed for as long as the target lives.
        [first, unsafe { Target::from_raw(spill.as_mut_ptr(), rest) }]
    }

    /// Receives into the `room` bytes at `start` that the pool has lent. The rest of a message that
    /// does not fit there goes into the spill.
    #[inline]
    pub(in crate::proactor) fn receive(
        &mut self,
        index: u32,
        start: *mut u8,
        room: u32,
    ) -> Received {
        let state = &self.sources[index];
        if state.kind().is_message() && (room as usize) < self.memory.pool.chunk_bytes() {
            let mut to =
                Self::message_targets(&mut self.memory.spill, &self.memory.pool, start, room);
            return self.kernel.calls_mut().recv_vectored(state.fd, state.kind(), &mut to);
        }
        // SAFETY: the pool lends `room` bytes at `start` until `commit`.
        let target = unsafe { Target::from_raw(start, room as usize) };
        self.kernel.calls_mut().recv(state.fd, state.kind(), target)
    }

    /// A lease on `len` received bytes: they stand in the `room` bytes that the pool has lent and,
    /// beyond these, in the spill; or in a chunk of the read's own.
    ///
    /// # Safety
    /// The bytes were received there, and the pool was not used since.
    #[inline]
    pub(in crate::proactor) unsafe fn lease(
        &mut self,
        len: u32,
        room: u32,
        own: Option<Lent>,
    ) -> Buf {
        if let Some(mut own) = own {
            let key = own.owner();
            // SAFETY: the same promise; the read's own chunk has room for all of it.
            let data = unsafe { own.commit(len) };
            self.memory.pool.take_back(own);
            self.sched.waits.shares.take(key);
            return data;
        }
        if len <= room {
            // SAFETY: the same promise.
            return Buf::from(unsafe { self.memory.pool.commit(len) });
        }
        // SAFETY: the kernel has written the bytes beyond the room, at most the capacity.
        unsafe { self.memory.spill.set_len((len - room) as usize) };
        // SAFETY: the kernel has filled the room.
        match unsafe { self.memory.pool.commit_with(&self.memory.spill) } {
            // Joined here, then copied into another swap buffer.
            Ok(lease) => {
                self.stats.counters.copied_bytes += 2 * u64::from(len);
                Buf::from(lease)
            }
            Err(bytes) => {
                self.stats.counters.copied_bytes += u64::from(len);
                Buf::from(bytes)
            }
        }
    }
}
