//! Errors of the system as errnos, and back. Here they are the same number; Windows' are translated
//! in `windows/error.rs`.

use std::io;

/// The errno of the last failed call of this thread.
#[inline]
pub(crate) fn errno() -> i32 {
    os_errno(&io::Error::last_os_error()).unwrap_or(libc::EIO)
}

/// The errno in an error, if the system has reported it.
#[inline]
pub(crate) fn os_errno(error: &io::Error) -> Option<i32> {
    error.raw_os_error()
}

/// The error that an errno stands for.
#[inline]
pub(crate) fn os_error(errno: i32) -> io::Error {
    io::Error::from_raw_os_error(errno)
}
