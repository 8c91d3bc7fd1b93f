//! Files by descriptor: positional reads and writes, durability, space.
//!
//! All of these keep the file position. They may block, for as long as a disk takes; only
//! [`read_now`] does not. What std does right everywhere ([`std::fs::File`]: fsync, ftruncate,
//! fchmod …) is called through [`file()`].

#![allow(unsafe_code)]
//! # Safety
//!
//! As in `descriptor`: descriptors are numbers, memory is passed as pointer and length of a slice
//! or of a `Target`, which is exclusively the caller's.

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io::{self, IoSlice};
use std::mem::ManuallyDrop;
use std::os::unix::ffi::OsStrExt;

use crate::sys::fd::{AsRawFd, FromRawFd, RawFd};
use crate::sys::target::Target;
use crate::sys::types::Metadata;
use crate::sys::{Moved, OpenMode, descriptor, os_errno, os_error, stat, syscall};

pub(crate) use libc::{
    F_OK, O_ACCMODE as ACCESS_MODE, O_CLOEXEC as CLOEXEC, O_NOFOLLOW as NOFOLLOW,
    O_NONBLOCK as NONBLOCKING, O_SYNC as SYNC, R_OK, W_OK, X_OK,
};
pub(crate) use system::{DIRECT, DSYNC};

/// The most vectors that one call takes (IOV_MAX: 1024 on Linux, macOS and the BSDs).
pub(crate) const MOST_VECTORS: usize = 1024;
/// The most bytes that one call moves: Linux' MAX_RW_COUNT (read(2)); macOS refuses more than
/// 2^31-1.
pub(crate) const MOST_BYTES: usize = 0x7fff_f000;

/// A part of memory, as a call takes it.
pub(crate) type Vector = libc::iovec;

#[cfg(any(target_os = "linux", target_os = "android"))]
mod system {
    use super::{IoSlice, Moved, RawFd, io, syscall};

    pub(super) use libc::{
        off64_t as Offset, open64 as open, pread64 as pread, pwrite64 as pwrite,
    };
    pub(crate) const DIRECT: i32 = libc::O_DIRECT;
    pub(crate) const DSYNC: i32 = libc::O_DSYNC;

    pub(super) fn readv(fd: RawFd, to: &[libc::iovec], offset: Offset) -> Moved {
        // SAFETY: the caller passes vectors over memory that the caller may write.
        syscall!(unsafe { libc::preadv64(fd, to.as_ptr(), to.len() as i32, offset) })
    }

    pub(super) fn writev(fd: RawFd, parts: &[IoSlice<'_>], offset: Offset) -> Moved {
        // SAFETY: an IoSlice is an iovec.
        syscall!(unsafe { libc::pwritev64(fd, parts.as_ptr().cast(), parts.len() as i32, offset) })
    }

    #[inline(always)]
    pub(super) fn read_now(fd: RawFd, to: &[libc::iovec], offset: u64) -> Moved {
        // SAFETY: as for `readv`.
        unsafe { crate::sys::call::read_now(fd, to.as_ptr(), to.len(), offset) }
    }

    pub(super) fn allocate(fd: RawFd, offset: Offset, len: Offset) -> Result<(), i32> {
        // SAFETY: no memory is passed.
        match syscall!(unsafe { libc::fallocate64(fd, 0, offset, len) }) {
            0 => Ok(()),
            error => Err(-error as i32),
        }
    }

    pub(super) fn is_direct(flags: i32) -> bool {
        flags & DIRECT != 0
    }

    pub(super) fn opened(_: RawFd, _: bool) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod system {
    use super::{IoSlice, Moved, RawFd, io, syscall};

    pub(super) use libc::{off_t as Offset, open, pread, pwrite};
    #[cfg(any(target_os = "freebsd", target_os = "dragonfly"))]
    pub(crate) const DIRECT: i32 = libc::O_DIRECT;
    /// No such flag: macOS has a call instead (see `opened`), OpenBSD has nothing.
    #[cfg(not(any(target_os = "freebsd", target_os = "dragonfly")))]
    pub(crate) const DIRECT: i32 = 0;
    #[cfg(not(target_os = "dragonfly"))]
    pub(crate) const DSYNC: i32 = libc::O_DSYNC;
    #[cfg(target_os = "dragonfly")]
    pub(crate) const DSYNC: i32 = libc::O_SYNC;

    /// Before macOS 11 there is no preadv(2): the first part is read, the caller continues.
    #[cfg(target_vendor = "apple")]
    pub(super) fn readv(fd: RawFd, to: &[libc::iovec], offset: Offset) -> Moved {
        let Some(first) = to.iter().find(|vector| vector.iov_len > 0) else { return 0 };
        // SAFETY: the caller passes memory that the caller may write.
        syscall!(unsafe { libc::pread(fd, first.iov_base, first.iov_len, offset) })
    }

    /// As `readv`.
    #[cfg(target_vendor = "apple")]
    pub(super) fn writev(fd: RawFd, parts: &[IoSlice<'_>], offset: Offset) -> Moved {
        let Some(first) = parts.iter().find(|part| !part.is_empty()) else { return 0 };
        super::write_one(fd, first, offset)
    }

    #[cfg(not(target_vendor = "apple"))]
    pub(super) fn readv(fd: RawFd, to: &[libc::iovec], offset: Offset) -> Moved {
        // SAFETY: the caller passes vectors over memory that the caller may write.
        syscall!(unsafe { libc::preadv(fd, to.as_ptr(), to.len() as i32, offset) })
    }

    #[cfg(not(target_vendor = "apple"))]
    pub(super) fn writev(fd: RawFd, parts: &[IoSlice<'_>], offset: Offset) -> Moved {
        // SAFETY: an IoSlice is an iovec.
        syscall!(unsafe { libc::pwritev(fd, parts.as_ptr().cast(), parts.len() as i32, offset) })
    }

    #[cfg(any(target_os = "freebsd", target_os = "dragonfly"))]
    pub(super) fn is_direct(flags: i32) -> bool {
        flags & DIRECT != 0
    }

    #[cfg(not(any(target_os = "freebsd", target_os = "dragonfly")))]
    pub(super) fn is_direct(_: i32) -> bool {
        false
    }

    /// Only Linux has RWF_NOWAIT.
    pub(super) fn read_now(_: RawFd, _: &[libc::iovec], _: u64) -> Moved {
        -(libc::EOPNOTSUPP as Moved)
    }

    #[cfg(any(target_os = "freebsd", target_os = "dragonfly"))]
    pub(super) fn allocate(fd: RawFd, offset: Offset, len: Offset) -> Result<(), i32> {
        // SAFETY: no memory is passed; it answers an errno.
        match unsafe { libc::posix_fallocate(fd, offset, len) } {
            0 => Ok(()),
            -1 => Err(crate::sys::errno()),
            error => Err(error),
        }
    }

    #[cfg(not(any(target_os = "freebsd", target_os = "dragonfly")))]
    pub(super) fn allocate(_: RawFd, _: Offset, _: Offset) -> Result<(), i32> {
        Err(libc::EOPNOTSUPP)
    }

    #[cfg(target_vendor = "apple")]
    pub(super) fn opened(fd: RawFd, direct: bool) -> io::Result<()> {
        if direct {
            // SAFETY: no memory is passed.
            crate::sys::cvt!(unsafe { libc::fcntl(fd, libc::F_NOCACHE, 1) })?;
        }
        Ok(())
    }

    #[cfg(not(target_vendor = "apple"))]
    pub(super) fn opened(_: RawFd, _: bool) -> io::Result<()> {
        Ok(())
    }
}

fn vectors(to: &mut [Target<'_>]) -> Vec<libc::iovec> {
    let vector =
        |t: &mut Target<'_>| libc::iovec { iov_base: t.as_mut_ptr().cast(), iov_len: t.len() };
    to.iter_mut().map(vector).collect()
}

/// pread(2)
pub(crate) fn read_at(fd: RawFd, mut to: Target<'_>, offset: u64) -> Moved {
    // SAFETY: the target is ours to write. An offset beyond 2^63 is negative there: EINVAL.
    syscall!(unsafe { system::pread(fd, to.as_mut_ptr().cast(), to.len(), offset as _) })
}

/// preadv(2) of at most [`MOST_VECTORS`] targets; on macOS of the first.
pub(crate) fn read_vectored_at(fd: RawFd, to: &mut [Target<'_>], offset: u64) -> Moved {
    system::readv(fd, &vectors(to), offset as _)
}

/// pwrite(2)
pub(crate) fn write_at(fd: RawFd, bytes: &[u8], offset: u64) -> Moved {
    write_one(fd, bytes, offset as _)
}

fn write_one(fd: RawFd, bytes: &[u8], offset: system::Offset) -> Moved {
    // SAFETY: pointer and length of a slice.
    syscall!(unsafe { system::pwrite(fd, bytes.as_ptr().cast(), bytes.len(), offset) })
}

/// pwritev(2) of at most [`MOST_VECTORS`] parts; on macOS of the first that has bytes.
pub(crate) fn write_vectored_at(fd: RawFd, parts: &[IoSlice<'_>], offset: u64) -> Moved {
    system::writev(fd, parts, offset as _)
}

/// Reads what the page cache has, without waiting for the disk (preadv2(2), `RWF_NOWAIT`, Linux
/// 4.14). `-EAGAIN` where nothing is cached at the offset, `-EOPNOTSUPP` where file system, kernel
/// or system cannot say. Fewer bytes may be the end of the file or of what is cached; 0 is the end.
#[inline(always)]
pub(crate) fn read_now(fd: RawFd, mut to: Target<'_>, offset: u64) -> Moved {
    let vector = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() };
    system::read_now(fd, &[vector], offset)
}

/// As [`read_now`], into at most [`MOST_VECTORS`] vectors, whose memory is the caller's to write.
pub(crate) fn read_list_now(fd: RawFd, to: &[Vector], offset: u64) -> Moved {
    system::read_now(fd, to, offset)
}

/// Starts the write-back of a range and waits for it (sync_file_range(2)): no metadata, no flush of
/// the disk's cache. A `len` of 0 is up to the end. `EOPNOTSUPP` where the system has none.
#[cfg(target_os = "linux")]
pub(crate) fn sync_range(fd: RawFd, offset: u64, len: u64) -> Result<(), i32> {
    let how = libc::SYNC_FILE_RANGE_WAIT_BEFORE
        | libc::SYNC_FILE_RANGE_WRITE
        | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    // SAFETY: no memory is passed.
    match syscall!(unsafe { libc::sync_file_range(fd, offset as _, len as _, how) }) {
        0 => Ok(()),
        error => Err(-error as i32),
    }
}

/// Only Linux has it (and Android's libc hides it).
#[cfg(not(target_os = "linux"))]
pub(crate) fn sync_range(_: RawFd, _: u64, _: u64) -> Result<(), i32> {
    Err(libc::EOPNOTSUPP)
}

/// Gives a range of a file its place on the disk and grows the file to its end (fallocate(2),
/// posix_fallocate(2) on FreeBSD). `ENOSPC`; `EOPNOTSUPP` where file system or system (macOS,
/// OpenBSD) cannot; `EINVAL` for no bytes; `EFBIG`.
pub(crate) fn allocate(fd: RawFd, offset: u64, len: u64) -> Result<(), i32> {
    system::allocate(fd, offset as _, len as _)
}

/// What fcntl(2) says of a descriptor. Of a number that is not open it says nothing.
pub(crate) fn how_open(fd: RawFd) -> OpenMode {
    // SAFETY: no memory is passed.
    let flags = syscall!(unsafe { libc::fcntl(fd, libc::F_GETFL) }) as i32;
    if flags < 0 {
        return OpenMode::default();
    }
    OpenMode {
        direct: system::is_direct(flags),
        appends: flags & libc::O_APPEND != 0,
        synchronous: flags & (libc::O_SYNC | libc::O_DSYNC) != 0,
    }
}

/// open(2), always closed on exec. `direct` is `F_NOCACHE` where it is no flag.
pub(crate) fn open(path: &OsStr, flags: i32, mode: u32, direct: bool) -> io::Result<File> {
    let path = c_path(path)?;
    let flags = flags | libc::O_CLOEXEC;
    loop {
        // SAFETY: a string that ends in NUL; the mode is read as an unsigned int.
        let fd = unsafe { system::open(path.as_ptr(), flags, mode as libc::c_uint) };
        if fd >= 0 {
            let fd = descriptor::own(fd);
            system::opened(fd.as_raw_fd(), direct)?;
            return Ok(File::from(fd));
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// As [`open`], for regular files only, with the file's `stat`: `EISDIR` for a directory, `EINVAL`
/// for others. Opening a FIFO blocks until the other end is open, and opening a device may block,
/// too. So we open with `O_NONBLOCK`, and clear the flag once the file turns out to be regular.
pub(crate) fn open_regular(path: &OsStr, flags: i32, mode: u32) -> io::Result<(File, Metadata)> {
    let check = |known: &Metadata| known.kind().check_regular().map_err(os_error);
    let opened = open(path, flags | libc::O_NONBLOCK, mode, false).or_else(|error| {
        match os_errno(&error) {
            // A FIFO without a reader, a socket, or a missing device.
            Some(libc::ENXIO | libc::EOPNOTSUPP | libc::ENODEV) => {
                check(&stat::of_path(path, true)?)?;
                Err(error)
            }
            // Another process holds a lease on the regular file (fcntl(2)): the open has notified
            // it, and it will release the lease.
            Some(libc::EAGAIN) => {
                check(&stat::of_path(path, true)?)?;
                open(path, flags, mode, false)
            }
            _ => Err(error),
        }
    })?;
    let known = stat::of_descriptor(opened.as_raw_fd())?;
    check(&known)?;
    descriptor::set_nonblocking(opened.as_raw_fd(), false)?;
    Ok((opened, known))
}

/// A descriptor that the caller keeps open, as std's file: it is not closed.
pub(crate) fn file(fd: RawFd) -> ManuallyDrop<File> {
    // SAFETY: the number is only lent: the file is never dropped.
    ManuallyDrop::new(unsafe { File::from_raw_fd(fd) })
}

/// A path as the system takes it. `InvalidInput` for one with a NUL.
pub(super) fn c_path(path: &OsStr) -> io::Result<CString> {
    CString::new(path.as_bytes()).map_err(|_| io::ErrorKind::InvalidInput.into())
}
