//! Paths of Unix sockets that a process has left behind: a server that starts takes them over.
//!
//! # Why there is a lock
//!
//! Two servers that start at the same time find the same path without a socket. One removes it and
//! binds it anew, and the other, which has looked before, removes the new path: then both listen,
//! and nobody reaches the first one. So looking and removing happen under a lock, flock(2) of a
//! file beside the path, which goes away with the lock, and with a process that ends. The lock is
//! never waited for: who has it is about to take the path, and the path counts as in use.

#![allow(unsafe_code)]
//! # Safety
//!
//! Addresses are passed with their length; locks are of an open file.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::sys::addr::RawAddress;
use crate::sys::cvt;
use crate::sys::fd::{AsRawFd, RawFd};
use crate::sys::net::{connect, datagram};

/// How often the lock is tried when its file goes away meanwhile.
const TRIES: usize = 16;

/// bind(2). A path that no socket has any more is removed first.
///
/// # Errors
/// `EADDRINUSE`: the address is in use, or the path is no socket, or another process is just taking
/// it over. Otherwise what the system reports.
pub(super) fn bind(fd: RawFd, at: &RawAddress) -> io::Result<()> {
    match (bind_once(fd, at), at.path()) {
        (Err(error), Some(path)) if error.raw_os_error() == Some(libc::EADDRINUSE) => {
            // The lock is kept until the path is bound.
            match remove_left(at, &path)? {
                Some(_lock) => bind_once(fd, at),
                None => Err(error),
            }
        }
        (answer, _) => answer,
    }
}

fn bind_once(fd: RawFd, at: &RawAddress) -> io::Result<()> {
    // SAFETY: an address and its length.
    cvt!(unsafe { libc::bind(fd, at.as_ptr(), at.len()) })?;
    Ok(())
}

/// Removes the path if it is that of a socket which nobody has open. Returns the lock if the path
/// is free now.
fn remove_left(at: &RawAddress, path: &Path) -> io::Result<Option<Takeover>> {
    let Some(lock) = Takeover::begin(path)? else { return Ok(None) };
    match path.symlink_metadata() {
        Ok(meta) if meta.file_type().is_socket() => {}
        Ok(_) => return Ok(None),
        Err(error) => return Ok((error.kind() == io::ErrorKind::NotFound).then_some(lock)),
    }
    // The probe is of another type, so that a listener answers EPROTOTYPE, also before its
    // listen(2), and sees no connection.
    let probe = datagram(libc::AF_UNIX).map_err(io::Error::from_raw_os_error)?;
    let is_left = connect(probe.as_raw_fd(), at) == -(libc::ECONNREFUSED as isize);
    if is_left {
        std::fs::remove_file(path)?;
    }
    Ok(is_left.then_some(lock))
}

/// The lock of a path that is taken over.
struct Takeover {
    name: PathBuf,
    /// Closed behind the removal of its name.
    _file: File,
}

impl Takeover {
    /// `None`: another process or thread has it.
    fn begin(path: &Path) -> io::Result<Option<Takeover>> {
        let mut name = path.as_os_str().to_owned();
        name.push(".takeover");
        let name = PathBuf::from(name);
        for _ in 0..TRIES {
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(false).mode(0o600);
            let file = options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(&name)?;
            let fd = file.as_raw_fd();
            // SAFETY: no memory is passed.
            let answer = cvt!(unsafe { libc::flock(fd, libc::LOCK_EX | libc::LOCK_NB) });
            match answer {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(error),
            }
            // Who had the lock before may have removed this file since it was opened.
            let (own, named) = (file.metadata()?, name.symlink_metadata());
            if named.is_ok_and(|named| (named.dev(), named.ino()) == (own.dev(), own.ino())) {
                return Ok(Some(Takeover { name, _file: file }));
            }
        }
        Ok(None)
    }
}

impl Drop for Takeover {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.name);
    }
}
