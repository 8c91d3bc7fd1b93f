//! The lock of a log: one server at a time writes it.
//!
//! # Why
//! Two servers with one log would write over each other's groups. A file with the process's number
//! would stay behind a crash, so the system's locks are used: they go with the process.
//! (`File::try_lock` of std needs Rust 1.89.)

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

/// Holds the log until it is dropped, or its process ends.
#[cfg(unix)]
#[derive(Debug)]
pub(crate) struct Lock(#[allow(dead_code)] nix::fcntl::Flock<File>);

/// Holds the log until it is dropped, or its process ends.
#[cfg(windows)]
#[derive(Debug)]
pub(crate) struct Lock(#[allow(dead_code)] File);

impl Lock {
    /// Locks the log at `path`, and makes the file if it is not there.
    ///
    /// # Errors
    /// The errors of the file, and `WouldBlock`: another server has this log.
    #[cfg(unix)]
    pub(crate) fn take(path: &Path) -> io::Result<Lock> {
        use nix::fcntl::{Flock, FlockArg};
        let file = OpenOptions::new().append(true).create(true).open(path)?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => Ok(Lock(lock)),
            Err((_, nix::Error::EWOULDBLOCK)) => Err(is_taken()),
            Err((_, error)) => Err(error.into()),
        }
    }

    /// As on Unix. A lock of the log itself would lock out the operations of this server, too. So
    /// the file `PATH.lock` is open for no other process.
    #[cfg(windows)]
    pub(crate) fn take(path: &Path) -> io::Result<Lock> {
        use std::os::windows::fs::OpenOptionsExt;
        /// ERROR_SHARING_VIOLATION
        const IS_OPEN: i32 = 32;
        OpenOptions::new().append(true).create(true).open(path)?;
        let mut beside = path.to_owned().into_os_string();
        beside.push(".lock");
        let file = OpenOptions::new().append(true).create(true).share_mode(0).open(beside);
        file.map(Lock).map_err(|error| match error.raw_os_error() {
            Some(IS_OPEN) => is_taken(),
            _ => error,
        })
    }
}

fn is_taken() -> io::Error {
    io::Error::new(io::ErrorKind::WouldBlock, "another server has this log")
}
