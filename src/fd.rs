//! Descriptors: their types, and how many a process may have open.
//!
//! The types are those of `std::os::fd`. On Windows, which has no such module, they have the same
//! names: what `impl Into<OwnedFd>` takes there are std's sockets and files, `OwnedSocket` and
//! `OwnedHandle`. A program that names them through this module compiles on both.

use std::io;

use crate::sys::{descriptor, open_files};
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

/// Takes a descriptor that this process has inherited, by its number: a listener that a service
/// manager has opened, for example. From here on the returned value owns it, and programs that are
/// started from here do not inherit it.
///
/// A descriptor goes through exec(2) only if it is not closed on exec. What std and this crate open
/// is closed on exec, and so is what this call has taken. So the call refuses both: it takes a
/// descriptor once, and none that a value of std owns. It cannot know a descriptor that other code
/// of the process has opened without `O_CLOEXEC`. Pass no number of such a one.
///
/// The numbers 0, 1 and 2 keep a meaning for all code of the process. In place of what was taken,
/// they get `/dev/null`.
///
/// ```
/// use std::net::TcpListener;
///
/// // As inetd passes a listener: as standard input. Without one, the program opens its own.
/// let listener = match windlass::fd::inherited(0).map(TcpListener::from) {
///     Ok(listener) if listener.local_addr().is_ok() => listener,
///     _ => TcpListener::bind("127.0.0.1:0")?,
/// };
/// # drop(listener);
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
///
/// - `EBADF`: the number is not open.
/// - `InvalidInput`: the descriptor is closed on exec, so it is not an inherited one, or was taken.
/// - For the numbers 0 to 2: what fcntl(2), the open of `/dev/null` and dup2(2) report.
/// - [`Refusal::Unsupported`]: on Windows, which passes no descriptors by their numbers.
pub fn inherited(number: RawFd) -> io::Result<OwnedFd> {
    descriptor::inherited(number)
}
