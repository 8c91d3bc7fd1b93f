//! Files below a directory: nothing in a path leads out of it.
//!
//! # Why
//!
//! Whoever resolves a path, and opens it in a second call, can be tricked: a directory becomes a
//! symbolic link in between. openat2(2) of Linux 5.6 does both at once. Elsewhere there are two
//! calls, and so there is this race. It needs somebody who can write below the directory.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use crate::sys::{fs, os_error};

/// As [`open`](fs::open), below `root`: `EXDEV` if the path leads out of it.
pub(crate) fn open(
    root: &Path,
    path: &Path,
    flags: i32,
    mode: u32,
    direct: bool,
) -> io::Result<File> {
    // Not every system's joined path tells the two apart.
    if path.as_os_str().is_empty() {
        return Err(os_error(libc::ENOENT));
    }
    match system::open(root, path, flags, mode) {
        Some(opened) => opened,
        None => open_located(root, path, flags, mode, direct),
    }
}

/// The same in two calls.
fn open_located(root: &Path, path: &Path, flags: i32, mode: u32, direct: bool) -> io::Result<File> {
    let root = root.canonicalize()?;
    let found = locate(&root, path, flags & libc::O_CREAT != 0)?;
    if path.is_absolute() || !found.starts_with(&root) {
        return Err(os_error(libc::EXDEV));
    }
    fs::open(found.as_os_str(), flags | fs::NOFOLLOW, mode, direct)
}

/// The path without links. With `makes`, its last part need not be there.
fn locate(root: &Path, path: &Path, makes: bool) -> io::Result<PathBuf> {
    let path = root.join(path);
    let found = path.canonicalize();
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) if makes && is_missing(&found) => {
            Ok(parent.canonicalize()?.join(name))
        }
        _ => found,
    }
}

fn is_missing(found: &io::Result<PathBuf>) -> bool {
    found.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

#[cfg(target_os = "linux")]
mod system {
    use std::ffi::OsStr;

    use super::{File, Path, fs, io};
    use nix::errno::Errno;
    use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
    use nix::sys::stat::Mode;

    /// A rename elsewhere in the tree makes a `..` undecided: open(2) then decides it again.
    const TRIES: usize = 16;

    /// `None` if the kernel (before 5.6) or a container's filter has no such call.
    pub(super) fn open(
        root: &Path,
        path: &Path,
        flags: i32,
        mode: u32,
    ) -> Option<io::Result<File>> {
        let of_root = libc::O_PATH | libc::O_DIRECTORY;
        let root = match fs::open(root.as_os_str(), of_root, 0, false) {
            Ok(root) => root,
            Err(error) => return Some(Err(error)),
        };
        let makes = flags & libc::O_CREAT != 0;
        let how = OpenHow::new()
            .flags(OFlag::from_bits_retain(flags | libc::O_CLOEXEC | libc::O_LARGEFILE))
            .mode(Mode::from_bits_truncate(if makes { mode } else { 0 }))
            .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS);
        let path: &OsStr = path.as_os_str();
        let mut tries = 0;
        loop {
            tries += 1;
            return match openat2(&root, path, how) {
                Ok(fd) => Some(Ok(File::from(fd))),
                Err(Errno::EINTR) => continue,
                Err(Errno::EAGAIN) if tries < TRIES => continue,
                Err(Errno::ENOSYS | Errno::EPERM) => None,
                Err(errno) => Some(Err(errno.into())),
            };
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use super::{File, Path, io};

    pub(super) fn open(_: &Path, _: &Path, _: i32, _: u32) -> Option<io::Result<File>> {
        None
    }
}

#[cfg(all(test, unix, not(miri)))]
mod tests {
    use super::*;

    /// Both ways, unless they differ.
    fn outcome(root: &Path, path: &str) -> Result<u64, i32> {
        let flags = libc::O_RDONLY | libc::O_NONBLOCK;
        let both = [
            open(root, Path::new(path), flags, 0, false),
            open_located(root, Path::new(path), flags, 0, false),
        ];
        let of = |opened: &io::Result<File>| match opened {
            Ok(file) => Ok(file.metadata().unwrap().len()),
            Err(error) => Err(error.raw_os_error().unwrap()),
        };
        assert_eq!(of(&both[0]), of(&both[1]), "{path}");
        of(&both[0])
    }

    #[test]
    fn no_path_leads_out() {
        let dir = std::env::temp_dir().join(format!("windlass-beneath-{}", std::process::id()));
        let root = dir.join("root");
        std::fs::create_dir_all(root.join("sub")).unwrap();
        std::fs::write(root.join("sub/file"), "1").unwrap();
        std::fs::write(dir.join("secret"), "22").unwrap();
        let link = |target: &str, name: &str| {
            std::os::unix::fs::symlink(target, root.join(name)).unwrap();
        };
        link("sub/file", "inside");
        link("../secret", "outside");
        link("..", "parent");
        link("/etc/passwd", "absolute");
        link("circle", "circle");
        for path in ["sub/file", "inside", "sub/../inside", "./inside"] {
            assert_eq!(outcome(&root, path), Ok(1), "{path}");
        }
        for path in ["outside", "parent/secret", "../secret", "sub/../../secret", "absolute"] {
            assert_eq!(outcome(&root, path), Err(libc::EXDEV), "{path}");
        }
        assert_eq!(outcome(&root, "/etc/passwd"), Err(libc::EXDEV));
        assert_eq!(outcome(&root, "none"), Err(libc::ENOENT));
        assert_eq!(outcome(&root, "circle"), Err(libc::ELOOP));
        assert!(outcome(&root, ".").is_ok());
        assert_eq!(open(&root, Path::new(""), 0, 0, false).unwrap_err().raw_os_error(), Some(2));
        for (path, is_made) in [("sub/new", true), ("parent/new", false), ("outside", false)] {
            let flags = libc::O_WRONLY | libc::O_CREAT;
            assert_eq!(open(&root, Path::new(path), flags, 0o600, false).is_ok(), is_made);
            std::fs::remove_file(root.join("sub/new")).ok();
            assert_eq!(
                open_located(&root, Path::new(path), flags, 0o600, false).is_ok(),
                is_made,
                "{path}"
            );
        }
        assert!(!dir.join("new").exists());
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
