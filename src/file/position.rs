//! Reads and writes at an offset that go on to their end: if one call leaves bytes, the next call
//! moves them.

#![allow(unsafe_code)]
//! # Safety
//!
//! The one `unsafe` here says how much of a buffer the kernel has filled.

use std::io::IoSlice;

use crate::memory::buf::{Buf, Target};
use crate::sys::fd::RawFd;
use crate::sys::fs::{self, MOST_BYTES, MOST_VECTORS};
use crate::sys::{Moved, sendfile};

/// The length of every direct read is a multiple of this, in bytes, except at a file's tail.
const SECTOR: u64 = 512;

/// How many bytes have moved, and the errno that ended the read or write, if one did.
pub(crate) type Progress = (u64, Result<(), i32>);

/// Calls `attempt` with the number of bytes moved so far, until all of `total` have moved, or an
/// attempt answers 0 or fails.
pub(super) fn repeat(total: u64, mut attempt: impl FnMut(u64) -> Moved) -> Progress {
    const AGAIN: Moved = -(libc::EINTR as Moved);
    let mut done = 0;
    while done < total {
        match attempt(done) {
            0 => break,
            AGAIN => {}
            moved if moved > 0 => done += moved as u64,
            error => return (done, Err(-error as i32)),
        }
    }
    (done, Ok(()))
}

/// Fills the whole room of `buf` with the bytes at `offset`. Fewer bytes mean the end of the file.
/// Afterwards the length of `buf` is the number of bytes read, even if an error ended the read.
///
/// A direct read (`O_DIRECT`) that has taken a file's unaligned tail is at the end of the file. The
/// next read behind the tail fails with `EINVAL` on file systems that check the alignment first.
/// (Those built on iomap check the size first.)
pub(super) fn read(fd: RawFd, buf: &mut Buf, offset: u64) -> Progress {
    let (done, mut ended) = repeat(buf.capacity() as u64, |done| {
        let at = offset.saturating_add(done);
        if !buf.is_list() {
            return fs::read_at(fd, buf.target(done as usize, MOST_BYTES), at);
        }
        let mut targets = Target::nones(buf.parts().len().min(MOST_VECTORS));
        let count = buf.targets(done as usize, MOST_BYTES, &mut targets);
        fs::read_vectored_at(fd, &mut targets[..count], at)
    });
    if ended == Err(libc::EINVAL) && done % SECTOR != 0 && fs::how_open(fd).direct {
        ended = Ok(());
    }
    // SAFETY: the kernel has written so many bytes of the room, in order.
    unsafe { buf.set_filled(done as usize) };
    (done, ended)
}

/// Writes all bytes of `buf` at `offset`. `EIO` if the system takes no bytes and reports no error.
pub(super) fn write(fd: RawFd, buf: &Buf, offset: u64) -> Progress {
    let total = buf.len() as u64;
    let (done, ended) = repeat(total, |done| {
        let at = offset.saturating_add(done);
        if !buf.is_list() {
            let bytes = &buf[done as usize..];
            return fs::write_at(fd, &bytes[..bytes.len().min(MOST_BYTES)], at);
        }
        fs::write_vectored_at(fd, &slices(buf.parts(), done as usize), at)
    });
    (done, ended.and(if done < total { Err(libc::EIO) } else { Ok(()) }))
}

/// The bytes of `parts` from byte `from` on, as far as one call takes them.
fn slices(parts: &[Buf], from: usize) -> Vec<IoSlice<'_>> {
    let mut slices = Vec::with_capacity(parts.len().min(MOST_VECTORS));
    each_slice(parts, from, |slice| slices.push(IoSlice::new(slice)));
    slices
}

/// Gives these bytes to `each`, one slice after the other.
pub(super) fn each_slice<'a>(parts: &'a [Buf], mut from: usize, mut each: impl FnMut(&'a [u8])) {
    let (mut bytes, mut count) = (MOST_BYTES, 0);
    for part in parts {
        if from >= part.len() {
            from -= part.len();
            continue;
        }
        let rest = &part[from..];
        let rest = &rest[..rest.len().min(bytes)];
        each(rest);
        (bytes, count) = (bytes - rest.len(), count + 1);
        from = 0;
        if count == MOST_VECTORS || bytes == 0 {
            break;
        }
    }
}

/// Sends `len` bytes at `offset` of `file` to `socket`. Fewer bytes mean the end of the file. If a
/// non-blocking socket is full, fails with `EAGAIN` and the number of bytes that were sent.
pub(crate) fn send(socket: RawFd, file: RawFd, offset: u64, len: u64) -> Progress {
    let mut memory = Vec::new();
    repeat(len, |done| {
        let at = offset.saturating_add(done);
        let rest = (len - done).min(MOST_BYTES as u64) as usize;
        if memory.is_empty() {
            let sent = sendfile::send_file(socket, file, at, rest);
            if sent != sendfile::UNSUPPORTED {
                return sent;
            }
            memory.resize(COPY.min(rest), 0);
        }
        let most = rest.min(memory.len());
        sendfile::send_copy(socket, file, at, &mut memory[..most])
    })
}

/// How many bytes go through memory at a time, if the kernel does not move them itself.
pub(super) const COPY: usize = 128 << 10;
