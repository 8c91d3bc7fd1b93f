//! Files by path: what std has no call for, or not on every system.

#![allow(unsafe_code)]
//! # Safety
//!
//! Paths are strings that end in NUL and live across their call; structs that are filled are local.

use std::ffi::{CString, OsStr, OsString};
use std::fs::{DirBuilder, File, Permissions};
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{self as unix, DirBuilderExt, PermissionsExt};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::sys::fd::{OwnedFd, RawFd};
use crate::sys::fs::c_path;
use crate::sys::types::StatFs;
use crate::sys::{cvt, descriptor};

/// chmod(2)
pub(crate) fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    std::fs::set_permissions(path, Permissions::from_mode(mode))
}

/// fchmod(2)
pub(crate) fn set_mode_of(file: &File, mode: u32) -> io::Result<()> {
    file.set_permissions(Permissions::from_mode(mode))
}

/// chown(2); lchown(2), of a link itself, where `follow` is false.
pub(crate) fn set_owner(
    path: &Path,
    follow: bool,
    user: Option<u32>,
    group: Option<u32>,
) -> io::Result<()> {
    if follow { unix::chown(path, user, group) } else { unix::lchown(path, user, group) }
}

/// fchown(2)
pub(crate) fn set_owner_of(fd: RawFd, user: Option<u32>, group: Option<u32>) -> io::Result<()> {
    unix::fchown(descriptor::borrow(fd), user, group)
}

/// symlink(2)
pub(crate) fn symlink(target: &Path, path: &Path) -> io::Result<()> {
    unix::symlink(target, path)
}

/// mkdir(2)
pub(crate) fn make_dir(path: &Path, mode: u32) -> io::Result<()> {
    DirBuilder::new().mode(mode).create(path)
}

/// access(2): whether the real user may do `what` (`R_OK`, `W_OK`, `X_OK`; 0: whether it exists).
pub(crate) fn access(path: &OsStr, what: i32) -> io::Result<()> {
    let path = c_path(path)?;
    // SAFETY: a string that ends in NUL.
    cvt!(unsafe { libc::access(path.as_ptr(), what) })?;
    Ok(())
}

/// mkdtemp(3): a new directory (mode 0700) whose name is `template` with its last six characters,
/// which are `XXXXXX`, replaced. `EINVAL` for another template.
pub(crate) fn make_temp_dir(template: &OsStr) -> io::Result<OsString> {
    let name = c_path(template)?.into_raw();
    // SAFETY: a string that ends in NUL, exclusively ours; its length stays.
    let made = unsafe { libc::mkdtemp(name) };
    let error = io::Error::last_os_error();
    // SAFETY: from `into_raw` right above; the call has written inside the string.
    let name = unsafe { CString::from_raw(name) };
    if made.is_null() { Err(error) } else { Ok(OsString::from_vec(name.into_bytes())) }
}

/// mkostemp(3): a new file (mode 0600), opened for reading and writing, named as by
/// [`make_temp_dir`].
pub(crate) fn make_temp(template: &OsStr) -> io::Result<(OsString, OwnedFd)> {
    let name = c_path(template)?.into_raw();
    let made = system::make_temp(name).map(descriptor::own);
    // SAFETY: from `into_raw` right above; the call has written inside the string.
    let name = unsafe { CString::from_raw(name) };
    Ok((OsString::from_vec(name.into_bytes()), made?))
}

#[cfg(not(target_vendor = "apple"))]
mod system {
    use super::{RawFd, cvt, io};

    pub(super) fn make_temp(name: *mut libc::c_char) -> io::Result<RawFd> {
        // SAFETY: the caller passes a string that ends in NUL, which only the caller uses.
        cvt!(unsafe { libc::mkostemp(name, libc::O_CLOEXEC) })
    }
}

/// libc has no mkostemp(3) for macOS: a fork in between can leak the descriptor into what it
/// executes.
#[cfg(target_vendor = "apple")]
mod system {
    use super::{RawFd, cvt, descriptor, io};

    pub(super) fn make_temp(name: *mut libc::c_char) -> io::Result<RawFd> {
        // SAFETY: the caller passes a string that ends in NUL, which only the caller uses.
        let fd = cvt!(unsafe { libc::mkstemp(name) })?;
        descriptor::set_cloexec(fd).inspect_err(|_| _ = descriptor::close(fd))?;
        Ok(fd)
    }
}

/// A wall-clock time as the system takes it, also before 1970. `None` leaves the file's time.
fn timespec(time: Option<SystemTime>) -> libc::timespec {
    let mut spec = descriptor::timespec(0);
    let Some(time) = time else {
        spec.tv_nsec = libc::UTIME_OMIT;
        return spec;
    };
    let (seconds, nanoseconds) = match time.duration_since(UNIX_EPOCH) {
        Ok(after) => (after.as_secs() as i64, after.subsec_nanos()),
        Err(error) => match (error.duration().as_secs() as i64, error.duration().subsec_nanos()) {
            (seconds, 0) => (-seconds, 0),
            (seconds, nanoseconds) => (-seconds - 1, 1_000_000_000 - nanoseconds),
        },
    };
    spec.tv_sec = seconds as _;
    spec.tv_nsec = nanoseconds as _;
    spec
}

/// utimensat(2): sets the times of access and modification, of a link itself where `follow` is
/// false.
pub(crate) fn set_times(
    path: &OsStr,
    follow: bool,
    accessed: Option<SystemTime>,
    modified: Option<SystemTime>,
) -> io::Result<()> {
    let path = c_path(path)?;
    let times = [timespec(accessed), timespec(modified)];
    let flags = if follow { 0 } else { libc::AT_SYMLINK_NOFOLLOW };
    // SAFETY: a string that ends in NUL, and two times.
    cvt!(unsafe { libc::utimensat(libc::AT_FDCWD, path.as_ptr(), times.as_ptr(), flags) })?;
    Ok(())
}

/// futimens(2): as [`set_times`], of an open file.
pub(crate) fn set_times_of(
    fd: RawFd,
    accessed: Option<SystemTime>,
    modified: Option<SystemTime>,
) -> io::Result<()> {
    let times = [timespec(accessed), timespec(modified)];
    // SAFETY: two times.
    cvt!(unsafe { libc::futimens(fd, times.as_ptr()) })?;
    Ok(())
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
use libc::{statfs, statfs as StatFsRaw};
#[cfg(any(target_os = "linux", target_os = "android"))]
use libc::{statfs64 as statfs, statfs64 as StatFsRaw};

/// OpenBSD names its file systems instead.
#[cfg(not(target_os = "openbsd"))]
fn kind_of(raw: &StatFsRaw) -> u64 {
    raw.f_type as _
}

/// OpenBSD names its file systems instead.
#[cfg(target_os = "openbsd")]
fn kind_of(_: &StatFsRaw) -> u64 {
    0
}

/// statfs(2): the file system that `path` is on.
pub(crate) fn stat_fs(path: &OsStr) -> io::Result<StatFs> {
    let path = c_path(path)?;
    let mut raw = MaybeUninit::<StatFsRaw>::uninit();
    // SAFETY: a string that ends in NUL, and room for the answer.
    cvt!(unsafe { statfs(path.as_ptr(), raw.as_mut_ptr()) })?;
    // SAFETY: the call succeeded and has filled it.
    let raw = unsafe { raw.assume_init() };
    Ok(StatFs {
        kind: kind_of(&raw),
        block_size: raw.f_bsize as _,
        blocks: raw.f_blocks as _,
        blocks_free: raw.f_bfree as _,
        blocks_available: raw.f_bavail as _,
        files: raw.f_files as _,
        files_free: raw.f_ffree as _,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn times_before_1970_count_down_in_seconds_and_up_in_nanoseconds() {
        let parts = |time| {
            let spec = timespec(Some(time));
            (spec.tv_sec, spec.tv_nsec)
        };
        assert_eq!(parts(UNIX_EPOCH + Duration::new(5, 7)), (5, 7));
        assert_eq!(parts(UNIX_EPOCH - Duration::new(5, 0)), (-5, 0));
        assert_eq!(parts(UNIX_EPOCH - Duration::new(5, 1)), (-6, 999_999_999));
        assert_eq!(timespec(None).tv_nsec, libc::UTIME_OMIT);
    }
}
