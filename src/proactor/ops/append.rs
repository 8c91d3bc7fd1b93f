//! Reads behind the bytes of a buffer: into the spare capacity of a vector, or behind a lease.

#![allow(unsafe_code)]
//! # Safety
//!
//! What a kernel says it has written becomes a part of a lease or a vector: the promise of
//! `Kernel`'s implementers.

use crate::completion::Done;
use crate::kernel::{Calls, Kernel};
use crate::memory::buf::swap::LeaseMut;
use crate::memory::buf::{Buf, Target};
use crate::proactor::Proactor;
use crate::proactor::ops::read::takes_lease;
use crate::proactor::ops::submit::{check_len, check_most};
use crate::words::error::Refusal;

impl<K: Kernel> Proactor<K> {
    /// Checks that a read of this source can go behind the bytes of a buffer.
    pub(in crate::proactor) fn check_append(&self, index: u32, buf: &Buf) -> Result<(), Refusal> {
        // A datagram is not the continuation of another one.
        if self.sources[index].kind().is_message() || buf.is_list() {
            return Err(Refusal::Unsupported);
        }
        let room = match buf.is_unique_lease() {
            true => self.memory.pool.room_behind(buf.len()),
            false => buf.capacity().saturating_sub(buf.len()),
        };
        check_len(room)?;
        check_most(buf.len())
    }

    /// One attempt of a read behind the bytes of a buffer.
    pub(in crate::proactor) fn run_append(&mut self, index: u32, slot: u32, left: &mut usize) {
        if takes_lease(&self.ops[slot]) && self.holds_share(index) {
            return self.wait_for_share(index);
        }
        let op = &mut self.ops[slot];
        let state = &mut self.sources[index];
        let from = op.count as usize;
        let (buf, got, room) = match op.buf.take().into_lease_mut() {
            Ok(lease) => {
                let Some(behind) = self.memory.pool.space_behind(&lease) else {
                    return self.run_append_alone(index, slot, lease, left);
                };
                let room = behind.room;
                // SAFETY: the pool lends `room` bytes at `start` until `commit_behind`.
                let target = unsafe { Target::from_raw(behind.start, room as usize) };
                let got = self.kernel.calls_mut().recv(state.fd, state.kind(), target);
                if got.moved > 0 {
                    let len = got.moved as u32;
                    // SAFETY: the kernel has written `len` bytes of the space.
                    let (whole, copied) =
                        unsafe { self.memory.pool.commit_behind(lease, behind, len) };
                    self.stats.counters.copied_bytes += copied as u64;
                    (Buf::from(whole), got, room)
                } else {
                    (Buf::from(lease), got, room)
                }
            }
            Err(mut buf) => {
                let target = buf.target(from, usize::MAX);
                let room = target.len() as u32;
                let got = self.kernel.calls_mut().recv(state.fd, state.kind(), target);
                if got.moved > 0 {
                    // SAFETY: the kernel has written `moved` bytes behind the first `from`.
                    unsafe { buf.set_filled(from + got.moved as usize) };
                }
                (buf, got, room)
            }
        };
        if got.moved <= 0 {
            op.buf = buf;
            return self.read_stopped(index, slot, got);
        }
        let bytes = got.moved as u32;
        state.settle(bytes, room, got.cut);
        *left = left.saturating_sub(bytes as usize);
        self.sched.turn_bytes -= bytes as isize;
        self.finish_read(index, slot, Ok(Done::Appended { buf, bytes }));
    }

    /// One attempt at the pool's limit. The read must not wait until a lease comes back, because
    /// that could be the lease that it holds itself. The lease and the new bytes get memory of
    /// their own.
    #[cold]
    fn run_append_alone(&mut self, index: u32, slot: u32, lease: LeaseMut, left: &mut usize) {
        let state = &mut self.sources[index];
        let room = self.memory.pool.room_behind(lease.len());
        self.memory.spill.clear();
        self.memory.spill.reserve(room);
        // SAFETY: `room` bytes of capacity, which nothing else uses meanwhile.
        let target = unsafe { Target::from_raw(self.memory.spill.as_mut_ptr(), room) };
        let got = self.kernel.calls_mut().recv(state.fd, state.kind(), target);
        if got.moved <= 0 {
            self.ops[slot].buf = Buf::from(lease);
            return self.read_stopped(index, slot, got);
        }
        let bytes = got.moved as u32;
        // SAFETY: the kernel has written so many bytes, at most the capacity.
        unsafe { self.memory.spill.set_len(bytes as usize) };
        state.settle(bytes, room as u32, got.cut);
        *left = left.saturating_sub(bytes as usize);
        self.sched.turn_bytes -= bytes as isize;
        let whole = self.memory.pool.alone(&lease, &self.memory.spill);
        self.stats.counters.copied_bytes += whole.len() as u64;
        let buf = Buf::from(whole);
        self.finish_read(index, slot, Ok(Done::Appended { buf, bytes }));
    }

    /// The kernel has received `bytes` bytes, behind those of a vector or, for a read behind a
    /// lease, into `data`.
    pub(in crate::proactor) fn append_answered(
        &mut self,
        index: u32,
        slot: u32,
        bytes: u32,
        data: Buf,
    ) {
        let op = &mut self.ops[slot];
        let from = op.count as usize;
        let buf = match op.buf.take().into_lease_mut() {
            Ok(lease) => {
                let (whole, copied) = self.memory.pool.join(lease, data);
                self.stats.counters.copied_bytes += copied as u64;
                Buf::from(whole)
            }
            Err(mut buf) => {
                // SAFETY: the kernel has written `bytes` bytes behind the first `from`.
                unsafe { buf.set_filled(from + bytes as usize) };
                buf
            }
        };
        self.finish_read(index, slot, Ok(Done::Appended { buf, bytes }));
    }
}
