//! File requests in the form that the engines beside a selector take: a ring, or Linux AIO.

#![allow(unsafe_code)]
//! # Safety
//!
//! The code that makes a [`RawOp`] promises that its memory stays valid.

use crate::sys::fd::RawFd;

/// While the kernel has fewer file operations than `EAGER`, each is submitted by itself, so that a
/// nearly idle device does not wait. Beyond, `BATCH` are submitted together, and the rest at the
/// end of the turn.
pub(crate) const EAGER: u32 = 8;
pub(crate) const BATCH: usize = 16;

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
pub(crate) struct Request {
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
pub(crate) struct RawOp(Request);

impl RawOp {
    /// # Safety
    /// Until the completion with the request's key has been taken, the memory that it names stays
    /// what it is, and what is read into is used by nothing else. It stays for ever if the
    /// completion is never taken. An array of `iovec`, and the descriptor, stay until the request
    /// was submitted.
    #[inline(always)]
    pub(crate) unsafe fn new(request: Request) -> RawOp {
        RawOp(request)
    }

    #[inline(always)]
    #[cfg_attr(not(all(target_os = "linux", not(windlass_kqueue))), allow(dead_code))]
    pub(crate) fn request(&self) -> Request {
        self.0
    }
}

/// A completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Completed {
    pub(crate) key: u64,
    /// Bytes (0 for a sync), or `-errno`.
    pub(crate) result: i32,
}
