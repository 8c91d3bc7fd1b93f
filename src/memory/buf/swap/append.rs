//! Reading behind the bytes of a unique lease.
//!
//! If no other read has used the chunk since, the bytes go directly behind the lease, into the same
//! chunk. Otherwise the lease moves: the bytes go into the space at hand, behind room for the
//! lease's bytes. These are copied in front of the new bytes once the read has succeeded. So a read
//! that waits has copied nothing, and holds no memory besides the lease.

#![allow(unsafe_code)]
//! # Safety
//!
//! Every block cites the invariant of `mod.rs` that it rests on.

use super::lease::copy_all;
use super::{ALIGN, Chunk, LeaseMut, Pool};
use crate::memory::buf::Buf;

/// A lease moves if it has less room behind it than a chunk / `LEAST_PART`.
const LEAST_PART: u32 = 16;

/// Memory for the bytes that are read behind a lease.
pub(crate) struct Behind {
    pub(crate) start: *mut u8,
    pub(crate) room: u32,
    /// The lease's bytes are still to be copied in front of it.
    moves: bool,
}

impl Pool {
    /// How many bytes fit into a chunk behind those of a lease of `len` bytes.
    pub(crate) fn room_behind(&self, len: usize) -> usize {
        (self.chunk_size as usize).saturating_sub(len)
    }

    /// Memory behind `lease`, where a chunk has [room](Pool::room_behind). `None` as for
    /// [`space`](Pool::space). It stays the pool's until [`commit_behind`](Pool::commit_behind).
    pub(crate) fn space_behind(&mut self, lease: &LeaseMut) -> Option<Behind> {
        let len = lease.len() as u32;
        let most = self.chunk_size.checked_sub(len).filter(|&most| most > 0)?;
        let least = (self.chunk_size / LEAST_PART).max(ALIGN as u32).min(most);
        self.space_of(lease, least)
    }

    /// As `space_behind`, at least `least` bytes, which fit into a chunk with those of the lease.
    fn space_of(&mut self, lease: &LeaseMut, least: u32) -> Option<Behind> {
        let len = lease.len() as u32;
        if let Some(pad) = self.gap_behind(lease)
            && self.room + pad >= least
        {
            // SAFETY: S2: the gap between the lease and `start` is the pool's, in the same chunk.
            let start = unsafe { self.start.sub(pad as usize) };
            return Some(Behind { start, room: self.room + pad, moves: false });
        }
        let (mut start, mut room) = self.space()?;
        if room < len + least {
            (start, room) = self.refill()?;
        }
        // SAFETY: the space has room for more than `len` bytes.
        Some(Behind { start: unsafe { start.add(len as usize) }, room: room - len, moves: true })
    }

    /// How many bytes lie between the end of `lease` and `start`, if no lease has any of them.
    fn gap_behind(&self, lease: &LeaseMut) -> Option<u32> {
        if !lease.is_last || lease.lease.chunk != self.current {
            return None;
        }
        let end = lease.as_ptr().addr() + lease.len();
        // Another lease may have been read behind this one; it begins in another line.
        (end.next_multiple_of(ALIGN) == self.start.addr()).then(|| (self.start.addr() - end) as u32)
    }

    /// Makes one lease of `lease` and of the first `len` bytes of the last `space_behind`. Also
    /// returns the number of bytes that it has copied for that.
    ///
    /// # Safety
    /// `space_behind` has answered `behind` for this lease, nothing else was called since, and the
    /// first `len` bytes of it were written.
    pub(crate) unsafe fn commit_behind(
        &mut self,
        mut lease: LeaseMut,
        behind: Behind,
        len: u32,
    ) -> (LeaseMut, usize) {
        let before = lease.len();
        if behind.moves {
            // SAFETY: S2: the space begins with room for the lease's bytes, which lie elsewhere.
            unsafe { copy_all(&[&lease], self.start) };
            // SAFETY: these bytes, and behind them `len` more, were written.
            return (unsafe { self.commit(before as u32 + len) }, before);
        }
        // SAFETY: the caller's promise: at most the room.
        let end = unsafe { behind.start.add(len as usize) };
        let taken = end.addr().next_multiple_of(ALIGN).saturating_sub(self.start.addr());
        // SAFETY: at most what is left of the chunk, whose size is a multiple of a line.
        self.start = unsafe { self.start.add(taken) };
        self.room -= taken as u32;
        lease.lease.len += len;
        (lease, 0)
    }

    /// A copy of a lease and of `bytes` behind it, outside the pool.
    pub(crate) fn alone(&self, lease: &LeaseMut, bytes: &[u8]) -> LeaseMut {
        Chunk::alone(&self.shared, &[lease, bytes])
    }

    /// Makes one lease of `lease` and of `data`, which a kernel has received elsewhere: without a
    /// copy if `data` begins where the lease ends. Also returns the number of bytes that it has
    /// copied.
    pub(crate) fn join(&mut self, lease: LeaseMut, data: Buf) -> (LeaseMut, usize) {
        let (lease, data) = match data.into_lease_mut() {
            Ok(data) => match lease.try_join(data) {
                Ok(whole) => return (whole, 0),
                Err((lease, data)) => (lease, Buf::from(data)),
            },
            Err(data) => (lease, data),
        };
        self.append(lease, &data)
    }

    /// Makes one lease of `lease` and of a copy of `bytes`: outside the pool if the limit is
    /// reached, or a chunk is too small. Also returns the number of bytes that it has copied.
    pub(super) fn append(&mut self, lease: LeaseMut, bytes: &[u8]) -> (LeaseMut, usize) {
        let fits = lease.len() + bytes.len() <= self.chunk_size as usize;
        let space = if fits { self.space_of(&lease, bytes.len() as u32) } else { None };
        let Some(behind) = space else {
            let whole = self.alone(&lease, bytes);
            let copied = whole.len();
            return (whole, copied);
        };
        // SAFETY: S2: the space has room for them, and belongs to the pool alone.
        unsafe { copy_all(&[bytes], behind.start) };
        // SAFETY: written right above.
        let (whole, moved) = unsafe { self.commit_behind(lease, behind, bytes.len() as u32) };
        (whole, moved + bytes.len())
    }
}
