//! File requests in the form that the engines beside a selector take: a ring, or Linux AIO.

#![allow(unsafe_code)]
//! # Safety
//!
//! The code that makes a [`RawOp`] promises that its memory stays valid.

use crate::sys::fd::RawFd;

/// Whether the queued requests are submitted before the end of the turn: if there are twice as many
/// as the kernel has, or `most`. So an idle device gets the first request at once, and a busy one,
/// which has enough to do, gets many with one system call.
#[inline]
pub(crate) fn is_batch(queued: usize, in_kernel: u32, most: u32) -> bool {
    queued >= in_kernel.saturating_mul(2).min(most) as usize
}

/// The operation of a request. The numbers are those of Linux AIO, `IOCB_CMD_*` (linux/aio_abi.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum Code {
    /// Reads into memory.
    Read = 0,
    /// Writes memory.
    Write = 1,
    /// fsync(2): all other fields zero. Linux 4.18; `EINVAL` before.
    Fsync = 2,
    /// fdatasync(2): likewise.
    Fdsync = 3,
    /// Stays in the kernel until the descriptor is ready. Tests fill a context with it.
    #[cfg(all(test, target_os = "linux", not(any(miri, windlass_kqueue))))]
    Poll = 5,
    /// Reads into an array of `iovec`.
    ReadVectored = 7,
    /// Writes an array of `iovec`.
    WriteVectored = 8,
}

/// One request.
// Systems without an engine make requests, but nothing reads their fields.
#[cfg_attr(not(all(target_os = "linux", not(windlass_kqueue))), allow(dead_code))]
#[derive(Clone, Copy, Debug)]
pub(crate) struct EngineRequest {
    /// Identifies its completion.
    pub(crate) key: u64,
    pub(crate) code: Code,
    pub(crate) fd: RawFd,
    /// The memory, or an array of `iovec`, which the kernel reads at submission only.
    pub(crate) start: *mut u8,
    /// Bytes, or vectors (at most `IOV_MAX`, 1024). The kernel moves at most 2 GiB less a page.
    pub(crate) len: usize,
    /// The offset in the file, in bytes. More than `i64::MAX` is `EINVAL`.
    pub(crate) offset: u64,
    /// `RWF_*` of preadv2(2), of reads and writes.
    pub(crate) rw_flags: u32,
}

/// A request on memory that its maker keeps. Its key is a ticket's.
#[cfg_attr(not(all(target_os = "linux", not(windlass_kqueue))), allow(dead_code))]
pub(crate) struct RawOp(EngineRequest);

impl RawOp {
    /// # Safety
    /// Until the completion with the request's key has been taken, the memory that it names stays
    /// what it is, and what is read into is used by nothing else. It stays for ever if the
    /// completion is never taken. An array of `iovec`, and the descriptor, stay until the request
    /// was submitted.
    #[inline(always)]
    pub(crate) unsafe fn new(request: EngineRequest) -> RawOp {
        RawOp(request)
    }

    #[inline(always)]
    #[cfg_attr(not(all(target_os = "linux", not(windlass_kqueue))), allow(dead_code))]
    pub(crate) fn request(&self) -> EngineRequest {
        self.0
    }
}

/// A completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileCompletion {
    pub(crate) key: u64,
    /// Bytes (0 for a sync), or `-errno`.
    pub(crate) result: i32,
}

#[cfg(test)]
mod tests {
    use super::is_batch;

    /// How many of `count` requests each system call of a turn submits, by the device's load at its
    /// start.
    fn batches(mut in_kernel: u32, count: u32, most: u32) -> Vec<u32> {
        let (mut batches, mut queued) = (Vec::new(), 0);
        for _ in 0..count {
            queued += 1;
            if is_batch(queued as usize, in_kernel, most) {
                in_kernel += queued;
                batches.push(std::mem::take(&mut queued));
            }
        }
        batches.push(queued);
        batches
    }

    #[test]
    fn a_busy_device_gets_larger_batches() {
        const ANY: u32 = u32::MAX;
        assert_eq!(batches(0, 1, ANY), [1, 0]);
        assert_eq!(batches(0, 32, ANY), [1, 2, 6, 18, 5]);
        assert_eq!(batches(1, 7, ANY), [2, 5]);
        assert_eq!(batches(12, 20, ANY), [20]);
        assert_eq!(batches(100, 28, ANY), [28]);
        assert_eq!(batches(0, 32, 8), [1, 2, 6, 8, 8, 7]);
        assert_eq!(batches(100, 3, 1), [1, 1, 1, 0]);
        assert_eq!(batches(u32::MAX, 3, ANY), [3]);
    }
}
