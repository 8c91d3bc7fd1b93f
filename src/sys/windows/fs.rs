//! Files by handle: positional reads and writes, through Win32; the rest through std.
//!
//! Unlike elsewhere, reads and writes at an offset move the file position, which nothing here uses.

#![allow(unsafe_code)]
//! # Safety
//!
//! As in `descriptor`; and an `OVERLAPPED` lives on the stack until its call has ended, also where
//! the handle is an asynchronous one.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice};
use std::mem::ManuallyDrop;
use std::os::windows::fs::OpenOptionsExt;
use std::os::windows::io::FromRawHandle;
use std::ptr;

use crate::sys::error::{code, of_code};
use crate::sys::fd::{AsRawFd, RawFd, handle, is_file};
use crate::sys::target::Target;
use crate::sys::types::Metadata;
use crate::sys::windows::api::{self, HANDLE, OVERLAPPED};
use crate::sys::{Moved, OpenMode, os_error, stat};

/// The most parts that one call is handed; it takes the first that has bytes.
pub(crate) const MOST_VECTORS: usize = 1;
/// The most bytes that one call moves.
pub(crate) const MOST_BYTES: usize = 0x7fff_f000;

/// A part of memory. No call takes it.
#[derive(Clone, Copy)]
pub(crate) struct Vector {
    pub(crate) iov_base: *mut libc::c_void,
    pub(crate) iov_len: usize,
}

/// The questions that access(2) answers.
pub(crate) const F_OK: i32 = 0;
pub(crate) const X_OK: i32 = 1;
pub(crate) const W_OK: i32 = 2;
pub(crate) const R_OK: i32 = 4;

/// The flags below are the C library's, whose values have 16 bits; above them stand those of
/// CreateFile. Nothing is inherited.
pub(crate) const CLOEXEC: i32 = libc::O_NOINHERIT;
pub(crate) const ACCESS_MODE: i32 = 3;
/// No flag: `open` refuses files that are to bypass the cache.
pub(crate) const DIRECT: i32 = 0;
/// Each write goes through the cache to the disk.
pub(crate) const SYNC: i32 = api::FILE_FLAG_WRITE_THROUGH as i32;
pub(crate) const DSYNC: i32 = SYNC;
/// No opening waits here.
pub(crate) const NONBLOCKING: i32 = 0;
/// A link itself is opened.
pub(crate) const NOFOLLOW: i32 = api::FILE_FLAG_OPEN_REPARSE_POINT as i32;

/// ReadFile at an offset. 0 is the end of the file.
pub(crate) fn read_at(fd: RawFd, mut to: Target<'_>, offset: u64) -> Moved {
    let (start, len) = (to.as_mut_ptr(), to.len().min(MOST_BYTES) as u32);
    at(fd, offset, |file, moved, overlapped| {
        // SAFETY: the target is ours to write; the rest is `at`'s.
        unsafe { api::ReadFile(file, start, len, moved, overlapped) }
    })
}

/// [`read_at`] of the first target that has room.
pub(crate) fn read_vectored_at(fd: RawFd, to: &mut [Target<'_>], offset: u64) -> Moved {
    let first = to.iter_mut().find(|target| !target.is_empty());
    first.map_or(0, |target| read_at(fd, target.skip(0), offset))
}

/// WriteFile at an offset, or at the end of a file that is only appended to.
pub(crate) fn write_at(fd: RawFd, bytes: &[u8], offset: u64) -> Moved {
    let (start, len) = (bytes.as_ptr(), bytes.len().min(MOST_BYTES) as u32);
    at(fd, offset, |file, moved, overlapped| {
        // SAFETY: pointer and length of a slice; the rest is `at`'s.
        unsafe { api::WriteFile(file, start, len, moved, overlapped) }
    })
}

/// [`write_at`] of the first part that has bytes.
pub(crate) fn write_vectored_at(fd: RawFd, parts: &[IoSlice<'_>], offset: u64) -> Moved {
    let first = parts.iter().find(|part| !part.is_empty());
    first.map_or(0, |part| write_at(fd, part, offset))
}

/// Makes a call at an offset and waits for its end.
fn at(
    fd: RawFd,
    offset: u64,
    call: impl FnOnce(HANDLE, *mut u32, *mut OVERLAPPED) -> i32,
) -> Moved {
    if !is_file(fd) {
        return -(libc::EBADF as Moved);
    }
    // The highest one would mean the end of the file.
    if offset > i64::MAX as u64 {
        return -(libc::EINVAL as Moved);
    }
    let mut overlapped = OVERLAPPED {
        Internal: 0,
        InternalHigh: 0,
        Offset: offset as u32,
        OffsetHigh: (offset >> 32) as u32,
        hEvent: ptr::null_mut(),
    };
    let mut moved = 0;
    if call(handle(fd), &mut moved, &mut overlapped) != 0 {
        return moved as Moved;
    }
    let mut error = code();
    // The handle is asynchronous: the system has the memory until the call has ended. This waits
    // for the handle, which another call can signal.
    while matches!(error, api::ERROR_IO_PENDING | api::ERROR_IO_INCOMPLETE) {
        // SAFETY: the call that was begun above, which has not ended.
        let ended = unsafe { api::GetOverlappedResult(handle(fd), &mut overlapped, &mut moved, 1) };
        if ended != 0 {
            return moved as Moved;
        }
        error = code();
    }
    match error {
        api::ERROR_HANDLE_EOF => 0,
        // The file was opened for the other direction.
        api::ERROR_ACCESS_DENIED => -(libc::EBADF as Moved),
        // The errno for a directory.
        api::ERROR_INVALID_FUNCTION => -(libc::EISDIR as Moved),
        error => -(of_code(error) as Moved),
    }
}

/// Windows does not report the contents of its cache.
pub(crate) fn read_now(_: RawFd, _: Target<'_>, _: u64) -> Moved {
    -(libc::EOPNOTSUPP as Moved)
}

/// As [`read_now`], for several parts.
pub(crate) fn read_list_now(_: RawFd, _: &[Vector], _: u64) -> Moved {
    -(libc::EOPNOTSUPP as Moved)
}

/// There is no such call.
pub(crate) fn sync_range(_: RawFd, _: u64, _: u64) -> Result<(), i32> {
    Err(libc::EOPNOTSUPP)
}

/// There is no such call that would keep the file's length right for other writers.
pub(crate) fn allocate(_: RawFd, _: u64, _: u64) -> Result<(), i32> {
    Err(libc::EOPNOTSUPP)
}

/// Handles do not say.
pub(crate) fn how_open(_: RawFd) -> OpenMode {
    OpenMode::default()
}

/// Opens a file by std, shared in every mode, not inherited. `EINVAL` for one that is to bypass
/// the cache. A directory can be opened for reading only. The permissions are Windows' own.
pub(crate) fn open(path: &OsStr, flags: i32, mode: u32, direct: bool) -> io::Result<File> {
    let _ = mode;
    if direct {
        return Err(os_error(libc::EINVAL));
    }
    let has = |flag| flags & flag == flag;
    let writes = flags & ACCESS_MODE != libc::O_RDONLY;
    let directories = if writes { 0 } else { api::FILE_FLAG_BACKUP_SEMANTICS };
    OpenOptions::new()
        .read(flags & ACCESS_MODE != libc::O_WRONLY)
        .write(writes && !has(libc::O_APPEND))
        .append(has(libc::O_APPEND))
        .truncate(has(libc::O_TRUNC) && !has(libc::O_EXCL))
        .create(has(libc::O_CREAT))
        .create_new(has(libc::O_CREAT | libc::O_EXCL))
        .custom_flags(flags as u32 & 0xffff_0000 | directories)
        .open(path)
}

/// As [`open`], for regular files only, with the file's `stat`: `EISDIR` for a directory, `EINVAL`
/// for others.
pub(crate) fn open_regular(path: &OsStr, flags: i32, mode: u32) -> io::Result<(File, Metadata)> {
    let opened = open(path, flags, mode, false)?;
    let known = stat::of_descriptor(opened.as_raw_fd())?;
    known.kind().check_regular().map_err(os_error)?;
    Ok((opened, known))
}

/// A descriptor that the caller keeps open, as std's file: it is not closed.
pub(crate) fn file(fd: RawFd) -> ManuallyDrop<File> {
    let handle = if is_file(fd) { handle(fd) } else { ptr::null_mut() };
    // SAFETY: the handle is only lent: the file is never dropped. None is an error to every call.
    ManuallyDrop::new(unsafe { File::from_raw_handle(handle) })
}
