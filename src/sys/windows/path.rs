//! Files by path: what std has no call for, or not on every system.
//!
//! There are no owners and no permissions as on Unix. Of a mode, only the write bits are honoured.

use std::collections::hash_map::RandomState;
use std::ffi::{OsStr, OsString};
use std::fs::{File, FileTimes, OpenOptions, Permissions};
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::os::windows::fs::{OpenOptionsExt, symlink_dir, symlink_file};
use std::path::Path;
use std::time::SystemTime;

use crate::sys::fd::{OwnedFd, RawFd};
use crate::sys::fs::{W_OK, file};
use crate::sys::os_error;
use crate::sys::types::StatFs;
use crate::sys::windows::api;

/// Whether it can be written at all.
fn with_mode(mut permissions: Permissions, mode: u32) -> Permissions {
    permissions.set_readonly(mode & 0o222 == 0);
    permissions
}

/// Makes a file read-only, or not.
pub(crate) fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    std::fs::set_permissions(path, with_mode(std::fs::metadata(path)?.permissions(), mode))
}

/// As [`set_mode`].
pub(crate) fn set_mode_of(file: &File, mode: u32) -> io::Result<()> {
    file.set_permissions(with_mode(file.metadata()?.permissions(), mode))
}

/// Files have no such owners: `EOPNOTSUPP`.
pub(crate) fn set_owner(
    _: &Path,
    _follow: bool,
    _user: Option<u32>,
    _group: Option<u32>,
) -> io::Result<()> {
    Err(os_error(libc::EOPNOTSUPP))
}

/// Files have no such owners: `EOPNOTSUPP`.
pub(crate) fn set_owner_of(_: RawFd, _user: Option<u32>, _group: Option<u32>) -> io::Result<()> {
    Err(os_error(libc::EOPNOTSUPP))
}

/// A link to a directory, if there is one, else to a file. `EPERM` without the privilege.
pub(crate) fn symlink(target: &Path, path: &Path) -> io::Result<()> {
    let beside = path.parent().map_or(target.to_path_buf(), |parent| parent.join(target));
    if beside.is_dir() { symlink_dir(target, path) } else { symlink_file(target, path) }
}

/// A directory; its permissions are those of the one that it is in.
pub(crate) fn make_dir(path: &Path, mode: u32) -> io::Result<()> {
    let _ = mode;
    std::fs::create_dir(path)
}

/// Whether it exists; for `W_OK`, whether it is not read-only (`EACCES`). Lists of rights are not
/// looked at.
pub(crate) fn access(path: &OsStr, what: i32) -> io::Result<()> {
    let known = std::fs::metadata(path)?;
    let denied = what & W_OK != 0 && known.permissions().readonly() && !known.is_dir();
    if denied { Err(os_error(libc::EACCES)) } else { Ok(()) }
}

/// Calls `make` with `template` whose last six characters, which are `XXXXXX`, are replaced, until
/// it meets a name that is not there. `EINVAL` for another template.
fn make_unique<T>(
    template: &OsStr,
    mut make: impl FnMut(&OsStr) -> io::Result<T>,
) -> io::Result<(OsString, T)> {
    const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let head = template.to_str().and_then(|text| text.strip_suffix("XXXXXX"));
    let head = head.ok_or_else(|| os_error(libc::EINVAL))?;
    let mut tries = 0;
    loop {
        let random = RandomState::new().build_hasher().finish();
        let tail =
            (0..6).map(|i| char::from(LETTERS[(random >> (5 * i)) as usize % LETTERS.len()]));
        let name = OsString::from(head.chars().chain(tail).collect::<String>());
        match make(&name) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && tries < 100 => tries += 1,
            made => return made.map(|made| (name, made)),
        }
    }
}

/// A new directory, named by a template: see [`make_unique`].
pub(crate) fn make_temp_dir(template: &OsStr) -> io::Result<OsString> {
    make_unique(template, |name| std::fs::create_dir(name)).map(|(name, ())| name)
}

/// A new file, opened for reading and writing, named by a template: see [`make_unique`].
pub(crate) fn make_temp(template: &OsStr) -> io::Result<(OsString, OwnedFd)> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true);
    let (name, file) = make_unique(template, |name| options.open(name))?;
    Ok((name, OwnedFd::from(file)))
}

fn times(accessed: Option<SystemTime>, modified: Option<SystemTime>) -> FileTimes {
    let times = FileTimes::new();
    let times = accessed.map_or(times, |accessed| times.set_accessed(accessed));
    modified.map_or(times, |modified| times.set_modified(modified))
}

/// Sets the times of access and modification, of a link itself where `follow` is false.
pub(crate) fn set_times(
    path: &OsStr,
    follow: bool,
    accessed: Option<SystemTime>,
    modified: Option<SystemTime>,
) -> io::Result<()> {
    let link = if follow { 0 } else { api::FILE_FLAG_OPEN_REPARSE_POINT };
    OpenOptions::new()
        .access_mode(api::FILE_WRITE_ATTRIBUTES)
        .custom_flags(api::FILE_FLAG_BACKUP_SEMANTICS | link)
        .open(path)?
        .set_times(times(accessed, modified))
}

/// As [`set_times`], of an open file.
pub(crate) fn set_times_of(
    fd: RawFd,
    accessed: Option<SystemTime>,
    modified: Option<SystemTime>,
) -> io::Result<()> {
    file(fd).set_times(times(accessed, modified))
}

/// There is no such call: `EOPNOTSUPP`.
pub(crate) fn stat_fs(_: &OsStr) -> io::Result<StatFs> {
    Err(os_error(libc::EOPNOTSUPP))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_ends_in_six_letters_that_are_replaced() {
        let (name, ()) = make_unique(OsStr::new("a.XXXXXX"), |_| Ok(())).unwrap();
        let name = name.into_string().unwrap();
        assert!(name.len() == 8 && name.starts_with("a.") && name != "a.XXXXXX");
        for bad in ["", "XXXXX", "aXXXXXXb"] {
            let error = make_unique(OsStr::new(bad), |_| Ok(())).unwrap_err();
            assert_eq!(crate::sys::os_errno(&error), Some(libc::EINVAL));
        }
    }
}
