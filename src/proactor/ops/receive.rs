//! Memory that the driver receives into: a swap buffer, a spill for what does not fit, and leases
//! on both.

#![allow(unsafe_code)]
//! # Safety
//!
//! What a kernel says it has written becomes the length of a lease: the promise of `Kernel`'s
//! implementers.

use crate::kernel::{Calls, Kernel, Received};
use crate::memory::buf::swap::Pool;
use crate::memory::buf::{Buf, Target};
use crate::proactor::Proactor;

impl<K: Kernel> Proactor<K> {
    /// Memory for a read of the source: where it starts, and how many bytes there are. `None` if no
    /// chunk is free, or the source's writes hold its share: then the source waits.
    #[inline]
    pub(in crate::proactor) fn memory(&mut self, index: u32) -> Option<(*mut u8, u32)> {
        if self.holds_share(index) {
            self.wait_for_share(index);
            return None;
        }
        let space = self.memory.pool.space();
        if space.is_none() {
            self.wait_for_lease(index);
        }
        space
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
    /// beyond these, in the spill.
    ///
    /// # Safety
    /// The bytes were received there, and the pool was not used since.
    #[inline]
    pub(in crate::proactor) unsafe fn lease(&mut self, len: u32, room: u32) -> Buf {
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
