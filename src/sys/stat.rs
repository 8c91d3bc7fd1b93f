//! The attributes of a file: statx(2) on Linux, std's stat elsewhere.

#![allow(unsafe_code)]
//! # Safety
//!
//! Paths end in NUL; the struct that the kernel fills is local and zeroed.

use std::ffi::OsStr;
use std::fs::{self, FileType};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::sys::fd::RawFd;
use crate::sys::fs::file;
use crate::sys::types::{DirectAlignment, FileKind, Metadata};

/// The kind of a file according to its entry in the directory.
pub(crate) fn kind_of(kind: FileType) -> FileKind {
    let table = [
        (kind.is_file(), FileKind::File),
        (kind.is_dir(), FileKind::Directory),
        (kind.is_symlink(), FileKind::Symlink),
        (kind.is_block_device(), FileKind::BlockDevice),
        (kind.is_char_device(), FileKind::CharDevice),
        (kind.is_fifo(), FileKind::Fifo),
        (kind.is_socket(), FileKind::Socket),
    ];
    table.iter().find(|(is, _)| *is).map_or(FileKind::Unknown, |(_, kind)| *kind)
}

/// What std knows of a file.
impl From<&fs::Metadata> for Metadata {
    fn from(known: &fs::Metadata) -> Metadata {
        Metadata {
            device: known.dev(),
            inode: known.ino(),
            mode: known.mode(),
            links: known.nlink(),
            user: known.uid(),
            group: known.gid(),
            device_of_node: known.rdev(),
            size: known.size(),
            block_size: known.blksize(),
            blocks: known.blocks(),
            accessed: time(known.atime(), known.atime_nsec() as u32),
            modified: time(known.mtime(), known.mtime_nsec() as u32),
            changed: time(known.ctime(), known.ctime_nsec() as u32),
            created: known.created().ok(),
            direct: None,
        }
    }
}

/// The attributes of an open file.
pub(crate) fn of_descriptor(fd: RawFd) -> io::Result<Metadata> {
    match system::of_descriptor(fd) {
        Some(answer) => answer,
        None => file(fd).metadata().map(|metadata| Metadata::from(&metadata)),
    }
}

/// The kind of an open file, as the bits `S_IFMT` of its mode. No file system is asked for what the
/// kernel knows of every open file: one that is slow, or that hangs, would hold the caller up.
pub(crate) fn known_kind(fd: RawFd) -> io::Result<libc::mode_t> {
    match system::known(fd) {
        Some(answer) => answer.map(|(mode, _)| libc::mode_t::from(mode) & libc::S_IFMT),
        None => file(fd).metadata().map(|metadata| metadata.mode() as libc::mode_t & libc::S_IFMT),
    }
}

/// What direct I/O on an open file needs, if the kernel knows it, which asks no file system.
pub(crate) fn known_alignment(fd: RawFd) -> Option<DirectAlignment> {
    system::known(fd)?.ok()?.1
}

/// The attributes of the file at a path; of a link itself if `follow` is false.
pub(crate) fn of_path(path: &OsStr, follow: bool) -> io::Result<Metadata> {
    match system::of_path(path, follow) {
        Some(answer) => answer,
        None if follow => std::fs::metadata(path).map(|metadata| Metadata::from(&metadata)),
        None => std::fs::symlink_metadata(path).map(|metadata| Metadata::from(&metadata)),
    }
}

/// Seconds since 1970, or before it, and nanoseconds after that. A time that cannot be represented
/// is 1970.
fn time(seconds: i64, nanoseconds: u32) -> SystemTime {
    let span = Duration::from_secs(seconds.unsigned_abs());
    let second =
        if seconds < 0 { UNIX_EPOCH.checked_sub(span) } else { UNIX_EPOCH.checked_add(span) };
    let nanoseconds = Duration::from_nanos(nanoseconds.into());
    second.and_then(|second| second.checked_add(nanoseconds)).unwrap_or(UNIX_EPOCH)
}

#[cfg(any(target_os = "linux", target_os = "android"))]
mod system {
    use super::{DirectAlignment, Metadata, OsStr, RawFd, io, time};
    use crate::sys::{cvt, fs};
    use std::ffi::CStr;

    const ALL: u32 = libc::STATX_BASIC_STATS | libc::STATX_BTIME | libc::STATX_DIOALIGN;

    pub(super) fn of_descriptor(fd: RawFd) -> Option<io::Result<Metadata>> {
        statx(fd, c"", libc::AT_EMPTY_PATH, ALL).map(|answer| answer.map(|raw| convert(&raw)))
    }

    /// The mode and the alignment, without a question to a server (`AT_STATX_DONT_SYNC`).
    pub(super) fn known(fd: RawFd) -> Option<io::Result<(u16, Option<DirectAlignment>)>> {
        let flags = libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC;
        let answer = statx(fd, c"", flags, libc::STATX_TYPE | libc::STATX_DIOALIGN)?;
        Some(answer.map(|raw| (raw.stx_mode, alignment(&raw))))
    }

    pub(super) fn of_path(path: &OsStr, follow: bool) -> Option<io::Result<Metadata>> {
        let flags = if follow { 0 } else { libc::AT_SYMLINK_NOFOLLOW };
        match fs::c_path(path) {
            Ok(path) => statx(libc::AT_FDCWD, &path, flags, ALL)
                .map(|answer| answer.map(|raw| convert(&raw))),
            Err(error) => Some(Err(error)),
        }
    }

    /// `None` if the kernel (before 4.11) or a container's filter has no such call.
    fn statx(fd: RawFd, path: &CStr, flags: i32, wanted: u32) -> Option<io::Result<libc::statx>> {
        // SAFETY: a struct of integers.
        let mut raw: libc::statx = unsafe { std::mem::zeroed() };
        // By its number: not every libc that this links with has a function for it.
        // SAFETY: a string that ends in NUL, and room for the answer.
        let answer = unsafe {
            libc::syscall(libc::SYS_statx, fd, path.as_ptr(), flags, wanted, &raw mut raw)
        };
        match cvt!(answer) {
            Ok(_) => Some(Ok(raw)),
            Err(e) if matches!(e.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => None,
            Err(error) => Some(Err(error)),
        }
    }

    fn convert(raw: &libc::statx) -> Metadata {
        let at = |t: libc::statx_timestamp| time(t.tv_sec, t.tv_nsec);
        let has = |what: u32| raw.stx_mask & what != 0;
        Metadata {
            device: libc::makedev(raw.stx_dev_major, raw.stx_dev_minor) as _,
            inode: raw.stx_ino,
            mode: u32::from(raw.stx_mode),
            links: u64::from(raw.stx_nlink),
            user: raw.stx_uid,
            group: raw.stx_gid,
            device_of_node: libc::makedev(raw.stx_rdev_major, raw.stx_rdev_minor) as _,
            size: raw.stx_size,
            block_size: u64::from(raw.stx_blksize),
            blocks: raw.stx_blocks,
            accessed: at(raw.stx_atime),
            modified: at(raw.stx_mtime),
            changed: at(raw.stx_ctime),
            created: has(libc::STATX_BTIME).then(|| at(raw.stx_btime)),
            direct: alignment(raw),
        }
    }

    fn alignment(raw: &libc::statx) -> Option<DirectAlignment> {
        let is_told = raw.stx_mask & libc::STATX_DIOALIGN != 0 && raw.stx_dio_offset_align > 0;
        let (memory, offset) = (raw.stx_dio_mem_align, raw.stx_dio_offset_align);
        is_told.then_some(DirectAlignment { memory, offset })
    }
}

/// std's stat has everything that these systems say.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod system {
    use super::{DirectAlignment, Metadata, OsStr, RawFd, io};

    pub(super) fn of_descriptor(_: RawFd) -> Option<io::Result<Metadata>> {
        None
    }

    pub(super) fn known(_: RawFd) -> Option<io::Result<(u16, Option<DirectAlignment>)>> {
        None
    }

    pub(super) fn of_path(_: &OsStr, _: bool) -> Option<io::Result<Metadata>> {
        None
    }
}
