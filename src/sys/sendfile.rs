//! Bytes from a file to a socket or another file, inside the kernel where it can.
//!
//! Each call moves what it can, and returns the number of bytes or `-errno`. `-EOPNOTSUPP` stands
//! for every errno by which the kernel says that it cannot serve these descriptors. Then the bytes
//! are copied through memory.

#![allow(unsafe_code)]
//! # Safety
//!
//! Descriptors are numbers; offsets and counts that are passed by address live on the stack.

use crate::sys::fd::RawFd;
#[cfg(not(any(target_os = "openbsd", windows)))]
use crate::sys::syscall;
use crate::sys::target::Target;
use crate::sys::{Moved, descriptor, fs, net};

pub(crate) const UNSUPPORTED: Moved = -(libc::EOPNOTSUPP as Moved);

/// The answer of a call that does not know these descriptors becomes [`UNSUPPORTED`]. `EXDEV`,
/// `EINVAL` and `EBADF` (of a target that appends): copy_file_range(2), sendfile(2),
/// ioctl_ficlone(2); `EPERM` and `ENOSYS`: filters of containers; `ENOTTY`: a file system without
/// reflinks.
#[cfg(not(any(target_os = "openbsd", windows)))]
fn known(moved: Moved) -> Moved {
    const NOT_KNOWN: [i32; 9] = [
        libc::ENOSYS,
        libc::EINVAL,
        libc::EXDEV,
        libc::EPERM,
        libc::EBADF,
        libc::ENOTTY,
        libc::ENOTSOCK,
        libc::ENOTSUP,
        libc::EOPNOTSUPP,
    ];
    if moved < 0 && NOT_KNOWN.contains(&(-moved as i32)) { UNSUPPORTED } else { moved }
}

/// sendfile(2): up to `len` bytes at `offset` of `file` to `socket`. 0 is the end of the file. A
/// blocking socket is waited for; a non-blocking one answers `-EAGAIN`, and a part where there was
/// room for one. It takes no `MSG_NOSIGNAL`: a disconnected peer would raise SIGPIPE.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) fn send_file(socket: RawFd, file: RawFd, offset: u64, len: usize) -> Moved {
    let mut at = offset as libc::off64_t;
    let send = || {
        // SAFETY: the offset lives on this stack.
        syscall!(unsafe { libc::sendfile64(socket, file, &mut at, len) })
    };
    known(crate::sys::sigpipe::without(send))
}

/// As on Linux. These systems also report the bytes that were sent before an error.
#[cfg(any(target_vendor = "apple", target_os = "freebsd", target_os = "dragonfly"))]
pub(crate) fn send_file(socket: RawFd, file: RawFd, offset: u64, len: usize) -> Moved {
    let none = std::ptr::null_mut();
    let at = offset as libc::off_t;
    #[cfg(target_vendor = "apple")]
    let (answer, sent) = {
        let mut sent = len as libc::off_t;
        // SAFETY: the count lives on this stack; no headers.
        (syscall!(unsafe { libc::sendfile(file, socket, at, &mut sent, none, 0) }), sent)
    };
    #[cfg(not(target_vendor = "apple"))]
    let (answer, sent) = {
        let mut sent = 0;
        let mut send = || {
            // SAFETY: the count lives on this stack; no headers.
            syscall!(unsafe { libc::sendfile(file, socket, at, len, none, &mut sent, 0) })
        };
        (crate::sys::sigpipe::without(&mut send), sent)
    };
    let stopped = answer == -(libc::EAGAIN as Moved) || answer == -(libc::EINTR as Moved);
    if answer == 0 || stopped && sent > 0 { sent as Moved } else { known(answer) }
}

/// OpenBSD has no such call; TransmitFile would move the file position and wait for the peer.
#[cfg(any(target_os = "openbsd", windows))]
pub(crate) fn send_file(_: RawFd, _: RawFd, _: u64, _: usize) -> Moved {
    UNSUPPORTED
}

/// As [`send_file`], through `memory`: one read, one write that does not block a socket.
pub(crate) fn send_copy(socket: RawFd, file: RawFd, offset: u64, memory: &mut [u8]) -> Moved {
    let got = fs::read_at(file, Target::from_slice(memory), offset);
    if got <= 0 {
        return got;
    }
    let bytes = &memory[..got as usize];
    match net::send(socket, bytes) {
        answer if answer == -(libc::ENOTSOCK as Moved) && !cfg!(windows) => {
            descriptor::write(socket, bytes)
        }
        answer => answer,
    }
}

/// copy_file_range(2): up to `len` bytes at `offset` of `from` to the same place in `to`; shares
/// the blocks where the file system can. 0 is the end of the file, or (of files of /proc) nothing
/// known.
#[cfg(any(target_os = "linux", target_os = "freebsd"))]
pub(crate) fn copy_range(from: RawFd, to: RawFd, offset: u64, len: usize) -> Moved {
    let (mut read, mut written) = (offset as _, offset as _);
    // SAFETY: the offsets live on this stack.
    known(syscall!(unsafe { libc::copy_file_range(from, &mut read, to, &mut written, len, 0) }))
}

/// This system has no such call.
#[cfg(not(any(target_os = "linux", target_os = "freebsd")))]
pub(crate) fn copy_range(_: RawFd, _: RawFd, _: u64, _: usize) -> Moved {
    UNSUPPORTED
}

/// Where the next data at or behind `offset` starts and ends (lseek(2); behind the last data that
/// is the size, twice). `None` if the system does not say, or if the file ends at `offset` or
/// before. Moves the position of the file.
#[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
pub(crate) fn next_data(file: RawFd, offset: u64) -> Option<(u64, u64)> {
    #[cfg(target_os = "freebsd")]
    use libc::lseek;
    #[cfg(not(target_os = "freebsd"))]
    use libc::lseek64 as lseek;
    let seek = |at: u64, whence| {
        // SAFETY: no memory is passed.
        syscall!(unsafe { lseek(file, at as _, whence) })
    };
    match seek(offset, libc::SEEK_DATA) {
        start @ 0.. => {
            let end = seek(start as u64, libc::SEEK_HOLE);
            (end > start).then_some((start as u64, end as u64))
        }
        // There is no data behind: a hole up to the end, or nothing.
        error if error == -(libc::ENXIO as Moved) => {
            let size = seek(0, libc::SEEK_END);
            (size > offset as Moved).then_some((size as u64, size as u64))
        }
        _ => None,
    }
}

/// These systems do not say it, or not reliably.
#[cfg(not(any(target_os = "linux", target_os = "android", target_os = "freebsd")))]
pub(crate) fn next_data(_: RawFd, _: u64) -> Option<(u64, u64)> {
    None
}

/// Makes `to` share all blocks of `from` (ioctl_ficlone(2): btrfs, XFS, overlays of them …): 0, or
/// `-EOPNOTSUPP` where they cannot.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) fn clone_blocks(from: RawFd, to: RawFd) -> Moved {
    // SAFETY: the third argument is a descriptor.
    known(syscall!(unsafe { libc::ioctl(to, libc::FICLONE as _, from) }))
}

/// Only Linux clones into an open file.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(crate) fn clone_blocks(_: RawFd, _: RawFd) -> Moved {
    UNSUPPORTED
}
