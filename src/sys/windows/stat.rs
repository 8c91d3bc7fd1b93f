//! The attributes of a file: std's metadata, and the identity of the file.

#![allow(unsafe_code)]
//! # Safety
//!
//! The struct that the system fills is local.

use std::ffi::OsStr;
use std::fs::{FileType, OpenOptions};
use std::io;
use std::mem::MaybeUninit;
use std::os::windows::fs::OpenOptionsExt;
use std::time::UNIX_EPOCH;

use crate::sys::fd::{AsRawFd, RawFd, handle};
use crate::sys::fs::file;
use crate::sys::types::{DirectAlignment, FileKind, Metadata};
use crate::sys::windows::api;

/// The kind of a file according to its entry in the directory.
pub(crate) fn kind_of(kind: FileType) -> FileKind {
    let table = [
        (kind.is_symlink(), FileKind::Symlink),
        (kind.is_file(), FileKind::File),
        (kind.is_dir(), FileKind::Directory),
    ];
    table.iter().find(|(is, _)| *is).map_or(FileKind::Unknown, |(_, kind)| *kind)
}

/// What direct I/O on an open file needs: the system opens none for it.
pub(crate) fn known_alignment(_: RawFd) -> Option<DirectAlignment> {
    None
}

/// The attributes of an open file. There are no owners, no permissions but read-only, and no time
/// of the last change of metadata; blocks are counted from the size.
pub(crate) fn of_descriptor(fd: RawFd) -> io::Result<Metadata> {
    let known = file(fd).metadata()?;
    let mut raw = MaybeUninit::<api::BY_HANDLE_FILE_INFORMATION>::uninit();
    // SAFETY: a handle, and room for the answer.
    if unsafe { api::GetFileInformationByHandle(handle(fd), raw.as_mut_ptr()) } == 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded and has filled it.
    let raw = unsafe { raw.assume_init() };
    let (kind, permissions) = match kind_of(known.file_type()) {
        FileKind::Directory => (0o040_000, 0o777),
        FileKind::Symlink => (0o120_000, 0o777),
        _ if known.permissions().readonly() => (0o100_000, 0o444),
        _ => (0o100_000, 0o666),
    };
    let modified = known.modified().unwrap_or(UNIX_EPOCH);
    Ok(Metadata {
        device: raw.dwVolumeSerialNumber.into(),
        inode: u64::from(raw.nFileIndexHigh) << 32 | u64::from(raw.nFileIndexLow),
        mode: kind | permissions,
        links: raw.nNumberOfLinks.into(),
        user: 0,
        group: 0,
        device_of_node: 0,
        size: known.len(),
        block_size: 4096,
        blocks: known.len().div_ceil(512),
        accessed: known.accessed().unwrap_or(modified),
        modified,
        changed: modified,
        created: known.created().ok(),
        direct: None,
    })
}

/// The attributes of the file at a path; of a link itself if `follow` is false.
pub(crate) fn of_path(path: &OsStr, follow: bool) -> io::Result<Metadata> {
    let link = if follow { 0 } else { api::FILE_FLAG_OPEN_REPARSE_POINT };
    let opened = OpenOptions::new()
        .access_mode(0)
        .custom_flags(api::FILE_FLAG_BACKUP_SEMANTICS | link)
        .open(path)?;
    of_descriptor(opened.as_raw_fd())
}
