//! Descriptors: their types, and how many a process may have open.
//!
//! The types are those of `std::os::fd`. On Windows, which has no such module, they have the same
//! names: what `impl Into<OwnedFd>` takes there are std's sockets and files, `OwnedSocket` and
//! `OwnedHandle`. A program that names them through this module compiles on both.

use std::io;

use crate::sys::open_files;
use crate::words::error::Refusal;

pub use crate::sys::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};

/// How many descriptors this process may have open at a time: the soft `RLIMIT_NOFILE`, often 1024.
///
/// # Errors
/// What getrlimit(2) reports. On Windows [`Refusal::Unsupported`]: it has no such limit.
pub fn max_open_files() -> io::Result<u64> {
    open_files::most()?.ok_or_else(|| Refusal::Unsupported.into())
}

/// Raises the limit of open descriptors as far as the process may (to the hard `RLIMIT_NOFILE`),
/// and answers what it then is. Programs that are started from here inherit it; those that use
/// select(2) cannot live with descriptors beyond 1023.
///
/// ```
/// # if cfg!(windows) { return Ok(()) }
/// let limit = windlass::fd::raise_max_open_files()?;
/// assert_eq!(limit, windlass::fd::max_open_files()?);
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Platform
/// macOS answers `EINVAL` beyond `OPEN_MAX` (10,240) where the hard limit is none: that is then
/// tried. Windows has no such limit: [`Refusal::Unsupported`].
///
/// # Errors
/// What getrlimit(2) and setrlimit(2) report.
pub fn raise_max_open_files() -> io::Result<u64> {
    open_files::raise()?.ok_or_else(|| Refusal::Unsupported.into())
}
