//! Requests for work on files, as what does it beside a selector is told them: a ring, or Linux AIO.

use crate::sys::fd::RawFd;

/// What a request does; the numbers are those of Linux AIO, `IOCB_CMD_*` (linux/aio_abi.h).
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
    /// Stays in the kernel until the descriptor is ready: what tests fill a context with.
    #[cfg(all(test, target_os = "linux", not(any(miri, windlass_kqueue))))]
    Poll = 5,
    /// Reads into an array of `iovec`.
    ReadVectored = 7,
    /// Writes an array of `iovec`.
    WriteVectored = 8,
}

/// One request.
// Elsewhere it is made, and taken by nothing.
#[cfg_attr(not(all(target_os = "linux", not(windlass_kqueue))), allow(dead_code))]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    /// What its completion is known by.
    pub(crate) key: u64,
    pub(crate) code: Code,
    pub(crate) fd: RawFd,
    /// The memory, or an array of `iovec`, which is read at submission only.
    pub(crate) start: *mut u8,
    /// Bytes, or vectors (at most `IOV_MAX`, 1024). The kernel moves at most 2 GiB less a page.
    pub(crate) len: usize,
    /// In the file, in bytes. More than `i64::MAX` is `EINVAL`.
    pub(crate) offset: u64,
    /// `RWF_*` of preadv2(2), of reads and writes.
    pub(crate) rw_flags: u32,
}

/// What a completion says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Completed {
    pub(crate) key: u64,
    /// Bytes (0 for a sync), or `-errno`.
    pub(crate) result: i32,
}
